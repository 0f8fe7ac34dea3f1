"""Subtitles: SRT and WebVTT.

Only the text of the cues and the language in the header of WebVTT change; numbers, times, settings,
notes and styles are copied. Each speaker and sound has lines of its own. A sentence that continues
in the next cue is translated as a whole, and its translation is cut in proportion to the parts of
the source. The new text of a cue is wrapped into lines of similar length.

Specification: WebVTT, W3C, https://www.w3.org/TR/webvtt1/. SRT has none; `{\\an8}` and similar
codes are those of SSA.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from xml.sax.saxutils import escape

from nmt.core.errors import DataError
from nmt.documents.builder import SourceMarkup, TextBuilder, to_markup
from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions
from nmt.documents.paired_codes import ended_range, started_range
from nmt.documents.ranges import Span
from nmt.documents.rich_text import cut, join
from nmt.documents.splicing import Edit
from nmt.documents.text_file import TextFile, unescape
from nmt.text.language_codes import base_language
from nmt.text.sentences import split_sentences
from nmt.text.spans import apply_edits

MAX_LINE_LENGTH = 42
"""Characters; the usual limit of television and streaming services."""
MAX_PAUSE = 3.0
"""Seconds between two cues. A sentence does not continue after a longer pause."""
MAX_CUES = 6
"""Maximum number of cues that one sentence covers, for subtitles without punctuation."""

_HEADER_LANGUAGE = re.compile(
    r"WEBVTT[^\n]*\n(?:(?![^\n]*-->)\S[^\n]*\n)*?Language:[ \t]*([\w-]+)[ \t]*\r*$", re.MULTILINE
)
"""The language in the header of WebVTT, which ends at a blank line or the first cue."""
_TIME = r"((?:\d{1,5}:)?\d{1,2}:\d{1,2}[.,]\d{1,3})"
_TIMING = re.compile(
    rf"^[ \t]*{_TIME}[ \t]*-->[ \t]*{_TIME}(?![\d:.,])[^\n]*(?:\n|\Z)", re.MULTILINE
)
_INVALID_TIMING = re.compile(
    r"^[ \t]*+(?:[\d:.,]+[ \t]*-->.*|[^\n]*-->[ \t]*[\d:.,]+[ \t]*\r*)$", re.MULTILINE
)
_NEXT_NUMBER = re.compile(r"(?:^|(?<=\n))[ \t]*\d+[ \t]*\r*\n\s*\Z")
_BLANK_LINE = re.compile(r"^[ \t]*\r*(?:\n|\Z)", re.MULTILINE)
_BLANK_FIRST_LINES = re.compile(r"(?:[ \t]+\r*\n)*")
"""Lines of spaces, with which cues of YouTube may start. An empty line ends a cue without text."""
_CARRIAGE_RETURNS = re.compile(r"(?<!\r)\r++(?!\n)")
"""Line ends without a line feed."""
_LINE_BREAK = re.compile(r"(?P<path>\b[a-zA-Z]:\\\S*)|(?<![ \t\r])[ \t]*(?P<break>\r*\n|\\[Nn])\s*")
"""A line end, or `\\N` or `\\n` as in SSA, but not in a path of Windows."""
_MARKUP = re.compile(
    r"(?:<rt\b[^<>]*>[^<]*(?:</rt>)?)?(?P<ruby_end></ruby>)|(?P<annotation><rt\b[^<>]*>[^<]*</rt>)"
    r"|</?[a-zA-Z][^<>]*>|<\d[\d:.]*>|\{\\[^{}]*\}"
)
_ELEMENT = re.compile(r"<(/?)([a-zA-Z]+)")
_DIRECTION = r"[\u200e\u200f\u202a-\u202e\u2066-\u2069]*"
"""Marks of the writing direction, with which each line of a file may start."""
_SPEAKER = re.compile(
    rf"{_DIRECTION}[^\S\n]*(?:[-–—‐][^\S\n]*(?=[^\s–—‐-])|(?=>>|[♪♫])"
    r"|[A-ZÀ-Þ][A-ZÀ-Þ0-9 .'’&#-]{0,30}(?:\([^()\n]{1,30}\))?:[^\S\n]+(?=[^\n]*[a-zß-ÿ]))"
)
"""What a line of another speaker starts with: a dash, a sign, or a name in capitals."""
_SOUND = re.compile(rf"\s*{_DIRECTION}(?:\[[^][]*\]|\([^()]*\)){_DIRECTION}\s*")
"""A line that describes a sound."""
_VOICE = re.compile(r"<v[ .\t]")
"""The start of an element of WebVTT with the name of a speaker."""
_SPACE = re.compile(r"[ \t\n]")
_DASH = re.compile("[-–—‐]")
_SENTENCE_END = re.compile(r"[.!?…。！？।؟♪♫)\]:]['\"”’»“)\]]*\Z")
_ELLIPSIS = re.compile(r"(?:…|\.\.\.)\Z")
_CONTINUATION = re.compile(r"[^\w\s]*[a-zß-öø-ÿ]")
_CAPITAL_OR_DIGIT = re.compile(r"[^\w\s]*[A-ZÀ-ÖØ-Þ\d]")
_NUMBER_AT_END = re.compile(r"\d['\"”’»]*\Z")
_CLAUSE_MARKS = ",;-–—"
"""Marks after which a sentence continues."""
_CJK = r"\u3040-\u30ff\u3400-\u9fff"
_WORD = re.compile(rf"[{_CJK}][^\w\s]*|(?:[^\s{_CJK}]|\u00a0)+")
_CLAUSE_END = re.compile(r"[,;:.!?…–—，、。！？]['\"”’»)]*\Z")


@dataclass(eq=False)
class Turn:
    """The text of one speaker in one cue."""

    before: str
    """Dash and markup before the text."""
    after: str
    source: RichText


@dataclass
class Cue:
    """A cue: its text is a range of the file."""

    start: int
    end: int
    begin_time: float
    """Seconds."""
    end_time: float
    turns: list[Turn] = field(default_factory=list)


@dataclass(frozen=True)
class Sentence:
    """A block: some text of one turn, or a sentence with its parts in several turns."""

    block: RichText
    turns: Sequence[Turn]
    lengths: Sequence[int]
    """Number of characters in each turn."""


def parse(data: bytes, options: DocumentOptions) -> Subtitles:
    """Parse SRT or WebVTT.

    Raises:
        DataError: there are no cues, a time is invalid, or the encoding is.
    """
    file = TextFile.decode(data, options.encoding_errors, options.encoding)
    return Subtitles(file, options)


def _language_edits(text: str, options: DocumentOptions) -> list[Edit]:
    """Return the edit that changes the language in the header, if it is that of the source."""
    header = _HEADER_LANGUAGE.match(text)
    if header is None or base_language(header[1]) != base_language(options.src):
        return []
    return [Edit(*header.span(1), options.tgt)]


class Subtitles:
    """The cues of a file, and the sentences in them."""

    def __init__(self, file: TextFile, options: DocumentOptions) -> None:
        self._source = file.text
        # The specification replaces carriage returns, too. All offsets stay the same.
        text = _CARRIAGE_RETURNS.sub(lambda match: "\n" * len(match[0]), file.text)
        self.file = replace(file, text=text)
        self.is_vtt = text.startswith("WEBVTT")
        line_end = re.search(r"(?<!\r)\r*\n", text)
        self._line_end = line_end[0] if line_end else "\n"
        self._markup: dict[int, SourceMarkup] = {}
        self.cues = list(self._find_cues())
        # A WebVTT file may have no cues, but only times may have an arrow between them.
        needs_cues = "-->" in text if self.is_vtt else text.strip()
        if needs_cues and not self.cues:
            raise DataError(
                "there are no subtitles: no line has the form 00:01:02,345 --> 00:01:04,567"
            )
        self.sentences: list[Sentence] = []
        for cue in self.cues:
            source = text[cue.start : cue.end]
            cue.turns = list(self._turns(source))
        for turns in _connected(self.cues):
            self.sentences += _sentences(turns, options.src)
        self.blocks = [sentence.block for sentence in self.sentences]
        self._edits = _language_edits(text, options)

    def render(self, translations: Sequence[RichText]) -> bytes:
        """Return the subtitles with the translation of each block; a cue whose translation is equal
        is unchanged."""
        parts = defaultdict(list)
        changed: set[Turn] = set()
        for sentence, translation in zip(self.sentences, translations, strict=True):
            if translation == sentence.block:
                divided = _source_parts(sentence)
            else:
                divided = divide(translation, sentence.lengths)
                changed.update(sentence.turns)
            for turn, part in zip(sentence.turns, divided, strict=True):
                parts[turn].append(part)
        edits = list(self._edits)
        for cue in self.cues:
            if not changed.isdisjoint(cue.turns):
                text = self._cue_text(cue, parts)
                edits.append(Edit(cue.start, cue.end, text))
        return self.file.encode(apply_edits(self._source, edits))

    def _cue_text(self, cue: Cue, parts: Mapping[Turn, Sequence[RichText]]) -> str:
        texts = []
        for turn in cue.turns:
            not_empty = [part for part in parts[turn] if part.text or part.tags]
            text = join(not_empty, " ")
            lines = _wrap(text)
            source = to_markup(lines, self._markup, self._escape)
            texts += [turn.before, source, turn.after, "\n"]
        source = self.file.text[cue.start : cue.end]
        breaks = (match["break"] for match in _LINE_BREAK.finditer(source))
        line_break = next(filter(None, breaks), "")
        if not line_break.startswith("\\"):
            line_break = self._line_end
        return "".join(texts[:-1]).replace("\n", line_break)

    def _find_cues(self) -> Iterator[Cue]:
        text = self.file.text
        timings = list(_TIMING.finditer(text))
        starts = [match.start() for match in timings]
        valid = set(starts)
        for match in _INVALID_TIMING.finditer(text):
            if match.start() not in valid:
                raise DataError(
                    f"line {self.file.line(match.start())}: '{match[0].strip()}' is not a time"
                    " range",
                    "write it as 00:01:02,345 --> 00:01:04,567",
                )
        for match, end in zip(timings, [*starts[1:], len(text)], strict=False):
            start = match.end()
            blank = None
            if self.is_vtt:
                first_lines = _BLANK_FIRST_LINES.match(text, start, end)
                text_start = first_lines.end() if first_lines else start
                blank = _BLANK_LINE.search(text, text_start, end)
            elif end < len(text):
                blank = _NEXT_NUMBER.search(text, start, end)
            if blank:
                end = blank.start()
            span = _stripped(text, start, end)
            yield Cue(*span, _seconds(match[1]), _seconds(match[2]))

    def _turns(self, source: str) -> Iterator[Turn]:
        """Split the text of a cue at the lines of speakers and sounds, and find the markup in
        it."""
        lines = _LINE_BREAK.sub(lambda match: match["path"] or "\n", source)
        rich = self._parse_markup(lines)
        if not rich.text.strip():
            return
        voices = []
        for tag in rich.tags:
            if _VOICE.match(self._markup[tag.id].opening):
                voices.append(tag.start)
        starts = _turn_starts(rich, voices)
        text_end = (len(rich.text), 0)
        spans = []
        for (_, text_start), (end, _) in pairwise([*starts, text_end]):
            span = _stripped(rich.text, text_start, end)
            spans.append(span)
        for (start, text_start), part in zip(starts, cut(rich, spans), strict=True):
            speaker = self._escape(rich.text[start:text_start])
            after_speaker = {tag.id for tag in rich.tags if tag.start >= text_start}
            yield self._turn(part, speaker, after_speaker)

    def _parse_markup(self, source: str) -> RichText:
        """Return the text with its tags. Elements without a start or end become points; an element
        that ends at a line end and starts again on the next line becomes one. A ruby annotation is
        a part of the end of its element.
        """
        builder = TextBuilder[SourceMarkup]()
        builder.markup = self._markup
        position = 0
        closed: SourceMarkup | None = None  # the last element, if only space comes after it
        for match in _MARKUP.finditer(source):
            text = self._unescape(source[position : match.start()])
            builder.add_text(text)
            position = match.end()
            if text.strip():
                closed = None
            tag = match[0]
            is_end, name = _range_of(match)
            if is_end and builder.is_innermost(name):
                closed = builder.close(name)
                closed.closing = tag
                if match["ruby_end"]:
                    closed = None  # the next one has another annotation
            elif closed and closed.opening == tag:
                builder.open.append((name, closed))
            else:
                closed = None
                if name and not is_end:
                    builder.start(name, SourceMarkup(tag))
                else:
                    builder.add(SourceMarkup(tag))
        builder.add_text(self._unescape(source[position:]))
        return builder.rich_text()

    def _turn(self, rich: RichText, speaker: str, after_speaker: Container[int]) -> Turn:
        """Return a turn, without the markup before and after all of its text.

        Args:
            rich: the text, with the markup around it.
            speaker: dash or name before it.
            after_speaker: ids of the tags that start after `speaker`.
        """
        before = []
        after = []  # the last one first
        tags = []
        length = len(rich.text)
        for tag in rich.tags:
            opening = self._markup[tag.id].opening
            closing = self._markup[tag.id].closing
            if tag.is_point:
                opening += closing
                closing = ""
            if tag.start == 0 and tag.end in (0, length):  # before or around all of the text
                if tag.id in after_speaker:
                    before.append(speaker)
                    speaker = ""
                before.append(opening)
                after.append(closing)
            elif tag.start == length:
                after.append(opening)
            else:
                tags.append(tag)
        before.append(speaker)
        return Turn("".join(before), "".join(reversed(after)), replace(rich, tags=tuple(tags)))

    def _unescape(self, text: str) -> str:
        return unescape(text) if self.is_vtt else text

    def _escape(self, text: str) -> str:
        if not self.is_vtt:
            return text
        return escape(text, {"\u00a0": "&nbsp;", "\u200e": "&lrm;", "\u200f": "&rlm;"})


def _range_of(match: re.Match[str]) -> tuple[str, str]:
    """Return whether markup is the end of an element or a range, and its name; "": neither."""
    tag = match[0]
    if tag.startswith("{"):
        is_end = ended_range(tag)
        return is_end, is_end or started_range(tag)
    element = None if match["annotation"] else _ELEMENT.match(match["ruby_end"] or tag)
    return (element[1], element[2]) if element else ("", "")


def _turn_starts(rich: RichText, voices: Iterable[int]) -> list[tuple[int, int]]:
    """Return the start of each turn, and of its text after a dash or name. A sound is a turn of its
    own."""
    borders = rich.borders
    starts = {}
    position = 0
    is_start = True
    for line in rich.text.split("\n"):
        speaker = _SPEAKER.match(line)
        is_sound = _SOUND.fullmatch(line) is not None
        if speaker or is_start or is_sound:
            text_start = position + (speaker.end() if speaker else 0)
            # Markup of a name stays with its text.
            has_markup = not borders.isdisjoint(range(position + 1, text_start))
            starts[position] = position if has_markup else text_start
        is_start = is_sound
        position += len(line) + 1
    length = len(rich.text.rstrip())
    for voice in voices:
        if voice < length:
            starts.setdefault(voice, voice)
    return sorted(starts.items())


def _seconds(time: str) -> float:
    parts = f"0:{time}".replace(",", ".").split(":")
    hours, minutes, seconds = map(float, parts[-3:])
    return hours * 3600 + minutes * 60 + seconds


def _stripped(text: str, start: int, end: int) -> Span:
    """Return a range without the whitespace at its ends."""
    part = text[start:end].lstrip()
    start = end - len(part)
    return start, start + len(part.rstrip())


def _connected(cues: Iterable[Cue]) -> Iterator[list[Turn]]:
    """Yield lists of turns whose text is connected: a sentence may continue from one to the
    next."""
    current: list[Turn] = []
    previous_end = 0.0
    for cue in cues:
        is_close = cue.begin_time - previous_end <= MAX_PAUSE
        for i, turn in enumerate(cue.turns):
            may_continue = i == 0 and is_close and len(current) < MAX_CUES
            if current and not (may_continue and _continues(current[-1], turn)):
                yield current
                current = []
            current.append(turn)
        previous_end = cue.end_time
    if current:
        yield current


def _continues(turn: Turn, following: Turn) -> bool:
    """Return whether the last sentence of a turn continues in the following one."""
    before = following.before
    text = following.source.text
    previous_text = turn.source.text
    is_other_speaker = (
        _DASH.search(before)
        or before.rstrip().endswith(":")
        or text.startswith((">>", "♪", "♫", "[", "("))
        or (before.startswith("<v") and before != turn.before)
    )
    # Rolling captions repeat each line.
    first_line, *_ = text.split("\n", 1)
    *_, last_line = previous_text.rsplit("\n", 1)
    if is_other_speaker or first_line == last_line:
        return False
    if _ELLIPSIS.search(previous_text):
        return _CONTINUATION.match(text) is not None
    if _is_complete_without_period(previous_text, text):
        return False
    return not _SENTENCE_END.search(previous_text)


def _is_complete_without_period(text: str, following: str) -> bool:
    """Return whether a text of a cue is a number, a date or a title in capitals, and not the first
    part of a sentence, to judge by the following text."""
    if not _CAPITAL_OR_DIGIT.match(following):
        return False
    has_lower_case = any(map(str.islower, text))
    # All subtitles of a file may be in capitals.
    is_title = not has_lower_case and any(map(str.islower, following))
    return _NUMBER_AT_END.search(text) is not None or (is_title and text[-1] not in _CLAUSE_MARKS)


def _sentences(turns: Sequence[Turn], language: str) -> Iterator[Sentence]:
    """Yield the blocks of connected turns: neighboring sentences of one turn are one block."""
    rich = join((turn.source for turn in turns), " ")
    # The lines are joined; the offsets stay the same.
    text = _SPACE.sub(" ", rich.text)
    ends = list(accumulate(len(turn.source.text) + 1 for turn in turns))

    spans: list[Span] = []
    for start, end in split_sentences(text, language):
        first, last = _first_and_last(ends, start, end)
        if spans and first == last and _first_and_last(ends, *spans[-1]) == (first, last):
            start, _ = spans.pop()
        spans.append((start, end))
    blocks = cut(replace(rich, text=text), spans)
    for (start, end), block in zip(spans, blocks, strict=True):
        first, last = _first_and_last(ends, start, end)
        borders = [start, *ends[first:last], end]
        lengths = [after - before for before, after in pairwise(borders)]
        yield Sentence(block, turns[first : last + 1], lengths)


def _first_and_last(ends: Sequence[int], start: int, end: int) -> Span:
    """Return the indices of the first and last turn that have text of a range; `ends` has the ends
    of the turns."""
    return bisect_right(ends, start), bisect_left(ends, end)


def _source_parts(sentence: Sentence) -> list[RichText]:
    """Return the parts of a sentence without a translation."""
    block = sentence.block
    spans = []
    start = 0
    for length in sentence.lengths:
        spans.append(_stripped(block.text, start, start + length))
        start += length
    return cut(block, spans)


def divide(rich: RichText, lengths: Sequence[int]) -> list[RichText]:
    """Cut a translation at word boundaries, in proportion to `lengths`, preferably after
    punctuation."""
    words = [match.span() for match in _WORD.finditer(rich.text)]
    word_ends = [0, *(end for _, end in words)]  # by the number of words
    borders = [0]  # numbers of words
    for i, length in enumerate(accumulate(lengths[:-1]), 1):
        ideal = length / sum(lengths) * len(rich.text)
        # Each of the following parts gets a word.
        num_following = len(lengths) - i
        last = max(borders[-1], len(words) - num_following)
        first = min(borders[-1] + 1, last)
        candidates = word_ends[first : last + 1]
        borders.append(first + _border(rich.text, candidates, ideal))
    borders.append(len(words))
    spans = []
    for first, last in pairwise(borders):
        start = len(rich.text)
        if first < len(words):
            start, _ = words[first]
        end = max(start, word_ends[last])
        spans.append((start, end))
    return cut(rich, spans)


def _border(text: str, ends: Sequence[int], ideal: float) -> int:
    """Return the index of the best end of a part of a text."""

    def cost(i: int) -> float:
        end = ends[i]
        clause_end = _CLAUSE_END.search(text, max(0, end - 4), end)
        bonus = 8 if clause_end else 0  # characters
        return abs(end - ideal) - bonus

    return min(range(len(ends)), key=cost)


def _wrap(rich: RichText) -> RichText:
    """Wrap a text into as few lines as possible, and make them similar in length."""
    words = [match.span() for match in _WORD.finditer(rich.text)]
    if not words:
        return rich
    num_lines = len(_lines(words, MAX_LINE_LENGTH))
    width = 1
    lines = words
    while len(lines) > num_lines:
        width += 1
        lines = _lines(words, width)
    return join(cut(rich, lines), "\n")


def _lines(words: Sequence[Span], width: int) -> list[Span]:
    """Return the lines of a text that are at most `width` characters long, except for longer
    words."""
    lines = [words[0]]
    for start, end in words[1:]:
        line_start, _ = lines[-1]
        if end - line_start <= width:
            lines[-1] = (line_start, end)
        else:
            lines.append((start, end))
    return lines
