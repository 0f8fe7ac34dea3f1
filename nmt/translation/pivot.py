"""Pivot translation: through a third language, for languages without a model of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from nmt.core.config import Config
from nmt.core.errors import UsageError
from nmt.text.language_codes import base_language
from nmt.translation.line_translator import LineTranslator
from nmt.translation.result import Translation
from nmt.translation.segments import Line
from nmt.translation.translator import as_lines


class Pivot:
    """Translates lines with one translator, and their translations with another one."""

    def __init__(self, first: LineTranslator, second: LineTranslator, first_search: str) -> None:
        """Join two translators; `first_search` is the spec string of the first one's search."""
        self.first = first
        self.second = second
        self.first_search = first_search
        self.config = _joint_config(first.config, second.config)
        self.tokenizer = first.tokenizer
        self.term_counts = second.term_counts

    def stream(
        self,
        chunks: Iterable[Sequence[str | Line]],
        search: str | None = None,
        *,
        details: bool = False,
        on_progress: Callable[[float], object] = lambda lines: None,
    ) -> Iterator[list[Translation]]:
        """Yield the n-best list of each line; see `Guard.stream`.

        Only the best translation into the pivot language is translated again. Scores, tokens and
        alignments are those of the second translator. Warnings are those of both.
        """

        def report(num_lines: float) -> None:  # each line is translated twice
            on_progress(num_lines / 2)

        for chunk in chunks:
            lines = as_lines(chunk)
            # Prefix and constraints are text of the target language.
            sources = [replace(line, prefix="", constraints=()) for line in lines]
            n_bests = self.first.stream([sources], self.first_search, on_progress=report)
            middles = [n_best[0] for n_best in n_bests]
            pivots = []
            for line, middle in zip(lines, middles, strict=True):
                pivots.append(Line(middle.text, line.prefix, line.constraints))
            results = self.second.stream([pivots], search, details=details, on_progress=report)
            for middle, n_best in zip(middles, results, strict=True):
                yield [
                    replace(each, warnings=(*middle.warnings, *each.warnings)) for each in n_best
                ]


def _joint_config(first: Config, second: Config) -> Config:
    """Return the config of the second model with the source language of the first one.

    Raises:
        UsageError: the second model does not translate from the first one's target language.
    """
    pivot = first.data.tgt
    if base_language(pivot) != base_language(second.data.src):
        raise UsageError(
            f"--model translates into '{pivot}', and --then from '{second.data.src}'",
            f"choose a model from '{pivot}' for --then",
        )
    return replace(second, data=replace(second.data, src=first.data.src))
