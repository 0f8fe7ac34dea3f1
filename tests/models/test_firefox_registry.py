"""Download of Firefox's models from a registry on a loopback server."""

from __future__ import annotations

import errno
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commandline import CommandLine, sentences
from loopback import Loopback, loopback
from test_firefox import MODEL, random_student

from nmt.core.compression import zstd
from nmt.data import download
from nmt.export import firefox
from nmt.models import marian_binary
from nmt.models.discovery import find_model
from nmt.models.importers.firefox_registry import COLLECTION, ModelName
from nmt.search.shortlist import Shortlist

RECORDS = f"/v1/{COLLECTION}"
NUM_TRANSLATIONS = 10
"""Of all tokens, in the shortlist."""
Record = dict[str, Any]


@pytest.fixture(scope="module")
def student(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a random student by type."""
    loaded = random_student(tmp_path_factory.mktemp("student"))
    model: Any = loaded.model
    ranges = firefox.calibrate(model, loaded.tokenizer, ["the small dog sees the old tree."])
    ids = np.arange(len(loaded.tokenizer))
    weights = marian_binary.write(firefox._items(model, ranges, ids))
    translations = np.arange(20, 20 + NUM_TRANSLATIONS)
    shortlist = Shortlist.of(
        np.full(NUM_TRANSLATIONS, 9), translations, len(loaded.tokenizer), 4, 50
    )
    return {"model": weights, "vocab": loaded.tokenizer.model, "lex": shortlist.write()}


@functools.cache
def compress(content: bytes) -> bytes:
    return zstd.compress(content)


class Registry:
    """A settings service with records of models and their files."""

    def __init__(self, server: Loopback, files: dict[str, bytes]) -> None:
        self.server = server
        self.files = files
        self.records: list[Record] = []
        attachments = {"base_url": f"{server.url}/files/"}
        self.set_root({"capabilities": {"attachments": attachments}})

    def set_root(self, content: object) -> None:
        self.server.serve("/v1/", json.dumps(content).encode())

    def add(self, pair: str, architecture: str, version: str) -> list[Record]:
        """Add a model, and return its records, which a test may change before `publish`."""
        source, target = pair.split("-", 1)
        names = {"model": MODEL, "vocab": "vocab.ende.spm", "lex": "lex.50.50.ende.s2t.bin"}
        added = []
        for kind, content in self.files.items():
            compressed = compress(content)
            location = f"main/{kind}-{pair}.zst"
            self.server.serve(f"/files/{location}", compressed)
            attachment = {
                "filename": f"{names[kind]}.zst",
                "hash": hashlib.sha256(compressed).hexdigest(),
                "location": location,
                "size": len(compressed),
            }
            record = {
                "architecture": architecture,
                "attachment": attachment,
                "decompressedHash": hashlib.sha256(content).hexdigest(),
                "fileType": kind,
                "sourceLanguage": source,
                "targetLanguage": target,
                "version": version,
            }
            added.append(record)
        self.records += added
        return added

    def publish(self) -> None:
        self.server.serve(RECORDS, json.dumps({"data": self.records}).encode())

    def downloads(self) -> list[str]:
        """The paths of the requests of files."""
        return [path for path, _ in self.server.requests if path.startswith("/files/")]


@pytest.fixture
def registry(student: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    monkeypatch.setattr(download, "RETRY_DELAY", 0.01)
    with loopback() as server:
        yield Registry(server, student)


@pytest.fixture
def nmt(registry: Registry, tmp_path: Path) -> CommandLine:
    """A command line with an empty cache."""
    environment = {
        "NMT_FIREFOX_SERVER": registry.server.url,
        "NMT_MIRROR": "",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    return CommandLine(tmp_path, environment)


def unfinished(nmt: CommandLine) -> list[Path]:
    """Files that failed imports have left."""
    runs = [path for path in nmt.directory.glob("runs/*") if path.suffix != ".lock"]
    return [*runs, *nmt.directory.rglob("*.bin.zst"), *nmt.directory.rglob("*.part")]


@pytest.mark.slow
def test_a_model_is_downloaded_on_first_use(nmt: CommandLine, registry: Registry) -> None:
    registry.add("en-de", "base-memory", "1.0")
    registry.add("de-en", "base-memory", "3.0")
    registry.publish()
    translate = ("translate", "--model", "firefox:en-de", "the dog")
    first = nmt.run(*translate)
    assert re.search(
        r"downloading firefox:en-de 1\.0, architecture base-memory, license MPL-2\.0 \(models of"
        r" Mozilla, https://github\.com/mozilla/translations\): model\.ende\S* \d\.\d MB,"
        r" vocab\.ende\.spm\.zst 0\.\d MB, lex\S* 0\.0 MB",
        first.err,
    )
    run = nmt.directory / "runs/firefox-en-de"
    record = json.loads((run / "data.json").read_text())["imported"]
    assert (record["source"], record["license"]) == ("firefox:en-de", "MPL-2.0")
    assert (record["architecture"], record["revision"]) == ("base-memory", "1.0")
    card = (run / "README.md").read_text()
    assert "firefox:en-de, revision 1.0, license MPL-2.0" in " ".join(card.split())
    shortlist = Shortlist.find(run, find_model(run).tokenizer)
    assert shortlist is not None
    assert len(shortlist.translations_N) == NUM_TRANSLATIONS
    assert "en-de" in nmt.run("models").out
    # The second use needs only the run, a second import only the cache.
    offline = CommandLine(
        nmt.directory, nmt.environment | {"NMT_FIREFOX_SERVER": "http://127.0.0.1:1"}
    )
    assert offline.run(*translate).out == first.out
    count = len(registry.downloads())
    registry.server.resources.clear()
    again = nmt.run("import", "firefox:en-de", "--run", "again")
    assert "using the models in the cache" in again.err
    assert len(registry.downloads()) == count == 3
    offline("import", "firefox:en-de", "--run", "new").assert_fails(1, "cannot download", "hint: ")
    nmt("import", "firefox:en-de").assert_fails(2, "already exists")


def chosen(nmt: CommandLine, name: str) -> str:
    """Return which model the registry chooses; its files are missing, so nothing is imported."""
    done = nmt("import", name)
    done.assert_fails(1, "404")
    match = re.search(
        r"downloading firefox:\S+(?: version=\S+)? (\S+), architecture (\S+),", done.err
    )
    assert match, done.err
    return f"{match[2]} {match[1]}"


def test_the_best_model_is_chosen(nmt: CommandLine, registry: Registry) -> None:
    def expect(name: str, expected: str) -> None:
        registry.publish()
        for path in [path for path in registry.server.resources if "/files/" in path]:
            del registry.server.resources[path]
        assert chosen(nmt, name) == expected

    registry.add("en-de", "base-memory", "3.0a1")
    expect("firefox:en-de", "base-memory 3.0a1")
    registry.add("en-de", "tiny", "2.9")
    expect("firefox:en-de", "tiny 2.9")
    registry.add("en-de", "tiny", "2.10")
    expect("firefox:en-de", "tiny 2.10")
    registry.add("en-de", "base", "1.1")
    expect("firefox:en-de", "base 1.1")
    registry.add("en-de", "base-memory", "1.0")
    expect("firefox:en-de", "base-memory 1.0")
    expect("firefox:en-de(architecture='tiny')", "tiny 2.10")
    expect("firefox:en-de(version='2.9')", "tiny 2.9")
    _, vocabulary, _ = registry.add("en-de", "base-memory", "2.0")
    registry.records.remove(vocabulary)
    expect("firefox:en-de", "base-memory 1.0")
    registry.add("en-zh-Hans", "base", "1.0")
    expect("firefox:en-zh-Hans", "base 1.0")
    nmt("import", "firefox:en-de(architecture='huge')").assert_fails(
        1, "there is no model firefox:en-de(architecture='huge')", "version='2.10'"
    )


def test_unknown_pairs(nmt: CommandLine, registry: Registry) -> None:
    for pair in ("fr-en", "en-de", "en-da"):
        registry.add(pair, "tiny", "1.0")
    registry.publish()
    nmt("translate", "--model", "firefox:fr-de", "a").assert_fails(
        1,
        "there is no model firefox:fr-de",
        "nmt translate --model firefox:fr-en --then firefox:en-de",
    )
    nmt("import", "firefox:de-en").assert_fails(1, "no model firefox:de-en", "from: en-de")
    nmt("import", "firefox:enda").assert_fails(1, "did you mean 'en-da'?")
    assert not registry.downloads()


@pytest.mark.slow
def test_pivot_translation(nmt: CommandLine, registry: Registry) -> None:
    registry.add("fr-en", "tiny", "1.0")
    registry.add("en-de", "tiny", "1.0")
    registry.publish()
    text = "le chien voit <b>7</b> arbres.\n\nhttps://example.com/a"
    lines = text.encode()
    pivot = ("translate", "--model", "firefox:fr-en", "--then", "firefox:en-de")
    joined = nmt.run(*pivot, stdin=lines)
    middle = nmt.run("translate", "--model", "firefox:fr-en", stdin=lines).out
    assert middle != text
    expected = nmt.run("translate", "--model", "firefox:en-de", stdin=middle.encode()).out
    assert joined.out == expected
    n_best = nmt.run(*pivot, "--top-beams", "2", "--no-guard", "le chien").out
    assert len(n_best.splitlines()) == 2
    nmt(*pivot, "--to", "fr", "a").assert_fails(2, "firefox:en-de translates into 'de', not 'fr'")
    nmt(*pivot[:3], "--then", "firefox:fr-en", "a").assert_fails(
        2, "--model translates into 'en', and --then from 'fr'", "hint: choose a model from 'en'"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--then", "b", "text"], "--then needs --model"),
        (["--model", "a", "--then", "b", "--show-scores", "text"], "support --show-scores"),
        (["--model", "a", "--then", "b", "--format", "jsonl", "text"], "support --format"),
        (["--model", "a", "--then", "b", "--document", "html"], "does not support documents"),
    ],
)
def test_options_without_pivot_translation(
    nmt: CommandLine, arguments: list[str], message: str
) -> None:
    nmt("translate", *arguments).assert_fails(2, message, "hint: ")


@pytest.mark.parametrize(
    "name",
    [
        "firefox:",
        "firefox:en-de/x",
        "firefox:en-de(architecture='../../x')",
        "firefox:en-de(architecture=3)",
        "firefox:en-de(size=3)",
        "firefox:../x",
        "firefox:en-de(",
    ],
)
def test_wrong_names(nmt: CommandLine, registry: Registry, name: str) -> None:
    nmt("import", name).assert_fails(2, "hint: ")
    assert not registry.server.requests


def test_revision_is_for_the_hub(nmt: CommandLine) -> None:
    nmt("import", "firefox:en-de", "--revision", "1.0").assert_fails(2, "--revision")


Change = Callable[[Registry, list[Record]], object]


def change_attachment(index: int = 0, **fields: object) -> Change:
    return lambda registry, records: records[index]["attachment"].update(fields)


def remove(index: int) -> Change:
    return lambda registry, records: registry.records.remove(records[index])


def redirect(address: str) -> Change:
    def change(registry: Registry, records: list[Record]) -> None:
        path = f"/files/{records[0]['attachment']['location']}"
        registry.server.serve(path, b"", redirect=address)

    return change


def replace_content(edit: Callable[[bytes], bytes], **fields: bool) -> Change:
    """Serve another file in place of the model."""

    def change(registry: Registry, records: list[Record]) -> None:
        path = f"/files/{records[0]['attachment']['location']}"
        registry.server.serve(path, edit(registry.server.resources[path].content), **fields)

    return change


def publish_content(content: bytes) -> Change:
    """Publish another compressed file with its own checksum."""

    def change(registry: Registry, records: list[Record]) -> None:
        attachment = records[0]["attachment"]
        registry.server.serve(f"/files/{attachment['location']}", content)
        attachment.update(hash=hashlib.sha256(content).hexdigest(), size=len(content))

    return change


FAILURES: dict[str, tuple[Change, str]] = {
    "path in location": (change_attachment(location="a/../../secret"), "invalid record"),
    "absolute location": (change_attachment(location="/etc/passwd"), "invalid record"),
    "address as location": (change_attachment(location="http://evil.org/a"), "invalid record"),
    "path in filename": (change_attachment(filename="../../model.bin"), "invalid record"),
    "empty by its record": (change_attachment(size=0), "invalid record of the type model"),
    "negative size": (change_attachment(1, size=-1), "invalid record of the type vocab"),
    "size as text": (change_attachment(2, size="17"), "type lex: attachment.size has the wrong"),
    "no attachment": (
        lambda registry, records: records[0].pop("attachment"),
        "type model: attachment is missing",
    ),
    "no checksum": (change_attachment(hash="0"), "invalid record"),
    "wrong checksum": (change_attachment(hash="0" * 64), "the SHA-256 is"),
    "huge by its record": (change_attachment(size=2**31 - 1), "more than 1024 MB"),
    "wrong size": (change_attachment(size=2**22), "bytes were received instead of"),
    "too large": (change_attachment(size=10), "it has more than 10 bytes"),
    "no model": (remove(0), "no file of the type model"),
    "no vocabulary": (remove(1), "no file of the type vocab"),
    "missing file": (change_attachment(location="none"), "404"),
    "damaged": (replace_content(lambda content: content[:-1] + b"?"), "the SHA-256 is"),
    "truncated": (
        replace_content(lambda content: content[:99], length=False),
        "99 bytes were received",
    ),
    "not zstandard": (publish_content(b"no archive"), "is not the expected file"),
    "truncated archive": (publish_content(zstd.compress(b"a" * 999)[:-5]), "is not the expected"),
    "wrong content": (publish_content(zstd.compress(b"a")), "the SHA-256 of its content is"),
    "redirect to http": (redirect("http://example.com/model"), "is not an https address"),
    "redirect to a file": (redirect("file:///etc/passwd"), "is not an https address"),
    "redirect to ftp": (redirect("ftp://example.com/model"), "is not an https address"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_wrong_files_are_one_error(nmt: CommandLine, registry: Registry, failure: str) -> None:
    change, message = FAILURES[failure]
    change(registry, registry.add("en-de", "tiny", "1.0"))
    registry.publish()
    nmt("import", "firefox:en-de").assert_fails(1, message, "hint: ")
    assert not unfinished(nmt)


@pytest.mark.parametrize(
    "content",
    [
        b"<html>Sign in</html>",
        b"[]",
        b"{}",
        b'{"data": 3}',
        b'{"data": [3]}',
        b"[" * 9999,
    ],
)
def test_other_servers_are_one_error(nmt: CommandLine, registry: Registry, content: bytes) -> None:
    registry.server.serve(RECORDS, content)
    message = "does not answer like the settings service"
    nmt("import", "firefox:en-de").assert_fails(1, message, "hint: ")
    registry.publish()
    registry.server.serve("/v1/", content)
    nmt("import", "firefox:en-de").assert_fails(1, message, "hint: ")


def test_records_of_other_kinds_are_ignored(nmt: CommandLine, registry: Registry) -> None:
    registry.add("en-da", "tiny", "1.0")
    registry.records += [{"fileType": "model"}, {"sourceLanguage": 3}]
    registry.publish()
    nmt("import", "firefox:enda").assert_fails(1, "did you mean 'en-da'?")


@pytest.mark.parametrize(("name", "value"), [("size", 0), ("size", 2**31 - 1), ("hash", "0")])
def test_an_invalid_record_does_not_hide_another_model(
    nmt: CommandLine, registry: Registry, name: str, value: object
) -> None:
    better, *_ = registry.add("en-de", "base-memory", "2.0")
    better["attachment"][name] = value
    registry.add("en-de", "tiny", "1.0")
    registry.publish()
    registry.server.resources = {
        path: resource
        for path, resource in registry.server.resources.items()
        if not path.startswith("/files/")
    }
    assert chosen(nmt, "firefox:en-de") == "tiny 1.0"
    nmt("import", "firefox:en-de(version='2.0')").assert_fails(
        1, "firefox:en-de(version='2.0') 2.0 has an invalid record of the type model"
    )


@pytest.mark.parametrize("failure", ["wrong size", "too large", "wrong checksum"])
def test_the_hint_for_a_wrong_file_is_not_to_try_again(
    nmt: CommandLine, registry: Registry, failure: str
) -> None:
    change, _ = FAILURES[failure]
    change(registry, registry.add("en-de", "tiny", "1.0"))
    registry.publish()
    done = nmt("import", "firefox:en-de")
    done.assert_fails(1, "hint: the registry's record does not fit the file; choose another model")
    assert "re-run" not in done.err


def test_a_registry_without_models(nmt: CommandLine, registry: Registry) -> None:
    for records in ([], [{"fileType": "model"}]):
        registry.records = records
        registry.publish()
        nmt("import", "firefox:en-de").assert_fails(
            1,
            "there is no model firefox:en-de",
            "hint: the registry has no models; check NMT_FIREFOX_SERVER",
        )


@pytest.mark.parametrize("address", ["file:///etc", "ftp://example.com/files", "/etc"])
def test_an_address_of_files_with_another_scheme_is_shown_whole(
    nmt: CommandLine, registry: Registry, address: str
) -> None:
    registry.add("en-de", "tiny", "1.0")
    registry.publish()
    registry.set_root({"capabilities": {"attachments": {"base_url": address}}})
    nmt("import", "firefox:en-de").assert_fails(
        1, f"must have an https address, got '{address}'", "hint: check NMT_FIREFOX_SERVER"
    )


def test_addresses_must_be_https(nmt: CommandLine, registry: Registry) -> None:
    registry.add("en-de", "tiny", "1.0")
    registry.publish()
    registry.set_root({"capabilities": {"attachments": {"base_url": "http://example.com"}}})
    nmt("import", "firefox:en-de").assert_fails(1, "http://example.com/main/model-en-de.zst is not")
    for server, code in (("http://example.com", 1), ("ftp://a", 2), ("/etc", 2)):
        other = CommandLine(nmt.directory, nmt.environment | {"NMT_FIREFOX_SERVER": server})
        other("import", "firefox:en-de").assert_fails(code, "an https address")


def test_a_cache_that_cannot_be_written(
    nmt: CommandLine, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    (nmt.directory / "file").touch()
    other = CommandLine(nmt.directory, nmt.environment | {"XDG_CACHE_HOME": "file"})
    other("import", "firefox:en-de").assert_fails(1, "hint: a parent of this path is a file")

    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(download._Download, "run", fail)
    nmt("import", "firefox:en-de").assert_fails(
        1, "No space left", "hint: free some disk space; XDG_CACHE_HOME sets the directory"
    )


@pytest.mark.slow
def test_the_script_scores_all_models(nmt: CommandLine, registry: Registry) -> None:
    registry.add("en-de", "tiny", "1.0")
    registry.add("en-de", "base-memory", "2.0")
    registry.publish()
    lines = zip(*sentences(5), strict=True)
    table = "".join(f"{source}\t{target}\n" for source, target in lines)
    (nmt.directory / "own.tsv").write_text(f"en\tde\n{table}")
    script = Path(__file__).parents[2] / "scripts/firefox_scores.py"
    done = nmt.script(script, "--test", "own.tsv")
    assert done.code == 0, done.err
    rows = [line.split("|")[1:3] for line in done.out.splitlines()[2:]]
    assert rows == [[" en-de base-memory ", " 2.0 "], [" en-de tiny ", " 1.0 "]]
    registry.records.clear()
    registry.publish()
    none = nmt.script(script, "--test", "own.tsv")
    assert none.code == 1
    assert "no models between English and German" in none.err


def test_names_have_one_form() -> None:
    name = ModelName.parse('firefox:en-de( version = "1.0")')
    assert str(name) == "firefox:en-de(version='1.0')"
    assert name.run_name == "firefox-en-de-1.0"
    assert ModelName.parse(str(name)) == name
