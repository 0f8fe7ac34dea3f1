"""The command line: help, exit codes, output streams, configs and usage errors."""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import sacrebleu
import typer
from commandline import CommandLine, finish, write

import nmt.cli as nmt_cli
from nmt.cli import app, help_layout
from nmt.cli.duration import parse_duration
from nmt.core.config import Config, config_io
from nmt.core.errors import UsageError
from nmt.jobs import process_settings

SLOW = ("torch", "sacrebleu", "pyarrow", "pandas")
HEAVY = (*SLOW, "sentencepiece", "httpx", "numpy", "starlette", "uvicorn")
"""Modules that take 0.1 to several seconds to import."""


def commands() -> list[list[str]]:
    root = typer.main.get_command(app)
    names: list[list[str]] = []
    for name in root.list_commands(None):
        subcommands = getattr(root.get_command(None, name), "commands", {})
        names += [[name, sub] for sub in subcommands] or [[name]]
    return names


# ---- help and import time


@pytest.mark.parametrize("command", commands(), ids=" ".join)
def test_every_command_has_help_with_an_example(command: list[str], bare: CommandLine) -> None:
    done = bare.run(*command, "--help")
    assert done.err == ""
    assert "Example" in done.out
    assert f"nmt {' '.join(command)}" in done.out.split("Example")[1]


@pytest.mark.parametrize("columns", [80, 60])
def test_a_long_example_continues_with_an_option_in_the_next_line(
    columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    commands = [
        "nmt train --config tatoeba --run runs/a --set \"data.train=files(train='my --corpus')\"",
        "nmt train --resume",
    ]
    command = SimpleNamespace(help="\n".join(["Train.\n\nExamples:", *commands]), params=[])
    command.help = command.help.replace("\nnmt", "\n  nmt")
    help_layout.prepare(command)
    lines = command.help.split("Examples:\n")[1].split("\n")
    assert len(lines) == 3
    assert max(map(len, lines)) <= columns - 2  # the margins
    assert lines[1].split()[0].startswith("--")
    joined = "\n".join(lines).replace("\\\n", "")
    assert shlex.split(joined) == shlex.split("\n".join(commands))


def test_a_terminal_of_a_few_columns_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "5")
    command = SimpleNamespace(help="Train.\n\nExamples:\n  nmt train --resume", params=[])
    help_layout.prepare(command)
    assert command.help.split("Examples:\n")[1].split() == ["nmt", "train", "\\", "--resume"]


def test_help_fits_into_80_columns(bare: CommandLine) -> None:
    bare.environment["COLUMNS"] = "80"
    serve = bare.run("serve", "--help").out
    assert max(map(len, serve.splitlines())) == 80
    for hidden in ("range", "<str>", "<bool>", "list["):
        assert hidden not in serve.split("Options")[1].split("--help")[0]
    # A pair of flags would need a column.
    assert "--no-confidence" in serve
    assert "--confidence" not in serve
    assert re.search(r"--port +(0-65535|\[0-65535\]) +Port to listen", serve)
    # A line of a paragraph is as long as the next word allows.
    text = bare.run("train", "--help").out.split("Examples:")[0]
    for paragraph in re.split(r"\n\s*\n", text.partition("[OPTIONS]")[2]):
        lines = paragraph.strip("\n").split("\n")
        for line, following in itertools.pairwise(lines):
            next_word = following.split()[0]
            assert len(f"{line.rstrip()} {next_word}") > 78


def test_examples_are_indented_and_arguments_have_no_type(bare: CommandLine) -> None:
    encode = bare.run("tokenizer", "encode", "--help").out
    assert re.search("^ Examples: *\n   nmt tokenizer encode ", encode, re.MULTILINE)
    assert re.search("model +Model file", encode)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("compare --resamples 1.5 a b", "'1.5' is not a valid whole number"),
        ("translate --beam-size abc hi", "'abc' is not a valid whole number"),
        ("data filter --keep abc a b", "'abc' is not a valid number"),
    ],
)
def test_errors_name_no_type_of_python(command: str, name: str, bare: CommandLine) -> None:
    done = bare(*command.split())
    assert done.code == 2
    assert name in done.err


