"""Templates of model cards and self-contained HTML pages, which support light and dark mode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nmt.core.version import __version__


def render(template: str, **values: Any) -> str:
    """Render a template of `nmt/core/templates`. Values are escaped in HTML."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=template.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(version=__version__, **values)
