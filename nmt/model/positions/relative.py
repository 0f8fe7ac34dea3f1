"""Encodings that say how far tokens stand apart, inside attention.

Shape letters: B sentences, T tokens, D width, H heads, K head width, Q queries, S keys, M distances, L layers. A query
i and a key j are i - j apart: positive where the key comes first.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor, nn

from nmt.errors import ConfigError
from nmt.model.layers import Linear
from nmt.model.position_formulas import alibi_slopes, t5_buckets
from nmt.model.positions.absolute import sinusoids_at, within
from nmt.model.positions.base import Positions, Rows, Stack, Table, distances


class Rotary(Positions):
    """Queries and keys turned by their positions (Su et al. 2021, RoFormer, equation 34).

    Channels 2i and 2i+1 of the query or key at position m turn by m·θ_i, θ_i = base^(-2i/K); the inner product of two
    of them then depends on their distance only.
    """

    rotates = True

    def __init__(self, stack: Stack, *, base: float = 10000.0) -> None:
        """Make the table.

        Args:
            stack: what it is for.
            base: the longest wavelength, over 2π.
        """
        super().__init__(stack)
        within("rotary", base=(base, 1.0, math.inf))
        width = stack.dim // stack.heads
        if width % 2:
            raise ConfigError(f"positions 'rotary' turns pairs of channels, and a head has {width}", "take fewer heads")
        self.rows = Rows(functools.partial(_turns, width=width, base=base))

    def rotate(self, x_BTHK: Tensor, start: int) -> Tensor:
        """Turn channel pairs by position times rate."""
        wide_BTHK = x_BTHK.float()  # a sine that is rounded depends on more than the distance
        turn_T2K = self.rows.take(start, start + x_BTHK.shape[1], wide_BTHK)
        cos_T1K, sin_T1K = turn_T2K[:, :1], turn_T2K[:, 1:]
        swapped_BTHK = torch.stack((-wide_BTHK[..., 1::2], wide_BTHK[..., ::2]), -1).flatten(-2)
        return (wide_BTHK * cos_T1K + swapped_BTHK * sin_T1K).to(x_BTHK.dtype)

    def table(self, length: int, layer: int) -> Table:
        """Return what becomes of a query whose pairs of channels are all (1, 0)."""
        pairs_BTHK = torch.tensor([1.0, 0.0]).repeat(1, length, 1, self.stack.dim // self.stack.heads // 2)
        return Table(torch.arange(length), self.rotate(pairs_BTHK, 0)[0, :, 0], "position", "channel")


class Shaw(Positions):
    """A learned vector for each distance, added to keys and to values (Shaw et al. 2018, equations 3 and 4).

    e_ij = x_i W_Q (x_j W_K + R^K_ij)ᵀ / √K, z_i = Σ α_ij (x_j W_V + R^V_ij), where R depends on j - i, clipped; each
    layer has its own, and all its heads share it.
    """

    weighs_values = True

    def __init__(self, stack: Stack, *, clip: int = 16) -> None:
        """Make the vectors.

        Args:
            stack: what it is for.
            clip: largest distance that is told from larger ones.
        """
        super().__init__(stack)
        within("shaw", clip=(clip, 0, 65_536))
        self.clip, shape = clip, (stack.layers, 2 * clip + 1, stack.dim // stack.heads)
        self.keys_LMK, self.values_LMK = (
            nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape))) for _ in range(2)
        )  # fmt: skip

    def score(self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: int) -> Tensor | None:
        """Return x_i W_Q (R^K_ij)ᵀ."""
        scores_BHQM = q_BHQK @ self.keys_LMK[layer].to(q_BHQK.dtype).t()
        return scores_BHQM.gather(-1, self._places(scores_BHQM, k_BHSK.shape[2], start))

    def value(self, weights_BHQS: Tensor, layer: int, start: int) -> Tensor | None:
        """Return Σ_j α_ij R^V_ij: the weights summed by distance, times the vectors."""
        values_MK = self.values_LMK[layer].to(weights_BHQS.dtype)
        wide_BHQS = weights_BHQS.float()  # many small numbers are summed
        sums_BHQM = wide_BHQS.new_zeros(*wide_BHQS.shape[:3], len(values_MK))
        places = self._places(wide_BHQS, wide_BHQS.shape[3], start)
        return sums_BHQM.scatter_add(-1, places, wide_BHQS).to(values_MK.dtype) @ values_MK

    def table(self, length: int, layer: int) -> Table:
        """Return the vectors that are added to keys."""
        apart_M = self.all_distances(length)
        return Table(apart_M, self.keys_LMK[layer][self._vector(apart_M)], "distance", "channel")

    def _places(self, of_BHQx: Tensor, keys: int, start: int) -> Tensor:
        """Return which vector each query and key have, for every sentence and head."""
        apart_QS = distances(of_BHQx.shape[2], keys, start, of_BHQx.device)
        return self._vector(apart_QS).expand(*of_BHQx.shape[:2], -1, -1)

    def _vector(self, apart: Tensor) -> Tensor:
        """Return which vector each distance has: j - i, clipped, counted from 0."""
        return self.clip - apart.clamp(-self.clip, self.clip)


class XLNet(Positions):
    """Sinusoids of the distance, projected, and two learned queries (Dai et al. 2019, section 3.3; Yang et al. 2019).

    e_ij = (x_i W_Q (x_j W_K)ᵀ + x_i W_Q (R_{i-j} W_R)ᵀ + u (x_j W_K)ᵀ + v (R_{i-j} W_R)ᵀ) / √K, where u and v are
    vectors of each layer and head.
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.heads, width = stack.heads, stack.dim // stack.heads
        self.project = nn.ModuleList(Linear(stack.dim, stack.dim, bias=False) for _ in range(stack.layers))
        self.u_LHK, self.v_LHK = (nn.Parameter(torch.zeros(stack.layers, stack.heads, width)) for _ in range(2))

    def score(self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: int) -> Tensor | None:
        """Return all terms but the first."""
        queries, keys, width = q_BHQK.shape[2], k_BHSK.shape[2], k_BHSK.shape[3]
        least = start - keys + 1  # the distance of the first query to the last key
        apart_M = torch.arange(least, start + queries, device=q_BHQK.device)
        r_MD = self.project[layer](sinusoids_at(apart_M, self.stack.dim).to(q_BHQK.dtype))
        r_HMK = r_MD.view(len(apart_M), self.heads, width).transpose(0, 1)
        u_H1K, v_H1K = (each[layer][:, None].to(q_BHQK.dtype) / math.sqrt(width) for each in (self.u_LHK, self.v_LHK))
        by_distance_BHQM = (q_BHQK + v_H1K) @ r_HMK.transpose(-1, -2)
        places_QS = distances(queries, keys, start, q_BHQK.device) - least
        places = places_QS.expand(*by_distance_BHQM.shape[:2], -1, -1)
        scores_BHQS: Tensor = by_distance_BHQM.gather(-1, places) + u_H1K @ k_BHSK.transpose(-1, -2)
        return scores_BHQS

    def table(self, length: int, layer: int) -> Table:
        """Return the projected sinusoids."""
        apart_M = self.all_distances(length)
        return Table(apart_M, self.project[layer](sinusoids_at(apart_M, self.stack.dim)), "distance", "channel")


