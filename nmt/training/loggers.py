"""Loggers of `train.loggers`, beside metrics.jsonl: TensorBoard, Weights & Biases, MLflow, Trackio.

Each runs in a thread of its own, so a slow server never delays training. If a logger fails or does
not answer, a warning is logged, and training continues. `RUN/loggers.json` has an identifier for
each logger, with which a resumed run continues its record on the server.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from nmt.core.config import Config, config_io
from nmt.core.console import log
from nmt.core.errors import NMTError, UsageError
from nmt.core.packages import require_package
from nmt.core.paths import append_line, write_json
from nmt.core.plugins import Components
from nmt.core.registry import parse, resolve
from nmt.core.untrusted_files import read_record, read_records

METRICS, LOGGER_IDS = "metrics.jsonl", "loggers.json"
SAMPLE_COLUMNS = ["source", "translation", "reference"]
FINISH_SECONDS = 60.0
"""Maximum time to wait for a logger at the end of a session."""
QUIET_SECONDS = 2.0
"""Waiting longer than this is announced."""
SILENCE_SECONDS = 20.0
"""A call of a logger that takes longer than this is reported."""
CONNECT_SECONDS = 10.0
"""Maximum time for the first answer of a server. The packages themselves retry for minutes."""
Samples = Sequence[Sequence[str]]
"""Source, translation and reference of each sample."""


@dataclass(frozen=True)
class RunRecord:
    """A run, for a logger that opens a record of it."""

    directory: Path
    step: int
    """The update at which the session starts."""
    options: dict[str, Any]
    """The config, with full names such as `model.dim`."""
    id: str
    """What `Logger.start` returned in an earlier session; empty for a new record."""

    @property
    def name(self) -> str:
        """The name of the run directory."""
        return self.directory.resolve().name

    def id_or_new(self) -> str:
        """Return the identifier, or a new one that no other run has."""
        return self.id or f"{self.name}-{uuid.uuid4().hex[:8]}"


class Logger(Protocol):
    """Sends a run to a tool or server. Any exception of a method, also SystemExit, only leads to a
    warning."""

    def start(self, run: RunRecord) -> str:
        """Open the record of a run, or continue that of an earlier session. Return its
        identifier."""
        ...

    def log_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Log values such as `training/loss` of an update."""
        ...

    def log_samples(self, step: int, samples: Samples) -> None:
        """Log sample translations of a validation."""
        ...

    def finish(self, *, is_complete: bool) -> None:
        """Send what is pending. A run that is not complete may be resumed later."""
        ...


class TensorBoard:
    """Events in `RUN/tensorboard`."""

    def __init__(self) -> None:
        require_package("TensorBoard", "tensorboard")
        # A part of PyTorch that needs the package.
        self._module = require_package("TensorBoard", "torch.utils.tensorboard")

    def start(self, run: RunRecord) -> str:
        """Open an event file; TensorBoard hides earlier events of updates that are repeated."""
        directory = run.directory / "tensorboard"
        self._writer = self._module.SummaryWriter(str(directory), purge_step=run.step + 1)
        rows = list(run.options.items())
        self._writer.add_text("config", _markdown_table(["option", "value"], rows), run.step)
        return directory.name

    def log_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Write scalars."""
        for name, value in scalars.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # otherwise a killed process loses minutes of events

    def log_samples(self, step: int, samples: Samples) -> None:
        """Write a table."""
        self._writer.add_text("samples", _markdown_table(SAMPLE_COLUMNS, samples), step)

    def finish(self, *, is_complete: bool) -> None:
        """Close the file."""
        self._writer.close()


OFFLINE_HINT = "WANDB_MODE=offline writes to RUN/wandb"


class WeightsAndBiases:
    """A run of Weights & Biases; WANDB_MODE=offline writes it to `RUN/wandb` for `wandb sync`."""

    def __init__(self, *, project: str = "nmt", entity: str = "", group: str = "") -> None:
        self._wandb = require_package("Weights & Biases", "wandb")
        self._place = {"project": project, "entity": entity or None, "group": group or None}

    def start(self, run: RunRecord) -> str:
        """Open or continue a run."""
        settings = self._wandb.Settings(
            console="off", silent=True, disable_git=True, save_code=False
        )
        shared_settings = self._wandb.setup(settings).settings
        if shared_settings.mode in ("online", "shared"):
            check_server(shared_settings.base_url, OFFLINE_HINT)
            # Otherwise `init` asks for a key in the terminal.
            if not self._wandb.login(prompt=False, verify=False):
                raise UsageError("there is no API key", f"wandb login; or {OFFLINE_HINT}")
        record_id = run.id_or_new()
        self._run = self._wandb.init(
            **self._place,
            id=record_id,
            name=run.name,
            resume="allow",
            dir=str(run.directory),
            settings=settings,
        )
        self._run.config.update(run.options, allow_val_change=True)
        # Its own step cannot decrease, as it may when a killed run is resumed.
        self._run.define_metric("*", step_metric="update")
        if not self._run.offline:
            log(f"wandb: {self._run.url}")
        return record_id

    def log_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Send scalars."""
        self._run.log({"update": step, **scalars})

    def log_samples(self, step: int, samples: Samples) -> None:
        """Send a table."""
        table = self._wandb.Table(columns=SAMPLE_COLUMNS, data=[list(sample) for sample in samples])
        self._run.log({"update": step, "samples": table})

    def finish(self, *, is_complete: bool) -> None:
        """Send what is pending."""
        self._run.finish(exit_code=0 if is_complete else 1)


