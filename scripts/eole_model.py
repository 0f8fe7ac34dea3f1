"""Eole as an engine of `bench_translate.py`: a run's weights in its format, and its decoder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the Pythons that have other engines need not have these
    from torch import Tensor

    from nmt.runs.discovery import LoadedModel

SPECIALS = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


def export(loaded: LoadedModel, folder: Path) -> None:
    """Write a pre-norm model with tied embeddings into `folder`, which stands."""
    from safetensors.torch import save_file

    model, config = loaded.model.state_dict(), loaded.config.model
    tensors = {"src_emb.embeddings.weight": model["embeddings.shared"]}
    for stack, layers in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        tensors |= _renamed(model, f"{stack}_norm", f"{stack}.layer_norm")
        for number in range(layers):
            tensors |= _layer(model, f"{stack}.{number}", f"{stack}.transformer_layers.{number}", stack == "decoder")
    pieces = loaded.tokenizer.ids_to_pieces(range(len(loaded.tokenizer)))
    vocabulary = {"src": pieces, "tgt": pieces, "decoder_start_token": SPECIALS["bos_token"], "specials": SPECIALS}
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "model.00.safetensors")
    shape: dict[str, Any] = {"heads": config.heads, "transformer_ff": config.ffn_dim, "hidden_size": config.dim}
    shape |= {"position_encoding_type": "SinusoidalInterleaved", "add_qkvbias": True, "add_ffnbias": True}
    described = {
        **SPECIALS,
        "share_vocab": True,
        "src_vocab": str(folder / "vocab.json"),
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
    (folder / "config.json").write_text(json.dumps(described), encoding="utf-8")


def _layer(model: dict[str, Tensor], own: str, its: str, decodes: bool) -> dict[str, Tensor]:
    norms = {"attention_residual": "input_layernorm", "ffn_residual": "post_attention_layernorm"}
    if decodes:
        norms["cross_attention_residual"] = "precontext_layernorm"
    found: dict[str, Tensor] = {}
    for name, theirs in norms.items():
        found |= _renamed(model, f"{own}.{name}.norm", f"{its}.{theirs}")
    found |= _renamed(model, f"{own}.feed_forward.up", f"{its}.mlp.gate_up_proj")
    found |= _renamed(model, f"{own}.feed_forward.down", f"{its}.mlp.down_proj")
    found |= _renamed(model, f"{own}.self_attention.out", f"{its}.self_attn.final_linear")
    for kind in ("weight", "bias"):
        parts = list(zip(("query", "keys", "values"), model[f"{own}.self_attention.qkv.{kind}"].chunk(3), strict=True))
        found |= {f"{its}.self_attn.linear_{part}.{kind}": tensor for part, tensor in parts}
        if decodes:
            both = model[f"{own}.cross_attention.kv.{kind}"].chunk(2)
            parts = list(zip(("query", "keys", "values"), (model[f"{own}.cross_attention.q.{kind}"], *both), strict=True))
            found |= {f"{its}.context_attn.linear_{part}.{kind}": tensor for part, tensor in parts}
    if decodes:
        found |= _renamed(model, f"{own}.cross_attention.out", f"{its}.context_attn.final_linear")
    return found


def _renamed(model: dict[str, Tensor], own: str, its: str) -> dict[str, Tensor]:
    return {f"{its}.{kind}": model[f"{own}.{kind}"] for kind in ("weight", "bias")}


def decoder(folder: Path, precision: str, longest: int, beam: int) -> Callable[[list[str], int], list[str]]:
    """Return what translates lines of pieces in batches of some size with beam search; runs in Eole's own Python."""
    from eole.config.run import PredictConfig
    from eole.inference_engine import InferenceEnginePY

    engine: Any = InferenceEnginePY(
        PredictConfig(
            model_path=[str(folder)],
            src="unused",
            compute_dtype=precision,
            beam_size=beam,
            length_penalty="wu",
            alpha=1.0,
            max_length=longest,
            max_length_ratio=0,
            gpu_ranks=[],
            world_size=0,
        )
    )

    def translate(lines: list[str], size: int) -> list[str]:
        engine.config.batch_size = size
        _, _, found = engine.infer_list([f"{line} {SPECIALS['eos_token']}" for line in lines])
        return [best[0] for best in found]

    return translate
