"""Networks as PyTorch modules, for search: on a GPU, and on a CPU what the native engine does not compute.

Shape letters: B sentences, S source tokens, R rows, T target tokens, K best tokens, P gathered tokens, X banned tokens,
V vocabulary, N real target positions.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.data.batching import collate, pad_rows
from nmt.inference import TokenScores
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import Transformer
from nmt.search.request import Floats, Ints, StepRequest, StepResult


class TorchModel:
    """One network, or the mean of what several with one vocabulary find probable."""

    def __init__(self, networks: Sequence[Seq2Seq], dtype: torch.dtype | None = None) -> None:
        """Make copies of the networks that compute in `dtype`, or take them as they are.

        A recurrent network computes in float32 whatever `dtype` is.
        """
        self.networks = list(networks)
        if dtype is not None:
            self.networks = [_cast(network, dtype) for network in networks]
        self.device = self.networks[0].output_weight_VD.device
        self.max_positions = min((n.max_positions for n in self.networks if n.max_positions), default=None)

    @torch.inference_mode()
    def prefill(self, sources: Sequence[Sequence[int]], *, track_attention: bool = False) -> TorchState:
        """Encode source sentences and return the state in which a search begins."""
        src_BS = pad_rows(sources).to(self.device)
        lengths_B = torch.tensor([len(source) for source in sources])
        mask_BS = (torch.arange(src_BS.shape[1])[None] < lengths_B[:, None]).to(self.device)
        states = [network.begin(src_BS, mask_BS) for network in self.networks]
        if track_attention:
            for state in states:
                state.watch()
        return TorchState(self, states, len(sources))

    @torch.inference_mode()
    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[TokenScores]:
        """Score given translations of a batch by one pass over each."""
        batch = collate(list(zip(sources, targets, strict=True))).to(self.device)
        log_probs_N, attention_BTS = [], []
        for network in self.networks:
            state = network.start(network.encode(batch.src_BS, batch.src_mask_BS), batch.src_mask_BS, keep=False)
            state.watch()
            hidden_ND = network.step(batch.tgt_in_BT, state).flatten(0, 1)[batch.target_index_N]
            log_p_NV = network.project(hidden_ND).float().log_softmax(-1)
            log_probs_N.append(log_p_NV.gather(1, batch.labels_N[:, None])[:, 0])
            assert state.seen_RTS is not None
            attention_BTS.append(state.seen_RTS)
        log_prob_N = mean_log_prob(log_probs_N).tolist()
        scores, first = [], 0
        for source, target, attention_TS in zip(
            sources, targets, torch.stack(attention_BTS).mean(0).float().cpu().numpy(), strict=True
        ):
            end = first + len(target) + 1
            scores.append(TokenScores(log_prob_N[first:end], attention_TS[: len(target) + 1, : len(source) + 1]))
            first = end
        return scores


class TorchState:
    """A batch in the middle of a search; see `nmt.search.request.State`."""

    attention_RS: Floats | None = None

    def __init__(self, model: TorchModel, states: list[Any], num_sources: int) -> None:
        self.model, self.states = model, states
        self.source_R: Ints | None = None
        """Which source each row reads."""
        self.source_B: Ints = np.arange(num_sources)
        """Which sources the networks' states hold, in their order."""

    @torch.inference_mode()
    def step(self, request: StepRequest) -> StepResult:
        """Read one more token per row."""
        self._reorder(request.parents_R)
        tokens = self._tensor(request.tokens_R)
        networks = zip(self.model.networks, self.states, strict=True)
        log_p_RV = mean_log_prob([network.next_log_probs(tokens, state) for network, state in networks])
        seen = [state.seen_RTS[:, -1] for state in self.states if state.seen_RTS is not None]
        if seen:
            self.attention_RS = torch.stack(seen).mean(0).float().cpu().numpy()
        gathered_RP = None if request.gather_RP is None else log_p_RV.gather(1, self._tensor(request.gather_RP))
        every_RV = log_p_RV.cpu().numpy().copy() if request.all_log_probs else None
        if request.banned_RX is not None:
            row, at = (request.banned_RX >= 0).nonzero()
            log_p_RV[self._tensor(row), self._tensor(request.banned_RX[row, at])] = -torch.inf
        best_RK, tokens_RK = log_p_RV.topk(min(request.k, log_p_RV.shape[1]))
        numbers = [best_RK, *(() if gathered_RP is None else (gathered_RP,))]
        found = torch.cat([*(x.view(torch.int32) for x in numbers), tokens_RK.int()], 1).cpu().numpy()  # one transfer
        width = best_RK.shape[1]
        floats = found[:, : found.shape[1] - width].view(np.float32)
        return StepResult(
            floats[:, :width].copy(), found[:, found.shape[1] - width :].astype(np.int64),
            None if gathered_RP is None else floats[:, width:].copy(), every_RV,
        )  # fmt: skip

    def _reorder(self, parents_R: Ints) -> None:
        """Reorder rows and sentences, and drop sentences, as the parents say."""
        source_R = parents_R if self.source_R is None else self.source_R[parents_R]
        kept_B = source_R[np.sort(np.unique(source_R, return_index=True)[1])]  # in the order of their rows
        sentences = None
        if not np.array_equal(kept_B, self.source_B):
            order_B = np.argsort(self.source_B)
            sentences = self._tensor(order_B[np.searchsorted(self.source_B, kept_B, sorter=order_B)])
        rows_R = self._tensor(parents_R)
        if self.source_R is None:  # there is one row for each sentence yet
            rows_R, moves = self._tensor(kept_B), sentences is not None
        else:
            moves = sentences is not None or not np.array_equal(parents_R, np.arange(len(self.source_R)))
        if moves:
            for state in self.states:
                state.select(rows_R, sentences)
        self.source_R, self.source_B = source_R, kept_B

    def _tensor(self, array: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, np.int64)).to(self.model.device)


def mean_log_prob(log_probs: Sequence[Tensor]) -> Tensor:
    """Return log (1/n Σ exp(log p)) over tensors of one shape."""
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(tuple(log_probs)).logsumexp(0) - math.log(len(log_probs))


def _cast(network: Seq2Seq, dtype: torch.dtype) -> Seq2Seq:
    ready = copy.deepcopy(network).to(dtype if isinstance(network, Transformer) else torch.float32)
    ready.compute_dtype = None
    return ready.eval().requires_grad_(False)
