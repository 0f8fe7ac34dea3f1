"""XLIFF 1.2 and 2.x."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree
from stub_translations import OPTIONS, reverse_words, texts, translated, uppercase

from nmt.core.errors import DataError
from nmt.documents import xliff
from nmt.documents.document import RichText, Tag
from nmt.documents.formats import DocumentOptions
from nmt.documents.splicing import SplicedDocument

V1 = """\
<?xml version="1.0" encoding="UTF-8" ?>
<!-- made by hand -->
<xliff version='1.2' xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file original="a.html" source-language="en" datatype="html">
    <body>
      <group><trans-unit id="1" >
        <source>one <g id="1" ctype='bold'>bold &amp; big</g> word<x id="2" /></source>
        <note>a note</note>
      </trans-unit></group>
      <trans-unit id="2"><source>second</source><target/></trans-unit>
      <trans-unit id="3" approved="yes"><source>third</source><target state="final">drittes</target></trans-unit>
      <trans-unit id="4" translate="no"><source>fourth</source></trans-unit>
      <trans-unit id="5" approved='yes'><source>fifth</source><target state='new'>fifth</target>
        <alt-trans><source>other</source><target>anderes</target></alt-trans></trans-unit>
      <trans-unit id="6"><source><x id="1"/></source></trans-unit>
    </body>
  </file>
</xliff>
"""  # noqa: E501
V2 = """\
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en">
  <file id="f1">
    <unit id="1">
      <segment><source>Press <pc id="1">this <ph id="2"/> button</pc> now.</source></segment>
      <ignorable><source> </source></ignorable>
      <segment state="initial"><source>Or <sc id="3"/>not<ec startRef="3"/>.</source><target>Or not.</target></segment>
    </unit>
    <unit id="2" translate="no"><segment><source>no</source></segment></unit>
    <unit id="3"><segment state="final"><source>final</source><target>fertig</target></segment></unit>
  </file>
