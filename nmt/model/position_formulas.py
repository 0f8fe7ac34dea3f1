"""Formulas of position encodings that the inference engine needs without PyTorch, and the networks with it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray


def alibi_slopes(heads: int) -> list[float]:
    """Return ALiBi's m of each head (Press et al. 2022, section 3).

    With H heads, a power of two, head h = 1 .. H has m = 2^(-8h/H); else those of the next smaller power of two come
    first, then every other one of the next larger, as in the authors' code.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return slopes + [2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power + 1, 2)][: heads - power]


def t5_buckets(
    distance_M: NDArray[np.integer[Any]], num_buckets: int, max_distance: int, *, causal: bool
) -> NDArray[np.int64]:
    """Return the bucket of each distance i - j (Raffel et al. 2020, section 2.1).

    Half of the buckets are single distances, the others grow with the logarithm up to `max_distance`, from where there
    is but one. Unless `causal`, keys behind the query have half of the buckets to themselves.
    """
    if causal:
        first, count, apart = np.zeros_like(distance_M), num_buckets, distance_M.clip(0)
    else:
        count = num_buckets // 2
        first, apart = (distance_M < 0) * count, np.abs(distance_M)
    exact = count // 2
    share = np.log(apart.clip(1) / exact) / math.log(max_distance / exact)
    far = np.minimum((exact + share * (count - exact)).astype(np.int64), count - 1)
    buckets: NDArray[np.int64] = first + np.where(apart < exact, apart, far)
    return buckets
