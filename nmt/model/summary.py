"""What a model is made of: every layer with its shapes, its parameters, and their share of the whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nmt.model.seq2seq import Seq2Seq

SENTENCES, SOURCE, TARGET = 3, 5, 7
"""Sizes of the batch whose way through the model tells the shapes."""


@dataclass(frozen=True)
class Part:
    """A part of a model, or several alike."""

    name: str
    depth: int
    """0: encoder, decoder and what else there is; 1: their layers; and so on."""
    kind: str
    """Name of its class; empty for a bare matrix or vector."""
    weight: tuple[int, ...]
    """Shape of its own matrix, if it has one."""
    output: tuple[int | str, ...]
    """Shape of what it computes, B sentences, S source and T target tokens; empty where that is not one tensor."""
    parameters: int
    """Of one of them."""
    times: int = 1
    """How many are alike and follow each other."""


def parts(model: Seq2Seq) -> list[Part]:
    """Return the parts of a model in order, inner ones after the outer one; modules without parameters are left out."""
    return list(_parts(model, "", 0, _outputs(model)))


def _parts(module: nn.Module, name: str, depth: int, outputs: dict[nn.Module, tuple[int | str, ...]]) -> Iterator[Part]:
    for own, parameter in module.named_parameters(recurse=False):
        if isinstance(module, nn.ParameterDict) or not outputs.get(module):
            yield Part(f"{name}.{own}".lstrip("."), depth, "", tuple(parameter.shape), (), parameter.numel())
    for own, children, times in _alike(module):
        first = children[0]
        count = sum(p.numel() for p in first.parameters())
        if not count:
            continue
        if isinstance(first, nn.ModuleList | nn.ParameterDict):
            yield Part(own, depth, "", (), (), count)
        else:
            weight = getattr(first, "weight", None)
            shape = tuple(weight.shape) if isinstance(weight, Tensor) else ()
            yield Part(own, depth, type(first).__name__, shape, outputs.get(first, ()), count, times)
        if isinstance(first, nn.GRU) or not (list(first.children()) or isinstance(first, nn.ParameterDict)):
            continue
        yield from _parts(first, "", depth + 1, outputs)


def _alike(module: nn.Module) -> Iterator[tuple[str, list[nn.Module], int]]:
    """Yield a module's children; in a list, those in a row with the same shapes are one."""
    children = list(module.named_children())
    if not isinstance(module, nn.ModuleList):
        yield from ((name, [child], 1) for name, child in children)
        return
    start = 0
    for end in range(1, len(children) + 1):
        if end == len(children) or _shapes(children[end][1]) != _shapes(children[start][1]):
            first, last = int(children[start][0]) + 1, int(children[end - 1][0]) + 1
            name = f"layer {first}" if first == last else f"layers {first} to {last}"
            yield name, [child for _, child in children[start:end]], end - start
            start = end


def _shapes(module: nn.Module) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(parameter.shape)) for name, parameter in module.named_parameters()]


@torch.no_grad()
def _outputs(model: Seq2Seq) -> dict[nn.Module, tuple[int | str, ...]]:
    """Send a small batch through the model and return the shape that each module computes."""
    found: dict[nn.Module, tuple[int | str, ...]] = {}

    target = min(TARGET, model.max_positions or TARGET)
    source = min(SOURCE, max(1, target - 1))
    letters = {source: "S", target: "T"}

    def note(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor) and output.dim() == 3:
            found[module] = ("B", letters.get(output.shape[1], output.shape[1]), output.shape[2])

    hooks = [module.register_forward_hook(note) for module in model.modules()]
    training = model.training
    try:
        mask_BS = torch.ones(SENTENCES, source, dtype=torch.bool)
        src_BS, tgt_BT = (torch.zeros(SENTENCES, tokens, dtype=torch.long) for tokens in (source, target))
        model.eval()(src_BS, mask_BS, tgt_BT, torch.arange(SENTENCES * target))
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()
    return found
