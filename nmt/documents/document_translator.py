"""Translation of the blocks of a document: sentence by sentence, in large batches, with inline
tags."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from nmt.documents.aligned_units import AlignedSentence
from nmt.documents.document import Parents, RichText, parents
from nmt.documents.markers import Marker, with_markers, without_markers
from nmt.documents.memory import TranslationMemory
from nmt.documents.projection import project
from nmt.text.scripts import foreign_spans
from nmt.text.sentences import split_sentences
from nmt.text.spans import without_overlaps
from nmt.text.whitespace import separator
from nmt.translation.chunking import chunked
from nmt.translation.line_translator import LineTranslator
from nmt.translation.periods import without_added_period
from nmt.translation.result import Translation
from nmt.translation.segments import FixedSpan, Line, spans_within


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
    parent_of: Parents
    """By the id of each tag, the id of the tag that contains it."""
    markers: Mapping[int, Marker]
    """Those that `source` does not have anymore."""
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of its sentences."""
    lines: list[Line] = field(default_factory=list)
    """The sentences."""


class DocumentTranslator:
    """Translates the blocks of documents."""

    def __init__(
        self,
        translator: LineTranslator,
        search: str | None = None,
        memory: TranslationMemory | None = None,
    ) -> None:
        """Use a search (None: that of the model's config), except for texts that the memory has."""
        self.translator = translator
        self.search = search
        self.memory = memory

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
        split = [self._split(block) for block in blocks]
        all_lines = [line for block in split for line in block.lines]
        known = self._recall(all_lines)
        lines = [line for line in dict.fromkeys(all_lines) if line not in known]
        needs_alignment = any(block.source.tags for block in split)
        results = self.translator.stream(
            chunked(lines), self.search, details=needs_alignment, on_progress=progress(len(lines))
        )
        best = [n_best[0] for n_best in results]
        translated = dict(zip(lines, map(without_added_period, lines, best), strict=True))
        return _result(split, known, translated)

    def _split(self, block: RichText) -> _Block:
        """Return a block with its sentences; it has none if it has no text, or only fixed text."""
        source_language = self.translator.config.data.src
        block = _with_foreign_text(block, source_language)
        parent_of = parents(block.tags)
        markers: dict[int, Marker] = {}
        if not self._remembers(block.text):
            block, markers = without_markers(block)
        if not any(map(str.isalnum, block.free_text)):
            return _Block(block, parent_of, markers)
        spans = split_sentences(block.text, source_language, block.fixed)
        if self._find(block.text):
            spans = [(spans[0][0], spans[-1][1])]
        language = self.translator.tokenizer.language_token(block.text)
        lines = [_line(block, *span, language) for span in spans]
        return _Block(block, parent_of, markers, spans, lines)

    def _find(self, text: str) -> str | None:
        """Return the translation that the memory has of a text."""
        return self.memory.find(text) if self.memory else None

    def _remembers(self, text: str) -> bool:
        """Return whether the memory has a text or one of its sentences."""
        if self.memory is None:
            return False
        spans = split_sentences(text, self.translator.config.data.src)
        sentences = [text[start:end] for start, end in spans]
        return any(self.memory.find(each) is not None for each in (text, *sentences))

    def _recall(self, lines: Iterable[Line]) -> dict[Line, Translation]:
        """Return the translations that the memory has."""
        known = {}
        for line in lines:
            text = self._find(line.text)
            if text:
                known[line] = Translation(text, 0.0, 0.0)
        return known


def _result(
    blocks: Sequence[_Block], known: dict[Line, Translation], translated: dict[Line, Translation]
) -> TranslatedBlocks:
    """Return the translations of blocks from those of their sentences."""
    translations = known | translated
    assembled = []
    complete = []
    for block in blocks:
        translation = _assemble(block, translations)
        assembled.append(translation)
        complete.append(with_markers(translation, block.markers, block.parent_of))
    source_tags = [tag for block in blocks for tag in block.source.tags]
    lines = [line for block in blocks for line in block.lines]
    return TranslatedBlocks(
        complete,
        [(line.text, each.warnings) for line, each in translated.items() if each.warnings],
        [_warnings(block, translations) for block in blocks],
        len(lines),
        sum(line in known for line in lines),
        sum(not tag.is_point for tag in source_tags),
        sum(tag.is_doubtful for block in assembled for tag in block.tags),
    )


def _with_foreign_text(block: RichText, language: str) -> RichText:
    """Return a block in which text in scripts that its language does not use is fixed."""
    fixed = list(block.fixed)
    for start, end in foreign_spans(block.text, language, block.borders):
        text = block.text[start:end]
        fixed.append(FixedSpan(start, end, text))
    return replace(block, fixed=tuple(without_overlaps(fixed)))


def _line(block: RichText, start: int, end: int, language: str) -> Line:
    fixed = spans_within(block.fixed, start, end)
    return Line(block.text[start:end], fixed=fixed, language=language)


def _warnings(block: _Block, translations: dict[Line, Translation]) -> list[str]:
    warnings = chain.from_iterable(translations[line].warnings for line in block.lines)
    return list(dict.fromkeys(warnings))


def _assemble(block: _Block, translations: dict[Line, Translation]) -> RichText:
    """Return the translation of a block from those of its sentences."""
    if not block.spans:
        return block.source
    source = block.source.text
    position = block.spans[0][0]
    space = source[:position]
    pieces: list[str] = []
    length = 0
    sentences = []
    for span, line in zip(block.spans, block.lines, strict=True):
        translation = translations[line]
        if pieces:
            space = separator(source, position, span[0])
        pieces += [space, translation.text]
        start = length + len(space)
        length = start + len(translation.text)
        position = span[1]
        links = translation.known_links()
        sentence = AlignedSentence(span, (start, length), links)
        sentences.append(sentence)
    pieces.append(source[position:])
    text = "".join(pieces)
    return RichText(text, project(block.source, text, sentences, block.parent_of))
