"""HTTP downloads with resume and checksums.

`$NMT_MIRROR` redirects the downloads: https://host/path is downloaded from $NMT_MIRROR/host/path.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.core import paths
from nmt.core.console import log, progress
from nmt.core.errors import DownloadError, UsageError, file_hint
from nmt.core.packages import require_package
from nmt.core.version import __version__

if TYPE_CHECKING:  # imported on use, because importing httpx takes 0.1 s
    import ssl

    import httpx

CLIENT = "httpx"
"""The package of the HTTP client."""
MAX_FAILURES = 5
"""Consecutive failures without progress before the download is aborted."""
RETRY_DELAY = 0.5
"""Seconds before the first retry; doubled with each failure."""
CHECKSUM_NAMES = {"sha256": "SHA-256", "md5": "MD5"}
MAX_RETRY_AFTER = 30.0
"""Maximum delay in seconds that a server can request with Retry-After."""

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_MISSING_STATUS = {401, 403, 404, 410}
_RETRYABLE_STATUS = {408, 425, 429, 500, 502, 503, 504}


class _RetryableError(Exception):
    """An attempt failed, but another one may succeed."""

    def __init__(self, reason: str, delay: float = 0.0) -> None:
        super().__init__(reason)
        self.delay = delay


class _ChangedError(_RetryableError):
    """The bytes received before are not part of the file."""


def fetch(
    url: str,
    path: Path,
    *,
    sha256: str | None = None,
    md5: str | None = None,
    size: int | None = None,
    headers: Mapping[str, str] | None = None,
    alternative: str = "use a local file: nmt data download NAME --from PATH",
    missing_hint: str = "",
    mismatch_hint: str = "",
    max_bytes: int | None = None,
    https_only: bool = False,
    directory_variable: str = "NMT_DATA",
) -> str:
    """Download a file to `path` unless it exists with the right checksum; return its SHA-256.

    Incomplete downloads are kept in PATH.part. The next call resumes them if the server supports it
    and its file has not changed. The caller must ensure that no other process downloads to `path`.

    Args:
        url: http or https address, before `$NMT_MIRROR` is applied.
        path: path of the complete file; its directory is created.
        sha256: expected checksum, if known.
        md5: expected MD5 checksum, if it is the only known one.
        size: expected size in bytes, if known.
        headers: more headers of the request.
        alternative: what to do instead, for the hint.
        missing_hint: hint if the server does not have the file, or denies access.
        mismatch_hint: hint if the file is not the expected one.
        max_bytes: size at which the download is aborted.
        https_only: whether to accept only https, and http on this machine, also after a redirect.
        directory_variable: name of the environment variable that sets the directory, for the hint.

    Raises:
        DownloadError: the connection or request failed, or the file is not the expected one.
        MissingPackageError: the HTTP client is not installed.
    """
    hint = f"re-run the command to resume, or {alternative}"
    # Nothing is kept of an unexpected file, so there is nothing to resume.
    download_again = f"re-run the command to download it again, or {alternative}"
    download = _Download(
        url=mirror_url(url),
        path=path,
        expected=_Expectation(sha256, md5, size),
        headers=headers or {},
        hint=hint,
        missing_hint=missing_hint or hint,
        mismatch_hint=mismatch_hint or download_again,
        max_bytes=max_bytes,
        https_only=https_only,
    )
    if not path.is_file() or download.expected.problem(path):
        require_package(CLIENT, CLIENT, f"downloading {path.name}")  # before a directory is created
        try:
            download.run()
        except OSError as error:
            raise DownloadError(
                f"cannot write {path}: {error.strerror}",
                f"{file_hint(error, 'check the disk')}; {directory_variable} sets the directory",
            ) from None
    return sha256 or paths.sha256(path)


def mirror_url(url: str) -> str:
    """Return the address of `url` on `$NMT_MIRROR`, or `url` if there is no mirror."""
    mirror = os.environ.get("NMT_MIRROR", "").rstrip("/")
    if not mirror:
        return url
    if not mirror.startswith(("http://", "https://")):
        raise UsageError(f"NMT_MIRROR must be an http or https address, got '{mirror}'")
    return f"{mirror}/{url.partition('://')[2]}"


@dataclass(kw_only=True)
class _Download:
    """The download of a file to PATH.part, which is kept for resuming on failure."""

    url: str
    path: Path
    expected: _Expectation
    headers: Mapping[str, str]
    hint: str
    missing_hint: str
    mismatch_hint: str
    max_bytes: int | None
    https_only: bool
    is_server_reachable: bool = False

    def __post_init__(self) -> None:
        self.part_path = self.path.with_name(f"{self.path.name}.part")
        self.validator = self.path.with_name(f"{self.path.name}.part.tag")
        """File with the HTTP validator (ETag or date) of the bytes received so far."""

    def run(self) -> None:
        """Download the missing bytes, and rename the file if it is the expected one."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.part_path.open("ab") as self.file:
                self._receive()
                self._verify()
                self.file.flush()
                os.fsync(self.file.fileno())
            os.replace(self.part_path, self.path)  # after closing it, as Windows requires
            self.validator.unlink(missing_ok=True)
        finally:
            if self.part_path.exists() and not self.num_bytes:
                self.part_path.unlink()
                self.validator.unlink(missing_ok=True)

    @property
    def num_bytes(self) -> int:
        """Number of bytes received."""
        return self.part_path.stat().st_size

    def _restart(self) -> None:
        """Discard the bytes."""
        self.file.truncate(0)
        self.validator.unlink(missing_ok=True)

    def _receive(self) -> None:
        """Download the missing bytes, with retries."""
        import httpx

        num_failures = num_changes = 0
        can_resume = bool(self.expected.sha256 or self.expected.md5)
        with _create_client(self.https_only) as client:
            while True:
                offset = self.num_bytes
                if offset and not self.validator.exists() and not can_resume:
                    self._restart()
                try:
                    return self._attempt(client)
                except (httpx.TransportError, _RetryableError) as error:
                    self.file.flush()
                    num_failures = 1 if self.num_bytes > offset else num_failures + 1
                    num_changes += isinstance(error, _ChangedError)
                    reason = str(error) or type(error).__name__
                    # Fail fast without a network.
                    max_failures = MAX_FAILURES if self.is_server_reachable else 2
                    if max(num_failures, num_changes) >= max_failures:
                        raise self._error(reason, self.hint) from None
                    if self.is_server_reachable:
                        log(f"{self.path.name}: {reason}; retrying")
                    time.sleep(
                        max(RETRY_DELAY * 2 ** (num_failures - 1), getattr(error, "delay", 0.0))
                    )
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    raise self._error(str(error), self.hint) from None

    def _error(self, problem: str, hint: str) -> DownloadError:
        return DownloadError(f"cannot download {self.url}: {problem}", hint)

    def _attempt(self, client: httpx.Client) -> None:
        offset = self.num_bytes
        headers = self._request_headers(offset)
        with client.stream("GET", self.url, headers=headers) as response:
            self.is_server_reachable = True
            status = f"{response.status_code} {response.reason_phrase}"
            if response.status_code == 416:
                if response.headers.get("Content-Range") == f"bytes */{offset}":
                    return  # the file is complete
                self._restart()
                raise _ChangedError("the file on the server has changed")
            if response.status_code in _RETRYABLE_STATUS:
                raise _RetryableError(status, _retry_after(response))
            if response.status_code >= 400:
                is_missing = response.status_code in _MISSING_STATUS
                raise self._error(status, self.missing_hint if is_missing else self.hint)
            is_partial = response.status_code == 206
            content_range = response.headers.get("Content-Range", "")
            if not (is_partial and content_range.startswith(f"bytes {offset}-")):
                self._restart()
                if is_partial:
                    raise _ChangedError("the server sent a different range than requested")
            validator = _get_validator(response)
            if is_partial and validator and headers.get("If-Range", validator) != validator:
                self._restart()  # the server ignores If-Range
                raise _ChangedError("the file on the server has changed")
            self._save(response, validator)

    def _request_headers(self, offset: int) -> dict[str, str]:
        headers = dict(self.headers)
        if offset:
            headers["Range"] = f"bytes={offset}-"
        if offset and self.validator.exists():
            headers["If-Range"] = self.validator.read_text(encoding="ascii")
        return headers

    def _save(self, response: httpx.Response, validator: str) -> None:
        if validator:
            self.validator.write_text(validator, encoding="ascii")
        offset, length = self.num_bytes, response.headers.get("Content-Length", "")
        total = offset + int(length) if length.isdecimal() else None
        num_bytes = offset
        with progress(
            total, self.path.name, "B", initial=offset, unit_scale=True, unit_divisor=1024
        ) as bar:
            # A chunk size would lose the last bytes before a disconnect.
            for chunk in response.iter_raw():
                self.file.write(chunk)
                num_bytes += len(chunk)
                if self.max_bytes is not None and num_bytes > self.max_bytes:
                    self._restart()
                    problem = f"it has more than {self.max_bytes:,} bytes"
                    raise DownloadError(
                        f"cannot download {response.url}: {problem}", self.mismatch_hint
                    )
                bar.update(len(chunk))
        self.file.flush()
        if total is not None and self.num_bytes != total:
            raise _RetryableError(
                f"the connection closed after {self.num_bytes:,} of {total:,} bytes"
            )

    def _verify(self) -> None:
        """Discard the bytes and raise a DownloadError if they are not the expected ones."""
        problem = self.expected.problem(self.part_path)
        if not self.num_bytes:
            problem = problem or "the file is empty"
        if problem:
            self._restart()
            raise DownloadError(
                f"{self.url} is not the expected file: {problem}", self.mismatch_hint
            )


