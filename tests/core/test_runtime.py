"""Precision `auto`: the fastest precision is measured once and cached. Invalid precisions raise."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
import torch
from commandline import CommandLine, finish

from nmt.cli.doctor import doctor
from nmt.core import fastest, runtime, torchrun
from nmt.core.config import Config, ModelConfig
from nmt.core.errors import UsageError
from nmt.engines import native
from nmt.training.precision import training_dtype


@pytest.fixture(autouse=True)
def rates_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fastest, "MEASURE_SECONDS", 0.0)
    monkeypatch.setattr(fastest, "process_cache", {})
    return tmp_path / "nmt" / "rates.json"


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(fastest, "process_cache", {})


class Candidates:
    """Two functions with given run times, and the number of calls of each."""

    def __init__(self, fp32: float, bf16: float) -> None:
        self.runs: dict[str, int] = {"fp32": 0, "bf16": 0}
        self.seconds = {"fp32": fp32, "bf16": bf16}

    def fastest(self, task: str = "a task", version: str = "1") -> str:
        return fastest.select(task, version, [*self.runs], self.run, 1e6)

    def run(self, name: str) -> Callable[[], object]:
        def run() -> None:
            self.runs[name] += 1
            time.sleep(self.seconds[name])

        return run


def logged(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if "the fastest for" in line]


@pytest.mark.parametrize(
    ("fp32", "bf16", "expected"), [(0.02, 0.001, "bf16"), (0.001, 0.02, "fp32")]
)
def test_fastest_is_selected_and_logged_once(
    fp32: float,
    bf16: float,
    expected: str,
    rates_file: Path,
    new_process: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    candidates = Candidates(fp32, bf16)
    assert candidates.fastest() == expected
    (line,) = logged(capsys)
    assert line.startswith(f"nmt: the fastest for a task: {expected} (fp32 ")
    (rates,) = json.loads(rates_file.read_text()).values()
    assert max(rates, key=rates.get) == expected
    runs = dict(candidates.runs)
    assert all(runs.values())
    new_process()
    assert candidates.fastest() == expected
    assert candidates.runs == runs
    assert Candidates(bf16, fp32).fastest() == expected  # cached, not measured
    assert not logged(capsys)


def test_each_task_version_processor_and_thread_count_is_measured(
    rates_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    candidates = Candidates(0.0, 0.0)

    def measured(*arguments: str) -> bool:
        before = sum(candidates.runs.values())
        candidates.fastest(*arguments)
        return sum(candidates.runs.values()) > before

    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert measured()
    assert not measured()
    assert measured("another task")
    assert measured("a task", "2")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert measured()
    monkeypatch.setattr(fastest, "cpu_name", lambda: "another processor")
    assert measured()
    assert not measured()
    assert len(json.loads(rates_file.read_text())) == 5


def test_doctor_shows_the_rates_of_the_number_of_threads_in_use(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for num_threads in ("2", "1"):
        monkeypatch.setenv("OMP_NUM_THREADS", num_threads)
        Candidates(0.001, 0.0).fastest("a task", f"torch {metadata.version('torch')}")
    doctor()
    lines = capsys.readouterr().out.splitlines()
    assert sum("a task: bf16 (fp32 " in line for line in lines) == 1
    assert any(line.startswith("CPU ") and line.endswith(", 1 thread") for line in lines)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"3",
        b"null",
        b'{"KEY": {}}',
        b'{"KEY": []}',
        b'{"KEY": {"fp32": 1}}',
        b'{"KEY": {"fp32": "a", "bf16": 2}}',
        b'{"KEY": {"fp32": NaN, "bf16": 2}}',
        b'{"KEY": {"int4": 1, "fp8": 2}}',
    ],
)
def test_damaged_cache_file_is_replaced(
    content: bytes, rates_file: Path, new_process: Callable[[], None]
) -> None:
    Candidates(0.0, 0.01).fastest()
    (key,) = json.loads(rates_file.read_text())
    rates_file.write_bytes(content.replace(b"KEY", key.encode()))
    new_process()
    assert Candidates(0.01, 0.0).fastest() == "bf16"
    assert list(json.loads(rates_file.read_text())) == [key]


def test_unwritable_cache_directory_measures_once_per_process(
    rates_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates_file.parent.write_text("a file in place of the directory")
    assert [Candidates(0.01, 0.0).fastest() for _ in range(3)] == ["bf16"] * 3
    assert len(logged(capsys)) == 1


def test_without_home_directory_nothing_is_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert Candidates(0.01, 0.0).fastest() == "bf16"


@pytest.mark.parametrize("fast", ["fp32", "bf16"])
def test_native_engine_selects_its_fastest_precision(
    fast: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Matrix:
        def __init__(self, weight_OI: object, bias_O: object, precision: str) -> None:
            self.precision = precision

        def multiply(self, x_RI: object) -> None:
            time.sleep(0.0 if self.precision == fast else 0.01)

    monkeypatch.setattr(native, "Matrix", Matrix)
    assert native.fastest_precision(ModelConfig()) == fast


@pytest.fixture
def random_state() -> Iterator[torch.Tensor]:
    state = torch.get_rng_state()
    yield state
    torch.set_rng_state(state)


def test_training_measurement_keeps_the_random_state(
    random_state: torch.Tensor, capsys: pytest.CaptureFixture[str]
) -> None:
    cpu = torch.device("cpu")
    first = training_dtype("auto", cpu, Config())
    assert first in (torch.float32, torch.bfloat16)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert len(logged(capsys)) == 1
    assert training_dtype("auto", cpu, Config()) == first
    assert not logged(capsys)


@pytest.mark.parametrize(
    ("precision", "device", "inference", "message"),
    [
        ("fp64", "cpu", True, "unknown precision 'fp64'"),
        ("int8", "cpu", False, "unknown precision 'int8'"),
        ("fp16", "cpu", True, "fp16 needs a GPU"),
        ("int8", "cuda:0", True, "int8 needs a CPU"),
    ],
)
def test_unsupported_precision_raises(
    precision: str, device: str, inference: bool, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        runtime.check_precision(precision, device, inference=inference)
    for supported in ("auto", "fp32", "bf16"):
        runtime.check_precision(supported, device, inference=inference)


def measure() -> None:
    """Print whether the candidates run in this process."""
    candidates = Candidates(0.2, 0.2)
    candidates.fastest()
    print(candidates.runs["fp32"] > 0)


def test_concurrent_processes_measure_once(rates_file: Path, bare: CommandLine) -> None:
    processes = [bare.fork(main=measure) for _ in range(2)]
    outputs = [finish(process).check().out for process in processes]
    assert sorted(outputs) == ["False\n", "True\n"]
    assert len(json.loads(rates_file.read_text())) == 1


def test_one_module_reads_the_variables_of_torchrun() -> None:
    package = Path(runtime.__file__).parents[1]
    names = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
    readers = {
        path.name
        for path in package.rglob("*.py")
        if any(f'"{name}"' in path.read_text() for name in names)
    }
    assert readers == {"torchrun.py"}


def test_position_among_the_processes_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)
    assert torchrun.position() == (0, 1)
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(UsageError, match="WORLD_SIZE is 4, but torchrun did not start"):
        torchrun.position()
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        assert torchrun.position() == (rank, 4)
    monkeypatch.setenv("RANK", "4")
    with pytest.raises(UsageError, match="torchrun did not start"):
        torchrun.position()
