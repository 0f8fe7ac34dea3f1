"""Calibrates the confidence of a model: fits it to the quality of translations, and measures how
reliable it is.

The target is the quality of a translation between 0 and 1, such as its sentence chrF2 divided by
100, and not whether it exceeds a threshold: a graded target needs fewer sentences, and works for
weak and strong models alike. The fit is a fractional logistic regression (Papke and Wooldridge
1996), whose predictions are expected values.

Shape suffixes: N sentences, F features, D features and a constant.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nmt.core.console import progress
from nmt.core.errors import DataError, UsageError
from nmt.engines import Source
from nmt.evaluate.metrics import comet_segments, sentence_chrf
from nmt.evaluate.test_sets import References, TestSet
from nmt.runs.checkpoint import WEIGHTS, read_meta
from nmt.search import parse_search
from nmt.translation.chunking import chunked
from nmt.translation.confidence import (
    FEATURE_SIGNS,
    LENGTH_RATIO,
    Array,
    Calibration,
    ConfidenceModel,
    Feature,
    centered,
    features,
)
from nmt.translation.segments import Line, protected_spans
from nmt.translation.translator import Translator

MIN_SENTENCES = 50
"""Minimum number of sentences of a development set."""
HELD_OUT_SCORES = ("pearson", "spearman", "kendall", "calibration_error")
FOLDS, BINS = 5, 10
CHUNK_SIZE = 100
"""Sentences translated between two checks of the time limit."""
REGULARIZATION = 1.0
"""Weight of the squared norm of the feature weights, relative to one sentence."""
NEWTON_STEPS, TOLERANCE, DECIMALS = 100, 1e-10, 6


@dataclass(frozen=True)
class QualityMetric:
    """A metric of single translations."""

    name: str
    score: Callable[[Sequence[str], Sequence[str], References], list[float]]
    """Returns the quality of each translation from sources, translations and reference streams."""


CHRF = QualityMetric(
    "chrF2", lambda _, texts, references: [each / 100 for each in sentence_chrf(texts, references)]
)
"""Sentence chrF2, divided by 100."""


def comet_quality(name: str) -> QualityMetric:
    """Return the COMET model `name`, with scores limited to the range from 0 to 1; see
    `metrics.comet_segments`."""
    segments = comet_segments(name)

    def score(
        sources: Sequence[str], hypotheses: Sequence[str], references: References
    ) -> list[float]:
        first_references = [text or "" for text in references[0]]  # the first stream is complete
        scores = segments(sources, hypotheses, first_references)
        return [min(1.0, max(0.0, each)) for each in scores]

    return QualityMetric(f"COMET ({name})", score)


@dataclass(frozen=True)
class Observations:
    """Translations of a development or test set: their features, [N, F], and quality, [N]."""

    features_NF: Array
    quality_N: Array


@dataclass(frozen=True)
class Bin:
    """Translations with similar confidence."""

    sentences: int
    min_confidence: float
    max_confidence: float
    mean_confidence: float
    mean_quality: float


@dataclass(frozen=True)
class Reliability:
    """How well confidences predict the quality of the translations of a test set."""

    test: str
    sentences: int
    mean_confidence: float
    mean_quality: float
    pearson: float
    spearman: float
    kendall: float
    """Kendall's tau-b."""
    calibration_error: float
    """Expected calibration error: mean distance between the mean confidence and the mean quality of
    a bin, weighted by the number of sentences."""
    bins: list[Bin]
    """Bins of equal size, from the lowest to the highest confidence."""


def observe(
    translator: Translator,
    test: TestSet,
    search: str,
    metric: QualityMetric,
    deadline: float | None = None,
) -> Observations:
    """Translate a test set and return features and quality of the translations.

    Blank lines, lines that the translator splits, and lines with protected spans, such as
    addresses, are left out. No further sentences are translated after `deadline`, a value of
    `time.monotonic()`.
    """
    algorithm = parse_search(search)
    sources = _single_segments(translator, test.sources)
    rows: list[list[float]] = []
    texts: list[str] = []
    with progress(len(sources), f"translating {test.name}", " lines") as bar:
        for chunk in chunked(sources.values(), CHUNK_SIZE):
            if deadline is not None and time.monotonic() >= deadline:
                break
            n_best = translator.engine.search(chunk, algorithm, bar.update)
            best = [hypotheses[0].ids for hypotheses in n_best]
            ids = [source.ids for source in chunk]
            rows += map(features, map(len, ids), translator.engine.score(ids, best))
            texts += translator.tokenizer.decode_batch(best)
    quality = _quality(metric, test, list(sources)[: len(texts)], texts) if texts else []
    features_NF = np.array(rows).reshape(-1, len(FEATURE_SIGNS))
    return Observations(features_NF, np.array(quality, np.float64))


