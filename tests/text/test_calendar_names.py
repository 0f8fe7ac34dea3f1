"""Days and months in German and English."""

from __future__ import annotations

import time

import pytest

from nmt.text.calendar_names import missing_names


@pytest.mark.parametrize(
    ("source", "text", "missing"),
    [
        ("On Tuesday, not on Friday.", "Am Donnerstag, nicht am Freitag.", ["Dienstag"]),
        ("He came on Saturday.", "Er kam am Sonnabend.", []),
        ("It is closed on Mondays.", "Montags ist zu.", []),
        ("On Easter Sunday.", "Am Ostersonntag.", []),
        ("On Black Friday.", "Am Black Friday.", []),
        ("In January or February.", "Im Jan. oder Februar.", []),
        ("On 6 December.", "Am 6.12.", []),
        ("On Monday, 6 December.", "Am 6.12.", ["Montag"]),
        ("May and March on.", "Dürfen und gehen.", []),
        ("In May, on March 3 and 4 May.", "Bald.", ["Mai", "März"]),
        ("In July, July and July.", "Bald.", ["Juli"]),
        ("Tomorrow or the day after tomorrow.", "Morgen.", ["übermorgen"]),
        ("The day before yesterday, on Monday.", "Gestern.", ["vorgestern", "Montag"]),
        ("In early May, until March.", "Bald.", ["Mai", "März"]),
        ("The movie Edge of Tomorrow", "Der Film Edge of Tomorrow", []),
        ("The day after tomorrow's exam.", "Der Tag nach dem morgigen.", []),
        ("The day before yesterday's exam.", "Der Tag vor der gestrigen.", []),
        ("Watch The Day After Tomorrow", "Sieh Der Tag danach", []),
        ("Come tomorrow.", "Komm tomorrow.", ["morgen"]),
        ("Yesterday's news, Yesterdays", "Die gestrige Zeitung", []),
    ],
)
def test_names_that_a_german_translation_lacks(source: str, text: str, missing: list[str]) -> None:
    assert missing_names(source, text, "en-US", "de") == missing
    assert missing_names(source, text, "en", "fr") == []


@pytest.mark.parametrize(
    ("source", "text", "missing"),
    [
        ("Am Sonnabend.", "On Saturday.", []),
        ("Am Dienstagabend.", "On Thursday evening.", ["Tuesday"]),
        ("Im Mai ist Mais reif.", "Corn is ripe.", ["May"]),
        ("Mais im Junior-Team", "Corn", []),
        ("Vorgestern war ich krank.", "I was sick last night.", ["the day before yesterday"]),
        ("Gestern Abend, gestern", "Last night", []),
    ],
)
def test_names_that_an_english_translation_lacks(
    source: str, text: str, missing: list[str]
) -> None:
    assert missing_names(source, text, "de", "en") == missing


def test_the_time_is_linear() -> None:
    source = "Montag Mai vorgestern " * 5_000
    start = time.process_time()
    missing = missing_names(source, "x" * 100_000, "de", "en")
    assert time.process_time() - start < 2
    assert missing == ["the day before yesterday", "Monday", "May"]
