"""The recurrent encoder-decoder with attention (Bahdanau et al. 2015), which the Transformer came to replace.

Shape letters: B sentences, S source tokens, T target tokens, D width, E = 2D, W rows (beams) per sentence, R = B*W
rows, L layers. Masks are boolean, True = attend.

A bidirectional GRU reads the source. At each target position the decoder attends to what it wrote, with its last state
as the query, and a GRU takes the previous token and what was gathered to the next state. The recurrences compute in
float32 whatever the activations have: what is rounded away in one step is missing in all that follow.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.model.attention import Additive, masked_softmax
from nmt.model.layers import Linear
from nmt.model.seq2seq import Seq2Seq


@dataclass
class RecurrentState:
    """What the decoder remembers between steps."""

    keys_BSD: Tensor
    """What the encoder wrote, projected to be compared with states."""
    memory_BSE: Tensor
    """What the encoder wrote."""
    mask_BS: Tensor
    hidden_LRD: Tensor
    """The states of all layers after the last target token."""
    watched: bool = False
    seen_RTS: Tensor | None = None
    """Where the positions of the last step looked, if that is watched."""

    def watch(self) -> None:
        """Note from now on where target positions look in the source."""
        self.watched = True

    def select(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Keep `rows_R` of the present rows in that order, and, when given, `sentences_B` of the sentences.

        The rows of one sentence must stand together and be equally many for every sentence.
        """
        self.hidden_LRD = self.hidden_LRD[:, rows_R]
        if sentences_B is not None:
            self.keys_BSD, self.memory_BSE = self.keys_BSD[sentences_B], self.memory_BSE[sentences_B]
            self.mask_BS = self.mask_BS[sentences_B]


class Recurrent(Seq2Seq):
    """Bidirectional GRU encoder, GRU decoder that is fed with what additive attention gathers."""

    def __init__(self, config: ModelConfig, vocabulary: int, pad: int = 0) -> None:
        """Make the network with fresh weights; see `Seq2Seq`."""
        super().__init__(config, vocabulary, pad)
        dim, layers = config.dim, config.decoder_layers
        between = config.dropout if config.encoder_layers > 1 else 0.0
        self.encoder = nn.GRU(dim, dim, config.encoder_layers, batch_first=True, dropout=between, bidirectional=True)
        self.first = Linear(dim, layers * dim, parts=[dim] * layers)
        self.query, self.key = Linear(dim, dim, bias=False), Linear(2 * dim, dim, bias=False)
        self.scoring = Additive(1, dim)
        gates = [dim] * 3
        self.from_token = Linear(dim, 3 * dim, parts=gates)
        self.from_source = Linear(2 * dim, 3 * dim, parts=gates, bias=False)
        self.from_below = nn.ModuleList(Linear(dim, 3 * dim, parts=gates) for _ in range(layers - 1))
        self.from_state = nn.ModuleList(Linear(dim, 3 * dim, parts=gates) for _ in range(layers))
        self.out = Linear(4 * dim, dim)

    def encode(self, src_BS: Tensor, src_mask_BS: Tensor) -> Tensor:
        """Return the states of both directions at each source token, memory_BSE."""
        x_BSD = self.dropout(self.embed_tokens("source", src_BS)).float()
        lengths_B = src_mask_BS.sum(1).clamp(min=1).cpu()  # the backward direction begins at the last real token
        packed = nn.utils.rnn.pack_padded_sequence(x_BSD, lengths_B, batch_first=True, enforce_sorted=False)
        memory_BSE, _ = nn.utils.rnn.pad_packed_sequence(
            self.encoder(packed)[0], batch_first=True, total_length=src_BS.shape[1]
        )
        dropped_BSE: Tensor = self.dropout(memory_BSE)
        return dropped_BSE

    def start(self, memory_BSE: Tensor, src_mask_BS: Tensor, *, keep: bool = True) -> RecurrentState:
        """Open a state for decoding from the beginning: what the backward direction wrote last, having seen it all.

        Of the target nothing is stored but a state, with `keep` or without.
        """
        first_BLD = torch.tanh(self.first(memory_BSE[:, 0, self.config.dim :])).unflatten(1, (-1, self.config.dim))
        return RecurrentState(self.key(memory_BSE), memory_BSE, src_mask_BS, first_BLD.transpose(0, 1))

    def step(self, tgt_RT: Tensor, state: RecurrentState) -> Tensor:
        """Read T more target tokens per row and return hidden_RTD; R is a multiple of the state's sentences."""
        tokens_RTD = self.dropout(self.embed_tokens("target", tgt_RT))
        given_RT3D = self.from_token(tokens_RTD.float())
        hidden = list(state.hidden_LRD.repeat_interleave(len(tgt_RT) // state.hidden_LRD.shape[1], 1))
        found, seen = [], []
        for given_R3D in given_RT3D.unbind(1):
            gathered_RE, weights_RS = self._attend(hidden[-1], state)
            below = given_R3D + self.from_source(gathered_RE)
            for number, from_state in enumerate(self.from_state):
                if number:
                    below = self.from_below[number - 1](self.dropout(hidden[number - 1]))
                hidden[number] = gated(below, from_state(hidden[number]), hidden[number])
            found.append(torch.cat((hidden[-1], gathered_RE), 1))
            seen.append(weights_RS)
        state.hidden_LRD = torch.stack(hidden)
        state.seen_RTS = torch.stack(seen, 1) if state.watched else None
        joined_RT4D = torch.cat((torch.stack(found, 1), tokens_RTD.float()), 2)
        hidden_RTD: Tensor = self.dropout(torch.tanh(self.out(joined_RT4D)))
        return hidden_RTD.to(tokens_RTD.dtype)

    def _attend(self, query_RD: Tensor, state: RecurrentState) -> tuple[Tensor, Tensor]:
        """Return what a state gathers from the source, [R, E], and by which weights, [R, S].

        α = softmax(w_vᵀ tanh(W_q s + W_k h)) (Bahdanau et al. 2015, equations 5 and 6).
        """
        query_BWD = self.query(query_RD).view(len(state.keys_BSD), -1, query_RD.shape[1])
        scores_B1WS = self.scoring(query_BWD[:, None], state.keys_BSD[:, None])
        weights_BWS = masked_softmax(scores_B1WS[:, 0], state.mask_BS[:, None])
        gathered_BWE = weights_BWS @ state.memory_BSE
        return gathered_BWE.flatten(0, 1), weights_BWS.flatten(0, 1)


def gated(given_R3D: Tensor, from_state_R3D: Tensor, hidden_RD: Tensor) -> Tensor:
    """Return a GRU's next state (Cho et al. 2014, equations 5 to 8, with the reset after the product, as in cuDNN)."""
    (r, z, n), (r_own, z_own, n_own) = given_R3D.chunk(3, 1), from_state_R3D.chunk(3, 1)
    update_RD = torch.sigmoid(z + z_own)
    new_RD = torch.tanh(n + torch.sigmoid(r + r_own) * n_own)
    return torch.lerp(new_RD, hidden_RD, update_RD)
