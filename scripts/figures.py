#!/usr/bin/env python3
"""Draw the figures of docs/guide that need no trained model, by the functions that the guide is about.

    scripts/figures.py docs/guide/figures

scripts/make_figures.sh draws these and those of trained models.

Shape letters: Q queries, S keys, K width, V words, R rows.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import numpy as np
import torch
from matplotlib import rcParams
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from nmt.config import ModelConfig, config_io
from nmt.model.attention import ATTENTION_SCORES, SelfAttention, masked_softmax, record_attention
from nmt.model.build import build_model, count_parameters
from nmt.model.transformer import Transformer
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.search.request import SearchRequest, StepRequest, StepResult, best_tokens
from nmt.train.loss import cross_entropy
from nmt.train.optim import schedule


def pooling() -> Figure:
    """Draw the same noisy points, read off by average, by a kernel, and by a kernel whose width is learned."""
    generator = torch.Generator().manual_seed(1)
    keys_S = torch.rand(50, generator=generator).mul(5).sort().values
    values_S = _truth(keys_S) + 0.5 * torch.randn(50, generator=generator)
    queries_Q = torch.linspace(0, 5, 100)
    learned = _learned_width(keys_S, values_S)
    kinds = {"average": 0.0, "Gaussian kernel": 1.0, f"learned kernel, w = {learned:.1f}": learned}
    figure = Figure(figsize=(11, 6), layout="constrained")
    for (line, image), (name, width) in zip(figure.subplots(2, 3).T, kinds.items(), strict=True):
        weights_QS = masked_softmax(_kernel(queries_Q, keys_S, width), None)
        line.plot(keys_S.numpy(), values_S.numpy(), "o", markersize=3, alpha=0.5, label="keys and values")
        line.plot(queries_Q.numpy(), _truth(queries_Q).numpy(), "--", color="C7", label="the truth")
        line.plot(queries_Q.numpy(), (weights_QS @ values_S).numpy(), color="C1", label="what queries get")
        line.set(title=name, xlabel="query")
        image.imshow(
            weights_QS.numpy(),
            vmin=0,
            vmax=0.2,
            aspect="auto",
            cmap="Blues",
            extent=(0, 50, 5, 0),
            interpolation="nearest",
        )
        image.set(xlabel="number of the key", ylabel="query")
    figure.axes[0].legend(fontsize=8)
    return figure


def _truth(x: Tensor) -> Tensor:
    return 2 * x.sin() + x**0.8


def _kernel(queries_Q: Tensor, keys_S: Tensor, width: float | Tensor) -> Tensor:
    """Return the scores -(w (q - k))²/2, whose softmax is the Nadaraya-Watson estimator's weights: [Q, S]."""
    return -((width * (queries_Q[:, None] - keys_S)) ** 2) / 2


def _learned_width(keys_S: Tensor, values_S: Tensor) -> float:
    """Return the w with which each point is best told from the others."""
    width = torch.ones((), requires_grad=True)
    optimizer = torch.optim.Adam([width], lr=0.1)
    others = ~torch.eye(len(keys_S), dtype=torch.bool)
    for _ in range(200):
        guess_S = masked_softmax(_kernel(keys_S, keys_S, width), others) @ values_S
        optimizer.zero_grad()
        (guess_S - values_S).square().mean().backward()
        optimizer.step()
    return abs(float(width.detach()))


def scores() -> Figure:
    """Draw how much of its attention a query gives to one of 20 random keys, by width and scoring function."""
    widths = [2**n for n in range(1, 11)]
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    found: dict[str, list[float]] = {"dot product": [], "scaled dot product": [], "additive, not yet trained": []}
    for width in widths:
        q, k = (torch.randn(8, 1, count, width, generator=generator) for count in (25, 20))
        dot, additive = (ATTENTION_SCORES[name](1, width) for name in ("dot", "additive"))
        for name, found_BHQS in zip(found, (dot(q, k), dot(q / width**0.5, k), additive(q, k)), strict=True):
            found[name].append(float(masked_softmax(found_BHQS, None).amax(-1).mean().detach()))
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, most in found.items():
        axes.plot(widths, most, marker="o", markersize=3, label=name)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="width of queries and keys", ylabel="largest weight, mean", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def masks() -> Figure:
    """Draw what a query may see under each mask: the weights of an attention to which all keys are alike."""
    tokens, lengths = 8, (8, 5)
    ahead_TT = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    real_B11S = (torch.arange(tokens) < torch.tensor(lengths)[:, None])[:, None, None]
    panels = {
        "no mask": _weights(0, None, tokens)[0],
        "padding, 5 of 8 are real": _weights(0, real_B11S, tokens)[1],
        "look-ahead": _weights(0, ahead_TT, tokens)[0],
        "window of 2": _weights(2, None, tokens)[0],
        "window of 2 and look-ahead": _weights(2, ahead_TT, tokens)[0],
    }
    figure = Figure(figsize=(14, 3.1), layout="compressed")
    for axes, (name, weights_QS) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        image = axes.imshow(weights_QS.numpy(), vmin=0, vmax=1, cmap="Blues")
        axes.set(title=name, xlabel="key", ylabel="query")
        axes.title.set_fontsize(10)
        axes.set_xticks(range(tokens))
        axes.set_yticks(range(tokens))
    figure.colorbar(image, ax=figure.axes)
    return figure


