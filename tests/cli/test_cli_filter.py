"""Tests of `nmt data filter`."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import tiny
from commandline import CommandLine

from nmt.core.compression import zstd
from nmt.data.pairs import write_pairs
from nmt.data.sources import open_split
from nmt.training.session import train

GOOD = [
    pair
    for pair in open_split("phrasebook", "train", "en", "de").pairs()
    if len(pair[0].split()) > 4
][:3000]
"""Pairs of the phrasebook."""


@pytest.fixture
def nmt(tmp_path: Path) -> CommandLine:
    """A directory with a corpus in which every fourth target is that of another source."""
    shuffled = [target for _, target in GOOD[::4]]
    random.Random(1).shuffle(shuffled)
    noisy = [*GOOD]
    for i, target in zip(range(0, len(GOOD), 4), shuffled, strict=True):
        noisy[i] = (GOOD[i][0], target)
    write_pairs(tmp_path / "noisy.en", tmp_path / "noisy.de", noisy)
    return CommandLine(tmp_path, {"NMT_DATA": "data"})


def kept(nmt: CommandLine, prefix: str = "clean") -> list[tuple[str, str]]:
    sides = [
        (nmt.directory / f"{prefix}.{code}").read_text(encoding="utf-8").splitlines()
        for code in ("en", "de")
    ]
    return list(zip(*sides, strict=True))


def scores(nmt: CommandLine) -> list[Path]:
    return sorted((nmt.directory / "data/filtered").glob("*/*.scores"))


@pytest.mark.slow
def test_bad_pairs_are_dropped(nmt: CommandLine) -> None:
    done = nmt.run("data", "filter", "noisy.en", "noisy.de", "-o", "clean")
    counts = json.loads(done.out)
    good = set(GOOD)
    pairs = kept(nmt)
    assert counts["pairs"] == 3000
    assert counts["kept"] == len(pairs)
    num_good = sum(pair in good for pair in pairs)
    assert num_good > 0.8 * 2250
    assert len(pairs) - num_good < 0.4 * 750
    # Another threshold uses the same scores.
    before = [path.stat().st_mtime_ns for path in scores(nmt)]
    options = ("-o", "half", "--keep", "0.5", "--compress")
    done = nmt.run("data", "filter", "noisy.en", "noisy.de", *options)
    assert abs(json.loads(done.out)["kept"] - 1500) < 20
    assert [path.stat().st_mtime_ns for path in scores(nmt)] == before
    with zstd.open(nmt.directory / "half.en.zst") as file:
        assert len(file.read().splitlines()) == json.loads(done.out)["kept"]


@pytest.mark.slow
def test_parts_give_the_same_pairs(nmt: CommandLine) -> None:
    command = ("data", "filter", "noisy.en", "noisy.de", "-o")
    nmt.run(*command, "alone")
    nmt.environment["NMT_DATA"] = "other"
    first = nmt.run(*command, "parts", "--shard", "2/2")
    assert first.out == ""
    assert "shard 2/2 is scored" in first.err
    nmt.run(*command, "parts", "--shard", "1/2")
    assert kept(nmt, "parts") == kept(nmt, "alone")


@pytest.mark.slow
def test_a_model_that_was_trained_again_scores_again(nmt: CommandLine, tmp_path: Path) -> None:
    write_pairs(tmp_path / "noisy.en", tmp_path / "noisy.de", GOOD[:200])
    command = ("data", "filter", "noisy.en", "noisy.de", "-o", "clean")
    models = ("--forward", "forward", "--reverse", "reverse")
    text = tmp_path / "copy"
    text.mkdir()
    train(tiny.config(text, "data.src=de", "data.tgt=en", "train.steps=1"), tmp_path / "reverse")
    for seed in (1, 2):
        shutil.rmtree(tmp_path / "forward", ignore_errors=True)
        train(tiny.config(text, f"seed={seed}", "train.steps=1"), tmp_path / "forward")
        nmt.run(*command, *models)
    nmt.run(*command, *models)
    assert len(scores(nmt)) == 2


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["noisy.en", "noisy.de"], 2, "--output is missing"),
        (["-o", "clean"], 2, "pass either files or --config"),
        (["noisy.en", "noisy.de", "-o", "x", "--keep", "0.5", "--min-score", "1"], 2, "exclude"),
        (["noisy.en", "noisy.de", "-o", "x", "--forward", "en-de"], 2, "need each other"),
        (["noisy.en", "noisy.de", "-o", "noisy"], 2, "noisy.en"),
        (["noisy.en", "noisy.de", "-o", "x", "--keep", "0"], 2, "would keep no pair"),
        (["noisy.en", "noisy.de", "-o", "x", "--keep", "nan"], 2, "would keep no pair"),
        (["noisy.en", "noisy.de", "-o", "x", "--set", "seed=2"], 2, "--set requires --config"),
        (["-c", "quickstart", "-o", "x", "--src-lang", "de"], 2, "--src-lang and --tgt-lang are"),
        (["noisy.en", "noisy.de", "-o", "x", "--min-score", "nan"], 2, "must be at most 0"),
        (["noisy.en", "noisy.de", "-o", "x", "--min-score", "5"], 2, "must be at most 0"),
        (["noisy.en", "none.de", "-o", "x"], 1, "no such file: none.de"),
        (["empty.en", "empty.de", "-o", "x"], 1, "no sentence pairs to learn from"),
        (["noisy.en", "noisy.de", "-o", "x", "--executor", "slurm"], 2, "unknown --executor"),
        (["noisy.en", "noisy.de", "-o", "x", "--shard", "3/2"], 2, "--shard must be I/N"),
        (
            ["noisy.en", "noisy.de", "-o", "x", "--forward", "en-de", "--reverse", "en-de"],
            2,
            "opposite directions",
        ),
    ],
)
def test_errors_are_one_line(nmt: CommandLine, options: list[str], code: int, message: str) -> None:
    for language in ("en", "de"):
        (nmt.directory / f"empty.{language}").write_text("\n")
    done = nmt("data", "filter", *options)
    done.assert_fails(code, message)
    assert not (nmt.directory / "x.en").exists()
