#!/usr/bin/env python3
"""Draw the figures of docs/guide that do not need a trained model.

    scripts/figures.py docs/guide/figures

scripts/make_figures.sh draws all figures.

Shape suffixes: Q queries, S keys, K width, V words, R rows.
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
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray
from torch import Tensor

from nmt.core.config import ModelConfig, config_io
from nmt.model.attention import ATTENTION_SCORES, SelfAttention, masked_softmax, record_attention
from nmt.model.build import build_model, count_parameters
from nmt.model.positions import distances
from nmt.model.transformer import Transformer
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.search.request import SearchRequest, StepRequest, StepResult, best_tokens
from nmt.training.adamw import AdamW
from nmt.training.loss import cross_entropy
from nmt.training.optim import parse_schedule


def pooling() -> Figure:
    """Plot attention pooling of noisy points with uniform weights, a Gaussian kernel and a kernel
    of learned width."""
    generator = torch.Generator().manual_seed(1)
    keys_S = torch.rand(50, generator=generator).mul(5).sort().values
    values_S = _truth(keys_S) + 0.5 * torch.randn(50, generator=generator)
    queries_Q = torch.linspace(0, 5, 100)
    learned = learned_width(keys_S, values_S)
    widths = {"average": 0.0, "Gaussian kernel": 1.0, f"learned kernel, w = {learned:.1f}": learned}
    figure = Figure(figsize=(11, 6), layout="constrained")
    for (line, image), (name, width) in zip(figure.subplots(2, 3).T, widths.items(), strict=True):
        weights_QS = masked_softmax(kernel(queries_Q, keys_S, width), None)
        line.plot(
            keys_S.numpy(), values_S.numpy(), "o", markersize=3, alpha=0.5, label="keys and values"
        )
        line.plot(
            queries_Q.numpy(), _truth(queries_Q).numpy(), "--", color="C7", label="true function"
        )
        line.plot(
            queries_Q.numpy(), (weights_QS @ values_S).numpy(), color="C1", label="attention output"
        )
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
        image.set(xlabel="key index", ylabel="query")
    figure.axes[0].legend(fontsize=8)
    return figure


def _truth(x: Tensor) -> Tensor:
    return 2 * x.sin() + x**0.8


def kernel(queries_Q: Tensor, keys_S: Tensor, width: float | Tensor) -> Tensor:
    """Return the scores -(w (q - k))²/2, whose softmax is the Nadaraya-Watson estimator's weights:
    [Q, S]."""
    return -((width * (queries_Q[:, None] - keys_S)) ** 2) / 2


def learned_width(keys_S: Tensor, values_S: Tensor) -> float:
    """Return the w that best predicts each point from the others."""
    width = torch.ones((), requires_grad=True)
    optimizer = AdamW([width], beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.0)
    optimizer.param_groups[0]["lr"] = 0.1
    others = ~torch.eye(len(keys_S), dtype=torch.bool)
    for _ in range(200):
        predicted_S = masked_softmax(kernel(keys_S, keys_S, width), others) @ values_S
        width.grad = None
        (predicted_S - values_S).square().mean().backward()
        optimizer.step()
    return abs(float(width.detach()))


def scores() -> Figure:
    """Plot the largest attention weight over 20 random keys by width and scoring function."""
    widths = [2**n for n in range(1, 11)]
    generator = torch.Generator().manual_seed(1)
    torch.manual_seed(1)
    weights: dict[str, list[float]] = {
        "dot product": [],
        "scaled dot product": [],
        "additive, untrained": [],
    }
    for width in widths:
        q, k = (torch.randn(8, 1, count, width, generator=generator) for count in (25, 20))
        dot, additive = (ATTENTION_SCORES[name](1, width) for name in ("dot", "additive"))
        for name, scores_BHQS in zip(
            weights, (dot(q, k), dot(q / width**0.5, k), additive(q, k)), strict=True
        ):
            weights[name].append(float(masked_softmax(scores_BHQS, None).amax(-1).mean().detach()))
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    for name, values in weights.items():
        axes.plot(widths, values, marker="o", markersize=3, label=name)
    axes.set_xscale("log", base=2)
    axes.set(xlabel="head dimension", ylabel="mean largest weight", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    return figure


def masks() -> Figure:
    """Plot the attention weights under each mask for identical keys."""
    tokens, lengths = 8, (8, 5)
    causal_TT = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    near_TT = distances(tokens, tokens, 0, causal_TT.device).abs() <= 2
    padding_B11S = (torch.arange(tokens) < torch.tensor(lengths)[:, None])[:, None, None]
    panels = {
        "no mask": attention_weights(None, tokens)[0],
        "padding, length 5 of 8": attention_weights(padding_B11S, tokens)[1],
        "causal": attention_weights(causal_TT, tokens)[0],
        "window 2": attention_weights(near_TT, tokens)[0],
        "window 2, causal": attention_weights(near_TT & causal_TT, tokens)[0],
    }
    figure = Figure(figsize=(14, 3.1), layout="compressed")
    for axes, (name, weights_QS) in zip(
        figure.subplots(1, len(panels)), panels.items(), strict=True
    ):
        image = axes.imshow(weights_QS.numpy(), vmin=0, vmax=1, cmap="Blues")
        axes.set(title=name, xlabel="key", ylabel="query")
        axes.title.set_fontsize(10)
        axes.set_xticks(range(tokens))
        axes.set_yticks(range(tokens))
    figure.colorbar(image, ax=figure.axes)
    return figure


def attention_weights(mask: Tensor | None, tokens: int) -> Tensor:
    """Return the self-attention weights for zero queries and keys: [B, Q, S]."""
    attention = SelfAttention(ModelConfig(dim=4, heads=1)).eval()
    zeros_BHTK = torch.zeros(2, 1, tokens, 4)
    with record_attention(attention) as found:
        attention.attend(zeros_BHTK, zeros_BHTK, zeros_BHTK, mask)
    (weights_BHQS,) = found[""]
    return weights_BHQS[:, 0]


def layers() -> Figure:
    """Plot hidden state sizes and gradients by decoder layer at initialization, for post-norm and
    pre-norm."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    hidden_axes, gradient_axes = figure.subplots(1, 2)
    for norm in ("post", "pre"):
        torch.manual_seed(1)
        config = ModelConfig(
            dim=128,
            heads=4,
            ffn_dim=512,
            encoder_layers=2,
            decoder_layers=12,
            norm_position=norm,
            dropout=0.0,
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
        loss = cross_entropy(
            hidden_ND, model.output_weight_VD, ids_BT.flatten().roll(-1), smoothing=0.0
        )
        (loss / len(real_N)).backward()
        gradient_norms = [
            float(
                sum(
                    p.grad.square().sum()
                    for p in layer.feed_forward.parameters()
                    if p.grad is not None
                )
            )
            ** 0.5
            for layer in model.decoder_layers
        ]
        layer_numbers = range(1, len(sizes) + 1)
        hidden_axes.plot(layer_numbers, sizes, marker="o", markersize=3, label=f"{norm}-norm")
        gradient_axes.plot(
            layer_numbers, gradient_norms, marker="o", markersize=3, label=f"{norm}-norm"
        )
    hidden_axes.set(title="hidden states", xlabel="decoder layer", ylabel="root mean square")
    gradient_axes.set(
        title="gradient of feed-forward weights",
        xlabel="decoder layer",
        ylabel="norm",
        yscale="log",
    )
    for axes in (hidden_axes, gradient_axes):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    return figure


def parameters() -> Figure:
    """Plot the distribution of the parameters of the built-in configs."""
    names = ("quickstart", "multi30k", "tatoeba", "wmt14-base")
    patterns = {
        "embeddings and output": "embeddings",
        "encoder: attention": "encoder.*.self_attention.",
        "encoder: feed-forward": "encoder.*feed_forward",
        "decoder: self-attention": "decoder.*.self_attention.",
        "decoder: cross-attention": "decoder.*.cross_attention.",
        "decoder: feed-forward": "decoder.*feed_forward",
        "norms": "*norm",
    }
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    axes = figure.subplots()
    for row, name in enumerate(names):
        config = config_io.load(config_io.find(name), [])
        with torch.device("meta"):
            model = build_model(config.model, config.tokenizer.vocab_size)
        total, left = count_parameters(model), 0.0
        sizes = [
            ("norm" if "norm" in key else key, p.numel()) for key, p in model.named_parameters()
        ]
        for i, (label, pattern) in enumerate(patterns.items()):
            share = sum(size for key, size in sizes if fnmatch(key, f"{pattern}*")) / total
            assert share, f"{name}: no parameters match {pattern}"
            axes.barh(row, share, left=left, color=f"C{i}", label=label if row == 0 else None)
            left += share
        axes.text(1.01, row, f"{total / 1e6:.1f} M", va="center")
        assert abs(left - 1) < 1e-6, f"{name}: the patterns cover {left} of the parameters"
    axes.set_yticks(range(len(names)), names)
    axes.set(xlim=(0, 1.1), xlabel="share of the parameters")
    axes.invert_yaxis()
    figure.legend(loc="outside upper center", ncols=4, fontsize=8)
    return figure


def schedules() -> Figure:
    """Plot learning rate schedules, and the loss with label smoothing by confidence."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    rates, smoothed = figure.subplots(1, 2)
    steps = range(1, 2001)
    for spec in (
        "noam(warmup=400, factor=0.5)",
        "linear(peak=1e-3, warmup=400)",
        "cosine(peak=1e-3, warmup=400)",
        "wsd(peak=1e-3, warmup=400)",
    ):
        rate = parse_schedule(spec)
        rates.plot(steps, [rate(step, len(steps), 256) for step in steps], label=spec)
    rates.set(title="learning rate", xlabel="update")
    vocab_size = 8000
    target_1, margins = torch.tensor([3]), torch.linspace(0, 25, 200)
    for smoothing in (0.0, 0.1, 0.2):
        losses = []
        for margin in margins:
            logits_V1 = torch.zeros(vocab_size, 1).index_fill(0, target_1, float(margin))
            losses.append(
                float(cross_entropy(torch.ones(1, 1), logits_V1, target_1, smoothing=smoothing))
            )
        smoothed.plot(margins.numpy(), losses, label=f"label_smoothing={smoothing}")
    smoothed.set(
        title="loss with label smoothing",
        xlabel="logit of the target minus other logits",
        ylabel="nats",
    )
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
"""Next-word probabilities of a toy model by prefix. After any other prefix, the sentence ends."""
END = "</s>"
WORDS = ["<pad>", "<s>", END, *dict.fromkeys(word for row in NEXT.values() for word in row)]


@dataclass
class ToyState:
    """Decoder state of the toy model: the prefix of each row."""

    prefixes: list[str]
    attention_RS: NDArray[np.float32] | None = None

    def step(self, request: StepRequest) -> StepResult:
        """Append a word to each row."""
        words = [WORDS[token] for token in request.tokens_R.tolist()]
        self.prefixes = [self.prefixes[parent] for parent in request.parents_R.tolist()]
        if words != ["<s>"] * len(words):
            self.prefixes = [
                f"{prefix} {word}".strip()
                for prefix, word in zip(self.prefixes, words, strict=True)
            ]
        rows = [NEXT.get(prefix, {END: 1.0}) for prefix in self.prefixes]
        with np.errstate(divide="ignore"):
            log_p_RV = np.log(
                np.array([[row.get(word, 0.0) for word in WORDS] for row in rows], np.float32)
            )
        return best_tokens(log_p_RV, request)


class ToyModel:
    """The toy model with the interface that searches use."""

    def init_search_state(self, sources: Sequence[Sequence[int]], **options: object) -> ToyState:
        """Return the state with empty prefixes."""
        return ToyState([""] * len(sources))


def translations(search: Greedy | Beam) -> list[tuple[str, float]]:
    """Return the hypotheses of the toy model and their probabilities, best first."""
    request = SearchRequest([[0]], np.array([5]), bos=WORDS.index("<s>"), eos=WORDS.index(END))
    (hypotheses,) = search(ToyModel(), request)
    return [
        (" ".join(WORDS[i] for i in each.ids), float(torch.tensor(each.log_prob).exp()))
        for each in hypotheses
    ]


def search() -> Figure:
    """Draw the search tree of the toy model, with the results of greedy search and of beam search
    with beam size 2."""
    (greedy, _), (beam, _) = (
        translations(Greedy())[0],
        translations(Beam(beam_size=2, length_penalty=0.0))[0],
    )
    figure = Figure(figsize=(9, 5))
    axes = figure.add_axes((0, 0, 1, 1))
    leaves = iter(range(100))

    def draw_subtree(prefix: str, probability: float) -> float:
        """Draw the continuations of a prefix, and return the y position of its node."""
        depth = len(prefix.split())
        next_words = NEXT.get(prefix, {})
        children = []
        for word, p in next_words.items():
            child = f"{prefix} {word}".strip()
            children.append((child, draw_subtree(child, probability * p), p))
        y = (
            sum(child_y for _, child_y, _ in children) / len(children)
            if children
            else -float(next(leaves))
        )
        for child, child_y, p in children:
            colors = [
                color
                for color, path in (("C3", greedy), ("C2", beam))
                if f"{path} ".startswith(f"{child} ")
            ]
            axes.plot(
                [depth, depth + 1],
                [y, child_y],
                color=[*colors, "0.8"][0],
                linewidth=2.5 if colors else 1,
            )
            axes.text(
                depth + 0.55, y + 0.55 * (child_y - y) + 0.08, f"{p:g}", fontsize=8, ha="center"
            )
        label = prefix.split()[-1] if prefix else "start"
        axes.text(
            depth, y, label, ha="center", va="center", bbox={"facecolor": "w", "edgecolor": "0.6"}
        )
        if not next_words:
            axes.text(depth + 0.3, y, f"{probability:.3f}", va="center", fontsize=9)
        return y

    draw_subtree("", 1.0)
    axes.plot([], [], color="C3", linewidth=2.5, label=f"greedy: {greedy}")
    axes.plot([], [], color="C2", linewidth=2.5, label=f"beam size 2: {beam}")
    axes.legend(loc="upper left")
    axes.set_xlim(-0.3, 3.6)
    axes.set_axis_off()
    return figure


ENCODER = (
    ("embedding · √D", "C2"),
    ("+ positions", "C4"),
    ("self-attention", "C1"),
    ("+ residual, norm", "C7"),
    ("feed-forward", "C0"),
    ("+ residual, norm", "C7"),
)
"""Boxes of the encoder from the bottom, and their colors. The last four are a layer."""
DECODER = (
    *ENCODER[:2],
    ("masked self-attention", "C1"),
    ("+ residual, norm", "C7"),
    ("cross-attention", "C1"),
    *ENCODER[3:],
    ("output layer: logits", "C2"),
    ("softmax", "C4"),
)
"""Boxes of the decoder. The third to the eighth are a layer."""


def transformer() -> Figure:
    """Draw the architecture: the encoder on the left, the decoder on the right."""
    figure = Figure(figsize=(4.4, 6), layout="constrained")
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set(xlim=(-0.1, 2.1), ylim=(-0.9, 10.7))
    top = draw_stack(axes, 0.5, ENCODER, "source tokens", layer=(2, 6))
    draw_stack(axes, 1.5, DECODER, "target tokens so far", layer=(2, 8))
    axes.text(-0.05, 3.5, "encoder layer × N", ha="center", va="center", fontsize=9, rotation=90)
    axes.text(2.05, 4.5, "decoder layer × N", ha="center", va="center", fontsize=9, rotation=90)
    axes.annotate("next token", (1.5, 9.3), (1.5, 10.4), ha="center", va="center", arrowprops=FROM)
    # The encoder output enters the cross-attention of every decoder layer.
    cross_attention = DECODER.index(("cross-attention", "C1"))
    axes.plot([0.5, 0.5, 1, 1], [top, 7.6, 7.6, cross_attention], color="0.2", linewidth=1)
    axes.annotate("", (1.1, cross_attention), (1, cross_attention), arrowprops=TO)
    axes.text(0.5, 7.8, "encoder output:\nkeys and values", ha="center", va="bottom", fontsize=9)
    return figure


TO = {"arrowstyle": "->", "color": "0.2", "shrinkA": 0, "shrinkB": 0}
FROM = TO | {"arrowstyle": "<-"}


def draw_stack(
    axes: Axes,
    center: float,
    boxes: Sequence[tuple[str, str]],
    tokens: str,
    *,
    layer: tuple[int, int],
) -> float:
    """Draw boxes above each other, one per unit, with a frame around a layer; return their top."""
    bottom, top = layer[0] - 0.5, layer[1] - 0.5
    frame = Rectangle((center - 0.47, bottom), 0.94, top - bottom, color="0.93", ec="0.5", ls="--")
    axes.add_patch(frame)
    axes.annotate(
        tokens, (center, -0.3), (center, -0.75), ha="center", va="center", fontsize=9, arrowprops=TO
    )
    for level, (label, color) in enumerate(boxes):
        box = Rectangle((center - 0.4, level - 0.3), 0.8, 0.6, facecolor=color, alpha=0.35)
        axes.add_patch(box)
        axes.text(center, level, label, ha="center", va="center", fontsize=9)
        if level:
            axes.annotate("", (center, level - 0.3), (center, level - 0.7), arrowprops=TO)
    return len(boxes) - 1 + 0.3


FIGURES: dict[str, Callable[[], Figure]] = {
    "pooling.svg": pooling,
    "scores.svg": scores,
    "masks.svg": masks,
    "layers.svg": layers,
    "parameters.svg": parameters,
    "schedules.svg": schedules,
    "search.svg": search,
    "transformer.svg": transformer,
}


def main() -> None:
    """Draw all figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    directory = parser.parse_args().directory
    directory.mkdir(parents=True, exist_ok=True)
    rcParams["svg.hashsalt"] = "nmt"  # for reproducible files
    for name, draw in FIGURES.items():
        draw().savefig(directory / name, metadata={"Date": None})
        print(directory / name)


if __name__ == "__main__":
    main()
