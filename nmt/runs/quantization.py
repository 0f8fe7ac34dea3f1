"""8-bit quantization of stored weights.

Each row of a matrix, which computes one output, has a scale: the number q represents q · scale, and
127 represents the largest magnitude of the row. Biases and norms, about a thousandth of a model,
are not quantized.

Shape suffixes: O rows (outputs), I columns (inputs).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.core import untrusted_files
from nmt.core.paths import write_text

SCALE = ".scale"
"""Suffix appended to the name of a quantized matrix to name the tensor of its scales, [O]."""
MULTIPLIERS = "multipliers.json"
"""File of a calibrated checkpoint: the multipliers of each matrix."""
MAX_OUTPUTS = 1 << 24
Arrays = dict[str, NDArray[Any]]


def quantize(weights: Mapping[str, NDArray[Any]]) -> Arrays:
    """Return every matrix as int8, with float32 scales as an additional tensor; other tensors are
    unchanged."""
    arrays = {}
    smallest = np.finfo(np.float32).tiny
    for name, weight in weights.items():
        if weight.ndim != 2:
            arrays[name] = weight
            continue
        magnitude_OI = np.abs(weight)
        max_O = magnitude_OI.max(1)
        max_O = max_O.clip(min=smallest)
        scale_O = max_O.astype(np.float32) / np.float32(127)
        scaled_OI = weight / scale_O[:, None]
        quantized_OI = np.rint(scaled_OI)
        arrays[name] = quantized_OI.astype(np.int8)
        arrays[name + SCALE] = scale_O
    return arrays


def quantize_calibrated(
    weights: Mapping[str, NDArray[Any]], multipliers: Mapping[str, NDArray[np.float32]]
) -> Arrays:
    """Return the matrices of a calibrated model as int8, with the scales of its own integers;
    `dequantize` restores them exactly.

    Args:
        weights: the parameters in float32.
        multipliers: see `write_multipliers`.
    """
    arrays = dict(weights)
    for name, multiplier_M in multipliers.items():
        multiplier_O = multiplier_M[1:]
        quantized_OI = np.rint(weights[name] * multiplier_O[:, None])
        arrays[name] = quantized_OI.astype(np.int8)
        arrays[name + SCALE] = np.float32(1) / multiplier_O
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
        is_matrix = weight.ndim == 2
        is_fitting = scale_O.shape == weight.shape[:1]
        is_float = scale_O.dtype == np.float32
        if not (is_matrix and is_fitting and is_float):
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
    num_values = sum(arrays[name].size for name in scales_by_name)
    block = np.empty(num_values, np.float32)
    for name, scale_O in scales_by_name.items():
        del weights[name + SCALE]
        quantized_OI = arrays[name]
        size = quantized_OI.size
        values = block[:size]
        weight_OI = values.reshape(quantized_OI.shape)
        np.multiply(quantized_OI, scale_O[:, None], out=weight_OI)
        weights[name] = weight_OI
        block = block[size:]
    return weights


def write_multipliers(checkpoint: Path, multipliers: Mapping[str, NDArray[np.float32]]) -> None:
    """Write the multipliers of a calibrated model into its checkpoint.

    Args:
        checkpoint: the directory.
        multipliers: of each matrix, [1 + O]: of the input, then of the weights of each output. Many
            outputs have the same one, so the file has runs: `[[1, 12.7], [512, 204.3]]`.
    """
    content = {}
    for name, multiplier_M in multipliers.items():
        runs = []
        for value, group in groupby(multiplier_M.tolist()):
            count = len(list(group))
            runs.append([count, value])
        content[name] = runs
    text = json.dumps(content, indent=1)
    write_text(checkpoint / MULTIPLIERS, f"{text}\n")


def is_calibrated(checkpoint: Path) -> bool:
    """Return whether a checkpoint has multipliers."""
    return (checkpoint / MULTIPLIERS).exists()


def read_multipliers(checkpoint: Path) -> dict[str, NDArray[np.float32]] | None:
    """Read the multipliers of a checkpoint; None: it is not calibrated.

    Raises:
        CheckpointError: the file is damaged.
    """
    if not is_calibrated(checkpoint):
        return None
    path = checkpoint / MULTIPLIERS
    content = untrusted_files.read_json(path, dict[str, list[Any]], "import the model again")
    with untrusted_files.errors_of(path, "import the model again"):
        return {name: _expanded(runs) for name, runs in content.items()}


def _expanded(runs: list[Any]) -> NDArray[np.float32]:
    untrusted_files.check(runs, list[list[untrusted_files.Number]])
    parts = []
    for run in runs:
        if len(run) != 2:
            raise ValueError("it has a damaged multiplier")
        count, value = run
        if value <= 0 or not 0 <= count <= MAX_OUTPUTS:
            raise ValueError("it has a damaged multiplier")
        part = np.full(int(count), value, np.float32)
        parts.append(part)
    return np.concatenate(parts)
