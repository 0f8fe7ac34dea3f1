"""CSV, TSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stub_translations import OPTIONS, reverse_words, texts, translated

from nmt.core.errors import DataError, UsageError
from nmt.documents import json_strings, tables
from nmt.documents.document import RichText
from nmt.documents.formats import FORMATS, DocumentOptions
from nmt.documents.splicing import SplicedDocument
from nmt.documents.strings import StringLines
from nmt.translation.segments import FixedSpan

CSV = """\
id,text,note
1,a plain cell,keep
2,"in ""quotes"", with a comma",keep

3,"two
lines","keep, too"
4,,
5
"""
JSON = """\
{
  "title": "a title", "price": 1.50e+2,  "ok": true,
  "items": [ {"text": "one \\u00e9"},   {"text": "two", "id": "x1"} ],
  "tags": ["red", ["deep"], 7, "blue"],
  "title": "again",
  "a.b": {"c": "dotted"}, "empty": ""
}
"""


def parse_table(source: str | bytes, *columns: str) -> SplicedDocument:
    data = source.encode() if isinstance(source, str) else source
    return tables.parse(data, DocumentOptions(**OPTIONS, columns=columns))


def parse_json(source: str | bytes, *keys: str) -> SplicedDocument:
    data = source.encode() if isinstance(source, str) else source
    return json_strings.parse(data, DocumentOptions(**OPTIONS, keys=keys))


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_only_the_cells_of_the_column_change(line_end: str, bom: str, delimiter: str) -> None:
    source = bom + CSV.replace(",", delimiter).replace("\n", line_end)
    document = parse_table(source, "text")
    quotes = (
        ['in "quotes"', "with a comma"]
        if delimiter == "\t"
        else [f'in "quotes"{delimiter} with a comma']
    )
    assert texts(document) == ["a plain cell", *quotes, "two", "lines"]
    assert document.render(document.blocks) == source.encode()
    expected = (
        source.replace("a plain", "A PLAIN")
        .replace('in ""quotes""', 'IN ""QUOTES""')
        .replace("with a comma", "WITH A COMMA")
    )
    rendered = translated(document).decode()
    cells = [
        row[1]
        for row in csv.reader(
            io.StringIO(rendered.lstrip("\ufeff"), newline=""), delimiter=delimiter
        )
        if len(row) > 1
    ]
    assert rendered.replace("cell", "CELL").startswith(
        expected[: expected.index("3")].replace("cell", "CELL")
    )
    assert " ".join(cells[3].split()) == "TWO LINES"


def test_each_line_of_a_string_is_a_block() -> None:
    plain = StringLines(" A cat\r\n  is here\n\n- now\t then\r")
    assert [block.text for block in plain.blocks] == ["A cat", "is here", "now", "then"]
    assert (
        plain.render([*map(RichText, ("one\ntwo", "x", "y", "z"))])
        == " one two\r\n  x\n\n- y\t z\r"
    )


def test_several_columns() -> None:
    assert texts(parse_table("a,b,c\n1,2,3\nx,y,z\n", "c", "a")) == ["1", "3", "x", "z"]
    assert texts(parse_table("a\n1\n\n2")) == ["1", "2"]


def test_a_translation_is_quoted_if_needed() -> None:
    assert (
        parse_table("text,b\none,2\n", "text").render([RichText('a, "b"')])
        == b'text,b\n"a, ""b""",2\n'
    )
    assert (
        parse_table("text\tb\none\t2\n", "text").render([RichText('a, "b"\t')])
        == b'text\tb\na, "b" \t2\n'
    )


def test_a_comma_may_be_a_part_of_the_only_column() -> None:
    document = parse_table("text\nHello, world\n")
    assert texts(document) == ["Hello, world"]
    assert document.render([RichText("Hallo, Welt")]) == b"text\nHallo, Welt\n"


@pytest.mark.parametrize("first", ["sep=;\r\n", '"sep=;"\n'])
def test_the_first_line_names_the_delimiter(first: str) -> None:
    document = parse_table(f"{first}a,b;c,d;text,\n1;2;one\n", "text,")
    assert document.render([RichText("eins")]).decode() == f"{first}a,b;c,d;text,\n1;2;eins\n"


