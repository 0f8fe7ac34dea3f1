"""Faults of parallel text that cost a training, found before it: the text is examined once, and little of it is kept.

Each pair leaves a record of fixed size in a temporary file (`features.RECORD`); what needs a pair's company
(repetitions, lengths unlike the rest, misaligned lines) is found in those. Examples are read again. Letters: N
pairs.
"""

from __future__ import annotations

import bisect
import itertools
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nmt.console import progress
from nmt.data.check import checks as kinds
from nmt.data.check.alignment import length_deviations, stretches
from nmt.data.check.checks import BITS, KINDS, bits
from nmt.data.check.duplicates import repeats
from nmt.data.check.features import RECORD, Records, Setup, TestIndex, examine, mended
from nmt.data.check.report import Example, Finding, Report, Text
from nmt.data.pairs import Pair, UnequalLengthsError
from nmt.errors import DataError, NMTError

CHUNK = 5_000
"""Pairs that go to a worker at a time."""
FACTOR, DEVIATIONS = 1.5, 4.0
"""A side's length is out of the ordinary if it is off by more than this factor and this many standard deviations from
the median ratio of pairs of its length."""
SHOWN = 200
"""Characters of a side that an example shows."""


def check(
    texts: Sequence[Text],
    tests: Sequence[tuple[str, Sequence[Pair]]],
    languages: tuple[str, str],
    *,
    ignore: Iterable[str] = (),
    examples: int = 5,
) -> Report:
    """Look for every kind of fault.

    Args:
        texts: training text; repetitions are looked for across all of them.
        tests: test sets by name, whose sentences must not be in the text.
        languages: codes of source and target; an empty one is not checked.
        ignore: names of kinds that do not count.
        examples: how many to keep of each kind.

    Raises:
        DataError: nothing to read, or text that is damaged.
    """
    skipped = set(ignore)
    setup = Setup(languages, TestIndex.of(tests))
    with tempfile.TemporaryFile() as store:
        sizes, unequal = [], []
        total = sum(text.count or 0 for text in texts) if all(text.count is not None for text in texts) else None
        with progress(total, "checking", " pairs", unit_scale=True) as bar:
            for text in texts:
                size = 0
                reading = _Reading(text)
                for records in _examined(reading, setup):
                    store.write(records.tobytes())
                    size += len(records)
                    bar.update(len(records))
                sizes.append(size)
                unequal.append(reading.unequal)
        if not sum(sizes):
            raise DataError("there is no pair to check", "is a file empty?")
        store.flush()
        records = np.memmap(store, RECORD, mode="r")
        return _judge(records, texts, sizes, unequal, tests, setup, skipped, examples)


class _Reading:
    """The pairs of a text; that one side is longer is noted and not an error."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.unequal = ""

    def __iter__(self) -> Iterator[Pair]:
        try:
            yield from self.text.pairs()
        except UnequalLengthsError as error:
            self.unequal = error.message


def _examined(pairs: Iterable[Pair], setup: Setup) -> Iterator[Records]:
    """Yield records in order, examined by as many processes as there are processors."""
    chunks = _batched(pairs)
    first = list(itertools.islice(chunks, 2))
    workers = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if len(first) < 2 or workers == 1:
        yield from (examine(chunk, setup) for chunk in itertools.chain(first, chunks))
        return
    context = multiprocessing.get_context("spawn")  # a fork would copy whatever threads and locks there are
    with ProcessPoolExecutor(workers, context, _begin, (setup,)) as pool:
        waiting: list[Future[Records]] = []
        try:
            pool.submit(int).result()  # where processes cannot start, to hand them text would wait forever
            for chunk in itertools.chain(first, chunks):
                waiting.append(pool.submit(_work, chunk))
                if len(waiting) > 2 * workers:  # no more text in memory than is being worked on
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        except BrokenProcessPool:
            raise NMTError("a process of the check ended unexpectedly", "was there memory enough?") from None
        finally:
            for future in waiting:
                future.cancel()


def _batched(pairs: Iterable[Pair]) -> Iterator[tuple[Pair, ...]]:
    stream = iter(pairs)
    while chunk := tuple(itertools.islice(stream, CHUNK)):
        yield chunk


_setup: Setup


def _begin(setup: Setup) -> None:
    global _setup
    _setup = setup


def _work(pairs: Sequence[Pair]) -> Records:
    return examine(pairs, _setup)


Note = Callable[[int], str]
"""What an example says besides its text, given the pair's number."""


def _judge(
    records: Records, texts: Sequence[Text], sizes: Sequence[int], unequal: Sequence[str],
    tests: Sequence[tuple[str, Sequence[Pair]]], setup: Setup, skipped: set[str], examples: int,
) -> Report:  # fmt: skip
    """Find what shows in company only, and gather everything."""
    faults_N = np.array(records["faults"])
    starts = [0, *itertools.accumulate(sizes)]
    places = _Places([text.name for text in texts], starts)
    for first, end in pairwise(starts):
        _mark_ratios(records[first:end], faults_N[first:end])
    notes = _mark_repeats(records, faults_N, places)
    for kind in (kinds.OVERLAP, kinds.NEAR_OVERLAP):
        notes[kind.name] = lambda number: setup.tests.place(int(records["test"][number]))
    for name in skipped & BITS.keys():
        faults_N &= np.uint32(~BITS[name] & 0xFFFFFFFF)
    misaligned_N, findings = np.zeros(len(records), bool), []
    if kinds.UNEQUAL.name not in skipped:
        findings += _unequal(texts, sizes, unequal)
    if kinds.MISALIGNED.name not in skipped:
        findings += _misaligned(records, texts, starts, misaligned_N)
    findings += _found(faults_N, texts, starts, notes, examples)
    names = list(zip(places.names, sizes, strict=True))
    return Report(
        names, [(name, len(pairs)) for name, pairs in tests], setup.languages, findings, faults_N, misaligned_N
    )


