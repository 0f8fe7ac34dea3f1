"""Training: it learns, it resumes exactly, it stops when it should, and a bad update never happens."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from tiny import config, copy_text

from nmt.config import Config, ModelConfig, config_io
from nmt.data.batching import Batch, collate
from nmt.data.loader import Loader
from nmt.data.prepare import prepare
from nmt.errors import CheckpointError, TrainingError, UsageError
from nmt.evaluate.metrics import bleu, chrf
from nmt.inference.translator import Translator
from nmt.model.build import build_model
from nmt.runs import checkpoint, discovery
from nmt.train import loop
from nmt.train import profiling as measure
from nmt.train import session as training
from nmt.train import step as step_module
from nmt.train import trainer as trainer_module
from nmt.train.loss import cross_entropy
from nmt.train.optim import adam, schedule
from nmt.train.session import Trainer, train, train_step


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NMT_DATA", str(tmp_path / "data"))
    return tmp_path


def run(
    experiment: Config, folder: Path, name: str = "run", *, resume: bool = False, limit: float | None = None
) -> Path:
    return train(experiment, folder / name, resume=resume, device="cpu", precision="fp32", time_limit=limit)


def metrics(folder: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(folder: Path) -> dict[int, float]:
    return {int(line["step"]): line["loss"] for line in metrics(folder) if "loss" in line}


def validations(folder: Path) -> dict[int, float]:
    return {int(line["step"]): line["valid_loss"] for line in metrics(folder) if "valid_loss" in line}


def stop_at(step: int, patch: pytest.MonkeyPatch) -> None:
    """Ask training to stop while it makes an update, as a user or a scheduler does."""
    made = itertools.count(1)

    class Interrupting(loop.Window):
        def add(self, stats: training.StepStats) -> None:
            if next(made) == step:
                os.kill(os.getpid(), signal.SIGTERM)
            super().add(stats)

    patch.setattr(loop, "Window", Interrupting)


def same_weights(one: Path, other: Path) -> bool:
    a, b = (load_file(checkpoint.checkpoints(run)[-1] / checkpoint.WEIGHTS) for run in (one, other))
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_the_copy_task_is_learned(folder: Path) -> None:
    copy_text(folder, 4000, longest=5)
    copy_text(folder, 50, longest=5, split="valid")
    experiment = config(
        folder, "model.dim=64", "model.heads=4", "model.ffn_dim=128", "train.steps=500", "train.valid_every=250",
        "train.batch_tokens=512", "train.schedule=linear(peak=5e-3, warmup=50)", "model.dropout=0.0",
    )  # fmt: skip
    best = run(experiment, folder)
    lines = (folder / "valid.en").read_text().splitlines()
    found = Translator.load(best, "cpu").translate(lines)
    right = sum(a == b for a, b in zip(found, lines, strict=True))
    assert right >= 45, list(zip(found, lines, strict=True))[:10]


@pytest.mark.parametrize(
    "changes",
    [
        [],
        [
            "train.ema=0.9",
            "train.grad_accumulation=2",
            "train.source_noise=[sloppy(p=0.5)]",
            "train.subword_regularization=bpe_dropout(p=0.2)",
        ],
    ],
)
def test_an_interrupted_run_ends_bit_for_bit_where_an_unbroken_one_does(folder: Path, changes: list[str]) -> None:
    schedule = "train.schedule=inverse_sqrt(peak=1e-2, warmup=4)"
    experiment = config(folder, schedule, "train.steps=40", "train.valid_every=50", *changes)
    run(experiment, folder, "whole")
    with pytest.MonkeyPatch.context() as patch:
        stop_at(17, patch)
        run(experiment, folder, "broken")
    assert checkpoint.read_progress(checkpoint.checkpoints(folder / "broken")[-1]).step == 17
    run(experiment, folder, "broken", resume=True)
    assert same_weights(folder / "whole", folder / "broken")
    assert losses(folder / "whole") == losses(folder / "broken")


@pytest.mark.parametrize("at", [10, 20])
def test_a_validation_that_a_stop_put_off_is_made_up_for(folder: Path, at: int) -> None:
    experiment = config(folder, "train.steps=20", "train.valid_every=10")
    run(experiment, folder, "whole")
    with pytest.MonkeyPatch.context() as patch:
        stop_at(at, patch)
        run(experiment, folder, "broken")
    last = checkpoint.checkpoints(folder / "broken")[-1]
    assert (checkpoint.read_progress(last).step, checkpoint.read_progress(last).scores) == (at, {})
    best = run(experiment, folder, "broken", resume=True)
    assert best.name == run(experiment, folder, "whole", resume=True).name
    assert same_weights(folder / "whole", folder / "broken")
    assert validations(folder / "whole") == validations(folder / "broken")
    states = (checkpoint.read_progress(checkpoint.checkpoints(folder / name)[-1]) for name in ("whole", "broken"))
    one, other = (dataclasses.replace(state, seconds=0.0) for state in states)
    assert one == other


def test_what_was_logged_after_the_last_save_is_not_logged_twice(folder: Path) -> None:
    run(config(folder), folder)
    log = folder / "run" / "metrics.jsonl"
    whole = log.read_text()
    with log.open("a") as file:  # as a training leaves it that is killed at update 14, while it writes
        file.write('{"step": 13, "loss": 9.0}\n{"step": 14, "lo')
    run(config(folder, "train.steps=18"), folder, resume=True)
    steps = [line["step"] for line in metrics(folder / "run") if "loss" in line]
    assert steps == list(range(1, 19))
    assert log.read_text().startswith(whole)


@pytest.mark.parametrize("method", ["_write", "judge"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_validation_is_logged_once_wherever_it_is_killed(folder: Path, method: str, moment: str) -> None:
    """Killed around the save of a validated checkpoint, or around the judgment before it."""
    experiment = config(folder, "train.steps=12", "train.valid_every=6")
    run(experiment, folder, "whole")
    whole = getattr(Trainer, method)

    def killed(trainer: Trainer, *arguments: object) -> object:
        if trainer.progress.step == 6 and moment == "before":
            raise KeyboardInterrupt
        result = whole(trainer, *arguments)
        if trainer.progress.step == 6:
            raise KeyboardInterrupt
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, method, killed)
        with pytest.raises(KeyboardInterrupt):
            run(experiment, folder, "broken")
    run(experiment, folder, "broken", resume=True)
    assert validations(folder / "whole") == validations(folder / "broken")
    steps = [line["step"] for line in metrics(folder / "broken") if "valid_loss" in line]
    assert steps == [6, 12]


def test_what_was_logged_before_the_first_save_is_not_logged_twice(folder: Path) -> None:
    (folder / "run").mkdir()
    (folder / "run" / "config.yaml").write_text(config_io.dump(config(folder)))
    (folder / "run" / "metrics.jsonl").write_text('{"step": 1, "loss": 9.0}\n')
    run(config(folder), folder, resume=True)
    assert [line["step"] for line in metrics(folder / "run") if "loss" in line] == list(range(1, 13))


def test_a_run_goes_on_in_its_own_precision(folder: Path) -> None:
    train(config(folder, "train.steps=6"), folder / "run", resume=False, device="cpu", precision="bf16")
    for asked, kept in (("auto", "bfloat16"), ("fp32", "float32"), ("auto", "float32")):
        last = checkpoint.read_progress(checkpoint.checkpoints(folder / "run")[-1]).step
        experiment = config(folder, f"train.steps={last + 1}")
        best = train(experiment, folder / "run", resume=True, device="cpu", precision=asked)
        newest = checkpoint.checkpoints(best.parent)[-1]
        assert (checkpoint.read_progress(newest).step, checkpoint.read_progress(newest).precision) == (last + 1, kept)


def test_the_scale_of_fp16_goes_on_where_it_was(folder: Path) -> None:
    prepared, half = prepare(config(folder)), torch.float16
    before, after = (Trainer(config(folder), folder / "run", prepared, torch.device("cpu"), half) for _ in range(2))
    before.scaler.load_state_dict(before.scaler.state_dict() | {"scale": 1024.0, "_growth_tracker": 7})
    before.save()
    assert after.restore()
    assert (after.scaler.get_scale(), after.scaler._get_growth_tracker()) == (1024.0, 7)


def test_resuming_a_finished_run_changes_nothing(folder: Path) -> None:
    best = run(config(folder), folder)
    before = sorted(p.name for p in (folder / "run").iterdir())
    assert run(config(folder), folder, resume=True) == best
    assert sorted(p.name for p in (folder / "run").iterdir()) == before


def test_accumulated_gradients_are_the_big_batchs(folder: Path) -> None:
    torch.manual_seed(0)
    model = build_model(ModelConfig(dim=16, heads=2, ffn_dim=32, encoder_layers=1, decoder_layers=1, dropout=0.0), 20)
    pairs = [([5, 6, 7], [8, 9]), ([10, 11], [12]), ([13] * 5, [14] * 7), ([15], [16, 17, 18])]
    optimizer = adam(model, config(folder).train)  # its learning rate is 0: the weights stay
    gradients = []
    for micro in ([collate(pairs)], [collate(pairs[:1]), collate(pairs[1:])], [collate([pair]) for pair in pairs]):
        stats = train_step(model, micro, optimizer, config(folder, "train.clip_norm=0.0").train)
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        assert stats.tokens == 3 + 2 + 8 + 4
    for other in gradients[1:]:
        for a, b in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-4)


def test_the_loss_of_drawn_subwords_is_divided_by_as_many_as_were_drawn(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    divisors: list[tuple[int | None, int]] = []

    def noted(model: Any, micro: list[Batch], *rest: Any, tokens: int | None, **options: Any) -> training.StepStats:
        divisors.append((tokens, sum(batch.tokens for batch in micro)))
        return train_step(model, micro, *rest, tokens=tokens, **options)

    monkeypatch.setattr(trainer_module, "train_step", noted)
    run(config(folder, "train.subword_regularization=bpe_dropout(p=0.5)", "train.steps=3"), folder)
    assert len(divisors) == 3
    assert all(tokens == drawn for tokens, drawn in divisors)


def test_what_does_not_fit_into_memory_is_cut_and_gives_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = config(folder, "model.dropout=0.0", "train.steps=8", "train.best_metric=loss")
    run(experiment, folder, "roomy")
    backward = step_module._backward
    most = 0

    def cramped(model: Any, batch: Batch, *rest: Any) -> Any:
        nonlocal most
        if batch.tgt_in_BT.numel() > 100:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        most = max(most, batch.tgt_in_BT.numel())
        return backward(model, batch, *rest)

    monkeypatch.setattr(step_module, "_backward", cramped)
    run(experiment, folder, "cramped")
    assert 50 < most <= 100
    assert capsys.readouterr().err.count("the batches do not fit into memory") == 1
    assert losses(folder / "cramped") == pytest.approx(losses(folder / "roomy"), abs=1e-5)


def test_a_model_that_a_device_cannot_hold_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trainer_module, "adam", lambda *_: torch.empty(2**60))
    with pytest.raises(TrainingError, match="the model does not fit into memory"):
        run(config(folder), folder)


def test_a_pair_that_never_fits_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        return torch.empty(2**60)  # what torch says where a machine has no such memory

    monkeypatch.setattr(step_module, "_backward", full)
    with pytest.raises(TrainingError, match=r"a single pair of .* tokens does not fit into memory"):
        run(config(folder), folder)


def test_clipping_bounds_the_gradient(folder: Path) -> None:
    model = build_model(ModelConfig(dim=16, heads=2, ffn_dim=32, encoder_layers=1, decoder_layers=1), 20)
    experiment = config(folder, "train.clip_norm=0.01")
    stats = train_step(model, [collate([([5], [6, 7])])], adam(model, experiment.train), experiment.train)
    assert stats.grad_norm > 0.01  # what is reported is the norm before
    norm = torch.stack([p.grad.norm() for p in model.parameters() if p.grad is not None]).norm()
    assert norm.item() == pytest.approx(0.01, rel=1e-3)


def test_the_loss_of_an_update_is_smoothed_as_asked(folder: Path) -> None:
    model = build_model(ModelConfig(dim=16, heads=2, ffn_dim=32, encoder_layers=1, decoder_layers=1, dropout=0.0), 20)
    batch = collate([([5, 6], [7, 8]), ([9], [10])])
    hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
    for smoothing in (0.0, 0.3):
        options = config(folder, f"train.label_smoothing={smoothing}").train
        wanted = cross_entropy(hidden_ND, model.output_weight_VD, batch.labels_N, smoothing=smoothing) / batch.tokens
        assert train_step(model, [batch], adam(model, options), options).loss == pytest.approx(wanted.item(), rel=1e-5)


def test_every_update_has_the_rate_of_its_number(folder: Path) -> None:
    spec = "cosine(peak=1e-2, warmup=3)"
    run(config(folder, f"train.schedule={spec}"), folder)
    rates = [line["lr"] for line in metrics(folder / "run") if "lr" in line]
    assert rates == [pytest.approx(schedule(spec)(step, 12, 16)) for step in range(1, 13)]


@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_a_bad_update_never_happens(folder: Path, poison: str) -> None:
    model = build_model(ModelConfig(dim=16, heads=2, ffn_dim=32, encoder_layers=1, decoder_layers=1), 20)
    optimizer = adam(model, config(folder).train)
    optimizer.param_groups[0]["lr"] = 0.1
    if poison == "loss":
        with torch.no_grad():
            model.output_weight_VD[9] = float("nan")
    else:
        model.output_weight_VD.register_hook(lambda grad: grad * float("inf"))
    before = [p.detach().clone() for p in model.parameters()]
    with pytest.raises(TrainingError, match=f"the {poison} is (nan|inf).*lines 42, 8") as caught:
        train_step(model, [collate([([5], [9]), ([6], [7])], [41, 7])], optimizer, config(folder).train)
    assert "--resume" in caught.value.hint
    for a, b in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(a, b, equal_nan=True, rtol=0, atol=0)


def test_fp16_skips_and_counts_an_overflow(folder: Path) -> None:
    from torch.amp.grad_scaler import GradScaler

    model = build_model(ModelConfig(dim=16, heads=2, ffn_dim=32, encoder_layers=1, decoder_layers=1), 20)
    optimizer, scaler = adam(model, config(folder).train), GradScaler("cpu", init_scale=2.0**20)
    optimizer.param_groups[0]["lr"] = 0.1
    before = model.output_weight_VD.detach().clone()
    handle = model.output_weight_VD.register_hook(lambda grad: grad * float("inf"))
    batch = collate([([5], [9]), ([6], [7])])
    assert train_step(model, [batch], optimizer, config(folder).train, scaler=scaler).skipped
    assert torch.equal(before, model.output_weight_VD)
    assert scaler.get_scale() == 2.0**19
    handle.remove()
    assert not train_step(model, [batch], optimizer, config(folder).train, scaler=scaler).skipped
    assert not torch.equal(before, model.output_weight_VD)


@pytest.mark.slow
def test_a_time_limit_is_kept_and_brings_the_rate_down(folder: Path) -> None:
    started = time.monotonic()
    experiment = config(folder, "train.steps=1000000", "train.valid_every=100000", "train.schedule=linear(warmup=5)")
    best = run(experiment, folder, limit=6)
    assert time.monotonic() - started < 9
    assert checkpoint.read_progress(best).step > 5
    rates = [line["lr"] for line in metrics(folder / "run") if "lr" in line]
    assert rates[-1] < 0.1 * max(rates)


def test_the_validation_loss_is_that_of_the_saved_weights_without_smoothing(folder: Path) -> None:
    fast = "train.schedule=constant(peak=1e-2, warmup=1)"
    best = run(config(folder, fast, "train.steps=6", "train.ema=0.9", "train.label_smoothing=0.3"), folder)
    model, store = discovery.load(best).model, prepare(config(folder)).store("valid")
    batch = collate([store[i] for i in range(len(store))])
    with torch.inference_mode():
        hidden_ND = model(batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
        loss = cross_entropy(hidden_ND, model.output_weight_VD, batch.labels_N, smoothing=0.0) / batch.tokens
    assert validations(folder / "run") == {6: pytest.approx(loss.item(), rel=1e-5)}


def test_patience_stops_early(folder: Path) -> None:
    # With a learning rate of almost nothing no validation after the first can be better.
    experiment = config(
        folder, "train.steps=1000", "train.valid_every=2", "train.patience=3", "train.best_metric=loss",
        "train.schedule=inverse_sqrt(peak=1e-30, warmup=1)",
    )  # fmt: skip
    run(experiment, folder)
    assert [line["step"] for line in metrics(folder / "run") if "valid_bleu" in line] == [2, 4, 6, 8]


def test_the_best_checkpoint_is_kept_and_returned(folder: Path) -> None:
    experiment = config(folder, "train.steps=20", "train.valid_every=4", "train.best_metric=loss")
    values = iter([3.0, 1.0, 2.0, 4.0, 5.0])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            Trainer, "validate", lambda self: {"valid_loss": (v := next(values)), "valid_bleu": 0.0, "quality": -v}
        )
        best = run(experiment, folder)
    assert best.name == "step-000008"
    assert [p.name for p in checkpoint.checkpoints(folder / "run")] == ["step-000008", "step-000016", "step-000020"]


def test_as_many_best_checkpoints_are_kept_as_asked_for(folder: Path) -> None:
    experiment = config(folder, "train.steps=24", "train.valid_every=4", "train.keep_last=1", "train.keep_best=3")
    values = iter([3.0, 9.0, 7.0, 4.0, 5.0, 1.0])
    with pytest.MonkeyPatch.context() as patch:
        scores = {"valid_loss": 1.0, "valid_bleu": 1.0}
        patch.setattr(Trainer, "validate", lambda self: scores | {"quality": next(values)})
        best = run(experiment, folder)
    assert best.name == "step-000008"
    kept = [int(path.name.removeprefix("step-")) for path in checkpoint.checkpoints(folder / "run")]
    assert kept == [8, 12, 20, 24]


@pytest.mark.parametrize("best", ["bleu", "chrf", "loss"])
def test_quality_is_what_the_best_is_chosen_by(
    folder: Path, best: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Translator, "translate", lambda self, lines, spec: [f"{line} ba" for line in lines])
    run(config(folder, f"train.best_metric={best}", "train.steps=6"), folder)
    (line,) = [line for line in metrics(folder / "run") if "quality" in line]
    references = (folder / "valid.de").read_text().splitlines()
    for metric in (bleu, chrf):
        value = metric([f"{reference} ba" for reference in references], [references]).value
        assert line[f"valid_{metric.__name__}"] == pytest.approx(value)
    assert line["valid_bleu"] != line["valid_chrf"]
    assert line["quality"] == (-line["valid_loss"] if best == "loss" else line[f"valid_{best}"])
    assert (", chrF " in capsys.readouterr().err) == (best == "chrf")


def test_tensorboard_shows_what_metrics_jsonl_holds(folder: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    experiment = config(folder, "train.valid_every=6")
    options = {"device": "cpu", "precision": "fp32", "tensorboard": True}
    train(experiment, folder / "run", **options)
    longer = dataclasses.replace(experiment, train=dataclasses.replace(experiment.train, steps=18))
    train(longer, folder / "run", resume=True, **options)
    shown = EventAccumulator(str(folder / "run/tensorboard")).Reload()
    for tag, name in (("training/loss", "loss"), ("training/lr", "lr"), ("validation/bleu", "valid_bleu")):
        wanted = [(line["step"], line[name]) for line in metrics(folder / "run") if name in line]
        assert [(event.step, event.value) for event in shown.Scalars(tag)] == [
            (step, pytest.approx(value)) for step, value in wanted
        ]


def test_tensorboard_that_is_not_installed_is_named_before_any_work(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.startswith("torch.utils.tensorboard"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(UsageError, match="TensorBoard is not installed"):
        train(config(folder), folder / "run", device="cpu", tensorboard=True)
    assert not (folder / "run").exists()


@given(room=st.integers(1, 10**6), smallest=st.integers(16, 512), most=st.integers(16, 10**6))
def test_the_largest_batch_is_found_from_what_fits(room: int, smallest: int, most: int) -> None:
    most = max(smallest, most)
    found = measure._search(lambda tokens: tokens <= room, smallest, most)
    if room < smallest:
        assert found == 0
    elif room >= most:
        assert found == most
    else:
        assert smallest <= found <= room
        assert found == smallest or 0.78 * room <= found <= measure.MARGIN * room


MEMORY = """
import resource, sys
from pathlib import Path

