"""The access log: one line per request, without text, names of files and keys."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address
from time import perf_counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from nmt.core.console import log

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class AccessLog:
    """Logs time, address, method, path, status, duration and size of the answer of each request."""

    def __init__(self, app: ASGIApp, paths: frozenset[str]) -> None:
        """Create the middleware; other paths than these may contain text or names of files."""
        self._app, self._paths = app, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        start = perf_counter()
        status = "-"
        num_bytes = 0

        async def send_counted(message: Message) -> None:
            nonlocal status, num_bytes
            if message["type"] == "http.response.start":
                status = str(message["status"])
            num_bytes += len(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, send_counted)
        milliseconds = round(1000 * (perf_counter() - start))
        log(f"{_now()} {self._describe(scope)} {status} {milliseconds} ms {num_bytes} B")

    def _describe(self, scope: Scope) -> str:
        # A client can send any method and path, and a trusted proxy any text as an address.
        method = scope["method"] if scope["method"] in METHODS else "other"
        path = scope["path"] if scope["path"] in self._paths else "other"
        return f"{_address(scope)} {method} {path}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _address(scope: Scope) -> str:
    host, _ = scope.get("client") or ("", 0)
    try:
        return str(ip_address(host))
    except ValueError:
        return "-"
