"""Times of day in German and English."""

from __future__ import annotations

import pytest

from nmt.translation.times import correct_times, localize_time, missing_hours


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("Um 20:15 Uhr.", "At 8:15 a.m.", "At 8:15 p.m."),
        ("Um 20.15 Uhr.", "At 8.15 AM.", "At 8.15 PM."),
        ("Um 20 Uhr schläft er.", "At 8am he sleeps.", "At 8pm he sleeps."),
        ("Um 0.30 Uhr.", "At 12:30 p.m.", "At 12:30 a.m."),
        ("Um 0.30 Uhr.", "At 0:30 a.m.", "At 12:30 a.m."),
        ("Um 0.30 Uhr.", "At 0:30.", "At 0:30."),
        ("Um 14.05 Uhr.", "At 14:05 p.m.", "At 14:05."),
        ("Um 14.05 Uhr fährt er ab.", "At 14:05 p.m. he leaves.", "At 14:05 he leaves."),
        (
            "Er fährt um 14 Uhr. Dann ich.",
            "He leaves at 14 p.m. Then I.",
            "He leaves at 14. Then I.",
        ),
        ("Um 8 Uhr abends.", "At 8 a.m.", "At 8 p.m."),
        ("Zwischen 13 und 15 Uhr.", "Between 13 and 3 p.m.", "Between 1 and 3 p.m."),
        ("Von 19.30-21 Uhr.", "From 19:30-9 a.m.", "From 7:30-9 p.m."),
        ("Von 22 bis 2 Uhr.", "From 22 to 2 a.m.", "From 22 to 2 a.m."),
        ("Um 8 Uhr morgens.", "At 8 p.m.", "At 8 a.m."),
        # In these, the half of the day is right or not certain.
        ("Um 20:15 Uhr.", "At 8:15 p.m.", "At 8:15 p.m."),
        ("Von 8 Uhr bis 20 Uhr.", "From 8 a.m. to 8 p.m.", "From 8 a.m. to 8 p.m."),
        ("Heute Abend um 8 Uhr.", "Tonight at 8 p.m.", "Tonight at 8 p.m."),
        ("Um 20:15 Uhr.", "At 9:15 a.m.", "At 9:15 a.m."),
    ],
)
def test_english_times(source: str, text: str, expected: str) -> None:
    assert correct_times(source, text, "de", "en") == expected
    assert correct_times(source, text, "de", "fr") == text


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("At 2 p.m.", "Um 2 Uhr.", "Um 14 Uhr."),
        ("At 2:30pm", "Um 2.30 Uhr", "Um 14.30 Uhr"),
        ("At 12 a.m.", "Um 12 Uhr.", "Um 0 Uhr."),
        ("From 2 to 5 p.m.", "Von 2 bis 17 Uhr.", "Von 14 bis 17 Uhr."),
        ("From 2 to 5 p.m.", "Von 2 bis 5 Uhr.", "Von 14 bis 17 Uhr."),
        ("At 3:15 or 4 p.m.", "Um 3:15 oder 16 Uhr.", "Um 15:15 oder 16 Uhr."),
        ("From 10 to 2 p.m.", "Von 10 bis 14 Uhr.", "Von 10 bis 14 Uhr."),
        ("At 2 p.m.", "Um 14 Uhr.", "Um 14 Uhr."),
        ("At 8 p.m.", "Um 8 Uhr abends.", "Um 8 Uhr abends."),
        ("From 8 a.m. to 8 p.m.", "Von 8 Uhr bis 20 Uhr.", "Von 8 Uhr bis 20 Uhr."),
        ("At 7 p.m.", "Um 8 Uhr.", "Um 8 Uhr."),
    ],
)
def test_german_times(source: str, text: str, expected: str) -> None:
    assert correct_times(source, text, "en", "de") == expected


def test_the_point_in_a_time_becomes_a_colon() -> None:
    assert localize_time("8.30", " Uhr.") == "8:30"
    assert localize_time("8.30", " Euro") == "8.30"
    assert localize_time("8.3", " Uhr") == "8.3"


@pytest.mark.parametrize(
    ("source", "text", "hours"),
    [
        ("Call me at 3 or 4 p.m.", "Rufen Sie mich um 16 Uhr an.", [3]),
        ("From 5 p.m. to 7 p.m.", "Von 19 bis 19 Uhr.", [5]),
        ("From 5 p.m. to 7 p.m.", "Von 17 bis 19 Uhr.", []),
        ("At 2:30 p.m. in room 12.", "Um halb drei in Raum 12.", []),
        ("At 12 p.m.", "Am Mittag.", []),
        ("At 8 p.m.", "Um acht Uhr abends.", []),
        ("At 2 p.m.", "Um 2 Uhr.", []),
        ("The price is 20 euros.", "Der Preis ist hoch.", []),
    ],
)
def test_hours_must_not_get_lost(source: str, text: str, hours: list[int]) -> None:
    assert missing_hours(source, text, "en", "de") == hours
    assert missing_hours(source, text, "en", "fr") == []


def test_hours_of_german_times_must_not_get_lost() -> None:
    source = "Zwischen 13 und 15 Uhr ist niemand da."
    assert missing_hours(source, "Nobody is here between 1 and 3 p.m.", "de", "en") == []
    assert missing_hours(source, "Nobody is here at 3 p.m.", "de", "en") == [1]
