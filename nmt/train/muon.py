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
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.train.adamw import AdamW

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
        self.momentum, self.ns_steps, self.lr_scale, self.dtype = (
            momentum,
            ns_steps,
            lr_scale,
            dtype,
        )
        self.stacks: dict[torch.Size, list[tuple[int, Blocks]]] = {}
        for index, (parameter, blocks) in enumerate(
            matrices.items()
        ):  # to orthogonalize with batched products
            self.stacks.setdefault(blocks.view(parameter).shape[1:], []).append((index, blocks))

    @torch.no_grad()
    def step(self) -> None:
        """Make one update."""
        super().step()
        weights = self.param_groups[-1]["params"]
        lr: float | Tensor = self.param_groups[-1]["lr"] * self.lr_scale
        if self.found_inf is not None:
            lr = lr * (1 - self.found_inf)
        directions = self._directions(weights)
        if self.weight_decay:
            torch._foreach_mul_(weights, 1 - lr * self.weight_decay)
        for stack in self.stacks.values():
            direction_NRC = torch.cat([blocks.view(directions[index]) for index, blocks in stack])
            update_NRC = orthogonalize(direction_NRC, self.ns_steps, self.dtype).float()
            size = 0.2 * math.sqrt(
                update_NRC.shape[-1]
            )  # the root mean square becomes that of Adam, about 0.2
            views = [blocks.view(weights[index]) for index, blocks in stack]
            updates = update_NRC.mul_(lr * size).split([len(view) for view in views])
            torch._foreach_sub_(views, list(updates))

    def _directions(self, weights: Sequence[Any]) -> list[Tensor]:
        """Update the momentum and return the directions of the update, before their
        orthogonalization.

        Nesterov momentum: the direction is the average that the next update would have with the
        same gradient.
        """
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum"] for weight in weights]
        gradients = [weight.grad for weight in weights]
        if self.found_inf is not None:  # a zero difference leaves the momentum unchanged
            is_skipped = self.found_inf.bool()
            gradients = [
                torch.where(is_skipped, m, g) for m, g in zip(momenta, gradients, strict=True)
            ]
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
    max_N11 = x_NRC.abs().amax(dim=(1, 2), keepdim=True).clamp(min=torch.finfo(x_NRC.dtype).tiny)
    x_NRC = x_NRC / max_N11
    norm_N11 = torch.linalg.vector_norm(x_NRC, dim=(1, 2), keepdim=True).clamp(min=1)
    x_NRC = (x_NRC / (SAFETY * norm_N11)).to(dtype)
    for step in range(steps):
        a, b, c = COEFFICIENTS[min(step, len(COEFFICIENTS) - 1)]
        if step < steps - 1:
            a, b, c = a / SAFETY, b / SAFETY**3, c / SAFETY**5
        gram_NRR = x_NRC @ x_NRC.mT
        polynomial_NRR = torch.baddbmm(gram_NRR, gram_NRR, gram_NRR, beta=b, alpha=c)
        x_NRC = torch.baddbmm(x_NRC, polynomial_NRR, x_NRC, beta=a)
    return x_NRC
