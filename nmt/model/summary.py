"""Summary of a model: its layers with their shapes and parameter counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
from torch import Tensor, nn

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
    for name, parameter in module.named_parameters(recurse=False):
        if isinstance(module, nn.ParameterDict) or not outputs.get(module):
            yield LayerSummary(name, depth, "", tuple(parameter.shape), (), parameter.numel())
    for name, child, times in _distinct_children(module):
        count = sum(p.numel() for p in child.parameters())
        if not count:
            continue
        if isinstance(child, nn.ModuleList | nn.ParameterDict):
            yield LayerSummary(name, depth, "", (), (), count)
        else:
            weight = getattr(child, "weight", None)
            shape = tuple(weight.shape) if isinstance(weight, Tensor) else ()
            yield LayerSummary(
                name, depth, type(child).__name__, shape, outputs.get(child, ()), count, times
            )
        if not isinstance(child, nn.GRU) and (
            list(child.children()) or isinstance(child, nn.ParameterDict)
        ):
            yield from _summarize(child, depth + 1, outputs)


def _distinct_children(module: nn.Module) -> Iterator[tuple[str, nn.Module, int]]:
    """Yield name, module and count of a module's children; in a list, consecutive ones of equal
    shapes are merged."""
    children = module.named_children()
    if not isinstance(module, nn.ModuleList):
        yield from ((name, child, 1) for name, child in children)
        return
    for _, group in groupby(children, lambda each: _shapes(each[1])):
        (index, child), *others = group
        first = int(index) + 1
        yield (
            f"layers {first} to {first + len(others)}" if others else f"layer {first}",
            child,
            1 + len(others),
        )


def _shapes(module: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(parameter.shape)) for name, parameter in module.named_parameters()]


@torch.no_grad()
def _output_shapes(model: Seq2Seq) -> Shapes:
    """Run a small batch through the model and return the output shape of each module."""
    shapes: Shapes = {}
    target = min(TARGET_LENGTH, model.max_positions or TARGET_LENGTH)
    source = min(SOURCE_LENGTH, max(1, target - 1))
    letters = {source: "S", target: "T"}

    def record_shape(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() == 3:
            shapes[module] = ("B", letters.get(output.shape[1], output.shape[1]), output.shape[2])

    hooks = [module.register_forward_hook(record_shape) for module in model.modules()]
    training = model.training
    try:
        mask_BS = torch.ones(NUM_SENTENCES, source, dtype=torch.bool)
        src_BS, tgt_BT = (
            torch.zeros(NUM_SENTENCES, tokens, dtype=torch.long) for tokens in (source, target)
        )
        model.eval()(src_BS, mask_BS, tgt_BT, torch.arange(NUM_SENTENCES * target))
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return shapes
