"""Fetching files over HTTP so that a break costs nothing, and opening archives without trusting them.

`$NMT_MIRROR` moves every download: https://host/path is fetched from $NMT_MIRROR/host/path.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
import tarfile
import tempfile
import time
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from lzma import LZMAError
from pathlib import Path
from typing import IO, TYPE_CHECKING, NoReturn

from nmt import __version__, paths
from nmt.console import log, progress
from nmt.errors import DataError, DownloadError, UsageError

if TYPE_CHECKING:  # httpx takes a tenth of a second to import: `nmt data list` need not wait for it
    import httpx

ATTEMPTS = 5
"""Failures in a row, without a byte gained, before giving up."""
PAUSE = 0.5
"""Seconds before the first new attempt; doubled each time."""
MAX_PAUSE = 30.0
"""Longest wait in seconds that a server's Retry-After is granted."""

MAX_BYTES = 100 << 30
"""An archive that claims to hold more is refused."""
MAX_RATIO = 100
"""Text packs to a third or a tenth of its size; an archive that grows more than this is a bomb."""
HARMLESS = 10 << 20
"""Bytes below which the ratio does not matter."""

_PASSING = {408, 425, 429, 500, 502, 503, 504}
_DAMAGE = (zipfile.BadZipFile, tarfile.TarError, zlib.error, LZMAError, EOFError, RuntimeError, ValueError, OSError)
_ARCHIVE = re.compile(r"\.(zip|tar|tgz|tar\.(gz|bz2|xz))$")


