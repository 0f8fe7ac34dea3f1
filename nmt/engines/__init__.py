"""Inference engines. They translate and score token ids; `nmt.translation.translator` handles text.

There are two: `BatchEngine` runs nmt's searches with the native engine (engine.c) or PyTorch, and
`CTranslate2Engine` those of CTranslate2. The option `--engine nmt` selects the former.

An engine takes ids without start and end tokens, returns results in input order and forms its own
batches. The result for a sentence does not depend on its batch. (PyTorch's matrix multiplications
round differently for different batch sizes: with the PyTorch engine in bf16, about one in ten
thousand sentences may differ.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from nmt.search import Hypothesis, Search
from nmt.search.request import Floats

MIN_REPETITIVE_TOKENS = 24
MAX_REPEATS = 2
"""Maximum number of occurrences of a token, on average, in a source that is not repetitive."""


@dataclass(frozen=True)
class Source:
    """A sentence to translate, as token ids."""

    ids: Sequence[int]
    prefix: Sequence[int] = ()
    """Token ids that the translation must begin with."""
    constraints: Sequence[Sequence[int]] = ()
    """Sequences of token ids that must appear in the translation."""

    @property
    def max_output_length(self) -> int:
        """Maximum number of tokens of the translation; less if the source repeats few tokens, as in
        a loop."""
        length = len(self.ids)
        is_repetitive = length >= MIN_REPETITIVE_TOKENS and length > MAX_REPEATS * len(
            set(self.ids)
        )
        if is_repetitive and not (self.prefix or self.constraints):
            return length + length // 4 + 10
        return max_target_length(length)


@dataclass(frozen=True)
class TokenScores:
    """Scores of a given translation. T counts its tokens and the end token."""

    log_probs: list[float]
    """Log-probability of each token in nats, [T]."""
    attention_TS: Floats | None
    """Cross-attention weights; S includes the end token, if the encoder reads it. None: the engine
    returns none."""


def max_target_length(source_length: int) -> int:
    """Return the maximum number of tokens of a translation, without the end token.

    It depends on the sentence only, so that the batch does not change a translation.
    """
    return 2 * (source_length + 1) + 10


class Scorer(Protocol):
    """Scores given translations."""

    @property
    def max_positions(self) -> int | None:
        """Maximum number of tokens in a sentence, including the start or end token; None: no
        limit."""

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        """Score given translations, without start and end tokens, in float32 if the engine supports
        it."""


class Engine(Scorer, Protocol):
    """Translates and scores token ids."""

    def search(
        self, sources: Sequence[Source], search: Search, on_progress: Callable[[int], object]
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first.

        `on_progress` is called with the number of sentences finished since the previous call.
        """
