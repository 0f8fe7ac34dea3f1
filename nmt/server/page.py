"""The page on which people translate text and files."""

from __future__ import annotations

import base64
import hashlib
import re

from nmt.core.templates import render
from nmt.documents.formats import FORMATS
from nmt.server.languages import language_name
from nmt.server.limits import Limits
from nmt.server.service import Service

_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


def make_page(service: Service, limits: Limits) -> tuple[str, dict[str, str]]:
    """Return the page and its headers: the Content-Security-Policy allows only its own styles and
    scripts."""
    languages = {
        code: {
            "name": language_name(code),
            "targets": [each for each in service.targets(code) if each != code],
        }
        for code in service.languages
    }
    html = render(
        "translate.html",
        languages=languages,
        default=service.default_pair,
        limits=limits,
        needs_key=bool(limits.keys),
        file_types=sorted(FORMATS.keys() - {".json", ".jsonl"}),  # they need the field key
    )
    return html, {"Content-Security-Policy": _policy(html), "Cache-Control": "no-cache"}


def _policy(html: str) -> str:
    """Return a policy with the hashes of the inline styles and scripts of a page."""
    hashes: dict[str, list[str]] = {"style": [], "script": []}
    for kind, content in _INLINE.findall(html):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
    return (
        f"default-src 'none'; style-src {' '.join(hashes['style'])}; script-src"
        f" {' '.join(hashes['script'])}; connect-src 'self'; form-action 'none'; base-uri 'none';"
        " frame-ancestors 'none'"
    )
