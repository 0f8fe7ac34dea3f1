"""Learning curves: what is in the log is in the picture. Positional encodings: what is drawn is what a model adds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from commandline import CommandLine

from nmt.cli.plot import _build, _load, _table
from nmt.errors import UsageError
from nmt.model.positions import POSITIONS, Positions, Stack, Table
from nmt.viz import position_plots as positions
from nmt.viz.learning_curves import AXES, draw, points, read_log

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
    done = nmt("plot", "curves", "runs/tiny", "runs/other", "--by", by, "-o", "both.svg")
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


def test_each_run_has_its_own_curve_and_color(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    colors = [curve.get_color() for curve in curves]
    assert [handle.get_color() for handle in legend.legend_handles] == colors
    assert len(set(colors)) == 2


def test_what_cannot_be_drawn_is_said(nmt: CommandLine) -> None:
    nmt("plot", "curves", "runs/none").refuses(2, "runs/none holds no metrics.jsonl", "hint: ")
    nmt("plot", "curves", "runs/tiny", "--by", "hour").refuses(2, "unknown axis 'hour'", "did you mean")
    nmt("plot", "curves", "runs/tiny", "-o", "curves.xyz").refuses(
        2, "cannot write the format '.xyz' of curves.xyz", "end it in .png, .svg, .pdf"
    )
    for name in ("curves", ""):  # matplotlib would write to another name
        nmt("plot", "curves", "runs/tiny", "-o", name).refuses(2, "cannot write the format ''")
    (nmt.folder / "file").write_text("")
    nmt("plot", "curves", "runs/tiny", "-o", "file/curves.png").refuses(1, "cannot write file/curves.png: ")
    (nmt.folder / "blank").mkdir()
    (nmt.folder / "blank/metrics.jsonl").write_text("")
    nmt("plot", "curves", "blank").refuses(2, "the log of blank has no updates yet")


def test_without_matplotlib_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match="matplotlib is not installed"):
        draw([log(tmp_path / "run", '{"step": 1}')], tmp_path / "x.png", AXES["updates"])


RELATIVE = ("shaw", "xlnet", "t5", "deberta", "alibi")
ABSOLUTE = ("sinusoidal", "sinusoidal_concatenated", "learned", "floater")
STACK = Stack(16, 2, 2)


def encoding(name: str, stack: Stack = STACK) -> Positions:
    """An encoding whose parameters are no longer what they began as."""
    if name == "floater":
        pytest.importorskip("torchdiffeq")
    torch.manual_seed(1)
    made = POSITIONS[name](stack).eval()
    for own, parameter in made.named_parameters():
        # XLNet's learned queries are a part of its scores that no table shows.
        torch.nn.init.normal_(parameter, std=0.0 if own in ("u_LHK", "v_LHK") else 0.3)
    return made


def table(made: Positions, length: int = 6, layer: int = 1) -> Table:
    found = made.table(length, layer)
    assert found is not None
    return found


@pytest.mark.parametrize("name", ABSOLUTE)
def test_the_table_of_an_absolute_encoding_is_what_it_adds(name: str) -> None:
    made = encoding(name)
    found = table(made)
    added_BTD = made.embed(torch.zeros(1, 6, 16), int(made.every_layer), 0)
    torch.testing.assert_close(found.values_MC, added_BTD[0])
    assert found.values_MC.abs().sum() > 0
    assert (found.rows_M.tolist(), found.by) == ([*range(6)], "position")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", RELATIVE)
def test_the_table_of_a_relative_encoding_is_what_scores_get(name: str, causal: bool) -> None:
    made = encoding(name, Stack(16, 2, 2, causal=causal))
    found = table(made)
    assert found.rows_M.tolist() == [*range(0 if causal else -5, 6)]
    q_BHQK = torch.randn(1, 2, 6, 8)
    scores_BHQS = made.score(q_BHQK, torch.zeros(1, 2, 6, 8), 1, 0)
    assert scores_BHQS is not None
    for head, i, j in ((0, 5, 0), (1, 4, 3), (1, 2, 2), (0, 1, 1 if causal else 5)):
        row_C = found.values_MC[(found.rows_M == i - j).nonzero().item()]
        if found.column == "head":
            expected = row_C[head]
        else:  # Shaw's vectors are as wide as a head, the others have a part for each
            expected = q_BHQK[0, head, i] @ (row_C if len(row_C) == 8 else row_C[8 * head : 8 * head + 8])
        torch.testing.assert_close(scores_BHQS[0, head, i, j], expected)


def test_sinusoids_and_turns_are_as_alike_as_they_are_near() -> None:
    for name in ("sinusoidal", "rotary"):
        apart_M, alike = positions.similarity(table(encoding(name), 20))
        for distance in apart_M.tolist():
            of_distance = alike[distance, : 20 - distance]
            torch.testing.assert_close(of_distance, of_distance[:1].expand_as(of_distance))
            assert alike[distance, 20 - distance :].isnan().all()
        assert alike[0, 0] > alike[1, 0] > alike[2, 0]


def test_biases_share_out_attention() -> None:
    apart_M, share_MH = positions.similarity(table(encoding("alibi")))
    torch.testing.assert_close(share_MH.sum(0), torch.ones(2))
    assert apart_M[share_MH.argmax(0)].tolist() == [0, 0]


def test_vectors_of_distances_are_alike_by_their_cosine_to_that_of_0() -> None:
    found = table(encoding("shaw"))
    apart_M, alike_M1 = positions.similarity(found)
    middle_C = found.values_MC[found.rows_M == 0]
    assert apart_M.tolist() == [*range(-5, 6)]
    torch.testing.assert_close(alike_M1[:, 0], torch.cosine_similarity(found.values_MC, middle_C))


def test_positions_are_alike_by_their_cosine() -> None:
    found = table(encoding("learned"))
    _, alike = positions.similarity(found)
    torch.testing.assert_close(alike[0], torch.ones(6))
    torch.testing.assert_close(alike[2, :4], torch.cosine_similarity(found.values_MC[2:], found.values_MC[:-2]))


def test_a_picture_shows_the_values_of_each_encoding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    stacks = {"learned": Stack(32, 2, 2), "shaw": STACK, "t5": STACK}
    with torch.no_grad():
        tables = {name: table(encoding(name, stack)) for name, stack in stacks.items()}
    positions.draw(tables, tmp_path / "a.png")
    edges = {"learned": [-0.5, 31.5, 5.5, -0.5], "shaw": [-0.5, 7.5, 5.5, -5.5], "t5": [0.5, 2.5, 5.5, -5.5]}
    channels = {"learned": [0, 3, 6, 9, 12], "shaw": [0, 1, 2, 3, 4], "t5": [0, 1]}
    for row, (name, found) in enumerate(tables.items()):
        heat, single, alike = drawn[0].axes[3 * row : 3 * row + 3]
        assert (heat.get_title(), heat.get_xlabel(), heat.get_ylabel()) == (name, found.column, found.by)
        torch.testing.assert_close(torch.tensor(heat.images[0].get_array()), found.values_MC)
        assert heat.images[0].get_extent() == edges[name]
        most = float(found.values_MC.abs().max())
        assert heat.images[0].get_clim() == pytest.approx((-most, most))
        for line, channel in zip(single.lines, channels[name], strict=True):
            assert line.get_label() == f"{found.column} {channel + (found.column == 'head')}"
            assert line.get_xdata().tolist() == found.rows_M.tolist()
            assert line.get_ydata().tolist() == found.values_MC[:, channel].tolist()
        _, wanted = positions.similarity(found)
        mean_M = wanted.nanmean(1) if name == "learned" else wanted[:, 0]
        assert alike.lines[0].get_ydata().tolist() == mean_M.tolist()
        if name == "t5":
            assert [line.get_label() for line in alike.lines] == ["head 1", "head 2"]
        if name == "learned":
            places = alike.collections[0].get_paths()[0].vertices.round(4).tolist()
            for apart in range(6):
                pairs = wanted[apart, : 6 - apart]
                ends = sorted({round(float(pairs.min()), 4), round(float(pairs.max()), 4)})
                assert sorted({y for x, y in places if x == apart}) == pytest.approx(ends, abs=2e-4)


def test_the_encoding_that_is_asked_for_is_drawn(trained: CommandLine) -> None:
    made = encoding("xlnet")
    found, wanted = _table("xlnet", made, 5, 2), table(made, 5)
    torch.testing.assert_close(found.values_MC, wanted.values_MC)
    few = _build(["learned(max_positions=4)"], 16, 2, 1, True)["learned(max_positions=4)"]
    assert few.stack.causal
    assert len(_table("learned(max_positions=4)", few, 64, 1).rows_M) == 4
    for decoder in (False, True):
        (one,) = _load(trained.folder / "runs/tiny", decoder).values()
        assert one.stack.causal == decoder


def test_positions_are_drawn(nmt: CommandLine) -> None:
    done = nmt("plot", "positions", "sinusoidal", "rotary", "t5(num_buckets=8)", "--length", "9", "-o", "p.svg")
    assert (done.code, done.out) == (0, "p.svg\n"), done.err
    assert "trainable encodings are plotted at initialization" in done.err
    texts = re.findall(r"<!-- (.*?) -->", (nmt.folder / "p.svg").read_text())
    assert {"sinusoidal", "rotary", "t5(num_buckets=8)", "cosine of two positions", "head 4", "channel 0"} <= {*texts}
    done = nmt("plot", "positions", "--model", "runs/tiny", "--decoder")
    assert (done.code, done.out, done.err) == (0, "positions.png\n", "")
    assert (nmt.folder / "positions.png").read_bytes().startswith(b"\x89PNG")


def test_positions_that_cannot_be_drawn_are_said(nmt: CommandLine) -> None:
    nmt("plot", "positions", "none").refuses(2, "'none' has nothing to plot", "hint: nmt plot positions sinusoidal")
    nmt("plot", "positions", "alib").refuses(2, "did you mean 'alibi'?")
    nmt("plot", "positions", "--heads", "3").refuses(2, "--dim must be even and a multiple of --heads, got 128 and 3")
    for option, value in (("--length", "1"), ("--layer", "0"), ("--layer", "101"), ("--dim", "0"), ("--heads", "0")):
        nmt("plot", "positions", option, value).refuses(2, option)
    for given in ("alibi", "--dim=64", "--heads=2"):
        nmt("plot", "positions", given, "--model", "runs/tiny").refuses(2, "--model cannot be combined with encodings")
    nmt("plot", "positions", "learned(max_positions=100000000000)").refuses(2, "learned': n must be at most 1,000,000")
    nmt("plot", "positions", "floater(hidden=100000)").refuses(2, "hidden must be at most 65,536")
    nmt("plot", "positions", "--model", "runs/tiny", "--layer", "2").refuses(
        2, "there is no layer 2", "must be at most 1"
    )
    assert nmt.train("runs/rnn", model__arch="rnn", train__steps="10").code == 0
    nmt("plot", "positions", "--model", "runs/rnn").refuses(2, "runs/rnn is a recurrent model")
