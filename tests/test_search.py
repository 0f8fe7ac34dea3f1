"""Search against brute force, against each other, and against teacher-forced scores."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt.config import ModelConfig
from nmt.errors import ConfigError
from nmt.model import build
from nmt.model.transformer import Transformer
from nmt.search import SEARCHES, Hypothesis, Task, search
from nmt.search import beam as beam_module
from nmt.search.candidates import log_normaliser, top_k
from nmt.tokenizer import BOS, EOS

VOCABULARY = 7
SOURCES = torch.tensor([[4, 5, 6, 3], [6, 4, 3, 0], [5, 3, 0, 0]])
MASK = SOURCES != 0


def make(seed: int, vocabulary: int = VOCABULARY, end_bias: float = 0.0) -> Transformer:
    torch.manual_seed(seed)
    config = ModelConfig(dim=8, heads=2, ff=16, encoder_layers=1, decoder_layers=2, tied=False)
    model = build(config, vocabulary).eval()
    with torch.no_grad():
        model.output_weight_VD.mul_(6)  # far from uniform, so that rankings are clear
        last = model.decoder_norm  # its output has mean 0, over which a constant weight would sum to 0
        last.bias.fill_(1.0)
        model.output_weight_VD[EOS].add_(end_bias / len(last.bias))
    return model


@torch.inference_mode()
def run(
    model: Transformer, spec: str, limits: list[int] | None = None, rows: slice = slice(None)
) -> list[list[Hypothesis]]:
    limit_B = torch.tensor(limits or [6, 6, 6])[rows]
    return search(spec)(model, Task(SOURCES[rows], MASK[rows], limit_B, BOS, EOS))


@torch.inference_mode()
def forced_log_prob(model: Transformer, row: int, ids: list[int]) -> float:
    """Log-probability of a translation and its end, from one uncached pass."""
    src, mask = SOURCES[row : row + 1], MASK[row : row + 1]
    state = model.start(model.encode(src, mask), mask, keep=False)
    log_p_TV = model.project(model.step(torch.tensor([[BOS, *ids]]), state))[0].log_softmax(-1)
    return float(sum(log_p_TV[t, token] for t, token in enumerate([*ids, EOS])))


@pytest.mark.parametrize("seed", range(6))
def test_beam_of_one_is_greedy(seed: int) -> None:
    model = make(seed)
    for greedy, (beam, *_) in zip(run(model, "greedy"), run(model, "beam(size=1, length_penalty=0.0)"), strict=True):
        assert greedy[0].ids == beam.ids
        assert greedy[0].log_prob == pytest.approx(beam.log_prob, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("end_bias", [-0.5, 0.0, 1.0])
def test_a_wide_beam_is_exhaustive_search(seed: int, penalty: float, end_bias: float) -> None:
    limit, vocabulary = 3, 5
    model = make(seed, vocabulary, end_bias)
    src, mask = torch.tensor([[4, 4, 3]]), torch.ones(1, 3, dtype=torch.bool)
    words = [token for token in range(vocabulary) if token != EOS]
    every = [list(ids) for length in range(limit + 1) for ids in itertools.product(words, repeat=length)]

    @torch.inference_mode()
    def score(ids: list[int]) -> float:
        state = model.start(model.encode(src, mask), mask, keep=False)
        log_p_TV = model.project(model.step(torch.tensor([[BOS, *ids]]), state))[0].log_softmax(-1)
        total = sum(log_p_TV[t, token].item() for t, token in enumerate([*ids, EOS]))
        return total / ((5 + len(ids) + 1) / 6) ** penalty

    best = sorted(every, key=score, reverse=True)[:5]
    wide = f"beam(size={len(every)}, top=5, length_penalty={penalty})"
    with torch.inference_mode():
        (found,) = search(wide)(model, Task(src, mask, torch.tensor([limit]), BOS, EOS))
    assert [h.ids for h in found] == best
    assert [h.score for h in found] == pytest.approx([score(ids) for ids in best], abs=1e-4)


@pytest.mark.parametrize("size", [6, 12, 40])
def test_impossible_beams_never_become_hypotheses(size: int) -> None:
    model = make(0, 5)
    src, mask = torch.tensor([[4, 4, 3]]), torch.ones(1, 3, dtype=torch.bool)
    with torch.inference_mode():
        (found,) = search(f"beam(size={size}, top={size})")(model, Task(src, mask, torch.tensor([3]), BOS, EOS))
    assert len(found) == size  # of the 85 translations there are
    assert all(h.log_prob > -torch.inf for h in found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spec", ["greedy", "beam(size=4, top=4)"])
def test_reported_log_probs_are_teacher_forced_ones(seed: int, spec: str) -> None:
    model = make(seed)
    for row, hypotheses in enumerate(run(model, spec)):
        for hypothesis in hypotheses:
            assert hypothesis.log_prob == pytest.approx(forced_log_prob(model, row, hypothesis.ids), abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_n_best_is_sorted_distinct_and_normalised(seed: int) -> None:
    for hypotheses in run(make(seed), "beam(size=6, top=6, length_penalty=0.6)"):
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses)
        for h in hypotheses:
            assert h.score == pytest.approx(h.log_prob / ((5 + len(h.ids) + 1) / 6) ** 0.6, rel=1e-5)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "options", ["size=3", "size=5, top=3", "size=4, length_penalty=0.0", "size=4, length_penalty=2.0"]
)
def test_stopping_early_changes_nothing(seed: int, options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(seed, 11, end_bias=0.5)
    early = run(model, f"beam({options})", [12, 12, 12])
    monkeypatch.setattr(beam_module, "_may_improve", lambda best_live_B, *_: best_live_B > -torch.inf)
    late = run(model, f"beam({options})", [12, 12, 12])
    assert [[h.ids for h in hypotheses] for hypotheses in early] == [[h.ids for h in hypotheses] for hypotheses in late]


def test_stopping_early_saves_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(0, 11, end_bias=10.0)
    steps: list[int] = []
    whole = model.step

    def counted(tgt_RT: Tensor, state: object) -> Tensor:
        steps[-1] += 1
        return whole(tgt_RT, state)  # type: ignore[arg-type]

    monkeypatch.setattr(model, "step", counted)
    steps.append(0)
    run(model, "beam(size=4, length_penalty=0.0)", [30, 30, 30])
    monkeypatch.setattr(beam_module, "_may_improve", lambda best_live_B, *_: best_live_B > -torch.inf)
    steps.append(0)
    run(model, "beam(size=4, length_penalty=0.0)", [30, 30, 30])
    assert steps[0] < steps[1]


@pytest.mark.parametrize("spec", ["greedy", "beam(size=3)"])
def test_company_changes_nothing(spec: str) -> None:
    model = make(1)
    together = run(model, spec, [6, 4, 2])
    for row in range(3):
        (alone,) = run(model, spec, [6, 4, 2], slice(row, row + 1))
        assert [h.ids for h in alone] == [h.ids for h in together[row]]
        assert [h.score for h in alone] == pytest.approx([h.score for h in together[row]], abs=1e-5)


@pytest.mark.parametrize("spec", ["greedy", "beam(size=4, top=2)"])
@pytest.mark.parametrize("limit", [0, 1, 5])
def test_limits_are_kept(spec: str, limit: int) -> None:
    for hypotheses in run(make(3, end_bias=-3.0), spec, [limit] * 3):
        assert hypotheses
        assert all(len(h.ids) <= limit and EOS not in h.ids for h in hypotheses)


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_normalised_by_average_when_asked(seed: int) -> None:
    for hypotheses in run(make(seed), "beam(size=6, top=6, length_penalty=0.7, normalisation='average')"):
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([h.log_prob / (len(h.ids) + 1) ** 0.7 for h in hypotheses], rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spec", ["greedy({})", "beam(size=4, top=4, {})"])
@pytest.mark.parametrize("end_bias", [-3.0, 3.0])
def test_lengths_keep_to_the_ratios(seed: int, spec: str, end_bias: float) -> None:
    found = run(make(seed, end_bias=end_bias), spec.format("min_ratio=1.0, max_ratio=2.0"), [20, 20, 20])
    for hypotheses, source in zip(found, (3, 2, 1), strict=True):  # tokens without the end
        assert all(source <= len(h.ids) <= 2 * source for h in hypotheses)
        assert hypotheses


@pytest.mark.parametrize("spec", ["greedy({})", "beam(size=4, top=4, {})"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_n_gram_comes_twice(spec: str, size: int) -> None:
    def repeats(option: int) -> int:
        """The n-grams that come again, over all hypotheses of some models."""
        again = 0
        for seed in range(6):
            for hypotheses in run(make(seed, end_bias=-2.0), spec.format(f"no_repeat_ngram={option}"), [12, 12, 12]):
                assert hypotheses
                for h in hypotheses:
                    grams = [tuple(h.ids[i : i + size]) for i in range(len(h.ids) - size + 1)]
                    again += len(grams) - len(set(grams))
        return again

    assert repeats(size) == 0
    assert repeats(0) > 0


@pytest.mark.parametrize("spec", ["greedy", "beam(size=3, top=3)"])
def test_a_translation_begins_as_it_must(spec: str) -> None:
    model, prefixes = make(2), [[4, 6, 4], [], [5]]
    with torch.inference_mode():
        task = Task(SOURCES, MASK, torch.tensor([6, 6, 2]), BOS, EOS, prefixes)
        found = search(spec)(model, task)
    for row, (hypotheses, prefix) in enumerate(zip(found, prefixes, strict=True)):
        for h in hypotheses:
            assert h.ids[: len(prefix)] == prefix
            assert h.log_prob == pytest.approx(forced_log_prob(model, row, h.ids), abs=1e-4)
    free = run(model, spec, [6, 6, 2])
    assert [h.ids for h in found[1]] == [h.ids for h in free[1]]


@settings(deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 5), st.integers(1, 700), st.integers(1, 16))
def test_the_largest_scores_are_found_in_fewer_passes(seed: int, rows: int, vocabulary: int, count: int) -> None:
    count = min(count, vocabulary)
    scores_RV = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))
    scores_RV[scores_RV < -1] = -torch.inf
    best_RC, ids_RC = top_k(scores_RV, count)
    assert torch.equal(best_RC, scores_RV.topk(count).values)
    assert torch.equal(scores_RV.gather(1, ids_RC), best_RC)
    assert all(len(set(ids)) == count for ids in ids_RC.tolist())
    torch.testing.assert_close(log_normaliser(scores_RV.clamp(min=-9))[:, 0], scores_RV.clamp(min=-9).logsumexp(-1))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("beem", "unknown search 'beem'"),
        ("beam(sise=3)", "has no option 'sise'"),
        ("beam(size=0)", "beam size must be between 1 and 1000"),
        ("beam(size=2, top=3)", "between 1 and the beam size"),
        ("beam(top=0)", "between 1 and the beam size"),
        ("beam(length_penalty=-1.0)", "length penalty must be between 0 and 10"),
        ("beam(size=True)", "size must be int"),
        ("beam(normalisation='none')", "normalisation must be gnmt or average, got 'none'"),
        ("greedy(min_ratio=-1.0)", "min_ratio must be 0 or more"),
        ("greedy(min_ratio=2.0, max_ratio=1.0)", "must not be above max_ratio"),
        ("beam(no_repeat_ngram=-1)", "no_repeat_ngram must be 0 or more"),
    ],
)
def test_mistakes_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        search(spec)


def test_every_search_is_tested_here() -> None:
    assert set(SEARCHES) == {"greedy", "beam"}
