"""Reading translation memories: TMX (Translation Memory eXchange) 1.4 and earlier, plain or
compressed.

A unit (`tu`) has variants (`tuv`) in several languages, each with one segment (`seg`). The file is
parsed as a stream, so memory use does not depend on its size. DTDs are not read, and files that
declare entities are rejected: otherwise a small file could expand to gigabytes, or include other
files.

A termbase in TBX (TermBase eXchange, ISO 30042) has the same structure with other names, and is
read, too.

Specification: TMX 1.4b, LISA 2005, https://www.gala-global.org/tmx-14b
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from itertools import chain
from xml.parsers import expat

from nmt.core.console import log_once
from nmt.core.errors import DataError
from nmt.data.pairs import InputFile, Pair, read_blocks
from nmt.text.language_codes import normalize_code

MARKUP = {"bpt", "ept", "ph", "it", "ut", "sub"}
"""Inline elements whose content is not text of the sentence. The text of `hi` and of unknown
elements is."""
TBX = {
    "martif": "tmx",
    "termEntry": "tu",
    "langSet": "tuv",  # version 2
    "tbx": "tmx",
    "conceptEntry": "tu",
    "langSec": "tuv",  # version 3
    "term": "seg",
    "tig": "term",
    "ntig": "term",
    "termSec": "term",
}
"""The corresponding element of TMX, in files with a root element of TBX."""
_NOT_ALLOWED = ("deprecatedTerm", "supersededTerm")
"""Beginnings of the administrative status of terms that are not to be used."""
MAX_LISTED = 20
"""Maximum number of languages in an error message."""

_FIRST_BYTES = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0": "utf-16-le",
    b"\0<": "utf-16-be",
}
_DECLARATION = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([\w.:-]*)")
_PLACEHOLDER = "\0"  # not a character of XML
_INNER_PLACEHOLDER = re.compile(rf"(?<=\w){_PLACEHOLDER}+(?=\w)")
_SPACES = re.compile("[ \t\r\n]{2,}|[\t\r\n]")  # all but single spaces


def read_tmx(path: InputFile, src: str, tgt: str, errors: str = "strict") -> Iterator[Pair]:
    """Yield the segments of all units that have both languages.

    `de` matches the variants `de`, `de-DE`, `de_AT` and `DE`. Of several variants with text, the
    first one without a region is used, otherwise the first one. Inline markup is removed; a
    placeholder (`ph`) between two letters or digits becomes a space. Spaces, tabs and line breaks
    become single spaces. Units without one of the languages or with an empty segment are skipped; a
    log line has their number.

    Args:
        path: a TMX file.
        src: source language code.
        tgt: target language code.
        errors: for bytes that are invalid in the file's encoding: "strict" raises an error,
            "replace" decodes them as U+FFFD.

    Raises:
        DataError: the file is missing, corrupted, not TMX or not well-formed, it declares entities,
            or no unit has both languages; the message has the line, from 1.
    """
    parser, has_pairs = _Parser(path, src, tgt), False
    for text in chain(_decode(path, errors), [None]):
        for pair in parser.parse(text):
            has_pairs = True
            yield pair
    if not has_pairs and parser.num_empty:
        raise DataError(
            f"{path} has no unit with text in {src} and {tgt}",
            "check whether it was exported completely",
        )
    if not has_pairs:
        languages = ", ".join(sorted(parser.languages)) or "none"
        raise DataError(
            f"{path} has no unit in {src} and {tgt}", f"languages in the file: {languages}"
        )
    if parser.num_incomplete or parser.num_empty:
        counts = (
            f"{parser.num_incomplete:,} without {src} or {tgt}, {parser.num_empty:,} with an empty"
            " segment"
        )
        log_once(f"{path}: skipped units: {counts}")  # a corpus is read several times


class _Parser:
    """Incremental parser of one file."""

    def __init__(self, path: InputFile, src: str, tgt: str) -> None:
        self.num_incomplete = 0
        """Number of units without one of the languages."""
        self.num_empty = 0
        """Number of units with an empty segment."""
        self.languages: set[str] = set()
        """Language codes in the file, at most `MAX_LISTED`."""
        self._path = path
        self._codes = (normalize_code(src), normalize_code(tgt))
        if self._codes[0] == self._codes[1]:
            raise DataError(f"source and target are both '{src}'")
        self._pairs: list[Pair] = []
        self._segments: dict[str, tuple[tuple[bool, bool], str]] = {}
        """Segments of the current unit by code, each with its rank: whether it has text and the
        exact code."""
        self._sources: list[str] = []
        """Synonyms of the source in the current unit of TBX."""
        self._language = ""
        self._text: str | None = None  # of the last segment, unless it was added or left out
        self._note: list[str] | None = None  # text of the current note on a term
        self._pieces: list[str] | None = None  # text of the current segment
        self._markup_depth = 0
        self._tmx_names: dict[str, str] = {}
        self._expat = self._create_parser()

    def _create_parser(self) -> expat.XMLParserType:
        parser = expat.ParserCreate("utf-8")  # the text is decoded before it is parsed
        parser.buffer_text = True
        parser.StartElementHandler = self._start_root
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._add_text
        parser.EntityDeclHandler = self._reject_declaration
        parser.SkippedEntityHandler = self._reject_unknown_entity
        return parser

    def parse(self, text: str | None) -> list[Pair]:
        """Parse the next part of the file, None at its end, and return the pairs that are
        complete."""
        try:
            self._expat.Parse((text or "").encode("utf-8", "replace"), text is None)
        except expat.ExpatError as error:
            raise DataError(
                f"{self._path}, line {error.lineno}: not well-formed XML"
                f" ({expat.ErrorString(error.code)})",
                "export the translation memory again, or correct the line",
            ) from None
        pairs, self._pairs = self._pairs, []
        return pairs

    def _start_root(self, name: str, attributes: dict[str, str]) -> None:
        if TBX.get(name, name) != "tmx":
            raise DataError(
                f"{self._path} is not a translation memory: it has <{name}> in place of <tmx>"
            )
        self._tmx_names = TBX if name in TBX else {}
        self._expat.StartElementHandler = self._start

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        name = self._tmx_names.get(name, name)
        if self._markup_depth:
            self._markup_depth += 1
        elif self._pieces is not None:
            self._markup_depth = int(name in MARKUP)
        elif name == "seg":
            self._pieces = []
        elif name == "termNote" and self._tmx_names:
            self._note = []
        elif name == "tuv":
            # `lang`: before TMX 1.4.
            self._language = attributes.get("xml:lang") or attributes.get("lang", "")
            if len(self.languages) < MAX_LISTED:
                self.languages.add(self._language)
        elif name == "tu":
            self._segments = {}
            self._sources = []

    def _end(self, name: str) -> None:
        name = self._tmx_names.get(name, name)
        if self._markup_depth:
            self._markup_depth -= 1
            if name == "ph" and not self._markup_depth and self._pieces is not None:
                self._pieces.append(_PLACEHOLDER)
        elif name == "seg" and self._pieces is not None:
            if self._text is not None:  # of a group with several
                self._add_segment(self._text)
            self._text = "".join(self._pieces)
            self._pieces = None
        elif self._note is not None:
            if "".join(self._note).strip().startswith(_NOT_ALLOWED):
                self._text = None
            self._note = None
        elif name in ("term", "tuv") and self._text is not None:
            self._add_segment(self._text)
            self._text = None
        elif name == "tu":
            self._end_unit()

    def _add_text(self, text: str) -> None:
        if self._note is not None:
            self._note.append(text)
        elif self._pieces is not None and not self._markup_depth:
            self._pieces.append(text)

    def _add_segment(self, text: str) -> None:
        language = normalize_code(self._language)
        matches = [
            code for code in self._codes if language == code or language.startswith(f"{code}-")
        ]
        if not matches:
            return
        code = max(matches, key=len)  # for the pair pt, pt-BR
        text = _clean_text(text)
        rank = bool(text), language == code
        if self._tmx_names and text and code == self._codes[0]:
            best_rank, _ = self._segments.get(code, (rank, ""))
            if rank > best_rank:
                self._sources.clear()
            if rank >= best_rank:
                self._sources.append(text)
        if code not in self._segments or rank > self._segments[code][0]:
            self._segments[code] = rank, text

    def _end_unit(self) -> None:
        src, tgt = (
            self._segments[code][1] if code in self._segments else None for code in self._codes
        )
        if src is None or tgt is None:
            self.num_incomplete += 1
        elif not src or not tgt:
            self.num_empty += 1
        else:
            self._pairs += [(each, tgt) for each in self._sources or [src]]

    def _reject_declaration(self, name: str, *_: object) -> None:
        raise self._entity_error(f"the entity '{name}' is declared")

    def _reject_unknown_entity(self, name: str, is_parameter_entity: bool) -> None:
        if not is_parameter_entity:  # these occur only in DTDs
            raise self._entity_error(f"unknown entity &{name};")

    def _entity_error(self, problem: str) -> DataError:
        line = self._expat.CurrentLineNumber
        return DataError(f"{self._path}, line {line}: {problem}", "replace entities by their text")


def _clean_text(text: str) -> str:
    """Remove placeholders and collapse whitespace."""
    if _PLACEHOLDER in text:
        text = _INNER_PLACEHOLDER.sub(" ", text).replace(_PLACEHOLDER, "")
    return _SPACES.sub(" ", text).strip(" ")


def _decode(path: InputFile, errors: str) -> Iterator[str]:
    """Yield the text of a file, decoded according to its first bytes or its XML declaration."""
    blocks = read_blocks(path)
    first = next(blocks, b"")
    encoding = _detect_encoding(first)
    unknown_encoding = DataError(
        f"{path}: unknown encoding '{encoding}'", "correct the XML declaration"
    )
    try:
        bytes(4).decode(encoding, "replace")  # rejects codecs that do not decode text, such as zlib
        decoder = codecs.getincrementaldecoder(encoding)(errors)
    except (LookupError, UnicodeError):
        raise unknown_encoding from None
    line = 1
    for block in chain([first], blocks, [b""]):
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeError as error:
            if not isinstance(error, UnicodeDecodeError):  # of codecs such as punycode
                raise unknown_encoding from None
            line += error.object[: error.start].count(b"\n")
            raise DataError(
                f"{path}, line {line}: not {encoding.upper()} (0x{error.object[error.start]:02x})",
                "correct the XML declaration, or use --encoding-errors replace, or errors='replace'"
                " in files(...)",
            ) from None
        line += text.count("\n")
        yield text


def _detect_encoding(first: bytes) -> str:
    for start, encoding in _FIRST_BYTES.items():
        if first.startswith(start):
            return encoding
    declaration = _DECLARATION.match(first)
    encoding = declaration[1].decode() if declaration else "utf-8"
    # In UTF-16, the declaration would not match. Programs that convert a string to XML write this.
    return "utf-8" if encoding.lower().startswith("utf-16") else encoding
