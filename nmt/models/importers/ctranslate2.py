"""Import of encoder-decoder Transformers from the `model.bin` of CTranslate2.

The file has variables with names such as `encoder/layer_0/ffn/linear_0/weight`, and aliases of
variables that are equal. int8 and int16 matrices are multiplied by a scale. Every variable must be
understood; otherwise the model is rejected by the name of the variable. Position encodings are the
sinusoids of nmt, or another table, which becomes a learned encoding.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor

from nmt.core import untrusted_files
from nmt.core.config import ModelConfig, config_io
from nmt.core.errors import CheckpointError, ConfigError
from nmt.core.paths import sha256
from nmt.core.untrusted_files import Number
from nmt.model.ctranslate2_names import LAYER
from nmt.model.positions.absolute import SINUSOIDS
from nmt.models.importers.common import (
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
from nmt.text.tokenizer import BOS
from nmt.text.tokenizers import load_tokenizer, tokenizer_file

MODEL = "model.bin"
VERSIONS, MAX_REVISION = range(4, 7), 7
"""Supported versions of the file format and latest revision of the names."""
TYPES = (torch.float32, torch.int8, torch.int16, torch.int32, torch.float16, torch.bfloat16)
ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
TOLERANCE = 5e-3
"""Rounding error of a table of sinusoids in bfloat16."""
MIN_DIM = 4
"""Minimum dimension of the formula of `position_table`."""
POSITIONS = "position_encodings/encodings"
NUM_POSITIONS = 1024
"""Number of positions if CTranslate2 computes them."""
DEFAULT_INT16_SCALE = 1000.0
"""Scale of int16 matrices in files without scales."""
ZERO = ""
"""A token that is not in the vocabulary, so that its embedding is zero."""
UNUSED = (
    "alignment_layer",
    "alignment_heads",
    "embeddings_merge",
    "alibi_use_positive_positions",
    "scale_alibi",
)
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
        for name in names:
            if name in self:
                return self[name].item()
        return default

    def weight(self, name: str) -> Tensor:
        """Return a variable in float32; dequantize it if necessary."""
        tensor = self[name]
        scale_name = f"{name}_scale"
        if tensor.dtype == torch.int8 or scale_name in self:
            scale = self[scale_name].float()
            if scale.numel() not in (1, len(tensor)):  # another one would expand the tensor
                raise ValueError(f"{scale_name} has {scale.numel()} numbers")
            other_dimensions = [1] * (tensor.ndim - 1)
            return tensor.float() / scale.view(-1, *other_dimensions)
        return tensor.float() / (DEFAULT_INT16_SCALE if tensor.dtype == torch.int16 else 1.0)

    def optional_weight(self, name: str) -> Tensor | None:
        """Return a variable in float32; None: it does not exist."""
        return self.weight(name) if name in self else None

    def check(self, option: str, value: object, supported: object) -> None:
        """Raise a CheckpointError if an option of the model has an unsupported value."""
        if value != supported:
            raise CheckpointError(
                f"{option}={value} of {self.file} is not supported", "use another model"
            )

    def check_all_used(self) -> None:
        """Raise a CheckpointError for variables that the conversion does not understand."""
        for name in sorted(self.keys() - self.used):
            if name.rpartition("/")[2] not in UNUSED:
                raise CheckpointError(
                    f"{name} of {self.file} is not supported", "use another model"
                )


class Options(TypedDict, total=False):
    """The content of config.json that an import reads."""

    unk_token: str
    eos_token: str
    decoder_start_token: str
    layer_norm_epsilon: Number | None
    add_source_bos: bool
    add_source_eos: bool


@dataclass(frozen=True)
class CTranslate2Model:
    """The content of a directory of CTranslate2."""

    variables: Variables
    options: Options
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
    model = read_model(directory)
    tokenizer = load_tokenizer(tokenizer_file(directory))
    try:
        config = config_io.load(directory / "config.yaml")
    except ConfigError as error:
        raise CheckpointError(
            f"cannot load the config of the export: {error.message}", RETRY
        ) from None
    ids = range(len(tokenizer))
    pieces = dict(zip(tokenizer.ids_to_pieces(ids), ids, strict=True))
    if model.vocabularies != (pieces, pieces):
        raise CheckpointError(
            f"{tokenizer_file(directory)} is not the tokenizer of the model", RETRY
        )
    rows = torch.arange(len(tokenizer))
    read_config, weights = convert(model, Vocabulary(tokenizer, rows, rows))
    trained = config.model
    network = replace(
        read_config,
        dropout=trained.dropout,
        attention_dropout=trained.attention_dropout,
        activation_dropout=trained.activation_dropout,
    )
    config = replace(config, model=network)
    return ImportedModel(
        config, tokenizer, weights, sha256(directory / MODEL), read_kept_data(directory)
    )


def read_model(directory: Path) -> CTranslate2Model:
    """Read `model.bin`, `config.json` and the vocabularies.

    Raises:
        CheckpointError: a file is missing or damaged, or of an unsupported version.
    """
    variables = _read_variables(directory / MODEL)
    options: Options = read_json(directory / "config.json", Options, default={})
    if any(path.exists() for path in _vocabulary_files(directory, "shared")):
        source = target = _read_vocabulary(directory, "shared")
    else:
        source = _read_vocabulary(directory, "source")
        target = _read_vocabulary(directory, "target")
    end = options.get("eos_token", "</s>")
    start = end
    if variables.attribute("with_target_bos", default=1):
        start = options.get("decoder_start_token", "<s>")
    if variables.attribute("decoder/start_from_zero_embedding", default=0):
        start = ZERO
    elif start not in target or end not in target:
        raise CheckpointError(
            f"the target vocabulary of {variables.file} lacks {start} or {end}", RETRY
        )
    pad = ZERO
    for token in ("<pad>", "<blank>"):
        if token in target:
            pad = token
    unknown = options.get("unk_token", "<unk>")
    special = [pad, unknown, start, end]
    return CTranslate2Model(variables, options, (source, target), special)


def convert(
    model: CTranslate2Model, vocabulary: Vocabulary
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return the architecture, and the weights by the names of nmt.

    Raises:
        CheckpointError: the model is damaged or not supported.
    """
    variables = model.variables
    try:
        config, weights = _convert(model, vocabulary)
    except (RuntimeError, LookupError, ValueError, ArithmeticError, TypeError) as error:  # a shape
        reason = str(error).split("\n")[0]
        raise CheckpointError(
            f"{variables.file} does not fit its vocabulary or is damaged: {reason}", RETRY
        ) from None
    variables.check_all_used()
    return config, weights


