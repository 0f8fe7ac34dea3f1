"""Test sets from a corpus, from files, or from sacreBLEU."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from nmt.core.config import DataConfig
from nmt.core.errors import ConfigError, DataError, UsageError, first_line, suggest
from nmt.core.registry import format_spec, parse
from nmt.data.pairs import Pair, read_lines, read_pairs
from nmt.data.sources import SOURCES, open_split, validate
from nmt.data.sources.corpus import Split
from nmt.data.sources.files import has_both_languages

MAX_FILENAME_BYTES = 120
"""Most file systems limit file names, with all that is added, to 255 bytes."""
FILE_CORPORA = ("files", "datasets")
"""Corpora of the user's files, which have the option `errors`."""
NamedPairs = tuple[str, list[Pair]]
References = Sequence[Sequence[str | None]]
"""One or more reference streams of equal length. The first is complete; the others have None where
a sentence has fewer references."""


@dataclass(frozen=True)
class TestSet:
    """Source sentences with one or more reference translations each."""

    name: str
    sources: list[str]
    references: References
    """One list per reference stream, each as long as `sources`."""
    files: tuple[Path, ...] = field(default=(), compare=False)
    """The files that it was read from, unless they are part of nmt or of sacreBLEU."""

    __test__ = False  # not a pytest class

    @property
    def first_references(self) -> list[str]:
        """The first reference of each source."""
        return [text for text in self.references[0] if text is not None]


def safe_filename(name: str) -> str:
    """Return a file name for a test set, without an extension."""
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    end = stem.encode()[-MAX_FILENAME_BYTES:].decode(errors="ignore")  # of a long path
    return end.strip("-.") or "test"


def default_test_set(data: DataConfig) -> TestSet:
    """Load `data.test`, or the test split of the first training corpus."""
    return corpus_test_set(data.test or data.train[0], data.src, data.tgt)


def corpus_test_set(spec: str, src: str, tgt: str, split: str = "test") -> TestSet:
    """Load the test split, or another one, of a corpus; see `open_split` for the arguments and
    errors."""
    test = _from_split(open_split(spec, split, src, tgt))
    if not test.sources:
        raise _empty_error(test.name)
    return test


def _from_split(split: Split) -> TestSet:
    """Return a split, which may be empty, as a test set."""
    pairs = list(split.pairs())
    sources = [source for source, _ in pairs]
    references: References = [[target for _, target in pairs]]
    if split.references and pairs:
        references = reference_streams(list(split.references()))
    return TestSet(split.name, sources, references, split.files)


def _empty_error(name: object) -> DataError:
    return DataError(f"the test set {name} is empty")


def reference_streams(references: Sequence[Sequence[str]]) -> list[list[str | None]]:
    """Return the first reference of each source, the second ones and so on. Where there are fewer,
    a stream has None: sacreBLEU counts an empty string as a reference of no words."""
    return [list(stream) for stream in itertools.zip_longest(*references)]


def file_test_set(src: Path, refs: Sequence[Path], errors: str = "strict") -> TestSet:
    """Load a test set from a source file and one or more reference files, aligned by line."""
    references = []
    for ref in refs:
        pairs = list(read_pairs(src, ref, errors=errors))
        if not pairs:
            raise _empty_error(src)
        references.append([target for _, target in pairs])
    sources = [source for source, _ in pairs]
    return TestSet(str(src), sources, references, (src, *refs))


