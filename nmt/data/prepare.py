"""Preparation of a corpus for training: cleaned text, tokenizer and token ids, cached by
fingerprint.

The fingerprint is a hash of the checksums of the corpora, the cleaning steps, the tokenizer options
and the version of the store, which stands for the code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from nmt.core.config import MAX_VOCAB_SIZE, Config, DataConfig
from nmt.core.console import log, progress
from nmt.core.errors import ConfigError, DataError
from nmt.core.paths import data_dir, locked, resumable_directory, write_text
from nmt.core.processes import map_chunks
from nmt.core.untrusted_files import read_record
from nmt.data.clean import cleaning_pipeline, is_blank
from nmt.data.mixing import Mix, PreparedCorpus
from nmt.data.pairs import Pair, read_lines, read_pairs, write_pairs
from nmt.data.placeholders import PLACEHOLDERS, replace_spans
from nmt.data.sources import Split, open_split, parse_corpus, validate_all
from nmt.data.sources.corpus import hash_strings, total_pairs, translators_of
from nmt.data.store import VERSION, Store, encode_file, is_encoded
from nmt.text import tokenizer as tokenizers
from nmt.text.sentences import count_sentences
from nmt.text.tokenizer import Tokenizer
from nmt.text.tokenizers import load_tokenizer, tokenizer_file

SAMPLE_SIZE = 10_000
"""Lines whose sentences are counted."""
META_FILE = "meta.json"
CLEANING_FILE = "cleaned.json"
"""Results of the cleaning; present during preparation once the text is complete."""

PLACEHOLDERS_VERSION = 4
"""Version of what placeholders replace."""
_OPTIONAL_KEYS = ("replay", "placeholders", "tag")
"""Entries of a recipe that are left out if they are not used, so that earlier fingerprints stay."""


@dataclass(frozen=True)
class PreparedData:
    """The prepared data of a config: cleaned text, token ids and tokenizer in one directory."""

    directory: Path
    src: str
    tgt: str
    meta: dict[str, Any]
    """Content of `meta.json`: fingerprint and recipe, pairs per split and per corpus, pairs dropped
    by cleaning.

    A run saves it as `data.json`, with records of the models that it starts from and learns from.
    """

    def mix(self, config: Config) -> Mix:
        """Return the corpora of the training text and the options that mix them."""
        specs = (*config.data.train, *config.data.replay)
        recipe = self.meta["recipe"]
        replay = recipe.get("replay", [])
        checksums = [*recipe["train"], *replay]
        corpora: list[PreparedCorpus] = []
        for spec, (name, _), num_pairs in zip(specs, checksums, self.meta["corpora"], strict=True):
            is_replay = len(corpora) >= len(config.data.train)
            _, options = parse_corpus(spec)
            corpora.append(PreparedCorpus(name, num_pairs, options, is_replay))
        return Mix(corpora, config.data.temperature, config.train.replay_share)

    def store(self, split: str) -> Store:
        """Open the token ids of a split."""
        return Store(self.directory, split, self.src, self.tgt)

    def lines(self, split: str) -> tuple[list[str], list[str]]:
        """Read the source and target sentences of a split."""
        sources = read_lines(self.directory / f"{split}.{self.src}")
        targets = read_lines(self.directory / f"{split}.{self.tgt}")
        return list(sources), list(targets)

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer."""
        return load_tokenizer(tokenizer_file(self.directory))


def prepare(config: Config) -> PreparedData:
    """Return the prepared data of `config`; prepare it unless it is cached.

    Raises:
        ConfigError: a spec string is invalid, or the vocabulary is too large.
        DataError: a corpus is missing, corrupted, or empty after cleaning.
        DownloadError: a corpus cannot be downloaded.
    """
    check_data_specs(config.data)
    _check_tokenizer(config)
    splits = _Splits.open(config.data)
    recipe = _recipe(config, splits)
    sorted_recipe = json.dumps(recipe, sort_keys=True)
    fingerprint = hash_strings(sorted_recipe)[:16]
    directory = data_dir() / "prepared" / fingerprint
    if not _is_complete(directory):  # take no lock if it is: the directory may be read-only
        lock = directory.with_name(f".{fingerprint}.lock")
        waiting = f"another process is preparing the same data; waiting for {directory}"
        with locked(lock, lambda: log(waiting)):
            if not _is_complete(directory):
                with resumable_directory(directory) as work:
                    meta = {"fingerprint": fingerprint, "recipe": recipe}
                    meta |= _build(config, splits, work)
                    text = json.dumps(meta, indent=2)
                    (work / META_FILE).write_text(text + "\n", encoding="utf-8")
    try:
        meta = json.loads((directory / META_FILE).read_text(encoding="utf-8"))
    except ValueError:
        raise DataError(
            f"{directory / META_FILE} is damaged", "delete its directory and re-run the command"
        ) from None
    translators = list(chain.from_iterable(map(translators_of, splits.training)))
    if translators:
        meta["translators"] = translators
    return PreparedData(directory, config.data.src, config.data.tgt, meta)


