"""The native engine: models packed for the library of `engine.c`. It does not need PyTorch.

Shape suffixes: B sentences, S source tokens, R rows (partial hypotheses), K best tokens, P gathered
tokens, X banned tokens, V vocabulary, I inputs and O outputs of a matrix, M distances or buckets of
distances, H heads.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import POINTER, c_double, c_int, c_int64, c_void_p
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.core import autotune
from nmt.core.config import ModelConfig
from nmt.core.console import log
from nmt.core.registry import parse
from nmt.engines import TokenScores
from nmt.engines.engine_library import compiler_command, engine_id, find_or_compile
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
from nmt.search.request import Floats, Ints, StepRequest, StepResult
from nmt.text.tokenizer import BOS, EOS, encoder_input

# The next five tuples have the order of the enums in engine.c.
TYPES = ("fp32", "bf16", "int8")
ACTIVATION_NAMES = ("relu", "gelu", "silu", "swiglu")
POSITIONS = ("none", "sinusoidal", "sinusoidal_concatenated", "learned", "rotary", "alibi", "t5")
MATRICES = (
    "self_attention.qkv",
    "self_attention.out",
    "cross_attention.q",
    "cross_attention.kv",
    "cross_attention.out",
    "feed_forward.up",
    "feed_forward.down",
)
NORM_MODULES = ("attention_residual.norm", "cross_attention_residual.norm", "ffn_residual.norm")
Weights = Mapping[str, NDArray[np.float32]]
NamedShape = tuple[str, tuple[int, ...]]


class _Config(ctypes.Structure):
    _fields_ = [
        *(
            (name, c_int64)
            for name in (
                "dim",
                "heads",
                "kv_heads",
                "ffn_dim",
                "encoder_layers",
                "decoder_layers",
                "layer_sharing",
                "vocab_size",
                "type",
                "pre_norm",
                "rms_norm",
                "activation",
                "positions",
                "max_positions",
            )
        ),
        ("epsilon", c_double),
        ("rotary_base", c_double),
    ]


class _Request(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("k", "num_banned", "num_gathered")),
        *(
            (name, c_void_p)
            for name in (
                "banned_RX",
                "gather_RP",
                "log_p_RK",
                "tokens_RK",
                "gathered_log_p_RP",
                "log_p_RV",
                "attention_RS",
            )
        ),
    ]


_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "engine_init": (None, []),
    "model_new": (c_void_p, [POINTER(_Config), POINTER(c_void_p)]),
    "model_free": (None, [c_void_p]),
    "state_new": (c_void_p, [c_void_p]),
    "state_free": (None, [c_void_p]),
    "init_search_state": (c_int, [c_void_p, c_int64, c_void_p, c_void_p, c_int]),
    "decode_step": (c_int, [c_void_p, c_int64, c_void_p, c_void_p, POINTER(_Request)]),
    "lanes": (c_int, []),
    "hardware_support": (c_int, [c_int]),
    "matrix_new": (c_void_p, [c_int64, c_int64, c_int, c_void_p, c_void_p]),
    "matrix_multiply": (c_int, [c_void_p, c_int64, c_void_p, c_void_p]),
}


class NativeModel:
    """A Transformer in the native engine. Threads may share it; each batch has its own state."""

    def __init__(self, config: ModelConfig, weights: Weights, precision: str) -> None:
        """Pack the weights.

        Args:
            config: a config for which `supports` returns True.
            weights: by the parameter names of the PyTorch model, float32.
            precision: of the matrices: fp32, bf16 or int8; activations are float32.

        Raises:
            MemoryError: the weights do not fit into memory.
            ValueError: the names or shapes of the weights do not match the config.
        """
        if not supports(config):
            raise ValueError("the engine does not support this network")
        self.library = library()
        self.source_eos = config.source_eos
        output = weights.get("embeddings.output", weights.get("embeddings.shared"))
        self.vocab_size = 0 if output is None else len(output)
        encoding, options = parse(config.position_encoding)
        if encoding == "alibi":
            weights = {**weights, "alibi_slopes": np.array(alibi_slopes(config.heads), np.float32)}
        layout = list(_layout(config, self.vocab_size))
        if dict(filter(None, layout)) != {name: weight.shape for name, weight in weights.items()}:
            raise ValueError("the names or shapes of the weights do not match the config")
        learned = weights.get("source_positions.table_ND")
        self.max_positions = None if learned is None else len(learned)
        max_distance = options.get("max_distance", T5_MAX_DISTANCE)
        arrays = [
            None if entry is None else _array(entry[0], weights[entry[0]], max_distance)
            for entry in layout
        ]
        # Of the maximum distance and the number of learned positions, engine.c reads the one that
        # the model has.
        packed_config = _packed_config(
            config, precision, self.vocab_size, self.max_positions or max_distance
        )
        pointers = (c_void_p * len(arrays))(*map(_pointer, arrays))
        self._handle = self.library.model_new(packed_config, pointers)
        self._free_states: list[int] = []
        """States of finished batches, which later batches reuse with their memory."""
        weakref.finalize(self, _free, self.library, self._handle, self._free_states).atexit = False

    def init_search_state(
        self, sources: Sequence[Sequence[int]], *, track_attention: bool = False
    ) -> NativeState:
        """Encode sentences, each a list of ids of `encoder_input`, and return the state of the
        search.

        Raises:
            MemoryError: out of memory.
            UsageError: a sentence has more tokens than the model has learned positions.
            ValueError: a token id is not in the vocabulary.
        """
        lengths_B = np.fromiter(map(len, sources), np.int32, len(sources))
        check_positions(int(lengths_B.max(initial=0)), self.max_positions)
        num_tokens = int(lengths_B.sum())
        ids = np.fromiter((token for source in sources for token in source), np.int64, num_tokens)
        tokens = _indices(ids, (num_tokens,), self.vocab_size, "source token ids")
        try:
            handle = self._free_states.pop()
        except IndexError:
            handle = self.library.state_new(self._handle)
        state = NativeState(self, handle, lengths_B, track_attention)
        weakref.finalize(state, self._free_states.append, handle)
        self.library.init_search_state(
            handle, len(sources), _pointer(lengths_B), _pointer(tokens), track_attention
        )
        return state

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        """Score a batch of given translations; ids are without start and end tokens."""
        order = sorted(
            range(len(targets)), key=lambda i: -len(targets[i])
        )  # unfinished sentences come first
        inputs = [encoder_input(source, self.source_eos) for source in sources]
        state = self.init_search_state(inputs, track_attention=True)
        log_probs: list[list[float]] = [[] for _ in order]
        attention: list[list[Floats]] = [[] for _ in order]
        parents_R = np.array(order)
        tokens_R = np.full(len(order), BOS)
        for t in range(len(targets[order[0]]) + 1):
            running = [i for i in order if len(targets[i]) >= t]
            rows = len(running)
            next_R = np.array([targets[i][t] if t < len(targets[i]) else EOS for i in running])
            request = StepRequest(tokens_R[:rows], parents_R[:rows], 0, gather_RP=next_R[:, None])
            gathered_log_p_RP = state.step(request).gathered_log_p_RP
            assert gathered_log_p_RP is not None
            assert state.attention_RS is not None
            for row, i in enumerate(running):
                log_probs[i].append(float(gathered_log_p_RP[row, 0]))
                attention[i].append(state.attention_RS[row, : len(inputs[i])])
            parents_R = np.arange(rows)
            tokens_R = next_R
        return [
            TokenScores(*each) for each in zip(log_probs, map(np.array, attention), strict=True)
        ]


def _packed_config(
    config: ModelConfig, precision: str, vocab_size: int, max_positions: int
) -> _Config:
    encoding, options = parse(config.position_encoding)
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
        rms_norm=config.norm == "rms",
        activation=ACTIVATION_NAMES.index(config.activation),
        positions=POSITIONS.index(encoding),
        max_positions=max_positions,
        epsilon=1e-6 if config.norm == "rms" else 1e-5,
        rotary_base=options.get("base", ROTARY_BASE),
    )


def _layout(config: ModelConfig, vocab_size: int) -> Iterator[NamedShape | None]:
    """Yield name and shape of the weights in the order of `model_new`; None: the network does not
    have this one."""
    embedding_shape = vocab_size, config.dim
    stacks = (
        ("encoder", "source", config.encoder_layers),
        ("decoder", "target", config.decoder_layers),
    )
    for stack, side, num_layers in stacks:
        for layer in range(-(-num_layers // config.layer_sharing)):
            yield from _layer_layout(
                config, f"{stack}.{layer}", has_cross_attention=stack == "decoder"
            )
        yield from _norm_layout(config, f"{stack}_norm", exists=config.norm_position == "pre")
        if not config.tie_embeddings:
            yield f"embeddings.{side}", embedding_shape
        elif stack == "encoder":
            yield "embeddings.shared", embedding_shape
        else:
            yield None
        yield _position_layout(config, side)
    yield f"embeddings.{'shared' if config.tie_embeddings else 'output'}", embedding_shape
    yield ("output_bias_V", (vocab_size,)) if config.output_bias else None


def _layer_layout(
    config: ModelConfig, name: str, *, has_cross_attention: bool
) -> Iterator[NamedShape | None]:
    dim = config.dim
    kv = 2 * (config.kv_heads or config.heads) * (dim // config.heads)
    up = 2 * config.ffn_dim if config.activation == "swiglu" else config.ffn_dim
    shapes = (
        (dim + kv, dim),
        (dim, dim),
        (dim, dim),
        (kv, dim),
        (dim, dim),
        (up, dim),
        (dim, config.ffn_dim),
    )
    for part, shape in zip(MATRICES, shapes, strict=True):
        exists = has_cross_attention or "cross" not in part
        yield (f"{name}.{part}.weight", shape) if exists else None
        yield (f"{name}.{part}.bias", shape[:1]) if exists else None
    for part in NORM_MODULES:
        yield from _norm_layout(
            config, f"{name}.{part}", exists=has_cross_attention or "cross" not in part
        )


def _norm_layout(config: ModelConfig, name: str, *, exists: bool) -> Iterator[NamedShape | None]:
    has_bias = exists and config.norm != "rms"
    yield (f"{name}.weight", (config.dim,)) if exists else None
    yield (f"{name}.bias", (config.dim,)) if has_bias else None


def _position_layout(config: ModelConfig, side: str) -> NamedShape | None:
    encoding, options = parse(config.position_encoding)
    if encoding == "learned":
        return f"{side}_positions.table_ND", (
            options.get("max_positions", LEARNED_POSITIONS),
            config.dim,
        )
    if encoding == "t5":
        return f"{side}_positions.bias_MH", (options.get("num_buckets", T5_BUCKETS), config.heads)
    if encoding == "alibi":
        return "alibi_slopes", (config.heads,)
    return None


def _array(name: str, weight: Floats, max_distance: int) -> Floats:
    """Return a weight as the engine reads it; T5 biases per distance instead of per bucket."""
    if name.endswith("_positions.bias_MH"):
        distance_M = np.arange(-max_distance, max_distance + 1)
        weight = weight[
            t5_buckets(distance_M, len(weight), max_distance, causal=name.startswith("target"))
        ]
    return np.ascontiguousarray(weight, np.float32)


def _free(library: ctypes.CDLL, model: int, states: list[int]) -> None:
    for state in states:
        library.state_free(state)
    library.model_free(model)


class NativeState:
    """The state of one batch; see `nmt.search.request.State`."""

    def __init__(
        self, model: NativeModel, handle: int, lengths_B: NDArray[np.int32], track_attention: bool
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
        model = self.model
        vocab_size = model.vocab_size
        rows = len(request.tokens_R)
        check_positions(self._num_steps + 1, model.max_positions)
        tokens_R = _indices(request.tokens_R, (rows,), vocab_size, "token ids")
        parents_R = _indices(request.parents_R, (rows,), self._num_parents, "parents")
        banned_RX = None
        if request.banned_RX is not None:
            banned_RX = _integers(
                request.banned_RX, (rows, -1), "banned token ids"
            )  # compared, not used as indices
        gather_RP = None
        if request.gather_RP is not None:
            gather_RP = _indices(request.gather_RP, (rows, -1), vocab_size, "token ids to gather")
        if self._track_attention:
            self.attention_RS = np.empty((rows, self._max_tokens), np.float32)
        result = _new_result(
            rows,
            min(request.k, vocab_size),
            gather_RP,
            vocab_size if request.all_log_probs else None,
        )
        outputs = (
            result.log_p_RK,
            result.tokens_RK,
            result.gathered_log_p_RP,
            result.log_p_RV,
            self.attention_RS,
        )
        pointers = map(_pointer, (banned_RX, gather_RP, *outputs))
        arguments = _Request(
            result.log_p_RK.shape[1], _width(banned_RX), _width(gather_RP), *pointers
        )
        model.library.decode_step(
            self._handle, rows, _pointer(tokens_R), _pointer(parents_R), arguments
        )
        self._num_parents = rows
        self._num_steps += 1
        return result


def _new_result(rows: int, k: int, gather_RP: Ints | None, vocab_size: int | None) -> StepResult:
    """Return the arrays that the engine writes; `vocab_size`: None without the log-probabilities of
    all tokens."""
    return StepResult(
        np.empty((rows, k), np.float32),
        np.empty((rows, k), np.int32),
        None if gather_RP is None else np.empty(gather_RP.shape, np.float32),
        None if vocab_size is None else np.empty((rows, vocab_size), np.float32),
    )


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
    generator = np.random.default_rng(0)
    weight_OI = generator.standard_normal((config.ffn_dim, config.dim), np.float32)
    x_RI = generator.standard_normal((rows, config.dim), np.float32)

    def product(precision: str) -> Callable[[], object]:
        matrix = Matrix(weight_OI, None, precision)
        return lambda: matrix.multiply(x_RI)

    candidates = {precision: product(precision) for precision in ("fp32", "bf16")}
    task = f"decoding, matrix product {rows}x{config.dim} by {config.dim}x{config.ffn_dim}"
    flops = 2.0 * rows * config.dim * config.ffn_dim
    return autotune.select_fastest(task, engine_id(*compiler_command()), candidates, flops)


def is_available() -> bool:
    """Return whether the engine is compiled; the first call on a machine compiles it."""
    return _library()[0] is not None


def unavailable_reason() -> str:
    """Return why the engine is not available; empty if it is."""
    return _library()[1]


def library() -> ctypes.CDLL:
    """Return the compiled engine; `is_available` must be true."""
    loaded = _library()[0]
    assert loaded is not None
    return loaded


def _library() -> tuple[ctypes.CDLL | None, str]:
    return (None, "NMT_ENGINE=0") if os.environ.get("NMT_ENGINE") == "0" else _compiled_library()


@functools.cache
def _compiled_library() -> tuple[ctypes.CDLL | None, str]:
    try:
        command = compiler_command()
        loaded = ctypes.CDLL(str(find_or_compile(command)))
        for name, (result_type, argument_types) in _FUNCTIONS.items():
            function = getattr(loaded, name)
            function.restype, function.argtypes = result_type, argument_types
            if result_type:
                function.errcheck = _check_memory
        loaded.engine_init()
        return loaded, ""
    except subprocess.SubprocessError:
        return _unavailable(f"{command[0]} failed to compile it")
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


def _width(array_RX: NDArray[Any] | None) -> int:
    return 0 if array_RX is None else array_RX.shape[1]


def _indices(array: Ints, shape: tuple[int, ...], limit: int, name: str) -> NDArray[np.int32]:
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


def _integers(array: Ints, shape: tuple[int, ...], name: str) -> NDArray[np.int32]:
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


def _floats(array: Floats, shape: tuple[int, ...]) -> Floats:
    """Return an array as the engine reads it; raise a ValueError if its shape is another."""
    if array.shape != shape:
        raise ValueError(f"expected an array of shape {shape}, got {array.shape}")
    return np.ascontiguousarray(array, np.float32)
