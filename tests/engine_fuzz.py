"""Random models, batches and searches on the native engine: `python tests/engine_fuzz.py STEPS
[SEED]`.

It is meant for an engine that is compiled with sanitizers, which end the process at the first
invalid memory access. It also checks that all results are finite and that probabilities sum to one.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from nmt.core.config import ModelConfig
from nmt.core.errors import UsageError
from nmt.engines import native
from nmt.engines.native import NativeModel, NativeState
from nmt.search import SearchRequest, parse_search
from nmt.search.request import Ints, StepRequest, StepResult

BOS, EOS = 2, 3
MAX_POSITIONS = 24
ENCODINGS = (
    "sinusoidal",
    "sinusoidal_concatenated",
    "sinusoidal_marian",
    "none",
    "rotary",
    "alibi",
    "t5",
    "t5(num_buckets=4, max_distance=5)",
    f"learned(max_positions={MAX_POSITIONS})",
)
VOCABULARIES = (5, 40, 130, 511, 513, 1030)
"""Around the sizes of blocks in engine.c."""
SEARCHES = (
    "greedy",
    "greedy(no_repeat_ngram_size=2)",
    "beam(beam_size=2)",
    "beam(beam_size=5, top_beams=3, coverage_penalty=0.2)",
    "beam(beam_size=9, min_length_ratio=1.0)",
    "diverse",
    "constrained(beam_size=3)",
    "constrained",
    "sample(n_best=3)",
)


class Fuzzer:
    """Counts the steps and checks each of them."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.num_steps = 0

    def integer(self, low: int, high: int) -> int:
        """Return an integer from `low` to `high`, usually a small one."""
        share = self.draw.random() ** 3
        return low + round(share * (high - low))

    def ids(self, length: int, vocab_size: int) -> list[int]:
        """Return token ids that are no special tokens."""
        return [int(token) for token in self.draw.integers(4, vocab_size, length)]

    def run_model(self, encoding: str, precision: str) -> None:
        """Search with a random model in several batches, which reuse the memory of each other."""
        config = self.config(encoding)
        vocab_size = int(self.draw.choice(VOCABULARIES))
        model = NativeModel(config, self.weights(config, vocab_size), precision)
        for _ in range(2):
            self.run_steps(model)
            self.run_search(model)
            self.run_targets(model)
        if model.max_positions is not None:
            self.run_beyond_positions(model)

    def config(self, encoding: str) -> ModelConfig:
        """Return a random network with this position encoding."""
        heads = int(self.draw.integers(1, 5))
        head_dim = int(self.draw.integers(1, 21))
        if encoding == "rotary":
            head_dim += head_dim % 2
        divisors = [count for count in range(1, heads + 1) if heads % count == 0]
        return ModelConfig(
            dim=heads * head_dim,
            heads=heads,
            kv_heads=int(self.draw.choice(divisors)),
            ffn_dim=int(self.draw.integers(1, 71)),
            encoder_layers=int(self.draw.integers(1, 4)),
            decoder_layers=int(self.draw.integers(1, 4)),
            layer_sharing=int(self.draw.integers(1, 4)),
            decoder=str(self.draw.choice(["attention", "ssru"])),
            activation=str(self.draw.choice(native.ACTIVATION_NAMES)),
            norm=str(self.draw.choice(["layer", "rms"])),
            norm_position=str(self.draw.choice(["pre", "post"])),
            tie_embeddings=bool(self.draw.integers(2)),
            output_bias=bool(self.draw.integers(2)),
            position_encoding=encoding,
        )

    def weights(self, config: ModelConfig, vocab_size: int) -> dict[str, Any]:
        """Return random weights of all parameters."""
        weights = {}
        for name, shape in native.weight_shapes(config, vocab_size):
            if native.has_weight(config, name):
                weights[name] = self.draw.standard_normal(shape, np.float32) * np.float32(0.3)
        return weights

    def sources(self, model: NativeModel) -> list[list[int]]:
        """Return a random batch."""
        longest = min(110, model.max_positions or 110)
        lengths = [self.integer(1, longest) for _ in range(self.integer(1, 30))]
        return [[*self.ids(length - 1, model.vocab_size), EOS] for length in lengths]

    def candidates(self, model: NativeModel, num_sources: int) -> list[Ints]:
        """Return random tokens for each sentence, in ascending order."""
        lists = []
        for _ in range(num_sources):
            size = self.integer(1, model.vocab_size)
            ids = self.draw.choice(model.vocab_size, size, replace=False)
            lists.append(np.sort(ids))
        return lists

    def run_steps(self, model: NativeModel) -> None:
        """Drop, repeat and reorder rows at random."""
        sources = self.sources(model)
        state = model.init_search_state(
            sources,
            track_attention=bool(self.draw.integers(2)),
            candidates=self.candidates(model, len(sources)) if self.draw.integers(2) else (),
        )
        num_parents = len(sources)
        for _ in range(self.integer(2, MAX_POSITIONS)):
            rows = self.integer(1, 110)
            request = StepRequest(
                self.draw.integers(0, model.vocab_size, rows),
                self.draw.integers(0, num_parents, rows),
                k=self.integer(0, 20),
                banned_RX=self.draw.integers(-1, model.vocab_size, (rows, self.integer(0, 3))),
                gather_RP=self.draw.integers(0, model.vocab_size, (rows, self.integer(0, 3))),
                all_log_probs=True,
            )
            result = state.step(request)
            assert result.log_p_RV is not None
            np.testing.assert_allclose(
                np.exp(result.log_p_RV.astype(np.float64)).sum(1), 1, atol=1e-3
            )
            if state.attention_RS is not None:
                np.testing.assert_allclose(state.attention_RS.sum(1), 1, atol=1e-3)
            num_parents = rows

    def run_targets(self, model: NativeModel) -> None:
        """Score random targets."""
        sources = [source[:-1] for source in self.sources(model)]
        longest = min(110, model.max_positions or 110)
        targets = [self.ids(self.integer(0, longest - 1), model.vocab_size) for _ in sources]
        log_probs = model.log_probs(sources, targets)
        assert np.isfinite(log_probs).all()
        assert max(log_probs) <= 1e-3

    def run_search(self, model: NativeModel) -> None:
        """Run a random search with prefixes and constraints."""
        sources = self.sources(model)
        max_tokens = MAX_POSITIONS - 1  # and the start token
        max_prefix = max_tokens // 2
        prefixes = [self.ids(self.integer(0, max_prefix), model.vocab_size) for _ in sources]
        max_lengths = np.array([self.integer(1, max_tokens) for _ in sources])
        spec = str(self.draw.choice(SEARCHES))
        constraints: list[list[list[int]]] = []
        if spec.startswith("constrained"):
            constraints = [[self.ids(self.integer(1, 4), model.vocab_size)] for _ in sources]
        request = SearchRequest(
            sources, max_lengths, BOS, EOS, prefixes, constraints, suppressed_ids=(0, 1, BOS)
        )
        for hypotheses in parse_search(spec)(model, request):
            assert np.isfinite([hypothesis.log_prob for hypothesis in hypotheses]).all()

    def run_beyond_positions(self, model: NativeModel) -> None:
        """Check that a prefix that is longer than the table of positions is an error."""
        prefix = self.ids(MAX_POSITIONS + 5, model.vocab_size)
        request = SearchRequest([[4, EOS]], np.array([5]), BOS, EOS, [prefix])
        try:
            parse_search("greedy")(model, request)
        except UsageError:
            return
        raise AssertionError("the prefix has more tokens than the model has positions")


def main(max_steps: int, seed: int) -> None:
    """Run models with every encoding and precision, and then with other pairs of them, until the
    number of steps is reached."""
    fuzzer = Fuzzer(seed)
    step = NativeState.step

    def counted(state: NativeState, request: StepRequest) -> StepResult:
        fuzzer.num_steps += 1
        return step(state, request)

    NativeState.step = counted  # type: ignore[method-assign]
    num_models = 0
    while fuzzer.num_steps < max_steps or num_models < len(ENCODINGS):
        rounds, number = divmod(num_models, len(ENCODINGS))
        encoding = ENCODINGS[number]
        precision = native.TYPES[(number + rounds) % len(native.TYPES)]
        fuzzer.run_model(encoding, precision)
        num_models += 1
    print(f"{fuzzer.num_steps} steps, {num_models} models")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
