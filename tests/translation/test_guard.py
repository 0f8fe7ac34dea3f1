"""Protected spans, placeholders, glossaries and the guard."""

from __future__ import annotations

import json
import random
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tiny
from commandline import CommandLine
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt import Guard, Line, Translation, Translator
from nmt.core.errors import DataError, UsageError
from nmt.data.placeholders import PLACEHOLDERS, replace_spans
from nmt.data.prepare import prepare
from nmt.search import parse_search
from nmt.text.normalization import normalize
from nmt.text.numbers import Context, equivalent_pattern, localize_decimal
from nmt.text.sentences import count_sentences, split_to_fit
from nmt.text.spans import apply_edits, compile_patterns, find_spans
from nmt.text.whitespace import surrounding_whitespace
from nmt.translation.alignment import Link
from nmt.translation.budget import Budget
from nmt.translation.checks import count_occurrences, find_problems, is_missing
from nmt.translation.formats import localized
from nmt.translation.glossary import Glossary, Term
from nmt.translation.periods import without_added_period
from nmt.translation.placement import TermPlacement, edit_words
from nmt.translation.readings import title_as_sentence
from nmt.translation.segments import FixedSpan, as_fixed_spans, protected_spans
from nmt.translation.stand_ins import substitute
from nmt.translation.terms import (
    AlignedText,
    has_lost_preposition,
    is_doubled,
    is_elsewhere,
    is_in_compound,
    term_edits,
)

# ---- protected spans


@pytest.mark.parametrize(
    ("text", "spans"),
    [
        ("My email is john.smith@example.com.", ["john.smith@example.com"]),
        (">>pt_br<< Use snake_case, %lu and %.2lf.", ["snake_case", "%lu", "%.2lf"]),
        ("It rose from 3.2%p to 10%to >>log_file.", ["3.2", "10", "log_file"]),
        (
            "See (https://example.org/a?b=c#d), www.foo.org or example.com/x.",
            ["https://example.org/a?b=c#d", "www.foo.org", "example.com/x"],
        ),
        (
            "Run `pip install x`, foo() and my_var with --long-option -v.",
            ["`pip install x`", "foo()", "my_var", "--long-option", "-v"],
        ),
        ("<b>Bold</b> &amp; so on, x < y.", ["<b>", "</b>", "&amp;"]),
        (
            "Hello {name}, %d, %(count)s, ${HOME}, %1$s, {0} and {{x}}.",
            ["{name}", "%d", "%(count)s", "${HOME}", "%1$s", "{0}", "{{x}}"],
        ),
        (
            "Use %d%% of %{name} and #{name}, 5%% of %1, %%, %n and %PATH%.",
            ["%d%%", "%{name}", "#{name}", "5%%", "%1", "%%", "%n", "%PATH%"],
        ),
        (
            "Open /usr/bin/x, C:\\Users\\me\\a.txt, ./run.sh, ~/x.py, src/main.rs and notes.md.",
            ["/usr/bin/x", "C:\\Users\\me\\a.txt", "./run.sh", "~/x.py", "src/main.rs", "notes.md"],
        ),
        (
            "@john says #hashtag, commit deadbeef1, 0x1F.",
            ["@john", "#hashtag", "deadbeef1", "0x1F"],
        ),
        ("It costs 1,234.50 EUR, $5.99, €20 or 5%.", ["1,234.50 EUR", "$5.99", "€20", "5%"]),
        ("75 kg, 1.80m, -5 °C and 100 km/h", ["75 kg", "1.80m", "-5 °C", "100 km/h"]),
        (
            "At 7:30 on 2024-05-17, 17.05.2024 or 5/17/2024",
            ["7:30", "2024-05-17", "17.05.2024", "5/17/2024"],
        ),
        ("On 2024-05-17 2024-05-18 and 0171 1234567", ["2024-05-17", "2024-05-18", "0171 1234567"]),
        ("Call +49 30 1234567 or (030) 123-4567.", ["+49 30 1234567", "(030) 123-4567"]),
        ("Version 3.11.2 at 192.168.1.1:8080", ["3.11.2", "192.168.1.1:8080"]),
        ("Room 101, 5,000 people, 3-2, 24/7", ["101", "5,000", "3-2", "24/7"]),
        (
            (
                "The 1st and 21st of the 1980s, MP3, B2B and/or his/her Mr. Smith's well-known"
                " 10:30pm."
            ),
            ["MP3", "B2B"],
        ),
        (
            "Use A81-686, x86, i7-9700K and 3D, but not the G20-Gipfel at 5PM on the 2ND of May.",
            ["A81-686", "x86", "i7-9700K", "3D"],
        ),
        (
            "See owner/repo#12, #34 and #4d5967 in 1.0.0-beta.2 or 2.0-rc1.",
            ["owner/repo#12", "#34", "#4d5967", "1.0.0-beta.2", "2.0-rc1"],
        ),
        (
            "It was 50 ₹ or ₽5, 50 µg ± 3, ¼ at 2024-05-17T10:11:12Z.",
            ["50 ₹", "₽5", "50 µg", "±", "3", "¼", "2024-05-17T10:11:12Z"],
        ),
        ("Mix 1½ cups, 2 ¼ l and ¾ l, or 3 more.", ["1½", "2 ¼", "¾", "3"]),
        ("Am 3. Mai und im 19. Jahrhundert.", []),
        ("Am Ende des 18. und bis zur Mitte des 19. Jahrhunderts", []),
        ("Der 2. Weltkrieg, ein 3. Versuch und Mitte 20. Jahrhundert.", []),
        ("Ludwig der 14. Er war der 3. und ich bin 30. Tom ist 5.", ["14", "3", "30", "5"]),
        ("Um 0 Uhr, 16 Uhr, 16.30 Uhr, 4 p.m., 4:30 pm oder 12 a.m.", []),
        ("Um 8 Uhr, um 8.30 Uhr oder 4 a.m.", ["8", "8.30", "4"]),
        ("Von 14 bis 16.30 Uhr, from 2:15 to 5 p.m., 7-8 pm, 14 bis 16 Mal", ["14", "16"]),
        ("Im 19. und 20. Jahrhundert, vom 3. bis zum 5. Mai und am 7., 8. und 9. Juni", []),
        ("Vom 24.12. bis zum 31.12. dauert es 7.9 s.", ["24.12.", "31.12.", "7.9 s"]),
        ("Is it $50k/yr, €1.5M, 2bn or 40k?", ["$50k", "€1.5M", "2bn", "40k"]),
        ("1.200.000, 1.2.3 und 192.168.100.200", ["1.200.000", "1.2.3", "192.168.100.200"]),
        ("I don't know. Really?", []),
        ("Call My.App.Main or A.B.X, Mr.Bell.", ["My.App.Main"]),
        ("a \ue000 b", ["\ue000"]),
        ("Hi {{ user.name }}, {% if x %}<%= y %>", ["{{ user.name }}", "{% if x %}", "<%= y %>"]),
        (
            "You have {n, plural, one {# dog} other {# dogs}} today.",
            ["{n, plural, one {# dog} other {# dogs}}"],
        ),
        (
            "There are {count, plural, =0{no dogs} other{{count} dogs}} here, {n}.",
            ["{count, plural, =0{no dogs} other{{count} dogs}}", "{n}"],
        ),
        (
            "I {g, select, a{{n, plural, one{see {n} dog} other{see dogs}}} other{sleep}} today.",
            ["{g, select, a{{n, plural, one{see {n} dog} other{see dogs}}} other{sleep}}"],
        ),
        (
            "{0,choice,0#no dogs|1<{0} dogs} at {0,number,#.#}",
            ["{0,choice,0#no dogs|1<{0} dogs}", "{0,number,#.#}"],
        ),
        ("You have %,d dogs, %,.2f kg, 5%, die", ["%,d", "%,.2f", "5%"]),
        (
            "See $t(menu.file), @:link.key and <0>this</0> :smile: now: yes",
            ["$t(menu.file)", "@:link.key", "<0>", "</0>", ":smile:"],
        ),
        (
            "See @.lower:menu.file, @:(menu.file) or @.upper:{'menu.file'}.",
            ["@.lower:menu.file", "@:(menu.file)", "@.upper:{'menu.file'}"],
        ),
        (
            "Sign here ____, at __/__/____ (or __) for $____, Mr._____.",
            ["____", "__/__/____", "__", "$____", "_____"],
        ),
        (
            r"Name\_\_\_\_Date____ and \_\_ for _____years, ___init and __",
            [r"\_\_\_\_", "____", r"\_\_", "_____", "___init", "__"],
        ),
        (
            "The __init__ of snake__case is __very__ __(very)__ good_ and _bad_.",
            ["__init__", "__very__", "_bad_"],
        ),
        (
            "Part ....... 3 of it... and A.......B, place ………… and … or . . . . 5 -------- 6",
            [".......", "3", ".......", "…………", ". . . .", "5", "--------", "6"],
        ),
        ("© Example ¶, Step → Step ★ by R&D 👍🏽!", ["©", "¶", "→", "★", "R&D", "👍🏽"]),
    ],
)
def test_protected_spans(text: str, spans: list[str]) -> None:
    assert [text[span.start : span.end] for span in find_spans(text)] == spans


@pytest.mark.parametrize(
    ("text", "span", "kind"),
    [
        ("Ask ACME 3000 now.", "ACME 3000", "custom"),
        ("See https://ACME.com/docs.", "https://ACME.com/docs", "url"),
        ("by ACME 9001:2015", "ACME 9001", "custom"),
    ],
)
def test_custom_patterns_take_precedence_except_over_longer_spans_around_them(
    text: str, span: str, kind: str
) -> None:
    spans = find_spans(text, [re.compile(r"ACME( \d+)?")])
    assert [(text[each.start : each.end], each.kind) for each in spans] == [(span, kind)]


