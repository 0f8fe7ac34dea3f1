"""Problems that are found by comparing the lines of a corpus with each other: unusual length ratios
and misalignment. Shape suffixes: N pairs, M sampled pairs."""

from __future__ import annotations

import json
from collections.abc import Container, Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np

from nmt.core.console import progress
from nmt.core.paths import write_bytes, write_text
from nmt.data.arrays import Bools, Indices, Integers
from nmt.data.check import checks
from nmt.data.check.feature_files import Lines
from nmt.data.check.lengths import MAX_SAMPLE, LengthBins
from nmt.data.check.misalignment import Region, find_misaligned_regions

MIN_FACTOR, MIN_DEVIATIONS = 1.5, 4.0
"""A length ratio is unusual if it differs from the median of pairs of similar length by more than
this factor and by more than this number of standard deviations."""
PART_SIZE = 100_000
"""Pairs whose features are in memory at a time."""


def find_line_problems(
    corpora: Sequence[Lines], problems: Path, ignored: Container[str], regions: Path
) -> list[list[Region]]:
    """Mark unusual length ratios, and return the misaligned regions of each corpus.

    The features of the lines are deleted, so that they need no disk while duplicates are searched.

    Args:
        corpora: the features of the lines of each corpus.
        problems: file of the problems of all pairs, which is changed.
        ignored: names of checks to skip.
        regions: file of the regions; if it exists, an interrupted call has found everything.
    """
    if not regions.is_file():
        found = _find(corpora, problems, ignored)
        content = [[astuple(region) for region in of_corpus] for of_corpus in found]
        write_text(regions, json.dumps(content))
    for lines in corpora:
        lines.delete()
    content = json.loads(regions.read_text(encoding="utf-8"))
    return [[Region(*values) for values in of_corpus] for of_corpus in content]


def _find(corpora: Sequence[Lines], problems: Path, ignored: Container[str]) -> list[list[Region]]:
    regions: list[list[Region]] = []
    problems_N = np.fromfile(problems, np.uint16)
    end = 0
    num_lines = sum(map(len, corpora))
    with progress(num_lines, "comparing lines", " pairs", unit_scale=True) as bar:
        for lines in corpora:
            start = end
            end += len(lines)
            if checks.LENGTH_RATIO.name not in ignored:
                _mark_length_ratios(lines, problems_N[start:end])
            is_ignored = checks.MISALIGNED.name in ignored
            regions.append([] if is_ignored else find_misaligned_regions(lines, bar.update))
    write_bytes(problems, problems_N.tobytes())
    return regions


def _mark_length_ratios(lines: Lines, problems_N: Integers) -> None:
    mask_N = problems_N & checks.BLANK.bit == 0
    if not mask_N.any():
        return
    sample_M = lines[_sample(mask_N)]
    bins = LengthBins.fit(sample_M["chars"])
    for start in range(0, len(lines), PART_SIZE):
        end = min(start + PART_SIZE, len(lines))
        lines_N = lines[np.arange(start, end)]
        deviation_N, spread_N = bins.deviations(lines_N["chars"])
        max_deviation_N = np.maximum(np.log(MIN_FACTOR), MIN_DEVIATIONS * spread_N)
        is_unusual_N = np.abs(deviation_N) > max_deviation_N
        is_unusual_N &= mask_N[start:end]
        problems_N[start:end][is_unusual_N] |= checks.LENGTH_RATIO.bit


def _sample(mask_N: Bools) -> Indices:
    """Return at most `MAX_SAMPLE` indices of the mask at equal distances."""
    step = 1 + int(mask_N.sum()) // MAX_SAMPLE
    samples = []
    num_seen = 0
    for start in range(0, len(mask_N), PART_SIZE):
        inside = start + np.flatnonzero(mask_N[start : start + PART_SIZE])
        # The first one whose number is a multiple of the step.
        first = -num_seen % step
        samples.append(inside[first::step])
        num_seen += len(inside)
    return np.concatenate(samples)
