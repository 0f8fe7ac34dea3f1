"""Metrics that score single lines, which are those of plug-ins. The score of a test set is the mean
of its lines, so intervals and significance need only these scores."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from nmt.core.errors import ConfigError, UsageError
from nmt.core.registry import parse, resolve
from nmt.evaluate.metrics import METRICS, SACREBLEU_METRICS, Score
from nmt.evaluate.test_sets import References

SEED = 12345
"""That of sacreBLEU."""
MAX_SAMPLED = 10_000_000
"""Scores that are sampled at a time."""


def check_metric(spec: str) -> None:
    """Raise a ConfigError if the spec string of a metric is invalid."""
    name, options = parse(spec)
    if name not in SACREBLEU_METRICS:
        resolve("metric", METRICS, spec)
    elif options:
        raise ConfigError(f"metric '{name}' has no options", f"write {name}")


def score(
    spec: str,
    sources: Sequence[str],
    hypotheses: Sequence[str],
    references: References,
    *,
    resamples: int = 0,
) -> Score:
    """Return the score of hypotheses by a metric, with a confidence interval if `resamples` > 1.

    Raises:
        ConfigError: the spec string is invalid.
        UsageError: a plug-in returns something else than a number for each line.
    """
    if spec in SACREBLEU_METRICS:
        sacrebleu_score: Score = METRICS[spec](hypotheses, references, resamples=resamples)
        return sacrebleu_score
    score_N = score_lines(spec, sources, hypotheses, references)
    half_interval = None
    if resamples > 1 and len(score_N) > 1:
        half_interval = _half_interval(score_N, resamples)
    return Score(parse(spec)[0], float(score_N.mean()), signature(spec), half_interval)


def signature(spec: str) -> str:
    """Return what determines the scores of a metric of a plug-in."""
    return f"metric:{spec}|mean:lines"


def score_lines(
    spec: str, sources: Sequence[str], hypotheses: Sequence[str], references: References
) -> Any:
    """Return the score of each line; see `score` for the errors."""
    values = resolve("metric", METRICS, spec)(sources, hypotheses, references)
    try:
        score_N = np.array([float(value) for value in values])
    except (TypeError, ValueError):
        score_N = np.array([])
    if len(score_N) != len(hypotheses) or not np.isfinite(score_N).all():
        raise UsageError(
            f"metric '{parse(spec)[0]}' must return a finite number for each of"
            f" {len(hypotheses):,} lines",
            "repair the plug-in",
        )
    return score_N


def paired_tests(first_N: Any, second_N: Any, resamples: int) -> tuple[float, float, float, float]:
    """Return the half intervals of two systems, and the p-values of their difference by paired
    bootstrap resampling (Koehn 2004) and paired approximate randomization (Riezler and Maxwell
    2005)."""
    gain_N = second_N - first_N
    gain = abs(gain_N.mean())
    intervals = _half_interval(first_N, resamples), _half_interval(second_N, resamples)
    if not gain:
        return *intervals, 1.0, 1.0
    mean_R = _resampled_means(gain_N, resamples)
    deviation_R = abs(mean_R - mean_R.mean())
    bootstrap_p = _share_above(deviation_R, gain)
    randomization_p = _share_above(_randomized_gains(gain_N, 10 * resamples), gain)
    return *intervals, bootstrap_p, randomization_p


def _share_above(value_R: Any, limit: float) -> float:
    """Return the p-value of a difference: the share of values that are as large, one of which is
    the difference itself."""
    # Equal ones may be rounded differently.
    is_as_large_R = value_R >= limit * (1 - 1e-9)
    return float(is_as_large_R.sum() + 1) / (len(value_R) + 1)


def _randomized_gains(gain_N: Any, num_trials: int) -> Any:
    """Return the size of the gain if the translations of random lines are exchanged, which reverses
    the sign of their gains."""
    rng = np.random.default_rng(SEED)
    gains = []
    for size in _batch_sizes(num_trials, len(gain_N)):
        sign_RN = rng.choice((-1.0, 1.0), (size, len(gain_N)))
        mean_R = sign_RN @ gain_N / len(gain_N)
        gains.append(abs(mean_R))
    return np.concatenate(gains)


def _half_interval(score_N: Any, resamples: int) -> float:
    """Return half the width of the 95% confidence interval of a mean."""
    mean_R = _resampled_means(score_N, resamples)
    low, high = np.percentile(mean_R, (2.5, 97.5))
    return float(high - low) / 2


def _resampled_means(score_N: Any, resamples: int) -> Any:
    """Return the means of bootstrap samples, [R]."""
    rng = np.random.default_rng(SEED)
    num_lines = len(score_N)
    means = []
    for size in _batch_sizes(resamples, num_lines):
        index_RN = rng.integers(num_lines, size=(size, num_lines))
        means.append(score_N[index_RN].mean(1))
    return np.concatenate(means)


def _batch_sizes(num_samples: int, num_lines: int) -> Iterator[int]:
    batch_size = math.ceil(MAX_SAMPLED / num_lines)
    for start in range(0, num_samples, batch_size):
        yield min(batch_size, num_samples - start)
