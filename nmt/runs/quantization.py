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
            smallest = np.finfo(np.float32).tiny
            magnitude_OI = np.abs(weight)
            max_O = magnitude_OI.max(1).clip(min=smallest)
            scale_O = max_O.astype(np.float32) / np.float32(127)
            scaled_OI = weight / scale_O[:, None]
            quantized = np.rint(scaled_OI)
            arrays[name] = quantized.astype(np.int8)
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
    names = []
    num_weights = 0
    for name, weight in arrays.items():
        if weight.dtype == np.int8:
            names.append(name)
            num_weights += weight.size
    # One block for all, because NumPy asks for huge pages only if a block is large.
    block = np.empty(num_weights, np.float32)
    for name in names:
        quantized_OI = arrays[name]
        scale_O = weights.pop(name + SCALE)
        size = quantized_OI.size
        weight_OI = block[:size].reshape(quantized_OI.shape)
        np.multiply(quantized_OI, scale_O[:, None], out=weight_OI)
        weights[name] = weight_OI
        block = block[size:]
    return weights
