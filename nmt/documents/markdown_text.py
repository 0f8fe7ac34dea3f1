"""Texts of Markdown: from source to text and back, wrapped like the source."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from html import unescape
from itertools import accumulate, pairwise

from nmt.documents.document import RichText
from nmt.documents.inline import InlineText, Piece
from nmt.documents.ranges import Span

_ESCAPE_OR_ENTITY = re.compile(r"\\([!-/:-@\[-`{-~])|&(?:#\d{1,7}|#[xX][0-9a-fA-F]{1,6}|\w{2,32});")
_SPECIAL = re.compile(
    r"((?i:https?://|www\.)(?:[^\s<\[\]`]|\[[^\s<\[\]`]*\](?![(\[:]))*[^\s<\[\]`*_~])|"
    r"\\(?=[!-/:-@\[-`{-~\s]|\Z)|(?<!\s)\*|\*(?!\s)|(?<![^\W_])_|_(?![^\W_])|`|~~|<(?=[a-zA-Z/!?])|[\[\]]|&(?=#?\w+;)"
)
"""Characters that may be markup, with an escape in front of them. The group is a URL: many sites
make links of URLs, and escapes would be a part of them. `_escape` selects the brackets.
"""
_BLOCK_START = re.compile(
    r"(?:#{1,6}|[-+*=]|\d{1,9}[.)])(?=[\s\0]|$)|>|={2,}(?=[\s\0]|$)|-{2,}|```|~~~|[:!?]{3}|\|"
)
"""What would start a block, such as a list, at the start of a line."""
_WRAP = "\0"
"""Stands for a space where a line may be wrapped. Markdown documents do not contain this
character."""
_LINE_END = re.compile(r"[\r\n]")
_HARD_BREAK = re.compile(r"[\r\n][ \t>]*\Z")
"""The end of a line break, with the indent and markers of the next line."""
CELLS = ("th_open", "td_open")
"""Kinds of blocks that are table cells."""


class Block:
    """The content of a paragraph, heading or cell, and its position in the source."""

    def __init__(self, source: str, ranges: Sequence[Span], kind: str) -> None:
        self.source = source
        self.kind = kind
        self.ranges = ranges
        """Start and end of each line in the source, without the indent and markers before it."""
        lines = [source[start:end] for start, end in ranges]
        self.content = "\n".join(lines)
        lengths = (end - start + 1 for start, end in ranges[:-1])
        self._starts = list(accumulate(lengths, initial=0))  # in the content

    def offset(self, position: int) -> int:
        """Return the offset in the source of a position in the content."""
        i = bisect_right(self._starts, position) - 1
        start, _ = self.ranges[i]
        return start + position - self._starts[i]

    def escape_bars(self, source: str) -> str:
        """Escape bars if the block is a table cell."""
        return source.replace("|", "\\|") if self.kind in CELLS else source

    @property
    def line_break(self) -> str:
        """What is between its lines: a line end, and the indent and markers of the next line."""
        (_, end), (start, _) = self.ranges[:2]
        between = self.source[end:start]
        return between.lstrip(" \t\\")

    @property
    def width(self) -> int:
        """Number of characters in its longest line, with the indent and markers."""
        widths = [end - self.line_start(start) for start, end in self.ranges]
        return max(widths)

    def line_start(self, position: int) -> int:
        """Return the start of the line of a position in the source."""
        after_line_feed = self.source.rfind("\n", 0, position) + 1
        after_return = self.source.rfind("\r", after_line_feed, position) + 1
        return max(after_line_feed, after_return)


class MarkdownText(InlineText):
    """A text whose translation is wrapped like the source."""

    def __init__(self, pieces: Sequence[Piece], block: Block) -> None:
        self._source_block = block
        has_label = any(piece.name in ("link", "wiki") for piece in pieces)
        self._escape_text = escape_label if has_label else _escape
        super().__init__(pieces, self._source_of)

    def _source_of(self, text: str) -> str:
        escaped = self._escape_text(text)
        return self._source_block.escape_bars(escaped).replace(" ", _WRAP)

    def render(self, translations: Sequence[RichText], source: Callable[[int, int], str]) -> str:
        """Return the source of a translation, wrapped to the width of the source if that has
        several lines."""
        block = self._source_block

        def markup_source(start: int, end: int) -> str:
            code = source(start, end)
            # A hard break is a word of its own, unlike the line end in code or in a tag.
            return f"{_WRAP}{code}{_WRAP}" if _HARD_BREAK.search(code) else code

        rendered = super().render(translations, markup_source)
        words = rendered.split(_WRAP)
        is_unchanged = list(translations) == self.blocks
        has_one_line = len(block.ranges) < 2
        if is_unchanged or (has_one_line and block.kind != "paragraph_open"):
            return " ".join(words)
        if self.start == block.ranges[0][0]:
            words[0] = _escape_block_start(words[0])
        if has_one_line:
            return " ".join(words)
        return self._wrap(words)

    def _wrap(self, words: Sequence[str]) -> str:
        line_break = self._source_block.line_break
        prefix = line_break.lstrip("\r\n")
        width = self._source_block.width
        output = [words[0]]
        line_start = self._source_block.line_start(self.start)
        column = self.start - line_start + len(words[0])
        for previous, word in pairwise(words):
            is_at_line_start = _HARD_BREAK.search(previous)
            if is_at_line_start:
                word = _escape_block_start(word)
            *_, last_line = _LINE_END.split(previous)
            first_line, *_ = _LINE_END.split(word)
            if last_line != previous:  # it has a line break
                column = len(last_line)
            if is_at_line_start or _HARD_BREAK.search(word):
                separator = ""
            elif column + len(first_line) >= width and not _BLOCK_START.match(word):
                separator = line_break
                column = len(prefix)
            else:
                separator = " "
                column += 1
            output += [separator, word]
            column += len(first_line)
        return "".join(output)


def decode(source: str) -> str:
    """Return the text of a source, without escapes and line ends."""

    def character(match: re.Match[str]) -> str:
        return match[1] or unescape(match[0])

    line = re.sub(r"\s+", " ", source)
    return _ESCAPE_OR_ENTITY.sub(character, line)


def _escape(text: str, *, in_label: bool = False) -> str:
    """Escape what may be markup: of brackets, pairs that may be a link, and in a label those
    without a partner."""
    brackets = set()
    opened = []
    for match in _SPECIAL.finditer(text):  # not the brackets in URLs
        may_end_link = text.startswith(("(", "[", ":"), match.end())
        if match[0] == "[":
            opened.append(match.start())
        elif match[0] == "]" and opened:
            first = opened.pop()
            if may_end_link:
                brackets |= {first, match.start()}
        elif match[0] == "]" and (in_label or may_end_link):  # the opening one may be before markup
            brackets.add(match.start())
    if in_label:
        brackets |= set(opened)

    def escaped(match: re.Match[str]) -> str:
        if match[1] or (match[0] in "[]" and match.start() not in brackets):
            return match[0]
        return "\\" + match[0]

    return _SPECIAL.sub(escaped, text)


def _escape_block_start(text: str) -> str:
    """Escape what would start a block at the start of a line."""
    match = _BLOCK_START.match(text)
    # These characters are markup, because they are escaped in text.
    if not match or text.startswith(("`", "~")):
        return text
    last = match.end() - 1
    return f"{text[:last]}\\{text[last:]}"


def escape_label(text: str) -> str:
    """Return the source of a text in the label of a link or image."""
    return _escape(text, in_label=True)


def escape_title(text: str) -> str:
    """Return the source of a text in the title of a link or image."""
    return re.sub(r"[\"'\\]", r"\\\g<0>", text)
