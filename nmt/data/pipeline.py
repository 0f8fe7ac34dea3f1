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
from functools import lru_cache
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nmt.core.console import progress
from nmt.core.paths import locked, write_bytes, write_text
from nmt.core.processes import Executor, Report
from nmt.data import shards
from nmt.data.arrays import Bools
from nmt.data.clean import Segment, dedup_key
from nmt.data.first_occurrences import Keys, find_repeated
from nmt.data.pairs import Pair
from nmt.data.placeholders import replace_spans
from nmt.data.shards import ALL_SHARDS, RAW, Part, Shard, Splitter, UnfinishedPartsError
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

    def read(self) -> Iterator[Pair]:
        """Yield the pairs that are left."""
        pairs = self.shard.read_text(self.stage)
        if not self.dedup:
            return pairs
        dropped = set(self._dropped().tolist())
        return (pair for i, pair in enumerate(pairs) if i not in dropped)

    @property
    def num_pairs(self) -> int:
        """Number of pairs that are left."""
        if self.stage == RAW:
            return self.shard.num_pairs
        num_pairs: int = self.shard.record(self.stage)["pairs"]
        if self.dedup:
            num_pairs -= len(self._dropped())
        return num_pairs

    def delete(self) -> None:
        """Delete the text."""
        self.shard.delete_text(self.stage)

    def _dropped(self) -> Any:
        return np.fromfile(self.shard.path(self.dedup), np.int64)


# ---- Tasks: functions of one shard


@dataclass(frozen=True)
class CleaningTask:
    """Apply a segment of cleaning steps to a shard."""

    text: Text
    segment: Segment

    @property
    def num_pairs(self) -> int:
        """Number of pairs before."""
        return self.text.num_pairs


def clean_shard(task: CleaningTask, report: Report = int) -> Text:
    """Write the text of a shard after some cleaning steps, and delete the text before."""
    shard = task.text.shard
    segment = task.segment
    stage = segment.stage
    if shard.record(stage) is None:
        pipeline = segment.pipeline(_reported(task.text.read(), report))
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
    task.text.delete()
    return Text(shard, stage)


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


def _reported(pairs: Iterator[Pair], report: Report) -> Iterator[Pair]:
    """Yield pairs, and report them in hundreds."""
    number = 0
    for number, pair in enumerate(pairs, 1):
        if not number % 100:
            report(100)
        yield pair
    report(number % 100)


@dataclass(frozen=True)
class SamplingTask:
    """Sample the sentences of a shard for the training of a tokenizer."""

    text: Text
    share: float
    """Share of the sentences that are taken."""
    has_placeholders: bool

    @property
    def num_pairs(self) -> int:
        """Number of pairs to read."""
        return self.text.num_pairs


def sample_shard(task: SamplingTask, report: Report = int) -> tuple[list[str], list[str]]:
    """Return sampled sources and targets of a shard."""
    rng = random.Random(task.text.shard.index)
    sources: list[str] = []
    targets: list[str] = []
    for source, target in _final(_reported(task.text.read(), report), task.has_placeholders):
        if task.share >= 1 or rng.random() < task.share:
            sources.append(source)
        if task.share >= 1 or rng.random() < task.share:
            targets.append(target)
    return sources, targets


@dataclass(frozen=True)
class EncodingTask:
    """Tokenize a shard."""

    text: Text
    tokenizer: Path
    has_placeholders: bool

    @property
    def num_pairs(self) -> int:
        """Number of pairs to tokenize."""
        return self.text.num_pairs


