"""The record of a run: all that a number depends on, gathered from its folder."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import tiny
import yaml
from commandline import CommandLine, write

from nmt.runs.model_card import CARD, MARK, describe, write_card
from nmt.runs.run_info import _thinned, collect, environment
from nmt.train.session import train


def test_a_run_says_everything_about_itself(nmt: CommandLine) -> None:
    write(nmt.folder / "probe", ["the dog"], ["der Hund"])
    assert nmt("evaluate", "--src", "probe.en", "--ref", "probe.de").code == 0
    run = nmt.folder / "runs/tiny"
    found = collect(run)
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


def test_a_model_is_told_with_all_that_is_not_as_usual(tmp_path: Path) -> None:
    options = ("model.kv_heads=1", "model.attention_window=3", "model.activation=swiglu", "train.steps=2")
    for name, changes in {"variant": options, "rnn": ("model.arch=rnn", "train.steps=2")}.items():
        train(tiny.config(tmp_path, *changes), tmp_path / name)
    (line,) = describe(collect(tmp_path / "variant"))["model"]
    assert line.endswith("sinusoidal positions, activation=swiglu, window=3, kv_heads=1")
    assert collect(tmp_path / "variant")["model"]["window"] == 3
    found = collect(tmp_path / "rnn")
    assert describe(found)["model"][0].endswith("layers, width 16")
    assert set(found["model"]) == {"arch", "dim", "encoder_layers", "decoder_layers", "dropout", "tied"}


def test_info_shows_it_on_one_screen(trained: CommandLine) -> None:
    done = trained("info", "runs/tiny")
    assert done.code == 0, done.err
    lines = done.out.splitlines()
    assert lines[0] == "runs/tiny"
    assert len(lines) < 40
    assert max(map(len, lines)) <= 120
    subjects = [line.split(" ")[0] for line in lines[1:] if not line.startswith(" ")]
    assert subjects == [*describe(collect(trained.folder / "runs/tiny"))]
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
    found = collect(nmt.folder / "runs/tiny")
    assert [session["step"] for session in found["sessions"]] == [0, 20]
    assert len(describe(found)["sessions"]) == 2


def test_what_is_damaged_or_missing_is_left_out(nmt: CommandLine) -> None:
    run = nmt.folder / "runs/tiny"
    (run / "sessions.jsonl").write_text('{"step": 1}\n{"began')
    (run / "data.json").write_text('{"longest_source": 9}')
    (run / "metrics.jsonl").unlink()
    lines = describe(collect(run))
    assert "sessions" not in lines
    assert "curve" not in lines
    assert nmt("info", "runs/tiny").code == 0


def test_a_training_whose_card_cannot_be_written_is_saved_all_the_same(nmt: CommandLine) -> None:
    (nmt.folder / "runs/new" / CARD).mkdir(parents=True)
    done = nmt.train("runs/new", "files(train='text')")
    assert done.code == 0, done.err
    assert "no model card: cannot write runs/new/README.md" in done.err
    assert done.out.startswith("runs/new/step-0000")


def test_the_last_points_of_a_curve_stay() -> None:
    points = [{"step": i, "valid_bleu": 1.0} for i in range(1, 34)]
    thinned = _thinned(points)
    assert len(thinned) <= 16
    assert thinned[-1]["step"] == 33
    assert [p["step"] for p in thinned] == sorted(p["step"] for p in thinned)


def test_what_is_told_is_what_was_gathered(trained: CommandLine) -> None:
    found = collect(trained.folder / "runs/tiny")
    found["training"]["of"] = 40
    found["data"]["pairs"] = {"train": 1000, "valid": 7}
    lines = describe(found)
    assert "20 of 40 updates" in lines["training"][0]
    assert lines["data"][-2].startswith("1,000 pairs")
    assert ", 7 pairs, " in lines["data"][-1]


def test_the_best_validation_is_that_of_the_best_checkpoint(nmt: CommandLine) -> None:
    run = nmt.folder / "runs/tiny"
    for step, quality in ((10, 9.0), (20, 3.0)):
        path = run / f"step-{step:06d}" / "meta.json"
        meta = json.loads(path.read_text())
        meta["progress"] |= {"best": 9.0, "validations_since_best": int(step == 20)}
        meta["progress"]["scores"] |= {"valid_bleu": quality, "quality": quality}
        path.write_text(json.dumps(meta))
    best = collect(run)["best"]
    assert (best["checkpoint"], best["validation"]["valid_bleu"]) == ("step-000010", 9.0)


def test_what_others_put_beside_the_reports_is_left_alone(nmt: CommandLine) -> None:
    folder = nmt.folder / "runs/tiny/eval"
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(("[]", "{", "{}", '{"test": "x", "scores": [{}]}', '{"model": 1, "scores": 2}')):
        (folder / f"{number}.json").write_text(text)
    (nmt.folder / "runs/tiny/sessions.jsonl").write_text('{"began": "", "step": 1, "environment": {}}\n[]\n')
    with open(nmt.folder / "runs/tiny/metrics.jsonl", "a", encoding="utf-8") as log:
        log.write('{"step": 21, "valid_loss": 1.0, "valid_bleu": null}\n')
    assert nmt("info", "runs/tiny").code == 0
    write(nmt.folder / "probe", ["the dog"], ["der Hund"])
    assert nmt("evaluate", "--src", "probe.en", "--ref", "probe.de").code == 0


def test_damaged_checkpoints_do_not_hide_the_run(nmt: CommandLine) -> None:
    run = nmt.folder / "runs/tiny"
    best, last = collect(run)["best"]["checkpoint"], "step-000020"
    if best == last:
        shutil.copytree(run / last, run / "step-000030")
        last = "step-000030"
    (run / last / "meta.json").write_text("{")
    done = nmt("info", "runs/tiny")
    assert done.code == 0, done.err
    weights = run / best / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    nmt("info", "runs/tiny").refuses(1, "model.safetensors is damaged")


def test_a_score_is_told_with_its_checkpoint_and_the_card_has_the_bests(nmt: CommandLine) -> None:
    shutil.rmtree(nmt.folder / "runs/tiny/eval", ignore_errors=True)
    write(nmt.folder / "probe", ["the dog"], ["der Hund"])
    best = collect(nmt.folder / "runs/tiny")["best"]["checkpoint"]
    (other,) = {"step-000010", "step-000020"} - {best}
    for name in (best, other):
        assert nmt("evaluate", "--model", f"runs/tiny/{name}", "--src", "probe.en", "--ref", "probe.de").code == 0
    found = collect(nmt.folder / "runs/tiny")
    lines = describe(found)["test"]
    assert [line.partition(":")[0] for line in lines if "probe.en" in line] == ["step-000010", "step-000020"]
    card = (nmt.folder / "runs/tiny" / CARD).read_text()
    results = yaml.safe_load(card.split("---\n", 2)[1])["model-index"][0]["results"]
    assert [result["dataset"]["name"] for result in results] == ["probe.en"]
