"""The compiled loops, each against PyTorch; and how they come about, or do without."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from array import array
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt import kernels

compiled = pytest.mark.skipif(not kernels.available(), reason="no C compiler here")
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
types = pytest.mark.parametrize("dtype", kernels.TYPES)


class Target:
    """A memory of two layers, of which the rows of the second are attended from."""

    def __init__(self, dtype: torch.dtype, heads: int, width: int) -> None:
        self.dtype, self.shape = dtype, (heads, width)
        self.blocks: list[Tensor] = []
        self.kept_T, self.rows_T = array("q"), array("q")
        self.from_RT = torch.empty(0)

    def step(self, qkv_R3HK: Tensor) -> Tensor:
        rows, (heads, width) = len(qkv_R3HK), self.shape
        self.blocks.append(torch.full((2, 2, rows, heads, width), math.nan, dtype=self.dtype))
        self.kept_T.append(self.blocks[-1].data_ptr())
        self.rows_T.append(rows)
        own_R1 = torch.arange(rows, dtype=torch.int32)[:, None]
        self.from_RT = torch.cat((self.from_RT, own_R1), 1) if len(self.blocks) > 1 else own_R1
        scratch = torch.empty(heads * (2 * width + len(self.blocks)))
        return kernels.attend_target(1, qkv_R3HK, self.kept_T, self.rows_T, self.from_RT, scratch)

    def select(self, rows_R: Tensor) -> None:
        self.from_RT = self.from_RT[rows_R]


@compiled
@types
@pytest.mark.parametrize(("heads", "width"), [(4, 48), (1, 5), (3, 17)])
def test_attention_to_the_target_follows_rows_where_they_go(dtype: torch.dtype, heads: int, width: int) -> None:
    draw = torch.Generator().manual_seed(0)
    target, kept = Target(dtype, heads, width), torch.empty(6, 0, 2, heads, width)
    for selected in ([0, 0, 1, 2, 2], [4, 3, 3, 1], [2], [0, 0, 0], [1, 2]):
        qkv_R3HK = 3 * torch.randn(len(kept), 3, heads, width, generator=draw).to(dtype)
        kept = torch.cat((kept, qkv_R3HK[:, None, 1:].float()), 1)
        k_RTHK, v_RTHK = kept.unbind(2)
        weights_RHT = torch.einsum("rhk,rthk->rht", qkv_R3HK[:, 0].float() / math.sqrt(width), k_RTHK).softmax(-1)
        wanted_RHK = torch.einsum("rht,rthk->rhk", weights_RHT, v_RTHK)
        found_RHK = target.step(qkv_R3HK)
        assert found_RHK.dtype == dtype
        torch.testing.assert_close(found_RHK.float(), wanted_RHK, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
        assert all(block[0].isnan().all() for block in target.blocks)  # the other layer's
        target.select(torch.tensor(selected))
        kept = kept[selected]


@compiled
@types
@pytest.mark.parametrize("beams", [1, 3])
def test_attention_to_the_source_reads_what_is_no_padding(dtype: torch.dtype, beams: int) -> None:
    draw = torch.Generator().manual_seed(0)
    tokens_B = torch.tensor([19, 1, 7, 0], dtype=torch.int32)
    k_BHSK, v_BHSK = (3 * torch.randn(4, 2, 19, 24, generator=draw).to(dtype) for _ in range(2))
    padding_BS = torch.arange(19) >= tokens_B[:, None]
    for each_BHSK in (k_BHSK, v_BHSK):
        each_BHSK.masked_fill_(padding_BS[:, None, :, None], torch.nan)
    q_RHK = 3 * torch.randn(4 * beams, 2, 24, generator=draw).to(dtype)
    found_RHK = kernels.attend_source(q_RHK, k_BHSK, v_BHSK, tokens_B, torch.empty(2 * 24 + 19))
    for row, found_HK in enumerate(found_RHK.float()):
        end = int(tokens_B[row // beams])
        k_HSK, v_HSK = (each_BHSK[row // beams, :, :end].float() for each_BHSK in (k_BHSK, v_BHSK))
        weights_HS = torch.einsum("hk,hsk->hs", q_RHK[row].float() / math.sqrt(24), k_HSK).softmax(-1)
        wanted_HK = torch.einsum("hs,hsk->hk", weights_HS, v_HSK)
        torch.testing.assert_close(found_HK, wanted_HK, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@compiled
@types
def test_a_row_is_the_same_alone_and_in_company(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    steps = [3 * torch.randn(64, 3, 4, 48, generator=draw).to(dtype) for _ in range(17)]
    together, source_64BSK = Target(dtype, 4, 48), torch.randn(64, 4, 11, 48, generator=draw).to(dtype)
    logits_RV = 5 * torch.randn(64, 1000, generator=draw).to(dtype)
    found = [together.step(qkv_R3HK) for qkv_R3HK in steps]
    tokens_B, scratch = torch.full((64,), 11, dtype=torch.int32), torch.empty(1000)

    def attended(rows: slice) -> Tensor:
        k_BHSK, q_RHK = source_64BSK[rows].contiguous(), steps[0][rows, 0].contiguous()
        return kernels.attend_source(q_RHK, k_BHSK, k_BHSK, tokens_B[rows].contiguous(), scratch)

    def normalised(rows: slice) -> Tensor:
        out_RV = torch.empty_like(logits_RV[rows], dtype=torch.float32)
        kernels.log_softmax(logits_RV[rows], out_RV)
        return out_RV

    for rows in (slice(0, 1), slice(5, 9), slice(63, 64)):
        alone = Target(dtype, 4, 48)
        assert all(
            torch.equal(alone.step(step[rows]), all_RHK[rows]) for step, all_RHK in zip(steps, found, strict=True)
        )
        assert torch.equal(attended(rows), attended(slice(0, 64))[rows])
        assert torch.equal(normalised(rows), normalised(slice(0, 64))[rows])


@compiled
@types
@pytest.mark.parametrize("dim", [1, 5, 16, 200])
def test_layer_norm_is_that_of_pytorch(dtype: torch.dtype, dim: int) -> None:
    draw = torch.Generator().manual_seed(0)
    x_RD = (100 + 3 * torch.randn(7, dim, generator=draw)).to(dtype)
    gain_D, bias_D = (torch.randn(dim, generator=draw).to(dtype) for _ in range(2))
    wanted_RD = torch.layer_norm(x_RD.double(), (dim,), gain_D.double(), bias_D.double(), 1e-5)
    found_RD = kernels.layer_norm(x_RD, gain_D, bias_D, 1e-5)
    assert found_RD.dtype == dtype
    torch.testing.assert_close(found_RD.double(), wanted_RD, atol=TOLERANCE[dtype] * 10, rtol=TOLERANCE[dtype])
    for row in range(7):
        assert torch.equal(kernels.layer_norm(x_RD[row : row + 1], gain_D, bias_D, 1e-5)[0], found_RD[row])


@compiled
@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 4), st.integers(1, 300), st.sampled_from([1.0, 30.0, 1e4]))
def test_log_softmax_is_that_of_pytorch(seed: int, rows: int, vocabulary: int, size: float) -> None:
    logits_RV = size * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))
    logits_RV[logits_RV > 2 * size] = -torch.inf
    logits_RV[:, 0] = 0.0
    for given_RV in (logits_RV.bfloat16(), logits_RV):
        wanted_RV = given_RV.double().log_softmax(-1).float()
        found_RV = torch.empty_like(logits_RV)
        kernels.log_softmax(given_RV, found_RV)
        torch.testing.assert_close(found_RV, wanted_RV, atol=3e-6, rtol=3e-6)


@compiled
@pytest.mark.parametrize("at", [0, 20, 32])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_is_no_number_does_not_vanish(at: int, sign: float) -> None:
    logits_RV = torch.randn(2, 33)
    logits_RV[1, at] = math.copysign(math.nan, sign)
    log_p_RV = torch.empty(2, 33)
    kernels.log_softmax(logits_RV, log_p_RV)
    assert log_p_RV[0].isfinite().all()
    assert log_p_RV[1].isnan().all()
    # A search must see the end that is forced by a length limit, whatever its probability, or it would never end.
    log_p_RV[1] = -torch.inf
    log_p_RV[1, at] = math.copysign(math.nan, sign)
    best_BC, at_BC = kernels.top_k(log_p_RV, 1, torch.zeros(2, 1))
    assert at_BC[1] == at
    assert best_BC[1].isnan()
    half_RHK = torch.full((1, 1, 8), math.copysign(math.nan, sign), dtype=torch.bfloat16)
    k_BHSK, tokens_B = torch.ones(1, 1, 3, 8, dtype=torch.bfloat16), torch.tensor([3], dtype=torch.int32)
    assert kernels.attend_source(half_RHK, k_BHSK, k_BHSK, tokens_B, torch.empty(19)).isnan().all()


@compiled
def test_of_equal_scores_the_first_comes_first() -> None:
    scores_RV = torch.zeros(4, 300)
    scores_RV[1, [7, 299]] = scores_RV[0, 130] = 1.0
    _, at_BC = kernels.top_k(scores_RV, 5, torch.zeros(2, 2))
    assert at_BC.tolist() == [[130, 307, 599, 0, 1], [0, 1, 2, 3, 4]]


@compiled
def test_bf16_is_rounded_to_the_nearest_and_ties_to_even() -> None:
    draw = torch.Generator().manual_seed(0)
    v_BHSK = (100 * torch.randn(1, 1, 2, 4096, generator=draw)).bfloat16()
    zero_RHK = torch.zeros(1, 1, 4096, dtype=torch.bfloat16)  # so that each weighs a half
    mean_HK = kernels.attend_source(
        zero_RHK, v_BHSK, v_BHSK, torch.tensor([2], dtype=torch.int32), torch.empty(2 * 4096 + 2)
    )[0]
    assert torch.equal(mean_HK[0], v_BHSK[0, 0].float().mean(0).bfloat16())


ASKED = """
import torch
from nmt import kernels
from nmt.search.candidates import top_k
print(kernels.available(), top_k(torch.tensor([[0.0, 2.0, 1.0]]), 2)[1].tolist())
"""


def asked(cache: Path, **environment: str) -> str:
    """What a process of its own says, which keeps what it compiles in `cache`."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache), **environment}
    done = subprocess.run([sys.executable, "-c", ASKED], env=variables, capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout.strip()


@compiled
def test_loops_are_compiled_once_and_where_several_start_at_once_each_has_them(tmp_path: Path) -> None:
    variables = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    several = [
        subprocess.Popen([sys.executable, "-c", ASKED], env=variables, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate()[0].strip() for process in several] == ["True [[1, 2]]"] * 3
    (library,) = tmp_path.glob("nmt/*")
    written = library.stat().st_mtime_ns
    assert asked(tmp_path) == "True [[1, 2]]"
    assert library.stat().st_mtime_ns == written


@pytest.mark.parametrize("compiler", ["no-such-compiler", "false", "", "sleep 1 #", "cc 'unended"])
def test_without_a_compiler_that_works_it_is_done_by_pytorch(compiler: str, tmp_path: Path) -> None:
    off = {"NMT_KERNELS": "0"} if not compiler else {}
    assert asked(tmp_path, CC=compiler, **off) == "False [[1, 2]]"
    assert not list(tmp_path.glob("nmt/*"))


def test_where_nothing_can_be_kept_it_is_done_by_pytorch(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert asked(tmp_path / "file") == "False [[1, 2]]"


def test_without_a_home_it_is_done_by_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert kernels._library.__wrapped__() is None


def test_another_compiler_or_source_is_another_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    copy = tmp_path / "kernels.c"
    copy.write_text(kernels.SOURCE.read_text())
    compiler = ["sh", "-c", 'while [ "$1" != -o ]; do shift; done; echo made > "$2"', "sh"]
    first = kernels._compiled(compiler)
    assert first.read_text() == "made\n"
    assert kernels._compiled(compiler) == first
    monkeypatch.setattr(kernels, "SOURCE", copy)
    assert kernels._compiled(compiler) == first
    copy.write_text("another")
    second = kernels._compiled(compiler)
    assert len({first, second, kernels._compiled([*compiler, "-O2"])}) == 3
    monkeypatch.setattr(kernels.runtime, "cpu_flags", lambda: "another processor")
    assert kernels._compiled(compiler) != second
