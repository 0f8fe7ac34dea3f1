"""Optimizers and learning-rate schedules. A schedule maps the update number, starting from 1, to a
learning rate.

`total` is train.steps, or fewer under a time limit. Schedules that decay to zero reach it one
update after `total`, because an update with a learning rate of zero would be wasted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from typing import Annotated, Any

import torch
from torch import Tensor

from nmt.core.config import TrainConfig
from nmt.core.errors import ConfigError
from nmt.core.plugins import Components
from nmt.core.ranges import Positive, Range, Rate, Share
from nmt.core.registry import parse, resolve
from nmt.model.attention import Attention
from nmt.model.layers import FeedForward, Linear
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import Transformer
from nmt.training.adamw import AdamW
from nmt.training.muon import Blocks, Muon

Schedule = Callable[..., float]
OptimizerFactory = Callable[[Seq2Seq, TrainConfig], AdamW]


def noam(step: int, total: int, dim: int, *, warmup: Positive = 4000, factor: Rate = 1.0) -> float:
    """Linear warmup, then inverse square-root decay: factor · D^-0.5 · min(step^-0.5, step ·
    warmup^-1.5).

    Vaswani et al. 2017, equation 3; D is the model dimension.
    """
    return float(factor * dim**-0.5 * min(step**-0.5, step * warmup**-1.5))


def inverse_sqrt(
    step: int, total: int, dim: int, *, peak: Rate = 1e-3, warmup: Positive = 400
) -> float:
    """Linear warmup to `peak`, then peak · (warmup / step)^0.5: noam with an explicit maximum."""
    return float(peak * min(step / warmup, (warmup / step) ** 0.5))


def linear(step: int, total: int, dim: int, *, peak: Rate = 1e-3, warmup: Positive = 400) -> float:
    """Linear warmup to `peak`, then linear decay to zero by the end of training."""
    return float(peak * max(0.0, min(step / warmup, (total - step + 1) / max(1, total - warmup))))


def cosine(step: int, total: int, dim: int, *, peak: Rate = 1e-3, warmup: Positive = 400) -> float:
    """Linear warmup to `peak`, then cosine decay (Loshchilov and Hutter 2017) to zero by the end of
    training."""
    fraction = max(0.0, (step - warmup) / max(1, total - warmup + 1))
    return float(peak * min(step / warmup, (1 + math.cos(math.pi * min(1.0, fraction))) / 2))


def constant(
    step: int, total: int, dim: int, *, peak: Rate = 1e-3, warmup: Positive = 400
) -> float:
    """Linear warmup to `peak`, then constant."""
    return float(peak * min(1.0, step / warmup))


def wsd(
    step: int,
    total: int,
    dim: int,
    *,
    peak: Rate = 1e-3,
    warmup: Positive = 400,
    decay: Annotated[float, Range(above=0, maximum=1)] = 0.2,
) -> float:
    """Warmup-stable-decay: linear warmup to `peak`, constant, then linear decay to zero by the end
    of training.

    The decay takes the last fraction `decay` of the updates. Hu et al. 2024 (MiniCPM), section 4.2,
    with linear decay.
    """
    return float(
        peak * max(0.0, min(1.0, step / warmup, (total - step + 1) / max(1.0, decay * total)))
    )


SCHEDULES: Components[Schedule] = Components(
    "schedule",
    {
        "noam": noam,
        "inverse_sqrt": inverse_sqrt,
        "linear": linear,
        "cosine": cosine,
        "constant": constant,
        "wsd": wsd,
    },
    returns="a finite number",
    is_valid=lambda rate: isinstance(rate, Real) and math.isfinite(rate),
)


def parse_schedule(spec: str) -> Schedule:
    """Resolve the spec string of a schedule.

    Raises:
        ConfigError: the name or an option is unknown, or an option is out of range.
    """
    return resolve("schedule", SCHEDULES, spec)


def adamw(model: Seq2Seq, config: TrainConfig) -> AdamW:
    """Build AdamW for all parameters."""
    return AdamW(model.parameters(), **_adam_options(config))


def muon(
    model: Seq2Seq,
    config: TrainConfig,
    *,
    momentum: Share = 0.95,
    ns_steps: Annotated[int, Range(1, 20)] = 4,
    lr_scale: Rate = 1.0,
) -> AdamW:
    """Build Muon for the matrices of attention and feed-forward layers, and AdamW for the other
    parameters.

    `ns_steps` is the number of steps of the orthogonalization, and `lr_scale` the learning rate of
    the matrices as a multiple of that of the schedule. Products have the dtype of the activations.
    """
    assert isinstance(model, Transformer)  # `parse_optimizer` checks it
    matrices: dict[Tensor, Blocks] = {}
    for module in (*model.encoder.modules(), *model.decoder.modules()):
        if isinstance(module, Attention):
            for layer in module.children():
                if isinstance(layer, Linear) and layer is not module.out:
                    matrices[layer.weight] = Blocks(0, module.head_dim)
            matrices[module.out.weight] = Blocks(1, module.head_dim)
        elif isinstance(module, FeedForward):
            matrices[module.up.weight] = Blocks(0, module.down.in_features)
            matrices[module.down.weight] = Blocks(0, module.down.out_features)
    others = [parameter for parameter in model.parameters() if parameter not in matrices]
    return Muon(
        matrices,
        others,
        momentum=momentum,
        ns_steps=ns_steps,
        lr_scale=lr_scale,
        dtype=model.compute_dtype or torch.float32,
        **_adam_options(config),
    )


# An optimizer of a plug-in is one of `torch.optim`.
OPTIMIZERS: Components[Callable[..., Any]] = Components(
    "optimizer",
    {"adamw": adamw, "muon": muon},
    returns="an optimizer",
    is_valid=lambda optimizer: hasattr(optimizer, "param_groups"),
)


def parse_optimizer(spec: str, arch: str) -> OptimizerFactory:
    """Resolve the spec string of an optimizer for a model with architecture `arch`.

    Raises:
        ConfigError: the name or an option is unknown, an option is out of range, or the
            architecture is not supported.
    """
    build = resolve("optimizer", OPTIMIZERS, spec)
    if parse(spec)[0] == "muon" and arch != "transformer":
        raise ConfigError(
            f"train.optimizer {spec} is for attention layers: model.arch is {arch}", "use adamw"
        )
    return build


def _adam_options(config: TrainConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in ("beta1", "beta2", "eps", "weight_decay")}
