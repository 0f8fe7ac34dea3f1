"""Test sets: of a corpus, of two files, or by the names that sacrebleu knows them by."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmt.config import DataConfig
from nmt.data.pairs import read_pairs
from nmt.data.sources import SOURCES, open_split
from nmt.errors import ConfigError, DataError, UsageError, suggest
from nmt.registry import parse

MAX_CHARACTERS = 120
"""Of a file's name: file systems take 255 bytes."""


@dataclass(frozen=True)
class TestSet:
    """Source lines, and one reference translation or more of each."""

    name: str
    sources: list[str]
    references: list[list[str]]
    """As many lists as there are references, each as long as `sources`."""

    __test__ = False  # not a pytest class


def safe_filename(name: str) -> str:
    """Return what files that belong to the test set `name` are called."""
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    return stem[-MAX_CHARACTERS:].strip("-.") or "test"  # of a path, the end tells more


def default_test_set(data: DataConfig) -> TestSet:
    """Return the test split of the corpus that a config trains on."""
    spec = data.test or data.train[0]
    split = open_split(spec, "test", data.src, data.tgt)
    return _from_pairs(split.name, list(split.pairs()))


def file_test_set(src: Path, refs: Sequence[Path], errors: str = "strict") -> TestSet:
    """Return a test set of aligned files: the source and one reference or more."""
    sets = [_from_pairs(str(src), list(read_pairs(src, ref, errors=errors))) for ref in refs]
    return TestSet(str(src), sets[0].sources, [test.references[0] for test in sets])


def named_test_set(name: str, src: str, tgt: str) -> TestSet:
    """Return one of sacrebleu's test sets, or a corpus's test split; downloaded on first use.

    Raises:
        UsageError: sacrebleu knows no such set, or not in this direction, and there is no such corpus.
        ConfigError: the corpus has no such option.
        DataError: it could not be downloaded, or the corpus has no test split in this direction.
    """
    import sacrebleu

    known = sacrebleu.get_available_testsets()
    if name not in known and _is_corpus(name):
        split = open_split(name, "test", src, tgt)
        return _from_pairs(split.name, list(split.pairs()))
    if name not in known:
        raise UsageError(f"unknown test set '{name}'", suggest(name, [*known, *SOURCES]))
    pair = f"{src}-{tgt}"
    if pair not in sacrebleu.get_langpairs_for_testset(name):
        raise UsageError(f"test set {name} has no {pair}")
    try:
        sources = Path(sacrebleu.get_source_file(name, pair)).read_text(encoding="utf-8")
        references = [Path(path).read_text(encoding="utf-8") for path in sacrebleu.get_reference_files(name, pair)]
    except (Exception, SystemExit) as error:  # sacrebleu raises whatever its downloader raised, or exits
        reason = str(error).split("\n")[0] or type(error).__name__
        raise DataError(
            f"cannot download the test set {name}: {reason}",
            "without a network, give your own files with --src and --ref",
        ) from None
    return TestSet(name, _lines(sources), [_lines(reference) for reference in references])


def _is_corpus(name: str) -> bool:
    try:
        return parse(name)[0] in SOURCES
    except ConfigError:  # sacrebleu's names hold slashes
        return False


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n")


def _from_pairs(name: str, pairs: list[tuple[str, str]]) -> TestSet:
    if not pairs:
        raise DataError(f"the test set {name} is empty")
    return TestSet(name, [src for src, _ in pairs], [[tgt for _, tgt in pairs]])
