"""Numbers in words, in English and German: find them in a text, and spell a number."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.searchable import SearchableText, searchable

MAX_SPELLED = 999
"""Largest number that is written in words in a text; `spell_number` supports numbers up to
999,999."""


class NumberWord(NamedTuple):
    """A number in words."""

    start: int
    end: int
    """Offsets of its characters in the text."""
    value: int
    is_ordinal: bool = False


def supports_number_words(language: str) -> bool:
    """Return whether number words of a language are known."""
    return base_language(language) in _FINDERS


def find_number_words(text: str, language: str) -> list[NumberWord]:
    """Return the numbers in words from 2 on, in order; none for a language other than English and
    German.

    The words for 1 are articles and pronouns, too, and a second is also a time, so they are left
    out.
    """
    finder = _FINDERS.get(base_language(language))
    if finder is None:
        return []
    searchable = SearchableText(text)
    numbers = []
    for number in finder(searchable.text):
        start, end = searchable.original_span(number.start, number.end)
        numbers.append(number._replace(start=start, end=end))
    return numbers


def numbers_of_compounds(text: str, language: str) -> set[int]:
    """Return the numbers that words begin with, as in tausendmal; none for a language other than
    German, as others write such words with hyphens or spaces."""
    if base_language(language) != "de":
        return set()
    words = _DE_COMPOUND.finditer(searchable(text))
    values = {_read_german(match["number"].lower()) for match in words}
    return {value for value in values if value is not None}


def values_of_other_forms(text: str, language: str) -> list[int]:
    """Return the values of numbers that `find_number_words` leaves out because they are no words
    or have other meanings: Roman numerals, and second in English."""
    values = roman_numerals(text)
    if base_language(language) == "en":
        values += [2] * len(_EN_SECOND.findall(text))
    return values


def roman_numerals(text: str) -> list[int]:
    """Return the values of the Roman numerals from II to XXXIX, except for X."""
    values = []
    for match in _ROMAN.finditer(text):
        numeral = match[0]
        tens = numeral.count("X") - numeral.endswith("IX")
        unit = _ROMAN_UNITS.index(match["unit"])
        values.append(10 * tens + unit)
    return values


def is_time(text: str, hour: NumberWord, minute: NumberWord) -> bool:
    """Return whether two numbers are a time of day, as in at two-twenty or um zwei Uhr zwanzig."""
    between = text[hour.end : minute.start]
    if hour.is_ordinal or minute.is_ordinal or hour.value > 24 or minute.value >= 60:
        return False
    if between == " Uhr ":
        return True
    if minute.value < 10 or between not in ("-", " "):
        return False
    return _EN_BEFORE_TIME.search(text, max(0, hour.start - 8), hour.start) is not None


def spell_number(value: int, language: str) -> str:
    """Return a number from 0 to 999,999 in words of English or German."""
    return _SPELLERS[base_language(language)](value)


def _is_after_digit(text: str, start: int) -> bool:
    before = text[max(0, start - 2) : start].rstrip()
    return before[-1:].isdigit()


def _one_of(words: Iterable[str]) -> str:
    """Return a pattern of words, longer ones first."""
    longest_first = sorted(words, key=len, reverse=True)
    return f"(?:{'|'.join(longest_first)})"


_ROMAN_UNITS = ["", *"I II III IV V VI VII VIII IX".split()]
_ROMAN = lazy_pattern(
    rf"(?<![\w-])(?=[IVX]{{2}})X{{0,3}}(?P<unit>{_one_of(_ROMAN_UNITS)})(?![\w-])"
)

# English

_EN_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
).split()
_EN_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_EN_SCALES = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_EN_CARDINALS = {
    **{word: value for value, word in enumerate(_EN_SMALL)},
    **{word: 10 * tens for tens, word in enumerate(_EN_TENS, 2)},
    **_EN_SCALES,
}
_EN_IRREGULAR_ORDINALS = {"third": 3, "fifth": 5, "eighth": 8, "ninth": 9, "twelfth": 12}
_EN_SECOND_PARTS = {"first": 1, "second": 2}
"""Ordinals that are read only after tens, as in twenty-first: alone, they have other meanings."""


def _en_ordinals() -> dict[str, int]:
    ordinals = {}
    for word, value in _EN_CARDINALS.items():
        stem = word.removesuffix("y")
        ordinal = f"{word}th" if stem == word else f"{stem}ieth"
        ordinals[ordinal] = value
    return ordinals | _EN_IRREGULAR_ORDINALS | _EN_SECOND_PARTS


_EN_ORDINALS = _en_ordinals()
_EN_WORD = _one_of([*_EN_CARDINALS, *_EN_ORDINALS])
_EN_RUN = lazy_pattern(rf"(?<![\w-]){_EN_WORD}(?:(?:-| and | ){_EN_WORD})*(?![\w-])", re.IGNORECASE)
_EN_SCALE = lazy_pattern("|".join(_EN_SCALES), re.IGNORECASE)
_EN_SECOND = lazy_pattern(r"\bsecond(?:ly)?\b", re.IGNORECASE)
_EN_BEFORE_TIME = lazy_pattern(r"\b(?:at|by|until|till|before|after|around|about) $", re.IGNORECASE)
_EN_ARTICLE = lazy_pattern(r"\ba $", re.IGNORECASE)
_EN_TOKEN = lazy_pattern(rf"(and )?({_EN_WORD})(?!\w)", re.IGNORECASE)


class _EnglishNumber:
    """A number that is read word by word."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.millions_and_thousands = 0
        self.below_1000 = 0
        self.last = 0
        self.is_ordinal = False

    @property
    def value(self) -> int:
        return self.millions_and_thousands + self.below_1000

    def is_certain(self, text: str) -> bool:
        """Return whether the words have no other meaning: one, a second, the million in 10
        million."""
        words = text[self.start : self.end].lower()
        is_multiplier = words in _EN_SCALES and _is_after_digit(text, self.start)
        return self.value > 1 and words != "second" and not is_multiplier

    def in_text(self, text: str) -> NumberWord:
        """Return the number with the article before it, as in a hundred."""
        start = self.start
        is_scale = _EN_SCALE.match(text, start)
        if is_scale and _EN_ARTICLE.search(text, max(0, start - 3), start):
            start -= len("a ")
        return NumberWord(start, self.end, self.value, self.is_ordinal)

    def accepts(self, value: int, *, is_after_and: bool) -> bool:
        """Return whether a word of this value continues the number."""
        if self.is_ordinal or (is_after_and and self.last < 100):
            return False
        if value >= 100:
            return self.last < value
        is_after_tens = 20 <= self.last < 100 and value < 10
        return is_after_tens or self.last >= 100

    def add(self, value: int, end: int, *, is_ordinal: bool) -> None:
        """Read the next word."""
        if value == 100:
            self.below_1000 = 100 * max(1, self.below_1000)
        elif value > 100:
            self.millions_and_thousands += value * max(1, self.below_1000)
            self.below_1000 = 0
        else:
            self.below_1000 += value
        self.last = value
        self.end = end
        self.is_ordinal = is_ordinal


