from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nmt.core.errors import DataError, UsageError
from nmt.data.arrays import Floats
from nmt.data.filter import (
    SCORERS,
    Combination,
    EndingScorer,
    LengthScorer,
    PairScorer,
    fit_scorers,
    load,
    sample_pairs,
    save,
)
from nmt.data.filter.ending import find_ending
from nmt.data.filter.units import translated_pairs, units
from nmt.data.pairs import Pair
from nmt.jobs.dual_scorer import DualScorer

NUM_PAIRS = 2000
UNUSUAL: list[Pair] = [
    ("", ""),
    ("", "karu."),
    ("loba.", " \t"),
    ("\u200b", "..."),
    ("loba", "karu"),
    ("loba", "loba"),
    ("\x00", "\ud800 \U0001f600"),
    ("loba \x00", "मैं ठीक हूँ"),
    ("今日は元気です。", "ฉันสบายดี"),
    ("a" * 5000, "b " * 5000),
]


def words_of(consonants: str, vowels: str, count: int, rng: random.Random) -> list[str]:
    """Return random words of two to four syllables."""
    words = dict[str, None]()
    while len(words) < count:
        syllables = [rng.choice(consonants) + rng.choice(vowels) for _ in range(rng.randint(2, 4))]
        words["".join(syllables)] = None
    return list(words)


@cache
def corpus() -> list[Pair]:
    """Return sentences in an invented language, translated word by word into another one.

    A word has two translations. Some words are left out or added, and the order differs.
    """
    rng = random.Random(1)
    sources = words_of("bdlmn", "aio", 400, rng)
    targets = words_of("krstz", "aeu", 800, rng)
    weights = [1 / rank for rank in range(3, 403)]
    pairs = []
    for _ in range(NUM_PAIRS):
        indices = rng.choices(range(400), weights, k=rng.randint(4, 20))
        kept = [i for i in indices if rng.random() > 0.1] or indices[:1]
        kept += rng.choices(range(400), weights, k=rng.randrange(2))
        if rng.random() < 0.5:
            kept[:2] = reversed(kept[:2])
        ending = rng.choice(".....?!")
        source = " ".join(sources[i] for i in indices)
        target = " ".join(targets[i + rng.choice((0, 400))] for i in kept)
        pairs.append((f"{source}{ending}", f"{target}{ending}"))
    return pairs


def shuffled(pair: Pair, rng: random.Random) -> Pair:
    return pair[0], rng.choice(corpus())[1]


def truncated(pair: Pair, rng: random.Random) -> Pair:
    words = pair[1].split()
    length = max(1, round(len(words) * rng.uniform(0.3, 0.7)))
    return pair[0], " ".join(words[:length])


def copied(pair: Pair, rng: random.Random) -> Pair:
    return pair[0], pair[0]


