"""Translation of documents: sentences, inline tags by word alignment, translation memories, and the
command line."""

from __future__ import annotations

import inspect
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any, cast

import pytest
from commandline import CommandLine
from hypothesis import given
from hypothesis import strategies as st

from nmt.core.config import config_io
from nmt.core.errors import DataError
from nmt.documents.aligned_units import AlignedSentence
from nmt.documents.document import MAX_NESTING, RichText, Tag, parents
from nmt.documents.document_translator import DocumentTranslator
from nmt.documents.formats import (
    FORMATS,
    DocumentOptions,
    check_elements,
    conversion_hint,
)
from nmt.documents.markup_lines import MarkupLines
from nmt.documents.memory import TranslationMemory
from nmt.documents.projection import project
from nmt.documents.rich_text import Sections
from nmt.jobs.documents import document_arguments, log_warnings
from nmt.text.scripts import foreign_spans
from nmt.translation.alignment import Link
from nmt.translation.guard import Guard
from nmt.translation.result import Translation
from nmt.translation.segments import FixedSpan, Line
from nmt.translation.translator import Translator


class StubTranslator:
    """Writes the words of a line in capitals and in reverse order, with their alignment."""

    config = config_io.load(None, [])
    tokenizer = SimpleNamespace(
        language_token=lambda text: ">>deu<< " if text.startswith(">>deu<< ") else ""
    )

    def __init__(self, has_alignment: bool = True) -> None:
        self.has_alignment = has_alignment
        self.lines: list[Line] = []

    def stream(
        self,
        chunks: Iterable[Sequence[Line]],
        search: str | None = None,
        *,
        details: bool = False,
        on_progress: Any,
    ) -> Iterator[list[Translation]]:
        for line in (line for chunk in chunks for line in chunk):
            self.lines.append(line)
            words = line.text.split()
            fixed = {span.translation for span in line.fixed}
            output = [
                word if word.strip(".,") in fixed else word.upper() for word in reversed(words)
            ]
            alignment = (
                tuple((len(words) - 1 - i, i) for i in range(len(words)))
                if self.has_alignment
                else ()
            )
            yield [Translation(" ".join(output), 0.0, 0.0, alignment=alignment)]


def document_translator(
    stub: StubTranslator, memory: TranslationMemory | None = None
) -> DocumentTranslator:
    return DocumentTranslator(cast(Translator, stub), None, memory)


def rich(text: str, *tagged: str, fixed: Sequence[str] = ()) -> RichText:
    """Return a text with a tag around each of some substrings."""
    spans = [(text.index(each), text.index(each) + len(each)) for each in tagged]
    return RichText(
        text,
        tuple(Tag(start, end, i) for i, (start, end) in enumerate(spans)),
        tuple(FixedSpan(text.index(each), text.index(each) + len(each), each) for each in fixed),
    )


def tagged(text: RichText) -> list[str]:
    return [text.text[tag.start : tag.end] for tag in text.tags]


def links(alignment: str) -> tuple[Link, ...]:
    """Read links such as `0-1`, or with the share of attention `0-1:0.4`."""
    result = []
    for text in alignment.split():
        pair, _, share = text.partition(":")
        source, target = pair.split("-")
        result.append(Link(int(source), int(target), float(share or 1)))
    return tuple(result)


# ---- projection of tags


@pytest.mark.parametrize(
    ("source", "tags", "target", "alignment", "expected"),
    [
        ("I saw a dog", ["saw"], "Einen Hund sah ich", "2-0 3-1 1-2 0-3", ["sah"]),
        (
            "see the red dog",
            ["the red dog"],
            "den roten Hund sehen",
            "1-0 2-1 3-2 0-3",
            ["den roten Hund"],
        ),
        ("a dog, a cat", ["dog"], "ein Hund, eine Katze", "0-0 1-1 2-2 3-3", ["Hund"]),
        ("a dog, a cat", ["dog,"], "ein Hund, eine Katze", "0-0 1-1 2-2 3-3", ["Hund,"]),
        ("all of it", ["all of it"], "das alles hier", "0-0", ["das alles hier"]),
        # Within a word that is a copy.
        (
            "some water H2O",
            ["2"],
            "Wasser H2O etwas",
            "1-0 2-1 0-2",
            ["2"],
        ),
        # The entire word otherwise.
        (
            "unbelievable dog",
            ["believ"],
            "Hund unglaublich",
            "1-0 0-1",
            ["unglaublich"],
        ),
        # Words far apart.
        (
            "a b c d e f",
            ["a b"],
            "A x y z B w",
            "0-0 2-1 3-2 4-3 1-4 5-5",
            ["A"],
        ),
        # No counterpart: a word next to its place.
        (
            "a very dog",
            ["very"],
            "ein Hund",
            "0-0 2-1",
            ["Hund"],
        ),
        (
            "x the big dog",
            ["the big dog", "big"],
            "den großen Hund x",
            "1-0 2-1 3-2 0-3",
            ["den großen Hund", "großen"],
        ),
        # An amount has a tag of its own, whatever the alignment.
        (
            "20 EUR only, 30 EUR",
            ["20 EUR", "30 EUR"],
            "Nur 20 EUR, 30 EUR",
            "2-0 3-1 4-2 0-3 1-4",
            ["20 EUR", "30 EUR"],
        ),
        ("7.5 kg only", ["7.5 kg"], "Nur 7,5 kg", "0-0 1-1 2-0", ["7,5 kg"]),
    ],
)
def test_a_tag_covers_the_aligned_words(
    source: str, tags: list[str], target: str, alignment: str, expected: list[str]
) -> None:
    sentence = AlignedSentence((0, len(source)), (0, len(target)), links(alignment))
    projected = project(rich(source, *tags), target, [sentence])
    assert tagged(RichText(target, projected)) == expected


