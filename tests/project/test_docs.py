"""The pages in docs agree with the program: commands, options, paths, packages and snippets."""

from __future__ import annotations

import ast
import dataclasses
import re
import tomllib
from pathlib import Path

import pytest
import torch
import typer
from test_cli import commands

import architecture
import screenshots
from nmt.cli import app
from nmt.core.config import config_io
from nmt.model.build import build_model, count_parameters
from pages import definition_line
from reference import modules

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CARDS = ROOT.glob("nmt/runs/pretrained/*/README.md")
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *CARDS])
COMMAND_PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("reference/*.md")])
ARCHITECTURE = DOCS / "architecture.md"


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def command_lines(page: Path) -> list[str]:
    """Return the nmt commands in a page's code blocks, without `nmt` and comments."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)
    return [
        re.split(r"\s+# ", line)[0]
        for block in blocks
        for line in re.findall(r"^(?:\$ )?nmt (.*)", block, re.M)
    ]


def python_snippets(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", read(page), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("name", [" ".join(words) for words in commands()])
def test_every_command_is_documented_with_an_example(name: str) -> None:
    lines = [line for page in COMMAND_PAGES for line in command_lines(page)]
    assert any(re.match(rf"{name}\b", line) for line in lines), (
        f"no page in docs/ has an example of nmt {name}"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_existing_files(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", read(page)):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_scripts_and_modules_in_the_documents_exist() -> None:
    for page in PAGES:
        for path in re.findall(
            r"(?<![\w/-])((?:scripts|nmt|configs|tests)/[\w./-]*\w)", read(page)
        ):
            assert (ROOT / path).exists() or "NAME" in path, f"{page.name}: {path}"


def test_commands_and_options_in_the_documents_exist() -> None:
    root = typer.main.get_command(app)
    for page in PAGES:
        for line in command_lines(page):
            words = line.split()
            if words[0].startswith("-") or words[0].isupper():  # nmt --help, nmt COMMAND --help
                continue
            command = root.get_command(None, words[0])
            if hasattr(command, "get_command"):
                command = command.get_command(None, words[1])
            assert command, f"{page.name}: nmt {line}"
            options = {name for parameter in command.params for name in parameter.opts} | {
                "--help",
                "-h",
            }
            for word in words:
                if re.fullmatch(r"--?[a-z][a-z-]*", word):
                    assert word in options, f"{page.name}: nmt {line}"


def test_config_keys_in_the_documents_exist() -> None:
    keys = set(config_io.OPTION_TYPES)
    for page in PAGES:
        text = read(page)
        for key in re.findall(r'--(?:set|grid) "?([\w.]+)=', text):
            assert key in keys, f"{page.name}: {key}"
        for key in re.findall(r"`((?:model|train|data|tokenizer)\.[a-z_0-9]+)[`=]", text):
            # Or a file.
            assert key in keys or key.endswith((".en", ".de", ".json", ".zip")), (
                f"{page.name}: {key}"
            )


def test_readme_fits_on_a_few_screens() -> None:
    readme = read(ROOT / "README.md")
    assert len(readme.splitlines()) <= 150
    assert "scripts/test.sh" in readme
    assert "scripts/quickstart.sh" in readme.split("## A five-minute tour")[0]


def test_architecture_lists_the_layers_that_import_linter_checks() -> None:
    rows = re.findall(r"^\| (\d+) \| `(\w+)` \|", read(ARCHITECTURE), re.MULTILINE)
    documented: dict[int, set[str]] = {}
    for layer, name in rows:
        documented.setdefault(int(layer), set()).add(name)
    config = tomllib.loads(read(ROOT / "pyproject.toml"))["tool"]["importlinter"]
    contract = config["contracts"][0]
    checked = [set(re.split(r"\s*[|:]\s*", layer)) for layer in contract["layers"]]
    assert [documented[layer] for layer in sorted(documented)] == checked


def test_the_picture_of_the_architecture_has_the_layers() -> None:
    picture = read(ROOT / "docs" / "figures" / "architecture.svg")
    assert picture == architecture.draw(architecture.layers())
    packages = {name for layer in architecture.layers() for name in layer}
    assert {name for name, _ in architecture.WAY} <= packages


def test_architecture_lists_every_package_and_top_level_module() -> None:
    documented = set(re.findall(r"^\| \d+ \| `(\w+)` \|", read(ARCHITECTURE), re.MULTILINE))
    packages = {path.parent.name for path in (ROOT / "nmt").glob("*/__init__.py")}
    files = {path.stem for path in (ROOT / "nmt").glob("*.py") if not path.stem.startswith("__")}
    assert documented == packages | files


def test_interfaces_and_tables_in_the_architecture_document_exist() -> None:
    text = read(ARCHITECTURE)
    source = "\n".join(read(path) for path in (ROOT / "nmt").rglob("*.py"))
    for owner, method in re.findall(r"`([A-Z]\w+)\.(\w+)`", text):
        body = re.search(rf"^class {owner}\b.*?(?=^\S|\Z)", source, re.MULTILINE | re.DOTALL)
        assert body, owner
        assert f"    def {method}(" in body[0], f"{owner}.{method}"
    for table in re.findall(r"`([A-Z_]{5,})`", text):
        assert re.search(rf"^{table}\b", source, re.MULTILINE), table
    for path in re.findall(r"`(nmt/[\w/]+(?:\.\w+)?)", text):
        assert (ROOT / path).exists(), path
    for row in re.findall(r"^\| .*`nmt/.*\| .*`[A-Z_]{5,}`.*", text, re.MULTILINE):
        directories = {ROOT / path.rpartition("/")[0] for path in re.findall(r"`(nmt/[\w/]+)", row)}
        tables = "\n".join(
            read(path) for directory in directories for path in directory.glob("*.py")
        )
        for table in re.findall(r"`([A-Z_]{5,})`", row):
            assert re.search(rf"^{table}\b", tables, re.MULTILINE), row


def test_links_to_functions_lead_to_definitions() -> None:
    for page in PAGES:
        links = re.findall(r"\[`([\w.]+)`\]\(([^)#]+\.py)#([^)]+)\)", read(page))
        for label, path, name in links:
            assert label == name
            assert definition_line((page.parent / path).resolve(), name), f"{page.name}: {name}"


GUIDE = sorted(DOCS.glob("guide/[0-9]*.md"))


@pytest.mark.parametrize("page", GUIDE, ids=lambda page: page.stem)
def test_a_page_of_the_guide_links_code_and_has_an_exercise(page: Path) -> None:
    text = read(page)
    paragraph = re.search(r"^In the code: .*?(?=\n\n)", text, re.MULTILINE | re.DOTALL)
    assert paragraph
    assert ".py#" in paragraph[0]
    exercise = text.partition("\n## Exercise\n")[2]
    question, expected = exercise.split("**Expected:**")
    assert "?" in question or "Compute" in question
    solution = re.search(r"<details markdown=\"1\">.*</details>", expected, re.DOTALL)
    assert solution
    assert "assert " in solution[0]  # test_snippets_run executes it


def test_parameter_counts_of_the_guide() -> None:
    """The table of the page on the model, and its claims about the vocabularies of the paper."""
    page = read(DOCS / "guide" / "8-model.md")
    rows = re.findall(
        r"^\| `(.*?)` \| ([\d,]+) \| (\d+) M \| .*?([\d,]+) to ([\d,]+) \|$", page, re.MULTILINE
    )
    assert [row[0] for row in rows] == ["wmt14-base", "wmt14-big"]
    for name, total, millions, *bounds in rows:
        assert num_parameters(name, 37_000) == int(total.replace(",", ""))
        lowest, highest = (int(bound.replace(",", "")) for bound in bounds)
        for vocab_size in (lowest, highest):
            assert round(num_parameters(name, vocab_size) / 1e6) == int(millions)
        for vocab_size in (lowest - 1, highest + 1):
            assert round(num_parameters(name, vocab_size) / 1e6) != int(millions)

    base_models: list[dict[str, int]] = [
        {"dim": 256},
        {"encoder_layers": 2, "decoder_layers": 2},
        {"encoder_layers": 4, "decoder_layers": 4},
        {"ffn_dim": 1024},
        {},
        {"encoder_layers": 8, "decoder_layers": 8},
        {"ffn_dim": 4096},
        {"dim": 1024},
    ]
    totals = [round(num_parameters("wmt14-base", 41_000, **each) / 1e6) for each in base_models]
    assert totals == [28, 36, 50, 53, 65, 80, 90, 168]


def num_parameters(name: str, vocab_size: int, **options: int) -> int:
    config = config_io.load(config_io.find(name), []).model
    with torch.device("meta"):
        return count_parameters(build_model(dataclasses.replace(config, **options), vocab_size))


def test_every_module_is_in_the_generated_reference() -> None:
    text = modules()
    for path in sorted((ROOT / "nmt").rglob("*.py")):
        assert f"({(Path('../..') / path.relative_to(ROOT)).as_posix()})" in text, path
        assert ast.get_docstring(ast.parse(read(path))), f"{path} has no docstring"


SNIPPETS = [
    pytest.param(snippet, id=f"{page.relative_to(ROOT)}-{index}")
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    # Those of export.md need exported models, and those of plugins.md are modules:
    # tests/export/test_export.py and tests/core/test_plugins.py run them.
    if page.name not in ("export.md", "plugins.md")
    for index, snippet in enumerate(python_snippets(page))
]


@pytest.mark.parametrize("snippet", SNIPPETS)
def test_snippets_run(snippet: str) -> None:
    exec(compile(snippet, "snippet", "exec"), {})


def test_scripts_make_every_screenshot() -> None:
    for name in screenshots.SCREENSHOTS:
        picture = DOCS / "figures" / f"{name}.png"
        assert picture.stat().st_size < 60_000
        assert any(f"figures/{name}.png" in read(page) for page in COMMAND_PAGES), name
