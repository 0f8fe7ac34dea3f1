"""Search on the (emulated) GPU finds the hypotheses of the searches in NumPy, and rarely waits."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from fake_cuda import fake_cuda
from test_model import TINY, VOCABULARY

from nmt.engines import device_search
from nmt.engines.load import engine_from_models
from nmt.engines.pytorch import TorchModel
from nmt.model import cache
from nmt.model.build import build_model
from nmt.model.seq2seq import Seq2Seq
from nmt.search import Hypothesis, SearchRequest, StepModel, parse_search
from nmt.search.shortlist import Shortlist
from nmt.text.tokenizer import BOS, EOS

SEARCHES = [
    "greedy",
    "greedy(max_length_ratio=1.5)",
    "beam(beam_size=3)",
    "beam(beam_size=1, length_penalty=0.0)",
    "beam(beam_size=4, top_beams=4)",
    "beam(beam_size=4, early_stopping=True, top_beams=2)",
    "beam(beam_size=4, length_normalization='average', length_penalty=0.6)",
    "beam(beam_size=30, top_beams=3)",  # more candidates than tokens
]


def build(seed: int, **options: Any) -> Seq2Seq:
    """Return a model whose sentences end at different lengths."""
    torch.manual_seed(seed)
    one_layer = dataclasses.replace(TINY, encoder_layers=1, decoder_layers=1)
    model = build_model(dataclasses.replace(one_layer, **options), VOCABULARY).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.7)
    return model


NUM_SENTENCES = 10
MAX_LENGTH = 24


def request(**options: Any) -> SearchRequest:
    rng = np.random.default_rng(0)
    sources = [
        [*rng.integers(4, VOCABULARY, length).tolist(), EOS]
        for length in rng.integers(1, 12, NUM_SENTENCES)
    ]
    max_lengths = rng.integers(0, MAX_LENGTH, NUM_SENTENCES)
    return SearchRequest(sources, max_lengths, BOS, EOS, **options)


def on_gpu(models: list[Seq2Seq]) -> TorchModel:
    return TorchModel([copy.deepcopy(model).to("cuda:0") for model in models])


def check_equal(expected: list[list[Hypothesis]], actual: list[list[Hypothesis]]) -> None:
    for one, other in zip(expected, actual, strict=True):
        assert [h.ids for h in one] == [h.ids for h in other]
        for name in ("score", "log_prob", "length_norm"):
            values = [getattr(h, name) for h in one]
            assert [getattr(h, name) for h in other] == pytest.approx(values, rel=1e-4, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SEARCHES)
def test_hypotheses_are_those_of_the_search_in_numpy(spec: str) -> None:
    search = parse_search(spec)
    model = build(1, position_encoding="rotary")
    expected = search(TorchModel([model]), request())
    with fake_cuda() as gpu:
        actual = device_search.search(search, on_gpu([model]), request())
        # Nearly all steps are graphs.
        assert gpu.replays >= max(len(h.ids) for n_best in expected for h in n_best) - 10
    check_equal(expected, actual)
    lengths = {len(n_best[0].ids) for n_best in expected}
    assert len(lengths) > 5


@pytest.mark.slow
@pytest.mark.parametrize(
    "position",
    [
        "learned",
        "none",
        "shaw",
        "t5",
        "deberta",
        "alibi",
        "sinusoidal",
        "sinusoidal_concatenated",
    ],
)
def test_every_position_encoding(position: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the cache grows several times."""
    monkeypatch.setattr(cache, "BLOCK", 8)
    model, search = build(1, position_encoding=position), parse_search("beam(beam_size=3)")
    expected = search(TorchModel([model]), request())
    with fake_cuda() as gpu:
        actual = device_search.search(search, on_gpu([model]), request())
        assert gpu.replays
    check_equal(expected, actual)


@pytest.mark.slow
def test_ensembles_and_output_biases() -> None:
    models = [build(seed, output_bias=True, kv_heads=2) for seed in (1, 2)]
    with torch.no_grad():
        for model in models:
            assert model.output_bias_V is not None
            model.output_bias_V.normal_()
    search = parse_search("beam(beam_size=3, top_beams=2)")
    expected = search(TorchModel(models), request())
    with fake_cuda():
        actual = device_search.search(search, on_gpu(models), request())
    check_equal(expected, actual)


@pytest.mark.slow
def test_ensembles_with_a_shortlist() -> None:
    models = [build(seed) for seed in (1, 2)]
    tokens = np.arange(VOCABULARY)
    shortlist = Shortlist.of(tokens, tokens[::-1], VOCABULARY, EOS + 1, max_translations=1)
    restricted = request(shortlist=shortlist)
    search = parse_search("beam(beam_size=3, top_beams=2)")
    expected = search(TorchModel(models), restricted)
    with fake_cuda() as gpu:
        actual = device_search.search(search, on_gpu(models), restricted)
        assert gpu.replays
    check_equal(expected, actual)


