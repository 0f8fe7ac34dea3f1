"""SRT and WebVTT."""

from __future__ import annotations

import re

import pysubs2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stub_translations import OPTIONS, reverse_words, texts, translated, uppercase

from nmt.core.errors import DataError
from nmt.documents import subtitles
from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions

SRT = """\
1
00:00:01,000 --> 00:00:02,500
{\\an8}<i>The train to the coast</i>
<i>leaves at noon,</i>

2
00:00:02,600 --> 00:00:04,000 X1:40 X2:600
<i>unless it snows.</i>

3
00:00:05,000 --> 00:00:06,000
- Are you <b>sure</b>?
- No.

4
00:00:09,500 --> 00:00:10,000
<font color="#ff0000">Good night!</font>
"""
VTT = """\
WEBVTT - a title
Kind: captions

STYLE
::cue { color: white }

REGION
id:fred
lines:3

NOTE this is
a comment --

first cue
00:01.000 --> 00:02.500 line:0 align:start
<v Anna>Salt &amp; pepper,&nbsp;please.

00:02.600 --> 00:04.000
<c.yellow>Here</c> you <u>are</u>.
"""


def parse(source: str | bytes, **options: str) -> subtitles.Subtitles:
    data = source.encode() if isinstance(source, str) else source
    return subtitles.parse(data, DocumentOptions(**{**OPTIONS, **options}))


def payload(source: str) -> str:
    """Return the text of one cue after its translation to capitals."""
    rendered = translated(parse(f"1\n00:00:01,000 --> 00:00:02,000\n{source}\n")).decode()
    return rendered.split("\n", 2)[2].removesuffix("\n")


@pytest.mark.parametrize(
    "source", [SRT, VTT, "", "WEBVTT\n", SRT.rstrip("\n"), VTT.replace("\n", "\n\n\n")]
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r\r\n", "\r"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_untranslated_subtitles_are_unchanged(source: str, line_end: str, bom: str) -> None:
    data = (bom + source.replace("\n", line_end)).encode()
    document = parse(data)
    assert document.render(document.blocks) == data


def test_sentences_continue_in_the_next_cue() -> None:
    assert texts(parse(SRT)) == [
        "The train to the coast leaves at noon, unless it snows.",
        "Are you sure?",
        "No.",
        "Good night!",
    ]


def test_only_the_text_changes() -> None:
    rendered = translated(parse(SRT)).decode()
    assert rendered == SRT.replace(
        "The train to the coast</i>\n<i>leaves at noon,", "THE TRAIN TO THE COAST LEAVES AT NOON,"
    ).replace("unless it snows.", "UNLESS IT SNOWS.").replace(
        "Are you <b>sure", "ARE YOU <b>SURE"
    ).replace("- No.", "- NO.").replace("Good night", "GOOD NIGHT")
    before, after = pysubs2.SSAFile.from_string(SRT), pysubs2.SSAFile.from_string(rendered)
    assert [(cue.start, cue.end) for cue in before] == [(cue.start, cue.end) for cue in after]


def test_webvtt_settings_notes_styles_and_identifiers_survive() -> None:
    assert texts(parse(VTT)) == ["Salt & pepper,\u00a0please.", "Here you are."]
    expected = VTT.replace("Salt &amp; pepper,&nbsp;please.", "SALT &amp; PEPPER,&nbsp;PLEASE.")
    assert translated(parse(VTT)).decode() == expected.replace(
        "Here</c> you <u>are", "HERE</c> YOU <u>ARE"
    )


def test_the_language_in_the_header_of_webvtt_is_that_of_the_translation() -> None:
    for header, expected in (
        ("WEBVTT\nKind: captions\nLanguage: en-GB\n", "WEBVTT\nKind: captions\nLanguage: de\n"),
        ("WEBVTT - title\r\nLanguage: en\r\n", "WEBVTT - title\r\nLanguage: de\r\n"),
        ("WEBVTT\nLanguage: fr\n", "WEBVTT\nLanguage: fr\n"),
        ("WEBVTT\nLanguage: en, de\n", "WEBVTT\nLanguage: en, de\n"),
        (
            "WEBVTT\n00:00.000 --> 00:01.000\nLanguage: en\n",
            "WEBVTT\n00:00.000 --> 00:01.000\nLanguage: en\n",
        ),
        ("WEBVTT\n\nNOTE\nLanguage: en\n", "WEBVTT\n\nNOTE\nLanguage: en\n"),
    ):
        cue = "\n00:01.000 --> 00:02.000\nLanguage: en\n"
        document = subtitles.parse((header + cue).encode(), DocumentOptions("en", "de"))
        assert document.render(document.blocks).decode() == expected + cue


def test_a_cue_of_webvtt_may_start_with_lines_of_spaces() -> None:
    source = (
        "WEBVTT\n\n00:01.000 --> 00:02.000 align:start\n \none\n \n2\n00:03.000 --> 00:04.000\n"
    )
    assert translated(parse(source)).decode() == source.replace("one", "ONE")


def test_an_empty_cue_of_webvtt_ends_at_an_empty_line() -> None:
    source = "WEBVTT\n\n1\n00:01.000 --> 00:02.000\n\nNOTE no\n\n2\n00:03.000 --> 00:04.000\none\n"
    assert translated(parse(source)).decode() == source.replace("one", "ONE")


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("cp1252", "caf\u00e9\u2026"),
        ("cp1251", "\u0434\u0430"),
        ("utf-16-le", "a \u4f60"),
        ("gb18030", "\u4f60"),
    ],
)
def test_a_named_encoding_is_read_and_written(encoding: str, text: str) -> None:
    source = f"1\n00:00:01,000 --> 00:00:02,000\n{text}\n"
    document = parse(source.encode(encoding), encoding=encoding)
    assert texts(document) == [text]
    assert translated(document).decode(encoding) == source.replace(text, text.upper())
    # The byte order mark decides.
    assert texts(parse("\ufeff" + source, encoding=encoding)) == [text]


