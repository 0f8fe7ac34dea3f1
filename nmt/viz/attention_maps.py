"""What a model looks at while it translates a sentence: the weights of every attention, and what it thought of writing.

Letters: L layers, H heads, S source pieces, T target pieces, both with the end token.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from nmt.data.batching import collate
from nmt.data.normalization import normalize_case
from nmt.data.tokenizer import EOS
from nmt.errors import UsageError
from nmt.inference import Source
from nmt.inference.load import engine_from_models
from nmt.model.attention import recording
from nmt.model.transformer import Transformer
from nmt.registry import compose, parse
from nmt.runs.discovery import LoadedModel
from nmt.search import SEARCHES, search

END, START = "</s>", "<s>"
PARTS = {"encoder": "encoder self-attention", "decoder": "decoder self-attention", "cross": "attention to the source"}
"""The attentions of a Transformer; a recurrent model has but the last."""
MOST = 128
"""Pieces of a side, the end counted: a picture of more shows nothing."""
WIDEST = 24
"""Inches of a picture."""


@dataclass(frozen=True)
class Step:
    """One piece that was written, how probable it was, and what else was probable."""

    piece: str
    probability: float
    others: list[tuple[str, float]]


@dataclass(frozen=True)
class Alternative:
    """A translation that the search found."""

    text: str
    score: float
    log_prob: float


@dataclass(frozen=True)
class View:
    """A sentence, its translation, and all weights. Rows are queries, columns keys; a row sums to one."""

    model: str
    languages: tuple[str, str]
    source_text: str
    source: list[str]
    """Pieces that the encoder reads."""
    target: list[str]
    """Pieces that the decoder writes; at the step of each it has read the start and those before."""
    translation: str
    weights: dict[str, Tensor]
    """By part: encoder LHSS, decoder LHTT, cross LHTS."""
    steps: list[Step]
    beam: list[Alternative]
    """Best first; empty for a translation that was given."""

    def sides(self, part: str) -> tuple[list[str], list[str]]:
        """Return who looks and at what, the rows and the columns of a part's weights."""
        read = [START, *self.target[:-1]]
        return {"encoder": (self.source, self.source), "decoder": (read, read)}.get(part, (self.target, self.source))

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON has it, weights with four decimals."""
        return {
            "model": self.model,
            "languages": list(self.languages),
            "source_text": self.source_text,
            "source": self.source,
            "target": self.target,
            "read": self.sides("decoder")[0],
            "translation": self.translation,
            "weights": {name: _rounded(weights.tolist()) for name, weights in self.weights.items()},
            "steps": [asdict(step) for step in self.steps],
            "beam": [asdict(alternative) for alternative in self.beam],
        }

    def page(self) -> str:
        """Return it as an HTML page that needs nothing else."""
        from nmt.templates import render

        return render("attention.html", view=self.as_dict(), parts=PARTS)


def look(loaded: LoadedModel, text: str, *, target: str | None = None, spec: str | None = None, shown: int = 5) -> View:
    """Translate a sentence and note what every attention looks at.

    Args:
        loaded: the model.
        text: the sentence.
        target: its translation; None: the search's best.
        spec: the search; None: the model's own.
        shown: pieces to name at each step besides the one that was written.

    Raises:
        UsageError: nothing to look at, or far too much.
        ConfigError: no such search.
    """
    tokenizer, model = loaded.tokenizer, loaded.model.eval()
    src = tokenizer.encode(normalize_case(text, lowercase_all_caps=loaded.config.lowercase_all_caps))
    if not src:
        raise UsageError("there is no sentence to look at", 'nmt attention "Are we done?"')
    tgt = tokenizer.encode(target) if target is not None else []
    for what, ids in (("sentence", src), ("translation", tgt)):
        if len(ids) >= MOST:  # the end is one more
            raise UsageError(f"the {what} has {len(ids)} pieces", f"give a shorter one, of up to {MOST - 1}")
    beam = []
    if target is None:
        engine = engine_from_models([model], "cpu", "fp32", tokenizer.decode)
        found = engine.search([Source(src)], search(_whole_beam(spec or loaded.config.search)), lambda _: None)[0]
        beam = [
            Alternative(tokenizer.decode(each.ids), each.score, each.log_prob)
            for each in found if math.isfinite(each.score) and math.isfinite(each.log_prob)
        ]  # fmt: skip
        tgt = found[0].ids
    weights, logits_TV = _run(loaded, src, list(tgt))
    written = [*tokenizer.pieces(tgt), END]
    log_p_TV = logits_TV.log_softmax(-1)
    ids = [*tgt, EOS]
    steps = [
        Step(piece, math.exp(float(log_p_V[own])), _others(loaded, log_p_V, own, shown))
        for piece, own, log_p_V in zip(written, ids, log_p_TV, strict=True)
    ]
    languages = (loaded.config.data.src, loaded.config.data.tgt)
    read = [*tokenizer.pieces(src), END]
    return View(
        loaded.checkpoint.name, languages, text, read, written, tokenizer.decode(tgt), weights, steps, beam
    )  # fmt: skip


@torch.inference_mode()
def _run(loaded: LoadedModel, src: Sequence[int], tgt: Sequence[int]) -> tuple[dict[str, Tensor], Tensor]:
    """Read both sides at once and return the weights of each part, and the logits of every step."""
    model = loaded.model
    batch = collate([(list(src), list(tgt))])
    with recording(model) as seen:
        state = model.start(model.encode(batch.src_BS, batch.src_mask_BS), batch.src_mask_BS, keep=False)
        state.watch()
        hidden_BTD = model.step(batch.tgt_in_BT, state)
    logits_TV = model.project(hidden_BTD[0]).float()
    if not isinstance(model, Transformer):  # it attends once, with one head
        return {"cross": state.seen_RTS[None].float()}, logits_TV
    names = {"encoder": "encoder.{}.attention", "decoder": "decoder.{}.attention", "cross": "decoder.{}.cross"}
    weights = {}
    for part, name in names.items():
        layers = [module for key, module in seen.items() if key in {name.format(i) for i in range(len(seen))}]
        # Layers that share weights attend one after the other with the same module.
        weights[part] = torch.stack([each[0] for notes in layers for each in notes]).float()
    return weights, logits_TV


def _others(loaded: LoadedModel, log_p_V: Tensor, own: int, shown: int) -> list[tuple[str, float]]:
    best = log_p_V.topk(min(shown + 1, len(log_p_V)))
    found = [(int(i), float(p)) for p, i in zip(best.values, best.indices, strict=True) if int(i) != own][:shown]
    names = loaded.tokenizer.pieces([i for i, _ in found])
    return [(name, math.exp(p)) for name, (_, p) in zip(names, found, strict=True)]


def _whole_beam(spec: str) -> str:
    """Return a beam search's spec so that it returns all its beams."""
    name, options = parse(spec)
    if name not in ("beam", "diverse") or "top_beams" in options:
        return spec
    options["top_beams"] = options.get("beam_size", cast(Any, SEARCHES[name]).beam_size)
    return compose(name, options)


