from __future__ import annotations

import codecs
import contextlib
import csv
import gzip
import io
import json
import lzma
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from commandline import CommandLine
from hypothesis import given
from hypothesis import strategies as st

from nmt.core.compression import zstd
from nmt.core.errors import ConfigError, DataError, NMTError
from nmt.core.registry import format_spec
from nmt.data.pairs import Pair, one_line
from nmt.data.sources import Split, open_split, validate
from nmt.data.tables.delimited import MAX_CELL
from nmt.evaluate.test_sets import corpus_test_set, named_test_set

TEXT = [(f'sentence "{n}", over there;', f"Satz Nummer {n}, dort;") for n in range(200)]
NAMES = ("en", "de")
Rows = Sequence[Sequence[Any]]


@pytest.fixture(autouse=True, scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with contextlib.chdir(tmp_path_factory.mktemp("tables")):
        yield


def as_csv(rows: Rows, **options: Any) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, **options).writerows(rows)
    return text.getvalue().encode()


def as_json_lines(rows: Sequence[object]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def as_parquet(columns: dict[str, Any]) -> bytes:
    content = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), content, row_group_size=70)
    return content.getvalue()


def columns_of(pairs: Sequence[Pair]) -> dict[str, list[str]]:
    return {"de": [de for _, de in pairs], "en": [en for en, _ in pairs]}


