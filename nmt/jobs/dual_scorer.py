"""Dual conditional cross-entropy: how well two translation models predict each side of a pair.

Junczys-Dowmunt (2018): Dual Conditional Cross-Entropy Filtering of Noisy Parallel Corpora. Shape
suffix: N pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

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
    def load(cls, forward: Path | str, reverse: Path | str) -> DualScorer:
        """Load the models, for the CPU.

        Args:
            forward: name or run directory of a model from the source to the target language.
            reverse: that of a model from the target to the source language.

        Raises:
            CheckpointError: a model does not exist or is damaged.
            UsageError: the models do not translate in opposite directions.
        """
        [forward_files] = find_models([Path(forward)])
        [reverse_files] = find_models([Path(reverse)])
        _check_directions(forward_files, reverse_files)
        forward_decoder = ForcedDecoder.load(forward_files)
        reverse_decoder = ForcedDecoder.load(reverse_files)
        return cls(forward_decoder, reverse_decoder)

    def score(self, pairs: Sequence[Pair]) -> Floats:
        """Return the score of each pair, [N]; 0 if a side is blank."""
        forward_N, reverse_N = self.cross_entropies(pairs)
        difference_N = np.abs(forward_N - reverse_N)
        mean_N = (forward_N + reverse_N) / 2
        distance_N = difference_N + mean_N
        score_N = np.exp(-distance_N)
        for i, (source, target) in enumerate(pairs):
            is_blank = not source.strip() or not target.strip()
            if is_blank:
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
            source_ids, target_ids = self.forward.encode(sources, targets)
            forward += self.forward.cross_entropies(source_ids, target_ids)
            if not self.have_equal_tokenizers:
                target_ids, source_ids = self.reverse.encode(targets, sources)
            reverse += self.reverse.cross_entropies(target_ids, source_ids)
        return np.array(forward), np.array(reverse)


class ForcedDecoder:
    """A translation model that scores given translations."""

    def __init__(self, engine: BatchEngine, tokenizer: Tokenizer) -> None:
        self.engine = engine
        self.tokenizer = tokenizer
        positions = engine.max_positions or MAX_TOKENS + 1
        # One position is for the start or end token.
        self.max_tokens = min(MAX_TOKENS, positions - 1)

    @classmethod
    def load(cls, files: ModelFiles) -> ForcedDecoder:
        """Load a model, in int8 if the native engine can run it."""
        is_native = runs_natively([files.config.model], "cpu")
        precision = "int8" if is_native else "auto"
        engine = load_engine([files], "cpu", precision, files.tokenizer.decode)
        return cls(engine, files.tokenizer)

    def encode(self, sources: Sequence[str], targets: Sequence[str]) -> tuple[Sentences, Sentences]:
        """Return the token ids of sources and targets, without start and end tokens."""
        all_source_ids = self.tokenizer.encode_batch(sources)
        all_target_ids = self.tokenizer.encode_batch(targets, target=True)
        source_ids = self._truncate(all_source_ids)
        target_ids = self._truncate(all_target_ids)
        return source_ids, target_ids

    def cross_entropies(self, sources: Sentences, targets: Sentences) -> list[float]:
        """Return the cross-entropy of each target given its source, in nats per token, including
        the end token."""
        log_probs = self.engine.log_probs(sources, targets)
        cross_entropies = []
        for target, log_prob in zip(targets, log_probs, strict=True):
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
