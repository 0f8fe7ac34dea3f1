"""Preparation of a corpus for training: cleaned text, tokenizer and token ids, cached by fingerprint.

The fingerprint is a hash of the checksums of the corpora, the cleaning steps, the tokenizer options and the version of
the store, which stands for the code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config import MAX_VOCAB_SIZE, Config, DataConfig
from nmt.console import log, progress
from nmt.data import tokenizer as tokenizers
from nmt.data.clean import cleaning_pipeline, is_blank
from nmt.data.mixing import Mix, PreparedCorpus
from nmt.data.pairs import Pair, read_lines, read_pairs, write_pairs
from nmt.data.placeholders import PLACEHOLDERS, replace_spans
from nmt.data.sentences import count_sentences
from nmt.data.sources import Split, open_split, parse_corpus, validate_all
from nmt.data.sources.corpus import translators_of
from nmt.data.store import VERSION, Store, encode_file, is_encoded
from nmt.data.tokenizer import Tokenizer, tokenizer_file
from nmt.errors import ConfigError, DataError
from nmt.paths import data_dir, locked, resumable_directory, write_text
from nmt.untrusted_files import read_record

SAMPLE_SIZE = 10_000
"""Lines whose sentences are counted."""
CLEANING_FILE = "cleaned.json"
"""Results of the cleaning; present during preparation once the text is complete."""


@dataclass(frozen=True)
class PreparedData:
    """The prepared data of a config: cleaned text, token ids and tokenizer in one directory."""

    directory: Path
    src: str
    tgt: str
    meta: dict[str, Any]
    """Content of `meta.json`: fingerprint and recipe, pairs per split and per corpus, pairs dropped by cleaning.

    A run saves it as `data.json`, with records of the models that it starts from and learns from.
    """

    def mix(self, config: Config) -> Mix:
        """Return the corpora of the training text and the options that mix them."""
        specs, num_train = (*config.data.train, *config.data.replay), len(config.data.train)
        recipe = self.meta["recipe"]
        names = [name for name, _ in (*recipe["train"], *recipe.get("replay", ()))]
        corpora = [
            PreparedCorpus(name, num_pairs, parse_corpus(spec)[1], is_replay=i >= num_train)
            for i, (name, spec, num_pairs) in enumerate(zip(names, specs, self.meta["corpora"], strict=True))
        ]
        return Mix(corpora, config.data.temperature, config.train.replay_share)

    def store(self, split: str) -> Store:
        """Open the token ids of a split."""
        return Store(self.directory, split, self.src, self.tgt)

    def lines(self, split: str) -> tuple[list[str], list[str]]:
        """Read the source and target sentences of a split."""
        return tuple(list(read_lines(self.directory / f"{split}.{code}")) for code in (self.src, self.tgt))  # type: ignore[return-value]

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer."""
        return Tokenizer.load(tokenizer_file(self.directory))


