"""The native engine: models packed for the library of `engine.c`. It does not need PyTorch.

Shape suffixes: B sentences, S source tokens, R rows (partial hypotheses), K best tokens, P gathered
tokens, X banned tokens, V vocabulary, I inputs and O outputs of a matrix, M distances or buckets of
distances, H heads.
"""

from __future__ import annotations

import ctypes
import functools
import math
import os
import subprocess
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import POINTER, c_double, c_int, c_int64, c_void_p
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.core import fastest
from nmt.core.config import ModelConfig
from nmt.core.console import log
from nmt.core.registry import parse
from nmt.engines import Sentences, TokenScores, token_scores
from nmt.engines.engine_library import failure_reason, find_library, library_version
from nmt.model.position_formulas import (
    LEARNED_POSITIONS,
    ROTARY_BASE,
    T5_BUCKETS,
    T5_DISTANCE_LIMIT,
    T5_MAX_DISTANCE,
    alibi_slopes,
    check_positions,
    t5_buckets,
)
from nmt.runs import quantization
from nmt.search.request import Floats, Ints, StepRequest, StepResult
from nmt.text.tokenizer import BOS, EOS, encoder_input

# The next four tuples have the order of the enums in engine.c.
TYPES = ("fp32", "bf16", "int8")
ACTIVATION_NAMES = ("relu", "gelu", "silu", "swiglu")
POSITIONS = (
    "none",
    "sinusoidal",
    "sinusoidal_concatenated",
    "sinusoidal_marian",
    "learned",
    "rotary",
    "alibi",
    "t5",
)
NORM_MODULES = ("attention_residual.norm", "cross_attention_residual.norm", "ffn_residual.norm")
MULTIPLIERS = ".multipliers"
"""Suffix of a weight's name for the place of its multipliers."""
MAX_MEASURED_DIM = 1 << 13
"""Maximum inputs and outputs of the matrices that `fastest_precision` multiplies."""
BIASES = ("alibi", "t5")
"""Position encodings that add to attention scores."""
NO_POSITIONS = ""
"""Name in place of weights of a position encoding."""
MaybeLibrary = tuple[ctypes.CDLL | None, str]
"""The compiled engine, or None and why it is not available."""
Weights = Mapping[str, NDArray[Any]]
Multipliers = Mapping[str, NDArray[np.float32]]
"""Of the matrices of a calibrated model, by the name of the weight: that by which the input is
multiplied before it is rounded to integers, then those of the weights of each output, [1 + O]."""
StoredWeight = tuple[NDArray[Any] | None, Floats | None]
"""A weight that the engine reads, or None; and the scales of an int8 matrix."""
Shape = tuple[int, ...]
NamedShape = tuple[str, Shape]
Int32s = NDArray[np.int32]


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


class _Config(ctypes.Structure):
    _fields_ = [
        *_fields(c_int64, "dim heads kv_heads ffn_dim encoder_layers decoder_layers layer_sharing"),
        *_fields(c_int64, "vocab_size type pre_norm rms_norm activation recurrent"),
        *_fields(c_int64, "positions max_positions zero_token bf16 calibrated"),
        *_fields(c_double, "epsilon rotary_base"),
    ]


class _Request(ctypes.Structure):
    _fields_ = [
        *_fields(c_int64, "k num_banned num_gathered"),
        *_fields(c_void_p, "banned_RX gather_RP log_p_RK tokens_RK gathered_log_p_RP log_p_RV"),
        *_fields(c_void_p, "attention_RS"),
    ]


class _Weight(ctypes.Structure):
    _fields_ = _fields(c_void_p, "values scale_O")


FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "engine_init": (None, []),
    "model_new": (c_void_p, [POINTER(_Config), POINTER(_Weight)]),
    "model_free": (None, [c_void_p]),
    "state_new": (c_void_p, [c_void_p]),
    "state_free": (None, [c_void_p]),
    "init_search_state": (c_int, [c_void_p, c_int64, *[c_void_p] * 2, c_int, *[c_void_p] * 2]),
    "decode_step": (c_int, [c_void_p, c_int64, c_void_p, c_void_p, POINTER(_Request)]),
    "score_targets": (c_int, [c_void_p, c_int64, *[c_void_p] * 4]),
    "lanes": (c_int, []),
    "hardware_support": (c_int, [c_int]),
    "matrix_new": (c_void_p, [c_int64, c_int64, c_int, c_void_p, c_void_p]),
    "matrix_multiply": (c_int, [c_void_p, c_int64, c_void_p, c_void_p]),
}


