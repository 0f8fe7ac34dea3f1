"""Exact duplicates among keys that may not fit in memory. Shape suffix: N keys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nmt.data.arrays import Bools

MAX_IN_MEMORY = 2_000_000
"""Number of keys that are sorted in memory: the first import of DuckDB takes longer."""
PARTITION_SIZE = 4_000_000
"""Keys that DuckDB groups together, in about 200 MB."""
KEY_BYTES = 8
MEMORY_LIMIT = "600MB"


def is_repeated(parts: Sequence[Path], scratch: Path) -> Bools:
    """Return whether each key is equal to an earlier one, [N].

    Args:
        parts: files of 64-bit hashes, whose keys count as one sequence.
        scratch: path of a temporary database.
    """
    num_keys = sum(path.stat().st_size for path in parts) // KEY_BYTES
    is_repeated_N = np.ones(num_keys, bool)
    if num_keys <= MAX_IN_MEMORY:
        if num_keys:
            keys = np.concatenate([np.fromfile(path, np.uint64) for path in parts])
            _, first = np.unique(keys, return_index=True)
            is_repeated_N[first] = False
        return is_repeated_N
    import duckdb  # slow to import

    scratch.unlink(missing_ok=True)
    with duckdb.connect(scratch, config={"memory_limit": MEMORY_LIMIT}) as database:
        database.execute("CREATE TABLE keys (key UBIGINT, position UBIGINT)")
        start = 0
        for path in parts:
            key_N = np.fromfile(path, np.uint64)
            end = start + len(key_N)
            position_N = np.arange(start, end, dtype=np.uint64)
            database.register("part", {"key": key_N, "position": position_N})
            database.execute("INSERT INTO keys SELECT key, position FROM part")
            start = end
        # Equal keys are in one partition, because their remainders are equal.
        num_partitions = 1 + num_keys // PARTITION_SIZE
        for remainder in range(num_partitions):
            firsts = database.execute(
                "SELECT min(position) AS first FROM keys WHERE key % ? = ? GROUP BY key",
                [num_partitions, remainder],
            ).fetchnumpy()
            is_repeated_N[firsts["first"]] = False
    scratch.unlink()
    return is_repeated_N