def test_an_unknown_encoding_is_an_error() -> None:
    with pytest.raises(DataError, match="unknown encoding 'klingon'"):
        parse(SRT, encoding="klingon")


def test_a_huge_character_reference_is_not_an_error() -> None:
    assert texts(parse(f"WEBVTT\n\n00:01.000 --> 00:02.000\none &#{'1' * 5000};\n")) == [
        "one \ufffd"
    ]


def test_a_moved_tag_stays_with_its_words() -> None:
    assert "- sure? you Are" not in translated(parse(SRT), reverse_words).decode()
    assert "- <b>sure?</b> you Are\n- No." in translated(parse(SRT), reverse_words).decode()


def test_a_translation_is_cut_in_proportion_and_at_punctuation() -> None:
    source = (
        "1\n00:00:01,000 --> 00:00:02,000\nWhen I was young,\n\n2\n00:00:02,000 --> 00:00:03,000\nI"
        " lived here.\n"
    )
    document = parse(source)
    (block,) = document.blocks
    rendered = document.render([RichText("Als ich noch sehr jung war, wohnte ich hier.")]).decode()
    assert block.text == "When I was young, I lived here."
    assert "\nAls ich noch sehr jung war,\n\n" in rendered
    assert rendered.endswith("\nwohnte ich hier.\n")


