"""Detection of misalignment: regions in which targets are a few lines above or below their sources, or do not fit.

The alignment score of a source line and a target line is a weighted sum of three features: a lexicon learned from the
corpus, words shared by both sides (numbers, names, cognates), and the length ratio. A region in which another
hypothesis fits better than "line n translates line n" is found with a cumulative sum (Page 1954).

Shape suffixes: N pairs, H hypotheses, B blocks of lines, V buckets of words, F features, K candidates, M sampled lines,
Y bytes of a bitmap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nmt.data.check.features import Records
from nmt.data.check.lengths import log_length_ratio, ratio_statistics

SHIFTS = (0, *(sign * shift for shift in range(1, 9) for sign in (1, -1)))
"""Numbers of lines by which the target may be below its source; 0 is aligned."""
DISTANT_SHIFTS = (-41, 23, 37)
"""Shifts at which lines are never translations of each other. The same number of random lines is compared, too."""
BLOCK_SIZE = 10
MAX_FOLD_SIZE = 500
"""Maximum number of lines per fold of the cross-validation: a lexicon must not score the lines it was learned from."""
MIN_LINES = 200
"""Minimum number of lines of a corpus to search for misalignment."""
MIN_DISTINCT_LINES = 400
"""Minimum number of lines with distinct targets to decide that a whole corpus is misaligned."""
MIN_EFFECT = 0.25
"""Minimum effect size (difference of means in standard deviations) between a line's own target and other targets.
Below it, the whole corpus is misaligned. From 400 lines on, aligned corpora have at least 0.4 and shuffled ones at
most 0.22."""
MISFIT_RATIO = 1 / 8
"""Fraction of the average score gap below which a region does not fit; low, because free translations fit less."""
MAX_SAMPLE = 100_000
CHUNK_SIZE = 50_000
MIN_EVIDENCE = 20.0
"""Minimum log-likelihood ratio of a misaligned region; false alarms have a probability of e^-20 per line."""
MAX_REGIONS = 100
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Region:
    """Source line i in start <= i < end (from 0) fits target line i + shift, or no target if shift is None."""

    start: int
    end: int
    shift: int | None


def find_misaligned_regions(records: Records) -> list[Region]:
    """Return the misaligned regions of a corpus in order."""
    num_lines = len(records)
    if num_lines < MIN_LINES:
        return []
    scorer = _AlignmentScorer(records)
    if scorer.is_misaligned_throughout:
        return [Region(0, num_lines, None)]
    hypotheses: tuple[int | None, ...] = (*SHIFTS, None)
    num_blocks = -(-num_lines // BLOCK_SIZE)
    gain_HB = np.zeros((len(hypotheses) - 1, num_blocks), np.float32)
    for start in range(0, num_lines, CHUNK_SIZE):
        scores_HN = scorer.scores(start, min(start + CHUNK_SIZE, num_lines), hypotheses)
        block_starts = np.arange(0, scores_HN.shape[1], BLOCK_SIZE)
        sums_HB = np.add.reduceat(scores_HN, block_starts, axis=1)
        gain_HB[:, start // BLOCK_SIZE : start // BLOCK_SIZE + len(block_starts)] = sums_HB[1:] - sums_HB[0]
    # Scores are log-likelihood ratios, so a fitting line scores higher than another by `gap` on average.
    gain_HB[:-1] -= BLOCK_SIZE * scorer.gap / 2
    regions: list[Region] = []
    while scorer.gap and len(regions) < MAX_REGIONS:
        gain, h, start, end = max(_max_segment(gain_B, h) for h, gain_B in enumerate(gain_HB, 1))
        if gain < MIN_EVIDENCE:
            break
        regions.append(_refine(scorer, Region(BLOCK_SIZE * start, min(BLOCK_SIZE * end, num_lines), hypotheses[h])))
        gain_HB[:, start:end] = -np.inf
    return list(_merge(scorer, sorted(regions, key=lambda region: region.start)))


def _max_segment(gain_B: Floats, hypothesis: int) -> tuple[float, int, int, int]:
    """Return the largest sum of consecutive blocks, the hypothesis, and the start and end of the segment."""
    best = (-np.inf, hypothesis, 0, 0)
    excluded = np.flatnonzero(np.isneginf(gain_B))
    for first, end in zip((0, *(excluded + 1)), (*excluded, len(gain_B)), strict=True):
        if first == end:
            continue
        sums = np.r_[0.0, np.cumsum(gain_B[first:end], dtype=np.float64)]
        lowest = np.minimum.accumulate(sums)
        last = int(np.argmax(sums - lowest))
        start = int(np.argmin(sums[: last + 1]))
        best = max(best, (float(sums[last] - sums[start]), hypothesis, int(first + start), int(first + last)))
    return best


def _refine(scorer: _AlignmentScorer, region: Region) -> Region:
    """Move both ends of a region to the exact line."""
    start = _find_boundary(scorer, region.start, 0, region.shift)
    end = max(start + 1, _find_boundary(scorer, region.end, region.shift, 0))
    # At the end of the corpus, no target line is left that could fit.
    return Region(start, scorer.num_lines if scorer.num_lines - end <= BLOCK_SIZE else end, region.shift)


def _find_boundary(scorer: _AlignmentScorer, line: int, shift_before: int | None, shift_after: int | None) -> int:
    """Return the line near `line` from which on `shift_after` fits better than `shift_before`."""
    low, high = max(0, line - 3 * BLOCK_SIZE), min(scorer.num_lines, line + 3 * BLOCK_SIZE)
    if line in (0, scorer.num_lines):
        return line
    scores_2N = scorer.scores(low, high, (shift_before, shift_after))
    return low + int(np.argmin(np.r_[0.0, np.cumsum(scores_2N[1] - scores_2N[0])]))


def _merge(scorer: _AlignmentScorer, regions: list[Region]) -> Iterator[Region]:
    """Merge neighboring regions with equal shifts, and find the exact boundary of neighbors with different shifts."""
    previous: Region | None = None
    for region in regions:
        if previous and region.start - previous.end <= 3 * BLOCK_SIZE:
            if previous.shift == region.shift:
                previous = replace(previous, end=region.end)
                continue
            middle = (previous.end + region.start) // 2
            boundary = _find_boundary(scorer, middle, previous.shift, region.shift)
            boundary = min(max(boundary, previous.start + 1), region.end - 1)
            previous, region = replace(previous, end=boundary), replace(region, start=boundary)
        if previous:
            yield previous
        previous = region
    if previous:
        yield previous


class _AlignmentScorer:
    """Score how well source lines fit target lines, as log-likelihood ratios of a translation and a random pair."""

    def __init__(self, records: Records) -> None:
        self.records, self.num_lines = records, len(records)
        self.fold_size = min(MAX_FOLD_SIZE, max(1, self.num_lines // 8))
        self.ratio_median, self.ratio_spread = ratio_statistics(
            records["chars"][:: max(1, self.num_lines // MAX_SAMPLE)]
        )
        lexicons = [self._learn_lexicon(fold) for fold in (0, 1)]
        self.shared_V = self._shared_word_weights()
        self.weights_F, self.gap, self.is_misaligned_throughout = self._learn_weights(lexicons)
        shared_VV = np.diag(self.weights_F[1] * self.shared_V)
        self.matrices = [self.weights_F[0] * lexicon + shared_VV for lexicon in lexicons]

    def scores(self, start: int, end: int, hypotheses: Sequence[int | None]) -> Floats:
        """Return the scores of source lines start to end under each hypothesis, [H, N].

        A hypothesis is a shift, or None for a target that does not fit. None has no gain where the other targets are
        equal to the line's own.
        """
        lines_N = np.arange(start, end)
        expected_NV = self._expected_words(lines_N, self.matrices)
        low = max(0, start - 64)
        target_MV = _unit_vectors(self.records["words"][low : end + 64, 1])

        def score(shift: int) -> Floats:
            targets_N = self._shifted(lines_N, shift)
            words_N = np.einsum("nv,nv->n", expected_NV, target_MV[targets_N - low])
            score_N: Floats = words_N + self.weights_F[2] * self._length_fit(lines_N, targets_N)
            return score_N.astype(np.float32)

        def dissimilarity(shift: int) -> Floats:
            targets_N = self._shifted(lines_N, shift)
            similarity_N: Floats = np.einsum("nv,nv->n", target_MV[lines_N - low], target_MV[targets_N - low])
            return 1 - similarity_N

        scores_HN = np.empty((len(hypotheses), len(lines_N)), np.float32)
        for h, shift in enumerate(hypotheses):
            if shift is not None:
                scores_HN[h] = score(shift)
            else:
                margin = MISFIT_RATIO * self.gap
                scores_HN[h] = np.mean([score(far) + margin * dissimilarity(far) for far in DISTANT_SHIFTS], axis=0)
        return scores_HN

    def _shifted(self, lines_N: NDArray[np.int64], shift: int) -> NDArray[np.int64]:
        shifted_N: NDArray[np.int64] = np.clip(lines_N + shift, 0, self.num_lines - 1)
        return shifted_N

    def _expected_words(self, lines_N: NDArray[np.int64], matrices: Sequence[Floats]) -> Floats:
        """Return the target words that each source line predicts, using the matrix learned from the other fold."""
        source_NV = _unit_vectors(self.records["words"][lines_N[0] : lines_N[-1] + 1, 0])
        fold_N = lines_N // self.fold_size % 2
        expected_NV = np.empty_like(source_NV)
        for fold in (0, 1):
            expected_NV[fold_N == fold] = source_NV[fold_N == fold] @ matrices[1 - fold]
        return expected_NV

    def _learn_lexicon(self, fold: int) -> Floats:
        """Return the pointwise mutual information of source and target buckets in a fold, [V, V]."""
        lines = np.flatnonzero(np.arange(self.num_lines) // self.fold_size % 2 == fold)
        sample = self.records["words"][lines[:: max(1, len(lines) // MAX_SAMPLE)]]
        source_NV, target_NV = (np.unpackbits(sample[:, side], axis=1).astype(np.float32) for side in (0, 1))
        joint_VV = source_NV.T @ target_NV / len(sample)
        independent_VV = np.outer(source_NV.mean(0), target_NV.mean(0))
        smoothing = 5 / len(sample)
        pmi_VV: Floats = np.log((joint_VV + smoothing) / (independent_VV + smoothing)).astype(np.float32)
        return pmi_VV

    def _shared_word_weights(self) -> Floats:
        """Return the weight of a word shared by both sides: its negative log-frequency, [V]."""
        sample = self.records["words"][:: max(1, self.num_lines // MAX_SAMPLE)]
        frequency_V = np.unpackbits(sample, axis=2).mean((0, 1))
        weight_V: Floats = -np.log(frequency_V + 1 / len(sample)).astype(np.float32)
        return weight_V

    def _length_fit(self, lines_N: NDArray[np.int64], targets_N: NDArray[np.int64]) -> Floats:
        chars = self.records["chars"]
        ratio_N = log_length_ratio(chars[lines_N, 0], chars[targets_N, 1])
        z_N = (ratio_N - self.ratio_median) / self.ratio_spread
        fit_N: Floats = (-np.minimum(z_N**2, 9.0) / 2).astype(np.float32)
        return fit_N

    def _learn_weights(self, lexicons: Sequence[Floats]) -> tuple[Floats, float, bool]:
        """Return the feature weights, the score gap of fitting and other targets, and whether no target fits.

        A weight is the mean of a feature divided by its variance: the slope of the log-likelihood ratio of two normal
        distributions.
        """
        rng = np.random.default_rng(0)
        step = max(1, self.num_lines // 20)
        features, distinct = [], []
        for start in range(0, self.num_lines, step):
            lines_M = np.arange(start, min(start + 500, start + step, self.num_lines))
            targets = [self._shifted(lines_M, shift) for shift in (*SHIFTS, *DISTANT_SHIFTS)]
            targets += list(rng.integers(0, self.num_lines, (len(DISTANT_SHIFTS), len(lines_M))))
            features.append(self._features(lines_M, targets, lexicons))
            words = self.records["words"][:, 1]
            is_equal_KM = [(words[targets_M] == words[lines_M]).all(1) for targets_M in targets[len(SHIFTS) :]]
            distinct.append(~np.any(is_equal_KM, axis=0))
        features_FKM, distinct_M = np.concatenate(features, axis=2), np.concatenate(distinct)
        near, far, random = np.split(features_FKM, (len(SHIFTS), len(SHIFTS) + len(DISTANT_SHIFTS)), axis=1)
        mean_FK, variance_F = _moments(near, far)
        best_shift = int((mean_FK / np.sqrt(variance_F)[:, None]).sum(0).argmax())
        weights_F: Floats = (mean_FK[:, best_shift] / variance_F).astype(np.float32)
        gap = float(weights_F @ mean_FK[:, best_shift])
        # In a sorted corpus, neighboring lines have similar lengths, unlike random lines: both effects must be small.
        effects = (
            [_effect_size(*_moments(near[:, :, distinct_M], other[:, :, distinct_M])) for other in (far, random)]
            if distinct_M.sum() >= MIN_DISTINCT_LINES
            else [np.inf]
        )
        return weights_F, gap, max(effects) < MIN_EFFECT

    def _features(
        self, lines_M: NDArray[np.int64], targets_KM: Sequence[NDArray[np.int64]], lexicons: Sequence[Floats]
    ) -> Floats:
        """Return the lexicon, shared-word and length features of lines and candidate targets, [F, K, M]."""
        source_MV = _unit_vectors(self.records["words"][lines_M, 0]) * self.shared_V
        expected_MV = self._expected_words(lines_M, lexicons)
        features_FKM = np.empty((3, len(targets_KM), len(lines_M)), np.float32)
        for k, targets_M in enumerate(targets_KM):
            target_MV = _unit_vectors(self.records["words"][targets_M, 1])
            features_FKM[0, k] = np.einsum("nv,nv->n", expected_MV, target_MV)
            features_FKM[1, k] = np.einsum("nv,nv->n", source_MV, target_MV)
            features_FKM[2, k] = self._length_fit(lines_M, targets_M)
        return features_FKM


def _moments(near_FKM: Floats, other_FKM: Floats) -> tuple[Floats, Floats]:
    """Return the mean advantage of near targets over others, [F, K], and the variance of each feature, [F]."""
    mean_FK: Floats = np.maximum((near_FKM - other_FKM.mean(1, keepdims=True)).mean(2), 0.0)
    variance_F: Floats = ((other_FKM[:, 0] - other_FKM[:, 1]) ** 2).mean(1) + 1e-9
    return mean_FK, variance_F


def _effect_size(mean_FK: Floats, variance_F: Floats) -> float:
    """Return the effect size of all features together at the best shift."""
    return float(np.sqrt((mean_FK**2 / variance_F[:, None]).sum(0)).max())


def _unit_vectors(bits_NY: NDArray[np.uint8]) -> Floats:
    bits_NV = np.unpackbits(bits_NY, axis=1).astype(np.float32)
    unit_NV: Floats = bits_NV / np.sqrt(np.maximum(bits_NV.sum(1, keepdims=True), 1.0))
    return unit_NV