@pytest.mark.parametrize("expression", ["(", "a*", "", "a{4294967295}"])
def test_an_invalid_pattern_is_an_error(expression: str) -> None:
    with pytest.raises(UsageError, match="--protect"):
        compile_patterns([expression])


@given(st.text(max_size=60))
def test_spans_are_in_order_and_do_not_overlap(text: str) -> None:
    spans = find_spans(text)
    assert all(span.start < span.end for span in spans)
    assert all(a.end <= b.start for a, b in pairwise(spans))


def test_long_text_without_spaces() -> None:
    assert find_spans("a." * 50_000) == []  # with quadratic time, this would take minutes
    text = "a" + "." * 50_000
    assert split_to_fit(text, "en", lambda start, end: count_sentences(text[start:end], "en") <= 1)


# ---- training with placeholders


def test_spans_of_both_sides_become_placeholders() -> None:
    pairs = [
        ("See http://a.org and b@c.de.", "Siehe http://a.org und b@c.de."),
        ("See b@c.de, not http://a.org.", "Nicht http://a.org, sondern b@c.de."),
        ("See http://a.org.", "Siehe dort."),  # the target has no such span
        ("It is 5 and 15.", "Es ist 5 und 15."),  # the model reads numbers
        ("a.txt is in /etc/a.txt.", "Es liegt in /etc/a.txt."),
    ]
    assert list(replace_spans(pairs))[:4] == [
        ("See \ue000 and \ue001.", "Siehe \ue000 und \ue001."),
        ("See \ue000, not \ue001.", "Nicht \ue001, sondern \ue000."),
        *pairs[2:4],
    ]
    # A part of another span is not replaced in it.
    assert list(replace_spans(pairs))[4] == ("a.txt is in \ue000.", "Es liegt in \ue000.")


def test_blanks_of_training_data_stay() -> None:
    pairs = [("Is it ____?", "Ist es ____?"), ("Dogs ...... 3", "Hunde ...... 3")]
    assert replace_spans(pairs) == pairs


def test_some_names_become_placeholders_whatever_the_order_of_the_pairs() -> None:
    pairs = [(f"Tom sees a {i}th dog", f"Tom sieht den Hund {i}") for i in range(2000)]
    replaced = dict(zip(pairs, replace_spans(pairs), strict=True))
    changed = [pair for pair in pairs if replaced[pair] != pair]
    assert 60 < len(changed) < 140
    assert all(
        replaced[pair][0].startswith("\ue000 sees") and "\ue000" in replaced[pair][1]
        for pair in changed
    )
    assert dict(zip(pairs[::-1], replace_spans(pairs[::-1]), strict=True)) == replaced


@pytest.mark.parametrize("model_type", ["bpe", "unigram"])
def test_a_model_trained_with_placeholders_reads_them_as_pieces(
    tmp_path: Path, model_type: str
) -> None:
    config = tiny.config(tmp_path, "data.placeholders=true", f"tokenizer.model_type={model_type}")
    with (tmp_path / "train.en").open("a") as en, (tmp_path / "train.de").open("a") as de:
        en.write("be at x@y.org ba\n")
        de.write("ba x@y.org be\n")
    data = prepare(config)
    sources, targets = data.lines("train")
    assert "be at \ue000 ba" in sources
    assert "ba \ue000 be" in targets
    tokenizer = data.tokenizer()
    for placeholder in PLACEHOLDERS:
        pieces = tokenizer.ids_to_pieces(tokenizer.encode(f"ba {placeholder}, bo"))
        assert placeholder in pieces
        assert (
            tokenizer.decode(tokenizer.encode(f"ba {placeholder}, bo")) == f"ba {placeholder}, bo"
        )
    assert (
        prepare(replace(config, data=replace(config.data, placeholders=False))).directory
        != data.directory
    )


# ---- substitution


def test_substitution_restores_spans_and_alignment() -> None:
    text = "see `a b` and x@y.de now"
    line = Line(text, fixed=protected_spans(text))
    substitution = substitute(line, ["X", "Y"])
    assert substitution.line.text == "see X and Y now"
    alignment = tuple((i, 4 - i) for i in range(5))
    restored = substitution.restore(
        Translation("jetzt Y und X siehe", 0.0, 0.0, alignment=alignment)
    )
    assert restored.text == "jetzt x@y.de und `a b` siehe"
    assert {target: source for source, target in restored.alignment} == {
        5: 0,
        3: 1,
        4: 2,
        2: 3,
        1: 4,
        0: 5,
    }
    # A tokenizer may split words at a character such as U+00B4.
    unknown = tuple((i, i) for i in range(7))
    assert (
        len(substitution.restore(Translation("a b c d e", 0.0, 0.0, alignment=unknown)).alignment)
        >= 5
    )


def test_symbols_next_to_words_have_spaces_that_are_removed_again() -> None:
    text = "I am <b>very tired</b>, 5<i>x</i>."
    substitution = substitute(Line(text, fixed=protected_spans(text)), PLACEHOLDERS)
    first, second, third, fourth = PLACEHOLDERS[:4]
    assert substitution.line.text == f"I am {first} very tired {second}, 5 {third} x {fourth}."
    words = tuple((i, i) for i in range(len(substitution.line.text.split())))
    restored = substitution.restore(Translation(substitution.line.text, 0.0, 0.0, alignment=words))
    assert restored.text == text
    assert {target for _, target in restored.alignment} == set(range(len(text.split())))
    assert all(source == target for source, target in restored.alignment)


def test_a_symbol_that_is_not_restored_is_a_word() -> None:
    text = "a <b>dog</b> here"
    substitution = substitute(Line(text, fixed=protected_spans(text)), ["Tom", "Peter"])
    assert substitution.line.text == "a Tom dog Peter here"
    inflected = Translation("ein Tom Hund Peters da", alignment=((0, 0), (4, 4)))
    restored = substitution.restore(inflected)
    assert restored.text == "ein <b>Hund Peters da"
    assert [target for _, target in restored.alignment] == [0, 3]


def test_visible_spans_keep_their_place() -> None:
    text = "in 1999 at a@b.de in 2001"
    substitution = substitute(Line(text, fixed=protected_spans(text)), ["X"])
    new = substitution.line
    assert [new.text[span.start : span.end] for span in new.fixed] == ["1999", "2001"]


# ---- problems


@pytest.mark.parametrize(
    ("source", "text", "problems"),
    [
        ("I met him in 1999.", "Ich traf ihn 1999.", ()),
        ("I met him in 1999.", "Ich traf ihn 1998.", ("missing: 1999",)),
        ("I met him in 5 of 15.", "Ich traf ihn in 15.", ("missing: 5",)),
        ("Ask a@b.de today.", "Frag heute a@b.de oder a@b.de.", ("repeated: a@b.de",)),
        ("It is 3 to 3.", "Es steht 3.", ("missing: 3",)),
        ("See <b>my dog</b> soon.", "Siehe </b>meinen Hund<b> bald.", ("misplaced: </b>",)),
        ("See <b>my <i>dog</i></b>.", "Siehe <b>meinen <i>Hund</b></i>.", ("misplaced: </b>",)),
        ("See <b>my dog</b> soon.<br>", "Siehe <b>meinen Hund</b> bald.<br>", ()),
        (
            "A man sleeps on the couch.",
            "Ein Mann, ein Mann, ein Mann, ein Mann.",
            ("repetition: Ein Mann",),
        ),
        ("No, no, no, no!", "Nein, nein, nein, nein!", ()),
        ("The cat sleeps on the roof.", "The cat sleeps on the roof.", ("untranslated",)),
        (
            "The old cat sleeps on the roof every day.",
            "Le vieux chat dort sur le toit tous les jours.",
            ("wrong-language",),
        ),
        ("I do not know the answer.", "Ich kenne die Antwort.", ("lost-negation",)),
        ("I do not know the answer.", "Ich weiß keine Antwort.", ()),
        ("Say “hello” now.", "Sag „Hallo\ufffd\ufffd jetzt.", ("replacement-characters",)),
        ("Say \ufffd now.", "Sag \ufffd jetzt.", ()),
        ("He is here, isn't he?", "Er ist hier, oder?", ()),
        ("We have talked about it for three hours and will go on soon.", "Ja.", ("too-short",)),
        (
            "Yes.",
            "Darüber haben wir drei Stunden lang gesprochen, und morgen machen wir damit weiter.",
            ("too-long",),
        ),
        (
            "Tom saw www.a.com, www.b.com and www.d.com.",
            "Tom sah www.a.com, www.b.com und www.d.com.",
            (),
        ),
        ("Something.", "", ("empty",)),
        ("  ", "", ()),
    ],
)
def test_problems(source: str, text: str, problems: tuple[str, ...]) -> None:
    for languages in (("en", "de"), ("en-US", "de_AT")):
        assert (
            find_problems(Line(source, fixed=protected_spans(source)), text, languages) == problems
        )


@pytest.mark.parametrize(
    ("english", "text"),
    [
        (
            "The government announced a new economic policy yesterday.",
            "政府昨天宣布了新的经济政策。",
        ),
        (
            "The government announced a new economic policy yesterday.",
            "정부는 어제 새로운 경제 정책을 발표했다.",
        ),
        ("Thanks.", "ありがとうございました。"),
        ("Sorry", "申し訳ございません。"),
    ],
)
def test_lengths_are_compared_by_content(english: str, text: str) -> None:
    assert find_problems(Line(english), text, ("en", "xx")) == ()
    assert find_problems(Line(text), english, ("xx", "en")) == ()
    assert find_problems(Line(english * 2 + 40 * "a"), text[:3], ("en", "xx")) == ("too-short",)


