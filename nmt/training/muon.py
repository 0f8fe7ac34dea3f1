"""Muon: momentum whose matrices are orthogonalized, for attention and feed-forward layers; AdamW
for the rest.

Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks". The update of a
matrix is scaled to the typical size of an Adam update (Liu et al. 2025, "Muon is scalable for LLM
training", equation 4), so one learning-rate schedule serves both. The matrices of attention are
orthogonalized head by head, which trains better in the same time. `torch.optim.Muon` orthogonalizes
one parameter at a time, always in bf16.

Shape suffixes: N matrices, R rows, C columns, R <= C.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.training.adamw import AdamW

COEFFICIENTS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.875, -1.25, 0.375),
)
"""Polynomials ax + bx³ + cx⁵ of the singular values, one per step; the last one is for all further
steps.

Amsel et al. 2025, "The Polar Express", algorithm 1, for singular values between 0.001 and 1.
"""
SAFETY = 1.01
"""Factor by which singular values may exceed 1 because of rounding."""


class Blocks(NamedTuple):
    """How a parameter is divided into matrices."""

    axis: int
    """0: a matrix has some of the rows; 1: some of the columns."""
    size: int
    """Number of rows or columns of a matrix."""

    def view(self, tensor: Tensor) -> Tensor:
        """Return the matrices of the parameter's weight, gradient or momentum, as a view with R <=
        C."""
        blocks: Tensor = tensor.unflatten(self.axis, (-1, self.size)).movedim(self.axis, 0)
        return blocks.mT if blocks.shape[1] > blocks.shape[2] else blocks


class Muon(AdamW):
    """Muon for `matrices`, and AdamW for the other parameters.

    Both use the learning rate of their parameter group.
    """

    def __init__(
        self,
        matrices: Mapping[Tensor, Blocks],
        others: Iterable[Tensor],
        *,
        momentum: float,
        ns_steps: int,
        lr_scale: float,
        dtype: torch.dtype,
        **adam_options: float,
    ) -> None:
        """Create the optimizer with learning rate 0.

        Args:
            matrices: parameters [rows, columns] with one or more matrices.
            others: the other parameters.
            momentum: decay rate of the momentum.
            ns_steps: number of steps of the orthogonalization.
            lr_scale: factor of the learning rate of the matrices.
            dtype: dtype of the matrix products.
            adam_options: options of `AdamW`; its weight decay is also that of the matrices.
        """
        super().__init__(others, **adam_options)
        self.param_groups.append({"params": list(matrices), "lr": 0.0})
        self.momentum = momentum
        self.ns_steps = ns_steps
        self.lr_scale = lr_scale
        self.dtype = dtype
        # Matrices of one shape are orthogonalized together, with batched products.
        self.stacks: dict[torch.Size, dict[int, Blocks]] = defaultdict(dict)
        for index, (parameter, blocks) in enumerate(matrices.items()):
            shape = blocks.view(parameter).shape[1:]
            self.stacks[shape][index] = blocks

    @torch.no_grad()
    def step(self) -> None:
        """Make one update."""
        super().step()
        group = self.param_groups[-1]
        weights = group["params"]
        lr: float | Tensor = group["lr"] * self.lr_scale
        if self.found_inf is not None:
            lr = lr * (1 - self.found_inf)
        directions = self._directions(weights)
        if self.weight_decay:
            torch._foreach_mul_(weights, 1 - lr * self.weight_decay)
        for stack in self.stacks.values():
            blocks_NRC = [blocks.view(directions[index]) for index, blocks in stack.items()]
            update_NRC = orthogonalize(torch.cat(blocks_NRC), self.ns_steps, self.dtype).float()
            # The root mean square becomes that of Adam, about 0.2.
            size = 0.2 * math.sqrt(update_NRC.shape[-1])
            update_NRC *= lr * size
            views = [blocks.view(weights[index]) for index, blocks in stack.items()]
            updates = update_NRC.split([len(view) for view in views])
            torch._foreach_sub_(views, list(updates))

    def _directions(self, weights: Sequence[Any]) -> list[Tensor]:
        """Update the momentum and return the directions of the update, before their
        orthogonalization.

        Nesterov momentum: the direction is the average that the next update would have with the
        same gradient.
        """
        momenta = []
        gradients = []
        for weight in weights:
            state = self.state[weight]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(weight)
            gradient = weight.grad
            if self.grad_scale is not None:
                gradient = gradient / self.grad_scale
            if self.found_inf is not None:  # a zero difference leaves the momentum unchanged
                gradient = torch.where(self.found_inf.bool(), state["momentum"], gradient)
            momenta.append(state["momentum"])
            gradients.append(gradient)
        torch._foreach_lerp_(momenta, gradients, 1 - self.momentum)
        return list(torch._foreach_lerp(gradients, momenta, self.momentum))


def orthogonalize(x_NRC: Tensor, steps: int, dtype: torch.dtype) -> Tensor:
    """Return about the nearest semi-orthogonal matrices, UVᵀ for a singular value decomposition
    USVᵀ of each matrix.

    The products, and the result, have the given dtype.

    Singular values above 0.001 of the Frobenius norm become 0.42 to 1.56 after four steps, 0.85 to
    1.12 after five and 0.99 to 1.01 after six.
    """
    # Divide by the largest element first: the squares of tiny elements would be zero.
    max_N11 = x_NRC.abs().amax(dim=(1, 2), keepdim=True)
    tiny = torch.finfo(x_NRC.dtype).tiny
    x_NRC = x_NRC / max_N11.clamp(min=tiny)
    norm_N11 = torch.linalg.vector_norm(x_NRC, dim=(1, 2), keepdim=True).clamp(min=1)
    x_NRC = x_NRC / (SAFETY * norm_N11)
    x_NRC = x_NRC.to(dtype)
    for step in range(steps):
        index = min(step, len(COEFFICIENTS) - 1)
        a, b, c = COEFFICIENTS[index]
        if step < steps - 1:
            a /= SAFETY
            b /= SAFETY**3
            c /= SAFETY**5
        gram_NRR = x_NRC @ x_NRC.mT
        polynomial_NRR = torch.baddbmm(gram_NRR, gram_NRR, gram_NRR, beta=b, alpha=c)
        x_NRC = torch.baddbmm(x_NRC, polynomial_NRR, x_NRC, beta=a)
    return x_NRC
