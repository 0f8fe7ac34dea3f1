from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commandline import CommandLine, sentences, write


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text.en, text.de and runs/tiny, trained through the command line; only to be copied."""
    nmt = CommandLine(tmp_path_factory.mktemp("pristine"))
    write(nmt.folder / "text", *sentences(400))
    done = nmt.train("runs/tiny")
    assert done.code == 0, done.err
    assert done.out.startswith("runs/tiny/step-0000")
    return nmt.folder


@pytest.fixture(scope="module")
def trained(pristine: Path, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """The trained folder of a module: a test may add files and must not change any."""
    return CommandLine(copy(pristine, tmp_path_factory.mktemp("trained")))


@pytest.fixture
def nmt(pristine: Path, tmp_path: Path) -> CommandLine:
    """A copy of the trained folder for one test, which may change anything."""
    return CommandLine(copy(pristine, tmp_path / "here"))


def copy(folder: Path, target: Path) -> Path:
    return Path(shutil.copytree(folder, target, dirs_exist_ok=True))
