"""`nmt sweep`: grids, resuming and the summary table."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from commandline import TINY, CommandLine, finish, wait_until

from nmt.core.console import IN_SWEEP
from nmt.core.errors import UsageError
from nmt.core.paths import locked
from nmt.runs.sweep_results import (
    RESULTS,
    RunResult,
    Sweep,
    min_p_value,
    permutation_test,
    read_results,
    short_options,
    summarize,
)
from nmt.training import sweep
from nmt.training.sweep import LOCK, parse_grid

OPTIONS = [
    f"{key}={value}"
    for key, value in (TINY | {"train.steps": "2", "train.valid_every": "2"}).items()
]
FOREVER = ["--set", "train.steps=1000000", "--set", "train.valid_every=1000000"]
COMMON = [
    "--set",
    "data.train=files(train='text')",
    "--set",
    "search=greedy",
    *(word for option in OPTIONS for word in ("--set", option)),
]
ONE_RUN = ["sweep", "--grid", "train.label_smoothing=0", "--run", "runs/sweep", *COMMON]
FIRST = "runs/sweep/label_smoothing=0_seed=1"


def finished_process(exit_code: int) -> SimpleNamespace:
    return SimpleNamespace(wait=lambda: exit_code, terminate=lambda: None)


@pytest.fixture
def in_process(nmt: CommandLine, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Make a sweep run its commands in this process instead of subprocesses; return a list of
    them."""
    commands = []

    def start(arguments: Sequence[str]) -> SimpleNamespace:
        commands.append(arguments)
        done = nmt(*arguments)
        sys.stderr.write(done.err)
        return finished_process(done.code)

    monkeypatch.setattr(sweep, "start_nmt", start)
    return commands


@pytest.mark.parametrize(
    ("texts", "grid"),
    [
        (["a.b=1,2"], {"a.b": ["1", "2"]}),
        (["a=x(p=1, q=2), y", "b=[1,2],[3]"], {"a": ["x(p=1, q=2)", "y"], "b": ["[1,2]", "[3]"]}),
        (["a='1,2'"], {"a": ["'1,2'"]}),
        (["a=,x(p=1)"], {"a": ["", "x(p=1)"]}),
        (["a=f(g(1),h(2)),x"], {"a": ["f(g(1),h(2))", "x"]}),
    ],
)
def test_grid_values_keep_their_parentheses(texts: list[str], grid: dict[str, list[str]]) -> None:
    assert parse_grid(texts) == grid


@pytest.mark.parametrize(
    "texts",
    [
        ["a"],
        ["a="],
        ["=1"],
        ["a=1", "a=2"],
        ["seed=1,2"],
        ["seed =1,2"],
        ["a=x(1,2"],
        ["a=1,1"],
        ["a=')"],
    ],
)
def test_invalid_grid_raises(texts: list[str]) -> None:
    with pytest.raises(UsageError):
        parse_grid(texts)


def test_summary_has_mean_and_deviation_over_successful_seeds() -> None:
    results = [
        RunResult("a1", {"k": "1"}, 1, 9, 1.0, {"BLEU": 10.0}),
        RunResult("a2", {"k": "1"}, 2, 9, 2.0, {"BLEU": 14.0}),
        RunResult("a3", {"k": "1"}, 3, exit_code=1),
        RunResult("b1", {"k": "2"}, 1, 9, 1.0, {"BLEU": 7.0}),
    ]
    plan = Sweep("quickstart", (), {"k": ["1", "2"]}, (1, 2, 3))
    first, second = summarize(plan, results[::-1])  # in the order in which they were completed
    assert (first.num_finished, first.num_failed, first.hours) == (2, 1, 1.5)
    assert first.scores["BLEU"] == (12.0, pytest.approx(8**0.5))
    assert second.scores["BLEU"] == (7.0, None)
    assert (first.p_values, second.p_values) == ({}, {})  # one seed shows no variance


