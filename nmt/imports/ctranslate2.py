"""Import of encoder-decoder Transformers from the `model.bin` of CTranslate2.

The file has variables with names such as `encoder/layer_0/ffn/linear_0/weight`, and aliases of variables that are
equal. int8 and int16 matrices are multiplied by a scale. Every variable must be understood; otherwise the model is
rejected by the name of the variable. Position encodings are the sinusoids of nmt, or another table, which becomes a
learned encoding.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.config import ModelConfig, config_io
from nmt.data.tokenizer import BOS, Tokenizer, tokenizer_file
from nmt.errors import CheckpointError, ConfigError
from nmt.imports.common import (
    MASKED,
    RETRY,
    ImportedModel,
    Vocabulary,
    Weights,
    position_table,
    read_bytes,
    read_json,
    read_kept_data,
    select_rows,
)
from nmt.model.ctranslate2_names import LAYER
from nmt.model.positions.absolute import SINUSOIDS
from nmt.paths import sha256

MODEL = "model.bin"
VERSIONS, MAX_REVISION = range(4, 7), 7
"""Supported versions of the file format and latest revision of the names."""
TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
TOLERANCE = 5e-3
"""Rounding error of a table of sinusoids in bfloat16."""
NUM_POSITIONS = 1024
"""Number of positions if CTranslate2 computes them."""
DEFAULT_INT16_SCALE = 1000.0
"""Scale of int16 matrices in files without scales."""
ZERO = ""
"""A token that is not in the vocabulary, so that its embedding is zero."""
ROTARY = ("dim", "interleave", "base")
"""Attributes of rotary position encodings."""
UNUSED = ("alignment_layer", "alignment_heads", "embeddings_merge", "alibi_use_positive_positions", "scale_alibi")
"""Attributes without effect on the supported models."""


class Variables(Weights):
    """The variables of a file. It records which were used."""

    def __init__(self, file: Path, tensors: Mapping[str, Tensor]) -> None:
        super().__init__(file, tensors)
        self.used: set[str] = set()

    def __getitem__(self, name: str) -> Tensor:
        self.used.add(name)
        return super().__getitem__(name)

    def attribute(self, *names: str, default: float) -> float:
        """Return the first of these scalars that exists."""
        return next((self[name].item() for name in names if name in self), default)

    def weight(self, name: str) -> Tensor:
        """Return a variable in float32; dequantize it if necessary."""
        tensor, scale = self[name], f"{name}_scale"
        if tensor.dtype == torch.int8 or scale in self:
            return tensor.float() / self[scale].float().view(-1, *[1] * (tensor.ndim - 1))
        return tensor.float() / (DEFAULT_INT16_SCALE if tensor.dtype == torch.int16 else 1.0)

    def check(self, option: str, value: object, supported: object) -> None:
        """Raise a CheckpointError if an option of the model has an unsupported value."""
        if value != supported:
            raise CheckpointError(f"{option}={value} of {self.file} is not supported", "use another model")

    def check_all_used(self) -> None:
        """Raise a CheckpointError for variables that the conversion does not understand."""
        unknown = sorted(name for name in self.keys() - self.used if name.rpartition("/")[2] not in UNUSED)
        if unknown:
            raise CheckpointError(f"{unknown[0]} of {self.file} is not supported", "use another model")


@dataclass(frozen=True)
class CTranslate2Model:
    """The content of a directory of CTranslate2."""

    variables: Variables
    options: dict[str, Any]
    """Content of config.json; empty in old models."""
    vocabularies: tuple[dict[str, int], dict[str, int]]
    """Ids of the source and target tokens."""
    special: list[str]
    """Tokens for PAD, UNK, BOS (the start token of the decoder) and EOS."""


def read(directory: Path) -> ImportedModel:
    """Read a directory written by `nmt export --to ctranslate2`.

    Raises:
        CheckpointError: a file is missing or damaged, or the model is not supported.
    """
    if not (directory / "config.yaml").is_file():
        raise CheckpointError(
            f"{directory} is a model of CTranslate2 without its tokenizer",
            "import a package of Argos Translate, or an export of nmt",
        )
    model, tokenizer = read_model(directory), Tokenizer.load(tokenizer_file(directory))
    try:
        config = config_io.load(directory / "config.yaml")
    except ConfigError as error:
        raise CheckpointError(f"cannot load the config of the export: {error.message}", RETRY) from None
    pieces = {piece: i for i, piece in enumerate(tokenizer.ids_to_pieces(range(len(tokenizer))))}
    if model.vocabularies != (pieces, pieces):
        raise CheckpointError(f"{tokenizer_file(directory)} is not the tokenizer of the model", RETRY)
    rows = torch.arange(len(tokenizer))
    read_config, weights = convert(model, Vocabulary(tokenizer, rows, rows))
    rates = {name: getattr(config.model, name) for name in ("dropout", "attention_dropout", "activation_dropout")}
    config = replace(config, model=replace(read_config, **rates))
    return ImportedModel(config, tokenizer, weights, sha256(directory / MODEL), read_kept_data(directory))


def read_model(directory: Path) -> CTranslate2Model:
    """Read `model.bin`, `config.json` and the vocabularies.

    Raises:
        CheckpointError: a file is missing or damaged, or of an unsupported version.
    """
    variables = _read_variables(directory / MODEL)
    options = read_json(directory / "config.json", default={})
    shared = [directory / f"shared_vocabulary.{suffix}" for suffix in ("json", "txt")]
    separate = [[directory / f"{side}_vocabulary.{s}" for s in ("json", "txt")] for side in ("source", "target")]
    files = [shared, shared] if any(path.exists() for path in shared) else separate
    source, target = (_read_vocabulary(next((p for p in paths if p.exists()), paths[0])) for paths in files)
    end = str(options.get("eos_token", "</s>"))
    start = options.get("decoder_start_token", "<s>") if variables.attribute("with_target_bos", default=1) else end
    if variables.attribute("decoder/start_from_zero_embedding", default=0):
        start = ZERO
    elif start not in target or end not in target:
        raise CheckpointError(f"the target vocabulary of {variables.file} lacks {start} or {end}", RETRY)
    pad = next((token for token in ("<blank>", "<pad>") if token in target), ZERO)
    special = [pad, str(options.get("unk_token", "<unk>")), start, end]
    return CTranslate2Model(variables, options, (source, target), special)


def convert(model: CTranslate2Model, vocabulary: Vocabulary) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return the architecture, and the weights by the names of nmt.

    Raises:
        CheckpointError: the model is damaged or not supported.
    """
    variables = model.variables
    try:
        config, weights = _convert(model, vocabulary)
    except (RuntimeError, IndexError, ValueError) as error:  # a shape
        reason = str(error).splitlines()[0]
        raise CheckpointError(f"{variables.file} does not fit its vocabulary or is damaged: {reason}", RETRY) from None
    variables.check_all_used()
    return config, weights


