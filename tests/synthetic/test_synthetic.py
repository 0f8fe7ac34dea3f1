"""`nmt backtranslate` and `nmt distill`: filters, shards, resuming after SIGKILL, provenance and
the next command."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import yaml
from commandline import (
    CommandLine,
    Done,
    has_content,
    sentences,
    wait_until,
    write,
)

from nmt import Translator
from nmt.core.config import DataConfig, config_io
from nmt.core.errors import DataError, UsageError
from nmt.core.paths import sha256
from nmt.core.registry import parse
from nmt.data import download
from nmt.data.sources import open_split
from nmt.evaluate.metrics import sentence_bleu
from nmt.jobs import synthesis
from nmt.jobs.sharding import Shard
from nmt.runs.model_files import ModelFiles
from nmt.synthetic.corpus import back_translation_command, distillation_command, with_columns
from nmt.synthetic.filters import NAMES, Candidate, Filters, closest, format_candidates
from nmt.synthetic.source_text import SourceText
from nmt.translation import chunking

SENTENCES = [
    "I bought three red apples at the market yesterday.",
    "My brother is waiting for us in front of the station.",
    "She has not read the letter yet.",
    "We would like to have a table for four people.",
    "The train to Berlin leaves at nine o'clock.",
    "Can you tell me where the next bus stop is?",
]
GERMAN = [
    "Ich habe gestern drei rote Äpfel auf dem Markt gekauft.",
    "Mein Bruder wartet vor dem Bahnhof auf uns.",
    "Sie hat den Brief noch nicht gelesen.",
    "Wir hätten gern einen Tisch für vier Personen.",
    "Der Zug nach Berlin fährt um neun Uhr ab.",
    "Können Sie mir sagen, wo die nächste Bushaltestelle ist?",
]
NO_FILTERS = [word for name in NAMES for word in ("--ignore", name)]


def corpus(nmt: CommandLine, name: str) -> tuple[list[str], list[str]]:
    texts = (
        (nmt.directory / name / f"train.{code}").read_text(encoding="utf-8")
        for code in ("en", "de")
    )
    return tuple(text.split("\n")[:-1] for text in texts)


def record(nmt: CommandLine, name: str) -> dict[str, object]:
    return json.loads((nmt.directory / name / "corpus.json").read_text(encoding="utf-8"))


def next_command(done: Done) -> list[str]:
    """Return the arguments of the command that trains on the corpus."""
    (line,) = re.findall("^nmt: train on it: nmt (.+)$", done.err, re.MULTILINE)
    return shlex.split(line)


def leftovers(nmt: CommandLine, name: str) -> list[str]:
    return sorted(path.name for path in nmt.directory.glob(f".{name}*"))


@pytest.fixture(scope="module")
def reverse(trained: CommandLine) -> CommandLine:
    """The directory of `trained` with a model of the other direction, runs/de-en."""
    trained.train("runs/de-en", data__src="de", data__tgt="en", train__calibration_pairs="0")
    return trained


# ---- filters

GOOD = (SENTENCES[0], GERMAN[0])


def apply(
    directory: Path, filters: Filters, pairs: list[tuple[str, list[Candidate]]], tests: object = ()
) -> object:
    """Return the pairs that filters keep and the names of those that drop the others."""
    files = [
        directory / name for name in ("source", "reference", "hypotheses", "out.src", "out.tgt")
    ]
    files[0].write_text("".join(f"{source}\n" for source, _ in pairs), encoding="utf-8")
    files[1].write_text("".join(f"{GERMAN[0]}\n" for _ in pairs), encoding="utf-8")
    files[2].write_text(
        "".join(f"{format_candidates(n_best)}\n" for _, n_best in pairs), encoding="utf-8"
    )
    count, dropped = filters.apply(files[0], files[1], files[2], (files[3], files[4]), tests)
    kept = list(
        zip(*(file.read_text(encoding="utf-8").splitlines() for file in files[3:]), strict=True)
    )
    assert len(kept) == count
    assert not list(directory.glob("*.draft"))
    return kept, dict(dropped)


FILTERS = Filters(("en", "de"), is_reversed=False)


@pytest.mark.parametrize(
    ("source", "translation", "name"),
    [
        (
            "Call 0351 4478 or see https://a.org/b today.",
            "Rufen Sie an, oder sehen Sie heute nach.",
            "missing",
        ),
        (
            "See https://a.org/b today, please.",
            "Siehe heute https://a.org/b und https://a.org/b bitte.",
            "repeated",
        ),
        (
            "See the <b>red apple</b> today.",
            "Sieh dir heute den </b>roten Apfel<b> an.",
            "misplaced",
        ),
        ("I bought three red apples.", "", "empty"),
        (
            "It is a red apple, a very nice one.",
            "Es ist ein roter, roter, roter, roter Apfel und schön.",
            "repetition",
        ),
        (SENTENCES[1] * 2, "Mein Bru", "too-short"),
        ("Three red apples.", GERMAN[0] + " " + GERMAN[3] + " " + GERMAN[4], "too-long"),
        (SENTENCES[3], SENTENCES[3], "untranslated"),
        (SENTENCES[1], "Mon frère nous attend devant la gare depuis midi.", "wrong-language"),
        (SENTENCES[2], "Sie hat den Brief gestern gelesen.", "lost-negation"),
        (
            "We sing now and then and on and on and so on.",
            "Immersingenundspielenwirgern.",
            "ratio(max=3.0)",
        ),
        ("Hallo!", "Hallo!", "drop_identical"),
        ("It costs a lot of money.", "Es kostet viel Geld \ufffd.", "replacement-characters"),
        (*GOOD, "duplicate"),
    ],
)
def test_each_filter_drops_a_bad_pair(
    source: str, translation: str, name: str, tmp_path: Path
) -> None:
    good = [(a, [Candidate(b, None)]) for a, b in zip(SENTENCES, GERMAN, strict=True)]
    bad = (source, [Candidate(translation, None)])
    kept, dropped = apply(tmp_path, FILTERS, [*good, bad])
    assert kept == [*zip(SENTENCES, GERMAN, strict=True)]
    assert dropped == {name: 1}
    lenient = dataclasses.replace(FILTERS, ignore=NAMES, clean=())
    kept, dropped = apply(tmp_path, lenient, [*good, bad])
    assert len(kept) == (6 if name == "empty" else 7)  # a blank side is always dropped
    assert dropped == ({"blank": 1} if name == "empty" else {})


def test_unusual_length_ratios_are_dropped(tmp_path: Path) -> None:
    good = [(a, [Candidate(b, None)]) for a, b in zip(*sentences(120), strict=True)]
    bad = ("the small dog sees the old tree and", [Candidate("der kleine Hund.", None)])
    kept, dropped = apply(tmp_path, FILTERS, [*good, bad])
    assert len(kept) == 120
    assert dropped == {"length-ratio": 1}


def test_a_pair_is_counted_once(tmp_path: Path) -> None:
    pairs = [(a, [Candidate(b, None)]) for a, b in zip(SENTENCES, GERMAN, strict=True)]
    twice = (
        "We have a \ufffd red house and a tree.",
        [Candidate("Wir haben ein \ufffd rotes Haus und einen Baum.", None)],
    )
    kept, dropped = apply(tmp_path, FILTERS, [*pairs, twice, twice])
    assert len(kept) == 6
    assert dropped == {"replacement-characters": 2}  # the second one is a duplicate, too


def test_test_sentences_are_dropped(tmp_path: Path) -> None:
    pairs = [(a, [Candidate(b, None)]) for a, b in zip(SENTENCES, GERMAN, strict=True)]
    kept, dropped = apply(tmp_path, FILTERS, pairs, [("test", [(SENTENCES[4], GERMAN[4])])])
    assert (SENTENCES[4], GERMAN[4]) not in kept
    assert dropped == {"test-overlap": 1}


def test_numbers_in_another_format_are_kept(tmp_path: Path) -> None:
    pair = (
        "The house costs 125,000.50 dollars.",
        [Candidate("Das Haus kostet 125.000,50 Dollar.", None)],
    )
    assert apply(tmp_path, FILTERS, [pair])[1] == {}


def test_low_scores_are_dropped(tmp_path: Path) -> None:
    scored = [
        (a, [Candidate(b, -float(i))])
        for i, (a, b) in enumerate(zip(SENTENCES, GERMAN, strict=True))
    ]
    kept, dropped = apply(tmp_path, dataclasses.replace(FILTERS, min_score=-2.0), scored)
    assert [source for source, _ in kept] == SENTENCES[:3]
    assert dropped == {"low-score": 3}
    with pytest.raises(DataError, match=r"no pair is left after filtering; dropped: low-score 6"):
        apply(tmp_path, dataclasses.replace(FILTERS, min_score=1.0), scored)


def test_reversed_pairs_have_the_translation_as_source(tmp_path: Path) -> None:
    german = [(b, [Candidate(a, None)]) for a, b in zip(SENTENCES, GERMAN, strict=True)]
    reversed_filters = Filters(("de", "en"), is_reversed=True)
    assert apply(tmp_path, reversed_filters, german)[0] == [*zip(SENTENCES, GERMAN, strict=True)]


@pytest.mark.parametrize("metric", ["bleu", "chrf"])
def test_the_hypothesis_closest_to_the_reference_is_selected(metric: str, tmp_path: Path) -> None:
    n_best = [
        Candidate("Ich kaufte gestern Obst auf dem Markt.", -1.0),
        Candidate(GERMAN[0][:-1], -2.0),
    ]
    assert closest(n_best, GERMAN[0], metric) is n_best[1]
    kept = apply(tmp_path, dataclasses.replace(FILTERS, select=metric), [(SENTENCES[0], n_best)])[0]
    assert kept == [(SENTENCES[0], GERMAN[0][:-1])]
    kept = apply(tmp_path, FILTERS, [(SENTENCES[0], n_best)])[0]
    assert [target for _, target in kept] == [each.text for each in n_best]  # all hypotheses


def test_sentence_bleu() -> None:
    assert sentence_bleu(["a b c d"], [["a b c d"]])[0] == pytest.approx(100)
    assert sentence_bleu(["a b"], [["a b"]])[0] == pytest.approx(100)  # shorter than four words
    assert 0 < sentence_bleu(["a b c e"], [["a b c d"]])[0] < 100


# ---- commands


@pytest.mark.slow
def test_backtranslate(trained: CommandLine) -> None:
    lines = [*GERMAN, "", GERMAN[0], "Das ist " + "sehr " * 250 + "lang."]
    (trained.directory / "mono.de").write_text(
        "".join(f"{line}\n" for line in lines), encoding="utf-8"
    )
    done = trained("backtranslate", "--input", "mono.de", "--model", "de-en", "--output", "data/bt")
    assert (done.code, done.out) == (0, "data/bt\n"), done.err
    for step in (
        "blank dropped 1 lines",
        "length(max=200) dropped 1 lines",
        "dedup(by='source') dropped 1 lines",
    ):
        assert f"{step} before the translation" in done.err
    source, target = corpus(trained, "data/bt")
    assert (
        source
        == trained("translate", "--no-guard", "--model", "de-en", "-i", "mono.de").out.splitlines()[
            :6
        ]
    )
    assert target == GERMAN
    assert "nmt: wrote 6 of 6 pairs to data/bt/train.en and data/bt/train.de" in done.err
    assert leftovers(trained, "data/.bt") == []
    saved: dict = record(trained, "data/bt")
    origin = saved["origin"]
    written = trained.directory / "data/bt/train.en"
    expected = {"sha256": sha256(written), "lines": 6, "mtime_ns": written.stat().st_mtime_ns}
    assert saved["files"]["train.en"] == expected
    assert origin["text"] == [{"name": "mono.de", "sha256": sha256(trained.directory / "mono.de")}]
    assert origin["model"][0]["model"] == "de-en"
    assert re.fullmatch("[0-9a-f]{64}", origin["model"][0]["sha256"])
    assert origin["search"].startswith("beam(")
    assert origin["statistics"]["lines"] == 6
    assert (
        origin["build_command"]
        == "nmt backtranslate --input mono.de --model de-en --output data/bt"
    )
    assert {"date", "nmt"} <= saved.keys()
    command = next_command(done)
    # The teacher's data is not on disk.
    assert command[:5] == [
        "train",
        "--config",
        "tatoeba",
        "--run",
        "runs/bt",
    ]
    assert {"data.src=en", "data.tgt=de"} <= {*command}
    assert command[-1].startswith(
        "data.train=[CORPUS, \"files(train='data/bt/train', hold_out=False, tag=True,"
    )
    again = ("backtranslate", "--input", "mono.de", "--model", "de-en", "--output", "data/bt")
    trained(*again).assert_fails(2, "data/bt already exists", "hint: ")
    done = trained(*again, "--resume")
    assert (done.code, done.out) == (0, "data/bt\n")
    assert "data/bt is complete" in done.err
    for change in (
        ("--search", "greedy"),
        ("--ignore", "missing"),
        ("--test", "phrasebook"),
        ("--min-score", "-1"),
    ):
        trained(*again, "--resume", *change).assert_fails(
            2, "data/bt was made in another way", "hint: "
        )
    (trained.directory / "mono.de").write_text("Ein anderer Text.\n")
    trained(*again, "--resume").assert_fails(2, "data/bt was made in another way", "hint: ")


@pytest.mark.slow
def test_back_translation_is_trained_with_the_logged_command(reverse: CommandLine) -> None:
    (reverse.directory / "mono.de").write_text(
        "".join(f"{line}\n" for line in sentences(440)[1][400:])
    )
    config = reverse.directory / "runs/de-en/config.yaml"  # as if the model were distilled
    text = config.read_text().replace("teacher: ''", "teacher: runs/none")
    config.write_text(text.replace("distill_weight: 0.5", "distill_weight: 0.7"))
    bt = (
        "backtranslate",
        "-i",
        "mono.de",
        "-m",
        "runs/de-en",
        "-o",
        "bt",
        "--clean",
        "normalize",
        *NO_FILTERS,
    )
    done = reverse.run(*bt, "--search", "sample(n_best=2)")
    assert 70 < len(corpus(reverse, "bt")[0]) <= 80  # two samples of each line, without blank ones
    command = next_command(done)
    assert command[:5] == ["train", "--config", "runs/de-en/config.yaml", "--run", "runs/bt"]
    command += ["--set", "tokenizer.vocab_size=1000"]  # the samples have many different characters
    reverse.run(*command)
    data = json.loads(reverse("info", "runs/bt", "--json").out)["data"]["train"]
    assert [(each["name"], each["tag"]) for each in data] == [
        ("text/train", False),
        ("bt/train", True),
    ]
    assert "trained on translations of de-en/step-0000" in reverse("info", "runs/bt").out
    assert (
        "- trained on translations of de-en/step-0000"
        in (reverse.directory / "runs/bt/README.md").read_text()
    )
    data = reverse.directory / "runs/bt/data.json"
    # The name depends on the path.
    data.write_text(data.read_text().replace('"bt/train"', '"train/train"'))
    reverse.run("train", "--run", "runs/bt", "--resume")
    (reverse.directory / "bt/train.en").unlink()
    reverse(*command[:4], "runs/again", *command[5:]).assert_fails(
        1, "train.en", "hint: create it with nmt backtranslate"
    )


@pytest.mark.slow
def test_student_is_trained_with_the_logged_command(nmt: CommandLine) -> None:
    done = nmt.run(
        "distill", "-m", "runs/tiny", "-o", "distilled", "--clean", "normalize", *NO_FILTERS
    )
    texts = [text for text, _ in open_text_split(nmt)]
    (nmt.directory / "in.en").write_text("".join(f"{line}\n" for line in texts))
    translations = nmt.run("translate", "--no-guard", "-m", "runs/tiny", "-i", "in.en").out.split(
        "\n"
    )[:-1]

    def visible(text: str) -> str:
        return "".join(filter(str.isprintable, text.replace(" ", "")))

    # The data check removes control characters, and pairs that are blank without them.
    expected = [
        (text, visible(each))
        for text, each in zip(texts, translations, strict=True)
        if visible(each)
    ]
    assert [
        (text, visible(each)) for text, each in zip(*corpus(nmt, "distilled"), strict=True)
    ] == expected
    nmt.run(*next_command(done), "--set", "tokenizer.vocab_size=1000")
    info = json.loads(nmt("info", "runs/distilled", "--json").out)
    assert (info["model"]["encoder_layers"], info["model"]["decoder_layers"]) == (6, 1)
    assert info["data"]["valid"]["name"] == "text/valid"
    assert 300 < info["data"]["pairs"]["train"] <= len(expected)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("files(train='a.csv', src='x', tgt=('y', 'z'))", {"src": "y", "tgt": "x"}),
        ("files(train='a.csv', src=3)", {"src": "en", "tgt": 3}),
        ("files(train='a.parquet')", {"columns": ("de", "en")}),
        ("datasets(path='a')", {"columns": ("de", "en")}),
        ("files(train='a')", {}),
        ("tatoeba", {}),
    ],
)
def test_the_other_direction_exchanges_the_columns(spec: str, expected: dict[str, object]) -> None:
    name, options = parse(spec)
    kept = {key: options[key] for key in options if key not in ("src", "tgt")}
    data = DataConfig(src="de", tgt="en")
    assert parse(with_columns(spec, data)) == (name, kept | expected)


def test_logged_commands_suit_the_teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pairs.tsv").write_text(
        "".join(f"{b}\t{a}\n" for a, b in zip(*sentences(400), strict=True))
    )
    pairs = f"files(train={str(tmp_path / 'pairs.tsv')!r})"

    def teacher(*changes: str) -> ModelFiles:
        options = [
            "data.src=de",
            "data.tgt=en",
            f"data.train={pairs}",
            f"data.test={pairs}",
            *changes,
        ]
        return cast(
            "ModelFiles", SimpleNamespace(run=tmp_path, config=config_io.load(None, options))
        )

    def options(command: str) -> tuple[str, dict[str, str]]:
        words = shlex.split(command)
        return words[words.index("--config") + 1], dict(
            word.split("=", 1) for word in words if "=" in word
        )

    # Columns keep their languages in the other direction.
    config, changes = options(back_translation_command(teacher(), Path("bt"), "", tag=False))
    assert config == str(tmp_path / "config.yaml")
    first, _ = yaml.safe_load(changes["data.train"])
    for spec in (first, changes["data.test"]):
        assert parse(spec)[1]["columns"] == ("de", "en")
        split = next(iter(open_split(spec, "train", "en", "de").pairs()))
        assert split[0].startswith("the ")
    # Cleaning steps change the direction, too.
    clean = (
        """data.clean=[normalize, "script(src='cyrillic', min=0.7)", "dedup(by='source')", dedup]"""
    )
    _, changes = options(back_translation_command(teacher(clean), Path("bt"), "", tag=False))
    reversed_script, reversed_dedup = (
        "script(src='latin', min=0.7, tgt='cyrillic')",
        "dedup(by='target')",
    )
    assert yaml.safe_load(changes["data.clean"]) == [
        "normalize",
        reversed_script,
        reversed_dedup,
        "dedup",
    ]
    # The sources of tagged corpora are translations, which are no targets.
    tagged = teacher(f"data.train=[{pairs}, {pairs[:-1]}, tag=True)]")
    _, changes = options(back_translation_command(tagged, Path("bt"), "", tag=False))
    assert len(yaml.safe_load(changes["data.train"])) == 2
    # The schedule of a fine-tuned teacher does not suit random weights.
    config, changes = options(
        distillation_command(teacher("train.init_from=runs/a"), Path("student"), "")
    )
    assert config == "tatoeba"
    assert (changes["data.src"], changes["data.tgt"], changes["data.test"]) == ("de", "en", pairs)
    assert changes["data.valid"] == pairs  # held out from the corpus that was translated
    assert parse(changes["data.train"])[1]["hold_out"] is False
    # Nothing is held out from the distilled text if the teacher has a validation set.
    _, changes = options(distillation_command(teacher(f"data.valid={pairs}"), Path("student"), ""))
    assert parse(changes["data.train"])[1]["hold_out"] is False
    assert "data.valid" not in changes
    # Nothing is downloaded to find a split.
    monkeypatch.setenv("NMT_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(download, "fetch", lambda *_, **__: pytest.fail("a download starts"))
    _, changes = options(
        distillation_command(teacher("data.train=wmt14", "data.test="), Path("student"), "")
    )
    assert "hold_out" not in parse(changes["data.train"])[1]


def open_text_split(nmt: CommandLine) -> list[tuple[str, str]]:
    return [
        *open_split(f"files(train={str(nmt.directory / 'text')!r})", "train", "en", "de").pairs()
    ]


@pytest.mark.slow
def test_distillation_with_references(trained: CommandLine) -> None:
    write(trained.directory / "pairs", SENTENCES, GERMAN)
    data = ("--data", "files(train='pairs', hold_out=False)")
    done = trained.run(
        "distill",
        "-m",
        "en-de",
        *data,
        "-o",
        "interpolated",
        "--select",
        "chrf",
        "--min-score",
        "-9",
    )
    search = trained(
        "translate",
        "--no-guard",
        "-m",
        "en-de",
        "-i",
        "pairs.en",
        "--top-beams",
        "8",
        "--beam-size",
        "8",
    )
    n_best = search.out.splitlines()
    for i, (source, target) in enumerate(zip(SENTENCES, GERMAN, strict=True)):
        hypotheses = [Candidate(text, None) for text in n_best[8 * i : 8 * i + 8] if text]
        best = closest(hypotheses, target, "chrf").text
        assert (source, best) in [*zip(*corpus(trained, "interpolated"), strict=True)]
    command = next_command(done)
    changes = dict(word.split("=", 1) for word in command if "=" in word)
    # The corpus has none: they are held out.
    assert not {"data.valid", "data.test"} & changes.keys()
    origin = record(trained, "interpolated")["origin"]
    spec = parse(changes["data.train"])[1]
    assert spec == {"train": "interpolated/train", "build_command": origin["build_command"]}
    assert shlex.split(spec["build_command"])[4:6] == [*data]
    assert record(trained, "interpolated")["origin"]["filters"]["select"] == "chrf"
    trained.run("distill", "-m", "en-de", "-m", "en-de", *data, "-o", "ensemble")
    assert len(record(trained, "ensemble")["origin"]["model"]) == 2


# ---- shards and resuming


@pytest.fixture(scope="module")
def mono(trained: CommandLine) -> Iterator[CommandLine]:
    """The directory of `trained` with the lines of big.de, which are translated in several chunks,
    and their complete back-translation, `whole`."""
    pairs = open_split("phrasebook", "train", "en", "de").pairs()
    lines = list(dict.fromkeys(target for _, target in pairs))[:NUM_LINES]
    (trained.directory / "big.de").write_text(
        "".join(f"{line}\n" for line in lines), encoding="utf-8"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "CHUNK_SIZE", 25)
        trained.run(*BIG, "-o", "whole")
        yield trained


NUM_LINES = 300
BIG = ("backtranslate", "-i", "big.de", "-m", "de-en", "--search", "greedy")


def equal_corpora(nmt: CommandLine, name: str) -> bool:
    return corpus(nmt, name) == corpus(nmt, "whole")


@pytest.mark.slow
def test_a_killed_command_resumes(mono: CommandLine) -> None:
    process = mono.fork(*BIG, "-o", "killed")
    path = mono.directory / ".killed-part/candidates.1-of-1"
    wait_until(process, lambda: has_content(path))
    process.kill()
    process.communicate()
    before = path.read_bytes()
    assert 0 < before.count(b"\n") < NUM_LINES
    assert not (mono.directory / "killed").exists()
    mono(*BIG, "-o", "killed").assert_fails(
        2, "killed is incomplete", "hint: continue with --resume"
    )
    for change, name in (
        (["--search", "sample"], "search"),
        (["--min-score", "-1"], "--min-score"),
        (["--shard", "1/2"], "shards"),
        (["-m", "de-en"], "model"),
    ):
        mono(*BIG, "-o", "killed", *change, "--resume").assert_fails(
            2, f"killed was started with another value of '{name}'"
        )
    mono("distill", "-i", "text.en", "-m", "en-de", "-o", "killed").assert_fails(
        2, "another value of 'command'"
    )
    text = (mono.directory / BIG[2]).read_text()
    (mono.directory / BIG[2]).write_text(text + "ein Hund\n")
    mono(*BIG, "-o", "killed", "--resume").assert_fails(
        2, "the text of killed has changed", "restore it"
    )
    (mono.directory / BIG[2]).write_text(text)
    assert path.read_bytes() == before
    done = mono.run(*BIG, "-o", "killed", "--resume")
    assert f"after {before.count(bytes([10])):,} lines" in done.err
    assert equal_corpora(mono, "killed")
    assert leftovers(mono, "killed") == []


@pytest.mark.slow
def test_filters_may_change_after_the_translation(mono: CommandLine) -> None:
    command = (*BIG, "-o", "filtered")
    done = mono(*command, "--clean", "length(min=150)", "--min-score", "-9")
    done.assert_fails(
        1, "no pair is left after filtering; dropped: length(min=150) ", "continue with --resume"
    )
    path = mono.directory / ".filtered-part/candidates"
    # A kill leaves the same files.
    assert path.read_text(encoding="utf-8").count("\n") == NUM_LINES
    settings = mono.directory / ".filtered-part/settings.json"
    assert json.loads(settings.read_text())["settings"]["scores"] is True
    done = mono.run(*command, "--resume")
    assert "translating" not in done.err
    assert equal_corpora(mono, "filtered")


@pytest.mark.slow
def test_shards_add_up_to_the_corpus(mono: CommandLine) -> None:
    ranks = [CommandLine(mono.directory, {"WORLD_SIZE": "2", "RANK": str(rank)}) for rank in (0, 1)]
    processes = [rank.start(*BIG, "-o", "ranks") for rank in ranks]
    outputs = [process.communicate(timeout=300) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert equal_corpora(mono, "ranks")
    # The last one completes the corpus.
    assert sorted(out for out, _ in outputs) == [
        b"",
        b"ranks\n",
    ]
    assert "train on it: nmt train" in (outputs[0][1] + outputs[1][1]).decode()
    for number in (2, 1):
        mono.run(*BIG, "-o", "shards", f"--shard={number}/2")
        assert (mono.directory / "shards").exists() == (number == 1)
    assert equal_corpora(mono, "shards")
    assert leftovers(mono, "ranks") == leftovers(mono, "shards") == []
    origin = record(mono, "shards")["origin"]
    assert origin["build_command"].endswith("-o shards")


@pytest.mark.parametrize("resume", [False, True])
def test_a_corpus_that_another_process_completed_is_kept(
    resume: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.en").write_text("".join(f"{line}\n" for line in SENTENCES), encoding="utf-8")
    (tmp_path / "done").mkdir()
    (tmp_path / "done/corpus.json").write_text(
        '{"origin": {"command": "distill", "search": "greedy"}}'
    )
    options = synthesis.Options(
        "distill", tmp_path / "done", "greedy", FILTERS, (), Shard(1, 1), resume, "strict"
    )
    text = SourceText.from_file(tmp_path / "text.en", "en", "strict")
    translator = cast(Translator, None)  # not used
    with nullcontext() if resume else pytest.raises(UsageError, match="done already exists"):
        synthesis.synthesize(options, translator, [Path("en-de")], text, lambda *_: "")
    assert capsys.readouterr().out == (f"{tmp_path / 'done'}\n" if resume else "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "text.en"]


# ---- errors


@pytest.mark.parametrize(
    ("command", "code", "texts"),
    [
        ("backtranslate -i none.de -m de-en -o x", 1, ["no such file: none.de"]),
        ("backtranslate -i empty.de -m de-en -o x", 1, ["empty.de has no text to translate"]),
        (
            "backtranslate -i text.en -m de-en -o x",
            2,
            ["text.en is not in the source language", "'de'"],
        ),
        ("backtranslate -i text.de -m runs/none -o x", 1, ["there is no model at runs/none"]),
        ("backtranslate -i text.de -o x", 2, ["--model"]),
        ("backtranslate -i text.de -m de-en -o runs", 2, ["runs already exists"]),
        ("backtranslate -i text.de -m de-en -o runs --resume", 2, ["runs already exists"]),
        ("backtranslate -i text.de -m de-en -o ..", 2, ["--output .. names no directory"]),
        ("backtranslate -i text.de -m de-en -o text.en/x", 2, ["cannot create text.en/x"]),
        ("backtranslate -i text.de -m de-en -o /proc/x", 2, ["cannot create /proc/x"]),
        (
            "backtranslate -i text.de -m de-en -o x --search bean",
            2,
            ["unknown search 'bean'"],
        ),
        (
            "backtranslate -i text.de -m de-en -o x --min-score nan",
            2,
            ["--min-score must be a number, got nan"],
        ),
        (
            "backtranslate -i text.de -m de-en -o x --ignore mising",
            2,
            ["unknown filter 'mising'", "'missing'"],
        ),
        (
            "backtranslate -i text.de -m de-en -o x --clean lenght",
            2,
            ["unknown cleaning step 'lenght'"],
        ),
        (
            "backtranslate -i text.de -m de-en -o x --test wmt1",
            2,
            ["unknown test set 'wmt1'"],
        ),
        ("backtranslate -i text.de -m de-en -o x --shard 3/2", 2, ["--shard must be I/N"]),
        (
            "backtranslate -i bytes.de -m de-en -o x",
            1,
            ["bytes.de, line 1, byte 4", "--encoding-errors"],
        ),
        (
            "distill -m en-de -o x",
            1,
            ["no such file: data/general/", "name other text with --input or --data"],
        ),
        (
            "distill -m en-de -o x --select rouge --data phrasebook",
            2,
            ["unknown metric 'rouge'"],
        ),
        (
            "distill -m en-de -o x --select bleu --search beam --data phrasebook",
            2,
            ["needs several hypotheses"],
        ),
        (
            "distill -m en-de -o x --select bleu --input text.en",
            2,
            ["--select does not apply to --input"],
        ),
        (
            "distill -m en-de -o x --data phrasebook --input text.en",
            2,
            ["--data does not apply to --input"],
        ),
        (
            "distill -m en-de -o x --data phrasebook --encoding-errors replace",
            2,
            ["is for --input"],
        ),
        ("distill -m en-de -o x --data phrasebok", 2, ["unknown corpus 'phrasebok'"]),
        # The training data of the pretrained model.
        (
            "distill -m en-de -o x",
            1,
            ["no such file"],
        ),
        (
            "distill -m en-de -m de-en -o x --data phrasebook",
            1,
            ["translate in different directions"],
        ),
    ],
)
def test_errors_are_one_line(
    trained: CommandLine, command: str, code: int, texts: list[str]
) -> None:
    (trained.directory / "empty.de").write_text("\n \n")
    (trained.directory / "bytes.de").write_bytes(b"abc\xff\n")
    trained(*command.split()).assert_fails(code, *texts)
    assert leftovers(trained, "x") == []
    assert not (trained.directory / "x").exists()


def test_torchrun_and_shard_exclude_each_other(trained: CommandLine) -> None:
    rank = CommandLine(trained.directory, {"WORLD_SIZE": "2", "RANK": "0"})
    command = ("backtranslate", "-i", "text.de", "-m", "de-en", "-o", "x", "--shard", "1/2")
    rank(*command).assert_fails(2, "torchrun shards the text automatically")
