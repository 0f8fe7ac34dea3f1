"""PO and POT files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stub_translations import OPTIONS, texts, translated

from nmt.core.errors import DataError
from nmt.documents import po
from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions
from nmt.documents.splicing import SplicedDocument

HEADER = """\
# Translations of an example.
#, fuzzy
msgid ""
msgstr ""
"Project-Id-Version: example 1.0\\n"
"Language: \\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=CHARSET\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\\n"

"""
ENTRIES = """\
#. Shown on the first page.
#: src/a.c:10 src/a_file_with_a_long_name.c:200 src/another_file_with_a_long_name.c:3000
#, c-format
msgid "hello %s, \\"friend\\"\\n"
msgstr ""

#~ msgid "old"
#~ msgstr "alt"

msgctxt "menu"
msgid   "&open"
msgstr  ""

#, fuzzy
#| msgid "close it"
msgid "close"
msgstr "zumachen"

msgid "done"
msgstr "fertig"

#, c-format
msgid "one file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
# a trailing comment
"""


def parse(source: str | bytes, **options: object) -> SplicedDocument:
    data = source.encode() if isinstance(source, str) else source
    return po.parse(data, DocumentOptions(**{**OPTIONS, **options}))


def copied(
    source: str, translate: Callable[[RichText], RichText] = lambda block: block, **options: object
) -> str:
    return translated(parse(source, **options), translate).decode()


def filled(text: str, **options: object) -> str:
    """Return the lines of the translation of one message into itself."""
    return copied(f'msgid {text}\nmsgstr ""\n', **options).split("\nmsgstr ", 1)[1].rstrip("\n")


def msgfmt(path: Path, content: str) -> None:
    """Check a file with gettext's own compiler."""
    if not shutil.which("msgfmt"):
        pytest.skip("gettext is not installed")
    path.write_text(content, encoding="utf-8", newline="")
    done = subprocess.run(
        ["msgfmt", "-c", "-o", str(path.with_suffix(".mo")), str(path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_only_empty_translations_are_filled() -> None:
    document = parse(HEADER + ENTRIES)
    assert texts(document) == ['hello %s, "friend"', "open", "one file", "%d files"]
    expected = ENTRIES.replace(
        '"friend\\"\\n"\nmsgstr ""', '"friend\\"\\n"\nmsgstr "hello %s, \\"friend\\"\\n"'
    )
    expected = expected.replace('"&open"\nmsgstr  ""', '"&open"\nmsgstr "&open"')
    expected = expected.replace(
        'msgstr[0] ""\nmsgstr[1] ""', 'msgstr[0] "one file"\nmsgstr[1] "%d files"'
    )
    assert copied(HEADER + ENTRIES).endswith(expected)


def test_the_header_of_a_template_is_completed(tmp_path: Path) -> None:
    content = copied(HEADER + ENTRIES)
    assert content.startswith(
        HEADER.replace("#, fuzzy\n", "")
        .replace("Language: ", "Language: de")
        .replace("CHARSET", "UTF-8")
        .replace("nplurals=INTEGER; plural=EXPRESSION;", "nplurals=2; plural=(n != 1);")
    )
    msgfmt(tmp_path / "de.po", content)


def test_a_document_can_be_rendered_again() -> None:
    document = parse(HEADER + ENTRIES)
    assert document.render(document.blocks) == document.render(document.blocks)


def test_all_entries_can_be_translated_again(tmp_path: Path) -> None:
    content = copied(HEADER + ENTRIES, retranslate=True)
    assert '\n#| msgid "close it"\nmsgid "close"\nmsgstr "close"\n' in content
    assert "fuzzy" not in content
    assert 'msgid "done"\nmsgstr "done"\n' in content
    assert '#~ msgstr "alt"' in content
    msgfmt(tmp_path / "de.po", content)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_a_complete_file_is_unchanged(line_end: str, bom: str) -> None:
    content = bom + copied(HEADER + ENTRIES).replace("\n", line_end)
    assert parse(content).blocks == []
    assert copied(content) == content


def test_line_ends_are_those_of_the_file() -> None:
    content = copied((HEADER + ENTRIES).replace("\n", "\r\n"))
    assert "\n" not in content.replace("\r\n", "")


@pytest.mark.parametrize(
    ("language", "forms"),
    [
        ("de", ["one", "many"]),
        ("ja", ["many"]),
        ("pl", ["one", "many", "many"]),
        ("ar", ["many", "one", *["many"] * 4]),
    ],
)
def test_plural_forms_of_the_language(tmp_path: Path, language: str, forms: list[str]) -> None:
    entry = 'msgid "one"\nmsgid_plural "many"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    content = copied(HEADER + entry, tgt=language)
    (parsed,) = polib.pofile(content)
    assert [text for _, text in sorted(parsed.msgstr_plural.items())] == forms
    msgfmt(tmp_path / "x.po", content)


def test_a_singular_without_the_number_is_not_used_for_other_numbers() -> None:
    entry = 'msgid "one file"\nmsgid_plural "%d files"\nmsgstr[0] ""\n'
    assert 'msgstr[0] "%d files"\nmsgstr[1] "%d files"' in copied(HEADER + entry, tgt="ru")
    assert 'msgstr[0] "%d file"\nmsgstr[1] "%d files"' in copied(
        HEADER + entry.replace("one", "%d"), tgt="ru"
    )
    assert 'msgstr[0] "one file"\nmsgstr[1] "%d files"' in copied(HEADER + entry, tgt="fr")


def test_the_plural_forms_of_the_header_win() -> None:
    header = HEADER.replace(
        "nplurals=INTEGER; plural=EXPRESSION;", "nplurals=3; plural=n==1 ? 2 : 0;"
    )
    content = copied(header + 'msgid "one"\nmsgid_plural "many"\nmsgstr[0] ""\n')
    assert 'msgstr[0] "many"\nmsgstr[1] "many"\nmsgstr[2] "one"\n' in content


@pytest.mark.parametrize(
    ("source", "text", "translation", "expected"),
    [
        ("&File", "File", "Datei", "&Datei"),
        ("&File", "File", "Neue Form", "Neue &Form"),
        ("E_xit", "Exit", "Exit", "E_xit"),
        ("E&xit", "Exit", "Exit", "E&xit"),
        (r"&Quit\tCtrl+Q", "Quit", "Verlassen", r"&Verlassen\tCtrl+Q"),
        (r"&Quit\tCtrl+Q", "Quit", "Quit", r"&Quit\tCtrl+Q"),
        (r"\t&Quit", "Quit", "Verlassen", r"\t&Verlassen"),
        (r"Qui&t \t\tCtrl+Q", "Quit", "Verlassen mit", r"Verlassen mi&t \t\tCtrl+Q"),
        ("R&amp;D costs", "R&amp;D costs", "x", "x"),
        ("T_t", "Tt", "Tt", "T_t"),
        ("_Save as", "Save as", "Datei speichern", "Datei _speichern"),
        (
            "Save &amp; exit",
            "Save &amp; exit",
            "Speichern &amp; beenden",
            "Speichern &amp; beenden",
        ),
        ("R&D", "R&D", "F&E", "F&E"),
        ("file_name", "file_name", "file_name", "file_name"),
        ("_a_", "_a_", "_a_", "_a_"),
        ("a & b", "a & b", "a & b", "a & b"),
        ("%(a)s&b", "%(a)s&b", "%(a)s&b", "%(a)s&b"),
    ],
)
def test_accelerator_keys(source: str, text: str, translation: str, expected: str) -> None:
    document = parse(f'msgid "{source}"\nmsgstr ""\n')
    assert texts(document) == [text]
    assert document.render([RichText(translation)]).decode().endswith(f'msgstr "{expected}"\n')


def test_only_the_end_of_a_label_is_a_shortcut() -> None:
    assert texts(parse('msgid "&Name:\\n\\tthe name"\nmsgstr ""\n')) == ["Name:", "the name"]
    assert texts(parse('msgid "Name\\t&Size"\nmsgstr ""\n')) == ["Name", "Size"]


def test_newlines_around_a_message_are_kept() -> None:
    assert filled('"\\n  text \\n\\n"') == '""\n"\\n"\n"  text \\n"\n"\\n"'


def test_long_translations_are_wrapped_as_in_the_file() -> None:
    long = "word " * 20 + "end"
    assert filled(f'"{long}"') == f'"{long}"'
    wrapped = filled('""\n"' + "word " * 14 + '"\n"word word word word word word end"')
    assert [len(line) <= 79 for line in wrapped.split("\n")] == [True] * 3
    assert polib.pofile(f'msgid ""\nmsgstr ""\n\nmsgid "x"\nmsgstr {wrapped}\n')[0].msgstr == long


def test_lines_of_a_message_are_blocks() -> None:
    document = parse(
        'msgid ""\n"First line\\n"\n"continues.\\n"\n"\\n"\n"  - item\\n"\nmsgstr ""\n'
    )
    assert texts(document) == ["First line", "continues.", "item"]


def test_an_entry_that_gets_all_its_forms_is_not_fuzzy_anymore() -> None:
    entry = '#, fuzzy\nmsgid "%d page"\nmsgid_plural "%d pages"\nmsgstr[0] ""\nmsgstr[1] "'
    assert "fuzzy" not in copied(HEADER.replace("#, fuzzy\n", "") + entry + '"\n')
    assert "#, fuzzy" in copied(HEADER.replace("#, fuzzy\n", "") + entry + 'x"\n')


def test_escapes_are_read_and_written() -> None:
    assert texts(parse('msgid "a\\tb \\\\ \\"c\\" \\101\\x42"\nmsgstr ""\n')) == [
        "a",
        'b \\ "c" AB',
    ]
    assert texts(parse('msgid "caf\\303\\251"\nmsgstr ""\n')) == ["café"]
    assert filled('"a\\tb \\\\ \\"c\\""') == '"a\\tb \\\\ \\"c\\""'


@pytest.mark.parametrize(
    ("flags", "text", "specifiers"),
    [
        (
            "c-format",
            "%d%% of %'d in %.*s, %<PRIu64> and %-5.2f",
            ["%d%%", "%'d", "%.*s", "%<PRIu64>", "%-5.2f"],
        ),
        ("fuzzy, python-format", "%(price).2f%% of 5% of %%", ["%(price).2f%%", "%%"]),
        ("ruby-format, wrap", "%{name} and %<age>d", ["%{name}", "%<age>d"]),
        ("qt-format", "%n of %1 or %L2", ["%n", "%1", "%L2"]),
        ("object-pascal-format", "%0:s is 5 % of it", ["%0:s"]),
        ("php-format", "<a href='%1$s'>%s</a> or https://x.org/%s: %d%%", ["%s", "%d%%"]),
        ("c-format", "cannot rename `%s' to `%s' or {%s and %d}", ["%s", "%s", "%s", "%d"]),
        ("c-format", "%05.1f of %0", ["%05.1f", "%0"]),
        ("c-format", "% d of %I64d and %*3$i, 50% of", ["% d", "%I64d", "%*3$i"]),
        ("c-format", "Save 50 % e.g. now, 80\u00a0% d'x, 9.5\u202f% d and {0} % d", ["{0}"]),
        (
            "python-format",
            "%(num-files)d of %(first name)s and 100%(now)",
            ["%(num-files)d", "%(first name)s"],
        ),
        ("python-format", "50%(see x), 10%(e.g.) and 5%, %s", ["%s"]),
        ("java-printf-format", "%,d and %(d dogs", ["%,d", "%(d"]),
        (
            "java-format",
            "{1,choice,0#none|1#one dog|1<{1} dogs}",
            ["{1,choice,0#none|1#one dog|1<{1} dogs}"],
        ),
        ("boost-format", "%|2$s| dogs", ["%|2$s|"]),
        ("no-c-format", "100%d", []),
        ("wrap", "100%d", []),
    ],
)
def test_all_specifiers_of_a_format_are_fixed(flags: str, text: str, specifiers: list[str]) -> None:
    (block,) = parse(f'#, {flags}\nmsgid "{text}"\nmsgstr ""\n', retranslate=True).blocks
    assert [block.text[span.start : span.end] for span in block.fixed] == specifiers
    assert [span.translation for span in block.fixed] == specifiers


def test_other_encodings_are_kept() -> None:
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n\n'
    document = parse((header + 'msgid "é"\nmsgstr ""\n').encode("latin-1"))
    assert 'msgstr "È"' in document.render([RichText("È")]).decode("latin-1")
    with pytest.raises(DataError, match="ISO-8859-1, lacks the character '語'"):
        document.render([RichText("語")])


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('msgid "a"\n', "line 1: an entry needs msgid and msgstr"),
        ('msgstr "a"\n', "line 1: msgstr without msgid"),
        ('msgid "a"\nmsgstr "b"\nmsgstr "c"\n', "line 3: msgstr occurs twice"),
        ('msgid "a"\nmsgstr "b\n', "line 2: .* is not valid"),
        ('msgid "a"\nwhat "b"\n', "line 2: .* is not valid"),
        ("<html>", "line 1: .* is not valid"),
        (b'msgid "\xe4"\nmsgstr ""\n', "line 1, byte 8 of the line: not UTF-8"),
        ('msgid ""\nmsgstr "Language: fr\\n"\n', "Language: fr, but the target language is de"),
        (
            (
                'msgid ""\nmsgstr "Content-Type: x; charset=none\\n"\n"Content-Type: x;'
                ' charset=none\\n"\n'
            ),
            "unknown encoding 'none'",
        ),
    ],
)
def test_malformed_files_are_rejected(source: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        parse(source)


def test_the_language_of_the_header_is_not_checked_while_the_source_is_unknown() -> None:
    source = 'msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "a"\nmsgstr ""\n'
    assert texts(parse(source, src="")) == ["a"]


def test_unknown_plural_forms_are_an_error() -> None:
    source = 'msgid "a"\nmsgid_plural "b"\nmsgstr[0] ""\n'
    with pytest.raises(DataError, match="number of plural forms of 'xx' is unknown"):
        parse(source, tgt="xx")
    with pytest.raises(DataError, match="invalid Plural-Forms"):
        parse('msgid ""\nmsgstr "Plural-Forms: nplurals=2; plural=n!;\\n"\n\n' + source)


MESSAGES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), min_size=1)


