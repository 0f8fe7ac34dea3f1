"""The content check of translations, and its repairs."""

from __future__ import annotations

import random
import re
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nmt import Guard, Translation, Translator
from nmt.text.number_words import find_number_words, spell_number
from nmt.translation.capitals import inside_sentence, with_capital
from nmt.translation.content import (
    content_problems,
    find_items,
    has_lone_mark,
    has_missing_item,
    missing_currencies,
    number_problems,
    unbalanced_marks,
)
from nmt.translation.items import join_items
from nmt.translation.marks import restore_marks
from nmt.translation.segments import FixedSpan, Line
from nmt.translation.stand_ins import digits_for_words

# ---- numbers in words


@pytest.mark.parametrize("language", ["en", "de"])
def test_spelled_numbers_are_found_with_their_value(language: str) -> None:
    for value in [*range(2, 1200), 1984, 2001, 9999, 12_345, 100_001, 999_999]:
        text = f"ab {spell_number(value, language)}, cd"
        (number,) = find_number_words(text, language)
        assert (number.value, number.is_ordinal) == (value, False)
        assert text[number.start : number.end] == spell_number(value, language)


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "en",
            "in nineteen eighty-four at six-thirty",
            {"nineteen eighty-four": 1984, "six": 6, "thirty": 30},
        ),
        ("en", "the twenty-first of May", {"twenty-first": 21}),
        (
            "en",
            "one second, a hundred and two, a million",
            {"a hundred and two": 102, "a million": 1_000_000},
        ),
        ("en", "two and three, one two three", {"two": 2, "three": 3}),
        ("en", "someone often attends, 10 million", {}),
        ("de", "neunzehnhundertvierundachtzig", {"neunzehnhundertvierundachtzig": 1984}),
        ("de", "am dritten und einundzwanzigsten Mai", {"dritten": 3, "einundzwanzigsten": 21}),
        (
            "de",
            "eine Million, ein Hund, zwei Millionen",
            {"eine Million": 1_000_000, "zwei Millionen": 2_000_000},
        ),
        ("de", "Achte auf Hunderte und Zweifel", {}),
        ("de", "14 tausend Gäste, zwei von 3 hundert", {"zwei": 2}),
        ("fr", "deux cents", {}),
    ],
)
def test_number_words_in_text(language: str, text: str, expected: dict[str, int]) -> None:
    assert {
        text[each.start : each.end]: each.value for each in find_number_words(text, language)
    } == expected


def test_the_time_of_capitals_and_currencies_is_linear() -> None:
    start = time.process_time()
    marks = f"A{'!' * 100_000}a"
    assert with_capital(Line(marks), "a", "de") == "a"
    assert list(missing_currencies("5 Dollar", "w" * 100_000, "de", "en"))
    assert not list(missing_currencies("5 Kanadadollar", "5 dollars", "de", "en"))
    assert time.process_time() - start < 5


def test_the_time_of_edits_is_linear() -> None:
    text = "Abb. 3 " * 20_000
    fixed = tuple(FixedSpan(i + 5, i + 6, "3") for i in range(0, len(text), 7))
    edits = [(i, i + 4, "Abbildung") for i in range(0, len(text), 7)]
    start = time.process_time()
    edited = Line(text, fixed=fixed).with_edits(edits)
    assert time.process_time() - start < 5
    assert edited.text == "Abbildung 3 " * 20_000
    assert [edited.text[span.start] for span in edited.fixed] == ["3"] * 20_000


def test_number_words_become_digits_and_words_again() -> None:
    text = "Two of the twenty-nine dogs came on the third at a@b.de."
    line = Line(text, fixed=(FixedSpan(text.index("a@b"), len(text) - 1, "a@b.de"),))
    rewritten = digits_for_words(line, "en", "de")
    assert rewritten is not None
    assert rewritten.line.text == "2 of the 29 dogs came on the 3rd at a@b.de."
    (moved,) = rewritten.line.fixed
    assert rewritten.line.text[moved.start : moved.end] == "a@b.de"
    assert rewritten.target == {"2": "zwei", "29": "neunundzwanzig", "3.": "3."}
    assert digits_for_words(Line("A dog."), "en", "de") is None
    for text, src, tgt in (
        ("Call at two-twenty.", "en", "de"),
        ("Ruf um zwei Uhr zwanzig an.", "de", "en"),
    ):
        time = digits_for_words(Line(text), src, tgt)
        assert time is not None
        assert "2:20" in time.line.text