@pytest.mark.parametrize(
    ("source", "tag", "target", "alignment", "expected", "is_doubtful"),
    [
        # The verb is the longer word; its auxiliary is covered, too, if it is close.
        (
            "he lost the hat",
            "lost",
            "er hat da den Hut verloren",
            "0-0 1-1:0.5 2-3 3-4 1-5:0.4",
            "verloren",
            True,
        ),
        # Also if the auxiliary has more of the attention.
        (
            "she wrote a letter",
            "wrote",
            "sie hat einen langen Brief geschrieben",
            "0-0 1-1:0.55 2-2 3-4 1-5:0.3",
            "geschrieben",
            True,
        ),
        (
            "he lost it",
            "lost",
            "er hat es verloren",
            "0-0 1-1:0.5 2-2 1-3:0.4",
            "hat es verloren",
            False,
        ),
        # The word that has most of the attention, although its own best source word is another one.
        ("das ist nicht neu", "nicht", "that isn't new", "0-0 1-1:0.9 2-1:0.8 3-2", "isn't", False),
        # Neither a word that has little of the attention nor one that translates another word.
        (
            "a tiny dog sees",
            "tiny",
            "ein kleiner Hund sieht genau",
            "0-0 1-1:0.7 2-2 3-3 1-4:0.2",
            "kleiner",
            False,
        ),
        # The nearest word: there is no better one.
        (
            "a very dog",
            "very",
            "ein Hund",
            "0-0 2-1",
            "Hund",
            True,
        ),
        (
            "see the red dog",
            "the red dog",
            "den roten Hund sehen",
            "1-0:0.6 2-1:0.8 3-2 0-3",
            "den roten Hund",
            False,
        ),
    ],
)
def test_a_tag_covers_the_words_with_most_of_the_attention(
    source: str, tag: str, target: str, alignment: str, expected: str, is_doubtful: bool
) -> None:
    sentence = AlignedSentence((0, len(source)), (0, len(target)), links(alignment))
    (placed,) = project(rich(source, tag), target, [sentence])
    assert (target[placed.start : placed.end], placed.is_doubtful) == (expected, is_doubtful)


def test_a_word_of_another_tag_is_not_taken() -> None:
    source, target = "das ist nicht neu", "that isn't new"
    sentence = AlignedSentence((0, len(source)), (0, len(target)), links("0-0 1-1:0.9 2-1:0.8 3-2"))
    projected = project(rich(source, "nicht", "ist"), target, [sentence])
    assert tagged(RichText(target, projected))[1] == "isn't"


def test_fixed_text_in_many_tags_keeps_its_place() -> None:
    text, target = "Press xy now", "Jetzt xy druecken"
    around = [Tag(0, len(text), i) for i in range(MAX_NESTING + 2)]
    block = RichText(text, (*around, Tag(6, 8, 99)), (FixedSpan(6, 8, "xy"),))
    sentence = AlignedSentence((0, len(text)), (0, len(target)), ())
    *outer, inner = project(block, target, [sentence])
    assert {tag.span for tag in outer} == {(0, len(target))}
    assert target[inner.start : inner.end] == "xy"


def test_a_fixed_tag_without_a_place_hides_no_other_tag() -> None:
    text, target = "cd. abcdef x abcdef foo-bar abcdef", "abcdef abcdef"
    spans = [(3, 17), (17, 20), (21, 25), (29, 31)]
    fixed = tuple(FixedSpan(start, end, text[start:end]) for start, end in spans[:2])
    block = RichText(text, tuple(Tag(*span, i) for i, span in enumerate(spans)), fixed)
    sentence = AlignedSentence((0, len(text)), (0, len(target)), links("4-0 4-1"))
    placed = sorted(tag.span for tag in project(block, target, [sentence]) if not tag.is_point)
    assert all(end <= start for (_, end), (start, _) in pairwise(placed))


@pytest.mark.parametrize("start", [10, 11])
def test_a_space_before_a_tagged_sentence_is_no_part_of_the_sentence_before(start: int) -> None:
    text = "First one. Second sentence here today."
    target = "Erster Satz. Der zweite Satz ist heute hier."
    sentences = [
        AlignedSentence((0, 10), (0, 12), links("0-0 1-1")),
        AlignedSentence((11, len(text)), (13, len(target)), links("2-3 3-4 5-6")),
    ]
    block = RichText(text, (Tag(start, len(text), 0),))
    (placed,) = project(block, target, sentences)
    assert target[placed.start : placed.end] == "Der zweite Satz ist heute hier."


