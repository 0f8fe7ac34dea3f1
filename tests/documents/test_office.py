"""DOCX and PPTX, with documents written here, and with those of python-docx and python-pptx as
independent readers."""

from __future__ import annotations

import contextlib
import io
import re
import tracemalloc
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from stub_translations import OPTIONS, reverse_words, texts, translated, uppercase

from nmt.core.errors import DataError
from nmt.documents import office
from nmt.documents.document import RichText, Tag
from nmt.documents.formats import DocumentOptions

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml"
POWERPOINT = "application/vnd.openxmlformats-officedocument.presentationml"


def archive(parts: dict[str, tuple[str, str]]) -> bytes:
    """Return an archive with a content type and content for each part, and a picture."""
    types = "".join(
        f'<Override PartName="/{name}" ContentType="{kind}"/>' for name, (kind, _) in parts.items()
    )
    namespace = "http://schemas.openxmlformats.org/package/2006/content-types"
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("[Content_Types].xml", f'<Types xmlns="{namespace}">{types}</Types>')
        for name, (_, content) in parts.items():
            file.writestr(
                name, '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>\n' + content
            )
        file.writestr(
            zipfile.ZipInfo("media/image.png", (2020, 1, 2, 3, 4, 6)), b"\x89PNG" + bytes(100)
        )
    return output.getvalue()


def docx(body: str, **others: str) -> bytes:
    """Return a DOCX file with the content of its body, and of other parts such as `footnotes`."""
    content = f'<w:document xmlns:w="{W}" xmlns:r="r"><w:body>{body}</w:body></w:document>'
    parts = {"word/document.xml": (f"{WORD}.document.main+xml", content)}
    for name, part in others.items():
        parts[f"word/{name}.xml"] = (
            f"{WORD}.{name.rstrip('0123456789')}+xml",
            f'<w:{name} xmlns:w="{W}">{part}</w:{name}>',
        )
    return archive(parts)


def pptx(*slides: str) -> bytes:
    """Return a PPTX file with the paragraphs of each slide."""
    parts = {"ppt/presentation.xml": (f"{POWERPOINT}.presentation.main+xml", "<p/>")}
    for i, slide in enumerate(slides, 1):
        parts[f"ppt/slides/slide{i}.xml"] = (
            f"{POWERPOINT}.slide+xml",
            f'<sld xmlns:a="{A}">{slide}</sld>',
        )
    return archive(parts)


def parse(data: bytes) -> office.OfficeDocument:
    return office.parse(data, DocumentOptions(**OPTIONS))


def part(data: bytes, name: str = "word/document.xml") -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        return file.read(name).decode()


def body(data: bytes) -> str:
    return part(data).split("<w:body>")[1].split("</w:body>")[0]


def run(text: str, properties: str = "") -> str:
    return f"<w:r>{properties and f'<w:rPr>{properties}</w:rPr>'}<w:t>{text}</w:t></w:r>"


def paragraph(*content: str) -> str:
    return f'<w:p><w:pPr><w:jc w:val="center"/></w:pPr>{"".join(content)}</w:p>'


def spaced(text: str, properties: str = "") -> str:
    """Return a run whose spaces are preserved."""
    return run(text, properties).replace("<w:t>", SPACE)


SPACE = '<w:t xml:space="preserve">'
BOLD, ITALIC, UNDERLINED = "<w:b/>", "<w:i/>", '<w:u w:val="single"/>'


