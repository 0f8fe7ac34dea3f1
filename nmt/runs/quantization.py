"""Weights quantized to 8 bits, for models that are to be small on disk.

Every row of a matrix, which makes one output, has a scale: a number q stands for q · scale, and the largest magnitude
of a row for 127 · scale. What is no matrix (biases, norms) is a thousandth of a model.

Shape letters: O rows (outputs), I columns (inputs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

SCALE = ".scale"
"""Suffix of a matrix's name; a tensor of this name holds its scales, [O]."""
Arrays = dict[str, NDArray[Any]]


def quantize(weights: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return every matrix as int8, with its scales beside it in float32; everything else as it is."""
    arrays: Arrays = {}
    for name, weight in weights.items():
        if weight.ndim == 2:
            scale_O = np.abs(weight).max(1).clip(min=np.finfo(np.float32).tiny).astype(np.float32) / np.float32(127)
            arrays[name] = np.rint(weight / scale_O[:, None]).astype(np.int8)
            arrays[name + SCALE] = scale_O
        else:
            arrays[name] = weight
    return arrays


def dequantize(arrays: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return float32 matrices for those that `quantize` has made; everything else as it is.

    Raises:
        KeyError: an int8 matrix has no scales.
    """
    weights = dict(arrays)
    for name, weight_OI in arrays.items():
        if weight_OI.dtype == np.int8:
            weights[name] = weight_OI.astype(np.float32) * weights.pop(name + SCALE)[:, None]
    return weights