def encode_text(task: EncodingTask, report: Report = int) -> None:
    """Write the token ids of a shard, and delete its text."""
    shard = task.text.shard
    if shard.record(ENCODED) is None:
        pairs = _final(_reported(task.text.read(), report), task.has_placeholders)
        encoded = encode_shard(shard, pairs, _tokenizer(task.tokenizer))
        shard.write_record(ENCODED, asdict(encoded))
    task.text.delete()


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
        return self._splitter.is_complete and self._is_complete(ENCODED, ALL_SHARDS)

    def sizes(self, texts: Sequence[Text]) -> list[int]:
        """Return the number of pairs of each corpus in its texts."""
        num_pairs = iter([text.num_pairs for text in texts])
        return [sum(islice(num_pairs, len(shards))) for shards in self.corpora]

    def records(self, stage: str) -> list[Any]:
        """Return the records of all shards after a stage."""
        return [shard.record(stage) for shard in self._shards()]

    def read(self, splits: Sequence[Split]) -> list[Text]:
        """Write the text of corpora, and return it."""
        readers = [split.pairs() for split in splits]
        for _ in self._splitter.split(readers, lambda shard: shard.record(ENCODED) is not None):
            pass
        return self._texts(RAW)

    def clean(self, splits: Sequence[Split], segments: Sequence[Segment]) -> list[Text]:
        """Write the text of corpora after cleaning, and return it.

        Raises:
            UnfinishedPartsError: other machines have not finished their shards.
        """
        first = segments[0]
        if not self._splitter.is_complete or not self._is_complete(first.stage, self.part):
            self._read_and_clean(splits, first)
        texts = self._finish(first.stage)
        for before, segment in pairwise(segments):
            texts = self._drop_duplicates(texts, before)
            if segment.specs or segment.dedup:
                tasks = [CleaningTask(text, segment) for text in self._own(texts)]
                self._compute(clean_shard, tasks, "cleaning")
                texts = self._finish(segment.stage)
        return texts

    def sample(
        self, texts: Sequence[Text], shares: Sequence[float], has_placeholders: bool
    ) -> Iterator[str]:
        """Yield a share of the sentences of each text: of all shards, because a machine trains the
        tokenizer for all."""
        tasks = [
            SamplingTask(text, share, has_placeholders)
            for text, share in zip(texts, shares, strict=True)
        ]
        targets: list[str] = []
        with self._progress(tasks, "sampling") as bar:
            for sources, sampled in self.executor.map(sample_shard, tasks, bar.update):
                yield from sources
                targets += sampled
        yield from targets

    def encode(self, texts: Sequence[Text], tokenizer: Path, has_placeholders: bool) -> None:
        """Write the token ids of texts.

        Raises:
            UnfinishedPartsError: other machines have not finished their shards.
        """
        tasks = [EncodingTask(text, tokenizer, has_placeholders) for text in self._own(texts)]
        self._compute(encode_text, tasks, "tokenizing")
        self._finish(ENCODED)

    def dropped(self, segments: Sequence[Segment]) -> dict[str, int]:
        """Return the number of pairs that each cleaning step has dropped."""
        dropped: Counter[str] = Counter()
        for segment in segments:
            for shard in self._shards():
                dropped.update((shard.record(segment.stage) or {}).get("dropped", {}))
            if segment.dedup:
                dropped[segment.dedup] += json.loads(
                    self._duplicates(segment).read_text(encoding="utf-8")
                )
        return dict(dropped)

    def _read_and_clean(self, splits: Sequence[Split], segment: Segment) -> None:
        # Opened before the progress bar: a corpus that holds out validation pairs is read here.
        readers = [split.pairs() for split in splits]
        with progress(total_pairs(splits), "cleaning", " pairs", unit_scale=True) as bar:
            shards = self._splitter.split(
                readers, lambda shard: shard.record(segment.stage) is not None, bar.update
            )
            tasks = (CleaningTask(Text(shard, RAW), segment) for shard in shards)
            for _ in self.executor.map(clean_shard, tasks, bar.update):
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

    def _compute(self, function: Callable[..., object], tasks: Sequence[Any], name: str) -> None:
        with self._progress(tasks, name) as bar:
            for _ in self.executor.map(function, tasks, bar.update):
                pass

    def _progress(self, tasks: Sequence[Any], name: str) -> tqdm[Any]:
        num_pairs = sum(task.num_pairs for task in tasks)
        return progress(num_pairs, name, " pairs", unit_scale=True)

    def _finish(self, stage: str) -> list[Text]:
        """Return the texts of a stage that all machines have completed."""
        if not self._is_complete(stage, ALL_SHARDS):
            raise UnfinishedPartsError
        return self._texts(stage)

    def _is_complete(self, stage: str, part: Part) -> bool:
        return all(
            shard.record(stage) is not None for shard in self._shards() if part.has(shard.index)
        )

    def _shards(self) -> list[Shard]:
        return list(chain.from_iterable(self.corpora))

    def _texts(self, stage: str) -> list[Text]:
        return [Text(shard, stage) for shard in self._shards()]

    def _own(self, texts: Sequence[Text]) -> list[Text]:
        return [text for text in texts if self.part.has(text.shard.index)]
