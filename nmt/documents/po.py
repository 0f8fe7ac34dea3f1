"""PO and POT files of gettext.

Translations go into empty `msgstr` fields; everything else is copied. Entries marked as fuzzy have
a translation, of another text as a rule, which a person is to revise; they are only replaced if
entries with a translation are, too, and then lose the mark, because gettext ignores fuzzy
translations.

Specification: https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from gettext import c2py
from itertools import chain, pairwise

from nmt.core.errors import DataError
from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions
from nmt.documents.splicing import Edit, SplicedDocument, next_blocks
from nmt.documents.strings import StringLines
from nmt.documents.text_file import TextFile
from nmt.text.language_codes import base_language
from nmt.text.spans import ICU_MESSAGE

PLURAL_FORMS = {
    "nplurals=1; plural=0;": "id ja ko lo ms my th vi zh",
    "nplurals=2; plural=(n != 1);": (
        "af az bg bn ca da de el en eo es et eu fi fo fy gl gu he hi hu hy ia it ka kk kn ku ky lb"
        " ml mn mr nb ne nl nn no pa pt si so sq sv sw ta te tk tr ur uz"
    ),
    "nplurals=2; plural=(n > 1);": "ak am br fa fr ln mg oc pt-br ti tl",
    "nplurals=2; plural=(n % 10 != 1 || n % 100 == 11);": "is mk",
    "nplurals=3; plural=(n % 10 == 1 && n % 100 != 11 ? 0 : n % 10 >= 2 && n % 10 <= 4 && (n % 100 < 12 || n % 100 > 14) ? 1 : 2);": (  # noqa: E501
        "be bs hr ru sr uk"
    ),
    "nplurals=3; plural=(n == 1 ? 0 : n % 10 >= 2 && n % 10 <= 4 && (n % 100 < 12 || n % 100 > 14) ? 1 : 2);": (  # noqa: E501
        "pl"
    ),
    "nplurals=3; plural=(n == 1 ? 0 : n >= 2 && n <= 4 ? 1 : 2);": "cs sk",
    "nplurals=3; plural=(n % 10 == 1 && n % 100 != 11 ? 0 : n % 10 >= 2 && (n % 100 < 10 || n % 100 >= 20) ? 1 : 2);": (  # noqa: E501
        "lt"
    ),
    "nplurals=3; plural=(n % 10 == 1 && n % 100 != 11 ? 0 : n != 0 ? 1 : 2);": "lv",
    "nplurals=3; plural=(n == 1 ? 0 : n == 0 || (n % 100 > 0 && n % 100 < 20) ? 1 : 2);": "ro",
    "nplurals=4; plural=(n % 100 == 1 ? 0 : n % 100 == 2 ? 1 : n % 100 == 3 || n % 100 == 4 ? 2 : 3);": (  # noqa: E501
        "sl"
    ),
    "nplurals=5; plural=(n == 1 ? 0 : n == 2 ? 1 : n < 7 ? 2 : n < 11 ? 3 : 4);": "ga",
    "nplurals=6; plural=(n == 0 ? 0 : n == 1 ? 1 : n == 2 ? 2 : n % 100 >= 3 && n % 100 <= 10 ? 3 : n % 100 >= 11 ? 4 : 5);": (  # noqa: E501
        "ar"
    ),
}
"""Languages by their header, as gettext's msginit and Unicode CLDR define it."""


def _names_translators(entry: Entry) -> bool:
    """Return whether the translation of an entry is a list of the translators; programs show none
    if it has no translation."""
    return entry.id in CREDITS or entry.context in CREDITS


CHECK = "check it with msgfmt -c"
CREDITS = frozenset(
    ("translator-credits", "translator_credits", "NAME OF TRANSLATORS", "EMAIL OF TRANSLATORS")
)
"""The `msgid`, of GNOME, or the `msgctxt`, of KDE, of the names of the translators."""
MAX_PLURAL_FORMS = 10
LINE_LENGTH = 79
"""Columns, like gettext."""
MAX_LABEL_LENGTH = 40
"""Characters of a text that may have an accelerator key."""

