"""Search algorithms, compared with brute force, with each other and with teacher-forced scores."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmt.core.config import ModelConfig
from nmt.core.errors import ConfigError
from nmt.engines import native
from nmt.engines.ensemble import NativeEnsemble
from nmt.engines.native import NativeModel
from nmt.engines.pytorch import TorchModel
from nmt.model.build import build_model
from nmt.model.transformer import Transformer
from nmt.search import SEARCHES, Hypothesis, SearchRequest, StepModel, parse_search
from nmt.search import beam as beam_module
from nmt.search.candidates import allocate_banks, extend
from nmt.search.constraints import Constraints
from nmt.search.mbr import expected_chrf
from nmt.search.request import Floats, NBestLists, StepRequest, StepResult, best_tokens
from nmt.search.sample import draw
from nmt.text.tokenizer import BOS, EOS

compiled = pytest.mark.skipif(not native.is_available(), reason="needs a C compiler")
VOCABULARY = 7
N_BEST = [
    "greedy",
    "beam(beam_size=4, top_beams=4)",
    "diverse(beam_size=6, groups=3, top_beams=4)",
    "constrained(beam_size=4, top_beams=3)",
    "sample(n_best=3)",
    "beam(beam_size=4, top_beams=2, coverage_penalty=0.3)",
]
WITH_OPTIONS = [
    "greedy({})",
    "beam(beam_size=4, top_beams=4, {})",
    "diverse(beam_size=4, top_beams=4, {})",
    "sample(n_best=4, {})",
]
SOURCES = [[4, 5, 6, 3], [6, 4, 3], [5, 3]]


def new_model(seed: int, vocabulary: int = VOCABULARY, end_bias: float = 0.0) -> Transformer:
    torch.manual_seed(seed)
    config = ModelConfig(
        dim=8,
        heads=2,
        ffn_dim=16,
        encoder_layers=1,
        decoder_layers=2,
        tie_embeddings=False,
    )
    model = build_model(config, vocabulary).eval()
    with torch.no_grad():
        model.output_weight_VD.mul_(6)  # far from uniform, so that rankings are unambiguous
        # The output of the last norm has mean 0, and a constant weight would sum to 0 over it.
        model.decoder_norm.bias.fill_(1.0)
        model.output_weight_VD[EOS].add_(end_bias / len(model.decoder_norm.bias))
    return model


make_model = cache(new_model)
"""Returns a model that tests share, so they must not change it."""


def make_native(model: Transformer) -> NativeModel:
    weights = {name: weight.numpy() for name, weight in model.state_dict().items()}
    return NativeModel(model.config, weights, "fp32")


def run(
    model: Transformer | StepModel,
    spec: str,
    limits: list[int] | None = None,
    rows: slice = slice(None),
    **options: Any,
) -> NBestLists:
    request = SearchRequest(
        SOURCES[rows],
        np.array(limits or [6, 6, 6])[rows],
        BOS,
        EOS,
        **options,
    )
    search = parse_search(spec)
    if isinstance(model, Transformer):
        return search(TorchModel([model]), request)
    return search(model, request)


def forced_log_prob(model: Transformer, row: int, ids: list[int]) -> float:
    """Return the log-probability of a translation and its end token from an uncached forward
    pass."""
    log_p_TV, _ = forced(model, SOURCES[row], ids)
    return log_prob_of(log_p_TV, ids)


def log_prob_of(log_p_TV: Tensor, ids: list[int]) -> float:
    """Return the log-probability of a translation and its end token, given those of all tokens."""
    return sum(log_probs_of(log_p_TV, ids))


def log_probs_of(log_p_TV: Tensor, ids: list[int]) -> list[float]:
    """Return the log-probabilities of the tokens of a translation and of its end token."""
    tokens = [*ids, EOS]
    log_p_T = log_p_TV[range(len(tokens)), tokens]
    return log_p_T.tolist()


def gnmt_norm(length: int, penalty: float = 1.0) -> float:
    """Return the length norm of a translation, whose length includes the end token."""
    return float((5 + length) / 6) ** penalty


def all_translations(vocabulary: int, limit: int) -> list[list[int]]:
    """Return all translations that are not longer than a limit."""
    words = [token for token in range(vocabulary) if token != EOS]
    translations = []
    for length in range(limit + 1):
        translations += map(list, itertools.product(words, repeat=length))
    return translations


def all_hypotheses(results: NBestLists) -> list[Hypothesis]:
    return list(itertools.chain.from_iterable(results))


def ids_of(hypotheses: list[Hypothesis]) -> list[list[int]]:
    return [h.ids for h in hypotheses]


def scores_of(hypotheses: list[Hypothesis]) -> list[float]:
    return [h.score for h in hypotheses]


def assert_equal_ids(results: NBestLists, expected: NBestLists) -> None:
    for one, other in zip(results, expected, strict=True):
        assert ids_of(one) == ids_of(other)


def assert_equal(
    results: NBestLists,
    expected: NBestLists,
    tolerance: float = 1e-5,
) -> None:
    assert_equal_ids(results, expected)
    for one, other in zip(results, expected, strict=True):
        assert scores_of(one) == pytest.approx(scores_of(other), abs=tolerance)


@torch.inference_mode()
def forced(model: Transformer, source: list[int], ids: list[int]) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities and cross-attention of a translation from an uncached forward
    pass."""
    source_1S = torch.tensor([source])
    mask_1S = torch.ones_like(source_1S, dtype=torch.bool)
    hidden_1SD = model.encode(source_1S, mask_1S)
    state = model.init_state(hidden_1SD, mask_1S, use_cache=False)
    state.track_attention()
    hidden_1TD = model.decode(torch.tensor([[BOS, *ids]]), state)
    log_p_1TV = model.logits(hidden_1TD).log_softmax(-1)
    return log_p_1TV[0], state.cross_attention_RTS[0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("spec", "equal"),
    [
        ("beam(beam_size=1, length_penalty=0.0)", "greedy"),
        ("diverse(beam_size=4, groups=1, top_beams=3)", "beam(beam_size=4, top_beams=3)"),
        (
            "diverse(beam_size=6, groups=2, top_beams=3, diversity_penalty=0.0)",
            "beam(beam_size=3, top_beams=3)",
        ),
        ("constrained(beam_size=4, top_beams=3)", "beam(beam_size=4, top_beams=3)"),
    ],
)
def test_special_cases_equal_other_searches(spec: str, equal: str, seed: int) -> None:
    model = make_model(seed)
    assert_equal(run(model, spec), run(model, equal))


