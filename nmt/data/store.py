"""The prepared corpus on disk: memory-mapped token ids in shards.

A shard has three kinds of files: `ids` (the ids of source and target of each pair in turn), `ends`
(where the source and the target of each pair end in them) and `text` with `lines`: the sentences
that differ from what the tokenizer decodes from their ids. Text is not stored otherwise. Only the
pages that are read occupy memory, once for all processes of a machine. Shape suffix: N pairs of a
shard.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt.core.errors import DataError
from nmt.core.paths import new_file
from nmt.data.arrays import Indices, Integers
from nmt.data.pairs import Pair
from nmt.data.shards import Shard
from nmt.text.tokenizer import Tokenizer

VERSION = 6
"""Part of every fingerprint. Increase it when the file format changes, or when cleaning,
placeholders or tokenization give another result for the same options."""
CHUNK_SIZE = 10_000
"""Pairs tokenized at a time."""
LINE = np.dtype([("sentence", "<u4"), ("end", "<u8")])
"""A sentence that is stored as text: its number in the shard, sources being even and targets odd,
and where it ends."""

Tokens = NDArray[np.unsignedinteger[Any]]


def id_type(vocab_size: int) -> type[np.unsignedinteger[Any]]:
    """Return the type of token ids on disk."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


class StoredShard:
    """The pairs of a shard."""

    def __init__(self, shard: Shard, tokenizer: Tokenizer) -> None:
        """Map the files of a shard.

        Raises:
            DataError: a file is missing or has the wrong size.
        """
        self._tokenizer = tokenizer
        try:
            self._ids = _map(shard.path("ids"), id_type(len(tokenizer)))
            self._ends_N2 = _map(shard.path("ends"), np.uint32).reshape(-1, 2)
            self._text = _map(shard.path("text"), np.uint8)
            self._lines = _map(shard.path("lines"), LINE)
        except (OSError, ValueError) as error:
            raise _damaged(shard, f"is corrupted: {error}") from None
        num_ids = int(self._ends_N2[-1, 1]) if len(self) else 0
        num_bytes = int(self._lines["end"][-1]) if len(self._lines) else 0
        if (num_ids, num_bytes) != (len(self._ids), len(self._text)):
            raise _damaged(shard, "is truncated or was modified")
        if len(self) != shard.num_pairs:
            raise _damaged(shard, f"has {len(self):,} pairs instead of {shard.num_pairs:,}")

    def __len__(self) -> int:
        return len(self._ends_N2)

    def ids(self, i: int) -> tuple[Tokens, Tokens]:
        """Return the token ids of source and target of a pair."""
        start = self._ends_N2[i - 1, 1] if i else 0
        middle, end = self._ends_N2[i]
        return self._ids[start:middle], self._ids[middle:end]

    def text(self, i: int, side: int) -> str:
        """Return the source (0) or target (1) of a pair."""
        sentence = 2 * i + side
        line = int(np.searchsorted(self._lines["sentence"], sentence))
        if line < len(self._lines) and self._lines["sentence"][line] == sentence:
            start = self._lines["end"][line - 1] if line else 0
            end = self._lines["end"][line]
            return bytes(self._text[start:end]).decode()
        return self._tokenizer.decode(self.ids(i)[side].tolist())

    def lengths_N2(self) -> Integers:
        """Return the numbers of source and target tokens of all pairs."""
        ends = self._ends_N2.ravel()
        lengths = np.diff(ends, prepend=np.uint32(0))
        return lengths.astype(np.int32).reshape(-1, 2)


