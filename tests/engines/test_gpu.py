"""Training and search on an emulated GPU (fake_cuda.py) equal those on the CPU, and rarely wait for
the GPU."""

from __future__ import annotations

import copy
import dataclasses
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tiny
import torch
from fake_cuda import DeviceMismatchError, FakeCUDA, GPUTensor, fake_cuda
from test_model import PADDED, PAIRS, TINY, VARIANTS, VOCABULARY
from test_search import N_BEST, new_model
from torch.amp.grad_scaler import GradScaler

from nmt.core.config import Config, TrainConfig
from nmt.core.errors import CheckpointError, TrainingError, UsageError
from nmt.core.runtime import is_out_of_memory, resolve_device
from nmt.data.batching import Batch, collate
from nmt.data.packing import PackedBatch
from nmt.engines import Source
from nmt.engines.load import engine_from_models
from nmt.engines.pytorch import TorchModel, TorchState, top_tokens
from nmt.model import cache
from nmt.model.build import build_model
from nmt.model.layers import Residual
from nmt.model.positions import POSITION_ENCODINGS
from nmt.model.positions.base import GrowingTable
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import DecoderState, Transformer
from nmt.search import Hypothesis, SearchRequest, StepModel, parse_search
from nmt.search.request import StepRequest, StepResult
from nmt.text.tokenizer import BOS, EOS
from nmt.training import compilation, packed_update, profiling, session
from nmt.training import step as step_module
from nmt.training import trainer as trainer_module
from nmt.training.distributed import process_group
from nmt.training.optim import adamw
from nmt.training.packed_update import PackedUpdate
from nmt.training.session import estimate_training, train
from nmt.training.step import train_step
from nmt.translation.translator import Translator

SCRIPT = Path(__file__).parents[2] / "scripts" / "gpu_check.sh"
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.fixture
def gpu() -> Iterator[FakeCUDA]:
    with fake_cuda() as gpu:
        yield gpu


def config(directory: Path, *changes: str) -> Config:
    """Return a config of a short run; a new model would translate until the longest length."""
    return tiny.config(
        directory,
        "model.dropout=0.0",
        "train.valid_pairs=2",
        "train.valid_search=greedy(max_length_ratio=1.0)",
        "train.calibration_pairs=0",
        "train.steps=4",
        "train.valid_every=2",
        *changes,
    )


def metrics(run: Path, name: str = "loss") -> list[float]:
    return [line[name] for line in tiny.metrics(run) if name in line]


def test_emulation_notices_tensors_on_the_cpu(gpu: FakeCUDA) -> None:
    x = torch.ones(3).to("cuda:0")
    with pytest.raises(DeviceMismatchError, match=r"add with a tensor \[3\] on the CPU"):
        x + torch.ones(3)
    assert (x + torch.tensor(1.0)).tolist() == [2, 2, 2]  # numbers are allowed


def test_emulation_counts_waits(gpu: FakeCUDA) -> None:
    x = torch.ones(3).to("cuda:0")
    x.sum().item()
    x[x > 0]
    x[torch.tensor([0])]
    torch.ones(1).to("cuda:0", non_blocking=True)  # not from pinned memory
    x.cpu()
    torch.cuda.synchronize()
    if x.sum() > 0:
        x.to("cuda:0")
    assert gpu.waits.total() == 8
    torch.ones(1).pin_memory().to("cuda:0", non_blocking=True)
    assert (gpu.waits.total(), gpu.copies.total()) == (8, 1)


def test_emulated_generator_is_separate(gpu: FakeCUDA) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = torch.rand(3, device="cuda:0").tolist()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.rand(3, device="cuda:0").tolist() == first