@pytest.mark.parametrize(
    ("source", "text", "expected"),  # "": the source with its text in capitals
    [
        (run("one"), "one", ""),
        (run("on") + run("e"), "one", run("ONE")),
        (
            run("on") + "<w:proofErr w:type='spellStart'/>" + run("e", '<w:lang w:val="en-US"/>'),
            "one",
            run("ONE"),
        ),
        (spaced("one ") + run("two", BOLD), "one two", ""),
        (run("a", BOLD) + run("b", BOLD) + run("cdef"), "abcdef", run("AB", BOLD) + run("CDEF")),
        (run("one", '<w:lang w:val="en-US"/>'), "one", run("ONE", '<w:lang w:val="de"/>')),
        (run("one", '<w:lang w:val="de-AT"/>'), "one", ""),
        (
            "<w:r><w:t>a</w:t><w:tab/><w:t>b</w:t></w:r>",
            ["a", "b"],
            run("A") + "<w:r><w:tab/></w:r>" + run("B"),
        ),
        (
            '<w:r><w:t>a</w:t><w:br w:type="page"/><w:t>b</w:t></w:r>',
            ["a", "b"],
            run("A") + '<w:r><w:br w:type="page"/></w:r>' + run("B"),
        ),
        (
            "<w:r><w:t>a</w:t><w:tab/><w:drawing/><w:tab/><w:t>b</w:t></w:r>",
            ["a", "b"],
            run("A") + "<w:r><w:tab/></w:r><w:r><w:drawing/></w:r><w:r><w:tab/></w:r>" + run("B"),
        ),
        ("<w:r><w:t>a</w:t><w:noBreakHyphen/><w:t>b</w:t></w:r>", "a\u2011b", run("A\u2011B")),
        (
            f'<w:hyperlink r:id="rId1" w:history="1">{run("link", BOLD)}</w:hyperlink>'
            + spaced(" and text"),
            "link and text",
            "",
        ),
        (
            (
                f'<w:ins w:id="1">{run("new")}</w:ins><w:del'
                ' w:id="2"><w:r><w:delText>old</w:delText></w:r></w:del>'
            ),
            "new",
            "",
        ),
        (
            (
                "<w:sdt><w:sdtPr><w:id"
                f' w:val="1"/></w:sdtPr><w:sdtContent>{run("a")}</w:sdtContent></w:sdt>'
            ),
            "a",
            "",
        ),
        (
            f'<w:bookmarkStart w:id="1" w:name="x"/>{run("ab")}<w:bookmarkEnd w:id="1"/>{run("c")}',
            "abc",
            "",
        ),
        (
            run("a") + '<w:r><w:rPr><w:b/></w:rPr><w:footnoteReference w:id="2"/></w:r>' + run("b"),
            "ab",
            "",
        ),
        (
            spaced("one ") + "<w:r><w:drawing/></w:r><w:r><w:drawing/></w:r>" + spaced(" two"),
            "one two",
            spaced("ONE ")
            + "<w:r><w:drawing/></w:r><w:r><w:drawing/></w:r>"
            + spaced(" ")
            + run("TWO"),
        ),
        (
            (
                f"{spaced('one ')}<w:r><w:drawing/></w:r><w:hyperlink"
                f' r:id="1">{spaced(" two")}</w:hyperlink>'
            ),
            "one two",
            (
                f"{spaced('ONE ')}<w:r><w:drawing/></w:r>{spaced(' ')}<w:hyperlink"
                f' r:id="1">{run("TWO")}</w:hyperlink>'
            ),
        ),
        (f'{run("a")}<w:ins w:id="1">{spaced(" ")}</w:ins>{run("b")}', "a b", run("A B")),
        (
            spaced("to ") + f'<w:fldSimple w:instr=" REF ">{run("a b c d e")}</w:fldSimple>',
            "to a b c d e",
            spaced("TO ") + f'<w:fldSimple w:instr=" REF ">{run("a b c d e")}</w:fldSimple>',
        ),
        (
            spaced("name: ") + spaced("     ", UNDERLINED),
            "name:",
            spaced("NAME: ") + spaced("     ", UNDERLINED),
        ),
        (
            run("a")
            + f'<w:ins w:id="1"><w:r><w:pict><x><w:p>{run("b")}</w:p></x></w:pict></w:r></w:ins>',
            ["a", "b"],
            "",
        ),
        (
            spaced("page ") + f'<w:fldSimple w:instr=" PAGE ">{run("7x")}</w:fldSimple>',
            "page 7x",
            spaced("PAGE ") + f'<w:fldSimple w:instr=" PAGE ">{run("7x")}</w:fldSimple>',
        ),
    ],
)
def test_content_of_a_paragraph(source: str, text: str | list[str], expected: str) -> None:
    expected = expected or re.sub(r"[^<>]+(?=</w:t>)", lambda match: match[0].upper(), source)
    data = docx(paragraph(source))
    document = parse(data)
    assert texts(document) == ([text] if isinstance(text, str) else text)
    assert document.render(document.blocks) == data
    assert body(translated(parse(data))) == paragraph(expected)


