"""Detection and repair of encoding problems: mojibake, HTML entities, control and replacement characters."""

from __future__ import annotations

import contextlib
import html.entities
import re
from collections.abc import Container

from nmt.data.check.checks import BITS, CONTROL_CHARACTERS, ESCAPED_ENTITIES, MOJIBAKE, REPLACEMENT_CHARACTERS

_ENTITY = re.compile(r"&(?:[a-zA-Z][a-zA-Z0-9]{1,23}|#\d{2,7}|#x[0-9a-fA-F]{2,6});")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff]")
_BOX = "\u2500-\u259f"
_MOJIBAKE = re.compile(
    # In code pages 437 and 850, the UTF-8 bytes of a letter are two characters, of which the first is for box drawing;
    # those of a dash or quote are three. In Mac Roman, a letter starts with a square root; π, Ω and µ are excluded.
    f"(?<![{_BOX}])(?:[┬├─┼╞╟╚╔╩╦╠═╬╧╨╤╥╙╘╒╓╫╪┘┌█▄▌▐▀][^\x00-\x7f]|[ΓÔ][ÇéäåêâÆîôÉ][^\x00-\x7f])+(?![{_BOX}])"
    "|(?:√[^\x00-\x7fπΩµ])+"
)
_MOJIBAKE_START = re.compile(f"[{_BOX}ΓÔ√]")


def encoding_problems(text: str) -> int:
    """Return the bits of the encoding problems of a text."""
    problems = BITS[CONTROL_CHARACTERS.name] if _CONTROL.search(text) else 0
    if "\ufffd" in text:
        problems |= BITS[REPLACEMENT_CHARACTERS.name]
    if "&" in text and any(entity[1] == "#" or entity[1:] in html.entities.html5 for entity in _ENTITY.findall(text)):
        problems |= BITS[ESCAPED_ENTITIES.name]
    if not text.isascii() and _is_mojibake(text):
        problems |= BITS[MOJIBAKE.name]
    return problems


def repair_encoding(text: str, ignored: Container[str] = ()) -> str:
    """Decode mojibake, unescape HTML entities and remove control characters, except for the checks in `ignored`."""
    import ftfy

    has_mojibake, has_control = (check.name not in ignored for check in (MOJIBAKE, CONTROL_CHARACTERS))
    config = ftfy.TextFixerConfig(
        unescape_html=ESCAPED_ENTITIES.name not in ignored, fix_encoding=has_mojibake, fix_c1_controls=has_control,
        remove_control_chars=has_control, remove_terminal_escapes=has_control, fix_latin_ligatures=False,
        fix_character_width=False, uncurl_quotes=False, fix_line_breaks=False, normalization=None,
    )  # fmt: skip
    text = ftfy.fix_text(text, config)
    text = _decode_mojibake(text) if has_mojibake else text
    return _CONTROL.sub("", text) if has_control else text


def _is_mojibake(text: str) -> bool:
    from ftfy.badness import is_bad

    without_replacements = text.replace("\ufffd", " ")  # another check reports U+FFFD
    return is_bad(without_replacements) or _decode_mojibake(text) != text


def _decode_mojibake(text: str) -> str:
    """Decode UTF-8 that was read as code page 437, 850 or Mac Roman; ftfy leaves short runs unchanged."""

    def decode(match: re.Match[str]) -> str:
        run = match[0]
        in_word = any(char.isalpha() for char in (text[match.start() - 1 : match.start()], text[match.end() :][:1]))
        if not in_word and (run[0] == "√" or all("\u2500" <= char <= "\u259f" for char in run)):
            return run  # a square root or a box drawing
        for codec in ("cp437", "cp850", "mac_roman"):
            with contextlib.suppress(UnicodeError):
                return run.encode(codec).decode()
        return run

    return _MOJIBAKE.sub(decode, text) if _MOJIBAKE_START.search(text) else text
