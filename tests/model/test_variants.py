"""Model variants compared with their published formulas."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import cast

import pytest
import tiny
import torch
import torch.nn.functional as F  # noqa: N812
from test_model import PAIRS, TINY, VOCABULARY, logits
from torch import Tensor

from nmt.core.config import ModelConfig
from nmt.core.errors import ConfigError, DataError
from nmt.engines import Source
from nmt.engines.pytorch import TorchModel
from nmt.export import EXPORTS, LOADERS
from nmt.model.attention import (
    CausalMask,
    Mask,
    SelfAttention,
    additive_mask,
    boolean_mask,
    record_attention,
)
from nmt.model.build import MODELS, build_model, check_model, count_parameters, max_positions
from nmt.model.layers import FeedForward, Residual, RMSNorm
from nmt.model.options import MODEL_OPTIONS
from nmt.model.positions import POSITION_ENCODINGS, PositionInput, StackSpec
from nmt.model.positions.relative import Rotary
from nmt.model.recurrent import gru_cell
from nmt.model.ssru import SSRU
from nmt.model.transformer import Transformer
from nmt.models import discovery
from nmt.search import parse_search
from nmt.training.session import train
from nmt.translation.translator import Translator


def attention(**changes: object) -> SelfAttention:
    torch.manual_seed(0)
    return SelfAttention(dataclasses.replace(TINY, **changes)).eval()


def attended(
    attention: SelfAttention,
    x_BTD: Tensor,
    mask: Mask | None,
    position: PositionInput | None = None,
) -> Tensor:
    q, kv_BT2GK = attention.project(x_BTD, position)
    k, v = kv_BT2GK.transpose(1, 3).unbind(2)
    return attention.attend(q, k, v, mask, position)


def test_additive_attention_matches_bahdanau() -> None:
    module = attention(attention_score="additive")
    x_BTD = torch.randn(2, 3, 16)
    q, kv_BT2GK = module.project(x_BTD)
    actual = attended(module, x_BTD, None)
    for h in range(4):
        k_BTK, v_BTK = kv_BT2GK[:, :, 0, h], kv_BT2GK[:, :, 1, h]
        weight_K = cast(Tensor, module.score_fn.weight_HK)[h]
        scores = torch.stack([torch.tanh(q[:, h, i, None] + k_BTK) @ weight_K for i in range(3)], 1)
        torch.testing.assert_close(actual[:, h], scores.softmax(-1) @ v_BTK)


@pytest.mark.parametrize("way", ["attend", "sdpa"])
def test_attention_dropout_applies_in_training_only(way: str) -> None:
    module = attention(attention_dropout=0.5)
    q, kv = module.project(torch.randn(2, 5, 16))
    k, ones = kv.transpose(1, 3)[:, :, 0], torch.ones(2, 4, 5, 4)
    torch.testing.assert_close(getattr(module, way)(q, k, ones, None, None), ones)
    dropped = getattr(module.train(), way)(q, k, ones, None, None)
    assert (dropped - ones).abs().mean() > 0.1


def test_stacked_matrices_are_initialized_separately() -> None:
    for part in attention().qkv.weight.split(16):
        assert part.abs().max().item() == pytest.approx(math.sqrt(6 / 32), rel=0.05)


def banded_model(window: int, position_encoding: str) -> Transformer:
    torch.manual_seed(0)
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "kv_heads": 2}
    options = {"attention_window": window, "position_encoding": position_encoding}
    model = build_model(dataclasses.replace(TINY, **sizes, **options), VOCABULARY).eval()
    assert isinstance(model, Transformer)
    return model


@pytest.mark.parametrize("tokens", [1, 4, 5, 6, 7, 8, 12, 13])
@pytest.mark.parametrize("position_encoding", ["sinusoidal", "shaw(clip=3)"])
def test_attention_window_equals_banded_mask(tokens: int, position_encoding: str) -> None:
    windowed, wide = (banded_model(window, position_encoding) for window in (4, 0))
    ids_BT = torch.randint(4, VOCABULARY, (3, tokens))
    real_BT = torch.arange(tokens) < torch.tensor([tokens, max(1, tokens - 2), 1])[:, None]
    apart = torch.arange(tokens)[:, None] - torch.arange(tokens)
    band = apart.abs() <= 4

    x_BTD = wide.embed("source", ids_BT, 0)
    position = PositionInput(wide.source_positions, 0, 0)
    layer = wide.encoder_layers[0]
    expected = wide.encoder_norm(layer(x_BTD, real_BT[:, None, None] & band, position))
    with record_attention(windowed) as seen:
        memory_BSD = windowed.encode(ids_BT, real_BT)
    torch.testing.assert_close(memory_BSD, expected, atol=1e-6, rtol=1e-5)
    (weights,) = seen["encoder.0.self_attention"]
    assert weights.shape == (3, 4, tokens, tokens)
    assert (weights[..., ~band] == 0).all()

    states = [model.init_state(memory_BSD, real_BT, use_cache=False) for model in (wide, windowed)]
    x_BTD = wide.embed("target", ids_BT, 0)
    position = PositionInput(wide.target_positions, 0, 0)
    layer = wide.decoder_layers[0]
    expected = wide.decoder_norm(layer(x_BTD, states[0], band & (apart >= 0), position))
    with record_attention(windowed) as seen:
        actual = windowed.decode(ids_BT, states[1])
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-5)
    (weights,) = seen["decoder.0.self_attention"]
    assert (weights[..., ~(band & (apart >= 0))] == 0).all()


def test_grouped_query_attention_equals_repeated_keys() -> None:
    grouped, full = attention(kv_heads=2), attention()
    with torch.no_grad():
        q, k, v = grouped.qkv.weight.split([16, 8, 8])
        twice = [each.view(2, 4, 16).repeat_interleave(2, 0).reshape(16, 16) for each in (k, v)]
        full.qkv.weight.copy_(torch.cat((q, *twice)))
    x_BTD = torch.randn(2, 5, 16)
    torch.testing.assert_close(attended(grouped, x_BTD, None), attended(full, x_BTD, None))
    assert grouped.project(x_BTD)[1].shape == (2, 5, 2, 2, 4)


def test_rms_norm_and_swiglu_match_their_formulas() -> None:
    x_BTD = 3 * torch.randn(2, 3, 16)
    norm = RMSNorm(16)
    torch.nn.init.normal_(norm.weight)
    torch.testing.assert_close(
        norm(x_BTD), x_BTD / x_BTD.square().mean(-1, keepdim=True).sqrt() * norm.weight
    )
    assert norm(x_BTD.bfloat16()).dtype == torch.bfloat16
    ff = FeedForward(ModelConfig(dim=16, ffn_dim=24, activation="swiglu"))
    gate, up = F.linear(x_BTD, ff.up.weight, ff.up.bias).split(24, -1)
    torch.testing.assert_close(ff(x_BTD), ff.down(gate * torch.sigmoid(gate) * up))


def test_rms_norm_of_small_inputs() -> None:
    x_BTD = 1e-3 * torch.randn(2, 3, 16)
    torch.testing.assert_close(
        RMSNorm(16)(x_BTD), x_BTD / (x_BTD.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    )
    assert not RMSNorm(16)(torch.zeros(1, 1, 16)).any()


def assert_half_dropped(dropped: Tensor, complete: Tensor) -> None:
    """Some elements are zero, and the others are doubled (rate 0.5)."""
    kept = dropped != 0
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(dropped, 2 * complete * kept)


def test_dropout_follows_the_activation_of_the_feed_forward_layer() -> None:
    ff = FeedForward(ModelConfig(dim=16, ffn_dim=24, activation="gelu", activation_dropout=0.5))
    x_BTD = torch.randn(2, 3, 16)
    ff.down = torch.nn.Identity()
    assert_half_dropped(ff.train()(x_BTD), ff.eval()(x_BTD))


@pytest.mark.parametrize("role", ["source", "target"])
def test_dropout_applies_to_the_sum_of_embedding_and_position(role: str) -> None:
    model, ids_BT = (
        build_model(dataclasses.replace(TINY, dropout=0.5), VOCABULARY),
        torch.tensor([[5, 6, 7]]),
    )
    assert_half_dropped(model.train().embed(role, ids_BT, 1), model.eval().embed(role, ids_BT, 1))


def test_residual_connection_drops_the_update_only() -> None:
    x_BTD, update_BTD = torch.randn(2, 3, 16), 1 + torch.rand(2, 3, 16)
    total_BTD = Residual(ModelConfig(dim=16, dropout=0.5, norm_position="pre")).add(
        x_BTD, update_BTD
    )
    kept = (total_BTD - x_BTD).abs() > 1e-3
    assert 0 < kept.sum() < kept.numel()
    torch.testing.assert_close(total_BTD, x_BTD + 2 * update_BTD * kept)


def test_only_decoder_positions_are_causal() -> None:
    model = build_model(TINY, VOCABULARY)
    assert (model.source_positions.stack.causal, model.target_positions.stack.causal) == (
        False,
        True,
    )


def test_rotary_rotates_queries_and_keys_but_not_values() -> None:
    module, x_BTD, position = (
        attention(),
        torch.randn(2, 5, 16),
        PositionInput(Rotary(StackSpec(16, 4, 1)), 0, 3),
    )
    (q, kv), (turned_q, turned_kv) = module.project(x_BTD), module.project(x_BTD, position)
    torch.testing.assert_close(turned_q.transpose(1, 2), position.rotate(q.transpose(1, 2)))
    torch.testing.assert_close(turned_kv[:, :, 0], position.rotate(kv[:, :, 0]))
    assert torch.equal(turned_kv[:, :, 1], kv[:, :, 1])


def test_shared_layers_count_once() -> None:
    shared = build_model(
        dataclasses.replace(TINY, encoder_layers=6, decoder_layers=5, layer_sharing=3), VOCABULARY
    )
    own = build_model(dataclasses.replace(TINY, encoder_layers=2, decoder_layers=2), VOCABULARY)
    assert count_parameters(shared) == count_parameters(own)
    assert [id(layer) for layer in shared.decoder_layers].count(id(shared.decoder[0])) == 3
    assert len(shared.encoder_layers) == 6


def test_shared_layers_are_consecutive() -> None:
    model = build_model(
        dataclasses.replace(TINY, encoder_layers=4, decoder_layers=5, layer_sharing=3), VOCABULARY
    )
    assert [[*model.encoder].index(layer) for layer in model.encoder_layers] == [0, 0, 0, 1]
    assert [[*model.decoder].index(layer) for layer in model.decoder_layers] == [0, 0, 0, 1, 1]


@pytest.mark.parametrize(("num_layers", "tracked"), [(1, 0), (2, 1), (3, 1), (6, 4)])
def test_second_to_last_of_several_layers_is_tracked_as_mean_over_heads(
    num_layers: int, tracked: int
) -> None:
    model = build_model(dataclasses.replace(TINY, decoder_layers=num_layers), VOCABULARY).eval()
    mask_BS = torch.ones(1, 4, dtype=torch.bool)
    state = model.init_state(model.encode(torch.tensor([[5, 6, 7, 8]]), mask_BS), mask_BS)
    state.track_attention()
    with record_attention(model) as seen:
        model.decode(torch.tensor([[3, 4]]), state)
    torch.testing.assert_close(
        state.cross_attention_RTS, seen[f"decoder.{tracked}.cross_attention"][0].mean(1)
    )


def test_record_attention_records_every_attention_and_cleans_up() -> None:
    model = build_model(TINY, VOCABULARY).eval()
    before = logits(model, PAIRS)
    with record_attention(model) as seen:
        after = logits(model, PAIRS)
    torch.testing.assert_close(before, after)
    assert sorted(seen) == sorted(
        f"{side}.{i}.{kind}"
        for side, i, kind in [
            *(("encoder", i, "self_attention") for i in (0, 1)),
            *(
                ("decoder", i, kind)
                for i in (0, 1)
                for kind in ("self_attention", "cross_attention")
            ),
        ]
    )
    for weights in seen.values():
        assert len(weights) == 1
        sums = weights[0].sum(-1)
        torch.testing.assert_close(sums, torch.ones_like(sums))
    logits(model, PAIRS)
    assert all(len(weights) == 1 for weights in seen.values())


def test_ssru_and_its_gradients_match_the_formula() -> None:
    torch.manual_seed(0)
    ssru = SSRU(TINY)
    x_RTD = torch.randn(3, 6, TINY.dim, requires_grad=True)
    start_RD = torch.randn(3, TINY.dim, requires_grad=True)
    state_RD, expected = start_RD, []
    for t in range(6):
        forget_RD = torch.sigmoid(x_RTD[:, t] @ ssru.gate.weight.t() + ssru.gate.bias)
        candidate_RD = x_RTD[:, t] @ ssru.candidate.weight.t()
        state_RD = forget_RD * state_RD + (1 - forget_RD) * candidate_RD
        expected.append(state_RD.relu())
    expected_RTD = torch.stack(expected, 1)
    output_RTD, last_RD = ssru(x_RTD, start_RD)
    torch.testing.assert_close(output_RTD, expected_RTD)
    torch.testing.assert_close(last_RD, state_RD)

    weight_RTD = torch.randn_like(output_RTD)
    inputs = (x_RTD, start_RD, *ssru.parameters())
    losses = [(each * weight_RTD).sum() for each in (output_RTD, expected_RTD)]
    actual, formula = (torch.autograd.grad(loss, inputs) for loss in losses)
    torch.testing.assert_close(actual, formula)


def test_gru_cell_matches_pytorch() -> None:
    cell = torch.nn.GRUCell(6, 4)
    x, h = torch.randn(3, 6), torch.randn(3, 4)
    given, own = (
        F.linear(x, cell.weight_ih, cell.bias_ih),
        F.linear(h, cell.weight_hh, cell.bias_hh),
    )
    torch.testing.assert_close(gru_cell(given, own, h), cell(x, h))


def test_recurrent_decoder_matches_bahdanau() -> None:
    torch.manual_seed(0)
    model = build_model(dataclasses.replace(TINY, arch="rnn", decoder_layers=1), VOCABULARY).eval()
    src_BS, mask_BS = (
        torch.tensor([[5, 6, 7, 0], [8, 9, 10, 11]]),
        torch.tensor([[True] * 3 + [False], [True] * 4]),
    )
    memory_BSE = model.encode(src_BS, mask_BS)
    state = model.init_state(memory_BSE, mask_BS)
    state.track_attention()
    last_BD = torch.tanh(model.init_hidden(memory_BSE[:, 0, 16:]))
    torch.testing.assert_close(state.hidden_LRD[0], last_BD)
    token_BD = model.embed_tokens("target", torch.tensor([[3], [4]]))[:, 0]
    actual = model.decode(torch.tensor([[3], [4]]), state)[:, 0]
    scores_BS = (
        torch.tanh(model.query(last_BD)[:, None] + model.key(memory_BSE))
        @ model.score_fn.weight_HK[0]
    )
    weights_BS = scores_BS.masked_fill(~mask_BS, -torch.inf).softmax(1)
    torch.testing.assert_close(state.cross_attention_RTS[:, 0], weights_BS)
    context_BE = (weights_BS[..., None] * memory_BSE).sum(1)
    new_BD = gru_cell(
        model.token_gates(token_BD) + model.context_gates(context_BE),
        model.hidden_gates[0](last_BD),
        last_BD,
    )
    torch.testing.assert_close(
        actual, torch.tanh(model.out(torch.cat((new_BD, context_BE, token_BD), 1)))
    )


def test_recurrent_decoder_with_two_layers() -> None:
    torch.manual_seed(0)
    model = build_model(dataclasses.replace(TINY, arch="rnn"), VOCABULARY).eval()
    src_BS, mask_BS = torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.bool)
    memory_BSE = model.encode(src_BS, mask_BS)
    state = model.init_state(memory_BSE, mask_BS)
    low_BD, high_BD = state.hidden_LRD
    scores_BS = (
        torch.tanh(model.query(high_BD)[:, None] + model.key(memory_BSE))
        @ model.score_fn.weight_HK[0]
    )
    context_BE = (scores_BS.softmax(1)[..., None] * memory_BSE).sum(1)
    token_BD = model.embed_tokens("target", torch.tensor([3]))
    low_BD = gru_cell(
        model.token_gates(token_BD) + model.context_gates(context_BE),
        model.hidden_gates[0](low_BD),
        low_BD,
    )
    high_BD = gru_cell(model.layer_gates[0](low_BD), model.hidden_gates[1](high_BD), high_BD)
    model.decode(torch.tensor([[3]]), state)
    torch.testing.assert_close(state.hidden_LRD, torch.stack((low_BD, high_BD)))


@pytest.mark.parametrize(("layers", "rate"), [(1, 0.0), (2, 0.3)])
def test_recurrent_encoder_dropout_between_layers(layers: int, rate: float) -> None:
    model = build_model(
        dataclasses.replace(TINY, arch="rnn", encoder_layers=layers, dropout=0.3), VOCABULARY
    )
    assert model.encoder.dropout == rate


def test_recurrent_encoder_ignores_padding_in_both_directions() -> None:
    torch.manual_seed(0)
    model = build_model(dataclasses.replace(TINY, arch="rnn", encoder_layers=1), VOCABULARY).eval()
    short = model.encode(torch.tensor([[5, 6, 7]]), torch.ones(1, 3, dtype=torch.bool))
    padded = model.encode(torch.tensor([[5, 6, 7, 0, 0]]), torch.tensor([[True] * 3 + [False] * 2]))
    torch.testing.assert_close(padded[:, :3], short)
    other = model.encode(torch.tensor([[5, 6, 8]]), torch.ones(1, 3, dtype=torch.bool))
    assert torch.equal(other[:, 0, :16], short[:, 0, :16])
    assert not torch.allclose(other[:, 0, 16:], short[:, 0, 16:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"activation": "rellu"}, "model.activation: unknown value 'rellu'"),
        ({"norm": "lay"}, "model.norm: unknown value 'lay'"),
        ({"attention_score": "dott"}, "model.attention_score: unknown value 'dott'"),
        ({"kv_heads": 3}, r"model.heads \(4\) must be a multiple of model.kv_heads \(3\)"),
    ],
)
def test_unknown_or_incompatible_options_are_rejected(
    change: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_model(dataclasses.replace(TINY, **change))


def test_learned_positions_limit_training_translation_and_scoring(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"max_length \(64\) must not exceed the positions .* \(32\)"
    ) as caught:
        train(
            tiny.config(tmp_path, "model.position_encoding=learned(max_positions=32)"),
            tmp_path / "run",
        )
    assert (
        caught.value.hint
        == "set train.max_length=32, or model.position_encoding=learned(max_positions=64)"
    )
    config = tiny.config(
        tmp_path,
        "model.position_encoding=learned(max_positions=16)",
        "train.max_length=16",
        "train.steps=2",
    )
    train(config, tmp_path / "run")
    translator = Translator.load(tmp_path / "run")
    longest = parse_search("greedy(min_length_ratio=9.0)")
    ((best, *_),) = translator.engine.search([Source([5] * 15)], longest, lambda _: None)
    assert len(best.ids) == 15  # and the start before them
    short = ("ba be", "du")
    most = "ba " * 40
    while len(translator.tokenizer.encode(most)) > 15:  # the end, or the start, is the sixteenth
        most = most[:-3]
    assert len(list(translator.score([short, (most, "du"), ("ba", most)]))) == 3
    for pair in ((most + " ba", "du"), ("ba", most + " ba")):
        with pytest.raises(
            DataError, match="line 2 has 17 tokens, including the end token, and the model has 16"
        ):
            list(translator.score([short, pair]))


def test_model_that_does_not_fit_into_memory_is_rejected() -> None:
    with pytest.raises(ConfigError, match="does not fit into memory"):
        build_model(dataclasses.replace(TINY, dim=10**12, heads=1), VOCABULARY)


@pytest.mark.parametrize("mask", ["none", "padding", "additive", "causal", "offset", "nothing"])
@pytest.mark.parametrize("name", [*POSITION_ENCODINGS])
def test_sdpa_equals_attend(name: str, mask: str) -> None:
    """`sdpa` is used on GPUs; this runs PyTorch's CPU implementation."""
    module = attention()
    position = PositionInput(POSITION_ENCODINGS[name](StackSpec(16, 4, 1, mask == "causal")), 0, 0)
    if position.encoding.has_value_bias:
        pytest.skip("needs the weights themselves")
    with torch.no_grad():
        for parameter in position.encoding.parameters():
            parameter.normal_()
    padding_B11S = torch.tensor([[True] * 6, [True] * 2 + [False] * 4])[:, None, None]
    masks = {
        "none": None,
        "padding": padding_B11S,
        "additive": additive_mask(padding_B11S, torch.float32),
        "causal": CausalMask(torch.ones(6, 6, dtype=torch.bool).tril()),
        "offset": torch.ones(6, 6).tril(1).bool(),
        "nothing": torch.zeros(2, 1, 1, 6, dtype=torch.bool),
    }
    actual = []
    for gather in (module.attend, module.sdpa):
        x_BTD = torch.linspace(-1, 1, 2 * 6 * 16).view(2, 6, 16).sin().requires_grad_()
        q, kv = module.project(x_BTD, position)
        k, v = kv.transpose(1, 3).unbind(2)
        gathered = gather(q, k, v, masks[mask], position)
        (gradient,) = torch.autograd.grad(gathered.square().sum(), x_BTD)
        actual.append((gathered, gradient))
    for one, other in zip(*actual, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)
    assert (actual[1][0] == 0).all() == (mask == "nothing")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_additive_mask_is_aligned_and_finite(dtype: torch.dtype) -> None:
    """In the kernel that takes a mask, a row without allowed keys must not become NaN, not even its
    gradient."""
    allowed = torch.tensor([[True] * 5, [True, True, False, False, False], [False] * 5])[
        :, None, None
    ]
    mask = additive_mask(allowed, dtype)
    assert mask.stride(0) % 16 == 0
    assert (mask + torch.finfo(dtype).min / 4).isfinite().all()
    converted = boolean_mask(mask)
    assert torch.equal(converted, allowed)
    qkv = torch.randn(3, 3, 1, 5, 4, requires_grad=True)
    F.scaled_dot_product_attention(*qkv.unbind(), mask.float()).square().sum().backward()
    assert qkv.grad.isfinite().all()


