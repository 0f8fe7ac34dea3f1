from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from commandline import CommandLine
from loopback import loopback

from nmt.core.registry import options_of
from nmt.data import download
from nmt.data.clean import CLEANERS
from nmt.data.pairs import read_lines
from nmt.data.sources import SOURCES


@pytest.fixture(autouse=True)
def retry_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "RETRY_DELAY", 0.01)


@pytest.fixture
def nmt(tmp_path: Path) -> CommandLine:
    return CommandLine(
        tmp_path, {"NMT_DATA": str(tmp_path / "data"), "NMT_MIRROR": "http://127.0.0.1:1"}
    )


def write_corpus(directory: Path) -> Path:
    path = directory / "mine"
    path.mkdir()
    (path / "train.en").write_text("one\ntwo\n")
    (path / "train.de").write_text("eins\nzwei\n")
    return path


def test_list_shows_every_corpus_with_license_and_source(nmt: CommandLine, tmp_path: Path) -> None:
    done = nmt.run("data", "list")
    assert done.err == ""
    rows = done.out.splitlines()
    assert rows[0].split() == ["NAME", "PAIRS", "DOWNLOAD", "INSTALLED", "LICENSE", "SOURCE"]
    assert [row.split()[0] for row in rows[1:]] == list(SOURCES)
    columns = [rows[0].index(title) for title in ("INSTALLED", "LICENSE", "SOURCE")]
    assert all(row[column - 1] == " " and row[column] != " " for row in rows for column in columns)
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_list_json_shows_installed_corpora(nmt: CommandLine, tmp_path: Path) -> None:
    def ready() -> dict[str, bool]:
        return {
            row["name"]: row["installed"] for row in json.loads(nmt("data", "list", "--json").out)
        }

    assert list(ready()) == list(SOURCES)
    assert not ready()["multi30k"]
    nmt.run("data", "download", "multi30k", "--from", str(write_corpus(tmp_path)))
    assert ready()["multi30k"]
    assert not ready()["tatoeba"]


def test_download_from_directory_prints_directory(nmt: CommandLine, tmp_path: Path) -> None:
    source = str(write_corpus(tmp_path))
    first = nmt.process("data", "download", "multi30k", "--from", source)
    assert first.out == f"{tmp_path / 'data' / 'corpora' / 'multi30k'}\n"
    stored = tmp_path / "data" / "corpora" / "multi30k" / "train.de.zst"
    assert list(read_lines(stored)) == ["eins", "zwei"]
    second = nmt.run("data", "download", "multi30k", "--from", source)
    assert second.out == first.out
    assert "already installed" in second.err
    (tmp_path / "mine" / "train.de").write_text("1\n2\n")
    nmt("data", "download", "multi30k", "--from", "none").assert_fails(
        1, "no such file or directory: none", "specify the archive or directory"
    )
    nmt.run("data", "download", "multi30k", "--from", source, "--force")
    assert list(read_lines(stored)) == ["1", "2"]