@dataclass(frozen=True)
class _Splits:
    """The corpora that are prepared."""

    train: list[Split]
    replay: list[Split]
    valid: Split

    @classmethod
    def open(cls, data: DataConfig) -> _Splits:
        """Open the corpora of a config."""
        train = [open_split(spec, "train", data.src, data.tgt) for spec in data.train]
        replay = [open_split(spec, "train", data.src, data.tgt) for spec in data.replay]
        valid_spec = data.valid or data.train[0]
        valid = open_split(valid_spec, "valid", data.src, data.tgt)
        return cls(train, replay, valid)

    @property
    def training(self) -> list[Split]:
        """The corpora of the training text, in its order."""
        return [*self.train, *self.replay]


def find_prepared_text(run: Path, language: str) -> Path | None:
    """Return the cleaned training text of a run in one language, or None if it is no longer on
    disk."""
    fingerprint = read_record(run / "data.json").get("fingerprint")
    directory = data_dir() / "prepared" / str(fingerprint)
    path = directory / f"train.{language}"
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
    for spec in (*data.train, *data.replay):
        _, options = parse_corpus(spec)
        if options.tag:
            return True
    return False


def _check_tokenizer(config: Config) -> None:
    path = config.tokenizer.model
    name = "tokenizer.vocab_size"
    size = config.tokenizer.vocab_size
    if path:
        tokenizer = load_tokenizer(Path(path))
        name = path
        size = len(tokenizer)
        if tokenizer.tag_id is None and _has_tag(config.data):
            hint = "leave out tag=True"
            if not config.train.init_from:
                hint += ", or use a tokenizer that has it: nmt tokenizer train --tag"
            raise ConfigError(f"{path} has no piece for tag=True in data.train", hint)
    if size > MAX_VOCAB_SIZE:
        raise ConfigError(
            f"{name}: {size:,} tokens are too many for training",
            f"the maximum is {MAX_VOCAB_SIZE:,}; a larger imported model can translate, but it"
            " cannot be fine-tuned",
        )


def _is_complete(directory: Path) -> bool:
    return (directory / META_FILE).is_file()


def _recipe(config: Config, splits: _Splits) -> dict[str, Any]:
    """Return all that determines the prepared data. Its hash is the fingerprint."""
    tokenizer = asdict(config.tokenizer)
    if config.tokenizer.model:
        tokenizer["model"] = load_tokenizer(Path(config.tokenizer.model)).checksum
    recipe = {
        "version": VERSION,
        "src": config.data.src,
        "tgt": config.data.tgt,
        "train": list(map(_identify, splits.train)),
        "replay": list(map(_identify, splits.replay)),
        "valid": _identify(splits.valid),
        "clean": config.data.clean,
        "placeholders": PLACEHOLDERS_VERSION if config.data.placeholders else None,
        "tag": _has_tag(config.data),
        "tokenizer": tokenizer,
    }
    return {key: value for key, value in recipe.items() if value or key not in _OPTIONAL_KEYS}


def _identify(split: Split) -> tuple[str, str]:
    return split.name, split.checksum


def _build(config: Config, splits: _Splits, work: Path) -> dict[str, Any]:
    """Write all files to `work`, skipping steps that an interrupted preparation has completed;
    return the metadata."""
    cleaned = _clean(config, splits, work)
    pairs = cleaned["pairs"]
    num_train = sum(cleaned["corpora"][: len(splits.train)])
    if not tokenizer_file(work).is_file():
        _get_tokenizer(config, work, num_train).save(work)
    tokenizer = load_tokenizer(tokenizer_file(work))
    _encode(config.data, pairs, tokenizer, work)
    (work / CLEANING_FILE).unlink()
    num_replay = pairs["train"] - num_train
    replayed = f", {num_replay:,} replay" if splits.replay else ""
    counts = f"{num_train:,} training{replayed} and {pairs['valid']:,} validation pairs"
    log(f"prepared {counts}, a vocabulary of {len(tokenizer):,} tokens")
    store = Store(work, "train", config.data.src, config.data.tgt)
    source_lengths_N = store.lengths_N2[:num_train, 0]
    return cleaned | {
        "vocab_size": len(tokenizer),
        # Translation splits input that is longer than almost all training sentences.
        "max_source_length": int(np.percentile(source_lengths_N, 99.9, method="higher")),
        "max_sentences_per_line": _max_sentences_per_line(store, config.data.src, num_train),
        "tokenizer": tokenizer.checksum,
    }


def _encode(data: DataConfig, pairs: dict[str, int], tokenizer: Tokenizer, work: Path) -> None:
    """Write the token ids of all text, given the number of pairs of each split."""
    num_sentences = 2 * sum(pairs.values())
    with progress(num_sentences, "tokenizing", " sentences", unit_scale=True) as bar:
        for split, num_pairs in pairs.items():
            for code in (data.src, data.tgt):
                text = work / f"{split}.{code}"
                if is_encoded(text):
                    bar.update(num_pairs)
                    continue
                for num_encoded in encode_file(text, tokenizer, target=code == data.tgt):
                    bar.update(num_encoded)


