"""The translation of a line, from those of its segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import mul
from typing import TYPE_CHECKING

from nmt.engines import TokenScores
from nmt.search import Hypothesis
from nmt.text.tokenizer import Tokenizer
from nmt.translation.alignment import Link, align, link_words
from nmt.translation.segments import Segment

if TYPE_CHECKING:
    from nmt.translation.confidence import Calibration

END = "</s>"


@dataclass(frozen=True)
class Translation:
    """A translation of a line. The fields after `log_prob` are set only if details are
    requested."""

    text: str
    """The translation."""
    score: float = 0.0
    """Score by which the search ranks hypotheses, such as the normalized log-probability; the sum
    over the segments of the line."""
    log_prob: float = 0.0
    """Σ log p(token) in nats, including the end token of each segment."""
    tokens: tuple[str, ...] = ()
    """Tokens of the translation, with `</s>` at the end of each segment."""
    token_log_probs: tuple[float, ...] = ()
    """log p of each of the tokens."""
    alignment: tuple[tuple[int, int], ...] = ()
    """(source word, target word) as indices of words separated by whitespace: each target word with
    the source word that received the most attention. Attention is an approximation of word
    alignment."""
    links: tuple[Link, ...] = ()
    """The alignment in both directions, with shares of attention, unless the words were changed
    afterwards."""
    confidence: float | None = None
    """Expected quality from 0 to 1 (`nmt.translation.confidence`). None: the model is not
    calibrated, or the line is a copy, such as a blank line."""
    warnings: tuple[str, ...] = ()
    """Problems that remain after all retries."""

    def known_links(self) -> tuple[Link, ...]:
        """Return the links; in a copy or where words were changed, those of `alignment`, with all
        of the attention."""
        if set(align(self.links)) == set(self.alignment):
            return self.links
        return tuple(Link(source, target, 1.0) for source, target in self.alignment)

    def has_problem(self, names: Sequence[str]) -> bool:
        """Return whether one of the warnings has one of these names, or, without names, whether
        there is a warning."""
        found = {warning.partition(":")[0] for warning in self.warnings}
        return bool(found.intersection(names) if names else found)

    def details_of(self, name: str) -> list[str]:
        """Return what the warnings with a name are about: Friday of `missing-date: Friday`."""
        warnings = (warning.partition(": ") for warning in self.warnings)
        return [details for found, _, details in warnings if found == name]


def of_segment(
    segment: Segment,
    hypothesis: Hypothesis,
    text: str,
    scores: TokenScores | None,
    tokenizer: Tokenizer,
    calibration: Calibration | None,
) -> Translation:
    """Return the translation of a segment; with `scores`, with tokens, their log-probabilities,
    alignment, confidence.

    Without a calibration, it has no confidence, and neither has a blank line.
    """
    if scores is None:
        return Translation(text, hypothesis.score, hypothesis.log_prob)
    source_ids = segment.source.ids
    tokens = tokenizer.ids_to_pieces(hypothesis.ids)
    links = link_words(tokenizer.ids_to_pieces(source_ids), tokens, scores.attention_TS)
    log_prob = sum(scores.log_probs)
    return Translation(
        text,
        hypothesis.score + (log_prob - hypothesis.log_prob) / hypothesis.length_norm,
        log_prob,
        (*tokens, END),
        tuple(scores.log_probs),
        tuple(align(links)),
        tuple(links),
        calibration.confidence(len(source_ids), scores) if calibration and source_ids else None,
    )


@dataclass(frozen=True)
class Part:
    """A part of a line and its translation."""

    translation: Translation
    separator: str = ""
    """Whitespace before it in the translation."""
    word_offset: int = 0
    """Index of its first word in the line."""

    def word_index(self, word: int) -> int:
        """Return the index in the line of a word of the part."""
        return max(0, self.word_offset + word)


def concatenate(parts: Sequence[Part]) -> Translation:
    """Return the translation of a line from the translations of its parts."""
    text = ""
    num_words = 0
    alignment: list[tuple[int, int]] = []
    links: list[Link] = []
    for part in parts:
        translation = part.translation
        addition = part.separator + translation.text
        target_offset = num_words
        if _is_inside_word(text, addition):
            target_offset -= 1
        for source, target in translation.alignment:
            alignment.append((part.word_index(source), target_offset + target))
        for source, target, share in translation.known_links():
            links.append(Link(part.word_index(source), target_offset + target, share))
        num_words = target_offset + len(addition.split())
        text += addition
    translations = [part.translation for part in parts]
    return Translation(
        text,
        sum((each.score for each in translations), 0.0),
        sum((each.log_prob for each in translations), 0.0),
        tuple(chain.from_iterable(each.tokens for each in translations)),
        tuple(chain.from_iterable(each.token_log_probs for each in translations)),
        tuple(alignment),
        tuple(links),
        _mean_confidence(translations),
    )


def _is_inside_word(before: str, after: str) -> bool:
    """Return whether a word continues from one text to the next."""
    neighbors = before[-1:] + after[:1]
    return len(neighbors.strip()) == 2


@dataclass(frozen=True)
class Place:
    """Where a part is in a text."""

    separator: str
    """Text between the previous part and this one, in the translation."""
    word_offset: int
    """Index of its first word in the source."""


def join(
    n_best_of_parts: Sequence[list[Translation]], places: Sequence[Place | Segment]
) -> list[Translation]:
    """Return the n-best list of a text from those of its parts: the best of each, the second best
    of each, and so on. A translation has the warnings of all parts."""
    joined: list[Translation] = []
    num_best = max(map(len, n_best_of_parts), default=1)
    for rank in range(num_best):
        parts: list[Part] = []
        warnings: dict[str, None] = {}
        for n_best, place in zip(n_best_of_parts, places, strict=True):
            translation = n_best[min(rank, len(n_best) - 1)]
            parts.append(Part(translation, place.separator, place.word_offset))
            warnings |= dict.fromkeys(translation.warnings)
        joined.append(replace(concatenate(parts), warnings=tuple(warnings)))
    return joined


def _mean_confidence(translations: Sequence[Translation]) -> float | None:
    """Return the mean confidence, weighted by the numbers of tokens. Copies have no tokens and do
    not count."""
    scored = [each for each in translations if each.tokens]
    confidences = [each.confidence for each in scored if each.confidence is not None]
    if not scored or len(confidences) < len(scored):
        return None
    counts = [len(each.tokens) for each in scored]
    return round(float(sum(map(mul, confidences, counts))) / sum(counts), 4)
