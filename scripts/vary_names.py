#!/usr/bin/env python3
"""Replace names and numbers in English-German training data by others, so that a model learns to
copy any of them.

    scripts/vary_names.py joined varied          # varied.en and varied.de from joined.en and
    joined.de

In a corpus such as Tatoeba, nearly every person is called Tom. In two of three pairs, this script
writes another name if both sides contain "Tom" equally often: a given name, a given name with a
surname, a surname with Mr., Mrs. or Dr., or an invented name. It also replaces a number of at most
four digits that both sides contain once by another of the same length, except for years and numbers
that begin with 0 or 1. The result depends on each pair only. The names are those of data/names.txt,
without those of data/short_inputs.tsv, which tests whether a model copies other names.
"""

from __future__ import annotations

import argparse
import random
import re
import zlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from command_errors import error_messages
from nmt.data.pairs import Pair, read_lines, read_pairs, write_pairs
from nmt.data.sources.holdout import sentence_key
from tested_sentences import tested_sentences

DATA = Path(__file__).resolve().parent.parent / "data"
SHARE = 2 / 3
"""Share of the pairs with a name or number that are varied."""
NAME = re.compile(r"\bTom(?:'s|’s|s|'(?= \w))?(?!\w)")
"""The name with its genitive endings: Tom's in English, Toms in German."""
DATIVE = re.compile(
    r"Tom (?:gefällt|gefiel|fehlt|fehlte|gehört|gehörte|geht es|ging es|ist"
    r" (?:es|kalt|warm|schlecht|langweilig))\b"
)
"""The beginning of a German sentence in which Tom is not the subject."""
NUMBER = re.compile(r"(?<![\w.,:/])(?!20\d\d)[2-9]\d{0,3}(?![\w:/]|[.,]\d)")
"""A number of at most four digits, but no year."""
MONTH = re.compile(r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)")
MASCULINE = re.compile(
    r"\b(?:he|his|him|himself|man|boy|boyfriend|guy|father|brother|son|husband|er|sein\w*)\b",
    re.IGNORECASE,
)
ONSETS, VOWELS = "b d f g h j k l m n p r s t v w br dr fl gr kl st sch tr".split(), "aeiou"
CODAS = "n r s l m t k nd rt x".split()
"""Parts of syllables of invented names."""


def load_names() -> dict[str, list[str]]:
    """Return the names of data/names.txt by kind, without those of data/short_inputs.tsv."""
    inputs = (line.split("\t")[2] for line in read_lines(DATA / "short_inputs.tsv"))
    tested = {word for text in inputs for word in re.findall(r"\w+", text)}
    kinds = (line.split() for line in read_lines(DATA / "names.txt"))
    return {kind: [name for name in names if name not in tested] for kind, *names in kinds}


def draw_name(
    rng: random.Random, names: dict[str, list[str]], *, masculine: bool, subject: bool
) -> Pair:
    """Return a person's English and German name; `Mr.` only for a subject, because `Herr` is
    declined."""
    given = rng.choice(names["male"] if masculine or rng.random() < 0.5 else names["female"])
    surname = rng.choice(names["surname"])
    match rng.choices(("given", "full", "title", "invented"), (60, 15, 15, 10))[0]:
        case "given":
            return given, given
        case "full":
            return f"{given} {surname}", f"{given} {surname}"
        case "title":
            titles = [("Dr.", "Dr.")]
            titles += [("Mr.", "Herr")] * 2 if subject else []
            titles += [] if masculine else [("Mrs.", "Frau"), ("Ms.", "Frau")]
            english, german = rng.choice(titles)
            return f"{english} {surname}", f"{german} {surname}"
        case _:
            syllables = (rng.choice(ONSETS) + rng.choice(VOWELS) for _ in range(rng.randint(1, 3)))
            invented = ("".join(syllables) + rng.choice(CODAS)).capitalize()
            return invented, invented


def vary(pairs: Iterable[Pair], test: Collection[str] = ()) -> Iterator[Pair]:
    """Yield English and German pairs, two of three with other names and numbers, unless a side is
    then in `test`."""
    names = load_names()
    for pair in pairs:
        rng = random.Random(zlib.crc32("\t".join(pair).encode()))
        varied = _vary_number(_vary_name(pair, rng, names), rng) if rng.random() < SHARE else pair
        yield pair if any(sentence_key(side) in test for side in varied) else varied


def _vary_name(pair: Pair, rng: random.Random, names: dict[str, list[str]]) -> Pair:
    english, german = pair
    count = len(NAME.findall(english))
    if not count or count != len(NAME.findall(german)):
        return pair
    subject = (
        count == 1
        and english.startswith("Tom ")
        and german.startswith("Tom ")
        and not DATIVE.match(german)
    )
    masculine = bool(MASCULINE.search(f"{english} {german}"))
    first, second = draw_name(rng, names, masculine=masculine, subject=subject)
    genitive = second + ("'" if second.endswith(("s", "x", "z", "ß")) else "s")
    return (
        NAME.sub(lambda match: first + match[0].removeprefix("Tom"), english),
        NAME.sub(lambda match: second if match[0] == "Tom" else genitive, german),
    )


def _vary_number(pair: Pair, rng: random.Random) -> Pair:
    numbers = NUMBER.findall(pair[0])
    if len(numbers) != 1 or NUMBER.findall(pair[1]) != numbers or MONTH.search(pair[0]):
        return pair
    length = len(numbers[0])
    new = str(rng.randint(max(2, 10 ** (length - 1)), 10**length - 1))
    return NUMBER.sub(new, pair[0]), NUMBER.sub(new, pair[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("input", type=Path, help="Path of the pairs without .en and .de.")
    parser.add_argument("output", type=Path, help="Path of the varied pairs without .en and .de.")
    parser.add_argument(
        "--test",
        action="append",
        default=[],
        metavar="NAME",
        help="Leave pairs as they are that would have sentences of this test set; repeat it for"
        " several.",
    )
    options = parser.parse_args()
    source, target = (
        [path.with_name(f"{path.name}.{code}") for path in (options.input, options.output)]
        for code in ("en", "de")
    )
    with error_messages(options.output):
        test = tested_sentences(options.test, "en", "de")
        print(
            write_pairs(source[1], target[1], vary(read_pairs(source[0], target[0]), test)), "pairs"
        )


if __name__ == "__main__":
    main()
