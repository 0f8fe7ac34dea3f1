"""Texts with variants for numbers or choices.

ICU writes messages such as `{n, plural, one {# dog} other {# dogs}}`. Symfony, Laravel and vue-i18n
separate variants by bars, as in `{0} no dogs|{1} one dog|[2,*] many dogs`.

Syntax of ICU: https://unicode-org.github.io/icu/userguide/format_parse/messages/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from nmt.documents.ranges import Span

MAX_DEPTH = 5
"""Maximum number of messages within each other. The variants of deeper ones are not found."""
NUMBER_SIGN = r"(?<![\w#])#(?![\w#])"
"""Stands for the number in a message, as a regular expression."""

_START = re.compile(r"\{\s*(?P<name>\w+)\s*,\s*(?:plural|selectordinal|select)\s*,")
_BRACE = re.compile(r"'[{}][^']*'|[{}]")
"""A brace, or quoted text with one."""
_NUMBER = r"\s?[-+]?(?:\d{1,20}(?:\.\d{1,20})?|Inf|\*)\s?"
_NUMBERS = rf"\{{{_NUMBER}(?:,{_NUMBER})*\}}|[\[\]]{_NUMBER},{_NUMBER}[\[\]]"
"""The numbers in front of a variant of Symfony and Laravel, such as `{0}`, `[1,19]` or
`]1,Inf[`."""
_GROUP = r"\([^()]*\)|\[[^\[\]]*\]|\{(?:[^{}]++|\{[^{}]*\})*+\}|`[^`]*`|<[a-zA-Z/][^<>]*>|://\S+|%\|[^|\s]{1,20}\||\|\|+"
"""What may contain bars that do not separate variants."""
_BAR = re.compile(rf"{_NUMBERS}|{_GROUP}|(?P<bar>(?<!\s)\s*\|(?!\|)\s*(?:(?:{_NUMBERS})\s*)?)")
_FIRST_NUMBERS = re.compile(rf"\s*(?:{_NUMBERS})\s*")


@dataclass
class Message:
    """A message, as a range of a text."""

    start: int
    name: str
    """Name of the number or choice."""
    end: int = 0
    variants: list[Span] = field(default_factory=list)
    """Ranges of the texts between its inner braces."""


def find_messages(text: str) -> list[Message]:
    """Return the messages of a text that are not in another one."""
    messages = []
    message: Message | None = None
    depth = 0  # open braces in the message
    variant_start = 0
    for brace in _BRACE.finditer(text):
        if message is None:
            start = _START.match(text, brace.start())
            message = Message(brace.start(), start["name"]) if start else None
            depth = 1
        elif brace[0] == "{":
            depth += 1
            if depth == 2:
                variant_start = brace.end()
        elif brace[0] == "}":
            depth -= 1
            if depth == 1:
                message.variants.append((variant_start, brace.start()))
            elif depth == 0:
                message.end = brace.end()
                messages.append(message)
                message = None
    return [message for message in messages if message.variants]


def syntax_spans(text: str, offset: int = 0, depth: int = 0) -> Iterator[Span]:
    """Yield the ranges of the syntax of all messages: what is not text of a variant; `offset` is
    that of the text."""
    for message in find_messages(text) if depth < MAX_DEPTH else ():
        position = message.start
        for start, end in message.variants:
            yield offset + position, offset + start
            yield from syntax_spans(text[start:end], offset + start, depth + 1)
            position = end
        yield offset + position, offset + message.end


def bar_spans(text: str) -> Iterator[Span]:
    """Yield the ranges of the bars between variants, with the spaces and numbers around them."""
    bars = [match.span("bar") for match in _BAR.finditer(text) if match["bar"]]
    first = _FIRST_NUMBERS.match(text)
    if bars and first:
        yield first.span()
    yield from bars
