"""The page on which people translate text and files."""

from __future__ import annotations

import base64
import hashlib
import re

from starlette.responses import Response

from nmt.documents.formats import FORMATS
from nmt.server.languages import language_name
from nmt.server.limits import Limits
from nmt.server.service import Service
from nmt.templates import render

_INLINE = re.compile(r"<(style|script)>(.*?)</\1>", re.DOTALL)


class Page:
    """The page, rendered once, and its Content-Security-Policy, which allows only its own styles and scripts."""

    def __init__(self, service: Service, limits: Limits) -> None:
        languages = {
            code: {"name": language_name(code), "targets": [each for each in service.targets(code) if each != code]}
            for code in service.languages
        }
        self._html = render(
            "translate.html", languages=languages, default=service.default_pair, limits=limits,
            needs_key=bool(limits.keys), file_types=sorted(FORMATS),
        )  # fmt: skip
        self._headers = {"Content-Security-Policy": _policy(self._html), "Cache-Control": "no-cache"}

    def response(self) -> Response:
        """Return the page."""
        return Response(self._html, media_type="text/html", headers=self._headers)


def _policy(html: str) -> str:
    """Return a policy with the hashes of the inline styles and scripts of a page."""
    hashes: dict[str, list[str]] = {"style": [], "script": []}
    for kind, content in _INLINE.findall(html):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        hashes[kind].append(f"'sha256-{digest}'")
    return (
        f"default-src 'none'; style-src {' '.join(hashes['style'])}; script-src {' '.join(hashes['script'])}; "
        "connect-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
    )