class _Again(Exception):  # noqa: N818 - a signal, not an error that anyone sees
    """This attempt failed and another may succeed."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


def fetch(url: str, path: Path, *, sha256: str | None = None, size: int | None = None, corpus: str = "NAME") -> str:
    """Download a file to `path` and return its SHA-256; a file that is there already is kept if it is right.

    Bytes go to PATH.part, which a later call resumes if the server can and its file has not changed.

    Args:
        url: http or https address, before `$NMT_MIRROR`.
        path: where the complete file appears; its folder is made.
        sha256: the checksum it must have, if known.
        size: the bytes it must have, if known.
        corpus: the corpus it belongs to, for the hint.

    Raises:
        DownloadError: no connection, a refusal, or not the expected bytes; PATH.part stays for resuming unless bad.
    """
    address = mirrored(url)
    hint = f"run it again to go on, or get the file elsewhere: nmt data download {corpus} --from PATH"
    if path.is_file() and sha256 in (None, found := paths.sha256(path)):
        return found
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _partial(path) as part:
            part.receive(address, hint, resume_unnamed=sha256 is not None)
            found = part.verify(address, hint, sha256, size)
    except OSError as error:
        raise DownloadError(f"cannot write {path}: {error.strerror}", "free some space, or set NMT_DATA") from None
    return found


def mirrored(url: str) -> str:
    """Return the address to fetch `url` from, which `$NMT_MIRROR` may move."""
    mirror = os.environ.get("NMT_MIRROR", "").rstrip("/")
    if not mirror:
        return url
    if not mirror.startswith(("http://", "https://")):
        raise UsageError(f"NMT_MIRROR must be an http or https address, got '{mirror}'")
    return f"{mirror}/{url.partition('://')[2]}"


@contextlib.contextmanager
def _partial(path: Path) -> Iterator[_Part]:
    """Open PATH.part, alone; at the end it is PATH, or stays for resuming if it holds anything."""
    place = path.with_name(f"{path.name}.part")
    lock = place.with_name(f"{place.name}.lock")
    with paths.locked(lock, lambda: _refuse(path)):
        try:
            with place.open("ab") as file:
                yield _Part(path, place, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(place, path)  # Windows renames no open file
            _tag(place).unlink(missing_ok=True)
        finally:
            if place.exists() and not place.stat().st_size:
                place.unlink()
                _tag(place).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # Windows deletes no open file; there the lock's release does
                lock.unlink()


def _tag(part: Path) -> Path:
    """Return the file that says which version of the download the bytes in `part` belong to."""
    return part.with_name(f"{part.name}.tag")


def _refuse(path: Path) -> NoReturn:
    raise DownloadError(f"{path.name} is being downloaded by another nmt", "wait for it to finish")


class _Part:
    """What has arrived of a file so far."""

    def __init__(self, path: Path, place: Path, file: IO[bytes]) -> None:
        self.path, self.place, self.file = path, place, file
        self.answered = False  # whether the server was ever reached
        self.tag = _tag(place)

    @property
    def held(self) -> int:
        """Bytes so far."""
        return self.place.stat().st_size

    def restart(self) -> None:
        """Forget the bytes."""
        self.file.truncate(0)
        self.tag.unlink(missing_ok=True)

    def receive(self, url: str, hint: str, *, resume_unnamed: bool) -> None:
        """Get the bytes that are missing, over as many connections as it takes."""
        import httpx

        agent = {"User-Agent": f"Mozilla/5.0 (compatible; nmt/{__version__})", "Accept-Encoding": "identity"}
        failures = 0
        with httpx.Client(follow_redirects=True, timeout=httpx.Timeout(30.0, connect=10.0), headers=agent) as client:
            while True:
                before = self.held
                if before and not self.tag.exists() and not resume_unnamed:
                    self.restart()
                try:
                    return self._attempt(client, url, hint)
                except (httpx.TransportError, _Again) as error:
                    self.file.flush()
                    failures = 1 if self.held > before else failures + 1
                    reason = str(error) or type(error).__name__
                    if failures >= (ATTEMPTS if self.answered else 2):  # no network at all: say so soon, in one line
                        raise DownloadError(f"cannot download {url}: {reason}", hint) from None
                    if self.answered:
                        log(f"{self.path.name}: {reason}; trying again")
                    time.sleep(max(PAUSE * 2 ** (failures - 1), getattr(error, "wait", 0.0)))
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    raise DownloadError(f"cannot download {url}: {error}", hint) from None

    def _attempt(self, client: httpx.Client, url: str, hint: str) -> None:
        offset = self.held
        headers = {"Range": f"bytes={offset}-"} if offset else {}
        if offset and self.tag.exists():
            headers["If-Range"] = self.tag.read_text(encoding="ascii")
        with client.stream("GET", url, headers=headers) as response:
            self.answered = True
            if response.status_code == 416:
                if response.headers.get("Content-Range") == f"bytes */{offset}":
                    return  # everything had arrived
                self.restart()
                raise _Again("the file on the server has changed")
            if response.status_code in _PASSING:
                raise _Again(f"{response.status_code} {response.reason_phrase}", _retry_after(response))
            if response.status_code >= 400:
                raise DownloadError(f"cannot download {url}: {response.status_code} {response.reason_phrase}", hint)
            if not (response.status_code == 206 and _start(response) == offset):
                self.restart()
                if response.status_code == 206:
                    raise _Again("the server sent another part than was asked for")
            self._save(response)

    def _save(self, response: httpx.Response) -> None:
        if tag := _validator(response):
            self.tag.write_text(tag, encoding="ascii")
        offset, length = self.held, response.headers.get("Content-Length", "")
        total = offset + int(length) if length.isdecimal() else None
        with progress(total, self.path.name, "B", initial=offset, unit_scale=True, unit_divisor=1024) as bar:
            for chunk in response.iter_raw():  # as it comes: a chunk size would lose the last bytes before a break
                self.file.write(chunk)
                bar.update(len(chunk))
        self.file.flush()
        if total is not None and self.held != total:
            raise _Again(f"the connection closed after {self.held:,} of {total:,} bytes")

    def verify(self, url: str, hint: str, sha256: str | None, size: int | None) -> str:
        """Return the checksum; bytes that are not the expected ones are thrown away."""
        held, found = self.held, paths.sha256(self.place)
        wrong = ""
        if size is not None and held != size:
            wrong = f"{held:,} bytes came instead of {size:,}"
        elif sha256 not in (None, found):
            wrong = f"the SHA-256 is {found}, not {sha256}"
        elif not held:
            wrong = "the file is empty"
        if wrong:
            self.restart()
            raise DownloadError(f"{url} is not the expected file: {wrong}", hint)
        return found


def _validator(response: httpx.Response) -> str:
    """Return what names this version of the file: a strong ETag, else the date of its last change."""
    tag = str(response.headers.get("ETag", ""))
    return tag if tag and not tag.startswith("W/") else str(response.headers.get("Last-Modified", ""))


def _start(response: httpx.Response) -> int | None:
    match = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
    return int(match[1]) if match else None


def _retry_after(response: httpx.Response) -> float:
    wait = response.headers.get("Retry-After", "")
    return min(float(wait), MAX_PAUSE) if wait.isdecimal() else 0.0


@contextlib.contextmanager
def unpacked(sources: Sequence[Path], near: Path) -> Iterator[list[Path]]:
    """Yield the files of archives (zip, tar), of folders (not of folders in them) and single files.

    Archives are unpacked into a folder in `near` that is gone afterward.

    Raises:
        DataError: a source does not exist.
        DownloadError: an archive is damaged, cut short, or tries to write outside its folder or to fill the disk.
    """
    near.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".unpack.", dir=near) as scratch:
        files: list[Path] = []
        for number, source in enumerate(sources):
            if source.is_dir():
                files += sorted(path for path in source.iterdir() if path.is_file())
            elif not source.exists():
                raise DataError(
                    f"no such file or folder: {source}", "give the archive or the folder that the corpus comes in"
                )
            elif _ARCHIVE.search(source.name.lower()):
                folder = Path(scratch) / str(number)
                unpack(source, folder)
                files += sorted(path for path in folder.rglob("*") if path.is_file())
            else:
                files.append(source)
        yield files


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip or tar archive into a new folder; a failure leaves nothing of it.

    Raises:
        DownloadError: the archive is damaged or refused.
        OSError: the disk is full.
    """
    try:
        if archive.name.lower().endswith(".zip"):
            _unzip(archive, folder)
        else:
            _untar(archive, folder)
    except DownloadError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    except _DAMAGE as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's fault, not the archive's
        raise DownloadError(f"{archive.name} is damaged or cut short: {error}", "get the archive again") from None


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        members = [member for member in file.infolist() if not member.is_dir()]
        for member in members:
            _check_name(archive, member.filename)
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG):
                raise DownloadError(f"{archive.name} is refused: {member.filename} is a link or a device")
        _check_size(archive, sum(member.file_size for member in members))
        for member in members:  # reading stops at the size that the member claims, and checks its CRC
            with file.open(member) as content:
                _save(content, folder / member.filename)


def _untar(archive: Path, folder: Path) -> None:
    total = 0
    with tarfile.open(archive) as file:
        for member in file:
            _check_name(archive, member.name)
            if member.isdir():
                continue
            if not member.isreg():
                raise DownloadError(f"{archive.name} is refused: {member.name} is a link or a device")
            total += member.size
            _check_size(archive, total)
            content = file.extractfile(member)
            if content:
                _save(content, folder / member.name)


def _save(content: IO[bytes], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)


def _check_name(archive: Path, name: str) -> None:
    if name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name) or name[1:2] == ":":
        raise DownloadError(f"{archive.name} is refused: it would write outside its folder ({name})")


def _check_size(archive: Path, total: int) -> None:
    packed = max(archive.stat().st_size, 1)
    if total > MAX_BYTES or (total > HARMLESS and total > MAX_RATIO * packed):
        raise DownloadError(f"{archive.name} is refused: {packed:,} bytes would become {total:,}")