def test_occurrences_are_not_counted_inside_words_and_numbers() -> None:
    assert count_occurrences("15 1.5 5,0 5th 5. (5) 5-fold", "5") == 3
    assert count_occurrences("Autos und Auto", "Auto") == 1
    assert count_occurrences("Autos und Auto", "Auto", inflected=True) == 2
    assert (
        count_occurrences("我有12只狗。", "12")
        == count_occurrences("我有12只狗。", "狗", inflected=True)
        == 1
    )


# ---- numbers


def test_equivalent_formats() -> None:
    pattern = equivalent_pattern("1,234.50 EUR")
    assert pattern.search("für 1.234,50 EUR.")
    assert pattern.search("für 1234.50EUR.")
    assert not pattern.search("für 11.234,50 EUR.")
    assert not pattern.search("für 1.23450 EUR.")
    version = equivalent_pattern("1.5.10")
    assert not version.search("um 15:10")
    assert equivalent_pattern("5") is None
    assert equivalent_pattern("https://a.de/5.5") is None


@pytest.mark.parametrize(
    ("number", "following", "expected"),
    [
        ("3.5 kg", "", "3,5 kg"),
        ("$1,234.50", "", "$1.234,50"),
        ("-0.125 mg", "", "-0,125 mg"),
        ("3.5", " million people", "3,5"),
        ("2.5", " to 3.5 hours", "2,5"),
        ("2.5-3.5", " hours", "2,5-3,5"),
        ("1.5", " hectares", "1,5"),
        ("2.5", " megabytes of tea", "2,5"),
        ("3.5", " is a version", "3.5"),
        ("3.5", " points out errors", "3.5"),
        ("3.5", " points out of 4", "3,5"),
        ("1,432.50", " in May", "1.432,50"),
        ("3.8", " and 3.9 run", "3.8"),
        ("1.234 EUR", "", "1.234 EUR"),
        ("192.168.1.1", "", "192.168.1.1"),
        ("8,000,000", " people", "8.000.000"),
        ("1,500", " Menschen", "1.500"),
        ("$1,500", "", "$1.500"),
        ("$1.5M", "", "$1,5M"),
    ],
)
def test_decimals_have_the_format_of_the_target_language(
    number: str, following: str, expected: str
) -> None:
    assert localize_decimal(number, Context("", following), "en", "de") == expected
    assert localize_decimal(number, Context("", following), "en", "ja") == number
    if expected != number:
        assert localize_decimal(expected, Context("", following), "de", "en") == number


def test_a_german_number_with_one_point_may_be_a_version() -> None:
    assert localize_decimal("2.500", Context("", " neue Sitze"), "de", "en") == "2,500"
    assert localize_decimal("2.500", Context("", " bis 3.000 Sitze"), "de", "en") == "2,500"
    assert localize_decimal("2.000", Context("", " kamen"), "de", "en") == "2,000"
    assert localize_decimal("2.500", Context("", " ist neu"), "de", "en") == "2.500"
    assert localize_decimal("0.125", Context("", " Menschen"), "de", "en") == "0.125"
    assert localize_decimal("1,500", Context("", " came"), "en", "de") == "1.500"
    assert localize_decimal("2.500", Context("", " bis 3.000 km"), "de", "en") == "2,500"
    assert localize_decimal("2.500", Context("", " m² groß"), "de", "en") == "2,500"
    assert localize_decimal("2.500", Context("EUR ", " fehlen"), "de", "en") == "2,500"
    assert localize_decimal("2.500", Context("Die ", "-Seelen-Gemeinde"), "de", "en") == "2,500"
    assert localize_decimal("2.500", Context("", " weiße, neue Autos"), "de", "en") == "2,500"
    assert localize_decimal("2.500", Context("Es sind ", " „Experten“"), "de", "en") == "2,500"
    assert localize_decimal("2.500", Context("Mehr als ", " kamen"), "de", "en") == "2,500"
    assert localize_decimal("2.500", Context("", " von ihnen"), "de", "en") == "2,500"
    assert localize_decimal("2.500", Context("Version ", " der Software"), "de", "en") == "2.500"
    assert localize_decimal("2.000", Context("Kapitel ", " Ende"), "de", "en") == "2.000"
    assert localize_decimal("2.500", Context("die Version ", " Euro"), "de", "en") == "2,500"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Von 1.299 auf 1.499 Euro.", ["1,299", "1,499"]),
        ("Mit 1.100 zu 2.300 Stimmen.", ["1,100", "2,300"]),
        ("1.250.000 Leser, davon sind 2.500 neu.", ["1,250,000", "2,500"]),
        ("Version 1.299 für 1.499 Euro.", ["1.299", "1,499"]),
        ("Etwa 1.000-1.200 Leser.", ["1,000-1,200"]),
        ("Von 1.299 auf 1.499 gestiegen.", ["1.299", "1.499"]),
    ],
)
def test_all_thousands_of_a_text_have_the_same_separators(text: str, expected: list[str]) -> None:
    spans = find_spans(text)
    found = localized(text, as_fixed_spans(text, spans), spans, ("de", "en"))
    assert [span.translation for span in found] == expected


def test_the_days_of_terms_are_those_of_the_glossary() -> None:
    term = FixedSpan(3, 9, "Mon.", is_opaque=False, is_term=True)
    line = Line("Am Montag und Freitag.", fixed=(term,))
    problems = find_problems(line, "On Mon. and on that day.", ("de", "en"))
    assert problems == ("missing-date: Friday",)
    halb = FixedSpan(3, 14, "six thirty", is_opaque=False, is_term=True)
    line = Line("Um halb sieben.", fixed=(halb,))
    assert find_problems(line, "At six thirty.", ("de", "en")) == ()


def test_a_network_is_one_span() -> None:
    text = "Use 10.0.0.0/8, not 31.12.2024/1.1.2025."
    spans = [text[span.start : span.end] for span in find_spans(text)]
    assert spans == ["10.0.0.0/8", "31.12.2024", "1.1.2025"]


def test_numbers_of_a_table_keep_their_format(translator: Translator) -> None:
    guard = scripted(translator, lambda line, search: [line.text])
    assert guard.translate(["3.5 kg", "3.5 kg\tabout 3.5 kg"]) == [
        "3.5 kg",
        "3.5 kg\tabout 3,5 kg",
    ]


# ---- glossaries


def test_the_longest_term_is_found_in_inflected_forms() -> None:
    terms = {
        "file": "Datei",
        "file manager": "Dateiverwaltung",
        "category": "Kategorie",
        "IT": "IT",
        "Foo": "-",
    }
    terms["sky"] = "Himmel"
    glossary = Glossary(Term(source, target, "en") for source, target in terms.items())
    text = "Files in the file manager: categories of it, IT, foo and profiles, skies"
    assert [(text[s.start : s.end], s.translation, s.is_term) for s in glossary.find(text)] == [
        ("Files", "Datei", True),
        ("file manager", "Dateiverwaltung", True),
        ("categories", "Kategorie", True),
        ("IT", "IT", True),
        ("foo", "foo", False),
        ("skies", "Himmel", True),
    ]
    found = Glossary([Term(".NET", "Punktnetz", "en"), Term("net", "Netz", "en")]).find(
        "(.NET and a.NET net"
    )
    assert [s.translation for s in found] == ["Punktnetz", "Netz", "Netz"]
    words = Glossary([Term("it", "es", "en"), Term("IT", "EDV", "en")]).find("It is our IT.")
    assert [span.translation for span in words] == ["es", "EDV"]
    assert [
        s.translation for s in Glossary([Term("Datei", "file", "de")]).find("Dateien und Datei")
    ] == ["file"] * 2


@pytest.mark.parametrize(
    "text", ["the IT\u00a0department", "the IT  departments", "the it department"]
)
def test_terms_of_several_words_match_any_space(text: str) -> None:
    glossary = Glossary([Term("IT department", "IT-Abteilung", "en")])
    assert [span.translation for span in glossary.find(text)] == ["IT-Abteilung"]


@pytest.mark.parametrize("term", ["Größe", "Gro\u0308ße", "Grö\u00adße"])
@pytest.mark.parametrize("text", ["Größe", "Gro\u0308ße", "Grö\u00adße"])
def test_terms_match_however_letters_are_encoded(term: str, text: str) -> None:
    [span] = Glossary([Term(term, "u\u0308ber", "de")]).find(f"Die {text}, sehr")
    assert span == FixedSpan(4, 4 + len(text), "über", is_opaque=False, is_term=True)
    [left] = Glossary([Term(term, "-", "de")]).find(f"Die {text}n sind")
    assert left == FixedSpan(4, 5 + len(text), f"{text}n")


def test_terms_are_not_in_words_that_continue_with_a_mark() -> None:
    glossary = Glossary([Term("हिन्द", "India", "hi"), Term("मत", "opinion", "hi")])
    assert glossary.find("हिन्दी कीमत") == []
    assert [span.translation for span in glossary.find("हिन्द, मत")] == ["India", "opinion"]
    assert not count_occurrences("हिन्दी कीमत", "हिन्द", inflected=True)
    assert not count_occurrences("हिन्दी कीमत", "मत", inflected=True)
    aligned = AlignedText("Hindi!", "(हिन्दी)!", [(0, 0)])
    assert term_edits(aligned, [FixedSpan(0, 5, "उर्दू")]) == [(1, 7, "उर्दू")]


