"""A trained model made ready for search: weights in the type they are used in, and in the order the processor likes.

The decoder's step is written once more for packed matrices, in as few operations as it takes: of a single sentence,
most of the time is their calls.

Shape letters: B sentences, S source tokens, W rows (beams) per sentence, R = B*W rows, D width, H heads, K head width.
"""

from __future__ import annotations

import copy
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from nmt import kernels
from nmt.model.attention import CrossAttention, SelfAttention
from nmt.model.cache import Memory, StandingCache, TargetCache
from nmt.model.layers import FeedForward, LayerNorm, Linear, Residual
from nmt.model.packed import Pack, Packed, packer
from nmt.model.positions import Place, Positions
from nmt.model.positions.absolute import Floater
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import DecoderLayer, DecoderState, EncoderLayer, KeysValues, Transformer

PART_TOKENS = 512
"""Source tokens that are read together: more take memory that the C library gets from the system each time."""


@dataclass
class StandingState(DecoderState):
    """What a decoder remembers for compiled loops: sources stay where they are, whichever are still read."""

    tokens_N: Tensor = field(default_factory=lambda: torch.empty(0))
    """int32; tokens of each source there was at first."""
    from_B: Tensor = field(init=False)
    """int32; which of them each sentence reads."""

    def __post_init__(self) -> None:
        """Begin with all sources."""
        self.from_B = torch.arange(len(self.tokens_N), dtype=torch.int32)

    def keys(self, layer: int) -> Tensor:
        """Return the keys of the sources that are still read, [B, G, S, K]."""
        return super().keys(layer)[self.from_B]

    def select_sources(self, sentences_B: Tensor) -> None:
        """Keep some sentences'."""
        self.from_B = self.from_B[sentences_B]


class PackedEncoderLayer:
    """An encoder layer with packed matrices: `EncoderLayer.forward`, where attention is by compiled loops."""

    def __init__(self, layer: EncoderLayer) -> None:
        self.heads, self.width, self.project = layer.attention.heads, layer.attention.width, layer.attention.qkv.forward
        self.out, self.rise, self.down = cast(Packed, layer.attention.out), *_feed_forward(layer.feed_forward)
        self.frames = [_frame(around) for around in (layer.around_attention, layer.around_ff)]

    def __call__(self, x_BSD: Tensor, tokens_B: Tensor) -> Tensor:
        """Return the output of the layer for sources of so many tokens."""
        (before, after), (before_ff, after_ff) = self.frames
        qkv_BS3HK = self.project(before(x_BSD)).view(*x_BSD.shape[:2], 3, self.heads, self.width)
        x_BSD = after(self.out.plus(kernels.attend_within(qkv_BS3HK, tokens_B).flatten(2), x_BSD))
        return after_ff(self.down.plus(self.rise(before_ff(x_BSD)), x_BSD))