def test_permutation_test_counts_divisions_with_a_difference_as_large() -> None:
    # 2 of the 6 divisions of four values into pairs are {1, 2} and {3, 4}.
    assert permutation_test([1.0, 2.0], [3.0, 4.0]) == pytest.approx(2 / 6) == min_p_value(2, 2)
    assert permutation_test([1.0, 4.0], [2.0, 3.0]) == 1.0  # equal means
    # {1, 2, 3} has a sum of 6, {1, 2, 4} of 7 (observed), and their complements 15 and 14.
    assert permutation_test([1.0, 2.0, 4.0], [3.0, 5.0, 6.0]) == pytest.approx(4 / 20)
    assert permutation_test([1.0], [3.0, 4.0, 5.0]) == 1 / 4 == min_p_value(1, 3)
    assert (min_p_value(3, 3), min_p_value(4, 4)) == (0.1, pytest.approx(2 / 70))
    many = [float(value) for value in range(30)]
    assert permutation_test(many, many) == 1.0
    assert permutation_test(many, [value + 20 for value in many]) < 1e-4


def test_labels_have_what_differs() -> None:
    schedules = [{"train.schedule": f"linear(peak=3e-3, warmup={n})"} for n in (50, 300)]
    assert short_options(schedules) == [{"warmup": "50"}, {"warmup": "300"}]
    assert short_options([{"a.k": "", "a.x": "1"}, {"a.k": "noam(warmup=1)", "a.x": "1"}]) == [
        {"k": "(empty)"},
        {"k": "noam(warmup=1)"},
    ]
    assert short_options([{"a.k": "1"}]) == [{}]


def write_results(directory: Path, num_seeds: int) -> list[str]:
    """Write the results of a finished sweep with two values, and return the command."""
    directory.mkdir(parents=True)
    lines = []
    for value, mean in (("0", 20.0), ("a_b", 30.0)):
        for seed in range(1, num_seeds + 1):
            name = f"model_{seed}"
            options = {"tokenizer.model": value}
            scores = {"BLEU": mean + seed, "chrF2": 50.0}
            lines.append(json.dumps(asdict(RunResult(name, options, seed, 9, 0.5, scores))))
    (directory / RESULTS).write_text("\n".join(lines))
    return lines


@pytest.fixture
def printed_tables(
    bare: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[str, str]]:
    """Print the table of a finished sweep."""

    def run(num_seeds: int, *options: str) -> tuple[str, str]:
        directory = bare.directory / f"of {num_seeds} seeds"
        if not directory.exists():
            write_results(directory, num_seeds)
        monkeypatch.setattr(sweep, "run_sweep", lambda plan, _: read_results(directory))
        done = bare.run("sweep", "--grid", "tokenizer.model=0,a_b", *options)
        return done.out, done.err

    return run


def test_a_star_marks_a_significant_difference(
    printed_tables: Callable[..., tuple[str, str]],
) -> None:
    out, err = printed_tables(4)
    lines = [line.split() for line in out.splitlines()[-3:]]
    assert lines[1] == "0 22.50 ± 1.29 50.00 ± 0.00 30 min 4".split()
    assert lines[2] == "a_b 32.50 ± 1.29 * 50.00 ± 0.00 30 min 4".split()
    assert "* differs from the first row (p < 0.05, permutation test over seeds" in err
    out, err = printed_tables(3)
    assert "*" not in out
    assert "3 seeds: too few for p < 0.05; use --seeds 4 or more" in err
    out, err = printed_tables(1)
    assert "1 seed: too few" in err


