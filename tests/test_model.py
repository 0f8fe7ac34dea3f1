"""The Transformer: sizes, masks, cache, and that neither padding nor company change a sentence's numbers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from nmt import kernels, settings
from nmt.config import ModelConfig
from nmt.data.batching import collate
from nmt.errors import ConfigError
from nmt.model import build, cache, check, count_parameters, inference, packed
from nmt.model.attention import masked_softmax
from nmt.model.cache import Memory
from nmt.model.ensemble import Ensemble
from nmt.model.inference import PackedModel, PackedTransformer, for_inference
from nmt.model.layers import Dropout, Linear
from nmt.model.packed import CompiledLinear, Int8Linear, PackedLinear, rounded
from nmt.model.positions import POSITIONS
from nmt.model.positions.absolute import Floater
from nmt.model.seq2seq import Seq2Seq
from nmt.search import SearchModel
from nmt.tokenizer import PAD

VOCABULARY = 23
TINY = ModelConfig(dim=16, heads=4, ff=32, encoder_layers=2, decoder_layers=2)
PAIRS = [([5, 6, 7], [8, 9]), ([10, 11, 12, 13, 14, 15], [16, 17, 18, 19]), ([20], [21])]


VARIANTS: dict[str, dict[str, Any]] = {
    "pre": {},
    "post": {"norm": "post"},
    **{name: {"positions": name} for name in POSITIONS if name != "sinusoidal"},
    "shaw, near": {"positions": "shaw(clip=2)"},
    "additive": {"attention": "additive"},
    "window": {"window": 2},
    "grouped": {"kv_heads": 2},
    "rms, gelu": {"normalization": "rms", "activation": "gelu"},
    "swiglu": {"activation": "swiglu"},
    "shared": {"layer_sharing": 2, "decoder_layers": 3},
    "together": {
        "positions": "shaw(clip=3)", "window": 3, "kv_heads": 1, "attention": "additive", "norm": "post",
        "normalization": "rms", "activation": "swiglu", "layer_sharing": 3, "encoder_layers": 4,
    },
    "rnn": {"arch": "rnn"},
}  # fmt: skip


@pytest.fixture(params=VARIANTS.values(), ids=VARIANTS)
def model(request: pytest.FixtureRequest) -> Seq2Seq:
    torch.manual_seed(0)
    model = build(dataclasses.replace(TINY, **request.param), VOCABULARY).eval()
    with torch.no_grad():  # what begins at zero must not hide mistakes
        for parameter in model.parameters():
            if not parameter.any():
                parameter += 0.05 * torch.randn_like(parameter)
    return model


def logits(model: Seq2Seq, pairs: list[tuple[list[int], list[int]]]) -> list[Tensor]:
    """The logits of every pair's target positions, from one padded batch."""
    batch = collate(pairs)
    hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.places_N)
    return list(model.project(hidden_ND).split([len(tgt) + 1 for _, tgt in pairs]))


def test_parameters_per_layer_are_the_papers() -> None:
    base = build(ModelConfig(dim=512, heads=8, ff=2048, encoder_layers=1, decoder_layers=1, norm="post"), 100)
    assert sum(p.numel() for p in base.encoder.parameters()) == 3_152_384
    assert sum(p.numel() for p in base.decoder.parameters()) == 4_204_032


@pytest.mark.parametrize(("name", "millions"), [("wmt14-base", 63.1), ("wmt14-big", 214.2)])
def test_the_papers_models_have_the_papers_size(name: str, millions: float) -> None:
    config = settings.load(settings.find(name)).model
    with torch.device("meta"):
        model = build(config, 37_000)
    assert count_parameters(model) / 1e6 == pytest.approx(millions, abs=0.05)  # table 3 says 65 and 213


def test_tied_embeddings_are_one_matrix() -> None:
    tied, loose = (build(dataclasses.replace(TINY, tied=tied), VOCABULARY) for tied in (True, False))
    assert count_parameters(loose) - count_parameters(tied) == 2 * VOCABULARY * TINY.dim
    assert tied.output_weight_VD is tied.embeddings["shared"]


@pytest.mark.parametrize("tied", [True, False])
def test_scaled_embeddings_start_with_unit_variance_and_padding_at_zero(tied: bool) -> None:
    torch.manual_seed(0)
    model = build(dataclasses.replace(TINY, dim=64, tied=tied), 1000)
    for role in ("source", "target"):
        x_VD = model.look_up(role, torch.arange(1000))
        assert x_VD.std().item() == pytest.approx(1, rel=0.02)
        assert (~x_VD.any(-1)).nonzero().tolist() == [[PAD]]