def _convert(
    model: CTranslate2Model, vocabulary: Vocabulary
) -> tuple[ModelConfig, dict[str, Tensor]]:
    variables = model.variables
    has_source_eos = _check_options(model)
    tables, bias_V = _embeddings(model, vocabulary)
    weights = {f"embeddings.{name}": table_VD for name, table_VD in tables.items()}
    if bias_V is not None:
        weights["output_bias_V"] = bias_V
    dim = next(iter(tables.values())).shape[1]
    if dim < MIN_DIM:
        raise ValueError(f"embeddings of {dim} dimensions")
    heads = _common_attribute(variables, "num_heads", default=8)
    pre_norm = _common_attribute(variables, "pre_norm", default=1)
    num_layers = {stack: _count_layers(variables, stack) for stack in LAYER}
    for stack in LAYER:
        weights |= _convert_stack(variables, stack, num_layers[stack], has_last_norm=bool(pre_norm))
    encoding, position_weights = _positions(variables, num_layers, dim, heads)
    config = ModelConfig(
        dim=dim,
        heads=heads,
        ffn_dim=len(variables["encoder/layer_0/ffn/linear_0/weight"]),
        encoder_layers=num_layers["encoder"],
        decoder_layers=num_layers["decoder"],
        norm_position="pre" if pre_norm else "post",
        activation=_activation(variables),
        position_encoding=encoding,
        tie_embeddings="shared" in tables,
        output_bias=bias_V is not None,
        source_eos=has_source_eos,
    )
    return config, weights | position_weights