def test_doubtful_tags_are_counted_and_logged(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [rich("One small dog sleeps.", "small dog"), rich("A bird sings.", "A bird sings.")]
    result = document_translator(StubTranslator()).translate(blocks)
    assert (result.num_tags, result.num_doubtful_tags) == (2, 0)
    log_warnings("page.md", result)
    assert capsys.readouterr().err == ""
    result = document_translator(StubTranslator(has_alignment=False)).translate(blocks)
    # The tag of the sentence is not doubtful.
    assert (result.num_tags, result.num_doubtful_tags) == (
        2,
        1,
    )
    log_warnings("page.md", result)
    assert "page.md: 1 of 2 tags may be on other words" in capsys.readouterr().err


def test_many_tags_in_a_long_sentence_are_placed_in_time() -> None:
    text = " ".join(f"w{i}" for i in range(2000))
    spans = [match.span() for match in re.finditer(r"\S+", text)]
    block = RichText(text, tuple(Tag(*span, i) for i, span in enumerate(spans)))
    (result,) = document_translator(StubTranslator()).translate([block]).blocks
    assert tagged(result) == [f"W{i}" for i in range(2000)]


def test_fixed_text_keeps_its_tag() -> None:
    source, target = rich("run go now", "go", fixed=["go"]), "jetzt go laufen"
    assert tagged(
        RichText(target, project(source, target, [AlignedSentence((0, 10), (0, 15))]))
    ) == ["go"]
    lost = project(source, "jetzt laufen", [AlignedSentence((0, 10), (0, 12))])
    assert [(tag.start, tag.end) for tag in lost] == [(6, 6)]  # a position next to a word


def test_fixed_text_is_not_found_within_longer_fixed_text() -> None:
    source = RichText(
        "see [a] or [a][] now",
        (Tag(4, 7, 0), Tag(11, 16, 1)),
        (FixedSpan(4, 7, "[a]"), FixedSpan(11, 16, "[a][]")),
    )
    target = "now [a][] or [a] see"
    assert tagged(
        RichText(target, project(source, target, [AlignedSentence((0, 20), (0, 20))]))
    ) == ["[a]", "[a][]"]


@pytest.mark.parametrize(
    ("source", "code", "target", "alignment", "expected"),
    [
        # The second one.
        (
            "a map or `a` now",
            "a",
            "a Karte oder a jetzt",
            "",
            "a Karte oder [a] jetzt",
        ),
        # The aligned one.
        (
            "see `id` or an id",
            "id",
            "eine id oder id sehen",
            "1-3 4-1",
            "eine id oder [id] sehen",
        ),
        (
            "see https://a.org/id and `id`",
            "id",
            "id und https://a.org/id sehen",
            "",
            "[id] und https://a.org/id sehen",
        ),
        ("the `s` is here", "s", "dies ist s", "", "dies ist [s]"),
        ("the `s` is here", "s", "dies ist es", "", "dies ist es"),  # lost, not a letter of a word
        ("the `user`s of it", "user", "die users davon", "", "die [user]s davon"),
        ("use `id` or id_of", "id", "id_of oder id nutzen", "", "id_of oder [id] nutzen"),
    ],
)
def test_code_is_at_its_aligned_or_nth_occurrence(
    source: str, code: str, target: str, alignment: str, expected: str
) -> None:
    start = source.index("`")
    text = source.replace("`", "")
    span = FixedSpan(start, start + len(code), code)
    block = RichText(text, (Tag(span.start, span.end, 0),), (span,))
    (tag,) = project(
        block, target, [AlignedSentence((0, len(text)), (0, len(target)), links(alignment))]
    )
    is_found = tag.start < tag.end
    marked = f"{target[: tag.start]}[{target[tag.start : tag.end]}]{target[tag.end :]}"
    assert (marked if is_found else target) == expected


CODE_WORDS = st.lists(
    st.sampled_from(["a", "id", "x.id", "https://a.org/id", "ids", "--id", "a_id"]), min_size=1
)


@given(CODE_WORDS, st.sets(st.integers(0, 20)), st.booleans())
def test_repeated_code_keeps_its_words(
    words: list[str], coded: set[int], has_alignment: bool
) -> None:
    text = " ".join(words)
    matches = list(re.finditer(r"\S+", text))
    spans = [FixedSpan(*match.span(), match[0]) for i, match in enumerate(matches) if i in coded]
    block = RichText(
        text, tuple(Tag(span.start, span.end, i) for i, span in enumerate(spans)), tuple(spans)
    )
    equal_words = tuple(Link(i, i, 1.0) for i in range(len(words))) if has_alignment else ()
    sentence = AlignedSentence((0, len(text)), (0, len(text)), equal_words)
    assert project(block, text, [sentence]) == block.tags


@pytest.mark.parametrize(("at", "expected"), [(0, 0), (5, 5), (6, 12), (11, 17)])
def test_a_position_stays_next_to_its_word(at: int, expected: int) -> None:
    # After hello, before small, after small.
    block = RichText("hello small world", (Tag(at, at, 0),))
    sentence = AlignedSentence((0, 17), (0, 17), links("0-0 1-2 2-1"))
    (tag,) = project(block, "HELLO WORLD SMALL", [sentence])
    assert tag.start == expected


WORDS = st.lists(
    st.sampled_from(["a", "dog", "sees,", "H2O", "x.", "Big", "foo-bar"]), min_size=1, max_size=8
)


@st.composite
def rich_texts(draw: st.DrawFn) -> RichText:
    """A text with properly nested tags at any offsets."""
    text = " ".join(draw(WORDS))
    tags: list[Tag] = []

    def add(start: int, end: int, depth: int) -> None:
        position = start
        while position <= end and len(tags) < 8 and depth < 3 and draw(st.booleans()):
            first = draw(st.integers(position, end))
            last = draw(st.integers(first, end))
            tags.append(Tag(first, last, len(tags)))
            if first < last:
                add(first, last, depth + 1)
            position = last + 1

    add(0, len(text), 0)
    return RichText(text, tuple(tags))


@given(rich_texts(), st.booleans())
def test_no_tag_is_lost_and_tags_stay_nested(block: RichText, has_alignment: bool) -> None:
    (result,) = document_translator(StubTranslator(has_alignment)).translate([block]).blocks
    assert [tag.id for tag in result.tags] == [tag.id for tag in block.tags]
    by_id = {tag.id: tag for tag in result.tags}
    for tag, parent in zip(block.tags, parents(block.tags).values(), strict=True):
        placed = by_id[tag.id]
        assert 0 <= placed.start <= placed.end <= len(result.text)
        if parent is not None:
            assert by_id[parent].start <= placed.start <= placed.end <= by_id[parent].end
    siblings: dict[int | None, list[Tag]] = {}
    for tag, parent in zip(result.tags, parents(block.tags).values(), strict=True):
        siblings.setdefault(parent, []).append(tag)
    for group in siblings.values():
        spans = sorted((tag.start, tag.end) for tag in group)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))


# ---- parsing