def test_table_formats(printed_tables: Callable[..., tuple[str, str]]) -> None:
    out, err = printed_tables(4, "--format", "md")
    assert out.splitlines() == [
        "| model | test BLEU | test chrF2 | time | runs |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| 0 | 22.50 ± 1.29 | 50.00 ± 0.00 | 30 min | 4 |",
        "| a_b | 32.50 ± 1.29 * | 50.00 ± 0.00 | 30 min | 4 |",
    ]
    assert "model_1: test BLEU 21.00, test chrF2 50.00, 9 updates, 30 min" in err
    out, _ = printed_tables(4, "--format", "latex")
    assert out.splitlines() == [
        r"\begin{tabular}{lrrrr}",
        r"\toprule",
        r"model & test BLEU & test chrF2 & time & runs \\",
        r"\midrule",
        r"0 & 22.50 $\pm$ 1.29 & 50.00 $\pm$ 0.00 & 30 min & 4 \\",
        r"a\_b & 32.50 $\pm$ 1.29 * & 50.00 $\pm$ 0.00 & 30 min & 4 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    out, _ = printed_tables(4, "--format", "csv")
    first, second = csv.DictReader(out.splitlines())
    assert (first["tokenizer.model"], first["BLEU mean"], first["BLEU p"]) == ("0", "22.5", "")
    assert float(second["BLEU p"]) == pytest.approx(2 / 70, rel=1e-4)
    assert (second["chrF2 sd"], second["runs"], second["failed"]) == ("0", "4", "0")
    out, _ = printed_tables(4, "--json")
    assert json.loads(out)[1]["p_values"]["BLEU"] == pytest.approx(2 / 70)


def test_table_formats_are_checked(bare: CommandLine) -> None:
    command = ["sweep", "--grid", "model.dropout=0.1"]
    bare(*command, "--format", "html").assert_fails(2, "unknown table format 'html'")
    bare(*command, "--format", "md", "--json").assert_fails(
        2, "--json and --format cannot be combined"
    )


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_sweep_trains_all_combinations_and_can_be_extended(nmt: CommandLine) -> None:
    command = ["sweep", "--grid", "train.label_smoothing=0,0.1", "--run", "runs/sweep", *COMMON]
    command += ["--precision", "bf16"]
    done = nmt.run(*command)
    lines = done.out.splitlines()
    names = [f"label_smoothing={value}_seed=1" for value in ("0", "0.1")]
    assert [line.partition(":")[0] for line in lines[:2]] == names
    assert lines[3].startswith("label_smoothing  valid loss  valid BLEU  test BLEU  test chrF2")
    assert [line.split()[0] for line in lines[4:]] == ["0", "0.1"]
    assert f"run 1 of 2: {names[0]}\n" in done.err
    assert re.search(rf"run 2 of 2, about [\d.]+ s left: {re.escape(names[1])}\n", done.err)
    config = (nmt.directory / "runs/sweep" / names[1] / "config.yaml").read_text()
    assert "label_smoothing: 0.1" in config
    assert "seed: 1" in config
    before = {
        path: path.stat().st_mtime_ns for path in (nmt.directory / "runs/sweep").glob("*/step-*")
    }
    done = nmt(*command, "--seeds", "2", "--json")
    assert "2 of 4 runs remaining" in done.err
    assert re.findall(r"run (\d) of 4, about", done.err) == ["3", "4"]
    rows = json.loads(done.out)
    assert [(row["options"], row["num_finished"]) for row in rows] == [
        ({"train.label_smoothing": "0"}, 2),
        ({"train.label_smoothing": "0.1"}, 2),
    ]
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in before.items())
    sessions = [*(nmt.directory / "runs/sweep").glob("*/sessions.jsonl")]
    assert len(sessions) == 4
    assert all('"bfloat16"' in session.read_text() for session in sessions)
    nmt(*command[:-1], "fp32").assert_fails(2, "runs/sweep contains a sweep with another --prec")
    nmt(*command, "--set", "model.dropout=0.3").assert_fails(
        2, "runs/sweep contains a sweep with another --set", "options are in runs/sweep/sweep.json"
    )
    nmt(*command, "--grid", "model.dropout=0.1").assert_fails(
        2, "a sweep with other options in --grid"
    )
    (nmt.directory / "runs/sweep/sweep.json").write_text('{"config": "", "grid": "x"}')
    nmt(*command).assert_fails(2, "sweep.json is damaged")


