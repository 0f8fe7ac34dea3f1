"""Invalid input results in a one-line error with the location, or in complete output, but never in
a traceback."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from commandline import CommandLine, finish, sentences, training, write

from nmt.core import console, untrusted_files
from nmt.data.prepare import PreparedData

SOURCE, TARGET = sentences(400)
ODD = ["a\u0085b c", "d\u2028e f", "g\x0ch i", "j\x0bk l", "m\rn o", "p\x1cq r"]


SHORT = {"train__steps": "1", "train__valid_every": "1"}


@pytest.fixture
def nmt(nmt: CommandLine) -> CommandLine:
    """A copy for one test, with a small validation set."""
    write(nmt.directory / "few", SOURCE[:5], TARGET[:5])
    return nmt


def prepared(nmt: CommandLine, run: str = "runs/new") -> Path:
    """Return the prepared data of a run."""
    fingerprint = json.loads((nmt.directory / run / "data.json").read_text())["fingerprint"]
    return nmt.directory / "data" / "prepared" / str(fingerprint)


def prepared_pairs(nmt: CommandLine, split: str = "train") -> list[tuple[str, str]]:
    directory = prepared(nmt)
    manifest = json.loads((directory / "manifest.json").read_text())
    return list(PreparedData(directory, "en", "de", manifest).store(split).pairs())


# ---- training data


def test_different_line_counts_are_reported(nmt: CommandLine) -> None:
    write(nmt.directory / "short", SOURCE, TARGET[:-3])
    nmt(*training("runs/new", "files(train='short')")).assert_fails(
        1, "short.en has 400 lines and short.de has 397", "hint: "
    )
    nmt("evaluate", "--src", "short.en", "--ref", "short.de").assert_fails(
        1, "short.en has 400 lines and short.de has 397"
    )


@pytest.mark.slow
def test_pairs_with_an_empty_side_are_dropped(nmt: CommandLine) -> None:
    source, target = list(SOURCE), list(TARGET)
    source[5], source[90], target[200] = "", " \u2028\t", "\u200b"
    write(nmt.directory / "blank", source, target)
    done = nmt.train("runs/new", "files(train='blank', valid='few', hold_out=False)", **SHORT)
    assert "cleaning step blank dropped 3 pairs" in done.err
    assert json.loads((nmt.directory / "runs/new/data.json").read_text())["dropped"]["blank"] == 3
    kept = [
        pair for i, pair in enumerate(zip(SOURCE, TARGET, strict=True)) if i not in (5, 90, 200)
    ]
    assert prepared_pairs(nmt) == kept


@pytest.mark.slow
def test_unusual_whitespace_is_normalized_and_keeps_alignment(nmt: CommandLine) -> None:
    source = list(SOURCE)
    for i, odd in enumerate(
        ["\u0085", "\u2028", "\u2029", "\x0c", "\x0b", "\r", "\x1c", "\t", "  "]
    ):
        source[10 * i] = source[10 * i].replace(" ", odd, 1)
    write(nmt.directory / "odd", source, TARGET)
    nmt.train("runs/new", "files(train='odd', valid='few', hold_out=False)", **SHORT)
    # Each is replaced by a space.
    assert prepared_pairs(nmt) == list(zip(SOURCE, TARGET, strict=True))


@pytest.mark.slow
def test_unusual_line_breaks_are_kept_without_normalization(nmt: CommandLine) -> None:
    source = [line.replace(" ", "\u2028", 1) for line in SOURCE[:60]]
    write(nmt.directory / "odd", source, TARGET[:60])
    corpus = "files(train='odd', valid='few', hold_out=False)"
    nmt.train("runs/new", corpus, data__clean="[]", **SHORT)
    assert prepared_pairs(nmt) == list(zip(source, TARGET[:60], strict=True))


@pytest.mark.slow
def test_invalid_utf8_in_training_data_is_located(nmt: CommandLine) -> None:
    lines = [line.encode() for line in TARGET]
    lines[11] = b"sch\xf6n"
    write(nmt.directory / "latin", SOURCE, b"\n".join(lines) + b"\n")
    nmt(*training("runs/new", "files(train='latin')")).assert_fails(
        1, "latin.de, line 12, byte 4 of the line: not UTF-8 (0xf6)", "errors='replace'"
    )
    corpus = "files(train='latin', errors='replace', valid='few', hold_out=False)"
    nmt.train("runs/new", corpus, **SHORT)
    assert prepared_pairs(nmt)[11] == (SOURCE[11], "sch\ufffdn")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "0 different sentences of 3 words or more are too few"),
        ([""] * 400, "0 different sentences of 3 words or more are too few"),
        (SOURCE[:5] * 80, "5 different sentences of 3 words or more are too few"),
        (b"\x7fELF\x02\x01\x01\x00\xb0\x00" * 400, "line 1, byte 9 of the line: not UTF-8"),
    ],
    ids=["empty", "blank", "few", "binary"],
)
def test_unusable_training_data(
    source: list[str] | bytes, message: str, trained: CommandLine
) -> None:
    nmt = CommandLine(trained.directory, {"NMT_RUNS": "elsewhere"})
    write(nmt.directory / "poor", source, TARGET if source else [])
    done = nmt("data", "prepare", "--set", "data.train=files(train='poor')")
    done.assert_fails(1, message)


# ---- translation input


def test_output_has_one_line_per_input_line(trained: CommandLine) -> None:
    text = "\n".join(["the dog", "", "  \t ", "\u2028", *ODD, "\u200b", "the cat"]) + "\n"
    (trained.directory / "lines.en").write_bytes(text.encode())
    blank = [1, 2, 3, 10]
    piped = trained("translate", stdin=text.encode())
    filed = trained("translate", "--input", "lines.en", "--output", "lines.de")
    for done, out in (
        (piped, piped.out),
        (filed, (trained.directory / "lines.de").read_bytes().decode()),
    ):
        assert done.code == 0, done.err
        assert len(out.split("\n")[:-1]) == 12
        assert [i for i in blank if out.split("\n")[i].strip()] == []
        assert out.split("\n")[2] == "  \t "  # an empty line keeps its whitespace
    assert filed.out == ""


def test_missing_final_newline_and_crlf_do_not_change_output(trained: CommandLine) -> None:
    unix = trained("translate", stdin=b"the dog\nthe cat\n")
    assert trained("translate", stdin=b"\xef\xbb\xbfthe dog\r\nthe cat").out == unix.out
    assert len(unix.out.split("\n")) == 3


@pytest.mark.slow
def test_line_of_3000_words_is_translated(trained: CommandLine) -> None:
    long = " ".join(SOURCE[i % 400] for i in range(430))
    assert len(long.split()) > 3000
    word = "x" * 5000  # cannot be split
    lines = ["the dog", long, word, "the cat"]
    done = trained.run("translate", "--search", "greedy", stdin="\n".join(lines).encode())
    assert len(done.out.split("\n")[:-1]) == 4
    alone = trained("translate", "--search", "greedy", "the dog", "the cat").out.split("\n")
    assert [done.out.split("\n")[0], done.out.split("\n")[3]] == alone[:2]


def test_segments_of_a_long_line_cover_the_line(trained: CommandLine) -> None:
    from nmt.translation.translator import Line, Translator

    translator = Translator.load(trained.directory / "runs/tiny", "cpu")
    for line in (" ".join(SOURCE), "word, " * 3000, "x" * 5000):
        pieces = [segment.source.ids for segment in translator.segmenter.split([Line(line)])[0]]
        assert len(pieces) > 1
        assert all(0 < len(ids) <= translator.segmenter.max_source_length for ids in pieces)
        text = "".join(translator.tokenizer.decode(ids).replace(" ", "") for ids in pieces)
        assert text == line.replace(" ", "")


@pytest.mark.parametrize("way", ["arguments", "--input", "stdin", "--src", "--ref"])
def test_invalid_utf8_is_located_or_replaced(way: str, trained: CommandLine) -> None:
    text = b"the dog\nthe \xff\xfe cat\nthe bird\n"
    (trained.directory / "bad.en").write_bytes(text)
    (trained.directory / "good.en").write_bytes(b"one\ntwo\nthree\n")
    command: dict[str, list[str]] = {
        "--input": ["translate", "--input", "bad.en"],
        "arguments": ["translate", *os.fsdecode(text).split("\n")[:-1]],
        "stdin": ["translate"],
        "--src": ["evaluate", "--src", "bad.en", "--ref", "good.en"],
        "--ref": ["evaluate", "--src", "good.en", "--ref", "bad.en"],
    }
    stdin = text if way == "stdin" else b""
    name = {"stdin": "standard input", "arguments": "the command line"}.get(way, "bad.en")
    strict = trained(*command[way], stdin=stdin)
    assert strict.code == 1
    assert strict.errors == [f"{name}, line 2, byte 5 of the line: not UTF-8 (0xff)"]
    assert "--encoding-errors replace" in strict.err
    lenient = trained.run(*command[way], "--encoding-errors", "replace", stdin=stdin)
    assert lenient.out.count("\n") == (3 if command[way][0] == "translate" else 1)


def test_missing_and_empty_input(trained: CommandLine) -> None:
    (trained.directory / "empty.txt").write_bytes(b"")
    (trained.directory / "precious.de").write_text("ein Werk\n")
    trained("translate", "--input", "nothing.en", "--output", "precious.de").assert_fails(
        1, "no such file: nothing.en"
    )
    trained("translate", "--input", "runs").assert_fails(1, "runs is a directory, not a text file")
    trained("evaluate", "--src", "empty.txt", "--ref", "empty.txt").assert_fails(
        1, "test set empty.txt is empty"
    )
    trained("translate", "--search", "beem", "hi", "--output", "precious.de").assert_fails(
        2, "did you mean 'beam'?"
    )
    assert (
        trained.directory / "precious.de"
    ).read_text() == "ein Werk\n"  # errors do not delete existing files
    for done in (trained("translate", "--input", "empty.txt"), trained("translate")):
        assert (done.code, done.out) == (0, "")


def test_output_must_not_be_the_input(trained: CommandLine) -> None:
    (trained.directory / "same.en").write_text("the dog\n")
    done = trained("translate", "--input", "same.en", "--output", "./same.en")
    done.assert_fails(2, "same.en would be overwritten: it is also an input")
    assert (trained.directory / "same.en").read_text() == "the dog\n"
    (trained.directory / "same.en.hyp").write_text("der Hund\n")
    files = ("--src", "same.en", "--ref", "same.en.hyp")
    evaluated = trained("evaluate", "--model", "runs/tiny", *files, "--output", ".")
    evaluated.assert_fails(2, "same.en.hyp would be overwritten: it is also an input")
    assert (trained.directory / "same.en.hyp").read_text() == "der Hund\n"


# ---- models and runs


def test_tokenizer_of_another_run_is_rejected(nmt: CommandLine) -> None:
    write(nmt.directory / "other", [line.upper() for line in SOURCE], TARGET)
    spm = nmt.directory / "runs/tiny/spm.model"
    nmt.run("tokenizer", "train", "other.en", "other.de", "--vocab-size", "320", "-o", spm)
    nmt("translate", "the dog").assert_fails(
        1, "spm.model is not the tokenizer of step-0000", "hint: restore the original"
    )
    nmt("evaluate").assert_fails(1, "spm.model is not the tokenizer of step-0000")
    spm.write_bytes(b"not a model")
    nmt("translate", "the dog").assert_fails(1, "spm.model is not a SentencePiece model")
    spm.unlink()
    nmt("translate", "the dog").assert_fails(
        1, "cannot read tokenizer runs/tiny/spm.model: No such file", "hint: check the path"
    )


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_damaged_models_are_reported(nmt: CommandLine) -> None:
    best = max((nmt.directory / "runs/tiny").glob("step-*"))
    damage(best / "model.safetensors")
    nmt("translate", "-m", best, "the dog").assert_fails(
        1, "model.safetensors is damaged: its checksum differs", "hint: "
    )
    (best / "model.safetensors").unlink()
    nmt("translate", "-m", best, "the dog").assert_fails(
        1, "cannot read", "model.safetensors: No such file"
    )
    (best / "meta.json").write_text("{")
    nmt("translate", "-m", best, "the dog").assert_fails(1, "meta.json is damaged")
    (nmt.directory / "runs/tiny/data.json").write_text("{}")
    nmt("translate", "-m", min(best.parent.glob("step-*")), "the dog").assert_fails(
        1, "data.json is damaged"
    )


def test_existing_run_directory_is_rejected(trained: CommandLine) -> None:
    before = {
        path: path.stat().st_mtime_ns for path in (trained.directory / "runs/tiny").rglob("*")
    }
    trained(*training("runs/tiny")).assert_fails(
        2, "runs/tiny already contains a run", "--resume", "--run"
    )
    for option, change in {
        "model.dim": {"model__dim": "64"},
        "lowercase_all_caps": {"lowercase_all_caps": "true"},
    }.items():
        trained(*training("runs/tiny", "files(train='text')", "--resume", **change)).assert_fails(
            2, f"another '{option}'"
        )
    assert {
        path: path.stat().st_mtime_ns for path in (trained.directory / "runs/tiny").rglob("*")
    } == before


@pytest.mark.skipif(torch.cuda.is_available(), reason="requires a machine without a GPU")
@pytest.mark.parametrize("command", ["train", "translate", "evaluate"])
def test_missing_gpu_is_a_one_line_error(command: str, trained: CommandLine) -> None:
    text = ["the dog"] if command == "translate" else []
    done = trained(command, *text, "--device", "cuda")
    done.assert_fails(2, "no CUDA GPU is available", "hint: use --device auto")


# ---- files of strangers


def devices(directory: Path) -> list[Path]:
    """Make what can be named like a file and is none."""
    directory.mkdir()
    os.mkfifo(directory / "fifo")
    (directory / "folder").mkdir()
    (directory / "loop").symlink_to(directory / "loop")
    (directory / "endless").symlink_to("/dev/zero")
    return sorted(directory.iterdir())


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    for path in devices(tmp_path / "devices"):
        for read in (
            untrusted_files.read_bytes,
            untrusted_files.read_safetensors_header,
            untrusted_files.read_yaml,
        ):
            with pytest.raises(OSError, match=r"it is a|Too many levels"):
                read(path)
        assert untrusted_files.read_record(path) == {}
        assert untrusted_files.read_records(path) == []
        assert untrusted_files.read_front_matter(path) == {}


@pytest.mark.parametrize(
    "name", ["config.yaml", "spm.model", "data.json", "step-*/model.safetensors"]
)
def test_a_model_with_a_pipe_or_a_device_is_one_line(name: str, nmt: CommandLine) -> None:
    run = nmt.directory / "runs/tiny"
    for device in devices(nmt.directory / "devices"):
        for path in run.glob(name):
            path.unlink()
            path.symlink_to(device)
        done = nmt("translate", "the dog", "-m", "runs/tiny")
        done.assert_fails(1, Path(name).name, "hint: ")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "[" * 51 + "]" * 51,
        '{"a": 1, "a": 2}',
        "9" * 5000,
        f"[{2**64}]",
        "{",
        "",
        '["\\ud800"]',
        '{"\\ud800": 1}',
        '"\\x"',
    ],
    ids=lambda text: text[:12],
)
def test_json_has_limits(text: str) -> None:
    with pytest.raises(ValueError, match=r"it |Expect|Invalid"):
        untrusted_files.parse_json(text)
    assert untrusted_files.parse_json("[" * 50 + "]" * 50)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "line 1: not valid YAML: nested too deeply"),
        ("{a: " * 100_000, "line 1: not valid YAML: nested too deeply"),
        ("- " * 100_000, "line 1: not valid YAML: nested too deeply"),
        ("a: 1\nb: &b [1]\nc: *b", "line 3: aliases are not supported"),
        ("a: " + "1:" * 20_000 + "1", "line 1: a value of more than 10,000 characters"),
        ("a: 1\na: 2", "line 2: duplicate key 'a'"),
        ("a: !!bool 5", "not valid YAML"),
        ("a: !!timestamp x", "not valid YAML"),
        ("a: \0", "not valid YAML"),
        ("a: !!python/name:os.system", "could not determine a constructor"),
    ],
)
def test_yaml_has_limits(text: str, message: str) -> None:
    for as_text in (False, True):
        if as_text and "!!" in text:
            continue
        with pytest.raises(ValueError, match=r"line|not valid") as error:
            untrusted_files.parse_yaml(text, as_text=as_text)
        assert message in str(error.value)
    assert untrusted_files.parse_yaml("a: 0x" + "f" * 99) == {"a": float("inf")}


def test_the_events_of_deep_yaml_are_not_all_read(monkeypatch: pytest.MonkeyPatch) -> None:
    events = []
    parse = yaml.parse

    def count(*arguments: object, **options: object) -> object:
        for event in parse(*arguments, **options):
            events.append(event)
            yield event

    monkeypatch.setattr(yaml, "parse", count)
    with pytest.raises(ValueError, match="nested too deeply"):
        untrusted_files.parse_yaml("[" * 1_000_000)
    assert len(events) < 100


def test_schemas_check_types_and_ranges() -> None:
    from nmt.runs.checkpoint import Meta
    from nmt.runs.model_files import Limits

    progress = {"step": 1, "scores": {"a": 1.0}, "best": None}
    meta = {"tokenizer": "a", "progress": progress, "sha256": {"b": "c"}, "other": [1]}
    untrusted_files.check(meta, Meta)
    wrong = [
        [],
        None,
        meta | {"tokenizer": 1},
        meta | {"sha256": []},
        meta | {"sha256": {"b": None}},
        meta | {"progress": progress | {"step": -1}},
        meta | {"progress": progress | {"step": 2**63}},
        meta | {"progress": progress | {"step": True}},
        meta | {"progress": progress | {"unknown": 1}},
        meta | {"progress": progress | {"seconds": float("nan")}},
        meta | {"progress": progress | {"scores": [1]}},
        {name: value for name, value in meta.items() if name != "sha256"},
    ]
    for content in wrong:
        assert not untrusted_files.matches(content, Meta), content
    assert untrusted_files.matches({"max_source_length": 5, "max_sentences_per_line": 1}, Limits)
    for limits in (
        {},
        {"max_source_length": 0},
        {"max_source_length": 1.5},
        {"max_source_length": 2**31},
    ):
        assert not untrusted_files.matches(limits, Limits)


def load_fuzzer() -> Any:
    specification = importlib.util.spec_from_file_location(
        "fuzz_files", Path("scripts/fuzz_files.py").resolve()
    )
    module = importlib.util.module_from_spec(specification)
    sys.modules["fuzz_files"] = module
    specification.loader.exec_module(module)
    return module


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each case is a child process")
@pytest.mark.parametrize("num_cases", [5, pytest.param(24, marks=pytest.mark.slow)])
def test_mutated_models_raise_errors_of_nmt(
    num_cases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NMT_RUNS", str(tmp_path / "runs"))
    fuzzer = load_fuzzer()
    names = ["run"] if num_cases < 10 else list(fuzzer.SAMPLES)
    cases = fuzzer.fuzz(tmp_path, num_cases, seed=num_cases, names=names)
    violations = [case for case in cases if case.outcome.kind in fuzzer.VIOLATIONS]
    assert violations == []
    assert len(cases) == num_cases


def test_control_characters_of_a_model_are_not_printed(nmt: CommandLine) -> None:
    path = nmt.directory / "runs/tiny/data.json"
    record = {"source": "\x1b[31mred", "license": "\x9b0m\nfree"}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"imported": record}))
    for command in (["info", "runs/tiny"], ["models"]):
        out = nmt.run(*command).out
        assert "\\x9b0m free" in out
        assert not {"\x1b", "\x9b"} & {*out}
    nmt("translate", "x", "-m", "no\x1b[31m").assert_fails(1, "no\\x1b[31m")


# ---- existing files


def test_tokenizer_output_must_not_be_the_input(nmt: CommandLine) -> None:
    before = (nmt.directory / "text.en").read_bytes()
    done = nmt(
        "tokenizer", "train", "text.en", "text.de", "--vocab-size", "300", "--output", "text.en"
    )
    done.assert_fails(2, "text.en would be overwritten: it is also an input")
    assert (nmt.directory / "text.en").read_bytes() == before


def test_output_file_is_kept_until_the_first_line_is_written(trained: CommandLine) -> None:
    (trained.directory / "latin.en").write_bytes(b"caf\xe9\n")
    (trained.directory / "old.de").write_text("precious\n")
    trained("translate", "-i", "latin.en", "-o", "old.de", "--model", "runs/tiny").assert_fails(
        1, "not UTF-8"
    )
    assert (trained.directory / "old.de").read_text() == "precious\n"
    trained("translate", "-i", "latin.en", "-o", "none.de", "--model", "runs/tiny").assert_fails(
        1, "not UTF-8"
    )
    assert not (trained.directory / "none.de").exists()
    (trained.directory / "dog.en").write_text("the dog\n")
    trained.run("translate", "-i", "dog.en", "-o", "old.de", "--model", "runs/tiny")
    assert (trained.directory / "old.de").read_text().count("\n") == 1
    assert "precious" not in (trained.directory / "old.de").read_text()


def test_test_sets_with_the_same_file_name_have_separate_reports(trained: CommandLine) -> None:
    for directory, lines in (("x", 1), ("y", 2)):
        (trained.directory / directory).mkdir()
        write(trained.directory / directory / "test", ["the dog"] * lines, ["der Hund"] * lines)
        command = (
            "evaluate",
            "--model",
            "runs/tiny",
            "--src",
            f"{directory}/test.en",
            "--ref",
            f"{directory}/test.de",
        )
        trained.run(*command)
    paths = [
        trained.directory / "runs/tiny/eval" / f"{directory}-test.en.hyp"
        for directory in ("x", "y")
    ]
    assert [path.read_text().count("\n") for path in paths] == [1, 2]


def test_resume_rejects_changed_data(nmt: CommandLine) -> None:
    # Otherwise the tokenizer would change, too.
    tokenizer = {"tokenizer__model": "runs/tiny/spm.model"}
    nmt.train("runs/new", "files(train='text')", **tokenizer)
    path = nmt.directory / "text.en"
    path.write_text(path.read_text().replace("dog", "cow", 1))
    done = nmt("train", "--run", "runs/new", "--resume", "--set", "train.steps=30")
    done.assert_fails(1, "the data or the tokenizer of runs/new has changed", "hint: ")


# ---- closed streams


@pytest.mark.slow
@pytest.mark.parametrize("command", ["translate 'the dog' --model runs/tiny", "data list"])
def test_closed_stdout_is_an_error(command: str, trained: CommandLine) -> None:
    shell = f"exec {shlex.quote(sys.executable)} -m nmt {command} >&-"
    done = subprocess.run(
        ["sh", "-c", shell], cwd=trained.directory, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.split("\n")[0]) == (
        1,
        "nmt: error: standard output is closed",
    )


@pytest.mark.slow
def test_closed_stderr_is_ignored(trained: CommandLine) -> None:
    shell = f"exec {shlex.quote(sys.executable)} -m nmt translate 'the dog' 2>&-"
    done = subprocess.run(
        ["sh", "-c", shell], cwd=trained.directory, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1


def test_training_goes_on_without_a_reader_of_the_log(nmt: CommandLine) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    process = nmt.fork(*training("runs/deaf", "files(train='text')"), stderr=write_end)
    os.close(write_end)
    out, _ = process.communicate(timeout=120)
    assert (process.returncode, out.decode().startswith("runs/deaf/step-")) == (0, True)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_progress_bar_that_cannot_be_written_does_not_end_the_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        open("/dev/full", "w", buffering=1, encoding="utf-8") as full,
        contextlib.suppress(OSError),
    ):
        monkeypatch.setattr(sys, "stderr", full)
        with console.progress(3, "reading", " lines", disable=False) as bar:
            bar.delay = bar.mininterval = 0
            for _ in range(3):
                bar.update()
                bar.refresh()
            console.log("a message")
        assert bar.n == 3
        print("done")
    assert capsys.readouterr().out == "done\n"


# ---- standard streams as files


def test_descriptors_are_not_truncated(trained: CommandLine) -> None:
    write(trained.directory / "dog", ["the dog"], ["der Hund"])
    (trained.directory / "page.html").write_text("<p>the dog</p>")
    (trained.directory / "-").write_text("a file")
    commands = [
        "translate -i dog.en -o /dev/fd/1 --model runs/tiny",
        "score --src dog.en --tgt dog.de -o /proc/self/fd/1 --model runs/tiny",
        "translate page.html -o /dev/stdout --model runs/tiny",
        "translate page.html -o - --model runs/tiny",
    ]
    for i, command in enumerate(commands):
        path = trained.directory / f"out{i}"
        with path.open("wb") as file:
            file.write(b"header\n")
            file.flush()
            finish(trained.fork(*command.split(), stdout=file.fileno())).check()
        content = path.read_text()
        assert content.startswith("header\n")
        assert content.count("\n") == (1 if "html" in command else 2)
        assert "/dev" not in content
    assert (trained.directory / "-").read_text() == "a file"
    resumed = trained(
        "translate", "-i", "dog.en", "-o", "/dev/stdout", "--resume", "--model", "runs/tiny"
    )
    resumed.assert_fails(2, "--resume needs a file, not /dev/stdout")


# ---- out-of-range values


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (
            "translate hi --model runs/tiny --length-penalty 1e308",
            2,
            "length_penalty must be between 0 and 10",
        ),
        ("translate hi --model runs/tiny --device cpu:7", 2, "unknown device 'cpu:7'"),
        (
            "tokenizer train text.en --vocab-size 3",
            1,
            "a tokenizer needs at least 261 tokens, got 3",
        ),
        (
            "train --run runs/x --set model.encoder_layers=1000000000",
            2,
            "model.encoder_layers must be between 1 and 1000",
        ),
        (
            "train --run runs/x --set model.ffn_dim=20000000000",
            2,
            "model.ffn_dim must be between 1 and 65536",
        ),
        ("summary --set model.dim=65537", 2, "model.dim must be between 1 and 65536"),
        ("train --plan --run=", 2, "--run is empty"),
        ("train --run runs/x --set train.schedule=linear(peak=-1)", 2, "peak must be above 0"),
        ("train --run runs/x --set train.optimizer=muno", 2, "unknown optimizer 'muno'"),
        (
            "train --run runs/x --set train.optimizer=muon(lr_scale=-1)",
            2,
            "lr_scale must be above 0",
        ),
        (
            "train --run runs/x --set train.optimizer=muon --set model.arch=rnn",
            2,
            "model.arch is rnn",
        ),
        (
            "train --run runs/tiny --resume --set train.optimizer=muon",
            2,
            "with another 'train.optimizer'",
        ),
        (
            "train --run runs/x --set train.teacher=runs/tiny --set train.distill_weight=2",
            2,
            "between 0 and 1, got 2.0",
        ),
        (
            "train --run runs/x --set train.teacher=de-en",
            2,
            "translates from de to en, not from en to de",
        ),
        (
            "train --run runs/tiny --resume --set train.teacher=runs/tiny",
            2,
            "is the run that is being trained",
        ),
        ("train --run runs/x --set train.teacher=runs/x", 1, "there is no model at runs/x"),
        ("config --set train.optimizer=muon(ns_steps=4", 2, "cannot read 'muon(ns_steps=4'"),
        ("train --run runs/x --time-limit=", 2, "invalid --time-limit ''"),
        ("evaluate --model runs/tiny --test=", 2, "unknown test set ''"),
        ("config --options extra", 2, "--options does not take other arguments"),
        ("config --set data.clean=[dedupe]", 2, "unknown cleaning step 'dedupe'"),
        ("config --set data.train=phrasebok", 2, "unknown corpus 'phrasebok'"),
        ("train --set train.best_metric=a\nb", 2, "cannot read 'a\\nb'"),
        (
            "translate -i text.en -o text.gz --model runs/tiny",
            2,
            "cannot write text.gz: the output is plain text",
        ),
        (
            "data check text.en text.de --fix out --html out.en",
            2,
            "--html and --fix would both write out.en",
        ),
        ("serve --rate-limit 1000001", 2, "Invalid value for '--rate-limit'"),
        ("serve --trusted-proxy localhost", 2, "--trusted-proxy localhost is no IP address"),
        ("serve --trusted-proxy 10.0.0.0/99", 2, "--trusted-proxy 10.0.0.0/99 is no IP address"),
        (
            "serve --trusted-proxy * --trusted-proxy 10.0.0.5/8 --model none",
            1,
            "there is no model at none",
        ),
        ("train --init-from runs/tiny --set train.init_from=runs/x", 2, "are the same option"),
        ("train --batch-tokens auto --set train.batch_tokens=64", 2, "are the same option"),
    ],
)
def test_out_of_range_values_are_one_line_errors(
    command: str, code: int, message: str, trained: CommandLine
) -> None:
    trained(*command.split(" ")).assert_fails(code, message, "hint: ")
