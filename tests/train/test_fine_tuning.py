"""Fine-tuning: defaults, replay, the start model as a fallback, the comparison with it, and
averages of two models."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest
import torch
from commandline import CommandLine, Done, sentences, write
from test_train import check_resume
from tiny import config, copy_text, metrics

from nmt.core.config import Config, config_io
from nmt.core.errors import ConfigError, DataError
from nmt.data.loader import Loader, Update
from nmt.data.prepare import PreparedData, prepare
from nmt.evaluate.test_sets import TestSet, sample
from nmt.models import discovery
from nmt.runs import checkpoint
from nmt.runs.run_report import collect
from nmt.training import fine_tuning
from nmt.training.session import estimate_training
from nmt.training.trainer import Trainer
from nmt.translation.translator import Translator

NEW = "data.train=files(train='new')"


# ---- replay


def with_replay(directory: Path, *changes: str, pairs: int = 700) -> tuple[Config, PreparedData]:
    """Return a config with `pairs` replay pairs, which have other sentences than the 300 training
    pairs."""
    copy_text(directory, pairs, split="replay", longest=5, prefix="gu ")
    replay = f"data.replay=files(train={str(directory / 'replay')!r}, hold_out=False)"
    experiment = config(directory, replay, *changes)
    return experiment, prepare(experiment)


def loader(
    experiment: Config, prepared: PreparedData, rank: int = 0, world_size: int = 1
) -> Loader:
    mix = prepared.mix(experiment)
    return Loader(
        prepared.store("train"),
        prepared.tokenizer(),
        experiment.train,
        experiment.seed,
        rank,
        world_size,
        mix=mix,
    )


def pair_ids(updates: list[Update]) -> list[tuple[int, ...]]:
    return [batch.pair_ids for update in updates for batch in update.batches]


@pytest.mark.slow
@pytest.mark.parametrize(("share", "expected"), [("0.5", 300), ("0.25", 100), ("0.9", 2700)])
def test_epoch_has_all_training_pairs_and_the_share_of_replay_pairs(
    directory: Path, share: str, expected: int
) -> None:
    experiment, prepared = with_replay(directory, f"train.replay_share={share}")
    loading = loader(experiment, prepared)
    assert [(len(each.pairs), each.pairs_per_epoch) for each in loading.corpora] == [
        (300, 300),
        (700, expected),
    ]
    texts = prepared.lines("train")[0]
    total: Counter[int] = Counter()
    for epoch in range(3):
        updates = list(loading.updates(epoch))
        used = Counter(i for ids in pair_ids(updates) for i in ids)
        assert {i: used.pop(i) for i in range(300)} == dict.fromkeys(range(300), 1)
        assert sum(used.values()) == expected
        total += used
        for update in updates:
            assert update.tokens == sum(batch.tokens for batch in update.batches)
            for batch in update.batches:
                assert batch.src_BS.numel() <= experiment.train.batch_tokens
                for row, i in enumerate(batch.pair_ids):
                    assert loading.tokenizer.decode(batch.src_BS[row].tolist()) == texts[i]
    assert max(total.values()) - min(total[i] for i in range(300, 1000)) <= 1


def test_replay_does_not_affect_tokenizer_and_validation(directory: Path) -> None:
    without = prepare(config(directory))
    experiment, prepared = with_replay(directory, "data.clean=[normalize, dedup]")
    same_cleaning = prepare(config(directory, "data.clean=[normalize, dedup]"))
    assert prepared.directory != same_cleaning.directory
    assert prepared.tokenizer().model == same_cleaning.tokenizer().model
    assert prepared.lines("valid") == same_cleaning.lines("valid") == without.lines("valid")
    (num_train,) = same_cleaning.meta["corpora"]
    assert [lines[:num_train] for lines in prepared.lines("train")] == [
        *same_cleaning.lines("train")
    ]
    assert prepared.meta["corpora"] == [num_train, len(prepared.lines("train")[0]) - num_train]
    assert prepared.meta["dropped"]["dedup"] == 1000 - sum(prepared.meta["corpora"])
    for name in ("max_source_length", "max_sentences_per_line"):
        assert prepared.meta[name] == same_cleaning.meta[name]
    assert experiment.data.replay


def test_empty_replay_is_an_error(directory: Path) -> None:
    write(directory / "blank", ["", ""], ["", ""])
    blank = f"data.replay=files(train={str(directory / 'blank')!r}, hold_out=False)"
    with pytest.raises(DataError, match="no replay pair is left after cleaning"):
        prepare(config(directory, blank))
    experiment, prepared = with_replay(directory)
    short = dataclasses.replace(
        experiment, train=dataclasses.replace(experiment.train, max_length=4)
    )
    assert loader(short, prepared).num_too_long > 0
    with pytest.raises(DataError, match="no replay pair has at most 2 tokens"):
        loader(
            dataclasses.replace(
                experiment, train=dataclasses.replace(experiment.train, max_length=2)
            ),
            prepared,
        )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["train.replay_share=1", "data.replay=phrasebook"],
            "replay_share must be at least 0 and below 1, got 1.0",
        ),
        (
            ["train.replay_share=-0.1", "data.replay=phrasebook"],
            "replay_share must be at least 0 and below 1",
        ),
        (
            ["train.replay_share=nan", "data.replay=phrasebook"],
            "replay_share must be at least 0 and below 1, got nan",
        ),
        (["train.replay_share=half"], "train.replay_share: expected a number, got 'half'"),
        (
            ["train.replay_share=0", "data.replay=phrasebook"],
            "data.replay is set, but train.replay_share is 0",
        ),
        (["train.replay_share=0.3"], "train.replay_share is 0.3, but data.replay names no corpus"),
        (["data.replay=phrasebok"], "unknown corpus 'phrasebok'"),
        (["data.general_test=wmt1"], "unknown test set 'wmt1'"),
        (["data.general_test=wmt14/de-fr"], "unknown test set"),
        (
            ["data.general_test=wmt20/robust/set1", "data.src=fi"],
            "does not have the language pair fi-de",
        ),
        (["data.general_test=files(tset='x')"], "corpus 'files' has no option 'tset'"),
        (
            ["tokenizer.model=spm.model"],
            "tokenizer.model has no effect: --init-from keeps the tokenizer",
        ),
        (["data.src=de", "data.tgt=en"], "runs/tiny translates from en to de, not to en"),
    ],
)
def test_invalid_options_are_one_line(
    trained: CommandLine, options: list[str], message: str
) -> None:
    changes = [word for option in [NEW, *options] for word in ("--set", option)]
    trained("train", "--init-from", "runs/tiny", "--run", "runs/x", *changes).assert_fails(
        2, message
    )
    assert not (trained.directory / "runs/x").exists()


def test_a_config_file_is_checked_after_the_options(trained: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "mine.yaml"
    config.write_text("train: {replay_share: 0.3}\n")
    for code in ("en", "de"):
        lines = (trained.directory / f"text.{code}").read_text().splitlines()
        (tmp_path / f"other.{code}").write_text("".join(f"gu {line}\n" for line in lines))
    replay = f"data.replay=files(train={str(tmp_path / 'other')!r})"
    options = ("data.train=files(train='text')", replay, "train.batch_tokens=40")
    changes = [word for option in options for word in ("--set", option)]
    # The default train.max_length, that of the start model, 64, is limited, too.
    trained.run(
        "train",
        "--init-from",
        "runs/tiny",
        "--config",
        config,
        "--run",
        "runs/x",
        "--plan",
        *changes,
    )


def test_the_plan_checks_the_start_model(trained: CommandLine) -> None:
    options = (
        "--init-from",
        "runs/tiny",
        "--set",
        "data.train=files(train='text')",
        "--set",
        "model.dim=64",
        "--plan",
    )
    trained("train", *options).assert_fails(
        1, "the weights of runs/tiny do not fit this model", "set model.dim as in its config.yaml"
    )


def test_the_start_model_is_checked_before_the_data_is_prepared(trained: CommandLine) -> None:
    write(trained.directory / "unprepared", ["the dog"] * 200, ["der Hund"] * 200)
    options = (
        "--init-from",
        "runs/tiny",
        "--set",
        "data.train=files(train='unprepared')",
        "--set",
        "model.dim=64",
        "--run",
        "runs/wide",
    )
    done = trained("train", *options)
    done.assert_fails(1, "the weights of runs/tiny do not fit this model")
    assert "prepared" not in done.err.replace("unprepared", "")


def test_share_without_replay_may_be_zero(directory: Path) -> None:
    assert config(directory, "train.replay_share=0").train.replay_share == 0
    with pytest.raises(ConfigError, match="names no corpus"):
        config(directory, "train.replay_share=0.9")


@pytest.mark.slow
def test_run_with_replay_resumes_exactly(directory: Path) -> None:
    options = ("train.schedule=inverse_sqrt(peak=1e-2, warmup=4)", "train.valid_every=50")
    experiment, _ = with_replay(directory, *options, "train.steps=24")
    assert checkpoint.read_progress(check_resume(experiment, directory, 17)).epoch > 0
    estimate = estimate_training(with_replay(directory)[0], device="cpu", precision="fp32")
    assert (
        estimate.corpora
        == "300 pairs of train/train and 300 of 700 pairs of replay/train (replay) per epoch"
    )


# ---- the command


def fine_tune(
    nmt: CommandLine,
    *options: str,
    start: str = "runs/tiny",
    run: str = "runs/tuned",
    code: int = 0,
) -> Done:
    """Fine-tune with few updates; the domain is `new`, 100 sentences that the start model has not
    seen."""
    if not (nmt.directory / "new.en").exists():
        source, target = sentences(600)
        write(
            nmt.directory / "new",
            source[400:500],
            [line.replace("sieht", "erblickt") for line in target[400:500]],
        )
        write(nmt.directory / "general", source[500:520], target[500:520])
    few = ("train.steps=6", "train.valid_every=3", "train.calibration_pairs=0")
    changes = [word for change in (NEW, *few, *options) for word in ("--set", change)]
    done = nmt("train", "--init-from", start, "--run", run, *changes)
    assert done.code == code, done.err
    return done


def table(done: Done) -> list[list[str]]:
    """Return the cells of the table of the comparison."""
    lines = re.findall(
        r"^nmt:   (.+  sentences  metric  .+|.+  (?:BLEU|chrF2)  .+)$", done.err, re.MULTILINE
    )
    return [re.split("  +", line) for line in lines]


def test_fine_tuning_needs_data(trained: CommandLine) -> None:
    hint = """hint: name it: --set "data.train=files(train='my/corpus')\""""
    for arguments in ([], ["--config", "finetune"], ["--set", "data.replay=phrasebook"]):
        done = trained("train", "--init-from", "runs/tiny", *arguments)
        done.assert_fails(2, "there is no data to fine-tune runs/tiny on", hint)
    trained("train", "--config", "finetune").assert_fails(
        2, "--config finetune needs --init-from", "hint: "
    )
    assert not (trained.directory / "runs/finetune").exists()


