"""Relative position encodings, which act inside attention.

Shape suffixes: B sentences, T tokens, D model dimension, H heads, K head dimension, Q queries, S
keys, M distances, L layers, X pairs of dimensions or any size. The distance of a query i and a key
j is i - j: positive if the key comes first.
"""

from __future__ import annotations

import functools
import math
from typing import Annotated

import numpy as np
import torch
from torch import Tensor, nn

from nmt.core.errors import ConfigError
from nmt.core.ranges import Range, Size
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
    EncodingTable,
    GrowingTable,
    Position,
    PositionEncoding,
    StackSpec,
    check_even_dim,
    distances,
)


class Rotary(PositionEncoding):
    """Rotated queries and keys (Su et al. 2021, RoFormer, equation 34).

    Dimensions 2i and 2i+1 of the query or key at position m are rotated by m·θ_i, θ_i =
    base^(-2i/K); the inner product of a query and a key then depends on their distance only.
    """

    rotates = True

    def __init__(self, stack: StackSpec, *, base: Annotated[float, Range(1)] = ROTARY_BASE) -> None:
        """Compute the rotations.

        Args:
            stack: the stack that uses the encoding.
            base: base of the rotation frequencies θ_i = base^(-2i/K); 10000 in the paper.
        """
        super().__init__(stack)
        if stack.head_dim % 2:
            raise ConfigError(
                f"position encoding 'rotary' requires an even head dimension, got {stack.head_dim}"
                " (model.dim / model.heads)",
                "change model.heads or model.dim",
            )
        compute = functools.partial(_rotations, head_dim=stack.head_dim, base=base)
        self.encodings = GrowingTable(compute)

    def reserve(self, length: int, device: torch.device) -> None:
        """Compute the rotations."""
        self.encodings.reserve(length, device)

    def rotate(self, x_BTHK: Tensor, start: Position) -> Tensor:
        """Rotate pairs of dimensions by position times rate."""
        # Of rounded numbers, products would not depend on the distance only.
        pairs_BTHX2 = x_BTHK.float().unflatten(-1, (-1, 2))
        cos_sin_T2X = self.encodings.rows(start, x_BTHK.shape[1], pairs_BTHX2)
        cos_T1X, sin_T1X = cos_sin_T2X.split(1, 1)
        if torch.compiler.is_compiling():  # compilers do not support complex numbers
            a_BTHX, b_BTHX = pairs_BTHX2.unbind(-1)
            first_BTHX = a_BTHX * cos_T1X - b_BTHX * sin_T1X
            second_BTHX = b_BTHX * cos_T1X + a_BTHX * sin_T1X
            rotated_BTHX2 = torch.stack((first_BTHX, second_BTHX), -1)
        else:
            rotation_T1X = torch.complex(cos_T1X, sin_T1X)
            rotated_BTHX = torch.view_as_complex(pairs_BTHX2) * rotation_T1X
            rotated_BTHX2 = torch.view_as_real(rotated_BTHX)
        return rotated_BTHX2.flatten(-2).to(x_BTHK.dtype)

    def table(self, length: int, layer: int) -> EncodingTable:
        """Return the rotations of a query whose pairs of dimensions are all (1, 0)."""
        pair = torch.tensor([1.0, 0.0])
        num_pairs = self.stack.head_dim // 2
        pairs_BTHK = pair.repeat(1, length, 1, num_pairs)
        rotated_BTHK = self.rotate(pairs_BTHK, 0)
        values_TK = rotated_BTHK[0, :, 0]
        positions_T = torch.arange(length)
        return EncodingTable(positions_T, values_TK, "position", "dimension")


