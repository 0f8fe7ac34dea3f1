#!/usr/bin/env python3
"""Write English-German pairs with rare names of persons, places and firms, so that a model learns
to copy any name.

    scripts/name_pairs.py --mono my/news --output data/names clean/prose clean/tatoeba

The names are capitalized words of the monolingual text (my/news.en, my/news.de; compressed ones,
too) that are never written in lowercase, and that no pair translates. Others are German nouns with
the endings of places and surnames, whose nouns a model must not translate, or are made of the
halves of two names, because a model must copy spellings that it has not seen. In pairs with a name
that both sides share, it is replaced by another one; the sentences of data/name_sentences.tsv get
names, too. Names of data/proper_names.tsv, which tests whether a model copies other names, are left
out.
"""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from command_errors import error_messages
from nmt.data.pairs import Pair, read_lines, read_pairs, write_pairs
from nmt.data.sources.files import find_language_file
from vary_names import load_names

DATA = Path(__file__).resolve().parent.parent / "data"
CAPITALIZED = re.compile(r"(?<![\w-])[^\W\d_a-zß-ÿ][^\W\d_A-Z]{2,}(?![\w-])")
LOWERCASE = re.compile(r"(?<!\w)[^\W\d_A-Z]+(?!\w)")
NAME_SEQUENCE = re.compile(rf"{CAPITALIZED.pattern}(?: {CAPITALIZED.pattern}){{0,2}}")
GERMAN_PLACE = re.compile(r" (?:in|aus|nach|bei|von) ([A-ZÄÖÜ][a-zäöüß]{3,})(?=[ ,.])")
GERMAN_NOUN = re.compile(
    r"\b(?:[Dd](?:er|ie|as|en|em|es)|[Ee]in(?:e[mnrs]?)?|[Kk]ein(?:e[mnrs]?)?|[izv][mu]|vom|zur|ins"
    r"|[a-zäöü]+(?:en?|e[rsm])) ([A-ZÄÖÜ][a-zäöüß]+)"
)
MAX_FREQUENCY = 60
"""Occurrences of a name in the monolingual text; more frequent ones are known, and often
translated."""
MIN_FIRM_NOUN = 6
"""Letters of a German noun that names a firm; shorter ones are often no nouns."""
MAX_STEM = 7
"""Letters of a German noun in the name of a place or person; longer ones are often compounds."""
MIN_STEM_FREQUENCY = 20
"""Occurrences of such a noun in the monolingual text; rarer ones are often names already."""
SHARE_OF_COMPOUNDS = 0.25
"""Share of places and surnames that are made of a German noun and an ending."""
SHARE_OF_CROSSED = 0.25
"""Share of the others that are made of the halves of two names."""
PLACE_ENDINGS = (
    "ach au bach berg born brück brunn burg dorf eck feld furt hagen hain hausen heim hofen horst"
    " ingen kirchen leben moor ow roda rode see stadt stedt stein tal walde weiler wied"
).split()
SURNAME_ENDINGS = (
    "bauer berger brandt eder hauer hoff huber inger kamp ke ler mann meier müller ner"
    " schmidt stein thaler"
).split()
NAMES_PER_SENTENCE = 400
"""Names for each sentence of data/name_sentences.tsv."""
NAMES_PER_PAIR = 2
"""Names for each pair of the corpora that shares one."""
FIRMS = (
    "Airways Analytics Bank Brewery Capital Chemicals Cosmetics Dairy Electric Energy Engineering"
    " Entertainment Farms Films Finance Foods Foundation Furniture Games Glass Health Holdings"
    " Hotels Industries Insurance Interactive Labs Logistics Machines Media Motors Outfitters"
    " Partners Pharma Publishing Records Robotics Security Shipping Software Solutions Steel"
    " Studios Systems Technologies Textiles Tools Toys Travel Ventures Bau Betriebe Brauerei Druck"
    " Gebäck Gruppe Handel Immobilien Keramik Maschinenbau Medien Möbel Optik Reisen Spedition"
    " Stahl Technik Textil Touristik Verlag Versand Werke"
).split()
"""Words of firms, which stay in their language."""
PLACE_WORDS = (
    "Bad Sankt San Santa São Los Las El La Le Port Fort Ust Nowy Tel Abu Kuala Phnom".split()
)
"""First words of places."""


