"""A server of translations in a thread, and models that tests can hold and inspect."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence

import httpx

from nmt import Guard, Line, Translation
from nmt.server import http
from nmt.server.access import Access
from nmt.server.app import create_app
from nmt.server.limits import Limits
from nmt.server.service import Service


class GatedGuard(Guard):
    """A model that translates only while its gate is open, and remembers its batches."""

    def __init__(self, guard: Guard) -> None:
        super().__init__(guard.translator)
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.batches: list[tuple[list[str], str | None, bool]] = []
        self.error_on = ""

    def stream(
        self,
        chunks: Iterable[Sequence[str | Line]],
        search: str | None = None,
        *,
        details: bool = False,
        on_progress: Callable[[int], object] = lambda lines: None,
    ) -> Iterator[list[Translation]]:
        chunks = [list(chunk) for chunk in chunks]
        texts = [line if isinstance(line, str) else line.text for chunk in chunks for line in chunk]
        self.batches.append((texts, search, details))
        self.entered.set()
        self.gate.wait()
        if self.error_on and any(self.error_on in text for text in texts):
            raise RuntimeError(f"cannot translate {self.error_on}")
        return super().stream(chunks, search, details=details, on_progress=on_progress)


@contextlib.contextmanager
def serving(
    service: Service, limits: Limits | None = None, proxies: Sequence[str] = (), access: Access | None = None
) -> Iterator[httpx.Client]:
    """Run a server until the block ends, and yield a client for it."""
    with http.listen("127.0.0.1", 0) as listener:
        server = http.make_server(create_app(service, limits or Limits(), access), proxies)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            with httpx.Client(base_url=http.url(listener), timeout=60, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()