# ---- problems


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("He came. She left.", "Er kam, und sie ging.", ["missing-sentence"]),
        ("He came. She left.", "Er kam. Sie ging.", []),
        ("He came. She left.", "Er kam. Er kam.", ["missing-sentence"]),
        ("Come with me. The cat sleeps.", "Komm mit mir.", ["missing-sentence"]),
        (
            'He said: "I am tired." Then he left.',
            "Er sagte: „Ich bin müde.“ – „Ich bin müde.“",
            ["missing-sentence", 'unbalanced: "'],
        ),
        ("Go, go! Go, go!", "Los, los! Los, los!", []),
        ("We need salt, oil, rice and tea.", "Wir brauchen Salz, Öl und Tee.", ["missing-item"]),
        (
            "We need salt, oil, rice and tea.",
            "Wir brauchen Salz, Öl, Öl und Tee.",
            ["missing-item"],
        ),
        ("We need salt, oil, rice, and tea.", "Wir brauchen Salz, Öl, Reis und Tee.", []),
        ("Is it that, what you want, Tom?", "Willst du das, Tom?", []),
        ("He (my brother) sleeps.", "Er, mein Bruder, schläft.", ["unbalanced: ("]),
        ('He said, "I sleep."', "Er sagte: „Ich schlafe.", ['unbalanced: "']),
        ('He said, "I sleep."', "Er sagte: „Ich schlafe.“", []),
        ('The file "a" is "b".', "Die Datei 'a' ist ‚b‘.", []),
        ('Read " ".', "Lies ' '.", []),  # a protected span
        ('The "dogs" sleep.', "Toms' Hunde sind's.", ['unbalanced: "']),
        ('The 5" pipe.', "Das 5-Zoll-Rohr.", []),
        ("Call me at 3 or 4 p.m.", "Rufen Sie mich um 16 Uhr an.", ["number-changed: 3"]),
    ],
)
def test_content_problems(source: str, text: str, expected: list[str]) -> None:
    assert list(content_problems(source, text, "en", "de")) == expected


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("I have twenty-nine books.", "Ich habe zweiundzwanzig Bücher.", ["number-changed: 29"]),
        ("I have twenty-nine books.", "Ich habe 29 Bücher.", []),
        ("It costs a thousand euros.", "Es kostet 1.000 Euro.", []),
        ("The two of them left.", "Die beiden gingen.", []),
        ("I have three dogs.", "Ich habe vier Hunde.", ["number-changed: 3"]),
        ("I have a dog.", "Ich habe 42 Hunde.", ["number-added: 42"]),
        ("I have 42 dogs.", "Ich habe zweiundvierzig Hunde.", []),
        ("Come at half past six.", "Komm um halb sieben.", []),
        ("This is the seventh time.", "Das ist der Siebentag.", ["number-changed: 7"]),
        ("I ate a third of it.", "Ich aß ein Drittel davon.", []),
        ("Call me at four-forty.", "Ruf mich um vierzig an.", ["number-changed: 4"]),
        ("The 1,500th guest came.", "Der 1.500. Gast kam.", []),
        ("For the millionth time!", "Zum hundertsten Mal!", ["number-added: 100"]),
    ],
)
def test_number_problems(source: str, text: str, expected: list[str]) -> None:
    assert list(number_problems(source, text, "en", "de")) == expected


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Das habe ich dir schon tausendmal gesagt.", "I have told you that a thousand times."),
        ("Ich bin hundertprozentig sicher.", "I am one hundred percent sure."),
    ],
)
def test_numbers_in_other_words_are_not_added(source: str, text: str) -> None:
    assert list(number_problems(source, text, "de", "en")) == []
    assert list(number_problems(source, f"{text} It was 1984.", "de", "en")) != []


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("Das zweite Buch ist gut.", "The second book is good."),
        ("Er wurde zweiter und sie dritte.", "He came second and she came third."),
        ("Vor dem Zweiten Weltkrieg war er hier.", "Before World War II, he was here."),
        ("Heinrich der Achtzehnte", "Henry XVIII"),
        ("Heinrich der Neunte, Karl der Zwanzigste", "Henry IX, Charles XX"),
        ("Kapitel XXIV ist lang.", "Chapter twenty-four is long."),
        ("Etwa 14 tausend Gäste kamen.", "About 14 thousand guests came."),
    ],
)
def test_ordinals_and_numerals_are_the_same_number(source: str, text: str) -> None:
    assert list(number_problems(source, text, "de", "en")) == []


def test_other_numerals_are_other_numbers() -> None:
    changed = number_problems("Heinrich der Neunte", "Henry VIII", "de", "en")
    assert list(changed) == ["number-changed: 9"]
    changed = number_problems("Henry VIII", "Heinrich der Neunte", "en", "de")
    assert list(changed) == ["number-changed: 8"]
    changed = number_problems("Das dritte Buch ist gut.", "The second book is good.", "de", "en")
    assert list(changed) == ["number-changed: 3"]