def sample(test: TestSet, max_lines: int) -> TestSet:
    """Return at most `max_lines` evenly spaced lines of a test set."""
    num_lines = len(test.sources)
    if num_lines <= max_lines:
        return test
    indices = [i * num_lines // max_lines for i in range(max_lines)]
    sources = [test.sources[i] for i in indices]
    references = []
    for stream in test.references:
        references.append([stream[i] for i in indices])
    return replace(test, sources=sources, references=references)


def check_name(name: str, src: str, tgt: str) -> None:
    """Check the name of a test set without accessing the network.

    Raises:
        UsageError: the name is unknown, or the test set of sacreBLEU does not have this language
            pair.
        ConfigError: the corpus does not have an option of the spec.
    """
    import sacrebleu

    names = sacrebleu.get_available_testsets()
    spec = _corpus_spec(name)
    if name not in names and spec:
        validate(spec)
    elif name not in names:
        hint = _files_hint(name) or suggest(name, {*names, *SOURCES})
        raise UsageError(f"unknown test set '{name}'", hint)
    elif f"{src}-{tgt}" not in sacrebleu.get_langpairs_for_testset(name):
        raise UsageError(f"test set {name} does not have the language pair {src}-{tgt}")


def _files_hint(name: str) -> str:
    """Return the hint for a name that is one of files; otherwise an empty string."""
    first, colon, second = name.partition(":")
    if colon:
        return f"for two files, write files(test=('{first}', '{second}'))"
    if Path(name).is_file():
        return f"for two files, write files(test=('{name}', 'OTHER')), the source first"
    return ""


def named_test_set(name: str, src: str, tgt: str, errors: str = "strict") -> TestSet:
    """Load a sacreBLEU test set, the test split of a corpus, or a file with both languages.
    sacreBLEU downloads a test set on first use.

    Args:
        name: name, spec or file.
        src: language code of the source.
        tgt: language code of the target.
        errors: see `read_lines`; for files.

    Raises:
        UsageError: the name is unknown, or the test set does not have this language pair.
        ConfigError: the corpus does not have an option of the spec.
        DataError: the download fails, or the corpus does not have a test split for this language
            pair.
    """
    import sacrebleu

    check_name(name, src, tgt)
    if name not in sacrebleu.get_available_testsets():
        return corpus_test_set(_with_errors(_corpus_spec(name), errors), src, tgt)
    pair = f"{src}-{tgt}"
    try:
        sources = list(read_lines(Path(sacrebleu.get_source_file(name, pair))))
        paths = map(Path, sacrebleu.get_reference_files(name, pair))
        references = [list(read_lines(path)) for path in paths]
    # sacreBLEU does not wrap download errors, and may exit.
    except (Exception, SystemExit) as error:
        raise DataError(
            f"cannot download the test set {name}: {first_line(error)}",
            "without a network connection, use local files with --src and --ref",
        ) from None
    if any(len(reference) != len(sources) for reference in references):
        raise DataError(
            f"the files of test set {name} have different numbers of lines",
            "delete them in ~/.sacrebleu",
        )
    return TestSet(name, sources, references)


def _corpus_spec(name: str) -> str:
    """Return the spec of a corpus, or of a file with both languages; empty for other names."""
    if has_both_languages(Path(name)):
        return format_spec("files", {"test": name})
    try:
        return name if parse(name)[0] in SOURCES else ""
    except ConfigError:  # names of sacreBLEU may have slashes
        return ""


def _with_errors(spec: str, errors: str) -> str:
    """Return the spec of a corpus whose files are read with `errors`, unless it is "strict"."""
    name, options = parse(spec)
    if errors == "strict" or name not in FILE_CORPORA:
        return spec
    return format_spec(name, options | {"errors": errors})


def names_files(name: str) -> bool:
    """Return whether a test set is in files of the user."""
    spec = _corpus_spec(name)
    if not spec:
        return bool(files_of_name(name))
    corpus, _ = parse(spec)
    return corpus in FILE_CORPORA


def files_of_name(name: str) -> tuple[Path, ...]:
    """Return the two files of SRC:TGT, or an empty tuple for other test set names."""
    src, colon, tgt = name.partition(":")
    if not colon or "(" in name:
        return ()
    return Path(src), Path(tgt)


def load_test_pairs(
    name: str, languages: tuple[str, str], encoding_errors: str
) -> list[NamedPairs]:
    """Return name and pairs, for each reference, of a test set that training data must not overlap
    with; see `load_test_set`."""
    return pairs_by_reference(load_test_set(name, languages, encoding_errors))


def load_test_set(name: str, languages: tuple[str, str], encoding_errors: str) -> TestSet:
    """Load the test set of a name, or of SRC:TGT."""
    files = files_of_name(name)
    if files:
        src, *refs = files
        return file_test_set(src, refs, encoding_errors)
    if not all(languages):
        raise UsageError(
            f"the languages to read from {name} are unknown", "set --src-lang and --tgt-lang"
        )
    return named_test_set(name, *languages, encoding_errors)


def split_test_pairs(split: Split) -> list[NamedPairs]:
    """Return name and pairs, for each reference, of a validation or test split."""
    return pairs_by_reference(_from_split(split))


def pairs_by_reference(test: TestSet) -> list[NamedPairs]:
    """Return name and pairs for each reference stream. All have one pair a line, because reports
    name the line; a sentence with fewer references has its first one again."""
    test_sets = []
    for stream in test.references:
        rows = zip(test.sources, stream, test.references[0], strict=True)
        pairs = [(source, text or first or "") for source, text, first in rows]
        test_sets.append((test.name, pairs))
    return test_sets