@pytest.mark.parametrize(
    ("text", "term", "expected"),
    [
        ("See Abb. 3.", "figure", "See figure 3."),  # the source term is Abb.
        ("It is 3 h. It", "Abb.", "It is 3 Abb. It"),
        ("It is 3 h.", "hours", "It is 3 hours."),
    ],
)
def test_an_abbreviation_of_a_glossary_has_one_period(text: str, term: str, expected: str) -> None:
    position = text.index("Abb") if "Abb" in text else text.index("h.")
    source = "Das ist Abb. 3"
    index = text[:position].count(" ")
    aligned = AlignedText(source, text, [(2, index)])
    edits = term_edits(aligned, [FixedSpan(8, 12, term)])
    assert apply_edits(text, edits) == expected


def test_a_glossary_file_with_a_term_in_two_encodings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("Größe\tsize\nGro\u0308ße\tgreatness\n", encoding="utf-8")
    Glossary.load(path, "de", "en")
    assert "the first translation is used for Größe\n" in capsys.readouterr().err


def test_a_glossary_of_ten_thousand_terms_is_fast() -> None:
    rng = random.Random(1)
    terms = ["".join(rng.choices("abcdefghij", k=8)) for _ in range(10_000)]
    glossary = Glossary(Term(term, term.upper(), "en") for term in terms)
    text = " ".join(terms[:500])
    assert [span.translation for span in glossary.find(text)] == text.upper().split()


TBX = """<?xml version="1.0"?><tbx type="TBX-Basic"><text><body>
<conceptEntry id="1"><langSec xml:lang="en"><termSec><term>network</term></termSec></langSec>
<langSec xml:lang="de"><termSec><term>Netz</term></termSec></langSec></conceptEntry></body></text></tbx>"""  # noqa: E501
MARTIF = """<?xml version="1.0"?><martif type="TBX"><text><body><termEntry>
<langSet xml:lang="en"><tig><term>network</term></tig></langSet>
<langSet xml:lang="de"><tig><term>Netz</term></tig></langSet></termEntry></body></text></martif>"""


@pytest.mark.parametrize(
    ("name", "text"),
    [("terms.tsv", "network\tNetz\ta note\n\n"), ("terms.tbx", TBX), ("old.tbx", MARTIF)],
)
def test_glossary_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    assert [
        span.translation for span in Glossary.load(tmp_path / name, "en", "de").find("a network")
    ] == ["Netz"]


def test_the_first_translation_of_a_term_is_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("Dog\tHund\ncat\tKatze\ndog\tKöter\nCat\tKatze\nIT\tIT\nit\tes\n")
    assert [span.translation for span in Glossary.load(path, "en", "de").find("a dog")] == ["Hund"]
    assert capsys.readouterr().err == f"nmt: {path}: the first translation is used for Dog\n"
    path.write_text("".join(f"{term}\tone\n{term}\ttwo\n" for term in "abcdefg"))
    Glossary.load(path, "en", "de")
    assert "the first translation is used for a, b, c, d, e and 2 more\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("terms.tsv", "network\n", "line 1: no target term"),
        ("terms.tsv", "a\tb\n\tc\n", "line 2"),
        ("terms.tsv", "", "no terms"),
        ("terms.tbx", "<tbx>", "not well-formed"),
        ("terms.tbx", TBX.replace('"de"', '"fr"'), "en and de"),
    ],
)
def test_a_bad_glossary_is_an_error(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        Glossary.load(tmp_path / name, "en", "de")


# ---- guard: with a translator whose first translations are given, then with a model


class Scripted:
    """A translator that returns given translations and records its requests.

    It aligns words of the source with words of a translation as `align` says; by default the first
    with the first.
    """

    align: Callable[[str, str], tuple[tuple[int, int], ...]]

    def __init__(self, translator: Translator, translate: Callable[[Line, str], list[str]]) -> None:
        self.config, self.tokenizer, self.segmenter = (
            translator.config,
            translator.tokenizer,
            translator.segmenter,
        )
        self.function, self.requests = translate, []
        self.align = lambda source, text: word_by_word(text)

    def score(self, pairs: Iterable[tuple[str, str]]) -> Iterator[Translation]:
        for source, text in pairs:
            log_prob = -float(len(text))
            alignment = self.align(source, text)
            yield Translation(text, -1.0, log_prob, tokens=("</s>",), alignment=alignment)

    def stream(
        self, chunks, search=None, *, details=False, on_progress=lambda lines: None
    ) -> Iterator[list[Translation]]:
        for chunk in chunks:
            for line in chunk:
                self.requests.append((line, search))
                before, after = surrounding_whitespace(line.text)
                texts = [before + text + after for text in self.function(line, search)]
                yield [
                    Translation(text, -1.0, -1.0, alignment=word_by_word(text)) for text in texts
                ]


def word_by_word(text: str) -> tuple[tuple[int, int], ...]:
    return tuple((i, i) for i in range(len(text.split())))


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator.load("en-de")


def scripted(
    translator: Translator, function: Callable[[Line, str], list[str]], **options: object
) -> Guard:
    return Guard(Scripted(translator, function), **options)


def test_a_translation_without_problems_is_kept(translator: Translator) -> None:
    guard = scripted(translator, lambda line, search: ["Er kam 1999."])
    assert guard.translate(["He came in 1999."]) == ["Er kam 1999."]
    assert len(guard.translator.requests) == 1
    with pytest.raises(UsageError, match="must be a list"):
        guard.translate("He came in 1999.")


def test_the_format_of_a_number_is_corrected_without_another_search(translator: Translator) -> None:
    guard = scripted(translator, lambda line, search: ["Es kostet 1,234.50 EUR und 20 %."])
    assert guard.translate(["It costs 1,234.50 EUR and 20%."]) == [
        "Es kostet 1.234,50 EUR und 20%."
    ]
    ungrouped = scripted(translator, lambda line, search: ["Es kostet 1234.50 EUR."])
    assert ungrouped.translate(["It costs 1,234.50 EUR."]) == ["Es kostet 1.234,50 EUR."]
    version = scripted(translator, lambda line, search: ["Version 3.1 ist neu."])
    assert version.translate(["Version 3.1 is new."]) == ["Version 3.1 ist neu."]
    code = "%5.2f, `0.5` and Python 3.12"
    protect = [re.compile(r"3\.\d+")]
    coded = scripted(translator, lambda line, search: [code], protect=protect)
    assert coded.translate([f"I see {code}."]) == [code]
    assert len(guard.translator.requests) == len(ungrouped.translator.requests) == 1


@pytest.mark.parametrize("span", ["gro\u0308ße.txt", "gr\u00adoesse.txt", "`x  =  1`", "5 \u2126"])
def test_a_protected_span_that_the_model_reads_in_another_form(
    translator: Translator, span: str
) -> None:
    as_read = normalize(span)
    guard = scripted(translator, lambda line, search: [f"Er sieht {as_read} jetzt."])
    assert guard.translate([f"He sees {span} now."]) == [f"Er sieht {span} jetzt."]
    assert len(guard.translator.requests) == 1


def test_checks_of_a_decomposed_source() -> None:
    source = Line(unicodedata.normalize("NFD", "Es sind fünfzehn Äpfel außer den größeren."))
    text = "There are fifteen apples except the bigger ones."
    assert find_problems(source, text, ("de", "en")) == ()


def test_halves_are_searched_again_in_digits(translator: Translator) -> None:
    def translate(line: Line, search: str) -> list[str]:
        if "2.5" in line.text:
            return ["Das dauerte 2,5 Jahre."]
        return ["Das dauerte zwei und eine halbe Jahre."]

    guard = scripted(translator, translate)
    [[best]] = guard.stream([["It took two and a half years."]])
    assert (best.text, best.warnings) == ("Das dauerte zweieinhalb Jahre.", ())


def test_missing_days_are_constraints_of_another_search(translator: Translator) -> None:
    def translate(line: Line, search: str) -> list[str]:
        return [" ".join(["Er kam.", *line.constraints])]

    guard = scripted(translator, translate)
    [[best]] = guard.stream([["He came on Friday."]])
    assert best.warnings == ()
    assert best.text == "Er kam. Freitag"
    assert [line.constraints for line, _ in guard.translator.requests] == [(), ("Freitag",)]


def test_half_hours_are_searched_again_in_digits(translator: Translator) -> None:
    def translate(line: Line, search: str) -> list[str]:
        return [line.text.replace("Half past three", "Die Hälfte von drei").replace("was", "war")]

    guard = scripted(translator, translate)
    [[best]] = guard.stream([["Half past three was late."]])
    assert (best.text, best.warnings) == ("3:30 war late.", ())


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        (
            "In 15 days he drank 1.5 litres.",
            "In 15 Tagen trank er 1.5 Liter.",
            "In 15 Tagen trank er 1,5 Liter.",
        ),
        (
            "Flight 1030 leaves at 10:30.",
            "Flug 1030 geht um 10.30 Uhr.",
            "Flug 1030 geht um 10:30 Uhr.",
        ),
        ("1.5 of milk and 1.5 of tea.", "1,5 Milch und 1,5 Tee.", "1.5 Milch und 1.5 Tee."),
        ("It costs 1,00,000 rupees.", "Es kostet 100.000 Rupien.", "Es kostet 1,00,000 Rupien."),
        ("Room 1500 has 1,500 seats.", "Raum 1500 hat 1,500 Sitze.", "Raum 1500 hat 1.500 Sitze."),
        ("1,500 of 2,500 came.", "1500 von 2500 kamen.", "1.500 von 2.500 kamen."),
        ("He came at half past 6.", "Er kam um halb sechs.", "Er kam um halb sieben."),
    ],
)
def test_only_the_number_itself_gets_another_format(
    translator: Translator, source: str, text: str, expected: str
) -> None:
    guard = scripted(translator, lambda line, search: [text])
    [[best]] = guard.stream([[source]])
    assert (best.text, best.warnings) == (expected, ())
    assert len(guard.translator.requests) == 1