@dataclass(frozen=True)
class Names:
    """Rare names by kind."""

    given: Sequence[str]
    words: Sequence[str]
    places: Sequence[str]
    nouns: Sequence[str]
    """German nouns, which firms are also named after."""
    stems: Sequence[str]
    """Short, frequent German nouns, which places and persons are also named after."""
    excluded: AbstractSet[str]
    """Words that are not made of a noun and an ending."""

    def draw(self, kind: str, rng: random.Random) -> str:
        """Return a name of a person, a place or a firm."""
        form = rng.random()
        match kind:
            case "person" if form < 0.2:
                return self._surname(rng)
            case "person" if form < 0.3:
                given = f"{rng.choice(self.given)}-{rng.choice(self.given)}"
                return f"{given} {self._surname(rng)}"
            case "person":
                return f"{rng.choice(self.given)} {self._surname(rng)}"
            case "place" if form < 0.1:
                return f"{self._place(rng)}-{self._place(rng)}"
            case "place" if form < 0.3:
                return f"{rng.choice(PLACE_WORDS)} {self._place(rng)}"
            case "place":
                return self._place(rng)
            case "firm" if form < 0.15:
                return f"{self._surname(rng)} & {self._surname(rng)}"
            case "firm" if form < 0.35:
                return f"{rng.choice(self.nouns)} {rng.choice(FIRMS)}"
            case _:
                return f"{rng.choice(self.words)} {rng.choice(FIRMS)}"

    def _surname(self, rng: random.Random) -> str:
        return self._compound(SURNAME_ENDINGS, rng) or self._word(self.words, rng)

    def _place(self, rng: random.Random) -> str:
        return self._compound(PLACE_ENDINGS, rng) or self._word(self.places, rng)

    def _compound(self, endings: Sequence[str], rng: random.Random) -> str:
        """Return a German noun with an ending, for some names."""
        if not self.stems or rng.random() >= SHARE_OF_COMPOUNDS:
            return ""
        stem = rng.choice(self.stems).removesuffix("e")
        name = stem + rng.choice(endings)
        return "" if name in self.excluded else name

    def _word(self, words: Sequence[str], rng: random.Random) -> str:
        """Return a word, or the first half of one with the second half of another one."""
        word = rng.choice(words)
        if rng.random() >= SHARE_OF_CROSSED:
            return word
        other = rng.choice(words)
        crossed = word[: len(word) // 2] + other[len(other) // 2 :]
        return word if crossed in self.excluded else crossed


def translated_words(pairs: Iterable[Pair]) -> set[str]:
    """Return the capitalized English words that a German side of the pairs lacks."""
    translated: set[str] = set()
    for english, german in pairs:
        translated.update(word for word in CAPITALIZED.findall(english) if word not in german)
    return translated


def find_names(english: Iterable[str], german: Iterable[str], excluded: set[str]) -> Names:
    """Return the rare names of monolingual text, without the excluded words."""
    capitalized: Counter[str] = Counter()
    lowercase: set[str] = set()
    for line in english:
        # The first word of a sentence is always capitalized.
        capitalized.update(CAPITALIZED.findall(line, line.find(" ") + 1))
        lowercase.update(LOWERCASE.findall(line))
    places: Counter[str] = Counter()
    surnames: Counter[str] = Counter()
    nouns: Counter[str] = Counter()
    given = load_names()
    known = [*given["male"], *given["female"]]
    german_surname = re.compile(rf"\b(?:{'|'.join(known)}) ([A-ZÄÖÜ][a-zäöüß]{{4,}})(?=[ ,])")
    for line in german:
        places.update(GERMAN_PLACE.findall(line))
        surnames.update(german_surname.findall(line))
        nouns.update(GERMAN_NOUN.findall(line))
        lowercase.update(LOWERCASE.findall(line))
    common = {word.capitalize() for word in lowercase} | excluded

    def rare(counts: Counter[str]) -> list[str]:
        return sorted(
            word for word in counts if counts[word] <= MAX_FREQUENCY and word not in common
        )

    words = [word for word in rare(capitalized) if word not in nouns]
    german_places = [word for word in rare(places) if word not in nouns]
    all_words = sorted({*words, *rare(surnames), *given["surname"]})
    all_places = sorted({*german_places, *all_words})
    untested = sorted(noun for noun in nouns if noun not in excluded)
    german_nouns = [noun for noun in untested if len(noun) >= MIN_FIRM_NOUN]
    frequent = [noun for noun in untested if nouns[noun] >= MIN_STEM_FREQUENCY]
    stems = [noun for noun in frequent if len(noun) <= MAX_STEM]
    return Names(
        [*known, *words], all_words, all_places, german_nouns or all_words, stems, excluded
    )


def replace_names(
    pairs: Iterable[Pair], names: Names, known: set[str], rng: random.Random
) -> Iterator[Pair]:
    """Yield the pairs that share one known name, with another one."""
    for english, german in pairs:
        for match in NAME_SEQUENCE.finditer(english):
            name = match[0]
            words = name.split()
            if not known.issuperset(words) or english.count(name) != 1:
                continue
            if len(re.findall(rf"(?<!\w){re.escape(name)}(?!\w)", german)) == 1:
                new = names.draw(
                    "person" if len(words) > 1 else rng.choice(["person", "place"]), rng
                )
                yield english.replace(name, new), german.replace(name, new)
                break


def fill_sentences(names: Names, rng: random.Random) -> Iterator[Pair]:
    """Yield the sentences of data/name_sentences.tsv, each with many names."""
    for line in read_lines(DATA / "name_sentences.tsv"):
        kind, english, german = line.split("\t")
        for _ in range(NAMES_PER_SENTENCE):
            name = names.draw(kind, rng)
            yield english.replace("{}", name), german.replace("{}", name)


def tested_words() -> set[str]:
    """Return the words of the names that a test needs."""
    lines = read_lines(DATA / "proper_names.tsv")
    return {word for line in lines for word in re.findall(r"\w+", line)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpora", nargs="+", type=Path, help="Paths of pairs without .en and .de.")
    parser.add_argument(
        "--mono", required=True, type=Path, help="Path of the text without .en and .de."
    )
    parser.add_argument("--output", required=True, type=Path, help="Path without .en and .de.")
    options = parser.parse_args()
    with error_messages(options.output):
        pairs: list[Pair] = []
        for path in options.corpora:
            pairs += read_pairs(find_language_file(path, "en"), find_language_file(path, "de"))
        tested = tested_words()
        names = find_names(
            read_lines(find_language_file(options.mono, "en")),
            read_lines(find_language_file(options.mono, "de")),
            translated_words(pairs) | tested,
        )
        given = load_names()
        known = {*given["male"], *given["female"], *given["surname"], *names.words, *names.places}
        rng = random.Random(1)
        new = [*fill_sentences(names, rng)]
        for _ in range(NAMES_PER_PAIR):
            new += replace_names(pairs, names, known, rng)
        output = [
            options.output.with_name(f"{options.output.name}.{code}") for code in ("en", "de")
        ]
        print(write_pairs(output[0], output[1], new), "pairs")


if __name__ == "__main__":
    main()