@pytest.mark.parametrize(
    ("first", "second", "num_blocks"),
    [
        ("I went", "home.", 1),
        ("I went.", "Home is far.", 2),
        ("I waited...", "and waited.", 1),
        ("I waited...", "Then I left.", 2),
        ("I went", "- Home?", 2),
        ("to the\nsea and", "sea and\nback", 2),
        ("a", "apple", 1),
        ("I went", "[door opens]", 2),
        ("Hello. I went", "home. Bye.", 3),
        ("Berlin, 1990", "I went home.", 2),
        ("In 1990,", "Tom went home.", 1),
        ("I have 10", "dogs.", 1),
        ("BERLIN", '"I am here."', 2),
        ("BERLIN,", "My home", 1),
        ("I WENT", "HOME.", 1),
        ("I saw", "Tom.", 1),
    ],
)
def test_sentences_over_two_cues(first: str, second: str, num_blocks: int) -> None:
    source = f"00:00:01,000 --> 00:00:02,000\n{first}\n\n00:00:02,000 --> 00:00:03,000\n{second}\n"
    assert len(parse(source).blocks) == num_blocks


def test_a_cue_of_digits_is_complete() -> None:
    cues = ["10", "Is it far?", "3", "2", "1", "Happy birthday!"]
    source = ""
    for i, text in enumerate(cues, 1):
        source += f"{i}\n00:00:{i:02},000 --> 00:00:{i:02},900\n{text}\n\n"
    assert texts(parse(source)) == cues


def test_a_sentence_does_not_continue_after_a_pause() -> None:
    source = "1\n00:00:01,000 --> 00:00:02,000\nI went\n\n2\n00:00:06,000 --> 00:00:07,000\nhome\n"
    assert texts(parse(source)) == ["I went", "home"]


def test_lines_are_balanced() -> None:
    assert payload("short\nwords") == "SHORT WORDS"
    lines = payload(
        "a very long line of words that does not fit on a single line of subtitles"
    ).split("\n")
    assert [len(line) for line in lines] == [35, 37]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<i>one</i> two", "<i>ONE</i> TWO"),
        ("{\\i1}one{\\i0} two", "{\\i1}ONE{\\i0} TWO"),
        ("one <i>two", "ONE <i>TWO"),
        ("one</i> two", "ONE</i> TWO"),
        ("<b><i>one</i></b>", "<b><i>ONE</i></b>"),
        ("<i>- one\n- two</i>", "<i>- ONE</i>\n<i>- TWO</i>"),
        ("a < b > c & d", "A < B > C & D"),
        ("♪ one ♪", "♪ ONE ♪"),
        ("1984", "1984"),
        ("one\n\ntwo", "ONE TWO"),
        ("[rain]\nTOM: one,\ntwo", "[RAIN]\nTOM: ONE, TWO"),
        ("MRS. BELL (O.S.): one\nMAN 2: two", "MRS. BELL (O.S.): ONE\nMAN 2: TWO"),
        ("(rain\nfalls)\none", "(RAIN FALLS) ONE"),
        ("(rain)\none", "(RAIN)\nONE"),
        ("note this: one\nALL: TWO", "NOTE THIS: ONE ALL: TWO"),
        ("<b>TOM:</b> one", "<b>TOM:</b> ONE"),
        ("<i>TOM: one</i>\nANN: <i>two</i>", "<i>TOM: ONE</i>\nANN: <i>TWO</i>"),
        ("<v Tom>one\n<v Ann>two <v Tom>three", "<v Tom>ONE\n<v Ann>TWO\n<v Tom>THREE"),
        (r"one\Ntwo", "ONE TWO"),
        (r"- one\n- two", r"- ONE\n- TWO"),
        (r"open C:\name\Notes", r"OPEN C:\NAME\NOTES"),
    ],
)
def test_markup_in_cues(source: str, expected: str) -> None:
    assert payload(source) == expected


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r\r\n", "\r"])
@pytest.mark.parametrize(
    "source", [SRT, VTT, "WEBVTT\nLanguage: en\n\n00:01.000 --> 00:02.000\n \n\n"]
)
def test_line_ends_do_not_matter(source: str, line_end: str) -> None:
    document = parse(source.replace("\n", line_end))
    assert texts(document) == texts(parse(source))
    assert translated(document).decode() == translated(parse(source)).decode().replace(
        "\n", line_end
    )


