"""Preparation of a corpus for training: cleaned text, tokenizer and token ids, cached by fingerprint.

The fingerprint is a hash of everything that determines the result: the checksums of the corpora, the cleaning steps,
the tokenizer options and the version of the store. A stale cache is therefore never used.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from nmt.config import MAX_VOCAB_SIZE, Config, DataConfig, TokenizerConfig
from nmt.console import log, progress
from nmt.data import tokenizer as tokenizers
from nmt.data.clean import clean
from nmt.data.pairs import Pair, read_lines, write_pairs
from nmt.data.placeholders import PLACEHOLDERS, replace_spans
from nmt.data.sentences import count_sentences
from nmt.data.sources import Split, open_split, validate
from nmt.data.store import VERSION, Store, encode_file, is_encoded
from nmt.data.tokenizer import Tokenizer, tokenizer_file
from nmt.errors import ConfigError, DataError
from nmt.paths import data_dir, locked, resumable_directory, write_text

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
    """Content of `meta.json`: fingerprint, corpora with checksums, pairs per split, pairs dropped by cleaning."""

    @property
    def has_replay(self) -> bool:
        """Whether there is a split "replay"."""
        return "replay" in self.meta["pairs"]

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
    check_specs(data)
    _check_vocab_size(config.tokenizer)
    train, replay = (
        [open_split(spec, "train", data.src, data.tgt) for spec in specs] for specs in (data.train, data.replay)
    )
    valid = open_split(data.valid or data.train[0], "valid", data.src, data.tgt)
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
    meta = json.loads((directory / "meta.json").read_text(encoding="utf-8"))
    return PreparedData(directory, data.src, data.tgt, meta)


def find_prepared_text(run: Path, language: str) -> Path | None:
    """Return the cleaned training text of a run in one language, or None if it is no longer on disk."""
    try:
        fingerprint = json.loads((run / "data.json").read_text(encoding="utf-8"))["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    path = data_dir() / "prepared" / str(fingerprint) / f"train.{language}"
    return path if path.is_file() else None


def check_specs(data: DataConfig) -> None:
    """Check all spec strings of the `data` section without downloading anything.

    Raises:
        ConfigError: a spec string is invalid.
    """
    clean((), data.clean)
    for corpus in (*data.train, *data.replay, data.valid, data.test):
        if corpus:
            validate(corpus)


def _check_vocab_size(options: TokenizerConfig) -> None:
    size = len(Tokenizer.load(Path(options.model))) if options.model else options.vocab_size
    if size > MAX_VOCAB_SIZE:
        raise ConfigError(
            f"{options.model or 'tokenizer.vocab_size'}: {size:,} pieces are too many for training",
            f"the maximum is {MAX_VOCAB_SIZE:,}; a larger imported model can translate, but it cannot be fine-tuned",
        )


def _is_complete(directory: Path) -> bool:
    return (directory / "meta.json").is_file()


def _recipe(config: Config, train: list[Split], replay: list[Split], valid: Split) -> dict[str, Any]:
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
        **({"placeholders": True} if config.data.placeholders else {}),
        "tokenizer": options,
    }


def _build(config: Config, train: list[Split], replay: list[Split], valid: Split, work: Path) -> dict[str, Any]:
    """Write all files to `work`, skipping steps that an interrupted preparation has completed; return the metadata."""
    src, tgt = config.data.src, config.data.tgt
    cleaned = _clean(config, {"train": train, "replay": replay}, valid, work)
    pairs: dict[str, int] = cleaned["pairs"]
    if not tokenizer_file(work).is_file():
        _get_tokenizer(config, work, 2 * pairs["train"]).save(work)
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
    replayed = f", {pairs['replay']:,} replay" if replay else ""
    counts = f"{pairs['train']:,} training{replayed} and {pairs['valid']:,} validation pairs"
    log(f"prepared {counts}, {len(tokenizer):,} pieces")
    return cleaned | {
        "vocab_size": len(tokenizer),
        # Translation splits input that is longer than almost all training sentences.
        "max_source_length": int(np.percentile(store.lengths_N2[:, 0], 99.9, method="higher")),
        "max_sentences_per_line": _max_sentences_per_line(store, src),
        "tokenizer": tokenizer.checksum,
    }


def _max_sentences_per_line(store: Store, language: str) -> int:
    """Return the maximum number of sentences per source line, ignoring the top one percent."""
    sample = range(0, len(store), max(1, len(store) // SAMPLE_SIZE))
    counts = [count_sentences(store.src.text(i), language) for i in sample]
    return int(np.percentile(counts, 99, method="higher"))


def _clean(config: Config, cleaned_splits: dict[str, list[Split]], valid: Split, work: Path) -> dict[str, Any]:
    """Write the text of all splits; return the pairs per split and the pairs that each cleaning step dropped.

    The validation split is not cleaned.
    """
    if (work / CLEANING_FILE).is_file():
        log(f"resuming the interrupted preparation in {work}")
        completed: dict[str, Any] = json.loads((work / CLEANING_FILE).read_text(encoding="utf-8"))
        return completed
    src, tgt = config.data.src, config.data.tgt
    pairs, dropped = {}, {}
    for name, splits in cleaned_splits.items():
        if not splits:
            continue
        label = "training" if name == "train" else name
        cleaned = clean(_read_with_progress(splits), config.data.clean)
        text = replace_spans(cleaned) if config.data.placeholders else cleaned
        pairs[name] = write_pairs(work / f"{name}.{src}", work / f"{name}.{tgt}", text)
        dropped[name] = {stats.step: stats.dropped for stats in cleaned.report}
        for step, num_dropped in dropped[name].items():
            if num_dropped:
                log(f"cleaning step {step} dropped {num_dropped:,} {'' if name == 'train' else name + ' '}pairs")
        if not pairs[name]:
            raise DataError(f"no {label} pair is left after cleaning", "check data.clean, data.src and data.tgt")
    pairs["valid"] = write_pairs(work / f"valid.{src}", work / f"valid.{tgt}", valid.pairs())
    if not pairs["valid"]:
        raise DataError(f"the validation split of {valid.name} is empty")
    results = {"pairs": pairs, "dropped": dropped.pop("train")}
    if dropped:
        results["replay_dropped"] = dropped["replay"]
    write_text(work / CLEANING_FILE, json.dumps(results))
    return results


def _read_with_progress(splits: list[Split]) -> Iterator[Pair]:
    counts = [split.count() if split.count else None for split in splits]
    total = sum(count or 0 for count in counts) if None not in counts else None
    with progress(total, "cleaning", " pairs", unit_scale=True) as bar:
        for pair in chain.from_iterable(split.pairs() for split in splits):
            bar.update()
            yield pair


def _get_tokenizer(config: Config, work: Path, num_sentences: int) -> Tokenizer:
    """Load `tokenizer.model`, or train a tokenizer on the training text."""
    options = config.tokenizer
    if options.model:
        return Tokenizer.load(Path(options.model))
    num_sentences = min(num_sentences, options.max_training_sentences)
    log(f"training a {options.model_type} tokenizer on {num_sentences:,} sentences")
    files = (work / f"train.{code}" for code in (config.data.src, config.data.tgt))
    symbols = PLACEHOLDERS if config.data.placeholders else ()
    return tokenizers.train(chain.from_iterable(map(read_lines, files)), options, symbols)
