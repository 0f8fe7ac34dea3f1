"""Position encodings, which tell a model the order of its tokens.

Each is a subclass of `PositionEncoding` that overrides the hooks it needs. To add one, write a
class in `absolute.py` or `relative.py` and register it here. Its options are keyword-only
arguments. If its hooks need a number as `start`, `supports_graphs` is False.
"""

from __future__ import annotations

from nmt.core.plugins import Components
from nmt.model.positions.absolute import (
    ConcatenatedSinusoidal,
    Floater,
    Learned,
    MarianSinusoidal,
    Sinusoidal,
)
from nmt.model.positions.base import (
    EncodingTable,
    Position,
    PositionEncoding,
    PositionInput,
    StackSpec,
    distances,
)
from nmt.model.positions.relative import T5, ALiBi, DeBERTa, Rotary, Shaw, TransformerXL

POSITION_ENCODINGS: Components[type[PositionEncoding]] = Components(
    "position encoding",
    {
        "sinusoidal": Sinusoidal,
        "sinusoidal_concatenated": ConcatenatedSinusoidal,
        "sinusoidal_marian": MarianSinusoidal,
        "learned": Learned,
        "floater": Floater,
        "rotary": Rotary,
        "shaw": Shaw,
        "transformer_xl": TransformerXL,
        "t5": T5,
        "deberta": DeBERTa,
        "alibi": ALiBi,
        "none": PositionEncoding,
    },
    is_valid=lambda encoding: isinstance(encoding, PositionEncoding),
)

__all__ = [
    "POSITION_ENCODINGS",
    "EncodingTable",
    "Position",
    "PositionEncoding",
    "PositionInput",
    "StackSpec",
    "distances",
]
