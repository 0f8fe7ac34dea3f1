"""`nmt sweep`: grids, resuming and the summary table."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
from commandline import TINY, CommandLine, wait_until

from nmt.core.errors import UsageError
from nmt.core.paths import locked
from nmt.train import sweep
from nmt.train.sweep import (
    LOCK,
    RESULTS,
    RunResult,
    Sweep,
    _name,
    _remaining_seconds,
    parse_grid,
    read_results,
    summarize,
)

OPTIONS = [
    f"{key}={value}"
    for key, value in (TINY | {"train.steps": "6", "train.valid_every": "3"}).items()
]
COMMON = [
    "--set",
    "data.train=files(train='text')",
    *(word for option in OPTIONS for word in ("--set", option)),
]


def finished_process(exit_code: int) -> SimpleNamespace:
    return SimpleNamespace(wait=lambda: exit_code, terminate=lambda: None)


@pytest.fixture
def in_process(nmt: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a sweep run its commands in this process instead of subprocesses."""

    def start(arguments: Sequence[str]) -> SimpleNamespace:
        done = nmt(*arguments)
        sys.stderr.write(done.err)
        return finished_process(done.code)

    monkeypatch.setattr(sweep, "start_nmt", start)


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


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_sweep_trains_all_combinations_and_can_be_extended(nmt: CommandLine) -> None:
    command = ["sweep", "--grid", "train.label_smoothing=0,0.1", "--run", "runs/sweep", *COMMON]
    done = nmt.run(*command)
    lines = done.out.splitlines()
    names = [f"label_smoothing={value}_seed=1" for value in ("0", "0.1")]
    assert [line.partition(":")[0] for line in lines[:2]] == names
    assert "test BLEU" in lines[3]
    assert [line.split()[0] for line in lines[4:]] == ["label_smoothing=0", "label_smoothing=0.1"]
    config = (nmt.directory / "runs/sweep" / names[1] / "config.yaml").read_text()
    assert "label_smoothing: 0.1" in config
    assert "seed: 1" in config
    before = {
        path: path.stat().st_mtime_ns for path in (nmt.directory / "runs/sweep").glob("*/step-*")
    }
    done = nmt(*command, "--seeds", "2", "--json")
    assert "2 of 4 runs remaining" in done.err
    rows = json.loads(done.out)
    assert [(row["options"], row["num_finished"]) for row in rows] == [
        ({"train.label_smoothing": "0"}, 2),
        ({"train.label_smoothing": "0.1"}, 2),
    ]
    assert all(path.stat().st_mtime_ns == time_ns for path, time_ns in before.items())
    nmt(*command, "--set", "model.dropout=0.3").assert_fails(
        2, "runs/sweep contains a sweep with another --set"
    )
    nmt(*command, "--grid", "model.dropout=0.1").assert_fails(
        2, "a sweep with other options in --grid"
    )
    (nmt.directory / "runs/sweep/sweep.json").write_text('{"config": "", "grid": "x"}')
    nmt(*command).assert_fails(2, "sweep.json is damaged")


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_killed_sweep_resumes_the_current_run(nmt: CommandLine) -> None:
    command = ["sweep", "--grid", "train.label_smoothing=0,0.1", "--run", "runs/sweep", *COMMON]
    process = nmt.start(*command, start_new_session=True)
    run = nmt.directory / "runs/sweep/label_smoothing=0_seed=1"
    wait_until(process, lambda: list(run.glob("step-*")))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    done = nmt.run(*command)
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


def test_remaining_seconds_subtract_the_training_time(nmt: CommandLine) -> None:
    run = nmt.directory / "runs/tiny"
    path = run / "step-000020/meta.json"
    meta = json.loads(path.read_text())
    meta["progress"]["seconds"] = 400.0
    path.write_text(json.dumps(meta))
    assert _remaining_seconds(1000.0, run) == 600
    assert _remaining_seconds(1000.0, nmt.directory / "none") == 1000
    meta["progress"]["seconds"] = 4000.0
    path.write_text(json.dumps(meta))
    assert _remaining_seconds(1000.0, run) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_sweep_sets_seed_and_time_limit_and_skips_truncated_results(nmt: CommandLine) -> None:
    command = [
        "sweep",
        "--grid",
        "train.label_smoothing=0",
        "--run",
        "runs/sweep",
        *COMMON,
        "--set",
        "train.steps=1000000",
        "--set",
        "train.valid_every=1000000",
    ]
    done = nmt.run(*command, "--seeds", "2", "--time-limit", "1s")
    for seed in (1, 2):
        assert (
            f"seed: {seed}\n"
            in (nmt.directory / f"runs/sweep/label_smoothing=0_seed={seed}/config.yaml").read_text()
        )
    with open(nmt.directory / "runs/sweep" / RESULTS, "a", encoding="utf-8") as file:
        file.write('{"name": "label')
    again = nmt(*command, "--seeds", "2", "--time-limit", "1s")
    assert "0 of 2 runs remaining" in again.err
    assert again.out == done.out
    nmt(*command, "--time-limit", "3s").assert_fails(
        2, "contains a sweep with another --time-limit"
    )


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


