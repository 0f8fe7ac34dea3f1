"""From corpora to a prepared folder: cleaned text, tokenizer, ids. Made once per fingerprint, used by every run.

The fingerprint is a hash over everything that decides the result: the corpora's checksums, cleaning steps,
tokenizer options and the store's version. A stale cache can therefore not be used by accident.
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

from nmt.config import Config, DataConfig
from nmt.console import log, progress
from nmt.data import tokenizer as tokenizers
from nmt.data.clean import clean
from nmt.data.pairs import Pair, read_lines, write_pairs
from nmt.data.segment import count_sentences
from nmt.data.sources import Split, open_split, validate
from nmt.data.store import VERSION, Store, encode_side, is_encoded
from nmt.data.tokenizer import Tokenizer
from nmt.errors import DataError
from nmt.paths import data_dir, locked, resumable_directory, write_bytes, write_text

SAMPLED = 10_000
"""Lines whose sentences are counted."""
CLEANED = "cleaned.json"
"""Says, while a folder is made, that its text is complete."""


@dataclass(frozen=True)
class Prepared:
    """A prepared folder, ready to train on."""

    folder: Path
    src: str
    tgt: str
    meta: dict[str, Any]
    """What `meta.json` says: fingerprint, corpora with checksums, pairs per split, what cleaning dropped."""

    def store(self, split: str) -> Store:
        """Open the ids of a split."""
        return Store(self.folder, split, self.src, self.tgt)

    def lines(self, split: str) -> tuple[list[str], list[str]]:
        """Read both sides of a split as text."""
        return tuple(list(read_lines(self.folder / f"{split}.{code}")) for code in (self.src, self.tgt))  # type: ignore[return-value]

    def tokenizer(self) -> Tokenizer:
        """Load the tokenizer."""
        return Tokenizer.load(self.folder / "spm.model")


def prepare(config: Config) -> Prepared:
    """Return the prepared folder of `config`, made now unless it stands already.

    Raises:
        DataError: a corpus is missing, damaged, or empty after cleaning.
        DownloadError: a corpus had to be fetched and could not be.
    """
    data = config.data
    check_specs(data)
    train = [open_split(spec, "train", data.src, data.tgt) for spec in data.train]
    valid = open_split(data.valid or data.train[0], "valid", data.src, data.tgt)
    recipe = _recipe(config, train, valid)
    fingerprint = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:16]
    folder = data_dir() / "prepared" / fingerprint
    if not _stands(folder):  # a folder that does may be read-only
        lock = folder.with_name(f".{fingerprint}.lock")
        with locked(lock, lambda: log(f"another process is preparing the same text; waiting for {folder}")):
            if not _stands(folder):
                with resumable_directory(folder) as work:
                    meta = {"fingerprint": fingerprint, "recipe": recipe} | _make(config, train, valid, work)
                    (work / "meta.json").write_text(json.dumps(meta, indent=2) + "\n", encoding="utf-8")
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    return Prepared(folder, data.src, data.tgt, meta)


def prepared_text(run: Path, code: str) -> Path | None:
    """Return one side of the text that a run learned from, as it was after cleaning, if it is still on disk."""
    try:
        fingerprint = json.loads((run / "data.json").read_text(encoding="utf-8"))["fingerprint"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    path = data_dir() / "prepared" / str(fingerprint) / f"train.{code}"
    return path if path.is_file() else None


def check_specs(data: DataConfig) -> None:
    """Resolve every spec string of the section `data`, so that a mistake shows before any download.

    Raises:
        ConfigError: the first one that does not resolve.
    """
    clean((), data.clean)
    for corpus in (*data.train, data.valid, data.test):
        if corpus:
            validate(corpus)


def _stands(folder: Path) -> bool:
    return (folder / "meta.json").is_file()


def _recipe(config: Config, train: list[Split], valid: Split) -> dict[str, Any]:
    options = asdict(config.tokenizer)
    if config.tokenizer.model:
        options["model"] = Tokenizer.load(Path(config.tokenizer.model)).checksum
    return {
        "version": VERSION,
        "src": config.data.src,
        "tgt": config.data.tgt,
        "train": [(split.name, split.checksum) for split in train],
        "valid": (valid.name, valid.checksum),
        "clean": config.data.clean,
        "tokenizer": options,
    }


def _make(config: Config, train: list[Split], valid: Split, work: Path) -> dict[str, Any]:
    """Fill `work` step by step; steps that an interrupted preparation has finished are not done again."""
    src, tgt = config.data.src, config.data.tgt
    cleaned = _clean(config, train, valid, work)
    pairs, valid_pairs = cleaned["pairs"]["train"], cleaned["pairs"]["valid"]
    if not (work / "spm.model").is_file():
        write_bytes(work / "spm.model", _tokenizer(config, work, 2 * pairs).model)
    tokenizer = Tokenizer.load(work / "spm.model")
    with progress(2 * (pairs + valid_pairs), "tokenizing", " sentences", unit_scale=True) as bar:
        for split in ("train", "valid"):
            for code in (src, tgt):
                if is_encoded(work / f"{split}.{code}"):
                    bar.update(cleaned["pairs"][split])
                    continue
                for done in encode_side(work / f"{split}.{code}", tokenizer):
                    bar.update(done)
    (work / CLEANED).unlink()
    lengths_N2 = Store(work, "train", src, tgt).lengths_N2
    log(f"prepared {pairs:,} training and {valid_pairs:,} validation pairs, {len(tokenizer):,} pieces")
    return cleaned | {
        "pieces": len(tokenizer),
        # What is longer was hardly ever learned from; a translator cuts such input into sentences.
        "longest_source": int(np.percentile(lengths_N2[:, 0], 99.9, method="higher")),
        "max_sentences_per_line": _most_sentences(Store(work, "train", src, tgt), src),
        "tokenizer": tokenizer.checksum,
    }


def _most_sentences(store: Store, language: str) -> int:
    """Return how many sentences a line has at most, one line in a hundred aside."""
    numbers = range(0, len(store), max(1, len(store) // SAMPLED))
    counts = [count_sentences(store.src.text(i), language) for i in numbers]
    return int(np.percentile(counts, 99, method="higher"))


def _clean(config: Config, train: list[Split], valid: Split, work: Path) -> dict[str, Any]:
    """Write the text of both splits; return how many pairs each has, and what each cleaning step dropped."""
    if (work / CLEANED).is_file():
        log(f"going on with {work}, which an interrupted preparation left")
        before: dict[str, Any] = json.loads((work / CLEANED).read_text(encoding="utf-8"))
        return before
    src, tgt = config.data.src, config.data.tgt
    counts = [split.count() if split.count else None for split in train]
    cleaned = clean(_ticking(train, counts), config.data.clean)
    pairs = write_pairs(work / f"train.{src}", work / f"train.{tgt}", cleaned)
    for step in cleaned.report:
        if step.dropped:
            log(f"cleaning step {step.step} dropped {step.dropped:,} pairs")
    if not pairs:
        raise DataError("no training pair is left after cleaning", "look at data.clean, and at which side is which")
    valid_pairs = write_pairs(work / f"valid.{src}", work / f"valid.{tgt}", valid.pairs())
    if not valid_pairs:
        raise DataError(f"the validation split of {valid.name} is empty")
    found = {
        "pairs": {"train": pairs, "valid": valid_pairs},
        "dropped": {step.step: step.dropped for step in cleaned.report},
    }
    write_text(work / CLEANED, json.dumps(found))
    return found


def _ticking(train: list[Split], counts: list[int | None]) -> Iterator[Pair]:
    total = sum(count or 0 for count in counts) if None not in counts else None
    with progress(total, "cleaning", " pairs", unit_scale=True) as bar:
        for pair in chain.from_iterable(split.pairs() for split in train):
            bar.update()
            yield pair


def _tokenizer(config: Config, work: Path, sentences: int) -> Tokenizer:
    if config.tokenizer.model:
        return Tokenizer.load(Path(config.tokenizer.model))
    log(
        f"training a {config.tokenizer.model_type} tokenizer on {min(sentences, config.tokenizer.max_training_sentences):,} sentences"
    )
    sides = (work / f"train.{code}" for code in (config.data.src, config.data.tgt))
    return tokenizers.train(chain.from_iterable(read_lines(side) for side in sides), config.tokenizer)
