"""Conversion of the parameters of Marian models, of releases and of Firefox, to the weights of
nmt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nmt.core import untrusted_files
from nmt.core.config import ModelConfig
from nmt.core.errors import CheckpointError
from nmt.models import marian_binary
from nmt.models.importers.common import MASKED, OTHER_MODEL, Vocabulary, select_rows
from nmt.models.marian_binary import OPTIONS, Item, Quantized
from nmt.models.marian_layout import (
    EMBEDDINGS,
    MULTIPLIER,
    OUTPUT_BIAS,
    OUTPUT_MULTIPLIER,
    Matrix,
    matrices,
    norms,
)
from nmt.text.tokenizer import BOS, PAD

SIZES = {
    "dim-emb": "dim",
    "transformer-heads": "heads",
    "transformer-dim-ffn": "ffn_dim",
    "enc-depth": "encoder_layers",
    "dec-depth": "decoder_layers",
}
"""Options of a model that state its size, with their names in nmt."""
OUTPUT_OF_INPUTS = "decoder_ff_logit_out_W"
"""Weight of an output layer that is stored like other matrices, and not like embeddings."""
TABLES = {
    "shared": (EMBEDDINGS,),
    "source": (f"encoder_{EMBEDDINGS}", EMBEDDINGS),
    "target": (f"decoder_{EMBEDDINGS}", EMBEDDINGS),
    "output": (f"{OUTPUT_OF_INPUTS}t", OUTPUT_OF_INPUTS, f"decoder_{EMBEDDINGS}", EMBEDDINGS),
}
"""The embeddings of nmt, and their names in Marian: the first that is in the file."""


def read_sizes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes of a model by their names in nmt.

    Raises:
        ValueError: an option is missing or out of range.
    """
    missing = SIZES.keys() - options.keys()
    if missing:
        raise ValueError(f"it has no option {min(missing)}")
    sizes = {name: options[name] for name in SIZES}
    untrusted_files.check(sizes, dict[str, untrusted_files.Size])
    return {SIZES[name]: size for name, size in sizes.items()}


