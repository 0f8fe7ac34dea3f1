"""Trained models that come with nmt, so that it translates before anything was downloaded or trained.

Each is a folder here, named as `--model` names it, in the format of `nmt export --to safetensors`, with the model card.
How they were made is in scripts/train_pretrained.sh.
"""

from __future__ import annotations

from pathlib import Path

from nmt.errors import UsageError
from nmt.paths import runs_dir

FOLDER = Path(__file__).parent
DIRECTIONS = {"en-de-small": ("en", "de"), "de-en-small": ("de", "en")}
"""Name of each model, with the languages it translates from and to; of several that would do, the first is taken."""


def find(name: Path) -> Path | None:
    """Return the folder of the model of that name, unless a file or folder of the user's has it."""
    return FOLDER / name if str(name) in DIRECTIONS and not name.exists() else None


def output_dir(run: Path) -> Path:
    """Return where to put what is made of a run: its own folder, or one under runs/ for a model that comes with nmt."""
    return runs_dir() / "pretrained" / run.name if run.resolve().parent == FOLDER.resolve() else run


def reject_pretrained(run: Path) -> None:
    """Raise a UsageError if this is the name of a model that comes with nmt, of which no training is at hand."""
    if find(run):
        raise UsageError(
            f"{run} comes with nmt, without the files of its training", f"train on from it: nmt train --init-from {run}"
        )


def for_target(language: str) -> str | None:
    """Return the name of the model that translates into a language, any where it is empty; None if there is none."""
    return next((name for name, (_, target) in DIRECTIONS.items() if language in ("", target)), None)