@pytest.mark.slow
def test_start_and_result_are_compared(nmt: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fine_tuning, "RESAMPLES", 100)
    done = fine_tune(
        nmt, "data.replay=files(train='text')", "data.general_test=files(test='general')"
    )
    assert done.out in {f"runs/tuned/step-00000{step}\n" for step in (0, 3, 6)}
    assert "90 pairs of new/train and 90 of 360 pairs of text/train (replay) per epoch" in done.err
    assert "nmt: start model: validation loss" in done.err
    head, *rows = table(done)
    assert head == [
        "test set",
        "sentences",
        "metric",
        "start",
        "tuned",
        "difference",
        "p",
        "better",
    ]
    assert [row[:3] for row in rows] == [
        [*test, metric]
        for test in (("new/test", "5"), ("general/test", "20"))
        for metric in ("BLEU", "chrF2")
    ]
    run = nmt.directory / "runs/tuned"
    info = collect(run)
    (domain, general) = info["comparison"]["tests"]
    for row, metric in zip(rows, domain["metrics"] + general["metrics"], strict=True):
        assert row[3:5] == [f"{metric[name]:.1f}" for name in ("first_score", "second_score")]
    # The figures are those of nmt compare.
    tests = ("--test", "files(train='new')", "--test", "files(test='general')")
    resamples = ("--resamples", "100")  # the minimum
    compared = json.loads(
        nmt("compare", "runs/tiny", "runs/tuned", *tests, *resamples, "--json").out
    )
    for test, stored in zip(compared, (domain, general), strict=True):
        for metric, expected in zip(test["metrics"], stored["metrics"], strict=True):
            assert {name: expected[name] for name in metric} == metric
    text = " ".join(nmt("info", "runs/tuned").out.split())
    assert "fine-tuned from tiny/step-0000" in text
    assert "replay: text/train (not specified)" in text
    assert "90 of 360 pairs per epoch" in text
    assert "90 pairs and 360 for replay; 0 dropped" in text
    assert "replay: 50% of each epoch" in text
    assert f"general/test: BLEU {general['metrics'][0]['second_score']:.1f}, start model" in text
    card = (run / "README.md").read_text()
    assert "- fine-tuned from tiny/step-0000" in card
    assert "general/test: BLEU" in card
    # A finished run is not compared again, and the test sets may change.
    before = (run / "comparison.json").stat().st_mtime_ns
    again = nmt.run("train", "--run", "runs/tuned", "--resume", "--set", "data.general_test=")
    assert table(again) == []
    assert (run / "comparison.json").stat().st_mtime_ns == before
    again = nmt(
        "train", "--run", "runs/tuned", "--resume", "--set", "data.general_test=files(test='text')"
    )
    assert any("text/test" in row for row in table(again))
    for option in (
        "train.replay_share=0.4",
        "train.init_from=runs/other",
        "data.placeholders=true",
        "model.dropout=0.3",
        "seed=7",
    ):
        nmt("train", "--run", "runs/tuned", "--resume", "--set", option).assert_fails(
            2, f"runs/tuned was trained with another '{option.partition('=')[0]}'"
        )


