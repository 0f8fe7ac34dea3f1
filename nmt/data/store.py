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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, islice
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from nmt.core.errors import DataError
from nmt.core.paths import new_file
from nmt.data.arrays import Indices, Integers, map_file, release
from nmt.data.pairs import Pair
from nmt.data.shards import Shard
from nmt.text.tokenizer import Tokenizer

VERSION = 6
"""Part of every fingerprint. Increase it when the file format changes, or when cleaning,
placeholders or tokenization give another result for the same options."""
CHUNK_SIZE = 10_000
"""Pairs tokenized at a time."""
SUFFIXES = ("ids", "ends", "text", "lines")
"""Suffixes of the files of a shard."""
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
        dtype = id_type(len(tokenizer))
        try:
            self._ids = map_file(shard.path("ids"), dtype)
            ends = map_file(shard.path("ends"), np.uint32)
            self._ends_N2 = ends.reshape(-1, 2)
            self._text = _StoredText(shard)
        except (OSError, ValueError) as error:
            raise _damaged(shard, f"is corrupted: {error}") from None
        is_complete = _last(ends) == len(self._ids)
        if not is_complete or not self._text.is_complete:
            raise _damaged(shard, "is truncated or was modified")
        if len(self) != shard.num_pairs:
            raise _damaged(shard, f"has {len(self):,} pairs instead of {shard.num_pairs:,}")

    def __len__(self) -> int:
        return len(self._ends_N2)

    def ids(self, i: int) -> tuple[Tokens, Tokens]:
        """Return the token ids of source and target of a pair."""
        start = 0
        if i:
            start = self._ends_N2[i - 1, 1]
        middle, end = self._ends_N2[i]
        source = self._ids[start:middle]
        target = self._ids[middle:end]
        return source, target

    def text(self, i: int, side: int) -> str:
        """Return the source (0) or target (1) of a pair."""
        stored = self._text.get(2 * i + side)
        if stored is not None:
            return stored
        ids = self.ids(i)[side]
        return self._tokenizer.decode(ids.tolist())

    def release(self) -> None:
        """Give the memory of the token ids and lengths back."""
        release(self._ids)
        release(self._ends_N2)

    def lengths_N2(self) -> Integers:
        """Return the numbers of source and target tokens of all pairs."""
        ends = self._ends_N2.ravel()
        first = np.zeros(1, np.uint32)
        lengths = np.diff(ends, prepend=first)
        lengths_N2 = lengths.reshape(-1, 2)
        return lengths_N2.astype(np.int32)


class _StoredText:
    """The sentences of a shard that are stored as text."""

    def __init__(self, shard: Shard) -> None:
        self._text = map_file(shard.path("text"), np.uint8)
        lines = map_file(shard.path("lines"), LINE)
        self._numbers = lines["sentence"]
        self._ends = lines["end"]

    @property
    def is_complete(self) -> bool:
        """Whether the text is as long as its lines say."""
        return _last(self._ends) == len(self._text)

    def get(self, number: int) -> str | None:
        """Return the sentence of this number; None if it is not stored."""
        line = int(np.searchsorted(self._numbers, number))
        if line == len(self._numbers):
            return None
        if self._numbers[line] != number:
            return None
        start = 0
        if line:
            start = self._ends[line - 1]
        end = self._ends[line]
        stored = self._text[start:end].tobytes()
        return stored.decode()


