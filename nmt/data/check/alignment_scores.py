"""Alignment scores: how well source lines fit target lines.

The score of a source line and a target line is a weighted sum of three features: a lexicon learned
from the corpus, words shared by both sides (numbers, names, cognates), and the length ratio.

Shape suffixes: N pairs, M sampled lines, H hypotheses, V buckets of words, F features, K
candidates, Y bytes of a bitmap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.data.arrays import Bools, Bytes, Floats, Indices
from nmt.data.check.features import Records
from nmt.data.check.lengths import log_length_ratio, ratio_statistics

SHIFTS = (0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6, 7, -7, 8, -8)
"""Numbers of lines by which the target may be below its source; the first one, 0, is aligned."""
DISTANT_SHIFTS = (-41, 23, 37)
"""Shifts at which lines are never translations of each other. The same number of random lines is
compared, too."""
MAX_SHIFT = 64
MAX_FOLD_SIZE = 500
"""Maximum number of lines per fold of the cross-validation: a lexicon must not score the lines it
was learned from."""
MIN_DISTINCT_LINES = 400
"""Minimum number of lines with distinct targets to decide that a whole corpus is misaligned."""
MIN_EFFECT = 0.25
"""Minimum effect size (difference of means in standard deviations) between a line's own target and
other targets. Below it, the whole corpus is misaligned. From 400 lines on, aligned corpora have at
least 0.4 and shuffled ones at most 0.22."""
MISFIT_RATIO = 1 / 8
"""Fraction of the average score gap below which a region does not fit; low, because free
translations fit less."""
MAX_SAMPLE = 100_000
NUM_PARTS = 20
MAX_PART_SIZE = 500
"""The weights are learned from the first lines of each of 20 equal parts of the corpus."""

Hypothesis = int | None
"""The shift of a target; None if it does not fit."""


@dataclass(frozen=True)
class _Sample:
    """Features of sampled lines with several targets: near ones, at `SHIFTS`, distant ones and
    random ones."""

    features_FKM: Floats
    is_distinct_M: Bools
    """Whether the target of a line differs from its distant and random targets."""

    def best_moments(self) -> tuple[Floats, Floats]:
        """Return the mean advantage over distant targets at the best shift, and the variance, of
        each feature, [F]."""
        near_FKM, distant_FKM, _ = _split(self.features_FKM)
        mean_FK, variance_F = _moments(near_FKM, distant_FKM)
        deviation_F = np.sqrt(variance_F)
        effect_FK = mean_FK / deviation_F[:, None]
        best_shift = effect_FK.sum(0).argmax()
        return mean_FK[:, best_shift], variance_F

    def is_misaligned(self) -> bool:
        """Return whether no shift fits better than other targets."""
        if self.is_distinct_M.sum() < MIN_DISTINCT_LINES:
            return False
        distinct_FKM = self.features_FKM[:, :, self.is_distinct_M]
        near_FKM, distant_FKM, random_FKM = _split(distinct_FKM)
        # In a sorted corpus, neighboring lines have similar lengths, unlike random lines: both
        # effects must be small.
        distant_effect = _effect_size(near_FKM, distant_FKM)
        random_effect = _effect_size(near_FKM, random_FKM)
        return max(distant_effect, random_effect) < MIN_EFFECT


class AlignmentScorer:
    """Score how well source lines fit target lines, as log-likelihood ratios of a translation and a
    random pair."""

    def __init__(self, records: Records) -> None:
        """Learn the lexicon and the weights of the features."""
        self.num_lines = len(records)
        self.chars = records["chars"]
        self.words = records["words"]
        fold_size = max(1, self.num_lines // 8)
        self.fold_size = min(MAX_FOLD_SIZE, fold_size)
        ratios = ratio_statistics(_sampled(self.chars))
        self.ratio_median, self.ratio_spread = ratios
        self.shared_V = self._shared_word_weights()
        lexicons = [self._learn_lexicon(fold) for fold in (0, 1)]
        sample = self._sample(lexicons)
        self.is_misaligned_throughout = sample.is_misaligned()
        # A weight is the mean of a feature divided by its variance: the slope of the log-likelihood
        # ratio of two normal distributions.
        mean_F, variance_F = sample.best_moments()
        self.weights_F = (mean_F / variance_F).astype(np.float32)
        self.gap = float(self.weights_F @ mean_F)
        """Mean difference of the scores of fitting and other targets."""
        lexicon_weight, shared_weight, self.length_weight = self.weights_F
        weighted_V = shared_weight * self.shared_V
        shared_VV = np.diag(weighted_V)
        self.matrices = [lexicon_weight * lexicon + shared_VV for lexicon in lexicons]

    def scores(self, start: int, end: int, hypotheses: Sequence[Hypothesis]) -> Floats:
        """Return the scores of source lines start to end under each hypothesis, [H, N]."""
        window = _Window(self, start, end)
        return np.stack([window.score(shift) for shift in hypotheses])

    def shifted(self, lines_N: Indices, shift: int) -> Indices:
        """Return the target lines at a shift."""
        last_line = self.num_lines - 1
        shifted_N: Indices = np.clip(lines_N + shift, 0, last_line)
        return shifted_N

    def expected_words(self, lines_N: Indices, matrices: Sequence[Floats]) -> Floats:
        """Return the target words that each source line predicts, using the matrix learned from the
        other fold."""
        source_NV = unit_vectors(self.words[lines_N, 0])
        expected_NV = np.empty_like(source_NV)
        fold_N = self._fold(lines_N)
        for fold in (0, 1):
            is_inside_N = fold_N == fold
            other_matrix = matrices[1 - fold]
            expected_NV[is_inside_N] = source_NV[is_inside_N] @ other_matrix
        return expected_NV

    def length_fit(self, lines_N: Indices, targets_N: Indices) -> Floats:
        """Return the log-likelihood of each length ratio, without its constant, up to three
        standard deviations."""
        source_N = self.chars[lines_N, 0]
        target_N = self.chars[targets_N, 1]
        ratio_N = log_length_ratio(source_N, target_N)
        z_N = (ratio_N - self.ratio_median) / self.ratio_spread
        squared_N = np.minimum(z_N**2, 9.0)
        fit_N = -squared_N / 2
        return fit_N.astype(np.float32)

    def _fold(self, lines_N: Indices) -> Indices:
        return lines_N // self.fold_size % 2

    def _learn_lexicon(self, fold: int) -> Floats:
        """Return the pointwise mutual information of source and target buckets in a fold, [V,
        V]."""
        lines_N = np.arange(self.num_lines)
        is_inside_N = self._fold(lines_N) == fold
        lines_M = _sampled(lines_N[is_inside_N])
        bits_M2V = _unpack(self.words[lines_M])
        source_MV = bits_M2V[:, 0]
        target_MV = bits_M2V[:, 1]
        smoothing = 5 / len(lines_M)
        joint_VV = source_MV.T @ target_MV / len(lines_M)
        joint_VV += smoothing
        independent_VV = np.outer(source_MV.mean(0), target_MV.mean(0))
        independent_VV += smoothing
        pmi_VV = np.log(joint_VV / independent_VV)
        return pmi_VV.astype(np.float32)

    def _shared_word_weights(self) -> Floats:
        """Return the weight of a word shared by both sides: its negative log-frequency, [V]."""
        sample = _sampled(self.words)
        bits_M2V = np.unpackbits(sample, axis=2)
        frequency_V = bits_M2V.mean((0, 1))
        smoothing = 1 / len(sample)
        weight_V: Floats = -np.log(frequency_V + smoothing).astype(np.float32)
        return weight_V

    def _sample(self, lexicons: Sequence[Floats]) -> _Sample:
        """Return the features of lines of all parts of the corpus, with near, distant and random
        targets."""
        rng = np.random.default_rng(0)
        part_size = max(1, self.num_lines // NUM_PARTS)
        num_sampled = min(part_size, MAX_PART_SIZE)
        features: list[Floats] = []
        distinct: list[Bools] = []
        for start in range(0, self.num_lines, part_size):
            end = min(start + num_sampled, self.num_lines)
            lines_M = np.arange(start, end)
            shape = (len(DISTANT_SHIFTS), len(lines_M))
            random_KM = rng.integers(0, self.num_lines, shape)
            near_KM = self._all_shifted(lines_M, SHIFTS)
            distant_KM = self._all_shifted(lines_M, DISTANT_SHIFTS)
            other_KM = np.vstack([distant_KM, random_KM])
            targets_KM = np.vstack([near_KM, other_KM])
            features.append(self._features(lines_M, targets_KM, lexicons))
            words_MY = self.words[lines_M, 1]
            other_KMY = self.words[other_KM, 1]
            is_equal_KMY = other_KMY == words_MY
            is_equal_KM = is_equal_KMY.all(2)
            distinct.append(~is_equal_KM.any(0))
        return _Sample(np.concatenate(features, axis=2), np.concatenate(distinct))

    def _all_shifted(self, lines_M: Indices, shifts: Sequence[int]) -> Indices:
        """Return the target lines at each shift, [K, M]."""
        return np.stack([self.shifted(lines_M, shift) for shift in shifts])

    def _features(
        self, lines_M: Indices, targets_KM: Indices, lexicons: Sequence[Floats]
    ) -> Floats:
        """Return the lexicon, shared-word and length features of lines and candidate targets, [F,
        K, M]."""
        source_MV = unit_vectors(self.words[lines_M, 0])
        source_MV *= self.shared_V
        expected_MV = self.expected_words(lines_M, lexicons)
        features_FKM = np.empty((3, *targets_KM.shape), np.float32)
        for k, targets_M in enumerate(targets_KM):
            target_MV = unit_vectors(self.words[targets_M, 1])
            features_FKM[0, k] = products(expected_MV, target_MV)
            features_FKM[1, k] = products(source_MV, target_MV)
            features_FKM[2, k] = self.length_fit(lines_M, targets_M)
        return features_FKM


class _Window:
    """Consecutive source lines, and the target lines near them."""

    def __init__(self, scorer: AlignmentScorer, start: int, end: int) -> None:
        self.scorer = scorer
        self.lines_N = np.arange(start, end)
        self.expected_NV = scorer.expected_words(self.lines_N, scorer.matrices)
        self.first_target = max(0, start - MAX_SHIFT)
        words_MY = scorer.words[self.first_target : end + MAX_SHIFT, 1]
        self.target_MV = unit_vectors(words_MY)

    def score(self, shift: Hypothesis) -> Floats:
        """Return the scores of the targets at a shift."""
        if shift is None:
            return self._misfit()
        targets_N = self.scorer.shifted(self.lines_N, shift)
        words_N = products(self.expected_NV, self._targets(shift))
        length_N = self.scorer.length_fit(self.lines_N, targets_N)
        score_N: Floats = words_N + self.scorer.length_weight * length_N
        return score_N

    def _misfit(self) -> Floats:
        """Return the scores of targets that do not fit: the mean of distant targets, plus a margin.

        The margin is 0 where the other targets are equal to the line's own.
        """
        margin = MISFIT_RATIO * self.scorer.gap
        own_NV = self._targets(0)
        scores = []
        for shift in DISTANT_SHIFTS:
            similarity_N = products(own_NV, self._targets(shift))
            bonus_N = margin * (1 - similarity_N)
            scores.append(self.score(shift) + bonus_N)
        mean_N: Floats = np.mean(scores, axis=0)
        return mean_N

    def _targets(self, shift: int) -> Floats:
        targets_N = self.scorer.shifted(self.lines_N, shift)
        return self.target_MV[targets_N - self.first_target]


def _split(features_FKM: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the features of near, distant and random targets."""
    num_near = len(SHIFTS)
    first_random = num_near + len(DISTANT_SHIFTS)
    near_FKM = features_FKM[:, :num_near]
    distant_FKM = features_FKM[:, num_near:first_random]
    random_FKM = features_FKM[:, first_random:]
    return near_FKM, distant_FKM, random_FKM


