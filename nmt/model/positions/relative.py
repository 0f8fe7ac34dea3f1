"""Relative position encodings, which act inside attention.

Shape suffixes: B sentences, T tokens, D model dimension, H heads, K head dimension, Q queries, S
keys, M distances, L layers, X pairs of dimensions or any size. The distance of a query i and a key
j is i - j: positive if the key comes first.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import torch
from torch import Tensor, nn

from nmt.core.errors import ConfigError
from nmt.model.layers import Linear
from nmt.model.position_formulas import (
    ROTARY_BASE,
    T5_BUCKETS,
    T5_DISTANCE_LIMIT,
    T5_MAX_DISTANCE,
    alibi_slopes,
    t5_buckets,
)
from nmt.model.positions.absolute import sinusoids_at
from nmt.model.positions.base import (
    Constant,
    EncodingTable,
    GrowingTable,
    Position,
    PositionEncoding,
    StackSpec,
    check_even_dim,
    check_range,
    distances,
)


class Rotary(PositionEncoding):
    """Rotated queries and keys (Su et al. 2021, RoFormer, equation 34).

    Dimensions 2i and 2i+1 of the query or key at position m are rotated by m·θ_i, θ_i =
    base^(-2i/K); the inner product of a query and a key then depends on their distance only.
    """

    supports_graphs = True
    rotates = True

    def __init__(self, stack: StackSpec, *, base: float = ROTARY_BASE) -> None:
        """Compute the rotations.

        Args:
            stack: the stack that uses the encoding.
            base: base of the rotation frequencies θ_i = base^(-2i/K); 10000 in the paper.
        """
        super().__init__(stack)
        check_range("rotary", base=(base, 1.0, math.inf))
        head_dim = stack.dim // stack.heads
        if head_dim % 2:
            raise ConfigError(
                f"position encoding 'rotary' requires an even head dimension, got {head_dim}"
                " (model.dim / model.heads)",
                "change model.heads or model.dim",
            )
        self.encodings = GrowingTable(functools.partial(_rotations, head_dim=head_dim, base=base))

    def rotate(self, x_BTHK: Tensor, start: Position) -> Tensor:
        """Rotate pairs of dimensions by position times rate."""
        pairs_BTHX2 = x_BTHK.float().unflatten(
            -1, (-1, 2)
        )  # rounded, products would not depend on the distance only
        cos_sin_T2X = self.encodings.rows(start, x_BTHK.shape[1], pairs_BTHX2)
        cos_T1X, sin_T1X = cos_sin_T2X.split(1, 1)
        if torch.compiler.is_compiling():  # compilers do not support complex numbers
            a, b = pairs_BTHX2.unbind(-1)
            rotated_BTHX2 = torch.stack((a * cos_T1X - b * sin_T1X, b * cos_T1X + a * sin_T1X), -1)
        else:
            rotated_BTHX = torch.view_as_complex(pairs_BTHX2) * torch.complex(cos_T1X, sin_T1X)
            rotated_BTHX2 = torch.view_as_real(rotated_BTHX)
        return rotated_BTHX2.flatten(-2).to(x_BTHK.dtype)

    def table(self, length: int, layer: int) -> EncodingTable:
        """Return the rotations of a query whose pairs of dimensions are all (1, 0)."""
        pairs_BTHK = torch.tensor([1.0, 0.0]).repeat(
            1, length, 1, self.stack.dim // self.stack.heads // 2
        )
        return EncodingTable(
            torch.arange(length), self.rotate(pairs_BTHK, 0)[0, :, 0], "position", "dimension"
        )


class Shaw(PositionEncoding):
    """A learned vector per distance, added to keys and to values (Shaw et al. 2018, equations 3 and
    4).

    e_ij = x_i W_Q (x_j W_K + R^K_ij)ᵀ / √K, z_i = Σ α_ij (x_j W_V + R^V_ij), where R depends on j -
    i, clipped; each layer has its own vectors, which its heads share.
    """

    supports_graphs = True
    has_value_bias = True

    def __init__(self, stack: StackSpec, *, clip: int = 16) -> None:
        """Create the vectors.

        Args:
            stack: the stack that uses the encoding.
            clip: maximum distance; larger ones are clipped.
        """
        super().__init__(stack)
        check_range("shaw", clip=(clip, 0, 65_536))
        self.clip, shape = clip, (stack.layers, 2 * clip + 1, stack.dim // stack.heads)
        self.keys_LMK, self.values_LMK = (
            nn.Parameter(nn.init.xavier_uniform_(torch.empty(shape))) for _ in range(2)
        )

    def attention_bias(
        self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: Position
    ) -> Tensor | None:
        """Return x_i W_Q (R^K_ij)ᵀ."""
        scores_BHQM = q_BHQK @ self.keys_LMK[layer].to(q_BHQK.dtype).t()
        return scores_BHQM.gather(-1, self._index(scores_BHQM, k_BHSK.shape[2], start))

    def value_bias(self, weights_BHQS: Tensor, layer: int, start: Position) -> Tensor | None:
        """Return Σ_j α_ij R^V_ij, computed from the sum of the weights at each distance."""
        values_MK = self.values_LMK[layer].to(weights_BHQS.dtype)
        weights_float_BHQS = weights_BHQS.float()  # sums of many small numbers
        sums_BHQM = weights_float_BHQS.new_zeros(*weights_BHQS.shape[:3], len(values_MK))
        index = self._index(weights_BHQS, weights_BHQS.shape[3], start)
        return sums_BHQM.scatter_add(-1, index, weights_float_BHQS).to(values_MK.dtype) @ values_MK

    def table(self, length: int, layer: int) -> EncodingTable:
        """Return the vectors added to keys."""
        distance_M = self.all_distances(length)
        return EncodingTable(
            distance_M,
            self.keys_LMK[layer][self._vector_index(distance_M)],
            "distance",
            "dimension",
        )

    def _index(self, like_BHQX: Tensor, num_keys: int, start: Position) -> Tensor:
        """Return the vector index of each query and key, expanded over sentences and heads."""
        distance_QS = distances(like_BHQX.shape[2], num_keys, start, like_BHQX.device)
        return self._vector_index(distance_QS).expand(*like_BHQX.shape[:2], -1, -1)

    def _vector_index(self, distance: Tensor) -> Tensor:
        """Return the vector index of each distance: j - i, clipped, counted from 0."""
        return self.clip - distance.clamp(-self.clip, self.clip)


class TransformerXL(PositionEncoding):
    """Projected sinusoids of the distance, and two learned query biases.

    Dai et al. 2019, section 3.3; for both directions as in XLNet (Yang et al. 2019).

    e_ij = (x_i W_Q (x_j W_K)ᵀ + x_i W_Q (R_{i-j} W_R)ᵀ + u (x_j W_K)ᵀ + v (R_{i-j} W_R)ᵀ) / √K,
    where u and v are vectors of each layer and head.
    """

    def __init__(self, stack: StackSpec) -> None:
        super().__init__(stack)
        check_even_dim("transformer_xl", stack.dim)
        self.heads, head_dim = stack.heads, stack.dim // stack.heads
        self.projections = nn.ModuleList(
            Linear(stack.dim, stack.dim, bias=False) for _ in range(stack.layers)
        )
        self.u_LHK, self.v_LHK = (
            nn.Parameter(torch.zeros(stack.layers, stack.heads, head_dim)) for _ in range(2)
        )

    def attention_bias(self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: int) -> Tensor:  # type: ignore[override]
        """Return the sum of all terms except the first."""
        num_queries, num_keys, head_dim = q_BHQK.shape[2], k_BHSK.shape[2], k_BHSK.shape[3]
        min_distance = start - num_keys + 1  # between the first query and the last key
        distance_M = torch.arange(min_distance, start + num_queries, device=q_BHQK.device)
        r_MD = self.projections[layer](sinusoids_at(distance_M, self.stack.dim).to(q_BHQK.dtype))
        r_HMK = r_MD.view(len(distance_M), self.heads, head_dim).transpose(0, 1)
        scale = math.sqrt(head_dim)
        u_H1K, v_H1K = (
            each[layer][:, None].to(q_BHQK.dtype) / scale for each in (self.u_LHK, self.v_LHK)
        )
        by_distance_BHQM = (q_BHQK + v_H1K) @ r_HMK.transpose(-1, -2)
        index_QS = distances(num_queries, num_keys, start, q_BHQK.device) - min_distance
        index = index_QS.expand(*by_distance_BHQM.shape[:2], -1, -1)
        bias_BHQS: Tensor = by_distance_BHQM.gather(-1, index) + u_H1K @ k_BHSK.transpose(-1, -2)
        return bias_BHQS

    def table(self, length: int, layer: int) -> EncodingTable:
        """Return the projected sinusoids."""
        distance_M = self.all_distances(length)
        values_MD = self.projections[layer](sinusoids_at(distance_M, self.stack.dim))
        return EncodingTable(distance_M, values_MD, "distance", "dimension")


class T5(PositionEncoding):
    """A learned bias per bucket of distances and head, added to the scores (Raffel et al. 2020,
    section 2.1).

    e_ij = q_i k_jᵀ / √K + b[bucket(i - j)]. T5 itself does not divide by √K. All layers share the
    biases. See `nmt.model.position_formulas.t5_buckets`.
    """

    supports_graphs = True

    def __init__(
        self,
        stack: StackSpec,
        *,
        num_buckets: int = T5_BUCKETS,
        max_distance: int = T5_MAX_DISTANCE,
    ) -> None:
        """Create the biases.

        Args:
            stack: the stack that uses the encoding.
            num_buckets: number of biases per head.
            max_distance: distance from which all larger distances share a bucket.
        """
        super().__init__(stack)
        check_range(
            "t5",
            num_buckets=(num_buckets, 4, 65_536),
            max_distance=(max_distance, num_buckets, T5_DISTANCE_LIMIT),
        )
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self.bias_MH = nn.Parameter(torch.zeros(num_buckets, stack.heads))
        distance_M = np.arange(-max_distance, max_distance + 1)
        self.buckets_M = Constant(
            torch.from_numpy(t5_buckets(distance_M, num_buckets, max_distance, causal=stack.causal))
        )

    def attention_bias(
        self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: Position
    ) -> Tensor | None:
        """Return the biases, [1, H, Q, S]."""
        buckets_QS = self.bucket(distances(q_BHQK.shape[2], k_BHSK.shape[2], start, q_BHQK.device))
        return self.bias_MH[buckets_QS].permute(2, 0, 1)[None].to(q_BHQK.dtype)

    def table(self, length: int, layer: int) -> EncodingTable:
        """Return the biases."""
        distance_M = self.all_distances(length)
        return EncodingTable(distance_M, self.bias_MH[self.bucket(distance_M)], "distance", "head")

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance."""
        limit = self.max_distance
        return self.buckets_M.on(distance.device)[distance.clamp(-limit, limit) + limit]


