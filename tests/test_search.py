"""Search against brute force, against each other, and against teacher-forced scores."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmt.config import ModelConfig
from nmt.data.tokenizer import BOS, EOS
from nmt.errors import ConfigError
from nmt.inference import native
from nmt.inference.ensemble import NativeEnsemble
from nmt.inference.native import NativeModel
from nmt.inference.pytorch import TorchModel
from nmt.model.build import build_model
from nmt.model.transformer import Transformer
from nmt.search import SEARCHES, Hypothesis, SearchRequest, StepModel, search
from nmt.search import beam as beam_module
from nmt.search.beam import best_candidates
from nmt.search.constrained import Constraints, _allocate_banks
from nmt.search.request import Floats, Ints, StepRequest, StepResult, best_tokens
from nmt.search.sample import draw

compiled = pytest.mark.skipif(not native.is_available(), reason="no C compiler here")
VOCABULARY = 7
N_BEST = [
    "greedy", "beam(beam_size=4, top_beams=4)", "diverse(beam_size=6, groups=3, top_beams=4)", "constrained(beam_size=4, top_beams=3)", "sample(n_best=3)",
    "beam(beam_size=4, top_beams=2, coverage_penalty=0.3)",
]  # fmt: skip
RULED = [
    "greedy({})", "beam(beam_size=4, top_beams=4, {})", "diverse(beam_size=4, top_beams=4, {})", "sample(n_best=4, {})",
]  # fmt: skip
SOURCES = [[4, 5, 6, 3], [6, 4, 3], [5, 3]]


def make(seed: int, vocabulary: int = VOCABULARY, end_bias: float = 0.0) -> Transformer:
    torch.manual_seed(seed)
    config = ModelConfig(dim=8, heads=2, ffn_dim=16, encoder_layers=1, decoder_layers=2, tie_embeddings=False)
    model = build_model(config, vocabulary).eval()
    assert isinstance(model, Transformer)
    with torch.no_grad():
        model.output_weight_VD.mul_(6)  # far from uniform, so that rankings are clear
        last = model.decoder_norm  # its output has mean 0, over which a constant weight would sum to 0
        last.bias.fill_(1.0)
        model.output_weight_VD[EOS].add_(end_bias / len(last.bias))
    return model


def packed(model: Transformer) -> NativeModel:
    return NativeModel(model.config, {name: weight.numpy() for name, weight in model.state_dict().items()}, "fp32")


def run(
    model: Transformer | StepModel,
    spec: str,
    limits: list[int] | None = None,
    rows: slice = slice(None),
    **requests: Any,
) -> list[list[Hypothesis]]:
    length_B = np.array(limits or [6, 6, 6])[rows]
    steps = TorchModel([model]) if isinstance(model, Transformer) else model
    return search(spec)(steps, SearchRequest(SOURCES[rows], length_B, BOS, EOS, **requests))


def forced_log_prob(model: Transformer, row: int, ids: list[int]) -> float:
    """Log-probability of a translation and its end, from one uncached pass."""
    log_p_TV, _ = forced(model, SOURCES[row], ids)
    return float(sum(log_p_TV[t, token] for t, token in enumerate([*ids, EOS])))


@torch.inference_mode()
def forced(model: Transformer, source: list[int], ids: list[int]) -> tuple[Tensor, Tensor]:
    """All log-probabilities of a translation's positions, and their cross-attention, from one uncached pass."""
    mask = torch.ones(1, len(source), dtype=torch.bool)
    state = model.init_state(model.encode(torch.tensor([source]), mask), mask, use_cache=False)
    state.track_attention()
    log_p_TV = model.logits(model.decode(torch.tensor([[BOS, *ids]]), state))[0].log_softmax(-1)
    assert state.cross_attention_RTS is not None
    return log_p_TV, state.cross_attention_RTS[0]