@pytest.mark.parametrize(
    ("suffix", "source"),
    [
        (".txt", f"a dog{' ' * 200_000}b cat\n"),
        (".srt", f"1\n00:00:01,000 --> 00:00:02,000\na{' ' * 200_000}b\n"),
        (".srt", f"1\n00:00:01,000 --> 00:00:02,000\n{' ' * 200_000}b\n"),
        (".md", f"a {'{:' * 20_000}\n"),
        (".csv", f"a\n{' ' * 200_000}b\n"),
        (".txt", "a" + "\r" * 50_000 + "b\nc"),
        (".vtt", "WEBVTT" + "\r" * 200_000 + "00:01.000 --> 00:02.000\na\n"),
    ],
)
def test_long_runs_of_spaces_or_markup_are_parsed(suffix: str, source: str) -> None:
    options = DocumentOptions(src="en", tgt="de")
    document = FORMATS[suffix](source.encode(), options)  # quadratic time would be many minutes
    assert document.render(document.blocks) == source.encode()
    Sections(RichText(f"a{' ' * 200_000}b"), re.compile("[\t\n]"))


@pytest.mark.parametrize(
    ("suffix", "source"),
    [
        (".csv", 'sep=;\na;b\none;two\n"three\nfour";five\n'),
        (".tsv", "a\tb\none\ttwo\nthree\tfour\n"),
        (".html", "---\ntitle: one\n---\n<p>one\n<p>two <b>three</b>\n"),
        (".jsonl", '{"a": "one"}\n{"a": "two"}\n'),
        (".md", "---\ntitle: one\n---\n\n# one\n\n- two\n- three\n\n```\nfour\n```\n"),
        (
            ".po",
            '# one\nmsgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
            '# two\nmsgid "three\\n"\n"four"\nmsgstr ""\n',
        ),
        (".txt", "one\n\n- two\n- three\n"),
    ],
)
def test_carriage_returns_are_line_ends(suffix: str, source: str) -> None:
    data = source.replace("\n", "\r").encode()
    options = DocumentOptions("en", "de", ("a",), ("**",))
    document = FORMATS[suffix](data, options)
    assert document.render(document.blocks).count(b"\n") == 0
    with_returns = translate_file(suffix, source.replace("\n", "\r"))
    assert with_returns == translate_file(suffix, source).replace(b"\n", b"\r")
    assert with_returns != data


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n", b"\f"])
def test_the_number_of_lines_is_limited(end: bytes) -> None:
    check_elements([end * 5, end * 5], 10)
    with pytest.raises(DataError, match="more than 10 lines"):
        check_elements([end * 5, end * 6], 10)


SRT_START = "1\n00:00:01,000 --> 00:00:02,000\n"
XLIFF = (
    '<xliff version="1.2"><file source-language="en" target-language="de"><body><trans-unit id="1">'
    "<source>{}</source></trans-unit></body></file></xliff>"
)
PO = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "{}"\nmsgstr ""\n'


def count_steps(function: Callable[[], object]) -> int:
    """Return the number of lines of Python that a function runs."""
    num_steps = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal num_steps
        num_steps += 1
        return trace

    previous = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(previous)
    return num_steps


def assert_proportional(run: Callable[[int], object], sizes: tuple[int, int, int]) -> None:
    """The second step between the sizes is twice as large as the first one."""
    run(sizes[0])  # imports, compiles
    small, medium, large = (count_steps(partial(run, size)) for size in sizes)
    # More than 4 times, if it were quadratic. Collections of garbage take some steps, too.
    assert large - medium <= 2.15 * (medium - small) + 100, (small, medium, large)


def translate_file(suffix: str, source: str) -> bytes:
    """Translate a document with the stub."""
    columns = ("a",) if suffix in (".csv", ".tsv") else ()
    document = FORMATS[suffix](source.encode(), DocumentOptions("en", "de", columns, ("**",)))
    return document.render(document_translator(StubTranslator()).translate(document.blocks).blocks)


@pytest.mark.parametrize(
    ("suffix", "template", "repeated"),
    [
        *(
            (".html", "<p>{}</p>", each)
            for each in (
                "<b>a</b> ",
                "<b>a</b>",
                "<br>a",
                "<p>a",
                "a<sup>1</sup> ",
                "a <img src=x>",
                "a <wbr>b",
                "<b>a ",
                "a</b> ",
                "<code>a</code> ",
                "<code>a</code> b ",
                "a<code>b</code>",
                "<b>a<i>b</b>c</i> ",
                "{% a %} b ",
                "a <svg/>",
                "<i class='fa fa-x'></i> A ",
                "<b>a<br>b</b> ",
                "<b>A dog sees.</b> A cat. ",
                "\u0416 <b>a</b> ",
                "a<sup>1</sup><sup>,</sup><sup>2</sup> ",
                "<wbr><b>a</b>",
                "{n, plural, one {a} other {b}} ",
                "&amp;",
                "<",
            )
        ),
        (".html", "<b>{}</b>", "a<sup>2</sup> "),
        *(
            (".md", "{}", each)
            for each in (
                "**a** ",
                "**a**",
                "_a*",
                "~~a",
                "~~a~~ ",
                "a  \n",
                "\\[\n",
                "\\[ a\n",
                "* a\n",
                "> a\n\n",
                "- a\n\n",
                "`a` ",
                "[a](b) ",
                "![a](b) ",
                "a <b>c</b> ",
                "a\n\n",
                "[a] ",
                "<p>a\n\n",
                "==a== ",
                "::: a\n",
                "!!! note\n    a\n",
                "a|b\n-|-\na|b\n\n",
                "[a]: x\n",
                "*",
                "_",
                "`",
                "[",
                "]",
                "\\",
                "~",
                "$$ a\n",
                "# a\n",
                "{a.b} ",
            )
        ),
        (".md", "[a]: x\n\n{}", "[a] "),
        *(
            (".srt", SRT_START + "{}\n", each)
            for each in (
                "- a\n",
                "a\n",
                "<i>a</i> ",
                "<i>a</i>\n",
                "<i>a ",
                "{{\\an8}}a ",
                "[a]\n",
                "MARY: a\n",
                "A dog sees. ",
            )
        ),
        (".srt", "{}", SRT_START + "a\n\n"),
        *(
            (".xlf", XLIFF, each)
            for each in (
                '<g id="1">a</g> ',
                '<x id="1"/>a ',
                'a <x id="1"/> ',
                'a <ph id="1">%s</ph> ',
                "<mrk mtype='protected'>a b</mrk> c ",
                'a<x id="1" ctype="lb"/>',
                "{n, plural, other {# a}} ",
                "a | b ",
                'a<bpt id="2">[</bpt>b<ept id="2">]</ept> ',
            )
        ),
        *(
            (".po", PO, each)
            for each in (
                "<b>a</b> ",
                "%s a ",
                "a|b ",
                "a\\n",
                "&a ",
                "{n, plural, one {a} other {b}} ",
            )
        ),
        *((".json", '[{}"a"]', each) for each in ('"a b",', '{"a": "b"},', '"a|b\\tc",')),
        *((".csv", "a\n{}", each) for each in ("b\n", '"b c"\n')),
        *(
            (".txt", "{}", each)
            for each in ("a\n", "a b ", "A dog. ", "a | b ", "a\n\n", "\u0416 ", "a/", "{")
        ),
    ],
)
def test_steps_are_proportional_to_the_size(suffix: str, template: str, repeated: str) -> None:
    before, after = template.replace("{{", "{").split("{}")
    assert_proportional(
        lambda count: translate_file(suffix, f"{before}{repeated * count}{after}"), (4, 36, 100)
    )