def field(code: str, result: str) -> str:
    """Return a field of several runs."""
    return (
        '<w:r><w:fldChar w:fldCharType="begin"/></w:r>'
        f"<w:r><w:instrText>{code}</w:instrText></w:r>"
        '<w:r><w:fldChar w:fldCharType="separate"/></w:r>'
        f'{run(result)}<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )


def test_results_of_fields_are_fixed_except_for_links() -> None:
    data = docx(
        paragraph(run("see "), field(" REF x ", "part b"))
        + paragraph(field(' HYPERLINK "u" ', "the site"))
    )
    document = parse(data)
    first, second = document.blocks
    assert (first.text, [span.translation for span in first.fixed]) == ("seepart b", ["part b"])
    assert (second.text, second.fixed) == ("the site", ())
    rendered = body(translated(document))
    assert rendered.count("fldCharType") == 6
    assert field(" REF x ", "part b") in rendered
    assert ">THE SITE<" in rendered
    assert "<w:t>b" in body(parse(data).render([RichText("b", (Tag(0, 1, 0),)), second]))


def test_the_parts_of_a_link_stay_in_order_around_its_words() -> None:
    link = field(' HYPERLINK "u" ', "the book")
    data = docx(paragraph(run("I read "), link, run(" yesterday")).replace("<w:t>", SPACE))
    rendered = body(translated(parse(data), reverse_words))
    marks = re.findall(r'fldCharType="(\w+)"|<w:(instrText)|<w:t[^>]*>([^<]*)', rendered)
    assert ["".join(mark) for mark in marks] == [
        "yesterday ",
        "begin",
        "instrText",
        "separate",
        "book the",
        "end",
        " read I",
    ]


def test_a_field_in_the_instruction_of_a_link_stays_there() -> None:
    begin, separate, end = (
        f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")
    )
    first, last = (f"<w:r><w:instrText>{text}</w:instrText></w:r>" for text in ('HYPERLINK "', '"'))
    source = paragraph(
        begin, first, field(" MERGEFIELD x ", "u"), last, separate, run("the site"), end
    )
    assert body(translated(parse(docx(source)))) == source.replace("the site", "THE SITE")


def test_entries_of_a_table_of_contents_are_translated_without_their_page_numbers() -> None:
    start = field(' TOC \\o "1-3" ', "").partition(run(""))[0]
    entries = [
        "<w:hyperlink"
        f' w:anchor="{name}">{run(name)}<w:r><w:tab/></w:r>{field(f" PAGEREF {name} ", page)}</w:hyperlink>'  # noqa: E501
        for name, page in (("intro", "iv"), ("index", "9"))
    ]
    source = paragraph(start, entries[0]) + paragraph(
        entries[1], '<w:r><w:fldChar w:fldCharType="end"/></w:r>'
    )
    expected = source.replace(run("intro"), run("INTRO")).replace(run("index"), run("INDEX"))
    assert body(translated(parse(docx(source)))) == expected


def test_a_field_without_other_text_is_not_translated() -> None:
    assert parse(docx(paragraph(field(" PAGE ", "iv")))).blocks == []


def test_a_field_in_a_text_box_does_not_concern_the_paragraph_around_it() -> None:
    box = f"<w:r><w:pict><w:txbxContent>{paragraph(run('page '), field(' PAGE ', '7'))}</w:txbxContent></w:pict></w:r>"  # noqa: E501
    outer, inner = parse(docx(paragraph(run("before "), box, run("after")))).blocks
    assert (outer.text, outer.fixed) == ("beforeafter", ())
    assert (inner.text, [span.translation for span in inner.fixed]) == ("page7", ["7"])


def test_text_in_a_run_with_a_field_is_translated() -> None:
    before, after = ("<w:t xml:space='preserve'>page </w:t>", "<w:t>of ten</w:t>")
    inner = "".join(re.findall(r"<w:r>(.*?)</w:r>", field(" PAGE ", "7")))
    block = parse(docx(paragraph(f"<w:r><w:rPr><w:b/></w:rPr>{before}{inner}{after}</w:r>"))).blocks
    assert [(each.text, each.fixed[0].translation) for each in block] == [("page 7of ten", "7")]
    rendered = body(translated(parse(docx(paragraph(f"<w:r>{before}{inner}{after}</w:r>")))))
    assert re.findall(r"<w:t[^>]*>([^<]*)|<w:(instrText)", rendered) == [
        ("PAGE ", ""),
        ("", "instrText"),
        ("7", ""),
        ("OF TEN", ""),
    ]


def test_text_boxes_are_translated_once_and_stay_in_their_paragraph() -> None:
    box = f"<w:r><w:pict><w:txbxContent>{paragraph(run('inside'))}</w:txbxContent></w:pict></w:r>"
    data = docx(paragraph(run("before "), box, run("after")))
    assert texts(parse(data)) == ["beforeafter", "inside"]
    rendered = body(translated(parse(data)))
    assert rendered == paragraph(run("BEFORE"), box.replace("inside", "INSIDE"), run("AFTER"))
    only_inside = body(
        parse(data).render([RichText("beforeafter", parse(data).blocks[0].tags), RichText("X")])
    )
    assert only_inside == paragraph(run("before "), box.replace("inside", "X"), run("after"))


def test_tables_notes_headers_and_comments_are_translated() -> None:
    cell = f"<w:tbl><w:tr><w:tc>{paragraph(run('cell'))}</w:tc></w:tr></w:tbl>"
    others = {
        name: paragraph(run(name))
        for name in ("header2", "header10", "footer", "footnotes", "endnotes", "comments")
    }
    data = docx(cell, **others)
    assert texts(parse(data)) == [
        "cell",
        "header2",
        "header10",
        "footer",
        "footnotes",
        "endnotes",
        "comments",
    ]
    rendered = translated(parse(data))
    for name in others:
        assert f">{name.upper()}<" in part(rendered, f"word/{name}.xml")


def test_other_parts_are_copied() -> None:
    styles = (
        "<w:docDefaults><w:rPrDefault><w:rPr><w:lang"
        ' w:val="en-US"/></w:rPr></w:rPrDefault></w:docDefaults>'
    )
    data = docx(paragraph(run("one")), settings="<w:x/>", header=paragraph(run("5")), styles=styles)
    document = parse(data)
    rendered = document.render([RichText("ONE"), document.blocks[1]])
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(io.BytesIO(rendered)) as new:
        assert [(info.filename, info.date_time, info.compress_type) for info in old.infolist()] == [
            (info.filename, info.date_time, info.compress_type) for info in new.infolist()
        ]
        changed = [name for name in old.namelist() if old.read(name) != new.read(name)]
    assert changed == ["word/document.xml", "word/styles.xml"]
    assert '<w:lang w:val="de"/>' in part(rendered, "word/styles.xml")


def test_formatting_moves_with_its_words() -> None:
    runs = (run("a long text with "), run("bold", BOLD), run(" and "), run("more", ITALIC))
    rendered = body(
        translated(parse(docx(paragraph(*runs).replace("<w:t>", SPACE))), reverse_words)
    )
    expected = (run("more", ITALIC), spaced(" and "), run("bold", BOLD), run(" with text long a"))
    assert rendered == paragraph(*expected).replace("<w:t> with", f"{SPACE} with")


def test_slides_are_in_order_and_keep_their_structure() -> None:
    def slide(name: str) -> str:
        return (
            f'<a:p><a:pPr lvl="1"/><a:r><a:rPr lang="en-US" dirty="0"/><a:t>{name} one'
            ' </a:t></a:r><a:r><a:rPr lang="en-US" b="1"><a:hlinkClick'
            ' r="1"/></a:rPr><a:t>two</a:t></a:r><a:br/><a:r><a:rPr lang="en-US"'
            ' dirty="0"/><a:t>three</a:t></a:r><a:fld'
            ' type="slidenum"><a:t>9</a:t></a:fld><a:endParaRPr lang="en-US"/></a:p>'
        )

    data = pptx(*(slide(f"s{i}") for i in range(1, 12)))
    document = parse(data)
    assert texts(document)[::2] == [f"s{i} one two" for i in range(1, 12)]
    assert document.render(document.blocks) == data
    rendered = part(translated(document), "ppt/slides/slide11.xml")
    expected = (
        slide("S11")
        .replace('lang="en-US"', 'lang="de"', 3)
        .replace("one ", "ONE ")
        .replace("two", "TWO")
        .replace("three", "THREE")
    )
    assert rendered.endswith(f"{expected}</sld>")


def test_comments_of_old_presentations_are_translated() -> None:
    comments = (
        '<p:cmLst xmlns:p="p"><p:cm idx="1"><p:pos x="9"/><p:text>{}</p:text></p:cm></p:cmLst>'
    )
    name = "ppt/comments/comment1.xml"
    data = archive(
        {
            "ppt/presentation.xml": (f"{POWERPOINT}.presentation.main+xml", "<p/>"),
            name: (f"{POWERPOINT}.comments+xml", comments.format("Too long.\n Why &amp; how?")),
        }
    )
    assert texts(parse(data)) == ["Too long.", "Why & how?"]
    rendered = part(translated(parse(data)), name)
    assert rendered.endswith(comments.format("TOO LONG.\n WHY &amp; HOW?"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a DOCX or PPTX archive"),
        (b"hello", "not a DOCX or PPTX archive"),
        (
            b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600),
            "encrypted, or in the format of Office 2003",
        ),
        (docx("")[:-30], "not a DOCX or PPTX archive"),
        (docx("<w:p>"), "word/document.xml is damaged"),
        (docx("</w:body></w:document>"), "word/document.xml is damaged"),
        (archive({"content.xml": ("text/xml", "<a/>")}), "neither DOCX nor PPTX"),
        (
            archive({"word/document.xml": (f"{WORD}.document.main+xml", "<!DOCTYPE a><a/>")}),
            "document type declaration",
        ),
    ],
)
def test_malformed_files_are_rejected(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(data)


def test_a_part_name_may_have_a_long_number() -> None:
    assert texts(
        parse(docx(paragraph(run("one")), **{f"header{'1' * 5000}": paragraph(run("two"))}))
    ) == ["one", "two"]


def test_a_damaged_name_of_a_copied_part_is_reported() -> None:
    data = bytearray(docx(paragraph(run("one"))))
    at = data.index(b"media/image")  # in the header before the part
    data[at], data[at - 23] = 0xFF, 8  # not UTF-8, in spite of the flag
    with pytest.raises(DataError, match="damaged"):
        translated(parse(bytes(data)))


def test_an_archive_without_content_types_is_rejected() -> None:
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w") as file:
        file.writestr("a.txt", "x")
    with pytest.raises(DataError, match=r"no part \[Content_Types\].xml"):
        parse(output.getvalue())


def test_entities_are_not_expanded() -> None:
    content = '<!DOCTYPE a [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><a>&b;</a>'
    with pytest.raises(DataError, match="document type declaration"):
        parse(archive({"word/document.xml": (f"{WORD}.document.main+xml", content)}))


def test_content_types_may_be_defaults() -> None:
    data = docx(paragraph(run("one")))
    override = f'<Override PartName="/word/document.xml" ContentType="{WORD}.document.main+xml"/>'
    default = f'<Default Extension="XML" ContentType="{WORD}.document.main+xml"/>'
    output = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(output, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(override.encode(), default.encode()))
    assert texts(parse(output.getvalue())) == ["one"]


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unusual_compression_is_rejected(method: int) -> None:
    output = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(docx(paragraph(run("one"))))) as old,
        zipfile.ZipFile(output, "w") as new,
    ):
        for name in old.namelist():
            new.writestr(name, old.read(name))
        new.writestr("a", "one of two entries with this name", compress_type=method)
        with pytest.warns(UserWarning, match="Duplicate name"):
            new.writestr("a", "the other one")
    with pytest.raises(DataError, match="unusual compression"):
        parse(output.getvalue())


