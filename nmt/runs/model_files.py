"""The files of a model: weights, config, tokenizer and limits; and the model that PyTorch loads
from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from nmt.core import untrusted_files
from nmt.core.config import Config, ModelConfig, config_io
from nmt.core.errors import CheckpointError, ConfigError
from nmt.core.paths import write_json, write_text
from nmt.core.untrusted_files import Size
from nmt.runs.checkpoint import RESTORE_FILE, read_meta, read_shapes, read_weights
from nmt.text.tokenizer import Tokenizer
from nmt.text.tokenizers import load_tokenizer, tokenizer_file

if TYPE_CHECKING:  # inference does not require PyTorch
    from nmt.model.seq2seq import Seq2Seq


class _RequiredLimits(TypedDict):
    max_source_length: Size


class Limits(_RequiredLimits, total=False):
    """The limits of a line in `data.json`; see `ModelFiles`."""

    max_sentences_per_line: Size


def write_run_files(
    run: Path, config: Config, tokenizer: Tokenizer, data: Mapping[str, Any]
) -> None:
    """Write the files that all checkpoints of a run share: its config, its tokenizer and the record
    of its data, `data.json`."""
    write_text(run / "config.yaml", config_io.dump(config))
    tokenizer.save(run)
    write_json(run / "data.json", data)


LIMITS = ("max_source_length", "max_sentences_per_line")
"""The names of `Limits`."""


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk: the path of its checkpoint, its config, tokenizer and limits."""

    checkpoint: Path
    run: Path
    config: Config
    tokenizer: Tokenizer
    max_source_length: int
    """Longest source that is translated as a unit, in tokens without the end token. For a trained
    model the 99.9th percentile of the training data, below train.max_length."""
    max_sentences_per_line: int
    """Most sentences per line that are translated as a unit. For a trained model the 99th
    percentile of the training data, for an imported one 1."""

    def mismatch_error(self) -> CheckpointError:
        """Return the error for weights that do not match the config."""
        return CheckpointError(
            f"the weights in {self.checkpoint} do not fit {self.run / 'config.yaml'}", RESTORE_FILE
        )


@dataclass(frozen=True)
class LoadedModel(ModelFiles):
    """A model loaded with PyTorch."""

    model: Seq2Seq


def load_model(files: ModelFiles) -> LoadedModel:
    """Load a model with PyTorch.

    Raises:
        CheckpointError: the weights are missing, damaged or do not match the config.
    """
    import torch

    from nmt.model.build import build_model, check_shapes

    try:
        check_shapes(files.config.model, len(files.tokenizer), read_shapes(files.checkpoint))
    except ValueError:
        raise files.mismatch_error() from None
    model = build_model(files.config.model, len(files.tokenizer))
    weights = {
        name: torch.from_numpy(weight) for name, weight in read_weights(files.checkpoint).items()
    }
    try:
        model.load_state_dict(weights)
    except (RuntimeError, KeyError):
        raise files.mismatch_error() from None
    return LoadedModel(**vars(files), model=model.eval())


def check_fits(start: ModelFiles, path: Path, config: ModelConfig) -> None:
    """Check that a model with this config can start from the weights of another one, which the user
    names by `path`.

    Raises:
        CheckpointError: a weight is missing, unknown or of another shape.
    """
    from nmt.model.build import check_shapes

    try:
        check_shapes(config, len(start.tokenizer), read_shapes(start.checkpoint))
    except ValueError as error:
        changed = config_io.changed_options("model", start.config.model, config)
        options = f"set {', '.join(changed)} as in its config.yaml" if changed else str(error)
        raise CheckpointError(f"the weights of {path} do not fit this model", options) from None


def read_files(run: Path, checkpoint: Path) -> ModelFiles:
    """Load config and tokenizer of a checkpoint of a run.

    Raises:
        CheckpointError: a file is missing or damaged, or the tokenizer does not match.
    """
    meta = read_meta(checkpoint)
    config, tokenizer, *limits = load_settings(run)
    if tokenizer.checksum != meta["tokenizer"]:
        raise CheckpointError(
            f"{tokenizer_file(run)} is not the tokenizer of {checkpoint.name}", RESTORE_FILE
        )
    return ModelFiles(checkpoint, run, config, tokenizer, *limits)


def load_settings(run: Path) -> tuple[Config, Tokenizer, int, int]:
    """Load config and tokenizer of a run, and `max_source_length` and `max_sentences_per_line` of
    `ModelFiles`.

    Raises:
        CheckpointError: a file is missing or damaged.
    """
    file = run / "config.yaml"
    is_small = file.is_file() and file.stat().st_size <= untrusted_files.MAX_CONFIG_BYTES
    if is_small and not file.read_bytes().strip():
        raise CheckpointError(f"{file} is empty", RESTORE_FILE)
    try:
        config = config_io.load(file)
    except ConfigError as error:
        hint = "; ".join(
            filter(None, (error.hint, "the file is damaged, or a newer version of nmt wrote it"))
        )
        raise CheckpointError(f"cannot load the config of the run: {error.message}", hint) from None
    return config, load_tokenizer(tokenizer_file(run)), *_load_limits(run, config)


def _load_limits(run: Path, config: Config) -> tuple[int, int]:
    limits = untrusted_files.read_json(run / "data.json", Limits, RESTORE_FILE)
    max_source_length = min(limits["max_source_length"], config.train.max_length - 1)
    return max(1, max_source_length), limits.get("max_sentences_per_line", 1)