@pytest.mark.parametrize("name", ["shaw", "transformer_xl", "deberta"])
def test_attention_bias_is_scaled_equally_for_all_score_functions(name: str) -> None:
    x_BTD = torch.randn(1, 5, 16)
    torch.manual_seed(0)
    position = PositionInput(POSITION_ENCODINGS[name](StackSpec(16, 4, 1)), 0, 0)
    biases = []
    for kind in ("dot", "additive"):
        module = attention(attention_score=kind)
        module.qkv.load_state_dict(attention().qkv.state_dict())
        q, kv = module.project(x_BTD)
        k = kv.transpose(1, 3).unbind(2)[0]
        weights = module.weights(q, k, None, position)
        content = module.score_fn(
            q / math.sqrt(position.encoding.num_score_terms * 4) if kind == "dot" else q, k
        )
        bias = weights.log() - content
        # Softmax leaves a number for each row open.
        biases.append(bias - bias.mean(-1, keepdim=True))
    torch.testing.assert_close(*biases, atol=1e-5, rtol=1e-4)


def test_rotary_requires_dot_product_attention() -> None:
    with pytest.raises(ConfigError, match="rotary requires dot-product attention"):
        check_model(
            dataclasses.replace(TINY, position_encoding="rotary", attention_score="additive")
        )


