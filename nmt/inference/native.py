"""The native engine: `engine.c`, compiled on demand, with a model's packed weights in it. It needs no PyTorch.

Shape letters: B sentences, S source tokens, R rows (partial hypotheses), P gathered tokens, V vocabulary, D width,
I inputs and O outputs of a matrix.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from ctypes import POINTER, c_double, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt import autotune, paths
from nmt.config import ModelConfig
from nmt.console import log
from nmt.data.tokenizer import BOS, EOS
from nmt.inference import TokenScores
from nmt.model.position_formulas import alibi_slopes, t5_buckets
from nmt.registry import parse
from nmt.search.request import Floats, Ints, StepResult

SOURCE = Path(__file__).with_name("engine.c")
# No flag lets the compiler change the order of sums, or assume that there is no infinity and no NaN.
FLAGS = "-std=c11 -O3 -march=native -ffp-contract=fast -fno-trapping-math -fno-math-errno -shared -fPIC"
COMPILE_SECONDS = 60
TYPES = ("fp32", "bf16", "int8")
ACTIVATIONS = ("relu", "gelu", "silu", "swiglu")
POSITIONS = ("none", "sinusoidal", "sinusoidal_concatenated", "learned", "rotary", "alibi", "t5")
MATRICES = (
    "attention.qkv", "attention.out", "cross.q", "cross.kv", "cross.out", "feed_forward.up", "feed_forward.down",
)  # fmt: skip
NORMS = ("attention_residual.norm", "cross_attention_residual.norm", "ffn_residual.norm")
Weights = Mapping[str, NDArray[np.float32]]


class _Config(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in (
            "dim", "heads", "kv_heads", "ffn_dim", "encoder_layers", "decoder_layers", "layer_sharing", "vocab_size",
            "type", "pre_norm", "rms_norm", "activation", "positions", "max_positions",
        )),
        ("epsilon", c_double), ("rotary_base", c_double),
    ]  # fmt: skip


class _Request(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("k", "num_banned", "num_gathered")),
        *((name, c_void_p) for name in (
            "banned_RX", "gathered_RP", "best_RK", "tokens_RK", "gathered_log_p_RP", "log_p_RV", "attention_RS",
        )),
    ]  # fmt: skip


_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "model_new": (c_void_p, [POINTER(_Config), POINTER(c_void_p)]),
    "model_free": (None, [c_void_p]),
    "state_new": (c_void_p, [c_void_p]),
    "state_free": (None, [c_void_p]),
    "prefill": (c_int, [c_void_p, c_int64, c_void_p, c_void_p, c_int]),
    "decode_step": (c_int, [c_void_p, c_int64, c_void_p, c_void_p, POINTER(_Request)]),
    "lanes": (c_int, []),
    "native_type": (c_int, [c_int]),
    "matrix_new": (c_void_p, [c_int64, c_int64, c_int, c_void_p, c_void_p]),
    "matrix_multiply": (c_int, [c_void_p, c_int64, c_void_p, c_void_p]),
}


class NativeModel:
    """A Transformer in the native engine. Threads may share it; each batch has a state of its own."""

    def __init__(self, config: ModelConfig, weights: Weights, precision: str) -> None:
        """Pack the weights.

        Args:
            config: one that `supports` accepts.
            weights: by the names of the PyTorch modules, float32.
            precision: of the matrices: fp32, bf16 or int8; activations are float32.

        Raises:
            MemoryError: the weights do not fit into memory.
            ValueError: the weights are not those of such a network.
        """
        self.library = library()
        output = weights.get("embeddings.output", weights.get("embeddings.shared"))
        self.vocab_size = 0 if output is None else len(output)
        if _shapes(config, self.vocab_size) != {name: weight.shape for name, weight in weights.items()}:
            raise ValueError("the weights are not those of such a network")
        name, options = parse(config.position_encoding)
        learned = weights.get("source_positions.table_ND")
        self.max_positions = None if learned is None else len(learned)
        arrays = list(_ordered(config, weights))
        pointers = (c_void_p * len(arrays))(*map(_at, arrays))
        self._handle = self.library.model_new(
            _Config(
                config.dim, config.heads, config.kv_heads or config.heads, config.ffn_dim, config.encoder_layers,
                config.decoder_layers, config.layer_sharing, self.vocab_size, TYPES.index(precision),
                config.norm_position == "pre", config.norm == "rms", ACTIVATIONS.index(config.activation),
                POSITIONS.index(name), self.max_positions or options.get("max_distance", 128),
                1e-6 if config.norm == "rms" else 1e-5, options.get("base", 10_000.0),
            ),
            pointers,
        )  # fmt: skip
        self._check(self._handle)
        self._states: list[int] = []
        """States of batches that are done, whose memory the next ones use."""
        weakref.finalize(self, _free, self.library, self._handle, self._states)

    def prefill(self, sources: Sequence[Sequence[int]], *, track_attention: bool = False) -> NativeState:
        """Encode sentences, each a list of ids that ends with the end token, and return the state of the search."""
        try:
            handle = self._states.pop()
        except IndexError:
            handle = self.library.state_new(self._handle)
            self._check(handle)
        lengths_B = np.fromiter(map(len, sources), np.int32, len(sources))
        tokens = np.fromiter((token for source in sources for token in source), np.int32, int(lengths_B.sum()))
        state = NativeState(self, handle, int(lengths_B.max(initial=0)), track_attention)
        weakref.finalize(state, self._states.append, handle)
        self._check(self.library.prefill(handle, len(sources), _at(lengths_B), _at(tokens), track_attention))
        return state

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[TokenScores]:
        """Score given translations of a batch; ids are without start and end."""
        order = sorted(range(len(targets)), key=lambda i: -len(targets[i]))  # those still running come first
        state = self.prefill([[*source, EOS] for source in sources], track_attention=True)
        log_probs: list[list[float]] = [[] for _ in order]
        attention: list[list[Floats]] = [[] for _ in order]
        parents_R, tokens_R = np.array(order), np.full(len(order), BOS)
        for t in range(len(targets[order[0]]) + 1):
            running = [i for i in order if len(targets[i]) >= t]
            next_R = np.array([targets[i][t] if t < len(targets[i]) else EOS for i in running])
            rows = len(running)
            result = state.step(tokens_R[:rows], parents_R[:rows], 0, gather_RP=next_R[:, None])
            assert result.gathered_RP is not None
            assert state.attention_RS is not None
            for row, i in enumerate(running):
                log_probs[i].append(float(result.gathered_RP[row, 0]))
                attention[i].append(state.attention_RS[row, : len(sources[i]) + 1])
            parents_R, tokens_R = np.arange(rows), next_R
        return [TokenScores(*each) for each in zip(log_probs, map(np.array, attention), strict=True)]

    @staticmethod
    def _check(result: int | None) -> None:
        if not result:
            raise MemoryError("the native engine has no memory left")


def _ordered(config: ModelConfig, weights: Weights) -> Iterator[Floats | None]:
    """Yield the weights in the order of `model_new`."""

    def get(name: str) -> Floats | None:
        return np.ascontiguousarray(weights[name], np.float32) if name in weights else None

    for stack, side, layers in _stacks(config):
        for layer in range(layers):
            for part in (*MATRICES, *NORMS):
                yield get(f"{stack}.{layer}.{part}.weight")
                yield get(f"{stack}.{layer}.{part}.bias")
        yield get(f"{stack}_norm.weight")
        yield get(f"{stack}_norm.bias")
        yield get("embeddings.shared" if config.tie_embeddings and side == "source" else f"embeddings.{side}")
        name, options = parse(config.position_encoding)
        bias_MH = get(f"{side}_positions.bias_MH")
        if bias_MH is not None:
            most = options.get("max_distance", 128)
            buckets_M = t5_buckets(np.arange(-most, most + 1), len(bias_MH), most, causal=side == "target")
            yield np.ascontiguousarray(bias_MH[buckets_M])
        elif name == "alibi":
            yield np.array(alibi_slopes(config.heads), np.float32)
        else:
            yield get(f"{side}_positions.table_ND")
    yield get("embeddings.shared" if config.tie_embeddings else "embeddings.output")
    yield None  # a bias of the output layer


def _stacks(config: ModelConfig) -> tuple[tuple[str, str, int], ...]:
    """Return name, side and layers with weights of their own of the encoder and of the decoder."""
    own = (-(-layers // config.layer_sharing) for layers in (config.encoder_layers, config.decoder_layers))
    return tuple(zip(("encoder", "decoder"), ("source", "target"), own, strict=True))


def _free(library: ctypes.CDLL, model: int, states: list[int]) -> None:
    for state in states:
        library.state_free(state)
    library.model_free(model)


def _shapes(config: ModelConfig, vocab_size: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all weights of a network."""
    dim, ffn = config.dim, config.ffn_dim
    kv = 2 * (config.kv_heads or config.heads) * (dim // config.heads)
    up = 2 * ffn if config.activation == "swiglu" else ffn
    sizes = ((dim + kv, dim), (dim, dim), (dim, dim), (kv, dim), (dim, dim), (up, dim), (dim, ffn))
    name, options = parse(config.position_encoding)
    tables = ("shared",) if config.tie_embeddings else ("source", "target", "output")
    shapes: dict[str, tuple[int, ...]] = {f"embeddings.{table}": (vocab_size, dim) for table in tables}
    for stack, side, layers in _stacks(config):
        norms = [f"{stack}_norm"] if config.norm_position == "pre" else []
        for layer in range(layers):
            for part, shape in zip(MATRICES, sizes, strict=True):
                if stack == "decoder" or "cross" not in part:
                    shapes |= {f"{stack}.{layer}.{part}.weight": shape, f"{stack}.{layer}.{part}.bias": shape[:1]}
            norms += [f"{stack}.{layer}.{part}" for part in NORMS if stack == "decoder" or "cross" not in part]
        for norm in norms:
            shapes |= {f"{norm}.{part}": (dim,) for part in ("weight", "bias")[: 2 - (config.norm == "rms")]}
        if name == "learned":
            shapes[f"{side}_positions.table_ND"] = (options.get("max_positions", 1024), dim)
        elif name == "t5":
            shapes[f"{side}_positions.bias_MH"] = (options.get("num_buckets", 32), config.heads)
    return shapes


class NativeState:
    """The state of one batch."""

    def __init__(self, model: NativeModel, handle: int, max_tokens: int, track_attention: bool) -> None:
        self.model, self._handle, self._max_tokens = model, handle, max_tokens
        self.attention_RS: Floats | None = None
        self._track_attention = track_attention

    def step(
        self,
        tokens_R: Ints,
        parents_R: Ints,
        k: int,
        *,
        banned_RX: Ints | None = None,
        gather_RP: Ints | None = None,
        all_log_probs: bool = False,
    ) -> StepResult:
        """Read one more token per row; see `nmt.search.request.StepModel`."""
        rows, model = len(tokens_R), self.model
        k = min(k, model.vocab_size)
        best_RK, tokens_RK = np.empty((rows, k), np.float32), np.empty((rows, k), np.int32)
        gathered_RP = None if gather_RP is None else np.empty(gather_RP.shape, np.float32)
        log_p_RV = np.empty((rows, model.vocab_size), np.float32) if all_log_probs else None
        if self._track_attention:
            self.attention_RS = np.empty((rows, self._max_tokens), np.float32)
        tokens_R, parents_R = np.ascontiguousarray(tokens_R, np.int32), np.ascontiguousarray(parents_R, np.int32)
        banned_RX, gather_RP = _ints(banned_RX), _ints(gather_RP)
        request = _Request(
            k, 0 if banned_RX is None else banned_RX.shape[1], 0 if gather_RP is None else gather_RP.shape[1],
            _at(banned_RX), _at(gather_RP), _at(best_RK), _at(tokens_RK), _at(gathered_RP), _at(log_p_RV),
            _at(self.attention_RS),
        )  # fmt: skip
        model._check(model.library.decode_step(self._handle, rows, _at(tokens_R), _at(parents_R), request))
        return StepResult(best_RK, tokens_RK, gathered_RP, log_p_RV)


class Matrix:
    """W of y = xWᵀ + b, packed: what the engine's products are measured and tested with."""

    def __init__(self, weight_OI: Floats, bias_O: Floats | None, precision: str) -> None:
        """Pack a matrix."""
        self.outputs, inputs = weight_OI.shape
        self._library = library()
        self._handle = self._library.matrix_new(
            self.outputs, inputs, TYPES.index(precision), _at(weight_OI), _at(bias_O)
        )
        weakref.finalize(self, self._library.model_free, self._handle)

    def multiply(self, x_RI: Floats) -> Floats:
        """Return xWᵀ + b."""
        y_RO = np.empty((len(x_RI), self.outputs), np.float32)
        self._library.matrix_multiply(self._handle, len(x_RI), _at(x_RI), _at(y_RO))
        return y_RO


def supports(config: ModelConfig) -> bool:
    """Return whether the engine computes this network; PyTorch computes the others."""
    return (
        config.arch == "transformer"
        and config.attention_score == "dot"
        and not config.attention_window
        and config.activation in ACTIVATIONS
        and config.norm in ("layer", "rms")
        and parse(config.position_encoding)[0] in POSITIONS
    )


def fastest_precision(config: ModelConfig) -> str:
    """Return which of fp32 and bf16 the engine's own products are faster in, for matrices of these sizes."""
    rows, shape = 96, (config.ffn_dim, config.dim)  # as many rows as go through the layers together
    generator = np.random.default_rng(0)
    weight_OI, x_RI = (generator.standard_normal(size, np.float32) for size in (shape, (rows, config.dim)))

    def multiplies(precision: str) -> Callable[[], object]:
        matrix = Matrix(weight_OI, None, precision)
        return lambda: matrix.multiply(x_RI)

    candidates = {precision: multiplies(precision) for precision in ("fp32", "bf16")}
    task = f"decoding, {rows}x{config.dim}x{config.ffn_dim}"
    return autotune.select_fastest(task, _engine_id(), candidates, 2.0 * rows * config.dim * config.ffn_dim)


def available() -> bool:
    """Return whether the engine is compiled here; the first call on a machine compiles it."""
    return _library()[0] is not None


def problem() -> str:
    """Return why the engine is not available; empty where it is."""
    return _library()[1]


def library() -> ctypes.CDLL:
    """Return the compiled engine, of which `available` holds."""
    loaded = _library()[0]
    assert loaded is not None
    return loaded


def _library() -> tuple[ctypes.CDLL | None, str]:
    return (None, "NMT_ENGINE=0") if os.environ.get("NMT_ENGINE") == "0" else _compiled_library()


@functools.cache
def _compiled_library() -> tuple[ctypes.CDLL | None, str]:
    try:
        compiler, *options = shlex.split(os.environ.get("CC", "")) or ["cc"]
        if not (program := shutil.which(compiler)):
            return _missing(f"there is no C compiler '{compiler}'")
        return _with_signatures(ctypes.CDLL(str(_compiled([program, *FLAGS.split(), *options])))), ""
    except subprocess.SubprocessError:
        return _missing(f"{compiler} cannot compile it")
    # No room, no right to write or to load; no home; a CC that is no command.
    except (OSError, RuntimeError, ValueError, AttributeError) as error:
        return _missing(str(error))


def _missing(reason: str) -> tuple[None, str]:
    log(f"the native engine is not available ({reason}): PyTorch translates, which is slower")
    return None, reason


def _compiled(command: list[str]) -> Path:
    """Return the library, compiled unless this compiler has compiled it for such a processor."""
    library = paths.cache_dir() / f"engine-{_engine_id(*command)}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        number, work = tempfile.mkstemp(suffix=".so", dir=library.parent)
        os.close(number)
        try:
            subprocess.run(
                [*command, str(SOURCE), "-o", work, "-lm"],
                check=True, timeout=COMPILE_SECONDS, stdin=subprocess.DEVNULL, capture_output=True,
            )  # fmt: skip
            os.replace(work, library)  # another process may have compiled it too
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(work)
    return library


@functools.cache
def _engine_id(*command: str) -> str:
    """Return a hash of the engine's source, of the compiler's command and of the processor."""
    identity = (SOURCE.read_text(encoding="utf-8"), command, platform.platform(), cpu_flags())
    return hashlib.sha256(repr(identity).encode()).hexdigest()[:16]


def _with_signatures(loaded: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def cpu_flags() -> str:
    """Return the instruction sets of the processor, as Linux names them; empty elsewhere."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="ignore") as file:
            return next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        return ""


def _at(array: NDArray[Any] | None) -> int | None:
    """Return the address of a contiguous array."""
    if array is None:
        return None
    assert array.flags.c_contiguous
    return array.ctypes.data


def _ints(array: Ints | None) -> Ints | None:
    return None if array is None else np.ascontiguousarray(array, np.int32)
