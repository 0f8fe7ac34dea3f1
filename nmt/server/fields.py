"""Reads the fields of a request from JSON, a form or the query string, and checks them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, create_form_parser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from nmt.text.normalization import SURROGATES

BODY_TIMEOUT = 30.0
"""Maximum time to receive a request, in seconds."""
MAX_FIELDS = 10_000
TOO_MANY_FIELDS = f"the request has more than {MAX_FIELDS:,} fields"
MAX_ALTERNATIVES = 10
MAX_VALUES, MAX_VALUE_LENGTH = 20, 200
"""Maximum number of values of a field that may be repeated, and of characters of each."""
TEXT_FORMATS = ("text", "html")

Fields = dict[str, Any]


async def read_fields(request: Request, max_text_bytes: int, max_form_bytes: int) -> Fields:
    """Return the fields of the body and the query string. A field of a form that occurs several
    times is a list.

    Args:
        request: the request.
        max_text_bytes: maximum size of its body, which is in memory.
        max_form_bytes: maximum size of a body that may have files.

    Raises:
        HTTPException: the request is too large, too slow, malformed or of an unknown content type.
    """
    content_type = request.headers.get("content-type", "")
    media_type = parse_options_header(content_type)[0].decode("latin-1")
    is_multipart = media_type == "multipart/form-data"
    chunks = _read_chunks(request, max_form_bytes if is_multipart else max_text_bytes)
    try:
        query = _parse_urlencoded(request.scope["query_string"])
        async with asyncio.timeout(BODY_TIMEOUT):
            if is_multipart:
                return _merge(query + await _parse_multipart(content_type, chunks))
            body = b"".join([chunk async for chunk in chunks])
        if media_type == "application/json" or media_type.endswith("+json"):
            json_fields = _parse_json(body).items()
            return _merge(query) | {name: value for name, value in json_fields if value is not None}
        if body and media_type != "application/x-www-form-urlencoded":
            raise HTTPException(
                415,
                f"unknown content type '{media_type}'; use application/json,"
                " application/x-www-form-urlencoded or multipart/form-data",
            )
        return _merge(query + _parse_urlencoded(body))
    except TimeoutError:
        raise HTTPException(
            408, "the request arrives too slowly", {"Connection": "close"}
        ) from None
    except UnicodeDecodeError:
        raise HTTPException(400, "the request is not valid UTF-8") from None


async def _read_chunks(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    too_large = HTTPException(
        413, f"the request is too large: the limit is {max_bytes:,} bytes", {"Connection": "close"}
    )
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length[:20]) > max_bytes:
        raise too_large
    num_bytes = 0
    async for chunk in request.stream():
        num_bytes += len(chunk)
        if num_bytes > max_bytes:
            raise too_large
        yield chunk


def _parse_json(body: bytes) -> Fields:
    try:
        fields = json.loads(body)
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as error:  # also a number with thousands of digits
        reason = f": {error}" if isinstance(error, json.JSONDecodeError) else ""
        raise HTTPException(400, f"the request is not valid JSON{reason}") from None
    if not isinstance(fields, dict):
        raise HTTPException(400, "the request must be a JSON object")
    return fields


def _parse_urlencoded(body: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except UnicodeDecodeError:
        raise
    except ValueError:
        raise HTTPException(400, TOO_MANY_FIELDS) from None


async def _parse_multipart(
    content_type: str, chunks: AsyncIterator[bytes]
) -> list[tuple[str, str | File]]:
    """Parse a form while it is received. Large files are on disk.

    Starlette's parser would read text that is not UTF-8 as Latin-1, and with any codec of Python
    that the client names.
    """
    parts: list[Field | File] = []
    headers = {"Content-Type": content_type.encode("latin-1")}
    try:
        parser = create_form_parser(headers, parts.append, parts.append)
        try:
            async for chunk in chunks:
                await run_in_threadpool(parser.write, chunk)
                if len(parts) > MAX_FIELDS:
                    raise HTTPException(400, TOO_MANY_FIELDS)
            parser.finalize()
        finally:
            parser.parser = None  # the parser refers to itself and to a file that is not complete
    except FormParserError:
        raise HTTPException(400, "the request is not a valid form") from None
    return [_decode_part(part) for part in parts]


def _decode_part(part: Field | File) -> tuple[str, str | File]:
    name = (part.field_name or b"").decode()
    return name, part if isinstance(part, File) else (part.value or b"").decode()


def _merge(values: Iterable[tuple[str, str | File]]) -> Fields:
    """Collect the values of fields with the same name in a list."""
    lists: dict[str, list[str | File]] = {}
    for name, value in values:
        lists.setdefault(name, []).append(value)
    return {name: each[0] if len(each) == 1 else each for name, each in lists.items()}


# ---- checks


@dataclass(frozen=True)
class TranslationRequest:
    """The fields of `POST /translate`."""

    texts: list[str]
    is_list: bool
    """Whether `q` is a list, so that the answer has lists, too."""
    source: str
    target: str
    format: str
    alternatives: int
    alignment: bool

    @classmethod
    def parse(cls, fields: Fields, max_length: int) -> TranslationRequest:
        """Check the fields of a request.

        Raises:
            HTTPException: 400 for a missing or invalid field, or a text that is too long.
        """
        texts = text_fields(fields, max_length)
        format = optional(fields, "format", str) or "text"
        if format not in TEXT_FORMATS:
            raise HTTPException(
                400, f"unknown format '{format}'; choose from: {', '.join(TEXT_FORMATS)}"
            )
        return cls(
            texts,
            isinstance(fields["q"], list),
            language_field(fields, "source"),
            language_field(fields, "target"),
            format,
            _number_field(fields, "alternatives", MAX_ALTERNATIVES),
            _flag_field(fields, "alignment"),
        )


def text_fields(fields: Fields, max_length: int) -> list[str]:
    """Return the texts of `q`, a string or a list of strings.

    Raises:
        HTTPException: 400 if it is missing or invalid, or has more than `max_length` characters.
    """
    q = fields.get("q")
    texts: list[Any] = q if isinstance(q, list) else [q]
    if not q:
        raise HTTPException(400, "Invalid request: missing q parameter")
    if not all(isinstance(text, str) for text in texts):
        raise HTTPException(400, "q must be a string or a list of strings")
    if any(map(SURROGATES.search, texts)):
        raise HTTPException(400, "q has half of a surrogate pair")
    if (
        length := sum(max(1, len(text)) for text in texts)
    ) > max_length:  # an empty text is work, too
        raise HTTPException(
            400, f"Invalid request: request ({length}) exceeds text limit ({max_length})"
        )
    return texts


def language_field(fields: Fields, name: str) -> str:
    """Return a language code in lower case.

    Raises:
        HTTPException: 400 if it is missing or not a string.
    """
    code: str | None = optional(fields, name, str)
    if not code:
        raise HTTPException(400, f"Invalid request: missing {name} parameter")
    return code.lower()


def optional(fields: Fields, name: str, expected: type) -> Any:
    """Return a field, or None if it is missing or null.

    Raises:
        HTTPException: 400 if it has another type.
    """
    value = fields.get(name)
    if value is not None and not isinstance(value, expected):
        number = "one" if isinstance(value, list) else "a"
        raise HTTPException(
            400, f"{name} must be {number} {'string' if expected is str else 'file'}"
        )
    if isinstance(value, str) and SURROGATES.search(value):
        raise HTTPException(400, f"{name} has half of a surrogate pair")
    return value


def strings_field(fields: Fields, name: str) -> tuple[str, ...]:
    """Return the values of a field that may be repeated; empty ones are left out.

    Raises:
        HTTPException: 400 if one is not a string or too long, or if there are too many.
    """
    value = fields.get(name)
    values = value if isinstance(value, list) else [value]
    strings = tuple(filter(None, (optional({name: each}, name, str) for each in values)))
    if len(strings) > MAX_VALUES or any(len(each) > MAX_VALUE_LENGTH for each in strings):
        raise HTTPException(
            400, f"{name} may have {MAX_VALUES} values of {MAX_VALUE_LENGTH} characters"
        )
    return strings


def _number_field(fields: Fields, name: str, maximum: int) -> int:
    value = fields.get(name)
    if value is None or value == "":
        return 0
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not is_number and not (
        isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10
    ):
        raise HTTPException(400, f"Invalid request: {name} parameter is not a number")
    if not 0 <= int(value) <= maximum:
        raise HTTPException(400, f"Invalid request: {name} parameter must be from 0 to {maximum}")
    return int(value)


def _flag_field(fields: Fields, name: str) -> bool:
    value = fields.get(name)
    if value in (True, "true", "1"):
        return True
    if value in (None, False, "false", "0", ""):
        return False
    raise HTTPException(400, f"{name} must be true or false")
