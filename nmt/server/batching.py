"""The queue of a model, whose thread searches and scores sentences of all requests in turns.

Each request is translated in a thread of its own, with a `QueuedEngine`, so a long one is divided
into its sentences, and all attempts to repair a translation wait for their turn, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Condition, Lock, Thread
from time import perf_counter
from typing import Any

from nmt.core.errors import NMTError
from nmt.engines import Engine, Source, TokenScores
from nmt.search import Hypothesis, Search

SECONDS_PER_BATCH = 0.4
"""Time that a batch should take. A request waits for at most one other batch before each of its
first turns."""
MIN_BATCH_WORK = 2048
"""Minimum number of source tokens in a full batch times the rows per sentence, however slow the
model is."""


Pair = tuple[tuple[int, ...], tuple[int, ...]]
"""Token ids of a source and its translation."""
Scores = dict[Pair, TokenScores]


@dataclass(frozen=True)
class Sentence:
    """What the model computes at once."""

    arguments: tuple[Any, ...]
    """The source, or to score it, its token ids and those of its translation."""
    work: int
    """Number of tokens times rows."""


@dataclass
class Job:
    """Sentences of one request."""

    search: Search | None
    """None: the sentences are scored."""
    sentences: Sequence[Sentence]
    future: Future[list[Any]] = field(default_factory=Future)
    """The result of each sentence. The rest of a job that is done, because it failed or was
    cancelled, is skipped."""
    scores: Scores | None = None
    """Where the scores of the hypotheses go; None: they are not scored. A request that waits only
    once leaves the batches larger."""
    num_taken: int = 0
    results: dict[int, Any] = field(default_factory=dict)

    def add_result(self, index: int, result: object) -> None:
        """Set the result of a sentence."""
        self.results[index] = result
        if len(self.results) == len(self.sentences):
            with suppress(InvalidStateError):  # the job was cancelled
                self.future.set_result([self.results[i] for i in range(len(self.sentences))])

    def fail(self, error: Exception) -> None:
        """Set an exception as the result of the job."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)


@dataclass(frozen=True)
class Turn:
    """A sentence of a job in a batch."""

    job: Job
    index: int

    @property
    def sentence(self) -> Sentence:
        """The sentence."""
        return self.job.sentences[self.index]