def test_a_part_is_not_expanded_beyond_the_size_that_the_archive_states() -> None:
    data = bytearray(docx(paragraph(run("a" * 3_000_000))))
    at = data.rindex(b"PK\1\2", 0, data.rindex(b"word/document.xml"))
    data[at + 24 : at + 28] = (1000).to_bytes(4, "little")
    tracemalloc.start()
    with pytest.raises(DataError, match="damaged"):
        parse(bytes(data))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_a_zip_bomb_is_rejected() -> None:
    data = docx(paragraph(run("a" * 10_000)))
    with pytest.raises(DataError, match=r"the parts with text are larger than 0.00596 MiB"):
        office.parse(data, DocumentOptions(**OPTIONS, max_bytes=100_000))
    with pytest.raises(DataError, match="parts of the archive are larger than 0 MiB"):
        office.parse(data, DocumentOptions(**OPTIONS, max_bytes=10_000))


@pytest.mark.parametrize("position", range(40, 1200, 90))
def test_damage_is_an_error_or_harmless(position: int) -> None:
    data = bytearray(docx(paragraph(run("one two three")), header=paragraph(run("four"))))
    data[position : position + 8] = b"\xff" * 8
    with contextlib.suppress(DataError):
        translated(parse(bytes(data)))


RUNS = st.lists(
    st.tuples(
        st.text("ab <&é\u00a0", max_size=6),
        st.sampled_from(["", BOLD, ITALIC, "<w:br/>", "<w:link/>"]),
    ),
    max_size=6,
)