def draw(view: View, output: Path, part: str, layer: int) -> None:
    """Draw the weights of one layer as heat maps, one for each head; the suffix of `output` is the picture's format.

    Raises:
        UsageError: no such part or layer, or matplotlib is not installed or does not know the format.
        NMTError: the picture cannot be written.
    """
    from nmt.viz.figures import figure, save

    if part not in view.weights:
        raise UsageError(f"the model has no attention '{part}'", f"it has {', '.join(view.weights)}")
    layers = view.weights[part]
    if not 1 <= layer <= len(layers):
        raise UsageError(f"there is no layer {layer}", f"there are {len(layers)}")
    rows, columns = view.sides(part)
    heads = layers[layer - 1]
    size = (1.2 + 0.28 * len(columns), 0.8 + 0.28 * len(rows))
    across = max(1, min(4, len(heads), int(WIDEST / size[0])))
    page = figure(output, across * size[0], -(-len(heads) // across) * size[1])
    panels = page.subplots(-(-len(heads) // across), across, squeeze=False).flat
    for number, panel in enumerate(panels):
        panel.set_visible(number < len(heads))
        if number < len(heads):
            panel.imshow(heads[number].numpy(), vmin=0, vmax=1, cmap="Blues")
            panel.set_xticks(range(len(columns)), columns, rotation=90, fontsize=8)
            panel.set_yticks(range(len(rows)), rows, fontsize=8)
            panel.set_title(f"head {number + 1}", fontsize=9)
    page.suptitle(f"{PARTS[part]}, layer {layer}")
    save(page, output)


def _rounded(values: Any) -> Any:
    return [_rounded(value) for value in values] if isinstance(values, list) else round(values, 4)
