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
from nmt.documents.builder import SourceMarkup, TextBuilder
from nmt.documents.document import RichText, Tag
from nmt.documents.formats import DocumentOptions
from nmt.documents.inline import Kind, Piece, end_indices, paired_code
from nmt.documents.ranges import Span, by_start, overlaps_any, span_of
from nmt.documents.rich_text import Event, Sections
from nmt.documents.splicing import Edit, SplicedDocument, next_blocks
from nmt.documents.tagged_text import add_tagged_text
from nmt.documents.text_file import TextFile, unescape
from nmt.documents.variants import NUMBER_SIGN, bar_spans, syntax_spans
from nmt.text.language_codes import base_language
from nmt.text.spans import apply_edits
from nmt.translation.segments import FixedSpan

MAX_PROTECTED_RANGE = 100
"""Maximum number of tags and texts between the markers of a protected range. It bounds the search
for its end."""
UNTRANSLATED_STATES = {"new", "needs-translation", "initial"}
"""States of targets that are placeholders, such as a copy of the source."""

_TAG = r"</?(?:[\w.-]+:)?(?P<name>[\w.-]+)[^<>\"']*(?:(?:\"[^\"]*\"|'[^']*')[^<>\"']*)*>"
_START_TAG = re.compile(_TAG)
_TOKEN = re.compile(
    rf"<!--.*?-->|<!\[CDATA\[(?P<cdata>.*?)\]\]>|<\?.*?\?>|(?P<tag>{_TAG})|(?P<text>[^<]+)",
    re.DOTALL,
)
_PROTECTED = re.compile(r"\s(?:translate\s*=\s*[\"']no|mtype\s*=\s*[\"']protected)[\"']")
_RANGE_ID = re.compile(r"\s(?:rid|startRef)\s*=\s*[\"']([^\"']*)")
_ID = re.compile(r"\sid\s*=\s*[\"']([^\"']*)")
_DECLARATION = re.compile(rb"<\?xml[^>]*?\sencoding\s*=\s*[\"']([\w.:-]*)")
_CONTAINERS = {"g", "mrk", "pc"}
"""Inline elements whose content is text to translate. The content of others, such as `ph`, is
native code."""
_VARIABLES = {"x", "ph"}
"""Elements that may stand for a word, such as a name or number that a program inserts."""
_POINTS = {"x", "ph", "it"}
"""Elements that may start or end a range of their native code."""
_EQUIVALENT = re.compile(r"\s(?:equiv|disp|equiv-text)\s*=\s*[\"']([^\"']*)")
_LINE_BREAK = re.compile(
    r"\s(?:ctype\s*=\s*[\"']lb|subType\s*=\s*[\"']xlf:lb|id\s*=\s*[\"']LINE_BREAK(?:_\d+)?)[\"']"
)
_BREAK = "\u2028"
"""Character that represents an element with a line break."""
_SEPARATOR = re.compile(rf"[\t\r\n{_BREAK}]")
"""Characters that separate sentences."""
_NOT_WRITTEN = re.compile(rf"\A\s|\s\Z|{_SEPARATOR.pattern}")
"""Text that would be cut, so that it would be written twice."""
_PLAIN_LANGUAGE = re.compile(r"[a-z]{2}(?:[-_][a-z]{4})?(?:[-_][a-z]{2})?", re.IGNORECASE)
_WORD_START = re.compile(r"\w")
_LETTER = re.compile(r"[^\W\d_]")
_INHERITED = {"translate", "space"}
"""Attributes that hold for the elements inside."""
_STARTS = {"bx": "ex", "bpt": "ept", "sc": "ec", "sm": "em"}
"""Elements that mark the start and end of a range."""