@given(RUNS, st.sampled_from([uppercase, reverse_words]))
def test_any_paragraph_keeps_its_text(
    runs: list[tuple[str, str]], translate: Callable[[RichText], RichText]
) -> None:
    content = ""
    for text, kind in runs:
        escaped = text.replace("&", "&amp;").replace("<", "&lt;")
        element = run(escaped, kind * (kind in (BOLD, ITALIC))).replace("<w:t>", SPACE)
        content += (
            f'<w:hyperlink r:id="1">{element}</w:hyperlink>' if kind == "<w:link/>" else element
        )
        content += "<w:r><w:br/></w:r>" * (kind == "<w:br/>")
    data = docx(paragraph(content))
    document = parse(data)
    assert document.render(document.blocks) == data
    before, after = (
        etree.fromstring(part(each).encode()) for each in (data, translated(parse(data), translate))
    )
    assert len(list(before.iter("{*}br"))) == len(list(after.iter("{*}br")))
    old, new = (
        sorted("".join("".join(tree.itertext()).upper().split())) for tree in (before, after)
    )
    assert old == new


def test_documents_of_python_docx() -> None:
    library = pytest.importorskip("docx", reason="python-docx is not installed")
    written: Any = library.Document()
    written.add_heading("The heading", 1)
    item = written.add_paragraph("plain and ", style="List Bullet")
    item.add_run("bold").bold = True
    written.add_table(1, 1).cell(0, 0).text = "a cell"
    written.sections[0].header.paragraphs[0].text = "the header"
    output = io.BytesIO()
    written.save(output)
    document = parse(output.getvalue())
    assert texts(document) == ["The heading", "plain and bold", "a cell", "the header"]
    read = library.Document(io.BytesIO(translated(document)))
    assert [each.text for each in read.paragraphs] == ["THE HEADING", "PLAIN AND BOLD"]
    assert [(each.text, each.bold) for each in read.paragraphs[1].runs] == [
        ("PLAIN AND ", None),
        ("BOLD", True),
    ]
    assert [each.style.name for each in read.paragraphs] == ["Heading 1", "List Bullet"]
    assert read.tables[0].cell(0, 0).text == "A CELL"
    assert read.sections[0].header.paragraphs[0].text == "THE HEADER"


