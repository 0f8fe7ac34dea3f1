"""Documents: their translation with `nmt.documents`, and translated files until they are downloaded."""

from __future__ import annotations

import asyncio
import codecs
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from threading import Event

from nmt.documents import html
from nmt.documents.formats import DocumentOptions, Parser
from nmt.documents.translate import DocumentTranslator
from nmt.errors import NMTError
from nmt.inference.chunking import chunked
from nmt.inference.guard import Guard
from nmt.inference.segments import Line
from nmt.inference.translation import Translation
from nmt.server.batching import BatchTranslator
from nmt.server.fields import Upload

LIFETIME = 30 * 60
"""Time for which a translated file can be downloaded, in seconds."""
MAX_UNPACKED_BYTES = 200 * 2**20
"""Maximum size of an Office file without compression."""
MAX_STORED_BYTES = 200_000_000
"""Maximum size of all translated files. If it is exceeded, the oldest ones are deleted."""


@dataclass(frozen=True)
class TranslatedDocument:
    """A translated document, and the warnings of its sentences."""

    content: bytes
    warnings: list[str]


def read_texts(content: bytes, parse: Parser, options: DocumentOptions) -> list[str]:
    """Return the text of a document.

    Raises:
        NMTError: see the parser.
    """
    return [block.text for block in parse(content, options).blocks]


def translate_document(
    content: bytes, parse: Parser, options: DocumentOptions, guard: Guard, search: str
) -> TranslatedDocument:
    """Translate a document.

    Raises:
        NMTError: see the parser; or the request was cancelled.
    """
    document = parse(content, options)
    translated = DocumentTranslator(guard, search).translate(document.blocks)
    warnings = dict.fromkeys(warning for _, each in translated.warnings for warning in each)
    return TranslatedDocument(document.render(translated.blocks), list(warnings))


def translate_html(text: str, guard: Guard, search: str) -> tuple[str, list[str]]:
    """Translate HTML, a document or a part of one, and return it with the warnings of its sentences."""
    content = codecs.BOM_UTF8 + text.encode()  # takes precedence over an encoding that the text declares
    translated = translate_document(content, html.parse, DocumentOptions(*guard.languages), guard, search)
    return translated.content.removeprefix(codecs.BOM_UTF8).decode(), translated.warnings


class QueuedGuard(Guard):
    """Translates in the thread of a model of the server, together with the lines of other requests."""

    def __init__(self, translator: BatchTranslator) -> None:
        super().__init__(translator.guard.translator)
        self._batches, self._stopped = translator, Event()

    def stop(self) -> None:
        """Translate no further lines."""
        self._stopped.set()

    def stream(
        self,
        chunks: Iterable[Sequence[str | Line]],
        search: str | None = None,
        *,
        details: bool = False,
        on_progress: Callable[[int], object] = lambda lines: None,
    ) -> Iterator[list[Translation]]:
        """Yield the n-best list of each line; see `Guard.stream`.

        Raises:
            NMTError: `stop` was called.
        """
        lines = (line for chunk in chunks for line in chunk)
        for part in chunked(lines, self._batches.max_lines):
            if self._stopped.is_set():
                raise NMTError("the translation was cancelled")
            future = self._batches.submit(part, self.config.search if search is None else search, details=details)
            yield from future.result()
            on_progress(len(part))


class TranslatedFiles:
    """Translated files in memory. Their names cannot be guessed."""

    def __init__(self) -> None:
        self._files: dict[str, Upload] = {}

    def add(self, file: Upload) -> str:
        """Keep a file for a while, and return its name."""
        name = f"{secrets.token_urlsafe(24)}{PurePath(file.name).suffix}"
        self._files[name] = file
        while len(self._files) > 1 and sum(len(each.content) for each in self._files.values()) > MAX_STORED_BYTES:
            del self._files[next(iter(self._files))]
        asyncio.get_running_loop().call_later(LIFETIME, self._files.pop, name, None)
        return name

    def get(self, name: str) -> Upload | None:
        """Return a file, or None if there is none with this name any more."""
        return self._files.get(name)
