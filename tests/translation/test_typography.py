"""Punctuation as the source and the target language have it."""

from __future__ import annotations

import time

import pytest

from nmt.translation.typography import correct_typography


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("A - b - c", "A – b - c", "A - b - c"),
        ("A – b – c", "A – b – c", "A – b – c"),
        ("A—b", "A – b", "A – b"),
        ("On (Monday)", "Am ( Montag)", "Am (Montag)"),
        ("Press [Ctrl]", "Drücke [ Strg]", "Drücke [Strg]"),
        ("[ ] Done", "[ ] Fertig", "[ ] Fertig"),
        ("Well ...", "Nun …", "Nun ..."),
        ("Well … and ...", "Nun … und …", "Nun … und …"),
        ('He has a "plan."', 'Er hat einen "Plan."', 'Er hat einen "Plan".'),
        ("He has a “plan.” We go.", "Er hat „Pläne.“ Wir gehen.", "Er hat „Pläne“. Wir gehen."),
        ('He said: "I go."', 'Er sagte: "Ich gehe."', 'Er sagte: "Ich gehe."'),
        ('He said, "I go."', 'Er sagte, "ich gehe."', 'Er sagte, "ich gehe."'),
        ('"I go."', '"Ich gehe."', '"Ich gehe."'),
        ('He has "plans. No."', 'Er hat "Pläne. Nein."', 'Er hat "Pläne. Nein."'),
        ('"I know." "Good."', '"Ich weiß." "Gut."', '"Ich weiß." "Gut."'),
        ('- "Yes." - "No."', '- "Ja." - "Nein."', '- "Ja." - "Nein."'),
        ('The word "love." is short.', 'Das "Wort." ist da.', 'Das "Wort." ist da.'),
        ('I like "A Co." Do you?', 'Ich mag "A Co." Du?', 'Ich mag "A Co." Du?'),
        ('He has a "plan".', 'Er hat einen "Plan."', 'Er hat einen "Plan."'),
        ("Anna's car, Otto’s house", "Anna' Auto, Otto’ Haus", "Annas Auto, Ottos Haus"),
        ("Chavez's, Franz's and Max's car", "Max' Auto", "Max' Auto"),
        ("Alice's car", "Alice' Auto", "Alice' Auto"),
        ("D'Arcy's dog", "D'Arcy' Hund", "D'Arcys Hund"),
        ("Guns N' Roses", "Guns N' Rose", "Guns N' Rose"),
        ("Anna's ‘old Anna’ here", "Annas ‘alte Anna’ hier", "Annas ‘alte Anna’ hier"),
        ("Wendy's is open", "Wendy's ist offen", "Wendy's ist offen"),
        ("the 'Anna' virus", "das 'Anna' Virus", "das 'Anna' Virus"),
    ],
)
def test_translations_into_german(source: str, text: str, expected: str) -> None:
    assert correct_typography(source, text, "en", "de") == expected


def test_other_languages_keep_their_quotation_marks() -> None:
    text = 'Hat sie "Pläne."'
    assert correct_typography('Has "plans."', text, "en", "fr") == text


def test_the_time_of_genitives_is_linear() -> None:
    text = "Anna-" * 20_000
    start = time.process_time()
    correct_typography(text, text, "en", "de")
    assert time.process_time() - start < 2
