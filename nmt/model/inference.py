"""A trained model made ready for search: weights in the type they are used in, and in the order the processor likes.

On a CPU a matrix routine brings a weight into blocks before it multiplies, at every call. When few rows are multiplied,
as in every step of a search, that is most of the work; here it is done once. The routines are oneDNN's, which PyTorch
carries for its own compiler; they also apply what follows a product while its result is at hand. The decoder's step is
written once more for them, in as few operations as it takes: of a single sentence, most of the time is their calls.

Shape letters: B sentences, S source tokens, W rows (beams) per sentence, R = B*W rows, D width, H heads, K head width.
"""

from __future__ import annotations

import copy
import math
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from nmt import kernels
from nmt.model.attention import CrossAttention
from nmt.model.cache import Memory, StandingCache, TargetCache
from nmt.model.layers import LayerNorm, Linear, Residual
from nmt.model.positions import Place, Positions
from nmt.model.positions.absolute import Floater
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import DecoderLayer, DecoderState, Transformer

ROWS = 32
"""Rows that the blocks are laid out for; other numbers are multiplied just as fast."""
OUTPUT_ROWS = 128
"""Rows whose logits are made together: few enough that they are still in the processor's cache when they are read, and
that the C library keeps the memory for the next."""
MOST_ROWS = 512
"""Rows that are multiplied at once, since for each number of them oneDNN makes a routine and keeps half a megabyte."""
PART_TOKENS = 1024
"""Source tokens that are read together: more take memory that the C library gets from the system each time."""
LANES = 16
"""Rows that are multiplied at once by a processor's vectors."""


class PackedLinear(nn.Module):
    """y = xWᵀ + b with W in oneDNN's blocks."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.outputs = len(weight)
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
        self.bias = None if bias is None else bias.detach()

    def forward(self, input: Tensor) -> Tensor:
        """Map [..., inputs] to [..., outputs]."""
        if input.shape[:-1].numel() <= MOST_ROWS:
            return self._product(input)
        input_NI = input.flatten(0, -2)
        output_NO = input.new_empty(len(input_NI), self.outputs)
        for start in range(0, len(input_NI), MOST_ROWS):
            start = min(start, len(input_NI) - MOST_ROWS)  # the last part overlaps the one before
            output_NO[start : start + MOST_ROWS] = self._product(input_NI[start : start + MOST_ROWS])
        return output_NO.view(*input.shape[:-1], self.outputs)

    def _product(self, input: Tensor) -> Tensor:
        output: Tensor = torch.ops.mkldnn._linear_pointwise(input, self.packed, self.bias, "none", [], "")
        return output

    def relu(self, input: Tensor) -> Tensor:
        """Return max(0, xWᵀ + b)."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise(input, self.packed, self.bias, "relu", [], "")
        return output

    def plus(self, input: Tensor, other: Tensor) -> Tensor:
        """Return xWᵀ + b + other."""
        output: Tensor = torch.ops.mkldnn._linear_pointwise.binary(input, other, self.packed, self.bias, "add")
        return output