@dataclass
class Element:
    """An element, as a range of the text of the file."""

    text: str
    name: str
    attributes: dict[str, str]
    inherited: dict[str, str]
    """Attributes of the element or the innermost ancestor that has them."""
    start: int
    inner: int
    """Start of its content."""
    inner_end: int = 0
    end: int = 0
    children: list[Element] = field(default_factory=list)

    @property
    def tag(self) -> str:
        """The start tag."""
        return self.text[self.start : self.inner]

    @property
    def content(self) -> str:
        """What is between the tags."""
        return self.text[self.inner : self.inner_end]

    def find(self, name: str) -> Element | None:
        """Return the first child with a name."""
        return next((child for child in self.children if child.name == name), None)

    def find_all(self, name: str) -> Iterator[Element]:
        """Yield the outermost elements with a name."""
        stack = [self]
        while stack:
            element = stack.pop()
            if element.name == name:
                yield element
            else:
                stack += reversed(element.children)

    def has_text(self) -> bool:
        """Return whether there is text in the element or in the elements in it."""
        texts = [token[0] for token in _TOKEN.finditer(self.content) if not token["tag"]]
        return any(map(str.strip, texts))

    def with_attributes(self, attributes: dict[str, str]) -> Edit:
        """Return the change of the start tag."""
        tag = self.tag
        for name, value in attributes.items():
            new = quoteattr(value)
            old = re.search(rf"\s{name}\s*=\s*(\"[^\"]*\"|'[^']*')", tag)
            if old:
                start, end = old.span(1)
            else:
                start = end = _tag_end(tag)
                new = f" {name}={new}"
            tag = tag[:start] + new + tag[end:]
        return Edit(self.start, self.inner, tag)


def _tag_end(tag: str) -> int:
    """Return the position after the attributes of a start tag."""
    return len(tag.rstrip("/>").rstrip())


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
    files = [root]
    src, tgt, segment = "srcLang", "trgLang", "segment"
    if not root.attributes.get("version", "").startswith("2"):
        files = list(root.find_all("file"))
        src, tgt, segment = "source-language", "target-language", "trans-unit"
    edits = []
    for element in files:
        # Models for several source languages have other codes, such as mul, roa or fr_fr_BE_es.
        if _PLAIN_LANGUAGE.fullmatch(options.src):
            _check_language(file, element, src, options.src)
        _check_language(file, element, tgt, options.tgt)
        if not element.attributes.get(tgt):
            edits.append(element.with_attributes({tgt: options.tgt}))
    targets = []
    for element in root.find_all(segment):
        source = element.find("source")
        if source and _is_selected(element, source, options.retranslate):
            targets.append(_Target(element, source, options.tgt))
    return SplicedDocument(file, targets, edits, "xmlcharrefreplace")


class _Parser:
    """Finds the elements of a file outside of the segments."""

    def __init__(self, file: TextFile) -> None:
        self._text = file.text
        self._data = file.text.encode("utf-8", "replace")
        self._root: Element | None = None
        self._open: list[Element] = []
        # Offset of the last event in bytes and in characters
        self._last_offset = 0
        self._last_position = 0
        # The text is decoded before it is parsed.
        self._expat = parser = expat.ParserCreate("utf-8", " ")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.EntityDeclHandler = self._reject_declaration
        # Each element gets a copy of the default value.
        parser.AttlistDeclHandler = self._reject_declaration

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
        # XLIFF's own attributes have no namespace, and take precedence over its:version, for
        # example.
        names = sorted(attributes, key=lambda name: " " not in name)
        local_names = {name.rpartition(" ")[2]: attributes[name] for name in names}
        inherited = self._open[-1].inherited if self._open else {}
        for key in local_names.keys() & _INHERITED:
            inherited = inherited | {key: local_names[key]}
        tag = _START_TAG.match(self._text, start)
        assert tag  # well-formed XML has one
        *_, local_name = name.split(" ")
        element = Element(self._text, local_name, local_names, inherited, start, tag.end())
        if self._open:
            self._open[-1].children.append(element)
        else:
            self._root = element
        self._open.append(element)

    def _end(self, name: str) -> None:
        element = self._open.pop()
        element.inner_end = element.end = element.inner
        if not element.tag.endswith("/>"):
            element.inner_end = self._position()
            element.end = self._text.index(">", element.inner_end) + 1

    def _position(self) -> int:
        """Return the offset of the current event in characters."""
        offset = self._expat.CurrentByteIndex
        between = self._data[self._last_offset : offset]
        self._last_offset = offset
        self._last_position += len(between.decode())
        return self._last_position

    def _reject_declaration(self, name: str, *_: object) -> None:
        raise DataError(
            f"line {self._expat.CurrentLineNumber}: the document type declares '{name}'",
            "replace entities by their text, and remove the declarations",
        )


