"""AdamW, without `torch.optim`, whose optimizers import PyTorch's compiler: a second before the
first update."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class AdamW:
    """Adam (Kingma and Ba 2015, algorithm 1) with decoupled weight decay (Loshchilov and Hutter
    2019, algorithm 2).

    Provides what `GradScaler` expects of an optimizer. As in PyTorch's fused optimizers, a non-zero
    attribute `found_inf` makes `step` change nothing, and gradients are divided by an attribute
    `grad_scale`, without a synchronization with the GPU.
    """

    _step_supports_amp_scaling = True
    found_inf: Tensor | None = None
    grad_scale: Tensor | None = None

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        beta1: float,
        beta2: float,
        eps: float,
        weight_decay: float,
    ) -> None:
        """Create the optimizer with learning rate 0."""
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": 0.0}]
        self.state: dict[Tensor, dict[str, Tensor]] = defaultdict(dict)
        self.beta1 = beta1
        self.beta2 = beta2
        self.eps = eps
        self.weight_decay = weight_decay

    @torch.no_grad()
    def step(self) -> None:
        """Make one update."""
        group = self.param_groups[0]
        parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
        if not parameters:
            return
        states = [self.state[parameter] for parameter in parameters]
        for parameter, state in zip(parameters, states, strict=True):
            if not state:
                state["step"] = torch.zeros((), device=parameter.device)
                state["exp_avg"] = torch.zeros_like(parameter)
                state["exp_avg_sq"] = torch.zeros_like(parameter)
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            parameters,
            [parameter.grad for parameter in parameters],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            steps,
            lr=group["lr"],
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            weight_decay=self.weight_decay,
            amsgrad=False,
            maximize=False,
            grad_scale=self.grad_scale,
            found_inf=self.found_inf,
        )
        if self.found_inf is not None:
            torch._foreach_sub_(steps, [self.found_inf] * len(steps))
