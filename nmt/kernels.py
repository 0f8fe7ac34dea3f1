"""Loops that are compiled: what takes PyTorch many operations in a step of a search, by the C compiler of the machine.

Where there is no compiler, all is done by PyTorch, with the same results up to rounding, only slower. What is compiled
is kept in `$XDG_CACHE_HOME/nmt` or `~/.cache/nmt`; NMT_KERNELS=0 does without.

Shape letters: B sentences, S source tokens, W rows (beams) per sentence, R = B*W rows, T target positions, H heads, K
head width, V vocabulary, C candidates.
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
from torch import Tensor

from nmt import paths, runtime

SOURCE = Path(__file__).with_suffix(".c")
# Nothing here lets sums change their order, or take infinity and NaN for numbers.
FLAGS = "-std=c11 -O3 -march=native -ffp-contract=fast -fno-trapping-math -fno-math-errno -shared -fPIC"
SECONDS = 60
"""After which a compiler is given up."""
TYPES = (torch.float32, torch.bfloat16)
"""What the loops can read."""
_SIGNATURES = {
    "attend_target": [*[c_int64] * 5, *[c_void_p] * 6, c_int],
    "attend_source": [*[c_int64] * 5, *[c_void_p] * 6, c_int],
    "layer_norm": [*[c_int64] * 2, *[c_void_p] * 3, c_float, c_void_p, c_int],
    "log_softmax": [*[c_int64] * 2, *[c_void_p] * 2, c_int],
    "top_k": [*[c_int64] * 4, *[c_void_p] * 4],
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
        scratch: float32, room for 2·H·K + H·T.
    """
    rows, _, heads, width = qkv_R3HK.shape
    seen_RHK = qkv_R3HK.new_empty(rows, heads, width)
    assert qkv_R3HK.is_contiguous()
    assert from_RT.is_contiguous()
    assert scratch.numel() >= heads * (2 * width + len(kept_T))
    _loaded().attend_target(
        layer, rows, len(kept_T), heads, width, qkv_R3HK.data_ptr(), kept_T.buffer_info()[0],
        rows_T.buffer_info()[0], from_RT.data_ptr(), seen_RHK.data_ptr(), scratch.data_ptr(), _is_half(qkv_R3HK),
    )  # fmt: skip
    return seen_RHK


def attend_source(q_RHK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor, tokens_B: Tensor, scratch: Tensor) -> Tensor:
    """Return what each row gathers of its sentence's source, [R, H, K]: softmax(qk'/√K)v.

    Args:
        q_RHK: queries.
        k_BHSK: keys, of the same type.
        v_BHSK: values.
        tokens_B: int32; the source's tokens, which stand before any padding.
        scratch: float32, room for 2·K + S.
    """
    rows, heads, width = q_RHK.shape
    sentences, _, tokens, _ = k_BHSK.shape
    seen_RHK = torch.empty_like(q_RHK)
    assert q_RHK.is_contiguous()
    assert k_BHSK.is_contiguous()
    assert v_BHSK.is_contiguous()
    assert k_BHSK.dtype == v_BHSK.dtype == q_RHK.dtype
    assert scratch.numel() >= 2 * width + tokens
    _loaded().attend_source(
        sentences, rows // max(1, sentences), heads, tokens, width, q_RHK.data_ptr(), k_BHSK.data_ptr(),
        v_BHSK.data_ptr(), tokens_B.data_ptr(), seen_RHK.data_ptr(), scratch.data_ptr(), _is_half(q_RHK),
    )  # fmt: skip
    return seen_RHK


def layer_norm(x_RD: Tensor, gain_D: Tensor, bias_D: Tensor, epsilon: float) -> Tensor:
    """Return (x - mean) / √(variance + ε) times the gain, and the bias added (Ba et al. 2016, equation 4)."""
    out_RD = torch.empty_like(x_RD)
    assert x_RD.is_contiguous()
    assert x_RD.dtype == gain_D.dtype == bias_D.dtype
    _loaded().layer_norm(
        *x_RD.shape, x_RD.data_ptr(), gain_D.data_ptr(), bias_D.data_ptr(), epsilon, out_RD.data_ptr(), _is_half(x_RD)
    )
    return out_RD


def log_softmax(logits_RV: Tensor, out_RV: Tensor) -> None:
    """Put the log-softmax of logits into `out_RV`, which is float32 and not the same."""
    assert logits_RV.is_contiguous()
    assert out_RV.is_contiguous()
    assert out_RV.dtype == torch.float32
    assert out_RV.shape == logits_RV.shape
    _loaded().log_softmax(*logits_RV.shape, logits_RV.data_ptr(), out_RV.data_ptr(), _is_half(logits_RV))


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
        function.argtypes, function.restype = arguments, None
    return library
