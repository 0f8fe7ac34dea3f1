"""Markdown documents (CommonMark with tables, strikethrough and footnotes).

Translations are inserted into the source, so everything else is unchanged to the byte. markdown-it-py finds the blocks
and their inline markup. It does not report the positions of inline markup, so its rules are wrapped to record them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from html import unescape
from itertools import accumulate, pairwise
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.footnote.index import footnote_def

from nmt.console import log
from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions
from nmt.documents.html import ENDS_PARAGRAPH, HtmlReader
from nmt.documents.inline import InlineText, Kind, Piece, text_piece
from nmt.documents.markdown_extensions import EXTENSION, UNTRANSLATED, brackets, formula, hide_blocks, metadata_end
from nmt.documents.source import TranslatableSource, Value
from nmt.documents.text_file import TextFile

_LINE = re.compile(r"([^\r\n]*)(\r\n|\r|\n|\Z)")
REFERENCES = ("]", "][]")
"""Ends of links and images whose label names their definition: a translated label would not be found."""
_ESCAPE_OR_ENTITY = re.compile(r"\\([!-/:-@\[-`{-~])|&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|\w{2,32});")
_SPECIAL = re.compile(
    r"((?i:https?://|www\.)(?:[^\s<\[\]`]|\[[^\s<\[\]`]*\](?![(\[:]))*[^\s<\[\]`*_~])|"
    r"\\(?=[!-/:-@\[-`{-~\s]|\Z)|(?<!\s)\*|\*(?!\s)|(?<![^\W_])_|_(?![^\W_])|`|~~|<(?=[a-zA-Z/!?])|[\[\]]|&(?=#?\w+;)"
)
"""Characters that may be markup, with an escape in front of them. The group is a URL: many sites make links of URLs,
and escapes would be a part of them. `_escape` selects the brackets.
"""
_BLOCK_START = re.compile(r"(?:#{1,6}|[-+*=]|\d{1,9}[.)])(?=[\s\0]|$)|>|={2,}(?=[\s\0]|$)|-{2,}|```|~~~|[:!?]{3}|\|")
"""What would start a block, such as a list, at the start of a line."""
_QUOTE_MARKERS = re.compile(r"(?<=[\r\n])[ \t]*>[ \t>]*")
_TITLE = re.compile(r"\s(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)')\s*\)\Z", re.DOTALL)
_CELL = re.compile(r"(?:\\\||[^|])+")
_DEFINITION = re.compile(r"\[[^\]\n]+\]:[ \t]*(?:<\S|#|\.{0,2}/|[a-zA-Z][\w+.-]+:|\S+/\S*[./]|\S+\.[a-zA-Z])")
"""Start of a link definition with a destination that is clearly one."""
_TAG = re.compile(r"<(/?)([a-zA-Z][\w-]*)[^>]*?(/?)>")
_UNTRANSLATED_TAG = re.compile(
    r"<(?:code|kbd|samp|var)\b|<[^>]*\s(?:translate\s*=\s*[\"']?no\b|class\s*=[^>]*\bnotranslate\b)", re.IGNORECASE
)
"""Start tag of an HTML element within a sentence that is not translated."""
_BLOCK_ELEMENTS = {f"<{name}>" for name in ENDS_PARAGRAPH}
"""Names of HTML elements that are no part of a sentence, such as lists in table cells."""
_WRAP = "\0"
"""Stands for a space where a line may be wrapped. Markdown documents do not contain this character."""

Span = tuple[int, int]


def parse(data: bytes, options: DocumentOptions) -> TranslatableSource:
    """Parse a Markdown document in UTF-8.

    Raises:
        DataError: the file is not UTF-8.
    """
    file = TextFile.decode(data, options.encoding_errors)
    reader = _Reader(file.text, metadata_end(file.text))
    html = HtmlReader(_without_quote_markers(file.text, reader.html_ranges), options)
    for start, end in reader.html_ranges:
        html.read(start, end)
    texts = sorted([*reader.texts, *html.texts], key=lambda text: text.start)
    return TranslatableSource(file, texts, [*reader.values, *html.values], html.edits)


def _without_quote_markers(source: str, ranges: Iterable[Span]) -> str:
    """Return the source with blanks for the `>` before the lines of HTML in block quotes."""
    pieces = []
    position = 0
    for start, end in ranges:
        html = _QUOTE_MARKERS.sub(lambda match: " " * len(match[0]), source[start:end])
        pieces += [source[position:start], html]
        position = end
    return "".join([*pieces, source[position:]])


class _Reader:
    """Finds the texts of a document, and the values in their markup: alternative texts and titles."""

    def __init__(self, source: str, start: int) -> None:
        self.texts: list[InlineText] = []
        self.values: list[Value] = []
        self.html_ranges: list[Span] = []
        self._lines = [match.span(1) for match in _LINE.finditer(source, start)]
        self._parser = _parser()
        self._env: dict[str, Any] = {}
        self._parsed = hide_blocks(source)
        tokens = self._parser.parse(self._parsed[start:].replace("\0", "\ufffd"), self._env)
        row = -1
        position = num_unlocated = 0
        for i, token in enumerate(tokens):
            if token.type == "html_block" and token.map:
                first, last = token.map
                self.html_ranges.append((self._parsed.index("<", self._lines[first][0]), self._lines[last - 1][1]))
            if token.type != "inline" or not token.map or not token.content:
                continue
            opening = tokens[i - 1]
            line = token.map[0]
            # The text of an underlined heading starts its line, like that of a paragraph.
            kind = "paragraph_open" if opening.markup in ("=", "-") else opening.type
            if kind in ("th_open", "td_open"):
                position = position if line == row else self._lines[line][0]
                row = line
                ranges = self._cell(token.content, line, position)
                position = ranges[-1][1] + 1 if ranges else position
            else:
                ranges = self._line_ranges(token.content, line)
            if not ranges:
                num_unlocated += 1
            elif not UNTRANSLATED.match(source, ranges[0][0]):
                self._read(_Block(source, ranges, kind))
        if num_unlocated:
            log(f"Markdown blocks that cannot be located in the source and stay as they are: {num_unlocated:,}")

    def _line_ranges(self, content: str, line: int) -> list[Span]:
        """Return the ranges of the lines of a paragraph or heading, without indents and markers."""
        ranges = []
        for text, (start, end) in zip(content.split("\n"), self._lines[line:], strict=False):
            text = text.lstrip(" \t")
            found = self._parsed.rfind(text, start, end)
            if found < 0:  # cannot be located, so it stays as it is
                return []
            ranges.append((found, found + len(text)))
        return ranges

    def _cell(self, content: str, line: int, position: int) -> list[Span]:
        """Return the range of a table cell that starts at `position` or later."""
        for match in _CELL.finditer(self._parsed, position, self._lines[line][1]):
            cell = match[0].strip()
            if cell.replace("\\|", "|").endswith(content):
                end = match.start() + len(match[0].rstrip())
                return [(end - len(content) - content.count("|"), end)]
        return []

    def _read(self, block: _Block) -> None:
        pieces: list[Piece] = []
        position = 0
        for piece in [*self._markup(block), Piece(len(block.content), len(block.content), Kind.POINT)]:
            if piece.start < position:  # overlapping markup of a broken document
                continue
            for each in [*_text_pieces(block.content, position, piece.start), piece]:
                # Attributes belong to the element directly before them.
                is_attached = block.content.startswith("{", each.start) and each.kind is Kind.POINT
                if is_attached and pieces and pieces[-1].kind not in (Kind.TEXT, Kind.SPACE, Kind.OPEN):
                    pieces[-1] = replace(pieces[-1], end=each.end)
                else:
                    pieces.append(each)
            position = piece.end
        mapped = [replace(each, start=block.offset(each.start), end=block.offset(each.end)) for each in pieces]
        self.texts.append(_MarkdownText(mapped, block))

    def _markup(self, block: _Block) -> list[Piece]:
        """Return the inline markup of a block by position in its content, and add the values in it."""
        content = "\n".join(self._parsed[start:end] for start, end in block.ranges)
        tokens = self._parser.inline.parse(content, self._parser, self._env, [])
        pieces = []
        for i, token in enumerate(tokens):
            if "range" not in token.meta:
                continue
            (start, end), name = token.meta["range"], token.type.rpartition("_")[0]
            raw = block.content[start:end]
            if token.type == "strong_open":
                start = tokens[i - 1].meta["range"][0]
            if token.type == "strong_close":
                end = tokens[i + 1].meta["range"][1]
            if token.type in ("code_inline", "autolink", "reference", "name"):
                text = " ".join(_without_marks(token.type, raw).split())
                pieces.append(Piece(start, end, Kind.FIXED if text else Kind.POINT, text))
            elif token.nesting:
                pieces.append(Piece(start, end, Kind.OPEN if token.nesting > 0 else Kind.CLOSE, name=name))
            elif token.type == "hardbreak":
                pieces.append(Piece(start, end, Kind.LINE_BREAK))
            elif token.type in ("image", "embed"):
                pieces.append(Piece(start, end, Kind.BREAK))
            elif token.type == "html_inline":
                pieces.append(_html_piece(raw, start, end))
            label_end = token.meta.get("label_end", 0)
            if token.type == "image" and block.content[label_end:end] not in REFERENCES:
                self._add_value(block, start + 2, label_end, _escape_label, _text_of_marked_label(token))
            if token.type in ("image", "link_close") and (title := _TITLE.search(block.content[:end], start)):
                self._add_value(block, *title.span(title.lastindex or 0), _escape_title)
        pieces = _with_fixed_elements(sorted(pieces, key=lambda piece: piece.start), block.content)
        return [replace(each, kind=Kind.LINE_BREAK) if each.name in _BLOCK_ELEMENTS else each for each in pieces]

    def _add_value(
        self, block: _Block, start: int, end: int, encode: Callable[[str], str], text: str | None = None
    ) -> None:
        if text := _decode(block.content[start:end].strip()) if text is None else text:
            is_cell = block.kind in ("th_open", "td_open")
            written = (lambda text: encode(text).replace("|", "\\|")) if is_cell else encode
            self.values.append(Value(block.offset(start), block.offset(end), RichText(text), written))


def _without_marks(name: str, source: str) -> str:
    """Return the text of an element that is not translated."""
    if name == "code_inline":
        return source.strip("`")
    if name == "name":
        return source if source.startswith("[!") else source[2:-2]
    return source[1:].removesuffix("[]")[:-1]


def _text_of_marked_label(image: Token) -> str | None:
    """Return the text of a label with markup, as browsers show it; None if it has no markup, or has references."""
    children = image.children or []
    types = {child.type for child in children}
    if types <= {"text", "softbreak"} or types & {"reference", "autolink"}:
        return None
    breaks = ("softbreak", "hardbreak")
    return " ".join("".join("\n" if child.type in breaks else child.content for child in children).split())


class _Block:
    """The content of a paragraph, heading or cell, and its position in the source."""

    def __init__(self, source: str, ranges: Sequence[Span], kind: str) -> None:
        self.source, self.kind = source, kind
        self.ranges = ranges
        """Start and end of each line in the source, without the indent and markers before it."""
        self.content = "\n".join(source[start:end] for start, end in ranges)
        self._starts = list(accumulate((end - start + 1 for start, end in ranges[:-1]), initial=0))  # in the content

    def offset(self, position: int) -> int:
        """Return the offset in the source of a position in the content."""
        i = bisect_right(self._starts, position) - 1
        return self.ranges[i][0] + position - self._starts[i]

    def line_start(self, position: int) -> int:
        """Return the start of the line of a position in the source."""
        return max(self.source.rfind("\n", 0, position), self.source.rfind("\r", 0, position)) + 1


class _MarkdownText(InlineText):
    """A text whose translation is wrapped like the source."""

    def __init__(self, pieces: Sequence[Piece], block: _Block) -> None:
        escape = _escape_label if any(piece.name in ("link", "wiki") for piece in pieces) else _escape
        old, new = ("|", "\\|") if block.kind in ("th_open", "td_open") else (" ", _WRAP)
        super().__init__(pieces, lambda text: escape(text).replace(old, new))
        self._source_block = block

    def render(self, translations: Sequence[RichText], source: Callable[[int, int], str]) -> str:
        """Return the source of a translation, wrapped to the width of the source if that has several lines."""
        block = self._source_block
        words = super().render(translations, source).split(_WRAP)
        if list(translations) == self.blocks or (len(block.ranges) < 2 and block.kind != "paragraph_open"):
            return " ".join(words)
        if self.start == block.ranges[0][0]:
            words[0] = _escape_block_start(words[0])
        if len(block.ranges) < 2:
            return " ".join(words)
        (_, end), (start, _) = block.ranges[:2]
        line_break = block.source[end:start].lstrip(" \t\\")
        prefix = line_break.lstrip("\r\n")
        after_break = re.compile(rf"([\r\n]{re.escape(prefix)})(.+)", re.DOTALL)
        words = [after_break.sub(lambda match: match[1] + _escape_block_start(match[2]), word) for word in words]
        width = max(end - block.line_start(start) for start, end in block.ranges)
        output, column = words[0], self.start - block.line_start(self.start) + len(words[0])
        for previous, word in pairwise(words):
            if "\n" in previous or "\r" in previous:
                column = len(re.split(r"[\r\n]", previous)[-1])
            length = len(re.split(r"[\r\n]", word)[0])
            if re.search(rf"[\r\n]{re.escape(prefix)}\Z", previous):  # after a hard break
                separator = ""
            elif column + 1 + length > width and not _BLOCK_START.match(word):
                separator, column = line_break, len(prefix)
            else:
                separator, column = " ", column + 1
            output, column = output + separator + word, column + length
        return output


def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.disable(["inline", "text_join"])
    parser.block.ruler.before("fence", "formula", formula, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    parser.block.ruler.before("reference", "footnote_def", footnote_def, {"alt": ["paragraph", "reference"]})
    parser.block.ruler.at("reference", _definition, {"alt": ["paragraph"]})
    parser.inline.ruler2.disable("fragments_join")  # would delete tokens, whose positions are needed
    names = parser.get_active_rules()["inline"]
    for name, rule in zip(names, parser.inline.ruler.getRules(""), strict=True):
        parser.inline.ruler.at(name, _recording(name, rule))
    parser.inline.ruler.before("text", "brackets", brackets)
    return parser


def _definition(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Block rule for link definitions. Like Python-Markdown, and unlike CommonMark, it also ends a paragraph."""
    if silent and not _DEFINITION.match(state.src, state.bMarks[start_line] + state.tShift[start_line]):
        return False
    return reference(state, start_line, end_line, silent)


