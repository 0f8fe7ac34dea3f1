"""Content check: what of a source is missing in its translation, or was added to it.

Sentences, items of lists, numbers in words, quotation marks and brackets are counted on both sides.
Each check yields its name, which `nmt.translation.guard` maps to the attempts that repair it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from itertools import pairwise

from nmt.text.calendar_names import missing_names
from nmt.text.halves import missing_halves
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.number_words import (
    MAX_SPELLED,
    NumberWord,
    find_number_words,
    numbers_of_compounds,
    roman_numerals,
    supports_number_words,
    values_of_other_forms,
)
from nmt.text.sentences import count_sentences, split_sentences
from nmt.text.spoken_times import missing_times
from nmt.text.words import normalized_words
from nmt.translation.times import missing_hours

MISSING_SENTENCE = "missing-sentence"
MISSING_ITEM = "missing-item"
NUMBER_CHANGED = "number-changed"
NUMBER_ADDED = "number-added"
UNBALANCED = "unbalanced"
MISSING_CURRENCY = "missing-currency"
MISSING_DATE = "missing-date"
NAMES = (
    MISSING_SENTENCE,
    MISSING_ITEM,
    NUMBER_CHANGED,
    NUMBER_ADDED,
    MISSING_CURRENCY,
    MISSING_DATE,
    UNBALANCED,
)

MAX_IDIOMATIC = 12
"""Numbers up to this one have other translations than numbers, such as both, a dozen or a pair."""
MIN_ITEMS = 4
"""Minimum number of items of a list that is checked. Shorter ones are hard to distinguish from
clauses."""
MAX_ITEM_WORDS = 3
MAX_DIGITS = 15
"""Longer numbers are identifiers."""

_DIGITS = lazy_pattern(r"\d+")
_GROUPED = lazy_pattern(
    r"(?<![\w.,:/-])\d{1,3}(?:[., \u00a0\u202f]\d{3})+(?:(?:st|nd|rd|th)\b)?"
    r"(?![\w:/]|[.,-]\d)"
)
_WHOLE_NUMBER = lazy_pattern(r"(?<![\w.,:/-])\d{1,15}(?![\w:/-]|[.,]\d)")
_CONVERTED = lazy_pattern(
    r"(?:(?<=\d)|(?<=\d ))[ap]\.?m\b|\b(?:dozen|half|(?:a|one|two) thirds?|quarter|noon|midnight"
    r"|score|pair|[ap]\.m|pm|halb\w*|(?:drit|fünf|zehn)tel|viertel\w*|dreiviertel|dutzend\w*|mittag\w*"
    r"|mitternacht|anderthalb)\b",
    re.IGNORECASE,
)
"""Words of times and amounts whose translation may have another number: half past six is halb
sieben."""
_CONJUNCTION = "and|or|as well as|und|oder|sowie"
_SEPARATOR = lazy_pattern(rf"(,? (?:{_CONJUNCTION}) |[,;]\s+)")
_WORD = r"[^\s,;:.!?()\"“”„»«]+"
_CLAUSE = (
    "(?:dass|daß|ob|um|weil|wenn|wie|wo|was|that|which|who|where|when|while|what|if|because)"
    f" (?!(?:{_CONJUNCTION}) )"
)
"""The start of a clause; in `who, how and when`, the words are items."""
_ITEM = rf"(?!{_CLAUSE}|(?:{_CONJUNCTION}) ){_WORD}(?: {_WORD}){{0,{MAX_ITEM_WORDS - 1}}}"
_END = r"[.!?]?\W*$"
_COMMA = "[,;] "
_LIST = lazy_pattern(
    rf"(?<={_COMMA})(?:(?:{_ITEM}{_COMMA}){{{MIN_ITEMS - 3},}}{_ITEM},? (?:{_CONJUNCTION})"
    rf" {_ITEM}(?={_END})"
    rf"|(?:{_ITEM}{_COMMA}){{{MIN_ITEMS - 2},}}{_ITEM}(?={_COMMA}|{_END})"
    rf"|(?:{_ITEM}{_COMMA}){{{MIN_ITEMS - 3},}}{_ITEM}(?=,? (?:{_CONJUNCTION}) ))"
)
"""The items of a list after the first one. The last item counts if the text ends with it."""
_LAST_ITEM = lazy_pattern(rf",? (?:{_CONJUNCTION}) ")
"""What shows after these items that there is a last one."""
_CURRENCIES = {
    "euro": r"€|\beur(?:o(?:s|cents?)?)?\b",
    "dollar": r"\$|\busd\b|\w{0,30}dollars?",
    "franc": r"\bchf\b|\bfranken\b|\bfrancs?\b",
    "yen": r"¥|\bjpy\b|\byen\b",
}
"""Currencies as they are written in both languages."""
_AMOUNT = r"(?:\d|hundert|hundred|tausend|thousand|million(?:en)?|milliarden?|billion(?:en)?)[ -]"
BRACKETS = {"(": ")", "[": "]", "{": "}"}
_QUOTES = '"“”„«»‟'
QUOTE = lazy_pattern(f"[{_QUOTES}]")
_SINGLE_QUOTED = lazy_pattern(r"(?<![\w'’])['‘‚][^'‘’‚]*['‘’](?![\w'])")
"""A text in single quotation marks, but not after an apostrophe in or at the end of a word."""


def content_problems(source: str, text: str, src: str, tgt: str) -> Iterator[str]:
    """Yield the names of the parts of a source that its translation lacks, and of what it adds.

    Args:
        source: the source, without protected spans.
        text: the translation, without them.
        src: language code of the source.
        tgt: language code of the target.
    """
    if has_missing_sentence(source, text, src, tgt):
        yield MISSING_SENTENCE
    if has_missing_item(source, text):
        yield MISSING_ITEM
    if marks := unbalanced_marks(source, text):
        yield f"{UNBALANCED}: {' '.join(marks)}"
    for hour in missing_hours(source, text, src, tgt):
        yield f"{NUMBER_CHANGED}: {hour}"
    for time in missing_times(source, text, src, tgt):
        yield f"{NUMBER_CHANGED}: {time}"
    for half in missing_halves(source, text, src, tgt):
        yield f"{NUMBER_CHANGED}: {half}"
    for name in missing_names(source, text, src, tgt):
        yield f"{MISSING_DATE}: {name}"


def number_problems(source: str, text: str, src: str, tgt: str) -> Iterator[str]:
    """Yield the names of numbers that a translation changes or adds, in words, digits and Roman
    numerals, if the number words of both languages are known.

    Args:
        source: the source, with protected spans.
        text: its translation.
        src: language code of the source.
        tgt: language code of the target.
    """
    if not (supports_number_words(src) and supports_number_words(tgt)):
        return
    words = find_number_words(source, src)
    romans = roman_numerals(source)
    in_words = _required_values(words, romans)
    in_translation = _values(find_number_words(text, tgt))
    in_other_forms = Counter(values_of_other_forms(text, tgt))
    missing = in_words - (in_translation + in_other_forms + _digit_values(text, _DIGITS, _GROUPED))
    known = in_words | Counter(values_of_other_forms(source, src))
    known += _digit_values(source, _DIGITS, _GROUPED)
    numbers = in_translation + _digit_values(text, _WHOLE_NUMBER, _GROUPED)
    added = _without_compounds(numbers.keys() - known.keys(), source, src)
    if not (missing or added) or _CONVERTED.search(f"{source}\n{text}"):
        return
    if missing:
        is_certain = bool(added) or len(in_words) > 1  # several numbers may be a time
        ordinals = {*romans, *(word.value for word in words if word.is_ordinal)}
        yield from _changed_numbers(missing, ordinals, is_certain=is_certain)
        return
    for value in added:
        if value > MAX_IDIOMATIC:
            yield f"{NUMBER_ADDED}: {value}"


def missing_currencies(source: str, text: str, src: str, tgt: str) -> Iterator[str]:
    """Yield the problems of the amounts of money of a source whose currency its translation does
    not name.

    Args:
        source: the source, with protected spans.
        text: its translation.
        src: language code of the source.
        tgt: language code of the target.
    """
    if not (supports_number_words(src) and supports_number_words(tgt)):
        return
    for currency, pattern in _CURRENCIES.items():
        is_amount = re.search(rf"{_AMOUNT}(?:us-)?(?:{pattern})", source, re.IGNORECASE)
        if is_amount and not re.search(pattern, text, re.IGNORECASE):
            yield f"{MISSING_CURRENCY}: {currency}"


def _changed_numbers(
    missing: Iterable[int], ordinals: Container[int], *, is_certain: bool
) -> Iterator[str]:
    """Yield the problems of missing numbers. Unless it is certain that they are numbers, small ones
    may be part of an idiom."""
    for value in missing:
        if is_certain or value > MAX_IDIOMATIC or value in ordinals:
            yield f"{NUMBER_CHANGED}: {value}"


def _required_values(words: Iterable[NumberWord], romans: Iterable[int]) -> Counter[int]:
    """Return the values of the numbers in words and of the Roman numerals of a source that its
    translation must have."""
    values = Counter(romans)
    for word in words:
        # A large ordinal is no number, as in the thousandth time.
        if not word.is_ordinal or word.value <= MAX_SPELLED:
            values[word.value] += 1
    return values


def _values(words: Iterable[NumberWord]) -> Counter[int]:
    return Counter(word.value for word in words)


def _without_compounds(values: set[int], source: str, src: str) -> list[int]:
    """Return the values that no word of the source begins with, in order."""
    return sorted(values - numbers_of_compounds(source, src)) if values else []


def has_missing_sentence(source: str, text: str, src: str, tgt: str) -> bool:
    """Return whether a translation has fewer sentences than its source, or the same sentence more
    often."""
    if count_sentences(source, src) < 2:
        return False
    sources = _sentences(source, src)
    sentences = _sentences(text, tgt)
    if len(sentences) < len(sources):
        return True
    return _count_repeated(sentences) > _count_repeated(sources)


def _sentences(text: str, language: str) -> list[str]:
    """Return the words of each sentence."""
    sentences: list[str] = []
    for start, end in split_sentences(text, language):
        words = normalized_words(text[start:end])
        if words:
            sentences.append(" ".join(words))
    return sentences


def _count_repeated(sentences: list[str]) -> int:
    """Return how many sentences are equal to another one or a part of the next or previous one."""
    count = len(sentences) - len(set(sentences))
    for first, second in pairwise(sentences):
        shorter, longer = sorted((f" {first} ", f" {second} "), key=len)
        if shorter in longer and first != second:
            count += 1
    return count


def has_missing_item(source: str, text: str) -> bool:
    """Return whether a translation has fewer items than a list in the source, or repeats one.

    Its clauses count as items, too, because a comma before them looks like one in a list.
    """
    found = find_items(source)
    if not found:
        return False
    others, _ = split_items(found[0])
    num_items = 1 + len(others)
    is_long = num_items >= MIN_ITEMS  # the items of a shorter one may be clauses
    if is_long and _LAST_ITEM.match(source, found.end()):
        num_items += 1
    translated, _ = split_items(text)
    if len(translated) < num_items:
        return True
    items, _ = split_items(source)
    return _has_equal_items(translated) and not _has_equal_items(items)


def _has_equal_items(items: list[str]) -> bool:
    """Return whether two items between separators are equal."""
    words_of_items = [tuple(normalized_words(item)) for item in items[1:-1]]
    inner_items = list(filter(None, words_of_items))
    return len(set(inner_items)) < len(inner_items)


def find_items(text: str) -> re.Match[str] | None:
    """Return the items of a list in a text, without the first one, before which the sentence
    begins."""
    has_separator = ", " in text or "; " in text  # fast path for most texts
    return _LIST.search(text) if has_separator else None


def split_items(text: str) -> tuple[list[str], list[str]]:
    """Return the items of a list, and the separators between them."""
    parts = _SEPARATOR.split(text)
    return parts[::2], parts[1::2]


def _digit_values(text: str, *patterns: re.Pattern[str]) -> Counter[int]:
    """Return the values of the numbers in digits that the patterns find."""
    values: Counter[int] = Counter()
    for pattern in patterns:
        for number in pattern.findall(text):
            digits = re.sub(r"\D", "", number)
            if len(digits) <= MAX_DIGITS:
                values[int(digits)] += 1
    return values


def unbalanced_marks(source: str, text: str) -> list[str]:
    """Return the brackets and quotation marks that are pairs in the source, but not in the
    translation."""
    marks = []
    for opening, closing in BRACKETS.items():
        num_pairs = len(bracket_pairs(source, opening, closing))
        if num_pairs and not text.count(opening) == text.count(closing) == num_pairs:
            marks.append(opening)
    num_quotes = len(QUOTE.findall(source))
    num_translated = len(QUOTE.findall(text))
    has_pairs = num_quotes > 0 and num_quotes % 2 == 0
    if has_pairs and num_translated < num_quotes:
        num_translated += 2 * len(_SINGLE_QUOTED.findall(text))
    if has_pairs and num_translated != num_quotes:
        marks.append('"')
    return marks


def has_lone_mark(text: str) -> bool:
    """Return whether a bracket or quotation mark of a text has no partner."""
    for opening, closing in BRACKETS.items():
        if text.count(opening) != text.count(closing):
            return True
    num_quotes = len(QUOTE.findall(text))
    return num_quotes % 2 == 1


def bracket_pairs(text: str, opening: str, closing: str) -> list[tuple[int, int]]:
    """Return the offsets of each opening bracket and its closing one; none if one has no
    partner."""
    if opening not in text:
        return []
    pairs: list[tuple[int, int]] = []
    open_brackets: list[int] = []
    for i, character in enumerate(text):
        if character == opening:
            open_brackets.append(i)
        elif character == closing:
            if not open_brackets:
                return []
            pairs.append((open_brackets.pop(), i))
    return [] if open_brackets else pairs