@pytest.mark.parametrize(
    ("suffix", "template", "opening", "closing"),
    [
        (".html", "<p>{}</p>", "<b>", "</b>"),
        (".html", "<p>{}</p>", "<b>a ", " b</b>"),
        (".html", "<p>{}</p>", "<b>a<br>", "</b>"),
        (".html", "<p>{}</p>", "<b><wbr>", "</b>"),
        (".html", "<p>{}</p>", "<b>a<sup>1</sup>", "</b>"),
        (".html", "{}", "<div>", "</div>"),
        (".html", "{}", "<code>", "<div></div></code>"),
        (".html", "{}", "{n, plural, other {", "}}"),
        (".md", "{}", "*a ", "*"),
        (".md", "{}", "**a ", "**"),
        (".md", "{}", "[", "](b)"),
        (".md", "{}", "> ", ""),
        (".md", "{}", "* ", ""),
        (".md", "{}", "> * ", ""),
        (".srt", SRT_START + "{}\n", "<i>a ", " b</i>"),
        (".xlf", XLIFF, '<g id="1">a ', " b</g>"),
        (".xlf", XLIFF, '<g id="1">a<x id="2" ctype="lb"/>', "</g>"),
        (".json", "{}", "[", "]"),
        (".json", '["{}"]', "{n, plural, other {", "}}"),
        (".po", PO, "{n, plural, other {", "}}"),
    ],
)
def test_steps_are_proportional_to_the_nesting(
    suffix: str, template: str, opening: str, closing: str
) -> None:
    before, after = template.split("{}")

    def translate(depth: int) -> None:
        content = (
            f"{opening * depth}x{closing * depth}"
            if suffix != ".json"
            else f'{opening * depth}"x"{closing * depth}'
        )
        with suppress(DataError):  # a limit, which the message names
            translate_file(suffix, f"{before}{content}{after}")

    assert_proportional(translate, (24, 48, 96))  # above MAX_NESTING
    previous = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + 150)
    try:
        translate(200)  # no RecursionError
    finally:
        sys.setrecursionlimit(previous)


# ---- sentences and translation memories


def test_note_markers_are_not_translated() -> None:
    stub = StubTranslator()
    source = RichText(
        "the dog[1] sleeps.* ok", (Tag(4, 10, 0), Tag(7, 10, 1), Tag(8, 9, 2), Tag(18, 19, 3))
    )
    [block] = document_translator(stub).translate([source]).blocks
    assert [line.text for line in stub.lines] == ["the dog sleeps.", "ok"]
    assert (block.text, tagged(block)) == ("SLEEPS. DOG[1] THE* OK", ["DOG[1]", "[1]", "1", "*"])
    html = FORMATS[".html"](
        b"see <b>the small dog<sup>[1]</sup></b> now", DocumentOptions(src="en", tgt="de")
    )
    [block] = document_translator(stub).translate(html.blocks).blocks
    # A marker stays in its parent.
    assert html.render([block]) == b"NOW <b>DOG<sup>[1]</sup> SMALL THE</b> SEE"
    memory = TranslationMemory([(source.text, "der Hund[1] schl\u00e4ft.*")])
    assert (
        document_translator(stub, memory).translate([source]).blocks[0].text
        == "der Hund[1] schl\u00e4ft.*"
    )


def test_sentences_are_translated_with_their_block() -> None:
    stub = StubTranslator()
    block = rich("One dog sleeps. A bird sings.", "dog sleeps. A bird")
    result = document_translator(stub).translate([block, block, RichText("..."), RichText("")])
    assert [line.text for line in stub.lines] == ["One dog sleeps.", "A bird sings."]  # once each
    assert result.blocks[0].text == "SLEEPS. DOG ONE SINGS. BIRD A"
    assert [each.text for each in result.blocks[2:]] == ["...", ""]
    assert result.num_sentences == 4


def test_every_sentence_of_a_block_has_its_target_language() -> None:
    stub = StubTranslator()
    document_translator(stub).translate(
        [RichText(">>deu<< One dog. Two dogs."), RichText("A cat.")]
    )
    assert [(line.text, line.language) for line in stub.lines] == [
        (">>deu<< One dog.", ">>deu<< "),
        ("Two dogs.", ">>deu<< "),
        ("A cat.", ""),
    ]