@pytest.mark.slow
def test_download_prints_only_the_directory_on_stdout(nmt: CommandLine, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("deu.txt", "".join(f"a word {n}\tein Wort {n}\tme\n" for n in range(100)))
    with loopback() as server:
        server.serve("/www.manythings.org/anki/deu-eng.zip", buffer.getvalue(), faults=[503])
        done = replace(nmt, environment=nmt.environment | {"NMT_MIRROR": server.url}).process(
            "data", "download", "tatoeba"
        )
        assert done.check().out == f"{tmp_path / 'data' / 'corpora' / 'tatoeba'}\n"
        assert "CC BY" in done.err
        assert "503" in done.err


@pytest.mark.parametrize(
    ("arguments", "code", "message", "hint"),
    [
        (["download", "tatoeb"], 2, "unknown corpus 'tatoeb'", "did you mean 'tatoeba'?"),
        (
            ["download", "tatoeba", "--encoding-errors", "ignore"],
            2,
            "--encoding-errors must be strict or replace",
            "",
        ),
        (
            ["download", "tatoeba"],
            1,
            "cannot download http://127.0.0.1:1/",
            "nmt data download tatoeba --from PATH",
        ),
        (
            ["download", "tatoeba", "--from", "none"],
            1,
            "no such file or directory: none",
            "specify the archive",
        ),
        (
            ["download", "phrasebook", "--from", "none"],
            2,
            "does not need a download",
            "leave out --from",
        ),
        (["download", "opus"], 1, "cannot download", "nmt data download \"opus(corpus='Tatoeba'"),
    ],
)
def test_errors_are_one_line_and_a_hint(
    arguments: list[str], code: int, message: str, hint: str, nmt: CommandLine
) -> None:
    nmt("data", *arguments).assert_fails(code, message, hint)


def test_encoding_errors_replace(nmt: CommandLine, tmp_path: Path) -> None:
    source = write_corpus(tmp_path)
    (source / "train.de").write_bytes(b"sch\xf6n\nzwei\n")
    command = ("data", "download", "multi30k", "--from", source)
    nmt(*command).assert_fails(1, "line 1, byte 4", "--encoding-errors replace")
    nmt.run(*command, "--encoding-errors", "replace")
    stored = tmp_path / "data" / "corpora" / "multi30k" / "train.de.zst"
    assert list(read_lines(stored)) == ["sch\ufffdn", "zwei"]


def test_full_disk_keeps_only_the_download(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        words = "and so on " * 100
        rows = [f"a word {n} {words}\tein Wort {n} {words}\tme\n" for n in range(2000)]
        file.writestr("deu.txt", "".join(rows))
    max_bytes = len(buffer.getvalue()) + 1000  # enough for the archive, but not for valid.en
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({max_bytes}, {max_bytes}));"
        " import sys; sys.argv = ['nmt', 'data', 'download', 'tatoeba']; from nmt.cli import main;"
        " main()"
    )
    with loopback() as server:
        server.serve("/www.manythings.org/anki/deu-eng.zip", buffer.getvalue())
        environment = os.environ | {
            "NMT_DATA": str(tmp_path),
            "NMT_MIRROR": server.url,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        full = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert full.returncode == 1
        assert "nmt: error: cannot install tatoeba" in full.stderr
        assert "File too large" in full.stderr
        assert "Traceback" not in full.stderr
        assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["deu-eng.zip"]
        assert not list((tmp_path / "corpora").iterdir())


@pytest.mark.parametrize("name", ["phrasebook", "files"])
def test_download_of_local_corpus_is_unnecessary(name: str, nmt: CommandLine) -> None:
    assert "does not need a download" in nmt.run("data", "download", name).err


@pytest.mark.parametrize("family", [SOURCES, CLEANERS])
def test_documentation_lists_all_corpora_and_cleaning_steps(family: dict[str, object]) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    for name, function in family.items():
        assert f"`{name}" in page, name
        assert all(f"{option}=" in page for option in options_of(function)), name


# --- tables ---

PAIRS = [(f"the dog number {n} ran, too", f"der Hund Nummer {n} lief, auch") for n in range(300)]


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """A directory with a CSV file of a German spreadsheet, and others."""
    directory = tmp_path_factory.mktemp("tables")
    rows = [f"{n};{de};{en}\r\n" for n, (en, de) in enumerate(PAIRS)]
    (directory / "own.csv").write_text("".join(["id;de;en\r\n", *rows]), encoding="utf-8-sig")
    names = "".join(["a;b;c\n", *rows])
    (directory / "names (1).csv").write_text(names, encoding="utf-8")
    return CommandLine(directory, {"NMT_DATA": str(directory / "data")})


OWN = "files(train='own.csv',src='en',tgt='de')"
LANGUAGES = ("--src-lang", "en", "--tgt-lang", "de")


@pytest.mark.parametrize("arguments", [("own.csv", *LANGUAGES), (OWN,)])
def test_data_check_reads_tables(tables: CommandLine, arguments: tuple[str, ...]) -> None:
    done = tables("data", "check", *arguments, "--fix", "fixed", "--json")
    report = json.loads(done.out)
    assert report["corpora"][0]["pairs"] == 300
    assert next(read_lines(tables.directory / "fixed.en")) == PAIRS[0][0]
    assert next(read_lines(tables.directory / "fixed.de")) == PAIRS[0][1]


def test_a_table_is_a_test_set_of_data_check(tables: CommandLine) -> None:
    done = tables("data", "check", "own.csv", *LANGUAGES, "--test", "own.csv", "--json")
    found = {each["check"]: each["count"] for each in json.loads(done.out)["findings"]}
    assert found["test-overlap"] == 300


def test_data_check_compares_with_the_test_set_of_a_spec(tables: CommandLine) -> None:
    spec = OWN.replace(")", ", test='own.csv')")
    report = json.loads(tables("data", "check", spec, "--json").out)
    assert [each["pairs"] for each in report["test_sets"]] == [300]
    report = json.loads(tables("data", "check", OWN, "--json").out)
    assert report["test_sets"] == []


def test_data_check_compares_with_all_references_of_held_out_data(tables: CommandLine) -> None:
    references = ["Eine Übersetzung, die niemand kennt.", PAIRS[0][1]]
    row = {"en": "A sentence that is new.", "de": references}
    (tables.directory / "held.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    spec = OWN.replace(")", ", test='held.jsonl')")
    report = json.loads(tables("data", "check", spec, "--json").out)
    found = {each["check"]: each["count"] for each in report["findings"]}
    assert found["test-overlap"] == 1
    config = {"data": {"src": "en", "tgt": "de", "train": [spec]}}
    (tables.directory / "held.yaml").write_text(json.dumps(config), encoding="utf-8")
    with_config = json.loads(tables("data", "check", "--config", "held.yaml", "--json").out)
    names = [each["name"] for each in with_config["test_sets"]]
    assert names.count("held.jsonl/test") == len(references)