def test_presentations_of_python_pptx() -> None:
    library = pytest.importorskip("pptx", reason="python-pptx is not installed")
    written: Any = library.Presentation()
    slide = written.slides.add_slide(written.slide_layouts[1])
    slide.shapes.title.text = "The title"
    slide.placeholders[1].text = "first\nsecond"
    slide.notes_slide.notes_text_frame.text = "a note"
    output = io.BytesIO()
    written.save(output)
    document = parse(output.getvalue())
    assert texts(document) == ["The title", "first", "second", "a note"]
    read = library.Presentation(io.BytesIO(translated(document))).slides[0]
    assert read.shapes.title.text == "THE TITLE"
    assert read.placeholders[1].text == "FIRST\nSECOND"
    assert read.notes_slide.notes_text_frame.text == "A NOTE"


def test_the_ends_of_ranges_in_tracked_changes_stay_in_order() -> None:
    begin, separate, end = (
        f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("begin", "separate", "end")
    )
    code = "<w:r><w:instrText> HYPERLINK x </w:instrText></w:r>"
    link = f"<w:ins>{begin}{code}{separate}</w:ins>{run('b c')}<w:ins>{end}</w:ins>"
    move = '<w:moveToRangeStart w:id="1"/>' + run("e f") + '<w:moveToRangeEnd w:id="1"/>'
    document = parse(docx(paragraph(spaced("a ") + link + spaced(" d ") + move)))
    rendered = body(translated(document, reverse_words))
    found = re.findall(r'"(begin|separate|end)"|<w:(moveTo\w+)|<w:t[^>]*>([^<]+)', rendered)
    assert ["".join(each) for each in found] == [
        *("moveToRangeStart", "f e", "moveToRangeEnd", " d "),
        *("begin", "separate", "c b", "end", " a"),
    ]