def _is_selected(segment: Element, source: Element, retranslate: bool) -> bool:
    """Return whether to translate a segment."""
    if not source.content or segment.inherited.get("translate") == "no":
        return False
    target = segment.find("target")
    if retranslate or target is None:
        return True
    state = target.attributes.get("state") or segment.attributes.get("state")
    is_missing = source.has_text() and not target.has_text()
    return is_missing or state in UNTRANSLATED_STATES or not target.content.strip()


def _check_language(file: TextFile, element: Element, name: str, language: str) -> None:
    declared = element.attributes.get(name)
    if declared and language and base_language(declared) != base_language(language):
        raise DataError(
            f"line {file.line(element.start)}: {name} is '{declared}', but the model's is"
            f" '{language}'",
            "use a model for that language, or correct the attribute",
        )


class _Target:
    """The target of a segment, as a part of the file."""

    def __init__(self, segment: Element, source: Element, language: str) -> None:
        self.segment = segment
        self.language = language
        self.last_source = segment.find("seg-source") or source
        """The element that a new target follows."""
        self.source = self.last_source if self.last_source.content else source
        mrks = self.source.find_all("mrk")
        self.sentences = [mrk for mrk in mrks if mrk.attributes.get("mtype") == "seg"]
        if not self.sentences:
            self.sentences = [self.source]
        is_preserved = self.source.inherited.get("space") == "preserve"
        self.contents = [InlineContent(each.content, is_preserved) for each in self.sentences]
        self.blocks = [block for content in self.contents for block in content.blocks]

    def edits(self, translations: Sequence[RichText]) -> Iterable[Edit]:
        """Yield the new target and its state. A source without text is copied."""
        segment = self.segment
        state = {"state": "translated"}
        if segment.name == "segment":
            yield segment.with_attributes(state)
            state = {}  # in XLIFF 2, targets have none
        else:
            state["state-qualifier"] = "leveraged-mt"
            if segment.attributes.get("approved") == "yes":
                yield segment.with_attributes({"approved": "no"})
        yield self._target_edit(state, self._content(translations))

    def _target_edit(self, state: dict[str, str], content: str) -> Edit:
        segment = self.segment
        source = self.source
        name_start = source.tag.index(source.name)
        prefix = source.tag[1:name_start]
        content += f"</{prefix}target>"
        target = segment.find("target")
        if target:
            language = target.attributes.get("lang", self.language)
            if base_language(language) != base_language(self.language):
                state["xml:lang"] = self.language
            tag = target.with_attributes(state).text
            start_tag = tag[: _tag_end(tag)]
            return Edit(target.start, target.end, f"{start_tag}>{content}")
        attributes = ""
        for name, value in state.items():
            attributes += f' {name}="{value}"'
        before = segment.text[segment.inner : source.start]
        space_start = len(before.rstrip())
        space = before[space_start:]
        end = self.last_source.end
        return Edit(end, end, f"{space}<{prefix}target{attributes}>{content}")

    def _content(self, translations: Sequence[RichText]) -> str:
        remaining = iter(translations)
        edits = []
        for sentence, content in zip(self.sentences, self.contents, strict=True):
            start = sentence.inner - self.source.inner
            end = start + len(content.source)
            of_content = next_blocks(remaining, content)
            text = content.render(of_content)
            edits.append(Edit(start, end, text))
        return apply_edits(self.source.content, edits)


