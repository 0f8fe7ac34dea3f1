"""The compiled loops, each against PyTorch; and how they come about, or do without."""

from __future__ import annotations

import math
import os
import platform
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
        scratch = torch.empty(heads * (2 * width + kernels.filled(len(self.blocks))))
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
    from_B = torch.tensor([0, 3, 2, 2], dtype=torch.int32)
    found_RHK = kernels.attend_source(q_RHK, k_BHSK, v_BHSK, tokens_B, from_B, torch.empty(2 * 24 + 32))
    for row, found_HK in enumerate(found_RHK.float()):
        at = int(from_B[row // beams])
        k_HSK, v_HSK = (each_BHSK[at, :, : int(tokens_B[at])].float() for each_BHSK in (k_BHSK, v_BHSK))
        weights_HS = torch.einsum("hk,hsk->hs", q_RHK[row].float() / math.sqrt(24), k_HSK).softmax(-1)
        wanted_HK = torch.einsum("hs,hsk->hk", weights_HS, v_HSK)
        torch.testing.assert_close(found_HK, wanted_HK, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@compiled
@types
@pytest.mark.parametrize(("heads", "width"), [(4, 48), (1, 5), (3, 17)])
def test_attention_within_the_source_reads_what_is_no_padding(dtype: torch.dtype, heads: int, width: int) -> None:
    draw = torch.Generator().manual_seed(0)
    tokens_B = torch.tensor([33, 1, 7, 0, 16], dtype=torch.int32)
    qkv_BS3HK = 3 * torch.randn(5, 33, 3, heads, width, generator=draw).to(dtype)
    for tokens, qkv_S3HK in zip(tokens_B.tolist(), qkv_BS3HK, strict=True):
        qkv_S3HK[tokens:] = torch.nan
    found_BSHK = kernels.attend_within(qkv_BS3HK, tokens_B)
    assert found_BSHK.dtype == dtype
    for number, tokens in enumerate(tokens_B.tolist()):
        q_SHK, k_SHK, v_SHK = qkv_BS3HK[number, :tokens].float().unbind(1)
        weights_HQS = torch.einsum("qhk,shk->hqs", q_SHK / math.sqrt(width), k_SHK).softmax(-1)
        wanted_SHK = torch.einsum("hqs,shk->qhk", weights_HQS, v_SHK)
        found_SHK = found_BSHK[number].float()
        torch.testing.assert_close(found_SHK[:tokens], wanted_SHK, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])
        assert not found_SHK[tokens:].any()
        alone_SHK = kernels.attend_within(qkv_BS3HK[number : number + 1, :tokens], tokens_B[number : number + 1])[0]
        assert torch.equal(alone_SHK.float(), found_SHK[:tokens])


@compiled
@types
def test_scores_that_are_all_far_below_zero_weigh_alike(dtype: torch.dtype) -> None:
    v_SK = torch.randn(1, 1, 5, 16).to(dtype)
    q_SK, k_SK = torch.full_like(v_SK, 20.0), torch.full_like(v_SK, -20.0)  # each score is -1600
    wanted_K = v_SK.float().mean((0, 1, 2)).to(dtype)
    five, zero = torch.tensor([5], dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    within = kernels.attend_within(torch.stack((q_SK, k_SK, v_SK), 3)[0, 0][None, :, :, None], five)
    source = kernels.attend_source(q_SK[:, :, 0], k_SK, v_SK, five, zero, torch.empty(48))
    target = Target(dtype, 1, 16)
    for t in range(5):
        last = target.step(torch.stack((q_SK[0, 0, t], k_SK[0, 0, t], v_SK[0, 0, t]))[None, :, None])
    for found_XK in (within.flatten(0, -2), source[0], last[0]):
        torch.testing.assert_close(found_XK, wanted_K.expand_as(found_XK))


products = pytest.mark.parametrize("dtype", kernels.PRODUCTS)


def multiplicands(rows: int, inputs: int, outputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """An x, a W with rows of all sizes, a b, and what is to be added; skips where that type is not multiplied here."""
    draw = torch.Generator().manual_seed(rows + inputs + outputs)
    size_O1 = 10.0 ** torch.linspace(-3, 3, outputs)[:, None]
    weight_OI = (size_O1 * torch.randn(outputs, inputs, generator=draw)).to(given_to(dtype))
    if not kernels.can_multiply(weight_OI, dtype):
        pytest.skip("this processor does not multiply them")
    x_RI, plus_RO = (torch.randn(rows, n, generator=draw).to(given_to(dtype)) for n in (inputs, outputs))
    return x_RI, weight_OI, torch.randn(outputs, generator=draw).to(given_to(dtype)), plus_RO


def given_to(dtype: torch.dtype) -> torch.dtype:
    """The type of what a matrix of that type multiplies."""
    return torch.float32 if dtype == torch.int8 else dtype


def product(x_RI: Tensor, weight_OI: Tensor, dtype: torch.dtype) -> Tensor:
    """xWᵀ in float64, of what is rounded to whole numbers where that is how it is multiplied."""
    if dtype != torch.int8:
        return x_RI.double() @ weight_OI.double().t()
    most_R1, scale_O1 = x_RI.abs().amax(1, keepdim=True), weight_OI.abs().amax(1, keepdim=True) / 127
    whole_RI, whole_OI = (x_RI * (127 / most_R1)).round(), (weight_OI / scale_O1).round()
    return (whole_RI.double() @ whole_OI.double().t()) * (most_R1 / 127) * scale_O1.t()


@compiled
@products
@pytest.mark.parametrize(("inputs", "outputs"), [(4, 1), (192, 64), (20, 65), (768, 191), (64, 1000)])
def test_products_are_those_of_the_type(dtype: torch.dtype, inputs: int, outputs: int) -> None:
    for rows in (0, 1, 2, 3, 4, 5, 6, 7, 11, 12, 40):
        x_RI, weight_OI, bias_O, plus_RO = multiplicands(rows, inputs, outputs, dtype)
        bare, biased = kernels.Matrix(weight_OI, None, dtype), kernels.Matrix(weight_OI, bias_O, dtype)
        size_O = weight_OI.double().abs().amax(1) + 1
        wanted_RO = product(x_RI, weight_OI, dtype)
        share = 1e-2 if dtype == torch.bfloat16 else 1e-5

        def check(found_RO: Tensor, wanted_RO: Tensor, share: float = share, size_O: Tensor = size_O) -> None:
            torch.testing.assert_close(found_RO.double() / size_O, wanted_RO / size_O, atol=20 * share, rtol=share)

        assert bare.product(x_RI).dtype == x_RI.dtype
        check(bare.product(x_RI), wanted_RO)
        check(biased.product(x_RI), wanted_RO + bias_O)
        check(biased.product(x_RI, relu=True), (wanted_RO + bias_O).relu())
        check(biased.product(x_RI, plus_RO=plus_RO), wanted_RO + bias_O + plus_RO)
        out_RO = torch.full((rows, outputs), torch.nan)
        assert biased.product(x_RI, out_RO=out_RO) is out_RO
        check(out_RO, wanted_RO + bias_O, 1e-5)


@compiled
@products
def test_a_rows_product_is_the_same_alone_and_in_company(dtype: torch.dtype) -> None:
    x_RI, weight_OI, bias_O, _ = multiplicands(29, 48, 100, dtype)
    x_RI[3] *= 1000
    matrix = kernels.Matrix(weight_OI, bias_O, dtype)
    together_RO = matrix.product(x_RI)
    for first in range(29):
        for rows in (1, 2, 3, 5, 7):
            some = slice(first, first + rows)
            assert torch.equal(matrix.product(x_RI[some]), together_RO[some])


@compiled
@products
@pytest.mark.parametrize("value", [math.nan, -math.nan, math.inf])
def test_what_is_no_number_does_not_vanish_in_products(dtype: torch.dtype, value: float) -> None:
    x_RI, weight_OI, bias_O, _ = multiplicands(7, 32, 70, dtype)
    x_RI[2, 17] = value
    found_RO = kernels.Matrix(weight_OI, bias_O, dtype).product(x_RI, relu=not math.isinf(value))
    assert found_RO.isfinite().all(1).tolist() == [True, True, False, True, True, True, True]
    assert not found_RO[2].isfinite().any()


@compiled
@products
def test_a_row_of_zeros_makes_the_bias(dtype: torch.dtype) -> None:
    _, weight_OI, bias_O, _ = multiplicands(1, 32, 70, dtype)
    zero_RI = torch.zeros(3, 32, dtype=given_to(dtype))
    assert torch.equal(kernels.Matrix(weight_OI, bias_O, dtype).product(zero_RI), bias_O.expand(3, -1))
    zero_OI = torch.zeros_like(weight_OI)
    assert not kernels.Matrix(zero_OI, None, dtype).product(zero_RI + 1).any()


@compiled
def test_matrices_whose_rows_fill_no_whole_words_are_left_to_pytorch() -> None:
    assert kernels.can_multiply(torch.ones(2, 7), torch.float32)
    assert not kernels.can_multiply(torch.ones(2, 7), torch.bfloat16)
    assert not kernels.can_multiply(torch.ones(2, 6), torch.int8)
    assert not kernels.can_multiply(torch.ones(2, 8), torch.float16)


@compiled
@types
def test_a_row_is_the_same_alone_and_in_company(dtype: torch.dtype) -> None:
    draw = torch.Generator().manual_seed(0)
    steps = [3 * torch.randn(64, 3, 4, 48, generator=draw).to(dtype) for _ in range(17)]
    together, source_64BSK = Target(dtype, 4, 48), torch.randn(64, 4, 11, 48, generator=draw).to(dtype)
    logits_RV = 5 * torch.randn(64, 1000, generator=draw)
    found = [together.step(qkv_R3HK) for qkv_R3HK in steps]
    tokens_B, scratch = torch.full((64,), 11, dtype=torch.int32), torch.empty(1000)

    def attended(rows: slice) -> Tensor:
        k_BHSK, q_RHK = source_64BSK[rows].contiguous(), steps[0][rows, 0].contiguous()
        from_B = torch.arange(len(k_BHSK), dtype=torch.int32)
        return kernels.attend_source(q_RHK, k_BHSK, k_BHSK, tokens_B[rows].contiguous(), from_B, scratch)

    def normalised(rows: slice) -> Tensor:
        log_p_RV = logits_RV[rows].clone()
        kernels.log_softmax(log_p_RV)
        return log_p_RV

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
    wanted_RV = logits_RV.double().log_softmax(-1).float()
    kernels.log_softmax(logits_RV)
    torch.testing.assert_close(logits_RV, wanted_RV, atol=3e-6, rtol=3e-6)


@compiled
@pytest.mark.parametrize("at", [0, 20, 32, 200, 299])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_what_is_no_number_does_not_vanish(at: int, sign: float) -> None:
    log_p_RV = torch.randn(2, 33 if at < 33 else 300)
    log_p_RV[1, at] = math.copysign(math.nan, sign)
    kernels.log_softmax(log_p_RV)
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
    from_B, scratch = torch.zeros(1, dtype=torch.int32), torch.empty(32)
    assert kernels.attend_source(half_RHK, k_BHSK, k_BHSK, tokens_B, from_B, scratch).isnan().all()


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
    tokens_B, from_B = torch.tensor([[2], [0]], dtype=torch.int32)
    scratch = torch.empty(2 * 4096 + 16)
    mean_HK = kernels.attend_source(zero_RHK, v_BHSK, v_BHSK, tokens_B, from_B, scratch)[0]
    assert torch.equal(mean_HK[0], v_BHSK[0, 0].float().mean(0).bfloat16())


ASKED = """
import torch
from nmt import kernels
from nmt.search.candidates import top_k
print(kernels.available(), top_k(torch.tensor([[0.0, 2.0, 1.0]]), 2)[1].tolist())
"""


def asked(cache: Path, code: str = ASKED, **environment: str) -> str:
    """What a process of its own says, which keeps what it compiles in `cache`."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
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


OLDER = """
import torch
from nmt import kernels
from nmt.model.packed import packer
torch.manual_seed(0)
weight_OI, bias_O, x_RI = torch.randn(70, 48), torch.randn(70), torch.randn(13, 48)
qkv_BS3HK, tokens_B = torch.randn(1, 19, 3, 2, 24), torch.tensor([19], dtype=torch.int32)
q_HSK, k_HSK, v_HSK = qkv_BS3HK[0].permute(1, 2, 0, 3)
wanted_HSK = torch.nn.functional.scaled_dot_product_attention(q_HSK, k_HSK, v_HSK)
torch.testing.assert_close(kernels.attend_within(qkv_BS3HK, tokens_B)[0].transpose(0, 1), wanted_HSK)
for dtype, share in zip(kernels.PRODUCTS, (1e-5, 0.05, 0.2)):
    linear = packer(dtype)(weight_OI if dtype == torch.int8 else weight_OI.to(dtype), bias_O)
    found_RO = linear(x_RI if dtype == torch.int8 else x_RI.to(dtype)).float()
    torch.testing.assert_close(found_RO, x_RI @ weight_OI.t() + bias_O, atol=10 * share, rtol=share)
    print(type(linear).__name__)
"""


@compiled
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the options are those of x86")
@pytest.mark.parametrize("lacks", ["-mno-avx512f", "-mno-avx", "-mamx-bf16 -mno-avx512vnni"])
def test_what_a_processor_does_not_multiply_is_left_to_pytorch(lacks: str, tmp_path: Path) -> None:
    bias = "bias_O.bfloat16() if dtype == torch.bfloat16 else bias_O"
    said = asked(tmp_path, OLDER.replace("dtype), bias_O)", f"dtype), {bias})"), CC=f"cc {lacks}").split()
    assert said == ["CompiledLinear", "PackedLinear", "Int8Linear"]


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
