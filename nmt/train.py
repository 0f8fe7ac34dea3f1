"""Training: updates, validation, checkpoints, and stopping at any moment without losing work."""

from __future__ import annotations

import copy
import json
import math
import shlex
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from nmt import checkpoint, metrics, runtime, settings
from nmt import model as models
from nmt.checkpoint import Progress
from nmt.config import Config
from nmt.console import log, progress
from nmt.data import noise
from nmt.data.batching import Batch, collate, plan
from nmt.data.loader import Loader
from nmt.data.prepare import Prepared, prepare
from nmt.data.prepare import check_specs as check_data
from nmt.errors import CheckpointError, TrainingError, UsageError
from nmt.loss import cross_entropy
from nmt.model.transformer import Transformer
from nmt.optim import Schedule, adam, schedule
from nmt.paths import locked, write_bytes, write_text
from nmt.search import search
from nmt.translate import Translator

T = TypeVar("T")
LOCK = ".lock"
"""File of a run's folder that the process training in it holds locked."""


@dataclass(frozen=True)
class StepStats:
    """What one update did."""

    loss: float
    """Label-smoothed cross-entropy per target token, in nats."""
    tokens: int
    grad_norm: float
    skipped: bool = False
    """fp16 only: the gradient overflowed, so the weights stayed and the loss scale was lowered."""


def check_specs(config: Config) -> None:
    """Resolve every spec string of a config, so that a mistake shows before any work is done.

    Raises:
        ConfigError: the first one that does not resolve.
    """
    search(config.search)
    search(config.train.valid_search)
    schedule(config.train.schedule)
    noise.compose(config.train.noise)
    models.check(config.model)
    check_data(config.data)


def train_step(
    model: Transformer,
    micro: Sequence[Batch],
    optimizer: torch.optim.Optimizer,
    config: Config,
    scaler: GradScaler | None = None,
) -> StepStats:
    """Make one update from one or more batches.

    The loss is summed over all of them and divided once by all their target tokens, so that cutting an update
    into batches changes nothing.

    Args:
        model: the network, in training mode.
        micro: the update's batches, on the model's device.
        optimizer: its learning rate is set.
        config: label smoothing and clipping.
        scaler: loss scaling, which fp16 needs for its narrow range (Micikevicius et al. 2018); an overflow then
            skips the update and lowers the scale instead of raising.

    Raises:
        TrainingError: the loss or the gradient is not finite; the weights are as they were.
    """
    scaler = scaler or GradScaler(enabled=False)
    tokens = sum(batch.tokens for batch in micro)
    optimizer.zero_grad(set_to_none=True)
    total = 0.0
    for batch in micro:
        hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.tgt_mask_BT)
        target_N = batch.tgt_out_BT[batch.tgt_mask_BT]
        loss = cross_entropy(hidden_ND, model.output_weight_VD, target_N, smoothing=config.train.label_smoothing)
        value = loss.item() / tokens
        if not math.isfinite(value) and not scaler.is_enabled():
            raise _not_finite("loss", value, [batch])
        scaler.scale(loss / tokens).backward()  # type: ignore[no-untyped-call]
        total += value
    scaler.unscale_(optimizer)
    limit = config.train.clip_norm or math.inf
    grad_norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), limit))
    overflow = not math.isfinite(grad_norm)
    if overflow and scaler.get_scale() <= 1:  # 1 is the scale of a scaler that is off
        raise _not_finite("gradient", grad_norm, micro)
    scaler.step(optimizer)
    scaler.update()
    return StepStats(total, tokens, grad_norm, skipped=overflow)


def _not_finite(what: str, value: float, micro: Sequence[Batch]) -> TrainingError:
    pairs = [i for batch in micro for i in batch.pairs]
    lines = ", ".join(str(i + 1) for i in pairs[:5]) + (", ..." if len(pairs) > 5 else "")
    return TrainingError(
        f"the {what} is {value} in a batch of {len(pairs)} pairs (lines {lines} of the prepared text)",
        "nothing of this update was kept; try a lower learning rate or --precision fp32, then --resume",
    )


