"""Dual conditional cross-entropy: how well two translation models predict each side of a pair.

Junczys-Dowmunt (2018): Dual Conditional Cross-Entropy Filtering of Noisy Parallel Corpora. Shape
suffix: N pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nmt.core import runtime
from nmt.core.errors import UsageError
from nmt.data.arrays import Doubles, Floats
from nmt.data.pairs import Pair
from nmt.engines import Sentences
from nmt.engines.batch_engine import BatchEngine
from nmt.engines.load import load_engine, runs_natively
from nmt.models.discovery import find_models
from nmt.runs.model_files import ModelFiles
from nmt.text.tokenizer import Tokenizer

CHUNK_SIZE = 4096
"""Number of pairs whose tokens are in memory at once."""
MAX_TOKENS = 250
"""Maximum number of tokens of a side; further ones are ignored."""


class DualScorer:
    """exp(-(|H1 - H2| + (H1 + H2) / 2)), where H1 is the cross-entropy of the target given the
    source, and H2 that of the source given the target, in nats per token (equations 1 to 3).

    The score is between 0 and 1. It is low if a model finds a side improbable, or if only one of
    the two models does.
    """

    def __init__(self, forward: ForcedDecoder, reverse: ForcedDecoder) -> None:
        self.forward = forward
        self.reverse = reverse
        checksums = [model.tokenizer.checksum for model in (forward, reverse)]
        # A tokenizer that treats both sides alike encodes each sentence once.
        is_joint = type(forward.tokenizer) is Tokenizer
        self.have_equal_tokenizers = is_joint and checksums[0] == checksums[1]

    @classmethod
    def load(
        cls,
        forward: Path | str,
        reverse: Path | str,
        device: str = "cpu",
        precision: str = "",
    ) -> DualScorer:
        """Load the models.

        Args:
            forward: name or run directory of a model from the source to the target language.
            reverse: that of a model from the target to the source language.
            device: auto, cpu, cuda or cuda:N.
            precision: auto, fp32, bf16, fp16 or int8; empty: int8 if the native engine can run the
                model, otherwise auto.

        Raises:
            CheckpointError: a model does not exist or is damaged.
            UsageError: the models do not translate in opposite directions, or the device does not
                support the precision.
        """
        device = runtime.resolve_device(device)
        [forward_files] = find_models([Path(forward)])
        [reverse_files] = find_models([Path(reverse)])
        _check_directions(forward_files, reverse_files)
        return cls(
            ForcedDecoder.load(forward_files, device, precision),
            ForcedDecoder.load(reverse_files, device, precision),
        )

    def score(self, pairs: Sequence[Pair]) -> Floats:
        """Return the score of each pair, [N]; 0 if a side is blank."""
        forward_N, reverse_N = self.cross_entropies(pairs)
        difference_N = np.abs(forward_N - reverse_N)
        mean_N = (forward_N + reverse_N) / 2
        score_N = np.exp(-(difference_N + mean_N))
        for i, (source, target) in enumerate(pairs):
            if not source.strip() or not target.strip():
                score_N[i] = 0
        return score_N.astype(np.float32)

    def cross_entropies(self, pairs: Sequence[Pair]) -> tuple[Doubles, Doubles]:
        """Return the cross-entropies of the targets and of the sources, in nats per token, [N]."""
        forward: list[float] = []
        reverse: list[float] = []
        for start in range(0, len(pairs), CHUNK_SIZE):
            end = start + CHUNK_SIZE
            chunk = pairs[start:end]
            sources = [source for source, _ in chunk]
            targets = [target for _, target in chunk]
            forward_ids = self.forward.encode(sources, targets)
            if self.have_equal_tokenizers:
                reverse_ids = forward_ids.swapped()
            else:
                reverse_ids = self.reverse.encode(targets, sources)
            forward += self.forward.cross_entropies(forward_ids)
            reverse += self.reverse.cross_entropies(reverse_ids)
        return np.array(forward), np.array(reverse)


@dataclass(frozen=True)
class TokenIds:
    """Token ids of both sides of several pairs, without start and end tokens."""

    sources: Sentences
    targets: Sentences

    def swapped(self) -> TokenIds:
        """Return the pairs in the other direction."""
        return TokenIds(self.targets, self.sources)


class ForcedDecoder:
    """A translation model that scores given translations."""

    def __init__(self, engine: BatchEngine, tokenizer: Tokenizer) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        positions = engine.max_positions or MAX_TOKENS + 1
        # One position is for the start or end token.
        self.max_tokens = min(MAX_TOKENS, positions - 1)

    @classmethod
    def load(cls, files: ModelFiles, device: str, precision: str) -> ForcedDecoder:
        """Load a model; see `DualScorer.load`."""
        if not precision:
            is_native = runs_natively([files.config.model], device)
            precision = "int8" if is_native else "auto"
        engine = load_engine([files], device, precision, files.tokenizer.decode)
        return cls(engine, files.tokenizer)

    def encode(self, sources: Sequence[str], targets: Sequence[str]) -> TokenIds:
        """Return the token ids of pairs."""
        source_ids = self.tokenizer.encode_batch(sources)
        target_ids = self.tokenizer.encode_batch(targets, target=True)
        return TokenIds(self._truncate(source_ids), self._truncate(target_ids))

    def cross_entropies(self, ids: TokenIds) -> list[float]:
        """Return the cross-entropy of each target given its source, in nats per token, including
        the end token."""
        log_probs = self.engine.log_probs(ids.sources, ids.targets)
        cross_entropies = []
        for target, log_prob in zip(ids.targets, log_probs, strict=True):
            num_tokens = len(target) + 1
            cross_entropies.append(-log_prob / num_tokens)
        return cross_entropies

    def _truncate(self, sentences: Sentences) -> Sentences:
        return [sentence[: self.max_tokens] for sentence in sentences]


def _check_directions(forward: ModelFiles, reverse: ModelFiles) -> None:
    """Check that the models translate in opposite directions."""
    directions = []
    for files in (forward, reverse):
        data = files.config.data
        directions.append((data.src, data.tgt))
    if directions[0] != directions[1][::-1]:
        first, second = (f"from {source} to {target}" for source, target in directions)
        raise UsageError(
            f"{forward.run} translates {first}, and {reverse.run} {second}",
            "name two models that translate in opposite directions",
        )
