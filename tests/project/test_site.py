"""The documentation site builds without warnings, contains its generated pages and makes no
requests to other servers."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import nmt
from nmt.core import errors
from nmt.core.config import config_io
from pages import definition_line

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the built site."""
    directory = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "properdocs",
        "build",
        "--strict",
        "--quiet",
        "--site-dir",
        str(directory),
    ]
    build = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert build.returncode == 0, build.stdout + build.stderr
    return directory


def test_the_reference_lists_every_command_and_option(site: Path) -> None:
    commands = (site / "reference" / "cli" / "index.html").read_text(encoding="utf-8")
    for name in ("nmt train", "nmt data check", "nmt plot curves", "--time-limit"):
        assert name in commands
    options = (site / "reference" / "config" / "index.html").read_text(encoding="utf-8")
    assert [key for key in config_io.OPTION_TYPES if key not in options] == []


def test_the_reference_documents_the_public_api(site: Path) -> None:
    text = (site / "reference" / "api" / "index.html").read_text(encoding="utf-8")
    names = {f"nmt.{name}" for name in nmt.__all__ if name != "__version__"}
    for owner in (nmt.Guard, nmt.Line, nmt.Translation, nmt.Translator):
        members = {*vars(owner), *getattr(owner, "__annotations__", {})}
        names |= {f"nmt.{owner.__name__}.{name}" for name in members if name[0] != "_"}
    for name, value in vars(errors).items():
        is_error = inspect.isclass(value) and issubclass(value, errors.NMTError)
        if is_error and name not in nmt.__all__:
            names.add(f"nmt.core.errors.{name}")
    assert {name for name in names if f'id="{name}"' not in text} == set()


def test_links_outside_docs_point_to_the_repository(site: Path) -> None:
    text = (site / "guide" / "8-model" / "index.html").read_text(encoding="utf-8")
    line = definition_line(ROOT / "nmt" / "model" / "transformer.py", "DecoderLayer")
    assert f"/blob/main/nmt/model/transformer.py#L{line}" in text


def test_formulas_are_rendered(site: Path) -> None:
    for page in (ROOT / "docs" / "guide").glob("[0-9]*.md"):
        html = (site / "guide" / page.stem / "index.html").read_text(encoding="utf-8")
        assert html.count("<math") == html.count("</math>")
        assert "$" not in re.sub(r"<code.*?</code>|<script.*?</script>", "", html, flags=re.DOTALL)
    formula = (site / "guide" / "2-scoring-functions" / "index.html").read_text(encoding="utf-8")
    assert "<msqrt>" in formula


def test_pages_load_nothing_from_other_servers(site: Path, browser: Any) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(QuietHandler, directory=str(site)))
    url = f"http://127.0.0.1:{server.server_port}/"
    requests: list[str] = []
    errors: list[str] = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        page = browser.new_page(viewport={"width": 360, "height": 640})
        page.on("request", lambda request: requests.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        guide = [f"guide/{path.stem}/" for path in (ROOT / "docs" / "guide").glob("[0-9]*.md")]
        for name in ("", *guide, "reference/api/", "reference/config/", "404.html"):
            page.goto(url + name)
            page.evaluate(
                "for (const each of document.querySelectorAll('details')) each.open = true"
            )
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
        page.goto(f"{url}?q=subwords")  # opens the search
        page.wait_for_selector("#properdocs-search-results a")
        page.close()
    finally:
        server.shutdown()
        server.server_close()
    others = [each for each in requests if not each.startswith((url, "data:", "blob:"))]
    assert len(requests) > 10
    assert (others, errors) == ([], [])


class QuietHandler(SimpleHTTPRequestHandler):
    """A file server without a log."""

    def log_message(self, *arguments: Any) -> None:
        pass


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
