"""The formats of documents, by file name suffix."""

from __future__ import annotations

from collections.abc import Callable
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


def missing_option(path: Path, options: DocumentOptions) -> str:
    """Return the option that selects the text of a document if it has to be set, otherwise an empty string."""
    suffix = path.suffix.lower()
    if suffix in (".json", ".jsonl") and not options.keys:
        return "--key"
    return "--column" if suffix in (".csv", ".tsv") and not options.columns else ""