def _convert(model: CTranslate2Model, vocabulary: Vocabulary) -> tuple[ModelConfig, dict[str, Tensor]]:
    variables, options = model.variables, model.options
    variables.check("layer_norm_epsilon", options.get("layer_norm_epsilon") or 1e-5, 1e-5)
    has_source_bos = variables.attribute("with_source_bos", default=0)
    variables.check("add_source_bos", bool(options.get("add_source_bos", has_source_bos)), False)
    has_source_eos = variables.attribute("with_source_eos", default=0)
    for name in ("encoder/multi_query_attention", "decoder/alibi"):
        variables.check(name, variables.attribute(name, default=0), 0)
    tables, bias_V = _embeddings(model, vocabulary)
    weights = {f"embeddings.{name}": table for name, table in tables.items()}
    dim = next(iter(tables.values())).shape[1]
    values = []
    for name, default in (("num_heads", 8), ("pre_norm", 1), ("activation", 0)):
        encoder, decoder = (int(variables.attribute(f"{s}/{name}", name, default=default)) for s in LAYER)
        variables.check(f"decoder/{name}", decoder, encoder)
        values.append(encoder)
    heads, pre_norm, activation = values
    variables.check("activation", activation, activation if activation in ACTIVATIONS else None)
    layers = dict.fromkeys(LAYER, 0)
    for stack, parts in LAYER.items():
        while f"{stack}/layer_{layers[stack]}/ffn/linear_0/weight" in variables:
            scope = f"layer_{layers[stack]}"
            for name, part in parts.items():
                weights |= _affine(variables, f"{stack}.{layers[stack]}.{name}", f"{stack}/{scope}/{part}")
            layers[stack] += 1
        if pre_norm:
            weights |= _affine(variables, f"{stack}_norm", f"{stack}/layer_norm")
    encoding, position_weights = _positions(variables, layers, dim, heads)
    weights |= position_weights | ({} if bias_V is None else {"output_bias_V": bias_V})
    config = ModelConfig(
        dim=dim, heads=heads, ffn_dim=len(variables["encoder/layer_0/ffn/linear_0/weight"]),
        encoder_layers=layers["encoder"], decoder_layers=layers["decoder"],
        norm_position="pre" if pre_norm else "post", activation=ACTIVATIONS[activation], position_encoding=encoding,
        tie_embeddings="shared" in tables, output_bias=bias_V is not None,
        source_eos=bool(options.get("add_source_eos", has_source_eos)),
    )  # fmt: skip
    return config, weights


