"""Extensions of Markdown: containers, alerts, shortcodes, attribute lists, wiki links and MDX.

A CommonMark parser does not know them. Blocks are hidden from it: `hide_blocks` returns a source of
the same length in which blanks, headings and list items stand for them, so that the text in them is
found at its offsets. Inline markup is found by `EXTENSION`, and by an inline rule if it has
brackets.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

from nmt.documents.source import FRONT_MATTER, TEMPLATE_BLOCK

MAX_FORMULA_LINES = 200
"""Maximum number of lines of a formula. It bounds the search for the end of one that has none."""
MAX_CODE_LINES = 100
"""Maximum number of lines of MDX code in braces or brackets, for the same reason."""

_PREFIX = r"^(?P<prefix>[ \t]*+(?:(?:[-*+]|\d{1,9}[.)])[ \t]++|>[ \t]*+)*+)"
"""Indent, list markers and quote markers before a block."""
_NEWLINE = r"(?:\r\n|\r|\n)"
_END = r"[ \t]*(?=[\r\n]|\Z)"
_FENCE = r"[ \t]*(?:```|~~~)"
_ATTRIBUTES = r"\{[ \t]*(?:[:#.]|[\w-]+=)[^{}\n]{0,1000}\}"
_DIRECTIVE = r"\[!\w[\w-]*(?:[ \t]*\[[^\[\]\n]*\]\([^()\n]*\)|[ \t])[^\[\]\n]*\]"
"""A directive of DocFX, such as `[!INCLUDE [title](file.md)]`."""
_ALERT = r"\[!\w[\w|-]*\][+-]?"
_CODE_NAMES = (
    r"(?:code-block|code-cell|code|highlight|katex|math|mermaid|plantuml|raw|toctree|eval-rst)\b"
)
"""Containers and shortcodes whose content is code."""
_NOT_LINE_END = re.compile(r"[^\r\n]")

METADATA = re.compile(
    r"\A(?i:title|author|date|slug|category|tags|status|layout|template|summary)[ \t]*:["
    r" \t]+\S[^\r\n]*"
    rf"(?:{_NEWLINE}(?:\w[\w -]{{0,40}}:(?!\S)|[ \t]+\S)[^\r\n]*)+(?:{_NEWLINE}|\Z)(?=[\r\n]|\Z)"
)
"""Metadata of MultiMarkdown and Pelican at the start of a document, without a fence."""
UNTRANSLATED = re.compile(
    r"\{%(?![^%\n]{0,200}%\})|\{%-?\s*(?:if|unless|case|for|raw|code|codeblock|mermaid|math|plantuml)\b"
)
"""Starts of paragraphs with templates that select or repeat text."""
_CALL = r"\{[\w$]+(?:\.[\w$]+|\([^(){}\n]{0,100}\)|\[[^\[\]{}\n]{0,100}\])+\}|\{(?:\"[^\"{}\n]*\"|'[^'{}\n]*')\}"  # noqa: E501
"""An expression of MDX in braces, such as `{user.name}` or `{t("key")}`."""
EXTENSION = re.compile(
    r"(?:(?<!\\)(?:\\\\)*\\)?(?:\[\^[^\]\s]{1,200}\]:?|(?:\A|(?<=\n))\[[ xX]\](?=\s)"
    rf"|{_ALERT}|{_ATTRIBUTES}|\{{/\*[^\n]{{0,1000}}?\*/\}}|\{{%[^%\n]{{0,200}}%\}}|(?<=\s)\^[\w-]{{1,100}}(?=\s*\Z)"
    r"|(?P<word>\{\{[^{}\n]{0,200}\}\}|(?<![\w$])\$\$?[^\s$](?:[^$\n]*[^\s$])?\$\$?(?!\w)"
    rf"|(?<![\w+])\+\+\w[\w+-]*\+\+(?![\w+])|{_CALL})"
    r"|(?P<open>(?<![\w=])==(?=[\w\"']))|(?P<close>(?<=[^\s=])==(?![\w=])))"
)
"""Inline markup without text: footnotes, check boxes, attributes, templates, comments and block
identifiers; and with text that is read as a word: code of templates, formulas, keys and
expressions; and the marks around highlighted text.
"""
_BRACKETS = re.compile(
    r"(?P<image>!)?\[\[(?!\^)[^\[\]\n|]{1,500}(?:\\?\|(?P<label>[^\[\]\n]{1,500}))?\]\](?!\()"
    rf"|(?P<directive>{_DIRECTIVE})"
    rf"|(?P<tag><[a-zA-Z][\w.]*(?=[^<>\n]*=\{{)(?:[^<>{{}}\"'\n]|\"[^\"<\n]*\"|'[^'<\n]*'|\{{(?:[^{{}}<\n]|\{{[^{{}}<\n]*\}})*+\}})*+>)"
)
"""Wiki links such as `[[page|text]]`, embedded files such as `![[image.png]]`, directives, tags of
MDX with code."""
_TEMPLATE_CODE = re.compile(r"(?<=\{\{)[^{}\n`]{1,200}(?=\}\})|(?<=\{%)[^%\n`]{1,200}(?=%\})")


@dataclass(frozen=True)
class _Block:
    """A block of an extension, which starts at a line."""

    pattern: re.Pattern[str]
    """Its group `title` is its text; without it, it has none, or its text follows."""
    marker: str = ""
    """What stands for the start of a block with text."""
    has_content: bool = False
    """Whether the marker is needed for the following lines, too."""


def _block(pattern: str, marker: str = "", *, has_content: bool = False) -> _Block:
    return _Block(re.compile(_PREFIX + pattern, re.MULTILINE), marker, has_content)


def _code_lines(condition: str) -> str:
    """Return a pattern of lines of code up to a blank one or a fence; in brackets, up to the line
    that closes them.

    Args:
        condition: pattern of the first line.
    """
    line = rf"(?!{_FENCE})[^\r\n]"
    opening = rf"[^\r\n]*[{{(\[][ \t]*{_NEWLINE}"
    in_brackets = rf"{opening}(?:{line}*+{_NEWLINE}){{0,{MAX_CODE_LINES}}}?[}})\]][^\r\n]*"
    return rf"(?={condition})(?:{in_brackets}|[^\r\n]*(?:{_NEWLINE}{line}++)*+){_END}"


_SHORTCODE = r"\{\{[<%](?:[^{}]|\{(?!\{)|\}(?!\}))*+\}\}"
_BLOCKS = (
    # Code and comments of templates.
    _block(rf"{TEMPLATE_BLOCK}{_END}"),
    _block(
        rf"\{{\{{[<%][ \t]*(?P<code>{_CODE_NAMES})(?:[^{{`]|\{{(?!\{{[<%])|`(?!``))*+"
        rf"\{{\{{[<%][ \t]*/[ \t]*(?P=code)[^{{}}]{{0,200}}\}}\}}{_END}"
    ),
    _block(
        rf":{{3,}}[ \t]*\{{?{_CODE_NAMES}[^\r\n]*{_NEWLINE}"
        rf"(?:(?![ \t]*:::|{_FENCE})[^\r\n]*{_NEWLINE})*+[ \t]*:{{3,}}{_END}"
    ),
    # Code and comments of MDX, and its components on lines of their own.
    _block(
        _code_lines(
            r"import[ \t]+(?:(?:[\w*{][^\r\n]*[ \t}]from["
            rf" \t]+)?[\"'][^\"'\r\n]+[\"'];?{_END}|\{{{_END})"
        )
    ),
    _block(_code_lines(rf"export[ \t]+default[ \t]+(?:[\w.]+;?{_END}|[^\r\n]*[({{\[])")),
    _block(
        _code_lines(
            r"export[ \t]+(?:const|let|var|class|async[ \t]+function|function|\{|\*)[^\r\n]*[=({}*]"
        )
    ),
    _block(_code_lines(rf"\{{{_END}")),
    _block(rf"\{{/\*(?:[^*{{]|\*(?!/)|\{{(?!/\*))*+\*/\}}{_END}"),
    _block(
        r"</?[A-Z][\w.]*[a-z][\w.]*"
        rf"(?:[^<>{{}}\"'`]|\"[^\"<]*\"|'[^'<]*'|\{{(?:[^{{}}<]|\{{[^{{}}<]*\}})*+\}})*+>{_END}"
    ),
    # Lines that only have markup: tags whose content is Markdown, templates, attributes,
    # directives, included files.
    _block(rf"<[a-z][\w-]*(?=[^>\r\n]*[ \t]markdown\b)[^>\r\n]*>{_END}"),
    _block(rf"(?:(?:\{{%[^%\r\n]{{0,1000}}%\}}|{_SHORTCODE})[ \t]*)+{_END}"),
    _block(
        rf"(?:{_ATTRIBUTES}|{_DIRECTIVE}|\[TOC\]|\[\[_?(?i:toc)_?\]\]|;?--8<--[^\r\n]*|<<<["
        rf" \t]*@[^\r\n]*){_END}"
    ),
    # Blocks with a title, which a heading stands for.
    _block(rf":{{3,}}[ \t]*\w[\w-]*\[(?P<title>[^\]\r\n]+)\][^\r\n]*{_END}", "#"),
    _block(
        r":{3,}[ \t]*(?:\w[\w-]*|\{[\w-]+\})["
        rf" \t]+(?P<title>(?![^\r\n]*(?::::|[={{}}]))\S[^\r\n]*?){_END}",
        "#",
    ),
    _block(r":{3,}[^\r\n]*"),
    _block(rf"{_ALERT}(?:[ \t]+(?P<title>\S[^\r\n]*?))?{_END}", "#"),
    _block(rf"\*\[[^\]\r\n]+\]:[ \t]+(?P<title>\S[^\r\n]*?){_END}", "#"),
    # Blocks with indented content, which a list item stands for.
    _block(
        r"(?:!!!|\?\?\?\+?)[ \t]?[a-z][\w-]+(?:[ \t]+[\w-]+){0,3}"
        rf"(?:[ \t]+\"(?P<title>[^\r\n]*)\")?{_END}",
        "- #",
        has_content=True,
    ),
    _block(rf"===[!+]?[ \t]+\"(?P<title>[^\r\n]+)\"{_END}", "- #", has_content=True),
    _block(r":(?=[ \t]+\S)", "-", has_content=True),  # the definition of a term
)


def hide_blocks(source: str) -> str:
    """Return a source of the same length in which a CommonMark parser finds the text of
    extensions."""
    for block in _BLOCKS:
        source = block.pattern.sub(lambda match, block=block: _hide(match, block), source)  # type: ignore[misc]
    return _TEMPLATE_CODE.sub(lambda match: "x" * len(match[0]), source)


def _hide(match: re.Match[str], block: _Block) -> str:
    prefix = match["prefix"]
    blank = _NOT_LINE_END.sub(" ", match[0][len(prefix) :])
    title = match.groupdict().get("title") or ""
    if not title and not block.has_content:
        return prefix + blank
    if not title:
        return prefix + block.marker + blank[len(block.marker) :]
    start = match.start("title") - match.end("prefix")
    return prefix + block.marker.ljust(start) + title + blank[start + len(title) :]


def metadata_end(source: str) -> int:
    """Return the end of the metadata at the start of a document."""
    metadata = FRONT_MATTER.match(source) or METADATA.match(source)
    return metadata.end() if metadata else 0


def brackets(state: StateInline, silent: bool) -> bool:
    """Inline rule for wiki links, embedded files, directives and tags of MDX."""
    match = _BRACKETS.match(state.src, state.pos, state.posMax)
    if not match:
        return False
    if not silent and match["label"]:
        state.push("wiki_open", "", 1).meta["range"] = (match.start(), match.start("label"))
        state.push("wiki_close", "", -1).meta["range"] = (match.end("label"), match.end())
    elif not silent:
        name = "html_inline" if match["tag"] else "embed" if match["image"] else "name"
        state.push(name, "", 0).meta["range"] = match.span()
    state.pos = match.end()
    return True


def formula(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Block rule for a formula in lines of its own, between `$$` and `$$` or `\\[` and `\\]`."""

    def text(line: int) -> str:
        return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]].rstrip()

    first = text(start_line)
    # "\[" before a word is an escaped bracket.
    if not first.startswith("$$") and first[:3].rstrip() != "\\[":
        return False
    end = "$$" if first[0] == "$" else "\\]"
    last_line = min(end_line, start_line + MAX_FORMULA_LINES)
    if (
        _next_mark(state, end, state.bMarks[start_line] + state.tShift[start_line] + 2)
        > state.eMarks[last_line - 1]
    ):
        return False
    for line in range(start_line, last_line):
        content = first[2:] if line == start_line else text(line)
        is_outside = content.startswith(("```", "~~~")) or state.sCount[line] < state.blkIndent
        if end in content or (content and is_outside):
            break
    if not content.endswith(end) or content.count(end) > 1:
        return False
    if not silent:
        state.line = line + 1
        state.push("formula", "", 0)
    return True


def _next_mark(state: StateBlock, mark: str, position: int) -> int:
    """Return where a mark is next from a position on, or the length of the source. Each part is
    searched once."""
    searches: dict[str, range] = state.env.setdefault("searches", {})
    searched = searches.get(mark, range(0))
    if position not in searched:
        end = state.src.find(mark, position)
        searched = range(position, (end if end >= 0 else len(state.src)) + 1)
        searches[mark] = searched
    return searched.stop - 1
