"""Preparation of corpora shard by shard: text, cleaning, tokenizer and token ids.

    raw         text as it is read, by one process
    clean-K     text after the K-th segment of cleaning steps, with the keys of its deduplication
    dedup-K     which pairs are duplicates: a question to all shards
    tokenizer   trained on a sample of all shards
    encoded     token ids

Processes handle the shards of a stage side by side, and each result is a pure function of the
shard. A completed stage of a shard has a record, so an interrupted preparation continues after it.
"""

from __future__ import annotations

import json
import random
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.core.console import progress
from nmt.core.parts import Part
from nmt.core.paths import locked, write_bytes, write_text
from nmt.core.processes import Executor, Report
from nmt.data import shards
from nmt.data.arrays import Bools, Indices
from nmt.data.clean import Segment, dedup_key
from nmt.data.first_occurrences import Keys, find_repeated
from nmt.data.pairs import Pair
from nmt.data.placeholders import replace_spans
from nmt.data.shards import RAW, Shard, Splitter, UnfinishedPartsError
from nmt.data.sources.corpus import Split, total_pairs
from nmt.data.store import encode_shard
from nmt.text.tokenizers import load_tokenizer

if TYPE_CHECKING:
    from tqdm import tqdm

CHUNK_SIZE = 5_000
"""Pairs whose spans are replaced at a time."""
KEY_BYTES = 8
ENCODED = "encoded"


@dataclass(frozen=True)
class Text:
    """The text of a shard after a stage, without the duplicates that have been found since."""

    shard: Shard
    stage: str
    dedup: str = ""
    """The stage that found the duplicates; empty if there is none."""

    def read(self, report: Report = int) -> Iterator[Pair]:
        """Yield the pairs that are left, and report them in hundreds."""
        dropped = set(self._dropped().tolist())
        num_pairs = 0
        for i, pair in enumerate(self.shard.read_text(self.stage)):
            if i in dropped:
                continue
            num_pairs += 1
            if not num_pairs % 100:
                report(100)
            yield pair
        report(num_pairs % 100)

    @property
    def num_pairs(self) -> int:
        """Number of pairs that are left."""
        if self.stage == RAW:
            return self.shard.num_pairs
        num_pairs: int = self.shard.record(self.stage)["pairs"]
        return num_pairs - len(self._dropped())

    def _dropped(self) -> Indices:
        if not self.dedup:
            return np.zeros(0, np.int64)
        return np.fromfile(self.shard.path(self.dedup), np.int64)


# ---- Tasks: functions of one shard


def clean_shard(text: Text, report: Report = int, *, segment: Segment) -> None:
    """Write the text of a shard after a segment of cleaning steps, and delete the text before."""
    shard = text.shard
    stage = segment.stage
    if not shard.has(stage):
        pipeline = segment.pipeline(text.read(report))
        side = segment.dedup_side
        keys = array("Q")
        num_characters = 0

        def described() -> Iterator[Pair]:
            nonlocal num_characters
            for pair in pipeline:
                if side:
                    keys.append(dedup_key(pair, side))
                num_characters += len(pair[0]) + len(pair[1])
                yield pair

        num_pairs = shard.write_text(stage, described())
        write_bytes(_keys(shard, segment), keys.tobytes())
        record = {"pairs": num_pairs, "dropped": pipeline.dropped, "characters": num_characters}
        shard.write_record(stage, record)
    shard.delete_text(text.stage)


def _is_repeated(parts: Sequence[Path], scratch: Path) -> Bools:
    """Return whether each key of some files, which count as one sequence, has an earlier one."""
    num_keys = sum(path.stat().st_size for path in parts) // KEY_BYTES

    def read() -> Iterator[Keys]:
        end = 0
        for path in parts:
            start = end
            key_N = np.fromfile(path, np.uint64)
            end += len(key_N)
            yield np.arange(start, end), key_N

    is_repeated_N = np.zeros(num_keys, bool)
    with progress(2 * num_keys, "searching duplicates", " steps", unit_scale=True) as bar:
        for position_M, _ in find_repeated(read(), num_keys, scratch, bar.update):
            is_repeated_N[position_M] = True
    return is_repeated_N