def _affine(variables: Variables, name: str, scope: str) -> dict[str, Tensor]:
    """Return weight and bias of a linear or normalization layer."""
    if f"{scope}/gamma" in variables:
        variables.check(scope, "LayerNorm" if f"{scope}/beta" in variables else "RMSNorm", "LayerNorm")
        return {f"{name}.weight": variables.weight(f"{scope}/gamma"), f"{name}.bias": variables.weight(f"{scope}/beta")}
    weight = variables.weight(f"{scope}/weight")
    bias = variables.weight(f"{scope}/bias") if f"{scope}/bias" in variables else torch.zeros(len(weight))
    return {f"{name}.weight": weight, f"{name}.bias": bias}


def _embeddings(model: CTranslate2Model, vocabulary: Vocabulary) -> tuple[dict[str, Tensor], Tensor | None]:
    """Return the embeddings [V, D] by their names in nmt, `shared` or `source`, `target` and `output`, and the bias.

    The input embeddings are scaled so that nmt's factor √D gives the scale of the model.
    """
    variables, (source_ids, target_ids) = model.variables, model.vocabularies
    rows = {"source": vocabulary.source_rows_V, "target": vocabulary.target_rows_V}
    tables = {}
    for stack, role, ids in (("encoder", "source", source_ids), ("decoder", "target", target_ids)):
        names = (f"{stack}/embeddings/weight", f"{stack}/embeddings_0/weight")
        table_VD = variables.weight(next((name for name in names if name in variables), names[0]))
        if len(table_VD) != len(ids):
            raise ValueError(f"{len(table_VD)} embeddings for {len(ids)} tokens")
        flags = (f"{stack}/scale_embeddings", f"{stack}/embeddings/multiply_by_sqrt_depth")
        flag = next((variables[name] for name in flags if name in variables), torch.tensor(1, dtype=torch.int8))
        sqrt_dim = math.sqrt(table_VD.shape[1])
        scale = flag.item() if flag.dtype != torch.int8 else sqrt_dim if flag.item() else 1.0
        tables[role] = select_rows(table_VD, rows[role]) * (scale / sqrt_dim)
    output_VD = variables.weight("decoder/projection/weight")
    bias_V = variables.weight("decoder/projection/bias") if "decoder/projection/bias" in variables else None
    output_rows_V = rows["target"].clone()
    if (output_rows_V == output_rows_V[BOS]).sum() > 1:  # decoding starts from the token of another id
        output_rows_V[BOS] = -1
    is_missing_V = output_rows_V < 0
    tables["output"] = select_rows(output_VD, rows["target"])
    if bias_V is not None or is_missing_V.any():
        bias_V = select_rows(torch.zeros(len(output_VD)) if bias_V is None else bias_V, output_rows_V)
        bias_V[is_missing_V] = MASKED
    if all(torch.equal(tables[role], tables["output"]) for role in rows):
        return {"shared": tables["output"]}, bias_V
    return tables, bias_V


