"""The figures of the guide: scripts draw all of them, and they match the text."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch

from nmt.search.beam import Beam
from nmt.search.greedy import Greedy

pytest.importorskip("matplotlib")
from matplotlib.image import imread

import figures

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guide"


@pytest.mark.parametrize("name", figures.FIGURES)
def test_figure_is_drawn(name: str, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        figure = figures.FIGURES[name]()
        figure.savefig(tmp_path / "pixels.png", dpi=50)
    pixels = imread(tmp_path / "pixels.png")
    assert 0.002 < (pixels[..., :3] < 0.9).any(axis=-1).mean() < 0.9  # drawn on white paper


def test_guide_shows_all_figures() -> None:
    shown = {
        name
        for page in GUIDE.glob("*.md")
        for name in re.findall(r"\(figures/(.*?)\)", page.read_text())
    }
    by_models = set(
        re.findall(r"\$figures/(\w+\.png)", (ROOT / "scripts" / "make_figures.sh").read_text())
    )
    assert shown == {*figures.FIGURES, *by_models, "encoder.png", "cross.png"}
    assert {path.name for path in (GUIDE / "figures").iterdir()} == shown


def test_learned_kernel_width_reduces_the_error() -> None:
    keys_S = torch.rand(40, generator=torch.Generator().manual_seed(2)).mul(5).sort().values
    values_S = (3 * keys_S).sin()
    errors = [
        float(
            (
                figures.masked_softmax(figures.kernel(keys_S + 0.01, keys_S, w), None) @ values_S
                - values_S
            )
            .square()
            .mean()
        )
        for w in (1.0, figures.learned_width(keys_S, values_S))
    ]
    assert errors[1] < errors[0] / 4


def test_masked_attention_is_uniform_over_visible_keys() -> None:
    padding_B11S = (torch.arange(4) < torch.tensor([4, 2])[:, None])[:, None, None]
    assert figures.attention_weights(padding_B11S, 4)[1].tolist() == [[0.5, 0.5, 0, 0]] * 4
    places = torch.arange(4)
    distance_TT = places[:, None] - places
    windowed = figures.attention_weights((distance_TT >= 0) & (distance_TT <= 1), 4)[0]
    assert windowed.tolist() == [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5]]


def test_worked_example_matches_the_searches() -> None:
    page = (GUIDE / "10-decoding.md").read_text()
    assert figures.translations(Greedy()) == [("der Hund", pytest.approx(0.2))]
    best = figures.translations(Beam(beam_size=2, top_beams=2, length_penalty=0.0))
    assert best == [("ein Hund", pytest.approx(0.32)), ("der Hund", pytest.approx(0.2))]
    complete = figures.translations(Beam(beam_size=20, top_beams=20, length_penalty=0.0))
    assert complete[:2] == best
    assert sum(probability for _, probability in complete) == pytest.approx(1)
    for text in (
        (
            "ein Hund 0.32, der Hund 0.20, der kleine 0.175, der Mann 0.125, ein Mann 0.04, ein"
            " kleiner 0.04"
        ),
        "0.5 · 0.4",
    ):
        assert text in page
