"""Plain text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stub_translations import OPTIONS, texts, translated

from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions
from nmt.documents.text import TextDocument, parse


def parse_text(source: str) -> TextDocument:
    return parse(source.encode(), DocumentOptions(**OPTIONS))


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r\r\n", "\r"])
@pytest.mark.parametrize("last", ["", "\n", "\r"])
def test_every_line_end_ends_a_line(line_end: str, last: str) -> None:
    source = "Dear Anna,\n\nthis is a letter.\nYours, Tom" + last
    document = parse_text(source.replace("\n", line_end))
    assert texts(document) == ["Dear Anna,", "this is a letter.", "Yours, Tom"]
    rendered = translated(document).decode()
    assert rendered == source.upper().replace("\n", line_end)


def test_an_unchanged_paragraph_keeps_its_line_ends() -> None:
    source = "one dog\r\nand two\rand three\n"
    document = parse_text(source)
    assert texts(document) == ["one dog and two and three"]
    assert document.render(document.blocks) == source.encode()


@pytest.mark.parametrize(
    "source",
    [
        "one dog  \nTwo dogs\t\r\n",
        "- one dog \n",
        "one dog\t\nand two  \n",
        "one dog and \nthe other \nare here\n",
        "left  right \n",
        "one page\f\nanother page\n",
        "one page\n\fanother page\n\f",
        "a wrapped line of the first page, which\fcontinues here\n",
        "  one page\n\fand another\nand its end\n",
        "\f\f\n \f\n",
    ],
)
def test_whitespace_at_line_ends_and_form_feeds_are_kept(source: str) -> None:
    assert translated(parse_text(source)).decode() == source.upper()


def test_a_longer_translation_has_the_whitespace_at_its_end() -> None:
    document = parse_text("one dog and \nanother one\t\n")
    (block,) = document.blocks
    assert block.text == "one dog and another one"
    translation = RichText("ein Hund und noch einer")
    assert document.render([translation]) == b"ein Hund \nund noch \neiner\t\n"


@given(st.text("aB. -\t\n\r\f\v\u2028\x85", max_size=40))
def test_no_text_or_form_feed_is_lost(source: str) -> None:
    document = parse_text(source)
    assert document.render(document.blocks) == source.encode()
    pages = translated(document).decode().split("\f")
    source_pages = source.upper().split("\f")
    assert ["".join(page.split()) for page in pages] == [
        "".join(page.split()) for page in source_pages
    ]


def test_quoted_mail_is_a_paragraph() -> None:
    quote = (
        "> I think that this is a very big problem for us,\n"
        "> and we should talk to them about it this week.\n"
        ">\n> > Really?\n> - one dog\n> - two dogs\n"
    )
    document = parse_text(quote)
    paragraph = (
        "I think that this is a very big problem for us,"
        " and we should talk to them about it this week."
    )
    assert texts(document) == [paragraph, "Really?", "- one dog", "- two dogs"]
    assert document.render(document.blocks) == quote.encode()
    lines = translated(document).decode().splitlines()
    assert [line[:2] for line in lines] == ["> ", "> ", ">", "> ", "> ", "> "]