def save_to_disk(folder: Path, pairs: Sequence[Pair], num_files: int = 1) -> None:
    """Write a folder as `datasets.Dataset.save_to_disk` does."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{i:05}-of-{num_files:05}.arrow" for i in range(num_files)]
    rows = [{"id": n, "translation": {"de": de, "en": en}} for n, (en, de) in enumerate(pairs)]
    for i, name in enumerate(names):
        table = pyarrow.Table.from_pylist(rows[i::num_files])
        with pyarrow.ipc.new_stream(str(folder / name), table.schema) as stream:
            stream.write_table(table, max_chunksize=70)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}))


def save_splits(folder: Path, splits: dict[str, Sequence[Pair]]) -> Path:
    """Write a folder as `datasets.DatasetDict.save_to_disk` does."""
    for name, pairs in splits.items():
        save_to_disk(folder / name, pairs)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))
    return folder


def open_file(name: str, content: bytes, split: str = "test", **options: Any) -> Split:
    Path(name).write_bytes(content)
    return open_split(format_spec("files", {split: name, **options}), split, "en", "de")


def pairs_of(name: str, content: bytes, **options: Any) -> list[Pair]:
    return list(open_file(name, content, **options).pairs())


def compress_zstandard(content: bytes) -> bytes:
    return zstd.compress(content)


NAMED = [NAMES, *TEXT]
NESTED = [{"id": n, "translation": {"de": de, "en": en}} for n, (en, de) in enumerate(TEXT)]
FILES: dict[str, Callable[[], bytes]] = {
    "a.csv": lambda: as_csv(NAMED),
    "unix.csv": lambda: as_csv([("English", "German"), *TEXT], lineterminator="\n"),
    "excel.csv": lambda: codecs.BOM_UTF8 + as_csv(NAMED, delimiter=";"),
    "tabs.csv": lambda: as_csv([("id", " DE ", "En"), *[(1, de, en) for en, de in TEXT]]),
    "declared.csv": lambda: b"sep=^\r\n" + as_csv(NAMED, delimiter="^"),
    "bars.csv": lambda: as_csv(NAMED, delimiter="|"),
    "roles.csv.gz": lambda: gzip.compress(as_csv([("source", "target"), *TEXT])),
    "a.csv.xz": lambda: lzma.compress(as_csv(NAMED)),
    "a.csv.zst": lambda: compress_zstandard(as_csv(NAMED)),
    "a.tsv": lambda: "".join(f"x\t{de}\t{en}\n" for en, de in [NAMES, *TEXT]).encode(),
    "a.jsonl": lambda: as_json_lines([{"en": en, "de": de} for en, de in TEXT]),
    "a.ndjson": lambda: as_json_lines(NESTED),
    "a.json.xz": lambda: lzma.compress(as_json_lines(NESTED)),
    "a.parquet": lambda: as_parquet(columns_of(TEXT)),
    "nested.parquet": lambda: as_parquet({"translation": [row["translation"] for row in NESTED]}),
    "large.parquet": lambda: as_parquet(
        {name: pyarrow.array(cells, "large_string") for name, cells in columns_of(TEXT).items()}
    ),
    "categories.parquet": lambda: as_parquet(
        {name: pyarrow.array(cells).dictionary_encode() for name, cells in columns_of(TEXT).items()}
    ),
}


# --- formats ---


@pytest.mark.parametrize("name", FILES)
def test_all_formats_have_the_same_pairs(name: str) -> None:
    Path(name).write_bytes(FILES[name]())
    spec = f"files(test='{name}')"
    assert list(open_split(spec, "test", "en", "de").pairs()) == TEXT
    if "roles" not in name:
        reverse = open_split(spec, "test", "de", "en")
        assert list(reverse.pairs()) == [(de, en) for en, de in TEXT]


def test_numbers_of_pairs_are_known_without_reading() -> None:
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        count = open_file(name, FILES[name]()).count
        assert count is not None
        assert 200 <= count() <= 201  # with the header


def test_an_archive_has_a_table() -> None:
    with zipfile.ZipFile("own.zip", "w") as archive:
        archive.writestr("info.json", "{}")
        archive.writestr("text/own.csv", FILES["a.csv"]())
    assert list(open_split("files(test='own.zip')", "test", "en", "de").pairs()) == TEXT
    with zipfile.ZipFile("other.zip", "w") as archive:
        archive.writestr("own.parquet", b"")
    with pytest.raises(DataError, match="is in an archive") as caught:
        open_split("files(test='other.zip')", "test", "en", "de")
    assert "extract it" in caught.value.hint


def test_text_is_read_as_a_stream() -> None:
    for name, damage in (("a.csv", b'"x'), ("a.jsonl", b"{")):
        pairs = open_file(name, FILES[name]() + damage).pairs()
        assert next(pairs) == TEXT[0]
        with pytest.raises(DataError, match=f"{name}, line 20[12]: "):
            list(pairs)


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1))
def test_csv_is_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    path.write_bytes(as_csv([("en", "de"), *[(text, "x") for text in texts]]))
    found = list(open_split(f"files(test='{path}')", "test", "en", "de").pairs())
    # Blanks at the start of a cell that needs no quotes are not text.
    assert [en.lstrip(" ") for en, _ in found] == [one_line(text).lstrip(" ") for text in texts]


def test_line_breaks_in_cells_become_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [NAMES, ("one\ntwo", "eins\r\nzwei"), ("three", "drei\rvier"), ("tab\there", "da")]
    expected = [("one two", "eins zwei"), ("three", "drei vier"), ("tab\there", "da")]
    assert pairs_of("breaks.csv", as_csv(rows)) == expected
    assert "breaks.csv: line breaks in 3 cells became spaces" in capsys.readouterr().err
    table = {"en": [row[0] for row in rows[1:]], "de": [row[1] for row in rows[1:]]}
    assert pairs_of("breaks.parquet", as_parquet(table)) == expected
    objects = [{"en": en, "de": de} for en, de in rows[1:]]
    assert pairs_of("breaks.jsonl", as_json_lines(objects)) == expected


def test_missing_cells_are_blank() -> None:
    objects: list[object] = [{"en": "a", "de": None}, {"de": "b"}, {"en": "c", "de": []}]
    expected = [("a", ""), ("", "b"), ("c", "")]
    assert pairs_of("a.jsonl", as_json_lines(objects)) == expected
    assert pairs_of("a.csv", b"en,de\na,\n\n,b\nc,\n") == expected
    table = {"en": ["a", None, "c"], "de": [None, "b", None]}
    assert pairs_of("a.parquet", as_parquet(table)) == expected


def test_text_that_is_not_utf8_is_located() -> None:
    table = {"en": pyarrow.array([b"one", b"\xff"], "binary"), "de": ["eins", "zwei"]}
    with pytest.raises(DataError, match=r"a\.parquet, row 2: column 'en' is not UTF-8"):
        pairs_of("a.parquet", as_parquet(table))
    found = pairs_of("a.parquet", as_parquet(table), errors="replace")
    assert found == [("one", "eins"), ("\ufffd", "zwei")]
    with pytest.raises(DataError, match=r"a\.csv, line 2, byte 1 of the line: not UTF-8"):
        pairs_of("a.csv", b"en,de\n\xfcber,x\n")
    for codec in ("utf-16", "utf-16-be"):
        bom = codecs.BOM_UTF16_BE if codec == "utf-16-be" else b""
        with pytest.raises(DataError, match=r"a\.csv is UTF-16, not UTF-8") as caught:
            pairs_of("a.csv", bom + "en\tde\nHello\tHallo\n".encode(codec))
        assert "CSV UTF-8" in caught.value.hint


# --- columns ---

WIDE = as_csv([("id", "text en", "text de", "text de"), (7, "Hello", "Hallo", "Servus")])


@pytest.mark.parametrize(
    ("options", "references"),
    [
        ({"src": "text en", "tgt": "text de"}, ["Hallo", "Servus"]),
        ({"src": "TEXT EN", "tgt": 3, "header": True}, ["Hallo"]),
        ({"src": 2, "tgt": (4, "3"), "header": True}, ["Servus", "Hallo"]),
        ({"columns": ("id", "en", "de", "x"), "header": True}, ["Hallo"]),
    ],
)
def test_columns_by_name_and_number(options: dict[str, Any], references: list[str]) -> None:
    split = open_file("a.csv", WIDE, **options)
    assert list(split.pairs()) == [("Hello", references[0])]
    assert split.references is not None
    assert list(split.references()) == [references]


def test_a_path_names_a_nested_column() -> None:
    rows = [{"text": {"plain": {"a": "Hello"}}, "text.b": "Hallo"}]
    assert pairs_of("a.jsonl", as_json_lines(rows), src="text.plain.a", tgt="text.b") == [
        ("Hello", "Hallo")
    ]
    table = as_parquet({"text": [{"plain": {"a": "Hello"}}, None], "b": ["Hallo", "x"]})
    found = pairs_of("a.parquet", table, src="text.plain.a", tgt="b")
    assert found == [("Hello", "Hallo"), ("", "x")]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_first_row_without_names_is_a_pair(name: str) -> None:
    content = b"Hello,Hallo\nBye,Tschau\n"
    if name == "a.tsv":
        content = content.replace(b",", b"\t")
        assert pairs_of(name, content)[0] == ("Hello", "Hallo")
    else:
        with pytest.raises(
            DataError, match=r"a\.csv: line 1 may be a pair, or the names"
        ) as caught:
            pairs_of(name, content)
        assert "write files(train='a.csv', header=False)" in caught.value.hint
    assert pairs_of(name, content, header=False) == [("Hello", "Hallo"), ("Bye", "Tschau")]
    assert pairs_of(name, content, header=True, src=2, tgt=1) == [("Tschau", "Bye")]
    assert pairs_of(name, content, src="hello", tgt="hallo") == [("Bye", "Tschau")]
    assert pairs_of(name, content, columns=("de", "en"))[0] == ("Hallo", "Hello")


def test_columns_name_the_language_of_the_source_column() -> None:
    spec = "files(test='a.jsonl', columns=('de', 'en'))"
    Path("a.jsonl").write_bytes(as_json_lines([{"source": "Hallo", "target": "Hello"}]))
    assert list(open_split(spec, "test", "en", "de").pairs()) == [("Hello", "Hallo")]
    assert list(open_split(spec, "test", "de", "en").pairs()) == [("Hallo", "Hello")]


def test_checksum_depends_on_the_columns() -> None:
    specs: list[dict[str, Any]] = [
        {"header": True, "src": 2, "tgt": 3},
        {"header": False, "src": 2, "tgt": 3},
        {"header": True, "src": 2, "tgt": 4},
        {"header": True, "src": 2, "tgt": 4, "delimiter": ","},
    ]
    assert len({open_file("a.csv", WIDE, **options).checksum for options in specs}) == len(specs)


# --- references ---


def test_all_references_are_used_for_scores_and_as_training_pairs() -> None:
    rows = [{"en": "Hello", "de": ["Hallo", "Servus", ""]}, {"en": "Bye", "de": "Tschau"}]
    content = as_json_lines(rows)
    assert pairs_of("a.jsonl", content) == [("Hello", "Hallo"), ("Bye", "Tschau")]
    train = open_file("a.jsonl", content, split="train", hold_out=False)
    assert list(train.pairs()) == [("Hello", "Hallo"), ("Hello", "Servus"), ("Bye", "Tschau")]
    test = corpus_test_set("files(test='a.jsonl')", "en", "de")
    assert test.sources == ["Hello", "Bye"]
    assert test.references == [["Hallo", "Tschau"], ["Servus", None]]
    assert named_test_set("a.jsonl", "en", "de") == test
    table = as_parquet({"en": ["Hello", "Bye"], "de": [["Hallo", "Servus"], ["Tschau"]]})
    Path("a.parquet").write_bytes(table)
    assert named_test_set("a.parquet", "en", "de").references == test.references


def test_columns_of_a_parquet_file_may_have_the_same_name() -> None:
    columns = [["Hello", "Bye"], ["Hallo", "Tschau"], ["Servus", None]]
    table = pyarrow.Table.from_arrays([*map(pyarrow.array, columns)], ["en", "de", "de"])
    pyarrow.parquet.write_table(table, "two.parquet")
    test = named_test_set("two.parquet", "en", "de")
    assert test.references == [["Hallo", "Tschau"], ["Servus", None]]
    second = open_file("two.parquet", Path("two.parquet").read_bytes(), src=1, tgt=3)
    assert list(second.pairs()) == [("Hello", "Servus"), ("Bye", "")]


# --- folders of datasets ---


def test_a_folder_of_splits_is_a_corpus(tmp_path: Path) -> None:
    folder = tmp_path / "greetings"
    save_splits(folder, {"train": TEXT, "validation": TEXT[:7], "test": TEXT[:9]})
    spec = f"datasets(path='{folder}')"
    validate(spec)
    expected = {"train": TEXT, "valid": TEXT[:7], "test": TEXT[:9]}
    for split, pairs in expected.items():
        opened = open_split(spec, split, "en", "de")
        assert opened.name == f"greetings/{split}"
        assert list(opened.pairs()) == pairs
        assert [path.suffix for path in opened.files] == [".arrow"]
    assert next(open_split(spec, "train", "de", "en").pairs()) == TEXT[0][::-1]
    with pytest.raises(DataError, match="has splits: train, validation, test") as caught:
        open_split(f"files(train='{folder}')", "train", "en", "de")
    assert caught.value.hint.startswith(f"write datasets(path='{folder}')")


def test_a_folder_without_splits_is_training_text(tmp_path: Path) -> None:
    save_to_disk(tmp_path / "all", TEXT, num_files=3)
    spec = f"datasets(path='{tmp_path / 'all'}')"
    sizes = [len(list(open_split(spec, split, "en", "de").pairs())) for split in ("train", "test")]
    assert sizes == [180, 10]
    spec = f"files(test='{tmp_path / 'all'}', src='translation.de', tgt='translation.en')"
    found = list(open_split(spec, "test", "en", "de").pairs())
    assert sorted(found) == sorted(pair[::-1] for pair in TEXT)


def test_data_check_compares_the_splits_of_a_folder(bare: CommandLine) -> None:
    splits = {"train": TEXT, "dev": [("new words", "neue Wörter")], "test": TEXT[:9]}
    save_splits(bare.directory / "all", splits | {"extra": TEXT[:5]})
    languages = ("--src-lang", "en", "--tgt-lang", "de")
    done = bare("data", "check", "datasets(path='all')", *languages, "--json")
    report = json.loads(done.out)
    assert [(each["name"], each["pairs"]) for each in report["test_sets"]] == [
        ("all/valid", 1),
        ("all/test", 9),
    ]
    counts = {each["check"]: each["count"] for each in report["findings"]}
    assert counts["test-overlap"] == 9
    assert "not reading the split extra; to read it, pass \"files(train='all/extra')\"" in done.err
    done = bare("data", "check", "files(train='all/extra')", *languages, "--json")
    assert json.loads(done.out)["corpora"][0]["pairs"] == 5


def test_a_folder_without_training_text_names_its_splits(tmp_path: Path) -> None:
    save_splits(tmp_path / "all", {"test": TEXT, "part": TEXT})
    spec = f"datasets(path='{tmp_path / 'all'}')"
    with pytest.raises(DataError, match="has no train split, only test, part") as caught:
        open_split(spec, "train", "en", "de")
    _, _, suggested = caught.value.hint.partition("name one: ")
    assert len(list(open_split(suggested, "train", "en", "de").pairs())) == 190  # not valid


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("state.json", b"{", r"state\.json is damaged"),
        ("state.json", b"[]", r"state\.json is damaged"),
        ("state.json", b'{"_data_files": [{"filename": "../x"}]}', "names no files of its folder"),
        ("state.json", b'{"_data_files": [{"filename": "x.arrow"}]}', r"x\.arrow is missing"),
        ("data-00000-of-00001.arrow", b"", "is damaged, or has another format"),
        ("data-00000-of-00001.arrow", b"\xff" * 100, "is damaged, or has another format"),
    ],
)
def test_a_damaged_folder_is_an_error(name: str, content: bytes, message: str) -> None:
    save_to_disk(Path("own"), TEXT)
    Path("own", name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        open_split("files(test='own')", "test", "en", "de")


def test_truncated_files_are_an_error() -> None:
    save_to_disk(Path("own"), TEXT)
    file = Path("own", "data-00000-of-00001.arrow")
    file.write_bytes(file.read_bytes()[:-3000])
    with pytest.raises(DataError, match="is damaged"):
        list(open_split("files(test='own')", "test", "en", "de").pairs())
    for name in ("roles.csv.gz", "a.csv.xz", "a.csv.zst"):
        with pytest.raises(DataError, match="corrupted or truncated"):
            pairs_of(name, FILES[name]()[:-40])
    with pytest.raises(DataError, match="is damaged"):
        pairs_of("a.parquet", FILES["a.parquet"]()[:-9])
    damaged = bytearray(FILES["a.parquet"]())
    damaged[100:300] = bytes(200)
    with pytest.raises(DataError, match="is damaged"):
        pairs_of("a.parquet", bytes(damaged))


@pytest.mark.parametrize("kind", ["string", "dictionary", "list"])
def test_damaged_offsets_are_not_followed(kind: str) -> None:
    texts = pyarrow.array([f"{n}" * 40 for n in range(5)])
    columns = {
        "string": (texts, range(0, 240, 40)),
        "dictionary": (texts.dictionary_encode(), range(5)),
        "list": (pyarrow.array([[text.as_py()] for text in texts]), range(6)),
    }
    column, numbers = columns[kind]
    table = pyarrow.table({"en": ["Hello"] * 5, "de": column})
    Path("damaged").mkdir(exist_ok=True)
    state = {"_data_files": [{"filename": "own.arrow"}]}
    Path("damaged/state.json").write_text(json.dumps(state))
    file = Path("damaged/own.arrow")
    with pyarrow.ipc.new_stream(str(file), table.schema) as stream:
        stream.write_table(table)
    content = bytearray(file.read_bytes())
    start = content.index(b"".join(n.to_bytes(4, "little") for n in numbers))
    content[start + 4 : start + 8] = b"\xff\xff\xff\x7f"
    file.write_bytes(content)
    with pytest.raises(DataError, match="is damaged"):
        list(open_split("files(test='damaged')", "test", "en", "de").pairs())


# --- errors ---


def errors() -> Iterator[tuple[str, bytes, dict[str, Any], str, str]]:
    yield "a.csv", b"", {}, "a.csv is empty", "names of the columns"
    yield "a.jsonl", b"\n", {}, "a.jsonl is empty", "JSON object in each line"
    yield "a.csv", b"en\nHello\n", {}, "columns and their delimiter are unknown", "src='...'"
    two = b"a, b;c\nd, e;f\n"
    yield "a.csv", two, {"header": False}, "delimiter are unknown", "delimiter=';', header=False"
    yield "a.csv", b"en,de\nOh, yes,Ja\n", {}, "line 2: 3 columns instead of 2", "put quotes"
    yield "a.csv", b"sep=;\nen;de\nHi\n", {}, "line 3: 1 column instead of 2", "put quotes"
    yield "a.csv", b"en,de\nHi\n", {}, "line 2: 1 column instead of 2", "put quotes"
    yield "a.csv", b'en,de\na,b\n"c,d\ne,f\n', {}, "line 3: a quote is not closed", "close it"
    yield "a.csv", b'en,de\n"a" b,c\n', {}, "line 2: text after a closing quote", 'twice: ""'
    yield "a.csv", b"en,de\ra,b\r", {}, "line 1: a line ends in CR", "LF"
    huge = b'en,de\na,b\n"' + b"x" * (MAX_CELL + 1)
    yield "a.csv", huge, {}, "line 3: a cell has more than 1,000,000", "quote"
    yield "a.csv", b"en,de\n", {"delimiter": ";"}, "one column, separated by ';'", "delimiter="
    yield "a.csv", b"en,en,de\n", {}, "has 2 columns named 'en'", "src=1"
    yield "a.csv", b"english,german\n", {"src": "englsh"}, "no column 'englsh'", "'english'?"
    yield "a.csv", b"a,b\n", {"header": True}, "no column for the source (en, English,", "it has a"
    yield "a.csv", b"en,de\n", {"src": "de"}, "are both column 'de'", "it has en, de"
    yield "a.tsv", b"en\tde\n", {"src": 1, "tgt": 3}, "has no column '3'", "choose from"
    yield "a.tsv", b"Hello\n", {}, "line 1: no tab", "by tabs"
    yield "a.jsonl", b'{"en": "a", "de": "b"}\n{"en"\n', {}, "line 2: not JSON: ", "in each line"
    yield "a.json", b'[{"en": "a"}]\n', {}, "line 1: not a JSON object", "jq"
    yield "a.json", b'[\n{"en": "a"}]\n', {}, "line 1: not JSON", "jq"
    yield "a.jsonl", b'{"en": 3, "de": "b"}\n', {}, "line 1: column 'en' holds numbers", "src="
    yield (
        "a.jsonl",
        b'{"en": true, "de": ""}\n',
        {},
        "line 1: column 'en' holds true or false",
        "src=",
    )
    yield "a.jsonl", b'{"en": ["a"], "de": ""}\n', {}, "line 1: column 'en' holds lists", "src="
    yield "a.jsonl", b'{"en": "a", "de": [{}]}\n', {}, "line 1: column 'de' holds objects", "src="
    yield "a.jsonl", b'{"en": "\\ud800", "de": "b"}\n', {}, "half of a surrogate pair", ""
    yield "a.jsonl", b'{"e": "a", "de": "b"}\n', {}, "no column for the source", "it has e, de"
    deep = b'{"en": ' + b"[" * 100_000 + b"\n"
    yield "a.jsonl", deep, {}, "a.jsonl, line 1: nested too deeply", "JSON object"
    digits = b'{"en": ' + b"9" * 5000 + b', "de": "a"}\n'
    yield "a.jsonl", digits, {}, "line 1: column 'en' holds numbers", "src="
    numbers = as_parquet({"en": ["a"] * 5, "de": [1, 2, 3, 4, 5]})
    yield "a.parquet", numbers, {}, "row 1: column 'de' holds numbers", "src="
    dates = as_parquet({"en": ["a"], "de": pyarrow.array([0], pyarrow.date32())})
    yield "a.parquet", dates, {}, "'de' holds values that are not text", "src="
    yield "a.parquet", b"PAR1", {}, "a.parquet is damaged, or has another format", "again"
    yield "a.xlsx", b"PK", {}, "a.xlsx has a format that nmt does not read", "CSV (UTF-8)"


@pytest.mark.parametrize(("name", "content", "options", "message", "hint"), list(errors()))
def test_errors_name_file_place_and_remedy(
    name: str, content: bytes, options: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(NMTError) as caught:
        pairs_of(name, content, **options)
    assert message in caught.value.message
    assert name in caught.value.message
    assert hint in caught.value.hint
    words = f"{caught.value.message} {caught.value.hint}".split()
    assert not {"str", "int", "float", "bool", "dict", "NoneType"} & set(words)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("files(train='a.csv', header=1)", "header must be true or false, got 1"),
        ("files(train='a.csv', src=1.5)", "src must be text or an integer, got 1.5"),
        ("files(train=3)", "train must be text or a list of text, got 3"),
        ("files(train='a.csv', tgt=())", "tgt has no column"),
        ("files(train='a.csv', delimiter='ab')", "delimiter must be one character"),
        ("files(train='a.csv', src='a', columns=('en', 'de'))", "columns excludes src and tgt"),
        ("datasets", "has no path"),
        ("own.csv", "own.csv is a file, not a corpus"),
        ("datasets(path='x', errors='no')", "corpus 'datasets': errors must be"),
    ],
)
def test_invalid_options_are_rejected_before_reading(spec: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(spec)
    assert message in caught.value.message


def test_a_missing_folder_is_an_error() -> None:
    with pytest.raises(DataError, match="no such folder: none"):
        open_split("datasets(path='none')", "train", "en", "de")
    Path("a.csv").write_bytes(FILES["a.csv"]())
    with pytest.raises(DataError, match=r"a\.csv is not a folder of save_to_disk") as caught:
        open_split("datasets(path='a.csv')", "train", "en", "de")
    assert caught.value.hint == "for single files, write files(train='a.csv')"
    with pytest.raises(DataError, match=r"a\.csv has both languages"):
        open_split("files(train=('a.csv', 'a.csv'))", "train", "en", "de")
