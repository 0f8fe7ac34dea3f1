"""The experiment scripts, run for real on something small."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from commandline import TINY

ROOT = Path(__file__).resolve().parent.parent


def script(name: str, *arguments: str, **environment: str) -> list[list[str]]:
    """Run a script from another folder and return the cells of the table it prints."""
    if not (ROOT / ".venv" / ".installed-dev").exists():
        pytest.skip("the scripts use .venv, which scripts/test.sh makes")
    done = subprocess.run(
        [ROOT / "scripts" / "experiments" / name, *arguments],
        cwd="/", env=os.environ | environment | {"OMP_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [re.split(r" *\| *", line.strip("| ")) for line in done.stdout.splitlines()]


def test_the_experiments_print_their_tables(tmp_path: Path) -> None:
    sections = ("tokenizer", "model")
    tiny = {name: [f"{key.partition('.')[2]}: {TINY[key]}" for key in TINY if name in key] for name in sections}
    options = "".join(f"{name}: {{{', '.join(values)}}}\n" for name, values in tiny.items())
    config = tmp_path / "tiny.yaml"
    config.write_text(f"{options}train: {{batch_tokens: 512, valid_pairs: 20, valid_search: greedy}}\n")
    folders = {"NMT_RUNS": str(tmp_path / "runs"), "NMT_DATA": str(tmp_path / "data")}
    changes = ("--set", "train.steps=4", "--set", "train.valid_every=4")
    table = script("label_smoothing.sh", *changes, CONFIG=str(config), SEEDS="1", LIMIT="5m", **folders)
    assert [row[0].split(":")[0] for row in table[:3]] == [
        f"label_smoothing={value}_seed=1" for value in ("0", "0.1", "0.2")
    ]
    assert [row[0].split()[0] for row in table[-3:]] == [f"label_smoothing={value}" for value in ("0", "0.1", "0.2")]

    (run, *_) = sorted((tmp_path / "runs" / "experiments").rglob("config.yaml"))
    table = script("beam_size.sh", str(run.parent), SIZES="1 2", PENALTIES="0.0 1.0", **folders)
    assert table[0] == ["beam size", "length penalty 0.0", "length penalty 1.0"]
    assert [row[0] for row in table[2:]] == ["1", "2"]
    assert all(re.fullmatch(r"\d+\.\d+", cell) for row in table[2:] for cell in row[1:])
