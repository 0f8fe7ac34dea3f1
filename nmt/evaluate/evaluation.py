"""Evaluation on test sets: scores, hypotheses and a report."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nmt.core.console import log, progress
from nmt.core.errors import CheckpointError, write_errors
from nmt.core.paths import make_directory, write_json, write_text
from nmt.core.version import __version__
from nmt.evaluate.line_metrics import score
from nmt.evaluate.metrics import Score, comet_segments
from nmt.evaluate.test_sets import TestSet, safe_filename
from nmt.runs.run_report import weights_checksum
from nmt.translation.chunking import chunked
from nmt.translation.translator import Translator

RESAMPLES = 1000
"""Bootstrap resamples for confidence intervals; the default of sacreBLEU."""


@dataclass(frozen=True)
class Evaluation:
    """The scores of one test set and the path of the report."""

    test: str
    lines: int
    scores: list[Score]
    report: Path

    def as_dict(self) -> dict[str, Any]:
        """Return the evaluation as JSON data."""
        data = asdict(self)
        del data["report"]
        return data


def translate_test_set(translator: Translator, test: TestSet, search: str) -> list[str]:
    """Return the best translation of each source line."""
    with progress(len(test.sources), f"translating {test.name}", " lines") as bar:
        stream = translator.stream(chunked(test.sources), search, on_progress=bar.update)
        return [translations[0].text for translations in stream]


def evaluate(
    translator: Translator,
    test: TestSet,
    search: str,
    output: Path,
    metrics: Sequence[str] = ("bleu",),
    *,
    resamples: int = RESAMPLES,
    comet: str = "",
    models: Sequence[Path] = (),
) -> Evaluation:
    """Translate and score a test set, and write `TEST.hyp` and `TEST.json` to the directory
    `output`.

    Args:
        translator: the model.
        test: sources and references.
        search: spec string of the search.
        output: directory for hypotheses and report; created if necessary.
        metrics: spec strings of metrics.
        resamples: bootstrap resamples; 0 disables confidence intervals.
        comet: name of a COMET model; empty for no COMET.
        models: the models of an ensemble, for the report.

    Raises:
        UsageError: the directory cannot be created, or COMET is requested and not installed.
        NMTError: the hypotheses or the report cannot be written.
    """
    make_directory(output, "choose another directory with --output")  # fail before translating
    comet_scores = comet_segments(comet) if comet else None
    hypotheses = translate_test_set(translator, test, search)
    lines = (test.sources, hypotheses, test.references)
    scores = [score(spec, *lines, resamples=resamples) for spec in metrics]
    if comet_scores:
        values = comet_scores(test.sources, hypotheses, test.first_references)
        scores.append(Score("COMET", 100 * sum(values) / len(values), f"model:{comet}"))
    report = _report(translator, test, search, scores, models)
    stem = safe_filename(test.name)
    with write_errors(f"to {output}", "choose another directory with --output"):
        write_text(output / f"{stem}.hyp", "".join(f"{line}\n" for line in hypotheses))
        write_json(output / f"{stem}.json", report)
    log(f"wrote hypotheses and report to {output / stem}.hyp and .json")
    return Evaluation(test.name, len(hypotheses), scores, output / f"{stem}.json")


def _report(
    translator: Translator,
    test: TestSet,
    search: str,
    scores: Sequence[Score],
    models: Sequence[Path],
) -> dict[str, Any]:
    data = translator.config.data
    report = {
        "model": list(map(str, models)) if len(models) > 1 else str(translator.checkpoint),
        "test": test.name,
        "lines": len(test.sources),
        "references": len(test.references),
        "direction": f"{data.src}-{data.tgt}",
        "search": search,
        "nmt": __version__,
        "scores": [asdict(score) for score in scores],
    }
    with suppress(CheckpointError):  # an export of another engine is not a checkpoint
        report["weights"] = weights_checksum(translator.checkpoint)
    return report