class MLflow:
    """A run of an MLflow experiment."""

    def __init__(self, *, experiment: str = "nmt", uri: str = "") -> None:
        """Use a tracking server or database; empty: that of MLFLOW_TRACKING_URI, or MLflow's
        default."""
        self._mlflow = require_package("MLflow", "mlflow")
        logging.getLogger("mlflow").setLevel(logging.WARNING)  # it logs the tables of a database
        self._experiment = experiment
        self._uri = uri

    def start(self, run: RunRecord) -> str:
        """Open or continue a run."""
        uri = self._uri or self._mlflow.get_tracking_uri()
        check_server(uri, "start it with mlflow server, or set uri, such as sqlite:///mlflow.db")
        self._client = self._mlflow.MlflowClient(tracking_uri=uri)
        if run.id:
            self._id = run.id
            self._client.update_run(self._id, status="RUNNING")
            return self._id
        experiment = self._client.get_experiment_by_name(self._experiment)
        if experiment:
            experiment_id = experiment.experiment_id
        else:
            experiment_id = self._client.create_experiment(self._experiment)
        self._id = self._client.create_run(experiment_id, run_name=run.name).info.run_id
        parameter = self._mlflow.entities.Param
        parameters = [parameter(name, str(value)) for name, value in run.options.items()]
        self._client.log_batch(self._id, params=parameters)
        return str(self._id)

    def log_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Send scalars."""
        metric = self._mlflow.entities.Metric
        milliseconds = time.time_ns() // 1_000_000
        metrics = [metric(name, value, milliseconds, step) for name, value in scalars.items()]
        self._client.log_batch(self._id, metrics=metrics)

    def log_samples(self, step: int, samples: Samples) -> None:
        """Send a file with a table."""
        text = _markdown_table(SAMPLE_COLUMNS, samples)
        self._client.log_text(self._id, text, f"samples/step-{step:06d}.md")

    def finish(self, *, is_complete: bool) -> None:
        """Mark the run as finished, or as stopped."""
        self._client.set_terminated(self._id, "FINISHED" if is_complete else "KILLED")
        # MLflow keeps the connections to a database open.
        engine = getattr(self._client._tracking_client.store, "engine", None)
        if engine:
            engine.dispose()


class Trackio:
    """A run of Trackio, on this machine or on a Space of Hugging Face."""

    def __init__(self, *, project: str = "nmt", space_id: str = "") -> None:
        self._trackio = require_package("Trackio", "trackio")
        self._place = {"project": project, "space_id": space_id or None}

    def start(self, run: RunRecord) -> str:
        """Open or continue a run."""
        name = run.id_or_new()  # Trackio finds a run by its name
        if server := self._server():
            check_server(server, "write to this machine: no space_id, no TRACKIO_SERVER_URL")
        with silent_thread():
            self._run = self._trackio.init(
                **self._place, name=name, resume="allow", config=run.options, embed=False
            )
        return name

    def log_scalars(self, step: int, scalars: Mapping[str, float]) -> None:
        """Send scalars."""
        self._run.log(dict(scalars), step=step)

    def log_samples(self, step: int, samples: Samples) -> None:
        """Send a table."""
        table = self._trackio.Table(columns=SAMPLE_COLUMNS, data=[list(each) for each in samples])
        self._run.log({"samples": table}, step=step)

    def finish(self, *, is_complete: bool) -> None:
        """Send what is pending."""
        with silent_thread():
            self._run.finish()

    def _server(self) -> str:
        """Return the address of the server; empty if Trackio writes to this machine."""
        if self._place["space_id"] or os.environ.get("TRACKIO_SPACE_ID"):
            return os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
        return os.environ.get("TRACKIO_SERVER_URL", "")


def check_server(url: str, hint: str) -> None:
    """Check that a server answers, whatever its answer is. Other addresses, such as those of
    databases, are not checked.

    Raises:
        NMTError: it does not, with the hint.
    """
    if not url.startswith(("http://", "https://")):
        return
    import httpx  # slow to import

    try:
        # Nothing is sent, so the package may check the certificate, for which it has options.
        httpx.head(url, timeout=CONNECT_SECONDS, verify=False)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        host = url.partition("?")[0]  # without a token
        raise NMTError(f"no server answers at {host}: {error}", hint) from None


class _SilentThread:
    """stdout, except for what one thread prints."""

    def __init__(self) -> None:
        self._stdout = sys.stdout
        self._thread = threading.current_thread()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stdout, name)

    def write(self, text: str) -> int:
        """Write the text of another thread."""
        if threading.current_thread() is self._thread:
            return len(text)
        return self._stdout.write(text)


@contextlib.contextmanager
def silent_thread() -> Iterator[None]:
    """Discard what this thread prints, because stdout is for results. Other threads may print
    results meanwhile."""
    stdout = sys.stdout
    sys.stdout = silent = _SilentThread()
    try:
        yield
    finally:
        if sys.stdout is silent:
            sys.stdout = stdout


LOGGERS: Components[Callable[..., Logger]] = Components(
    "logger",
    {
        "tensorboard": TensorBoard,
        "wandb": WeightsAndBiases,
        "mlflow": MLflow,
        "trackio": Trackio,
    },
)


def parse_loggers(specs: Sequence[str]) -> dict[str, Logger]:
    """Return the loggers by their specs.

    Raises:
        ConfigError: a spec is invalid.
        UsageError: the package of a logger is not installed.
    """
    return {spec: resolve("logger", LOGGERS, spec)() for spec in specs}


class MetricsLogger:
    """Writes metrics.jsonl, and passes its lines to the loggers of a run."""

    def __init__(self, run: Path, config: Config, step: int, *, is_main: bool = True) -> None:
        """Open the log after update `step`, on the main rank with all loggers. A logger that is new
        to a run gets the lines of its metrics.jsonl."""
        self.run = run
        self._workers = []
        specs = config.train.loggers if is_main else ()
        options = {name: attrgetter(name)(config) for name in config_io.OPTION_TYPES}
        ids = _LoggerIds(run)
        for spec, logger in parse_loggers(specs).items():
            worker = _LoggerThread(parse(spec)[0], logger)
            record = RunRecord(run, step, options, ids.get(spec))
            worker.submit(partial(ids.start, spec, record))
            if not record.id:
                for values in read_records(run / METRICS):
                    worker.log(values)
            self._workers.append(worker)

    def write(self, values: dict[str, Any]) -> None:
        """Log the values of an update; `step` is its number."""
        append_line(self.run / METRICS, json.dumps(values))
        for worker in self._workers:
            worker.log(values)

    def finish(self, *, is_complete: bool) -> None:
        """Wait until the loggers have sent everything, but not for more than a minute."""
        for worker in self._workers:
            worker.submit(lambda logger: logger.finish(is_complete=is_complete))
            worker.submit(None)
        deadline = time.monotonic() + FINISH_SECONDS
        with contextlib.suppress(KeyboardInterrupt):
            for worker in self._workers:
                worker.wait(deadline)


class _LoggerIds:
    """The file `loggers.json`, which several threads change."""

    def __init__(self, run: Path) -> None:
        self._path = run / LOGGER_IDS
        self._lock = threading.Lock()
        self._ids = read_record(self._path)

    def get(self, spec: str) -> str:
        """Return the identifier of a logger; empty if there is none. It may become the name of a
        file."""
        saved = self._ids.get(spec)
        is_valid = isinstance(saved, str) and re.fullmatch(r"[\w.=+-]{1,300}", saved)
        return str(saved) if is_valid else ""

    def start(self, spec: str, run: RunRecord, logger: Logger) -> None:
        """Start a logger, and save the identifier of its record."""
        record_id = logger.start(run)
        with self._lock:
            self._ids[spec] = record_id
            write_json(self._path, self._ids)


class _LoggerThread:
    """Calls the methods of a logger in a thread."""

    def __init__(self, name: str, logger: Logger) -> None:
        self.name = name
        self._logger = logger
        self._calls: SimpleQueue[Callable[[Logger], None] | None] = SimpleQueue()
        self._has_warned = False
        # A daemon: a server that hangs must not keep the process alive.
        self._thread = threading.Thread(target=self._run, name=f"nmt-{self.name}", daemon=True)
        self._thread.start()

    def submit(self, call: Callable[[Logger], None] | None) -> None:
        """Call a function after the previous ones; None ends the thread."""
        self._calls.put(call)

    def log(self, values: Mapping[str, Any]) -> None:
        """Log a line of metrics.jsonl."""
        step = values.get("step")
        if not isinstance(step, int):
            return  # damaged
        scalars = _scalars(values)
        self.submit(lambda logger: logger.log_scalars(step, scalars))
        if samples := values.get("samples"):
            self.submit(lambda logger: logger.log_samples(step, samples))

    def wait(self, deadline: float) -> None:
        """Wait for the end of the thread."""
        self._thread.join(min(QUIET_SECONDS, max(0.0, deadline - time.monotonic())))
        if self._thread.is_alive():
            log(f"waiting for {self.name}; Ctrl-C ends this")
            self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            log(f"{self.name} has not finished; its record is incomplete")

    def _run(self) -> None:
        is_started = False
        while (call := self._calls.get()) is not None:
            silence = f"has not answered for {SILENCE_SECONDS:.0f} s", "check its server"
            watch = threading.Timer(SILENCE_SECONDS, self._warn, silence)
            watch.daemon = True
            watch.start()
            try:
                call(self._logger)
                is_started = True
            except (Exception, SystemExit) as error:  # of a network, a disk, or in a package
                self._warn_of_failure(error)
                if not is_started:
                    return
            finally:
                watch.cancel()

    def _warn_of_failure(self, error: BaseException) -> None:
        message = " ".join(str(error).split())[:300]
        reason = message or type(error).__name__
        hint = error.hint if isinstance(error, NMTError) else ""
        self._warn(f"fails: {reason}", hint)

    def _warn(self, problem: str, hint: str) -> None:
        """Log the first problem."""
        if self._has_warned:
            return
        self._has_warned = True
        hint = hint or f"{METRICS} has all values"
        log(f"warning: {self.name} {problem}; training continues; hint: {hint}")


def _scalars(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a line of metrics.jsonl, with the names that all loggers use."""
    scalars = {}
    for name, value in values.items():
        if not isinstance(value, int | float) or name == "step":
            continue
        is_validation = name.startswith("valid_") or name == "best_metric_value"
        group = "validation" if is_validation else "training"
        scalars[f"{group}/{name.removeprefix('valid_')}"] = value
    return scalars


def _markdown_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(_escape_cell, line)) + " |" for line in lines)


def _escape_cell(value: Any) -> str:
    return str(value).replace("|", "\\|")
