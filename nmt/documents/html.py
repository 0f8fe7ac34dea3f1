"""HTML documents. Translations are inserted into the source, so everything else is unchanged to the byte.

The tokenizer follows the HTML standard (https://html.spec.whatwg.org/multipage/parsing.html) where it determines what
is text and what is markup. Libraries do not report the positions of text and attributes, which this needs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape

from nmt.data.language_codes import base_language
from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions
from nmt.documents.inline import InlineText, Kind, Piece, text_piece
from nmt.documents.source import FRONT_MATTER, TEMPLATE_BLOCK, TEMPLATE_CODE, TranslatableSource, Value
from nmt.documents.splicing import Edit
from nmt.documents.text_file import TextFile, unescape
from nmt.inference.segments import FixedSpan

INLINE = frozenset(
    "a abbr acronym b bdi bdo big br cite code data del dfn em embed font i img input ins kbd mark math nobr output "
    "picture q s samp script small source span strike strong style sub sup svg time tt u var wbr".split()
)
"""Elements within a sentence. All others separate sentences."""
VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
BREAKS = frozenset("br embed img input picture".split())
RAW_TEXT = frozenset("iframe noembed noframes plaintext script style textarea title xmp".split())
"""Elements that contain no elements."""
UNTRANSLATED = frozenset("code iframe kbd math noembed noframes pre samp script style svg textarea var xmp".split())
WITHOUT_TEXT = frozenset("script style svg".split())
"""Untranslated elements whose content is not part of the sentence."""
ATTRIBUTES = frozenset("alt aria-description aria-label placeholder title".split())
BUTTONS = frozenset("button reset submit".split())
"""Types of `<input>` elements whose value is translated."""
LABELED = frozenset("optgroup option track".split())
"""Elements whose label is translated."""
QUOTES = {'"': "&quot;", "'": "&#39;"}
DESCRIPTIONS = frozenset("description og:title og:description twitter:title twitter:description".split())
"""`<meta>` elements whose content is translated."""
ENDS = {
    "li": {"li"}, "dt": {"dt", "dd"}, "dd": {"dt", "dd"}, "td": {"td", "th"}, "th": {"td", "th"},
    "tr": {"td", "th", "tr"}, "option": {"option"}, "optgroup": {"option", "optgroup"},
}  # fmt: skip
"""Elements without an end tag that end where another one starts."""
ENDS_PARAGRAPH = frozenset(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 header hgroup hr li listing main menu nav ol p plaintext pre search section summary "
    "table tbody td tfoot th thead tr ul xmp".split()
)

_SPACES = re.compile(r"[ \t\n\r\f]+")
_CODE = TEMPLATE_CODE.replace("[^", "[^<")
"""Code of templates in a tag. Without `<`, it cannot hide the start of another tag, and the time is linear."""
_DOUBLE, _SINGLE = (rf"(?:[^{quote}{{<]++|{_CODE}|[{{<])*+" for quote in "\"'")
"""Values of attributes in double and single quotes, without them."""
_TOKEN = re.compile(
    r"(?P<other><!--(?:>|->|.*?(?:--!?>|\Z))|<!\[CDATA\[.*?(?:\]\]>|\Z)|<[!?][^>]*(?:>|\Z)|</[^a-zA-Z>][^>]*(?:>|\Z)"
    rf"|{TEMPLATE_BLOCK})"
    r"|<(?P<end>/?)(?P<name>[a-zA-Z][^\s/>]*+)"
    rf"(?P<attributes>(?:[^=>{{<]++|{_CODE}|[{{<]|=\s*+(?:\"{_DOUBLE}\"|'{_SINGLE}')?+)*+)>"
    r"|</?[a-zA-Z].*\Z",  # a tag that does not end
    re.DOTALL,
)
_ATTRIBUTE = re.compile(
    rf"([^\s/>=][^\s/>=]*+)(?:\s*+=\s*+(?:\"(?P<double>{_DOUBLE})\"|'(?P<single>{_SINGLE})'"
    r"|(?P<bare>[^\s>\"'][^\s>]*+)|[\"'].*))?+",  # a quote without an end: the rest is no attribute
    re.DOTALL,
)
_CHARSET = re.compile(
    rb"<meta\s[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)|\A\s*<\?xml\s[^>]*?encoding\s*=\s*[\"']([\w.:-]+)", re.IGNORECASE
)
_TEMPLATE = re.compile(f"({TEMPLATE_CODE})")
_XML = re.compile(r"<\?xml\s|<html\b[^>]*\sxmlns\s*=", re.IGNORECASE)
_NUM_SNIFFED_BYTES = 1024
_LABELS = {
    "windows-1252": "ascii us-ascii iso-8859-1 iso8859-1 latin1 latin-1",
    "windows-1254": "iso-8859-9 iso8859-9 latin5 latin-5",
    "cp874": "iso-8859-11 iso8859-11 tis-620 windows-874",
    "gb18030": "gb2312 gb_2312-80 gbk x-gbk",
    "cp932": "shift_jis shift-jis sjis x-sjis ms_kanji windows-31j",
    "cp949": "euc-kr korean ks_c_5601-1987 windows-949",
}
_ENCODINGS = {label: encoding for encoding, labels in _LABELS.items() for label in labels.split()}
"""The encodings that the standard defines for some names, which are extensions of the encodings with these names."""


@dataclass
class _Token:
    start: int
    end: int
    name: str = ""
    """Name of the element in lower case; empty: text; `!`: a comment, a declaration or code of a template."""
    is_end: bool = False
    attributes: dict[str, re.Match[str]] = field(default_factory=dict)
    is_translated: bool = True
    """Whether the text or the content of the element is translated."""
    is_in_translated: bool = True
    """Whether the content of the parent is translated."""
    is_protected: bool = False
    """Whether it is untranslated for another reason than its language, or is in such an element."""
    is_empty: bool = False
    """Whether the element has neither content nor an end tag."""
    partner: int | None = None
    """Index of the end tag."""

    @property
    def is_inline(self) -> bool:
        return self.name in INLINE or self.name in ("", "!")


class HtmlDocument(TranslatableSource):
    """A parsed HTML document."""

    encoding_errors = "xmlcharrefreplace"

    def __init__(self, file: TextFile, options: DocumentOptions) -> None:
        self._source = file.text
        self._no_break_space = "&nbsp;" if "&nbsp;" in file.text else "\xa0"  # XHTML may not have the entity
        tokens = list(_tokenize(self._source))
        _set_translated(tokens, base_language(options.src))
        texts = (InlineText(run, self._escape) for run in self._runs(tokens))
        super().__init__(file, texts, self._attribute_values(tokens), list(_language_edits(tokens, options)))

    def _escape(self, text: str) -> str:
        return escape(text, quote=False).replace("\xa0", self._no_break_space)

    def _quote(self, quote: str, templates: Sequence[str], text: str) -> str:
        """Escape all text but the code of templates."""
        parts = re.split(f"({'|'.join(map(re.escape, templates))})", text) if templates else [text]
        parts[::2] = [self._escape(part).replace(quote, QUOTES[quote]) for part in parts[::2]]
        return f"{quote}{''.join(parts)}{quote}"

    def _attribute_values(self, tokens: Sequence[_Token]) -> Iterator[Value]:
        for token in tokens:
            if token.is_translated or (token.name in ("iframe", "textarea") and token.is_in_translated):
                for name, match in token.attributes.items():
                    if _is_text(token, name) and (block := _attribute_block(_value(match))).text:
                        start, end = match.span(match.lastgroup or 0)
                        quoted = match.lastgroup != "bare"
                        quote = self._source[end] if quoted else '"'
                        encode = partial(self._quote, quote, [span.translation for span in block.fixed])
                        yield Value(start - quoted, end + quoted, block, encode)

    def _runs(self, tokens: Sequence[_Token]) -> Iterator[list[Piece]]:
        """Yield the runs of text and inline markup."""
        run: list[Piece] = []
        i = 0
        while i < len(tokens):
            token = tokens[i]
            end = self._end_of_fixed(tokens, i)
            if end is not None:
                run.append(self._fixed_piece(tokens[i : end + 1]))
                i = end
            elif not token.is_inline or not (token.is_translated or (token.is_empty and token.is_in_translated)):
                yield run
                run = []
            elif token.name == "":
                run += self._text_pieces(token.start, token.end)
            else:
                last = next((piece.name for piece in reversed(run) if piece.kind is not Kind.SPACE), "")
                run.append(_markup_piece(token))
                if token.name == last == "br":  # the end of a paragraph
                    yield run
                    run = []
            i += 1
        yield run

    def _text_pieces(self, start: int, end: int) -> Iterator[Piece]:
        """Yield the pieces of text, in which code of templates is not decoded."""
        for match in _TEMPLATE.finditer(self._source, start, end):
            yield from text_piece(start, match.start(), self._source[start : match.start()], _decode_text)
            yield Piece(*match.span(), Kind.FIXED, match[0])
            start = match.end()
        yield from text_piece(start, end, self._source[start:end], _decode_text)

    def _end_of_fixed(self, tokens: Sequence[_Token], i: int) -> int | None:
        """Return the index of the end tag if an untranslated element within a sentence starts at `i`."""
        token = tokens[i]
        if token.is_translated or not token.is_in_translated or not token.is_inline or token.partner is None:
            return None
        is_text = token.name not in WITHOUT_TEXT and token.name != "math"
        inside = tokens[i + 1 : token.partner]
        return None if is_text and not all(each.is_inline for each in inside) else token.partner

    def _fixed_piece(self, tokens: Sequence[_Token]) -> Piece:
        first, last = tokens[0], tokens[-1]
        if first.name in WITHOUT_TEXT:
            return Piece(first.start, last.end, Kind.BREAK if first.name == "svg" else Kind.POINT)
        text = "".join(self._source[each.start : each.end] for each in tokens if not each.name)
        text = _decode_text(text).strip()
        return Piece(first.start, last.end, Kind.FIXED if text else Kind.POINT, text)


def parse(data: bytes, options: DocumentOptions) -> HtmlDocument:
    """Parse an HTML document.

    The encoding is that of the byte order mark, else of the `<meta>` element, else UTF-8. A translated character that
    the encoding does not have becomes a character reference.

    Raises:
        DataError: the encoding is unknown, or the file is not valid in it.
    """
    return HtmlDocument(TextFile.decode(data, options.encoding_errors, _declared_encoding(data)), options)


def _declared_encoding(data: bytes) -> str:
    match = _CHARSET.search(data[:_NUM_SNIFFED_BYTES])
    name = (match[1] or match[2]).decode("ascii", "replace").lower() if match else "utf-8"
    return _ENCODINGS.get(name, name)


def _tokenize(source: str) -> Iterator[_Token]:
    """Yield all of the source as tokens."""
    is_xml, position = _XML.search(source[:_NUM_SNIFFED_BYTES]) is not None, 0
    if front_matter := FRONT_MATTER.match(source):
        position = front_matter.end()
        yield _Token(0, position, name="!")
    while match := _TOKEN.search(source, position):
        if position < match.start():
            yield _Token(position, match.start())
        position = match.end()
        if not match["name"]:
            yield _Token(*match.span(), name="!")
            continue
        name, is_end = match["name"].lower(), bool(match["end"])
        attributes: dict[str, re.Match[str]] = {}
        if not is_end:
            for attribute in _ATTRIBUTE.finditer(source, *match.span("attributes")):
                attributes.setdefault(attribute[1].lower(), attribute)
        is_unquoted = any(each.end("bare") == match.end("attributes") for each in attributes.values())
        is_empty = name in VOID or (is_xml and match["attributes"].endswith("/") and not is_unquoted)
        yield _Token(*match.span(), name, is_end, attributes, is_empty=is_empty)
        if name in RAW_TEXT and not is_end and not is_empty:
            end = re.compile(rf"</{name}(?=[\s/>])|\Z", re.IGNORECASE).search(source, position)
            if end and position < end.start():
                yield _Token(position, end.start())
                position = end.start()
    if position < len(source):
        yield _Token(position, len(source))


def _set_translated(tokens: Sequence[_Token], src: str) -> None:
    """Set whether each token is translated, and the end tags of the elements."""
    open_elements: list[_Token] = []
    num_open: Counter[str] = Counter()

    def close() -> _Token:
        element = open_elements.pop()
        num_open[element.name] -= 1
        return element

    for i, token in enumerate(tokens):
        if token.is_end and num_open[token.name]:
            while (element := close()).name != token.name:
                pass
            element.partner = i
            token.is_translated, token.is_in_translated = element.is_translated, element.is_in_translated
            continue
        while open_elements and not token.is_end and _ends(token, open_elements[-1]):
            close()
        if open_elements:
            token.is_in_translated, token.is_protected = open_elements[-1].is_translated, open_elements[-1].is_protected
        _set_own_translation(token, src)
        if token.name not in ("", "!") and not token.is_end and not token.is_empty:
            open_elements.append(token)
            num_open[token.name] += 1


def _ends(token: _Token, element: _Token) -> bool:
    return element.name in ENDS.get(token.name, ()) or (element.name == "p" and token.name in ENDS_PARAGRAPH)


def _set_own_translation(token: _Token, src: str) -> None:
    """Set whether a token is translated and protected, from its own name and attributes and what it inherited."""
    value = (_attribute(token, "translate") or "").lower()
    is_off = value == "no" or "notranslate" in (_attribute(token, "class") or "").split() or token.name in UNTRANSLATED
    if "translate" in token.attributes and value in ("", "yes"):
        token.is_translated, token.is_protected = True, False
    elif is_off or token.is_protected:
        token.is_translated, token.is_protected = False, True
    else:
        language = _language_of(token) if src and token.name != "html" else ""  # without src, it is to be detected
        token.is_translated = token.is_in_translated if not language else language == src


def _markup_piece(token: _Token) -> Piece:
    if token.name in BREAKS:
        kind = Kind.BREAK
    elif token.name == "!" or token.is_empty:
        kind = Kind.POINT
    else:
        kind = Kind.CLOSE if token.is_end else Kind.OPEN
    return Piece(token.start, token.end, kind, name=token.name)


def _is_text(token: _Token, name: str) -> bool:
    """Return whether the value of an attribute is text."""
    if name == "content":
        described = _attribute(token, "name") or _attribute(token, "property") or ""
        return token.name == "meta" and described.lower() in DESCRIPTIONS
    if name == "value":
        return token.name == "input" and (_attribute(token, "type") or "").lower() in BUTTONS
    return name in ATTRIBUTES or (name == "label" and token.name in LABELED)


def _language_edits(tokens: Sequence[_Token], options: DocumentOptions) -> Iterator[Edit]:
    """Yield the edits that set the language of the document and of the translated elements in the source language."""
    html = next((token for token in tokens if token.name == "html" and not token.is_end), None)
    src, tgt = base_language(options.src), base_language(options.tgt)
    for token in tokens:
        language = _language_of(token)
        if token is html and not {"lang", "xml:lang"} & token.attributes.keys():
            yield Edit(token.start + len("<html"), token.start + len("<html"), f' lang="{options.tgt}"')
        elif language not in ("", tgt) and (token is html or (token.is_translated and language == src)):
            for name in ("lang", "xml:lang"):
                if base_language(_attribute(token, name) or "") == language:
                    match = token.attributes[name]
                    yield Edit(*match.span(match.lastgroup or 0), options.tgt)


def _language_of(token: _Token) -> str:
    """Return the language code of an element, without its region; empty if it is not set, or by a template."""
    code = base_language(_attribute(token, "lang") or _attribute(token, "xml:lang") or "")
    return code if code.isalpha() else ""  # {{ locale }} of a template


def _attribute(token: _Token, name: str) -> str | None:
    match = token.attributes.get(name)
    return None if match is None else unescape(_value(match)).strip()


def _value(match: re.Match[str]) -> str:
    return match[match.lastgroup] if match.lastgroup else ""


def _attribute_block(value: str) -> RichText:
    """Return the text of an attribute, in which the code of templates is fixed and not decoded."""
    text, templates = "", []
    for i, part in enumerate(_TEMPLATE.split(value.strip(" \t\r\n\f"))):
        if i % 2:
            templates.append(FixedSpan(len(text), len(text) + len(part), part))
        text += part if i % 2 else _decode_text(part)
    return RichText(text, (), tuple(templates))


def _decode_text(source: str) -> str:
    return unescape(_SPACES.sub(" ", source))
