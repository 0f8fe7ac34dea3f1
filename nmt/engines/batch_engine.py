"""The engine that searches and scores batches with a model, several batches in parallel on a
CPU."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from nmt.core import runtime
from nmt.core.errors import NMTError
from nmt.core.plugins import wrong_result
from nmt.engines import Scorer, Sentences, Source, TokenScores
from nmt.engines.native import NativeModel
from nmt.search import Hypothesis, Search, SearchRequest, StepModel
from nmt.search.shortlist import Shortlist
from nmt.text.tokenizer import BOS, EOS, PAD, UNK, encoder_input

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

T = TypeVar("T")
R = TypeVar("R")
MAX_BATCH_TOKENS = 4096
"""Maximum number of source tokens in a batch times the rows per sentence. Limits memory."""
MAX_BATCH_ROWS = 192
"""Maximum number of rows in a batch: sentences times beams. Larger batches are no faster on a CPU,
and balance worse among threads."""
MIN_BATCH_ROWS = 32
"""Minimum number of rows in a batch before it is divided among threads."""
BATCHES_PER_THREAD = 3
"""Number of batches per thread, if there are enough sentences. With several, threads finish at
nearly the same time."""
MAX_SCORE_TOKENS = 1024
"""Maximum number of tokens in a batch to score, counted on the longer side, including padding."""
GPU_BATCH_SCALE = 16
"""Factor of these limits on a GPU, which has more rows in flight. A batch that does not fit in
memory is split."""


class Model(StepModel, Scorer, Protocol):
    """A model that a search can decode with and that can score the translations of a batch."""


SearchFunction = Callable[[Search, StepModel, SearchRequest], list[list[Hypothesis]]]
"""Runs a search of a batch with a model."""


def _search(search: Search, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
    return search(model, request)


class BatchEngine:
    """Searches and scores with a model or an ensemble."""

    def __init__(
        self,
        make_model: Callable[[str], Model],
        precision: str,
        detokenize: Callable[[Sequence[int]], str],
        num_threads: int = 1,
        *,
        source_eos: bool = True,
        batch_scale: int = 1,
        search_function: SearchFunction = _search,
        shortlist: Shortlist | None = None,
    ) -> None:
        """Create the model for the search.

        Args:
            make_model: returns the model in a given precision. It is called again with fp32 for
                scoring.
            precision: precision of the search.
            detokenize: returns the text of token ids, for searches that compare texts.
            num_threads: number of batches computed in parallel, one thread each.
            source_eos: whether sources end with the end token.
            batch_scale: factor of the maximum size of batches, which suits a CPU.
            search_function: runs a search, perhaps on another device.
            shortlist: of the model; searches may use it.
        """
        self.batch_scale = batch_scale
        self.search_function = search_function
        self.shortlist = shortlist
        self.model = make_model(precision)
        self.max_positions = self.model.max_positions
        self.precision, self.detokenize, self.num_threads = precision, detokenize, num_threads
        self.source_eos = source_eos
        self._make_model = make_model
        self._pool: ThreadPoolExecutor | None = None
        self._pid = 0

    @cached_property
    def scoring_model(self) -> Model:
        """The model in float32."""
        return self.model if self.precision == "fp32" else self._make_model("fp32")

    def search(
        self, sources: Sequence[Source], search: Search, on_progress: Callable[[int], object]
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first; see `Engine.search`."""
        lengths = [len(source.ids) + 1 for source in sources]
        rows = search.rows
        # The number of sentences in a batch that balances the threads, within its limits.
        balanced = len(sources) // (BATCHES_PER_THREAD * self.num_threads)
        min_sentences = MIN_BATCH_ROWS * self.batch_scale // rows
        max_sentences = MAX_BATCH_ROWS * self.batch_scale // rows
        num_sentences = min(max_sentences, max(min_sentences, balanced))
        max_tokens = MAX_BATCH_TOKENS * self.batch_scale // rows
        batches = make_batches(lengths, max_items=max(1, num_sentences), max_tokens=max_tokens)
        return self._run(
            sources,
            batches,
            lambda batch: self.search_batch(batch, search),
            "use a smaller beam",
            on_progress,
        )

    def score(self, sources: Sentences, targets: Sentences) -> list[TokenScores]:
        """Score given translations in float32."""
        pairs = list(zip(sources, targets, strict=True))
        lengths = [max(len(source), len(target)) + 1 for source, target in pairs]
        max_tokens = MAX_SCORE_TOKENS * self.batch_scale
        # The number of tokens is the only limit.
        batches = make_batches(lengths, max_items=len(pairs), max_tokens=max_tokens)
        model = self.scoring_model  # loaded once, before the threads use it
        return self._run(
            pairs,
            batches,
            lambda batch: model.score(*zip(*batch, strict=True)),
            "remove it",
            lambda _: None,
        )

    def log_probs(self, sources: Sentences, targets: Sentences) -> list[float]:
        """Return the log-probability of each given translation, including that of the end token.

        A model of the native engine uses the precision of the search and is several times as fast
        as with `score`.
        """
        model = self.model
        if not isinstance(model, NativeModel):
            return [sum(each.log_probs) for each in self.score(sources, targets)]
        pairs = list(zip(sources, targets, strict=True))
        lengths = [len(source) + len(target) + 2 for source, target in pairs]
        batches = make_batches(lengths, max_items=MAX_BATCH_ROWS, max_tokens=MAX_BATCH_TOKENS)
        return self._run(
            pairs,
            batches,
            lambda batch: model.log_probs(*zip(*batch, strict=True)),
            "remove it",
            lambda _: None,
        )

    def _run(
        self,
        items: Sequence[T],
        batches: Iterable[list[int]],
        compute: Callable[[list[T]], list[R]],
        hint: str,
        on_progress: Callable[[int], object],
    ) -> list[R]:
        """Return the result of each item, computed in batches of indices; `hint`: for one that
        exceeds the memory."""
        batches = list(batches)
        results: dict[int, R] = {}
        lists = [[items[i] for i in batch] for batch in batches]
        work = partial(_compute_or_split, compute, hint)
        is_parallel = min(self.num_threads, len(lists)) > 1
        computed = self._threads().map(work, lists) if is_parallel else map(work, lists)
        for batch, batch_results in zip(batches, computed, strict=True):
            results.update(zip(batch, batch_results, strict=True))
            on_progress(len(batch))
        return [results[i] for i in range(len(items))]

    def _threads(self) -> ThreadPoolExecutor:
        """Return the threads, which are kept, because each allocates its own buffers. A forked
        process has none."""
        from concurrent.futures import ThreadPoolExecutor  # slow to import

        if self._pool is None or self._pid != os.getpid():
            self._pool = ThreadPoolExecutor(self.num_threads)
            self._pid = os.getpid()
        return self._pool

    def search_batch(self, sources: list[Source], search: Search) -> list[list[Hypothesis]]:
        """Search the translations of sentences in one batch.

        Raises:
            NMTError: the scores are NaN or infinite.
        """
        max_length_B = np.array([source.max_output_length for source in sources])
        if self.max_positions is not None:
            # One position is for the start token.
            max_length_B = max_length_B.clip(max=self.max_positions - 1)
        request = SearchRequest(
            sources=[encoder_input(source.ids, self.source_eos) for source in sources],
            max_length_B=max_length_B,
            bos=BOS,
            eos=EOS,
            prefixes=[source.prefix for source in sources],
            constraints=[source.constraints for source in sources],
            detokenize=self.detokenize,
            suppressed_ids=(PAD, UNK, BOS),
            shortlist=self.shortlist,
        )
        hypotheses = self.search_function(search, self.model, request)
        if not _is_n_best_lists(hypotheses, len(sources)):
            name = type(search).__name__
            expected = f"an n-best list of hypotheses for each of {len(sources)} sentences"
            raise wrong_result(f"the search {name}", hypotheses, expected)
        if not all(hypotheses) or any(math.isnan(n_best[0].log_prob) for n_best in hypotheses):
            hint = "its training has diverged, or its weights are damaged; use another checkpoint"
            raise NMTError("the model's scores are NaN or infinite", hint)
        return hypotheses


