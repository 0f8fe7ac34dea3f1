"""What a model looks at: the numbers, and the page in a real browser."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from commandline import CommandLine

from nmt.cli.attention import attention
from nmt.data.batching import collate
from nmt.errors import UsageError
from nmt.inference.translator import Translator
from nmt.model.attention import recording
from nmt.runs import discovery
from nmt.search import Hypothesis
from nmt.train.session import train
from nmt.viz.attention_maps import View, draw, look


@pytest.fixture(scope="module", params=["transformer", "rnn"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> discovery.LoadedModel:
    folder = tmp_path_factory.mktemp("look")
    changes = [
        f"model.arch={request.param}",
        "model.encoder_layers=2",
        "model.decoder_layers=3",
        "model.layer_sharing=2",
    ]
    run = folder / "run"
    train(tiny.config(folder, *changes), run)
    return discovery.load(run)


def test_shouting_is_looked_at_as_it_is_read(loaded: discovery.LoadedModel) -> None:
    shouted = look(replace(loaded, config=replace(loaded.config, lowercase_all_caps=True)), "BA BE BI DO")
    assert shouted.source == look(loaded, "ba be bi do").source != look(loaded, "BA BE BI DO").source


def test_weights_probabilities_and_beams_are_the_models(loaded: discovery.LoadedModel) -> None:
    view = look(loaded, "ba be bi do")
    (best, *_) = next(iter(Translator.load(loaded.run).n_best(["ba be bi do"], "beam(beam_size=4)")))
    assert view.translation == best.text
    assert len(view.beam) == 4
    assert view.beam[0].log_prob == pytest.approx(best.log_prob, abs=1e-3)
    assert view.target == [*best.tokens]
    probabilities = torch.tensor([step.probability for step in view.steps])
    torch.testing.assert_close(probabilities.log(), torch.tensor(best.token_log_probs), atol=1e-3, rtol=1e-3)
    for step in view.steps:
        assert step.piece not in [name for name, _ in step.others]
        assert len(step.others) == 5
        assert [p for _, p in step.others] == sorted((p for _, p in step.others), reverse=True)
        assert step.probability + sum(p for _, p in step.others) < 1 + 1e-5
    sizes = {"encoder": (2, 2), "decoder": (3, 2), "cross": (3, 2)}
    if loaded.config.model.arch == "rnn":
        sizes = {"cross": (1, 1)}
    assert {part: tuple(weights.shape[:2]) for part, weights in view.weights.items()} == sizes
    for part, weights in view.weights.items():
        rows, columns = view.sides(part)
        assert tuple(weights.shape[2:]) == (len(rows), len(columns))
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
    if "decoder" in view.weights:
        assert (view.weights["decoder"].triu(1) == 0).all()


def test_beams_are_as_many_as_asked_and_scored_as_the_search_ranks(loaded: discovery.LoadedModel) -> None:
    translator = Translator.load(loaded.run, precision="fp32")  # as the page: of a model so young, rounding decides
    (*found,) = next(iter(translator.n_best(["ba be"], "beam(beam_size=3, top_beams=3)")))
    view = look(loaded, "ba be", spec="beam(beam_size=3)")
    assert [each.text for each in view.beam] == [each.text for each in found]
    assert [each.score for each in view.beam] == pytest.approx([each.score for each in found], abs=1e-3)
    assert len(look(loaded, "ba be", spec="beam(beam_size=3, top_beams=1)").beam) == 1


def test_a_beam_that_nothing_speaks_for_is_no_alternative(
    loaded: discovery.LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [Hypothesis([5], -1.0, -1.0), Hypothesis([6], -1.0, -math.inf), Hypothesis([7], -math.inf, -1.0)]
    monkeypatch.setattr("nmt.inference.batch.BatchEngine.search", lambda *_: [found])
    assert [each.log_prob for each in look(loaded, "ba be").beam] == [-1.0]


def test_weights_stand_in_the_order_of_the_layers_and_both_sides_are_named(loaded: discovery.LoadedModel) -> None:
    view = look(loaded, "ba be", target="du gi")
    assert (view.languages, view.source[-1], view.target[-1]) == (("en", "de"), "</s>", "</s>")
    batch = collate([(loaded.tokenizer.encode("ba be"), loaded.tokenizer.encode("du gi"))])
    with torch.inference_mode(), recording(loaded.model) as seen:
        state = loaded.model.start(loaded.model.encode(batch.src_BS, batch.src_mask_BS), batch.src_mask_BS)
        loaded.model.step(batch.tgt_in_BT, state)
    if loaded.config.model.arch == "transformer":
        for part, name in {"encoder": "encoder.{}.attention", "decoder": "decoder.{}.attention"}.items():
            wanted = torch.cat([*seen[name.format(0)], *seen.get(name.format(1), [])])
            torch.testing.assert_close(view.weights[part], wanted)
        wanted = torch.cat([*seen["decoder.0.cross"], *seen["decoder.1.cross"]])
        torch.testing.assert_close(view.weights["cross"], wanted)


def test_the_decoder_looks_at_what_it_has_read() -> None:
    view = made()
    read = ["<s>", "▁der", "▁kleine", "▁Hund"]
    assert view.sides("encoder") == (view.source, view.source)
    assert view.sides("decoder") == (read, read)
    assert view.sides("cross") == (view.target, view.source)
    assert view.as_dict()["read"] == read
    found = torch.tensor(view.as_dict()["weights"]["encoder"])
    torch.testing.assert_close(found, view.weights["encoder"], atol=6e-5, rtol=0)


def test_a_picture_has_a_map_for_each_head_with_the_pieces_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figure = pytest.importorskip("matplotlib.figure")
    drawn: list[Any] = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda page, *_, **__: drawn.append(page))
    view = made()
    draw(view, tmp_path / "a.png", "cross", 2)
    for number, panel in enumerate(drawn[0].axes):
        torch.testing.assert_close(torch.tensor(panel.images[0].get_array()), view.weights["cross"][1, number])
        assert [label.get_text() for label in panel.get_xticklabels()] == view.source
        assert [label.get_text() for label in panel.get_yticklabels()] == view.target
        assert panel.get_title() == f"head {number + 1}"
    assert drawn[0].get_suptitle() == "attention to the source, layer 2"
    for layer in (0, 3):
        with pytest.raises(UsageError, match=f"there is no layer {layer}"):
            draw(view, tmp_path / "a.png", "cross", layer)


def test_the_last_layer_is_drawn_unless_another_is_named(
    loaded: discovery.LoadedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []
    monkeypatch.setattr("nmt.viz.attention_maps.draw", lambda view, output, part, layer: drawn.append(layer))
    attention("ba be", model=loaded.run, output=tmp_path / "a.png")
    attention("ba be", model=loaded.run, output=tmp_path / "a.png", layer=1)
    assert drawn == [3 if loaded.config.model.arch == "transformer" else 1, 1]


def test_a_given_translation_is_looked_at_as_it_is(loaded: discovery.LoadedModel) -> None:
    view = look(loaded, "ba be", target="du gi")
    assert (view.translation, view.beam) == ("du gi", [])
    (scored,) = Translator.load(loaded.run).score([("ba be", "du gi")])
    found = torch.tensor([step.probability for step in view.steps]).log()
    torch.testing.assert_close(found, torch.tensor(scored.token_log_probs), atol=1e-4, rtol=1e-4)


def test_what_cannot_be_looked_at_is_refused(loaded: discovery.LoadedModel) -> None:
    with pytest.raises(UsageError, match="no sentence"):
        look(loaded, "  ")
    with pytest.raises(UsageError, match="pieces"):
        look(loaded, "ba " * 400)
    with pytest.raises(UsageError, match="pieces"):
        look(loaded, "ba", target="ba " * 400)


def test_pages_data_and_pictures(trained: CommandLine, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("page.html", "data.json", "new/picture.PNG"):
        shown = ("--part", "encoder") if name.endswith("PNG") else ()
        done = trained("attention", "the <b>dog</b>", "--model", "runs/tiny", "-o", tmp_path / name, *shown)
        assert (done.code, done.out.strip()) == (0, str(tmp_path / name)), done.err
        assert "the <b>dog</b> -> " in done.err
    page = (tmp_path / "page.html").read_text()
    assert "<b>dog</b>" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    found = json.loads((tmp_path / "data.json").read_text())
    assert found["source_text"] == "the <b>dog</b>"
    assert len(found["weights"]["encoder"][0][0]) == len(found["source"])
    assert (tmp_path / "new/picture.PNG").read_bytes().startswith(b"\x89PNG")


def test_what_a_sentence_would_do_to_a_terminal_is_spelt_out(trained: CommandLine, tmp_path: Path) -> None:
    done = trained("attention", "\x1b[31mthe dog", "--model", "runs/tiny", "-o", tmp_path / "page.html")
    assert done.code == 0
    assert "nmt: \\x1b[31mthe dog -> " in done.err
    done = trained("attention", "the dog", "--search", "\x1b[31m")
    assert done.errors == ["cannot read '\\x1b[31m'"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["the dog", "-o", "x"], 2, "cannot write the format '' of x"),
        (["the dog", "-o", "x.txt"], 2, "end it in .html, .json, .png, .svg, .pdf"),
        (["the dog", "-o", "x.pgf"], 2, "cannot write the format '.pgf' of x.pgf"),
        (["the dog", "-o", "x.HTML", "--layer", "1"], 2, "--part and --layer apply to images only"),
        (["the dog", "-o", "x.json", "--part", "cross"], 2, "--part and --layer apply to images only"),
        (["the dog", "-o", "x.png", "--layer", "9"], 2, "there is no layer 9"),
        (["the dog", "--part", "crss"], 2, "unknown part 'crss'"),
        (["", "-o", "x.html"], 2, "there is no sentence to look at"),
        (["the dog", "--search", "bean"], 2, "unknown search 'bean'"),
    ],
)
def test_bad_calls_are_one_line(trained: CommandLine, arguments: list[str], code: int, message: str) -> None:
    done = trained("attention", *arguments)
    assert (done.code, len(done.errors)) == (code, 1), done.err
    assert message in done.err


# ---- the page in a browser


def made() -> View:
    """Two layers of two heads, whose weights are told apart by eye."""
    source, target = ["▁the", "▁small", "▁do", "g", "</s>"], ["▁der", "▁kleine", "▁Hund", "</s>"]
    torch.manual_seed(0)
    shapes = {"encoder": (2, 2, 5, 5), "decoder": (2, 2, 4, 4), "cross": (2, 2, 4, 5)}
    weights = {part: torch.rand(shape).softmax(-1) for part, shape in shapes.items()}
    weights["cross"][0, 0, 2] = torch.tensor([0.0, 0.0, 0.6, 0.4, 0.0])
    weights["cross"][0, 1, 2] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    weights["cross"][1, :, 2] = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])
    return View("step-1", ("en", "de"), "the small dog", source, target, "der kleine Hund", weights, [], [])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium to look at the page with")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(params=[(1200, 900, "light"), (360, 740, "dark")], ids=["desk", "phone"])
def page(request: pytest.FixtureRequest, browser: Any, tmp_path: Path) -> Iterator[Any]:
    width, height, scheme = request.param
    file = tmp_path / "attention.html"
    file.write_text(made().page(), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme)
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda asked: errors.append(asked.url) if not asked.url.startswith("file:") else None)
    page.goto(file.as_uri())
    yield page
    assert errors == []
    page.close()


def lines(page: Any) -> int:
    return int(page.locator("#view svg line").count())


def test_pointing_at_a_word_shows_what_it_looks_at(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    before = lines(page)
    page.locator("#queries button", has_text="Hund").hover()
    assert 0 < lines(page) == 3 < before
    assert page.locator("#told").inner_text() == "“Hund” looks at small 50 %, do 30 %, g 20 % (mean of 2 heads)"
    page.locator("h1").hover()
    assert lines(page) == before


def test_a_click_holds_and_another_lets_go(page: Any) -> None:
    hund = page.locator("#queries button", has_text="Hund")
    hund.click()
    page.locator("h1").hover()
    assert "Hund" in page.locator("#told").inner_text()
    hund.click()
    page.locator("h1").hover()
    page.keyboard.press("Escape")
    page.locator("h1").click()
    assert "layer 1" in page.locator("#told").inner_text()


def test_heads_and_layers_are_chosen(page: Any) -> None:
    page.locator("#heads label", has_text="2").click()
    page.locator("#queries button", has_text="Hund").hover()
    assert page.locator("#told").inner_text() == "“Hund” looks at do 60 %, g 40 % (head 1)"
    page.locator("#layers label", has_text="2").click()
    page.locator("#queries button", has_text="Hund").hover()
    assert "looks at the 100 %" in page.locator("#told").inner_text()
    page.locator("#heads label", has_text="1").click()  # the last one stays
    assert page.locator("#heads input:checked").count() == 1
    page.locator("#all").click()
    assert page.locator("#heads input:checked").count() == 2


def test_pieces_are_joined_to_words(page: Any) -> None:
    assert page.locator("#keys .token").all_inner_texts() == ["the", "small", "do", "g", "</s>"]
    page.locator("label", has_text="whole words").click()
    assert page.locator("#keys .token").all_inner_texts() == ["the", "small", "dog", "</s>"]
    page.locator("#heads label", has_text="2").click()
    page.locator("#queries button", has_text="Hund").hover()
    assert "looks at dog 100 %" in page.locator("#told").inner_text()


def test_the_parts_have_their_own_sides(page: Any) -> None:
    page.locator("#parts label", has_text="encoder").click()
    assert page.locator("#queries button").all_inner_texts() == ["the", "small", "do", "g", "</s>"]
    page.locator("#parts label", has_text="decoder").click()
    assert page.locator("#queries button").all_inner_texts() == ["<s>", "der", "kleine", "Hund"]
    assert page.locator("#told").inner_text() == "decoder self-attention, layer 1"


def test_the_keyboard_is_enough(page: Any) -> None:
    page.locator("#parts input[value=cross]").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#parts input[value=decoder]").is_checked()
    assert page.evaluate("document.activeElement.value") == "decoder"
    page.keyboard.press("ArrowRight")
    page.locator("#queries button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "Hund"
    assert "“Hund” looks at small" in page.locator("#told").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#told").inner_text() == "attention to the source, layer 1"


def test_text_is_light_where_the_reader_wants_it_dark(page: Any) -> None:
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    color = page.evaluate("getComputedStyle(document.querySelector('#queries button')).color")
    assert color == ("rgb(255, 255, 255)" if dark else "rgb(0, 0, 0)")
