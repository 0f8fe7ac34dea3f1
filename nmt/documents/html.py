"""HTML documents. Translations are inserted into the source, so everything else is unchanged to the
byte.

The tokenizer follows the HTML standard (https://html.spec.whatwg.org/multipage/parsing.html) where
it determines what is text and what is markup. Libraries do not report the positions of text and
attributes, which this needs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from itertools import accumulate

from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions
from nmt.documents.inline import InlineText, Kind, Piece, paired_code, text_piece
from nmt.documents.source import FRONT_MATTER, TEMPLATE_BLOCK, Value, in_order
from nmt.documents.splicing import Edit, SplicedDocument
from nmt.documents.text_file import TextFile, unescape
from nmt.text.language_codes import base_language
from nmt.translation.segments import FixedSpan

INLINE = frozenset(
    "a abbr acronym b bdi bdo big br cite code data del dfn em embed font i img input ins kbd mark"
    " math nobr output picture q s samp script small source span strike strong style sub sup svg"
    " time tt u var wbr".split()
)
"""Elements within a sentence. All others separate sentences."""
VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
BREAKS = frozenset("embed img input picture".split())
RAW_TEXT = frozenset("iframe noembed noframes plaintext script style textarea title xmp".split())
"""Elements that contain no elements."""
UNTRANSLATED_ELEMENTS = frozenset(
    (
        "code iframe kbd listing math noembed noframes pre samp script style svg textarea var xmp"
    ).split()
)
WITHOUT_TEXT = frozenset("script style svg".split())
"""Untranslated elements whose content is not part of the sentence."""
ATTRIBUTES = frozenset("alt aria-description aria-label placeholder title".split())
BUTTONS = frozenset("button reset submit".split())
"""Types of `<input>` elements whose value is translated."""
LABELED = frozenset("optgroup option track".split())
"""Elements whose label is translated."""
LANGUAGE_ATTRIBUTES = ("lang", "xml:lang")
QUOTES = {'"': "&quot;", "'": "&#39;"}
DESCRIPTIONS = frozenset(
    "description og:title og:description og:image:alt twitter:title twitter:description"
    " twitter:image:alt".split()
)
"""`<meta>` elements whose content is translated."""
ENDS = {
    "li": {"li"},
    "dt": {"dt", "dd"},
    "dd": {"dt", "dd"},
    "td": {"td", "th"},
    "th": {"td", "th"},
    "tr": {"td", "th", "tr"},
    "option": {"option"},
    "optgroup": {"option", "optgroup"},
}
"""Elements without an end tag that end where another one starts."""
ENDS_PARAGRAPH = frozenset(
    "address article aside blockquote body caption center dd details dialog dir div dl dt fieldset"
    " figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr li listing main menu nav ol"
    " p plaintext pre search section summary table tbody td tfoot th thead tr ul xmp".split()
)

MAX_CUSTOM_TOKENS = 50
"""Tags and texts in a custom element within a sentence."""
MAX_CODE_LENGTH = 200
"""Characters of template code that the text contains as a word. Longer code is markup without
text."""

_SPACES = re.compile(r"[ \t\n\r\f]+")
_TEMPLATE_COMMENTS = (
    (r"\{\{!--", r"--\}\}"),
    (r"\{\{--", r"--\}\}"),
    (r"\{\{-?\s?/\*", r"\*/\s?-?\}\}"),
    (r"<%--", r"--%>"),
    (r"<%#", r"%>"),
    (r"\{#", r"#\}"),
)
_TEMPLATE_MARKS = ((r"\{\{(?!\{)", r"\}\}"), (r"\{%", r"%\}"), (r"<%", r"%>"))
_TRIPLE = r"\{\{\{[^{}<]*+\}\}\}"
"""Code of Handlebars. In ICU messages, the first brace of three is often not a part of the code."""
_PHP_MARKS = (r"<\?", r"\?>")


def _any_between(marks: Iterable[tuple[str, str]], stop: str) -> str:
    """Return a pattern that matches code from its first mark to its last one.

    The search for the end stops at `stop`, and at the next start, so that its time is linear.
    """
    return "|".join(rf"{start}(?:(?!{start}|{end}|{stop}).)*+{end}" for start, end in marks)


_END_OF_SAMPLE = r"</(?:code|pre)\b"
_COMMENT = _any_between(_TEMPLATE_COMMENTS, _END_OF_SAMPLE)
_TEXT_CODE = f"{_COMMENT}|{_TRIPLE}|{_any_between(_TEMPLATE_MARKS, _END_OF_SAMPLE)}"
"""Code of templates in a text. A page about templates shows a start without an end in code."""
_CODE = f"{_TRIPLE}|" + _any_between(
    (*_TEMPLATE_COMMENTS, *_TEMPLATE_MARKS, _PHP_MARKS), "<[a-zA-Z/!]"
)
"""Code of templates in a tag. It cannot hide the start of another tag."""
_DOUBLE = rf"(?:[^\"{{<]++|{_CODE}|[{{<])*+"
_SINGLE = rf"(?:[^'{{<]++|{_CODE}|[{{<])*+"
"""Values of attributes in double and single quotes, without them."""
_TOKEN = re.compile(
    r"(?P<other><!--(?:>|->|.*?(?:--!?>|\Z))|<!\[CDATA\[.*?(?:\]\]>|\Z)"
    rf"|{_any_between([_PHP_MARKS], '<!')}|<[!?][^>]*(?:>|\Z)|</[^a-zA-Z>][^>]*(?:>|\Z)|{TEMPLATE_BLOCK})"  # noqa: E501
    rf"|(?P<code>{_TEXT_CODE})"
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
_ENCODING = r"\s*([a-zA-Z0-9_.:-]+)"
_XML_ENCODING = re.compile(rf"\s*<\?xml\s[^>]*?encoding\s*=\s*[\"']{_ENCODING}", re.IGNORECASE)
_CHARSET = re.compile(_ENCODING)
_CONTENT_CHARSET = re.compile(rf"charset\s*=\s*[\"']?{_ENCODING}", re.IGNORECASE)
_TEMPLATE = re.compile(f"({_TEXT_CODE})", re.DOTALL)
_TEMPLATE_COMMENT = re.compile(_COMMENT, re.DOTALL)
_ICON_ELEMENT = re.compile(r"[a-z]{1,4}-icon")
"""Elements of widespread libraries, such as `mat-icon` and `v-icon`."""
_CONTINUATION = re.compile(r"[.,;:!?)\]}…]")
"""Start of a text that goes on after an icon."""
_ICON_FONT = re.compile(r"(?<![\w-])material-(?:icons|symbols)(?:-\w+)?(?![\w-])")
"""Class of elements whose text is the name of an icon."""
_BULLET = re.compile(r"mso-list:\s*ignore", re.IGNORECASE)
_CONTINUED = re.compile(r"[\w,;(]\s+\Z")
"""End of a text in a sentence."""
_CONTINUING = re.compile(r"\s*[a-zß-öø-ÿ,;.!?)]")
"""Start of a text in a sentence."""
_ICON = re.compile(r"icon|glyph|caret|(?<![\w-])(?:fa[bdlrs]?|bi|mdi|ti)(?!\w)")
"""Class of elements without text that show an icon."""
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
_ICON_NAME = "icon"
"""Name of the pieces of icons."""
_ENCODINGS: dict[str, str] = {}
for _encoding, _labels in _LABELS.items():
    for _label in _labels.split():
        _ENCODINGS[_label] = _encoding
"""The encodings that the standard defines for some names, which are extensions of the encodings
with these names."""


@dataclass(slots=True)
class _Token:
    start: int
    end: int
    name: str = ""
    """Name of the element in lower case; empty: text; `!`: a comment, a declaration or code of a
    template."""
    is_end: bool = False
    attributes: dict[str, re.Match[str]] = field(default_factory=dict)
    is_icon_font: bool = False
    """Whether the text of the element is the name of an icon."""
    is_empty: bool = False
    """Whether the element has neither content nor an end tag."""
    is_translated: bool = True
    """Whether the text or the content of the element is translated."""
    is_in_translated: bool = True
    """Whether the content of the parent is translated."""
    is_custom_inline: bool = False
    """Whether it is a custom element within a sentence."""
    is_protected: bool = False
    """Whether it is untranslated for another reason than its language, or is in such an element."""
    partner: int | None = None
    """Index of the end tag."""

    @property
    def is_custom(self) -> bool:
        """Whether HTML does not define the element."""
        return "-" in self.name or ":" in self.name

    @property
    def is_inline(self) -> bool:
        return self.name in INLINE or self.name in ("", "!") or self.is_custom_inline


class HtmlReader:
    """Finds the texts and values in HTML, and the edits that set its language."""

    def __init__(self, source: str, options: DocumentOptions) -> None:
        self.parts: list[InlineText | Value] = []
        self.edits: list[Edit] = []
        self._source = source
        self._options = options
        # XHTML may not have the entity.
        self._no_break_space = "&nbsp;" if "&nbsp;" in source else "\xa0"

    def read(self, start: int, end: int) -> None:
        """Read a range of the source, whose elements end in it."""
        tokens = list(_tokenize(self._source, start, end))
        _set_translated(tokens, base_language(self._options.src))
        self.parts += (InlineText(run, self._escape) for run in self._runs(tokens))
        self.parts += self._attribute_values(tokens)
        self.edits += _language_edits(tokens, self._options)

    def _escape(self, text: str) -> str:
        return escape(text, quote=False).replace("\xa0", self._no_break_space)

    def _quote(self, quote: str, codes: Mapping[str, str], text: str) -> str:
        """Escape all text but the code of templates. `codes` has the source of each code in the
        text."""
        parts = [text]
        if codes:
            alternatives = "|".join(map(re.escape, codes))
            parts = re.split(f"({alternatives})", text)
        output = ""
        for part in parts:
            escaped = self._escape(part).replace(quote, QUOTES[quote])
            output += codes.get(part) or escaped
        return f"{quote}{output}{quote}"

    def _attribute_values(self, tokens: Iterable[_Token]) -> Iterator[Value]:
        for token in tokens:
            has_own_content = token.name in ("iframe", "textarea") or token.is_icon_font
            if not token.is_translated and not (has_own_content and token.is_in_translated):
                continue
            for name, match in token.attributes.items():
                if not _is_text(token, name):
                    continue
                block, codes = _attribute_block(_value(match))
                if not block.text:
                    continue
                start, end = match.span(match.lastgroup or 0)
                quote = '"'
                if match.lastgroup != "bare":
                    start -= 1
                    end += 1
                    quote = self._source[start]
                yield Value(start, end, block, partial(self._quote, quote, codes))

    def _runs(self, tokens: Sequence[_Token]) -> Iterator[list[Piece]]:
        """Yield the runs of text and inline markup."""
        run = []
        self._find_custom_inline(tokens)
        num_blocks = [0, *accumulate(not token.is_inline for token in tokens)]
        end = 0
        for i, token in enumerate(tokens):
            if i < end:  # in an icon or a fixed element
                continue
            last = token.partner
            if last is not None and _is_icon(token, i):
                end = last + 1
                run.append(Piece(token.start, tokens[last].end, Kind.POINT, name=_ICON_NAME))
            elif last is not None and _is_fixed(token, num_blocks[last] - num_blocks[i + 1]):
                end = last + 1
                run.append(self._fixed_piece(tokens[i:end]))
            elif not _is_in_run(token):
                yield from _split_at_icons(run)
                run = []
            elif token.name == "":
                run += self._text_pieces(token.start, token.end)
            else:
                run.append(self._markup_piece(token))
        yield from _split_at_icons(run)

    def _find_custom_inline(self, tokens: Sequence[_Token]) -> None:
        """Find the elements that HTML does not define, in a sentence that goes on before or after
        them: browsers show them as a part of it."""
        for i in reversed(range(len(tokens))):  # inner elements first
            token = tokens[i]
            last = token.partner
            if not token.is_custom or last is None or last - i > MAX_CUSTOM_TOKENS:
                continue
            content = tokens[i + 1 : last]
            before = tokens[i - 1] if i else _Token(0, 0)
            after = tokens[last + 1] if last + 1 < len(tokens) else _Token(0, 0)
            is_among_others = any(each.is_custom and not each.is_inline for each in (before, after))
            if is_among_others or not all(each.is_inline for each in content):
                continue
            ends_within = _CONTINUED.search(self._text(before))
            if ends_within or _CONTINUING.match(self._text(after)):
                token.is_custom_inline = True
                tokens[last].is_custom_inline = True

    def _text(self, token: _Token) -> str:
        """Return the source of a text; empty for other tokens."""
        return "" if token.name else self._source[token.start : token.end]

    def _text_pieces(self, start: int, end: int) -> Iterator[Piece]:
        """Yield the pieces of text, in which code of templates is not decoded."""
        for match in _TEMPLATE.finditer(self._source, start, end):
            yield from text_piece(start, match.start(), self._source, _decode_text)
            yield _code_piece(match)
            start = match.end()
        yield from text_piece(start, end, self._source, _decode_text)

    def _markup_piece(self, token: _Token) -> Piece:
        name = token.name
        if name == "br":
            kind = Kind.LINE_BREAK
        elif name in BREAKS:
            kind = Kind.BREAK
        elif name == "!":
            kind, name = paired_code(self._source[token.start : token.end])
        elif token.is_empty:
            kind = Kind.POINT
        else:
            kind = Kind.CLOSE if token.is_end else Kind.OPEN
        return Piece(token.start, token.end, kind, name=name)

    def _fixed_piece(self, tokens: Sequence[_Token]) -> Piece:
        start = tokens[0].start
        end = tokens[-1].end
        text = ""
        if tokens[0].name not in WITHOUT_TEXT and not _is_bullet(tokens[0]):
            texts = [self._source[each.start : each.end] for each in tokens if not each.name]
            text = _decode_text("".join(texts)).strip()
        return Piece(start, end, Kind.FIXED if text else Kind.POINT, text)


def parse(data: bytes, options: DocumentOptions) -> SplicedDocument:
    """Parse an HTML document.

    The encoding is that of the byte order mark, else of the `<meta>` element, else UTF-8. A
    translated character that the encoding does not have becomes a character reference.

    Raises:
        DataError: the encoding is unknown, or the file is not valid in it.
    """
    file = TextFile.decode(data, options.encoding_errors, _declared_encoding(data))
    reader = HtmlReader(file.text, options)
    reader.read(0, len(file.text))
    return SplicedDocument(file, in_order(reader.parts), reader.edits, "xmlcharrefreplace")


def _declared_encoding(data: bytes) -> str:
    start = data[:_NUM_SNIFFED_BYTES].decode("latin-1")
    # Text in comments, scripts and other attributes may look like a declaration.
    tokens = _tokenize(start, 0, len(start))
    metas = [token for token in tokens if token.name == "meta"]
    declarations = [_XML_ENCODING.match(start), *map(_charset, metas)]
    declared = next(filter(None, declarations), None)
    if declared is None:
        return "utf-8"
    name = declared[1].lower()
    return _ENCODINGS.get(name, name)


def _charset(meta: _Token) -> re.Match[str] | None:
    """Return the match of the encoding that a `<meta>` element declares."""
    if "charset" in meta.attributes:
        return _CHARSET.match(_attribute(meta, "charset"))
    if _attribute(meta, "http-equiv").lower() == "content-type":
        return _CONTENT_CHARSET.search(_attribute(meta, "content"))
    return None


def _tokenize(source: str, start: int, end: int) -> Iterator[_Token]:
    """Yield a range of the source as tokens."""
    is_xml = _XML.search(source[:_NUM_SNIFFED_BYTES]) is not None
    position = search_start = start
    if front_matter := FRONT_MATTER.match(source, start, end):
        position = search_start = front_matter.end()
        yield _Token(start, position, name="!")
    while match := _TOKEN.search(source, search_start, end):
        search_start = match.end()
        if match["code"]:  # a part of the text
            continue
        if position < match.start():
            yield _Token(position, match.start())
        position = match.end()
        token = _Token(*match.span(), name="!")
        if match["name"]:
            token = _tag(source, match, is_xml)
        yield token
        if token.name in RAW_TEXT and not token.is_end and not token.is_empty:
            closing = re.compile(rf"</{token.name}(?=[\s/>])|\Z", re.IGNORECASE).search(
                source, position, end
            )
            if closing and position < closing.start():
                yield _Token(position, closing.start())
                position = search_start = closing.start()
    if position < end:
        yield _Token(position, end)


def _tag(source: str, match: re.Match[str], is_xml: bool) -> _Token:
    """Return the token of a tag."""
    name = match["name"].lower()
    token = _Token(*match.span(), name, bool(match["end"]), is_empty=name in VOID)
    if match["attributes"] and not token.is_end:
        for attribute in _ATTRIBUTE.finditer(source, *match.span("attributes")):
            token.attributes.setdefault(attribute[1].lower(), attribute)
    if is_xml and match["attributes"].endswith("/"):
        ends = [attribute.end("bare") for attribute in token.attributes.values()]
        if match.end("attributes") not in ends:
            token.is_empty = True
    is_named = _ICON_ELEMENT.fullmatch(name) is not None
    token.is_icon_font = is_named or _ICON_FONT.search(_attribute(token, "class")) is not None
    return token


def _set_translated(tokens: Iterable[_Token], src: str) -> None:
    """Set whether each token is translated, and the end tags of the elements."""
    open_elements: list[_Token] = []
    num_open = Counter[str]()

    def close() -> _Token:
        element = open_elements.pop()
        num_open[element.name] -= 1
        return element

    for i, token in enumerate(tokens):
        if token.is_end and num_open[token.name]:
            element = close()
            while element.name != token.name:
                element = close()
            element.partner = i
            token.is_translated = element.is_translated
            token.is_in_translated = element.is_in_translated
            continue
        while open_elements and not token.is_end and _ends(token, open_elements[-1]):
            close()
        if open_elements:
            token.is_in_translated = open_elements[-1].is_translated
            token.is_protected = open_elements[-1].is_protected
        _set_own_translation(token, src)
        if token.name not in ("", "!") and not token.is_end and not token.is_empty:
            open_elements.append(token)
            num_open[token.name] += 1


def _ends(token: _Token, element: _Token) -> bool:
    return element.name in ENDS.get(token.name, ()) or (
        element.name == "p" and token.name in ENDS_PARAGRAPH
    )


def _set_own_translation(token: _Token, src: str) -> None:
    """Set whether a token is translated and protected, from its own name and attributes and what it
    inherited."""
    token.is_translated = token.is_in_translated
    is_off = token.name in UNTRANSLATED_ELEMENTS or token.is_icon_font or _is_bullet(token)
    if not token.attributes and not is_off:  # like most tokens
        return
    value = _attribute(token, "translate").lower()
    is_off = is_off or value == "no" or "notranslate" in _attribute(token, "class").split()
    if "translate" in token.attributes and value in ("", "yes"):
        token.is_translated = True
        token.is_protected = False
    elif is_off or token.is_protected:
        token.is_translated = False
        token.is_protected = True
    elif src and token.name != "html":  # without src, it is to be detected
        language = _language_of(token)
        if language:
            token.is_translated = language == src


def _is_bullet(token: _Token) -> bool:
    """Return whether an element is the bullet or number of a list of Microsoft Word."""
    return "style" in token.attributes and _BULLET.search(_attribute(token, "style")) is not None


def _is_in_run(token: _Token) -> bool:
    """Return whether a token belongs to the text around it."""
    is_translated = token.is_translated or (token.is_empty and token.is_in_translated)
    return is_translated and token.is_inline


def _is_fixed(token: _Token, num_blocks: int) -> bool:
    """Return whether an element is within a sentence but not translated.

    Args:
        token: its start tag; it has an end tag.
        num_blocks: the number of tokens in it that separate sentences.
    """
    if token.is_translated or not token.is_in_translated or not token.is_inline:
        return False
    is_text = token.name not in WITHOUT_TEXT and token.name != "math"
    return not is_text or num_blocks == 0


def _is_icon(token: _Token, i: int) -> bool:
    """Return whether the element that starts with token `i` is an icon within a sentence."""
    if not token.is_in_translated:
        return False
    if token.name == "svg" or token.is_icon_font:
        return True
    if not token.is_inline or token.partner != i + 1:
        return False
    classes = _attribute(token, "class")
    has_icon_class = _ICON.search(classes) is not None
    is_empty_italic = token.name == "i" and classes != ""
    return has_icon_class or is_empty_italic


def _icons_at_sentence_ends(run: Sequence[Piece]) -> list[int]:
    """Return the indices of icons, except for those after which the text goes on in lower case."""
    indices = []
    next_text = ""
    for i in reversed(range(len(run))):
        next_text = run[i].text or next_text
        continues = next_text[:1].islower() or _CONTINUATION.match(next_text)
        if run[i].name == _ICON_NAME and not continues:
            indices.append(i)
    return indices[::-1]


def _split_at_icons(run: list[Piece]) -> Iterator[list[Piece]]:
    """Yield the parts of a run: an icon ends a sentence.

    An icon stays in its element, such as a link, with the space next to it.
    """
    part_start = 0
    for icon in _icons_at_sentence_ends(run):
        first = icon
        end = icon + 1
        while first > part_start and run[first - 1].kind in (Kind.OPEN, Kind.SPACE):
            first -= 1
        while end < len(run) and run[end].kind in (Kind.CLOSE, Kind.SPACE):
            end += 1
        kinds_before = {piece.kind for piece in run[first:icon]}
        starts_element = Kind.OPEN in kinds_before
        part_end = first if starts_element else end
        space = icon + 1 if starts_element else icon - 1
        if part_start <= space < len(run) and run[space].kind is Kind.SPACE:
            run[space] = replace(run[space], kind=Kind.BREAK)
        yield run[part_start:part_end]
        part_start = part_end
    yield run[part_start:]


def _code_piece(match: re.Match[str]) -> Piece:
    """Return the piece of a match of code of a template."""
    if _TEMPLATE_COMMENT.fullmatch(match[0]):
        return Piece(*match.span(), Kind.POINT)
    if len(match[0]) > MAX_CODE_LENGTH:
        return Piece(*match.span(), Kind.BREAK)
    return Piece(*match.span(), Kind.FIXED, _SPACES.sub(" ", match[0]))


def _is_text(token: _Token, name: str) -> bool:
    """Return whether the value of an attribute is text."""
    if name == "content":
        described = _attribute(token, "name") or _attribute(token, "property")
        return token.name == "meta" and described.lower() in DESCRIPTIONS
    if name == "value":
        return token.name == "input" and _attribute(token, "type").lower() in BUTTONS
    return name in ATTRIBUTES or (name == "label" and token.name in LABELED)


def _language_edits(tokens: Sequence[_Token], options: DocumentOptions) -> Iterator[Edit]:
    """Yield the edits that set the language of the document and of the translated elements in the
    source language."""
    html = next((token for token in tokens if token.name == "html" and not token.is_end), None)
    src = base_language(options.src)
    tgt = base_language(options.tgt)
    for token in tokens:
        if not token.attributes and token is not html:
            continue
        if token is html and not token.attributes.keys() & {*LANGUAGE_ATTRIBUTES}:
            end_of_name = token.start + len("<html")
            yield Edit(end_of_name, end_of_name, f' lang="{options.tgt}"')
            continue
        language = _language_of(token)
        is_source = token is html or (token.is_translated and language == src)
        if language in ("", tgt) or not is_source:
            continue
        for name in LANGUAGE_ATTRIBUTES:
            if base_language(_attribute(token, name)) == language:
                match = token.attributes[name]
                yield Edit(*match.span(match.lastgroup or 0), options.tgt)


def _language_of(token: _Token) -> str:
    """Return the language code of an element, without its region; empty if it is not set, or by a
    template."""
    code = base_language(_attribute(token, "lang") or _attribute(token, "xml:lang"))
    return code if code.isalpha() else ""  # {{ locale }} of a template


def _attribute(token: _Token, name: str) -> str:
    """Return the value of an attribute; empty if there is none."""
    match = token.attributes.get(name)
    return unescape(_value(match)).strip() if match else ""


def _value(match: re.Match[str]) -> str:
    return match[match.lastgroup] if match.lastgroup else ""


def _attribute_block(value: str) -> tuple[RichText, dict[str, str]]:
    """Return the text of an attribute, and the source of each code of a template, which is fixed
    and not decoded."""
    text = ""
    fixed = []
    codes = {}
    for i, part in enumerate(_TEMPLATE.split(value.strip(" \t\r\n\f"))):
        if i % 2 == 0:
            text += _decode_text(part)
            continue
        code = _SPACES.sub(" ", part)
        codes[code] = part
        start = len(text)
        end = start + len(code)
        fixed.append(FixedSpan(start, end, code))
        text += code
    return RichText(text, (), tuple(fixed)), codes


def _decode_text(source: str) -> str:
    return unescape(_SPACES.sub(" ", source))