class Shaw(PositionEncoding):
    """A learned vector per distance, added to keys and to values (Shaw et al. 2018, equations 3 and
    4).

    e_ij = x_i W_Q (x_j W_K + R^K_ij)ᵀ / √K, z_i = Σ α_ij (x_j W_V + R^V_ij), where R depends on j -
    i, clipped; each layer has its own vectors, which its heads share.
    """

    has_value_bias = True

    def __init__(self, stack: StackSpec, *, clip: Annotated[int, Range(0, 65_536)] = 16) -> None:
        """Create the vectors.

        Args:
            stack: the stack that uses the encoding.
            clip: maximum distance; larger ones are clipped.
        """
        super().__init__(stack)
        self.clip = clip
        sizes = stack.layers, 2 * clip + 1, stack.head_dim
        self.keys_LMK = nn.Parameter(torch.empty(sizes))
        self.values_LMK = nn.Parameter(torch.empty(sizes))
        nn.init.xavier_uniform_(self.keys_LMK)
        nn.init.xavier_uniform_(self.values_LMK)

    def attention_bias(
        self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: Position
    ) -> Tensor | None:
        """Return x_i W_Q (R^K_ij)ᵀ."""
        # The scores of all distances, then that of each pair.
        keys_MK = self.keys_LMK[layer].to(q_BHQK.dtype)
        scores_BHQM = q_BHQK @ keys_MK.t()
        distance_QS = _distances(q_BHQK, k_BHSK, start)
        index_QS = self._vector_index(distance_QS)
        return _gather(scores_BHQM, index_QS)

    def value_bias(self, weights_BHQS: Tensor, layer: int, start: Position) -> Tensor | None:
        """Return Σ_j α_ij R^V_ij, computed from the sum of the weights at each distance."""
        values_MK = self.values_LMK[layer].to(weights_BHQS.dtype)
        *sizes, num_queries, num_keys = weights_BHQS.shape
        distance_QS = distances(num_queries, num_keys, start, weights_BHQS.device)
        index_BHQS = self._vector_index(distance_QS).expand_as(weights_BHQS)
        weights_BHQS = weights_BHQS.float()  # sums of many small numbers
        zeros_BHQM = weights_BHQS.new_zeros(*sizes, num_queries, len(values_MK))
        sums_BHQM = zeros_BHQM.scatter_add(-1, index_BHQS, weights_BHQS)
        return sums_BHQM.to(values_MK.dtype) @ values_MK

    def values_by_distance(self, distance_M: Tensor, layer: int) -> Tensor:
        """Return the vectors added to keys."""
        keys_MK = self.keys_LMK[layer]
        index_M = self._vector_index(distance_M)
        return keys_MK[index_M]

    def _vector_index(self, distance: Tensor) -> Tensor:
        """Return the vector index of each distance: j - i, clipped, counted from 0."""
        clip = self.clip
        return clip - distance.clamp(-clip, clip)


class TransformerXL(PositionEncoding):
    """Projected sinusoids of the distance, and two learned query biases.

    Dai et al. 2019, section 3.3; for both directions as in XLNet (Yang et al. 2019).

    e_ij = (x_i W_Q (x_j W_K)ᵀ + x_i W_Q (R_{i-j} W_R)ᵀ + u (x_j W_K)ᵀ + v (R_{i-j} W_R)ᵀ) / √K,
    where u and v are vectors of each layer and head.
    """

    supports_graphs = False

    def __init__(self, stack: StackSpec) -> None:
        super().__init__(stack)
        check_even_dim("transformer_xl", stack.dim)
        self.projections = _projections(stack)
        sizes = stack.layers, stack.heads, stack.head_dim
        self.u_LHK = nn.Parameter(torch.zeros(sizes))
        self.v_LHK = nn.Parameter(torch.zeros(sizes))

    def attention_bias(self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: int) -> Tensor:  # type: ignore[override]
        """Return the sum of all terms except the first."""
        dtype = q_BHQK.dtype
        # R W_R of every distance, from the first query and the last key to the opposite.
        min_distance = start - k_BHSK.shape[2] + 1
        end = start + q_BHQK.shape[2]
        distance_M = torch.arange(min_distance, end, device=q_BHQK.device)
        sinusoids_MD = sinusoids_at(distance_M, self.stack.dim).to(dtype)
        r_MD = self.projections[layer](sinusoids_MD)
        r_HKM = r_MD.unflatten(1, (self.stack.heads, -1)).permute(1, 2, 0)
        # The queries are already divided by √K.
        scale = math.sqrt(self.stack.head_dim)
        u_HK = self.u_LHK[layer].to(dtype) / scale
        v_HK = self.v_LHK[layer].to(dtype) / scale
        # The terms with R: the scores of all distances, then that of each pair.
        queries_BHQK = q_BHQK + v_HK[:, None]
        scores_BHQM = queries_BHQK @ r_HKM
        index_QS = _distances(q_BHQK, k_BHSK, start) - min_distance
        r_terms_BHQS = _gather(scores_BHQM, index_QS)
        k_BHKS = k_BHSK.transpose(-1, -2)
        u_terms_BHQS = u_HK[:, None] @ k_BHKS
        return r_terms_BHQS + u_terms_BHQS

    def values_by_distance(self, distance_M: Tensor, layer: int) -> Tensor:
        """Return the projected sinusoids."""
        sinusoids_MD = sinusoids_at(distance_M, self.stack.dim)
        return self.projections[layer](sinusoids_MD)


