"""What is compiled, by the C compiler of the machine: the loops of a search's step, and its products.

Where there is no compiler, all is done by PyTorch, with the same results up to rounding, only slower. What is compiled
is kept in `$XDG_CACHE_HOME/nmt` or `~/.cache/nmt`; NMT_KERNELS=0 does without.

Shape letters: B sentences, N sources, S source tokens, W rows (beams) per sentence, R = B*W rows, T target positions, H
heads, K head width, V vocabulary, C candidates, I inputs and O outputs of a matrix.
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
from array import array
from ctypes import c_float, c_int, c_int64, c_void_p
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from nmt import paths, runtime

SOURCE = Path(__file__).with_suffix(".c")
# Nothing here lets sums change their order, or take infinity and NaN for numbers.
FLAGS = "-std=c11 -O3 -march=native -ffp-contract=fast -fno-trapping-math -fno-math-errno -shared -fPIC"
SECONDS = 60
"""After which a compiler is given up."""
TYPES = (torch.float32, torch.bfloat16)
"""What the loops can read."""
MOST_LANES = 16
"""Of a vector; rooms are rounded up to whole ones."""
PRODUCTS = (*TYPES, torch.int8)
"""What a matrix may be kept in, in the order in which kernels.c numbers them."""
_SIGNATURES = {
    "attend_target": [*[c_int64] * 5, *[c_void_p] * 6, c_int],
    "attend_source": [*[c_int64] * 5, *[c_void_p] * 7, c_int],
    "attend_within": [*[c_int64] * 4, *[c_void_p] * 4, c_int],
    "layer_norm": [*[c_int64] * 2, *[c_void_p] * 3, c_float, c_void_p, c_int],
    "log_softmax": [*[c_int64] * 2, c_void_p],
    "top_k": [*[c_int64] * 4, *[c_void_p] * 4],
    "linear": [*[c_int64] * 3, *[c_void_p] * 5, *[c_int] * 3],
    "linear_int8": [*[c_int64] * 3, *[c_void_p] * 5, c_int, *[c_void_p] * 4],
    "multiplies": [c_int],
    "lanes": [],
    "block": [],
}


def available() -> bool:
    """Say whether there are compiled loops; the first time in a machine, they are compiled."""
    return _library() is not None


def attend_target(
    layer: int, qkv_R3HK: Tensor, kept_T: array[int], rows_T: array[int], from_RT: Tensor, scratch: Tensor
) -> Tensor:
    """Return what one new position of each row gathers of the target so far, itself included, [R, H, K].

    That is softmax(qk'/√K)v (Vaswani et al. 2017, equation 1).

    Args:
        layer: whose keys and values to read and add to.
        qkv_R3HK: the new positions' queries, keys and values.
        kept_T: addresses of the steps' keys and values, [layers, 2, rows, H, K] each; the new ones are put into the
            last.
        rows_T: how many rows each step had.
        from_RT: int32; in which row of each step a row's past lies.
        scratch: float32, room for 2·H·K + H·T, T rounded up to whole vectors.
    """
    rows, _, heads, width = qkv_R3HK.shape
    seen_RHK = qkv_R3HK.new_empty(rows, heads, width)
    assert qkv_R3HK.is_contiguous()
    assert from_RT.is_contiguous()
    assert scratch.numel() >= heads * (2 * width + filled(len(kept_T)))
    _loaded().attend_target(
        layer, rows, len(kept_T), heads, width, qkv_R3HK.data_ptr(), kept_T.buffer_info()[0],
        rows_T.buffer_info()[0], from_RT.data_ptr(), seen_RHK.data_ptr(), scratch.data_ptr(), _is_half(qkv_R3HK),
    )  # fmt: skip
    return seen_RHK


def attend_source(
    q_RHK: Tensor, k_NHSK: Tensor, v_NHSK: Tensor, tokens_N: Tensor, from_B: Tensor, scratch: Tensor
) -> Tensor:
    """Return what each row gathers of its sentence's source, [R, H, K]: softmax(qk'/√K)v.

    Args:
        q_RHK: queries.
        k_NHSK: keys, of the same type.
        v_NHSK: values.
        tokens_N: int32; the sources' tokens, which stand before any padding.
        from_B: int32; which source each sentence reads.
        scratch: float32, room for 2·K + S, S rounded up to whole vectors.
    """
    rows, heads, width = q_RHK.shape
    sentences, tokens = len(from_B), k_NHSK.shape[2]
    seen_RHK = torch.empty_like(q_RHK)
    assert q_RHK.is_contiguous()
    assert k_NHSK.is_contiguous()
    assert v_NHSK.is_contiguous()
    assert k_NHSK.dtype == v_NHSK.dtype == q_RHK.dtype
    assert scratch.numel() >= 2 * width + filled(tokens)
    _loaded().attend_source(
        sentences, rows // max(1, sentences), heads, tokens, width, q_RHK.data_ptr(), k_NHSK.data_ptr(),
        v_NHSK.data_ptr(), tokens_N.data_ptr(), from_B.data_ptr(), seen_RHK.data_ptr(), scratch.data_ptr(),
        _is_half(q_RHK),
    )  # fmt: skip
    return seen_RHK


def attend_within(qkv_BS3HK: Tensor, tokens_B: Tensor) -> Tensor:
    """Return what each token of a source gathers of all of it, [B, S, H, K]: softmax(qk'/√K)v; zero for padding.

    Args:
        qkv_BS3HK: queries, keys and values.
        tokens_B: int32; the source's tokens, which stand before any padding.
    """
    sentences, tokens, _, heads, width = qkv_BS3HK.shape
    seen_BSHK = qkv_BS3HK.new_empty(sentences, tokens, heads, width)
    scratch = torch.empty(filled(tokens) * (1 + width + filled(width)))
    assert qkv_BS3HK.is_contiguous()
    _loaded().attend_within(
        sentences, tokens, heads, width, qkv_BS3HK.data_ptr(), tokens_B.data_ptr(), seen_BSHK.data_ptr(),
        scratch.data_ptr(), _is_half(qkv_BS3HK),
    )  # fmt: skip
    return seen_BSHK


def layer_norm(x_RD: Tensor, gain_D: Tensor, bias_D: Tensor, epsilon: float) -> Tensor:
    """Return (x - mean) / √(variance + ε) times the gain, and the bias added (Ba et al. 2016, equation 4).

    x may have more dimensions; its last is normalised.
    """
    out_RD = torch.empty_like(x_RD)
    dim = len(gain_D)
    assert x_RD.is_contiguous()
    assert x_RD.dtype == gain_D.dtype == bias_D.dtype
    _loaded().layer_norm(
        x_RD.numel() // dim,
        dim,
        x_RD.data_ptr(),
        gain_D.data_ptr(),
        bias_D.data_ptr(),
        epsilon,
        out_RD.data_ptr(),
        _is_half(x_RD),
    )  # fmt: skip
    return out_RD


def log_softmax(x_RV: Tensor) -> None:
    """Make log-probabilities of logits, in float32, where they stand."""
    assert x_RV.is_contiguous()
    assert x_RV.dtype == torch.float32
    _loaded().log_softmax(*x_RV.shape, x_RV.data_ptr())


def top_k(scores_RV: Tensor, candidates: int, before_BW: Tensor) -> tuple[Tensor, Tensor]:
    """Do as `nmt.search.candidates.top_k`: of equal ones the first comes first, and NaN before all else."""
    sentences, width = before_BW.shape
    vocabulary = scores_RV.shape[1]
    candidates = min(candidates, width * vocabulary)
    best_BC = scores_RV.new_empty(sentences, candidates)
    at_BC = torch.empty(sentences, candidates, dtype=torch.long)
    before_BW = before_BW.contiguous()
    assert scores_RV.is_contiguous()
    assert scores_RV.dtype == before_BW.dtype == torch.float32
    _loaded().top_k(
        sentences, width, vocabulary, candidates, scores_RV.data_ptr(), before_BW.data_ptr(), best_BC.data_ptr(),
        at_BC.data_ptr(),
    )  # fmt: skip
    return best_BC, at_BC


class Matrix:
    """W of y = xWᵀ + b, laid out for `kernels.c`.

    In int8 each row of W has a scale of its own, and so has each row of x, which is rounded as it comes.
    """

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None, dtype: torch.dtype) -> None:
        """Lay out a matrix of which `can_multiply` holds."""
        assert can_multiply(weight_OI, dtype)
        library = _loaded()
        lanes, filling = library.lanes(), -len(weight_OI) % library.block()
        self.dtype, (self.outputs, self.inputs) = dtype, weight_OI.shape
        weight_OI = F.pad(weight_OI.detach().float(), (0, 0, 0, filling))
        self._bias_O = None if bias_O is None else F.pad(bias_O.detach().float(), (0, filling))
        if dtype == torch.int8:
            self._scale_O = weight_OI.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
            weight_OI = (weight_OI / self._scale_O[:, None]).round()
            self._sum_O = 128 * weight_OI.sum(1).int()
        each = 4 // dtype.itemsize
        blocks = weight_OI.to(dtype).view(-1, lanes, weight_OI.shape[1] // each, each)
        self._blocks = blocks.transpose(1, 2).contiguous()

    def product(
        self, x_RI: Tensor, *, relu: bool = False, plus_RO: Tensor | None = None, out_RO: Tensor | None = None
    ) -> Tensor:
        """Return xWᵀ + b, or the larger of that and 0; `plus_RO` is added to it, of the result's type.

        x is of the matrix's type, or of float32 if that is int8; so is the result, unless `out_RO`, where it is put
        then, is float32.
        """
        rows, inputs = x_RI.shape
        if out_RO is None:
            out_RO = x_RI.new_empty(rows, self.outputs)
        assert x_RI.dtype == (torch.float32 if self.dtype == torch.int8 else self.dtype)
        assert x_RI.is_contiguous()
        assert out_RO.is_contiguous()
        assert inputs == self.inputs
        if plus_RO is not None:
            assert plus_RO.is_contiguous()
            assert (plus_RO.dtype, plus_RO.shape) == (out_RO.dtype, out_RO.shape)
        of_all = (
            rows, inputs, self.outputs, x_RI.data_ptr(), self._blocks.data_ptr(),
            None if self._bias_O is None else self._bias_O.data_ptr(),
            None if plus_RO is None else plus_RO.data_ptr(), out_RO.data_ptr(), relu,
        )  # fmt: skip
        if self.dtype == torch.int8:
            whole_RI, scale_R = torch.empty((rows, inputs), dtype=torch.uint8), torch.empty(rows)
            _loaded().linear_int8(
                *of_all, self._scale_O.data_ptr(), self._sum_O.data_ptr(), whole_RI.data_ptr(), scale_R.data_ptr()
            )
        else:
            _loaded().linear(*of_all, _is_half(out_RO), _is_half(x_RI))
        return out_RO


def can_multiply(weight_OI: Tensor, dtype: torch.dtype) -> bool:
    """Say whether there are compiled products with this matrix in that type: its inputs fill whole words of 32 bits."""
    if not available() or dtype not in PRODUCTS or weight_OI.device.type != "cpu":
        return False
    return weight_OI.shape[1] % (4 // dtype.itemsize) == 0 and bool(_loaded().multiplies(PRODUCTS.index(dtype)))


def filled(count: int) -> int:
    """Return how many numbers whole vectors have that hold `count`."""
    return -(-count // MOST_LANES) * MOST_LANES


def _is_half(x: Tensor) -> bool:
    assert x.dtype in TYPES
    return x.dtype == torch.bfloat16


def _loaded() -> ctypes.CDLL:
    library = _library()
    assert library is not None
    return library


@functools.cache
def _library() -> ctypes.CDLL | None:
    if os.environ.get("NMT_KERNELS") == "0":
        return None
    try:
        compiler, *options = shlex.split(os.environ.get("CC", "")) or ["cc"]
        if not (program := shutil.which(compiler)):
            return None
        return _with_signatures(ctypes.CDLL(str(_compiled([program, *options, *FLAGS.split()]))))
    # No room, no right to write or to load, a compiler of another kind; no home; a CC that is no command.
    except (OSError, subprocess.SubprocessError, RuntimeError, ValueError):
        return None


def _compiled(command: list[str]) -> Path:
    """Return the library, compiled unless it has been on such a processor, by such a compiler."""
    made_by = (SOURCE.read_text(encoding="utf-8"), command, platform.platform(), runtime.cpu_flags())
    name = hashlib.sha256(repr(made_by).encode()).hexdigest()[:16]
    library = paths.cache_dir() / f"kernels-{name}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        number, work = tempfile.mkstemp(suffix=".so", dir=library.parent)
        os.close(number)
        try:
            subprocess.run(
                [*command, str(SOURCE), "-o", work, "-lm"],
                check=True, timeout=SECONDS, stdin=subprocess.DEVNULL, capture_output=True,
            )  # fmt: skip
            os.replace(work, library)  # another process may have made the same
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(work)
    return library


def _with_signatures(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, arguments in _SIGNATURES.items():
        function = getattr(library, name)
        function.argtypes = arguments
    return library