def test_cached_logits_equal_uncached_ones(model: Seq2Seq) -> None:
    batch = collate(PAIRS)
    memory_BSD = model.encode(batch.src_BS, batch.src_mask_BS)
    whole_BTV = model.project(model.step(batch.tgt_in_BT, model.start(memory_BSD, batch.src_mask_BS, keep=False)))
    state = model.start(memory_BSD, batch.src_mask_BS)
    steps = [model.project(model.step(batch.tgt_in_BT[:, t : t + 1], state)) for t in range(batch.tgt_in_BT.shape[1])]
    torch.testing.assert_close(torch.cat(steps, 1), whole_BTV, atol=1e-5, rtol=1e-5)


def test_the_cache_survives_growth_and_steps_of_any_size(model: Seq2Seq) -> None:
    tgt_BT = torch.randint(4, VOCABULARY, (2, 45))
    src_BS, mask_BS = torch.randint(4, VOCABULARY, (2, 5)), torch.ones(2, 5, dtype=torch.bool)
    memory_BSD = model.encode(src_BS, mask_BS)
    whole_BTD = model.step(tgt_BT, model.start(memory_BSD, mask_BS, keep=False))
    state = model.start(memory_BSD, mask_BS)
    parts = [model.step(part, state) for part in tgt_BT.split([1, 7, 30, 1, 6], dim=1)]
    torch.testing.assert_close(torch.cat(parts, 1), whole_BTD, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_selecting_rows_and_sentences_carries_their_memory(model: Seq2Seq) -> None:
    batch = collate(PAIRS)
    state = model.start(model.encode(batch.src_BS, batch.src_mask_BS), batch.src_mask_BS)
    rows = torch.arange(3).repeat_interleave(2)  # two rows of each sentence
    first_R1 = torch.tensor([4, 5, 6, 7, 8, 9])[:, None]
    model.step(first_R1, state)
    # Drop the second sentence, swap the rows of the others.
    state.select(torch.tensor([1, 0, 5, 4]), torch.tensor([0, 2]))
    second_R1 = torch.tensor([10, 11, 12, 13])[:, None]
    cached_R1D = model.step(second_R1, state)
    tgt_RT = torch.cat((first_R1[[1, 0, 5, 4]], second_R1), 1)
    src_RS, mask_RS = batch.src_BS[rows[[1, 0, 5, 4]]], batch.src_mask_BS[rows[[1, 0, 5, 4]]]
    whole_RTD = model.step(tgt_RT, model.start(model.encode(src_RS, mask_RS), mask_RS, keep=False))
    torch.testing.assert_close(cached_R1D[:, 0], whole_RTD[:, 1], atol=1e-5, rtol=1e-5)


def test_padding_and_company_change_nothing(model: Seq2Seq) -> None:
    together = logits(model, PAIRS)
    for pair, logits_TV in zip(PAIRS, together, strict=True):
        torch.testing.assert_close(logits(model, [pair])[0], logits_TV, atol=1e-5, rtol=1e-5)


def test_the_decoder_does_not_look_ahead(model: Seq2Seq) -> None:
    (one,), (other,) = logits(model, [([5, 6], [7, 8, 9])]), logits(model, [([5, 6], [7, 8, 20])])
    torch.testing.assert_close(one[:3], other[:3])
    assert not torch.allclose(one[3], other[3])


def test_every_source_token_matters(model: Seq2Seq) -> None:
    (one,), (other,) = logits(model, [([5, 6, 7], [8])]), logits(model, [([5, 6, 9], [8])])
    assert not torch.allclose(one[0], other[0], atol=1e-4)


def test_masked_places_weigh_exactly_nothing() -> None:
    scores = torch.randn(2, 1, 3, 4, requires_grad=True)
    mask = torch.tensor([[True, False, True, False], [False] * 4])[:, None, None]
    weights = masked_softmax(scores, mask)
    assert (weights[0, 0, :, [1, 3]] == 0).all()
    torch.testing.assert_close(weights[0].sum(-1), torch.ones(1, 3))
    assert (weights[1] == 0).all()
    (weights * torch.randn(4)).sum().backward()
    assert scores.grad is not None
    assert scores.grad.isfinite().all()
    assert (scores.grad[1] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_source_of_nothing_but_padding_gives_no_nan(model: Seq2Seq, dtype: torch.dtype) -> None:
    model.compute_dtype = dtype
    batch = collate(PAIRS)
    mask_BS = batch.src_mask_BS.clone()
    mask_BS[1] = False
    model.train()
    hidden_ND = model(batch.src_BS, mask_BS, batch.tgt_in_BT, batch.places_N)
    hidden_ND.float().square().sum().backward()
    assert hidden_ND.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.fixture(params=[True, False], ids=["compiled", "by PyTorch"])
def _loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with compiled loops, and without."""
    if request.param and not kernels.available():
        pytest.skip("no C compiler here")
    monkeypatch.setattr(kernels, "available", lambda: request.param)


def searched(model: SearchModel, beams: int, tokens_RT: Tensor, keep: list[int], times: int = 1) -> list[Tensor]:
    """The log-probabilities of a search's steps, of sources `times` as long; some sentences end after the second."""
    batch = collate([(src * times, tgt) for src, tgt in PAIRS])
    state = model.begin(batch.src_BS, batch.src_mask_BS)
    found = []
    for t in range(tokens_RT.shape[1]):
        found.append(model.next_log_probs(tokens_RT[:, t], state).clone())
        if t == 1:
            rows = torch.tensor([row for i in keep for row in range(i * beams, (i + 1) * beams)]).flip(0)
            state.select(rows, torch.tensor(keep).flip(0))
            tokens_RT = tokens_RT[rows]
    return found


@pytest.mark.usefixtures("_loops")
@torch.no_grad()
@pytest.mark.parametrize(("beams", "times"), [(1, 1), (2, 1), (7, 1), (60, 9)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_a_model_made_ready_for_search_is_the_same_model(
    model: Seq2Seq, dtype: torch.dtype, beams: int, times: int
) -> None:
    before = [parameter.clone() for parameter in model.parameters()]
    ready = for_inference(model, dtype)
    assert isinstance(ready, PackedModel)
    by_pytorch = Int8Linear if dtype == torch.int8 else PackedLinear
    assert type(ready.output) is (CompiledLinear if kernels.can_multiply(model.output_weight_VD, dtype) else by_pytorch)
    tokens_RT = torch.randint(4, VOCABULARY, (len(PAIRS) * beams, 40))  # more than the cache grows by
    for wanted, found in zip(*(searched(m, beams, tokens_RT, [0, 2], times) for m in (model, ready)), strict=True):
        share = {torch.float32: 1e-5, torch.bfloat16: 0.05, torch.int8: 0.15}[dtype]  # seen: 0.03 and 0.12
        tolerance = share * max(1.0, wanted.abs().max().item())
        torch.testing.assert_close(found.float(), wanted, atol=tolerance, rtol=1e-4)
    assert all(torch.equal(one, other) for one, other in zip(before, model.parameters(), strict=True))


@pytest.mark.usefixtures("_loops")
@torch.no_grad()
@pytest.mark.parametrize("times", [1, 9])
def test_a_model_made_ready_for_search_looks_where_the_model_looks(times: int) -> None:
    model = build(TINY, VOCABULARY).eval()
    batch = collate([(src * times, tgt) for src, tgt in PAIRS])
    seen = []
    for searchable in (model, for_inference(model, torch.float32)):
        state = searchable.begin(batch.src_BS, batch.src_mask_BS)
        state.watch()
        searchable.next_log_probs(torch.tensor([4, 5, 6, 7, 8, 9]), state)  # two beams
        seen.append(state.seen_RTS)
    assert seen[0].shape == (6, 1, batch.src_BS.shape[1])
    torch.testing.assert_close(seen[1], seen[0])


@pytest.mark.usefixtures("_loops")
@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.int8])
@pytest.mark.parametrize("beams", [1, 3, 5, 17])
def test_sentences_that_end_leave_the_others_as_they_are(
    dtype: torch.dtype, beams: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inference, "PART_TOKENS", 25)
    model = build(TINY, VOCABULARY).eval()
    pairs = [(src, tgt) for src, tgt in PAIRS for _ in range(7)]
    batch = collate(pairs)
    tokens_RT = torch.randint(4, VOCABULARY, (len(pairs) * beams, 6))
    ready = for_inference(model, dtype)
    assert isinstance(ready, PackedTransformer)
    begin, parts = ready._begin, []
    ready._begin = lambda src_BS, mask_BS: parts.append(len(src_BS)) or begin(src_BS, mask_BS)
    found = []
    for searchable in (model, ready):
        state = searchable.begin(batch.src_BS, batch.src_mask_BS)
        state.watch()
        left, width, steps = len(pairs), 1, []  # the first step has one row for each sentence
        for t, stays in enumerate((slice(None), slice(1, None), slice(None), slice(0, 9), slice(2, 3), slice(0, 0))):
            logits_RV = searchable.next_log_probs(tokens_RT[: left * width, t], state)
            steps.append((logits_RV.clone(), state.seen_RTS.clone()))
            sentences = torch.arange(left)[stays]
            rows = (sentences[:, None] * width + torch.arange(beams).flip(0).clamp(max=width - 1)).flatten()
            state.select(rows, None if len(sentences) == left else sentences)
            left, width = len(sentences), beams
        found.append(steps)
    assert parts == [3] * 7
    for wanted, got in zip(*found, strict=True):
        for one, other in zip(wanted, got, strict=True):
            share = 0.15 if dtype == torch.int8 else 1e-5
            torch.testing.assert_close(other, one, atol=share * max(1.0, one.abs().max().item()), rtol=1e-4)


@torch.no_grad()
def test_onednn_multiplies_few_numbers_of_rows() -> None:
    weight_OI, bias_O, x_BSI = torch.randn(5, 16), torch.randn(5), torch.randn(7, 149, 16)
    linear = PackedLinear(weight_OI, bias_O)
    product, numbers = linear._product, []
    linear._product = lambda x, then: numbers.append(x.shape[:-1].numel()) or product(x, then)
    torch.testing.assert_close(linear(x_BSI), x_BSI @ weight_OI.t() + bias_O)
    assert numbers == [1043, 512, 512, 19, 32]  # of 1,043, two parts of 512 and one of 19, which becomes 32
    torch.testing.assert_close(linear.relu(x_BSI[0]), (x_BSI[0] @ weight_OI.t() + bias_O).relu())
    other_BSO = torch.randn(7, 149, 5)
    torch.testing.assert_close(linear.plus(x_BSI, other_BSO), x_BSI @ weight_OI.t() + bias_O + other_BSO)
    assert [rounded(rows) for rows in (1, 2, 3, 4, 5, 9, 16, 17, 32, 33)] == [1, 2, 4, 4, 8, 16, 16, 32, 32, 48]


@torch.no_grad()
@pytest.mark.parametrize("slab", [1, 700])
def test_what_is_remembered_of_steps_may_take_several_slabs(slab: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(TINY, VOCABULARY).eval()
    tokens_RT = torch.randint(4, VOCABULARY, (2 * len(PAIRS), 9))
    monkeypatch.setattr(cache, "SLAB", slab)
    found = searched(for_inference(model, torch.float32), 2, tokens_RT, [0, 2])
    torch.testing.assert_close(found, searched(model, 2, tokens_RT, [0, 2]))


@pytest.mark.usefixtures("_loops")
@torch.no_grad()
def test_searches_that_follow_share_memory_and_those_at_once_do_not() -> None:
    ready = for_inference(build(TINY, VOCABULARY).eval(), torch.float32)
    assert isinstance(ready, PackedTransformer)
    batch, tokens_NRT = collate(PAIRS), torch.randint(4, VOCABULARY, (2, len(PAIRS), 40))

    def begin() -> Any:
        return ready.begin(batch.src_BS, batch.src_mask_BS)

    def run(*states: Any) -> list[Tensor]:
        for t in range(40):
            found = []
            for number, state in enumerate(states):
                found.append(ready.next_log_probs(tokens_NRT[number, :, t], state))
                state.select(torch.tensor([0, 1, 2]))
        return found

    first, second = begin(), begin()
    memories = [first.memory, second.memory]
    assert memories[0] is not memories[1]
    together = [logits_RV.clone() for logits_RV in run(first, second)]
    del first, second
    for memory in memories:
        for room in memory._rooms.values():
            room.fill_(torch.nan)  # what it holds is of no account
    again = [begin(), begin()]
    assert {id(state.memory) for state in again} == {id(memory) for memory in memories}
    torch.testing.assert_close(run(*again), together)


def test_int8_matrices_have_a_scale_for_each_row_and_a_bias() -> None:
    torch.manual_seed(0)
    size_O = 10.0 ** torch.arange(-4, 4)
    weight_OI, bias_O, x_RI = size_O[:, None] * torch.randn(8, 64), 1e4 * torch.randn(8), torch.randn(5, 64)
    bare = Int8Linear(weight_OI, None)
    torch.testing.assert_close(bare(x_RI) / size_O, x_RI @ weight_OI.t() / size_O, atol=0.5, rtol=0)
    torch.testing.assert_close(Int8Linear(weight_OI, bias_O)(x_RI), bare(x_RI) + bias_O)


def test_what_moves_floater_is_never_in_int8() -> None:
    ready = for_inference(build(dataclasses.replace(TINY, positions="floater"), VOCABULARY), torch.int8)
    assert isinstance(ready, PackedModel)
    moving = [module for module in ready.model.modules() if isinstance(module, Floater)]
    assert [type(each.outer) for each in moving] == [Linear, Linear]


def test_a_model_that_was_trained_in_bf16_is_searched_in_what_is_asked() -> None:
    model = build(TINY, VOCABULARY).eval()
    tokens_RT = torch.randint(4, VOCABULARY, (len(PAIRS), 3))
    wanted = searched(for_inference(model, torch.float32), 1, tokens_RT, [0, 2])
    model.compute_dtype = torch.bfloat16
    found = searched(for_inference(model, torch.float32), 1, tokens_RT, [0, 2])
    torch.testing.assert_close(found, wanted)


def test_a_model_is_ready_for_search_without_onednns_layout_too(
    model: Seq2Seq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "_has_onednn", lambda: False)
    ready = for_inference(model, torch.bfloat16)
    assert isinstance(ready, Seq2Seq)
    assert not any(parameter.requires_grad for parameter in ready.parameters())
    recurrent = model.config.arch == "rnn"  # whose steps hand their rounding on
    assert logits(ready, PAIRS)[0].dtype == (torch.float32 if recurrent else torch.bfloat16)


def test_bf16_activations_leave_float32_gradients(model: Seq2Seq) -> None:
    reference = torch.cat(logits(model, PAIRS))
    model.compute_dtype = torch.bfloat16
    rounded = torch.cat(logits(model, PAIRS))
    assert rounded.dtype == torch.bfloat16
    assert (rounded.float() - reference).abs().max() < 0.1
    rounded.sum().backward()
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.float32}


@pytest.mark.parametrize(("rate", "dropped"), [(0.1, 26 / 256), (0.3, 77 / 256), (0.5, 0.5)])
def test_dropout_scales_by_the_share_it_really_keeps(rate: float, dropped: float) -> None:
    """On a CPU the rate is rounded to a multiple of 1/256; the scale must belong to the rounded rate."""
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
def test_no_rate_of_dropout_drops_all_or_nothing(rate: float) -> None:
    torch.manual_seed(0)
    dropped = Dropout(rate)(torch.ones(10_000))
    assert 0 < (dropped == 0).sum() < 10_000
    assert dropped.isfinite().all()


@pytest.mark.parametrize(
    ("change", "message"),
    [({"arch": "transfomer"}, "model.arch"), ({"positions": "sinus"}, "model.positions")],
)
def test_unknown_parts_are_refused(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check(dataclasses.replace(TINY, **change))
    assert "did you mean" in caught.value.hint


def test_configs_load_from_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert settings.load(settings.find("wmt14-big")).model.heads == 16


def test_what_is_kept_of_the_source_stays_in_the_same_memory() -> None:
    memory, places = Memory(), set()
    both = {name: torch.randn(9, 2, 3) for name in ("keys", "values")}
    expected = dict(both)
    for size in (7, 7, 4, 1, 0):
        rows = torch.randperm(len(both["keys"]))[:size].sort().values
        both = {name: memory.select(name, x, rows) for name, x in both.items()}
        expected = {name: x[rows] for name, x in expected.items()}
        places |= {x.untyped_storage().data_ptr() for x in both.values()}
        assert all(torch.equal(both[name], expected[name]) for name in both)
    assert len(places) <= 3  # of each, and one to spare
    first = memory.room("logits", torch.empty(0), (2, 3))
    assert memory.room("logits", first, (1, 3)).data_ptr() == first.data_ptr()
    assert memory.room("logits", first, (4, 3)).shape == (4, 3)


@torch.no_grad()
@pytest.mark.parametrize("size", [2, 3])
def test_ensemble_averages_probabilities_and_attention(size: int) -> None:
    """The mean of the probabilities is arithmetic, not the geometric mean that averaged log-probabilities give."""
    models, batch = [], collate(PAIRS)
    for seed in range(size):
        torch.manual_seed(seed)
        models.append(build(TINY, VOCABULARY).eval())
        models[-1].output_weight_VD.mul_(3)  # confident models, whose geometric mean differs clearly
    ensemble = Ensemble(models)
    states = [model.begin(batch.src_BS, batch.src_mask_BS) for model in models]
    joint = ensemble.begin(batch.src_BS, batch.src_mask_BS)
    for state in (joint, *states):
        state.watch()
    for tokens_R in torch.tensor([[1, 1, 1], [7, 8, 9]]):
        log_probs = [model.next_log_probs(tokens_R, own) for model, own in zip(models, states, strict=True)]
        mean_RV = sum(log_prob_RV.double().exp() for log_prob_RV in log_probs) / size
        found_RV = ensemble.next_log_probs(tokens_R, joint).double().exp()
        torch.testing.assert_close(found_RV, mean_RV, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(joint.seen_RTS, sum(state.seen_RTS for state in states) / size)
