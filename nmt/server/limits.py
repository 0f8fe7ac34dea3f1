"""Limits of the server: who may use it, how often, and how much at once."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network
from pathlib import Path

from starlette.exceptions import HTTPException

from nmt.core.errors import UsageError

MAX_CLIENTS = 10_000
"""Number of clients that are remembered before those with a full allowance are forgotten."""
ROUNDING = 1e-3
"""Difference of two times, in requests, that is only an error of rounding."""
MAX_CHARACTER_BYTES = 12
"""Maximum size of a character in a request: an escaped one outside of the Basic Multilingual
Plane."""
MAX_MARKUP_BYTES = 20
"""Maximum size of a file without compression, per character to translate. Parsing takes much more
memory."""
MAX_ELEMENTS_PER_CHARACTER = 2
"""Maximum number of lines, and of elements of markup, in a file, per character to translate."""
PARSE_SECONDS = 20
"""Maximum processor time to parse a file of the default maximum length. Usual ones take a few
seconds at most."""
FILE_MEMORY = 2**30
"""Maximum memory for such a file, in bytes."""
SMALL_FILE = 64 * 1024
"""Maximum size of a file, in bytes, for which a slot is kept free of larger files."""
MAX_OTHER_BYTES = 64 * 1024
"""Maximum size of the rest of a request."""
MAX_NAME_LENGTH = 100
IPV6_PREFIX = 64
"""Length of the prefix that IPv6 addresses of one client have in common."""


@dataclass(frozen=True)
class Limits:
    """Limits of requests."""

    max_length: int = 10_000
    """Maximum number of characters to translate in a request."""
    max_body: int = 10_000_000
    """Maximum size of a request with a file, in bytes."""
    max_file_length: int = 200_000
    """Maximum number of characters to translate in a file."""
    rate: int = 0
    """Maximum number of requests per minute of a client or key; 0: no limit."""
    max_concurrent: int = 100
    """Maximum number of requests translated or waiting at a time."""
    max_files: int = 4
    """Maximum number of files translated at a time."""
    max_waiting_files: int = 8
    """Maximum number of files that wait to be translated."""
    max_wait: float = 60
    """Maximum time for which they wait, in seconds."""
    max_html: int = 8
    """Maximum number of requests with HTML that are translated at a time."""
    max_uploads: int = 16
    """Maximum number of files received at a time."""
    keys: frozenset[bytes] = field(default_factory=frozenset)
    """SHA-256 digests of the API keys. If there are any, a request needs a key."""

    @property
    def max_unpacked_file(self) -> int:
        """Maximum size of a file in a format without compression, in bytes."""
        return MAX_MARKUP_BYTES * self.max_file_length

    @property
    def max_elements(self) -> int:
        """Maximum number of lines, and of elements of markup, in a file."""
        return MAX_ELEMENTS_PER_CHARACTER * self.max_file_length

    @property
    def file_scale(self) -> float:
        """How many times longer a file may be than by default."""
        return max(1.0, self.max_file_length / Limits.max_file_length)

    @property
    def max_text_body(self) -> int:
        """Maximum size of a request without a file, in bytes; sufficient for `max_length`
        characters."""
        return MAX_CHARACTER_BYTES * self.max_length + MAX_OTHER_BYTES

    def is_valid_key(self, key: str) -> bool:
        """Return whether an API key is valid. Comparing digests does not reveal which characters
        are right."""
        return sha256(key.encode()).digest() in self.keys


def read_keys(path: Path) -> frozenset[bytes]:
    """Return the SHA-256 digests of the API keys in a file with one per line. Blank lines and
    comments (#) are skipped.

    Raises:
        UsageError: the file cannot be read, has no key, or a line is not a key.
    """
    try:
        lines = list(map(str.strip, path.read_text(encoding="utf-8-sig").split("\n")))
    except OSError as error:
        hint = "name a file with one key per line"
        raise UsageError(f"cannot read --api-keys {path}: {error.strerror}", hint) from None
    except UnicodeDecodeError:
        raise UsageError(
            f"--api-keys {path} is not a text file in UTF-8", "write one key per line"
        ) from None
    keys = {
        number: line for number, line in enumerate(lines, 1) if line and not line.startswith("#")
    }
    for number, key in keys.items():
        if not key.isprintable() or " " in key:
            raise UsageError(
                f"--api-keys {path}, line {number}: not a key",
                "write one key per line, without spaces",
            )
    if not keys:
        raise UsageError(f"--api-keys {path} has no key", "write one key per line")
    return frozenset(sha256(key.encode()).digest() for key in keys.values())


def client_network(host: str) -> str:
    """Return the address of a client, for IPv6 the network that one client usually has, or what a
    proxy has instead."""
    try:
        address = ip_address(host)
    except ValueError:
        return host[:MAX_NAME_LENGTH]
    if isinstance(address, IPv6Address) and not address.is_link_local:
        address = (
            address.ipv4_mapped
            or ip_network((int(address), IPV6_PREFIX), strict=False).network_address
        )
    return str(address)


class RateLimiter:
    """A token bucket per client: it holds the requests of a minute and fills evenly."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute, self._clock = per_minute, clock
        self.full_at: dict[str, float] = {}
        """Time at which the bucket of each client is full again, in requests of the rate."""
        self._max_clients = MAX_CLIENTS

    def check(self, client: str) -> None:
        """Count a request.

        Raises:
            HTTPException: 429 with `Retry-After`, if the client has used its allowance.
        """
        if not self.per_minute:
            return
        per_second = self.per_minute / 60
        now = self._clock() * per_second
        if len(self.full_at) >= self._max_clients:
            self.full_at = {
                each: full for each, full in self.full_at.items() if full > now + ROUNDING
            }
            self._max_clients = max(MAX_CLIENTS, 2 * len(self.full_at))  # rarely: it takes time
        full_at = max(now, self.full_at.get(client, now)) + 1
        excess = full_at - now - self.per_minute - ROUNDING
        if excess > 0:
            raise HTTPException(
                429,
                f"too many requests: the limit is {self.per_minute} per minute",
                {"Retry-After": str(math.ceil(excess / per_second))},
            )
        self.full_at[client] = full_at


def busy() -> HTTPException:
    """Return the error of a request for which there is no slot."""
    return HTTPException(503, "the server is busy", {"Retry-After": "1"})


@dataclass(eq=False)
class _Waiting:
    client: str
    is_small: bool
    has_slot: asyncio.Event = field(default_factory=asyncio.Event)


class FairSlots:
    """Limits how many requests are handled at a time. Others may wait, and the client with the
    fewest slots is the next.

    If there are several slots, the last free one is for a small file, so that large ones cannot
    occupy all of them.
    """

    def __init__(self, count: int, max_waiting: int = 0, max_wait: float = 60) -> None:
        """Create slots; at most `max_waiting` requests wait, for at most `max_wait` seconds."""
        self._count, self._max_waiting, self.max_wait = count, max_waiting, max_wait
        self._waiting: list[_Waiting] = []
        self.occupied: Counter[str] = Counter()
        """Number of slots of each client."""

    @asynccontextmanager
    async def use(self, client: str, *, is_small: bool = True) -> AsyncIterator[None]:
        """Wait for a slot, and occupy it.

        Raises:
            HTTPException: 503 with `Retry-After`, if too many requests wait or the wait takes too
                long.
        """
        waiting = _Waiting(client, is_small)
        self._waiting.append(waiting)
        self._assign()
        try:
            if len(self._waiting) > self._max_waiting:
                raise busy()
            try:
                await asyncio.wait_for(waiting.has_slot.wait(), self.max_wait)
            except TimeoutError:
                raise busy() from None
            yield
        finally:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self.occupied[client] -= 1
                self.occupied += Counter()  # forgets clients without slots
            self._assign()

    def _assign(self) -> None:
        """Give free slots to requests that wait."""
        waiting = self._next()
        while waiting:
            self._waiting.remove(waiting)
            self.occupied[waiting.client] += 1
            waiting.has_slot.set()
            waiting = self._next()

    def _next(self) -> _Waiting | None:
        """Return the request that gets a free slot; None if no slot or request is left."""
        num_free = self._count - self.occupied.total()
        is_kept = num_free == 1 and self._count > 1
        candidates = [each for each in self._waiting if each.is_small or not is_kept]
        if not num_free or not candidates:
            return None
        return min(candidates, key=lambda each: self.occupied[each.client])  # the first of several