class T5(Positions):
    """A learned number for each bucket of distances and each head, added to scores (Raffel et al. 2020, section 2.1).

    Half of the buckets are single distances, the others grow like the logarithm up to `max_distance`, from where there
    is but one. Where keys may come after the query, they have half of the buckets to themselves. All layers share the
    numbers.
    """

    def __init__(self, stack: Stack, *, num_buckets: int = 32, max_distance: int = 128) -> None:
        """Make the numbers.

        Args:
            stack: what it is for.
            num_buckets: learned numbers of a head.
            max_distance: the distance from which on all are one.
        """
        super().__init__(stack)
        within("t5", num_buckets=(num_buckets, 4, 65_536), max_distance=(max_distance, num_buckets, 1_000_000))
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.bias_MH = nn.Parameter(torch.zeros(num_buckets, stack.heads))

    def score(self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: int) -> Tensor | None:
        """Return r_ij, [1, H, Q, S]."""
        buckets_QS = self.bucket(distances(q_BHQK.shape[2], k_BHSK.shape[2], start, q_BHQK.device))
        return self.bias_MH[buckets_QS].permute(2, 0, 1)[None].to(q_BHQK.dtype)

    def table(self, length: int, layer: int) -> Table:
        """Return the numbers."""
        apart_M = self.all_distances(length)
        return Table(apart_M, self.bias_MH[self.bucket(apart_M)], "distance", "head")

    def bucket(self, apart: Tensor) -> Tensor:
        """Return the bucket of each distance."""
        most = self.max_distance
        distance_M = np.arange(-most, most + 1)
        buckets = t5_buckets(distance_M, self.num_buckets, most, causal=self.stack.causal)
        return torch.from_numpy(buckets).to(apart.device)[apart.clamp(-most, most) + most]