class T5(PositionEncoding):
    """A learned bias per bucket of distances and head, added to the scores (Raffel et al. 2020,
    section 2.1).

    e_ij = q_i k_jᵀ / √K + b[bucket(i - j)]. T5 itself does not divide by √K. All layers share the
    biases. See `nmt.model.position_formulas.t5_buckets`.
    """

    column = "head"

    def __init__(
        self,
        stack: StackSpec,
        *,
        num_buckets: Annotated[int, Range(4, 65_536)] = T5_BUCKETS,
        max_distance: Annotated[int, Range(4, T5_DISTANCE_LIMIT)] = T5_MAX_DISTANCE,
    ) -> None:
        """Create the biases.

        Args:
            stack: the stack that uses the encoding.
            num_buckets: number of biases per head.
            max_distance: distance from which all larger distances share a bucket.
        """
        super().__init__(stack)
        if max_distance < num_buckets:
            raise ConfigError(
                f"position encoding 't5': max_distance must be at least {num_buckets},"
                f" got {max_distance}"
            )
        self.max_distance = max_distance
        self.bias_MH = nn.Parameter(torch.zeros(num_buckets, stack.heads))
        distance_M = np.arange(-max_distance, max_distance + 1)
        buckets_M = t5_buckets(distance_M, num_buckets, max_distance, causal=stack.causal)
        self.buckets = GrowingTable(lambda _: torch.from_numpy(buckets_M))

    def attention_bias(
        self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: Position
    ) -> Tensor | None:
        """Return the biases, [1, H, Q, S]."""
        distance_QS = _distances(q_BHQK, k_BHSK, start)
        bucket_QS = self.bucket(distance_QS)
        bias_QSH = self.bias_MH[bucket_QS]
        bias_HQS = bias_QSH.permute(2, 0, 1)
        return bias_HQS[None].to(q_BHQK.dtype)

    def values_by_distance(self, distance_M: Tensor, layer: int) -> Tensor:
        """Return the biases."""
        return self.bias_MH[self.bucket(distance_M)]

    def bucket(self, distance: Tensor) -> Tensor:
        """Return the bucket of each distance."""
        limit = self.max_distance
        buckets_M = self.buckets.rows(0, 2 * limit + 1, distance)
        clamped = distance.clamp(-limit, limit)
        return buckets_M[clamped + limit]


class DeBERTa(PositionEncoding):
    """Content-to-content, content-to-position and position-to-content (He et al. 2021, section 3.1,
    equation 4).

    e_ij = (Q_i K_jᵀ + Q_i (P_δ(i,j) W_{K,r})ᵀ + K_j (P_δ(j,i) W_{Q,r})ᵀ) / √(3K), where δ(i,j) is i
    - j, clipped; all layers share the vectors P, and each has its own projections.

    The position-to-content term follows the equation of the paper. Microsoft's code and Hugging
    Face Transformers use δ(i,j) in it instead of δ(j,i), so their weights are not compatible.
    """

    num_score_terms = 3

    def __init__(self, stack: StackSpec, *, clip: Size = 32) -> None:
        """Create vectors and projections.

        Args:
            stack: the stack that uses the encoding.
            clip: distances are clipped to -clip .. clip-1.
        """
        super().__init__(stack)
        self.clip = clip
        random_MD = torch.randn(2 * clip, stack.dim)
        self.table_MD = nn.Parameter(random_MD)
        self.key_projections = _projections(stack)
        self.query_projections = _projections(stack)

    def attention_bias(
        self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: Position
    ) -> Tensor | None:
        """Return the sum of content-to-position and position-to-content."""
        distance_QS = _distances(q_BHQK, k_BHSK, start)
        table_MD = self.table_MD.to(q_BHQK.dtype)
        heads = self.stack.heads, -1
        # Content to position: Q_i (P_δ(i,j) W_{K,r})ᵀ.
        k_MD = self.key_projections[layer](table_MD)
        k_HKM = k_MD.unflatten(1, heads).permute(1, 2, 0)
        c2p_BHQM = q_BHQK @ k_HKM
        c2p_BHQS = _gather(c2p_BHQM, self._vector_index(distance_QS))
        # Position to content: K_j (P_δ(j,i) W_{Q,r})ᵀ. The queries are already scaled, the keys
        # are not.
        q_MD = self.query_projections[layer](table_MD)
        q_HKM = q_MD.unflatten(1, heads).permute(1, 2, 0)
        scale = math.sqrt(self.num_score_terms * self.stack.head_dim)
        p2c_BHSM = k_BHSK @ q_HKM / scale
        distance_SQ = -distance_QS.t()
        p2c_BHSQ = _gather(p2c_BHSM, self._vector_index(distance_SQ))
        return c2p_BHQS + p2c_BHSQ.transpose(-1, -2)

    def values_by_distance(self, distance_M: Tensor, layer: int) -> Tensor:
        """Return the vectors, projected as keys."""
        keys_MD = self.key_projections[layer](self.table_MD)
        index_M = self._vector_index(distance_M)
        return keys_MD[index_M]

    def _vector_index(self, distance: Tensor) -> Tensor:
        clip = self.clip
        return distance.clamp(-clip, clip - 1) + clip


