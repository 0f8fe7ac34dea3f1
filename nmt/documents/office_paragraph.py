"""A paragraph of DOCX or PPTX: its text, and markup as tags.

WordprocessingML (`w:p`) and DrawingML (`a:p`) have the same structure: runs (`r`) with properties
(`rPr`) and text (`t`). Only WordprocessingML has other elements around runs, such as hyperlinks,
and several elements in a run.
"""

from __future__ import annotations

import copy
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeAlias, cast

from nmt.documents.builder import Markup, TextBuilder
from nmt.documents.document import RichText
from nmt.documents.rich_text import Event, Sections
from nmt.text.language_codes import base_language

if TYPE_CHECKING:
    from lxml import etree

    Element: TypeAlias = etree._Element
    Node: TypeAlias = "Element | RunChild"

XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
CONTAINERS = set("hyperlink ins moveTo smartTag sdt fldSimple customXml dir bdo".split())
"""Elements around runs with text."""
RANGE_STARTS = {
    "bookmarkStart": "bookmarkEnd",
    "commentRangeStart": "commentRangeEnd",
    "permStart": "permEnd",
    "moveFromRangeStart": "moveFromRangeEnd",
    "moveToRangeStart": "moveToRangeEnd",
}
FIELD = "field"
BREAKS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n"}
"""Elements that separate the sections of a paragraph, which are translated one by one."""
SEPARATOR = re.compile(r"[\t\n]")
"""What separates the sections in a text."""
DROPPED = {"proofErr", "lastRenderedPageBreak"}
"""Results of spelling checks and layout, which do not apply to a translation."""
MAX_CODE_ELEMENTS = 100
"""Maximum number of elements that have the code of a field."""
NOT_FORMATTING = {"lang", "noProof", "dirty", "err", "smtClean", "altLang", "bmk"}
"""Properties that do not make runs different."""


def local_name(element: Element) -> str:
    """Return the name of an element without its namespace; "" for a comment."""
    return element.tag.rsplit("}", 1)[-1] if isinstance(element.tag, str) else ""


def set_language(element: Element, language: str) -> None:
    """Set the language of `w:lang` or `a:rPr`, unless it is a variant of `language`."""
    name = next((key for key in element.attrib if key.rsplit("}", 1)[-1] in ("val", "lang")), None)
    if name and base_language(element.get(name, "")) != base_language(language):
        element.set(name, language)


@dataclass
class RunChild:
    """An element that must be in a run, such as an image or a tab."""

    element: Element
    properties: Element | None


@dataclass
class _Markup(Markup):
    """The XML of a tag."""

    nodes: list[Node] = field(default_factory=list)
    """What is at the start of the tag, or at a point, or the elements of fixed text."""
    end_nodes: list[Node] = field(default_factory=list)
    shell: Element | None = None
    """An element around the text, without content."""


@dataclass
class _Format(_Markup):
    """A part of the text with the same formatting."""

    properties: Element | None = None
    """The properties of its runs."""

    @cached_property
    def key(self) -> str:
        """A string that is equal for equal formatting."""
        return _key(self.properties)


