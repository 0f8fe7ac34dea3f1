"""Corpus scores by sacrebleu, each with the signature that makes it comparable (Post 2018)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER

from nmt.console import log
from nmt.errors import UsageError

MAX_RESAMPLED = 20_000_000
"""Lines that may be drawn for a confidence interval: sacrebleu holds them all at once, some 70 bytes each."""
References = Sequence[Sequence[str]]
"""One translation or more of every line: R sequences of equal length."""


@dataclass(frozen=True)
class Score:
    """One number and how it was made."""

    name: str
    value: float
    signature: str
    confidence: float | None = None
    """Half the width of the 95 % interval, estimated by resampling the lines (Koehn 2004)."""

    def __str__(self) -> str:
        interval = "" if self.confidence is None else f" ± {self.confidence:.1f}"
        return f"{self.name} {self.value:.1f}{interval}  {self.signature}"


Metric = Callable[..., Score]
"""Scores hypotheses against `References`; with `resamples`, also says how sure the number is."""


def bleu(hypotheses: Sequence[str], references: References, *, resamples: int = 0) -> Score:
    """BLEU on cased, detokenized text, tokenized by 13a (Papineni et al. 2002)."""
    return _score("BLEU", _BLEU(), hypotheses, references, resamples)


def chrf(hypotheses: Sequence[str], references: References, *, resamples: int = 0) -> Score:
    """Character n-gram F-score, chrF2 (Popović 2015)."""
    return _score("chrF2", _CHRF(), hypotheses, references, resamples)


def ter(hypotheses: Sequence[str], references: References, *, resamples: int = 0) -> Score:
    """Translation edit rate; lower is better (Snover et al. 2006)."""
    return _score("TER", _TER(), hypotheses, references, resamples)


class _FloatScores:
    """A metric whose scores are Python numbers.

    sacreBLEU scores some draws of a bootstrap with a Python number and others with one of NumPy; its mean takes no mix.
    """

    def _compute_score_from_stats(self, stats: list[Any]) -> Any:
        found = super()._compute_score_from_stats(stats)  # type: ignore[misc]
        found.score = float(found.score)
        return found


class _BLEU(_FloatScores, BLEU):
    pass


class _CHRF(_FloatScores, CHRF):
    pass


class _TER(_FloatScores, TER):
    pass


METRICS: Mapping[str, Metric] = {"bleu": bleu, "chrf": chrf, "ter": ter}


def _score(name: str, metric: SacreMetric, hypotheses: Sequence[str], references: References, resamples: int) -> Score:
    if resamples * len(hypotheses) > MAX_RESAMPLED:
        log(f"{name}: no confidence interval for {len(hypotheses):,} lines, it would take too much memory")
        resamples = 0
    streams = [list(stream) for stream in references]
    found = metric.corpus_score(list(hypotheses), streams, n_bootstrap=resamples or 1)
    signature = str(metric.get_signature())
    confidence = None
    if resamples > 1:  # sacreBLEU gives the interval as text only, and none where every draw scores 0
        report = json.loads(found.format(width=20, signature=signature, is_json=True))
        confidence = float(report.get("confidence_var", 0.0))
    return Score(name, float(found.score), signature, confidence)


Judge = Callable[[Sequence[str], Sequence[str], Sequence[str]], Score]
"""Scores sources, hypotheses and references by a trained model."""


def comet(name: str) -> Judge:
    """Load a COMET model (Rei et al. 2020), downloaded on first use, such as `Unbabel/wmt22-comet-da`.

    Raises:
        UsageError: COMET is not installed, or there is no such model.
    """
    try:
        from comet import download_model, load_from_checkpoint
    except ImportError:
        raise UsageError("COMET is not installed", "pip install unbabel-comet") from None
    try:
        model = load_from_checkpoint(download_model(name))
    except Exception as error:  # whatever its downloader or its loader raises
        reason = str(error).split("\n")[0] or type(error).__name__
        raise UsageError(f"cannot load the COMET model {name}: {reason}", "it is downloaded on first use") from None

    def judge(sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]) -> Score:
        lines = zip(sources, hypotheses, references, strict=True)
        found = model.predict([{"src": src, "mt": mt, "ref": ref} for src, mt, ref in lines], progress_bar=False)
        return Score("COMET", 100 * float(found.system_score), f"model:{name}")

    return judge
