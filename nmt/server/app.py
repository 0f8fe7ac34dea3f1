"""The web application: LibreTranslate's routes, extended by confidence, warnings and word
alignments."""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import PurePath
from time import perf_counter
from typing import Any, TypeVar
from urllib.parse import quote

from python_multipart.multipart import File
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt.core.console import log
from nmt.core.errors import DataError, NMTError, UsageError
from nmt.core.version import __version__
from nmt.data.check.sides import is_wrong_source
from nmt.documents.formats import FORMATS, DocumentOptions, conversion_hint
from nmt.server.access import Access, AccessCheck
from nmt.server.access_log import AccessLog
from nmt.server.fields import (
    Fields,
    TranslationRequest,
    detection_parameters,
    file_parameters,
    read_fields,
    read_parameters,
    read_string,
    translation_parameters,
)
from nmt.server.files import (
    MAX_UNPACKED_BYTES,
    DocumentProcess,
    NamedFile,
    TranslatedFiles,
    open_documents,
)
from nmt.server.languages import language_name
from nmt.server.limits import (
    FILE_MEMORY,
    PARSE_SECONDS,
    SMALL_FILE,
    FairSlots,
    Limits,
    RateLimiter,
    client_network,
)
from nmt.server.metrics import CONTENT_TYPE_LATEST, Metrics
from nmt.server.openapi import (
    DETECTIONS,
    DOCUMENT,
    FILE_FORM,
    HEALTH,
    LANGUAGES,
    SETTINGS,
    TEXT,
    TRANSLATED_FILE,
    TRANSLATION,
    Operation,
    openapi_document,
)
from nmt.server.page import make_page
from nmt.server.service import AUTO, Languages, RequestTerms, Service
from nmt.server.worker import OFFICE, Task, TranslatedDocument, places
from nmt.translation.result import Translation

MAX_AGE = 20 * 24 * 60 * 60
"""Seconds for which a browser caches that pages of other sites may use the server."""
SECURITY_HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}

T = TypeVar("T")
TranslateGroup = Callable[[Sequence[int], str, str], Awaitable[list[Fields]]]
"""Translates the texts with some indices from one language into another."""


def create_app(
    service: Service, limits: Limits, access: Access | None = None, *, access_log: bool = False
) -> Starlette:
    """Return the application.

    Args:
        service: translates the texts.
        limits: the limits of requests.
        access: its names, and the sites that may use it; None: the names of this machine, and none.
        access_log: whether to log each request.
    """
    access = access or Access()
    api = Api(service, limits)
    routes = [Route(each.path, each.handler, methods=[each.method]) for each in api.operations]
    # There are no cookies.
    cors = Middleware(
        CORSMiddleware,
        allow_origins=sorted(access.origins),
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "Content-Type"],
        expose_headers=["Retry-After"],
        max_age=MAX_AGE,
    )
    paths = frozenset(route.path for route in routes)
    app = Starlette(
        routes=routes,
        middleware=[
            *([Middleware(AccessLog, paths=paths)] if access_log else []),
            *([cors] if access.origins else []),
            Middleware(Boundary, metrics=service.metrics, paths=paths),
            Middleware(AccessCheck, access=access),
        ],
        exception_handlers={HTTPException: _error},
    )
    app.router.redirect_slashes = (
        False  # behind a proxy with TLS, a client would repeat its request without TLS
    )
    return app


