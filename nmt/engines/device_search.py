"""Greedy and plain beam search on a GPU: a step, from reordering the KV cache to the new beams, is
one CUDA graph, and the host only looks every few steps which sentences run.

Hypotheses and scores are those of `nmt.search`, but a hypothesis of probability 0 is left out. All
other searches run there: with constraints, prefixes, bans, a coverage penalty or a shortlist, and
the candidates of MBR.

Shape suffixes: B sentences, W rows (beams) of each, R = B*W rows, T target tokens, K best tokens of
a row, C candidates of a sentence (W*K, or the W best), X selected ones, H finished hypotheses of a
sentence, F = H + W, V vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.engines.cuda_graphs import GraphedSteps
from nmt.engines.pytorch import MIN_RUNNING, TorchModel, to_host, top_tokens
from nmt.model.attention import fused_kernels
from nmt.search import Hypothesis, Search, SearchRequest, StepModel
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.search.partial import length_limits
from nmt.search.request import Bools, Ints, NBestLists

CHECK_EVERY = 8
"""Number of steps between two looks at which sentences run: each waits for the GPU."""
IMPOSSIBLE = -math.inf


def search(search: Search, model: StepModel, request: SearchRequest) -> NBestLists:
    """Return the hypotheses of each sentence, best first; on the GPU if it can."""
    if not isinstance(model, TorchModel) or not model.spare_graphs:
        return search(model, request)
    # Not a subclass, which may do something else.
    if type(search) not in (Greedy, Beam) or not supports(search, request):  # type: ignore[arg-type]
        return search(model, request)
    with torch.inference_mode(), fused_kernels():
        return DeviceSearch(model, search, request).run()  # type: ignore[arg-type]


def supports(search: Greedy | Beam, request: SearchRequest) -> bool:
    """Return whether a search needs nothing but the most probable tokens."""
    has_bans = search.min_length_ratio > 0 or search.no_repeat_ngram_size > 0
    has_penalty = isinstance(search, Beam) and search.coverage_penalty > 0
    has_required_tokens = any(request.prefixes) or any(request.constraints)
    has_candidates = search.shortlist and request.shortlist is not None
    return not (has_bans or has_penalty or has_required_tokens or has_candidates)


@dataclass
class Finished:
    """The best finished hypotheses of each sentence, best first, in the memory of the GPU."""

    score_BH: Tensor
    """-inf: there is none."""
    log_prob_BH: Tensor
    length_BH: Tensor
    tokens_BHT: Tensor

    @classmethod
    def none(cls, sizes: tuple[int, int], num_steps: int, device: torch.device) -> Finished:
        """Return places for H hypotheses of each sentence."""
        zeros = partial(torch.zeros, dtype=torch.int64, device=device)
        return cls(
            score_BH=torch.full(sizes, IMPOSSIBLE, device=device),
            log_prob_BH=torch.zeros(sizes, device=device),
            length_BH=zeros(sizes),
            tokens_BHT=zeros(*sizes, num_steps),
        )

    def add(
        self, score_BW: Tensor, log_prob_BW: Tensor, length_1: Tensor, tokens_BWT: Tensor
    ) -> None:
        """Keep the best of these hypotheses and of W new ones."""
        # Equal scores keep their order: the earlier ones first.
        score_BF = torch.cat((self.score_BH, score_BW), 1)
        sorted_BF, order_BF = score_BF.sort(dim=1, descending=True, stable=True)
        num_kept = self.score_BH.shape[1]
        order_BH = order_BF[:, :num_kept]
        order_BHT = order_BH[:, :, None].expand_as(self.tokens_BHT)
        log_prob_BF = torch.cat((self.log_prob_BH, log_prob_BW), 1)
        length_BF = torch.cat((self.length_BH, length_1.expand_as(score_BW)), 1)
        tokens_BFT = torch.cat((self.tokens_BHT, tokens_BWT), 1)
        self.score_BH.copy_(sorted_BF[:, :num_kept])
        self.log_prob_BH.copy_(log_prob_BF.gather(1, order_BH))
        self.length_BH.copy_(length_BF.gather(1, order_BH))
        self.tokens_BHT.copy_(tokens_BFT.gather(1, order_BHT))

    def select(self, sentences_B: Tensor) -> Finished:
        """Return those of some sentences."""
        selected = {}
        for name, tensor in vars(self).items():
            selected[name] = tensor.index_select(0, sentences_B)
        return Finished(**selected)

    def to_host(self) -> Finished:
        """Copy them to the CPU."""
        copies = {name: to_host(tensor) for name, tensor in vars(self).items()}
        torch.cuda.current_stream(self.score_BH.device).synchronize()
        return Finished(**copies)


@dataclass
class Beams:
    """The partial hypotheses of all rows, and the limits of their sentences, in the memory of the
    GPU."""

    tokens_R: Tensor
    """The last token of each row."""
    parents_R: Tensor
    """The row of the step before that each row continues."""
    log_prob_R: Tensor
    """Log-probability; -inf: the row cannot become a hypothesis, as in a sentence that does not
    run."""
    history_RT: Tensor
    """All tokens of each row, without the start token."""
    max_length_B: Tensor
    max_length_norm_B: Tensor
    is_running_B: Tensor
    num_finished_B: Tensor
    """Number of finished hypotheses so far."""

    def extend(self, beam: Candidates, length_1: Tensor) -> None:
        """Replace the rows by extensions of rows of a length."""
        parents_R = beam.rows_BC.flatten()
        tokens_R = beam.tokens_BC.flatten()
        history_RT = self.history_RT.index_select(0, parents_R)
        history_RT.index_copy_(1, length_1, tokens_R[:, None])
        self.history_RT.copy_(history_RT)
        self.parents_R.copy_(parents_R)
        self.tokens_R.copy_(tokens_R)
        self.log_prob_R.copy_(beam.log_prob_BC.flatten())

    def select(self, sentences_B: Tensor, rows_R: Tensor) -> Beams:
        """Return some sentences, and their rows, which continue themselves."""
        selected = {}
        for name, tensor in vars(self).items():
            index = rows_R if name.endswith(("_R", "_RT")) else sentences_B
            selected[name] = tensor.index_select(0, index)
        selected["parents_R"] = torch.arange(len(rows_R), device=rows_R.device)
        return Beams(**selected)


@dataclass
class Candidates:
    """The extensions of the rows of each sentence by one token; see
    `nmt.search.candidates.Candidates`."""

    rows_BC: Tensor
    tokens_BC: Tensor
    log_prob_BC: Tensor

    def best(self, count: int) -> Candidates:
        """Return the best candidates of each sentence, best first; equal ones keep their order, and
        NaN comes last."""
        negative_BC = -self.log_prob_BC
        sorted_BC = negative_BC.sort(dim=1, stable=True)
        index_BX = sorted_BC.indices[:, :count]
        return Candidates(
            rows_BC=self.rows_BC.gather(1, index_BX),
            tokens_BC=self.tokens_BC.gather(1, index_BX),
            log_prob_BC=self.log_prob_BC.gather(1, index_BX),
        )

    def without(self, is_excluded: Tensor) -> Candidates:
        """Make some candidates impossible; `is_excluded` is broadcast to [B, C]."""
        log_prob_BC = self.log_prob_BC.masked_fill(is_excluded, IMPOSSIBLE)
        return Candidates(self.rows_BC, self.tokens_BC, log_prob_BC)


class DeviceSearch:
    """The search of one batch."""

    def __init__(self, model: TorchModel, search: Greedy | Beam, request: SearchRequest) -> None:
        self.model = model
        self.request = request
        self.width = search.rows
        self.num_finished = search.n_best
        _, max_length_B = length_limits(request, search)
        longest = int(max_length_B.max())
        self.num_steps = longest + 1
        # Greedy search.
        self.k = 1
        self.early_stopping = False
        self.norm_T = np.ones(self.num_steps + 1, np.float32)
        """Divisor of the score of a translation by its length, which includes the end token."""
        if isinstance(search, Beam):
            # Of the W + 1 best tokens of a row at most one ends it.
            self.k = self.width + 1
            self.early_stopping = search.early_stopping
            length_T = np.arange(len(self.norm_T))
            self.norm_T = search.length_norm(length_T)
        self.hypotheses: NBestLists = [[] for _ in request.sources]
        self.sentence_B = np.arange(len(request.sources))
        """Index in the request of each sentence that is in the state."""
        self.states = model.init_search_state(request.sources).states
        self.steps = self._begin_steps()
        self._allocate(max_length_B)

    def _begin_steps(self) -> GraphedSteps[None]:
        caches = [state.cache for state in self.states]
        spare = self.model.spare_graphs
        assert spare  # see `search`
        reorders = self.width > 1
        return GraphedSteps(spare, caches, self.model.max_positions, reorders=reorders)

    def _allocate(self, max_length_B: Ints) -> None:
        """Allocate what a step reads and writes."""
        device = self.model.device
        zeros = partial(torch.zeros, dtype=torch.int64, device=device)
        num_sentences = len(max_length_B)
        num_rows = num_sentences * self.width
        self.length_1 = zeros(1)
        """Length of the partial hypotheses."""
        self.device_norm_T = self._transfer(self.norm_T)
        max_length_norm_B = self.norm_T[max_length_B + 1]
        # The rows of a sentence are equal at first: all but one are impossible.
        sizes = num_sentences, self.width
        log_prob_BW = np.full(sizes, IMPOSSIBLE, np.float32)
        log_prob_BW[:, 0] = 0.0
        self.beams = Beams(
            tokens_R=zeros(num_rows) + self.request.bos,
            parents_R=torch.arange(num_rows, device=device),
            log_prob_R=self._transfer(log_prob_BW.ravel()),
            history_RT=zeros(num_rows, self.num_steps),
            max_length_B=self._transfer(max_length_B),
            max_length_norm_B=self._transfer(max_length_norm_B),
            is_running_B=zeros(num_sentences) == 0,
            num_finished_B=zeros(num_sentences),
        )
        sizes = num_sentences, self.num_finished
        self.finished = Finished.none(sizes, self.num_steps, device)

    def _transfer(self, array: Any) -> Tensor:
        return self.model.transfer(torch.from_numpy(array))

    def run(self) -> NBestLists:
        """Search, and return the hypotheses of each sentence."""
        for step in range(1, self.num_steps + 1):
            num_left = self.num_steps + 1 - step
            self.steps.run(self._step, len(self.sentence_B), num_left)
            if step % CHECK_EVERY and num_left > 1:
                continue
            is_running_B = self.beams.is_running_B.cpu().numpy()
            num_running = is_running_B.sum()
            if not num_running:
                break
            if num_running <= MIN_RUNNING * len(is_running_B):
                self._keep(is_running_B)
        self._collect(np.arange(len(self.sentence_B)))
        return self.hypotheses

    def _step(self) -> None:
        """Read the last token of each row, and update the beams; the host does not wait."""
        beams = self.beams
        if self.width > 1:
            for state in self.states:
                state.reorder(beams.parents_R)
        candidates = self._candidates()
        # Of the W best candidates, those that end are finished hypotheses.
        self._finish(candidates.best(self.width))
        # The W best candidates that do not end are the new beam.
        ends_BC = candidates.tokens_BC == self.request.eos
        beam = candidates.without(ends_BC).best(self.width)
        self._update_running(beam)
        has_stopped_B1 = ~beams.is_running_B[:, None]
        beam = beam.without(has_stopped_B1)
        beams.extend(beam, self.length_1)
        self.length_1 += 1

    def _candidates(self) -> Candidates:
        """Return the extensions of each row by its best tokens."""
        beams = self.beams
        log_p_RV = self.model.log_probs(beams.tokens_R, self.states)
        log_p_RK, tokens_RK = self._best_tokens(log_p_RV)
        log_prob_R1 = beams.log_prob_R[:, None]
        log_prob_RK = log_prob_R1 + log_p_RK
        rows_R = torch.arange(len(log_p_RK), device=log_p_RK.device)
        rows_R1 = rows_R[:, None]
        rows_RK = rows_R1.expand_as(tokens_RK)
        num_sentences = len(beams.is_running_B)
        return Candidates(
            rows_BC=rows_RK.reshape(num_sentences, -1),
            tokens_BC=tokens_RK.reshape(num_sentences, -1),
            log_prob_BC=log_prob_RK.view(num_sentences, -1),
        )

    def _best_tokens(self, log_p_RV: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best tokens of each row; at the maximum length only the end token."""
        log_p_RK, tokens_RK = top_tokens(log_p_RV, self.k)
        must_end_B = self.beams.max_length_B == self.length_1
        must_end_BW = must_end_B[:, None].expand(-1, self.width)
        must_end_R1 = must_end_BW.reshape(-1, 1)
        # The end token is then the first one of its row, and the others are impossible.
        eos = self.request.eos
        log_p_end_R1 = log_p_RV[:, eos : eos + 1]
        place_K = torch.arange(log_p_RK.shape[1], device=log_p_RK.device)
        is_first_K = place_K == 0
        forced_RK = log_p_end_R1.where(is_first_K, IMPOSSIBLE)
        log_p_RK = torch.where(must_end_R1, forced_RK, log_p_RK)
        tokens_RK = tokens_RK.masked_fill(must_end_R1 & is_first_K, eos)
        return log_p_RK, tokens_RK

    def _finish(self, best: Candidates) -> None:
        """Add the candidates that end to the finished hypotheses."""
        beams = self.beams
        log_prob_BW = best.log_prob_BC
        ends_BW = best.tokens_BC == self.request.eos
        ends_BW &= log_prob_BW.isfinite()
        if self.early_stopping:
            is_full_B = beams.num_finished_B >= self.width
            ends_BW &= ~is_full_B[:, None]
        beams.num_finished_B += ends_BW.sum(1)
        final_length_1 = self.length_1 + 1
        norm_1 = self.device_norm_T[final_length_1]
        score_BW = log_prob_BW / norm_1
        score_BW = score_BW.masked_fill(~ends_BW, IMPOSSIBLE)
        history_BWT = beams.history_RT[best.rows_BC]
        self.finished.add(score_BW, log_prob_BW, self.length_1, history_BWT)

    def _update_running(self, beam: Candidates) -> None:
        """Stop the sentences whose partial hypotheses cannot enter their n-best lists; see
        `nmt.search.beam.can_improve`."""
        beams = self.beams
        best_B = beam.log_prob_BC.amax(1)  # NaN stops a sentence
        max_score_B = best_B / beams.max_length_norm_B
        min_score_B = self.finished.score_BH[:, -1]
        can_improve_B = max_score_B > min_score_B
        can_improve_B &= best_B > IMPOSSIBLE
        if self.early_stopping:
            can_improve_B &= beams.num_finished_B < self.width
        beams.is_running_B &= can_improve_B

    def _keep(self, is_running_B: Bools) -> None:
        """Store the results of finished sentences, and continue with the others only."""
        has_finished_B = ~is_running_B
        self._collect(has_finished_B.nonzero()[0])
        self.steps.close()
        kept_B = is_running_B.nonzero()[0]
        first_row_B1 = kept_B[:, None] * self.width
        rows_BW = first_row_B1 + np.arange(self.width)
        sentences_B = self._transfer(kept_B)
        rows_R = self._transfer(rows_BW.ravel())
        parents_R = self.beams.parents_R[rows_R]
        for state in self.states:
            state.reorder(parents_R, sentences_B)
        self.beams = self.beams.select(sentences_B, rows_R)
        self.finished = self.finished.select(sentences_B)
        self.sentence_B = self.sentence_B[kept_B]

    def _collect(self, places: Ints) -> None:
        """Store the finished hypotheses of some sentences of the state."""
        finished = self.finished.to_host()
        for place in places:
            sentence = self.sentence_B[place]
            n_best = self.hypotheses[sentence]
            is_hypothesis_H = finished.score_BH[place].isfinite()
            (place_N,) = is_hypothesis_H.nonzero(as_tuple=True)
            for h in place_N.tolist():
                length = int(finished.length_BH[place, h])
                hypothesis = Hypothesis(
                    ids=finished.tokens_BHT[place, h, :length].tolist(),
                    log_prob=float(finished.log_prob_BH[place, h]),
                    score=float(finished.score_BH[place, h]),
                    length_norm=float(self.norm_T[length + 1]),
                )
                n_best.append(hypothesis)
