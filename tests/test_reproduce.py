from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from commandline import CommandLine, write


@pytest.mark.slow
def test_a_run_made_again_is_equal_to_the_last_bit(nmt: CommandLine) -> None:
    done = nmt.process("reproduce", "runs/tiny")  # a process whose hash seed is another one
    assert done.code == 0, done.err
    assert "the weights are bitwise identical" in done.out
    one, other = ((nmt.folder / f"runs/{name}").glob("step-*/model.safetensors") for name in ("tiny", "tiny-again"))
    assert [path.read_bytes() for path in sorted(one)] == [path.read_bytes() for path in sorted(other)]
    scores = [line.split() for line in done.out.splitlines()[1:-1]]
    assert {name: before == now for name, before, now in scores}.keys() >= {"valid_loss", "valid_bleu"}
    assert all(before == now for _, before, now in scores)
    again = nmt.folder / "runs/tiny-again/config.yaml"
    again.write_text(again.read_text().replace("seed: 1\n", "seed: 2\n"))
    nmt("reproduce", "runs/tiny").refuses(2, "runs/tiny-again already holds a run")


def test_what_was_not_as_it_was_is_told(nmt: CommandLine) -> None:
    sessions = nmt.folder / "runs/tiny/sessions.jsonl"
    note = json.loads(sessions.read_text())
    note["environment"]["torch"] = "1.0"
    sessions.write_text(json.dumps(note) + "\n")
    config = nmt.folder / "runs/tiny/config.yaml"
    config.write_text(config.read_text().replace("seed: 1\n", "seed: 2\n"))
    done = nmt("reproduce", "runs/tiny", "--run", "runs/other")
    assert done.code == 3, done.err
    assert "the weights differ" in done.out
    assert "trained with torch 1.0 instead of " in done.out
    assert (nmt.folder / "runs/other/config.yaml").read_text() == config.read_text()


def test_other_text_is_refused_unless_told_so(nmt: CommandLine) -> None:
    lines = (nmt.folder / "text.en").read_text().splitlines()
    write(nmt.folder / "text", ["another one", *lines[1:]], (nmt.folder / "text.de").read_text().splitlines())
    done = nmt("reproduce", "runs/tiny")
    done.refuses(
        1, "text/train", "not what runs/tiny was trained on", "hint: put the text back", "--allow-changed-data"
    )
    assert not (nmt.folder / "runs/tiny-again").exists()
    assert nmt("reproduce", "runs/tiny", "--allow-changed-data").code == 3


@pytest.mark.parametrize("name", ["nowhere", "runs"])
def test_what_is_no_run_is_refused(trained: CommandLine, name: str, tmp_path: Path) -> None:
    trained("reproduce", name, "--run", tmp_path / "x").refuses(1, f"{name} is no run with a checkpoint")


def test_damaged_records_are_refused(nmt: CommandLine) -> None:
    (nmt.folder / "runs/tiny/data.json").write_text('{"longest_source": 9}')
    nmt("reproduce", "runs/tiny").refuses(1, "data.json is damaged")


def test_a_tokenizer_that_is_another_one_is_refused(nmt: CommandLine) -> None:
    path = nmt.folder / "runs/tiny/data.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"tokenizer": "0" * 64}))
    nmt("reproduce", "runs/tiny").refuses(1, "the tokenizer is not what runs/tiny was trained on")


@pytest.mark.slow
def test_a_reproduction_that_was_stopped_goes_on(nmt: CommandLine) -> None:
    corpus, long = "files(train='text')", {"train__steps": "100", "train__valid_every": "20"}
    assert nmt.train("runs/long", corpus, **long).code == 0
    process = nmt.start("reproduce", "runs/long")
    while not list((nmt.folder / "runs/long-again").glob("step-*")):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert out == b""
    assert b"the reproduction was stopped" in err
    done = nmt("reproduce", "runs/long")
    assert done.code == 0, done.err
    assert "the weights are bitwise identical" in done.out


def test_a_run_that_was_stopped_is_to_be_finished_first(nmt: CommandLine) -> None:
    run = nmt.folder / "runs/tiny"
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("steps: 20\n", "steps: 40\n"))
    nmt("reproduce", "runs/tiny").refuses(2, "was stopped before its end", "nmt train --run runs/tiny --resume")
    sessions = run / "sessions.jsonl"
    sessions.write_text(json.dumps(json.loads(sessions.read_text()) | {"time_limit": 9.0}) + "\n")
    done = nmt("reproduce", "runs/tiny")
    assert "20 of 40 updates: it gets as long again" in done.err
    assert done.code in (0, 3)


def test_two_corpora_of_one_name_are_both_compared(nmt: CommandLine) -> None:
    path = nmt.folder / "runs/tiny/data.json"
    meta = json.loads(path.read_text())
    meta["recipe"]["train"].insert(0, [meta["recipe"]["train"][0][0], "0" * 64])
    path.write_text(json.dumps(meta))
    nmt("reproduce", "runs/tiny").refuses(1, "text/train is not what runs/tiny was trained on")
