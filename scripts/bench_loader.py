#!/usr/bin/env python
"""Measure the memory of the loader of training batches, for all ranks of a host together.

    scripts/bench_loader.py data/prepared/0123456789abcdef --ranks 1 2

Each rank is a process of a gloo group that loads its share of the first window and some of the
second one. Memory is the maximum of the sum of all processes above what they had before they opened
the data. Pages of mapped files are counted apart: ranks share them, and the system takes them back
when it needs memory.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Barrier
from pathlib import Path

import benchmark
from command_errors import error_messages
from nmt.core.config import TrainConfig
from nmt.data.loader import Loader
from nmt.data.mixing import Mix, PreparedCorpus
from nmt.data.prepare import PreparedData
from nmt.data.sources import CorpusOptions

INTERVAL = 0.2
"""Seconds between two samples."""
NUM_FURTHER = 50
"""Updates of the second window."""
TIMEOUT = timedelta(hours=1)


@dataclass(frozen=True)
class Memory:
    """Bytes of memory."""

    private: int
    mapped: int
    """Pages of files, of which each process counts its share."""

    @classmethod
    def of(cls, processes: Sequence[BaseProcess]) -> Memory:
        """Return the memory of processes; 0 for those that have ended."""
        private = 0
        mapped = 0
        for process in processes:
            sizes = _sizes(process.pid)
            private += sizes.get("Pss_Anon", 0)
            mapped += sizes.get("Pss_File", 0)
        return cls(private, mapped)


def main() -> None:
    """Measure each number of ranks."""
    parser = benchmark.parser(__doc__)
    parser.add_argument("directory", type=Path, help="prepared data")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch-tokens", type=int, default=25_000)
    arguments = parser.parse_args()
    num_pairs = len(_open(arguments.directory).store("train"))
    titles = ("ranks", "pairs", "s", "private, MB", "bytes/pair", "mapped, MB", "bytes/pair")
    benchmark.print_head(*titles)
    for num_ranks in arguments.ranks:
        start = time.perf_counter()
        peak = _measure(arguments.directory, num_ranks, arguments.batch_tokens)
        seconds = time.perf_counter() - start
        cells: list[object] = [num_ranks, f"{num_pairs:,}", f"{seconds:.0f}"]
        for size in (peak.private, peak.mapped):
            cells += [f"{size / 1e6:,.0f}", f"{size / num_pairs:.1f}"]
        benchmark.print_row(cells)


def _open(directory: Path) -> PreparedData:
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    return PreparedData(directory, manifest["recipe"]["src"], manifest["recipe"]["tgt"], manifest)


def _measure(directory: Path, num_ranks: int, batch_tokens: int) -> Memory:
    """Return the peak of all ranks above their start."""
    context = multiprocessing.get_context("spawn")
    is_ready = context.Barrier(num_ranks + 1)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    processes: list[BaseProcess] = []
    for rank in range(num_ranks):
        options = (directory, rank, num_ranks, batch_tokens, port, is_ready)
        process = context.Process(target=_load, args=options)
        process.start()
        processes.append(process)
    is_ready.wait()
    before = Memory.of(processes)
    is_ready.wait()
    private = 0
    mapped = 0
    while any(process.is_alive() for process in processes):
        now = Memory.of(processes)
        private = max(private, now.private - before.private)
        mapped = max(mapped, now.mapped - before.mapped)
        time.sleep(INTERVAL)
    return Memory(private, mapped)


def _load(
    directory: Path, rank: int, num_ranks: int, batch_tokens: int, port: int, is_ready: Barrier
) -> None:
    """Load the batches of a rank."""
    import torch.distributed

    torch.distributed.init_process_group(
        "gloo", f"tcp://localhost:{port}", TIMEOUT, num_ranks, rank
    )
    is_ready.wait()
    is_ready.wait()
    data = _open(directory)
    config = TrainConfig(batch_tokens=batch_tokens)
    store = data.store("train")
    mix = Mix([PreparedCorpus("", len(store), CorpusOptions())])
    loader = Loader(store, data.tokenizer(), config, 1, rank, num_ranks, mix=mix)
    num_batches = len(loader.window(0, 0).batches)
    num_updates = math.ceil(num_batches / num_ranks) + NUM_FURTHER
    num_tokens = 0
    for update in islice(loader.stream(0, 0, 0), num_updates):
        num_tokens += update.tokens
    # The ranks have the same plan.
    total = torch.tensor(num_tokens)
    torch.distributed.all_reduce(total)
    assert total == num_ranks * num_tokens
    torch.distributed.destroy_process_group()


def _sizes(pid: int | None) -> dict[str, int]:
    """Return the sizes of a process in bytes."""
    sizes: dict[str, int] = {}
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:  # it has ended
        return sizes
    for line in rollup.splitlines()[1:]:
        name, size, _ = line.split()
        sizes[name.rstrip(":")] = 1024 * int(size)
    return sizes


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with error_messages():
        main()