def test_code_with_a_period_does_not_end_a_sentence() -> None:
    stub = StubTranslator()
    document_translator(stub).translate([rich("Call it. Now? Then go.", fixed=["it. Now?"])])
    assert [line.text for line in stub.lines] == ["Call it. Now?", "Then go."]
    assert stub.lines[0].fixed == (FixedSpan(5, 13, "it. Now?"),)


@pytest.mark.parametrize(
    ("text", "language", "expected"),
    [
        ("The word is дом.", "en", ["дом"]),
        ("See большой дом, 日本語 and «Ελλάδα»!", "en-US", ["большой дом, 日本語", "Ελλάδα"]),
        ("Naïve Łódź ﬁne ½ µm Ⅷ ª", "en", []),
        ("हिन्दी ok عَرَبِيّ؟", "de", ["हिन्दी", "عَرَبِيّ؟"]),
        ("Дом, house и Ελλάδα", "ru", ["Ελλάδα"]),
        ("日本語 に한국어", "ja", ["한국어"]),
        ("日本語 дом", "ko", ["дом"]),
        ("дом", "uz", []),
        ("дом", "", []),
        ("дом", "mul", []),
    ],
)
def test_text_in_a_foreign_script_is_found(text: str, language: str, expected: list[str]) -> None:
    assert [text[slice(*span)] for span in foreign_spans(text, language)] == expected


def test_text_in_a_foreign_script_stays() -> None:
    stub = StubTranslator()
    source = "<option>Русский язык</option><p>The word is <b>большой</b> дом.</p><p>Größe"
    html = FORMATS[".html"](source.encode(), DocumentOptions(src="en", tgt="de"))
    result = document_translator(stub).translate(html.blocks)
    assert [line.text for line in stub.lines] == ["The word is большой дом.", "Größe"]
    # Not across markup.
    assert [span.translation for span in stub.lines[0].fixed] == [
        "большой",
        "дом",
    ]
    expected = "<option>Русский язык</option><p>дом. <b>большой</b> IS WORD THE</p><p>GRÖSSE"
    assert html.render(result.blocks).decode() == expected


SCRIPTS = st.text("aé дом日本ελ नी ..5", max_size=30)


@given(SCRIPTS, st.sampled_from(["en", "ru", "ja", "el"]))
def test_foreign_text_has_no_letter_of_the_language(text: str, language: str) -> None:
    spans = foreign_spans(text, language)
    found = "".join(text[slice(*span)] for span in spans)
    letters = {"en": "", "ru": "дом", "ja": "日本", "el": "ελ"}[language] + "aé"
    assert not set(letters) & set(found)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    foreign = set("дом日本ελ") - set(letters)
    assert sum(char in foreign for char in text) == sum(char in foreign for char in found)


def test_a_memory_provides_blocks_and_sentences() -> None:
    stub = StubTranslator()
    memory = TranslationMemory(
        [
            ("One dog. Two cats.", "Tiere."),
            ("A  bird sings.", "Ein Vogel."),
            ("A bird sings. ", "Vogel"),
        ]
    )
    blocks = [
        rich("One dog.\nTwo cats.", "dog"),
        RichText("A bird sings. It flies."),
        RichText("One dog."),
    ]
    result = document_translator(stub, memory).translate(blocks)
    assert [block.text for block in result.blocks] == ["Tiere.", "Ein Vogel. FLIES. IT", "DOG. ONE"]
    assert len(result.blocks[0].tags) == 1
    assert (result.num_from_memory, result.num_sentences) == (2, 4)


@pytest.mark.parametrize("text", ["Größe", "Gro\u0308ße", "Grö\u00adße", " \ufeffGröße\n"])
def test_a_memory_finds_text_however_letters_are_encoded(text: str) -> None:
    assert TranslationMemory([("Größe", "size")]).find(text) == "size"
    assert TranslationMemory([(text, "size")]).find("Größe") == "size"


def test_lines_with_markup_have_the_warnings_of_their_own_sentences() -> None:
    class WarningTranslator(StubTranslator):
        languages = ("en", "de")
        term_counts = None

        def stream(self, *args: Any, **options: Any) -> Iterator[list[Translation]]:
            for [translation] in super().stream(*args, **options):
                warning = f"length: {translation.text}"
                yield [replace(translation, warnings=(warning,))]

    lines = MarkupLines(cast(Guard, WarningTranslator()))
    source = ["One <b>dog</b> sleeps.", "A bird<sup>1</sup> <i>sings</i>. One dog sleeps."]
    results = lines.stream([source])
    assert [list(translation.warnings) for [translation] in results] == [
        ["length: SLEEPS. DOG ONE"],
        ["length: SINGS. BIRD A", "length: SLEEPS. DOG ONE"],
    ]


# ---- the command line

PAGE = (
    '<!DOCTYPE html>\n<html lang="en"><p title="the dog">the <b>small dog</b> sees the'
    " tree.</p><pre>x</pre></html>\n"
)
NOTES = "# the dog\n\nthe **small dog** sees the tree.\n\n```\ncode\n```\n"


@pytest.fixture
def site(trained: CommandLine, tmp_path: Path) -> CommandLine:
    """A directory with documents and a model."""
    (tmp_path / "runs").symlink_to(trained.directory / "runs")
    (tmp_path / "docs/sub/.hidden").mkdir(parents=True)
    (tmp_path / "docs/page.html").write_text(PAGE)
    (tmp_path / "docs/sub/notes.md").write_text(NOTES)
    (tmp_path / "docs/sub/image.png").write_bytes(b"\x89PNG")
    (tmp_path / "docs/sub/.hidden/page.html").write_text(PAGE)
    return CommandLine(tmp_path)