@pytest.mark.slow
def test_killed_sweep_resumes_the_current_run(
    nmt: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_forks(nmt, monkeypatch)
    command = ["sweep", "--grid", "train.label_smoothing=0,0.1", "--run", "runs/sweep", *COMMON]
    process = nmt.fork(*command, start_new_session=True)
    wait_until(process, lambda: list((nmt.directory / FIRST).glob("step-*")))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    done = finish(nmt.fork(*command)).check()
    assert "2 of 2 runs remaining" in done.err
    assert "resuming" in done.err
    assert len(json.loads(nmt(*command, "--json").out)) == 2


@pytest.mark.usefixtures("in_process")
def test_failed_run_is_reported_and_the_others_continue(nmt: CommandLine) -> None:
    # The first cleaning step drops all pairs, which fails only in training.
    grid = ["--grid", "data.clean=[length(min=90)],[normalize]"]
    done = nmt("sweep", *grid, "--run", "runs/sweep", *COMMON)
    assert done.code == 1
    lines = done.out.splitlines()
    assert lines[0].endswith("failed with exit code 1")
    assert "test BLEU" in lines[1]
    assert "0, 1 failed" in done.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "train.labelsmoothing=0,1"], "label_smoothing"),
        (["--grid", "train.label_smoothing=0,nine"], "train.label_smoothing"),
        (["--grid", "train.optimizer=adamw,moun"], "did you mean 'muon'?"),
        (
            ["--grid", "model.dim=32", "--set", "model.dim=64"],
            "--set model.dim and --grid set the same option",
        ),
        (
            ["--grid", "model.dim=32", "--set", "seed=2"],
            "--set seed and --seeds set the same option",
        ),
        (["--grid", "model.dim=32", "--time-limit", "soon"], "invalid --time-limit 'soon'"),
        (["--grid", "model.dim"], "cannot read --grid model.dim"),
        (["--grid", "model.dropout=0.1", "--device", "cuda:99"], "GPU"),
        (["--grid", "model.dropout=0.1", "--precision", "int8"], "unknown precision 'int8'"),
        (
            ["--grid", "model.dropout=0,0.0"],
            "duplicate value: dropout=0_seed=1 and dropout=0.0_seed=1 are the same",
        ),
        (["--grid", "data.temperature=5"], "data.temperature has no effect"),
        (
            ["--grid", "model.dropout=0.1", "--config", "finetune"],
            "nmt sweep does not support --config finetune",
        ),
    ],
)
def test_invalid_arguments_raise_before_training(
    trained: CommandLine, arguments: list[str], message: str
) -> None:
    trained("sweep", *arguments, "--run", "runs/never").assert_fails(2, message)
    assert not (trained.directory / "runs/never").exists()


def test_missing_test_set_raises_before_training(trained: CommandLine) -> None:
    corpus = "data.train=files(train='text', hold_out=False)"
    arguments = ["--grid", "model.dropout=0.1,0.2", "--set", corpus, "--run", "runs/never"]
    trained("sweep", *arguments).assert_fails(1, "corpus 'files' has no test split")
    assert not (trained.directory / "runs/never").exists()


def test_sweep_sets_seed_and_time_limit_and_skips_truncated_results(
    nmt: CommandLine, in_process: list[Sequence[str]]
) -> None:
    command = [*ONE_RUN, "--seeds", "2", "--time-limit", "1h"]
    done = nmt.run(*command)
    assert [words[-1] for words in in_process if words[0] == "train"] == ["3600s", "3600s"]
    assert "run 1 of 2, at most about 2 h 0 min left: label_smoothing=0_seed=1\n" in done.err
    for seed in (1, 2):
        run = nmt.directory / f"runs/sweep/label_smoothing=0_seed={seed}"
        assert f"seed: {seed}\n" in (run / "config.yaml").read_text()
    with open(nmt.directory / "runs/sweep" / RESULTS, "a", encoding="utf-8") as file:
        file.write('{"name": "label')
    again = nmt(*command)
    assert "0 of 2 runs remaining" in again.err
    assert again.out == done.out
    nmt(*ONE_RUN, "--time-limit", "3s").assert_fails(
        2, "contains a sweep with another --time-limit"
    )


