"""Search and scoring with PyTorch networks: on a GPU, and on a CPU where the native engine cannot
run.

Shape suffixes: B sentences, S source tokens, R rows, T target tokens, K best tokens, P gathered
tokens, X banned tokens, V vocabulary, N target positions without padding.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.data.batching import collate, pad_rows, token_mask
from nmt.engines import Sentences, TokenScores, min_positions, token_scores
from nmt.engines.cuda_graphs import GraphedSteps, SpareGraphs
from nmt.model.attention import fused_kernels
from nmt.model.seq2seq import Seq2Seq
from nmt.search.request import Floats, Ints, StepRequest, StepResult
from nmt.text.tokenizer import encoder_input

MIN_RUNNING = 0.75
"""Fraction of the sentences in the state of a search on a GPU up to which finished ones are
dropped. Dropping them copies the keys and values of all others, and changes the shapes of all
kernels."""

TOKEN_BLOCK = 64
"""Number of tokens whose maximum is computed to find the best ones."""


class TorchModel:
    """One network, or an ensemble that averages the token probabilities of networks with the same
    vocabulary."""

    def __init__(self, networks: Sequence[Seq2Seq], dtype: torch.dtype | None = None) -> None:
        """Copy the networks and convert the copies to `dtype`; None: use the networks as they are.

        Recurrent networks always compute in float32.
        """
        self.networks = list(networks)
        if dtype is not None:
            self.networks = [_cast(network, dtype) for network in networks]
        self.device = self.networks[0].output_weight_VD.device
        self.max_positions = min_positions(networks)
        self.spare_graphs: SpareGraphs | None = None
        """None: steps are no graphs."""
        if self.device.type == "cuda" and all(n.supports_graphs for n in networks):
            self.spare_graphs = SpareGraphs()

    @torch.inference_mode()
    @fused_kernels()
    def init_search_state(
        self,
        sources: Sentences,
        *,
        track_attention: bool = False,
        candidates: Sequence[Ints] = (),
    ) -> TorchState:
        """Encode source sentences and return the initial state of a search."""
        src_BS = pad_rows(sources)
        src_BS = self.transfer(src_BS)
        mask_BS = token_mask(map(len, sources))
        mask_BS = self.transfer(mask_BS)
        states = []
        for network in self.networks:
            state = network.encode_and_init_state(src_BS, mask_BS)
            if track_attention:
                state.track_attention()
            states.append(state)
        return TorchState(self, states, len(sources), candidates)

    @torch.inference_mode()
    @fused_kernels()
    def score(self, sources: Sentences, targets: Sentences) -> list[TokenScores]:
        """Score a batch of given translations in one forward pass per network."""
        source_eos = self.networks[0].config.source_eos
        pairs = list(zip(sources, targets, strict=True))
        batch = collate(pairs, source_eos=source_eos).map(self.transfer)
        labels_N1 = batch.labels_N.unsqueeze(1)
        log_probs_N1 = []
        attention_BTS = []
        for network in self.networks:
            memory = network.encode(batch.src_BS, batch.src_mask_BS)
            state = network.init_state(memory, batch.src_mask_BS, use_cache=False)
            state.track_attention()
            hidden_BTD = network.decode(batch.tgt_in_BT, state)
            hidden_ND = hidden_BTD.flatten(0, 1)[batch.target_index_N]
            logits_NV = network.logits(hidden_ND).float()
            log_p_NV = logits_NV.log_softmax(-1)
            log_probs_N1.append(log_p_NV.gather(1, labels_N1))
            attention_BTS.append(state.cross_attention_RTS)
        mean_attention_BTS = to_host(_mean(attention_BTS))
        log_prob_N1 = mean_log_prob(log_probs_N1).cpu()  # waits for both
        lengths = [len(target) + 1 for target in targets]
        log_probs_B = log_prob_N1.flatten().split(lengths)
        inputs = [encoder_input(source, source_eos) for source in sources]
        return token_scores(log_probs_B, mean_attention_BTS.numpy(), inputs, targets)

    def log_probs(self, tokens_R: Tensor, states: Sequence[Any]) -> Tensor:
        """Read one more token per row, and return the log-probabilities of the next, [R, V]."""
        return mean_log_prob(self.network_log_probs(tokens_R, states))

    def network_log_probs(self, tokens_R: Tensor, states: Sequence[Any]) -> list[Tensor]:
        """Read one more token per row, and return the log-probabilities of the next in each
        network."""
        log_probs_RV = []
        for network, state in zip(self.networks, states, strict=True):
            log_probs_RV.append(network.next_log_probs(tokens_R, state))
        return log_probs_RV

    def transfer(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the CPU on the model's device, without waiting for a GPU."""
        if self.device.type != "cuda":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)


class TorchState:
    """The state of a search; see `nmt.search.request.State`."""

    attention_RS: Floats | None = None

    def __init__(
        self,
        model: TorchModel,
        states: list[Any],
        num_sources: int,
        candidates: Sequence[Ints] = (),
    ) -> None:
        self.model = model
        self.states = states
        self.candidates = candidates
        """The tokens of each sentence to which the output layer is restricted; empty: all."""
        self.source_R: Ints | None = None
        """Source index of each row of the search; None before the first step."""
        self.source_B: Ints = np.arange(num_sources)
        """Indices of the sources that the networks' states contain, in their order; some may have
        finished."""
        self.state_row_R: Ints = np.arange(num_sources)
        """Row of the networks' states for each row of the search."""
        self.num_state_rows = num_sources
        """Number of rows of the networks' states."""
        self._steps: GraphedSteps[list[Tensor]] | None = None
        if model.spare_graphs:
            caches = [state.cache for state in states]
            self._steps = GraphedSteps(model.spare_graphs, caches, model.max_positions)
        self._read_R: Tensor
        """The tokens that a step reads."""

    @torch.inference_mode()
    @fused_kernels()
    def step(self, request: StepRequest) -> StepResult:
        """Read one more token per row; the host waits once for a GPU."""
        self._reorder(request.parents_R)
        log_probs_RV = self._network_log_probs(self._rows(request.tokens_R))
        if self.candidates:
            # Before averaging, as in the native engine, which computes the candidates only.
            log_probs_RV = [self._restrict(log_p_RV) for log_p_RV in log_probs_RV]
        log_p_RV = mean_log_prob(log_probs_RV)
        attention_RTS = self._attention()
        gathered_log_p_RP = None
        if request.gather_RP is not None:
            gather_RP = self._rows(request.gather_RP)
            gathered_log_p_RP = log_p_RV.gather(1, gather_RP)
            gathered_log_p_RP = to_host(gathered_log_p_RP)
        all_log_p_RV = None
        if request.all_log_probs:
            all_log_p_RV = to_host(log_p_RV)
        if request.banned_RX is not None:
            self._ban(log_p_RV, request.banned_RX)
        # At least one, because a copy without elements would not wait for the others.
        k = max(request.k, 1)
        log_p_RK, tokens_RK = top_tokens(log_p_RV, k)
        log_p_RK = to_host(log_p_RK)
        best_RK = tokens_RK.cpu().numpy()[self.state_row_R]  # waits for all copies
        if attention_RTS is not None:
            self.attention_RS = attention_RTS[:, -1].numpy()[self.state_row_R]
        return StepResult(
            log_p_RK.numpy()[self.state_row_R, : request.k],
            best_RK[:, : request.k],
            self._search_rows(gathered_log_p_RP),
            self._search_rows(all_log_p_RV),
        )

    def _attention(self) -> Tensor | None:
        """Start to copy the cross-attention, [R, T, S]; None if it is not tracked."""
        if self.states[0].cross_attention_RTS is None:
            return None
        attention = [state.cross_attention_RTS for state in self.states]
        return to_host(_mean(attention))

    def _restrict(self, log_p_RV: Tensor) -> Tensor:
        """Normalize the probabilities over the candidates of each row."""
        candidate_log_p_RV = torch.full_like(log_p_RV, -torch.inf)
        rows_per_sentence = self.num_state_rows // len(self.source_B)
        sentence_R = self.source_B.repeat(rows_per_sentence)
        for row, sentence in enumerate(sentence_R):
            ids_C = self._tensor(self.candidates[int(sentence)])
            log_p_C = log_p_RV[row, ids_C]
            candidate_log_p_RV[row, ids_C] = log_p_C.log_softmax(0)
        return candidate_log_p_RV

    def _ban(self, log_p_RV: Tensor, banned_RX: Ints) -> None:
        index, column = (banned_RX >= 0).nonzero()
        rows = self._tensor(self.state_row_R[index])
        tokens = self._tensor(banned_RX[index, column])
        log_p_RV[rows, tokens] = -torch.inf

    def _search_rows(self, tensor: Tensor | None) -> Floats | None:
        """Return the rows of the search among those of the networks' states."""
        if tensor is None:
            return None
        return tensor.numpy()[self.state_row_R]

    def _network_log_probs(self, tokens_R: Tensor) -> list[Tensor]:
        """Read one more token per row and return the log-probabilities of each network, [R, V],
        which the next call may overwrite."""
        if self._steps is None:
            return self.model.network_log_probs(tokens_R, self.states)
        # A graph reads its tokens where they were when it was recorded.
        if self._steps.is_recorded:
            self._read_R.copy_(tokens_R)
        else:
            self._read_R = tokens_R
        return self._steps.run(self._launch, self.num_state_rows)

    def _launch(self) -> list[Tensor]:
        return self.model.network_log_probs(self._read_R, self.states)

    def _reorder(self, parents_R: Ints) -> None:
        """Reorder the networks' states according to the parents, and drop sentences without rows.

        On a GPU, they are dropped only when many have finished.
        """
        is_first_step = self.source_R is None
        source_R = parents_R if self.source_R is None else self.source_R[parents_R]
        # The rows of a sentence are adjacent, and all sentences have the same number of rows.
        running_B = source_R[np.diff(source_R, prepend=-1) != 0]
        rows_per_sentence = len(source_R) // len(running_B)
        place_B = self._places(running_B)
        sentences_B = None
        if not is_first_step and self._keeps_finished(place_B, rows_per_sentence):
            # The rows of finished sentences continue themselves.
            first_row_B1 = place_B[:, None] * rows_per_sentence
            state_row_R = (first_row_B1 + np.arange(rows_per_sentence)).ravel()
            state_parents: Ints = np.arange(self.num_state_rows)
            state_parents[state_row_R] = self.state_row_R[parents_R]
        else:
            state_row_R = np.arange(len(source_R))
            # Before the first step, the states have a row per sentence.
            state_parents = running_B if is_first_step else self.state_row_R[parents_R]
            if not np.array_equal(running_B, self.source_B):
                sentences_B = self._tensor(place_B)
                self.source_B = running_B
        self._reorder_states(state_parents, sentences_B)
        self.source_R = source_R
        self.state_row_R = state_row_R
        self.num_state_rows = len(self.source_B) * rows_per_sentence

    def _places(self, running_B: Ints) -> Ints:
        """Return the places of sources in the networks' states."""
        order_B = np.argsort(self.source_B)
        place_B = np.searchsorted(self.source_B, running_B, sorter=order_B)
        return order_B[place_B]

    def _reorder_states(self, parents: Ints, sentences_B: Tensor | None) -> None:
        if sentences_B is not None or len(parents) != self.num_state_rows:
            if self._steps:
                self._steps.close()
        elif np.array_equal(parents, np.arange(self.num_state_rows)):
            return
        for state in self.states:
            state.reorder(self._tensor(parents), sentences_B)

    def _keeps_finished(self, place_B: Ints, rows_per_sentence: int) -> bool:
        """Return whether the states keep their sentences, given the places of those with rows."""
        num_sentences = len(self.source_B)
        return (
            self.model.device.type == "cuda"
            and len(place_B) > MIN_RUNNING * num_sentences
            and rows_per_sentence * num_sentences == self.num_state_rows
            and bool((np.diff(place_B) > 0).all())
        )

    def _rows(self, values_R: Ints) -> Tensor:
        """Return a value for each row of the networks' states; those of finished sentences do not
        matter."""
        if len(values_R) < self.num_state_rows:
            shape = (self.num_state_rows, *values_R.shape[1:])
            all_values_R = np.zeros(shape, np.int64)
            all_values_R[self.state_row_R] = values_R
            values_R = all_values_R
        return self._tensor(values_R)

    def _tensor(self, array: Ints) -> Tensor:
        contiguous = np.ascontiguousarray(array, np.int64)
        tensor = torch.from_numpy(contiguous)
        return self.model.transfer(tensor)


def top_tokens(log_p_RV: Tensor, k: int) -> Sequence[Tensor]:
    """Return the log-probabilities and the ids of the k best tokens of each row, best first.

    The best k tokens are in the k blocks with the best maxima. `topk` of all tokens takes a GPU
    several times as long.
    """
    vocab_size = log_p_RV.shape[1]
    if k == 1:
        return log_p_RV.max(1, keepdim=True)
    end = vocab_size // TOKEN_BLOCK * TOKEN_BLOCK
    if not log_p_RV.is_cuda or end <= k * TOKEN_BLOCK:
        return log_p_RV.topk(min(k, vocab_size))
    blocks_RNT = log_p_RV[:, :end].unflatten(1, (-1, TOKEN_BLOCK))
    best_blocks_RK = blocks_RNT.amax(2).topk(k).indices
    ids_V = torch.arange(vocab_size, device=log_p_RV.device)
    first_ids_RK1 = best_blocks_RK[:, :, None] * TOKEN_BLOCK
    ids_in_blocks = first_ids_RK1 + ids_V[:TOKEN_BLOCK]
    last_ids = ids_V[end:].expand(len(log_p_RV), -1)
    candidates = torch.cat((ids_in_blocks.flatten(1), last_ids), 1)
    candidate_log_p = log_p_RV.gather(1, candidates)
    log_p_RK, index_RK = candidate_log_p.topk(k)
    tokens_RK = candidates.gather(1, index_RK)
    return log_p_RK, tokens_RK


def _mean(attention: Sequence[Tensor]) -> Tensor:
    stacked = torch.stack(list(attention))
    return stacked.mean(0).float()


def to_host(tensor: Tensor) -> Tensor:
    """Copy a tensor to the CPU; the copy of a GPU's is valid after the next wait."""
    return tensor.to("cpu", non_blocking=True, copy=True)


def mean_log_prob(log_probs: Sequence[Tensor]) -> Tensor:
    """Return log (1/n Σ exp(log p)) over tensors of equal shape."""
    if len(log_probs) == 1:
        return log_probs[0]
    log_sum = torch.stack(list(log_probs)).logsumexp(0)
    return log_sum - math.log(len(log_probs))


def _cast(network: Seq2Seq, dtype: torch.dtype) -> Seq2Seq:
    if not network.supports_low_precision:
        dtype = torch.float32
    converted = copy.deepcopy(network).to(dtype)
    converted.compute_dtype = None
    return converted.eval().requires_grad_(False)
