"""Equal keys among many that may not fit in memory. Shape suffixes: N keys, M repeated keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from nmt.data.arrays import Hashes, Indices

MAX_IN_MEMORY = 5_000_000
"""Number of keys that are sorted in memory, which takes 200 MB; DuckDB takes longer for few."""
MEMORY_LIMIT = "500MB"
NUM_FETCHED = 2_000_000
"""Rows of a result that are in memory at a time."""

Keys = tuple[Indices, Hashes]
"""Positions, [N], and their keys, [N]."""


def find_repeated(
    parts: Iterable[Keys], num_keys: int, scratch: Path
) -> Iterator[tuple[Indices, Indices]]:
    """Yield the positions whose key has an earlier position, [M], and the first position of the
    key, [M], in several pieces.

    Args:
        parts: the keys in order of position.
        num_keys: their number.
        scratch: path of a temporary database.
    """
    if num_keys <= MAX_IN_MEMORY:
        yield _find_in_memory(list(parts))
        return
    import duckdb  # slow to import

    _delete(scratch)
    with duckdb.connect(scratch, config={"memory_limit": MEMORY_LIMIT}) as database:
        database.execute("SET preserve_insertion_order = false")
        database.execute("CREATE TABLE keys (position BIGINT, key UBIGINT)")
        for position_N, key_N in parts:
            database.register("part", {"position": position_N, "key": key_N})
            database.execute("INSERT INTO keys SELECT position, key FROM part")
        database.execute(
            "CREATE TABLE repeated AS SELECT position, first FROM keys JOIN"
            " (SELECT key, min(position) AS first FROM keys GROUP BY key HAVING count(*) > 1)"
            " USING (key) WHERE position > first"
        )
        (num_repeated,) = database.execute("SELECT count(*) FROM repeated").fetchone() or (0,)
        for start in range(0, num_repeated, NUM_FETCHED):
            rows = database.execute(
                "SELECT position, first FROM repeated WHERE rowid >= ? AND rowid < ?",
                [start, start + NUM_FETCHED],
            ).fetchnumpy()
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
