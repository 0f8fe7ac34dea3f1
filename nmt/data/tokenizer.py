"""Subword segmentation with SentencePiece (Kudo and Richardson 2018), one model for both languages."""

from __future__ import annotations

import hashlib
import io
import random
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import sentencepiece as spm

from nmt.config import TokenizerConfig
from nmt.console import log
from nmt.data.normalization import normalize
from nmt.errors import CheckpointError, DataError

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPACE = "\u2581"
"""How SentencePiece writes the space before a word, the first one too."""
TRAINER_THREADS = 4
"""Fixed, because the sums of unigram training run in another order with another number of threads."""


MIN_PIECES = 4 + 256 + 1
"""Special pieces, every byte, and a character."""


class Tokenizer:
    """Text to piece ids and back. Unknown characters become bytes, so nothing is ever unknown."""

    def __init__(self, model: bytes) -> None:
        self.model = model
        self._spm = spm.SentencePieceProcessor(model_proto=model)

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Read a SentencePiece model file.

        Raises:
            CheckpointError: no such file, not a SentencePiece model, or one without nmt's special ids.
        """
        try:
            tokenizer = cls(path.read_bytes())
        except OSError as error:
            raise CheckpointError(f"cannot read tokenizer {path}: {error.strerror}", "put the file back") from None
        except RuntimeError:
            raise CheckpointError(
                f"{path} is not a SentencePiece model, or it is damaged", "put the right file back"
            ) from None
        ids = (tokenizer._spm.pad_id(), tokenizer._spm.unk_id(), tokenizer._spm.bos_id(), tokenizer._spm.eos_id())
        if ids != (PAD, UNK, BOS, EOS):
            raise CheckpointError(
                f"{path}: pad, unk, bos and eos have the ids {ids}, not {(PAD, UNK, BOS, EOS)}",
                "train it with nmt tokenizer train",
            )
        return tokenizer

    @property
    def checksum(self) -> str:
        """The SHA-256 of the model file, by which a checkpoint recognizes its tokenizer."""
        return hashlib.sha256(self.model).hexdigest()

    def __len__(self) -> int:
        return int(self._spm.get_piece_size())

    def encode(self, text: str) -> list[int]:
        """Return the piece ids of one line, without start and end."""
        ids: list[int] = self._spm.encode(normalize(text))
        return ids

    def encode_all(self, lines: Sequence[str]) -> list[list[int]]:
        """Return the piece ids of many lines, using every core."""
        ids: list[list[int]] = self._spm.encode([normalize(line) for line in lines])
        return ids

    @property
    def model_type(self) -> str:
        """`bpe` or `unigram`: BPE scores its pieces by their rank, a whole number, unigram by a log-probability."""
        return "bpe" if all(score.is_integer() for score in self.scores().values()) else "unigram"

    def scores(self) -> dict[str, float]:
        """Map each piece of text to its score: minus its rank (BPE) or its log-probability (unigram)."""
        special = (self._spm.is_control, self._spm.is_unknown, self._spm.is_byte)
        text = (i for i in range(len(self)) if not any(test(i) for test in special))
        return {self._spm.id_to_piece(i): self._spm.get_score(i) for i in text}

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """Return the ids of pieces; a character that is none becomes its bytes."""
        found = []
        for piece in pieces:
            i = self._spm.piece_to_id(piece)
            found += [i] if i != UNK else [self._spm.piece_to_id(f"<0x{byte:02X}>") for byte in piece.encode()]
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of piece ids; special ids vanish, and a broken byte sequence becomes U+FFFD."""
        return self.decode_all([ids])[0]

    def decode_all(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the text of each row of piece ids; see `decode`."""
        if not rows:
            return []
        texts = self._spm.decode([[int(i) for i in ids if i > EOS] for ids in rows])
        # Byte pieces can encode a line feed; each text must stay on one line.
        return [text.replace("\n", " ").replace("\r", " ") for text in texts]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the pieces themselves, for people who want to look."""
        return [self._spm.id_to_piece(int(i)) for i in ids]


def train(lines: Iterable[str], config: TokenizerConfig) -> Tokenizer:
    """Train a tokenizer on `lines`, at most `config.max_training_sentences` of them (sampled).

    A corpus too small for `config.vocab_size` pieces gets as many as it allows, with a log line.

    Raises:
        DataError: there is no text, or `config.vocab_size` cannot hold the alphabet.
    """
    if config.vocab_size < MIN_PIECES:
        raise DataError(f"a tokenizer needs at least {MIN_PIECES} pieces, got {config.vocab_size}", "8000 is usual")
    texts = _sample((text for line in lines if (text := normalize(line))), config.max_training_sentences)
    if not texts:
        raise DataError("there is no text to train a tokenizer on")
    size = config.vocab_size
    while True:
        try:
            return Tokenizer(_train(texts, config, size))
        except RuntimeError as error:
            size = _smaller(str(error), size)


def _sample(texts: Iterable[str], most: int) -> list[str]:
    """Keep at most `most` texts, each with the same probability (reservoir sampling, Vitter 1985, algorithm R)."""
    rng = random.Random(0)
    kept: list[str] = []
    for number, text in enumerate(texts):
        if number < most:
            kept.append(text)
        elif (place := rng.randrange(number + 1)) < most:
            kept[place] = text
    return kept


def _smaller(message: str, size: int) -> int:
    """Return the size SentencePiece would accept, from its own complaint."""
    if too_small := re.search(r"smaller than required_chars[^\d]*\d+ vs (\d+)", message):
        raise DataError(
            f"tokenizer.vocab_size {size} cannot hold the corpus's {too_small[1]} characters",
            "set tokenizer.vocab_size higher, or clean the corpus: clean: [charset]",
        ) from None
    allowed = re.search(r"value <= (\d+)", message)
    if not allowed or int(allowed[1]) >= size:
        raise DataError(f"SentencePiece could not train: {message.splitlines()[-1]}") from None
    log(f"the corpus allows a tokenizer of {allowed[1]} pieces, not {size}")
    return int(allowed[1])


def _train(texts: list[str], config: TokenizerConfig, size: int) -> bytes:
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type=config.model_type,
        vocab_size=size,
        max_sentence_length=16384,
        character_coverage=0.9999,
        byte_fallback=True,
        normalization_rule_name="identity",
        split_digits=True,
        num_threads=TRAINER_THREADS,
        pad_id=PAD,
        unk_id=UNK,
        bos_id=BOS,
        eos_id=EOS,
        minloglevel=2,
    )
    return model.getvalue()