class Paragraph:
    """The text of a paragraph, and how to replace it."""

    def __init__(self, element: Element) -> None:
        self.element = element
        self._namespace = element.tag.rpartition("}")[0] + "}"
        self._builder = TextBuilder[_Markup]()
        # Of each separator; None for a tab character
        self._breaks: list[Node | None] = []
        self._format: _Format | None = None  # that of the end of the text
        self._add_children(element)
        self._end_format()
        self._base = self._remove_base()
        rich = self._builder.rich_text()
        self._sections = Sections(rich, SEPARATOR)
        self.blocks = self._sections.blocks if rich.free_text.strip() else []

    # Parsing

    def _add_children(self, parent: Element) -> None:
        """Add the content of a paragraph, or of an element around runs."""
        _split_field_runs(parent)
        field_ends = _field_ends(parent)
        field: list[Element] = []  # with several runs, such as a page number
        field_end: Element | None = None
        for child in parent:
            name = local_name(child)
            if name in DROPPED or name.endswith("Pr"):
                continue
            end = field_ends.get(child)
            if not field and end is not None and _is_untranslated_field(child, end):
                field_end = end
            if field_end is not None:
                field.append(child)
                if child is field_end:
                    self._add_fixed(field)
                    field = []
                    field_end = None
            elif name == "r" and child.tag.startswith(self._namespace):
                self._add_run(child)
            elif name == "br":  # DrawingML
                self._add_break(child, "\n")
            elif name in CONTAINERS and _text_of(child).strip() and not _is_field_result(child):
                self._add_container(child)
            elif name in ("ins", "moveTo") and _text_of(child):  # a space between words
                self._add_children(child)
            elif name in ("fld", "fldSimple"):
                self._add_fixed([child])
            elif name == "ins" and _field_elements(child):
                self._add_field_part(child, child)
            else:
                self._add_node(child, name)

    def _add_run(self, run: Element) -> None:
        properties = run.find(f"{self._namespace}rPr")
        for child in run:
            name = local_name(child)
            node = RunChild(child, properties)
            if name in DROPPED or name == "rPr":
                continue
            if name == "t" and self._is_blank(_text(child), properties):
                self._add_break(node, "\t")
            elif name == "t":
                self._add_text(_text(child), properties)
            elif name == "noBreakHyphen":
                self._add_text("\u2011", properties)
            elif name in BREAKS:
                self._add_break(node, BREAKS[name])
            else:
                self._add_field_part(node, child)

    def _is_blank(self, text: str, properties: Element | None) -> bool:
        """Return whether a text is an underlined blank to fill in."""
        if properties is None or len(text) < 3 or not text.isspace():
            return False
        underline = properties.find(f"{self._namespace}u")
        value = properties.get("u") if underline is None else underline.get(f"{self._namespace}val")
        return value not in (None, "none")

    def _add_field_part(self, node: Node, element: Element) -> None:
        """Add an element without text: a point, or a part of the start or end of a field whose
        result is translated; `node` is what to write for it."""
        builder = self._builder
        self._end_format()
        types = _field_types(element)
        num_open = types.count("begin") - types.count("end")
        field = builder.open[-1][1] if builder.is_innermost(FIELD) else None
        is_code = "end" not in types and _field_elements(element)
        if num_open == 1:
            builder.start(FIELD, _Markup([node]))
        elif field and num_open == -1:
            builder.close(FIELD).end_nodes.append(node)
        elif field and is_code and field is builder.tags[-1]:
            field.nodes.append(node)
        else:
            builder.add(_Markup([node]))

    def _add_text(self, text: str, properties: Element | None) -> None:
        if text.startswith(" ") and self._builder.last_character == " ":
            point = self._point_at_end()
            if point:
                # The translation has one space for the two, and the element keeps the other one.
                point.nodes.append(RunChild(self._text_element(" "), properties))
                text = text[1:]
        if not text:
            return
        is_new = self._format is None or (
            not text.isspace() and self._format.key != _key(properties)
        )
        if is_new:
            self._end_format()
            self._format = _Format(properties=properties)
            self._builder.add(self._format)
        self._breaks += [None] * len(SEPARATOR.findall(text))
        self._builder.add_text(text)

    def _point_at_end(self) -> _Markup | None:
        """Return the last element without text, if it is at the end of the text."""
        open_ids = {markup.id for _, markup in self._builder.open}
        for markup in reversed(self._builder.tags):
            if markup.start < self._builder.length:
                break
            if markup.nodes and markup.id not in open_ids:
                return markup
        return None

    def _text_element(self, text: str) -> Element:
        element = self.element.makeelement(f"{self._namespace}t")
        element.text = text
        if text != text.strip() and "wordprocessingml" in self._namespace:
            element.set(XML_SPACE, "preserve")
        return element

    def _add_break(self, node: Node, character: str) -> None:
        self._breaks.append(node)
        self._builder.add_text(character)

    def _add_container(self, element: Element) -> None:
        builder = self._builder
        name = local_name(element)
        self._end_format()
        markup = builder.start(name, _Markup(shell=element))
        num_tags = len(builder.tags)
        content = element.find("{*}sdtContent")
        self._add_children(element if content is None else content)
        self._end_format()
        builder.close(name)
        if markup.start == markup.end:
            # Only drawings, formulas or text boxes: it is kept whole.
            markup.shell = None
            markup.nodes = [element]
            del builder.tags[num_tags:]

    def _add_node(self, element: Element, name: str) -> None:
        """Add an element without text to translate: the start or end of a range, or a point."""
        builder = self._builder
        self._end_format()
        identifier = next(
            (element.attrib[key] for key in element.attrib if key.endswith("}id")), ""
        )
        end_name = RANGE_STARTS.get(name)
        if end_name:
            builder.start(f"{end_name} {identifier}", _Markup([element]))
        elif builder.is_innermost(f"{name} {identifier}"):
            builder.close(f"{name} {identifier}").end_nodes.append(element)
        else:
            builder.add(_Markup([element]))

    def _add_fixed(self, nodes: Sequence[Element]) -> None:
        self._end_format()
        markup = self._builder.add(_Markup(list(nodes)))
        text = " ".join("".join(map(_text_of, nodes)).split())
        if text:
            self._builder.add_own_text(markup, text)

    def _end_format(self) -> None:
        if self._format:
            self._format.end = self._builder.length
            self._format = None

    def _remove_base(self) -> Element | None:
        """Remove the formatting tags with the properties that most of the text has, and return
        these properties."""
        lengths: dict[str, int] = defaultdict(int)
        formats = [tag for tag in self._builder.tags if isinstance(tag, _Format)]
        for each in formats:
            lengths[each.key] += each.end - each.start
        if not formats:
            return None
        base = max(lengths, key=lengths.__getitem__)
        same = [each for each in formats if each.key == base]
        removed = {each.id for each in same}
        self._builder.tags = [tag for tag in self._builder.tags if tag.id not in removed]
        return same[0].properties

    # Rendering

    def render(self, translations: Sequence[RichText], language: str) -> None:
        """Replace the content of the paragraph by the translations of its blocks."""
        rich = self._sections.join(translations)
        first = self.element.findall("{*}pPr")
        last = self.element.findall("{*}endParaRPr")
        for child in list(self.element):
            self.element.remove(child)
        self.element.extend(first)
        self._append(rich, language)
        self.element.extend(last)

    def _append(self, rich: RichText, language: str) -> None:
        parents = [self.element]
        formats = [self._base]
        breaks = iter(self._breaks)
        for event, text, markup, is_copy in self._builder.events(rich):
            parent = parents[-1]
            if markup is None:
                self._append_text(parent, text, formats[-1], breaks, language)
            elif event is Event.OPEN:
                if not is_copy:
                    self._append_nodes(parent, markup.nodes)
                if markup.shell is not None:
                    parents.append(_append_shell(parent, markup.shell))
                formats.append(markup.properties if isinstance(markup, _Format) else formats[-1])
            else:
                if markup.shell is not None:
                    parents.pop()
                if not is_copy:
                    self._append_nodes(parents[-1], markup.end_nodes)
                formats.pop()

    def _append_text(
        self,
        parent: Element,
        text: str,
        properties: Element | None,
        breaks: Iterator[Node | None],
        language: str,
    ) -> None:
        for piece in re.split(r"([\t\n])", text):
            node = next(breaks, None) if piece in ("\t", "\n") else None
            if node is not None:
                self._append_nodes(parent, [node])
            elif piece:
                run = self._new_run(properties, language)
                run.append(self._text_element(piece))
                parent.append(run)

    def _append_nodes(self, parent: Element, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if isinstance(node, RunChild):
                run = self._new_run(node.properties)
                run.append(node.element)
                parent.append(run)
            else:
                parent.append(node)

    def _new_run(self, properties: Element | None, language: str = "") -> Element:
        run = self.element.makeelement(f"{self._namespace}r")
        if properties is not None:
            new = copy.deepcopy(properties)
            new.tail = None
            run.append(new)
            for element in (new, *new.findall(f"{self._namespace}lang")) if language else ():
                set_language(element, language)
        return run


def _append_shell(parent: Element, shell: Element) -> Element:
    """Append an element without its text, and return the element that the text is in."""
    new = shell.makeelement(shell.tag, dict(shell.attrib), shell.nsmap)
    parent.append(new)
    inner = new
    for child in shell:
        if local_name(child).endswith("Pr"):
            new.append(copy.deepcopy(child))
        elif local_name(child) == "sdtContent":
            inner = child.makeelement(child.tag, dict(child.attrib), child.nsmap)
            new.append(inner)
    return inner


def _key(properties: Element | None) -> str:
    """Return a string that is equal for properties with the same formatting."""
    if properties is None:
        return ""
    attributes = sorted(
        (key, value) for key, value in properties.attrib.items() if key not in NOT_FORMATTING
    )
    children = [_describe(child) for child in properties if local_name(child) not in NOT_FORMATTING]
    return repr((attributes, children)) if attributes or children else ""


def _describe(element: Element) -> tuple[object, ...]:
    return (element.tag, sorted(element.attrib.items()), *map(_describe, element))


def _text(element: Element) -> str:
    """Return the text of a `t` element."""
    text = element.text or ""
    if "wordprocessingml" not in element.tag:
        return cast(str, text)
    text = text if element.get(XML_SPACE) == "preserve" else text.strip(" \t\r\n")
    return re.sub(r"[\t\r\n]", " ", text)


def _text_of(element: Element) -> str:
    """Return the text in an element, without field codes and deleted text."""
    return "".join(map(_text, element.iter("{*}t")))


def _is_field_result(element: Element) -> bool:
    return local_name(element) == "fldSimple" and not any(
        "HYPERLINK" in value for value in element.attrib.values()
    )


def _field_types(element: Element) -> list[str]:
    """Return the types of the field characters in an element: begin, separate or end."""
    chars = _field_elements(element)
    return [
        value
        for char in chars
        for key, value in char.attrib.items()
        if key.endswith("}fldCharType")
    ]


def _field_elements(element: Element) -> list[Element]:
    """Return the field characters and codes in an element, without those of text boxes in it."""
    found = element.iter("{*}fldChar", "{*}instrText")
    return [each for each in found if _text_box(each) is _text_box(element)]


def _text_box(element: Element) -> Element | None:
    """Return the innermost text box around an element."""
    return next(element.iterancestors("{*}txbxContent"), None)


def _split_field_runs(parent: Element) -> None:
    """Make a run of each element of the runs that start or end a field, because text beside the
    field is translated."""
    for run in parent.findall("{*}r"):
        if run.find("{*}fldChar") is None:
            continue
        properties = run.find("{*}rPr")
        others = [child for child in run if child is not properties]
        # The first element stays in the run.
        for child in reversed(others[1:]):
            new = run.makeelement(run.tag, dict(run.attrib))
            if properties is not None:
                new.append(copy.deepcopy(properties))
            new.append(child)
            run.addnext(new)


def _field_ends(elements: Iterable[Element]) -> dict[Element, Element]:
    """Return the last element of each field that starts in one of neighboring elements and ends in
    one of them."""
    depth = 0  # number of open fields
    starts: dict[int, list[Element]] = defaultdict(list)  # by the depth before them
    ends = {}
    for element in elements:
        types = _field_types(element)
        if "begin" in types:
            starts[depth].append(element)
        depth += types.count("begin") - types.count("end")
        # A field ends where as many are open as before it.
        for start in starts.pop(depth, ()):
            ends[start] = element
    return ends


def _is_untranslated_field(element: Element, end: Element) -> bool:
    """Return whether a field that starts in an element and ends in one of those after it has a
    result that stays.

    A container with complete fields, such as an entry of a table of contents with its page number,
    is translated.
    """
    if element is end and local_name(element) in CONTAINERS:
        return False
    depth = 0
    code = ""
    for sibling in islice(chain([element], element.itersiblings()), MAX_CODE_ELEMENTS):
        for each in _field_elements(sibling):
            code += (each.text or "") if depth == 1 else ""
            types = _field_types(each)
            depth += types.count("begin") - types.count("end")
        if sibling is end:
            break
    return "HYPERLINK" not in code