@pytest.mark.slow
@pytest.mark.parametrize("precision", DTYPES)
def test_padded_training_equals_that_of_the_cpu(precision: str, tmp_path: Path) -> None:
    """With validation, checkpoints, a moving average and an average of checkpoints."""
    changes = (
        "train.ema=0.9",
        "train.average_last=2",
        "train.keep_last=2",
        "train.grad_accumulation=2",
        "train.packing=false",
    )
    experiment = config(tmp_path, *changes)
    train(
        experiment,
        tmp_path / "cpu",
        device="cpu",
        precision="fp32" if precision == "fp16" else precision,
    )
    with fake_cuda():
        best = train(experiment, tmp_path / "gpu", device="cuda", precision=precision)
    assert best.parent == tmp_path / "gpu"
    assert (tmp_path / "gpu/average-2").exists()
    tolerance = 1e-5 if precision == "fp32" else 1e-2
    for name in ("loss", "valid_loss", "grad_norm"):
        expected = metrics(tmp_path / "cpu", name)
        assert metrics(tmp_path / "gpu", name) == pytest.approx(expected, rel=tolerance)
    assert metrics(tmp_path / "gpu", "tokens") == metrics(tmp_path / "cpu", "tokens")


@pytest.mark.slow
def test_cudnn_attention_is_off_and_tf32_is_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = []

    def attention(*arguments: Any, **options: Any) -> torch.Tensor:
        settings.append(
            (torch.backends.cuda.cudnn_sdp_enabled(), torch.get_float32_matmul_precision())
        )
        return kernel(*arguments, **options)

    def current() -> tuple[bool, str]:
        return torch.backends.cuda.cudnn_sdp_enabled(), torch.get_float32_matmul_precision()

    kernel, before = torch.nn.functional.scaled_dot_product_attention, current()
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    with fake_cuda():
        train(
            config(tmp_path, "train.steps=2", "train.valid_every=2", "train.packing=false"),
            tmp_path / "run",
            device="cuda",
        )
        assert set(settings) == {(False, "high")}
        settings.clear()
        Translator.load(tmp_path / "run", "cuda").translate(["ba be"])
        assert set(settings) == {(False, "highest")}
    assert current() == before