COMPLETIONS = """
import contextlib, os, sys
from nmt.cli import main
requests, sys.argv = sys.argv[1:], ["nmt"]
for words in requests:
    os.environ |= {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    with contextlib.suppress(SystemExit):
        main()
    print(end="\\f")
sys.stderr.write(" ".join({"torch"} & {*sys.modules}))
"""
"""Prints what Bash completes the last word of each request with."""


def test_the_shell_completes_values(trained: CommandLine) -> None:
    expected = {
        "nmt export en-de --to s": ["safetensors"],
        "nmt translate --to ": ["de", "en"],
        "nmt translate --model en": ["en-de"],
        "nmt translate -m runs/": ["runs/tiny"],
        "nmt train --init-from Helsinki-NLP/opus-mt-de": ["Helsinki-NLP/opus-mt-de-en"],
        "nmt train --config multi": ["multi30k-small", "multi30k"],
        "nmt train --set model.ffn": ["model.ffn_dim="],
        "nmt evaluate --model nothing": [],
        "nmt data download tato": ["tatoeba"],
        "nmt evaluate --metric ch": ["chrf"],
        "nmt translate --engine ": ["nmt", "ctranslate2"],
        "nmt translate --precision i": ["int8"],
        "nmt train --precision i": [],
        "nmt compare runs/tiny en": ["en-de"],
        "nmt config multi": ["multi30k-small", "multi30k"],
    }
    nmt = CommandLine(trained.directory, {"_NMT_COMPLETE": "complete_bash"})
    done = nmt.process(*expected, program=("-c", COMPLETIONS))
    assert done.err == ""
    completed = [part.split() for part in done.out.split("\f")[:-1]]
    assert dict(zip(expected, completed, strict=True)) == expected


def test_formats_are_those_of_exports() -> None:
    from nmt.cli.completion import FORMATS
    from nmt.export import EXPORTS

    assert sorted(EXPORTS) == [*FORMATS]


def test_nmt_without_command_shows_help(bare: CommandLine) -> None:
    without_command, with_help = bare(), bare("--help")
    assert (without_command.code, with_help.code) == (2, 0)
    for name in {command[0] for command in commands()}:
        assert name in without_command.out
        assert name in with_help.out
    assert bare("--version").out.startswith("nmt ")


@pytest.mark.parametrize(
    ("unused", "commands"),
    [
        (
            HEAVY,
            [
                "--help",
                "translate --help",
                "train --set model.dimm=1",
                "config",
                "config --options",
            ],
        ),
        (
            SLOW,
            ["data list", "models", "info en-de", "tokenizer train text.en --vocab-size 300"],
        ),
    ],
    ids=["heavy", "slow"],
)
def test_fast_commands_do_not_import_slow_modules(
    unused: tuple[str, ...], commands: list[str], bare: CommandLine
) -> None:
    (bare.directory / "text.en").write_text("the quick brown fox jumps over the lazy dog\n" * 3)
    prelude = (  # an import raises ImportError
        f"import sys; sys.modules.update(dict.fromkeys({unused}))\n"
    )
    done = bare.in_one_process(*map(str.split, commands), prelude=prelude)
    assert [each.code for each in done] == [
        2 if "dimm" in command else 0 for command in commands
    ], done
    assert [each.err.count("unknown key") for each in done] == [
        "dimm" in command for command in commands
    ]


