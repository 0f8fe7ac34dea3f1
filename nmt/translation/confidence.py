"""Confidence: the expected quality of a translation, estimated from the probabilities of the model
that translates.

A logistic function of a few features is fitted to the quality of translations of a development set
(`nmt.evaluate.calibration`) and stored in `calibration.json` of the run. The features are those of
Fomicheva et al. 2020, "Unsupervised quality estimation for neural machine translation", that need
one translation and one forward pass, and the coverage of Wu et al. 2016, equation 14.

Shape suffixes: N sentences, F features, T target tokens including the end token, S source tokens.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from nmt.core import untrusted_files
from nmt.core.console import log
from nmt.core.errors import CheckpointError, write_errors
from nmt.core.paths import sha256, write_json
from nmt.core.ranges import Range
from nmt.core.untrusted_files import Count, Number
from nmt.engines import TokenScores
from nmt.runs import pretrained
from nmt.runs.checkpoint import CALIBRATION, WEIGHTS, read_meta
from nmt.runs.model_files import ModelFiles

Array = NDArray[np.float64]
FORMAT = 1
FEATURE_SIGNS = {
    "mean_probability": 1,
    "mean_log_prob": 1,
    "min_log_prob": 1,
    "length": -1,
    "length_ratio": -1,
    "coverage": 1,
}
"""Whether the confidence may rise (1) or fall (-1) with each feature. With fixed directions, a
translation that looks worse than all of the development set gets a lower confidence than they
do."""
LENGTH_RATIO = list(FEATURE_SIGNS).index("length_ratio")
MIN_LOG_PROB, MIN_COVERAGE = -100.0, 0.01
"""Lower limits of log-probabilities and of the coverage of a source token, so that all features are
finite."""
MAX_LOGIT = 30.0
"""Limit of the logit, so that exp does not overflow."""


@dataclass(frozen=True)
class Feature:
    """Mean and standard deviation of a feature on the development set, and the weight of the
    standardized feature."""

    mean: Number
    std: Annotated[float, Range(1e-30, 1e30)]
    weight: Number


@dataclass(frozen=True)
class ConfidenceModel:
    """A logistic regression from features to expected quality."""

    bias: Number
    log_length_ratio: Number
    """Median of log(T / S) on the development set. The feature `length_ratio` is the distance from
    it."""
    features: dict[str, Feature]
    """The features by name, in the order of `FEATURE_SIGNS`."""

    def predict(self, features_NF: Array) -> Array:
        """Return the confidences for the result of `features`, [N], between 0 and 1."""
        mean_F, std_F, weight_F = np.array(
            [[f.mean, f.std, f.weight] for f in self.features.values()]
        ).T
        standardized_NF = (centered(features_NF, self.log_length_ratio) - mean_F) / std_F
        # The mean replaces the coverage if the engine returns no attention.
        logit_N = self.bias + np.nan_to_num(standardized_NF, nan=0.0) @ weight_F
        confidence_N: Array = 1 / (1 + np.exp(-logit_N.clip(-MAX_LOGIT, MAX_LOGIT)))
        return confidence_N


@dataclass(frozen=True)
class Calibration(ConfidenceModel):
    """The content of `calibration.json`."""

    definition: str
    """What a confidence is."""
    metric: str
    """Name of the quality metric."""
    checkpoint: str
    """Name of the calibrated checkpoint."""
    weights: str
    """SHA-256 of its weights."""
    search: str
    data: str
    """Name of the development set."""
    sentences: Count
    """Number of sentences of the development set."""
    held_out: dict[str, float]
    """Correlations and calibration error in cross-validation on the development set."""

    def confidence(self, source_length: int, scores: TokenScores) -> float:
        """Return the confidence of a translation; see `features` for the arguments."""
        return round(float(self.predict(np.array([features(source_length, scores)]))[0]), 4)

    def save(self, path: Path) -> None:
        """Write the file atomically.

        Raises:
            NMTError: it cannot be written.
        """
        content = {"format": FORMAT} | asdict(self)
        with write_errors(path, "check that the directory is writable"):
            write_json(path, content)


def features(source_length: int, scores: TokenScores) -> list[float]:
    """Return the features of a translation, in the order of `FEATURE_SIGNS`.

    Args:
        source_length: number of source tokens, without the end token.
        scores: scores of the translation. Without attention, the coverage is NaN.
    """
    log_prob_T = np.maximum(np.nan_to_num(scores.log_probs, nan=MIN_LOG_PROB), MIN_LOG_PROB)
    coverage = math.nan
    if scores.attention_TS is not None and source_length:
        coverage_S = scores.attention_TS[:, :source_length].sum(0)
        coverage = float(np.log(coverage_S.clip(MIN_COVERAGE, 1.0)).mean())
    return [
        float(np.exp(log_prob_T).mean()),
        float(log_prob_T.mean()),
        float(log_prob_T.min()),
        math.log(source_length + 1),
        math.log(len(log_prob_T) / (source_length + 1)),
        coverage,
    ]


def centered(features_NF: Array, log_length_ratio: float) -> Array:
    """Replace the length ratio by its distance from the typical one."""
    result_NF = features_NF.copy()
    result_NF[:, LENGTH_RATIO] = np.abs(features_NF[:, LENGTH_RATIO] - log_length_ratio)
    return result_NF


def find(model: ModelFiles) -> Calibration | None:
    """Load the calibration of a model, or return None. If there are only those of other weights,
    that is logged.

    Raises:
        CheckpointError: a file is damaged, and no other one belongs to these weights.
    """
    weights = read_meta(model.checkpoint)["sha256"][WEIGHTS]
    others, error = list[str](), None
    for path in pretrained.calibration_files(model.run, model.checkpoint):
        try:
            calibration = load(path)
        except CheckpointError as caught:
            error = caught
            continue
        if calibration.weights == weights:
            if error:
                log(f"{error.message}; using {path}")
            return calibration
        others.append(
            f"ignoring {path}: it belongs to other weights, those of {calibration.checkpoint}"
        )
    if error:
        raise error
    for line in others:
        log(line)
    return None


def find_exported(directory: Path) -> Calibration | None:
    """Load the calibration that an export to another engine has from its run, or return None.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = directory / CALIBRATION
    return load(path) if path.is_file() else None


def copy(model: ModelFiles, directory: Path, weights: Path | None = None) -> None:
    """Copy the calibration of a model to an export, if there is one, for the checksum of the
    exported weights.

    Raises:
        CheckpointError: the file is damaged.
    """
    if calibration := find(model):
        checksum = sha256(weights) if weights else calibration.weights
        replace(calibration, weights=checksum).save(directory / CALIBRATION)


def load(path: Path) -> Calibration:
    """Load a calibration.

    Raises:
        CheckpointError: the file is damaged, or a later version of nmt wrote it.
    """
    hint = "fit a new one with nmt calibrate, or delete the file"
    try:
        content = untrusted_files.parse_json(untrusted_files.read_bytes(path))
        untrusted_files.check(content, dict[str, Any])
        if content.pop("format", None) != FORMAT:
            raise CheckpointError(f"{path} was written by another version of nmt", hint)
        untrusted_files.check(content, Calibration)
        if list(content["features"]) != list(FEATURE_SIGNS):
            raise ValueError("other features")
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror}", hint) from None
    except ValueError:
        raise CheckpointError(f"{path} is damaged", hint) from None
    features = {name: Feature(**values) for name, values in content["features"].items()}
    return Calibration(**content | {"features": features})
