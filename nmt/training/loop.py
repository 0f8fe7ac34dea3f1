"""The training loop: updates, logging, validation and stopping."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from nmt.core.console import format_duration, is_terminal, log, progress
from nmt.core.registry import parse
from nmt.data.loader import Update
from nmt.training.loggers import MetricsLogger
from nmt.training.step import PendingStats, UpdateStats
from nmt.training.stopping import StopSignal, TimeBudget
from nmt.training.trainer import Trainer

EXCHANGE_SECONDS = 0.25
"""Maximum time between two exchanges of decisions among the ranks, each of which takes about a
millisecond."""


Callback = Callable[[int, dict[str, float]], object]


@dataclass(frozen=True)
class Callbacks:
    """Functions that rank 0 calls with the number of an update, and its statistics or the scores
    after it. One that returns False ends the training."""

    on_update: Callback | None = None
    on_validation: Callback | None = None


NO_CALLBACKS = Callbacks()


def is_finished(trainer: Trainer) -> bool:
    """Return whether a run makes no further update: it has reached its last one, or its patience is
    exhausted."""
    config, state = trainer.config.train, trainer.progress
    return state.step >= config.steps or 0 < config.patience <= state.validations_since_best


def run(
    trainer: Trainer,
    metrics: MetricsLogger,
    stop: StopSignal,
    time_limit: float | None,
    callbacks: Callbacks = NO_CALLBACKS,
) -> bool:
    """Train until the last update, a time limit, early stopping or the end that a callback
    requests. Return whether a stop signal ended it."""
    return _TrainingLoop(trainer, metrics, stop, time_limit, callbacks).run()


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


class _TrainingLoop:
    """Makes updates, and validates when rank 0 decides to."""

    def __init__(
        self,
        trainer: Trainer,
        metrics: MetricsLogger,
        stop: StopSignal,
        time_limit: float | None,
        callbacks: Callbacks,
    ) -> None:
        config = trainer.config.train
        self.trainer = trainer
        self.metrics = metrics
        self.stop = stop
        self.config = config
        self.state = trainer.progress
        self.group = trainer.group
        # The average of checkpoints and the calibration take about as long as a validation.
        num_final_validations = 1
        num_final_validations += config.average_last > 0
        num_final_validations += config.calibration_pairs > 0
        self.budget = TimeBudget(time_limit, trainer.progress, num_final_validations)
        self.callbacks = callbacks
        on_update = partial(self._call, callbacks.on_update)
        self.stats = StatsReader(trainer.device.type == "cuda", on_update)
        self.is_ended = False
        """Whether a callback has ended the training."""
        self.bleu = ""  # of the last validation

    def run(self) -> bool:
        """Train; see the function `run`."""
        trainer, state = self.trainer, self.state
        if self._validate_start():
            return True
        if is_finished(trainer):
            self._log_finished()
            return False
        trainer.model.train()
        decision = self.group.broadcast(self._decide())
        # A log file gets lines instead of a bar.
        with progress(
            self.config.steps,
            "training",
            " updates",
            disable=not is_terminal(),
            initial=state.step,
        ) as bar:
            for update in trainer.updates():
                self._update(update, decision.last_step)
                bar.set_postfix_str(f"{self.stats}, lr {trainer.lr:.1e}{self.bleu}", refresh=False)
                bar.update()
                if not self._must_exchange(decision.exchange_step):
                    continue
                decisions = self.group.all_gather(self._decide())
                decision = decisions[0]
                bar.total = max(decision.last_step, state.step + 1)
                if any(each.stop for each in decisions):  # any rank may receive the signal
                    self.stats.read()
                    trainer.save()
                    return True
                if not decision.validate:
                    continue
                if self._validate_between_updates():
                    return True
                if decision.is_last or is_finished(trainer) or self.is_ended:
                    self._log_end(decision)
                    return False
        raise AssertionError("the stream of updates is infinite")

    def _validate_start(self) -> bool:
        """Validate before the first update if necessary. Return whether a stop signal interrupts
        this.

        Fine-tuning starts with a validation, so that the start model can be the best checkpoint. A
        run that was stopped before its validation, or in it, repeats it.
        """
        state = self.state
        has_trained_weights = state.step or self.config.init_from
        if has_trained_weights and self._is_scheduled() and not state.scores:
            return self._validate()
        return False

    def _validate_between_updates(self) -> bool:
        """Validate. Its time does not count for the speed of the updates before and after it."""
        self.stats.read()
        start_time = time.monotonic()
        is_interrupted = self._validate()
        self.stats.exclude(time.monotonic() - start_time)
        return is_interrupted

    def _update(self, update: Update, last_step: int) -> None:
        """Make an update and, at intervals, log the means of the updates since the last log
        line."""
        state = self.state
        pending = self.trainer.update(update, last_step)
        self.stats.add(state.step, pending)
        if state.scores:
            self.bleu = f", BLEU {state.scores['valid_bleu']:.1f}"
        state.seconds = self.budget.seconds_before + self.budget.elapsed()
        state.scores = {}
        if state.step % self.config.log_every == 0:
            self.stats.read()
            means = self.stats.end_period()
            if self.group.is_main:
                self.metrics.write(self._position() | {"lr": self.trainer.lr, **means})
                if not is_terminal():
                    self._log_update(means, last_step)

    def _log_update(self, means: dict[str, float], last_step: int) -> None:
        step = self.state.step
        loss = f"loss {means['loss']:.3f}, " if "loss" in means else ""
        speed = f"{means['tokens_per_second']:,.0f} tok/s"
        remaining = format_duration(self.budget.seconds_until(max(last_step, step)))
        log(
            f"update {step:,} of {max(last_step, step):,}: {loss}{speed},"
            f" lr {self.trainer.lr:.1e}, {remaining} left"
        )

    def _log_finished(self) -> None:
        if self.state.step >= self.config.steps:
            log("training is already complete; increase train.steps to continue")
        else:
            log("training has already stopped early; increase train.patience to continue")

    def _call(self, callback: Callback | None, step: int, values: dict[str, float]) -> None:
        """Call a callback, if there is one, on rank 0, and note whether it ends the training."""
        if callback and self.group.is_main:
            self.is_ended |= callback(step, values) is False

    def _log_end(self, decision: _Decision) -> None:
        if self.is_ended:
            log("a callback has ended the training")
        elif not decision.is_last:
            log(f"early stopping: no improvement in {self.config.patience} validations")
        elif self.state.step < self.config.steps:
            log("time limit reached")

    def _position(self) -> dict[str, Any]:
        state = self.state
        return {
            "step": state.step,
            "epoch": state.epoch,
            "seconds": round(state.seconds, 3),
            "tokens": state.tokens,
        }

    def _validate(self) -> bool:
        """Validate, save a checkpoint and log the scores.

        Return whether a stop signal interrupts the validation. The checkpoint then has no scores,
        and a resumed run repeats the validation.
        """
        trainer = self.trainer
        is_main = self.group.is_main
        trainer.check_weights()
        with self.budget.validation():
            scores = self.stop.interruptible(trainer.validate) if is_main else None
            scores = self.group.broadcast(scores)
        if not scores:
            trainer.save()
            return True
        trainer.record_validation(scores)
        if is_main:  # before saving: a run resumed from this checkpoint would not log it
            samples = {"samples": trainer.samples} if trainer.samples else {}
            self.metrics.write(self._position() | scores | samples)
        trainer.save()
        if is_main:
            self._log_scores(scores)
        self._call(self.callbacks.on_validation, self.state.step, dict(scores))
        self.is_ended = self.group.broadcast(self.is_ended)
        return False

    def _log_scores(self, scores: dict[str, float]) -> None:
        state = self.state
        name = f"update {state.step:,}" if state.step else "start model"
        text = f"validation loss {scores['valid_loss']:.3f}, BLEU {scores['valid_bleu']:.1f}"
        if self.config.best_metric not in ("bleu", "loss"):
            metric = parse(self.config.best_metric)[0]
            text += f", {metric.replace('chrf', 'chrF')} {scores[f'valid_{metric}']:.1f}"
        if state.validations_since_best == 0:
            text += " (best)"
        log(f"{name}: {text}")
        for source, translation, reference in self.trainer.samples:
            log(f"  {source} → {translation} (reference: {reference})")

    def _is_scheduled(self) -> bool:
        """Return whether a validation follows this update, whatever the time."""
        step = self.state.step
        return step >= self.config.steps or step % self.config.valid_every == 0

    def _must_exchange(self, exchange_step: int) -> bool:
        """Return whether the ranks exchange decisions after this update."""
        is_alone = self.group.world_size == 1
        return is_alone or self.state.step >= exchange_step or self._is_scheduled()

    def _decide(self) -> _Decision:
        config = self.config
        budget = self.budget
        step = self.state.step
        is_last = step >= config.steps or budget.is_exhausted() or self.is_ended
        validate = is_last or self._is_scheduled() or budget.should_measure_validation()
        last_step = budget.last_step(config.steps, config.valid_every)
        exchange_step = step + budget.num_updates_in(EXCHANGE_SECONDS)
        return _Decision(self.stop.requested, is_last, validate, last_step, exchange_step)


class StatsReader:
    """Reads the statistics of updates, reports loss spikes, and averages between log lines.

    On a GPU, the statistics of an update are read after the next one has started, so that the GPU
    never waits for the host.
    """

    def __init__(self, delay: bool, on_update: Callback) -> None:
        """Start a period of updates.

        Args:
            delay: whether to read the statistics after the next update has started.
            on_update: called with those of each update.
        """
        self.on_update = on_update
        self.max_pending = 1 if delay else 0
        self._pending: deque[tuple[int, PendingStats]] = deque()
        self._spikes = LossSpikeDetector()
        self._running = PeriodStats()
        self._loss = math.nan

    def __str__(self) -> str:
        return f"loss {self._loss:.3f}, {self._running.tokens_per_second():,.0f} tok/s"

    def add(self, step: int, pending: PendingStats) -> None:
        """Add an update and read the statistics of the previous one, or, without a delay, its own.

        Raises:
            TrainingError: see `PendingStats.read`.
        """
        self._pending.append((step, pending))
        self.read(self.max_pending)

    def end_period(self) -> dict[str, float]:
        """Return the means of this period, and start a new one."""
        means = self._running.means()
        self._running = PeriodStats()
        return means

    def exclude(self, seconds: float) -> None:
        """Leave out the time of a validation."""
        self._running.start_time += seconds

    def read(self, max_pending: int = 0) -> None:
        """Read all statistics, except those of the last `max_pending` updates.

        Raises:
            TrainingError: see `PendingStats.read`.
        """
        while len(self._pending) > max_pending:
            step, pending = self._pending.popleft()
            stats = pending.read()
            self._loss = stats.loss
            self._running.add(stats)
            values = {"loss": stats.loss, "grad_norm": stats.grad_norm}
            self.on_update(step, values | {"tokens": stats.tokens, "lr": pending.lr})
            if self._spikes.update(stats):
                rise = f"the loss rose to {stats.loss:.2f} from about {self._spikes.mean:.2f}"
                advice = f"if it stays high, lower the learning rate, now {pending.lr:.1e}"
                log(f"update {step:,}: {rise}; {advice}")


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
            means["loss"] = self.loss / max(1, self.tokens)
            means["grad_norm"] = self.grad_norm / self.num_updates
        if self.num_skipped:
            means["skipped"] = self.num_skipped
        return means


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
        if is_high:
            self._num_high += 1
            return self._num_high == self.CONSECUTIVE
        self._num_high = 0
        if self._num_updates == 1:
            self.mean = stats.loss
        self.mean += (stats.loss - self.mean) / min(self._num_updates, self.WINDOW)
        return False
