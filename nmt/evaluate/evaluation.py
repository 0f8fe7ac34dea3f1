"""Test sets in, scores out, with the hypotheses and a report left behind for anyone to check."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nmt import __version__
from nmt.console import log, progress
from nmt.errors import NMTError, UsageError
from nmt.evaluate.metrics import METRICS, Score, comet
from nmt.evaluate.test_sets import TestSet, safe_filename
from nmt.inference.chunking import chunked
from nmt.inference.translator import Translator
from nmt.paths import write_text

RESAMPLES = 1000
"""How often the lines of a test set are drawn anew for a confidence interval; what sacrebleu does, too."""


@dataclass(frozen=True)
class Wish:
    """What to score with."""

    metrics: Sequence[str] = ("bleu",)
    """Out of `METRICS`."""
    resamples: int = RESAMPLES
    """0: no confidence intervals."""
    comet: str = ""
    """A COMET model's name; empty: none."""


@dataclass(frozen=True)
class Evaluation:
    """The scores of one test set and where its report lies."""

    test: str
    lines: int
    scores: list[Score]
    report: Path

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"test": self.test, "lines": self.lines, "scores": [asdict(score) for score in self.scores]}


def hypotheses(translator: Translator, test: TestSet, spec: str) -> list[str]:
    """Translate a test set as a user's text is translated."""
    found = []
    with progress(len(test.sources), f"translating {test.name}", " lines") as bar:
        for best in translator.stream(chunked(test.sources), spec, on_progress=bar.update):
            found.append(best[0].text)
    return found


def evaluate(translator: Translator, test: TestSet, spec: str, output: Path, wish: Wish | None = None) -> Evaluation:
    """Translate a test set, score it, and write `TEST.hyp` and `TEST.json` into the folder `output`.

    Args:
        translator: the model.
        test: sources and references.
        spec: search.
        output: folder for hypotheses and report; made if missing.
        wish: metrics; BLEU with its confidence interval if not given.

    Raises:
        UsageError: the folder cannot be made, or COMET is asked for and not installed.
    """
    wish = wish or Wish()
    _make_folder(output)  # first: a mistake must not cost the translation of a whole test set
    judge = comet(wish.comet) if wish.comet else None
    texts = hypotheses(translator, test, spec)
    scores = [METRICS[name](texts, test.references, resamples=wish.resamples) for name in wish.metrics]
    if judge:
        scores.append(judge(test.sources, texts, test.references[0]))
    report = {
        "model": str(translator.checkpoint),
        "test": test.name,
        "lines": len(texts),
        "references": len(test.references),
        "direction": f"{translator.config.data.src}-{translator.config.data.tgt}",
        "search": spec,
        "nmt": __version__,
        "scores": [asdict(score) for score in scores],
    }
    stem = safe_filename(test.name)
    try:
        write_text(output / f"{stem}.hyp", "".join(f"{line}\n" for line in texts))
        write_text(output / f"{stem}.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise NMTError(f"cannot write into {output}: {error.strerror}", "name another folder with --output") from None
    log(f"hypotheses and report are in {output / stem}.hyp and .json")
    return Evaluation(test.name, len(texts), scores, output / f"{stem}.json")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if path.is_file() else error.strerror
        raise UsageError(f"cannot write into {path}: {reason}", "name another folder with --output") from None