class PackedLayer:
    """A step of a decoder layer with packed matrices: `DecoderLayer.forward` for one new position of each row.

    Attention is by compiled loops where there are any (`nmt.kernels`), which know scaled dot products of all there is,
    without positions. Without them, a position attends to the target so far element by element: thousands of products
    too small for a matrix routine go over the memory as it lies. Any other attention runs as in training.
    """

    def __init__(self, layer: DecoderLayer, positions: Positions) -> None:
        attention, cross = layer.attention, layer.cross
        self.attention, self.cross, self.heads, self.width = attention, cross, attention.heads, attention.width
        self.compiled_target = _is_plain(attention, positions)
        self.compiled_source = _is_plain(cross)
        if self.compiled_target:
            self.gather_target = self._gather_target_compiled
        elif not attention.scaled or attention.window:
            self.gather_target = self._gather_any_target
        else:
            self.gather_target = self._gather_target
        self.gather_source = self._gather_source_compiled if self.compiled_source else self._gather_source
        self.target_out, self.source_out = cast(Packed, attention.out), cast(Packed, cross.out)
        self.rise, self.down = _feed_forward(layer.feed_forward)
        # Methods, not modules: of one sentence's search, what modules do around each call is a good part.
        self.project, self.project_q = attention.qkv.forward, cross.q.forward
        self.frames = [_frame(around) for around in (layer.around_attention, layer.around_cross, layer.around_ff)]

    def __call__(self, x_RD: Tensor, state: DecoderState, place: Place) -> Tensor:
        """Return the output of the layer at `place`."""
        (before_target, after_target), (before_source, after_source), (before_ff, after_ff) = self.frames
        x_RD = after_target(self.target_out.plus(self.gather_target(before_target(x_RD), state, place), x_RD))
        x_RD = after_source(self.source_out.plus(self.gather_source(before_source(x_RD), state, place.layer), x_RD))
        return after_ff(self.down.plus(self.rise(before_ff(x_RD)), x_RD))

    def _gather_target_compiled(self, x_RD: Tensor, state: DecoderState, place: Place) -> Tensor:
        assert isinstance(state.target, StandingCache)
        qkv_R3HK = self.project(x_RD).view(-1, 3, self.heads, self.width)
        return state.target.attend(place.layer, qkv_R3HK).view(x_RD.shape)

    def _gather_target(self, x_RD: Tensor, state: DecoderState, place: Place) -> Tensor:
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

    def _gather_any_target(self, x_RD: Tensor, state: DecoderState, place: Place) -> Tensor:
        q_RH1K, kv_R12GK = self.attention.project(x_RD[:, None], place)
        k, v = state.remember(place.layer, kv_R12GK)
        return self.attention.gather(q_RH1K, k, v, None, place).reshape(x_RD.shape)

    def _gather_source_compiled(self, x_RD: Tensor, state: DecoderState, number: int) -> Tensor:
        q_RHK = self.project_q(x_RD).view(-1, self.heads, self.width)
        assert isinstance(state, StandingState)
        if number == state.watched:
            q_BHWK = q_RHK.view(len(state.from_B), -1, self.heads, self.width).transpose(1, 2)
            state.observe(number, self.cross, q_BHWK.float(), len(x_RD))
        k_NHSK, v_NHSK = state.sources[number]
        scratch = state.memory.room("scratch", torch.empty(0), (2 * self.width + kernels.filled(k_NHSK.shape[2]),))
        return kernels.attend_source(q_RHK, k_NHSK, v_NHSK, state.tokens_N, state.from_B, scratch).view(x_RD.shape)

    def _gather_source(self, x_RD: Tensor, state: DecoderState, number: int) -> Tensor:
        k_BGSK, v_BGSK = state.sources[number]
        q_BHWK = self.project_q(x_RD).view(len(k_BGSK), -1, self.heads, self.width).transpose(1, 2).float()
        state.observe(number, self.cross, q_BHWK, len(x_RD))
        seen_BHWK = self.cross.gather(q_BHWK, k_BGSK, v_BGSK, state.mask_B11S)
        return seen_BHWK.transpose(1, 2).reshape(x_RD.shape).to(x_RD.dtype)


def _is_plain(attention: SelfAttention | CrossAttention, positions: Positions | None = None) -> bool:
    """Say whether compiled loops know such attention: scaled dot products of all there is, without positions."""
    if not kernels.available() or not attention.scaled or attention.kv_heads != attention.heads:
        return False
    windowed = isinstance(attention, SelfAttention) and bool(attention.window)
    return not windowed and not (positions and positions.in_attention)