class Store:
    """The sentence pairs of one split of prepared data, numbered over all shards."""

    def __init__(self, shards: Sequence[StoredShard]) -> None:
        self.shards = shards
        self.starts = list(accumulate(map(len, self.shards), initial=0))
        """The number of the first pair of each shard, and that of all pairs."""

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, i: int) -> tuple[Tokens, Tokens]:
        shard, place = self._find(i)
        return shard.ids(place)

    def source(self, i: int) -> str:
        """Return the source of a pair."""
        shard, place = self._find(i)
        return shard.text(place, 0)

    def target(self, i: int) -> str:
        """Return the target of a pair."""
        shard, place = self._find(i)
        return shard.text(place, 1)

    def pairs(self) -> Iterator[Pair]:
        """Yield the text of all pairs."""
        for i in range(len(self)):
            yield self.source(i), self.target(i)

    def by_shard(self, pair_ids_N: Indices) -> Iterator[tuple[int, Indices, Indices]]:
        """Yield the index of each shard that has some of the pairs, their places in `pair_ids_N`,
        and their numbers in the shard."""
        shard_N = np.searchsorted(self.starts, pair_ids_N, side="right") - 1
        for shard in np.unique(shard_N).tolist():
            places = np.flatnonzero(shard_N == shard)
            yield shard, places, pair_ids_N[places] - self.starts[shard]

    def lengths_of(self, pair_ids_N: Indices) -> Integers:
        """Return the numbers of source and target tokens of some pairs, [N, 2]."""
        lengths_N2 = np.zeros((len(pair_ids_N), 2), np.int32)
        for shard, places, pairs in self.by_shard(pair_ids_N):
            lengths_N2[places] = self.shards[shard].lengths_N2()[pairs]
        return lengths_N2

    @cached_property
    def lengths_N2(self) -> Integers:
        """The numbers of source and target tokens of all pairs, for small splits."""
        lengths = [shard.lengths_N2() for shard in self.shards]
        return np.concatenate([np.zeros((0, 2), np.int32), *lengths])

    def _find(self, i: int) -> tuple[StoredShard, int]:
        index = bisect_right(self.starts, i) - 1
        return self.shards[index], i - self.starts[index]


@dataclass
class EncodedShard:
    """What `encode_shard` has written."""

    num_pairs: int = 0
    num_ids: int = 0
    num_lines: int = 0
    """Sentences that are stored as text."""
    sha256: str = ""
    """Checksum of the ids."""


def encode_shard(shard: Shard, pairs: Iterable[Pair], tokenizer: Tokenizer) -> EncodedShard:
    """Tokenize pairs into the files of a shard."""
    encoded = EncodedShard()
    checksum = hashlib.sha256()
    dtype = id_type(len(tokenizer))
    num_bytes = 0
    rest = iter(pairs)
    with (
        new_file(shard.path("ids")) as ids_path,
        new_file(shard.path("ends")) as ends_path,
        new_file(shard.path("text")) as text_path,
        new_file(shard.path("lines")) as lines_path,
        ids_path.open("wb") as ids_file,
        ends_path.open("wb") as ends_file,
        text_path.open("wb") as text_file,
        lines_path.open("wb") as lines_file,
    ):
        while chunk := list(islice(rest, CHUNK_SIZE)):
            sources, targets = map(list, zip(*chunk, strict=True))
            source_rows = tokenizer.encode_batch(sources)
            target_rows = tokenizer.encode_batch(targets, target=True)
            rows = list(_alternating(source_rows, target_rows))
            ids = np.fromiter(chain.from_iterable(rows), dtype)
            lengths = np.fromiter(map(len, rows), np.int64)
            ends = encoded.num_ids + lengths.cumsum()
            content = ids.tobytes()
            checksum.update(content)
            ids_file.write(content)
            ends_file.write(ends.astype(np.uint32).tobytes())
            # Most sentences are what is decoded from their ids.
            decoded = tokenizer.decode_batch(rows)
            for i, sentence in enumerate(_alternating(sources, targets)):
                if sentence != decoded[i]:
                    line = sentence.encode("utf-8", "replace")
                    num_bytes += len(line)
                    number = 2 * encoded.num_pairs + i
                    text_file.write(line)
                    lines_file.write(np.array((number, num_bytes), LINE).tobytes())
                    encoded.num_lines += 1
            encoded.num_ids += len(ids)
            encoded.num_pairs += len(chunk)
    encoded.sha256 = checksum.hexdigest()
    return encoded


def _alternating(first: Sequence[Any], second: Sequence[Any]) -> Iterator[Any]:
    return chain.from_iterable(zip(first, second, strict=True))


def _map(path: Path, dtype: Any) -> NDArray[Any]:
    """Map a file; an empty one cannot be mapped."""
    if not path.stat().st_size:
        return np.empty(0, dtype)
    mapped = np.memmap(path, dtype, mode="r")
    return np.asarray(mapped)  # slices of a memmap object take ten times as long


def _damaged(shard: Shard, problem: str) -> DataError:
    hint = "delete its directory and re-run the command"
    return DataError(f"prepared text {shard.path('ids')} {problem}", hint)
