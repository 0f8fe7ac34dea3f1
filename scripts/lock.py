"""Write the lock files: pip resolves pyproject.toml without installing anything, and the answer is noted down.

Call it through scripts/lock.sh, which sees to the environment.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ("hatchling", "editables")  # installing nmt itself needs them, pinned like the rest
# torch's wheel for Linux asks for these; pip adds them where that wheel is installed, and nowhere else.
CUDA = re.compile(r"(nvidia|cuda|triton)\b")

RUNTIME = """\
# The exact versions nmt is tested with. Written by scripts/lock.sh from the ranges in pyproject.toml.
# Install with dependencies (no --no-deps): CUDA packages are left out here, since the torch wheel of each platform
# asks for its own. No hashes for the same reason: which torch wheel is picked up depends on the machine.
"""
DEV = """\
# What the tests need on top. Written by scripts/lock.sh from the extra "dev" in pyproject.toml.
-r requirements.lock
"""


def resolve(*arguments: str) -> dict[str, str]:
    """Ask pip which versions it would install into an empty environment: normalized name to version."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet"]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        subprocess.run([*command, "--report", str(report), *arguments], cwd=ROOT, check=True)
        items = json.loads(report.read_text(encoding="utf-8"))["install"]
    return pins((item["metadata"]["name"], item["metadata"]["version"]) for item in items)


def pins(packages: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Keep what holds on every machine: no CUDA packages, no `+cpu` behind a version, not nmt itself."""
    named = {re.sub(r"[-_.]+", "-", name).lower(): version.partition("+")[0] for name, version in packages}
    return {name: named[name] for name in sorted(named) if name != "nmtkit" and not CUDA.match(name)}


def write(name: str, header: str, versions: dict[str, str]) -> None:
    """Write one lock file, a line for each package."""
    lines = [f"{package}=={version}\n" for package, version in versions.items()]
    (ROOT / name).write_text(header + "".join(lines), encoding="utf-8")


def main() -> None:
    """Resolve what runs, then what tests it under the same pins."""
    further = sys.argv[1:]
    runtime = resolve(".", *BUILD, *further)
    write("requirements.lock", RUNTIME, runtime)
    everything = resolve(".[dev]", "-c", "requirements.lock", *further)
    write("requirements-dev.lock", DEV, {name: v for name, v in everything.items() if name not in runtime})


if __name__ == "__main__":
    main()