@pytest.mark.parametrize(("trained", "remaining"), [(400.0, "600s"), (4000.0, "1s")])
def test_time_limit_includes_the_training_before_a_failure(
    nmt: CommandLine, monkeypatch: pytest.MonkeyPatch, trained: float, remaining: str
) -> None:
    limits = []

    def fail(arguments: Sequence[str]) -> SimpleNamespace:
        limits.append(arguments[-1])
        run = nmt.directory / FIRST
        shutil.copytree(nmt.directory / "runs/tiny", run, dirs_exist_ok=True)
        path = run / "step-000020/meta.json"
        meta = json.loads(path.read_text())
        meta["progress"]["seconds"] = trained
        path.write_text(json.dumps(meta))
        return finished_process(1)

    monkeypatch.setattr(sweep, "start_nmt", fail)
    for _ in range(2):
        assert nmt(*ONE_RUN, "--time-limit", "1000s").code == 1
    assert limits == ["1000s", remaining]


@pytest.mark.usefixtures("in_process")
def test_options_may_need_those_of_the_grid(nmt: CommandLine) -> None:
    grid = ["--grid", "train.keep_last=3,4", "--set", "train.average_last=3", "--run", "runs/sweep"]
    nmt.run("sweep", *grid, *COMMON)
    (nmt.directory / "mine.yaml").write_text("train: {average_last: 3}\n")
    nmt.run(
        "sweep",
        "--config",
        "mine.yaml",
        "--grid",
        "train.keep_last=3",
        "--run",
        "runs/mine",
        *COMMON,
    )


def test_two_combinations_cannot_have_one_directory(trained: CommandLine) -> None:
    grid = ["--grid", "tokenizer.model=a/b,a-b", "--run", "runs/never"]
    trained("sweep", *grid).assert_fails(
        2, "two combinations of --grid would be in runs/never/model=a-b_seed=1"
    )
    assert not (trained.directory / "runs/never").exists()


def test_training_is_not_repeated_after_a_failed_evaluation(
    nmt: CommandLine, monkeypatch: pytest.MonkeyPatch, in_process: list[Sequence[str]]
) -> None:
    start = sweep.start_nmt
    failed = finished_process(7)
    monkeypatch.setattr(
        sweep, "start_nmt", lambda words: failed if words[0] == "evaluate" else start(words)
    )
    assert nmt(*ONE_RUN).code == 1
    monkeypatch.setattr(sweep, "start_nmt", start)
    nmt.run(*ONE_RUN)
    assert [words[0] for words in in_process] == ["train", "evaluate"]