class ModelQueue:
    """Computes jobs with one engine in a thread.

    A new job comes first with its first sentence, and then has turns with the others, so short
    requests are answered soon. Each batch begins with a turn of a job that had one before, so none
    waits forever.
    """

    def __init__(
        self,
        engine: Engine,
        max_sentences: int,
        on_batch: Callable[[int], object] = lambda size: None,
    ) -> None:
        """Start the thread.

        A batch has at most `max_sentences` sentences. `on_batch` gets the number of sentences of
        each search.
        """
        self.engine, self.max_sentences, self.on_batch = engine, max_sentences, on_batch
        self.max_work: float = 2 * MIN_BATCH_WORK
        """Maximum work of a batch, unless one sentence has more; follows the speed of the model."""
        self.new_jobs: deque[Job] = deque()
        self.continued_jobs: deque[Job] = deque()
        self._is_closed = False
        self._changed = Condition()
        self._thread = Thread(target=self._run, name="translate", daemon=True)
        self._thread.start()

    @property
    def num_waiting(self) -> int:
        """Number of jobs of which no batch has all sentences yet."""
        return len(self.new_jobs) + len(self.continued_jobs)

    def submit(self, job: Job) -> None:
        """Add a job to the queue."""
        with self._changed:
            self.new_jobs.append(job)
            self._changed.notify()

    def close(self) -> None:
        """Compute the jobs that were submitted, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while batch := self._next_batch():
            turns_of_searches: dict[Search | None, list[Turn]] = {}
            for turn in batch:
                turns_of_searches.setdefault(turn.job.search, []).append(turn)
            start = perf_counter()
            for turns in turns_of_searches.values():
                self._compute(turns)
            self.adapt(sum(turn.sentence.work for turn in batch), perf_counter() - start)

    def adapt(self, work: int, seconds: float) -> None:
        """Adapt the size of batches to the speed of the last one."""
        possible_work = work * SECONDS_PER_BATCH / max(seconds, 1e-6)
        self.max_work = max(MIN_BATCH_WORK, (self.max_work + possible_work) / 2)

    def _next_batch(self) -> list[Turn]:
        """Wait for sentences and take those of the next batch; none if the queue is closed."""
        with self._changed:
            while True:
                batch = self.take_batch()
                if batch or self._is_closed:
                    return batch
                self._changed.wait()

    def take_batch(self) -> list[Turn]:
        """Take the sentences of the next batch: first those of a job that waits longest."""
        batch: list[Turn] = []
        work = 0
        while len(batch) < self.max_sentences:
            prefers_new = bool(batch and self.new_jobs)
            queue = self.new_jobs if prefers_new else self.continued_jobs or self.new_jobs
            if not queue:
                break
            job = queue[0]
            turn = Turn(job, job.num_taken)
            if job.future.done():
                queue.popleft()
                continue
            work += turn.sentence.work
            if batch and work > self.max_work:
                break
            queue.popleft()
            batch.append(turn)
            job.num_taken += 1
            if job.num_taken < len(job.sentences):
                self.continued_jobs.append(job)  # after the others
        return batch

    def _compute(self, turns: Sequence[Turn]) -> None:
        """Compute sentences with the same search. If that fails, compute those of each job
        separately."""
        search = turns[0].job.search
        arguments = [turn.sentence.arguments for turn in turns]
        try:
            results: Sequence[Any]
            if search is None:
                sources, targets = zip(*arguments, strict=True)
                results = self.engine.score(sources, targets)
            else:
                self.on_batch(len(turns))
                results = self.engine.search(
                    [source for (source,) in arguments], search, lambda count: None
                )
                self._score(turns, results)
        except Exception as error:  # of any job; the thread must not end
            self._compute_separately(turns, error)
            return
        for turn, result in zip(turns, results, strict=True):
            turn.job.add_result(turn.index, result)

    def _score(self, turns: Sequence[Turn], n_bests: Sequence[list[Hypothesis]]) -> None:
        """Score the hypotheses of jobs that need it."""
        wanted: list[tuple[Pair, Scores]] = []
        for turn, n_best in zip(turns, n_bests, strict=True):
            scores = turn.job.scores
            if scores is None:
                continue
            source = tuple(turn.sentence.arguments[0].ids)
            wanted += [((source, tuple(each.ids)), scores) for each in n_best]
        sources = [pair[0] for pair, _ in wanted]
        targets = [pair[1] for pair, _ in wanted]
        scored = self.engine.score(sources, targets) if wanted else []
        for (pair, scores), token_scores in zip(wanted, scored, strict=True):
            scores[pair] = token_scores

    def _compute_separately(self, turns: Sequence[Turn], error: Exception) -> None:
        turns_of_jobs: dict[int, list[Turn]] = {}
        for turn in turns:
            turns_of_jobs.setdefault(id(turn.job), []).append(turn)
        if len(turns_of_jobs) == 1:
            turns[0].job.fail(error)
            return
        for each in turns_of_jobs.values():
            self._compute(each)


class QueuedEngine:
    """An engine for one request, which waits for its turns in the queue of a model."""

    def __init__(self, queue: ModelQueue, scored_search: Search | None = None) -> None:
        """Create an engine.

        The hypotheses of `scored_search` are scored in the same turn, so that `score` finds their
        scores.
        """
        self.max_positions = queue.engine.max_positions
        self._scored_search = scored_search
        self._scores: Scores = {}
        """Scores of the hypotheses of the last search."""
        self._queue = queue
        self._lock = Lock()
        self._is_stopped = False
        self._job: Job | None = None

    def stop(self) -> None:
        """Compute no further sentences, and none that wait for their turn."""
        with self._lock:
            self._is_stopped = True
            if self._job:
                self._job.future.cancel()

    def search(
        self, sources: Sequence[Source], search: Search, on_progress: Callable[[int], object]
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence, best first; see `Engine.search`.

        Equal sentences, as in a text with repeated lines, are searched once.

        Raises:
            NMTError: `stop` was called.
            CancelledError: `stop` was called meanwhile.
        """
        keys = list(map(_key, sources))
        distinct = dict(zip(keys, sources, strict=True))
        sentences = [
            Sentence((source,), (len(source.ids) + 1) * search.rows) for source in distinct.values()
        ]
        self._scores = {}
        scores = self._scores if search == self._scored_search else None
        hypotheses = self._compute(Job(search, sentences, scores=scores))
        if sources:
            on_progress(len(sources))
        n_bests = dict(zip(distinct, hypotheses, strict=True))
        return [list(n_bests[key]) for key in keys]

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        """Score given translations; see `Engine.score`. Raises as `search` does."""
        pairs = [
            (tuple(source), tuple(target)) for source, target in zip(sources, targets, strict=True)
        ]
        unknown = [pair for pair in dict.fromkeys(pairs) if pair not in self._scores]
        sentences = [Sentence(pair, len(pair[0]) + len(pair[1]) + 1) for pair in unknown]
        self._scores |= zip(unknown, self._compute(Job(None, sentences)), strict=True)
        return [self._scores[pair] for pair in pairs]

    def _compute(self, job: Job) -> list[Any]:
        if not job.sentences:
            return []
        with self._lock:
            if self._is_stopped:
                raise NMTError("the translation was cancelled")
            self._job = job
            self._queue.submit(job)
        return job.future.result()


def _key(source: Source) -> tuple[object, ...]:
    """Return a value that is equal for equal sentences, and can be the key of a dict."""
    constraints = tuple(map(tuple, source.constraints))
    return tuple(source.ids), tuple(source.prefix), constraints
