"""Check parallel corpora for problems, and repair them.

Each pair is reduced to a record of fixed size in a temporary file, so that memory use stays low.
Problems that concern several pairs (duplicates, length ratios, misalignment) are detected in these
records. Shape suffix: N pairs.
"""

from __future__ import annotations

import itertools
import multiprocessing
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from nmt.core.console import progress
from nmt.core.errors import DataError, NMTError
from nmt.core.paths import named_errors
from nmt.core.runtime import num_cores
from nmt.data.check.corpus import TolerantReader
from nmt.data.check.encoding import repair_pair
from nmt.data.check.features import RECORD, Records, extract_features
from nmt.data.check.findings import CheckedCorpus, FindingCollector
from nmt.data.check.overlap_index import OverlapIndex
from nmt.data.check.report import Report
from nmt.data.pairs import Pair

if TYPE_CHECKING:
    from nmt.data.sources import Split

CHUNK_SIZE = 5_000
"""Pairs per task of a worker."""


@dataclass(frozen=True)
class _Extractor:
    """Extracts the features of pairs."""

    languages: tuple[str, str]
    overlap_index: OverlapIndex
    ignored: frozenset[str]

    def __call__(self, pairs: Sequence[Pair]) -> Records:
        return extract_features(pairs, self.languages, self.overlap_index, self.ignored)


def run_checks(
    corpora: Sequence[Split],
    test_sets: Sequence[tuple[str, Sequence[Pair]]],
    languages: tuple[str, str],
    *,
    ignore: Iterable[str] = (),
    max_examples: int = 5,
) -> Report:
    """Run all checks on training corpora.

    Args:
        corpora: the training corpora; duplicates are detected across all of them.
        test_sets: name and pairs of each test set that the corpora must not overlap with.
        languages: codes of source and target; an empty one is not checked.
        ignore: names of checks to skip.
        max_examples: maximum number of examples per check.

    Raises:
        DataError: there are no pairs, or a corpus is corrupted.
    """
    extractor = _Extractor(languages, OverlapIndex(test_sets), frozenset(ignore))
    with named_errors(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
        checked = _write_records(corpora, extractor, file)
        records = np.memmap(file, RECORD, mode="r")
        collector = FindingCollector(
            records, checked, extractor.overlap_index, extractor.ignored, max_examples
        )
        findings = collector.collect()
    return Report(
        [(corpus.name, len(corpus)) for corpus in checked],
        [(name, len(pairs)) for name, pairs in test_sets],
        languages,
        findings,
        collector.problems_N,
        collector.misaligned_N,
        extractor.ignored,
    )


def _write_records(
    corpora: Sequence[Split], extractor: _Extractor, file: BinaryIO
) -> list[CheckedCorpus]:
    """Write the records of all pairs to a file, and return the place of each corpus."""
    from nmt.data.sources.corpus import (
        total_pairs,
    )  # on use, because translation imports this package, too

    checked = []
    end = 0
    with progress(total_pairs(corpora), "checking", " pairs", unit_scale=True) as bar:
        for corpus in corpora:
            start = end
            reader = TolerantReader(corpus)
            for records in _extract_parallel(reader, extractor):
                file.write(records.tobytes())
                end += len(records)
                bar.update(len(records))
            checked.append(CheckedCorpus(corpus, start, end, reader.line_count_error))
    if not end:
        raise DataError("there are no pairs to check", "check whether a file is empty")
    file.flush()
    return checked


def repair(corpora: Sequence[Split], report: Report) -> Iterator[Pair]:
    """Yield the pairs after dropping or rewriting those with problems; see `Check.fix`."""
    pairs = itertools.chain.from_iterable(map(TolerantReader, corpora))
    all_problems = report.problems_N.tolist()
    all_dropped = report.dropped_N.tolist()
    for pair, problems, is_dropped in itertools.zip_longest(pairs, all_problems, all_dropped):
        if pair is None or problems is None:
            raise DataError("the text changed while it was checked", "run the command again")
        if not is_dropped:
            yield repair_pair(pair, problems, report.ignored)


def _extract_parallel(pairs: Iterable[Pair], extractor: _Extractor) -> Iterator[Records]:
    """Yield records in the order of the pairs, computed by one process per CPU."""
    chunks = _chunk(pairs)
    first_chunks = list(itertools.islice(chunks, 2))
    chunks = itertools.chain(first_chunks, chunks)
    num_workers = num_cores()
    if len(first_chunks) < 2 or num_workers == 1:
        yield from map(extractor, chunks)
        return
    context = multiprocessing.get_context("spawn")  # fork is unsafe with threads
    with ProcessPoolExecutor(num_workers, context, _init_worker, (extractor,)) as pool:
        pending: deque[Future[Records]] = deque()
        try:
            pool.submit(
                int
            ).result()  # raises if processes cannot start; submitting data would block forever
            for chunk in chunks:
                pending.append(pool.submit(_extract, chunk))
                if len(pending) > 2 * num_workers:  # limit the text in memory
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise NMTError(
                "a worker process ended unexpectedly", "it may have run out of memory"
            ) from None
        finally:
            for future in pending:
                future.cancel()


def _chunk(pairs: Iterable[Pair]) -> Iterator[tuple[Pair, ...]]:
    iterator = iter(pairs)
    while chunk := tuple(itertools.islice(iterator, CHUNK_SIZE)):
        yield chunk


_extractor: _Extractor
"""Of a worker process: sent once, because the index of test sentences is large."""


def _init_worker(extractor: _Extractor) -> None:
    global _extractor
    _extractor = extractor


def _extract(pairs: Sequence[Pair]) -> Records:
    return _extractor(pairs)
