"""Tokenization as in Marian (Junczys-Dowmunt et al. 2018): one SentencePiece model per side, and
one vocabulary.

A SentencePiece model only splits text into pieces. The vocabulary maps the pieces of both sides to
ids; pieces that it does not contain are unknown. Text is normalized as the SentencePiece models
specify.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from nmt.core import untrusted_files
from nmt.core.errors import CheckpointError
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.normalization import SURROGATES
from nmt.text.tokenizer import EOS, UNK, Tokenizer, load_processor, one_line

SOURCE, TARGET, VOCABULARY = "source.spm", "target.spm", "vocab.json"
SPECIAL_PIECES = ("<pad>", "<unk>", "<s>", "</s>")
"""Pieces of the ids PAD, UNK, BOS and EOS."""
_LANGUAGE = lazy_pattern(r"(>>\S+<<) ?")
"""Prefix of a source sentence that chooses the target language of a multilingual model."""


class SeparateTokenizer(Tokenizer):
    """A tokenizer with a SentencePiece model for each side and a joint vocabulary."""

    FILE = "tokenizer.zip"

    def __init__(
        self, source: bytes, target: bytes, pieces: Sequence[str], model: bytes = b""
    ) -> None:
        """Create a tokenizer from two SentencePiece models and the pieces by id, which start with
        `SPECIAL_PIECES`. `model` is all of this as one file, if it exists already.

        Raises:
            CheckpointError: a model is not a SentencePiece model, or the vocabulary is invalid.
        """
        self.source = source
        self.target = target
        self.pieces = [*pieces]
        self._ids = {piece: i for i, piece in enumerate(self.pieces)}
        if tuple(pieces[: len(SPECIAL_PIECES)]) != SPECIAL_PIECES or len(self._ids) != len(
            self.pieces
        ):
            raise CheckpointError(
                "the vocabulary has repeated pieces or lacks special pieces", "restore the file"
            )
        try:
            self._source = load_processor(source)
            self._target = self._source if target == source else load_processor(target)
        except ValueError:
            raise CheckpointError(
                f"{SOURCE} or {TARGET} is not a SentencePiece model", "restore the file"
            ) from None
        self.model = model or self._to_zip()

    @classmethod
    def load(cls, path: Path) -> SeparateTokenizer:
        """Load the file that holds `model`.

        Raises:
            CheckpointError: the file is missing or damaged.
        """
        hint = "restore the original file"
        try:
            model = untrusted_files.read_bytes(path)
            source, target, vocabulary = untrusted_files.unzip(model, (SOURCE, TARGET, VOCABULARY))
            pieces = untrusted_files.parse_json(vocabulary)
            untrusted_files.check(pieces, list[str])
            return cls(source, target, pieces, model)
        except OSError as error:
            raise CheckpointError(f"cannot read tokenizer {path}: {error.strerror}", hint) from None
        except (ValueError, CheckpointError):
            raise CheckpointError(f"{path} is damaged", hint) from None

    def _to_zip(self) -> bytes:
        """Return all parts in one file, without time stamps: equal tokenizers have equal files."""
        # A piece a line, like indent=0, which would encode slowly
        pieces = json.dumps(self.pieces, ensure_ascii=False, separators=(",\n", ":"))
        vocabulary = f"[\n{pieces[1:-1]}\n]".encode()
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name, content in (
                (SOURCE, self.source),
                (TARGET, self.target),
                (VOCABULARY, vocabulary),
            ):
                archive.writestr(zipfile.ZipInfo(name), content)
        return file.getvalue()

    def __len__(self) -> int:
        return len(self.pieces)

    def encode_batch(self, lines: Sequence[str], *, target: bool = False) -> list[list[int]]:
        """Return the piece ids of many lines of one side, using all cores."""
        languages = [None if target else self._language(line) for line in lines]
        rests = (
            line[match.end() :] if match else line
            for line, match in zip(lines, languages, strict=True)
        )
        texts = [SURROGATES.sub("\ufffd", rest) for rest in rests]
        rows = (self._target if target else self._source).encode(texts, out_type=str)
        prefixes = [[match[1]] if match else [] for match in languages]
        return [
            self.pieces_to_ids([*prefix, *row]) for prefix, row in zip(prefixes, rows, strict=True)
        ]

    @staticmethod
    def language_token(text: str) -> str:
        """Return the prefix of a source text that chooses the target language; an empty string if
        there is none."""
        match = _LANGUAGE.match(text)
        return match[0] if match else ""

    def _language(self, text: str) -> re.Match[str] | None:
        """Return the match of a prefix that the vocabulary has; another one is text."""
        match = _LANGUAGE.match(text)
        return match if match and match[1] in self._ids else None

    def ids_of_model(self) -> list[int]:
        """Return the id of each piece of the SentencePiece model of the source."""
        special_ids = {self._source.unk_id(): UNK, self._source.eos_id(): EOS}
        ids = []
        for i in range(self._source.get_piece_size()):
            piece = self._source.id_to_piece(i)
            name = f"{piece}_" if piece in SPECIAL_PIECES else piece
            ids.append(special_ids[i] if i in special_ids else self._ids[name])
        return ids

    def pieces_to_ids(self, pieces: Iterable[str]) -> list[int]:
        """Return the ids of pieces; UNK for a piece outside the vocabulary."""
        return [self._ids.get(piece, UNK) for piece in pieces]

    def ids_to_pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the pieces as strings."""
        return [self.pieces[int(i)] for i in ids]

    def decode_batch(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """Return the target text of each row of piece ids, without special tokens."""
        pieces = ([self.pieces[int(i)] for i in ids if i > EOS] for ids in rows)
        # SentencePiece 0.2.0 takes [[], ...] for ids.
        return [one_line(self._target.decode(row)) for row in pieces]

    @property
    def tag_id(self) -> None:
        """None: a tag is not supported."""
        return None

    @property
    def model_type(self) -> str:
        """`separate`; subword regularization does not support it."""
        return "separate"
