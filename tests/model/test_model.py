"""Models: sizes, masks, KV cache, and independence of padding and batch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nmt.core.config import ModelConfig, config_io
from nmt.core.errors import ConfigError
from nmt.data.batching import collate
from nmt.engines.pytorch import TorchModel
from nmt.model import cache
from nmt.model.attention import masked_softmax
from nmt.model.build import build_model, check_model, count_parameters
from nmt.model.layers import Dropout
from nmt.model.positions import POSITION_ENCODINGS
from nmt.model.seq2seq import Seq2Seq
from nmt.search.request import StepRequest
from nmt.text.tokenizer import BOS, EOS, PAD

VOCABULARY = 23
TINY = ModelConfig(dim=16, heads=4, ffn_dim=32, encoder_layers=2, decoder_layers=2)
PAIRS = [([5, 6, 7], [8, 9]), ([10, 11, 12, 13, 14, 15], [16, 17, 18, 19]), ([20], [21])]


VARIANTS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm_position": "post"},
    **{name: {"position_encoding": name} for name in POSITION_ENCODINGS if name != "sinusoidal"},
    "shaw, near": {"position_encoding": "shaw(clip=2)"},
    "additive": {"attention_score": "additive"},
    "attention_window": {"attention_window": 2},
    "grouped": {"kv_heads": 2},
    "rms, gelu": {"norm": "rms", "activation": "gelu"},
    "swiglu": {"activation": "swiglu"},
    "shared": {"layer_sharing": 2, "decoder_layers": 3},
    "together": {
        "position_encoding": "shaw(clip=3)",
        "attention_window": 3,
        "kv_heads": 1,
        "attention_score": "additive",
        "norm_position": "post",
        "norm": "rms",
        "activation": "swiglu",
        "layer_sharing": 3,
        "encoder_layers": 4,
    },
    "zero start": {"target_bos": False, "norm_epsilon": 1e-3},
    "ssru": {"decoder": "ssru", "norm_position": "post"},
    "ssru, rotary, shared": {
        "decoder": "ssru",
        "position_encoding": "rotary",
        "layer_sharing": 2,
        "decoder_layers": 3,
    },
    "rnn": {"arch": "rnn"},
}
PADDED = {"floater", "shaw", "shaw, near", "transformer_xl", "t5", "deberta", "alibi"}
PADDED |= {"additive", "attention_window", "together", "ssru", "ssru, rotary, shared", "rnn"}
"""Variants that are not trained on packed batches."""


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    torch.manual_seed(0)
    model = build_model(dataclasses.replace(TINY, **request.param), VOCABULARY).eval()
    with torch.no_grad():  # parameters initialized to zero could hide errors
        for parameter in model.parameters():
            if not parameter.any():
                parameter += 0.05 * torch.randn_like(parameter)
    return model


def logits(model: Seq2Seq, pairs: list[tuple[list[int], list[int]]]) -> list[Tensor]:
    """Return the logits of the target positions of each pair, from one padded batch."""
    batch = collate(pairs)
    hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
    return list(model.logits(hidden_ND).split([len(tgt) + 1 for _, tgt in pairs]))


@pytest.mark.parametrize(("name", "millions"), [("wmt14-base", 63.1), ("wmt14-big", 214.2)])
def test_model_sizes_match_the_paper(name: str, millions: float) -> None:
    config = config_io.load(config_io.find(name)).model
    with torch.device("meta"):
        model = build_model(config, 37_000)
    # Table 3 says 65 and 213.
    assert count_parameters(model) / 1e6 == pytest.approx(millions, abs=0.05)


def test_tied_embeddings_are_one_matrix() -> None:
    tied, loose = (
        build_model(dataclasses.replace(TINY, tie_embeddings=tied), VOCABULARY)
        for tied in (True, False)
    )
    assert count_parameters(loose) - count_parameters(tied) == 2 * VOCABULARY * TINY.dim
    assert tied.output_weight_VD is tied.embeddings["shared"]


@pytest.mark.parametrize("tied", [True, False])
def test_scaled_embeddings_start_with_unit_variance_and_padding_at_zero(tied: bool) -> None:
    torch.manual_seed(0)
    model = build_model(dataclasses.replace(TINY, dim=64, tie_embeddings=tied), 1000)
    for role in ("source", "target"):
        x_VD = model.embed_tokens(role, torch.arange(1000))
        assert x_VD.std().item() == pytest.approx(1, rel=0.02)
        assert (~x_VD.any(-1)).nonzero().tolist() == [[PAD]]


def test_cached_logits_equal_uncached_logits(model: Seq2Seq) -> None:
    batch = collate(PAIRS)
    memory_BSD = model.encode(batch.src_BS, batch.src_mask_BS)
    whole_BTV = model.logits(
        model.decode(
            batch.tgt_in_BT, model.init_state(memory_BSD, batch.src_mask_BS, use_cache=False)
        )
    )
    state = model.init_state(memory_BSD, batch.src_mask_BS)
    steps = [
        model.logits(model.decode(batch.tgt_in_BT[:, t : t + 1], state))
        for t in range(batch.tgt_in_BT.shape[1])
    ]
    torch.testing.assert_close(torch.cat(steps, 1), whole_BTV, atol=1e-5, rtol=1e-5)


def test_cache_supports_growth_and_steps_of_any_size(model: Seq2Seq) -> None:
    tgt_BT = torch.randint(4, VOCABULARY, (2, 45))
    src_BS, mask_BS = torch.randint(4, VOCABULARY, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
    memory_BSD = model.encode(src_BS, mask_BS)
    whole_BTD = model.decode(tgt_BT, model.init_state(memory_BSD, mask_BS, use_cache=False))
    state = model.init_state(memory_BSD, mask_BS)
    parts = [model.decode(part, state) for part in tgt_BT.split([1, 7, 30, 1, 6], dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole_BTD, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_reordering_rows_and_sentences_reorders_the_state(model: Seq2Seq) -> None:
    batch = collate(PAIRS)
    state = model.init_state(model.encode(batch.src_BS, batch.src_mask_BS), batch.src_mask_BS)
    rows = torch.arange(3).repeat_interleave(2)  # two rows of each sentence
    first_R1 = torch.tensor([4, 5, 6, 7, 8, 9])[:, None]
    model.decode(first_R1, state)
    # Drop the second sentence, swap the rows of the others.
    state.reorder(torch.tensor([1, 0, 5, 4]), torch.tensor([0, 2]))
    second_R1 = torch.tensor([10, 11, 12, 13])[:, None]
    cached_R1D = model.decode(second_R1, state)
    tgt_RT = torch.cat((first_R1[[1, 0, 5, 4]], second_R1), 1)
    src_RS, mask_RS = batch.src_BS[rows[[1, 0, 5, 4]]], batch.src_mask_BS[rows[[1, 0, 5, 4]]]
    whole_RTD = model.decode(
        tgt_RT, model.init_state(model.encode(src_RS, mask_RS), mask_RS, use_cache=False)
    )
    torch.testing.assert_close(cached_R1D[:, 0], whole_RTD[:, 1], atol=1e-5, rtol=1e-5)


def test_logits_do_not_depend_on_padding_or_batch(model: Seq2Seq) -> None:
    together = logits(model, PAIRS)
    for pair, logits_TV in zip(PAIRS, together, strict=True):
        torch.testing.assert_close(logits(model, [pair])[0], logits_TV, atol=1e-5, rtol=1e-5)


def test_decoder_is_causal(model: Seq2Seq) -> None:
    (one,), (other,) = logits(model, [([5, 6], [7, 8, 9])]), logits(model, [([5, 6], [7, 8, 20])])
    torch.testing.assert_close(one[:3], other[:3])
    assert not torch.allclose(one[3], other[3])


def test_logits_depend_on_every_source_token(model: Seq2Seq) -> None:
    (one,), (other,) = logits(model, [([5, 6, 7], [8])]), logits(model, [([5, 6, 9], [8])])
    assert not torch.allclose(one[0], other[0], atol=1e-4)


def test_masked_positions_have_zero_weight() -> None:
    scores = torch.randn(2, 1, 3, 4, requires_grad=True)
    mask = torch.tensor([[True, False, True, False], [False] * 4])[:, None, None]
    weights = masked_softmax(scores, mask)
    assert (weights[0, 0, :, [1, 3]] == 0).all()
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(1, 3))
    assert (weights[1] == 0).all()
    (weights * torch.randn(4)).sum().backward()
    assert scores.grad.isfinite().all()
    assert (scores.grad[1] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_fully_padded_source_gives_no_nan(model: Seq2Seq, dtype: torch.dtype) -> None:
    model.compute_dtype = dtype
    batch = collate(PAIRS)
    mask_BS = batch.src_mask_BS.clone()
    mask_BS[1] = False
    model.train()
    hidden_ND = model(batch.src_BS, mask_BS, batch.tgt_in_BT, batch.target_index_N)
    hidden_ND.float().square().sum().backward()
    assert hidden_ND.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def search_steps(
    model: TorchModel, tokens_RT: Any, beams: int, keep: list[int]
) -> tuple[list[Any], list[Any], Any]:
    """Return log-probabilities and attention of each step; only the sentences `keep` continue after
    the second.

    The rows are then reversed. The last item is the index of the first-step row that each of the
    last rows continues.
    """
    state = model.init_search_state([[*src, EOS] for src, _ in PAIRS], track_attention=True)
    log_probs, attention = [], []
    rows_R, parents_R = np.arange(len(tokens_RT)), np.arange(len(PAIRS)).repeat(beams)
    for t in range(tokens_RT.shape[1]):
        result = state.step(StepRequest(tokens_RT[rows_R, t], parents_R, 0, all_log_probs=True))
        log_probs.append(result.log_p_RV)
        attention.append(state.attention_RS)
        parents_R = np.arange(len(rows_R))
        if t == 1:
            parents_R = np.array([row for i in keep for row in range(i * beams, (i + 1) * beams)])[
                ::-1
            ]
            rows_R = rows_R[parents_R]
    return log_probs, attention, rows_R


@torch.no_grad()
@pytest.mark.parametrize(("dtype", "beams"), [(None, 3), (torch.bfloat16, 1)])
def test_search_steps_equal_uncached_forward_pass(
    model: Seq2Seq, dtype: torch.dtype | None, beams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "BLOCK", 4)
    before = [parameter.clone() for parameter in model.parameters()]
    shape = len(PAIRS) * beams, 10  # more positions than two blocks of the cache
    tokens_RT = np.random.default_rng(0).integers(4, VOCABULARY, shape)
    tokens_RT[:, 0] = BOS
    log_probs, attention, last_R = search_steps(
        TorchModel([model], dtype), tokens_RT, beams, [0, 2]
    )
    pairs = [(PAIRS[row // beams][0], tokens_RT[row, 1:].tolist()) for row in range(len(tokens_RT))]
    expected_RTV = torch.stack(logits(model, pairs)).log_softmax(-1)
    batch = collate(pairs)
    state = model.init_state(
        model.encode(batch.src_BS, batch.src_mask_BS), batch.src_mask_BS, use_cache=False
    )
    state.track_attention()
    model.decode(batch.tgt_in_BT, state)
    for t, (actual_RV, actual_RS) in enumerate(zip(log_probs, attention, strict=True)):
        rows_R = last_R if t > 1 else np.arange(len(pairs))
        share = 0.05 if dtype == torch.bfloat16 else 1e-5
        expected_RV, expected_RS = expected_RTV[rows_R, t], state.cross_attention_RTS[rows_R, t]
        tolerance = share * max(1.0, expected_RV.abs().max().item())
        torch.testing.assert_close(
            torch.from_numpy(actual_RV), expected_RV, atol=tolerance, rtol=1e-4
        )
        torch.testing.assert_close(
            torch.from_numpy(actual_RS),
            expected_RS[:, : actual_RS.shape[1]],
            atol=2 * share,
            rtol=1e-4,
        )
    assert all(
        torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True)
    )


def test_search_precision_does_not_depend_on_training_precision() -> None:
    model = build_model(TINY, VOCABULARY).eval()
    tokens_RT = np.random.default_rng(0).integers(4, VOCABULARY, (len(PAIRS), 3))
    expected, _, _ = search_steps(TorchModel([model], torch.float32), tokens_RT, 1, [0, 2])
    model.compute_dtype = torch.bfloat16
    actual, _, _ = search_steps(TorchModel([model], torch.float32), tokens_RT, 1, [0, 2])
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("size", [2, 3])
def test_ensemble_averages_probabilities_and_attention(size: int) -> None:
    """The mean of the probabilities is arithmetic, not the geometric mean that averaged
    log-probabilities give."""
    models = []
    for seed in range(size):
        torch.manual_seed(seed)
        models.append(build_model(TINY, VOCABULARY).eval().requires_grad_(False))
        # Confident models, whose geometric mean differs clearly.
        models[-1].output_weight_VD.mul_(3)
    tokens_RT = np.array([[BOS, 7], [BOS, 8], [BOS, 9]])
    log_probs, attention, _ = search_steps(TorchModel(models), tokens_RT, 1, [0, 1, 2])
    each = [search_steps(TorchModel([model]), tokens_RT, 1, [0, 1, 2]) for model in models]
    for t in range(2):
        mean_RV = np.mean([np.exp(own[t].astype(np.float64)) for own, _, _ in each], 0)
        np.testing.assert_allclose(
            np.exp(log_probs[t].astype(np.float64)), mean_RV, atol=1e-6, rtol=1e-5
        )
        np.testing.assert_allclose(
            attention[t], np.mean([own[t] for _, own, _ in each], 0), atol=1e-6, rtol=1e-5
        )


def test_bf16_activations_leave_float32_gradients(model: Seq2Seq) -> None:
    reference = torch.cat(logits(model, PAIRS))
    model.compute_dtype = torch.bfloat16
    rounded = torch.cat(logits(model, PAIRS))
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - reference).abs().max() < 0.1
    rounded.sum().backward()
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.float32}


@pytest.mark.parametrize(("rate", "dropped"), [(0.1, 26 / 256), (0.3, 77 / 256), (0.5, 0.5)])
def test_dropout_scales_by_the_actual_keep_rate(rate: float, dropped: float) -> None:
    """On a CPU the rate is rounded to a multiple of 1/256; the scale must belong to the rounded
    rate."""
    torch.manual_seed(0)
    dropout, x = Dropout(rate), torch.ones(1001, 1003)
    first = dropout(x)
    assert first.unique().tolist() == [0, pytest.approx(1 / (1 - dropped), rel=1e-6)]
    assert (first == 0).double().mean().item() == pytest.approx(dropped, abs=1e-3)
    assert first.double().mean().item() == pytest.approx(1, abs=2.5e-3)
    torch.manual_seed(0)
    assert torch.equal(dropout(x), first)
    assert dropout.eval()(x) is x


@pytest.mark.parametrize("rate", [1e-9, 0.999, 0.99999])
def test_extreme_dropout_rates_drop_some_elements(rate: float) -> None:
    torch.manual_seed(0)
    dropped = Dropout(rate)(torch.ones(10_000))
    assert 0 < (dropped == 0).sum() < 10_000
    assert dropped.isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"arch": "transfomer"}, "model.arch"),
        ({"position_encoding": "sinus"}, "model.position_encoding"),
    ],
)
def test_unknown_options_are_rejected(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check_model(dataclasses.replace(TINY, **change))
    assert "did you mean" in caught.value.hint