@pytest.mark.parametrize(
    ("source", "text", "term", "translation"),
    [
        ("It was on Monday.", "Es war am Wochenbeginn.", "Monday", "Wochenbeginn"),
        ("He came yesterday.", "Er kam am Vortag.", "yesterday", "am Vortag"),
        ("It takes two and a half.", "Es dauert 150 %.", "two and a half", "150 %"),
        ("A meeting - it is.", "Treffen – Runde – es ist.", "meeting", "Treffen – Runde"),
    ],
)
def test_terms_are_no_dates_and_keep_their_punctuation(
    translator: Translator, source: str, text: str, term: str, translation: str
) -> None:
    terms = Glossary([Term(term, translation, "en")])
    guard = scripted(translator, lambda line, search: [text], glossary=terms)
    [[best]] = guard.stream([[source]])
    assert (best.text, best.warnings) == (text, ())


def test_abbreviations_are_written_out_except_in_spans_and_terms() -> None:
    german = Translator.load("de-en")
    path = "S. 3 in `Abb. 4`"
    terms = Glossary([Term("Abt", "unit", "de")])
    text = f"Die Abt. zahlt 3,5 Mio. Euro ({path}) an Lehrer_innen."
    guard = scripted(german, lambda line, search: [line.text], glossary=terms)
    guard.translate([text])
    line, _ = guard.translator.requests[0]
    expected = "Die Abt. zahlt 3,5 Millionen Euro (Seite 3 in `Abb. 4`) an Lehrerinnen."
    assert line.text == expected
    for span in line.fixed:
        kept = line.text[span.start : span.end]
        assert kept in {"Abt", "3,5", "3", "`Abb. 4`"}
    numbers = [span.translation for span in line.fixed if span.translation[0].isdigit()]
    assert numbers == ["3.5", "3"]


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        (
            "Forged papers cost 5 euros.",
            "falsche Papiere kosten 5 Euro.",
            "Falsche Papiere kosten 5 Euro.",
        ),
        ("In numbers", "in Zahlen", "In Zahlen"),
        ("in numbers", "in Zahlen", "in Zahlen"),
        ('"Twenty people came."', '"zwanzig Leute kamen."', '"Zwanzig Leute kamen."'),
        ('"MacOS is fine."', '"macOS ist in Ordnung."', '"MacOS ist in Ordnung."'),
        ('He likes "snakes."', '"schlangen" mag er.', '"schlangen" mag er.'),
        ("My iPhone is broken.", "iPhone ist kaputt.", "iPhone ist kaputt."),
        ("Use snake_case.", "snake_case wird benutzt.", "snake_case wird benutzt."),
    ],
)
def test_a_sentence_begins_with_a_capital(
    translator: Translator, source: str, text: str, expected: str
) -> None:
    guard = scripted(translator, lambda line, search: [text])
    assert guard.translate([source]) == [expected]
    assert len(guard.translator.requests) == 1


@pytest.mark.parametrize(
    ("of_title", "of_sentence"), [("Bürgermeister will Autos", "Ja"), ("Ja", "Bürgermeister will")]
)
def test_the_more_probable_reading_of_a_title_is_kept(
    translator: Translator, of_title: str, of_sentence: str
) -> None:
    title = "Mayor of the City Wants to Ban Cars for 2 Years"
    guard = scripted(
        translator,
        lambda line, search: [f"{of_title if line.text == title else of_sentence} 2"],
    )
    [[best]] = guard.stream([[title]])
    assert best.text == f"{min(of_title, of_sentence, key=len)} 2"
    second, _ = guard.translator.requests[1]
    assert second.text == "Mayor of the city wants to ban cars for 2 years"
    assert title_as_sentence(Line(title), guard.tokenizer, "de") is None


def test_eras_and_the_period_after_them(translator: Translator) -> None:
    guard = scripted(translator, lambda line, search: ["Rom fiel 9 v. Chr.."])
    assert guard.translate(["Rome fell in 9 BC."]) == ["Rom fiel 9 v. Chr."]
    line, _ = guard.translator.requests[0]
    assert [span.translation for span in line.fixed] == ["9", "v. Chr."]
    other = scripted(translator, lambda line, search: ["Nimm BC."])
    assert other.translate(["Take BC."]) == ["Nimm BC."]


def test_marks_are_not_put_around_the_translation_of_another_word(translator: Translator) -> None:
    guard = scripted(translator, lambda line, search: ["Rom ist alt."])
    links = (Link(0, 0, 1.0), Link(1, 0, 0.4), Link(2, 1, 0.9), Link(3, 2, 0.9))
    guard.translator.score = lambda pairs: [
        Translation(text, -1.0, -1.0, links=links) for _, text in pairs
    ]
    [[best]] = guard.stream([["Rome (mostly) is old."]])
    assert (best.text, best.warnings) == ("Rom ist alt.", ("unbalanced: (",))


def test_a_german_noun_is_no_sentence() -> None:
    guard = scripted(Translator.load("de-en"), lambda line, search: ["dogs"])
    assert guard.translate(["Hunde", "Hunde!"]) == ["dogs", "Dogs"]


def test_a_lost_currency_is_searched_for(translator: Translator) -> None:
    guard = scripted(
        translator,
        lambda line, search: ["Es kostet 2 Milliarden.", "Es kostet 2 Milliarden Euro."],
    )
    [[best]] = guard.stream([["It costs 2 bn euros."]])
    assert (best.text, best.warnings) == ("Es kostet 2 Milliarden Euro.", ())
    without = scripted(translator, lambda line, search: ["Es kostet 2 Milliarden."])
    [[best]] = without.stream([["It costs 2 bn euros."]])
    assert best.warnings == ("missing-currency: euro",)


def test_times_are_in_the_same_half_of_the_day(translator: Translator) -> None:
    guard = scripted(translator, lambda line, search: ["Er kommt um 4 Uhr."])
    [[best]] = guard.stream([["He comes at 4 p.m."]])
    assert (best.text, best.warnings) == ("Er kommt um 16 Uhr.", ())
    assert len(guard.translator.requests) == 1


def test_the_alignment_follows_edits(translator: Translator) -> None:
    guard = scripted(translator, lambda line, search: ["Der Umsatz stieg um 20 % im März."])
    [[best]] = guard.stream([["Sales rose sharply by 20% in the March."]])
    assert best.text == "Der Umsatz stieg um 20% im März."
    assert best.alignment == (*word_by_word("Der Umsatz stieg um"), (4, 4), (5, 4), (6, 5), (7, 6))
    translation = Translation("ein Hund hier", 0.0, 0.0, alignment=word_by_word("a b c"))
    longer = edit_words(translation, [(4, 8, "sehr großer Hund")])
    assert longer.text == "ein sehr großer Hund hier"
    assert longer.alignment == ((0, 0), (1, 1), (1, 2), (1, 3), (2, 4))


def test_edits_of_terms_do_not_overlap() -> None:
    spans = [
        FixedSpan(0, 9, "A", is_term=True),
        FixedSpan(2, 3, "B", is_term=True),
        FixedSpan(6, 9, "C", is_term=True),
    ]
    alignment = [(0, 0), (0, 2), (1, 1), (2, 3), (3, 2), (4, 4)]
    translation = AlignedText("a b c d e", "v w x y z", alignment)
    assert term_edits(translation, spans[:2]) == [(0, 9, "A")]
    assert term_edits(translation, spans) == [(0, 9, "A")]


def aligned_text(source: str, *words: str) -> AlignedText:
    """Return a translation whose words each have the word that they are aligned with, as in
    `Hund|dog`."""
    pairs = [word.split("|") for word in words]
    sources = source.split()
    alignment = [(sources.index(of), i) for i, (_, of) in enumerate(pairs)]
    return AlignedText(source, " ".join(word for word, _ in pairs), alignment)


FILE = FixedSpan(4, 8, "Akte", is_opaque=False, is_term=True)


@pytest.mark.parametrize(
    ("words", "limited", "unlimited"),
    [
        (
            ("Eine|The", "große|file", "Datei,|file", "kam|came"),
            "Eine Akte Datei, kam",
            "Eine Akte, kam",
        ),
        # An article is no translation.
        (
            ("Die|file", "Datei|file", "kam.|came"),
            "Die Akte kam.",
            "Die Akte kam.",
        ),
        # The attention is on the article.
        (
            ("Da|The", "Datei|The", "kam.|came"),
            "Da Akte kam.",
            "Da Akte kam.",
        ),
        # The longer one.
        (
            ("Ab|file", "kam|came", "der|in", "Ordner.|file"),
            "Ab kam der Akte.",
            "Ab kam der Akte.",
        ),
        (("Das|came", "kam.|came"), None, None),
    ],
)
def test_the_words_that_a_term_replaces(
    words: tuple[str, ...], limited: str | None, unlimited: str | None
) -> None:
    translation = aligned_text("The file came in", *words)
    for whole_runs, expected in ((False, limited), (True, unlimited)):
        edits = term_edits(translation, [FILE], whole_runs=whole_runs)
        text = edit_words(Translation(translation.text, 0.0, 0.0), edits).text
        assert (text if edits else None) == expected


