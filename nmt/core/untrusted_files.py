"""Reads files that strangers may have made: runs, checkpoints, models to import, configs and their
archives.

All readers of such files use these functions, so that no file can crash or block a command or
exhaust the memory:

- only regular files are opened: a FIFO blocks, and a device may never end;
- sizes, nesting and numbers have limits, also in archives, whose members may expand to a multiple
of their size;
- schemas state the types of JSON documents.

Functions with the parameter `hint` raise a CheckpointError of one line that names the file. The
others raise an OSError or a ValueError, which `errors_of` turns into such an error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import lzma
import math
import os
import stat
import struct
import tokenize
import types
import typing
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypedDict

import yaml

from nmt.core.errors import CheckpointError, first_line
from nmt.core.ranges import Range
from nmt.core.registry import accepts

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_BYTES = 32 << 20
"""Maximum size of a document, a tokenizer or the header of a safetensors file. Vocabularies of
250,000 pieces have 6 MB; a parsed document takes up to 25 times its size in memory."""
MAX_LOG_BYTES = 256 << 20
"""Maximum size of a file with one JSON document per line."""
MAX_CONFIG_BYTES = 1 << 20
"""Maximum size of a YAML document other than a vocabulary."""
MAX_DEPTH = 50
"""Maximum nesting of a document. Parsers and printers are recursive."""
MAX_YAML_EVENTS = 600_000
"""Maximum number of keys, values and brackets in a YAML document: a vocabulary of 300,000 pieces.
Each takes 500 bytes in memory."""
MAX_YAML_SCALAR = 10_000
"""Maximum number of characters of a YAML value without quotation marks; reading numbers takes
quadratic time."""
MAX_INTEGER = 2**64 - 1
"""Larger integers cannot be converted to floats or arrays."""
MAX_EXPANSION = 4
"""Maximum ratio of the size of arrays to that of their zip file: weights are hardly
compressible."""
MIN_EXPANDED_BYTES = 16 << 20
"""Size of arrays that a zip file of any size may have."""
DTYPE_BYTES = {
    "F64": 8,
    "F32": 4,
    "F16": 2,
    "BF16": 2,
    "I64": 8,
    "I32": 4,
    "I16": 2,
    "I8": 1,
    "U8": 1,
    "BOOL": 1,
}
"""Size of a number by its type in safetensors."""
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
)


JsonObject = dict[str, Any]
"""The content of an object in JSON or YAML."""
Count = Annotated[int, Range(0, 2**63 - 1)]
Size = Annotated[int, Range(1, 2**31 - 1)]
Number = Annotated[float, Range(-1e30, 1e30)]
"""A finite number; arithmetic on a few of them is finite, too."""


class TensorEntry(TypedDict):
    """Entry of a tensor in the header of a safetensors file."""

    dtype: str
    shape: list[Count]
    data_offsets: list[Count]
    """First and last byte, counted from the end of the header."""


@contextlib.contextmanager
def errors_of(path: Path, hint: str) -> Iterator[None]:
    """Raise a CheckpointError that names the file for an OSError or ValueError from reading it."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}", hint) from None
    except ValueError as error:
        raise CheckpointError(f"{path} is damaged: {first_line(error)}", hint) from None