def test_causal_attention_needs_no_mask(gpu: FakeCUDA, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = Counter[tuple[bool, bool]]()
    kernel = torch.nn.functional.scaled_dot_product_attention

    def attention(
        q: Any, k: Any, v: Any, *, attn_mask: Any = None, is_causal: bool = False, **options: Any
    ) -> Any:
        calls[attn_mask is not None, is_causal] += 1
        return kernel(q, k, v, attn_mask=attn_mask, is_causal=is_causal, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    gradients(build_model(TINY, VOCABULARY), "cuda:0")
    # Two layers: self-attention of the encoder, and self-attention and cross-attention of the
    # decoder.
    assert calls == {(True, False): 4, (False, True): 2}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_resumed_run_is_identical_to_an_uninterrupted_one(precision: str, tmp_path: Path) -> None:
    changes = ("model.dropout=0.2", "train.ema=0.9")
    with fake_cuda():
        train(
            config(tmp_path, *changes),
            tmp_path / "uninterrupted",
            device="cuda",
            precision=precision,
        )
    with fake_cuda():
        train(
            config(tmp_path, *changes, "train.steps=2"),
            tmp_path / "run",
            device="cuda",
            precision=precision,
        )
    with fake_cuda():  # as in a new process
        train(config(tmp_path, *changes), tmp_path / "run", resume=True, device="cuda")
    assert tiny.same_weights(tmp_path / "uninterrupted", tmp_path / "run")
    assert metrics(tmp_path / "run") == metrics(tmp_path / "uninterrupted")


def test_plan_measures_updates_and_memory(
    gpu: FakeCUDA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "MAX_UPDATES", 3)
    estimate = estimate_training(config(tmp_path), device="cuda")
    assert estimate.measured_updates == 3
    assert estimate.memory == 2**30


def limit_memory(monkeypatch: pytest.MonkeyPatch, max_positions: int) -> None:
    """Raise an out-of-memory error for batches of more target positions."""
    backward, packed_loss = step_module.backward, packed_update.packed_loss

    def limited(model: Seq2Seq, batch: Batch, *rest: Any) -> Any:
        if batch.tgt_in_BT.numel() > max_positions:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return backward(model, batch, *rest)

    def limited_loss(model: Transformer, batch: PackedBatch, **options: Any) -> Any:
        if batch.tgt_in_T.numel() > max_positions:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return packed_loss(model, batch, **options)

    monkeypatch.setattr(step_module, "backward", limited)
    monkeypatch.setattr(packed_update, "packed_loss", limited_loss)


@pytest.mark.slow
@pytest.mark.parametrize("packing", ["true", "false"])
def test_batch_size_auto(
    packing: str, gpu: FakeCUDA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "MIN_BATCHES_PER_EPOCH", 1)
    limit_memory(monkeypatch, 300)
    run = tmp_path / "run"
    changes = (
        "train.batch_tokens=1000",
        "train.max_length=128",
        "train.steps=2",
        "train.valid_every=2",
        f"train.packing={packing}",
    )
    train(config(tmp_path, *changes), run, device="cuda", auto_batch_size=True)
    assert "batch_tokens: 2" in (run / "config.yaml").read_text()  # 90% of 300, or a little less


@pytest.mark.slow
def test_padded_batches_that_do_not_fit_are_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    padded = config(tmp_path, "train.packing=false")
    with fake_cuda():
        train(padded, tmp_path / "unlimited", device="cuda", precision="fp32")
    limit_memory(monkeypatch, 100)
    with fake_cuda():
        train(padded, tmp_path / "limited", device="cuda", precision="fp32")
    assert metrics(tmp_path / "limited") == pytest.approx(metrics(tmp_path / "unlimited"), abs=1e-5)


def gradients(model: Seq2Seq, device: str) -> tuple[float, dict[str, torch.Tensor]]:
    """Return loss and gradients of an update of a copy of the model."""
    model = copy.deepcopy(model).to(device).train()
    stats = train_step(model, [batch_on(device)], adamw(model, TrainConfig()), TrainConfig()).read()
    return stats.loss, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def batch_on(device: str) -> Batch:
    batch = collate(PAIRS)
    return batch if device == "cpu" else batch.pin_memory().to(torch.device(device))


TRAINED_PADDED = ["pre", *(name for name in VARIANTS if name in PADDED)]
"""Variants that are trained on padded batches on a GPU, and one that is with a teacher or in
fp16."""


@pytest.mark.slow
@pytest.mark.parametrize("variant", TRAINED_PADDED)
def test_updates_of_every_variant_equal_those_of_the_cpu(variant: str, gpu: FakeCUDA) -> None:
    torch.manual_seed(0)
    model = build_model(dataclasses.replace(TINY, dropout=0.0, **VARIANTS[variant]), VOCABULARY)
    (expected_loss, expected), (loss, actual) = gradients(model, "cpu"), gradients(model, "cuda:0")
    assert loss == pytest.approx(expected_loss, rel=1e-5)
    assert actual.keys() == expected.keys()
    for name, gradient in actual.items():
        assert isinstance(gradient, GPUTensor)
        assert torch.allclose(gradient.cpu(), expected[name], atol=1e-5, rtol=1e-3), name


def waits_per_update(
    model: Seq2Seq, gpu: FakeCUDA, dtype: str = "bf16", *, num_microbatches: int = 2
) -> int:
    """Count the waits of the second update, during which the statistics of the first are read."""
    model = model.to("cuda:0").train()
    model.compute_dtype = DTYPES[dtype]
    optimizer, scaler = adamw(model, TrainConfig()), GradScaler("cuda", enabled=dtype == "fp16")

    def start() -> step_module.PendingStats:
        return step_module.train_step(
            model,
            [batch_on("cuda:0")] * num_microbatches,
            optimizer,
            TrainConfig(),
            scaler=scaler,
        )

    first = start()
    gpu.waits.clear()
    start()
    first.read()
    return gpu.waits.total()


@pytest.mark.slow
@pytest.mark.parametrize("variant", TRAINED_PADDED)
def test_update_waits_once(variant: str, gpu: FakeCUDA) -> None:
    """For the statistics of the previous update; a recurrent encoder needs the lengths of its
    sources on the host."""
    model = build_model(dataclasses.replace(TINY, **VARIANTS[variant]), VOCABULARY)
    waits = waits_per_update(model, gpu, num_microbatches=1)
    places = {place.rpartition(":")[0] for place in gpu.waits}
    if variant == "rnn":
        places = {place for place in places if not place.endswith("model/recurrent.py")}
    else:
        assert waits == 1
    assert places == {"synchronize at training/step.py"}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_update_waits_once_in_every_precision(precision: str, gpu: FakeCUDA) -> None:
    assert waits_per_update(build_model(TINY, VOCABULARY), gpu, precision) == 1


def test_wait_in_the_model_is_noticed(gpu: FakeCUDA, monkeypatch: pytest.MonkeyPatch) -> None:
    add = Residual.add

    def waiting_add(self: Residual, x: torch.Tensor, sublayer_output: torch.Tensor) -> torch.Tensor:
        x.sum().item()
        return add(self, x, sublayer_output)

    monkeypatch.setattr(Residual, "add", waiting_add)
    # Residual connections of two batches.
    assert waits_per_update(build_model(TINY, VOCABULARY), gpu) == 1 + 2 * 10


def test_tensor_left_on_the_cpu_is_noticed(gpu: FakeCUDA, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GrowingTable, "rows", lambda self, start, end, like: self.table[start:end])
    with pytest.raises(DeviceMismatchError, match=r"add .* at model/positions/absolute\.py"):
        waits_per_update(build_model(TINY, VOCABULARY), gpu)


def test_statistics_are_read_after_the_next_update_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    start, read = step_module.train_step, step_module.PendingStats.read
    apply = PackedUpdate.apply

    def started(*args: Any, **options: Any) -> step_module.PendingStats:
        events.append("start")
        return start(*args, **options)

    def applied(*args: Any) -> step_module.PendingStats:
        events.append("start")
        return apply(*args)

    def was_read(self: step_module.PendingStats) -> step_module.UpdateStats:
        events.append("read")
        return read(self)

    monkeypatch.setattr(trainer_module, "train_step", started)
    monkeypatch.setattr(PackedUpdate, "apply", applied)
    monkeypatch.setattr(step_module.PendingStats, "read", was_read)
    experiment = config(tmp_path, "train.steps=4", "train.valid_every=4", "train.log_every=100")
    with fake_cuda():
        train(experiment, tmp_path / "gpu", device="cuda")
    assert events == ["start", "start", "read", "start", "read", "start", "read", "read"]
    events.clear()
    train(experiment, tmp_path / "cpu", device="cpu")
    assert events == ["start", "read"] * 4


def test_fp16_rank_may_begin_without_a_batch(gpu: FakeCUDA) -> None:
    model = build_model(TINY, VOCABULARY).to("cuda:0").train()
    optimizer, scaler = adamw(model, TrainConfig()), GradScaler("cuda")
    stats = train_step(model, [], optimizer, TrainConfig(), tokens=5, scaler=scaler).read()
    assert (stats.loss, stats.grad_norm, stats.skipped) == (0, 0, False)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_non_finite_update_keeps_the_weights(precision: str, gpu: FakeCUDA) -> None:
    model = build_model(TINY, VOCABULARY).to("cuda:0").train()
    optimizer, scaler = (
        adamw(model, TrainConfig()),
        GradScaler("cuda", enabled=precision == "fp16", init_scale=4.0),
    )
    optimizer.param_groups[0]["lr"] = 0.1
    model.output_weight_VD.register_hook(lambda gradient: gradient * float("inf"))
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    pending = step_module.train_step(
        model, [batch_on("cuda:0")], optimizer, TrainConfig(), scaler=scaler
    )
    if precision == "fp16":
        assert pending.read().skipped
        assert scaler.get_scale() == 2.0
    else:
        with pytest.raises(TrainingError, match="the gradient is"):
            pending.read()
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name])


