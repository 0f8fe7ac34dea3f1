"""A CommonMark parser that records the positions of inline markup, which markdown-it-py does not
report."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, reference
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from mdit_py_plugins.footnote.index import footnote_def

from nmt.documents.markdown_extensions import brackets, formula

REFERENCES = ("]", "][]")
"""Ends of links and images whose label names their definition: a translated label would not be
found."""
_DEFINITION = re.compile(
    r"\[[^\]\n]+\]:[ \t]*(?:<\S|#|\.{0,2}/|[a-zA-Z][\w+.-]+:|\S+/\S*[./]|\S+\.[a-zA-Z])"
)
"""Start of a link definition with a destination that is clearly one."""
_Rule = Callable[[StateInline, bool], bool]


def create_parser() -> MarkdownIt:
    """Return a parser whose inline tokens have `range`, their start and end in the content of their
    block."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    parser.disable(["inline", "text_join"])
    parser.block.ruler.before(
        "fence", "formula", formula, {"alt": ["paragraph", "reference", "blockquote", "list"]}
    )
    parser.block.ruler.before(
        "reference", "footnote_def", footnote_def, {"alt": ["paragraph", "reference"]}
    )
    parser.block.ruler.at("reference", _definition, {"alt": ["paragraph"]})
    # Would delete tokens, whose positions are needed.
    parser.inline.ruler2.disable("fragments_join")
    names = parser.get_active_rules()["inline"]
    for name, rule in zip(names, parser.inline.ruler.getRules(""), strict=True):
        parser.inline.ruler.at(name, _recording(name, rule))
    parser.inline.ruler.before("text", "brackets", brackets)
    return parser


def _definition(state: StateBlock, start_line: int, end_line: int, silent: bool) -> bool:
    """Block rule for link definitions. Like Python-Markdown, and unlike CommonMark, it also ends a
    paragraph."""
    if silent and not _DEFINITION.match(
        state.src, state.bMarks[start_line] + state.tShift[start_line]
    ):
        return False
    return reference(state, start_line, end_line, silent)


def _recording(name: str, rule: _Rule) -> _Rule:
    """Wrap an inline rule so that it records the range of each of its tokens in the content."""

    def record(state: StateInline, silent: bool) -> bool:
        start = state.pos
        num_tokens = len(state.tokens)
        has_pending = bool(state.pending)
        if not rule(state, silent):
            return False
        if silent:
            return True
        added = state.tokens[num_tokens:]
        if name in ("emphasis", "strikethrough"):
            _record_delimiters(added[has_pending:], start)
        elif name == "link":
            _record_link(state, added, start)
        elif name == "autolink":
            del state.tokens[-3:], state.tokens_meta[-3:]
            state.push("autolink", "", 0).meta["range"] = (start, state.pos)
        elif name == "newline":
            _record_hard_break(state, added, start)
        elif name not in ("text", "entity") and added and added[-1].type != "text_special":
            added[-1].meta["range"] = (start, state.pos)
            if name == "image":
                added[-1].meta["label_end"] = state.md.helpers.parseLinkLabel(
                    state, start + 1, False
                )
        return True

    return record


def _record_delimiters(tokens: Sequence[Token], start: int) -> None:
    for token in tokens:
        end = start + len(token.content)
        token.meta["range"] = (start, end)
        start = end


def _record_link(state: StateInline, added: Sequence[Token], start: int) -> None:
    """Record the ranges of the marks around the label; a link that is found by its label becomes
    one token."""
    end = state.pos
    label_end = state.md.helpers.parseLinkLabel(state, start, True)
    first = next(
        i
        for i, token in enumerate(added)
        if token.type == "link_open" and "range" not in token.meta
    )
    opening = added[first]
    if state.src[label_end:end] in REFERENCES:
        num_kept = len(state.tokens) - len(added) + first
        del state.tokens[num_kept:]
        del state.tokens_meta[num_kept:]
        state.push("reference", "", 0).meta["range"] = (start, end)
    else:
        opening.meta["range"] = (start, start + 1)
        added[-1].meta["range"] = (label_end, end)


def _record_hard_break(state: StateInline, added: Sequence[Token], start: int) -> None:
    if not added or added[-1].type != "hardbreak":
        return
    while start and state.src[start - 1] == " ":
        start -= 1
    added[-1].meta["range"] = (start, state.pos)
