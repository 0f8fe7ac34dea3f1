"""The CTranslate2 engine, for a directory that `nmt export --to ctranslate2` wrote."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from nmt.core import runtime
from nmt.core.errors import CheckpointError, UsageError, check_choice
from nmt.core.packages import require_package
from nmt.engines import Sentences, Source, TokenScores
from nmt.search import Hypothesis, Search
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.search.partial import ROUNDING
from nmt.search.request import NBestLists, best_first
from nmt.text.tokenizer import Tokenizer

MODEL = "model.bin"
TYPES = {
    "auto": "default",
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "int8": "int8",
}
BATCH_SIZE = 128
"""Sentences in a batch."""
LENGTH_MULTIPLE = 16
"""Maximum lengths are rounded up to a multiple of this. CTranslate2 has one length limit per batch;
sentences with the same limit are batched together, so that a translation does not depend on its
batch."""
LogProbs = dict[tuple[int, ...], float]
"""The log-probabilities of the distinct hypotheses of a sentence, by their token ids."""


class CTranslate2Engine:
    """Translates and scores with CTranslate2. It supports the `greedy` and `beam` searches."""

    max_positions: int | None = None

    def __init__(self, directory: Path, tokenizer: Tokenizer, device: str, precision: str) -> None:
        """Load the model in `directory`.

        Raises:
            UsageError: CTranslate2 is not installed, or does not support the precision on this
                machine.
            CheckpointError: the model is damaged.
        """
        ctranslate2 = require_package("CTranslate2", "ctranslate2")
        check_choice("precision", precision, TYPES)
        self.tokenizer = tokenizer
        kind, _, index = device.partition(":")
        threads = (
            {"inter_threads": runtime.num_threads(), "intra_threads": 1} if kind == "cpu" else {}
        )
        try:
            self.translator = ctranslate2.Translator(
                str(directory),
                kind,
                device_index=int(index or 0),
                compute_type=TYPES[precision],
                **threads,
            )
        except ValueError as error:
            raise UsageError(
                f"CTranslate2: {error}", "--precision auto uses the precision of the model"
            ) from None
        except RuntimeError as error:
            raise CheckpointError(
                f"the export in {directory} is damaged: {error}", "nmt export RUN --to ctranslate2"
            ) from None

    def search(
        self, sources: Sequence[Source], search: Search, on_progress: Callable[[int], object]
    ) -> NBestLists:
        """Return the distinct hypotheses of each sentence, best first.

        CTranslate2 decides when to prune and stop; its hypotheses are then ranked by nmt's formula.

        Raises:
            UsageError: the search is not greedy or beam, or it has a coverage penalty.
        """
        if isinstance(search, Greedy):
            search = Beam(**asdict(search), beam_size=1, length_penalty=0.0)
        if not isinstance(search, Beam):
            raise UsageError(
                "the ctranslate2 engine supports only the greedy and beam searches",
                "leave out --engine",
            )
        if search.coverage_penalty:  # its scores would not be log-probabilities
            raise UsageError(
                "the ctranslate2 engine does not support coverage_penalty",
                "leave out --engine or coverage_penalty",
            )
        size = BATCH_SIZE * self.translator.num_translators
        n_best_lists: dict[int, list[Hypothesis]] = {}
        for (min_length, max_length), group in self._groups(sources, search).items():
            for start in range(0, len(group), size):
                batch = group[start : start + size]
                batch_sources = [sources[i] for i in batch]
                results = self._translate(batch_sources, search, min_length, max_length)
                hypotheses = self._hypotheses(batch_sources, results, search)
                n_best_lists.update(zip(batch, hypotheses, strict=True))
                on_progress(len(batch))
        return [n_best_lists[i] for i in range(len(sources))]

    def score(self, sources: Sentences, targets: Sentences) -> list[TokenScores]:
        """Score given translations, without attention."""
        results = self.translator.score_batch(
            self._tokens(sources),
            self._tokens(targets),
            max_batch_size=BATCH_SIZE,
            max_input_length=0,
        )
        return [TokenScores(list(result.log_probs), None) for result in results]

    def _groups(self, sources: Sequence[Source], search: Beam) -> dict[tuple[int, int], list[int]]:
        """Group sentence indices by minimum and maximum length, longest first."""
        groups: dict[tuple[int, int], list[int]] = {}
        for i in sorted(range(len(sources)), key=lambda i: -len(sources[i].ids)):
            min_length, max_length = _length_limits(sources[i], search)
            max_length = -(-max_length // LENGTH_MULTIPLE) * LENGTH_MULTIPLE
            groups.setdefault((min_length, max_length), []).append(i)
        return groups

    def _translate(
        self, sources: Sequence[Source], search: Beam, min_length: int, max_length: int
    ) -> list[Any]:
        prefixes = [source.prefix for source in sources]
        results: list[Any] = self.translator.translate_batch(
            self._tokens([source.ids for source in sources]),
            target_prefix=self._tokens(prefixes) if any(prefixes) else None,
            max_batch_size=BATCH_SIZE,
            min_decoding_length=min_length,
            max_decoding_length=max_length,
            return_scores=True,
            no_repeat_ngram_size=search.no_repeat_ngram_size,
            max_input_length=0,
            beam_size=search.beam_size,
            num_hypotheses=search.beam_size,
            length_penalty=search.length_penalty,
        )
        return results

    def _prefix_log_probs(self, sources: Sequence[Source]) -> list[float]:
        """Return the log-probability of each prefix, which the scores of CTranslate2 do not
        include."""
        prefixes = [source.prefix for source in sources]
        if not any(prefixes):
            return [0.0] * len(sources)
        scores = self.score([source.ids for source in sources], prefixes)
        return [
            float(sum(each.log_probs[: len(prefix)]))
            for each, prefix in zip(scores, prefixes, strict=True)
        ]

    def _hypotheses(
        self, sources: Sequence[Source], results: Sequence[Any], search: Beam
    ) -> NBestLists:
        """Return the best distinct hypotheses of each sentence, best first."""
        n_best_lists = []
        for log_probs in self._log_probs(sources, results, search):
            hypotheses = []
            for ids, log_prob in log_probs.items():
                length_norm = float(search.length_norm(len(ids) + 1))
                score = log_prob / length_norm
                hypotheses.append(Hypothesis(list(ids), log_prob, score, length_norm))
            n_best_lists.append(best_first(hypotheses)[: search.n_best])
        return n_best_lists

    def _log_probs(
        self, sources: Sequence[Source], results: Sequence[Any], search: Beam
    ) -> list[LogProbs]:
        """Return the log-probabilities of the hypotheses of each sentence, cut at its limit."""
        prefix_log_probs = self._prefix_log_probs(sources)
        log_probs_B: list[LogProbs] = [{} for _ in sources]
        at_limit: list[tuple[int, tuple[int, ...]]] = []
        for i, result in enumerate(results):
            _, max_length = _length_limits(sources[i], search)
            for tokens, score in zip(result.hypotheses, result.scores, strict=True):
                ids = tuple(self.tokenizer.pieces_to_ids(tokens[:max_length]))
                if ids in log_probs_B[i]:  # the two differ beyond the limit
                    continue
                log_prob = score * (len(ids) + 1) ** search.length_penalty
                log_probs_B[i][ids] = log_prob + prefix_log_probs[i]
                if len(ids) == max_length:
                    at_limit.append((i, ids))
        # Their scores include tokens beyond the limit, and may not include the end token.
        for (i, ids), log_prob in zip(at_limit, self._rescored(sources, at_limit), strict=True):
            log_probs_B[i][ids] = log_prob
        return log_probs_B

    def _rescored(
        self, sources: Sequence[Source], targets: Sequence[tuple[int, Sequence[int]]]
    ) -> list[float]:
        """Return the log-probabilities of targets, each with the index of its source."""
        if not targets:
            return []
        source_ids = [sources[i].ids for i, _ in targets]
        target_ids = [ids for _, ids in targets]
        scores = self.score(source_ids, target_ids)
        return [sum(each.log_probs) for each in scores]

    def _tokens(self, rows: Sentences) -> list[list[str]]:
        return [self.tokenizer.ids_to_pieces(row) for row in rows]


def _length_limits(source: Source, search: Beam) -> tuple[int, int]:
    """Return the minimum and maximum number of target tokens, as in the other engines."""
    length = len(source.ids)
    max_length = source.max_output_length
    if search.max_length_ratio:
        max_length = math.ceil(min(max_length, search.max_length_ratio * length - ROUNDING))
    return math.floor(min(max_length, search.min_length_ratio * length + ROUNDING)), max(
        1, max_length, len(source.prefix)
    )