@pytest.mark.parametrize(
    ("words", "doubled"),
    [
        (("Die|The", "Akte|file", "kam|came"), False),
        (("Die|The", "Akte|file", "die|file", "Datei|came", "kam|came"), True),
        (("Die|The", "Akte|file", "der|file", "Dateien|came", "kam|came"), True),  # inflected
        # Another rendering than in the original.
        (
            ("Die|The", "Akte|file", "Karte|file", "kam|came"),
            True,
        ),
        # A word of the original that translates another word.
        (
            ("Die|The", "Akte|file", "kam|file"),
            False,
        ),
    ],
)
def test_a_term_beside_the_word_that_it_replaces_is_doubled(
    words: tuple[str, ...], doubled: bool
) -> None:
    source = "The file came in"
    original = aligned_text(source, "Die|The", "Datei|file", "kam|came")
    assert is_doubled(FILE, aligned_text(source, *words), original) == doubled


@pytest.mark.parametrize(
    ("words", "lost"),
    [
        (("Er|He", "war|is", "Akte|file"), True),
        (("Akte|file", "war|is", "er|He"), True),
        (("Er|He", "war|is", "an|at", "der|the", "Akte|file"), False),
        (("Er|He", "war|is", "dort|at"), False),  # without the term
    ],
)
def test_a_term_without_the_preposition_of_the_words_that_it_replaces(
    words: tuple[str, ...], lost: bool
) -> None:
    source = "He is at the file"
    file = replace(FILE, start=13, end=17)
    original = aligned_text(source, "Er|He", "war|is", "bei|at", "Datei|file")
    translation = aligned_text(source, *words)
    assert has_lost_preposition(file, translation, original) == lost
    without = aligned_text(source, "Die|the", "Datei|file", "ist|is", "da|at")
    assert not has_lost_preposition(file, translation, without)


def test_the_translation_with_the_preposition_of_a_term_is_the_best(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "He is at the file"
    aligned = {
        each.text: each
        for each in (
            aligned_text(source, "Er|He", "war|is", "bei|at", "Datei|file"),
            replace(aligned_text(source, "Er|He", "war|is", "Akte|file"), log_prob=-1.0),
            replace(aligned_text(source, "Er|He", "war|is", "bei|at", "Akte|file"), log_prob=-2.0),
        )
    }
    placement = TermPlacement(translator)
    monkeypatch.setattr(placement, "_align", lambda line, text, terms: aligned[text])
    translations = [Translation(text, 0.0, 0.0) for text in aligned]
    original, *found = translations
    line = Line(source, fixed=(replace(FILE, start=13, end=17),))
    ranked = placement._rank(line, original, found)
    assert [each.text for each in ranked] == ["Er war bei Akte", "Er war Akte"]


def test_a_term_in_the_place_of_another_word_is_noticed() -> None:
    source = "The file came in"
    assert is_elsewhere(FILE, aligned_text(source, "Die|The", "Datei|file", "mit|in", "Akte|came"))
    assert not is_elsewhere(FILE, aligned_text(source, "Die|The", "Akte|file", "kam|file"))
    # The alignment is weak.
    assert not is_elsewhere(FILE, aligned_text(source, "Die|file", "Akte|The", "kam|came"))
    assert not is_elsewhere(FILE, aligned_text(source, "Die|The", "Datei|file", "kam|came"))


def linked_text(source: str, text: str, *links: tuple[str, str, float]) -> AlignedText:
    """Return a translation with links between words, each with its share of the attention."""
    source_words = source.split()
    words = text.split()
    linked = [Link(source_words.index(of), words.index(word), share) for of, word, share in links]
    return AlignedText(source, text, [], links=linked)


DOG = FixedSpan(4, 7, "Köter", is_opaque=False, is_term=True)
DOG_OWNER = replace(DOG, end=13)


@pytest.mark.parametrize(
    ("source", "span", "links", "is_compound"),
    [
        ("The dog owner came.", DOG, [("dog", 0.9), ("owner", 0.9)], True),
        ("The dog owner came.", DOG, [("dog", 0.4), ("owner", 0.9)], True),
        ("The dog owner, too.", DOG, [("dog", 0.9), ("owner,", 0.4)], True),
        # The glossary has both words.
        ("The dog owner came.", DOG_OWNER, [("dog", 0.9), ("owner", 0.9)], False),
        # A word that is left out has little of the attention.
        ("The dog owner came.", DOG, [("dog", 0.9), ("owner", 0.2)], False),
        ("The dog owner came.", DOG, [("owner", 0.9)], False),
        # An article or a word that is not adjacent is not a half of it.
        ("The dog came.", DOG, [("The", 0.9), ("dog", 0.9)], False),
        ("The dog in London came.", DOG, [("dog", 0.9), ("London", 0.9)], False),
        ("The dog - owner came.", DOG, [("dog", 0.9), ("-", 0.9)], False),
    ],
)
def test_a_compound_translates_the_word_beside_a_term_too(
    source: str, span: FixedSpan, links: list[tuple[str, float]], is_compound: bool
) -> None:
    to_compound = [(word, "Hundehalter", share) for word, share in links]
    original = linked_text(source, "Der Hundehalter kam.", *to_compound)
    assert original.compounds(span) == ([1] if is_compound else [])
    aligned = replace(original, alignment=[(1, 1)])
    edited = [] if is_compound else [(4, 15, "Köter")]
    assert term_edits(aligned, [span]) == edited


@pytest.mark.parametrize(
    ("text", "owner", "is_part"),
    [
        ("Der Köter kam.", "Köter", False),
        ("Der Köter-Besitzer kam.", "Köter-Besitzer", True),
        ("Der Besitzer Köter kam.", "Besitzer", False),
    ],
)
def test_a_term_in_a_compound_with_a_hyphen(text: str, owner: str, is_part: bool) -> None:
    word = next(word for word in text.split() if word.startswith("Köter"))
    links = (("dog", word, 0.9), ("owner", owner, 0.9))
    translation = linked_text("The dog owner came.", text, *links)
    assert is_in_compound(DOG, translation) == is_part


def test_a_term_elsewhere_than_its_compound_is_noticed() -> None:
    links = (("dog", "Hundehalter", 0.9), ("owner", "Hundehalter", 0.9), ("the", "Köter.", 0.5))
    translation = linked_text("The dog owner has the beast.", "Der Hundehalter hat Köter.", *links)
    assert is_elsewhere(DOG, translation)


def test_a_line_of_several_segments_is_searched_in_its_segments_only(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = " ".join(["Is Tom here?"] * 60)
    searched: list[int] = []
    search = type(translator).stream

    def recording(
        self: Translator, chunks: Iterable[Sequence[Line]], *rest: Any, **options: Any
    ) -> Any:
        chunks = [list(chunk) for chunk in chunks]
        searched.extend(len(line.text) for chunk in chunks for line in chunk)
        return search(self, chunks, *rest, **options)

    monkeypatch.setattr(type(translator), "stream", recording)
    monkeypatch.setattr("nmt.translation.guard.find_problems", lambda *_: ("untranslated",))
    (n_best,) = Guard(translator).stream([[text]])
    assert n_best[0].warnings == ("untranslated",)
    assert max(searched) < 100
    assert searched.count(len("Is Tom here? Is Tom here?")) >= 30


def test_whitespace_around_the_segments_of_a_line_is_kept(translator: Translator) -> None:
    def translate(line: Line, search: str) -> list[str]:
        return (
            ["Siehe a@b.de."]
            if "a@b.de" in line.text and len(line.text) < 20
            else ["Ich bin hier."]
        )

    text = "    See a@b.de. " + "I am here. " * 40 + "\t"
    [[best]] = scripted(translator, translate).stream([[text]])
    assert best.text.startswith("    ")
    assert best.text.endswith(" \t")


@pytest.mark.parametrize(
    "line",
    [
        Line("Write to a@b.de now.", prefix="Tom sagt:"),
        Line("Write to a@b.de, TOM."),
        Line("Write to a@b.de now.", fixed=(FixedSpan(0, 5, "Tom"),)),
    ],
)
def test_a_stand_in_is_not_a_word_of_the_translation(translator: Translator, line: Line) -> None:
    guard = scripted(translator, lambda line, search: ["Tom sagt: schreib bald."])
    list(guard.stream([[line]]))
    assert not any("Tom" in request.text for request, _ in guard.translator.requests)
    assert any("Peter" in request.text for request, _ in guard.translator.requests)


def test_a_translation_that_is_found_again_is_not_repeated(translator: Translator) -> None:
    texts = ["Ja.", "Ich kenne ihn heute überhaupt."]
    guard = scripted(translator, lambda line, search: texts)
    [n_best] = guard.stream([["I do not know him at all today."]], "beam(beam_size=2, top_beams=2)")
    assert [(each.text, len(each.warnings)) for each in n_best] == [(texts[1], 1), (texts[0], 2)]


def test_a_lost_span_is_replaced_by_a_name(translator: Translator) -> None:
    def translate(line: Line, search: str) -> list[str]:
        return ["Schreib Tom!"] if line.text == "Write to Tom!" else ["Schreib bald!"]

    assert scripted(translator, translate).translate(["Write to a@b.de!"]) == ["Schreib a@b.de!"]
    for line in (
        Line("Write to a@b.de, c@d.de!", prefix="Schreib"),
        Line("Write to a@b.de, c@d.de!"),
    ):
        inflected = scripted(
            translator,
            lambda line, search: ["Schreib Toms Peter!" if "Tom" in line.text else "Ja."],
        )
        assert "Toms" not in inflected.translate([line])[0]


def test_a_line_in_pieces_begins_with_a_capital_as_in_the_source(translator: Translator) -> None:
    translations = {"Gado be": "go Ba", "Be ga.": "Be do."}
    guard = scripted(translator, lambda line, search: [translations.get(line.text.strip(), "")])
    assert guard.translate(["Gado be A1-B2 Be ga."]) == ["Go Ba A1-B2 Be do."]


def test_a_lost_number_becomes_a_constraint(translator: Translator) -> None:
    def translate(line: Line, search: str) -> list[str]:
        return (
            [f"Ich habe {line.constraints[0]} Hunde."] if line.constraints else ["Ich habe Hunde."]
        )

    guard = scripted(translator, translate)
    assert guard.translate(["I have 12 dogs."]) == ["Ich habe 12 Hunde."]
    assert guard.translator.requests[-1][1].startswith("constrained")


def test_a_span_that_no_search_finds_stays_in_its_place(translator: Translator) -> None:
    guard = scripted(translator, lambda line, search: ["Teil."])
    [n_best] = guard.stream([["Write to a@b.de, or call 12345678."]])
    assert n_best[0].text == "Teil a@b.de, Teil 12345678."
    assert n_best[0].alignment == ((0, 0), (2, 1), (3, 2), (5, 3))
    assert n_best[0].warnings == ()
    [n_best] = guard.stream([["Write to a@b.de\u2028and call 12345678."]])
    assert n_best[0].text == "Teil a@b.de Teil 12345678."
    assert guard.translate(["Write to a@b.de.\u2028"]) == ["Teil a@b.de."]


def test_a_better_hypothesis_is_preferred(translator: Translator) -> None:
    def translate(line: Line, search: str) -> list[str]:
        return ["Ich kenne ihn."] if search is None else ["Ich kenne ihn.", "Ich kenne ihn nicht."]

    guard = scripted(translator, translate)
    assert guard.translate(["I do not know him."]) == ["Ich kenne ihn nicht."]
    bad = scripted(translator, lambda line, search: ["Ich kenne ihn."])
    [[best]] = bad.stream([["I do not know him."]])
    assert (best.text, best.warnings) == ("Ich kenne ihn.", ("lost-negation",))


def test_terms_are_applied_by_constraint_or_alignment(translator: Translator) -> None:
    glossary = Glossary([Term("dog", "Köter", "en"), Term("Smith", "-", "en")])
    guard = Guard(translator, glossary=glossary)
    [[best]] = guard.stream([["I have seen the dog."]])
    assert "Köter" in best.text
    assert guard.term_counts == {("Köter", True): 1}
    assert not is_missing(FixedSpan(0, 3, "Kind", is_term=True), "Mit den Kindern.")
    assert "Smith" in guard.translate(["Smith is here."])[0]
    assert guard.term_counts == {("Köter", True): 1, ("Smith", True): 1}
    research = Guard(translator, glossary=Glossary([Term("R&D", "F&E", "en")]))
    lines = research.translate(["We use R&D.", "The R&D is big.", "He works in R&D today."])
    assert [re.findall("[A-Z&]{1,3}(?![a-z])", line) for line in lines] == [["F&E"]] * 3  # no R F&E
    prefix = "Ein kleiner Hund"
    assert guard.translate([Line("The dog runs in the street.", prefix=prefix)])[0].startswith(
        prefix
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("abc def ghi jkl mno".split()), min_size=1, max_size=6), st.data())
def test_a_term_is_in_the_place_of_the_word_that_it_replaces(
    translator: Translator, words: list[str], data: st.DataObject
) -> None:
    place, beside = (data.draw(st.integers(0, len(words))) for _ in range(2))
    source = " ".join([*words[:place], "file", *words[place:]])
    original = [word.upper() for word in [*words[:place], "Datei", *words[place:]]]

    def translate(line: Line, search: str | None) -> list[str]:
        if not line.constraints:
            return [" ".join(original)]
        return [" ".join([*original[:beside], *line.constraints, *original[beside:]])]  # doubled

    guard = scripted(translator, translate, glossary=Glossary([Term("file", "Akte", "en")]))
    guard.translator.align = lambda source, text: tuple(
        (source.upper().replace("FILE", "DATEI").split().index(word), i)
        for i, word in enumerate(text.replace("Akte", "DATEI").split())
    )
    expected = [*original[:place], "Akte", *original[place + 1 :]]
    assert guard.translate([source]) == [" ".join(expected)]
    assert guard.term_counts == {("Akte", True): 1}


@pytest.mark.parametrize("decomposed", [{"prefix": "Jo\u0308rg"}, {"constraints": ("Jo\u0308rg",)}])
def test_a_term_is_placed_beside_a_decomposed_constraint(
    translator: Translator, decomposed: dict[str, Any]
) -> None:
    glossary = Glossary([Term("file", "Akte", "en")])
    guard = scripted(translator, lambda line, search: ["Jörg sieht Datei."], glossary=glossary)
    assert guard.translate([Line("Jörg sees file.", **decomposed)]) == ["Jörg sieht Akte."]


def test_a_term_that_translates_another_word_is_doubtful(translator: Translator) -> None:
    glossary = Glossary([Term("house", "Gebäude", "en")])
    guard = scripted(
        translator, lambda line, search: ["Dieses Haus war Gebäude."], glossary=glossary
    )
    [[best]] = guard.stream([["This house was big."]])
    assert (best.text, best.warnings) == ("Dieses Haus war Gebäude.", ("term-doubtful: Gebäude",))
    assert guard.term_counts == {("Gebäude", False): 1}

    def translate(line: Line, search: str | None) -> list[str]:
        return [
            (
                "Dieses Haus war Gebäude."
                if "house" in line.text and len(line.text) < 90
                else "Ich bin hier."
            )
        ]

    of_segments = scripted(translator, translate, glossary=glossary)
    [[best]] = of_segments.stream([["This house was big. " + "I am here. " * 40]])
    assert best.warnings[-1] == "term-doubtful: Gebäude"
    assert of_segments.term_counts == {("Gebäude", False): 1}


@pytest.mark.parametrize(
    ("source", "term", "translation", "others"),
    [
        ("Save the file before you leave.", "file", "Akte", "Datei"),
        ("The phone in the kitchen is ringing.", "phone", "Fernsprecher", "Telefon|Handy"),
        ("There are two keys on the table.", "key", "Schließkarte", "Schlüssel"),
        ("The customer was angry yesterday.", "customer", "Auftraggeber", "Kund"),
    ],
)
def test_a_term_replaces_the_word_of_the_model(
    translator: Translator, source: str, term: str, translation: str, others: str
) -> None:
    guard = Guard(translator, glossary=Glossary([Term(term, translation, "en")]))
    [text] = guard.translate([source])
    assert count_occurrences(text, translation, inflected=True) == 1
    assert not re.search(others, text)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("That is the car door.", "Fahrzeug"),  # the search with the constraint finds Fahrzeugtür
        ("This is my house key.", "Gebäude"),  # beside Hausschlüssel
        ("Dog leash", "Köter"),  # all of the translation
        ("A police car came.", "Fahrzeug"),
        ("The farm house burned down.", "Gebäude"),
    ],
)
def test_a_compound_with_half_of_a_term_is_left(
    translator: Translator, source: str, target: str
) -> None:
    terms = {"car": "Fahrzeug", "house": "Gebäude", "dog": "Köter"}
    glossary = Glossary(Term(*pair, "en") for pair in terms.items())
    guard = Guard(translator, glossary=glossary)
    [[best]] = guard.stream([[source]])
    assert [best.text] == Guard(translator).translate([source])
    assert best.warnings == (f"term-not-applied: {target}",)
    assert guard.term_counts == {(target, False): 1}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Where did you put the car key?", ["Fahrzeugschlüssel"]),  # a term of its own
        ("The car door is red, and the house is old.", ["Autotür", "Gebäude"]),
        ("The car dealer has a new car.", ["Autohändler", "Fahrzeug"]),
    ],
)
def test_terms_beside_and_in_compounds(
    translator: Translator, source: str, expected: list[str]
) -> None:
    terms = {
        "car": "Fahrzeug",
        "car key": "Fahrzeugschlüssel",
        "house": "Gebäude",
        "dog": "Köter",
    }
    guard = Guard(translator, glossary=Glossary(Term(*pair, "en") for pair in terms.items()))
    [text] = guard.translate([source])
    for word in expected:
        assert count_occurrences(text, word) == 1, text