def _keys(shard: Shard, segment: Segment) -> Path:
    """Return the file of the keys that the deduplication after a segment compares."""
    return shard.path(f"keys-{segment.index}")


def sample_shard(
    text: Text, report: Report = int, *, shares: Sequence[float], has_placeholders: bool
) -> tuple[list[str], list[str]]:
    """Return sampled sources and targets of a shard, given the share of each shard."""
    index = text.shard.index
    share = shares[index]
    rng = random.Random(index)
    sources: list[str] = []
    targets: list[str] = []
    for source, target in _final(text.read(report), has_placeholders):
        if share >= 1 or rng.random() < share:
            sources.append(source)
        if share >= 1 or rng.random() < share:
            targets.append(target)
    return sources, targets


def encode_text(
    text: Text, report: Report = int, *, tokenizer: Path, has_placeholders: bool
) -> None:
    """Write the token ids of a shard, and delete its text."""
    shard = text.shard
    if not shard.has(ENCODED):
        pairs = _final(text.read(report), has_placeholders)
        encoded = encode_shard(shard, pairs, _tokenizer(tokenizer))
        shard.write_record(ENCODED, asdict(encoded))
    shard.delete_text(text.stage)


_tokenizer = lru_cache(maxsize=1)(load_tokenizer)


def _final(pairs: Iterator[Pair], has_placeholders: bool) -> Iterator[Pair]:
    """Yield pairs as they are tokenized."""
    if not has_placeholders:
        return pairs
    chunks = iter(lambda: list(islice(pairs, CHUNK_SIZE)), [])
    return chain.from_iterable(map(replace_spans, chunks))


# ---- Stages: all shards