class Int8Linear(nn.Module):
    """y = xWᵀ + b with each row of W in 8-bit whole numbers of its own scale, and x rounded likewise as it comes.

    FBGEMM's routine; x has 7 bits, so that the sums of older processors cannot overflow.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        weight = weight.detach()
        scale_O = weight.abs().amax(1).clamp(min=torch.finfo(torch.float32).tiny) / 127
        zero_O = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # PyTorch means to replace this kind of tensor
            warnings.simplefilter("ignore", UserWarning)
            whole = torch.quantize_per_channel(weight, scale_O, zero_O, 0, torch.qint8)
        self.packed = torch.ops.quantized.linear_prepack(whole, None if bias is None else bias.detach())

    def forward(self, input: Tensor) -> Tensor:
        """Map [..., inputs] to [..., outputs]."""
        output: Tensor = torch.ops.quantized.linear_dynamic(input, self.packed, True)
        return output

    def relu(self, input: Tensor) -> Tensor:
        """Return max(0, xWᵀ + b)."""
        output: Tensor = torch.ops.quantized.linear_relu_dynamic(input, self.packed, True)
        return output

    def plus(self, input: Tensor, other: Tensor) -> Tensor:
        """Return xWᵀ + b + other."""
        output: Tensor = torch.ops.quantized.linear_dynamic(input, self.packed, True)
        return output.add_(other)


Packed = PackedLinear | Int8Linear


@dataclass
class PackedState(DecoderState):
    """What a decoder remembers, with sources and sentences that are there for the processor's sake.

    A sentence or another ends at almost every step, so each would need routines that oneDNN made for no other number of
    rows. They are rounded up instead, and copies of the first fill up what is missing.
    """

    sentences: int = 0
    """B, without those that fill up."""
    rows: int = 0
    """R of the last step, without those that fill up."""
    tokens_B: Tensor = field(init=False)
    """Tokens of each source, for compiled loops."""

    def __post_init__(self) -> None:
        """Count the tokens."""
        self._count()

    def _count(self) -> None:
        k_BGSK, _ = self.sources[0]
        sentences, _, tokens, _ = k_BGSK.shape
        mask = self.mask_B11S
        self.tokens_B = torch.full((sentences,), tokens) if mask is None else mask.sum((1, 2, 3))
        self.tokens_B = self.tokens_B.int()

    def observe(self, layer: int, attention: CrossAttention, q_BHQK: Tensor, rows: int) -> None:
        """Note where queries look, if this layer is watched."""
        super().observe(layer, attention, q_BHQK, rows)
        if layer == self.watched and self.seen_RTS is not None:
            self.seen_RTS = self.seen_RTS[: self.rows]

    def fill(self, tokens_R: Tensor) -> Tensor:
        """Return tokens of all rows, given those that count."""
        self.rows = len(tokens_R)
        missing = (len(self.sources[0][0]) - self.sentences) * (self.rows // self.sentences)
        return torch.cat((tokens_R, tokens_R[:1].expand(missing))) if missing else tokens_R

    def select(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Do as `DecoderState.select`, and fill up again."""
        self.sentences = self.sentences if sentences_B is None else len(sentences_B)
        width = len(rows_R) // max(1, self.sentences)
        missing = _missing(self.sentences, width)
        if sentences_B is None and len(self.sources[0][0]) != self.sentences + missing:
            sentences_B = torch.arange(self.sentences)
        filled_B = None if sentences_B is None else F.pad(sentences_B, (0, missing))
        super().select(F.pad(rows_R, (0, missing * width)), filled_B)
        if filled_B is not None:
            self._count()


