"""Alignment scores: how well source lines fit target lines.

The score of a source line and a target line is a weighted sum of three features: a lexicon learned
from the corpus, words shared by both sides (numbers, names, cognates), and the length ratio.

Shape suffixes: N pairs, M sampled lines, H hypotheses, V buckets of words, F features, K
candidates, Y bytes of a bitmap.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmt.data.arrays import Bools, Bytes, Floats, Indices, Integers
from nmt.data.check.feature_files import Lines
from nmt.data.check.lengths import log_length_ratio, ratio_statistics

SHIFTS = tuple(sorted(range(8, -9, -1), key=abs))
"""Numbers of lines by which the target may be below its source, 0, 1, -1 to 8, -8; the first one is
aligned."""
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


class AlignmentScorer:
    """Score how well source lines fit target lines, as log-likelihood ratios of a translation and a
    random pair."""

    def __init__(self, lines: Lines) -> None:
        """Learn the lexicon and the weights of the features."""
        self.lines = lines
        self.num_lines = len(lines)
        fold_size = self.num_lines // 8
        fold_size = max(1, fold_size)
        self.fold_size = min(MAX_FOLD_SIZE, fold_size)
        step = _step(self.num_lines)
        sampled_M = np.arange(0, self.num_lines, step)
        sample_M = lines[sampled_M]
        self.ratio_median, self.ratio_spread = ratio_statistics(sample_M["chars"])
        self.shared_V = _shared_word_weights(sample_M["words"])
        lexicons = [self._learn_lexicon(fold) for fold in (0, 1)]
        features_FKM, is_distinct_M = self._sample(lexicons)
        distinct_FKM = features_FKM[:, :, is_distinct_M]
        self.is_misaligned_throughout = _is_misaligned(distinct_FKM)
        # A weight is the mean of a feature divided by its variance: the slope of the log-likelihood
        # ratio of two normal distributions.
        mean_F, variance_F = _best_moments(features_FKM)
        slope_F = mean_F / variance_F
        weights_F = slope_F.astype(np.float32)
        self.gap = float(weights_F @ mean_F)
        """Mean difference of the scores of fitting and other targets."""
        lexicon_weight, shared_weight, self.length_weight = weights_F
        weighted_V = shared_weight * self.shared_V
        shared_VV = np.diag(weighted_V)
        self.matrices = []
        for lexicon in lexicons:
            weighted_VV = lexicon_weight * lexicon
            self.matrices.append(weighted_VV + shared_VV)

    def scores(self, start: int, end: int, hypotheses: Sequence[Hypothesis]) -> Floats:
        """Return the scores of source lines start to end under each hypothesis, [H, N]."""
        window = _Window(self, start, end)
        scores = [window.score(shift) for shift in hypotheses]
        return np.stack(scores)

    def shifted(self, lines_N: Indices, shift: int | Indices) -> Indices:
        """Return the target lines at a shift, [N], or at several ones, [K, 1], as [K, N]."""
        last_line = self.num_lines - 1
        shifted_N: Indices = np.clip(lines_N + shift, 0, last_line)
        return shifted_N

    def expected_words(
        self, lines_N: Indices, words_NY: Bytes, matrices: Sequence[Floats]
    ) -> Floats:
        """Return the target words that each source line predicts with its words, using the matrix
        learned from the other fold."""
        source_NV = unit_vectors(words_NY)
        expected_NV = np.empty_like(source_NV)
        fold_N = self._fold(lines_N)
        for fold in (0, 1):
            is_inside_N = fold_N == fold
            other_matrix = matrices[1 - fold]
            inside_NV = source_NV[is_inside_N]
            expected_NV[is_inside_N] = inside_NV @ other_matrix
        return expected_NV

    def length_fit(self, source_N: Integers, target_N: Integers) -> Floats:
        """Return the log-likelihood of each ratio of numbers of characters, without its constant,
        up to three standard deviations."""
        ratio_N = log_length_ratio(source_N, target_N)
        deviation_N = ratio_N - self.ratio_median
        z_N = deviation_N / self.ratio_spread
        squared_N = np.minimum(z_N**2, 9.0)
        fit_N = -squared_N / 2
        return fit_N.astype(np.float32)

    def _fold(self, lines_N: Indices) -> Indices:
        fold_index_N = lines_N // self.fold_size
        return fold_index_N % 2

    def _learn_lexicon(self, fold: int) -> Floats:
        """Return the pointwise mutual information of source and target buckets in a fold, [V,
        V]."""
        lines_M = self._sample_fold(fold)
        num_sampled = len(lines_M)
        words_M2Y = self.lines[lines_M]["words"]
        bits_M2V = _unpack(words_M2Y)
        source_MV = bits_M2V[:, 0]
        target_MV = bits_M2V[:, 1]
        smoothing = 5 / num_sampled
        joint_VV = source_MV.T @ target_MV
        joint_VV /= num_sampled
        joint_VV += smoothing
        source_V = source_MV.mean(0)
        target_V = target_MV.mean(0)
        independent_VV = np.outer(source_V, target_V)
        independent_VV += smoothing
        ratio_VV = joint_VV / independent_VV
        pmi_VV = np.log(ratio_VV)
        return pmi_VV.astype(np.float32)

    def _sample_fold(self, fold: int) -> Indices:
        """Return at most about `MAX_SAMPLE` lines of a fold at equal distances."""
        # Blocks of lines belong to the folds in turn, and the last one may be incomplete.
        size = self.fold_size
        num_double_blocks, num_rest = divmod(self.num_lines, 2 * size)
        num_last = num_rest - fold * size
        num_last = max(0, min(num_last, size))
        num_inside = num_double_blocks * size + num_last
        step = _step(num_inside)
        inside_M = np.arange(0, num_inside, step)
        block_M, offset_M = np.divmod(inside_M, size)
        first_M = size * (2 * block_M + fold)
        lines_M: Indices = first_M + offset_M
        return lines_M

    def _sample(self, lexicons: Sequence[Floats]) -> tuple[Floats, Bools]:
        """Return the features of lines of all parts of the corpus, with near, distant and random
        targets, [F, K, M], and whether the target of a line differs from its distant and random
        targets, [M]."""
        rng = np.random.default_rng(0)
        part_size = self.num_lines // NUM_PARTS
        part_size = max(1, part_size)
        num_sampled = min(part_size, MAX_PART_SIZE)
        num_near = len(SHIFTS)
        features = []
        distinct = []
        for start in range(0, self.num_lines, part_size):
            end = min(start + num_sampled, self.num_lines)
            lines_M = np.arange(start, end)
            targets_KM = self._sample_targets(lines_M, rng)
            features_FKM = self._features(lines_M, targets_KM, lexicons)
            features.append(features_FKM)
            words_MY = self._target_words(lines_M)
            other_KM = targets_KM[num_near:]
            other_words_KMY = self._target_words(other_KM)
            is_equal_KMY = other_words_KMY == words_MY
            is_equal_KM = is_equal_KMY.all(2)
            has_equal_M = is_equal_KM.any(0)
            distinct.append(~has_equal_M)
        features_FKM = np.concatenate(features, axis=2)
        return features_FKM, np.concatenate(distinct)

    def _target_words(self, lines_N: Indices) -> Bytes:
        words_N2Y = self.lines[lines_N]["words"]
        return words_N2Y[..., 1, :]

    def _sample_targets(self, lines_M: Indices, rng: np.random.Generator) -> Indices:
        """Return the near, distant and random targets of lines, [K, M]."""
        shifts_K1 = np.vstack(SHIFTS + DISTANT_SHIFTS)
        shifted_KM = self.shifted(lines_M, shifts_K1)
        num_random = len(DISTANT_SHIFTS)
        shape = (num_random, len(lines_M))
        random_KM = rng.integers(0, self.num_lines, shape)
        return np.vstack([shifted_KM, random_KM])

    def _features(
        self, lines_M: Indices, targets_KM: Indices, lexicons: Sequence[Floats]
    ) -> Floats:
        """Return the lexicon, shared-word and length features of lines and candidate targets, [F,
        K, M]."""
        source_M = self.lines[lines_M]
        source_chars_M = source_M["chars"][:, 0]
        words_MY = source_M["words"][:, 0]
        source_MV = unit_vectors(words_MY)
        source_MV *= self.shared_V
        expected_MV = self.expected_words(lines_M, words_MY, lexicons)
        shape = (3, *targets_KM.shape)
        features_FKM = np.empty(shape, np.float32)
        for k, targets_M in enumerate(targets_KM):
            target_M = self.lines[targets_M]
            target_words_MY = target_M["words"][:, 1]
            target_MV = unit_vectors(target_words_MY)
            features_FKM[0, k] = products(expected_MV, target_MV)
            features_FKM[1, k] = products(source_MV, target_MV)
            target_chars_M = target_M["chars"][:, 1]
            features_FKM[2, k] = self.length_fit(source_chars_M, target_chars_M)
        return features_FKM


class _Window:
    """Consecutive source lines, and the target lines near them."""

    def __init__(self, scorer: AlignmentScorer, start: int, end: int) -> None:
        self.scorer = scorer
        self.lines_N = np.arange(start, end)
        self.first_target = max(0, start - MAX_SHIFT)
        end_of_targets = min(end + MAX_SHIFT, scorer.num_lines)
        targets_M = np.arange(self.first_target, end_of_targets)
        near_M = scorer.lines[targets_M]
        first = start - self.first_target
        num_lines = end - start
        source_N = near_M[first : first + num_lines]
        self.source_chars_N = source_N["chars"][:, 0]
        self.target_chars_M = near_M["chars"][:, 1]
        words_NY = source_N["words"][:, 0]
        self.expected_NV = scorer.expected_words(self.lines_N, words_NY, scorer.matrices)
        target_words_MY = near_M["words"][:, 1]
        self.target_MV = unit_vectors(target_words_MY)

    def _targets(self, targets_N: Indices) -> Floats:
        """Return the words of target lines."""
        indices_N = targets_N - self.first_target
        return self.target_MV[indices_N]

    def _length_fit(self, targets_N: Indices) -> Floats:
        indices_N = targets_N - self.first_target
        target_chars_N = self.target_chars_M[indices_N]
        return self.scorer.length_fit(self.source_chars_N, target_chars_N)

    def score(self, shift: Hypothesis) -> Floats:
        """Return the scores of the targets at a shift."""
        if shift is None:
            return self._misfit()
        targets_N = self.scorer.shifted(self.lines_N, shift)
        target_NV = self._targets(targets_N)
        words_N = products(self.expected_NV, target_NV)
        length_N = self._length_fit(targets_N)
        weighted_N = self.scorer.length_weight * length_N
        score_N: Floats = words_N + weighted_N
        return score_N

    def _misfit(self) -> Floats:
        """Return the scores of targets that do not fit: the mean of distant targets, plus a margin.

        The margin is 0 where the other targets are equal to the line's own.
        """
        margin = MISFIT_RATIO * self.scorer.gap
        own_NV = self._targets(self.lines_N)
        scores = []
        for shift in DISTANT_SHIFTS:
            targets_N = self.scorer.shifted(self.lines_N, shift)
            target_NV = self._targets(targets_N)
            similarity_N = products(own_NV, target_NV)
            difference_N = 1 - similarity_N
            bonus_N = margin * difference_N
            score_N = self.score(shift)
            scores.append(score_N + bonus_N)
        mean_N: Floats = np.mean(scores, axis=0)
        return mean_N


def _split(features_FKM: Floats) -> list[Floats]:
    """Return the features of near, distant and random targets."""
    first_distant = len(SHIFTS)
    first_random = first_distant + len(DISTANT_SHIFTS)
    bounds = (first_distant, first_random)
    return np.split(features_FKM, bounds, axis=1)


def _best_moments(features_FKM: Floats) -> tuple[Floats, Floats]:
    """Return the mean advantage over distant targets at the best shift, and the variance, of each
    feature, [F]."""
    near_FKM, distant_FKM, _ = _split(features_FKM)
    mean_FK, variance_F = _moments(near_FKM, distant_FKM)
    deviation_F = np.sqrt(variance_F)
    effect_FK = mean_FK / deviation_F[:, None]
    effect_K = effect_FK.sum(0)
    best_shift = effect_K.argmax()
    return mean_FK[:, best_shift], variance_F


def _is_misaligned(features_FKM: Floats) -> bool:
    """Return whether no shift fits better than other targets, which must be distinct."""
    near_FKM, *others = _split(features_FKM)
    num_lines = near_FKM.shape[2]
    if num_lines < MIN_DISTINCT_LINES:
        return False
    # In a sorted corpus, neighboring lines have similar lengths, unlike random lines: both effects
    # must be small.
    effects = [_effect_size(near_FKM, other_FKM) for other_FKM in others]
    return max(effects) < MIN_EFFECT


def _effect_size(near_FKM: Floats, other_FKM: Floats) -> float:
    """Return the effect size of all features together at the best shift, compared with other
    targets."""
    mean_FK, variance_F = _moments(near_FKM, other_FKM)
    variance_F1 = variance_F[:, None]
    effect_FK = mean_FK**2 / variance_F1
    squares_K = effect_FK.sum(0)
    effect_K = np.sqrt(squares_K)
    return float(effect_K.max())


def _moments(near_FKM: Floats, other_FKM: Floats) -> tuple[Floats, Floats]:
    """Return the mean advantage of near targets over others, [F, K], and the variance of each
    feature, [F]."""
    other_mean_F1M = other_FKM.mean(1, keepdims=True)
    advantage_FKM = near_FKM - other_mean_F1M
    advantage_FK = advantage_FKM.mean(2)
    mean_FK = np.maximum(advantage_FK, 0.0)
    # The variance of a difference of two targets, neither of which is a translation.
    first_FM = other_FKM[:, 0]
    second_FM = other_FKM[:, 1]
    difference_FM = first_FM - second_FM
    squares_FM = difference_FM**2
    variance_F = squares_FM.mean(1) + 1e-9
    return mean_FK, variance_F


def _step(num_lines: int) -> int:
    """Return the distance of about `MAX_SAMPLE` lines at equal distances."""
    return max(1, num_lines // MAX_SAMPLE)


def _shared_word_weights(words_M2Y: Bytes) -> Floats:
    """Return the weight of a word shared by both sides: its negative log-frequency, [V]."""
    bits_M2V = np.unpackbits(words_M2Y, axis=2)
    frequency_V = bits_M2V.mean((0, 1))
    smoothing = 1 / len(words_M2Y)
    frequency_V += smoothing
    log_frequency_V = np.log(frequency_V)
    weight_V: Floats = -log_frequency_V.astype(np.float32)
    return weight_V


def products(first_NV: Floats, second_NV: Floats) -> Floats:
    """Return the scalar product of each row of two matrices, [N]."""
    product_N: Floats = np.einsum("nv,nv->n", first_NV, second_NV)
    return product_N


def unit_vectors(bits_NY: Bytes) -> Floats:
    """Return bitmaps as vectors of length 1, [N, V]."""
    bits_NV = _unpack(bits_NY)
    squares_N1 = bits_NV.sum(1, keepdims=True)
    squares_N1 = np.maximum(squares_N1, 1.0)
    length_N1 = np.sqrt(squares_N1)
    unit_NV: Floats = bits_NV / length_N1
    return unit_NV


def _unpack(bytes_Y: Bytes) -> Floats:
    """Return the bits of bitmaps, [..., V]."""
    bits_V = np.unpackbits(bytes_Y, axis=-1)
    return bits_V.astype(np.float32)