@pytest.mark.slow
def test_the_host_waits_every_eight_steps() -> None:
    model, search = build(1), parse_search("beam(beam_size=3)")
    with fake_cuda() as gpu:
        on_device = on_gpu([model])
        device_search.search(search, on_device, request())  # moves tables of positions
        gpu.waits.clear()
        gpu.operators.clear()
        hypotheses = device_search.search(search, on_device, request())
        num_steps = max(len(h.ids) for n_best in hypotheses for h in n_best) + 1
        num_looks = num_steps // 8 + 1
        # A look, and the results of sentences that are dropped or end last.
        assert gpu.waits.total() <= 2 * num_looks
        assert gpu.operators.total() < 100 * num_steps


def test_other_searches_are_those_in_numpy() -> None:
    specs = (
        "beam(beam_size=3, coverage_penalty=0.2)",
        "beam(beam_size=3, min_length_ratio=0.5)",
        "greedy(no_repeat_ngram_size=2)",
    )
    model = build(1)
    for spec in specs:
        search: Any = parse_search(spec)
        assert not device_search.supports(search, request())
    plain: Any = parse_search("beam(beam_size=3)")
    assert device_search.supports(plain, request(prefixes=[[]] * NUM_SENTENCES))
    assert not device_search.supports(plain, request(prefixes=[[5], *[[]] * (NUM_SENTENCES - 1)]))
    assert not device_search.supports(
        plain, request(constraints=[[[5]], *[[]] * (NUM_SENTENCES - 1)])
    )
    # On a CPU, and with models that are not PyTorch's.
    check_equal(
        device_search.search(plain, TorchModel([model]), request()),
        plain(TorchModel([model]), request()),
    )

    class Other:
        def init_search_state(self, sources: Any, **options: Any) -> Any:
            raise AssertionError

    calls: list[StepModel] = []

    class Recorder:
        rows = n_best = 1

        def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
            calls.append(model)
            return []

    other = Other()
    device_search.search(Recorder(), other, request())
    assert calls == [other]


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "failing"), [("greedy", 1), ("beam", 1), ("beam", 2)])
def test_search_continues_without_graphs_if_a_capture_runs_out_of_memory(
    spec: str, failing: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A beam search records two graphs."""
    model, search = build(1), parse_search(spec)
    expected, logits = search(TorchModel([model]), request()), type(model).logits
    with fake_cuda() as gpu:

        def limited(self: Seq2Seq, hidden: torch.Tensor) -> torch.Tensor:
            if gpu.captured is not None and len(gpu.pools) == failing:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return logits(self, hidden)

        monkeypatch.setattr(type(model), "logits", limited)
        on_device = on_gpu([model])
        actual = device_search.search(search, on_device, request())
        assert (len(gpu.pools), gpu.replays) == (failing, failing - 1)
        # The memory of graphs is free.
        assert on_device.spare_graphs
        assert on_device.spare_graphs.take() is None
    check_equal(expected, actual)


@pytest.mark.slow
def test_a_row_that_is_not_a_number_does_not_end_its_sentence() -> None:
    """One token makes the following log-probabilities NaN."""
    search = parse_search("beam(beam_size=4, top_beams=2)")
    for token in (5, 9, 12):
        model = build(1, tie_embeddings=False)
        with torch.no_grad():
            model.embeddings["target"][token] = torch.nan
        expected = search(TorchModel([model]), request())
        assert any(expected)
        with fake_cuda():
            actual = device_search.search(search, on_gpu([model]), request())
        check_equal(expected, actual)


@pytest.mark.slow
@pytest.mark.parametrize("spec", ["greedy", "beam(beam_size=3)"])
@pytest.mark.parametrize("max_length", [0, 1, 2, 5])
def test_short_searches_record_nothing(spec: str, max_length: int) -> None:
    model, search = build(1), parse_search(spec)
    short = request()._replace(max_length_B=np.full(NUM_SENTENCES, max_length))
    expected = search(TorchModel([model]), short)
    with fake_cuda() as gpu:
        actual = device_search.search(search, on_gpu([model]), short)
        assert bool(gpu.pools) == (max_length == 5)
    check_equal(expected, actual)


@pytest.mark.slow
def test_scores_that_are_not_numbers_are_an_error() -> None:
    from nmt.core.errors import NMTError
    from nmt.engines import Source

    model = build(1)
    with torch.no_grad():
        model.output_weight_VD[5] = torch.nan
    with fake_cuda():
        engine = engine_from_models([model], "cuda:0", "fp32", str)
        with pytest.raises(NMTError, match="scores are NaN"):
            engine.search([Source([5, 6, 7])], parse_search("beam(beam_size=3)"), lambda _: None)
