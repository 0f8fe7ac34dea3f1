"""Weights rounded to whole numbers of 8 bits, for models that are to be small on disk.

Every row of a matrix, which makes one output, has a scale of its own: a number q stands for q · scale, and the largest
of a row for 127 · scale. What is no matrix (biases, norms) is a thousandth of a model and stays as it is.

Shape letters: O rows (outputs), I columns (inputs).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

SCALE = ".scale"
"""Added to the name of a matrix; a tensor of this name holds its scales, [O]."""


def rounded(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights with every matrix as int8 and its scales beside it."""
    tensors = dict(weights)
    for name, weight_OI in weights.items():
        if weight_OI.ndim == 2:
            scale_O = weight_OI.float().abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
            tensors[name] = (weight_OI.float() / scale_O[:, None]).round().to(torch.int8)
            tensors[name + SCALE] = scale_O
    return tensors


def restored(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return float32 matrices for those that `rounded` has made; everything else as it is.

    Raises:
        KeyError: a matrix of whole numbers has no scales.
    """
    weights = {name: tensor for name, tensor in tensors.items() if not name.endswith(SCALE)}
    for name, weight_OI in weights.items():
        if weight_OI.dtype == torch.int8:
            weights[name] = weight_OI.float() * tensors[name + SCALE][:, None]
    return weights
