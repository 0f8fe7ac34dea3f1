"""Position encodings compared with their published formulas."""

from __future__ import annotations

import copy
import dataclasses
import math
from typing import Any

import pytest
import torch
from test_model import TINY, VOCABULARY
from torch import Tensor

from nmt.core.errors import ConfigError, UsageError
from nmt.model.build import build_model, check_model
from nmt.model.position_formulas import alibi_slopes
from nmt.model.positions import POSITION_ENCODINGS, PositionEncoding, PositionInput, StackSpec
from nmt.model.positions.absolute import (
    ConcatenatedSinusoidal,
    Floater,
    Learned,
    Sinusoidal,
    sinusoids,
)
from nmt.model.positions.base import distances
from nmt.model.positions.relative import T5, ALiBi, Rotary

WIDE = StackSpec(dim=16, heads=4, layers=2)
RELATIVE = [
    name
    for name in POSITION_ENCODINGS
    if name in ("rotary", "shaw", "transformer_xl", "t5", "deberta", "alibi")
]


def made(name: str, stack: StackSpec = WIDE, **options: Any) -> PositionEncoding:
    """Return an encoding with random parameters."""
    torch.manual_seed(0)
    positions = POSITION_ENCODINGS[name](stack, **options)
    with torch.no_grad():
        for parameter in positions.parameters():
            parameter.normal_(std=0.5)
    return positions.eval()


def scores(positions: PositionEncoding, q_BHQK: Tensor, k_BHSK: Tensor, start: int = 0) -> Tensor:
    """Return the scores of queries at start, start+1, ... and keys at 0, 1, ..., as attention
    computes them."""
    position = PositionInput(positions, 1, start)
    q = positions.rotate(q_BHQK.transpose(1, 2), start).transpose(1, 2) / math.sqrt(
        positions.num_score_terms * q_BHQK.shape[-1]
    )
    k = positions.rotate(k_BHSK.transpose(1, 2), 0).transpose(1, 2)
    bias = position.attention_bias(q, k)
    return q @ k.transpose(-1, -2) + (0.0 if bias is None else bias)


