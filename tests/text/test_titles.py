"""English titles, read as sentences."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from nmt.text.spans import apply_edits
from nmt.text.titles import as_sentence, is_title

KNOWN = frozenset("mayor city ban car cars school open open jobs Jobs claim prize win".split())
"""Words that are one piece of the tokenizer; the others are as many as they have letters."""


def count_pieces(words: Sequence[str]) -> list[int]:
    return [1 if word in KNOWN else len(word) for word in words]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mayor of the City to Ban Cars", "Mayor of the city to ban cars"),
        ("The School Opens: City Claims a Prize", "The school opens: City claims a prize"),
        ("How Is Steve Jobs Opening Cars?", "How is Steve Jobs opening cars?"),
        ("City Jobs for NASA and I Win Prizes", "City jobs for NASA and I win prizes"),
        ("Car (Jobs, Cars) in the City School", "Car (Jobs, cars) in the city school"),
        ("The City Wins: Item No. 5 and Prize", "The city wins: Item No. 5 and prize"),
        ('"Car" Ban for the Whole City School', '"Car" ban for the Whole city school'),
    ],
)
def test_only_names_stay_capitalized(text: str, expected: str) -> None:
    assert is_title(text)
    assert apply_edits(text, as_sentence(text, count_pieces)) == expected


def test_time_is_linear() -> None:
    start = time.process_time()
    assert list(as_sentence("City Mayor " * 10_000, count_pieces))
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    "text",
    [
        "The mayor wants to ban cars in Paris.",
        "Microsoft Visual Studio Code",
        "Bank of America",
        "Tom was at the Golden Gate Bridge.",
        "Isn't that the Golden Gate Bridge?",
        "MAYOR OF THE CITY TO BAN CARS",
        "Mayor Smith Sued for Banning all cars",
        "",
    ],
)
def test_other_texts_are_no_titles(text: str) -> None:
    assert not is_title(text)