def _missing(sentences: int, width: int) -> int:
    """Return how many sentences of that many rows to add: then few numbers of rows occur, 1, 2, 4, 8, 16, 32, 48 …"""
    step = min(LANES, 1 << max(0, sentences * width - 1).bit_length())
    return -sentences % max(1, step // max(1, width))


class PackedLayer:
    """A step of a decoder layer with packed matrices: `DecoderLayer.forward` for one new position of each row.

    Attention is by compiled loops where there are any (`nmt.kernels`), which know scaled dot products of all there is,
    without positions. Without them, a position attends to the target so far element by element: thousands of products
    too small for a matrix routine go over the memory as it lies. Any other attention runs as in training.
    """

    def __init__(self, layer: DecoderLayer, positions: Positions) -> None:
        attention, cross, feed_forward = layer.attention, layer.cross, layer.feed_forward
        self.attention, self.cross, self.heads, self.width = attention, cross, attention.heads, attention.width
        shared = attention.kv_heads != attention.heads
        compiled = kernels.available() and not shared
        self.compiled_target = compiled and attention.scaled and not attention.window and not positions.in_attention
        self.compiled_source = compiled and cross.scaled
        if self.compiled_target:
            self.gather_target = self._gather_target_compiled
        elif not attention.scaled or attention.window:
            self.gather_target = self._gather_any_target
        else:
            self.gather_target = self._gather_target
        self.gather_source = self._gather_source_compiled if self.compiled_source else self._gather_source
        joining = (attention.out, cross.out, feed_forward.up, feed_forward.down)
        self.target_out, self.source_out, self.up, self.down = (cast(Packed, linear) for linear in joining)
        activation = feed_forward.activation
        self.rise = self.up.relu if activation is F.relu else lambda x_RD: activation(self.up(x_RD))
        # Methods, not modules: of one sentence's search, what modules do around each call is a good part.
        self.project, self.project_q = attention.qkv.forward, cross.q.forward
        self.frames = [_frame(around) for around in (layer.around_attention, layer.around_cross, layer.around_ff)]

    def __call__(self, x_RD: Tensor, state: PackedState, place: Place) -> Tensor:
        """Return the output of the layer at `place`."""
        (before_target, after_target), (before_source, after_source), (before_ff, after_ff) = self.frames
        x_RD = after_target(self.target_out.plus(self.gather_target(before_target(x_RD), state, place), x_RD))
        x_RD = after_source(self.source_out.plus(self.gather_source(before_source(x_RD), state, place.layer), x_RD))
        return after_ff(self.down.plus(self.rise(before_ff(x_RD)), x_RD))

    def _gather_target_compiled(self, x_RD: Tensor, state: PackedState, place: Place) -> Tensor:
        assert isinstance(state.target, StandingCache)
        qkv_R3HK = self.project(x_RD).view(-1, 3, self.heads, self.width)
        return state.target.attend(place.layer, qkv_R3HK).view(x_RD.shape)

    def _gather_target(self, x_RD: Tensor, state: PackedState, place: Place) -> Tensor:
        q_RH1K, kv_R12GK = self.attention.project(x_RD[:, None], place)
        assert isinstance(state.target, TargetCache)
        k_TRGK, v_TRGK = state.target.append(place.layer, kv_R12GK).unbind(1)
        q_RH1K = q_RH1K / math.sqrt(place.positions.terms * k_TRGK.shape[-1])
        q_RGnK = q_RH1K.view(len(x_RD), k_TRGK.shape[2], -1, k_TRGK.shape[3])  # n heads of queries to one of keys
        scores_RHT = (q_RGnK * k_TRGK[:, :, :, None]).sum(-1).flatten(2).permute(1, 2, 0)
        bias = place.score(q_RH1K, self.attention.spread(k_TRGK.permute(1, 2, 0, 3)))
        weights_RHT = (scores_RHT if bias is None else scores_RHT + bias[:, :, 0]).softmax(-1)
        weights_TRGn1 = weights_RHT.permute(2, 0, 1)[..., None].reshape(len(k_TRGK), *q_RGnK.shape[:3], 1)
        seen_RHK: Tensor = (weights_TRGn1 * v_TRGK[:, :, :, None]).sum(0).flatten(1, 2)
        extra = place.value(weights_RHT[:, :, None])
        return (seen_RHK if extra is None else seen_RHK + extra[:, :, 0]).reshape(x_RD.shape)

    def _gather_any_target(self, x_RD: Tensor, state: PackedState, place: Place) -> Tensor:
        q_RH1K, kv_R12GK = self.attention.project(x_RD[:, None], place)
        k, v = state.remember(place.layer, kv_R12GK)
        return self.attention.gather(q_RH1K, k, v, None, place).reshape(x_RD.shape)

    def _gather_source_compiled(self, x_RD: Tensor, state: PackedState, number: int) -> Tensor:
        q_RHK = self.project_q(x_RD).view(-1, self.heads, self.width)
        k_BHSK, v_BHSK = state.sources[number]
        if number == state.watched:
            q_BHWK = q_RHK.view(len(k_BHSK), -1, self.heads, self.width).transpose(1, 2)
            state.observe(number, self.cross, q_BHWK.float(), len(x_RD))
        scratch = state.memory.room("scratch", torch.empty(0), (2 * self.width + k_BHSK.shape[2],))
        return kernels.attend_source(q_RHK, k_BHSK, v_BHSK, state.tokens_B, scratch).view(x_RD.shape)

    def _gather_source(self, x_RD: Tensor, state: PackedState, number: int) -> Tensor:
        k_BGSK, v_BGSK = state.sources[number]
        q_BHWK = self.project_q(x_RD).view(len(k_BGSK), -1, self.heads, self.width).transpose(1, 2).float()
        state.observe(number, self.cross, q_BHWK, len(x_RD))
        seen_BHWK = self.cross.gather(q_BHWK, k_BGSK, v_BGSK, state.mask_B11S)
        return seen_BHWK.transpose(1, 2).reshape(x_RD.shape).to(x_RD.dtype)


def _frame(around: Residual) -> tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]:
    """Return what a sub-layer reads of the stream, and what leaves its frame of the sum of both."""

    def same(x_RD: Tensor) -> Tensor:
        return x_RD

    norm = _norm(around.norm)
    return (norm, same) if around.pre else (same, norm)


def _norm(module: nn.Module) -> Callable[[Tensor], Tensor]:
    if not isinstance(module, LayerNorm) or not kernels.available():
        forward: Callable[[Tensor], Tensor] = module.forward
        return forward
    return partial(kernels.layer_norm, gain_D=module.weight, bias_D=module.bias, epsilon=module.eps)


class PackedModel:
    """A model on a CPU, as a search sees it."""

    def __init__(self, model: Seq2Seq, pack: Callable[[Tensor, Tensor | None], Packed]) -> None:
        """Pack the matrices of `model`, which is not to be used by itself from then on."""
        self.model = model
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, Linear) and not isinstance(module, Floater):  # whose rounding adds up
                    setattr(module, name, pack(child.weight, child.bias))
        self.output = pack(model.output_weight_VD, None)

    def begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> Any:
        """Read the source and return the state in which a search begins."""
        return self.model.begin(src_BS, src_mask_BS)

    def next_log_probs(self, tokens_R: Tensor, state: Any) -> Tensor:
        """Read one more token per row and return the float32 log-probabilities of the next, [R, V]."""
        logits_RV: Tensor = self.output(self.model.step(tokens_R[:, None], state)[:, -1])
        return logits_RV.float().log_softmax(-1)


