"""Training: updates, validation, checkpoints, and stopping at any moment without losing work.

step.py      one update
trainer.py   the state: model, optimizer, data position; saved and restored
loop.py      update after update, the log, validations
control.py   signals and time limits
folder.py    the run's folder: whose it is, what was logged
measure.py   what a training will need, measured before it
"""

from __future__ import annotations

import json
import shlex
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from nmt import runtime
from nmt.config import Config, config_io
from nmt.console import log
from nmt.data import noise
from nmt.data.prepare import Prepared, prepare
from nmt.data.prepare import check_specs as check_data
from nmt.data.subword_regularization import sampling
from nmt.errors import NMTError, TrainingError, UsageError
from nmt.model.build import check_model, count_parameters
from nmt.paths import write_bytes, write_text
from nmt.runs import checkpoint, discovery, model_card, run_info
from nmt.search import search
from nmt.train import loop
from nmt.train.distributed import Group, init_process_group
from nmt.train.optim import schedule
from nmt.train.precision import training_dtype
from nmt.train.profiling import Estimate, estimate, largest_batch
from nmt.train.run_dir import MetricsLogger, check_data_unchanged, lock_run, saved_precision, tensorboard_writer
from nmt.train.step import StepStats, train_step
from nmt.train.stopping import stopping
from nmt.train.trainer import Trainer

__all__ = ["Estimate", "StepStats", "Trainer", "check_specs", "plan", "train", "train_step"]


def check_specs(config: Config) -> None:
    """Resolve every spec string of a config, so that a mistake shows before any work is done.

    Raises:
        ConfigError: the first one that does not resolve.
    """
    search(config.search)
    search(config.train.valid_search)
    schedule(config.train.schedule)
    noise.compose(config.train.source_noise)
    if config.train.subword_regularization:
        sampling(config.train.subword_regularization, None if config.tokenizer.model else config.tokenizer.model_type)
    check_model(config.model)
    check_data(config.data)


def train(
    config: Config,
    run: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    precision: str = "auto",
    time_limit: float | None = None,
    fit_batch: bool = False,
    tensorboard: bool = False,
) -> Path:
    """Train `config` into the folder `run` and return its best checkpoint.

    Args:
        config: the experiment.
        run: folder of the run; it must not hold one yet unless `resume`.
        resume: go on from the newest intact checkpoint.
        device: `auto`, `cpu` or `cuda`.
        precision: `auto`, `fp32`, `bf16` or `fp16`.
        time_limit: seconds for this session, preparing the data and the last validation included; a decaying
            schedule is fitted to it.
        fit_batch: set `train.batch_tokens` to the largest that fits into the GPU's memory.
        tensorboard: also log for TensorBoard, into the run's folder `tensorboard`.

    Raises:
        UsageError: the folder holds a run and `resume` is false, or the options of the run were other ones, or
            another process is training in it; a batch is to be fitted without a GPU or into a resumed run;
            TensorBoard is not installed.
        TrainingError, CheckpointError, DataError: see there.
    """
    began = time.monotonic()
    check_specs(config)
    where = runtime.torch_device(device)
    if fit_batch:
        _check_fitting(where, resume)
    if tensorboard:
        tensorboard_writer()
    dtype = training_dtype(saved_precision(run) if resume and precision == "auto" else precision, where, config)
    with init_process_group(where) as group, lock_run(config, run, resume) if group.is_main else nullcontext():
        dtype = group.broadcast(dtype)  # ranks may measure differently; the others wait until the run is lock_run
        prepared = prepare(config)
        if resume:
            check_data_unchanged(run, prepared.meta)
        if fit_batch:
            config = _fitted(config, largest_batch(config, prepared, where, dtype, group))
        trainer = _trainer(config, run, prepared, where, dtype, group)
        if resume and trainer.restore():  # before anything of the run is replaced: it may be refused
            log(f"resuming {run} at update {trainer.progress.step:,}")
        elif config.train.init_from:
            trainer.start_from(Path(config.train.init_from))
        if group.is_main:
            write_text(run / "config.yaml", config_io.dump(config))
            write_bytes(run / "spm.model", trainer.tokenizer.model)
            write_text(run / "data.json", json.dumps(prepared.meta, indent=2) + "\n")
        if trainer.loader.too_long:
            log(f"left out {trainer.loader.too_long:,} pairs of more than {config.train.max_length} tokens")
        log(
            f"{count_parameters(trainer.model) / 1e6:.1f} M parameters, {len(trainer.loader.store):,} pairs, "
            f"{_devices(where, group.world_size)} {str(dtype).removeprefix('torch.')}, into {run}"
        )
        if group.is_main:
            kind = str(dtype).removeprefix("torch.")
            run_info.log_session(run, trainer.progress.step, where.type, group.world_size, kind, time_limit)
        journal = MetricsLogger(run, trainer.progress.step, tensorboard=tensorboard and group.is_main)
        with stopping() as stop:
            finished = loop.run(trainer, journal, stop, time_limit and time_limit - (time.monotonic() - began))
        if finished and config.train.average_last and group.is_main:
            _add_average(trainer)
    chosen = checkpoint.best(run)
    if chosen is None:
        raise TrainingError("training ended before its first checkpoint", "give it more time")
    if group.is_main:
        try:
            model_card.write_card(run)
        except NMTError as error:  # the training itself is saved
            log(f"no model card: {error.message}")
    if not finished:
        again = f"nmt train --run {shlex.quote(str(run))} --resume"
        if time_limit:
            again += f" --time-limit {max(1, round(time_limit - (time.monotonic() - began)))}s"
        log(f"stopped and saved at update {trainer.progress.step:,}; go on with: {again}")
    return chosen


