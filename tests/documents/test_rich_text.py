"""Cutting, joining and writing of rich text."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from stub_translations import reverse_words

from nmt.documents.builder import SourceMarkup, to_markup
from nmt.documents.document import RichText, Tag, parents
from nmt.documents.markers import with_markers, without_markers
from nmt.documents.own_text import with_tags_on_own_text
from nmt.documents.rich_text import (
    Event,
    Sections,
    cut,
    events,
    join,
)
from nmt.translation.segments import FixedSpan

TREES = st.recursive(
    st.text("ab \n", max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner),
    max_leaves=10,
)
"""A string is text, a list a sequence, and a tuple an element."""


def build(tree: object) -> RichText:
    """Return the rich text of a tree, with its tags in document order, numbered from 0."""
    text, tags = "", list[Tag]()

    def add(node: object) -> None:
        nonlocal text
        if isinstance(node, str):
            text += node
            return
        index = len(tags)
        start = len(text)
        if isinstance(node, tuple):
            tags.append(Tag(start, start, index))
        for child in node:
            add(child)
        if isinstance(node, tuple):
            tags[index] = Tag(start, len(text), index)

    add(tree)
    return RichText(text, tuple(tags))


def xml(rich: RichText) -> etree._Element:
    """Write a text as XML, which must be well-formed, and parse it."""
    markup = {tag.id: SourceMarkup(f'<g id="{tag.id}">', "</g>") for tag in rich.tags}
    return etree.fromstring(f"<root>{to_markup(rich, markup)}</root>")


def pieces(rich: RichText, pattern: str) -> Iterator[tuple[int, int]]:
    return (match.span() for match in re.finditer(pattern, rich.text))


WITH_MARKERS = st.recursive(
    st.text("a 1*", max_size=3),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner),
    max_leaves=10,
)


@given(TREES)
def test_any_nested_text_is_written(tree: object) -> None:
    rich = build(tree)
    elements = {
        int(element.get("id")): "".join(element.itertext()) for element in xml(rich).iter("g")
    }
    assert elements == {tag.id: rich.text[tag.start : tag.end] for tag in rich.tags}
    moved = reverse_words(rich)  # tags may cross now
    assert "".join(xml(moved).itertext()) == moved.text
    assert len(list(xml(moved).iter("g"))) == len(rich.tags)


@given(TREES)
def test_parts_are_joined_to_the_same_text(tree: object) -> None:
    rich = build(tree)
    spans = list(pieces(rich, r"\S+"))
    if not spans:
        return
    edges = [0, *(edge for span in spans for edge in span), len(rich.text)]
    between = [
        RichText(rich.text[start:end]) for start, end in zip(edges[::2], edges[1::2], strict=True)
    ]
    pairs = zip(between, cut(rich, spans), strict=False)
    joined = join([*(part for pair in pairs for part in pair), between[-1]])
    assert joined.text == rich.text
    assert {tag.id for tag in joined.tags} == {tag.id for tag in rich.tags}
    assert "".join(xml(joined).itertext()) == rich.text
    for old in rich.tags:
        words = "".join(rich.text[old.start : old.end].split())
        assert (
            "".join(
                "".join(joined.text[tag.start : tag.end].split())
                for tag in joined.tags
                if tag.id == old.id
            )
            == words
        )


@given(TREES)
def test_sections_keep_what_is_between_them(tree: object) -> None:
    rich = build(tree)
    sections = Sections(rich, re.compile("\n"))
    assert sections.join(sections.blocks) == rich
    assert [block.text for block in sections.blocks] == [
        line.strip() for line in rich.text.split("\n") if line.strip()
    ]
    translated = sections.join([reverse_words(block) for block in sections.blocks])
    assert translated.text.count("\n") == rich.text.count("\n")
    assert {tag.id for tag in translated.tags} == {tag.id for tag in rich.tags}


def test_separators_in_a_translation_become_spaces() -> None:
    sections = Sections(RichText("a\nb"), re.compile("\n"))
    assert sections.join([RichText("x\ny"), RichText("z")]).text == "x y\nz"


def test_a_tag_over_a_separator_stays_one() -> None:
    rich = RichText("a b\nc", (Tag(2, 5, 7),))
    assert Sections(rich, re.compile("\n")).join(
        [RichText("A B", (Tag(2, 3, 7),)), RichText("C", (Tag(0, 1, 7),))]
    ) == RichText("A B\nC", (Tag(2, 5, 7),))


def test_a_point_at_the_end_of_a_tag_is_where_it_was() -> None:
    rich = RichText("ab", (Tag(0, 1, 0), Tag(1, 1, 1)))
    markup = {0: SourceMarkup("<b>", "</b>"), 1: SourceMarkup("<br/>")}
    assert to_markup(rich, markup) == "<b>a</b><br/>b"
    order = [(event, tag.id) for event, _, tag in events(rich, {1: 0}) if tag]
    assert order == [(Event.OPEN, 0), (Event.OPEN, 1), (Event.CLOSE, 1), (Event.CLOSE, 0)]
    assert [text for _, text, tag in events(rich) if tag is None] == ["a", "b"]


def test_fixed_spans_are_in_their_part() -> None:
    rich = RichText("one two", fixed=(FixedSpan(4, 7, "two"),))
    assert [part.fixed for part in cut(rich, [(0, 3), (4, 7)])] == [(), (FixedSpan(0, 3, "two"),)]


def test_fixed_tags_are_where_their_text_is() -> None:
    tags = (Tag(0, 1, 0), Tag(0, 1, 1))
    assert with_tags_on_own_text(RichText("a x b x", tags), {0: "x", 1: "x"}).tags == (
        Tag(2, 3, 0),
        Tag(6, 7, 1),
    )
    assert with_tags_on_own_text(RichText("a b", tags), {0: "x"}).tags == tags
    crossed = (Tag(0, 1, 2), Tag(2, 3, 1))
    own = with_tags_on_own_text(RichText("y x x", crossed), {1: "x", 2: "x"}).tags
    assert own == (Tag(2, 3, 1), Tag(4, 5, 2))
    inside = (Tag(7, 10, 1),)
    assert with_tags_on_own_text(RichText("banana und", inside), {1: "a"}).tags == inside
    assert with_tags_on_own_text(
        RichText("a xy", (Tag(3, 4, 0), Tag(0, 1, 1))), {1: "xy"}
    ).tags == (
        Tag(0, 1, 1),
        Tag(3, 4, 0),
    )


def test_joined_parts_keep_their_fixed_spans() -> None:
    parts = [RichText("one", fixed=(FixedSpan(0, 3, "one"),)), RichText("two")]
    assert join([*parts, *parts], " ").fixed == (FixedSpan(0, 3, "one"), FixedSpan(8, 11, "one"))


@given(WITH_MARKERS)
def test_markers_are_taken_out_and_inserted(tree: object) -> None:
    rich = build(tree)
    without, markers = without_markers(rich)
    assert with_markers(without, markers, parents(rich.tags)) == rich
    assert len(without.text) + sum(len(marker.text) for marker in markers.values()) == len(
        rich.text
    )
    moved = with_markers(reverse_words(without), markers, parents(rich.tags))
    assert {tag.id for tag in moved.tags} == {tag.id for tag in rich.tags}
    for tag in moved.tags:
        if tag.id in markers:
            assert moved.text[tag.start : tag.end] == markers[tag.id].text


def test_markers_follow_a_word() -> None:
    for text, tagged, is_marker in (
        ("a[1] b", "[1]", True),
        ("a12 b", "12", True),
        ("a* b", "*", True),
        ("a.[ab] b", "[ab]", True),
        ("a,1 b", "1", True),
        ("m2.", "2", True),
        ("a(3) b", "(3)", True),
        ("a [1]", "[1]", False),
        ("H2O", "2", False),
        ("dogs", "s", False),
        ("a-19", "-19", False),
        ("a-19", "19", False),
        ("CO2 b", "2", False),
        ("$50", "50", False),
        ("3.2 b", "2", False),
        ("(5) b", "5", False),
        ("10:30", "30", False),
        ("价50。", "50", False),
        ("a2024", "2024", False),
    ):
        start = text.rindex(tagged)
        rich = RichText(text, (Tag(start, start + len(tagged), 0),))
        assert bool(without_markers(rich)[1]) == is_marker
        fixed = RichText(text, rich.tags, (FixedSpan(0, len(text), text),))
        assert without_markers(fixed) == (fixed, {})


def test_a_point_in_a_tag_without_text_stays_in_it() -> None:
    rich = RichText("ab", (Tag(1, 1, 0), Tag(1, 1, 1)))
    nested = [(event, tag.id) for event, _, tag in events(rich, {0: None, 1: 0}) if tag]
    assert nested == [(Event.OPEN, 0), (Event.OPEN, 1), (Event.CLOSE, 1), (Event.CLOSE, 0)]


def test_a_marker_at_the_end_of_another_tag_stays_outside() -> None:
    rich = RichText("park[1] big", (Tag(4, 7, 0), Tag(8, 11, 1)))
    _, markers = without_markers(rich)
    translation = RichText("groß", (Tag(4, 4, 0), Tag(0, 4, 1)))
    complete = with_markers(translation, markers, parents(rich.tags))
    assert complete == RichText("groß[1]", (Tag(4, 7, 0), Tag(0, 4, 1)))


def test_adjacent_markers_are_taken_out() -> None:
    rich = RichText(
        "a1,2[3] b", tuple(Tag(*span, i) for i, span in enumerate([(1, 2), (2, 3), (3, 4), (4, 7)]))
    )
    without, markers = without_markers(rich)
    assert (without.text, [marker.text for marker in markers.values()]) == (
        "a b",
        ["1", ",", "2", "[3]"],
    )
    assert with_markers(without, markers, parents(rich.tags)) == rich
