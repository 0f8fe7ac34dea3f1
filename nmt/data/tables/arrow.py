"""Tables of Apache Arrow: Parquet files, and the folders that `save_to_disk` of Hugging Face's
package `datasets` writes, of which only pyarrow is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypedDict

from nmt.core.errors import DataError, first_line
from nmt.core.packages import require_package
from nmt.core.untrusted_files import check, parse_json, read_bytes
from nmt.data.pairs import InputFile
from nmt.data.tables.columns import ColumnRequest
from nmt.data.tables.table import Record, Table

STATE = "state.json"
"""File of a folder of `save_to_disk` that names its files."""
SPLITS = "dataset_dict.json"
"""File of a folder whose subfolders are splits."""
BATCH_SIZE = 1000
Batches = Callable[[Path, Sequence[str]], Iterator[Any]]
"""Reads these columns of a file as record batches."""


class _FileName(TypedDict):
    filename: str


class _State(TypedDict):
    _data_files: list[_FileName]


class _SplitNames(TypedDict):
    splits: list[str]


def open_parquet(path: InputFile, request: ColumnRequest, errors: str) -> Table:
    """Open a Parquet file, which is read by groups of rows."""
    if not isinstance(path, Path):
        raise DataError(f"{path} is in an archive", "extract it: Parquet is not read as a stream")
    return read_parquet_files([path], request, errors)


def read_parquet_files(paths: Sequence[Path], request: ColumnRequest, errors: str) -> Table:
    """Open Parquet files with the same columns as one table.

    Raises:
        DataError: a file is missing or damaged, or does not have the columns.
    """
    parquet = _require("pyarrow.parquet")
    with _errors_of(paths[0]):
        schema = parquet.read_schema(paths[0])

    def num_rows() -> int:
        return sum(parquet.read_metadata(path).num_rows for path in paths)

    return _open(paths[0], paths, schema, _parquet_batches, num_rows, request, errors)


def open_folder(path: InputFile, request: ColumnRequest, errors: str) -> Table:
    """Open a split that `save_to_disk` has written."""
    assert isinstance(path, Path)
    files = folder_files(path)
    with _errors_of(files[0]), _open_arrow(files[0]) as batches:
        schema = batches.schema
    return _open(path, files, schema, _arrow_batches, None, request, errors)


def folder_files(folder: Path) -> list[Path]:
    """Return the files of a split that `save_to_disk` has written.

    Raises:
        DataError: the folder is damaged, or has splits.
    """
    if (folder / SPLITS).is_file():
        names = folder_splits(folder)
        raise DataError(
            f"{folder} has splits: {', '.join(names)}",
            f"write datasets(path='{folder}'), or name one of them: {folder / names[0]}",
        )
    state = _read_json(folder / STATE, _State)
    names = [entry["filename"] for entry in state["_data_files"]]
    if not names or any(Path(name).name != name for name in names):
        raise DataError(f"{folder / STATE} names no files of its folder", _SAVE_AGAIN)
    files = [folder / name for name in names]
    for file in files:
        if not file.is_file():
            raise DataError(f"{file} is missing", _SAVE_AGAIN)
    return files


def folder_splits(folder: Path) -> list[str]:
    """Return the names of the splits of a folder, which are its subfolders."""
    names: list[str] = _read_json(folder / SPLITS, _SplitNames)["splits"]
    if not names or any(Path(name).name != name for name in names):
        raise DataError(f"{folder / SPLITS} names no splits", _SAVE_AGAIN)
    return names


_SAVE_AGAIN = "write the folder again with save_to_disk"


def _read_json(path: Path, schema: Any) -> Any:
    try:
        content = parse_json(read_bytes(path))
        check(content, schema)
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}", _SAVE_AGAIN) from None
    except ValueError as error:
        raise DataError(f"{path} is damaged: {first_line(error)}", _SAVE_AGAIN) from None
    return content


def _open(
    name: Path,
    files: Sequence[Path],
    schema: Any,
    batches: Batches,
    num_rows: Callable[[], int] | None,
    request: ColumnRequest,
    errors: str,
) -> Table:
    with _errors_of(name):
        names = list(_leaf_names(schema))
    columns = request.find(name, names)
    read = partial(_read, files, batches, names)
    return Table(name, "row", names, columns, read, num_rows, errors)


def _leaf_names(fields: Any, prefix: str = "") -> Iterator[str]:
    """Yield the paths of all columns that are not structs."""
    types = _require("pyarrow.types")
    for field in fields:
        if types.is_struct(field.type):
            inner = [field.type.field(i) for i in range(field.type.num_fields)]
            yield from _leaf_names(inner, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def _read(
    files: Sequence[Path], batches: Batches, names: Sequence[str], columns: Sequence[int]
) -> Iterator[Record]:
    wanted = [names[index] for index in columns]
    # Columns of the same name are told apart by their order.
    orders = [names[:index].count(names[index]) for index in columns]
    places = list(zip(wanted, orders, strict=True))
    number = 0
    for file in files:
        with _errors_of(file):
            for batch in batches(file, wanted):
                found = [_column(batch, *place) for place in places]
                cells = [column.to_pylist() for column in found]
                for row in zip(*cells, strict=True):
                    number += 1
                    yield number, row


def _column(batch: Any, name: str, order: int) -> Any:
    """Return a column as UTF-8, which the caller decodes, or as lists of it; other values stay.
    `order` is the number of columns of the same name before it."""
    pyarrow = _require("pyarrow")
    if name in batch.schema.names:
        column = batch.column(batch.schema.get_all_field_indices(name)[order])
    else:
        top = max((each for each in batch.schema.names if name.startswith(f"{each}.")), key=len)
        column = batch.column(top)
        for field in name.removeprefix(f"{top}.").split("."):
            column = _require("pyarrow.compute").struct_field(column, field)
    kind = column.type.value_type if _is_list(column.type) else column.type
    # Damaged offsets and indices would read memory outside of the file. Only the conversion of
    # plain text to bytes does not follow them; bytes are valid where they are not UTF-8, so that
    # the caller can report the row.
    if not _is_plain_text(kind):
        column.validate(full=True)
    if _is_text(kind):
        utf8 = pyarrow.large_binary()
        column = column.cast(pyarrow.large_list(utf8) if _is_list(column.type) else utf8)
    column.validate(full=True)
    return column


def _is_plain_text(kind: Any) -> bool:
    types = _require("pyarrow.types")
    return bool(types.is_string(kind) or types.is_large_string(kind))


def _is_text(kind: Any) -> bool:
    types = _require("pyarrow.types")
    if types.is_dictionary(kind):
        kind = kind.value_type
    return _is_plain_text(kind) or bool(types.is_string_view(kind))


def _is_list(kind: Any) -> bool:
    types = _require("pyarrow.types")
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _parquet_batches(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    parquet = _require("pyarrow.parquet")
    with parquet.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=BATCH_SIZE, columns=list(dict.fromkeys(columns)))


def _arrow_batches(path: Path, columns: Sequence[str]) -> Iterator[Any]:
    with _open_arrow(path) as batches:
        for batch in batches:
            batch.validate()
            for start in range(0, batch.num_rows, BATCH_SIZE):
                yield batch.slice(start, BATCH_SIZE)


def _open_arrow(path: Path) -> Any:
    pyarrow = _require("pyarrow")
    return _require("pyarrow.ipc").open_stream(pyarrow.memory_map(str(path)))


def _require(module: str) -> Any:
    return require_package("pyarrow", module)


@contextlib.contextmanager
def _errors_of(path: Path) -> Iterator[None]:
    """Raise a DataError for the errors of pyarrow."""
    pyarrow = _require("pyarrow")
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"no such file: {path}") from None
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is damaged, or has another format: {first_line(error)}",
            "write or download it again",
        ) from None
