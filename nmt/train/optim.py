"""Adam and learning-rate schedules. A schedule maps the update number, starting from 1, to a learning rate.

`total` is train.steps, or fewer under a time limit. Schedules that decay to zero reach it one update after `total`,
because an update with a learning rate of zero would be wasted.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from nmt.config import TrainConfig
from nmt.errors import ConfigError
from nmt.model.seq2seq import Seq2Seq
from nmt.registry import resolve

Schedule = Callable[..., float]


def noam(step: int, total: int, dim: int, *, warmup: int = 4000, factor: float = 1.0) -> float:
    """Linear warmup, then inverse square-root decay: factor · D^-0.5 · min(step^-0.5, step · warmup^-1.5).

    Vaswani et al. 2017, equation 3; D is the model dimension.
    """
    return float(factor * dim**-0.5 * min(step**-0.5, step * warmup**-1.5))


def inverse_sqrt(step: int, total: int, dim: int, *, peak: float = 1e-3, warmup: int = 400) -> float:
    """Linear warmup to `peak`, then peak · (warmup / step)^0.5: noam with an explicit maximum."""
    return float(peak * min(step / warmup, (warmup / step) ** 0.5))


def linear(step: int, total: int, dim: int, *, peak: float = 1e-3, warmup: int = 400) -> float:
    """Linear warmup to `peak`, then linear decay to zero by the end of training."""
    return float(peak * max(0.0, min(step / warmup, (total - step + 1) / max(1, total - warmup))))


def cosine(step: int, total: int, dim: int, *, peak: float = 1e-3, warmup: int = 400) -> float:
    """Linear warmup to `peak`, then cosine decay (Loshchilov and Hutter 2017) to zero by the end of training."""
    fraction = max(0.0, (step - warmup) / max(1, total - warmup + 1))
    return float(peak * min(step / warmup, (1 + math.cos(math.pi * min(1.0, fraction))) / 2))


def constant(step: int, total: int, dim: int, *, peak: float = 1e-3, warmup: int = 400) -> float:
    """Linear warmup to `peak`, then constant."""
    return float(peak * min(1.0, step / warmup))


def wsd(step: int, total: int, dim: int, *, peak: float = 1e-3, warmup: int = 400, decay: float = 0.2) -> float:
    """Warmup-stable-decay: linear warmup to `peak`, constant, then linear decay to zero by the end of training.

    The decay takes the last fraction `decay` of the updates. Hu et al. 2024 (MiniCPM), section 4.2, with linear decay.
    """
    return float(peak * max(0.0, min(1.0, step / warmup, (total - step + 1) / max(1.0, decay * total))))


SCHEDULES: dict[str, Schedule] = {
    "noam": noam, "inverse_sqrt": inverse_sqrt, "linear": linear, "cosine": cosine, "constant": constant, "wsd": wsd,
}  # fmt: skip


def schedule(spec: str) -> Schedule:
    """Resolve the spec string of a schedule.

    Raises:
        ConfigError: the name or an option is unknown, or an option is out of range.
    """
    function = resolve("schedule", SCHEDULES, spec)
    options = getattr(function, "keywords", {})
    if options.get("warmup", 1) < 1:
        raise ConfigError(f"train.schedule {spec}: warmup must be at least 1")
    if not 0 < options.get("decay", 1) <= 1:
        raise ConfigError(f"train.schedule {spec}: decay must be above 0 and at most 1")
    for name in ("peak", "factor"):
        if not 0 < options.get(name, 1) < float("inf"):
            raise ConfigError(f"train.schedule {spec}: {name} must be above 0")
    return function


def adam(model: Seq2Seq, config: TrainConfig) -> torch.optim.AdamW:
    """Build a fused AdamW optimizer (Kingma and Ba 2015; decoupled weight decay: Loshchilov and Hutter 2019)."""
    betas = (config.beta1, config.beta2)
    return torch.optim.AdamW(
        model.parameters(), lr=0.0, betas=betas, eps=config.eps, weight_decay=config.weight_decay, fused=True
    )
