"""Evaluation: hypotheses equal those of `nmt translate`, and scores equal those of the sacreBLEU
command."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from commandline import write

from nmt.core.config import config_io
from nmt.core.console import log_once
from nmt.core.errors import ConfigError, DataError, UsageError
from nmt.data.sources import open_split
from nmt.evaluate import evaluation as evaluate
from nmt.evaluate import metrics, test_sets
from nmt.evaluate.metrics import METRICS
from nmt.evaluate.test_sets import load_test_pairs
from nmt.training.session import train
from nmt.translation.translator import Translator

WORDS = "red blue green small big old new round flat long".split()
TINY = [
    "model.dim=16",
    "model.heads=2",
    "model.ffn_dim=32",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "tokenizer.vocab_size=320",
    "train.steps=4",
    "train.valid_every=4",
    "train.batch_tokens=512",
]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    directory = tmp_path_factory.mktemp("evaluate")
    lines = [f"the {a} {b} thing" for a in WORDS for b in WORDS if a != b]
    for split, part in (("train", lines), ("valid", lines[:8]), ("test", lines[8:14])):
        write(directory / split, part, part)
    corpus = ", ".join(
        f"{split}={str(directory / split)!r}" for split in ("train", "valid", "test")
    )
    config = config_io.load(None, [*TINY, f"data.train=files({corpus})"])
    train(config, directory / "run", resume=False, device="cpu", precision="fp32")
    return Translator.load(directory / "run", "cpu")


def test_tokenized_text_leads_to_one_warning_of_ours(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    log_once.cache_clear()
    hypotheses = ["the old dog ."] * 101
    for resamples in (0, 10):
        assert metrics.bleu(hypotheses, [hypotheses], resamples=resamples).value > 99
    assert caplog.records == []
    assert capsys.readouterr().err.count("warning: many translations end with a space") == 1
    metrics.chrf(hypotheses, [hypotheses])
    log_once.cache_clear()
    metrics.bleu(hypotheses[:100], [hypotheses[:100]])
    assert capsys.readouterr().err == ""


def test_scores_equal_the_sacrebleu_command(translator: Translator, tmp_path: Path) -> None:
    test = test_sets.default_test_set(translator.config.data)
    evaluation = evaluate.evaluate(translator, test, "greedy", tmp_path, ["bleu", "chrf", "ter"])
    scores, report = evaluation.scores, evaluation.report
    reference = tmp_path / "ref"
    reference.write_text("".join(f"{line}\n" for line in test.references[0]), encoding="utf-8")
    hypotheses = report.with_suffix(".hyp")
    assert len(hypotheses.read_text(encoding="utf-8").split("\n")) == len(test.sources) + 1
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        str(reference),
        "-i",
        str(hypotheses),
        "-m",
        "bleu",
        "chrf",
        "ter",
    ]
    done = subprocess.run(
        [*command, "-w", "4", "--confidence"], capture_output=True, text=True, check=True
    )
    theirs = json.loads(done.stdout)
    assert [score.value for score in scores] == pytest.approx(
        [float(entry["score"]) for entry in theirs], abs=5e-5
    )
    for score, entry in zip(scores, theirs, strict=True):
        assert score.half_interval == pytest.approx(entry.get("confidence_var", 0.0), abs=5e-5)
        assert set(score.signature.split("|")) == set(entry["signature"].split("|"))


def test_report_has_search_direction_and_scores(translator: Translator, tmp_path: Path) -> None:
    test = test_sets.default_test_set(translator.config.data)
    output = tmp_path / "new" / "directory"
    evaluation = evaluate.evaluate(
        translator, test, "beam(beam_size=2)", output, ["chrf"], resamples=0
    )
    report = json.loads(evaluation.report.read_text(encoding="utf-8"))
    assert report["search"] == "beam(beam_size=2)"
    assert report["lines"] == 6
    assert report["direction"] == "en-de"
    score = evaluation.scores[0]
    entry = {
        "name": "chrF2",
        "value": score.value,
        "signature": score.signature,
        "half_interval": None,
    }
    assert report["scores"] == [entry]
    assert evaluation.as_dict() == {"test": test.name, "lines": 6, "scores": [entry]}


def test_hypotheses_equal_translate(translator: Translator, tmp_path: Path) -> None:
    test = test_sets.default_test_set(translator.config.data)
    path = evaluate.evaluate(translator, test, "greedy", tmp_path).report
    alone = [translator.translate([line], "greedy")[0] for line in test.sources]
    assert path.with_suffix(".hyp").read_text(encoding="utf-8") == "".join(
        f"{line}\n" for line in alone
    )


def test_slash_in_test_set_name(translator: Translator, tmp_path: Path) -> None:
    test = test_sets.TestSet("a/b c", ["the red"], [["the red"]])
    assert evaluate.evaluate(translator, test, "greedy", tmp_path).report == tmp_path / "a-b-c.json"


def test_empty_or_unknown_test_set(tmp_path: Path) -> None:
    for name in ("empty.en", "empty.de"):
        (tmp_path / name).write_text("", encoding="utf-8")
    with pytest.raises(DataError, match="is empty"):
        test_sets.file_test_set(tmp_path / "empty.en", [tmp_path / "empty.de"])
    with pytest.raises(UsageError, match="unknown test set 'wmt1414'") as caught:
        test_sets.named_test_set("wmt1414", "en", "de")
    assert "wmt14" in caught.value.hint
    with pytest.raises(UsageError, match="unknown test set 'tatoebaa'") as caught:
        test_sets.named_test_set("tatoebaa", "en", "de")
    assert caught.value.hint == "did you mean 'tatoeba'?"
    with pytest.raises(UsageError, match="unknown test set") as caught:
        test_sets.named_test_set("a.en:a.de", "en", "de")
    assert caught.value.hint == "for two files, write files(test=('a.en', 'a.de'))"
    with pytest.raises(UsageError, match="does not have the language pair xx-yy"):
        test_sets.named_test_set("wmt14", "xx", "yy")


def test_perfect_hypotheses_get_perfect_scores() -> None:
    lines = ["Das ist ein kleiner Satz für alle.", "Und hier steht noch ein zweiter."]
    assert METRICS["bleu"](lines, [lines]).value == pytest.approx(100)
    assert METRICS["chrf"](lines, [lines]).value == pytest.approx(100)
    assert METRICS["ter"](lines, [lines]).value == 0
    assert "case:mixed" in METRICS["bleu"](lines, [lines]).signature


def test_multi_reference_scores_equal_the_sacrebleu_command(tmp_path: Path) -> None:
    rng = random.Random(1)
    texts = [[" ".join(rng.choices(WORDS, k=9)) + "." for _ in range(60)] for _ in range(2)]
    hypotheses = [
        " ".join(a if rng.random() < 0.8 else rng.choice(WORDS) for a in line.split())
        for line in texts[0]
    ]
    for name, lines in (("hyp", hypotheses), ("ref0", texts[0]), ("ref1", texts[1])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    scores = [METRICS[name](hypotheses, texts, resamples=1000) for name in ("bleu", "chrf", "ter")]
    command = ["ref0", "ref1", "-i", "hyp", "-m", "bleu", "chrf", "ter", "-w", "6", "--confidence"]
    done = subprocess.run(
        [sys.executable, "-m", "sacrebleu", *command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    for score, entry in zip(scores, json.loads(done.stdout), strict=True):
        assert round(score.value, 6) == entry["score"]
        assert round(score.half_interval or 0, 6) == entry["confidence_var"] > 0
        assert set(score.signature.split("|")) == set(entry["signature"].split("|"))
    assert str(scores[0]).startswith(
        f"BLEU {scores[0].value:.1f} ± {scores[0].half_interval:.1f}  nrefs:2|bs:1000|"
    )


def test_a_repeated_reference_of_one_sentence_changes_no_score() -> None:
    rng = random.Random(1)
    first = [" ".join(rng.choices(WORDS, k=9)) for _ in range(20)]
    hypotheses = [line.rpartition(" ")[0] for line in first]  # so that brevity counts
    once = [[text] for text in first]
    repeated = [[first[0], first[0]], *once[1:]]
    scores = []
    for references in (once, repeated):
        streams = test_sets.reference_streams(references)
        corpus = [METRICS[name](hypotheses, streams).value for name in ("bleu", "chrf", "ter")]
        resampled = METRICS["bleu"](hypotheses, streams, resamples=50)
        scores.append([*corpus, resampled.half_interval, *metrics.sentence_chrf(first, streams)])
    assert scores[0] == scores[1]


def test_missing_comet_fails_before_translation(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluate, "translate_test_set", None)
    test = test_sets.default_test_set(translator.config.data)
    with pytest.raises(UsageError, match="COMET is not installed") as caught:
        evaluate.evaluate(translator, test, "greedy", tmp_path, comet="Unbabel/wmt22-comet-da")
    assert caught.value.hint == "pip install 'nmtkit[comet]'"
    assert not list(tmp_path.iterdir())


def test_confidence_interval_if_some_resamples_score_zero() -> None:
    references = [["the red thing is flat and round here"] * 20 + ["another line of words"] * 2]
    hypotheses = [""] * 20 + ["another line of words"] * 2
    for name in ("bleu", "chrf", "ter"):
        score = METRICS[name](hypotheses, references, resamples=1000)
        assert score.half_interval is not None
        assert score.value == METRICS[name](hypotheses, references).value


def test_one_line_has_no_confidence_interval() -> None:
    assert (
        METRICS["bleu"](["a red dog runs"], [["a red dog ran"]], resamples=100).half_interval
        is None
    )


def test_no_confidence_interval_if_memory_is_insufficient(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nmt.evaluate.metrics.MAX_RESAMPLED_LINES", 100)
    score = METRICS["bleu"](["a b c d"] * 2, [["a b c d"] * 2], resamples=51)
    assert score.half_interval is None
    assert "bs:" not in score.signature
    assert "no confidence interval, because 2 lines" in capsys.readouterr().err


def test_multiple_reference_files(tmp_path: Path) -> None:
    for name, lines in (("a", ["x"]), ("b", ["y"])):
        write(tmp_path / name, ["the dog"], lines)
    test = test_sets.file_test_set(tmp_path / "a.en", [tmp_path / "a.de", tmp_path / "b.de"])
    assert test.references == [["x"], ["y"]]


def test_corpus_as_test_set() -> None:
    pairs = list(open_split("phrasebook", "test", "de", "en").pairs())
    test = test_sets.named_test_set("phrasebook", "de", "en")
    assert test.name == "phrasebook/test"
    assert [*zip(test.sources, test.references[0], strict=True)] == pairs
    with pytest.raises(ConfigError, match="phrasebook"):
        test_sets.named_test_set("phrasebook(pages=3)", "de", "en")


def test_bleu_uses_all_references_of_a_table(translator: Translator, tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("en,de,de\nthe red,another text,the red\n", encoding="utf-8")
    test = test_sets.named_test_set(str(path), "en", "de")
    assert test.references == [["another text"], ["the red"]]
    assert METRICS["chrf"](["the red"], test.references).value == pytest.approx(100)
    report = evaluate.evaluate(translator, test, "greedy", tmp_path).report
    assert "nrefs:2" in report.read_text(encoding="utf-8")
    assert load_test_pairs(str(path), ("en", "de"), "strict") == [
        ("own.csv/test", [("the red", "another text")]),
        ("own.csv/test", [("the red", "the red")]),
    ]
    with pytest.raises(DataError, match="no such file"):
        test_sets.named_test_set("lost.csv", "en", "de")


def test_multiple_references_of_a_sacrebleu_test_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("src", "one", "two"):
        (tmp_path / name).write_text(f"{name} 1\n{name} 2\n", encoding="utf-8")
    monkeypatch.setattr("sacrebleu.get_source_file", lambda *_: tmp_path / "src")
    monkeypatch.setattr(
        "sacrebleu.get_reference_files", lambda *_: [tmp_path / "one", tmp_path / "two"]
    )
    test = test_sets.named_test_set("wmt14", "en", "de")
    assert test.sources == ["src 1", "src 2"]
    assert test.references == [["one 1", "one 2"], ["two 1", "two 2"]]
    assert load_test_pairs("wmt14", ("en", "de"), "strict") == [
        ("wmt14", [("src 1", f"{name} 1"), ("src 2", f"{name} 2")]) for name in ("one", "two")
    ]
    (tmp_path / "two").write_text("two 1\n")
    with pytest.raises(DataError, match="different numbers of lines"):
        test_sets.named_test_set("wmt14", "en", "de")


def test_comet_input_and_scale(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs: list[dict[str, str]] = []

    class Model:
        def predict(self, lines: list[dict[str, str]], **_: object) -> SimpleNamespace:
            inputs.extend(lines)
            return SimpleNamespace(scores=[0.85])

    fake = SimpleNamespace(download_model=lambda name: name, load_from_checkpoint=lambda _: Model())
    monkeypatch.setitem(sys.modules, "comet", fake)
    test = test_sets.TestSet("test", ["s"], [["r"], ["other"]])
    result = evaluate.evaluate(translator, test, "greedy", tmp_path, (), comet="a/b")
    assert result.scores == [metrics.Score("COMET", 85.0, "model:a/b")]
    assert inputs == [
        {"src": "s", "mt": (tmp_path / "test.hyp").read_text().rstrip("\n"), "ref": "r"}
    ]


def test_default_test_set_of_a_config(tmp_path: Path) -> None:
    for name in ("text", "held"):
        write(tmp_path / name, [f"{name} en"], [f"{name} de"])
    data = config_io.load(
        None,
        [
            f"data.train=files(train={str(tmp_path / 'text')!r}, test={str(tmp_path / 'text')!r})",
            f"data.test=files(test={str(tmp_path / 'held')!r})",
        ],
    ).data
    assert test_sets.default_test_set(data).sources == ["held en"]


def test_safe_filename() -> None:
    assert test_sets.safe_filename("a/b c.en") == "a-b-c.en"
    assert test_sets.safe_filename("!!!") == "test"
    assert test_sets.safe_filename("x/" * 300 + "mine.en").endswith("x-mine.en")
    assert len(test_sets.safe_filename("x/" * 300)) <= 120
    assert 100 < len(test_sets.safe_filename("語" * 300).encode()) <= 120
