"""The formats of documents, by file name suffix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt.documents.document import Document


@dataclass(frozen=True)
class DocumentOptions:
    """Options of parsing. A format ignores those that it does not have."""

    src: str
    """Language code of the source."""
    tgt: str
    """Language code of the target."""
    columns: tuple[str, ...] = ()
    """CSV and TSV: names of the columns to translate."""
    keys: tuple[str, ...] = ()
    """JSON: paths of the values to translate, such as `title` or `items.*.text`."""
    retranslate: bool = False
    """PO and XLIFF: whether to translate entries that have a translation, too."""
    encoding_errors: str = "strict"
    """Handling of invalid UTF-8: `strict` or `replace`."""
    encoding: str = "utf-8"
    """Plain text and subtitles: the encoding of a file without a byte order mark, and of its translation."""
    max_bytes: int = 4 * 2**30
    """DOCX and PPTX: maximum size of all parts without compression; an archive that expands to more is rejected."""


Parser = Callable[[bytes, DocumentOptions], "Document"]


def _parser(module: str, function: str = "parse") -> Parser:
    """Return a function of a module of this package, which is imported when it is called."""

    def parse(data: bytes, options: DocumentOptions) -> Document:
        document: Document = getattr(import_module(f"nmt.documents.{module}"), function)(data, options)
        return document

    return parse


FORMATS: dict[str, Parser] = {
    ".csv": _parser("tables"),
    ".docx": _parser("office"),
    ".htm": _parser("html"),
    ".html": _parser("html"),
    ".json": _parser("json_strings"),
    ".jsonl": _parser("json_strings"),
    ".markdown": _parser("markdown"),
    ".md": _parser("markdown"),
    ".mdx": _parser("markdown"),
    ".po": _parser("po"),
    ".pot": _parser("po"),
    ".pptx": _parser("office"),
    ".srt": _parser("subtitles"),
    ".tsv": _parser("tables", "parse_tsv"),
    ".txt": _parser("text"),
    ".vtt": _parser("subtitles"),
    ".xhtml": _parser("html"),
    ".xlf": _parser("xliff"),
    ".xliff": _parser("xliff"),
}
"""The parser of each suffix."""
SUFFIXES_OF_OPTIONS = {
    "--column": (".csv", ".tsv"), "--key": (".json", ".jsonl"), "--retranslate": (".po", ".pot", ".xlf", ".xliff"),
    "--encoding": (".srt", ".txt", ".vtt"),
}  # fmt: skip
"""The formats that have an option."""


def missing_option(path: Path, options: DocumentOptions) -> str:
    """Return the option that selects the text of a document if it has to be set, otherwise an empty string."""
    suffix = path.suffix.lower()
    if suffix in SUFFIXES_OF_OPTIONS["--key"] and not options.keys:
        return "--key"
    return "--column" if suffix in SUFFIXES_OF_OPTIONS["--column"] and not options.columns else ""


def ignored_option(suffixes: Iterable[str], options: DocumentOptions) -> str:
    """Return an option that is set, but that none of the formats has, otherwise an empty string."""
    is_set = {
        "--column": options.columns, "--key": options.keys, "--retranslate": options.retranslate,
        "--encoding": options.encoding != "utf-8",
    }  # fmt: skip
    present = {suffix.lower() for suffix in suffixes}
    return next((name for name, value in is_set.items() if value and present.isdisjoint(SUFFIXES_OF_OPTIONS[name])), "")
