"""Confidence: features, calibration, its file, and the commands and training that use it."""

from __future__ import annotations

import json
import math
import os
import random
import re
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
from commandline import CommandLine, sentences, write

from nmt import Translator
from nmt.core.config import config_io
from nmt.core.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    NMTError,
    StoppedError,
    UsageError,
)
from nmt.engines import TokenScores
from nmt.evaluate import calibration, test_sets
from nmt.evaluate.calibration import Observations
from nmt.runs import checkpoint, pretrained
from nmt.runs.checkpoint import CALIBRATION
from nmt.training.session import train
from nmt.translation import confidence
from nmt.translation.confidence import FEATURE_SIGNS, LENGTH_RATIO, Calibration, Feature
from nmt.translation.guard import Guard
from nmt.translation.result import Part, Translation, concatenate

SENTENCES = [
    "Ich habe Durst.",
    "Wo ist der Bahnhof?",
    "Guten Morgen!",
    "Wie geht es dir?",
    "Ich liebe dich.",
    "Er arbeitet heute nicht.",
    "Das Wetter ist schön.",
    "Wir gehen nach Hause.",
]


def make_calibration(**changes: object) -> Calibration:
    """Return a calibration in which a single feature, the mean probability, has a weight."""
    features = {
        name: Feature(0.5, 0.1, 1.0 if name == "mean_probability" else 0.0)
        for name in FEATURE_SIGNS
    }
    fitted = Calibration(
        0.25,
        0.0,
        features,
        "expected quality",
        "chrF2",
        "step-000001",
        "0" * 64,
        "greedy",
        "dev",
        100,
        {"pearson": 0.5, "spearman": 0.5, "kendall": 0.4, "calibration_error": 0.02},
    )
    return replace(fitted, **changes)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A directory with runs/mine, a model of the copy task whose training ended with a calibration,
    and dev.en, .de."""
    nmt = CommandLine(tmp_path_factory.mktemp("calibrated"))
    for pairs, split in ((600, "train"), (100, "valid"), (80, "dev")):
        tiny.copy_text(nmt.directory, pairs, split=split)
    config = tiny.config(
        nmt.directory, "train.steps=60", "train.valid_every=30", "train.calibration_pairs=90"
    )
    (nmt.directory / "mine.yaml").write_text(config_io.dump(config), encoding="utf-8")
    done = nmt.run("train", "--config", "mine.yaml", "--run", "runs/mine")
    (nmt.directory / "log").write_text(done.err, encoding="utf-8")
    return nmt


def test_features_of_known_scores() -> None:
    scores = TokenScores(
        [math.log(0.5), math.log(0.25)], np.array([[0.5, 0.2, 0.3], [0.7, 0.05, 0.25]], np.float32)
    )
    expected = [
        0.375,
        math.log(0.125) / 2,
        math.log(0.25),
        math.log(3),
        math.log(2 / 3),
        math.log(0.25) / 2,
    ]
    # The first source token is covered.
    assert confidence.features(2, scores) == pytest.approx(expected, abs=1e-6)
    without = confidence.features(2, TokenScores([-math.inf, math.nan], None))
    assert math.isnan(without[-1])
    assert all(map(math.isfinite, without[:-1]))


def test_fit_recovers_known_expectations() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(20_000, len(FEATURE_SIGNS)))
    logit = (
        0.4 + 0.8 * features[:, 0] + 0.5 * features[:, 2] - 0.6 * np.abs(features[:, LENGTH_RATIO])
    )
    expected = 1 / (1 + np.exp(-logit))
    quality = rng.beta(3 * expected, 3 * (1 - expected))  # noisy, with these expectations
    half = Observations(features[:10_000], quality[:10_000])
    fitted = calibration.fit(half)
    predicted = fitted.predict(features[10_000:])
    assert np.abs(predicted - expected[10_000:]).max() < 0.06
    assert np.abs(predicted - expected[10_000:]).mean() < 0.01
    result = calibration.reliability(
        "held-out", predicted, Observations(features[10_000:], quality[10_000:])
    )
    assert result.calibration_error < 0.015
    assert result.mean_confidence == pytest.approx(result.mean_quality, abs=0.01)
    assert result.pearson == pytest.approx(np.corrcoef(predicted, quality[10_000:])[0, 1])
    assert calibration.fit(half) == fitted  # deterministic


@pytest.mark.parametrize("seed", range(5))
def test_confidence_never_rises_when_a_feature_gets_worse(seed: int) -> None:
    rng = np.random.default_rng(seed)
    features, quality = rng.normal(size=(60, len(FEATURE_SIGNS))), rng.random(60)  # unrelated
    fitted = calibration.fit(Observations(features, quality))
    assert all(
        feature.weight * FEATURE_SIGNS[name] >= 0 for name, feature in fitted.features.items()
    )
    worse = features - 5 * np.array(list(FEATURE_SIGNS.values()))
    worse[:, LENGTH_RATIO] = fitted.log_length_ratio + 100
    assert (fitted.predict(worse) <= fitted.predict(features)).all()


@pytest.mark.parametrize("quality", [0.0, 1.0, 0.5])
def test_constant_quality_and_constant_features(quality: float) -> None:
    features = np.random.default_rng(1).normal(size=(50, len(FEATURE_SIGNS)))
    for matrix in (features, np.ones_like(features)):
        observations = Observations(matrix, np.full(50, quality))
        predicted = calibration.cross_validate(observations)
        assert np.abs(predicted - quality).max() < 0.03
        result = calibration.reliability("dev", predicted, observations)
        assert (result.pearson, result.spearman, result.kendall) == (0, 0, 0)


def test_extreme_and_missing_features_give_a_confidence() -> None:
    model = make_calibration()
    row = np.array([[1e6, -1e6, -1e6, 1e6, -1e6, np.nan]])
    assert model.predict(row)[0] == pytest.approx(1)
    assert model.predict(-row)[0] == pytest.approx(0)
    typical = np.array([[0.5, 0.5, 0.5, 0.5, 0.5, np.nan]])
    # The mean replaces the coverage.
    assert model.predict(typical)[0] == pytest.approx(1 / (1 + math.exp(-0.25)))


def test_correlations_with_ties() -> None:
    def correlations(first: list[float], second: list[float]) -> tuple[float, ...]:
        observations = Observations(np.zeros((len(first), len(FEATURE_SIGNS))), np.array(second))
        result = calibration.reliability("", np.array(first), observations)
        return result.pearson, result.spearman, result.kendall

    assert correlations([1, 2, 3, 4, 5], [3, 4, 1, 2, 5]) == pytest.approx((0.2, 0.2, 0.2))
    assert correlations([1, 2, 2, 3], [1, 9, 4, 16])[1:] == pytest.approx(
        (0.9486833, 5 / math.sqrt(30))
    )
    assert correlations([1, 2, 3], [8, 4, 2])[1:] == pytest.approx((-1, -1))


def test_calibration_error_of_known_bins() -> None:
    confidences = np.repeat([0.2, 0.8], 50)
    observations = Observations(np.zeros((100, len(FEATURE_SIGNS))), np.repeat([0.3, 0.6], 50))
    result = calibration.reliability("", confidences, observations)
    assert result.calibration_error == pytest.approx(0.15)
    assert [each.sentences for each in result.bins] == [10] * 10
    assert (result.bins[0].mean_confidence, result.bins[-1].mean_quality) == pytest.approx(
        (0.2, 0.6)
    )


def test_confidence_of_a_line_is_the_mean_of_its_parts() -> None:
    def part(tokens: int, confidence: float | None) -> Part:
        return Part(Translation("a", 0.0, 0.0, ("x",) * tokens, confidence=confidence))

    assert concatenate([part(1, 0.9), part(3, 0.1)]).confidence == 0.3
    # A copy, such as a protected span.
    assert concatenate([part(2, 0.7), part(0, None)]).confidence == 0.7
    assert concatenate([part(2, 0.7), part(2, None)]).confidence is None
    assert concatenate([part(0, None)]).confidence is None
    assert concatenate([]).confidence is None


def test_file_round_trip_and_damage(tmp_path: Path) -> None:
    path = tmp_path / CALIBRATION
    original = make_calibration()
    original.save(path)
    assert confidence.load(path) == original
    text = path.read_text()
    damaged = [
        text[:-20],
        "[]",
        "",
        text.replace('"coverage"', '"cover"'),
        text.replace('"bias": 0.25', '"bias": NaN'),
        text.replace('"bias": 0.25', '"bias": "0.25"'),
        text.replace('"std": 0.1', '"std": 0.0'),
        text.replace('"metric"', '"metrics"'),
        text.replace('"weight": 1.0', '"weight": null'),
    ]
    for content in damaged:
        assert content != text
        path.write_text(content)
        with pytest.raises(CheckpointError, match=r"calibration\.json is damaged") as caught:
            confidence.load(path)
        assert "nmt calibrate" in caught.value.hint
    with pytest.raises(
        NMTError, match=r"cannot write .*calibration\.json: No such file or directory"
    ):
        original.save(tmp_path / "missing" / CALIBRATION)
    path.write_text(text.replace('"format": 1', '"format": 2'))
    with pytest.raises(CheckpointError, match="written by another version"):
        confidence.load(path)


def test_pretrained_models_know_wrong_translations() -> None:
    translator = Translator.load("de-en", precision="fp32")
    n_best = [each[0] for each in translator.n_best(SENTENCES)]
    right = [each.confidence or 0.0 for each in n_best]
    pairs = zip(SENTENCES, [each.text for each in (*n_best[3:], *n_best[:3])], strict=True)
    wrong = [each.confidence or 0.0 for each in translator.score(pairs)]
    assert [each.confidence for each in translator.score([("", ""), ("", "Hund")])] == [None, None]
    assert min(right) > 0.6
    assert max(wrong) < 0.2
    rng = random.Random(1)
    garbage = ["".join(rng.choices("bcdfghjklmnpqrstvwxz ", k=25)) for _ in range(20)]
    assert np.mean([each[0].confidence for each in translator.n_best(garbage)]) < 0.4 < min(right)
    for search in ("greedy", "sample(n_best=2)", "beam(beam_size=4, top_beams=4)"):
        for each in translator.n_best(SENTENCES[:2], search):
            assert all(translation.confidence is not None for translation in each)
    assert next(iter(translator.n_best(["  "])))[0].confidence is None  # a copy
    assert translator.translate(SENTENCES[:2]) == [each.text for each in n_best[:2]]


def test_guarded_translations_have_a_confidence() -> None:
    guard = Guard(Translator.load("de-en", precision="fp32"))
    lines = [
        "Ich habe Durst.",
        "Schreib an a@example.org.",
        "https://example.org/",
        "Wo ist der Bahnhof? " * 20,
    ]
    plain, address, copy, split = (n_best[0] for n_best in guard.stream([lines], details=True))
    assert plain.confidence > 0.6
    assert "a@example.org" in address.text
    assert address.confidence is not None
    assert copy.confidence is None
    assert split.confidence > 0.5


@pytest.mark.parametrize("name", pretrained.DIRECTIONS)
def test_pretrained_models_are_calibrated(name: str) -> None:
    found = Translator.load(name).calibration
    assert found.data == "tatoeba/valid"
    assert found.held_out["pearson"] > 0.5
    assert found.held_out["calibration_error"] < 0.05
    card = (pretrained.DIRECTORY / name / "README.md").read_text()
    assert (
        f"| Tatoeba, validation split, cross-validation | {found.held_out['pearson']:.2f} |" in card
    )


def test_training_calibrates_the_best_checkpoint(calibrated: CommandLine) -> None:
    run = calibrated.directory / "runs" / "mine"
    text = (calibrated.directory / "log").read_text()
    assert re.search(
        r"calibrated the confidence of step-0000\d0 on 90 validation pairs: correlation with"
        r" chrF2 ",
        text,
    )
    fitted = Translator.load(run).calibration
    assert (fitted.sentences, fitted.search) == (90, "beam(beam_size=4)")
    assert "calibrated on 90 sentences" in " ".join(calibrated("info", "runs/mine").out.split())
    assert "calibrated on 90 sentences" in (run / "README.md").read_text()
    before = (run / CALIBRATION).stat().st_mtime_ns
    calibrated.run("train", "--run", "runs/mine", "--resume")
    assert (run / CALIBRATION).stat().st_mtime_ns == before


def test_a_signal_during_calibration_also_skips_the_comparison(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "nmt.training.session.calibrate_translator",
        lambda *_, **__: os.kill(os.getpid(), signal.SIGTERM),
    )
    with pytest.raises(StoppedError):
        train(tiny.config(tmp_path, "train.steps=2", "train.valid_every=2"), tmp_path / "start")
    tuned = tiny.config(
        tmp_path, "train.steps=2", "train.valid_every=2", f"train.init_from={tmp_path / 'start'}"
    )
    with pytest.raises(StoppedError):
        train(tuned, tmp_path / "tuned")
    logged = capfd.readouterr().err
    assert logged.count("no calibration: interrupted") == 2
    assert "comparison" not in logged
    assert "fine-tuned model" not in logged


def _calibrated_search(run: Path) -> str:
    return str(json.loads((run / CALIBRATION).read_text())["search"])


def test_a_finished_run_is_calibrated_again_with_another_search(
    calibrated: CommandLine, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(calibrated.directory / "runs/mine", run)
    assert _calibrated_search(run) != "greedy"
    resume = ("train", "--run", str(run), "--resume")
    calibrated.run(*resume, "--set", "search=greedy")
    assert _calibrated_search(run) == "greedy"
    assert "calibrated the confidence" not in calibrated.run(*resume).err


def test_training_without_calibration(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    config = tiny.config(tmp_path, "train.steps=2", "train.valid_every=2")
    train(config, tmp_path / "few")
    assert "no calibration: " in (text := capfd.readouterr().err)
    assert (
        "has 20 sentences to calibrate on, fewer than 50; to calibrate later: nmt calibrate --model"
        in text
    )
    train(replace(config, train=replace(config.train, calibration_pairs=0)), tmp_path / "off")
    assert "calibration" not in capfd.readouterr().err
    assert not list(tmp_path.glob(f"*/{CALIBRATION}"))
    with pytest.raises(ConfigError, match="calibration_pairs must be at least 0"):
        tiny.config(tmp_path, "train.calibration_pairs=-1")


def test_calibration_is_deterministic_and_stops_at_the_deadline(calibrated: CommandLine) -> None:
    translator = Translator.load(calibrated.directory / "runs" / "mine", precision="fp32")
    development = test_sets.file_test_set(
        calibrated.directory / "dev.en", [calibrated.directory / "dev.de"]
    )
    first, second = (calibration.calibrate(translator, development, "greedy") for _ in range(2))
    assert first == second
    with pytest.raises(
        DataError, match="only 0 sentences could be translated within the time limit"
    ):
        calibration.calibrate(translator, development, "greedy", deadline=time.monotonic())


def test_calibration_leaves_out_blank_and_split_lines(calibrated: CommandLine) -> None:
    translator = Translator.load(calibrated.directory / "runs" / "mine", precision="fp32")
    lines = ["ba be", "", "  ", "do " * 200, "ga", "ba https://example.org/be"]
    test = test_sets.TestSet("test", lines, [lines])
    assert len(calibration.observe(translator, test, "greedy", calibration.CHRF).quality_N) == 2
    blank = test_sets.TestSet("blank", [""], [[""]])
    with pytest.raises(DataError, match="blank has only lines that are blank, split or protected"):
        calibration.measure_reliability(
            translator, translator.calibration, blank, "greedy", calibration.CHRF
        )
    other = calibration.QualityMetric("COMET (x)", calibration.CHRF.score)
    with pytest.raises(UsageError, match=r"calibrated for chrF2, not for COMET \(x\)"):
        calibration.measure_reliability(translator, translator.calibration, test, "greedy", other)


def test_comet_as_quality_metric(calibrated: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        def predict(self, lines: list[dict[str, str]], **_: object) -> SimpleNamespace:
            return SimpleNamespace(
                scores=[1.5 if line["mt"] == line["ref"] else -0.5 for line in lines]
            )

    fake = SimpleNamespace(download_model=lambda name: name, load_from_checkpoint=lambda _: Model())
    monkeypatch.setitem(sys.modules, "comet", fake)
    metric = calibration.comet_quality("a/b")
    # The first reference, limited.
    assert metric.score(["s", "s"], ["x", "y"], [["x", "z"], ["y", "y"]]) == [
        1.0,
        0.0,
    ]
    translator = Translator.load(calibrated.directory / "runs" / "mine", precision="fp32")
    development = test_sets.file_test_set(
        calibrated.directory / "dev.en", [calibrated.directory / "dev.de"]
    )
    fitted, _ = calibration.calibrate(translator, development, "greedy", metric)
    assert fitted.metric == "COMET (a/b)"
    assert fitted.definition == "expected sentence COMET (a/b) of the translation, between 0 and 1"


def test_translate_shows_confidence(calibrated: CommandLine) -> None:
    done = calibrated.run("translate", "--show-confidence", "ba be", "", "do")
    columns = [line.split("\t") for line in done.out.splitlines()]
    assert [len(each) for each in columns] == [2, 2, 2]
    assert columns[1] == ["", ""]  # a blank line
    assert all(re.fullmatch(r"[01]\.\d\d", value) for value, _ in (columns[0], columns[2]))
    both = (
        calibrated("translate", "--show-scores", "--show-confidence", "ba be")
        .out.rstrip("\n")
        .split("\t")
    )
    assert both[1:] == columns[0]
    record = json.loads(calibrated("translate", "--format", "jsonl", "ba be").out)
    assert f"{record['translations'][0]['confidence']:.2f}" == columns[0][0]
    (calibrated.directory / "in").write_text("ba\nbe\nbi\n")
    (calibrated.directory / "out").write_text("0.50\tba\n0.5")
    calibrated.run("translate", "-i", "in", "-o", "out", "--show-confidence", "--resume")
    assert (calibrated.directory / "out").read_text().startswith("0.50\tba\n")
    assert len((calibrated.directory / "out").read_text().splitlines()) == 3
    calibrated(
        "translate", "-i", "in", "-o", "out", "--show-scores", "--show-confidence", "--resume"
    ).assert_fails(2, "out has a different output format")


@pytest.mark.slow
def test_checkpoints_other_than_the_best_have_their_own_calibration(
    calibrated: CommandLine, tmp_path: Path
) -> None:
    nmt = CommandLine(Path(shutil.copytree(calibrated.directory, tmp_path / "copy")))
    run = nmt.directory / "runs/mine"
    (other,) = {*run.glob("step-*")} - {checkpoint.best(run)}
    before = (run / CALIBRATION).read_bytes()
    development = ("--src", "dev.en", "--ref", "dev.de")
    done = nmt("calibrate", "--model", f"runs/mine/{other.name}", *development)
    assert f"wrote runs/mine/{other.name}/calibration.json" in done.err
    assert (run / CALIBRATION).read_bytes() == before
    for model in ("runs/mine", f"runs/mine/{other.name}"):
        shown = nmt("translate", "--model", model, "--show-confidence", "ba be")
        assert (shown.code, shown.err.count("ignoring")) == (0, 0), shown.err
    assert "calibrated on 90 sentences" in " ".join(nmt("info", "runs/mine").out.split())
    best = checkpoint.best(run)
    assert best
    for model in (f"runs/mine/{best.name}", "runs/mine"):
        assert re.search(
            r"wrote .*runs/mine/calibration.json",
            nmt("calibrate", "--model", model, *development).err,
        )
    assert "calibrated on 80 sentences" in " ".join(nmt("info", "runs/mine").out.split())
    # Left from the time when another was the best.
    shutil.copyfile(run / CALIBRATION, best / CALIBRATION)
    nmt.run("calibrate", "--model", best, *development)
    assert (best / CALIBRATION).read_bytes() == (run / CALIBRATION).read_bytes() != before
    shutil.copyfile(other / CALIBRATION, best / CALIBRATION)
    assert "ignoring" not in nmt("translate", "--model", best, "--show-confidence", "ba be").err
    (nmt.directory / "link").symlink_to(best)
    nmt.run("translate", "--model", "link", "--show-confidence", "ba be")
    (run / CALIBRATION).write_text("{")
    nmt.run("translate", "--model", other, "--show-confidence", "ba be")
    nmt("translate", "--model", best, "--show-confidence", "ba be").assert_fails(
        1, "calibration.json is damaged"
    )


def test_show_confidence_without_calibration(nmt: CommandLine) -> None:
    hint = "fit its confidence with nmt calibrate --model runs/tiny"
    nmt("translate", "--show-confidence", "a", "-m", "runs/tiny").assert_fails(
        1, "runs/tiny is not calibrated", hint
    )
    nmt("translate", "--show-confidence", "a", "-m", "runs/tiny", "-m", "runs/tiny").assert_fails(
        2, "--show-confidence does not support ensembles"
    )
    nmt("translate", "--show-confidence", "--document", "txt", stdin=b"a\n").assert_fails(
        2, "--show-confidence"
    )
    assert (
        json.loads(nmt("translate", "--format", "jsonl", "a").out)["translations"][0]["confidence"]
        is None
    )
    make_calibration().save(nmt.directory / "runs" / "tiny" / CALIBRATION)
    done = nmt("translate", "--show-confidence", "a", "-m", "runs/tiny")
    assert (
        "ignoring runs/tiny/calibration.json: it belongs to other weights, those of step-000001"
        in done.err
    )
    done.assert_fails(1, "runs/tiny is not calibrated", hint)
    assert "calibrated" not in nmt("info", "runs/tiny").out
    (nmt.directory / "runs" / "tiny" / CALIBRATION).write_text("{")
    nmt("translate", "--format", "jsonl", "a").assert_fails(
        1, "runs/tiny/calibration.json is damaged", "nmt calibrate"
    )
    done = nmt.run("translate", "a")
    assert "calibrat" not in done.err


def test_calibrate_command(calibrated: CommandLine, tmp_path: Path) -> None:
    nmt = CommandLine(Path(shutil.copytree(calibrated.directory, tmp_path / "here")))
    done = nmt.run(
        "calibrate",
        "--model",
        "runs/mine",
        "--src",
        "dev.en",
        "--ref",
        "dev.de",
        "--html",
        "pages/report.html",
    )
    assert "wrote runs/mine/calibration.json" in done.err
    assert re.search(r"^dev.en, cross-validation +80 ", done.out, re.MULTILINE)
    page = (nmt.directory / "pages" / "report.html").read_text()
    assert page.count("<svg") == 1
    assert page.count("<circle") == 10
    assert "<h1>Calibration of mine/step-0000" in page
    # On the validation split of the run.
    report = json.loads(nmt("calibrate", "--model", "runs/mine", "--json").out)
    assert report["calibration"]["sentences"] == 100
    assert [each["sentences"] for each in report["reliability"]] == [100]
    existing = (nmt.directory / "runs" / "mine" / CALIBRATION).read_bytes()
    spec = f"files(test={str(nmt.directory / 'dev')!r})"
    done = nmt.run("calibrate", "--model", "runs/mine", "--evaluate-only", "--test", spec, "--json")
    assert [each["sentences"] for each in json.loads(done.out)["reliability"]] == [80]
    assert (nmt.directory / "runs" / "mine" / CALIBRATION).read_bytes() == existing


def test_calibrate_command_errors(nmt: CommandLine) -> None:
    run = ("calibrate", "--model", "runs/tiny")
    nmt(*run).assert_fails(
        1, "text/valid has 20 sentences to calibrate on, fewer than 50", "larger development set"
    )
    nmt(*run, "--src", "text.en").assert_fails(2, "--src and --ref must be used together")
    both = ("--src", "text.en", "--ref", "text.de")
    nmt(*run, *both, "--data", "tatoeba").assert_fails(2, "pass either --src and --ref, or --data")
    nmt(*run, "--evaluate-only").assert_fails(2, "--evaluate-only needs a test set")
    nmt(*run, "--evaluate-only", "--data", "tatoeba").assert_fails(2, "--data is for fitting")
    nmt(*run, "--evaluate-only", *both).assert_fails(
        1, "is not calibrated", "leave out --evaluate-only"
    )
    nmt(*run, "--data", "tatoeb").assert_fails(
        2, "unknown corpus 'tatoeb'", "did you mean 'tatoeba'?"
    )
    nmt(*run, *both, "--html", "text.en").assert_fails(2, "text.en would be overwritten")
    (nmt.directory / "held.csv").write_text("en,de\nthe dog,der Hund\n")
    held = ("--test", "held.csv", "--html", "held.csv")
    nmt(*run, *both, *held).assert_fails(2, "held.csv would be overwritten")
    dev = ("--data", "files(valid='held.csv')", "--html", "held.csv")
    nmt(*run, *dev).assert_fails(2, "held.csv would be overwritten")
    nmt(*run, *both, "--comet", "a/b").assert_fails(2, "COMET is not installed")
    data = json.loads((nmt.directory / "runs" / "tiny" / "data.json").read_text())
    (nmt.directory / "runs" / "tiny" / "data.json").write_text(
        json.dumps(data | {"imported": {"source": "x"}})
    )
    nmt(*run).assert_fails(
        2, "the training data of runs/tiny, an imported model, is unknown", "--src and --ref"
    )


def test_calibration_of_a_pretrained_model_is_written_under_runs(tmp_path: Path) -> None:
    nmt = CommandLine(tmp_path)
    write(tmp_path / "dev", *sentences(50))
    done = nmt.run("calibrate", "--model", "en-de", "--src", "dev.en", "--ref", "dev.de")
    assert "wrote runs/pretrained/en-de/calibration.json" in done.err
    assert "calibrated on 50 sentences of dev.en" in " ".join(nmt("info", "en-de").out.split())
    own = nmt("translate", "-m", "en-de", "--show-confidence", "the cat sees the dog.").out
    shutil.rmtree(tmp_path / "runs")
    assert nmt("translate", "-m", "en-de", "--show-confidence", "the cat sees the dog.").out != own


def test_exports_keep_the_calibration(calibrated: CommandLine) -> None:
    calibrated.run(
        "export", "runs/mine", "--to", "safetensors(weights='bf16')", "--min-agreement", "0.5"
    )
    text = ("ba be", "do du")
    original, exported = (
        [
            line.split("\t")
            for line in calibrated(
                "translate", "--show-confidence", "-m", model, *text
            ).out.splitlines()
        ]
        for model in ("runs/mine", "runs/mine/safetensors")
    )
    assert len(original) == len(exported) == 2
    for (first, _), (second, _) in zip(original, exported, strict=True):
        assert float(first) == pytest.approx(float(second), abs=0.05)


@pytest.mark.slow
def test_ctranslate2_export_has_a_confidence_without_attention(calibrated: CommandLine) -> None:
    pytest.importorskip("ctranslate2")
    done = calibrated.run("export", "runs/mine", "--to", "ctranslate2")
    done = calibrated.run(
        "translate", "--show-confidence", "-m", "runs/mine", "--engine", "ctranslate2", "ba be"
    )
    native = calibrated("translate", "--show-confidence", "-m", "runs/mine", "ba be").out
    assert float(done.out.split("\t")[0]) == pytest.approx(float(native.split("\t")[0]), abs=0.25)
