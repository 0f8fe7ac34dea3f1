"""ONNX: graphs that ONNX Runtime and many other programs run, in many languages and on many devices.

Two graphs and the run's tokenizer. Letters: B sentences, S source tokens, R rows (B, or B times beams), T target tokens
so far, L decoder layers, H heads of keys and values, K head width, V vocabulary.

    encoder.onnx   source [B, S] (int64, each ending on </s>), source_mask [B, S] (bool) -> memory [L, 2, B, H, S, K]
    decoder.onnx   tokens [R] (int64), past [L, 2, R, H, T, K], memory [L, 2, R, H, S, K], source_mask [R, S]
                   -> logits [R, V], present [L, 2, R, H, T+1, K]

`memory` holds the keys and values of the source, `past` those of the target: empty (T = 0) at first, when every token
is <s>, and the last step's `present` afterward. A search with several rows a sentence repeats memory and mask.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt.errors import UsageError
from nmt.export.common import Engine, copy_run_files, missing, positions, searching, transformer
from nmt.model.build import max_positions
from nmt.model.cache import KVCache
from nmt.model.positions.absolute import Floater
from nmt.model.positions.base import Positions, Rows
from nmt.model.transformer import DecoderState, Transformer
from nmt.runs import discovery
from nmt.runs.discovery import LoadedModel
from nmt.runtime import num_threads
from nmt.search.request import Floats, StepRequest, StepResult, best_tokens

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"


def export(loaded: LoadedModel, folder: Path) -> None:
    """Write the graphs, in float32, and the run's files into `folder`, which stands.

    Raises:
        UsageError: a package is not installed, or the model is not one that graphs are written of.
    """
    encoder, decoder = graphs(loaded)
    try:
        import onnxscript  # noqa: F401  # what PyTorch's exporter writes with
    except ImportError:
        raise missing("onnxscript", "onnxscript") from None
    _onnxruntime()  # without it there is no proof
    copy_run_files(loaded, folder)
    # Lengths that differ from each other and from every size, so that the exporter sees which is which.
    source_BS, mask_BS = torch.zeros(3, 7, dtype=torch.long), torch.ones(3, 7, dtype=torch.bool)
    config = loaded.config.model
    heads, width = config.kv_heads or config.heads, config.dim // config.heads
    past = torch.zeros(config.decoder_layers, 2, 3, heads, 5, width)
    memory = torch.zeros(config.decoder_layers, 2, 3, heads, 7, width)
    with _quiet():
        torch.onnx.export(
            encoder, (source_BS, mask_BS), folder / ENCODER,
            input_names=["source", "source_mask"], output_names=["memory"],
            dynamic_shapes=({0: "B", 1: "S"}, {0: "B", 1: "S"}),
            dynamo=True, external_data=False, verbose=False,
        )  # fmt: skip
        torch.onnx.export(
            decoder, (source_BS[:, 0], past, memory, mask_BS), folder / DECODER,
            input_names=["tokens", "past", "memory", "source_mask"], output_names=["logits", "present"],
            dynamic_shapes=({0: "R"}, {2: "R", 4: "T"}, {2: "R", 4: "S"}, {0: "R", 1: "S"}),
            dynamo=True, external_data=False, verbose=False,
        )  # fmt: skip


def engine(folder: Path) -> Engine:
    """Return a translator of what `export` wrote: ONNX Runtime computes, nmt searches.

    Raises:
        UsageError: ONNX Runtime is not installed.
    """
    config, tokenizer, *_ = discovery.load_settings(folder)
    return searching(OnnxModel.load(folder), tokenizer, max_positions(config.model))


def graphs(loaded: LoadedModel) -> tuple[nn.Module, nn.Module]:
    """Return what is written, encoder and decoder, as modules of tensors alone.

    Raises:
        UsageError: the model is not one that graphs are written of.
    """
    but = ("normalization", "activation", "positions", "attention", "kv_heads")
    model = copy.deepcopy(transformer(loaded, "ONNX", but)).requires_grad_(False)
    for name in ("source_positions", "target_positions"):
        if isinstance(getattr(model, name), Floater):
            setattr(model, name, _FixedPath(getattr(model, name), positions(loaded)))
    for module in model.modules():
        rows = getattr(module, "rows", None)
        if isinstance(rows, Rows):
            vars(module)["rows"] = _FixedRows(rows.make, positions(loaded))
    return _Encoder(model).eval(), _Decoder(model).eval()


class OnnxModel:
    """The two graphs as something that nmt's searches can search."""

    def __init__(self, encoder: Any, decoder: Any) -> None:
        """Take the two as sessions of ONNX Runtime."""
        self.encoder, self.decoder = encoder, decoder

    @classmethod
    def load(cls, folder: Path) -> OnnxModel:
        """Load the graphs that `export` wrote.

        Raises:
            UsageError: ONNX Runtime is not installed.
        """
        onnxruntime = _onnxruntime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads()
        return cls(
            *(
                onnxruntime.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
                for name in (ENCODER, DECODER)
            )
        )

    def prefill(self, sources: Sequence[Sequence[int]], *, track_attention: bool = False) -> OnnxState:
        """Encode source sentences and return the state in which a search begins.

        Raises:
            UsageError: attention is to be tracked, which the graphs do not return.
        """
        if track_attention:
            raise UsageError("an ONNX model does not return its attention", "search without coverage")
        lengths_B = np.array([len(source) for source in sources])
        mask_BS = np.arange(lengths_B.max()) < lengths_B[:, None]
        source_BS = np.zeros(mask_BS.shape, np.int64)
        source_BS[mask_BS] = np.concatenate([np.asarray(source) for source in sources])
        (memory,) = self.encoder.run(None, {"source": source_BS, "source_mask": mask_BS})
        return OnnxState(self.decoder, memory, mask_BS)