def _weights(window: int, mask: Tensor | None, tokens: int) -> Tensor:
    """Return the weights that a self-attention of zero queries and keys gives, [B, Q, S]."""
    attention = SelfAttention(ModelConfig(dim=4, heads=1, attention_window=window)).eval()
    zeros_BHTK = torch.zeros(2, 1, tokens, 4)
    with record_attention(attention) as found:
        attention.attend(zeros_BHTK, zeros_BHTK, zeros_BHTK, mask)
    (weights_BHQS,) = found[""]
    return weights_BHQS[:, 0]


def layers() -> Figure:
    """Draw how strongly each layer of a deep decoder is pulled by the first update, for post- and pre-norm."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    size, pull = figure.subplots(1, 2)
    for norm in ("post", "pre"):
        torch.manual_seed(1)
        config = ModelConfig(
            dim=128, heads=4, ffn_dim=512, encoder_layers=2, decoder_layers=12, norm_position=norm, dropout=0.0
        )
        model = build_model(config, 500)
        assert isinstance(model, Transformer)
        sizes: list[float] = []
        for layer in model.decoder_layers:
            layer.register_forward_hook(
                lambda _, __, out, to=sizes: to.append(float(out.detach().square().mean().sqrt()))
            )
        ids_BT = torch.randint(4, 500, (8, 20))
        real_N = torch.arange(ids_BT.numel())
        hidden_ND = model(ids_BT, torch.ones_like(ids_BT, dtype=torch.bool), ids_BT, real_N)
        loss = cross_entropy(hidden_ND, model.output_weight_VD, ids_BT.flatten().roll(-1), smoothing=0.0)
        (loss / len(real_N)).backward()
        pulls = [
            float(sum(p.grad.square().sum() for p in layer.feed_forward.parameters() if p.grad is not None)) ** 0.5
            for layer in model.decoder_layers
        ]
        numbers = range(1, len(pulls) + 1)
        size.plot(numbers, sizes, marker="o", markersize=3, label=f"{norm}-norm")
        pull.plot(numbers, pulls, marker="o", markersize=3, label=f"{norm}-norm")
    size.set(title="size of what a layer hands on", xlabel="decoder layer", ylabel="root mean square")
    pull.set(title="gradient of its feed-forward weights", xlabel="decoder layer", ylabel="norm", yscale="log")
    for axes in (size, pull):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    return figure


def parameters() -> Figure:
    """Draw where the parameters of the shipped configurations are."""
    names = ("quickstart", "multi30k", "tatoeba", "wmt14-base")
    kinds = {
        "embeddings and output": "embeddings", "encoder: attention": "encoder.*attention.",
        "encoder: feed-forward": "encoder.*feed_forward", "decoder: self-attention": "decoder.*attention.",
        "decoder: attention to the source": "decoder.*cross.", "decoder: feed-forward": "decoder.*feed_forward",
        "norms": "*norm",
    }  # fmt: skip
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    axes = figure.subplots()
    for row, name in enumerate(names):
        config = config_io.load(config_io.find(name), [])
        with torch.device("meta"):
            model = build_model(config.model, config.tokenizer.vocab_size)
        total, left = count_parameters(model), 0.0
        for number, (kind, pattern) in enumerate(kinds.items()):
            found = (p.numel() for key, p in model.named_parameters() if fnmatch(_plain(key), f"{pattern}*"))
            share = sum(found) / total
            axes.barh(row, share, left=left, color=f"C{number}", label=kind if row == 0 else None)
            left += share
        axes.text(1.01, row, f"{total / 1e6:.1f} M", va="center")
        assert abs(left - 1) < 1e-6, f"{name}: {left} of its parameters are shown"
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(0, 1.1), xlabel="share of the parameters")
    axes.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=4, fontsize=8)
    return figure


def _plain(key: str) -> str:
    """Tell norms around a sub-layer from the sub-layer."""
    return "norm" if "norm" in key else key


def schedules() -> Figure:
    """Draw learning rates over a training, and what label smoothing makes of being sure."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    rates, smoothed = figure.subplots(1, 2)
    steps = range(1, 2001)
    for spec in (
        "noam(warmup=400, factor=0.5)", "linear(peak=1e-3, warmup=400)", "cosine(peak=1e-3, warmup=400)",
        "wsd(peak=1e-3, warmup=400)",
    ):  # fmt: skip
        rate = schedule(spec)
        rates.plot(steps, [rate(step, len(steps), 256) for step in steps], label=spec)
    rates.set(title="learning rate", xlabel="update")
    words = 8000
    target_1, leads = torch.tensor([3]), torch.linspace(0, 25, 200)
    for smoothing in (0.0, 0.1, 0.2):
        losses = []
        for lead in leads:  # the right word's logit stands so far above all the others
            logits_V1 = torch.zeros(words, 1).index_fill(0, target_1, float(lead))
            losses.append(float(cross_entropy(torch.ones(1, 1), logits_V1, target_1, smoothing=smoothing)))
        smoothed.plot(leads.numpy(), losses, label=f"label_smoothing={smoothing}")
    smoothed.set(title="loss with label smoothing", xlabel="logit of the right word above all others", ylabel="nats")
    for axes in (rates, smoothed):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    return figure


