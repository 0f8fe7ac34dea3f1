"""Export to ONNX, for ONNX Runtime and many other programs, programming languages and devices.

The export has two graphs and the tokenizer. Shape suffixes: B sentences, S source tokens, R rows
(B, or B times beams), T target tokens so far, L decoder layers, G heads of keys and values, K head
dimension, V vocabulary.

    encoder.onnx   source [B, S] (int64, each ending on </s>), source_mask [B, S] (bool) -> cross_kv
    [L, 2, B, G, S, K] decoder.onnx   tokens [R] (int64), past [L, 2, R, G, T, K], cross_kv [L, 2,
    R, G, S, K], source_mask [R, S]
                   -> logits [R, V], present [L, 2, R, G, T+1, K]

`cross_kv` are the projected keys and values of the source. `past` are those of the target: empty (T
= 0) in the first step, in which every token is <s>, then `present` of the previous step. A search
with several rows per sentence repeats cross_kv and mask. If model.source_eos is false, the source
has no </s>.
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
from torch import Tensor, nn

from nmt.core.errors import UsageError
from nmt.core.packages import require_package
from nmt.core.runtime import num_threads
from nmt.data.batching import pad_rows, token_mask
from nmt.engines import Sentences
from nmt.export.common import (
    Translate,
    copy_run_files,
    greedy_translator,
    num_positions,
    require_transformer,
)
from nmt.model.build import max_positions
from nmt.model.cache import KVCache
from nmt.model.positions.absolute import Floater
from nmt.model.positions.base import GrowingTable, Position, PositionEncoding
from nmt.model.transformer import DecoderState, Transformer
from nmt.runs.model_files import LoadedModel, load_settings
from nmt.search.request import Bools, Floats, Ints, StepRequest, StepResult, best_tokens

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"


def export(loaded: LoadedModel, directory: Path) -> None:
    """Write the graphs in float32 and the files of the run into an existing directory.

    Raises:
        UsageError: a package is not installed, or the model is not supported.
    """
    encoder, decoder = graphs(loaded)
    require_package("onnxscript", "onnxscript")  # used by PyTorch's exporter
    require_package("ONNX Runtime", "onnxruntime")  # used by the verification
    copy_run_files(loaded, directory)
    # All sizes are distinct, so that the exporter can tell the dynamic dimensions apart.
    source_BS, mask_BS = torch.zeros(3, 7, dtype=torch.long), torch.ones(3, 7, dtype=torch.bool)
    config = loaded.config.model
    heads, head_dim = config.kv_heads or config.heads, config.dim // config.heads
    past = torch.zeros(config.decoder_layers, 2, 3, heads, 5, head_dim)
    cross_kv = torch.zeros(config.decoder_layers, 2, 3, heads, 7, head_dim)
    with _quiet():
        torch.onnx.export(
            encoder,
            (source_BS, mask_BS),
            directory / ENCODER,
            input_names=["source", "source_mask"],
            output_names=["cross_kv"],
            dynamic_shapes=({0: "B", 1: "S"}, {0: "B", 1: "S"}),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        torch.onnx.export(
            decoder,
            (source_BS[:, 0], past, cross_kv, mask_BS),
            directory / DECODER,
            input_names=["tokens", "past", "cross_kv", "source_mask"],
            output_names=["logits", "present"],
            dynamic_shapes=({0: "R"}, {2: "R", 4: "T"}, {2: "R", 4: "S"}, {0: "R", 1: "S"}),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def load(directory: Path) -> Translate:
    """Return a function that translates with a directory written by `export`: greedy search of nmt
    with ONNX Runtime.

    Raises:
        UsageError: ONNX Runtime is not installed.
    """
    config, tokenizer, *_ = load_settings(directory)
    model = OnnxModel.load(directory)
    return greedy_translator(
        model, tokenizer, max_positions(config.model), source_eos=config.model.source_eos
    )


def graphs(loaded: LoadedModel) -> tuple[nn.Module, nn.Module]:
    """Return encoder and decoder as modules whose inputs and outputs are tensors.

    Raises:
        UsageError: the model is not supported.
    """
    options = ("norm", "activation", "position_encoding", "attention_score", "kv_heads")
    supported: dict[str, tuple[str, ...]] = dict.fromkeys((*options, "source_eos"), ())
    model = copy.deepcopy(require_transformer(loaded, "ONNX", supported)).requires_grad_(False)
    for name in ("source_positions", "target_positions"):
        if isinstance(getattr(model, name), Floater):
            setattr(model, name, _FixedPath(getattr(model, name), num_positions(loaded)))
    for module in model.modules():
        encodings = getattr(module, "encodings", None)
        if isinstance(encodings, GrowingTable):
            vars(module)["encodings"] = _FixedTable(encodings.compute, num_positions(loaded))
    return _Encoder(model).eval(), _Decoder(model).eval()


class OnnxModel:
    """The two graphs as a model for the searches of nmt."""

    def __init__(self, encoder: Any, decoder: Any) -> None:
        """Wrap two ONNX Runtime sessions."""
        self.encoder, self.decoder = encoder, decoder

    @classmethod
    def load(cls, directory: Path) -> OnnxModel:
        """Load graphs written by `export`.

        Raises:
            UsageError: ONNX Runtime is not installed.
        """
        onnxruntime = require_package("ONNX Runtime", "onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = num_threads()
        return cls(
            *(
                onnxruntime.InferenceSession(
                    directory / name, options, providers=["CPUExecutionProvider"]
                )
                for name in (ENCODER, DECODER)
            )
        )

    def init_search_state(
        self,
        sources: Sentences,
        *,
        track_attention: bool = False,
        candidates: Sequence[Ints] = (),
    ) -> OnnxState:
        """Encode source sentences and return the initial state of a search.

        Raises:
            UsageError: `track_attention` is set, but the graphs do not return attention; or
                `candidates`, but they compute the whole output layer.
        """
        if candidates:
            raise UsageError(
                "ONNX models have no shortlist", 'use a search such as "greedy(shortlist=False)"'
            )
        if track_attention:
            raise UsageError(
                "ONNX models do not return attention", "remove coverage_penalty from --search"
            )
        source_BS, mask_BS = pad_rows(sources).numpy(), token_mask(map(len, sources)).numpy()
        (cross_kv,) = self.encoder.run(None, {"source": source_BS, "source_mask": mask_BS})
        return OnnxState(self.decoder, cross_kv, mask_BS)


class OnnxState:
    """The inputs of the decoder graph, with one row per partial hypothesis; see
    `nmt.search.request.State`."""

    attention_RS: Floats | None = None

    def __init__(self, decoder: Any, cross_kv: Floats, mask_BS: Bools) -> None:
        self.decoder, self.cross_kv, self.mask_RS = decoder, cross_kv, mask_BS
        layers, two, sentences, heads, _, head_dim = cross_kv.shape
        self.past = np.zeros((layers, two, sentences, heads, 0, head_dim), np.float32)

    def step(self, request: StepRequest) -> StepResult:
        """Read one more token per row."""
        parents_R = request.parents_R
        if not np.array_equal(parents_R, np.arange(len(self.mask_RS))):
            self.cross_kv, self.mask_RS = self.cross_kv[:, :, parents_R], self.mask_RS[parents_R]
            self.past = self.past[:, :, parents_R]
        inputs = {
            "tokens": np.asarray(request.tokens_R, np.int64),
            "past": self.past,
            "cross_kv": self.cross_kv,
            "source_mask": self.mask_RS,
        }
        logits_RV, self.past = self.decoder.run(None, inputs)
        return best_tokens(torch.from_numpy(logits_RV).log_softmax(1).numpy(), request)


class _FixedTable(GrowingTable):
    """A table of fixed length, because a graph cannot recompute it."""

    def rows(self, start: Position, count: int, like: Tensor) -> Tensor:
        """Return rows start .. start+count-1."""
        return self.table[start + torch.arange(count)]


class _FixedPath(PositionEncoding):
    """The precomputed path of FLOATER, because a graph cannot contain the solver."""

    def __init__(self, floater: Floater, length: int) -> None:
        super().__init__(floater.stack)
        self.path_TLD = floater.path(length).detach()

    def add_positions(self, x_BTD: Tensor, layer: int, start: Position) -> Tensor:
        """Add the encodings of positions start .. start+T-1 in this layer."""
        return x_BTD + self.path_TLD[start + torch.arange(x_BTD.shape[1]), layer]


class _PastKeyValues(KVCache):
    """The KV cache for one step of a graph; it concatenates, because graphs cannot write in
    place."""

    def __init__(self, past: Tensor) -> None:
        super().__init__()
        self.past, self.length = past, past.shape[4]
        self.present: list[Tensor] = []

    def append(self, layer: int, kv_RT2GK: Tensor) -> Tensor:
        """Append keys and values of a new position and return all of this layer, [T, 2, R, G,
        K]."""
        present_2RGTK = torch.cat((self.past[layer], kv_RT2GK.permute(2, 0, 3, 1, 4)), 3)
        self.present.append(present_2RGTK)
        return present_2RGTK.permute(3, 0, 1, 2, 4)


class _Encoder(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, source_mask: Tensor) -> Tensor:
        state = self.model.encode_and_init_state(source, source_mask)
        return torch.stack([torch.stack(keys_values) for keys_values in state.cross_kv])


class _Decoder(nn.Module):
    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, past: Tensor, cross_kv: Tensor, source_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        cache = _PastKeyValues(past)
        state = DecoderState(
            [(kv[0], kv[1]) for kv in cross_kv.unbind()], source_mask[:, None, None, :], cache
        )
        return self.model.next_logits(tokens, state), torch.stack(cache.present)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the messages of the exporter, which are meant for developers."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
