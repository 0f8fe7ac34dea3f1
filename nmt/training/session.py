"""Runs a training session: prepares the data, trains, validates and saves checkpoints. It can stop
at any time."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from nmt.core import runtime
from nmt.core.config import Config, config_io
from nmt.core.console import format_count, log, log_interruption, log_once
from nmt.core.errors import ConfigError, NMTError, StoppedError, TrainingError, UsageError
from nmt.core.plugins import unknown_component
from nmt.core.registry import parse
from nmt.core.untrusted_files import read_record
from nmt.data import noise
from nmt.data.check.sides import MAX_LINES, swap_warning
from nmt.data.prepare import PreparedData, check_data_specs, prepare
from nmt.data.sampling import describe
from nmt.data.subword_regularization import resolve_method
from nmt.evaluate.calibration import calibrate as calibrate_translator
from nmt.evaluate.line_metrics import check_metric
from nmt.evaluate.metrics import METRICS
from nmt.evaluate.test_sets import check_name, sample
from nmt.model.build import check_model, count_parameters, max_positions
from nmt.model.options import unused_options
from nmt.models import discovery
from nmt.runs import checkpoint, model_card, run_report
from nmt.runs.model_files import ModelFiles, check_fits, write_run_files
from nmt.search import parse_search
from nmt.text.tokenizers import tokenizer_file
from nmt.training import fine_tuning, loop
from nmt.training.compilation import check_compile, require_compiler
from nmt.training.distributed import RankGroup, process_group
from nmt.training.loggers import MetricsLogger, parse_loggers
from nmt.training.optim import parse_optimizer, parse_schedule
from nmt.training.precision import gpu_kernels, training_dtype
from nmt.training.profiling import Estimate, estimate, find_batch_size
from nmt.training.run_directory import check_data_unchanged, lock_run, saved_precision
from nmt.training.stopping import handle_stop_signals
from nmt.training.trainer import Trainer
from nmt.training.word_distillation import find_teacher
from nmt.translation.translator import Translator

AFTER_TRAINING = {"train.average_last", "train.calibration_pairs", "train.loggers"}
"""Options that can be set when a finished run is resumed."""
STOPPING = "stopping after this update, to save it; a second Ctrl-C stops at once, without saving"


def check_specs(config: Config) -> None:
    """Resolve all spec strings of a config, so that errors show before any work is done, and warn
    of options that have no effect.

    Raises:
        ConfigError: a spec string is invalid; the error names the first one. Or the model does not
            support `train.max_length`.
        UsageError: the package of a logger is not installed.
    """
    parse_search(config.search)
    parse_search(config.train.valid_search)
    parse_schedule(config.train.schedule)
    parse_optimizer(config.train.optimizer, config.model.arch)
    _check_best_metric(config.train.best_metric)
    noise.SourceNoise(config.train.source_noise)
    if config.train.subword_regularization:
        model_type = None if config.tokenizer.model else config.tokenizer.model_type
        resolve_method(config.train.subword_regularization, model_type)
    check_model(config.model)
    if unused := unused_options(config.model):
        arch = config.model.arch
        log_once(f"warning: model.arch={arch} does not use {', '.join(unused)}")
    max_length = config.train.max_length
    limit = max_positions(config.model)
    if limit and max_length > limit:
        raise ConfigError(
            f"train.max_length ({max_length}) must not exceed the positions of the model ({limit})",
            f"set train.max_length={limit}, or"
            f" model.position_encoding=learned(max_positions={max_length})",
        )
    check_compile(config)
    check_data_specs(config.data)
    for name in config.data.general_test:
        check_name(name, config.data.src, config.data.tgt)
    parse_loggers(config.train.loggers)


def _check_best_metric(spec: str) -> None:
    name = parse(spec)[0]
    if spec != "loss" and name not in METRICS:
        problem = f"train.best_metric: unknown metric '{name}'"
        raise unknown_component(problem, name, ("loss", *METRICS))
    if spec != "loss":
        check_metric(spec)


def train(
    config: Config,
    run: Path,
    *,
    resume: bool = False,
    device: str = "auto",
    precision: str = "auto",
    time_limit: float | None = None,
    auto_batch_size: bool = False,
    callbacks: loop.Callbacks = loop.NO_CALLBACKS,
) -> Path:
    """Train `config` in the directory `run` and return its best checkpoint.

    Ctrl-C (SIGINT), SIGTERM and SIGHUP stop the training after a checkpoint.

    Args:
        config: the experiment.
        run: run directory; unless `resume`, it must not contain a run.
        resume: continue from the latest intact checkpoint.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        precision: `auto`, `fp32`, `bf16` or `fp16`.
        time_limit: limit of this session in seconds, including data preparation, final validation
            and calibration. Schedules that decay to zero adapt to it.
        auto_batch_size: set `train.batch_tokens` to the largest size that fits in GPU memory.
        callbacks: functions that rank 0 calls.

    Raises:
        UsageError: the run directory cannot be used (see `lock_run`); `auto_batch_size` is set
            without a GPU or for a resumed run; or the package of a logger is not installed.
        TrainingError: the data has changed, training has diverged, memory is too small, or another
            rank has exited.
        StoppedError: a signal ended the training, whose checkpoint is saved, or the calibration or
            comparison after it.
        ConfigError: unknown search, schedule or optimizer, or one of their options.
        CheckpointError: a checkpoint cannot be read or saved.
        DataError: the data cannot be prepared.
    """
    start_time = time.monotonic()
    check_specs(config)
    teacher = _check_parents(config, run, resume)
    torch_device = torch.device(runtime.resolve_device(device))
    if auto_batch_size:
        _check_auto_batch_size(torch_device, resume)
    dtype = _choose_dtype(config, run, resume, torch_device, precision)
    with (
        gpu_kernels(torch_device),
        process_group(torch_device) as group,
        group.on_main(lock_run(config, run, resume)),
    ):
        dtype = group.broadcast(dtype)  # ranks may measure differently
        if resume:
            config = _with_existing_tokenizer(config, run)
        prepared = _prepare_data(config, run, resume, teacher, group)
        if auto_batch_size:
            config = find_batch_size(config, prepared, torch_device, dtype, group)
        trainer = Trainer(config, run, prepared, torch_device, dtype, group)
        _start_run(trainer, resume, time_limit)
        deadline = start_time + time_limit if time_limit else None
        is_stopped = _run_to_end(trainer, deadline, device, callbacks)
    if is_stopped:
        raise StoppedError(f"a signal has stopped the training in {run}")
    best = checkpoint.best(run)
    if best is None:
        raise TrainingError("training ended before its first checkpoint", "increase --time-limit")
    return best


def _check_parents(config: Config, run: Path, resume: bool) -> ModelFiles | None:
    """Check the sizes of the start model before the data is prepared, which takes long, and return
    the teacher, if there is one."""
    if config.train.init_from and not resume:
        path = Path(config.train.init_from)
        check_fits(discovery.find_model(path), path, config.model)
    return find_teacher(config, run) if config.train.teacher else None


def _choose_dtype(
    config: Config, run: Path, resume: bool, device: torch.device, precision: str
) -> torch.dtype:
    """Return the dtype of the activations; a resumed run keeps its own unless another precision is
    given.

    Raises:
        UsageError: the device does not support it, or a compiler that the config needs is missing.
    """
    require_compiler(config, device)
    if resume and precision == "auto":
        precision = saved_precision(run, device.type)
    return training_dtype(precision, device, config)


def _with_existing_tokenizer(config: Config, run: Path) -> Config:
    """Return the config of a run to resume. If the file `tokenizer.model` no longer exists, it uses
    the copy in the run directory."""
    if not config.tokenizer.model or Path(config.tokenizer.model).is_file():
        return config
    return replace(config, tokenizer=replace(config.tokenizer, model=str(tokenizer_file(run))))


def _prepare_data(
    config: Config, run: Path, resume: bool, teacher: ModelFiles | None, group: RankGroup
) -> PreparedData:
    """Prepare the data, check it, and add the records of the models that the run is derived from to
    its metadata.

    Raises:
        TrainingError: the ranks have different options or data; or the data of a run to resume has
            changed.
    """
    prepared = prepare(config)
    identity = (
        config.train,
        config.model,
        config.seed,
        prepared.meta["fingerprint"],
        prepared.meta["tokenizer"],
    )
    if any(other != identity for other in group.all_gather(identity)):
        raise TrainingError(
            "the ranks have different options or data", "share NMT_DATA, or copy it to all machines"
        )
    records = {}
    if teacher:
        records["teacher"] = run_report.parent_record(teacher)
    if resume:
        check_data_unchanged(run, prepared.meta | records)
        if parents := read_record(run / "data.json").get("derived_from"):  # of an average
            records["derived_from"] = parents
    prepared = replace(prepared, meta=prepared.meta | records)
    if config.train.init_from:
        prepared = fine_tuning.inherit(prepared, run, Path(config.train.init_from))
    return prepared


def _start_run(trainer: Trainer, resume: bool, time_limit: float | None) -> None:
    """Restore the latest checkpoint or load the start model, if there is one, and write the files
    of the run.

    Raises:
        UsageError: the run is finished, and an option that only further updates would use has
            changed.
    """
    config, run = trainer.config, trainer.run
    # Before config, data.json and tokenizer are replaced, because it may raise.
    with runtime.out_of_memory_as(
        TrainingError("the optimizer does not fit in memory", "use another --device")
    ):
        is_restored = resume and trainer.restore()
    if is_restored:
        log(f"resuming {run} at update {trainer.progress.step:,}")
        for name in run_report.changed_plugins(run):
            log(f"warning: the plug-in {name} has changed since the last session of {run}")
        if loop.is_finished(trainer):
            _check_finished_run(trainer)
    elif config.train.init_from:
        trainer.init_from(Path(config.train.init_from))
    if trainer.group.is_main:
        _write_run_files(trainer, time_limit)
        if not is_restored:
            _warn_about_swapped_sides(trainer)
    _log_summary(trainer)


def _run_to_end(
    trainer: Trainer, deadline: float | None, device: str, callbacks: loop.Callbacks
) -> bool:
    """Train and complete the run. Return whether a stop signal has ended one of them."""
    is_main = trainer.group.is_main
    metrics = MetricsLogger(trainer.run, trainer.config, trainer.progress.step, is_main=is_main)
    is_stopped = True  # also by an error
    try:
        with handle_stop_signals(STOPPING) as stop:
            time_limit = deadline - time.monotonic() if deadline else None
            is_stopped = loop.run(trainer, metrics, stop, time_limit, callbacks)
    finally:
        metrics.finish(is_complete=not is_stopped)
    if is_stopped:
        _log_how_to_continue(trainer, device, deadline)
        return True
    return _complete_run(trainer, deadline)


def _complete_run(trainer: Trainer, deadline: float | None) -> bool:
    """Average, calibrate, compare and describe a finished run on rank 0; return whether a signal
    interrupts this."""
    if not trainer.group.is_main:
        return False
    config = trainer.config.train
    is_interrupted = False
    if config.average_last and checkpoint.validated(trainer.run):
        _average_checkpoints(trainer)
    if config.calibration_pairs:
        is_interrupted = _calibrate(trainer, deadline)
    if config.init_from and not is_interrupted:
        is_interrupted = _compare_with_start(trainer, has_time_limit=deadline is not None)
    _write_model_card(trainer.run)
    return is_interrupted


def _log_how_to_continue(trainer: Trainer, device: str, deadline: float | None) -> None:
    """Describe a stopped run, and log the command that resumes it for the rest of the time
    limit."""
    if trainer.group.is_main:
        _write_model_card(trainer.run)
    program = "nmt" if trainer.group.world_size == 1 else "torchrun OPTIONS -m nmt --"
    command = f"{program} train --run {shlex.quote(str(trainer.run))} --resume"
    if device != "auto":
        command += f" --device {device}"
    if deadline:
        remaining_seconds = round(deadline - time.monotonic())
        command += f" --time-limit {max(1, remaining_seconds)}s"
    if trainer.group.is_main:
        step = trainer.progress.step
        log_interruption(f"stopped and saved at update {step:,}; continue with: {command}")
    # torchrun ends all ranks when one exits: not before rank 0 has logged this.
    trainer.group.broadcast(None)


def _write_model_card(run: Path) -> None:
    try:
        model_card.write_card(run)
    except NMTError as error:  # the checkpoints are saved
        log(f"no model card: {error.message}")


def estimate_training(
    config: Config, *, device: str = "auto", precision: str = "auto", auto_batch_size: bool = False
) -> Estimate:
    """Measure the memory and speed of training in this process, on one device, without saving
    anything.

    Raises:
        UsageError: `auto_batch_size` is set without a GPU.
        TrainingError: a batch or the model does not fit in memory.
        CheckpointError: the weights or the tokenizer of the start model do not fit.
        DataError: the data cannot be prepared.
        ConfigError: see `train`.
    """
    check_specs(config)
    if config.train.teacher:
        find_teacher(config)
    torch_device = torch.device(runtime.resolve_device(device))
    if auto_batch_size:
        _check_auto_batch_size(torch_device, resume=False)
    require_compiler(config, torch_device)
    dtype = training_dtype(precision, torch_device, config)
    prepared = prepare(config)
    with gpu_kernels(torch_device):
        if auto_batch_size:
            config = find_batch_size(config, prepared, torch_device, dtype, RankGroup())
        trainer = Trainer(config, Path(), prepared, torch_device, dtype, RankGroup())
        if config.train.init_from:
            trainer.init_from(Path(config.train.init_from))
        return estimate(trainer)


def _check_auto_batch_size(device: torch.device, resume: bool) -> None:
    if resume:
        raise UsageError(
            "--batch-tokens auto is for new runs", "a resumed run keeps its batch size"
        )
    if device.type == "cpu":
        raise UsageError(
            "--batch-tokens auto needs a GPU",
            "on a CPU, use 1024 to 4096: larger batches are not faster",
        )


def _check_finished_run(trainer: Trainer) -> None:
    """Raise a UsageError for options that only further updates would use: the record of the run
    would be wrong. Remove a calibration with other options, which is to be repeated."""
    run, config = trainer.run, trainer.config
    saved = config_io.load(run / "config.yaml")
    changed = {*config_io.changed_options("train", saved.train, config.train)} - AFTER_TRAINING
    if changed:
        options = " and ".join(sorted(changed))
        is_complete = trainer.progress.step >= config.train.steps
        option = "train.steps" if is_complete else "train.patience"
        raise UsageError(f"{run} is finished, so {options} cannot change", f"increase {option}")
    calibration_pairs = config.train.calibration_pairs
    is_calibrated_otherwise = (
        saved.search != config.search or saved.train.calibration_pairs != calibration_pairs
    )
    if calibration_pairs and is_calibrated_otherwise:
        (run / checkpoint.CALIBRATION).unlink(missing_ok=True)


def _write_run_files(trainer: Trainer, time_limit: float | None) -> None:
    mix = [
        {
            "pairs": len(each.pairs),
            "pairs_per_epoch": each.pairs_per_epoch,
            "tag": each.corpus.options.tag,
        }
        for each in trainer.loader.corpora
    ]
    data = trainer.prepared.meta | {"mix": mix}
    write_run_files(trainer.run, trainer.config, trainer.tokenizer, data)
    progress = trainer.progress
    run_report.log_session(
        trainer.run,
        progress.step,
        trainer.device.type,
        trainer.group.world_size,
        progress.precision,
        time_limit,
    )


def _warn_about_swapped_sides(trainer: Trainer) -> None:
    """Log a warning for each corpus whose sources are in the target language."""
    languages = (trainer.prepared.src, trainer.prepared.tgt)
    store = trainer.loader.store
    for sampled in trainer.loader.corpora:
        pair_ids = sampled.pairs.spread(MAX_LINES)
        sources = list(map(store.source, pair_ids))
        targets = list(map(store.target, pair_ids))
        if warning := swap_warning(sampled.corpus.name, sources, targets, languages):
            log(warning)


def _log_summary(trainer: Trainer) -> None:
    loader = trainer.loader
    if loader.num_too_long:
        max_length = trainer.config.train.max_length
        log(f"skipped {loader.num_too_long:,} pairs of more than {max_length} tokens")
    size = format_count(count_parameters(trainer.model))
    device = trainer.device.type
    if trainer.group.world_size > 1:
        device = f"{trainer.group.world_size} × {device}"
    kind = ", packed batches" if trainer.packed_update else ""
    log(
        f"{size} parameters, {describe(loader.corpora)}, {device}"
        f" {trainer.progress.precision}{kind}, into {trainer.run}"
    )


def _calibrate(trainer: Trainer, deadline: float | None) -> bool:
    """Calibrate the confidence of the best checkpoint, unless it is calibrated already.

    Return whether a stop signal interrupted it.
    """
    config, run = trainer.config, trainer.run

    def calibrate() -> None:
        translator = Translator.load(run, device_name(trainer))
        if translator.calibration is not None:
            return
        development = sample(trainer.valid, config.train.calibration_pairs)
        calibration, held_out = calibrate_translator(
            translator, development, config.search, deadline=deadline
        )
        calibration.save(run / checkpoint.CALIBRATION)
        log(
            f"calibrated the confidence of {calibration.checkpoint} on {calibration.sentences:,}"
            f" validation pairs: correlation with {calibration.metric} {held_out.pearson:.2f},"
            f" calibration error {held_out.calibration_error:.2f}"
        )

    return _run_optional(
        calibrate,
        "no calibration",
        f"to calibrate later: nmt calibrate --model {shlex.quote(str(run))}",
    )


def _compare_with_start(trainer: Trainer, *, has_time_limit: bool) -> bool:
    """Compare the start model with the result. Return whether a stop signal interrupted it."""
    config, run = trainer.config, trainer.run
    command = (
        f"nmt compare {shlex.quote(config.train.init_from)} {shlex.quote(str(run))} --test NAME"
    )
    return _run_optional(
        lambda: fine_tuning.compare_with_start(
            config, run, trainer.prepared, device_name(trainer), has_time_limit=has_time_limit
        ),
        "no comparison with the start model",
        f"to compare later: {command}",
    )


def device_name(trainer: Trainer) -> str:
    """Return the name of the device; among several processes, without the index, which their local
    ranks determine."""
    return str(trainer.device) if trainer.group.world_size == 1 else trainer.device.type


def _run_optional(function: Callable[[], None], failure: str, hint: str) -> bool:
    """Run a function at the end of training; only log an error or a stop signal, because the run is
    complete.

    Return whether a stop signal interrupted it.
    """
    problem = "interrupted"
    try:
        with handle_stop_signals() as stop:
            stop.interruptible(function)
        if not stop.requested:
            return False
    except NMTError as error:
        problem = error.message
    report = log_interruption if stop.requested else log
    report(f"{failure}: {problem}; {hint}")
    return stop.requested


def _average_checkpoints(trainer: Trainer) -> None:
    """Average the latest checkpoints and validate the result, so that it can become the best
    checkpoint."""
    last = min(trainer.config.train.average_last, len(checkpoint.validated(trainer.run)))
    path = checkpoint.average(trainer.run, last)
    model = discovery.load(path).model.to(trainer.device)
    model.compute_dtype = trainer.model.compute_dtype  # that of the checkpoints it is compared with
    scores = trainer.validate(model)
    checkpoint.write_scores(path, scores)
    log(
        f"average of {last}: validation loss {scores['valid_loss']:.3f}, BLEU"
        f" {scores['valid_bleu']:.1f}"
    )
