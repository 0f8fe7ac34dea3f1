"""Download of Firefox's models from Mozilla's registry: a collection of Firefox's settings service,
with a record for each file of a model.

`firefox:en-de` names the best model of a pair of languages. `firefox:en-de(architecture='tiny')`
and `firefox:en-de(version='1.0')` choose another one. `$NMT_FIREFOX_SERVER` sets another server.
Files and records stay in the cache of nmt, so a later import needs no network.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from nmt.core import untrusted_files
from nmt.core.compression import zstd
from nmt.core.console import log
from nmt.core.errors import ConfigError, DownloadError, UsageError, first_line, suggest
from nmt.core.paths import FIREFOX, cache_dir, locked
from nmt.core.registry import format_spec, parse, resolve
from nmt.core.untrusted_files import Size
from nmt.data import download

if TYPE_CHECKING:  # finding an imported run does not require PyTorch
    from nmt.models.importers.common import ImportedModel

SERVER = "https://firefox.settings.services.mozilla.com"
COLLECTION = "buckets/main/collections/translations-models-v2/records"
LICENSE = "MPL-2.0"
PAGE = "https://github.com/mozilla/translations"
ARCHITECTURES = ("base-memory", "base", "tiny")
"""Architectures in the order of preference."""
FILES = {
    "model": "model.{pair}.bin.zst",
    "vocab": "vocab.{pair}.spm.zst",
    "srcvocab": "srcvocab.{pair}.spm.zst",
    "trgvocab": "trgvocab.{pair}.spm.zst",
    "lex": "lex.{pair}.s2t.bin.zst",
}
"""Types of files, with the names by which `nmt.models.importers.firefox` finds them."""
MAX_BYTES = 1 << 30
"""Maximum size of a file, compressed or not."""
MAX_DOCUMENT_BYTES = 8 << 20
"""Maximum size of the documents of the server; a thousand records have 1 MB."""
CHUNK = 1 << 20
LOCAL_IMPORT = "import a local directory"
OTHER_MODEL = "choose another model"
CHECK_SERVER = "check NMT_FIREFOX_SERVER"
_PART = re.compile(r"\w[\w.+-]*", re.ASCII)
_CHECKSUM = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The options of a name; empty: any."""

    architecture: str = ""
    version: str = ""


@dataclass(frozen=True)
class ModelName:
    """The name of a model, `firefox:en-de(architecture='tiny')`."""

    pair: str
    choice: Choice = field(default_factory=Choice)

    @classmethod
    def parse(cls, name: str) -> ModelName:
        """Parse a name.

        Raises:
            ConfigError: it is not a pair of languages with options.
        """
        example = f"for example {FIREFOX}en-de or {FIREFOX}en-de(architecture='tiny')"
        spec = name.removeprefix(FIREFOX)
        try:
            pair, options = parse(spec)
        except ConfigError:
            raise ConfigError(f"cannot read '{name}'", example) from None
        choice = resolve("model", {pair: Choice}, spec)()
        for value in options.values():
            if not _PART.fullmatch(value):
                raise ConfigError(f"invalid value '{value}' in '{name}'", example)
        return cls(pair, choice)

    @property
    def options(self) -> dict[str, str]:
        """The options that are not empty."""
        return {name: value for name, value in vars(self.choice).items() if value}

    @property
    def run_name(self) -> str:
        """The name of the run of an import."""
        return "-".join(["firefox", self.pair, *self.options.values()])

    def __str__(self) -> str:
        """Return the name in its usual form."""
        return FIREFOX + (format_spec(self.pair, self.options) if self.options else self.pair)


class _Attachment(TypedDict):
    filename: str
    hash: str
    location: str
    size: Size


class _RecordName(TypedDict):
    """Fields that say which file of which model a record describes."""

    architecture: str
    fileType: str
    sourceLanguage: str
    targetLanguage: str
    version: str


class _Record(_RecordName):
    """A file of a model."""

    attachment: _Attachment
    decompressedHash: str


@dataclass(frozen=True)
class _Model:
    """The files of a model in the registry."""

    choice: Choice
    records: dict[str, _Record] = field(default_factory=dict)
    """By type of file. They may be invalid."""

    @property
    def rank(self) -> tuple[bool, int, list[int]]:
        """Releases before pre-releases such as 1.0a1, then by architecture, then by version."""
        is_release = not re.search(r"[^\d.]", self.choice.version)
        preference = -len(ARCHITECTURES)
        if self.choice.architecture in ARCHITECTURES:
            preference = -ARCHITECTURES.index(self.choice.architecture)
        numbers = re.findall(r"\d{1,9}", self.choice.version)
        return is_release, preference, list(map(int, numbers))

    @property
    def problem(self) -> str:
        """Why it cannot be used, such as a file that is being published; empty: it can."""
        needed = ["model", "vocab"]
        if self.records.keys() & {"srcvocab", "trgvocab"}:
            needed = ["model", "srcvocab", "trgvocab"]
        for file_type in needed:
            if file_type not in self.records:
                return f"has no file of the type {file_type}"
        for file_type, record in self.records.items():
            if problem := _problem(record):
                return f"has an invalid record of the type {file_type}: {problem}"
        return ""