class NativeModel:
    """A Transformer in the native engine. Threads may share it; each batch has its own state."""

    def __init__(
        self,
        config: ModelConfig,
        weights: Weights,
        precision: str,
        multipliers: Multipliers | None = None,
    ) -> None:
        """Pack the weights.

        Args:
            config: a config for which `supports` returns True.
            weights: by the parameter names of the PyTorch model, float32; or int8 matrices with
                scales, as `nmt.runs.quantization` stores them.
            precision: of the matrices: fp32, bf16 or int8; activations are float32.
            multipliers: of every matrix of a calibrated model, for int8; keys, values and
                embeddings are then float32, and every operation rounds as in Marian.

        Raises:
            MemoryError: the weights do not fit into memory.
            KeyError, ValueError: the names or shapes of the weights do not match the config.
        """
        if not supports(config):
            raise ValueError("the engine does not support this network")
        self.library = library()
        self.source_eos = config.source_eos
        self.vocab_size = _vocab_size(weights)
        encoding, options = parse(config.position_encoding)
        if encoding == "alibi":
            weights = _with_alibi_slopes(weights, config.heads)
        learned = weights.get("source_positions.table_ND")
        self.max_positions = None if learned is None else len(learned)
        max_distance = options.get("max_distance", T5_MAX_DISTANCE)
        multipliers = multipliers if precision == "int8" else None
        _check_multipliers(config, multipliers)
        arrays = _arrays(config, weights, self.vocab_size, max_distance, multipliers)
        # Of the two limits, engine.c reads the one that the model has.
        limit = self.max_positions or max_distance
        is_calibrated = multipliers is not None
        packed_config = _packed_config(config, precision, self.vocab_size, limit)
        packed_config.calibrated = is_calibrated
        packed_config.bf16 = precision != "fp32" and not is_calibrated
        self._handle = self.library.model_new(packed_config, _packed_weights(arrays))
        self.free_states: list[int] = []
        """States of finished batches, which later batches reuse with their memory."""
        finalizer = weakref.finalize(self, _free, self.library, self._handle, self.free_states)
        finalizer.atexit = False

    def init_search_state(
        self,
        sources: Sentences,
        *,
        track_attention: bool = False,
        candidates: Sequence[Ints] = (),
    ) -> NativeState:
        """Encode sentences, each a list of ids of `encoder_input`, and return the state of the
        search, to whose `candidates` the output layer is restricted; see `StepModel`.

        Raises:
            MemoryError: out of memory.
            UsageError: a sentence has more tokens than the model has learned positions.
            ValueError: a token id is not in the vocabulary.
        """
        lengths = list(map(len, sources))
        lengths_B = np.array(lengths, np.int32)
        check_positions(max(lengths, default=0), self.max_positions)
        joined = chain.from_iterable(sources)
        ids = np.array(list(joined), np.int64)
        tokens = _indices(ids, ids.shape, self.vocab_size, "source token ids")
        try:
            handle = self.free_states.pop()
        except IndexError:
            handle = self.library.state_new(self._handle)
        state = NativeState(self, handle, lengths_B, track_attention)
        weakref.finalize(state, self.free_states.append, handle)
        counts_B = joined_candidates = None
        if candidates:
            counts_B = np.array([*map(len, candidates)], np.int32)
            all_ids = np.concatenate(candidates)
            joined_candidates = _indices(all_ids, all_ids.shape, self.vocab_size, "candidates")
        self.library.init_search_state(
            handle,
            len(sources),
            _pointer(lengths_B),
            _pointer(tokens),
            track_attention,
            _pointer(counts_B),
            _pointer(joined_candidates),
        )
        return state

    def score(self, sources: Sentences, targets: Sentences) -> list[TokenScores]:
        """Score a batch of given translations; ids are without start and end tokens."""
        inputs = self._inputs(sources)
        state = self.init_search_state(inputs, track_attention=True)
        num_targets = len(targets)
        num_steps = max(map(len, targets)) + 1
        num_columns = max(map(len, inputs))
        attention_BTS = np.empty((num_targets, num_steps, num_columns), np.float32)
        log_p_BT1 = np.empty((num_targets, num_steps, 1), np.float32)
        _force_decode(state, targets, log_p_BT1, attention_BTS)
        return token_scores(log_p_BT1[:, :, 0], attention_BTS, inputs, targets)

    def log_probs(self, sources: Sentences, targets: Sentences) -> list[float]:
        """Return the log-probabilities of given translations, including that of the end token.

        Ids are without start and end tokens. This is faster than `score`, because all tokens of a
        translation are decoded at once.

        Raises:
            MemoryError: out of memory.
            UsageError: a sentence has more tokens than the model has learned positions.
            ValueError: a token id is not in the vocabulary.
        """
        inputs = self._inputs(sources)
        state = self.init_search_state(inputs)
        return state.score_targets(targets)

    def _inputs(self, sources: Sentences) -> list[list[int]]:
        return [encoder_input(source, self.source_eos) for source in sources]