def _find_english(text: str) -> Iterator[NumberWord]:
    for run in _EN_RUN.finditer(text):
        yield from _merge_years(text, _read_english_run(text, *run.span()))


def _read_english_run(text: str, start: int, end: int) -> list[NumberWord]:
    numbers: list[_EnglishNumber] = []
    for token in _EN_TOKEN.finditer(text, start, end):
        word = token[2].lower()
        is_ordinal = word not in _EN_CARDINALS
        value = _EN_ORDINALS[word] if is_ordinal else _EN_CARDINALS[word]
        is_after_and = token[1] is not None
        if not numbers or not numbers[-1].accepts(value, is_after_and=is_after_and):
            numbers.append(_EnglishNumber(token.start(2)))
        numbers[-1].add(value, token.end(), is_ordinal=is_ordinal)
    return [number.in_text(text) for number in numbers if number.is_certain(text)]


def _merge_years(text: str, numbers: Iterable[NumberWord]) -> list[NumberWord]:
    """Join the halves of a year, such as nineteen and eighty-four."""
    merged: list[NumberWord] = []
    for number in numbers:
        if merged and _is_year(text, merged[-1], number):
            century = merged.pop()
            year = 100 * century.value + number.value
            number = number._replace(start=century.start, value=year)
        merged.append(number)
    return merged


def _is_year(text: str, century: NumberWord, number: NumberWord) -> bool:
    is_next = text[century.end : number.start] == " "
    is_century = 10 < century.value <= 20 and not century.is_ordinal
    return is_next and is_century and 10 <= number.value < 100


