"""Reads the fields of a request from JSON, a form or the query string, and checks them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import Field, File, create_form_parser, parse_options_header
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

from nmt.core.errors import suggest
from nmt.text.normalization import SURROGATES

BODY_TIMEOUT = 30.0
"""Maximum time to receive a request, in seconds."""
MAX_FIELDS = 10_000
TOO_MANY_FIELDS = f"the request has more than {MAX_FIELDS:,} fields"
MAX_ALTERNATIVES = 10
MAX_VALUES, MAX_VALUE_LENGTH = 20, 200
"""Maximum number of values of a field that may be repeated, and of characters of each."""
TEXT_FORMATS = ("text", "html")
MAX_TERMS, MAX_TERM_WORDS = 200, 10
"""Maximum number of terms in a request, and of words of each. The time to find them in a hostile
text is proportional to both: with these limits, about three seconds for 10,000 characters."""
IGNORED = ("secret", "apiKey")
"""Fields that clients of LibreTranslate send, and that mean nothing to this server."""
MAX_SHOWN = 50
_GLOSSARY_HINT = 'write it as {"TERM": "TRANSLATION"}'
_LINE = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029]+")
"""Text without line ends and control characters."""

Fields = dict[str, Any]
Schema = dict[str, Any]


async def read_fields(request: Request, max_text_bytes: int, max_form_bytes: int) -> Fields:
    """Return the fields of the body and the query string. A field of a form that occurs several
    times is a list.

    Args:
        request: the request.
        max_text_bytes: maximum size of its body, which is in memory.
        max_form_bytes: maximum size of a body that may have files.

    Raises:
        HTTPException: the request is too large, too slow, malformed, compressed or of an unknown
            content type.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    content_type = request.headers.get("content-type", "")
    media_type = parse_options_header(content_type)[0].decode("latin-1")
    is_multipart = media_type == "multipart/form-data"
    chunks = _read_chunks(request, max_form_bytes if is_multipart else max_text_bytes)
    try:
        query = _parse_urlencoded(request.scope["query_string"])
        async with asyncio.timeout(BODY_TIMEOUT):
            if encoding not in ("", "identity"):
                async for _ in chunks:
                    pass  # the next request on this connection begins after the body
                shown = encoding[:MAX_SHOWN]
                raise HTTPException(
                    415, f"unknown content encoding '{shown}'; send the request uncompressed"
                )
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
    """Return name and value of a part; raises a UnicodeDecodeError if they or the name of a file
    are not UTF-8."""
    name = (part.field_name or b"").decode()
    if isinstance(part, File):
        (part.file_name or b"").decode()  # a check: the name is read later
        return name, part
    return name, (part.value or b"").decode()


def _merge(values: Iterable[tuple[str, str | File]]) -> Fields:
    """Collect the values of fields with the same name in a list."""
    lists: dict[str, list[str | File]] = {}
    for name, value in values:
        lists.setdefault(name, []).append(value)
    return {name: each[0] if len(each) == 1 else each for name, each in lists.items()}


# ---- checks


@dataclass(frozen=True)
class Parameter:
    """A field of a request: how it is read, and its description in the OpenAPI document."""

    description: str
    schema: Schema
    """Its JSON schema."""
    read: Callable[[str, Any], Any]
    """Returns the value of the field with this name, which is None if it is missing."""
    is_required: bool = False
    form_schema: Schema | None = None
    """Its schema in a form, if that is another one."""


Parameters = dict[str, Parameter]


