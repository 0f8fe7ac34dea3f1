"""Loggers of `nmt train --log-to`: each writes to its offline mode, and the test reads it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from commandline import CommandLine, training
from loopback import loopback
from tiny import config

from nmt.core.config import config_io
from nmt.core.errors import NMTError, UsageError
from nmt.training import loggers
from nmt.training.loggers import (
    MetricsLogger,
    RunRecord,
    Samples,
    check_server,
    parse_loggers,
    silent_thread,
)

RUN = "runs/logged"
MLFLOW = "mlflow(experiment='exp', uri='file:mlruns')"
SPECS = ["tensorboard", "wandb(project='proj', group='g')", MLFLOW, "trackio(project='proj')"]
OFFLINE = {
    "WANDB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
    "MLFLOW_ALLOW_FILE_STORE": "true",  # faster than a database
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "1",
}


@dataclass
class Logged:
    """A run of two sessions that all loggers have got."""

    directory: Path
    lines: list[dict[str, Any]]
    """Those of metrics.jsonl."""

    def expected(self, name: str) -> list[tuple[int, float]]:
        return [(line["step"], line[name]) for line in self.lines if name in line]


@pytest.fixture(scope="module")
def logged(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> Logged:
    """Train 10 updates with all loggers, and 10 more with the options that the run has kept."""
    for package in ("tensorboard", "wandb", "mlflow", "trackio"):
        if find_spec(package) is None:  # Trackio reads TRACKIO_DIR when it is imported
            pytest.skip(f"pip install {package}")
    directory = tmp_path_factory.mktemp("logged")
    for suffix in ("en", "de"):
        (directory / f"text.{suffix}").symlink_to(pristine / f"text.{suffix}")
    nmt = CommandLine(directory, OFFLINE | {"TRACKIO_DIR": str(directory / "trackio")})
    options = [word for spec in SPECS for word in ("--log-to", spec)]
    command = training(RUN, "files(train='text')", *options, train__steps="10")
    resume = ["train", "--run", RUN, "--resume", "--set", "train.steps=20"]
    for done in nmt.in_one_process(command, resume):
        assert done.check().out.startswith(f"{RUN}/step-0000")
        assert " fails" not in done.err
    metrics = (directory / RUN / "metrics.jsonl").read_text().splitlines()
    return Logged(directory, [json.loads(line) for line in metrics])


@pytest.mark.slow
def test_tensorboard_has_all_metrics_samples_and_options(logged: Logged) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(logged.directory / RUN / "tensorboard")).Reload()
    for tag, name in (
        ("training/loss", "loss"),
        ("training/lr", "lr"),
        ("validation/bleu", "valid_bleu"),
    ):
        assert [(event.step, event.value) for event in events.Scalars(tag)] == [
            (step, pytest.approx(value)) for step, value in logged.expected(name)
        ]
    tables = [
        event.tensor_proto.string_val[0].decode()
        for event in events.Tensors("samples/text_summary")
    ]
    source, translation, reference = logged.lines[-1]["samples"][0]
    assert f"| {source} | {translation} | {reference} |" in tables[-1]
    (options, _) = events.Tensors("config/text_summary")
    assert "| model.dim | 32 |" in options.tensor_proto.string_val[0].decode()


def wandb_records(directory: Path) -> Iterator[Any]:
    """Yield the records in the files of the sessions: a log of LevelDB with protocol buffers."""
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted(directory.glob("wandb/offline-run-*/*.wandb")):
        content = path.read_bytes()
        position = 7  # after the header
        parts = b""
        while position < len(content):
            if 32768 - position % 32768 < 7:  # no header fits into the block
                position += 32768 - position % 32768
                continue
            length, kind = struct.unpack("<HB", content[position + 4 : position + 7])
            parts += content[position + 7 : position + 7 + length]
            position += 7 + length
            if kind in (1, 4):  # complete, or the last part
                yield Record.FromString(parts)
                parts = b""


@pytest.mark.slow
def test_wandb_continues_one_run(logged: Logged) -> None:
    records = list(wandb_records(logged.directory / RUN))
    runs = [record.run for record in records if record.HasField("run")]
    assert len({run.run_id for run in runs}) == 1
    assert {(run.project, run.display_name, run.run_group) for run in runs} == {
        ("proj", "logged", "g")
    }
    options = {
        item.key or ".".join(item.nested_key): json.loads(item.value_json)
        for record in records
        for item in [*record.run.config.update, *record.config.update]
    }
    assert options["model.dim"] == 32
    assert options["train.steps"] == 20
    rows = []
    for record in records:
        if record.HasField("history"):
            items = record.history.item
            rows.append({i.key or i.nested_key[0]: json.loads(i.value_json) for i in items})
    losses = [(row["update"], row["training/loss"]) for row in rows if "training/loss" in row]
    assert losses == logged.expected("loss")
    tables = sorted(logged.directory.glob(f"{RUN}/wandb/offline-run-*/files/media/table/*.json"))
    assert len(tables) == 2
    assert json.loads(tables[0].read_text())["columns"] == ["source", "translation", "reference"]
    samples = [json.loads(path.read_text())["data"] for path in tables]
    assert logged.lines[-1]["samples"] in samples


@pytest.mark.slow
def test_mlflow_continues_one_run(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlflow import MlflowClient

    monkeypatch.chdir(logged.directory)
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    client = MlflowClient(tracking_uri="file:mlruns")
    experiment = client.get_experiment_by_name("exp")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_name, run.info.status) == ("logged", "FINISHED")
    assert run.data.params["model.dim"] == "32"
    history = client.get_metric_history(run.info.run_id, "validation/bleu")
    assert [(metric.step, metric.value) for metric in history] == logged.expected("valid_bleu")
    files = [item.path for item in client.list_artifacts(run.info.run_id, "samples")]
    assert files == ["samples/step-000010.md", "samples/step-000020.md"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_mlflow_is_silent_and_closes_its_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    pytest.importorskip("alembic")
    monkeypatch.chdir(tmp_path)  # for the artifacts
    logger = loggers.MLflow(uri=f"sqlite:///{tmp_path}/mlflow.db")
    logger.start(RunRecord(tmp_path / "run", 0, {"model.dim": 8}, ""))
    assert open_files(tmp_path)
    logger.finish(is_complete=True)
    assert not open_files(tmp_path)
    assert "INFO" not in capsys.readouterr().err


def open_files(directory: Path) -> list[str]:
    """Return the files in a directory that this process has open."""
    paths = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing itself
            paths.append(os.readlink(descriptor))
    return [path for path in paths if path.startswith(str(directory))]


@pytest.mark.slow
def test_trackio_continues_one_run(logged: Logged, monkeypatch: pytest.MonkeyPatch) -> None:
    from trackio import Api, sqlite_storage

    monkeypatch.setattr(sqlite_storage, "TRACKIO_DIR", logged.directory / "trackio")
    (run,) = Api().runs("proj")
    assert run.name.startswith("logged-")
    assert run.config["model.dim"] == 32
    rows = sqlite_storage.SQLiteStorage.get_logs("proj", run.name)
    losses = [(row["step"], row["training/loss"]) for row in rows if "training/loss" in row]
    assert losses == logged.expected("loss")
    table = [row["samples"]["_value"] for row in rows if "samples" in row][-1]
    columns = ("source", "translation", "reference")
    assert [[row[name] for name in columns] for row in table] == logged.lines[-1]["samples"]


@dataclass
class FakeLogger:
    """A logger that records calls, and fails or hangs if told so."""

    failing: str = ""
    hangs: bool = False
    error: BaseException = field(default_factory=lambda: ConnectionError("no route\nto host"))
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def start(self, run: RunRecord) -> str:
        if self.hangs:
            time.sleep(60)
        self._call("start", run.id)
        return "fake-1"

    def log_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        self._call("scalars", step, dict(scalars))

    def log_samples(self, step: int, samples: Samples) -> None:
        self._call("samples", step, samples)

    def finish(self, *, is_complete: bool) -> None:
        self._call("finish", is_complete)

    def _call(self, *call: Any) -> None:
        assert threading.current_thread() is not threading.main_thread()
        if self.failing == call[0]:
            raise self.error
        self.calls.append(call)


SAMPLES = [["a", "b", "c"]]


def log_with(logger: FakeLogger, directory: Path, patch: pytest.MonkeyPatch) -> None:
    """Run a session that logs a line and a validation with samples."""
    patch.setitem(loggers.LOGGERS, "fake", lambda: logger)
    run = directory / "run"
    run.mkdir(exist_ok=True)
    experiment = config(directory, "train.loggers=[fake]")
    metrics = MetricsLogger(run, experiment, 0)
    metrics.write({"step": 5, "loss": 2.0, "lr": 0.1})
    metrics.write({"step": 6, "valid_bleu": 7.0, "samples": SAMPLES})
    metrics.finish(is_complete=True)


def test_a_resumed_run_continues_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = FakeLogger()
    log_with(first, tmp_path, monkeypatch)
    calls = [
        ("scalars", 5, {"training/loss": 2.0, "training/lr": 0.1}),
        ("scalars", 6, {"validation/bleu": 7.0}),
        ("samples", 6, SAMPLES),
    ]
    assert first.calls == [("start", ""), *calls, ("finish", True)]
    second = FakeLogger()
    log_with(second, tmp_path, monkeypatch)
    assert second.calls == [("start", "fake-1"), *calls, ("finish", True)]


def test_a_new_logger_gets_the_metrics_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_with(FakeLogger(), tmp_path, monkeypatch)
    (tmp_path / "run/loggers.json").write_text('{"fake": "../../x"}')  # not an identifier
    later = FakeLogger()
    submit = loggers._LoggerThread.submit

    def submit_slowly(thread: Any, call: Any) -> None:
        """Submit a call, and wait until the logger has started."""
        submit(thread, call)
        while "fake-1" not in (tmp_path / "run/loggers.json").read_text():
            time.sleep(0.005)

    monkeypatch.setattr(loggers._LoggerThread, "submit", submit_slowly)
    log_with(later, tmp_path, monkeypatch)
    assert [call[:2] for call in later.calls[:4]] == [
        ("start", ""),
        ("scalars", 5),
        ("scalars", 6),
        ("samples", 6),
    ]
    assert len(later.calls) == 8


@pytest.mark.parametrize(
    ("failing", "logged"),
    [("start", []), ("scalars", ["start", "samples", "finish"]), ("finish", ["start"])],
)
def test_a_failing_logger_is_reported_once_and_training_continues(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    failing: str,
    logged: list[str],
) -> None:
    logger = FakeLogger(failing)
    log_with(logger, tmp_path, monkeypatch)
    (warning,) = capsys.readouterr().err.splitlines()
    assert warning == (
        "nmt: warning: fake fails: no route to host; training continues;"
        " hint: metrics.jsonl has all values"
    )
    assert [call[0] for call in logger.calls][: len(logged)] == logged
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("error", "reason"), [(SystemExit("no key"), "no key"), (TimeoutError(), "TimeoutError")]
)
def test_an_exit_and_an_error_without_a_message_are_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    reason: str,
) -> None:
    log_with(FakeLogger("start", error=error), tmp_path, monkeypatch)
    assert f"warning: fake fails: {reason}; training continues" in capsys.readouterr().err


def test_a_logger_that_hangs_does_not_delay_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loggers, "FINISH_SECONDS", 0.1)
    monkeypatch.setattr(loggers, "QUIET_SECONDS", 0.05)
    log_with(FakeLogger(hangs=True), tmp_path, monkeypatch)
    err = capsys.readouterr().err
    assert "waiting for fake; Ctrl-C ends this" in err
    assert "fake has not finished; its record is incomplete" in err


def test_a_logger_that_does_not_answer_is_reported_during_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(loggers, "SILENCE_SECONDS", 0.01)
    monkeypatch.setattr(loggers, "FINISH_SECONDS", 0.0)
    monkeypatch.setitem(loggers.LOGGERS, "fake", lambda: FakeLogger(hangs=True))
    metrics = MetricsLogger(tmp_path, config(tmp_path, "train.loggers=[fake]"), 0)
    err = ""
    deadline = time.monotonic() + 30
    while not err and time.monotonic() < deadline:
        time.sleep(0.01)
        err = capsys.readouterr().err
    assert "warning: fake has not answered for 0 s; training continues; hint: check" in err
    metrics.finish(is_complete=True)


def test_a_server_must_answer_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loggers, "CONNECT_SECONDS", 0.2)
    with loopback() as server:
        check_server(f"{server.url}/missing", "start it")  # any answer is one
    with pytest.raises(NMTError, match="no server answers at http://127") as caught:
        check_server(f"{server.url}/path?token=secret", "start it")  # closed
    assert "secret" not in caught.value.message
    assert caught.value.hint == "start it"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(NMTError, match="no server answers"):
            check_server(f"http://127.0.0.1:{port}", "start it")
    check_server("sqlite:///none/mlflow.db", "")


def test_a_silent_thread_keeps_the_output_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    with silent_thread():
        print("noise")
        other = threading.Thread(target=print, args=("result",))
        other.start()
        other.join()
    print("end")
    assert capsys.readouterr().out == "result\nend\n"


def test_only_the_main_rank_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logger = FakeLogger()
    monkeypatch.setitem(loggers.LOGGERS, "fake", lambda: logger)
    experiment = config(tmp_path, "train.loggers=[fake]")
    MetricsLogger(tmp_path, experiment, 0, is_main=False).finish(is_complete=True)
    assert logger.calls == []


def test_a_run_keeps_its_loggers(nmt: CommandLine) -> None:
    pytest.importorskip("tensorboard")
    twice = ["--tensorboard", "--log-to", "tensorboard"]
    nmt.train("runs/new", "files(train='text')", *twice, train__steps="1")
    path = nmt.directory / "runs/new/config.yaml"
    assert config_io.load(path).train.loggers == ("tensorboard",)
    nmt.run("train", "--run", "runs/new", "--resume")
    assert config_io.load(path).train.loggers == ("tensorboard",)
    nmt.run("train", "--run", "runs/new", "--resume", "--set", "train.loggers=[]")
    assert config_io.load(path).train.loggers == ()
    nmt("train", "--plan", "--log-to", "tensorboard").assert_fails(
        2, "--plan does not train: leave out --log-to"
    )


def test_invalid_loggers_are_rejected_before_any_work(bare: CommandLine) -> None:
    command = ["train", "--run", "runs/new"]
    bare(*command, "--log-to", "wandbb").assert_fails(
        2, "unknown logger 'wandbb'", "did you mean 'wandb'?"
    )
    bare(*command, "--log-to", "tensorboard(x=1)").assert_fails(
        2, "logger 'tensorboard' has no option 'x'"
    )
    bare(*command, "--log-to", "wandb(project=3)").assert_fails(2, "project must be")
    assert not (bare.directory / "runs").exists()


@pytest.mark.parametrize(
    ("name", "label", "module"),
    [
        ("tensorboard", "TensorBoard", "tensorboard"),
        ("wandb", "Weights & Biases", "wandb"),
        ("mlflow", "MLflow", "mlflow"),
        ("trackio", "Trackio", "trackio"),
    ],
)
def test_a_missing_package_is_reported(
    monkeypatch: pytest.MonkeyPatch, name: str, label: str, module: str
) -> None:
    monkeypatch.setitem(__import__("sys").modules, module, None)
    with pytest.raises(UsageError, match=f"{label} is not installed") as caught:
        parse_loggers([name])
    assert caught.value.hint == f"pip install 'nmtkit[{name}]'"
