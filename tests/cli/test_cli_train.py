"""`nmt train` with interrupts, SIGKILL, full disks and invalid options. The last good checkpoint
always loads."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import shlex
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from commandline import CommandLine, Done, finish, training, wait_until, write
from tiny import metrics, same_weights

from nmt import cli
from nmt.core.console import format_duration
from nmt.data.shards import Shard
from nmt.runs import checkpoint
from nmt.training import session
from nmt.training.profiling import Estimate
from nmt.training.session import STOPPING
from nmt.training.trainer import Trainer

STOPPED = 75
FOREVER = {"train__steps": "100000", "train__schedule": "inverse_sqrt"}


def step(run: Path) -> int:
    return checkpoint.read_progress(checkpoint.checkpoints(run)[-1]).step


def wait_past(process: subprocess.Popen[bytes], run: Path, before: int) -> None:
    """Wait until a training run has saved a checkpoint after update `before`."""
    wait_until(process, lambda: checkpoint.checkpoints(run) and step(run) > before)


def check_translates(nmt: CommandLine, run: str) -> None:
    done = nmt.run("translate", "--model", run, "the dog", "the cat", "--beam-size", "1")
    assert done.out.count("\n") == 2


def check_resumes(nmt: CommandLine, run: str, extra: int = 5) -> None:
    """Resume a run for a few updates."""
    before = step(nmt.directory / run)
    done = nmt.run("train", "--run", run, "--resume", "--set", f"train.steps={before + extra}")
    assert f"resuming {run} at update {before:,}" in done.err
    assert step(nmt.directory / run) == before + extra


# ---- stopping


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_stopped_training_saves_and_can_be_resumed(
    number: signal.Signals, nmt: CommandLine
) -> None:
    run = nmt.directory / "runs/a run"
    process = nmt.fork(
        *training("runs/a run", train__valid_every="1000", train__log_every="1", **FOREVER)
    )
    wait_until(process, (run / "metrics.jsonl").exists)  # training without a checkpoint yet
    process.send_signal(number)
    # Torchrun forwards the signal that the process group has already received.
    if number != signal.SIGINT:
        time.sleep(0.01)
        process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == STOPPED, err.decode()
    assert "error" not in err.decode()
    stopped = step(run)
    assert out.decode() == f"runs/a run/step-{stopped:06d}\n"
    assert err.decode().count(STOPPING) == 1
    assert (
        f"stopped and saved at update {stopped:,}; continue with: nmt train --run 'runs/a run'"
        " --resume" in err.decode()
    )
    assert "Traceback" not in err.decode()
    check_resumes(nmt, "runs/a run")


def test_a_log_file_gets_one_line_per_log_interval(nmt: CommandLine) -> None:
    err = nmt.train("runs/new", train__steps="10", train__log_every="5").err
    lines = [line for line in err.splitlines() if line.startswith("nmt: update ")]
    first, second, validation = lines
    numbers = r"loss \d+\.\d{3}, [\d,]+ tok/s, lr \d\.\de-\d\d, [\d.]+ s left"
    assert re.fullmatch(rf"nmt: update 5 of 10: {numbers}", first)
    assert re.fullmatch(rf"nmt: update 10 of 10: {numbers}", second)
    assert second.endswith(", 0 s left")
    assert validation.startswith("nmt: update 10: validation loss ")
    assert "\r" not in err


@pytest.mark.slow
def test_a_terminal_gets_a_progress_bar_instead(nmt: CommandLine) -> None:
    terminal, other_end = os.openpty()
    process = nmt.fork(*training("runs/new", train__steps="10"), stderr=other_end)
    os.close(other_end)
    err = b""
    with contextlib.suppress(OSError):  # the end of the process
        while part := os.read(terminal, 4096):
            err += part
    os.close(terminal)
    assert process.wait(timeout=60) == 0
    assert b"update 10: validation loss" in err
    assert b"update 10 of 10" not in err
    assert b"training:" in err


@pytest.mark.slow
def test_the_end_of_the_terminal_saves_and_stops(nmt: CommandLine) -> None:
    terminal, other_end = os.openpty()
    run = nmt.directory / "runs/new"
    often = {"train__valid_every": "1000", "train__log_every": "1"}
    process = nmt.fork(
        *training("runs/new", **FOREVER, **often),
        stdin=other_end,
        stdout=other_end,
        stderr=other_end,
        preexec_fn=lambda: os.login_tty(0),
    )
    os.close(other_end)
    wait_until(process, (run / "metrics.jsonl").exists)
    os.close(terminal)  # the kernel sends SIGHUP, and no output can be written any more
    assert process.wait(timeout=60) == STOPPED
    assert step(run) > 0
    check_resumes(nmt, "runs/new")


@pytest.mark.slow
def test_a_run_that_ignores_sighup_goes_on_after_the_end_of_the_terminal(nmt: CommandLine) -> None:
    def ignore() -> None:  # as nohup does
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    metrics_file = nmt.directory / "runs/new/metrics.jsonl"
    process = nmt.fork(
        *training("runs/new", train__log_every="1", train__steps="30"), preexec_fn=ignore
    )
    wait_until(process, metrics_file.exists)
    process.send_signal(signal.SIGHUP)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err.decode()
    assert step(nmt.directory / "runs/new") == 30


@pytest.mark.slow
def test_commands_after_a_stopped_run_do_not_run_but_those_after_a_finished_one_do(
    nmt: CommandLine,
) -> None:
    often = {"train__valid_every": "1000", "train__log_every": "1"}
    train = shlex.join([sys.executable, "-m", "nmt", *training("runs/new", **FOREVER, **often)])
    and_then = f"{train} --time-limit 1000s && echo next"
    shell = nmt.start("-c", and_then, program=(), executable="/bin/sh", start_new_session=True)
    wait_until(shell, (nmt.directory / "runs/new/metrics.jsonl").exists)
    trainer = Path(f"/proc/{shell.pid}/task/{shell.pid}/children")
    os.kill(int(trainer.read_text().split()[0]), signal.SIGTERM)
    out, err = shell.communicate(timeout=60)
    assert (shell.returncode, b"next" in out) == (STOPPED, False), err
    limited = finish(nmt.fork("train", "--run", "runs/new", "--resume", "--time-limit", "0.2s"))
    assert "time limit reached" in limited.err
    assert limited.code == 0


@pytest.mark.slow
def test_interrupt_cancels_validation(nmt: CommandLine) -> None:
    write(nmt.directory / "huge", *[["the dog"] * 10_000] * 2)  # validation would take minutes
    corpus = "files(train='text', valid='huge', hold_out=False)"
    often = {"train__valid_every": "2", "train__valid_pairs": "0", "train__log_every": "1"}
    process = nmt.fork(*training("runs/new", corpus, **FOREVER, **often))
    metrics = nmt.directory / "runs/new/metrics.jsonl"
    wait_until(process, lambda: metrics.exists() and '"step": 2,' in metrics.read_text())
    time.sleep(0.2)  # in the validation
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert process.returncode == STOPPED
    assert out.decode() == "runs/new/step-000002\n"
    assert "stopped and saved at update 2; continue with" in err.decode()


@pytest.mark.slow
def test_second_interrupt_exits_immediately(nmt: CommandLine) -> None:
    """The first one waits for the end of an update."""
    started = nmt.directory / "started"

    def train_slowly() -> None:
        Trainer.update = lambda *_: (started.touch(), time.sleep(100))
        cli.main()

    command = training("runs/new", "files(train='text')", "--device", "cpu", **FOREVER)
    process = nmt.fork(*command, main=train_slowly)
    wait_until(process, started.exists)
    process.send_signal(signal.SIGINT)
    assert process.stderr
    assert any(STOPPING.encode() in line for line in process.stderr)  # printed before the end
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert "Traceback" not in err.decode()


@pytest.mark.slow
def test_run_directory_is_locked(nmt: CommandLine) -> None:
    first = nmt.fork(*training("runs/one", **FOREVER), stderr=subprocess.DEVNULL)
    wait_until(first, lambda: checkpoint.checkpoints(nmt.directory / "runs/one"))
    resume = nmt("train", "--run", "runs/one", "--resume")
    resume.assert_fails(2, "another process is training in runs/one")
    first.kill()  # releases the lock and leaves the lock file
    first.communicate(timeout=60)
    check_resumes(nmt, "runs/one", 1)


def test_failed_preparation_leaves_no_run(nmt: CommandLine) -> None:
    nmt(*training("runs/none", "files(train='nowhere')")).assert_fails(1, "nowhere")
    assert not (nmt.directory / "runs/none").exists()


PREPARE = [
    "data",
    "prepare",
    "--set",
    "data.train=files(train='text')",
    "--set",
    "tokenizer.vocab_size=360",
]


def prepared_files(nmt: CommandLine, data: str) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in (nmt.directory / data / "prepared").glob("[!.]*/*")
    }


def send_when_cleaned(sign: signal.Signals, stage: str = "clean-0") -> None:
    """Prepare data in this process, which sends itself a signal while it writes the cleaned text,
    or SIGINT when the text is complete."""

    def write_text(shard: Shard, name: str, pairs: Iterator[tuple[str, str]]) -> int:
        if name == stage and sign == signal.SIGKILL:
            pairs = (os.kill(os.getpid(), sign) or pair for pair in pairs)
        return shard_write_text(shard, name, pairs)

    def write_record(shard: Shard, name: str, record: object) -> None:
        shard_write_record(shard, name, record)
        if name == stage:
            os.kill(os.getpid(), sign)

    shard_write_text, shard_write_record = Shard.write_text, Shard.write_record
    Shard.write_text, Shard.write_record = write_text, write_record
    cli.main()


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_interrupted_preparation_resumes_with_identical_results(
    nmt: CommandLine, sign: signal.Signals
) -> None:
    broken = replace(nmt, environment={"NMT_DATA": "broken"})
    process = broken.fork(*PREPARE, main=lambda: send_when_cleaned(sign))
    _, err = process.communicate(timeout=60)
    assert process.returncode == (130 if sign == signal.SIGINT else -sign)
    assert err.decode().endswith("nmt: interrupted\n") or sign == signal.SIGKILL
    assert prepared_files(nmt, "broken") == {}
    (work,) = (nmt.directory / "broken/prepared").glob(".*-part")
    has_cleaned = sign == signal.SIGINT
    assert (work / "train-00000.clean-0.json").exists() == has_cleaned
    assert bool([*work.glob(".nmt-*")]) == (not has_cleaned)
    done = broken.run(*PREPARE)
    assert "resuming the interrupted preparation" in done.err
    assert not [path for path in (nmt.directory / "broken/prepared").glob(".*") if path.is_dir()]
    nmt.run(*PREPARE)
    names = {
        path.parent.name for path in (nmt.directory / "broken/prepared").glob("[!.]*/manifest.json")
    }
    expected = {
        path.name: path.read_bytes()
        for name in names
        for path in (nmt.directory / "data/prepared" / name).iterdir()
    }
    assert prepared_files(nmt, "broken") == expected


def test_concurrent_processes_prepare_the_same_data_once(nmt: CommandLine) -> None:
    both = [nmt.fork(*PREPARE) for _ in range(2)]
    errors = [process.communicate(timeout=120)[1].decode() for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    assert sum("prepared 360" in error for error in errors) == 1, errors


# ---- SIGKILL and full disks


@pytest.mark.slow
def test_repeated_sigkill_gives_bitwise_identical_weights(nmt: CommandLine) -> None:
    """Set KILLS for a longer test, as scripts/kill_and_resume.sh does."""
    kills = int(os.environ.get("KILLS", "2"))
    changes = {
        "train__steps": str(24 * kills),
        "train__batch_tokens": "128",
        "train__max_length": "64",
        "train__valid_every": "4",
        "train__valid_pairs": "2",
        "train__grad_accumulation": "2",
        "train__ema": "0.9",
        "train__source_noise": "lowercase_no_punctuation(p=0.3)",
        "train__log_every": "1",
        "train__subword_regularization": "unigram(alpha=0.2)",
    }
    nmt.run(*training("runs/uninterrupted", **changes))
    run, moment, killed = nmt.directory / "runs/killed", random.Random(1), 0
    while killed < kills:
        options = (
            ["train", "--run", "runs/killed", "--resume"]
            if killed
            else training("runs/killed", **changes)
        )
        process = nmt.fork(*options, stderr=subprocess.DEVNULL)
        wait_past(process, run, step(run) if killed else 0)
        time.sleep(moment.uniform(0.0, 0.05))
        process.kill()
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        killed += 1
        latest = checkpoint.load_latest_intact(run)
        # None is incomplete.
        assert (latest and [latest[0]]) == (checkpoint.checkpoints(run)[-1:] or None)
    nmt.run("train", "--run", "runs/killed", "--resume")
    assert not list(run.glob(".step-*"))
    check_translates(nmt, "runs/killed")
    runs = (nmt.directory / "runs/uninterrupted", run)
    assert same_weights(*runs)
    states = (checkpoint.read_progress(checkpoint.checkpoints(path)[-1]) for path in runs)
    first, second = (replace(state, seconds=0.0) for state in states)
    assert first == second
    curves = [
        [(line["step"], line.get("loss"), line.get("valid_loss")) for line in metrics(path)]
        for path in runs
    ]
    assert curves[0] == curves[1]


@pytest.mark.slow
def test_full_disk_while_saving_keeps_the_last_checkpoint(nmt: CommandLine) -> None:
    run = nmt.directory / "runs/tiny"
    before = sorted(path.name for path in run.iterdir())
    # Enough for the weights, but not for the training state.
    max_bytes = (run / "step-000010/model.safetensors").stat().st_size + 4096

    def limit_file_size() -> None:
        sys.dont_write_bytecode = True  # Python would leave a part of a file
        resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, max_bytes))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    again = ["train", "--run", "runs/tiny", "--resume", "--set", "train.steps=30"]
    done = finish(nmt.fork(*again, preexec_fn=limit_file_size))
    done.assert_fails(1, "cannot save runs/tiny/step-000030", "hint: free disk space", "--resume")
    assert sorted(path.name for path in run.iterdir()) == before
    check_translates(nmt, "runs/tiny")
    nmt.run(*again)


@pytest.mark.slow
def test_a_run_is_repeated_from_its_record(nmt: CommandLine) -> None:
    nmt.train("runs/tuned", "files(train='text')", "--init-from", "runs/tiny", train__steps="4")
    names = ("tiny", "tuned")
    commands = [
        ["train", "--config", f"runs/{name}/config.yaml", "--run", f"runs/{name}-again"]
        for name in names
    ]
    few = "from nmt.training import fine_tuning; fine_tuning.RESAMPLES = 20"
    for done in nmt.in_one_process(*commands, prelude=few):  # which has another hash seed
        done.check()
    for name in names:
        run, again = (nmt.directory / f"runs/{each}" for each in (name, f"{name}-again"))
        for file in ("config.yaml", "data.json", "spm.model"):
            assert (run / file).read_bytes() == (again / file).read_bytes(), file
        weights = sorted(run.glob("step-*/model.safetensors"))
        assert weights
        for path in weights:
            assert path.read_bytes() == (again / path.relative_to(run)).read_bytes()


TRANSLATE = ["translate", "--model", "runs/tiny", "--beam-size", "1"]
FULL_DISK = [
    (training("runs/new"), "runs/new/spm.model"),
    (PREPARE, "data/prepared/"),
    (
        [
            "tokenizer",
            "train",
            "text.en",
            "text.de",
            "--vocab-size",
            "350",
            "--output",
            "spm.model",
        ],
        "spm.model",
    ),
    ([*TRANSLATE, "--input", "many.txt", "--output", "out.txt"], "out.txt"),
    ([*TRANSLATE, "--input", "many.txt"], "standard output"),
    ([*TRANSLATE, "many.md", "--to", "de", "--output", "out.md"], "out.md"),
    (
        [
            "evaluate",
            "--model",
            "runs/tiny",
            "--src",
            "many.txt",
            "--ref",
            "many.txt",
            "--output",
            "scores",
        ],
        "scores",
    ),
    (["export", "runs/tiny", "--to", "safetensors", "--output", "exported"], "exported"),
    (["average", "runs/tiny", "--last", "2"], "runs/tiny/average-2"),
    (["average", "runs/tiny", "runs/tiny", "--share", "0.5", "--run", "runs/mean"], "runs/mean"),
    (["data", "check", "text.en", "text.de"], "data/checks/"),
    (["data", "download", "tatoeba", "--from", "text"], "data/corpora/tatoeba"),
    (
        ["distill", "--model", "runs/tiny", "--data", "files(train='text')", "--output", "made"],
        ".made-part/",
    ),
    (["attention", "the dog", "--model", "runs/tiny", "--output", "map.html"], "map.html"),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "name"), FULL_DISK, ids=[" ".join(words[:2]) for words, _ in FULL_DISK]
)
def test_an_error_of_a_full_disk_names_the_file(
    command: list[str], name: str, nmt: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Python would leave a part of a file of bytecode.
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (nmt.directory / "many.txt").write_text("the dog sees the cat\n" * 300)
    (nmt.directory / "many.md").write_text("the dog sees the cat\n\n" * 300)
    (nmt.directory / "text").mkdir()
    for language in ("en", "de"):
        for split in ("train", "test"):  # stored as plain text, unlike train
            path = nmt.directory / f"text/{split}.{language}"
            path.write_text((nmt.directory / f"text.{language}").read_text() * 3)
    before = {path for path in nmt.directory.rglob("*") if path.is_file()}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # Larger files are errors, but for messages it suffices.
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
    try:
        done = nmt(*command)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.code == 1
    assert len(done.errors) == 1
    assert f"{name}: " in done.errors[0] or (name.endswith("/") and f"{name}" in done.errors[0])
    assert "File too large" in done.errors[0]
    assert re.search("hint: .*disk space", done.err)
    assert not list(nmt.directory.rglob(".nmt-*"))
    assert before <= set(nmt.directory.rglob("*"))


# ---- loss


def test_non_finite_loss_stops_before_the_update(nmt: CommandLine) -> None:
    run = nmt.directory / "runs/tiny"
    done = nmt(
        *("train", "--run", "runs/tiny", "--resume", "--precision", "fp32"),
        *("--set", "train.schedule=inverse_sqrt(peak=1e30, warmup=1)", "--set", "train.steps=40"),
    )
    location = ("in a batch of ", "pairs (lines ", "prepared data")
    done.assert_fails(1, "the loss is nan", *location, "lower the learning rate, which was 2.1e+29")
    assert step(run) == 20
    check_translates(nmt, "runs/tiny")
    again = [
        "--resume",
        "--set",
        "train.schedule=inverse_sqrt(peak=1e-3)",
        "--set",
        "train.steps=30",
    ]
    nmt.run("train", "--run", "runs/tiny", *again)
    assert step(run) == 30


# ---- resuming and fine-tuning


def test_resume_requires_a_run(nmt: CommandLine) -> None:
    nmt("train", "--run", "runs/tinny", "--resume").assert_fails(
        2, "runs/tinny contains no run to resume", "hint: "
    )
    assert not (nmt.directory / "runs/tinny").exists()
    nmt("train", "--run", "text.en").assert_fails(2, "text.en is a file")
    nmt("train", "--run", "text.en/run").assert_fails(
        2, "cannot create text.en/run: Not a directory"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the file system requires UTF-8")
def test_a_run_needs_a_name_in_utf8(nmt: CommandLine) -> None:
    nmt("train", "--run", os.fsdecode(b"runs/\xff")).assert_fails(2, "is not UTF-8", "hint: ")


def test_resuming_a_finished_run(nmt: CommandLine) -> None:
    done = nmt.run("train", "--run", "runs/tiny", "--resume")
    assert "training is already complete; increase train.steps to continue" in done.err
    assert done.out.startswith("runs/tiny/step-")


@pytest.mark.parametrize("patience", ["0", "1"])
def test_options_of_a_finished_run_that_have_no_effect_are_rejected(
    patience: str, nmt: CommandLine
) -> None:
    if patience == "1":  # stops early
        again = ["train.steps=400", "train.patience=1", "train.schedule=constant(peak=1e-9)"]
        options = [word for change in again for word in ("--set", change)]
        assert "early stopping" in nmt("train", "--run", "runs/tiny", "--resume", *options).err
    config = nmt.directory / "runs/tiny/config.yaml"
    before = config.read_bytes()
    for name, value in (("label_smoothing", "0.5"), ("steps", "5")):
        done = nmt("train", "--run", "runs/tiny", "--resume", "--set", f"train.{name}={value}")
        stopped_early = patience == "1" and name != "steps"
        limit = "patience" if stopped_early else "steps"
        done.assert_fails(
            2,
            f"runs/tiny is finished, so train.{name} cannot change",
            f"hint: increase train.{limit}",
        )
    assert config.read_bytes() == before
    nmt.run("train", "--run", "runs/tiny", "--resume", "--set", "train.average_last=2")
    assert "average_last: 2" in config.read_text()


def test_lines_of_another_program_in_the_metrics_are_removed(nmt: CommandLine) -> None:
    path = nmt.directory / "runs/tiny/metrics.jsonl"
    before = path.read_text()
    path.write_bytes(b'{"a": 1}\n5\nnull\n\xff\x00\n' + before.encode())
    nmt.run("train", "--run", "runs/tiny", "--resume", "--set", "train.steps=22")
    assert path.read_text().startswith(before)


def test_average_command(nmt: CommandLine) -> None:
    assert nmt.run("average", "runs/tiny", "--last", "2").out == "runs/tiny/average-2\n"
    check_translates(nmt, "runs/tiny/average-2")
    nmt("average", "runs/tiny", "--last", "7").assert_fails(
        2, "runs/tiny keeps its 2 latest checkpoints", "train.keep_last=7"
    )
    nmt("average", "runs/typo").assert_fails(
        1, "runs/typo has 0 validated checkpoints, not 5", "choose a run"
    )
    nmt("average", "runs/tiny", "--last", "1").assert_fails(2, "--last must be at least 2, got 1")


def plan_of(done: Done) -> dict[str, str]:
    """Return the lines that `nmt train --plan` prints, by their labels."""
    fields = {}
    for line in done.out.splitlines():
        label, value = line.split("  ", 1)
        fields[label] = value.lstrip()
    return fields


def test_plan_leaves_no_files(nmt: CommandLine) -> None:
    before = sorted(path.name for path in (nmt.directory / "runs").iterdir())
    options = ("--plan", "--time-limit", "10m", "--batch-tokens", "256")
    done = nmt.train("runs/planned", "files(train='text')", *options, train__steps="300")
    plan = plan_of(done)
    assert list(plan) == [
        "parameters",
        "data",
        "updates",
        "speed",
        "peak memory",
        "checkpoints",
        "time",
        "within limit",
    ]
    pairs = json.loads((nmt.directory / "runs/tiny/data.json").read_text())["pairs"]["train"]
    assert plan["data"].startswith(f"{pairs:,} pairs, ")
    assert plan["updates"].startswith("300 (")
    assert " epochs of " in plan["updates"]
    assert plan["within limit"].startswith("300 updates (")
    assert sorted(path.name for path in (nmt.directory / "runs").iterdir()) == before


@pytest.mark.parametrize("option", ["--resume", "--tensorboard"])
def test_plan_rejects_training_options(nmt: CommandLine, option: str) -> None:
    nmt("train", "--run", "runs/tiny", "--plan", option).assert_fails(
        2, f"--plan does not train: leave out {option}"
    )


def test_resume_rejects_an_empty_config(nmt: CommandLine) -> None:
    (nmt.directory / "runs/tiny/config.yaml").write_text("\n")
    nmt("train", "--run", "runs/tiny", "--resume").assert_fails(
        2, "runs/tiny/config.yaml is empty", "hint: restore"
    )
    nmt("train", "--run", "runs/x", "--resume", "--init-from", "runs/tiny").assert_fails(
        2, "--init-from starts a new run"
    )


def test_plan_output(bare: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(estimate: Estimate, *options: str) -> dict[str, str]:
        monkeypatch.setattr(session, "estimate_training", lambda *_, **__: estimate)
        return plan_of(bare.run("train", "--plan", "--set", "train.steps=300", *options))

    estimate = Estimate(
        parameters=2_500_000,
        corpora="1,000 pairs",
        tokens_per_epoch=20_000,
        updates_per_epoch=50,
        padding=0.125,
        measured_updates=9,
        tokens_per_second=800.0,
        seconds_per_update=0.5,
        memory=1_500_000_000,
        disk=30_000_000,
    )
    assert plan(estimate, "--time-limit", "100s") == {
        "parameters": "2.5 M",
        "data": "1,000 pairs, 20,000 target tokens per epoch, 12.5% padding",
        "updates": "300 (6.0 epochs of 50 updates)",
        "speed": "800 target tokens/s, 2.00 updates/s (9 measured)",
        "peak memory": "1.5 GB",
        "checkpoints": "up to 30 MB on disk",
        "time": "2 min without validation",
        "within limit": "200 updates (4.0 epochs) without validation",
    }
    mixed = replace(
        estimate, corpora="400 pairs of a/train and 600 of 900 pairs of b/train per epoch"
    )
    data = (
        "400 pairs of a/train and 600 of 900 pairs of b/train, 20,000 target tokens per epoch,"
        " 12.5% padding"
    )
    assert plan(mixed)["data"] == data
    long = plan(estimate, "--time-limit", "1000s")
    assert long["within limit"].startswith("300 updates (6.0 epochs)")


def test_automatic_batch_size_requires_a_gpu_and_a_new_run(nmt: CommandLine) -> None:
    corpus = "files(train='text')"
    automatic = training("runs/x", corpus, "--batch-tokens", "auto", "--device", "cpu")
    nmt(*automatic).assert_fails(2, "needs a GPU", "hint: on a CPU")
    nmt("train", "--run", "runs/tiny", "--resume", "--batch-tokens", "auto").assert_fails(
        2, "is for new runs"
    )
    many = training("runs/x", corpus, "--batch-tokens", "many")
    nmt(*many).assert_fails(2, "train.batch_tokens: expected an integer, got 'many'")
    assert not (nmt.directory / "runs/x").exists()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (44.6, "45 s"),
        (59.9, "60 s"),
        (61, "1 min"),
        (3569, "59 min"),
        (3599, "1 h 0 min"),
        (93_600, "1 d 2 h"),
    ],
)
def test_format_duration(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


# ---- run directory


def test_files_and_modes_of_a_run(trained: CommandLine) -> None:
    run = trained.directory / "runs/tiny"
    names = {path.name for path in run.iterdir()} - {"eval", ".lock"}
    files = {
        "README.md",
        "config.yaml",
        "data.json",
        "metrics.jsonl",
        "sessions.jsonl",
        "spm.model",
    }
    assert names == files | {"step-000010", "step-000020"}
    probe = trained.directory / "probe"
    probe.touch()
    mode = stat.S_IMODE(probe.stat().st_mode)
    assert {stat.S_IMODE(path.stat().st_mode) for path in run.rglob("*") if path.is_file()} == {
        mode
    }
    lines = metrics(run)
    assert [line["step"] for line in lines if "valid_bleu" in line] == [10, 20]
    assert [line["step"] for line in lines if "loss" in line] == [5, 10, 15, 20]


def test_log_file_has_complete_lines_only(nmt: CommandLine) -> None:
    done = nmt.train("runs/new")
    assert all(line.startswith("nmt: ") for line in done.err.split("\n")[:-1]), done.err
    assert "\r" not in done.err
