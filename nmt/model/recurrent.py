"""A recurrent encoder-decoder with attention, after Bahdanau et al. (2015).

Shape suffixes: B sentences, S source tokens, T target tokens, D model dimension, E = 2D, W rows
(beams) per sentence, R = B*W rows, L layers. Masks are boolean, True = attend.

A bidirectional GRU encodes the source. At each target position the decoder attends to the encoder
output, with its last hidden state as the query; a GRU computes the next hidden state from the
previous token and the attention context. The recurrences run in float32 whatever the dtype of the
activations, because rounding errors accumulate over the steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.core.config import ModelConfig
from nmt.model.attention import Additive, masked_softmax
from nmt.model.layers import Linear
from nmt.model.seq2seq import Seq2Seq


@dataclass
class RecurrentState:
    """The state of the decoder between steps."""

    keys_BSD: Tensor
    """Keys of the attention: the projected encoder output."""
    memory_BSE: Tensor
    """The encoder output."""
    mask_BS: Tensor
    hidden_LRD: Tensor
    """Hidden states of all layers after the last target token."""
    is_tracking: bool = False
    """Whether cross-attention is recorded."""
    cross_attention_RTS: Tensor | None = None
    """Cross-attention of the last step, if recorded."""

    def track_attention(self) -> None:
        """Record cross-attention from the next step on."""
        self.is_tracking = True

    def reorder(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Keep the rows `rows_R`, in that order, and, if given, the sentences `sentences_B`.

        The rows of a sentence must be adjacent, and every sentence must have the same number of
        rows.
        """
        self.hidden_LRD = self.hidden_LRD[:, rows_R]
        if sentences_B is not None:
            self.keys_BSD = self.keys_BSD[sentences_B]
            self.memory_BSE = self.memory_BSE[sentences_B]
            self.mask_BS = self.mask_BS[sentences_B]


