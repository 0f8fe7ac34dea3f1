"""HTML documents: what is translated, and that everything else survives to the byte."""

from __future__ import annotations

import re
import site
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from stub_translations import translated
from test_document_translation import StubTranslator, document_translator

from nmt.core.errors import DataError
from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions
from nmt.documents.html import parse

OPTIONS = DocumentOptions("en", "en")


def texts(source: str | bytes) -> list[str]:
    data = source if isinstance(source, bytes) else source.encode()
    return [block.text for block in parse(data, OPTIONS).blocks]


def reversed_words(source: str, tgt: str = "en") -> str:
    """Translate with the stub: words in reverse order and in capitals."""
    document = parse(source.encode(), DocumentOptions("en", tgt))
    return document.render(
        document_translator(StubTranslator()).translate(document.blocks).blocks
    ).decode()


class Structure(HTMLParser):
    """Collects the tags of a document."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(f"{tag} {[name for name, _ in attributes]}")

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_comment(self, data: str) -> None:
        self.tags.append(f"!{data}")


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<p>One <b>dog</b>.</p><p>Two</p>", ["One dog.", "Two"]),
        ("<p>One\n  dog &amp; a&nbsp;cat &lt;3</p>", ["One dog & a\xa0cat <3"]),
        ("<li>One<li>Two", ["One", "Two"]),
        ("one<br>two<br><br>three", ["one", "two", "three"]),
        (
            (
                "<img alt=\"A &quot;dog&quot;\" title=Cat><input placeholder='Name'><a"
                ' aria-label="Go">x</a>'
            ),
            ['A "dog"', "Cat", "Name", "Go", "x"],
        ),
        (
            (
                '<meta name="description" content="About"><meta name="viewport"'
                ' content="x"><title>A &amp; b</title>'
            ),
            ["About", "A & b"],
        ),
        ("<script>if (a < b) '<p>no</p>'</script><style>p > a {}</style><pre>no</pre>yes", ["yes"]),
        ("<listing>no</listing><xmp>no</xmp>yes", ["yes"]),
        ("<textarea placeholder=Text>no</textarea>yes", ["Text", "yes"]),
        (
            "<input type=Submit value=Go><input value=no><iframe title=Map>no</iframe>",
            ["Go", "Map"],
        ),
        (
            "<optgroup label=One><option label=Two value=no><track label=Three><p label=no>",
            ["One", "Two", "Three"],
        ),
        (
            (
                "<html lang=fr><p lang=fr>no <b lang=en-US>yes</b><p lang='{{ x }}'>yes <i"
                " lang=fr>oui</i>"
            ),
            ["yes", "yes oui"],
        ),
        (
            "<div translate=no>no <b translate=yes>yes</b></div><p class='a notranslate'>no<p>yes",
            ["yes", "yes"],
        ),
        (
            "Press <code>Ctrl + <b>C</b></code> now, <svg><text>no</text></svg> please",
            ["Press Ctrl + C now, please"],
        ),
        ("<!-- <p>no</p> --><![CDATA[ no ]]><?php no ?>yes<!doctype no>", ["yes"]),
        ("<p>a < b and <3", ["a < b and <3"]),
        ("<p>yes <a href='x", ["yes"]),
        ("<a title='x > y'>b</a>", ["x > y", "b"]),
        (
            (
                "<ul class=notranslate><li lang=en>no</ul><div lang=fr>non <b"
                " lang=en>yes</b></div><pre><i lang=en>no"
            ),
            ["yes"],
        ),
        (
            "<p>one <img alt=no translate=no> two<input placeholder=no class=notranslate>",
            ["one two"],
        ),
        (
            (
                '<?xml version="1.0"?><html><title/><script src="a.js"/><p>One'
                " <b/>dog.</p><textarea/><p>Two"
            ),
            ["One dog.", "Two"],
        ),
        (
            '<html xmlns="http://www.w3.org/1999/xhtml"><p>One<p/>Two<script/></html>',
            ["One", "Two"],
        ),
        (
            (
                "<html xmlns='http://www.w3.org/1999/xhtml'><script data-x=/a/>no</script>yes<pre"
                " x=/>no"
            ),
            ["yes"],
        ),
        ("<title/></title><p>yes<script/><p>no", ["yes"]),
        ("---\ntitle: no\n---\n<p>yes</p>\n---\nyes", ["yes", "--- yes"]),
        (f"<p lang='&#{'1' * 5000};'>one &#{'1' * 5000};", ["one \ufffd"]),
        (
            (
                "{% highlight c %}\nno <p>no</p>\n{% endhighlight %}<p>one {%- comment -%} no {%-"
                " endcomment -%} two"
            ),
            ["one two"],
        ),
        ("---\ntitle: no\n...\n<p>yes</p>\n---\nyes", ["yes", "--- yes"]),
        (
            (
                "<p translate=no>no <label>no</label> no</p><p lang=fr>non <button>non</button>"
                " non</p><p>yes<hr>yes"
            ),
            ["yes", "yes"],
        ),
        ("<p>One <b>big<br/>dog</b>.<br>\n<i>Two</i> cats", ["One big", "dog.", "Two cats"]),
        ("<td>One dog<ul><li>Two<br>Three</ul></td>", ["One dog", "Two", "Three"]),
        (
            (
                "<td><i class=material-icons>no</i> Close it</td><mat-icon>no</mat-icon><fa-icon"
                " icon=x></fa-icon>"
            ),
            ["Close it"],
        ),
        (
            "Home <span class='material-symbols-outlined' title=Yes>no</span> Work",
            ["Home", "Yes", "Work"],
        ),
        (
            "Home <i class='fa fa-cog'></i> Work<svg><title>no</title></svg>Go",
            ["Home", "Work", "Go"],
        ),
        (
            "Click the <i class='fa fa-cog'></i> icon, <mat-icon>no</mat-icon> or <svg></svg> that",
            ["Click the icon, or that"],
        ),
        (
            "Click <svg></svg>, then <i class=fa></i>. Now <v-icon>no</v-icon>",
            ["Click , then . Now"],
        ),
        ("<x-with-icon>Yes</x-with-icon>", ["Yes"]),
        (
            "<p>{n, plural, =0 {No dogs} one {<b>#</b> dog} other {{{ n }} dogs}}</p>",
            ["No dogs", "# dog", "{{ n }} dogs"],
        ),
        ("<p>{n, plural, other {{{n}}} one {dog}}", ["{n, plural, other {{{n}}} one {dog}}"]),
        ("<p>one <%# no <p> %>two {{/* no <p> */}}three", ["one two three"]),
        ("<a>Menu <span>▾</span></a><button><span>⚙</span> Set up</button>", ["Menu", "Set up"]),
        (
            "<meta property=og:image:alt content=Dogs><meta name=twitter:image:alt content=Cats>",
            ["Dogs", "Cats"],
        ),
        (
            "{# no\n<p>no</p>\n#}<p>one {{!-- no {{x}} --}}two{{-- no --}} <%-- no > --%>three",
            ["one two three"],
        ),
        (
            "<p title='{{ a < b }} dogs'>one {{ '<b>%s</b>' % x\n }} dog</p>",
            ["{{ a < b }} dogs", "one {{ '<b>%s</b>' % x }} dog"],
        ),
        (f"<p>one {{{{ '<p>no</p>{'x' * 300}' }}}} dog", ["one dog"]),
        ("<p {% if a < 3 % 2\n %}hidden{% endif %} <?php if ($a > 3) echo 'x>' ?>>one", ["one"]),
        ("<?php if ($a > 3): ?><p>one</p><?= f('<p>no</p>') ?>", ["one"]),
        ("<p>{{{ one }}} dog {{'a'}} cat", ["{{{ one }}} dog {{'a'}} cat"]),
        (
            "<p>Write <code>{{</code> here.</p><p>And <code>}}</code> there.</p>",
            ["Write {{ here.", "And }} there."],
        ),
        ("", []),
        ("<p> \n</p>", []),
    ],
)
def test_only_what_a_person_reads_is_translated(source: str, expected: list[str]) -> None:
    assert texts(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("<p>One <b>small</b> dog.</p>", "<p>DOG. <b>SMALL</b> ONE</p>"),
        ("<p><em>One dog</em></p>", "<p><em>DOG ONE</em></p>"),
        (
            '<p>See <a href="a?b&c" title="one two">my dog</a> now',
            '<p>NOW <a href="a?b&c" title="TWO ONE">DOG MY</a> SEE',
        ),
        ("<p>Run <code>a&lt;b</code> now", "<p>NOW <code>a&lt;b</code> RUN"),
        ("<p>One <i class=x></i>dog <!-- c -->now", "<p><!-- c -->NOW <i class=x></i>DOG ONE"),
        ("<p>x<b> one </b>two", "<p>TWO <b>ONE</b> X"),
        ("<p>R&D &copy; dog", "<p>DOG © R&amp;D"),
        ("<p>my {{1&&2}} dog", "<p>DOG {{1&&2}} MY"),
        ("<p>{%if(n>1)%} many files", "<p>FILES MANY {%if(n>1)%}"),
        ("<p>a <?php if (1): ?>b c<?php endif; ?> d", "<p>D <?php if (1): ?>C B<?php endif; ?> A"),
        ("<p>a <!-- ko if: x -->b c<!-- /ko --> d", "<p>D <!-- ko if: x -->C B<!-- /ko --> A"),
        ("<p>a <router-link>b c</router-link> d", "<p>D <router-link>C B</router-link> A"),
        ("<p>a <st1:place>b</st1:place> c", "<p>C <st1:place>B</st1:place> A"),
        ("<my-card><p>a b</p></my-card>", "<my-card><p>B A</p></my-card>"),
        ("<my-a>a b</my-a><my-b>c d</my-b>", "<my-a>B A</my-a><my-b>D C</my-b>"),
        ("<p>a b.<my-a>c d</my-a>", "<p>B. A<my-a>D C</my-a>"),
        ("<p>a <my-a>b c</my-a><my-b>d e</my-b>", "<p>A <my-a>C B</my-a><my-b>E D</my-b>"),
        ("<my-a>b c</my-a> d e", "E D <my-a>C B</my-a>"),
        ("<p><my-a>b c</my-a> d</p>", "<p>D <my-a>C B</my-a></p>"),
        (
            "<p><span style='mso-list:Ignore'>o<span>&nbsp; </span></span>a b</p>",
            "<p><span style='mso-list:Ignore'>o<span>&nbsp; </span></span>B A</p>",
        ),
        ("<p>my <%=1>2%> dog", "<p>DOG <%=1>2%> MY"),
        ("<p>One </i><b>dog</p>", "<p></i><b>DOG ONE</p>"),  # unmatched tags keep a place
        ("<p>1 + 2</p>\r\n<p>One\r\ntwo</p>", "<p>2 + 1</p>\r\n<p>TWO ONE</p>"),
        ("<img alt=dog>", '<img alt="DOG">'),
        (
            """<img alt='the {{1&"2"}} &quot;isn&#39;t'>""",
            """<img alt='"ISN&#39;T {{1&"2"}} THE'>""",
        ),
        ("<img alt='my &lt;%1%&gt; dog'>", "<img alt='DOG &lt;%1%&gt; MY'>"),
        ('<img alt="my {%1<2%} &quot;dog&quot;">', '<img alt="&quot;DOG&quot; {%1<2%} MY">'),
        (
            '<input placeholder="{% trans "Search" %}">',
            '<input placeholder="{% trans "Search" %}">',
        ),
        (
            "<p>tags: <input value='{{'> or <input value='}}'>",
            "<p>OR TAGS: <input value='{{'> <input value='}}'>",
        ),
        (
            "<div {% if n > 3 %}hidden{% endif %}>one dog</div>",
            "<div {% if n > 3 %}hidden{% endif %}>DOG ONE</div>",
        ),
        ("<p>one dog<br>\n<b>two</b> cats", "<p>DOG ONE<br>\nCATS <b>TWO</b>"),
        ("<p><b>one dog <br> two cats</b>.", "<p><b>DOG ONE <br> CATS. TWO</b>"),
        ("<a>My menu <span>▾</span></a>", "<a>MENU MY <span>▾</span></a>"),
        ("<p>My <i class=fa></i> Dog house", "<p>MY <i class=fa></i> HOUSE DOG"),
        ("My <a><i class=fa></i> Big dog</a> house", "MY HOUSE <a><i class=fa></i> DOG BIG</a>"),
        ("My <a>big dog <svg></svg></a> House", "<a>DOG BIG <svg></svg></a> MY HOUSE"),
    ],
)
def test_markup_follows_its_words(source: str, expected: str) -> None:
    assert reversed_words(source) == expected


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ('<html lang="en-US" class=x>', '<html lang="de" class=x>'),
        ("<html xml:lang='en'>", "<html xml:lang='de'>"),
        ("<!doctype html><HTML>", '<!doctype html><HTML lang="de">'),
        ('<html lang="de-AT">', '<html lang="de-AT">'),
        ('<html lang="{{ locale }}">', '<html lang="{{ locale }}">'),
        ("<body>", "<body>"),
        ("<body lang=en-US><p lang=fr>y<p lang=en>", "<body lang=de><p lang=fr>y<p lang=de>"),
    ],
)
def test_the_language_is_that_of_the_translation(start: str, expected: str) -> None:
    assert reversed_words(f"{start}x", "de") == f"{expected}X"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("\ufeff<p>é".encode(), "é"),
        ("<p>é".encode("utf-16"), "é"),
        ('<meta charset="windows-1251"><p>ж'.encode("cp1251"), "ж"),
        (
            '<meta http-equiv=Content-Type content="text/html; charset=ISO-8859-1"><p>\x80'.encode(
                "latin-1"
            ),
            "€",
        ),
        ("<meta charset = 'ISO-8859-1'/><p>\x80".encode("latin-1"), "€"),
        ("<META NAME=charset CHARSET=iso-8859-1/><p>\x80".encode("latin-1"), "€"),
        ('<?xml version="1.0" encoding="iso-8859-1"?><p>\x80'.encode("latin-1"), "€"),
        ('<meta charset="iso-8859-9"><p>€'.encode("cp1254"), "€"),
        ('<meta charset="tis-620"><p>€'.encode("cp874"), "€"),
        ('<meta charset="GB2312"><p>鎔'.encode("gb18030"), "鎔"),
        ('<meta charset="Shift_JIS"><p>①'.encode("cp932"), "①"),
        ('<meta charset="euc-kr"><p>똠'.encode("cp949"), "똠"),
    ],
)
def test_the_encoding_is_detected_and_kept(data: bytes, text: str) -> None:
    document = parse(data, OPTIONS)
    assert [block.text for block in document.blocks] == [text]
    assert document.render(document.blocks) == data
    output = document.render([RichText("ж")])
    # A character reference where the encoding does not have the character.
    assert texts(output) == ["ж"]


@pytest.mark.parametrize(
    "start",
    [
        '<meta name="description" content="charset=iso-8859-1">',
        '<meta http-equiv="refresh" content="0; url=x?charset=iso-8859-1">',
        '<meta content="text/html; charset=iso-8859-1">',
        '<meta data-charset="iso-8859-1">',
        '<meta charset="{{ charset }}">',
        "<!-- <meta charset=iso-8859-1> -->",
        "<script>'<meta charset=iso-8859-1>'</script>",
        "<textarea><meta charset=iso-8859-1></textarea>",
        "<title>The element <meta charset=iso-8859-1></title>",
        "---\ntags: <meta charset=iso-8859-1>\n---\n",
    ],
)
def test_only_an_element_for_it_declares_the_encoding(start: str) -> None:
    for declaration, encoding in (("", "utf-8"), ('<meta charset="cp1251">', "cp1251")):
        data = f"{start}{declaration}<p>ж".encode(encoding)
        document = parse(data, OPTIONS)
        assert document.blocks[-1].text == "ж"
        assert document.render([RichText("я")] * len(document.blocks)).decode(encoding)[-1] == "я"


@pytest.mark.parametrize(
    "data", [b"<p>\xff", b"\x89PNG\r\n\x1a\n\0\xff", b'<meta charset="klingon">']
)
def test_undecodable_documents_are_rejected(data: bytes) -> None:
    with pytest.raises(DataError):
        parse(data, OPTIONS)


def test_undecodable_bytes_may_be_replaced() -> None:
    document = parse(b"<p>a\xff", DocumentOptions("en", "en", encoding_errors="replace"))
    assert [block.text for block in document.blocks] == ["a\ufffd"]


PIECES = [
    "<b>",
    "</b>",
    "<i class='a>b'>",
    "</i>",
    "<p>",
    "</p>",
    "<br>",
    "<img alt='one two'>",
    "<li>",
    "<code>",
    "</code>",
    "<!-- c -->",
    "<",
    ">",
    "&amp;",
    "&",
    "</",
    "<pre>",
    "</pre>",
    "<script>",
    "</script>",
    "<b translate=no>",
    "'",
    "one",
    " ",
    "Two.",
    "\n",
    "x",
    "{{",
    "}}",
    "{%",
    "%}",
    "{#",
    "#}",
    "<i class=fa></i>",
    "<mat-icon>x</mat-icon>",
    "▾",
    "Three",
]
SNIPPETS = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)


@given(SNIPPETS | st.text(alphabet="<>/='\"abp &;!-\n"))
def test_an_unchanged_translation_reproduces_any_document(source: str) -> None:
    document = parse(source.encode(), OPTIONS)
    assert document.render(document.blocks).decode() == source


CODE = st.text(alphabet="<>/='\"abp&;!% \n-", max_size=30)
CODE_MARKS = st.sampled_from(
    [("{{", "}}"), ("{%", "%}"), ("<%", "%>"), ("{#", "#}"), ("{{{", "}}}"), ("{{!--", "--}}")]
)


def test_variants_of_a_message_are_translated() -> None:
    source = "<p>see {n, plural, one {<b>#</b> dog &amp; x} other {<i>big <b>dogs</b></i> {m}}} now"
    expected = (
        "<p>SEE {n, plural, one {X &amp; DOG <b>#</b>} other {{M} <i><b>DOGS</b> BIG</i>}} NOW"
    )
    assert reversed_words(source) == expected


def test_code_in_an_attribute_is_kept() -> None:
    source = "<img alt='my {{\n f(x) &amp; y }} dog'>"
    expected = source.replace("my", "MY").replace("dog", "DOG")
    assert translated(parse(source.encode(), OPTIONS)).decode() == expected


@given(CODE, CODE_MARKS)
def test_code_of_templates_is_never_read(code: str, marks: tuple[str, str]) -> None:
    assume(not any(mark in code for mark in marks))
    source = f"<p>one {marks[0]} x{code}x {marks[1]} dog</p><p>two</p>"
    expected = f"<p>ONE {marks[0]} x{code}x {marks[1]} DOG</p><p>TWO</p>"
    assert translated(parse(source.encode(), OPTIONS)).decode() == expected


@pytest.mark.parametrize(
    "start", ["{{", "{%", "<%", "{#", "{{!--", "<?php ", "{", "<a {{", "<a title='{{ "]
)
def test_many_starts_without_an_end(start: str) -> None:
    source = f"<p>{start * 50_000}"  # quadratic time would be many minutes
    document = parse(source.encode(), OPTIONS)
    assert document.render(document.blocks).decode() == source


@given(SNIPPETS)
def test_no_tag_of_any_document_is_lost(source: str) -> None:
    output = reversed_words(source)
    assert sorted(re.findall(r"<[^<>]*>", output.lower())) == sorted(
        re.findall(r"<[^<>]*>", source.lower())
    ) or (sorted(Structure(output).tags) == sorted(Structure(source).tags))


def test_deep_nesting_and_many_tags_are_fine() -> None:
    deep = "<b>x " * 500 + "y" + "</b> z" * 500
    assert reversed_words(deep).count("</b>") == 500
    wide = "<b>x</b> y " * 500
    assert reversed_words(wide).count("</b>") == 500


def real_documents() -> list[Path]:
    """Return HTML files of installed packages."""
    files = [
        path
        for directory in site.getsitepackages()
        for path in sorted(Path(directory).rglob("*.html"))
    ]
    return [path for path in files if path.stat().st_size < 100_000]


def test_real_documents_keep_their_structure() -> None:
    files = real_documents()
    if not files:
        pytest.skip("no installed package has HTML files")
    for path in files:
        source = path.read_bytes()
        document = parse(source, OPTIONS)
        unchanged = document.render(document.blocks)
        assert unchanged.replace(b' lang="en"', b"") == source.replace(b' lang="en"', b""), path
        capitals = [RichText(block.text.upper(), block.tags) for block in document.blocks]
        if all(len(a.text) == len(b.text) for a, b in zip(capitals, document.blocks, strict=True)):
            before, after = (
                Structure(text.decode()).tags for text in (unchanged, document.render(capitals))
            )
            assert before == after, path