def test_terms_inside_protected_spans_are_not_translated(translator: Translator) -> None:
    glossary = Glossary([Term("dog", "Köter", "en"), Term("R&D", "F&E", "en")])
    text = "See https://a.org/dog or the file big-dog.txt."
    guard = scripted(translator, lambda line, search: [text], glossary=glossary)
    [[best]] = guard.stream([[text]])
    assert (
        best.text,
        [each for each in best.warnings if each.startswith(("term", "missing"))],
    ) == (text, [])
    assert guard.term_counts == {}
    [line] = [guard.with_fixed_spans(Line("R&D of dogs"))]
    assert [span.translation for span in line.fixed] == ["F&E", "Köter"]


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("The dog", "Der Hund.", "Der Hund"),
        ("The dog.", "Der Hund.", "Der Hund."),
        ("Hi ", "Hallo! ", "Hallo "),
        ("我累了。", "I am tired.", "I am tired."),
        ("هل أنت هنا؟", "Are you here?", "Are you here?"),
        ('It was "great."', "Es war „großartig“.", "Es war „großartig“."),
    ],
)
def test_only_added_periods_are_removed(source: str, text: str, expected: str) -> None:
    assert without_added_period(Line(source), Translation(text, 0.0, 0.0)).text == expected


def test_lines_without_text_are_copied(translator: Translator) -> None:
    lines = ["5", "", "  ", "2024-05-17", "  a@b.de\t", "…", "12:30 - 14:00", "\u2028"]
    assert Guard(translator).translate(["12 " * 99])[0].split() == ["12"] * 99
    assert Guard(translator).translate(lines) == [
        "5",
        "",
        "  ",
        "2024-05-17",
        "  a@b.de\t",
        "…",
        "12:30 - 14:00",
        "",
    ]
    for line in ("12\u00a0kg", "1\u00a0234 €", "`a  b`"):
        assert Guard(translator).translate([line]) == [line]
    assert Guard(translator).translate(["12\r34\u20285\t6\u200b"]) == ["12 34 5\t6"]


