"""Tests of the prepared store, batching, noise, the loader and the tokenizer."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_subword import TEXT, tokenizer
from tiny import config, copy_text

from nmt.core.config import TokenizerConfig
from nmt.core.errors import CheckpointError, ConfigError, DataError
from nmt.data import loader as loading
from nmt.data.batching import Batch, PaddedBatching, collate, plan_batches
from nmt.data.loader import Loader, Update, prefetch
from nmt.data.noise import NOISES, SourceNoise
from nmt.data.pipeline import Pipeline, Text
from nmt.data.prepare import PreparedData, prepare
from nmt.data.shards import Shard
from nmt.data.store import StoredShard, encode_shard
from nmt.text.normalization import normalize
from nmt.text.tokenizer import (
    BOS,
    EOS,
    MAX_TRAINING_BYTES,
    PAD,
    SPACE,
    Tokenizer,
    train,
    training_texts,
)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NMT_DATA", str(tmp_path / "data"))
    return tmp_path


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=200),
    st.integers(41, 300),
)
def test_plan_has_every_pair_once_within_max_tokens(
    lengths: list[tuple[int, int]], budget: int
) -> None:
    lengths_N2 = np.array(lengths)
    batches = plan_batches(lengths_N2, budget)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    assert all(len(batch) * (lengths_N2[batch].max() + 1) <= budget for batch in batches)


def test_plan_is_a_pure_function_of_seed_and_epoch() -> None:
    lengths_N2 = np.random.default_rng(0).integers(1, 30, (500, 2))
    flat = [
        np.concatenate(plan_batches(lengths_N2, 256, key)).tolist()
        for key in ((1, 0), (1, 0), (1, 1), (2, 0))
    ]
    assert flat[0] == flat[1]
    assert flat[0] != flat[2] != flat[3] != flat[0]


def test_batches_have_little_padding() -> None:
    lengths_N2 = np.random.default_rng(0).integers(5, 40, (20_000, 1)).repeat(2, axis=1)
    batches = plan_batches(lengths_N2, 2048)
    padded = sum(len(batch) * (lengths_N2[batch].max() + 1) for batch in batches)
    assert (lengths_N2[:, 1] + 1).sum() / padded > 0.97


def test_collate_shifts_targets_and_ends_sources() -> None:
    batch = collate([([5, 6], [7, 8, 9]), ([10], [11])], [3, 4])
    assert batch.src_BS.tolist() == [[5, 6, EOS], [10, EOS, PAD]]
    assert batch.src_mask_BS.tolist() == [[True] * 3, [True, True, False]]
    assert batch.tgt_in_BT.tolist() == [[BOS, 7, 8, 9], [BOS, 11, PAD, PAD]]
    assert batch.target_index_N.tolist() == [0, 1, 2, 3, 4, 5]
    assert batch.labels_N.tolist() == [7, 8, 9, EOS, 11, EOS]
    assert (batch.tokens, batch.pair_ids) == (6, (3, 4))
    assert batch.to(torch.device("cpu")).pair_ids == (3, 4)


def prepare_and_load(directory: Path, *changes: str) -> tuple[PreparedData, Loader]:
    experiment = config(directory, *changes)
    prepared = prepare(experiment)
    return prepared, Loader(
        prepared.store("train"),
        prepared.tokenizer(),
        experiment.train,
        experiment.seed,
        mix=prepared.mix(experiment),
    )


def test_text_that_a_tokenizer_changes_is_stored(tmp_path: Path) -> None:
    pairs = [
        ("a\u2028b", "c\r"),
        ("plain", "two  spaces "),
        ("\ufeffmark", "plain"),
        ("\u2581", ""),
    ]
    shard = Shard(tmp_path, "train", 0, len(pairs))
    encoded = encode_shard(shard, pairs, tokenizer("bpe"))
    stored = StoredShard(shard, tokenizer("bpe"))
    assert [(stored.text(i, 0), stored.text(i, 1)) for i in range(len(pairs))] == pairs
    assert encoded.num_pairs == len(stored) == len(pairs)
    assert 0 < encoded.num_lines < 2 * len(pairs)
    assert encoded.num_ids == stored.lengths_N2().sum()


def test_store_returns_text_and_ids(directory: Path) -> None:
    prepared, _ = prepare_and_load(directory)
    store, tokenizer = prepared.store("train"), prepared.tokenizer()
    lines = (directory / "train.en").read_text(encoding="utf-8").splitlines()
    assert len(store) == len(lines) == 300
    for i in (0, 1, 150, 299):
        assert store.source(i) == lines[i]
        assert tokenizer.decode(store[i][0]) == lines[i]
    assert store.lengths_N2.tolist() == [
        [len(s), len(t)] for s, t in (store[i] for i in range(300))
    ]


def test_byte_order_mark_inside_text_is_kept(directory: Path) -> None:
    # Concatenated files may have several marks, of which only the first is dropped; validation text
    # is not cleaned.
    copy_text(directory, 300)
    copy_text(directory, 20, split="valid")
    text = "\ufeff\ufeff" + (directory / "valid.en").read_text(encoding="utf-8")
    (directory / "valid.en").write_text(text, encoding="utf-8")
    store = prepare_and_load(directory)[0].store("valid")
    assert len(store) == 20
    assert [store.source(i).lstrip("\ufeff") for i in range(20)] == [
        store.target(i) for i in range(20)
    ]
    assert all(store[i][0].tolist() == store[i][1].tolist() for i in range(20))


def test_corrupted_store_is_an_error(directory: Path) -> None:
    prepared, _ = prepare_and_load(directory)
    ids = prepared.directory / "train-00000.ids"
    ids.write_bytes(ids.read_bytes() + b"\0\0")
    with pytest.raises(DataError, match="is truncated or was modified"):
        prepared.store("train")
    ends = prepared.directory / "valid-00000.ends"
    ends.write_bytes(ends.read_bytes()[:-8])
    with pytest.raises(DataError, match="is truncated or was modified"):
        prepared.store("valid")
    ends.unlink()
    with pytest.raises(DataError, match="is corrupted"):
        prepared.store("valid")


def test_damaged_metadata_of_prepared_data_is_an_error(directory: Path) -> None:
    (prepare(config(directory)).directory / "manifest.json").write_text('{"fingerprint": "')
    with pytest.raises(DataError, match=r"manifest\.json is damaged") as caught:
        prepare(config(directory))
    assert "re-run the command" in caught.value.hint


def test_tokenizer_without_placeholders_is_logged(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for placeholders in ("false", "true"):
        model = (
            prepare(config(directory, f"data.placeholders={placeholders}")).directory
            / Tokenizer.FILE
        )
        capsys.readouterr()
        prepare(config(directory, "data.placeholders=true", f"tokenizer.model={model}"))
        assert ("has no pieces for placeholders" in capsys.readouterr().err) is (
            placeholders == "false"
        )


def test_corpus_that_changes_while_it_is_prepared_is_an_error(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = config(directory)
    clean = Pipeline.clean

    def change_and_clean(*arguments: Any) -> list[Text]:
        copy_text(directory, 300, seed=6)
        return clean(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Pipeline, "clean", change_and_clean)
        with pytest.raises(DataError, match="a corpus changed while it was read"):
            prepare(experiment)
    copy_text(directory, 300)
    store = prepare(experiment).store("train")
    lines = (directory / "train.en").read_text(encoding="utf-8").splitlines()
    assert [store.source(i) for i in range(len(store))] == lines


@pytest.mark.parametrize("text", ["", "\n\n", " \n\u200b\n"])
def test_validation_split_without_text_is_an_error(directory: Path, text: str) -> None:
    experiment = config(directory)
    (directory / "valid.de").write_text(text, encoding="utf-8")
    (directory / "valid.en").write_text("a\n" * text.count("\n"), encoding="utf-8")
    with pytest.raises(DataError, match=r"the validation split of .* is empty"):
        prepare(experiment)


def test_prepared_data_is_cached_by_recipe(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare(config(directory)).directory
    builds: list[int] = []
    read = Pipeline.read
    monkeypatch.setattr(Pipeline, "read", lambda *a: builds.append(1) or read(*a))
    assert prepare(config(directory)).directory == first
    assert prepare(config(directory, "train.steps=99", "model.dim=8")).directory == first
    assert not builds
    others = {
        prepare(config(directory, change)).directory
        for change in ("tokenizer.vocab_size=310", "data.clean=[dedup]")
    }
    copy_text(directory, 300, seed=5)
    others.add(prepare(config(directory)).directory)
    assert len(others | {first}) == 4
    assert len(builds) == 3


def test_cleaning_is_logged_and_pairs_stay_aligned(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_text(directory, 60)
    copy_text(directory, 5, split="valid")
    for code in ("en", "de"):
        lines = (directory / f"train.{code}").read_text(encoding="utf-8").splitlines()
        lines = [f"{i} {line}" for i, line in enumerate(lines)]
        lines[10 if code == "en" else 20] = " \t"
        (directory / f"train.{code}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    prepared = prepare(config(directory))
    assert "blank dropped 2 pairs" in capsys.readouterr().err
    assert prepared.meta["dropped"]["blank"] == 2
    sources, targets = prepared.lines("train")
    assert len(sources) == 58
    assert sources == targets


def test_empty_corpus_is_an_error(directory: Path) -> None:
    for code in ("en", "de"):
        (directory / f"train.{code}").write_text("\n\n", encoding="utf-8")
        (directory / f"valid.{code}").write_text("a\n", encoding="utf-8")
    with pytest.raises(DataError, match="no training pair is left"):
        prepare(config(directory))
    assert not [path for path in (directory / "data" / "prepared").iterdir() if path.is_dir()]


def load_epoch(loader: Loader, epoch: int, skip: int = 0) -> list[list[Batch]]:
    return [update.batches for update in loader.updates(epoch, num_batches=skip)]


def test_skipped_batches_do_not_change_later_ones(directory: Path) -> None:
    _, loader = prepare_and_load(
        directory,
        "train.grad_accumulation=2",
        "train.batch_tokens=128",
        "train.source_noise=[lowercase_no_punctuation(p=0.5)]",
    )
    all_batches = load_epoch(loader, 3)
    assert len(all_batches) > 4
    for micro, other in zip(all_batches[3:], load_epoch(loader, 3, skip=6), strict=True):
        assert [batch.pair_ids for batch in micro] == [batch.pair_ids for batch in other]
        assert all(torch.equal(a.src_BS, b.src_BS) for a, b in zip(micro, other, strict=True))
    assert Counter(
        i for micro in all_batches for batch in micro for i in batch.pair_ids
    ) == Counter(range(300))


def test_ranks_partition_the_updates(directory: Path) -> None:
    prepared, single = prepare_and_load(
        directory, "train.batch_tokens=128", "train.grad_accumulation=3"
    )
    options = config(directory, "train.batch_tokens=128")
    mix = prepared.mix(options)
    ranks = [
        Loader(prepared.store("train"), prepared.tokenizer(), options.train, 1, rank, 3, mix=mix)
        for rank in range(3)
    ]
    whole = list(single.updates(0))
    parts = list(zip(*(rank.updates(0) for rank in ranks), strict=True))
    assert len(whole) == len(parts)
    for one, shared in zip(whole, parts, strict=True):
        assert one.tokens == sum(batch.tokens for batch in one.batches)
        assert {share.tokens for share in shared} == {one.tokens}
        assert {share.batches_in_window for share in shared} == {one.batches_in_window}
        assert [batch.pair_ids for batch in one.batches] == [
            batch.pair_ids for share in shared for batch in share.batches
        ]


def test_split_batch_equals_separate_batches() -> None:
    pairs = [([4] * 3, [5] * 9), ([6] * 8, [7] * 2), ([8], [9])]
    batch = collate(pairs, [10, 11, 12])
    first, second = batch.split()
    for part, expected in (
        (first, collate(pairs[:1], [10])),
        (second, collate(pairs[1:], [11, 12])),
    ):
        assert (part.pair_ids, part.tokens) == (expected.pair_ids, expected.tokens)
        for name in ("src_BS", "src_mask_BS", "tgt_in_BT", "target_index_N", "labels_N"):
            assert torch.equal(getattr(part, name), getattr(expected, name)), name


def test_source_noise_differs_between_epochs(directory: Path) -> None:
    prepared, loader = prepare_and_load(directory, "train.source_noise=[uppercase(p=0.5)]")
    tokenizer = prepared.tokenizer()
    store = prepared.store("train")
    seen: list[dict[int, str]] = []
    for epoch in (0, 1):
        seen.append({})
        for (batch,) in load_epoch(loader, epoch):
            for row, i in enumerate(batch.pair_ids):
                seen[-1][i] = tokenizer.decode(batch.src_BS[row].tolist())
                assert tokenizer.decode(batch.tgt_in_BT[row].tolist()) == store.target(i)
    assert 90 < sum(text.isupper() for text in seen[0].values()) < 210
    assert seen[0] != seen[1]
    assert all(seen[0][i].lower() == store.source(i) for i in seen[0])


def test_noise_functions_apply_to_independent_shares(directory: Path) -> None:
    _, loader = prepare_and_load(
        directory, "train.source_noise=[typos(p=0.6), uppercase(p=0.3), lowercase(p=0.0)]"
    )
    chosen_NK = loader.window(0, 0).noise_NK
    assert (chosen_NK != loader.window(1, 0).noise_NK).any()
    assert chosen_NK.mean(axis=0) == pytest.approx([0.6, 0.3, 0], abs=0.1)
    assert chosen_NK[:, :2].all(axis=1).mean() == pytest.approx(0.18, abs=0.07)


SUBWORD = "train.subword_regularization=bpe_dropout(p=0.5)"


def test_subword_regularization_differs_between_epochs(directory: Path) -> None:
    prepared, loader = prepare_and_load(directory, SUBWORD)
    tokenizer, store = prepared.tokenizer(), prepared.store("train")
    seen: list[dict[int, tuple[list[int], list[int]]]] = []
    for epoch in (0, 0, 1):
        seen.append({})
        for (batch,) in load_epoch(loader, epoch):
            rows = zip(batch.pair_ids, batch.src_BS.tolist(), batch.tgt_in_BT.tolist(), strict=True)
            seen[-1] |= {i: (src, tgt) for i, src, tgt in rows}
            assert batch.tokens == int((batch.tgt_in_BT > EOS).sum()) + len(batch.pair_ids)
    assert seen[0] == seen[1] != seen[2]
    for side, text in enumerate((store.source, store.target)):
        assert all(tokenizer.decode(pair[side]) == text(i) for i, pair in seen[0].items())
        drawn = [
            [t for t in pair[side] if t > EOS] != store[i][side].tolist()
            for i, pair in seen[0].items()
        ]
        assert sum(drawn) > 150


def test_subword_regularization_of_single_pair_batches(directory: Path) -> None:
    _, loader = prepare_and_load(directory, SUBWORD)
    loader.batching = PaddedBatching(max_tokens=1, source_eos=True)
    one, other = (
        {batch.pair_ids: batch.src_BS.tolist() for (batch,) in load_epoch(loader, epoch)}
        for epoch in (0, 1)
    )
    assert one.keys() == other.keys() == {(i,) for i in range(300)}
    assert sum(one[pair] != other[pair] for pair in one) > 100


def test_subword_regularization_depends_on_position_only(directory: Path) -> None:
    """Samples do not depend on skipped batches or on the thread."""
    _, loader = prepare_and_load(
        directory,
        SUBWORD,
        "train.batch_tokens=128",
        "train.source_noise=[lowercase_no_punctuation(p=0.5)]",
    )
    all_batches = load_epoch(loader, 3)
    _, again = prepare_and_load(
        directory,
        SUBWORD,
        "train.batch_tokens=128",
        "train.source_noise=[lowercase_no_punctuation(p=0.5)]",
    )
    with ThreadPoolExecutor(1) as thread:
        later = thread.submit(load_epoch, again, 3, 4).result()
    for (one,), (other,) in zip(all_batches[4:], later, strict=True):
        assert torch.equal(one.src_BS, other.src_BS)
        assert torch.equal(one.labels_N, other.labels_N)


def test_too_long_segmentations_are_replaced(directory: Path) -> None:
    _, loader = prepare_and_load(
        directory, "train.subword_regularization=bpe_dropout(p=1.0)", "train.max_length=14"
    )
    assert all(
        batch.src_BS.shape[1] <= 14 and batch.tgt_in_BT.shape[1] <= 14
        for (batch,) in load_epoch(loader, 0)
    )


def test_prefetch_preserves_updates_and_errors(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    devices: list[torch.device] = []
    monkeypatch.setattr(Batch, "pin_memory", lambda batch: batch)  # requires a GPU
    monkeypatch.setattr(torch.cuda, "set_device", devices.append)
    gpu = torch.device("cuda", 1)
    _, loader = prepare_and_load(directory, "train.batch_tokens=128")
    pairs = [[batch.pair_ids for batch in update.batches] for update in loader.updates(0)]
    assert [
        [batch.pair_ids for batch in update.batches] for update in prefetch(loader.updates(0), gpu)
    ] == pairs
    assert devices == [gpu]

    def failing() -> Iterator[Update]:
        yield from list(loader.updates(0))[:3]
        raise DataError("gone")

    updates = prefetch(failing(), gpu)
    assert [next(updates).batches_in_window for _ in range(3)] == [1, 2, 3]
    with pytest.raises(DataError, match="gone"):
        next(updates)


def test_too_long_pairs_are_dropped_and_counted(directory: Path) -> None:
    prepared, loader = prepare_and_load(directory, "train.max_length=6")
    lengths_N2 = prepared.store("train").lengths_N2
    expected = int((lengths_N2 >= 6).any(axis=1).sum())
    assert 0 < loader.num_too_long == expected < 300
    assert all(batch.src_BS.shape[1] <= 6 for (batch,) in load_epoch(loader, 0))
    with pytest.raises(DataError, match="no training pair has at most 1 tokens"):
        prepare_and_load(directory, "train.max_length=1")


@pytest.mark.parametrize(
    ("spec", "noisy"),
    [
        ("lowercase", "i'm thirsty, tom!"),
        ("uppercase(p=0.0)", "I'M THIRSTY, TOM!"),
        ("no_punctuation(p=0.5)", "I'm thirsty Tom"),
        ("no_apostrophes(p=1.0)", "Im thirsty, Tom!"),
        ("lowercase_no_punctuation", "im thirsty tom"),
    ],
)
def test_noise_functions(spec: str, noisy: str) -> None:
    assert add_noise("I'm thirsty, Tom!", spec) == noisy


def test_only_chosen_noise_functions_apply() -> None:
    specs = ["lowercase(p=0.0)", "typos(p=1.0)", "no_punctuation", "no_umlauts(p=0.3)"]
    noise = SourceNoise(specs)
    assert noise.probabilities == [0, 1, 0.1, 0.3]
    text = "Größe, I'm."
    for choice, expected in {
        (1, 0, 1, 0): "größe i'm",
        (0, 0, 0, 0): text,
        (0, 0, 1, 0): "Größe I'm",
    }.items():
        assert noise.apply(text, map(bool, choice), Random(1)) == expected


def add_noise(text: str, *specs: str, seed: int = 0) -> str:
    return SourceNoise(specs).apply(text, [True] * len(specs), Random(seed))


def test_noise_keeps_hyphens_and_removes_typographic_marks() -> None:
    text = "„Das ist 'ne E-Mail“, sag‘ ich; wie geht’s…"
    assert add_noise(text, "no_punctuation") == "Das ist 'ne E-Mail sag‘ ich wie geht’s"
    assert add_noise(text, "no_apostrophes") == "„Das ist ne E-Mail“, sag ich; wie gehts…"


def test_batches_use_lengths_after_noise(directory: Path) -> None:
    _, loader = prepare_and_load(
        directory, "train.batch_tokens=256", "train.source_noise=[uppercase(p=0.3)]"
    )
    _, clean = prepare_and_load(directory, "train.batch_tokens=256", "train.source_noise=[]")
    longest = [batch.src_BS.shape[1] for update in loader.updates(0) for batch in update.batches]
    assert max(longest) > max(
        batch.src_BS.shape[1] for update in clean.updates(0) for batch in update.batches
    )
    padded = real = 0
    for update in loader.updates(0):
        for batch in update.batches:
            assert batch.src_BS.numel() <= 256
            padded, real = padded + batch.src_BS.numel(), real + int(batch.src_mask_BS.sum())
    assert real > 0.85 * padded


def test_noisy_batches_are_limited_and_reproducible(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "NOISE_CHUNK_SIZE", 7)
    options = (
        "train.batch_tokens=256",
        "train.source_noise=[uppercase(p=0.5)]",
        "train.max_length=6",
    )
    _, loader = prepare_and_load(directory, *options)
    assert loader.num_too_long > 0
    assert all(b.src_BS.shape[1] <= 6 and b.src_BS.numel() <= 256 for (b,) in load_epoch(loader, 0))
    _, resumed = prepare_and_load(directory, *options)  # starts at the second epoch
    for (one,), (other,) in zip(load_epoch(loader, 1), load_epoch(resumed, 1), strict=True):
        assert torch.equal(one.src_BS, other.src_BS)


def test_worst_case_batches_include_noise(directory: Path) -> None:
    _, loader = prepare_and_load(
        directory, "train.batch_tokens=200", "train.source_noise=[uppercase(p=0.5)]"
    )
    longest = max(batch.src_BS.shape[1] for (batch,) in load_epoch(loader, 0))
    assert max(batch.src_BS.shape[1] for batch in loader.worst_case_batches()) == longest


def test_noise_never_returns_an_empty_sentence() -> None:
    assert add_noise("?!", *NOISES) == "?!"
    assert add_noise("? !", "no_punctuation") == "? !"
    with pytest.raises(ConfigError, match="unknown noise"):
        SourceNoise(["typo"])


@pytest.mark.parametrize(
    "spec", ["lowercase(p=1.5)", "typos(p=-0.1)", "typos(word_fraction=15)", "typos(p=1e400)"]
)
def test_noise_with_invalid_probability_is_rejected(spec: str) -> None:
    with pytest.raises(ConfigError, match="must be between 0 and 1"):
        SourceNoise(["lowercase(p=1)", spec])


@settings(max_examples=40)
@given(text=st.text(max_size=60), seed=st.integers(0, 2**32))
def test_typos_change_each_word_once(text: str, seed: int) -> None:
    noisy = add_noise(text, "typos(word_fraction=1.0)", seed=seed)
    rest = re.compile(r"[^\W\d_]+")
    assert rest.split(noisy) == rest.split(text)
    for word, typed in zip(rest.findall(text), rest.findall(noisy), strict=True):
        assert typed[:1] == word[:1]
        assert abs(len(typed) - len(word)) <= 1
        if len(word) < 3:
            assert typed == word
        elif len(typed) == len(word):  # swapped or replaced
            assert (
                sorted(typed) == sorted(word)
                or sum(a != b for a, b in zip(typed, word, strict=True)) == 1
            )


def test_kinds_and_fraction_of_typos() -> None:
    spec = "typos(word_fraction=1.0)"
    variants = {add_noise("Wagen", spec, seed=seed) for seed in range(400)}
    assert {"Wgen", "Waagen", "Wgaen", "Wagrn", "Wagne", "Wagenn", "Wsgen"} <= variants
    assert {variant[0] for variant in variants} == {"W"}
    assert all(add_noise("WAGEN", spec, seed=seed).isupper() for seed in range(40))
    few = add_noise("hund " * 1000, "typos(word_fraction=0.2)", seed=1).split()
    assert 150 < sum(word != "hund" for word in few) < 250


def test_no_umlauts() -> None:
    variants = {
        add_noise("Größe, ÄRGER, für Öl, Übungsgerät", "no_umlauts", seed=seed)
        for seed in range(30)
    }
    assert variants == {
        "Groesse, AeRGER, fuer Oel, Uebungsgeraet",
        "Grosse, ARGER, fur Ol, Ubungsgerat",
    }


@given(st.text(max_size=60))
@example("▁")
@example("a ▁▁ <unk> <0x41> </s>")
def test_tokenizer_round_trip(text: str) -> None:
    bpe = tokenizer("bpe")
    assert bpe.decode(bpe.encode(text)) == normalize(text)
    assert all(i > EOS for i in bpe.encode(text))  # unknown characters are encoded as bytes


def test_vocab_size_is_reduced_or_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    for kind in ("unigram", "bpe"):
        assert 260 < len(train(TEXT, TokenizerConfig(model_type=kind, vocab_size=9000))) < 500
        assert "reducing the vocabulary to" in capsys.readouterr().err
    with pytest.raises(DataError, match="smaller than the corpus's alphabet"):
        train(TEXT, TokenizerConfig(model_type="bpe", vocab_size=270))
    with pytest.raises(DataError, match="no text"):
        train([" ", ""], TokenizerConfig())


def test_long_lines_are_training_text_of_a_tokenizer() -> None:
    long_line = "zebra quietly " * 5000
    trained = train([long_line, "the dog"], TokenizerConfig(model_type="bpe", vocab_size=300))
    assert {f"{SPACE}zebra", f"{SPACE}quietly"} <= trained.piece_scores().keys()


@given(st.text("aä本😀 ", max_size=200), st.integers(1, 400))
def test_parts_of_long_lines_add_up(text: str, num_copies: int) -> None:
    line = normalize(text * num_copies)
    parts = list(training_texts([line]))
    assert all(0 < len(part.encode()) <= MAX_TRAINING_BYTES for part in parts)
    assert "".join(parts).replace(" ", "") == line.replace(" ", "")


def test_invalid_tokenizer_files_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot read tokenizer"):
        Tokenizer.load(tmp_path / "none.model")
    (tmp_path / "bad.model").write_bytes(b"not a model")
    with pytest.raises(CheckpointError, match="is not a SentencePiece model"):
        Tokenizer.load(tmp_path / "bad.model")


def test_user_tokenizer_is_used(directory: Path) -> None:
    lines = TEXT + ["ba be bi bo bu da de di do du ga ge gi go gu"] * 50
    model = train(lines, TokenizerConfig(model_type="bpe", vocab_size=320)).model
    (directory / "user.model").write_bytes(model)
    prepared = prepare(config(directory, f"tokenizer.model={directory / 'user.model'}"))
    assert prepared.tokenizer().model == model
    assert (
        json.loads((prepared.directory / "manifest.json").read_text())["tokenizer"]
        == prepared.tokenizer().checksum
    )
