#!/usr/bin/env python3
"""Measure the cost of layers by length and model dimension: attention, recurrence, convolution.

    scripts/experiments/cost.py -o docs/figures/cost.svg

Measures the forward and backward pass of one layer with its projections on one sequence, in
float32. Memory is the size of the tensors saved for the backward pass. Prints Markdown tables with
medians, and the exponent of growth between the last two points. Table 1 of "Attention Is All You
Need" gives n²·d, n·d² and k·n·d².
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from nmt.core.config import ModelConfig
from nmt.model.attention import SelfAttention, split_kv

Cost = tuple[float, float]
"""Seconds, and bytes saved for the backward pass."""
HEADS, KERNEL = 8, 3
UNITS = (("forward + backward time (ms)", 1e3), ("activation memory (MB)", 1e-6))
"""Labels of the two costs, and the factors that convert them to these units."""


class Attention(nn.Module):
    """Self-attention with its projections."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.inner = SelfAttention(ModelConfig(dim=dim, heads=HEADS))

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return the attention output."""
        q_BHTK, kv_BT2GK = self.inner.project(x_BTD)
        return self.inner.attend_and_project(q_BHTK, *split_kv(kv_BT2GK), None)


class Recurrence(nn.Module):
    """A GRU layer, as in the recurrent model."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.inner = nn.GRU(dim, dim, batch_first=True)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return the hidden states."""
        states_BTD: Tensor = self.inner(x_BTD)[0]
        return states_BTD


class Convolution(nn.Module):
    """A convolution with kernel size 3."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.inner = nn.Conv1d(dim, dim, KERNEL, padding=KERNEL // 2)

    def forward(self, x_BTD: Tensor) -> Tensor:
        """Return the convolution output."""
        out_BTD: Tensor = self.inner(x_BTD.transpose(1, 2)).transpose(1, 2)
        return out_BTD


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "self-attention": Attention,
    "recurrence": Recurrence,
    f"convolution, kernel size {KERNEL}": Convolution,
}


def main() -> None:
    """Print the tables and plot them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--lengths", type=int, nargs="+", default=[64, 128, 256, 512, 1024, 2048, 4096]
    )
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 128, 256, 512, 1024])
    parser.add_argument(
        "--length", type=int, default=256, help="sequence length when the width varies"
    )
    parser.add_argument(
        "--width", type=int, default=256, help="width when the sequence length varies"
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    torch.manual_seed(1)
    by_length = measure(
        [(n, options.width) for n in options.lengths], options.repeats, options.device
    )
    by_width = measure(
        [(options.length, d) for d in options.widths], options.repeats, options.device
    )
    tables = {
        f"length, at dimension {options.width}": (options.lengths, by_length),
        f"dimension, at length {options.length}": (options.widths, by_width),
    }
    for label, (sizes, costs) in tables.items():
        for index, (unit, scale) in enumerate(UNITS):
            print(table(f"{unit} by {label}", sizes, costs, index, scale), end="\n\n")
    if options.output:
        draw(tables).savefig(options.output)


def measure(sizes: list[tuple[int, int]], repeats: int, device: str) -> dict[str, list[Cost]]:
    """Return the median cost of each layer at each (length, width). Layers take turns to reduce the
    effect of noise."""
    costs: dict[str, list[Cost]] = {name: [] for name in LAYERS}
    for length, width in sizes:
        layers = {name: make(width).to(device) for name, make in LAYERS.items()}
        x_BTD = torch.randn(1, length, width, device=device, requires_grad=True)
        times: dict[str, list[float]] = {name: [] for name in LAYERS}
        for _ in range(repeats + 1):
            for name, layer in layers.items():
                times[name].append(seconds(layer, x_BTD))
        for name, layer in layers.items():
            num_bytes = saved_bytes(layer, partial(layer, x_BTD))
            costs[name].append((statistics.median(times[name][1:]), num_bytes))
    return costs


def seconds(layer: nn.Module, x_BTD: Tensor) -> float:
    """Return the time of a forward and backward pass."""
    started = time.perf_counter()
    rounds = 0
    while rounds < 3 or time.perf_counter() - started < 0.05:
        layer(x_BTD).sum().backward()
        if x_BTD.is_cuda:
            torch.cuda.synchronize()
        rounds += 1
    return (time.perf_counter() - started) / rounds


def saved_bytes(module: nn.Module, forward: Callable[[], Tensor]) -> int:
    """Return the size of the tensors that a forward pass saves for the backward pass, without
    parameters."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in module.parameters()}
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = forward()
    del out
    return sum(sizes.values())


def table(
    label: str, sizes: list[int], costs: dict[str, list[Cost]], index: int, scale: float
) -> str:
    """Format one quantity as a Markdown table."""
    lines = [
        f"| {label} | " + " | ".join(f"{size:,}" for size in sizes) + " | exponent |",
        "|---" * (len(sizes) + 2) + "|",
    ]
    for name, layer_costs in costs.items():
        values = [cost[index] * scale for cost in layer_costs]
        exponent = (
            math.log(values[-1] / values[-2]) / math.log(sizes[-1] / sizes[-2])
            if len(sizes) > 1
            else math.nan
        )
        lines.append(
            f"| {name} | " + " | ".join(f"{value:.3g}" for value in values) + f" | {exponent:.1f} |"
        )
    return "\n".join(lines)


def draw(tables: dict[str, tuple[list[int], dict[str, list[Cost]]]]) -> Figure:
    """Plot time and memory by length and by width."""
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    for index, (row, (unit, scale)) in enumerate(zip(figure.subplots(2, 2), UNITS, strict=True)):
        for axes, (label, (sizes, costs)) in zip(row, tables.items(), strict=True):
            for name, layer_costs in costs.items():
                axes.plot(
                    sizes,
                    [cost[index] * scale for cost in layer_costs],
                    marker="o",
                    markersize=3,
                    label=name,
                )
            axes.set_xscale("log", base=2)
            axes.set(xlabel=label, ylabel=unit, yscale="log")
            axes.grid(alpha=0.3)
    figure.axes[0].legend(fontsize=8)
    return figure


if __name__ == "__main__":
    main()
