"""Tests of subword regularization: probabilities and reproducibility."""

from __future__ import annotations

import functools
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

from nmt.core.config import TokenizerConfig
from nmt.core.errors import ConfigError
from nmt.data.subword_regularization import (
    SubwordSampler,
    SubwordVocabulary,
    bpe_dropout,
    resolve_method,
    unigram,
)
from nmt.text.normalization import normalize
from nmt.text.tokenizer import SPACE, Tokenizer, train

TEXT = [
    "the red bird sings",
    "der rote Vogel singt",
    "ein großer Baum",
    "a tall tree",
    "Äpfel, Öl und Übung!",
] * 20
SPECS = {"bpe": "bpe_dropout(p=0.3)", "unigram": "unigram(alpha=0.2)"}


@functools.cache
def tokenizer(kind: str) -> Tokenizer:
    return train(TEXT, TokenizerConfig(model_type=kind, vocab_size=320))


def encode(kind: str, lines: list[str], seed: int = 1) -> list[list[int]]:
    return SubwordSampler(SPECS[kind], tokenizer(kind), seed).encode_batch(
        lines, np.random.default_rng(seed)
    )


@given(st.text(max_size=40))
def test_bpe_without_dropout_equals_sentencepiece(text: str) -> None:
    reference, pieces = tokenizer("bpe"), SubwordVocabulary(tokenizer("bpe").piece_scores())
    words = normalize(text).split()
    ids = [
        i
        for word in words
        for i in reference.pieces_to_ids(bpe_dropout(SPACE + word, pieces, Random(0), p=0.0))
    ]
    assert ids == reference.encode(text)


@given(st.text(max_size=40))
def test_unigram_with_high_alpha_equals_sentencepiece(text: str) -> None:
    reference, scores = tokenizer("unigram"), tokenizer("unigram").piece_scores()

    def likelihood(ids: list[int]) -> float:
        return sum(scores.get(piece, 0.0) for piece in reference.ids_to_pieces(ids))

    words = normalize(text).split()
    ids = [
        i
        for word in words
        for i in reference.pieces_to_ids(
            unigram(SPACE + word, SubwordVocabulary(scores), Random(0), alpha=1e6)
        )
    ]
    assert reference.decode(ids) == normalize(text)
    # Several segmentations may be optimal.
    assert likelihood(ids) == pytest.approx(likelihood(reference.encode(text)), abs=1e-3)


@pytest.mark.parametrize("kind", SPECS)
@given(text=st.text(max_size=40))
def test_samples_decode_to_the_text(kind: str, text: str) -> None:
    (ids,) = encode(kind, [text])
    assert tokenizer(kind).decode(ids) == normalize(text)


def test_bpe_dropout_probabilities() -> None:
    """For "abc" with the merges ab and abc, each merge is applied with probability 1 - p."""
    scores = {"ab": 0.0, "abc": -1.0}
    rng, p, draws = Random(0), 0.3, 20_000
    seen = Counter(
        tuple(bpe_dropout("abc", SubwordVocabulary(scores), rng, p=p)) for _ in range(draws)
    )
    assert seen["a", "b", "c"] / draws == pytest.approx(p, abs=0.015)
    assert seen["ab", "c"] / draws == pytest.approx((1 - p) * p, abs=0.015)
    assert seen["abc",] / draws == pytest.approx((1 - p) ** 2, abs=0.015)


def test_unigram_probabilities() -> None:
    scores = {"a": -1.0, "b": -2.0, "c": -3.0, "ab": -1.5, "bc": -2.5, "abc": -5.0}
    rng, alpha, draws = Random(0), 0.5, 20_000
    weights = {}
    for cuts in itertools.product((False, True), repeat=2):
        pieces = "".join(
            char + ("|" if cut else "") for char, cut in zip("abc", (*cuts, False), strict=True)
        ).split("|")
        weights[tuple(pieces)] = math.exp(alpha * sum(scores[piece] for piece in pieces))
    seen = Counter(
        tuple(unigram("abc", SubwordVocabulary(scores), rng, alpha=alpha)) for _ in range(draws)
    )
    for pieces, weight in weights.items():
        assert seen[pieces] / draws == pytest.approx(weight / sum(weights.values()), abs=0.015)


@pytest.mark.parametrize("kind", SPECS)
def test_samples_depend_on_seed(kind: str) -> None:
    one, same, other = encode(kind, TEXT), encode(kind, TEXT), encode(kind, TEXT, seed=2)
    assert one == same != other
    assert len({tuple(ids) for ids in one[::5]}) > 5


SCRIPT = """
import sys
sys.path.insert(0, "tests/text")
from test_subword import *
print([encode(kind, TEXT) for kind in SPECS])
"""


def test_samples_are_equal_across_processes(request: pytest.FixtureRequest) -> None:
    """Resumed training runs in another process."""
    printed = subprocess.check_output(
        [sys.executable, "-c", SCRIPT], cwd=request.config.rootpath, text=True
    )
    assert printed == f"{[encode(kind, TEXT) for kind in SPECS]}\n"


@pytest.mark.parametrize("kind", SPECS)
def test_tokenizer_model_type(kind: str) -> None:
    assert tokenizer(kind).model_type == kind


def test_invalid_specs_are_rejected() -> None:
    with pytest.raises(ConfigError, match="needs a unigram tokenizer, not bpe"):
        SubwordSampler("unigram", tokenizer("bpe"), 1)
    for spec, message in (
        ("bpe_dropout(p=0.0)", "p must be above 0 and at most 1"),
        ("unigram(alpha=2.0)", "alpha must be above 0 and at most 1"),
        ("bpe", "unknown sampling method"),
    ):
        with pytest.raises(ConfigError, match=message):
            resolve_method(spec, None)
