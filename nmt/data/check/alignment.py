"""Whether the sides of a text run apart: from which line on, and by how many lines.

Every line is scored against the target lines around its own by two signs: how its words go with the other's words,
learned from the text itself, and how their lengths agree. Where for a while another line fits better than the line's
own, the text has shifted (a cumulative sum, Page 1954). Letters: N pairs, K shifts, B blocks of lines, V buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nmt.data.check.features import Records

SHIFTS = (0, *(sign * shift for shift in range(1, 9) for sign in (1, -1)))
"""By how many lines the target may be late; 0 is where it should be."""
FAR = (-41, 23, 37)
"""Shifts at which nothing belongs together."""
BLOCK = 10
FOLD = 500
"""Lines that are scored by what was learned from others: a line fits itself best, whatever it says."""
LEAST = 200
"""Lines below which nothing can be said."""
SAMPLE = 100_000
CHUNK = 50_000
SURE = 20.0
"""Evidence (log-likelihood ratio) that a stretch must have: by chance once in e^20 lines."""
MOST = 100
"""Stretches told."""
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Stretch:
    """Source line i of first <= i < end (from 0) fits target line i + shift."""

    first: int
    end: int
    shift: int


def stretches(records: Records) -> list[Stretch]:
    """Return where the sides of one text are apart, in order."""
    if len(records) < LEAST:
        return []
    scorer = _Scorer(records)
    shifts_S = (*SHIFTS, *FAR)
    blocks = -(-len(records) // BLOCK)
    sums_SB = np.zeros((len(shifts_S), blocks), np.float32)
    for first in range(0, len(records), CHUNK):
        scores_SN = scorer.scores(first, min(first + CHUNK, len(records)), shifts_S)
        starts = np.arange(0, scores_SN.shape[1], BLOCK)
        sums_SB[:, first // BLOCK : first // BLOCK + len(starts)] = np.add.reduceat(scores_SN, starts, axis=1)
    gain_SB = sums_SB[1 : len(SHIFTS)] - sums_SB[0]
    # Scores are log-likelihood ratios, so a fitting line stands above a strange one by `gap` on the average.
    gap = max(float((sums_SB[: len(SHIFTS)].mean(1) - sums_SB[len(SHIFTS) :].mean()).max()), 0.0)
    gain_SB -= gap / 2
    found: list[Stretch] = []
    while gap and len(found) < MOST:
        gain, shift, first, end = max(
            _best_run(gain_B, shift) for gain_B, shift in zip(gain_SB, SHIFTS[1:], strict=True)
        )
        if gain < SURE:
            break
        found.append(_refined(scorer, Stretch(BLOCK * first, min(BLOCK * end, len(records)), shift)))
        gain_SB[:, first:end] = -np.inf
    return list(_merged(scorer, sorted(found, key=lambda stretch: stretch.first)))


def _best_run(gain_B: Floats, shift: int) -> tuple[float, int, int, int]:
    """Return the largest sum of neighbours, the shift, and where they begin and end."""
    best = (-np.inf, shift, 0, 0)
    edges = np.flatnonzero(np.isneginf(gain_B))
    for first, end in zip((0, *(edges + 1)), (*edges, len(gain_B)), strict=True):
        if first == end:
            continue
        sums = np.r_[0.0, np.cumsum(gain_B[first:end], dtype=np.float64)]
        lowest = np.minimum.accumulate(sums)
        last = int(np.argmax(sums - lowest))
        start = int(np.argmin(sums[: last + 1]))
        best = max(best, (float(sums[last] - sums[start]), shift, int(first + start), int(first + last)))
    return best


def _refined(scorer: _Scorer, stretch: Stretch) -> Stretch:
    """Move both ends of a stretch to the very line."""
    first = _turn(scorer, stretch.first, 0, stretch.shift)
    end = max(first + 1, _turn(scorer, stretch.end, stretch.shift, 0))
    # The last lines of a text have no line left that would fit them.
    return Stretch(first, scorer.lines if scorer.lines - end <= BLOCK else end, stretch.shift)


def _turn(scorer: _Scorer, near: int, before: int, after: int) -> int:
    """Return the line around `near` from which shift `after` fits better than `before`."""
    low, high = max(0, near - 3 * BLOCK), min(scorer.lines, near + 3 * BLOCK)
    if near in (0, scorer.lines):
        return near
    scores_2N = scorer.scores(low, high, (before, after))
    return low + int(np.argmin(np.r_[0.0, np.cumsum(scores_2N[1] - scores_2N[0])]))


def _merged(scorer: _Scorer, found: list[Stretch]) -> Iterator[Stretch]:
    """Join stretches of one shift that follow each other closely; part those of two where one turns to the other."""
    held: Stretch | None = None
    for stretch in found:
        if held and held.shift == stretch.shift and stretch.first - held.end <= 3 * BLOCK:
            held = Stretch(held.first, stretch.end, held.shift)
            continue
        if held and stretch.first - held.end <= 3 * BLOCK:
            middle = (held.end + stretch.first) // 2
            turn = min(max(_turn(scorer, middle, held.shift, stretch.shift), held.first + 1), stretch.end - 1)
            held, stretch = replace(held, end=turn), replace(stretch, first=turn)
        if held:
            yield held
        held = stretch
    if held:
        yield held


class _Scorer:
    """How well source lines fit target lines, as a log-likelihood ratio of fitting against not."""

    def __init__(self, records: Records) -> None:
        self.records, self.lines = records, len(records)
        self.ratio = length_ratio(records["chars"][:: max(1, self.lines // SAMPLE)])
        self.lexicons = [self._lexicon(fold) for fold in (0, 1)]
        self.weights = self._weights()

    def scores(self, first: int, end: int, shifts_S: tuple[int, ...]) -> Floats:
        """Return the scores of source lines first to end under each shift, [S, lines]."""
        parts_2SN = self._parts(np.arange(first, end), shifts_S)
        scores_SN: Floats = np.tensordot(self.weights, parts_2SN, 1).astype(np.float32)
        return scores_SN

    def _parts(self, lines_N: NDArray[np.int64], shifts_S: tuple[int, ...]) -> Floats:
        expected_NV = self._expected(lines_N)
        parts_2SN = np.empty((2, len(shifts_S), len(lines_N)), np.float32)
        low, high = max(0, int(lines_N[0]) - 64), min(self.lines, int(lines_N[-1]) + 65)
        target_MV = _unit(self.records["words"][low:high, 1])
        for row, shift in enumerate(shifts_S):
            others_N = np.clip(lines_N + shift, 0, self.lines - 1)
            parts_2SN[0, row] = np.einsum("nv,nv->n", expected_NV, target_MV[others_N - low])
            parts_2SN[1, row] = self._length_fit(lines_N, others_N)
        return parts_2SN

    def _expected(self, lines_N: NDArray[np.int64]) -> Floats:
        """Return what words each source line makes likely on the other side, by what the other fold taught."""
        source_NV = _unit(self.records["words"][lines_N[0] : lines_N[-1] + 1, 0])
        fold_N = lines_N // FOLD % 2
        expected_NV = np.empty_like(source_NV)
        for fold in (0, 1):
            expected_NV[fold_N == fold] = source_NV[fold_N == fold] @ self.lexicons[1 - fold]
        return expected_NV

    def _lexicon(self, fold: int) -> Floats:
        """Return the pointwise mutual information of source and target buckets in the lines of a fold, [V, V]."""
        lines = np.flatnonzero(np.arange(self.lines) // FOLD % 2 == fold)
        if not len(lines):  # a short text has but one fold
            lines = np.arange(self.lines)
        sample = self.records["words"][lines[:: max(1, len(lines) // SAMPLE)]]
        source_NV, target_NV = (np.unpackbits(sample[:, side], axis=1).astype(np.float32) for side in (0, 1))
        joint_VV = source_NV.T @ target_NV / len(sample)
        apart_VV = np.outer(source_NV.mean(0), target_NV.mean(0))
        doubt = 5 / len(sample)
        information_VV: Floats = np.log((joint_VV + doubt) / (apart_VV + doubt)).astype(np.float32)
        return information_VV

    def _length_fit(self, lines_N: NDArray[np.int64], others_N: NDArray[np.int64]) -> Floats:
        chars = self.records["chars"]
        z_N = (log_ratio(chars[lines_N, 0], chars[others_N, 1]) - self.ratio[0]) / self.ratio[1]
        fit_N: Floats = (-np.minimum(z_N**2, 9.0) / 2).astype(np.float32)
        return fit_N

    def _weights(self) -> NDArray[np.float32]:
        """Return each sign's mean over its variance: the slope of the likelihood ratio of two normal distributions."""
        step = max(1, self.lines // 20)
        starts = range(0, max(1, self.lines - LEAST + 1), step)
        near_PS, square_P, count = np.zeros((2, len(SHIFTS))), np.zeros(2), 0
        for first in starts:
            lines_N = np.arange(first, min(first + 2000, first + step, self.lines))
            parts_2SN = self._parts(lines_N, (*SHIFTS, *FAR))
            strange_2N = parts_2SN[:, len(SHIFTS) :].mean(1)
            near_PS += (parts_2SN[:, : len(SHIFTS)] - strange_2N[:, None]).sum(2)
            spread_2N = parts_2SN[:, len(SHIFTS)] - parts_2SN[:, -1]
            square_P += (spread_2N**2).sum(1)
            count += len(lines_N)
        variance_P = square_P / count + 1e-9
        mean_P = near_PS[:, int((near_PS / np.sqrt(variance_P)[:, None]).sum(0).argmax())] / count
        weights: NDArray[np.float32] = (np.maximum(mean_P, 0.0) / variance_P).astype(np.float32)
        return weights


def _unit(bits_NB: NDArray[np.uint8]) -> Floats:
    bits_NV = np.unpackbits(bits_NB, axis=1).astype(np.float32)
    unit_NV: Floats = bits_NV / np.sqrt(np.maximum(bits_NV.sum(1, keepdims=True), 1.0))
    return unit_NV


def log_ratio(source_N: NDArray[np.uint16], target_N: NDArray[np.uint16]) -> NDArray[np.float64]:
    """Return the logarithm of the sides' length ratio; of short sides, little of it."""
    ratio_N: NDArray[np.float64] = np.log((target_N + 5.0) / (source_N + 5.0))
    return ratio_N


def length_ratio(chars_N2: NDArray[np.uint16]) -> tuple[float, float]:
    """Return median and spread of the ratio of the sides' lengths, as a logarithm."""
    ratio_N = log_ratio(chars_N2[:, 0], chars_N2[:, 1])
    median = float(np.median(ratio_N))
    return median, 1.4826 * float(np.median(np.abs(ratio_N - median))) + 0.02
