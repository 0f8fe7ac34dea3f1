"""Mixing of training corpora: weights, temperature, tags, and the exactness of resuming and of
ranks."""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commandline import CommandLine, sentences, write
from hypothesis import given
from hypothesis import strategies as st
from test_fine_tuning import loader, pair_ids
from test_train import check_resume
from tiny import config, copy_text

from nmt.core.config import Config, config_io
from nmt.core.errors import ConfigError, DataError
from nmt.data.mixing import Mix, PreparedCorpus
from nmt.data.prepare import PreparedData, prepare
from nmt.data.sampling import SampledCorpus, UsablePairs
from nmt.data.sources import CorpusOptions, parse_corpus
from nmt.runs import checkpoint
from nmt.text.tokenizer import TAG, Tokenizer

# ---- how many pairs, and which


def mix(weights: list[float], temperature: float = 1.0) -> Mix:
    return Mix(
        [PreparedCorpus("", 0, CorpusOptions(weight=weight)) for weight in weights], temperature
    )


def test_weights_are_numbers_of_uses_per_epoch() -> None:
    assert mix([1, 0.5, 2]).pairs_per_epoch([100, 100, 30]) == [100, 50, 60]
    assert mix([1, 0.001]).pairs_per_epoch([100, 100]) == [100, 1]  # never none
    assert mix([1, 1]).pairs_per_epoch([100, 0]) == [100, 0]  # all of its pairs are too long


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=5), st.floats(1, 100))
def test_temperature_repeats_smaller_corpora(sizes: list[int], temperature: float) -> None:
    counts = mix([1] * len(sizes), temperature).pairs_per_epoch(sizes)
    assert max(counts) == max(sizes)
    for count, size in zip(counts, sizes, strict=True):
        # Shares proportional to n^(1/T).
        expected = max(sizes) * (size / max(sizes)) ** (1 / temperature)
        assert math.isclose(count, expected, abs_tol=0.51, rel_tol=1e-9)
        assert count >= size


def usable_pairs(num_pairs: int, shard_size: int = 7) -> UsablePairs:
    """Return pairs in shards of this size, of which every fifth is too long."""
    lengths_N2 = np.ones((num_pairs, 2), np.int32)
    lengths_N2[4::5, 1] = 9
    starts = [*range(0, num_pairs, shard_size), num_pairs]
    shards = [
        SimpleNamespace(lengths_N2=partial(lengths_N2[start:end].copy), release=lambda: None)
        for start, end in pairwise(starts)
    ]
    store = SimpleNamespace(shards=shards, starts=starts)
    return UsablePairs(store, range(len(shards)), max_length=9, tag=False)


@given(st.integers(1, 120), st.integers(1, 200), st.integers(1, 7), st.integers(0, 9))
def test_all_pairs_are_used_before_one_repeats(
    num_pairs: int, num_sampled: int, num_windows: int, seed: int
) -> None:
    pairs = usable_pairs(num_pairs)
    corpus = SampledCorpus(PreparedCorpus("", num_pairs, CorpusOptions()), pairs, num_sampled)
    used = []
    for epoch in range(3):
        windows = [corpus.sample(epoch, i, num_windows, (seed, 0)) for i in range(num_windows)]
        sizes = list(map(len, windows))
        assert sum(sizes) == num_sampled
        assert max(sizes) - min(sizes) <= 1
        used += np.concatenate(windows).tolist()
    expected = [i for i in range(num_pairs) if i % 5 != 4]
    assert pairs.all().tolist() == expected
    for start in range(0, len(used) - len(expected), len(expected)):
        assert sorted(used[start : start + len(expected)]) == expected


