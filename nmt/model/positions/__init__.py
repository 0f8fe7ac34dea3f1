"""Positional encodings: how a model that reads all tokens at once is told their order.

Each is a class with the hooks it needs (see `base.Positions`); a new one is a class in `absolute.py` or `relative.py`
and a line here. Its options are keyword-only arguments.
"""

from __future__ import annotations

from nmt.model.positions.absolute import ConcatenatedSinusoidal, Floater, Learned, Sinusoidal
from nmt.model.positions.base import Place, Positions, Stack, Table
from nmt.model.positions.relative import T5, ALiBi, DeBERTa, Rotary, Shaw, XLNet

POSITIONS: dict[str, type[Positions]] = {
    "sinusoidal": Sinusoidal,
    "sinusoidal_concatenated": ConcatenatedSinusoidal,
    "learned": Learned,
    "floater": Floater,
    "rotary": Rotary,
    "shaw": Shaw,
    "xlnet": XLNet,
    "t5": T5,
    "deberta": DeBERTa,
    "alibi": ALiBi,
    "none": Positions,
}

__all__ = ["POSITIONS", "Place", "Positions", "Stack", "Table"]
