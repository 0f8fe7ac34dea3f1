"""The web application: LibreTranslate's routes, extended by confidence, warnings and word alignments."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from functools import partial
from itertools import starmap
from pathlib import Path, PurePath
from time import perf_counter
from typing import Any, TypeVar
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt.console import log
from nmt.data.check.languages import is_wrong_language
from nmt.documents.formats import FORMATS, DocumentOptions, Parser
from nmt.errors import DataError, NMTError, UsageError
from nmt.inference.chunking import chunked
from nmt.inference.translation import Translation
from nmt.server.fields import (
    Fields,
    NamedFile,
    TranslationRequest,
    language_field,
    optional,
    read_fields,
    strings_field,
    text_fields,
)
from nmt.server.files import (
    MAX_UNPACKED_BYTES,
    TranslatedDocument,
    TranslatedFiles,
    translate_document,
    translate_html,
    visible_text,
)
from nmt.server.languages import language_name
from nmt.server.limits import Limits, RateLimiter, Slots, client_network
from nmt.server.metrics import CONTENT_TYPE_LATEST, Metrics
from nmt.server.page import make_page
from nmt.server.service import AUTO, Languages, Service

MAX_AGE = 20 * 24 * 60 * 60
"""Seconds for which a browser caches that pages of other sites may use the server."""
MAX_HTML_TEXTS = 8
"""Maximum number of HTML texts of a request that are translated at a time."""
SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}

T = TypeVar("T")


def create_app(service: Service, limits: Limits) -> Starlette:
    """Return the application. As in LibreTranslate, pages of any site may use it, without cookies."""
    api = Api(service, limits)
    routes = [
        Route("/", api.page),
        Route("/translate", api.translate, methods=["POST"]),
        Route("/translate_file", api.translate_file, methods=["POST"]),
        Route("/download_file/{name}", api.download_file, name="download_file"),
        Route("/detect", api.detect, methods=["POST"]),
        Route("/languages", api.languages),
        Route("/frontend/settings", api.settings),
        Route("/health", api.health),
        Route("/metrics", api.metrics),
    ]
    cors = Middleware(
        CORSMiddleware, allow_origins=["*"], allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"], expose_headers=["Retry-After"], max_age=MAX_AGE,
    )  # fmt: skip
    paths = frozenset(route.path for route in routes)
    app = Starlette(
        routes=routes,
        middleware=[cors, Middleware(Boundary, metrics=service.metrics, paths=paths)],
        exception_handlers={HTTPException: _error},
    )
    app.router.redirect_slashes = False  # behind a proxy with TLS, a client would repeat its request without TLS
    return app


class Api:
    """The handlers of the routes."""

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service, self._limits = service, limits
        self._rate, self._slots = RateLimiter(limits.rate), Slots(limits.max_concurrent)
        self._upload_slots, self._file_slots = Slots(limits.max_uploads), Slots(limits.max_files)
        self._files = TranslatedFiles()
        self._page, self._page_headers = make_page(service, limits)

    async def page(self, request: Request) -> Response:
        """Return the page."""
        return Response(self._page, media_type="text/html", headers=self._page_headers)

    async def translate(self, request: Request) -> Response:
        """Translate one or several texts."""
        fields = await self._read_fields(request, self._limits.max_text_body)
        parsed = TranslationRequest.parse(fields, self._limits.max_length)
        with self._slots.use():
            is_html = parsed.format == "html"
            texts = await run_in_threadpool(list, map(visible_text, parsed.texts)) if is_html else parsed.texts
            languages = await run_in_threadpool(self._service.resolve_each, texts, parsed.source, parsed.target)
            answers = await _unless_disconnected(request, self._translate_each(parsed, texts, languages))
        names = ["translatedText", "warnings"]
        names += ["confidence"] if self._service.confidence else []
        names += ["alternatives"] if parsed.alternatives else []
        names += ["alignment"] if parsed.alignment else []
        content = {name: [answer[name] for answer in answers] if parsed.is_list else answers[0][name] for name in names}
        if parsed.source == AUTO:
            detected = [
                {"confidence": each.detection.probability, "language": each.detection.language}
                for each in languages
                if each.detection
            ]
            content["detectedLanguage"] = detected if parsed.is_list else detected[0]
        return JSONResponse(content)

    async def _translate_each(
        self, parsed: TranslationRequest, texts: Sequence[str], languages: Sequence[Languages]
    ) -> list[Fields]:
        """Translate texts, those with the same source language together.

        Args:
            parsed: the request.
            texts: the visible text of each of its texts.
            languages: the languages of each.
        """
        translate = self._translate_html if parsed.format == "html" else self._translate_text
        answers = dict[int, Fields]()
        for source, target in dict.fromkeys((each.source, each.target) for each in languages):
            indices = [i for i, each in enumerate(languages) if each.source == source]
            group = replace(parsed, texts=[parsed.texts[i] for i in indices])
            translated = await translate(group, [texts[i] for i in indices], source, target)
            answers.update(zip(indices, translated, strict=True))
        for i, text in enumerate(texts):
            source, target, _ = languages[i]
            if source != target and is_wrong_language(text, source):
                answers[i]["warnings"].append("wrong-source-language")
        return [answers[i] for i in range(len(texts))]

    async def _translate_text(
        self, parsed: TranslationRequest, texts: Sequence[str], source: str, target: str
    ) -> list[Fields]:
        n_bests = await self._service.translate(
            texts, source, target, alternatives=parsed.alternatives, details=parsed.alignment
        )
        return [_answer(*n_best) for n_best in n_bests]

    async def _translate_html(
        self, parsed: TranslationRequest, texts: Sequence[str], source: str, target: str
    ) -> list[Fields]:
        """Translate HTML, whose visible texts are `texts`. There are no alternatives, as in LibreTranslate, and no
        confidence.
        """
        if source == target:
            return [_answer(Translation(text, 0.0, 0.0)) for text in parsed.texts]

        async def translate(html: str, text: str) -> Fields:
            translated, warnings = await self._service.translate_document(
                partial(translate_html, html), source, target, len(text)
            )
            return _answer(Translation(translated, 0.0, 0.0, warnings=tuple(warnings)))

        answers = list[Fields]()
        for pairs in chunked(zip(parsed.texts, texts, strict=True), MAX_HTML_TEXTS):  # together, as one batch
            answers += await asyncio.gather(*starmap(translate, pairs))
        return answers

    async def translate_file(self, request: Request) -> Response:
        """Translate a file, and return the URL of the translation."""
        with self._upload_slots.use():
            fields = await self._read_fields(request, self._limits.max_body)
        upload: NamedFile | None = optional(fields, "file", NamedFile)
        if upload is None:
            raise HTTPException(400, "Invalid request: missing file parameter")
        suffix = PurePath(upload.name).suffix.lower()
        parse = FORMATS.get(suffix)
        if parse is None:
            choices = ", ".join(sorted(FORMATS))
            raise HTTPException(400, f"Invalid request: file format not supported; choose from: {choices}")
        limit = self._limits.max_unpacked_file
        if len(upload.content) > limit and suffix not in (".docx", ".pptx"):  # those have `MAX_UNPACKED_BYTES`
            raise HTTPException(400, f"Invalid request: the file is larger than {limit:,} bytes")
        source, target = language_field(fields, "source"), language_field(fields, "target")
        options = DocumentOptions(
            "", self._service.language(target), strings_field(fields, "column"), strings_field(fields, "key"),
            max_bytes=MAX_UNPACKED_BYTES,
        )  # fmt: skip
        with self._file_slots.use():
            translated = await self._translate_upload(request, upload.content, parse, options, source)
        name = self._files.add(NamedFile(upload.name, translated.content))
        url = str(request.url_for("download_file", name=name))
        return JSONResponse({"translatedFileUrl": url, "warnings": translated.warnings})

    async def _translate_upload(
        self, request: Request, content: bytes, parse: Parser, options: DocumentOptions, source: str
    ) -> TranslatedDocument:
        def texts(source: str) -> list[str]:
            return [block.text for block in parse(content, replace(options, src=source)).blocks]

        try:
            # Parsing cannot be interrupted, so it holds the slot even if the client has gone.
            known = "" if source == AUTO else self._service.language(source)
            found = await run_in_threadpool(texts, known)
            source, target, _ = await run_in_threadpool(self._service.resolve, found, source, options.tgt)
            if source == target:
                return TranslatedDocument(content, [])
            if not known:  # the language determines which text is translated
                found = await run_in_threadpool(texts, source)
            if (length := sum(map(len, found))) > (limit := self._limits.max_file_length):
                raise HTTPException(400, f"Invalid request: file ({length}) exceeds text limit ({limit})")
            translate = partial(translate_document, content, parse, replace(options, src=source))
            translating = self._service.translate_document(translate, source, target, length)
            return await _unless_disconnected(request, translating)
        except DataError as error:
            raise HTTPException(400, f"Invalid request: {error.message}") from None
        except UsageError as error:  # of the options --key and --column, which are fields here
            message = f"{error.message.removeprefix('--')}; {error.hint}"
            raise HTTPException(400, f"Invalid request: {message}") from None

    async def download_file(self, request: Request) -> Response:
        """Return a translated file as an attachment."""
        file = self._files.get(request.path_params["name"])
        if file is None:
            raise HTTPException(404, "there is no such file; translated files are deleted after a while")
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
            "Cache-Control": "no-store",
        }  # fmt: skip
        return Response(file.content, media_type="application/octet-stream", headers=headers)

    async def detect(self, request: Request) -> Response:
        """Return the probable languages of a text."""
        fields = await self._read_fields(request, self._limits.max_text_body)
        detections = self._service.detect(text_fields(fields, self._limits.max_length))
        probable = [each for each in detections if each.probability >= 1] or detections[:1]
        return JSONResponse([{"confidence": each.probability, "language": each.language} for each in probable])

    async def languages(self, request: Request) -> Response:
        """Return the languages and the targets of each."""
        return JSONResponse(
            [
                {"code": code, "name": language_name(code), "targets": self._service.targets(code)}
                for code in self._service.languages
            ]
        )

    async def settings(self, request: Request) -> Response:
        """Return what clients with a user interface need."""
        source, target = self._service.default_pair
        return JSONResponse(
            {
                "charLimit": self._limits.max_length,
                "frontendTimeout": 500,
                "apiKeys": bool(self._limits.keys),
                "keyRequired": bool(self._limits.keys),
                "suggestions": False,
                "filesTranslation": True,
                "supportedFilesFormat": sorted(FORMATS),
                "language": {
                    "source": {"code": source, "name": language_name(source)},
                    "target": {"code": target, "name": language_name(target)},
                },
            }
        )

    async def health(self, request: Request) -> Response:
        """Answer that the server runs."""
        return JSONResponse({"status": "ok"})

    async def metrics(self, request: Request) -> Response:
        """Return the metrics."""
        return Response(self._service.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    async def _read_fields(self, request: Request, max_bytes: int) -> Fields:
        """Return the fields of a request, after checking the API key and the rate. Requests without a valid key, also
        malformed ones but not those that are too large or slow, count against the address of the client.

        Raises:
            HTTPException: 400 without a key, 403 with an unknown one, 429 above the rate, and those of `read_fields`.
        """
        fields, key, malformed = Fields(), "", None
        try:
            fields = await read_fields(request, max_bytes)
            key = (optional(fields, "api_key", str) or "").strip()
        except HTTPException as error:
            if error.headers:  # closes the connection, without reading the rest of the body
                raise
            malformed = error
        is_valid = self._limits.is_valid_key(key)
        client = client_network(request.client.host) if request.client else ""
        self._rate.check(f"key {key}" if is_valid else f"address {client}")
        if malformed:
            raise malformed
        if self._limits.keys and not is_valid:
            raise HTTPException(403 if key else 400, "Invalid API key" if key else "this server requires an api_key")
        return fields


class Boundary:
    """Counts requests, adds headers, and turns exceptions into answers. It logs no text of a request."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: frozenset[str]) -> None:
        self._app, self._metrics, self._paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        start, status = perf_counter(), 0
        path = scope["path"] if scope["path"] in self._paths else "other"  # others may contain text or names of files

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] += [(name.lower().encode(), v.encode()) for name, v in SECURITY_HEADERS.items()]
            await send(message)

        with self._metrics.in_flight.track_inprogress():
            try:
                await self._app(scope, receive, send_with_headers)
            except ClientDisconnect:
                pass
            except asyncio.CancelledError:  # the server stops; uvicorn would log a traceback
                if not status:
                    await JSONResponse({"error": "the server stops"}, 503)(scope, receive, send_with_headers)
            except Exception as error:
                _log(error, path)
                message = error.message if isinstance(error, NMTError) else "internal error"
                if not status:
                    await JSONResponse({"error": message}, 500)(scope, receive, send_with_headers)
        self._metrics.requests.labels(path, status or "disconnected").inc()
        self._metrics.seconds.labels(path).observe(perf_counter() - start)
        return None


def _answer(best: Translation, *others: Translation) -> Fields:
    """Return the possible fields of an answer for an n-best list."""
    alternatives = dict.fromkeys(other.text for other in others if other.text not in ("", best.text))
    return {
        "translatedText": best.text, "alternatives": list(alternatives), "confidence": best.confidence,
        "warnings": list(best.warnings), "alignment": best.alignment,
    }  # fmt: skip


def _log(error: Exception, path: str) -> None:
    """Log an unexpected exception without its message, which may contain text of the user."""
    frames = traceback.extract_tb(error.__traceback__)[-5:]
    places = ", ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in frames)
    log(f"error: {type(error).__name__} in {path} ({places})")


async def _error(request: Request, error: Exception) -> Response:
    """Return the answer for an HTTPException."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, dict(error.headers or {}))


async def _unless_disconnected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, or cancel it if the client closes the connection.

    Raises:
        ClientDisconnect: the client has closed the connection.
    """
    working = asyncio.create_task(work)
    disconnecting = asyncio.create_task(_disconnected(request))
    try:
        await asyncio.wait((working, disconnecting), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return await working
    finally:
        working.cancel()
        disconnecting.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
