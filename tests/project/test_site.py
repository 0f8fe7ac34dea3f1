"""The documentation site builds without warnings and contains its generated pages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.core.config import config_io

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the built site."""
    directory = tmp_path_factory.mktemp("site")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(directory),
    ]
    build = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert build.returncode == 0, build.stdout + build.stderr
    return directory


def test_the_reference_lists_every_command_and_option(site: Path) -> None:
    commands = (site / "reference" / "cli" / "index.html").read_text(encoding="utf-8")
    for name in ("nmt train", "nmt data check", "nmt plot curves", "--time-limit"):
        assert name in commands
    options = (site / "reference" / "config" / "index.html").read_text(encoding="utf-8")
    assert [key for key in config_io.OPTION_TYPES if key not in options] == []


def test_the_reference_documents_the_public_classes(site: Path) -> None:
    text = (site / "reference" / "api" / "index.html").read_text(encoding="utf-8")
    for name in ("nmt.Translator", "nmt.Translator.load", "nmt.Line", "nmt.Translation"):
        assert f'id="{name}"' in text


def test_links_outside_docs_point_to_the_repository(site: Path) -> None:
    text = (site / "guide" / "7-model" / "index.html").read_text(encoding="utf-8")
    assert "/blob/main/nmt/model/transformer.py" in text


def test_every_page_is_in_the_navigation(site: Path) -> None:
    menu = (site / "index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        path = page.relative_to(ROOT / "docs").with_suffix("")
        url = path.parent if path.name == "index" else path
        assert f'href="{url.as_posix()}/"' in menu or url == Path(), page
    assert 'href="reference/modules/"' in menu


def test_the_navigation_has_its_sections(site: Path) -> None:
    menu = (site / "index.html").read_text(encoding="utf-8")
    for section in ("Tutorial", "Guide", "How-to", "Reference", "Background"):
        assert re.search(rf">\s*{section}\s*<", menu), section
