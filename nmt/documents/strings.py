"""Strings of programs and tables: lines, variants and messages, whose text is translated
separately."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nmt.documents.builder import SourceMarkup, TextBuilder, to_markup
from nmt.documents.document import RichText
from nmt.documents.ranges import Span
from nmt.documents.splicing import Edit
from nmt.documents.tagged_text import add_tagged_text
from nmt.documents.variants import MAX_DEPTH, NUMBER_SIGN, Message, bar_spans, find_messages
from nmt.text.spans import apply_edits, enclosing, find_spans
from nmt.translation.segments import FixedSpan

_WHOLE = ("url", "email", "path")
"""Kinds of protected spans that stay whole."""
_LINE = re.compile(r"(?:[-*•–][ \t]+)?(?P<text>\S(?:[^\t\r\n]*\S)?)")
_KEY = re.compile(r"[a-z_][\w-]*(?:\.[\w-]+)+", re.ASCII)
"""The key of another string, such as `common.buttons.save`."""

_QUOTE = re.compile(r"(?<!')'(?=[{}#]|\Z)")
_NAME = re.compile(r"\{\w+\}")
"""What stands for an ICU message in the line around it."""


class StringLines:
    """A string such as a table cell: each line is a block, and its bullet and the whitespace around
    it are kept.

    A tab ends a line, too: it separates columns, or a menu entry from its shortcut. Each variant of
    an ICU message is a string of its own; in the line around a message, a name in braces stands for
    it.
    """

    def __init__(
        self, text: str, protected: Iterable[str] = (), *, has_bars: bool = False, depth: int = 0
    ) -> None:
        """Find the blocks of a text.

        Args:
            text: the text.
            protected: regular expressions of what is fixed.
            has_bars: whether bars separate variants, as in `one dog | many dogs`.
            depth: number of messages around the text.
        """
        self.text = text
        self._outline = text
        self._messages: dict[str, _MessageText] = {}  # by the name that stands for it
        if depth < MAX_DEPTH:
            self._replace_messages(protected, depth + 1)
        expressions = list(protected)
        if self._messages:
            expressions.insert(0, _NAME.pattern)
        pattern = re.compile("|".join(expressions)) if expressions else None
        self._lines: list[_Line] = []
        self.blocks: list[RichText] = []
        for start, end in _translatable_spans(self._outline, has_bars):
            line = self._outline[start:end]
            if line not in self._messages:
                builder = TextBuilder[SourceMarkup]()
                add_tagged_text(builder, line)
                rich = builder.rich_text()
                self._lines.append(_Line(start, end, builder.markup))
                self.blocks.append(replace(rich, fixed=_fixed(rich.text, pattern)))
        for message in self._messages.values():
            for variant in message.variants:
                self.blocks += variant.blocks

    def render(self, translations: Iterable[RichText]) -> str:
        """Return the string with the translations of its blocks, which come first."""
        remaining = iter(translations)
        edits = []
        for line in self._lines:
            source = self._outline[line.start : line.end]
            translation = to_markup(next(remaining), line.markup)
            text = re.sub(r"[\r\n]+", " ", translation)
            names = self._messages.keys() & _NAME.findall(source)
            names_left = _NAME.findall(text)
            if not names.issubset(names_left):
                text = source
            edits.append(Edit(line.start, line.end, text))
        outline = apply_edits(self._outline, edits)
        rendered = {}
        for name, message in self._messages.items():
            rendered[name] = message.render(remaining)

        def replaced(match: re.Match[str]) -> str:
            return rendered.get(match[0], match[0])

        return _NAME.sub(replaced, outline)

    def _replace_messages(self, protected: Iterable[str], depth: int) -> None:
        edits: list[Edit] = []
        used = set(_NAME.findall(self.text))
        for message in find_messages(self.text):
            name = f"{{{message.name}}}"
            if name in used:
                suffix = f"{len(edits)}_{len(self.text)}"
                name = f"{{{message.name}_{suffix}}}"
            used.add(name)
            self._messages[name] = _MessageText(self.text, message, protected, depth)
            edits.append(Edit(message.start, message.end, name))
        self._outline = apply_edits(self.text, edits)


@dataclass
class _Line:
    """The range of a block in a string, and the tags in it."""

    start: int
    end: int
    markup: Mapping[int, SourceMarkup]


@dataclass
class StringPart:
    """A string of a file, as a range of it."""

    start: int
    end: int
    lines: StringLines
    encode: Callable[[str], str]
    """Returns the source of its translation."""

    @property
    def blocks(self) -> Sequence[RichText]:
        """Its lines."""
        return self.lines.blocks

    def edits(self, translations: Sequence[RichText]) -> Iterable[Edit]:
        """Yield the changed string."""
        text = self.lines.render(translations)
        if text != self.lines.text:
            source = self.encode(text)
            yield Edit(self.start, self.end, source)


class _MessageText:
    """The source of an ICU message, and its variants."""

    def __init__(self, text: str, message: Message, protected: Iterable[str], depth: int) -> None:
        fixed = [NUMBER_SIGN, *protected]
        self._source = text[message.start : message.end]
        self._offset = message.start
        self._spans = message.variants
        self.variants = [
            StringLines(text[start:end], fixed, depth=depth) for start, end in message.variants
        ]

    def render(self, translations: Iterator[RichText]) -> str:
        """Return the message with the translations of its blocks, which are the next ones."""
        edits = []
        for (start, end), variant in zip(self._spans, self.variants, strict=True):
            translation = _valid_variant(variant.text, variant.render(translations))
            edits.append(Edit(start - self._offset, end - self._offset, translation))
        return apply_edits(self._source, edits)


def _valid_variant(source: str, text: str) -> str:
    """Return the translation of a variant, or its source if a brace is missing or added.

    An apostrophe in front of a brace would quote it, so it is doubled.
    """
    for brace in "{}":
        if text.count(brace) != source.count(brace):
            return source
    if _QUOTE.search(source):
        return text
    return _QUOTE.sub("''", text)


def _translatable_spans(text: str, has_bars: bool) -> Iterator[Span]:
    """Yield the ranges of a text that are translated separately."""
    for line in _LINE.finditer(text):
        position, line_end = line.span("text")
        separators = []
        if has_bars:
            for start, end in bar_spans(line["text"]):
                separators.append((position + start, position + end))
        separators.append((line_end, line_end))
        for start, end in separators:
            is_key = _KEY.fullmatch(text, position, start)
            if position < start and not is_key:
                yield position, start
            position = end


def _fixed(text: str, pattern: re.Pattern[str] | None) -> tuple[FixedSpan, ...]:
    """Return the matches that are not a part of a tag, URL, address or path."""
    if pattern is None:
        return ()
    wholes = []
    for span in find_spans(text):
        is_tag = text[span.start] == "<"
        if is_tag or span.kind in _WHOLE:
            wholes.append(span)
    fixed = []
    for match in pattern.finditer(text):
        if not enclosing(*match.span(), wholes):
            fixed.append(FixedSpan(*match.span(), match[0]))
    return tuple(fixed)
