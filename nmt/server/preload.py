"""What the processes of documents have in common: modules and compiled patterns.

The process that they are forked from imports this module.
"""

from __future__ import annotations

import gc

import lxml.etree  # noqa: F401

import nmt.server.worker  # noqa: F401
from nmt.documents import office, po, xliff  # noqa: F401
from nmt.documents.formats import FORMATS, DocumentOptions
from nmt.text.scripts import foreign_spans
from nmt.text.sentences import split_sentences

EXAMPLES = {
    ".csv": b"a\nb\n",
    ".html": b"<p>A <b>dog</b>.",
    ".json": b'{"a": "b"}',
    ".md": b"# A *dog*\n\n* [a](b)\n",
    ".srt": b"1\n00:00:01,000 --> 00:00:02,000\nA dog.\n",
    ".txt": b"A dog.\n",
}
"""Documents whose parsers compile patterns."""


def _warm_up() -> None:
    for suffix, content in EXAMPLES.items():
        FORMATS[suffix](content, DocumentOptions("en", "de", keys=("a",)))
    text = "A dog runs. It barks."
    foreign_spans(text, "en", set())
    split_sentences(text, "en")


_warm_up()
gc.freeze()  # the garbage collector would copy the memory that the processes share
