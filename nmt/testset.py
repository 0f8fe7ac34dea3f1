"""Test sets: of a corpus, of two files, or by the names that sacrebleu knows them by."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nmt.config import DataConfig
from nmt.data.pairs import read_pairs
from nmt.data.sources import open_split
from nmt.errors import DataError, UsageError, suggest


@dataclass(frozen=True)
class TestSet:
    """Source lines and one reference for each."""

    name: str
    sources: list[str]
    references: list[str]

    __test__ = False  # not a pytest class


def own_test_set(data: DataConfig) -> TestSet:
    """Return the test split of the corpus that a config trains on."""
    spec = data.test or data.train[0]
    split = open_split(spec, "test", data.src, data.tgt)
    return _from_pairs(split.name, list(split.pairs()))


def file_test_set(src: Path, ref: Path, errors: str = "strict") -> TestSet:
    """Return a test set of two aligned files."""
    return _from_pairs(str(src), list(read_pairs(src, ref, errors=errors)))


def named_test_set(name: str, src: str, tgt: str) -> TestSet:
    """Return one of sacrebleu's test sets, downloaded on first use.

    Raises:
        UsageError: sacrebleu knows no such set, or not in this direction.
        DataError: it could not be downloaded.
    """
    import sacrebleu

    known = sacrebleu.get_available_testsets()
    if name not in known:
        raise UsageError(f"unknown test set '{name}'", suggest(name, known))
    pair = f"{src}-{tgt}"
    if pair not in sacrebleu.get_langpairs_for_testset(name):
        raise UsageError(f"test set {name} has no {pair}")
    try:
        sources = Path(sacrebleu.get_source_file(name, pair)).read_text(encoding="utf-8")
        references = Path(sacrebleu.get_reference_files(name, pair)[0]).read_text(encoding="utf-8")
    except (Exception, SystemExit) as error:  # sacrebleu raises whatever its downloader raised, or exits
        reason = str(error).split("\n")[0] or type(error).__name__
        raise DataError(
            f"cannot download the test set {name}: {reason}",
            "without a network, give your own files with --src and --ref",
        ) from None
    pairs = zip(sources.rstrip("\n").split("\n"), references.rstrip("\n").split("\n"), strict=True)
    return _from_pairs(name, list(pairs))


def _from_pairs(name: str, pairs: list[tuple[str, str]]) -> TestSet:
    if not pairs:
        raise DataError(f"the test set {name} is empty")
    return TestSet(name, [src for src, _ in pairs], [tgt for _, tgt in pairs])
