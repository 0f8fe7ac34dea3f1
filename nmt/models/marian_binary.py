"""Marian's binary model format (`.bin`), in which the translation models of Firefox are published.

All numbers are little-endian:

    version (1) and number of items                                     u64 each
    per item: length of the name, type, number of dimensions, bytes     u64 each
    the names, which end with NUL; then the dimensions                  i32 each
    number of padding bytes (u64), and the padding, so that the data starts at a multiple of 256
    the data of all items

An `intgemm8` matrix [I, O] is stored transposed, as O rows of I signed bytes, followed by its
multiplier: the byte b represents b / multiplier. The embeddings [V, D] are not transposed.

Shape suffixes: I inputs, O outputs.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

VERSION = 1
INT8, FLOAT32, INTGEMM8 = 0x0101, 0x0404, 0x4101
"""Codes of the supported types, those of `common/types.h` in Marian's fork."""
ALIGNMENT = 256
OPTIONS = "special:model.yml"
"""Name of the item with the options of the model, YAML that ends with NUL."""
MAX_ITEMS = 100_000
MAX_DIMENSIONS = 8
MIN_MULTIPLIER, MAX_MULTIPLIER = 1e-12, 1e12
"""A multiplier is 127 divided by a largest magnitude. That of a matrix of zeros is large."""
_HEADER = struct.Struct("<QQ")
_ENTRY = struct.Struct("<QQQQ")
_COUNT = struct.Struct("<Q")
_FLOAT = struct.Struct("<f")


def is_model(file: Path) -> bool:
    """Return whether a file begins with the version of the format."""
    start = _COUNT.pack(VERSION)
    with file.open("rb") as opened:
        return opened.read(len(start)) == start


@dataclass(frozen=True)
class Quantized:
    """An int8 matrix: it represents values / multiplier."""

    values: NDArray[np.int8]
    """[O, I]; of embeddings [V, D]."""
    multiplier: float

    @classmethod
    def of(cls, weight: NDArray[np.float32], max_multiplier: float = math.inf) -> Quantized:
        """Round a matrix to 8 bits; 127 represents its largest magnitude, unless the multiplier has
        a maximum."""
        magnitudes = np.abs(weight)
        largest = max(float(magnitudes.max(initial=0.0)), 1e-9)
        multiplier = np.float32(min(127 / largest, max_multiplier))
        rounded = np.rint(weight * multiplier)
        values = rounded.clip(-127, 127)
        return cls(values.astype(np.int8), float(multiplier))

    def dequantize(self) -> NDArray[np.float32]:
        """Return the matrix in float32, rounded as in Marian."""
        values = self.values.astype(np.float32)
        unit = np.float32(1) / np.float32(self.multiplier)
        return values * unit


def check_multiplier(name: str, multiplier: float) -> None:
    """Raise a ValueError for a multiplier that is no number, or would make the products of two of
    them or their inverse infinite."""
    if not MIN_MULTIPLIER <= multiplier <= MAX_MULTIPLIER:
        raise ValueError(f"the multiplier {multiplier:g} of {name} is out of range")


Item = NDArray[np.float32] | Quantized | bytes


@dataclass(frozen=True)
class _Entry:
    name_length: int
    type: int
    num_dimensions: int
    num_bytes: int


class _Reader:
    """Reads parts of a file one after the other; a missing part is a ValueError."""

    def __init__(self, content: bytes) -> None:
        self.content = memoryview(content)
        self.position = 0

    def take(self, num_bytes: int) -> memoryview:
        end = self.position + num_bytes
        if end > len(self.content):
            raise ValueError("it is truncated")
        part = self.content[self.position : end]
        self.position = end
        return part

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self.take(layout.size))


def read(content: bytes) -> dict[str, Item]:
    """Return the items of a model by name: matrices as [outputs, inputs] if they are quantized and
    as stored, [inputs, outputs], in float32; the options as bytes.

    Raises:
        ValueError: the file is damaged, of another version, or has a type that is not supported.
    """
    reader = _Reader(content)
    version, num_items = reader.unpack(_HEADER)
    if version != VERSION:
        raise ValueError(f"it is not a binary Marian model of version {VERSION}")
    if num_items > MAX_ITEMS:
        raise ValueError("it has too many items")
    entries = [_Entry(*reader.unpack(_ENTRY)) for _ in range(num_items)]
    names = _read_names(reader, entries)
    shapes = _read_shapes(reader, entries)
    (padding,) = reader.unpack(_COUNT)
    reader.take(padding)
    items: dict[str, Item] = {}
    for i, entry in enumerate(entries):
        data = reader.take(entry.num_bytes)
        items[names[i]] = _item(names[i], shapes[i], entry.type, data)
    if reader.position != len(content):
        raise ValueError("it has more than its items")
    return items


