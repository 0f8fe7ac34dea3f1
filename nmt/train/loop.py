"""The training loop: updates, logging, validation and stopping."""

from __future__ import annotations

import math
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from nmt.core.config import TrainConfig
from nmt.core.console import log, progress
from nmt.train.run_directory import MetricsLogger
from nmt.train.step import PendingStats, UpdateStats
from nmt.train.stopping import StopSignal, TimeBudget
from nmt.train.trainer import Trainer

EXCHANGE_SECONDS = 0.25
"""Maximum time between two exchanges of decisions among the ranks, each of which takes about a
millisecond."""


def is_finished(trainer: Trainer) -> bool:
    """Return whether a run makes no further update: it has reached its last one, or its patience is
    exhausted."""
    config, state = trainer.config.train, trainer.progress
    return state.step >= config.steps or 0 < config.patience <= state.validations_since_best


def run(
    trainer: Trainer, metrics: MetricsLogger, stop: StopSignal, time_limit: float | None
) -> bool:
    """Train until the last update, a time limit or early stopping. Return False if a stop signal
    ended it."""
    config, state, group = trainer.config.train, trainer.progress, trainer.group
    num_final_validations = (
        1 + bool(config.average_last) + bool(config.calibration_pairs)
    )  # about as long each
    budget = TimeBudget(time_limit, state, num_final_validations)
    validation_due = _is_scheduled(config, state.step)
    # Fine-tuning starts with a validation, so that the start model can be the best checkpoint. At a
    # later step, the previous session was stopped before its validation.
    if (state.step or config.init_from) and validation_due and not state.scores:
        _validate(trainer, metrics, budget, stop)
        if not state.scores:
            return False
    if is_finished(trainer):
        is_complete = state.step >= config.steps
        reason, option = (
            ("is already complete", "steps")
            if is_complete
            else ("has already stopped early", "patience")
        )
        log(f"training {reason}; increase train.{option} to continue")
        return True
    trainer.model.train()
    last_step, exchange_step = (
        group.broadcast(budget.last_step(config.steps, config.valid_every)),
        0,
    )
    stats = StatsReader(trainer.device.type == "cuda")
    bleu = ""  # of the last validation
    with progress(config.steps, "training", " updates", initial=state.step) as bar:
        for update in trainer.updates():
            pending = trainer.update(update, last_step)
            stats.add(state.step, pending)
            state.seconds = budget.seconds_before + budget.elapsed()
            if state.scores:
                bleu = f", BLEU {state.scores['valid_bleu']:.1f}"
            state.scores = {}
            lr = trainer.lr
            bar.set_postfix_str(f"{stats}, lr {lr:.1e}{bleu}", refresh=False)
            bar.update()
            if state.step % config.log_every == 0:
                means = stats.finish()
                if group.is_main:
                    metrics.write(_position(trainer) | {"lr": lr, **means})
            if (
                group.world_size > 1
                and state.step < exchange_step
                and not _is_scheduled(config, state.step)
            ):
                continue
            decisions = group.all_gather(_decide(trainer, budget, stop))
            decision, last_step, exchange_step = (
                decisions[0],
                decisions[0].last_step,
                decisions[0].exchange_step,
            )
            bar.total = max(last_step, state.step + 1)
            if any(
                rank_decision.stop for rank_decision in decisions
            ):  # any rank may receive the signal
                stats.finish()
                trainer.save()
                return False
            if decision.validate:
                stats.finish()
                _validate(trainer, metrics, budget, stop)
                stats.restart()
                if not state.scores:
                    return False
                if decision.is_last:
                    if state.step < config.steps:
                        log("time limit reached")
                    return True
                if is_finished(trainer):
                    log(f"early stopping: no improvement in {config.patience} validations")
                    return True
    raise AssertionError("the stream of updates is infinite")


def _position(trainer: Trainer) -> dict[str, Any]:
    state = trainer.progress
    return {
        "step": state.step,
        "epoch": state.epoch,
        "seconds": round(state.seconds, 3),
        "tokens": state.tokens,
    }


def _validate(
    trainer: Trainer, metrics: MetricsLogger, budget: TimeBudget, stop: StopSignal
) -> None:
    """Validate, save a checkpoint and log the scores.

    If a stop signal interrupts the validation, `scores` stays empty and a resumed run repeats the
    validation.
    """
    state = trainer.progress
    trainer.check_weights()
    with budget.validation():
        scores = trainer.group.broadcast(
            stop.interruptible(trainer.validate) if trainer.group.is_main else None
        )
    if scores:
        trainer.record_validation(scores)
    if (
        scores and trainer.group.is_main
    ):  # log before saving: a run resumed from this checkpoint would not log it
        samples = {"samples": trainer.samples} if trainer.samples else {}
        metrics.write(_position(trainer) | scores | samples)
    trainer.save()
    if scores and trainer.group.is_main:
        best = " (best)" if state.validations_since_best == 0 else ""
        loss, bleu = scores["valid_loss"], scores["valid_bleu"]
        chrf = (
            f", chrF {scores['valid_chrf']:.1f}"
            if trainer.config.train.best_metric == "chrf"
            else ""
        )
        name = f"update {state.step:,}" if state.step else "start model"
        log(f"{name}: validation loss {loss:.3f}, BLEU {bleu:.1f}{chrf}{best}")
        for source, translation in trainer.samples:
            log(f"  {source} → {translation}")