def _recording(name: str, rule: Callable[[StateInline, bool], bool]) -> Callable[[StateInline, bool], bool]:
    """Wrap an inline rule so that it records the range of each of its tokens in the content."""

    def record(state: StateInline, silent: bool) -> bool:
        start, num_tokens, has_pending = state.pos, len(state.tokens), bool(state.pending)
        if not rule(state, silent):
            return False
        if silent:
            return True
        added, end = state.tokens[num_tokens:], state.pos
        if name in ("emphasis", "strikethrough"):
            for token in added[has_pending:]:
                token.meta["range"] = (start, start + len(token.content))
                start += len(token.content)
        elif name == "link":
            label_end = state.md.helpers.parseLinkLabel(state, start, True)
            opening = next(token for token in added if token.type == "link_open" and "range" not in token.meta)
            if state.src[label_end:end] in REFERENCES:
                del state.tokens[state.tokens.index(opening) :]
                del state.tokens_meta[len(state.tokens) :]
                state.push("reference", "", 0).meta["range"] = (start, end)
            else:
                opening.meta["range"], added[-1].meta["range"] = (start, start + 1), (label_end, end)
        elif name == "autolink":
            del state.tokens[-3:], state.tokens_meta[-3:]
            state.push("autolink", "", 0).meta["range"] = (start, end)
        elif name == "newline" and added and added[-1].type == "hardbreak":
            spaces = len(state.src[:start]) - len(state.src[:start].rstrip(" "))
            added[-1].meta["range"] = (start - spaces, end)
        elif name not in ("text", "newline", "entity") and added and added[-1].type != "text_special":
            added[-1].meta["range"] = (start, end)
            if name == "image":
                added[-1].meta["label_end"] = state.md.helpers.parseLinkLabel(state, start + 1, False)
        return True

    return record


