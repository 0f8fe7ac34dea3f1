"""Build hook of nmtkit-core: with NMT_BUILD_ENGINES=1, the wheel contains the compiled engine.

Without it, the wheel is for every platform, and the engine is compiled on first use.
"""

from __future__ import annotations

import os
import platform
import re
import runpy
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

OLDEST_GLIBC = 17
"""Version 2.17 is the oldest one that platform tags of wheels name."""
OLDEST_MACOS = "11.0"


def platform_tag(libraries: list[Path]) -> str:
    """Return the tag of the platforms whose C library has all symbols that the libraries need."""
    machine = platform.machine()
    if sys.platform == "darwin":
        return f"macosx_{OLDEST_MACOS.replace('.', '_')}_{machine}"
    versions = [OLDEST_GLIBC]
    for library in libraries:
        versions += map(int, re.findall(rb"\0GLIBC_2\.(\d+)", library.read_bytes()))
    return f"manylinux_2_{max(versions)}_{machine}"


class EngineHook(BuildHookInterface[Any]):
    """Compiles the engine for the processors of `engine_builds.BUILDS`."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the libraries to a wheel."""
        if self.target_name != "wheel" or os.environ.get("NMT_BUILD_ENGINES") != "1":
            return
        engines = Path(self.root, "nmt", "engines")
        builds = runpy.run_path(str(engines / "engine_builds.py"))
        self.work = tempfile.TemporaryDirectory()
        compiler = shlex.split(os.environ.get("CC", "")) or ["cc"]
        os.environ.setdefault("MACOSX_DEPLOYMENT_TARGET", OLDEST_MACOS)

        def compile_engine(build: Any) -> Path:
            library = Path(self.work.name, build.filename)
            flags = f"{builds['FLAGS']} {build.options}".split()
            files = [str(engines / "engine.c"), "-o", str(library), "-lm"]
            subprocess.run([compiler[0], *flags, *compiler[1:], *files], check=True)
            return library

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            libraries = list(threads.map(compile_engine, builds["BUILDS"][platform.machine()]))
        for library in libraries:
            build_data["force_include"][str(library)] = f"nmt/engines/{library.name}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(libraries)}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact: str) -> None:
        """Remove the compiled libraries."""
        if hasattr(self, "work"):
            self.work.cleanup()