@pytest.mark.slow
def test_new_weights_of_an_average_are_compared(
    nmt: CommandLine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fine_tune(nmt, "data.general_test=files(test='general')", "train.average_last=2")
    monkeypatch.chdir(nmt.directory)
    run = Path("runs/tuned")
    tuned = config_io.load(run / "config.yaml")
    monkeypatch.setattr(checkpoint, "best", lambda run: run / "average-2")

    def is_compared() -> bool:
        fine_tuning.compare_with_start(tuned, run, prepare(tuned), "cpu", has_time_limit=False)
        return "start model runs/tiny and fine-tuned model" in capsys.readouterr().err

    (run / "comparison.json").unlink()
    assert is_compared()
    assert not is_compared()
    shutil.rmtree(run / "average-2")
    # As if a longer run had averaged other checkpoints.
    shutil.copytree(run / "step-000006", run / "average-2")
    assert is_compared()


@pytest.mark.slow
def test_default_general_test_set(nmt: CommandLine) -> None:
    done = fine_tune(nmt)  # that of the start model
    assert [row[:2] for row in table(done)[1::2]] == [["new/test", "5"], ["text/test", "20"]]
    own = ("data.train=files(train='text')", "data.replay=files(train='general')")
    # The start model was trained on the same data: that of the replay data.
    done = fine_tune(nmt, *own, run="runs/same")
    assert [row[0] for row in table(done)[1::2]] == ["text/test", "general/test"]
    done = fine_tune(nmt, "data.train=files(train='text')", run="runs/none")
    assert [row[0] for row in table(done)[1::2]] == ["text/test"]
    assert "no comparison on other text: name test sets with --set data.general_test=" in done.err
    done = fine_tune(
        nmt, "data.train=files(train='new', valid='general', hold_out=False)", run="runs/valid"
    )
    assert [row[0] for row in table(done)[1::2]] == ["general/valid", "text/test"]
    done = fine_tune(nmt, "data.general_test=files(test='gone')", run="runs/gone")
    assert [row[0] for row in table(done)[1::2]] == ["new/test"]
    assert "no comparison on files(test='gone'): no such file: gone.en" in done.err


@pytest.mark.slow
def test_result_is_never_worse_than_the_start_model(nmt: CommandLine) -> None:
    done = fine_tune(
        nmt,
        "train.schedule=constant(peak=3.0, warmup=1)",
        "train.steps=40",
        "train.best_metric=loss",
    )
    assert done.out == "runs/tuned/step-000000\n"
    assert "the best checkpoint, runs/tuned/step-000000, is the start model" in done.err
    assert all(row[5:] == ["+0.0", "1.000", "not significant"] for row in table(done)[1:])
    start, tuned = (
        discovery.load(nmt.directory / path).model.state_dict()
        for path in ("runs/tiny", "runs/tuned")
    )
    assert all(torch.equal(start[name], tuned[name]) for name in start)
    lines = metrics(nmt.directory / "runs/tuned")
    # Patience 8.
    assert [line["step"] for line in lines if "valid_loss" in line] == [*range(0, 25, 3)]
    assert "early stopping: no improvement in 8 validations" in done.err
    assert [path.name for path in checkpoint.checkpoints(nmt.directory / "runs/tuned")] == [
        "step-000000",
        "step-000021",
        "step-000024",
    ]


@pytest.mark.slow
def test_interrupted_first_validation_is_repeated(nmt: CommandLine) -> None:
    done = fine_tune(nmt, run="runs/uninterrupted")
    validate = Trainer.validate

    def interrupted(trainer: Trainer) -> dict[str, float]:
        os.kill(os.getpid(), signal.SIGTERM)
        return validate(trainer)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "validate", interrupted)
        stopped = fine_tune(nmt, code=75)
    assert "stopped and saved at update 0" in stopped.err
    assert not (nmt.directory / "runs/tuned/comparison.json").exists()
    resumed = nmt("train", "--run", "runs/tuned", "--resume")
    assert resumed.out == done.out.replace("uninterrupted", "tuned")
    assert "start model: validation loss" in resumed.err
    logs = [metrics(nmt.directory / "runs" / name) for name in ("uninterrupted", "tuned")]
    scores = [[line.get("valid_loss") for line in log] for log in logs]
    assert scores[0] == scores[1]
    assert len([score for score in scores[0] if score]) == 3


