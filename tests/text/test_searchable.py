"""Text with decomposed letters, marks and soft hyphens: offsets, and what patterns find in it."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.placeholders import contains_separate
from nmt.text.number_words import NumberWord, find_number_words
from nmt.text.searchable import SearchableText, marks_as_letters
from nmt.text.spans import compile_patterns, find_spans

# Letters that NFC composes, reorders, decomposes (U+0958) or replaces (U+212B), and Hangul parts.
CHARACTERS = "ab5 .→ö한हिด้का\u0301\u0308\u0323\u0338\u0958\u212b\u09c7\u09be\u1100\u1161\u11a8"


def decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


def found(text: str, *expressions: str) -> list[str]:
    spans = find_spans(text, compile_patterns(expressions))
    return [text[span.start : span.end] for span in spans]


@given(st.text(CHARACTERS, max_size=12))
def test_a_searchable_text_is_composed(original: str) -> None:
    searchable = SearchableText(original)
    assert searchable.text == unicodedata.normalize("NFC", original)
    assert len(searchable.words) == len(searchable.text)


@given(st.text(CHARACTERS + "\u00ad", max_size=12))
def test_a_searchable_text_knows_the_offsets_in_the_original(original: str) -> None:
    searchable = SearchableText(original)
    previous = (0, 0)
    for i, character in enumerate(searchable.text):
        start, end = searchable.original_span(i, i + 1)
        assert character in unicodedata.normalize("NFC", original[start:end])
        assert previous <= (start, end)
        previous = (start, end)
    if searchable.text:
        start, end = searchable.original_span(0, len(searchable.text))
        assert not (original[:start] + original[end:]).strip("\u00ad")


def test_marks_of_words_are_letters() -> None:
    assert marks_as_letters("हिन्दी!").rstrip("!").isalpha()
    assert marks_as_letters("ด้า") == "ดกา"  # of a script without spaces, too
    for text in ("größe", "a “b” €5", "→\u0338 ❤\ufe0f 👩\u200d🔬"):
        assert marks_as_letters(text) == text


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("Open the file größe.txt now.", ["größe.txt"]),
        ("Open café.txt or /home/jörg/müller.pdf.", ["café.txt", "/home/jörg/müller.pdf"]),
        ("Write to jörg@example.de in 5 days.", ["jörg@example.de", "5"]),
        ("Use %(größe)s, $größe and #größe.", ["%(größe)s", "$größe", "#größe"]),
        ("Set my_größe to 5.", ["5"]),
        ("Open हिन्दी.txt or my_हिन्दी_x.", ["हिन्दी.txt"]),
        ("Open क्‍ष.txt or gr\u00adoesse.txt.", ["क्‍ष.txt", "gr\u00adoesse.txt"]),
    ],
)
def test_protected_spans_of_decomposed_text(text: str, spans: list[str]) -> None:
    assert found(text) == spans
    assert found(decomposed(text)) == [decomposed(span) for span in spans]


def test_custom_patterns_match_however_letters_are_encoded() -> None:
    for expression in ("Größe", decomposed("Größe"), "Gr.ße", r"Gr\w+"):
        for text in ("Die Größe", decomposed("Die Größe"), "Die Grö\u00adße"):
            assert found(text, expression) == [text[4:]]
    assert found(decomposed("Die Größe"), "Gro", "o") == []


def test_many_matches_of_a_custom_pattern() -> None:
    text = "12 x13 " * 20_000
    # With quadratic time, this would take minutes.
    assert found(text, "1[23]") == ["12", "x13"] * 20_000


def test_number_words_of_decomposed_text() -> None:
    text = decomposed("Um fünf kamen zwölf Hunde.")
    numbers = find_number_words(text, "de")
    assert numbers == [NumberWord(3, 8, 5), NumberWord(15, 21, 12)]
    hyphenated = find_number_words("fünf\u00adund\u00adzwanzig", "de")
    assert hyphenated == [NumberWord(0, 16, 25)]


def test_a_span_is_not_in_a_word_that_continues_with_a_mark() -> None:
    for part, word in (("हिन्द", "हिन्दी"), ("मत", "कीमत"), ("gro", decomposed("grö"))):
        assert not contains_separate(word, part)
        assert contains_separate(f"{part}, {word}", part)
        assert contains_separate(f"({word})", word)
    assert contains_separate("180°C/350°F", "180°C")
    assert not contains_separate("5/3", "5")
    assert contains_separate("ที่5", "5")  # numbers in Thai have no spaces around them