def _check_options(model: CTranslate2Model) -> bool:
    """Check that the options of a model are supported, and return whether its sources end with
    EOS."""
    variables = model.variables
    options = model.options
    variables.check("layer_norm_epsilon", options.get("layer_norm_epsilon") or 1e-5, 1e-5)
    has_source_bos = variables.attribute("with_source_bos", default=0)
    variables.check("add_source_bos", bool(options.get("add_source_bos", has_source_bos)), False)
    for name in ("encoder/multi_query_attention", "decoder/alibi"):
        variables.check(name, variables.attribute(name, default=0), 0)
    has_source_eos = variables.attribute("with_source_eos", default=0)
    return bool(options.get("add_source_eos", has_source_eos))


def _common_attribute(variables: Variables, name: str, default: int) -> int:
    """Return an attribute that encoder and decoder must have in common."""
    encoder = variables.attribute(f"encoder/{name}", name, default=default)
    decoder = variables.attribute(f"decoder/{name}", name, default=default)
    variables.check(f"decoder/{name}", decoder, encoder)
    return int(encoder)


def _activation(variables: Variables) -> str:
    activation = _common_attribute(variables, "activation", default=0)
    if activation not in ACTIVATIONS:
        variables.check("activation", activation, None)
    return ACTIVATIONS[activation]


def _count_layers(variables: Variables, stack: str) -> int:
    for layer in itertools.count():
        if f"{stack}/layer_{layer}/ffn/linear_0/weight" not in variables:
            break
    return layer


def _convert_stack(
    variables: Variables, stack: str, num_layers: int, *, has_last_norm: bool
) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = {}
    for layer in range(num_layers):
        for name, part in LAYER[stack].items():
            scope = f"{stack}/layer_{layer}/{part}"
            weights |= _affine(variables, f"{stack}.{layer}.{name}", scope)
    if has_last_norm:
        weights |= _affine(variables, f"{stack}_norm", f"{stack}/layer_norm")
    return weights


def _affine(variables: Variables, name: str, scope: str) -> dict[str, Tensor]:
    """Return weight and bias of a linear or normalization layer."""
    if f"{scope}/gamma" in variables:
        kind = "LayerNorm" if f"{scope}/beta" in variables else "RMSNorm"
        variables.check(scope, kind, "LayerNorm")
        weight = variables.weight(f"{scope}/gamma")
        bias = variables.weight(f"{scope}/beta")
    else:
        weight = variables.weight(f"{scope}/weight")
        stored_bias = variables.optional_weight(f"{scope}/bias")
        bias = torch.zeros(len(weight)) if stored_bias is None else stored_bias
    return {f"{name}.weight": weight, f"{name}.bias": bias}


def _embeddings(
    model: CTranslate2Model, vocabulary: Vocabulary
) -> tuple[dict[str, Tensor], Tensor | None]:
    """Return the embeddings [V, D] by their names in nmt, `shared` or `source`, `target` and
    `output`, and the bias.

    The input embeddings are scaled so that nmt's factor √D gives the scale of the model.
    """
    source_ids, target_ids = model.vocabularies
    target_rows_V = vocabulary.target_rows_V
    source_VD = _input_embeddings(model.variables, "encoder", source_ids)
    target_VD = _input_embeddings(model.variables, "decoder", target_ids)
    output_VD = model.variables.weight("decoder/projection/weight")
    tables = {
        "source": select_rows(source_VD, vocabulary.source_rows_V),
        "target": select_rows(target_VD, target_rows_V),
        "output": select_rows(output_VD, target_rows_V),
    }
    bias_V = _output_bias(model.variables, len(output_VD), target_rows_V)
    is_shared = torch.equal(tables["source"], tables["output"]) and torch.equal(
        tables["target"], tables["output"]
    )
    return {"shared": tables["output"]} if is_shared else tables, bias_V


