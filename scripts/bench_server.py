#!/usr/bin/env python
"""Load test of `nmt serve`: requests per second and latency at several numbers of clients, and
memory over time.

    scripts/bench_server.py
    scripts/bench_server.py --soak 36000

Each client sends one sentence of the phrasebook after the other over a connection of its own. The
server is a process of its own for each setting; the clients run in this one, on the same
processors.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import benchmark
from benchmark import print_head, print_row
from command_errors import error_messages
from nmt.data.sources import open_split

SETTINGS = {
    "default": [],
    "--max-batch 1": ["--max-batch", "1"],
    "--no-confidence": ["--no-confidence"],
    "--search greedy --no-confidence": ["--search", "greedy", "--no-confidence"],
}
NUM_CLIENTS = (1, 8, 64)


@dataclass
class Load:
    """Requests sent by clients in turn, and their latencies in seconds."""

    port: int
    texts: Iterator[str]
    latencies: list[float] = field(default_factory=list)

    async def run(
        self, num_clients: int, *, seconds: float = float("inf"), requests: float = float("inf")
    ) -> float:
        """Send requests until a limit is reached, and return the time in seconds."""
        start = time.perf_counter()
        self.latencies.clear()

        def is_done() -> bool:
            return len(self.latencies) >= requests or time.perf_counter() - start >= seconds

        await asyncio.gather(*(self._client(is_done) for _ in range(num_clients)))
        return time.perf_counter() - start

    async def _client(self, is_done: Callable[[], bool]) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        while not is_done():
            body = json.dumps({"q": next(self.texts), "source": "en", "target": "de"}).encode()
            head = (
                "POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type:"
                f" application/json\r\nContent-Length: {len(body)}"
            )
            before = time.perf_counter()
            writer.write(f"{head}\r\n\r\n".encode() + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            await reader.readexactly(int(re.search(rb"content-length: (\d+)", answer)[1]))  # type: ignore[index]
            self.latencies.append(time.perf_counter() - before)
            if not answer.startswith(b"HTTP/1.1 200"):
                sys.exit(answer.decode())
        writer.close()


@contextmanager
def server(*options: str) -> Iterator[int]:
    """Run `nmt serve`, and yield its port."""
    command = "-m nmt serve --port 0 --model en-de".split()
    process = subprocess.Popen(
        [sys.executable, *command, *options], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr
    try:
        log = []
        for line in process.stderr:
            log.append(line)
            if match := re.search(r"listening on \S+:(\d+)", line):
                break
        else:
            sys.exit("".join(log))
        yield int(match[1])
    finally:
        process.terminate()
        process.wait()


def metric(port: int, name: str) -> float:
    """Return a metric of the server."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        text = response.read().decode()
    return float(re.search(rf"^{re.escape(name)}(?:{{.*}})? (\S+)$", text, re.MULTILINE)[1])  # type: ignore[index]


def measure(seconds: float, texts: Iterator[str]) -> None:
    """Print a table of all settings and numbers of clients."""
    print_head("options", "clients", "requests/s", "p50", "p95", "p99", "lines per batch")
    for name, options in SETTINGS.items():
        with server(*options) as port:
            load = Load(port, texts)
            asyncio.run(load.run(8, seconds=2))  # warmup
            for num_clients in NUM_CLIENTS:
                lines = metric(port, "nmt_batch_lines_sum")
                batches = metric(port, "nmt_batch_lines_count")
                duration = asyncio.run(load.run(num_clients, seconds=seconds))
                lines = metric(port, "nmt_batch_lines_sum") - lines
                batches = metric(port, "nmt_batch_lines_count") - batches
                quantiles = statistics.quantiles(load.latencies, n=100)
                times = [f"{1000 * quantiles[q - 1]:.0f} ms" for q in (50, 95, 99)]
                rate = f"{len(load.latencies) / duration:.0f}"
                print_row([name, num_clients, rate, *times, f"{lines / batches:.1f}"])


def soak(count: int, texts: Iterator[str]) -> None:
    """Print the memory of the server over a number of requests."""
    with server() as port:
        load = Load(port, texts)
        asyncio.run(load.run(64, requests=1000))  # warmup
        step = max(1, count // 6)
        for done in range(0, count + 1, step):
            if done:
                asyncio.run(load.run(64, requests=step))
            memory = metric(port, "process_resident_memory_bytes") / 1e6
            print(
                f"{done:>7,} requests: {memory:.1f} MB, {metric(port, 'process_open_fds'):.0f} open"
                " files",
                flush=True,
            )


def main() -> None:
    """Run the load test."""
    parser = benchmark.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=15, help="duration of each measurement")
    parser.add_argument(
        "--soak", type=int, default=0, metavar="REQUESTS", help="measure memory instead"
    )
    options = parser.parse_args()
    texts = itertools.cycle(
        [source for source, _ in open_split("phrasebook", "test", "en", "de").pairs()]
    )
    if options.soak:
        soak(options.soak, texts)
    else:
        measure(options.seconds, texts)


if __name__ == "__main__":
    with error_messages():
        main()
