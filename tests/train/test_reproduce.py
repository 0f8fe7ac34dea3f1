"""`nmt reproduce`: retraining a run from its record."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest
from commandline import CommandLine, has_content, wait_until, write

from nmt.core.errors import TrainingError
from nmt.train.reproduce import _check_data


@pytest.mark.slow
def test_reproduced_weights_are_bitwise_identical(nmt: CommandLine) -> None:
    done = nmt.process("reproduce", "runs/tiny").check()  # a new process has another hash seed
    assert "the weights are bitwise identical" in done.out
    one, other = (
        (nmt.directory / f"runs/{name}").glob("step-*/model.safetensors")
        for name in ("tiny", "tiny-again")
    )
    assert [path.read_bytes() for path in sorted(one)] == [
        path.read_bytes() for path in sorted(other)
    ]
    scores = [line.split() for line in done.out.splitlines()[1:-1]]
    assert {name for name, _, _ in scores} >= {"valid_loss", "valid_bleu"}
    assert all(before == now for _, before, now in scores)
    config = nmt.directory / "runs/tiny-again/config.yaml"
    config.write_text(config.read_text().replace("seed: 1\n", "seed: 2\n"))
    nmt("reproduce", "runs/tiny").assert_fails(2, "runs/tiny-again already contains a run")


def test_differences_in_versions_are_reported(nmt: CommandLine) -> None:
    sessions = nmt.directory / "runs/tiny/sessions.jsonl"
    session = json.loads(sessions.read_text())
    session["environment"]["torch"] = "1.0"
    sessions.write_text(json.dumps(session | {"processes": 2}) + "\n" + json.dumps(session) + "\n")
    config = nmt.directory / "runs/tiny/config.yaml"
    config.write_text(config.read_text().replace("seed: 1\n", "seed: 2\n"))
    done = nmt("reproduce", "runs/tiny", "--run", "runs/other")
    assert done.code == 3, done.err
    assert "the weights differ" in done.out
    assert "the original run took 2 sessions, the new run 1" in done.out
    assert "the original run used processes 1 and 2, the new run 1" in done.out
    assert "the original run used torch 1.0, the new run " in done.out
    assert (nmt.directory / "runs/other/config.yaml").read_text() == config.read_text()


def test_changed_data_raises_unless_allowed(nmt: CommandLine) -> None:
    lines = (nmt.directory / "text.en").read_text().splitlines()
    write(
        nmt.directory / "text",
        ["another one", *lines[1:]],
        (nmt.directory / "text.de").read_text().splitlines(),
    )
    done = nmt("reproduce", "runs/tiny")
    done.assert_fails(
        1,
        "text/train",
        "changed since runs/tiny was trained",
        "hint: restore the data",
        "--allow-changed-data",
    )
    assert not (nmt.directory / "runs/tiny-again").exists()
    assert nmt("reproduce", "runs/tiny", "--allow-changed-data").code == 3


def test_changed_start_model_raises(nmt: CommandLine) -> None:
    start = nmt.directory / "runs/start"
    shutil.copytree(nmt.directory / "runs/tiny", start)
    nmt.train("runs/tuned", "files(train='text')", "--init-from", "runs/start", train__steps="4")
    shutil.rmtree(start)
    nmt.train("runs/start", seed="2")
    nmt("reproduce", "runs/tuned").assert_fails(
        1, "the start model has changed since runs/tuned was trained"
    )


def test_swapped_corpora_have_changed(tmp_path: Path) -> None:
    meta = {"recipe": {"train": [("a", "1"), ("b", "2")], "valid": ("c", "3")}, "tokenizer": "4"}
    (tmp_path / "data.json").write_text(json.dumps(meta))
    renamed = {"recipe": {"train": [("d", "1"), ("b", "2")], "valid": ("c", "3")}, "tokenizer": "4"}
    _check_data(tmp_path, renamed, allow_changed_data=False)
    swapped = {"recipe": {"train": [("a", "2"), ("b", "1")], "valid": ("c", "3")}, "tokenizer": "4"}
    with pytest.raises(TrainingError, match="a and b have changed since"):
        _check_data(tmp_path, swapped, allow_changed_data=False)
    with pytest.raises(TrainingError, match="b has changed since"):
        _check_data(
            tmp_path,
            meta | {"recipe": {"train": [("a", "1")], "valid": ("c", "3")}},
            allow_changed_data=False,
        )


def test_an_interrupted_run_with_patience_is_not_one_that_stopped_early(nmt: CommandLine) -> None:
    config = nmt.directory / "runs/tiny/config.yaml"
    text = (
        config.read_text()
        .replace("  patience: 0\n", "  patience: 8\n")
        .replace("  steps: 20\n", "  steps: 30\n")
    )
    config.write_text(text)
    nmt("reproduce", "runs/tiny").assert_fails(
        2, "runs/tiny was stopped before its last update", "--resume"
    )


@pytest.mark.slow
def test_an_average_with_a_fine_tuned_model_is_rejected(nmt: CommandLine) -> None:
    nmt.train("runs/tuned", "files(train='text')", "--init-from", "runs/tiny", train__steps="2")
    nmt.run("average", "runs/tiny", "runs/tuned", "--share", "0.5", "--run", "runs/mean")
    nmt("reproduce", "runs/mean").assert_fails(
        2, "the first weights of runs/mean were imported or averaged"
    )


def test_runs_that_were_not_trained_are_rejected(nmt: CommandLine) -> None:
    nmt("reproduce", "runs/tiny", "--run", "runs/../runs/tiny").assert_fails(
        2, "runs/tiny cannot reproduce itself"
    )
    shutil.copytree(nmt.directory / "runs/tiny", nmt.directory / "runs/other")
    nmt.run("average", "runs/tiny", "runs/other", "--share", "0.5", "--run", "runs/mean")
    for _ in range(2):
        nmt("reproduce", "runs/mean").assert_fails(
            2, "the first weights of runs/mean were imported or averaged"
        )
        nmt.run("train", "--run", "runs/mean", "--resume", "--set", "train.steps=2")


def test_the_current_directory_is_reproduced_next_to_it(nmt: CommandLine) -> None:
    inside = CommandLine(nmt.directory / "runs/tiny", {"NMT_DATA": str(nmt.directory / "data")})
    inside("reproduce", ".").assert_fails(
        1, "no such file: text.en"
    )  # the data is relative to another directory
    assert not (nmt.directory / "runs/tiny-again").exists()


@pytest.mark.slow
def test_a_stopped_reproduction_of_a_time_limited_run_is_no_result(nmt: CommandLine) -> None:
    corpus, long = "files(train='text')", {"train__steps": "100000", "train__valid_every": "100000"}
    nmt.train("runs/limited", corpus, "--time-limit", "2s", **long)
    process = nmt.start("reproduce", "runs/limited")
    wait_until(process, lambda: has_content(nmt.directory / "runs/limited-again/metrics.jsonl"))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (75, b""), err
    assert b"the reproduction was stopped" in err


@pytest.mark.parametrize("name", ["nowhere", "runs"])
def test_path_without_a_run_raises(trained: CommandLine, name: str, tmp_path: Path) -> None:
    trained("reproduce", name, "--run", tmp_path / "x").assert_fails(1, f"{name} has no checkpoint")


def test_damaged_record_raises(nmt: CommandLine) -> None:
    (nmt.directory / "runs/tiny/data.json").write_text('{"max_source_length": 9}')
    nmt("reproduce", "runs/tiny").assert_fails(1, "data.json is damaged")


def test_changed_tokenizer_raises(nmt: CommandLine) -> None:
    path = nmt.directory / "runs/tiny/data.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer": "0" * 64}))
    nmt("reproduce", "runs/tiny").assert_fails(
        1, "the tokenizer has changed since runs/tiny was trained"
    )


@pytest.mark.slow
def test_interrupted_reproduction_is_resumed(nmt: CommandLine) -> None:
    corpus, long = "files(train='text')", {"train__steps": "100", "train__valid_every": "20"}
    nmt.train("runs/long", corpus, **long)
    (
        nmt.directory / "runs/long-again"
    ).mkdir()  # of a process that was killed before its first checkpoint
    shutil.copy(nmt.directory / "runs/long/config.yaml", nmt.directory / "runs/long-again")
    process = nmt.start("reproduce", "runs/long")
    wait_until(process, lambda: list((nmt.directory / "runs/long-again").glob("step-*")))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert out == b""
    assert b"the reproduction was stopped" in err
    done = nmt.run("reproduce", "runs/long")
    assert "the weights are bitwise identical" in done.out


def test_stopped_run_must_be_finished_first(nmt: CommandLine) -> None:
    run = nmt.directory / "runs/tiny"
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("steps: 20\n", "steps: 40\n"))
    nmt("reproduce", "runs/tiny").assert_fails(
        2, "was stopped before its last update", "nmt train --run runs/tiny --resume"
    )
    sessions = run / "sessions.jsonl"
    sessions.write_text(json.dumps(json.loads(sessions.read_text()) | {"time_limit": 9.0}) + "\n")
    done = nmt("reproduce", "runs/tiny")
    assert "20 of 40 updates; the reproduction gets the same training time" in done.err
    assert done.code in (0, 3)


def test_corpora_with_equal_names_are_both_compared(nmt: CommandLine) -> None:
    path = nmt.directory / "runs/tiny/data.json"
    meta = json.loads(path.read_text())
    meta["recipe"]["train"].insert(0, [meta["recipe"]["train"][0][0], "0" * 64])
    path.write_text(json.dumps(meta))
    nmt("reproduce", "runs/tiny").assert_fails(
        1, "text/train has changed since runs/tiny was trained"
    )
