"""Attention maps of a sentence and its translation, with the probabilities of each decoding step.

Shape suffixes: L layers, H heads, S source tokens, T target tokens, including end tokens, V
vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from nmt.core.errors import UsageError
from nmt.core.registry import format_spec, parse
from nmt.data.batching import collate
from nmt.engines import Source
from nmt.engines.load import engine_from_models
from nmt.model.attention import record_attention
from nmt.runs.model_files import LoadedModel
from nmt.search import SEARCHES, parse_search
from nmt.text.normalization import normalize_case
from nmt.text.tokenizer import EOS, encoder_input

END, START = "</s>", "<s>"
PARTS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
"""Kinds of attention in a Transformer. A recurrent model has cross-attention only."""
NUM_ALTERNATIVES = 5
"""Number of alternative tokens of each step."""
MAX_TOKENS = 128
"""Maximum number of tokens of a sentence, including the end token. Larger maps are not readable."""
MAX_WIDTH = 24
"""Maximum width of a figure, in inches."""


@dataclass(frozen=True)
class Step:
    """A decoding step: the generated token and the most probable other tokens, with their
    probabilities."""

    token: str
    probability: float
    alternatives: list[tuple[str, float]]


@dataclass(frozen=True)
class RankedTranslation:
    """A translation of the n-best list."""

    text: str
    score: float
    log_prob: float


@dataclass(frozen=True)
class AttentionMaps:
    """Attention weights of a sentence and its translation. Rows are queries, columns are keys; each
    row sums to 1."""

    model: str
    languages: tuple[str, str]
    source_text: str
    source_tokens: list[str]
    """Input of the encoder."""
    target_tokens: list[str]
    """Output of the decoder."""
    translation: str
    weights: dict[str, Tensor]
    """Weights of each part: encoder [L, H, S, S], decoder [L, H, T, T], cross [L, H, T, S]."""
    steps: list[Step]
    n_best: list[RankedTranslation]
    """N-best list of the search; empty if the translation was given."""

    @property
    def decoder_input(self) -> list[str]:
        """Input of the decoder: the target tokens, shifted by the start token."""
        return [START, *self.target_tokens[:-1]]

    def query_and_key_tokens(self, part: str) -> tuple[list[str], list[str]]:
        """Return the tokens of the rows and the columns of a part's weights."""
        if part == "cross":
            return self.target_tokens, self.source_tokens
        tokens = self.source_tokens if part == "encoder" else self.decoder_input
        return tokens, tokens

    def to_dict(self) -> dict[str, Any]:
        """Return a dictionary for JSON, with weights rounded to four decimals."""
        weights = {
            part: weights.double().round(decimals=4).tolist()
            for part, weights in self.weights.items()
        }
        return asdict(replace(self, weights={})) | {
            "decoder_input": self.decoder_input,
            "weights": weights,
        }

    def to_html(self) -> str:
        """Return a self-contained HTML page."""
        from nmt.core.templates import render

        return render("attention.html", maps=self.to_dict(), parts=PARTS)


def attention_maps(
    loaded: LoadedModel, text: str, *, target: str | None = None, search: str | None = None
) -> AttentionMaps:
    """Translate a sentence and return the attention weights of all layers.

    Args:
        loaded: the model.
        text: source sentence.
        target: translation; None uses the best translation of the search.
        search: spec string of a search; None uses the search of the model's config.

    Raises:
        UsageError: the sentence is blank, or it or its translation is too long.
        ConfigError: unknown search or option.
    """
    tokenizer, config, model = loaded.tokenizer, loaded.config, loaded.model.eval()
    src = tokenizer.encode(normalize_case(text, lowercase_all_caps=config.lowercase_all_caps))
    if not src:
        raise UsageError("the sentence is blank", 'nmt attention "Are we done?"')
    tgt = tokenizer.encode(target, target=True) if target is not None else []
    limit = min(MAX_TOKENS, model.max_positions or MAX_TOKENS)
    for name, ids in (("sentence", src), ("translation", tgt)):
        if len(ids) >= limit:  # including the end token
            raise UsageError(
                f"the {name} has {len(ids)} tokens", f"shorten it to at most {limit - 1}"
            )
    n_best = []
    if target is None:
        engine = engine_from_models([model], "cpu", "fp32", tokenizer.decode)
        algorithm = parse_search(_with_all_beams(search or config.search))
        hypotheses = engine.search([Source(src)], algorithm, lambda _: None)[0]
        n_best = [
            RankedTranslation(tokenizer.decode(h.ids), h.score, h.log_prob)
            for h in hypotheses
            if math.isfinite(h.score) and math.isfinite(h.log_prob)
        ]
        tgt = hypotheses[0].ids
    weights, logits_TV = _forward(loaded, src, list(tgt))
    source_tokens = tokenizer.ids_to_pieces(encoder_input(src, config.model.source_eos))
    target_tokens = [*tokenizer.ids_to_pieces(tgt), END]
    steps = [
        Step(token, math.exp(float(log_p_V[token_id])), _alternatives(loaded, log_p_V, token_id))
        for token, token_id, log_p_V in zip(
            target_tokens, [*tgt, EOS], logits_TV.log_softmax(-1), strict=True
        )
    ]
    return AttentionMaps(
        loaded.checkpoint.name,
        (config.data.src, config.data.tgt),
        text,
        source_tokens,
        target_tokens,
        tokenizer.decode(tgt),
        weights,
        steps,
        n_best,
    )


