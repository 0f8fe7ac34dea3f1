"""The simpler simple recurrent unit, which replaces the self-attention of a decoder (Kim et al.
2019, "From Research to Production and Back: Ludicrously Fast Neural Machine Translation", section
3).

    f_t = σ(x_t W_f + b_f)
    c_t = f_t ∘ c_{t-1} + (1 - f_t) ∘ x_t W,  c_0 = 0
    y_t = ReLU(c_t)

Neither gates nor candidates x_t W depend on c_{t-1}, so two matrix products compute them for all
positions, and only element-wise operations are sequential. A search keeps one vector per row and
layer instead of keys and values of all positions.

Shape suffixes: R rows, T target tokens, D model dimension.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from nmt.core.config import ModelConfig
from nmt.model.layers import Linear


class SSRU(nn.Module):
    """The recurrence over the target in one decoder layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.candidate = Linear(config.dim, config.dim, bias=False)
        self.gate = Linear(config.dim, config.dim)

    def forward(self, x_RTD: Tensor, state_RD: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Read T more tokens.

        Args:
            x_RTD: the input of the layer.
            state_RD: the state after the tokens before, float32; None: there are none.

        Returns:
            The output [R, T, D] in the dtype of the input, and the new state [R, D].
        """
        # Rounding errors of a recurrence accumulate, so it runs in float32.
        candidate_RTD = self.candidate(x_RTD).float()
        gate_logits_RTD = self.gate(x_RTD).float()
        gate_RTD = gate_logits_RTD.sigmoid()
        if state_RD is None:
            state_RD = torch.zeros_like(candidate_RTD[:, 0])
        states_RTD: Tensor = _Scan.apply(candidate_RTD, gate_RTD, state_RD)  # type: ignore[no-untyped-call]
        output_RTD = states_RTD.relu().to(x_RTD.dtype)
        return output_RTD, states_RTD[:, -1]


class _Scan(torch.autograd.Function):
    """All states of the recurrence. Its gradient needs one operation per position; autograd of the
    loop would need several, and store their results."""

    @staticmethod
    def forward(ctx: Any, candidate_RTD: Tensor, gate_RTD: Tensor, state_RD: Tensor) -> Tensor:
        states_RTD = torch.empty_like(candidate_RTD)
        previous_RD = state_RD
        for t in range(candidate_RTD.shape[1]):
            # candidate + gate · (previous - candidate)
            candidate_RD = candidate_RTD[:, t]
            gate_RD = gate_RTD[:, t]
            previous_RD = torch.lerp(candidate_RD, previous_RD, gate_RD)
            states_RTD[:, t] = previous_RD
        ctx.save_for_backward(candidate_RTD, gate_RTD, state_RD, states_RTD)
        return states_RTD

    @staticmethod
    def backward(ctx: Any, grad_RTD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        candidate_RTD, gate_RTD, state_RD, states_RTD = ctx.saved_tensors
        # The gradient of a state is that of its output, and through its gate that of the next one.
        grad_states_RTD = grad_RTD.clone()
        for t in range(grad_RTD.shape[1] - 1, 0, -1):
            later_RD = grad_states_RTD[:, t]
            earlier_RD = grad_states_RTD[:, t - 1]
            earlier_RD.addcmul_(gate_RTD[:, t], later_RD)
        first_R1D = state_RD[:, None]
        previous_RTD = torch.cat((first_R1D, states_RTD[:, :-1]), 1)
        difference_RTD = previous_RTD - candidate_RTD
        grad_gate_RTD = grad_states_RTD * difference_RTD
        grad_candidate_RTD = grad_states_RTD * (1 - gate_RTD)
        first_grad_RD = grad_states_RTD[:, 0]
        grad_state_RD = first_grad_RD * gate_RTD[:, 0]
        return grad_candidate_RTD, grad_gate_RTD, grad_state_RD


class SSRUStates:
    """The states of the decoder layers after the target so far, in a search."""

    def __init__(self) -> None:
        self.length = 0
        self.layers: dict[int, Tensor] = {}
        """State of each layer, [R, D]; empty before the first token."""

    @property
    def position(self) -> int:
        """Position of the next token."""
        return self.length

    def advance(self, positions: int) -> None:
        """Increase the length by the number of positions that every layer has read."""
        self.length += positions

    def reorder(self, rows_R: Tensor) -> None:
        """Keep the rows `rows_R`, in that order."""
        for layer, state_RD in self.layers.items():
            self.layers[layer] = state_RD[rows_R]