@pytest.mark.parametrize(
    ("language", "source", "text", "expected"),
    [
        ("en", "etwas", "One wants it", "one wants it"),
        ("en", "der Text", "The text of Tom", "the text of Tom"),
        ("en", "ein Hund", "A dog", "a dog"),
        ("en", "ich will", "I want", "I want"),
        ("en", "die NASA", "NASA", "NASA"),
        ("en", "Boston", "Boston", "Boston"),  # names and nouns are what the tokenizer knows
        ("de", "dogs", "Hunde", "Hunde"),
    ],
)
def test_case_inside_a_sentence(language: str, source: str, text: str, expected: str) -> None:
    class Stub:
        def encode_batch(self, texts: list[str], *, target: bool) -> list[list[int]]:
            return [[1] if text[0].isupper() else [1, 2] for text in texts]

    assert inside_sentence(text, source, Stub(), language) == expected


@pytest.mark.parametrize(
    ("source", "text", "is_missing"),
    [
        ("Salz, Öl, Reis und Tee fehlen.", "Salt, oil and tea are missing.", True),
        ("Salz, Öl, Reis und Tee fehlen.", "Salt, oil, oil and tea are missing.", True),
        (
            "Ich weiß, dass Salz, Öl, Reis und Tee fehlen.",
            "I know: salt, oil, rice and tea.",
            False,
        ),
        ("Salz, Öl, Mehl, Reis und Tee fehlen in der Küche.", "Salt, oil, flour, tea.", True),
        (
            "Salz, Öl, Mehl, Reis und Tee fehlen in der Küche.",
            "Salt, oil, flour, rice, tea.",
            False,
        ),
        (
            "Tiere, die laufen dürfen, fressen und schlafen viel mehr als wir.",
            "Animals, if free, eat.",
            False,
        ),
        ("Salz, Öl, Reis sowie Tee", "Salt, oil, rice as well as tea", False),
        ("Er geht, sagt er, sowie der Hund und Tom.", "He goes, he says, with the dog.", False),
        ("Seiten, Seitentypen, Typen und Felder", "Pages, page types, types and fields", False),
        (
            "Oh, come on, Tom, you know, we are late.",
            "Oh, komm, Tom, weißt du, es ist spät.",
            False,
        ),
    ],
)
def test_clauses_with_commas_are_no_missing_items(source: str, text: str, is_missing: bool) -> None:
    assert has_missing_item(source, text) is is_missing


def test_items_of_lists() -> None:
    found = find_items("We need salt, oil, rice, tea and bread.")
    assert found is not None
    assert found[0] == "oil, rice, tea and bread"
    found = find_items("We bought salt, oil, rice, tea and bread in the old town yesterday.")
    assert found is not None
    assert found[0] == "oil, rice, tea"
    found = find_items("Wer, wie, was, wann, wo und warum?")
    assert found is not None
    assert found[0] == "wie, was, wann, wo und warum"
    assert find_items("After dinner, he went home and slept.") is None


def test_marks_are_restored_around_aligned_words() -> None:
    alignment = [(0, 0), (1, 1), (2, 2), (3, 3)]
    assert (
        restore_marks("He (my brother) sleeps.", "Er mein Bruder schläft.", alignment)
        == "Er (mein Bruder) schläft."
    )
    assert (
        restore_marks('Say "good day" now.', 'Sag "guten Tag jetzt.', alignment)
        == 'Sag "guten Tag" jetzt.'
    )
    rng = random.Random(1)
    for _ in range(200):  # balanced, whatever the alignment
        words = [
            rng.choice(["a", "(b", "c)", '"d"', "(e)", '"f', 'g"'])
            for _ in range(rng.randint(1, 8))
        ]
        source, text = (
            " ".join(words),
            " ".join(rng.sample("u v w x y z".split(), rng.randint(1, 6))),
        )
        pairs = [(rng.randrange(8), rng.randrange(6)) for _ in range(6)]
        restored = restore_marks(source, text, pairs)
        if unbalanced_marks(source, text):
            assert not has_lone_mark(restored)
        assert re.sub(r'[("“”„)]', "", restored) == text


# ---- words that are copied