def test_an_archive_is_read_like_its_table(tables: CommandLine) -> None:
    with zipfile.ZipFile(tables.directory / "own.zip", "w") as archive:
        archive.write(tables.directory / "own.csv", "own.csv")
    done = tables("data", "check", "own.zip", *LANGUAGES, "--test", "own.zip", "--json")
    report = json.loads(done.out)
    assert [each["pairs"] for each in report["corpora"] + report["test_sets"]] == [300, 300]
    tables("data", "check", "own.zip").assert_fails(2, "languages to read from own.zip are unknown")
    tables("data", "check", "own.zip", "own.csv").assert_fails(2, "own.zip has both languages")
    two = "files(train=('own.zip', 'own.csv'))"
    tables("data", "check", two, *LANGUAGES).assert_fails(1, "own.zip has both languages")
    prepare = ("data", "prepare", "--set", "data.train=own.zip")
    tables(*prepare).assert_fails(2, "own.zip is a file, not a corpus")


def test_files_of_test_sets_and_specs_are_not_overwritten(bare: CommandLine) -> None:
    directory = bare.directory
    (directory / "own.csv").write_text("en,de\nthe dog,der Hund\n")
    (directory / "held.en").write_text("the cat\n")
    (directory / "held.de").write_text("die Katze\n")
    before = {path: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    check = ("data", "check", "own.csv", *LANGUAGES)
    held = "files(test='held')"
    tokenizer = ("tokenizer", "train", "files(train='held')", *LANGUAGES, "--vocab-size", "300")
    for arguments in (
        (*check, "--test", held, "--fix", "held"),
        (*check, "--test", held, "--html", "held.de"),
        (*tokenizer, "--output", "held.en"),
    ):
        bare(*arguments).assert_fails(2, "would be overwritten: it is also an input")
    assert {path: path.read_bytes() for path in before} == before


def test_encoding_errors_of_a_test_set(bare: CommandLine) -> None:
    (bare.directory / "own.csv").write_text("en,de\nthe dog,der Hund\n")
    (bare.directory / "test.csv").write_bytes("en,de\nthe door,die Tür\n".encode("latin-1"))
    for test in ("test.csv", "files(test='test.csv')"):
        check = ("data", "check", "own.csv", *LANGUAGES, "--test", test)
        bare(*check).assert_fails(1, "test.csv, line 2, byte")
        done = bare.run(*check, "--encoding-errors", "replace", "--json")
        assert json.loads(done.out)["test_sets"][0]["pairs"] == 1


@pytest.mark.slow
def test_filter_and_tokenizer_read_tables(tables: CommandLine) -> None:
    done = tables.run("data", "filter", "own.csv", *LANGUAGES, "-o", "kept", "--keep", "1")
    assert json.loads(done.out)["pairs"] == 300
    assert set(read_lines(tables.directory / "kept.de")) == {de for _, de in PAIRS}
    tables.run("tokenizer", "train", OWN, "--vocab-size", "300", "-o", "spm.model")
    pieces = tables.run("tokenizer", "encode", "spm.model", "der Hund;").out.split()
    assert pieces[-1] == "<0x3B>"  # the delimiter is not in the text


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ("data check own.csv", 1, "own.csv: line 1 may be a pair, or the names"),
        ("data check own.csv own.csv", 2, "own.csv has both languages"),
        ("data check lost.csv", 1, "no such file: lost.csv"),
        ("data filter text.en -o out", 1, "no such file: text.en"),
        ("data check files(train='own.csv',src='eng')", 1, "own.csv has no column 'eng'"),
        ("data check files(train='own')", 2, "languages to read from files(train='own') are"),
        ("data check tatoeba(weight=2)", 2, "the languages to read from tatoeba(weight=2) are"),
        ("data check files(train='x'", 2, "cannot read 'files(train='x''"),
        ("data check files('own.csv')", 2, "cannot read 'files('own.csv')'"),
        (f"data check {OWN[:-1]},test='lost.csv')", 1, "no such file: lost.csv"),
        (f"data check {OWN[:-1]},test='lost')", 1, "no such file: lost.en"),
        ("data check files(train='own.csv',test='lost')", 2, "the languages to read from"),
        (f"data check {OWN[:-1]},tests='own.csv')", 2, "corpus 'files' has no option 'tests'"),
        (f"train --run new --set data.train={OWN[:-1]},test='no.csv')", 1, "no such file: no.csv"),
        ("tokenizer train own.csv", 1, "own.csv: line 1 may be a pair, or the names"),
    ],
)
def test_errors_of_tables_are_one_line(
    tables: CommandLine, arguments: str, code: int, message: str
) -> None:
    tables(*arguments.split()).assert_fails(code, message)


def test_the_hint_for_unknown_columns_can_be_followed(tables: CommandLine) -> None:
    name = "names (1).csv"
    failed = tables("data", "check", name, *LANGUAGES)
    failed.assert_fails(1, "names (1).csv: line 1 may be a pair, or the names of columns")
    assert f"files(train='{name}', header=False)" in failed.err
    spec = f"files(train='{name}', header=True, src='c', tgt=2)"
    report = json.loads(tables("data", "check", spec, "--json").out)
    assert report["corpora"][0]["pairs"] == 300


@pytest.mark.parametrize(
    "head", ["en,de", "English,German", '"Englisch";"Deutsch"', "deutsch\tenglisch"]
)
def test_check_recognizes_languages_in_the_head_of_a_table(bare: CommandLine, head: str) -> None:
    delimiter = next(character for character in ",;\t" if character in head)
    rows = [head, *(f"the dog {name}{delimiter}der Hund {name}" for name in ("Ada", "Bert"))]
    path = bare.directory / ("pairs.tsv" if delimiter == "\t" else "pairs.csv")
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    done = bare("data", "check", path.name, "--ignore", "wrong-language")
    assert done.out.startswith(f"2 pairs in {path.name}\n")
    assert "unknown" not in done.err