_STRING = r'"(?:[^"\\\n]|\\[^\n])*"'
_FIELD = re.compile(
    rf"[ \t]*(?P<keyword>msgctxt|msgid_plural|msgid|msgstr|domain)(?:\[(?P<index>\d{{1,2}})\])?\s*"
    rf"(?P<value>{_STRING}(?:\s*{_STRING})*)[ \t\r]*(?:\n|\Z)"
)
_COMMENT = re.compile(r"[ \t]*(#[^\n]*)?\r?(?:\n|\Z)")
_QUOTED = re.compile(_STRING)
_ESCAPE = re.compile(r"((?:\\(?:[0-7]{1,3}|x[0-9a-fA-F]{1,2}))+)|\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
TO_ESCAPE = str.maketrans(
    {'"': r"\"", "\\": r"\\", **{char: f"\\{name}" for name, char in _ESCAPES.items()}}
)
_CHARSET = re.compile(rb'"Content-Type:[^"\n]*charset=([\w.:-]+)')
_PLURALS = re.compile(r"nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;]+)")
_UNWRAPPED = re.compile(r'^[^#\n]{0,20}"(?=[^"\n]{80})[^"\n]* [^"\n]+"', re.MULTILINE)
_FORMAT_SPECIFIER = re.compile(
    rf"(?:{ICU_MESSAGE}"
    r"|%L?\d{1,2}(?![\w$:.*])|[$%#]?\{\w*\}|%\|[^|\s]{1,20}\|"
    r"|(?<![\d}])(?<![\d}]\s)% [-+#0]*(?:[1-9]\d*)?[diouxXeEfFgG](?![a-zA-Z'’]|\.\w)"  # not 50 % e.g.  # noqa: E501
    r"|%(?:\([^()\n]{1,99}\)|<\w+>|\{\w+\}|\d+[$:])?[-+#0']*"
    # Flags of Java
    r"(?:,(?=[\d.]*[a-zA-Z](?!\w)))?(?:(?<!\d%)\((?=,?[\d.]*[a-zA-Z](?![\w.)])),?)?"
    r"(?:[1-9.*][\d.*]*\$?)?(?:hh?|ll?|I(?:64|32)|[jztLqIv])?(?:<\w+>|[a-zA-Z%@]))+"
)
_FORMAT_FLAG = re.compile(r"(?<![\w-])(?!no-|impossible-)[\w+-]+-format\b")
"""Mark of a message with format specifiers of a programming language, all of which must be in its
translation."""
_FUZZY = re.compile(r",[ \t]*fuzzy\b")
_ACCELERATOR = re.compile(
    r"(?<![&\w])&(?=\w)(?!#?\w+;)|(?<=[a-z])&(?=[a-z])(?!\w+;)|(?<![_\w])_(?=[^\W_])|(?<=^[A-Z])(?:_|&(?!\w+;))(?=[a-z])"
    r"|(?<=[ ][A-Z])(?:_|&(?!\w+;))(?=[a-z])"
)
_NO_LABEL = re.compile(r"[=/<{%]")
_SHORTCUT = re.compile(r"(?<=\S)[ \t]*\t[^\t\n]+\n*\Z")


@dataclass(frozen=True)
class Field:
    """A `msgstr`, as a range of the file."""

    start: int
    value_start: int
    end: int
    text: str


@dataclass
class Entry:
    """An entry of the file."""

    start: int
    """Offset in the file."""
    flags: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of the comments with flags."""
    context: str | None = None
    id: str | None = None
    plural: str | None = None
    translations: dict[int, Field] = field(default_factory=dict)
    """By plural form; of an entry without plural, the key is 0."""


def parse(data: bytes, options: DocumentOptions) -> SplicedDocument:
    """Parse a PO or POT file.

    Raises:
        DataError: a line is invalid, or the file is for another language.
    """
    charset = _CHARSET.search(data)
    name = charset[1].decode() if charset else "utf-8"
    name = "utf-8" if name == "CHARSET" else name  # of a template
    file = TextFile.decode(data, options.encoding_errors, name)
    entries = list(read_entries(file))
    header = _Header(file, entries, options.src, options.tgt)
    layout = _Layout(_line_end(file), not _UNWRAPPED.search(file.text))
    parts = []
    for entry in entries:
        if entry is not header.entry and not _names_translators(entry):
            parts.append(_Message(file, entry, header, layout, options.retranslate))
    return SplicedDocument(file, parts, list(header.edits()))


def read_entries(file: TextFile) -> Iterator[Entry]:
    """Yield the entries of a file; obsolete entries are comments."""
    text = file.text
    position = 0
    entry: Entry | None = None
    flags = []
    while position < len(text):
        match = _FIELD.match(text, position) or _COMMENT.match(text, position)
        if not match:
            line = text[position:].partition("\n")[0].strip()
            raise _invalid(file, position, f"'{line[:60]}' is not valid in a PO file")
        position = match.end()
        if match.re is _COMMENT:
            comment = match[1] or ""
            if comment.startswith("#,"):
                flags.append(match.span(1))
            elif comment.startswith("#~"):  # the flags are those of an obsolete entry
                flags = []
            continue
        keyword = match["keyword"]
        is_start = keyword == "msgid" and (entry is None or entry.id is not None)
        if keyword == "msgctxt" or is_start:
            if entry:
                yield _checked(entry, file)
            entry = Entry(match.start("keyword"), flags)
            flags = []
        if keyword != "domain":
            _add_field(entry, match, file)
    if entry:
        yield _checked(entry, file)


def _invalid(file: TextFile, position: int, problem: str) -> DataError:
    return DataError(f"line {file.line(position)}: {problem}", CHECK)


def _checked(entry: Entry, file: TextFile) -> Entry:
    if entry.id is None or not entry.translations:
        raise _invalid(file, entry.start, "an entry needs msgid and msgstr")
    return entry


def _unescape(text: str, encoding: str) -> str:
    if encoding.startswith(("utf-16", "utf-32")):
        encoding = "utf-8"

    def character(match: re.Match[str]) -> str:
        if match[1] is None:
            return _ESCAPES.get(match[2], match[2])
        codes = bytearray()  # they are bytes of the encoding
        for code in match[1].split("\\")[1:]:
            value = int(code[1:], 16) if code[0] == "x" else int(code, 8)
            codes.append(value & 255)
        return codes.decode(encoding, "replace")

    return _ESCAPE.sub(character, text)


def _add_field(entry: Entry | None, match: re.Match[str], file: TextFile) -> None:
    keyword = match["keyword"]
    start = match.start("keyword")
    strings = _QUOTED.findall(match["value"])
    text = "".join(_unescape(each[1:-1], file.encoding) for each in strings)
    if entry is None or (entry.translations and keyword != "msgstr"):
        raise _invalid(file, start, f"{keyword} without msgid")
    if keyword == "msgctxt":
        entry.context = text
    elif keyword == "msgid":
        entry.id = text
    elif keyword == "msgid_plural":
        entry.plural = text
    else:
        index = int(match["index"] or 0)
        if index in entry.translations:
            raise _invalid(file, start, "msgstr occurs twice")
        entry.translations[index] = Field(start, *match.span("value"), text)


class _Header:
    """The entry with an empty `msgid`, which describes the file."""

    def __init__(
        self, file: TextFile, entries: Sequence[Entry], source_language: str, language: str
    ) -> None:
        self.file = file
        self.language = language.replace("-", "_")
        headers = (each for each in entries if each.id == "" and each.context is None)
        self.entry = next((each for each in headers if 0 in each.translations), None)
        self.fields: dict[str, str] = defaultdict(str)
        for line in self.entry.translations[0].text.split("\n") if self.entry else ():
            name, _, value = line.partition(":")
            self.fields[name.strip()] = value.strip()
        declared = base_language(self.fields["Language"])
        self._is_other = declared != base_language(language)
        # A file that was copied as a template has the language of the source.
        is_source = declared == base_language(source_language)
        if declared and source_language and self._is_other and not is_source:
            raise DataError(
                f"the header says Language: {self.fields['Language']}, but the target language is"
                f" {self.language}",
                "use a model for that language, or correct the header",
            )
        self._set_plurals(entries)

    def _set_plurals(self, entries: Sequence[Entry]) -> None:
        plurals = self.fields["Plural-Forms"]
        with_plurals = [each for each in entries if each.plural is not None]
        forms = [form for each in with_plurals for form in each.translations.values()]
        is_copy = (
            self.fields["Language"] and self._is_other and not any(form.text for form in forms)
        )
        known = _plural_forms(self.language)
        is_set = _PLURALS.search(plurals) and not (is_copy and known)
        self.plurals = plurals if is_set else known
        self._sets_plurals = not is_set and known and (with_plurals or plurals)

    @cached_property
    def forms(self) -> tuple[int, int, bool]:
        """Number of plural forms, the index of the form for the number 1, and whether it is for
        larger numbers, too."""
        match = _PLURALS.search(self.plurals)
        if not match:
            raise DataError(
                f"the number of plural forms of '{self.language}' is unknown",
                'add a line such as "Plural-Forms: nplurals=2; plural=(n != 1);\\n" to the header',
            )
        try:
            form = c2py(match[2].strip())
            index = form(1)
            is_shared = any(form(n) == index for n in range(2, 200))
            if not 1 <= int(match[1]) <= MAX_PLURAL_FORMS:
                raise ValueError
        except (ValueError, ArithmeticError):
            raise DataError(
                f"the header has invalid Plural-Forms: '{self.plurals}'", "see msginit"
            ) from None
        return int(match[1]), index, is_shared

    def edits(self) -> Iterator[Edit]:
        """Yield the changes of the header."""
        if self.entry is None or not self.entry.translations[0].text:
            return
        content_type = self.fields["Content-Type"]
        is_template = "CHARSET" in content_type or not self.fields["Language"]
        changes = {}
        if self._is_other:
            changes["Language"] = self.language
        if "CHARSET" in content_type:
            changes["Content-Type"] = content_type.replace("CHARSET", "UTF-8")
        if self._sets_plurals:
            changes["Plural-Forms"] = self.plurals
        if changes:
            yield self._changed(self.entry.translations[0], changes)
        if is_template:  # gettext ignores the header of a template, too
            yield from _without_fuzzy(self.file, self.entry)

    def _changed(self, msgstr: Field, changes: Mapping[str, str]) -> Edit:
        value = self.file.text[msgstr.value_start : msgstr.end]
        if not msgstr.text.endswith("\n"):
            value = value[:-1] + '\\n"'
        for name, content in changes.items():
            line = f"{name}: {content}\\n"
            old = re.search(rf'(?:(?<=")|(?<=\\n)){name}:(?:[^"\\]|\\[^n]|"\s*")*\\n', value)
            if old:
                value = value[: old.start()] + line + value[old.end() :]
            else:
                value += f'{_line_end(self.file)}"{line}"'
        return Edit(msgstr.value_start, msgstr.end, value)


def _line_end(file: TextFile) -> str:
    return "\r\n" if "\r\n" in file.text else "\n"


def _plural_forms(language: str) -> str:
    """Return the header for the plural forms of a language, "" if it is unknown."""
    for name in (language.lower().replace("_", "-"), base_language(language)):
        for forms, languages in PLURAL_FORMS.items():
            if name in languages.split():
                return forms
    return ""


def _without_fuzzy(file: TextFile, entry: Entry) -> Iterator[Edit]:
    for start, end in entry.flags:
        flags = file.text[start:end]
        rest = _FUZZY.sub("", flags, count=1)
        if rest.strip() == "#":  # remove the line
            start = file.text.rfind("\n", 0, start) + 1
            end = file.text.find("\n", end) + 1
            rest = ""
        if rest != flags:
            yield Edit(start, end, rest)


@dataclass(frozen=True)
class _Layout:
    """How strings are written."""

    line_end: str
    is_wrapped: bool
    """Whether long strings are wrapped at `LINE_LENGTH`."""

    def write(self, keyword: str, text: str) -> str:
        """Return the lines of a field."""
        lines = re.findall(r"[^\n]*\n|[^\n]+", text)
        escaped = [line.translate(TO_ESCAPE) for line in lines] or [""]
        is_long = len(keyword) + len(escaped[0]) + 3 > LINE_LENGTH
        if len(escaped) == 1 and not (self.is_wrapped and is_long):
            return f'{keyword} "{escaped[0]}"'
        if self.is_wrapped:
            escaped = list(chain.from_iterable(map(_wrap, escaped)))
        return self.line_end.join([f'{keyword} ""', *(f'"{line}"' for line in escaped)])


def _wrap(line: str) -> list[str]:
    return textwrap.TextWrapper(
        LINE_LENGTH - 2,
        drop_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    ).wrap(line)


class _Message:
    """An entry, as a part of the file."""

    def __init__(
        self, file: TextFile, entry: Entry, header: _Header, layout: _Layout, retranslate: bool
    ) -> None:
        self.file = file
        self.entry = entry
        self.layout = layout
        to_translate = [
            i for i, msgstr in entry.translations.items() if retranslate or not msgstr.text
        ]
        self.is_translated = len(to_translate) == len(entry.translations)
        """Whether all forms are new, so that they are not fuzzy anymore."""
        self.labels: dict[int, _Label] = {}
        """By plural form; only forms to translate."""
        self._surplus: list[int] = []  # plural forms that the language does not have
        has_format = any(_FORMAT_FLAG.search(file.text, *flags) for flags in entry.flags)
        self._protected = (_FORMAT_SPECIFIER.pattern,) if has_format else ()
        if to_translate and entry.id and entry.plural is None:
            self.labels = {0: _Label(entry.id, self._protected)}
        elif to_translate and entry.id:
            self._add_plural_forms(header, to_translate)
        self._label_set = list(dict.fromkeys(self.labels.values()))  # plural forms share a label
        self.blocks = [block for label in self._label_set for block in label.blocks]

    def _add_plural_forms(self, header: _Header, to_translate: Sequence[int]) -> None:
        num_forms, one, is_shared = header.forms
        texts = (self.entry.id or "", self.entry.plural or "")
        singular, plural = (_Label(text, self._protected) for text in texts)
        specifiers = [set(_FORMAT_SPECIFIER.findall(text)) for text in texts]
        # "One file" is not correct for 21, which has the form of 1 in Russian.
        has_singular = num_forms > 1 and not (is_shared and specifiers[0] != specifiers[1])
        for i in range(num_forms):
            if i in to_translate or i not in self.entry.translations:
                self.labels[i] = singular if i == one and has_singular else plural
        self._surplus = [i for i in to_translate if i >= num_forms]

    def edits(self, translations: Sequence[RichText]) -> Iterable[Edit]:
        """Yield the changed fields of the entry."""
        if not self.labels:
            return
        remaining = iter(translations)
        texts = {}
        for label in self._label_set:
            texts[label] = label.render(next_blocks(remaining, label))
        new_fields = []
        fields = self.entry.translations
        for i, label in self.labels.items():
            keyword = "msgstr" if self.entry.plural is None else f"msgstr[{i}]"
            text = self.layout.write(keyword, texts[label])
            if i in fields:
                yield Edit(fields[i].start, fields[i].end, text)
            else:
                new_fields.append(self.layout.line_end + text)
        indices = sorted(fields)
        if new_fields:
            end = fields[indices[-1]].end
            yield Edit(end, end, "".join(new_fields))
        for previous, i in pairwise(indices):
            if i in self._surplus:
                yield Edit(fields[previous].end, fields[i].end, "")
        if self.is_translated:
            yield from _without_fuzzy(self.file, self.entry)


class _Label:
    """A message. The mark of its accelerator key, as in `&File` or `_File`, is not translated, nor
    is its shortcut."""

    def __init__(self, text: str, protected: Iterable[str]) -> None:
        self.marked_text = text
        self.mark = self.key = self.shortcut = ""
        marks = list(_ACCELERATOR.finditer(text))
        is_short = len(text) <= MAX_LABEL_LENGTH and not _NO_LABEL.search(text)
        if len(marks) == 1 and is_short and text.count(marks[0][0]) == 1:
            self.mark = marks[0][0]
            text, _, rest = text.partition(self.mark)
            self.key = rest[0]
            shortcut = _SHORTCUT.search(rest)
            if shortcut:
                self.shortcut = shortcut[0]
                rest = rest[: shortcut.start()]
            text += rest
        self.lines = StringLines(text, protected, has_bars=True)
        self.blocks = self.lines.blocks

    def render(self, translations: Sequence[RichText]) -> str:
        """Return the translation, with its key.

        It is that of the source if the texts are equal, otherwise the same letter at the start of a
        word or elsewhere, or the first letter.
        """
        text = self.lines.render(translations)
        if text == self.lines.text:
            return self.marked_text
        if not self.mark:
            return text
        key = re.escape(self.key)
        for pattern in (rf"\b(?={key})", rf"(?={key})", r"(?=\w)"):
            if match := re.search(pattern, text, re.IGNORECASE):
                start = match.start()
                text = text[:start] + self.mark + text[start:]
                break
        return text + self.shortcut
