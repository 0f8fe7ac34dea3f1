"""Documents of plug-ins: what is reported when they are something else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from nmt.core import plugins
from nmt.core.errors import PluginError
from nmt.documents.document import RichText
from nmt.documents.formats import FORMATS, DocumentOptions, parser_of

OPTIONS = DocumentOptions("en", "de")
BLOCK = RichText("A dog.")


def document(blocks: Any = (), content: Any = b"") -> SimpleNamespace:
    return SimpleNamespace(blocks=blocks, render=lambda translations: content)


@pytest.fixture
def result(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the parser of the format `.mine` returns: the item of a list."""
    results: list[Any] = []
    monkeypatch.setitem(FORMATS.data, ".mine", lambda data, options: results[0])
    monkeypatch.setitem(plugins._registrations["format"], ".mine", plugins._Registration(0, "", ""))
    return results


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, "the format '.mine' returned None, not a document"),
        ("secret", "the format '.mine' returned an object of type str, not a document"),
        ([BLOCK], "returned an object of type list, not a document with blocks and render"),
        (SimpleNamespace(blocks=[]), "of type SimpleNamespace, not a document with"),
        (document(None), "blocks of the format '.mine' returned None, not a list of RichText"),
        (document("secret"), "blocks of the format '.mine' returned an object of type str, not"),
        (document([RichText(None)]), "text of a block of the format '.mine' returned None, not"),  # type: ignore[arg-type]
        (document([RichText("", ("b",))]), "tags of a block of the format '.mine' returned an"),  # type: ignore[arg-type]
        (document([RichText("", None)]), "tags of a block of the format '.mine' returned None"),  # type: ignore[arg-type]
        (document([RichText("", (), (3,))]), "type int, not a tuple of FixedSpan"),  # type: ignore[arg-type]
    ],
)
def test_something_else_than_a_document_is_reported(
    wrong: Any, message: str, result: list[Any]
) -> None:
    result.append(wrong)
    with pytest.raises(PluginError, match=message) as caught:
        parser_of(".mine")(b"", OPTIONS)
    assert "secret" not in caught.value.message  # a server logs it
    assert caught.value.hint == "repair the plug-in"


@pytest.mark.parametrize("content", [None, "secret"])
def test_something_else_than_bytes_is_reported(content: Any, result: list[Any]) -> None:
    result.append(document([BLOCK], content))
    parsed = parser_of(".mine")(b"", OPTIONS)
    with pytest.raises(PluginError, match=r"render of the format '.mine' returned .*, not bytes"):
        parsed.render([BLOCK])


def test_blocks_may_be_read_once(result: list[Any]) -> None:
    result.append(document(iter([BLOCK]), b"text"))
    parsed = parser_of(".mine")(b"", OPTIONS)
    assert (list(parsed.blocks), list(parsed.blocks)) == ([BLOCK], [BLOCK])
    assert parsed.render([BLOCK]) == b"text"