@dataclass(frozen=True)
class _Expectation:
    """What is known about a file; None if it is not."""

    sha256: str | None
    md5: str | None
    size: int | None

    def problem(self, path: Path) -> str:
        """Return how a file differs; an empty string if it does not."""
        num_bytes = path.stat().st_size
        if self.size is not None and num_bytes != self.size:
            return f"{num_bytes:,} bytes were received instead of {self.size:,}"
        for name, expected in (("sha256", self.sha256), ("md5", self.md5)):
            if not expected:
                continue
            with path.open("rb") as file:
                checksum = hashlib.file_digest(file, name).hexdigest()
            if checksum != expected:
                return f"the {CHECKSUM_NAMES[name]} is {checksum}, not {expected}"
        return ""


@functools.cache
def _certificates(file: str | None, directory: str | None) -> ssl.SSLContext:
    """Return the trusted certificates, which take longer to parse than a small file to download.

    The arguments are the variables of the environment that name them.
    """
    import httpx

    return httpx.create_ssl_context()


def _create_client(https_only: bool) -> httpx.Client:
    import httpx

    headers = {
        "User-Agent": f"Mozilla/5.0 (compatible; nmt/{__version__})",
        "Accept-Encoding": "identity",
    }
    try:
        variables = map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR"))
        return httpx.Client(
            verify=_certificates(*variables),
            follow_redirects=True,
            timeout=httpx.Timeout(30.0, connect=10.0),
            headers=headers,
            event_hooks={"request": [_check_https] if https_only else []},
        )
    except (ImportError, ValueError, OSError, httpx.InvalidURL) as error:
        raise DownloadError(
            f"cannot use the proxy or certificates of the environment: {error}",
            "check HTTPS_PROXY, ALL_PROXY and SSL_CERT_FILE",
        ) from None


def _check_https(request: httpx.Request) -> None:
    """Check the address of a request, such as that of a redirect."""
    url = request.url
    is_local = url.scheme == "http" and url.host in LOOPBACK_HOSTS
    if url.scheme != "https" and not is_local:
        raise DownloadError(f"{url} is not an https address", "choose another server")


def _get_validator(response: httpx.Response) -> str:
    """Return the version of the file: a strong ETag, or the date of the last modification."""
    versions = (str(response.headers.get(name, "")) for name in ("ETag", "Last-Modified"))
    return next(
        (each for each in versions if each and each.isascii() and not each.startswith("W/")), ""
    )


def _retry_after(response: httpx.Response) -> float:
    delay = response.headers.get("Retry-After", "")
    return min(float(delay), MAX_RETRY_AFTER) if delay.isdecimal() else 0.0