@dataclass(frozen=True)
class _Places:
    """Where pairs stand that are numbered through all texts."""

    names: Sequence[str]
    starts: Sequence[int]

    def __call__(self, number: int) -> str:
        which = bisect.bisect_right(self.starts, number) - 1
        line = f"line {number - self.starts[which] + 1:,}"
        return f"{line} of {self.names[which]}" if len(self.names) > 1 else line


def _unequal(texts: Sequence[Text], sizes: Sequence[int], unequal: Sequence[str]) -> list[Finding]:
    parts = zip(texts, sizes, unequal, strict=True)
    found = [Example(text.name, size + 1, "", "", message) for text, size, message in parts if message]
    return [Finding(kinds.UNEQUAL, len(found), found)] if found else []


def _misaligned(
    records: Records, texts: Sequence[Text], starts: Sequence[int], misaligned_N: NDArray[np.bool_]
) -> list[Finding]:
    """Find where each text is misaligned; those pairs are marked in `misaligned_N`."""
    examples = []
    for text, (first, end) in zip(texts, pairwise(starts), strict=True):
        for stretch in stretches(records[first:end]):
            misaligned_N[first + stretch.first : first + stretch.end] = True
            note = f"from line {stretch.first + 1:,} to {stretch.end:,} {_where(stretch.shift)}"
            examples.append(Example(text.name, stretch.first + 1, "", "", note))
    return [Finding(kinds.MISALIGNED, int(misaligned_N.sum()), examples)] if examples else []


def _where(shift: int | None) -> str:
    if shift is None:
        return "no target fits its source"
    lines = "1 line" if abs(shift) == 1 else f"{abs(shift)} lines"
    return f"the target is {lines} {'late' if shift > 0 else 'early'}"


def _mark_repeats(records: Records, faults_N: NDArray[np.uint32], places: _Places) -> dict[str, Note]:
    """Mark what repeats an earlier pair; return what examples of each kind say."""
    notes: dict[str, Note] = dict.fromkeys(BITS, lambda _: "")
    found = repeats(records, faults_N & BITS[kinds.BLANK.name] == 0)
    for kind, earlier_N in (
        (kinds.DUPLICATE, found.same_N), (kinds.NEAR_DUPLICATE, found.near_N), (kinds.MANY_TARGETS, found.source_N),
    ):  # fmt: skip
        faults_N[earlier_N >= 0] |= BITS[kind.name]
        notes[kind.name] = partial(_as_earlier, earlier_N, places)
    return notes


def _as_earlier(earlier_N: NDArray[np.int64], places: _Places, number: int) -> str:
    return f"as {places(int(earlier_N[number]))}"


def _found(
    faults_N: NDArray[np.uint32], texts: Sequence[Text], starts: Sequence[int], notes: dict[str, Note], examples: int
) -> list[Finding]:
    """Count the faults of single pairs, and read the texts once more for the first of each kind."""
    findings = []
    wanted: dict[int, list[Finding]] = {}
    for kind in KINDS:
        numbers = np.flatnonzero(faults_N & BITS[kind.name]) if not kind.whole else ()
        if len(numbers):
            findings.append(Finding(kind, len(numbers)))
            for number in numbers[:examples]:
                wanted.setdefault(int(number), []).append(findings[-1])
    for text, (first, end) in zip(texts, pairwise(starts), strict=True):
        for number, (source, target) in _pick(text, first, [n for n in wanted if first <= n < end]):
            for finding in wanted[number]:
                note = notes[finding.kind.name](number)
                shown = Example(text.name, number - first + 1, source[:SHOWN], target[:SHOWN], note)
                finding.examples.append(shown)
    return findings


def _mark_ratios(records: Records, faults_N: NDArray[np.uint32]) -> None:
    if not len(records):
        return
    seen = faults_N & BITS[kinds.BLANK.name] == 0
    chars_N2 = records["chars"]
    off_N, spread_N = length_deviations(chars_N2, seen if seen.any() else ~seen)
    faults_N[seen & (np.abs(off_N) > np.maximum(np.log(FACTOR), DEVIATIONS * spread_N))] |= BITS[kinds.RATIO.name]


def _pick(text: Text, first: int, numbers: Sequence[int]) -> Iterator[tuple[int, Pair]]:
    """Read a text once more as far as needed and yield the pairs of some numbers, which count from `first`."""
    left = set(numbers)
    for number, pair in enumerate(_Reading(text), first):
        if not left:
            return
        if number in left:
            left.remove(number)
            yield number, pair


def mend(texts: Sequence[Text], report: Report) -> Iterator[Pair]:
    """Yield the pairs that are left when faults are mended: some dropped, some rewritten; see `Kind.mend`."""
    rewrites = bits("rewrite")
    pairs = itertools.chain.from_iterable(map(_Reading, texts))
    for (source, target), faults, dropped in zip(
        pairs, report.faults_N.tolist(), report.dropped_N.tolist(), strict=True
    ):
        if not dropped:
            yield (mended(source), mended(target)) if faults & rewrites else (source, target)