class DeBERTa(PositionEncoding):
    """Content-to-content, content-to-position and position-to-content (He et al. 2021, section 3.1,
    equation 4).

    e_ij = (Q_i K_jᵀ + Q_i (P_δ(i,j) W_{K,r})ᵀ + K_j (P_δ(j,i) W_{Q,r})ᵀ) / √(3K), where δ(i,j) is i
    - j, clipped; all layers share the vectors P, and each has its own projections.

    The position-to-content term follows the equation of the paper. Microsoft's code and Hugging
    Face Transformers use δ(i,j) in it instead of δ(j,i), so their weights are not compatible.
    """

    supports_graphs = True
    num_score_terms = 3

    def __init__(self, stack: StackSpec, *, clip: int = 32) -> None:
        """Create vectors and projections.

        Args:
            stack: the stack that uses the encoding.
            clip: distances are clipped to -clip .. clip-1.
        """
        super().__init__(stack)
        check_range("deberta", clip=(clip, 1, 65_536))
        self.clip, self.heads = clip, stack.heads
        self.table_MD = nn.Parameter(torch.randn(2 * clip, stack.dim))
        self.key_projections, self.query_projections = (
            nn.ModuleList(Linear(stack.dim, stack.dim, bias=False) for _ in range(stack.layers))
            for _ in range(2)
        )

    def attention_bias(
        self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: Position
    ) -> Tensor | None:
        """Return the sum of content-to-position and position-to-content."""
        table_MD = self.table_MD.to(q_BHQK.dtype)
        k_HMK, q_HMK = (
            projections[layer](table_MD).view(len(table_MD), self.heads, -1).transpose(0, 1)
            for projections in (self.key_projections, self.query_projections)
        )
        distance_QS = distances(q_BHQK.shape[2], k_BHSK.shape[2], start, q_BHQK.device)
        c2p_BHQM = q_BHQK @ k_HMK.transpose(-1, -2)
        p2c_BHSM = (
            k_BHSK @ q_HMK.transpose(-1, -2) / math.sqrt(self.num_score_terms * k_BHSK.shape[3])
        )
        c2p = c2p_BHQM.gather(
            -1, self._vector_index(distance_QS).expand(*c2p_BHQM.shape[:2], -1, -1)
        )
        p2c = p2c_BHSM.gather(
            -1, self._vector_index(-distance_QS.t()).expand(*p2c_BHSM.shape[:2], -1, -1)
        )
        bias_BHQS: Tensor = c2p + p2c.transpose(-1, -2)
        return bias_BHQS

    def table(self, length: int, layer: int) -> EncodingTable:
        """Return the vectors, projected as keys."""
        distance_M = self.all_distances(length)
        values_MD = self.key_projections[layer](self.table_MD)[self._vector_index(distance_M)]
        return EncodingTable(distance_M, values_MD, "distance", "dimension")

    def _vector_index(self, distance: Tensor) -> Tensor:
        return distance.clamp(-self.clip, self.clip - 1) + self.clip


class ALiBi(PositionEncoding):
    """A linear bias of -m·|i - j| on the scores, without learned parameters (Press et al. 2022,
    section 3).

    The paper has causal attention only; the encoder uses the absolute distance. See
    `nmt.model.position_formulas.alibi_slopes` for m.
    """

    supports_graphs = True

    def __init__(self, stack: StackSpec) -> None:
        super().__init__(stack)
        self.slope_H = Constant(torch.tensor(alibi_slopes(stack.heads)))

    def attention_bias(
        self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: Position
    ) -> Tensor | None:
        """Return the biases, [1, H, Q, S]."""
        distance_QS = distances(q_BHQK.shape[2], k_BHSK.shape[2], start, q_BHQK.device)
        slope_H11 = self.slope_H.on(q_BHQK.device)[:, None, None]
        return (-slope_H11 * distance_QS.abs())[None].to(q_BHQK.dtype)

    def table(self, length: int, layer: int) -> EncodingTable:
        """Return the biases."""
        distance_M = self.all_distances(length)
        bias_MH = -self.slope_H.on(distance_M.device) * distance_M[:, None].abs()
        return EncodingTable(distance_M, bias_MH, "distance", "head")


def _rotations(length: int, head_dim: int, base: float) -> Tensor:
    """Return cosine and sine of the rotation of each pair of dimensions at each position, [T, 2, X]
    in float32."""
    rate_X = base ** (-torch.arange(0, head_dim, 2, dtype=torch.float64) / head_dim)
    angle_TX = torch.arange(length, dtype=torch.float64)[:, None] * rate_X
    return torch.stack((angle_TX.cos(), angle_TX.sin()), 1).float()