class Api:
    """The handlers of the routes."""

    def __init__(self, service: Service, limits: Limits) -> None:
        self._service, self._limits = service, limits
        self._rate = RateLimiter(limits.rate)
        self._slots = FairSlots(limits.max_concurrent)
        self._upload_slots = FairSlots(limits.max_uploads)
        self._file_slots = FairSlots(limits.max_files, limits.max_waiting_files, limits.max_wait)
        self._html_slots = FairSlots(limits.max_html, limits.max_concurrent, limits.max_wait)
        self._files = TranslatedFiles()
        self._page, self._page_headers = make_page(service, limits)
        self._translation_parameters = translation_parameters(limits.max_length)
        self._file_parameters = file_parameters()
        self._detection_parameters = detection_parameters(limits.max_length)
        self.operations = self._operations()
        self._document = openapi_document(self.operations, needs_key=bool(limits.keys))

    def _operations(self) -> list[Operation]:
        """Return the requests that the server answers."""
        return [
            Operation("/", self.page, "Page to translate text and files", TEXT, "text/html"),
            Operation(
                "/translate",
                self.translate,
                "Translate one or several texts",
                TRANSLATION,
                method="POST",
                parameters=self._translation_parameters,
            ),
            Operation(
                "/translate_file",
                self.translate_file,
                "Translate a file",
                TRANSLATED_FILE,
                method="POST",
                parameters=self._file_parameters,
                body_types=(FILE_FORM,),
            ),
            Operation(
                "/download_file/{name}",
                self.download_file,
                "Download a translated file",
                {},
                "application/octet-stream",
            ),
            Operation(
                "/detect",
                self.detect,
                "Probable languages of a text",
                DETECTIONS,
                method="POST",
                parameters=self._detection_parameters,
            ),
            Operation("/languages", self.languages, "Languages and their targets", LANGUAGES),
            Operation(
                "/frontend/settings", self.settings, "Limits and defaults for clients", SETTINGS
            ),
            Operation("/health", self.health, "State, version and models", HEALTH),
            Operation("/metrics", self.metrics, "Metrics for Prometheus", TEXT, "text/plain"),
            Operation("/openapi.json", self.openapi, "This description of the API", DOCUMENT),
        ]

    async def page(self, request: Request) -> Response:
        """Return the page."""
        return Response(self._page, media_type="text/html", headers=self._page_headers)

    async def translate(self, request: Request) -> Response:
        """Translate one or several texts."""
        fields, client = await self._read_fields(request)
        parsed = TranslationRequest.parse(self._translation_parameters, fields)
        terms = RequestTerms(parsed.terms)
        async with self._slots.use(client):
            translate = self._translate_html if parsed.format == "html" else self._translate_texts
            work = translate(parsed, terms, client)
            with _client_errors():
                languages, answers = await _unless_disconnected(request, work)
        names = ["translatedText", "warnings"]
        names += ["confidence"] if self._service.confidence else []
        names += ["alternatives"] if parsed.alternatives else []
        names += ["alignment"] if parsed.alignment else []
        content = {
            name: [answer[name] for answer in answers] if parsed.is_list else answers[0][name]
            for name in names
        }
        if parsed.source == AUTO:
            detected = [
                {"confidence": each.detection.probability, "language": each.detection.language}
                for each in languages
                if each.detection
            ]
            content["detectedLanguage"] = detected if parsed.is_list else detected[0]
        return JSONResponse(content | _term_report(terms))

    async def _translate_texts(
        self, parsed: TranslationRequest, terms: RequestTerms, client: str
    ) -> tuple[list[Languages], list[Fields]]:
        async def translate(indices: Sequence[int], source: str, target: str) -> list[Fields]:
            texts = [parsed.texts[i] for i in indices]
            n_bests = await self._service.translate(
                texts,
                source,
                target,
                alternatives=parsed.alternatives,
                details=parsed.alignment,
                terms=terms,
            )
            return [_answer(*n_best) for n_best in n_bests]

        return await self._translate_each(parsed, parsed.texts, translate)

    async def _translate_html(
        self, parsed: TranslationRequest, terms: RequestTerms, client: str
    ) -> tuple[list[Languages], list[Fields]]:
        """Translate HTML. There are no alternatives, as in LibreTranslate, and no confidence."""
        # Before an encoding that it declares.
        contents = [codecs.BOM_UTF8 + text.encode() for text in parsed.texts]
        task = self._task(".html", self._limits.max_length, parsed.source, parsed.target)
        async with self._html_slots.use(client), open_documents(contents, task) as documents:

            async def translate(indices: Sequence[int], source: str, target: str) -> list[Fields]:
                if source == target:
                    return [_answer(Translation(parsed.texts[i])) for i in indices]
                answers = list[Fields]()
                languages = source, target
                for each in await self._translate_documents(documents, indices, languages, terms):
                    text = each.content.removeprefix(codecs.BOM_UTF8).decode()
                    answers.append(_answer(Translation(text, warnings=tuple(each.warnings))))
                return answers

            return await self._translate_each(
                parsed, [sample.text for sample in documents.samples], translate
            )

    async def _translate_each(
        self, parsed: TranslationRequest, texts: Sequence[str], translate: TranslateGroup
    ) -> tuple[list[Languages], list[Fields]]:
        """Translate the texts of a request, those with the same source language together.

        Args:
            parsed: the request.
            texts: its texts without markup.
            translate: translates the texts with some indices.
        """
        languages = await run_in_threadpool(
            self._service.resolve_each, texts, parsed.source, parsed.target
        )
        groups: dict[tuple[str, str], list[int]] = {}
        for i, each in enumerate(languages):
            groups.setdefault((each.source, each.target), []).append(i)
        answers: dict[int, Fields] = {}
        for (source, target), indices in groups.items():
            answers.update(zip(indices, await translate(indices, source, target), strict=True))
        for i, text in enumerate(texts):
            source, target, _ = languages[i]
            if source != target and is_wrong_source(text, source, target):
                answers[i]["warnings"].append("wrong-source-language")
        return languages, [answers[i] for i in range(len(texts))]

    async def translate_file(self, request: Request) -> Response:
        """Translate a file, and return the URL of the translation."""
        async with self._upload_slots.use(""):  # the client is not known yet
            fields, client = await self._read_fields(request, self._limits.max_body)
        values = read_parameters(self._file_parameters, fields)
        upload: File = values["file"]
        file_name = (upload.file_name or b"").decode()
        suffix = _format(file_name)
        limit = self._limits.max_unpacked_file
        if upload.size > limit and suffix not in OFFICE:  # those have `MAX_UNPACKED_BYTES`
            raise HTTPException(400, f"Invalid request: the file is larger than {limit:,} bytes")
        languages = values["source"], values["target"]
        max_length = self._limits.max_file_length
        task = self._task(suffix, max_length, *languages, values["column"], values["key"])
        terms = RequestTerms(values["glossary"])
        with closing(upload), _client_errors():
            work = self._translate_upload(upload, task, languages, terms, client)
            translated = await _unless_disconnected(request, work)
        name = self._files.add(NamedFile(file_name, translated.content))
        url = str(request.url_for("download_file", name=name))
        content = {"translatedFileUrl": url, "warnings": translated.warnings}
        return JSONResponse(content | _term_report(terms))

    async def _translate_upload(
        self,
        upload: File,
        task: Task,
        requested: tuple[str, str],
        terms: RequestTerms,
        client: str,
    ) -> TranslatedDocument:
        async with self._file_slots.use(client, is_small=upload.size <= SMALL_FILE):
            upload.file_object.seek(0)
            content = upload.file_object.read()
            async with open_documents([content], task) as documents:
                texts = [sample.text for sample in documents.samples]
                source, target, _ = await run_in_threadpool(
                    self._service.resolve, texts, *requested
                )
                if source == target:
                    return TranslatedDocument(content, [])
                (translated,) = await self._translate_documents(
                    documents, [0], (source, target), terms
                )
                if is_wrong_source(texts[0], source, target):
                    translated.warnings.append("wrong-source-language")
                return translated

    async def _translate_documents(
        self,
        documents: DocumentProcess,
        indices: Sequence[int],
        languages: tuple[str, str],
        terms: RequestTerms,
    ) -> list[TranslatedDocument]:
        num_characters = sum(documents.samples[i].num_characters for i in indices)
        translate = partial(documents.translate, indices)
        return await self._service.translate_document(translate, *languages, num_characters, terms)

    def _task(
        self,
        suffix: str,
        max_length: int,
        source: str,
        target: str,
        columns: tuple[str, ...] = (),
        keys: tuple[str, ...] = (),
    ) -> Task:
        """Return how to read documents.

        Raises:
            HTTPException: 400 for a language that is not served.
        """
        known = "" if source == AUTO else self._service.language(source)
        options = DocumentOptions(
            known,
            self._service.language(target),
            columns,
            keys,
            max_bytes=MAX_UNPACKED_BYTES,
            max_elements=self._limits.max_elements,
        )
        scale = self._limits.file_scale
        return Task(
            suffix, options, max_length, round(scale * PARSE_SECONDS), round(scale * FILE_MEMORY)
        )

    async def download_file(self, request: Request) -> Response:
        """Return a translated file as an attachment."""
        file = self._files.get(request.path_params["name"])
        if file is None:
            raise HTTPException(
                404, "there is no such file; translated files are deleted after a while"
            )
        headers = {
            "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
            "Cache-Control": "no-store",
        }
        return Response(file.content, media_type="application/octet-stream", headers=headers)

    async def detect(self, request: Request) -> Response:
        """Return the probable languages of a text."""
        fields, _ = await self._read_fields(request)
        texts: list[str] = read_parameters(self._detection_parameters, fields)["q"]
        detections = self._service.detect(texts)
        probable = [each for each in detections if each.probability >= 1] or detections[:1]
        return JSONResponse(
            [{"confidence": each.probability, "language": each.language} for each in probable]
        )

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
        """Answer that the server runs, with which version and models."""
        return JSONResponse(
            {"status": "ok", "version": __version__, "models": self._service.describe_models()}
        )

    async def openapi(self, request: Request) -> Response:
        """Return the OpenAPI document."""
        return JSONResponse(self._document)

    async def metrics(self, request: Request) -> Response:
        """Return the metrics."""
        return Response(self._service.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    async def _read_fields(self, request: Request, max_form_bytes: int = 0) -> tuple[Fields, str]:
        """Return the fields of a request and what identifies its client, after checking the API key
        and the rate.

        Requests without a valid key, also malformed ones but not those that are too large or slow,
        count against the address of the client.

        Raises:
            HTTPException: 400 without a key, 403 with an unknown one, 429 above the rate, and those
                of `read_fields`.
        """
        fields, key, malformed = Fields(), "", None
        max_bytes = self._limits.max_text_body
        try:
            fields = await read_fields(request, max_bytes, max_form_bytes or max_bytes)
            key = read_string("api_key", fields.get("api_key")).strip() or _bearer_key(request)
        except HTTPException as error:
            if error.headers:  # closes the connection, without reading the rest of the body
                raise
            malformed = error
        client = self._client(request, key)
        self._rate.check(client)
        if malformed:
            raise malformed
        if self._limits.keys and not self._limits.is_valid_key(key):
            if key:
                raise HTTPException(403, "Invalid API key")
            raise HTTPException(
                400, "this server requires an api_key, or the header Authorization: Bearer KEY"
            )
        return fields, client

    def _client(self, request: Request, key: str) -> str:
        """Return what identifies the client: its key, if that is valid, otherwise its address."""
        if self._limits.is_valid_key(key):
            return f"key {key}"
        address = client_network(request.client.host) if request.client else ""
        return f"address {address}"


class Boundary:
    """Counts requests, adds headers, and turns exceptions into answers. It logs no text of a
    request."""

    def __init__(self, app: ASGIApp, metrics: Metrics, paths: frozenset[str]) -> None:
        self._app, self._metrics, self._paths = app, metrics, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        start, status = perf_counter(), 0
        # Others may contain text or names of files.
        path = scope["path"] if scope["path"] in self._paths else "other"

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] += [
                    (name.lower().encode(), v.encode()) for name, v in SECURITY_HEADERS.items()
                ]
            await send(message)

        with self._metrics.in_flight.track_inprogress():
            try:
                await self._app(scope, receive, send_with_headers)
            except ClientDisconnect:
                pass
            except asyncio.CancelledError:  # the server stops; uvicorn would log a traceback
                if not status:
                    await JSONResponse({"error": "the server stops"}, 503)(
                        scope, receive, send_with_headers
                    )
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
    alternatives = dict.fromkeys(
        other.text for other in others if other.text not in ("", best.text)
    )
    return {
        "translatedText": best.text,
        "alternatives": list(alternatives),
        "confidence": best.confidence,
        "warnings": list(best.warnings),
        "alignment": best.alignment,
    }


