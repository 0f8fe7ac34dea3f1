"""8-bit quantization of stored weights.

Each row of a matrix, which computes one output, has a scale: the number q represents q · scale, and
127 represents the largest magnitude of the row. Biases and norms, about a thousandth of a model,
are not quantized.

Shape suffixes: O rows (outputs), I columns (inputs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCALE = ".scale"
"""Suffix appended to the name of a quantized matrix to name the tensor of its scales, [O]."""
Arrays = dict[str, NDArray[Any]]


def quantize(weights: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return every matrix as int8, with float32 scales as an additional tensor; other tensors are
    unchanged."""
    arrays = {}
    for name, weight in weights.items():
        if weight.ndim == 2:
            scale_O = np.abs(weight).max(1).clip(min=np.finfo(np.float32).tiny).astype(
                np.float32
            ) / np.float32(127)
            arrays[name] = np.rint(weight / scale_O[:, None]).astype(np.int8)
            arrays[name + SCALE] = scale_O
        else:
            arrays[name] = weight
    return arrays


def dequantize(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Convert the int8 matrices written by `quantize` back to float32; other tensors are unchanged.

    Raises:
        KeyError: an int8 matrix has no scales.
    """
    weights = dict(arrays)
    matrices = {name: weight for name, weight in arrays.items() if weight.dtype == np.int8}
    # One block for all, because NumPy asks for huge pages only if a block is large.
    block = np.empty(sum(weight.size for weight in matrices.values()), np.float32)
    start = 0
    for name, weight_OI in matrices.items():
        end = start + weight_OI.size
        scale_O = weights.pop(name + SCALE)
        weights[name] = block[start:end].reshape(weight_OI.shape)
        np.multiply(weight_OI, scale_O[:, None], out=weights[name])
        start = end
    return weights
