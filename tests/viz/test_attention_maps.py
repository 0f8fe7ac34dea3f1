"""Attention maps: the weights, and the HTML page in a browser."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny
import torch
from commandline import CommandLine

from nmt.cli.attention import attention
from nmt.core.errors import UsageError
from nmt.data.batching import collate
from nmt.model.attention import record_attention
from nmt.models import discovery
from nmt.runs.model_files import LoadedModel
from nmt.search import Hypothesis
from nmt.training.session import train
from nmt.translation.translator import Translator
from nmt.viz.attention_maps import AttentionMaps, attention_maps, draw

MODELS = {
    "transformer": "model.arch=transformer",
    "ssru": "model.decoder=ssru",
    "rnn": "model.arch=rnn",
}


@pytest.fixture(scope="module", params=MODELS.values(), ids=MODELS)
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> LoadedModel:
    directory = tmp_path_factory.mktemp("attention")
    changes = [
        request.param,
        "model.encoder_layers=2",
        "model.decoder_layers=3",
        "model.layer_sharing=2",
        "train.steps=1",
        "train.valid_every=1",
    ]
    run = directory / "run"
    train(tiny.config(directory, *changes), run)
    return discovery.load(run)


def test_all_caps_sentences_are_lowercased(loaded: LoadedModel) -> None:
    lowercasing = replace(loaded, config=replace(loaded.config, lowercase_all_caps=True))
    lowercased = attention_maps(lowercasing, "BA BE BI DO").source_tokens
    assert lowercased == attention_maps(loaded, "ba be bi do").source_tokens
    assert lowercased != attention_maps(loaded, "BA BE BI DO").source_tokens


@pytest.mark.parametrize(
    ("text", "as_read"), [("ba`be", "ba'be"), ("ｂａ 𝐛𝐞", "ba be"), ("ｂａ be`ｂｉ", "ba be'bi")]
)
def test_variants_of_letters_and_apostrophes_are_replaced(
    loaded: LoadedModel, text: str, as_read: str
) -> None:
    maps = attention_maps(loaded, text)
    expected = attention_maps(loaded, as_read)
    assert maps.source_tokens == expected.source_tokens
    assert maps.translation == expected.translation
    assert maps.source_text == text


def test_sentences_beyond_the_positions_are_rejected(tmp_path: Path) -> None:
    train(
        tiny.config(
            tmp_path,
            "model.position_encoding=learned(max_positions=64)",
            "train.steps=1",
            "train.valid_every=1",
        ),
        tmp_path / "run",
    )
    loaded = discovery.load(tmp_path / "run")
    for options in ({}, {"target": "ba"}):
        with pytest.raises(UsageError, match=r"the sentence has \d+ tokens") as error:
            attention_maps(loaded, "ba be bi do " * 20, **options)
        assert error.value.hint == "shorten it to at most 63"


def test_weights_and_probabilities_are_those_of_the_model(loaded: LoadedModel) -> None:
    maps = attention_maps(loaded, "ba be bi do")
    (best, *_) = next(
        iter(Translator.load(loaded.run).n_best(["ba be bi do"], "beam(beam_size=4)"))
    )
    assert maps.translation == best.text
    assert len(maps.n_best) == 4
    assert maps.n_best[0].log_prob == pytest.approx(best.log_prob, abs=1e-3)
    assert maps.target_tokens == [*best.tokens]
    probabilities = torch.tensor([step.probability for step in maps.steps])
    torch.testing.assert_close(
        probabilities.log(), torch.tensor(best.token_log_probs), atol=1e-3, rtol=1e-3
    )
    for step in maps.steps:
        assert step.token not in [token for token, _ in step.alternatives]
        assert len(step.alternatives) == 5
        assert [p for _, p in step.alternatives] == sorted(
            (p for _, p in step.alternatives), reverse=True
        )
        assert step.probability + sum(p for _, p in step.alternatives) < 1 + 1e-5
    shapes = {"encoder": (2, 2), "decoder": (3, 2), "cross": (3, 2)}
    if loaded.config.model.decoder == "ssru":
        del shapes["decoder"]
    if loaded.config.model.arch == "rnn":
        shapes = {"cross": (1, 1)}
    assert {part: tuple(weights.shape[:2]) for part, weights in maps.weights.items()} == shapes
    for part, weights in maps.weights.items():
        queries, keys = maps.query_and_key_tokens(part)
        assert tuple(weights.shape[2:]) == (len(queries), len(keys))
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
    if "decoder" in maps.weights:
        assert (maps.weights["decoder"].triu(1) == 0).all()


def test_n_best_list_equals_that_of_the_translator(loaded: LoadedModel) -> None:
    translator = Translator.load(loaded.run, precision="fp32")
    (*n_best,) = next(iter(translator.n_best(["ba be"], "beam(beam_size=3, top_beams=3)")))
    maps = attention_maps(loaded, "ba be", search="beam(beam_size=3)")
    assert [each.text for each in maps.n_best] == [each.text for each in n_best]
    assert [each.score for each in maps.n_best] == pytest.approx(
        [each.score for each in n_best], abs=1e-3
    )
    assert len(attention_maps(loaded, "ba be", search="beam(beam_size=3, top_beams=1)").n_best) == 1


def test_impossible_hypotheses_are_left_out(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    hypotheses = [
        Hypothesis([5], -1.0, -1.0),
        Hypothesis([6], -1.0, -math.inf),
        Hypothesis([7], -math.inf, -1.0),
    ]
    monkeypatch.setattr("nmt.engines.batch_engine.BatchEngine.search", lambda *_: [hypotheses])
    assert [each.log_prob for each in attention_maps(loaded, "ba be").n_best] == [-1.0]


def test_weights_are_in_the_order_of_the_layers(loaded: LoadedModel) -> None:
    maps = attention_maps(loaded, "ba be", target="du gi")
    assert (maps.languages, maps.source_tokens[-1], maps.target_tokens[-1]) == (
        ("en", "de"),
        "</s>",
        "</s>",
    )
    batch = collate([(loaded.tokenizer.encode("ba be"), loaded.tokenizer.encode("du gi"))])
    with torch.inference_mode(), record_attention(loaded.model) as seen:
        state = loaded.model.init_state(
            loaded.model.encode(batch.src_BS, batch.src_mask_BS), batch.src_mask_BS
        )
        loaded.model.decode(batch.tgt_in_BT, state)
    if loaded.config.model.arch == "transformer":
        for part in maps.weights.keys() - {"cross"}:
            first, second = f"{part}.0.self_attention", f"{part}.1.self_attention"
            expected = torch.cat([*seen[first], *seen.get(second, [])])
            torch.testing.assert_close(maps.weights[part], expected)
        expected = torch.cat(
            [*seen["decoder.0.cross_attention"], *seen["decoder.1.cross_attention"]]
        )
        torch.testing.assert_close(maps.weights["cross"], expected)


def test_query_and_key_tokens() -> None:
    maps = make_maps()
    decoder_input = ["<s>", "▁der", "▁kleine", "▁Hund"]
    assert maps.query_and_key_tokens("encoder") == (maps.source_tokens, maps.source_tokens)
    assert maps.query_and_key_tokens("decoder") == (decoder_input, decoder_input)
    assert maps.query_and_key_tokens("cross") == (maps.target_tokens, maps.source_tokens)
    assert maps.to_dict()["decoder_input"] == decoder_input
    weights = torch.tensor(maps.to_dict()["weights"]["encoder"])
    torch.testing.assert_close(weights, maps.weights["encoder"], atol=6e-5, rtol=0)


def test_a_figure_has_a_heat_map_per_head_labeled_with_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matplotlib_figure = pytest.importorskip("matplotlib.figure")
    figures: list[Any] = []
    monkeypatch.setattr(
        matplotlib_figure.Figure, "savefig", lambda figure, *_, **__: figures.append(figure)
    )
    maps = make_maps()
    draw(maps, tmp_path / "a.png", "cross", 2)
    *panels, color_bar = figures[0].axes
    assert (color_bar.get_ylabel(), color_bar.get_ylim()) == ("attention weight", (0, 1))
    assert len(panels) == 2
    for head, panel in enumerate(panels):
        torch.testing.assert_close(
            torch.tensor(panel.images[0].get_array()), maps.weights["cross"][1, head]
        )
        assert [label.get_text() for label in panel.get_xticklabels()] == maps.source_tokens
        assert [label.get_text() for label in panel.get_yticklabels()] == maps.target_tokens
        assert panel.get_title() == f"head {head + 1}"
    assert figures[0].get_suptitle() == "cross-attention, layer 2"
    for layer in (0, 3):
        with pytest.raises(UsageError, match=f"there is no layer {layer}") as error:
            draw(maps, tmp_path / "a.png", "cross", layer)
        assert error.value.hint == "number of layers: 2"


def test_the_page_and_the_picture_show_the_same_layer(loaded: LoadedModel, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    last = len(attention_maps(loaded, "ba be").weights["cross"])
    assert last == (3 if loaded.config.model.arch == "transformer" else 1)
    for options, layer in (({}, last), ({"layer": 1}, 1))[:last]:
        for suffix in (".html", ".svg"):
            attention("ba be", model=loaded.run, output=tmp_path / f"a{suffix}", **options)
        page = (tmp_path / "a.html").read_text(encoding="utf-8")
        assert f'{{"layer": {layer - 1}, "part": "cross"}}' in page
        # Matplotlib writes texts as paths, and each text as a comment.
        picture = (tmp_path / "a.svg").read_text(encoding="utf-8")
        assert f"<!-- cross-attention, layer {layer} -->" in picture


def test_the_data_leave_out_the_parts_that_a_model_lacks(
    loaded: LoadedModel, tmp_path: Path
) -> None:
    attention("ba be", model=loaded.run, output=tmp_path / "a.json")
    parts = {"encoder", "decoder", "cross"}
    if loaded.config.model.decoder == "ssru":
        parts = {"encoder", "cross"}
    if loaded.config.model.arch == "rnn":
        parts = {"cross"}
    weights = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["weights"]
    assert weights.keys() == parts
    if "decoder" not in parts:
        with pytest.raises(UsageError, match="the model has no decoder self-attention"):
            attention("ba be", model=loaded.run, output=tmp_path / "a.png", part="decoder")


def test_a_given_translation_is_used(loaded: LoadedModel) -> None:
    maps = attention_maps(loaded, "ba be", target="du gi")
    assert (maps.translation, maps.n_best) == ("du gi", [])
    (scored,) = Translator.load(loaded.run).score([("ba be", "du gi")])
    log_probs = torch.tensor([step.probability for step in maps.steps]).log()
    torch.testing.assert_close(
        log_probs, torch.tensor(scored.token_log_probs), atol=1e-4, rtol=1e-4
    )


def test_blank_and_long_sentences_are_rejected(loaded: LoadedModel) -> None:
    with pytest.raises(UsageError, match="the sentence is blank"):
        attention_maps(loaded, "  ")
    with pytest.raises(UsageError, match="tokens"):
        attention_maps(loaded, "ba " * 400)
    with pytest.raises(UsageError, match="tokens"):
        attention_maps(loaded, "ba", target="ba " * 400)


def test_output_formats(trained: CommandLine, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for name in ("page.html", "data.json", "new/picture.PNG"):
        options = ("--part", "encoder") if name.endswith("PNG") else ()
        done = trained(
            "attention", "the <b>dog</b>", "--model", "runs/tiny", "-o", tmp_path / name, *options
        )
        assert (done.code, done.out.strip()) == (0, str(tmp_path / name)), done.err
        assert "the <b>dog</b> -> " in done.err
    page = (tmp_path / "page.html").read_text()
    assert "<b>dog</b>" not in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    data = json.loads((tmp_path / "data.json").read_text())
    assert data["source_text"] == "the <b>dog</b>"
    assert len(data["weights"]["encoder"][0][0]) == len(data["source_tokens"])
    assert (tmp_path / "new/picture.PNG").read_bytes().startswith(b"\x89PNG")


def test_control_characters_are_escaped(trained: CommandLine, tmp_path: Path) -> None:
    done = trained.run(
        "attention", "\x1b[31mthe dog", "--model", "runs/tiny", "-o", tmp_path / "page.html"
    )
    assert "nmt: \\x1b[31mthe dog -> " in done.err
    done = trained("attention", "the dog", "--search", "\x1b[31m")
    assert done.errors == ["cannot read '\\x1b[31m'"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["the dog", "-o", "x"], "cannot write the format '' of x"),
        (["the dog", "-o", "x.txt"], "use .html, .json, .png, .svg, .pdf"),
        (["the dog", "-o", "x.pgf"], "cannot write the format '.pgf' of x.pgf"),
        (["the dog", "-o", "x.json", "--part", "cross"], "--part and --layer apply to images and"),
        (["the dog", "-o", "x.html", "--layer", "9"], "there is no layer 9"),
        (["the dog", "-o", "x.png", "--layer", "9"], "there is no layer 9"),
        (["the dog", "--part", "crss"], "unknown part 'crss'"),
        (["", "-o", "x.html"], "the sentence is blank"),
        (["the dog", "--search", "bean"], "unknown search 'bean'"),
    ],
)
def test_invalid_arguments_are_rejected(
    trained: CommandLine, arguments: list[str], message: str
) -> None:
    trained("attention", *arguments).assert_fails(2, message)


# ---- the HTML page in a browser


def make_maps() -> AttentionMaps:
    """Return maps of two layers with two heads, whose weights are easy to distinguish."""
    source, target = ["▁the", "▁small", "▁do", "g", "</s>"], ["▁der", "▁kleine", "▁Hund", "</s>"]
    torch.manual_seed(0)
    shapes = {"encoder": (2, 2, 5, 5), "decoder": (2, 2, 4, 4), "cross": (2, 2, 4, 5)}
    weights = {part: torch.rand(shape).softmax(-1) for part, shape in shapes.items()}
    weights["cross"][0, 0, 2] = torch.tensor([0.0, 0.0, 0.6, 0.4, 0.0])
    weights["cross"][0, 1, 2] = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0])
    weights["cross"][1, :, 2] = torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])
    return AttentionMaps(
        "step-1", ("en", "de"), "the small dog", source, target, "der kleine Hund", weights, [], []
    )


DISPLAYS = {"desk": (1200, 900, "light"), "phone": (360, 740, "dark")}


@pytest.fixture(scope="module")
def open_page(browser: Any) -> Iterator[Any]:
    """A page of the browser, because a new one for each test would take a process."""
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture
def page(request: pytest.FixtureRequest, open_page: Any, tmp_path: Path) -> Iterator[Any]:
    width, height, scheme = DISPLAYS[getattr(request, "param", "phone")]
    file = tmp_path / "attention.html"
    file.write_text(make_maps().to_html(layer=1), encoding="utf-8")
    open_page.set_viewport_size({"width": width, "height": height})
    open_page.emulate_media(color_scheme=scheme)
    open_page.mouse.move(0, 0)  # away from where the last test has left it
    errors: list[str] = []

    def report_request(request: Any) -> None:
        if not request.url.startswith("file:"):
            errors.append(request.url)

    def report_error(error: object) -> None:
        errors.append(str(error))

    open_page.on("pageerror", report_error)
    open_page.on("request", report_request)
    open_page.goto(file.as_uri())
    yield open_page
    open_page.remove_listener("pageerror", report_error)
    open_page.remove_listener("request", report_request)
    assert errors == []


on_both = pytest.mark.parametrize("page", DISPLAYS, indirect=True)
"""For what depends on the size or the colors of the display."""


def num_lines(page: Any) -> int:
    return int(page.locator("#view svg line").count())


@pytest.mark.slow
@on_both
def test_hovering_over_a_token_shows_its_attention(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    before = num_lines(page)
    page.locator("#queries button", has_text="Hund").hover()
    assert 0 < num_lines(page) == 3 < before
    assert (
        page.locator("#status").inner_text()
        == "“Hund” attends to small 50%, do 30%, g 20% (mean of 2 heads)"
    )
    page.locator("h1").hover()
    assert num_lines(page) == before


@pytest.mark.slow
def test_a_click_pins_a_token_and_another_releases_it(page: Any) -> None:
    hund = page.locator("#queries button", has_text="Hund")
    hund.click()
    page.locator("h1").hover()
    assert "Hund" in page.locator("#status").inner_text()
    hund.click()
    page.locator("h1").hover()
    page.keyboard.press("Escape")
    page.locator("h1").click()
    assert "layer 1" in page.locator("#status").inner_text()


@pytest.mark.slow
def test_heads_and_layers_can_be_selected(page: Any) -> None:
    page.locator("#heads label", has_text="2").click()
    page.locator("#queries button", has_text="Hund").hover()
    assert page.locator("#status").inner_text() == "“Hund” attends to do 60%, g 40% (head 1)"
    page.locator("#layers label", has_text="2").click()
    page.locator("#queries button", has_text="Hund").hover()
    assert "attends to the 100%" in page.locator("#status").inner_text()
    page.locator("#heads label", has_text="1").click()  # one head always remains
    assert page.locator("#heads input:checked").count() == 1
    page.locator("#all").click()
    assert page.locator("#heads input:checked").count() == 2


@pytest.mark.slow
@on_both
def test_the_matrix_view_has_a_heat_map_per_head(page: Any) -> None:
    page.locator("#views label", has_text="matrix").click()
    assert not page.locator("#view").is_visible()
    assert page.locator("#matrices figcaption").all_inner_texts() == [
        "head 1\n0%\n100%",
        "head 2\n0%\n100%",
    ]
    first = page.locator("#matrices figure").first
    assert first.locator(".rows span").all_inner_texts() == ["der", "kleine", "Hund", "</s>"]
    assert first.locator(".columns span").all_inner_texts() == ["the", "small", "do", "g", "</s>"]
    opacities = first.locator("canvas").evaluate(
        "canvas => [...canvas.getContext('2d').getImageData(0, 2, 5, 1).data].filter((_, i) => i %"
        " 4 == 3)"
    )
    assert opacities == pytest.approx([0, 0, 0.6 * 255, 0.4 * 255, 0], abs=1)
    canvas = first.locator("canvas")
    cell = canvas.bounding_box()["width"] / 5
    canvas.hover(position={"x": 2.5 * cell, "y": 2.5 * cell})
    assert page.locator("#status").inner_text() == "“Hund” attends to do 60% (head 1)"
    assert first.locator(".selected").all_inner_texts() == ["Hund", "do"]
    page.locator("h1").hover()
    assert page.locator("#status").inner_text() == "cross-attention, layer 1"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.slow
def test_the_matrix_view_follows_the_keyboard_and_the_other_choices(page: Any) -> None:
    page.locator("#views label", has_text="matrix").click()
    page.keyboard.press("Tab")
    canvas = page.locator("#matrices canvas").first
    assert canvas.evaluate("canvas => canvas === document.activeElement")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert page.locator("#status").inner_text() == "“Hund” attends to g 40% (head 1)"
    page.locator("#heads label", has_text="1").click()
    assert page.locator("#matrices figcaption b").all_inner_texts() == ["head 2"]
    page.locator("label", has_text="whole words").click()
    assert page.locator("#matrices .columns span").all_inner_texts() == [
        "the",
        "small",
        "dog",
        "</s>",
    ]
    page.locator("#parts label", has_text="decoder").click()
    names = page.locator("#matrices .columns span").all_inner_texts()
    assert names == ["<s>", "der", "kleine", "Hund"]
    page.locator("#views label", has_text="lines").click()
    assert page.locator("#queries button").count() == 4


@pytest.mark.slow
def test_tokens_can_be_grouped_by_word(page: Any) -> None:
    assert page.locator("#keys .token").all_inner_texts() == ["the", "small", "do", "g", "</s>"]
    page.locator("label", has_text="whole words").click()
    assert page.locator("#keys .token").all_inner_texts() == ["the", "small", "dog", "</s>"]
    page.locator("#heads label", has_text="2").click()
    page.locator("#queries button", has_text="Hund").hover()
    assert "attends to dog 100%" in page.locator("#status").inner_text()


@pytest.mark.slow
def test_each_part_has_its_own_queries_and_keys(page: Any) -> None:
    page.locator("#parts label", has_text="encoder").click()
    assert page.locator("#queries button").all_inner_texts() == ["the", "small", "do", "g", "</s>"]
    page.locator("#parts label", has_text="decoder").click()
    assert page.locator("#queries button").all_inner_texts() == ["<s>", "der", "kleine", "Hund"]
    assert page.locator("#status").inner_text() == "decoder self-attention, layer 1"


@pytest.mark.slow
def test_keyboard_navigation(page: Any) -> None:
    page.locator("#parts input[value=cross]").focus()
    page.keyboard.press("ArrowLeft")
    assert page.locator("#parts input[value=decoder]").is_checked()
    assert page.evaluate("document.activeElement.value") == "decoder"
    page.keyboard.press("ArrowRight")
    page.locator("#queries button").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "Hund"
    assert "“Hund” attends to small" in page.locator("#status").inner_text()
    page.keyboard.press("Escape")
    assert page.locator("#status").inner_text() == "cross-attention, layer 1"


@pytest.mark.slow
@on_both
def test_text_is_light_in_dark_mode(page: Any) -> None:
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    color = page.evaluate("getComputedStyle(document.querySelector('#queries button')).color")
    assert color == ("rgb(255, 255, 255)" if dark else "rgb(0, 0, 0)")