def test_only_tabs_separate_the_cells_of_tsv() -> None:
    document = FORMATS[".tsv"](
        b'text\nHello, I am tired; really.\n"Hi," she said\n', DocumentOptions(**OPTIONS)
    )
    assert texts(document) == ["Hello, I am tired; really.", '"Hi," she said']


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("before", ["", " ", "   "])
@pytest.mark.parametrize("after", ["", " ", "   "])
def test_spaces_around_quotes_are_kept(delimiter: str, before: str, after: str) -> None:
    cell = f'{before}"a ""dog""{delimiter} here"{after}'
    header = delimiter.join(["id", f'{before}"text"{after}', "note"])
    row = delimiter.join(["1", cell, "ok"])
    source = f"{header}\n{row}\n"
    rendered = translated(parse_table(source, "text")).decode()
    assert rendered == f"{header}\n" + row.replace(cell, cell.upper()) + "\n"
    for text in (source, rendered):
        rows = csv.reader(io.StringIO(text), delimiter=delimiter, skipinitialspace=True)
        assert [row[::2] for row in rows] == [["id", "note"], ["1", "ok"]]


def test_a_tab_may_be_before_quotes() -> None:
    source = 'id,text\n1,\t"one, two"\t\n'
    assert translated(parse_table(source, "text")).decode() == source.replace(
        "one, two", "ONE, TWO"
    )


def test_an_empty_cell_in_front_of_quotes_with_tabs() -> None:
    source = 'id\ttext\tnote\n\t\t"keep"\n1\t"one"\t\n'
    assert translated(parse_table(source, "text")).decode() == source.replace("one", "ONE")


def test_quotes_after_a_comma_in_the_only_column() -> None:
    lines = ['Hello, "small" dog', 'Hello,"small" dog']
    assert texts(parse_table("\n".join(["text", *lines]))) == lines


def test_quotes_in_a_table_with_tabs_are_text() -> None:
    assert texts(parse_table('text\tb\n"Hi" she said\t2\n', "text")) == ['"Hi" she said']


@pytest.mark.parametrize(
    ("columns", "message", "hint"),
    [
        ((), "--column is required", "columns: id, text, note"),
        (
            ("txt",),
            "--column txt: there is no such column",
            r"did you mean 'text'\? \(columns: id, text, note\)",
        ),
        (("zzz",), "--column zzz", "columns: id, text, note"),
    ],
)
def test_the_column_must_exist(columns: tuple[str, ...], message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        parse_table(CSV, *columns)
    assert re.fullmatch(hint, error.value.hint)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('text,b\n"open,2\n', "line 2: a quote is not closed"),
        ('text,b\n1,2\n"a" b,2\n', "line 3: a quote is not closed"),
        ('text,b\n1, "open\n', "line 2: a quote is not closed"),
        ('text,b\r1,2\r"open,2\r', "line 3: a quote is not closed"),
        (b"text,b\r\xff,2\r", "line 2, byte 1 of the line: not UTF-8"),
        (b"text,b\n\xff,2\n", "line 2, byte . of the line: not UTF-8"),
    ],
)
def test_malformed_tables_are_rejected(source: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_table(source, "text")


# Csv.writer does not quote \r.
CELLS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\r"))


@given(
    st.lists(st.tuples(CELLS, CELLS), min_size=1),
    st.sampled_from(",;\t|"),
    st.sampled_from(["\r\n", "\n"]),
    CELLS,
)
def test_tables_of_the_csv_module(
    rows: list[tuple[str, str]], delimiter: str, line_end: str, translation: str
) -> None:
    written = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if delimiter == "\t" else csv.QUOTE_MINIMAL
    writer = csv.writer(written, delimiter=delimiter, lineterminator=line_end, quoting=quoting)
    writer.writerows([("first", "second"), *rows])
    document = parse_table(written.getvalue(), "second")
    assert document.render(document.blocks) == written.getvalue().encode()
    rendered = document.render([RichText(translation)] * len(document.blocks)).decode()
    read = [
        row for row in csv.reader(io.StringIO(rendered, newline=""), delimiter=delimiter) if row
    ]
    assert [row[0] for row in read[1:]] == [row[0] for row in rows]
    for row, (_, source) in zip(read[1:], rows, strict=True):
        lines = StringLines(source)  # keeps markers such as "* "
        if len(lines.blocks) == 1:
            assert row[1].split() == lines.render([RichText(translation)]).split()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["title"], ["a title", "again"]),
        (["items.*.text"], ["one é", "two"]),
        (["items.1.text"], ["two"]),
        (["tags"], ["red", "blue"]),
        (["tags.*"], ["red", "deep", "blue"]),
        (["tags.*.*"], ["deep"]),
        (["a.b.c"], ["dotted"]),
        (["**"], ["a title", "one é", "two", "x1", "red", "deep", "blue", "again", "dotted"]),
        (["**.text", "title"], ["a title", "one é", "two", "again"]),
    ],
)
def test_key_paths(keys: list[str], expected: list[str]) -> None:
    document = parse_json(JSON, *keys)
    assert texts(document) == expected
    assert document.render(document.blocks) == JSON.encode()