def _force_decode(
    state: NativeState, targets: Sentences, log_p_BT1: Floats, attention_BTS: Floats
) -> None:
    """Read the given translations, and write the log-probabilities and the attention of their
    tokens into the arrays."""
    # Unfinished sentences come first.
    running = sorted(range(len(targets)), key=lambda i: -len(targets[i]))
    tokens_R = np.full(len(running), BOS)
    parents_R = np.array(running)
    for t in range(len(log_p_BT1[0])):
        labels_R1 = _labels(targets, running, t)
        request = StepRequest(tokens_R, parents_R, 0, gather_RP=labels_R1)
        log_p_BT1[running, t] = state.step(request).gathered_log_p_RP
        attention_BTS[running, t] = state.attention_RS
        running = [i for i in running if len(targets[i]) > t]
        tokens_R = labels_R1[: len(running), 0]
        parents_R = np.arange(len(running))


def _labels(targets: Sentences, running: list[int], t: int) -> Ints:
    """Return the token that follows the first t tokens of each translation, [R, 1]."""
    return np.array([[*targets[i][t : t + 1], EOS][:1] for i in running])


def _arrays(
    config: ModelConfig,
    weights: Weights,
    vocab_size: int,
    max_distance: int,
    multipliers: Multipliers | None,
) -> list[StoredWeight]:
    """Return weights and multipliers in the order of `model_new`, after checking their shapes."""
    scales_by_name = quantization.scales(weights)
    scale_names = {name + quantization.SCALE for name in scales_by_name}
    layout = list(weight_shapes(config, vocab_size))
    expected = {name: shape for name, shape in layout if has_weight(config, name)}
    names = weights.keys() - scale_names
    found = {name: weights[name].shape for name in names}
    if found != expected:
        raise ValueError("the names or shapes of the weights do not match the config")
    arrays: list[StoredWeight] = []
    for name, _ in layout:
        if name.endswith(MULTIPLIERS):
            matrix = name.removesuffix(MULTIPLIERS)
            arrays.append((_multipliers(matrix, weights, multipliers), None))
        else:
            scale_O = scales_by_name.get(name)
            arrays.append(_stored_weight(name, weights.get(name), scale_O, max_distance))
    return arrays


def _packed_weights(arrays: Sequence[StoredWeight]) -> Any:
    """Return the addresses of the weights as an array of C."""
    pointers = [_Weight(_pointer(values), _pointer(scale_O)) for values, scale_O in arrays]
    return (_Weight * len(arrays))(*pointers)


def _multipliers(name: str, weights: Weights, multipliers: Multipliers | None) -> Floats | None:
    """Return the multipliers of a matrix, after checking their shape."""
    if multipliers is None or name not in weights:
        return None
    found = multipliers.get(name)
    if found is None or found.shape != (1 + len(weights[name]),):
        raise ValueError(f"{name} has no multipliers, or their number does not match")
    return np.ascontiguousarray(found, np.float32)


def _check_multipliers(config: ModelConfig, multipliers: Multipliers | None) -> None:
    encoding, _ = parse(config.position_encoding)
    has_other_operations = config.norm != "layer" or encoding in BIASES
    if multipliers is not None and has_other_operations:
        raise ValueError("the engine does not support multipliers of this network")


