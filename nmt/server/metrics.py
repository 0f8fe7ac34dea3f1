"""Metrics of the server in the format of Prometheus. They contain no text and no addresses."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

__all__ = ["CONTENT_TYPE_LATEST", "Metrics"]
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """Counts requests, characters and batches."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "nmt_requests", "Requests answered", ["path", "status"], registry=registry
        )
        self.seconds = Histogram(
            "nmt_request_seconds", "Time from request to answer", ["path"], registry=registry
        )
        self.in_flight = Gauge(
            "nmt_requests_in_flight", "Requests being answered", registry=registry
        )
        self.characters = Counter(
            "nmt_characters", "Characters to translate", ["source", "target"], registry=registry
        )
        self.batch_lines = Histogram(
            "nmt_batch_lines",
            "Lines translated together",
            ["source", "target"],
            buckets=BATCH_SIZES,
            registry=registry,
        )

    def render(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
