"""Subword tokenization with SentencePiece (Kudo and Richardson 2018), one model for both
languages."""

from __future__ import annotations

import hashlib
import io
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import sentencepiece as spm

from nmt.core import processes, untrusted_files
from nmt.core.config import TokenizerConfig
from nmt.core.console import log
from nmt.core.errors import CheckpointError, DataError
from nmt.core.paths import write_bytes
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.normalization import normalize

PAD, UNK, BOS, EOS = 0, 1, 2, 3
TAG = "<bt>"
"""Control piece that begins the sources of tagged corpora (Caswell et al. 2019). No text is encoded
as this piece."""
SPACE = "\u2581"
"""SentencePiece's symbol for a space; it precedes every word, including the first one."""
TRAINER_THREADS = 4
"""Fixed, because the order of floating-point sums in unigram training depends on the number of
threads."""
MAX_TRAINING_BYTES = 16_384
"""SentencePiece skips longer lines in training."""
MAX_CHARACTERS = 60_000_000
"""Characters of the text that a tokenizer is trained on. SentencePiece needs 20 bytes for each."""
_PART_OF_LINE = lazy_pattern(
    rf".{{1,{MAX_TRAINING_BYTES // 4}}}(?: |\Z)|.{{1,{MAX_TRAINING_BYTES // 4}}}", re.DOTALL
)
"""A part of a longer line: words, or characters if there is no space. A character has at most four
bytes."""
MIN_PARALLEL_TEXTS = 16
"""Fewer texts are encoded and decoded without threads, whose start takes longer."""
MIN_VOCAB_SIZE = 4 + 256 + 1
"""Special tokens, all bytes and one character."""


def _without_special(ids: Sequence[int]) -> list[int]:
    """Return ids without those of special tokens."""
    if isinstance(ids, list) and ids and min(ids) > EOS:
        return ids
    return [int(i) for i in ids if i > EOS]


def _num_threads() -> int:
    """Return the number of threads that encode and decode many texts: one in each of several
    processes, else one per core."""
    return 1 if processes.is_worker() else -1


def encoder_input(ids: Iterable[int], source_eos: bool) -> list[int]:
    """Return the ids that the encoder reads: those of a source, and EOS if `source_eos` is set or
    there are none."""
    source = [*ids]
    return [*source, EOS] if source_eos or not source else source


def one_line(text: str) -> str:
    """Return decoded text as one line: byte pieces can encode a line feed."""
    return text.replace("\n", " ").replace("\r", " ")


def load_processor(model: bytes) -> spm.SentencePieceProcessor:
    """Load the content of a SentencePiece model file.

    Raises:
        ValueError: it is not a SentencePiece model.
    """
    processor = spm.SentencePieceProcessor()
    try:
        # The argument `model_proto` of the constructor accepts an empty file.
        processor.LoadFromSerializedProto(model)
    except (RuntimeError, UnicodeDecodeError):  # the latter from a piece that the message quotes
        raise ValueError("not a SentencePiece model") from None
    return processor


