"""Abbreviations and German forms for all genders."""

from __future__ import annotations

import time

import pytest

from nmt.text.abbreviations import find_abbreviations, is_gendered, write_out
from nmt.text.sentences import split_sentences
from nmt.text.spans import apply_edits


def written_out(text: str, language: str) -> str:
    return apply_edits(text, write_out(text, language))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Es kostet 2 Mrd. Euro.", "Es kostet 2 Milliarden Euro."),
        ("Es kostet 1 Mio. Euro.", "Es kostet 1 Million Euro."),
        ("Es sind 1,5 Mio Menschen.", "Es sind 1,5 Millionen Menschen."),
        ("Es dauert 3 Std. und 20 Min.", "Es dauert 3 Stunden und 20 Minuten."),
        ("Es dauert 5 Min. Wir gehen.", "Es dauert 5 Minuten. Wir gehen."),
        ("(ca. 5 Min.)", "(ca. 5 Minuten.)"),
        ("Am 3. Jan. 2020 im 19. Jh.", "Am 3. Januar 2020 im 19. Jahrhundert."),
        (
            "Siehe Abb. 3, S. 12 und Art. 5 Abs. 2.",
            "Siehe Abbildung 3, Seite 12 und Artikel 5 Absatz 2.",
        ),
        ("Vgl. Kap. 2 bzw. 3.", "Siehe Kapitel 2 beziehungsweise 3."),
        ("Das ist u. a. ein Grund.", "Das ist unter anderem ein Grund."),
        ("Mind. 3, max. 5 Hunde.", "Mindestens 3, maximal 5 Hunde."),
        ("Liebe Student:innen!", "Liebe Studentinnen!"),
        ("Jede:r Lehrer*in und alle Ärzt_innen.", "Jeder Lehrerin und alle Ärztinnen."),
        ("Die Mitarbeiter/-innen kommen.", "Die Mitarbeiterinnen kommen."),
        ("Karl V. von Spanien und Karl VI. Er kam.", "Karl V von Spanien und Karl VI. Er kam."),
        ("Am Mo., 5. Jan., mit Fr. Weber", "Am Montag, 5. Januar, mit Frau Weber"),
        ("Äpfel, Birnen u. a.", "Äpfel, Birnen und andere."),
        ("Weber u. a. (2010)", "Weber und andere (2010)"),
        ("Es kostet eine Mio. Euro.", "Es kostet eine Millionen Euro."),
        ("100 Euro zzgl. MwSt., exkl. Versand", "100 Euro plus MwSt., ohne Versand"),
        ("Am Fr. Abend, Mo. und Di. 8 Uhr", "Am Freitag Abend, Montag und Dienstag 8 Uhr"),
        ("Mo.-Fr. 8-18 Uhr, Sa.–So. 9 Uhr", "Mo-Fr 8-18 Uhr, Sa–So 9 Uhr"),
        (
            "Es dauert 2 Std. Anschließend essen wir.",
            "Es dauert 2 Stunden. Anschließend essen wir.",
        ),
        ("Kosten: 5 Mio. Dauer: 3 Std.", "Kosten: 5 Millionen. Dauer: 3 Stunden."),
        ("Ein:e neue:r Ärzt:in und Co-Leiter:innen", "Ein:e neuer Ärztin und Co-Leiterinnen"),
        ("Am Sonnabend, sonnabends, Sonnabendabend", "Am Samstag, samstags, Samstagabend"),
        ("Nur 5,- Euro, 1.150,–\u00a0€ und 9,-- EUR", "Nur 5 Euro, 1.150\u00a0€ und 9 EUR"),
        ("Ab € 2.500,–, EUR 9,-- im Jahr", "Ab € 2.500, EUR 9 im Jahr"),
        # Names and other words
        ("Frau Sonnabend hat 5,- und 2,5 Euro", "Frau Sonnabend hat 5,- und 2,5 Euro"),
        ("Mein Sohn heißt Max. 5 Tage war er da.", "Mein Sohn heißt Max. 5 Tage war er da."),
        ("Ich mag diese Art. 5 gibt es.", "Ich mag diese Art. 5 gibt es."),
        ("Nach § 5 Abs. 1 S. 2 UStG", "Nach § 5 Absatz 1 S. 2 UStG"),
        ("Jeden Fr. Markt", "Jeden Fr. Markt"),
        ("Kapitel I. Einleitung. Herr X. kam.", "Kapitel I. Einleitung. Herr X. kam."),
        ("Name:in, Thema:in, Wert_in, Zahl*in", "Name:in, Thema:in, Wert_in, Zahl*in"),
        ("page_n, seite*n und Größe:n", "page_n, seite*n und Größe:n"),
        ("Das ist Max. Er kommt mit S. Weber.", "Das ist Max. Er kommt mit S. Weber."),
        ("Die Art. Das Abs. Bis Fr. Wir gehen.", "Die Art. Das Abs. Bis Fr. Wir gehen."),
        ("Er kam um 5. Jan kam später.", "Er kam um 5. Jan kam später."),
    ],
)
def test_german(text: str, expected: str) -> None:
    assert written_out(text, "de") == expected
    assert written_out(text, "de-AT") == expected
    assert len(text.split()) == len(expected.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It takes approx. two hrs.", "It takes approximately two hrs."),
        ("It takes 1 hr. and 20 mins. by car.", "It takes 1 hour and 20 minutes by car."),
        ("It takes 3 hrs. We leave.", "It takes 3 hours. We leave."),
        ("It cost $3.5 mn.", "It cost $3.5 million."),
        ("It cost 2 bn euros.", "It cost 2 billion euros."),
        ("See Fig. 3 and pp. 12-13.", "See Figure 3 and pages 12-13."),
        (
            "From Sept. 3 to Dec. 31, incl. Sundays.",
            "From September 3 to December 31, including Sundays.",
        ),
        (
            "After World War II, before World War I.",
            "After Second World War, before First World War.",
        ),
        ("On Mon., Jan. 5, with Gov. Brown", "On Monday, January 5, with Governor Brown"),
        ("At 20.45 hrs and 20:45 hrs.", "At 20.45 hrs and 20:45 hrs."),
        ("The U.K. left the E.U. It is in the U.N.", "The UK left the EU. It is in the UN."),
        ("He sat in the Sun. The dog slept.", "He sat in the Sun. The dog slept."),
        ("No. 5 is alive.", "Number 5 is alive."),
        ("Do you? No. I do not.", "Do you? No. I do not."),
        ("Bake for 25 min. Let it cool.", "Bake for 25 minutes. Let it cool."),
        ("On 42nd Ave. Parking is free.", "On 42nd Avenue. Parking is free."),
        ("It is in the U.K. His wife left.", "It is in the UK. His wife left."),
        (
            "A 30 min. German lesson for 3 bn. Swiss",
            "A 30 minutes German lesson for 3 billion Swiss",
        ),
        (
            "See ch. 5, sec. 6 and Title 5 Sec. 2.",
            "See chapter 5, section 6 and Title 5 Section 2.",
        ),
        ("A 5 ft. wall took 1/2 hr. to build.", "A 5 foot wall took 1/2 hour to build."),
        ("All incl. in it (VAT excl.)!", "All included in it (VAT excluded)!"),
        (
            "On Fri. at 3, Mon.-Wed. and Sat. or Sun.",
            "On Friday at 3, Monday-Wednesday and Saturday or Sunday.",
        ),
        ("It opens in Sept. Everyone is invited.", "It opens in September. Everyone is invited."),
        ("How long? 2 min.!", "How long? 2 minutes!"),
        ("2 min. (120 sec.)", "2 minutes (120 seconds)"),
        ("In World War I and II", "In First and Second World War"),
        ("In the World War I'll see, not U.K.,", "In the World War I'll see, not UK,"),
        # The word no, a star, a name, a journal
        ("He said no. 12 others agreed.", "He said no. 12 others agreed."),
        ("Is it safe? No. 5 dogs died.", "Is it safe? No. 5 dogs died."),
        ("No. 5 people died.", "No. 5 people died."),
        ("It orbits the Sun. 8 planets do.", "It orbits the Sun. 8 planets do."),
        ("This is Jan. He reads J. Gen. Virol.", "This is Jan. He reads J. Gen. Virol."),
        ("He saw p. and Student:innen.", "He saw p. and Student:innen."),
        ("The dog has 3 legs.", "The dog has 3 legs."),
    ],
)
def test_english(text: str, expected: str) -> None:
    assert written_out(text, "en") == expected
    assert len(text.split()) == len(expected.split())