PARTS = st.sampled_from(["a", "b", "*", "**"])


@given(
    st.lists(PARTS, min_size=1, max_size=6),
    st.lists(st.sampled_from(["a", "b", "aa"]), min_size=1, max_size=6),
)
def test_wildcards_match_like_a_regular_expression(parts: list[str], path: list[str]) -> None:
    pattern = "/".join({"*": "[^/]*", "**": ".*"}.get(part, part) for part in parts)
    expected = re.fullmatch(pattern, "/".join(path)) is not None
    value: object = "text"
    for key in reversed(path):
        value = {key: value}
    try:
        matches = texts(parse_json(json.dumps(value), ".".join(parts))) == ["text"]
    except UsageError:  # no string matches
        matches = False
    assert matches == expected


@pytest.mark.parametrize("key", ["**.a." * 30 + "b", "*." * 60 + "b"])
def test_many_wildcards_do_not_take_exponential_time(key: str) -> None:
    with pytest.raises(UsageError, match="matches no string"):
        parse_json(json.dumps({"a" + ".a" * 99: {"a": "x"}}), key)


def test_all_other_characters_are_unchanged() -> None:
    rendered = translated(parse_json(JSON, "items.*.text", "title")).decode()
    assert rendered == JSON.replace("a title", "A TITLE").replace("again", "AGAIN").replace(
        "one \\u00e9", "ONE \\u00c9"
    ).replace('"two"', '"TWO"')


def test_unicode_is_escaped_only_if_the_file_does() -> None:
    assert parse_json('{"a": "x"}', "a").render([RichText("ü")]).decode() == '{"a": "ü"}'
    assert (
        parse_json('{"a": "\\u00e9"}', "a").render([RichText("ü")]).decode() == '{"a": "\\u00fc"}'
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{0} no dogs|{1} one dog|[2,*] :count dogs", "{0} NO DOGS|{1} ONE DOG|[2,*] :count DOGS"),
        ("]-Inf,0[ none |[0, 19] some|{20,30} many", "]-Inf,0[ NONE |[0, 19] SOME|{20,30} MANY"),
        ("no cats | one cat | {n} cats", "NO CATS | ONE CAT | {N} CATS"),
        ("cat|cats", "CAT|CATS"),
        ("a (b|c) || `d|e` {f|{g}} %|1| h", "A (B|C) || `D|E` {F|{G}} %|1| H"),
        (
            "See <a title='a|b'>this</a> or http://x.y/a|b",
            "SEE <a title='a|b'>THIS</a> OR HTTP://X.Y/A|B",
        ),
        ("{0} is here", "{0} IS HERE"),
        ("The :attribute is :Min: or 10:30.", "THE :attribute IS :MIN: OR 10:30."),
        ("common.buttons.save", "common.buttons.save"),
        ("Save this.", "SAVE THIS."),
        (
            "{n, plural, =0 {no dogs} one {# dog}\n other {# big\ndogs}}",
            "{n, plural, =0 {NO DOGS} one {# DOG}\n other {# BIG\nDOGS}}",
        ),
        (
            "You have {n, plural, offset:1 one {# dog} other {{n} dogs}} and {n} cats.",
            "YOU HAVE {n, plural, offset:1 one {# DOG} other {{N} DOGS}} AND {n} CATS.",
        ),
        (
            "{n, plural, other {a}} {n, plural, other {b}} {n, plural, other {a}}",
            "{n, plural, other {A}} {n, plural, other {B}} {n, plural, other {A}}",
        ),
        (
            "{g, select, a {one {n, plural, one {dog} other {dogs}} x} other {y}}",
            "{g, select, a {ONE {n, plural, one {DOG} other {DOGS}} X} other {Y}}",
        ),
        ("{g, select, a {see '{'b'}' c} other {}}", "{g, select, a {SEE '{'B'}' C} other {}}"),
        ("one {n, plural, other {dogs}", "ONE {N, PLURAL, OTHER {DOGS}"),
        ("one {n, plural, x} dog}", "ONE {N, PLURAL, X} DOG}"),
    ],
)
def test_variants_are_translated_and_their_syntax_is_kept(source: str, expected: str) -> None:
    document = parse_json(json.dumps({"a": source}), "a")
    assert json.loads(translated(document))["a"] == expected


