#!/usr/bin/env python3
"""Write greetings, commands and single words as training data, because corpora have few texts
shorter than a sentence.

    scripts/short_texts.py en de PREFIX --test tatoeba                  # PREFIX.en and PREFIX.de,
    English to German scripts/short_texts.py de en PREFIX --test tatoeba --lexicon train  # also
    words aligned in train.en and train.de

data/courtesies.tsv and data/words.tsv have English and German texts. The first translation of a
text is its target; the others are for the reverse direction. The case of the source is varied, and
its final punctuation if it has one; the target is not changed. Courtesies are repeated. Sentences
of the test sets are left out, and so are the words and labels of data/short_inputs.tsv, except for
those among the courtesies.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from aligned_words import aligned_words
from command_errors import error_messages
from nmt.data.pairs import Pair, read_lines, read_pairs, read_tsv, write_pairs
from nmt.data.sources.holdout import sentence_key
from tested_sentences import tested_sentences

DATA = Path(__file__).resolve().parent.parent / "data"
FINAL_PUNCTUATION = {"?": ("", "?", "??"), **dict.fromkeys(".!", ("", ".", "!", "!!", "..."))}
"""Variants of the final punctuation. That of words, which have none, is not varied."""
ABBREVIATION = re.compile(r"(?:\.\w|\b(?:Chr|Mr|Mrs|Dr|etc))\.$")
"""A final period that belongs to a word, as in 2 p.m."""
COURTESY_REPEATS = 5
"""How often courtesies are written: a pair that is seen too rarely is translated like similar
words."""
MIN_DICE = 0.4
"""Word pairs with a smaller Dice coefficient are often wrong."""


def vary(pairs: Iterable[Pair], excluded: set[str]) -> Iterator[Pair]:
    """Yield the spellings of each source with its first translation, unless one of both is in
    `excluded`.

    A source as it is written has priority over variants of others: Turkey is a country, and turkey
    a bird.
    """
    first: dict[str, str] = {}
    for source, target in pairs:
        first.setdefault(source, target)
    seen = set(first)
    for source, target in first.items():
        punctuation = "" if ABBREVIATION.search(source) else source[-1:]
        kind = FINAL_PUNCTUATION.get(punctuation, ("",))
        words = source.removesuffix(punctuation) if punctuation in FINAL_PUNCTUATION else source
        spellings = (words, words.lower(), words[:1].upper() + words[1:])
        variants = dict.fromkeys(text + ending for text in spellings for ending in kind)
        variants = {source: None} | {text: None for text in variants if text not in seen}
        seen |= variants.keys()
        if not {sentence_key(source), sentence_key(target)} & excluded:
            yield from ((text, target) for text in variants)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("source", choices=("en", "de"))
    parser.add_argument("target", choices=("en", "de"))
    parser.add_argument("prefix", type=Path)
    parser.add_argument(
        "--test",
        action="append",
        default=[],
        metavar="NAME",
        help="Exclude the sentences of this test set; repeat it for several.",
    )
    parser.add_argument(
        "--lexicon", type=Path, metavar="PREFIX", help="Add word pairs from these sentence pairs."
    )
    options = parser.parse_args()
    if options.source == options.target:
        parser.error("source and target are the same language")
    src, tgt = (
        options.prefix.with_name(f"{options.prefix.name}.{code}")
        for code in (options.source, options.target)
    )
    with error_messages(options.prefix):
        excluded = tested_sentences(options.test, options.source, options.target)
        words: Iterable[Pair] = read_tsv(DATA / "words.tsv")
        if options.lexicon:
            english, german = (
                options.lexicon.with_name(f"{options.lexicon.name}.{code}") for code in ("en", "de")
            )
            words = chain(words, aligned_words(read_pairs(english, german), MIN_DICE))
        tested = {
            sentence_key(line.split("\t")[2]) for line in read_lines(DATA / "short_inputs.tsv")
        }
        words = (pair for pair in words if not {*map(sentence_key, pair)} & tested)
        courtesies = [*_directed(read_tsv(DATA / "courtesies.tsv"), options.source)]
        pairs = [*vary(chain(courtesies, _directed(words, options.source)), excluded)]
        frequent = {source for source, _ in vary(courtesies, excluded)}
        repeated = (
            pair for pair in pairs for _ in range(COURTESY_REPEATS if pair[0] in frequent else 1)
        )
        print(write_pairs(src, tgt, repeated), "pairs")


def _directed(pairs: Iterable[Pair], source: str) -> Iterator[Pair]:
    """Yield English-German pairs with the side in the language `source` first."""
    return (pair if source == "en" else pair[::-1] for pair in pairs)


if __name__ == "__main__":
    main()
