"""The most probable next tokens. Letters: B sentences, W rows of each, R = B*W, V vocabulary, C candidates, T tokens so
far, X any.

These run at every step over every row and the whole vocabulary, so they are written for few passes over memory.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nmt import kernels

CHUNK = 64
"""Scores that are first reduced to their largest: the best C of all lie in the C chunks with the largest maxima."""


def top_k(scores_RV: Tensor, candidates: int, before_BW: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the largest scores, best first, and where they stand; exactly those of `Tensor.topk`, sooner.

    Args:
        scores_RV: of R = B*W rows.
        candidates: how many to return; where there are fewer, all.
        before_BW: what is added to the scores of each row of a sentence. The largest of all rows of a sentence are
            then returned, [B, C], and place w*V + v is token v of its row w; without it those of each row, [R, C].
    """
    vocabulary, device = scores_RV.shape[1], scores_RV.device
    if before_BW is None:
        before_BW = scores_RV.new_zeros(1, 1).expand(len(scores_RV), 1)
    readable = device.type == "cpu" and scores_RV.dtype == torch.float32 and scores_RV.is_contiguous()
    if readable and kernels.available():
        return kernels.top_k(scores_RV, candidates, before_BW)
    width, chunks = before_BW.shape[1], vocabulary // CHUNK
    scores_BX = scores_RV.view(-1, width * vocabulary)
    if width * chunks <= 2 * candidates:
        total_BX = scores_BX + before_BW.repeat_interleave(vocabulary, 1)
        return total_BX.topk(min(candidates, width * vocabulary))
    whole = chunks * CHUNK
    largest_BWX = scores_RV[:, :whole].unfold(1, CHUNK, CHUNK).amax(-1).view(-1, width, chunks)
    chunk_BC = (largest_BWX + before_BW[:, :, None]).flatten(1).topk(candidates).indices
    first_BC = chunk_BC // chunks * vocabulary + chunk_BC % chunks * CHUNK
    place_BX = (first_BC[:, :, None] + torch.arange(CHUNK, device=device)).flatten(1)
    if whole < vocabulary:
        rest_WX = torch.arange(width * vocabulary, device=device).view(width, vocabulary)[:, whole:]
        place_BX = torch.cat((place_BX, rest_WX.flatten().expand(len(place_BX), -1)), 1)
    total_BX = scores_BX.gather(1, place_BX) + before_BW.gather(1, place_BX // vocabulary)
    best_BC, at_BC = total_BX.topk(candidates)
    return best_BC, place_BX.gather(1, at_BC)


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
