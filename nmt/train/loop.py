"""The loop of a training: update after update, the log, validations, and when to end."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

from nmt.console import log, progress
from nmt.train.run_dir import MetricsLogger
from nmt.train.step import StepStats
from nmt.train.stopping import Clock, Stop
from nmt.train.trainer import Trainer


def run(trainer: Trainer, journal: MetricsLogger, stop: Stop, time_limit: float | None) -> bool:
    """Train to the end; False if it was stopped before."""
    config, state, group = trainer.config.train, trainer.progress, trainer.group
    clock = Clock(time_limit, state, last_validations=2 if config.average_last else 1)
    due = state.step >= config.steps or state.step % config.valid_every == 0
    if state.step and due and not state.scores:  # it was stopped when this validation was next
        _validate(trainer, journal, clock, stop)
        if not state.scores:
            return False
    if state.step >= config.steps or (config.patience and state.validations_since_best >= config.patience):
        log("this run is finished; set train.steps higher to go on")
        return True
    trainer.model.train()
    window, spikes = Window(), Spikes()
    total = config.steps
    with progress(config.steps, "training", " updates", initial=state.step) as bar:
        for update in trainer.updates():
            stats = trainer.update(update, total)
            window.add(stats)
            if spikes.see(stats):
                log(f"update {state.step:,}: the loss jumped to {stats.loss:.2f} from about {spikes.usual:.2f}")
            state.seconds = clock.seconds_before + clock.elapsed()
            state.scores = {}
            rate = trainer.optimizer.param_groups[0]["lr"]
            bar.set_postfix_str(f"loss {stats.loss:.3f}, lr {rate:.1e}, {window.speed():,.0f} tok/s", refresh=False)
            bar.update()
            if state.step % config.log_every == 0:
                if group.is_main:
                    journal.write(_position(trainer) | {"lr": rate, **window.means()})
                window = Window()
            decisions = group.all_gather(_decide(trainer, clock, stop))
            decision, total = decisions[0], decisions[0].total
            bar.total = max(total, state.step + 1)
            if any(each.stop for each in decisions):  # the signal may have reached one rank only
                trainer.save()
                return False
            if decision.validate:
                going_on = _validate(trainer, journal, clock, stop)
                window = Window()
                if not state.scores:
                    return False
                if decision.last:
                    if state.step < config.steps:
                        log("the time limit is reached")
                    return True
                if not going_on:
                    log(f"no better validation {config.patience} times: stopping early")
                    return True
    raise AssertionError("updates never end by themselves")


def _position(trainer: Trainer) -> dict[str, Any]:
    state = trainer.progress
    return {"step": state.step, "epoch": state.epoch, "seconds": round(state.seconds, 3), "tokens": state.tokens}


def _validate(trainer: Trainer, journal: MetricsLogger, clock: Clock, stop: Stop) -> bool:
    """Validate, judge, save and report; False when patience has run out.

    A stop breaks it off, which leaves `scores` empty: the run begins with it when it goes on.
    """
    state = trainer.progress
    with clock.validation():
        scores = trainer.group.broadcast(stop.interruptible(trainer.validate) if trainer.group.is_main else None)
    going_on = trainer.judge(scores) if scores else True
    if scores and trainer.group.is_main:  # before the save, which a resumed run begins from: no line may be lost
        samples = {"samples": trainer.samples} if trainer.samples else {}
        journal.write(_position(trainer) | scores | samples)
    trainer.save()
    if scores and trainer.group.is_main:
        best = " (best)" if state.validations_since_best == 0 else ""
        loss, bleu = scores["valid_loss"], scores["valid_bleu"]
        chrf = f", chrF {scores['valid_chrf']:.1f}" if trainer.config.train.best_metric == "chrf" else ""
        log(f"update {state.step:,}: validation loss {loss:.3f}, BLEU {bleu:.1f}{chrf}{best}")
        for source, translation in trainer.samples:
            log(f"  {source} → {translation}")
    return going_on


@dataclass(frozen=True)
class _Decision:
    """What is to be done after an update; rank 0's counts, but for the stop."""

    stop: bool
    last: bool
    validate: bool
    total: int
    """The update at which training is to end, as far as can be said."""


def _decide(trainer: Trainer, clock: Clock, stop: Stop) -> _Decision:
    config, step = trainer.config.train, trainer.progress.step
    last = step >= config.steps or clock.is_up()
    validate = last or step % config.valid_every == 0 or clock.must_know_validation()
    return _Decision(stop.requested, last, validate, clock.last_step(config.steps, config.valid_every))


class Window:
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


class Spikes:
    """Notices a loss far above what it was, which is how a training begins to fall apart."""

    IN_A_ROW = 3
    """A batch of short sentences costs half again as much a token as others do; it comes alone."""

    def __init__(self) -> None:
        self.usual = math.inf
        self._seen = self._high = 0

    def see(self, stats: StepStats) -> bool:
        """Take note of an update; True at the third in a row whose loss is half again the mean of some fifty before."""
        if stats.skipped:
            return False
        self._seen += 1
        self._high = self._high + 1 if self._seen > 50 and stats.loss > 1.5 * self.usual else 0
        if not self._high:
            weight = 1 / min(self._seen, 50)
            self.usual = stats.loss if self._seen == 1 else self.usual + weight * (stats.loss - self.usual)
        return self._high == self.IN_A_ROW
