"""Corpus metrics of sacreBLEU with their signatures (Post 2018), and COMET."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sacrebleu.metrics.base import Metric as SacreMetric
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest

from nmt.core.console import log, log_once
from nmt.core.errors import UsageError, first_line
from nmt.core.packages import require_package
from nmt.core.plugins import Components
from nmt.evaluate.test_sets import References

MAX_RESAMPLED_LINES = 20_000_000
"""Maximum resamples times lines for a confidence interval. sacreBLEU keeps about 70 bytes for each
in memory."""


_BLEU = partial(BLEU, force=True)
"""`force` only silences warnings: `_score` has its own."""
MAX_TOKENIZED_LINES = 100
"""Above this number of lines that end with a period after a space, there is a warning."""


@dataclass(frozen=True)
class Score:
    """A score and the signature of its metric."""

    name: str
    value: float
    signature: str
    half_interval: float | None = None
    """Half the width of the 95% confidence interval, from bootstrap resampling (Koehn 2004)."""

    def __str__(self) -> str:
        interval = "" if self.half_interval is None else f" ± {self.half_interval:.1f}"
        return f"{self.name} {self.value:.1f}{interval}  {self.signature}"


def reference_lists(references: References) -> list[list[Any]]:
    """Return reference streams for sacreBLEU, which allows None, although its types do not."""
    return [list(stream) for stream in references]


def _sentence_scores(
    metric_type: Callable[[], SacreMetric], hypotheses: Sequence[str], references: References
) -> list[float]:
    metric = metric_type()
    scores = []
    for hypothesis, texts in zip(hypotheses, zip(*references, strict=True), strict=True):
        present = [text for text in texts if text is not None]
        scores.append(metric.sentence_score(hypothesis, present).score)
    return scores


sentence_chrf = partial(_sentence_scores, CHRF)
"""Returns the chrF2 of each hypothesis, from 0 to 100."""
sentence_bleu = partial(_sentence_scores, partial(_BLEU, effective_order=True))
"""Returns the smoothed BLEU of each hypothesis, from 0 to 100."""
LOWER_IS_BETTER = {"TER"}
"""Names of scores (`Score.name`) of which a lower value is better."""
SENTENCE_METRICS = {"bleu": sentence_bleu, "chrf": sentence_chrf}


SACREBLEU_METRICS: dict[str, Callable[[], SacreMetric]] = {"bleu": _BLEU, "chrf": CHRF, "ter": TER}


def _score(
    name: str,
    metric_type: Callable[[], SacreMetric],
    hypotheses: Sequence[str],
    references: References,
    *,
    resamples: int = 0,
) -> Score:
    metric = metric_type()
    if resamples * len(hypotheses) > MAX_RESAMPLED_LINES:
        log(
            f"{name}: no confidence interval, because {len(hypotheses):,} lines need too much"
            " memory"
        )
        resamples = 0
    num_tokenized = sum(1 for line in hypotheses if line.endswith(" ."))
    if isinstance(metric, BLEU) and num_tokenized > MAX_TOKENIZED_LINES:
        log_once(
            "warning: many translations end with a space and a period; BLEU expects text that is"
            " not tokenized"
        )
    streams = reference_lists(references)
    if resamples > 1 and len(hypotheses) > 1:
        test = PairedTest(
            [(name, list(hypotheses))], {name: metric}, streams, test_type="bs", n_samples=resamples
        )
        signatures, results = test()
        result: Any = results[name][0]  # unlike corpus_score, it averages Python and NumPy floats
        return Score(name, float(result.score), str(signatures[name]), float(result.ci))
    score = metric.corpus_score(list(hypotheses), streams)
    return Score(name, float(score.score), str(metric.get_signature()))


bleu = partial(_score, "BLEU", _BLEU)
"""BLEU on cased, detokenized text, tokenized by 13a (Papineni et al. 2002)."""
chrf = partial(_score, "chrF2", CHRF)
"""Character n-gram F-score, chrF2 (Popović 2015)."""
ter = partial(_score, "TER", TER)
"""Translation edit rate; lower is better (Snover et al. 2006)."""
METRICS: Components[Callable[..., Any]] = Components(
    "metric", {"bleu": bleu, "chrf": chrf, "ter": ter}, returns="a number for each line"
)
"""These return a `Score`; metrics of plug-ins score lines, see `nmt.evaluate.line_metrics`."""


CometSegments = Callable[[Sequence[str], Sequence[str], Sequence[str]], list[float]]
"""Returns the score of each sentence, usually from 0 to 1, for sources, hypotheses and
references."""


def comet_segments(name: str) -> CometSegments:
    """Load a COMET model (Rei et al. 2020) such as `Unbabel/wmt22-comet-da`. COMET downloads it on
    first use.

    Raises:
        UsageError: COMET is not installed, or the model cannot be loaded.
    """
    comet = require_package("COMET", "comet")
    try:
        model = comet.load_from_checkpoint(comet.download_model(name))
    except Exception as error:  # COMET documents no exception types
        raise UsageError(
            f"cannot load the COMET model {name}: {first_line(error)}",
            "check the name and the network connection",
        ) from None

    def score(
        sources: Sequence[str], hypotheses: Sequence[str], references: Sequence[str]
    ) -> list[float]:
        lines = zip(sources, hypotheses, references, strict=True)
        output = model.predict(
            [{"src": src, "mt": mt, "ref": ref} for src, mt, ref in lines], progress_bar=False
        )
        return [float(each) for each in output.scores]

    return score