def read_parameters(parameters: Parameters, fields: Fields) -> Fields:
    """Return the value of each parameter.

    Raises:
        HTTPException: 400 for a missing, invalid or unknown field.
    """
    for name in fields:
        if name not in parameters and name not in IGNORED:
            shown = SURROGATES.sub("\ufffd", name[:MAX_SHOWN])
            raise HTTPException(400, f"unknown field '{shown}'; {suggest(shown, parameters)}")
    values: Fields = {}
    for name, parameter in parameters.items():
        value = fields.get(name)
        if parameter.is_required and (value is None or value in ("", [])):
            raise HTTPException(400, f"Invalid request: missing {name} parameter")
        values[name] = parameter.read(name, value)
    return values


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
    terms: list[tuple[str, str]]

    @classmethod
    def parse(cls, parameters: Parameters, fields: Fields) -> TranslationRequest:
        """Check the fields of a request; see `read_parameters`."""
        values = read_parameters(parameters, fields)
        return cls(
            values["q"],
            isinstance(fields["q"], list),
            values["source"],
            values["target"],
            values["format"],
            values["alternatives"],
            values["alignment"],
            values["glossary"],
        )


def detection_parameters(max_length: int) -> Parameters:
    """Return the parameters of `POST /detect`; a text has at most `max_length` characters."""
    return {"q": _texts(max_length), "api_key": API_KEY}


def translation_parameters(max_length: int) -> Parameters:
    """Return the parameters of `POST /translate`; all texts have at most `max_length`
    characters."""
    return {
        "q": _texts(max_length),
        **_LANGUAGES,
        "format": Parameter(
            "`text` or `html`; default `text`",
            {"type": "string", "enum": list(TEXT_FORMATS), "default": TEXT_FORMATS[0]},
            _read_format,
        ),
        "alternatives": Parameter(
            f"number of further translations, at most {MAX_ALTERNATIVES}; default 0",
            {"type": "integer", "minimum": 0, "maximum": MAX_ALTERNATIVES, "default": 0},
            _read_alternatives,
        ),
        "alignment": Parameter(
            "`true` to add the word alignment", {"type": "boolean", "default": False}, _read_flag
        ),
        "glossary": _GLOSSARY,
        "api_key": API_KEY,
    }


def file_parameters() -> Parameters:
    """Return the parameters of `POST /translate_file`."""
    strings = {
        "oneOf": [
            {"type": "string"},
            {"type": "array", "items": {"type": "string"}, "maxItems": MAX_VALUES},
        ]
    }
    return {
        "file": Parameter(
            "the file", {"type": "string", "format": "binary"}, _read_file, is_required=True
        ),
        **_LANGUAGES,
        "column": Parameter("column of a table to translate", strings, _read_strings),
        "key": Parameter("key of JSON whose strings to translate", strings, _read_strings),
        "glossary": _GLOSSARY,
        "api_key": API_KEY,
    }


