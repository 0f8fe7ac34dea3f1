#!/usr/bin/env python3
"""Count how many inline tags cover the right words of a translation.

    scripts/bench_emphasis.py [--model en-de] [--model de-en] [--show]

`emphasis_sentences.tsv` has sentences in which one tag is marked by brackets, and a regular
expression of the words that translate the tagged words. A tag is

- right if it covers these words and no others,
- widened if it also covers at most MAX_NEIGHBORS others,
- partial if it covers some of them,
- dropped if it covers no word,
- wrong otherwise.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path

import benchmark
from benchmark import print_head, print_row
from command_errors import error_messages
from nmt.documents.document import RichText, Tag
from nmt.documents.document_translator import DocumentTranslator
from nmt.text.language_codes import base_language
from nmt.translation.guard import Guard
from nmt.translation.translator import Translator

SENTENCES = Path(__file__).with_name("emphasis_sentences.tsv")
MAX_NEIGHBORS = 4
RESULTS = ("right", "widened", "partial", "dropped", "wrong")
"""The results, the best one first."""
_WORD = re.compile(r"[\w'’]+")


@dataclass(frozen=True)
class Case:
    """A sentence with a tag, and what the tag should cover."""

    kind: str
    block: RichText
    accepted: re.Pattern[str]


def read_cases(language: str) -> list[Case]:
    """Return the sentences in a language."""
    cases = []
    with SENTENCES.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["language"] != language:
                continue
            before, tagged, after = re.split(r"[\[\]]", row["source"])
            tag = Tag(len(before), len(before + tagged), 0)
            accepted = re.compile(rf"(?<!\w)(?:{row['accepted']})(?!\w)")
            cases.append(Case(row["kind"], RichText(before + tagged + after, (tag,)), accepted))
    return cases


def judge(translation: RichText, accepted: re.Pattern[str]) -> str:
    """Return the result for the best of the places that are accepted."""
    (tag,) = translation.tags
    covered = _words(translation.text, tag.start, tag.end)
    if not covered:
        return "dropped"
    results = {"wrong"}
    for match in accepted.finditer(translation.text):
        expected = _words(translation.text, *match.span())
        if covered == expected:
            results.add("right")
        elif expected < covered and len(covered - expected) <= MAX_NEIGHBORS:
            results.add("widened")
        elif covered < expected:
            results.add("partial")
    return min(results, key=RESULTS.index)


def _words(text: str, start: int, end: int) -> set[int]:
    """Return the indices of the words that have a character in a range."""
    words = enumerate(_WORD.finditer(text))
    return {i for i, word in words if max(start, word.start()) < min(end, word.end())}


def measure(model: str, counts: dict[str, Counter[str]], *, show: bool) -> None:
    """Count the tags of each kind by result."""
    translator = Translator.load(model)
    cases = read_cases(base_language(translator.config.data.src))
    translated = DocumentTranslator(Guard(translator)).translate([case.block for case in cases])
    print(f"{model}: {translated.num_doubtful_tags} of {len(cases)} tags are doubtful")
    for case, translation in zip(cases, translated.blocks, strict=True):
        result = judge(translation, case.accepted)
        counts[case.kind][result] += 1
        if show and result != "right":
            print(f"{result}: {_marked(case.block)} -> {_marked(translation)}")


def _marked(rich: RichText) -> str:
    (tag,) = rich.tags
    return f"{rich.text[: tag.start]}[{rich.text[tag.start : tag.end]}]{rich.text[tag.end :]}"


def main() -> None:
    """Print a table with one row per kind of tag."""
    parser = benchmark.parser(__doc__)
    parser.add_argument(
        "--model", action="append", help="may be repeated; default: both pretrained models"
    )
    parser.add_argument(
        "--show", action="store_true", help="print the sentences whose tag is not right"
    )
    options = parser.parse_args()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for model in options.model or ["en-de", "de-en"]:
        measure(model, counts, show=options.show)
    print_head("kind", "tags", *RESULTS)
    for kind, of_kind in counts.items():
        print_row([kind, of_kind.total(), *map(of_kind.__getitem__, RESULTS)])
    total = sum(counts.values(), Counter())
    print_row(["all", total.total(), *map(total.__getitem__, RESULTS)])


if __name__ == "__main__":
    with error_messages():
        main()
