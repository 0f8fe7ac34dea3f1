"""Names of the weights of a layer in CTranslate2."""

_LAYER = {
    "self_attention.qkv": "self_attention/linear_0",
    "self_attention.out": "self_attention/linear_1",
    "attention_residual.norm": "self_attention/layer_norm",
    "feed_forward.up": "ffn/linear_0",
    "feed_forward.down": "ffn/linear_1",
    "ffn_residual.norm": "ffn/layer_norm",
}
LAYER = {
    "encoder": _LAYER,
    "decoder": _LAYER
    | {
        "cross_attention.q": "attention/linear_0",
        "cross_attention.kv": "attention/linear_1",
        "cross_attention.out": "attention/linear_2",
        "cross_attention_residual.norm": "attention/layer_norm",
    },
}
"""Parts of a layer in nmt, and their names in CTranslate2."""
