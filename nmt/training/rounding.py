"""Training for 8 bits: matrices are rounded while the gradient is computed.

The gradient at the rounded weights updates the exact ones (straight-through estimator; Bengio et
al. 2013, section 3), so a model learns to translate as it will after `nmt export` or in int8.
Biases, norms and activations are not rounded.

Shape suffixes: O rows (outputs), I columns (inputs), J pairs of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from nmt.model.seq2seq import Seq2Seq
from nmt.models.marian_layout import MAX_PAIR

STACKED = {"qkv.weight": 3, "kv.weight": 2}
"""Number of matrices that a parameter concatenates, by the end of its name."""


def _row_scale(weight_OI: Tensor) -> Tensor:
    """Return the scale of each output, as `nmt.runs.quantization` has it: [O, 1]."""
    max_O1 = weight_OI.abs().amax(1, keepdim=True)
    return max_O1 / 127


def _matrix_scale(weight_OI: Tensor) -> Tensor:
    """Return the scale of the matrix, as in a model of Firefox."""
    pairs_OJ2 = weight_OI.unflatten(1, (-1, 2))
    positive_OJ = pairs_OJ2.clamp(min=0).sum(-1)
    negative_OJ = pairs_OJ2.clamp(max=0).sum(-1)
    largest_pair = torch.maximum(positive_OJ.max(), -negative_OJ.min())
    return torch.maximum(weight_OI.abs().max() / 127, largest_pair / MAX_PAIR)


SCALES: dict[str, Callable[[Tensor], Tensor]] = {"int8": _row_scale, "firefox": _matrix_scale}
"""Values of `train.weight_rounding`: the distance of two neighboring numbers."""


@contextmanager
def rounded_weights(model: Seq2Seq, rounding: str) -> Iterator[None]:
    """Round the matrices of a model to 8 bits, and restore them.

    Args:
        model: the model.
        rounding: a name in `SCALES`; empty: nothing is rounded.
    """
    if not rounding:
        yield
        return
    matrices = _matrices(model)
    exact = [weight_OI.clone() for weight_OI in matrices]
    for weight_OI in matrices:
        scale = SCALES[rounding](weight_OI).clamp(min=torch.finfo(torch.float32).tiny)
        weight_OI.div_(scale).round_().clamp_(-127, 127).mul_(scale)
    try:
        yield
    finally:
        torch._foreach_copy_(matrices, exact)


def _matrices(model: Seq2Seq) -> list[Tensor]:
    """Return views of all matrices, without gradients."""
    matrices: list[Tensor] = []
    for name, parameter in model.named_parameters():
        if parameter.dim() != 2:
            continue
        ends = [end for end in STACKED if name.endswith(f".{end}")]
        count = STACKED[ends[0]] if ends else 1
        matrices += parameter.detach().chunk(count)
    return matrices
