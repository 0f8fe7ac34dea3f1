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
from collections.abc import Callable, Iterable
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from nmt.model.layers import Linear, Residual
from nmt.model.transformer import DecoderLayer, DecoderState, Transformer

ROWS = 32
"""Rows that the blocks are laid out for; other numbers are multiplied just as fast."""


class PackedLinear(nn.Module):
    """y = xWᵀ + b with W in oneDNN's blocks."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach().contiguous(), ROWS)
        self.bias = None if bias is None else bias.detach()

    def forward(self, input: Tensor) -> Tensor:
        """Map [..., inputs] to [..., outputs]."""
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


class PackedLayer:
    """A step of a decoder layer with packed matrices: `DecoderLayer.forward` for one new position of each row.

    A position attends to the target so far element by element: thousands of products too small for a matrix routine go
    over the memory as it lies. To the source it attends by PyTorch's fused kernel and in float32, in which that is
    several times faster.
    """

    def __init__(self, layer: DecoderLayer) -> None:
        self.layer, self.heads = layer, layer.attention.heads
        joining = (layer.attention.out, layer.cross.out, layer.feed_forward.up, layer.feed_forward.down)
        self.target_out, self.source_out, self.up, self.down = (cast(Packed, linear) for linear in joining)

    def __call__(self, x_RD: Tensor, state: DecoderState, number: int) -> Tensor:
        """Return the layer's output; `number` counts the layers from 0."""
        layer = self.layer
        seen_RD = self._gather_target(layer.around_attention.before(x_RD), state, number)
        x_RD = _after(layer.around_attention, self.target_out.plus(seen_RD, x_RD))
        seen_RD = self._gather_source(layer.around_cross.before(x_RD), state, number)
        x_RD = _after(layer.around_cross, self.source_out.plus(seen_RD, x_RD))
        hidden_RF = self.up.relu(layer.around_ff.before(x_RD))
        return _after(layer.around_ff, self.down.plus(hidden_RF, x_RD))

    def _gather_target(self, x_RD: Tensor, state: DecoderState, number: int) -> Tensor:
        qkv_R3HK = self.layer.attention.qkv(x_RD).view(len(x_RD), 3, self.heads, -1)
        assert state.target is not None
        k_TRHK, v_TRHK = state.target.append(number, qkv_R3HK[:, None, 1:]).unbind(1)
        q_RHK = qkv_R3HK[:, 0] / math.sqrt(k_TRHK.shape[-1])
        # Over the last axis: over the first, how softmax rounds depends on the number of rows.
        weights_TRH = (q_RHK * k_TRHK).sum(-1).permute(1, 2, 0).softmax(-1).permute(2, 0, 1)
        seen_RHK: Tensor = (weights_TRH[..., None] * v_TRHK).sum(0)
        return seen_RHK.view(x_RD.shape)

    def _gather_source(self, x_RD: Tensor, state: DecoderState, number: int) -> Tensor:
        k, v = state.sources[number]
        q = self.layer.cross.q(x_RD).float().view(len(k), -1, self.heads, k.shape[-1]).transpose(1, 2)
        state.observe(number, q, len(x_RD))
        seen = F.scaled_dot_product_attention(q, k, v, state.mask_B11S)
        return seen.transpose(1, 2).reshape(x_RD.shape).to(x_RD.dtype)


def _after(around: Residual, total: Tensor) -> Tensor:
    """Return what leaves a sub-layer's frame, given the sum of the stream and its output."""
    normed: Tensor = total if around.pre else around.norm(total)
    return normed


class PackedTransformer:
    """A Transformer on a CPU, as a search sees it."""

    def __init__(self, model: Transformer, pack: Callable[[Tensor, Tensor | None], Packed]) -> None:
        """Pack the matrices of `model`, which is not to be used by itself from then on."""
        self.model = model
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, Linear):
                    setattr(module, name, pack(child.weight, child.bias))
        self.output = pack(model.output_weight_VD, None)
        self.layers = [PackedLayer(layer) for layer in cast(Iterable[DecoderLayer], model.decoder)]

    def begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> DecoderState:
        """Read the source and return the state in which a search begins."""
        state = self.model.begin(src_BS, src_mask_BS)
        state.sources = [(k.float().contiguous(), v.float().contiguous()) for k, v in state.sources]
        if src_mask_BS.all():
            state.mask_B11S = None
        return state

    def next_logits(self, tokens_R: Tensor, state: DecoderState) -> Tensor:
        """Read one more token per row and return the float32 logits of the next, [R, V]."""
        x_RD = self.model.embed("target", tokens_R[:, None], state.length)[:, 0]
        for number, layer in enumerate(self.layers):
            x_RD = layer(x_RD, state, number)
        state.advance(1)
        logits_RV: Tensor = self.output(self.model.decoder_norm(x_RD))
        return logits_RV.float()


def for_inference(model: Transformer, dtype: torch.dtype) -> PackedTransformer | Transformer:
    """Return a copy of `model` that computes in `dtype`, for search only; the model itself stays as it is.

    In int8, the matrices are of that type and all else of float32.
    """
    whole = dtype == torch.int8
    ready = copy.deepcopy(model).to(torch.float32 if whole else dtype).eval().requires_grad_(False)
    ready.compute_dtype = None
    if whole:
        return PackedTransformer(ready, Int8Linear)
    device = ready.output_weight_VD.device
    packs = device.type == "cpu" and dtype in (torch.float32, torch.bfloat16) and _can_pack()
    return PackedTransformer(ready, PackedLinear) if packs else ready


def _can_pack() -> bool:
    operators = ("_reorder_linear_weight", "_linear_pointwise")
    return torch.backends.mkldnn.is_available() and all(hasattr(torch.ops.mkldnn, name) for name in operators)  # type: ignore[no-untyped-call]