def _vocab_size(weights: Weights) -> int:
    output = weights.get("embeddings.output", weights.get("embeddings.shared"))
    return 0 if output is None else len(output)


def _with_alibi_slopes(weights: Weights, heads: int) -> Weights:
    slopes = np.array(alibi_slopes(heads), np.float32)
    return {**weights, "alibi_slopes": slopes}


def _packed_config(
    config: ModelConfig, precision: str, vocab_size: int, max_positions: int
) -> _Config:
    encoding, options = parse(config.position_encoding)
    is_rms = config.norm == "rms"
    default_epsilon = 1e-6 if is_rms else 1e-5
    return _Config(
        dim=config.dim,
        heads=config.heads,
        kv_heads=config.kv_heads or config.heads,
        ffn_dim=config.ffn_dim,
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        layer_sharing=config.layer_sharing,
        vocab_size=vocab_size,
        type=TYPES.index(precision),
        pre_norm=config.norm_position == "pre",
        rms_norm=is_rms,
        activation=ACTIVATION_NAMES.index(config.activation),
        recurrent=config.decoder == "ssru",
        positions=POSITIONS.index(encoding),
        max_positions=max_positions,
        zero_token=-1 if config.target_bos else BOS,
        epsilon=config.norm_epsilon or default_epsilon,
        rotary_base=options.get("base", ROTARY_BASE),
    )


def weight_shapes(config: ModelConfig, vocab_size: int) -> Iterator[NamedShape]:
    """Yield name and shape of all weights in the order of `model_new`, including those that the
    network does not have, see `has_weight`, and the places of multipliers."""
    embedding_shape = (vocab_size, config.dim)
    shared = "shared" if config.tie_embeddings else ""
    for stack, side in (("encoder", "source"), ("decoder", "target")):
        num_layers = getattr(config, f"{stack}_layers")
        num_distinct = math.ceil(num_layers / config.layer_sharing)
        is_recurrent = stack == "decoder" and config.decoder == "ssru"
        for layer in range(num_distinct):
            yield from _layer_layout(config, f"{stack}.{layer}", is_recurrent=is_recurrent)
        yield from _norm_layout(config, f"{stack}_norm")
        name = shared if stack == "encoder" else ""
        yield f"embeddings.{name or side}", embedding_shape
        yield _position_layout(config, side)
    yield f"embeddings.{shared or 'output'}", embedding_shape
    yield "output_bias_V", (vocab_size,)
    yield f"embeddings.{shared or 'output'}{MULTIPLIERS}", ()


def has_weight(config: ModelConfig, name: str) -> bool:
    """Return whether the network has a weight of `weight_shapes`."""
    if name.endswith(MULTIPLIERS):
        return False
    if name.startswith("encoder.") and "cross" in name:
        return False
    if name.startswith(("encoder_norm", "decoder_norm")) and config.norm_position != "pre":
        return False
    if name.endswith("candidate.bias"):
        return False
    if name.endswith("norm.bias"):
        return config.norm != "rms"
    if name == "embeddings.target":
        return not config.tie_embeddings
    if name == "output_bias_V":
        return config.output_bias
    return name != NO_POSITIONS


def _layer_layout(config: ModelConfig, name: str, *, is_recurrent: bool) -> Iterator[NamedShape]:
    dim = config.dim
    kv_heads = config.kv_heads or config.heads
    head_dim = dim // config.heads
    kv = 2 * kv_heads * head_dim
    up = config.ffn_dim
    if config.activation == "swiglu":
        up *= 2
    shapes = {"self_attention.qkv": (dim + kv, dim), "self_attention.out": (dim, dim)}
    if is_recurrent:
        shapes = {"ssru.candidate": (dim, dim), "ssru.gate": (dim, dim)}
    shapes |= {  # in the order of the enum in engine.c
        "cross_attention.q": (dim, dim),
        "cross_attention.kv": (kv, dim),
        "cross_attention.out": (dim, dim),
        "feed_forward.up": (up, dim),
        "feed_forward.down": (dim, config.ffn_dim),
    }
    for part, shape in shapes.items():
        yield f"{name}.{part}.weight", shape
        yield f"{name}.{part}.bias", shape[:1]
        yield f"{name}.{part}.weight{MULTIPLIERS}", ()
    for part in NORM_MODULES:
        yield from _norm_layout(config, f"{name}.{part}")


