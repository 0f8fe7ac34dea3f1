"""Summary of a model: its layers with their shapes and parameter counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook

from nmt.model.seq2seq import Seq2Seq

NUM_SENTENCES, SOURCE_LENGTH, TARGET_LENGTH = 3, 5, 7
"""Sizes of the batch that determines the output shapes."""
Shapes = dict[nn.Module, tuple[int | str, ...]]


@dataclass(frozen=True)
class LayerSummary:
    """A layer of a model, or several identical ones."""

    name: str
    depth: int
    """Nesting level; 0: encoder, decoder and other top-level modules."""
    kind: str
    """Class name; empty for a parameter or a container."""
    weight: tuple[int, ...]
    """Shape of its weight matrix, if any."""
    output: tuple[int | str, ...]
    """Output shape: B sentences, S source and T target tokens; empty if the output is not a single
    tensor."""
    parameters: int
    """Number of parameters; of one layer if several are merged."""
    times: int = 1
    """Number of identical consecutive layers."""


def summarize(model: Seq2Seq) -> list[LayerSummary]:
    """Return the layers of a model in order, each followed by its submodules; skip modules without
    parameters."""
    return list(_summarize(model, 0, _output_shapes(model)))


def _summarize(module: nn.Module, depth: int, outputs: Shapes) -> Iterator[LayerSummary]:
    if module not in outputs:
        for name, parameter in module.named_parameters(recurse=False):
            shape = tuple(parameter.shape)
            yield LayerSummary(name, depth, "", shape, (), parameter.numel())
    for name, child, times in _distinct_children(module):
        count = sum(p.numel() for p in child.parameters())
        if not count:
            continue
        is_dict = isinstance(child, nn.ParameterDict)
        is_container = is_dict or isinstance(child, nn.ModuleList)
        weight = None if is_container else getattr(child, "weight", None)
        yield LayerSummary(
            name,
            depth,
            "" if is_container else type(child).__name__,
            tuple(weight.shape) if isinstance(weight, Tensor) else (),
            outputs.get(child, ()),
            count,
            times,
        )
        if isinstance(child, nn.GRU):  # its parameters are one row
            continue
        if is_dict or list(child.children()):
            yield from _summarize(child, depth + 1, outputs)


def _distinct_children(module: nn.Module) -> Iterator[tuple[str, nn.Module, int]]:
    """Yield name, module and count of a module's children; in a list, consecutive ones of equal
    shapes are merged."""
    children = module.named_children()
    if not isinstance(module, nn.ModuleList):
        for name, child in children:
            yield name, child, 1
        return
    for _, group in groupby(children, _shapes):
        (index, child), *others = group
        first = int(index) + 1
        last = first + len(others)
        name = f"layers {first} to {last}" if others else f"layer {first}"
        yield name, child, 1 + len(others)


def _shapes(named: tuple[str, nn.Module]) -> list[tuple[str, torch.Size]]:
    _, module = named
    return [(name, parameter.shape) for name, parameter in module.named_parameters()]


@torch.no_grad()
def _output_shapes(model: Seq2Seq) -> Shapes:
    """Run a small batch through the model and return the output shape of each module."""
    shapes: Shapes = {}
    num_target = min(TARGET_LENGTH, model.max_positions or TARGET_LENGTH)
    num_source = min(SOURCE_LENGTH, max(1, num_target - 1))
    letters = {num_source: "S", num_target: "T"}

    def record_shape(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() == 3:
            _, length, dim = output.shape
            shapes[module] = ("B", letters.get(length, length), dim)

    src_BS = torch.zeros(NUM_SENTENCES, num_source, dtype=torch.long)
    tgt_BT = torch.zeros(NUM_SENTENCES, num_target, dtype=torch.long)
    target_index_N = torch.arange(NUM_SENTENCES * num_target)
    was_training = model.training
    model.eval()
    with register_module_forward_hook(record_shape):
        model(src_BS, src_BS == 0, tgt_BT, target_index_N)
    model.train(was_training)
    return shapes