@torch.inference_mode()
def _forward(
    loaded: LoadedModel, src: Sequence[int], tgt: Sequence[int]
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the attention weights of each part and the logits of each step from a teacher-forced
    forward pass."""
    model = loaded.model
    batch = collate([(list(src), list(tgt))], source_eos=model.config.source_eos)
    with record_attention(model) as seen:
        state = model.init_state(
            model.encode(batch.src_BS, batch.src_mask_BS), batch.src_mask_BS, use_cache=False
        )
        state.track_attention()
        hidden_BTD = model.decode(batch.tgt_in_BT, state)
    logits_TV = model.logits(hidden_BTD[0]).float()
    if not seen:  # a recurrent model, with one attention layer and one head
        return {"cross": state.cross_attention_RTS[None].float()}, logits_TV
    weights: dict[str, list[Tensor]] = {part: [] for part in PARTS}
    for name, calls in seen.items():  # layers that share weights are calls of the same module
        part = "cross" if name.endswith("cross_attention") else name.partition(".")[0]
        weights[part] += [weights_BHQS[0] for weights_BHQS in calls]
    return {part: torch.stack(layers).float() for part, layers in weights.items()}, logits_TV


def _alternatives(loaded: LoadedModel, log_p_V: Tensor, token_id: int) -> list[tuple[str, float]]:
    """Return the most probable tokens other than `token_id`."""
    best = log_p_V.topk(min(NUM_ALTERNATIVES + 1, len(log_p_V)))
    ids = [i for i in best.indices.tolist() if i != token_id][:NUM_ALTERNATIVES]
    return [
        (token, math.exp(float(log_p_V[i])))
        for token, i in zip(loaded.tokenizer.ids_to_pieces(ids), ids, strict=True)
    ]


def _with_all_beams(spec: str) -> str:
    """Return the spec of a beam search with `top_beams` set to the beam size."""
    name, options = parse(spec)
    if name not in ("beam", "diverse") or "top_beams" in options:
        return spec
    options["top_beams"] = options.get("beam_size", cast(Any, SEARCHES[name]).beam_size)
    return format_spec(name, options)


def draw(maps: AttentionMaps, output: Path, part: str, layer: int) -> None:
    """Draw the weights of a layer as heat maps, one per head. The suffix of `output` selects the
    format.

    Raises:
        UsageError: the part or layer does not exist, or matplotlib is not installed or does not
            support the format.
        NMTError: the figure cannot be written.
    """
    from nmt.viz.figures import figure, save

    if part not in maps.weights:
        raise UsageError(f"the model has no {PARTS[part]}", f"--part {' or '.join(maps.weights)}")
    layers = maps.weights[part]
    if not 1 <= layer <= len(layers):
        raise UsageError(f"there is no layer {layer}", f"the model has {len(layers)} layers")
    rows, columns = maps.query_and_key_tokens(part)
    heads = layers[layer - 1]
    size = (1.2 + 0.28 * len(columns), 0.8 + 0.28 * len(rows))
    num_columns = max(1, min(4, len(heads), int(MAX_WIDTH / size[0])))
    num_rows = -(-len(heads) // num_columns)
    page = figure(output, num_columns * size[0], num_rows * size[1])
    for head, panel in enumerate(page.subplots(num_rows, num_columns, squeeze=False).flat):
        panel.set_visible(head < len(heads))
        if head < len(heads):
            panel.imshow(heads[head].numpy(), vmin=0, vmax=1, cmap="Blues")
            panel.set_xticks(
                range(len(columns)), columns, rotation=90, fontsize=8, parse_math=False
            )
            panel.set_yticks(range(len(rows)), rows, fontsize=8, parse_math=False)
            panel.set_title(f"head {head + 1}", fontsize=9)
    page.suptitle(f"{PARTS[part]}, layer {layer}")
    save(page, output)