def open_file(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        OSError: it cannot be opened, or it is not a regular file.
    """
    non_blocking = getattr(os, "O_NONBLOCK", 0)  # opening a FIFO would wait for a writer
    file = os.open(path, os.O_RDONLY | non_blocking | getattr(os, "O_BINARY", 0))
    mode = os.fstat(file).st_mode
    if not stat.S_ISREG(mode):
        os.close(file)
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise OSError(None, f"it is {kind}, not a file", str(path))
    return os.fdopen(file, "rb")


def read_bytes(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: see `open_file`.
        ValueError: it is too large.
    """
    with open_file(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"it has more than {max_bytes >> 20} MB")
    return content


def read_json(path: Path, schema: Any, hint: str) -> Any:
    """Return the content of a JSON file, which has the types of a schema; see `check`."""
    with errors_of(path, hint):
        content = parse_json(read_bytes(path))
        check(content, schema)
    return content


def read_record(path: Path) -> JsonObject:
    """Return the object in a JSON file, or an empty one if the file is missing or damaged."""
    with contextlib.suppress(OSError, ValueError):
        content = parse_json(read_bytes(path))
        return content if isinstance(content, dict) else {}
    return {}


def read_records(path: Path) -> list[JsonObject]:
    """Return the objects in the lines of a file, except damaged ones, or none if the file is
    missing."""
    records = []
    with contextlib.suppress(OSError, ValueError):
        for line in read_bytes(path, MAX_LOG_BYTES).decode("utf-8", "replace").splitlines():
            with contextlib.suppress(ValueError):  # truncated by a kill
                record = parse_json(line)
                if isinstance(record, dict):
                    records.append(record)
    return records


def parse_json(content: bytes | str) -> Any:
    """Return the value of a JSON document.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or has a repeated key, a number of more
            than 64 bits or half of a surrogate pair.
    """
    text = content if isinstance(content, str) else content.decode("utf-8-sig")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_int=_integer)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    _check_depth(value)
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # such a string could not be written to a file
            raise ValueError("it has half of a surrogate pair") from None
    return value


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise ValueError("it has a repeated key")
    return content


def _integer(digits: str) -> int:
    value = int(digits) if len(digits) <= len(f"-{MAX_INTEGER}") else MAX_INTEGER + 1
    if abs(value) > MAX_INTEGER:
        raise ValueError("it has a number of more than 64 bits")
    return value


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(MAX_DEPTH):
        if {dict, list}.isdisjoint(map(type, level)):  # fast, for vocabularies
            return
        children: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                children += each.values()
            elif isinstance(each, list):
                children += each
        if not children:
            return
        level = children
    raise ValueError("it is nested too deeply")


def check(value: Any, schema: Any, name: str = "") -> None:
    """Check the types of a value.

    Args:
        value: the content of a document.
        schema: a TypedDict, whose keys other than those of the document are ignored; a dataclass,
            which allows no other keys; a list or dict with the type of its values; `Annotated` with
            a `Range`; or a type that `nmt.core.registry.accepts` supports.
        name: name of the value in errors, such as `progress.step`.

    Raises:
        ValueError: a value has another type, is out of range, or is missing.
    """
    if type(value) is schema:  # faster, for the headers of models
        return
    origin, arguments = _origin_and_arguments(schema)
    if origin is Annotated:
        check(value, arguments[0], name)
        if value not in arguments[1]:
            raise ValueError(f"{_named(name)} is out of range")
    elif origin in (typing.Union, types.UnionType):
        if not any(matches(value, each) for each in arguments):
            raise ValueError(f"{_named(name)} has the wrong type")
    elif origin is list:
        _check_type(value, list, name)
        if {*map(type, value)} == {arguments[0]}:  # faster, for vocabularies
            return
        for item in value:
            check(item, arguments[0], name)
    elif origin is dict:
        _check_type(value, dict, name)
        for key, item in value.items():
            check(item, arguments[1], f"{name}.{key}" if name else key)
    elif typing.is_typeddict(schema) or dataclasses.is_dataclass(schema):
        _check_type(value, dict, name)
        _check_keys(value, schema, name)
    else:
        _check_type(value, schema, name)


@functools.cache
def _origin_and_arguments(schema: Any) -> tuple[Any, tuple[Any, ...]]:
    return typing.get_origin(schema), typing.get_args(schema)


def _check_type(value: Any, expected: Any, name: str) -> None:
    if not accepts(expected, value):
        raise ValueError(f"{_named(name)} has the wrong type")


def _check_keys(value: JsonObject, schema: Any, name: str) -> None:
    prefix = f"{name}." if name else ""
    if missing := _required_keys(schema) - value.keys():
        raise ValueError(f"{prefix}{min(missing)} is missing")
    for key, kind in _types(schema).items():
        if key in value:
            check(value[key], kind, f"{prefix}{key}")
    unknown = value.keys() - _types(schema).keys()
    if unknown and dataclasses.is_dataclass(schema):
        raise ValueError(f"{prefix}{min(unknown)} is unknown")


