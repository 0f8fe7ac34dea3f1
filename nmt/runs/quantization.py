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


def scales(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return the scales of the int8 matrices by the names of these.

    Raises:
        KeyError: a matrix has no scales.
        ValueError: an int8 tensor is no matrix, or has another number of scales than rows.
    """
    found = {}
    for name, weight in arrays.items():
        if weight.dtype != np.int8:
            continue
        scale_O = arrays[name + SCALE]
        if weight.ndim != 2 or scale_O.shape != weight.shape[:1] or scale_O.dtype != np.float32:
            raise ValueError(f"{name} has other rows than scales")
        found[name] = scale_O
    return found


def dequantize(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Convert the int8 matrices written by `quantize` back to float32; other tensors are unchanged.

    Raises:
        KeyError, ValueError: see `scales`.
    """
    weights = dict(arrays)
    scales_by_name = scales(arrays)
    # One block for all, because NumPy asks for huge pages only if a block is large.
    block = np.empty(sum(arrays[name].size for name in scales_by_name), np.float32)
    for name, scale_O in scales_by_name.items():
        del weights[name + SCALE]
        quantized_OI = arrays[name]
        size = quantized_OI.size
        weight_OI = block[:size].reshape(quantized_OI.shape)
        np.multiply(quantized_OI, scale_O[:, None], out=weight_OI)
        weights[name] = weight_OI
        block = block[size:]
    return weights