def _log(error: Exception, path: str) -> None:
    """Log an unexpected exception without its message, which may contain text of the user."""
    log(f"error: {type(error).__name__} in {path} ({places(error)})")


def _term_report(terms: RequestTerms) -> Fields:
    """Return the part of an answer on the terms, if the server or the request has any."""
    return {"glossary": terms.report()} if terms.pairs or terms.counts else {}


def _bearer_key(request: Request) -> str:
    scheme, _, key = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return ""
    return key.strip().encode("latin-1").decode("utf-8", "replace")  # headers are read as Latin-1


async def _error(request: Request, error: Exception) -> Response:
    """Return the answer for an HTTPException."""
    assert isinstance(error, HTTPException)
    headers = dict(error.headers or {})
    message = error.detail
    if error.status_code == 405 and "Allow" in headers:
        message = f"{request.method} is not possible here; use {headers['Allow']}"
    return JSONResponse({"error": message}, error.status_code, headers)


def _format(name: str) -> str:
    """Return the suffix of a file with a supported format.

    Raises:
        HTTPException: 400 for any other file.
    """
    suffix = PurePath(name).suffix.lower()
    if suffix not in FORMATS:
        hint = conversion_hint(suffix).replace("use --document ", "rename it to .")
        hint = hint or f"choose from: {', '.join(sorted(FORMATS))}"
        raise HTTPException(400, f"Invalid request: file format not supported; {hint}")
    return suffix


@contextmanager
def _client_errors() -> Iterator[None]:
    """Turn errors of documents into answers."""
    try:
        yield
    except DataError as error:
        raise HTTPException(400, f"Invalid request: {error.message}") from None
    except UsageError as error:  # of the options --key and --column, which are fields here
        message = f"{error.message.removeprefix('--')}; {error.hint}"
        raise HTTPException(400, f"Invalid request: {message}") from None


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
