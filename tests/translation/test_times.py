"""Times of day in German and English."""

from __future__ import annotations

import pytest

from nmt.translation.times import correct_times, localize_time


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
