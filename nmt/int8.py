"""Weights rounded to whole numbers of 8 bits, for models that are to be small on disk.

Every row of a matrix, which makes one output, has a scale of its own: a number q stands for q · scale, and the largest
of a row for 127 · scale. What is no matrix (biases, norms) is a thousandth of a model.

Shape letters: O rows (outputs), I columns (inputs).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

SCALE = ".scale"
"""Added to the name of a matrix; a tensor of this name holds its scales, [O]."""


def rounded(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights with every matrix as int8 and its scales, in float32, beside it; the rest in bf16."""
    tensors = {}
    for name, weight in weights.items():
        if weight.ndim == 2:
            scale_O = weight.float().abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
            tensors[name] = (weight.float() / scale_O[:, None]).round().to(torch.int8)
            tensors[name + SCALE] = scale_O
        else:
            tensors[name] = weight.to(torch.bfloat16)
    return tensors


def restored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return float32 matrices for those that `rounded` has made; everything else as it is.

    Raises:
        KeyError: a matrix of whole numbers has no scales.
    """
    weights = dict(tensors)
    for name, weight_OI in tensors.items():
        if weight_OI.dtype == torch.int8:
            weights[name] = weight_OI.float() * weights.pop(name + SCALE)[:, None]
    return weights
