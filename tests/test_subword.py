"""Segmentations drawn at random: the right ones, as often as they should be, and the same ones again."""

from __future__ import annotations

import functools
import hashlib
import itertools
import math
import subprocess
import sys
from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import TokenizerConfig
from nmt.data.normalization import normalize
from nmt.data.subword_regularization import SubwordSampler, Vocabulary, bpe_dropout, resolve_method, unigram
from nmt.data.tokenizer import SPACE, Tokenizer, train
from nmt.errors import ConfigError

TEXT = ["the red bird sings", "der rote Vogel singt", "ein großer Baum", "a tall tree", "Äpfel, Öl und Übung!"] * 20
SPECS = {"bpe": "bpe_dropout(p=0.3)", "unigram": "unigram(alpha=0.2)"}


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    return train(TEXT, TokenizerConfig(model_type=kind, vocab_size=320))


def encode(kind: str, lines: list[str], seed: int = 1) -> list[list[int]]:
    return SubwordSampler(SPECS[kind], tokenizer(kind), seed).encode_batch(lines, np.random.default_rng(seed))


@given(st.text(max_size=40))
def test_without_dropout_bpe_is_sentencepieces(text: str) -> None:
    found, pieces = tokenizer("bpe"), Vocabulary(tokenizer("bpe").piece_scores())
    words = normalize(text).split()
    ids = [i for word in words for i in found.pieces_to_ids(bpe_dropout(SPACE + word, pieces, Random(0), p=0.0))]
    assert ids == found.encode(text)


@given(st.text(max_size=40))
def test_with_a_high_alpha_unigram_is_sentencepieces(text: str) -> None:
    found, scores = tokenizer("unigram"), tokenizer("unigram").piece_scores()

    def likelihood(ids: list[int]) -> float:
        return sum(scores.get(piece, 0.0) for piece in found.ids_to_pieces(ids))

    words = normalize(text).split()
    ids = [i for word in words for i in found.pieces_to_ids(unigram(SPACE + word, Vocabulary(scores), Random(0), alpha=1e6))]
    assert found.decode(ids) == normalize(text)
    assert likelihood(ids) == pytest.approx(likelihood(found.encode(text)), abs=1e-3)  # there may be several best


@pytest.mark.parametrize("kind", SPECS)
@given(text=st.text(max_size=40))
def test_what_is_drawn_spells_the_text(kind: str, text: str) -> None:
    (ids,) = encode(kind, [text])
    assert tokenizer(kind).decode(ids) == normalize(text)


def test_bpe_merges_are_left_out_as_often_as_they_should_be() -> None:
    """Of "abc" with the merges ab, then abc: each is there with probability 1-p."""
    scores = {"ab": 0.0, "abc": -1.0}
    rng, p, draws = Random(0), 0.3, 20_000
    seen = Counter(tuple(bpe_dropout("abc", Vocabulary(scores), rng, p=p)) for _ in range(draws))
    assert seen["a", "b", "c"] / draws == pytest.approx(p, abs=0.015)
    assert seen["ab", "c"] / draws == pytest.approx((1 - p) * p, abs=0.015)
    assert seen["abc",] / draws == pytest.approx((1 - p) ** 2, abs=0.015)


def test_unigram_segmentations_come_with_their_probability() -> None:
    scores = {"a": -1.0, "b": -2.0, "c": -3.0, "ab": -1.5, "bc": -2.5, "abc": -5.0}
    rng, alpha, draws = Random(0), 0.5, 20_000
    weights = {}
    for cuts in itertools.product((False, True), repeat=2):
        pieces = "".join(char + ("|" if cut else "") for char, cut in zip("abc", (*cuts, False), strict=True)).split(
            "|"
        )
        weights[tuple(pieces)] = math.exp(alpha * sum(scores[piece] for piece in pieces))
    seen = Counter(tuple(unigram("abc", Vocabulary(scores), rng, alpha=alpha)) for _ in range(draws))
    for pieces, weight in weights.items():
        assert seen[pieces] / draws == pytest.approx(weight / sum(weights.values()), abs=0.015)


@pytest.mark.parametrize("kind", SPECS)
def test_equal_seeds_draw_equally_and_words_vary(kind: str) -> None:
    one, same, other = encode(kind, TEXT), encode(kind, TEXT), encode(kind, TEXT, seed=2)
    assert one == same != other
    assert len({tuple(ids) for ids in one[::5]}) > 5


AGAIN = """
import hashlib, sys
sys.path.insert(0, "tests")
from test_subword import *
print(hashlib.sha256(str(encode(sys.argv[1], TEXT)).encode()).hexdigest())
"""


@pytest.mark.parametrize("kind", SPECS)
def test_another_process_draws_the_same(kind: str, request: pytest.FixtureRequest) -> None:
    """A resumed training is one."""
    mine = hashlib.sha256(str(encode(kind, TEXT)).encode()).hexdigest()
    command = [sys.executable, "-c", AGAIN, kind]
    done = subprocess.run(command, cwd=request.config.rootpath, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == mine


@pytest.mark.parametrize("kind", SPECS)
def test_a_tokenizer_knows_its_kind(kind: str) -> None:
    assert tokenizer(kind).model_type == kind


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs a unigram tokenizer, not bpe"):
        SubwordSampler("unigram", tokenizer("bpe"), 1)
    for spec, message in (
        ("bpe_dropout(p=0.0)", "p must be above 0 and at most 1"),
        ("unigram(alpha=2.0)", "alpha must be above 0 and at most 1"),
        ("bpe", "unknown sampling method"),
    ):
        with pytest.raises(ConfigError, match=message):
            resolve_method(spec, None)