class InlineContent:
    """The content of a source: text with inline elements."""

    def __init__(self, source: str, is_preserved: bool) -> None:
        """Parse the XML of a content; if `is_preserved`, line breaks are those of the text, and not
        spaces."""
        self.source = source
        self._is_preserved = is_preserved
        self._builder = TextBuilder[SourceMarkup]()
        tokens = list(_TOKEN.finditer(source))
        texts = [token[0] for token in tokens if not token["tag"]]
        self._has_words = any(map(_LETTER.search, texts))
        self._parse(tokens)
        self.sections = _sections(self._builder.rich_text())
        self.blocks = self.sections.blocks

    def render(self, translations: Sequence[RichText]) -> str:
        """Return the XML with the translations of the blocks."""
        if list(translations) == self.blocks:
            return self.source
        rich = self.sections.join(translations)
        rich = replace(rich, tags=_without_copies(rich.tags))
        pieces = []
        for event, text, code, _ in self._builder.events(rich):
            if code is None:
                pieces.append(escape(text))
            elif event is Event.OPEN:
                pieces.append(code.opening)
            else:
                pieces.append(code.closing)
        return "".join(pieces)

    def _parse(self, tokens: Sequence[re.Match[str]]) -> None:
        following = [""]  # the next text from each token on
        for token in reversed(tokens):
            following.append(token["text"] or following[-1])
        following.reverse()
        paired = _paired_codes(tokens)
        end = 0
        for i, token in enumerate(tokens):
            if i < end:
                continue
            tag = token["tag"]
            name = token["name"]
            if tag is None:
                self._add_text(token)
            elif tag.startswith("</"):
                self._builder.close(name).closing = tag
            elif name not in _CONTAINERS or _PROTECTED.search(tag):
                end = _protected_range_end(tokens, i) or _element_end(tokens, i)
                self._add_code(tokens[i:end], following[end], paired.get(i, ("", "")))
            elif tag.endswith("/>"):
                self._builder.add(SourceMarkup(tag))
            else:
                self._builder.start(name, SourceMarkup(tag))

    def _add_text(self, token: re.Match[str]) -> None:
        text = unescape(token["text"]) if token["text"] else token["cdata"]
        if text is None:
            self._builder.add(SourceMarkup(token[0]))  # a comment or a processing instruction
            return
        if not self._is_preserved:
            text = re.sub(r"[ \t\r\n]+", " ", text)  # the whitespace of XML
            if self._builder.last_character == " ":
                text = text.lstrip(" ")
        add_tagged_text(self._builder, text, escape)

    def _add_code(
        self, tokens: Sequence[re.Match[str]], following: str, paired: tuple[str, str]
    ) -> None:
        """Add an element with native code: protected text, a line break, a variable, a point, or an
        end of a range; `paired` has the names of the ranges that its code starts and ends."""
        tag = tokens[0][0]
        name = tokens[0]["name"]
        code = SourceMarkup("".join(token[0] for token in tokens))
        builder = self._builder
        if name in _VARIABLES and _LINE_BREAK.search(tag):
            builder.add_own_text(builder.add(code), _BREAK, is_fixed=False)
            return
        started, ended = paired if any(paired) else _range_names(tokens)
        if started:
            builder.start(started, code)
            return
        if builder.is_innermost(ended):
            builder.close(ended).closing = code.opening
            return
        builder.add(code)
        text = ""
        if name in _CONTAINERS or name in _STARTS:
            text = _native_code(tokens)
        elif name in _VARIABLES and self._is_word(following):
            text = f"{{{_range_id(tag)}}}"
        if text and not _NOT_WRITTEN.search(text):
            builder.add_own_text(code, text)

    def _is_word(self, following: str) -> bool:
        """Return whether an element between spaces or punctuation is taken for a variable, such as
        a name, and becomes a word of the text."""
        is_after_word = _WORD_START.match(self._builder.last_character)
        is_before_word = _WORD_START.match(following)
        return self._has_words and not is_after_word and not is_before_word