@cache
def exhaustive_log_probs(seed: int, end_bias: float) -> list[tuple[list[int], float]]:
    """Return all translations of `[4, 4, 3]` of at most 3 of 5 tokens, and their
    log-probabilities."""
    model = make_model(seed, 5, end_bias)
    translations = []
    for ids in all_translations(5, 3):
        log_p_TV, _ = forced(model, [4, 4, 3], ids)
        translations.append((ids, log_prob_of(log_p_TV, ids)))
    return translations


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("end_bias", [-0.5, 1.0])
def test_a_wide_beam_equals_exhaustive_search(seed: int, penalty: float, end_bias: float) -> None:
    translations = exhaustive_log_probs(seed, end_bias)
    scored = [(p / gnmt_norm(len(ids) + 1, penalty), ids) for ids, p in translations]
    scored.sort(reverse=True)
    search = parse_search(
        f"beam(beam_size={len(translations)}, top_beams=5, length_penalty={penalty})"
    )
    request = SearchRequest([[4, 4, 3]], np.array([3]), BOS, EOS)
    (hypotheses,) = search(TorchModel([make_model(seed, 5, end_bias)]), request)
    for h, (score, ids) in zip(hypotheses, scored[:5], strict=True):
        assert h.ids == ids
        assert h.score == pytest.approx(score, abs=1e-4)


@cache
def log_probs_of_next(seed: int, row: int, ids: tuple[int, ...]) -> list[float]:
    """Return the log-probabilities of the next tokens of the model of a narrow beam."""
    model = make_model(seed, end_bias=1.5)
    log_p_TV, _ = forced(model, SOURCES[row], list(ids))
    log_p_V: list[float] = log_p_TV[-1].tolist()
    return log_p_V


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("early_stopping", [True, False])
@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_a_narrow_beam_equals_a_reference_implementation(
    seed: int,
    size: int,
    early_stopping: bool,
    penalty: float,
) -> None:
    model = make_model(seed, end_bias=1.5)
    options = f"length_penalty={penalty}, early_stopping={early_stopping}"
    results = run(model, f"beam(beam_size={size}, top_beams={size}, {options})", [6, 6, 6])
    for row, hypotheses in enumerate(results):
        max_finished = size if early_stopping else math.inf
        finished = reference_beam_search(seed, row, size, penalty, max_finished)
        assert ids_of(hypotheses) == [ids for _, ids in finished[:size]]


def reference_beam_search(
    seed: int,
    row: int,
    size: int,
    penalty: float,
    max_finished: float,
) -> list[tuple[float, list[int]]]:
    """Return the scores and tokens of all finished hypotheses of at most six tokens, best first."""
    beams: list[tuple[float, list[int]]] = [(0.0, [])]
    finished: list[tuple[float, list[int]]] = []
    for length in range(7):
        if not beams or len(finished) >= max_finished:
            break
        candidates = []
        for log_prob, ids in beams:
            log_p_V = log_probs_of_next(seed, row, tuple(ids))
            tokens = range(VOCABULARY) if length < 6 else [EOS]
            candidates += [(log_prob + log_p_V[token], [*ids, token]) for token in tokens]
        candidates.sort(reverse=True)
        length_norm = gnmt_norm(length + 1, penalty)
        for log_prob, ids in candidates[:size]:
            if ids[-1] == EOS:
                finished.append((log_prob / length_norm, ids[:-1]))
        continuing = [candidate for candidate in candidates if candidate[1][-1] != EOS]
        beams = continuing[:size]
    return sorted(finished, reverse=True)