class Converter:
    """Converts the items of a model to the weights of nmt, and collects the multipliers."""

    def __init__(
        self, items: Mapping[str, Item], config: ModelConfig, vocabulary: Vocabulary
    ) -> None:
        self.items = items
        self.unused = {name for name in items if not name.endswith(MULTIPLIER)} - {OPTIONS}
        self.config = config
        self.vocabulary = vocabulary
        self.weights: dict[str, Tensor] = {}
        self.multipliers: dict[str, NDArray[np.float32]] = {}
        """Of each matrix, as the native engine reads them; empty if the model is not calibrated."""

    def convert(self) -> dict[str, Tensor]:
        """Return the weights by the names of nmt.

        Raises:
            CheckpointError: the model has a parameter that is not supported.
            ValueError: a parameter is missing or damaged.
        """
        for name, marian_name in norms(self.config):
            self.weights[f"{name}.weight"] = self._vector(f"{marian_name}_scale")
            self.weights[f"{name}.bias"] = self._vector(f"{marian_name}_bias")
        for matrix in matrices(self.config):
            parts_OI = [self._weight(each).T for each in matrix.weights]
            if len({part_OI.shape[1] for part_OI in parts_OI}) > 1:
                names = " and ".join(matrix.weights)
                raise ValueError(f"the inputs of {names} have different widths")
            self.weights[f"{matrix.name}.weight"] = torch.from_numpy(np.concatenate(parts_OI))
            if matrix.biases:
                vectors = [self._vector(each) for each in matrix.biases]
                self.weights[f"{matrix.name}.bias"] = torch.cat(vectors)
            self._collect_multipliers(matrix)
        self._embeddings()
        if self.unused:
            raise CheckpointError(
                f"the parameter {min(self.unused)} of the model is not supported", OTHER_MODEL
            )
        num_matrices = sum(1 for _ in matrices(self.config)) + 1
        if len(self.multipliers) not in (0, num_matrices):
            raise ValueError("some matrices are in int8, and others in float32")
        return self.weights

    def _collect_multipliers(self, matrix: Matrix) -> None:
        """Keep the multipliers of a matrix, unless it is in float32."""
        quantized = []
        for name in matrix.weights:
            item = self._item(name)
            if not isinstance(item, Quantized):
                return
            quantized.append(item)
        inputs = {self._multiplier(f"{each}{MULTIPLIER}") for each in matrix.weights}
        if len(inputs) > 1:
            names = " and ".join(matrix.weights)
            raise ValueError(f"the inputs of {names} have different multipliers")
        outputs = [np.full(len(each.values), each.multiplier) for each in quantized]
        multipliers = np.concatenate([[*inputs], *outputs])
        self.multipliers[f"{matrix.name}.weight"] = multipliers.astype(np.float32)

    def _embeddings(self) -> None:
        roles = ["shared"] if self.config.tie_embeddings else ["source", "target", "output"]
        for role in roles:
            is_source = role == "source"
            rows_V = self.vocabulary.source_rows_V if is_source else self.vocabulary.target_rows_V
            name = next((each for each in TABLES[role] if each in self.items), TABLES[role][0])
            weight = self._weight(name)
            table = torch.from_numpy(weight.T if name == OUTPUT_OF_INPUTS else weight)
            self.weights[f"embeddings.{role}"] = select_rows(table, rows_V)
        self._output_bias(len(table))
        item = self._item(name)
        if isinstance(item, Quantized):
            output_name = OUTPUT_MULTIPLIER if role == "shared" else f"{name}{MULTIPLIER}"
            multipliers = np.full(1 + len(rows_V), item.multiplier, np.float32)
            multipliers[0] = self._multiplier(output_name)
            self.multipliers[f"embeddings.{role}"] = multipliers

    def _output_bias(self, num_embeddings: int) -> None:
        bias = self._vector(OUTPUT_BIAS)
        if len(bias) != num_embeddings:
            raise ValueError(f"{OUTPUT_BIAS} does not have a value for each embedding")
        rows_V = self.vocabulary.target_rows_V
        bias_V = select_rows(bias, rows_V)
        bias_V[rows_V < 0] = MASKED
        bias_V[[PAD, BOS]] = MASKED
        self.weights["output_bias_V"] = bias_V

    def _item(self, name: str) -> Item:
        if name not in self.items:
            raise ValueError(f"it has no {name}")
        self.unused.discard(name)
        return self.items[name]

    def _weight(self, name: str) -> NDArray[np.float32]:
        """Return a matrix in float32 as Marian has it: [inputs, outputs], or embeddings [V, D]."""
        item = self._item(name)
        if isinstance(item, Quantized):
            weight = item.dequantize()
            return weight if name.endswith(EMBEDDINGS) else weight.T
        weight = _finite(name, item)
        if weight.ndim != 2:
            raise ValueError(f"{name} is not a matrix")
        return weight

    def _vector(self, name: str) -> Tensor:
        vector = _finite(name, self._item(name))
        return torch.from_numpy(vector.flatten())

    def _multiplier(self, name: str) -> float:
        """Return a multiplier of activations; two vocabularies have one that is quantized."""
        item = self._item(name)
        if isinstance(item, Quantized):
            item = item.dequantize()
        if isinstance(item, bytes) or item.size != 1:
            raise ValueError(f"{name} is not a number")
        multiplier = float(item.item())
        marian_binary.check_multiplier(name, multiplier)
        return multiplier


def _finite(name: str, item: Item) -> NDArray[np.float32]:
    """Return an item in float32, after checking its type and its values."""
    if not isinstance(item, np.ndarray):
        raise ValueError(f"{name} has the wrong type")
    if not np.isfinite(item).all():
        raise ValueError(f"{name} has infinite or undefined values")
    return item