def test_sinusoids_match_the_paper_at_all_positions() -> None:
    table_TD = sinusoids(50, 8)
    for position in (0, 3, 49):
        for i in range(4):
            angle = position / 10_000 ** (2 * i / 8)
            assert table_TD[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table_TD[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)
    positions = Sinusoidal(StackSpec(8, 2, 1))
    far_BTD = positions.add_positions(torch.zeros(1, 3, 8), 0, start=5000)
    torch.testing.assert_close(far_BTD[0], sinusoids(5003, 8)[5000:])
    assert positions.add_positions(far_BTD, 1, start=0) is far_BTD


def test_concatenated_sinusoids_are_sines_then_cosines() -> None:
    table_TD = ConcatenatedSinusoidal(StackSpec(8, 2, 1)).add_positions(
        torch.zeros(1, 50, 8), 0, 0
    )[0]
    torch.testing.assert_close(table_TD[:, :4], sinusoids(50, 8)[:, ::2])
    torch.testing.assert_close(table_TD[:, 4:], sinusoids(50, 8)[:, 1::2])


def test_exceeding_learned_positions_is_an_error() -> None:
    positions = Learned(WIDE, max_positions=6)
    x_BTD = torch.randn(1, 4, 16)
    torch.testing.assert_close(
        positions.add_positions(x_BTD, 0, 2) - x_BTD, positions.table_ND[None, 2:6]
    )
    with pytest.raises(UsageError, match="7 tokens exceed the 6 learned positions"):
        positions.add_positions(x_BTD, 0, 3)


def test_floater_is_initialized_to_sinusoids() -> None:
    positions = Floater(WIDE).eval()
    path_TLD = positions.path(200)
    torch.testing.assert_close(path_TLD[:, 0], sinusoids(200, 16), atol=1e-4, rtol=0)
    assert not path_TLD[:, 1].any()
    x_BTD = torch.randn(1, 5, 16)
    torch.testing.assert_close(
        positions.add_positions(x_BTD, 0, 7) - x_BTD, path_TLD[None, 7:12, 0]
    )


def test_floater_path_is_the_integral_of_its_field() -> None:
    """Compare large steps in the rotating frame with small steps along the complete field."""
    positions = made("floater")
    with torch.no_grad():
        for parameter in positions.parameters():
            parameter.mul_(0.2)
    rate_D = 10_000 ** (-torch.arange(0, 16, 2) / 16).repeat_interleave(2)
    p_LD, small = positions.start_LD.detach(), 1 / 500
    for step in range(6 * 500):
        turning_LD = rate_D * torch.stack((p_LD[:, 1::2], -p_LD[:, ::2]), -1).flatten(1)
        inner = positions.inner(torch.cat((p_LD, torch.full((2, 1), step * small / 1000)), 1))
        p_LD = p_LD + small * (turning_LD + positions.outer(inner.tanh())).detach()
    assert (p_LD - positions.start_LD).abs().max() > 1
    torch.testing.assert_close(positions.path(7)[6], p_LD, atol=0.02, rtol=0.02)


@pytest.mark.parametrize("step", [0.3, 1.0, 2.5, 8.0])
def test_encodings_of_floater_do_not_depend_on_the_length(step: float) -> None:
    positions = made("floater", step=step)
    longest_TLD = positions.path(40)
    for length in (1, 2, 7, 8, 9, 39):
        path_TLD = positions.path(length)
        assert len(path_TLD) == length
        torch.testing.assert_close(path_TLD, longest_TLD[:length], rtol=0, atol=1e-6)


def test_floater_trains_and_discards_its_cached_path() -> None:
    positions = Floater(WIDE)
    x_BTD = torch.zeros(1, 5, 16)
    optimizer = torch.optim.SGD(positions.parameters(), lr=0.1)
    for _ in range(2):  # the network's inner layer learns once the outer one is no longer zero
        optimizer.zero_grad()
        (
            positions.add_positions(x_BTD, 0, 0) + positions.add_positions(x_BTD, 1, 0)
        ).square().sum().backward()
        optimizer.step()
    assert all(p.grad is not None and p.grad.any() for p in positions.parameters())
    before = positions.eval().add_positions(x_BTD, 0, 0)
    with torch.no_grad():
        positions.start_LD.add_(1)
    assert not torch.allclose(positions.eval().add_positions(x_BTD, 0, 0), before)


def test_floater_discards_its_path_on_conversion_and_stays_float32() -> None:
    positions, x_BTD = Floater(WIDE).eval(), torch.zeros(1, 5, 16)
    before = positions.add_positions(x_BTD, 0, 0)
    with torch.no_grad():
        positions.start_LD.add_(1)
    assert not torch.allclose(
        positions.to("cpu", torch.bfloat16).add_positions(x_BTD, 0, 0), before
    )
    assert {parameter.dtype for parameter in positions.parameters()} == {torch.float32}


def test_floater_can_be_copied_in_a_training_step() -> None:
    positions, x_BTD = Floater(WIDE), torch.zeros(1, 5, 16)
    expected = positions.add_positions(x_BTD, 0, 0)
    torch.testing.assert_close(copy.deepcopy(positions).add_positions(x_BTD, 0, 0), expected)


@pytest.mark.parametrize("name", RELATIVE)
def test_relative_scores_depend_on_distance_only(name: str) -> None:
    """All queries are equal and all keys are equal, so scores differ by position only."""
    torch.manual_seed(1)
    q_BHQK, k_BHSK = (torch.randn(2, 4, 1, 4).expand(-1, -1, 9, -1) for _ in range(2))
    actual_BHQS = scores(made(name), q_BHQK, k_BHSK)
    for apart in range(-8, 9):
        diagonal = actual_BHQS.diagonal(-apart, 2, 3)
        torch.testing.assert_close(
            diagonal, diagonal[..., :1].expand_as(diagonal), atol=1e-5, rtol=1e-5
        )
    near, far = actual_BHQS[..., 4, 4], actual_BHQS[..., 4, 0]
    assert not torch.allclose(near, far)


@pytest.mark.parametrize("name", RELATIVE)
@pytest.mark.parametrize("causal", [False, True])
def test_scores_do_not_depend_on_start(name: str, causal: bool) -> None:
    positions = made(name, dataclasses.replace(WIDE, causal=causal))
    q_BHQK, k_BHSK = torch.randn(2, 4, 9, 4), torch.randn(2, 4, 9, 4)
    whole = scores(positions, q_BHQK, k_BHSK)
    for start in (1, 5, 8):
        torch.testing.assert_close(
            scores(positions, q_BHQK[:, :, start:], k_BHSK, start), whole[:, :, start:]
        )


def test_rotary_rotates_pairs_by_position_times_rate() -> None:
    x_BTHK = torch.randn(1, 7, 4, 4)
    turned_BTHK = Rotary(WIDE, base=100.0).rotate(x_BTHK, start=3)
    for t in range(7):
        for i, rate in enumerate((1.0, 0.1)):
            pair = torch.view_as_complex(x_BTHK[0, t, :, 2 * i : 2 * i + 2].contiguous())
            expected = pair * complex(math.cos((t + 3) * rate), math.sin((t + 3) * rate))
            torch.testing.assert_close(
                turned_BTHK[0, t, :, 2 * i : 2 * i + 2], torch.view_as_real(expected)
            )


def test_rotary_rounds_after_rotation() -> None:
    rotary, x_BTHK = Rotary(WIDE), torch.randn(1, 9, 4, 4).bfloat16()
    assert torch.equal(rotary.rotate(x_BTHK, 1000), rotary.rotate(x_BTHK.float(), 1000).bfloat16())


def test_shaw_matches_equations_3_and_4() -> None:
    positions = made("shaw")
    positions.clip = 2
    positions.keys_LMK, positions.values_LMK = (
        torch.nn.Parameter(each[:, :5]) for each in (positions.keys_LMK, positions.values_LMK)
    )
    q_BHQK, k_BHSK = torch.randn(1, 4, 6, 4), torch.randn(1, 4, 6, 4)
    weights_BHQS = torch.randn(1, 4, 6, 6).softmax(-1)
    bias, value = (
        positions.attention_bias(q_BHQK, k_BHSK, 1, 0),
        positions.value_bias(weights_BHQS, 1, 0),
    )
    for i in range(6):
        gathered = torch.zeros(4, 4)
        for j in range(6):
            place = min(max(j - i, -2), 2) + 2
            torch.testing.assert_close(
                bias[0, :, i, j], q_BHQK[0, :, i] @ positions.keys_LMK[1, place]
            )
            gathered += weights_BHQS[0, :, i, j, None] * positions.values_LMK[1, place]
        torch.testing.assert_close(value[0, :, i], gathered)


def test_shaw_values_differ_by_layer() -> None:
    positions, weights_BHQS = made("shaw"), torch.randn(1, 4, 6, 6).softmax(-1)
    for layer in (0, 1):
        actual, expected = (
            PositionInput(positions, layer, 0).value_bias(weights_BHQS),
            positions.value_bias(weights_BHQS, layer, 0),
        )
        assert actual is not None
        torch.testing.assert_close(actual, expected)


def test_transformer_xl_is_the_sum_of_four_terms() -> None:
    positions = made("transformer_xl")
    q_BHQK, k_BHSK = torch.randn(1, 4, 5, 4), torch.randn(1, 4, 5, 4)
    actual = scores(positions, q_BHQK, k_BHSK)
    for i in range(5):
        for j in range(5):
            angle = (i - j) * torch.tensor([10_000 ** (-2 * c / 16) for c in range(8)])
            r_HK = positions.projections[1](
                torch.stack((angle.sin(), angle.cos()), 1).flatten()
            ).view(4, 4)
            q, k, u, v = q_BHQK[0, :, i], k_BHSK[0, :, j], positions.u_LHK[1], positions.v_LHK[1]
            expected = (q * k + q * r_HK + u * k + v * r_HK).sum(1) / 2
            torch.testing.assert_close(actual[0, :, i, j], expected, atol=1e-5, rtol=1e-5)


def test_deberta_is_the_sum_of_three_terms() -> None:
    positions = made("deberta")
    positions.clip = 2
    positions.table_MD = torch.nn.Parameter(positions.table_MD[:4])
    q_BHQK, k_BHSK = torch.randn(1, 4, 6, 4), torch.randn(1, 4, 6, 4)
    actual = scores(positions, q_BHQK, k_BHSK)
    for i in range(6):
        for j in range(6):
            forth, back = (min(max(apart, -2), 1) + 2 for apart in (i - j, j - i))
            k_r = positions.key_projections[1](positions.table_MD[forth]).view(4, 4)
            q_r = positions.query_projections[1](positions.table_MD[back]).view(4, 4)
            q, k = q_BHQK[0, :, i], k_BHSK[0, :, j]
            torch.testing.assert_close(
                actual[0, :, i, j], (q * k + q * k_r + k * q_r).sum(1) / math.sqrt(3 * 4)
            )


def test_t5_buckets_are_exact_near_and_shared_far() -> None:
    causal, both = (T5(dataclasses.replace(WIDE, causal=causal)) for causal in (True, False))
    near = causal.bucket(torch.arange(16)).tolist()
    assert near == list(range(16))
    far = causal.bucket(torch.arange(16, 400)).tolist()
    assert far == sorted(far)
    assert (far[0], far[128 - 16], far[-1]) == (16, 31, 31)
    assert causal.bucket(torch.tensor([-1, -50])).tolist() == [0, 0]
    assert both.bucket(torch.tensor([0, 7, 8, 127, 128, 500])).tolist() == [0, 7, 8, 15, 15, 15]
    assert both.bucket(torch.tensor([-1, -7, -500])).tolist() == [17, 23, 31]
    biased = made("t5")
    actual = biased.attention_bias(torch.randn(2, 4, 3, 4), torch.randn(2, 4, 3, 4), 0, 0)
    torch.testing.assert_close(actual[0, :, 0, 2], biased.bias_MH[18])


def test_t5_shared_buckets_grow_logarithmically() -> None:
    first_M = torch.tensor([math.ceil(16 * 8 ** (k / 16)) for k in range(1, 16)])
    causal = T5(dataclasses.replace(WIDE, causal=True))
    assert causal.bucket(first_M).tolist() == [*range(17, 32)]
    assert causal.bucket(first_M - 1).tolist() == [*range(16, 31)]


def test_alibi_penalizes_distance_by_head() -> None:
    assert alibi_slopes(8) == [2.0**-h for h in range(1, 9)]
    assert alibi_slopes(6) == [2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8, 2.0**-1, 2.0**-3]
    actual = ALiBi(WIDE).attention_bias(torch.randn(1, 4, 1, 4), torch.randn(1, 4, 6, 4), 0, 5)
    torch.testing.assert_close(actual[0, 1, 0], -(2.0**-4) * torch.tensor([5.0, 4, 3, 2, 1, 0]))


def test_distances_are_query_minus_key() -> None:
    assert distances(2, 4, 2, torch.device("cpu")).tolist() == [[2, 1, 0, -1], [3, 2, 1, 0]]


@pytest.mark.parametrize("name", POSITION_ENCODINGS)
def test_only_models_without_positions_ignore_order(name: str) -> None:
    torch.manual_seed(0)
    model = build_model(dataclasses.replace(TINY, position_encoding=name), VOCABULARY).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.any():
                parameter.normal_(std=0.1)
    src_BS, mask_BS = torch.tensor([[5, 6, 7, 8, 9, 10]]), torch.ones(1, 6, dtype=torch.bool)
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    same = torch.allclose(
        model.encode(src_BS[:, order], mask_BS), model.encode(src_BS, mask_BS)[:, order], atol=1e-5
    )
    assert same == (name == "none")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "learned(max_positions=0)",
            (
                "model.position_encoding: position encoding 'learned': max_positions must be"
                " between 1 and 1000000, got 0"
            ),
        ),
        ("shaw(clip=-1)", "clip must be between 0 and 65536"),
        ("t5(num_buckets=2)", "num_buckets must be between 4 and 65536"),
        ("t5(num_buckets=32, max_distance=8)", "max_distance must be at least 32"),
        ("rotary(base=0.5)", "base must be at least 1"),
        ("rotary(base=1e999)", "base must be at least 1, got inf"),
        ("rotary(base=nan)", "cannot read"),
        ("floater(step=0)", "step must be between 0.001 and 1000"),
        ("rotary(bass=2.0)", "has no option 'bass'"),
        ("rotary(base='x')", "base must be a number"),
        ("rotry", "unknown position encoding 'rotry'"),
    ],
)
def test_options_out_of_range_are_rejected(spec: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_model(dataclasses.replace(TINY, position_encoding=spec))
    assert message in caught.value.message


@pytest.mark.parametrize(
    "name", ["sinusoidal", "sinusoidal_concatenated", "floater", "transformer_xl"]
)
def test_sinusoids_require_an_even_width(name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' requires an even model.dim, got 27"):
        check_model(dataclasses.replace(TINY, dim=27, heads=3, position_encoding=name))


def test_recurrent_models_may_have_an_odd_width() -> None:
    check_model(dataclasses.replace(TINY, arch="rnn", dim=27, heads=3))


def test_rotary_requires_an_even_head_dimension() -> None:
    with pytest.raises(ConfigError, match="requires an even head dimension, got 5"):
        check_model(dataclasses.replace(TINY, dim=20, position_encoding="rotary"))