@pytest.mark.parametrize("size", [6, 12, 40])
def test_impossible_beams_never_become_hypotheses(size: int) -> None:
    model = TorchModel([make_model(0, 5)])
    request = SearchRequest([[4, 4, 3]], np.array([3]), BOS, EOS)
    search = parse_search(f"beam(beam_size={size}, top_beams={size})")
    (hypotheses,) = search(model, request)
    assert len(hypotheses) == size  # of 85 possible translations
    for h in hypotheses:
        assert h.log_prob > -math.inf


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "spec", [*N_BEST, "mbr(candidates='beam(beam_size=4, top_beams=4)', n_best=2)"]
)
def test_log_probs_equal_teacher_forced_log_probs(seed: int, spec: str) -> None:
    model = make_model(seed)
    for row, hypotheses in enumerate(run(model, spec)):
        for hypothesis in hypotheses:
            assert hypothesis.log_prob == pytest.approx(
                forced_log_prob(model, row, hypothesis.ids), abs=1e-4
            )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("normalization", ["gnmt", "average"])
def test_n_best_list_is_sorted_distinct_and_normalized(seed: int, normalization: str) -> None:
    options = f"length_penalty=0.6, length_normalization='{normalization}'"
    for hypotheses in run(make_model(seed), f"beam(beam_size=6, top_beams=6, {options})"):
        scores = scores_of(hypotheses)
        assert scores == sorted(scores, reverse=True)
        distinct = set(map(tuple, ids_of(hypotheses)))
        assert len(distinct) == len(hypotheses)
        for h in hypotheses:
            length = len(h.ids) + 1  # with the end token
            length_norm = gnmt_norm(length, 0.6)
            if normalization == "average":
                length_norm = length**0.6
            assert h.score == pytest.approx(h.log_prob / length_norm, rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "spec",
    [
        "beam(beam_size=3)",
        "beam(beam_size=5, top_beams=3)",
        "beam(beam_size=4, length_penalty=0.0)",
        "beam(beam_size=4, length_penalty=2.0)",
        "beam(beam_size=4, coverage_penalty=0.5)",
        "beam(beam_size=4, top_beams=2, length_normalization='average')",
        "diverse(beam_size=6, groups=3, top_beams=2)",
        "constrained(beam_size=5, top_beams=2)",
    ],
)
def test_the_stopping_criterion_does_not_change_the_result(
    seed: int, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(seed, 11, end_bias=0.5)
    constraints = [[[5, 7]], [], [[9], [4]]] if spec.startswith("constrained") else ()
    stopped = run(model, spec, [12, 12, 12], constraints=constraints)
    disable_stopping(monkeypatch)
    exhausted = run(model, spec, [12, 12, 12], constraints=constraints)
    assert_equal_ids(stopped, exhausted)


def disable_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let searches continue until no beam is left."""
    monkeypatch.setattr(beam_module, "can_improve", lambda log_prob_B, *_: log_prob_B > -np.inf)


@pytest.mark.parametrize("name", ["beam", "diverse", "constrained"])
def test_early_stopping_is_not_better_than_the_exact_bound(name: str) -> None:
    num_differences = 0
    for seed in range(8):
        model = make_model(seed, 11, end_bias=2.0)
        spec = f"{name}(beam_size=2, length_penalty=3.0, early_stopping=%s)"
        exact = run(model, spec % False, [12, 12, 12])
        early = run(model, spec % True, [12, 12, 12])
        for (best, *_), (other, *_) in zip(exact, early, strict=True):
            assert best.score >= other.score - 1e-6  # rounding depends on the batch
            if best.score > other.score + 1e-6:
                num_differences += 1
    assert num_differences


class Scripted:
    """A model and its decoder state, whose predictions depend on the step only."""

    attention_RS: Floats | None = None

    def __init__(self, logits_TV: Tensor) -> None:
        self.log_p_TV, self.steps = logits_TV.log_softmax(-1).numpy(), 0

    def init_search_state(self, sources: Sequence[Sequence[int]], **options: Any) -> Scripted:
        return self

    def step(self, request: StepRequest) -> StepResult:
        self.steps += 1
        return best_tokens(
            self.log_p_TV[self.steps - 1][None].repeat(len(request.tokens_R), 0), request
        )


@pytest.mark.parametrize(
    "spec", ["beam(beam_size=2)", "diverse(beam_size=2, groups=1)", "constrained(beam_size=2)"]
)
def test_a_beam_that_wins_only_at_the_length_limit_is_continued(spec: str) -> None:
    max_length_norm = gnmt_norm(13)
    p_TV = torch.full((13, VOCABULARY), math.exp(-100))
    p_TV[0, EOS] = math.exp(-0.41)
    p_TV[0, 4] = math.exp(-0.4 * max_length_norm)
    p_TV[0, 5] = 1 - p_TV[0].sum()
    p_TV[1:12, 4] = 1.0
    p_TV[12, EOS] = 1.0
    results = run(Scripted(p_TV.log()), spec, [12], slice(1))
    (best,) = all_hypotheses(results)
    assert best.ids == [4] * 12
    assert best.score == pytest.approx(-0.4, abs=1e-5)


def test_the_stopping_criterion_saves_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model(0, 11, end_bias=10.0)
    decode = model.decode
    num_steps: Counter[str] = Counter()
    phase = "stopped"

    def count_steps(tgt_RT: Tensor, state: Any) -> Tensor:
        num_steps[phase] += 1
        return decode(tgt_RT, state)

    monkeypatch.setattr(model, "decode", count_steps)
    run(model, "beam(beam_size=4, length_penalty=0.0)", [30, 30, 30])
    disable_stopping(monkeypatch)
    phase = "exhausted"
    run(model, "beam(beam_size=4, length_penalty=0.0)", [30, 30, 30])
    assert num_steps["stopped"] < num_steps["exhausted"]


@pytest.mark.parametrize("spec", N_BEST)
def test_hypotheses_do_not_depend_on_the_batch(spec: str) -> None:
    model = make_model(1)
    batched = run(model, spec, [6, 4, 2])
    for row in range(3):
        single = run(model, spec, [6, 4, 2], slice(row, row + 1))
        assert_equal(single, [batched[row]])


@pytest.mark.parametrize("spec", N_BEST)
@pytest.mark.parametrize("limit", [0, 1, 5])
def test_length_limit(spec: str, limit: int) -> None:
    results = run(make_model(3, end_bias=-3.0), spec, [limit] * 3)
    assert all(results)
    for h in all_hypotheses(results):
        assert len(h.ids) <= limit
        assert EOS not in h.ids


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spec", WITH_OPTIONS)
@pytest.mark.parametrize("end_bias", [-3.0, 3.0])
def test_length_ratios(seed: int, spec: str, end_bias: float) -> None:
    model = make_model(seed, end_bias=end_bias)
    spec = spec.format("min_length_ratio=1.0, max_length_ratio=2.0")
    results = run(model, spec, [20, 20, 20])
    for hypotheses, source_length in zip(results, (3, 2, 1), strict=True):
        assert hypotheses
        for h in hypotheses:
            assert source_length <= len(h.ids) <= 2 * source_length


@pytest.mark.parametrize("spec", WITH_OPTIONS)
def test_fractional_length_limits_are_rounded_down_and_up(spec: str) -> None:
    spec = spec.format("min_length_ratio=1.5, max_length_ratio=1.5")
    shortest = run(make_model(0, end_bias=99.0), spec, [20, 20, 20])
    longest = run(make_model(0, end_bias=-99.0), spec, [20, 20, 20])
    assert best_lengths(shortest) == [4, 3, 1]
    assert best_lengths(longest) == [5, 3, 2]


def best_lengths(results: NBestLists) -> list[int]:
    return [len(best.ids) for best, *_ in results]


@pytest.mark.parametrize(("ratio", "lengths"), [(1.1, [55, 110]), (0.29, [15, 29])])
def test_length_limits_ignore_rounding_errors(ratio: float, lengths: list[int]) -> None:
    model = TorchModel([make_model(0, end_bias=-99.0)])
    request = SearchRequest([[5] * 50, [5] * 100], np.full(2, 200), BOS, EOS)
    search = parse_search(f"greedy(min_length_ratio={ratio}, max_length_ratio={ratio})")
    assert best_lengths(search(model, request)) == lengths


@pytest.mark.parametrize("spec", WITH_OPTIONS)
def test_length_ratios_do_not_exceed_the_limit_of_the_request(spec: str) -> None:
    model = make_model(1)
    unlimited = run(model, spec.format("max_length_ratio=0.0"))
    limited = run(model, spec.format("max_length_ratio=1e30"))
    assert_equal_ids(limited, unlimited)
    for h in all_hypotheses(run(model, spec.format("min_length_ratio=1e30"))):
        assert len(h.ids) == 6


@pytest.mark.slow
@pytest.mark.parametrize("spec", WITH_OPTIONS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_repeat_ngram_size(spec: str, size: int) -> None:
    def num_repeats(option: int) -> int:
        """Count the repeated n-grams in the hypotheses of several models."""
        num_repeats = 0
        for seed in range(3):
            model = make_model(seed, end_bias=-2.0)
            results = run(model, spec.format(f"no_repeat_ngram_size={option}"), [12, 12, 12])
            assert all(results)
            for h in all_hypotheses(results):
                grams = [tuple(h.ids[i : i + size]) for i in range(len(h.ids) - size + 1)]
                num_repeats += len(grams) - len(set(grams))
        return num_repeats

    assert num_repeats(size) == 0
    assert num_repeats(0) > 0


@pytest.mark.parametrize("spec", N_BEST)
def test_translations_begin_with_the_prefix(spec: str) -> None:
    model = make_model(2)
    prefixes = [[4, 6, 4], [], [5]]
    results = run(model, spec, [6, 6, 2], prefixes=prefixes)
    for row, prefix in enumerate(prefixes):
        for h in results[row]:
            assert h.ids[: len(prefix)] == prefix
            assert h.log_prob == pytest.approx(forced_log_prob(model, row, h.ids), abs=1e-4)
    unconstrained = run(model, spec, [6, 6, 2])
    assert ids_of(results[1]) == ids_of(unconstrained[1])


@pytest.mark.parametrize("seed", range(6))
def test_coverage_penalty(seed: int) -> None:
    model = make_model(seed)
    spec = "beam(beam_size=5, top_beams=5, length_penalty=0.6, coverage_penalty=0.7)"
    for row, hypotheses in enumerate(run(model, spec, [10, 10, 10])):
        scores = scores_of(hypotheses)
        assert scores == sorted(scores, reverse=True)
        for h in hypotheses:
            _, attention_TS = forced(model, SOURCES[row], h.ids)
            coverage_S = attention_TS.sum(0).clamp(max=1)
            penalty = 0.7 * coverage_S.log().sum().item()
            length_norm = gnmt_norm(len(h.ids) + 1, 0.6)
            assert h.score == pytest.approx(h.log_prob / length_norm + penalty, abs=1e-4)
            assert h.length_norm == pytest.approx(length_norm)


def test_a_high_diversity_penalty_changes_the_first_token() -> None:
    def num_first_tokens(spec: str) -> int:
        num_tokens = 0
        for seed in range(6):
            for hypotheses in run(make_model(seed), spec):
                num_tokens += len({h.ids[0] for h in hypotheses if h.ids})
        return num_tokens

    diverse = num_first_tokens(
        "diverse(beam_size=4, groups=4, top_beams=4, diversity_penalty=50.0)"
    )
    assert diverse > num_first_tokens("beam(beam_size=4, top_beams=4)")


def contains(ids: list[int], constraint: list[int]) -> bool:
    size = len(constraint)
    ngrams = [ids[start : start + size] for start in range(len(ids))]
    return constraint in ngrams


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", [0, 4, 9])
def test_constraints_appear(seed: int, limit: int) -> None:
    constraints = [[[4, 4, 5], [6]], [], [[5, 6, 5]]]
    model = make_model(seed, end_bias=2.0)
    results = run(
        model, "constrained(beam_size=6, top_beams=2)", [limit] * 3, constraints=constraints
    )
    assert all(results)
    for hypotheses, expected in zip(results, constraints, strict=True):
        num_required = sum(map(len, expected))
        for h in hypotheses:
            assert len(h.ids) <= max(limit, num_required)
            for constraint in expected:
                assert contains(h.ids, constraint)


@pytest.mark.parametrize("seed", range(4))
def test_constrained_search_with_a_wide_beam_equals_exhaustive_search(seed: int) -> None:
    model = make_model(seed)
    best_ids: list[int] = []
    best_score = -math.inf
    for ids in all_translations(VOCABULARY, 4):
        if contains(ids, [4, 5]) and contains(ids, [6]):
            score = forced_log_prob(model, 0, ids) / gnmt_norm(len(ids) + 1)
            if score > best_score:
                best_ids = ids
                best_score = score
    constraints = [[[4, 5], [6]], [], []]
    hypotheses, *_ = run(model, "constrained(beam_size=300)", [4, 4, 4], constraints=constraints)
    assert hypotheses[0].ids == best_ids


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("limit", [0, 4, 5, 6])
def test_constraints_with_the_same_first_token_appear(size: int, limit: int) -> None:
    constraints = [[[4, 5], [4, 6]]] * 3
    spec = f"constrained(beam_size={size})"
    for seed in range(4):
        results = run(make_model(seed), spec, [limit] * 3, constraints=constraints)
        for best, *_ in results:
            assert contains(best.ids, [4, 5])
            assert contains(best.ids, [4, 6])


@pytest.mark.parametrize("spec", WITH_OPTIONS)
def test_a_prefix_may_repeat_ngrams(spec: str) -> None:
    prefix = [4, 4, 4]
    results = run(make_model(0), spec.format("no_repeat_ngram_size=1"), prefixes=[prefix] * 3)
    for h in all_hypotheses(results):
        assert h.ids[:3] == prefix
        assert math.isfinite(h.log_prob)
        assert len(set(h.ids[2:])) == len(h.ids[2:])


def test_an_interrupted_constraint_may_start_again() -> None:
    request = SearchRequest(SOURCES[:1], np.array([6]), BOS, EOS, constraints=[[[4, 5, 6]]])
    constraints = Constraints(request)
    met_and_missing = [
        (4, 1, 2),
        (5, 2, 1),
        (4, 1, 2),
        (6, 0, 3),
        (4, 1, 2),
        (5, 2, 1),
        (6, 3, 0),
        (4, 3, 0),
    ]
    for token, met, missing in met_and_missing:
        tokens_R = np.array([token])
        met_RCP = constraints.met_after(tokens_R[:, None])
        assert met_RCP.tolist() == [[[met]]]
        assert constraints.num_missing(met_RCP).item() == missing
        assert constraints.num_required(met_RCP).item() == missing
        constraints.advance(np.array([0]), tokens_R)
        assert constraints.met_R1P.tolist() == [[[met]]]


def test_banks_alternate_and_impossible_candidates_rank_last() -> None:
    log_prob_X = [-1.0, -2.0, -3.0, -4.0, -math.inf, -math.inf]
    bank_X = [0, 0, 0, 2, 1, 0]
    log_prob_BX = np.array([log_prob_X], np.float32)
    index_BW = allocate_banks(log_prob_BX, np.array([bank_X]), 5)
    (index_W,) = index_BW.tolist()
    assert index_W[:4] == [0, 3, 1, 2]
    assert log_prob_X[index_W[4]] == -math.inf


def test_the_bound_uses_the_length_norm_of_the_longest_translation() -> None:
    log_prob_B, min_score_B = np.array([-6.0, -6.0, -np.inf]), np.array([-2.0, -2.0, -np.inf])
    max_length_norm_B = np.array([3.1, 2.9, 9.0])
    assert beam_module.can_improve(log_prob_B, max_length_norm_B, min_score_B).tolist() == [
        True,
        False,
        False,
    ]


def test_special_tokens_are_not_sampled() -> None:
    sampled: set[int] = set()
    for seed in range(5):
        results = run(make_model(seed), "sample(n_best=50)", suppressed_ids=(0, 1, 2))
        for h in all_hypotheses(results):
            sampled.update(h.ids)
    assert sampled == {4, 5, 6}


def test_a_prefix_may_have_suppressed_tokens() -> None:
    suppressed = (0, 1, 2)
    results = run(make_model(0), "sample(n_best=4)", prefixes=[[1]] * 3, suppressed_ids=suppressed)
    for h in all_hypotheses(results):
        assert math.isfinite(h.log_prob)
        assert h.ids[0] == 1
        assert not set(suppressed) & set(h.ids[1:])


def test_constraints_follow_the_prefix() -> None:
    requests = {"prefixes": [[6, 6, 6]] * 3, "constraints": [[[4, 5]]] * 3}
    for hypotheses in run(make_model(0), "constrained(beam_size=4)", [2, 2, 2], **requests):
        assert hypotheses[0].ids == [6, 6, 6, 4, 5]


@pytest.mark.parametrize(
    "spec", ["sample(top_k=1)", "sample(top_p=1e-4)", "sample(temperature=1e-4)"]
)
def test_sampling_from_the_most_probable_token_equals_greedy(spec: str) -> None:
    model = make_model(1)
    assert_equal_ids(run(model, spec), run(model, "greedy"))


@pytest.mark.parametrize(
    ("options", "temperature", "kept"),
    [("", 1.0, 7), (", temperature=0.5", 0.5, 7), (", top_k=3", 1.0, 3)],
)
def test_sample_frequencies_match_probabilities(
    options: str, temperature: float, kept: int
) -> None:
    model = new_model(4)
    model.output_weight_VD.data.div_(4)
    log_p_TV, _ = forced(model, SOURCES[0], [])
    expected_V = (log_p_TV[0] / temperature).softmax(-1)
    worst = expected_V.topk(kept).values[-1]
    expected_V[expected_V < worst] = 0.0
    expected_V /= expected_V.sum()
    counts: Counter[int] = Counter()
    for seed in range(4):
        samples, *_ = run(model, f"sample(n_best=1000, seed={seed}{options})")
        for h in samples:
            first, *_ = [*h.ids, EOS]
            counts[first] += 1
    for token, p in enumerate(expected_V.tolist()):
        assert counts[token] / counts.total() == pytest.approx(p, abs=0.03)
        if p == 0:
            assert counts[token] == 0


def test_a_nucleus_is_the_smallest_set_with_the_probability() -> None:
    logits_RV = np.log(np.array([[0.5, 0.25, 0.15, 0.1], [0.1, 0.2, 0.3, 0.4]], np.float32))
    kept = {
        0.35: [[0], [3]],
        0.69: [[0, 1], [2, 3]],
        0.76: [[0, 1, 2], [1, 2, 3]],
    }
    for top_p, expected in kept.items():
        filtered_RV = parse_search(f"sample(top_p={top_p})")._filter(logits_RV.copy())
        for filtered_V, expected_tokens in zip(filtered_RV, expected, strict=True):
            assert np.isfinite(filtered_V).nonzero()[0].tolist() == expected_tokens


def test_samples_depend_on_the_seed() -> None:
    model = new_model(4)
    model.output_weight_VD.data.div_(4)
    first = run(model, "sample(n_best=5, seed=1)")
    same_seed = run(model, "sample(n_best=5, seed=1)")
    other_seed = run(model, "sample(n_best=5, seed=2)")
    assert_equal_ids(first, same_seed)
    assert ids_of(all_hypotheses(first)) != ids_of(all_hypotheses(other_seed))


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9), st.floats(0, 1, exclude_max=True))
def test_impossible_tokens_are_not_drawn(logits: list[float], uniform: float) -> None:
    logits_V = [-math.inf, *logits, -math.inf, -math.inf]
    logits_RV = np.array([logits_V], np.float32)
    (token,) = draw(logits_RV, np.array([uniform]))
    assert 1 <= token <= len(logits)


class EndlessModel:
    """Never ends: all tokens but the end token are equally probable."""

    attention_RS = None

    def init_search_state(self, sources: Any, **options: Any) -> EndlessModel:
        return self

    def step(self, request: StepRequest) -> StepResult:
        log_p_RV = np.full((len(request.tokens_R), VOCABULARY), -1.0, np.float32)
        log_p_RV[:, EOS] = -np.inf
        return best_tokens(log_p_RV, request)


@pytest.mark.parametrize("spec", ["greedy", "sample(n_best=3)"])
def test_an_impossible_end_token_ends_a_translation_at_its_limit(spec: str) -> None:
    results = run(EndlessModel(), spec, limits=[2, 4, 3])
    lengths = [{len(h.ids) for h in hypotheses} for hypotheses in results]
    assert lengths == [{2}, {4}, {3}]
    assert all(h.log_prob == -math.inf for h in all_hypotheses(results))


def test_mbr_may_select_an_empty_translation() -> None:
    utility = expected_chrf(["", "", "", "Haus"])
    assert utility == {"": 75.0, "Haus": 25.0}


def test_mbr_selects_the_highest_expected_chrf() -> None:
    import sacrebleu

    words = ["", "", "", "", "katze ", "hund ", "baum "]

    def text(ids: Sequence[int]) -> str:
        return "".join(words[i] for i in ids).strip()

    def expected_utility(candidate: str, texts: list[str]) -> float:
        total = 0.0
        for other in texts:
            equal = candidate == other
            total += 100.0 if equal else sacrebleu.sentence_chrf(candidate, [other]).score
        return total / len(texts)

    model = make_model(4)
    model.output_weight_VD.data.div_(3)
    samples = run(model, "sample(n_best=12)", detokenize=text)
    results = run(model, "mbr(candidates='sample(n_best=12)', n_best=3)", detokenize=text)
    for candidates, best in zip(samples, results, strict=True):
        texts = [text(h.ids) for h in candidates]
        utility = {each: expected_utility(each, texts) for each in texts}
        expected = sorted(utility.values(), reverse=True)[: len(best)]
        assert scores_of(best) == pytest.approx(expected)
        assert [utility[text(h.ids)] for h in best] == pytest.approx(expected)


@pytest.mark.parametrize("spec", N_BEST)
def test_an_ensemble_of_equal_models_equals_the_model(spec: str) -> None:
    model = make_model(3)
    ensemble = TorchModel([model, model])
    assert_equal(run(model, spec), run(ensemble, spec), tolerance=1e-4)


@pytest.mark.parametrize("engine", ["PyTorch", pytest.param("native", marks=compiled)])
def test_an_ensemble_averages_probabilities(engine: str) -> None:
    models = [make_model(5), make_model(6)]
    if engine == "PyTorch":
        ensemble: Any = TorchModel(models)
    else:
        ensemble = NativeEnsemble(list(map(make_native, models)))
    for row, hypotheses in enumerate(run(ensemble, "beam(beam_size=4, top_beams=4)")):
        source = SOURCES[row]
        scores = ensemble.score([source[:-1]] * 4, ids_of(hypotheses))
        for h, score in zip(hypotheses, scores, strict=True):
            log_p_TV, _ = forced(models[0], source, h.ids)
            other_log_p_TV, _ = forced(models[1], source, h.ids)
            mean_TV = log_p_TV.logaddexp(other_log_p_TV) - math.log(2)
            expected = log_probs_of(mean_TV, h.ids)
            assert h.log_prob == pytest.approx(sum(expected), abs=1e-4)
            assert score.log_probs == pytest.approx(expected, abs=1e-4)


REQUESTS: dict[str, dict[str, Any]] = {
    "unconstrained": {},
    "prefixes and constraints": {
        "prefixes": [[4, 6, 4], [], [5]],
        "constraints": [[], [[4, 4, 5], [6]], [[5, 6, 5]]],
        "suppressed_ids": (0, 1, 2),
    },
}


@pytest.mark.slow
@compiled
@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize(
    "spec",
    [
        *N_BEST,
        *(
            spec.format("min_length_ratio=1.0, max_length_ratio=2.0, no_repeat_ngram_size=2")
            for spec in WITH_OPTIONS
        ),
        (
            "beam(beam_size=3, top_beams=3, length_penalty=0.6, length_normalization='average',"
            " early_stopping=True)"
        ),
        "beam(beam_size=40, top_beams=40, min_length_ratio=1.0)",
        "sample(n_best=3, top_k=3, temperature=0.7)",
        "sample(n_best=3, top_p=0.8)",
        "mbr(candidates='beam(beam_size=4, top_beams=4)', n_best=2)",
    ],
)
def test_the_native_engine_equals_pytorch(spec: str, request_name: str) -> None:
    options = REQUESTS[request_name]
    other_model = make_model(9, 11)
    other_native_model = make_native(other_model)
    for seed in range(2):
        model = make_model(seed, 11)
        native_model = make_native(model)
        pairs: list[tuple[Any, Any]] = [
            (model, native_model),
            (TorchModel([model, other_model]), NativeEnsemble([native_model, other_native_model])),
        ]
        for torch_model, tested_model in pairs:
            expected = run(torch_model, spec, [6, 9, 2], **options)
            results = run(tested_model, spec, [6, 9, 2], **options)
            assert_equal(results, expected, tolerance=1e-4)
            log_probs = [h.log_prob for h in all_hypotheses(results)]
            assert log_probs == pytest.approx(
                [h.log_prob for h in all_hypotheses(expected)], abs=1e-4
            )


@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(1, 5),
    vocabulary=st.integers(1, 700),
    k=st.integers(0, 16),
)
def test_best_tokens_are_ranked_by_probability_then_id(
    seed: int,
    rows: int,
    vocabulary: int,
    k: int,
) -> None:
    rng = np.random.default_rng(seed)
    log_p_RV = rng.integers(-20, 0, (rows, vocabulary)).astype(np.float32)  # with ties
    log_p_RV[rng.random((rows, vocabulary)) < 0.01] = np.nan
    banned_RX = rng.integers(-1, vocabulary, (rows, 3))
    gather_RP = rng.integers(0, vocabulary, (rows, 4))
    rows_R = np.arange(rows)
    result = best_tokens(log_p_RV, StepRequest(rows_R, rows_R, k, banned_RX, gather_RP))
    for row in range(rows):
        banned_X = banned_RX[row]
        allowed_V = log_p_RV[row].copy()
        allowed_V[banned_X[banned_X >= 0]] = -np.inf
        rank_V = np.nan_to_num(allowed_V, nan=np.inf, neginf=-np.inf)
        order = sorted(range(vocabulary), key=lambda token: (-rank_V[token], token))[:k]
        assert result.tokens_RK[row].tolist() == order
        np.testing.assert_array_equal(result.log_p_RK[row], allowed_V[order])
        gathered_P = result.gathered_log_p_RP[row]
        np.testing.assert_array_equal(gathered_P, log_p_RV[row, gather_RP[row]])


@given(
    seed=st.integers(0, 2**32),
    sentences=st.integers(1, 3),
    width=st.integers(1, 5),
    k=st.integers(1, 20),
    count=st.integers(1, 16),
)
def test_best_candidates_are_selected_from_all_rows(
    seed: int,
    sentences: int,
    width: int,
    k: int,
    count: int,
) -> None:
    rng = np.random.default_rng(seed)
    num_rows = sentences * width
    log_p_RK = rng.integers(-9, 0, (num_rows, k)).astype(np.float32)  # with ties
    log_prob_BW = rng.integers(-9, 0, (sentences, width)).astype(np.float32)
    log_prob_BW[:, 1:][log_prob_BW[:, 1:] < -6] = -np.inf
    log_prob_R = log_prob_BW.ravel()
    tokens_RK = np.tile(np.arange(k), (num_rows, 1))
    best = extend(log_prob_R, log_p_RK, tokens_RK).of_beams(sentences).best(count)
    assert best.rows_NC.shape == best.tokens_NC.shape == (sentences, count)
    total_RK = log_prob_R[:, None] + log_p_RK
    for sentence in range(sentences):
        first_row = sentence * width
        rows = range(first_row, first_row + width)
        expected = sorted(itertools.product(rows, range(k)), key=lambda pair: -total_RK[pair])[
            :count
        ]
        num_real = len(expected)
        assert best.rows_NC[sentence, :num_real].tolist() == [row for row, _ in expected]
        assert best.tokens_NC[sentence, :num_real].tolist() == [token for _, token in expected]
        padding = [-math.inf] * (count - num_real)
        expected_log_probs = [total_RK[pair] for pair in expected]
        assert best.log_prob_NC[sentence].tolist() == expected_log_probs + padding


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("beem", "unknown search 'beem'"),
        ("beam(sise=3)", "has no option 'sise'"),
        ("beam(beam_size=1001)", "beam_size must be between 1 and 1000"),
        ("beam(beam_size=2, top_beams=3)", "between 1 and beam_size"),
        ("beam(top_beams=0)", "between 1 and beam_size"),
        ("beam(length_penalty=-1.0)", "length_penalty must be between 0 and 10"),
        ("beam(beam_size=True)", "size must be an integer"),
        ("beam(length_normalization='none')", "normalization must be gnmt or average, got 'none'"),
        ("beam(coverage_penalty=-1.0)", "coverage_penalty must be between 0 and 10"),
        ("diverse(beam_size=4, groups=3)", "groups must divide beam_size"),
        ("diverse(diversity_penalty=-1.0)", "diversity_penalty must be between 0 and 100"),
        ("constrained(beam_size=0)", "beam_size must be between 1 and 1000"),
        ("constrained(no_repeat_ngram_size=2)", "does not support no_repeat_ngram_size"),
        ("sample(n_best=0)", "n_best must be between 1 and 1000"),
        ("sample(temperature=1e-300)", "temperature must be between"),
        ("sample(top_k=-1)", "top_k must be at least 0"),
        ("sample(top_p=0.0)", "top_p must be between"),
        ("sample(top_p=2.0)", "top_p must be between"),
        ("mbr(candidates='beem')", "unknown search 'beem'"),
        ("mbr(candidates='mbr')", "must come from another search"),
        (
            "mbr(candidates='beam(beam_size=4, top_beams=2)', n_best=3)",
            "between 1 and the number of candidates .2.",
        ),
        ("greedy(min_length_ratio=-1.0)", "min_length_ratio must be at least 0"),
        ("greedy(min_length_ratio=2.0, max_length_ratio=1.0)", "exceeds max_length_ratio"),
        ("beam(no_repeat_ngram_size=-1)", "no_repeat_ngram_size must be at least 0"),
    ],
)
def test_invalid_options_are_rejected(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_search(spec)


def test_all_searches_are_tested() -> None:
    assert {spec.partition("(")[0] for spec in N_BEST} | {"mbr"} == set(SEARCHES)