def test_samples_are_shuffled_by_seed_corpus_and_epoch() -> None:
    pairs = usable_pairs(1000, shard_size=100)
    keys = ((1, 0, 0), (1, 0, 0), (1, 0, 1), (2, 0, 0), (1, 1, 0))
    samples = [
        pairs.sample(800 * epoch, 800 * epoch + 700, (seed, corpus)).tolist()
        for seed, corpus, epoch in keys
    ]
    assert samples[0] == samples[1]
    assert len({tuple(sample) for sample in samples}) == 4
    # Four shards are mixed, and neighbors of the corpus are rarely neighbors.
    assert len({i // 100 for i in samples[0][:320]}) == 4
    distances = np.abs(np.diff(samples[0]))
    assert (distances < 3).mean() < 0.05


@given(st.integers(1, 90), st.integers(1, 30))
def test_pairs_at_equal_distances(num_pairs: int, max_pairs: int) -> None:
    pairs = usable_pairs(num_pairs)
    step = len(pairs) // max_pairs + 1
    assert pairs.spread(max_pairs) == pairs.all()[::step].tolist()


# ---- prepared data and batches


def files(directory: Path, name: str, options: str = "") -> str:
    return (
        f"files(train={str(directory / name)!r}, valid={str(directory / 'valid')!r},"
        f" hold_out=False{options})"
    )


def mixed(
    directory: Path, options: str = ", weight=0.5, tag=True", *changes: str
) -> tuple[Config, PreparedData]:
    """Return a config with 300 pairs, and 200 pairs of another corpus with these options."""
    config(directory)
    copy_text(directory, 200, split="bt", longest=5, prefix="gu ")
    corpora = json.dumps([files(directory, "train"), files(directory, "bt", options)])
    experiment = config(directory, f"data.train={corpora}", *changes)
    return experiment, prepare(experiment)


def test_a_large_replay_corpus_does_not_repeat_the_training_corpora() -> None:
    corpora = [
        PreparedCorpus(name, 0, CorpusOptions(), is_replay=name == "replay")
        for name in ("a", "b", "replay")
    ]
    assert Mix(corpora, temperature=5, replay_share=0.5).pairs_per_epoch([1000, 1000, 10**6]) == [
        1000,
        1000,
        2000,
    ]


@pytest.mark.parametrize(("weight", "expected"), [("0.5", 100), ("1", 200), ("2.5", 500)])
def test_epochs_have_the_proportions_of_the_weights(
    directory: Path, weight: str, expected: int
) -> None:
    loading = loader(*mixed(directory, f", weight={weight}"))
    total: Counter[int] = Counter()
    for epoch in range(4):
        used = Counter(i for ids in pair_ids([*loading.updates(epoch)]) for i in ids)
        assert {i: used.pop(i) for i in range(300)} == dict.fromkeys(range(300), 1)
        assert sum(used.values()) == expected
        total += used
    assert max(total.values()) - min(total[i] for i in range(300, 500)) <= 1


def test_corpora_keep_their_pairs_after_cleaning(directory: Path) -> None:
    experiment, prepared = mixed(directory, "", "data.clean=[normalize, length(max=4), dedup]")
    sources, _ = prepared.lines("train")
    first = prepared.meta["corpora"][0]
    assert sum(prepared.meta["corpora"]) == len(sources) < 500
    assert {line.startswith("gu ") for line in sources[first:]} == {True}
    assert len({*sources[first:]}) == len(sources) - first
    (directory / "bt.en").write_text("ba\n" * 200)  # nothing is left of the second corpus
    (directory / "bt.de").write_text("\n" * 200)
    again = prepare(experiment)
    assert again.meta["corpora"] == [first, 0]
    assert loader(experiment, again).num_pairs == first


def test_tag_begins_the_sources_of_its_corpus_only(directory: Path) -> None:
    experiment, prepared = mixed(
        directory,
        ", tag=true",
        "train.source_noise=[uppercase(p=0.5)]",
        "train.subword_regularization=bpe_dropout(p=0.3)",
    )
    tokenizer, texts = prepared.tokenizer(), prepared.lines("train")[0]
    assert tokenizer.ids_to_pieces([tokenizer.tag_id]) == [TAG]
    assert tokenizer.tag_id not in tokenizer.encode(f"a {TAG} b")  # no text is encoded as the tag
    assert tokenizer.decode(tokenizer.encode(f"a {TAG} b")) == f"a {TAG} b"
    loading = loader(experiment, prepared)
    seen = set()
    for update in loading.updates(0):
        for batch in update.batches:
            for i, row in zip(batch.pair_ids, batch.src_BS.tolist(), strict=True):
                assert (row[0] == tokenizer.tag_id) == (i >= 300)
                assert tokenizer.tag_id not in row[1:]
                assert tokenizer.decode(row).lower() == texts[i]
                seen.add(i)
    assert seen == {*range(500)}
    assert all(TAG not in line for line in texts)


def test_lengths_with_noise_and_tag_are_those_of_the_batches(directory: Path) -> None:
    loading = loader(*mixed(directory, ", tag=True", "train.source_noise=[uppercase(p=0.5)]"))
    pairs = loading.window(3, 0).pair_ids_N.tolist()
    planned = dict(zip(pairs, loading.window(3, 0).lengths_N2[:, 0].tolist(), strict=True))
    for update in loading.updates(3):
        for batch in update.batches:
            lengths = (batch.src_mask_BS.sum(1) - 1).tolist()  # without EOS
            assert [planned[i] for i in batch.pair_ids] == lengths


def test_tag_counts_for_batches_and_the_maximum_length(directory: Path) -> None:
    experiment, prepared = mixed(directory, ", tag=True", "train.source_noise=[]")
    plain, _ = mixed(directory, "", "train.source_noise=[]")
    store = prepared.store("train")
    lengths_N2, plain_N2 = (
        loader(each, prepared).window(0, 0).lengths_N2 for each in (experiment, plain)
    )
    difference = lengths_N2 - plain_N2
    assert difference[:, 0].tolist() == [0] * 300 + [1] * 200
    assert not difference[:, 1].any()
    longest = int(store.lengths_N2[300:, 0].max())
    limited = config(
        directory,
        f"data.train={json.dumps([*experiment.data.train])}",
        f"train.max_length={longest + 1}",
    )
    assert (
        loader(limited, prepared).num_too_long >= (store.lengths_N2[300:, 0] == longest).sum() > 0
    )
    assert all(
        b.src_BS.shape[1] <= longest + 1
        for u in loader(limited, prepared).updates(0)
        for b in u.batches
    )


def test_resuming_within_an_epoch_gives_the_same_batches(directory: Path) -> None:
    experiment, prepared = mixed(
        directory,
        ", weight=0.7, tag=True",
        "train.batch_tokens=128",
        "train.grad_accumulation=2",
        "train.source_noise=[uppercase(p=0.5)]",
    )
    uninterrupted = list(loader(experiment, prepared).updates(2))
    resumed = list(loader(experiment, prepared).updates(2, num_batches=6))
    assert len(resumed) > 10
    for one, other in zip(uninterrupted[3:], resumed, strict=True):
        assert (pair_ids([one]), one.tokens, one.batches_in_window) == (
            pair_ids([other]),
            other.tokens,
            other.batches_in_window,
        )
        assert all(
            torch.equal(a.src_BS, b.src_BS) for a, b in zip(one.batches, other.batches, strict=True)
        )
    ranks = [list(loader(experiment, prepared, rank, 2).updates(2)) for rank in range(2)]
    assert sorted(i for updates in ranks for ids in pair_ids(updates) for i in ids) == sorted(
        i for ids in pair_ids(uninterrupted) for i in ids
    )


def test_prepared_data_depends_on_tags_but_not_on_weights(directory: Path) -> None:
    plain, heavy, tagged = (
        mixed(directory, options)[1] for options in ("", ", weight=2", ", tag=True")
    )
    assert plain.directory == heavy.directory != tagged.directory
    assert plain.tokenizer().tag_id is None
    assert plain.mix(mixed(directory, ", weight=2")[0]).corpora[1].options.weight == 2


@pytest.mark.slow
def test_mixed_run_resumes_exactly(directory: Path) -> None:
    options = (
        "train.schedule=inverse_sqrt(peak=1e-2, warmup=4)",
        "train.valid_every=50",
        "data.temperature=3",
    )
    experiment, _ = mixed(directory, ", weight=0.5, tag=True", *options, "train.steps=60")
    assert checkpoint.read_progress(check_resume(experiment, directory, 27)).epoch > 0


# ---- options and records


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["data.train=phrasebook(weight=0)"],
            "corpus 'phrasebook': weight must be above 0 and at most 1000, got 0",
        ),
        (
            ["data.train=phrasebook(weight=-1)"],
            "corpus 'phrasebook': weight must be above 0 and at most 1000, got -1",
        ),
        (
            ["data.train=phrasebook(weight=nan)"],
            "write a number as 0.5 or 2e-3",
        ),
        (["data.train=phrasebook(weight=1e999)"], "write a number as 0.5 or 2e-3"),
        (
            ["data.train=phrasebook(weight='2')"],
            "corpus 'phrasebook': weight must be a number, got '2'",
        ),
        (["data.train=phrasebook(tag=1)"], "corpus 'phrasebook': tag must be true or false, got 1"),
        (["data.train=phrasebook(wieght=2)"], "its options: weight, tag"),
        (
            ["data.valid=phrasebook(weight=2)"],
            "data.valid: weight and tag are options of training corpora",
        ),
        (
            ["data.test=phrasebook(tag=true)"],
            "data.test: weight and tag are options of training corpora",
        ),
        (["data.temperature=0"], "data.temperature must be at least 1, got 0.0"),
        (["data.temperature=nan"], "data.temperature must be at least 1, got nan"),
        (["data.temperature=.inf"], "data.temperature must be at least 1, got inf"),
    ],
)
def test_invalid_options_are_one_line(
    trained: CommandLine, options: list[str], message: str
) -> None:
    changes = [word for option in options for word in ("--set", option)]
    trained("train", "--run", "runs/x", *changes).assert_fails(2, message)
    if not options[0].startswith("data.t"):
        trained("config", *changes).assert_fails(2, message)
    assert not (trained.directory / "runs/x").exists()