@pytest.mark.slow
def test_limits_search_and_placeholders_of_the_start_model_are_kept(nmt: CommandLine) -> None:
    run = nmt.directory / "runs/tiny"
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(
        text.replace("search: beam(beam_size=4)", "search: beam(beam_size=2)").replace(
            "placeholders: false", "placeholders: true"
        )
    )
    words = [f"{a} {b}" for a in "abcdefgh" for b in "abcdefgh"]
    write(nmt.directory / "short", words, words)
    write(nmt.directory / "few", *sentences(5))
    valid = "data.train=files(train='short', valid='few', hold_out=False)"
    fine_tune(nmt, valid)
    start, tuned = (discovery.load(nmt.directory / path) for path in ("runs/tiny", "runs/tuned"))
    assert json.loads((nmt.directory / "runs/tuned/data.json").read_text())["pairs"]["train"] == 64
    assert tuned.max_source_length == start.max_source_length > 5
    assert (tuned.config.search, tuned.config.data.placeholders) == ("beam(beam_size=2)", True)
    assert tuned.config.train.schedule == config_io.load(config_io.find("finetune")).train.schedule
    (nmt.directory / "own.yaml").write_text("search: greedy\ntrain: {steps: 1, max_length: 40}\n")
    done = nmt("train", "--init-from", "runs/tiny", "--config", "own.yaml", "--set", valid)
    assert (done.code, done.out.startswith("runs/own/step-")) == (0, True), done.err
    own = discovery.load(nmt.directory / "runs/own").config
    assert (own.search, own.train.max_length, own.train.patience) == ("greedy", 40, 0)


