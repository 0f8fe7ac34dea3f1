"""Our own engine: batches of sentences searched and scored with a model, several at a time where it runs on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Protocol, TypeVar

import numpy as np

from nmt.data.tokenizer import BOS, EOS, PAD, UNK
from nmt.errors import NMTError
from nmt.inference import Source, TokenScores
from nmt.search import Hypothesis, Search, SearchRequest, StepModel

T = TypeVar("T")
R = TypeVar("R")
BATCH_TOKENS = 4096
"""Maximum number of source tokens of a batch, times the rows of a sentence: a bound of its memory."""
BATCH_ROWS = 192
"""Maximum number of rows that are searched together: sentences times beams. Larger batches are no faster on a CPU, and
divide worse among threads."""
SHARES = 4
"""Batches for each thread, if there are sentences enough: the last ones then end at nearly the same time."""
MIN_ROWS = 32
"""Rows below which a batch is not divided among threads."""
SCORE_TOKENS = 1024
"""Maximum number of target tokens that are scored together."""


class Model(StepModel, Protocol):
    """What can be searched and scored with."""

    @property
    def max_positions(self) -> int | None:
        """Tokens a sentence may have, start or end counted; None: there is no limit."""

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[TokenScores]:
        """Score given translations of a batch; ids are without start and end."""


class BatchEngine:
    """Searches and scores with one model or an ensemble."""

    def __init__(
        self,
        make_model: Callable[[str], Model],
        precision: str,
        detokenize: Callable[[Sequence[int]], str],
        threads: int = 1,
    ) -> None:
        """Make the model that searches.

        Args:
            make_model: returns the model in a precision; called again, for fp32, when something is to be scored.
            precision: of the search.
            detokenize: returns the text of ids, for searches that compare texts.
            threads: batches that are computed at the same time, each by one thread.
        """
        self.model = make_model(precision)
        self.precision, self.detokenize, self.threads = precision, detokenize, threads
        self._make_model = make_model
        # The same threads each time: new ones would take new memory. None starts before it has work.
        self._pool = ThreadPoolExecutor(threads)

    @property
    def max_positions(self) -> int | None:
        """Tokens a sentence may have, start or end counted; None: there is no limit."""
        return self.model.max_positions

    @cached_property
    def scoring_model(self) -> Model:
        """The model in float32."""
        return self.model if self.precision == "fp32" else self._make_model("fp32")

    def search(
        self, sources: Sequence[Source], search: Search, on_progress: Callable[[int], object]
    ) -> list[list[Hypothesis]]:
        """Return each sentence's hypotheses, best first; `on_progress` is called with how many more are done."""
        lengths = [len(source.ids) + 1 for source in sources]
        rows = max(1, search.rows)
        sentences = min(BATCH_ROWS // rows, max(MIN_ROWS // rows, len(sources) // (SHARES * self.threads)))
        parts = batches(lengths, max(1, sentences), BATCH_TOKENS // rows)
        return self._in_batches(sources, parts, lambda part: self._search(part, search), on_progress)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[TokenScores]:
        """Score given translations in float32."""
        lengths = [max(len(src), len(tgt)) + 1 for src, tgt in zip(sources, targets, strict=True)]
        pairs = list(zip(sources, targets, strict=True))
        parts = batches(lengths, SCORE_TOKENS, SCORE_TOKENS)
        return self._in_batches(pairs, parts, self._score, lambda _: None)

    def _in_batches(
        self,
        items: Sequence[T],
        numbers: Iterator[list[int]],
        work: Callable[[list[T]], list[R]],
        on_progress: Callable[[int], object],
    ) -> list[R]:
        parts = list(numbers)
        done: dict[int, R] = {}
        for part, results in zip(parts, self._parallel(work, [[items[i] for i in p] for p in parts]), strict=True):
            done.update(zip(part, results, strict=True))
            on_progress(len(part))
        return [done[i] for i in range(len(items))]

    def _parallel(self, work: Callable[[list[T]], list[R]], parts: Sequence[list[T]]) -> Iterator[list[R]]:
        if min(self.threads, len(parts)) <= 1:
            yield from map(work, parts)
            return
        waiting = [self._pool.submit(work, part) for part in parts]
        try:
            for future in waiting:
                yield future.result()
        finally:
            for future in waiting:
                future.cancel()

    def _search(self, sources: list[Source], search: Search) -> list[list[Hypothesis]]:
        def run() -> list[list[Hypothesis]]:
            # Limits of each sentence alone: the batch must not change a translation. One position is for the start.
            max_length_B = np.array([2 * (len(source.ids) + 1) + 10 for source in sources])
            hypotheses = search(
                self.model,
                SearchRequest(
                    [[*source.ids, EOS] for source in sources],
                    max_length_B.clip(max=(self.max_positions or 2**31) - 1), BOS, EOS,
                    [source.prefix for source in sources] if any(source.prefix for source in sources) else (),
                    [source.constraints for source in sources], self.detokenize, (PAD, UNK, BOS),
                ),
            )  # fmt: skip
            if not all(hypotheses):
                raise NMTError("the model's scores are not numbers", "its weights are damaged; use another checkpoint")
            return hypotheses

        return _retry_split(sources, run, lambda part: self._search(part, search), "search with fewer beams")

    def _score(self, pairs: list[tuple[Sequence[int], Sequence[int]]]) -> list[TokenScores]:
        def run() -> list[TokenScores]:
            return self.scoring_model.score([src for src, _ in pairs], [tgt for _, tgt in pairs])

        return _retry_split(pairs, run, self._score, "leave it out")


def _retry_split(
    items: list[T], run: Callable[[], list[R]], run_part: Callable[[list[T]], list[R]], advice: str
) -> list[R]:
    """Do something for all items together, or, where memory does not suffice, for one half after the other."""
    try:
        return run()
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError):
            from nmt import runtime

            if not runtime.is_out_of_memory(error):
                raise
    if len(items) == 1:
        raise NMTError("this sentence does not fit into memory", f"cut it, or {advice}")
    middle = len(items) // 2
    return run_part(items[:middle]) + run_part(items[middle:])


def batches(lengths: Sequence[int], max_items: int, max_tokens: int) -> Iterator[list[int]]:
    """Group numbers of items of similar length, longest first, so that running out of memory happens at once.

    Args:
        lengths: tokens of each.
        max_items: items of a batch.
        max_tokens: tokens of a batch, padding counted, unless a single item has more.
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) == max_items or (len(batch) + 1) * lengths[batch[0]] > max_tokens):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
