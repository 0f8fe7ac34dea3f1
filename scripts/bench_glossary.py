#!/usr/bin/env python3
"""Measure how many glossary terms are applied, how many stand beside another translation, and BLEU.

    scripts/bench_glossary.py --model en-de
    scripts/bench_glossary.py --model en-de --sentences scripts/glossary/more
    scripts/bench_glossary.py --model runs/multi30k --train train.en train.de --test test.en test.de

By default, the test has 200 sentences, English and German, with 20 terms (`scripts/glossary`);
`scripts/glossary/more` has 60 with 20 other terms, with which no rule was developed. Columns three
and four of `terms.tsv` are other translations of a term into English and German. A term is doubled
if it occurs twice, or together with one of them.

With `--train`, the glossary is made from the training text: pairs of words that occur together much
more often than apart (Dice coefficient). The test uses the sentences of the test set in which a
source term occurs and the reference has its translation, as Dinu et al. 2019 do, so that applying a
term is right.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import sacrebleu

import benchmark
from aligned_words import aligned_words
from benchmark import print_head, print_row
from command_errors import error_messages
from nmt.data.pairs import read_lines, read_pairs
from nmt.translation.checks import count_occurrences, is_missing
from nmt.translation.glossary import Glossary, Term
from nmt.translation.guard import Guard
from nmt.translation.result import Translation
from nmt.translation.segments import FixedSpan, Line
from nmt.translation.translator import Translator

OWN_TEST = Path(__file__).parent / "glossary"
TERM_PROBLEMS = ("term-not-applied", "term-doubtful")


@dataclass
class Test:
    """A glossary and the sentences in which its terms occur."""

    glossary: Glossary
    other_words: dict[str, list[str]] = field(default_factory=dict)
    """Other translations of a term, by its translation."""
    lines: list[Line] = field(default_factory=list)
    references: list[str] = field(default_factory=list)

    def add(self, source: str, reference: str) -> None:
        """Add a sentence if a term of the glossary occurs in it and its translation in the
        reference."""
        spans = [span for span in self.glossary.find(source) if not is_missing(span, reference)]
        if spans:
            self.lines.append(Line(source, fixed=tuple(spans)))
            self.references.append(reference)

    def is_doubled(self, span: FixedSpan, text: str) -> bool:
        """Return whether the term occurs twice, or together with another translation of it."""
        if is_missing(span, text):
            return False
        if count_occurrences(text, span.translation, inflected=True) > 1:
            return True
        # The words of the term itself are no other translation.
        rest = re.sub(rf"\b{re.escape(span.translation)}", " ", text, flags=re.IGNORECASE)
        others = self.other_words.get(span.translation, [])
        return any(re.search(rf"\b{re.escape(word)}\b", rest, re.IGNORECASE) for word in others)


def own_test(directory: Path, src: str, tgt: str) -> Test:
    """Return the sentences of a directory, in the direction of the model."""
    terms = [line.split("\t") for line in read_lines(directory / "terms.tsv")]
    column = ("en", "de").index(src)
    test = Test(Glossary(Term(term[column], term[1 - column], src) for term in terms))
    for term in terms:
        other_words = term[3 - column]
        test.other_words[term[1 - column]] = other_words.split(", ")
    source_file = directory / f"sentences.{src}"
    target_file = directory / f"sentences.{tgt}"
    for source, reference in read_pairs(source_file, target_file):
        test.add(source, reference)
    return test


def test_of_corpus(train: Sequence[Path], files: Sequence[Path], language: str) -> Test:
    """Return the sentences of a test set with word pairs of a high Dice coefficient whose target is
    a capitalized word: German nouns.
    """
    words = aligned_words(read_pairs(*train), min_dice=0.5, min_count=5)
    nouns = (
        (src, tgt) for src, tgt in words if src.islower() and tgt[0].isupper() and len(src) > 3
    )
    test = Test(Glossary(Term(src, tgt, language) for src, tgt in nouns))
    for source, reference in zip(*map(read_lines, files), strict=True):
        test.add(source, reference)
    return test


def report(name: str, test: Test, output: Sequence[Translation]) -> None:
    """Print a row of the table."""
    applied_once = doubled = warned = num_terms = 0
    for line, translation in zip(test.lines, output, strict=True):
        warned += translation.has_problem(TERM_PROBLEMS)
        for span in line.fixed:
            is_doubled = test.is_doubled(span, translation.text)
            num_terms += 1
            doubled += is_doubled
            applied_once += not is_doubled and not is_missing(span, translation.text)
    texts = [translation.text for translation in output]
    bleu = sacrebleu.corpus_bleu(texts, [test.references]).score
    shares = f"{applied_once / num_terms:.1%}", f"{doubled / num_terms:.1%}"
    print_row([name, *shares, warned, f"{bleu:.1f}"])


def main() -> None:
    """Print a table with one row per system."""
    parser = benchmark.parser(__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--sentences", type=Path, default=OWN_TEST, help="directory of the test")
    parser.add_argument("--train", nargs=2, type=Path)
    parser.add_argument("--test", nargs=2, type=Path)
    parser.add_argument(
        "--show", action="store_true", help="print all translations with the glossary"
    )
    options = parser.parse_args()
    if (options.train is None) != (options.test is None):
        parser.error("--train and --test need each other")
    translator = Translator.load(options.model)
    data = translator.config.data
    if options.train:
        test = test_of_corpus(options.train, options.test, data.src)
    else:
        test = own_test(options.sentences, data.src, data.tgt)
    if not test.lines:
        parser.error("no test sentence has a term of the glossary")
    guard = Guard(translator)
    num_terms = sum(len(line.fixed) for line in test.lines)
    print(f"{len(test.lines)} sentences with {num_terms} terms")
    print_head("system", "applied once", "doubled", "with a warning", "BLEU")
    without_terms = [Line(line.text) for line in test.lines]
    for name, lines in {"without glossary": without_terms, "with glossary": test.lines}.items():
        output = [n_best[0] for n_best in guard.stream([lines])]
        report(name, test, output)
    if options.show:
        show(test, output)


def show(test: Test, output: Sequence[Translation]) -> None:
    """Print all translations, with their problems."""
    for line, translation in zip(test.lines, output, strict=True):
        print(line.text)
        print(f"    {translation.text}")
        for span in line.fixed:
            if test.is_doubled(span, translation.text):
                print(f"    doubled: {span.translation}")
        for warning in translation.warnings:
            print(f"    {warning}")


if __name__ == "__main__":
    with error_messages():
        main()