NEXT: dict[str, dict[str, float]] = {
    "": {"der": 0.5, "ein": 0.4, "Hund": 0.1},
    "der": {"Hund": 0.4, "kleine": 0.35, "Mann": 0.25},
    "ein": {"Hund": 0.8, "Mann": 0.1, "kleiner": 0.1},
    "der kleine": {"Hund": 0.6, "Mann": 0.4},
    "ein kleiner": {"Hund": 0.9, "Mann": 0.1},
}
"""A made-up model: which word follows what, with which probability. After anything else the sentence ends."""
END = "</s>"
WORDS = ["<pad>", "<s>", END, *dict.fromkeys(word for row in NEXT.values() for word in row)]


@dataclass
class Memory:
    """What the made-up model has read in each row: enough of a decoder's state for a search."""

    read: list[str]
    attention_RS: NDArray[np.float32] | None = None

    def step(self, request: StepRequest) -> StepResult:
        """Read a word for each row."""
        words = [WORDS[token] for token in request.tokens_R.tolist()]
        self.read = [self.read[parent] for parent in request.parents_R.tolist()]
        if words != ["<s>"] * len(words):
            self.read = [f"{read} {word}".strip() for read, word in zip(self.read, words, strict=True)]
        rows = [NEXT.get(read, {END: 1.0}) for read in self.read]
        with np.errstate(divide="ignore"):
            log_p_RV = np.log(np.array([[row.get(word, 0.0) for word in WORDS] for row in rows], np.float32))
        return best_tokens(log_p_RV, request)


class MadeUp:
    """The made-up model, as a search sees a model."""

    def prefill(self, sources: Sequence[Sequence[int]], *, track_attention: bool = False) -> Memory:
        """Begin with nothing read."""
        return Memory([""] * len(sources))


def searched(search: Greedy | Beam) -> list[tuple[str, float]]:
    """Return what a search finds in the made-up model, with its probability, best first."""
    task = SearchRequest([[0]], np.array([5]), bos=WORDS.index("<s>"), eos=WORDS.index(END))
    (found,) = search(MadeUp(), task)
    return [(" ".join(WORDS[i] for i in each.ids), float(torch.tensor(each.log_prob).exp())) for each in found]


def search() -> Figure:
    """Draw the made-up model's translations as a tree, and which of them greedy search and a beam of two find."""
    (greedy, _), (beam, _) = searched(Greedy())[0], searched(Beam(beam_size=2, length_penalty=0.0))[0]
    figure = Figure(figsize=(9, 5))
    axes = figure.add_axes((0, 0, 1, 1))
    leaves = iter(range(100))

    def grow(read: str, probability: float) -> float:
        """Draw what may follow, and return the height at which `read` itself stands."""
        depth = len(read.split())
        rows = NEXT.get(read, {})
        heights = []
        for word, share in rows.items():
            after = f"{read} {word}".strip()
            height = grow(after, probability * share)
            heights.append((after, height, share))
        own = sum(height for _, height, _ in heights) / len(heights) if heights else -float(next(leaves))
        for after, height, share in heights:
            on = [name for name, path in (("C3", greedy), ("C2", beam)) if f"{path} ".startswith(f"{after} ")]
            axes.plot([depth, depth + 1], [own, height], color=on[0] if on else "0.8", linewidth=2.5 if on else 1)
            axes.text(depth + 0.55, own + 0.55 * (height - own) + 0.08, f"{share:g}", fontsize=8, ha="center")
        label = read.split()[-1] if read else "start"
        axes.text(depth, own, label, ha="center", va="center", bbox={"facecolor": "w", "edgecolor": "0.6"})
        if not rows:
            axes.text(depth + 0.3, own, f"{probability:.3f}", va="center", fontsize=9)
        return own

    grow("", 1.0)
    axes.plot([], [], color="C3", linewidth=2.5, label=f"greedy: {greedy}")
    axes.plot([], [], color="C2", linewidth=2.5, label=f"beam of 2: {beam}")
    axes.legend(loc="upper left")
    axes.set_xlim(-0.3, 3.6)
    axes.set_axis_off()
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "pooling.svg": pooling, "scores.svg": scores, "masks.svg": masks, "layers.svg": layers,
    "parameters.svg": parameters, "schedules.svg": schedules, "search.svg": search,
}  # fmt: skip


def main() -> None:
    """Draw them all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    rcParams["svg.hashsalt"] = "nmt"  # the same picture is the same file
    for name, draw in FIGURES.items():
        draw().savefig(folder / name, metadata={"Date": None})
        print(folder / name)


if __name__ == "__main__":
    main()