def _quality(
    metric: QualityMetric, test: TestSet, used: list[int], texts: list[str]
) -> list[float]:
    """Return the quality of the translations of some lines."""
    sources = [test.sources[i] for i in used]
    references = [[stream[i] for i in used] for stream in test.references]
    return metric.score(sources, texts, references)


def _single_segments(translator: Translator, lines: Sequence[str]) -> dict[int, Source]:
    """Return the lines that are translated in one piece, without protected spans, by index."""
    sources = {}
    split = translator.segmenter.split(list(map(Line, lines)))
    for i, segments in enumerate(split):
        has_opaque_span = any(span.is_opaque for span in protected_spans(lines[i]))
        if len(segments) == 1 and not has_opaque_span:
            sources[i] = segments[0].source
    return sources


def calibrate(
    translator: Translator,
    development: TestSet,
    search: str,
    metric: QualityMetric = CHRF,
    deadline: float | None = None,
) -> tuple[Calibration, Reliability]:
    """Fit the confidence of a model, not an ensemble or an export, and measure its reliability by
    cross-validation.

    The model must not have been trained on the development set. `deadline`: see `observe`.

    Raises:
        DataError: fewer than `MIN_SENTENCES` sentences could be used.
    """
    if len(development.sources) < MIN_SENTENCES:
        raise _too_few_error(development, len(development.sources))
    observations = observe(translator, development, search, metric, deadline)
    count = len(observations.quality_N)
    if count < MIN_SENTENCES:
        if deadline is not None and time.monotonic() >= deadline:
            raise DataError(
                f"only {count} sentences could be translated within the time limit", "increase it"
            )
        raise _too_few_error(development, count)
    held_out = reliability(
        f"{development.name}, cross-validation", cross_validate(observations), observations
    )
    scale = "divided by 100" if metric is CHRF else "between 0 and 1"
    calibration = Calibration(
        **vars(fit(observations)),
        definition=f"expected sentence {metric.name} of the translation, {scale}",
        metric=metric.name,
        checkpoint=translator.checkpoint.name,
        weights=read_meta(translator.checkpoint)["sha256"][WEIGHTS],
        search=search,
        data=development.name,
        sentences=count,
        held_out={name: round(getattr(held_out, name), DECIMALS) for name in HELD_OUT_SCORES},
    )
    return calibration, held_out


def _too_few_error(development: TestSet, count: int) -> DataError:
    return DataError(
        f"{development.name} has {count} sentences to calibrate on, fewer than {MIN_SENTENCES}",
        "use a larger development set; blank lines, split lines and lines with protected spans do"
        " not count",
    )


def fit(observations: Observations) -> ConfidenceModel:
    """Fit a confidence model; deterministic.

    A weight against the direction of its feature (`FEATURE_SIGNS`) is set to zero and the others
    are fitted again.
    """
    log_length_ratio = float(np.median(observations.features_NF[:, LENGTH_RATIO]))
    features_NF = centered(observations.features_NF, log_length_ratio)
    mean_F = features_NF.mean(0)
    std_F = features_NF.std(0)
    std_F[std_F < 1e-5] = 1.0  # a constant feature
    direction_F = np.array(list(FEATURE_SIGNS.values()), float)
    oriented_NF = (features_NF - mean_F) / std_F * direction_F
    # Keeps the bias finite if all translations are perfect, or all are worthless (cf. Platt 1999).
    count = len(observations.quality_N)
    target_N = (count * observations.quality_N + 0.5) / (count + 1)
    used = list(range(len(direction_F)))
    while True:
        bias, *weights = _logistic_regression(oriented_NF[:, used], target_N)
        if min(weights, default=0) >= 0:
            break
        del used[np.argmin(weights)]
    weight_F = np.zeros_like(direction_F)
    weight_F[used] = direction_F[used] * weights
    table_F3 = np.column_stack((mean_F, std_F, weight_F)).round(DECIMALS).tolist()
    return ConfidenceModel(
        round(float(bias), DECIMALS),
        round(log_length_ratio, DECIMALS),
        {name: Feature(*row) for name, row in zip(FEATURE_SIGNS, table_F3, strict=True)},
    )


