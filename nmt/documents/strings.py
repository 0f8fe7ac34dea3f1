"""Strings of programs and tables: lines, variants and messages, whose text is translated
separately."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from nmt.documents.document import RichText
from nmt.documents.splicing import Edit
from nmt.documents.variants import MAX_DEPTH, NUMBER_SIGN, Message, bar_spans, find_messages
from nmt.text.spans import ProtectedSpan, apply_edits, find_spans
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
        self._messages: dict[str, _MessageText] = {}  # by the name that stands for it
        self._outline = text
        if depth < MAX_DEPTH:
            self._replace_messages(protected, depth)
        expressions = [_NAME.pattern, *protected] if self._messages else protected
        pattern = re.compile("|".join(expressions)) if expressions else None
        self._spans: list[tuple[int, int]] = []
        self.blocks: list[RichText] = []
        for start, end in _translatable_spans(self._outline, has_bars):
            line = self._outline[start:end]
            if line not in self._messages:
                self._spans.append((start, end))
                self.blocks.append(RichText(line, fixed=_fixed(line, pattern)))
        for message in self._messages.values():
            self.blocks += message.blocks

    def render(self, translations: Sequence[RichText]) -> str:
        """Return the string with the translations of its blocks."""
        remaining = iter(translations)
        edits: list[Edit] = []
        for start, end in self._spans:
            source = self._outline[start:end]
            text = re.sub(r"[\r\n]+", " ", next(remaining).text)
            names = self._messages.keys() & _NAME.findall(source)
            if not names.issubset(_NAME.findall(text)):
                text = source
            edits.append(Edit(start, end, text))
        text = apply_edits(self._outline, edits)
        rendered: dict[str, str] = {}
        for name, message in self._messages.items():
            rendered[name] = message.render(remaining)
        return _NAME.sub(lambda match: rendered.get(match[0], match[0]), text)

    def _replace_messages(self, protected: Iterable[str], depth: int) -> None:
        edits: list[Edit] = []
        other_names = set(_NAME.findall(self.text))
        for message in find_messages(self.text):
            name = "{" + message.name + "}"
            index = len(edits)
            if name in other_names or name in self._messages:
                name = f"{{{message.name}_{index}_{len(self.text)}}}"
            self._messages[name] = _MessageText(self.text, message, protected, depth + 1)
            edits.append(Edit(message.start, message.end, name))
        self._outline = apply_edits(self.text, edits)


@dataclass(frozen=True)
class _Variant:
    """A variant of an ICU message, as a range of the message."""

    start: int
    end: int
    string: StringLines


class _MessageText:
    """The source of an ICU message."""

    def __init__(self, text: str, message: Message, protected: Iterable[str], depth: int) -> None:
        self._source = text[message.start : message.end]
        self._variants: list[_Variant] = []
        self.blocks: list[RichText] = []
        fixed = [NUMBER_SIGN, *protected]
        for start, end in message.variants:
            string = StringLines(text[start:end], fixed, depth=depth)
            first = start - message.start
            last = end - message.start
            self._variants.append(_Variant(first, last, string))
            self.blocks += string.blocks

    def render(self, translations: Iterator[RichText]) -> str:
        """Return the message with the translations of its blocks, which are the next ones."""
        edits: list[Edit] = []
        for variant in self._variants:
            of_variant = islice(translations, len(variant.string.blocks))
            translated = variant.string.render(list(of_variant))
            text = _valid_variant(variant.string.text, translated)
            edits.append(Edit(variant.start, variant.end, text))
        return apply_edits(self._source, edits)


def _valid_variant(source: str, text: str) -> str:
    """Return the translation of a variant, or its source if a brace is missing or added.

    An apostrophe in front of a brace would quote it, so it is doubled.
    """
    if any(text.count(brace) != source.count(brace) for brace in "{}"):
        return source
    return text if _QUOTE.search(source) else _QUOTE.sub("''", text)


def _translatable_spans(text: str, has_bars: bool) -> Iterator[tuple[int, int]]:
    """Yield the ranges of a text that are translated separately."""
    for line in _LINE.finditer(text):
        start, line_end = line.span("text")
        offset = start
        bars = list(bar_spans(line["text"])) if has_bars else []
        for bar_start, bar_end in bars:
            yield from _text_span(text, start, offset + bar_start)
            start = offset + bar_end
        yield from _text_span(text, start, line_end)


def _text_span(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield a range unless it is empty or the key of another string."""
    if start < end and not _KEY.fullmatch(text, start, end):
        yield start, end


def _fixed(text: str, pattern: re.Pattern[str] | None) -> tuple[FixedSpan, ...]:
    """Return the matches that are not a part of a tag, URL, address or path."""
    if pattern is None:
        return ()
    whole_at: dict[int, ProtectedSpan] = {}
    for span in find_spans(text):
        if span.kind in _WHOLE or text[span.start] == "<":
            whole_at.update(dict.fromkeys(range(span.start, span.end), span))
    fixed: list[FixedSpan] = []
    for match in pattern.finditer(text):
        start, end = match.span()
        whole = whole_at.get(start)
        is_inside = whole is not None and end <= whole.end
        is_whole = whole is not None and (start, end) == (whole.start, whole.end)
        if is_whole or not is_inside:
            fixed.append(FixedSpan(start, end, match[0]))
    return tuple(fixed)