class Tokenizer:
    """Convert text to piece ids and back. Unknown characters are encoded as bytes."""

    FILE = "spm.model"
    """Name of the file in a run."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._spm = load_processor(model)

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Load a SentencePiece model file.

        Raises:
            CheckpointError: the file is missing, is not a SentencePiece model, or has different
                special ids.
        """
        try:
            model = untrusted_files.read_bytes(path)
        except OSError as error:
            raise CheckpointError(
                f"cannot read tokenizer {path}: {error.strerror}",
                "check the path, or restore the file if it is part of a model",
            ) from None
        except ValueError as error:
            raise CheckpointError(
                f"{path} is not a SentencePiece model: {error}", "restore the file"
            ) from None
        return cls.parse(model, path)

    @classmethod
    def parse(cls, model: bytes, path: Path) -> Tokenizer:
        """Return the tokenizer of the content of a SentencePiece model file; `path` is for error
        messages.

        Raises:
            CheckpointError: It is not a SentencePiece model, or has different special ids.
        """
        try:
            tokenizer = cls(model)
        except ValueError:
            raise CheckpointError(
                f"{path} is not a SentencePiece model, or it is corrupted",
                "restore the original file",
            ) from None
        ids = (
            tokenizer._spm.pad_id(),
            tokenizer._spm.unk_id(),
            tokenizer._spm.bos_id(),
            tokenizer._spm.eos_id(),
        )
        if ids != (PAD, UNK, BOS, EOS):
            raise CheckpointError(
                f"{path}: pad, unk, bos and eos have the ids {ids}, not {(PAD, UNK, BOS, EOS)}",
                "train it with nmt tokenizer train",
            )
        return tokenizer

    @property
    def checksum(self) -> str:
        """SHA-256 of the model file; checkpoints identify their tokenizer by it."""
        return hashlib.sha256(self.model).hexdigest()

    def __len__(self) -> int:
        return int(self._spm.get_piece_size())

    def save(self, directory: Path) -> None:
        """Write the file of the tokenizer into a run."""
        write_bytes(directory / self.FILE, self.model)

    @staticmethod
    def language_token(text: str) -> str:
        """Return an empty string: source texts have no prefix that chooses the target language."""
        return ""

    def encode(self, text: str, *, target: bool = False) -> list[int]:
        """Return the piece ids of one line of the source or target side, without BOS and EOS."""
        return self.encode_batch([text], target=target)[0]

    def encode_batch(self, lines: Sequence[str], *, target: bool = False) -> list[list[int]]:
        """Return the piece ids of many lines of one side, using all cores. Here, the sides share
        one model."""
        texts = [normalize(line) for line in lines]
        if len(texts) < MIN_PARALLEL_TEXTS:
            return [self._spm.encode(text) for text in texts]
        ids: list[list[int]] = self._spm.encode(texts, num_threads=_num_threads())
        return ids

    @property
    def tag_id(self) -> int | None:
        """The id of `TAG`; None if the tokenizer was trained without it."""
        i = self._spm.piece_to_id(TAG)
        return int(i) if self._spm.is_control(i) else None

    @property
    def model_type(self) -> str:
        """`bpe` or `unigram`: BPE scores are integer ranks, unigram scores are
        log-probabilities."""
        return (
            "bpe"
            if all(score.is_integer() for score in self.piece_scores().values())
            else "unigram"
        )

    def piece_scores(self) -> dict[str, float]:
        """Map each text piece to its score: its negative rank (BPE) or its log-probability
        (unigram)."""
        is_special = (self._spm.is_control, self._spm.is_unknown, self._spm.is_byte)
        ids = (i for i in range(len(self)) if not any(test(i) for test in is_special))
        return {self._spm.id_to_piece(i): self._spm.get_score(i) for i in ids}

    def pieces_to_ids(self, pieces: Iterable[str]) -> list[int]:
        """Return the ids of pieces; a piece outside the vocabulary, except for that of UNK, is
        encoded as bytes."""
        ids, unknown = [], self._spm.id_to_piece(UNK)
        for piece in pieces:
            i = self._spm.piece_to_id(piece)
            is_known = i != UNK or piece == unknown
            ids += (
                [i]
                if is_known
                else [self._spm.piece_to_id(f"<0x{byte:02X}>") for byte in piece.encode()]
            )
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of piece ids, without special tokens; invalid byte sequences become
        U+FFFD."""
        return self.decode_batch([ids])[0]

    def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of piece ids; see `decode`."""
        pieces = list(map(_without_special, rows))
        if len(pieces) < MIN_PARALLEL_TEXTS:
            return [one_line(self._spm.decode(row)) if row else "" for row in pieces]
        texts = self._spm.decode(pieces, num_threads=_num_threads())
        return list(map(one_line, texts))

    def ids_to_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the pieces as strings."""
        return [self._spm.id_to_piece(int(i)) for i in ids]


def train(
    lines: Iterable[str], config: TokenizerConfig, symbols: Sequence[str] = (), *, tag: bool = False
) -> Tokenizer:
    """Train a tokenizer on a random sample of at most `config.max_training_sentences` lines or
    parts of long lines, and `MAX_CHARACTERS`.

    If the corpus is too small for `config.vocab_size` tokens, the vocabulary is reduced and a
    message is logged. Each of the `symbols` becomes a piece, and with `tag`, `TAG` becomes a
    control piece.

    Raises:
        DataError: there is no text, or `config.vocab_size` is smaller than the alphabet.
    """
    if config.vocab_size < MIN_VOCAB_SIZE:
        raise DataError(
            f"a tokenizer needs at least {MIN_VOCAB_SIZE} tokens, got {config.vocab_size}",
            "a typical value is 8000",
        )
    texts = _sample(training_texts(lines), config.max_training_sentences, MAX_CHARACTERS)
    if not texts:
        raise DataError("there is no text to train a tokenizer on")
    vocab_size = config.vocab_size
    while True:
        try:
            return Tokenizer(_train(texts, config, vocab_size, symbols, (TAG,) if tag else ()))
        except RuntimeError as error:
            vocab_size = _reduced_vocab_size(str(error), vocab_size)


def training_texts(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines that are not blank, those that SentencePiece would skip in parts."""
    for line in lines:
        text = normalize(line)
        if len(text.encode()) > MAX_TRAINING_BYTES:
            for part in _PART_OF_LINE.finditer(text):
                yield part[0].strip()
        elif text:
            yield text


def _sample(texts: Iterable[str], max_texts: int, max_characters: int) -> list[str]:
    """Return all texts, or a uniform sample of at least half of what the limits allow."""
    rng = random.Random(0)
    share = 1.0
    sample: list[str] = []
    num_characters = 0
    for text in texts:
        if share < 1 and rng.random() >= share:
            continue
        sample.append(text)
        num_characters += len(text)
        if len(sample) > max_texts or num_characters > max_characters:
            # From now on, half as many texts are taken, so half of the earlier ones remain.
            share /= 2
            sample = [kept for kept in sample if rng.random() < 0.5]
            num_characters = sum(map(len, sample))
    return sample


def _reduced_vocab_size(message: str, vocab_size: int) -> int:
    """Return the largest vocabulary size that SentencePiece accepts, parsed from its error
    message."""
    if too_small := re.search(r"smaller than required_chars[^\d]*\d+ vs (\d+)", message):
        raise DataError(
            f"tokenizer.vocab_size {vocab_size} is smaller than the corpus's alphabet of"
            f" {too_small[1]} characters",
            "increase the vocabulary size, or add script to data.clean",
        ) from None
    max_size = re.search(r"value <= (\d+)", message)
    if not max_size or int(max_size[1]) >= vocab_size:
        raise DataError(f"SentencePiece training failed: {message.splitlines()[-1]}") from None
    log(
        f"the corpus is too small for {vocab_size} tokens; reducing the vocabulary to {max_size[1]}"
    )
    return int(max_size[1])


def _train(
    texts: list[str],
    config: TokenizerConfig,
    vocab_size: int,
    symbols: Sequence[str],
    control: Sequence[str],
) -> bytes:
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type=config.model_type,
        vocab_size=vocab_size,
        max_sentence_length=MAX_TRAINING_BYTES,
        character_coverage=0.9999,
        byte_fallback=True,
        normalization_rule_name="identity",
        split_digits=True,
        user_defined_symbols=list(symbols),
        control_symbols=list(control),
        num_threads=TRAINER_THREADS,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        minloglevel=2,
    )
    return model.getvalue()
