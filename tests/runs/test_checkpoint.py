"""Checkpoints and model discovery: atomic saves, damaged files, best and latest checkpoints."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from commandline import CommandLine
from tiny import config

from nmt.core import paths
from nmt.core.errors import CheckpointError, NewerCheckpointError
from nmt.models import discovery
from nmt.runs import checkpoint, pretrained
from nmt.runs.checkpoint import META, TRAINING, WEIGHTS, Progress
from nmt.training.session import train
from nmt.translation.translator import Translator


def save(
    run: Path, step: int, score: float | None = None, *, value: float = 0.0, **progress: float
) -> Path:
    """Save a checkpoint whose weights are `value`; without a score, it has not been validated."""
    scores = {} if score is None else {"best_metric_value": score}
    weights = {"w": torch.full((3,), value)}
    return checkpoint.save(run, Progress(step=step, scores=scores, **progress), weights, {}, "t")


def names(run: Path) -> list[str]:
    return [path.name for path in checkpoint.checkpoints(run)]


def save_often(run: Path) -> None:
    """Save checkpoints, and print their steps."""
    for step in range(1, 10_000):
        tensors = {"w": torch.full((400_000,), float(step))}
        checkpoint.save(run, Progress(step=step), tensors, tensors, "t")
        checkpoint.prune(run)
        print(step, flush=True)


def latest_step(run: Path) -> int:
    """Return the step of the latest checkpoint, after checking that its tensors belong to this
    step."""
    latest = checkpoint.load_latest_intact(run)
    path, weights, training = latest
    step = checkpoint.read_progress(path).step
    assert torch.equal(weights["w"], torch.full((400_000,), float(step)))
    assert torch.equal(training["w"], weights["w"])
    return step


@pytest.mark.slow
def test_sigkill_during_a_save_keeps_the_last_checkpoint(bare: CommandLine) -> None:
    rng = random.Random(0)
    for attempt in range(4):
        run = bare.directory / str(attempt)
        process = bare.fork(main=lambda run=run: save_often(run))
        first = process.stdout.readline()
        time.sleep(rng.random() * 0.1)
        process.kill()
        saved = [first, *process.communicate()[0].splitlines()]
        assert latest_step(run) >= int(saved[-1])


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NMT_DATA", str(directory / "data"))
        train(config(directory), directory / "run", resume=False, device="cpu", precision="fp32")
    return directory / "run"


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(finished, tmp_path / "run"))


def load_error(path: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        discovery.load(path)
    return caught.value


@pytest.mark.slow
def test_run_directory_can_be_moved(run: Path) -> None:
    os.rename(run, run.with_name("elsewhere"))
    loaded = discovery.load(run.with_name("elsewhere"))
    assert not loaded.model.training
    assert loaded.tokenizer.checksum == checkpoint.read_meta(loaded.checkpoint)["tokenizer"]
    assert discovery.load(loaded.checkpoint).checkpoint == loaded.checkpoint


@pytest.mark.parametrize(
    "name", ["config.yaml", "spm.model", "data.json", f"step-000012/{WEIGHTS}"]
)
def test_missing_file_raises(run: Path, name: str) -> None:
    for step in ("step-000006", "step-000012"):
        (run / name.replace("step-000012", step)).unlink(missing_ok=True)
    assert Path(name).name in load_error(run).message


@pytest.mark.parametrize(
    "name", ["spm.model", "data.json", f"step-000012/{WEIGHTS}", f"step-000012/{META}"]
)
def test_damaged_file_raises(run: Path, name: str) -> None:
    path = run / name
    path.write_bytes(path.read_bytes()[:-20])
    error = load_error(run / "step-000012")
    assert path.name in error.message
    assert "damaged" in error.message


@pytest.mark.parametrize(
    ("config", "message", "hint"),
    [(" \n", "is empty", "restore"), ("later: 1\n", "unknown", "newer version of nmt")],
)
def test_empty_or_newer_config_raises(run: Path, config: str, message: str, hint: str) -> None:
    (run / "config.yaml").write_text(config)
    error = load_error(run)
    assert message in error.message
    assert hint in error.hint


def test_newer_checkpoint_raises(run: Path) -> None:
    path = run / "step-000012" / META
    meta = json.loads(path.read_text(encoding="utf-8"))
    progress = meta["progress"] | {"moon": "full"}  # a field that this version does not have
    path.write_text(
        json.dumps(meta | {"format": 99, "nmt": "9.0", "progress": progress}), encoding="utf-8"
    )
    error = load_error(run / "step-000012")
    assert "was written by a newer version of nmt (9.0)" in error.message
    assert "upgrade" in error.hint
    # They must not skip it like a damaged checkpoint.
    for load in (
        checkpoint.load_latest_intact,
        discovery.load,
    ):
        with pytest.raises(NewerCheckpointError):
            load(run)


def test_prune_keeps_the_best_and_the_two_latest(tmp_path: Path) -> None:
    for step, score in enumerate([1.0, 5.0, 2.0, 3.0, 4.0], 1):
        save(
            tmp_path,
            step,
            score,
            best=1.0 if step == 1 else 5.0,
            validations_since_best=int(step > 2),
        )
        checkpoint.prune(tmp_path)
    assert names(tmp_path) == ["step-000002", "step-000004", "step-000005"]
    assert checkpoint.best(tmp_path).name == "step-000002"


def test_an_interrupted_deletion_leaves_no_damaged_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(1, 4):
        save(tmp_path, step, float(step))

    def interrupted(path: Path) -> None:
        (path / checkpoint.META).unlink()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", interrupted)
        with pytest.raises(KeyboardInterrupt):
            checkpoint.prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".step-000001",
        "step-000002",
        "step-000003",
    ]
    checkpoint.prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000002", "step-000003"]


def test_best_remaining_checkpoint_replaces_a_damaged_one(tmp_path: Path) -> None:
    first, second, _ = (
        save(tmp_path, step, 6.0 - step, best=5.0, validations_since_best=step - 1)
        for step in (1, 2, 3)
    )
    (first / META).write_bytes(b"")
    assert checkpoint.best(tmp_path) == second


def test_of_equal_scores_the_lower_loss_is_better(tmp_path: Path) -> None:
    for step, loss in ((1, 3.0), (2, 2.0), (3, 4.0)):
        scores = {"best_metric_value": 0.0, "valid_loss": loss}
        checkpoint.save(tmp_path, Progress(step=step, best=9.0, scores=scores), {}, {}, "t")
    assert checkpoint.best(tmp_path) == tmp_path / "step-000002"
    checkpoint.prune(tmp_path, keep_last=1)
    assert names(tmp_path) == ["step-000002", "step-000003"]
    average = (tmp_path / "step-000003").rename(tmp_path / "average-2")
    assert checkpoint.best(tmp_path) == tmp_path / "step-000002"
    checkpoint.write_scores(average, {"best_metric_value": 0.0, "valid_loss": 1.0})
    assert checkpoint.best(tmp_path) == average


def test_damaged_checkpoint_does_not_affect_others(tmp_path: Path) -> None:
    first, second, third = (
        save(tmp_path, step, score, best=best)
        for step, score, best in ((1, 1.0, 1.0), (2, 3.0, 3.0), (3, 2.0, 3.0))
    )
    original = (first / META).read_bytes()
    for position in range(0, len(original), 7):  # flip one bit
        damaged = bytearray(original)
        damaged[position] ^= 1 << position % 8
        (first / META).write_bytes(damaged)
        assert checkpoint.best(tmp_path) == second
        assert checkpoint.load_latest_intact(tmp_path)[0] == third
    (first / META).write_bytes(b"")
    assert checkpoint.best(tmp_path) == second
    (third / META).write_bytes(original[:50])
    assert checkpoint.load_latest_intact(tmp_path)[0] == second
    (first / META).write_bytes(b"{}")
    checkpoint.prune(tmp_path)
    assert checkpoint.checkpoints(tmp_path) == [second, third]


def test_newest_run_has_the_latest_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NMT_RUNS", str(tmp_path))
    with pytest.raises(CheckpointError, match="there is no trained model under"):
        discovery.newest_run()
    for age, name in enumerate(("new", "old")):
        saved = save(tmp_path / name, 1)
        os.utime(saved / META, (1e9 - age, 1e9 - age))
    assert discovery.newest_run().name == "new"
    # A newer config with an unknown target language.
    (tmp_path / "new" / "config.yaml").write_text("later: 1\n")
    assert discovery.newest_model() == tmp_path / "new"
    assert discovery.newest_model("de") == pretrained.DIRECTORY / "en-de"
    skipped = tmp_path / "new"
    problem = f"config {skipped / 'config.yaml'}: unknown key later"
    assert f"skipping {skipped}: {problem}" in capsys.readouterr().err


def test_the_language_of_a_run_may_have_a_hyphen_or_an_underscore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_newest_first", lambda: [tmp_path])
    monkeypatch.setattr(discovery, "_target_language", lambda run: "pt-BR")
    assert discovery.newest_model("pt_BR") == tmp_path


def test_new_directory_is_atomic(tmp_path: Path) -> None:
    def fail() -> None:
        with paths.new_directory(tmp_path / "a") as work:
            (work / "file").write_text("partial", encoding="utf-8")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail()
    assert list(tmp_path.iterdir()) == []
    for text in ("one", "two"):
        with paths.new_directory(tmp_path / "a") as work:
            (work / text).write_text(text, encoding="utf-8")
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["two"]
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


KILL_EVERYWHERE = """
import os, signal, sys
from pathlib import Path
from nmt.core import paths

