"""Code in a text that starts or ends a range, such as {% if x %} and {% endif %}.

The end must not be placed before the start in the translation, so a pair is a tag with text.
"""

from __future__ import annotations

import re

_BLOCKS = (
    "autoescape|block|blocktrans|blocktranslate|call|case|filter|for|foreach|if|unless|while|with"
)
_STATEMENTS = "for|foreach|if|switch|while"
_NAME = r"[a-zA-Z0-9][\w:-]*+"
_RANGES = (
    (rf"\{{%-?\s*({_BLOCKS})\b", rf"\{{%-?\s*end({_BLOCKS})\b"),  # Jinja, Liquid
    (r"\{\{[#^]-?\s*(\w+)", r"\{\{/\s*(\w+)"),  # Handlebars
    (rf"<\?(?:php)?\s+({_STATEMENTS})\b.*:\s*\?>", rf"<\?(?:php)?\s+end({_STATEMENTS})\b"),
    (r"<!--\s*(ko)\b", r"<!--\s*/(ko)\b"),  # Knockout
    (r"\{\\([ibus])1\}", r"\{\\([ibus])0\}"),  # SubStation Alpha
    (rf"<(?!(?:br|hr|img|input|wbr)\b)({_NAME})[^<>]*+(?<!/)>", rf"</({_NAME})\s*>"),  # HTML
    (r"START_(\w+?)(?:_\d+)?\Z", r"CLOSE_(\w+?)(?:_\d+)?\Z"),  # ids of Angular
)
"""Patterns of the code that starts and ends a range; their groups are equal."""
_STARTS, _ENDS = ([re.compile(each[i], re.DOTALL) for each in _RANGES] for i in (0, 1))


def started_range(code: str) -> str:
    """Return the name of the range that code starts, or ""."""
    return _range_name(_STARTS, code)


def ended_range(code: str) -> str:
    """Return the name of the range that code ends, or ""."""
    return _range_name(_ENDS, code)


def is_range(name: str) -> bool:
    """Return whether a name is that of a range, and not of an element of HTML."""
    return " " in name


def _range_name(patterns: list[re.Pattern[str]], code: str) -> str:
    for number, pattern in enumerate(patterns):
        match = pattern.match(code)
        if match:
            return f"{number} {match[1]}"
    return ""
