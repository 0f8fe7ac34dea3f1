"""Detection and repair of encoding problems: mojibake, HTML entities, control and replacement
characters."""

from __future__ import annotations

import contextlib
import html.entities
import re
from collections.abc import Container

from nmt.data.check.checks import (
    CONTROL_CHARACTERS,
    ESCAPED_ENTITIES,
    MOJIBAKE,
    REPLACEMENT_CHARACTERS,
    bits_with_fix,
)
from nmt.data.pairs import Pair

POSSIBLE_MOJIBAKE = re.compile("[^\x00-\x7f](?:(?<=[\x80-\x9fÂÃŒœ])|(?=[^\x00-\x7f]))")
"""One of these letters or two characters beyond ASCII: without them, a text is no mojibake to
`is_bad` and `_decode_mojibake`. This pattern is several times as fast as theirs."""
_ENTITY = re.compile(r"&(?:[a-zA-Z][a-zA-Z0-9]{1,23}|#\d{2,7}|#x[0-9a-fA-F]{2,6});")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff]")
_BOX = "\u2500-\u259f"
_MOJIBAKE = re.compile(
    # In code pages 437 and 850, the UTF-8 bytes of a letter are two characters, of which the first
    # is for box drawing; those of a dash or quote are three. In Mac Roman, a letter starts with a
    # square root; π, Ω and µ are excluded.
    f"(?<![{_BOX}])(?:[┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀][^\x00-\x7f]|[ΓÔ][ÇéäåêâÆîôÉ][^\x00-\x7f])+(?![{_BOX}])"
    "|(?:√[^\x00-\x7fπΩµ])+"
)
_CODECS = ("cp437", "cp850", "mac_roman")
_BOXES = re.compile(f"[{_BOX}]+")
_MOJIBAKE_START = re.compile(f"[{_BOX}ΓÔ√]")


def encoding_problems(text: str, ignored: Container[str] = ()) -> int:
    """Return the bits of the encoding problems of a text, except for the checks in `ignored`."""
    problems = 0
    if not text.isprintable() and CONTROL_CHARACTERS.name not in ignored and _CONTROL.search(text):
        problems |= CONTROL_CHARACTERS.bit
    if "&" in text and ESCAPED_ENTITIES.name not in ignored and _has_entity(text):
        problems |= ESCAPED_ENTITIES.bit
    if text.isascii():
        return problems
    if "\ufffd" in text and REPLACEMENT_CHARACTERS.name not in ignored:
        problems |= REPLACEMENT_CHARACTERS.bit
    if MOJIBAKE.name not in ignored and _is_mojibake(text):
        problems |= MOJIBAKE.bit
    return problems


def _has_entity(text: str) -> bool:
    return any(map(_is_known_entity, _ENTITY.findall(text)))


def _is_known_entity(entity: str) -> bool:
    is_number = entity[1] == "#"
    return is_number or entity[1:] in html.entities.html5


def repair_encoding(text: str, ignored: Container[str] = ()) -> str:
    """Decode mojibake, unescape HTML entities and remove control characters, except for the checks
    in `ignored`."""
    import ftfy

    decodes = MOJIBAKE.name not in ignored
    removes_control = CONTROL_CHARACTERS.name not in ignored
    config = ftfy.TextFixerConfig(
        unescape_html=ESCAPED_ENTITIES.name not in ignored,
        fix_encoding=decodes,
        fix_c1_controls=removes_control,
        remove_control_chars=removes_control,
        remove_terminal_escapes=removes_control,
        fix_latin_ligatures=False,
        fix_character_width=False,
        uncurl_quotes=False,
        fix_line_breaks=False,
        normalization=None,
    )
    text = ftfy.fix_text(text, config)
    if decodes:
        text = _decode_mojibake(text)
    return _CONTROL.sub("", text) if removes_control else text


def repair_pair(pair: Pair, problems: int, ignored: Container[str]) -> Pair:
    """Return a pair with the given problems after `repair_encoding`, if it can repair one of
    them."""
    if not problems & bits_with_fix("rewrite"):
        return pair
    source, target = pair
    return repair_encoding(source, ignored), repair_encoding(target, ignored)


def _is_mojibake(text: str) -> bool:
    if not POSSIBLE_MOJIBAKE.search(text):
        return False
    from ftfy.badness import is_bad

    without_replacements = text.replace("\ufffd", " ")  # another check reports U+FFFD
    return is_bad(without_replacements) or _decode_mojibake(text) != text


def _decode_mojibake(text: str) -> str:
    """Decode UTF-8 that was read as code page 437, 850 or Mac Roman; ftfy leaves short runs
    unchanged."""
    return _MOJIBAKE.sub(_decode_run, text) if _MOJIBAKE_START.search(text) else text


def _decode_run(match: re.Match[str]) -> str:
    run = match[0]
    if not _touches_letter(match) and (run[0] == "√" or _BOXES.fullmatch(run)):
        return run  # a square root or a box drawing
    for codec in _CODECS:
        with contextlib.suppress(UnicodeError):
            return run.encode(codec).decode()
    return run


def _touches_letter(match: re.Match[str]) -> bool:
    start, end = match.span()
    before = match.string[start - 1 : start]
    after = match.string[end : end + 1]
    return before.isalpha() or after.isalpha()
