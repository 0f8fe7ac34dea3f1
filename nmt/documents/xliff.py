"""XLIFF 1.2 and 2.x.

Translations of `source` go into missing and empty `target` elements, and into those whose state
says that they are not translated. Units with translate="no" are skipped. Everything else is copied:
the file is parsed with offsets, and only the ranges that change are replaced. DTDs are not read,
and files that declare entities or attributes are rejected.

Specifications: OASIS, https://docs.oasis-open.org/xliff/v1.2/os/xliff-core.html and
https://docs.oasis-open.org/xliff/xliff-core/v2.1/xliff-core-v2.1.html
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from nmt.core.errors import DataError
from nmt.documents.document import RichText, Tag
from nmt.documents.formats import DocumentOptions
from nmt.documents.rich_text import Event, Sections, events, with_fixed_tags
from nmt.documents.splicing import Edit, SplicedDocument
from nmt.documents.text_file import TextFile, unescape
from nmt.documents.variants import NUMBER_SIGN, bar_spans, syntax_spans
from nmt.text.language_codes import base_language
from nmt.translation.segments import FixedSpan

MAX_PROTECTED_RANGE = 100
"""Maximum number of tags and texts between the markers of a protected range. It bounds the search
for its end."""
UNTRANSLATED_STATES = {"new", "needs-translation", "initial"}
"""States of targets that are placeholders, such as a copy of the source."""

_TAG = r"<[^<>\"']*(?:(?:\"[^\"]*\"|'[^']*')[^<>\"']*)*>"
_START_TAG = re.compile(_TAG)
_TOKEN = re.compile(
    rf"<!--.*?-->|<!\[CDATA\[(?P<cdata>.*?)\]\]>|<\?.*?\?>|(?P<tag>{_TAG})|[^<]+", re.DOTALL
)
_TAG_NAME = re.compile(r"</?(?:[\w.-]+:)?([\w.-]+)")
_PROTECTED = re.compile(r"\s(?:translate\s*=\s*[\"']no|mtype\s*=\s*[\"']protected)[\"']")
_RANGE_ID = re.compile(r"\s(?:rid|startRef)\s*=\s*[\"']([^\"']*)")
_ID = re.compile(r"\sid\s*=\s*[\"']([^\"']*)")
_DECLARATION = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([\w.:-]*)")
_CONTAINERS = {"g", "mrk", "pc"}
"""Inline elements whose content is text to translate. The content of others, such as `ph`, is
native code."""
_VARIABLES = {"x", "ph"}
"""Elements that may stand for a word, such as a name or number that a program inserts."""
_LINE_BREAK = re.compile(
    r"\s(?:ctype\s*=\s*[\"']lb|subType\s*=\s*[\"']xlf:lb|id\s*=\s*[\"']LINE_BREAK(?:_\d+)?)[\"']"
)
_BREAK = "\u2028"
"""Character that represents an element with a line break."""
_SEPARATOR = rf"[\t\r\n{_BREAK}]"
"""Characters that separate sentences."""
_PLAIN_LANGUAGE = re.compile(r"[a-z]{2}(?:[-_][a-z]{4})?(?:[-_][a-z]{2})?", re.IGNORECASE)
_WORD_START, _WORD_END = re.compile(r"\w"), re.compile(r"\w\Z")
_INHERITED = {"translate", "space"}
"""Attributes that hold for the elements inside."""
_STARTS = {"bx": "ex", "bpt": "ept", "sc": "ec", "sm": "em"}
"""Elements that mark the start and end of a range."""


@dataclass
class Element:
    """An element, as a range of the file."""

    name: str
    attributes: dict[str, str]
    inherited: dict[str, str]
    """Attributes of the element or the innermost ancestor that has them."""
    start: int
    inner: int = 0
    """Start of its content."""
    inner_end: int = 0
    end: int = 0
    children: list[Element] = field(default_factory=list)

    def find(self, name: str) -> Element | None:
        """Return the first child with a name."""
        return next((child for child in self.children if child.name == name), None)


def parse(data: bytes, options: DocumentOptions) -> SplicedDocument:
    """Parse XLIFF.

    Raises:
        DataError: the file is not well-formed or not XLIFF, it declares entities, or it is for
            another language.
    """
    declaration = _DECLARATION.match(data.removeprefix(codecs.BOM_UTF8))
    encoding = declaration[1].decode() if declaration else "utf-8"
    file = TextFile.decode(data, options.encoding_errors, encoding)
    root = _Parser(file).parse()
    if root.name != "xliff":
        raise DataError(f"not XLIFF: the file has <{root.name}> in place of <xliff>")
    # Models for several source languages have other codes, such as mul, roa or fr_fr_BE_es.
    source_language = options.src if _PLAIN_LANGUAGE.fullmatch(options.src) else ""
    if root.attributes.get("version", "").startswith("2"):
        files, src, tgt, segment = [root], "srcLang", "trgLang", "segment"
    else:
        files, src, tgt, segment = (
            list(_elements(root, "file")),
            "source-language",
            "target-language",
            "trans-unit",
        )
    for each in files:
        _check_language(file, each, src, source_language)
        _check_language(file, each, tgt, options.tgt)
    edits = [
        _set_attributes(file, each, {tgt: options.tgt})
        for each in files
        if not each.attributes.get(tgt)
    ]
    selected = [
        each for each in _elements(root, segment) if _is_selected(file, each, options.retranslate)
    ]
    return SplicedDocument(
        file, [_Target(file, each, options.tgt) for each in selected], edits, "xmlcharrefreplace"
    )


class _Parser:
    """Finds the elements of a file outside of the segments."""

    def __init__(self, file: TextFile) -> None:
        self.file = file
        self._data = file.text.encode("utf-8", "replace")
        self._is_ascii = file.text.isascii()
        self._root: Element | None = None
        self._open: list[Element] = []
        self._last = (0, 0)  # offset in bytes and in characters
        self._expat = expat.ParserCreate("utf-8", " ")  # the text is decoded before it is parsed
        self._expat.StartElementHandler = self._start
        self._expat.EndElementHandler = self._end
        self._expat.EntityDeclHandler = self._reject_declaration
        self._expat.AttlistDeclHandler = (
            self._reject_declaration
        )  # each element gets a copy of the default value

    def parse(self) -> Element:
        """Return the root element."""
        try:
            self._expat.Parse(self._data, True)
        except expat.ExpatError as error:
            raise DataError(
                f"line {error.lineno}: not well-formed XML ({expat.ErrorString(error.code)})",
                "export the file again, or correct the line",
            ) from None
        assert self._root  # well-formed XML has one
        return self._root

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        start = self._position()
        # Well-formed
        inner = _START_TAG.match(self.file.text, start).end()  # type: ignore[union-attr]
        # XLIFF's own attributes have no namespace, and take precedence over its:version, for
        # example.
        ordered = sorted(attributes.items(), key=lambda item: " " not in item[0])
        local_names = {key.rsplit(" ", 1)[-1]: value for key, value in ordered}
        parent = self._open[-1] if self._open else None
        own = {key: value for key, value in local_names.items() if key in _INHERITED}
        inherited = parent.inherited if parent else {}
        inherited = inherited | own if own else inherited
        element = Element(name.rsplit(" ", 1)[-1], local_names, inherited, start, inner)
        if parent:
            parent.children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, name: str) -> None:
        element, position = self._open.pop(), self._position()
        if self.file.text.endswith("/>", element.start, element.inner):
            element.inner_end = element.end = element.inner
        else:
            element.inner_end, element.end = position, self.file.text.index(">", position) + 1

    def _position(self) -> int:
        """Return the offset of the current event in characters."""
        offset = self._expat.CurrentByteIndex
        if self._is_ascii:
            return offset
        last_offset, last_position = self._last
        position = last_position + len(self._data[last_offset:offset].decode())
        self._last = (offset, position)
        return position

    def _reject_declaration(self, name: str, *_: object) -> None:
        raise DataError(
            f"line {self._expat.CurrentLineNumber}: the document type declares '{name}'",
            "replace entities by their text, and remove the declarations",
        )


def _elements(root: Element, name: str) -> Iterator[Element]:
    stack = [root]
    while stack:
        element = stack.pop()
        if element.name == name:
            yield element
        else:
            stack += reversed(element.children)


def _is_selected(file: TextFile, segment: Element, retranslate: bool) -> bool:
    """Return whether to translate a segment."""
    source, target = segment.find("source"), segment.find("target")
    if (
        source is None
        or source.inner == source.inner_end
        or segment.inherited.get("translate") == "no"
    ):
        return False
    state = (target.attributes.get("state") if target else None) or segment.attributes.get("state")
    if retranslate or target is None or state in UNTRANSLATED_STATES:
        return True
    is_blank = not file.text[target.inner : target.inner_end].strip()
    return is_blank or (_has_text(file, source) and not _has_text(file, target))


def _has_text(file: TextFile, element: Element) -> bool:
    """Return whether there is text in an element or in the elements in it."""
    tokens = _TOKEN.finditer(file.text, element.inner, element.inner_end)
    return any(not token["tag"] and token[0].strip() for token in tokens)


def _check_language(file: TextFile, element: Element, name: str, language: str) -> None:
    declared = element.attributes.get(name, "")
    if declared and language and base_language(declared) != base_language(language):
        raise DataError(
            f"line {file.line(element.start)}: {name} is '{declared}', but the model's is"
            f" '{language}'",
            "use a model for that language, or correct the attribute",
        )


def _set_attributes(file: TextFile, element: Element, attributes: dict[str, str]) -> Edit:
    """Return the change of the start tag of an element."""
    tag = file.text[element.start : element.inner]
    for name, value in attributes.items():
        pattern = rf"(\s{name}\s*=\s*)(?:\"[^\"]*\"|'[^']*')"
        if re.search(pattern, tag):
            quoted = quoteattr(value).replace("\\", r"\\")
            tag = re.sub(pattern, rf"\g<1>{quoted}", tag, count=1)
        else:
            # The end of a tag
            end = re.search(r"\s*/?>\Z", tag).start()  # type: ignore[union-attr]
            tag = f"{tag[:end]} {name}={quoteattr(value)}{tag[end:]}"
    return Edit(element.start, element.inner, tag)


class _Target:
    """The target of a segment, as a part of the file."""

    def __init__(self, file: TextFile, segment: Element, language: str) -> None:
        self.file, self.segment, self.language = file, segment, language
        source = segment.find("source")
        assert source is not None  # by _is_selected
        self.last_source = segment.find("seg-source") or source
        """The element that a new target follows."""
        is_empty = self.last_source.inner == self.last_source.inner_end
        self.source = source = source if is_empty else self.last_source
        sentences = [
            mrk for mrk in _elements(source, "mrk") if mrk.attributes.get("mtype") == "seg"
        ]
        ranges = [(each.inner, each.inner_end) for each in sentences] or [
            (source.inner, source.inner_end)
        ]
        is_preserved = source.inherited.get("space") == "preserve"
        self.contents = [
            (*each, InlineContent(file.text[slice(*each)], is_preserved)) for each in ranges
        ]
        self.blocks = [block for *_, content in self.contents for block in content.blocks]

    def edits(self, translations: Sequence[RichText]) -> Iterable[Edit]:
        """Yield the new target and its state. A source without text is copied."""
        remaining, text, position = list(translations), "", self.source.inner
        for start, end, content in self.contents:
            count = len(content.blocks)
            text += self.file.text[position:start] + content.render(remaining[:count])
            remaining, position = remaining[count:], end
        text += self.file.text[position : self.source.inner_end]
        source_tag = self.file.text[self.source.start : self.source.inner]
        prefix = source_tag[1 : source_tag.index(self.source.name)]
        state = {"state": "translated"}
        if self.segment.name == "segment":
            yield _set_attributes(self.file, self.segment, state)
            state = {}  # in XLIFF 2, targets have none
        else:
            state["state-qualifier"] = "leveraged-mt"
            if self.segment.attributes.get("approved") == "yes":
                yield _set_attributes(self.file, self.segment, {"approved": "no"})
        target = self.segment.find("target")
        if target is None:
            attributes = "".join(f' {name}="{value}"' for name, value in state.items())
            space = re.search(r"\s*\Z", self.file.text[self.segment.inner : self.source.start])[0]  # type: ignore[index]
            new = f"{space}<{prefix}target{attributes}>{text}</{prefix}target>"
            yield Edit(self.last_source.end, self.last_source.end, new)
            return
        if base_language(target.attributes.get("lang", self.language)) != base_language(
            self.language
        ):
            state["xml:lang"] = self.language
        tag = re.sub(r"\s*/?>\Z", ">", _set_attributes(self.file, target, state).text)
        yield Edit(target.start, target.end, f"{tag}{text}</{prefix}target>")


class InlineContent:
    """The content of a source: text with inline elements."""

    def __init__(self, source: str, is_preserved: bool) -> None:
        """Parse the XML of a content; if `is_preserved`, line breaks are those of the text, and not
        spaces."""
        self.source = source
        self._is_preserved = is_preserved
        self._markup: dict[int, tuple[str, str]] = {}
        self._parents: dict[int, int] = {}
        self._native: dict[int, str] = {}  # by the id of a tag with fixed text, the text
        self._text, self._fixed = "", list[FixedSpan]()
        self._tags: list[Tag] = []
        self._open: list[
            tuple[str, int]
        ] = []  # name and index of each open tag; for a range, name and id of its end
        tokens = list(_TOKEN.finditer(source))
        self._has_words = any(
            re.search(r"[^\W\d_]", token[0]) for token in tokens if not token["tag"]
        )
        self._parse(tokens)
        syntax = self._syntax()
        rich = RichText(self._text, tuple(self._tags), tuple(self._fixed))
        self.sections = Sections(rich, re.compile(_SEPARATOR), syntax)
        self.blocks = self.sections.blocks

    def render(self, translations: Sequence[RichText]) -> str:
        """Return the XML with the translations of the blocks."""
        if list(translations) == self.blocks:
            return self.source
        rich = self.sections.join(translations)
        rich = with_fixed_tags(replace(rich, tags=_without_copies(rich.tags)), self._native)
        pieces, native = [], None
        for event, text, tag in events(rich, self._parents):
            if tag is None:
                pieces.append(escape(text) if text != native else "")
            else:
                pieces.append(self._markup[tag.id][event is Event.CLOSE])
                native = self._native.get(tag.id) if event is Event.OPEN else None
        return "".join(pieces)

    def _syntax(self) -> list[tuple[int, int]]:
        """Return the ranges of the text between variants, and make the number signs of messages
        fixed."""
        is_fixed = bytearray(len(self._text))
        for each in self._fixed:
            is_fixed[each.start : each.end] = b"\1" * (each.end - each.start)
        if spans := list(syntax_spans(self._text)):
            for match in re.finditer(NUMBER_SIGN, self._text):
                if not is_fixed[match.start()]:
                    self._fixed.append(FixedSpan(*match.span(), match[0]))
            self._fixed.sort(key=lambda each: each.start)
            return spans
        return [
            (start, end) for start, end in bar_spans(self._text) if not any(is_fixed[start:end])
        ]

    def _parse(self, tokens: Sequence[re.Match[str]]) -> None:
        following = [""] * (len(tokens) + 1)  # the next text from each token on
        for i in reversed(range(len(tokens))):
            following[i] = following[i + 1] if tokens[i][0].startswith("<") else tokens[i][0]
        i = 0
        while i < len(tokens):
            token, i = tokens[i], i + 1
            if token["tag"] is None:
                self._add_text(token)
            elif token["tag"].startswith("</"):
                self._close(token["tag"], _name(token["tag"]))
            elif _name(token["tag"]) in _CONTAINERS and not _PROTECTED.search(token["tag"]):
                index = self._add_tag(token["tag"])
                if not token["tag"].endswith("/>"):
                    self._open.append((_name(token["tag"]), index))
            else:
                end = _protected_range_end(tokens, i) or _element_end(tokens, i)
                self._add_code(tokens[i - 1 : end], following[end])
                i = end

    def _add_text(self, token: re.Match[str]) -> None:
        if token["cdata"] is None and token[0].startswith(
            "<"
        ):  # a comment or a processing instruction
            self._add_tag(token[0])
            return
        text = unescape(token[0]) if token["cdata"] is None else token["cdata"]
        if not self._is_preserved:
            text = re.sub(r"[ \t\r\n]+", " ", text)  # the whitespace of XML
            text = text.lstrip(" ") if self._text.endswith(" ") else text
        self._text += text

    def _add_tag(self, source: str) -> int:
        """Add a tag at the end of the text, and return its index."""
        tag = Tag(len(self._text), len(self._text), len(self._markup))
        if self._open:
            self._parents[tag.id] = self._tags[self._open[-1][1]].id
        self._tags.append(tag)
        self._markup[tag.id] = (source, "")
        return len(self._tags) - 1

    def _close(self, source: str, name: str) -> None:
        """End the innermost tag with a name. Ranges that start in it and end later remain two
        points."""
        while (last := self._open.pop())[0] != name:
            pass
        tag = self._tags[last[1]] = replace(self._tags[last[1]], end=len(self._text))
        self._markup[tag.id] = (self._markup[tag.id][0], source)

    def _add_code(self, tokens: Sequence[re.Match[str]], following: str) -> None:
        """Add an element with native code: protected text, a line break, a variable, a point, or an
        end of a range.

        Code between spaces or punctuation is taken for a variable, such as a name, and becomes a
        word of the text.
        """
        source, name = "".join(token[0] for token in tokens), _name(tokens[0][0])
        key = _RANGE_ID.search(tokens[0][0]) or _ID.search(tokens[0][0])
        value = key[1] if key else ""
        if name in _VARIABLES and _LINE_BREAK.search(tokens[0][0]):
            self._set_text(self._add_tag(source), _BREAK)
        elif name in _STARTS and _name(tokens[-1][0]) != _STARTS[name]:
            self._open.append((f"{_STARTS[name]} {value}", self._add_tag(source)))
        elif name in _STARTS.values() and self._open and self._open[-1][0] == f"{name} {value}":
            self._close(source, f"{name} {value}")
        else:
            index = self._add_tag(source)
            native = "".join(unescape(token[0]) for token in tokens if not token[0].startswith("<"))
            if name not in _CONTAINERS and name not in _STARTS:
                is_word = self._has_words and not (
                    _WORD_END.search(self._text[-1:]) or _WORD_START.match(following)
                )
                native = f"{{{value}}}" if is_word and name in _VARIABLES else ""
            # Text that would be cut stays in the markup: it would be written twice.
            if native and not re.search(rf"\A\s|\s\Z|{_SEPARATOR}", native):
                self._fixed.append(
                    FixedSpan(len(self._text), len(self._text) + len(native), native)
                )
                self._set_text(index, native)

    def _set_text(self, index: int, native: str) -> None:
        """Add the text of an element with native code."""
        self._text += native
        self._tags[index] = replace(self._tags[index], end=len(self._text))
        self._native[self._tags[index].id] = native


def _name(tag: str) -> str:
    return _TAG_NAME.match(tag)[1]  # type: ignore[index]  # every tag has a name


def _element_end(tokens: Sequence[re.Match[str]], start: int) -> int:
    """Return the index after the element whose start tag is before `start`."""
    depth, i = int(not tokens[start - 1][0].endswith("/>")), start
    while depth:
        tag = tokens[i]["tag"]
        if tag and not tag.endswith("/>"):
            depth += -1 if tag.startswith("</") else 1
        i += 1
    return i


def _protected_range_end(tokens: Sequence[re.Match[str]], start: int) -> int:
    """Return the index after the end of a protected range that starts before `start`; 0 if there is
    none."""
    tag = tokens[start - 1][0]
    if _name(tag) != "sm" or not _PROTECTED.search(tag) or not (key := _ID.search(tag)):
        return 0
    i, last = start, min(len(tokens), start + MAX_PROTECTED_RANGE)
    while i < last and not (tag := tokens[i]["tag"] or "").startswith("</"):
        i = _element_end(tokens, i + 1) if tag else i + 1
        if tag and _name(tag) == "em" and (end := _RANGE_ID.search(tag)) and end[1] == key[1]:
            return i
    return 0


def _without_copies(tags: Iterable[Tag]) -> tuple[Tag, ...]:
    """Return the longest of the tags with the same id, because an id must be unique in a target."""
    longest: dict[int, Tag] = {}
    for tag in sorted(tags, key=lambda tag: tag.start - tag.end):
        longest.setdefault(tag.id, tag)
    return tuple(tag for tag in tags if longest[tag.id] is tag)
