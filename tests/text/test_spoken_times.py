"""Times in words in German and English."""

from __future__ import annotations

import pytest

from nmt.text.spans import apply_edits
from nmt.text.spoken_times import (
    find_spoken_times,
    half_hour_edits,
    missing_times,
    spell_hours,
)

GERMAN_HOURS = "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split()
ENGLISH_HOURS = "twelve one two three four five six seven eight nine ten eleven".split()


def corrected(source: str, text: str, src: str, tgt: str) -> tuple[str, list[str]]:
    """Return a corrected translation, and the times that it lacks."""
    edited = apply_edits(text, half_hour_edits(source, text, src, tgt))
    return edited, missing_times(source, edited, src, tgt)


@pytest.mark.parametrize(
    ("german", "english"), [*zip(GERMAN_HOURS, ENGLISH_HOURS, strict=True)], ids=ENGLISH_HOURS
)
def test_german_names_the_next_hour(german: str, english: str) -> None:
    source = f"Der Zug fährt um halb {german}."
    right = f"The train leaves at half past {english}."
    assert corrected(source, right, "de", "en") == (right, [])
    assert corrected(right, source, "en", "de") == (source, [])
    copied = ENGLISH_HOURS[GERMAN_HOURS.index(german) + 1 - 12]
    wrong = f"The train leaves at half past {copied}."
    assert corrected(source, wrong, "de", "en") == (right, [])


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("Halb acht ist spät.", "Half of eight is late.", "Half past seven is late."),
        ("Um halb eins.", "At half one.", "At half past twelve."),
        ("Um halb drei.", "At 2:30.", "At 2:30."),
        ("Um halb drei.", "At two-thirty p.m.", "At two-thirty p.m."),
        ("Um halb acht.", "At half seven.", "At half seven."),  # as the British say it
        (
            "Von halb zwei bis halb drei.",
            "From half past two to half past three.",
            "From half past one to half past two.",
        ),
        ("Das Glas ist halb voll.", "The glass is half full.", "The glass is half full."),
    ],
)
def test_translations_into_english(source: str, text: str, expected: str) -> None:
    assert corrected(source, text, "de-AT", "en-GB") == (expected, [])


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("It is half past six.", "Es ist halb sechs.", "Es ist halb sieben."),
        ("HALF-PAST TWELVE", "HALB ZWÖLF", "Halb eins"),
        ("Come at half six.", "Komm um halb sechs.", "Komm um halb sieben."),
        ("By half past six.", "Bis 18:30 Uhr.", "Bis 18:30 Uhr."),
        ("By half past six.", "Bis sechs Uhr dreißig.", "Bis sechs Uhr dreißig."),
        ("Half of six is three.", "Halb sechs ist drei.", "Halb sechs ist drei."),
    ],
)
def test_translations_into_german(source: str, text: str, expected: str) -> None:
    assert corrected(source, text, "en", "de") == (expected, [])


def test_other_half_hours_are_missing() -> None:
    source = "Between half past two and half past four."
    assert corrected(source, "Zwischen halb fünf.", "en", "de") == (
        "Zwischen halb fünf.",
        ["2:30"],
    )
    assert missing_times("Um halb eins.", "At noon.", "de", "en") == ["12:30"]
    assert missing_times("Um halb eins.", "À midi.", "de", "fr") == []
    assert find_spoken_times("à six heures et demie", "fr") == []


@pytest.mark.parametrize(
    ("german", "english"),
    [
        ("um viertel acht", "at a quarter past seven"),
        ("um dreiviertel acht", "at a quarter to eight"),
        ("um drei viertel acht", "at 7:45"),
        ("um Viertel nach eins", "at one-fifteen"),
        ("um Viertel vor eins", "at a quarter to one"),
        ("um 12.45 Uhr", "at a quarter to one"),
        ("um halb eins", "at half past midnight"),
        ("um Viertel vor zwölf", "at a quarter to noon"),
        ("um sieben Uhr fünfzehn", "at a quarter after seven"),
    ],
)
def test_quarters_are_compared(german: str, english: str) -> None:
    assert missing_times(german, english, "de", "en") == []
    assert missing_times(english, german, "en", "de") == []


def test_other_quarters_are_missing() -> None:
    assert missing_times("Um viertel acht.", "At a quarter to eight.", "de", "en") == ["7:15"]
    assert missing_times("At a quarter to eight.", "Um acht.", "en", "de") == ["7:45"]
    assert missing_times("Das Viertel nach acht Tagen.", "The quarter.", "de", "en") == []
    assert missing_times("The third quarter of eight.", "Viertel.", "en", "de") == []


@pytest.mark.parametrize(
    "text",
    [
        "Profits rose by a quarter to five million.",
        "It fell a quarter to 12 percent.",
        "It fell a quarter to 12% in May.",
        "From 15 in the first quarter to 12 in the second.",
        "In the quarter after two losses.",
        "The share rose from one quarter to one third.",
        "Cut by half two years ago.",
        "About half two years ago.",
        "At half one of the teams.",
        "By half 50, in half past 30.",
    ],
)
def test_amounts_are_no_times(text: str) -> None:
    assert find_spoken_times(text, "en") == []


@pytest.mark.parametrize(
    "text",
    [
        "At half two.",
        "By half 2 tomorrow (we go)",
        "Until half two on Monday",
        "At half two UK time",
        "From half two, around half-one",
        "Come at a quarter to two in the afternoon",
        "A quarter to two o'clock",
        "Half past two percent",
    ],
)
def test_hours_are_recognized_by_what_follows(text: str) -> None:
    assert len(find_spoken_times(text, "en")) == 1


def test_a_time_has_its_article() -> None:
    text = "At a quarter to two"
    [time] = find_spoken_times(text, "en")
    assert text[time.start : time.end] == "a quarter to two"


@pytest.mark.parametrize("text", ["Um Viertel acht.", "Viertel acht.", "Es ist viertel acht."])
def test_a_quarter_before_an_hour_is_a_time(text: str) -> None:
    [time] = find_spoken_times(text, "de")
    assert time.clock == "7:15"


@pytest.mark.parametrize("text", ["In diesem Viertel acht Häuser.", "Im dritten Viertel acht."])
def test_a_district_or_part_before_a_number_is_no_time(text: str) -> None:
    assert find_spoken_times(text, "de") == []


def test_numbers_of_times_are_written_in_words() -> None:
    text = "Um halb 9, halb\u00a012 oder 8:30"
    assert apply_edits(text, spell_hours(text, "de")) == "Um halb neun, halb\u00a0zwölf oder 8:30"
    assert apply_edits("half past 8.5", spell_hours("half past 8.5", "en")) == "half past 8.5"