def _spell_english(value: int) -> str:
    if value < 20:
        return _EN_SMALL[value]
    if value < 100:
        tens = _EN_TENS[value // 10 - 2]
        unit = value % 10
        return f"{tens}-{_EN_SMALL[unit]}" if unit else tens
    scale, name = (100, "hundred") if value < 1000 else (1000, "thousand")
    head = f"{_spell_english(value // scale)} {name}"
    rest = value % scale
    if not rest:
        return head
    joint = " and " if rest < 100 else " "
    return f"{head}{joint}{_spell_english(rest)}"


# German

_DE_SMALL = (
    "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn"
    " sechzehn siebzehn achtzehn neunzehn"
).split()
_DE_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
_DE_VALUES = {word: value for value, word in enumerate(_DE_SMALL)} | {
    word: 10 * tens for tens, word in enumerate(_DE_TENS, 2)
}
_DE_OTHER_SPELLINGS = {"eins": 1, "zwo": 2, "dreissig": 30}
_DE_IRREGULAR_ORDINALS = {"dritte": 3, "siebte": 7}
_DE_PART = _one_of([*_DE_VALUES, *_DE_OTHER_SPELLINGS, "hundert", "tausend", "und"])
_DE_REGULAR = rf"(?P<number>{_DE_PART}+)(?:(?P<ordinal>s?te[nrsm]?)|e[rn]?(?= Million))?"
_DE_IRREGULAR = rf"(?P<irregular>{_DE_PART}*{_one_of(_DE_IRREGULAR_ORDINALS)})[nrsm]?"
_DE_WORD = lazy_pattern(
    rf"(?<![\w-])(?:{_DE_REGULAR}|{_DE_IRREGULAR})(?P<million> Million(?:en)?)?(?![\w-])",
    re.IGNORECASE,
)
_DE_COMPOUND = lazy_pattern(rf"(?<![\w-])(?P<number>{_DE_PART}+)(?=\w|-)", re.IGNORECASE)
_DE_AMBIGUOUS = lazy_pattern(r"achte[nrsm]?", re.IGNORECASE)
"""An ordinal that is also a verb."""


def _find_german(text: str) -> Iterator[NumberWord]:
    for match in _DE_WORD.finditer(text):
        if match["irregular"]:
            value = _read_german_ordinal(match["irregular"].lower())
        else:
            value = _read_german(match["number"].lower())
        factor = 1_000_000 if match["million"] else 1
        if value is None or value * factor < 2 or _DE_AMBIGUOUS.fullmatch(match[0]):
            continue
        is_multiplier = value in (100, 1000) and _is_after_digit(text, match.start())
        if is_multiplier:  # the tausend in 10 tausend
            continue
        is_ordinal = bool(match["ordinal"] or match["irregular"])
        yield NumberWord(match.start(), match.end(), value * factor, is_ordinal)


def _read_german_ordinal(word: str) -> int | None:
    """Return the value of a number that ends in an irregular ordinal, such as hundertdritte."""
    for ending, value in _DE_IRREGULAR_ORDINALS.items():
        if word.endswith(ending):
            head = word.removesuffix(ending)
            before = _read_german(head) if head else 0
            return None if before is None else before + value
    return None


def _read_german(word: str) -> int | None:
    """Return the value of a number in lower case; None if the parts are not in the order of a
    number."""
    for name, scale in (("tausend", 1000), ("hundert", 100)):
        head, found, rest = word.partition(name)
        if not found:
            continue
        rest = rest.removeprefix("und")
        factor = _read_german(head) if head else 1
        remainder = _read_german(rest) if rest else 0
        if factor is None or remainder is None or remainder >= scale:
            return None
        return factor * scale + remainder
    if word in _DE_OTHER_SPELLINGS:
        return _DE_OTHER_SPELLINGS[word]
    if word in _DE_VALUES:
        return _DE_VALUES[word]
    unit_name, _, tens_name = word.partition("und")
    unit = _DE_VALUES.get(unit_name, 0)
    tens = _DE_VALUES.get(tens_name) or _DE_OTHER_SPELLINGS.get(tens_name, 0)
    is_number = 0 < unit < 10 and tens >= 20
    if is_number:
        return unit + tens
    return None


def _spell_german(value: int) -> str:
    if value == 1:
        return "eins"
    return _spell_german_stem(value)


def _spell_german_stem(value: int) -> str:
    if value < 20:
        return _DE_SMALL[value]
    if value < 100:
        tens = _DE_TENS[value // 10 - 2]
        unit = value % 10
        return f"{_DE_SMALL[unit]}und{tens}" if unit else tens
    scale, name = (100, "hundert") if value < 1000 else (1000, "tausend")
    rest = value % scale
    head = f"{_spell_german_stem(value // scale)}{name}"
    return f"{head}{_spell_german(rest)}" if rest else head


_FINDERS: dict[str, Callable[[str], Iterator[NumberWord]]] = {
    "en": _find_english,
    "de": _find_german,
}
_SPELLERS: dict[str, Callable[[int], str]] = {"en": _spell_english, "de": _spell_german}
