"""Templates of model cards and self-contained HTML pages, which support light and dark mode."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.core.version import __version__

if TYPE_CHECKING:
    import jinja2


def render(template: str, **values: Any) -> str:
    """Render a template of `nmt/core/templates`. Values are escaped in HTML."""
    environment = _environment(is_html=template.endswith(".html"))
    return environment.get_template(template).render(version=__version__, **values)


@functools.cache
def _environment(*, is_html: bool) -> jinja2.Environment:
    """Return an environment, which keeps the templates that it has compiled."""
    import jinja2

    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=is_html,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