def test_runs_with_long_options_have_short_names(
    nmt: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Paths of more than 255 bytes; the 245th byte is the first or the second one of "ä".
    directories = ["ä" * 40, "x" + "ä" * 40]
    for directory in directories:
        (nmt.directory / directory).mkdir()
    paths = [f"{name}/../" * 4 + dots + "text" for name in directories for dots in ("", "./")]
    names = []

    def start(arguments: Sequence[str]) -> SimpleNamespace:
        names.append(Path(arguments[2]).name)
        return finished_process(1)

    monkeypatch.setattr(sweep, "start_nmt", start)
    grid = "data.train=" + ",".join(f"files(train='{path}')" for path in paths)
    without_data = COMMON[2:]
    assert nmt("sweep", "--grid", grid, "--run", "runs/sweep", *without_data).code == 1
    assert len({*names}) == 4
    assert max(len(name.encode()) for name in names) <= 255


def use_forks(nmt: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a sweep run its commands in forks, which need not import PyTorch."""

    in_sweep = CommandLine(nmt.directory, nmt.environment | {IN_SWEEP: "1"})

    def start(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        return in_sweep.fork(*arguments, stdin=None, stdout=subprocess.DEVNULL, stderr=None)

    monkeypatch.setattr(sweep, "start_nmt", start)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("send", "signal_number", "in_forks"),
    [
        (os.kill, signal.SIGINT, True),
        (os.kill, signal.SIGTERM, True),
        (os.killpg, signal.SIGINT, False),
        (os.killpg, signal.SIGTERM, True),
        (os.killpg, signal.SIGHUP, True),
    ],
)
def test_interrupted_sweep_saves_checkpoints(
    nmt: CommandLine,
    monkeypatch: pytest.MonkeyPatch,
    send: Callable[[int, int], None],
    signal_number: int,
    in_forks: bool,
) -> None:
    if in_forks:
        use_forks(nmt, monkeypatch)
    process = nmt.fork(*ONE_RUN, "--seeds", "3", *FOREVER, start_new_session=True)
    run = nmt.directory / FIRST
    wait_until(process, (run / "metrics.jsonl").exists)
    send(process.pid, signal_number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    command = shlex.join(["nmt", *ONE_RUN, "--seeds", "3", *FOREVER])
    assert err.decode().endswith(f"nmt: interrupted; continue the sweep with: {command}\n")
    for word in (b"interrupted", b"stopped", b"continue"):  # the commands of the sweep are silent
        assert err.count(word) == (0 if word == b"stopped" else 1)
    assert len(list(run.glob("step-*"))) == 1
    assert list(nmt.directory.glob("runs/sweep/label*")) == [run]


def test_no_command_starts_after_a_stop_signal(
    nmt: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []

    def start(arguments: Sequence[str]) -> SimpleNamespace:
        calls.append(arguments[0])
        os.kill(os.getpid(), signal.SIGINT)
        return SimpleNamespace(wait=lambda: 0, terminate=lambda: calls.append("terminate"))

    monkeypatch.setattr(sweep, "start_nmt", start)
    done = nmt(*ONE_RUN, "--seeds", "2")
    assert done.code == 130
    assert "interrupted; continue the sweep with: nmt sweep " in done.err
    assert calls == ["train", "terminate"]
    assert read_results(nmt.directory / "runs/sweep") == []


@pytest.mark.slow
def test_a_run_whose_training_is_stopped_has_failed(
    nmt: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(arguments: Sequence[str]) -> SimpleNamespace:
        shutil.copytree(nmt.directory / "runs/tiny", nmt.directory / arguments[2])
        meta = sorted((nmt.directory / arguments[2]).glob("step-*/meta.json"))[-1]
        content = json.loads(meta.read_text())
        content["progress"]["scores"] = {}  # as after SIGTERM
        meta.write_text(json.dumps(content))
        return finished_process(75)

    monkeypatch.setattr(sweep, "start_nmt", stop)
    assert nmt(*ONE_RUN).code == 1
    assert not list(nmt.directory.glob("runs/sweep/*/.trained"))


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_failed_runs_are_repeated_and_truncated_results_ignored(nmt: CommandLine) -> None:
    first = nmt(*ONE_RUN)
    results = nmt.directory / "runs/sweep" / RESULTS
    line = json.loads(results.read_text())
    results.write_bytes(
        json.dumps(line | {"exit_code": 137, "scores": None}).encode() + b'\n{"name": "\xff'
    )
    done = nmt(*ONE_RUN)
    assert "1 of 1 run remaining" in done.err
    assert done.out == first.out
    assert [json.loads(text)["exit_code"] for text in results.read_text().splitlines()] == [0]


@pytest.mark.usefixtures("in_process")
def test_sweep_has_one_process_and_one_config(nmt: CommandLine) -> None:
    config = nmt.directory / "mine.yaml"
    config.write_text("train: {steps: 6}\n")
    command = [*ONE_RUN, "--config", "mine.yaml"]
    nmt.run(*command)
    with locked(nmt.directory / "runs/sweep" / LOCK, lambda: None):
        nmt(*command).assert_fails(2, "another process is running the sweep in runs/sweep")
    config.write_text("train: {steps: 6, clip_norm: 2.0}\n")
    nmt(*command).assert_fails(2, "contains a sweep with another config content")
    (nmt.directory / "runs/sweep/sweep.json").write_text("{")
    nmt(*command).assert_fails(2, "runs/sweep/sweep.json is damaged")