def _sections(rich: RichText) -> Sections:
    """Return the sections of a text, between which is the syntax of messages or variants. The
    number signs of messages are fixed."""
    fixed = [span_of(span) for span in rich.fixed]

    def is_free(span: Span) -> bool:
        return not overlaps_any(span, fixed)

    syntax = list(syntax_spans(rich.text))
    if not syntax:
        return Sections(rich, _SEPARATOR, filter(is_free, bar_spans(rich.text)))
    spans = list(rich.fixed)
    for sign in re.finditer(NUMBER_SIGN, rich.text):
        if is_free(sign.span()):
            spans.append(FixedSpan(*sign.span(), sign[0]))
    spans.sort(key=by_start)
    return Sections(replace(rich, fixed=tuple(spans)), _SEPARATOR, syntax)


def _paired_codes(tokens: Sequence[re.Match[str]]) -> dict[int, tuple[str, str]]:
    """Return the names of the ranges that elements start or end with their native code or id, by
    the indices of these elements. Both are in the same element."""
    pieces = []
    depth = 0
    for i, token in enumerate(tokens):
        tag = token[0]
        name = token["name"] or ""
        is_end = tag.startswith("</")
        kind = Kind.POINT
        if name in _CONTAINERS and not tag.endswith("/>"):
            kind = Kind.CLOSE if is_end else Kind.OPEN
            depth += -1 if is_end else 1
        elif name in _POINTS and not is_end:
            native = _native_code(tokens[i : _element_end(tokens, i)])
            kind, range_name = paired_code(_paired_code(tag, native))
            name = f"{depth} {range_name}"
        pieces.append(Piece(i, i + 1, kind, name=name))
    paired = {}
    for start, end in end_indices(pieces).items():
        name = pieces[start].name
        if name not in _CONTAINERS:
            paired[start] = (name, "")
            paired[end] = ("", name)
    return paired


def _native_code(tokens: Iterable[re.Match[str]]) -> str:
    return "".join(unescape(token["text"] or "") for token in tokens)


def _range_names(tokens: Sequence[re.Match[str]]) -> tuple[str, str]:
    """Return the names of the ranges that the markers of an element start and end; "": none."""
    tag = tokens[0][0]
    name = tokens[0]["name"]
    value = _range_id(tag)
    end_name = _STARTS.get(name)
    if end_name and tokens[-1]["name"] != end_name:
        return f"{end_name} {value}", ""
    return "", f"{name} {value}"


def _paired_code(tag: str, native: str) -> str:
    """Return what may start or end a range: the native code of an element, or its id."""
    equivalent = _EQUIVALENT.search(tag)
    if not native and equivalent:
        native = unescape(equivalent[1])
    identifier = _ID.search(tag)
    return native or (identifier[1] if identifier else "")


def _range_id(tag: str) -> str:
    """Return what connects the ends of a range; "" if there is nothing."""
    key = _RANGE_ID.search(tag) or _ID.search(tag)
    return key[1] if key else ""


def _element_end(tokens: Sequence[re.Match[str]], start: int) -> int:
    """Return the index after the element that starts at a token."""
    depth = 0
    for i in range(start, len(tokens)):
        tag = tokens[i]["tag"]
        if tag and tag.startswith("</"):
            depth -= 1
        elif tag and not tag.endswith("/>"):
            depth += 1
        if depth == 0:
            break
    return i + 1


def _protected_range_end(tokens: Sequence[re.Match[str]], start: int) -> int:
    """Return the index after the end of a protected range that starts at a token; 0 if there is
    none."""
    tag = tokens[start][0]
    key = _ID.search(tag)
    if tokens[start]["name"] != "sm" or not key or not _PROTECTED.search(tag):
        return 0
    i = start + 1
    last = min(len(tokens), i + MAX_PROTECTED_RANGE)
    while i < last and not tokens[i][0].startswith("</"):
        token = tokens[i]
        i = _element_end(tokens, i)
        end = _RANGE_ID.search(token[0])
        if token["name"] == "em" and end and end[1] == key[1]:
            return i
    return 0


def _without_copies(tags: Iterable[Tag]) -> tuple[Tag, ...]:
    """Return the longest of the tags with the same id, because an id must be unique in a target."""
    longest: dict[int, Tag] = {}
    for tag in sorted(tags, key=lambda tag: tag.start - tag.end):
        longest.setdefault(tag.id, tag)
    return tuple(tag for tag in tags if longest[tag.id] is tag)