def _norm_layout(config: ModelConfig, name: str) -> Iterator[NamedShape]:
    yield f"{name}.weight", (config.dim,)
    yield f"{name}.bias", (config.dim,)


def _position_layout(config: ModelConfig, side: str) -> NamedShape:
    encoding, options = parse(config.position_encoding)
    if side == "target" and config.decoder == "ssru" and encoding in BIASES:
        return NO_POSITIONS, ()
    if encoding == "learned":
        length = options.get("max_positions", LEARNED_POSITIONS)
        return f"{side}_positions.table_ND", (length, config.dim)
    if encoding == "t5":
        num_buckets = options.get("num_buckets", T5_BUCKETS)
        return f"{side}_positions.bias_MH", (num_buckets, config.heads)
    if encoding == "alibi":
        return "alibi_slopes", (config.heads,)
    return NO_POSITIONS, ()


def _stored_weight(
    name: str, weight: NDArray[Any] | None, scale_O: Floats | None, max_distance: int
) -> StoredWeight:
    """Return a weight as the engine reads it; T5 biases per distance instead of per bucket."""
    if weight is None:
        return None, None
    if scale_O is not None:
        if name.startswith("embeddings.") or name.endswith(".weight"):
            return np.ascontiguousarray(weight), np.ascontiguousarray(scale_O)
        weight = weight * scale_O[:, None]
    if name.endswith("_positions.bias_MH"):
        distance_M = np.arange(-max_distance, max_distance + 1)
        is_causal = name.startswith("target")
        num_buckets = len(weight)
        bucket_M = t5_buckets(distance_M, num_buckets, max_distance, causal=is_causal)
        weight = weight[bucket_M]
    return np.ascontiguousarray(weight, np.float32), None


def _free(library: ctypes.CDLL, model: int, states: list[int]) -> None:
    for state in states:
        library.state_free(state)
    library.model_free(model)


class NativeState:
    """The state of one batch; see `nmt.search.request.State`."""

    def __init__(
        self, model: NativeModel, handle: int, lengths_B: Int32s, track_attention: bool
    ) -> None:
        self.model = model
        self._handle = handle
        self._track_attention = track_attention
        self._max_tokens = int(lengths_B.max(initial=0))
        self._num_parents = len(lengths_B)
        self._num_steps = 0
        self.attention_RS: Floats | None = None

    def step(self, request: StepRequest) -> StepResult:
        """Read one more token per row.

        Raises:
            MemoryError: out of memory.
            UsageError: the model has learned no position for this token.
            ValueError: a token id is not in the vocabulary, a parent does not exist, or an array
                has another shape.
        """
        vocab_size = self.model.vocab_size
        rows = len(request.tokens_R)
        check_positions(self._num_steps + 1, self.model.max_positions)
        tokens_R = _indices(request.tokens_R, (rows,), vocab_size, "token ids")
        parents_R = _indices(request.parents_R, (rows,), self._num_parents, "parents")
        banned_RX = gather_RP = np.empty((rows, 0), np.int32)
        if request.banned_RX is not None:
            # Compared, not used as indices.
            banned_RX = _integers(request.banned_RX, (rows, -1), "banned token ids")
        if request.gather_RP is not None:
            gather_RP = _indices(request.gather_RP, (rows, -1), vocab_size, "token ids to gather")
        result = self._call(tokens_R, parents_R, request, banned_RX, gather_RP)
        self._num_parents = rows
        self._num_steps += 1
        return result

    def score_targets(self, targets: Sentences) -> list[float]:
        """Return the log-probability of a target of each sentence. `step` must not have been
        called; see `NativeModel.log_probs`."""
        lengths_B = np.array([len(target) + 1 for target in targets], np.int32)
        check_positions(int(lengths_B.max(initial=0)), self.model.max_positions)
        inputs = [token for target in targets for token in (BOS, *target)]
        labels = [token for target in targets for token in (*target, EOS)]
        vocab_size = self.model.vocab_size
        # The start token and the end token are in the vocabulary, so the labels are checked, too.
        inputs_N = _indices(np.array(inputs, np.int64), (len(inputs),), vocab_size, "token ids")
        labels_N = np.array(labels, np.int32)
        log_p_N = np.empty(len(inputs), np.float32)
        arrays = (lengths_B, inputs_N, labels_N, log_p_N)
        self.model.library.score_targets(self._handle, len(targets), *map(_pointer, arrays))
        starts_B = np.cumsum(lengths_B) - lengths_B
        log_probs: list[float] = np.add.reduceat(log_p_N, starts_B, dtype=np.float64).tolist()
        return log_probs

    def _call(
        self,
        tokens_R: Int32s,
        parents_R: Int32s,
        request: StepRequest,
        banned_RX: Int32s,
        gather_RP: Int32s,
    ) -> StepResult:
        """Allocate the outputs and call the engine, which does not check its input."""
        rows = len(tokens_R)
        vocab_size = self.model.vocab_size
        k = min(request.k, vocab_size)
        log_p_RK = np.empty((rows, k), np.float32)
        tokens_RK = np.empty((rows, k), np.int32)
        gathered_log_p_RP = log_p_RV = None
        if request.gather_RP is not None:
            gathered_log_p_RP = np.empty(gather_RP.shape, np.float32)
        if request.all_log_probs:
            log_p_RV = np.empty((rows, vocab_size), np.float32)
        if self._track_attention:
            self.attention_RS = np.empty((rows, self._max_tokens), np.float32)
        outputs = (log_p_RK, tokens_RK, gathered_log_p_RP, log_p_RV, self.attention_RS)
        pointers = map(_pointer, (banned_RX, gather_RP, *outputs))
        arguments = _Request(k, banned_RX.shape[1], gather_RP.shape[1], *pointers)
        self.model.library.decode_step(
            self._handle, rows, _pointer(tokens_R), _pointer(parents_R), arguments
        )
        return StepResult(log_p_RK, tokens_RK, gathered_log_p_RP, log_p_RV)


