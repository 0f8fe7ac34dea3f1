"""Which names the server has, and which pages may use it.

A page of another site can make a browser send requests to a server in the network of its user, and
give its own name the address of that server (DNS rebinding). So the server checks the headers
`Host` and `Origin` of every request.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from nmt.core.errors import UsageError

ANY = "*"
LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
_HOST_NAME = re.compile(r"[\w-]+(\.[\w-]+)*\.?", re.ASCII)
_HOST_HEADER = re.compile(r"(?:([\w.-]+)|\[([\da-f:.]+)\])(?::\d*)?", re.ASCII | re.IGNORECASE)
"""A name or an address, and a port."""
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@]+")
MAX_SHOWN = 100


@dataclass(frozen=True)
class Access:
    """Names of the server and origins of pages that may use it, in lower case; `*` stands for
    all."""

    hosts: frozenset[str] = frozenset(LOCAL_HOSTS)
    """Names, and addresses as `ipaddress` writes them."""
    origins: frozenset[str] = frozenset()
    """Origins of pages, such as `https://example.org`. The pages of the server itself are always
    allowed."""

    @classmethod
    def parse(cls, listen_host: str, hosts: Iterable[str], origins: Iterable[str]) -> Access:
        """Return the access for the options --host, --allow-host and --cors.

        Raises:
            UsageError: a name or an origin is not valid.
        """
        names = {*LOCAL_HOSTS, socket.gethostname().lower(), listen_host.lower()}
        return cls(
            frozenset(names.union(map(_parse_host, hosts))), frozenset(map(_parse_origin, origins))
        )


def _parse_host(name: str) -> str:
    host = _canonical(name.removeprefix("[").removesuffix("]"))
    if name != ANY and not _is_address(host) and not _HOST_NAME.fullmatch(host):
        hint = "write a name or an address without http:// and port, or '*'"
        raise UsageError(f"--allow-host {name} is not a host name", hint)
    return host


def _parse_origin(origin: str) -> str:
    if origin != ANY and not _ORIGIN.fullmatch(origin.lower()):
        hint = "write it as https://example.org, or '*'"
        raise UsageError(f"--cors {origin} is not the origin of a page", hint)
    return origin.lower()


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _canonical(host: str) -> str:
    """Return a name in lower case, and an address in its only form."""
    if not _is_address(host):
        return host.lower().removesuffix(".")
    address = ip_address(host)
    mapped = getattr(address, "ipv4_mapped", None)  # of an IPv4 client of a socket for both
    return str(mapped or address)


class AccessCheck:
    """Refuses requests to other names, and those of pages of other sites."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        app = self._app
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            host = headers.get("host")
            origin = headers.get("origin")
            if host is not None and not self._has_name(host, scope):
                error = (
                    f"this server does not have the name '{host[:MAX_SHOWN]}'; see its option"
                    " --allow-host"
                )
                app = JSONResponse({"error": error}, 421)
            elif origin is not None and not self._is_allowed(origin, host):
                error = (
                    f"pages of '{origin[:MAX_SHOWN]}' may not use this server; see its option"
                    " --cors"
                )
                app = JSONResponse({"error": error}, 403)
        await app(scope, receive, send)

    def _has_name(self, host: str, scope: Scope) -> bool:
        """Return whether a server with this name was started, or the client is connected to this
        address."""
        match = _HOST_HEADER.fullmatch(host)
        if not match:
            return False
        name = _canonical(match[1] or match[2])
        names = self._access.hosts
        address, _ = scope.get("server") or ("", None)
        return ANY in names or name in names or (_is_address(name) and name == _canonical(address))

    def _is_allowed(self, origin: str, host: str | None) -> bool:
        is_own = origin.partition("://")[2] == host
        return is_own or not {ANY, origin.lower()}.isdisjoint(self._access.origins)