def test_names_are_fixed_in_json() -> None:
    document = parse_json(
        '{"a": ":name sees @:a.b, @.lower:a.c, 10:30, a:b, ::c, :d: and (:Count)"}', "a"
    )
    (block,) = document.blocks
    assert [span.translation for span in block.fixed] == [":name", ":Count"]


def test_a_sentence_has_a_name_in_place_of_a_message() -> None:
    document = parse_json('{"a": "I see {n, plural,\\n one {a dog} other {# dogs}} now."}', "a")
    assert [texts(document), document.blocks[0].fixed] == [
        ["I see {n} now.", "a dog", "# dogs"],
        (FixedSpan(6, 9, "{n}"),),
    ]
    rendered = document.render(
        [RichText("Jetzt {n}."), RichText("ein Hund"), RichText("# Hunde")]
    ).decode()
    assert rendered == '{"a": "Jetzt {n, plural,\\n one {ein Hund} other {# Hunde}}."}'
    rendered = document.render(
        [RichText("Jetzt."), RichText("ein Hund"), RichText("# Hunde")]
    ).decode()
    # No message is lost.
    assert "I see {n, plural,\\n one {ein Hund} other {# Hunde}} now." in rendered


@pytest.mark.parametrize(
    ("variant", "translation", "expected"),
    [
        ("the {y}", "l'{y}", "l''{y}"),
        ("dogs", "chiens l'", "chiens l''"),
        ("see '{'x", "sieh '{'x", "sieh '{'x"),
        ("the {y}", "der {y", "the {y}"),
        ("the {y}", "der {y}}", "the {y}"),
    ],
)
def test_a_translation_does_not_break_a_message(
    variant: str, translation: str, expected: str
) -> None:
    document = parse_json(json.dumps({"a": f"{{n, plural, other {{{variant}}}}}"}), "a")
    rendered = document.render([RichText(translation)]).decode()
    assert json.loads(rendered)["a"] == f"{{n, plural, other {{{expected}}}}}"


NUMBERS = st.sampled_from(["", "{0} ", "[1,19] ", "]1,Inf[", "{0,1}", "[ 2, * ]"])
BARS = st.sampled_from(["|", " | ", "  |\u00a0"])


@given(
    st.lists(
        st.tuples(NUMBERS, st.sampled_from(["a dog", "{n} dogs", ":n", "x (a|b)", "3"])), min_size=2
    ),
    BARS,
)
def test_any_variants_are_separate(variants: list[tuple[str, str]], bar: str) -> None:
    source = bar.join(numbers + text for numbers, text in variants)
    document = parse_json(json.dumps({"a": source}), "a")
    assert texts(document) == [text for _, text in variants]
    rendered = document.render([RichText("T")] * len(document.blocks)).decode()
    assert json.loads(rendered)["a"] == bar.join(f"{numbers}T" for numbers, _ in variants)


MESSAGES = st.recursive(
    st.sampled_from(["", "a dog", "# dogs", " x {y} ", "it's", "n", "{n}"]),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(
        lambda variants: (
            f"b {{n, select, {' '.join(f'k{i} {{{text}}}' for i, text in enumerate(variants))}}} c"
        )
    ),
    max_leaves=6,
)


@given(MESSAGES)
def test_any_message_keeps_its_syntax(text: str) -> None:
    document = parse_json(json.dumps({"a": text}), "a")
    assert json.loads(document.render(document.blocks))["a"] == text
    result = json.loads(translated(document))["a"]
    assert result.casefold() == text.casefold()
    assert result.count("{n, select, k0 {") == text.count("{n, select, k0 {")


