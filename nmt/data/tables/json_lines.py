"""JSON Lines: a JSON object in each line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

from nmt.core.errors import DataError
from nmt.core.untrusted_files import JsonObject, parse_json
from nmt.data.pairs import InputFile, read_lines
from nmt.data.tables.columns import ColumnRequest
from nmt.data.tables.table import Record, Table

_HINT = "write a JSON object in each line; jq -c '.[]' converts a list"
_parse = partial(json.loads, parse_int=float)  # an integer may have too many digits
SAMPLE_LINES = 100
"""Lines whose keys are the names of columns."""


def open_json_lines(path: InputFile, request: ColumnRequest, errors: str) -> Table:
    """Open a file with a JSON object in each line. The keys of nested objects are paths:
    `translation.en`.

    Raises:
        DataError: it is empty, one of the first lines is not an object, or none has the columns.
    """
    names: dict[str, None] = {}
    for _, record in islice(_objects(path, errors), SAMPLE_LINES):
        _add_names(record, "", names)
    if not names:
        raise DataError(f"{path} is empty", _HINT)
    columns = request.find(path, list(names))
    return Table(path, "line", list(names), columns, partial(_read, path, errors, list(names)))


def _add_names(record: JsonObject, prefix: str, names: dict[str, None]) -> None:
    for key, value in record.items():
        if isinstance(value, dict):
            _add_names(value, f"{prefix}{key}.", names)
        else:
            names[prefix + key] = None


def _read(
    path: InputFile, errors: str, names: Sequence[str], columns: Sequence[int]
) -> Iterator[Record]:
    wanted = [names[index] for index in columns]
    for number, record in _objects(path, errors):
        yield number, [_value(record, name) for name in wanted]


def _value(record: JsonObject, name: str) -> Any:
    """Return the value at a path; None if there is none."""
    if name in record:
        return record[name]
    key, _, rest = name.partition(".")
    inner = record.get(key)
    return _value(inner, rest) if rest and isinstance(inner, dict) else None


def _objects(path: InputFile, errors: str) -> Iterator[tuple[int, JsonObject]]:
    """Yield the number and the object of each line that is not blank."""
    for number, line in enumerate(read_lines(path, errors), 1):
        if not line.strip():
            continue
        # Only escapes of this range need checks that take several times as long.
        parse = parse_json if "\\ud" in line or "\\uD" in line else _parse
        try:
            record = parse(line)
        except json.JSONDecodeError as error:
            problem = f"not JSON: {error.msg} (character {error.colno})"
            raise DataError(f"{path}, line {number}: {problem}", _HINT) from None
        except RecursionError:
            raise DataError(f"{path}, line {number}: nested too deeply", _HINT) from None
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}", _HINT) from None
        if not isinstance(record, dict):
            raise DataError(f"{path}, line {number}: not a JSON object", _HINT)
        yield number, record