def _read_names(reader: _Reader, entries: Sequence[_Entry]) -> list[str]:
    names = [_decode_name(reader.take(entry.name_length)) for entry in entries]
    if len({*names}) < len(names):
        raise ValueError("two items have the same name")
    return names


def _read_shapes(reader: _Reader, entries: Sequence[_Entry]) -> list[tuple[int, ...]]:
    shapes = []
    for entry in entries:
        if entry.num_dimensions > MAX_DIMENSIONS:
            raise ValueError("a parameter has too many dimensions")
        dimensions = reader.take(4 * entry.num_dimensions)
        shape = np.frombuffer(dimensions, "<i4")
        shapes.append(tuple(shape.tolist()))
    return shapes


def _decode_name(encoded_name: memoryview) -> str:
    try:
        name = bytes(encoded_name).rstrip(b"\0").decode("ascii")
    except UnicodeDecodeError:
        raise ValueError("the name of an item is damaged") from None
    if not name.isprintable():
        raise ValueError("the name of an item is damaged")
    return name


def _item(name: str, shape: tuple[int, ...], kind: int, data: memoryview) -> Item:
    if kind == INT8:
        return bytes(data)
    if kind not in (FLOAT32, INTGEMM8):
        raise ValueError(f"the type {kind:#x} of {name} is not supported")
    count = math.prod(shape)
    size = count * 4 if kind == FLOAT32 else count + _FLOAT.size
    is_negative = min(shape, default=1) < 0
    if is_negative or size > len(data):
        raise ValueError(f"{name} has a damaged shape")
    if kind == FLOAT32:
        numbers = np.frombuffer(data, "<f4", count)
        array = numbers.reshape(shape)
        return array.astype(np.float32)
    (multiplier,) = _FLOAT.unpack_from(data, count)
    check_multiplier(name, multiplier)
    if len(shape) == 1:  # a number that was quantized, too
        shape = (1, *shape)
    if len(shape) != 2:
        raise ValueError(f"{name} has a damaged shape")
    # A matrix [I, O] is stored as O rows, unless it has embeddings.
    rows, columns = shape if name.endswith("Wemb") else shape[::-1]
    numbers = np.frombuffer(data, np.int8, count)
    values = numbers.reshape(rows, columns)
    return Quantized(values.copy(), multiplier)


def write(items: Mapping[str, Item]) -> bytes:
    """Return the content of a file with these items; see `read`."""
    header = [_HEADER.pack(VERSION, len(items))]
    names = []
    shapes = []
    blocks = []
    for name, item in items.items():
        kind, shape, data = _encoded(name, item)
        data += bytes(-len(data) % ALIGNMENT)
        encoded_name = name.encode() + b"\0"
        entry = _ENTRY.pack(len(encoded_name), kind, len(shape), len(data))
        header.append(entry)
        names.append(encoded_name)
        shapes.append(struct.pack(f"<{len(shape)}i", *shape))
        blocks.append(data)
    start = b"".join([*header, *names, *shapes])
    unaligned_size = len(start) + _COUNT.size
    num_zeros = -unaligned_size % ALIGNMENT
    count = _COUNT.pack(num_zeros)
    padding = bytes(num_zeros)
    return b"".join([start, count, padding, *blocks])


def _encoded(name: str, item: Item) -> tuple[int, tuple[int, ...], bytes]:
    """Return type, shape and data of an item."""
    if isinstance(item, bytes):
        return INT8, (len(item),), item
    if isinstance(item, Quantized):
        values = item.values
        shape = values.shape if name.endswith("Wemb") else values.shape[::-1]
        content = values.tobytes()
        multiplier = _FLOAT.pack(item.multiplier)
        return INTGEMM8, shape, content + multiplier
    numbers = item.astype("<f4")
    return FLOAT32, item.shape, numbers.tobytes()
