"""Test sets in, scores out, with the hypotheses and a report left behind for anyone to check."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from nmt import __version__
from nmt.console import log, progress
from nmt.errors import NMTError, UsageError
from nmt.metrics import METRICS, Score
from nmt.paths import write_text
from nmt.testset import TestSet
from nmt.translate import Translator, in_windows


def evaluate(
    translator: Translator, test: TestSet, names: Sequence[str], spec: str, output: Path
) -> tuple[list[Score], Path]:
    """Translate a test set, score it, and write `TEST.hyp` and `TEST.json` into the folder `output`.

    Args:
        translator: the model.
        test: sources and references.
        names: metrics, out of `METRICS`.
        spec: search.
        output: folder for hypotheses and report; made if missing.

    Returns:
        The scores in the order of `names`, and the report's path.
    """
    _make_folder(output)  # first: a mistake must not cost the translation of a whole test set
    hypotheses = []
    with progress(len(test.sources), "translating", " lines") as bar:
        for best in translator.stream(in_windows(test.sources), spec, tick=bar.update):
            hypotheses.append(best[0].text)
    scores = [METRICS[name](hypotheses, test.references) for name in names]
    report = {
        "model": str(translator.origin),
        "test": test.name,
        "lines": len(hypotheses),
        "direction": f"{translator.config.data.src}-{translator.config.data.tgt}",
        "search": spec,
        "nmt": __version__,
        "scores": [asdict(score) for score in scores],
    }
    try:
        stem = re.sub(r"[^\w.-]+", "-", test.name).strip("-.")
        write_text(output / f"{stem}.hyp", "".join(f"{line}\n" for line in hypotheses))
        write_text(output / f"{stem}.json", json.dumps(report, indent=2, ensure_ascii=False) + "\n")
    except OSError as error:
        raise NMTError(f"cannot write into {output}: {error.strerror}", "name another folder with --output") from None
    log(f"hypotheses and report are in {output / stem}.hyp and .json")
    return scores, output / f"{stem}.json"


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = "it is a file" if path.is_file() else error.strerror
        raise UsageError(f"cannot write into {path}: {reason}", "name another folder with --output") from None