@dataclass
class Pipeline:
    """The stages of the shards of one split in a directory."""

    directory: Path
    name: str
    """The split, `train` or `valid`."""
    executor: Executor
    part: Part
    """The shards that this machine handles."""

    def __post_init__(self) -> None:
        self._splitter = Splitter(self.directory, self.name, self.part, shards.SHARD_SIZE)

    @property
    def corpora(self) -> list[list[Shard]]:
        """The shards of each corpus, once they have been read."""
        return self._splitter.corpora

    @property
    def is_encoded(self) -> bool:
        """Whether all shards have their token ids."""
        return self._splitter.is_complete(ENCODED)

    def sizes(self, texts: Sequence[Text]) -> list[int]:
        """Return the number of pairs of each corpus in its texts."""
        num_pairs = iter([text.num_pairs for text in texts])
        return [sum(islice(num_pairs, len(shards))) for shards in self.corpora]

    def records(self, stage: str) -> list[Any]:
        """Return the records of all shards after a stage."""
        return [shard.record(stage) for shard in self._splitter.shards]

    def read(self, splits: Sequence[Split]) -> list[Text]:
        """Write the text of corpora, and return it."""
        readers = [split.pairs() for split in splits]
        for _ in self._splitter.split(readers, ENCODED):
            pass
        return self._texts(RAW)

    def clean(self, splits: Sequence[Split], segments: Sequence[Segment]) -> list[Text]:
        """Write the text of corpora after cleaning, and return it.

        Raises:
            UnfinishedPartsError: other machines have not finished their shards.
        """
        first = segments[0]
        if not self._splitter.is_complete(first.stage, self.part):
            self._read_and_clean(splits, first)
        texts = self._finish(first.stage)
        for before, segment in pairwise(segments):
            texts = self._drop_duplicates(texts, before)
            if segment.specs or segment.dedup:
                clean = partial(clean_shard, segment=segment)
                texts = self._compute(clean, texts, segment.stage, "cleaning")
        return texts

    def sample(
        self, texts: Sequence[Text], shares: Sequence[float], has_placeholders: bool
    ) -> Iterator[str]:
        """Yield a share of the sentences of each text: of all shards, because a machine trains the
        tokenizer for all."""
        sample = partial(sample_shard, shares=shares, has_placeholders=has_placeholders)
        targets: list[str] = []
        with _progress(texts, "sampling") as bar:
            for sources, sampled in self.executor.map(sample, texts, bar.update):
                yield from sources
                targets += sampled
        yield from targets

    def encode(self, texts: Sequence[Text], tokenizer: Path, has_placeholders: bool) -> None:
        """Write the token ids of texts.

        Raises:
            UnfinishedPartsError: other machines have not finished their shards.
        """
        encode = partial(encode_text, tokenizer=tokenizer, has_placeholders=has_placeholders)
        self._compute(encode, texts, ENCODED, "tokenizing")

    def dropped(self, segments: Sequence[Segment]) -> dict[str, int]:
        """Return the number of pairs that each cleaning step has dropped."""
        dropped: Counter[str] = Counter()
        for segment in segments:
            for shard in self._splitter.shards:
                if shard.has(segment.stage):
                    dropped.update(shard.record(segment.stage)["dropped"])
            if segment.dedup:
                dropped[segment.dedup] += json.loads(
                    self._duplicates(segment).read_text(encoding="utf-8")
                )
        return dict(dropped)

    def _read_and_clean(self, splits: Sequence[Split], segment: Segment) -> None:
        # Opened before the progress bar: a corpus that holds out validation pairs is read here.
        readers = [split.pairs() for split in splits]
        with progress(total_pairs(splits), "cleaning", " pairs", unit_scale=True) as bar:
            shards = self._splitter.split(readers, segment.stage, bar.update)
            texts = (Text(shard, RAW) for shard in shards)
            clean = partial(clean_shard, segment=segment)
            for _ in self.executor.map(clean, texts, bar.update):
                pass

    def _drop_duplicates(self, texts: Sequence[Text], segment: Segment) -> list[Text]:
        """Find the duplicates of all shards, and return the texts without them."""
        stage = f"dedup-{segment.index}"
        done = self._duplicates(segment)
        with locked(self.directory / ".dedup.lock", busy=lambda: None):
            if not done.is_file():
                keys = [_keys(text.shard, segment) for text in texts]
                is_repeated_N = _is_repeated(keys, self.directory / "keys.db")
                end = 0
                for text in texts:
                    start = end
                    end += text.num_pairs
                    dropped = np.flatnonzero(is_repeated_N[start:end])
                    write_bytes(text.shard.path(stage), dropped.tobytes())
                write_text(done, str(int(is_repeated_N.sum())))
                for path in keys:
                    path.unlink()
        return [replace(text, dedup=stage) for text in texts]

    def _duplicates(self, segment: Segment) -> Path:
        """Return the file with the number of duplicates, which is written after all shards."""
        return self.directory / f"{self.name}-dedup-{segment.index}.json"

    def _compute(
        self, function: Callable[..., object], texts: Sequence[Text], stage: str, name: str
    ) -> list[Text]:
        """Call a function with the texts of this machine, and return those of the stage that it
        completes."""
        own = [text for text in texts if self.part.has(text.shard.index)]
        with _progress(own, name) as bar:
            for _ in self.executor.map(function, own, bar.update):
                pass
        return self._finish(stage)

    def _finish(self, stage: str) -> list[Text]:
        """Return the texts of a stage that all machines have completed."""
        if not self._splitter.is_complete(stage):
            raise UnfinishedPartsError
        return self._texts(stage)

    def _texts(self, stage: str) -> list[Text]:
        return [Text(shard, stage) for shard in self._splitter.shards]


def _progress(texts: Sequence[Text], name: str) -> tqdm[Any]:
    num_pairs = sum(text.num_pairs for text in texts)
    return progress(num_pairs, name, " pairs", unit_scale=True)
