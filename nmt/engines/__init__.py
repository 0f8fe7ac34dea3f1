"""Inference engines. They translate and score token ids; `nmt.translation.translator` handles text.

There are two: `BatchEngine` runs nmt's searches with the native engine (engine.c) or PyTorch, and
`CTranslate2Engine` those of CTranslate2. The option `--engine nmt` selects the former.

An engine takes ids without start and end tokens, returns results in input order and forms its own
batches. The result for a sentence does not depend on its batch. (PyTorch's matrix multiplications
round differently for different batch sizes: with the PyTorch engine in bf16, about one in ten
thousand sentences may differ.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from nmt.search import Hypothesis, Search
from nmt.search.request import Floats

Sentences = Sequence[Sequence[int]]
"""Token ids of sentences, without end tokens unless an encoder reads them."""
MIN_REPETITIVE_TOKENS = 24
MAX_REPEATS = 2
"""Maximum number of occurrences of a token, on average, in a source that is not repetitive."""


class Source(NamedTuple):
    """A sentence to translate, as token ids."""

    ids: Sequence[int]
    prefix: Sequence[int] = ()
    """Token ids that the translation must begin with."""
    constraints: Sentences = ()
    """Sequences of token ids that must appear in the translation."""

    @property
    def max_output_length(self) -> int:
        """Maximum number of tokens of the translation; less if the source repeats few tokens, as in
        a loop."""
        length = len(self.ids)
        is_repetitive = length > MAX_REPEATS * len(set(self.ids))
        if length < MIN_REPETITIVE_TOKENS or not is_repetitive or self.prefix or self.constraints:
            return max_target_length(length)
        return length + length // 4 + 10


class TokenScores(NamedTuple):
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

    def score(self, sources: Sentences, targets: Sentences) -> list[TokenScores]:
        """Score given translations, without start and end tokens, in float32 if the engine supports
        it."""


def token_scores(
    log_probs: Iterable[Any], attention_BTS: Floats, inputs: Sentences, targets: Sentences
) -> list[TokenScores]:
    """Return the scores of translations without the padding of their batch; `inputs` are the
    sources as the encoder reads them."""
    scores = []
    for i, log_prob_T in enumerate(log_probs):
        num_tokens = len(targets[i]) + 1
        attention_TS = attention_BTS[i, :num_tokens, : len(inputs[i])]
        scores.append(TokenScores(log_prob_T[:num_tokens].tolist(), attention_TS))
    return scores


def min_positions(models: Iterable[Any]) -> int | None:
    """Return the maximum number of tokens that all models support."""
    limits = [model.max_positions for model in models if model.max_positions]
    return min(limits, default=None)


class Engine(Scorer, Protocol):
    """Translates and scores token ids."""

    def search(
        self, sources: Sequence[Source], search: Search, on_progress: Callable[[int], object]
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first.

        `on_progress` is called with the number of sentences finished since the previous call.
        """
