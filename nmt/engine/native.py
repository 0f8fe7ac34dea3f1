"""Our own engine: a Transformer or several, searched in batches, on a CPU as many side by side as there are cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

from nmt import runtime
from nmt.data.batching import collate, collate_source
from nmt.engine import Query, Scored
from nmt.errors import NMTError
from nmt.model.ensemble import Ensemble, mean_log_prob
from nmt.model.inference import for_inference
from nmt.model.seq2seq import Seq2Seq
from nmt.search import Hypothesis, Search, SearchModel, Task
from nmt.tokenizer import BOS, EOS, PAD, UNK

T = TypeVar("T")
R = TypeVar("R")
BATCH_TOKENS = 4096
"""Source tokens of one batch, padding counted, times the rows of a sentence: what bounds its memory."""
BATCH_ROWS = 512
"""Rows that are searched together: sentences times beams."""
SCORE_TOKENS = 1024
"""Target tokens that are scored together: their logits over the whole vocabulary exist at once."""


class NativeEngine:
    """Searches and scores with one model, or with the mean of several that share a vocabulary."""

    def __init__(
        self, models: Sequence[Seq2Seq], text: Callable[[Sequence[int]], str], device: torch.device, precision: str
    ) -> None:
        """Make copies of `models` ready for search; they themselves, in float32, score.

        Args:
            models: on `device`.
            text: gives the text of ids, for searches that compare texts.
            device: where to compute.
            precision: of the search; see `runtime.search_precision`.

        Raises:
            UsageError: unknown precision, or one that the device has not.
        """
        self.models, self.text, self.device = models, text, device
        dtype = runtime.search_precision(precision, device)
        ready: list[SearchModel] = [for_inference(model, dtype) for model in models]
        self.model = ready[0] if len(ready) == 1 else Ensemble(ready)
        self.threads = torch.get_num_threads()
        # The same threads each time: new ones would take new memory. None starts before it has work.
        self._pool = ThreadPoolExecutor(self.threads)

    @property
    def most_positions(self) -> int | None:
        """Tokens a sentence may have, start or end counted; None: as many as one likes."""
        return min((model.most_positions for model in self.models if model.most_positions), default=None)

    def search(self, queries: Sequence[Query], find: Search, tick: Callable[[int], object]) -> list[list[Hypothesis]]:
        """Return each sentence's hypotheses, best first; `tick` is told how many more sentences are done."""
        lengths = [len(query.ids) + 1 for query in queries]
        numbers = batches(lengths, max(1, BATCH_ROWS // find.rows), BATCH_TOKENS // find.rows)
        return self._in_batches(queries, numbers, lambda part: self._search(part, find), tick)

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Scored]:
        """Score given translations in float32, by one pass over each."""
        lengths = [max(len(src), len(tgt)) + 1 for src, tgt in zip(sources, targets, strict=True)]
        pairs = list(zip(sources, targets, strict=True))
        return self._in_batches(pairs, batches(lengths, SCORE_TOKENS, SCORE_TOKENS), self._score, lambda _: None)

    def _in_batches(
        self,
        items: Sequence[T],
        numbers: Iterator[list[int]],
        work: Callable[[list[T]], list[R]],
        tick: Callable[[int], object],
    ) -> list[R]:
        parts = list(numbers)
        done: dict[int, R] = {}
        for part, results in zip(
            parts, self._side_by_side(work, [[items[i] for i in part] for part in parts]), strict=True
        ):
            done.update(zip(part, results, strict=True))
            tick(len(part))
        return [done[i] for i in range(len(items))]

    def _side_by_side(self, work: Callable[[list[T]], list[R]], parts: Sequence[list[T]]) -> Iterator[list[R]]:
        """Do the parts of some work; on a CPU each on a core of its own, since cores that share one product wait."""
        if self.device.type != "cpu" or min(self.threads, len(parts)) <= 1:
            yield from map(work, parts)
            return

        def alone(part: list[T]) -> list[R]:
            torch.set_num_threads(1)  # each time: for MKL, it is not this thread's number but that of all
            return work(part)

        waiting = [self._pool.submit(alone, part) for part in parts]
        try:
            for part in waiting:
                yield part.result()
        finally:
            for part in waiting:
                part.cancel()
            torch.set_num_threads(self.threads)  # part of what a thread sets holds for all that come later

    @torch.inference_mode()  # for each thread
    def _search(self, queries: list[Query], find: Search) -> list[list[Hypothesis]]:
        src_BS, src_mask_BS = collate_source([list(query.ids) for query in queries])
        most_B = 2 * src_mask_BS.sum(1) + 10  # of each sentence alone: company must not change a translation
        most_B = most_B.clamp(max=(self.most_positions or 2**31) - 1)  # one is for the start
        prefixes = [query.prefix for query in queries] if any(query.prefix for query in queries) else ()
        phrases = [query.phrases for query in queries]

        def whole() -> list[list[Hypothesis]]:
            src, mask, most = (tensor.to(self.device) for tensor in (src_BS, src_mask_BS, most_B))
            return find(self.model, Task(src, mask, most, BOS, EOS, prefixes, phrases, self.text, (PAD, UNK, BOS)))

        return self._or_in_halves(queries, whole, lambda part: self._search(part, find), "search with fewer beams")

    @torch.inference_mode()
    def _score(self, pairs: list[tuple[Sequence[int], Sequence[int]]]) -> list[Scored]:
        def whole() -> list[Scored]:
            batch = collate([(list(src), list(tgt)) for src, tgt in pairs]).to(self.device)
            log_probs_N, seen_BTS = [], []
            for model in self.models:
                state = model.start(model.encode(batch.src_BS, batch.src_mask_BS), batch.src_mask_BS, keep=False)
                state.watch()
                hidden_ND = model.step(batch.tgt_in_BT, state).flatten(0, 1)[batch.places_N]
                log_p_NV = model.project(hidden_ND).float().log_softmax(-1)
                log_probs_N.append(log_p_NV.gather(1, batch.target_N[:, None])[:, 0])
                assert state.seen_RTS is not None
                seen_BTS.append(state.seen_RTS)
            log_prob = mean_log_prob(log_probs_N).tolist()
            seen = torch.stack(seen_BTS).mean(0).cpu()
            found, first = [], 0
            for (src, tgt), seen_TS in zip(pairs, seen, strict=True):
                end = first + len(tgt) + 1
                found.append(Scored(log_prob[first:end], seen_TS[: len(tgt) + 1, : len(src) + 1]))
                first = end
            return found

        return self._or_in_halves(pairs, whole, self._score, "leave it out")

    @staticmethod
    def _or_in_halves(
        items: list[T], whole: Callable[[], list[R]], part: Callable[[list[T]], list[R]], otherwise: str
    ) -> list[R]:
        """Do something for all at once, or for one half after the other where memory does not suffice."""
        try:
            return whole()
        except RuntimeError as error:
            if not runtime.is_out_of_memory(error):
                raise
        if len(items) == 1:
            raise NMTError("this sentence does not fit into memory", f"cut it, or {otherwise}")
        middle = len(items) // 2
        return part(items[:middle]) + part(items[middle:])


def batches(lengths: Sequence[int], most: int, tokens: int) -> Iterator[list[int]]:
    """Group numbers of items of similar length, longest first, so that running out of memory happens at once.

    Args:
        lengths: tokens of each.
        most: items of a batch at most.
        tokens: tokens of a batch at most, padding counted, unless a single item has more.
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) == most or (len(batch) + 1) * lengths[batch[0]] > tokens):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
