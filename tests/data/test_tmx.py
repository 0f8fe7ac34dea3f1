"""Reading translation memories."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from commandline import CommandLine, sentences
from hypothesis import given
from hypothesis import strategies as st
from loopback import loopback

from nmt.core.errors import DataError
from nmt.data.pairs import Pair, read_lines
from nmt.data.sources import open_split
from nmt.data.tmx import read_tmx

SEGMENT = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), min_size=1
)
SENTENCE = SEGMENT.map(lambda text: " ".join(text.split(" ")).strip(" ")).filter(
    lambda text: text and "  " not in text
)


def memory(
    pairs: list[Pair], languages: tuple[str, str] = ("en", "de"), encoding: str = "utf-8"
) -> bytes:
    """Return a translation memory, written by ElementTree."""
    root = ElementTree.Element("tmx", version="1.4")
    ElementTree.SubElement(root, "header", srclang=languages[0])
    body = ElementTree.SubElement(root, "body")
    for pair in pairs:
        unit = ElementTree.SubElement(body, "tu")
        for language, sentence in zip(languages, pair, strict=True):
            variant = ElementTree.SubElement(unit, "tuv", {"xml:lang": language})
            ElementTree.SubElement(variant, "seg").text = sentence
    content: bytes = ElementTree.tostring(root, encoding)
    return content


def unit(*variants: tuple[str, str]) -> str:
    """Return a unit with (attribute, content of the segment)."""
    return (
        "<tu>"
        + "".join(f"<tuv {attribute}><seg>{text}</seg></tuv>" for attribute, text in variants)
        + "</tu>\n"
    )


def read(
    tmp_path: Path, content: str | bytes, src: str = "en", tgt: str = "de", errors: str = "strict"
) -> list[Pair]:
    """Read a file with this content, or with these units."""
    if isinstance(content, str) and not content.startswith("<?xml"):
        content = (
            f'<?xml version="1.0"?>\n<tmx version="1.4"><header/>\n<body>\n{content}</body></tmx>'
        )
    path = tmp_path / "memory.tmx"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return list(read_tmx(path, src, tgt, errors))


@given(
    st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1),
    st.sampled_from(["utf-8", "utf-16", "us-ascii"]),
)
def test_written_pairs_are_read_in_both_directions(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair], encoding: str
) -> None:
    path = tmp_path_factory.mktemp("memory")
    content = memory(pairs, encoding=encoding)
    assert read(path, content) == pairs
    assert read(path, content, "de", "en") == [pair[::-1] for pair in pairs]


@pytest.mark.parametrize(
    ("segment", "text"),
    [
        ('Click <bpt i="1">{\\b </bpt>here<ept i="1">}</ept>.', "Click here."),
        ("H<bpt>&lt;sub&gt;</bpt>2<ept>&lt;/sub&gt;</ept>O", "H2O"),
        ("a <it pos='begin'>&lt;i&gt;</it> b <ut>x</ut>c", "a b c"),
        (
            "a <hi type='verb'>marked <hi>word</hi></hi> <unknown>here</unknown>",
            "a marked word here",
        ),
        ("See<ph>note <sub>a <ph>nested</ph> footnote</sub> end</ph>.", "See."),
        ("one<ph>&lt;br/&gt;</ph>two", "one two"),
        ("one<bpt>b</bpt><ph/><ph/><ept>b</ept>two", "one two"),
        ("<ph/>one <ph/> two<ph/>", "one two"),
        ("&lt;b&gt; &amp; &#228;", "<b> & ä"),
        ("<![CDATA[a <b> c]]>", "a <b> c"),
        ("\n  first\r\n\t second&#10;third  ", "first second third"),
        ("no\u00a0break\u2028here", "no\u00a0break\u2028here"),
        ("the <term>hard disk</term> is full", "the hard disk is full"),
    ],
)
def test_inline_markup_and_whitespace(tmp_path: Path, segment: str, text: str) -> None:
    assert read(tmp_path, unit(('xml:lang="en"', segment), ('xml:lang="de"', "x"))) == [(text, "x")]


@pytest.mark.parametrize(
    "attribute",
    [
        'xml:lang="de"',
        'xml:lang="de-DE"',
        'xml:lang="de_AT"',
        'lang="DE"',
        'xml:lang="DE-CH" lang="fr"',
    ],
)
def test_language_variants(tmp_path: Path, attribute: str) -> None:
    units = unit(('xml:lang="EN-us"', "x"), (attribute, "y"), ('lang="den"', "z"))
    assert read(tmp_path, units) == [("x", "y")]
    assert read(tmp_path, units, "DE", "en") == [("y", "x")]


def test_of_several_variants_the_exact_one_or_the_first_is_used(tmp_path: Path) -> None:
    english = ('lang="en"', "x")
    variants = [(f'lang="{code}"', code) for code in ("de-AT", "de-DE", "de", "DE")]
    assert read(tmp_path, unit(english, *variants)) == [("x", "de")]
    assert read(tmp_path, unit(english, *variants[:2])) == [("x", "de-AT")]
    assert read(tmp_path, unit(english, *variants), "en", "de-DE") == [("x", "de-DE")]
    assert read(tmp_path, unit(*variants), "de", "de-AT") == [("de", "de-AT")]
    empty = ('lang="de"', " ")
    assert read(tmp_path, unit(english, empty, *variants[:2])) == [("x", "de-AT")]
    assert read(tmp_path, unit(english, *variants[:2], empty)) == [("x", "de-AT")]
    with pytest.raises(DataError, match="source and target are both 'de'"):
        read(tmp_path, unit(*variants), "de", "DE")


def test_skipped_units_are_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    english, german = ('lang="en"', "x"), ('lang="de"', "y")
    units = (
        unit(english)
        + unit(english, german)
        + unit(english, ('lang="de"', "\n<ph>z</ph> "))
        + unit(german)
    )
    for _ in range(2):
        assert read(tmp_path, units) == [("x", "y")]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("memory.tmx: skipped units: 2 without en or de, 1 with an empty segment")


@pytest.mark.parametrize(
    ("encode", "declared"),
    [
        ("utf-8", ""),
        ("utf-8-sig", "utf-8"),
        ("utf-16", "utf-16"),
        ("utf-16-be", "utf-16"),
        ("utf-8", "utf-16"),  # a wrong declaration
        ("iso-8859-1", "ISO-8859-1"),
        ("windows-1252", "windows-1252"),
        ("gb18030", "gb18030"),
    ],
)
def test_encodings(tmp_path: Path, encode: str, declared: str) -> None:
    declaration = (
        f'<?xml version="1.0" encoding="{declared}"?>' if declared else "<?xml version='1.0'?>"
    )
    units = unit(('lang="en"', "größer"), ('lang="de"', "Käse")) * 8000  # several blocks
    content = f'{declaration}<tmx version="1.4"><body>{units}</body></tmx>'.encode(encode)
    assert read(tmp_path, content) == [("größer", "Käse")] * 8000


def test_invalid_bytes(tmp_path: Path) -> None:
    content = memory([("x" * 300_000 + "\n", "y"), ("caf\n\0", "z")]).replace(b"\0", b"\xe9")
    with pytest.raises(DataError, match=r"memory\.tmx, line 4: not UTF-8 \(0xe9\)"):
        read(tmp_path, b'<?xml version="1.0"?>\n' + content)
    assert read(tmp_path, content, errors="replace")[1] == ("caf \ufffd", "z")


@pytest.mark.parametrize("encoding", ["klingon", "zlib", ""])
def test_unknown_encoding(tmp_path: Path, encoding: str) -> None:
    with pytest.raises(DataError, match=f"unknown encoding '{encoding}'"):
        read(tmp_path, f'<?xml version="1.0" encoding="{encoding}"?><tmx/>')


def test_encoding_whose_errors_have_no_place(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="unknown encoding 'punycode'"):
        read(tmp_path, '<?xml version="1.0" encoding="punycode"?><tmx version="1.4"/>')


def test_no_dtd_is_fetched(tmp_path: Path) -> None:
    with loopback() as server:
        server.serve("/tmx14.dtd", b"<!ELEMENT tmx (header, body)>")
        content = memory([("x", "y")]).decode()
        assert read(
            tmp_path,
            f'<?xml version="1.0"?><!DOCTYPE tmx SYSTEM "{server.url}/tmx14.dtd">{content}',
        ) == [("x", "y")]
        assert not server.requests


@pytest.mark.parametrize(
    ("doctype", "text", "message"),
    [
        ('[<!ENTITY a "ha"> <!ENTITY b "&a;&a;">]', "&b;", "line 2: the entity 'a' is declared"),
        (
            '[<!ENTITY secret SYSTEM "file:///etc/passwd">]',
            "&secret;",
            "line 2: the entity 'secret' is declared",
        ),
        (
            '[<!ENTITY % more SYSTEM "more.dtd"> %more;]',
            "x",
            "line 2: the entity 'more' is declared",
        ),
        ('SYSTEM "tmx14.dtd"', "&nbsp;", "line 4: unknown entity &nbsp;"),
        ("", "&nbsp;", "line 4: not well-formed XML (undefined entity)"),
        ("", "a < b", "line 4: not well-formed XML (not well-formed (invalid token))"),
        ("", "</tuv>", "line 4: not well-formed XML (mismatched tag)"),
        ("", "&#1;", "line 4: not well-formed XML (reference to invalid character number)"),
        ("", "\0", "line 4: not well-formed XML"),
    ],
)
def test_malformed_and_dangerous_files_are_located(
    tmp_path: Path, doctype: str, text: str, message: str
) -> None:
    units = unit(('lang="en"', text), ('lang="de"', "x"))
    content = (
        f'<?xml version="1.0"?>\n<!DOCTYPE tmx {doctype}>\n<tmx'
        f' version="1.4"><body>\n{units}</body></tmx>'
    )
    with pytest.raises(DataError) as raised:
        read(tmp_path, content)
    assert f"memory.tmx, {message}" in raised.value.message
    assert raised.value.hint


@pytest.mark.parametrize(
    ("content", "message", "hint"),
    [
        (
            "<?xml version='1.0'?><map version='1.0'/>",
            "is not a translation memory: it has <map> in place of <tmx>",
            "",
        ),
        ("<?xml version='1.0'?>", "line 1: not well-formed XML (no element found)", "export"),
        (
            "<?xml version='1.0'?><tmx>\n<body>",
            "line 2: not well-formed XML (no element found)",
            "export",
        ),
        ("", "has no unit in en and de", "languages in the file: none"),
        (
            unit(('lang="en"', "x"), ('lang="de"', " ")),
            "has no unit with text in en and de",
            "exported",
        ),
        (
            unit(('lang="en-GB"', "x"), ('lang="fr"', "y")),
            "has no unit in en and de",
            "in the file: en-GB, fr",
        ),
    ],
)
def test_other_files_are_rejected(tmp_path: Path, content: str, message: str, hint: str) -> None:
    with pytest.raises(DataError) as raised:
        read(tmp_path, content)
    assert message in raised.value.message
    assert hint in raised.value.hint


def test_memory_use_does_not_depend_on_the_size(tmp_path: Path) -> None:
    units = unit(('lang="en"', "one sentence " * 100), ('lang="de"', "ein Satz " * 100)) * 3_000
    path = tmp_path / "memory.tmx.gz"
    path.write_bytes(gzip.compress(f"<tmx><body>{units}</body></tmx>".encode(), 1))
    tracemalloc.start()
    count = sum(1 for _ in read_tmx(path, "en", "de"))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 3_000
    assert peak < len(units) / 2


@pytest.mark.parametrize(("suffix", "compress"), [("", bytes), (".gz", gzip.compress)])
def test_as_a_corpus(tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes]) -> None:
    pairs = list(zip(*sentences(100), strict=True))
    path = tmp_path / f"Memory.TMX{suffix}"
    path.write_bytes(compress(memory(pairs)))
    spec = f"files(train='{path}', hold_out=False)"
    assert list(open_split(spec, "train", "en", "de").pairs()) == pairs
    assert list(open_split(spec, "train", "de", "en").pairs()) == [pair[::-1] for pair in pairs]
    parts = [
        list(open_split(f"files(train='{path}')", split, "en", "de").pairs())
        for split in ("train", "test")
    ]
    assert {len(part) for part in parts} >= {5}
    path.write_bytes(compress(memory(pairs))[:-20])
    with pytest.raises(DataError, match=r"Memory\.TMX"):
        list(open_split(spec, "train", "en", "de").pairs())
    with pytest.raises(DataError, match="has both languages"):
        open_split(f"files(train=('{path}', '{path}'))", "train", "en", "de")


def test_tmx_and_tsv_files_are_checked_and_prepared(tmp_path: Path) -> None:
    nmt = CommandLine(tmp_path)
    english, german = sentences(300)
    (tmp_path / "memory.tmx").write_bytes(
        memory(list(zip(english, [*german[:-1], "\ufffd"], strict=True)))
    )
    (tmp_path / "table.tsv").write_text(
        "".join(f"{a}\t{b}\n" for a, b in zip(english, german, strict=True))
    )
    languages = ("--src-lang", "en", "--tgt-lang", "de")
    checked = nmt(
        "data", "check", "memory.tmx", *languages, "--fix", "fixed", "--ignore", "near-duplicate"
    )
    assert checked.code == 3, checked.err
    assert "300 pairs in memory.tmx" in checked.out
    assert "replacement-characters: 1" in checked.out
    assert list(read_lines(tmp_path / "fixed.de")) == german[:-1]
    assert "300 pairs in table.tsv" in nmt("data", "check", "table.tsv", *languages).out
    nmt("data", "check", "memory.tmx").assert_fails(
        2, "the languages to read from memory.tmx are unknown", "--src-lang"
    )
    nmt("data", "check", "memory.tmx", "fixed.de").assert_fails(
        2, "memory.tmx has both languages", "pass this file alone"
    )
    nmt("data", "check", "fixed.de").assert_fails(2, "fixed.de has one language", "pass two files")
    options = ("--set", "data.train=files(train='memory.tmx')", "--set", "tokenizer.vocab_size=350")
    for src, tgt in (("en", "de"), ("de", "en")):
        nmt.run("data", "prepare", *options, "--set", f"data.src={src}", "--set", f"data.tgt={tgt}")


def test_terms_that_are_not_to_be_used_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "terms.tbx"
    note = '<termNote type="administrativeStatus">{}-admn-sts</termNote>'
    path.write_text(
        '<martif type="TBX"><text><body><termEntry><langSet xml:lang="en">'
        "<tig><term>dog</term></tig><tig><term>hound</term></tig></langSet>"
        '<langSet xml:lang="de">'
        f"<tig><term>Köter</term>{note.format('deprecatedTerm')}</tig>"
        f"<tig><term>Hund</term>{note.format('preferredTerm')}</tig>"
        "</langSet></termEntry></body></text></martif>"
    )
    assert list(read_tmx(path, "en", "de")) == [("dog", "Hund"), ("hound", "Hund")]
