"""Lines in, lines out: batches, search and everything that keeps order, count and content.

What validation, evaluation and a user's translation have in common is this path; there is no other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import TypeVar

import torch

from nmt import checkpoint, runtime
from nmt.config import Config
from nmt.data.batching import collate_source
from nmt.data.segment import segments
from nmt.errors import NMTError
from nmt.model.inference import for_inference
from nmt.model.transformer import Transformer
from nmt.search import Hypothesis, Search, Task, search
from nmt.text import normalize
from nmt.tokenizer import BOS, EOS, Tokenizer

T = TypeVar("T")
R = TypeVar("R")
WINDOW = 4096
"""Lines that are sorted by length together: bounds memory, whatever the input's length."""
BATCH_TOKENS = 8192
"""Source tokens of one batch, padding counted."""
BATCH_ROWS = 512
"""Rows that are searched together: sentences times beams."""


@dataclass(frozen=True)
class Translation:
    """One translation of one line."""

    text: str
    score: float
    """Normalised log-probability; over the pieces of a long line, their sum."""


class Translator:
    """A model, its tokenizer and a device, ready to translate."""

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        config: Config,
        device: torch.device,
        max_source: int,
        precision: str = "auto",
    ) -> None:
        """Put the parts together; input of more than `max_source` tokens is cut.

        Raises:
            UsageError: unknown precision, or one that the device has not.
        """
        self.tokenizer, self.config, self.device = tokenizer, config, device
        self.model = for_inference(model, runtime.precision(precision, device))
        self.max_source = max_source
        self.origin = self.run = Path()

    @classmethod
    def load(cls, path: Path | str, device: str = "auto", precision: str = "auto") -> Translator:
        """Load a run or a checkpoint.

        Raises:
            CheckpointError: see `nmt.checkpoint.load`.
            UsageError: no such device, or a precision that it has not.
        """
        where = runtime.device(device)
        runtime.keep_freed_memory()
        loaded = checkpoint.load(Path(path))
        translator = cls(loaded.model.to(where), loaded.tokenizer, loaded.config, where, loaded.max_source, precision)
        translator.origin, translator.run = loaded.checkpoint, loaded.run
        return translator

    def translate(self, lines: Iterable[str], spec: str | None = None) -> Iterator[list[Translation]]:
        """Yield each line's translations, best first, in the order of the lines.

        As many come out as go in: a blank line gives an empty translation, and a line longer than the model was
        trained for is cut at sentence or clause boundaries, translated in pieces and joined.

        Args:
            lines: source text, one sentence (or more) a line.
            spec: search, such as `beam(size=4)`; None takes the one in the model's config.

        Raises:
            ConfigError: unknown search or option.
        """
        return self.translate_windows(in_windows(lines), spec)

    def translate_windows(self, windows: Iterable[list[str]], spec: str | None = None) -> Iterator[list[Translation]]:
        """Do as `translate` does, for lines that come in groups; the lines of a group are batched together."""
        find = search(self.config.search if spec is None else spec)
        return chain.from_iterable(self._window(window, find) for window in windows)

    def _window(self, lines: Sequence[str], find: Search) -> list[list[Translation]]:
        pieces_of = [self._pieces(line) for line in lines]
        flat = [ids for pieces in pieces_of for ids in pieces]
        found = iter(self._search(flat, find))
        return [self._join([next(found) for _ in pieces]) for pieces in pieces_of]

    def _pieces(self, line: str) -> list[list[int]]:
        text = normalize(line)
        if not text:
            return []
        ids = self.tokenizer.encode(text)
        if len(ids) <= self.max_source:
            return [ids]
        parts = segments(text, self.config.data.src, lambda t: len(self.tokenizer.encode(t)) <= self.max_source)
        return [self.tokenizer.encode(part) for part in parts]

    def _join(self, pieces: list[list[Hypothesis]]) -> list[Translation]:
        if not pieces:
            return [Translation("", 0.0)]
        best = []
        for rank in range(max(map(len, pieces))):
            chosen = [hypotheses[min(rank, len(hypotheses) - 1)] for hypotheses in pieces]
            text = " ".join(self.tokenizer.decode(hypothesis.ids) for hypothesis in chosen)
            best.append(Translation(text, sum(hypothesis.score for hypothesis in chosen)))
        return best

    def _search(self, sources: Sequence[list[int]], find: Search) -> list[list[Hypothesis]]:
        batches = list(_batches([len(ids) for ids in sources], max(1, BATCH_ROWS // find.rows)))

        def work(numbers: list[int]) -> list[list[Hypothesis]]:
            return self._search_batch([sources[i] for i in numbers], find)

        found: list[list[Hypothesis]] = [[]] * len(sources)
        for numbers, results in zip(batches, self._side_by_side(work, batches), strict=True):
            for i, hypotheses in zip(numbers, results, strict=True):
                found[i] = hypotheses
        return found

    def _side_by_side(self, work: Callable[[T], R], parts: Sequence[T]) -> list[R]:
        """Do the parts of some work; on a CPU each on a core of its own, since cores that share one product wait."""
        threads = torch.get_num_threads()
        if self.device.type != "cpu" or min(threads, len(parts)) <= 1:
            return [work(part) for part in parts]
        pool = ThreadPoolExecutor(min(threads, len(parts)), initializer=torch.set_num_threads, initargs=(1,))
        try:
            return list(pool.map(work, parts))
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(threads)  # part of what a thread sets holds for all

    @torch.inference_mode()  # for each thread
    def _search_batch(self, sources: Sequence[list[int]], find: Search) -> list[list[Hypothesis]]:
        """Search for some sentences together, or for one half after the other where memory does not suffice."""
        src_BS, src_mask_BS = collate_source(sources)
        most_B = 2 * src_mask_BS.sum(1) + 10  # of each sentence alone: company must not change a translation
        try:
            src_BS, src_mask_BS, most_B = (tensor.to(self.device) for tensor in (src_BS, src_mask_BS, most_B))
            return find(self.model, Task(src_BS, src_mask_BS, most_B, BOS, EOS))
        except RuntimeError as error:
            if not runtime.is_out_of_memory(error):
                raise
        if len(sources) == 1:
            raise NMTError("translating this sentence does not fit into memory", "use fewer beams: --beam-size")
        middle = len(sources) // 2
        return self._search_batch(sources[:middle], find) + self._search_batch(sources[middle:], find)


def in_windows(lines: Iterable[str]) -> Iterator[list[str]]:
    """Group lines of a file: as many as are sorted together."""
    stream = iter(lines)
    while window := list(islice(stream, WINDOW)):
        yield window


def as_they_come(lines: Iterable[str]) -> Iterator[list[str]]:
    """Group lines of a stream by arrival: a typed line is answered at once, and a fast pipe still fills batches."""
    arrived: Queue[str | Exception | None] = Queue(WINDOW)

    def read() -> None:
        try:
            for line in lines:
                arrived.put(line)
            arrived.put(None)
        except Exception as error:  # raised where it can be reported, after the lines before it
            arrived.put(error)

    Thread(target=read, daemon=True).start()
    last: str | Exception | None = ""
    while isinstance(last, str):
        window = []
        last = arrived.get()
        while isinstance(last, str):
            window.append(last)
            if len(window) == WINDOW or arrived.empty():
                break
            last = arrived.get()
        if window:
            yield window
    if last is not None:
        raise last


def _batches(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Group sentence numbers of similar length, longest first, so that running out of memory happens at once."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) == most or (len(batch) + 1) * (lengths[batch[0]] + 1) > BATCH_TOKENS):
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch
