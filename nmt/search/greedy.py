"""Greedy search: the most probable token at every step. Letters: B sentences still running."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.search.hypothesis import Hypothesis, SearchModel


def greedy(
    model: SearchModel, src_BS: Tensor, src_mask_BS: Tensor, max_len_B: Tensor, bos: int, eos: int
) -> list[list[Hypothesis]]:
    """Return one hypothesis per sentence.

    Args:
        model: what to search.
        src_BS: source ids.
        src_mask_BS: True at real source positions.
        max_len_B: most tokens of each translation, the end token not counted; there the end is forced.
        bos: id that starts a translation.
        eos: id that ends one.
    """
    sentences = len(src_BS)
    state = model.start(model.encode(src_BS, src_mask_BS), src_mask_BS)
    running_B = torch.arange(sentences, device=src_BS.device)
    log_prob_B = torch.zeros(sentences, device=src_BS.device)
    tokens_BT = torch.full((sentences, 1), bos, device=src_BS.device)
    found: list[Hypothesis] = [Hypothesis([], 0.0, 0.0)] * sentences
    for length in range(int(max_len_B.max()) + 1):
        logits_BV = model.project(model.step(tokens_BT[:, -1:], state)[:, -1]).float()
        next_B = logits_BV.argmax(-1).masked_fill(max_len_B <= length, eos)
        chosen_B = logits_BV.gather(1, next_B[:, None])[:, 0]
        log_prob_B = log_prob_B + (chosen_B - logits_BV.logsumexp(-1))
        ended_B = next_B == eos
        if ended_B.any():
            for sentence, ids, log_prob in zip(
                running_B[ended_B].tolist(), tokens_BT[ended_B, 1:].tolist(), log_prob_B[ended_B].tolist(), strict=True
            ):
                found[sentence] = Hypothesis(ids, log_prob, log_prob)
            rest = (~ended_B).nonzero()[:, 0]
            if not len(rest):
                break
            state.select(rest, rest)
            running_B, max_len_B, log_prob_B = running_B[rest], max_len_B[rest], log_prob_B[rest]
            tokens_BT, next_B = tokens_BT[rest], next_B[rest]
        tokens_BT = torch.cat((tokens_BT, next_B[:, None]), dim=1)
    return [[hypothesis] for hypothesis in found]