@given(st.lists(MESSAGES, unique=True, max_size=4))
def test_any_message_is_copied(messages: list[str]) -> None:
    source = "\n".join(
        f'msgid "{message.translate(po.TO_ESCAPE)}"\nmsgstr ""\n' for message in messages
    )
    entries = list(po.read_entries(po.TextFile(copied(source))))
    for entry, message in zip(entries, messages, strict=True):
        assert entry.id == message
        assert entry.translations[0].text == message


def test_a_field_is_added_to_a_header_without_a_final_newline() -> None:
    content = copied(
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8"\n\nmsgid "a"\nmsgstr ""\n',
        tgt="de",
    )
    assert polib.pofile(content).metadata == {
        "Content-Type": "text/plain; charset=UTF-8",
        "Language": "de",
    }


def test_a_copy_of_the_source_gets_the_plural_forms_of_the_target() -> None:
    header = (
        'msgid ""\nmsgstr ""\n"Language: en\\n"\n"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n'
    )
    entry = '\nmsgid "one"\nmsgid_plural "many"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    (parsed,) = polib.pofile(copied(header + entry, tgt="pl"))
    assert [text for _, text in sorted(parsed.msgstr_plural.items())] == ["one", "many", "many"]


def test_flags_of_an_obsolete_entry_are_not_those_of_the_next_one() -> None:
    source = '#, fuzzy\n#~ msgid "x"\n#~ msgstr "y"\n\nmsgid "a"\nmsgstr "b"\n'
    (entry,) = po.read_entries(po.TextFile(source))
    assert entry.flags == []


def test_the_names_of_the_translators_are_not_translated() -> None:
    source = """
msgid "translator-credits"
msgstr ""

msgctxt "NAME OF TRANSLATORS"
msgid "Your names"
msgstr ""
"""
    document = po.parse(source.encode(), DocumentOptions("en", "de"))
    assert document.blocks == []
    assert document.render([]).decode() == source


def test_a_header_without_the_first_form_is_no_header() -> None:
    source = 'msgid ""\nmsgstr[1] "x"\n\nmsgid "a dog"\nmsgstr ""\n'
    document = po.parse(source.encode(), DocumentOptions("en", "de"))
    assert document.render(document.blocks).decode() == source.replace(
        '"a dog"\nmsgstr ""', '"a dog"\nmsgstr "a dog"'
    )
