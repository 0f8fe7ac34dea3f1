"""Search against brute force, against each other, and against teacher-forced scores."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.errors import ConfigError
from nmt.model import build
from nmt.model.transformer import Transformer
from nmt.search import SEARCHES, Hypothesis, beam_module, search
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
    return search(spec)(model, SOURCES[rows], MASK[rows], limit_B, BOS, EOS)


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
        (found,) = search(wide)(model, src, mask, torch.tensor([limit]), BOS, EOS)
    assert [h.ids for h in found] == best
    assert [h.score for h in found] == pytest.approx([score(ids) for ids in best], abs=1e-4)


@pytest.mark.parametrize("size", [6, 12, 40])
def test_impossible_beams_never_become_hypotheses(size: int) -> None:
    model = make(0, 5)
    src, mask = torch.tensor([[4, 4, 3]]), torch.ones(1, 3, dtype=torch.bool)
    with torch.inference_mode():
        (found,) = search(f"beam(size={size}, top={size})")(model, src, mask, torch.tensor([3]), BOS, EOS)
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
    monkeypatch.setattr(beam_module, "_can_improve", lambda found, top, best_live, *_: best_live > -torch.inf)
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
    monkeypatch.setattr(beam_module, "_can_improve", lambda found, top, best_live, *_: best_live > -torch.inf)
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
    ],
)
def test_mistakes_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        search(spec)


def test_every_search_is_tested_here() -> None:
    assert set(SEARCHES) == {"greedy", "beam"}
