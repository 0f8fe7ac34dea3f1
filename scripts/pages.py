"""Hook of the documentation site: formulas as MathML, links to lines of the source, and styles.

Everything is computed when the site is built, so its pages load nothing from other servers.
"""

from __future__ import annotations

import ast
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from markdown.extensions.toc import slugify
from properdocs.config.defaults import ProperDocsConfig
from properdocs.exceptions import PluginError
from properdocs.structure.files import File, Files
from properdocs.structure.pages import Page
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = "https://github.com/nmtkit/nmt"
LINK = re.compile(r"(?<=\]\()(?P<path>\.\./[^)#\s]+)(?:#(?P<fragment>[^)\s]+))?(?=\))")
FORMULA = re.compile(
    r"^(?P<fence>```|~~~).*?^(?P=fence)|(?P<ticks>`+).+?(?P=ticks)"  # code is left alone
    r"|\$\$(?P<block>.+?)\$\$|\$(?P<inline>[^\s$][^$\n]*)\$",
    re.MULTILINE | re.DOTALL,
)
HIGHLIGHTING = {"light": "default", "dark": "github-dark"}
"""Styles of Pygments for the modes of the theme."""
STYLE = """
body::before { background-image: none !important }
[role=main] { overflow-wrap: break-word }
[role=main] img { max-width: 100% }
[role=main] h1 { font-size: 2rem }
[role=main] h2 { font-size: 1.5rem }
[role=main] h3, [role=main] h4 { font-size: 1.2rem }
[role=main] table { display: block; overflow-x: auto }
[role=main] pre { overflow-x: auto }
.formula { overflow-x: auto; margin-bottom: 1rem }
math { font-size: 1.1em }
summary { cursor: pointer }
"""


def on_config(config: ProperDocsConfig) -> ProperDocsConfig:
    """Give headings that begin with a digit an id that is a CSS selector, as the theme expects."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = heading_id
    return config


def heading_id(text: str, separator: str) -> str:
    """Return the id of a heading."""
    slug = slugify(text, separator)
    return f"section-{slug}" if slug[:1].isdigit() else slug


def on_files(files: Files, config: ProperDocsConfig) -> Files:
    """Add the stylesheet."""
    rules = [STYLE]
    for mode, name in HIGHLIGHTING.items():
        formatter = HtmlFormatter(style=name)
        rules.append(formatter.get_style_defs(f"[data-bs-theme={mode}] .highlight"))
    files.append(File.generated(config, "site.css", content="\n".join(rules)))
    return files


def on_page_markdown(markdown: str, page: Page, config: ProperDocsConfig, files: Files) -> str:
    """Render the formulas, and replace relative links to files outside docs/ with links to the
    repository."""
    directory = posixpath.join("docs", posixpath.dirname(page.file.src_uri))

    def to_repository(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(directory, match["path"]))
        if path.startswith("docs/"):
            return match[0]
        url = f"{REPOSITORY}/blob/main/{path}"
        fragment = match["fragment"]
        if not fragment:
            return url
        if not path.endswith(".py"):
            return f"{url}#{fragment}"
        line = definition_line(ROOT / path, fragment)
        if line is None:
            raise PluginError(f"{page.file.src_uri}: {path} does not define {fragment}")
        return f"{url}#L{line}"

    return FORMULA.sub(_to_mathml, LINK.sub(to_repository, markdown))


def definition_line(path: Path, name: str) -> int | None:
    """Return the line of a function, class, method (`Class.method`) or constant of a module."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    line = None
    for part in name.split("."):
        found = next((node for node in body if part in _defined_names(node)), None)
        if found is None:
            return None
        line = found.lineno
        body = found.body if isinstance(found, ast.ClassDef) else []
    return line


def _defined_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _to_mathml(match: re.Match[str]) -> str:
    if match["block"]:
        formula = convert(match["block"].strip(), display="block")
        return f'<div class="formula">{formula}</div>'
    if match["inline"]:
        # Markdown would take <math> at the beginning of a line for a block.
        return f"<span>{convert(match['inline'])}</span>"
    return match[0]
