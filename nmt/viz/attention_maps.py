"""Attention maps of a sentence and its translation, with the probabilities of each decoding step.

Shape suffixes: L layers, H heads, S source tokens, T target tokens, including end tokens, V
vocabulary.
"""

from __future__ import annotations

import math
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
from nmt.search import SEARCHES, Hypothesis, parse_search
from nmt.text.normalization import normalize_source
from nmt.text.tokenizer import EOS, Tokenizer, encoder_input

END, START = "</s>", "<s>"
PARTS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
"""Kinds of attention in a Transformer. An SSRU decoder has no self-attention, and a recurrent model
has cross-attention only."""
NUM_ALTERNATIVES = 5
"""Number of alternative tokens of each step."""
MAX_TOKENS = 128
"""Maximum number of tokens of a sentence, including the end token. Larger maps are not readable."""
MAX_WIDTH = 24
"""Maximum width of the heat maps of a figure, in inches."""
COLOR_BAR_WIDTH = 0.8
"""Width of the color bar with its labels, in inches."""


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
    """Weights of each part of the model: encoder [L, H, S, S], decoder [L, H, T, T], cross
    [L, H, T, S]."""
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
        weights = {}
        for part, each in self.weights.items():
            rounded = each.double().round(decimals=4)
            weights[part] = rounded.tolist()
        without_weights = replace(self, weights={})
        data = asdict(without_weights)
        return data | {"decoder_input": self.decoder_input, "weights": weights}

    def select_layer(self, part: str, layer: int | None) -> int:
        """Return the number of a layer, starting at 1; None selects the last.

        Raises:
            UsageError: the part or layer does not exist.
        """
        if part not in self.weights:
            raise UsageError(
                f"the model has no {PARTS[part]}", f"--part {' or '.join(self.weights)}"
            )
        num_layers = len(self.weights[part])
        if layer is None:
            return num_layers
        if not 1 <= layer <= num_layers:
            raise UsageError(f"there is no layer {layer}", f"number of layers: {num_layers}")
        return layer

    def to_html(self, part: str = "cross", layer: int | None = None) -> str:
        """Return a self-contained HTML page, which opens on a layer; see `select_layer`."""
        from nmt.core.templates import render

        view = {"part": part, "layer": self.select_layer(part, layer) - 1}
        return render("attention.html", maps=self.to_dict(), parts=PARTS, view=view)


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
    tokenizer = loaded.tokenizer
    config = loaded.config
    model = loaded.model.eval()
    source = normalize_source(text, lowercase_all_caps=config.lowercase_all_caps)
    src = tokenizer.encode(source)
    if not src:
        raise UsageError("the sentence is blank", 'nmt attention "Are we done?"')
    tgt = []
    if target is not None:
        tgt = tokenizer.encode(target, target=True)
    limit = min(MAX_TOKENS, model.max_positions or MAX_TOKENS)
    _check_length("sentence", src, limit)
    _check_length("translation", tgt, limit)
    n_best = []
    if target is None:
        hypotheses = _search(loaded, src, search or config.search)
        tgt = hypotheses[0].ids
        n_best = _ranked(tokenizer, hypotheses)
    weights, logits_TV = _forward(loaded, src, tgt)
    return AttentionMaps(
        loaded.checkpoint.name,
        (config.data.src, config.data.tgt),
        text,
        tokenizer.ids_to_pieces(encoder_input(src, config.model.source_eos)),
        [*tokenizer.ids_to_pieces(tgt), END],
        tokenizer.decode(tgt),
        weights,
        _steps(tokenizer, tgt, logits_TV.log_softmax(-1)),
        n_best,
    )


def _check_length(name: str, ids: list[int], limit: int) -> None:
    if len(ids) >= limit:  # including the end token
        raise UsageError(f"the {name} has {len(ids)} tokens", f"shorten it to at most {limit - 1}")


def _search(loaded: LoadedModel, src: list[int], spec: str) -> list[Hypothesis]:
    """Return the n-best list, which a beam search fills with all beams."""
    name, options = parse(spec)
    if name in ("beam", "diverse"):
        beam_size = options.get("beam_size", cast(Any, SEARCHES[name]).beam_size)
        spec = format_spec(name, {"top_beams": beam_size} | options)
    engine = engine_from_models([loaded.model], "cpu", "fp32", loaded.tokenizer.decode)
    return engine.search([Source(src)], parse_search(spec), lambda _: None)[0]