def test_options_of_a_corpus() -> None:
    assert (
        parse_corpus("phrasebook")[1]
        == parse_corpus("phrasebook(weight=1, tag=false)")[1]
        == CorpusOptions()
    )
    corpus, options = parse_corpus("files(train='a', weight=0.5, tag=true)")
    assert options == CorpusOptions(weight=0.5, tag=True)
    assert corpus == parse_corpus("files(train='a')")[0]
    with pytest.raises(ConfigError, match="has no option 'wait'"):
        parse_corpus("files(train='a', wait=1)")


def test_too_short_maximum_length_is_an_error(directory: Path) -> None:
    experiment, prepared = mixed(directory, "", "train.max_length=1")
    with pytest.raises(DataError, match="no training pair has at most 1 tokens"):
        loader(experiment, prepared)


def test_a_tokenizer_without_tag_is_an_error(directory: Path) -> None:
    (directory / "spm.model").write_bytes(prepare(config(directory)).tokenizer().model)
    with pytest.raises(ConfigError, match="has no piece for tag=True") as error:
        mixed(directory, ", tag=True", f"tokenizer.model={directory / 'spm.model'}")
    assert "nmt tokenizer train --tag" in error.value.hint
    with pytest.raises(ConfigError, match="has no piece for tag=True") as error:
        mixed(
            directory,
            ", tag=True",
            f"tokenizer.model={directory / 'spm.model'}",
            "train.init_from=runs/any",
        )
    assert error.value.hint == "leave out tag=True"