</xliff>
"""  # noqa: E501


def parse(source: str | bytes, **options: object) -> SplicedDocument:
    data = source.encode() if isinstance(source, str) else source
    return xliff.parse(data, DocumentOptions(**{**OPTIONS, **options}))


def unit(source: str, attributes: str = "") -> str:
    """Return a file with one unit."""
    content = f"<trans-unit{attributes}><source>{source}</source></trans-unit>"
    return f'<xliff version="1.2"><file target-language="de">{content}</file></xliff>'


def target(document: SplicedDocument, *translations: RichText) -> str:
    """Return the content of the only target."""
    return document.render(translations).decode().split('-mt">')[1].split("</target>")[0]


def test_version_1_2() -> None:
    document = parse(V1)
    assert texts(document) == ["one bold & big word", "second", "fifth"]
    attributes = 'state="translated" state-qualifier="leveraged-mt"'
    first = (
        f'<target {attributes}>ONE <g id="1" ctype=\'bold\'>BOLD &amp; BIG</g> WORD<x id="2"'
        " /></target>"
    )
    expected = (
        V1.replace('datatype="html">', 'datatype="html" target-language="de">')
        .replace("</source>\n", f"</source>\n        {first}\n", 1)
        .replace("<target/>", f"<target {attributes}>SECOND</target>")
        .replace("approved='yes'", 'approved="no"')
        .replace("<target state='new'>fifth<", f"<target {attributes}>FIFTH<")
        .replace(
            '<x id="1"/></source>', f'<x id="1"/></source><target {attributes}><x id="1"/></target>'
        )
    )
    assert translated(document).decode() == expected
    assert parse(expected).blocks == []


def test_version_2() -> None:
    document = parse(V2)
    assert texts(document) == ["Press this {2} button now.", "Or not."]
    rendered = translated(document).decode()
    assert 'version="2.0" srcLang="en" trgLang="de">' in rendered
    assert (
        '<segment state="translated"><source>Press <pc id="1">this <ph id="2"/> button</pc>'
        ' now.</source><target>PRESS <pc id="1">THIS <ph id="2"/> BUTTON</pc>'
        " NOW.</target></segment>" in rendered
    )
    assert '<target>OR <sc id="3"/>NOT<ec startRef="3"/>.</target></segment>' in rendered
    assert rendered.split('<unit id="2"')[1] == V2.split('<unit id="2"')[1]


@pytest.mark.parametrize("source", [V1, V2])
def test_all_units_can_be_translated_again(source: str) -> None:
    assert len(parse(source, retranslate=True).blocks) == len(parse(source).blocks) + 1
    again = translated(parse(source, retranslate=True)).decode()
    assert "final" not in again.replace(">final<", "")
    assert "yes" not in again


@pytest.mark.parametrize("source", [V1, V2])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_complete_file_is_unchanged(source: str, line_end: str) -> None:
    content = translated(parse(source.replace("\n", line_end)))
    assert parse(content).blocks == []
    assert parse(content).render([]) == content


def test_moved_tags_stay_with_their_words() -> None:
    document = parse(unit('a <g id="1">b c</g> <x id="2"/>d'))
    assert (
        target(document, *map(reverse_words, document.blocks)) == 'd <g id="1">c b</g> a<x id="2"/>'
    )


def test_markers_of_a_range_stay_in_order() -> None:
    document = parse(unit('a <sm id="1"/>b c<em startRef="1"/> d'))
    assert (
        target(document, *map(reverse_words, document.blocks))
        == 'd <sm id="1"/>c b<em startRef="1"/> a'
    )


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ('<x id="START_LINK" ctype="x-a"/>', '<x id="CLOSE_LINK" ctype="x-a"/>'),
        ('<x id="START_LINK_1"/>', '<x id="CLOSE_LINK"/>'),
        ('<ph id="1">&lt;a href="x"&gt;</ph>', '<ph id="2">&lt;/a&gt;</ph>'),
        ('<ph id="1" equiv="&lt;b&gt;"/>', '<ph id="2" equiv="&lt;/b&gt;"/>'),
        ('<it id="1" pos="open">{% if x %}</it>', '<it id="2" pos="close">{% endif %}</it>'),
        ("&lt;b class='x'&gt;", "&lt;/b&gt;"),
    ],
)
def test_codes_that_start_and_end_a_range_stay_in_order(start: str, end: str) -> None:
    document = parse(unit(f"a {start}b c{end} d"))
    assert texts(document) == ["a b c d"]
    assert target(document, *map(reverse_words, document.blocks)) == f"d {start}c b{end} a"


def test_a_range_of_codes_may_have_elements_in_it_but_not_cross_them() -> None:
    start, end = ('<x id="START_LINK"/>', '<x id="CLOSE_LINK"/>')
    document = parse(unit(f'a {start}b <g id="1">c</g>{end} d'))
    expected = f'd {start}<g id="1">c</g> b{end} a'
    assert target(document, *map(reverse_words, document.blocks)) == expected
    (block,) = parse(unit(f'a <g id="1">{start}b</g> c{end} d')).blocks
    assert [block.text[slice(*tag.span)] for tag in block.tags] == ["b", "", ""]


def test_a_code_without_its_end_is_kept() -> None:
    document = parse(unit('a <x id="START_LINK"/>b <x id="CLOSE_BOLD"/>c'))
    assert (
        target(document, *map(uppercase, document.blocks))
        == 'A <x id="START_LINK"/>B <x id="CLOSE_BOLD"/>C'
    )
    name = '<ph id="2">&lt;name&gt;</ph>'
    document = parse(unit(f'a <bpt id="1">x</bpt>b {name} c<ept id="1">y</ept>'))
    assert texts(document) == ["a b {2} c"]
    (block,) = document.blocks
    assert [(tag.start, tag.end) for tag in block.tags] == [(2, 9), (4, 7)]


def test_variables_are_where_their_text_is() -> None:
    document = parse(unit('a <x id="1"/> b'))
    assert target(document, RichText("{1} c", (Tag(4, 5, 0),))) == '<x id="1"/> c'
    assert target(document, RichText("c d", (Tag(0, 1, 0),))) == '<x id="1"/>c d'


def test_a_repeated_tag_occurs_once() -> None:
    document = parse(unit('a <g id="1">b</g>'))
    assert (
        target(document, RichText("x yy z", (Tag(0, 1, 0), Tag(2, 4, 0)))) == 'x <g id="1">yy</g> z'
    )


@pytest.mark.parametrize(
    ("source", "text", "expected"),
    [
        ("a&lt;b&#x20AC;<![CDATA[ <c> & ]]>d", "a<b€ <c> & d", "A&lt;B€ &lt;C&gt; &amp; D"),
        (
            '<bpt id="1">&lt;b></bpt>a<ept id="1">&lt;/b></ept> b',
            "a b",
            '<bpt id="1">&lt;b></bpt>A<ept id="1">&lt;/b></ept> B',
        ),
        (
            '<bx id="1"/>a <bx id="2"/>b<ex id="1"/> c<ex id="2"/>',
            "a b c",
            '<bx id="1"/>A <bx id="2"/>B<ex id="1"/> C<ex id="2"/>',
        ),
        (
            '<g id="1">a <bx id="2"/>b</g> c<ex id="2"/>',
            "a b c",
            '<g id="1">A <bx id="2"/>B</g> C<ex id="2"/>',
        ),
        ('a <sm id="1"/>b<em startRef="1"/> c', "a b c", 'A <sm id="1"/>B<em startRef="1"/> C'),
        (
            'a <sm id="1" translate="no"/>b <pc id="2">c</pc><em startRef="1"/> d',
            "a b c d",
            'A <sm id="1" translate="no"/>b <pc id="2">c</pc><em startRef="1"/> D',
        ),
        (
            'a <pc id="2">b <sm id="1" translate="no"/>c</pc> d<em startRef="1"/> e',
            "a b c d e",
            'A <pc id="2">B <sm id="1" translate="no"/>C</pc> D<em startRef="1"/> E',
        ),
        ('a <ph id="1"><sub>x</sub></ph>b', "a b", 'A <ph id="1"><sub>x</sub></ph>B'),
        (
            'a <mrk mtype="protected">b <g id="1">c</g></mrk> d',
            "a b c d",
            'A <mrk mtype="protected">b <g id="1">c</g></mrk> D',
        ),
        ('a <x id="1" equiv-text="a > b"/>c', "a c", 'A <x id="1" equiv-text="a > b"/>C'),
        (
            '<x id="1"/> of <ph id="2">%d</ph>, ok',
            "{1} of {2}, ok",
            '<x id="1"/> OF <ph id="2">%d</ph>, OK',
        ),
        (f"a&#{'0' * 5000}65;", "a\ufffd", "A\ufffd"),
        ("a<!-- > -->b", "ab", "A<!-- > -->B"),
        ('by <mrk mtype="protected">acme </mrk>', "by", 'BY <mrk mtype="protected">acme </mrk>'),
        ('<mrk mtype="protected">b\tc</mrk>, d', ", d", '<mrk mtype="protected">b\tc</mrk>, D'),
        ("10&#160;km", "10\u00a0km", "10\u00a0KM"),
        ("\n    a\n    b\n  ", "a b", "\n    A B\n  "),
    ],
)
def test_inline_elements(source: str, text: str, expected: str) -> None:
    document = parse(unit(source))
    assert texts(document) == [text]
    rendered = target(document, *map(uppercase, document.blocks))
    assert " ".join(rendered.split()) == " ".join(expected.split())
    etree.fromstring(f"<target>{rendered}</target>")


def test_preserved_lines_are_blocks() -> None:
    document = parse(unit("one\n  <g id='1'>two\nthree</g>", ' xml:space="preserve"'))
    assert texts(document) == ["one", "two", "three"]
    assert target(document, *map(uppercase, document.blocks)) == "ONE\n  <g id='1'>TWO\nTHREE</g>"


def test_tabs_of_preserved_text_separate_blocks() -> None:
    document = parse(unit("one&#9;two\tthree", ' xml:space="preserve"'))
    assert texts(document) == ["one", "two", "three"]
    assert target(document, *map(uppercase, document.blocks)) == "ONE\tTWO\tTHREE"


@pytest.mark.parametrize(
    "element",
    [
        '<x id="LINE_BREAK" ctype="lb" equiv-text="&lt;br/>"/>',
        '<x id="LINE_BREAK_1"/>',
        '<ph id="1" type="fmt" subType="xlf:lb"/>',
    ],
)
def test_line_breaks_separate_blocks(element: str) -> None:
    document = parse(unit(f'One <g id="1">two{element} three</g>{element}four{element}'))
    assert texts(document) == ["One two", "three", "four"]
    expected = f'ONE <g id="1">TWO{element} THREE</g>{element}FOUR{element}'
    assert target(document, *map(uppercase, document.blocks)) == expected
    document = parse(unit(f'<x id="3"/>{element}one'))
    assert target(document, *map(uppercase, document.blocks)) == f'<x id="3"/>{element}ONE'


def test_segments_of_a_unit_are_blocks() -> None:
    segments = (
        '<seg-source><mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg"'
        ' mid="2">Two.</mrk></seg-source>'
    )
    document = parse(unit("One. Two.").replace("</source>", f"</source>{segments}"))
    assert texts(document) == ["One.", "Two."]
    assert target(document, *map(uppercase, document.blocks)) == segments[12:-13].replace(
        "One", "ONE"
    ).replace("Two", "TWO")


@pytest.mark.parametrize(
    ("content", "expected"), [('<mrk mtype="seg" mid="1"/>', ["a"]), ("<![CDATA[x]]>", [])]
)
def test_a_target_without_text_is_not_a_translation(content: str, expected: list[str]) -> None:
    source = unit("a").replace("</source>", f"</source><target>{content}</target>")
    assert texts(parse(source)) == expected


def test_an_empty_seg_source_is_ignored() -> None:
    document = parse(
        unit("a").replace("</source>", '</source><seg-source/><target state="new">a</target>')
    )
    assert target(document, *map(uppercase, document.blocks)) == "A"
    document = parse(unit("a").replace("</source>", "</source><seg-source/>"))
    assert b"<seg-source/><target" in document.render([RichText("b")])


def test_the_language_of_a_target_is_corrected() -> None:
    for language, expected in (("en", "de"), ("de-AT", "de-AT")):
        source = unit("a").replace(
            "</source>", f'</source><target state="new" xml:lang="{language}">a</target>'
        )
        assert f' xml:lang="{expected}"' in parse(source).render([RichText("b")]).decode()


def test_prefixed_elements() -> None:
    content = "<x:trans-unit><x:source>a</x:source></x:trans-unit>"
    source = (
        '<x:xliff xmlns:x="urn:oasis:names:tc:xliff:document:1.2"'
        f' version="1.2">{content}</x:xliff>'
    )
    rendered = translated(parse(source))
    assert b'leveraged-mt">A</x:target></x:trans-unit>' in rendered
    etree.fromstring(rendered)


def test_attributes_of_other_namespaces_are_not_those_of_xliff() -> None:
    source = unit("a").replace('version="1.2"', 'version="1.2" xmlns:its="i" its:version="2.0"')
    assert texts(parse(source)) == ["a"]


def test_the_source_language_of_multilingual_models_is_unknown() -> None:
    for language in ("mul", "fr_fr_BE_es", "", "EN", "en-Latn-GB"):
        assert texts(parse(V2, src=language)) == texts(parse(V2))
    with pytest.raises(DataError, match="srcLang is 'en', but the model's is 'zh-Hant-TW'"):
        parse(V2, src="zh-Hant-TW")


@pytest.mark.parametrize("encoding", ["iso-8859-1", "utf-16"])
def test_encodings_are_kept(encoding: str) -> None:
    source = f'<?xml version="1.0" encoding="{encoding}"?>' + unit("é")
    document = parse(source.encode(encoding))
    assert 'leveraged-mt">É<' in translated(document).decode(encoding)
    dash = "&#8211;" if encoding == "iso-8859-1" else "–"
    assert f'leveraged-mt">{dash}<' in document.render([RichText("–")]).decode(encoding)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("<xliff", "line 1: not well-formed XML"),
        ("<xliff>\n<a></b></xliff>", "line 2: not well-formed XML"),
        ("", "not well-formed XML"),
        ("<html/>", "not XLIFF"),
        ('<!DOCTYPE x [<!ENTITY a "b">]><xliff version="1.2"/>', "the document type declares 'a'"),
        (
            '<!DOCTYPE x [<!ATTLIST a b CDATA "c">]><xliff version="1.2"/>',
            "the document type declares 'a'",
        ),
        (
            '<!DOCTYPE x [<!ENTITY % a SYSTEM "file:///etc/passwd"> %a;]><xliff/>',
            "the document type declares 'a'",
        ),
        ('<?xml version="1.0" encoding="none"?><xliff/>', "unknown encoding 'none'"),
        (b"<xliff>\n\xff</xliff>", "line 2, byte . of the line: not UTF-8"),
        (V1.replace('datatype="html"', 'target-language="fr"'), "line 4: target-language is 'fr'"),
        (
            V1.replace('source-language="en"', 'source-language="fr-CA"'),
            "line 4: source-language is 'fr-CA'",
        ),
        (
            V2.replace('srcLang="en"', 'srcLang="fr"'),
            "line 1: srcLang is 'fr', but the model's is 'en'",
        ),
    ],
)
def test_malformed_files_are_rejected(source: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(source)


CONTENT = st.recursive(
    st.sampled_from(
        [
            "a",
            "two words",
            " ",
            "&amp;",
            "<x id='x'/>",
            "<x ctype='lb'/>",
            "<ph>code</ph>",
            "é€",
            "<!-- c -->",
            "\n",
        ]
    ),
    lambda inner: (
        st.lists(inner, max_size=4).map("".join)
        | inner.map(lambda content: f"<g id='g'>{content}</g>")
    ),
    max_leaves=12,
)


def shape(rendered: bytes) -> tuple[int, list[str], list[str]]:
    """Return the number of units, and the sorted elements and letters in the targets."""
    root = etree.fromstring(rendered)
    targets = list(root.iter("target"))
    elements = sorted(
        str(each.tag) for element in targets for each in element.iter() if each is not element
    )
    return (
        len(list(root.iter("trans-unit"))),
        elements,
        sorted("".join("".join("".join(each.itertext()) for each in targets).split())),
    )


@given(CONTENT)
def test_any_content_keeps_its_elements(content: str) -> None:
    document = parse(unit(content))
    copy = document.render(document.blocks)
    if content:
        assert target(document, *document.blocks) == content
    assert shape(translated(document, reverse_words)) == shape(copy)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            '{VAR, plural, =0 {no dogs} =1 {one <g id="1">dog</g>} other {<x id="N"/> dogs}}',
            '{VAR, plural, =0 {NO DOGS} =1 {ONE <g id="1">DOG</g>} other {<x id="N"/> DOGS}}',
        ),
        (
            "{VAR, select, a {one {N, plural, other {dog}} x} other {y}}",
            "{VAR, select, a {ONE {N, plural, other {DOG}} X} other {Y}}",
        ),
        (
            'See {N, plural, one {<bx id="1"/>a dog<ex id="1"/>} other {# dogs}} now.',
            'SEE {N, plural, one {<bx id="1"/>A DOG<ex id="1"/>} other {# DOGS}} NOW.',
        ),
        (
            "{0} no dogs|{1} one <x id='1'/> dog | [2,Inf[ dogs",
            "{0} NO DOGS|{1} ONE <x id='1'/> DOG | [2,Inf[ DOGS",
        ),
        ('<ph id="1">a|b</ph> dogs', '<ph id="1">a|b</ph> DOGS'),
    ],
)
def test_variants_are_translated_and_their_syntax_is_kept(source: str, expected: str) -> None:
    unit = (
        '<xliff version="1.2"><file source-language="en" target-language="de"><trans-unit'
        ' id="1"><source>{}</source>'
    )
    document = parse(f"{unit.format(source)}</trans-unit></file></xliff>")
    assert f'leveraged-mt">{expected}</target>' in translated(document).decode()
    signs = [block.text[span.start : span.end] for block in document.blocks for span in block.fixed]
    assert signs.count("#") == source.count("#")
