#!/usr/bin/env python3
"""Count the short inputs that a model translates correctly: words, commands, greetings, numbers, names, addresses.

    scripts/score_short_inputs.py                              # the pretrained models
    scripts/score_short_inputs.py --wrong runs/en-de runs/de-en

data/short_inputs.tsv has 150 inputs for each direction between English and German: source language, category, input,
and the accepted translations, separated by bars. Case and final punctuation are not compared. The inputs are translated
as `nmt translate` does by default. Prints a table with one column per model, and with --wrong the other translations.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from nmt.data.pairs import read_lines
from nmt.errors import NMTError
from nmt.inference.guard import Guard
from nmt.inference.translator import Translator

INPUTS = Path(__file__).parent.parent / "data" / "short_inputs.tsv"


def normalize(text: str) -> str:
    return text.strip().rstrip(".!?").lower()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="*", default=["en-de-small", "de-en-small"])
    parser.add_argument("--wrong", action="store_true", help="Print the translations that are not accepted.")
    options = parser.parse_args()
    rows = [line.split("\t") for line in read_lines(INPUTS)]
    total: Counter[str] = Counter()
    correct: dict[str, Counter[str]] = {}
    for model in options.models:
        try:
            translator = Translator.load(model)
        except NMTError as error:
            parser.exit(1, f"{parser.prog}: error: {error.message}\n     hint: {error.hint}\n")
        inputs = [row for row in rows if row[0] == translator.config.data.src]
        total = Counter(category for _, category, _, _ in inputs)
        correct[model] = Counter()
        outputs = Guard(translator).translate([text for _, _, text, _ in inputs])
        for (_, category, text, accepted), output in zip(inputs, outputs, strict=True):
            if normalize(output) in map(normalize, accepted.split("|")):
                correct[model][category] += 1
            elif options.wrong:
                print(f"{model}: {category}: {text} → {output}")
    print("| category | inputs |", " | ".join(options.models), "|")
    print("|---|---|" + "---|" * len(options.models))
    for category, count in total.items():
        print(f"| {category} | {count} |", " | ".join(str(each[category]) for each in correct.values()), "|")
    print(f"| all | {total.total()} |", " | ".join(str(each.total()) for each in correct.values()), "|")


if __name__ == "__main__":
    main()
