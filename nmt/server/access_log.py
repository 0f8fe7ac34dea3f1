"""The access log: one line per request, without text, names of files and keys."""

from __future__ import annotations

from datetime import UTC, datetime
from ipaddress import ip_address

from starlette.types import Scope

from nmt.core.console import log

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def log_request(scope: Scope, path: str, status: int, seconds: float, num_bytes: int) -> None:
    """Log a request.

    Args:
        scope: the request.
        path: a path of the server, or "other".
        status: status of the answer; 0 if the client has disconnected before.
        seconds: time from the request to the end of the answer.
        num_bytes: size of the body of the answer.
    """
    time = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    # A client can send any method, and a trusted proxy any text as an address.
    method = scope["method"] if scope["method"] in METHODS else "other"
    address = _address(scope)
    milliseconds = round(1000 * seconds)
    log(f"{time} {address} {method} {path} {status or '-'} {milliseconds} ms {num_bytes} B")


def _address(scope: Scope) -> str:
    host, _ = scope.get("client") or ("", 0)
    try:
        return str(ip_address(host))
    except ValueError:
        return "-"
