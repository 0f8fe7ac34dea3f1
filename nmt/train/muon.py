"""Muon: momentum whose matrices are orthogonalized, for attention and feed-forward layers; AdamW for the rest.

Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks". The update of a matrix is scaled to the
typical size of an Adam update (Liu et al. 2025, "Muon is scalable for LLM training", equation 4), so one learning-rate
schedule serves both. `torch.optim.Muon` orthogonalizes one matrix at a time, always in bf16, and a stacked matrix, such
as query, key and value, as one.

Shape suffixes: N matrices, R rows, C columns, R <= C.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.train.adam import AdamW

COEFFICIENTS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.875, -1.25, 0.375),
)
"""Polynomials ax + bx³ + cx⁵ of the singular values, one per step; the last one is for all further steps.

Amsel et al. 2025, "The Polar Express", algorithm 1, for singular values between 0.001 and 1.
"""
SAFETY = 1.01
"""Factor by which singular values may exceed 1 because of rounding."""


class Part(NamedTuple):
    """A matrix to orthogonalize: some rows of a parameter."""

    parameter_index: int
    """Index of the parameter in its group."""
    rows: slice
    is_tall: bool
    """Whether it has more rows than columns, and is transposed for its products."""

    def of(self, tensors: Sequence[Tensor]) -> Tensor:
        """Return the matrix of the parameter's weight, gradient or momentum, as a view with R <= C."""
        part = tensors[self.parameter_index][self.rows]
        return part.mT if self.is_tall else part


class Muon(AdamW):
    """Muon for `matrices`, and AdamW for the other parameters.

    Both use the learning rate of their parameter group.
    """

    def __init__(
        self,
        matrices: Mapping[Tensor, Sequence[int]],
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
            matrices: parameters [rows, columns], and the number of rows of each matrix that is stacked in them.
            others: the other parameters.
            momentum: decay rate of the momentum.
            ns_steps: number of steps of the orthogonalization.
            lr_scale: factor of the learning rate of the matrices.
            dtype: dtype of the matrix products.
            adam_options: options of `AdamW`; its weight decay is also that of the matrices.
        """
        super().__init__(others, **adam_options)
        self.param_groups.append({"params": list(matrices), "lr": 0.0})
        self.momentum, self.ns_steps, self.lr_scale, self.dtype = momentum, ns_steps, lr_scale, dtype
        self.stacks = _stack_by_shape(matrices.items())

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
        for parts in self.stacks:
            stacked_NRC = torch.stack([part.of(directions) for part in parts])
            update_NRC = orthogonalize(stacked_NRC, self.ns_steps, self.dtype).float()
            size = 0.2 * math.sqrt(update_NRC.shape[-1])  # the root mean square becomes that of Adam, about 0.2
            torch._foreach_sub_([part.of(weights) for part in parts], list(update_NRC.mul_(lr * size)))

    def _directions(self, weights: Sequence[Any]) -> list[Tensor]:
        """Update the momentum and return the directions of the update, before their orthogonalization.

        Nesterov momentum: the direction is the average that the next update would have with the same gradient.
        """
        for weight in weights:
            if "momentum" not in self.state[weight]:
                self.state[weight]["momentum"] = torch.zeros_like(weight)
        momenta = [self.state[weight]["momentum"] for weight in weights]
        gradients = [weight.grad for weight in weights]
        if self.found_inf is not None:  # a zero difference leaves the momentum unchanged
            is_skipped = self.found_inf.bool()
            gradients = [torch.where(is_skipped, m, g) for m, g in zip(momenta, gradients, strict=True)]
        torch._foreach_lerp_(momenta, gradients, 1 - self.momentum)
        return list(torch._foreach_lerp(gradients, momenta, self.momentum))


def _stack_by_shape(matrices: Iterable[tuple[Tensor, Sequence[int]]]) -> list[list[Part]]:
    """Return the matrices of each shape, to orthogonalize them with batched products."""
    stacks: dict[tuple[int, int], list[Part]] = {}
    for index, (parameter, sizes) in enumerate(matrices):
        first, columns = 0, parameter.shape[1]
        for rows in sizes:
            part = Part(index, slice(first, first + rows), is_tall=rows > columns)
            stacks.setdefault((min(rows, columns), max(rows, columns)), []).append(part)
            first += rows
    return list(stacks.values())


def orthogonalize(x_NRC: Tensor, steps: int, dtype: torch.dtype) -> Tensor:
    """Return about the nearest semi-orthogonal matrices, UVᵀ for a singular value decomposition USVᵀ of each matrix.

    The products, and the result, have the given dtype.

    Singular values above 0.001 of the Frobenius norm become 0.42 to 1.56 after four steps, 0.85 to 1.12 after five and
    0.99 to 1.01 after six.
    """
    norm_N11 = torch.linalg.vector_norm(x_NRC, dim=(1, 2), keepdim=True)
    x_NRC = (x_NRC / (SAFETY * norm_N11).clamp(min=torch.finfo(norm_N11.dtype).tiny)).to(dtype)
    for step in range(steps):
        a, b, c = COEFFICIENTS[min(step, len(COEFFICIENTS) - 1)]
        if step < steps - 1:
            a, b, c = a / SAFETY, b / SAFETY**3, c / SAFETY**5
        gram_NRR = x_NRC @ x_NRC.mT
        polynomial_NRR = torch.baddbmm(gram_NRR, gram_NRR, gram_NRR, beta=b, alpha=c)
        x_NRC = torch.baddbmm(x_NRC, polynomial_NRR, x_NRC, beta=a)
    return x_NRC
