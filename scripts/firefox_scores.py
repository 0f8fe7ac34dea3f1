#!/usr/bin/env python3
"""Import all models of Firefox between English and German, translate a test set with each, and
print a table with BLEU and the published score.

    scripts/firefox_scores.py
    scripts/firefox_scores.py --test own.csv

The test set is FLORES+ (devtest), for which scores are published. The exit code is 1 if a model is
more than 0.5 BLEU worse.
"""

from __future__ import annotations

import argparse
import sys

from command_errors import error_messages
from nmt.core.errors import DownloadError
from nmt.evaluate.evaluation import translate_test_set
from nmt.evaluate.metrics import bleu
from nmt.evaluate.test_sets import named_test_set
from nmt.models.importers.firefox_registry import list_names
from nmt.translation.translator import Translator

TEST = "flores"
PUBLISHED = {("en-de", "tiny"): 38.8, ("en-de", "base-memory"): 40.0}
"""BLEU on FLORES by languages and architecture."""
TOLERANCE = 0.5


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--test", default=TEST, help="Test set, without a comparison.")
    test_name = parser.parse_args().test
    names = list_names("en-de") + list_names("de-en")
    if not names:
        raise DownloadError("the registry has no models between English and German")
    translators = [Translator.load(str(name)) for name in names]
    print("| model | version | BLEU | published |\n|---|---|---|---|")
    num_worse = 0
    for name, translator in zip(names, translators, strict=True):
        test = named_test_set(test_name, *name.pair.split("-"))
        translations = translate_test_set(translator, test, translator.config.search)
        score = bleu(translations, test.references).value
        published = None
        if test_name == TEST:
            published = PUBLISHED.get((name.pair, name.choice.architecture))
        if published is not None and score < published - TOLERANCE:
            num_worse += 1
        model = f"{name.pair} {name.choice.architecture}"
        print(f"| {model} | {name.choice.version} | {score:.1f} | {published or ''} |", flush=True)
    if num_worse:
        print(f"{num_worse} models are more than {TOLERANCE} BLEU worse", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    with error_messages():
        main()
