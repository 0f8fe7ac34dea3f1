"""Hugging Face Transformers: a folder for `AutoModelForSeq2SeqLM` and `AutoTokenizer`.

A post-norm model is written as MarianMT, and a pre-norm one as Pegasus, which is the same network but for the place of
the norms; the tokenizer is Marian's in both cases. They put all sines of a position before all cosines, where nmt takes
turns. The order of the D features between layers is arbitrary, so they are sorted that way in every weight that reads
or writes them, and the model stays exactly the same function.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.data.tokenizer import BOS, EOS, PAD, UNK
from nmt.export.common import Engine, in_batches, missing, most_tokens, positions, transformer
from nmt.model.attention import CrossAttention, SelfAttention
from nmt.model.transformer import DecoderLayer, EncoderLayer, Transformer
from nmt.runs.discovery import LoadedModel

Weights = dict[str, Tensor]


def export(loaded: LoadedModel, folder: Path) -> None:
    """Write model and tokenizer into `folder`, which stands, in float32.

    `generate` searches greedily unless it is told otherwise. Text is normalized by `nmt.text.normalize` before.

    Raises:
        UsageError: Transformers is not installed, or has no such model.
    """
    own_model = transformer(loaded, "Hugging Face")
    transformers = _transformers()
    post = loaded.config.model.norm_position == "post"
    kind, network = (
        (transformers.MarianConfig, transformers.MarianMTModel)
        if post
        else (transformers.PegasusConfig, transformers.PegasusForConditionalGeneration)
    )
    with _quiet(transformers):
        model = network(kind(**_config(loaded)))
        own = {name: t for name, t in model.state_dict().items() if "embed_positions" in name or "logits_bias" in name}
        model.load_state_dict(own | _named(own_model, model.state_dict().keys()))
        model.generation_config = transformers.GenerationConfig(**_generation(loaded))
        model.save_pretrained(folder)
        _save_tokenizer(loaded, folder, transformers)


def engine(folder: Path) -> Engine:
    """Return a translator of what `export` wrote.

    Raises:
        UsageError: Transformers is not installed.
    """
    transformers = _transformers()
    with _quiet(transformers):
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model.eval()

    @torch.inference_mode()
    def translate(batch: list[str]) -> list[str]:
        inputs = tokenizer(batch, return_tensors="pt", padding=True)
        most = [most_tokens(int(tokens) - 1) for tokens in inputs["attention_mask"].sum(1)]
        found = model.generate(**inputs, do_sample=False, num_beams=1, max_length=max(most) + 2)
        cut = [ids[1 : 1 + own] for ids, own in zip(found.tolist(), most, strict=True)]
        texts: list[str] = tokenizer.batch_decode(cut, skip_special_tokens=True)
        return texts

    return lambda sentences: in_batches(sentences, translate)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError:
        raise missing("Transformers", "transformers") from None
    return transformers


def _config(loaded: LoadedModel) -> dict[str, Any]:
    """Return what describes the network there."""
    config, pieces = loaded.config.model, len(loaded.tokenizer)
    sizes = {
        "vocab_size": pieces,
        "d_model": config.dim,
        "max_position_embeddings": positions(loaded),
        "scale_embedding": True,
        "activation_function": "relu",
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "tie_word_embeddings": config.tie_embeddings,
    }
    for side, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        sizes |= {f"{side}_layers": layers, f"{side}_ffn_dim": config.ffn_dim, f"{side}_attention_heads": config.heads}
    if config.norm_position == "post":
        sizes |= {"share_encoder_decoder_embeddings": config.tie_embeddings, "decoder_vocab_size": pieces}
    return sizes | _ids()


def _ids() -> dict[str, Any]:
    return {
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "decoder_start_token_id": BOS,
        "forced_eos_token_id": None,
    }


def _generation(loaded: LoadedModel) -> dict[str, Any]:
    return _ids() | {"num_beams": 1, "do_sample": False, "max_length": most_tokens(loaded.max_source) + 2}


def _save_tokenizer(loaded: LoadedModel, folder: Path, transformers: Any) -> None:
    """Write the tokenizer: the SentencePiece model for both sides, and the ids of its pieces."""
    tokenizer = loaded.tokenizer
    files = {name: folder / name for name in ("source.spm", "target.spm", "vocab.json")}
    for name in ("source.spm", "target.spm"):
        files[name].write_bytes(tokenizer.model)
    pieces = tokenizer.ids_to_pieces(range(len(tokenizer)))
    ids = {piece: i for i, piece in enumerate(pieces)}
    files["vocab.json"].write_text(json.dumps(ids, ensure_ascii=False, indent=0), encoding="utf-8")
    transformers.MarianTokenizer(
        *map(str, files.values()),
        source_lang=loaded.config.data.src,
        target_lang=loaded.config.data.tgt,
        pad_token=pieces[PAD],
        unk_token=pieces[UNK],
        bos_token=pieces[BOS],
        eos_token=pieces[EOS],
        model_max_length=loaded.max_source + 1,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,  # "</s>" in a text is text
    ).save_pretrained(folder)


def _named(model: Transformer, wanted: Iterable[str]) -> Weights:
    """Return the weights under the names that they have there, features reordered."""
    order_D = torch.arange(model.config.dim).view(-1, 2).t().flatten()  # 0 2 4 ... 1 3 5 ...
    named = {
        "model.encoder.embed_tokens.weight": model.table("source")[:, order_D],
        "model.decoder.embed_tokens.weight": model.table("target")[:, order_D],
        "lm_head.weight": model.table("output")[:, order_D],
    }
    if "model.shared.weight" in set(wanted):
        named["model.shared.weight"] = named["model.encoder.embed_tokens.weight"]
    stacks: dict[str, Sequence[EncoderLayer | DecoderLayer]] = {
        "encoder": model.encoder_layers,
        "decoder": model.decoder_layers,
    }
    for side, layers in stacks.items():
        for number, layer in enumerate(layers):
            found = _layer(layer, order_D)
            named |= {f"model.{side}.layers.{number}.{name}": tensor for name, tensor in found.items()}
    if model.config.norm_position == "pre":
        named |= _under("model.encoder.layer_norm", _norm(model.encoder_norm, order_D))
        named |= _under("model.decoder.layer_norm", _norm(model.decoder_norm, order_D))
    return named


def _layer(layer: EncoderLayer | DecoderLayer, order_D: Tensor) -> Weights:
    found = _under("self_attn", _attention(layer.attention, order_D))
    found |= _under("self_attn_layer_norm", _norm(layer.attention_residual.norm, order_D))
    if isinstance(layer, DecoderLayer):
        found |= _under("encoder_attn", _attention(layer.cross, order_D))
        found |= _under("encoder_attn_layer_norm", _norm(layer.cross_attention_residual.norm, order_D))
    up, down = layer.feed_forward.up, layer.feed_forward.down
    found |= _under("fc1", {"weight": up.weight[:, order_D], "bias": up.bias})
    found |= _under("fc2", {"weight": down.weight[order_D], "bias": down.bias[order_D]})
    found |= _under("final_layer_norm", _norm(layer.ffn_residual.norm, order_D))
    return found


def _attention(attention: SelfAttention | CrossAttention, order_D: Tensor) -> Weights:
    """Queries, keys and values read the features; only the output writes them."""
    stacked = [attention.qkv] if isinstance(attention, SelfAttention) else [attention.q, attention.kv]
    weights = torch.cat([linear.weight for linear in stacked])[:, order_D].chunk(3)
    biases = torch.cat([linear.bias for linear in stacked]).chunk(3)
    found: Weights = {}
    for name, weight, bias in zip(("q_proj", "k_proj", "v_proj"), weights, biases, strict=True):
        found |= _under(name, {"weight": weight, "bias": bias})
    out = attention.out
    return found | _under("out_proj", {"weight": out.weight[order_D], "bias": out.bias[order_D]})


def _norm(norm: nn.Module, order_D: Tensor) -> Weights:
    return {name: tensor[order_D] for name, tensor in norm.named_parameters()}


def _under(prefix: str, weights: Weights) -> Weights:
    return {f"{prefix}.{name}": tensor for name, tensor in weights.items()}


@contextlib.contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep progress bars and recommendations from stderr."""
    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