class OnnxState:
    """What the decoder's graph is given at every step, a row for each of the search's."""

    attention_RS: Floats | None = None

    def __init__(self, decoder: Any, memory: NDArray[np.float32], mask_BS: NDArray[np.bool_]) -> None:
        self.decoder, self.memory, self.mask_RS = decoder, memory, mask_BS
        layers, two, sentences, heads, _, width = memory.shape
        self.past = np.zeros((layers, two, sentences, heads, 0, width), np.float32)

    def step(self, request: StepRequest) -> StepResult:
        """Read one more token per row; see `nmt.search.request.State`."""
        tokens_R, parents_R = request.tokens_R, request.parents_R
        same = np.array_equal(parents_R, np.arange(len(self.mask_RS)))
        if not same:
            self.memory, self.mask_RS = self.memory[:, :, parents_R], self.mask_RS[parents_R]
            self.past = self.past[:, :, parents_R]
        inputs = {"tokens": np.asarray(tokens_R, np.int64), "past": self.past, "memory": self.memory}
        logits_RV, self.past = self.decoder.run(None, {**inputs, "source_mask": self.mask_RS})
        shifted_RV = logits_RV - logits_RV.max(1, keepdims=True)
        log_p_RV = shifted_RV - np.log(np.exp(shifted_RV).sum(1, keepdims=True))
        return best_tokens(log_p_RV, request)


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise missing("ONNX Runtime", "onnxruntime") from None
    return onnxruntime


class _FixedRows(Rows):
    """A table of fixed length that is looked up: one that grows on demand is nothing for a graph."""

    def take(self, start: int, end: int, like: Tensor) -> Tensor:
        """Return rows start .. end-1."""
        return self.table[torch.arange(start, end)]


class _FixedPath(Positions):
    """A solved path: a solver is nothing for a graph either."""

    def __init__(self, floater: Floater, length: int) -> None:
        super().__init__(floater.stack)
        self.path_TLD = floater.path(length).detach()

    def embed(self, x_BTD: Tensor, layer: int, start: int) -> Tensor:
        """Add the layer's encodings of positions start .. start+T-1."""
        return x_BTD + self.path_TLD[torch.arange(start, start + x_BTD.shape[1]), layer]


class _Past(KVCache):
    """The KV cache for one step of a graph: concatenates what the other writes in place."""

    def __init__(self, past: Tensor) -> None:
        super().__init__(len(past))
        self.past, self.length = past, past.shape[4]
        self.present: list[Tensor] = []

    def append(self, layer: int, kv_RT2GK: Tensor) -> Tensor:
        """Put the keys and values of a new position behind the others and return all of this layer, [T, 2, R, G, K]."""
        present_2RGTK = torch.cat((self.past[layer], kv_RT2GK.permute(2, 0, 3, 1, 4)), 3)
        self.present.append(present_2RGTK)
        return present_2RGTK.permute(3, 0, 1, 2, 4)


class _Encoder(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, source_mask: Tensor) -> Tensor:
        state = self.model.begin(source, source_mask)
        return torch.stack([torch.stack(keys_values) for keys_values in state.sources])


class _Decoder(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, past: Tensor, memory: Tensor, source_mask: Tensor) -> tuple[Tensor, Tensor]:
        sources = [(keys_values[0], keys_values[1]) for keys_values in memory.unbind()]
        target = _Past(past)
        state = DecoderState(sources, source_mask[:, None, None, :], target)
        return self.model.next_logits(tokens, state), torch.stack(target.present)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporter's remarks, which are for those who write graphs, from stdout and stderr."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
