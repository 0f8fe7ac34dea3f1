"""Lexical shortlists: the target tokens that a source sentence makes likely, to which the output
layer is restricted (Jean et al. 2015, section 3.2; Mi et al. 2016).

The candidates of a sentence are the most frequent tokens, the translations of each of its tokens
and of the end token, and, with a shared vocabulary, its tokens themselves. The file is the binary
format of Marian, all numbers little-endian:

    magic, checksum, number of frequent tokens, most translations of a token, number of offsets,
    number of translations                                              u64 each
    for each source id, and the end: offset of its translations          u64 each
    the translations of all source ids                                   u32 each

Shape suffixes: V source vocabulary, N translations of all tokens, S source tokens, C candidates.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt.core import untrusted_files
from nmt.core.paths import write_bytes, write_text
from nmt.text.separate_tokenizer import SeparateTokenizer
from nmt.text.tokenizer import BOS, EOS, PAD, Tokenizer

MAGIC = 0xF11A48D5013417F5
FILE = "shortlist.s2t.bin"
"""The shortlist in the directory of a run."""
DIGEST = f"{FILE}.sha256"
"""Its SHA-256. The checksum in the file takes half a second, longer than loading a model."""
MAX_BYTES = 1 << 26
BLOCK = 1 << 16
MULTIPLE = 8
"""The number of candidates is a multiple of this number, in the integer products of Firefox."""
_HEADER = struct.Struct("<6Q")


class Shortlist(NamedTuple):
    """The likely translations of each token."""

    num_frequent: int
    """The ids 0 .. num_frequent - 1 are candidates of every sentence."""
    max_translations: int
    """Of a token."""
    starts_V1: NDArray[np.uint64]
    """Index of the first translation of each source id; and the end."""
    translations_N: NDArray[np.uint32]
    has_own_tokens: bool = True
    """Whether the tokens of a sentence are candidates: those of a shared vocabulary."""
    excluded: tuple[int, ...] = ()
    """Ids that the vocabulary of the original file does not have."""

    @property
    def vocab_size(self) -> int:
        """V."""
        return len(self.starts_V1) - 1

    def candidates(self, source: Sequence[int], required: Sequence[int] = ()) -> NDArray[np.int32]:
        """Return the candidates of a sentence with these ids, and required ones, in ascending
        order: [C]."""
        is_candidate_V = np.zeros(self.vocab_size, bool)
        is_candidate_V[: self.num_frequent] = True
        for token in {*source, EOS}:
            first, end = self.starts_V1[token : token + 2].tolist()
            is_candidate_V[self.translations_N[first:end]] = True
        if self.has_own_tokens:
            is_candidate_V[list(source)] = True
        is_candidate_V[list(self.excluded)] = False
        is_candidate_V[list(required)] = True
        # The next ids fill up the last group of `MULTIPLE`.
        missing = -np.count_nonzero(is_candidate_V) % MULTIPLE
        is_left_V = ~is_candidate_V
        is_left_V[list(self.excluded)] = False
        next_ids = np.flatnonzero(is_left_V[self.num_frequent :])[:missing]
        is_candidate_V[self.num_frequent + next_ids] = True
        return np.flatnonzero(is_candidate_V).astype(np.int32)

    @classmethod
    def find(cls, run: Path, tokenizer: Tokenizer) -> Shortlist | None:
        """Return the shortlist of a run; None: it has none.

        Raises:
            CheckpointError: it is damaged, or of another vocabulary.
        """
        path = run / FILE
        if not path.exists():
            return None
        hint = f"delete it, or create it again: nmt tokenizer shortlist --model {run}"
        with untrusted_files.errors_of(path, hint):
            content = untrusted_files.read_bytes(path, MAX_BYTES)
            is_intact = hashlib.sha256(content).hexdigest() == _recorded_digest(run)
            vocab_size = len(tokenizer)
            shortlist = cls.read(content, vocab_size, vocab_size, is_intact=is_intact)
            return shortlist.of_tokenizer(tokenizer)

    def of_tokenizer(self, tokenizer: Tokenizer) -> Shortlist:
        """Return the shortlist with what the kind of the tokenizer tells: an imported one may have
        two vocabularies, and has ids for padding and the start that the model lacks."""
        if not isinstance(tokenizer, SeparateTokenizer):
            return self
        has_own_tokens = tokenizer.source == tokenizer.target
        return self._replace(has_own_tokens=has_own_tokens, excluded=(PAD, BOS))

    def save(self, run: Path) -> Path:
        """Write the shortlist of a run, and return its file."""
        path = run / FILE
        content = self.write()
        write_bytes(path, content)
        write_text(run / DIGEST, hashlib.sha256(content).hexdigest())
        return path

    @classmethod
    def read(
        cls, content: bytes, source_size: int, target_size: int, *, is_intact: bool = False
    ) -> Shortlist:
        """Return the content of a file for vocabularies of these sizes; `is_intact` tells that its
        checksum is right.

        Raises:
            ValueError: it is damaged, or of another vocabulary.
        """
        if len(content) < _HEADER.size:
            raise ValueError("it is truncated")
        magic, checksum, *sizes = _HEADER.unpack_from(content)
        num_frequent, max_translations, num_starts, num_translations = sizes
        if magic != MAGIC:
            raise ValueError("it is not a binary shortlist")
        ends = _HEADER.size + 8 * num_starts
        size = ends + 4 * num_translations
        if len(content) != size:
            problem = "is truncated" if len(content) < size else "has more than its translations"
            raise ValueError(f"it {problem}")
        num_tokens = max(num_starts, 1) - 1
        if num_starts != source_size + 1:
            raise ValueError(
                f"it is of another vocabulary: {num_tokens:,} tokens, not {source_size:,}"
            )
        if not is_intact and checksum != _checksum(content):
            raise ValueError("its checksum is wrong")
        starts_V1 = np.frombuffer(content, "<u8", num_starts, _HEADER.size)
        translations_N = np.frombuffer(content, "<u4", num_translations, ends)
        shortlist = cls(num_frequent, max_translations, starts_V1, translations_N)
        shortlist._check(target_size)
        return shortlist

    def _check(self, target_size: int) -> None:
        """Raise a ValueError if a position or an id is out of range."""
        starts_V1 = self.starts_V1
        is_sorted = bool((starts_V1[1:] >= starts_V1[:-1]).all())
        is_complete = starts_V1[0] == 0 and starts_V1[-1] == len(self.translations_N)
        if not (is_sorted and is_complete):
            raise ValueError("the positions of its translations are out of order")
        max_id = int(self.translations_N.max(initial=0))
        if max(max_id, self.num_frequent - 1) >= target_size:
            raise ValueError(f"it is of another vocabulary: more than {target_size:,} tokens")

    @classmethod
    def of(
        cls,
        source_N: NDArray[np.integer[Any]],
        target_N: NDArray[np.integer[Any]],
        vocab_size: int,
        num_frequent: int,
        max_translations: int,
    ) -> Shortlist:
        """Return a shortlist in which each source token has these translations."""
        order_N = np.lexsort((target_N, source_N))
        counts_V = np.bincount(source_N, minlength=vocab_size)
        starts_V1 = np.append(0, np.cumsum(counts_V))
        return cls(
            num_frequent,
            max_translations,
            starts_V1.astype(np.uint64),
            target_N[order_N].astype(np.uint32),
        )

    def with_ids(
        self, source_rows_V: NDArray[np.integer[Any]], target_rows_V: NDArray[np.integer[Any]]
    ) -> Shortlist:
        """Return the shortlist of another vocabulary.

        Args:
            source_rows_V: the source id here of each id there; negative: none.
            target_rows_V: the target id here of each id there; negative: none.
        """
        num_targets = int(target_rows_V.max(initial=-1)) + 1
        new_ids = np.zeros(num_targets, np.int64)
        ids_here = np.flatnonzero(target_rows_V >= 0)
        new_ids[target_rows_V[ids_here]] = ids_here
        sources = []
        targets = []
        for new_id, old_id in enumerate(source_rows_V.tolist()):
            if old_id >= 0:
                first, end = self.starts_V1[old_id : old_id + 2].tolist()
                targets.append(new_ids[self.translations_N[first:end]])
                sources.append(np.full(end - first, new_id))
        frequent = new_ids[: self.num_frequent]
        return Shortlist.of(
            np.concatenate(sources),
            np.concatenate(targets),
            len(source_rows_V),
            int(frequent.max(initial=-1)) + 1,
            self.max_translations,
        )

    def write(self) -> bytes:
        """Return the content of a file."""
        sizes = (len(self.starts_V1), len(self.translations_N))
        header = _HEADER.pack(MAGIC, 0, self.num_frequent, self.max_translations, *sizes)
        arrays = (
            self.starts_V1.astype("<u8").tobytes() + self.translations_N.astype("<u4").tobytes()
        )
        content = header + arrays
        return content[:8] + struct.pack("<Q", _checksum(content)) + content[16:]


def _recorded_digest(run: Path) -> str:
    """Return the SHA-256 that `Shortlist.save` has written; empty: there is none."""
    with contextlib.suppress(OSError, ValueError):
        return untrusted_files.read_bytes(run / DIGEST).decode("ascii")
    return ""


def _checksum(content: bytes) -> int:
    """Return the hash of all complete 64-bit numbers after the checksum, as Marian computes it:
    that of `boost::hash_combine`."""
    numbers = np.frombuffer(content, "<u8", len(content) // 8)[2:]
    mask = 2**64 - 1
    seed = 0
    for start in range(0, len(numbers), BLOCK):  # a list takes several times the memory of an array
        for number in numbers[start : start + BLOCK].tolist():
            mixed = number + 0x9E3779B9 + (seed << 6) + (seed >> 2)
            seed ^= mixed & mask
    return seed