def _texts(max_length: int) -> Parameter:
    text = {"type": "string", "minLength": 1, "maxLength": max_length}
    texts = {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": max_length}

    def read(name: str, value: Any) -> list[str]:
        texts: list[Any] = value if isinstance(value, list) else [value]
        if not all(isinstance(text, str) for text in texts):
            raise HTTPException(400, f"{name} must be a string or a list of strings")
        if any(map(SURROGATES.search, texts)):
            raise HTTPException(400, f"{name} has half of a surrogate pair")
        length = sum(max(1, len(text)) for text in texts)  # an empty text is work, too
        if length > max_length:
            raise HTTPException(
                400, f"Invalid request: request ({length}) exceeds text limit ({max_length})"
            )
        return texts

    return Parameter("text, or a list of texts", {"oneOf": [text, texts]}, read, is_required=True)


def read_string(name: str, value: Any) -> str:
    """Return a string; empty if it is missing.

    Raises:
        HTTPException: 400 if it has another type.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        number = "one" if isinstance(value, list) else "a"
        raise HTTPException(400, f"{name} must be {number} string")
    if SURROGATES.search(value):
        raise HTTPException(400, f"{name} has half of a surrogate pair")
    return value


def _read_language(name: str, value: Any) -> str:
    return read_string(name, value).lower()


def _read_format(name: str, value: Any) -> str:
    format = read_string(name, value) or TEXT_FORMATS[0]
    if format not in TEXT_FORMATS:
        raise HTTPException(
            400, f"unknown format '{format}'; choose from: {', '.join(TEXT_FORMATS)}"
        )
    return format


def _read_file(name: str, value: Any) -> File:
    if not isinstance(value, File):
        number = "one" if isinstance(value, list) else "a"
        raise HTTPException(400, f"{name} must be {number} file")
    return value


def _read_strings(name: str, value: Any) -> tuple[str, ...]:
    """Return the values of a field that may be repeated; empty ones are left out."""
    values = value if isinstance(value, list) else [value]
    strings = tuple(filter(None, (read_string(name, each) for each in values)))
    if len(strings) > MAX_VALUES or any(len(each) > MAX_VALUE_LENGTH for each in strings):
        raise HTTPException(
            400, f"{name} may have {MAX_VALUES} values of {MAX_VALUE_LENGTH} characters"
        )
    return strings


def _read_alternatives(name: str, value: Any) -> int:
    if value is None or value == "":
        return 0
    is_number = isinstance(value, int) and not isinstance(value, bool)
    is_number = is_number or (isinstance(value, float) and value.is_integer())
    if not is_number and not (
        isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 10
    ):
        raise HTTPException(400, f"Invalid request: {name} parameter is not a number")
    if not 0 <= int(value) <= MAX_ALTERNATIVES:
        raise HTTPException(
            400, f"Invalid request: {name} parameter must be from 0 to {MAX_ALTERNATIVES}"
        )
    return int(value)


def _read_flag(name: str, value: Any) -> bool:
    if value in (True, "true", "1"):
        return True
    if value in (None, False, "false", "0", ""):
        return False
    raise HTTPException(400, f"{name} must be true or false")


def _read_glossary(name: str, value: Any) -> list[tuple[str, str]]:
    """Return the source terms and their translations, from JSON in the text of a form, too."""
    if isinstance(value, str) and value:
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise HTTPException(400, f"{name} is not valid JSON; {_GLOSSARY_HINT}") from None
    if not value:
        return []
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list):
        raise HTTPException(400, f"{name} is not an object; {_GLOSSARY_HINT}")
    if len(pairs) > MAX_TERMS:
        raise HTTPException(400, f"{name} has {len(pairs):,} terms; the limit is {MAX_TERMS:,}")
    return [_read_term(f"{name}, term {number}", pair) for number, pair in enumerate(pairs, 1)]


def _read_term(name: str, pair: Any) -> tuple[str, str]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise HTTPException(400, f"{name} is not a pair; {_GLOSSARY_HINT}")
    source = read_string(name, pair[0]).strip()
    target = read_string(name, pair[1]).strip()
    for term in (source, target):
        is_long = len(term) > MAX_VALUE_LENGTH or len(term.split()) > MAX_TERM_WORDS
        if is_long or not _LINE.fullmatch(term):
            raise HTTPException(
                400,
                f"{name} must have two texts of one line with 1 to {MAX_VALUE_LENGTH} characters"
                f" and at most {MAX_TERM_WORDS} words",
            )
    return source, target


API_KEY = Parameter(
    "an API key, if the server requires one; or `Authorization: Bearer KEY`",
    {"type": "string"},
    read_string,
)
_CODE = {"type": "string", "minLength": 1}
_LANGUAGES = {
    "source": Parameter("language code, or `auto`", _CODE, _read_language, is_required=True),
    "target": Parameter("language code", _CODE, _read_language, is_required=True),
}
_TERM_TEXT = {"type": "string", "minLength": 1, "maxLength": MAX_VALUE_LENGTH}
_GLOSSARY = Parameter(
    f"terms and their translations, at most {MAX_TERMS}, as an object or a list of pairs",
    {
        "oneOf": [
            {
                "type": "object",
                "propertyNames": _TERM_TEXT,
                "additionalProperties": _TERM_TEXT,
                "maxProperties": MAX_TERMS,
            },
            {
                "type": "array",
                "maxItems": MAX_TERMS,
                "items": {"type": "array", "items": _TERM_TEXT, "minItems": 2, "maxItems": 2},
            },
        ]
    },
    _read_glossary,
    form_schema={"type": "string", "contentMediaType": "application/json"},
)