class Recurrent(Seq2Seq):
    """A bidirectional GRU encoder, and a GRU decoder with additive attention."""

    supports_low_precision = False

    def __init__(self, config: ModelConfig, vocab_size: int) -> None:
        """Create the network with freshly initialized weights; see `Seq2Seq`."""
        super().__init__(config, vocab_size)
        dim = config.dim
        gates = [dim] * 3  # reset, update and new
        self.encoder = nn.GRU(
            dim,
            dim,
            config.encoder_layers,
            batch_first=True,
            dropout=config.dropout if config.encoder_layers > 1 else 0.0,  # between layers
            bidirectional=True,
        )
        self.init_hidden = Linear(dim, *[dim] * config.decoder_layers)
        self.query = Linear(dim, dim, bias=False)
        self.key = Linear(2 * dim, dim, bias=False)
        self.score_fn = Additive(1, dim)
        self.token_gates = Linear(dim, *gates)
        self.context_gates = Linear(2 * dim, *gates, bias=False)
        self.layer_gates = nn.ModuleList()
        for _ in range(config.decoder_layers - 1):
            self.layer_gates.append(Linear(dim, *gates))
        self.hidden_gates = nn.ModuleList()
        for _ in range(config.decoder_layers):
            self.hidden_gates.append(Linear(dim, *gates))
        self.out = Linear(4 * dim, dim)

    def encode(self, src_BS: Tensor, src_mask_BS: Tensor) -> Tensor:
        """Return the hidden states of both directions at each source token, memory_BSE."""
        x_BSD = self.embed_tokens("source", src_BS)
        x_BSD = self.dropout(x_BSD).float()
        # The backward direction starts at the last token of each sentence, not at its padding.
        lengths_B = src_mask_BS.sum(1).clamp(min=1).cpu()
        packed = nn.utils.rnn.pack_padded_sequence(
            x_BSD, lengths_B, batch_first=True, enforce_sorted=False
        )
        packed_memory, _ = self.encoder(packed)
        memory_BSE, _ = nn.utils.rnn.pad_packed_sequence(
            packed_memory, batch_first=True, total_length=src_BS.shape[1]
        )
        return self.dropout(memory_BSE)

    def init_state(
        self, memory_BSE: Tensor, src_mask_BS: Tensor, *, use_cache: bool = True
    ) -> RecurrentState:
        """Return the initial decoder state, computed from the last hidden state of the backward
        direction.

        `use_cache` has no effect: the hidden state is all that a recurrent decoder stores.
        """
        dim = self.config.dim
        last_BD = memory_BSE[:, 0, dim:]
        hidden_BX = self.init_hidden(last_BD)
        hidden_BX = torch.tanh(hidden_BX)
        hidden_BLD = hidden_BX.unflatten(1, (-1, dim))
        hidden_LBD = hidden_BLD.transpose(0, 1)
        keys_BSD = self.key(memory_BSE)
        return RecurrentState(keys_BSD, memory_BSE, src_mask_BS, hidden_LBD)

    def decode(self, tgt_RT: Tensor, state: RecurrentState) -> Tensor:
        """Read T more target tokens per row and return hidden_RTD; R is a multiple of the sentences
        in the state."""
        tokens_RTD = self.embed_tokens("target", tgt_RT)
        tokens_RTD = self.dropout(tokens_RTD)
        num_beams = len(tgt_RT) // state.hidden_LRD.shape[1]
        hidden = list(state.hidden_LRD.repeat_interleave(num_beams, 1))
        outputs, attention = [], []
        for token_gates_R3D in self.token_gates(tokens_RTD.float()).unbind(1):
            # The last hidden state of the top layer is the query.
            context_RE, weights_RS = self._attend(hidden[-1], state)
            context_gates_R3D = self.context_gates(context_RE)
            input_gates_R3D = token_gates_R3D + context_gates_R3D
            self._advance(input_gates_R3D, hidden)
            outputs_R3D = torch.cat((hidden[-1], context_RE), 1)
            outputs.append(outputs_R3D)
            attention.append(weights_RS)
        state.hidden_LRD = torch.stack(hidden)
        state.cross_attention_RTS = None
        if state.is_tracking:
            state.cross_attention_RTS = torch.stack(attention, 1)
        # The output layer reads the hidden state, the context and the token (appendix A.2.2).
        outputs_RT3D = torch.stack(outputs, 1)
        outputs_RT4D = torch.cat((outputs_RT3D, tokens_RTD.float()), 2)
        hidden_RTD = self.out(outputs_RT4D)
        hidden_RTD = torch.tanh(hidden_RTD)
        hidden_RTD = self.dropout(hidden_RTD)
        return hidden_RTD.to(tokens_RTD.dtype)

    def _advance(self, input_gates_R3D: Tensor, hidden: list[Tensor]) -> None:
        """Replace the hidden states of all layers by the next ones; each layer reads the one
        below."""
        for layer, hidden_gates in enumerate(self.hidden_gates):
            if layer:
                below_RD = self.dropout(hidden[layer - 1])
                input_gates_R3D = self.layer_gates[layer - 1](below_RD)
            last_RD = hidden[layer]
            hidden_gates_R3D = hidden_gates(last_RD)
            hidden[layer] = gru_cell(input_gates_R3D, hidden_gates_R3D, last_RD)

    def _attend(self, query_RD: Tensor, state: RecurrentState) -> tuple[Tensor, Tensor]:
        """Return the attention context of hidden states, [R, E], and the attention weights, [R, S].

        α = softmax(w_vᵀ tanh(W_q s + W_k h)) (Bahdanau et al. 2015, equations 5 and 6).
        """
        batch, _, dim = state.keys_BSD.shape
        projected_RD = self.query(query_RD)
        query_B1WD = projected_RD.view(batch, 1, -1, dim)
        keys_B1SD = state.keys_BSD[:, None]
        scores_B1WS = self.score_fn(query_B1WD, keys_B1SD)
        mask_B1S = state.mask_BS[:, None]
        weights_BWS = masked_softmax(scores_B1WS[:, 0], mask_B1S)
        context_BWE = weights_BWS @ state.memory_BSE
        context_RE = context_BWE.flatten(0, 1)
        weights_RS = weights_BWS.flatten(0, 1)
        return context_RE, weights_RS


def gru_cell(input_gates_R3D: Tensor, hidden_gates_R3D: Tensor, hidden_RD: Tensor) -> Tensor:
    """Return the next hidden state of a GRU (Cho et al. 2014, equations 5 to 8).

    As in cuDNN, the reset gate is applied after the matrix product.
    """
    r, z, n = input_gates_R3D.chunk(3, 1)
    r_hidden, z_hidden, n_hidden = hidden_gates_R3D.chunk(3, 1)
    reset_RD = torch.sigmoid(r + r_hidden)
    update_RD = torch.sigmoid(z + z_hidden)
    reset_hidden_RD = reset_RD * n_hidden
    new_RD = torch.tanh(n + reset_hidden_RD)
    return torch.lerp(new_RD, hidden_RD, update_RD)
