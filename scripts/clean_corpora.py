#!/usr/bin/env python3
"""Check and repair each training corpus of a config, and print the repaired corpora as a list for
--set.

    scripts/clean_corpora.py general data/general/clean --test tatoeba --test multi30k
    nmt train --config general --set "data.train=$(scripts/clean_corpora.py general
    data/general/clean)"

Each corpus is repaired as with `nmt data check --fix`, which drops its overlap with the test sets,
and keeps its weight, tag and license. The report of a corpus is NAME.json in the directory, its
pairs are NAME.en and NAME.de; existing ones are reused. Most persons in Tatoeba are called Tom:
`vary_names.py` gives them other names.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from pathlib import Path
from typing import Any

from command_errors import error_messages
from nmt.core.config import config_io
from nmt.core.errors import DataError
from nmt.core.registry import format_spec, parse
from nmt.data.pairs import read_pairs, write_pairs
from nmt.data.sources import parse_corpus
from tested_sentences import tested_sentences
from vary_names import vary

FOUND = (0, 3, 4)
"""Exit codes of a completed check: nothing, warnings, errors."""
CORPUS_OPTIONS = ("weight", "tag")


def corpus_name(spec: str) -> str:
    """Return a file name for a corpus: the name of its training file, or of the corpus."""
    name, options = parse(spec)
    train = options.get("train", name)
    first_file = train if isinstance(train, str) else train[0]
    return Path(first_file).name.partition(".")[0]


def clean(spec: str, prefix: Path, config: str, tests: list[str]) -> dict[str, Any]:
    """Write the repaired corpus, and return the report of `nmt data check --json`."""
    command = [
        "nmt",
        "data",
        "check",
        "--config",
        config,
        "--set",
        f"data.train={json.dumps([spec])}",
    ]
    command += [word for test in tests for word in ("--test", test)]
    done = subprocess.run(
        [*command, "--json", "--fix", prefix], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode not in FOUND:
        raise DataError(f"cannot clean {spec}", "see the message above")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def vary_names(paths: list[Path], tests: list[str]) -> None:
    """Replace the name Tom in a corpus, unless the result is a sentence of a test set."""
    excluded = tested_sentences(tests, "en", "de")
    write_pairs(paths[0], paths[1], vary(list(read_pairs(paths[0], paths[1])), excluded))


def cleaned_spec(spec: str, prefix: Path) -> str:
    """Return the spec of the repaired corpus, with the options and the license of the original."""
    corpus, _ = parse_corpus(spec)
    options = {key: value for key, value in parse(spec)[1].items() if key in CORPUS_OPTIONS}
    return format_spec(
        "files", {"train": str(prefix), "hold_out": False, "license": corpus.info.license} | options
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("config", help="Config with the corpora: a YAML file or a built-in name.")
    parser.add_argument("directory", type=Path, help="Directory of the repaired corpora.")
    parser.add_argument(
        "--test", action="append", default=[], metavar="CORPUS", help="Test set to leave out."
    )
    options = parser.parse_args()
    with error_messages(options.directory):
        data = config_io.load(config_io.find(options.config)).data
        options.directory.mkdir(parents=True, exist_ok=True)
        specs = []
        for spec in data.train:
            prefix = options.directory / corpus_name(spec)
            report_path = Path(f"{prefix}.json")
            settings = {"spec": spec, "tests": options.test}
            saved = (
                json.loads(report_path.read_text(encoding="utf-8")) if report_path.is_file() else {}
            )
            if saved.get("settings") != settings:
                report = clean(spec, prefix, options.config, options.test)
                if corpus_name(spec) == "tatoeba":
                    vary_names([Path(f"{prefix}.en"), Path(f"{prefix}.de")], options.test)
                saved_report = {"settings": settings, "report": report}
                report_path.write_text(
                    json.dumps(saved_report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
                )
            specs.append(cleaned_spec(spec, prefix))
        if len({*map(corpus_name, data.train)}) < len(data.train):
            raise DataError("two corpora have the same name", "rename the file of one of them")
        print(json.dumps(specs, ensure_ascii=False))


if __name__ == "__main__":
    main()