class Matrix:
    """A packed matrix W for y = xWᵀ + b, used to benchmark and test the engine's matrix
    products."""

    def __init__(self, weight_OI: Floats, bias_O: Floats | None, precision: str) -> None:
        """Pack the matrix."""
        self.outputs, self.inputs = weight_OI.shape
        self._library = library()
        weight_OI = _floats(weight_OI, (self.outputs, self.inputs))
        bias_O = None if bias_O is None else _floats(bias_O, (self.outputs,))
        kind = TYPES.index(precision)
        pointers = _pointer(weight_OI), _pointer(bias_O)
        self._handle = self._library.matrix_new(self.outputs, self.inputs, kind, *pointers)
        weakref.finalize(self, self._library.model_free, self._handle).atexit = False

    def multiply(self, x_RI: Floats) -> Floats:
        """Return xWᵀ + b."""
        x_RI = _floats(x_RI, (len(x_RI), self.inputs))
        y_RO = np.empty((len(x_RI), self.outputs), np.float32)
        self._library.matrix_multiply(self._handle, len(x_RI), _pointer(x_RI), _pointer(y_RO))
        return y_RO


def supports(config: ModelConfig) -> bool:
    """Return whether the engine supports this network; PyTorch runs the others, or says why they
    are invalid."""
    return (
        config.arch == "transformer"
        and config.decoder in ("attention", "ssru")
        and config.attention_score == "dot"
        and not config.attention_window
        and config.activation in ACTIVATION_NAMES
        and config.norm in ("layer", "rms")
        and config.dim % config.heads == 0
        and config.heads % (config.kv_heads or config.heads) == 0
        and _supports_positions(config)
    )


def _supports_positions(config: ModelConfig) -> bool:
    encoding, options = parse(config.position_encoding)
    if encoding == "rotary":
        return config.dim // config.heads % 2 == 0
    if encoding == "t5":
        num_buckets = options.get("num_buckets", T5_BUCKETS)
        max_distance = options.get("max_distance", T5_MAX_DISTANCE)
        are_integers = isinstance(num_buckets, int) and isinstance(max_distance, int)
        return are_integers and 4 <= num_buckets <= max_distance <= T5_DISTANCE_LIMIT
    return encoding in POSITIONS