def test_tables_computed_in_inference_mode_can_be_used_in_training() -> None:
    model = build_model(dataclasses.replace(TINY, position_encoding="rotary"), VOCABULARY)
    src_BS = torch.randint(4, VOCABULARY, (1, 600))
    mask_BS = torch.ones(1, 600, dtype=torch.bool)
    with torch.inference_mode():
        model.encode(src_BS, mask_BS)
    model.encode(src_BS, mask_BS).square().sum().backward()


@pytest.mark.slow
def test_validation_pair_exceeding_learned_positions_does_not_stop_training(tmp_path: Path) -> None:
    options = (
        "model.position_encoding=learned(max_positions=16)",
        "train.max_length=16",
        "train.steps=6",
        "train.valid_every=3",
    )
    config = tiny.config(tmp_path, *options)
    for code in ("en", "de"):
        with open(tmp_path / f"valid.{code}", "a", encoding="utf-8") as file:
            file.write("ba be bi bo bu " * 9 + "\n")
    best = train(config, tmp_path / "run")
    loaded = discovery.load(best)
    texts = ["ba be", "ba"]  # short enough not to be cut
    directory = tmp_path / "exported"
    directory.mkdir()
    EXPORTS["safetensors"](loaded, directory)
    expected = Translator.load(best, precision="fp32").translate(texts, "greedy")
    assert LOADERS["safetensors"](directory)(texts) == expected


def test_options_are_known_for_every_architecture() -> None:
    assert MODEL_OPTIONS.keys() == MODELS.keys()
    assert {name for names in MODEL_OPTIONS.values() for name in names} == {
        field.name for field in dataclasses.fields(ModelConfig)
    }


@pytest.mark.parametrize("arch", MODELS)
def test_facts_about_an_architecture_are_properties_of_its_class(arch: str) -> None:
    """What else tells architectures apart: positions, layer sharing, and bf16 weights."""
    changes = {"arch": arch, "position_encoding": "learned(max_positions=9)", "layer_sharing": 2}
    config = dataclasses.replace(TINY, **changes)
    model = build_model(config, VOCABULARY)
    assert hasattr(model, "source_positions") == model.has_positions
    assert max_positions(config) == (9 if model.has_positions else None) == model.max_positions
    assert model.layer_sharing == (2 if "layer_sharing" in MODEL_OPTIONS[arch] else 1)
    (low,) = TorchModel([model], torch.bfloat16).networks
    dtypes = {parameter.dtype for parameter in low.parameters()}
    assert dtypes == {torch.float32 if arch == "rnn" else torch.bfloat16}
