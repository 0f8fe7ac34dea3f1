"""Markdown documents: what is translated, and that everything else survives to the byte."""

from __future__ import annotations

import site
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from stub_translations import translated, uppercase
from test_document_translation import StubTranslator, document_translator

from nmt.documents.document import RichText, Tag
from nmt.documents.formats import FORMATS, DocumentOptions
from nmt.documents.markdown import parse
from nmt.documents.markdown_extensions import hide_blocks, metadata_end

OPTIONS = DocumentOptions("en", "de")


def texts(source: str) -> list[str]:
    return [block.text for block in parse(source.encode(), OPTIONS).blocks]


def reversed_words(source: str) -> str:
    """Translate with the stub: words in reverse order and in capitals."""
    document = parse(source.encode(), OPTIONS)
    return document.render(
        document_translator(StubTranslator()).translate(document.blocks).blocks
    ).decode()


def shown_text(tokens: Sequence[Token]) -> str:
    """Return the text that readers see, with that of labels."""
    return "".join(
        shown_text(token.children) if token.children else token.content for token in tokens
    )


def structure(source: str) -> list[str]:
    """Return the types of all tokens."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(source)
    types = []
    for token in tokens:
        children = [
            child.type for child in token.children or () if child.type not in ("text", "softbreak")
        ]
        types += [token.type, *sorted(children)]
    return types


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("# One *dog*\n\nTwo\n===\n", ["One dog", "Two"]),
        ("one\ntwo\n\n> three\n> four\n", ["one two", "three four"]),
        ("- one\n  two\n  - three\n1. four\n", ["one two", "three", "four"]),
        ("| a | b \\| c |\n|---|---|\n| `d` e | **f** |\n", ["a", "b | c", "d e", "f"]),
        ("---\ntitle: no\n...\n\nyes\n", ["yes"]),
        ("---\ntitle: no\n---\n\n    no\n\n```\nno\n```\n\n<pre>no</pre>\n\nyes\n", ["yes"]),
        ("Title: no\nDate: no\nTags: no\n  no\n\nyes\n", ["yes"]),
        ("Title: one\ntwo: three four\nfive\n", ["Title: one two: three four five"]),  # no metadata
        (
            (
                "<div>\n<p title='one'>two <b>dogs</b><br>three\n</p></div>\n\n> <p>four\n>"
                " five</p>\n\n- <p>six</p>\n"
            ),
            ["one", "two dogs", "three", "four five", "six"],
        ),
        (
            (
                "<div translate=no>no</div>\n\n<script>\nno\n\nno\n</script>\n\n<!-- no"
                " -->\n\n<svg>\n<text>no</text>\n</svg>"
            ),
            [],
        ),
        ("<div class='a' markdown>\n*one* two\n</div>\n", ["one two"]),
        (
            (
                "import {\n  no\n} from 'no';\nimport no from \"no\"\n\nexport const no = () =>"
                " {\n\n  no\n};\n\none\n"
            ),
            ["one"],
        ),
        (
            "{\n  no\n}\none\n\nexport default function no() {\n  no\n}\n\nexport default no;\n",
            ["one"],
        ),
        (
            "import dogs from France\n\nexport more dogs\n",
            ["import dogs from France", "export more dogs"],
        ),
        (
            (
                "```js\nimport no from"
                " 'no'\n```\none\n\n```\n:::mermaid\n```\ntwo\n\n:::mermaid\nno\n\nno\n:::\n"
            ),
            ["one", "two"],
        ),
        (
            (
                "{{< highlight c >}}\nno\n\nno\n{{< /highlight >}}\none\n{{< figure\n  src='no'"
                " >}}\ntwo\n"
            ),
            ["one", "two"],
        ),
        (
            (
                "[TOC]\n\n[[_TOC_]]\n\n--8<-- 'no.md'\n\n<<< @/no.js\n\n{: .no }\n\n::: no.no\n   "
                " no: no\n"
            ),
            [],
        ),
        ("!!! note\n\n        no\n\n    one\n\n???+ tip 'Two'\n", ["one", "???+ tip 'Two'"]),
        ("- one\n\n    !!! note\n        two\n\n    three\n", ["one", "two", "three"]),
        ("one\n: two\n\n    three\n: four\nfive\n", ["one", "two", "three", "four five"]),
        (
            (
                "one {/* no */} two\n\n{/* no\n\nno */}\n\n<Tabs a={() => no}\n "
                " b='no'>\nthree\n</Tabs>\n"
            ),
            ["one two", "three"],
        ),
        ("one [!a [no](no)] two ![[no]]\n", ["one [!a [no](no)] two"]),
        (
            "| <ul><li>one dog</li><li>two <b>cats</b></li></ul> | a<br/>b |\n|--|--|\n",
            ["one dog", "two cats", "a", "b"],
        ),
        ('[one](x "two") ![three](y) <http://no.de>', ["one http://no.de", "two", "three"]),
        ("[ref]: x\n\na [text][ref] and [ref]\n", ["a text and ref"]),
        ("[ref]: x\n\n![ref] and ![ref][] and ![text][ref]\n", ["and and", "text"]),
        ("a \\* b &amp; c&nbsp;d\n", ["a * b & c\xa0d"]),
        ("one\n$$\na\n= b\n$$\ntwo\n\n\\[\nc\n\n- d\n\\]\n\n- \\[ e \\]\n", ["one", "two"]),
        ("$$ one\n\n\\[two\\]\n\n```\n$$\n```\n", ["$$ one", "[two]"]),  # no formulas
        ("one my\n{% comment %}no{% endcomment %} two\nx", ["one my no two x"]),
        (
            (
                "one\n{% highlight c %}\nno\n\nno\n{% endhighlight %}\ntwo\n\n{% comment"
                " %}\n\nno\n{% endcomment %}"
            ),
            ["one", "two"],
        ),
        (
            "- [ ] one\n\n[^1]: two dogs\n\n!!! note\n\n> [!NOTE]\n> three\n",
            ["one", "two dogs", "three"],
        ),
        (
            (
                "one[^1] two[^b]\n\n[^1]: short\n\n    next\n\n    - item\n\n[^b]: long"
                " text\nends\n\nafter\n\n    code\n"
            ),
            ["one two", "short", "next", "item", "long text ends", "after"],
        ),
        ("one <svg><text>no</text></svg> two", ["one two"]),
        ("one <script>no</script> two", ["one two"]),
        ('one<input type="checkbox">two', ["one two"]),
        ("> **Note**\n> Dogs *bark*\n> here\n", ["Note", "Dogs bark here"]),
        ("⚠️ __Note:__\n**Ask**: \n*Tom* or\n**Ann**\nDogs\n", ["Note:", "Ask:", "Tom or Ann Dogs"]),
        ("He ran.\n***Note***\r\nDogs\n", ["He ran.", "Note", "Dogs"]),
        ("**The dog**\nis **here**\n", ["The dog is here"]),
        ("He saw **Tom**\n**Small**\nDogs\n", ["He saw Tom Small Dogs"]),
    ],
)
def test_only_what_a_person_reads_is_translated(source: str, expected: list[str]) -> None:
    assert sorted(texts(source)) == sorted(expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("one **small** dog", "DOG **SMALL** ONE"),
        ('see [my dog](a_b.md "one two") now', 'NOW [DOG MY](a_b.md "TWO ONE") SEE'),
        ("run `a*` now", "NOW `a*` RUN"),
        ("one  \ntwo", "ONE  \nTWO"),
        ("one x  \ntwo", "X ONE  \nTWO"),
        ("> **One dog**\n> Two *cats*", "> **DOG ONE**\n> *CATS* TWO"),
        (
            "> a **b  \n> c** [d\\\n> e](f) g <br/> h<br>",
            "> **B** A  \n> [D](f) **C**\\\n> G [E](f) <br/> H<br>",
        ),
        ("a  \n\\- b\\\n\\# b\n", "A  \nB -\\\nB #\n"),
        ("b  \na \\-\\\n**b** 1.\n", "B  \n\\- A\\\n1\\.\n**B**\n"),
        (
            "see [https://a.b/c](https://a.b/c) [d@e.de](mailto:d@e.de)",
            "[d@e.de](mailto:d@e.de) [https://a.b/c](https://a.b/c) SEE",
        ),
        ("- ```a``` one\n- ==two== ~~~b~~~", "- ONE ```a```\n- ~~~B~~~ ==TWO=="),
        ("the \\_\\_a\\_\\_ b", "B \\_\\_A\\_\\_ THE"),
        (
            "see [[a]] or [[c|d e]] and {{f}} [g](h){ i=1 } j",
            "J [G](h){ i=1 } {{f}} AND [[c|E D]] OR [[a]] SEE",
        ),
        ("| a [[b\\|c d]] |\n|--|\n", "| [[b\\|D C]] A |\n|--|\n"),
        ("a ==b *c*== ++d+e++ f ^g-1", "F ++d+e++ ==*C* B== A ^g-1"),
        (
            "see <Link to={a.b(c)}>one two</Link> {d('e')} {f.g} in {h}",
            "{H} IN {f.g} {d('e')} <Link to={a.b(c)}>TWO ONE</Link> SEE",
        ),
        ("[one dog](a) | [two cats](b) ·\n[c](d)\n", "[DOG ONE](a) | [CATS TWO](b) ·\n[C](d)\n"),
        ("one&#10;two <br> b", "TWO ONE <br> B"),
        ("*⚙* [one two](x) <i>▾</i>", "*⚙* [TWO ONE](x) <i>▾</i>"),
        ("a\\*b c_d", "C_D A\\*B"),
        ("dog 1.", "1\\. DOG"),  # not a list
        ("| one two | a \\| b |\n|--|--|\n", "| TWO ONE | B \\| A |\n|--|--|\n"),
        ("| ![a \\| b](x.png) | c |\n|--|--|\n", "| ![B \\| A](x.png) | C |\n|--|--|\n"),
        ("> one two\n> three four", "> FOUR THREE\n> TWO ONE"),
        ("- one two\r\n  three four\r\n", "- FOUR THREE\r\n  TWO ONE\r\n"),
        ("a <b>c</b> d", "D <b>C</b> A"),
        (
            'press <kbd>a&lt;<b>b</b></kbd> or <span translate="no">c</span>',
            '<span translate="no">c</span> OR <kbd>a&lt;<b>b</b></kbd> PRESS',
        ),
        ("a <kbd>b", "<kbd>B A"),  # not closed
        ("a <kbd>b <kbd>c</kbd>", "<kbd>c</kbd> <kbd>B A"),  # the outer one is not closed
        ("a <kbd>b<kbd>c</kbd>d</kbd>", "<kbd>b<kbd>c</kbd>d</kbd> A"),
        ("a www.b.de/c_(*d", "WWW.B.DE/C_(*D A"),
        ("see [a b]({{ x | y }}/c) `{{d}}`", "`{{d}}` [B A]({{ x | y }}/c) SEE"),
        (
            "[a]: {% b c %}\n\n[d][a] | {{ e | f }}\n--|--\n",
            "[a]: {% b c %}\n\n[D][a] | {{ e | f }}\n--|--\n",
        ),
        ("## One dog ##\n", "## DOG ONE ##\n"),
        ("two 1\\.\n===\n", "1\\. TWO\n===\n"),
        ("{% a %} one dog", "{% a %} DOG ONE"),
        ("{% if a %}a dog{% else %}b{% endif %}", "{% if a %}a dog{% else %}b{% endif %}"),
        ("a \\\\\\[^1] b", "B A \\\\\\[^1]"),
        ("open **C:\\\\T\\\\** now", "NOW **C:\\T\\\\** OPEN"),
        ("a \\[^1] b", "B A \\[^1]"),
        ("a[^1] b c\n\n[^1]: d e\n\n    f g\n", "C B A[^1]\n\n[^1]: E D\n\n    G F\n"),
        (
            "a [b][c].\n[c]: <d e>\n\n[^1]: f\n[g]: ./h 'i j'\n",
            "[B][c]. A\n[c]: <d e>\n\n[^1]: F\n[g]: ./h 'i j'\n",
        ),
        ("a\n[b]: c d\n", "D C\n\\[B\\]: A\n"),  # no definition
        ("a\n[b]: c/d\n", "C/D\n\\[B\\]: A\n"),
        ("a\n[b]: c.\n", "C.\n\\[B\\]:\nA\n"),
        ("a **b\n[c]: d\ne** f", "F **E\nD\n\\[C\\]:\nB** A"),
        ("![a *b* `c`\n[d](e)](x)", "![D C B A](x)"),
        ("![a *b* [c]](x)\n\n[c]: d", "![[C] \\*B\\* A](x)\n\n[c]: d"),
    ],
)
def test_markup_follows_its_words(source: str, expected: str) -> None:
    assert reversed_words(source) == expected


@pytest.mark.parametrize("source", ["a `b\n--c d` e\n", "> a `b\n> == d` e\n"])
def test_code_over_two_lines_is_unchanged(source: str) -> None:
    code = source[source.index("`") : source.rindex("`") + 1]
    assert code in translated(parse(source.encode(), OPTIONS)).decode()


def test_emphasis_without_words_is_left_out() -> None:
    document = parse(b"**apple** *tree*", DocumentOptions("en", "de"))
    assert (
        document.render([RichText("Apfelbaum", (Tag(0, 9, 0), Tag(9, 9, 1)))]) == b"**Apfelbaum**"
    )
    document = parse(b"==apple== tree", DocumentOptions("en", "de"))
    assert document.render([RichText("Baum", (Tag(0, 0, 0),))]) == b"Baum"
    document = parse(b"[apple](a) *tree*", DocumentOptions("en", "de"))
    assert document.render([RichText("Baum", (Tag(0, 0, 0), Tag(0, 4, 1)))]) == b"[](a)*Baum*"


@pytest.mark.parametrize(
    "text", ["dog] old", "cat [old", "house [old](new)", "[dog]", "a [b] c", "]", "[]["]
)
@pytest.mark.parametrize(
    "source", ["[one](u)", "![one](u)", "[one][r]", "![one][r]", "| [one](u) |\n|--|\n| ![a](u) |"]
)
def test_brackets_in_labels_do_not_end_them(source: str, text: str) -> None:
    source += "\n\n[r]: x"
    document = parse(source.encode(), OPTIONS)
    output = document.render(
        [
            replace(block, text=text, tags=tuple(replace(tag, end=len(text)) for tag in block.tags))
            for block in document.blocks
        ]
    )
    assert structure(output.decode()) == structure(source)
    assert text in shown_text(MarkdownIt("commonmark").enable("table").parse(output.decode()))


@pytest.mark.parametrize(
    "source",
    [
        "- \\[`a`\\]: bc",
        "\\[*a*\\](b) c",
        "\\[`a`\\](b)",
        "\\[a ![b](c) d\\](e) f",
        "a \\[**b**\\]\\[1\\] c",
        "| \\[*a*\\](b) |\n|--|",
        "[see http://[::1]:80/ a](u)",
        "[http://x.y/?a[]=1&b[]=2 c](u)",
        "![see http://x/a[1]](u)",
        "[see https://a.b/c[d]e now](b)",
        "http://x/[1](y) a",
        "\\[a\\](b) [c](d)",
        "a [b] [ ] c",
        "- [ ] a [[b]] c",
    ],
)
def test_escaped_brackets_stay_text(source: str) -> None:
    document = parse(source.encode(), OPTIONS)
    output = document.render(
        [replace(block, text=block.text.swapcase()) for block in document.blocks]
    ).decode()
    assert structure(output) == structure(source)


def test_blocks_that_cannot_be_located_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert texts("one\0\n\ntwo\n") == ["two"]
    assert "stay as they are: 1" in capsys.readouterr().err


TEMPLATES = [
    "::: tip\n\n{}\n:::",
    "{}\n:::tip[{}]\n{}\n:::",
    ":::: warning {}\n{}\n::::",
    '::: {{.note data-x="y"}}\n{}\n:::',
    ":::{{note}} {}\n{}\n:::",
    ':::moniker range=">= x"\n{}\n:::moniker-end',
    "> ::: tip\n> {}\n> :::",
    "> [!tip]\n> {}",
    "> [!Note]- {}\n> {}",
    "> > [!my-kind|left] {}\n> >\n> > {}",
    "- > [!TIP]\n  > {}",
    "!!! note\n    {}",
    '!!! note inline end "{}"\n\n    {}\n\n    - {}',
    '??? tip "{}"\n    {}\n\n    ???+ bug\n        {}',
    '{}\n=== "{}"\n\n    {}\n\n=== "{}"\n\n    1. {}',
    "[!INCLUDE [a b](c_d.md)]\n{}\n[!code-x[A](b)]",
    '## {} {{ #a .b data-c="d e" }}',
    "{}\n{{: .a }}",
    "[{}](x){{ .a .b }}",
    '![{}](x){{ width="3" }}',
    '{{{{< a "b" >}}}}\n{}\n{{{{< /a >}}}}',
    "{{{{% a %}}}}\n{}\n{{{{% /a %}}}}",
    '{{% a b="c" %}}\n{}\n{{% enda %}}',
    "*[ab c]: {}",
    "{}\n: {}\n:   {}\n\n    {}",
    "- {}\n  : {}",
    "[[a|{}]]",
    "<Aa b={{c}}>\n{}\n</Aa>",
    "<aside>\n  {}\n</aside>",
    "<details><summary>{}</summary>\n\n{}\n\n</details>",
    "a | b\n--|--\n{}<br>{} | <ol><li>{}</li><li>{}</li></ol>",
    "{}  \n{}\\\n{}",
    "- {}<br />\n  {}",
    'import A from "a"\n\n{}',
    "{{/* a */}}\n{}",
    "==**{}**==",
    "{} ^a-1",
]
"""Documents with markup of extensions, in which only the text at the braces is translated."""


@given(
    st.lists(st.sampled_from(TEMPLATES), min_size=1, max_size=4),
    st.sampled_from(["one", "one two", "Three dogs."]),
)
def test_extensions_keep_their_markup(templates: list[str], text: str) -> None:
    template = "\n\n".join(templates)
    lines = template.count("{}") - template.count("{{}}")
    source = template.format(*[text] * lines)
    expected = template.format(*[text.upper()] * lines)
    column_names = source.count("a | b\n")
    expected = expected.replace("a | b\n", "A | B\n") if column_names else expected
    assert translated(parse(source.encode(), OPTIONS), uppercase).decode() == expected


@given(st.text("{%}<>:!?[]()|*=+-#^/\\_ \t\r\n\"'`aA.", max_size=60))
def test_hidden_blocks_have_the_same_length(source: str) -> None:
    hidden = hide_blocks(source)
    assert len(hidden) == len(source)
    assert [char for char in hidden if char in "\r\n"] == [
        char for char in source if char in "\r\n"
    ]


@pytest.mark.parametrize(
    "start",
    [
        "{{< math >}}\n",
        ":::mermaid\n",
        "import {\n",
        "export const a = [\n",
        "{/* ",
        "<Aa b={",
        "<a b={c ",
        "[!a [b](c)",
        "[[a|",
        "> ",
        "- > ",
        "{ a=",
        '=== "a',
        ": a\n",
        "==a",
        "<li>",
        "a  \n",
        "Title: a\n b: c\n",
    ],
)
def test_many_starts_without_an_end(start: str) -> None:
    source = start * 3000  # quadratic time would be minutes
    assert len(hide_blocks(source)) == len(source)
    assert metadata_end(source) in (0, len(source))
    document = parse(source[:5000].encode(), OPTIONS)
    assert document.render(document.blocks).decode() == source[:5000]


def test_mdx_is_markdown() -> None:
    source = b"import a from 'b';\n\none <A b={c}>two</A>\n"
    assert [block.text for block in FORMATS[".mdx"](source, OPTIONS).blocks] == ["one two"]


PARTS = [
    "# ",
    "> ",
    "- ",
    "1. ",
    "    ",
    "\n",
    "\n\n",
    "**",
    "*",
    "_",
    "`",
    "[",
    "](x)",
    "![",
    "<b>",
    "</b>",
    "|",
    "\n|--|\n",
    "~~",
    "\\",
    "  \n",
    "```\n",
    "&amp;",
    "<!-- c -->",
    "\t",
    "\r\n",
    "\n$$",
    "$$\n",
    "\n\\[ ",
    "\\]\n",
    "<kbd>",
    "</kbd>",
    "\n::: a ",
    '\n!!! note "',
    '\n=== "a"\n',
    "\n: ",
    "[[",
    "a|b]]",
    "> [!a] ",
    "{ .a }",
    "==",
    "{{< a >}}",
    "<br>",
    "\n<p>",
    "</p>\n",
    "\n<Aa b={c}>\n",
    "{/* a */}",
    "*[a]: ",
    "[!a [b](c)]",
    "<li>",
]


@given(st.lists(st.sampled_from([*PARTS, "one", " two ", "Three.", " "]), max_size=25).map("".join))
def test_an_unchanged_translation_reproduces_any_document(source: str) -> None:
    document = parse(source.encode(), OPTIONS)
    assert document.render(document.blocks).decode() == source
    reversed_words(source)  # raises no error


BLOCKS = st.sampled_from(
    [
        "{}",
        "# {}",
        "> {}",
        "- {}",
        "1. {}",
        "{}\n\n```\ncode\n```",
        "| {} | x |\n|--|--|\n| y | z |",
    ]
)
INLINES = st.lists(
    st.sampled_from(
        [
            "one",
            "two",
            "**three four**",
            "*five*",
            "`code`",
            "[six seven](x)",
            "![eight](y)",
            "~~nine~~",
        ]
    ),
    min_size=1,
    max_size=6,
).map(" ".join)


@given(st.lists(st.tuples(BLOCKS, INLINES), min_size=1, max_size=4))
def test_a_translation_has_the_same_structure(blocks: list[tuple[str, str]]) -> None:
    source = "\n\n".join(block.format(text) for block, text in blocks)
    assert structure(reversed_words(source)) == structure(source)


def real_documents() -> list[Path]:
    """Return Markdown files of installed packages and of this repository."""
    directories = [*map(Path, site.getsitepackages()), Path(__file__).parents[2] / "docs"]
    return [path for directory in directories for path in sorted(directory.rglob("*.md"))]


@pytest.mark.slow
def test_real_documents_keep_their_structure() -> None:
    files = real_documents()
    assert files
    for path in files:
        source = path.read_bytes()
        document = parse(source, OPTIONS)
        assert document.render(document.blocks) == source, path
        changed = [
            RichText(f"{block.text} x" if block.text.isascii() else block.text, block.tags)
            for block in document.blocks
        ]
        output = document.render(changed).decode()
        assert structure(output) == structure(source.decode()), path
