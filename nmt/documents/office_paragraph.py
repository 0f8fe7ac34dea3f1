"""A paragraph of DOCX or PPTX: its text, and markup as tags.

WordprocessingML (`w:p`) and DrawingML (`a:p`) have the same structure: runs (`r`) with properties
(`rPr`) and text (`t`). Only WordprocessingML has other elements around runs, such as hyperlinks,
and several elements in a run.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, cast

from nmt.documents.document import RichText, Tag
from nmt.documents.rich_text import Event, Sections, events, with_fixed_tags
from nmt.text.language_codes import base_language
from nmt.text.spans import apply_edits
from nmt.translation.segments import FixedSpan

if TYPE_CHECKING:
    from lxml import etree

XML_SPACE = "{http://www.w3.org/XML/1998/namespace}space"
CONTAINERS = {
    "hyperlink",
    "ins",
    "moveTo",
    "smartTag",
    "sdt",
    "fldSimple",
    "customXml",
    "dir",
    "bdo",
}
"""Elements around runs with text."""
RANGE_STARTS = {
    "bookmarkStart": "bookmarkEnd",
    "commentRangeStart": "commentRangeEnd",
    "permStart": "permEnd",
}
FIELD = "field"
BREAKS = {"tab": "\t", "ptab": "\t", "br": "\n", "cr": "\n"}
"""Elements that separate the sections of a paragraph, which are translated one by one."""
DROPPED = {"proofErr", "lastRenderedPageBreak"}
"""Results of spelling checks and layout, which do not apply to a translation."""
MAX_CODE_ELEMENTS = 100
"""Maximum number of elements that have the code of a field."""
NOT_FORMATTING = {"lang", "noProof", "dirty", "err", "smtClean", "altLang", "bmk"}
"""Properties that do not make runs different."""


def local_name(element: etree._Element) -> str:
    """Return the name of an element without its namespace; "" for a comment."""
    return element.tag.rsplit("}", 1)[-1] if isinstance(element.tag, str) else ""


def set_language(element: etree._Element, language: str) -> None:
    """Set the language of `w:lang` or `a:rPr`, unless it is a variant of `language`."""
    name = next((key for key in element.attrib if key.rsplit("}", 1)[-1] in ("val", "lang")), None)
    if name and base_language(element.get(name, "")) != base_language(language):
        element.set(name, language)


@dataclass
class RunChild:
    """An element that must be in a run, such as an image or a tab."""

    element: etree._Element
    properties: etree._Element | None


@dataclass
class Markup:
    """The XML of a tag."""

    nodes: list[etree._Element | RunChild] = field(default_factory=list)
    """What is at the start of the tag, or at a point, or the elements of fixed text."""
    end_nodes: list[etree._Element | RunChild] = field(default_factory=list)
    shell: etree._Element | None = None
    """An element around the text, without content."""
    properties: etree._Element | None = None
    """The properties of runs; None for a tag without formatting, or for runs without properties."""
    is_formatting: bool = False
    fixed_text: str = ""


class Paragraph:
    """The text of a paragraph, and how to replace it."""

    def __init__(self, element: etree._Element) -> None:
        self.element = element
        self._namespace = element.tag.rsplit("}", 1)[0] + "}"
        self._text = ""
        self._tags: list[Tag] = []
        self._fixed: list[FixedSpan] = []
        self._markup: dict[int, Markup] = {}
        self._parents: dict[int, int] = {}
        self._open: list[
            tuple[str, int]
        ] = []  # name and index of each open tag; for a range, name and id of its end
        self._breaks: list[
            etree._Element | RunChild | None
        ] = []  # of each separator; None for a tab character
        self._format: int | None = None  # index of the current formatting tag
        self._field_depth = 0
        self._field_nodes: list[etree._Element] = []
        self._add_children(element)
        self._end_format()
        self._base = self._remove_base()
        rich = RichText(self._text, tuple(self._tags), tuple(self._fixed))
        self._sections = Sections(rich, re.compile(r"[\t\n]"))
        text = apply_edits(self._text, ((span.start, span.end, "") for span in self._fixed))
        self.blocks = self._sections.blocks if text.strip() else []

    # Parsing

    def _add_children(self, parent: etree._Element) -> None:
        """Add the content of a paragraph, or of an element around runs."""
        field_ends = _field_ends(parent)
        for child in parent:
            name = local_name(child)
            if name in DROPPED or name.endswith("Pr") or name == "endParaRPr":
                continue
            end = field_ends.get(child)
            if self._field_depth or (end is not None and _is_untranslated_field(child, end)):
                self._add_to_field(child)
            elif name == "r" and child.tag.startswith(self._namespace):
                self._add_run(child)
            elif name == "br":  # DrawingML
                self._add_break(child, "\n")
            elif name in CONTAINERS and _text_of(child).strip() and not _is_field_result(child):
                self._add_container(child)
            elif name in ("ins", "moveTo") and _text_of(child):  # a space between words
                self._add_children(child)
            elif name in ("fld", "fldSimple"):
                self._add_fixed([child], _text_of(child))
            else:
                self._add_node(child, name)

    def _add_run(self, run: etree._Element) -> None:
        properties = run.find(f"{self._namespace}rPr")
        for child in run:
            name = local_name(child)
            if name in DROPPED or name == "rPr":
                continue
            text = _text(child) if name == "t" else ""
            if (
                len(text) > 2 and text.isspace() and self._is_underlined(properties)
            ):  # a blank to fill in
                self._add_break(RunChild(child, properties), "\t")
            elif name == "t":
                self._add_text(text, properties)
            elif name == "noBreakHyphen":
                self._add_text("\u2011", properties)
            elif name in BREAKS:
                self._add_break(RunChild(child, properties), BREAKS[name])
            else:
                self._end_format()
                self._add_run_child(RunChild(child, properties))

    def _is_underlined(self, properties: etree._Element | None) -> bool:
        if properties is None:
            return False
        underline = properties.find(f"{self._namespace}u")
        value = properties.get("u") if underline is None else underline.get(f"{self._namespace}val")
        return value not in (None, "none")

    def _add_run_child(self, node: RunChild) -> None:
        """Add an element without text: a point, or a part of the start or end of a field whose
        result is translated."""
        types = _field_types(node.element)
        index = self._open[-1][1] if self._open and self._open[-1][0] == FIELD else None
        markup = Markup() if index is None else self._markup[self._tags[index].id]
        if "begin" in types:
            self._open.append((FIELD, self._add_tag(Markup([node]))))
        elif index is not None and "end" in types:
            markup.end_nodes.append(node)
            self._close(FIELD)
        elif index == len(self._tags) - 1 and (
            "separate" in types or local_name(node.element) == "instrText"
        ):
            markup.nodes.append(node)
        else:
            self._add_tag(Markup([node]))

    def _add_text(self, text: str, properties: etree._Element | None) -> None:
        if text.startswith(" ") and self._text.endswith(" ") and (point := self._point_at_end()):
            # The translation has one space for the two, and the element keeps the other one.
            point.nodes.append(RunChild(self._text_element(" "), properties))
            text = text[1:]
        if not text:
            return
        if self._format is None or (
            text.strip() and self._key_of(self._format) != _key(properties)
        ):
            self._end_format()
            self._format = self._add_tag(Markup(properties=properties, is_formatting=True))
        self._breaks += [None] * len(re.findall(r"[\t\n]", text))
        self._text += text

    def _point_at_end(self) -> Markup | None:
        """Return the last element without text, if it is at the end of the text."""
        open_indices = {index for _, index in self._open}
        for i in reversed(range(len(self._tags))):
            if self._tags[i].start < len(self._text):
                break
            if i not in open_indices and (markup := self._markup[self._tags[i].id]).nodes:
                return markup
        return None

    def _text_element(self, text: str) -> etree._Element:
        element = self.element.makeelement(f"{self._namespace}t")
        element.text = text
        if text != text.strip() and "wordprocessingml" in self._namespace:
            element.set(XML_SPACE, "preserve")
        return element

    def _add_break(self, node: etree._Element | RunChild, character: str) -> None:
        self._breaks.append(node)
        self._text += character

    def _add_container(self, element: etree._Element) -> None:
        self._end_format()
        index = self._add_tag(Markup(shell=element))
        self._open.append((local_name(element), index))
        content = [child for child in element if local_name(child) == "sdtContent"]
        self._add_children(content[0] if content else element)
        self._end_format()
        self._close(local_name(element))
        if self._tags[index].start == len(
            self._text
        ):  # only drawings, formulas or text boxes: it is kept whole
            self._markup[self._tags[index].id] = Markup([element])
            del self._tags[index + 1 :]

    def _add_node(self, element: etree._Element, name: str) -> None:
        """Add an element without text to translate: the start or end of a range, or a point."""
        self._end_format()
        identifier = next(
            (value for key, value in element.attrib.items() if key.endswith("}id")), ""
        )
        if name in RANGE_STARTS:
            self._open.append(
                (f"{RANGE_STARTS[name]} {identifier}", self._add_tag(Markup([element])))
            )
        elif self._open and self._open[-1][0] == f"{name} {identifier}":
            self._markup[self._tags[self._open[-1][1]].id].end_nodes.append(element)
            self._close(self._open[-1][0])
        else:
            self._add_tag(Markup([element]))

    def _add_to_field(self, child: etree._Element) -> None:
        """Add an element of a field with several runs, such as a page number; its result is not
        translated."""
        self._field_nodes.append(child)
        types = _field_types(child)
        self._field_depth += types.count("begin") - types.count("end")
        if self._field_depth <= 0:
            nodes, self._field_nodes, self._field_depth = self._field_nodes, [], 0
            self._add_fixed(nodes, "".join(map(_text_of, nodes)))

    def _add_fixed(self, nodes: Sequence[etree._Element], text: str) -> None:
        self._end_format()
        text = " ".join(text.split())
        index = self._add_tag(Markup(list(nodes), fixed_text=text))
        if text:
            start, self._text = len(self._text), self._text + text
            self._tags[index] = replace(self._tags[index], end=len(self._text))
            self._fixed.append(FixedSpan(start, len(self._text), text))

    def _add_tag(self, markup: Markup) -> int:
        """Add a tag at the end of the text, and return its index."""
        tag = Tag(len(self._text), len(self._text), len(self._markup))
        if self._open:
            self._parents[tag.id] = self._tags[self._open[-1][1]].id
        self._tags.append(tag)
        self._markup[tag.id] = markup
        return len(self._tags) - 1

    def _close(self, name: str) -> None:
        """End the innermost tag with a name. Ranges that start in it and end later remain two
        points."""
        while (last := self._open.pop())[0] != name:
            pass
        self._tags[last[1]] = replace(self._tags[last[1]], end=len(self._text))

    def _end_format(self) -> None:
        if self._format is not None:
            self._tags[self._format] = replace(self._tags[self._format], end=len(self._text))
            self._format = None

    def _key_of(self, index: int) -> str:
        return _key(self._markup[self._tags[index].id].properties)

    def _remove_base(self) -> etree._Element | None:
        """Remove the formatting tags with the properties that most of the text has, and return
        these properties."""
        lengths: dict[str, int] = {}
        formats = [i for i, tag in enumerate(self._tags) if self._markup[tag.id].is_formatting]
        for i in formats:
            lengths[self._key_of(i)] = (
                lengths.get(self._key_of(i), 0) + self._tags[i].end - self._tags[i].start
            )
        if not lengths:
            return None
        base = max(lengths, key=lengths.__getitem__)
        same = {i for i in formats if self._key_of(i) == base}
        properties = self._markup[self._tags[min(same)].id].properties
        self._tags = [tag for i, tag in enumerate(self._tags) if i not in same]
        return properties

    # Rendering

    def render(self, translations: Sequence[RichText], language: str) -> None:
        """Replace the content of the paragraph by the translations of its blocks."""
        rich = self._sections.join(translations)
        first = [child for child in self.element if local_name(child) == "pPr"]
        last = [child for child in self.element if local_name(child) == "endParaRPr"]
        for child in list(self.element):
            self.element.remove(child)
        self.element.extend(first)
        self._append(rich, language)
        self.element.extend(last)

    def _append(self, rich: RichText, language: str) -> None:
        parents, formats, breaks = [self.element], [self._base], iter(self._breaks)
        placed = set[int]()
        rich = with_fixed_tags(
            rich, {id: each.fixed_text for id, each in self._markup.items() if each.fixed_text}
        )
        fixed = ""
        for event, text, tag in events(rich, self._parents):
            if tag is None:
                if not fixed or text != fixed:
                    self._append_text(parents[-1], text, formats[-1], breaks, language)
                continue
            markup = self._markup[tag.id]
            if event is Event.OPEN:
                if markup.nodes and tag.id not in placed:
                    self._append_nodes(parents[-1], markup.nodes)
                if markup.shell is not None:
                    parents.append(_append_shell(parents[-1], markup.shell))
                formats.append(markup.properties if markup.is_formatting else formats[-1])
                fixed = markup.fixed_text if tag.id not in placed else ""
            else:
                if markup.shell is not None:
                    parents.pop()
                if markup.end_nodes and tag.id not in placed:
                    self._append_nodes(parents[-1], markup.end_nodes)
                formats.pop()
                fixed = ""
                placed.add(tag.id)

    def _append_text(
        self,
        parent: etree._Element,
        text: str,
        properties: etree._Element | None,
        breaks: Iterator[etree._Element | RunChild | None],
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

    def _append_nodes(
        self, parent: etree._Element, nodes: Sequence[etree._Element | RunChild]
    ) -> None:
        for node in nodes:
            if isinstance(node, RunChild):
                run = self._new_run(node.properties)
                run.append(node.element)
                parent.append(run)
            else:
                parent.append(node)

    def _new_run(self, properties: etree._Element | None, language: str = "") -> etree._Element:
        run = self.element.makeelement(f"{self._namespace}r")
        if properties is not None:
            new = copy.deepcopy(properties)
            new.tail = None
            run.append(new)
            for element in (new, *new.findall(f"{self._namespace}lang")) if language else ():
                set_language(element, language)
        return run


def _append_shell(parent: etree._Element, shell: etree._Element) -> etree._Element:
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


def _key(properties: etree._Element | None) -> str:
    """Return a string that is equal for properties with the same formatting."""
    if properties is None:
        return ""
    attributes = sorted(
        (key, value) for key, value in properties.attrib.items() if key not in NOT_FORMATTING
    )
    children = [_describe(child) for child in properties if local_name(child) not in NOT_FORMATTING]
    return repr((attributes, children)) if attributes or children else ""


def _describe(element: etree._Element) -> tuple[object, ...]:
    return (element.tag, sorted(element.attrib.items()), *map(_describe, element))


def _text(element: etree._Element) -> str:
    """Return the text of a `t` element."""
    text = element.text or ""
    if "wordprocessingml" not in element.tag:
        return cast(str, text)
    text = text if element.get(XML_SPACE) == "preserve" else text.strip(" \t\r\n")
    return re.sub(r"[\t\r\n]", " ", text)


def _text_of(element: etree._Element) -> str:
    """Return the text in an element, without field codes and deleted text."""
    return "".join(map(_text, element.iter("{*}t")))


def _is_field_result(element: etree._Element) -> bool:
    return local_name(element) == "fldSimple" and not any(
        "HYPERLINK" in value for value in element.attrib.values()
    )


def _field_types(element: etree._Element) -> list[str]:
    """Return the types of the field characters in an element: begin, separate or end."""
    chars = _field_elements(element)
    return [
        value
        for char in chars
        for key, value in char.attrib.items()
        if key.endswith("}fldCharType")
    ]


def _field_elements(element: etree._Element) -> list[etree._Element]:
    """Return the field characters and codes in an element, without those of text boxes in it."""
    found = element.iter("{*}fldChar", "{*}instrText")
    return [each for each in found if _text_box(each) is _text_box(element)]


def _text_box(element: etree._Element) -> etree._Element | None:
    """Return the innermost text box around an element."""
    return next(element.iterancestors("{*}txbxContent"), None)


def _field_ends(elements: Sequence[etree._Element]) -> dict[etree._Element, etree._Element]:
    """Return the last element of each field that starts in one of neighboring elements and ends in
    one of them."""
    depths = [0]  # after each element
    starts: list[int] = []
    for i, element in enumerate(elements):
        types = _field_types(element)
        if "begin" in types:
            starts.append(i)
        depths.append(depths[-1] + types.count("begin") - types.count("end"))
    # A field ends where as many are open as before it.
    next_at: dict[int, int] = {}
    ends: dict[etree._Element, etree._Element] = {}
    i = len(elements)
    for start in reversed(starts):
        while i > start:
            next_at[depths[i]] = i - 1
            i -= 1
        if depths[start] in next_at:
            ends[elements[start]] = elements[next_at[depths[start]]]
    return ends


def _is_untranslated_field(element: etree._Element, end: etree._Element) -> bool:
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
