"""Check parallel corpora for problems, and repair them.

Processes reduce each pair to a record of fixed size, shard by shard. Problems that concern several
pairs (duplicates, length ratios, misalignment) are detected in the files of these records, so that
memory use stays low. Shape suffix: N pairs.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nmt.core.console import progress
from nmt.core.errors import DataError
from nmt.core.parts import Part
from nmt.core.paths import TEMPORARY, locked, named_errors, write_bytes, write_text
from nmt.core.processes import Executor
from nmt.data.check.corpus import TolerantReader
from nmt.data.check.encoding import repair_pair
from nmt.data.check.feature_files import Features, Lines, feature_file, join_records, write_lines
from nmt.data.check.features import extract_features
from nmt.data.check.findings import CheckedCorpus, FindingCollector
from nmt.data.check.line_problems import find_line_problems
from nmt.data.check.misalignment import Region
from nmt.data.check.overlap_index import OverlapIndex
from nmt.data.check.report import Report
from nmt.data.pairs import Pair
from nmt.data.shards import ALL_SHARDS, RAW, Shard, Splitter, UnfinishedPartsError

if TYPE_CHECKING:
    from nmt.data.sources import Split

SHARD_SIZE = 25_000
"""Pairs of a shard. Their records are joined, so there may be many."""
MIN_PARALLEL_SIZE = 20_000
"""Pairs below which this process computes all features."""
CHUNK_SIZE = 5_000
"""Pairs whose features are computed together."""
FEATURES = "features"
LINES = "lines.zst"
"""Suffix of the files of the features of lines."""
LOCK = ".lock"
"""File that a process locks in its directory."""
TestSets = Sequence[tuple[str, Sequence[Pair]]]


@contextmanager
def work_directory(path: Path | None, part: Part = ALL_SHARDS) -> Iterator[Path]:
    """Yield a directory for the files of a check: a temporary one, or `path`, which is kept if the
    process is killed or the disk is full, so that the same check continues.

    Only parts of one check share a directory: while another process makes the same check, this one
    gets a temporary directory.
    """
    with ExitStack() as stack:
        if path is None or (part == ALL_SHARDS and _is_in_use(path, stack)):
            stack.enter_context(named_errors(Path(tempfile.gettempdir())))
            yield Path(stack.enter_context(tempfile.TemporaryDirectory()))
            return
        try:
            with named_errors(path):
                path.mkdir(parents=True, exist_ok=True)
                yield path
        except (OSError, UnfinishedPartsError):
            raise
        except Exception:
            _delete(path)
            raise
        _delete(path)


def _is_in_use(directory: Path, stack: ExitStack) -> bool:
    """Return whether another process holds the lock of a directory; otherwise, hold it."""
    busy = DataError("another process makes this check")
    try:
        with named_errors(directory):
            stack.enter_context(locked(directory / LOCK, busy))
    except DataError:
        return True
    return False


def _delete(directory: Path) -> None:
    # Renamed first: a new check must not write into a directory that is being deleted.
    deleted = directory.with_name(f"{TEMPORARY}{directory.name}-{os.getpid()}")
    with suppress(OSError):
        directory = directory.rename(deleted)
    shutil.rmtree(directory, ignore_errors=True)
    for parent in directory.parents[:2]:
        with suppress(OSError):  # other files are in it
            parent.rmdir()


def run_checks(
    corpora: Sequence[Split],
    test_sets: TestSets,
    languages: tuple[str, str],
    *,
    ignore: Iterable[str] = (),
    max_examples: int = 5,
    directory: Path | None = None,
    executor: Executor | None = None,
    part: Part = ALL_SHARDS,
) -> Report:
    """Run all checks on training corpora.

    Args:
        corpora: the training corpora; duplicates are detected across all of them.
        test_sets: name and pairs of each test set that the corpora must not overlap with.
        languages: codes of source and target; an empty one is not checked.
        ignore: names of checks to skip.
        max_examples: maximum number of examples per check.
        directory: directory for files, which may be those of an interrupted call with the same
            arguments; default: a temporary one.
        executor: computes the shards; default: one process per core.
        part: the shards that this machine handles.

    Raises:
        DataError: there are no pairs, or a corpus is corrupted.
        UnfinishedPartsError: other machines have not finished their shards.
    """
    ignored = frozenset(ignore)
    with ExitStack() as stack:
        if directory is None:
            directory = stack.enter_context(work_directory(None))
        extraction = _Extraction(directory, corpora, languages, ignored, part)
        extraction.run(test_sets, executor)
        stack.enter_context(locked(directory / ".join.lock", busy=lambda: None))
        checked, features = extraction.join()
        collector = FindingCollector(
            features, checked, OverlapIndex(test_sets), ignored, max_examples, directory / "keys.db"
        )
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


def _extract(
    shard: Shard,
    report: Callable[[int], object] = int,
    *,
    languages: tuple[str, str],
    ignored: frozenset[str],
    tests: Path,
) -> None:
    """Write the records of a shard, and delete its text; `tests` is the file of the test sets."""
    index = _overlap_index(tests)
    pair_features = []
    line_features = []
    pairs = shard.read_text(RAW)
    while chunk := list(islice(pairs, CHUNK_SIZE)):
        features = extract_features(chunk, languages, index, ignored)
        pair_features.append(features.pairs_N)
        line_features.append(features.lines_N)
        report(len(chunk))
    write_bytes(shard.path(FEATURES), np.concatenate(pair_features).tobytes())
    write_lines(shard.path(LINES), np.concatenate(line_features))
    shard.write_record(FEATURES, {"pairs": shard.num_pairs})
    shard.delete_text(RAW)


@lru_cache(maxsize=1)
def _overlap_index(tests: Path) -> OverlapIndex:
    test_sets = json.loads(tests.read_text(encoding="utf-8"))
    return OverlapIndex([(name, [(src, tgt) for src, tgt in pairs]) for name, pairs in test_sets])


@dataclass
class _Extraction:
    """The computation of the features of corpora in a directory."""

    directory: Path
    corpora: Sequence[Split]
    languages: tuple[str, str]
    ignored: frozenset[str]
    part: Part

    def __post_init__(self) -> None:
        self._splitter = Splitter(self.directory, "check", self.part, SHARD_SIZE)
        self._tests = self.directory / "tests.json"
        self._errors = self.directory / "errors.json"
        """Error messages of corpora whose sides have different numbers of lines."""

    def run(self, test_sets: TestSets, executor: Executor | None) -> None:
        """Write the features of all shards.

        Raises:
            UnfinishedPartsError: other machines have not finished their shards.
        """
        tests = [(name, list(pairs)) for name, pairs in test_sets]
        write_text(self._tests, json.dumps(tests))
        if not self._errors.is_file() or not self._splitter.is_complete(FEATURES, self.part):
            with executor or Executor(MIN_PARALLEL_SIZE) as running:
                self._extract(running)
        if not self._splitter.is_complete(FEATURES):
            raise UnfinishedPartsError
        if not self._splitter.shards:
            raise DataError("there are no pairs to check", "check whether a file is empty")

    def join(self) -> tuple[list[CheckedCorpus], Features]:
        """Return the corpora, and the features of their pairs."""
        corpora = []
        for shards in self._splitter.corpora:
            corpora.append(Lines([(shard.path(LINES), shard.num_pairs) for shard in shards]))
        parts = [(shard.path(FEATURES), shard.num_pairs) for shard in self._splitter.shards]
        join_records(parts, self.directory)
        problems = feature_file(self.directory, "problems")
        regions = self.directory / "regions.json"
        misaligned = find_line_problems(corpora, problems, self.ignored, regions)
        return self._places(misaligned), Features.read(self.directory)

    def _extract(self, executor: Executor) -> None:
        # On use, because translation imports this package, too.
        from nmt.data.sources.corpus import total_pairs

        readers = list(map(TolerantReader, self.corpora))
        num_pairs = total_pairs(self.corpora)
        with progress(num_pairs, "checking", " pairs", unit_scale=True) as bar:
            shards = self._splitter.split(readers, FEATURES, bar.update)
            extract = partial(
                _extract, languages=self.languages, ignored=self.ignored, tests=self._tests
            )
            for _ in executor.map(extract, shards, bar.update):
                pass
        errors = [reader.line_count_error for reader in readers]
        write_text(self._errors, json.dumps(errors))

    def _places(self, misaligned: Sequence[Sequence[Region]]) -> list[CheckedCorpus]:
        """Return the place of each corpus, given its misaligned regions."""
        errors = json.loads(self._errors.read_text(encoding="utf-8"))
        places = []
        end = 0
        for i, corpus in enumerate(self.corpora):
            start = end
            end += sum(shard.num_pairs for shard in self._splitter.corpora[i])
            places.append(CheckedCorpus(corpus, start, end, errors[i], misaligned[i]))
        return places


def repair(corpora: Sequence[Split], report: Report) -> Iterator[Pair]:
    """Yield the pairs after dropping or rewriting those with problems; see `Check.fix`."""
    pairs = itertools.chain.from_iterable(map(TolerantReader, corpora))
    problems = _values(report.problems_N)
    dropped = _values(report.dropped_N)
    for pair, bits, is_dropped in itertools.zip_longest(pairs, problems, dropped):
        if pair is None or bits is None:
            raise DataError("the text changed while it was checked", "run the command again")
        if not is_dropped:
            yield repair_pair(pair, bits, report.ignored)


def _values(array_N: NDArray[Any]) -> Iterator[Any]:
    """Yield the values of an array as Python objects, few of which are in memory."""
    for start in range(0, len(array_N), CHUNK_SIZE):
        yield from array_N[start : start + CHUNK_SIZE].tolist()
