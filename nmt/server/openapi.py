"""The requests that the server answers, and their description as an OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from starlette.requests import Request
from starlette.responses import Response

from nmt.core.version import __version__
from nmt.server.fields import API_KEY, Parameters, Schema

JSON = "application/json"
FILE_FORM = "multipart/form-data"
FORMS = ("application/x-www-form-urlencoded", FILE_FORM)


@dataclass(frozen=True)
class Operation:
    """A request that the server answers."""

    path: str
    handler: Callable[[Request], Awaitable[Response]]
    summary: str
    answer: Schema
    """Schema of the answer."""
    answer_type: str = JSON
    method: str = "GET"
    parameters: Parameters = field(default_factory=dict)
    """The fields of the body."""
    body_types: Sequence[str] = (JSON, *FORMS)


def _object(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {
        "type": "object",
        "properties": required | optional,
        "required": list(required),
        "additionalProperties": False,
    }


def _array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _one_or_each(schema: Schema) -> Schema:
    """Return the schema of a value, or of a list with the value of each text of a list."""
    return {"anyOf": [schema, _array(schema)]}


TEXT: Schema = {"type": "string"}
_FLAG: Schema = {"type": "boolean"}
_NUMBER: Schema = {"type": "integer"}
_TEXTS = _array(TEXT)
_COUNTS: Schema = {"type": "object", "additionalProperties": _NUMBER}
_TERMS = _object({"applied": _COUNTS, "notApplied": _COUNTS})
_PERCENT: Schema = {"type": "number", "minimum": 0, "maximum": 100}
_DETECTION = _object({"confidence": _PERCENT, "language": TEXT})
_CONFIDENCE: Schema = {"type": ["number", "null"], "minimum": 0, "maximum": 1}
_LANGUAGE = _object({"code": TEXT, "name": TEXT})
_ERROR = _object({"error": TEXT})
TRANSLATION = _object(
    {"translatedText": _one_or_each(TEXT), "warnings": _one_or_each(_TEXTS)},
    confidence=_one_or_each(_CONFIDENCE),
    alternatives=_one_or_each(_TEXTS),
    alignment=_one_or_each(_array(_array(_NUMBER))),
    detectedLanguage=_one_or_each(_DETECTION),
    glossary=_TERMS,
)
TRANSLATED_FILE = _object({"translatedFileUrl": TEXT, "warnings": _TEXTS}, glossary=_TERMS)
DETECTIONS = _array(_DETECTION)
LANGUAGES = _array(_object({"code": TEXT, "name": TEXT, "targets": _TEXTS}))
SETTINGS = _object(
    {
        "charLimit": _NUMBER,
        "frontendTimeout": _NUMBER,
        "apiKeys": _FLAG,
        "keyRequired": _FLAG,
        "suggestions": _FLAG,
        "filesTranslation": _FLAG,
        "supportedFilesFormat": _TEXTS,
        "language": _object({"source": _LANGUAGE, "target": _LANGUAGE}),
    }
)
HEALTH = _object(
    {
        "status": {"const": "ok"},
        "version": TEXT,
        "models": _array(_object({"name": TEXT, "source": TEXT, "target": TEXT})),
    }
)
DOCUMENT: Schema = {"type": "object"}
"""Schema of the OpenAPI document."""


def openapi_document(operations: Sequence[Operation], *, needs_key: bool) -> Schema:
    """Return the OpenAPI document of a server."""
    paths: dict[str, Schema] = {}
    for operation in operations:
        described = _describe(operation)
        if needs_key and "api_key" in operation.parameters:
            described["security"] = [{"key": []}, {}]  # or the field api_key
        paths[operation.path] = {operation.method.lower(): described}
    return {
        "openapi": "3.1.0",
        "info": {"title": "nmt", "summary": "Machine translation", "version": __version__},
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": API_KEY.description,
                }
            },
        },
    }


def _describe(operation: Operation) -> Schema:
    error = {"$ref": "#/components/schemas/Error"}
    answer = {operation.answer_type: {"schema": operation.answer}}
    described: Schema = {
        "summary": operation.summary,
        "operationId": operation.handler.__name__,
        "responses": {
            "200": {"description": operation.summary, "content": answer},
            "4XX": {"description": "Refused", "content": {JSON: {"schema": error}}},
            "5XX": {"description": "Failed or busy", "content": {JSON: {"schema": error}}},
        },
    }
    if names := re.findall(r"{(\w+)}", operation.path):
        described["parameters"] = [
            {"name": name, "in": "path", "required": True, "schema": TEXT} for name in names
        ]
    if operation.parameters:
        content = {
            media_type: {"schema": _body(operation.parameters, is_form=media_type in FORMS)}
            for media_type in operation.body_types
        }
        described["requestBody"] = {"required": True, "content": content}
    return described


def _body(parameters: Parameters, *, is_form: bool) -> Schema:
    required: dict[str, Schema] = {}
    optional: dict[str, Schema] = {}
    for name, parameter in parameters.items():
        schema = parameter.schema
        if is_form and parameter.form_schema:
            schema = parameter.form_schema
        group = required if parameter.is_required else optional
        group[name] = schema | {"description": parameter.description}
    return _object(required, **optional)