def _is_n_best_lists(result: Any, num_sentences: int) -> bool:
    """Return whether the result of a search, perhaps one of a plug-in, is a list of hypotheses for
    each sentence."""
    if not isinstance(result, list) or len(result) != num_sentences:
        return False
    if not all(isinstance(n_best, list) for n_best in result):
        return False
    return all(isinstance(each, Hypothesis) for each in chain.from_iterable(result))


def _compute_or_split(compute: Callable[[list[T]], list[R]], hint: str, items: list[T]) -> list[R]:
    """Compute a batch; if it runs out of memory, compute each half of it."""
    try:
        return compute(items)
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, RuntimeError) and not runtime.is_out_of_memory(error):
            raise
    if len(items) == 1:
        raise NMTError("this sentence does not fit into memory", f"split it, or {hint}")
    middle = len(items) // 2
    return _compute_or_split(compute, hint, items[:middle]) + _compute_or_split(
        compute, hint, items[middle:]
    )


def make_batches(lengths: Sequence[int], *, max_items: int, max_tokens: int) -> Iterator[list[int]]:
    """Group item indices by similar length, longest first, so that the batch that needs the most
    memory runs first.

    Args:
        lengths: number of tokens of each item.
        max_items: maximum number of items in a batch.
        max_tokens: maximum number of tokens in a batch, including padding, unless a single item has
            more.
    """
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) == max_items or (len(batch) + 1) * lengths[batch[0]] > max_tokens):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
