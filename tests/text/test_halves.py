"""Numbers and a half in German and English."""

from __future__ import annotations

import pytest

from nmt.text.halves import find_english_halves, german_halves_in_digits, missing_halves
from nmt.text.spans import apply_edits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Anderthalb Liter, eineinhalb Stunden", "1,5 Liter, 1,5 Stunden"),
        ("zweieinhalb Millionen, zwölfeinhalb Prozent", "2,5 Millionen, 12,5 Prozent"),
        ("das Zweieinhalbfache, zweieinhalbjährig", "das Zweieinhalbfache, zweieinhalbjährig"),
    ],
)
def test_german_halves_are_written_in_digits(text: str, expected: str) -> None:
    assert apply_edits(text, german_halves_in_digits(text)) == expected


@pytest.mark.parametrize(
    ("source", "text", "missing"),
    [
        ("Two and a half years.", "Zwei und eine halbe Jahre.", ["2.5"]),
        ("Two and a half years.", "Zweieinhalb Jahre.", []),
        ("One and a half hours.", "Anderthalb Stunden.", []),
        ("One and a half or three and a half.", "1,5 oder 3½.", []),
        ("Two-and-a-half hours.", "Zweiundzwanzig Stunden.", ["2.5"]),
        ("A two-and-a-half-year-old.", "Ein Zwei-und-jähriger.", ["2.5"]),
        ("A two-and-a-half-year-old.", "Ein Zweieinhalbjähriger.", []),
        ("Two-and-a-half-dozen eggs.", "Zwei Dutzend.", []),
        ("One and a half hours.", "1 1/2 Stunden.", []),
        ("On Two and a Half Men", "In Two and a Half Men", []),
        ("Two and a half million.", "Zwei Millionen.", []),  # not known to be wrong
        ("He came, and a half hour later I did.", "Er kam.", []),
    ],
)
def test_halves_that_a_german_translation_lacks(source: str, text: str, missing: list[str]) -> None:
    assert missing_halves(source, text, "en", "de") == missing
    assert find_english_halves(source, "en", "fr") == []


def test_a_half_in_a_title_has_a_capital() -> None:
    halves = find_english_halves("Two and a Half Men in two and a half hours", "en", "de")
    assert [half.german_word for half in halves] == ["Zweieinhalb", "zweieinhalb"]
