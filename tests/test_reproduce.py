from __future__ import annotations

import json
from pathlib import Path

import pytest
from commandline import CommandLine, write


def test_a_run_made_again_is_equal_to_the_last_bit(nmt: CommandLine) -> None:
    done = nmt("reproduce", "runs/tiny")
    assert done.code == 0, done.err
    assert "the weights are equal to the last bit" in done.out
    one, other = ((nmt.folder / f"runs/{name}").glob("step-*/model.safetensors") for name in ("tiny", "tiny-again"))
    assert [path.read_bytes() for path in sorted(one)] == [path.read_bytes() for path in sorted(other)]
    scores = [line.split() for line in done.out.splitlines()[1:-1]]
    assert {name: before == now for name, before, now in scores}.keys() >= {"valid_loss", "valid_bleu"}
    assert all(before == now for _, before, now in scores)
    nmt("reproduce", "runs/tiny").refuses(2, "runs/tiny-again already holds a run")


def test_what_was_not_as_it_was_is_told(nmt: CommandLine) -> None:
    sessions = nmt.folder / "runs/tiny/sessions.jsonl"
    note = json.loads(sessions.read_text())
    note["environment"]["torch"] = "1.0"
    sessions.write_text(json.dumps(note) + "\n")
    config = nmt.folder / "runs/tiny/config.yaml"
    config.write_text(config.read_text().replace("seed: 1\n", "seed: 2\n"))
    done = nmt("reproduce", "runs/tiny", "--run", "runs/other")
    assert done.code == 0, done.err
    assert "the weights differ" in done.out
    assert "trained with torch 1.0 instead of " in done.out
    assert (nmt.folder / "runs/other/config.yaml").read_text() == config.read_text()


def test_other_text_is_refused_unless_told_so(nmt: CommandLine) -> None:
    lines = (nmt.folder / "text.en").read_text().splitlines()
    write(nmt.folder / "text", ["another one", *lines[1:]], (nmt.folder / "text.de").read_text().splitlines())
    done = nmt("reproduce", "runs/tiny")
    done.refuses(1, "text/train", "not what runs/tiny was trained on", "hint: put the text back", "--changed-data")
    assert not (nmt.folder / "runs/tiny-again").exists()
    assert nmt("reproduce", "runs/tiny", "--changed-data").code == 0


@pytest.mark.parametrize("name", ["nowhere", "runs"])
def test_what_is_no_run_is_refused(trained: CommandLine, name: str, tmp_path: Path) -> None:
    trained("reproduce", name, "--run", tmp_path / "x").refuses(1, f"{name} is no run with a checkpoint")


def test_damaged_records_are_refused(nmt: CommandLine) -> None:
    (nmt.folder / "runs/tiny/data.json").write_text('{"longest_source": 9}')
    nmt("reproduce", "runs/tiny").refuses(1, "data.json is damaged")