def read(name: ModelName) -> tuple[ImportedModel, dict[str, Any]]:
    """Download and read a model; return it and a record of its origin.

    Raises:
        CheckpointError: the model is not supported.
        DownloadError: there is no such model, the server does not answer and the model is not in
            the cache, or a file is not the expected one.
        UsageError: the address of the server is invalid.
    """
    from nmt.models.importers import firefox

    with _registry() as (registry, cache):
        model = registry.choose(name)
        # Several pairs, such as those of two codes for a language, may share a model.
        checksum = model.records["model"]["attachment"]["hash"]
        directory = cache / f"{name.pair}-{checksum}"
        _download(name, model, registry.attachments, directory)
        imported = firefox.read(directory)
    record = model.records["model"]
    data = replace(imported.config.data, src=record["sourceLanguage"], tgt=record["targetLanguage"])
    origin = {
        "source": str(name),
        "revision": model.choice.version,
        "architecture": model.choice.architecture,
        "license": LICENSE,
        "page": PAGE,
    }
    return replace(imported, config=replace(imported.config, data=data)), origin


def list_names(pair: str) -> list[ModelName]:
    """Return the names of all models of a pair of languages, the best first; see `read` for the
    errors."""
    with _registry() as (registry, _):
        models = registry.models(pair)
    return [ModelName(pair, model.choice) for model in models]


@contextlib.contextmanager
def _registry() -> Iterator[tuple[_Registry, Path]]:
    """Yield the registry and the directory of its cache, which no other process changes."""
    server = _server()
    cache = cache_dir() / "firefox" / _directory_name(server)
    with locked(cache / "lock", lambda: log("another process is downloading; waiting")):
        yield _Registry.load(server, cache), cache


def _server() -> str:
    """Return the address of the server."""
    server = os.environ.get("NMT_FIREFOX_SERVER", "").rstrip("/") or SERVER
    if not server.startswith(("http://", "https://")):
        raise UsageError(
            f"NMT_FIREFOX_SERVER must be an https address, got '{server}'",
            f"unset it for {SERVER}",
        )
    return server


def _directory_name(server: str) -> str:
    return re.sub(r"[^\w.-]", "_", server.partition("://")[2]).lstrip(".")


@dataclass(frozen=True)
class _Registry:
    """The records of all files, and the address of the files."""

    records: list[_Record]
    """Only their names are checked."""
    attachments: str

    @classmethod
    def load(cls, server: str, cache: Path) -> _Registry:
        """Download the records, or read those of the last time if the server cannot be reached."""
        root = f"{server}/v1/"
        addresses = {"server.json": root, "records.json": root + COLLECTION}
        latest = {name: cache / f"latest-{name}" for name in addresses}
        try:
            for name, address in addresses.items():
                _fetch_document(address, latest[name])
        except DownloadError as error:
            if not all((cache / name).exists() for name in addresses):
                raise
            log(f"{error.message}; using the models in the cache")
            return cls.read(server, cache / "server.json", cache / "records.json")
        registry = cls.read(server, latest["server.json"], latest["records.json"])
        for name, path in latest.items():
            os.replace(path, cache / name)
        return registry

    @classmethod
    def read(cls, server: str, server_file: Path, records_file: Path) -> _Registry:
        """Read the two documents of the server; unknown kinds of records are left out."""
        try:
            information = untrusted_files.parse_json(untrusted_files.read_bytes(server_file))
            content = untrusted_files.parse_json(untrusted_files.read_bytes(records_file))
            attachments = information["capabilities"]["attachments"]["base_url"]
            entries = content["data"]
            untrusted_files.check([attachments], list[str])
            untrusted_files.check(entries, list[dict[str, Any]])
        except (ValueError, LookupError, TypeError):
            raise DownloadError(
                f"{server} does not answer like the settings service of Firefox",
                "check the connection: a proxy or a login page may answer in its place",
            ) from None
        if not attachments.startswith(("http://", "https://")):
            raise DownloadError(
                f"the files of {server} must have an https address, got '{attachments}'",
                CHECK_SERVER,
            )
        records = []
        for entry in entries:
            if untrusted_files.matches(entry, _RecordName) and entry["fileType"] in FILES:
                records.append(entry)
        return cls(records, attachments.rstrip("/"))

    def models(self, pair: str) -> list[_Model]:
        """Return the models of a pair of languages, the best first."""
        models: dict[Choice, _Model] = {}
        for record in self.records:
            if _pair(record) == pair:
                choice = Choice(architecture=record["architecture"], version=record["version"])
                model = models.setdefault(choice, _Model(choice))
                # The latest record comes first.
                model.records.setdefault(record["fileType"], record)
        return sorted(models.values(), key=lambda model: model.rank, reverse=True)

    def choose(self, name: ModelName) -> _Model:
        """Return the best of the models that a name describes and that can be used."""
        models = self.models(name.pair)
        if not models:
            raise self._unknown_pair(name.pair)
        described = []
        for model in models:
            is_architecture = name.choice.architecture in ("", model.choice.architecture)
            if is_architecture and name.choice.version in ("", model.choice.version):
                described.append(model)
        if described:
            best = next((model for model in described if not model.problem), described[0])
            if best.problem:
                raise DownloadError(f"{name} {best.choice.version} {best.problem}", OTHER_MODEL)
            return best
        known = ", ".join(str(ModelName(name.pair, model.choice)) for model in models)
        raise DownloadError(f"there is no model {name}", f"choose from: {known}")

    def _unknown_pair(self, pair: str) -> DownloadError:
        """Return the error for a pair without a model."""
        pairs = {_pair(record) for record in self.records}
        problem = f"there is no model {FIREFOX}{pair}"
        if not pairs:
            return DownloadError(problem, f"the registry has no models; {CHECK_SERVER}")
        codes = pair.split("-")
        for i in range(1, len(codes)):
            source, target = "-".join(codes[:i]), "-".join(codes[i:])
            first, second = f"{source}-en", f"en-{target}"
            if first in pairs and second in pairs:
                command = f"nmt translate --model {FIREFOX}{first} --then {FIREFOX}{second}"
                return DownloadError(problem, f"translate through English: {command}")
        languages = {codes[0], codes[-1]} - {"en"}
        related = [each for each in sorted(pairs) if languages & set(each.split("-"))]
        hint = f"choose from: {', '.join(related)}" if related else suggest(pair, pairs)
        return DownloadError(problem, hint)


