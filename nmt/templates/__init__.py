"""Pages that nmt writes: one HTML file each, which needs no network and follows the reader's light or dark setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nmt import __version__


def render(template: str, **values: Any) -> str:
    """Fill a template of `nmt/templates`; in HTML, text is escaped, since it comes from anywhere."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=template.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(version=__version__, **values)