def _max_sentences_per_line(store: Store, language: str, num_lines: int) -> int:
    """Return the maximum number of sentences per source line of the first lines, ignoring the top
    one percent."""
    step = max(1, num_lines // SAMPLE_SIZE)
    lines = map(store.src.text, range(0, num_lines, step))
    counts = [count_sentences(line, language) for line in lines]
    return int(np.percentile(counts, 99, method="higher"))


class _TrainingText:
    """The cleaned pairs of all training corpora one after the other, and their number per
    corpus."""

    def __init__(self, config: Config, splits: list[Split]) -> None:
        self.num_kept: list[int] = []
        self._splits = splits
        self.cleaned = cleaning_pipeline(self._read(), config.data.clean)
        self._has_placeholders = config.data.placeholders

    def __iter__(self) -> Iterator[Pair]:
        if self._has_placeholders:
            return chain.from_iterable(map_chunks(replace_spans, self._counted()))
        return self._counted()

    def _counted(self) -> Iterator[Pair]:
        # A cleaning step does not read ahead, so the pair is from the corpus read last.
        for pair in self.cleaned:
            self.num_kept[-1] += 1
            yield pair

    def log_dropped(self) -> None:
        """Log the numbers of pairs that were dropped."""
        for step, num_dropped in self.cleaned.dropped.items():
            if num_dropped:
                log(f"cleaning step {step} dropped {num_dropped:,} pairs")

    def _read(self) -> Iterator[Pair]:
        # Opened before the progress bar: a corpus that holds out validation pairs is read here.
        readers = [split.pairs() for split in self._splits]
        with progress(total_pairs(self._splits), "cleaning", " pairs", unit_scale=True) as bar:
            for pairs in readers:
                self.num_kept.append(0)
                for pair in pairs:
                    bar.update()
                    yield pair


def _clean(config: Config, splits: _Splits, work: Path) -> dict[str, Any]:
    """Write the text; return the pairs per split, per training corpus, and those that each cleaning
    step dropped.

    The validation split is not cleaned.
    """
    file = work / CLEANING_FILE
    if file.is_file():
        log(f"resuming the interrupted preparation in {work}")
        completed: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return completed
    src = config.data.src
    tgt = config.data.tgt
    text = _TrainingText(config, splits.training)
    sources = work / f"train.{src}"
    targets = work / f"train.{tgt}"
    num_train = write_pairs(sources, targets, text)
    text.log_dropped()
    num_new_corpora = len(splits.train)
    _check_not_empty("training", text.num_kept[:num_new_corpora])
    _check_not_empty("replay", text.num_kept[num_new_corpora:])
    num_valid = _write_validation(splits.valid, work / f"valid.{src}", work / f"valid.{tgt}")
    reopened = _Splits.open(config.data)
    if _recipe(config, reopened) != _recipe(config, splits):
        raise DataError("a corpus changed while it was read", "run the command again")
    results = {
        "pairs": {"train": num_train, "valid": num_valid},
        "corpora": text.num_kept,
        "dropped": text.cleaned.dropped,
    }
    write_text(file, json.dumps(results))
    return results


def _check_not_empty(label: str, num_kept: list[int]) -> None:
    """Check that a pair is left of some corpora."""
    if num_kept and not sum(num_kept):
        raise DataError(
            f"no {label} pair is left after cleaning", "check data.clean, data.src and data.tgt"
        )


def _write_validation(split: Split, src: Path, tgt: Path) -> int:
    """Write the validation split, and return the number of its pairs."""
    num_pairs = write_pairs(src, tgt, split.pairs())
    for source, target in read_pairs(src, tgt):
        if not is_blank(source) and not is_blank(target):
            return num_pairs
    raise DataError(
        f"the validation split of {split.name} is empty", "set data.valid to another corpus"
    )


def _get_tokenizer(config: Config, work: Path, num_train: int) -> Tokenizer:
    """Load `tokenizer.model`, or train a tokenizer on the training text, which has `num_train`
    pairs before replay."""
    options = config.tokenizer
    symbols = PLACEHOLDERS if config.data.placeholders else ()
    if options.model:
        tokenizer = load_tokenizer(Path(options.model))
        pieces = tokenizer.ids_to_pieces(range(len(tokenizer)))
        if not set(symbols) <= set(pieces):
            log(f"{options.model} has no pieces for placeholders, so the model may not copy them")
        return tokenizer
    num_sentences = min(2 * num_train, options.max_training_sentences)
    log(f"training a {options.model_type} tokenizer on {num_sentences:,} sentences")
    sources = read_lines(work / f"train.{config.data.src}")
    targets = read_lines(work / f"train.{config.data.tgt}")
    lines = chain(islice(sources, num_train), islice(targets, num_train))
    return tokenizers.train(lines, options, symbols, tag=_has_tag(config.data))