class Trainer:
    """One run: model, optimiser, data position, and the folder they are saved in."""

    def __init__(self, config: Config, run: Path, prepared: Prepared, device: torch.device, dtype: torch.dtype) -> None:
        self.config, self.run, self.prepared, self.device = config, run, prepared, device
        self.tokenizer = prepared.tokenizer()
        runtime.seed_everything(config.seed)
        self.model = models.build(config.model, len(self.tokenizer)).to(device)
        self.model.compute_dtype = None if dtype == torch.float32 else dtype
        self.average = copy.deepcopy(self.model).eval() if config.train.ema else None
        self.optimizer = adam(self.model, config.train)
        self.scaler = GradScaler(device.type, enabled=dtype == torch.float16)
        self.schedule: Schedule = schedule(config.train.schedule)
        self.loader = Loader(prepared.store("train"), self.tokenizer, config.train, config.seed)
        self.progress = Progress(precision=str(dtype).removeprefix("torch."))
        self.valid_src, self.valid_tgt = prepared.lines("valid")

    # ---- saving and restoring

    def save(self) -> None:
        """Write a checkpoint of this moment and delete the ones that are no longer needed."""
        training = {f"raw.{name}": t for name, t in self.model.state_dict().items()} if self.average else {}
        for (name, _), moments in zip(self.model.named_parameters(), self._moments(), strict=True):
            training |= {f"adam.{name}.{key}": moment for key, moment in moments.items()}
        if self.scaler.is_enabled():
            training["scaler"] = torch.tensor([self.scaler.get_scale(), self.scaler._get_growth_tracker()])
        training["rng.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            training["rng.cuda"] = torch.cuda.get_rng_state(self.device)
        weights = (self.average or self.model).state_dict()
        checkpoint.save(self.run, self.progress, weights, training, self.tokenizer.checksum)
        checkpoint.prune(self.run)

    def _moments(self) -> list[dict[str, Tensor]]:
        return [self.optimizer.state[p] for p in self.model.parameters()]

    def restore(self) -> bool:
        """Continue from the newest intact checkpoint of the run; False if there is none yet."""
        found = checkpoint.latest_intact(self.run)
        if found is None:
            _rewind_log(self.run, 0)
            return False
        path, weights, training = found
        meta = checkpoint.read_meta(path)
        if meta["tokenizer"] != self.tokenizer.checksum:
            raise TrainingError(
                f"{path} was trained with another tokenizer than the data is now prepared with",
                "the corpus or its options have changed since; train a new run",
            )
        checkpoint.set_aside(self.run, after=path)
        self.progress = Progress(**meta["progress"] | {"precision": self.progress.precision})
        raw = {name[4:]: t for name, t in training.items() if name.startswith("raw.")}
        self.model.load_state_dict(raw or weights)
        if self.average:
            self.average.load_state_dict(weights)
        for name, parameter in self.model.named_parameters():
            prefix = f"adam.{name}."
            moments = {key[len(prefix) :]: t for key, t in training.items() if key.startswith(prefix)}
            # The step count too: the fused kernel reads it where the parameter is.
            self.optimizer.state[parameter] = {key: t.to(self.device) for key, t in moments.items()}
        if self.scaler.is_enabled() and "scaler" in training:
            scale, growth = training["scaler"].tolist()
            state = self.scaler.state_dict() | {"scale": scale, "_growth_tracker": int(growth)}
            self.scaler.load_state_dict(state)
        torch.set_rng_state(training["rng.cpu"])
        _rewind_log(self.run, self.progress.step)
        if self.device.type == "cuda" and "rng.cuda" in training:
            torch.cuda.set_rng_state(training["rng.cuda"], self.device)
        return True

    # ---- training

    def updates(self) -> Iterator[list[Batch]]:
        """Yield updates from the present position on, epoch after epoch."""
        while True:
            yield from self.loader.updates(self.progress.epoch, self.progress.updates_in_epoch)
            self.progress.epoch += 1
            self.progress.updates_in_epoch = 0

    def update(self, micro: list[Batch], total: int) -> StepStats:
        """Make one update and move the position on; `total` is the update at which training is to end."""
        step = self.progress.step + 1
        rate = self.schedule(step, total, self.config.model.dim)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        stats = train_step(
            self.model, [batch.to(self.device) for batch in micro], self.optimizer, self.config, self.scaler
        )
        if self.average and not stats.skipped:
            self._average(step)
        self.progress.step = step
        self.progress.updates_in_epoch += 1
        self.progress.tokens += stats.tokens
        return stats

    @torch.no_grad()
    def _average(self, step: int) -> None:
        """Move the averaged weights towards the present ones; early on faster, so that the start is forgotten."""
        assert self.average is not None
        decay = min(self.config.train.ema, (1 + step) / (10 + step))
        torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - decay)

    # ---- validation

    def validate(self) -> dict[str, float]:
        """Return `valid_loss` (nats per target token, not smoothed), `valid_bleu`, and the `quality` to maximise."""
        model = (self.average or self.model).eval()
        loss = self._validation_loss(model)
        count = self.config.train.valid_pairs or len(self.valid_src)
        longest = min(self.prepared.meta["longest_source"], self.config.train.max_length - 1)
        translator = Translator(model, self.tokenizer, self.config, self.device, longest)
        found = translator.translate(self.valid_src[:count], self.config.train.valid_search)
        score = metrics.bleu([best[0].text for best in found], self.valid_tgt[:count]).value
        self.model.train()
        quality = score if self.config.train.best == "bleu" else -loss
        return {"valid_loss": loss, "valid_bleu": score, "quality": quality}

    @torch.inference_mode()
    def _validation_loss(self, model: Transformer) -> float:
        store = self.prepared.store("valid")
        total, tokens = 0.0, 0
        for numbers in plan(store.lengths_N2, self.config.train.batch_tokens, seed=0, epoch=0):
            batch = collate([store[int(i)] for i in numbers]).to(self.device)
            hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.tgt_mask_BT)
            target_N = batch.tgt_out_BT[batch.tgt_mask_BT]
            total += cross_entropy(hidden_ND, model.output_weight_VD, target_N, smoothing=0.0).item()
            tokens += batch.tokens
        return total / tokens

    def judge(self, scores: dict[str, float]) -> bool:
        """Note a validation's results; False when patience has run out."""
        self.progress.scores = scores
        if self.progress.best is None or scores["quality"] > self.progress.best:
            self.progress.best, self.progress.bad_validations = scores["quality"], 0
        else:
            self.progress.bad_validations += 1
        patience = self.config.train.patience
        return not patience or self.progress.bad_validations < patience