def _logistic_regression(features_NF: Array, target_N: Array) -> Array:
    """Return the bias and the weights, by Newton's method with step halving."""
    inputs_ND = np.column_stack((np.ones(len(features_NF)), features_NF))
    penalty_D = np.full(inputs_ND.shape[1], REGULARIZATION)
    penalty_D[0] = 0.0

    def loss(weight_D: Array) -> float:
        logit_N = inputs_ND @ weight_D
        return float(
            (np.logaddexp(0, logit_N) - target_N * logit_N).sum()
            + (penalty_D * weight_D**2).sum() / 2
        )

    weight_D = np.zeros(inputs_ND.shape[1])
    for _ in range(NEWTON_STEPS):
        p_N = 1 / (1 + np.exp(-inputs_ND @ weight_D))
        gradient_D = inputs_ND.T @ (p_N - target_N) + penalty_D * weight_D
        hessian_DD = (inputs_ND.T * (p_N * (1 - p_N))) @ inputs_ND + np.diag(penalty_D + 1e-9)
        step_D = np.linalg.solve(hessian_DD, gradient_D)
        while loss(weight_D - step_D) > loss(weight_D) and np.abs(step_D).max() > TOLERANCE:
            step_D /= 2
        weight_D -= step_D
        if np.abs(step_D).max() <= TOLERANCE:
            break
    return weight_D


def cross_validate(observations: Observations) -> Array:
    """Return the confidence of each sentence, fitted on the folds that do not contain it, [N].

    The folds are contiguous, because neighbors in a corpus may be similar.
    """
    confidence_N = np.zeros(len(observations.quality_N))
    index_N = np.arange(len(confidence_N))
    for fold in np.array_split(index_N, FOLDS):
        rest = np.delete(index_N, fold)
        training = Observations(observations.features_NF[rest], observations.quality_N[rest])
        confidence_N[fold] = fit(training).predict(observations.features_NF[fold])
    return confidence_N


def reliability(test: str, confidence_N: Array, observations: Observations) -> Reliability:
    """Compare confidences with the quality of the translations."""
    quality_N = observations.quality_N
    order = np.argsort(confidence_N, kind="stable")
    bins = [
        Bin(
            len(part),
            float(confidence_N[part].min()),
            float(confidence_N[part].max()),
            float(confidence_N[part].mean()),
            float(quality_N[part].mean()),
        )
        for part in np.array_split(order, min(BINS, len(order)))
    ]
    error = sum(
        each.sentences * abs(each.mean_confidence - each.mean_quality) for each in bins
    ) / len(order)
    return Reliability(
        test,
        len(order),
        float(confidence_N.mean()),
        float(quality_N.mean()),
        _pearson(confidence_N, quality_N),
        _pearson(_ranks(confidence_N), _ranks(quality_N)),
        _kendall(confidence_N, quality_N),
        error,
        bins,
    )


def measure_reliability(
    translator: Translator,
    calibration: Calibration,
    test: TestSet,
    search: str,
    metric: QualityMetric,
) -> Reliability:
    """Measure the reliability of a calibration on a test set.

    Raises:
        DataError: no sentence of the test set can be used.
        UsageError: the calibration was fitted to another metric.
    """
    if calibration.metric != metric.name:
        raise UsageError(
            f"the model is calibrated for {calibration.metric}, not for {metric.name}",
            "use the same metric, or leave out --evaluate-only",
        )
    observations = observe(translator, test, search, metric)
    if not observations.quality_N.size:
        raise DataError(
            f"{test.name} has only lines that are blank, split or protected", "use another test set"
        )
    return reliability(test.name, calibration.predict(observations.features_NF), observations)


def _pearson(first_N: Array, second_N: Array) -> float:
    """Return Pearson's correlation; 0 if it is undefined because one of them is constant."""
    first_N = first_N - first_N.mean()
    second_N = second_N - second_N.mean()
    norm = float(np.linalg.norm(first_N) * np.linalg.norm(second_N))
    return float(first_N @ second_N) / norm if norm > 1e-12 else 0.0


def _ranks(values_N: Array) -> Array:
    """Return ranks; equal values get their mean rank."""
    _, index_N, count = np.unique(values_N, return_inverse=True, return_counts=True)
    ranks_N = (count.cumsum() - (count - 1) / 2)[index_N]
    return ranks_N


def _kendall(first_N: Array, second_N: Array) -> float:
    """Return Kendall's tau-b; 0 if it is undefined because one of them is constant."""
    sums = np.zeros(3)
    for i in range(1, len(first_N)):
        first = np.sign(first_N[:i] - first_N[i])
        second = np.sign(second_N[:i] - second_N[i])
        sums += (first @ second, first @ first, second @ second)
    concordant, first_pairs, second_pairs = sums.tolist()
    norm = (first_pairs * second_pairs) ** 0.5
    return concordant / norm if norm else 0.0