def test_a_document_is_translated_next_to_it(site: CommandLine) -> None:
    assert site.run("translate", "docs/page.html").out == "docs/page.de.html\n"
    text = (site.directory / "docs/page.de.html").read_text()
    assert text.startswith('<!DOCTYPE html>\n<html lang="de"><p title="')
    assert text.endswith("</p><pre>x</pre></html>\n")
    assert text.count("<b>") == text.count("</b>") == 1
    assert "the small dog" not in text
    site("translate", "docs/page.html").assert_fails(
        2, "docs/page.de.html already exists", "--resume", "--force"
    )
    assert site("translate", "docs/page.html", "--resume").out == ""
    resumed = site("translate", "docs/page.de.html", "docs/page.html", "--resume")
    assert (resumed.code, resumed.out) == (0, "")
    assert "skipped docs/page.de.html: it is a translation of docs/page.html" in resumed.err
    assert site("translate", "docs/page.html", "--force").out == "docs/page.de.html\n"


def test_output_may_be_a_file_a_directory_or_standard_output(site: CommandLine) -> None:
    printed = site("translate", "docs/page.html", "-o", "-")
    site.run("translate", "docs/page.html", "-o", "out.html")
    assert (site.directory / "out.html").read_text() == printed.out
    piped = site("translate", "--document", "html", stdin=PAGE.encode())
    assert piped.out == printed.out
    assert site("translate", "docs/page.html", "docs/sub/notes.md", "-o", "many").out.split() == [
        "many/page.html",
        "many/notes.md",
    ]
    assert (site.directory / "many/page.html").read_text() == printed.out


def test_a_slash_at_the_end_of_the_output_makes_a_directory(site: CommandLine) -> None:
    assert site("translate", "docs/page.html", "--output", "new/dir/").out == "new/dir/page.html\n"
    assert (site.directory / "new/dir/page.html").is_file()
    site("translate", "docs/page.html", "--output", "new/dir/page.html/").assert_fails(
        2, "page.html is a file"
    )
    assert "out/docs/sub/notes.md\n" in site("translate", ".", "--output", "out").out


def test_a_folder_is_mirrored(site: CommandLine) -> None:
    done = site("translate", "docs/", "-o", "docs/de")
    assert (done.code, done.out) == (0, "docs/de/page.html\ndocs/de/sub/notes.md\n"), done.err
    assert "docs: 1 file is not a document: .png (1)" in done.err
    again = site("translate", "docs/", "-o", "docs/de", "--resume")
    assert (again.code, again.out) == (0, "")
    assert "skipped 2 of 2 documents" in again.err


def test_translations_next_to_documents_are_not_translated_again(site: CommandLine) -> None:
    assert site("translate", "docs/").out == "docs/page.de.html\ndocs/sub/notes.de.md\n"
    done = site("translate", "docs/", "--force")
    assert done.out == "docs/page.de.html\ndocs/sub/notes.de.md\n"
    assert "2 documents are translations of others" in done.err
    (site.directory / "docs/page.fr-CA.html").write_text("<p>Bonjour.</p>")
    (site.directory / "docs/page.en.html").write_text("<p>Hello.</p>")
    done = site("translate", "docs/", "--force")
    assert done.out == "docs/page.en.de.html\ndocs/page.de.html\ndocs/sub/notes.de.md\n"
    assert "3 documents are translations of others" in done.err


def test_a_broken_document_does_not_stop_the_others(site: CommandLine) -> None:
    (site.directory / "docs/broken.html").write_bytes(b"<p>\xff\xfe\xfd</p>")
    site("translate", "docs/broken.html").assert_fails(
        1, "docs/broken.html: line 1, byte 4 of the line: not UTF-8"
    )
    done = site("translate", "docs/")
    assert done.code == 1
    assert done.out == "docs/page.de.html\ndocs/sub/notes.de.md\n"
    assert "error: docs/broken.html: line 1" in done.err
    assert "1 of 3 documents could not be translated" in done.err
    site.run("translate", "docs/broken.html", "--encoding-errors", "replace")


def test_documents_in_another_encoding(site: CommandLine) -> None:
    (site.directory / "a.txt").write_bytes("the dog caf\u00e9\r\n".encode("cp1252"))
    site("translate", "a.txt").assert_fails(
        1, "a.txt: line 1, byte 12 of the line: not UTF-8", "--encoding"
    )
    site.run("translate", "a.txt", "--encoding", "cp1252")
    translation = (site.directory / "a.de.txt").read_bytes()
    assert translation.endswith(b"\r\n")
    (site.directory / "b.txt").write_text("the dog caf\u00e9\n")
    site.run("translate", "b.txt")
    assert translation.decode("cp1252").split() == (site.directory / "b.de.txt").read_text().split()
    site("translate", "a.txt", "--force", "--encoding", "klingon").assert_fails(
        1, "unknown encoding 'klingon'"
    )


def test_a_translation_memory_is_used(site: CommandLine) -> None:
    unit = "<tu><tuv xml:lang='en'><seg>{}</seg></tuv><tuv xml:lang='de'><seg>{}</seg></tuv></tu>"
    units = unit.format("the small dog sees the tree.", "Wauwau!")
    (site.directory / "m.tmx").write_text(f"<tmx version='1.4'><header/><body>{units}</body></tmx>")
    done = site("translate", "docs/page.html", "--memory", "m.tmx", "-o", "-")
    assert "<b>Wauwau</b>!" in done.out
    assert "taken from the translation memory: 1 of 2 sentences" in done.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("docs/page.html --top-beams 2", "documents do not support --top-beams"),
        ("docs/page.html --format jsonl", "documents do not support --format"),
        ("docs/page.html --input docs/page.html", "documents do not support --input"),
        ("--document .html --retranslate", "--retranslate applies only to .po"),
        ("--document html --output new/", "--output new/ is a directory"),
        ("docs/page.html --key title", "--key applies only to .json, .jsonl"),
        ("docs/ --retranslate", "--retranslate applies only to .po"),
        ("docs/page.html hi", "'docs/page.html' is a document and 'hi' a sentence"),
        ("docs/pgae.html", "no such file or directory: docs/pgae.html"),
        ("dcos/", "no such file or directory: dcos/"),
        ("docs/page.html -o docs/page.html", "docs/page.html would be overwritten"),
        ("docs/page.html docs/sub/../page.html -o out", "have the same output"),
        ("docs/ -o -", "only one document can be written to standard output"),
        ("docs/page.html --document exe", "unknown document format 'exe'"),
        ("docs/nothing.en --document html", "no such file: docs/nothing.en"),
        ("docs/sub/image.png", "docs/sub/image.png is a file, but not a document"),
        (
            "docs/page.html --resume --force",
            "--resume keeps translations, and --force overwrites them",
        ),
        ("hi --memory m.tmx", "--memory applies only to documents"),
        ("hi --encoding cp1252", "--encoding applies only to documents"),
        ("docs/page.html --encoding cp1252", "--encoding applies only to .srt, .txt, .vtt"),
        ("hi --column a --key b", "--column and --key apply only to documents"),
        ("--input docs/page.html", "--input docs/page.html is a document"),
    ],
)
def test_invalid_requests_are_rejected(site: CommandLine, arguments: str, message: str) -> None:
    site("translate", *arguments.split()).assert_fails(2, message)


