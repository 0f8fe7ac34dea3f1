"""ONNX: graphs that ONNX Runtime and many other programs run, in many languages and on many devices.

Two graphs and the run's tokenizer. Letters: B sentences, S source tokens, R rows (B, or B times beams), T target tokens
so far, L decoder layers, H heads of keys and values, K head width, V vocabulary.

    encoder.onnx   source [B, S] (int64, each ending on </s>), source_mask [B, S] (bool) -> memory [L, 2, B, H, S, K]
    decoder.onnx   tokens [R] (int64), past [L, 2, R, H, T, K], memory [L, 2, R, H, S, K], source_mask [R, S]
                   -> logits [R, V], present [L, 2, R, H, T+1, K]

`memory` holds the keys and values of the source, `past` those of the target: empty (T = 0) at first, when every token
is <s>, and the last step's `present` afterwards. A search with several rows a sentence repeats memory and mask.
"""

from __future__ import annotations

import contextlib
import copy
import io
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt import checkpoint
from nmt.checkpoint import Loaded
from nmt.errors import UsageError
from nmt.export.engine import Engine, copy_run_files, missing, positions, searching, transformer
from nmt.model import most_positions
from nmt.model.cache import Memory, TargetCache
from nmt.model.positions.absolute import Floater
from nmt.model.positions.base import Positions, Rows
from nmt.model.transformer import DecoderState, Transformer

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"


def export(loaded: Loaded, folder: Path) -> None:
    """Write the graphs, in float32, and the run's files into `folder`, which stands.

    Raises:
        UsageError: a package is not installed, or the model is not one that graphs are written of.
    """
    encoder, decoder = graphs(loaded)
    try:
        import onnxscript  # noqa: F401  # what PyTorch's exporter writes with
    except ImportError:
        raise missing("onnxscript", "onnx") from None
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
    config, tokenizer, *_ = checkpoint.load_settings(folder)
    return searching(OnnxModel.load(folder), tokenizer, most_positions(config.model))


def graphs(loaded: Loaded) -> tuple[nn.Module, nn.Module]:
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
        options.intra_op_num_threads = torch.get_num_threads()
        return cls(
            *(
                onnxruntime.InferenceSession(folder / name, options, providers=["CPUExecutionProvider"])
                for name in (ENCODER, DECODER)
            )
        )

    def begin(self, src_BS: Tensor, src_mask_BS: Tensor) -> OnnxState:
        """Read the source and return the state in which a search begins."""
        (memory,) = _run(self.encoder, source=src_BS, source_mask=src_mask_BS)
        layers, two, _, heads, _, width = memory.shape
        return OnnxState(memory.new_zeros(layers, two, 0, heads, 0, width), memory, src_mask_BS)

    def next_log_probs(self, tokens_R: Tensor, state: OnnxState) -> Tensor:
        """Read one more token per row and return the log-probabilities of the next, [R, V]."""
        state.spread(len(tokens_R))
        logits_RV, state.past = _run(
            self.decoder, tokens=tokens_R, past=state.past, memory=state.memory, source_mask=state.mask_RS
        )
        return logits_RV.log_softmax(-1)


class OnnxState:
    """What the decoder's graph is given at every step, a row for each of the search's."""

    seen_RTS: Tensor | None = None

    def __init__(self, past: Tensor, memory: Tensor, mask_RS: Tensor) -> None:
        self.past, self.memory, self.mask_RS = past, memory, mask_RS

    def spread(self, rows: int) -> None:
        """Make as many rows of every sentence as the search has; the first step tells how many."""
        if self.past.shape[2] != rows:
            times = rows // len(self.mask_RS)
            self.memory = self.memory.repeat_interleave(times, 2)
            self.mask_RS = self.mask_RS.repeat_interleave(times, 0)
            self.past = self.past.new_zeros(*self.past.shape[:2], rows, *self.past.shape[3:])

    def watch(self) -> None:
        """Raise a UsageError: the graphs do not tell where they look in the source."""
        raise UsageError("an ONNX model does not tell where it looks in the source", "search without coverage")

    def select(self, rows_R: Tensor, sentences_B: Tensor | None = None) -> None:
        """Keep `rows_R` of the present rows in that order.

        Where there are as many as before and no `sentences_B`, each stands for the same sentence as before.
        """
        same = sentences_B is None and len(rows_R) == self.past.shape[2]
        self.past = self.past[:, :, rows_R]
        if not same:
            self.memory, self.mask_RS = self.memory[:, :, rows_R], self.mask_RS[rows_R]


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError:
        raise missing("ONNX Runtime", "onnx") from None
    return onnxruntime


def _run(session: Any, **inputs: Tensor) -> list[Tensor]:
    arrays = {name: tensor.contiguous().numpy() for name, tensor in inputs.items()}
    return [torch.from_numpy(array) for array in session.run(None, arrays)]


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


class _Past(TargetCache):
    """The decoder's memory for one step of a graph: joins what the other writes in place."""

    def __init__(self, past: Tensor) -> None:
        super().__init__(len(past), Memory())
        self.past, self.length = past, past.shape[4]
        self.present: list[Tensor] = []

    def append(self, layer: int, kv_RT2HK: Tensor) -> Tensor:
        """Put the keys and values of a new position behind the others and return all of this layer, [T, 2, R, H, K]."""
        present_2RHTK = torch.cat((self.past[layer], kv_RT2HK.permute(2, 0, 3, 1, 4)), 3)
        self.present.append(present_2RHTK)
        return present_2RHTK.permute(3, 0, 1, 2, 4)


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