def _text_pieces(content: str, start: int, end: int) -> Iterator[Piece]:
    """Yield the pieces of a range without CommonMark markup."""
    for match in EXTENSION.finditer(content, start, end):
        yield from text_piece(start, match.start(), content[start : match.start()], _decode)
        if match["word"]:
            yield Piece(*match.span(), Kind.FIXED, match[0])
        elif match["open"] or match["close"]:
            yield Piece(*match.span(), Kind.OPEN if match["open"] else Kind.CLOSE, name="mark")
        else:
            yield Piece(*match.span(), Kind.POINT)
        start = match.end()
    yield from text_piece(start, end, content[start:end], _decode)


def _with_fixed_elements(pieces: Sequence[Piece], content: str) -> list[Piece]:
    """Make a fixed piece of each HTML element that is not translated, such as `<kbd>`."""
    open_indices, ends = defaultdict[str, list[int]](list), dict[int, int]()
    for i, piece in enumerate(pieces):
        if piece.kind is Kind.OPEN:
            open_indices[piece.name].append(i)
        elif piece.kind is Kind.CLOSE and open_indices[piece.name]:
            ends[open_indices[piece.name].pop()] = i
    result, end = list[Piece](), -1
    for i, piece in enumerate(pieces):
        if i <= end:
            continue
        if i in ends and _UNTRANSLATED_TAG.match(content[piece.start : piece.end]):
            end = ends[i]
            text = "".join(a.text + content[a.end : b.start] for a, b in pairwise(pieces[i : end + 1]))
            text = _decode(text).strip()
            piece = Piece(piece.start, pieces[end].end, Kind.FIXED if text else Kind.POINT, text)
        result.append(piece)
    return result