def _input_embeddings(variables: Variables, stack: str, ids: Mapping[str, int]) -> Tensor:
    """Return the embeddings of one side with the scale of nmt."""
    table_VD = variables.optional_weight(f"{stack}/embeddings_0/weight")
    if table_VD is None:
        table_VD = variables.weight(f"{stack}/embeddings/weight")
    if len(table_VD) != len(ids):
        raise ValueError(f"{len(table_VD)} embeddings for {len(ids)} tokens")
    sqrt_dim = math.sqrt(table_VD.shape[1])
    scale = sqrt_dim
    for name in (f"{stack}/scale_embeddings", f"{stack}/embeddings/multiply_by_sqrt_depth"):
        if name in variables:
            flag = variables[name]
            is_number = flag.dtype != torch.int8
            if is_number or not flag.item():
                scale = flag.item() if is_number else 1.0
            break
    return table_VD * (scale / sqrt_dim)


def _output_bias(variables: Variables, num_rows: int, target_rows_V: Tensor) -> Tensor | None:
    """Return the bias of the output projection by the ids of nmt; None: there is none, and all
    tokens exist."""
    rows_V = target_rows_V.clone()
    if (rows_V == rows_V[BOS]).sum() > 1:  # decoding starts from the token of another id
        rows_V[BOS] = -1
    is_missing_V = rows_V < 0
    stored_bias = variables.optional_weight("decoder/projection/bias")
    if stored_bias is None and not is_missing_V.any():
        return None
    if stored_bias is None:
        stored_bias = torch.zeros(num_rows)
    bias_V = select_rows(stored_bias, rows_V)
    bias_V[is_missing_V] = MASKED
    return bias_V