class DeBERTa(Positions):
    """Content to content, content to position and position to content (He et al. 2021, section 3.1, equation 4).

    e_ij = (Q_i K_jᵀ + Q_i (P_δ(i,j) W_{K,r})ᵀ + K_j (P_δ(j,i) W_{Q,r})ᵀ) / √(3K), where δ(i,j) is i - j, clipped; all
    layers share the vectors P, and each has its own projections.

    The position-to-content term follows the paper's equation. Microsoft's code and Transformers use δ(i,j) in it
    instead of δ(j,i), so weights trained there compute something else here.
    """

    terms = 3

    def __init__(self, stack: Stack, *, clip: int = 32) -> None:
        """Make the vectors.

        Args:
            stack: what it is for.
            clip: distances from -clip up to clip-1 are told from each other.
        """
        super().__init__(stack)
        within("deberta", clip=(clip, 1, 65_536))
        self.clip, self.heads = clip, stack.heads
        self.table_MD = nn.Parameter(torch.randn(2 * clip, stack.dim))
        self.keys, self.queries = (
            nn.ModuleList(Linear(stack.dim, stack.dim, bias=False) for _ in range(stack.layers)) for _ in range(2)
        )

    def score(self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: int) -> Tensor | None:
        """Return content to position plus position to content."""
        table_MD = self.table_MD.to(q_BHQK.dtype)
        k_HMK, q_HMK = (
            project[layer](table_MD).view(len(table_MD), self.heads, -1).transpose(0, 1)
            for project in (self.keys, self.queries)
        )
        apart_QS = distances(q_BHQK.shape[2], k_BHSK.shape[2], start, q_BHQK.device)
        ours_BHQM = q_BHQK @ k_HMK.transpose(-1, -2)
        theirs_BHSM = k_BHSK @ q_HMK.transpose(-1, -2) / math.sqrt(self.terms * k_BHSK.shape[3])
        ours = ours_BHQM.gather(-1, self._places(apart_QS).expand(*ours_BHQM.shape[:2], -1, -1))
        theirs = theirs_BHSM.gather(-1, self._places(-apart_QS.t()).expand(*theirs_BHSM.shape[:2], -1, -1))
        scores_BHQS: Tensor = ours + theirs.transpose(-1, -2)
        return scores_BHQS

    def table(self, length: int, layer: int) -> Table:
        """Return the vectors as keys."""
        apart_M = self.all_distances(length)
        return Table(apart_M, self.keys[layer](self.table_MD)[self._places(apart_M)], "distance", "channel")

    def _places(self, apart: Tensor) -> Tensor:
        return apart.clamp(-self.clip, self.clip - 1) + self.clip


class ALiBi(Positions):
    """A penalty that grows with the distance (Press et al. 2022, section 3): -m·|i - j|, nothing learned.

    See `nmt.positions.alibi_slopes` for m.
    """

    def __init__(self, stack: Stack) -> None:
        super().__init__(stack)
        self.slope_H = torch.tensor(alibi_slopes(stack.heads))

    def score(self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: int) -> Tensor | None:
        """Return the penalties, [1, H, Q, S]."""
        apart_QS = distances(q_BHQK.shape[2], k_BHSK.shape[2], start, q_BHQK.device)
        slope_H11 = self.slope_H.to(q_BHQK.device)[:, None, None]
        return (-slope_H11 * apart_QS.abs())[None].to(q_BHQK.dtype)

    def table(self, length: int, layer: int) -> Table:
        """Return the penalties."""
        apart_M = self.all_distances(length)
        return Table(apart_M, -self.slope_H * apart_M[:, None].abs(), "distance", "head")


def _turns(length: int, width: int, base: float) -> Tensor:
    """Return cosine and sine of each position's turn of each channel, [T, 2, K] in float32."""
    rate_K = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle_TK = (torch.arange(length, dtype=torch.float64)[:, None] * rate_K).repeat_interleave(2, 1)
    return torch.stack((angle_TK.cos(), angle_TK.sin()), 1).float()