class Store:
    """The sentence pairs of one split of prepared data, numbered over all shards."""

    def __init__(self, shards: Sequence[StoredShard]) -> None:
        self.shards = shards
        sizes = map(len, shards)
        self.starts = list(accumulate(sizes, initial=0))
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

    def release(self) -> None:
        """Give the memory of all shards back."""
        for shard in self.shards:
            shard.release()

    def by_shard(self, pair_ids_N: Indices) -> Iterator[tuple[int, Indices, Indices]]:
        """Yield the index of each shard that has some of the pairs, their places in `pair_ids_N`,
        and their numbers in the shard."""
        shard_N = np.searchsorted(self.starts, pair_ids_N, side="right") - 1
        for shard in np.unique(shard_N).tolist():
            places = np.flatnonzero(shard_N == shard)
            numbers = pair_ids_N[places] - self.starts[shard]
            yield shard, places, numbers

    def lengths_of(self, pair_ids_N: Indices) -> Integers:
        """Return the numbers of source and target tokens of some pairs, [N, 2]."""
        lengths_N2 = np.zeros((len(pair_ids_N), 2), np.int32)
        for shard, places, pairs in self.by_shard(pair_ids_N):
            of_shard_N2 = self.shards[shard].lengths_N2()
            lengths_N2[places] = of_shard_N2[pairs]
        return lengths_N2

    @cached_property
    def lengths_N2(self) -> Integers:
        """The numbers of source and target tokens of all pairs, for small splits."""
        lengths: list[Integers] = [np.zeros((0, 2), np.int32)]
        for shard in self.shards:
            lengths.append(shard.lengths_N2())
        return np.concatenate(lengths)

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
    rest = iter(pairs)
    with ExitStack() as stack:
        files = {}
        for suffix in SUFFIXES:
            path = shard.path(suffix)
            work = stack.enter_context(new_file(path))
            files[suffix] = stack.enter_context(work.open("wb"))
        writer = _Writer(files, tokenizer)
        while chunk := list(islice(rest, CHUNK_SIZE)):
            writer.write(chunk)
    writer.encoded.sha256 = writer.checksum.hexdigest()
    return writer.encoded


class _Writer:
    """Writes the files of a shard."""

    def __init__(self, files: Mapping[str, BinaryIO], tokenizer: Tokenizer) -> None:
        self._files = files
        self._tokenizer = tokenizer
        self._dtype = id_type(len(tokenizer))
        self._num_bytes = 0
        self.encoded = EncodedShard()
        self.checksum = hashlib.sha256()

    def write(self, pairs: Sequence[Pair]) -> None:
        """Write the next pairs."""
        sources = [source for source, _ in pairs]
        targets = [target for _, target in pairs]
        source_rows = self._tokenizer.encode_batch(sources)
        target_rows = self._tokenizer.encode_batch(targets, target=True)
        rows = _alternate(source_rows, target_rows)
        sentences = _alternate(sources, targets)
        self._write_ids(rows)
        self._write_text(sentences, rows)
        self.encoded.num_pairs += len(pairs)

    def _write_ids(self, rows: Sequence[Sequence[int]]) -> None:
        joined = chain.from_iterable(rows)
        ids = np.fromiter(joined, self._dtype)
        lengths = np.fromiter(map(len, rows), np.int64)
        ends = self.encoded.num_ids + lengths.cumsum()
        ends = ends.astype(np.uint32)
        content = ids.tobytes()
        self.checksum.update(content)
        self._files["ids"].write(content)
        self._files["ends"].write(ends.tobytes())
        self.encoded.num_ids += len(ids)

    def _write_text(self, sentences: Sequence[str], rows: Sequence[list[int]]) -> None:
        """Write the sentences that the tokenizer does not decode from their ids."""
        first = 2 * self.encoded.num_pairs
        decoded = self._tokenizer.decode_batch(rows)
        for i, sentence in enumerate(sentences):
            if sentence == decoded[i]:
                continue
            line = sentence.encode("utf-8", "replace")
            self._num_bytes += len(line)
            number = first + i
            entry = np.array((number, self._num_bytes), LINE)
            self._files["text"].write(line)
            self._files["lines"].write(entry.tobytes())
            self.encoded.num_lines += 1


def _alternate(sources: Sequence[Any], targets: Sequence[Any]) -> list[Any]:
    """Return source and target of each pair in turn."""
    pairs = zip(sources, targets, strict=True)
    return list(chain.from_iterable(pairs))


def _last(ends: NDArray[Any]) -> int:
    return int(ends[-1]) if len(ends) else 0


def _damaged(shard: Shard, problem: str) -> DataError:
    hint = "delete its directory and re-run the command"
    return DataError(f"prepared text {shard.path('ids')} {problem}", hint)