@functools.cache
def _types(schema: Any) -> dict[str, Any]:
    return typing.get_type_hints(schema, include_extras=True)


@functools.cache
def _required_keys(schema: Any) -> frozenset[str]:
    if not dataclasses.is_dataclass(schema):
        return frozenset(schema.__required_keys__)
    absent = dataclasses.MISSING
    fields = dataclasses.fields(schema)
    return frozenset(
        each.name for each in fields if each.default is absent and each.default_factory is absent
    )


def _named(name: str) -> str:
    return name or "it"


def matches(value: Any, schema: Any) -> bool:
    """Return whether a value has the types of a schema."""
    try:
        check(value, schema)
    except ValueError:
        return False
    return True


def _construct_mapping(loader: Any, node: yaml.MappingNode) -> dict[Any, Any]:
    """Return a mapping without duplicate keys; YAML would silently keep the last one."""
    content = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise _yaml_error("a key must be a string", key_node)
        key = loader.construct_object(key_node)
        if key in content:
            raise _yaml_error(f"duplicate key '{key}'", key_node)
        content[key] = loader.construct_object(value_node, deep=True)
    return content


def _construct_integer(loader: Any, node: yaml.ScalarNode) -> float:
    value = int(loader.construct_yaml_int(node))
    if abs(value) <= MAX_INTEGER:
        return value
    return math.inf if value > 0 else -math.inf


def _yaml_error(problem: str, part: yaml.Node | yaml.Event) -> yaml.MarkedYAMLError:
    mark: Any = part.start_mark
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)


NESTED_TOO_DEEPLY = "not valid YAML: nested too deeply"


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Constructs numbers, booleans and strings."""


class _TextLoader(getattr(yaml, "CBaseLoader", yaml.BaseLoader)):  # type: ignore[misc]
    """Constructs strings only."""


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_integer)
_TextLoader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct_mapping)


def parse_yaml(content: str, *, as_text: bool = False) -> Any:
    """Return the value of a YAML document; with `as_text`, all numbers and booleans as strings.

    Raises:
        ValueError: it is not YAML, or exceeds a limit; the message may begin with the number of the
            line.
    """
    try:
        _check_yaml_structure(content)
        return yaml.load(content, Loader=_TextLoader if as_text else _Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        position = f"line {mark.line + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or "not valid YAML"
        if "nesting depth" in problem:  # found by PyYAML 6.0.4 and later
            problem = NESTED_TOO_DEEPLY
        raise ValueError(position + problem.removeprefix("did not find ")) from None
    except (ValueError, TypeError, OverflowError, AttributeError, LookupError):
        # Values such as 2001-13-01, !!bool 5.
        raise ValueError("not valid YAML") from None


def _check_yaml_structure(content: str) -> None:
    """Check the limits before libyaml, whose recursion is in C, composes the document.

    Aliases are rejected, because a short document of aliases can stand for a value of any size.
    """
    depth = 0
    for number, event in enumerate(yaml.parse(content, Loader=_TextLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_DEPTH:
            raise _yaml_error(NESTED_TOO_DEEPLY, event)
        if number > MAX_YAML_EVENTS:
            raise _yaml_error(f"more than {MAX_YAML_EVENTS:,} values", event)
        if isinstance(event, yaml.AliasEvent):
            raise _yaml_error("aliases are not supported", event)
        if (
            isinstance(event, yaml.ScalarEvent)
            and event.implicit[0]
            and len(event.value) > MAX_YAML_SCALAR
        ):
            raise _yaml_error(f"a value of more than {MAX_YAML_SCALAR:,} characters", event)


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file; see `parse_yaml`.

    Raises:
        OSError: the file cannot be read.
        UnicodeDecodeError: it is not UTF-8.
        ValueError: it is too large, or see `parse_yaml`.
    """
    return parse_yaml(read_bytes(path, MAX_CONFIG_BYTES).decode("utf-8"))


def read_front_matter(path: Path) -> JsonObject:
    """Return the YAML metadata between the two lines `---` at the start of a Markdown file; empty
    if it has none."""
    with contextlib.suppress(OSError, ValueError):
        text = read_bytes(path, MAX_CONFIG_BYTES).decode("utf-8", "replace")
        before, head, _ = text.split("---\n", 2)
        metadata = parse_yaml(head) if not before else None
        return metadata if isinstance(metadata, dict) else {}
    return {}