def _positions(
    variables: Variables, num_layers: dict[str, int], dim: int, heads: int
) -> tuple[str, dict[str, Tensor]]:
    """Return the spec string of the position encoding, and its weights."""
    if "encoder/layer_0/self_attention/rotary_dim" in variables:
        return _rotary_positions(variables, num_layers, dim // heads), {}
    tables = {}
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        table_ND = variables.optional_weight(f"{stack}/{POSITIONS}")
        if table_ND is None:
            table_ND = position_table(NUM_POSITIONS, dim, first=1)
        tables[side] = table_ND.view(-1, dim)
    for name, formula in SINUSOIDS.items():
        differences = []
        for table_ND in tables.values():
            difference_ND = table_ND - formula(len(table_ND), dim)
            differences.append(difference_ND.abs().max())
        if max(differences) < TOLERANCE:
            return name, {}
    length = min(map(len, tables.values()))
    weights = {}
    for side, table_ND in tables.items():
        weights[f"{side}_positions.table_ND"] = table_ND[:length]
    return f"learned(max_positions={length})", weights


def _rotary_positions(variables: Variables, num_layers: dict[str, int], head_dim: int) -> str:
    """Return the spec string of rotary position encodings, which all layers must have in common."""
    encoder_table, decoder_table = f"encoder/{POSITIONS}", f"decoder/{POSITIONS}"
    is_empty = encoder_table in variables and not variables[encoder_table].any()
    if not is_empty or decoder_table in variables:
        variables.check("rotary", "with other encodings", None)
    values = set()
    for stack, count in num_layers.items():
        for layer in range(count):
            scope = f"{stack}/layer_{layer}/self_attention"
            width = variables[f"{scope}/rotary_dim"].item()
            is_interleaved = variables[f"{scope}/rotary_interleave"].item()
            base = variables[f"{scope}/rotary_base"].item()
            values.add((width, is_interleaved, base))
    (width, is_interleaved, base), *others = values
    variables.check("rotary_dim", width or head_dim, head_dim)
    variables.check("rotary_interleave", is_interleaved, 1)
    variables.check("other rotary layers", others, [])
    return f"rotary(base={base})"


def _vocabulary_files(directory: Path, side: str) -> list[Path]:
    """Return the files that may have the source, target or shared vocabulary."""
    return [directory / f"{side}_vocabulary.json", directory / f"{side}_vocabulary.txt"]


def _read_vocabulary(directory: Path, side: str) -> dict[str, int]:
    """Return the ids of the tokens of the source, target or shared vocabulary."""
    json_file, text_file = _vocabulary_files(directory, side)
    path = text_file if text_file.exists() and not json_file.exists() else json_file
    content = read_bytes(path)
    try:
        if path.suffix == ".json":
            tokens = untrusted_files.parse_json(content)
        else:
            tokens = content.decode("utf-8").removesuffix("\n").split("\n")
        untrusted_files.check(tokens, list[str])
    except ValueError:
        tokens = []
    ids = {token: i for i, token in enumerate(tokens)}
    if not ids or len(ids) != len(tokens):
        raise CheckpointError(f"{path} is not a vocabulary, or it has repeated tokens", RETRY)
    return ids


def _read_variables(file: Path) -> Variables:
    with untrusted_files.errors_of(file, RETRY):
        untrusted_files.check_regular(file)
        reader = _Reader(file.read_bytes())
    try:
        _check_version(file, reader)
        tensors = {}
        num_variables = reader.integer(4)
        for _ in range(num_variables):
            name, tensor = reader.variable()
            tensors[name] = tensor
        num_aliases = reader.integer(4)
        for _ in range(num_aliases):
            alias = reader.string()
            target = reader.string()
            tensors[alias] = tensors[target]
            if f"{target}_scale" in tensors:
                tensors[f"{alias}_scale"] = tensors[f"{target}_scale"]
        if reader.position != len(reader.content):
            raise ValueError("trailing bytes")
    except (ValueError, LookupError, RuntimeError):
        raise CheckpointError(f"{file} is damaged", RETRY) from None
    return Variables(file, tensors)


def _check_version(file: Path, reader: _Reader) -> None:
    """Read the version of the format, the type of the model and the revision of its names, and
    check them."""
    version = reader.integer(4)
    if version in VERSIONS:
        name = reader.string()
        revision = reader.integer(4)
    if version not in VERSIONS or not 2 <= revision <= MAX_REVISION:
        raise CheckpointError(
            f"{file} has an unsupported version",
            f"CTranslate2 formats {VERSIONS[0]} to {VERSIONS[-1]} are read",
        )
    if name != "TransformerSpec":
        raise CheckpointError(
            f"{file} has a model of type '{name}'", "import an encoder-decoder Transformer"
        )


class _Reader:
    """Reads little-endian values one after the other."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.position = 0

    def integer(self, size: int) -> int:
        """Read an integer of some bytes."""
        return int.from_bytes(self.bytes(size), "little")

    def bytes(self, count: int) -> bytes:
        """Read bytes."""
        start = self.position
        self.position += count
        if self.position > len(self.content):
            raise ValueError("the file is too short")
        return self.content[start : self.position]

    def string(self) -> str:
        """Read a string with a terminating zero, preceded by its length."""
        return self.bytes(self.integer(2)).rstrip(b"\0").decode("utf-8")

    def variable(self) -> tuple[str, Tensor]:
        """Read the name and the values of a variable."""
        name = self.string()
        num_dimensions = self.integer(1)
        shape = [self.integer(4) for _ in range(num_dimensions)]
        dtype = TYPES[self.integer(1)]
        num_bytes = self.integer(4)
        content = bytearray(self.bytes(num_bytes))
        return name, torch.frombuffer(content, dtype=dtype).view(shape)
