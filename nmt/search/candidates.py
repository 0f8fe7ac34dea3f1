"""The most probable next tokens. Letters: R rows, V vocabulary, C candidates of a row, T tokens so far.

These run at every step over every row and the whole vocabulary, so they are written for few passes over memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 64
"""Scores that are first reduced to their largest: the best C of a row lie in the C chunks with the largest maxima."""


def top_k(scores_RV: Tensor, candidates: int) -> tuple[Tensor, Tensor]:
    """Return each row's largest scores, best first, and where they stand; exactly those of `Tensor.topk`, sooner."""
    vocabulary = scores_RV.shape[1]
    chunks = vocabulary // CHUNK
    if chunks <= 2 * candidates:
        return scores_RV.topk(min(candidates, vocabulary))
    whole = chunks * CHUNK
    largest_RX = scores_RV[:, :whole].unfold(1, CHUNK, CHUNK).amax(-1)
    chunk_RC = largest_RX.topk(candidates).indices
    place = torch.arange(CHUNK, device=scores_RV.device)
    ids_RX = (chunk_RC[:, :, None] * CHUNK + place).flatten(1)
    if whole < vocabulary:
        rest = torch.arange(whole, vocabulary, device=scores_RV.device).expand(len(scores_RV), -1)
        ids_RX = torch.cat((ids_RX, rest), 1)
    best_RC, at_RC = scores_RV.gather(1, ids_RX).topk(candidates)
    return best_RC, ids_RX.gather(1, at_RC)


def log_probs_(logits_RV: Tensor) -> Tensor:
    """Turn logits into log-probabilities in place: a new tensor of that size would cost as much again."""
    return torch.log_softmax(logits_RV, -1, out=logits_RV)


def repeated(tokens_RT: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return row and id of every token that would complete an n-gram of `size` the row holds already.

    `tokens_RT` begins with the start token, which is no part of any.
    """
    said_RT = tokens_RT[:, 1:]
    if said_RT.shape[1] < size:
        none = tokens_RT.new_empty(0)
        return none, none
    grams_RXN = said_RT.unfold(1, size, 1)
    last_R1N = said_RT[:, None, said_RT.shape[1] - size + 1 :]
    row, at = (grams_RXN[:, :, :-1] == last_R1N).all(-1).nonzero(as_tuple=True)
    return row, grams_RXN[row, at, -1]