def unzip(content: bytes, names: Sequence[str]) -> list[bytes]:
    """Return the content of these members of a zip file.

    Raises:
        ValueError: it is damaged, lacks a member or is too large.
    """
    with _intact_zip(), zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [archive.getinfo(name) for name in names]
        num_bytes = sum(member.file_size for member in members)
        if num_bytes > MAX_BYTES:
            raise ValueError(f"its content has more than {MAX_BYTES >> 20} MB")
        return [archive.read(member) for member in members]  # reads at most the declared size


@contextlib.contextmanager
def _intact_zip() -> Iterator[None]:
    """Raise a ValueError for the errors of damaged zip files."""
    try:
        yield
    except _ZIP_ERRORS as error:
        raise ValueError(f"not an intact zip file ({first_line(error)})") from None


def check_zip_expansion(path: Path) -> None:
    """Check that the content of a zip file of arrays is not much larger than the file. Other files
    are accepted.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged or expands too much.
    """
    with open_file(path) as file:
        if not zipfile.is_zipfile(file):
            return
        with _intact_zip(), zipfile.ZipFile(file) as archive:
            num_bytes = sum(member.file_size for member in archive.infolist())
        file_bytes = os.fstat(file.fileno()).st_size
    if num_bytes > max(MIN_EXPANDED_BYTES, MAX_EXPANSION * file_bytes):
        raise ValueError(f"{file_bytes:,} bytes expand to {num_bytes:,}")


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of an `.npz` file by name.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged or expands too much.
    """
    check_zip_expansion(path)
    arrays = {}
    with open_file(path) as file, _intact_zip(), zipfile.ZipFile(file) as archive:
        for name in archive.namelist():
            arrays[name.removesuffix(".npy")] = _parse_array(archive.read(name))
    return arrays


def _parse_array(content: bytes) -> NDArray[Any]:
    """Return the array of an `.npy` file. Unlike `numpy.load`, it allocates nothing before the
    sizes are compared."""
    import numpy as np
    from numpy.lib import format as npy

    file = io.BytesIO(content)
    read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    try:
        shape, is_fortran, dtype = read_header[npy.read_magic(file)](file)
    except (
        KeyError,
        TypeError,
        AttributeError,
        SyntaxError,
        MemoryError,
        RecursionError,
        tokenize.TokenError,
    ):
        raise ValueError("an array has a damaged header") from None
    data = content[file.tell() :]
    if dtype.hasobject or dtype.itemsize == 0 or math.prod(shape) * dtype.itemsize != len(data):
        raise ValueError("the shape of an array does not fit its size")
    array = np.frombuffer(bytearray(data), dtype)  # a bytearray can be changed
    return array.reshape(shape, order="F" if is_fortran else "C")


def read_safetensors_header(path: Path) -> tuple[dict[str, TensorEntry], int]:
    """Return the tensors in the header of a safetensors file by name, and the position of their
    data in the file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is damaged: the shapes do not fit the sizes, or the sizes not the file.
    """
    with open_file(path) as file:
        header_bytes = int.from_bytes(file.read(8), "little")
        start = 8 + header_bytes
        data_bytes = os.fstat(file.fileno()).st_size - start
        if header_bytes > MAX_BYTES or data_bytes < 0:
            raise ValueError("its header is incomplete or too large")
        header = parse_json(file.read(header_bytes))
    check(header, dict[str, Any])
    header.pop("__metadata__", None)
    check(header, dict[str, TensorEntry])
    for name, entry in header.items():
        num_bytes = math.prod(entry["shape"]) * DTYPE_BYTES.get(entry["dtype"], 0)
        if len(entry["data_offsets"]) != 2:
            raise ValueError(f"{name} has no first and last byte")
        first, end = entry["data_offsets"]
        if entry["dtype"] not in DTYPE_BYTES or end - first != num_bytes or end > data_bytes:
            raise ValueError(f"{name} has a type or size that does not fit the file")
    return header, start