class PackedTransformer(PackedModel):
    """A Transformer on a CPU, whose decoder's step is written for one token."""

    model: Transformer

    def __init__(self, model: Transformer, pack: Callable[[Tensor, Tensor | None], Packed]) -> None:
        """Pack the matrices of `model`, which is not to be used by itself from then on."""
        super().__init__(model, pack)
        own = {id(layer): PackedLayer(layer, model.target_positions) for layer in model.decoder_layers}
        self.layers = [own[id(layer)] for layer in model.decoder_layers]
        self.norm = _norm(model.decoder_norm)
        self._memories: list[Memory] = []
        """Of searches that are over, for those that begin."""

    def begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> PackedState:
        """Read the source and return the state in which a search begins."""
        try:
            memory = self._memories.pop()
        except IndexError:
            memory = Memory()
        sentences, tokens = src_mask_BS.shape
        missing = _missing(sentences, 1)
        part = max(1, PART_TOKENS // tokens)
        begun = [self.model.begin(*some) for some in zip(src_BS.split(part), src_mask_BS.split(part), strict=True)]

        def joined(name: str, parts_BGSK: tuple[Tensor, ...]) -> Tensor:
            whole = parts_BGSK[0].new_empty(0) if self.layers[0].compiled_source else torch.empty(0)  # float32
            joined_BGSK = memory.room(name, whole, (sentences + missing, *parts_BGSK[0].shape[1:]))
            torch.cat(parts_BGSK, out=joined_BGSK[:sentences])
            joined_BGSK[sentences:] = joined_BGSK[:1]
            return joined_BGSK

        sources = []
        for layer in range(len(self.layers)):
            keys, values = zip(*(each.sources[layer] for each in begun), strict=True)
            sources.append((joined(f"keys {layer}", keys), joined(f"values {layer}", values)))
        mask_BS = torch.cat((src_mask_BS, src_mask_BS[:1].expand(missing, -1)))
        cache = StandingCache if self.layers[0].compiled_target else TargetCache
        state = PackedState(
            sources, None if mask_BS.all() else mask_BS[:, None, None, :], cache(len(sources), memory),
            memory=memory, sentences=sentences,
        )  # fmt: skip
        weakref.finalize(state, self._memories.append, memory)
        return state

    def next_log_probs(self, tokens_R: Tensor, state: PackedState) -> Tensor:
        """Read one more token per row and return the float32 log-probabilities of the next, [R, V].

        They are good until the next step.
        """
        x_RD = self.model.embed("target", state.fill(tokens_R)[:, None], state.length)[:, 0]
        for number, layer in enumerate(self.layers):
            place = Place(self.model.target_positions, number, state.length)
            if number and place.positions.every_layer:
                x_RD = place.embed(x_RD[:, None])[:, 0]
            x_RD = layer(x_RD, state, place)
        state.advance(1)
        hidden_RD = self.norm(x_RD)
        log_p_RV = state.memory.room("log_p", torch.empty(0), (len(hidden_RD), len(self.model.output_weight_VD)))
        for some_XD, some_XV in zip(hidden_RD.split(OUTPUT_ROWS), log_p_RV.split(OUTPUT_ROWS), strict=True):
            if kernels.available():
                kernels.log_softmax(self.output(some_XD), some_XV)
            else:
                torch.log_softmax(some_XV.copy_(self.output(some_XD)), -1, out=some_XV)
        return log_p_RV[: len(tokens_R)]


def for_inference(model: Seq2Seq, dtype: torch.dtype) -> PackedModel | Seq2Seq:
    """Return a copy of `model` that computes in `dtype`, for search only; the model itself stays as it is.

    In int8, the matrices are of that type and all else of float32. A recurrent model computes in float32 otherwise.
    """
    whole = dtype == torch.int8
    if not isinstance(model, Transformer) and not whole:
        dtype = torch.float32
    ready = copy.deepcopy(model).to(torch.float32 if whole else dtype).eval().requires_grad_(False)
    ready.compute_dtype = None
    pack: Callable[[Tensor, Tensor | None], Packed] = Int8Linear if whole else PackedLinear
    device = ready.output_weight_VD.device
    packs = device.type == "cpu" and dtype in (torch.float32, torch.bfloat16) and _can_pack()
    if not whole and not packs:
        return ready
    return PackedTransformer(ready, pack) if isinstance(ready, Transformer) else PackedModel(ready, pack)


def _can_pack() -> bool:
    operators = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in operators)
