"""The documents mention every command, and their links, commands and options exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer

from nmt.cli import app
from nmt.config import config_io

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


def commands() -> list[tuple[str, str]]:
    """Return the full name and help text of each command."""
    root = typer.main.get_command(app)
    found = []
    for name, command in sorted(root.commands.items()):  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += (
            [(f"{name} {sub}", c.help or "") for sub, c in inner.items()] if inner else [(name, command.help or "")]
        )
    return found


@pytest.mark.parametrize(("name", "text"), commands(), ids=[name for name, _ in commands()])
def test_every_command_is_documented_with_an_example(name: str, text: str) -> None:
    assert f"nmt {name}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "Example" in text
    assert f"nmt {name}" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_exist(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_commands_in_the_documents_exist() -> None:
    known = {name.split()[0] for name, _ in commands()}
    for page in PAGES:
        for line in re.findall(r"^(?:\$ )?nmt (\w+)", page.read_text(encoding="utf-8"), re.MULTILINE):
            assert line in known, f"{page.name}: nmt {line}"


def test_options_in_the_documents_exist() -> None:
    known = set(config_io.keys())
    for page in PAGES:
        for key in re.findall(r'--set "?([\w.]+)=', page.read_text(encoding="utf-8")):
            assert key in known or key == "a.b", f"{page.name}: {key}"


def test_no_page_has_placeholders() -> None:
    for page in PAGES:
        assert "@@" not in page.read_text(encoding="utf-8"), page.name


def test_every_module_is_in_the_architecture_document() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for path in sorted((ROOT / "nmt").rglob("*.py")):
        parts = path.relative_to(ROOT / "nmt").parts
        if (parts[0] in ("cli", "data") and len(parts) > 2) or path.name in ("__init__.py", "__main__.py"):
            continue
        name = path.name if parts[0] != "cli" else "cli/"
        assert name in text, path
