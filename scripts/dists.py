"""Write the source trees of both distributions. scripts/build_dists.sh builds them.

nmtkit-core is the package with the dependencies that `tool.nmtkit.core` in pyproject.toml names.
nmtkit has no files; it depends on nmtkit-core and on all other dependencies. A clone is neither of
them: `pip install .` there installs the package with all dependencies.
"""

from __future__ import annotations

import json
import runpy
import shutil
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CORE_FILES = ("nmt", "configs", "README.md", "LICENSE", ".gitignore")
CORE_EXTRA = "serve"
CORE_DESCRIPTION = "Neural machine translation on the command line, without training"
DEVELOPMENT_EXTRAS = ("dev", "docs")
Table = dict[str, Any]


def core_name(requirement: str, names: list[str]) -> str:
    """Return the name in `names` that a requirement starts with; empty if there is none."""
    return next((name for name in names if requirement.startswith(f"{name}>=")), "")


def core_project(source: Table) -> Table:
    """Return the content of pyproject.toml of nmtkit-core."""
    project, tool = source["project"], source["tool"]
    names = tool["nmtkit"]["core"]
    dependencies = [each for each in project["dependencies"] if core_name(each, names)]
    changes = {
        "name": "nmtkit-core",
        "description": CORE_DESCRIPTION,
        "dependencies": dependencies,
        "optional-dependencies": {CORE_EXTRA: project["optional-dependencies"][CORE_EXTRA]},
    }
    hatch = {"version": tool["hatch"]["version"], "build": dict(tool["hatch"]["build"])}
    hatch["build"]["hooks"] = {"custom": {}}
    return {
        "build-system": source["build-system"],
        "project": project | changes,
        "tool": {"hatch": hatch},
    }


def full_project(source: Table, version: str) -> Table:
    """Return the content of pyproject.toml of nmtkit."""
    project = source["project"]
    names = source["tool"]["nmtkit"]["core"]
    others = [each for each in project["dependencies"] if not core_name(each, names)]
    extras = {
        name: requirements
        for name, requirements in project["optional-dependencies"].items()
        if name not in DEVELOPMENT_EXTRAS
    }
    changes = {
        "version": version,
        "dynamic": [],
        "dependencies": [f"nmtkit-core=={version}", *others],
        "optional-dependencies": extras,
        "scripts": {},
    }
    wheel = {"bypass-selection": True}
    return {
        "build-system": source["build-system"],
        "project": project | changes,
        "tool": {"hatch": {"build": {"targets": {"wheel": wheel}}}},
    }


def toml(name: str, table: Table) -> str:
    """Return a table as TOML. Strings and lists of strings are the same in JSON."""
    tables = {key: value for key, value in table.items() if isinstance(value, dict)}
    values = {key: value for key, value in table.items() if key not in tables}
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]
    text = "\n".join([f"[{name}]", *lines, ""])
    return text + "".join(toml(f"{name}.{key}", value) for key, value in tables.items())


def write_project(directory: Path, project: Table) -> None:
    """Write pyproject.toml."""
    text = "\n".join(toml(name, table) for name, table in project.items())
    (directory / "pyproject.toml").write_text(text, encoding="utf-8")


def main() -> None:
    """Write the trees nmtkit-core and nmtkit into the directory of the first argument."""
    core, full = (Path(sys.argv[1], name) for name in ("nmtkit-core", "nmtkit"))
    source = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    version = runpy.run_path(str(ROOT / source["tool"]["hatch"]["version"]["path"]))["__version__"]
    ignore = shutil.ignore_patterns("__pycache__")
    for name in CORE_FILES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, core / name, ignore=ignore)
        else:
            core.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, core / name)
    shutil.copy(ROOT / "scripts" / "hatch_build.py", core)
    write_project(core, core_project(source))
    full.mkdir()
    for name in ("README.md", "LICENSE"):
        shutil.copy(ROOT / name, full)
    write_project(full, full_project(source, version))


if __name__ == "__main__":
    main()