class _Interrupted(BaseException):
    """A validation was broken off; like KeyboardInterrupt nothing on the way may take it for an error."""


class _Stop:
    """Counts requests to stop: the first awaits the update's end or breaks off a validation, the second is obeyed."""

    def __init__(self) -> None:
        self.requested = False
        self._breakable = False

    def __call__(self, number: int, frame: Any) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        if self._breakable:
            raise _Interrupted

    def unless_stopped(self, work: Callable[[], T]) -> T | None:
        """Return `work()`, or None if a request to stop broke it off; it must be something that can be done again."""
        try:
            try:
                self._breakable = True
                return None if self.requested else work()
            finally:
                self._breakable = False
        except _Interrupted:
            return None


@contextmanager
def _stopping() -> Iterator[_Stop]:
    stop = _Stop()
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Clock:
    """How long training has run, and how many updates still fit into a time limit."""

    def __init__(self, limit: float | None, progress: Progress) -> None:
        self.limit, self.progress = limit, progress
        self.started = time.monotonic()
        self.first_step = progress.step
        self.seconds_before = progress.seconds
        self.validating = 0.0
        self.longest_validation = 0.0

    def elapsed(self) -> float:
        """Seconds since this session began."""
        return time.monotonic() - self.started

    @contextmanager
    def validation(self) -> Iterator[None]:
        """Measure a validation, since the last one must fit into the limit too."""
        before = self.elapsed()
        yield
        self.longest_validation = max(self.longest_validation, self.elapsed() - before)
        self.validating += self.elapsed() - before

    def left(self) -> float:
        """Seconds until the last validation must begin."""
        assert self.limit is not None
        return self.limit - self.elapsed() - 1.1 * self.longest_validation

    def must_know_validation(self) -> bool:
        """Say whether it is time to measure how long the last validation will take, by making one."""
        return self.limit is not None and not self.longest_validation and self.elapsed() > self.limit / 4

    def last_step(self, steps: int, valid_every: int) -> int:
        """Return the update at which training will end: `steps`, or what the time limit leaves room for."""
        if self.limit is None:
            return steps
        done = self.progress.step - self.first_step
        if not done:
            return steps
        per_step = (self.elapsed() - self.validating) / done + self.longest_validation / valid_every
        return min(steps, self.progress.step + max(0, int(self.left() / per_step)))


