"""Measures the memory, speed and duration of a training run, and the largest batch size that fits
in memory.

`find_batch_size` and `estimate` make real updates on the batches that need the most memory;
`estimate` then measures the speed of ordinary updates. The resulting weights are discarded.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import torch

from nmt.core import runtime
from nmt.core.config import Config
from nmt.core.console import log, progress
from nmt.core.errors import TrainingError
from nmt.data.loader import Loader
from nmt.data.prepare import PreparedData
from nmt.data.sampling import describe
from nmt.model.build import count_parameters
from nmt.training.distributed import RankGroup
from nmt.training.packed_update import WARM_UP
from nmt.training.step import train_step
from nmt.training.trainer import Trainer

MIN_BATCHES_PER_EPOCH = 64
"""Limits the batch size: with fewer, larger batches per epoch the model would learn little."""
SAFETY_MARGIN = 0.9
"""Fraction of the measured batch size to use, because memory fragments."""
MAX_SECONDS, MAX_UPDATES = 15.0, 100
"""Limits of the speed measurement."""


def find_batch_size(
    config: Config,
    prepared: PreparedData,
    device: torch.device,
    dtype: torch.dtype,
    group: RankGroup,
) -> Config:
    """Return the config with a large `train.batch_tokens`, whose worst-case batches fit in memory
    on every rank.

    It has a safety margin, unless the largest one fits, and at least `MIN_BATCHES_PER_EPOCH`
    batches per epoch.

    Raises:
        TrainingError: a batch of `train.max_length` tokens does not fit.
    """

    def fits(batch_tokens: int) -> bool:
        # Compiling each candidate would take long; compiled updates need no more memory.
        options = replace(config.train, batch_tokens=batch_tokens, compile=())
        candidate = replace(config, train=options)
        try:
            with runtime.out_of_memory_as(MemoryError()):  # the model itself does not fit
                _train_worst_case(Trainer(candidate, Path(), prepared, device, dtype))
        except (MemoryError, TrainingError):  # TrainingError: no memory for the optimizer
            return False
        finally:
            _free_memory(device)
        return True

    smallest = config.train.max_length
    loader = Loader(
        prepared.store("train"),
        prepared.tokenizer(),
        config.train,
        config.seed,
        mix=prepared.mix(config),
    )
    lengths_N2 = loader.window(0, 0).lengths_N2
    epoch_tokens = loader.num_windows * int(lengths_N2.max(axis=1).sum())
    largest = max(smallest, epoch_tokens // MIN_BATCHES_PER_EPOCH)
    batch_tokens = min(group.all_gather(search_batch_size(fits, smallest, largest)))
    if not batch_tokens:
        raise TrainingError(
            f"a batch of {smallest} tokens does not fit in memory",
            "reduce model.dim or the layer counts",
        )
    log(f"batch size: {batch_tokens:,} tokens, the largest useful size that fits in memory")
    return replace(config, train=replace(config.train, batch_tokens=batch_tokens))


def search_batch_size(fits: Callable[[int], bool], smallest: int, largest: int) -> int:
    """Return the largest size that fits, to within an eighth; 0 if `smallest` does not fit.

    It is reduced by the safety margin unless it is `largest`.
    """
    if not fits(smallest):
        return 0
    fitting = smallest
    too_large = 0  # not known yet
    while fitting < largest and not 0 < too_large - fitting <= fitting // 8:
        candidate = (fitting + too_large) // 2 if too_large else min(2 * fitting, largest)
        if fits(candidate):
            fitting = candidate
        else:
            too_large = candidate
    return max(smallest, int(SAFETY_MARGIN * fitting)) if too_large else fitting


def _train_worst_case(trainer: Trainer) -> None:
    """Make updates with the largest batches, the last ones with the optimizer's state and
    accumulated gradients."""
    trainer.model.train()
    num_microbatches = min(2, trainer.config.train.grad_accumulation)
    if packed := trainer.packed_update:
        (batch,) = trainer.loader.worst_case_batches()
        for _ in range(WARM_UP + 1):
            packed.compute_gradient([batch] * num_microbatches, batch.tokens)
            packed.apply(trainer.lr).read()
        return
    for batch in 2 * trainer.loader.worst_case_batches():
        microbatches = [batch.to(trainer.device)] * num_microbatches
        train_step(
            trainer.model,
            microbatches,
            trainer.optimizer,
            trainer.config.train,
            scaler=trainer.scaler,
            teacher=trainer.teacher,
        ).read()


def _free_memory(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)  # `estimate` reports the peak of the chosen size


@dataclass(frozen=True)
class Estimate:
    """Measured speed and memory of a training run, and figures derived from them."""

    parameters: int
    corpora: str
    """Description of the pairs of each corpus; see `nmt.data.sampling.describe`."""
    tokens_per_epoch: int
    """Target tokens."""
    updates_per_epoch: int
    padding: float
    """Fraction of target positions that are padding."""
    measured_updates: int
    tokens_per_second: float
    seconds_per_update: float
    memory: int | None
    """Peak memory in bytes, of the GPU or of this process; None if the system does not report
    it."""
    disk: int
    """Maximum size of all checkpoints on disk in bytes."""


def estimate(trainer: Trainer) -> Estimate:
    """Measure some updates of a new trainer. Its weights must not be used afterward.

    Raises:
        TrainingError: the worst-case batches do not fit in memory.
    """
    config = trainer.config.train
    try:
        _train_worst_case(trainer)
    except MemoryError:
        raise TrainingError(
            f"batches of {config.batch_tokens} tokens do not fit in memory",
            "training would split them; reduce train.batch_tokens and increase"
            " train.grad_accumulation",
        ) from None
    loader = trainer.loader
    # All windows have about as many pairs of each corpus.
    window = loader.window(0, 0)
    tokens_N = window.lengths_N2[:, 1] + 1
    num_tokens_of_window = int(tokens_N.sum())
    num_updates, num_tokens, seconds = _measure_speed(trainer)
    return Estimate(
        count_parameters(trainer.model),
        describe(loader.corpora),
        loader.num_windows * num_tokens_of_window,
        loader.num_windows * math.ceil(len(window.batches) / config.grad_accumulation),
        1 - num_tokens_of_window / loader.num_positions(window),
        num_updates,
        num_tokens / seconds,
        seconds / num_updates,
        _peak_memory(trainer.device),
        _disk_bytes(trainer),
    )


def _disk_bytes(trainer: Trainer) -> int:
    """Return the maximum size of all checkpoints, whose numbers are float32."""
    config = trainer.config.train
    num_checkpoints = config.keep_last + config.keep_best
    if config.average_last:
        num_checkpoints += 1
    num_saved = count_parameters(trainer.model)
    if config.ema:
        num_saved *= 2  # also the weights that are not averaged
    for state in trainer.optimizer.state.values():
        num_saved += sum(tensor.numel() for tensor in state.values() if torch.is_tensor(tensor))
    return 4 * num_saved * num_checkpoints


def _measure_speed(trainer: Trainer) -> tuple[int, int, float]:
    """Return the number of measured updates, their target tokens, and the seconds they took."""
    steps = trainer.config.train.steps
    updates = trainer.updates()
    # The first update plans the epoch; the first ones compile, and record graphs. They are
    # excluded.
    for update in islice(updates, WARM_UP + 1 if trainer.device.type == "cuda" else 1):
        previous = trainer.update(update, steps)
        previous.read()
    num_updates = num_tokens = 0
    start = time.perf_counter()
    with progress(MAX_SECONDS, "measuring", "s") as bar:
        for update in islice(updates, MAX_UPDATES):
            pending = trainer.update(update, steps)
            previous.read()  # as in training, waits for the previous update
            previous = pending
            num_tokens += pending.tokens
            num_updates += 1
            seconds = time.perf_counter() - start
            bar.update(round(min(MAX_SECONDS, seconds) - bar.n, 1))
            if seconds > MAX_SECONDS:
                break
    previous.read()
    return num_updates, num_tokens, time.perf_counter() - start


def _peak_memory(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak
