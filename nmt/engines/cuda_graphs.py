"""CUDA graphs of search steps: the kernels of a step are recorded once, then launched together.

Python takes about 2.5 ms to launch the 130 kernels of a step of the base model, which an H200
computes in 0.3 ms for a few rows. Shape suffixes: R rows, V vocabulary.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.core.runtime import is_out_of_memory
from nmt.model.cache import KVCache

_LOCK = threading.Lock()
"""Of all models: before PyTorch 2.12, captures and replays share the state of the GPU's random
generator."""
_STREAMS: dict[torch.device, torch.cuda.Stream] = {}
"""The stream of all captures on a GPU: PyTorch keeps a workspace of cuBLAS for every stream."""


@dataclass(eq=False)
class StepGraph:
    """The kernels of a step, for the rows and the reserved positions of the caches at its
    capture."""

    _graph: torch.cuda.CUDAGraph
    _tokens_R: Tensor
    _log_p_RV: Tensor
    _caches: Sequence[KVCache]
    _spare: list[torch.cuda.CUDAGraph]

    def run(self, tokens_R: Tensor) -> Tensor:
        """Read one more token per row and return log-probabilities [R, V], which the next call
        overwrites."""
        self._tokens_R.copy_(tokens_R)
        with _LOCK:
            self._graph.replay()
        for cache in self._caches:
            cache.length += 1
        return self._log_p_RV

    def close(self) -> None:
        """Let the caches grow again."""
        for cache in self._caches:
            cache.position_1 = None

    def __del__(self) -> None:
        self._spare.append(self._graph)


class CUDAGraphs:
    """Captures graphs of a model. Threads may share it."""

    def __init__(self) -> None:
        self._spare: list[torch.cuda.CUDAGraph] = []
        """Graphs that are no longer used; a new one uses the memory of one of them."""

    def capture(
        self, step: Callable[[Tensor], Tensor], tokens_R: Tensor, caches: Sequence[KVCache]
    ) -> StepGraph | None:
        """Record, but do not run, a step that reads a token per row and returns log-probabilities
        [R, V].

        Returns None if there is not enough memory: a capture can neither use nor free the memory
        that PyTorch caches.
        """
        length = caches[0].length
        try:
            for cache in caches:
                cache.fix_shapes()
            with _LOCK:
                return self._capture(step, tokens_R.clone(), caches)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        finally:
            for cache in caches:
                cache.length = length
        for cache in caches:
            cache.position_1 = None
        # `empty_cache` fails during a capture, also during one that could not end.
        with (
            _LOCK,
            suppress(RuntimeError),
        ):
            self._spare.clear()
            torch.cuda.empty_cache()
        return None

    def _capture(
        self, step: Callable[[Tensor], Tensor], tokens_R: Tensor, caches: Sequence[KVCache]
    ) -> StepGraph:
        # Must exist until the new graph shares its memory.
        old = self._spare.pop() if self._spare else None
        device = tokens_R.device
        if device not in _STREAMS:
            _STREAMS[device] = torch.cuda.Stream(device)
        stream, graph = _STREAMS[device], torch.cuda.CUDAGraph()
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            graph.capture_begin(old.pool() if old else None, capture_error_mode="thread_local")
            try:
                log_p_RV = step(tokens_R)
            except BaseException:
                with suppress(RuntimeError):  # if the step has waited, the capture cannot end
                    graph.capture_end()
                raise
            graph.capture_end()
        torch.cuda.current_stream(device).wait_stream(stream)
        return StepGraph(graph, tokens_R, log_p_RV, caches, self._spare)
