"""What a training will need, found out before it: how large a batch fits, how fast updates are, when it will end.

Both are measured with real updates on the batches of the corpus that need most memory, and thrown away.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch

from nmt import runtime
from nmt.config import Config
from nmt.console import log, progress
from nmt.data.prepare import PreparedData
from nmt.errors import TrainingError
from nmt.model.build import count_parameters
from nmt.train.distributed import Group
from nmt.train.step import train_step
from nmt.train.trainer import Trainer

BATCHES_PER_EPOCH = 64
"""An epoch of fewer, larger batches would teach little, however well they fit."""
MARGIN = 0.9
"""Share of what just fits that is used: memory also fragments."""
SECONDS, MOST_UPDATES = 15.0, 100
"""How long speed is measured."""


def largest_batch(
    config: Config, prepared: PreparedData, device: torch.device, dtype: torch.dtype, group: Group
) -> int:
    """Return the largest `train.batch_tokens` whose worst_case_batches batch every rank can learn from.

    Raises:
        TrainingError: not even a batch of `train.max_length` tokens fits.
    """

    def fits(tokens: int) -> bool:
        sized = replace(config, train=replace(config.train, batch_tokens=tokens, grad_accumulation=1))
        try:
            _learn_hardest(Trainer(sized, Path(), prepared, device, dtype))
        except MemoryError:
            return False
        except RuntimeError as error:  # the model itself does not fit
            if not runtime.is_out_of_memory(error):
                raise
            return False
        finally:
            _release(device)
        return True

    smallest = config.train.max_length
    words = int(prepared.store("train").lengths_N2.max(axis=1).sum())
    found = min(group.all_gather(_search(fits, smallest, max(smallest, words // BATCHES_PER_EPOCH))))
    if not found:
        raise TrainingError(
            f"a batch of {smallest} tokens does not fit into memory", "set model.dim or the layers lower"
        )
    log(f"batches of {found:,} tokens, the largest of use here")
    return found


def _search(fits: Callable[[int], bool], smallest: int, most: int) -> int:
    """Return a number between that fits, at most an eighth below the largest, with a margin; 0 if there is none."""
    good, bad = 0, 0
    trial = smallest
    while not bad and good < most:
        if fits(trial):
            good, trial = trial, min(2 * trial, most)
        else:
            bad = trial
    while good and bad - good > good // 8:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good if not bad else max(min(good, smallest), int(MARGIN * good))


def _learn_hardest(trainer: Trainer) -> None:
    trainer.model.train()
    for batch in trainer.loader.worst_case_batches():
        micro = [batch.to(trainer.device)]
        train_step(trainer.model, micro, trainer.optimizer, trainer.config.train, scaler=trainer.scaler)


def _release(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


@dataclass(frozen=True)
class Estimate:
    """What was measured, and what follows from it."""

    parameters: int
    pairs: int
    tokens_per_epoch: int
    """Target tokens."""
    updates_per_epoch: int
    padding: float
    """Share of the target positions."""
    updates: int
    """Updates that were measured."""
    tokens_per_second: float
    seconds_per_update: float
    memory: int | None
    """Bytes at the peak: of the GPU, or of this process; None where the system does not report it."""
    disk: int
    """Bytes of all checkpoints that are kept."""


def estimate(trainer: Trainer) -> Estimate:
    """Measure some updates of a training that has not begun; its weights are of no use afterward.

    Raises:
        TrainingError: the worst_case_batches batch does not fit into memory.
    """
    config, device = trainer.config.train, trainer.device
    try:
        _learn_hardest(trainer)
    except MemoryError:
        raise TrainingError(
            f"batches of {config.batch_tokens} tokens do not fit into memory",
            "training would cut them; set train.batch_tokens lower and train.grad_accumulation higher",
        ) from None
    lengths_N, batches = trainer.loader.lengths_N2[:, 1] + 1, trainer.loader.batches(0)
    tokens = int(lengths_N.sum())
    positions = sum(len(numbers) * int(lengths_N[numbers].max()) for numbers in batches)
    updates = trainer.updates()
    trainer.update(next(updates), config.steps)  # before it, all batches of the epoch are planned
    done, seen, began = 0, 0, time.perf_counter()
    with progress(SECONDS, "measuring", "s") as bar:
        for update in islice(updates, MOST_UPDATES):
            seen += trainer.update(update, config.steps).tokens  # waits for a GPU
            done += 1
            elapsed = time.perf_counter() - began
            bar.update(round(min(SECONDS, elapsed) - bar.n, 1))
            if elapsed > SECONDS:
                break
    parameters = count_parameters(trainer.model)
    kept = config.keep_last + config.keep_best + (1 if config.average_last else 0)
    copies = 4 if config.ema else 3  # weights, two moments, and raw weights besides an average
    return Estimate(
        parameters, len(lengths_N), tokens, -(-len(batches) // config.grad_accumulation), 1 - tokens / positions, done,
        seen / elapsed, elapsed / done, _peak(device), 4 * parameters * copies * kept,
    )  # fmt: skip


def _peak(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
