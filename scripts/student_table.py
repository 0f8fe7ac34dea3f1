#!/usr/bin/env python
"""Print BLEU and speed of a teacher and a student on the test set of a corpus, as a Markdown table.

    scripts/student_table.py multi30k runs/multi30k runs/students/multi30k

The models take turns and the table has medians, which are reliable on a shared machine. Times
include tokenization.
"""

from __future__ import annotations

import argparse
import statistics
import time

from nmt.jobs import process_settings

process_settings.set_defaults()  # before importing torch, like the nmt command

from command_errors import error_messages
from nmt.evaluate.metrics import bleu
from nmt.evaluate.test_sets import named_test_set
from nmt.translation.translator import Translator

SETTINGS = (("fp32", "beam(beam_size=4)"), ("int8", "beam(beam_size=4)"), ("int8", "greedy"))
"""Precisions and searches."""


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus")
    parser.add_argument("teacher")
    parser.add_argument("student")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    models = {"teacher": arguments.teacher, "student": arguments.student}
    rows = [(name, *setting) for name in models for setting in SETTINGS]
    # Both searches in int8 share a model.
    variants = dict.fromkeys((name, precision) for name, precision, _ in rows)
    loaded = {each: Translator.load(models[each[0]], "cpu", each[1]) for each in variants}
    data = loaded[rows[0][:2]].config.data
    test = named_test_set(arguments.corpus, data.src, data.tgt)
    seconds: dict[tuple[str, str, str], list[float]] = {row: [] for row in rows}
    scores = {}
    for _ in range(arguments.repeats):
        for row in rows:
            start = time.perf_counter()
            translations = loaded[row[:2]].translate(test.sources, row[2])
            seconds[row].append(time.perf_counter() - start)
            scores[row] = bleu(translations, test.references).value
    print("| model | precision | search | BLEU | sentences per second |\n|---|---|---|---|---|")
    for row in rows:
        speed = len(test.sources) / statistics.median(seconds[row])
        print(f"| {' | '.join(row)} | {scores[row]:.1f} | {speed:,.0f} |")


if __name__ == "__main__":
    with error_messages():
        main()
