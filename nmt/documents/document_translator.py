"""Translation of the blocks of a document: sentence by sentence, in large batches, with inline
tags."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from nmt.documents.aligned_units import AlignedSentence
from nmt.documents.document import RichText
from nmt.documents.markers import Marker, with_markers, without_markers
from nmt.documents.memory import TranslationMemory
from nmt.documents.projection import project
from nmt.text.scripts import foreign_spans
from nmt.text.sentences import split_sentences
from nmt.text.spans import apply_edits, without_overlaps
from nmt.text.whitespace import separator
from nmt.translation.chunking import chunked
from nmt.translation.gaps import without_added_period
from nmt.translation.guard import Guard
from nmt.translation.result import Translation
from nmt.translation.segments import FixedSpan, Line, spans_within
from nmt.translation.translator import Translator


@dataclass(frozen=True)
class TranslatedBlocks:
    """The translations of the blocks of a document."""

    blocks: list[RichText]
    warnings: list[tuple[str, tuple[str, ...]]]
    """Sentences and the warnings of their translations."""
    warnings_of_blocks: list[list[str]]
    """The warnings of each block, each of them once."""
    num_sentences: int
    num_from_memory: int
    """Number of the sentences, or blocks of several, that are translations of the memory."""
    num_tags: int
    """Number of inline tags around text."""
    num_doubtful_tags: int
    """Number of the tags whose words are not clear from the word alignment."""


@dataclass
class _Block:
    source: RichText
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of its sentences."""
    lines: list[Line] = field(default_factory=list)
    """The sentences."""


class DocumentTranslator:
    """Translates the blocks of documents."""

    def __init__(
        self,
        translator: Translator | Guard,
        search: str | None = None,
        memory: TranslationMemory | None = None,
    ) -> None:
        """Use a search (None: that of the model's config), except for texts that the memory has."""
        self.translator, self.search, self.memory = translator, search, memory

    def translate(
        self,
        blocks: Sequence[RichText],
        progress: Callable[[int], Callable[[float], object]] = lambda total: lambda count: None,
    ) -> TranslatedBlocks:
        """Translate blocks. Equal sentences are translated once.

        Args:
            blocks: the blocks of a document.
            progress: called with the number of sentences to translate; returns a function that is
                called with the number of sentences translated since the previous call.
        """
        language = self.translator.config.data.src
        fixed = [_with_foreign_text(block, language) for block in blocks]
        taken = [
            (block, {}) if self._remembers(block.text) else without_markers(block)
            for block in fixed
        ]
        split = [self._split(block) for block, _ in taken]
        known = self._recall(split)
        lines = list(
            dict.fromkeys(line for block in split for line in block.lines if line not in known)
        )
        needs_alignment = any(block.source.tags for block in split)
        results = self.translator.stream(
            chunked(lines), self.search, details=needs_alignment, on_progress=progress(len(lines))
        )
        translated = {
            line: without_added_period(line, n_best[0])
            for line, n_best in zip(lines, results, strict=True)
        }
        translations = known | translated
        markers = [markers_of_block for _, markers_of_block in taken]
        assembled = [
            _assemble(block, translations, each) for block, each in zip(split, markers, strict=True)
        ]
        return TranslatedBlocks(
            [with_markers(block, each) for block, each in zip(assembled, markers, strict=True)],
            [
                (line.text, translations[line].warnings)
                for line in lines
                if translations[line].warnings
            ],
            [_warnings(block, translations) for block in split],
            sum(len(block.lines) for block in split),
            sum(line in known for block in split for line in block.lines),
            sum(tag.start < tag.end for block in split for tag in block.source.tags),
            sum(tag.is_doubtful for block in assembled for tag in block.tags),
        )

    def _split(self, block: RichText) -> _Block:
        """Return a block with its sentences; it has none if it has no text, or only fixed text."""
        if not _has_words(block):
            return _Block(block)
        spans = split_sentences(block.text, self.translator.config.data.src, block.fixed)
        if self.memory and self.memory.find(block.text):
            spans = [(spans[0][0], spans[-1][1])]
        language = self.translator.tokenizer.language_token(block.text)
        return _Block(block, spans, [_line(block, *span, language) for span in spans])

    def _remembers(self, text: str) -> bool:
        """Return whether the memory has a text or one of its sentences."""
        if self.memory is None:
            return False
        spans = split_sentences(text, self.translator.config.data.src)
        return any(
            self.memory.find(each) is not None
            for each in (text, *(text[slice(*span)] for span in spans))
        )

    def _recall(self, blocks: Iterable[_Block]) -> dict[Line, Translation]:
        """Return the translations that the memory has."""
        if self.memory is None:
            return {}
        lines = dict.fromkeys(line for block in blocks for line in block.lines)
        return {
            line: Translation(text, 0.0, 0.0)
            for line in lines
            if (text := self.memory.find(line.text))
        }


def _with_foreign_text(block: RichText, language: str) -> RichText:
    """Return a block in which text in scripts that its language does not use is fixed."""
    boundaries = {position for tag in block.tags for position in (tag.start, tag.end)}
    fixed = list(block.fixed)
    for start, end in foreign_spans(block.text, language, boundaries):
        fixed.append(FixedSpan(start, end, block.text[start:end]))
    return replace(block, fixed=tuple(without_overlaps(fixed)))


def _has_words(block: RichText) -> bool:
    """Return whether a block has letters or digits outside of fixed text."""
    return any(
        map(
            str.isalnum,
            apply_edits(block.text, ((span.start, span.end, "") for span in block.fixed)),
        )
    )


def _line(block: RichText, start: int, end: int, language: str) -> Line:
    first = bisect_left(block.fixed, start, key=lambda span: span.start)
    last = bisect_left(block.fixed, end, key=lambda span: span.start)
    return Line(
        block.text[start:end],
        fixed=spans_within(block.fixed[first:last], start, end),
        language=language,
    )


def _warnings(block: _Block, translations: dict[Line, Translation]) -> list[str]:
    warnings = chain.from_iterable(translations[line].warnings for line in block.lines)
    return list(dict.fromkeys(warnings))


def _assemble(
    block: _Block, translations: dict[Line, Translation], markers: dict[int, Marker]
) -> RichText:
    """Return the translation of a block from those of its sentences."""
    if not block.spans:
        return block.source
    source = block.source.text
    pieces = [source[: block.spans[0][0]]]
    length = len(pieces[0])
    sentences: list[AlignedSentence] = []
    for span, line in zip(block.spans, block.lines, strict=True):
        translation = translations[line]
        space = separator(source, sentences[-1].source[1], span[0]) if sentences else ""
        start = length + len(space)
        length = start + len(translation.text)
        pieces += [space, translation.text]
        sentences.append(AlignedSentence(span, (start, length), translation.known_links()))
    pieces.append(source[block.spans[-1][1] :])
    text = "".join(pieces)
    parents: dict[int, int] = {}
    for tag_id, marker in markers.items():
        parent = marker.parents[tag_id]
        if parent is not None:
            parents[tag_id] = parent
    return RichText(text, project(block.source, text, sentences, parents))
