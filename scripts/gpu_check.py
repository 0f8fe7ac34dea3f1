#!/usr/bin/env python
"""Check and benchmark nmt on a GPU; scripts/gpu_check.sh describes the options. The report is
Markdown on stdout."""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import io
import json
import os
import random
import shlex
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

from nmt.jobs import process_settings

process_settings.set_defaults()  # before importing torch, like the nmt command

import numpy as np
import torch
from safetensors.torch import load_file

import bench_train
from command_errors import error_messages
from nmt.core import runtime
from nmt.core.config import Config, ModelConfig, TrainConfig, config_io
from nmt.core.console import log
from nmt.core.errors import NMTError, UsageError
from nmt.data.batching import collate
from nmt.data.packing import PackedBatch, PackShape, pack
from nmt.engines import device_search
from nmt.engines.pytorch import TorchModel
from nmt.model.build import build_model
from nmt.model.positions import POSITION_ENCODINGS
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import Transformer
from nmt.runs import checkpoint
from nmt.search import SearchRequest, parse_search
from nmt.text.tokenizer import BOS, EOS
from nmt.training.optim import adamw
from nmt.training.packed_update import PackedUpdate
from nmt.training.session import train
from nmt.training.step import UpdateStats, train_step
from nmt.translation.translator import Translator

SMALL = [
    "model.dim=32",
    "model.heads=2",
    "model.ffn_dim=64",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "train.batch_tokens=400",
]
"""Options of benchmarks on the emulated device."""
SEARCHES = (
    "greedy",
    "beam(beam_size=4, top_beams=4)",
    "diverse(beam_size=4)",
    "constrained(beam_size=4)",
    "sample(n_best=4)",
    "beam(beam_size=4, coverage_penalty=0.2)",
    "mbr(candidates='sample(n_best=4)')",
)
VARIANTS: list[dict[str, Any]] = [
    *({"position_encoding": name} for name in POSITION_ENCODINGS),
    {"norm_position": "post"},
    {"norm": "rms", "activation": "swiglu"},
    {"attention_window": 2},
    {"kv_heads": 1},
    {"attention_score": "additive"},
    {"layer_sharing": 2},
    {"arch": "rnn"},
]
WORDS = "ba be bi bo bu da de di do du ga ge gi go gu".split()


