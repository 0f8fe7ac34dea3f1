#!/usr/bin/env python3
"""Evaluate models between English and German on test sets, noisy input and short inputs, and print Markdown tables.

    scripts/score_pretrained.py                                  # the pretrained models on Tatoeba, Multi30k and wmt13
    scripts/score_pretrained.py --wrong runs/en-de runs/de-en    # other models, and the short inputs they get wrong
    scripts/score_pretrained.py --test tatoeba --test "files(test='newstest2013')"

Each kind of source noise is added to every sentence of the first test set. `nmt data download` fetches the corpora.

data/short_inputs.tsv has 150 words, commands, greetings, numbers, dates, names and addresses for each direction:
source language, category, input, and the accepted translations, separated by bars. Case and final punctuation are not
compared.
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
from nmt.data.noise import SourceNoise
from nmt.data.pairs import read_lines
from nmt.errors import UsageError
from nmt.evaluate.evaluation import RESAMPLES, translate_test_set
from nmt.evaluate.metrics import bleu, chrf
from nmt.evaluate.test_sets import TestSet, named_test_set
from nmt.inference.guard import Guard
from nmt.inference.translator import Translator

INPUTS = Path(__file__).resolve().parent.parent / "data" / "short_inputs.tsv"
SHARED_NOISES = ("lowercase", "uppercase", "no_punctuation", "lowercase_no_punctuation", "typos")
NOISES = {"en": (*SHARED_NOISES, "no_apostrophes"), "de": (*SHARED_NOISES, "no_umlauts")}
SEED = 1
Column = dict[str, str]
"""The cells of one model by row."""


def load(model: str) -> Translator:
    translator = Translator.load(model)
    src, tgt = translator.config.data.src, translator.config.data.tgt
    if {src, tgt} != {"en", "de"}:
        raise UsageError(f"{model} translates from {src} to {tgt}", "choose a model between English and German")
    return translator


def add_noise(test: TestSet, kind: str) -> TestSet:
    noise = SourceNoise([kind])
    sources = [noise.apply(source, [True], Random(f"{SEED} {i}")) for i, source in enumerate(test.sources)]
    return replace(test, name=f"… with `{kind}`", sources=sources)


def test_sets(names: list[str], src: str, tgt: str) -> Iterator[TestSet]:
    first, *others = (replace(named_test_set(name, src, tgt), name=name) for name in names)
    return chain([first], (add_noise(first, kind) for kind in NOISES[src]), others)


def score_test_sets(translator: Translator, tests: Iterable[TestSet]) -> dict[str, Column]:
    """Return a column for BLEU and one for chrF2, with half the width of the 95% confidence interval."""
    columns: dict[str, Column] = {"BLEU": {}, "chrF2": {}}
    for test in tests:
        hypotheses = translate_test_set(translator, test, translator.config.search)
        for metric in (bleu, chrf):
            score = metric(hypotheses, test.references, resamples=RESAMPLES)
            interval = "" if score.half_interval is None else f" ± {score.half_interval:.1f}"
            columns[score.name][test.name] = f"{score.value:.1f}{interval}"
    return columns


def score_short_inputs(model: str, translator: Translator, *, print_wrong: bool) -> Column:
    """Return the number of accepted translations of each category, translated as `nmt translate` does by default."""
    rows = [line.split("\t") for line in read_lines(INPUTS)]
    rows = [row for row in rows if row[0] == translator.config.data.src]
    counts = Counter(category for _, category, _, _ in rows)
    correct: Counter[str] = Counter()
    outputs = Guard(translator).translate([text for _, _, text, _ in rows])
    for (_, category, text, accepted), output in zip(rows, outputs, strict=True):
        is_correct = _normalize(output) in map(_normalize, accepted.split("|"))
        correct[category] += is_correct
        if print_wrong and not is_correct:
            print(f"{model}: {category}: {text} → {output}")
    correct["all"], counts["all"] = correct.total(), counts.total()
    return {category: f"{correct[category]} of {count}" for category, count in counts.items()}


def print_table(head: str, columns: dict[str, Column]) -> None:
    print(f"\n| {head} |", " | ".join(columns), "|")
    print("|---" * (1 + len(columns)) + "|")
    for row in dict.fromkeys(chain.from_iterable(columns.values())):
        print(f"| {row} |", " | ".join(column.get(row, "") for column in columns.values()), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=["en-de-small", "de-en-small"])
    parser.add_argument("--test", action="append", metavar="NAME", help="Corpus or test set of sacreBLEU.")
    parser.add_argument("--wrong", action="store_true", help="Print the translations of short inputs not accepted.")
    options = parser.parse_args()
    scores: dict[str, Column] = {}
    short: dict[str, Column] = {}
    with error_messages():
        translators = {model: load(model) for model in options.models}  # fail before translating
        for model, translator in translators.items():
            data = translator.config.data
            tests = test_sets(options.test or ["tatoeba", "multi30k", "wmt13"], data.src, data.tgt)
            scores |= {f"{model} {metric}": column for metric, column in score_test_sets(translator, tests).items()}
            short[model] = score_short_inputs(model, translator, print_wrong=options.wrong)
        print_table("test set", scores)
        print_table("short inputs", short)


def _normalize(text: str) -> str:
    return text.strip().rstrip(".!?").lower()


if __name__ == "__main__":
    main()
