"""The formats of documents, by file name suffix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.core.errors import DataError
from nmt.core.plugins import Components, Lazy

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
    """Plain text and subtitles: the encoding of a file without a byte order mark, and of its
    translation."""
    max_bytes: int = 4 * 2**30
    """DOCX and PPTX: maximum size of all parts without compression; an archive that expands to more
    is rejected."""
    max_elements: int = 2**31
    """Maximum number of lines, and of elements of markup, in all parts that are parsed; see
    `check_elements`."""


Parser = Callable[[bytes, DocumentOptions], "Document"]


def check_elements(parts: Iterable[bytes], max_elements: int) -> None:
    """Check the size of a document before it is parsed, because an empty element takes memory and
    time, too.

    The server calls this for files that are not archives, and the parser of an archive after
    unpacking it.

    Raises:
        DataError: the parts have more lines or elements of markup.
    """
    num_lines = num_elements = 0
    for part in parts:
        num_lines += max(part.count(b"\n"), part.count(b"\r")) + part.count(b"\f")
        num_elements += part.count(b"<") - part.count(b"</")
    if max(num_lines, num_elements) > max_elements:
        raise DataError(
            f"the file has more than {max_elements:,} lines or elements of markup", "split it"
        )


FORMATS: Components[Parser] = Components(
    "format",
    {
        ".csv": Lazy("nmt.documents.tables", "parse"),
        ".docx": Lazy("nmt.documents.office", "parse"),
        ".htm": Lazy("nmt.documents.html", "parse"),
        ".html": Lazy("nmt.documents.html", "parse"),
        ".json": Lazy("nmt.documents.json_strings", "parse"),
        ".jsonl": Lazy("nmt.documents.json_strings", "parse"),
        ".markdown": Lazy("nmt.documents.markdown", "parse"),
        ".md": Lazy("nmt.documents.markdown", "parse"),
        ".mdx": Lazy("nmt.documents.markdown", "parse"),
        ".po": Lazy("nmt.documents.po", "parse"),
        ".pot": Lazy("nmt.documents.po", "parse"),
        ".pptx": Lazy("nmt.documents.office", "parse"),
        ".srt": Lazy("nmt.documents.subtitles", "parse"),
        ".tsv": Lazy("nmt.documents.tables", "parse_tsv"),
        ".txt": Lazy("nmt.documents.text", "parse"),
        ".vtt": Lazy("nmt.documents.subtitles", "parse"),
        ".xhtml": Lazy("nmt.documents.html", "parse"),
        ".xlf": Lazy("nmt.documents.xliff", "parse"),
        ".xliff": Lazy("nmt.documents.xliff", "parse"),
    },
)
"""The parser of each suffix."""
_CONVERSIONS = {
    "convert it to .docx": ".doc .docm .dot .dotx .fodt .odt .pages .rtf .wpd .wps",
    "convert it to .docx or .txt": ".djvu .pdf .ps .xps",
    "convert it to .pptx": ".key .odp .ppt .pptm .pps .ppsx",
    "convert it to .csv": ".numbers .ods .xls .xlsm .xlsx",
    "unpack it like a .zip file; its chapters are .xhtml or .html files": ".epub",
    "convert it to .html": ".azw .azw3 .chm .fb2 .mht .mhtml .mobi .xml",
    "convert it to .md, for example with pandoc": (
        ".adoc .asciidoc .bib .ipynb .latex .org .qmd .rmd .rst .tex .texi .textile .wiki"
    ),
    "convert it to .srt or .vtt": ".ass .dfxp .lrc .sbv .scc .ssa .stl .sub .ttml",
    "convert it to .po or .xliff, for example with the Translate Toolkit": (
        ".ftl .ini .lang .mo .properties .resx .rc .strings .stringsdict .tmx .ts .xcstrings"
    ),
    "convert it to .json": ".json5 .toml .yaml .yml",
    "use --document json": ".arb .webmanifest",
    "use --document txt": ".log .text",
    "use --document html": (
        ".asp .ejs .erb .hbs .j2 .jinja .jinja2 .jsp .liquid .mustache .njk .php .shtml .twig .vue"
    ),
}
"""What to do with files in other formats."""
SUFFIXES_OF_OPTIONS = {
    "--column": (".csv", ".tsv"),
    "--key": (".json", ".jsonl"),
    "--retranslate": (".po", ".pot", ".xlf", ".xliff"),
    "--encoding": (".srt", ".txt", ".vtt"),
}
"""The formats that have an option."""


def parser_of(suffix: str) -> Parser:
    """Return the parser of a suffix; that of a plug-in checks what the plug-in returns."""
    parser = FORMATS[suffix]
    if not FORMATS.is_of_plugin(suffix):
        return parser
    from nmt.documents import plugin_document

    return partial(plugin_document.parse, suffix, parser)


def conversion_hint(suffix: str) -> str:
    """Return what to do with a file that is not in one of the formats; empty if it is not known."""
    return next(
        (hint for hint, suffixes in _CONVERSIONS.items() if suffix.lower() in suffixes.split()), ""
    )


def missing_option(path: Path, options: DocumentOptions) -> str:
    """Return the option that selects the text of a document if it has to be set, otherwise an empty
    string."""
    suffix = path.suffix.lower()
    if suffix in SUFFIXES_OF_OPTIONS["--key"] and not options.keys:
        return "--key"
    return "--column" if suffix in SUFFIXES_OF_OPTIONS["--column"] and not options.columns else ""


def ignored_option(suffixes: Iterable[str], options: DocumentOptions) -> str:
    """Return an option that is set, but that none of the formats has, otherwise an empty string."""
    is_set = {
        "--column": options.columns,
        "--key": options.keys,
        "--retranslate": options.retranslate,
        "--encoding": options.encoding != "utf-8",
    }
    present = {suffix.lower() for suffix in suffixes}
    return next(
        (
            name
            for name, value in is_set.items()
            if value and present.isdisjoint(SUFFIXES_OF_OPTIONS[name])
        ),
        "",
    )
