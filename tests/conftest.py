from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from commandline import CommandLine, sentences, write


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A folder with text.en, text.de and the trained model runs/tiny. Tests must not change these files."""
    nmt = CommandLine(tmp_path_factory.mktemp("trained"))
    write(nmt.folder / "text", *sentences(400))
    done = nmt.train("runs/tiny")
    assert done.code == 0, done.err
    assert done.out.startswith("runs/tiny/step-0000")
    return nmt


@pytest.fixture
def nmt(trained: CommandLine, tmp_path: Path) -> CommandLine:
    """A copy of the trained folder that tests may change."""
    folder = tmp_path / "here"
    shutil.copytree(trained.folder, folder)
    return CommandLine(folder)
