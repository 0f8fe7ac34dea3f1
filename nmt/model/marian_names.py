"""Names of the weights of Marian models in Hugging Face Transformers, for the import and the
export."""

from __future__ import annotations

_SELF_ATTENTION = {
    "self_attention.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "self_attention.out": ("self_attn.out_proj",),
    "attention_residual.norm": ("self_attn_layer_norm",),
}
_FEED_FORWARD = {
    "feed_forward.up": ("fc1",),
    "feed_forward.down": ("fc2",),
    "ffn_residual.norm": ("final_layer_norm",),
}
_CROSS_ATTENTION = {
    "cross_attention.q": ("encoder_attn.q_proj",),
    "cross_attention.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.out": ("encoder_attn.out_proj",),
    "cross_attention_residual.norm": ("encoder_attn_layer_norm",),
}
LAYER = {
    "encoder": _SELF_ATTENTION | _FEED_FORWARD,
    "decoder": _SELF_ATTENTION | _CROSS_ATTENTION | _FEED_FORWARD,
}
"""Parts of a layer in nmt, and the parts in Transformers that they concatenate."""
