"""The models that come with nmt: there without a download, small, and good enough for what people type first."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from commandline import CommandLine

from nmt import Translator
from nmt.runs import discovery, pretrained

ROOT = Path(__file__).resolve().parent.parent
MEGABYTES = 12
SENTENCES = {
    "en-de-small": {
        "im thirsty": "Ich habe Durst.",
        "I'm thirsty.": "Ich habe Durst.",
        "i love you": "Ich liebe dich.",
        "I LOVE YOU": "Ich liebe dich.",
        "WHERE IS THE STATION?": "Wo ist der Bahnhof?",
        "Good morning!": "Guten Morgen!",
        "are we done": "Sind wir fertig?",
        "Thank you.": "Danke.",
        "hi": "Hallo!",
        "how are you": "Wie geht es dir?",
        "merry christmas": "Frohe Weihnachten!",
        "good luck": "Viel Glück!",
    },
    "de-en-small": {
        "Ich habe Durst.": "I'm thirsty.",
        "ich habe durst": "I'm thirsty.",
        "wo ist der bahnhof": "Where is the station?",
        "Ich liebe dich.": "I love you.",
        "Guten Morgen!": "Good morning!",
        "Danke schön.": "Thank you very much.",
        "tschüss": "Bye!",
        "wie heißt du": "What's your name?",
        "gute nacht": "Good night!",
    },
}


@pytest.fixture
def bare(tmp_path: Path) -> CommandLine:
    """A folder in which nothing was trained."""
    return CommandLine(tmp_path)


@pytest.mark.parametrize("name", pretrained.DIRECTIONS)
def test_a_model_is_whole_small_and_described(name: str) -> None:
    folder = pretrained.FOLDER / name
    loaded = discovery.load(Path(name))
    assert (loaded.config.data.src, loaded.config.data.tgt) == pretrained.DIRECTIONS[name]
    assert sum(path.stat().st_size for path in folder.rglob("*")) < MEGABYTES * 2**20
    card = (folder / "README.md").read_text()
    for needed in ("tatoeba.org", "CC BY 2.0 FR", "manythings.org", "Europarl", "scripts/train_pretrained.sh", "BLEU"):
        assert needed in card
    text = "".join(path.read_text() for path in folder.rglob("*.*") if path.suffix in (".md", ".json", ".yaml"))
    assert not re.search(r"/(work|tmp|home|root|Users)/", text)


@pytest.mark.parametrize("name", pretrained.DIRECTIONS)
def test_what_people_type_first(name: str) -> None:
    sentences = SENTENCES[name]
    assert dict(zip(sentences, Translator.load(name).translate(sentences), strict=True)) == sentences


def test_without_a_run_and_a_model_the_one_that_comes_with_nmt_is_used_and_named(bare: CommandLine) -> None:
    done = bare("translate", "im thirsty")
    assert (done.code, done.out) == (0, "Ich habe Durst.\n")
    assert done.err.count("en-de-small, a small model") == 1
    assert done.err.count("\n") == 1
    done = bare("translate", "--to", "en", "Ich habe Durst.", "Guten Morgen!")
    assert (done.code, done.out) == (0, "I'm thirsty.\nGood morning!\n")
    assert done.err.count("de-en-small, a small model") == 1
    done = bare("translate", "--model", "en-de-small", "im thirsty")
    assert (done.code, done.out, done.err) == (0, "Ich habe Durst.\n", "")
    assert list(bare.folder.iterdir()) == []  # nothing is written where it is called


def test_languages_that_no_model_has(bare: CommandLine) -> None:
    bare("translate", "--to", "fr", "hi").refuses(1, "no model under runs/ translates into 'fr'", "nmt brings de, en")
    bare("translate", "--to", "en", "-m", "en-de-small", "hi").refuses(2, "en-de-small translates into 'de', not 'en'")


def test_a_run_comes_before_the_models_that_come_with_nmt(trained: CommandLine) -> None:
    assert "using runs/tiny/step-" in trained("translate", "the dog").err
    assert "using runs/tiny/step-" in trained("translate", "the dog", "--to", "de").err
    assert "using de-en-small, a small model" in trained("translate", "der Hund", "--to", "en").err


def test_a_folder_of_that_name_is_taken_instead(trained: CommandLine) -> None:
    shutil.copytree(trained.folder / "runs" / "tiny", trained.folder / "en-de-small")
    try:
        own = trained("translate", "the dog", "-m", "en-de-small").out
        assert own == trained("translate", "the dog", "-m", "runs/tiny").out
    finally:
        shutil.rmtree(trained.folder / "en-de-small")


def test_what_is_made_of_it_goes_to_the_users_folders(bare: CommandLine) -> None:
    before = digests()
    (bare.folder / "a.en").write_text("are we done\n")
    (bare.folder / "a.de").write_text("Sind wir fertig?\n")
    (bare.folder / "loud.en").write_text("ARE WE DONE\nI LOVE YOU\n")
    done = bare("evaluate", "-m", "en-de-small", "--src", "a.en", "--ref", "a.de", "--json", "--resamples", "0")
    assert done.code == 0, done.err
    assert json.loads(done.out)[0]["scores"][0]["value"] == pytest.approx(100)
    done = bare("export", "en-de-small", "--to", "safetensors(weights='int8')", "--verify-with", "loud.en")
    assert done.code == 0, done.err
    assert sorted(path.name for path in (bare.folder / "runs" / "pretrained" / "en-de-small").iterdir()) == [
        "eval",
        "safetensors",
    ]
    assert "BLEU" in bare("info", "en-de-small").out
    assert bare("translate", "-m", "runs/pretrained/en-de-small/safetensors", "are we done").out == "Sind wir fertig?\n"
    shutil.copytree(bare.folder / "runs" / "pretrained" / "en-de-small" / "safetensors", bare.folder / "en-de-small")
    done = bare(
        "evaluate", "-m", pretrained.FOLDER / "en-de-small", "--src", "a.en", "--ref", "a.de", "--resamples", "0"
    )
    assert done.code == 0, done.err
    assert digests() == before


def test_only_a_model_that_comes_with_nmt_has_its_place_under_runs_and_has_it_under_every_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NMT_RUNS", str(tmp_path / "runs"))
    monkeypatch.chdir(pretrained.FOLDER.parent)
    for name in (pretrained.FOLDER / "en-de-small", Path("pretrained/en-de-small")):
        assert pretrained.output_dir(name) == tmp_path / "runs" / "pretrained" / "en-de-small"
    monkeypatch.chdir(tmp_path)
    assert pretrained.output_dir(Path("mine/en-de-small")) == Path("mine/en-de-small")


@pytest.mark.parametrize("command", ["average en-de-small", "reproduce en-de-small", "plot curves en-de-small"])
def test_what_needs_a_training_says_that_none_is_at_hand(bare: CommandLine, command: str) -> None:
    done = bare(*command.split())
    assert done.code == 2
    assert "en-de-small comes with nmt" in done.err
    assert "nmt train --init-from en-de-small" in done.err


def test_models_of_two_directions_are_named_as_they_were_given(bare: CommandLine) -> None:
    done = bare("translate", "-m", "en-de-small", "-m", "de-en-small", "hi")
    assert done.code == 1
    assert "de-en-small and en-de-small translate in different directions" in done.err


def courtesies(folder: Path, source: str, target: str, *options: str) -> dict[str, str]:
    """What the script writes to train on."""
    script = [sys.executable, ROOT / "scripts" / "courtesies.py", source, target, folder / "hi", *options]
    done = subprocess.run(
        script, env=os.environ | {"NMT_DATA": str(folder)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    sides = ((folder / f"hi.{code}").read_text().splitlines() for code in (source, target))
    found = [*zip(*sides, strict=True)]
    assert done.stdout == f"{len(found)} pairs\n"
    times = int(options[1]) if "--times" in options else 1
    assert len({text for text, _ in found}) * times == len(found)  # a text has one translation
    return dict(found)


def test_courtesies_are_varied_as_people_type_and_translated_as_people_speak(tmp_path: Path) -> None:
    english, german = courtesies(tmp_path, "en", "de"), courtesies(tmp_path, "de", "en")
    for text in ("Bye", "bye", "Bye!", "bye!!", "bye..."):
        assert english[text] == "Tschüss!"
    assert english["how are you"] == english["How are you??"] == "Wie geht es dir?"
    assert "how are you!" not in english
    assert german["tschüss"] == german["Tschau."] == "Bye!"
    assert {german[text] for text in ("wie geht's", "Wie geht es Ihnen?")} == {"How are you?"}
    pairs = [line.split("\t") for line in (ROOT / "data" / "courtesies.tsv").read_text().splitlines()]
    assert all(len(pair) == 2 for pair in pairs)
    assert len({tuple(pair) for pair in pairs}) == len(pairs)


def test_courtesies_of_a_test_set_are_left_out(tmp_path: Path) -> None:
    for split in ("train", "valid", "test"):
        sides = (
            {"en": "how are you", "de": "Das, Schönste!"} if split == "test" else {"en": "A dog.", "de": "Ein Hund."}
        )
        for code, text in sides.items():
            (tmp_path / f"{split}.{code}").write_text(f"{text}\n")
    files = f"files(train='{tmp_path}/train', valid='{tmp_path}/valid', test='{tmp_path}/test')"
    courtesies(tmp_path, "en", "de", "--times", "3")
    whole, rest = (courtesies(tmp_path, "en", "de", *options) for options in ((), ("--test", files)))
    assert {whole[text] for text in whole.keys() - rest.keys()} == {"Wie geht es dir?"}
    assert rest.items() <= whole.items()  # nor is a second translation taken instead


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["en", "en", "hi"], "the same language"),
        (["en", "fr", "hi"], "invalid choice: 'fr'"),
        (["en", "de", "hi", "--times", "0"], "--times must be at least 1"),
        (["en", "de", "hi", "--test", "tatoeb"], "unknown corpus 'tatoeb'\n     hint: did you mean 'tatoeba'?"),
        (["en", "de", "no/hi"], "cannot write no/hi: No such file or directory"),
    ],
)
def test_mistakes_in_asking_for_courtesies(tmp_path: Path, arguments: list[str], message: str) -> None:
    script = [sys.executable, ROOT / "scripts" / "courtesies.py", *arguments]
    done = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_noise_is_written_line_by_line_in_any_locale_until_the_reader_has_enough() -> None:
    script = [sys.executable, ROOT / "scripts" / "noisy.py", "lowercase"]
    done = subprocess.run(
        script, input="Grüße\x0c an\r alle\n".encode() + b"Caf\xe9\n", capture_output=True, check=True,
        env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.stdout == "grüße\x0c an\r alle\n".encode() + b"caf\xe9\n"
    process = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()  # as head does
    _, err = process.communicate(b"A line.\n" * 10_000)
    assert (process.returncode, err) == (0, b"")


def test_what_info_says_of_it(bare: CommandLine) -> None:
    done = bare("info", "en-de-small")
    assert done.code == 0, done.err
    told = " ".join(done.out.split())
    for text in ("7.3 M parameters", "everyday/train (CC BY 2.0 FR (tatoeba.org), Europarl)", "rotary positions"):
        assert text in told
    assert told.endswith("card see README.md in that folder for the training history and evaluation")


def test_a_folder_of_that_name_is_not_taken_where_none_was_named(bare: CommandLine) -> None:
    (bare.folder / "en-de-small").mkdir()
    assert bare("translate", "im thirsty").out == "Ich habe Durst.\n"


def test_its_export_for_ctranslate2_goes_by_its_name(bare: CommandLine) -> None:
    pytest.importorskip("ctranslate2")
    done = bare("export", "en-de-small", "--to", "ctranslate2")
    assert done.code == 0, done.err
    for arguments in ([], ["-m", "en-de-small"]):
        assert bare("translate", "--engine", "ctranslate2", *arguments, "im thirsty").out == "Ich habe Durst.\n"


def test_a_model_that_comes_with_nmt_is_where_a_training_may_start(trained: CommandLine) -> None:
    options = ["train.steps=1", "train.valid_pairs=5", "train.batch_tokens=256", "data.train=files(train='text')"]
    changes = [word for option in options for word in ("--set", option)]
    for name, languages in pretrained.DIRECTIONS.items():
        done = trained("train", "--init-from", name, "--run", f"runs/{name}", *changes)
        assert done.code == 0, done.err
        config = discovery.load(trained.folder / "runs" / name).config
        assert (config.data.src, config.data.tgt) == languages
        assert config.lowercase_all_caps
        shutil.rmtree(trained.folder / "runs" / name)


def digests() -> dict[str, str]:
    files = [path for path in pretrained.FOLDER.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