@pytest.mark.usefixtures("in_process")
def test_training_is_not_repeated_after_a_failed_evaluation(
    nmt: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [
        "sweep",
        "--grid",
        "train.label_smoothing=0",
        "--run",
        "runs/sweep",
        *COMMON,
        "--time-limit",
        "1s",
        "--set",
        "train.steps=1000000",
        "--set",
        "train.valid_every=1000000",
    ]
    start = sweep.start_nmt
    failed = finished_process(7)
    monkeypatch.setattr(
        sweep, "start_nmt", lambda words: failed if words[0] == "evaluate" else start(words)
    )
    assert nmt(*command).code == 1
    progress = (nmt.directory / "runs/sweep/label_smoothing=0_seed=1/metrics.jsonl").read_text()
    monkeypatch.setattr(sweep, "start_nmt", start)
    nmt.run(*command)
    assert (
        nmt.directory / "runs/sweep/label_smoothing=0_seed=1/metrics.jsonl"
    ).read_text() == progress


def test_runs_with_long_options_have_short_names() -> None:
    names = [_name({"data.train": f"[files(train='{'long/' * 100}{i}')]"}, 1) for i in range(2)]
    assert max(len(name.encode()) for name in names) <= 255
    assert len(set(names)) == 2
    assert len(_name({"data.train": "ä" * 300}, 1).encode()) <= 255


@pytest.mark.slow
@pytest.mark.parametrize(
    ("send", "signal_number"),
    [
        (os.kill, signal.SIGINT),
        (os.kill, signal.SIGTERM),
        (os.killpg, signal.SIGTERM),
        (os.killpg, signal.SIGHUP),
    ],
)
def test_interrupted_sweep_saves_checkpoints(
    nmt: CommandLine, send: Callable[[int, int], None], signal_number: int
) -> None:
    command = [
        "sweep",
        "--grid",
        "train.label_smoothing=0",
        "--run",
        "runs/sweep",
        *COMMON,
        "--seeds",
        "3",
    ]
    command += [
        "--set",
        "train.steps=1000000",
        "--set",
        "train.valid_every=1000000",
    ]
    process = nmt.start(*command, start_new_session=True)
    run = nmt.directory / "runs/sweep/label_smoothing=0_seed=1"
    wait_until(process, (run / "metrics.jsonl").exists)
    send(process.pid, signal_number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert b"run the same command again to continue the sweep" in err
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
    command = [
        "sweep",
        "--grid",
        "train.label_smoothing=0",
        "--run",
        "runs/sweep",
        "--seeds",
        "2",
    ]
    done = nmt(*command, *COMMON)
    assert done.code == 130
    assert "run the same command again to continue the sweep" in done.err
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
    assert (
        nmt("sweep", "--grid", "train.label_smoothing=0", "--run", "runs/sweep", *COMMON).code == 1
    )
    assert not list(nmt.directory.glob("runs/sweep/*/.trained"))


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_failed_runs_are_repeated_and_truncated_results_ignored(nmt: CommandLine) -> None:
    command = ["sweep", "--grid", "train.label_smoothing=0", "--run", "runs/sweep", *COMMON]
    first = nmt(*command)
    results = nmt.directory / "runs/sweep" / RESULTS
    line = json.loads(results.read_text())
    results.write_bytes(
        json.dumps(line | {"exit_code": 137, "scores": None}).encode() + b'\n{"name": "\xff'
    )
    done = nmt(*command)
    assert "1 of 1 run remaining" in done.err
    assert done.out == first.out
    assert [json.loads(text)["exit_code"] for text in results.read_text().splitlines()] == [0]


@pytest.mark.usefixtures("in_process")
def test_sweep_has_one_process_and_one_config(nmt: CommandLine) -> None:
    config = nmt.directory / "mine.yaml"
    config.write_text("train: {steps: 6}\n")
    command = [
        "sweep",
        "--config",
        "mine.yaml",
        "--grid",
        "train.label_smoothing=0",
        "--run",
        "runs/sweep",
        *COMMON,
    ]
    nmt.run(*command)
    with locked(nmt.directory / "runs/sweep" / LOCK, lambda: None):
        nmt(*command).assert_fails(2, "another process is running the sweep in runs/sweep")
    config.write_text("train: {steps: 6, clip_norm: 2.0}\n")
    nmt(*command).assert_fails(2, "contains a sweep with another config content")
    (nmt.directory / "runs/sweep/sweep.json").write_text("{")
    nmt(*command).assert_fails(2, "runs/sweep/sweep.json is damaged")
