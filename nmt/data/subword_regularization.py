"""Subword regularization: random segmentations of words as data augmentation.

SentencePiece's sampling is not reproducible because its random generators cannot be seeded. Here each word has
`NUM_VARIANTS` segmentations, a pure function of (seed, word), and one of them is drawn for each occurrence of the word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from random import Random

import numpy as np

from nmt.data.normalization import normalize
from nmt.data.tokenizer import SPACE, Tokenizer
from nmt.errors import ConfigError
from nmt.registry import resolve

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


def bpe_dropout(word: str, vocabulary: SubwordVocabulary, rng: Random, *, p: float = 0.1) -> list[str]:
    """Apply BPE merges, skipping each with probability `p` (Provilkov et al. 2020, algorithm 1)."""
    symbols, scores = list(word), vocabulary.scores
    while True:
        merges = [
            (-scores[pair], i)
            for i, pair in enumerate(map(str.__add__, symbols, symbols[1:]))
            if pair in scores and rng.random() >= p
        ]
        if not merges:
            return symbols
        _, i = min(merges)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


def unigram(word: str, vocabulary: SubwordVocabulary, rng: Random, *, alpha: float = 0.2) -> list[str]:
    """Sample a segmentation x with probability proportional to P(x)^alpha (Kudo 2018, section 3.3, with l = ∞).

    Forward filtering, backward sampling: `log_sums[e]` is the log of the sum over all segmentations of word[:e].
    """
    log_sums, candidates = [0.0], []
    for end in range(1, len(word) + 1):
        starts, log_weights = [], []
        for start in range(max(0, end - vocabulary.max_piece_length), end):
            default = vocabulary.unknown_score if end - start == 1 else None
            score = vocabulary.scores.get(word[start:end], default)
            if score is not None:
                starts.append(start)
                log_weights.append(log_sums[start] + alpha * score)
        highest = max(log_weights)
        weights = [math.exp(log_weight - highest) for log_weight in log_weights]
        log_sums.append(highest + math.log(sum(weights)))
        candidates.append((starts, weights))
    pieces, end = [], len(word)
    while end:
        (start,) = rng.choices(*candidates[end - 1])
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
        ConfigError: the name or an option is unknown, a value is out of range, or the tokenizer has another type.
    """
    method = resolve("sampling method", SAMPLING_METHODS, spec)
    for name, value in getattr(method, "keywords", {}).items():
        if not 0 < value <= 1:
            raise ConfigError(f"train.subword_regularization {spec}: {name} must be above 0 and at most 1")
    required = MODEL_TYPES[getattr(method, "func", method)]
    if model_type not in (None, required):
        raise ConfigError(f"train.subword_regularization {spec} needs a {required} tokenizer, not {model_type}")
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
            return tokenizer.pieces_to_ids(sample(SPACE + word, vocabulary, Random(f"{seed} {variant_index} {word}")))

        self._variant = variant

    def encode_batch(self, lines: Sequence[str], rng: np.random.Generator) -> list[list[int]]:
        """Return the piece ids of each line, without BOS and EOS; `rng` selects the variant of each word."""
        words = [normalize(line).split() for line in lines]
        variants = iter(rng.integers(NUM_VARIANTS, size=sum(map(len, words))).tolist())
        return [[i for word in line for i in self._variant(word, next(variants))] for line in words]
