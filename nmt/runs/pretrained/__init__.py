"""The pretrained models that nmt includes, for translating without a download or training.

Each is a directory here in the format of `nmt export --to safetensors`, with a model card.
scripts/train_general.sh trains comparable ones.
"""

from __future__ import annotations

from pathlib import Path

from nmt.core.console import log_once
from nmt.core.errors import UsageError
from nmt.core.paths import runs_dir

DIRECTORY = Path(__file__).parent
DIRECTIONS = {"en-de": ("en", "de"), "de-en": ("de", "en")}
"""Source and target language of each model. The first model for a target language is its
default."""
EARLIER_NAMES = {f"{name}-small": name for name in DIRECTIONS}
"""Names of the models of earlier versions, and of those that replace them."""


def find(name: Path) -> Path | None:
    """Return the directory of a pretrained model by name, unless a file or directory of this name
    exists."""
    if name.exists():
        return None
    current = EARLIER_NAMES.get(str(name))
    if current:
        log_once(f"{name} is now {current}, which also translates running text")
    current = current or str(name)
    return DIRECTORY / current if current in DIRECTIONS else None


def name_of(run: Path) -> str:
    """Return the name of a pretrained model, or the path of another one."""
    return run.resolve().name if _is_pretrained(run) else str(run)


def output_dir(run: Path) -> Path:
    """Return the directory for reports and exports: the run itself, or one under runs/ for a
    pretrained model."""
    return runs_dir() / "pretrained" / name_of(run) if _is_pretrained(run) else run


def _is_pretrained(run: Path) -> bool:
    return run.resolve().parent == DIRECTORY.resolve()


def reject_pretrained(run: Path) -> None:
    """Check that `run` is not the name of a pretrained model, which has no training state.

    Raises:
        UsageError: it is the name of a pretrained model.
    """
    if find(run):
        raise UsageError(
            f"{run} is a pretrained model without training state",
            f"fine-tune it: nmt train --init-from {run}",
        )


def for_target(language: str) -> str | None:
    """Return the pretrained model that translates into `language` (empty: any), or None."""
    return next(
        (name for name, (_, target) in DIRECTIONS.items() if language.lower() in ("", target)), None
    )


def calibration_files(run: Path, checkpoint: Path) -> list[Path]:
    """Return the files that may have the calibration of a checkpoint: the user's own one of a
    pretrained model first.

    The run has that of its best checkpoint, which may change; others have their own.
    """
    directories = dict.fromkeys((output_dir(run), run, checkpoint))
    return [path for directory in directories if (path := directory / "calibration.json").is_file()]