@pytest.mark.parametrize(
    "piece", ["{n, plural, ", "{n, plural, a {", "{", "}", "a|", "{0}|", "(|", "'{", "{a}{", "[1,"]
)
def test_long_unfinished_messages(piece: str) -> None:
    source = json.dumps({"a": piece * 20_000})  # quadratic time would be many minutes
    document = parse_json(source, "a")
    assert document.render(document.blocks).decode() == source


def test_json_lines() -> None:
    source = '{"a": "one"}\n\n{}\n"no"\n{"a": "two", "b": "x"}\r\n'
    assert translated(parse_json(source, "a")).decode() == source.replace("one", "ONE").replace(
        "two", "TWO"
    )


def test_a_lone_surrogate_does_not_fail() -> None:
    source = '{"a": "\\ud800 x"}'
    document = parse_json(source, "a")
    assert texts(document) == ["\ufffd x"]
    assert document.render(document.blocks).decode() == source


@pytest.mark.parametrize(
    ("keys", "message", "hint"),
    [
        (
            [],
            "--key is required",
            (
                "key paths with strings: title, items.*.text, items.*.id, tags.*, tags.*.*, a.b.c,"
                " empty"
            ),
        ),
        (
            ["titel"],
            "--key titel matches no string",
            "did you mean 'title'? (key paths with strings: title, ",
        ),
        (["price"], "--key price matches no string", ""),
    ],
)
def test_the_key_must_exist(keys: list[str], message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as error:
        parse_json(JSON, *keys)
    assert hint in error.value.hint


def test_at_most_ten_key_paths_are_listed() -> None:
    with pytest.raises(UsageError) as error:
        parse_json(json.dumps({f"k{i}": "x" for i in range(15)}))
    assert error.value.hint.endswith("k8, k9 and 5 more")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('{"a": "x",\n}', "line [12]: not valid JSON"),
        ('{"a": "x"', "line 1: not valid JSON"),
        ('{"a": "x"}\n{"a": }\n', "line 2: not valid JSON"),
        ("", "line 1: not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 101 + '"a"' + "]" * 101, "nested more than 100 levels deep"),
        (b'{"a":\n"\xff"}', "line 2, byte . of the line: not UTF-8"),
        ("[1" + "0" * 10_000 + "]", "not valid JSON"),
    ],
)
def test_malformed_json_is_rejected(source: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse_json(source, "a")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(VALUES, st.sampled_from([None, 2]), st.booleans())
def test_any_json_keeps_its_structure(
    value: object, indent: int | None, ensure_ascii: bool
) -> None:
    source = json.dumps({"x": "y", "value": value}, indent=indent, ensure_ascii=ensure_ascii)
    document = parse_json(source.encode("utf-8", "replace"), "**")
    data = source.encode("utf-8", "replace")
    assert document.render(document.blocks) == data
    assert repr(json.loads(translated(document, lambda block: RichText("T")))) == repr(
        _translated(json.loads(data))
    )


def _translated(value: object) -> object:
    """Return a JSON value with the text of all strings replaced by T."""
    if isinstance(value, dict):
        return {key: _translated(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_translated(each) for each in value]
    if not isinstance(value, str) or not value.strip():
        return value
    plain = StringLines(
        value.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), has_bars=True
    )
    return plain.render([RichText("T")] * len(plain.blocks))


def test_inline_tags_of_strings_stay_around_their_words() -> None:
    string = "he had to <b class='x'>get up</b> and <0>go</0> %s"
    lines = StringLines(string, ["%s"])
    assert [block.text for block in lines.blocks] == ["he had to get up and go %s"]
    assert lines.blocks[0].fixed == (FixedSpan(24, 26, "%s"),)
    expected = "%s <0>go</0> and <b class='x'>up get</b> to had he"
    assert lines.render(map(reverse_words, lines.blocks)) == expected
    assert lines.render(lines.blocks) == string


@pytest.mark.parametrize(
    "string",
    [
        "<p>one</p><p>two</p>",
        "<p>one <b>big</b> dog</p>",
        "one <b>big</b><br>dog",
        "<a>one</a><a>two</a>",
        "one <b>big</b> <name>",
        "a < b",
        "x</b> y <b>",
    ],
)
def test_other_tags_of_strings_are_text(string: str) -> None:
    assert [block.text for block in StringLines(string).blocks] == [string]
