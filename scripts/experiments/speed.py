#!/usr/bin/env python3
"""Measure the training speed, translation speed and activation memory of trained runs.

    scripts/experiments/speed.py test.en runs/experiments/positions/*_seed=1

Prints a Markdown table with speeds relative to the first run. The runs take turns and the table has
medians of the ratios within rounds, which are reliable on a shared machine. Tokens are target
tokens without padding. Memory is the size of the tensors that an update saves for the backward
pass, without parameters. Translation uses greedy search.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nmt.engines.batch_engine import make_batches

os.environ["NMT_ENGINE"] = (
    "0"  # PyTorch decodes all models, because the native engine does not support some
)

from nmt.jobs import process_settings

process_settings.set_defaults()  # before importing torch, like the nmt command

import torch
from cost import saved_bytes
from torch import Tensor

from nmt.core import runtime
from nmt.data.batching import collate
from nmt.model.build import count_parameters
from nmt.models import discovery
from nmt.training.optim import adamw
from nmt.training.precision import training_dtype
from nmt.training.step import train_step
from nmt.translation.translator import Translator


@dataclass
class Subject:
    """A trained run."""

    name: str
    parameters: int
    megabytes: float
    """Saved for the backward pass, per 1,000 target tokens."""
    tasks: dict[str, Callable[[], int]]
    """Functions to time. They train or translate, and return the number of target tokens."""
    speeds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """Tokens per second of each round, by task."""


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "source",
        type=Path,
        help="file with lines to translate and to train on as their own translations",
    )
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    lines = arguments.source.read_text(encoding="utf-8").split("\n")[: arguments.lines]
    subjects = [subject(run, [line for line in lines if line]) for run in arguments.runs]
    for _ in range(arguments.repeats + 1):
        for each in subjects:
            for kind, work in each.tasks.items():
                started = time.perf_counter()
                each.speeds[kind].append(work() / (time.perf_counter() - started))
    print(
        "| run | parameters | training, tokens/s | ratio | translation, tokens/s | ratio | MB per"
        " 1,000 tokens |"
    )
    print("|---|---|---|---|---|---|---|")
    for each in subjects:
        row = f"| {each.name} | {each.parameters / 1e6:.2f} M |"
        for kind in each.tasks:
            # The first round is a warmup.
            values, first = (
                each.speeds[kind][1:],
                subjects[0].speeds[kind][1:],
            )
            ratio = statistics.median(a / b for a, b in zip(values, first, strict=True))
            row += f" {statistics.median(values):,.0f} | {ratio:.2f} |"
        print(f"{row} {each.megabytes:.1f} |")


def subject(run: Path, lines: list[str]) -> Subject:
    """Load a run for translation and training."""
    loaded = discovery.load(run)
    translator = Translator.load(run)
    device = torch.device(runtime.resolve_device("auto"))
    model, config = loaded.model.to(device).train(), loaded.config
    dtype = training_dtype("auto", device, config)
    model.compute_dtype = None if dtype == torch.float32 else dtype
    optimizer = adamw(model, config.train)
    for group in optimizer.param_groups:
        group["lr"] = 1e-9  # do not change the model
    ids = [loaded.tokenizer.encode(line) for line in lines]  # each line is its own translation
    lengths = [len(each) + 1 for each in ids]
    max_tokens = config.train.batch_tokens
    batches = []
    for batch in make_batches(lengths, max_items=len(ids), max_tokens=max_tokens):
        pairs = [(ids[i], ids[i]) for i in batch]
        batches.append(collate(pairs).to(device))

    def train() -> int:
        for batch in batches:
            train_step(model, [batch], optimizer, config.train).read()
        return sum(batch.tokens for batch in batches)

    def translate() -> int:
        return sum(
            len(loaded.tokenizer.encode(text)) + 1 for text in translator.translate(lines, "greedy")
        )

    def forward() -> Tensor:
        batch = batches[0]
        hidden_ND: Tensor = model(
            batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N
        )
        return hidden_ND

    kept = saved_bytes(model, forward) / 1e3 / batches[0].tokens
    return Subject(
        run.name, count_parameters(model), kept, {"trains": train, "translates": translate}
    )


if __name__ == "__main__":
    main()
