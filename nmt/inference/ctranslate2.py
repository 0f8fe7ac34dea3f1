"""CTranslate2 (an engine in C++) for a folder that `nmt export` made, with our options and text handling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nmt import runtime
from nmt.data.tokenizer import Tokenizer
from nmt.errors import CheckpointError, UsageError
from nmt.inference import Source, TokenScores
from nmt.search import Hypothesis, Search
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy

MODEL = "model.bin"
TYPES = {"auto": "default", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int8": "int8"}
BATCH = 128
"""Sentences of a batch."""
ROUND = 16
"""Length limits are rounded up to a multiple of it: CTranslate2 has one for a whole batch, and sentences of one limit
are translated together, so that company does not change a translation."""


class CTranslate2Engine:
    """Searches with CTranslate2; knows `greedy` and `beam`."""

    max_positions: int | None = None

    def __init__(self, folder: Path, tokenizer: Tokenizer, device: str, precision: str) -> None:
        """Load the model in `folder`.

        Raises:
            UsageError: CTranslate2 is not installed, or has not this precision here.
            CheckpointError: the model is damaged.
        """
        try:
            import ctranslate2
        except ImportError:
            raise UsageError("CTranslate2 is not installed", "pip install ctranslate2") from None
        self.tokenizer = tokenizer
        kind, _, index = device.partition(":")
        threads = {"inter_threads": runtime.num_threads(), "intra_threads": 1} if kind == "cpu" else {}
        try:
            self.translator = ctranslate2.Translator(
                str(folder), kind, device_index=int(index or 0), compute_type=TYPES[precision], **threads
            )
        except ValueError as error:
            raise UsageError(f"CTranslate2: {error}", "--precision auto takes what the model holds") from None
        except RuntimeError as error:
            raise CheckpointError(
                f"the export in {folder} is damaged: {error}", "nmt export RUN --to ctranslate2"
            ) from None

    def search(
        self, sources: Sequence[Source], search: Search, on_progress: Callable[[int], object]
    ) -> list[list[Hypothesis]]:
        """Return each sentence's hypotheses, best first.

        Beams are pruned and ended by CTranslate2's rules; what it finds is scored and ranked by ours.

        Raises:
            UsageError: another search than greedy or beam, or a coverage penalty.
        """
        if not isinstance(search, Greedy | Beam):
            raise UsageError("the engine ctranslate2 knows the searches greedy and beam only", "leave out --engine")
        if isinstance(search, Beam) and search.coverage_penalty:  # the score it returns is no log-probability
            raise UsageError("the engine ctranslate2 takes no coverage penalty", "leave out --engine, or coverage")
        step = BATCH * self.translator.num_translators
        found: dict[int, list[Hypothesis]] = {}
        for (least, most), group in self._groups(sources, search).items():
            for part in (group[first : first + step] for first in range(0, len(group), step)):
                results = self._translate([sources[i] for i in part], search, least, most)
                for i, result in zip(part, results, strict=True):
                    found[i] = self._hypotheses(result, search, _limits(sources[i], search)[1])
                on_progress(len(part))
        return [found[i] for i in range(len(sources))]

    def score(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[TokenScores]:
        """Score given translations; where their tokens looked stays unknown."""
        found = self.translator.score_batch(self._pieces(sources), self._pieces(targets), max_batch_size=BATCH)
        return [TokenScores(list(each.log_probs), None) for each in found]

    def _groups(self, sources: Sequence[Source], search: Greedy | Beam) -> dict[tuple[int, int], list[int]]:
        """Group sentence numbers by length limits, the long ones first."""
        groups: dict[tuple[int, int], list[int]] = {}
        for i in sorted(range(len(sources)), key=lambda i: -len(sources[i].ids)):
            least, most = _limits(sources[i], search)
            groups.setdefault((least, -(-most // ROUND) * ROUND), []).append(i)
        return groups

    def _translate(self, sources: Sequence[Source], search: Greedy | Beam, least: int, most: int) -> list[Any]:
        options: dict[str, Any] = {"beam_size": 1}
        if isinstance(search, Beam):
            options = {
                "beam_size": search.beam_size,
                "num_hypotheses": search.beam_size,
                "length_penalty": search.length_penalty,
            }
        prefixes = [source.prefix for source in sources]
        found: list[Any] = self.translator.translate_batch(
            self._pieces([source.ids for source in sources]),
            target_prefix=self._pieces(prefixes) if any(prefixes) else None,
            max_batch_size=BATCH, min_decoding_length=least, max_decoding_length=most, return_scores=True,
            no_repeat_ngram_size=search.no_repeat_ngram_size, **options,
        )  # fmt: skip
        return found

    def _hypotheses(self, result: Any, search: Greedy | Beam, most: int) -> list[Hypothesis]:
        found = []
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            ids = self.tokenizer.pieces_to_ids(pieces[:most])
            if isinstance(search, Beam):
                norm = float(search.norm(len(ids) + 1))
                log_prob = score * (len(ids) + 1) ** search.length_penalty
                found.append(Hypothesis(ids, log_prob, log_prob / norm, norm))
            else:
                found.append(Hypothesis(ids, score, score))
        return sorted(found, key=lambda h: -h.score)[: search.n_best]

    def _pieces(self, rows: Sequence[Sequence[int]]) -> list[list[str]]:
        return [self.tokenizer.ids_to_pieces(row) for row in rows]


def _limits(source: Source, search: Greedy | Beam) -> tuple[int, int]:
    """Return the least and most tokens of a sentence's translation, as our own searches keep them."""
    length = len(source.ids)
    most = 2 * (length + 1) + 10
    if search.max_length_ratio:
        most = math.ceil(min(most, search.max_length_ratio * length))
    return math.floor(min(most, search.min_length_ratio * length)), max(1, most, len(source.prefix))