import torch

from nmt.data.prepare import prepare
from nmt.train.distributed import Group
from nmt.config.config_io import load
from nmt.train import profiling as measure

config = load(Path("config.yaml"))
prepared = prepare(config)
torch.set_num_threads(1)
cpu = torch.device("cpu")
torch.nn.Linear(8, 8)(torch.zeros(8, 8)).sum().backward()  # its threads exist before room is counted
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (int(sys.argv[1]) << 20),) * 2)
print(measure.largest_batch(config, prepared, cpu, torch.float32, Group()))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="limits memory as Linux does")
def test_the_largest_batch_grows_with_the_memory(folder: Path) -> None:
    """A process that may not allocate more stands for a GPU: torch refuses the same way."""
    copy_text(folder, 30_000, longest=20)
    copy_text(folder, 20, split="valid")
    experiment = config(folder, "model.dim=64", "model.ffn_dim=2048")
    (folder / "config.yaml").write_text(config_io.dump(experiment))
    prepare(experiment)
    sizes = []
    for megabytes in (120, 240):
        command = [sys.executable, "-c", MEMORY, str(megabytes)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        sizes.append(int(done.stdout))
    assert sizes[0] > 256
    assert 1.3 * sizes[0] < sizes[1] < 20_000, sizes


def test_a_plan_counts_what_a_training_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MOST_UPDATES", 3)
    experiment = config(folder, "train.grad_accumulation=2", "train.ema=0.9")
    began = time.monotonic()
    found = training.plan(experiment, device="cpu", precision="fp32")
    elapsed = time.monotonic() - began
    prepared = prepare(experiment)
    loader = Loader(prepared.store("train"), prepared.tokenizer(), experiment.train, experiment.seed)
    updates = list(loader.updates(0))
    tokens = sum(update.tokens for update in updates)
    positions = sum(batch.tgt_in_BT.numel() for update in updates for batch in update.batches)
    assert (found.pairs, found.tokens_per_epoch, found.updates_per_epoch) == (300, tokens, len(updates))
    assert found.padding == pytest.approx(1 - tokens / positions)
    assert found.updates == 3
    assert 0 < 3 * found.seconds_per_update < elapsed
    seconds = 3 * found.seconds_per_update
    measured = [*updates, *loader.updates(1)][1:4]  # before the first, the epoch is planned
    assert found.tokens_per_second * seconds == pytest.approx(sum(update.tokens for update in measured))
    run(experiment, folder)
    saved = sum(file.stat().st_size for file in checkpoint.checkpoints(folder / "run")[-1].glob("*.safetensors"))
    assert found.disk == pytest.approx(3 * saved, rel=0.2)  # two latest and the best one


@pytest.mark.parametrize(("ema", "second", "third"), [(0.2, 0.2, 0.2), (0.99, 3 / 12, 4 / 13)])
def test_an_average_is_what_is_saved(folder: Path, ema: float, second: float, third: float) -> None:
    """a ← decay·a + (1-decay)·w after every update, decay = min(ema, (1+step)/(10+step))."""
    fast = "train.schedule=constant(peak=1e-2, warmup=1)"  # so that the weights of all updates differ
    options = ["train.valid_every=1", "train.steps=3", "train.keep_last=3", fast]
    run(config(folder, *options, f"train.ema={ema}"), folder)
    run(config(folder, *options), folder, "plain")
    steps = checkpoint.checkpoints(folder / "run")
    raw = [load_file(path / checkpoint.WEIGHTS) for path in checkpoint.checkpoints(folder / "plain")]
    for name, first in raw[0].items():
        one = load_file(steps[0] / checkpoint.WEIGHTS)[name]
        two = second * one + (1 - second) * raw[1][name]
        three = third * two + (1 - third) * raw[2][name]
        torch.testing.assert_close(load_file(steps[2] / checkpoint.WEIGHTS)[name], three)
        torch.testing.assert_close(load_file(steps[0] / checkpoint.TRAINING)[f"raw.{name}"], first)


def test_checkpoints_are_averaged_at_the_end(folder: Path) -> None:
    experiment = config(
        folder, "train.valid_every=3", "train.keep_last=3", "train.average_last=3", "train.best_metric=loss"
    )
    best = run(experiment, folder)
    steps = [load_file(path / checkpoint.WEIGHTS) for path in checkpoint.checkpoints(folder / "run")[-3:]]
    average = folder / "run" / "average-3"
    for name, tensor in load_file(average / checkpoint.WEIGHTS).items():
        torch.testing.assert_close(tensor, sum(step[name] for step in steps) / 3)
    quality = checkpoint.read_progress(average).scores["quality"]
    single = max(checkpoint.read_progress(path).scores["quality"] for path in checkpoint.checkpoints(folder / "run"))
    assert quality != single
    assert best == (average if quality > single else checkpoint.best(folder / "run"))
    assert Translator.load(average, "cpu").checkpoint == average
    assert checkpoint.latest_intact(folder / "run")[0].name == "step-000012"  # training never goes on from an average


def test_an_average_that_is_better_is_what_translates(folder: Path) -> None:
    run(config(folder, "train.valid_every=4", "train.keep_last=3"), folder)
    path = checkpoint.average(folder / "run", 2)
    assert checkpoint.best(folder / "run") != path
    for quality, chosen in ((1e9, True), (-1e9, False)):
        checkpoint.write_scores(path, {"quality": quality})
        assert (discovery.load(folder / "run").checkpoint == path) == chosen
    with pytest.raises(CheckpointError, match="holds 3 checkpoints, not 9"):
        checkpoint.average(folder / "run", 9)


def test_a_training_starts_from_another_run(folder: Path) -> None:
    best = run(config(folder, "train.ema=0.9"), folder, "first")
    tokenizer = f"tokenizer.model={folder / 'first' / 'spm.model'}"
    start = f"train.init_from={folder / 'first'}"
    slow = "train.schedule=constant(peak=1e-9)"
    for ema in ("0.0", "0.9"):
        tuned = run(config(folder, start, tokenizer, slow, f"train.ema={ema}"), folder, f"tuned {ema}")
        one, two = (load_file(path / checkpoint.WEIGHTS) for path in (best, tuned))
        assert all((one[name] - two[name]).abs().max() < 1e-6 for name in one)
    with pytest.raises(CheckpointError, match="do not fit this model"):
        run(config(folder, start, tokenizer, "model.dim=32"), folder, "wide")
    copy_text(folder, 300, seed=3)
    with pytest.raises(CheckpointError, match="has another tokenizer"):
        run(config(folder, start), folder, "other")


def test_validations_show_translations(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(config(folder, "train.num_samples=3"), folder)
    shown = [line for line in capsys.readouterr().err.splitlines() if " → " in line]
    assert len(shown) == 6
    source = (folder / "valid.en").read_text().splitlines()
    assert [line.removeprefix("nmt:   ").partition(" → ")[0] for line in shown] == source[:3] * 2
    assert next(line["samples"] for line in metrics(folder / "run") if "samples" in line)[0][0] == source[0]


def test_a_jump_of_the_loss_is_noticed() -> None:
    spikes = loop.Spikes()
    normal = [spikes.see(training.StepStats(loss, 10, 1.0)) for loss in [9.0, 2.0] + [3.0] * 60]
    assert not any(normal)
    short_sentences = [5.0, 5.0, 3.0, 5.0, 5.0, 4.0]
    assert not any(spikes.see(training.StepStats(loss, 10, 1.0)) for loss in short_sentences)
    jumps = [spikes.see(training.StepStats(5.0, 10, 1.0)) for _ in range(6)]
    assert jumps == [False, False, True, False, False, False]
    assert spikes.usual == pytest.approx(3.0, abs=0.3)


def test_the_first_updates_and_skipped_ones_are_no_jump() -> None:
    spikes = loop.Spikes()
    assert not any(spikes.see(training.StepStats(loss, 10, 1.0)) for loss in [2.0] + [9.0] * 5 + [3.0] * 60)
    usual = spikes.usual
    assert not any(spikes.see(training.StepStats(math.inf, 10, math.inf, skipped=True)) for _ in range(5))
    assert spikes.usual == usual


def test_a_run_is_never_overwritten(folder: Path) -> None:
    run(config(folder), folder)
    with pytest.raises(UsageError, match="already holds a run") as caught:
        run(config(folder), folder)
    assert "--resume" in caught.value.hint
    assert "--run" in caught.value.hint
    with pytest.raises(UsageError, match="another 'model'"):
        run(config(folder, "model.ffn_dim=16"), folder, resume=True)


def test_what_is_best_is_one_thing_throughout_a_run(folder: Path) -> None:
    run(config(folder), folder)
    with pytest.raises(UsageError, match=r"train\.best"):
        run(config(folder, "train.best_metric=loss", "train.steps=20"), folder, resume=True)


def test_preparing_counts_towards_the_time_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = training.prepare

    def slow(experiment: Config) -> Any:
        time.sleep(1.0)
        return prepare(experiment)

    monkeypatch.setattr(training, "prepare", slow)
    best = run(config(folder, "train.steps=100000", "train.valid_every=100000"), folder, limit=0.9)
    assert checkpoint.read_progress(best).step == 1


def test_more_steps_may_be_asked_of_a_finished_run(folder: Path) -> None:
    run(config(folder), folder)
    assert checkpoint.read_progress(run(config(folder, "train.steps=18"), folder, resume=True)).step <= 18
    assert checkpoint.checkpoints(folder / "run")[-1].name == "step-000018"


def test_damaged_checkpoints_are_named_and_skipped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = config(folder)
    run(experiment, folder)
    first, last = checkpoint.checkpoints(folder / "run")
    weights = (last / checkpoint.WEIGHTS).read_bytes()
    (last / checkpoint.WEIGHTS).write_bytes(weights[:-7])
    run(experiment, folder, resume=True)
    assert f"skipping {last.name}" in capsys.readouterr().err
    assert checkpoint.read_tensors(last, checkpoint.WEIGHTS)  # trained and saved again
    flipped = bytearray((first / checkpoint.TRAINING).read_bytes())
    flipped[len(flipped) // 2] ^= 1
    (first / checkpoint.TRAINING).write_bytes(flipped)
    with pytest.raises(CheckpointError, match="checksum differs"):
        checkpoint.read_tensors(first, checkpoint.TRAINING)
    (last / checkpoint.TRAINING).unlink()
    with pytest.raises(CheckpointError, match="every checkpoint of"):
        run(experiment, folder, resume=True)


def test_a_damaged_checkpoint_is_never_the_best(folder: Path) -> None:
    run(config(folder), folder)
    _, last = checkpoint.checkpoints(folder / "run")
    meta = json.loads((last / checkpoint.META).read_text())
    meta["progress"]["best"] = meta["progress"]["scores"]["quality"] = 1e9
    (last / checkpoint.META).write_text(json.dumps(meta))
    (last / checkpoint.WEIGHTS).write_bytes(b"")
    best = run(config(folder, "train.valid_every=4"), folder, resume=True)
    assert checkpoint.read_tensors(best, checkpoint.WEIGHTS)
    assert (folder / "run" / f"{last.name}.damaged").is_dir()


def test_resume_with_another_tokenizer_is_refused(folder: Path) -> None:
    run(config(folder), folder)
    copy_text(folder, 300, seed=1)
    (folder / "train.en").write_text((folder / "train.en").read_text().replace("ba", "xylophone"), encoding="utf-8")
    with pytest.raises(TrainingError, match="has changed since"):
        run(config(folder, "train.steps=20"), folder, resume=True)
    (folder / "run" / "data.json").rename(folder / "data.json")  # without it only the tokenizer tells
    with pytest.raises(TrainingError, match="another tokenizer"):
        run(config(folder, "train.steps=20"), folder, resume=True)
    (folder / "data.json").rename(folder / "run" / "data.json")
    assert discovery.load(folder / "run").config.train.steps == 12  # the run is as it was


def test_an_endless_validation_line_is_measured_in_a_batch_of_its_own(folder: Path) -> None:
    copy_text(folder, 300)
    for code in ("en", "de"):
        (folder / f"valid.{code}").write_text("ba be bi\n" * 100 + "ba be " * 300 + "\n", encoding="utf-8")
    sizes = []

    def counted(pairs: list[Any], numbers: Any = ()) -> Batch:
        sizes.append((len(pairs), max(len(tgt) for _, tgt in pairs)))
        return collate(pairs, numbers)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer_module, "collate", counted)
        run(config(folder, "train.steps=1"), folder)
    assert sum(sentences for sentences, _ in sizes) == 101
    assert all(sentences == 1 or sentences * longest < 256 for sentences, longest in sizes)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_gpu_run_resumes(folder: Path) -> None:
    train(config(folder), folder / "run", resume=False, device="cuda", precision="auto")
    train(config(folder, "train.steps=18"), folder / "run", resume=True, device="cuda", precision="auto")
    assert checkpoint.checkpoints(folder / "run")[-1].name == "step-000018"


def test_bf16_trains_and_resumes(folder: Path) -> None:
    experiment = config(folder)
    train(experiment, folder / "run", resume=False, device="cpu", precision="bf16")
    longer = dataclasses.replace(experiment, train=dataclasses.replace(experiment.train, steps=14))
    train(longer, folder / "run", resume=True, device="cpu", precision="bf16")
    weights = load_file(checkpoint.checkpoints(folder / "run")[-1] / checkpoint.WEIGHTS)
    assert {t.dtype for t in weights.values()} == {torch.float32}