def test_public_classes_are_listed_before_they_are_imported() -> None:
    code = (
        "import sys, nmt; print({*nmt.__all__} <= {*dir(nmt)}, 'torch' in sys.modules,"
        " nmt.Guard.__name__)"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "True False Guard\n"


@pytest.mark.parametrize(
    ("command", "trains"),
    [("train", True), ("sweep", False), ("translate", False)],
)
def test_commands_set_process_settings(
    command: str, trains: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [*process_settings.DEFAULTS]
    for name in names:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(names[0], "7")  # variables that are set already are kept
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    code = (
        f"import atexit, os, sys; sys.argv = ['nmt', '{command}', '--help']\nfrom nmt.cli import"
        " process_settings\nprocess_settings.tune_malloc_for_training = lambda: print('malloc',"
        f" file=sys.stderr)\natexit.register(lambda: print(*(os.environ[name] for name in {names}),"
        " os.environ.get('OPENBLAS_NUM_THREADS'), file=sys.stderr))\n"
        "from nmt.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stderr.split() == [
        *(["malloc"] if trains else []),
        "7",
        *[*process_settings.DEFAULTS.values()][1:],
        "1" if command == "translate" and platform.machine() == "x86_64" else "None",
    ]


@pytest.mark.slow
def test_commands_import_what_they_need(nmt: CommandLine) -> None:
    """Other tests run commands in the test process, which may have imported the modules that a
    command needs. Here each runs in a fork without the modules of nmt."""
    commands = [
        "tokenizer encode runs/tiny/spm.model dog",
        "score --src few.en --tgt few.de",
        "evaluate --bleu --chrf --ter --src few.en --ref few.de",
        "compare runs/tiny/step-000010 runs/tiny/step-000020 --resamples 100",
        "average runs/tiny --last 2",
        "export runs/tiny --to safetensors",
        "export runs/tiny --to ctranslate2",
        "info runs/tiny",
        "attention dog -o attention.html",
        "plot curves runs/tiny -o curves.svg",
    ]
    for package in ("ctranslate2", "matplotlib"):
        pytest.importorskip(package)
    write(nmt.directory / "few", ["the dog"], ["der Hund"])
    for command in commands:
        (done,) = nmt.in_one_fork(command.split())
        done.check()


# ---- usage errors: one line, a hint, exit code 2


@pytest.mark.parametrize("command", ["export", "info", "average", "compare"])
def test_commands_whose_model_is_an_argument_say_so(bare: CommandLine, command: str) -> None:
    for option in ("--model", "-m"):
        hint = f"pass the model without an option: nmt {command} MODEL"
        bare(command, option, "en-de").assert_fails(2, f"No such option: {option}", hint)
    bare(command, "--modle", "en-de").assert_fails(2, f"run nmt {command} --help")


@pytest.mark.parametrize("text", ["-----", "- He said so.", "-No, thanks", "--- and then", "-.-="])
def test_a_text_that_starts_with_a_hyphen_goes_behind_two(bare: CommandLine, text: str) -> None:
    hint = "hint: write -- before a text that starts with a hyphen: "
    for command in ("translate", "attention", "tokenizer encode MODEL"):
        working = f"nmt {command} -- {shlex.quote(text)}\n"
        bare(*command.split(), text).assert_fails(2, "No such option: -", hint + working)
    bare("evaluate", text).assert_fails(2, "hint: run nmt evaluate --help")


def test_an_unknown_option_of_a_word_is_not_a_text(bare: CommandLine) -> None:
    for option in ("--beem", "--beem=3 4", "-z"):
        bare("translate", option, "-- a dog").assert_fails(2, "hint: run nmt translate --help")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--bogus", "No such option: --bogus"),
        ("tran", "No such command 'tran'. Did you mean 'train', 'translate'?"),
        ("data lsit", "Did you mean 'list'?"),
        ("data download", "Missing argument 'name'"),
        ("config one two", "unexpected extra argument"),
        ("translate --beem 3 hi", "No such option: --beem"),
        ("translate --beam-siz 3 hi", "--beam-size"),
        ("translate --beam-size", "'--beam-size' requires an argument"),
        ("translate --beam-size many hi", "Invalid value for '--beam-size'"),
        (
            "translate --encoding-errors ignore hi",
            "--encoding-errors must be strict or replace, got 'ignore'",
        ),
        ("translate --input a.en hi", "pass either sentences or --input"),
        ("evaluate --src a.en", "--src and --ref must be used together"),
        ("evaluate --ref a.de", "--src and --ref must be used together"),
        ("evaluate --src a.en --ref a.de --test wmt14", "or --test"),
        ("train --time-limit nonsense", "invalid --time-limit 'nonsense'"),
        ("train --time-limit -5", "invalid --time-limit '-5'"),
        ("train --config nope", "config nope does not exist"),
        ("evaluate --resamples 1", "--resamples must be 0 or at least 100, got 1"),
        ("train --config directory", "config directory is a directory, not a config file"),
        ("train --config double.yaml", "config double.yaml, line 3: duplicate key 'dim'"),
        ("train --config broken.yaml", "config broken.yaml, line 2: expected"),
        ("train --config latin.yaml", "config latin.yaml is not UTF-8 (byte 2)"),
        ("train --config keys.yaml", "config keys.yaml, line 1: a key must be a string"),
        ("train --config date.yaml", "config date.yaml: not valid YAML"),
        ("train --config no.yaml", "data.src: expected text, got False"),
        ("train --set model.dim=1.5", "model.dim: expected an integer, got 1.5"),
        ("train --set model.dim=yes", "model.dim: expected an integer, got True"),
        ("train --set seed=2001-13-45", "cannot read the value of --set seed=2001-13-45"),
        ("train --set modell.dim=3", "did you mean 'model.dim'?"),
        ("train --set model.heads=5", "model.dim (192) must be a multiple of model.heads (5)"),
        ("train --set train.clip_norm=nan", "train.clip_norm must be at least 0, got nan"),
        ("train --set tokenizer.model_type=bqe", "did you mean 'bpe'?"),
        (
            "train --set data.temperature=5",
            "data.temperature has no effect: there is a single corpus",
        ),
        (
            "train --set data.general_test=wmt14",
            "data.general_test has no effect: there is no start model",
        ),
        (
            "train --set tokenizer.model=a --set tokenizer.vocab_size=400",
            "tokenizer.vocab_size has no effect",
        ),
        ("config --set a.b=c", "unknown key a.b"),
        ("config --set train.schedule=stairs", "unknown schedule 'stairs'"),
        ("config --set data.temperature=5", "data.temperature has no effect"),
        ("summary --set train.schedule=stairs", "unknown schedule 'stairs'"),
        ("summary --set data.temperature=5", "data.temperature has no effect"),
        ("tokenizer train text.en --model-type bqe", "did you mean 'bpe'?"),
        (
            "tokenizer train text.en --vocab-size 1048577",
            "--vocab-size must be between 1 and 1048576, got 1048577",
        ),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(
    arguments: str, message: str, bare: CommandLine
) -> None:
    (bare.directory / "directory").mkdir(exist_ok=True)
    for name, text in {
        "double": b"model:\n  dim: 8\n  dim: 16\n",
        "broken": b"seed: [1\n",
        "latin": b"a\xff: 1\n",
        "keys": b"[a, b]: 1\n",
        "date": b"seed: 2001-13-45\n",
        "no": b"data:\n  src: no\n",
    }.items():
        (bare.directory / f"{name}.yaml").write_bytes(text)
    bare(*arguments.split()).assert_fails(2, message)
    assert not (bare.directory / "runs").exists()


@pytest.mark.parametrize("options", ["--unknown", "a.txt --vocab-size 0"])
def test_usage_errors_of_a_group_name_its_command(options: str, bare: CommandLine) -> None:
    bare("tokenizer", "train", *options.split()).assert_fails(
        2, "hint: run nmt tokenizer train --help"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--beam-size 0", "beam_size must be between 1 and 1000, got 0"),
        ("--length-penalty nan", "--length-penalty must be a number, got nan"),
        ("--search greedy --beam-size 4", "--search greedy is not a beam search"),
        ("--search greedy --length-penalty 0.6", "--search greedy is not a beam search"),
    ],
)
def test_invalid_search_options(arguments: str, message: str, trained: CommandLine) -> None:
    trained("translate", "the dog", *arguments.split()).assert_fails(2, message)


@pytest.mark.parametrize(
    "arguments",
    [
        "translate --input few.en --beam-size 1 --output",
        "score --src few.en --tgt few.de --output",
        "attention dog --output",
    ],
)
def test_commands_create_the_directory_of_an_output_file(
    arguments: str, trained: CommandLine
) -> None:
    write(trained.directory / "few", ["the dog"], ["der Hund"])
    command = arguments.split()
    trained.run(*command, f"new/{command[0]}/out.json")
    assert (trained.directory / f"new/{command[0]}/out.json").stat().st_size
    (trained.directory / "taken.json").mkdir(exist_ok=True)
    trained(*command, "taken.json").assert_fails(1, "cannot write taken.json: Is a directory")
    inside_a_file = trained(*command, "text.en/out.json")
    inside_a_file.assert_fails(1, "cannot write text.en/out.json: Not a directory")
    assert "hint: a parent of this path is a file" in inside_a_file.err


def test_options_that_would_be_ignored_or_destroy_an_input_are_rejected(
    trained: CommandLine,
) -> None:
    for name, text in {
        "terms.tsv": "dog\tHund\n",
        "page.html": "<p>dog",
        "memory.tmx": "<tmx/>",
    }.items():
        (trained.directory / name).write_text(text)
    for arguments, message in {
        "attention hi --target hallo --search greedy": "--target and --search cannot be combined",
        "compare text.en text.de --src text.en --ref text.de --search beam": (
            "--search applies to models"
        ),
        "translate --input text.en --glossary terms.tsv --output terms.tsv": (
            "terms.tsv would be overwritten"
        ),
        "translate page.html --memory memory.tmx --output memory.tmx --force": (
            "memory.tmx would be overwritten"
        ),
    }.items():
        trained(*arguments.split()).assert_fails(2, message)


def test_invalid_training_specs_fail_before_training(trained: CommandLine) -> None:
    nmt = CommandLine(trained.directory, {"NMT_RUNS": "none"})
    for option, message in {
        "train.schedule=linaer(peak=1)": "did you mean 'linear'?",
        "train.source_noise=lowercas(p=1)": "did you mean 'lowercase'?",
        "data.train=files(trian='text')": "corpus 'files' has no option 'trian'",
    }.items():
        nmt("train", "--set", option).assert_fails(2, message)
    nmt("train", "--precision", "fp64").assert_fails(2, "unknown precision 'fp64'")
    nmt("train", "--set", "data.train=files(train='nowhere/x')").assert_fails(
        1, "no such file: nowhere/x.en"
    )
    assert not list((nmt.directory / "none").rglob("config.yaml"))


@pytest.mark.parametrize(
    ("text", "value"),
    [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("1.5h", 5400), ("45", 45), ("1d", 86400)],
)
def test_parse_duration(text: str, value: float) -> None:
    assert parse_duration(text) == value


@pytest.mark.parametrize(
    "text", ["", "0", "0s", "m", "5x", "5 m", "-5s", "nan", "inf", "1e999", "30m!", "s30"]
)
def test_parse_duration_rejects_invalid_text(text: str) -> None:
    with pytest.raises(UsageError, match="invalid --time-limit"):
        parse_duration(text)


# ---- missing models


def test_missing_and_invalid_models(trained: CommandLine) -> None:
    directory = trained.directory
    (directory / "hollow").mkdir()
    elsewhere = CommandLine(directory, {"NMT_RUNS": "hollow"})
    files = ("--src", "few.en", "--ref", "few.de", "--resamples", "0")
    write(directory / "few", ["the dog"], ["der Hund"])
    done = elsewhere.run("evaluate", *files)
    assert "nmt: using en-de, a pretrained model; train your own with nmt train" in done.err
    elsewhere("info").assert_fails(
        1, "there is no trained model under hollow/", "hint: run nmt train first"
    )
    trained("translate", "hi", "--model", "missing").assert_fails(
        1, "there is no model at missing", "hint: train one with nmt train"
    )
    for mistyped, name in {
        "en-dee": "en-de",
        "runs/tinny": "runs/tiny",
        "tiny": "runs/tiny",
    }.items():
        trained("translate", "hi", "--model", mistyped).assert_fails(
            1, f"there is no model at {mistyped}", f"hint: did you mean '{name}'?"
        )
    for name in ("hollow", "text.en"):
        trained("translate", "hi", "--model", name).assert_fails(
            1, f"{name} has no checkpoint", "hint: "
        )
    trained("translate", "hi", "--model", "runs").assert_fails(
        1, "runs has no checkpoint", "hint: name one of its runs, such as runs/tiny"
    )


# ---- output streams and files


def test_stdout_carries_results_only(trained: CommandLine) -> None:
    done = trained.run("translate", "the dog", "--beam-size", "3", "--top-beams", "2")
    assert len(done.out.split("\n")[:-1]) == 2
    assert all(line.startswith("nmt: ") for line in done.err.split("\n")[:-1])
    scores = trained.run("evaluate", "--bleu", "--chrf", "--ter", "--json", "--beam-size", "1")
    (evaluation,) = json.loads(scores.out)
    assert [score["name"] for score in evaluation["scores"]] == ["BLEU", "chrF2", "TER"]
    assert all("|bs:1000|" in score["signature"] for score in evaluation["scores"])
    assert list((trained.directory / "runs/tiny/eval").glob("*.hyp"))


def test_top_beams_writes_n_lines_per_sentence(trained: CommandLine) -> None:
    done = trained("translate", "the dog", "", "the cat", "--top-beams", "3")
    lines = done.out.split("\n")[:-1]
    assert len(lines) == 9
    assert lines[3:6] == ["", "", ""]
    assert (
        len(
            trained("translate", "the dog", "--search", "beam(beam_size=4, top_beams=2)").out.split(
                "\n"
            )[:-1]
        )
        == 2
    )


def test_sacrebleu_test_sets(trained: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the files where sacreBLEU stores its downloads."""
    for test in ("wmt13", "wmt14"):
        directory = trained.directory / "sacrebleu" / test
        directory.mkdir(parents=True)
        monkeypatch.setattr(sacrebleu.DATASETS[test], "_outdir", str(directory))  # set at import
        for name in sacrebleu.DATASETS[test].fieldnames("en-de"):
            (directory / f"{test}.en-de.{name}").write_text("the dog\nthe cat\n")
    sets = ("--test", "wmt14", "--test", "wmt13")
    done = trained.run("evaluate", *sets, "--json")
    assert [(evaluation["test"], evaluation["lines"]) for evaluation in json.loads(done.out)] == [
        ("wmt14", 2),
        ("wmt13", 2),
    ]
    assert (trained.directory / "runs/tiny/eval/wmt14.hyp").read_text().count("\n") == 2
    done = trained("evaluate", *sets, "--resamples", "0")
    assert [line.split("  ")[0] for line in done.out.split("\n")[:-1]] == ["wmt14", "wmt13"]
    assert "±" not in done.out


def test_test_sets_of_one_name_are_not_overwritten(trained: CommandLine) -> None:
    for directory in ("one", "two"):
        (trained.directory / directory).mkdir()
        write(trained.directory / directory / "text", ["the old dog"], ["der alte Hund"])
    sets = [word for name in ("one", "two") for word in ("--test", f"files(test='{name}/text')")]
    trained("evaluate", *sets).assert_fails(
        2, "two test sets have the file name text-test", "one by one"
    )


@pytest.mark.slow
def test_an_ensemble_is_evaluated(trained: CommandLine) -> None:
    models = ("--model", "runs/tiny", "--model", "runs/tiny/step-000010")
    write(trained.directory / "one", ["the old dog"], ["der alte Hund"])
    files = ("--src", "one.en", "--ref", "one.de")
    trained("evaluate", *models, *files).assert_fails(
        2, "an ensemble has no directory", "hint: name one with --output"
    )
    trained.run("evaluate", *models, *files, "--output", "runs/tiny/eval/both")
    report = trained.directory / "runs/tiny/eval/both/one.en.json"
    assert json.loads(report.read_text())["model"] == list(models[1::2])
    tests = json.loads(trained("info", "runs/tiny", "--json").out)["tests"]
    # Without the scores of the ensemble.
    assert all(isinstance(test["model"], str) for test in tests)


def test_multiple_references(trained: CommandLine) -> None:
    write(trained.directory / "many", ["the dog", "the cat"], ["der Hund", "die Katze"])
    options = (
        "evaluate",
        "--src",
        "many.en",
        "--ref",
        "many.de",
        "--ref",
        "many.en",
        "--output",
        "several",
    )
    done = trained.run(*options, "--chrf")
    assert "nrefs:2" in done.out
    assert json.loads((trained.directory / "several/many.en.json").read_text())["references"] == 2
    write(trained.directory / "short", ["the dog"], ["der Hund"])
    trained(*options, "--ref", "short.de").assert_fails(1, "many.en has 2 lines and short.de has 1")


def test_hypotheses_are_written_to_the_run_from_any_working_directory(trained: CommandLine) -> None:
    step = sorted((trained.directory / "runs/tiny").glob("step-*"))[-1]
    data = {"NMT_DATA": str(trained.directory / "data"), "NMT_RUNS": "none"}
    write(trained.directory / "probe", ["the dog"], ["der Hund"])
    inside = CommandLine(step, data)
    inside.run(
        "evaluate", "--model", ".", "--src", "../../../probe.en", "--ref", "../../../probe.de"
    )
    assert (trained.directory / "runs/tiny/eval" / step.name / "probe.en.hyp").exists()
    assert not (step / "eval").exists()


@pytest.mark.slow
def test_closed_pipe_is_not_an_error(trained: CommandLine) -> None:
    (trained.directory / "many.en").write_text("the dog sees the cat.\n" * 20_000)
    reading, writing = os.pipe()
    process = trained.start(
        "translate", "--input", "many.en", "--beam-size", "1", "--no-guard", stdout=writing
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as head:
        head.readline()
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert [
        line for line in err.decode().split("\n") if line and not line.startswith("nmt: using")
    ] == []


@pytest.mark.slow
def test_a_thread_that_waits_for_standard_input_does_not_abort_the_command(
    trained: CommandLine,
) -> None:
    with trained.start("translate", "--prefix", "der " * 99, stdin=subprocess.PIPE) as process:
        process.stdin.write(b"the dog\n")
        process.stdin.flush()
        _, err = process.stdout.read(), process.stderr.read()
        process.stdin.close()
    assert process.returncode == 2, err
    assert b"prefix and constraints are longer" in err
    assert b"Fatal" not in err


def test_a_closed_pipe_does_not_end_a_command_that_writes_files(trained: CommandLine) -> None:
    for name in ("one", "two"):
        write(trained.directory / name, ["the old dog"], ["der alte Hund"])
    (trained.directory / "hyp").write_text("der alte Hund\n")
    reading, writing = os.pipe()
    os.close(reading)
    sets = [word for name in ("one", "two") for word in ("--test", f"files(test='{name}')")]
    evaluated = trained.process("evaluate", *sets, "--output", "closed", stdout=writing)
    compare = trained.fork(
        "compare",
        "hyp",
        "hyp",
        "--src",
        "one.en",
        "--ref",
        "one.de",
        "--html",
        "closed.html",
        stdout=writing,
    )
    os.close(writing)
    compared = finish(compare)
    assert (evaluated.code, compared.code) == (0, 0), evaluated.err + compared.err
    assert {path.name for path in (trained.directory / "closed").glob("*.hyp")} == {
        "one-test.hyp",
        "two-test.hyp",
    }
    assert (trained.directory / "closed.html").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="the file system requires UTF-8")
def test_invalid_utf8_of_the_command_line_is_written_as_a_question_mark(
    trained: CommandLine,
) -> None:
    name = os.fsdecode(b"h\xe9.en")
    (trained.directory / name).write_text("the old dog\n")
    (trained.directory / "ref.de").write_text("der alte Hund\n")
    trained.process("evaluate", "--src", name, "--ref", "ref.de", "--output", "invalid").check()
    assert len(list((trained.directory / "invalid").glob("*.json"))) == 1


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_full_disk_is_a_one_line_error(trained: CommandLine) -> None:
    trained("translate", "the dog", "--output", "/dev/full").assert_fails(
        1, "cannot write /dev/full: No space left"
    )
    buffered = CommandLine(trained.directory, {"PYTHONUNBUFFERED": ""})
    with open("/dev/full", "wb") as full:
        for done in (
            finish(buffered.fork("translate", "the dog", stdout=full)),
            buffered.process("config", stdout=full),
            buffered.process("--help", stdout=full),
        ):
            done.assert_fails(
                1, "standard output: No space left on device", "hint: free some disk space"
            )
        # Without the message, but as with it.
        assert trained.process("config", "none", stderr=full).code == 2


def test_translate_without_stdin(trained: CommandLine) -> None:
    code = (
        "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, '-m', 'nmt',"
        " 'translate'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=trained.directory,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(
        "nmt: error: there is nothing to translate\n     hint: run nmt translate"
    )


def test_evaluate_checks_the_output_directory_before_translating(
    trained: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.evaluate.evaluation.translate_test_set", None)
    (trained.directory / "a.en").write_text("the dog\n")
    for directory, reason in {"a.en": "it is a file", "a.en/eval": "Not a directory"}.items():
        done = trained("evaluate", "--src", "a.en", "--ref", "a.en", "--output", directory)
        done.assert_fails(2, f"cannot create {directory}: {reason}", "--output")


# ---- nmt config


def test_printed_config_loads_equal(bare: CommandLine) -> None:
    changes = [
        "train.source_noise=[lowercase(p=0.1), no_punctuation(p=0.2)]",
        "train.eps=1e-4",
        "data.src=no",
        "model.dim=64",
    ]
    done = bare.run(
        "config", "tatoeba", *(word for change in changes for word in ("--set", change))
    )
    path = bare.directory / "mine.yaml"
    path.write_text(done.out)
    config = config_io.load(path)
    assert config == config_io.load(config_io.find("tatoeba"), changes)
    assert config.data.src == "no"
    assert config.train.eps == 1e-4
    assert bare("config", "mine.yaml").out == done.out


def test_every_config_option_has_a_description(bare: CommandLine) -> None:
    lines = bare("config", "--options").out.split("\n")[:-1]
    heads, texts = lines[::2], lines[1::2]
    assert [head.split()[0] for head in heads] == list(config_io.OPTION_TYPES)
    assert all(text.startswith("    ") and len(text) > 8 and text.endswith(".") for text in texts)
    assert "seed  [1]" in heads
    assert all(
        config_io.override(Config(), f"{h.split()[0]}={h.partition('[')[2][:-1]}") for h in heads
    )


# ---- directories


def test_paths_with_spaces_and_umlauts(nmt: CommandLine) -> None:
    directory = nmt.directory / "ein Ordner für Läufe"
    (nmt.directory / "runs").rename(directory)
    (nmt.directory / "mein Text ß.en").write_text("the dog\nthe cat\n")
    here = CommandLine(nmt.directory, {"NMT_RUNS": directory.name})
    here.run(
        "translate",
        "--input",
        "mein Text ß.en",
        "--output",
        "die Übersetzung.de",
        "--beam-size",
        "1",
    )
    assert (nmt.directory / "die Übersetzung.de").read_text().count("\n") == 2


@pytest.mark.parametrize(
    ("variable", "code", "hint"),
    [
        ("NMT_DATA", 1, "a parent of this path is a file"),
        ("NMT_RUNS", 2, "choose another directory with --run"),
    ],
)
def test_file_in_place_of_a_directory(
    variable: str, code: int, hint: str, trained: CommandLine
) -> None:
    nmt = CommandLine(trained.directory, {"NMT_RUNS": "fresh", variable: "text.de"})
    nmt("train", "--set", "data.train=files(train='text')").assert_fails(
        code, "text.de", f"hint: {hint}"
    )


def test_other_os_errors_have_a_hint(trained: CommandLine) -> None:
    nmt = CommandLine(trained.directory, {"NMT_RUNS": "fresh", "NMT_DATA": "long" * 100})
    done = nmt(
        "train", "--set", "data.train=files(train='text')", "--set", "tokenizer.vocab_size=322"
    )
    done.assert_fails(1, "File name too long", "hint: choose another file or directory")


def drop_root_capabilities() -> None:
    """Drop the capabilities of root, as in containers, such as to write to read-only
    directories."""
    this_process = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3
    no_capabilities = (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None).capset(this_process, no_capabilities)


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux" and os.geteuid() == 0, reason="only Linux can drop capabilities of root"
)
@pytest.mark.parametrize(
    ("variable", "code", "hint"),
    [
        ("NMT_DATA", 1, "choose another path, or change its permissions"),
        ("NMT_RUNS", 2, "choose another directory"),
    ],
)
def test_read_only_directory(
    variable: str, code: int, hint: str, trained: CommandLine, tmp_path: Path
) -> None:
    tmp_path.chmod(0o555)
    nmt = CommandLine(trained.directory, {"NMT_RUNS": "fresh", variable: str(tmp_path)})
    limits = {"preexec_fn": drop_root_capabilities} if sys.platform == "linux" else {}
    process = nmt.fork(
        "train",
        "--set",
        "data.train=files(train='text')",
        "--set",
        "tokenizer.vocab_size=321",
        **limits,
    )
    finish(process).assert_fails(code, "Permission denied", f"hint: {hint}")
    assert not list(tmp_path.iterdir())


def test_an_example_of_the_help_is_one_command_in_a_line() -> None:
    examples = []
    for path in Path(nmt_cli.__file__).parent.glob("*.py"):
        for block in re.findall(
            r'\n    Examples:\n(.*?)\n(?:\n|    """)', path.read_text(), re.DOTALL
        ):
            examples += block.splitlines()
    assert len(examples) > 40
    for line in examples:
        starts = re.findall(r"(?:^ +|\| )nmt ", line)
        assert len(starts) == line.count("nmt ") > 0, line