def main() -> None:
    """Run all checks and benchmarks. The exit code is 1 if one fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--emulate", action="store_true", help="emulate a GPU on the CPU, with tiny models"
    )
    emulate = parser.parse_args().emulate
    with tempfile.TemporaryDirectory() as name, _device(emulate) as device:
        directory = Path(name)
        _print_machine(device)
        failed = _check(device, directory)
        failed |= _benchmark_training(emulate)
        _benchmark_decoding(device, emulate)
        _train_multi30k(device, directory, emulate)
    sys.exit(1 if failed else 0)


@contextlib.contextmanager
def _device(emulate: bool) -> Iterator[torch.device]:
    if not emulate:
        if not torch.cuda.is_available():
            raise UsageError(
                "no CUDA GPU is available",
                "scripts/gpu_check.sh --emulate tries the script without one",
            )
        yield torch.device(runtime.resolve_device("cuda"))
        return
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    module = importlib.import_module("fake_cuda")
    with module.fake_cuda():
        yield torch.device("cuda:0")


def _print_machine(device: torch.device) -> None:
    print(
        f"Machine: {torch.cuda.get_device_name(device)}, PyTorch {torch.__version__}, CUDA"
        f" {torch.version.cuda}, "
    )
    print(f"{runtime.num_threads()} threads of {runtime.cpu_name()}.\n")


# ---- checks


def _check(device: torch.device, directory: Path) -> bool:
    """Print the result of each check, and return whether one failed."""
    config = _copy_task(directory)
    checks: dict[str, Callable[[], tuple[bool, str]]] = {
        "gradients of all variants, relative to the CPU": lambda: _check_variants(device),
        **{
            f"training in {precision}, relative to fp32 on the CPU": partial(
                _check_training, config, directory, device, precision, limit
            )
            for precision, limit in (("fp32", 1e-2), ("bf16", 5e-2), ("fp16", 5e-2))
        },
        "packed updates, relative to the CPU": lambda: _check_packed(device),
        "resumed run, relative to an uninterrupted one": lambda: _check_resume(
            config, directory, device
        ),
        "translations of all searches, relative to the CPU": lambda: _check_searches(
            directory, device
        ),
    }
    print("| check | result | difference |\n|---|---|---|")
    failed = False
    for name, check in checks.items():
        log(name)
        try:
            passed, difference = check()
        except Exception as error:  # the report must be complete
            passed, difference = False, _describe(error)
        failed |= not passed
        print(f"| {name} | {'passed' if passed else '**failed**'} | {difference} |", flush=True)
    print()
    return failed


def _copy_task(directory: Path) -> Config:
    """Write text whose target is its source, and return a config for it."""
    rng = random.Random(0)
    for split, pairs in (("train", 2000), ("valid", 50)):
        lines = "".join(
            f"{' '.join(rng.choices(WORDS, k=rng.randint(1, 8)))}\n" for _ in range(pairs)
        )
        for code in ("en", "de"):
            (directory / f"{split}.{code}").write_text(lines, encoding="utf-8")
    train, valid = str(directory / "train"), str(directory / "valid")
    return config_io.load(
        None,
        [
            f"data.train=files(train={train!r}, valid={valid!r}, hold_out=False)",
            "data.clean=[normalize]",
            "tokenizer.vocab_size=300",
            "model.dim=32",
            "model.heads=2",
            "model.ffn_dim=64",
            "model.encoder_layers=2",
            "model.decoder_layers=2",
            "model.dropout=0.0",
            "train.steps=40",
            "train.valid_every=20",
            "train.log_every=1",
            "train.batch_tokens=256",
            "train.calibration_pairs=0",
            "train.schedule=constant(peak=3e-3, warmup=10)",
        ],
    )


def _losses(run: Path) -> list[float]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def _check_training(
    config: Config, directory: Path, device: torch.device, precision: str, limit: float
) -> tuple[bool, str]:
    run = directory / "cpu"
    if not run.exists():
        train(config, run, device="cpu", precision="fp32")
    padded = replace(config, train=replace(config.train, packing=False))
    train(padded, directory / precision, device=str(device), precision=precision)
    expected, actual = _losses(run), _losses(directory / precision)
    difference = max(abs(a - b) / b for a, b in zip(actual, expected, strict=True))
    return difference < limit, f"{difference:.1e} (limit {limit:.0e})"


def _check_packed(device: torch.device) -> tuple[bool, str]:
    """Compare losses, gradient norms and weights of eight packed updates on the GPU, as graphs,
    with those on the CPU."""
    shape = PackShape(400, 410, 120, 64)
    rng = random.Random(0)
    batches = []
    for _ in range(8):
        lengths = [rng.randint(1, 30) for _ in range(24)]
        rows = [[rng.randrange(4, 23) for _ in range(length)] for length in lengths]
        batches.append(pack(list(zip(rows[:12], rows[12:], strict=True)), shape))
    results = [_packed_updates(batches, each) for each in (torch.device("cpu"), device)]
    differences = []
    for one, other in zip(*results, strict=True):
        differences.append(abs(one.loss / other.loss - 1))
        differences.append(abs(one.grad_norm / other.grad_norm - 1))
    return max(differences) < 1e-3, f"{max(differences):.1e}"


def _packed_updates(batches: list[PackedBatch], device: torch.device) -> list[UpdateStats]:
    torch.manual_seed(0)
    sizes = ModelConfig(dim=32, heads=4, ffn_dim=64, encoder_layers=2, decoder_layers=2, dropout=0)
    model = build_model(sizes, 23).to(device).train()
    assert isinstance(model, Transformer)
    updates = PackedUpdate(model, adamw(model, TrainConfig()), TrainConfig())
    stats = []
    for number, batch in enumerate(batches):
        pinned = batch.pin_memory() if device.type == "cuda" else batch
        updates.compute_gradient([pinned], batch.tokens)
        stats.append(updates.apply(0.001 * (1 + number % 3)).read())
    return stats


def _check_resume(config: Config, directory: Path, device: torch.device) -> tuple[bool, str]:
    config = replace(config, model=replace(config.model, dropout=0.1))
    part = replace(config, train=replace(config.train, steps=20))
    train(config, directory / "uninterrupted", device=str(device), precision="bf16")
    train(part, directory / "resumed", device=str(device), precision="bf16")
    train(config, directory / "resumed", device=str(device), resume=True)
    one, other = (
        load_file(checkpoint.checkpoints(directory / name)[-1] / checkpoint.WEIGHTS)
        for name in ("uninterrupted", "resumed")
    )
    difference = max((one[name] - other[name]).abs().max().item() for name in one)
    return difference == 0, f"{difference:.1e}"


def _gradients(model: Seq2Seq, device: torch.device) -> dict[str, torch.Tensor]:
    model = copy.deepcopy(model).to(device).train()
    pairs = [([5, 6, 7], [8, 9]), ([10, 11, 12, 13, 14, 15], [16, 17, 18, 19]), ([20], [21])]
    train_step(
        model, [collate(pairs).to(device)], adamw(model, TrainConfig()), TrainConfig()
    ).read()
    return {name: p.grad.cpu() for name, p in model.named_parameters() if p.grad is not None}


def _check_variants(device: torch.device) -> tuple[bool, str]:
    tiny, worst = (
        ModelConfig(dim=16, heads=4, ffn_dim=32, encoder_layers=2, decoder_layers=2, dropout=0.0),
        (0.0, ""),
    )
    for variant in VARIANTS:
        torch.manual_seed(0)
        model = build_model(replace(tiny, **variant), 23)
        expected, actual = _gradients(model, torch.device("cpu")), _gradients(model, device)
        difference = max((actual[name] - expected[name]).abs().max().item() for name in expected)
        worst = max(
            worst, (difference, ", ".join(f"{key}={value}" for key, value in variant.items()))
        )
    return worst[0] < 1e-3, f"{worst[0]:.1e} ({worst[1]})"


def _check_searches(directory: Path, device: torch.device) -> tuple[bool, str]:
    lines = (directory / "valid.en").read_text(encoding="utf-8").splitlines()
    engines = [Translator.load(directory / "cpu", name, "fp32") for name in ("cpu", str(device))]
    differing = {}
    for spec in SEARCHES:
        one, other = (engine.translate(lines, spec) for engine in engines)
        differing[spec] = sum(a != b for a, b in zip(one, other, strict=True))
    worst = max(differing, key=lambda spec: differing[spec])
    return (
        differing[worst] <= 1,
        f"at most {differing[worst]} of {len(lines)} lines differ ({worst})",
    )


# ---- benchmarks


TRAINING = {
    "base": [],
    "base, Muon": ["train.optimizer=muon"],
    "base, small batches": ["train.batch_tokens=3200"],
    "big": ["model.dim=1024", "model.heads=16", "model.ffn_dim=4096", "model.dropout=0.3"],
}
"""Options of the training benchmarks, all in bf16 with and without packed batches."""


def _benchmark_training(emulate: bool) -> bool:
    """Benchmark training with and without packed batches, and with Eole if the variable EOLE names
    a Python interpreter that has it; return whether a benchmark failed."""
    arguments = "--workload gpu --precision bf16 --switch train.packing=false".split()
    if emulate:
        arguments += "--repeats 1 --updates 2 --pairs 2000 --matrix-side 64".split()
    else:
        arguments += "--repeats 3 --updates 40 --pairs 500000".split()
        # What compiled layers add.
        arguments += ["--switch", "train.compile=[loss]"]
    runs = []
    for options in TRAINING.values():
        options = [*options, *(SMALL if emulate else ())]
        runs.append([*arguments, *(word for option in options for word in ("--set", option))])
    if eole := os.environ.get("EOLE"):
        runs[0] += ["--eole", eole]
    failed = False
    for run in runs:
        command = f"scripts/bench_train.py {shlex.join(run)}"
        log(command)
        print(f"```\n$ {command}")
        with mock.patch.object(sys, "argv", ["bench_train.py", *run]):
            try:
                bench_train.main()
            except Exception as error:  # the report must be complete
                failed = True
                print(f"failed: {_describe(error)}")
        print("```\n", flush=True)
    return failed


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"


def _benchmark_decoding(device: torch.device, emulate: bool) -> None:
    """Benchmark searches of the base model with random weights on random sentences of 24 tokens."""
    sizes, rows = config_io.load(config_io.find("wmt14-base")).model, [4, 64, 768, 3072]
    if emulate:
        sizes, rows = ModelConfig(dim=32, heads=2, ffn_dim=64), [4, 8]
    vocabulary = 100 if emulate else bench_train.VOCABULARY
    torch.manual_seed(0)
    model = TorchModel([build_model(sizes, vocabulary).to(device)], torch.bfloat16)
    rng = np.random.default_rng(0)
    columns = [f"{spec}, {place}" for spec in ("greedy", "beam 4") for place in ("GPU", "NumPy")]
    print(f"Target tokens/s by where the search runs:\n\n| rows | {' | '.join(columns)} |")
    print("|---|" + "---|" * len(columns))
    num_tokens = 4 if emulate else 32
    for num_rows in rows:
        speeds = []
        for spec, width in (("greedy", 1), ("beam(beam_size=4)", 4)):
            sources = [
                [*rng.integers(4, vocabulary, 24).tolist(), EOS] for _ in range(num_rows // width)
            ]
            request = SearchRequest(sources, np.full(len(sources), num_tokens), BOS, EOS)
            for run in (device_search.search, lambda search, *rest: search(*rest)):
                speeds.append(_decoding_speed(run, parse_search(spec), model, request))
        cells = " | ".join(f"{speed:,.0f}" for speed in speeds)
        print(f"| {num_rows} | {cells} |", flush=True)
    print()


def _decoding_speed(
    run: Callable[..., Any], search: Any, model: TorchModel, request: SearchRequest
) -> float:
    """Return the median of three speeds, after a warm-up."""
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        hypotheses = run(search, model, request)
        seconds.append(time.perf_counter() - start)
    return sum(len(h[0].ids) + 1 for h in hypotheses) / statistics.median(seconds[1:])


def _train_multi30k(device: torch.device, directory: Path, emulate: bool) -> None:
    """Train on Multi30k and print BLEU of the test set."""
    corpus = os.environ.get("MULTI30K")
    if not corpus or emulate:
        print(
            "Multi30k: skipped, because"
            f" {'the GPU is emulated' if emulate else 'MULTI30K is not set'}."
        )
        return
    _nmt("data", "download", "multi30k", "--from", corpus, "--force")
    run = directory / "multi30k"
    options = [
        "model.dim=256",
        "model.ffn_dim=1024",
        "model.dropout=0.3",
        "train.batch_tokens=4096",
        "train.steps=2400",
        "train.valid_every=300",
        "train.average_last=3",
        "train.keep_last=3",
    ]
    start = time.monotonic()
    train(config_io.load(config_io.find("multi30k"), options), run, device=str(device))
    seconds = time.monotonic() - start
    scores = _nmt(
        "evaluate", "--model", str(run), "--device", "cuda", "--output", str(directory / "eval")
    )
    print(f"Multi30k, trained in {seconds:.0f} s:\n\n```\n{scores.strip()}\n```")


def _nmt(*arguments: str) -> str:
    """Run a command and return its output."""
    from nmt.cli import main as command

    printed = io.StringIO()
    with mock.patch.object(sys, "argv", ["nmt", *arguments]), contextlib.redirect_stdout(printed):
        try:
            command()
        except SystemExit as error:
            if error.code:
                raise NMTError(f"nmt {arguments[0]} failed") from None
    return printed.getvalue()


if __name__ == "__main__":
    sys.argv[0] = "gpu_check.sh"  # the name in messages
    with error_messages():
        main()
