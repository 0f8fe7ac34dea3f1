"""Beam search. Letters: B sentences still running, W beams of each, R = B*W rows, V vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.errors import ConfigError
from nmt.search.hypothesis import Hypothesis, SearchModel

MOST_BEAMS = 1000


def beam(
    model: SearchModel,
    src_BS: Tensor,
    src_mask_BS: Tensor,
    max_len_B: Tensor,
    bos: int,
    eos: int,
    *,
    size: int = 4,
    top: int = 1,
    length_penalty: float = 1.0,
) -> list[list[Hypothesis]]:
    """Return the `top` best hypotheses per sentence, best first.

    At every step the W most probable extensions of a sentence's beams are taken; those that end become
    hypotheses, and the W best that do not end live on. A sentence is done when W hypotheses have ended, or earlier,
    when no living beam can still reach one of the `top` best (`_can_improve`). Hypotheses are ranked by
    log-probability / ((5 + length) / 6)^length_penalty (Wu et al. 2016, equation 14), the end token counted.

    Args:
        model: what to search.
        src_BS: source ids.
        src_mask_BS: True at real source positions.
        max_len_B: most tokens of each translation, the end token not counted; there the end is forced.
        bos: id that starts a translation.
        eos: id that ends one.
        size: W, partial translations kept at every step (beam_size).
        top: translations returned per sentence (top_beams).
        length_penalty: α of the length normalisation; 0 is none and favours short translations.

    Raises:
        ConfigError: `size` or `top` below 1, or more `top` than `size`.
    """
    check(size=size, top=top, length_penalty=length_penalty)
    device = src_BS.device
    found: list[list[Hypothesis]] = [[] for _ in range(len(src_BS))]
    state = model.start(model.encode(src_BS, src_mask_BS), src_mask_BS)
    running = list(range(len(src_BS)))
    every_sentence = torch.arange(len(running), device=device)
    state.select(every_sentence.repeat_interleave(size), None)
    tokens_RT = torch.full((len(running) * size, 1), bos, device=device)
    # All beams start alike, so only the first may propose: the others would fill the beam with copies of it.
    score_BW = torch.full((len(running), size), -torch.inf, device=device)
    score_BW[:, 0] = 0.0
    for length in range(int(max_len_B.max()) + 1):
        logits_RV = model.project(model.step(tokens_RT[:, -1:], state)[:, -1]).float()
        vocabulary = logits_RV.shape[-1]
        log_prob_RV = logits_RV.log_softmax(-1)
        _force_end(log_prob_RV, (max_len_B <= length).repeat_interleave(size), eos)
        total_BWV = score_BW[:, :, None] + log_prob_RV.view(-1, size, vocabulary)
        # At most one extension per beam ends, so among 2W at least W do not.
        score_BC, flat_BC = total_BWV.flatten(1).topk(2 * size)
        beam_BC, token_BC = flat_BC // vocabulary, flat_BC % vocabulary
        ends_BC = token_BC == eos

        # An impossible beam also proposes its end; it must not count as a hypothesis.
        hit_BC = ends_BC & score_BC.isfinite()
        hit_BC[:, size:] = False
        first_row_B1 = torch.arange(len(running), device=device)[:, None] * size
        if hit_BC.any():
            rows = (first_row_B1 + beam_BC)[hit_BC]
            norm = _norm(length, length_penalty)
            for at, ids, log_prob in zip(
                hit_BC.nonzero()[:, 0].tolist(), tokens_RT[rows, 1:].tolist(), score_BC[hit_BC].tolist(), strict=True
            ):
                if len(found[running[at]]) < size:
                    found[running[at]].append(Hypothesis(ids, log_prob, log_prob / norm))

        # Move what goes on to the front, in order of score. An extension that ended can only be among the W that go
        # on where too few others are possible (the first step, the length limit); it is then as dead as they are.
        score_BW, order_BW = score_BC.masked_fill(ends_BC, -torch.inf).topk(size)
        rows_BW = first_row_B1 + beam_BC.gather(1, order_BW)
        next_BW = token_BC.gather(1, order_BW)

        limits = max_len_B.tolist()
        best_live = score_BW[:, 0].tolist()
        stay = [
            at
            for at, sentence in enumerate(running)
            if len(found[sentence]) < size
            and _can_improve(found[sentence], top, best_live[at], limits[at], length_penalty)
        ]
        if not stay:
            break
        sentences = None
        if len(stay) < len(running):
            sentences = torch.tensor(stay, device=device)
            rows_BW, next_BW, score_BW = rows_BW[sentences], next_BW[sentences], score_BW[sentences]
            max_len_B = max_len_B[sentences]
            running = [running[at] for at in stay]
        rows_R = rows_BW.flatten()
        state.select(rows_R, sentences)
        tokens_RT = torch.cat((tokens_RT[rows_R], next_BW.view(-1, 1)), dim=1)
    return [sorted(hypotheses, key=lambda h: -h.score)[:top] for hypotheses in found]


def check(*, size: int = 4, top: int = 1, length_penalty: float = 1.0) -> None:
    """Raise a ConfigError for options out of range."""
    if not 1 <= size <= MOST_BEAMS:
        raise ConfigError(f"beam size must be between 1 and {MOST_BEAMS}, got {size}", "4 to 10 is usual")
    if not 1 <= top <= size:
        raise ConfigError(f"top beams must be between 1 and the beam size ({size}), got {top}")
    if not 0 <= length_penalty <= 10:
        raise ConfigError(f"length penalty must be between 0 and 10, got {length_penalty}", "1.0 is usual")


def _norm(length: int, length_penalty: float) -> float:
    return float(((5 + length + 1) / 6) ** length_penalty)  # + 1: the end token


def _force_end(log_prob_RV: Tensor, at_limit_R: Tensor, eos: int) -> None:
    """Leave rows at their length limit nothing but the end token, at its true probability."""
    if at_limit_R.any():
        end_R = log_prob_RV[:, eos].clone()
        log_prob_RV.masked_fill_(at_limit_R[:, None], -torch.inf)
        log_prob_RV[:, eos] = end_R


def _can_improve(found: list[Hypothesis], top: int, best_live: float, limit: int, length_penalty: float) -> bool:
    """Say whether a living beam may still enter the `top` best: an exact bound, not a guess.

    Log-probabilities only fall, and the normaliser only grows with length, so a beam's final score is at most its
    present log-probability under the normaliser of the longest translation allowed.
    """
    if best_live == -torch.inf:
        return False
    if len(found) < top:
        return True
    worst = sorted((h.score for h in found), reverse=True)[top - 1]
    return best_live / _norm(limit, length_penalty) > worst
