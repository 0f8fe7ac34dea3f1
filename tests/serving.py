"""A server of translations in a thread, and models that tests can hold and inspect."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import httpx

from nmt import Translator
from nmt.engines import Source, TokenScores
from nmt.search import Hypothesis, Search
from nmt.server import http
from nmt.server.access import Access
from nmt.server.app import create_app
from nmt.server.limits import Limits
from nmt.server.service import Service


class GatedEngine:
    """An engine that searches only while its gate is open, and remembers its batches."""

    def __init__(self, translator: Translator) -> None:
        self._engine, self._tokenizer = translator.engine, translator.tokenizer
        self.max_positions = self._engine.max_positions
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()
        self.batches: list[tuple[list[str], Search]] = []
        self.num_scored = 0
        self.error_on = ""

    def search(
        self, sources: Sequence[Source], search: Search, on_progress: Callable[[int], object]
    ) -> list[list[Hypothesis]]:
        texts = self._tokenizer.decode_batch([source.ids for source in sources])
        self.batches.append((texts, search))
        self.entered.set()
        self.gate.wait()
        if self.error_on and any(self.error_on in text for text in texts):
            raise RuntimeError(f"cannot translate {self.error_on}")
        return self._engine.search(sources, search, on_progress)

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        self.num_scored += len(sources)
        return self._engine.score(sources, targets)


@contextlib.contextmanager
def serving(
    service: Service,
    limits: Limits | None = None,
    proxies: Sequence[str] = (),
    access: Access | None = None,
    *,
    access_log: bool = False,
) -> Iterator[httpx.Client]:
    """Run a server until the block ends, and yield a client for it."""
    with http.listen("127.0.0.1", 0) as listener:
        app = create_app(service, limits or Limits(), access, access_log=access_log)
        server = http.make_server(app, proxies)
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            with httpx.Client(base_url=http.url(listener), timeout=60, trust_env=False) as client:
                yield client
        finally:
            server.should_exit = True
            thread.join()


def connect(client: httpx.Client) -> socket.socket:
    """Return another connection to the server of a client."""
    return socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=60)


def until(condition: Callable[[], bool]) -> None:
    """Wait for the effect of something that has happened."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)
