"""Detection of misaligned text: stretches where the target is some lines early or late, or fits nowhere near.

Every line is scored against target lines by three signs: a lexicon that is learned from the text itself, words that
both sides share (numbers, names, cognates), and the length ratio. A stretch in which another hypothesis explains the
lines better than "line n translates line n" is found by a cumulative sum (Page 1954). Letters: N pairs, K shifts,
B blocks of lines, V buckets of words, P signs, M sampled lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nmt.data.check.features import Records

SHIFTS = (0, *(sign * shift for shift in range(1, 9) for sign in (1, -1)))
"""By how many lines the target may be late; 0 is where it should be."""
FAR = (-41, 23, 37)
"""Shifts at which no line translates another. As many random lines are compared, too."""
BLOCK = 10
MAX_FOLD = 500
"""Lines that are scored by what was learned from others: a line fits itself best, whatever it says."""
MIN_LINES = 200
"""Lines a text must have to be searched for shifts."""
MIN_DISTINCT_LINES = 400
"""Lines whose targets differ from the others that a text must have to be called misaligned throughout."""
MIN_EFFECT = 0.25
"""Effect size (difference of means in standard deviations) between a line's own target and other targets, below which
no target fits. From 400 lines on, aligned text has at least 0.4 and random order at most 0.22."""
UNFIT = 1 / 8
"""Share of the average gap between fitting and other targets below which a stretch fits nowhere. Free translations
lower the fit, so this is far below 1 / 2."""
SAMPLE = 100_000
CHUNK = 50_000
MIN_EVIDENCE = 20.0
"""Evidence (log-likelihood ratio) that a stretch must have: by chance once in e^20 lines."""
MAX_STRETCHES = 100
LENGTH_BINS, MIN_BIN = 12, 200
"""Classes of length in which the ratio of lengths is learned, and the pairs that each must have."""
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Stretch:
    """Source line i of first <= i < end (from 0) fits target line i + shift, or none (shift None)."""

    first: int
    end: int
    shift: int | None


def stretches(records: Records) -> list[Stretch]:
    """Return where one text is misaligned, in order."""
    lines = len(records)
    if lines < MIN_LINES:
        return []
    scorer = _Scorer(records)
    if scorer.fits_nowhere:
        return [Stretch(0, lines, None)]
    hypotheses: tuple[int | None, ...] = (*SHIFTS, None)
    blocks = -(-lines // BLOCK)
    gain_KB = np.zeros((len(hypotheses) - 1, blocks), np.float32)
    for first in range(0, lines, CHUNK):
        scores_KN = scorer.scores(first, min(first + CHUNK, lines), hypotheses)
        starts = np.arange(0, scores_KN.shape[1], BLOCK)
        sums_KB = np.add.reduceat(scores_KN, starts, axis=1)
        gain_KB[:, first // BLOCK : first // BLOCK + len(starts)] = sums_KB[1:] - sums_KB[0]
    # Scores are log-likelihood ratios, so a fitting line scores higher than another by `gap` on average.
    gain_KB[:-1] -= BLOCK * scorer.gap / 2
    found: list[Stretch] = []
    while scorer.gap and len(found) < MAX_STRETCHES:
        gain, which, first, end = max(_best_run(gain_B, which) for which, gain_B in enumerate(gain_KB, 1))
        if gain < MIN_EVIDENCE:
            break
        found.append(_refined(scorer, Stretch(BLOCK * first, min(BLOCK * end, lines), hypotheses[which])))
        gain_KB[:, first:end] = -np.inf
    return list(_merged(scorer, sorted(found, key=lambda stretch: stretch.first)))


def _best_run(gain_B: Floats, which: int) -> tuple[float, int, int, int]:
    """Return the largest sum of neighbors, the hypothesis, and where they begin and end."""
    best = (-np.inf, which, 0, 0)
    edges = np.flatnonzero(np.isneginf(gain_B))
    for first, end in zip((0, *(edges + 1)), (*edges, len(gain_B)), strict=True):
        if first == end:
            continue
        sums = np.r_[0.0, np.cumsum(gain_B[first:end], dtype=np.float64)]
        lowest = np.minimum.accumulate(sums)
        last = int(np.argmax(sums - lowest))
        start = int(np.argmin(sums[: last + 1]))
        best = max(best, (float(sums[last] - sums[start]), which, int(first + start), int(first + last)))
    return best


def _refined(scorer: _Scorer, stretch: Stretch) -> Stretch:
    """Move both ends of a stretch to the exact line."""
    first = _turn(scorer, stretch.first, 0, stretch.shift)
    end = max(first + 1, _turn(scorer, stretch.end, stretch.shift, 0))
    # The last lines of a text have no line left that would fit them.
    return Stretch(first, scorer.lines if scorer.lines - end <= BLOCK else end, stretch.shift)


def _turn(scorer: _Scorer, near: int, before: int | None, after: int | None) -> int:
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
        self.fold = min(MAX_FOLD, max(1, self.lines // 8))
        self.ratio = length_ratio(records["chars"][:: max(1, self.lines // SAMPLE)])
        lexicons = [self._lexicon(fold) for fold in (0, 1)]
        self.shared_V = self._shared()
        self.weights, self.gap, self.fits_nowhere = self._learned(lexicons)
        self.matrices = [self.weights[0] * lexicon + np.diag(self.weights[1] * self.shared_V) for lexicon in lexicons]

    def scores(self, first: int, end: int, shifts_K: Sequence[int | None]) -> Floats:
        """Return the scores of source lines first to end under each shift, [K, lines].

        None stands for a target that fits nowhere. Where other targets are the line's own again, it says nothing.
        """
        lines_N = np.arange(first, end)
        expected_NV = self._expected(lines_N, self.matrices)
        low = max(0, first - 64)
        target_MV = _unit(self.records["words"][low : end + 64, 1])

        def score(shift: int) -> Floats:
            others_N = self._others(lines_N, shift)
            words_N = np.einsum("nv,nv->n", expected_NV, target_MV[others_N - low])
            fit_N: Floats = (words_N + self.weights[2] * self._length_fit(lines_N, others_N)).astype(np.float32)
            return fit_N

        def unlike(shift: int) -> Floats:
            others_N = self._others(lines_N, shift)
            like_N: Floats = np.einsum("nv,nv->n", target_MV[lines_N - low], target_MV[others_N - low])
            return 1 - like_N

        scores_KN = np.empty((len(shifts_K), len(lines_N)), np.float32)
        for row, shift in enumerate(shifts_K):
            if shift is not None:
                scores_KN[row] = score(shift)
            else:
                scores_KN[row] = np.mean([score(far) + UNFIT * self.gap * unlike(far) for far in FAR], axis=0)
        return scores_KN

    def _others(self, lines_N: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
        others_N: NDArray[np.int64] = np.clip(lines_N + shift, 0, self.lines - 1)
        return others_N

    def _expected(self, lines_N: NDArray[np.int64], matrices: Sequence[Floats]) -> Floats:
        """Return what words each source line makes likely on the other side, by what the other fold taught."""
        source_NV = _unit(self.records["words"][lines_N[0] : lines_N[-1] + 1, 0])
        fold_N = lines_N // self.fold % 2
        expected_NV = np.empty_like(source_NV)
        for fold in (0, 1):
            expected_NV[fold_N == fold] = source_NV[fold_N == fold] @ matrices[1 - fold]
        return expected_NV

    def _lexicon(self, fold: int) -> Floats:
        """Return the pointwise mutual information of source and target buckets in the lines of a fold, [V, V]."""
        lines = np.flatnonzero(np.arange(self.lines) // self.fold % 2 == fold)
        sample = self.records["words"][lines[:: max(1, len(lines) // SAMPLE)]]
        source_NV, target_NV = (np.unpackbits(sample[:, side], axis=1).astype(np.float32) for side in (0, 1))
        joint_VV = source_NV.T @ target_NV / len(sample)
        apart_VV = np.outer(source_NV.mean(0), target_NV.mean(0))
        doubt = 5 / len(sample)
        information_VV: Floats = np.log((joint_VV + doubt) / (apart_VV + doubt)).astype(np.float32)
        return information_VV

    def _shared(self) -> Floats:
        """Return how much a word that both sides have says: the rarer, the more, [V]."""
        sample = self.records["words"][:: max(1, self.lines // SAMPLE)]
        share_V = np.unpackbits(sample, axis=2).mean((0, 1))
        rarity_V: Floats = -np.log(share_V + 1 / len(sample)).astype(np.float32)
        return rarity_V

    def _length_fit(self, lines_N: NDArray[np.int64], others_N: NDArray[np.int64]) -> Floats:
        chars = self.records["chars"]
        z_N = (log_ratio(chars[lines_N, 0], chars[others_N, 1]) - self.ratio[0]) / self.ratio[1]
        fit_N: Floats = (-np.minimum(z_N**2, 9.0) / 2).astype(np.float32)
        return fit_N

    def _learned(self, lexicons: Sequence[Floats]) -> tuple[Floats, float, bool]:
        """Return each sign's weight, the gap in score between fitting and other targets, and whether none fits.

        A weight is a sign's mean over its variance: the slope of the likelihood ratio of two normal distributions.
        """
        rng = np.random.default_rng(0)
        step = max(1, self.lines // 20)
        parts, distinct = [], []
        for first in range(0, self.lines, step):
            lines_M = np.arange(first, min(first + 500, first + step, self.lines))
            others = [self._others(lines_M, shift) for shift in (*SHIFTS, *FAR)]
            others += list(rng.integers(0, self.lines, (len(FAR), len(lines_M))))
            parts.append(self._signs(lines_M, others, lexicons))
            targets = self.records["words"][:, 1]
            same_KM = [(targets[others_M] == targets[lines_M]).all(1) for others_M in others[len(SHIFTS) :]]
            distinct.append(~np.any(same_KM, axis=0))
        parts_PKM, distinct_M = np.concatenate(parts, axis=2), np.concatenate(distinct)
        near, far, random = np.split(parts_PKM, (len(SHIFTS), len(SHIFTS) + len(FAR)), axis=1)
        mean_PK, variance_P = _moments(near, far)
        shift = int((mean_PK / np.sqrt(variance_P)[:, None]).sum(0).argmax())
        weights_P: Floats = (mean_PK[:, shift] / variance_P).astype(np.float32)
        gap = float(weights_P @ mean_PK[:, shift])
        # In sorted text the lines around a line are as long as it is and lines anywhere are not: both must agree.
        effects = (
            [_effect(*_moments(near[:, :, distinct_M], other[:, :, distinct_M])) for other in (far, random)]
            if distinct_M.sum() >= MIN_DISTINCT_LINES
            else [np.inf]
        )
        return weights_P, gap, max(effects) < MIN_EFFECT

    def _signs(
        self, lines_M: NDArray[np.int64], others_KM: Sequence[NDArray[np.int64]], lexicons: Sequence[Floats]
    ) -> Floats:
        """Return lexicon, shared words and length of lines against others, [P, K, M]."""
        source_MV = _unit(self.records["words"][lines_M, 0]) * self.shared_V
        expected_MV = self._expected(lines_M, lexicons)
        parts_PKM = np.empty((3, len(others_KM), len(lines_M)), np.float32)
        for row, others_M in enumerate(others_KM):
            target_MV = _unit(self.records["words"][others_M, 1])
            parts_PKM[0, row] = np.einsum("nv,nv->n", expected_MV, target_MV)
            parts_PKM[1, row] = np.einsum("nv,nv->n", source_MV, target_MV)
            parts_PKM[2, row] = self._length_fit(lines_M, others_M)
        return parts_PKM


def _moments(near_PKM: Floats, other_PKM: Floats) -> tuple[Floats, Floats]:
    """Return by how much near targets fit better than others on average, [P, K], and the variance of a fit, [P]."""
    mean_PK: Floats = np.maximum((near_PKM - other_PKM.mean(1, keepdims=True)).mean(2), 0.0)
    variance_P: Floats = ((other_PKM[:, 0] - other_PKM[:, 1]) ** 2).mean(1) + 1e-9
    return mean_PK, variance_P


def _effect(mean_PK: Floats, variance_P: Floats) -> float:
    """Return the effect size of all signs together at the shift that fits best."""
    return float(np.sqrt((mean_PK**2 / variance_P[:, None]).sum(0)).max())


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


def length_deviations(
    chars_N2: NDArray[np.uint16], counts_N: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return by how much each ratio of lengths, as a logarithm, is off the usual one, and how much ratios vary.

    Both are learned from the pairs in `counts_N`, as functions of the length: short sentences vary more.
    """
    size_N = np.log(chars_N2 + 5.0).sum(1)
    bins = max(1, min(LENGTH_BINS, int(counts_N.sum()) // MIN_BIN))
    edges = np.quantile(size_N[counts_N], np.linspace(0, 1, bins + 1))
    centers, medians, spreads = [], [], []
    for low, high in pairwise(edges):
        inside_N = counts_N & (size_N >= low) & (size_N <= high)
        median, spread = length_ratio(chars_N2[inside_N])
        centers.append(float(np.median(size_N[inside_N])))
        medians.append(median)
        spreads.append(spread)
    off_N = log_ratio(chars_N2[:, 0], chars_N2[:, 1]) - np.interp(size_N, centers, medians)
    return off_N, np.interp(size_N, centers, spreads)
