"""Check parallel corpora for problems, and repair them.

Each pair is reduced to a record of fixed size in a temporary file, so that memory use stays low. Problems that concern
several pairs (duplicates, length ratios, misalignment) are detected in these records. Shape suffix: N pairs.
"""

from __future__ import annotations

import itertools
import multiprocessing
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nmt.console import progress
from nmt.data.check.checks import bits_with_fix
from nmt.data.check.corpus import TolerantReader
from nmt.data.check.encoding import repair_encoding
from nmt.data.check.features import RECORD, Records, extract_features
from nmt.data.check.findings import FindingCollector
from nmt.data.check.overlap_index import OverlapIndex
from nmt.data.check.report import Report
from nmt.data.pairs import Pair
from nmt.errors import DataError, NMTError
from nmt.paths import named_errors
from nmt.runtime import num_cores

if TYPE_CHECKING:
    from nmt.data.sources import Split

_Options = tuple[tuple[str, str], OverlapIndex, frozenset[str]]
CHUNK_SIZE = 5_000
"""Pairs per task of a worker."""


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
    overlap_index, ignored = OverlapIndex(test_sets), frozenset(ignore)
    counts = [corpus.count() if corpus.count else None for corpus in corpora]
    total = sum(count or 0 for count in counts) if None not in counts else None
    with named_errors(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
        readers, sizes = [TolerantReader(corpus) for corpus in corpora], []
        with progress(total, "checking", " pairs", unit_scale=True) as bar:
            for reader in readers:
                size = 0
                for records in _extract_parallel(reader, languages, overlap_index, ignored):
                    file.write(records.tobytes())
                    size += len(records)
                    bar.update(len(records))
                sizes.append(size)
        if not sum(sizes):
            raise DataError("there are no pairs to check", "check whether a file is empty")
        file.flush()
        records = np.memmap(file, RECORD, mode="r")
        errors = [reader.line_count_error for reader in readers]
        findings = FindingCollector(records, corpora, sizes, overlap_index, ignore=ignored, max_examples=max_examples)
        return Report(
            [(corpus.name, size) for corpus, size in zip(corpora, sizes, strict=True)],
            [(name, len(pairs)) for name, pairs in test_sets],
            languages,
            findings.collect(errors),
            findings.problems_N,
            findings.misaligned_N,
            findings.ignore,
        )


def repair(corpora: Sequence[Split], report: Report) -> Iterator[Pair]:
    """Yield the pairs after dropping or rewriting those with problems; see `Check.fix`."""
    rewrite_bits = bits_with_fix("rewrite")
    pairs = itertools.chain.from_iterable(map(TolerantReader, corpora))
    rows = zip(report.problems_N.tolist(), report.dropped_N.tolist(), strict=True)
    for pair, row in itertools.zip_longest(pairs, rows):
        if pair is None or row is None:
            raise DataError("the text changed while it was checked", "run the command again")
        (source, target), (problems, is_dropped) = pair, row
        if not is_dropped:
            if problems & rewrite_bits:
                source, target = (repair_encoding(text, report.ignored) for text in (source, target))
            yield source, target


def _extract_parallel(pairs: Iterable[Pair], *options: *_Options) -> Iterator[Records]:
    """Yield records in the order of the pairs, computed by one process per CPU."""
    chunks = _chunk(pairs)
    first_chunks = list(itertools.islice(chunks, 2))
    num_workers = num_cores()
    if len(first_chunks) < 2 or num_workers == 1:
        yield from (extract_features(chunk, *options) for chunk in itertools.chain(first_chunks, chunks))
        return
    context = multiprocessing.get_context("spawn")  # fork is unsafe with threads
    with ProcessPoolExecutor(num_workers, context, _init_worker, options) as pool:
        pending: deque[Future[Records]] = deque()
        try:
            pool.submit(int).result()  # raises if processes cannot start; submitting data would block forever
            for chunk in itertools.chain(first_chunks, chunks):
                pending.append(pool.submit(_extract, chunk))
                if len(pending) > 2 * num_workers:  # limit the text in memory
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise NMTError("a worker process ended unexpectedly", "it may have run out of memory") from None
        finally:
            for future in pending:
                future.cancel()


def _chunk(pairs: Iterable[Pair]) -> Iterator[tuple[Pair, ...]]:
    iterator = iter(pairs)
    while chunk := tuple(itertools.islice(iterator, CHUNK_SIZE)):
        yield chunk


_options: _Options


def _init_worker(*options: *_Options) -> None:
    global _options
    _options = options


def _extract(pairs: Sequence[Pair]) -> Records:
    return extract_features(pairs, *_options)