def test_every_span_arrives_in_a_long_line(translator: Translator) -> None:
    text = (
        "Call me at 7:30 on 2024-05-17. My address is x.y@example.com. See"
        " https://example.org/a?b=c for details. " * 3
    )
    [[best]] = Guard(translator).stream([[text]], details=True)
    assert best.warnings == ()
    for span in protected_spans(text):
        assert count_occurrences(best.text, span.translation) == 3, span
    words, sources = best.text.split(), text.split()
    assert all(target < len(words) and source < len(sources) for source, target in best.alignment)


@pytest.mark.parametrize(
    ("source", "texts", "expected"),
    [
        ("Dogs ........ 12", ["Dogs"], "Tiere ........ 12"),
        ("Dogs....... Cats…… 5", ["Dogs", "Cats"], "Tiere....... Tiere…… 5"),
        ("1 Dogs . . . . .\t5", ["1 Dogs"], "1 Tiere . . . . .\t5"),
    ],
)
def test_texts_around_leaders_are_translated_one_by_one(
    translator: Translator, source: str, texts: list[str], expected: str
) -> None:
    guard = scripted(
        translator,
        lambda line, search: ["1 Tiere." if line.text.startswith("1") else "Tiere."],
    )
    assert guard.translate([source]) == [expected]
    assert [line.text for line, _ in guard.translator.requests] == texts


def test_dots_in_a_sentence_do_not_divide_it(translator: Translator) -> None:
    guard = scripted(translator, lambda line, search: ["Ich .... kam."])
    source = "I .... came."
    assert guard.translate([source, Line(source, prefix="Ich")]) == ["Ich .... kam."] * 2
    assert {line.text for line, _ in guard.translator.requests} == {source}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("Name: ____________", "Name: ____________"),
        ("Date: ____ / ____ / ______", "Datum: ____ / ____ / ______"),
        ("The dog ____ in the garden.", "Der Hund ____ im Garten."),
        ("____years", "____Jahre"),
        (r"I am \_\_\_ years old.", r"Ich bin \_\_\_ Jahre alt."),
    ],
)
def test_blanks_of_forms_are_copied(translator: Translator, source: str, expected: str) -> None:
    assert Guard(translator).translate([source]) == [expected]


def test_fixed_spans_of_a_line_arrive_once(translator: Translator) -> None:
    text = "Please press the blue button now."
    start = text.index("blue button")
    span = FixedSpan(start, start + len("blue button"), "Blauer-Knopf™ (BK)")
    [[best]] = Guard(translator).stream([[Line(text, fixed=(span,))]])
    assert best.text.count("Blauer-Knopf™ (BK)") == 1


def test_a_translation_does_not_depend_on_the_chunk(translator: Translator) -> None:
    lines = [f"I have {i} dogs in {i * 7919} rooms and a@b{i}.de." for i in range(6)] + [
        "I don't know."
    ]
    guard = Guard(translator)
    together = guard.translate(lines)
    assert [guard.translate([line])[0] for line in lines] == together


SPANS = [
    "a@b.de",
    "www.x.org",
    "{name}",
    "12",
    "3.5 kg",
    "2024-01-31",
    "`x y`",
    "%s",
    "/srv/x",
    "7:45",
]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(st.sampled_from(SPANS), st.sampled_from("I see a dog with no one .".split())),
        max_size=9,
    )
)
def test_all_spans_of_any_line_arrive(translator: Translator, words: list[str]) -> None:
    text = " ".join(words)
    guard = Guard(translator)
    [[best]] = guard.stream([[text]])
    assert not [warning for warning in best.warnings if warning.startswith("missing:")]
    fixed = guard.with_fixed_spans(Line(text)).fixed
    localized = apply_edits(text, ((span.start, span.end, span.translation) for span in fixed))
    for span in fixed:
        count = count_occurrences(best.text, span.translation)
        expected = count_occurrences(localized, span.translation)
        assert count == expected if span.is_opaque else count >= expected


def test_n_best_lists_keep_their_length(translator: Translator) -> None:
    lines = ["I have 12 dogs.", "My email is a@b.de.", ""]
    for search in ("beam(beam_size=4, top_beams=3)", "diverse(beam_size=4, top_beams=2)"):
        expected = [len(each) for each in translator.stream([lines], search)]
        assert [len(each) for each in Guard(translator).stream([lines], search)] == expected


def test_a_prefix_and_constraints_are_kept(translator: Translator) -> None:
    line = Line("I have 12 dogs.", prefix="Wir", constraints=("Katze",))
    [[best]] = Guard(translator).stream([[line]], "constrained")
    assert best.text.startswith("Wir")
    assert "Katze" in best.text
    assert "12" in best.text


# ---- work


def test_text_that_the_model_cannot_read_is_not_searched(translator: Translator) -> None:
    guard = scripted(translator, lambda line, search: ["Hallo."])
    lines = [
        "\u4eca\u5929\u5929\u6c14\u5f88\u597d " * 30,
        "e\u0323\u0301o\u0302\u0323\u0301 " * 90,
        "x y z " * 90,
        "k" * 500,
        "a" + "\u0301" * 500,
        "\u0e04\u0e19\u0e17\u0e33\u0e02\u0e19\u0e21 " * 90,
    ]
    for line, (best, *_) in zip(lines, guard.stream([lines]), strict=True):
        assert best.text == line
    assert guard.translator.requests == []
    [[chinese], _, [spelled], *_] = guard.stream([lines])
    assert chinese.warnings == spelled.warnings == ("untranslated",)
    guard.translate(
        ["My friend \u4eca\u5929 lives in \u6c14\u5929.", "Options a, b, c, d, e and f are new."]
    )
    assert len(guard.translator.requests) >= 2


def test_every_kind_of_character_of_unread_text_stays(translator: Translator) -> None:
    guard = scripted(translator, lambda line, search: ["Hallo."])
    text = "Tom saw this: " + "".join(map(chr, range(0x4E00, 0x5200))) + " and then he left."
    [[best]] = guard.stream([[text]])
    assert "".join(map(chr, range(0x4E00, 0x5200))) in best.text
    url = "https://example.org/" + "abcdefg/" * 200
    assert url in guard.translate([f"Please see {url} for more."])[0]


@pytest.mark.parametrize(
    "sentence",
    ["I do not know a@b.de.", 'He said "no (never)" to {name}.', "Call x@y.org at 7:30."],
)
def test_repairs_stay_within_the_budget_of_a_line(translator: Translator, sentence: str) -> None:
    guard = scripted(translator, lambda line, search: ["Ja."])

    def count_rows(text: str) -> int:
        guard.translator.requests.clear()
        list(guard.stream([[text]]))
        requests = guard.translator.requests
        return sum(
            (len(line.text) // 4) * parse_search(search or "beam").rows for line, search in requests
        )

    few, many = count_rows(sentence), count_rows(f"{sentence} " * 140)
    assert few > 4 * len(sentence) / 4 * 4  # all attempts
    assert many < len(sentence) * 140 * 2
    budget = Budget()
    budget.extend("a" * 100)
    assert budget.repairs.take(int(budget.repairs.work))
    assert not budget.repairs.take(1)


def test_lines_beyond_the_budget_are_searched_quickly(translator: Translator) -> None:
    guard = scripted(translator, lambda line, search: ["Ja."])
    dense = [f"{i}a {i}b." for i in range(1000)]
    shared = Guard(guard.translator)
    shared.budget = Budget()
    list(shared.stream([dense]))
    searches = Counter(search for _, search in guard.translator.requests)
    assert searches["greedy"] > 100
    guard.translator.requests.clear()
    list(guard.stream([dense]))  # each line has its own budget
    assert "greedy" not in {search for _, search in guard.translator.requests}


def test_the_progress_of_a_line_is_that_of_its_segments(translator: Translator) -> None:
    done: list[float] = []
    text = "I see a dog. The cat sleeps. We are tired. " * 40
    assert list(Guard(translator).stream([[text]], "greedy", on_progress=done.append))
    assert sum(done) == pytest.approx(1)
    assert len(done) > 1


# ---- command line


def test_warnings_are_logged_and_in_jsonl(trained: CommandLine) -> None:
    source = "the small dog sees the tree and does not see the bird in the house."
    done = trained("translate", "--format", "jsonl", source)
    [translation] = json.loads(done.out)["translations"]
    assert translation["warnings"]
    assert f"warning: translation 1: {', '.join(translation['warnings'])}" in done.err
    assert "warning" not in trained("translate", "--no-guard", source).err


@pytest.mark.slow
def test_options_of_the_guard(nmt: CommandLine) -> None:
    (nmt.directory / "terms.tsv").write_text("ACME\t-\n")
    options = ("--glossary", "terms.tsv", "--protect", r"v\d+")
    source = "I work at ACME since 1,234.5 days with v12."
    done = nmt("translate", "--model", "en-de", *options, source)
    for text in ("ACME", "v12", "1.234,5"):
        assert text in done.out, text
    assert nmt("translate", "--model", "en-de", "5", "My email is j@x.com.").out.startswith("5\n")
    for code, arguments, message in [
        (2, ("--no-guard", "--glossary", "terms.tsv"), "need the guard"),
        (2, ("--protect", "("), "not a regular expression"),
        (1, ("--glossary", "none.tsv"), "no such file"),
    ]:
        nmt("translate", "--model", "en-de", *arguments, "a").assert_fails(code, message)
