from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

if TYPE_CHECKING:  # imports PyTorch, which takes seconds; the main process of pytest-xdist runs no test
    from commandline import CommandLine

# An example may take longer while the other worker is busy: no test is timed.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest tests, so that no worker waits for them at the end."""
    items.sort(key=lambda item: item.path.name != "test_experiments.py")


@pytest.fixture(scope="session", autouse=True)
def prepared_data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Prepare data in a temporary directory; the directories in it are named after fingerprints of their content."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NMT_DATA", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("needs Chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fine-tuning in the test process ends with significance tests, which would take a second each."""
    monkeypatch.setattr("nmt.train.fine_tuning.RESAMPLES", 100)


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
