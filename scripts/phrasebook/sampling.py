"""Deterministic sampling: a stable hash gives the same order on every machine and in every
process."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def rank(*key: object) -> int:
    """Return a number that depends only on the key (BLAKE2b is independent of PYTHONHASHSEED)."""
    text = "\x1f".join(map(str, key)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")


def draw(name: str, count: int, *axes: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield up to `count` distinct members of the product of the axes, spread evenly by a hash of
    `name`."""
    total = math.prod(map(len, axes))
    for number in _numbers(rank(name), count, total):
        member = []
        for axis in axes:
            number, index = divmod(number, len(axis))
            member.append(axis[index])
        yield tuple(member)


def _numbers(seed: int, count: int, total: int) -> Iterable[int]:
    """Choose `count` distinct numbers below `total`."""
    if total <= 2 * count:
        return sorted(range(total), key=lambda number: _mix(number, seed))[:count]
    chosen: dict[int, None] = {}
    for step in itertools.count():
        if len(chosen) == count:
            break
        chosen[_mix(step, seed) % total] = None
    return chosen


def _mix(number: int, seed: int) -> int:
    """Mix the bits of a number: the finalizer of SplitMix64 (Steele, Lea and Flood 2014)."""
    mask = (1 << 64) - 1
    z = (number * 0x9E3779B97F4A7C15 + seed) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)
