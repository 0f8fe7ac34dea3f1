"""Check parallel corpora for problems, and repair them.

Each pair is reduced to a record of fixed size in a temporary file, so that memory use stays low.
Problems that concern several pairs (duplicates, length ratios, misalignment) are detected in these
records. Shape suffix: N pairs.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from nmt.core.console import progress
from nmt.core.errors import DataError
from nmt.core.paths import named_errors
from nmt.core.processes import map_chunks
from nmt.data.check.corpus import TolerantReader
from nmt.data.check.encoding import repair_pair
from nmt.data.check.features import RECORD, Records, extract_features
from nmt.data.check.findings import CheckedCorpus, FindingCollector
from nmt.data.check.overlap_index import OverlapIndex
from nmt.data.check.report import Report
from nmt.data.pairs import Pair

if TYPE_CHECKING:
    from nmt.data.sources import Split


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
    overlap_index = OverlapIndex(test_sets)
    ignored = frozenset(ignore)
    extract = partial(
        extract_features, languages=languages, overlap_index=overlap_index, ignored=ignored
    )
    with named_errors(Path(tempfile.gettempdir())), tempfile.TemporaryFile() as file:
        checked = _write_records(corpora, extract, file)
        records = np.memmap(file, RECORD, mode="r")
        collector = FindingCollector(records, checked, overlap_index, ignored, max_examples)
        findings = collector.collect()
    return Report(
        [(corpus.name, len(corpus)) for corpus in checked],
        [(name, len(pairs)) for name, pairs in test_sets],
        languages,
        findings,
        collector.problems_N,
        collector.misaligned_N,
        ignored,
    )


def _write_records(
    corpora: Sequence[Split], extract: Callable[[Sequence[Pair]], Records], file: BinaryIO
) -> list[CheckedCorpus]:
    """Write the records of all pairs to a file, and return the place of each corpus."""
    # On use, because translation imports this package, too.
    from nmt.data.sources.corpus import (
        total_pairs,
    )

    checked = []
    end = 0
    with progress(total_pairs(corpora), "checking", " pairs", unit_scale=True) as bar:
        for corpus in corpora:
            start = end
            reader = TolerantReader(corpus)
            for records in map_chunks(extract, reader):
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