def write(path):  # all names, so that a mixture of old and new files would be seen
    if sys.argv[2] == "file":
        paths.write_text(path, "new")
    else:
        with paths.new_directory(path) as work:
            for name in "bc":
                (work / name).write_text("new")

def kill_after(number):  # before the system call with this number
    def count(event, arguments):
        nonlocal number
        if event.split(".")[0] in ("open", "os", "shutil", "tempfile", "fcntl", "ctypes") and event != "os.kill":
            number -= 1
            if number < 0:
                os.kill(os.getpid(), signal.SIGKILL)
    sys.addaudithook(count)

if sys.argv[2] == "two renames":
    paths.exchange = lambda *names: False
for number, parent in enumerate(sorted(Path(sys.argv[1]).iterdir())):
    if not os.fork():
        kill_after(number)
        write(parent / "a")
        os._exit(0)
    _, status = os.wait()
    print(status, flush=True)
"""  # noqa: E501
COMPLETE = ({"a": "old", "b": "old"}, {"b": "new", "c": "new"})
MAX_CALLS = 90


def contents(path: Path) -> dict[str, str] | str:
    """Return the content of a file, or of the files in a directory; an empty one if there is
    nothing."""
    return (
        path.read_text()
        if path.is_file()
        else {each.name: each.read_text() for each in path.glob("*")}
    )


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("kind", ["one call", "two renames", "file"])
def test_sigkill_at_any_system_call_leaves_the_old_or_the_new_one(
    kind: str, tmp_path: Path
) -> None:
    complete = ("old", "new") if kind == "file" else COMPLETE
    parents = [tmp_path / f"{number:03d}" for number in range(MAX_CALLS)]
    for parent in parents:
        parent.mkdir()
        if kind == "file":
            (parent / "a").write_text("old")
        else:
            (parent / "a").mkdir()
            for name in "ab":
                (parent / "a" / name).write_text("old")
    command = [sys.executable, "-c", KILL_EVERYWHERE, str(tmp_path), kind]
    statuses = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    num_killed = statuses.count(str(int(signal.SIGKILL)))
    assert MAX_CALLS > num_killed > 10
    assert statuses == [str(int(signal.SIGKILL))] * num_killed + ["0"] * (MAX_CALLS - num_killed)
    before = [contents(parent / "a") for parent in parents]
    num_missing = before.count({})
    assert (num_missing > 0) == (kind == "two renames")
    assert [each for each in before if each not in complete] == [{}] * num_missing
    for parent in parents:
        # Any command that looks for checkpoints cleans up.
        assert checkpoint.checkpoints(parent) == []
        assert contents(parent / "a") in complete
        assert [path.name for path in parent.iterdir()] == ["a"]
    assert contents(parents[0] / "a") == complete[0]
    assert contents(parents[-1] / "a") == complete[1]


@pytest.mark.parametrize("is_published", [False, True])
def test_the_next_command_puts_back_what_a_killed_process_was_replacing(
    is_published: bool, run: Path
) -> None:
    old, new = save(run, 99, 1.0, value=1.0), save(run, 98, 1.0, value=2.0)
    temporary = run / f"{paths.TEMPORARY}killed"
    for name in (paths.NEW, paths.OLD):
        (temporary / name).mkdir(parents=True)
    (temporary / paths.LOCK).touch()
    old.rename(temporary / paths.OLD / "step-000099")
    new.rename(run / "step-000099" if is_published else temporary / paths.NEW / "step-000099")
    found = discovery.resolve_model(run / "step-000099")[1]  # as every command does for --model
    assert (
        checkpoint.read_tensors(found, WEIGHTS)["w"].tolist() == [2.0 if is_published else 1.0] * 3
    )
    assert not temporary.exists()


def test_temporary_directories_of_live_processes_stay(tmp_path: Path) -> None:
    left_over, other = tmp_path / f"{paths.TEMPORARY}left", tmp_path / ".hidden"
    for directory in (left_over, other):
        directory.mkdir()
        (directory / paths.LOCK).touch()
    with paths.new_directory(tmp_path / "a") as work, paths.new_file(tmp_path / "b") as file:
        (work / "x").touch()
        file.touch()
        subprocess.run(
            [
                sys.executable,
                "-c",
                f"from nmt.core.paths import *; clean_up(Path({str(tmp_path)!r}))",
            ],
            check=True,
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == [".hidden", "a", "b"]


def test_inference_does_not_need_the_training_state(run: Path) -> None:
    for path in checkpoint.checkpoints(run):
        (path / TRAINING).unlink()
    discovery.load(run)


def test_damaged_best_checkpoint_is_logged(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, last = checkpoint.checkpoints(run)
    for damaged, expected in ((last, first), (first, last)):
        text = (damaged / META).read_text()
        (damaged / META).write_text(text[:-9])
        assert discovery.load(run).checkpoint == expected
        assert f"{damaged} is damaged" in capsys.readouterr().err
        (damaged / META).write_text(text)


def test_first_of_equal_validations_is_the_best(tmp_path: Path) -> None:
    for step, num_bad in ((10, 0), (20, 1)):
        save(tmp_path, step, 0.0, best=0.0, validations_since_best=num_bad)
    assert checkpoint.best(tmp_path).name == "step-000010"


def test_prune_keeps_the_first_of_equal_validations(tmp_path: Path) -> None:
    for step in range(1, 5):
        save(tmp_path, step, 0.0, best=0.0, validations_since_best=step - 1)
        checkpoint.prune(tmp_path, keep_last=1)
    assert names(tmp_path) == ["step-000001", "step-000004"]


def test_checkpoints_of_stop_signals_do_not_replace_validated_ones(tmp_path: Path) -> None:
    for step in range(1, 7):
        save(tmp_path, step, None if step in (3, 4, 6) else float(step), best=step)
        checkpoint.prune(tmp_path, keep_last=2)
    assert names(tmp_path) == ["step-000002", "step-000005", "step-000006"]


def test_average_of_the_latest_checkpoints(tmp_path: Path) -> None:
    for step in range(1, 5):
        save(tmp_path, step, 1.0, value=float(step))
    save(tmp_path, 5)  # by a stop signal
    for last, mean in ((2, 3.5), (3, 3.0)):
        assert (
            checkpoint.read_tensors(checkpoint.average(tmp_path, last), WEIGHTS)["w"].tolist()
            == [mean] * 3
        )
    save(tmp_path, 4, 1.0, value=7.0)  # trained again
    assert (
        checkpoint.read_tensors(checkpoint.average(tmp_path, 2), WEIGHTS)["w"].tolist() == [5.0] * 3
    )


@pytest.mark.parametrize(
    "name",
    [
        "step-9",
        "step-000000000000000000001",
        f"step-{2**63}",
        "step-\u0661\u0661\u0661\u0661\u0661\u0661",
        "step--00001",
    ],
)
def test_names_that_save_does_not_write_are_no_checkpoints(tmp_path: Path, name: str) -> None:
    saved = save(tmp_path, 1)
    shutil.copytree(saved, tmp_path / name)
    assert names(tmp_path) == ["step-000001"]
    assert names(save(tmp_path, 1_234_567).parent) == ["step-000001", "step-1234567"]


@pytest.mark.parametrize(
    "change", ["step: -1", "tokens: -5", "step: 1.5", "scores: [1]", "seconds: .nan", "epoch: x"]
)
def test_progress_has_types_and_ranges(tmp_path: Path, change: str) -> None:
    saved = save(tmp_path, 1)
    meta = json.loads((saved / META).read_text())
    meta["progress"] |= yaml.safe_load(change)
    (saved / META).write_text(json.dumps(meta))
    with pytest.raises(CheckpointError, match="is damaged"):
        checkpoint.read_progress(saved)


def with_header(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the header of a safetensors file and the checksum in `meta.json`."""
    content = path.read_bytes()
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content[start:])
    meta = json.loads((path.parent / META).read_text())
    meta["sha256"][path.name] = paths.sha256(path)
    (path.parent / META).write_text(json.dumps(meta))


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2**62, 2**62]},
        {"shape": [-3]},
        {"shape": "3"},
        {"shape": [[3]]},
        {"dtype": "F9"},
        {"dtype": 5},
        {"data_offsets": [0, 2**62]},
        {"data_offsets": [12, 0]},
        {"data_offsets": [0]},
        {"data_offsets": None},
    ],
    ids=str,
)
def test_a_header_that_does_not_fit_the_file_raises(tmp_path: Path, change: dict[str, Any]) -> None:
    saved = save(tmp_path, 1)
    with_header(saved / WEIGHTS, lambda header: header["w"].update(change))
    for read in (checkpoint.read_weights, checkpoint.read_shapes):
        with pytest.raises(CheckpointError, match=f"{WEIGHTS} is damaged"):
            read(saved)


@pytest.mark.parametrize(
    "change",
    [
        "dim: 65536",
        "ffn_dim: 65536",
        "encoder_layers: 50",
        "position_encoding: learned(max_positions=999999)",
    ],
)
@pytest.mark.parametrize("engine", ["pytorch", "native"])
def test_shapes_are_compared_before_memory_is_allocated(
    run: Path, change: str, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allocate(*_: object) -> None:
        pytest.fail("built a network, or measured products of its matrices")

    from nmt.engines import load, native
    from nmt.model import build

    monkeypatch.setattr(build, "build_model", allocate)
    monkeypatch.setattr(native, "fastest_precision", allocate)
    monkeypatch.setattr(
        load, "runs_natively", lambda *_: engine == "native" and "position" not in change
    )
    config = yaml.safe_load((run / "config.yaml").read_text())
    config["model"] |= yaml.safe_load(change)
    (run / "config.yaml").write_text(yaml.safe_dump(config))
    with pytest.raises(CheckpointError, match="do not fit"):
        Translator.load(run, "cpu", "fp32" if "layers" in change else "auto")
