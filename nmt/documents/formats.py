"""The formats of documents, by file name suffix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nmt.documents.document import Document


@dataclass(frozen=True)
class DocumentOptions:
    """Options of parsing. A format ignores those that it does not have."""

    src: str
    """Language code of the source."""
    tgt: str
    """Language code of the target."""
    columns: tuple[str, ...] = ()
    """CSV and TSV: names of the columns to translate."""
    keys: tuple[str, ...] = ()
    """JSON: paths of the values to translate, such as `title` or `items.*.text`."""
    retranslate: bool = False
    """PO and XLIFF: whether to translate entries that have a translation, too."""
    encoding_errors: str = "strict"
    """Handling of invalid UTF-8: `strict` or `replace`."""


Parser = Callable[[bytes, DocumentOptions], Document]
