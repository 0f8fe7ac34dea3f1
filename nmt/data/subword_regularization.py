"""Subword regularization: random segmentations of words as data augmentation.

SentencePiece's sampling is not reproducible because its random generators cannot be seeded. Here
each word has `NUM_VARIANTS` segmentations, a pure function of (seed, word), and one of them is
drawn for each occurrence of the word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from random import Random
from typing import Annotated

import numpy as np

from nmt.core.errors import ConfigError
from nmt.core.ranges import Range
from nmt.core.registry import resolve
from nmt.text.normalization import normalize
from nmt.text.tokenizer import SPACE, Tokenizer

Parameter = Annotated[float, Range(above=0, maximum=1)]
NUM_VARIANTS = 64
"""Segmentations per word: enough to include rare ones, few enough to be cached."""
CACHE_SIZE = 2**18
"""Segmentations in the cache."""

SamplingMethod = Callable[..., list[str]]


class SubwordVocabulary:
    """The pieces of a tokenizer and their scores."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        self.scores = scores
        self.max_piece_length = max(map(len, scores), default=1)
        self.unknown_score = min(scores.values(), default=0.0) - 10.0
        """Score of a character that is not in the vocabulary, as in SentencePiece."""

    def last_pieces(self, word: str, end: int) -> dict[int, float]:
        """Map the starts of all pieces that end at a place of a word to their scores."""
        scores = {}
        first = max(0, end - self.max_piece_length)
        for start in range(first, end):
            score = self.scores.get(word[start:end])
            if score is not None:
                scores[start] = score
        scores.setdefault(end - 1, self.unknown_score)
        return scores


def bpe_dropout(
    word: str, vocabulary: SubwordVocabulary, rng: Random, *, p: Parameter = 0.1
) -> list[str]:
    """Apply BPE merges, skipping each with probability `p` (Provilkov et al. 2020, algorithm 1)."""
    symbols = list(word)
    while True:
        merges = []
        for i, (first, second) in enumerate(pairwise(symbols)):
            score = vocabulary.scores.get(first + second)
            if score is not None and rng.random() >= p:
                merges.append((-score, i))
        if not merges:
            return symbols
        _, i = min(merges)
        symbols[i] += symbols.pop(i + 1)


def unigram(
    word: str, vocabulary: SubwordVocabulary, rng: Random, *, alpha: Parameter = 0.2
) -> list[str]:
    """Sample a segmentation x with probability proportional to P(x)^alpha (Kudo 2018, section 3.3,
    with l = ∞)."""
    # Forward filtering: the log of the sum over all segmentations of each prefix, and the starts
    # and weights of the last piece of each prefix.
    log_sums = [0.0]
    last_pieces = []
    for end in range(1, len(word) + 1):
        scores = vocabulary.last_pieces(word, end)
        log_weights = [log_sums[start] + alpha * score for start, score in scores.items()]
        highest = max(log_weights)
        weights = [math.exp(log_weight - highest) for log_weight in log_weights]
        log_sum = math.log(sum(weights))
        log_sums.append(highest + log_sum)
        last_pieces.append((list(scores), weights))
    # Backward sampling: draw the last piece of the word, then the one before it.
    pieces = []
    end = len(word)
    while end:
        starts, weights = last_pieces[end - 1]
        [start] = rng.choices(starts, weights)
        pieces.append(word[start:end])
        end = start
    return pieces[::-1]


SAMPLING_METHODS: dict[str, SamplingMethod] = {"bpe_dropout": bpe_dropout, "unigram": unigram}
MODEL_TYPES: dict[SamplingMethod, str] = {bpe_dropout: "bpe", unigram: "unigram"}
"""Tokenizer type that each method requires."""


def resolve_method(spec: str, model_type: str | None) -> SamplingMethod:
    """Return the sampling method of `train.subword_regularization`.

    Args:
        spec: `bpe_dropout` or `unigram`, optionally with options.
        model_type: type of the tokenizer (`bpe` or `unigram`), or None if it is not known yet.

    Raises:
        ConfigError: the name or an option is unknown, a value is out of range, or the tokenizer has
            another type.
    """
    method = resolve("sampling method", SAMPLING_METHODS, spec)
    function = getattr(method, "func", method)
    required = MODEL_TYPES[function]
    if model_type not in (None, required):
        raise ConfigError(
            f"train.subword_regularization {spec} needs a {required} tokenizer, not {model_type}"
        )
    return method


class SubwordSampler:
    """Tokenizer that samples segmentations."""

    def __init__(self, spec: str, tokenizer: Tokenizer, seed: int) -> None:
        """Create a sampler for the method `spec`; samplers with equal seeds return equal samples.

        Raises:
            ConfigError: `spec` is invalid or requires another type of tokenizer.
        """
        sample = resolve_method(spec, tokenizer.model_type)
        vocabulary = SubwordVocabulary(tokenizer.piece_scores())

        @lru_cache(CACHE_SIZE)
        def variant(word: str, variant_index: int) -> list[int]:
            rng = Random(f"{seed} {variant_index} {word}")
            pieces = sample(SPACE + word, vocabulary, rng)
            return tokenizer.pieces_to_ids(pieces)

        self._variant = variant

    def encode_batch(self, lines: Sequence[str], rng: np.random.Generator) -> list[list[int]]:
        """Return the piece ids of each line, without BOS and EOS; `rng` selects the variant of each
        word."""
        words = [normalize(line).split() for line in lines]
        num_words = sum(map(len, words))
        variants = iter(rng.integers(NUM_VARIANTS, size=num_words).tolist())
        rows = []
        for line in words:
            ids = map(self._variant, line, variants)  # takes as many variants as the line has words
            rows.append(list(chain.from_iterable(ids)))
        return rows