SEARCHES = [
    *N_BEST,
    "beam(beam_size=3, no_repeat_ngram_size=2, min_length_ratio=0.5)",
    "mbr(candidates='sample(n_best=3)')",
]
SEARCH_SOURCES = [
    [4, 5, 6, 3],
    [6, 4, 3],
    [5, 3],
    [6, 6, 3],
    [4, 3],
    [5, 4, 6, 3],
    [5, 5, 3],
    [4, 4, 4, 4, 3],
]


def run_search(model: Seq2Seq, spec: str) -> list[list[Hypothesis]]:
    constraints = [[[4]], [], [[5, 6]], *[[]] * 5] if spec.startswith("constrained") else []
    lengths_B, prefixes = np.array([6, 8, 3, 9, 7, 5, 6, 8]), [[], [4], *[[]] * 6]
    request = SearchRequest(
        SEARCH_SOURCES, lengths_B, BOS, EOS, constraints=constraints, prefixes=prefixes
    )
    return parse_search(spec)(TorchModel([model]), request)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SEARCHES)
@pytest.mark.parametrize("arch", ["transformer", "rnn"])
def test_every_search_equals_that_of_the_cpu(spec: str, arch: str, gpu: FakeCUDA) -> None:
    model = new_model(1)
    if arch == "rnn":
        model = build_model(dataclasses.replace(model.config, arch="rnn"), 7).eval()
    expected, actual = (
        run_search(copy.deepcopy(model).to(device), spec) for device in ("cpu", "cuda:0")
    )
    for sentence, other in zip(expected, actual, strict=True):
        assert [h.ids for h in sentence] == [h.ids for h in other]
        assert [h.score for h in sentence] == pytest.approx([h.score for h in other], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("spec", SEARCHES)
def test_search_step_waits_once(spec: str, gpu: FakeCUDA, monkeypatch: pytest.MonkeyPatch) -> None:
    steps, step = [], TorchState.step

    def counted(self: TorchState, request: StepRequest) -> StepResult:
        before = gpu.waits.total()
        result = step(self, request)
        steps.append(gpu.waits.total() - before)
        return result

    model = new_model(1).to("cuda:0")
    run_search(model, spec)  # moves the tables of position encodings
    monkeypatch.setattr(TorchState, "step", counted)
    gpu.waits.clear()
    run_search(model, spec)
    assert {*steps} == {1}
    assert gpu.waits.total() == len(steps)


GRAPHS = {name: {"position_encoding": name} for name in POSITION_ENCODINGS} | {
    "kv_heads": {"kv_heads": 1},
    "layer_sharing": {"layer_sharing": 2},
    "additive": {"attention_score": "additive"},
    "window": {"attention_window": 3},
}
EAGER = ("floater", "transformer_xl", "window")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variant", "spec"),
    [
        *((variant, "greedy") for variant in GRAPHS),
        ("rotary", "beam"),
        ("sinusoidal", "beam(coverage_penalty=0.2)"),
    ],
)
def test_search_steps_are_graphs(
    variant: str, spec: str, gpu: FakeCUDA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More steps than the initial capacity of the cache; sentences end at different lengths."""
    monkeypatch.setattr(cache, "BLOCK", 6)
    torch.manual_seed(1)
    config = dataclasses.replace(TINY, **GRAPHS[variant])
    models = [
        build_model(config, VOCABULARY).eval() for _ in range(2 if variant == "rotary" else 1)
    ]
    request = SearchRequest([[5] * n for n in (3, 5, 4, 2)], np.array([10, 9, 9, 3]), BOS, EOS)
    search = dataclasses.replace(parse_search(spec), min_length_ratio=4)
    expected, actual = (
        search(TorchModel([copy.deepcopy(model).to(device) for model in models]), request)
        for device in ("cpu", "cuda:0")
    )
    for (one, *_), (other, *_) in zip(expected, actual, strict=True):
        assert one.ids == other.ids
        assert one.score == pytest.approx(other.score, abs=1e-4)
    longest = max(len(h.ids) for h, *_ in expected)
    assert longest > 6
    assert gpu.replays > longest - 6 if variant not in EAGER else gpu.replays == 0
    assert all(gpu.pools[1:])  # of the graph before


def test_old_gpus_cannot_compile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compilation, "find_spec", lambda name: object())
    monkeypatch.setenv("CC", "cc")
    monkeypatch.setattr(compilation.sysconfig, "get_path", lambda name: str(tmp_path))
    compiled = config(tmp_path, "train.compile=[loss]")
    with fake_cuda(), pytest.raises(UsageError, match=r"the headers of Python \(.*Python\.h"):
        compilation.require_compiler(compiled, torch.device("cuda", 0))
    (tmp_path / "Python.h").touch()
    with fake_cuda(capability=(6, 0)), pytest.raises(UsageError, match="compute capability"):
        compilation.require_compiler(compiled, torch.device("cuda", 0))


def test_wait_in_a_capture_is_noticed(gpu: FakeCUDA, monkeypatch: pytest.MonkeyPatch) -> None:
    model = new_model(1).to("cuda:0")

    def waiting_logits(self: Seq2Seq, hidden: torch.Tensor) -> torch.Tensor:
        return hidden @ self.output_weight_VD.cpu().to("cuda:0").t()

    monkeypatch.setattr(type(model), "logits", waiting_logits)
    with pytest.raises(RuntimeError, match="in a CUDA graph"):
        run_search(model, "greedy")


def test_search_continues_without_graphs_if_a_capture_runs_out_of_memory(
    gpu: FakeCUDA, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = new_model(1)
    # The cache grows after the failed capture.
    request = SearchRequest([[5] * 9], np.array([40]), BOS, EOS)
    search = parse_search("beam(beam_size=3, min_length_ratio=4)")
    expected, logits = search(TorchModel([model]), request), type(model).logits

    def limited(self: Seq2Seq, hidden: torch.Tensor) -> torch.Tensor:
        if gpu.captured is not None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return logits(self, hidden)

    monkeypatch.setattr(type(model), "logits", limited)
    actual = search(TorchModel([model.to("cuda:0")]), request)
    assert [[h.ids for h in n_best] for n_best in actual] == [
        [h.ids for h in n_best] for n_best in expected
    ]
    assert (len(gpu.pools), gpu.replays) == (1, 0)


def test_top_tokens_are_those_of_topk(gpu: FakeCUDA) -> None:
    rows_RV = torch.randn(5, 1000).log_softmax(-1)
    rows_RV[0, :990] = -torch.inf  # all finite values are in the last, incomplete block
    rows_RV[1] = rows_RV[1].sort()[0]  # the best ones are in the same blocks
    for k in (1, 2, 8):
        values, indices = top_tokens(rows_RV.to("cuda:0"), k)
        assert torch.equal(values.cpu(), rows_RV.topk(k)[0])
        assert torch.equal(rows_RV.gather(1, indices.cpu()), values.cpu())
        assert indices.cpu().sort()[0].diff().all()


def test_finished_sentences_are_dropped_rarely(
    gpu: FakeCUDA, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, reorder = [], DecoderState.reorder

    def counted(
        self: DecoderState, rows_R: torch.Tensor, sentences_B: torch.Tensor | None = None
    ) -> None:
        if sentences_B is not None:
            kept.append(len(sentences_B))
        reorder(self, rows_R, sentences_B)

    monkeypatch.setattr(DecoderState, "reorder", counted)
    run_search(new_model(1).to("cuda:0"), "greedy")
    on_gpu, previous = kept.copy(), len(SEARCH_SOURCES)
    assert on_gpu
    for number in on_gpu:
        assert number <= 0.75 * previous
        previous = number
    kept.clear()
    run_search(new_model(1), "greedy")
    assert len(kept) > len(on_gpu)


def test_batches_are_larger_on_a_gpu(gpu: FakeCUDA) -> None:
    sizes: list[int] = []

    class Recorder:
        rows, n_best = 4, 1

        def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
            sizes.append(len(request.sources))
            return [[Hypothesis([4], 0.0, 0.0)] for _ in request.sources]

    # PyTorch on both devices.
    model = build_model(dataclasses.replace(TINY, arch="rnn"), VOCABULARY)
    for device, largest in (("cpu", 48), ("cuda:0", 16 * 48)):
        engine_from_models([model], device, "fp32", str).search(
            [Source([5] * 4)] * 3000, Recorder(), lambda _: None
        )
        assert max(sizes) == largest


def test_nccl_has_a_device_and_a_short_timeout(
    gpu: FakeCUDA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only gloo waits for a rank that validates."""
    groups: list[tuple[str, timedelta, torch.device | None]] = []

    def init(backend: str, *, timeout: timedelta, device_id: torch.device | None = None) -> None:
        groups.append((backend, timeout, device_id))

    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(torch.distributed, "init_process_group", init)
    monkeypatch.setattr(torch.distributed, "new_group", init)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    device = torch.device("cuda:0")
    with process_group(device) as group:
        assert (group.rank, group.world_size) == (1, 2)
    assert groups == [("nccl", timedelta(minutes=30), device), ("gloo", timedelta(days=1), None)]


def test_a_failed_rank_does_not_wait_for_the_others(
    gpu: FakeCUDA, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NCCL waits for all ranks when a group is destroyed."""
    calls: list[object] = []
    for name, value in {
        "init_process_group": None,
        "new_group": None,
        "get_rank": 0,
        "is_initialized": True,
    }.items():
        monkeypatch.setattr(torch.distributed, name, lambda *_, value=value, **__: value)
    monkeypatch.setattr(
        torch.distributed, "destroy_process_group", lambda: calls.append("destroyed")
    )
    device = torch.device("cuda:0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with process_group(device):
        assert calls == []
    assert calls == ["destroyed"]
    calls.clear()
    for error, expected_error in (
        (CheckpointError("disk full"), CheckpointError),
        (RuntimeError("a\nNCCL: b"), TrainingError),
    ):
        with (
            pytest.raises(expected_error, match=r"disk full|cannot be reached: NCCL: b"),
            process_group(device),
        ):
            raise error
    assert calls == []


def test_device_with_an_index_is_refused_under_torchrun(
    gpu: FakeCUDA, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve_device("cuda:0") == "cuda:0"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert resolve_device("cuda") == "cuda:0"
    with pytest.raises(
        UsageError, match="--device cuda:0 would give all processes of torchrun the same GPU"
    ):
        resolve_device("cuda:0")


def test_a_rank_translates_on_its_own_gpu(gpu: FakeCUDA, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    trainer: Any = SimpleNamespace(
        device=torch.device("cuda:0"), group=SimpleNamespace(world_size=2)
    )
    assert resolve_device(session.device_name(trainer)) == "cuda:0"
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    trainer.group.world_size = 1
    assert session.device_name(trainer) == "cuda:0"  # --device cuda:N without torchrun


def test_training_and_estimates_use_the_stream_of_their_gpu(
    gpu: FakeCUDA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selected: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", selected.append)
    monkeypatch.setattr(profiling, "MAX_UPDATES", 2)
    experiment = tiny.config(tmp_path, "train.steps=2", "train.valid_pairs=2")
    estimate_training(experiment, device="cuda:0", precision="fp32")
    train(experiment, tmp_path / "run", device="cuda:0", precision="fp32")
    # Also by the threads that load batches.
    assert len(selected) >= 2
    assert set(selected) == {torch.device("cuda:0")}


def test_failed_allocation_of_cublas_is_out_of_memory() -> None:
    error = RuntimeError(
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    )
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED"))


def run_script(python: str) -> tuple[int, str]:
    environment = os.environ | {"PYTHON": python}
    done = subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_the_script_needs_a_gpu(tmp_path: Path) -> None:
    python = tmp_path / "python"
    # Importing PyTorch twice would take seconds; the next test is about the imports.
    python.write_text(f'#!/bin/sh\n[ "$1" = -c ] || exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    code, message = run_script(str(python))
    hint = "scripts/gpu_check.sh --emulate tries the script without one"
    assert (code, message) == (
        2,
        f"gpu_check.sh: error: no CUDA GPU is available\n     hint: {hint}\n",
    )


def test_the_script_needs_an_interpreter() -> None:
    code, message = run_script("nowhere")
    assert code == 2
    assert re.fullmatch(
        r"gpu_check\.sh: error: nmt does not run with nowhere: .*not found\n"
        r"     hint: set PYTHON, or unset it and run scripts/venv\.sh\n",
        message,
    )
