#!/usr/bin/env python3
"""Write English-German pairs with numbers, times and dates, so that a model writes them as its
target language does: 2,500 in English and 2.500 in German, half past seven and halb acht.

    scripts/number_pairs.py --output data/numbers                 # data/numbers.en, data/numbers.de

Each sentence of data/number_sentences.tsv gets many numbers of its kind. Sentences whose numbers
data/short_inputs.tsv tests are written with others.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from pathlib import Path

from command_errors import error_messages
from nmt.data.pairs import Pair, read_lines, write_pairs

DATA = Path(__file__).resolve().parent.parent / "data"
NUMBERS_PER_SENTENCE = 60
ENGLISH_HOURS = "one two three four five six seven eight nine ten eleven twelve".split()
GERMAN_HOURS = "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf".split()
ENGLISH_MONTHS = (
    "January February March April May June July August September October November December".split()
)
GERMAN_MONTHS = (
    "Januar Februar März April Mai Juni Juli August September Oktober November Dezember".split()
)


def number(rng: random.Random) -> Pair:
    value = str(rng.randint(2, 10 ** rng.randint(1, 3)))
    return value, value


def thousands(rng: random.Random) -> Pair:
    value = rng.randint(10, 10 ** rng.randint(2, 4)) * 100
    english = f"{max(value, 1000):,}"
    return english, english.replace(",", ".")


def decimal(rng: random.Random) -> Pair:
    english = f"{rng.randint(1, 60)}.{rng.randint(1, 99)}"
    return english, english.replace(".", ",")


def ordinal(rng: random.Random) -> Pair:
    value = rng.randint(4, 21)
    ending = "st" if value == 21 else "th"
    return f"{value}{ending}", f"{value}."


def half(rng: random.Random) -> Pair:
    hour = rng.randrange(12)
    return f"half past {ENGLISH_HOURS[hour]}", f"halb {GERMAN_HOURS[(hour + 1) % 12]}"


def hour(rng: random.Random) -> Pair:
    value = rng.randint(1, 23)
    return f"{twelve_hours(value)} {day_half(value)}", str(value)


def clock(rng: random.Random) -> Pair:
    value = rng.randint(1, 23)
    minute = rng.choice(["05", "10", "15", "20", "30", "40", "45", "50"])
    return f"{twelve_hours(value)}:{minute} {day_half(value)}", f"{value}.{minute}"


def date(rng: random.Random) -> Pair:
    day = rng.randint(1, 28)
    month = rng.randrange(12)
    english = f"{ENGLISH_MONTHS[month]} {day}"
    german = f"{day}. {GERMAN_MONTHS[month]}"
    if rng.random() < 0.4:
        year = rng.randint(1890, 2030)
        return f"{english}, {year}", f"{german} {year}"
    return english, german


def twelve_hours(hour: int) -> int:
    return (hour - 1) % 12 + 1


def day_half(hour: int) -> str:
    return "a.m." if hour < 12 else "p.m."


KINDS: dict[str, Callable[[random.Random], Pair]] = {
    draw.__name__: draw for draw in (number, thousands, decimal, ordinal, half, hour, clock, date)
}
"""Functions that draw a number of a kind, in English and in German."""


def fill_sentences(rng: random.Random) -> Iterator[Pair]:
    """Yield the sentences of data/number_sentences.tsv, each with many numbers."""
    for line in read_lines(DATA / "number_sentences.tsv"):
        kind, english, german = line.split("\t")
        for _ in range(NUMBERS_PER_SENTENCE):
            english_number, german_number = KINDS[kind](rng)
            filled = english.replace("{}", english_number), german.replace("{}", german_number)
            # An abbreviation ends the sentence with its own period.
            yield filled[0].replace(".m..", ".m."), filled[1]


def tested_texts() -> set[str]:
    """Return the texts of data/short_inputs.tsv, which are a test."""
    lines = read_lines(DATA / "short_inputs.tsv")
    return {line.split("\t")[2] for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", required=True, type=Path, help="Path without .en and .de.")
    options = parser.parse_args()
    tested = tested_texts()
    with error_messages(options.output):
        filled = dict.fromkeys(fill_sentences(random.Random(1)))
        pairs = [pair for pair in filled if tested.isdisjoint(pair)]
        english = options.output.with_name(f"{options.output.name}.en")
        german = options.output.with_name(f"{options.output.name}.de")
        print(write_pairs(english, german, pairs), "pairs")


if __name__ == "__main__":
    main()
