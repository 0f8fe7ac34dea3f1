"""Language codes, such as de, pt-BR or zh_Hans."""

from __future__ import annotations

import re


def base_language(code: str) -> str:
    """Return a language code in lower case without region, script and encoding, such as zh for zh-Hans."""
    return re.split("[-_@.]", code.lower())[0]
