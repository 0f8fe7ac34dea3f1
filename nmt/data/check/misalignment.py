"""Detection of misalignment: regions in which targets are a few lines above or below their sources,
or do not fit.

A region in which another hypothesis fits better than "line n translates line n" is found with a
cumulative sum of alignment scores (Page 1954). Shape suffixes: N pairs, H hypotheses, B blocks of
lines.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from nmt.data.arrays import Floats
from nmt.data.check.alignment_scores import SHIFTS, AlignmentScorer, Hypothesis
from nmt.data.check.feature_files import Lines

HYPOTHESES: tuple[Hypothesis, ...] = (*SHIFTS, None)
"""The first one is aligned."""
BLOCK_SIZE = 10
MIN_LINES = 200
"""Minimum number of lines of a corpus to search for misalignment."""
CHUNK_SIZE = 50_000
"""Lines that are scored at a time; a multiple of the block size."""
MIN_EVIDENCE = 20.0
"""Minimum log-likelihood ratio of a misaligned region; false alarms have a probability of e^-20 per
line."""
MAX_REGIONS = 100
MAX_DISTANCE = 3 * BLOCK_SIZE
"""Maximum number of lines between the estimated and the exact boundary of a region, and between
neighbors."""


@dataclass(frozen=True)
class Region:
    """Source line i in start <= i < end (from 0) fits target line i + shift, or no target if shift
    is None."""

    start: int
    end: int
    shift: Hypothesis


@dataclass(frozen=True, order=True)
class _Segment:
    """Consecutive blocks that fit a hypothesis better than "aligned"."""

    gain: float
    hypothesis: int
    start: int = 0
    end: int = 0


def find_misaligned_regions(lines: Lines, report: Callable[[int], object] = int) -> list[Region]:
    """Return the misaligned regions of a corpus in order; `report` is called with numbers of lines
    that have been scored."""
    num_lines = len(lines)
    if num_lines < MIN_LINES:
        return []
    scorer = AlignmentScorer(lines)
    if scorer.is_misaligned_throughout:
        return [Region(0, num_lines, None)]
    if not scorer.gap:
        return []
    regions: list[Region] = []
    gain_HB = _gains(scorer, report)
    while len(regions) < MAX_REGIONS:
        segments = []
        for i, gain_B in enumerate(gain_HB):
            segments.append(_best_segment(gain_B, i))
        best = max(segments)
        if best.gain < MIN_EVIDENCE:
            break
        # Each region is found once: its blocks are left out of all further segments.
        gain_HB[:, best.start : best.end] = -np.inf
        start = BLOCK_SIZE * best.start
        end = BLOCK_SIZE * best.end
        end = min(end, num_lines)
        shift = HYPOTHESES[best.hypothesis + 1]
        region = Region(start, end, shift)
        regions.append(_refine(scorer, region))
    regions.sort(key=lambda region: region.start)
    return _merge(scorer, regions)


def _gains(scorer: AlignmentScorer, report: Callable[[int], object]) -> Floats:
    """Return by how much each block fits every other hypothesis better than the first one, [H - 1,
    B]."""
    num_blocks = math.ceil(scorer.num_lines / BLOCK_SIZE)
    num_others = len(HYPOTHESES) - 1
    gain_HB = np.empty((num_others, num_blocks), np.float32)
    for start in range(0, scorer.num_lines, CHUNK_SIZE):
        end = start + CHUNK_SIZE
        end = min(end, scorer.num_lines)
        scores_HN = scorer.scores(start, end, HYPOTHESES)
        block_starts = range(0, end - start, BLOCK_SIZE)
        sums_HB = np.add.reduceat(scores_HN, block_starts, axis=1)
        aligned_B = sums_HB[0]
        others_HB = sums_HB[1:]
        first_block = start // BLOCK_SIZE
        end_block = first_block + len(block_starts)
        gain_HB[:, first_block:end_block] = others_HB - aligned_B
        report(end - start)
    # Scores are log-likelihood ratios, so a fitting line scores higher than another by `gap` on
    # average.
    gain_HB[:-1] -= BLOCK_SIZE * scorer.gap / 2
    return gain_HB


def _best_segment(gain_B: Floats, hypothesis: int) -> _Segment:
    """Return the consecutive blocks with the largest sum, without those of gain -inf."""
    best = _Segment(-np.inf, hypothesis)
    is_open_B = np.isfinite(gain_B)
    changes = np.diff(is_open_B, prepend=False, append=False)
    edges = np.flatnonzero(changes)
    for first, end in edges.reshape(-1, 2).tolist():
        # The sum of blocks i to j is the difference of two cumulative sums, so the best start of a
        # segment that ends at j is where the cumulative sum was lowest before.
        num_sums = end - first + 1
        sums = np.zeros(num_sums)
        np.cumsum(gain_B[first:end], out=sums[1:])
        lowest = np.minimum.accumulate(sums)
        last = int(np.argmax(sums - lowest))
        start = int(np.argmin(sums[: last + 1]))
        gain = sums[last] - sums[start]
        segment = _Segment(gain, hypothesis, first + start, first + last)
        best = max(best, segment)
    return best


def _refine(scorer: AlignmentScorer, region: Region) -> Region:
    """Move both ends of a region to the exact line."""
    start = _find_boundary(scorer, region.start, 0, region.shift)
    end = _find_boundary(scorer, region.end, region.shift, 0)
    end = max(start + 1, end)
    if scorer.num_lines - end <= BLOCK_SIZE:  # no target line is left that could fit
        end = scorer.num_lines
    return Region(start, end, region.shift)


def _find_boundary(
    scorer: AlignmentScorer, line: int, before: Hypothesis, after: Hypothesis
) -> int:
    """Return the line near `line` from which on the hypothesis `after` fits better than
    `before`."""
    if line in (0, scorer.num_lines):
        return line
    low = max(0, line - MAX_DISTANCE)
    high = min(scorer.num_lines, line + MAX_DISTANCE)
    before_N, after_N = scorer.scores(low, high, (before, after))
    # The gain of `after` in all lines before the boundary is lowest.
    gain_N = np.cumsum(after_N - before_N)
    gains = np.r_[0.0, gain_N]
    offset = np.argmin(gains)
    return low + int(offset)


def _merge(scorer: AlignmentScorer, regions: list[Region]) -> list[Region]:
    """Merge neighboring regions with equal shifts, and find the exact boundary of neighbors with
    different shifts."""
    merged: list[Region] = []
    for region in regions:
        distance = region.start - merged[-1].end if merged else math.inf
        if distance > MAX_DISTANCE:
            merged.append(region)
            continue
        previous = merged.pop()
        if previous.shift == region.shift:
            merged.append(replace(previous, end=region.end))
            continue
        middle = (previous.end + region.start) // 2
        boundary = _find_boundary(scorer, middle, previous.shift, region.shift)
        boundary = max(boundary, previous.start + 1)
        boundary = min(boundary, region.end - 1)
        merged.append(replace(previous, end=boundary))
        merged.append(replace(region, start=boundary))
    return merged
