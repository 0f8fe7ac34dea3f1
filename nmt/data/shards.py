"""Shards: parts of corpora of about a million pairs, which processes and machines handle one by
one.

A shard has pairs of one corpus. Its text is compressed, in a file for each language. What is known
of a shard after a stage is in a record, a JSON file that is written last: a stage with a record is
complete, so an interrupted command continues with the first shard that has none.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any, TextIO

from nmt.core.compression import zstd
from nmt.core.parts import Part
from nmt.core.paths import write_text
from nmt.data.pairs import Pair, write_pairs

SHARD_SIZE = 1_000_000
"""Pairs of a shard before cleaning."""
MAX_CHARACTERS = 1_000_000_000
"""Characters of a shard, for which 32 bits can number the tokens."""
RAW = "raw"
"""The stage of text that has been read."""


ALL_SHARDS = Part()


class UnfinishedPartsError(Exception):
    """Other machines have not finished a stage of their shards."""


@dataclass(frozen=True)
class Shard:
    """Files of a shard in a directory."""

    directory: Path
    name: str
    """What the shards are, such as `train`."""
    index: int
    num_pairs: int = 0
    """Pairs before cleaning; 0 if they are not known yet."""

    @property
    def stem(self) -> str:
        """Begin of the names of its files."""
        return f"{self.name}-{self.index:05}"

    def path(self, suffix: str) -> Path:
        """Return the path of one of its files."""
        return self.directory / f"{self.stem}.{suffix}"

    def texts(self, stage: str) -> tuple[Path, Path]:
        """Return the files of its text after a stage."""
        return self.path(f"{stage}.source.zst"), self.path(f"{stage}.target.zst")

    def write_text(self, stage: str, pairs: Iterable[Pair]) -> int:
        """Write the text after a stage, and return the number of pairs."""
        return write_pairs(*self.texts(stage), pairs)

    def read_text(self, stage: str) -> Iterator[Pair]:
        """Yield the pairs after a stage."""
        src, tgt = self.texts(stage)
        with _open_text(src) as sources, _open_text(tgt) as targets:
            for source, target in zip(sources, targets, strict=True):
                yield source[:-1], target[:-1]

    def delete_text(self, stage: str) -> None:
        """Delete the text after a stage."""
        for path in self.texts(stage):
            path.unlink(missing_ok=True)

    def has(self, stage: str) -> bool:
        """Return whether a stage is complete."""
        return self.path(f"{stage}.json").is_file()

    def record(self, stage: str) -> Any:
        """Return the record of a complete stage."""
        return json.loads(self.path(f"{stage}.json").read_text(encoding="utf-8"))

    def write_record(self, stage: str, record: object) -> None:
        """Mark a stage as complete."""
        write_text(self.path(f"{stage}.json"), json.dumps(record))


class Splitter:
    """Divides corpora into shards, and writes the text of those that are needed."""

    def __init__(self, directory: Path, name: str, part: Part, shard_size: int) -> None:
        self._directory = directory
        self._name = name
        self._part = part
        self._shard_size = shard_size

    @property
    def _record(self) -> Path:
        return self._directory / f"{self._name}.json"

    def is_complete(self, stage: str, part: Part = ALL_SHARDS) -> bool:
        """Return whether all pairs have been read once, and all shards of a part have completed a
        stage."""
        if not self._record.is_file():
            return False
        return all(shard.has(stage) for shard in self.shards if part.has(shard.index))

    @property
    def corpora(self) -> list[list[Shard]]:
        """The shards of each corpus, once all pairs have been read."""
        index = count()
        corpora: list[list[Shard]] = []
        for sizes in json.loads(self._record.read_text(encoding="utf-8")):
            corpora.append([Shard(self._directory, self._name, next(index), n) for n in sizes])
        return corpora

    @property
    def shards(self) -> list[Shard]:
        """The shards of all corpora, once all pairs have been read."""
        return list(chain.from_iterable(self.corpora))

    def split(
        self,
        corpora: Iterable[Iterable[Pair]],
        stage: str,
        skipped: Callable[[int], object] = int,
    ) -> Iterator[Shard]:
        """Write and yield the shards of this part that have not completed a stage.

        Args:
            corpora: the pairs of each corpus.
            stage: the stage after which the text of a shard is no longer needed.
            skipped: called with the number of pairs of each shard that has completed it.
        """
        index = 0
        all_sizes: list[list[int]] = []
        for corpus in corpora:
            sizes: list[int] = []
            all_sizes.append(sizes)
            pairs = iter(corpus)
            # A shard is begun only if there is a pair for it.
            while first := next(pairs, None):
                shard = Shard(self._directory, self._name, index)
                content = _take_shard(first, pairs, self._shard_size)
                is_own = self._part.has(index)
                if is_own and not shard.has(stage):
                    num_pairs = shard.write_text(RAW, content)
                    yield replace(shard, num_pairs=num_pairs)
                else:
                    num_pairs = sum(1 for _ in content)
                    if is_own:
                        skipped(num_pairs)
                sizes.append(num_pairs)
                index += 1
        write_text(self._record, json.dumps(all_sizes))


def _take_shard(pair: Pair, rest: Iterator[Pair], shard_size: int) -> Iterator[Pair]:
    """Yield a pair and the next ones until a shard is full."""
    yield pair
    num_pairs = 1
    num_characters = sum(map(len, pair))
    while num_pairs < shard_size and num_characters < MAX_CHARACTERS:
        following = next(rest, None)
        if following is None:
            return
        yield following
        num_pairs += 1
        num_characters += sum(map(len, following))


def _open_text(path: Path) -> TextIO:
    """Open the text of a shard, whose lines end in `\\n` only."""
    return zstd.open(path, "rt", encoding="utf-8", newline="\n")
