"""The experiment scripts with tiny models."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import yaml
from commandline import TINY, sentences, write
from fork_server import fork_server

from engine_processes import EngineProcess
from nmt.models import discovery

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def commands_in_forks() -> Iterator[None]:
    if torch.cuda.is_available():  # cannot be used in a fork
        yield
        return
    with (
        tempfile.TemporaryDirectory() as directory,
        fork_server(Path(directory)) as programs,
        pytest.MonkeyPatch.context() as patch,
    ):
        interpreter = Path(sys.executable).parent
        patch.setenv("PATH", f"{programs}:{interpreter}:{os.environ['PATH']}")
        patch.setenv("SKIP_VENV", "1")
        yield


def script(name: str, *arguments: str, code: int = 0, **environment: str) -> list[list[str]]:
    """Run a script in another working directory, and return the cells of the table it prints."""
    done = subprocess.run(
        [ROOT / "scripts" / "experiments" / name, *arguments],
        cwd="/",
        env=os.environ | environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return [re.split(r" *\| *", line.strip("| ")) for line in done.stdout.splitlines()]


@pytest.mark.skipif(
    not (ROOT / ".venv" / ".installed-dev").exists(),
    reason="needs .venv, which scripts/test.sh creates",
)
def test_scripts_use_the_virtual_environment() -> None:
    nobody = {"PATH": "/usr/bin:/bin", "SKIP_VENV": ""}
    done = subprocess.run(
        ["bash", "-c", ". scripts/common.sh; activate; command -v nmt"],
        cwd=ROOT,
        env=os.environ | nobody,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"{ROOT}/.venv/bin/nmt\n"


def small(directory: Path) -> tuple[list[str], dict[str, str]]:
    """Return arguments and environment for experiments with few updates."""
    sections = ("tokenizer", "model")
    tiny = {
        name: [f"{key.partition('.')[2]}: {TINY[key]}" for key in TINY if name in key]
        for name in sections
    }
    options = "".join(f"{name}: {{{', '.join(values)}}}\n" for name, values in tiny.items())
    source, target = sentences(420)
    write(directory / "train", source[:400], target[:400])
    write(directory / "held-out", source[400:], target[400:])
    files = {"train": "train", "valid": "held-out", "test": "held-out"}
    corpus = ", ".join(f"{split}='{directory}/{name}'" for split, name in files.items())
    options += f'data: {{train: ["files({corpus})"]}}\n'
    config = directory / "tiny.yaml"
    config.write_text(
        f"{options}train: {{batch_tokens: 512, valid_pairs: 5, valid_search: greedy,"
        " calibration_pairs: 0}\n"
    )
    directories = {"NMT_RUNS": str(directory / "runs"), "NMT_DATA": str(directory / "data")}
    changes = ["--set", "train.steps=4", "--set", "train.valid_every=4"]
    return changes, directories | {"CONFIG": str(config), "SEEDS": "1", "LIMIT": "5m"}


def test_experiments_print_tables(tmp_path: Path) -> None:
    changes, environment = small(tmp_path)
    table = script("label_smoothing.sh", *changes, **environment)
    assert [row[0].split(":")[0] for row in table[:3]] == [
        f"label_smoothing={value}_seed=1" for value in ("0", "0.1", "0.2")
    ]
    assert [row[0].split()[0] for row in table[-3:]] == ["0", "0.1", "0.2"]

    for name in ("beam_size.sh", "extrapolation.sh"):
        assert script(name, "nowhere/at/all", code=2, **environment) == []
    run, *_ = sorted((tmp_path / "runs" / "experiments").rglob("config.yaml"))
    table = script("beam_size.sh", str(run.parent), SIZES="1 2", PENALTIES="0.0 1.0", **environment)
    assert table[0] == ["beam size", "length penalty 0.0", "length penalty 1.0"]
    assert [row[0] for row in table[2:]] == ["1", "2"]
    assert all(re.fullmatch(r"\d+\.\d+", cell) for row in table[2:] for cell in row[1:])


def test_data_size_uses_equal_mixtures(tmp_path: Path) -> None:
    changes, environment = small(tmp_path)
    files = [str(tmp_path / f"train.{code}") for code in ("en", "de")]
    held_out = tmp_path / "held-out"
    for split in ("valid", "test"):
        changes += ["--set", f"data.{split}=files({split}='{held_out}')"]
    script("data_size.sh", *files, *changes, **environment)
    parts = tmp_path / "data" / "data_size"
    english = (tmp_path / "train.en").read_text().splitlines()
    assert (parts / "25.0").read_text().splitlines() == english[3::4]
    assert len((parts / "50.1").read_text().splitlines()) == len(english) // 2
    (run,) = (tmp_path / "runs" / "experiments" / "data_size" / "25").glob("*_seed=1")
    assert json.loads((run / "data.json").read_text())["pairs"]["train"] == len(english) // 4
    assert script("data_size.sh", files[0], code=2, **environment) == []
    assert script("data_size.sh", *files, code=2, **environment, SIZES="25 30") == []


def test_cost_of_layers(tmp_path: Path) -> None:
    small = (
        "--lengths",
        "16",
        "64",
        "--widths",
        "16",
        "32",
        "--length",
        "16",
        "--width",
        "16",
        "--repeats",
        "1",
    )
    rows = script("cost.py", *small, "-o", str(tmp_path / "cost.svg"))
    heads = [row for row in rows if row[-1] == "exponent"]
    assert [head[0] for head in heads] == [
        f"{unit} by {of}"
        for of in ("length, at dimension 16", "dimension, at length 16")
        for unit in ("forward + backward time (ms)", "activation memory (MB)")
    ]
    kept = {
        row[0]: [*map(float, row[1:3])] for row in rows[8:14] if len(row) == 4 and row[1] != "---"
    }
    # Self-attention saves 8 heads of 64 x 64 weights in float32. The memory of a recurrence is
    # linear in the length.
    assert kept["self-attention"][1] >= 8 * 64 * 64 * 4 / 1e6
    assert kept["recurrence"][1] == pytest.approx(4 * kept["recurrence"][0], rel=0.01)
    assert "<svg" in (tmp_path / "cost.svg").read_text()


def test_split_by_length(tmp_path: Path) -> None:
    lengths = [*range(1, 11)] * 4
    for code in ("en", "de"):
        lines = (" ".join([f"{code}{number}"] * length) for number, length in enumerate(lengths))
        (tmp_path / f"text.{code}").write_text("".join(f"{line}\n" for line in lines))
    script(
        "by_length.py",
        str(tmp_path / "text"),
        str(tmp_path / "out"),
        "--limits",
        "4",
        "7",
        "--size",
        "5",
    )
    found = {
        name: (tmp_path / "out" / f"{name}.en").read_text().splitlines()
        for name in ("train", "valid", "to-4", "to-7", "longer")
    }
    assert {name: len(lines) for name, lines in found.items()} == {
        "train": 6,
        "valid": 5,
        "to-4": 5,
        "to-7": 5,
        "longer": 5,
    }
    for name, (min_words, max_words) in {
        "train": (1, 4),
        "valid": (1, 4),
        "to-4": (1, 4),
        "to-7": (5, 7),
        "longer": (8, 10),
    }.items():
        assert all(min_words <= len(line.split()) <= max_words for line in found[name])
    together = [line for lines in found.values() for line in lines]
    assert len(set(together)) == len(together)
    script(
        "by_length.py",
        str(tmp_path / "text"),
        str(tmp_path / "none"),
        "--limits",
        "4",
        "20",
        code=2,
    )
    assert not (tmp_path / "none").exists()


def test_the_end_of_an_engine_process_is_an_error() -> None:
    engine = EngineProcess([sys.executable, "-c", ""])
    engine._process.wait()
    with pytest.raises(SystemExit, match="an engine process failed"):
        engine.ask(lines=1)


def test_extrapolation(tmp_path: Path) -> None:
    changes, environment = small(tmp_path)
    source, target = sentences(503)
    lengths = [7] * 400 + [14] * 30 + [18] * 30 + [25] * 40
    for code, side in (("en", source), ("de", target)):
        lines = (
            " ".join(" ".join(side[at : at + 4]).split()[:length])
            for at, length in enumerate(lengths)
        )
        (tmp_path / f"text.{code}").write_text("".join(f"{line}\n" for line in lines))
    arguments = (
        str(tmp_path / "text"),
        *changes,
        "--set",
        "train.max_length=200",
        "--set",
        "tokenizer.vocab_size=320",
    )
    table = script("extrapolation.sh", *arguments, SIZE="20", POSITIONS="none", **environment)
    assert table[0] == [
        "position encoding, seed",
        "up to 12 words",
        "13-16",
        "17-20",
        "more than 20",
    ]
    assert [row[0] for row in table[2:]] == ["position_encoding=none_seed=1"]


def test_wmt14_script(tmp_path: Path) -> None:
    directories = {"NMT_RUNS": str(tmp_path / "runs"), "NMT_DATA": str(tmp_path / "data")}
    trained = []
    for _ in range(2):  # completed steps are not repeated
        table = script("../wmt14.sh", "--stand-in", **directories)
        assert [row for row in table if row[0].startswith("BLEU")]
        trained.append(
            {
                path: path.stat().st_mtime_ns
                for path in sorted((tmp_path / "runs").rglob("*/*.safetensors"))
            }
        )
    assert trained[0] == trained[1]
    run = tmp_path / "runs" / "wmt14-stand-in"
    assert sorted(path.name for path in run.glob("step-*")) == [
        f"step-{n:06d}" for n in range(4, 21, 4)
    ]
    config = yaml.safe_load((run / "config.yaml").read_text())
    paper = yaml.safe_load((ROOT / "configs" / "wmt14-base.yaml").read_text())
    assert config["search"] == paper["search"] == "beam(beam_size=4, length_penalty=0.6)"
    assert config["train"]["schedule"] == paper["train"]["schedule"]
    assert [path.parent.name for path in run.glob("eval/**/*.json")] == ["average-5"]
    assert script("../wmt14.sh", "--elsewhere", code=2) == []
    assert script("../wmt14.sh", "--stand-in", code=2, GPUS="9") == []
    if not shutil.which("nvidia-smi"):
        assert script("../wmt14.sh", code=1, GPUS="") == []


def test_fine_tuning_script(pristine: Path, tmp_path: Path) -> None:
    source, target = sentences(300)
    for name, part in (("train", slice(0, 60)), ("valid", slice(60, 70)), ("test", slice(70, 80))):
        (tmp_path / "multi30k").mkdir(exist_ok=True)
        write(tmp_path / "multi30k" / name, source[part], target[part])
    write(tmp_path / "software", source[80:140], target[80:140])
    write(tmp_path / "general", source[140:], target[140:])
    corpus = f"files(train='{tmp_path / 'general'}')"
    directories = {"NMT_RUNS": str(tmp_path / "runs"), "NMT_DATA": str(tmp_path / "data")}
    environment = directories | {
        "MULTI30K": str(tmp_path / "multi30k"),
        "REPLAY": corpus,
        "GENERAL": corpus,
    }
    tiny = str((pristine / "runs" / "tiny").relative_to("/"))
    changes = ("--set=train.steps=2", "--set=train.calibration_pairs=0")
    arguments = (tiny, str((tmp_path / "software").relative_to("/")), *changes)
    # Completed runs are not repeated.
    tables = [script("../finetune.sh", *arguments, **environment) for _ in range(2)]
    assert tables[0] == tables[1]
    assert [row[:2] for row in tables[0][2:]] == [
        [a, b] for a in ("multi30k", "software") for b in ("no", "yes")
    ]
    assert all(re.fullmatch(r"\d+\.\d", cell) for row in tables[0][2:] for cell in row[2:])
    assert all(len(row) == 6 for row in tables[0][2:])
    for wrong in (
        [],
        ["en-de"],
        ["en-de", "nowhere"],
        [*arguments[:2], "--resume"],
        arguments[:2],
    ):
        assert script("../finetune.sh", *wrong, code=2, **environment) == []


def test_student_script(tmp_path: Path) -> None:
    source, target = sentences(64)
    write(tmp_path / "train", source[:60], target[:60])
    write(tmp_path / "test", source[60:], target[60:])
    corpus = f"files(train='{tmp_path}/train', valid='{tmp_path}/test', test='{tmp_path}/test')"
    environment = {"NMT_RUNS": str(tmp_path / "runs"), "NMT_DATA": str(tmp_path / "data")}
    short = {"train.steps": "2", "train.valid_every": "2", "train.calibration_pairs": "0"}
    changes = [f"--set={name}={value}" for name, value in (TINY | short).items()]
    tables = [script("../student.sh", "en-de", corpus, *changes, **environment) for _ in range(2)]
    rows = [row[:3] for row in tables[0][2:]]
    settings = [["fp32", "beam(beam_size=4)"], ["int8", "beam(beam_size=4)"], ["int8", "greedy"]]
    assert rows == [[name, *setting] for name in ("teacher", "student") for setting in settings]
    # The student is not trained again.
    assert [row[3] for row in tables[0]] == [row[3] for row in tables[1]]
    for wrong in (
        [],
        ["en-de"],
        ["en-de", corpus, "--resume"],
        ["en-de", corpus],
    ):
        assert script("../student.sh", *wrong, code=2, **environment) == []


FIREFOX_STUDENT = {
    "tokenizer.vocab_size": "304",
    "model.dim": "64",
    "model.heads": "4",
    "model.ffn_dim": "64",
    "model.encoder_layers": "1",
    "model.decoder_layers": "1",
    "train.batch_tokens": "600",
    "train.steps": "20",
    "train.schedule": "linear(peak=1e-2, warmup=5)",
    "train.valid_every": "20",
}


@pytest.mark.slow
def test_student_script_exports_to_firefox(tmp_path: Path) -> None:
    pytest.importorskip("fxtranslate", reason="fxtranslate is not installed")
    source, target = sentences(64)
    write(tmp_path / "train", source[:60], target[:60])
    write(tmp_path / "test", source[60:], target[60:])
    corpus = f"files(train='{tmp_path}/train', valid='{tmp_path}/test', test='{tmp_path}/test')"
    runs = tmp_path / "runs"
    environment = {"NMT_RUNS": str(runs), "NMT_DATA": str(tmp_path / "data"), "TO": "firefox"}
    environment["ROUNDED_STEPS"] = "4"
    changes = [f"--set={name}={value}" for name, value in FIREFOX_STUDENT.items()]
    table = script("../student.sh", "en-de", corpus, *changes, **environment)
    assert len(table) == 8
    student = runs / "students/en-de-rounded"
    names = [path.name for path in student.joinpath("firefox").iterdir()]
    assert {"model.ende.intgemm.alphas.bin", "vocab.ende.spm"} <= set(names)
    assert any(name.endswith(".s2t.bin") for name in names)
    wrong = script("../student.sh", "en-de", corpus, code=2, **environment | {"TO": "onnx"})
    assert wrong == []


def test_general_models_from_corpora_to_packages(tmp_path: Path) -> None:
    source, target = sentences(900)
    rows = zip(source[:700], target[:700], strict=True)
    (tmp_path / "prose.tsv").write_text(
        "".join(f"tale\t{english}\t{german}\n" for english, german in rows)
    )
    for name, part in (
        ("web", slice(600, 750)),
        ("valid", slice(750, 770)),
        ("test", slice(770, 790)),
    ):
        write(tmp_path / name, source[part], target[part])
    write(tmp_path / "mono", source[790:], target[790:])
    write(tmp_path / "short", ["how are you"], ["Wie geht's?"])
    prose = (
        f"files(train='{tmp_path}/prose.tsv', columns=('kind', 'en', 'de'), weight=40,"
        " hold_out=False, license='X')"
    )
    web, valid, test = (
        f"files({split}='{tmp_path}/{name}')"
        for split, name in (("train", "web"), ("valid", "valid"), ("test", "test"))
    )
    config = {
        "data": {
            "train": [prose, web],
            "valid": valid,
            "test": test,
            "placeholders": True,
            "clean": ["normalize"],
        },
        "tokenizer": {"vocab_size": int(TINY["tokenizer.vocab_size"])},
        "model": {"dim": 64, "heads": 2, "ffn_dim": 64, "encoder_layers": 1, "decoder_layers": 1},
        "train": {
            "steps": 40,
            "batch_tokens": 512,
            "valid_every": 40,
            "valid_pairs": 4,
            "calibration_pairs": 0,
            "optimizer": "muon",
            "schedule": "linear(peak=2e-2, warmup=10)",
        },
    }
    (tmp_path / "corpora.yaml").write_text(yaml.safe_dump(config))
    directories = {"NMT_RUNS": "runs", "NMT_DATA": "data", "PRETRAINED_DIR": "pretrained"}
    environment = {name: str(tmp_path / path) for name, path in directories.items()}
    environment |= {
        "CONFIG": str(tmp_path / "corpora.yaml"),
        "MONO": str(tmp_path / "mono"),
        "TESTS": f"{test} files(test='{tmp_path}/short')",
    }
    environment |= {"TRAIN": "--set train.keep_last=1", "ROUNDS": "1"}
    environment |= {"MIN_AGREEMENT": "0.2"}  # a model of 40 updates repeats itself
    text = tmp_path / "data" / "general"
    # The text exists after a failure of the training, and is not written again: a part of it is
    # enough, and takes seconds less to prepare for each training.
    script("../train_general.sh", code=2, **environment | {"TRAIN": "--set train.steps=many"})
    assert "wrote a letter to the mayor." in (text / "names.en").read_text()
    assert not (tmp_path / "runs" / "general").exists()
    written = ("short-en-de", "short-de-en", "numbers", "names")
    short_texts = (text / "short-en-de.en").read_text().splitlines()
    assert "Bye!" in short_texts
    assert "How are you?" not in short_texts  # a sentence of the second test set
    for path in [text / f"{name}.{code}" for name in written for code in ("en", "de")]:
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(lines[:100]))
    trained = []
    for _ in range(2):  # a finished run is not repeated
        script("../train_general.sh", **environment)
        trained.append(
            {
                path: path.stat().st_mtime_ns
                for path in sorted((tmp_path / "runs").rglob("*.safetensors"))
            }
        )
    assert trained[0] == trained[1]
    runs = {
        f"{round_number}/{direction}" for round_number in (0, 1) for direction in ("en-de", "de-en")
    }
    assert {
        str(path.parent.relative_to(tmp_path / "runs" / "general"))
        for path in (tmp_path / "runs").rglob("config.yaml")
    } == runs
    assert len((text / "names.en").read_text().splitlines()) == 100
    cleaned = (text / "clean" / "prose.en").read_text().splitlines()
    assert cleaned
    assert not {*cleaned} & {*source[770:790]}  # no sentence of the test set
    assert {*(text / "round-1-de" / "train.de").read_text().splitlines()} <= {*target[790:]}
    for direction in ("en-de", "de-en"):
        saved = discovery.load(tmp_path / "pretrained" / direction)
        assert f"{saved.config.data.src}-{saved.config.data.tgt}" == direction
        assert (
            str(tmp_path / "data")
            not in (tmp_path / "pretrained" / direction / "config.yaml").read_text()
        )
        last = discovery.load(tmp_path / "runs" / "general" / "1" / direction)
        assert "weight=40" in last.config.data.train[0]
        back, forward = last.config.data.train[-2:]
        src, tgt = direction.split("-")
        assert f"round-1-{tgt}/" in back
        assert "tag=True" in back
        assert f"round-1-{src}/" in forward
    assert script("../train_general.sh", code=2, **environment | {"ROUNDS": "2"}) == []
    assert (
        script("../train_general.sh", code=2, **environment | {"MONO": str(tmp_path / "nowhere")})
        == []
    )
