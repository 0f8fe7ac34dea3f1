"""Choice of the engine: the native engine does not import PyTorch; PyTorch is the fallback with
equal results."""

from __future__ import annotations

import functools
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tiny
from commandline import CommandLine, sentences, write

from nmt.engines import native
from nmt.training.session import train

compiled = pytest.mark.skipif(not native.is_available(), reason="no C compiler here")
SOURCE, TARGET = sentences(12)


@pytest.fixture(scope="module")
def shaw(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a model that the native engine does not support."""
    directory = tmp_path_factory.mktemp("shaw")
    config = tiny.config(
        directory, "model.position_encoding=shaw", "train.steps=1", "train.valid_every=1"
    )
    train(config, directory / "run", resume=False, device="cpu", precision="fp32")
    return directory / "run"


def in_a_process(code: str, *arguments: str | Path, cwd: Path | None = None) -> str:
    """Run code in a new interpreter; return what it prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# ---- what imports PyTorch

NO_PYTORCH = """
import atexit, os, sys
atexit.register(lambda: "torch" in sys.modules and os._exit(7))
"""
LIBRARY = """
import os, sys
before = dict(os.environ)
from nmt import Translator

def use(model, precision):
    translator = Translator.load(model, "cpu", precision)
    assert len(translator.translate(["im thirsty", ""])) == 2
    assert len(list(translator.n_best(["im thirsty"], "beam(beam_size=3, top_beams=2)"))[0]) == 2
    assert len(list(translator.score([("im thirsty", "ich habe durst")]))) == 1

native, unsupported = sys.argv[1:]
use(native, "auto")
print("torch" in sys.modules)
import torch
torch.set_num_threads(3)
use(unsupported, "auto")
for model in (native, unsupported):
    use(model, "fp32")
print(dict(os.environ) == before, torch.get_num_threads())
"""
COMMANDS = (
    "translate dog --model en-de",
    "translate dog",
    "translate dog --format jsonl --top-beams 2",
    "translate --input pair.en",
    "translate pair.en --document txt --output -",
    "translate dog --precision int8",
    "translate dog --constraint Hund --prefix Der",
    "translate dog --search sample",
    "translate dog --search mbr",
    "score --src pair.en --tgt pair.de",
)


@compiled
@pytest.mark.slow
def test_commands_that_translate_do_not_import_pytorch(trained: CommandLine) -> None:
    write(trained.directory / "pair", ["im thirsty"], ["ich habe durst"])
    first, last = sorted((trained.directory / "runs/tiny").glob("step-*"))
    commands = [[*command.split(), "--device", "cpu"] for command in COMMANDS]
    commands.append(["translate", "dog", "--model", str(first), "--model", str(last)])
    for done in trained.in_one_process(*commands, prelude=NO_PYTORCH):
        assert done.code == 0, done.err
        assert done.out


@pytest.mark.slow
def test_the_library_imports_pytorch_on_demand_and_changes_no_settings(shaw: Path) -> None:
    printed = in_a_process(LIBRARY, "en-de", shaw).splitlines()
    assert printed == [str(not native.is_available()), "True 3"]


# ---- what a library must not change


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the options are those of glibc")
def test_only_training_commands_tune_malloc() -> None:
    code = """
import numpy as np
from nmt import Translator
from nmt.cli import process_settings
Translator.load("en-de", "cpu").translate(["im thirsty"])
def in_heap():
    block = np.ones(2**27, np.uint8)  # by default, glibc uses mmap for blocks of more than 32 MB
    heap = next(line.split()[0].split("-") for line in open("/proc/self/maps") if "[heap]" in line)
    return int(heap[0], 16) <= block.ctypes.data < int(heap[1], 16)
print(in_heap())
process_settings.tune_malloc_for_training()
print(in_heap())
"""
    assert in_a_process(code).split() == ["False", "True"]


# ---- without the native engine


@compiled
@pytest.mark.parametrize(
    "options", [[], ["--beam-size", "1"], ["--top-beams", "3"], ["--prefix", "der alte"]]
)
def test_pytorch_translations_are_identical(trained: CommandLine, options: list[str]) -> None:
    command = ("translate", "--precision", "fp32", *options, *SOURCE)
    expected, actual = (
        trained(*command),
        CommandLine(trained.directory, {"NMT_ENGINE": "0"})(*command),
    )
    assert (expected.code, actual.code) == (0, 0), actual.err
    assert actual.out == expected.out
    assert len(set(expected.out.splitlines())) > 1


@compiled
def test_pytorch_scores_are_equal(trained: CommandLine, tmp_path: Path) -> None:
    write(tmp_path / "pairs", SOURCE, TARGET)
    command = ("score", "--src", tmp_path / "pairs.en", "--tgt", tmp_path / "pairs.de")
    expected, actual = (
        trained(*command),
        CommandLine(trained.directory, {"NMT_ENGINE": "0"})(*command),
    )
    assert (expected.code, actual.code) == (0, 0), actual.err
    assert [*map(float, actual.out.split())] == pytest.approx(
        [*map(float, expected.out.split())], abs=2e-3
    )


@pytest.mark.parametrize("precision", ["auto", "fp32", "bf16"])
def test_pytorch_supports_other_precisions(trained: CommandLine, precision: str) -> None:
    done = CommandLine(trained.directory, {"NMT_ENGINE": "0"}).run(
        "translate", "the dog", "--precision", precision
    )
    assert len(done.out.splitlines()) == 1


def test_int8_requires_the_native_engine(trained: CommandLine, shaw: Path) -> None:
    off = CommandLine(trained.directory, {"NMT_ENGINE": "0"})
    done = off("translate", "the dog", "--precision", "int8")
    done.assert_fails(2, "int8 needs the native engine: NMT_ENGINE=0", "hint: use --precision auto")
    if native.is_available():
        done = trained("translate", "ba be", "--model", shaw, "--precision", "int8")
        done.assert_fails(2, "int8 needs the native engine: it does not support this model")


@pytest.mark.slow
def test_missing_compiler_is_reported_once_and_only_if_it_is_needed(
    trained: CommandLine, shaw: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As in a process that has not loaded the engine yet.
    library = functools.cache(native.compiled_library.__wrapped__)
    monkeypatch.setattr(native, "compiled_library", library)
    home = {"CC": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path)}
    without = CommandLine(trained.directory, home)
    steps = sorted((trained.directory / "runs/tiny").glob("step-*"))
    models = [word for step in steps for word in ("--model", step)]
    unsupported = without("translate", "ba be", "--model", shaw)
    done = without("translate", "the dog", "the cat", *models)
    refused = without("translate", "the dog", "--precision", "int8")
    plain = without("translate", "the dog", "--precision", "fp32")
    line = (
        "nmt: the native engine is not available (C compiler 'no-such-compiler' not found); using"
        " PyTorch"
    )
    assert (unsupported.code, unsupported.err) == (0, "")
    assert done.code == 0
    assert len(re.findall(re.escape(line), done.err)) == 1
    refused.assert_fails(2, "C compiler 'no-such-compiler' not found")
    monkeypatch.undo()
    assert plain.out == trained("translate", "the dog", "--precision", "fp32").out
