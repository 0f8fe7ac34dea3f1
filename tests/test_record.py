"""The record of a run: all that a number depends on, gathered from its folder."""

from __future__ import annotations

import hashlib
import json
import re
import shutil

import yaml
from commandline import CommandLine, write

from nmt.record import CARD, MARK, environment, gather, told, write_card


def test_a_run_says_everything_about_itself(nmt: CommandLine) -> None:
    write(nmt.folder / "probe", ["the dog"], ["der Hund"])
    assert nmt("evaluate", "--src", "probe.en", "--ref", "probe.de").code == 0
    run = nmt.folder / "runs/tiny"
    found = gather(run)
    assert json.loads(json.dumps(found)) == found
    (session,) = found["sessions"]
    assert (session["step"], session["device"], session["processes"]) == (0, "cpu", 1)
    assert session["environment"].keys() == environment().keys()
    assert session["environment"]["threads"] == 1
    assert found["tokenizer"]["sha256"] == hashlib.sha256((run / "spm.model").read_bytes()).hexdigest()
    (corpus,) = found["data"]["train"]
    assert re.fullmatch(r"[0-9a-f]{64}", corpus["sha256"])
    assert found["training"]["updates"] == found["training"]["of"] == 20
    assert found["training"]["tokens"] > 0
    assert found["training"]["hours"] > 0
    assert [point["step"] for point in found["curve"]] == [10, 20]
    (test,) = [test for test in found["tests"] if test["test"] == "probe.en"]
    assert test["lines"] == 1
    assert "version:" in test["scores"][0]["signature"]
    weights = sum(size for size in (path.stat().st_size for path in run.glob("step-*/model.safetensors")))
    assert found["bytes"] > weights
    assert 0.9 < 4 * found["parameters"] * len(found["checkpoints"]) / weights <= 1


def test_info_shows_it_on_one_screen(trained: CommandLine) -> None:
    done = trained("info", "runs/tiny")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "runs/tiny"
    assert len(lines) < 40
    assert max(map(len, lines)) <= 120
    subjects = [line.split(" ")[0] for line in lines[1:] if not line.startswith(" ")]
    assert subjects == [*told(gather(trained.folder / "runs/tiny"))]
    assert {"model", "tokenizer", "data", "training", "sessions", "curve", "best", "disk"} <= {*subjects}
    assert json.loads(trained("info", "--json").out)["name"] == "tiny"
    trained("info", "runs").refuses(1, "runs is no run with a checkpoint")


def test_the_card_has_the_hubs_metadata_and_follows_the_run(nmt: CommandLine) -> None:
    shutil.rmtree(nmt.folder / "runs/tiny/eval", ignore_errors=True)
    card = write_card(nmt.folder / "runs/tiny")
    assert card == nmt.folder / "runs/tiny" / CARD
    head, body = card.read_text().split("---\n", 2)[1:]
    metadata = yaml.safe_load(head)
    assert metadata["language"] == ["en", "de"]
    assert metadata["pipeline_tag"] == "translation"
    assert metadata["model-index"] == [{"name": "tiny", "results": []}]
    assert "20 of 20 updates" in body
    write(nmt.folder / "probe", ["the dog"], ["der Hund"])
    assert nmt("evaluate", "--src", "probe.en", "--ref", "probe.de", "--chrf").code == 0
    (result,) = yaml.safe_load(card.read_text().split("---\n", 2)[1])["model-index"][0]["results"]
    assert result["dataset"]["name"] == "probe.en"
    assert result["metrics"][0]["type"] == "chrf2"
    assert "chrF2" in card.read_text().split("---\n", 2)[2]


def test_a_card_that_a_person_wrote_stays(nmt: CommandLine) -> None:
    card = nmt.folder / "runs/tiny" / CARD
    assert MARK in card.read_text()
    card.write_text("mine\n")
    write(nmt.folder / "probe", ["the dog"], ["der Hund"])
    assert nmt("evaluate", "--src", "probe.en", "--ref", "probe.de").code == 0
    assert card.read_text() == "mine\n"


def test_every_session_is_noted(nmt: CommandLine) -> None:
    assert nmt("train", "--run", "runs/tiny", "--resume", "--set", "train.steps=22").code == 0
    found = gather(nmt.folder / "runs/tiny")
    assert [session["step"] for session in found["sessions"]] == [0, 20]
    assert len(told(found)["sessions"]) == 2


def test_what_is_damaged_or_missing_is_left_out(nmt: CommandLine) -> None:
    run = nmt.folder / "runs/tiny"
    (run / "sessions.jsonl").write_text('{"step": 1}\n{"began')
    (run / "data.json").write_text('{"longest_source": 9}')
    (run / "metrics.jsonl").unlink()
    lines = told(gather(run))
    assert "sessions" not in lines
    assert "curve" not in lines
    assert nmt("info", "runs/tiny").code == 0


def test_a_training_whose_card_cannot_be_written_is_saved_all_the_same(nmt: CommandLine) -> None:
    (nmt.folder / "runs/new" / CARD).mkdir(parents=True)
    done = nmt.train("runs/new", "files(train='text')")
    assert done.code == 0, done.err
    assert "no model card: cannot write runs/new/README.md" in done.err
    assert done.out.startswith("runs/new/step-0000")