@pytest.mark.parametrize("source", [SRT, VTT])
def test_line_ends_may_differ(source: str) -> None:
    mixed = source.replace("\n", "\r") + "\n"
    document = parse(mixed)
    assert texts(document) == texts(parse(source))
    assert document.render(document.blocks) == mixed.encode()
    translation = translated(document).decode()
    assert re.sub("[\r\n]", "\n", translation) == translated(parse(source + "\n")).decode()


def test_tags_of_ssa_stay_around_their_words() -> None:
    source = "1\n00:00:01,000 --> 00:00:02,000\nhe had to {\\i1}get up{\\i0} early\n"
    rendered = translated(parse(source), reverse_words).decode()
    assert rendered.splitlines()[2] == "early {\\i1}up get{\\i0} to had he"


def test_times_and_annotations_are_points() -> None:
    assert payload("<i>Hello <00:00:02.000>world</i> now") == "<i>HELLO <00:00:02.000>WORLD</i> NOW"
    (block,) = parse("1\n00:01.000 --> 00:02.000\n<i>a <00:00:02.000>b</i> c\n").blocks
    assert [(tag.start, tag.end) for tag in block.tags] == [(0, 3), (2, 2)]


@pytest.mark.parametrize("mark", ["\u200e", "\u202b"])
def test_direction_marks_hide_neither_speakers_nor_sounds(mark: str) -> None:
    lines = ["[door opens]", "Come in, please.", "- Where is the dog?", "- I do not know."]
    start = "1\n00:00:01,000 --> 00:00:02,000\n"
    marked = start + "".join(f"{mark}{line}\n" for line in lines)
    assert len(texts(parse(marked))) == len(texts(parse(marked.replace(mark, ""))))


def test_a_line_break_of_ssa_stays_one() -> None:
    lines = payload(
        r"a very long line of words that does not\Nfit on a single line of subtitles"
    ).split(r"\N")
    assert [len(line) for line in lines] == [35, 37]


def test_speakers_and_sounds_are_escaped_and_end_sentences() -> None:
    source = (
        "WEBVTT\n\n00:01.000 --> 00:02.000\nI went\n\n00:02.000 --> 00:03.000\nTOM &amp; ANN: home"
        " &amp; back\n"
    )
    document = parse(source)
    assert texts(document) == ["I went", "home & back"]
    assert translated(document).decode() == source.replace("I went", "I WENT").replace(
        "home &amp; back", "HOME &amp; BACK"
    )


def test_ruby_annotations_stay_with_their_words() -> None:
    source = "<ruby>dog<rt>inu</rt></ruby> in a <ruby>house<rt>ie</ruby>"
    document = parse(f"WEBVTT\n\n00:01.000 --> 00:02.000\n{source}\n")
    assert texts(document) == ["dog in a house"]
    expected = "<ruby>house<rt>ie</ruby> a in <ruby>dog<rt>inu</rt></ruby>"
    assert expected in translated(document, reverse_words).decode()
    adjacent = "a <ruby>b<rt>x</rt></ruby><ruby>c<rt>y</ruby> <ruby>d<rt>z</rt></ruby>"
    document = parse(f"WEBVTT\n\n00:01.000 --> 00:02.000\n{adjacent}\n")
    expected = (
        adjacent.replace("a <", "A <")
        .replace(">b<", ">B<")
        .replace(">c<", ">C<")
        .replace(">d<", ">D<")
    )
    assert expected in translated(document).decode()
    document = parse(
        "WEBVTT\n\n00:01.000 --> 00:02.000\na <ruby>b<rt>x</rt>c<rt>y</rt></ruby> d<rt>z</rt>\n"
    )
    assert "A <ruby>B<rt>x</rt>C<rt>y</rt></ruby> D<rt>z</rt>" in translated(document).decode()


