"""A real HTTP server on the loopback interface that can break in the ways servers break."""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Resource:
    """The response of a path. Each request uses up one of `faults`; after that, responses are
    correct."""

    content: bytes
    etag: str = '"v1"'
    if_range: bool = True  # whether the server reads If-Range
    ranges: bool = True
    length: bool = True
    redirect: str = ""
    shift: int = 0  # bytes by which a range answer starts too late
    # A status, or ("drop", bytes sent).
    faults: list[int | tuple[str, int]] = field(default_factory=list)


@dataclass
class Loopback:
    """The server's address, what it serves, and what it was asked: (path, headers) for each
    request."""

    url: str
    resources: dict[str, Resource] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def serve(self, path: str, content: bytes, **options: object) -> Resource:
        """Put content at a path."""
        self.resources[path] = Resource(content, **options)
        return self.resources[path]

    def ranges(self) -> list[str | None]:
        """The Range header of each request."""
        return [headers.get("range") for _, headers in self.requests]


@contextlib.contextmanager
def loopback() -> Iterator[Loopback]:
    """Run a server until the block ends."""
    state: Loopback

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state.requests.append(
                (self.path, {name.lower(): value for name, value in self.headers.items()})
            )
            resource = state.resources.get(self.path)
            if resource is None:
                return self.send_error(404)
            if resource.redirect:
                self.send_response(302)
                self.send_header("Location", resource.redirect)
                self.send_header("Content-Length", "0")
                return self.end_headers()
            fault = resource.faults.pop(0) if resource.faults else None
            if isinstance(fault, int):
                self.send_response(fault)
                self.send_header("Retry-After", "0")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            self.answer(resource, fault[1] if fault else None)

        def answer(self, resource: Resource, drop: int | None) -> None:
            content, start = resource.content, 0
            match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            same = (
                not resource.if_range
                or self.headers.get("If-Range", resource.etag) == resource.etag
            )
            if match and resource.ranges and same:
                start = int(match[1]) + resource.shift
                if start >= len(content):
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{len(content)}")
                    self.send_header("Content-Length", "0")
                    return self.end_headers()
                self.send_response(206)
                self.send_header(
                    "Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}"
                )
            else:
                self.send_response(200)
            if resource.etag:
                self.send_header("ETag", resource.etag)
            if resource.length:
                self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            body = content[start:]
            self.wfile.write(body if drop is None else body[:drop])
            self.close_connection = True

        def log_message(self, *args: object) -> None:
            """Keep the tests' output clean."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state = Loopback(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
    )
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
