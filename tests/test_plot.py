"""Learning curves: what is in the log is in the picture."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from commandline import CommandLine

from nmt.errors import UsageError
from nmt.plot import AXES, draw, points, read_log

pytest.importorskip("matplotlib")


def log(run: Path, *lines: str) -> Path:
    run.mkdir()
    (run / "metrics.jsonl").write_text("\n".join(lines))
    return run


def test_values_are_found_where_their_axis_is(tmp_path: Path) -> None:
    run = log(
        tmp_path / "run",
        '{"step": 5, "loss": 4.0, "seconds": 1800}',
        '{"step": 10, "loss": 3.0}',
        '{"step": 10, "valid_bleu": 7.0, "seconds": 3600}',
        '{"step": 15, "lo',
    )
    read = read_log(run)
    assert points(read, "loss", AXES["updates"]) == ([5, 10], [4.0, 3.0])
    assert points(read, "loss", AXES["hours"]) == ([0.5], [4.0])
    assert points(read, "valid_bleu", AXES["hours"]) == ([1.0], [7.0])
    assert points(read, "lr", AXES["updates"]) == ([], [])


def test_what_is_no_number_is_not_drawn(tmp_path: Path) -> None:
    run = log(tmp_path / "run", '{"step": "x", "loss": "y"}', '{"step": 5, "loss": null}', '{"step": 6, "loss": 2.0}')
    assert points(read_log(run), "loss", AXES["updates"]) == ([6], [2.0])
    draw([run], tmp_path / "a.png", AXES["updates"])


@pytest.mark.parametrize("by", AXES)
def test_runs_share_a_picture(by: str, nmt: CommandLine) -> None:
    assert nmt.train("runs/other", train__steps="10").code == 0
    done = nmt("plot", "runs/tiny", "runs/other", "--by", by, "-o", "both.svg")
    assert (done.code, done.out) == (0, "both.svg\n"), done.err
    picture = (nmt.folder / "both.svg").read_text()
    texts = re.findall(r"<!-- (.*?) -->", picture)
    for text in ("runs/tiny", "runs/other", "validation BLEU", "learning rate", AXES[by].label):
        assert text in texts


def test_a_picture_has_a_line_for_each_value(tmp_path: Path) -> None:
    lines = [json.dumps({"step": s, "loss": 1.0, "lr": 1.0, "tokens_per_second": 9.0}) for s in (1, 2)]
    one = log(tmp_path / "one", *lines, '{"step": 2, "valid_loss": 2.0, "valid_bleu": 5.0}')
    draw([one], tmp_path / "one.png", AXES["updates"])
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_each_run_has_its_own_curve_and_colour(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    rates = {"one": [1.0, 2.0], "two": [3.0, 6.0]}
    runs = [
        log(tmp_path / name, *(json.dumps({"step": step, "lr": lr}) for step, lr in enumerate(values)))
        for name, values in rates.items()
    ]
    draw(runs, tmp_path / "both.png", AXES["updates"])
    curves, (legend,) = drawn[0].axes[2].lines, drawn[0].legends
    assert [list(curve.get_ydata()) for curve in curves] == [*rates.values()]
    assert [text.get_text() for text in legend.get_texts()] == [*map(str, runs)]
    colours = [curve.get_color() for curve in curves]
    assert [handle.get_color() for handle in legend.legend_handles] == colours
    assert len(set(colours)) == 2


def test_what_cannot_be_drawn_is_said(nmt: CommandLine) -> None:
    nmt("plot", "runs/none").refuses(2, "runs/none holds no metrics.jsonl", "hint: ")
    nmt("plot", "runs/tiny", "--by", "hour").refuses(2, "unknown axis 'hour'", "did you mean")
    nmt("plot", "runs/tiny", "-o", "curves.xyz").refuses(2, "cannot draw a picture of the format '.xyz'", "png")
    for name in ("curves", ""):  # matplotlib would write to another name
        nmt("plot", "runs/tiny", "-o", name).refuses(2, "cannot draw a picture of the format ''")
    nmt("plot", "runs/tiny", "-o", "nowhere/curves.png").refuses(1, "cannot write nowhere/curves.png: No such file")
    (nmt.folder / "blank").mkdir()
    (nmt.folder / "blank/metrics.jsonl").write_text("")
    nmt("plot", "blank").refuses(2, "the log of blank has no updates yet")


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match="matplotlib is not installed"):
        draw([log(tmp_path / "run", '{"step": 1}')], tmp_path / "x.png", AXES["updates"])
