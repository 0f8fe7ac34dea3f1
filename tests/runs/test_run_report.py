"""Run information and model cards."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from pathlib import Path

import tiny
import yaml
from commandline import CommandLine, write

from nmt.models import discovery
from nmt.runs.model_card import CARD, MARK, describe, subsample, write_card
from nmt.runs.run_report import collect, environment, parent_record
from nmt.training.session import train


def evaluate(nmt: CommandLine, *options: str) -> None:
    write(nmt.directory / "probe", ["the dog"], ["der Hund"])
    nmt.run("evaluate", "--src", "probe.en", "--ref", "probe.de", *options)


def test_collect_returns_all_information(nmt: CommandLine) -> None:
    evaluate(nmt)
    run = nmt.directory / "runs/tiny"
    info = collect(run)
    assert json.loads(json.dumps(info)) == info
    (session,) = info["sessions"]
    assert (session["step"], session["device"], session["processes"]) == (0, "cpu", 1)
    assert session["environment"].keys() == environment().keys()
    assert session["environment"]["threads"] == 1
    assert (
        info["tokenizer"]["sha256"] == hashlib.sha256((run / "spm.model").read_bytes()).hexdigest()
    )
    (corpus,) = info["data"]["train"]
    assert re.fullmatch(r"[0-9a-f]{64}", corpus["sha256"])
    assert info["training"]["updates"] == info["training"]["total_updates"] == 20
    assert info["training"]["tokens"] > 0
    assert info["training"]["hours"] > 0
    assert [point["step"] for point in info["curve"]] == [10, 20]
    (test,) = [test for test in info["tests"] if test["test"] == "probe.en"]
    assert test["lines"] == 1
    assert "version:" in test["scores"][0]["signature"]
    weights = sum(
        size for size in (path.stat().st_size for path in run.glob("step-*/model.safetensors"))
    )
    assert info["bytes"] > weights
    assert 0.9 < 4 * info["parameters"] * len(info["checkpoints"]) / weights <= 1


def test_describe_includes_options_that_differ_from_the_defaults(tmp_path: Path) -> None:
    options = (
        "model.kv_heads=1",
        "model.attention_window=3",
        "model.activation=swiglu",
        "train.steps=2",
    )
    for name, changes in {"variant": options, "rnn": ("model.arch=rnn", "train.steps=2")}.items():
        train(tiny.config(tmp_path, *changes), tmp_path / name)
    (line,) = describe(collect(tmp_path / "variant"))["model"]
    assert line.endswith("sinusoidal positions, activation=swiglu, attention_window=3, kv_heads=1")
    assert collect(tmp_path / "variant")["model"]["attention_window"] == 3
    info = collect(tmp_path / "rnn")
    assert describe(info)["model"][0].endswith("layers, dimension 16")
    used = {
        "arch",
        "dim",
        "encoder_layers",
        "decoder_layers",
        "dropout",
        "tie_embeddings",
        "output_bias",
        "source_eos",
    }
    assert set(info["model"]) == used


def test_origins_of_imported_ancestors_teachers_and_translators_are_recorded(
    trained: CommandLine, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained.directory / "runs" / "tiny", run)
    data = json.loads((run / "data.json").read_text())
    best = discovery.find_model(run).checkpoint.name
    records = {
        name: parent_record(discovery.find_model(run))
        | {"imported": [{"source": name, "license": "cc-by-4.0"}]}
        for name in ("start", "teacher", "translator")
    }
    models = {
        "derived_from": [records["start"]],
        "teacher": records["teacher"],
        "translators": 2 * [records["translator"]],
    }
    (run / "data.json").write_text(json.dumps(data | models))
    assert [line.split(",")[0] for line in describe(collect(run))["derived"]] == [
        f"fine-tuned from run/{best}",
        f"distilled from run/{best}",
        f"trained on translations of run/{best}",
        "weights of start",
        "weights of teacher",
        "weights of translator",
    ]
    imported = parent_record(discovery.find_model(run))["imported"]
    assert [each["source"] for each in imported] == ["start", "teacher", "translator", "translator"]
    data = json.loads((run / "data.json").read_text()) | {
        "imported": {"source": "export", "license": "not specified"}
    }
    (run / "data.json").write_text(json.dumps(data))
    imported = parent_record(discovery.find_model(run))["imported"]
    assert [each["source"] for each in imported] == [
        "export",
        "start",
        "teacher",
        "translator",
        "translator",
    ]


def test_info_fits_on_one_screen(trained: CommandLine) -> None:
    done = trained.run("info", "runs/tiny")
    lines = done.out.splitlines()
    assert lines[0] == "runs/tiny"
    assert len(lines) < 40
    subjects = [line.split(" ")[0] for line in lines[1:] if not line.startswith(" ")]
    assert subjects == [*describe(collect(trained.directory / "runs/tiny"))]
    assert {"model", "tokenizer", "data", "training", "sessions", "curve", "best", "disk"} <= {
        *subjects
    }
    assert json.loads(trained("info", "--json").out)["name"] == "tiny"
    trained("info", "runs").assert_fails(
        1, "runs has no checkpoint", "name one of its runs, such as runs/tiny"
    )
    run = trained.directory / "runs/tiny"
    step = max(run.glob("step-*"))
    trained("info", step).assert_fails(
        1, f"{step} is a checkpoint, not a run", f"name its run: {run}"
    )
    (trained.directory / "runs/new run").mkdir()
    (trained.directory / "runs/new run/config.yaml").touch()
    trained("info", "runs/new run").assert_fails(
        1, "runs/new run has no checkpoint", "choose a directory under runs/"
    )
    shutil.copytree(step, trained.directory / "runs/incomplete" / step.name)
    trained("info", "runs/incomplete").assert_fails(
        1, "runs/incomplete/config.yaml is missing", "restore"
    )
    (trained.directory / "runs/new run/sessions.jsonl").touch()
    hint = "nmt train --run 'runs/new run' --resume"
    trained("info", "runs/new run").assert_fails(1, "runs/new run has no checkpoint", hint)


def test_info_about_something_else_than_a_run(trained: CommandLine) -> None:
    trained("info", "runs/tinny").assert_fails(
        1, "there is no model at runs/tinny", "did you mean 'runs/tiny'?"
    )
    trained("info", "en-dee").assert_fails(
        1, "there is no model at en-dee", "did you mean 'en-de'?"
    )
    exports = trained.directory / "exports"
    for name, file in (("ctranslate2", "model.bin"), ("marian", "decoder.yml")):
        (exports / name).mkdir(parents=True)
        (exports / name / file).write_bytes(b"0")
    trained("info", "exports/ctranslate2").assert_fails(
        1, "is an export for CTranslate2", "nmt translate --engine ctranslate2"
    )
    trained("info", "exports/marian").assert_fails(
        1, "has the format of another toolkit", "import it: nmt import exports/marian"
    )


def test_damaged_records_are_left_out(nmt: CommandLine) -> None:
    path = nmt.directory / "runs/tiny/data.json"
    data = json.loads(path.read_text())
    for changes in (
        {"recipe": [1], "mix": 5, "pairs": [1], "dropped": "x"},
        {"mix": [{"pairs_per_epoch": "3", "pairs": 1}]},
        {
            "recipe": {"train": 1, "valid": None},
            "mix": [1, {"pairs_per_epoch": "3", "pairs": 1}],
            "translators": 7,
        },
        {
            "pairs": {"train": None},
            "dropped": {"a": "b"},
            "derived_from": [{"model": "m"}],
            "teacher": 5,
        },
        {"imported": {"source": ["a"], "license": ["mit"]}},
    ):
        path.write_text(json.dumps(data | changes))
        nmt.run("info", "runs/tiny")
        write_card(nmt.directory / "runs/tiny")


def test_card_has_hub_metadata_and_is_updated(nmt: CommandLine) -> None:
    shutil.rmtree(nmt.directory / "runs/tiny/eval", ignore_errors=True)
    card = write_card(nmt.directory / "runs/tiny")
    assert card == nmt.directory / "runs/tiny" / CARD
    head, body = card.read_text().split("---\n", 2)[1:]
    metadata = yaml.safe_load(head)
    assert metadata["language"] == ["en", "de"]
    assert metadata["pipeline_tag"] == "translation"
    assert metadata["model-index"] == [{"name": "tiny", "results": []}]
    assert "20 of 20 updates" in body
    evaluate(nmt, "--chrf")
    (result,) = yaml.safe_load(card.read_text().split("---\n", 2)[1])["model-index"][0]["results"]
    assert result["dataset"]["name"] == "probe.en"
    assert result["metrics"][0]["type"] == "chrf2"
    assert "chrF2" in card.read_text().split("---\n", 2)[2]


def test_edited_card_is_kept(nmt: CommandLine) -> None:
    card = nmt.directory / "runs/tiny" / CARD
    assert MARK in card.read_text()
    card.write_text("mine\n")
    evaluate(nmt)
    assert card.read_text() == "mine\n"


def test_each_session_is_recorded(nmt: CommandLine) -> None:
    nmt.run("train", "--run", "runs/tiny", "--resume", "--set", "train.steps=22")
    info = collect(nmt.directory / "runs/tiny")
    assert [session["step"] for session in info["sessions"]] == [0, 20]
    assert len(describe(info)["sessions"]) == 2


def test_the_batches_are_those_of_all_processes(nmt: CommandLine) -> None:
    run = nmt.directory / "runs/tiny"
    of_one = collect(run)["training"]["batch_tokens"]
    sessions = run / "sessions.jsonl"
    sessions.write_text(sessions.read_text().replace('"processes": 1', '"processes": 2'))
    assert collect(run)["training"]["batch_tokens"] == 2 * of_one


def test_damaged_or_missing_records_are_omitted(nmt: CommandLine) -> None:
    run = nmt.directory / "runs/tiny"
    (run / "sessions.jsonl").write_text('{"step": 1}\n{"started')
    (run / "data.json").write_text('{"max_source_length": 9}')
    (run / "metrics.jsonl").unlink()
    (run / "comparison.json").write_text(
        '{"start": "", "checkpoint": "", "search": "", "tests": [{}]}'
    )
    lines = describe(collect(run))
    assert "sessions" not in lines
    assert "curve" not in lines
    assert "comparison" not in lines
    nmt.run("info", "runs/tiny")
    empty = dict.fromkeys(
        ("recipe", "mix", "pairs", "dropped", "derived_from", "imported", "teacher", "translators")
    )
    (run / "data.json").write_text(json.dumps(empty | {"max_source_length": 9}))
    nmt.run("info", "runs/tiny")


def test_p_values_of_a_comparison_are_never_zero(nmt: CommandLine) -> None:
    scores = {"name": "BLEU", "first_score": 30.0, "second_score": 31.0, "better": 1}
    metrics = [scores | {"p": 0.0002}, scores | {"p": 0.0123}]
    comparison = {
        "start": "old/step-1",
        "checkpoint": "step-2",
        "search": "beam",
        "tests": [{"test": "news", "lines": 9, "metrics": metrics}],
    }
    run = nmt.directory / "runs/tiny"
    (run / "comparison.json").write_text(json.dumps(comparison))
    small, large = describe(collect(run))["comparison"]
    assert "BLEU 31.0, start model 30.0 (+1.0, p < 0.001)" in small
    assert "(+1.0, p 0.012)" in large


def test_training_succeeds_if_the_card_cannot_be_written(nmt: CommandLine) -> None:
    (nmt.directory / "runs/new" / CARD).mkdir(parents=True)
    done = nmt.train("runs/new", "files(train='text')")
    assert "no model card: cannot write runs/new/README.md" in done.err
    assert done.out.startswith("runs/new/step-0000")


def test_subsampled_curve_keeps_the_last_point() -> None:
    points = [{"step": i, "valid_bleu": 1.0} for i in range(1, 34)]
    subsampled = subsample(points)
    assert len(subsampled) <= 16
    assert subsampled[-1]["step"] == 33
    assert [p["step"] for p in subsampled] == sorted(p["step"] for p in subsampled)


def test_describe_shows_the_collected_values(trained: CommandLine) -> None:
    info = collect(trained.directory / "runs/tiny")
    info["training"]["total_updates"] = 40
    info["data"]["pairs"] = {"train": 1000, "valid": 7}
    lines = describe(info)
    assert "20 of 40 updates" in lines["training"][0]
    assert lines["data"][-2].startswith("1,000 pairs")
    assert ", 7 pairs, " in lines["data"][-1]


def test_best_validation_belongs_to_the_best_checkpoint(nmt: CommandLine) -> None:
    run = nmt.directory / "runs/tiny"
    for step, best_metric_value in ((10, 9.0), (20, 3.0)):
        path = run / f"step-{step:06d}" / "meta.json"
        meta = json.loads(path.read_text())
        meta["progress"] |= {"best": 9.0, "validations_since_best": int(step == 20)}
        meta["progress"]["scores"] |= {
            "valid_bleu": best_metric_value,
            "best_metric_value": best_metric_value,
        }
        path.write_text(json.dumps(meta))
    best = collect(run)["best"]
    assert (best["checkpoint"], best["validation"]["valid_bleu"]) == ("step-000010", 9.0)


def test_unknown_json_files_are_ignored(nmt: CommandLine) -> None:
    directory = nmt.directory / "runs/tiny/eval"
    directory.mkdir(exist_ok=True)
    scores = '[{"name": "BLEU", "value": "high", "signature": ""}]'
    reports = (
        '{"test": "x", "scores": [{}]}',
        f'{{"model": "m", "test": "t", "search": "s", "scores": {scores}}}',
    )
    for number, text in enumerate(("[]", "{", "{}", *reports, '{"model": 1, "scores": 2}')):
        (directory / f"{number}.json").write_text(text)
    (nmt.directory / "runs/tiny/sessions.jsonl").write_text(
        '{"started": "", "step": 1, "environment": {}}\n[]\n'
    )
    with open(nmt.directory / "runs/tiny/metrics.jsonl", "a", encoding="utf-8") as log:
        log.write('{"step": 21, "valid_loss": 1.0, "valid_bleu": null}\n')
    nmt.run("info", "runs/tiny")
    evaluate(nmt)


def test_info_with_damaged_checkpoints(nmt: CommandLine) -> None:
    run = nmt.directory / "runs/tiny"
    best, last = collect(run)["best"]["checkpoint"], "step-000020"
    if best == last:
        shutil.copytree(run / last, run / "step-000030")
        last = "step-000030"
    (run / last / "meta.json").write_text("{")
    nmt.run("info", "runs/tiny")
    (run / "eval").mkdir(exist_ok=True)
    (run / "eval/other.json").write_text('{"weights": "x"}')
    nmt.run("info", "runs/tiny")
    weights = run / best / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    nmt("info", "runs/tiny").assert_fails(1, "model.safetensors is damaged")


def test_scores_name_their_checkpoint_and_the_card_has_those_of_the_best(nmt: CommandLine) -> None:
    shutil.rmtree(nmt.directory / "runs/tiny/eval", ignore_errors=True)
    best = collect(nmt.directory / "runs/tiny")["best"]["checkpoint"]
    (other,) = {"step-000010", "step-000020"} - {best}
    for name in (best, other):
        evaluate(nmt, "--model", f"runs/tiny/{name}")
    info = collect(nmt.directory / "runs/tiny")
    lines = describe(info)["test"]
    assert [line.partition(":")[0] for line in lines if "probe.en" in line] == [
        "step-000010",
        "step-000020",
    ]
    card = (nmt.directory / "runs/tiny" / CARD).read_text()
    results = yaml.safe_load(card.split("---\n", 2)[1])["model-index"][0]["results"]
    assert [result["dataset"]["name"] for result in results] == ["probe.en"]
    (report,) = (nmt.directory / "runs/tiny/eval" / best).glob("probe*.json")
    report.write_text(
        json.dumps(json.loads(report.read_text()) | {"weights": "those of an earlier average"})
    )
    assert [test["model"] for test in collect(nmt.directory / "runs/tiny")["tests"]] == [
        f"runs/tiny/{other}"
    ]