def test_other_languages_have_none() -> None:
    text = "Student:innen, 2 Mio. et approx. 5 min."
    assert written_out(text, "fr") == text


def test_gendered_words() -> None:
    assert is_gendered("Lehrer_innen", "de")
    assert is_gendered("jede*r", "de")
    assert not is_gendered("Lehrer_innen", "en")
    assert not is_gendered("snake_case", "de")


@pytest.mark.parametrize(
    "repeated",
    ["A-", "Fr. Weber ", "Abb. 3 ", "Karl V. ", "Ärzt:", "5 Std. ", "5,-", "€ 5.", "Sonnabend"],
)
def test_the_time_is_linear(repeated: str) -> None:
    text = repeated * (200_000 // len(repeated))
    start = time.process_time()
    list(write_out(text, "de"))
    list(write_out(text, "en"))
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Es kostet 5 Euro inkl. Versand. Es ist neu.", ["Es kostet 5 Euro inkl. Versand."]),
        ("Die Fa.  Weber baut Abb. Drei. Es ist neu.", ["Die Fa.  Weber baut Abb.", "Drei."]),
    ],
)
def test_no_sentence_ends_after_an_abbreviation_that_is_written_out(
    text: str, sentences: list[str]
) -> None:
    found = [text[start:end] for start, end in split_sentences(text, "de")]
    assert found[: len(sentences)] == sentences


def test_no_sentence_ends_inside_another_one() -> None:
    assert split_sentences("It costs $5 incl. VAT. It is good.", "en") == [(0, 22), (23, 34)]
    assert split_sentences("Alles inkl. Steuer. Gut.", "de") == [(0, 19), (20, 24)]
    assert split_sentences("Rest 5 min. Go on Fri. She left.", "en") == [
        (0, 11),
        (12, 22),
        (23, 32),
    ]
    assert not find_abbreviations("Alles incl. VAT.", "fr")
