"""Protected spans: parts of a text that a translation must contain unchanged, such as URLs and
numbers.

All but numbers are opaque: the translation of the other words does not depend on them.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, TypeVar

from nmt.core import runtime
from nmt.core.errors import UsageError
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.searchable import SearchableText

Edit = tuple[int, int, str]
"""Start and end of a range of a text, and the new text."""
_UNITS = (
    "km/h m/s km mm cm m kg mg g ml l °C °F kWh kW W V Ω Hz kHz MHz GHz THz kB KB MB GB TB KiB MiB"
    " GiB bit/s Mbit/s ms s mph px pt dpi fps EUR USD GBP CHF JPY % %% ‰ µg μg mcg µm μm nm µs μs"
    " µl μl hPa kPa Pa mAh kJ kcal dB Kč zł"
).split()
_CURRENCIES = "$£¥฿\u20a0-\u20bf"
"""Signs of currencies, as a character class."""
_FILE_TYPES = (
    "txt md rst pdf html htm css js json yaml yml toml ini cfg conf csv tsv xml py c h cpp rs go"
    " java sh bat exe zip gz tar png jpg jpeg gif svg mp3 mp4 wav doc docx xls xlsx ppt pptx odt po"
    " srt log"
).split()
_TOP_LEVEL_DOMAINS = "com org net edu gov io dev de eu uk fr at ch".split()


def _any_of(words: Iterable[str]) -> str:
    return "(?:" + "|".join(map(re.escape, sorted(words, key=len, reverse=True))) + ")"


UNIT = rf"(?:[{_CURRENCIES}]|{_any_of(_UNITS)})"
"""A unit or the sign of a currency, as a regular expression."""
_ORDINAL_NOUNS = (
    "Jan|Jän|Feb|März|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez|Jahrhundert|Jahrestag|Geburtstag"
)
_DETERMINERS = (
    "der|die|das|de[mns]|im|zu[mr]|vom|beim|jede[mnrs]?|diese[mnrs]?"
    "|(?:ein|kein|mein|dein|sein|ihr|unser)(?:e[mnrs]?)?"
)
GERMAN_SENTENCE_STARTS = (
    "Ich|Du|Er|Sie|Es|Wir|Ihr|Man|Die|Der|Das|De[mns]|Dies\\w*|Eine?[mnrs]?|Seine?|Ihre?|Alle|Viele"
    "|Und|Aber|Doch|Denn|Da|Dann|Danach|Dort|Hier|Jetzt|Heute|Als|Wenn|Weil|Wer|Was|Wie|Wo|Warum"
    "|In|Im|Am|An|Auf|Bei|Für|Mit|Nach|Seit|Von|Vor|Zu|Zum|Zur"
)
_CENTURY_PART = (
    r"(?:bis )?(?:(?:zu|zum|zur|am|im|in der|an der) )?(?:Anfang|Beginn|Mitte|Hälfte|Ende)"
)
_BETWEEN_ORDINALS = (
    rf"(?:\.,? (?:(?:und|oder|bis|sowie) )?(?:{_CENTURY_PART} )?(?:(?:{_DETERMINERS}) )?|\.[–-])"
)
_GERMAN_ORDINALS = lazy_pattern(
    rf"(?P<determiner>(?<!\w)(?i:{_DETERMINERS}) )?(?<![\w.,])"
    rf"(?P<numbers>\d{{1,3}}(?:{_BETWEEN_ORDINALS}\d{{1,3}}){{0,9}})\. "
    rf"(?(determiner)(?!(?:{GERMAN_SENTENCE_STARTS})\b)[A-ZÄÖÜ]|(?:{_ORDINAL_NOUNS}))"
)
"""Ordinal numbers such as 3. Mai, der 2. Versuch or im 19. und 20. Jahrhundert, and the first
letter after them."""
_DAY_AND_MONTH = r"(?:0?[1-9]|[12]\d|3[01])\.(?:0?[1-9]|1[0-2])\."
_TO_TIME = r"(?= ?(?:bis|und|oder|to|until|till|and|or|[–-]) ?\d{1,2}(?:[.:]\d\d)? ?"
_AFTERNOON = lazy_pattern(
    rf"(?<![\w.,:])(?:(?:00?|1[3-9]|2[0-4])(?:[.:]\d\d)?(?: Uhr|{_TO_TIME}Uhr))"
    rf"|12(?:[.:]\d\d)? ?a\.?m|\d{{1,2}}(?:[.:]\d\d)?(?: ?p\.?m|{_TO_TIME}p\.?m)))\b",
    re.IGNORECASE,
)
"""A time that German counts from midnight, and English from noon, or from 12; also before another
one, as in 14 bis 16 Uhr."""
_DIGITS = lazy_pattern(r"\d+")
_START, _END = r"(?<!\w)", r"(?!\w)"
_NUMBER_START = r"(?<![\w.,:/-])"
_NUMBER = r"[-+−]?\d+(?:[.,:/'’\u202f\u00a0-]\d+)*"
_NAME = r"[\w@+-][\w.@+-]{0,99}"
"""The name of a file or directory. Repetitions are bounded, so that the time is linear in the
length of a text."""

_NESTED = r"\{[^{}]{0,199}\}"
for _ in range(3):  # a variable in a plural message in a select message
    _NESTED = rf"\{{(?:[^{{}}]|{_NESTED}){{0,199}}\}}"
ICU_MESSAGE = (
    rf"\{{\s?\w+\s?,\s?(?:plural|select|selectordinal|choice)\b(?:[^{{}}]|{_NESTED}){{1,999}}\}}"
)
"""A message with variants in the formats of ICU and Java, as a regular expression."""
_FRACTIONS = "¼½¾\u2150-\u215e"
_SYMBOLS = f"©®™§¶†‡•±×÷{_FRACTIONS}\u2200-\u22ff\u2190-\u21ff\u2300-\u27bf\u2b00-\u2bff\U0001f000-\U0001faff"  # noqa: E501
"""Marks, fractions, operators, arrows, pictures and emojis, as a character class."""

BLANK = "blank"
"""Kind of the blanks of forms and the leaders of tables of contents."""

NUMERIC_KINDS = ("quantity", "format", "number")
"""Kinds of the spans that may be decimal numbers."""

# At one position, the first pattern that matches wins. All but the units ignore case.
_PATTERNS = {
    "private_use": [r"[\ue000-\uf8ff]+"],  # the characters of placeholders
    "url": [
        r"\b(?:[a-z][a-z0-9+.-]{0,30}://|mailto:|www\.)[^\s<>\"“”„]*[^\s<>\"“”„.,;:!?)\]}'’*_`]",
        rf"(?<![\w@./-])(?:[\w-]{{1,63}}\.){{1,9}}{_any_of(_TOP_LEVEL_DOMAINS)}(?:/[^\s<>\"]*[\w/])?(?![\w@])",
    ],
    "email": [rf"{_START}[\w.+-]{{1,64}}@(?:[\w-]{{1,63}}\.){{1,9}}[a-z]{{2,24}}{_END}"],
    "code": [
        r"`{1,3}[^`\n]{1,999}`{1,3}",
        r"</?[a-z0-9][\w-]{0,63}(?:\s[^<>]{0,999})?/?>",  # a tag
        r"&(?:#\d+|#x[0-9a-f]+|[a-z]{2,8}\d*);",  # an entity
        r"\b[a-z_][\w.]{0,99}\(\)",
        # Not the >>pt_br<< of multilingual models
        rf"{_START}(?!(?<=>>)\w+<<)[a-z0-9]+(?:_[a-z0-9]+)+{_END}",
        rf"{_START}_{{1,3}}[a-z0-9]\w*",
        # System.Console.WriteLine
        rf"{_START}(?-i:[A-Z]\w{{1,60}}(?:\.[A-Z]\w{{1,60}}){{2,9}}){_END}",
        r"(?<![\w-])--[a-z][\w-]*(?:=[\w./-]*\w)?",
        r"(?<![\w-])-[a-z](?![\w-])",
    ],
    "variable": [
        r"\{\{.{0,199}?\}\}|\{%.{0,199}?%\}|<%.{0,199}?%>",
        ICU_MESSAGE,
        r"\$t\([^()]{0,99}\)|@(?:\.\w{1,20})?:(?:[\w.]*\w|[({][\w.' ]{1,99}[)}])",  # of i18next and vue-i18n  # noqa: E501
        r"(?<![\w:]):[a-z][a-z0-9_+-]{1,40}:(?![\w:])",  # an emoji
        r"[$%#]?\{\{?[^{}\s]*(?: [^{}\s]+)*\}?\}",
        # With a number, it may be followed by a letter.
        r"%\d+\$[-+#0,]*(?:[1-9]\d*)?(?:\.\d+)?(?:hh?|ll?|[jztLq])?[sdiufgxeco@]",
        r"%(?:\(\w+\)|\d+\$)?[-+#0,]*(?:[1-9]\d*)?(?:\.\d+)?[sdiufgxer](?:%%|(?![^\W_]))",
        r"(?<!\d)%(?:\d+\$)?[-+#0,]*(?:[1-9]\d*)?(?:\.\d+)?(?:hh?|ll?|[jztLq])?[sdiufgxercopn@](?![^\W_])",
        r"%%(?!\w+%)|(?<!\d)%L?\d{1,2}(?![\w%]|[.,]\d)",  # a percent sign, an argument of Qt
        r"\$[a-z_]\w*",
        r"%[a-z_]\w*%",
    ],
    "path": [
        rf"{_START}[a-z]:\\[^\s<>\"|?*,;]*[^\s<>\"|?*,;.!)]",
        rf"(?<![\w/.~])(?:~|\.{{1,2}})?/(?:{_NAME}/){{0,99}}(?:[\w.@+-]{{0,99}}[\w@+-])?(?<=[\w/~]/|.[\w@+-])",
        rf"{_START}(?:{_NAME}/){{1,20}}[\w@+-]{{1,99}}\.[a-z]\w{{0,4}}{_END}",
        rf"{_START}[\w@+-]{{1,99}}\.{_any_of(_FILE_TYPES)}{_END}",
    ],
    "handle": [
        r"(?<![\w@#&])[@#][a-z_][\w-]*\w",
        r"(?<![\w./@#&-])(?:[\w.-]{1,39}/[\w.-]{1,99})?#\d+(?!\w)",  # an issue on GitHub
        r"(?<![\w@#&])#(?:[0-9a-f]{8}|[0-9a-f]{6}|[0-9a-f]{3,4})(?!\w)",  # a color
    ],
    "symbol": [
        rf"[{_SYMBOLS}][{_SYMBOLS}\ufe0f\u200d]*",
        r"(?-i:\b[A-Z]{1,5}&[A-Z]{1,5}\b)",  # R&D
    ],
    "hash": [
        r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
        r"\b0x[0-9a-f]+\b",
        r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b",
    ],
    # 1980s is a decade.
    "quantity": [
        rf"(?<![\w.,:/+{_CURRENCIES}-])[-+−]?[{_CURRENCIES}]\s?{_NUMBER}(?:[kmb]|bn|mn|tn)?{_END}",
        rf"{_NUMBER_START}{_NUMBER}(?:k|bn|mn|tn){_END}",  # thousand and more
        rf"{_NUMBER_START}\d{{1,3}}(?:\.\d{{3}}){{2}}(?![\w-]|[.,]\d)",  # no version: 1.200.000
        (
            rf"{_NUMBER_START}{_NUMBER}(?-i:["
            rf" \u00a0\u202f]?{UNIT}(?<!\ds)){_END}"
        ),
    ],
    "version": [
        rf"{_START}v\d+(?:\.\d+)*(?![\w-]|[.,]\d)",
        rf"{_START}v?\d+(?:\.\d+)+[-.]?(?:alpha|beta|rc|dev|pre|preview|snapshot|final)(?:[-.]?\d+)*{_END}",
        # Also 192.168.1.1, 10.0.0.0/8, 31.12.2024
        rf"{_START}v?\d+(?:\.\d+){{2,}}(?:[-.]?[a-z]+\d*)?(?::\d+)?(?:/\d{{1,2}}(?![.\d]))?{_END}",
    ],
    "time_stamp": [
        (
            rf"{_NUMBER_START}\d{{4}}-\d\d-\d\d[T"
            r" ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?(?![\w:])"
        ),
    ],
    "format": [  # telephone numbers, dates, long numbers
        (
            r"(?<![\w.,:/(+])(?:\+\d{1,3}[ -]?)?\(?\d{2,5}\)?(?:[ -]\d{2,}){1,4}(?<=[\d"
            r" ()-]{9})(?!\w|-\d)"
        ),
        rf"{_NUMBER_START}\d+(?:[./-]\d+){{2,}}{_END}",
        rf"(?-i:{_NUMBER_START}{_DAY_AND_MONTH}(?= [a-zäöüß]))",  # a German date in a sentence
        rf"{_NUMBER_START}\d{{5,}}{_END}",
        rf"{_NUMBER_START}\d{{1,3}}(?:[,.]\d{{3}})+(?:[.,]\d+)?{_END}",
    ],
    # Capitals and digits, such as A81-686, or up to three letters before digits, such as x86
    "identifier": [
        r"(?-i:(?<![\w.,:/-])(?!\d{1,2}[AP]M\b|\d+(?:ST|ND|RD|TH)\b)(?=[A-Z\d-]{0,80}[A-Z])(?=[A-Z\d-]{0,80}\d)"
        r"[A-Z\d]{1,20}(?:-[A-Z\d]{1,20}){0,5}(?![\w-]))",
        r"(?-i:(?<![\w.,:/-])[A-Za-z]{1,3}\d{1,9}[A-Za-z]{0,2}(?:-\d[\dA-Za-z]{0,20}){0,5}(?![\w-]|[.,]\d))",
    ],
    "number": [
        rf"{_NUMBER_START}\d{{1,4}}[ \u00a0\u202f]?[{_FRACTIONS}]",  # 1½
        rf"{_NUMBER_START}{_NUMBER}(?!\w|[.,:/'’-]?\d)",
    ],
    # The last one, so that no other span changes.
    BLANK: [
        rf"{_START}_{{2,}}(?:[./-]_{{2,}}){{1,5}}(?!\w|\.\w|\(\))",  # a date
        # With the escapes of Markdown, and also before a word
        r"(?<!_)(?:\\?_){4,}+",
        r"(?<![^\s(/:-])(?:\\?_){2,3}(?![^\s)/.,:;?!-])",  # not the emphasis of Markdown
        r"(?<!\.)\.{4,}+(?!@)",
        r"…{2,}",
        r"(?<!\S)-{4,}(?!\S)",
        r"(?<!\S)(?<!\.[ \u00a0])\.(?:[ \u00a0]\.){3,}+(?![^\s\d])",
    ],
}
MAX_PATTERN_SECONDS = 5.0
"""Maximum time in which a pattern of the user must find its matches in one text. Most take
microseconds."""
_PATTERN = lazy_pattern(
    "|".join(f"(?P<{kind}>{'|'.join(each)})" for kind, each in _PATTERNS.items()), re.IGNORECASE
)
_MAY_MATCH = lazy_pattern(
    rf"[\d@#/\\{{}}%$<>&`_~\ue000-\uf8ff{_SYMBOLS}]|--|www|\.\w|:\w|\(\)|(?<!\w)-[a-z]\b"
    r"|\.{4}|…{2}|\.[ \u00a0]\.",
    re.IGNORECASE,
)
"""A fast test that most sentences fail."""


class ProtectedSpan(NamedTuple):
    """A protected span of a text."""

    start: int
    end: int
    kind: str
    """The key of its pattern, or `custom`."""

    @property
    def is_opaque(self) -> bool:
        """Whether a model may translate the sentence without reading the span. It must read a
        number, to inflect the words around it.
        """
        return self.kind != "number"


def compile_patterns(expressions: Sequence[str]) -> list[re.Pattern[str]]:
    """Compile the regular expressions of `--protect`, which are searched in text in Unicode NFC.

    Raises:
        UsageError: an expression is invalid, takes too long, or matches the empty string.
    """
    patterns = []
    for expression in expressions:
        try:
            pattern = re.compile(unicodedata.normalize("NFC", expression))
        except (re.error, OverflowError, RecursionError) as error:
            raise UsageError(
                f"--protect {expression!r} is not a regular expression: {error}"
            ) from None
        with _pattern_time_limit(pattern):
            matches_nothing = pattern.match("")
        if matches_nothing:
            raise UsageError(
                f"--protect {expression!r} matches the empty string", "name the text to protect"
            )
        patterns.append(pattern)
    return patterns


def _pattern_time_limit(pattern: re.Pattern[str]) -> AbstractContextManager[None]:
    """Limit the time of a pattern of the user in one text to `MAX_PATTERN_SECONDS`; see
    `runtime.time_limit`."""
    error = UsageError(
        f"--protect {pattern.pattern!r} takes more than {MAX_PATTERN_SECONDS:g} seconds in one"
        " line",
        "avoid repetitions in repetitions, such as (a+)+, and repetitions of the same characters"
        " after each other",
    )
    return runtime.time_limit(MAX_PATTERN_SECONDS, error)


def _find_custom(text: SearchableText, pattern: re.Pattern[str]) -> list[ProtectedSpan]:
    """Return the matches of a pattern of the user that are not empty.

    Raises:
        UsageError: finding them takes too long.
    """
    with _pattern_time_limit(pattern):
        matches = [match for match in pattern.finditer(text.text) if match[0]]
    return [ProtectedSpan(*text.original_span(*match.span()), "custom") for match in matches]


def find_spans(text: str, custom: Iterable[re.Pattern[str]] = ()) -> list[ProtectedSpan]:
    """Return the protected spans of a text, in order and without overlaps.

    `custom` patterns take precedence, except over a longer span around their match, such as a URL.

    Raises:
        UsageError: a custom pattern takes too long; see `_find_custom`.
    """
    searchable = SearchableText(text)
    others: list[ProtectedSpan] = []
    if _MAY_MATCH.search(searchable.text):
        other_words = _numbers_in_other_words(searchable.text)
        for match in _PATTERN.finditer(searchable.words):
            if match.lastgroup == "number" and match.start() in other_words:
                continue
            start, end = searchable.original_span(*match.span())
            others.append(ProtectedSpan(start, end, str(match.lastgroup)))
    matches = [span for pattern in custom for span in _find_custom(searchable, pattern)]
    first = [match for match in matches if not enclosing(match.start, match.end, others)]
    return list(without_overlaps([*first, *others, *matches]))


def _numbers_in_other_words(text: str) -> set[int]:
    """Return the starts of the numbers whose translation may be another number or a word."""
    starts = {match.start() for match in _AFTERNOON.finditer(text)}
    for ordinals in _GERMAN_ORDINALS.finditer(text):
        numbers = _DIGITS.finditer(text, *ordinals.span("numbers"))
        starts.update(number.start() for number in numbers)
    return starts


def find_german_ordinals(text: str) -> list[ProtectedSpan]:
    """Return the ordinal numbers of a German text, each with the first letter of the next word."""
    matches = _GERMAN_ORDINALS.finditer(text)
    return [ProtectedSpan(match.start("numbers"), match.end(), "ordinal") for match in matches]


def enclosing(start: int, end: int, spans: Sequence[ProtectedSpan]) -> ProtectedSpan | None:
    """Return the span that contains a range and is longer; None: there is none. Spans are in order
    and do not overlap."""
    i = bisect_right(spans, start, key=lambda span: span.start) - 1
    if i < 0:
        return None
    span = spans[i]
    is_longer = (span.start, span.end) != (start, end)
    return span if is_longer and end <= span.end else None


class HasOffsets(Protocol):
    """A range of a text."""

    @property
    def start(self) -> int:
        """Offset of its first character."""

    @property
    def end(self) -> int:
        """Offset after its last character."""


S = TypeVar("S", bound=HasOffsets)


def without_overlaps(spans: Iterable[S]) -> Iterator[S]:
    """Yield spans in order; of overlapping spans, the first one given."""
    kept: list[S] = []
    for span in spans:
        i = bisect_left(kept, span.end, key=lambda other: other.start)
        if i == 0 or kept[i - 1].end <= span.start:
            kept.insert(i, span)
    yield from kept


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return a text with the ranges (start, end) of edits (start, end, new text) replaced; they do
    not overlap."""
    pieces, position = list[str](), 0
    for start, end, new in sorted(edits):
        pieces += [text[position:start], new]
        position = end
    return "".join(pieces) + text[position:]