@pytest.mark.slow
def test_tuned_model_can_be_tuned_again_and_exported(nmt: CommandLine) -> None:
    fine_tune(nmt)
    shutil.move(nmt.directory / "runs/tiny", nmt.directory / "runs/moved")
    fine_tune(nmt, start="runs/tuned", run="runs/again")
    tokenizers = {
        (nmt.directory / f"runs/{name}/spm.model").read_bytes()
        for name in ("moved", "tuned", "again")
    }
    assert len(tokenizers) == 1
    assert collect(nmt.directory / "runs/again")["derived_from"][0]["model"] == "tuned"
    nmt.run("export", "runs/again", "--to", "safetensors", "--output", "exported")
    lines = ["the small dog sees the old cat."]
    assert Translator.load(nmt.directory / "exported", "cpu").translate(lines) == Translator.load(
        nmt.directory / "runs/again", "cpu"
    ).translate(lines)


@pytest.mark.slow
def test_missing_start_model_does_not_lose_the_result(nmt: CommandLine) -> None:
    done = fine_tune(nmt)
    (nmt.directory / "runs/tuned/comparison.json").unlink()
    for path in (nmt.directory / "runs/tiny").glob("step-*/model.safetensors"):
        path.write_bytes(b"damaged")
    again = nmt("train", "--run", "runs/tuned", "--resume")
    assert (again.code, again.out) == (0, done.out), again.err
    assert "is damaged" in again.err
    assert "to compare later: nmt compare runs/tiny runs/tuned --test NAME" in again.err
    shutil.rmtree(nmt.directory / "runs/tiny")
    longer = nmt.run("train", "--run", "runs/tuned", "--resume", "--set", "train.steps=9")
    assert "resuming runs/tuned at update 6" in longer.err
    assert (nmt.directory / "runs/tuned/step-000009").is_dir()


