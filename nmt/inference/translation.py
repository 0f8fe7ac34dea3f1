"""Join the translations of a line's segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nmt.data.tokenizer import Tokenizer
from nmt.inference import TokenScores
from nmt.inference.alignment import align
from nmt.inference.segments import Segment
from nmt.search import Hypothesis

END = "</s>"


@dataclass(frozen=True)
class Translation:
    """A translation of a line. The fields after `log_prob` are set only if details are requested."""

    text: str
    score: float
    """Score by which the search ranks hypotheses, such as the normalized log-probability; the sum over the segments of
    the line."""
    log_prob: float
    """Σ log p(token) in nats, including the end token of each segment."""
    tokens: tuple[str, ...] = ()
    """Tokens of the translation, with `</s>` at the end of each segment."""
    token_log_probs: tuple[float, ...] = ()
    alignment: tuple[tuple[int, int], ...] = ()
    """(source word, target word) as indices of words separated by whitespace: each target word with the source word
    that received the most attention. Attention is an approximation of word alignment."""
    confidence: float | None = None
    """Estimated quality from 0 to 1, if the model is calibrated."""
    warnings: tuple[str, ...] = ()
    """Problems that remain after all retries."""


def n_best_of_line(n_best_of_segments: Sequence[list[Hypothesis]]) -> list[list[Hypothesis]]:
    """Combine the n-best lists of a line's segments: the best of each, the second best of each, and so on."""
    count = max(map(len, n_best_of_segments), default=1)
    return [[n_best[min(rank, len(n_best) - 1)] for n_best in n_best_of_segments] for rank in range(count)]


def join(segments: Sequence[Segment], hypotheses: Sequence[Hypothesis], texts: Sequence[str]) -> Translation:
    """Return the translation of a line.

    Args:
        segments: segments of the line.
        hypotheses: hypothesis of each segment.
        texts: text of each hypothesis.
    """
    text = "".join(segment.separator + text for segment, text in zip(segments, texts, strict=True))
    score, log_prob = (sum(values, 0.0) for values in ((h.score for h in hypotheses), (h.log_prob for h in hypotheses)))
    return Translation(text, score, log_prob)


def join_with_details(
    segments: Sequence[Segment],
    hypotheses: Sequence[Hypothesis],
    texts: Sequence[str],
    scores: Sequence[TokenScores],
    tokenizer: Tokenizer,
) -> Translation:
    """Return the translation of a line with tokens and alignment, and with `scores` as its log-probabilities."""
    tokens = [tokenizer.ids_to_pieces(hypothesis.ids) for hypothesis in hypotheses]
    return replace(
        join(segments, list(map(_rescore, hypotheses, scores)), texts),
        tokens=tuple(token for segment_tokens in tokens for token in (*segment_tokens, END)),
        token_log_probs=tuple(log_prob for each in scores for log_prob in each.log_probs),
        alignment=tuple(_align(segments, texts, tokens, scores, tokenizer)),
    )


def _rescore(hypothesis: Hypothesis, scores: TokenScores) -> Hypothesis:
    """Replace the log-probability that the search computed."""
    log_prob = sum(scores.log_probs)
    score = hypothesis.score + (log_prob - hypothesis.log_prob) / hypothesis.length_norm
    return replace(hypothesis, log_prob=log_prob, score=score)


def _align(
    segments: Sequence[Segment],
    texts: Sequence[str],
    tokens: Sequence[Sequence[str]],
    scores: Sequence[TokenScores],
    tokenizer: Tokenizer,
) -> Iterator[tuple[int, int]]:
    previous = ""
    for segment, text, target, score in zip(segments, texts, tokens, scores, strict=True):
        is_inside_word = bool(previous) and not segment.separator
        word_offset = len(previous.split()) - is_inside_word
        for source_word, target_word in align(tokenizer.ids_to_pieces(segment.source.ids), target, score.attention_TS):
            yield segment.word_offset + source_word, word_offset + target_word
        previous += segment.separator + text
