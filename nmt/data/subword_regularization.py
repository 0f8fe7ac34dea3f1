"""Segmentations drawn at random, so that a model sees words spelled in more ways than one.

SentencePiece draws them too, but in no way that could be repeated: its generators cannot be seeded. Here a word has
`VARIANTS` segmentations, a pure function of (seed, word), made when first needed; a text draws one for each word.
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

VARIANTS = 64
"""Segmentations of a word to choose from: enough to see what is rare, and few enough to be remembered."""
MEMORY = 2**18
"""Segmentations that are remembered."""

Sampling = Callable[..., list[str]]


class Pieces:
    """A tokenizer's pieces by their scores, and what every draw needs to know of them all."""

    def __init__(self, scores: Mapping[str, float]) -> None:
        self.scores = scores
        self.longest = max(map(len, scores), default=1)
        self.unknown = min(scores.values(), default=0.0) - 10.0
        """Score of a character that is no piece: as unlikely as SentencePiece makes it."""


def bpe_dropout(word: str, pieces: Pieces, rng: Random, *, p: float = 0.1) -> list[str]:
    """Merge as BPE does, leaving out each possible merge with probability `p` (Provilkov et al. 2020, algorithm 1)."""
    symbols, scores = list(word), pieces.scores
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


def unigram(word: str, pieces: Pieces, rng: Random, *, alpha: float = 0.2) -> list[str]:
    """Draw a segmentation x with probability proportional to P(x)^alpha (Kudo 2018, section 3.3, with l = ∞).

    Forward filtering, backward sampling: `total[e]` is the logarithm of the sum over all segmentations of word[:e].
    """
    total, ways = [0.0], []
    for end in range(1, len(word) + 1):
        starts, weights = [], []
        for start in range(max(0, end - pieces.longest), end):
            score = pieces.scores.get(word[start:end], pieces.unknown if end - start == 1 else None)
            if score is not None:
                starts.append(start)
                weights.append(total[start] + alpha * score)
        highest = max(weights)
        shares = [math.exp(weight - highest) for weight in weights]
        total.append(highest + math.log(sum(shares)))
        ways.append((starts, shares))
    drawn, end = [], len(word)
    while end:
        (start,) = rng.choices(*ways[end - 1])
        drawn.append(word[start:end])
        end = start
    return drawn[::-1]


SAMPLINGS: dict[str, Sampling] = {"bpe_dropout": bpe_dropout, "unigram": unigram}
KINDS: dict[Sampling, str] = {bpe_dropout: "bpe", unigram: "unigram"}
"""The kind of tokenizer that each is for."""


def sampling(spec: str, kind: str | None) -> Sampling:
    """Resolve the spec string of `train.subword_regularization` for a tokenizer of the kind `bpe` or `unigram`; None: not known yet.

    Raises:
        ConfigError: unknown name or option, a value outside its range, or for another kind of tokenizer.
    """
    function = resolve("subword sampling", SAMPLINGS, spec)
    for name, value in getattr(function, "keywords", {}).items():
        if not 0 < value <= 1:
            raise ConfigError(f"train.subword_regularization {spec}: {name} must be above 0 and at most 1")
    needed = KINDS[getattr(function, "func", function)]
    if kind not in (None, needed):
        raise ConfigError(f"train.subword_regularization {spec} needs a tokenizer of the kind {needed}, not {kind}")
    return function


class Sampler:
    """Text to piece ids, drawn at random."""

    def __init__(self, spec: str, tokenizer: Tokenizer, seed: int) -> None:
        """Draw as `spec` says; equal seeds draw equally.

        Raises:
            ConfigError: `spec` is not for this kind of tokenizer.
        """
        draw, pieces = sampling(spec, tokenizer.model_type), Pieces(tokenizer.scores())

        @lru_cache(MEMORY)
        def variant(word: str, number: int) -> list[int]:
            return tokenizer.ids(draw(SPACE + word, pieces, Random(f"{seed} {number} {word}")))

        self._variant = variant

    def encode(self, lines: Sequence[str], rng: np.random.Generator) -> list[list[int]]:
        """Return piece ids of each line, without start and end; which variants they are is drawn from `rng`."""
        words = [normalize(line).split() for line in lines]
        numbers = iter(rng.integers(VARIANTS, size=sum(map(len, words))).tolist())
        return [[i for word in line for i in self._variant(word, next(numbers))] for line in words]