def train(
    config: Config, run: Path, *, resume: bool, device: str, precision: str, time_limit: float | None = None
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

    Raises:
        UsageError: the folder holds a run and `resume` is false, or the options of the run were other ones, or
            another process is training in it.
        TrainingError, CheckpointError, DataError: see there.
    """
    began = time.monotonic()
    check_specs(config)
    where = runtime.device(device)
    dtype = runtime.precision(_precision_before(run) if resume and precision == "auto" else precision, where)
    runtime.keep_freed_memory()
    with _claimed(config, run, resume):
        prepared = prepare(config)
        trainer = Trainer(config, run, prepared, where, dtype)
        if resume and trainer.restore():  # before anything of the run is replaced: it may be refused
            log(f"resuming {run} at update {trainer.progress.step:,}")
        write_text(run / "config.yaml", settings.dump(config))
        write_bytes(run / "spm.model", trainer.tokenizer.model)
        write_text(run / "data.json", json.dumps(prepared.meta, indent=2) + "\n")
        if trainer.loader.too_long:
            log(f"left out {trainer.loader.too_long:,} pairs of more than {config.train.max_length} tokens")
        log(
            f"{models.count_parameters(trainer.model) / 1e6:.1f} M parameters, {len(trainer.loader.store):,} pairs, "
            f"{where.type} {str(dtype).removeprefix('torch.')}, into {run}"
        )
        with _stopping() as stop:
            finished = _run(trainer, stop, time_limit and time_limit - (time.monotonic() - began))
    chosen = checkpoint.best(run)
    if chosen is None:
        raise TrainingError("training ended before its first checkpoint", "give it more time")
    if not finished:
        again = f"nmt train --run {shlex.quote(str(run))} --resume"
        if time_limit:
            again += f" --time-limit {max(1, round(time_limit - (time.monotonic() - began)))}s"
        log(f"stopped and saved at update {trainer.progress.step:,}; go on with: {again}")
    return chosen


@contextmanager
def _claimed(config: Config, run: Path, resume: bool) -> Iterator[None]:
    """Make the run's folder, or check that the one standing there is to be continued; keep other processes out."""
    holds_run = (run / "config.yaml").exists() or bool(checkpoint.checkpoints(run))
    if holds_run and not resume:
        raise UsageError(f"{run} already holds a run", "go on with --resume, or name another with --run")
    if run.exists() and not run.is_dir():
        raise UsageError(f"{run} is a file", "name a folder with --run")
    if resume and not holds_run:  # a misspelt name must not start another training
        raise UsageError(f"there is no run to resume in {run}", "start it without --resume")
    if holds_run:
        _check_same(config, run)
    try:
        run.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make {run}: {error.strerror}", "name another folder with --run") from None
    with locked(run / LOCK, lambda: _refuse(run)):
        try:
            yield
        finally:
            if not (run / "config.yaml").exists():  # nothing came of it: leave no folder behind that holds no run
                with suppress(OSError):
                    (run / LOCK).unlink()
                    run.rmdir()


def _precision_before(run: Path) -> str:
    """Return the name of the precision that a run was trained in: a change would be another training."""
    for path in reversed(checkpoint.checkpoints(run)):
        with suppress(CheckpointError):
            before = checkpoint.read_progress(path).precision
            return next((name for name, dtype in runtime.PRECISIONS.items() if str(dtype) == f"torch.{before}"), "auto")
    return "auto"


def _refuse(run: Path) -> NoReturn:
    raise UsageError(f"another process is training in {run}", "wait for it, or name another folder with --run")


def _check_same(config: Config, run: Path) -> None:
    before = settings.load(run / "config.yaml")
    same = ("data", "tokenizer", "model", "seed")
    changed = [name for name in same if getattr(before, name) != getattr(config, name)]
    if before.train.best != config.train.best:  # its values so far would be compared with others
        changed.append("train.best")
    if changed:
        raise UsageError(
            f"{run} was trained with another '{changed[0]}'", "resume with its own config, or name a new --run"
        )


def _run(trainer: Trainer, stop: _Stop, time_limit: float | None) -> bool:
    """Train to the end; False if it was stopped before."""
    config, state = trainer.config.train, trainer.progress
    clock = _Clock(time_limit, state)
    due = state.step >= config.steps or state.step % config.valid_every == 0
    if state.step and due and not state.scores:  # it was stopped when this validation was next
        _validate(trainer, clock, stop)
        if not state.scores:
            return False
    if state.step >= config.steps or (config.patience and state.bad_validations >= config.patience):
        log("this run is finished; set train.steps higher to go on")
        return True
    trainer.model.train()
    window = _Window()
    with progress(config.steps, "training", " updates", initial=state.step) as bar:
        for micro in trainer.updates():
            total = clock.last_step(config.steps, config.valid_every)
            bar.total = max(total, state.step + 1)
            stats = trainer.update(micro, total)
            window.add(stats)
            state.seconds = clock.seconds_before + clock.elapsed()
            state.scores = {}
            rate = trainer.optimizer.param_groups[0]["lr"]
            bar.set_postfix_str(f"loss {stats.loss:.3f}, lr {rate:.1e}, {window.speed():,.0f} tok/s", refresh=False)
            bar.update()
            if state.step % config.log_every == 0:
                _record(trainer.run, {"step": state.step, "epoch": state.epoch, "lr": rate, **window.means()})
                window = _Window()
            last = state.step >= config.steps or (time_limit is not None and clock.left() <= 0)
            if stop.requested:
                trainer.save()
                return False
            if last or state.step % config.valid_every == 0 or clock.must_know_validation():
                going_on = _validate(trainer, clock, stop)
                window = _Window()
                if not state.scores:
                    return False
                if last:
                    if state.step < config.steps:
                        log("the time limit is reached")
                    return True
                if not going_on:
                    log(f"no better validation {config.patience} times: stopping early")
                    return True
    raise AssertionError("updates never end by themselves")


def _validate(trainer: Trainer, clock: _Clock, stop: _Stop) -> bool:
    """Validate, judge, save and report; False when patience has run out.

    A stop breaks it off, which leaves `scores` empty: the run begins with it when it goes on.
    """
    state = trainer.progress
    with clock.validation():
        scores = stop.unless_stopped(trainer.validate)
    going_on = trainer.judge(scores) if scores else True
    trainer.save()
    if scores:
        _record(trainer.run, {"step": state.step, "epoch": state.epoch, "seconds": state.seconds, **scores})
        best = " (best)" if state.bad_validations == 0 else ""
        loss, bleu = scores["valid_loss"], scores["valid_bleu"]
        log(f"update {state.step:,}: validation loss {loss:.3f}, BLEU {bleu:.1f}{best}")
    return going_on


class _Window:
    """Means over the updates since the last line of the log."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.loss = self.tokens = self.grad_norm = 0.0
        self.updates = self.skipped = 0

    def add(self, stats: StepStats) -> None:
        """Count an update."""
        if stats.skipped:
            self.skipped += 1
            return
        self.updates += 1
        self.tokens += stats.tokens
        self.loss += stats.loss * stats.tokens
        self.grad_norm += stats.grad_norm

    def speed(self) -> float:
        """Target tokens per second."""
        return self.tokens / (time.monotonic() - self.started)

    def means(self) -> dict[str, float]:
        """Loss per token, gradient norm and speed."""
        return {
            "loss": self.loss / max(1, self.tokens),
            "grad_norm": self.grad_norm / max(1, self.updates),
            "tokens_per_second": self.speed(),
            **({"skipped": self.skipped} if self.skipped else {}),
        }


def _record(run: Path, values: dict[str, Any]) -> None:
    with open(run / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps(values) + "\n")


def _rewind_log(run: Path, step: int) -> None:
    """Drop what the log says of updates after `step`, which a killed training made and this one makes again."""

    def stands(line: str) -> bool:
        try:
            return bool(json.loads(line)["step"] <= step)
        except ValueError:  # cut while it was written
            return False

    path = run / "metrics.jsonl"
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        write_text(path, "".join(line for line in lines if stands(line)))