@pytest.mark.parametrize("seed", range(6))
def test_beam_of_one_is_greedy(seed: int) -> None:
    model = make(seed)
    for greedy, (beam, *_) in zip(
        run(model, "greedy"), run(model, "beam(beam_size=1, length_penalty=0.0)"), strict=True
    ):
        assert greedy[0].ids == beam.ids
        assert greedy[0].log_prob == pytest.approx(beam.log_prob, abs=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("penalty", [0.0, 1.0])
@pytest.mark.parametrize("end_bias", [-0.5, 0.0, 1.0])
def test_a_wide_beam_is_exhaustive_search(seed: int, penalty: float, end_bias: float) -> None:
    limit, vocabulary = 3, 5
    model = make(seed, vocabulary, end_bias)
    words = [token for token in range(vocabulary) if token != EOS]
    every = [list(ids) for length in range(limit + 1) for ids in itertools.product(words, repeat=length)]

    def score(ids: list[int]) -> float:
        log_p_TV, _ = forced(model, [4, 4, 3], ids)
        total = sum(log_p_TV[t, token].item() for t, token in enumerate([*ids, EOS]))
        return total / ((5 + len(ids) + 1) / 6) ** penalty

    best = sorted(every, key=score, reverse=True)[:5]
    wide = f"beam(beam_size={len(every)}, top_beams=5, length_penalty={penalty})"
    (found,) = search(wide)(TorchModel([model]), SearchRequest([[4, 4, 3]], np.array([limit]), BOS, EOS))
    assert [h.ids for h in found] == best
    assert [h.score for h in found] == pytest.approx([score(ids) for ids in best], abs=1e-4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("early_stopping", [True, False])
@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_a_narrow_beam_is_what_its_description_says(seed: int, size: int, early_stopping: bool, penalty: float) -> None:
    model, limit = make(seed, end_bias=1.5), 6
    spec = f"beam(beam_size={size}, top_beams={size}, length_penalty={penalty}, early_stopping={early_stopping})"
    for row, found in enumerate(run(model, spec, [limit] * 3)):
        beams: list[tuple[float, list[int]]] = [(0.0, [])]
        ended: list[tuple[float, list[int]]] = []
        while beams and not (early_stopping and len(ended) >= size):
            longer = []
            for log_prob, ids in beams:
                log_p_V = forced(model, SOURCES[row], ids)[0][-1].tolist()
                tokens = range(VOCABULARY) if len(ids) < limit else [EOS]
                longer += [(log_prob + log_p_V[token], [*ids, token]) for token in tokens]
            longer.sort(reverse=True)
            norm = ((5 + len(longer[0][1])) / 6) ** penalty
            ended += [(log_prob / norm, ids[:-1]) for log_prob, ids in longer[:size] if ids[-1] == EOS]
            beams = [one for one in longer if one[1][-1] != EOS][:size]
        ended.sort(reverse=True)
        assert [h.ids for h in found] == [ids for _, ids in ended[:size]]


@pytest.mark.parametrize("size", [6, 12, 40])
def test_impossible_beams_never_become_hypotheses(size: int) -> None:
    request = SearchRequest([[4, 4, 3]], np.array([3]), BOS, EOS)
    (found,) = search(f"beam(beam_size={size}, top_beams={size})")(TorchModel([make(0, 5)]), request)
    assert len(found) == size  # of the 85 translations there are
    assert all(h.log_prob > -math.inf for h in found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spec", [*N_BEST, "mbr(candidates='beam(beam_size=4, top_beams=4)', n_best=2)"])
def test_reported_log_probs_are_teacher_forced_ones(seed: int, spec: str) -> None:
    model = make(seed)
    for row, hypotheses in enumerate(run(model, spec)):
        for hypothesis in hypotheses:
            assert hypothesis.log_prob == pytest.approx(forced_log_prob(model, row, hypothesis.ids), abs=1e-4)


@pytest.mark.parametrize("seed", range(4))
def test_n_best_is_sorted_distinct_and_normalized(seed: int) -> None:
    for hypotheses in run(make(seed), "beam(beam_size=6, top_beams=6, length_penalty=0.6)"):
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses)
        for h in hypotheses:
            assert h.score == pytest.approx(h.log_prob / ((5 + len(h.ids) + 1) / 6) ** 0.6, rel=1e-5)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    "spec",
    [
        "beam(beam_size=3)", "beam(beam_size=5, top_beams=3)", "beam(beam_size=4, length_penalty=0.0)", "beam(beam_size=4, length_penalty=2.0)",
        "beam(beam_size=4, coverage_penalty=0.5)", "beam(beam_size=4, top_beams=2, length_normalization='average')",
        "diverse(beam_size=6, groups=3, top_beams=2)", "constrained(beam_size=5, top_beams=2)",
    ],
)  # fmt: skip
def test_stopping_early_changes_nothing(seed: int, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(seed, 11, end_bias=0.5)
    constraints = [[[5, 7]], [], [[9], [4]]] if spec.startswith("constrained") else ()
    early = run(model, spec, [12, 12, 12], constraints=constraints)
    run_on(monkeypatch)
    late = run(model, spec, [12, 12, 12], constraints=constraints)
    assert [[h.ids for h in hypotheses] for hypotheses in early] == [[h.ids for h in hypotheses] for hypotheses in late]


def run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the bound away from every search: they continue until no beam is left."""
    monkeypatch.setattr(beam_module, "can_improve", lambda best_B, *_: best_B > -np.inf)


@pytest.mark.parametrize("name", ["beam", "diverse", "constrained"])
def test_the_usual_rule_finds_nothing_better_than_the_bound(name: str) -> None:
    differences = 0
    for seed in range(8):
        model = make(seed, 11, end_bias=2.0)
        exact, early = (
            run(model, f"{name}(size=2, length_penalty=3.0, early_stopping={value})", [12, 12, 12])
            for value in (False, True)
        )
        for (best, *_), (other, *_) in zip(exact, early, strict=True):
            assert best.score >= other.score
            differences += best.score > other.score + 1e-6
    assert differences


class Scripted:
    """A model that predicts the same at a step whatever it has read; it is its own state."""

    attention_RS: Floats | None = None

    def __init__(self, logits_TV: Tensor) -> None:
        self.log_p_TV, self.steps = logits_TV.log_softmax(-1).numpy(), 0

    def prefill(self, sources: Sequence[Sequence[int]], *, track_attention: bool = False) -> Scripted:
        return self

    def step(self, request: StepRequest) -> StepResult:
        self.steps += 1
        return best_tokens(self.log_p_TV[self.steps - 1][None].repeat(len(request.tokens_R), 0), request)


@pytest.mark.parametrize("spec", ["beam(beam_size=2)", "diverse(beam_size=2, groups=1)", "constrained(beam_size=2)"])
def test_a_beam_that_wins_at_the_length_limit_only_is_not_given_up(spec: str) -> None:
    limit = 12
    longest = (5 + limit + 1) / 6
    said_TV = torch.full((limit + 1, VOCABULARY), -100.0)
    said_TV[0, [EOS, 4]] = torch.tensor([-0.41, -0.4 * longest])  # and nothing more is lost after the first token
    said_TV[0, 5] = (1 - said_TV[0].exp().sum()).log()
    said_TV[1:limit, 4] = said_TV[limit, EOS] = 0.0
    (best,) = run(Scripted(said_TV), spec, [limit], slice(1))[0]
    assert best.ids == [4] * limit
    assert best.score == pytest.approx(-0.4, abs=1e-5)


def test_stopping_early_saves_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(0, 11, end_bias=10.0)
    steps: list[int] = []
    decode = model.step

    def counted(tgt_RT: Tensor, state: Any) -> Tensor:
        steps[-1] += 1
        return decode(tgt_RT, state)

    monkeypatch.setattr(model, "step", counted)
    steps.append(0)
    run(model, "beam(beam_size=4, length_penalty=0.0)", [30, 30, 30])
    run_on(monkeypatch)
    steps.append(0)
    run(model, "beam(beam_size=4, length_penalty=0.0)", [30, 30, 30])
    assert steps[0] < steps[1]


@pytest.mark.parametrize("spec", N_BEST)
def test_company_changes_nothing(spec: str) -> None:
    model = make(1)
    together = run(model, spec, [6, 4, 2])
    for row in range(3):
        (alone,) = run(model, spec, [6, 4, 2], slice(row, row + 1))
        assert [h.ids for h in alone] == [h.ids for h in together[row]]
        assert [h.score for h in alone] == pytest.approx([h.score for h in together[row]], abs=1e-5)


@pytest.mark.parametrize("spec", N_BEST)
@pytest.mark.parametrize("limit", [0, 1, 5])
def test_limits_are_kept(spec: str, limit: int) -> None:
    for hypotheses in run(make(3, end_bias=-3.0), spec, [limit] * 3):
        assert hypotheses
        assert all(len(h.ids) <= limit and EOS not in h.ids for h in hypotheses)


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_normalized_by_average_when_asked(seed: int) -> None:
    for hypotheses in run(
        make(seed), "beam(beam_size=6, top_beams=6, length_penalty=0.7, length_normalization='average')"
    ):
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([h.log_prob / (len(h.ids) + 1) ** 0.7 for h in hypotheses], rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spec", RULED)
@pytest.mark.parametrize("end_bias", [-3.0, 3.0])
def test_lengths_keep_to_the_ratios(seed: int, spec: str, end_bias: float) -> None:
    found = run(make(seed, end_bias=end_bias), spec.format("min_length_ratio=1.0, max_length_ratio=2.0"), [20, 20, 20])
    for hypotheses, source in zip(found, (3, 2, 1), strict=True):  # tokens without the end
        assert all(source <= len(h.ids) <= 2 * source for h in hypotheses)
        assert hypotheses


@pytest.mark.parametrize("spec", RULED)
def test_ratios_that_give_no_whole_number_leave_both_neighbors(spec: str) -> None:
    ratios = spec.format("min_length_ratio=1.5, max_length_ratio=1.5")
    for end_bias, lengths in ((99.0, [4, 3, 1]), (-99.0, [5, 3, 2])):
        assert [len(best.ids) for best, *_ in run(make(0, end_bias=end_bias), ratios, [20, 20, 20])] == lengths


@pytest.mark.parametrize("spec", RULED)
def test_ratios_beyond_all_lengths_are_the_tasks_limit(spec: str) -> None:
    model = make(1)
    free = run(model, spec.format("max_length_ratio=0.0"))
    assert [[h.ids for h in found] for found in run(model, spec.format("max_length_ratio=1e30"))] == [
        [h.ids for h in found] for found in free
    ]
    for found in run(model, spec.format("min_length_ratio=1e30")):
        assert all(len(h.ids) == 6 for h in found)


@pytest.mark.parametrize("spec", RULED)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_n_gram_comes_twice(spec: str, size: int) -> None:
    def repeats(option: int) -> int:
        """The n-grams that come again, over all hypotheses of some models."""
        again = 0
        for seed in range(6):
            for hypotheses in run(
                make(seed, end_bias=-2.0), spec.format(f"no_repeat_ngram_size={option}"), [12, 12, 12]
            ):
                assert hypotheses
                for h in hypotheses:
                    grams = [tuple(h.ids[i : i + size]) for i in range(len(h.ids) - size + 1)]
                    again += len(grams) - len(set(grams))
        return again

    assert repeats(size) == 0
    assert repeats(0) > 0


@pytest.mark.parametrize("spec", N_BEST)
def test_a_translation_begins_as_it_must(spec: str) -> None:
    model, prefixes = make(2), [[4, 6, 4], [], [5]]
    found = run(model, spec, [6, 6, 2], prefixes=prefixes)
    for row, (hypotheses, prefix) in enumerate(zip(found, prefixes, strict=True)):
        for h in hypotheses:
            assert h.ids[: len(prefix)] == prefix
            assert h.log_prob == pytest.approx(forced_log_prob(model, row, h.ids), abs=1e-4)
    free = run(model, spec, [6, 6, 2])
    assert [h.ids for h in found[1]] == [h.ids for h in free[1]]


@pytest.mark.parametrize("seed", range(12))
def test_unread_source_costs_what_the_coverage_penalty_says(seed: int) -> None:
    model, weight = make(seed), 0.7
    for row, hypotheses in enumerate(
        run(model, f"beam(beam_size=5, top_beams=5, length_penalty=0.6, coverage_penalty={weight})", [10] * 3)
    ):
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        for h in hypotheses:
            _, attention_TS = forced(model, SOURCES[row], h.ids)
            penalty = weight * attention_TS.sum(0).clamp(max=1).log().sum().item()
            norm = ((5 + len(h.ids) + 1) / 6) ** 0.6
            assert h.score == pytest.approx(h.log_prob / norm + penalty, abs=1e-4)
            assert h.norm == pytest.approx(norm)


@pytest.mark.parametrize("seed", range(4))
def test_diverse_beams_of_one_group_are_a_beam_search(seed: int) -> None:
    model = make(seed)
    for one, other in zip(
        run(model, "diverse(beam_size=4, groups=1, top_beams=3)"),
        run(model, "beam(beam_size=4, top_beams=3)"),
        strict=True,
    ):
        assert [h.ids for h in one] == [h.ids for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other])


@pytest.mark.parametrize("seed", range(4))
def test_groups_that_need_not_differ_do_not(seed: int) -> None:
    model = make(seed)
    for one, other in zip(
        run(model, "diverse(beam_size=6, groups=2, top_beams=3, diversity_penalty=0.0)"),
        run(model, "beam(beam_size=3, top_beams=3)"),
        strict=True,
    ):
        assert [h.ids for h in one] == [h.ids for h in other]


def test_groups_that_must_differ_begin_differently() -> None:
    def beginnings(spec: str) -> int:
        return sum(len({h.ids[0] for h in hypotheses if h.ids}) for s in range(6) for hypotheses in run(make(s), spec))

    assert beginnings("diverse(beam_size=4, groups=4, top_beams=4, diversity_penalty=50.0)") > beginnings(
        "beam(beam_size=4, top_beams=4)"
    )


@pytest.mark.parametrize("seed", range(4))
def test_without_phrases_constrained_search_is_beam_search(seed: int) -> None:
    model = make(seed)
    for one, other in zip(
        run(model, "constrained(beam_size=4, top_beams=3)"), run(model, "beam(beam_size=4, top_beams=3)"), strict=True
    ):
        assert [h.ids for h in one] == [h.ids for h in other]


def holds(ids: list[int], phrase: list[int]) -> bool:
    return any(ids[i : i + len(phrase)] == phrase for i in range(len(ids) - len(phrase) + 1))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", [0, 4, 9])
def test_phrases_appear(seed: int, limit: int) -> None:
    phrases = [[[4, 4, 5], [6]], [], [[5, 6, 5]]]
    found = run(make(seed, end_bias=2.0), "constrained(beam_size=6, top_beams=2)", [limit] * 3, constraints=phrases)
    for hypotheses, wanted in zip(found, phrases, strict=True):
        assert hypotheses
        for h in hypotheses:
            assert all(holds(h.ids, phrase) for phrase in wanted)
            assert len(h.ids) <= max(limit, sum(map(len, wanted)))


@pytest.mark.parametrize("seed", range(4))
def test_the_best_translation_with_the_phrases_is_found(seed: int) -> None:
    model, limit, phrases = make(seed), 4, [[4, 5], [6]]
    words = [token for token in range(VOCABULARY) if token != EOS]
    every = [list(ids) for length in range(limit + 1) for ids in itertools.product(words, repeat=length)]
    allowed = [ids for ids in every if all(holds(ids, phrase) for phrase in phrases)]
    best = max(allowed, key=lambda ids: forced_log_prob(model, 0, ids) / ((5 + len(ids) + 1) / 6))
    (found, *_) = run(model, "constrained(beam_size=300)", [limit] * 3, constraints=[phrases, [], []])
    assert found[0].ids == best


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("limit", [0, 4, 5, 6])
def test_phrases_that_begin_alike_appear(size: int, limit: int) -> None:
    phrases = [[[4, 5], [4, 6]]] * 3
    for seed in range(10):
        for hypotheses in run(make(seed), f"constrained(beam_size={size})", [limit] * 3, constraints=phrases):
            assert all(holds(hypotheses[0].ids, phrase) for phrase in phrases[0])


@pytest.mark.parametrize("spec", [spec for spec in RULED if "constrained" not in spec])
def test_what_is_forced_may_repeat(spec: str) -> None:
    prefix = [4, 4, 4]
    for hypotheses in run(make(0), spec.format("no_repeat_ngram_size=1"), prefixes=[prefix] * 3):
        for h in hypotheses:
            assert h.ids[:3] == prefix
            assert math.isfinite(h.log_prob)
            assert len(set(h.ids[2:])) == len(h.ids[2:])


def test_a_phrase_that_is_broken_off_may_begin_again() -> None:
    constraints = Constraints(SearchRequest(SOURCES[:1], np.array([6]), BOS, EOS, constraints=[[[4, 5, 6]]]))
    met_RP: Ints = np.zeros_like(constraints.length_RP)
    for token, met, left in ((4, 1, 2), (5, 2, 1), (4, 1, 2), (6, 0, 3), (4, 1, 2), (5, 2, 1), (6, 3, 0), (4, 3, 0)):
        met_RCP = constraints.advance(met_RP, np.array([[token]]))
        assert met_RCP.tolist() == [[[met]]]
        assert constraints.left(met_RCP).item() == constraints.needed(met_RCP).item() == left
        met_RP = met_RCP[:, 0]


def test_banks_take_turns_and_a_bank_of_impossible_candidates_takes_none() -> None:
    total_BX = np.array([[-1.0, -2.0, -3.0, -4.0, -np.inf, -np.inf]], np.float32)
    bank_BX = np.array([[0, 0, 0, 2, 1, 0]])
    at_BW, chosen_BW = _allocate_banks(total_BX, bank_BX, 5)
    assert at_BW[0, :4].tolist() == [0, 3, 1, 2]
    assert chosen_BW[0].tolist() == [-1.0, -4.0, -2.0, -3.0, -math.inf]


def test_a_beam_may_improve_as_long_as_the_longest_translation_could() -> None:
    best, worst = np.array([-6.0, -6.0, -np.inf]), np.array([-2.0, -2.0, -np.inf])
    longest = np.array([3.1, 2.9, 9.0])
    assert beam_module.can_improve(best, longest, worst).tolist() == [True, False, False]


def test_what_is_no_text_is_not_drawn() -> None:
    drawn = [
        i for seed in range(5) for found in run(make(seed), "sample(n_best=50)", banned_ids=(0, 1, 2))
        for h in found for i in h.ids
    ]  # fmt: skip
    assert set(drawn) == {4, 5, 6}


def test_phrases_come_after_a_forced_beginning() -> None:
    requests = {"prefixes": [[6, 6, 6]] * 3, "constraints": [[[4, 5]]] * 3}
    for hypotheses in run(make(0), "constrained(beam_size=4)", [2, 2, 2], **requests):
        assert hypotheses[0].ids == [6, 6, 6, 4, 5]


@pytest.mark.parametrize("spec", ["sample(top_k=1)", "sample(top_p=1e-4)", "sample(temperature=1e-4)"])
def test_samples_of_what_is_most_probable_are_greedy(spec: str) -> None:
    model = make(1)
    assert [best[0].ids for best in run(model, spec)] == [best[0].ids for best in run(model, "greedy")]


@pytest.mark.parametrize(
    ("options", "temperature", "kept"), [("", 1.0, 7), ("temperature=0.5", 0.5, 7), ("top_k=3", 1.0, 3)]
)
def test_samples_come_as_often_as_they_are_probable(options: str, temperature: float, kept: int) -> None:
    model, samples = make(4), 1000
    model.output_weight_VD.data.div_(4)
    log_p_TV, _ = forced(model, SOURCES[0], [])
    wanted_V = (log_p_TV[0] / temperature).softmax(-1)
    wanted_V[wanted_V < wanted_V.topk(kept).values[-1]] = 0.0
    wanted_V /= wanted_V.sum()
    drawn: Counter[int] = Counter()
    for seed in range(4):
        spec = f"sample(n_best={samples}, seed={seed}{', ' if options else ''}{options})"
        drawn.update([*h.ids, EOS][0] for h in run(model, spec)[0])
    for token, share in enumerate(wanted_V.tolist()):
        assert drawn[token] / drawn.total() == pytest.approx(share, abs=0.03)
        assert share > 0 or drawn[token] == 0


def test_a_nucleus_is_the_fewest_tokens_that_hold_enough() -> None:
    logits_RV = np.log(np.array([[0.5, 0.25, 0.15, 0.1], [0.1, 0.2, 0.3, 0.4]], np.float32))
    for share, kept in ((0.35, [[0], [3]]), (0.69, [[0, 1], [2, 3]]), (0.76, [[0, 1, 2], [1, 2, 3]])):
        cut_RV = search(f"sample(top_p={share})")._cut(logits_RV.copy())  # type: ignore[attr-defined]
        assert [[i for i, x in enumerate(row) if x > -math.inf] for row in cut_RV.tolist()] == kept


def test_another_seed_draws_other_samples() -> None:
    model = make(4)
    model.output_weight_VD.data.div_(4)
    one, again, other = (
        [h.ids for found in run(model, f"sample(n_best=5, seed={seed})") for h in found] for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9), st.floats(0, 1, exclude_max=True))
def test_no_impossible_token_is_drawn(logits: list[float], chance: float) -> None:
    logits_RV = np.array([[-np.inf, *logits, -np.inf, -np.inf]], np.float32)
    (token,) = draw(logits_RV, np.array([chance]))
    assert 1 <= token <= len(logits)


def test_the_candidate_most_like_all_others_wins() -> None:
    import sacrebleu

    words = ["", "", "", "", "katze ", "hund ", "baum "]

    def text(ids: Sequence[int]) -> str:
        return "".join(words[i] for i in ids).strip()

    model = make(4)
    model.output_weight_VD.data.div_(3)
    every, found = (
        run(model, spec, detokenize=text)
        for spec in ("sample(n_best=12)", "mbr(candidates='sample(n_best=12)', n_best=3)")
    )
    for candidates, best in zip(every, found, strict=True):
        texts = [text(h.ids) for h in candidates]
        utility = {t: sum(sacrebleu.sentence_chrf(t, [o]).score for o in texts) / len(texts) for t in texts}
        wanted = sorted(utility.values(), reverse=True)[: len(best)]
        assert [h.score for h in best] == pytest.approx(wanted)
        assert [utility[text(h.ids)] for h in best] == pytest.approx(wanted)


@pytest.mark.parametrize("spec", N_BEST)
def test_an_ensemble_of_one_model_is_the_model(spec: str) -> None:
    model = make(3)
    for one, other in zip(run(model, spec), run(TorchModel([model, model]), spec), strict=True):
        assert [h.ids for h in one] == [h.ids for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)


@pytest.mark.parametrize("engine", ["PyTorch", pytest.param("native", marks=compiled)])
def test_an_ensemble_scores_by_the_mean_probability(engine: str) -> None:
    models = [make(5), make(6)]
    ensemble = TorchModel(models) if engine == "PyTorch" else NativeEnsemble([packed(model) for model in models])
    for row, hypotheses in enumerate(run(ensemble, "beam(beam_size=4, top_beams=4)")):
        scores = ensemble.score([SOURCES[row][:-1]] * 4, [h.ids for h in hypotheses])
        for h, score in zip(hypotheses, scores, strict=True):
            p_TV, other_TV = (forced(model, SOURCES[row], h.ids)[0].double().exp() for model in models)
            wanted_T = [math.log((p_TV[t, i] + other_TV[t, i]) / 2) for t, i in enumerate([*h.ids, EOS])]
            assert h.log_prob == pytest.approx(sum(wanted_T), abs=1e-4)
            assert score.log_probs == pytest.approx(wanted_T, abs=1e-4)


REQUESTS: dict[str, dict[str, Any]] = {
    "free": {},
    "prefixes": {"prefixes": [[4, 6, 4], [], [5]]},
    "constraints": {"constraints": [[[4, 4, 5], [6]], [], [[5, 6, 5]]]},
    "both": {"prefixes": [[6, 6], [4], []], "constraints": [[[4, 5]], [[5], [6, 6]], []], "banned_ids": (0, 1, 2)},
}


@compiled
@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize(
    "spec",
    [
        *N_BEST, *(spec.format("min_length_ratio=1.0, max_length_ratio=2.0, no_repeat_ngram_size=2") for spec in RULED),
        "beam(beam_size=3, top_beams=3, length_penalty=0.6, length_normalization='average', early_stopping=True)",
        "beam(beam_size=40, top_beams=40, min_length_ratio=1.0)", "sample(n_best=3, top_k=3, temperature=0.7)", "sample(n_best=3, top_p=0.8)",
        "mbr(candidates='beam(beam_size=4, top_beams=4)', n_best=2)",
    ],
)  # fmt: skip
def test_the_native_engine_finds_what_pytorch_finds(spec: str, request_name: str) -> None:
    for seed in range(4):
        model = make(seed, 11)
        native_model = packed(model)
        for models in ((model, native_model), (TorchModel([model, make(9, 11)]),
                                               NativeEnsemble([native_model, packed(make(9, 11))]))):  # fmt: skip
            wanted, found = (run(each, spec, [6, 9, 2], **REQUESTS[request_name]) for each in models)
            for one, other in zip(found, wanted, strict=True):
                assert [h.ids for h in one] == [h.ids for h in other]
                assert [h.log_prob for h in one] == pytest.approx([h.log_prob for h in other], abs=1e-4)
                assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)


@given(seed=st.integers(0, 2**32), rows=st.integers(1, 5), vocabulary=st.integers(1, 700), k=st.integers(0, 16))
def test_the_best_tokens_are_ranked_with_the_lower_of_equal_ones_first(
    seed: int, rows: int, vocabulary: int, k: int
) -> None:
    numbers = np.random.default_rng(seed)
    log_p_RV = numbers.integers(-20, 0, (rows, vocabulary)).astype(np.float32)  # many are equal
    log_p_RV[numbers.random((rows, vocabulary)) < 0.01] = np.nan
    banned_RX, gather_RP = numbers.integers(-1, vocabulary, (rows, 3)), numbers.integers(0, vocabulary, (rows, 4))
    rows_R = np.arange(rows)
    result = best_tokens(log_p_RV, StepRequest(rows_R, rows_R, k, banned_RX, gather_RP))
    for row in range(rows):
        allowed_V = log_p_RV[row].copy()
        allowed_V[banned_RX[row][banned_RX[row] >= 0]] = -np.inf
        order = sorted(range(vocabulary), key=lambda v: (-np.inf if np.isnan(allowed_V[v]) else -allowed_V[v], v))[:k]
        assert result.tokens_RK[row].tolist() == order
        np.testing.assert_array_equal(result.log_p_RK[row], allowed_V[order])
        np.testing.assert_array_equal(result.gathered_RP[row], log_p_RV[row, gather_RP[row]])


@given(
    seed=st.integers(0, 2**32),
    sentences=st.integers(1, 3),
    width=st.integers(1, 5),
    k=st.integers(1, 20),
    count=st.integers(1, 16),
)
def test_the_best_candidates_are_those_of_all_rows(seed: int, sentences: int, width: int, k: int, count: int) -> None:
    numbers = np.random.default_rng(seed)
    log_p_RK = numbers.integers(-9, 0, (sentences * width, k)).astype(np.float32)  # many are equal
    before_BW = numbers.integers(-9, 0, (sentences, width)).astype(np.float32)
    before_BW[:, 1:][before_BW[:, 1:] < -6] = -np.inf
    total_BX = (log_p_RK.reshape(sentences, width, k) + before_BW[:, :, None]).reshape(sentences, -1)
    best_BC, at_BC = best_candidates(before_BW, log_p_RK, count)
    assert best_BC.shape == at_BC.shape == (sentences, count)
    real = min(count, width * k)
    for total_X, best_C, at_C in zip(total_BX.tolist(), best_BC.tolist(), at_BC.tolist(), strict=True):
        assert at_C[:real] == sorted(range(width * k), key=lambda x: -total_X[x])[:real]
        assert best_C == [*(total_X[x] for x in at_C[:real]), *[-math.inf] * (count - real)]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("beem", "unknown search 'beem'"),
        ("beam(sise=3)", "has no option 'sise'"),
        ("beam(beam_size=0)", "beam size must be between 1 and 1000"),
        ("beam(beam_size=2, top_beams=3)", "between 1 and the beam size"),
        ("beam(top_beams=0)", "between 1 and the beam size"),
        ("beam(length_penalty=-1.0)", "length penalty must be between 0 and 10"),
        ("beam(beam_size=True)", "size must be int"),
        ("beam(length_normalization='none')", "normalization must be gnmt or average, got 'none'"),
        ("beam(coverage_penalty=-1.0)", "coverage_penalty must be between 0 and 10"),
        ("diverse(beam_size=4, groups=3)", "groups must divide the beam size"),
        ("diverse(diversity_penalty=-1.0)", "diversity_penalty must be between 0 and 100"),
        ("constrained(beam_size=0)", "beam size must be between 1 and 1000"),
        ("constrained(no_repeat_ngram_size=2)", "takes no no_repeat_ngram_size"),
        ("sample(n_best=0)", "samples .top. must be between 1 and 1000"),
        ("sample(temperature=0.0)", "temperature must be between"),
        ("sample(top_k=-1)", "top_k must be 0 or more"),
        ("sample(top_p=0.0)", "top_p must be between"),
        ("mbr(candidates='beem')", "unknown search 'beem'"),
        ("mbr(candidates='mbr')", "must come from another search"),
        ("mbr(candidates='beam(beam_size=4, top_beams=2)', n_best=3)", "between 1 and the candidates .2."),
        ("greedy(min_length_ratio=-1.0)", "min_length_ratio must be 0 or more"),
        ("greedy(min_length_ratio=2.0, max_length_ratio=1.0)", "must not be above max_length_ratio"),
        ("beam(no_repeat_ngram_size=-1)", "no_repeat_ngram_size must be 0 or more"),
    ],
)
def test_mistakes_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        search(spec)


def test_every_search_is_tested_here() -> None:
    assert {spec.partition("(")[0] for spec in N_BEST} | {"mbr"} == set(SEARCHES)
