#!/usr/bin/env python3
"""Evaluate models between English and German on test sets, noisy and short input and names, and
print Markdown tables.

    scripts/score_pretrained.py                                  # the pretrained models on Tatoeba,
    Multi30k and wmt13 scripts/score_pretrained.py --wrong runs/en-de runs/de-en    # other models,
    and the inputs they get wrong scripts/score_pretrained.py --test tatoeba --test
    "files(test='newstest2013')"

Each kind of source noise is added to every sentence of the first test set. `nmt data download`
fetches the corpora. Each test set is also searched for translations with less than half of the
words of the source or with a loop.

data/short_inputs.tsv has 150 words, commands, greetings, numbers, dates, names and addresses for
each direction, and data/first_sentences.tsv has sentences that people type first: source language,
category, input, and the accepted translations, separated by bars. Case and final punctuation are
not compared. data/proper_names.tsv has 200 names of persons, places and firms, each of which must
be in the translation of a sentence letter by letter.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from random import Random

from command_errors import error_messages
from nmt.core.errors import UsageError
from nmt.data.noise import SourceNoise
from nmt.data.pairs import read_lines
from nmt.evaluate.evaluation import RESAMPLES, translate_test_set
from nmt.evaluate.metrics import bleu, chrf
from nmt.evaluate.test_sets import TestSet, named_test_set
from nmt.translation.checks import REPETITION
from nmt.translation.guard import Guard
from nmt.translation.translator import Translator

DATA = Path(__file__).resolve().parent.parent / "data"
INPUTS = (DATA / "short_inputs.tsv", DATA / "first_sentences.tsv")
NAMES = DATA / "proper_names.tsv"
NAME_SENTENCES = {
    ("en", "person"): "Yesterday {} spoke with my neighbor about the new school.",
    ("en", "place"): "We spent a week in {} and visited the old harbor.",
    ("en", "firm"): "Her sister works for {} and earns good money.",
    ("de", "person"): "Gestern sprach {} mit meinem Nachbarn über die neue Schule.",
    ("de", "place"): "Wir verbrachten eine Woche in {} und besichtigten den alten Hafen.",
    ("de", "firm"): "Ihre Schwester arbeitet für {} und verdient gutes Geld.",
}
SHARED_NOISES = ("lowercase", "uppercase", "no_punctuation", "lowercase_no_punctuation", "typos")
NOISES = {"en": (*SHARED_NOISES, "no_apostrophes"), "de": (*SHARED_NOISES, "no_umlauts")}
SEED = 1
Column = dict[str, str]
"""The cells of one model by row."""


def load(model: str) -> Translator:
    translator = Translator.load(model)
    src, tgt = translator.config.data.src, translator.config.data.tgt
    if {src, tgt} != {"en", "de"}:
        raise UsageError(
            f"{model} translates from {src} to {tgt}", "choose a model between English and German"
        )
    return translator


def add_noise(test: TestSet, kind: str) -> TestSet:
    noise = SourceNoise([kind])
    sources = [
        noise.apply(source, [True], Random(f"{SEED} {i}")) for i, source in enumerate(test.sources)
    ]
    return replace(test, name=f"… with `{kind}`", sources=sources)


def test_sets(names: list[str], src: str, tgt: str) -> Iterator[TestSet]:
    first, *others = (replace(named_test_set(name, src, tgt), name=name) for name in names)
    return chain([first], (add_noise(first, kind) for kind in NOISES[src]), others)


def score_test_sets(translator: Translator, tests: Iterable[TestSet]) -> dict[str, Column]:
    """Return columns for BLEU, chrF2 and incomplete translations; scores with half of the 95%
    confidence interval."""
    columns: dict[str, Column] = {"BLEU": {}, "chrF2": {}, "short or loop": {}}
    for test in tests:
        hypotheses = translate_test_set(translator, test, translator.config.search)
        for metric in (bleu, chrf):
            score = metric(hypotheses, test.references, resamples=RESAMPLES)
            interval = "" if score.half_interval is None else f" ± {score.half_interval:.1f}"
            columns[score.name][test.name] = f"{score.value:.1f}{interval}"
        num_incomplete = sum(map(is_incomplete, test.sources, hypotheses))
        columns["short or loop"][test.name] = f"{num_incomplete / len(hypotheses):.1%}"
    return columns


def is_incomplete(source: str, translation: str) -> bool:
    """Return whether a translation has less than half of the words of the source, or repeats a
    phrase."""
    is_short = 2 * len(translation.split()) < len(source.split())
    return is_short or (
        REPETITION.search(translation) is not None and not REPETITION.search(source)
    )


def score_short_inputs(model: str, translator: Translator, *, print_wrong: bool) -> Column:
    """Return the number of accepted translations of each category, translated as `nmt translate`
    does by default."""
    rows = [line.split("\t") for path in INPUTS for line in read_lines(path)]
    rows = [row for row in rows if row[0] == translator.config.data.src]
    counts = Counter(category for _, category, _, _ in rows)
    correct: Counter[str] = Counter()
    outputs = Guard(translator).translate([text for _, _, text, _ in rows])
    for (_, category, text, accepted), output in zip(rows, outputs, strict=True):
        is_correct = _normalize(output) in map(_normalize, accepted.split("|"))
        correct[category] += is_correct
        if print_wrong and not is_correct:
            print(f"{model}: {category}: {text} → {output}")
    all_short = "all short inputs"
    correct[all_short] = correct.total() - correct["first sentence"]
    counts[all_short] = counts.total() - counts["first sentence"]
    return {category: f"{correct[category]} of {count}" for category, count in counts.items()}


def score_names(model: str, translator: Translator, *, print_wrong: bool) -> Column:
    """Return the number of names of each kind that a translation has letter by letter."""
    names = [line.split("\t") for line in read_lines(NAMES)]
    src = translator.config.data.src
    outputs = Guard(translator).translate(
        [NAME_SENTENCES[src, kind].format(name) for kind, name in names]
    )
    counts = Counter(kind for kind, _ in names)
    kept: Counter[str] = Counter()
    for (kind, name), output in zip(names, outputs, strict=True):
        is_kept = name in output
        kept[kind] += is_kept
        if print_wrong and not is_kept:
            print(f"{model}: {kind}: {name} → {output}")
    kept["all names"], counts["all names"] = kept.total(), counts.total()
    return {kind: f"{kept[kind]} of {count}" for kind, count in counts.items()}


def print_table(head: str, columns: dict[str, Column]) -> None:
    print(f"\n| {head} |", " | ".join(columns), "|")
    print("|---" * (1 + len(columns)) + "|")
    for row in dict.fromkeys(chain.from_iterable(columns.values())):
        print(f"| {row} |", " | ".join(column.get(row, "") for column in columns.values()), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("models", nargs="*", default=["en-de", "de-en"])
    parser.add_argument(
        "--test", action="append", metavar="NAME", help="Corpus or test set of sacreBLEU."
    )
    parser.add_argument(
        "--wrong",
        action="store_true",
        help="Print the translations of inputs and names that are wrong.",
    )
    options = parser.parse_args()
    scores: dict[str, Column] = {}
    short: dict[str, Column] = {}
    names: dict[str, Column] = {}
    with error_messages():
        translators = {model: load(model) for model in options.models}  # fail before translating
        for model, translator in translators.items():
            data = translator.config.data
            tests = test_sets(options.test or ["tatoeba", "multi30k", "wmt13"], data.src, data.tgt)
            scores |= {
                f"{model} {metric}": column
                for metric, column in score_test_sets(translator, tests).items()
            }
            short[model] = score_short_inputs(model, translator, print_wrong=options.wrong)
            names[model] = score_names(model, translator, print_wrong=options.wrong)
        print_table("test set", scores)
        print_table("short inputs", short)
        print_table("names", names)


def _normalize(text: str) -> str:
    return text.strip().rstrip(".!?").lower()


if __name__ == "__main__":
    main()
