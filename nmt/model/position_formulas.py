"""Formulas of position encodings, in NumPy, because the native engine uses them without PyTorch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.core.errors import UsageError

ROTARY_BASE = 10_000.0
LEARNED_POSITIONS = 1024
T5_BUCKETS, T5_MAX_DISTANCE = 32, 128
"""Defaults of the options of position encodings, which exports and the native engine need without
PyTorch."""
T5_DISTANCE_LIMIT = 1_000_000
"""Largest valid `max_distance`."""


def check_positions(num_tokens: int, max_positions: int | None) -> None:
    """Raise a UsageError if a sentence has more tokens than the model has learned positions; None:
    no maximum."""
    if max_positions is not None and num_tokens > max_positions:
        raise UsageError(
            f"{num_tokens} tokens exceed the {max_positions} learned positions of the model",
            "shorten the input, or train with an unlimited encoding or with"
            f" learned(max_positions={num_tokens})",
        )


def alibi_slopes(heads: int) -> list[float]:
    """Return ALiBi's m of each head (Press et al. 2022, section 3).

    If the number of heads H is a power of two, head h = 1 .. H has m = 2^(-8h/H). Otherwise, the
    slopes of the next smaller power of two come first, then every other slope of the next larger
    one, as in the authors' code.
    """
    power = 2 ** math.floor(math.log2(heads))
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    for h in range(1, 2 * (heads - power), 2):
        slopes.append(2 ** (-8 * h / (2 * power)))
    return slopes


def t5_buckets(
    distance_M: NDArray[np.integer[Any]], num_buckets: int, max_distance: int, *, causal: bool
) -> NDArray[np.int64]:
    """Return the bucket of each distance i - j (Raffel et al. 2020, section 2.1).

    Half of the buckets hold single distances; the others are logarithmically spaced up to
    `max_distance`, and the last one holds all larger distances. Unless `causal`, keys after the
    query have half of the buckets.
    """
    if causal:
        count = num_buckets
        magnitude_M = distance_M.clip(0)
    else:
        count = num_buckets // 2
        magnitude_M = np.abs(distance_M)
    num_exact = count // 2
    # The position of a distance between the single ones and the maximum, from 0 to 1.
    log_M = np.log(magnitude_M.clip(1) / num_exact)
    share_M = log_M / math.log(max_distance / num_exact)
    far_M = num_exact + share_M * (count - num_exact)
    far_M = np.minimum(far_M.astype(np.int64), count - 1)
    bucket_M = np.where(magnitude_M < num_exact, magnitude_M, far_M)
    # Keys after the query.
    return bucket_M if causal else np.where(distance_M < 0, bucket_M + count, bucket_M)
