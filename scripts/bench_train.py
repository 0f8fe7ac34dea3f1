#!/usr/bin/env python
"""Benchmark training speed, relative to the machine's matrix product speed and optionally to Eole.

    scripts/bench_train.py                          the CPU workload: Multi30k, 3+3 layers, width 256
    scripts/bench_train.py --workload gpu           the paper's base model on random data with WMT's sentence lengths
    scripts/bench_train.py --eole path/to/python    also benchmark Eole on the same data

Tokens are target tokens without padding. Measurements alternate, so that ratios are reliable on a shared machine.
Requires Multi30k (nmt data download multi30k).
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nmt.cli import environment

environment.set_defaults()  # before importing torch, like the nmt command

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from nmt import runtime
from nmt.config import Config, config_io
from nmt.data.batching import Batch, collate, plan
from nmt.data.loader import Loader
from nmt.model.build import build_model, count_parameters
from nmt.train.optim import adam
from nmt.train.precision import training_dtype
from nmt.train.session import train_step

WORKLOADS = {
    "cpu": (
        "multi30k",
        [
            "model.dim=256",
            "model.ffn_dim=1024",
            "model.norm_position=post",
            "model.dropout=0.1",
            "train.batch_tokens=4096",
        ],
    ),
    "gpu": ("wmt14-base", ["train.batch_tokens=25000", "train.grad_accumulation=1"]),
}
OPERATOR_GROUPS = {  # regular expressions of PyTorch operator names; the first match counts
    "matrix products": r"mm$|bmm|linear|matmul|mkldnn_linear|baddbmm|convolution",
    "attention (fused)": r"scaled_dot_product|flash|efficient",
    "softmax and loss": r"softmax|logsumexp|exp|log|gather|scatter",
    "dropout": r"random|bernoulli|dropout|ge$|ge_$",
    "normalization": r"layer_norm|rms_norm",
    "optimizer": r"adam|foreach|norm",
    "casts and copies": r"copy|_to_copy|clone|cat|contiguous|index|embedding",
    "memory": r"empty|fill|zero|resize|alloc",
}


def main() -> None:
    """Run the benchmark and print a table."""
    arguments = _arguments()
    device = runtime.torch_device("cuda" if arguments.workload == "gpu" else "cpu")
    environment.tune_malloc_for_training()
    name, changes = WORKLOADS[arguments.workload]
    config = config_io.load(config_io.find(name), [*changes, *arguments.set])
    chosen = training_dtype(arguments.precision, device, config)
    compare_dtypes = arguments.precision == "auto" and device.type == "cpu"
    dtypes = [chosen, *({torch.float32, torch.bfloat16} - {chosen} if compare_dtypes else ())]
    torch.manual_seed(config.seed)
    batches, vocabulary = _prepared_batches(config) if arguments.workload == "cpu" else _random_batches(config)
    needed = 5 + arguments.repeats * arguments.updates
    batches = [batch.to(device) for batch in (batches * (needed // len(batches) + 1))[:needed]]
    updates = {dtype: _trainer(config, vocabulary, device, dtype) for dtype in dtypes}
    rates: dict[torch.dtype, list[float]] = {dtype: [] for dtype in dtypes}
    speeds: dict[torch.dtype, list[float]] = {dtype: [] for dtype in dtypes}
    eole_speeds: dict[torch.dtype, list[float]] = {dtype: [] for dtype in dtypes}
    for batch in batches[:5]:
        for update in updates.values():
            update(batch)
    for first in range(5, needed, arguments.updates):  # new batches have new shapes, as in training
        for dtype, update in updates.items():
            rates[dtype].append(_matrix_rate(device, dtype))
            speeds[dtype].append(_speed(update, batches[first : first + arguments.updates], device))
            if arguments.eole:
                eole_speeds[dtype].append(_eole(config, dtype, arguments.eole, arguments.eole_updates))
    work, time_spent = _work(updates[chosen], batches[:8], device)
    per_token = work / sum(batch.tokens for batch in batches[:8])
    padded = sum(batch.tgt_in_BT.numel() for batch in batches)
    padded_source = sum(batch.src_BS.numel() for batch in batches)
    for dtype in dtypes:
        name, speed, rate = str(dtype).removeprefix("torch."), *map(statistics.median, (speeds[dtype], rates[dtype]))
        print(f"{f'{name}, target tokens/s, median':<42}{speed:>10,.0f}   {_all(speeds[dtype])}")
        print(
            f"{f'{name}, matrix rate, GFLOP/s, median':<42}{rate / 1e9:>10,.0f}   {_all(r / 1e9 for r in rates[dtype])}"
        )
        print(f"{f'{name}, share of the matrix rate':<42}{speed * per_token / rate:>10.0%}")
        if eole_speeds[dtype]:
            eole_speed = statistics.median(eole_speeds[dtype])
            print(f"{f'{name}, Eole, target tokens/s, median':<42}{eole_speed:>10,.0f}   {_all(eole_speeds[dtype])}")
    medians = {dtype: statistics.median(speeds[dtype]) for dtype in dtypes}
    print(f"{'chosen precision / fastest precision':<42}{medians[chosen] / max(medians.values()):>10.2f}")
    if arguments.eole:
        best = max(statistics.median(each) for each in eole_speeds.values())
        print(f"{'ratio to Eole in its fastest precision':<42}{medians[chosen] / best:>10.2f}")
    print(f"{'work, MFLOP per target token':<42}{per_token / 1e6:>10.1f}")
    print(f"{'padding among target positions':<42}{1 - sum(b.tokens for b in batches) / padded:>10.1%}")
    print(f"{'padding among source positions':<42}{1 - _source_tokens(batches) / padded_source:>10.1%}")
    print(f"{'target tokens per update':<42}{statistics.mean(b.tokens for b in batches):>10,.0f}")
    print(f"{'peak memory, GB':<42}{_peak(device) / 1e9:>10.2f}")
    for part, seconds in time_spent.most_common():
        print(f"  {part:<40}{seconds / time_spent.total():>10.1%}")


def _arguments() -> Any:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workload", choices=WORKLOADS, default="cpu")
    parser.add_argument("--updates", type=int, default=24, help="updates per repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--eole", metavar="PYTHON", help="Python interpreter of an environment with Eole")
    parser.add_argument("--eole-updates", type=int, default=100)
    return parser.parse_args()


def _all(values: Any) -> str:
    return "(" + ", ".join(f"{value:,.0f}" for value in values) + ")"


# ---- nmt


def _prepared_batches(config: Config) -> tuple[list[Batch], int]:
    from nmt.data.prepare import prepare

    prepared = prepare(config)
    tokenizer = prepared.tokenizer()
    loader = Loader(prepared.store("train"), tokenizer, config.train, config.seed)
    return [batch for update in loader.updates(0) for batch in update.batches], len(tokenizer)


def _random_batches(config: Config) -> tuple[list[Batch], int]:
    """Return batches of random ids with the length distribution of WMT: log-normal around 24 tokens."""
    rng = np.random.default_rng(0)
    src_N = rng.lognormal(3.2, 0.6, 200_000)
    tgt_N = src_N * rng.lognormal(0.05, 0.2, len(src_N))
    lengths_N2 = np.stack((src_N, tgt_N), 1).clip(1, config.train.max_length - 1).astype(np.int64)
    vocabulary = 32_000

    def ids(length: int) -> Any:
        return rng.integers(4, vocabulary, length)

    indices = plan(lengths_N2, config.train.batch_tokens, config.seed, 0)[:64]
    return [collate([(ids(s), ids(t)) for s, t in lengths_N2[batch]]) for batch in indices], vocabulary


def _source_tokens(batches: Sequence[Batch]) -> int:
    return sum(int(batch.src_mask_BS.sum()) for batch in batches)


def _trainer(config: Config, vocabulary: int, device: torch.device, dtype: torch.dtype) -> Callable[[Batch], Any]:
    model = build_model(config.model, vocabulary).to(device).train()
    model.compute_dtype = None if dtype == torch.float32 else dtype
    optimizer = adam(model, config.train)
    for group in optimizer.param_groups:
        group["lr"] = 1e-4
    print(f"{count_parameters(model) / 1e6:.1f} M parameters, {device} {dtype}, {torch.get_num_threads()} threads")
    return lambda batch: train_step(model, [batch], optimizer, config.train)


def _speed(update: Callable[[Batch], Any], batches: Sequence[Batch], device: torch.device) -> float:
    _wait(device)
    before = time.perf_counter()
    for batch in batches:
        update(batch)
    _wait(device)
    return sum(batch.tokens for batch in batches) / (time.perf_counter() - before)


def _matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Return the FLOP/s of a large matrix product: [4096, 1024] by [1024, 1024], larger on a GPU."""
    side = 1024 if device.type == "cpu" else 8192
    a, b = torch.randn(4096, side, device=device, dtype=dtype), torch.randn(side, side, device=device, dtype=dtype)
    seconds = []
    for _ in range(20):
        _wait(device)
        before = time.perf_counter()
        for _ in range(4):
            a @ b
        _wait(device)
        seconds.append((time.perf_counter() - before) / 4)
    return 2 * 4096 * side * side / statistics.median(seconds)