def _html_piece(raw: str, start: int, end: int) -> Piece:
    match = _TAG.fullmatch(raw)
    if not match:
        return Piece(start, end, Kind.POINT)
    name = match[2].lower()
    if name in ("br", "img"):
        return Piece(start, end, Kind.LINE_BREAK if name == "br" else Kind.BREAK)
    if match[3]:
        return Piece(start, end, Kind.POINT)
    return Piece(start, end, Kind.CLOSE if match[1] else Kind.OPEN, name=f"<{name}>")


def _decode(source: str) -> str:
    def character(match: re.Match[str]) -> str:
        return match[1] or unescape(match[0])

    return _ESCAPE_OR_ENTITY.sub(character, re.sub(r"\s+", " ", source))


def _escape(text: str, *, in_label: bool = False) -> str:
    """Escape what may be markup: of brackets, pairs that may be a link, and in a label those without a partner."""
    brackets, opened = set[int](), list[int]()
    for match in _SPECIAL.finditer(text):  # not the brackets in URLs
        may_end_link = text.startswith(("(", "[", ":"), match.end())
        if match[0] == "[":
            opened.append(match.start())
        elif match[0] == "]" and opened:
            first = opened.pop()
            brackets |= {first, match.start()} if may_end_link else set()
        elif match[0] == "]" and (in_label or may_end_link):  # the opening one may be before markup
            brackets.add(match.start())
    brackets |= set(opened) if in_label else set()
    return _SPECIAL.sub(
        lambda match: match[1] or ("" if match[0] in "[]" and match.start() not in brackets else "\\") + match[0], text
    )


def _escape_block_start(text: str) -> str:
    """Escape what would start a block at the start of a line."""
    match = _BLOCK_START.match(text)
    if text.startswith(("`", "~")):  # markup, because these characters are escaped in text
        return text
    return f"{text[: match.end() - 1]}\\{text[match.end() - 1 :]}" if match else text


def _escape_label(text: str) -> str:
    return _escape(text, in_label=True)


def _escape_title(text: str) -> str:
    return re.sub(r"[\"'\\]", r"\\\g<0>", text)
