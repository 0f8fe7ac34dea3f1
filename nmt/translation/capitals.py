"""The first letters of translations, which are capitals at the beginning of a sentence."""

from __future__ import annotations

from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.tokenizer import Tokenizer
from nmt.translation.segments import Line

_SENTENCE_END = lazy_pattern(r"[.!?…](?:(?![.!?…])\W)*\Z")
_LOWER_CASE_WORD = lazy_pattern(r"\s*(?P<quote>[\"“„»«]?)(?P<word>(?=[a-zäöü])\w+)")
_QUOTES = '"“”„»«'
_ORDINARY_WORD = lazy_pattern(r"(?!I\b)[^\W\d_](?=\W|[^\W\d_A-ZÄÖÜ]+\b)")
"""A word that is neither an abbreviation nor the English I."""


def with_capital(line: Line, text: str, language: str) -> str:
    """Return a translation that begins with a capital if its source does, which in German may be
    the capital of a noun, except in a sentence."""
    source = line.text.lstrip()
    without_quote = source.lstrip(_QUOTES)
    if not without_quote[:1].isupper():
        return text
    if base_language(language) == "de" and not _SENTENCE_END.search(line.text):
        return text
    match = _LOWER_CASE_WORD.match(text)
    if not match or bool(match["quote"]) != (source != without_quote):
        return text
    # Such as iPhone, or a term
    kept_words = [word.lstrip(_QUOTES) for word in line.text.split()]
    for span in line.fixed:
        kept_words.append(span.translation)
    if any(word.startswith(match["word"]) for word in kept_words):
        return text
    start = match.start("word")
    return text[:start] + text[start].upper() + text[start + 1 :]


def inside_sentence(text: str, source: str, tokenizer: Tokenizer, language: str) -> str:
    """Return the translation of a part of a sentence in lower case, unless it begins with a noun or
    name: the tokenizer knows its capitalized form better.

    Outside of German, what the source writes in lower case is none.
    """
    if not _ORDINARY_WORD.match(text):
        return text
    in_lower_case = text[:1].lower() + text[1:]
    if source[:1].islower() and base_language(language) != "de":
        return in_lower_case
    capitalized_ids, lower_case_ids = tokenizer.encode_batch([text, in_lower_case], target=True)
    is_noun = len(capitalized_ids) <= len(lower_case_ids)
    return text if is_noun else in_lower_case
