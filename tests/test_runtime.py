"""Precision `auto`: what is fastest is measured once, and remembered."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from nmt import runtime
from nmt.config import Config, ModelConfig
from nmt.errors import UsageError
from nmt.inference import native
from nmt.train.precision import training_dtype


@pytest.fixture(autouse=True)
def rates_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder of its own, as on a machine where nothing was measured yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(runtime, "MEASURE_SECONDS", 0.0)
    monkeypatch.setattr(runtime, "_measured", {})
    return tmp_path / "nmt" / "rates.json"


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(runtime, "_measured", {})


class Candidates:
    """Two computations that take a given time, and how often each was run."""

    def __init__(self, fp32: float, bf16: float) -> None:
        self.runs: dict[str, int] = {"fp32": 0, "bf16": 0}
        self.seconds = {"fp32": fp32, "bf16": bf16}

    def fastest(self, task: str = "a task", version: str = "1") -> str:
        return runtime.fastest(task, version, {name: self.run(name) for name in self.runs}, 1e6)

    def run(self, name: str) -> Callable[[], object]:
        def run() -> None:
            self.runs[name] += 1
            time.sleep(self.seconds[name])

        return run


def logged(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capsys.readouterr().err.splitlines() if "precision auto" in line]


@pytest.mark.parametrize(("fp32", "bf16", "wanted"), [(0.02, 0.001, "bf16"), (0.001, 0.02, "fp32")])
def test_the_fastest_is_chosen_and_logged_once(
    fp32: float, bf16: float, wanted: str, rates_file: Path, new_process: Callable[[], None],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    candidates = Candidates(fp32, bf16)
    assert candidates.fastest() == wanted
    (line,) = logged(capsys)
    assert line.startswith(f"nmt: precision auto: {wanted} is fastest here for a task (fp32 ")
    (rates,) = json.loads(rates_file.read_text()).values()
    assert max(rates, key=rates.get) == wanted
    runs = dict(candidates.runs)
    assert all(runs.values())
    new_process()
    assert candidates.fastest() == wanted
    assert candidates.runs == runs
    assert Candidates(bf16, fp32).fastest() == wanted  # remembered, not measured
    assert not logged(capsys)


def test_another_task_version_processor_or_number_of_threads_is_measured_again(
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
    monkeypatch.setattr(runtime, "cpu_name", lambda: "another processor")
    assert measured()
    assert not measured()
    assert len(json.loads(rates_file.read_text())) == 5


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff", b"[]", b"3", b"null", b'{"KEY": {}}', b'{"KEY": []}', b'{"KEY": {"fp32": 1}}',
        b'{"KEY": {"fp32": "a", "bf16": 2}}', b'{"KEY": {"fp32": NaN, "bf16": 2}}', b'{"KEY": {"int4": 1, "fp8": 2}}',
    ],
)  # fmt: skip
def test_a_damaged_file_is_replaced(content: bytes, rates_file: Path, new_process: Callable[[], None]) -> None:
    Candidates(0.0, 0.01).fastest()
    (key,) = json.loads(rates_file.read_text())
    rates_file.write_bytes(content.replace(b"KEY", key.encode()))
    new_process()
    assert Candidates(0.01, 0.0).fastest() == "bf16"
    assert list(json.loads(rates_file.read_text())) == [key]


def test_what_cannot_be_written_is_remembered_by_the_process(
    rates_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rates_file.parent.write_text("a file where the folder should be")
    assert [Candidates(0.01, 0.0).fastest() for _ in range(3)] == ["bf16"] * 3
    assert len(logged(capsys)) == 1


def test_without_a_home_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    assert Candidates(0.01, 0.0).fastest() == "bf16"


@pytest.mark.parametrize("fast", ["fp32", "bf16"])
def test_a_search_computes_in_what_the_engine_multiplies_fastest(fast: str, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_training_measures_without_drawing_random_numbers(
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
    ("precision", "device", "search", "message"),
    [
        ("fp64", "cpu", True, "unknown precision 'fp64'"),
        ("int8", "cpu", False, "unknown precision 'int8'"),
        ("fp16", "cpu", True, "fp16 needs a GPU"),
        ("int8", "cuda:0", True, "int8 needs a CPU"),
    ],
)
def test_a_precision_that_there_is_not(precision: str, device: str, search: bool, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        runtime.check_precision(precision, device, search=search)
    for known in ("auto", "fp32", "bf16"):
        runtime.check_precision(known, device, search=search)
