"""Documents: their translation with `nmt.documents`, and translated files until they are downloaded."""

from __future__ import annotations

import asyncio
import codecs
import secrets
from dataclasses import dataclass
from pathlib import PurePath

from nmt.documents import html
from nmt.documents.formats import DocumentOptions, Parser
from nmt.documents.translate import DocumentTranslator
from nmt.inference.guard import Guard
from nmt.server.fields import NamedFile

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
    translated = translate_document(_encode(text), html.parse, DocumentOptions(*guard.languages), guard, search)
    return translated.content.removeprefix(codecs.BOM_UTF8).decode(), translated.warnings


def visible_text(text: str) -> str:
    """Return the text of HTML that is translated, without markup."""
    return " ".join(block.text for block in html.parse(_encode(text), DocumentOptions("", "")).blocks)


def _encode(text: str) -> bytes:
    return codecs.BOM_UTF8 + text.encode()  # takes precedence over an encoding that the text declares


class TranslatedFiles:
    """Translated files in memory. Their names cannot be guessed."""

    def __init__(self) -> None:
        self._files: dict[str, NamedFile] = {}

    def add(self, file: NamedFile) -> str:
        """Keep a file for a while, and return its name."""
        name = f"{secrets.token_urlsafe(24)}{PurePath(file.name).suffix}"
        self._files[name] = file
        while len(self._files) > 1 and sum(len(each.content) for each in self._files.values()) > MAX_STORED_BYTES:
            del self._files[next(iter(self._files))]
        asyncio.get_running_loop().call_later(LIFETIME, self._files.pop, name, None)
        return name

    def get(self, name: str) -> NamedFile | None:
        """Return a file, or None if there is none with this name any more."""
        return self._files.get(name)
