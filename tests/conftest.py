from __future__ import annotations

import gc
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

# Imports PyTorch, which takes seconds; the main process of pytest-xdist runs no test.
if TYPE_CHECKING:
    from commandline import CommandLine

# New processes start faster with bytecode, and rewriting all assertions takes eight seconds.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# An example may take longer while the other worker is busy: no test is timed.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest tests, so that no worker waits for them at the end."""
    items.sort(key=lambda item: item.path.name != "test_experiments.py")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Exclude modules and tests from garbage collections, which would visit half a million objects
    each, and copy their pages in forks."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        # Python waits with a full collection until many objects are new, compared with the last
        # one. Without this one, the models of earlier tests fill the memory with gigabytes.
        gc.collect()


ALLOWED_SKIPS = re.compile(
    r"processor|GPU|shared corpora|needs the weights themselves|Windows-1252"
)
"""Reasons to skip a test that hold on a machine with everything installed."""


class StrictSkips:
    """Lets the run fail if a test was skipped for another reason: CI must not lose tests
    silently."""

    def __init__(self) -> None:
        self.unexpected: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Collect the reason of a skipped test."""
        self._collect(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Collect the reason of a skipped module."""
        self._collect(report)

    def _collect(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if (
            not report.skipped
            or hasattr(report, "wasxfail")
            or not isinstance(report.longrepr, tuple)
        ):
            return
        reason = report.longrepr[2]
        if not ALLOWED_SKIPS.search(reason):
            self.unexpected.add(f"{report.nodeid}: {reason}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Collect what a worker of pytest-xdist has found."""
        self.unexpected.update(getattr(node, "workeroutput", {}).get("unexpected_skips", []))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the tests to the main process of pytest-xdist, or set the exit status there."""
        if hasattr(session.config, "workeroutput"):
            session.config.workeroutput["unexpected_skips"] = sorted(self.unexpected)
        elif self.unexpected and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """List the tests."""
        for line in sorted(self.unexpected):
            terminalreporter.write_line(f"skipped, but must run: {line}", red=True)


def pytest_configure(config: pytest.Config) -> None:
    """Check the skipped tests of CI."""
    if os.environ.get("NMT_TEST_SKIPS") == "strict":
        config.pluginmanager.register(StrictSkips())


@pytest.fixture(scope="session", autouse=True)
def prepared_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prepare data in a temporary directory; the directories in it are named after fingerprints of
    their content."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NMT_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = (
        shutil.which("chromium")
        or shutil.which("chromium-browser")
        or shutil.which("google-chrome")
    )
    if chromium is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def few_repetitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fine-tuning in the test process ends with significance tests, and a plan measures updates,
    which would take a second each."""
    monkeypatch.setattr("nmt.training.fine_tuning.RESAMPLES", 20)
    monkeypatch.setattr("nmt.training.profiling.MAX_UPDATES", 3)


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with text.en, text.de and runs/tiny, with a trained model. Tests copy it."""
    from commandline import CommandLine, sentences, write

    nmt = CommandLine(tmp_path_factory.mktemp("pristine"))
    write(nmt.directory / "text", *sentences(400))
    assert nmt.train("runs/tiny").out.startswith("runs/tiny/step-0000")
    return nmt.directory


@pytest.fixture(scope="module")
def trained(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A copy for one module. Tests may add files but must not change existing ones."""
    from commandline import CommandLine

    return CommandLine(copy(pristine, tmp_path_factory.mktemp("trained")))


@pytest.fixture
def bare(tmp_path: Path) -> CommandLine:
    """An empty directory without a model."""
    from commandline import CommandLine

    return CommandLine(tmp_path)


@pytest.fixture
def nmt(pristine: Path, tmp_path: Path) -> CommandLine:
    """A copy for one test, which may change any file."""
    from commandline import CommandLine

    return CommandLine(copy(pristine, tmp_path / "here"))


def copy(directory: Path, target: Path) -> Path:
    return Path(shutil.copytree(directory, target, dirs_exist_ok=True))