def fastest_precision(config: ModelConfig) -> str:
    """Return the faster of fp32 and bf16 for the engine's matrix products of this size."""
    rows = 96  # BLOCK_ROWS in engine.c
    # Limited, because the weights have not been compared with the config yet.
    inputs = min(config.dim, MAX_MEASURED_DIM)
    outputs = min(config.ffn_dim, MAX_MEASURED_DIM)

    def product(precision: str) -> Callable[[], object]:
        generator = np.random.default_rng(0)
        weight_OI = generator.standard_normal((outputs, inputs), np.float32)
        x_RI = generator.standard_normal((rows, inputs), np.float32)
        matrix = Matrix(weight_OI, None, precision)
        return lambda: matrix.multiply(x_RI)

    task = f"decoding, matrix product {rows}x{inputs} by {inputs}x{outputs}"
    flops = 2.0 * rows * inputs * outputs
    return fastest.select(task, library_version(), ("fp32", "bf16"), product, flops)


def is_available() -> bool:
    """Return whether the engine is compiled; the first call on a machine compiles it."""
    return _library()[0] is not None


def unavailable_reason() -> str:
    """Return why the engine is not available; empty if it is."""
    return _library()[1]


def library() -> ctypes.CDLL:
    """Return the compiled engine; `is_available` must be true."""
    loaded, reason = _library()
    assert loaded, reason
    return loaded


def _library() -> MaybeLibrary:
    if os.environ.get("NMT_ENGINE") == "0":
        return None, "NMT_ENGINE=0"
    return compiled_library()


@functools.cache
def compiled_library() -> MaybeLibrary:
    """Load the engine, after compiling it if necessary; or return why it is not available."""
    try:
        loaded = ctypes.CDLL(str(find_library()))
        for name, (result_type, argument_types) in FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result_type, argument_types
            if result_type:
                function.errcheck = _check_memory
        loaded.engine_init()
        return loaded, ""
    except subprocess.SubprocessError as error:
        return _unavailable(failure_reason(error))
    # No compiler, a full disk, a file that cannot be written or loaded, no home directory, or a
    # malformed CC.
    except (OSError, RuntimeError, ValueError, AttributeError) as error:
        return _unavailable(str(error))


def _check_memory(result: int | None, function: object, arguments: object) -> int:
    if not result:
        raise MemoryError("the native engine is out of memory")
    return result


def _unavailable(reason: str) -> tuple[None, str]:
    log(f"the native engine is not available ({reason}); using PyTorch, which is slower")
    return None, reason


def _pointer(array: NDArray[Any] | None) -> int | None:
    """Return the address of a contiguous array."""
    if array is None:
        return None
    assert array.flags.c_contiguous
    address: int = array.__array_interface__["data"][0]  # array.ctypes.data takes twice as long
    return address


def _indices(array: Ints, shape: Shape, limit: int, name: str) -> Int32s:
    """Return an array as the engine reads it, after checking that the engine can use its numbers as
    indices.

    Args:
        array: integers from 0 to limit - 1.
        shape: see `_integers`.
        limit: see `array`.
        name: of the array, for errors.

    Raises:
        ValueError: the array has another shape or type, or a number is out of range.
    """
    indices = _integers(array, shape, name)
    # Without a sign, negative numbers are the largest: one maximum takes half the time of a minimum
    # and a maximum.
    if array.size and np.ascontiguousarray(array, np.int64).view(np.uint64).max() >= limit:
        raise ValueError(
            f"{name} must be between 0 and {limit - 1}, got {array.min()} to {array.max()}"
        )
    return indices


def _integers(array: Ints, shape: Shape, name: str) -> Int32s:
    """Return an array as the engine reads it; the engine does not check shapes. The last axis may
    be -1, any length.

    Raises:
        ValueError: the array has another shape or type.
    """
    if shape[-1] == -1:
        shape = (*shape[:-1], *array.shape[-1:])
    if array.shape != shape or array.dtype.kind not in "iu":
        raise ValueError(
            f"{name} must be integers of shape {shape}, got {array.dtype} of shape {array.shape}"
        )
    return np.ascontiguousarray(array, np.int32)


def _floats(array: Floats, shape: Shape) -> Floats:
    """Return an array as the engine reads it; raise a ValueError if its shape is another."""
    if array.shape != shape:
        raise ValueError(f"expected an array of shape {shape}, got {array.shape}")
    return np.ascontiguousarray(array, np.float32)
