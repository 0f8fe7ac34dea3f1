"""Export as a translation model of Firefox: a binary Marian model with int8 weights, and the
multipliers by which its activations are rounded to 8 bits.

The multiplier of a matrix's input is 127 divided by the largest magnitude that a calibration saw:
the mean of the largest magnitudes of sentences plus 1.1 standard deviations, as in Mozilla's
training pipeline. Larger magnitudes are clipped.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import Tensor, nn

from nmt.core.console import log
from nmt.core.errors import UsageError
from nmt.core.packages import require_package
from nmt.data.batching import collate
from nmt.engines import Source, native
from nmt.engines.native import NativeModel
from nmt.engines.pytorch import TorchModel
from nmt.export.common import Translate, greedy_translator, require_transformer
from nmt.export.sentences import default_sentences, file_sentences
from nmt.model.transformer import Transformer
from nmt.models import importers, marian_binary
from nmt.models.importers.common import MASKED
from nmt.models.importers.firefox import SHORTLISTS, name_pair
from nmt.models.marian_binary import OPTIONS, Item, Quantized
from nmt.models.marian_layout import (
    EMBEDDINGS,
    MAX_PAIR,
    MULTIPLIER,
    OUTPUT_BIAS,
    OUTPUT_MULTIPLIER,
    Matrix,
    matrices,
    norms,
)
from nmt.runs.model_files import LoadedModel
from nmt.search.shortlist import Shortlist
from nmt.text.separate_tokenizer import SeparateTokenizer
from nmt.text.tokenizer import BOS, PAD, Tokenizer, load_processor

MULTIPLE = 64
"""The widths of matrices are multiples of this number, and of 8 the vocabulary, in the integer
products of Firefox."""
NUM_DEVIATIONS = 1.1
_BYTE_PIECE = re.compile("<0x[0-9A-F]{2}>")
_BYTE_PIECES = re.compile(f"(?:{_BYTE_PIECE.pattern})+")
SUPPORTED: dict[str, Collection[object]] = {
    "decoder": ("ssru",),
    "norm_epsilon": (1e-6,),
    "position_encoding": ("sinusoidal_marian",),
    "target_bos": (False,),
}


def export(loaded: LoadedModel, directory: Path, *, calibrate_with: str = "") -> None:
    """Write model and vocabulary into an existing directory, with the names of Firefox.

    Args:
        loaded: the model.
        directory: the directory.
        calibrate_with: file of source sentences; empty: lines of the test or validation set.

    Raises:
        UsageError: a package is not installed, or the model is not supported.
        DataError: the file cannot be read, or is empty.
    """
    model = require_transformer(loaded, "Firefox", SUPPORTED)
    vocabulary = _Vocabulary.of(loaded.tokenizer)
    _check(loaded, vocabulary)
    require_package("fxtranslate", "fxtranslate")  # used by the verification
    if calibrate_with:
        name, sentences = file_sentences(Path(calibrate_with), loaded)
    else:
        name, sentences = default_sentences(loaded)
    log(f"calibrating with {len(sentences)} sentences of {name}")
    multipliers = calibrate(model, loaded.tokenizer, sentences)
    pair = name_pair(loaded.config.data.src, loaded.config.data.tgt)
    content = marian_binary.write(_items(model, multipliers, vocabulary.ids_F))
    (directory / f"model.{pair}.intgemm.alphas.bin").write_bytes(content)
    (directory / f"vocab.{pair}.spm").write_bytes(vocabulary.model)
    shortlist = Shortlist.find(loaded.run, loaded.tokenizer)
    if shortlist:
        shortlist = shortlist.with_ids(vocabulary.ids_F, vocabulary.ids_F)
        name = f"lex.{shortlist.num_frequent}.{shortlist.max_translations}.{pair}.s2t.bin"
        (directory / name).write_bytes(shortlist.write())


@dataclass(frozen=True)
class _Vocabulary:
    """The vocabulary of an export."""

    model: bytes
    """The SentencePiece model of both languages."""
    ids_F: NDArray[np.int64]
    """The id in nmt of each of its pieces."""

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> _Vocabulary:
        """Return the vocabulary of a tokenizer, which may be imported."""
        if not isinstance(tokenizer, SeparateTokenizer):
            return cls(tokenizer.model, np.arange(len(tokenizer)))
        if tokenizer.source != tokenizer.target:
            raise UsageError(
                "exports for Firefox have one vocabulary for both languages",
                "train a model with --config firefox",
            )
        return cls(tokenizer.source, np.array(tokenizer.ids_of_model()))


def _check(loaded: LoadedModel, vocabulary: _Vocabulary) -> None:
    """Raise a UsageError for options that every other export supports."""
    config = loaded.config.model
    model_type = Tokenizer(vocabulary.model).model_type
    required = {"norm_position": "post", "tie_embeddings": True, "layer_sharing": 1}
    for name, value in required.items():
        if getattr(config, name) != value:
            raise UsageError(
                f"Firefox does not support model.{name}={getattr(config, name)}",
                "train a model with --config firefox",
            )
    if model_type != "unigram":
        raise UsageError(
            f"Firefox does not support a tokenizer of type {model_type}",
            "train a model with --set tokenizer.model_type=unigram",
        )
    sizes = {"model.dim": config.dim, "model.ffn_dim": config.ffn_dim}
    for name, size in sizes.items():
        if size % MULTIPLE:
            raise UsageError(f"{name} ({size}) must be a multiple of {MULTIPLE} for Firefox")
    vocab_size = len(vocabulary.ids_F)
    if vocab_size % 8:
        raise UsageError(f"the vocabulary size ({vocab_size}) must be a multiple of 8 for Firefox")
    options = {
        "lowercase_all_caps": loaded.config.lowercase_all_caps,
        "data.placeholders": loaded.config.data.placeholders,
    }
    for name, is_set in options.items():
        if is_set:
            log(f"warning: {name} of the model has no effect in Firefox")


@torch.inference_mode()
def calibrate(
    model: Transformer, tokenizer: Tokenizer, sentences: Sequence[str]
) -> dict[str, float]:
    """Return the multipliers of the inputs of all matrices by name, and of the output layer by that
    of its embeddings.

    The model reads each sentence and its own greedy translation.
    """
    magnitudes: dict[str, list[float]] = defaultdict(list)

    def record(name: str, _: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        magnitudes[name].append(inputs[0].abs().max().item())

    translate = greedy_translator(TorchModel([model]), tokenizer)
    translations = translate(list(sentences))
    with ExitStack() as stack:
        for matrix in matrices(model.config):
            module = model.get_submodule(matrix.name)
            hook = module.register_forward_pre_hook(partial(record, matrix.name))
            stack.callback(hook.remove)
        for sentence, translation in zip(sentences, translations, strict=True):
            logits = _logits(model, tokenizer, sentence, translation)
            magnitudes[EMBEDDINGS].append(logits.abs().max().item())
    return {name: _multiplier(each) for name, each in magnitudes.items()}


def _logits(model: Transformer, tokenizer: Tokenizer, sentence: str, translation: str) -> Tensor:
    source = tokenizer.encode(sentence)
    target = tokenizer.encode(translation, target=True)
    batch = collate([(source, target)])
    inputs = (batch.src_BS, batch.src_mask_BS, batch.tgt_in_BT, batch.target_index_N)
    logits: Tensor = model(*inputs)
    return logits


def _multiplier(magnitudes: Sequence[float]) -> float:
    """Return the multiplier of inputs, given the largest magnitude of each sentence."""
    bound = np.mean(magnitudes) + NUM_DEVIATIONS * np.std(magnitudes)
    return 127 / max(float(bound), 1e-6)


def _quantize(weight_OI: NDArray[np.float32]) -> Quantized:
    """Round a matrix to 8 bits, so that all processors compute the same sums; see `MAX_PAIR`."""
    pairs_OJ2 = weight_OI.reshape(len(weight_OI), -1, 2)
    positive_OJ = pairs_OJ2.clip(min=0).sum(-1)
    negative_OJ = pairs_OJ2.clip(max=0).sum(-1)
    largest = max(float(positive_OJ.max()), -float(negative_OJ.min()), 1e-6)
    return Quantized.of(weight_OI, max_multiplier=MAX_PAIR / largest)


def _items(
    model: Transformer, multipliers: Mapping[str, float], ids_F: NDArray[np.int64]
) -> dict[str, Item]:
    """Return the parameters, multipliers and options as items of a binary model, whose vocabulary
    has these ids."""
    weights = {name: tensor.float().numpy() for name, tensor in model.state_dict().items()}
    items: dict[str, Item] = {}
    for matrix in matrices(model.config):
        items |= _matrix_items(matrix, weights, multipliers[matrix.name])
    for name, marian_name in norms(model.config):
        items[f"{marian_name}_scale"] = weights[f"{name}.weight"][None]
        items[f"{marian_name}_bias"] = weights[f"{name}.bias"][None]
    embeddings_VD = weights["embeddings.shared"]
    items[EMBEDDINGS] = _quantize(embeddings_VD[ids_F])
    items[OUTPUT_MULTIPLIER] = _scalar(multipliers[EMBEDDINGS])
    bias_V = weights.get("output_bias_V", np.zeros(len(embeddings_VD), np.float32)).copy()
    bias_V[[PAD, BOS]] = MASKED
    items[OUTPUT_BIAS] = bias_V[ids_F][None]
    items[OPTIONS] = _options(model, len(ids_F))
    return items


def _matrix_items(
    matrix: Matrix, weights: Mapping[str, NDArray[np.float32]], multiplier: float
) -> dict[str, Item]:
    """Return the parts of a matrix, each with the multiplier of the input, and of its bias."""
    items: dict[str, Item] = {}
    parts_OI = np.split(weights[f"{matrix.name}.weight"], len(matrix.weights))
    for name, weight_OI in zip(matrix.weights, parts_OI, strict=True):
        items[name] = _quantize(weight_OI)
        items[f"{name}{MULTIPLIER}"] = _scalar(multiplier)
    if matrix.biases:
        biases = np.split(weights[f"{matrix.name}.bias"], len(matrix.biases))
        for name, bias_O in zip(matrix.biases, biases, strict=True):
            items[name] = bias_O[None]
    return items


def _scalar(value: float) -> Any:
    return np.full((1, 1), value, np.float32)


def _options(model: Transformer, vocab_size: int) -> bytes:
    """Return the options of the model as Marian states them."""
    config = model.config
    options = {
        "type": "transformer",
        "dim-emb": config.dim,
        "dim-vocabs": [vocab_size, vocab_size],
        "enc-depth": config.encoder_layers,
        "dec-depth": config.decoder_layers,
        "transformer-heads": config.heads,
        "transformer-dim-ffn": config.ffn_dim,
        "transformer-ffn-depth": 2,
        "transformer-ffn-activation": "relu",
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "transformer-decoder-autoreg": "rnn",
        "transformer-train-position-embeddings": False,
        "dec-cell": "ssru",
        "dec-cell-base-depth": 2,
        "dec-cell-high-depth": 1,
        "tied-embeddings-all": True,
        "input-types": [],
        "version": "v1.9.0",
    }
    return yaml.safe_dump(options, sort_keys=False).encode() + b"\0"


def reference(directory: Path) -> Translate:
    """Return a function that translates with nmt and the same integers as Firefox.

    Raises:
        UsageError: the native engine is not available.
    """
    if not native.is_available():
        raise UsageError(
            f"an export for Firefox needs the native engine: {native.unavailable_reason()}",
            "install a C compiler",
        )
    model = importers.read(directory)
    weights = {name: tensor.numpy() for name, tensor in model.weights.items()}
    engine = NativeModel(model.config.model, weights, "int8", model.multipliers)
    return greedy_translator(
        engine, model.tokenizer, shortlist=model.shortlist, output_limit=_output_limit
    )


def _output_limit(source: Source) -> int:
    """Return the maximum number of tokens of a translation in Firefox."""
    return min(2 * (len(source.ids) + 1) + 4, 256)


def load(directory: Path) -> Translate:
    """Return a function that translates with Firefox's engine, fxtranslate.

    Raises:
        UsageError: fxtranslate is not installed.
    """
    fxtranslate = require_package("fxtranslate", "fxtranslate")
    (model,) = directory.glob("model.*.bin")
    files = [*directory.glob("vocab.*.spm")] * 2
    if not files:
        files = [*directory.glob("srcvocab.*.spm"), *directory.glob("trgvocab.*.spm")]
    files += directory.glob(SHORTLISTS)
    contents = [file.read_bytes() for file in files]
    translator = fxtranslate.Translator(model.read_bytes(), *contents)
    processor = load_processor(contents[1])

    def decode(match: re.Match[str]) -> str:
        # fxtranslate returns the names of byte pieces. Marian, as Firefox has it, decodes them.
        text: str = processor.decode_pieces(_BYTE_PIECE.findall(match[0]))
        return text

    def translate(sentences: Sequence[str]) -> list[str]:
        outputs = map(translator.translate, sentences)
        return [_BYTE_PIECES.sub(decode, output) for output in outputs]

    return translate
