"""Search against brute force, against each other, and against teacher-forced scores."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from nmt import kernels
from nmt.config import ModelConfig
from nmt.errors import ConfigError
from nmt.model import build
from nmt.model.ensemble import Ensemble, mean_log_prob
from nmt.model.transformer import Transformer
from nmt.search import SEARCHES, Hypothesis, SearchModel, Task, search
from nmt.search import beam as beam_module
from nmt.search.candidates import top_k
from nmt.search.constrained import Phrases
from nmt.search.sample import draw
from nmt.tokenizer import BOS, EOS

VOCABULARY = 7
N_BEST = [
    "greedy", "beam(size=4, top=4)", "diverse(size=6, groups=3, top=4)", "constrained(size=4, top=3)", "sample(top=3)",
    "beam(size=4, top=2, coverage=0.3)",
]  # fmt: skip
RULED = [
    "greedy({})", "beam(size=4, top=4, {})", "diverse(size=4, top=4, {})", "sample(top=4, {})",
]  # fmt: skip
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
    model: SearchModel,
    spec: str,
    limits: list[int] | None = None,
    rows: slice = slice(None),
    phrases: Sequence[Sequence[list[int]]] = (),
) -> list[list[Hypothesis]]:
    limit_B = torch.tensor(limits or [6, 6, 6])[rows]
    return search(spec)(model, Task(SOURCES[rows], MASK[rows], limit_B, BOS, EOS, phrases=phrases[rows]))


@torch.inference_mode()
def forced_log_prob(model: Transformer, row: int, ids: list[int]) -> float:
    """Log-probability of a translation and its end, from one uncached pass."""
    log_p_TV, _ = forced(model, row, ids)
    return float(sum(log_p_TV[t, token] for t, token in enumerate([*ids, EOS])))


@torch.inference_mode()
def forced(model: Transformer, row: int, ids: list[int]) -> tuple[Tensor, Tensor]:
    """All log-probabilities of a translation's positions, and where they looked, from one uncached pass."""
    src, mask = SOURCES[row : row + 1], MASK[row : row + 1]
    state = model.start(model.encode(src, mask), mask, keep=False)
    state.watch()
    log_p_TV = model.project(model.step(torch.tensor([[BOS, *ids]]), state))[0].log_softmax(-1)
    assert state.seen_RTS is not None
    return log_p_TV, state.seen_RTS[0]


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


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("early_stopping", [True, False])
@pytest.mark.parametrize("penalty", [0.0, 2.0])
def test_a_narrow_beam_is_what_its_description_says(seed: int, size: int, early_stopping: bool, penalty: float) -> None:
    model, limit = make(seed, end_bias=1.5), 6
    spec = f"beam(size={size}, top={size}, length_penalty={penalty}, early_stopping={early_stopping})"
    for row, found in enumerate(run(model, spec, [limit] * 3)):
        beams: list[tuple[float, list[int]]] = [(0.0, [])]
        ended: list[tuple[float, list[int]]] = []
        while beams and not (early_stopping and len(ended) >= size):
            longer = []
            for log_prob, ids in beams:
                log_p_V = forced(model, row, ids)[0][-1].tolist()
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
    model = make(0, 5)
    src, mask = torch.tensor([[4, 4, 3]]), torch.ones(1, 3, dtype=torch.bool)
    with torch.inference_mode():
        (found,) = search(f"beam(size={size}, top={size})")(model, Task(src, mask, torch.tensor([3]), BOS, EOS))
    assert len(found) == size  # of the 85 translations there are
    assert all(h.log_prob > -torch.inf for h in found)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spec", [*N_BEST, "mbr(candidates='beam(size=4, top=4)', top=2)"])
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
    "spec",
    [
        "beam(size=3)", "beam(size=5, top=3)", "beam(size=4, length_penalty=0.0)", "beam(size=4, length_penalty=2.0)",
        "beam(size=4, coverage=0.5)", "beam(size=4, top=2, normalisation='average')",
        "diverse(size=6, groups=3, top=2)", "constrained(size=5, top=2)",
    ],
)  # fmt: skip
def test_stopping_early_changes_nothing(seed: int, spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(seed, 11, end_bias=0.5)
    phrases = [[[5, 7]], [], [[9], [4]]] if spec.startswith("constrained") else ()
    early = run(model, spec, [12, 12, 12], phrases=phrases)
    run_on(monkeypatch)
    late = run(model, spec, [12, 12, 12], phrases=phrases)
    assert [[h.ids for h in hypotheses] for hypotheses in early] == [[h.ids for h in hypotheses] for hypotheses in late]


def run_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the bound away from every search: they continue until no beam is left."""
    monkeypatch.setattr(beam_module, "may_improve", lambda best_live_B, *_: best_live_B > -torch.inf)


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
    """A model that says the same at a step whatever it has read; it is its own state."""

    seen_RTS: Tensor | None = None

    def __init__(self, logits_TV: Tensor) -> None:
        self.logits_TV, self.step = logits_TV, 0

    def begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> Scripted:
        return self

    def next_log_probs(self, tokens_R: Tensor, state: Scripted) -> Tensor:
        self.step += 1
        return self.logits_TV[self.step - 1].log_softmax(-1).repeat(len(tokens_R), 1)

    def watch(self) -> None:
        pass

    def select(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        pass


@pytest.mark.parametrize("spec", ["beam(size=2)", "diverse(size=2, groups=1)", "constrained(size=2)"])
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
    whole = model.step

    def counted(tgt_RT: Tensor, state: object) -> Tensor:
        steps[-1] += 1
        return whole(tgt_RT, state)  # type: ignore[arg-type]

    monkeypatch.setattr(model, "step", counted)
    steps.append(0)
    run(model, "beam(size=4, length_penalty=0.0)", [30, 30, 30])
    run_on(monkeypatch)
    steps.append(0)
    run(model, "beam(size=4, length_penalty=0.0)", [30, 30, 30])
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
def test_scores_are_normalised_by_average_when_asked(seed: int) -> None:
    for hypotheses in run(make(seed), "beam(size=6, top=6, length_penalty=0.7, normalisation='average')"):
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert scores == pytest.approx([h.log_prob / (len(h.ids) + 1) ** 0.7 for h in hypotheses], rel=1e-5)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("spec", RULED)
@pytest.mark.parametrize("end_bias", [-3.0, 3.0])
def test_lengths_keep_to_the_ratios(seed: int, spec: str, end_bias: float) -> None:
    found = run(make(seed, end_bias=end_bias), spec.format("min_ratio=1.0, max_ratio=2.0"), [20, 20, 20])
    for hypotheses, source in zip(found, (3, 2, 1), strict=True):  # tokens without the end
        assert all(source <= len(h.ids) <= 2 * source for h in hypotheses)
        assert hypotheses


@pytest.mark.parametrize("spec", RULED)
def test_ratios_that_give_no_whole_number_leave_both_neighbours(spec: str) -> None:
    ratios = spec.format("min_ratio=1.5, max_ratio=1.5")
    for end_bias, lengths in ((99.0, [4, 3, 1]), (-99.0, [5, 3, 2])):
        assert [len(best.ids) for best, *_ in run(make(0, end_bias=end_bias), ratios, [20, 20, 20])] == lengths


@pytest.mark.parametrize("spec", RULED)
def test_ratios_beyond_all_lengths_are_the_tasks_limit(spec: str) -> None:
    model = make(1)
    free = run(model, spec.format("max_ratio=0.0"))
    assert [[h.ids for h in found] for found in run(model, spec.format("max_ratio=1e30"))] == [
        [h.ids for h in found] for found in free
    ]
    for found in run(model, spec.format("min_ratio=1e30")):
        assert all(len(h.ids) == 6 for h in found)


@pytest.mark.parametrize("spec", RULED)
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


@pytest.mark.parametrize("spec", N_BEST)
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


@pytest.mark.parametrize("seed", range(12))
def test_unread_source_costs_what_the_coverage_penalty_says(seed: int) -> None:
    model, weight = make(seed), 0.7
    for row, hypotheses in enumerate(
        run(model, f"beam(size=5, top=5, length_penalty=0.6, coverage={weight})", [10] * 3)
    ):
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)
        for h in hypotheses:
            _, seen_TS = forced(model, row, h.ids)
            penalty = weight * seen_TS.sum(0)[MASK[row]].clamp(max=1).log().sum().item()
            norm = ((5 + len(h.ids) + 1) / 6) ** 0.6
            assert h.score == pytest.approx(h.log_prob / norm + penalty, abs=1e-4)
            assert h.norm == pytest.approx(norm)


@pytest.mark.parametrize("seed", range(4))
def test_diverse_beams_of_one_group_are_a_beam_search(seed: int) -> None:
    model = make(seed)
    for one, other in zip(
        run(model, "diverse(size=4, groups=1, top=3)"), run(model, "beam(size=4, top=3)"), strict=True
    ):
        assert [h.ids for h in one] == [h.ids for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other])


@pytest.mark.parametrize("seed", range(4))
def test_groups_that_need_not_differ_do_not(seed: int) -> None:
    model = make(seed)
    for one, other in zip(
        run(model, "diverse(size=6, groups=2, top=3, diversity=0.0)"), run(model, "beam(size=3, top=3)"), strict=True
    ):
        assert [h.ids for h in one] == [h.ids for h in other]


def test_groups_that_must_differ_begin_differently() -> None:
    def beginnings(spec: str) -> int:
        return sum(len({h.ids[0] for h in hypotheses if h.ids}) for s in range(6) for hypotheses in run(make(s), spec))

    assert beginnings("diverse(size=4, groups=4, top=4, diversity=50.0)") > beginnings("beam(size=4, top=4)")


@pytest.mark.parametrize("seed", range(4))
def test_without_phrases_constrained_search_is_beam_search(seed: int) -> None:
    model = make(seed)
    for one, other in zip(run(model, "constrained(size=4, top=3)"), run(model, "beam(size=4, top=3)"), strict=True):
        assert [h.ids for h in one] == [h.ids for h in other]


def holds(ids: list[int], phrase: list[int]) -> bool:
    return any(ids[i : i + len(phrase)] == phrase for i in range(len(ids) - len(phrase) + 1))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", [0, 4, 9])
def test_phrases_appear(seed: int, limit: int) -> None:
    phrases = [[[4, 4, 5], [6]], [], [[5, 6, 5]]]
    found = run(make(seed, end_bias=2.0), "constrained(size=6, top=2)", [limit] * 3, phrases=phrases)
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
    (found, *_) = run(model, "constrained(size=300)", [limit] * 3, phrases=[phrases, [], []])
    assert found[0].ids == best


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("limit", [0, 4, 5, 6])
def test_phrases_that_begin_alike_appear(size: int, limit: int) -> None:
    phrases = [[[4, 5], [4, 6]]] * 3
    for seed in range(10):
        for hypotheses in run(make(seed), f"constrained(size={size})", [limit] * 3, phrases=phrases):
            assert all(holds(hypotheses[0].ids, phrase) for phrase in phrases[0])


@pytest.mark.parametrize("spec", [spec for spec in RULED if "constrained" not in spec])
def test_what_is_forced_may_repeat(spec: str) -> None:
    prefix = [4, 4, 4]
    task = Task(SOURCES, MASK, torch.tensor([6, 6, 6]), BOS, EOS, [prefix] * 3)
    with torch.inference_mode():
        for hypotheses in search(spec.format("no_repeat_ngram=1"))(make(0), task):
            for h in hypotheses:
                assert h.ids[:3] == prefix
                assert math.isfinite(h.log_prob)
                assert len(set(h.ids[2:])) == len(h.ids[2:])


def test_a_phrase_that_is_broken_off_may_begin_anew() -> None:
    phrases = Phrases(Task(SOURCES[:1], MASK[:1], torch.tensor([6]), BOS, EOS, phrases=[[[4, 5, 6]]]))
    said_RP = phrases.none_said(1)
    for token, said, left in ((4, 1, 2), (5, 2, 1), (4, 1, 2), (6, 0, 3), (4, 1, 2), (5, 2, 1), (6, 3, 0), (4, 3, 0)):
        said_RCP = phrases.advance(said_RP, torch.tensor([[token]]))
        assert said_RCP.tolist() == [[[said]]]
        assert phrases.left(said_RCP).item() == phrases.needed(said_RCP).item() == left
        said_RP = said_RCP[:, 0]


def test_a_beam_may_improve_as_long_as_the_longest_translation_could() -> None:
    best_live, worst = torch.tensor([-6.0, -6.0, -torch.inf]), torch.tensor([-2.0, -2.0, -torch.inf])
    longest = torch.tensor([3.1, 2.9, 9.0])
    assert beam_module.may_improve(best_live, longest, worst).tolist() == [True, False, False]


def test_what_is_no_text_is_not_drawn() -> None:
    task = Task(SOURCES, MASK, torch.tensor([6, 6, 6]), BOS, EOS, never=(0, 1, 2))
    with torch.inference_mode():
        drawn = [
            i for seed in range(5) for found in search("sample(top=50)")(make(seed), task) for h in found for i in h.ids
        ]
    assert set(drawn) == {4, 5, 6}


def test_phrases_come_after_a_forced_beginning() -> None:
    task = Task(SOURCES, MASK, torch.tensor([2, 2, 2]), BOS, EOS, [[6, 6, 6]] * 3, [[[4, 5]]] * 3)
    with torch.inference_mode():
        for hypotheses in search("constrained(size=4)")(make(0), task):
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
    log_p_TV, _ = forced(model, 0, [])
    wanted_V = (log_p_TV[0] / temperature).softmax(-1)
    wanted_V[wanted_V < wanted_V.topk(kept).values[-1]] = 0.0
    wanted_V /= wanted_V.sum()
    drawn: Counter[int] = Counter()
    for seed in range(4):
        spec = f"sample(top={samples}, seed={seed}{', ' if options else ''}{options})"
        drawn.update([*h.ids, EOS][0] for h in run(model, spec)[0])
    for token, share in enumerate(wanted_V.tolist()):
        assert drawn[token] / drawn.total() == pytest.approx(share, abs=0.03)
        assert share > 0 or drawn[token] == 0


def test_a_nucleus_is_the_fewest_tokens_that_hold_enough() -> None:
    logits_RV = torch.tensor([[0.5, 0.25, 0.15, 0.1], [0.1, 0.2, 0.3, 0.4]]).log()
    for share, kept in ((0.35, [[0], [3]]), (0.69, [[0, 1], [2, 3]]), (0.76, [[0, 1, 2], [1, 2, 3]])):
        cut_RV = search(f"sample(top_p={share})")._cut(logits_RV)  # type: ignore[attr-defined]
        assert [[i for i, x in enumerate(row) if x > -torch.inf] for row in cut_RV.tolist()] == kept


def test_another_seed_draws_other_samples() -> None:
    model = make(4)
    model.output_weight_VD.data.div_(4)
    one, again, other = (
        [h.ids for found in run(model, f"sample(top=5, seed={seed})") for h in found] for seed in (1, 1, 2)
    )
    assert one == again
    assert one != other


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9), st.floats(0, 1, exclude_max=True))
def test_no_impossible_token_is_drawn(logits: list[float], chance: float) -> None:
    logits_RV = torch.tensor([[-torch.inf, *logits, -torch.inf, -torch.inf]])
    token = int(draw(logits_RV, torch.tensor([[chance]], dtype=torch.float64)))
    assert 1 <= token <= len(logits)


def test_the_candidate_most_like_all_others_wins() -> None:
    import sacrebleu

    words = ["", "", "", "", "katze ", "hund ", "baum "]

    def text(ids: Sequence[int]) -> str:
        return "".join(words[i] for i in ids).strip()

    model = make(4)
    model.output_weight_VD.data.div_(3)
    task = Task(SOURCES, MASK, torch.tensor([6, 6, 6]), BOS, EOS, text=text)
    with torch.inference_mode():
        every, found = (
            search(spec)(model, task) for spec in ("sample(top=12)", "mbr(candidates='sample(top=12)', top=3)")
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
    for one, other in zip(run(model, spec), run(Ensemble([model, model]), spec), strict=True):
        assert [h.ids for h in one] == [h.ids for h in other]
        assert [h.score for h in one] == pytest.approx([h.score for h in other], abs=1e-4)


def test_an_ensemble_scores_by_the_mean_probability() -> None:
    models = [make(5), make(6)]
    for row, hypotheses in enumerate(run(Ensemble(models), "beam(size=4, top=4)")):
        for h in hypotheses:
            log_p_TV = mean_log_prob([forced(model, row, h.ids)[0] for model in models])
            assert h.log_prob == pytest.approx(
                sum(log_p_TV[t, i].item() for t, i in enumerate([*h.ids, EOS])), abs=1e-4
            )


def largest(compiled: bool, scores_RV: Tensor, count: int, before_BW: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The result of `top_k`, by compiled loops or by PyTorch."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "available", lambda: compiled)
        return top_k(scores_RV, count, before_BW)


both_ways = pytest.mark.parametrize(
    "compiled",
    [pytest.param(True, marks=pytest.mark.skipif(not kernels.available(), reason="no C compiler here")), False],
    ids=["compiled", "by PyTorch"],
)


@both_ways
@settings(deadline=None)
@given(seed=st.integers(0, 2**32), rows=st.integers(1, 5), vocabulary=st.integers(1, 700), count=st.integers(1, 16))
def test_the_largest_scores_are_found_in_fewer_passes(
    compiled: bool, seed: int, rows: int, vocabulary: int, count: int
) -> None:
    count = min(count, vocabulary)
    scores_RV = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))
    scores_RV[scores_RV < -1] = -torch.inf
    best_RC, ids_RC = largest(compiled, scores_RV, count)
    assert torch.equal(best_RC, scores_RV.topk(count).values)
    assert torch.equal(scores_RV.gather(1, ids_RC), best_RC)
    assert all(len(set(ids)) == count for ids in ids_RC.tolist())


@both_ways
@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    sentences=st.integers(1, 3),
    width=st.integers(1, 5),
    vocabulary=st.integers(1, 700),
    count=st.integers(1, 16),
)
def test_the_largest_scores_of_all_beams_are_found_at_once(
    compiled: bool, seed: int, sentences: int, width: int, vocabulary: int, count: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    scores_RV = torch.randn(sentences * width, vocabulary, generator=draw)
    before_BW = 3 * torch.randn(sentences, width, generator=draw)
    before_BW[:, 1:][before_BW[:, 1:] < -2] = -torch.inf
    total_BX = (scores_RV.view(sentences, width, -1) + before_BW[:, :, None]).flatten(1)
    best_BC, at_BC = largest(compiled, scores_RV, count, before_BW)
    count = min(count, width * vocabulary)
    assert torch.equal(best_BC, total_BX.topk(count).values)
    assert torch.equal(total_BX.gather(1, at_BC), best_BC)
    assert all(len(set(places)) == count for places in at_BC.tolist())


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
        ("beam(coverage=-1.0)", "coverage must be between 0 and 10"),
        ("diverse(size=4, groups=3)", "groups must divide the beam size"),
        ("diverse(diversity=-1.0)", "diversity must be between 0 and 100"),
        ("constrained(size=0)", "beam size must be between 1 and 1000"),
        ("constrained(no_repeat_ngram=2)", "takes no no_repeat_ngram"),
        ("sample(top=0)", "samples .top. must be between 1 and 1000"),
        ("sample(temperature=0.0)", "temperature must be between"),
        ("sample(top_k=-1)", "top_k must be 0 or more"),
        ("sample(top_p=0.0)", "top_p must be between"),
        ("mbr(candidates='beem')", "unknown search 'beem'"),
        ("mbr(candidates='mbr')", "must come from another search"),
        ("mbr(candidates='beam(size=4, top=2)', top=3)", "between 1 and the candidates .2."),
        ("greedy(min_ratio=-1.0)", "min_ratio must be 0 or more"),
        ("greedy(min_ratio=2.0, max_ratio=1.0)", "must not be above max_ratio"),
        ("beam(no_repeat_ngram=-1)", "no_repeat_ngram must be 0 or more"),
    ],
)
def test_mistakes_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        search(spec)


def test_every_search_is_tested_here() -> None:
    assert {spec.partition("(")[0] for spec in N_BEST} | {"mbr"} == set(SEARCHES)
