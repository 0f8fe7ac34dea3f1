"""DOCX and PPTX (Office Open XML): zip archives of XML parts.

Each paragraph of the text, of tables, text boxes, headers, footers, notes, comments, slides, charts
and diagrams is translated. Neighboring runs with the same properties are merged; the properties
that most of a paragraph has are its base, and other runs are tags. Deleted text of tracked changes
stays as it is. All other parts of the archive are copied.

Specification: ECMA-376,
https://ecma-international.org/publications-and-standards/standards/ecma-376/
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nmt.core.errors import DataError
from nmt.documents.document import RichText
from nmt.documents.formats import DocumentOptions, check_elements
from nmt.documents.office_paragraph import SEPARATOR, Paragraph, local_name, set_language
from nmt.documents.rich_text import Sections
from nmt.documents.splicing import next_blocks

if TYPE_CHECKING:
    from lxml import etree

CONTENT_TYPES = (
    "document.main+xml",
    "document.macroEnabled.main+xml",
    "template.main+xml",
    "template.macroEnabledTemplate.main+xml",
    "header+xml",
    "footer+xml",
    "footnotes+xml",
    "endnotes+xml",
    "wordprocessingml.comments+xml",
    "presentationml.comments+xml",
    "ms-powerpoint.comments+xml",
    "presentationml.slide+xml",
    "notesSlide+xml",
    "drawingml.chart+xml",
    "drawingml.chartshapes+xml",
    "diagramData+xml",
    "diagramDrawing+xml",
)
"""Ends of the content types of parts with text, in the order of translation."""
SAVE_AGAIN = "open the file in an office program and save it again"
PARSED_SHARE = 1 / 16
"""Maximum size of the parts that are parsed, relative to `max_bytes`: their elements take much more
memory."""

_MAIN = re.compile(r"(?:wordprocessingml|ms-word|presentationml|ms-powerpoint)\b.*main\+xml$")
_STYLES = "wordprocessingml.styles+xml"
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError, ValueError)
_COMPRESSIONS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def parse(data: bytes, options: DocumentOptions) -> OfficeDocument:
    """Parse a DOCX or PPTX file.

    Raises:
        DataError: the file is damaged, encrypted, too large, or another format.
    """
    return OfficeDocument(data, options)


class OfficeDocument:
    """The paragraphs of an archive."""

    def __init__(self, data: bytes, options: DocumentOptions) -> None:
        self._data, self._language = data, options.tgt
        self._parts: list[tuple[str, etree._Element, list[Paragraph | _CommentText]]] = []
        self._styles: list[tuple[str, etree._Element]] = []
        self.blocks: list[RichText] = []
        for name, root in _read_parts(data, options.max_bytes, options.max_elements):
            if local_name(root) == "styles":
                self._styles.append((name, root))
                continue
            paragraphs = _paragraphs(root)
            self._parts.append((name, root, paragraphs))
            for paragraph in paragraphs:
                self.blocks += paragraph.blocks

    def render(self, translations: Sequence[RichText]) -> bytes:
        """Return the archive with the translation of each block; a part without changes is copied.

        The document is used up: render it once.
        """
        remaining = iter(translations)
        changed = {}
        for name, root, paragraphs in self._parts:
            is_changed = False
            for paragraph in paragraphs:
                texts = next_blocks(remaining, paragraph)
                if texts != paragraph.blocks:
                    is_changed = True
                    paragraph.render(texts, self._language)
            if is_changed:
                changed[name] = _serialize(root)
        for name, root in self._styles if changed else ():
            for element in root.iter("{*}lang"):
                if local_name(element.getparent()) == "rPr":
                    set_language(element, self._language)
                    changed[name] = b""
            if name in changed:
                changed[name] = _serialize(root)
        return _write(self._data, changed)


def _read_parts(data: bytes, max_bytes: int, max_elements: int) -> list[tuple[str, etree._Element]]:
    """Return names and roots of the parts with text, after checking the limits; see
    `DocumentOptions`."""
    if data.startswith(_OLE):
        raise DataError(
            "the file is encrypted, or in the format of Office 2003 or earlier",
            "save it as .docx or .pptx without a password",
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            infos = {info.filename: info for info in members}
            if sum(info.file_size for info in members) > max_bytes:
                raise DataError(
                    f"the parts of the archive are larger than {max_bytes // 2**20:,} MiB",
                    "split the document",
                )
            if any(info.flag_bits & 1 for info in members):
                raise DataError("the archive is encrypted", "save the document without a password")
            if not {info.compress_type for info in members} <= _COMPRESSIONS:
                raise zipfile.BadZipFile("unusual compression")
            _check_size(infos, ["[Content_Types].xml"], max_bytes)
            types = _content_types(archive, infos)
            if not any(map(_MAIN.search, types.values())):
                raise DataError(
                    "the file is neither DOCX nor PPTX", "see the page Documents for the formats"
                )
            names = _order(types)
            _check_size(infos, names, max_bytes)
            check_elements((_read(archive, infos[name]) for name in names), max_elements)
            return [(name, parse_part(archive, infos, name)) for name in names]
    except _DAMAGE as error:
        raise DataError(
            f"the file is not a DOCX or PPTX archive, or it is damaged ({error})", SAVE_AGAIN
        ) from None


def _check_size(infos: Mapping[str, zipfile.ZipInfo], names: Sequence[str], max_bytes: int) -> None:
    limit = int(max_bytes * PARSED_SHARE)
    if sum(infos[name].file_size for name in names if name in infos) > limit:
        raise DataError(
            f"the parts with text are larger than {limit / 2**20:,.3g} MiB", "split the document"
        )


def _content_types(
    archive: zipfile.ZipFile, infos: Mapping[str, zipfile.ZipInfo]
) -> dict[str, str]:
    """Return the content type of each part: its own, or the default of its file name extension."""
    root = parse_part(archive, infos, "[Content_Types].xml")
    types = {
        (each.get("PartName") or f".{each.get('Extension')}").lstrip("/").lower(): each.get(
            "ContentType", ""
        )
        for each in root.iterchildren("{*}Override", "{*}Default")
    }
    defaults = {name: types.get(f".{name.rpartition('.')[2]}".lower(), "") for name in infos}
    return {name: types.get(name.lower(), default) for name, default in defaults.items()}


def _order(types: Mapping[str, str]) -> list[str]:
    """Return the names of the parts with text in the order of translation, and of the styles."""

    def key(name: str) -> tuple[int, list[int]]:
        return next(i for i, end in enumerate(ends) if types[name].endswith(end)), list(
            map(int, re.findall(r"\d{1,9}", name))
        )

    ends = (*CONTENT_TYPES, _STYLES)
    return sorted((name for name in types if types[name].endswith(ends)), key=key)


def _read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """Return a part, without expanding more than the size that the archive states, which may be
    false."""
    with archive.open(info) as part:
        return part.read(info.file_size)


def parse_part(
    archive: zipfile.ZipFile, infos: Mapping[str, zipfile.ZipInfo], name: str
) -> etree._Element:
    """Parse a part: without DTDs, entities and network access."""
    from lxml import etree

    if name not in infos:
        raise DataError(
            f"the archive has no part {name}", "it is not a DOCX or PPTX file, or it is damaged"
        )
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, strip_cdata=False
    )
    try:
        root = etree.fromstring(_read(archive, infos[name]), parser)
    except etree.XMLSyntaxError as error:
        raise DataError(f"{name} is damaged: {error}", SAVE_AGAIN) from None
    if root.getroottree().docinfo.doctype:
        raise DataError(f"{name} has a document type declaration", SAVE_AGAIN)
    return root


class _CommentText:
    """The text of a comment of PowerPoint before 2021, which has no paragraphs."""

    def __init__(self, element: etree._Element) -> None:
        self._element = element
        self._sections = Sections(RichText(element.text or ""), SEPARATOR)
        self.blocks = self._sections.blocks

    def render(self, translations: Sequence[RichText], language: str) -> None:
        self._element.text = self._sections.join(translations).text


def _paragraphs(root: etree._Element) -> list[Paragraph | _CommentText]:
    """Return all paragraphs with text, in document order."""
    paragraphs: list[Paragraph | _CommentText] = [*map(Paragraph, root.iter("{*}p"))]
    if local_name(root) == "cmLst":
        paragraphs += map(_CommentText, root.iter("{*}text"))
    return [paragraph for paragraph in paragraphs if paragraph.blocks]


def _serialize(root: etree._Element) -> bytes:
    from lxml import etree

    tree = root.getroottree()
    encoding = tree.docinfo.encoding or "UTF-8"
    serialized: bytes = etree.tostring(
        tree, xml_declaration=True, encoding=encoding, standalone=tree.docinfo.standalone
    )
    return serialized


def _write(data: bytes, changed: Mapping[str, bytes]) -> bytes:
    """Return the archive with changed parts; the other parts and the order are unchanged."""
    if not changed:
        return data
    output = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(output, "w") as new:
        for info in archive.infolist():
            try:
                content = changed.get(info.filename) or _read(archive, info)
            except _DAMAGE as error:
                raise DataError(
                    f"{info.filename} in the archive is damaged ({error})", SAVE_AGAIN
                ) from None
            new.writestr(info, content, compress_type=info.compress_type)
        new.comment = archive.comment
    return output.getvalue()
