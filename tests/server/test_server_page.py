"""The page of the server in a browser: by pointer and keyboard, on a desk and a phone, light and
dark."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from serving import serving

from nmt import Guard, Translator
from nmt.server.limits import Limits, read_keys
from nmt.server.service import Service
from nmt.synthetic.filters import PROBLEMS

Error = pytest.importorskip("playwright.sync_api", reason="pip install playwright").Error
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    service = Service([Guard(Translator.load(name)) for name in ("en-de", "de-en")])
    yield service
    service.close()


@pytest.fixture(scope="module")
def url(service: Service) -> Iterator[str]:
    with serving(service) as client:
        yield str(client.base_url)


@pytest.fixture(scope="module")
def screens(browser: Any) -> dict[str, Any]:
    """A context of the browser for each screen: a new one for each page would cost more."""
    return {
        "desk": browser.new_context(viewport={"width": 1200, "height": 900}, color_scheme="light"),
        "phone": browser.new_context(viewport={"width": 320, "height": 640}, color_scheme="dark"),
    }


on_both_screens = pytest.mark.parametrize("page", ["desk", "phone"], indirect=True)
"""For tests of what depends on the style of the page: its script is the same on both screens."""


@pytest.fixture
def page(request: pytest.FixtureRequest, screens: dict[str, Any], url: str) -> Iterator[Any]:
    """The page. A script error, a blocked style or script, or a request to another server fails the
    test."""
    page = screens[getattr(request, "param", "desk")].new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on(
        "console",
        lambda message: errors.append(message.text) if "Security" in message.text else None,
    )
    page.on(
        "request", lambda sent: errors.append(sent.url) if not sent.url.startswith(url) else None
    )
    page.goto(url)
    yield page
    assert errors == []
    page.close()


def status(page: Any, pattern: str) -> str:
    """Wait until the status matches a pattern, and return it."""
    page.wait_for_function(
        "pattern => new RegExp(pattern).test(document.getElementById('status').textContent)",
        arg=pattern,
    )
    return str(page.locator("#status").inner_text())


def translate(page: Any, text: str) -> str:
    page.locator("#text").fill(text)
    page.locator("#translate").click()
    status(page, "^(Translated|The text)")
    return str(page.locator("#result").inner_text())


@on_both_screens
def test_a_text_is_translated(page: Any) -> None:
    assert translate(page, "Are we done?\n\nI'm tired.") == "Sind wir fertig?\n\nIch bin müde."
    assert re.fullmatch(
        r"Translated from English\. Expected quality: \d+%\.", page.locator("#status").inner_text()
    )
    assert not page.locator("#warnings").is_visible()
    assert not page.locator("#others").is_visible()
    assert page.locator("#count").inner_text() == "24 of 10,000 characters"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@on_both_screens
def test_the_page_works_by_keyboard_alone(page: Any) -> None:
    def press(*keys: str) -> str:
        for key in keys:
            page.keyboard.press(key)
        return str(page.evaluate("document.activeElement.id || document.activeElement.textContent"))

    assert press("Tab") == "source"
    assert press("Tab", "Tab", "Tab") == "alternatives"
    press("Space")
    assert press("Tab") == "text"
    page.keyboard.insert_text("I see the small dog.")
    press("Control+Enter")
    status(page, "^Translated")
    assert 1 <= page.locator("#others li").count() <= 3
    assert press("Tab") == "translate"
    first = press("Tab")
    words = page.locator("#result .word").all_inner_texts()
    assert first == words[0]
    assert press("End") == words[-1]
    assert press("ArrowLeft") == words[-2]
    aligned = page.locator("#words .word.aligned").all_inner_texts()
    assert page.locator("#aligned").inner_text() == f"“{words[-2]}” comes from “{aligned[0]}”"
    assert press("Home") == words[0]
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@on_both_screens
def test_words_are_aligned(page: Any) -> None:
    translate(page, "I see 42 dogs.")
    page.locator("#words .word", has_text="42").hover()
    assert page.locator("#result .word.aligned").all_inner_texts() == ["42"]
    assert page.locator("#aligned").inner_text() == "“42” became “42”"
    page.locator("#result .word", has_text="42").hover()
    assert page.locator("#words .word.aligned").all_inner_texts() == ["42"]
    page.locator("h1").hover()
    assert page.locator(".word.aligned").count() == 0


def test_languages_are_swapped(page: Any) -> None:
    assert page.locator("#source").input_value() == "auto"
    page.locator("#swap").click()
    assert "Choose the language" in page.locator("#status").inner_text()
    translate(page, "Are we done?")
    page.locator("#swap").click()
    assert [page.locator(name).input_value() for name in ("#source", "#target", "#text")] == [
        "de",
        "en",
        "Sind wir fertig?",
    ]
    page.locator("#source").select_option("en")
    assert page.locator("#target option").all_inner_texts() == ["German"]
    translate(page, "Are we done?")
    page.locator("#text").fill("I'm tired.")  # the translation is that of another text now
    page.locator("#swap").click()
    assert page.locator("#text").input_value() == "I'm tired."


def test_warnings_are_shown(page: Any) -> None:
    page.locator("#source").select_option("en")
    translate(page, "Nous n'avons pas encore terminé notre travail aujourd'hui.")
    assert (
        "The text seems to be in another language."
        in page.locator("#warnings li").all_inner_texts()
    )
    assert page.locator("#status").inner_text().endswith("Check the warnings.")


def test_markup_is_shown_as_text(page: Any) -> None:
    text = (
        "<img src=x onerror=document.title='attack'> <b>dog</b>"
        " </textarea><script>document.title='attack'</script>"
    )
    page.locator("#source").select_option("de")
    translate(page, text)
    assert page.locator("#words").inner_text() == text
    assert page.locator("#result img, #words b, #words script").count() == 0
    assert page.title() == "Translate"


def test_errors_are_shown(page: Any) -> None:
    page.locator("#translate").click()
    assert page.locator("#status").inner_text() == "There is no text to translate."
    page.locator("#text").fill("a" * 10_001)
    page.locator("#translate").click()
    page.locator("#error").wait_for()
    message = "The text is too long for this server. Shorten it by 1 character."
    assert page.locator("#error").inner_text() == message
    assert translate(page, "Are we done?") == "Sind wir fertig?"
    assert not page.locator("#error").is_visible()


@on_both_screens
def test_a_file_is_translated(page: Any, tmp_path: Path) -> None:
    page.locator("#file-form button").click()
    assert page.locator("#file-status").inner_text() == "Choose a file."
    (tmp_path / "a <b>.txt").write_text("Are we done?\n", encoding="utf-8")
    page.locator("#file").set_input_files(tmp_path / "a <b>.txt")
    page.locator("#file-form button").focus()
    page.keyboard.press("Enter")
    link = page.get_by_role("link", name="Download the translation of a <b>.txt")
    with page.expect_download() as download:
        link.click()
    assert Path(download.value.path()).read_text(encoding="utf-8") == "Sind wir fertig?\n"
    page.locator("#file").set_input_files(
        {"name": "a.txt", "mimeType": "text/plain", "buffer": b"\xff"}
    )
    page.locator("#file-form button").click()
    page.locator("#file-error").wait_for()
    assert "not UTF-8" in page.locator("#file-error").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


CONTRAST = """(element) => {
  const channels = (color) => color.match(/[\\d.]+/g).map(Number);
  const linear = (c) => c <= 10.31475 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4;
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const over = (top, below) => { const a = top[3] ?? 1; return [0, 1, 2].map((i) => a * top[i] + (1 - a) * below[i]); };
  const parents = [];
  for (let e = element; e; e = e.parentElement) parents.unshift(e);
  const canvas = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18] : [255, 255, 255];
  let background = canvas, opacity = 1;
  for (const e of parents) {
    background = over(channels(getComputedStyle(e).backgroundColor), background);
    opacity *= getComputedStyle(e).opacity;
  }
  const text = over([...channels(getComputedStyle(element).color).slice(0, 3), opacity], background);
  const [light, dark] = [luminance(text), luminance(background)].sort((a, b) => b - a);
  return (light + 0.05) / (dark + 0.05);
}"""  # noqa: E501


@on_both_screens
def test_text_has_contrast(page: Any) -> None:
    page.locator("#source").select_option("en")
    page.locator("#alternatives").check()
    translate(page, "Nous n'avons pas encore terminé notre travail aujourd'hui.")
    page.locator("#words .word").first.hover()
    names = [
        "h1",
        "label[for=source]",
        "#source",
        "#text",
        "#translate",
        "#swap",
        "#copy",
        "#count",
        "#result .word",
        "#status",
        "#confidence",
        "#warnings li",
        "#others li",
        "#words .word.aligned",
        "#words .word:last-child",
        ".note",
        "footer",
    ]
    contrast = {name: page.locator(name).first.evaluate(CONTRAST) for name in names}
    page.locator("#error").evaluate(
        "element => { element.hidden = false; element.textContent = 'x'; }"
    )
    contrast["#error"] = page.locator("#error").evaluate(CONTRAST)
    assert {name: round(value, 2) for name, value in contrast.items() if value < 4.5} == {}


def test_every_control_has_a_name(page: Any) -> None:
    names = page.evaluate(
        "[...document.querySelectorAll('button, input, select, textarea')].map((e) => e.ariaLabel"
        " || (e.labels && e.labels[0]?.textContent.trim()) || e.textContent.trim())"
    )
    assert all(names), names
    assert page.evaluate("document.documentElement.lang") == "en"


def test_a_key_is_sent(screens: dict[str, Any], service: Service, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("key-of-ann\n")
    with serving(service, Limits(keys=read_keys(tmp_path / "keys"))) as client:
        page = screens["desk"].new_page()
        page.goto(str(client.base_url))
        page.locator("#text").fill("Are we done?")
        page.locator("#translate").click()
        page.locator("#error").wait_for()
        message = "This server requires an API key. Enter it above."
        assert page.locator("#error").inner_text() == message
        page.get_by_label("API key").fill("key-of-bob")
        page.locator("#translate").click()
        page.locator("#error", has_text="This API key is not valid.").wait_for()
        page.get_by_label("API key").fill("key-of-ann")
        assert translate(page, "Are we done?") == "Sind wir fertig?"
        page.close()


def requests(page: Any) -> list[str]:
    """Return the texts that the page sends from now on."""
    texts: list[str] = []
    page.on(
        "request",
        lambda sent: texts.append(sent.post_data_json["q"]) if sent.method == "POST" else None,
    )
    return texts


def test_a_text_is_translated_while_it_is_typed(page: Any) -> None:
    sent = requests(page)
    page.locator("#text").press_sequentially("Are we done?", delay=20)
    status(page, "^Translated from English")
    assert page.locator("#result").inner_text() == "Sind wir fertig?"
    assert len(sent) < len("Are we done?")  # one, unless the machine is slow
    assert sent[-1] == "Are we done?"
    number = len(sent)
    page.locator("#text").press("a")
    page.locator("#text").press("Backspace")  # the same text again
    page.wait_for_timeout(700)
    assert len(sent) == number
    assert page.locator("#status").inner_text().startswith("Translated from English")
    page.locator("#text").fill("")
    assert page.locator("#result").inner_text() == ""
    assert page.locator("#status").inner_text() == ""


def test_the_detected_language_is_shown_in_the_selector(page: Any) -> None:
    option = page.locator("#source option").first
    assert option.inner_text() == "Detect language"
    page.locator("#target").select_option("en")
    translate(page, "Wir sind noch nicht fertig.")
    assert option.inner_text() == "Detect language (German)"
    page.locator("#text").fill("")
    assert option.inner_text() == "Detect language"
    translate(page, "Wir sind noch nicht fertig.")
    page.locator("#source").select_option("de")
    assert option.inner_text() == "Detect language"


def test_an_answer_belongs_to_its_request(page: Any) -> None:
    """The answer to the first text arrives last."""
    held: list[Any] = []

    def answer(route: Any) -> None:
        if route.request.post_data_json["q"] == "I'm tired.":
            held.append(route)
        else:
            route.continue_()

    page.route("**/translate", answer)
    with page.expect_request("**/translate"):
        page.locator("#text").fill("I'm tired.")
        page.locator("#translate").click()
    status(page, "^Translating")
    assert translate(page, "Are we done?") == "Sind wir fertig?"
    with contextlib.suppress(Error):  # the page has aborted the request
        held[0].fulfill(json={"translatedText": "late", "warnings": [], "alignment": []})
    page.wait_for_timeout(100)
    assert page.locator("#result").inner_text() == "Sind wir fertig?"


def reply_with(page: Any, code: int, headers: dict[str, str] | None = None, **reply: Any) -> None:
    """Answer the requests of the page."""
    page.route(
        "**/translate", lambda route: route.fulfill(status=code, headers=headers or {}, json=reply)
    )


def test_typing_stops_at_the_limit_of_requests_and_the_button_remains(page: Any) -> None:
    reply_with(page, 429, {"Retry-After": "7"}, error="too many requests")
    sent = requests(page)
    page.locator("#text").fill("Are we done?")
    page.locator("#error").wait_for()
    assert page.locator("#error").inner_text() == "Too many requests. Try again in 7 s."
    page.unroute("**/translate")
    page.locator("#text").fill("I'm tired.")
    page.wait_for_timeout(700)
    assert sent == ["Are we done?"]
    assert page.locator("#status").inner_text() == "Press Translate when the text is complete."
    assert translate(page, "I'm tired.") == "Ich bin müde."
    page.locator("#text").fill("Are we done?")
    page.wait_for_function(
        "() => document.getElementById('result').textContent === 'Sind wir fertig?'"
    )


def test_typing_uses_half_of_the_allowed_requests(
    screens: dict[str, Any], service: Service
) -> None:
    with serving(service, Limits(rate=20)) as client:
        page = screens["desk"].new_page()
        page.goto(str(client.base_url))
        translate(page, "Are we done?")
        sent = requests(page)
        page.locator("#text").fill("I'm tired.")
        waiting = status(page, "^This server allows 20 requests per minute")
        assert re.search(r"The translation follows in \d s, or press Translate", waiting)
        page.wait_for_timeout(700)
        assert sent == []
        assert translate(page, "I'm tired.") == "Ich bin müde."
        page.close()


@pytest.mark.parametrize(
    ("code", "error", "message"),
    [
        (503, "the server is busy", "The server is busy. Try again later."),
        (413, "the request is too large", "The text or file is too large for this server."),
        (
            400,
            "the text seems to be in French (fr), but this server translates into English (en)",
            "The text seems to be in French, but there is no model from French to English here. If"
            " this is wrong, choose the language under “From”.",
        ),
        (400, "Invalid request: missing q parameter", "Missing q parameter."),
    ],
)
def test_a_refusal_is_in_plain_words(
    screens: dict[str, Any], url: str, code: int, error: str, message: str
) -> None:
    page = screens["desk"].new_page()
    page.goto(url)
    page.locator("#target").select_option("en")
    reply_with(page, code, error=error)
    page.locator("#text").fill("Wir sind fertig.")
    page.locator("#translate").click()
    page.locator("#error").wait_for()
    assert page.locator("#error").inner_text() == message
    page.close()


@pytest.mark.parametrize(
    ("confidence", "message"),
    [
        ({}, "This server does not estimate the quality."),
        ({"confidence": None}, "Expected quality: unknown for this text"),
        ({"confidence": 0.714}, "Expected quality: 71%"),
    ],
)
def test_a_missing_confidence_is_explained(
    screens: dict[str, Any], url: str, confidence: dict[str, float | None], message: str
) -> None:
    page = screens["desk"].new_page()
    page.goto(url)
    names = [*PROBLEMS, "term-not-applied", "term-doubtful", "wrong-source-language"]
    warnings = [f"{name}: 12" for name in names]
    reply = {"translatedText": "x", "warnings": warnings, "alignment": []} | confidence
    reply_with(page, 200, **reply)
    page.locator("#text").fill("Are we done?")
    page.locator("#translate").click()
    status(page, "^Translated")
    assert page.locator("#confidence").inner_text() == message
    shown = page.locator("#warnings li").all_inner_texts()
    assert len(shown) == len(names)
    for name, text in zip(names, shown, strict=True):  # no name of a check is shown
        assert name not in text.lower() or "-" not in name
        assert re.fullmatch("[A-Z“].+", text)
    page.close()


def test_the_policy_allows_only_the_scripts_of_the_page(screens: dict[str, Any], url: str) -> None:
    page = screens["desk"].new_page()
    response = page.goto(url)
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"document.title ="
        " 1\">')"
    )
    page.evaluate(
        "document.body.append(Object.assign(document.createElement('script'), { text:"
        " 'document.title = 1' }))"
    )
    assert page.title() == "Translate"
    page.close()