@pytest.mark.slow
def test_info_and_card_show_the_mix(nmt: CommandLine) -> None:
    source, target = sentences(500)
    write(nmt.directory / "bt", source[400:], target[400:])
    nmt.run(
        "tokenizer",
        "train",
        "text.en",
        "text.de",
        "bt.en",
        "--vocab-size",
        "350",
        "--tag",
        "-o",
        "spm.model",
    )
    assert Tokenizer.load(nmt.directory / "spm.model").tag_id is not None
    corpora = (
        "[\"files(train='text')\", \"files(train='bt', hold_out=False, weight=0.5, tag=True)\"]"
    )
    done = nmt.train("runs/mixed", corpora, tokenizer__model="spm.model")
    assert "360 pairs of text/train and 50 of 100 pairs of bt/train per epoch" in done.err
    data = json.loads(nmt("info", "runs/mixed", "--json").out)["data"]["train"]
    assert [(each["pairs"], each["pairs_per_epoch"], each["tag"]) for each in data] == [
        (360, 360, False),
        (100, 50, True),
    ]
    text = " ".join(nmt("info", "runs/mixed").out.split())
    assert "50 of 100 pairs per epoch, tagged" in text
    assert (
        "50 of 100 pairs per epoch, tagged" in (nmt.directory / "runs/mixed/README.md").read_text()
    )
    nmt.run("translate", "--model", "runs/mixed", "the dog")  # without a tag
    change = ["--set", config_change(nmt.directory / "runs/mixed/config.yaml")]
    nmt("train", "--run", "runs/mixed", "--resume", *change).assert_fails(
        2, "was trained with another 'data.train'"
    )


def config_change(path: Path) -> str:
    """Return an override that changes the weight of the second corpus."""
    corpora = config_io.load(path).data.train
    return f"data.train={json.dumps([corpora[0], corpora[1].replace('weight=0.5', 'weight=2')])}"
