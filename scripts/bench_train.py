#!/usr/bin/env python
"""Benchmark training speed, relative to the machine's matrix product speed and optionally to Eole.

    scripts/bench_train.py
    scripts/bench_train.py --workload gpu --switch "train.compile=[loss]"
    scripts/bench_train.py --eole path/to/python

The CPU workload is Multi30k with 3+3 layers of width 256. The GPU workload is the paper's base
model on random data with WMT's sentence lengths. --eole also benchmarks Eole on the same data.

Updates come from the loader, as in training. Tokens are target tokens without padding. Measurements
alternate, so that ratios are reliable on a shared machine. The CPU workload requires Multi30k (nmt
data download multi30k).
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, cast

from nmt.jobs import process_settings

process_settings.set_defaults()  # before importing torch, like the nmt command

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

import benchmark
from command_errors import error_messages
from nmt.core import runtime
from nmt.core.config import Config, config_io
from nmt.core.errors import UsageError
from nmt.data.batching import Batch
from nmt.data.mixing import Mix, PreparedCorpus
from nmt.data.packing import PackedBatch
from nmt.data.prepare import prepare
from nmt.data.sources import CorpusOptions
from nmt.data.store import Store, StoredShard
from nmt.model.build import count_parameters
from nmt.training.precision import gpu_kernels, training_dtype
from nmt.training.trainer import Trainer

VOCABULARY = 37_000
WARMUP_UPDATES, PROFILED_UPDATES = 5, 8
EOLE_REPORT_EVERY = 10
"""Updates between two speeds in the log of Eole."""
WORKLOADS = {
    "cpu": (
        "multi30k",
        [
            "model.dim=256",
            "model.ffn_dim=1024",
            "model.norm_position=post",
            "model.dropout=0.1",
            "model.position_encoding=sinusoidal",
            "train.batch_tokens=4096",
            "train.optimizer=adamw",
        ],
    ),
    "gpu": ("wmt14-base", ["train.batch_tokens=25000", "train.grad_accumulation=1"]),
}
OPERATOR_GROUPS = {  # regular expressions of PyTorch operator names; the first match counts
    "matrix products": r"mm$|bmm|linear|matmul|mkldnn_linear|baddbmm|convolution",
    "attention (fused)": r"scaled_dot_product|flash|efficient",
    "softmax and loss": r"softmax|logsumexp|^(exp|log)_?$|gather|scatter",
    "dropout": r"random|bernoulli|dropout|^ge_?$",
    "normalization": r"layer_norm|rms_norm",
    "optimizer": r"adam|foreach|norm",
    "casts and copies": r"copy|_to_copy|clone|cat|contiguous|index|embedding",
    "memory": r"empty|fill|zero|resize|alloc",
}


def main() -> None:
    """Run the benchmark and print a table."""
    arguments = _arguments()
    default = "cuda" if arguments.workload == "gpu" else "cpu"
    device = torch.device(runtime.resolve_device(arguments.device or default))
    process_settings.tune_malloc_for_training()
    with gpu_kernels(device) if device.type == "cuda" else nullcontext():
        variants = _variants(arguments, device)
        first = variants[0]
        _measure(variants, arguments)
        per_token = first.flops_per_token()
        time_spent, idle = first.profile()
    _print_speeds(variants, per_token)
    _print_ratios([variant for variant in variants if not variant.switch])
    _print("work, MFLOP per target token", f"{per_token / 1e6:.1f}")
    _print("padding among target positions", f"{1 - first.tokens / first.positions:.1%}")
    _print("target tokens per update", f"{first.tokens / first.num_updates:,.0f}")
    if idle is not None:
        _print("time without a running kernel", f"{idle:.1%}")
    for part, seconds in time_spent.most_common() if time_spent.total() else ():
        _print(f"  {part}", f"{seconds / time_spent.total():.1%}")


def _variants(arguments: Any, device: torch.device) -> list[Variant]:
    """Return the chosen precision, the others to compare it with, and the switches."""
    name, changes = WORKLOADS[arguments.workload]
    changes = [*changes, *arguments.set]
    config = config_io.load(config_io.find(name), changes)
    dtype = training_dtype(arguments.precision, device, config)
    if arguments.workload == "cpu":
        prepared: Any = prepare(config)
    else:
        prepared = RandomData(config.train.max_length, arguments.pairs)
    variants = [Variant("", config, prepared, device, dtype)]
    if arguments.precision == "auto" and device.type == "cpu":
        for other in {torch.float32, torch.bfloat16} - {dtype}:
            variants.append(Variant("", config, prepared, device, other))
    for switch in arguments.switch:
        switched = config_io.override(config, switch)
        config_io.check(switched)
        variants.append(Variant(switch, switched, prepared, device, dtype))
    return variants


def _measure(variants: list[Variant], arguments: Any) -> None:
    """Measure the variants in turn, and Eole in each precision."""
    for variant in variants:
        variant.advance(WARMUP_UPDATES)
        variant.speeds.clear()
    for _ in range(arguments.repeats):  # new batches have new shapes, as in training
        for variant in variants:
            rate = _matrix_rate(variant.device, variant.dtype, arguments.matrix_side)
            variant.rates.append(rate)
            variant.advance(arguments.updates)
            if arguments.eole and not variant.switch:
                speed = _eole(variant, arguments.eole, arguments.eole_updates)
                variant.eole_speeds.append(speed)


def _print_speeds(variants: list[Variant], flops_per_token: float) -> None:
    for variant in variants:
        speed = _print_median(f"{variant.name}, target tokens/s", variant.speeds)
        rates = [rate / 1e9 for rate in variant.rates]
        rate = _print_median(f"{variant.name}, matrix rate, GFLOP/s", rates)
        share = speed * flops_per_token / 1e9 / rate
        _print(f"{variant.name}, share of the matrix rate", f"{share:.0%}")


def _print_ratios(plain: list[Variant]) -> None:
    """Compare the chosen precision, which is the first, with the others and with Eole."""
    eole = []
    for variant in plain:
        if variant.eole_speeds:
            label = f"{variant.name}, Eole, target tokens/s"
            eole.append(_print_median(label, variant.eole_speeds))
    speeds = [statistics.median(variant.speeds) for variant in plain]
    _print("chosen precision / fastest precision", f"{speeds[0] / max(speeds):.2f}")
    if eole:
        _print("ratio to Eole in its fastest precision", f"{speeds[0] / max(eole):.2f}")


def _print_median(label: str, values: list[float]) -> float:
    median = statistics.median(values)
    numbers = ", ".join(f"{value:,.0f}" for value in values)
    _print(f"{label}, median", f"{median:,.0f}", f"({numbers})")
    return median


def _print(label: str, value: str, detail: str = "") -> None:
    print(f"{label:<66}{value:>10}   {detail}".rstrip())


def _arguments() -> Any:
    parser = benchmark.parser(__doc__)
    parser.add_argument("--workload", choices=WORKLOADS, default="cpu")
    parser.add_argument("--updates", type=int, default=24, help="updates per repeat")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--device", help="default: the device that the workload is named after")
    parser.add_argument("--matrix-side", type=int, help="default: 1024 on a CPU, 8192 on a GPU")
    parser.add_argument("--pairs", type=int, default=2_000_000, help="pairs of the random data")
    parser.add_argument(
        "--switch",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="also measure with this option; repeatable",
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--eole", metavar="PYTHON", help="Python interpreter of an environment with Eole"
    )
    parser.add_argument("--eole-updates", type=int, default=100)
    arguments = parser.parse_args()
    if arguments.eole and arguments.eole_updates < 2 * EOLE_REPORT_EVERY:
        parser.error(
            f"--eole-updates must be at least {2 * EOLE_REPORT_EVERY}, because Eole logs few speeds"
        )
    return arguments


# ---- nmt


class RandomData:
    """Prepared data of random ids with the length distribution of WMT: log-normal around 24 tokens.

    The vocabulary has the 37,000 pieces of the paper.
    """

    def __init__(self, max_length: int, pairs: int) -> None:
        rng = np.random.default_rng(0)
        src_N = rng.lognormal(3.2, 0.6, pairs)
        tgt_N = src_N * rng.lognormal(0.05, 0.2, pairs)
        lengths_N2 = np.stack((src_N, tgt_N), 1).clip(1, max_length - 1)
        self._lengths_N2 = lengths_N2.astype(np.int64)
        self._ids = rng.integers(4, VOCABULARY, 1_000_000)

    def __len__(self) -> int:
        return len(self._lengths_N2)

    def mix(self, config: Config) -> Mix:
        return Mix([PreparedCorpus("random", len(self), CorpusOptions())])

    def store(self, split: str) -> Store:
        """Return a store with this object as its only shard."""
        return Store([cast(StoredShard, self)])

    def lengths_N2(self) -> Any:
        """Return the lengths of all pairs."""
        return self._lengths_N2.copy()

    def release(self) -> None:
        """Do nothing, as no file is mapped."""

    def tokenizer(self) -> _RandomTokenizer:
        return _RandomTokenizer()

    def lines(self, split: str) -> tuple[list[str], list[str]]:
        return [], []

    def ids(self, i: int) -> tuple[Any, Any]:
        """Return the ids of both sides of a pair."""
        return self._row(i, 0), self._row(i, 1)

    def _row(self, i: int, side: int) -> Any:
        start = 7919 * (2 * i + side) % (len(self._ids) - 1024)
        return self._ids[start : start + int(self._lengths_N2[i, side])]


class _RandomTokenizer:
    tag_id = None

    def __len__(self) -> int:
        return VOCABULARY


class Variant:
    """A training run with its own trainer and position in the data; its weights are not saved."""

    def __init__(
        self, switch: str, config: Config, prepared: Any, device: torch.device, dtype: torch.dtype
    ) -> None:
        self.name = str(dtype).removeprefix("torch.") + (switch and f", {switch}")
        self.switch = switch
        self.config = config
        self.device = device
        self.dtype = dtype
        self.prepared = prepared
        self.trainer = Trainer(config, Path(), prepared, device, dtype)
        self.trainer.model.train()
        self._updates = self.trainer.updates()
        self.speeds: list[float] = []
        self.rates: list[float] = []
        self.eole_speeds: list[float] = []
        self.tokens = self.positions = self.num_updates = 0
        model = f"{count_parameters(self.trainer.model) / 1e6:.1f} M parameters"
        print(f"{model}, {device} {dtype}, {torch.get_num_threads()} threads", file=sys.stderr)

    def advance(self, num_updates: int) -> None:
        """Make updates as the training loop does, and record the target tokens per second."""
        start = time.perf_counter()
        tokens = 0
        previous = None
        for update in islice(self._updates, num_updates):
            pending = self.trainer.update(update, self.config.train.steps)
            if previous:
                previous.read()
            previous = pending
            tokens += pending.tokens
            self.positions += sum(map(_num_positions, update.batches))
        assert previous is not None
        previous.read()
        self.speeds.append(tokens / (time.perf_counter() - start))
        self.tokens += tokens
        self.num_updates += num_updates

    def flops_per_token(self) -> float:
        """Return the floating-point operations of an update per target token, counted with padded
        batches and without compilation."""
        config = replace(self.config, train=replace(self.config.train, compile=(), packing=False))
        variant = Variant("", config, self.prepared, self.device, self.dtype)
        with FlopCounterMode(display=False) as counter:
            variant.advance(PROFILED_UPDATES)
        return float(counter.get_total_flops()) / variant.tokens

    def profile(self) -> tuple[Counter[str], float | None]:
        """Return the time of some updates by group of operators, and the fraction in which a GPU
        was idle.

        On a GPU, a kernel's time is that of the operator that launched it, and counts once.
        """
        kinds = [torch.profiler.ProfilerActivity.CPU]
        is_gpu = self.device.type == "cuda"
        seconds = "self_device_time_total" if is_gpu else "self_cpu_time_total"
        if is_gpu:
            kinds.append(torch.profiler.ProfilerActivity.CUDA)
        if not torch.profiler.supported_activities().issuperset(kinds):  # an emulated GPU
            return Counter(), None
        with torch.profiler.profile(activities=kinds) as profile:
            start = time.perf_counter()
            self.advance(PROFILED_UPDATES)
            elapsed = time.perf_counter() - start
        self.speeds.pop()  # profiling is slow
        spent = Counter[str]()
        kernels = 0.0
        for event in profile.key_averages():
            if event.device_type.name != "CPU":
                kernels += event.self_device_time_total
                continue
            name = event.key.removeprefix("aten::")
            parts = (part for part, names in OPERATOR_GROUPS.items() if re.search(names, name))
            spent[next(parts, "other")] += getattr(event, seconds)
        if not is_gpu:
            return spent, None
        spent["compiled"] += round(max(0.0, kernels - spent.total()))  # launched by no operator
        return spent, max(0.0, 1 - kernels / 1e6 / elapsed)


def _num_positions(batch: Batch | PackedBatch) -> int:
    """Return the number of target positions, with padding."""
    return batch.tgt_in_T.numel() if isinstance(batch, PackedBatch) else batch.tgt_in_BT.numel()


def _matrix_rate(device: torch.device, dtype: torch.dtype, side: int | None) -> float:
    """Return the FLOP/s of a large matrix product: [4096, 1024] by [1024, 1024], larger on a
    GPU."""
    side = side or (1024 if device.type == "cpu" else 8192)
    a = torch.randn(4096, side, device=device, dtype=dtype)
    b = torch.randn(side, side, device=device, dtype=dtype)
    seconds = []
    for _ in range(5):
        _wait(device)
        before = time.perf_counter()
        for _ in range(4):
            a @ b
        _wait(device)
        seconds.append((time.perf_counter() - before) / 4)
    return 2 * 4096 * side * side / statistics.median(seconds)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


# ---- Eole


def _eole(variant: Variant, python: str, updates: int) -> float:
    """Train the same model with Eole on the same token ids, written as words, and return the median
    target tokens/s."""
    store = variant.prepared.store("train")
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        for side, name in enumerate(("src", "tgt")):
            rows = (" ".join(map(str, store[i][side])) for i in range(len(store)))
            (work / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
        eole_config = _eole_config(variant, work, updates)
        (work / "config.json").write_text(json.dumps(eole_config), encoding="utf-8")
        tool = str(Path(python).absolute().with_name("eole"))
        for command in (["build_vocab", "-n_sample", "-1"], ["train"]):
            done = subprocess.run(
                [tool, command[0], "-config", "config.json", *command[1:]],
                cwd=work,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                sys.exit(f"eole {command[0]} failed:\n{done.stderr[-2000:]}")
    return eole_speed(done.stdout + done.stderr)


def eole_speed(log: str) -> float:
    """Return the median target tokens/s in the log of Eole, without the first speed, which includes
    its start.

    Raises:
        UsageError: the log has no other speed.
    """
    speeds = re.findall(r"\d+/\s*(\d+) tok/s", log)  # source/target
    if len(speeds) < 2:
        raise UsageError(
            f"Eole logged {len(speeds)} of at least 2 speeds, one every {EOLE_REPORT_EVERY}"
            " updates",
            f"set --eole-updates to {2 * EOLE_REPORT_EVERY} or more",
        )
    return statistics.median(float(speed) for speed in speeds[1:])


def _eole_config(variant: Variant, directory: Path, updates: int) -> dict[str, Any]:
    model, train = variant.config.model, variant.config.train
    is_fp32 = variant.dtype == torch.float32
    devices = {"world_size": 1, "gpu_ranks": [0]} if variant.device.type == "cuda" else {}
    return {
        "data": {"all": {"path_src": str(directory / "src"), "path_tgt": str(directory / "tgt")}},
        "save_data": str(directory / "data"),
        "src_vocab": str(directory / "vocab"),
        "share_vocab": True,
        "src_vocab_size": VOCABULARY,
        "tgt_vocab_size": VOCABULARY,
        "overwrite": True,
        "report_every": EOLE_REPORT_EVERY,
        "training": {
            "model_path": str(directory / "model"),
            "compute_dtype": "fp32" if is_fp32 else "bf16",
            "use_amp": not is_fp32,
            **devices,
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
    with error_messages():
        main()
