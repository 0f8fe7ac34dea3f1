"""Search and scoring with PyTorch networks: on a GPU, and on a CPU where the native engine cannot run.

Shape suffixes: B sentences, S source tokens, R rows, T target tokens, K best tokens, P gathered tokens, X banned
tokens, V vocabulary, N target positions without padding.
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
from nmt.model.attention import fused_kernels
from nmt.model.seq2seq import Seq2Seq
from nmt.model.transformer import Transformer
from nmt.search.request import Floats, Ints, StepRequest, StepResult


class TorchModel:
    """One network, or an ensemble that averages the token probabilities of networks with the same vocabulary."""

    def __init__(self, networks: Sequence[Seq2Seq], dtype: torch.dtype | None = None) -> None:
        """Copy the networks and convert the copies to `dtype`; None: use the networks as they are.

        Recurrent networks always compute in float32.
        """
        self.networks = list(networks)
        if dtype is not None:
            self.networks = [_cast(network, dtype) for network in networks]
        self.device = self.networks[0].output_weight_VD.device
        self.max_positions = min((n.max_positions for n in self.networks if n.max_positions), default=None)

    @torch.inference_mode()
    @fused_kernels()
    def init_search_state(self, sources: Sequence[Sequence[int]], *, track_attention: bool = False) -> TorchState:
        """Encode source sentences and return the initial state of a search."""
        src_BS = pad_rows(sources).to(self.device)
        lengths_B = torch.tensor([len(source) for source in sources])
        mask_BS = (torch.arange(src_BS.shape[1])[None] < lengths_B[:, None]).to(self.device)
        states = [network.init_search_state(src_BS, mask_BS) for network in self.networks]
        if track_attention:
            for state in states:
                state.track_attention()
        return TorchState(self, states, len(sources))

    @torch.inference_mode()
    @fused_kernels()
    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[TokenScores]:
        """Score a batch of given translations in one forward pass per network."""
        source_eos = self.networks[0].config.source_eos
        batch = collate(list(zip(sources, targets, strict=True)), source_eos=source_eos).to(self.device)
        log_probs_N, attention_BTS = [], []
        for network in self.networks:
            memory = network.encode(batch.src_BS, batch.src_mask_BS)
            state = network.init_state(memory, batch.src_mask_BS, use_cache=False)
            state.track_attention()
            hidden_ND = network.decode(batch.tgt_in_BT, state).flatten(0, 1)[batch.target_index_N]
            log_p_NV = network.logits(hidden_ND).float().log_softmax(-1)
            log_probs_N.append(log_p_NV.gather(1, batch.labels_N[:, None])[:, 0])
            attention_BTS.append(state.cross_attention_RTS)
        log_prob_N = mean_log_prob(log_probs_N).tolist()
        mean_attention_BTS = torch.stack(attention_BTS).mean(0).float().cpu().numpy()
        scores, start = [], 0
        for source, target, attention_TS in zip(sources, targets, mean_attention_BTS, strict=True):
            end = start + len(target) + 1
            scores.append(
                TokenScores(log_prob_N[start:end], attention_TS[: len(target) + 1, : len(source) + source_eos])
            )
            start = end
        return scores


class TorchState:
    """The state of a search; see `nmt.search.request.State`."""

    attention_RS: Floats | None = None

    def __init__(self, model: TorchModel, states: list[Any], num_sources: int) -> None:
        self.model, self.states = model, states
        self.source_R: Ints | None = None
        """Source index of each row; None before the first step."""
        self.source_B: Ints = np.arange(num_sources)
        """Indices of the sources that the networks' states contain, in their order."""

    @torch.inference_mode()
    @fused_kernels()
    def step(self, request: StepRequest) -> StepResult:
        """Read one more token per row."""
        self._reorder(request.parents_R)
        tokens_R = self._tensor(request.tokens_R)
        networks = zip(self.model.networks, self.states, strict=True)
        log_p_RV = mean_log_prob([network.next_log_probs(tokens_R, state) for network, state in networks])
        attention = [s.cross_attention_RTS[:, -1] for s in self.states if s.cross_attention_RTS is not None]
        if attention:
            self.attention_RS = torch.stack(attention).mean(0).float().cpu().numpy()
        gathered_log_p_RP = log_p_RV[:, :0]
        if request.gather_RP is not None:
            gathered_log_p_RP = log_p_RV.gather(1, self._tensor(request.gather_RP))
        all_log_p_RV = log_p_RV.cpu().numpy().copy() if request.all_log_probs else None
        if request.banned_RX is not None:
            row, column = (request.banned_RX >= 0).nonzero()
            log_p_RV[self._tensor(row), self._tensor(request.banned_RX[row, column])] = -torch.inf
        log_p_RK, tokens_RK = log_p_RV.topk(min(request.k, log_p_RV.shape[1]))
        # One transfer from the device.
        packed = (
            torch.cat([tokens_RK.int(), log_p_RK.view(torch.int32), gathered_log_p_RP.view(torch.int32)], 1)
            .cpu()
            .numpy()
        )
        k = log_p_RK.shape[1]
        return StepResult(
            packed[:, k : 2 * k].view(np.float32).copy(),
            packed[:, :k].astype(np.int64),
            None if request.gather_RP is None else packed[:, 2 * k :].view(np.float32).copy(),
            all_log_p_RV,
        )

    def _reorder(self, parents_R: Ints) -> None:
        """Reorder rows and sentences according to the parents, and drop sentences without rows."""
        source_R = parents_R if self.source_R is None else self.source_R[parents_R]
        kept_B = source_R[np.sort(np.unique(source_R, return_index=True)[1])]  # in the order of their rows
        sentences_B = None
        if not np.array_equal(kept_B, self.source_B):
            order_B = np.argsort(self.source_B)
            sentences_B = self._tensor(order_B[np.searchsorted(self.source_B, kept_B, sorter=order_B)])
        if self.source_R is None:  # the states have one row per sentence
            rows_R, is_reordered = self._tensor(kept_B), sentences_B is not None
        else:
            rows_R = self._tensor(parents_R)
            is_reordered = sentences_B is not None or not np.array_equal(parents_R, np.arange(len(self.source_R)))
        if is_reordered:
            for state in self.states:
                state.reorder(rows_R, sentences_B)
        self.source_R, self.source_B = source_R, kept_B

    def _tensor(self, array: Ints) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array, np.int64)).to(self.model.device)


def mean_log_prob(log_probs: Sequence[Tensor]) -> Tensor:
    """Return log (1/n Σ exp(log p)) over tensors of equal shape."""
    if len(log_probs) == 1:
        return log_probs[0]
    return torch.stack(tuple(log_probs)).logsumexp(0) - math.log(len(log_probs))


def _cast(network: Seq2Seq, dtype: torch.dtype) -> Seq2Seq:
    converted = copy.deepcopy(network).to(dtype if isinstance(network, Transformer) else torch.float32)
    converted.compute_dtype = None
    return converted.eval().requires_grad_(False)