def _ranked(tokenizer: Tokenizer, hypotheses: list[Hypothesis]) -> list[RankedTranslation]:
    n_best = []
    for each in hypotheses:
        if math.isfinite(each.score) and math.isfinite(each.log_prob):
            translation = tokenizer.decode(each.ids)
            n_best.append(RankedTranslation(translation, each.score, each.log_prob))
    return n_best


def _steps(tokenizer: Tokenizer, tgt: list[int], log_p_TV: Tensor) -> list[Step]:
    """Return the probabilities of the translation and of the best other tokens."""
    num_best = min(NUM_ALTERNATIVES + 1, log_p_TV.shape[1])
    best_ids = log_p_TV.topk(num_best).indices.tolist()
    steps = []
    for t, token_id in enumerate([*tgt, EOS]):
        others = [i for i in best_ids[t] if i != token_id]
        candidates = [token_id, *others[:NUM_ALTERNATIVES]]
        pieces = tokenizer.ids_to_pieces(candidates)
        log_probs = log_p_TV[t, candidates].tolist()
        probabilities = [math.exp(log_p) for log_p in log_probs]
        alternatives = list(zip(pieces, probabilities, strict=True))[1:]
        token = END if t == len(tgt) else pieces[0]
        steps.append(Step(token, probabilities[0], alternatives))
    return steps


@torch.inference_mode()
def _forward(
    loaded: LoadedModel, src: list[int], tgt: list[int]
) -> tuple[dict[str, Tensor], Tensor]:
    """Return the attention weights of each part and the logits of each step from a teacher-forced
    forward pass."""
    model = loaded.model
    batch = collate([(src, tgt)], source_eos=model.config.source_eos)
    mask_BS = batch.src_mask_BS
    with record_attention(model) as seen:
        memory = model.encode(batch.src_BS, mask_BS)
        state = model.init_state(memory, mask_BS, use_cache=False)
        state.track_attention()
        hidden_BTD = model.decode(batch.tgt_in_BT, state)
    logits_TV = model.logits(hidden_BTD[0]).float()
    if not seen:  # a recurrent model, with one attention layer and one head
        return {"cross": state.cross_attention_RTS[None].float()}, logits_TV
    layers: dict[str, list[Tensor]] = {part: [] for part in PARTS}
    for name, calls in seen.items():  # layers that share weights are calls of the same module
        part = name.partition(".")[0]
        if name.endswith("cross_attention"):
            part = "cross"
        for weights_BHQS in calls:
            layers[part].append(weights_BHQS[0])
    weights = {part: torch.stack(layers[part]).float() for part in PARTS if layers[part]}
    return weights, logits_TV


def draw(maps: AttentionMaps, output: Path, part: str, layer: int | None) -> None:
    """Draw the weights of a layer as heat maps, one per head; None draws the last layer. The suffix
    of `output` selects the format.

    Raises:
        UsageError: the part or layer does not exist, or matplotlib is not installed or does not
            support the format.
        NMTError: the figure cannot be written.
    """
    from nmt.viz.figures import figure, save

    layer = maps.select_layer(part, layer)
    heads = maps.weights[part][layer - 1]
    rows, columns = maps.query_and_key_tokens(part)
    width = 1.2 + 0.28 * len(columns)
    height = 0.8 + 0.28 * len(rows)
    max_columns = max(1, min(4, int(MAX_WIDTH / width)))
    num_rows = math.ceil(len(heads) / max_columns)
    num_columns = math.ceil(len(heads) / num_rows)
    page = figure(output, num_columns * width + COLOR_BAR_WIDTH, num_rows * height)
    panels = []
    for head, weights_QK in enumerate(heads, 1):
        panel = page.add_subplot(num_rows, num_columns, head)
        image = _heat_map(panel, weights_QK, rows, columns)
        panel.set_title(f"head {head}", fontsize=9)
        panels.append(panel)
    page.colorbar(image, ax=panels, label="attention weight", aspect=30)
    page.suptitle(f"{PARTS[part]}, layer {layer}")
    save(page, output)


def _heat_map(panel: Any, weights_QK: Tensor, rows: list[str], columns: list[str]) -> Any:
    image = panel.imshow(weights_QK.numpy(), vmin=0, vmax=1, cmap="Blues")
    style = {"fontsize": 8, "parse_math": False}
    panel.set_xticks(range(len(columns)), columns, rotation=90, **style)
    panel.set_yticks(range(len(rows)), rows, **style)
    return image