def prepare(config: Config) -> PreparedData:
    """Return the prepared data of `config`; prepare it unless it is cached.

    Raises:
        ConfigError: a spec string is invalid, or the vocabulary is too large.
        DataError: a corpus is missing, corrupted, or empty after cleaning.
        DownloadError: a corpus cannot be downloaded.
    """
    data = config.data
    check_data_specs(data)
    _check_tokenizer(config)
    train, replay, valid = _open_splits(data)
    recipe = _recipe(config, train, replay, valid)
    fingerprint = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]
    directory = data_dir() / "prepared" / fingerprint
    if not _is_complete(directory):  # take no lock if it is: the directory may be read-only
        lock = directory.with_name(f".{fingerprint}.lock")
        with locked(lock, lambda: log(f"another process is preparing the same data; waiting for {directory}")):
            if not _is_complete(directory):
                with resumable_directory(directory) as work:
                    meta = {"fingerprint": fingerprint, "recipe": recipe} | _build(config, train, replay, valid, work)
                    (work / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    try:
        meta = json.loads((directory / "meta.json").read_text(encoding="utf-8"))
    except ValueError:
        raise DataError(
            f"{directory / 'meta.json'} is damaged", "delete its directory and re-run the command"
        ) from None
    translators = [model for split in (*train, *replay) for model in translators_of(split)]
    return PreparedData(directory, data.src, data.tgt, meta | ({"translators": translators} if translators else {}))


def _open_splits(data: DataConfig) -> tuple[list[Split], list[Split], Split]:
    train, replay = (
        [open_split(spec, "train", data.src, data.tgt) for spec in specs] for specs in (data.train, data.replay)
    )
    return train, replay, open_split(data.valid or data.train[0], "valid", data.src, data.tgt)


def find_prepared_text(run: Path, language: str) -> Path | None:
    """Return the cleaned training text of a run in one language, or None if it is no longer on disk."""
    fingerprint = read_record(run / "data.json").get("fingerprint")
    path = data_dir() / "prepared" / str(fingerprint) / f"train.{language}"
    return path if path.is_file() else None


def check_data_specs(data: DataConfig) -> None:
    """Check the spec strings of cleaning steps and corpora without downloading anything.

    Raises:
        ConfigError: a spec string is invalid.
    """
    cleaning_pipeline((), data.clean)
    validate_all(data)


def _has_tag(data: DataConfig) -> bool:
    """Return whether the sources of a training corpus begin with a tag."""
    return any(parse_corpus(spec)[1].tag for spec in (*data.train, *data.replay))


def _check_tokenizer(config: Config) -> None:
    options = config.tokenizer
    tokenizer = Tokenizer.load(Path(options.model)) if options.model else None
    if tokenizer and tokenizer.tag_id is None and _has_tag(config.data):
        raise ConfigError(
            f"{options.model} has no piece for tag=True in data.train",
            "leave out tag=True"
            + ("" if config.train.init_from else ", or use a tokenizer that has it: nmt tokenizer train --tag"),
        )
    size = len(tokenizer) if tokenizer else options.vocab_size
    if size > MAX_VOCAB_SIZE:
        raise ConfigError(
            f"{options.model or 'tokenizer.vocab_size'}: {size:,} tokens are too many for training",
            f"the maximum is {MAX_VOCAB_SIZE:,}; a larger imported model can translate, but it cannot be fine-tuned",
        )


def _is_complete(directory: Path) -> bool:
    return (directory / "meta.json").is_file()


def _recipe(config: Config, train: list[Split], replay: list[Split], valid: Split) -> dict[str, Any]:
    """Return all that determines the prepared data. Its hash is the fingerprint."""
    options = asdict(config.tokenizer)
    if config.tokenizer.model:
        options["model"] = Tokenizer.load(Path(config.tokenizer.model)).checksum
    return {
        "version": VERSION,
        "src": config.data.src,
        "tgt": config.data.tgt,
        "train": [(split.name, split.checksum) for split in train],
        **({"replay": [(split.name, split.checksum) for split in replay]} if replay else {}),
        "valid": (valid.name, valid.checksum),
        "clean": config.data.clean,
        **({"placeholders": 4} if config.data.placeholders else {}),  # version of what they replace
        **({"tag": True} if _has_tag(config.data) else {}),
        "tokenizer": options,
    }


def _build(config: Config, train: list[Split], replay: list[Split], valid: Split, work: Path) -> dict[str, Any]:
    """Write all files to `work`, skipping steps that an interrupted preparation has completed; return the metadata."""
    src, tgt = config.data.src, config.data.tgt
    cleaned = _clean(config, train, replay, valid, work)
    pairs: dict[str, int] = cleaned["pairs"]
    num_train = sum(cleaned["corpora"][: len(train)])
    if not tokenizer_file(work).is_file():
        _get_tokenizer(config, work, num_train).save(work)
    tokenizer = Tokenizer.load(tokenizer_file(work))
    with progress(2 * sum(pairs.values()), "tokenizing", " sentences", unit_scale=True) as bar:
        for split, num_pairs in pairs.items():
            for code in (src, tgt):
                if is_encoded(work / f"{split}.{code}"):
                    bar.update(num_pairs)
                    continue
                for num_sentences in encode_file(work / f"{split}.{code}", tokenizer, target=code == tgt):
                    bar.update(num_sentences)
    (work / CLEANING_FILE).unlink()
    store = Store(work, "train", src, tgt)
    replayed = f", {pairs['train'] - num_train:,} replay" if replay else ""
    counts = f"{num_train:,} training{replayed} and {pairs['valid']:,} validation pairs"
    log(f"prepared {counts}, a vocabulary of {len(tokenizer):,} tokens")
    return cleaned | {
        "vocab_size": len(tokenizer),
        # Translation splits input that is longer than almost all training sentences.
        "max_source_length": int(np.percentile(store.lengths_N2[:num_train, 0], 99.9, method="higher")),
        "max_sentences_per_line": _max_sentences_per_line(store, src, num_train),
        "tokenizer": tokenizer.checksum,
    }


def _max_sentences_per_line(store: Store, language: str, num_lines: int) -> int:
    """Return the maximum number of sentences per source line of the first lines, ignoring the top one percent."""
    sample = range(0, num_lines, max(1, num_lines // SAMPLE_SIZE))
    counts = [count_sentences(store.src.text(i), language) for i in sample]
    return int(np.percentile(counts, 99, method="higher"))


def _clean(config: Config, train: list[Split], replay: list[Split], valid: Split, work: Path) -> dict[str, Any]:
    """Write the text; return the pairs per split, per training corpus, and those that each cleaning step dropped.

    The validation split is not cleaned.
    """
    if (work / CLEANING_FILE).is_file():
        log(f"resuming the interrupted preparation in {work}")
        completed: dict[str, Any] = json.loads((work / CLEANING_FILE).read_text(encoding="utf-8"))
        return completed
    src, tgt = config.data.src, config.data.tgt
    splits = [*train, *replay]
    num_kept: list[int] = []

    def read() -> Iterator[Pair]:
        readers = [split.pairs() for split in splits]  # before the progress bar: holding out reads the corpus
        sizes = [split.count() if split.count else None for split in splits]
        total = sum(size or 0 for size in sizes) if None not in sizes else None
        with progress(total, "cleaning", " pairs", unit_scale=True) as bar:
            for pairs in readers:
                num_kept.append(0)
                for pair in pairs:
                    bar.update()
                    yield pair

    def count(pairs: Iterable[Pair]) -> Iterator[Pair]:
        for pair in pairs:  # a cleaning step does not read ahead, so the pair is from the corpus that was read last
            num_kept[-1] += 1
            yield pair

    cleaned = cleaning_pipeline(read(), config.data.clean)
    text = count(replace_spans(cleaned) if config.data.placeholders else cleaned)
    pairs = {"train": write_pairs(work / f"train.{src}", work / f"train.{tgt}", text)}
    for step, num_dropped in cleaned.dropped.items():
        if num_dropped:
            log(f"cleaning step {step} dropped {num_dropped:,} pairs")
    for label, counts in (("training", num_kept[: len(train)]), ("replay", num_kept[len(train) :])):
        if counts and not sum(counts):
            raise DataError(f"no {label} pair is left after cleaning", "check data.clean, data.src and data.tgt")
    pairs["valid"] = write_pairs(work / f"valid.{src}", work / f"valid.{tgt}", valid.pairs())
    if all(any(map(is_blank, pair)) for pair in read_pairs(work / f"valid.{src}", work / f"valid.{tgt}")):
        raise DataError(f"the validation split of {valid.name} is empty", "set data.valid to another corpus")
    if _recipe(config, *_open_splits(config.data)) != _recipe(config, train, replay, valid):
        raise DataError("a corpus changed while it was read", "run the command again")
    results = {"pairs": pairs, "corpora": num_kept, "dropped": cleaned.dropped}
    write_text(work / CLEANING_FILE, json.dumps(results))
    return results


def _get_tokenizer(config: Config, work: Path, num_train: int) -> Tokenizer:
    """Load `tokenizer.model`, or train a tokenizer on the training text, which has `num_train` pairs before replay."""
    options = config.tokenizer
    if options.model:
        tokenizer = Tokenizer.load(Path(options.model))
        pieces = tokenizer.ids_to_pieces(range(len(tokenizer)))
        if config.data.placeholders and not set(PLACEHOLDERS) <= set(pieces):
            log(f"{options.model} has no pieces for placeholders, so the model may not copy them")
        return tokenizer
    num_sentences = min(2 * num_train, options.max_training_sentences)
    log(f"training a {options.model_type} tokenizer on {num_sentences:,} sentences")
    files = (work / f"train.{code}" for code in (config.data.src, config.data.tgt))
    lines = chain.from_iterable(islice(read_lines(file), num_train) for file in files)
    symbols = PLACEHOLDERS if config.data.placeholders else ()
    return tokenizers.train(lines, options, symbols, tag=_has_tag(config.data))