@pytest.mark.parametrize(
    ("text", "is_warned"), [("letters.en", True), ("my/corpus.de", True), ("Hello.", False)]
)
def test_a_missing_file_of_a_language_is_named(
    text: str, is_warned: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert document_arguments([text]) == []
    warning = f"nmt: warning: there is no file {text}, so it is translated as text\n"
    assert capsys.readouterr().err == (warning if is_warned else "")


@pytest.mark.parametrize(
    ("suffix", "hint"),
    [
        (".doc", ".docx"),
        (".odt", ".docx"),
        (".rtf", ".docx"),
        (".PDF", ".docx or .txt"),
        (".ppt", ".pptx"),
        (".xlsx", ".csv"),
        (".epub", ".xhtml"),
        (".tex", ".md"),
        (".ipynb", ".md"),
        (".rst", ".md"),
        (".ts", ".po or .xliff"),
        (".strings", ".po or .xliff"),
        (".properties", ".po or .xliff"),
        (".ass", ".srt"),
        (".yaml", ".json"),
        (".php", "--document html"),
    ],
)
def test_hints_for_other_formats_say_what_to_convert_to(suffix: str, hint: str) -> None:
    assert hint in conversion_hint(suffix)
    assert suffix.lower() not in FORMATS


def test_hints_are_only_for_other_formats() -> None:
    assert not any(conversion_hint(suffix) for suffix in (*FORMATS, "", ".png"))


def test_a_file_in_another_format_is_rejected_with_a_hint(site: CommandLine) -> None:
    (site.directory / "a.doc").write_bytes(b"x")
    site("translate", "a.doc").assert_fails(
        2, "a.doc is a file, but not a document", "convert it to .docx"
    )
    site("translate", "--document", "pdf").assert_fails(
        2, "unknown document format 'pdf'", ".docx or .txt"
    )


def test_a_folder_without_documents_is_rejected(site: CommandLine) -> None:
    (site.directory / "empty").mkdir()
    site("translate", "empty/").assert_fails(2, "empty has no documents", ".html")
    site.run("translate", "empty")  # a word


def test_documents_of_a_folder_that_need_an_option_are_skipped(site: CommandLine) -> None:
    (site.directory / "docs/a.json").write_text('{"title": "the dog"}')
    (site.directory / "docs/a.csv").write_text("a,b\nthe dog,x\n")
    done = site("translate", "docs/", "-o", "out", "--column", "a")
    assert (done.code, done.out.split()) == (0, ["out/a.csv", "out/page.html", "out/sub/notes.md"])
    assert "docs: skipped 1 document without --key" in done.err
    assert site("translate", "docs/sub/", "-o", ".").out == "notes.md\n"
    (site.directory / "data").mkdir()
    (site.directory / "docs/a.json").rename(site.directory / "data/a.json")
    site("translate", "data/").assert_fails(2, "data has only documents that need --key")


@pytest.mark.skipif(os.name == "nt" or not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_reported(site: CommandLine) -> None:
    site("translate", "docs/page.html", "-o", "/dev/full").assert_fails(
        1, "cannot write /dev/full: No space left"
    )


def test_an_output_below_a_file_is_reported(site: CommandLine) -> None:
    site("translate", "docs/page.html", "-o", "docs/page.html/x.html").assert_fails(
        1, "cannot write docs/page.html/x"
    )


@pytest.mark.slow
def test_the_pretrained_model_keeps_markup_next_to_its_words(nmt: CommandLine) -> None:
    (nmt.directory / "page.html").write_text(
        '<p>I saw a <b>small dog</b> in the <a href="x?a=1&b=2">garden</a>.</p>'
    )
    done = nmt("translate", "page.html", "--model", "en-de", "-o", "-")
    assert "Hund" in done.out.split("<b>")[1].split("</b>")[0]
    assert '<a href="x?a=1&b=2">Garten</a>' in done.out


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "source", "expected"),
    [
        ("en-de", "The new printer is *not* compatible with old cables.", r"\*nicht\*"),
        ("en-de", "She *lost* her keys yesterday.", r"\*verloren\*"),
        ("en-de", "We *sold* our old car last week.", r"\*verkauft\*"),
        ("en-de", "I want to drink a glass of *milk*.", r"\*Milch\*"),
        ("de-en", "Das neue Telefon ist *nicht* wasserdicht.", r"\*(?:isn't|not)\*"),
        ("de-en", "Wir haben unser altes Haus *verkauft*.", r"\*sold\*"),
    ],
)
def test_the_pretrained_models_emphasize_the_right_words(
    nmt: CommandLine, model: str, source: str, expected: str
) -> None:
    (nmt.directory / "page.md").write_text(source + "\n")
    done = nmt("translate", "page.md", "--model", model, "-o", "-")
    assert re.search(expected, done.out), done.out
