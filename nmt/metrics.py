"""Corpus scores by sacrebleu, each with the signature that makes it comparable (Post 2018)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER


@dataclass(frozen=True)
class Score:
    """One number and how it was made."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.1f}  {self.signature}"


Metric = Callable[[Sequence[str], Sequence[str]], Score]


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """BLEU on cased, detokenised text, tokenised by 13a (Papineni et al. 2002)."""
    return _score("BLEU", BLEU(), hypotheses, references)


def chrf(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Character n-gram F-score, chrF2 (Popović 2015)."""
    return _score("chrF2", CHRF(), hypotheses, references)


def ter(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Translation edit rate; lower is better (Snover et al. 2006)."""
    return _score("TER", TER(), hypotheses, references)


METRICS: dict[str, Metric] = {"bleu": bleu, "chrf": chrf, "ter": ter}


def _score(name: str, metric: SacreMetric, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score(name, float(value), str(metric.get_signature()))