def _pair(record: _Record) -> str:
    return f"{record['sourceLanguage']}-{record['targetLanguage']}"


def _fetch_document(address: str, path: Path) -> None:
    path.unlink(missing_ok=True)
    download.fetch(
        address,
        path,
        alternative=LOCAL_IMPORT,
        missing_hint=CHECK_SERVER,
        mismatch_hint=CHECK_SERVER,
        max_bytes=MAX_DOCUMENT_BYTES,
        https_only=True,
        directory_variable="XDG_CACHE_HOME",
    )


def _problem(record: _Record) -> str:
    """Return why a record is invalid, or names a file elsewhere; an empty string if it is not."""
    try:
        untrusted_files.check(record, _Record)
    except ValueError as error:
        return str(error)
    attachment = record["attachment"]
    parts = [attachment["filename"], record["architecture"], record["version"]]
    parts += attachment["location"].split("/")
    if not all(map(_PART.fullmatch, parts)):
        return "a name or path has other characters than expected"
    if not all(map(_CHECKSUM.fullmatch, (attachment["hash"], record["decompressedHash"]))):
        return "a hash is not a SHA-256"
    if attachment["size"] > MAX_BYTES:
        return f"{attachment['filename']} has more than {MAX_BYTES >> 20} MB"
    return ""


def _download(name: ModelName, model: _Model, attachments: str, directory: Path) -> None:
    """Download the files of a model to a directory, unless they are there, and check them."""
    files: dict[Path, _Record] = {}
    descriptions = []
    for file_type, template in FILES.items():
        if file_type in model.records:
            record = model.records[file_type]
            files[directory / template.format(pair=name.pair)] = record
            megabytes = record["attachment"]["size"] / 1e6
            descriptions.append(f"{record['attachment']['filename']} {megabytes:.1f} MB")
    if not all(path.exists() for path in files):
        log(
            f"downloading {name} {model.choice.version}, architecture {model.choice.architecture},"
            f" license {LICENSE} (models of Mozilla, {PAGE}): {', '.join(descriptions)}"
        )
    for path, record in files.items():
        attachment = record["attachment"]
        download.fetch(
            f"{attachments}/{attachment['location']}",
            path,
            sha256=attachment["hash"],
            size=attachment["size"],
            alternative=LOCAL_IMPORT,
            mismatch_hint=f"the registry's record does not fit the file; {OTHER_MODEL}",
            max_bytes=attachment["size"],
            https_only=True,
            directory_variable="XDG_CACHE_HOME",
        )
        _check_content(path, record)


def _check_content(path: Path, record: _Record) -> None:
    """Check what a file expands to, and delete it if this is not the expected content."""
    problem = ""
    digest = hashlib.sha256()
    num_bytes = 0
    try:
        with zstd.open(path) as file:
            while num_bytes <= MAX_BYTES and (block := file.read(CHUNK)):
                num_bytes += len(block)
                digest.update(block)
    except (zstd.ZstdError, EOFError) as error:
        problem = first_line(error)
    if num_bytes > MAX_BYTES:
        problem = f"it expands to more than {MAX_BYTES >> 20} MB"
    if not problem and digest.hexdigest() != record["decompressedHash"]:
        problem = f"the SHA-256 of its content is {digest.hexdigest()}"
    if problem:
        path.unlink()
        name = record["attachment"]["filename"]
        raise DownloadError(f"{name} is not the expected file: {problem}", OTHER_MODEL)