def _work(update: Callable[[Batch], Any], batches: Sequence[Batch], device: torch.device) -> tuple[float, Counter[str]]:
    """Return the floating-point operations of the updates, and their time by operator group."""
    with FlopCounterMode(display=False) as counter:
        for batch in batches:
            update(batch)
    kinds = [torch.profiler.ProfilerActivity.CPU]
    if device.type == "cuda":
        kinds.append(torch.profiler.ProfilerActivity.CUDA)
    with torch.profiler.profile(activities=kinds) as profile:
        for batch in batches:
            update(batch)
        _wait(device)
    spent: Counter[str] = Counter()
    for event in profile.key_averages():
        seconds = event.self_device_time_total if device.type == "cuda" else event.self_cpu_time_total
        name = event.key.removeprefix("aten::")
        part = next((part for part, names in OPERATOR_GROUPS.items() if re.search(names, name)), "other")
        spent[part] += seconds
    return float(counter.get_total_flops()), spent


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _peak(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---- Eole


def _eole(config: Config, dtype: torch.dtype, python: str, updates: int) -> float:
    """Train the same model with Eole on the same data, and return the median target tokens/s."""
    from nmt.data.prepare import prepare

    prepared = prepare(config)
    tokenizer = prepared.tokenizer()
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        for code, side in (("src", prepared.src), ("tgt", prepared.tgt)):
            lines = (prepared.directory / f"train.{side}").read_text(encoding="utf-8").splitlines()
            pieces = (" ".join(tokenizer.ids_to_pieces(tokenizer.encode(line))) for line in lines)
            (work / code).write_text("\n".join(pieces) + "\n", encoding="utf-8")
        (work / "config.json").write_text(json.dumps(_eole_config(config, dtype, work, updates)))
        tool = str(Path(python).with_name("eole"))
        for command in (["build_vocab", "-n_sample", "-1"], ["train"]):
            done = subprocess.run(
                [tool, command[0], "-config", "config.json", *command[1:]],
                cwd=work, capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                sys.exit(f"eole {command[0]} failed:\n{done.stderr[-2000:]}")
    speeds = re.findall(r"\d+/\s*(\d+) tok/s", done.stdout + done.stderr)  # source/target
    return statistics.median(float(speed) for speed in speeds[1:])


def _eole_config(config: Config, dtype: torch.dtype, directory: Path, updates: int) -> dict[str, Any]:
    model, train = config.model, config.train
    return {
        "data": {"all": {"path_src": str(directory / "src"), "path_tgt": str(directory / "tgt")}},
        "save_data": str(directory / "data"),
        "src_vocab": str(directory / "vocab"),
        "share_vocab": True,
        "src_vocab_size": 32000,
        "tgt_vocab_size": 32000,
        "overwrite": True,
        "report_every": 10,
        "training": {
            "model_path": str(directory / "model"),
            "compute_dtype": "fp32" if dtype == torch.float32 else "bf16",
            "use_amp": dtype != torch.float32,
            "batch_type": "tokens",
            "batch_size": train.batch_tokens,
            "normalization": "tokens",
            "bucket_size": 29000,
            "num_workers": 0,
            "optim": "adam",
            "adam_beta2": 0.98,
            "learning_rate": 1e-4,
            "decay_method": "none",
            "max_grad_norm": 1.0,
            "label_smoothing": train.label_smoothing,
            "dropout": [model.dropout],
            "attention_dropout": [0.0],
            "train_steps": updates,
            "save_checkpoint_steps": 10 * updates,
            "valid_steps": 10 * updates,
        },
        "model": {
            "architecture": "transformer",
            "layers": model.encoder_layers,
            "heads": model.heads,
            "hidden_size": model.dim,
            "transformer_ff": model.ffn_dim,
            "word_vec_size": model.dim,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "position_encoding_type": "SinusoidalInterleaved",
        },
    }


if __name__ == "__main__":
    main()
