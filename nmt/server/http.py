"""Runs the application with uvicorn: the socket, signals and slow connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import socket
from collections.abc import Sequence
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from nmt.core import runtime
from nmt.core.errors import NMTError

HEAD_TIMEOUT = 10.0
"""Maximum time to receive the head of a request, in seconds. uvicorn has no such limit."""
SHUTDOWN_TIMEOUT = 60
"""Maximum time to finish requests after a signal, in seconds."""
BACKLOG = 128
QUIET_LOGGERS = {"uvicorn.error": logging.ERROR, "python_multipart": logging.CRITICAL}
"""Loggers, and their lowest level: a malformed request is not logged."""
MAX_CONNECTIONS = 1000
"""Requests of further connections are answered with status 503."""
MAX_REFUSALS = 500
"""Number of such connections. All others are closed at once, so that the process does not run out
of files."""

WRITE_TIMEOUT = 300.0
"""Maximum time in which a client may read nothing of an answer, in seconds."""


class Protocol(H11Protocol):
    """Closes connections whose next request does not begin in time, and those that do not read an
    answer."""

    _head_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS + MAX_REFUSALS:
            transport.abort()
        transport.set_write_buffer_limits(0)  # pause_writing is called for an answer of any length
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request."""
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the timers."""
        super().connection_lost(exc)
        self._cancel_head_timer()
        self._cancel_write_timer()

    def pause_writing(self) -> None:
        """Start the timer: the client does not read."""
        super().pause_writing()
        self._await_reading(None)

    def resume_writing(self) -> None:
        """Stop the timer."""
        super().resume_writing()
        self._cancel_write_timer()

    def _await_head(self) -> None:
        """Start the timer, unless it runs or a request is being handled."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._cancel_head_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self.transport.close)

    def _await_reading(self, before: int | None) -> None:
        """Start the timer, or close the connection if the client has read nothing since the last
        call."""
        unread = self.transport.get_write_buffer_size()
        if unread == before:
            self.transport.abort()
        else:
            self._write_timer = self.loop.call_later(WRITE_TIMEOUT, self._await_reading, unread)

    def _cancel_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()

    def _cancel_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a port; 0 selects a free one.

    Raises:
        NMTError: the address is unknown or the port is in use.
    """
    try:
        family, *_, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.create_server(address, family=family, backlog=BACKLOG)
    except (OSError, UnicodeError) as error:  # a host name may not be encodable
        number = getattr(error, "errno", None)
        is_port = number in (errno.EADDRINUSE, errno.EACCES)
        hint = "choose another --port" if is_port else "set --host to an address of this machine"
        reason = getattr(error, "strerror", None) or str(error)
        reason = reason.partition(" (while attempting")[0]  # repeats the address
        raise NMTError(f"cannot listen on {host}:{port}: {reason}", hint) from None
    # Connections inherit it. Otherwise the body of an answer waits 40 ms for the acknowledgment of
    # its head.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def url(listener: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def make_server(app: ASGIApp, proxies: Sequence[str] = ()) -> uvicorn.Server:
    """Return a server for an application; `proxies` are addresses whose headers name the address of
    the client."""
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips="*" if "*" in proxies else list(proxies),
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
        lifespan="off",
    )
    for name, level in QUIET_LOGGERS.items():
        logging.getLogger(name).setLevel(level)
    return uvicorn.Server(config)


def _allow_open_files(count: int) -> None:
    """Raise the limit of the process, if the system allows it."""
    if os.name == "posix":
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY:
            limit = count if hard == resource.RLIM_INFINITY else min(count, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))


def serve(server: uvicorn.Server, listener: socket.socket) -> None:
    """Answer requests until a stop signal, then finish those that have begun, for at most
    `SHUTDOWN_TIMEOUT`."""
    _allow_open_files(2 * (MAX_CONNECTIONS + MAX_REFUSALS))

    def stop(number: int, frame: Any) -> None:
        server.should_exit = True

    # uvicorn does not handle SIGHUP. It handles SIGINT and SIGTERM, and raises them again when it
    # has ended: with this handler, the exit code is 0.
    signals = runtime.stop_signals()
    handlers: list[Any] = [signal.signal(number, stop) for number in signals]
    try:
        server.run([listener])
    finally:
        for number, handler in zip(signals, handlers, strict=True):
            signal.signal(number, handler)
