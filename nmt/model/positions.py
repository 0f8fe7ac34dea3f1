"""Positional encodings. Shape letters: B sentences, T tokens, D width.

Each encoding is a module with the hook it needs; a new one is a class here and a line in `POSITIONS`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Sinusoidal(nn.Module):
    """Sines and cosines of geometrically spaced wavelengths, interleaved (Vaswani et al. 2017, section 3.5).

    p[k, 2i] = sin(k / 10000^(2i/D)), p[k, 2i+1] = cos(k / 10000^(2i/D)). The table grows on demand, so
    positions beyond any trained length are defined.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.table_TD = sinusoids(512, dim)

    def embed(self, x_BTD: Tensor, start: int = 0) -> Tensor:
        """Add the encodings of positions start .. start+T-1."""
        end = start + x_BTD.shape[1]
        table_TD = self.table_TD  # other threads may put a longer one in its place
        if end > len(table_TD):
            table_TD = sinusoids(2 * end, self.dim)
        if table_TD.device != x_BTD.device:
            table_TD = table_TD.to(x_BTD.device)
        self.table_TD = table_TD
        return x_BTD + table_TD[start:end].to(x_BTD.dtype)


def sinusoids(length: int, dim: int) -> Tensor:
    """Return the [length, dim] matrix of interleaved sines and cosines, in float32."""
    position_T1 = torch.arange(length, dtype=torch.float64)[:, None]
    rate_D = torch.exp(torch.arange(0, dim, 2, dtype=torch.float64) * (-math.log(10000.0) / dim))
    angle_TD = position_T1 * rate_D
    return torch.stack((angle_TD.sin(), angle_TD.cos()), dim=-1).flatten(1).float()


POSITIONS = {"sinusoidal": Sinusoidal}