def test_chinese_is_cut_and_wrapped_without_spaces() -> None:
    source = (
        "1\n00:00:01,000 --> 00:00:02,000\nWhen I was young,\n\n2\n00:00:02,000 --> 00:00:03,000\nI"
        " lived here.\n"
    )
    rendered = parse(source).render([RichText("我年轻的时候，住在这里。")]).decode()
    assert re.findall("[\u3400-\u9fff].*", rendered) == ["我年轻的时候，", "住在这里。"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("Only text.\n", "no subtitles"),
        ("WEBVTT\n\none --> two\nHi\n", "no subtitles"),
        ("1\n00:00:01,000 --> 00:00:xx,000\nHi\n", "line 2: .* is not a time range"),
        (f"1\n{'0' * 5000}:00:01,000 --> 00:00:02,000\nHi\n", "line 2: .* is not a time range"),
        ("1\n00:00:01,000 -> 00:00:02,000\nHi\n", "no subtitles"),
        (b"1\n00:00:01,000 --> 00:00:02,000\n\xe4\n", "line 3, byte . of the line: not UTF-8"),
    ],
)
def test_malformed_subtitles_are_rejected(source: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(source)


def test_invalid_characters_can_be_replaced() -> None:
    document = parse(b"1\n00:00:01,000 --> 00:00:02,000\n\xe4\n", encoding_errors="replace")
    assert texts(document) == ["\ufffd"]


def test_utf_16_is_read_and_written() -> None:
    data = b"\xff\xfe" + SRT.encode("utf-16-le")
    assert translated(parse(data)).decode("utf-16") == translated(parse(SRT)).decode()


WORDS = st.lists(
    st.text("abcABNnv.,:-<>&{}[]()\\i 1♪", min_size=1, max_size=8), min_size=1, max_size=12
).map(" ".join)
LINES = WORDS.map(str.strip).filter(lambda line: line and "-->" not in line and not line.isdigit())


@given(
    st.lists(st.lists(LINES, min_size=1, max_size=3), min_size=1, max_size=5),
    st.sampled_from(["srt", "vtt"]),
)
def test_any_subtitles_keep_their_structure(cues: list[list[str]], kind: str) -> None:
    header, comma = ("WEBVTT\n\n", ".") if kind == "vtt" else ("", ",")
    source = header + "".join(
        f"{i}\n00:00:{i:02}{comma}000 --> 00:00:{i:02}{comma}900\n" + "\n".join(lines) + "\n\n"
        for i, lines in enumerate(cues)
    )
    document = parse(source)
    assert document.render(document.blocks) == source.encode()
    for translate in (uppercase, reverse_words):
        rendered = parse(translated(document, translate))
        assert [(cue.begin_time, cue.end_time, bool(cue.turns)) for cue in rendered.cues] == [
            (cue.begin_time, cue.end_time, bool(cue.turns)) for cue in document.cues
        ]


@given(
    st.lists(
        st.text("abABNn.:-[]()\\\n ♪", min_size=1, max_size=30).filter(str.strip),
        min_size=1,
        max_size=4,
    )
)
def test_no_text_of_a_cue_is_lost(cues: list[str]) -> None:
    source = "".join(
        f"{i}\n00:{i:02}:00,000 --> 00:{i:02}:01,000\n{text}\n\n" for i, text in enumerate(cues)
    )
    rendered = translated(parse(source)).decode()
    breaks = re.compile(r"\s|\\[Nn]")
    assert breaks.sub("", rendered.upper()) == breaks.sub("", source).upper()


@given(st.lists(st.integers(1, 40), min_size=2, max_size=5), st.integers(2, 12))
def test_no_cue_is_empty_if_there_are_enough_words(lengths: list[int], num_words: int) -> None:
    parts = subtitles.divide(RichText(" ".join(["word,"] * num_words)), lengths)
    assert " ".join(filter(None, (part.text for part in parts))) == " ".join(["word,"] * num_words)
    assert sum(bool(part.text) for part in parts) == min(num_words, len(lengths))
