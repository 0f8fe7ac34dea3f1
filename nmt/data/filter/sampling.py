"""Sample of a corpus, from which the scores are learned."""

from __future__ import annotations

import random
from collections.abc import Iterable

from nmt.data.pairs import Pair

MAX_SAMPLE = 300_000
"""Maximum number of pairs to learn from, which take about 150 MB."""
MAX_CHARACTERS = 1000
"""Maximum number of characters of a side in the sample. Longer lines are rarely sentences."""


def sample_pairs(pairs: Iterable[Pair], max_pairs: int = MAX_SAMPLE) -> list[Pair]:
    """Sample at most `max_pairs` pairs uniformly (reservoir sampling, Vitter 1985, algorithm R).

    The sample depends only on the pairs and their order. Blank sides and long lines are left out.
    """
    rng = random.Random(0)
    reservoir: list[Pair] = []
    num_seen = 0
    for pair in pairs:
        if not all(map(_is_suitable, pair)):
            continue
        num_seen += 1
        if len(reservoir) < max_pairs:
            reservoir.append(pair)
            continue
        slot = rng.randrange(num_seen)
        if slot < max_pairs:
            reservoir[slot] = pair
    return reservoir


def _is_suitable(text: str) -> bool:
    return len(text) <= MAX_CHARACTERS and not text.isspace() and text != ""
