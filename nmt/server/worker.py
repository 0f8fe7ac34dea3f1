"""The process of a document: it parses, divides and writes, and the server translates its
sentences.

Documents come from strangers, and parsing them may take much time and memory. A process has limits
of both, and can be ended when the client leaves. It imports neither PyTorch nor the web framework,
so it starts in milliseconds.

The server sends the documents; the process answers with a sample of each. Then the server sends an
order with the detected languages, translates the lines that the process asks for, and gets the
translated documents.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from nmt.core import plugins
from nmt.core.config import Config
from nmt.core.console import log
from nmt.core.errors import DataError, NMTError, PluginError
from nmt.core.runtime import stop_signals
from nmt.documents.document import Document
from nmt.documents.document_translator import DocumentTranslator
from nmt.documents.formats import DocumentOptions, check_elements, parser_of
from nmt.translation.result import Translation
from nmt.translation.segments import Line

OFFICE = (".docx", ".pptx")
MAX_SAMPLE = 10_000
"""Maximum number of characters of a document that the server gets to detect its language."""
_LANGUAGE_MATTERS = (".srt", ".vtt")
"""Formats in which the source language determines the blocks."""
_LANGUAGE_IS_NAMED = (
    ".htm",
    ".html",
    ".markdown",
    ".md",
    ".mdx",
    ".po",
    ".pot",
    ".xhtml",
    ".xlf",
    ".xliff",
)
"""Formats in which it determines them if the document names a language, as `lang`, `Language` or
`source-language`."""


@dataclass(frozen=True)
class Task:
    """How to read documents, and the limits."""

    suffix: str
    options: DocumentOptions
    """With an empty `src`, the language is not known yet."""
    max_length: int
    """Maximum number of characters to translate."""
    max_seconds: int
    """Maximum processor time to parse the documents, and for everything after that."""
    max_memory: int
    """Maximum size of the memory that the process allocates, in bytes; only on Linux."""


@dataclass(frozen=True)
class Sample:
    """What the server has to know of a document."""

    text: str
    """Its text, the blocks with the most words first, at most `MAX_SAMPLE` characters."""
    num_characters: int
    """Number of characters to translate."""


@dataclass(frozen=True)
class Order:
    """Documents to translate into the target language of the task."""

    indices: Sequence[int]
    config: Config
    """The config of the model."""
    language_token: Callable[[str], str]
    """Returns the token that chooses the target language of the model, from a source text."""


@dataclass(frozen=True)
class Request:
    """Lines that the server has to translate."""

    lines: Sequence[str | Line]
    details: bool


@dataclass(frozen=True)
class TranslatedDocument:
    """A translated document, and the warnings of its sentences."""

    content: bytes
    warnings: list[str]


class RemoteGuard:
    """Translates lines with the server."""

    def __init__(self, connection: Connection, order: Order) -> None:
        self.config = order.config
        self.tokenizer = order
        self.term_counts = Counter[tuple[str, bool]]()
        self._connection = connection

    def stream(
        self,
        chunks: Iterable[Sequence[str | Line]],
        search: str | None = None,
        *,
        details: bool = False,
        on_progress: Callable[[int], object] = lambda lines: None,
    ) -> Iterator[list[Translation]]:
        """Yield the n-best list of each line; see `Guard.stream`. The server chooses the search."""
        for chunk in chunks:
            self._connection.send(Request(chunk, details))
            yield from self._connection.recv()


def work(connection: Connection, task: Task, modules: str = "") -> None:
    """Read and translate the documents that the server sends, until it closes the connection.

    `modules` are the plug-ins that the server has imported.
    """
    os.environ[plugins.VARIABLE] = modules
    # Ctrl-C in a terminal, and SIGTERM of a service manager, reach all processes. The server
    # finishes its requests.
    for number in stop_signals():
        signal.signal(number, signal.SIG_IGN)
    _limit_memory(task.max_memory)
    _limit_seconds(task.max_seconds)
    failure: Exception
    try:
        _answer_orders(connection, task)
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the client or the server has gone
        return
    except PluginError as error:
        log(f"error: {error.message}")
        failure = NMTError(error.message)  # not an error of the client
    except NMTError as error:
        failure = error
    except MemoryError:
        failure = DataError("the file takes too much memory to read", "split it")
    except Exception as error:
        log(f"error: {type(error).__name__} in the process of a document ({places(error)})")
        failure = RuntimeError("the process of a document failed")
    connection.send(failure)  # here, the memory of the document is free


def places(error: Exception) -> str:
    """Return where an exception was raised. Its message may contain text of the user."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    return ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)


def _answer_orders(connection: Connection, task: Task) -> NoReturn:
    contents: list[bytes] = connection.recv()
    documents = [_parse(content, task.suffix, task.options) for content in contents]
    connection.send([_sample(document) for document in documents])
    _limit_seconds(task.max_seconds)
    while True:
        order: Order = connection.recv()
        selected: list[Document] = []
        for index in order.indices:
            document = documents[index]
            if not task.options.src and needs_language(contents[index], task.suffix):
                document = _parse(
                    contents[index], task.suffix, replace(task.options, src=order.config.data.src)
                )
            selected.append(document)
        num_characters = sum(map(_num_characters, selected))
        if num_characters > task.max_length:
            raise DataError(
                f"file ({num_characters}) exceeds text limit ({task.max_length})", "split it"
            )
        connection.send(_translate(selected, RemoteGuard(connection, order)))


def _parse(content: bytes, suffix: str, options: DocumentOptions) -> Document:
    if suffix not in OFFICE:  # an archive has to be unpacked first
        check_elements([content], options.max_elements)
    return parser_of(suffix)(content, options)


def needs_language(content: bytes, suffix: str) -> bool:
    """Return whether the blocks of a document depend on the source language."""
    is_wide = b"\0" in content  # UTF-16 or UTF-32
    names_language = is_wide or b"lang" in content.lower()
    return suffix in _LANGUAGE_MATTERS or (suffix in _LANGUAGE_IS_NAMED and names_language)


def _sample(document: Document) -> Sample:
    texts = [block.text for block in document.blocks]
    texts.sort(key=lambda text: len(text.split()), reverse=True)  # a long URL is one word
    return Sample("\n".join(texts[:MAX_SAMPLE])[:MAX_SAMPLE], sum(map(len, texts)))


def _num_characters(document: Document) -> int:
    return sum(len(block.text) for block in document.blocks)


def _translate(documents: Sequence[Document], guard: RemoteGuard) -> list[TranslatedDocument]:
    """Translate the sentences of all documents together."""
    blocks = list(chain.from_iterable(document.blocks for document in documents))
    translated = DocumentTranslator(guard).translate(blocks)
    remaining_blocks = iter(translated.blocks)
    remaining_warnings = iter(translated.warnings_of_blocks)
    results: list[TranslatedDocument] = []
    for document in documents:
        count = len(document.blocks)
        content = document.render(list(islice(remaining_blocks, count)))
        warnings = dict.fromkeys(chain.from_iterable(islice(remaining_warnings, count)))
        results.append(TranslatedDocument(content, list(warnings)))
    return results


def _limit_memory(max_bytes: int) -> None:
    """Limit the memory that is allocated from now on."""
    if sys.platform == "linux":
        import resource

        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + max_bytes
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _limit_seconds(seconds: int) -> None:
    """Limit the processor time that is used from now on. The signal at the limit writes no image of
    the memory."""
    if sys.platform != "win32":
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
