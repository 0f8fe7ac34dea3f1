"""Preparation of a corpus for training: cleaned pairs as token ids, and the tokenizer, cached by
fingerprint.

The fingerprint is a hash of the checksums of the corpora, the cleaning steps, the tokenizer options
and the version of the store, which stands for the code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np

from nmt.core.config import Config, DataConfig
from nmt.core.console import log
from nmt.core.errors import ConfigError, DataError
from nmt.core.parts import Part
from nmt.core.paths import data_dir, locked, resumable_directory, write_text
from nmt.core.plugins import source_checksums
from nmt.core.processes import Executor
from nmt.core.registry import parse
from nmt.core.untrusted_files import JsonObject, read_record
from nmt.data.clean import cleaning_pipeline, is_blank, segments
from nmt.data.mixing import Mix, PreparedCorpus
from nmt.data.pipeline import ENCODED, Pipeline, Text
from nmt.data.placeholders import PLACEHOLDERS
from nmt.data.shards import ALL_SHARDS, Shard, UnfinishedPartsError
from nmt.data.sources import Split, open_split, parse_corpus, validate_all
from nmt.data.sources.corpus import hash_strings, translators_of
from nmt.data.sources.files import Files
from nmt.data.store import VERSION, Store, StoredShard
from nmt.text import tokenizer as tokenizers
from nmt.text.sentences import count_sentences
from nmt.text.tokenizer import Tokenizer
from nmt.text.tokenizers import load_tokenizer, tokenizer_file

SAMPLE_SIZE = 10_000
"""Lines whose sentences are counted."""
MANIFEST = "manifest.json"
TRAIN = "train"
VALID = "valid"
MIN_BYTES_FOR_WEIGHTS = 20_000_000
"""Size of the files of all corpora above which the tokenizer is trained on a sample by weight."""
REFERENCES = "valid.references"
"""File with the references of each validation sentence, if one has several."""
KEPT_SUFFIXES = (".ids", ".ends", ".text", ".lines", ".references")
"""Files of prepared shards; all others are those of a stage of the preparation."""

PLACEHOLDERS_VERSION = 5
"""Version of what placeholders replace."""
_OPTIONAL_KEYS = ("replay", "placeholders", "tag", "weights", "plugins")
"""Entries of a recipe that are left out if they are not used, so that earlier fingerprints stay."""


@dataclass(frozen=True)
class PreparedData:
    """The prepared data of a config: token ids and tokenizer in one directory."""

    directory: Path
    src: str
    tgt: str
    meta: JsonObject
    """Content of the manifest: fingerprint and recipe, pairs per split and per corpus, pairs
    dropped by cleaning, size and checksum of each shard.

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
        """Open the pairs of a split."""
        return _open_store(self.directory, self.meta, split)

    def lines(self, split: str) -> tuple[list[str], list[str]]:
        """Return the source and target sentences of a split."""
        sources: list[str] = []
        targets: list[str] = []
        for source, target in self.store(split).pairs():
            sources.append(source)
            targets.append(target)
        return sources, targets

    def valid_references(self) -> list[list[str]]:
        """Return the references of each validation sentence; an empty list if none has several."""
        path = self.directory / REFERENCES
        if not path.is_file():
            return []
        references: list[list[str]] = json.loads(path.read_text(encoding="utf-8"))
        return references

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer."""
        return load_tokenizer(tokenizer_file(self.directory))


def prepare(
    config: Config, executor: Executor | None = None, part: Part = ALL_SHARDS
) -> PreparedData:
    """Return the prepared data of `config`; prepare it unless it is cached.

    Args:
        config: the corpora and the options of cleaning and tokenizer.
        executor: computes the shards; default: one process per core.
        part: the shards that this machine prepares.

    Raises:
        ConfigError: a spec string is invalid.
        DataError: a corpus is missing, corrupted, or empty after cleaning.
        DownloadError: a corpus cannot be downloaded.
        UnfinishedPartsError: other machines have not finished a stage of their shards.
    """
    check_data_specs(config.data)
    _check_tokenizer(config)
    splits = _Splits.open(config.data)
    recipe = _recipe(config, splits)
    sorted_recipe = json.dumps(recipe, sort_keys=True)
    fingerprint = hash_strings(sorted_recipe)[:16]
    directory = data_dir() / "prepared" / fingerprint
    if not _is_complete(directory):  # take no lock if it is: the directory may be read-only
        with executor or Executor() as running:
            preparation = _Preparation(config, splits, recipe, fingerprint, running, part)
            preparation.run(directory)
    meta = _read_manifest(directory)
    translators = list(chain.from_iterable(map(translators_of, splits.training)))
    if translators:
        meta["translators"] = translators
    return PreparedData(directory, config.data.src, config.data.tgt, meta)


def _read_manifest(directory: Path) -> JsonObject:
    path = directory / MANIFEST
    try:
        manifest: JsonObject = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        raise DataError(
            f"{path} is damaged", "delete its directory and re-run the command"
        ) from None
    return manifest


def _open_store(directory: Path, manifest: JsonObject, split: str) -> Store:
    tokenizer = load_tokenizer(tokenizer_file(directory))
    shards = []
    for index, record in enumerate(manifest["shards"][split]):
        shard = Shard(directory, split, index, record["num_pairs"])
        shards.append(StoredShard(shard, tokenizer))
    return Store(shards)


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
        _check_test_files(data)
        return cls(train, replay, valid)

    @property
    def training(self) -> list[Split]:
        """The corpora of the training text, in its order."""
        return [*self.train, *self.replay]


def _check_test_files(data: DataConfig) -> None:
    """Raise a DataError if the test set is in files that cannot be opened: after hours of training,
    this would be late. Other corpora might be downloaded."""
    spec = data.test or data.train[0]
    corpus = parse_corpus(spec)[0]
    if isinstance(corpus, Files) and "test" in corpus.splits:
        corpus.open("test", data.src, data.tgt)


def find_prepared_data(run: Path) -> PreparedData | None:
    """Return the prepared data of a run, or None if it is no longer on disk."""
    recorded = read_record(run / "data.json")
    directory = data_dir() / "prepared" / str(recorded.get("fingerprint"))
    if not _is_complete(directory):
        return None
    manifest = _read_manifest(directory)
    recipe = manifest["recipe"]
    return PreparedData(directory, recipe["src"], recipe["tgt"], manifest)


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
    if not path or not _has_tag(config.data):
        return
    if load_tokenizer(Path(path)).tag_id is None:
        hint = "leave out tag=True"
        if not config.train.init_from:
            hint += ", or use a tokenizer that has it: nmt tokenizer train --tag"
        raise ConfigError(f"{path} has no piece for tag=True in data.train", hint)


def _is_complete(directory: Path) -> bool:
    return (directory / MANIFEST).is_file()


def _recipe(config: Config, splits: _Splits) -> JsonObject:
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
        "weights": _weights(config, splits),
        "tokenizer": tokenizer,
        "plugins": source_checksums(
            "cleaning step", (parse(spec)[0] for spec in config.data.clean)
        ),
    }
    return {key: value for key, value in recipe.items() if value or key not in _OPTIONAL_KEYS}


def _identify(split: Split) -> tuple[str, str]:
    return split.name, split.checksum


def _weights(config: Config, splits: _Splits) -> list[float] | None:
    """Return the weights of the corpora in the text that a tokenizer is trained on; None if they
    have none, because all text is used or because all weights are 1."""
    weights = [parse_corpus(spec)[1].weight for spec in config.data.train]
    paths = chain.from_iterable(split.files for split in splits.train)
    is_small = sum(path.stat().st_size for path in paths) < MIN_BYTES_FOR_WEIGHTS
    if is_small or config.tokenizer.model or set(weights) == {1.0}:
        return None
    return weights


@dataclass
class _Preparation:
    """The preparation of a config."""

    config: Config
    splits: _Splits
    recipe: JsonObject
    fingerprint: str
    executor: Executor
    part: Part

    def run(self, directory: Path) -> None:
        """Prepare the data in a temporary directory, which becomes `directory`.

        Raises:
            UnfinishedPartsError: other machines have not finished a stage of their shards.
        """
        is_shared = self.part.count > 1
        name = self.fingerprint
        if is_shared:
            name += f"-{self.part.number}-of-{self.part.count}"
        waiting = f"another process is preparing the same data; waiting for {directory}"
        with locked(directory.with_name(f".{name}.lock"), lambda: log(waiting)), ExitStack() as end:
            if _is_complete(directory):
                return
            try:
                with resumable_directory(directory, keep=is_shared) as work:
                    self._build(work)
                    # Several machines may be the last one.
                    last = directory.with_name(f".{self.fingerprint}.last.lock")
                    end.enter_context(locked(last, busy=lambda: None))
                    self._finish(work)
            except (UnfinishedPartsError, FileNotFoundError):
                if not _is_complete(directory):
                    raise

    def _build(self, work: Path) -> None:
        """Write the token ids of all shards, skipping what an interrupted preparation has
        completed."""
        if any(work.glob("*.json")):
            log(f"resuming the interrupted preparation in {work}")
        data = self.config.data
        train = Pipeline(work, TRAIN, self.executor, self.part)
        texts = train.clean(self.splits.training, segments(data.clean))
        # One machine prepares what all of them share.
        with locked(work / ".tokenizer.lock", busy=lambda: None):
            if not tokenizer_file(work).is_file():
                self._check(train, texts)
                self._get_tokenizer(train, texts).save(work)
            self._prepare_validation(work)
        train.encode(texts, tokenizer_file(work), data.placeholders)

    def _prepare_validation(self, work: Path) -> None:
        valid = Pipeline(work, VALID, self.executor, ALL_SHARDS)
        if valid.is_encoded:
            return
        texts = valid.read([self.splits.valid])
        # The text of encoded shards has been checked and deleted.
        has_encoded = any(text.shard.has(ENCODED) for text in texts)
        if not has_encoded and not any(map(_has_text, texts)):
            raise DataError(
                f"the validation split of {self.splits.valid.name} is empty",
                "set data.valid to another corpus",
            )
        if self.splits.valid.references:
            references = list(self.splits.valid.references())
            if any(len(each) > 1 for each in references):
                write_text(work / REFERENCES, json.dumps(references))
        valid.encode(texts, tokenizer_file(work), has_placeholders=False)

    def _check(self, train: Pipeline, texts: Sequence[Text]) -> None:
        """Check that pairs are left, and that the corpora are those that have been hashed."""
        for step, num_dropped in train.dropped(segments(self.config.data.clean)).items():
            if num_dropped:
                log(f"cleaning step {step} dropped {num_dropped:,} pairs")
        sizes = train.sizes(texts)
        num_new = len(self.splits.train)
        _check_not_empty("training", sizes[:num_new])
        _check_not_empty("replay", sizes[num_new:])
        reopened = _Splits.open(self.config.data)
        if _recipe(self.config, reopened) != self.recipe:
            raise DataError("a corpus changed while it was read", "run the command again")

    def _get_tokenizer(self, train: Pipeline, texts: Sequence[Text]) -> Tokenizer:
        """Load `tokenizer.model`, or train a tokenizer on the training text without replay."""
        options = self.config.tokenizer
        data = self.config.data
        symbols = PLACEHOLDERS if data.placeholders else ()
        if options.model:
            tokenizer = load_tokenizer(Path(options.model))
            pieces = tokenizer.ids_to_pieces(range(len(tokenizer)))
            if not set(symbols) <= set(pieces):
                lacking = f"{options.model} has no pieces for placeholders"
                log(f"{lacking}, so the model may not copy them")
            return tokenizer
        shares = self._sampled_shares(train)
        lines = train.sample(texts[: len(shares)], shares, data.placeholders)
        log(f"training a {options.model_type} tokenizer")
        return tokenizers.train(lines, options, symbols, tag=_has_tag(data))

    def _sampled_shares(self, train: Pipeline) -> list[float]:
        """Return the share of the sentences of each shard that the tokenizer is trained on."""
        corpora = train.corpora[: len(self.splits.train)]
        weights = _weights(self.config, self.splits) or [1.0] * len(corpora)
        num_sentences = 0.0
        num_characters = 0.0
        weight_of_shards: list[float] = []
        for shards, weight in zip(corpora, weights, strict=True):
            weight_of_shards += [weight] * len(shards)
            for shard in shards:
                record = shard.record(segments(self.config.data.clean)[0].stage)
                num_sentences += 2 * weight * record["pairs"]
                num_characters += weight * record["characters"]
        max_sentences = self.config.tokenizer.max_training_sentences
        share = min(max_sentences / num_sentences, tokenizers.MAX_CHARACTERS / num_characters)
        if share >= 1:  # all of them
            return [1.0] * len(weight_of_shards)
        return [share * weight for weight in weight_of_shards]

    def _finish(self, work: Path) -> None:
        """Write the manifest, and delete all files but those of the prepared data."""
        manifest = self._manifest(work)
        for path in work.iterdir():
            is_kept = path.suffix in KEPT_SUFFIXES or path == tokenizer_file(work)
            if path.is_file() and not is_kept:
                path.unlink()
        text = json.dumps(manifest, indent=2)
        (work / MANIFEST).write_text(text + "\n", encoding="utf-8")
        num_train = sum(manifest["corpora"][: len(self.splits.train)])
        num_replay = manifest["pairs"][TRAIN] - num_train
        replayed = f", {num_replay:,} replay" if self.splits.replay else ""
        num_valid = manifest["pairs"][VALID]
        counts = f"{num_train:,} training{replayed} and {num_valid:,} validation pairs"
        log(f"prepared {counts}, a vocabulary of {manifest['vocab_size']:,} tokens")

    def _manifest(self, work: Path) -> JsonObject:
        train = Pipeline(work, TRAIN, self.executor, self.part)
        valid = Pipeline(work, VALID, self.executor, ALL_SHARDS)
        records = {split.name: split.records(ENCODED) for split in (train, valid)}
        pairs = {name: _total(of_split) for name, of_split in records.items()}
        rest = iter(records[TRAIN])
        sizes = [_total(islice(rest, len(shards))) for shards in train.corpora]
        tokenizer = load_tokenizer(tokenizer_file(work))
        manifest: JsonObject = {
            "fingerprint": self.fingerprint,
            "recipe": self.recipe,
            "pairs": pairs,
            "corpora": sizes,
            "dropped": train.dropped(segments(self.config.data.clean)),
            "vocab_size": len(tokenizer),
            "tokenizer": tokenizer.checksum,
            "shards": records,
        }
        num_train = sum(sizes[: len(self.splits.train)])
        store = _open_store(work, manifest, TRAIN)
        manifest |= {
            # Translation splits input that is longer than almost all training sentences.
            "max_source_length": _source_length_percentile(store, num_train, 99.9),
            "max_sentences_per_line": _max_sentences_per_line(
                store, self.config.data.src, num_train
            ),
        }
        return manifest


def _total(records: Iterable[dict[str, int]]) -> int:
    return sum(record["num_pairs"] for record in records)


def _check_not_empty(label: str, num_kept: Sequence[int]) -> None:
    """Check that a pair is left of some corpora."""
    if num_kept and not sum(num_kept):
        raise DataError(
            f"no {label} pair is left after cleaning", "check data.clean, data.src and data.tgt"
        )


def _has_text(text: Text) -> bool:
    """Return whether a pair has text on both sides."""
    return any(not is_blank(source) and not is_blank(target) for source, target in text.read())


def _source_length_percentile(store: Store, num_pairs: int, percentile: float) -> int:
    """Return a percentile of the source lengths of the first pairs, one of the lengths."""
    count_L = np.zeros(0, np.int64)  # by length
    for shard, start in zip(store.shards, store.starts, strict=False):
        if start < num_pairs:
            source_N = shard.lengths_N2()[:, 0]
            num_lengths = max(len(count_L), int(source_N.max(initial=0)) + 1)
            count_L = np.pad(count_L, (0, num_lengths - len(count_L)))
            count_L += np.bincount(source_N, minlength=num_lengths)
    rank = math.ceil(percentile / 100 * (num_pairs - 1))
    return int(np.searchsorted(count_L.cumsum(), rank, side="right"))


def _max_sentences_per_line(store: Store, language: str, num_lines: int) -> int:
    """Return the maximum number of sentences per source line of the first lines, ignoring the top
    one percent."""
    step = max(1, num_lines // SAMPLE_SIZE)
    lines = map(store.source, range(0, num_lines, step))
    counts = [count_sentences(line, language) for line in lines]
    return int(np.percentile(counts, 99, method="higher"))
