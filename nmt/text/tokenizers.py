"""The tokenizer of a run or of prepared data, which is one of two kinds."""

from __future__ import annotations

from pathlib import Path

from nmt.text.separate_tokenizer import SeparateTokenizer
from nmt.text.tokenizer import Tokenizer


def tokenizer_file(directory: Path) -> Path:
    """Return the tokenizer file of a run or of prepared data: `tokenizer.zip` or a SentencePiece
    model."""
    separate = directory / SeparateTokenizer.FILE
    return separate if separate.is_file() else directory / Tokenizer.FILE


def load_tokenizer(path: Path) -> Tokenizer:
    """Load a SentencePiece model file, or the file of a `SeparateTokenizer`.

    Raises:
        CheckpointError: the file is missing, damaged, or has different special ids.
    """
    kind = SeparateTokenizer if path.suffix == ".zip" else Tokenizer
    return kind.load(path)
