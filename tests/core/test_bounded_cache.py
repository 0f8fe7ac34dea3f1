from __future__ import annotations

from nmt.core.bounded_cache import BoundedCache


def test_values_are_computed_once_and_dropped_when_there_are_too_many() -> None:
    computed = []

    def double(number: int) -> int:
        computed.append(number)
        return 2 * number

    cache = BoundedCache(double, 2)
    assert [cache[number] for number in (1, 2, 1, 2)] == [2, 4, 2, 4]
    assert computed == [1, 2]
    assert [cache[number] for number in (3, 3, 1)] == [6, 6, 2]
    assert computed == [1, 2, 3, 1]
    assert len(cache) == 2
