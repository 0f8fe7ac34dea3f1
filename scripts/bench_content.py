#!/usr/bin/env python3
"""Measure how many translations are complete: lines of two sentences, numbers in words, lists,
marks, names and signs.

    scripts/bench_content.py en-de de-en
    scripts/bench_content.py en-de --sentences tatoeba --marks "files(test='newstest2013')"
    --show 5

The sentences are pairs from the validation set of a corpus, the marks lines with quotation marks or
brackets of a test set. The rest is generated. Prints the share of complete translations of the
search alone and with the guard.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, product

import benchmark
from benchmark import print_head, print_row
from command_errors import error_messages
from nmt.data.sources import open_split
from nmt.evaluate.test_sets import named_test_set
from nmt.text.number_words import find_number_words, spell_number
from nmt.translation.content import unbalanced_marks
from nmt.translation.guard import Guard
from nmt.translation.translator import Translator

MAX_LINES = 400
MAX_CHARACTERS = 250
NUMBERS = range(3, 1000, 7)
NUMBER_LINES = {
    "en": ("I have {} books.", "There were {} people in the room.", "She paid {} euros for it."),
    "de": ("Ich habe {} Bücher.", "Es waren {} Leute im Raum.", "Sie hat {} Euro dafür bezahlt."),
}
PEOPLE = "Max Peter Anna Tom Lisa Paul Emma Robert".split()
LIST_LINES = {
    "en": ("{} and {} are here.", "I saw {} and {}."),
    "de": ("{} und {} sind hier.", "Ich sah {} und {}."),
}
COPIED = (
    "Łukasz Žižek Dvořák Þórður Ćosić Nguyễn Şahin Škoda Győr Ångström Ørsted Çelik Ionuț Đorđević"
    " Ģirts Москва Київ Αθήνα 北京 東京 서울 דוד محمد ± ≠ ≤ ≥ ¼ ½ ¾ → ← ⇒ ∞ √ ∑ ₹ ₽ ₿ ™ ® § † •"
    " ℃ Ω ‰"
).split()
COPIED_LINES = {
    "en": ("I saw {} yesterday.", "We talked about {} at school."),
    "de": ("Ich habe gestern {} gesehen.", "Wir sprachen in der Schule über {}."),
}
SENTENCE_END = re.compile(r"[.!?…][\"'“”»)]*(?=\s|$)")


@dataclass(frozen=True)
class Case:
    """A line, and the test of its translation."""

    line: str
    is_complete: Callable[[str], bool]


def sentence_cases(corpus: str, src: str, tgt: str) -> Iterator[Case]:
    sources = [source for source, _ in open_split(corpus, "valid", src, tgt).pairs()]
    short = [source for source in sources if source[-1] in ".?!" and 3 <= len(source.split()) <= 9]
    for first, second in islice(zip(short[::2], short[1::2], strict=False), MAX_LINES):
        yield Case(f"{first} {second}", lambda text: len(SENTENCE_END.findall(text)) >= 2)


def number_cases(src: str, tgt: str) -> Iterator[Case]:
    for index, value in enumerate(NUMBERS):
        template = NUMBER_LINES[src][index % len(NUMBER_LINES[src])]

        def has_value(text: str, value: int = value) -> bool:
            in_words = [number.value for number in find_number_words(text, tgt)]
            in_digits = [int(digits) for digits in re.findall(r"\d+", text)]
            return value in in_words + in_digits

        yield Case(template.format(spell_number(value, src)), has_value)


def list_cases(src: str) -> Iterator[Case]:
    for start, length, template in product(range(len(PEOPLE)), range(3, 8), LIST_LINES[src]):
        names = (PEOPLE + PEOPLE)[start : start + length]
        line = template.format(", ".join(names[:-1]), names[-1])
        yield Case(line, lambda text, names=names: all(name in text for name in names))  # type: ignore[misc]


def mark_cases(test_set: str, src: str, tgt: str) -> Iterator[Case]:
    for source in named_test_set(test_set, src, tgt).sources:
        has_pairs = unbalanced_marks(source, "")
        if has_pairs and len(source) <= MAX_CHARACTERS:
            yield Case(source, lambda text, source=source: not unbalanced_marks(source, text))  # type: ignore[misc]


def copied_cases(src: str) -> Iterator[Case]:
    for text, template in product(COPIED, COPIED_LINES[src]):
        yield Case(template.format(text), lambda translation, text=text: text in translation)  # type: ignore[misc]


def measure(cases: list[Case], translator: Translator | Guard, num_shown: int) -> str:
    """Return the share of complete translations, and print some others."""
    translations = translator.translate([case.line for case in cases])
    incomplete = []
    for case, text in zip(cases, translations, strict=True):
        if not case.is_complete(text):
            incomplete.append(f"  {case.line} → {text}")
    for line in incomplete[:num_shown]:
        print(line)
    return f"{1 - len(incomplete) / len(cases):.1%}"


def main() -> None:
    """Print a table with one row per model and kind of line."""
    parser = benchmark.parser(__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument(
        "--sentences", metavar="CORPUS", help="Corpus whose validation sentences are put in pairs."
    )
    parser.add_argument(
        "--marks", metavar="TEST", help="Test set whose lines with marks are translated."
    )
    parser.add_argument(
        "--show", type=int, default=0, help="Number of incomplete translations to print."
    )
    options = parser.parse_args()
    rows = []
    for model in options.models:
        translator = Translator.load(model)
        guard = Guard(translator)
        src, tgt = guard.languages
        kinds = {"numbers in words": number_cases(src, tgt), "lists": list_cases(src)}
        kinds["names and signs"] = copied_cases(src)
        if options.sentences:
            kinds["two sentences"] = sentence_cases(options.sentences, src, tgt)
        if options.marks:
            kinds["marks"] = mark_cases(options.marks, src, tgt)
        for kind, each in kinds.items():
            cases = list(each)
            shares = [measure(cases, translator, 0), measure(cases, guard, options.show)]
            rows.append([model, kind, len(cases), *shares])
    print_head("model", "lines", "number", "search alone", "with the guard")
    for row in rows:
        print_row(row)


if __name__ == "__main__":
    with error_messages():
        main()