def _feed_forward(layer: FeedForward) -> tuple[Callable[[Tensor], Tensor], Packed]:
    """Return f(xW₁ + b₁) as one, and W₂."""
    up, down, activation = cast(Packed, layer.up), cast(Packed, layer.down), layer.activation
    return up.relu if activation is F.relu else lambda x: activation(up(x)), down


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

    def __init__(self, model: Seq2Seq, pack: Pack) -> None:
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

    def __init__(self, model: Transformer, pack: Pack) -> None:
        """Pack the matrices of `model`, which is not to be used by itself from then on."""
        super().__init__(model, pack)
        own = {id(layer): PackedLayer(layer, model.target_positions) for layer in model.decoder_layers}
        self.layers = [own[id(layer)] for layer in model.decoder_layers]
        self.norm = _norm(model.decoder_norm)
        encodes = all(_is_plain(layer.attention, model.source_positions) for layer in model.encoder_layers)
        self.encoder_layers = [PackedEncoderLayer(layer) for layer in model.encoder_layers] if encodes else []
        self.encoder_norm = _norm(model.encoder_norm)
        self._memories: list[Memory] = []
        """Of searches that are over, for those that begin."""

    def begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> DecoderState:
        """Read the source and return the state in which a search begins."""
        try:
            memory = self._memories.pop()
        except IndexError:
            memory = Memory()
        sentences, tokens = src_mask_BS.shape
        sources: list[KeysValues] = []
        part = max(1, PART_TOKENS // tokens)
        for first in range(0, sentences, part):
            some = slice(first, first + part)
            read = self._begin(src_BS[some], src_mask_BS[some]).sources
            sources = sources or [
                self._rooms(memory, layer, k_BGSK, sentences) for layer, (k_BGSK, _) in enumerate(read)
            ]
            for room, pair in zip(sources, read, strict=True):
                for x_BGSK, some_BGSK in zip(room, pair, strict=True):
                    x_BGSK[some] = some_BGSK
        cache = StandingCache if self.layers[0].compiled_target else TargetCache
        target = cache(len(sources), memory)
        mask_B11S = None if src_mask_BS.all() else src_mask_BS[:, None, None, :]
        if self.layers[0].compiled_source:
            tokens_N = src_mask_BS.sum(1).int()
            state: DecoderState = StandingState(sources, mask_B11S, target, memory=memory, tokens_N=tokens_N)
        else:
            state = DecoderState(sources, mask_B11S, target, memory=memory)
        weakref.finalize(state, self._memories.append, memory)
        return state

    def _rooms(self, memory: Memory, layer: int, like_BGSK: Tensor, sentences: int) -> KeysValues:
        """Return room for a layer's keys and values of so many sources."""
        whole = like_BGSK if self.layers[0].compiled_source else torch.empty(0)  # float32
        shape = (sentences, *like_BGSK.shape[1:])
        return memory.room(f"keys {layer}", whole, shape), memory.room(f"values {layer}", whole, shape)

    def _begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> DecoderState:
        """Do as the model, with packed layers where they do."""
        if not self.encoder_layers:
            return cast(DecoderState, self.model.begin(src_BS, src_mask_BS))
        x_BSD, tokens_B = self.model.embed("source", src_BS, 0), src_mask_BS.sum(1).int()
        for number, layer in enumerate(self.encoder_layers):
            x_BSD = layer(Place(self.model.source_positions, number, 0).embed(x_BSD), tokens_B)
        return self.model.start(self.encoder_norm(x_BSD), src_mask_BS)

    def next_log_probs(self, tokens_R: Tensor, state: DecoderState) -> Tensor:
        """Read one more token per row and return the float32 log-probabilities of the next, [R, V].

        They are good until the next step.
        """
        x_RD = self.model.embed("target", tokens_R[:, None], state.length)[:, 0]
        for number, layer in enumerate(self.layers):
            place = Place(self.model.target_positions, number, state.length)
            if number and place.positions.every_layer:
                x_RD = place.embed(x_RD[:, None])[:, 0]
            x_RD = layer(x_RD, state, place)
        state.advance(1)
        hidden_RD = self.norm(x_RD)
        log_p_RV = state.memory.room("log_p", torch.empty(0), (len(hidden_RD), len(self.model.output_weight_VD)))
        self.output.put(hidden_RD, log_p_RV)
        if kernels.available():
            kernels.log_softmax(log_p_RV)
        else:
            torch.log_softmax(log_p_RV, -1, out=log_p_RV)
        return log_p_RV


def for_inference(model: Seq2Seq, dtype: torch.dtype) -> PackedModel | Seq2Seq:
    """Return a copy of `model` that computes in `dtype`, for search only; the model itself stays as it is.

    In int8, the matrices are of that type and all else of float32. A recurrent model computes in float32 otherwise.
    """
    whole = dtype == torch.int8
    if not isinstance(model, Transformer) and not whole:
        dtype = torch.float32
    ready = copy.deepcopy(model).to(torch.float32 if whole else dtype).eval().requires_grad_(False)
    ready.compute_dtype = None
    on_cpu = ready.output_weight_VD.device.type == "cpu"
    pack = packer(dtype) if on_cpu else None
    if not pack:
        return ready
    return PackedTransformer(ready, pack) if isinstance(ready, Transformer) else PackedModel(ready, pack)
