"""Markdown documents (CommonMark with tables, strikethrough and footnotes).

Translations are inserted into the source, so everything else is unchanged to the byte.
markdown-it-py finds the blocks and their inline markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from markdown_it.token import Token

from nmt.core.console import log
from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions
from nmt.documents.html import (
    BREAKS,
    ENDS_PARAGRAPH,
    UNTRANSLATED_ELEMENTS,
    WITHOUT_TEXT,
    HtmlReader,
)
from nmt.documents.inline import (
    InlineText,
    Kind,
    Piece,
    end_indices,
    paired_code,
    text_piece,
)
from nmt.documents.markdown_extensions import EXTENSION, UNTRANSLATED, hide_blocks, metadata_end
from nmt.documents.markdown_parser import REFERENCES, create_parser
from nmt.documents.markdown_text import (
    CELLS,
    Block,
    MarkdownText,
    decode,
    escape_label,
    escape_title,
)
from nmt.documents.ranges import Span, by_start
from nmt.documents.source import Value, in_order
from nmt.documents.splicing import SplicedDocument
from nmt.documents.text_file import TextFile

_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
_QUOTE_MARKERS = re.compile(r"(?<=[\r\n])[ \t]*>[ \t>]*")
_TITLE = re.compile(r"\s(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)')\s*\)\Z", re.DOTALL)
_CELL = re.compile(r"(?:\\\||[^|])+")
_TAG = re.compile(r"<(/?)([a-zA-Z][\w-]*)[^>]*?(/?)>")
_UNTRANSLATED_TAG = re.compile(
    rf"<(?:{'|'.join(sorted(UNTRANSLATED_ELEMENTS))})\b"
    r"|<[^>]*\s(?:translate\s*=\s*[\"']?no\b|class\s*=[^>]*\bnotranslate\b)",
    re.IGNORECASE,
)
"""Start tag of an HTML element within a sentence that is not translated."""
_LABEL_LINE = re.compile(
    r"^(?:[^\w\s*_]+[ \t]+)?(?P<marks>\*{2,3}|_{2,3})(?=[^\s*_])(?:(?!(?P=marks))[^\n])+(?P=marks)"
    r":?[ \t]*(?=\n)",
    re.MULTILINE,
)
"""A line of bold text, perhaps after a symbol and before a colon."""
_SENTENCE_END = re.compile(r"[.!?…:]['\"”’»)*_]*\Z")
MAX_CONTEXT = 40
"""Number of characters before and after a label that tell whether it is one; the start of a line
has few marks."""
_OPENING_MARKS = "\n \"'“„‘(*_["
_EMPTY_ELEMENTS = {"br": Kind.LINE_BREAK, **dict.fromkeys(BREAKS, Kind.BREAK)}
_KINDS = {"hardbreak": Kind.LINE_BREAK, "image": Kind.BREAK, "embed": Kind.BREAK}
_WITHOUT_ATTRIBUTES = (Kind.TEXT, Kind.SPACE, Kind.OPEN)
"""Pieces before attributes that do not belong to them."""
_BLOCK_ELEMENTS = {f"<{name}>" for name in ENDS_PARAGRAPH}
"""Names of HTML elements that are no part of a sentence, such as lists in table cells."""


def parse(data: bytes, options: DocumentOptions) -> SplicedDocument:
    """Parse a Markdown document in UTF-8.

    Raises:
        DataError: the file is not UTF-8.
    """
    file = TextFile.decode(data, options.encoding_errors)
    reader = _Reader(file.text, metadata_end(file.text))
    html = HtmlReader(_without_quote_markers(file.text, reader.html_ranges), options)
    for start, end in reader.html_ranges:
        html.read(start, end)
    return SplicedDocument(file, in_order(reader.parts + html.parts), html.edits)


def _without_quote_markers(source: str, ranges: Iterable[Span]) -> str:
    """Return the source with blanks for the `>` before the lines of HTML in block quotes."""
    pieces = []
    position = 0
    for start, end in ranges:
        markdown = source[position:start]
        html = _QUOTE_MARKERS.sub(lambda match: " " * len(match[0]), source[start:end])
        pieces += [markdown, html]
        position = end
    return "".join([*pieces, source[position:]])


class _Reader:
    """Finds the texts of a document, and the values in their markup: alternative texts and
    titles."""

    def __init__(self, source: str, start: int) -> None:
        self.parts: list[InlineText | Value] = []
        self.html_ranges: list[Span] = []
        self._lines = [match.span(1) for match in _LINE.finditer(source, start)]
        self._parser = create_parser()
        self._env: dict[str, Any] = {}
        self._parsed = hide_blocks(source)
        self._cell_end = 0  # of the last cell
        body = self._parsed[start:].replace("\0", "\ufffd")
        tokens = self._parser.parse(body, self._env)
        num_unlocated = self._read_blocks(source, tokens)
        if num_unlocated:
            log(
                "Markdown blocks that cannot be located in the source and stay as they are:"
                f" {num_unlocated:,}"
            )

    def _read_blocks(self, source: str, tokens: Sequence[Token]) -> int:
        """Read all blocks, and return how many cannot be located in the source."""
        num_unlocated = 0
        for opening, token in pairwise([Token("", "", 0), *tokens]):
            if token.type == "html_block" and token.map:
                first, last = token.map
                start, _ = self._lines[first]
                _, end = self._lines[last - 1]
                start = self._parsed.index("<", start)
                self.html_ranges.append((start, end))
            if token.type != "inline" or not token.map or not token.content:
                continue
            # The text of an underlined heading starts its line, like that of a paragraph.
            kind = "paragraph_open" if opening.markup in ("=", "-") else opening.type
            line, _ = token.map
            ranges = self._ranges(token.content, line, kind)
            block = Block(source, ranges, kind)
            if not block.ranges:
                num_unlocated += 1
            elif not UNTRANSLATED.match(source, block.ranges[0][0]):
                self._read(block)
        return num_unlocated

    def _ranges(self, content: str, line: int, kind: str) -> list[Span]:
        """Return the ranges of the lines of a block; none if it cannot be located, so that it stays
        as it is."""
        if kind not in CELLS:
            return self._line_ranges(content, line)
        start, _ = self._lines[line]
        ranges = self._cell(content, line, max(start, self._cell_end))
        if ranges:
            self._cell_end = ranges[0][1] + 1
        return ranges

    def _line_ranges(self, content: str, line: int) -> list[Span]:
        """Return the ranges of the lines of a paragraph or heading, without indents and markers."""
        ranges = []
        for index, indented in enumerate(content.split("\n"), line):
            if index == len(self._lines):
                break
            start, end = self._lines[index]
            text = indented.lstrip(" \t")
            found = self._parsed.rfind(text, start, end)
            if found < 0:
                return []
            ranges.append((found, found + len(text)))
        return ranges

    def _cell(self, content: str, line: int, position: int) -> list[Span]:
        """Return the range of a table cell that starts at `position` or later."""
        for match in _CELL.finditer(self._parsed, position, self._lines[line][1]):
            cell = match[0].strip()
            if cell.replace("\\|", "|").endswith(content):
                length = len(content) + content.count("|")  # with the escapes
                end = match.start() + len(match[0].rstrip())
                return [(end - length, end)]
        return []

    def _read(self, block: Block) -> None:
        pieces: list[Piece] = []
        position = 0
        content = block.content
        for markup in self._markup(block):
            if markup.start < position:  # overlapping markup of a broken document
                continue
            pieces += _text_pieces(content, position, markup.start)
            pieces.append(markup)
            position = markup.end
        pieces += _text_pieces(content, position, len(content))
        mapped: list[Piece] = []
        for piece in pieces:
            start = block.offset(piece.start)
            end = block.offset(piece.end)
            is_point = piece.kind is Kind.POINT
            is_attribute = is_point and content.startswith("{", piece.start)
            if is_attribute and mapped and mapped[-1].kind not in _WITHOUT_ATTRIBUTES:
                mapped[-1] = replace(mapped[-1], end=end)
            else:
                mapped.append(replace(piece, start=start, end=end))
        self.parts.append(MarkdownText(mapped, block))

    def _markup(self, block: Block) -> Iterator[Piece]:
        """Yield the inline markup of a block by position in its content, and add the values in
        it."""
        content = "\n".join(self._parsed[start:end] for start, end in block.ranges)
        tokens = self._parser.inline.parse(content, self._parser, self._env, [])
        pieces = []
        for i, token in enumerate(tokens):
            if "range" not in token.meta:
                continue
            start, end = token.meta["range"]
            self._add_values(block, token)
            if token.type == "strong_open":
                start, _ = tokens[i - 1].meta["range"]
            elif token.type == "strong_close":
                _, end = tokens[i + 1].meta["range"]
            source = block.content[start:end]
            piece = _piece(token, start, end, source)
            if piece:
                pieces.append(piece)
        pieces += _breaks_around_labels(block.content)
        pieces.sort(key=by_start)
        for piece in _with_fixed_elements(pieces, block.content):
            if piece.name in _BLOCK_ELEMENTS:
                piece = replace(piece, kind=Kind.LINE_BREAK)
            yield piece

    def _add_values(self, block: Block, token: Token) -> None:
        """Add the alternative text of an image, and the title of an image or link."""
        start, end = token.meta["range"]
        label_end = token.meta.get("label_end", 0)
        if token.type == "image" and block.content[label_end:end] not in REFERENCES:
            text = _text_of_marked_label(token)
            self._add_value(block, start + 2, label_end, escape_label, text)
        if token.type in ("image", "link_close"):
            title = _TITLE.search(block.content, start, end)
            if title and title.lastindex:
                first, last = title.span(title.lastindex)
                self._add_value(block, first, last, escape_title)

    def _add_value(
        self,
        block: Block,
        start: int,
        end: int,
        encode: Callable[[str], str],
        text: str | None = None,
    ) -> None:
        if text is None:
            text = decode(block.content[start:end].strip())
        if not text:
            return

        def written(text: str) -> str:
            return block.escape_bars(encode(text))

        first = block.offset(start)
        last = block.offset(end)
        self.parts.append(Value(first, last, RichText(text), written))


def _piece(token: Token, start: int, end: int, source: str) -> Piece | None:
    """Return the piece of a token; None if it is text."""
    if token.type in ("code_inline", "autolink", "reference", "name"):
        content = _without_marks(token.type, source)
        text = " ".join(content.split())
        kind = Kind.FIXED if text else Kind.POINT
        return Piece(start, end, kind, text)
    if token.type == "html_inline":
        return _html_piece(source, start, end)
    if token.nesting:
        kind = Kind.OPEN if token.nesting > 0 else Kind.CLOSE
        name, *_ = token.type.rpartition("_")
        return Piece(start, end, kind, name=name)
    if token.type in _KINDS:
        return Piece(start, end, _KINDS[token.type])
    return None


def _breaks_around_labels(content: str) -> Iterator[Piece]:
    """Yield the line ends around each line that is a label, such as a bold "Note" before a
    sentence: a line of bold text only, which does not continue a sentence, before a capital."""
    last_end = -1  # of a label
    for label in _LABEL_LINE.finditer(content):
        start, end = label.span()
        before = content[max(start - MAX_CONTEXT, 0) : start].rstrip()
        is_first = not before or start == last_end + 1 or _SENTENCE_END.search(before)
        following = content[end : end + MAX_CONTEXT].lstrip(_OPENING_MARKS)
        if not is_first or not following[:1].isupper():
            continue
        last_end = end
        for line_end in (start - 1, end):
            if line_end >= 0:
                yield Piece(line_end, line_end + 1, Kind.LINE_BREAK)


def _without_marks(name: str, source: str) -> str:
    """Return the text of an element that is not translated."""
    if name == "code_inline":
        return source.strip("`")
    if name == "name":
        return source if source.startswith("[!") else source[2:-2]
    return source[1:].removesuffix("[]")[:-1]


def _text_of_marked_label(image: Token) -> str | None:
    """Return the text of a label with markup, as browsers show it; None if it has no markup, or has
    references."""
    children = image.children or []
    types = {child.type for child in children}
    if types <= {"text", "softbreak"} or types & {"reference", "autolink"}:
        return None
    pieces = []
    for child in children:
        is_break = child.type in ("softbreak", "hardbreak")
        pieces.append(" " if is_break else child.content)
    return " ".join("".join(pieces).split())


def _text_pieces(content: str, start: int, end: int) -> Iterator[Piece]:
    """Yield the pieces of a range without CommonMark markup."""
    for match in EXTENSION.finditer(content, start, end):
        first, end_of_match = match.span()
        yield from text_piece(start, first, content, decode)
        start = end_of_match
        if match["word"]:
            yield Piece(first, start, Kind.FIXED, match[0])
        elif match["open"]:
            yield Piece(first, start, Kind.OPEN, name="mark")
        elif match["close"]:
            yield Piece(first, start, Kind.CLOSE, name="mark")
        else:
            kind, name = paired_code(match[0])
            yield Piece(first, start, kind, name=name)
    yield from text_piece(start, end, content, decode)


def _with_fixed_elements(pieces: Sequence[Piece], content: str) -> list[Piece]:
    """Make a fixed piece of each HTML element that is not translated, such as `<kbd>`."""
    ends = end_indices(pieces)
    result = []
    end = -1
    for i, piece in enumerate(pieces):
        if i <= end:
            continue
        if i in ends and _UNTRANSLATED_TAG.match(content, piece.start, piece.end):
            end = ends[i]
            piece = _fixed_element(pieces[i : end + 1], content)
        result.append(piece)
    return result


def _fixed_element(pieces: Sequence[Piece], content: str) -> Piece:
    if pieces[0].name.strip("<>") in WITHOUT_TEXT:
        return Piece(pieces[0].start, pieces[-1].end, Kind.POINT)
    text = ""
    for piece, following in pairwise(pieces):
        text += piece.text + content[piece.end : following.start]
    text = decode(text).strip()
    kind = Kind.FIXED if text else Kind.POINT
    return Piece(pieces[0].start, pieces[-1].end, kind, text)


def _html_piece(raw: str, start: int, end: int) -> Piece:
    match = _TAG.fullmatch(raw)
    if not match:
        return Piece(start, end, Kind.POINT)
    name = match[2].lower()
    if name in _EMPTY_ELEMENTS:
        return Piece(start, end, _EMPTY_ELEMENTS[name])
    kind = Kind.OPEN
    if match[3]:
        kind = Kind.POINT
    elif match[1]:
        kind = Kind.CLOSE
    return Piece(start, end, kind, name=f"<{name}>")
