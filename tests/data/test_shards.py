"""Tests of preparation shard by shard: processes, machines, Ray, interruptions, and windows of an
epoch."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import config, copy_text

from nmt.core.config import Config
from nmt.core.errors import DataError, UsageError
from nmt.core.parts import Part
from nmt.core.processes import Executor, RayExecutor, get_executor
from nmt.data import first_occurrences, loader, shards, store
from nmt.data.clean import cleaning_pipeline, segments
from nmt.data.first_occurrences import find_repeated
from nmt.data.loader import Loader
from nmt.data.pipeline import Pipeline
from nmt.data.prepare import PreparedData, prepare
from nmt.data.shards import Shard, Splitter, UnfinishedPartsError
from nmt.text.tokenizer import Tokenizer

CLEANING = "data.clean=[normalize, \"dedup(by='source')\", length(max=5), dedup, drop_identical]"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with two corpora of several small shards."""
    monkeypatch.setattr(shards, "SHARD_SIZE", 120)
    use_data(monkeypatch, tmp_path / "data")
    copy_text(tmp_path, 20, split="valid")
    rng = random.Random(1)
    words = [f"{a}{b}" for a in "bdg" for b in "aeiou"]
    for name, num_pairs in (("train", 300), ("more", 150)):
        for language in ("en", "de"):
            lines = [" ".join(rng.choices(words, k=rng.randint(1, 4))) for _ in range(num_pairs)]
            lines += lines[:30]
            lines[7] = ""
            (tmp_path / f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path


def use_data(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setenv("NMT_DATA", str(path))


def sharded(directory: Path, *changes: str) -> Config:
    """Return a config with both corpora."""
    valid = f"valid={str(directory / 'valid')!r}, hold_out=False"
    corpora = [f"files(train={str(directory / name)!r}, {valid})" for name in ("train", "more")]
    return config(directory, f"data.train={json.dumps(corpora)}", CLEANING, *changes)


def files(prepared: PreparedData) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in prepared.directory.iterdir()}


def pairs(prepared: PreparedData) -> list[tuple[str, str]]:
    return list(prepared.store("train").pairs())


def cleaned_at_once(directory: Path, experiment: Config) -> tuple[list[tuple[str, str]], dict]:
    """Return what a single pipeline keeps of both corpora, and what it drops."""
    texts = [
        [(directory / f"{name}.{language}").read_text().splitlines() for language in ("en", "de")]
        for name in ("train", "more")
    ]
    pipeline = cleaning_pipeline(
        chain.from_iterable(zip(*text, strict=True) for text in texts), experiment.data.clean
    )
    return list(pipeline), pipeline.dropped


def test_shards_have_the_pairs_of_a_single_pipeline(directory: Path) -> None:
    experiment = sharded(directory)
    prepared = prepare(experiment)
    expected, dropped = cleaned_at_once(directory, experiment)
    assert pairs(prepared) == expected
    assert prepared.meta["dropped"] == dropped
    assert min(dropped["dedup(by='source')"], dropped["length(max=5)"] + 1) > 0
    records = prepared.meta["shards"]["train"]
    assert [record["num_pairs"] for record in records] == [
        len(shard) for shard in prepared.store("train").shards
    ]
    assert len(records) == 3 + 2  # 330 and 180 pairs
    assert sum(prepared.meta["corpora"]) == prepared.meta["pairs"]["train"] == len(expected)
    names = {path.suffix for path in prepared.directory.iterdir()}
    assert names == {".ids", ".ends", ".text", ".lines", ".model", ".json"}


def test_shard_size_does_not_change_the_text(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = prepare(sharded(directory))
    monkeypatch.setattr(shards, "SHARD_SIZE", 10_000)
    use_data(monkeypatch, directory / "other")
    single = prepare(sharded(directory))
    assert len(single.store("train").shards) == 2
    assert pairs(single) == pairs(several)
    # Shards of few characters, too.
    monkeypatch.setattr(shards, "MAX_CHARACTERS", 1500)
    use_data(monkeypatch, directory / "third")
    short = prepare(sharded(directory))
    assert len(short.store("train").shards) > 4
    assert pairs(short) == pairs(several)


@pytest.mark.slow
def test_processes_give_the_same_bytes(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = sharded(directory, "data.placeholders=true")
    alone = files(prepare(experiment))
    submitted = []
    submit = Executor.submit
    monkeypatch.setattr(Executor, "submit", lambda *call: submitted.append(call) or submit(*call))
    use_data(monkeypatch, directory / "parallel")
    executor = Executor(0)
    executor.num_workers = 2
    assert files(prepare(experiment, executor)) == alone
    assert len(submitted) > 3 * 5


def test_parts_give_the_same_bytes(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    experiment = sharded(directory)
    alone = files(prepare(experiment))
    use_data(monkeypatch, directory / "parts")
    unfinished = 0
    for _ in range(4):  # one round for each deduplication, one for the tokenizer
        for number in (3, 1, 2):
            try:
                prepared = prepare(experiment, part=Part(number, 3))
            except UnfinishedPartsError:
                unfinished += 1
    assert files(prepared) == alone
    assert 4 < unfinished < 12
    assert not [path for path in prepared.directory.parent.iterdir() if path.suffix == ".part"]


@pytest.mark.slow
def test_ray_gives_the_same_bytes(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster_utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
    experiment = sharded(directory)
    alone = files(prepare(experiment))
    use_data(monkeypatch, directory / "ray")
    cluster = cluster_utils.Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        cluster.add_node(num_cpus=1)
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        executor = get_executor("ray")
        assert isinstance(executor, RayExecutor)
        assert executor.num_workers == 2
        executor.min_parallel_size = 0
        assert files(prepare(experiment, executor)) == alone
    finally:
        cluster.shutdown()


def test_unknown_executor_is_an_error() -> None:
    with pytest.raises(UsageError, match="unknown --executor 'slurm'"):
        get_executor("slurm")


class KilledError(BaseException):
    """Stands for the death of the process."""


def test_interrupted_preparation_resumes_at_the_first_unfinished_shard(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = sharded(directory)
    expected = files(prepare(experiment))
    for num_calls in (0, 4, 7, 12, 16):
        with monkeypatch.context() as patch:
            use_data(patch, directory / f"after-{num_calls}")
            check_resumption(experiment, num_calls, expected, patch)


def check_resumption(
    experiment: Config, num_calls: int, expected: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prepare data, die after writing so many records, and prepare it again."""
    write_record = Shard.write_record
    written: list[tuple[int, str]] = []

    def write_or_die(shard: Shard, stage: str, record: object) -> None:
        if len(written) == num_calls:
            raise KilledError
        written.append((shard.index, stage))
        write_record(shard, stage, record)

    with monkeypatch.context() as patch:
        patch.setattr(Shard, "write_record", write_or_die)
        try:
            prepare(experiment)
        except KilledError:
            assert len(written) == num_calls
    before = len(written)
    monkeypatch.setattr(
        Shard,
        "write_record",
        lambda shard, stage, record: (
            written.append((shard.index, stage)) or write_record(shard, stage, record)
        ),
    )
    assert files(prepare(experiment)) == expected
    if before == num_calls:
        # No stage of a shard of the training text is computed twice.
        counts = Counter(written)
        assert max(counts.values()) == 1 or counts.most_common(1)[0][0] == (0, "encoded")


def test_damaged_work_is_an_error(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def read_damaged(*arguments: object, **options: object) -> None:
        raise DataError("damaged")

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "encode", read_damaged)
        with pytest.raises(DataError, match="damaged"):
            prepare(sharded(directory))
    assert not [path for path in (directory / "data/prepared").iterdir() if path.is_dir()]


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(0, 12), max_size=12), max_size=5))
def test_repeated_keys(tmp_path_factory: pytest.TempPathFactory, keys: list[list[int]]) -> None:
    scratch = tmp_path_factory.mktemp("keys") / "scratch"
    everything = list(chain.from_iterable(keys))
    expected = {
        10 * i: 10 * everything.index(key)
        for i, key in enumerate(everything)
        if key in everything[:i]
    }
    starts = accumulate(map(len, keys), initial=0)
    parts = [
        (10 * np.arange(start, start + len(part)), 2**63 + np.array(part, np.uint64))
        for start, part in zip(starts, keys, strict=False)
    ]
    for limit in (100, 3):  # in memory, and in DuckDB in several parts
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(first_occurrences, "MAX_IN_MEMORY", limit)
            found: dict[int, int] = {}
            for positions, firsts in find_repeated(parts, len(everything), scratch):
                found |= dict(zip(positions.tolist(), firsts.tolist(), strict=True))
        assert found == expected
    assert not scratch.exists()


def test_splitter_divides_each_corpus(tmp_path: Path) -> None:
    corpora = [[(f"a{i}", f"b{i}") for i in range(size)] for size in (7, 0, 3)]
    splitter = Splitter(tmp_path, "train", Part(2, 2), 3)
    written = list(splitter.split(corpora, "scores"))
    assert [[shard.num_pairs for shard in shards] for shards in splitter.corpora] == [
        [3, 3, 1],
        [],
        [3],
    ]
    assert [shard.index for shard in written] == [1, 3]
    assert list(written[0].read_text("raw")) == corpora[0][3:6]
    assert list(written[1].read_text("raw")) == corpora[2]


def test_segments_end_with_deduplications() -> None:
    found = segments(["normalize", "dedup", " dedup(by='target') ", "length(max=3)"])
    assert [(each.specs, each.dedup, each.dedup_side) for each in found] == [
        (("normalize",), "dedup", "pair"),
        ((), "dedup(by='target')", "target"),
        (("length(max=3)",), "", ""),
    ]


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/2/3", ""])
def test_invalid_part_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="--shard must be I/N"):
        Part.parse(text)


def test_large_vocabularies_have_ids_of_32_bits(tmp_path: Path) -> None:
    class LargeTokenizer(Tokenizer):
        def __init__(self) -> None:
            pass

        def __len__(self) -> int:
            return 70_000

        def encode_batch(self, lines: Sequence[str], *, target: bool = False) -> list[list[int]]:
            return [[69_999 - len(line), 4] for line in lines]

        def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
            return ["" for _ in rows]

    shard = Shard(tmp_path, "train", 0, 2)
    store.encode_shard(shard, [("a", "bb"), ("", "c")], LargeTokenizer())
    stored = store.StoredShard(shard, LargeTokenizer())
    assert [ids.tolist() for ids in stored.ids(0)] == [[69_998, 4], [69_997, 4]]
    assert [ids.tolist() for ids in stored.ids(1)] == [[69_999, 4], [69_998, 4]]
    assert stored.text(0, 1) == "bb"


# ---- windows


WINDOWS = ("train.batch_tokens=64", "train.grad_accumulation=2")


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "WINDOW_SIZE", 50)


def build_loader(
    prepared: PreparedData, experiment: Config, rank: int = 0, size: int = 1
) -> Loader:
    tokenizer = prepared.tokenizer()
    return Loader(
        prepared.store("train"),
        tokenizer,
        experiment.train,
        experiment.seed,
        rank,
        size,
        mix=prepared.mix(experiment),
    )


def stream_of_epoch(loading: Loader, *position: int) -> Iterator[loader.Update]:
    for update in loading.stream(*position):
        if update.epoch > position[0]:
            return
        yield update


@pytest.mark.usefixtures("small_windows")
def test_windows_divide_an_epoch(directory: Path) -> None:
    experiment = sharded(directory, *WINDOWS, "train.source_noise=[uppercase(p=0.4)]")
    prepared = prepare(experiment)
    loading = build_loader(prepared, experiment)
    num_pairs = len(prepared.store("train"))
    assert loading.num_windows == -(-num_pairs // 50) > 4
    orders = []
    for epoch in (0, 1):
        updates = list(stream_of_epoch(loading, epoch, 0, 0))
        used = [i for update in updates for batch in update.batches for i in batch.pair_ids]
        assert sorted(used) == [*range(num_pairs)]
        assert [update.window for update in updates] == sorted(update.window for update in updates)
        orders.append(used)
        first_corpus = prepared.meta["corpora"][0]
        for window in range(loading.num_windows):
            pair_ids_N = loading.window(epoch, window).pair_ids_N
            # Each window has the corpora in their proportions.
            share = (pair_ids_N < first_corpus).mean()
            assert share == pytest.approx(first_corpus / num_pairs, abs=0.05)
    assert orders[0] != orders[1]


@pytest.mark.usefixtures("small_windows")
def test_resuming_within_a_window_gives_the_same_batches(directory: Path) -> None:
    experiment = sharded(directory, *WINDOWS, "train.source_noise=[uppercase(p=0.4)]")
    prepared = prepare(experiment)
    whole = list(stream_of_epoch(build_loader(prepared, experiment), 1, 0, 0))
    for place in (0, 3, len(whole) // 2, len(whole) - 2):
        update = whole[place]
        position = (update.epoch, update.window, update.batches_in_window)
        rest = list(stream_of_epoch(build_loader(prepared, experiment), *position))
        assert len(rest) == len(whole) - place - 1
        for one, other in zip(whole[place + 1 :], rest, strict=True):
            assert one.tokens == other.tokens
            for batch, again in zip(one.batches, other.batches, strict=True):
                assert torch.equal(batch.src_BS, again.src_BS)
                assert torch.equal(batch.labels_N, again.labels_N)


@pytest.mark.usefixtures("small_windows")
def test_ranks_partition_windows(directory: Path) -> None:
    experiment = sharded(directory, *WINDOWS)
    prepared = prepare(experiment)
    ranks = [
        list(stream_of_epoch(build_loader(prepared, experiment, rank, 2), 0, 0, 0))
        for rank in range(2)
    ]
    used = [
        i
        for updates in ranks
        for update in updates
        for batch in update.batches
        for i in batch.pair_ids
    ]
    assert sorted(used) == [*range(len(prepared.store("train")))]
    for one, other in zip(*ranks, strict=True):
        tokens = sum(batch.tokens for batch in (*one.batches, *other.batches))
        assert one.tokens == other.tokens == tokens
        assert one.batches_in_window == other.batches_in_window


@pytest.mark.usefixtures("small_windows")
def test_neighbors_of_the_corpus_are_in_different_batches(directory: Path) -> None:
    experiment = sharded(directory, "train.batch_tokens=64")
    loading = build_loader(prepare(experiment), experiment)
    num_neighbors = num_pairs = 0
    for update in stream_of_epoch(loading, 0, 0, 0):
        for batch in update.batches:
            distances = np.abs(np.subtract.outer(batch.pair_ids, batch.pair_ids))
            num_neighbors += int((distances == 1).sum()) // 2
            num_pairs += len(batch.pair_ids)
    assert num_neighbors < 0.1 * num_pairs
