"""Ranges of a text, and the nearest of several positions."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

Span = tuple[int, int]

by_start = attrgetter("start")
by_end = attrgetter("end")
span_of = attrgetter("start", "end")


def overlap(a: Span, b: Span) -> bool:
    """Return whether two ranges have a character in common."""
    start = max(a[0], b[0])
    end = min(a[1], b[1])
    return start < end


def overlaps_any(span: Span, others: Sequence[Span]) -> bool:
    """Return whether a range overlaps one of others, which are sorted, not empty, and do not
    overlap each other."""
    following = bisect_left(others, span)
    first = max(0, following - 1)
    neighbors = others[first : following + 1]
    return any(overlap(span, other) for other in neighbors)


def outside(position: int, others: Sequence[Span]) -> int:
    """Return the position, or if it is inside one of others, the nearest end of that range."""
    i = bisect_right(others, (position, position)) - 1
    if i < 0:
        return position
    start, end = others[i]
    if position >= end:
        return position
    is_near_start = position - start < end - position
    return start if is_near_start else end


class Nearest:
    """Finds the nearest of several positions, such as those of words, that is free."""

    def __init__(self, positions: Iterable[int]) -> None:
        """Keep the positions, which are in order."""
        self._positions = list(positions)

    def find(self, position: int, is_free: Callable[[int], bool]) -> int | None:
        """Return the nearest position that is free; None: there is none. One that is not will never
        be."""
        while True:
            right = bisect_left(self._positions, position)
            left = max(0, right - 1)
            neighbors = self._positions[left : right + 1]
            if not neighbors:
                return None
            nearest = min(neighbors, key=lambda each: abs(each - position))
            if is_free(nearest):
                return nearest
            del self._positions[left + neighbors.index(nearest)]
