"""Export to Eole, and translation with Eole, for `bench_translate.py`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # not installed in the environments of other engines
    from torch import Tensor

    from nmt.runs.discovery import LoadedModel

SPECIALS = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


def export(loaded: LoadedModel, directory: Path) -> None:
    """Write a pre-norm model with tied embeddings and sinusoidal positions to an existing directory."""
    from safetensors.torch import save_file

    model, config = loaded.model.state_dict(), loaded.config.model
    if config.position_encoding != "sinusoidal":
        raise SystemExit(f"the export to Eole needs sinusoidal positions, not {config.position_encoding}")
    tensors = {"src_emb.embeddings.weight": model["embeddings.shared"]}
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        tensors |= _renamed(model, f"{stack}_norm", f"{stack}.layer_norm")
        for number in range(layers):
            tensors |= _layer(model, f"{stack}.{number}", f"{stack}.transformer_layers.{number}", stack == "decoder")
    pieces = loaded.tokenizer.ids_to_pieces(range(len(loaded.tokenizer)))
    vocabulary = {"src": pieces, "tgt": pieces, "decoder_start_token": SPECIALS["bos_token"], "specials": SPECIALS}
    (directory / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, directory / "model.00.safetensors")
    shape: dict[str, Any] = {"heads": config.heads, "transformer_ff": config.ffn_dim, "hidden_size": config.dim}
    shape |= {"position_encoding_type": "SinusoidalInterleaved", "add_qkvbias": True, "add_ffnbias": True}
    settings = {
        **SPECIALS,
        "share_vocab": True,
        "src_vocab": str(directory / "vocab.json"),
        "decoder_start_token": SPECIALS["bos_token"],
        "training": {"compute_dtype": "torch.float32"},
        "data": None,
        "model": {
            **shape,
            "architecture": "transformer",
            "layers": config.decoder_layers,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "generator_bias": False,
            "word_vec_size": config.dim,
            "encoder": {**shape, "encoder_type": "transformer", "layers": config.encoder_layers},
            "decoder": {**shape, "decoder_type": "transformer", "layers": config.decoder_layers},
        },
    }
    (directory / "config.json").write_text(json.dumps(settings), encoding="utf-8")


def _layer(model: dict[str, Tensor], name: str, eole_name: str, is_decoder: bool) -> dict[str, Tensor]:
    norms = {"attention_residual": "input_layernorm", "ffn_residual": "post_attention_layernorm"}
    if is_decoder:
        norms["cross_attention_residual"] = "precontext_layernorm"
    tensors: dict[str, Tensor] = {}
    for norm, eole_norm in norms.items():
        tensors |= _renamed(model, f"{name}.{norm}.norm", f"{eole_name}.{eole_norm}")
    tensors |= _renamed(model, f"{name}.feed_forward.up", f"{eole_name}.mlp.gate_up_proj")
    tensors |= _renamed(model, f"{name}.feed_forward.down", f"{eole_name}.mlp.down_proj")
    tensors |= _renamed(model, f"{name}.self_attention.out", f"{eole_name}.self_attn.final_linear")
    for kind in ("weight", "bias"):
        parts = list(zip(("query", "keys", "values"), model[f"{name}.self_attention.qkv.{kind}"].chunk(3), strict=True))
        tensors |= {f"{eole_name}.self_attn.linear_{part}.{kind}": tensor for part, tensor in parts}
        if is_decoder:
            query, keys_values = (model[f"{name}.cross_attention.{part}.{kind}"] for part in ("q", "kv"))
            parts = list(zip(("query", "keys", "values"), (query, *keys_values.chunk(2)), strict=True))
            tensors |= {f"{eole_name}.context_attn.linear_{part}.{kind}": tensor for part, tensor in parts}
    if is_decoder:
        tensors |= _renamed(model, f"{name}.cross_attention.out", f"{eole_name}.context_attn.final_linear")
    return tensors


def _renamed(model: dict[str, Tensor], name: str, eole_name: str) -> dict[str, Tensor]:
    return {f"{eole_name}.{kind}": model[f"{name}.{kind}"] for kind in ("weight", "bias")}


def decoder(directory: Path, precision: str, max_length: int, beam_size: int) -> Callable[[list[str], int], list[str]]:
    """Return a function that translates lines of tokens in batches with beam search. Requires Eole."""
    from eole.config.run import PredictConfig
    from eole.inference_engine import InferenceEnginePY

    engine: Any = InferenceEnginePY(
        PredictConfig(
            model_path=[str(directory)],
            src="unused",
            compute_dtype=precision,
            beam_size=beam_size,
            length_penalty="wu",
            alpha=1.0,
            max_length=max_length,
            max_length_ratio=0,
            gpu_ranks=[],
            world_size=0,
        )
    )

    def translate(lines: list[str], batch_size: int) -> list[str]:
        engine.config.batch_size = batch_size
        _, _, translations = engine.infer_list([f"{line} {SPECIALS['eos_token']}" for line in lines])
        return [best[0] for best in translations]

    return translate
