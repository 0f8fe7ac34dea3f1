"""Plots of learning curves, sweeps and position encodings."""

from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commandline import CommandLine

from nmt.core.errors import UsageError
from nmt.model.positions import POSITION_ENCODINGS, EncodingTable, PositionEncoding, StackSpec
from nmt.runs.sweep_results import RESULTS, SWEEP_FILE, Sweep
from nmt.viz import position_plots as positions
from nmt.viz import sweep_plots
from nmt.viz.learning_curves import (
    AXES,
    draw,
    mean_and_range,
    points,
    read_log,
    read_variants,
)

pytest.importorskip("matplotlib")


def log(run: Path, *lines: str) -> Path:
    run.mkdir()
    (run / "metrics.jsonl").write_text("\n".join(lines))
    return run


def test_points_have_the_metric_and_the_axis(tmp_path: Path) -> None:
    run = log(
        tmp_path / "run",
        '{"step": 5, "loss": 4.0, "seconds": 1800}',
        '{"step": 10, "loss": 3.0}',
        '{"step": 10, "valid_bleu": 7.0, "seconds": 3600}',
        '{"step": 15, "lo',
    )
    records = read_log(run)
    assert points(records, "loss", AXES["updates"]) == ([5, 10], [4.0, 3.0])
    assert points(records, "loss", AXES["hours"]) == ([0.5], [4.0])
    assert points(records, "valid_bleu", AXES["hours"]) == ([1.0], [7.0])
    assert points(records, "lr", AXES["updates"]) == ([], [])


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved."""
    from matplotlib.figure import Figure

    saved: list[Any] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: saved.append(figure))
    return saved


def test_invalid_values_are_ignored(tmp_path: Path, figures: list[Any]) -> None:
    run = log(
        tmp_path / "run",
        '{"step": "x", "loss": "y"}',
        '{"step": 5, "loss": null}',
        '{"step": 6, "loss": 2.0}',
    )
    assert points(read_log(run), "loss", AXES["updates"]) == ([6], [2.0])
    draw([run], tmp_path / "a.png", AXES["updates"])
    assert figures[0].axes[0].lines[0].get_xydata().tolist() == [[6, 2]]


def test_a_dollar_sign_in_a_name_is_not_mathematics(tmp_path: Path) -> None:
    runs = [log(tmp_path / name, '{"step": 5, "loss": 4.0}') for name in ("$x_$", "$y_$")]
    draw(runs[:1], tmp_path / "one.svg", AXES["updates"])
    draw(runs, tmp_path / "two.svg", AXES["updates"])
    assert "$y_$" in (tmp_path / "two.svg").read_text()


@pytest.mark.slow
def test_several_runs_in_one_figure(nmt: CommandLine, figures: list[Any]) -> None:
    nmt.train("runs/other", train__steps="10")
    labels = {
        "updates": "updates",
        "tokens": "thousand target tokens",
        "hours": "seconds of training",
    }
    for by, label in labels.items():
        assert (
            nmt.run("plot", "curves", "runs/tiny", "runs/other", "--by", by, "-o", "both.svg").out
            == "both.svg\n"
        )
        (legend,) = figures[-1].legends
        assert [text.get_text() for text in legend.get_texts()] == ["tiny", "other"]
        _, bleu, rate, _ = figures[-1].axes
        assert (bleu.get_ylabel(), rate.get_ylabel()) == ("validation BLEU", "learning rate")
        assert rate.get_xlabel() == label


def test_curves_are_written_as_png(tmp_path: Path) -> None:
    lines = [
        json.dumps({"step": s, "loss": 1.0, "lr": 1.0, "tokens_per_second": 9.0}) for s in (1, 2)
    ]
    one = log(tmp_path / "one", *lines, '{"step": 2, "valid_loss": 2.0, "valid_bleu": 5.0}')
    draw([one], tmp_path / "one.png", AXES["updates"])
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_each_run_has_a_curve_and_a_color(tmp_path: Path, figures: list[Any]) -> None:
    rates = {"one": [1.0, 2.0], "two": [3.0, 6.0]}
    runs = [
        log(
            tmp_path / name,
            *(json.dumps({"step": step, "lr": lr}) for step, lr in enumerate(values)),
        )
        for name, values in rates.items()
    ]
    draw(runs, tmp_path / "both.png", AXES["updates"])
    curves, (legend,) = figures[0].axes[2].lines, figures[0].legends
    assert [list(curve.get_ydata()) for curve in curves] == [*rates.values()]
    assert [text.get_text() for text in legend.get_texts()] == ["one", "two"]
    colors = [curve.get_color() for curve in curves]
    assert [handle.get_color() for handle in legend.legend_handles] == colors
    assert len(set(colors)) == 2


def test_curves_with_invalid_arguments_are_rejected(nmt: CommandLine) -> None:
    nmt("plot", "curves", "runs/none").assert_fails(
        2, "runs/none has no readable metrics.jsonl", "hint: "
    )
    nmt("plot", "curves", "runs/tiny", "--by", "hour").assert_fails(
        2, "unknown axis 'hour'", "did you mean"
    )
    nmt("plot", "curves", "runs/tiny", "-o", "curves.xyz").assert_fails(
        2, "cannot write the format '.xyz' of curves.xyz", "use .png, .svg, .pdf"
    )
    nmt("plot", "curves", "runs/tiny", "-o", "curves").assert_fails(  # not with a suffix added
        2, "cannot write the format ''"
    )
    (nmt.directory / "file").write_text("")
    nmt("plot", "curves", "runs/tiny", "-o", "file/curves.png").assert_fails(
        1, "cannot write file/curves.png: "
    )
    (nmt.directory / "blank").mkdir()
    (nmt.directory / "blank/metrics.jsonl").write_text("")
    nmt("plot", "curves", "blank").assert_fails(2, "the log of blank has no updates yet")


LR = {"linear(peak=1e-3, warmup=5)": 1.0, "linear(peak=1e-3, warmup=9)": 5.0}


def sweep(directory: Path, steps: tuple[int, ...] = (1, 2)) -> Path:
    """Write a sweep of two schedules with two seeds, of which the second has double values."""
    directory.mkdir()
    plan = Sweep("quickstart", (), {"train.schedule": [*LR]}, (1, 2))
    (directory / SWEEP_FILE).write_text(json.dumps(asdict(plan)))
    lines = []
    for run in plan.runs():
        lr = LR[run.options["train.schedule"]] * run.seed
        log(directory / run.name, *(json.dumps({"step": step, "lr": lr * step}) for step in steps))
        scores = {"BLEU": lr, "valid_loss": lr}
        result = replace(run, updates=2, hours=0.1, scores=scores)
        lines.append(json.dumps(asdict(result)) + "\n")
    (directory / RESULTS).write_text("".join(lines))
    return directory


def test_a_sweep_has_a_color_mean_and_band_for_each_combination(
    tmp_path: Path, figures: list[Any]
) -> None:
    directory = sweep(tmp_path / "sweep")
    (directory / RESULTS).unlink()  # the first runs have not finished
    draw([directory], tmp_path / "a.png", AXES["updates"])
    rates = figures[0].axes[2]
    assert [list(line.get_ydata()) for line in rates.lines] == [[1.5, 3.0], [7.5, 15.0]]
    bands = [band.get_paths()[0].vertices.tolist() for band in rates.collections]
    assert [(min(y for _, y in band), max(y for _, y in band)) for band in bands] == [
        (1, 4),
        (5, 20),
    ]
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["warmup=5", "warmup=9"]
    assert legend.get_title().get_text() == str(directory)


def test_a_single_value_is_drawn_as_a_point(tmp_path: Path, figures: list[Any]) -> None:
    draw([sweep(tmp_path / "sweep", steps=(3,))], tmp_path / "a.png", AXES["updates"])
    rates = figures[0].axes[2]
    assert [(line.get_marker(), *line.get_xydata().tolist()) for line in rates.lines] == [
        ("o", [3, 4.5]),
        ("o", [3, 22.5]),
    ]
    (ranges,) = (band.get_segments()[0].tolist() for band in rates.collections[1:2])
    assert ranges == [[3, 3], [3, 6]]


def test_axes_have_labels_and_start_at_zero(tmp_path: Path, figures: list[Any]) -> None:
    lines = [
        json.dumps({"step": step, "loss": 4.0, "valid_bleu": 0.0, "seconds": 30.0 * step})
        for step in range(1, 4)
    ]
    run = log(tmp_path / "run", *lines)
    for by, label in {"updates": "updates", "hours": "minutes of training"}.items():
        draw([run], tmp_path / "a.png", AXES[by])
        panels = figures[-1].axes
        assert [panel.get_ylabel() for panel in panels] == [
            "loss (nats per token)",
            "validation BLEU",
            "learning rate",
            "target tokens per second",
        ]
        assert {panel.get_xlabel() for panel in panels} == {label}
        loss, bleu, rate, _ = panels
        assert bleu.get_ylim() == (0, 1)
        assert loss.get_xlim()[0] >= 0
        assert [text.get_text() for text in rate.texts] == ["no values yet"]
    assert loss.lines[0].get_xdata().tolist() == [0.5, 1.0, 1.5]


@pytest.mark.filterwarnings("error")  # of a layout that finds no room for the panels
def test_a_run_without_validations_beside_one_with_them(tmp_path: Path) -> None:
    lines = ['{"step": 1, "loss": 4.0}', '{"step": 1, "valid_loss": 4.0, "valid_bleu": 1.0}']
    runs = [log(tmp_path / "one", *lines), log(tmp_path / "two", lines[0])]
    draw(runs, tmp_path / "a.png", AXES["updates"])


def test_scores_of_a_sweep_are_not_negative(tmp_path: Path, figures: list[Any]) -> None:
    directory = sweep(tmp_path / "sweep")
    results = (directory / RESULTS).read_text()
    (directory / RESULTS).write_text(re.sub(r'"BLEU": [\d.]+', '"BLEU": 0.0', results))
    sweep_plots.draw([directory], tmp_path / "a.png", "BLEU")
    (panel,) = figures[0].axes
    assert panel.get_ylim() == (0, 1)
    (legend,) = figures[0].legends
    assert [text.get_text() for text in legend.get_texts()] == ["seed", "mean"]


def test_the_legend_is_above_the_loss(tmp_path: Path) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawn: list[Figure] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
        draw([sweep(tmp_path / "sweep")], tmp_path / "a.png", AXES["updates"])
    canvas = FigureCanvasAgg(drawn[0])
    canvas.draw()
    panel = drawn[0].axes[0]
    assert panel.get_legend().get_window_extent().y0 >= panel.get_window_extent().y1
    assert {line.get_color() for line in panel.get_legend().legend_handles} == {"gray"}


def test_curves_are_interpolated_within_their_range() -> None:
    x, mean, low, high = mean_and_range([([0, 10], [0, 10]), ([20, 5, 10], [20, 7, 12])])
    assert x.tolist() == [0, 5, 10, 20]
    assert mean.tolist() == [0, 6, 11, 20]
    assert low.tolist() == [0, 5, 10, 20]
    assert high.tolist() == [0, 7, 12, 20]


def test_labels_omit_what_all_have_in_common(tmp_path: Path) -> None:
    directory = sweep(tmp_path / "sweep")
    other = log(tmp_path / "other", '{"step": 1, "lr": 1}')
    variants = read_variants([directory, other], AXES["updates"])
    assert [variant.label for variant in variants] == [
        "sweep: warmup=5",
        "sweep: warmup=9",
        "other",
    ]


def test_scores_of_sweeps(tmp_path: Path, figures: list[Any]) -> None:
    first = sweep(tmp_path / "first")
    second = sweep(tmp_path / "second_sweep")
    sweep_plots.draw([first, second], tmp_path / "a.png", "BLEU")
    panel, other = figures[0].axes
    assert [line.get_ydata().tolist() for line in panel.lines] == [[1.5], [1, 2], [7.5], [5, 10]]
    assert [text.get_text() for text in panel.get_xticklabels()] == ["5", "9"]
    assert (panel.get_xlabel(), panel.get_ylabel()) == ("warmup", "test BLEU")
    assert other.get_title() == "second sweep"
    sweep_plots.draw([first, second], tmp_path / "a.png", "valid_loss", join=True)
    (panel,) = figures[1].axes
    labels = [text.get_text() for text in panel.get_yticklabels()]
    assert [label[-2:] for label in labels] == ["9)", "9)", "5)", "5)"]  # the best on top


def test_plot_sweep(bare: CommandLine) -> None:
    sweep(bare.directory / "$x$")
    assert bare.run("plot", "sweep", "$x$", "-o", "a.svg").out == "a.svg\n"
    content = (bare.directory / "a.svg").read_text()
    assert "$x$" in content  # a name, not mathematics
    bare.run("plot", "sweep", "$x$", "-o", "a.svg")
    assert (bare.directory / "a.svg").read_text().count("warmup") == content.count("warmup")
    bare("plot", "sweep", "none").assert_fails(
        2, "none has no results of a sweep with test BLEU", "hint: give the --run of nmt sweep"
    )
    bare("plot", "sweep", "$x$", "--score", "chrF2").assert_fails(2, "no results", "test chrF2")
    bare("plot", "sweep", "$x$", "--score", "bleu").assert_fails(2, "unknown score 'bleu'")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (RESULTS, '{"name": "a", "options": 3, "seed": 1}'),
        (RESULTS, '{"name": "a", "options": {}, "seed": 1, "scores": {"BLEU": "x"}}'),
        (SWEEP_FILE, '{"grid": {"a": 5}, "seeds": [1]}'),
        (SWEEP_FILE, json.dumps({"grid": {str(n): ["1"] * 99 for n in range(9)}, "seeds": [1]})),
    ],
)
def test_damaged_files_of_a_sweep_are_errors(bare: CommandLine, name: str, content: str) -> None:
    (bare.directory / "sweep").mkdir()
    (bare.directory / "sweep" / name).write_text(content)
    bare("plot", "sweep", "sweep").assert_fails(2, "sweep has no results of a sweep")
    bare("plot", "curves", "sweep").assert_fails(2, "sweep has no readable metrics.jsonl")


def test_missing_matplotlib_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match="matplotlib is not installed"):
        draw([log(tmp_path / "run", '{"step": 1}')], tmp_path / "x.png", AXES["updates"])


RELATIVE = ("shaw", "transformer_xl", "t5", "deberta", "alibi")
ABSOLUTE = ("sinusoidal", "sinusoidal_concatenated", "learned", "floater")
STACK = StackSpec(16, 2, 2)


def encoding(name: str, stack: StackSpec = STACK) -> PositionEncoding:
    """Return an encoding with random parameters."""
    torch.manual_seed(1)
    module = POSITION_ENCODINGS[name](stack).eval()
    for parameter_name, parameter in module.named_parameters():
        # The table of Transformer-XL does not include the scores of its learned queries.
        torch.nn.init.normal_(parameter, std=0.0 if parameter_name in ("u_LHK", "v_LHK") else 0.3)
    return module


def make_table(module: PositionEncoding, length: int = 6, layer: int = 1) -> EncodingTable:
    table = module.table(length, layer)
    return table


@pytest.mark.parametrize("name", ABSOLUTE)
def test_the_table_of_an_absolute_encoding_equals_the_added_vectors(name: str) -> None:
    module = encoding(name)
    table = make_table(module)
    added_BTD = module.add_positions(torch.zeros(1, 6, 16), int(module.adds_at_every_layer), 0)
    torch.testing.assert_close(table.values_MC, added_BTD[0])
    assert table.values_MC.abs().sum() > 0
    assert (table.rows_M.tolist(), table.by) == ([*range(6)], "position")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", RELATIVE)
def test_the_table_of_a_relative_encoding_equals_the_added_scores(name: str, causal: bool) -> None:
    module = encoding(name, StackSpec(16, 2, 2, causal=causal))
    table = make_table(module)
    assert table.rows_M.tolist() == [*range(0 if causal else -5, 6)]
    q_BHQK = torch.randn(1, 2, 6, 8)
    scores_BHQS = module.attention_bias(q_BHQK, torch.zeros(1, 2, 6, 8), 1, 0)
    for head, i, j in ((0, 5, 0), (1, 4, 3), (1, 2, 2), (0, 1, 1 if causal else 5)):
        row_C = table.values_MC[(table.rows_M == i - j).nonzero().item()]
        if table.column == "head":
            expected = row_C[head]
        else:  # Shaw's heads share a vector, in the others each head has a part of it
            expected = q_BHQK[0, head, i] @ (
                row_C if len(row_C) == 8 else row_C[8 * head : 8 * head + 8]
            )
        torch.testing.assert_close(scores_BHQS[0, head, i, j], expected)


def test_similarity_of_sinusoidal_and_rotary_positions_decreases_with_distance() -> None:
    for name in ("sinusoidal", "rotary"):
        distance_M, similarity_MX = positions.similarity(make_table(encoding(name), 20))
        for distance in distance_M.tolist():
            of_distance = similarity_MX[distance, : 20 - distance]
            torch.testing.assert_close(of_distance, of_distance[:1].expand_as(of_distance))
            assert similarity_MX[distance, 20 - distance :].isnan().all()
        assert similarity_MX[0, 0] > similarity_MX[1, 0] > similarity_MX[2, 0]


def test_similarity_of_biases_is_a_softmax() -> None:
    distance_M, weights_MH = positions.similarity(make_table(encoding("alibi")))
    torch.testing.assert_close(weights_MH.sum(0), torch.ones(2))
    assert distance_M[weights_MH.argmax(0)].tolist() == [0, 0]


def test_similarity_of_distances_is_the_cosine_similarity_to_distance_0() -> None:
    table = make_table(encoding("shaw"))
    distance_M, similarity_M1 = positions.similarity(table)
    zero_1C = table.values_MC[table.rows_M == 0]
    assert distance_M.tolist() == [*range(-5, 6)]
    torch.testing.assert_close(
        similarity_M1[:, 0], torch.cosine_similarity(table.values_MC, zero_1C)
    )


def test_similarity_of_positions_is_the_cosine_similarity() -> None:
    table = make_table(encoding("learned"))
    _, similarity_MX = positions.similarity(table)
    torch.testing.assert_close(similarity_MX[0], torch.ones(6))
    torch.testing.assert_close(
        similarity_MX[2, :4], torch.cosine_similarity(table.values_MC[2:], table.values_MC[:-2])
    )


def test_figure_of_position_encodings(tmp_path: Path, figures: list[Any]) -> None:
    stacks = {"learned": StackSpec(32, 2, 2), "shaw": STACK, "t5": STACK}
    with torch.no_grad():
        tables = {name: make_table(encoding(name, stack)) for name, stack in stacks.items()}
    positions.draw(tables, tmp_path / "a.png")
    extents = {
        "learned": [-0.5, 31.5, 5.5, -0.5],
        "shaw": [-0.5, 7.5, 5.5, -5.5],
        "t5": [0.5, 2.5, 5.5, -5.5],
    }
    channels = {"learned": [0, 3, 6, 9, 12], "shaw": [0, 1, 2, 3, 4], "t5": [0, 1]}
    for row, (name, table) in enumerate(tables.items()):
        heat_map, channel_plot, similarity_plot = figures[0].axes[3 * row : 3 * row + 3]
        assert (heat_map.get_title(), heat_map.get_xlabel(), heat_map.get_ylabel()) == (
            name,
            table.column,
            table.by,
        )
        torch.testing.assert_close(torch.tensor(heat_map.images[0].get_array()), table.values_MC)
        assert heat_map.images[0].get_extent() == extents[name]
        max_value = float(table.values_MC.abs().max())
        assert heat_map.images[0].get_clim() == pytest.approx((-max_value, max_value))
        for line, channel in zip(channel_plot.lines, channels[name], strict=True):
            assert line.get_label() == f"{table.column} {channel + (table.column == 'head')}"
            assert line.get_xdata().tolist() == table.rows_M.tolist()
            assert line.get_ydata().tolist() == table.values_MC[:, channel].tolist()
        _, similarity_MX = positions.similarity(table)
        mean_M = similarity_MX.nanmean(1) if name == "learned" else similarity_MX[:, 0]
        assert similarity_plot.lines[0].get_ydata().tolist() == mean_M.tolist()
        if name == "t5":
            assert [line.get_label() for line in similarity_plot.lines] == ["head 1", "head 2"]
        if name == "learned":
            vertices = similarity_plot.collections[0].get_paths()[0].vertices.round(4).tolist()
            for distance in range(6):
                pairs = similarity_MX[distance, : 6 - distance]
                expected = sorted({round(float(pairs.min()), 4), round(float(pairs.max()), 4)})
                assert sorted({y for x, y in vertices if x == distance}) == pytest.approx(
                    expected, abs=2e-4
                )


def test_values_of_one_sign_have_a_scale_of_one_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.figure import Figure

    figures: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: figures.append(figure))
    alibi = make_table(encoding("alibi", STACK))
    positive = dataclasses.replace(alibi, values_MC=-alibi.values_MC)
    positions.draw({"negative": alibi, "positive": positive}, tmp_path / "a.png")
    below, above = (figures[0].axes[row].images[0] for row in (0, 3))
    lowest = float(alibi.values_MC.min())
    assert (below.get_cmap().name, below.get_clim()) == ("Blues_r", pytest.approx((lowest, 0)))
    assert (above.get_cmap().name, above.get_clim()) == ("Reds", pytest.approx((0, -lowest)))


def test_the_encoding_that_is_asked_for_is_drawn(
    nmt: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: dict[str, EncodingTable] = {}
    monkeypatch.setattr(positions, "draw", lambda tables, output: drawn.update(tables))
    sizes = ("--dim", "16", "--heads", "2")
    second_layer = ("--length", "5", "--layer", "2")
    nmt.run("plot", "positions", "transformer_xl", *sizes, *second_layer)
    torch.manual_seed(1)
    wanted = make_table(POSITION_ENCODINGS["transformer_xl"](STACK).eval(), 5)
    torch.testing.assert_close(drawn["transformer_xl"].values_MC, wanted.values_MC)
    nmt.run("plot", "positions", "learned(max_positions=4)", *sizes)
    assert len(drawn["learned(max_positions=4)"].rows_M) == 4
    nmt.train("runs/alibi", model__position_encoding="alibi", train__steps="1")
    nmt.run("plot", "positions", "--model", "runs/alibi", "--length", "3")
    of_encoder = drawn["runs/alibi: alibi"]
    assert sorted(of_encoder.rows_M.tolist()) == [-2, -1, 0, 1, 2]  # it sees what follows, too


@pytest.mark.slow
def test_plot_positions(nmt: CommandLine) -> None:
    done = nmt(
        "plot",
        "positions",
        "rotary",
        "t5(num_buckets=8)",
        "--length",
        "9",
        "-o",
        "p.svg",
    )
    assert (done.code, done.out) == (0, "p.svg\n"), done.err
    assert "trainable encodings are plotted at initialization" in done.err
    texts = re.findall(r"<!-- (.*?) -->", (nmt.directory / "p.svg").read_text())
    assert {
        "rotary",
        "t5(num_buckets=8)",
        "cosine similarity of positions",
        "head 4",
        "dimension 0",
    } <= {*texts}
    done = nmt("plot", "positions", "--model", "runs/tiny")
    assert (done.code, done.out, done.err) == (0, "positions.png\n", "")
    assert (nmt.directory / "positions.png").read_bytes().startswith(b"\x89PNG")


def test_plot_positions_with_invalid_arguments_is_rejected(nmt: CommandLine) -> None:
    nmt("plot", "positions", "none").assert_fails(
        2, "'none' has nothing to plot", "hint: for example nmt plot positions sinusoidal"
    )
    nmt("plot", "positions", "alib").assert_fails(2, "did you mean 'alibi'?")
    nmt("plot", "positions", "--heads", "3").assert_fails(
        2, "--dim must be even and a multiple of --heads, got 128 and 3"
    )
    for option, value in (
        ("--length", "1"),
        ("--layer", "0"),
        ("--layer", "101"),
        ("--dim", "0"),
        ("--heads", "0"),
    ):
        nmt("plot", "positions", option, value).assert_fails(2, option)
    for argument in ("alibi", "--dim=64", "--heads=2"):
        nmt("plot", "positions", argument, "--model", "runs/tiny").assert_fails(
            2, "--model cannot be combined with"
        )
    nmt("plot", "positions", "learned(max_positions=100000000000)").assert_fails(
        2, "learned': max_positions must be between 1 and 1000000"
    )
    nmt("plot", "positions", "floater(hidden=100000)").assert_fails(
        2, "hidden must be between 1 and 65536"
    )
    nmt("plot", "positions", "--model", "runs/tiny", "--layer", "2").assert_fails(
        2, "there is no layer 2", "must be at most 1"
    )
    nmt.train("runs/rnn", model__arch="rnn", train__steps="10")
    nmt("plot", "positions", "--model", "runs/rnn").assert_fails(2, "runs/rnn is a recurrent model")
