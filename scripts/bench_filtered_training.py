#!/usr/bin/env python
"""Train on clean text, on noisy text, and on what `nmt data filter` keeps of the noisy text.

    scripts/bench_filtered_training.py train.en train.de --valid valid --test test -o DIRECTORY
    scripts/bench_filtered_training.py train.en train.de --valid valid --test test -o DIRECTORY
    --min-score -5 -3 --seeds 1 2 3

The noise is that of `bench_filter.py`. The clean text is the noisy text without its bad pairs, so
that it is what a perfect filter keeps. All models have the same config and the same number of
updates. BLEU is the median over the seeds of training. The last column is the share of the BLEU
that noise costs and filtering gets back. It means little if noise costs less than about 1 BLEU.

The command can be repeated after an interruption: it resumes the runs in the output directory.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import benchmark
from bench_filter import NoiseMaker, NoisyPair, read_shuffled
from command_errors import error_messages
from nmt.core.console import log
from nmt.core.errors import NMTError, UsageError
from nmt.core.registry import format_spec
from nmt.data.pairs import Pair, read_pairs, write_pairs
from nmt.data.sources.files import language_suffix

CLEAN = "clean"
NOISY = "noisy"
DEFAULT_MIN_SCORE = -5.0
SETTINGS = "settings.json"


@dataclass(frozen=True)
class Comparison:
    """Runs on several texts in a directory, which differ in nothing else."""

    arguments: Namespace
    languages: tuple[str, str]

    @property
    def directory(self) -> Path:
        """The absolute output directory."""
        output: Path = self.arguments.output
        return output.absolute()

    @cached_property
    def noisy(self) -> list[NoisyPair]:
        """The pairs of the noisy text."""
        arguments = self.arguments
        seed = arguments.noise_seed
        corpus = read_shuffled(arguments.src, arguments.tgt, seed, arguments.pairs)
        return NoiseMaker(corpus, seed).make(arguments.noise)

    def check_settings(self) -> None:
        """Save the settings, or check that the runs in the directory have the same ones."""
        settings = {}
        for name, value in vars(self.arguments).items():
            if name not in ("output", "seeds", "min_score"):
                settings[name] = str(value)
        path = self.directory / SETTINGS
        if path.is_file():
            saved = json.loads(path.read_text(encoding="utf-8"))
            if saved != settings:
                raise UsageError(f"{path} has other settings", "use another --output")
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings), encoding="utf-8")

    def write_clean_and_noisy(self) -> None:
        """Write the clean and the noisy text."""
        clean = [each.pair for each in self.noisy if not each.kind]
        noisy = [each.pair for each in self.noisy]
        write_pairs(*self.files(CLEAN), clean)
        write_pairs(*self.files(NOISY), noisy)

    def filter(self, text: str, min_score: float) -> None:
        """Write the pairs of the noisy text that the filter keeps."""
        prefix = self.directory / text
        options = ["--output", prefix, "--min-score", min_score]
        self.run("data", "filter", *self.files(NOISY), *options)

    def bleu(self, text: str, seed: int) -> float:
        """Train on a text, and return BLEU of the test set."""
        run = self.directory / f"{text}-{seed}"
        is_started = (run / "config.yaml").is_file()
        options = ["--resume"] if is_started else self._training_options(text, seed)
        precision = ["--precision", self.arguments.precision]
        self.run("train", "--run", run, *options, *precision)
        scores = ["--bleu", "--json", "--resamples", 0]
        output = self.run("evaluate", "--model", run, *scores, *precision)
        report = json.loads(output)
        value: float = report[0]["scores"][0]["value"]
        return value

    def files(self, text: str) -> tuple[Path, Path]:
        """Return the source and the target file of a text."""
        source, target = self.languages
        return self.directory / f"{text}.{source}", self.directory / f"{text}.{target}"

    def pairs(self, text: str) -> list[Pair]:
        """Return the pairs of a text."""
        return list(read_pairs(*self.files(text)))

    def run(self, *words: object) -> str:
        """Run `nmt` and return what it prints."""
        command = [sys.executable, "-m", "nmt", *map(str, words)]
        data = str(self.directory / "data")
        environment = os.environ | {"NMT_DATA": data}
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            raise NMTError(f"nmt {words[0]} has failed", "see the message above")
        return done.stdout

    def _training_options(self, text: str, seed: int) -> list[str]:
        splits = {
            "train": str(self.directory / text),
            "valid": str(self.arguments.valid.absolute()),
            "test": str(self.arguments.test.absolute()),
            "hold_out": False,
        }
        source, target = self.languages
        values = {
            "seed": seed,
            "data.src": source,
            "data.tgt": target,
            "data.train": format_spec("files", splits),
            "train.calibration_pairs": 0,
        }
        options = ["--config", self.arguments.config]
        for key, value in values.items():
            options += ["--set", f"{key}={value}"]
        for override in self.arguments.set:
            options += ["--set", override]
        return options


def kept_shares(noisy: Sequence[NoisyPair], pairs: Iterable[Pair]) -> dict[str, float]:
    """Return the share of the pairs of each kind that a text has. Good pairs have no kind: ''."""
    kept = set(pairs)
    shares = {}
    for kind in ("", *NoiseMaker([], 0).kinds):
        of_kind = [each.pair for each in noisy if each.kind == kind]
        num_kept = sum(pair in kept for pair in of_kind)
        shares[kind] = num_kept / max(1, len(of_kind))
    return shares


def main() -> None:
    """Make the texts, train on each with every seed, and print the table."""
    arguments = _parse_arguments()
    source_language = language_suffix(arguments.src)
    target_language = language_suffix(arguments.tgt)
    comparison = Comparison(arguments, (source_language, target_language))
    comparison.check_settings()
    comparison.write_clean_and_noisy()
    texts = [CLEAN, NOISY]
    for min_score in arguments.min_score:
        text = f"filtered{min_score:g}"
        comparison.filter(text, min_score)
        texts.append(text)
    scores = _train_all(comparison, texts)
    _print_table(comparison, scores)


def _parse_arguments() -> Namespace:
    parser = benchmark.parser(__doc__)
    parser.add_argument("src", type=Path)
    parser.add_argument("tgt", type=Path)
    parser.add_argument("--valid", type=Path, required=True, metavar="PREFIX")
    parser.add_argument("--test", type=Path, required=True, metavar="PREFIX")
    parser.add_argument("--output", "-o", type=Path, required=True, metavar="DIRECTORY")
    parser.add_argument("--pairs", type=int, help="Maximum number of pairs of the noisy text.")
    parser.add_argument("--noise", type=float, default=0.3, help="Share of bad pairs.")
    parser.add_argument("--noise-seed", type=int, default=1)
    parser.add_argument(
        "--min-score",
        type=float,
        nargs="+",
        default=[DEFAULT_MIN_SCORE],
        help="Thresholds of the filter.",
    )
    parser.add_argument("--config", default="multi30k-small")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--precision", default="fp32", help="Precision of all runs.")
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1, 2], help="Random seeds of training."
    )
    return parser.parse_args()


def _train_all(comparison: Comparison, texts: Sequence[str]) -> dict[str, list[float]]:
    """Return the BLEU of each seed by text."""
    scores: dict[str, list[float]] = {text: [] for text in texts}
    for seed in comparison.arguments.seeds:
        for text in texts:
            bleu = comparison.bleu(text, seed)
            log(f"{text}, seed {seed}: BLEU {bleu:.1f}")
            scores[text].append(bleu)
    return scores


def _print_table(comparison: Comparison, scores: dict[str, list[float]]) -> None:
    """Print a row for each text."""
    kinds = list(NoiseMaker([], 0).kinds)
    benchmark.print_head("text", "pairs", "good", *kinds, "BLEU", "of each seed", "gets back")
    medians = {}
    for text, values in scores.items():
        medians[text] = statistics.median(values)
    for text, values in scores.items():
        pairs = comparison.pairs(text)
        shares = kept_shares(comparison.noisy, pairs)
        cells = [text, f"{len(pairs):,}"]
        for share in shares.values():
            cells.append(f"{share:.1%}")
        score_of_each_seed = [f"{value:.1f}" for value in values]
        cells.append(f"{medians[text]:.1f}")
        cells.append(", ".join(score_of_each_seed))
        cells.append(_regained_share(medians, text))
        benchmark.print_row(cells)


def _regained_share(medians: dict[str, float], text: str) -> str:
    """Return the cell of the share of the lost BLEU that a text gets back."""
    if text in (CLEAN, NOISY):
        return ""
    lost = medians[CLEAN] - medians[NOISY]
    if lost <= 0:
        return "nothing is lost"
    regained = medians[text] - medians[NOISY]
    return f"{regained / lost:.0%}"


if __name__ == "__main__":
    with error_messages():
        main()
