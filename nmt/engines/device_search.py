"""Greedy and plain beam search on a GPU: a step, from reordering the KV cache to the new beams, is
one CUDA graph, and the host only looks every few steps which sentences run.

Hypotheses and scores are those of `nmt.search`, but a hypothesis of probability 0 is left out. All
other searches run there: with constraints, prefixes, bans or a coverage penalty, and the candidates
of MBR.

Shape suffixes: B sentences, W rows (beams) of each, R = B*W rows, T target tokens, K best tokens of
a row, C = W*K candidates of a sentence, H finished hypotheses of a sentence, F = H + W, V
vocabulary.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
    return DeviceSearch(model, search, request).run()  # type: ignore[arg-type]


def supports(search: Greedy | Beam, request: SearchRequest) -> bool:
    """Return whether a search needs nothing but the most probable tokens."""
    has_bans = search.min_length_ratio > 0 or search.no_repeat_ngram_size > 0
    has_penalty = isinstance(search, Beam) and search.coverage_penalty > 0
    has_required_tokens = any(request.prefixes) or any(request.constraints)
    return not (has_bans or has_penalty or has_required_tokens)


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
        return cls(
            score_BH=torch.full(sizes, IMPOSSIBLE, device=device),
            log_prob_BH=torch.zeros(sizes, device=device),
            length_BH=torch.zeros(sizes, dtype=torch.int64, device=device),
            tokens_BHT=torch.zeros(*sizes, num_steps, dtype=torch.int64, device=device),
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

    def extend(self, parents_R: Tensor, tokens_R: Tensor, length_1: Tensor) -> None:
        """Let rows continue their parents, whose length is given, by a token."""
        history_RT = self.history_RT.index_select(0, parents_R)
        history_RT.index_copy_(1, length_1, tokens_R[:, None])
        self.history_RT.copy_(history_RT)
        self.parents_R.copy_(parents_R)
        self.tokens_R.copy_(tokens_R)

    def select(self, sentences_B: Tensor, rows_R: Tensor) -> Beams:
        """Return some sentences, and their rows, which continue themselves."""
        selected = {}
        for name, tensor in vars(self).items():
            index = rows_R if name.endswith(("_R", "_RT")) else sentences_B
            selected[name] = tensor.index_select(0, index)
        selected["parents_R"] = torch.arange(len(rows_R), device=rows_R.device)
        return Beams(**selected)


class DeviceSearch:
    """The search of one batch."""

    def __init__(self, model: TorchModel, search: Greedy | Beam, request: SearchRequest) -> None:
        self.model = model
        self.request = request
        self.width = search.rows
        is_beam = isinstance(search, Beam)
        # Of the W + 1 best tokens of a row at most one ends it.
        self.k = self.width + 1 if is_beam else 1
        self.num_finished = search.n_best
        self.early_stopping = isinstance(search, Beam) and search.early_stopping
        _, max_length_B = length_limits(request, search)
        self.num_steps = int(max_length_B.max()) + 1
        norm_T = np.ones(self.num_steps + 1, np.float32)
        if isinstance(search, Beam):
            norm_T = search.length_norm(np.arange(self.num_steps + 1))
        self.norm_T = norm_T
        self.hypotheses: NBestLists = [[] for _ in request.sources]
        self.sentence_B = np.arange(len(request.sources))
        """Index in the request of each sentence that is in the state."""
        self._allocate(max_length_B)

    def _allocate(self, max_length_B: Ints) -> None:
        """Allocate what a step reads and writes."""
        transfer = self.model.transfer
        device = self.model.device
        num_sentences = len(max_length_B)
        num_rows = num_sentences * self.width
        self.length_1 = torch.zeros(1, dtype=torch.int64, device=device)
        self.norms = transfer(torch.from_numpy(self.norm_T))
        max_length_norm_B = self.norm_T[max_length_B + 1]
        # The rows of a sentence are equal at first: all but one are impossible.
        log_prob_BW = torch.full((num_sentences, self.width), IMPOSSIBLE)
        log_prob_BW[:, 0] = 0.0
        self.beams = Beams(
            tokens_R=torch.full((num_rows,), self.request.bos, device=device),
            parents_R=torch.arange(num_rows, device=device),
            log_prob_R=transfer(log_prob_BW.flatten()),
            history_RT=torch.zeros(num_rows, self.num_steps, dtype=torch.int64, device=device),
            max_length_B=transfer(torch.from_numpy(max_length_B)),
            max_length_norm_B=transfer(torch.from_numpy(max_length_norm_B)),
            is_running_B=torch.ones(num_sentences, dtype=torch.bool, device=device),
            num_finished_B=torch.zeros(num_sentences, dtype=torch.int64, device=device),
        )
        sizes = num_sentences, self.num_finished
        self.finished = Finished.none(sizes, self.num_steps, device)

    @torch.inference_mode()
    @fused_kernels()
    def run(self) -> NBestLists:
        """Search, and return the hypotheses of each sentence."""
        self.states = self.model.init_search_state(self.request.sources).states
        caches = [state.cache for state in self.states]
        spare = self.model.spare_graphs
        assert spare  # see `search`
        reorders = self.width > 1
        self._steps = GraphedSteps[None](spare, caches, self.model.max_positions, reorders=reorders)
        for step in range(1, self.num_steps + 1):
            num_left = self.num_steps + 1 - step
            self._steps.run(self._step, len(self.sentence_B), num_left)
            if step % CHECK_EVERY and step < self.num_steps:
                continue
            is_running_B = self.beams.is_running_B.cpu().numpy()
            if not is_running_B.any():
                break
            if is_running_B.sum() <= MIN_RUNNING * len(is_running_B):
                self._keep(is_running_B)
        self._collect(np.arange(len(self.sentence_B)))
        return self.hypotheses

    def _step(self) -> None:
        """Read the last token of each row, and update the beams; the host does not wait."""
        beams = self.beams
        if self.width > 1:
            for state in self.states:
                state.reorder(beams.parents_R)
        log_p_RV = self.model.log_probs(beams.tokens_R, self.states)
        log_p_RK, tokens_RK = self._best_tokens(log_p_RV)
        log_prob_R1 = beams.log_prob_R[:, None]
        log_prob_RK = log_prob_R1 + log_p_RK
        num_sentences = len(beams.is_running_B)
        log_prob_BC = log_prob_RK.view(num_sentences, -1)
        tokens_BC = tokens_RK.reshape(num_sentences, -1)
        # Of the W best candidates, those that end are finished hypotheses.
        self._finish(log_prob_BC, tokens_BC)
        # The W best candidates that do not end are the new beam.
        ends_BC = tokens_BC == self.request.eos
        log_prob_BC = log_prob_BC.masked_fill(ends_BC, IMPOSSIBLE)
        log_prob_BW, index_BW = self._best(log_prob_BC)
        self._update_running(log_prob_BW)
        has_stopped_B1 = ~beams.is_running_B[:, None]
        log_prob_BW = log_prob_BW.masked_fill(has_stopped_B1, IMPOSSIBLE)
        parents_BW = self._rows(index_BW, tokens_BC)
        tokens_BW = tokens_BC.gather(1, index_BW)
        beams.extend(parents_BW.flatten(), tokens_BW.flatten(), self.length_1)
        beams.log_prob_R.copy_(log_prob_BW.flatten())
        self.length_1 += 1

    def _best_tokens(self, log_p_RV: Tensor) -> tuple[Tensor, Tensor]:
        """Return the best tokens of each row; at the maximum length only the end token."""
        log_p_RK, tokens_RK = top_tokens(log_p_RV, self.k)
        eos = self.request.eos
        must_end_B = self.beams.max_length_B == self.length_1
        must_end_B1 = must_end_B[:, None]
        must_end_R1 = must_end_B1.expand(-1, self.width).reshape(-1, 1)
        # The end token is then the first one of its row, and the others are impossible.
        log_p_end_R1 = log_p_RV[:, eos : eos + 1]
        is_first_K = torch.arange(log_p_RK.shape[1], device=log_p_RK.device) == 0
        forced_RK = log_p_end_R1.where(is_first_K, IMPOSSIBLE)
        log_p_RK = torch.where(must_end_R1, forced_RK, log_p_RK)
        tokens_RK = tokens_RK.masked_fill(must_end_R1 & is_first_K, eos)
        return log_p_RK, tokens_RK

    def _best(self, log_prob_BC: Tensor) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities and the indices of the W best candidates; equal ones keep
        their order, and NaN comes last."""
        negative_BC = -log_prob_BC
        sorted_BC = negative_BC.sort(dim=1, stable=True)
        index_BW = sorted_BC.indices[:, : self.width]
        return log_prob_BC.gather(1, index_BW), index_BW

    def _rows(self, index_BW: Tensor, tokens_BC: Tensor) -> Tensor:
        """Return the rows that candidates extend, given their indices."""
        num_sentences, num_candidates = tokens_BC.shape
        sentence_B = torch.arange(num_sentences, device=tokens_BC.device)
        first_row_B = sentence_B * self.width
        tokens_per_row = num_candidates // self.width
        place_BW = index_BW // tokens_per_row
        return first_row_B[:, None] + place_BW

    def _finish(self, log_prob_BC: Tensor, tokens_BC: Tensor) -> None:
        """Add the candidates that end to the finished hypotheses, and keep the best."""
        beams = self.beams
        log_prob_BW, index_BW = self._best(log_prob_BC)
        ends_BW = tokens_BC.gather(1, index_BW) == self.request.eos
        ends_BW &= log_prob_BW.isfinite()
        if self.early_stopping:
            is_full_B = beams.num_finished_B >= self.width
            ends_BW &= ~is_full_B[:, None]
        beams.num_finished_B += ends_BW.sum(1)
        score_BW = log_prob_BW / self.norms[self.length_1 + 1]
        score_BW = score_BW.masked_fill(~ends_BW, IMPOSSIBLE)
        rows_BW = self._rows(index_BW, tokens_BC)
        history_BWT = beams.history_RT[rows_BW]
        self.finished.add(score_BW, log_prob_BW, self.length_1, history_BWT)

    def _update_running(self, log_prob_BW: Tensor) -> None:
        """Stop the sentences whose partial hypotheses cannot enter their n-best lists; see
        `nmt.search.beam.can_improve`."""
        beams = self.beams
        best_B = log_prob_BW.amax(1)  # NaN stops a sentence
        can_improve_B = best_B / beams.max_length_norm_B > self.finished.score_BH[:, -1]
        can_improve_B &= best_B > IMPOSSIBLE
        if self.early_stopping:
            can_improve_B &= beams.num_finished_B < self.width
        beams.is_running_B &= can_improve_B

    def _keep(self, is_running_B: Bools) -> None:
        """Store the results of finished sentences, and continue with the others only."""
        self._collect((~is_running_B).nonzero()[0])
        self._steps.close()
        kept_B = is_running_B.nonzero()[0]
        rows = kept_B[:, None] * self.width + np.arange(self.width)
        sentences_B = self.model.transfer(torch.from_numpy(kept_B))
        rows_R = self.model.transfer(torch.from_numpy(rows.ravel()))
        for state in self.states:
            state.reorder(self.beams.parents_R[rows_R], sentences_B)
        self.beams = self.beams.select(sentences_B, rows_R)
        self.finished = self.finished.select(sentences_B)
        self.sentence_B = self.sentence_B[kept_B]

    def _collect(self, places: Ints) -> None:
        """Store the finished hypotheses of some sentences of the state."""
        finished = self.finished.to_host()
        for place in places:
            n_best = self.hypotheses[self.sentence_B[place]]
            for h in finished.score_BH[place].isfinite().nonzero().flatten().tolist():
                length = int(finished.length_BH[place, h])
                hypothesis = Hypothesis(
                    ids=finished.tokens_BHT[place, h, :length].tolist(),
                    log_prob=float(finished.log_prob_BH[place, h]),
                    score=float(finished.score_BH[place, h]),
                    length_norm=float(self.norm_T[length + 1]),
                )
                n_best.append(hypothesis)