class ALiBi(PositionEncoding):
    """A linear bias of -m·|i - j| on the scores, without learned parameters (Press et al. 2022,
    section 3).

    The paper has causal attention only; the encoder uses the absolute distance. See
    `nmt.model.position_formulas.alibi_slopes` for m.
    """

    column = "head"

    def __init__(self, stack: StackSpec) -> None:
        super().__init__(stack)
        slopes = alibi_slopes(stack.heads)
        self.slopes = GrowingTable(lambda _: torch.tensor(slopes))

    def attention_bias(
        self, q_BHQK: Tensor, k_BHSK: Tensor, layer: int, start: Position
    ) -> Tensor | None:
        """Return the biases, [1, H, Q, S]."""
        distance_QS = _distances(q_BHQK, k_BHSK, start)
        bias_HQS = self._bias(distance_QS)
        return bias_HQS[None].to(q_BHQK.dtype)

    def values_by_distance(self, distance_M: Tensor, layer: int) -> Tensor:
        """Return the biases."""
        bias_H1M = self._bias(distance_M[None])
        return bias_H1M[:, 0].t()

    def _bias(self, distance_QS: Tensor) -> Tensor:
        """Return -m·|i - j| in float32, [H, Q, S]."""
        magnitude_QS = distance_QS.abs().float()
        slope_H = self.slopes.rows(0, self.stack.heads, magnitude_QS)
        return -slope_H[:, None, None] * magnitude_QS


def _rotations(length: int, head_dim: int, base: float) -> Tensor:
    """Return cosine and sine of the rotation of each pair of dimensions at each position, [T, 2, X]
    in float32."""
    even_X = torch.arange(0, head_dim, 2, dtype=torch.float64)
    rate_X = base ** (-even_X / head_dim)
    position_T = torch.arange(length, dtype=torch.float64)
    angle_TX = position_T[:, None] * rate_X
    cos_sin_T2X = torch.stack((angle_TX.cos(), angle_TX.sin()), 1)
    return cos_sin_T2X.float()


def _projections(stack: StackSpec) -> nn.ModuleList:
    """Return a projection of positions for each layer."""
    projections = nn.ModuleList()
    for _ in range(stack.layers):
        projections.append(Linear(stack.dim, stack.dim, bias=False))
    return projections


def _distances(q_BHQK: Tensor, k_BHSK: Tensor, start: Position) -> Tensor:
    """Return i - j of each query and key, [Q, S]."""
    num_queries = q_BHQK.shape[2]
    num_keys = k_BHSK.shape[2]
    return distances(num_queries, num_keys, start, q_BHQK.device)


def _gather(scores_BHXM: Tensor, index_XY: Tensor) -> Tensor:
    """Return the scores of the distances with these indices, [B, H, X, Y]."""
    batch, heads, *_ = scores_BHXM.shape
    index_BHXY = index_XY.expand(batch, heads, -1, -1)
    return scores_BHXM.gather(-1, index_BHXY)