def plan(config: Config, *, device: str = "auto", precision: str = "auto", fit_batch: bool = False) -> Estimate:
    """Measure what a training would need, in this process and on one device, and keep nothing of it.

    Raises:
        UsageError: a batch is to be fitted without a GPU.
        TrainingError, DataError: see there.
    """
    check_specs(config)
    where = runtime.torch_device(device)
    if fit_batch:
        _check_fitting(where, resume=False)
    dtype = training_dtype(precision, where, config)
    prepared = prepare(config)
    if fit_batch:
        config = _fitted(config, largest_batch(config, prepared, where, dtype, Group()))
    return estimate(_trainer(config, Path(), prepared, where, dtype, Group()))


def _check_fitting(where: torch.device, resume: bool) -> None:
    if resume:
        raise UsageError("--batch-tokens auto is for new runs", "a resumed run keeps the size it was given")
    if where.type == "cpu":
        raise UsageError(
            "--batch-tokens auto needs a GPU", "on a CPU large batches are no faster: 1024 to 4096 are good"
        )


def _fitted(config: Config, batch_tokens: int) -> Config:
    return replace(config, train=replace(config.train, batch_tokens=batch_tokens))


def _devices(where: torch.device, world: int) -> str:
    return where.type if world == 1 else f"{world} × {where.type}"


def _trainer(
    config: Config, run: Path, prepared: Prepared, where: torch.device, dtype: torch.dtype, group: Group
) -> Trainer:
    try:
        return Trainer(config, run, prepared, where, dtype, group)
    except RuntimeError as error:
        if not runtime.is_out_of_memory(error):
            raise
        raise TrainingError(
            "the model does not fit into memory", "set model.dim, model.ffn_dim or the layers lower"
        ) from None


def _add_average(trainer: Trainer) -> None:
    """Average the latest checkpoints and validate the result, which is then chosen if it is the best."""
    last = min(trainer.config.train.average_last, len(checkpoint.checkpoints(trainer.run)))
    path = checkpoint.average(trainer.run, last)
    scores = trainer.validate(discovery.load(path).model.to(trainer.device))
    checkpoint.write_scores(path, scores)
    log(f"average of {last}: validation loss {scores['valid_loss']:.3f}, BLEU {scores['valid_bleu']:.1f}")