@pytest.mark.slow
def test_comparison_is_bounded_under_a_time_limit(
    nmt: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine_tune(nmt)
    (nmt.directory / "runs/tuned/comparison.json").unlink()
    monkeypatch.setattr(fine_tuning, "MAX_LINES_WITH_TIME_LIMIT", 7)
    done = nmt("train", "--run", "runs/tuned", "--resume", "--time-limit", "1h")
    assert "text/test: comparing 7 of 20 sentences" in done.err
    assert [row[1] for row in table(done)[1:]] == ["5", "5", "7", "7"]
    test = TestSet("x", [*"abcdefghij"], [[*"ABCDEFGHIJ"], [*"0123456789"]])
    assert sample(test, 4) == TestSet("x", [*"acfh"], [[*"ACFH"], [*"0257"]])
    assert sample(test, 10) is test


@pytest.fixture(scope="module")
def trained_longer(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A model of the first 700 sentences."""
    nmt = CommandLine(tmp_path_factory.mktemp("longer"))
    write(nmt.directory / "text", *sentences(700))
    nmt.train("runs/tiny", train__steps="60")
    return nmt


@pytest.mark.slow
@pytest.mark.parametrize("size", [600, 150])
def test_small_corpora_work_without_tuning_options(
    size: int, trained_longer: CommandLine, tmp_path: Path
) -> None:
    shutil.copytree(trained_longer.directory, tmp_path, dirs_exist_ok=True)
    nmt = CommandLine(tmp_path)
    source, target = sentences(1300)
    new = slice(700, 700 + size)
    write(tmp_path / "new", source[new], [line.replace("der", "ein") for line in target[new]])
    # A tiny model needs a higher learning rate, and less patience saves time.
    options = (
        NEW,
        "train.patience=2",
        "train.valid_every=10",
        "train.calibration_pairs=0",
        "train.schedule=constant(peak=3e-2, warmup=5)",
    )
    done = nmt.run(
        "train",
        "--init-from",
        "runs/tiny",
        *(word for option in options for word in ("--set", option)),
    )
    assert "early stopping: no improvement in 2 validations" in done.err
    run = tmp_path / "runs/finetune"
    scores = {
        line["step"]: line["best_metric_value"]
        for line in metrics(run)
        if "best_metric_value" in line
    }
    best = max(scores, key=lambda step: (scores[step], -step))
    assert [*scores][-1] == best + 20
    assert done.out == f"runs/finetune/step-{best:06d}\n"
    assert discovery.load(run).checkpoint.name == f"step-{best:06d}"
    assert json.loads((run / "comparison.json").read_text())["checkpoint"] == f"step-{best:06d}"


# ---- average of two models


@pytest.mark.slow
def test_average_of_two_models(nmt: CommandLine) -> None:
    fine_tune(nmt, "train.schedule=constant(peak=1e-2, warmup=1)", "train.best_metric=loss")
    done = nmt("average", "runs/tiny", "runs/tuned", "--share", "0.3")
    assert (done.code, done.out) == (0, "runs/tuned-average-0.3\n"), done.err
    run = nmt.directory / "runs/tuned-average-0.3"
    first, second, mean = (
        discovery.load(nmt.directory / path) for path in ("runs/tiny", "runs/tuned", run)
    )
    weights = [model.model.state_dict() for model in (first, second, mean)]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    for name, tensor in weights[2].items():
        torch.testing.assert_close(tensor, 0.7 * weights[0][name] + 0.3 * weights[1][name])
    assert mean.max_source_length == max(first.max_source_length, second.max_source_length)
    card = (run / "README.md").read_text()
    assert f"- average with share 0.7 of tiny/{first.checkpoint.name}" in card
    assert f"- average with share 0.3 of tuned/{second.checkpoint.name}" in card
    for arguments in (
        ["translate", "--model", run, "the dog"],
        ["evaluate", "--model", run, "--test", "files(test='general')"],
        ["compare", "runs/tiny", run, "--test", "files(test='general')"],
        ["info", run],
        ["average", second.checkpoint, run, "--run", "runs/other"],
    ):
        nmt.run(*arguments)
    assert collect(nmt.directory / "runs/other")["derived_from"][1]["share"] == 0.5
    fine_tune(nmt, start="runs/tuned-average-0.3", run="runs/again")


def test_models_that_cannot_be_averaged(nmt: CommandLine) -> None:
    nmt("average", "runs/tiny", "en-de").assert_fails(
        1, "runs/tiny and en-de have different tokenizers", "hint: average a model with"
    )
    nmt("average", "en-de", "de-en").assert_fails(1, "translate between different languages")
    shutil.copytree(nmt.directory / "runs/tiny", nmt.directory / "runs/copy")
    text = (nmt.directory / "runs/copy/config.yaml").read_text()
    (nmt.directory / "runs/copy/config.yaml").write_text(text.replace("heads: 2", "heads: 4"))
    nmt("average", "runs/tiny", "runs/copy").assert_fails(
        1, "runs/tiny and runs/copy differ in model.heads"
    )
    (nmt.directory / "runs/copy/config.yaml").write_text(
        text.replace("dropout: 0.1", "dropout: 0.3")
    )
    assert nmt("average", "runs/tiny", "runs/copy").out == "runs/copy-average-0.5\n"
    nmt("average", "runs/tiny", "runs/copy").assert_fails(
        2, "runs/copy-average-0.5 already exists", "--run"
    )
    for share in ("0", "1", "-0.5", "1.5", "nan"):
        nmt("average", "runs/tiny", "runs/copy", f"--share={share}").assert_fails(
            2, f"--share must be above 0 and below 1, got {share}"
        )
    nmt("average", "runs/tiny", "runs/copy", "--share", "much").assert_fails(
        2, "Invalid value for '--share'"
    )
    nmt("average", "runs/tiny", "--share", "0.5").assert_fails(2, "--share needs two runs")
    nmt("average", "runs/tiny", "--run", "runs/x").assert_fails(2, "--run needs two runs")
    nmt("average", "runs/tiny", "runs/copy", "--last", "2").assert_fails(
        2, "--last averages the checkpoints of one run"
    )


def test_average_with_a_pretrained_model_is_written_to_runs(trained: CommandLine) -> None:
    assert (
        trained.run("average", "en-de", "en-de", "--share", "0.25").out
        == "runs/pretrained/en-de-average-0.25\n"
    )