@dataclass(frozen=True)
class _Decision:
    """What to do after an update. Rank 0 decides; any rank can request a stop."""

    stop: bool
    is_last: bool
    validate: bool
    last_step: int
    """Estimate of the last update."""
    exchange_step: int
    """The update after which the ranks exchange decisions again, at the latest."""


def _is_scheduled(config: TrainConfig, step: int) -> bool:
    """Return whether a validation follows an update, whatever the time."""
    return step >= config.steps or step % config.valid_every == 0


def _decide(trainer: Trainer, budget: TimeBudget, stop: StopSignal) -> _Decision:
    config, step = trainer.config.train, trainer.progress.step
    is_last = step >= config.steps or budget.is_exhausted()
    validate = is_last or _is_scheduled(config, step) or budget.should_measure_validation()
    last_step = budget.last_step(config.steps, config.valid_every)
    return _Decision(
        stop.requested, is_last, validate, last_step, step + budget.num_updates_in(EXCHANGE_SECONDS)
    )


class StatsReader:
    """Reads the statistics of updates, reports loss spikes, and averages between log lines.

    On a GPU, the statistics of an update are read after the next one has started, so that the GPU
    never waits for the host.
    """

    def __init__(self, delay: bool) -> None:
        """Start a period of updates; `delay`: whether to read the statistics after the next update
        has started."""
        self.max_pending = 1 if delay else 0
        self._pending: deque[tuple[int, PendingStats]] = deque()
        self._spikes, self._running, self._loss = LossSpikeDetector(), PeriodStats(), math.nan

    def __str__(self) -> str:
        return f"loss {self._loss:.3f}, {self._running.tokens_per_second():,.0f} tok/s"

    def add(self, step: int, pending: PendingStats) -> None:
        """Add an update and read the statistics of the previous one, or, without a delay, its own.

        Raises:
            TrainingError: see `PendingStats.read`.
        """
        self._pending.append((step, pending))
        self._read(self.max_pending)

    def finish(self) -> dict[str, float]:
        """Read all statistics, return the means of this period, and start a new one.

        Raises:
            TrainingError: see `PendingStats.read`.
        """
        self._read(0)
        means = self._running.means()
        self.restart()
        return means

    def restart(self) -> None:
        """Start a new period."""
        self._running = PeriodStats()

    def _read(self, max_pending: int) -> None:
        while len(self._pending) > max_pending:
            step, pending = self._pending.popleft()
            stats = pending.read()
            self._loss = stats.loss
            self._running.add(stats)
            if self._spikes.update(stats):
                rise = f"the loss rose to {stats.loss:.2f} from about {self._spikes.mean:.2f}"
                log(
                    f"update {step:,}: {rise}; if it stays high, lower the learning rate, now"
                    f" {pending.lr:.1e}"
                )


class PeriodStats:
    """Mean loss, gradient norm and speed of a period of updates."""

    def __init__(self) -> None:
        self.start_time = time.monotonic()
        self.loss = self.tokens = self.grad_norm = 0.0
        self.num_updates = self.num_skipped = 0

    def add(self, stats: UpdateStats) -> None:
        """Add an update."""
        if stats.skipped:
            self.num_skipped += 1
            return
        self.num_updates += 1
        self.tokens += stats.tokens
        self.loss += stats.loss * stats.tokens
        self.grad_norm += stats.grad_norm

    def tokens_per_second(self) -> float:
        """Return the target tokens per second."""
        return self.tokens / max(1e-9, time.monotonic() - self.start_time)  # coarse clocks

    def means(self) -> dict[str, float]:
        """Return the speed and, unless all updates were skipped, the loss per token and gradient
        norm."""
        means = {"tokens_per_second": self.tokens_per_second()}
        if self.num_updates:
            means |= {
                "loss": self.loss / max(1, self.tokens),
                "grad_norm": self.grad_norm / self.num_updates,
            }
        return means | ({"skipped": self.num_skipped} if self.num_skipped else {})


class LossSpikeDetector:
    """Detects a loss far above its moving average, which is a sign of divergence."""

    CONSECUTIVE = 3
    """Number of high losses in a row. A single batch of short sentences can have a 50% higher loss
    per token."""
    WINDOW = 50
    THRESHOLD = 1.5

    def __init__(self) -> None:
        self.mean = math.inf
        self._num_updates = self._num_high = 0

    def update(self, stats: UpdateStats) -> bool:
        """Add an update. Return True on the third consecutive loss above 1.5 times the moving
        average."""
        if stats.skipped:
            return False
        self._num_updates += 1
        is_high = self._num_updates > self.WINDOW and stats.loss > self.THRESHOLD * self.mean
        self._num_high = self._num_high + 1 if is_high else 0
        if not is_high:
            weight = 1 / min(self._num_updates, self.WINDOW)
            self.mean = (
                stats.loss
                if self._num_updates == 1
                else self.mean + weight * (stats.loss - self.mean)
            )
        return self._num_high == self.CONSECUTIVE
