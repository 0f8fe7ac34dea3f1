"""Check parallel corpora for problems, and repair them.

Processes reduce each pair to a record of fixed size, shard by shard. Problems that concern several
pairs (duplicates, length ratios, misalignment) are detected in the files of these records, so that
memory use stays low. Shape suffix: N pairs.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.core.console import progress
from nmt.core.errors import DataError
from nmt.core.paths import locked, named_errors, write_bytes, write_text
from nmt.core.processes import Executor
from nmt.data.check.corpus import TolerantReader
from nmt.data.check.encoding import repair_pair
from nmt.data.check.feature_files import join_records
from nmt.data.check.features import extract_features
from nmt.data.check.findings import CheckedCorpus, FindingCollector
from nmt.data.check.overlap_index import OverlapIndex
from nmt.data.check.report import Report
from nmt.data.pairs import Pair
from nmt.data.shards import ALL_SHARDS, RAW, Part, Shard, Splitter, UnfinishedPartsError

if TYPE_CHECKING:
    from nmt.data.sources import Split

SHARD_SIZE = 25_000
"""Pairs of a shard. Their records are joined, so there may be many."""
MIN_PARALLEL_SIZE = 20_000
"""Pairs below which this process computes all features."""
CHUNK_SIZE = 5_000
"""Pairs whose features are computed together."""
FEATURES = "features"
TestSets = Sequence[tuple[str, Sequence[Pair]]]


@contextmanager
def work_directory(path: Path | None) -> Iterator[Path]:
    """Yield a directory for the files of a check: a temporary one, or `path`, which is kept if the
    process is killed or the disk is full, so that the same check continues."""
    if path is None:
        with named_errors(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory() as temporary:
            yield Path(temporary)
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


def _delete(directory: Path) -> None:
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
    if directory is None:
        with work_directory(None) as temporary:
            return run_checks(
                corpora,
                test_sets,
                languages,
                ignore=ignore,
                max_examples=max_examples,
                directory=temporary,
                executor=executor,
                part=part,
            )
    ignored = frozenset(ignore)
    checked, shards = _compute_features(
        corpora, test_sets, languages, ignored, directory, executor, part
    )
    with locked(directory / ".join.lock", busy=lambda: None):
        parts = [(shard.path(FEATURES), shard.num_pairs) for shard in shards]
        features = join_records(parts, directory)
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


@dataclass(frozen=True)
class _Task:
    """Compute the features of a shard."""

    shard: Shard
    languages: tuple[str, str]
    ignored: frozenset[str]
    tests: Path
    """File of the test sets."""

    @property
    def num_pairs(self) -> int:
        """Number of pairs."""
        return self.shard.num_pairs


def _extract(task: _Task, report: Callable[[int], object] = int) -> None:
    """Write the records of a shard, and delete its text."""
    shard = task.shard
    index = _overlap_index(task.tests)
    records = bytearray()
    pairs = shard.read_text(RAW)
    while chunk := list(islice(pairs, CHUNK_SIZE)):
        features = extract_features(chunk, task.languages, index, task.ignored)
        records += features.tobytes()
        report(len(chunk))
    write_bytes(shard.path(FEATURES), bytes(records))
    shard.write_record(FEATURES, {"pairs": shard.num_pairs})
    shard.delete_text(RAW)


@lru_cache(maxsize=1)
def _overlap_index(tests: Path) -> OverlapIndex:
    test_sets = json.loads(tests.read_text(encoding="utf-8"))
    return OverlapIndex([(name, [(src, tgt) for src, tgt in pairs]) for name, pairs in test_sets])


def _compute_features(
    corpora: Sequence[Split],
    test_sets: TestSets,
    languages: tuple[str, str],
    ignored: frozenset[str],
    directory: Path,
    executor: Executor | None,
    part: Part,
) -> tuple[list[CheckedCorpus], list[Shard]]:
    """Write the records of all shards, and return the place of each corpus, and the shards."""
    # On use, because translation imports this package, too.
    from nmt.data.sources.corpus import total_pairs

    tests = directory / "tests.json"
    write_text(tests, json.dumps([(name, list(pairs)) for name, pairs in test_sets]))
    splitter = Splitter(directory, "check", part, SHARD_SIZE)
    errors = directory / "errors.json"
    if not splitter.is_complete or not _are_done(splitter, part):
        readers = list(map(TolerantReader, corpora))
        with (
            progress(total_pairs(corpora), "checking", " pairs", unit_scale=True) as bar,
            executor or Executor(MIN_PARALLEL_SIZE) as running,
        ):
            shards = splitter.split(readers, _is_done, bar.update)
            tasks = (_Task(shard, languages, ignored, tests) for shard in shards)
            for _ in running.map(_extract, tasks, bar.update):
                pass
        write_text(errors, json.dumps([reader.line_count_error for reader in readers]))
    if not _are_done(splitter, ALL_SHARDS):
        raise UnfinishedPartsError
    checked = []
    end = 0
    line_count_errors = json.loads(errors.read_text(encoding="utf-8"))
    for corpus, shards_of_corpus, error in zip(
        corpora, splitter.corpora, line_count_errors, strict=True
    ):
        start = end
        end += sum(shard.num_pairs for shard in shards_of_corpus)
        checked.append(CheckedCorpus(corpus, start, end, error))
    if not end:
        raise DataError("there are no pairs to check", "check whether a file is empty")
    return checked, list(itertools.chain.from_iterable(splitter.corpora))


def _is_done(shard: Shard) -> bool:
    return shard.record(FEATURES) is not None


def _are_done(splitter: Splitter, part: Part) -> bool:
    """Return whether all shards of a part have their records."""
    shards = itertools.chain.from_iterable(splitter.corpora)
    return all(_is_done(shard) for shard in shards if part.has(shard.index))


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
