#!/usr/bin/env python3
"""Measure how many glossary terms are applied, and BLEU with and without a glossary.

    scripts/bench_glossary.py --model runs/multi30k --train train.en train.de --test test.en test.de

The glossary is made from the training text: pairs of words that occur together much more often than apart (Dice
coefficient). The test uses the sentences of the test set in which a source term occurs and the reference has its
translation, as Dinu et al. 2019 do, so that applying a term is right.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import sacrebleu

from aligned_words import aligned_words
from command_errors import error_messages
from nmt.data.pairs import read_lines, read_pairs
from nmt.inference.glossary import Glossary, Term
from nmt.inference.guard import Guard
from nmt.inference.problems import is_missing
from nmt.inference.segments import Line
from nmt.inference.translator import Translator


def make_glossary(source: Path, target: Path, language: str) -> Glossary:
    """Return the word pairs with a high Dice coefficient whose target is a capitalized word: German nouns."""
    words = aligned_words(read_pairs(source, target), min_dice=0.5, min_count=5)
    nouns = ((src, tgt) for src, tgt in words if src.islower() and tgt[0].isupper() and len(src) > 3)
    return Glossary(Term(src, tgt, language) for src, tgt in nouns)


def main() -> None:
    """Print a table with one row per system."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--train", nargs=2, type=Path, required=True)
    parser.add_argument("--test", nargs=2, type=Path, required=True)
    options = parser.parse_args()
    translator = Translator.load(options.model)
    glossary = make_glossary(options.train[0], options.train[1], translator.config.data.src)
    sources, references, terms = [], [], []
    for source, reference in zip(*map(read_lines, options.test), strict=True):
        spans = [span for span in glossary.find(source) if not is_missing(span, reference)]
        if spans:
            sources.append(source)
            references.append(reference)
            terms.append(spans)
    lines = [Line(source, fixed=tuple(spans)) for source, spans in zip(sources, terms, strict=True)]
    if not sources:
        parser.error("no test sentence has a term of the glossary")
    guard = Guard(translator)
    print(f"{len(sources)} sentences with {sum(map(len, terms))} terms")
    print("| system | terms applied | BLEU |\n|---|---|---|")
    for name, texts in (("without glossary", sources), ("with glossary", lines)):
        output = guard.translate(texts)
        applied = [not is_missing(span, text) for text, spans in zip(output, terms, strict=True) for span in spans]
        bleu = sacrebleu.corpus_bleu(output, [references]).score
        print(f"| {name} | {sum(applied) / len(applied):.1%} | {bleu:.1f} |")


if __name__ == "__main__":
    with error_messages():
        main()
