"""Equal keys among many that may not fit in memory. Shape suffixes: N keys, M repeated keys."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from nmt.data.arrays import Hashes, Indices

MAX_IN_MEMORY = 5_000_000
"""Number of keys that are searched in memory at a time, which takes 200 MB. Fewer keys in all need
no database, which takes longer."""
MEMORY_LIMIT = "500MB"
REPEATED = """
WITH part AS MATERIALIZED (
    SELECT position, key FROM keys WHERE key % $num_parts::UBIGINT = $part::UBIGINT
)
SELECT position, first
FROM part JOIN (SELECT key, min(position) AS first FROM part GROUP BY key HAVING count(*) > 1)
USING (key)
WHERE position > first
"""
"""The positions in one of several parts of the keys that have an earlier one."""

Keys = tuple[Indices, Hashes]
"""Positions, [N], and their keys, [N]."""


def find_repeated(
    parts: Iterable[Keys], num_keys: int, scratch: Path, report: Callable[[int], object] = int
) -> Iterator[tuple[Indices, Indices]]:
    """Yield the positions whose key has an earlier position, [M], and the first position of the
    key, [M], in several pieces.

    Args:
        parts: the keys in order of position.
        num_keys: their number.
        scratch: path of a temporary database.
        report: called with numbers of keys; each counts twice, as it is read and searched.
    """
    if num_keys <= MAX_IN_MEMORY:
        yield _find_in_memory(list(parts))
        report(2 * num_keys)
        return
    import duckdb  # slow to import

    _delete(scratch)
    with duckdb.connect(scratch, config={"memory_limit": MEMORY_LIMIT}) as database:
        database.execute("SET preserve_insertion_order = false")
        database.execute("CREATE TABLE keys (position BIGINT, key UBIGINT)")
        for position_N, key_N in parts:
            database.register("part", {"position": position_N, "key": key_N})
            database.execute("INSERT INTO keys SELECT position, key FROM part")
            report(len(key_N))
        # Groups of all keys at once would need 22 bytes a key on disk beside the 7 of the table.
        num_parts = math.ceil(num_keys / MAX_IN_MEMORY)
        for part in range(num_parts):
            values = {"num_parts": num_parts, "part": part}
            rows = database.execute(REPEATED, values).fetchnumpy()
            report(num_keys // num_parts)
            yield rows["position"], rows["first"]
    _delete(scratch)


def _find_in_memory(parts: list[Keys]) -> tuple[Indices, Indices]:
    position_N = np.concatenate([np.zeros(0, np.int64), *(position for position, _ in parts)])
    key_N = np.concatenate([np.zeros(0, np.uint64), *(key for _, key in parts)])
    _, first, inverse_N = np.unique(key_N, return_index=True, return_inverse=True)
    first_N = position_N[first][inverse_N]
    is_repeated_N = first_N < position_N
    return position_N[is_repeated_N], first_N[is_repeated_N]


def _delete(database: Path) -> None:
    """Delete the files of a database, which may be those of a killed process."""
    for path in (database, database.with_name(f"{database.name}.wal")):
        path.unlink(missing_ok=True)