def test_words_that_the_tokenizer_cannot_spell_are_copied() -> None:
    translator = Translator.load("en-de")
    find = translator.segmenter.find_spans

    def found(text: str) -> list[str]:
        return [text[span.start : span.end] for span in find(text)]

    assert found("My name is Łukasz and I live in Москва.") == ["Łukasz", "Москва"]
    assert found("The ﬁre is ｈｏｔ.") == []  # as fire and hot
    assert found("我们去学校。Yes.") == ["我们去学校", "。"]
    assert found("Send XHTML over USB-C, NOT STRENGTH.") == ["XHTML", "USB-C"]
    assert found("WHERE IS THE STATION?") == []
    assert found("STOP!") == []
    for text, words in {
        "We saw Dvořák in the BÜRO.": ["Dvořák", "BÜRO"],
        "Łuk\u00adasz says हिन्दी.": ["Łuk\u00adasz", "हिन्दी"],
    }.items():
        assert found(unicodedata.normalize("NFD", text)) == [
            unicodedata.normalize("NFD", word) for word in words
        ]
    lines = [
        "The ﬁre is hot.",
        "I`m tired.",
        "- I am tired.",
        "\t• I am tired.",
        "<p>I am tired.</p>",
    ]
    expected = ["The fire is hot.", "I'm tired.", "I am tired.", "I am tired."]
    plain = Guard(translator).translate(expected)
    translated = Guard(translator).translate(lines)
    assert translated == [
        plain[0],
        plain[1],
        f"- {plain[2]}",
        f"\t• {plain[3]}",
        f"<p>{plain[3]}</p>",
    ]
    tabs = Guard(translator).translate(
        ["I am tired.\tThe dog sleeps.", "\tI am tired.\t\tI am tired."]
    )
    assert tabs == ["Ich bin müde.\tDer Hund schläft.", "\tIch bin müde.\t\tIch bin müde."]
    assert Guard(translator).translate(["Я живу в Москве."]) == ["Я живу в Москве."]


# ---- the guard with the pretrained models


@pytest.mark.parametrize("model", ["en-de", "de-en"])
def test_translations_are_complete(model: str) -> None:
    guard = Guard(Translator.load(model))
    src, tgt = guard.languages
    sentences = {
        "en": ["I am tired.", "The dog sleeps.", "Where are you?", "Call me at noon, please."],
        "de": ["Ich bin müde.", "Der Hund schläft.", "Wo bist du?", "Ruf mich heute an."],
    }[src]
    frame = {"en": "I have {} books.", "de": "Ich habe {} Bücher."}[src]
    lines = [f"{first} {second}" for first in sentences for second in sentences if first != second]
    for line, translation in zip(lines, guard.translate(lines), strict=True):
        assert len(re.findall(r"[.!?](?=\s|$)", translation)) >= 2, (line, translation)
    values = range(13, 1000, 97)
    numbers = guard.translate([frame.format(spell_number(value, src)) for value in values])
    for value, translation in zip(values, numbers, strict=True):
        assert value in [number.value for number in find_number_words(translation, tgt)], (
            translation
        )
    names = ["Max", "Peter", "Anna", "Tom", "Lisa", "Paul"]
    joint = {"en": "{} and {} are here.", "de": "{} und {} sind hier."}[src]
    (listed,) = guard.translate([joint.format(", ".join(names[:-1]), names[-1])])
    assert all(each in listed for each in names), listed


def test_lost_sentences_are_translated_one_by_one() -> None:
    translator = Translator.load("en-de")
    stream = translator.stream

    def first_sentences(
        chunks: Iterable[Sequence[str | Line]], *arguments: Any, **options: Any
    ) -> Iterator[Any]:
        texts = [
            [each.text if isinstance(each, Line) else each for each in chunk] for chunk in chunks
        ]
        return stream(
            [[re.split(r"(?<=\.) ", text)[0] for text in chunk] for chunk in texts],
            *arguments,
            **options,
        )

    translator.stream = first_sentences  # type: ignore[method-assign]
    [[best]] = Guard(translator).stream([["I am tired. The dog sleeps."]])
    assert best.text == "Ich bin müde. Der Hund schläft."
    assert best.warnings == ()


def test_lost_marks_are_restored() -> None:
    translator = Translator.load("en-de")
    stream = translator.stream

    def without_marks(*arguments: Any, **options: Any) -> Iterator[list[Translation]]:
        for n_best in stream(*arguments, **options):
            yield [replace(each, text=re.sub(r'[()"„“]', "", each.text)) for each in n_best]

    translator.stream = without_marks  # type: ignore[method-assign]
    [[restored]] = Guard(translator).stream([['She said "good night" to me.']])
    assert re.search(r'"\w[^"]*"', restored.text)
    assert restored.warnings == ()


def test_conjunctions_of_lists_are_translated() -> None:
    class Stub:
        def encode_batch(self, texts: list[str], *, target: bool) -> list[list[int]]:
            return [[1] for _ in texts]

    translations = [Translation("rice"), Translation("tea")]
    assert join_items("Reis sowie Tee", translations, ("de", "en"), Stub()) == "rice and tea"
    assert join_items("Reis, oder Tee", translations, ("de", "en"), Stub()) == "rice or tea"
    assert join_items("Reis oder Tee", translations, ("de", "fr"), Stub()) == "rice oder tea"


def test_the_number_of_a_compound_is_not_added() -> None:
    source = "Die 2.500-Seelen-Gemeinde"
    assert list(number_problems(source, "The 2,500 inhabitants", "de", "en")) == []
    problems = list(number_problems(source, "The 3,500 inhabitants", "de", "en"))
    assert problems == ["number-added: 3500"]