def half_translated(pair: Pair, rng: random.Random) -> Pair:
    source, target = (side.split() for side in pair)
    words = target[: len(target) // 2] + source[len(source) // 2 :]
    return pair[0], " ".join(words)


NOISES: list[Callable[[Pair, random.Random], Pair]] = [
    shuffled,
    truncated,
    copied,
    half_translated,
]


@cache
def noisy_corpus() -> tuple[list[Pair], list[int]]:
    """Return a corpus with 30% bad pairs, and the kind of each pair; -1: good."""
    rng = random.Random(2)
    pairs, kinds = [], []
    for pair in corpus():
        kind = rng.randrange(len(NOISES)) if rng.random() < 0.3 else -1
        pairs.append(pair if kind < 0 else NOISES[kind](pair, rng))
        kinds.append(kind)
    return pairs, kinds


@cache
def fitted() -> tuple[dict[str, PairScorer], Combination]:
    pairs, _ = noisy_corpus()
    scorers = fit_scorers(pairs)
    return {**scorers}, Combination.fit(score_all({**scorers}, pairs))


def score_all(scorers: dict[str, PairScorer], pairs: Sequence[Pair]) -> dict[str, Floats]:
    return {name: scorer.score(pairs) for name, scorer in scorers.items()}


def auc(good: Floats, bad: Floats) -> float:
    higher = good[:, None] > bad
    equal = good[:, None] == bad
    return float(np.mean(higher + equal / 2))


def auc_of(score_N: Floats, *kinds: int) -> float:
    kind_N = np.array(noisy_corpus()[1])
    return auc(score_N[kind_N == -1], score_N[np.isin(kind_N, kinds)])


@pytest.mark.parametrize("kind", range(len(NOISES)))
def test_combination_separates_good_pairs_from_each_kind_of_noise(kind: int) -> None:
    scorers, combination = fitted()
    score_N = combination.combine(score_all(scorers, noisy_corpus()[0]))
    assert auc_of(score_N, kind) > 0.97


def test_combination_is_better_than_each_score() -> None:
    scorers, combination = fitted()
    columns = score_all(scorers, noisy_corpus()[0])
    kinds = range(len(NOISES))
    combined = auc_of(combination.combine(columns), *kinds)
    assert combined > 0.98
    assert combined > max(auc_of(score_N, *kinds) for score_N in columns.values())


@pytest.mark.parametrize(
    ("name", "noises", "minimum"),
    [
        ("alignment", (shuffled, copied, half_translated), 0.97),
        ("alignment", (truncated,), 0.85),
        ("language", (copied, half_translated), 0.99),
        ("length", (truncated,), 0.9),
        ("ending", (truncated,), 0.95),
    ],
)
def test_each_score_finds_its_kinds_of_noise(
    name: str, noises: tuple[Callable[[Pair, random.Random], Pair], ...], minimum: float
) -> None:
    scorers, _ = fitted()
    score_N = scorers[name].score(noisy_corpus()[0])
    assert auc_of(score_N, *map(NOISES.index, noises)) > minimum


def test_pairs_of_a_model_are_no_evidence_for_themselves() -> None:
    """Words that occur in a single pair must not translate each other."""
    strange = ("lorem ipsum dolor amet.", "quis nostrud anim velit.")
    scorers = fit_scorers([*corpus()[:1000], strange])
    score_N = scorers["alignment"].score([strange, *corpus()[:1000]])
    assert score_N[0] < np.quantile(score_N, 0.02)


@pytest.mark.parametrize("name", [*SCORERS])
def test_score_depends_on_the_pair_only(name: str) -> None:
    scorer = fitted()[0][name]
    pairs = [*UNUSUAL, *noisy_corpus()[0][:60]]
    score_N = scorer.score(pairs)
    assert score_N.dtype == np.float32
    assert score_N.shape == (len(pairs),)
    assert np.isfinite(score_N).all()
    single_N = np.concatenate([scorer.score([pair]) for pair in pairs])
    np.testing.assert_array_equal(single_N, score_N)
    np.testing.assert_array_equal(scorer.score(pairs[::-1]), score_N[::-1])
    assert scorer.score([]).shape == (0,)


def test_blank_and_identical_pairs_are_worse_than_nearly_all_others() -> None:
    scorers, combination = fitted()
    pairs = [("", "karu."), ("loba.", " "), ("", ""), *((s, s) for s, _ in corpus()[:20])]
    score_N = combination.combine(score_all(scorers, pairs))
    good_N = combination.combine(score_all(scorers, corpus()))
    assert score_N.max() < np.quantile(good_N, 0.02)


def test_fitting_is_deterministic() -> None:
    pairs, _ = noisy_corpus()
    again = fit_scorers(pairs[:500])
    for name, scorer in fit_scorers(pairs[:500]).items():
        np.testing.assert_array_equal(scorer.score(pairs[:100]), again[name].score(pairs[:100]))


def test_saved_models_score_the_same(tmp_path: Path) -> None:
    pairs = [*UNUSUAL, *noisy_corpus()[0][:300]]
    models = fit_scorers(noisy_corpus()[0][:1000])
    columns = {name: scorer.score(pairs) for name, scorer in models.items()}
    dual_N = np.linspace(0, 1, len(pairs), dtype=np.float32)
    combination = Combination.fit(columns | {"dual": dual_N})
    save(tmp_path / "model.npz", models, combination)
    loaded, loaded_combination = load(tmp_path / "model.npz")
    assert [*loaded] == [*models]
    copies = {name: pickle.loads(pickle.dumps(scorer)) for name, scorer in models.items()}
    for name, score_N in columns.items():
        np.testing.assert_array_equal(loaded[name].score(pairs), score_N)
        np.testing.assert_array_equal(copies[name].score(pairs), score_N)
    columns["dual"] = dual_N
    assert loaded_combination.names == [*models, "dual"]
    np.testing.assert_array_equal(loaded_combination.combine(columns), combination.combine(columns))


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 damaged", None])
def test_other_files_are_errors(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"model\.npz"):
        load(path)
    np.savez(tmp_path / "other.npz", numbers=np.arange(3))
    with pytest.raises(DataError, match="is not a file of fitted scores"):
        load(tmp_path / "other.npz")


@pytest.mark.parametrize("pairs", [[("a", "b")], [("a", "b")] * 3, [("", ""), (" ", "")]])
def test_tiny_and_blank_corpora_can_be_fitted(pairs: list[Pair]) -> None:
    scorers = fit_scorers(pairs)
    columns = {name: scorer.score([*pairs, *UNUSUAL]) for name, scorer in scorers.items()}
    assert np.isfinite(Combination.fit(columns).combine(columns)).all()


def test_empty_corpus_is_an_error() -> None:
    with pytest.raises(DataError, match="no sentence pairs"):
        fit_scorers(sample_pairs([("", "a"), ("b" * 2000, "c")]))


def test_sample_is_uniform_and_reproducible() -> None:
    pairs = [(f"source {i}", f"target {i}") for i in range(1000)]
    sample = sample_pairs(iter(pairs), 100)
    assert sample == sample_pairs(pairs, 100)
    assert len(set(sample)) == 100
    assert 350 < np.mean([pairs.index(pair) for pair in sample]) < 650
    assert sample_pairs(pairs, 5000) == pairs


def test_units_are_beginnings_of_words_without_punctuation() -> None:
    assert units("The translation's (well-known) END!") == [
        "the",
        "transl",
        "s",
        "well",
        "known",
        "end",
    ]
    assert units("今日は") == ["今", "日", "は"]
    assert units(" .,! ") == []


def test_copies_are_left_out_but_not_related_languages() -> None:
    copies = [(source, source) for source, _ in corpus()[:50]]
    assert translated_pairs([*corpus()[:200], *copies]) == corpus()[:200]
    related = [(source, " ".join(source.split()[1:])) for source, _ in corpus()[:200]]
    assert len(translated_pairs(related)) == 200


def test_length_score_is_two_sided_and_learned() -> None:
    pairs = [("x" * n, "y" * (2 * n + i)) for n in range(20, 60) for i in range(-3, 4)]
    scorer = LengthScorer.fit(pairs)
    short, right, long = scorer.score([("x" * 40, "y" * n) for n in (40, 80, 160)])
    assert short < right - 5
    assert long < right - 5
    assert right > -0.5


@pytest.mark.parametrize(
    ("text", "ending"),
    [("End.", "."), ("end ", ""), ("", ""), ("ok?  ", "?"), ("\x00", ""), ("हूँ", ""), ("(a)", ")")],
)
def test_endings(text: str, ending: str) -> None:
    assert find_ending(text) == ending


def test_ending_score_knows_which_endings_correspond() -> None:
    pairs = [("Was?", "Was ist das;"), ("Ja.", "Ja.")] * 50
    scorer = EndingScorer.fit(pairs)
    right, wrong, missing = scorer.score([("a?", "b;"), ("a?", "b."), ("a.", "b")])
    assert right == 0
    assert wrong < -3
    assert missing < -3


ENGLISH_GERMAN = [
    ("The cat sleeps on the sofa.", "Die Katze schläft auf dem Sofa."),
    ("We will go to the lake tomorrow.", "Morgen gehen wir zum See."),
    ("How much does this book cost?", "Wie viel kostet dieses Buch?"),
    ("My brother works in a hospital.", "Mein Bruder arbeitet in einem Krankenhaus."),
]


@cache
def dual() -> DualScorer:
    return DualScorer.load("en-de", "de-en")


def test_dual_score_prefers_translations() -> None:
    targets = [target for _, target in ENGLISH_GERMAN]
    pairs = [(source, target) for source, _ in ENGLISH_GERMAN for target in targets]
    score_44 = dual().score(pairs).reshape(4, 4)
    assert (score_44.argmax(1) == np.arange(4)).all()
    copies_N = dual().score([(source, source) for source, _ in ENGLISH_GERMAN])
    assert (copies_N < score_44.diagonal()).all()


def test_dual_score_is_that_of_the_paper_and_depends_on_the_pair_only() -> None:
    pairs = [*ENGLISH_GERMAN, ("", ""), ("", "Nein."), ("word " * 400, "x")]
    score_N = dual().score(pairs)
    assert score_N.dtype == np.float32
    assert (score_N[4:6] == 0).all()
    assert ((score_N >= 0) & (score_N <= 1)).all()
    single_N = np.concatenate([dual().score([pair]) for pair in pairs])
    np.testing.assert_array_equal(single_N, score_N)
    forward_N, reverse_N = dual().cross_entropies(ENGLISH_GERMAN)
    expected_N = np.exp(-(abs(forward_N - reverse_N) + (forward_N + reverse_N) / 2))
    np.testing.assert_allclose(score_N[:4], expected_N, rtol=1e-5)
    assert dual().score([]).shape == (0,)


def test_dual_score_needs_opposite_directions() -> None:
    with pytest.raises(UsageError, match="from en to de"):
        DualScorer.load("en-de", "en-de")