def _effect_size(near_FKM: Floats, other_FKM: Floats) -> float:
    """Return the effect size of all features together at the best shift, compared with other
    targets."""
    mean_FK, variance_F = _moments(near_FKM, other_FKM)
    effect_FK = mean_FK**2 / variance_F[:, None]
    effect_K = effect_FK.sum(0)
    return float(np.sqrt(effect_K).max())


def _moments(near_FKM: Floats, other_FKM: Floats) -> tuple[Floats, Floats]:
    """Return the mean advantage of near targets over others, [F, K], and the variance of each
    feature, [F]."""
    other_mean_F1M = other_FKM.mean(1, keepdims=True)
    advantage_FKM = near_FKM - other_mean_F1M
    mean_FK = np.maximum(advantage_FKM.mean(2), 0.0)
    # The variance of a difference of two targets, neither of which is a translation.
    difference_FM = other_FKM[:, 0] - other_FKM[:, 1]
    variance_F = (difference_FM**2).mean(1) + 1e-9
    return mean_FK, variance_F


def _sampled(rows: Records) -> Records:
    """Return at most about `MAX_SAMPLE` rows at equal distances."""
    step = max(1, len(rows) // MAX_SAMPLE)
    return rows[::step]


def products(first_NV: Floats, second_NV: Floats) -> Floats:
    """Return the scalar product of each row of two matrices, [N]."""
    product_N: Floats = np.einsum("nv,nv->n", first_NV, second_NV)
    return product_N


def unit_vectors(bits_NY: Bytes) -> Floats:
    """Return bitmaps as vectors of length 1, [N, V]."""
    bits_NV = _unpack(bits_NY)
    squares_N1 = bits_NV.sum(1, keepdims=True)
    length_N1 = np.sqrt(np.maximum(squares_N1, 1.0))
    unit_NV: Floats = bits_NV / length_N1
    return unit_NV


def _unpack(bytes_Y: Bytes) -> Floats:
    """Return the bits of bitmaps, [..., V]."""
    bits_V = np.unpackbits(bytes_Y, axis=-1)
    return bits_V.astype(np.float32)