def _positions(variables: Variables, layers: dict[str, int], dim: int, heads: int) -> tuple[str, dict[str, Tensor]]:
    """Return the spec string of the position encoding, and its weights."""
    names = {stack: f"{stack}/position_encodings/encodings" for stack in LAYER}
    if "encoder/layer_0/self_attention/rotary_dim" in variables:
        rotary = {
            tuple(variables[f"{stack}/layer_{i}/self_attention/rotary_{name}"].item() for name in ROTARY)
            for stack, count in layers.items() for i in range(count)
        }  # fmt: skip
        if names["encoder"] not in variables or variables[names["encoder"]].any() or names["decoder"] in variables:
            variables.check("rotary", "with other encodings", None)
        (width, is_interleaved, base), *others = rotary
        variables.check("rotary_dim", width or dim // heads, dim // heads)
        variables.check("rotary_interleave", is_interleaved, 1)
        variables.check("other rotary layers", others, [])
        return f"rotary(base={base})", {}
    tables = [
        variables.weight(name).view(-1, dim) if name in variables else position_table(NUM_POSITIONS, dim, first=1)
        for name in names.values()
    ]
    for name, formula in SINUSOIDS.items():
        if all(torch.allclose(table, formula(len(table), dim), atol=TOLERANCE) for table in tables):
            return name, {}
    length = min(map(len, tables))
    weights = {f"{side}_positions.table_ND": t[:length] for side, t in zip(("source", "target"), tables, strict=True)}
    return f"learned(max_positions={length})", weights


def _read_vocabulary(path: Path) -> dict[str, int]:
    try:
        text = read_bytes(path).decode("utf-8")
        tokens = json.loads(text) if path.suffix == ".json" else text.removesuffix("\n").split("\n")
        ids = {str(token): i for i, token in enumerate(tokens)}
    except (ValueError, TypeError):
        tokens, ids = [], {}
    if not ids or len(ids) != len(tokens):
        raise CheckpointError(f"{path} is not a vocabulary, or it has repeated tokens", RETRY)
    return ids


def _read_variables(file: Path) -> Variables:
    reader = _Reader(read_bytes(file))
    try:
        version, name = reader.integer(4), ""
        if version in VERSIONS:
            name, revision = reader.string(), reader.integer(4)
        if version not in VERSIONS or not 2 <= revision <= MAX_REVISION:
            raise CheckpointError(
                f"{file} has an unsupported version", f"CTranslate2 formats {VERSIONS[0]} to {VERSIONS[-1]} are read"
            )
        if name != "TransformerSpec":
            raise CheckpointError(f"{file} has a model of type '{name}'", "import an encoder-decoder Transformer")
        tensors = dict(reader.variable() for _ in range(reader.integer(4)))
        for _ in range(reader.integer(4)):
            alias, target = reader.string(), reader.string()
            tensors[alias] = tensors[target]
            if f"{target}_scale" in tensors:
                tensors[f"{alias}_scale"] = tensors[f"{target}_scale"]
        if reader.position != len(reader.content):
            raise ValueError("trailing bytes")
    except (ValueError, LookupError, RuntimeError):
        raise CheckpointError(f"{file} is damaged", RETRY) from None
    return Variables(file, tensors)


class _Reader:
    """Reads little-endian values one after the other."""

    def __init__(self, content: bytes) -> None:
        self.content, self.position = content, 0

    def integer(self, size: int) -> int:
        """Read an integer of some bytes."""
        return int.from_bytes(self.bytes(size), "little")

    def bytes(self, count: int) -> bytes:
        """Read bytes."""
        start, self.position = self.position, self.position + count
        if self.position > len(self.content):
            raise ValueError("the file is too short")
        return self.content[start : self.position]

    def string(self) -> str:
        """Read a string with a terminating zero, preceded by its length."""
        return self.bytes(self.integer(2)).rstrip(b"\0").decode("utf-8")

    def variable(self) -> tuple[str, Tensor]:
        """Read the name and the values of a variable."""
        name = self.string()
        shape = [self.integer(4) for _ in range(self.integer(1))]
        dtype = TYPES[self.integer(1)]
        content = bytearray(self.bytes(self.integer(4)))
        return name, torch.frombuffer(content, dtype=dtype).view(shape)
