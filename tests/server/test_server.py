"""The HTTP server: LibreTranslate's API, batches, limits, hostile clients and the process."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.parse
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import httpx
import numpy as np
import pytest
from commandline import CommandLine
from event_loops import in_a_thread
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import ValidationError, validate
from libretranslatepy import LibreTranslateAPI
from serving import GatedEngine, connect, serving, until
from starlette.exceptions import HTTPException

from nmt import Guard, Translation, Translator
from nmt.core.errors import NMTError, UsageError
from nmt.core.version import __version__
from nmt.engines import Engine, Source, TokenScores
from nmt.search import Search, parse_search
from nmt.server import app, batching, fields, files, http, languages, limits, openapi, text
from nmt.server.access import Access
from nmt.server.batching import Job, ModelQueue, QueuedEngine, Sentence
from nmt.server.limits import Limits, RateLimiter
from nmt.server.service import Service
from nmt.text import words as text_words
from nmt.text.language_identification import is_wrong_language
from nmt.text.scripts import is_in_other_script
from nmt.translation.glossary import Glossary

Client = httpx.Client


@pytest.fixture(scope="module")
def guards() -> dict[str, Guard]:
    return {name: Guard(Translator.load(name)) for name in ("en-de", "de-en")}


@pytest.fixture(scope="module")
def service(guards: dict[str, Guard]) -> Iterator[Service]:
    service = Service(guards.values())
    yield service
    service.close()


@pytest.fixture(scope="module")
def client(service: Service) -> Iterator[Client]:
    with serving(service) as client:
        yield client


@pytest.fixture
def gated(guards: dict[str, Guard]) -> Iterator[tuple[GatedEngine, Service]]:
    """A model whose translations a test can hold, and its service."""
    translator = guards["en-de"].translator
    engine = GatedEngine(translator)
    service = Service([Guard(translator.with_engine(engine))], max_batch=8)
    yield engine, service
    engine.gate.set()
    service.close()


def translate(
    client: Client, q: object, source: str = "en", target: str = "de", **other: object
) -> Any:
    response = client.post("/translate", json={"q": q, "source": source, "target": target, **other})
    assert response.status_code == 200, response.text
    return response.json()


def metric(client: Client, name: str) -> float:
    return float(
        re.search(rf"^{re.escape(name)} (\S+)$", client.get("/metrics").text, re.MULTILINE)[1]
    )


# ---- the API


VALID = {"q": "Are we done?", "source": "en", "target": "de"}
INVALID_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"q": None}, "missing q"),
    ({"q": []}, "missing q"),
    ({"q": 5}, "q must be a string or a list of strings"),
    ({"q": ["a", None]}, "q must be"),
    ({"q": "\ud800"}, "surrogate"),
    ({"source": None}, "missing source"),
    ({"source": 5}, "source must be a string"),
    ({"source": "fr"}, "fr is not supported; choose from: de, en"),
    ({"source": "dee"}, "did you mean 'de'?"),
    ({"source": "\udfff"}, "surrogate"),
    ({"target": "auto"}, "auto is not supported"),
    ({"target": "x" * 5000}, "is not supported"),
    ({"format": "pdf"}, "unknown format 'pdf'; choose from: text, html"),
    ({"alternatives": -1}, "alternatives parameter must be from 0 to 10"),
    ({"alternatives": 10**30}, "alternatives parameter must be from 0 to 10"),
    ({"alternatives": "9" * 5000}, "alternatives parameter is not a number"),
    ({"alternatives": "²"}, "alternatives parameter is not a number"),
    ({"alternatives": True}, "alternatives parameter is not a number"),
    ({"alternatives": float("inf")}, "alternatives parameter is not a number"),
    ({"alignment": "maybe"}, "alignment must be true or false"),
    ({"api_key": 5}, "api_key must be a string"),
    ({"glosary": {}}, "unknown field 'glosary'; did you mean 'glossary'?"),
    ({"x" * 5000: 1}, "choose from: alignment, alternatives, api_key"),
    ({"\ud800": 1}, "unknown field '\ufffd'"),
    ({"glossary": 5}, "glossary is not an object"),
    ({"glossary": "dog=Hund"}, "glossary is not valid JSON"),
    ({"glossary": "[" * 60_000}, "glossary is not valid JSON"),
    ({"glossary": ["dog"]}, "glossary, term 1 is not a pair"),
    ({"glossary": [["dog", "Hund"], ["cat"]]}, "glossary, term 2 is not a pair"),
    ({"glossary": {"dog": ""}}, "glossary, term 1 must have two texts"),
    ({"glossary": {"dog": "a\nb"}}, "glossary, term 1 must have two texts"),
    ({"glossary": {"dog": 5}}, "glossary, term 1 must be a string"),
    ({"glossary": {"dog": "\ud800"}}, "surrogate"),
    ({"glossary": {"d" * 201: "a"}}, "1 to 200 characters"),
    ({"glossary": {"dog": "a " * 11}}, "at most 10 words"),
    ({"glossary": {str(i): "a" for i in range(201)}}, "glossary has 201 terms; the limit is 200"),
]


def test_a_text_is_translated_with_confidence_and_warnings(
    client: Client, guards: dict[str, Guard]
) -> None:
    expected = next(guards["en-de"].stream([["Are we done?"]], details=True))[0]
    assert translate(client, "Are we done?") == {
        "translatedText": expected.text,
        "confidence": expected.confidence,
        "warnings": [],
    }


def test_a_list_is_answered_with_lists(client: Client) -> None:
    answer = translate(
        client, ["Are we done?", "", "I'm tired."], alternatives=2, alignment=True, source="auto"
    )
    assert answer["translatedText"] == ["Sind wir fertig?", "", "Ich bin müde."]
    assert {name: len(values) for name, values in answer.items()} == dict.fromkeys(answer, 3)
    assert answer["confidence"][1] is None
    assert answer["detectedLanguage"][0]["language"] == "en"
    assert len(answer["alternatives"][0]) == 2
    assert not {"Sind wir fertig?", ""} & set(answer["alternatives"][0])


@pytest.mark.parametrize("kind", ["json", "form", "multipart", "query"])
def test_every_kind_of_request_is_read(client: Client, guards: dict[str, Guard], kind: str) -> None:
    values = {"q": "Tschüß 👋", "source": "de", "target": "en", "alternatives": "1"}
    response = client.post(
        "/translate",
        **{
            "json": {"json": values},
            "form": {"data": values},
            "query": {"params": values},
            "multipart": {"files": {name: (None, value) for name, value in values.items()}},
        }[kind],
    )
    search = "beam(beam_size=4, top_beams=2)"
    (expected,) = guards["de-en"].stream([["Tschüß 👋"]], search)
    assert [response.json()["translatedText"], *response.json()["alternatives"]] == [
        each.text for each in expected
    ]


def test_bytes_of_a_form_are_utf8(client: Client) -> None:
    content = "q=Tschüß 👋&source=de&target=de".encode()  # as curl -d sends it
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert (
        client.post("/translate", content=content, headers=headers).json()["translatedText"]
        == "Tschüß 👋"
    )


@pytest.mark.parametrize(
    ("q", "target", "language", "is_copy"),
    [
        ("Wir sind noch nicht fertig.", "en", "de", False),
        ("We are not done yet, are we?", "de", "en", False),
        ("Wir sind noch nicht fertig.", "de", "de", True),
        ("Hallo", "en", "de", False),  # short, and probably English to the language identification
        ("👋", "de", "en", False),
    ],
)
def test_the_source_language_is_detected(
    client: Client, q: str, target: str, language: str, is_copy: bool
) -> None:
    answer = translate(client, q, source="auto", target=target)
    assert answer["detectedLanguage"]["language"] == language
    assert 0 <= answer["detectedLanguage"]["confidence"] <= 100
    assert (answer["translatedText"] == q) == (is_copy or q == "👋")


def test_the_longest_texts_decide_the_language_of_words(client: Client) -> None:
    texts = [*["Taxi"] * 20, "Ich habe noch nie davon gehört, dass er hier gewesen sein soll."]
    answer = translate(client, texts, source="auto", target="en")
    assert [each["language"] for each in answer["detectedLanguage"]] == ["de"] * 21
    terms = [*["Terms and conditions"] * 20, texts[-1]]
    assert client.post("/detect", json={"q": terms}).json()[0]["language"] == "de"


@pytest.mark.parametrize("format", ["text", "html"])
def test_the_language_of_each_text_of_a_list_is_detected(client: Client, format: str) -> None:
    english = ["We are not done yet.", "Where is the nearest station?", "Terms and conditions"]
    german = [
        "Wir sind noch nicht fertig.",
        "Wo ist der nächste Bahnhof?",
        "Speichern und schließen",
    ]
    mixed = [english[0], german[0], german[1], "", english[1], german[2], english[2]]
    answer = translate(client, mixed, source="auto", target="de", format=format)
    languages = [each["language"] for each in answer["detectedLanguage"]]
    assert languages[:3] + languages[4:] == ["en", "de", "de", "en", "de", "en"]
    for q, translated in zip(mixed, answer["translatedText"], strict=True):
        assert translate(client, [q], source="auto", target="de", format=format)[
            "translatedText"
        ] == [translated]
        assert (translated == q) == (q not in english)
    assert not any(answer["warnings"])


def test_a_short_text_in_another_script_has_a_warning(client: Client) -> None:
    foreign = ["Привет", "你好", "안녕", "שלום", "γεια σου"]
    own = ["Hello.", "Δ", "Where is the station?"]
    for source in ("en", "auto"):
        warnings = translate(client, [*foreign, *own], source=source)["warnings"]
        assert ["wrong-source-language" in each for each in warnings] == [True] * 5 + [False] * 3


@given(st.text(max_size=30), st.sampled_from(["en", "de", "ru", "el", "ja", "hi", "xx"]))
def test_a_text_is_in_another_script_if_most_of_its_words_are(text: str, language: str) -> None:
    assert not is_in_other_script("The sum of α + β, and 3 µg.", language)
    assert is_in_other_script(f"{text} {'Привет' * 30}", language) == (
        language in ("en", "de", "el", "ja")
    )
    assert not is_in_other_script(f"{text} {'hello' * 40}", language)


def test_markup_does_not_matter_to_the_detection_of_a_language(client: Client) -> None:
    link = (
        '<p class="the and of that is not"><a'
        ' href="https://example.org/this/is/the/english/text/of/that" title="x">'
    )
    for q, language, other in [
        ("Wir sind noch nicht fertig.", "de", "en"),
        ("We are not done yet.", "en", "de"),
    ]:
        html = f"<!doctype html><html><body>{link * 3}{q}</a></p>"
        answer = translate(client, html, source="auto", target=other, format="html")
        assert answer["detectedLanguage"]["language"] == language
        assert q not in answer["translatedText"]
        assert (
            "wrong-source-language"
            not in translate(client, html, language, other, format="html")["warnings"]
        )
        tagged = f'<body lang="{language}-XX"><p>{q}</p></body>'
        assert (
            translate(client, tagged, source="auto", target=other, format="html")[
                "detectedLanguage"
            ]
            == translate(client, q, source="auto", target=other)["detectedLanguage"]
        )


def test_codes_that_the_language_identification_does_not_have() -> None:
    text = "Jeg er veldig trøtt i dag, og jeg vil gå hjem nå."
    assert [code for code, _ in languages.detect(text, ("de", "nb"))] == ["nb", "de"]
    assert languages.detect(text, ("de", "nb", "no"))[0][0] == "no"
    assert is_wrong_language(text, "zt")
    assert not is_wrong_language(text, "nb-NO")


def test_a_short_text_in_the_target_language_has_a_warning(client: Client) -> None:
    short = ["Ich bin heute sehr müde.", "Wo bist du?", "I am very tired today.", "Taxi"]
    warnings = translate(client, short, source="en")["warnings"]
    assert ["wrong-source-language" in each for each in warnings] == [True, True, False, False]


def test_a_text_in_another_language_has_a_warning(client: Client) -> None:
    french = "Nous n'avons pas encore terminé notre travail."
    assert "wrong-source-language" in translate(client, french)["warnings"]
    answer = translate(client, ["A dog runs.", french], format="html")
    assert ["wrong-source-language" in each for each in answer["warnings"]] == [False, True]
    file = {"file": ("a.txt", french.encode())}
    of_english = {"source": "en", "target": "de"}
    answer = client.post("/translate_file", files=file, data=of_english).json()
    assert "wrong-source-language" in answer["warnings"]


def test_a_language_without_a_model_into_it_is_no_target(guards: dict[str, Guard]) -> None:
    service = Service([guards["en-de"]])
    with pytest.raises(HTTPException) as caught:
        service.resolve(["Der Hund rennt."], "auto", "en")
    assert caught.value.detail == "English (en) is not available as a target language"
    assert service.resolve(["The dog is running."], "auto", "en").source == "en"
    service.close()


@pytest.mark.parametrize("code", ["pt-BR", "pt_BR", "pt-br"])
def test_codes_may_have_a_hyphen_or_an_underscore(
    service: Service, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    for served in ("pt-BR", "pt_BR"):
        monkeypatch.setattr(service, "languages", ["en", served])
        assert service.language(code) == served


FOREIGN = [
    ("fr", "Je ne comprends pas."),
    ("fr", "Pouvez-vous répéter, s'il vous plaît ?"),
    ("fr", "Ma sœur habite à la campagne avec ses deux enfants."),
    ("es", "¿Me puede ayudar, por favor?"),
    ("nl", "Wij zijn nog niet klaar met ons werk."),
    ("it", "Grazie mille per l'aiuto."),
    ("pl", "Gdzie jest dworzec?"),
    ("ru", "Где находится вокзал?"),
    ("zh", "我不明白。"),
]


@pytest.mark.parametrize(("language", "q"), FOREIGN)
def test_a_text_in_a_language_without_a_model_is_refused(
    client: Client, language: str, q: str
) -> None:
    assert translate(client, q)["translatedText"]
    for target, source_name in [("de", "English (en)"), ("en", "German (de)")]:
        response = client.post("/translate", json={"q": q, "source": "auto", "target": target})
        assert response.status_code == 400
        error = response.json()["error"]
        assert f"the text seems to be in {languages.language_name(language)} ({language})" in error
        assert f"only from: {source_name}" in error


@pytest.mark.parametrize("format", ["text", "html"])
def test_a_refused_text_of_a_list_is_named(client: Client, format: str) -> None:
    q = ["Bonjour.", "We are not done yet.", "Nous n'avons pas encore terminé notre travail."]
    request = {"q": q, "source": "auto", "target": "de", "format": format}
    response = client.post("/translate", json=request)
    assert response.status_code == 400
    assert response.json()["error"].startswith("text 3 of q seems to be in French (fr)")
    assert len(translate(client, q[:2], "auto")["translatedText"]) == 2
    words = ["Bonjour", "Merci beaucoup", "À demain", "Bonne nuit", "Au revoir"]
    response = client.post("/translate", json=request | {"q": words})
    assert response.json()["error"].startswith("q seems to be in French (fr)")


def test_a_file_in_a_language_without_a_model_is_refused(client: Client) -> None:
    french = "Nous n'avons pas encore terminé notre travail.".encode()
    response = send_file(client, "a.txt", french, source="auto")
    assert response.status_code == 400
    assert "seems to be in French (fr)" in response.json()["error"]
    assert send_file(client, "a.txt", french, source="en").is_success


def test_no_short_text_is_refused() -> None:
    data = Path(__file__).parents[2] / "data"
    texts = ["Jeg er Tom", "PowerPoint 2007", "Bon appétit!", "C'est la vie", "", "...", "42", "👋"]
    # Sentences that the model takes for Basque, Swedish, French and Italian.
    texts += ["Anna stand leise da.", "Peter ärgerte Lena.", "Warst du je verlobt?"]
    texts += ["Tim ärgerte Mia.", "Sei nett, Mario!"]
    for name, columns in {"short_inputs.tsv": [2, 3], "first_sentences.tsv": [2, 3]}.items():
        for line in (data / name).read_text(encoding="utf-8").splitlines():
            cells = line.split("\t")
            for column in columns:
                texts += cells[column].split(" | ")
    texts += [
        line.split("\t")[1]
        for line in (data / "proper_names.tsv").read_text(encoding="utf-8").splitlines()
    ]
    assert len(texts) > 1500
    assert [text for text in texts if languages.other_language(text, ("de", "en"))] == []


def test_a_language_that_cannot_be_identified_is_not_refused() -> None:
    french = "Nous n'avons pas encore terminé notre travail."
    assert languages.other_language(french, ("de", "en")) == "fr"
    assert languages.other_language(french, ("de", "qqq")) is None
    assert languages.other_language(french, ("de", "fr-CA")) is None


def test_lines_blank_lines_and_spaces_are_preserved(client: Client) -> None:
    answer = translate(
        client, "  Are we done?\r\n\r\n\tI'm tired. \n42 dogs bark.\n", alignment=True
    )
    assert re.fullmatch(
        r"  Sind wir fertig\?\r\n\r\n\tIch bin müde\. \n42 .*\n", answer["translatedText"]
    )
    separated = translate(client, "Are we done?\x1f\u2028I'm tired.\x85")["translatedText"]
    assert separated == "Sind wir fertig?\x1f\u2028Ich bin müde.\x85"
    words = answer["translatedText"].split()
    assert [target for _, target in answer["alignment"]] == list(range(len(words)))
    assert [5, words.index("42")] in answer["alignment"]  # "42" is the sixth word of the text


ENDS = st.sampled_from(["\n", "\r\n", "\r", "\v", "\f", "\x1c", "\x1f", "\x85", "\u2028"])


@given(st.lists(st.tuples(st.text("ab \t\u2003", max_size=4), ENDS)), st.text("ab ", max_size=4))
def test_texts_are_split_into_lines_and_joined(lines: list[tuple[str, str]], last: str) -> None:
    original = "".join(line + end for line, end in lines) + last
    parts = text.split_lines(original)
    copies = [
        [Translation(part, 0.0, 0.0, alignment=tuple((i, i) for i in range(len(part.split()))))]
        for part in parts
    ]
    (joined,) = text.join_lines(original, copies)
    assert joined.text == original
    assert joined.alignment == tuple((i, i) for i in range(len(original.split())))


def test_languages_are_those_of_the_models(client: Client) -> None:
    assert client.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": ["de", "en"]},
        {"code": "en", "name": "English", "targets": ["de", "en"]},
    ]
    assert client.get("/frontend/settings").json()["language"]["source"] == {
        "code": "en",
        "name": "English",
    }
    assert client.get("/health").json() == {
        "status": "ok",
        "version": __version__,
        "models": [
            {"name": "en-de", "source": "en", "target": "de"},
            {"name": "de-en", "source": "de", "target": "en"},
        ],
    }


def test_one_direction_has_one_source(gated: tuple[GatedEngine, Service]) -> None:
    with serving(gated[1]) as client:
        assert [each["targets"] for each in client.get("/languages").json()] == [
            ["de"],
            ["de", "en"],
        ]
        response = client.post("/translate", json={"q": "Ja.", "source": "de", "target": "en"})
    assert response.status_code == 400
    assert (
        response.json()["error"]
        == "English (en) is not available as a target language from German (de)"
    )


def test_languages_are_named() -> None:
    assert languages.language_name("de") == "German"
    assert languages.language_name("zh-Hans") == "Chinese (zh-Hans)"
    assert languages.language_name("zh_Hans") == "Chinese (zh_Hans)"
    assert languages.language_name("qqq") == "qqq"


TERMS = "dog\tKöter\nmouse\tComputermaus\n"


def test_a_request_may_have_a_glossary(client: Client) -> None:
    q = "The dog runs. The dog barks at the old house."
    plain = translate(client, q)
    assert "glossary" not in plain
    for glossary in ({"dog": "Köter"}, [["dog", "Köter"]], '{"dog": "Köter"}'):
        answer = translate(client, q, glossary=glossary)
        assert answer["translatedText"].count("Köter") == 2
        assert answer["glossary"] == {"applied": {"Köter": 2}, "notApplied": {}}
    fields = {"q": q, "source": "auto", "target": "de", "glossary": '{"dog": "Köter"}'}
    assert client.post("/translate", data=fields).json()["translatedText"].count("Köter") == 2
    html = translate(
        client, "<p>The <b>dog</b> runs.</p>", glossary={"dog": "Köter"}, format="html"
    )
    assert "Köter" in html["translatedText"]
    assert html["glossary"]["applied"] == {"Köter": 1}
    unused = translate(client, [q, "The cat sleeps."], glossary={"horse": "Gaul"})
    assert unused["glossary"] == {"applied": {}, "notApplied": {}}
    assert translate(client, q, glossary={})["translatedText"] == plain["translatedText"]


def test_terms_that_are_kept_are_reported(client: Client) -> None:
    answer = translate(client, "The dog sees a cat.", glossary={"dog": "-", "cat": "Mieze"})
    assert "dog" in answer["translatedText"]
    assert answer["glossary"] == {"applied": {"dog": 1, "Mieze": 1}, "notApplied": {}}


def test_terms_that_are_not_applied_are_reported(client: Client) -> None:
    answer = translate(client, "The dog runs.", glossary={"dog": "Köter " * 10})
    assert [each for each in answer["warnings"] if each.startswith("term-not-applied: Köter")]
    assert list(answer["glossary"]["notApplied"].values()) == [1]


def test_the_terms_of_a_request_come_before_those_of_the_server(
    guards: dict[str, Guard], tmp_path: Path
) -> None:
    (tmp_path / "terms.tsv").write_text(TERMS, encoding="utf-8")
    glossary = Glossary.load(tmp_path / "terms.tsv", "en", "de")
    service = Service([Guard(guards["en-de"].translator, glossary=glossary)])
    with serving(service) as client:
        q = "The dog sees a mouse."
        answer = translate(client, q)
        assert answer["glossary"]["applied"] == {"Köter": 1, "Computermaus": 1}
        own = translate(client, q, glossary={"Dog": "Wauwau"})
        assert own["glossary"]["applied"] == {"Wauwau": 1, "Computermaus": 1}
        assert translate(client, q) == answer
    service.close()


def test_a_file_is_translated_with_a_glossary(client: Client) -> None:
    content = b"# The dog\n\nThe dog runs.\n"
    answer = send_file(client, "a.md", content, glossary='{"dog": "K\u00f6ter"}').json()
    assert answer["glossary"]["applied"] == {"Köter": 2}
    assert client.get(answer["translatedFileUrl"]).text.count("Köter") == 2
    assert "glossary" not in send_file(client, "a.md", content).json()


def test_unknown_fields_are_rejected(client: Client) -> None:
    response = client.post("/detect", json={"q": "a", "source": "en"})
    assert (response.status_code, "unknown field 'source'" in response.text) == (400, True)
    response = send_file(client, "a.txt", b"a", format="text")
    assert (response.status_code, "unknown field 'format'" in response.text) == (400, True)
    response = client.post("/translate", json=VALID, params={"sorce": "en"})
    assert "did you mean 'source'?" in response.json()["error"]


def test_fields_of_clients_of_libretranslate_are_accepted(client: Client) -> None:
    others = {"format": "text", "alternatives": 0, "api_key": "", "secret": "", "apiKey": ""}
    assert translate(client, "Are we done?", **others)["translatedText"] == "Sind wir fertig?"
    assert send_file(client, "a.txt", b"Hello.", api_key="", secret="x").is_success


@pytest.mark.parametrize("has_keys", [False, True])
def test_the_openapi_document_describes_the_answers(service: Service, has_keys: bool) -> None:
    keys = frozenset([hashlib.sha256(b"key").digest()] if has_keys else [])
    with serving(service, Limits(keys=keys)) as client:
        client.headers["Authorization"] = "Bearer key"
        document = client.get("/openapi.json").json()
        full = {"alternatives": 2, "alignment": True, "glossary": {"dog": "Köter"}}
        bodies: dict[str, list[dict[str, Any]]] = {
            "/translate": [
                {"json": VALID | full},
                {"json": VALID | full | {"q": ["A dog.", ""], "source": "auto"}},
                {"json": VALID | {"format": "html"}},
                {"data": VALID},
            ],
            "/detect": [{"json": {"q": "Hello."}}],
            "/translate_file": [
                {"files": {"file": ("a.txt", b"Hello.")}, "data": {"source": "en", "target": "de"}}
            ],
        }
        for path, methods in document["paths"].items():
            [(method, operation)] = methods.items()
            if "{" in path:
                continue
            for body in bodies.get(path, [{}]):
                response = client.request(method, path, **body)
                assert response.status_code == 200, (path, response.text)
                answers = operation["responses"]["200"]["content"]
                [(media_type, answer)] = answers.items()
                assert response.headers["content-type"].startswith(media_type)
                is_json = media_type == "application/json"
                validate(response.json() if is_json else response.text, answer["schema"])
                if "json" in body:
                    content = operation["requestBody"]["content"]
                    validate(body["json"], content["application/json"]["schema"])
        assert [
            path for path in document["paths"] if "api_key" in str(document["paths"][path])
        ] == [
            "/translate",
            "/translate_file",
            "/detect",
        ]
        assert all(("security" in document["paths"][path]["post"]) == has_keys for path in bodies)
        validate({"error": "x"}, document["components"]["schemas"]["Error"])


NOT_DESCRIBED = (
    "is not supported",
    "choose from: de, en",
    "did you mean 'de'?",
    "surrogate",
    "not valid JSON",
    "texts",
    "words",
)
"""Errors that the OpenAPI document does not describe: languages, characters, JSON in a string."""


@pytest.mark.parametrize(
    "change",
    [change for change, message in INVALID_FIELDS if not message.endswith(NOT_DESCRIBED)],
)
def test_the_openapi_document_rejects_what_the_server_rejects(
    service: Service, change: dict[str, Any]
) -> None:
    document = openapi.openapi_document(app.Api(service, Limits()).operations, needs_key=False)
    content = document["paths"]["/translate"]["post"]["requestBody"]["content"]
    request = {name: value for name, value in (VALID | change).items() if value is not None}
    with pytest.raises(ValidationError):
        validate(request, content["application/json"]["schema"])


def test_detect(client: Client) -> None:
    best, *_ = client.post("/detect", data={"q": "Ich habe noch nie davon gehört."}).json()
    assert best["language"] == "de"
    assert best["confidence"] > 90


@pytest.mark.parametrize("origins", ["*", "https://example.org"])
def test_pages_of_other_sites_may_use_the_api_if_they_are_named(
    service: Service, origins: str
) -> None:
    headers = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
    with serving(service, access=Access(origins=frozenset([origins]))) as client:
        preflight = client.options(
            "/translate", headers=headers | {"Access-Control-Request-Headers": "content-type"}
        )
        assert preflight.status_code == 200
        for response in (
            preflight,
            client.get("/languages", headers=headers),
            client.get("/nowhere", headers=headers),
        ):
            assert response.headers["access-control-allow-origin"] == origins
            assert "access-control-allow-credentials" not in response.headers
        other = client.get("/languages", headers={"Origin": "https://example.net"})
        assert other.is_success == (origins == "*")


@pytest.mark.parametrize(
    "origin",
    [
        "https://example.org",
        "null",
        "http://localhost",
        "http://127.0.0.1:1",
        "http://127.0.0.1.example.org",
        "",
        "*",
    ],
)
def test_pages_of_other_sites_may_not_use_the_server(client: Client, origin: str) -> None:
    translate(client, "Are we done?")
    before = metric(client, 'nmt_characters_total{source="en",target="de"}')
    headers = {"Origin": origin}
    simple = [
        client.post("/translate", data=VALID, headers=headers),
        client.post("/translate", params=VALID, headers=headers),
        client.post(
            "/translate_file", files={"file": ("a.txt", b"Hi")}, data=VALID, headers=headers
        ),
        client.get("/languages", headers=headers),
        client.options("/translate", headers=headers | {"Access-Control-Request-Method": "POST"}),
    ]
    for response in simple:
        assert response.status_code == 403
        assert "--cors" in response.json()["error"]
        assert "access-control-allow-origin" not in response.headers
    assert metric(client, 'nmt_characters_total{source="en",target="de"}') == before


def test_pages_of_the_server_may_use_it(client: Client) -> None:
    netloc = f"{client.base_url.host}:{client.base_url.port}"
    for scheme in ("http", "https"):  # behind a proxy with TLS
        response = client.post("/translate", json=VALID, headers={"Origin": f"{scheme}://{netloc}"})
        assert response.json()["translatedText"] == "Sind wir fertig?"


def test_requests_to_other_names_are_refused(service: Service) -> None:
    own = [
        "localhost",
        "LOCALHOST:80",
        "localhost.",
        "127.0.0.1",
        "[::1]",
        "[0:0::1]:99",
        "translate.example",
        "[fe80::1]",
    ]
    foreign = [
        "example.org",
        "localhost.example.org",
        "127.0.0.2",
        "[::2]",
        "[::1",
        "",
        "a b",
        "user@localhost",
        "localhost@example.org",
        "localhost/a",
        "localhost:1:2",
        "localhost:a",
        "[localhost]",
        "127.0.0.1.example.org",
        "é",
        "127.1",
        "2130706433",
    ]
    access = Access.parse("0.0.0.0", ["Translate.example", "[FE80:0::1]"], [])
    with serving(service, access=access) as client:
        for host in own:
            assert client.get("/health", headers={"Host": host}).is_success, host
        for host in foreign:
            response = client.get("/health", headers={"Host": host.encode()})
            assert response.status_code in (400, 421), host  # 400 for what is not valid HTTP
            file = {"file": ("a.txt", b"Hi"), "source": (None, "en"), "target": (None, "en")}
            answer = client.post("/translate_file", files=file, headers={"Host": host.encode()})
            assert "translatedFileUrl" not in answer.text
        error = client.get("/", headers={"Host": "example.org"}).json()["error"]
        assert (
            error == "this server does not have the name 'example.org'; see its option --allow-host"
        )
    with serving(service, access=Access(hosts=frozenset(["*"]))) as client:
        assert client.get("/health", headers={"Host": "example.org"}).is_success


def test_the_address_of_a_connection_is_a_name_of_the_server(service: Service) -> None:
    with serving(service, access=Access(hosts=frozenset())) as client:
        assert client.get("/health").is_success  # 127.0.0.1
        assert client.get("/health", headers={"Host": "localhost"}).status_code == 421


@pytest.mark.parametrize(
    ("hosts", "origins", "message"),
    [
        (["http://a"], [], "--allow-host http://a is not a host name"),
        (["a:80"], [], "--allow-host a:80"),
        ([""], [], "--allow-host "),
        ([], ["example.org"], "--cors example.org is not the origin of a page"),
        ([], ["https://example.org/"], "--cors https://example.org/"),
    ],
)
def test_invalid_names_and_origins(hosts: list[str], origins: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        Access.parse("127.0.0.1", hosts, origins)


def test_metrics(client: Client) -> None:
    translate(client, "Are we done?")
    names = [
        'nmt_requests_total{path="/translate",status="200"}',
        'nmt_characters_total{source="en",target="de"}',
    ]
    before = [metric(client, name) for name in names]
    translate(client, "Are we done?")
    assert [metric(client, name) for name in names] == [
        before[0] + 1,
        before[1] + len("Are we done?"),
    ]
    client.get("/secret")
    assert "secret" not in client.get("/metrics").text


def test_answers_are_sent_at_once() -> None:
    with http.listen("127.0.0.1", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_confidence_can_be_left_out(guards: dict[str, Guard]) -> None:
    translator = guards["en-de"].translator
    engine = GatedEngine(translator)
    service = Service([Guard(translator.with_engine(engine))], search="greedy", confidence=False)
    with serving(service) as client:
        assert translate(client, "Are we done?").keys() == {"translatedText", "warnings"}
        assert engine.num_scored == 0
        assert translate(client, "Are we done?", alignment=True)["alignment"]
        translate(client, "Are we done?", alternatives=5)
    service.close()
    assert engine.num_scored == 1
    searches = ("greedy", "greedy", "beam(beam_size=6, top_beams=6)")
    assert [search for _, search in engine.batches] == list(map(parse_search, searches))


# ---- documents


def test_html_is_translated(client: Client) -> None:
    html = "<p id=a>Are we done?</p>\n<script>let x = 'I am tired.'</script>"
    answer = translate(client, html, format="html")
    assert (
        answer["translatedText"]
        == "<p id=a>Sind wir fertig?</p>\n<script>let x = 'I am tired.'</script>"
    )
    assert answer["warnings"] == []
    several = translate(
        client, ["I&#39;m tired. &amp; <i>42</i>", "Tschüß"], format="html", alternatives=2
    )
    assert several["translatedText"][0].endswith("&amp; <i>42</i>")
    assert several["alternatives"] == [[], []]
    assert translate(client, html, "de", "de", format="html")["translatedText"] == html


def test_the_encoding_that_html_declares_does_not_matter(client: Client) -> None:
    html = '<meta charset="iso-8859-1"><p translate=no>Tschüß 👋</p><p>{}</p>'
    answer = translate(client, html.format("Ich bin müde."), "de", "en", format="html")
    assert answer["translatedText"] == html.format(
        translate(client, "Ich bin müde.", "de", "en")["translatedText"]
    )


def test_sentences_of_html_are_translated_with_other_requests(
    gated: tuple[GatedEngine, Service],
) -> None:
    engine, service = gated
    engine.gate.clear()
    with serving(service) as client, ThreadPoolExecutor(2) as pool:
        first = pool.submit(translate, client, "Are we done?")
        engine.entered.wait()
        html = pool.submit(
            translate, client, "".join(f"<p>I see {i} dogs.</p>" for i in range(20)), format="html"
        )
        queue = service.models["en", "de"].queue
        until(lambda: queue.num_waiting == 1)
        engine.gate.set()
        assert html.result()["translatedText"].count("<p>") == 20
        assert first.result()["translatedText"] == "Sind wir fertig?"
    sizes = [
        len(texts)
        for texts, search in engine.batches
        if search == parse_search("beam(beam_size=4)")
    ]
    # The scoring of the first request had a turn.
    assert (sizes[:2], sum(sizes), max(sizes)) == (
        [1, 8],
        21,
        8,
    )


def test_the_document_of_a_client_that_left_is_not_translated_further(
    gated: tuple[GatedEngine, Service],
) -> None:
    engine, service = gated
    engine.gate.clear()
    html = "".join(f"<p>I see {i} dogs.</p>" for i in range(200))
    with serving(service) as client:
        with connect(client) as leaving:
            leaving.sendall(
                post(
                    json.dumps(
                        {"q": html, "source": "en", "target": "de", "format": "html"}
                    ).encode()
                )
            )
            engine.entered.wait()
        until(lambda: metric(client, "nmt_requests_in_flight") == 1)
        engine.gate.set()
        translate(client, "Are we done?")
    service.close()
    assert sum(len(texts) for texts, _ in engine.batches) <= 3 * 8


def send_file(client: Client, name: str, content: bytes, **fields: Any) -> httpx.Response:
    return client.post(
        "/translate_file",
        files={"file": (name, content)},
        data={"source": "en", "target": "de"} | fields,
    )


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a b.txt", "Are we done?\n\nI'm tired.\n", "Sind wir fertig?\n\nIch bin müde.\n"),
        ("größe.HTML", "<html lang=en><p>Are we done?", "<html lang=de><p>Sind wir fertig?"),
        ("../x.md", "# Are we done?\n\n* I'm tired.\n", "# Sind wir fertig?\n\n* Ich bin müde.\n"),
    ],
)
@pytest.mark.parametrize("source", ["en", "auto"])
def test_a_file_is_translated(
    client: Client, name: str, content: str, expected: str, source: str
) -> None:
    answer = send_file(client, name, content.encode(), source=source)
    assert answer.status_code == 200, answer.text
    assert answer.json()["warnings"] == []
    url = answer.json()["translatedFileUrl"]
    assert re.fullmatch(rf"{client.base_url}/download_file/[\w-]{{32}}\.\w+", url)
    assert url != send_file(client, name, content.encode()).json()["translatedFileUrl"]
    response = client.get(url)
    assert response.text == expected
    assert response.headers["content-type"] == "application/octet-stream"
    disposition = response.headers["content-disposition"]
    assert urllib.parse.unquote(disposition) == f"attachment; filename*=UTF-8''{name}"
    assert "/" not in disposition


@pytest.mark.parametrize(
    ("name", "content", "fields", "expected"),
    [
        (
            "a.json",
            '{"a": "Are we done?", "b": "I\'m tired.", "c": "No."}',
            {"key": ["a", "b"]},
            '{"a": "Sind wir fertig?", "b": "Ich bin müde.", "c": "No."}',
        ),
        ("a.csv", "a,b\nAre we done?,No.\n", {"column": "a"}, "a,b\nSind wir fertig?,No.\n"),
    ],
)
def test_keys_and_columns_of_a_file_are_selected(
    client: Client, name: str, content: str, fields: dict[str, Any], expected: str
) -> None:
    answer = send_file(client, name, content.encode(), **fields)
    assert answer.status_code == 200, answer.text
    assert client.get(answer.json()["translatedFileUrl"]).text == expected


def test_a_zip_bomb_is_rejected(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "MAX_UNPACKED_BYTES", 2**20)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", bytes(2**20 + 1))
    response = send_file(client, "a.docx", bomb.getvalue())
    assert response.status_code == 400
    assert response.json() == {
        "error": "Invalid request: the parts of the archive are larger than 1 MiB"
    }


def test_a_file_in_the_target_language_is_unchanged(client: Client) -> None:
    content = b"Wir sind noch nicht fertig.\r\n"
    answer = send_file(client, "a.txt", content, source="auto").json()
    assert client.get(answer["translatedFileUrl"]).content == content


@pytest.mark.parametrize(
    ("name", "content", "fields", "message"),
    [
        ("a.exe", b"a", {}, "file format not supported; choose from: "),
        ("html", b"a", {}, "file format not supported"),
        ("a.ODT", b"a", {}, "file format not supported; convert it to .docx"),
        ("a.log", b"a", {}, "file format not supported; rename it to .txt"),
        ("a.txt", b"a\n" * 801, {}, "the file has more than 800 lines or elements of markup"),
        ("a.md", b"a\r" * 801, {}, "the file has more than 800 lines or elements of markup"),
        ("a.html", b"<p>" * 801, {}, "the file has more than 800 lines or elements of markup"),
        ("a.txt", b"\xff", {}, "line 1, byte 1 of the line: not UTF-8"),
        ("a.txt", b"a", {"source": "fr"}, "fr is not supported"),
        ("a.txt", b"a", {"target": ""}, "missing target"),
        ("a.txt", b"a" * 500, {}, "file (500) exceeds text limit (400)"),
        ("a.txt", b"\n" * 8001, {}, "the file is larger than 8,000 bytes"),
        ("a.html", b"<meta charset=utf-7><p>+2AA- Hello.", {}, "unknown encoding 'utf-7'"),
        ("a.docx", b"PK", {}, "not a DOCX or PPTX archive"),
        (
            "a.json",
            b'{"title": "a"}',
            {},
            "Invalid request: key is required for JSON; key paths with strings: title",
        ),
        (
            "a.json",
            b'{"title": "a"}',
            {"key": "titel"},
            "Invalid request: key titel matches no string; did you mean",
        ),
        (
            "a.json",
            b'{"title": "a"}',
            {"key": ["title"] * 21},
            "key may have 20 values of 200 characters",
        ),
        (
            "a.json",
            b'{"title": "a"}',
            {"key": "a" * 201},
            "key may have 20 values of 200 characters",
        ),
        (
            "a.csv",
            b"a,b\n1,2\n",
            {},
            "column is required for a table with several columns; columns: a, b",
        ),
        (
            "a.tsv",
            b"a\tb\n1\t2\n",
            {"column": "c"},
            "Invalid request: column c: there is no such column",
        ),
    ],
)
def test_invalid_files_are_rejected(
    service: Service, name: str, content: bytes, fields: dict[str, Any], message: str
) -> None:
    with serving(service, Limits(max_file_length=400)) as client:
        response = send_file(client, name, content, **fields)
        assert (response.status_code, message in response.json()["error"]) == (
            400,
            True,
        ), response.text


def test_the_language_of_the_source_determines_the_text_of_a_file(service: Service) -> None:
    note = b'<p lang="en" title="' + b"a" * 500 + b'">Are we done?</p>'
    german = b"<p>Are we done?</p><p lang=de>" + b"a" * 500 + b"</p>"
    template = b'msgid ""\nmsgstr "Language: en\\n"\n\nmsgid "Are we done?"\nmsgstr ""\n'
    with serving(service, Limits(max_file_length=400)) as client:
        for source in ("en", "auto"):
            assert "exceeds text limit" in send_file(client, "a.html", note, source=source).text
            assert send_file(client, "a.html", german, source=source).status_code == 200
            assert send_file(client, "a.po", template, source=source).status_code == 200


def test_unclosed_tags_do_not_stop_the_server(client: Client) -> None:
    content = b"<p>Are we done?</p>" + b"<a " * 300_000
    response = client.get(send_file(client, "a.html", content).json()["translatedFileUrl"])
    assert response.content == b"<p>Sind wir fertig?</p>" + b"<a " * 300_000


def test_files_are_limited_in_number_and_size(gated: tuple[GatedEngine, Service]) -> None:
    engine, service = gated
    limits = Limits(max_body=2000, max_files=1, max_wait=0.05)
    with serving(service, limits) as client, ThreadPoolExecutor(1) as pool:
        assert send_file(client, "a.txt", b"a" * 2000).status_code == 413
        # Has its own limit.
        assert translate(client, "Hallo! " * 1000, "de", "de")["translatedText"]
        response = client.post(
            "/translate_file", data={"file": "a", "source": "en", "target": "de"}
        )
        assert response.json() == {"error": "file must be a file"}
        assert client.post("/translate_file").json() == {
            "error": "Invalid request: missing file parameter"
        }
        engine.gate.clear()
        first = pool.submit(send_file, client, "a.txt", b"Are we done?")
        engine.entered.wait()
        assert send_file(client, "a.txt", b"I'm tired.").status_code == 503
        engine.gate.set()
        assert first.result().is_success


def test_texts_of_html_are_translated_together_and_counted_without_markup(client: Client) -> None:
    name = 'nmt_characters_total{source="en",target="de"}'
    client.post("/translate", json={"q": "Hi", "source": "en", "target": "de"})
    before = metric(client, name)
    texts = [f"<p>I have {n} <b>dogs</b>.</p>" for n in range(2, 10)]
    expected = [translate(client, text, format="html")["translatedText"] for text in texts]
    assert metric(client, name) - before == sum(len(re.sub("<.*?>", "", text)) for text in texts)
    assert translate(client, texts, format="html")["translatedText"] == expected
    assert all(str(n) in text for n, text in enumerate(expected, 2))


def test_a_trailing_slash_is_not_redirected(client: Client) -> None:
    assert (
        client.post("/translate/", json={"q": "Hi", "source": "en", "target": "de"}).status_code
        == 404
    )


def test_connections_beyond_the_maximum_are_refused(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "MAX_CONNECTIONS", 3)
    monkeypatch.setattr(http, "MAX_REFUSALS", 2)
    with serving(service) as client, ExitStack() as stack:
        assert client.get("/health").is_success
        others = [stack.enter_context(connect(client)) for _ in range(8)]
        # When the server has accepted some of them.
        until(lambda: client.get("/health").status_code == 503)
        for each in others:
            each.settimeout(5)
        closed = [connection for connection in others[4:] if connection.recv(1) == b""]
        assert len(closed) == 4


def test_slow_uploads_do_not_occupy_the_places_of_translations(service: Service) -> None:
    request = b"POST /translate_file HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    with serving(service, Limits(max_uploads=2, max_files=1)) as client, connect(client) as slow:
        slow.sendall(request)
        until(lambda: metric(client, "nmt_requests_in_flight") == 2)  # the upload and this one
        assert send_file(client, "a.txt", b"Are we done?").is_success
        with connect(client) as second:
            second.sendall(request)
            until(lambda: metric(client, "nmt_requests_in_flight") == 3)
            assert send_file(client, "a.txt", b"Are we done?").status_code == 503


def test_every_exception_of_a_parser_ends_the_request(service: Service) -> None:
    def fail(guard: Guard, search: str) -> None:
        next(iter(()))

    async def translate() -> None:
        await asyncio.wait_for(service.translate_document(fail, "en", "de", 1), 60)

    with pytest.raises(RuntimeError, match="StopIteration"):
        in_a_thread(translate())


def test_translated_files_are_deleted(
    client: Client, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("nothing", "..%2f..%2fetc%2fpasswd", "%00", "a" * 3000):
        assert client.get(f"/download_file/{name}").status_code == 404
    monkeypatch.setattr(files, "MAX_STORED_BYTES", 40)
    urls = [
        send_file(client, "a.txt", b"Are we done?").json()["translatedFileUrl"] for _ in range(3)
    ]
    assert [client.get(url).status_code for url in urls] == [404, 200, 200]
    monkeypatch.setattr(files, "LIFETIME", 0.01)
    url = send_file(client, "a.txt", b"Are we done?").json()["translatedFileUrl"]
    until(lambda: client.get(url).status_code == 404)


# ---- batches


def test_requests_that_wait_are_translated_together(gated: tuple[GatedEngine, Service]) -> None:
    engine, service = gated
    engine.gate.clear()
    with serving(service) as client, ThreadPoolExecutor(20) as pool:
        first = pool.submit(translate, client, "Are we done?")
        engine.entered.wait()
        waiting = [pool.submit(translate, client, f"I see {i} dogs.") for i in range(10, 15)]
        other = pool.submit(translate, client, "I'm tired.", alternatives=1)
        until(lambda: service.models["en", "de"].queue.num_waiting == 6)
        engine.gate.set()
        answers = [each.result()["translatedText"] for each in waiting]
        assert first.result()["translatedText"] == "Sind wir fertig?"
        assert other.result()["translatedText"] == "Ich bin müde."
    assert [re.findall(r"\d+", answer) for answer in answers] == [[str(i)] for i in range(10, 15)]
    searches = [parse_search(f"beam(beam_size=4, top_beams={count})") for count in (1, 2)]
    # One per search.
    assert sorted(len(texts) for texts, search in engine.batches if search in searches) == [
        1,
        1,
        5,
    ]


def test_a_long_text_leaves_room_for_other_requests(gated: tuple[GatedEngine, Service]) -> None:
    engine, service = gated
    with serving(service) as client:
        text = "\n".join(f"Are we done, {letter}?" for letter in "ABCDEFGHIJKLMNOPQRST")
        answer = translate(client, text)
    assert len(answer["translatedText"].splitlines()) == 20
    assert [len(texts) for texts, _ in engine.batches] == [8, 8, 4]


def test_a_failure_does_not_affect_other_requests_of_its_batch(
    gated: tuple[GatedEngine, Service], capfd: pytest.CaptureFixture[str]
) -> None:
    engine, service = gated
    engine.gate.clear()
    engine.error_on = "poison"
    headers = {"Origin": "https://example.org"}
    access = Access(origins=frozenset(["*"]))
    with serving(service, access=access) as client, ThreadPoolExecutor(20) as pool:
        first = pool.submit(translate, client, "Are we done?")
        engine.entered.wait()
        content = {"q": "the poison", "source": "en", "target": "de"}
        bad = pool.submit(client.post, "/translate", json=content, headers=headers)
        good = pool.submit(translate, client, "I'm tired.")
        until(lambda: service.models["en", "de"].queue.num_waiting == 2)
        engine.gate.set()
        assert first.result()["translatedText"] == "Sind wir fertig?"
        assert good.result()["translatedText"] == "Ich bin müde."
        assert (bad.result().status_code, bad.result().json()) == (500, {"error": "internal error"})
        assert bad.result().headers["access-control-allow-origin"] == "*"
    log = capfd.readouterr().err
    assert "RuntimeError in /translate" in log
    assert "poison" not in log


def test_a_full_server_says_when_to_try_again(gated: tuple[GatedEngine, Service]) -> None:
    engine, service = gated
    engine.gate.clear()
    with serving(service, Limits(max_concurrent=1)) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(translate, client, "Are we done?")
        engine.entered.wait()
        second = client.post("/translate", json={"q": "I'm tired.", "source": "en", "target": "de"})
        assert (second.status_code, second.headers["retry-after"]) == (503, "1")
        assert second.json() == {"error": "the server is busy"}
        engine.gate.set()
        assert first.result()["translatedText"] == "Sind wir fertig?"
        assert translate(client, "I'm tired.")["translatedText"] == "Ich bin müde."


def test_the_text_of_a_client_that_left_is_not_translated(
    gated: tuple[GatedEngine, Service],
) -> None:
    engine, service = gated
    engine.gate.clear()
    with serving(service) as client, ThreadPoolExecutor(1) as pool:
        first = pool.submit(translate, client, "Are we done?")
        engine.entered.wait()
        queue = service.models["en", "de"].queue
        with connect(client) as leaving:
            leaving.sendall(post(b'{"q": "the secret", "source": "en", "target": "de"}'))
            until(lambda: queue.num_waiting == 1)
        until(lambda: metric(client, "nmt_requests_in_flight") == 2)  # the first one and this one
        engine.gate.set()
        assert first.result()["translatedText"] == "Sind wir fertig?"
        translate(client, "I'm tired.")
    assert "the secret" not in [line for texts, _ in engine.batches for line in texts]


def source_of(service: Service, text: str) -> Source:
    return Source(service.models["en", "de"].guard.tokenizer.encode(text))


def submit(service: Service, *texts: str) -> Job:
    """Submit sentences to the queue."""
    job = Job(parse_search("greedy"), [Sentence((source_of(service, text),), 1) for text in texts])
    service.models["en", "de"].queue.submit(job)
    return job


def test_the_waiting_sentences_of_a_client_that_left_are_not_translated(
    gated: tuple[GatedEngine, Service],
) -> None:
    engine, service = gated
    engine.gate.clear()
    queue = service.models["en", "de"].queue
    first = submit(service, "Are we done?")
    engine.entered.wait()
    leaving = QueuedEngine(queue)
    guard = service.models["en", "de"].guard.for_request(leaving)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: list(guard.stream([["the secret"]])))
        try:
            until(lambda: queue.num_waiting == 1)
            leaving.stop()
            with pytest.raises(CancelledError):
                waiting.result(60)
        finally:
            engine.gate.set()  # the pool waits for its thread
    first.future.result()
    submit(service, "I'm tired.").future.result()
    assert "the secret" not in [line for texts, _ in engine.batches for line in texts]
    with pytest.raises(NMTError, match="cancelled"):
        list(guard.stream([["the secret"]]))


def test_a_cancelled_job_takes_no_place_in_a_batch(gated: tuple[GatedEngine, Service]) -> None:
    engine, service = gated
    engine.gate.clear()
    first = submit(service, "Are we done?")
    engine.entered.wait()
    before, cancelled, after = (submit(service, *["I'm tired."] * count) for count in (1, 8, 1))
    assert cancelled.future.cancel()
    engine.gate.set()
    for job in (first, before, after):
        assert len(job.future.result()) == 1
    assert [len(texts) for texts, _ in engine.batches] == [1, 2]


def test_a_failure_to_count_a_batch_does_not_end_the_thread(
    gated: tuple[GatedEngine, Service],
) -> None:
    service = gated[1]
    queue = service.models["en", "de"].queue
    queue.on_batch = lambda size: [][size]
    with pytest.raises(IndexError):
        submit(service, "Are we done?").future.result(60)
    queue.on_batch = lambda size: None
    assert submit(service, "I'm tired.").future.result(60)


@pytest.mark.parametrize("details", [True, False])
def test_a_request_waits_for_its_search_and_its_scores_once(
    gated: tuple[GatedEngine, Service], monkeypatch: pytest.MonkeyPatch, details: bool
) -> None:
    _, service = gated
    model = service.models["en", "de"]
    jobs: list[Job] = []
    submit_job = model.queue.submit

    def submit(job: Job) -> None:
        jobs.append(job)
        submit_job(job)

    monkeypatch.setattr(model.queue, "submit", submit)
    lines = [["Are we done?", "I'm tired.", "I'm tired."]]
    expected = list(model.guard.stream(lines, details=details))
    guard = model.guard.for_request(QueuedEngine(model.queue, parse_search("beam(beam_size=4)")))
    assert list(guard.stream(lines, "beam(beam_size=4)", details=details)) == expected
    (job,) = jobs
    assert len(job.sentences) == 2  # equal ones once
    guard = model.guard.for_request(QueuedEngine(model.queue, parse_search("beam(beam_size=5)")))
    assert list(guard.stream(lines, "beam(beam_size=4)", details=details)) == expected
    assert len(jobs) == 2 + details


def test_requests_have_turns(gated: tuple[GatedEngine, Service]) -> None:
    engine, service = gated
    engine.gate.clear()
    first = submit(service, "Are we done?")
    engine.entered.wait()
    long = submit(service, *["I'm tired."] * 30)
    other = submit(service, *["The dog sleeps."] * 30)
    short = [submit(service, f"I see {name}.") for name in ("Tom", "Anna")]
    engine.gate.set()
    for job in (first, long, other, *short):
        job.future.result(60)
    assert [len(texts) for texts, _ in engine.batches] == [1, *[8] * 7, 6]
    second = engine.batches[1][0]
    assert sorted(set(second)) == ["I see Anna.", "I see Tom.", "I'm tired.", "The dog sleeps."]
    assert [second.count(text) for text in ("I'm tired.", "The dog sleeps.")] == [3, 3]


@given(
    st.lists(st.lists(st.integers(1, 3000), min_size=1, max_size=30), max_size=9),
    st.integers(0, 1000),
)
def test_batches_are_bounded_and_every_request_has_turns(works: list[list[int]], seed: int) -> None:
    random = Random(seed)
    queue = ModelQueue(None, 16)  # type: ignore[arg-type]
    queue.close()  # the test takes the batches
    jobs = [Job(None, [Sentence((), work) for work in works_of_job]) for works_of_job in works]
    taken: list[tuple[int, int]] = []
    num_submitted = 0
    while num_submitted < len(jobs) or queue.num_waiting:
        waiting = list(queue.continued_jobs)
        for job in jobs[num_submitted : num_submitted + random.randint(0, 3)]:
            queue.submit(job)
            num_submitted += 1
        batch = queue.take_batch()
        assert len(batch) <= 16
        assert sum(turn.sentence.work for turn in batch) <= queue.max_work or len(batch) == 1
        assert not waiting or batch[0].job is waiting[0]  # none waits forever
        continued = [turn for turn in batch[1:] if turn.index]
        assert not (continued and queue.new_jobs)  # new ones come first
        taken += [(jobs.index(turn.job), turn.index) for turn in batch]
    assert sorted(taken) == [
        (i, j) for i, works_of_job in enumerate(works) for j in range(len(works_of_job))
    ]


def test_the_size_of_batches_follows_the_speed_of_the_model() -> None:
    queue = ModelQueue(None, 16)  # type: ignore[arg-type]
    queue.close()
    for _ in range(20):
        queue.adapt(1000, 0.1)
    assert queue.max_work == pytest.approx(4000, rel=0.01)
    for _ in range(20):
        queue.adapt(1000, 10.0)
    assert queue.max_work == batching.MIN_BATCH_WORK


@pytest.mark.parametrize(
    "text",
    [
        "x " * 2500,
        "k" * 5000,
        "e\u0323\u0301 " * 1200,
        "\u4eca\u5929" * 2500,
        '"a" (b [c] ' * 450,
        "a, b, " * 800,
        "twenty-one dogs and thirty-two cats saw four hundred birds. " * 80,
        "foo_bar(x) && `y z` | {n} " * 190,
        "ha! \U0001f600 12 http://a.de " * 200,
        "1a\n" * 1600,
        "Go. " * 1250,
        "b\t" * 2500,
        "ha " * 1600,
        "(a [b] " * 700,
        "".join(chr(33 + i * i % 89) for i in range(5000)),
        "".join("abcdefghijklmnopqrstuvwxyz     "[i**3 % 31] for i in range(1, 5000)),
        "".join(chr(0x21 + 7919 * i * i % 0x520) for i in range(5000)),
        "".join(chr(0x21 + 104729 * i * i % 0xD000) for i in range(5000)),
        "ABC DEF QRS " * 400,
        "Anna Baker, Peter Miller, " * 180,
        'red,"Miller, Ann",12.5,a;b\n' * 180,
        "getName setValue isOpen " * 200,
        "The old baker opened his shop. \u4eca\u5929\u5f88\u597d\u3002 " * 130,
    ],
)
def test_no_text_takes_much_more_work_than_prose(
    quick_guard: Guard, work_of_prose: int, text: str
) -> None:
    """Count source tokens and target tokens times rows, and twice what is scored."""
    assert work_of_request(quick_guard, text[:2000]) <= 3 * work_of_prose


@pytest.fixture(scope="module")
def quick_guard() -> Guard:
    return Guard(Translator.load("en-de", precision="int8"))


@pytest.fixture(scope="module")
def work_of_prose(quick_guard: Guard) -> int:
    prose = (
        "The old baker opened his small shop before sunrise, and many neighbors came early to buy"
        " bread. " * 50
    )
    return work_of_request(quick_guard, prose[:2000])


def work_of_request(guard: Guard, text: str) -> int:
    """Return the work of a text that a client sends."""
    engine = CountingEngine(guard.translator.engine)
    list(guard.for_request(engine).stream([text.split("\n")], "beam(beam_size=4)", details=True))
    return engine.work


class CountingEngine:
    """An engine that answers at once, as long as the model may, and counts its work, which does not
    depend on the scores."""

    max_positions = None

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.work = 0

    def search(
        self, sources: Sequence[Source], search: Search, on_progress: Callable[[int], object]
    ) -> Any:
        results = (
            self._engine.search(sources, parse_search("greedy"), lambda count: None)
            if sources
            else []
        )
        for source, n_best in zip(sources, results, strict=True):
            self.work += (len(source.ids) + len(n_best[0].ids)) * search.rows
        return results

    def score(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[TokenScores]:
        self.work += 2 * (sum(map(len, sources)) + sum(map(len, targets)))
        lengths = [
            (len(target) + 1, len(source) + 1)
            for source, target in zip(sources, targets, strict=True)
        ]
        return [TokenScores([-0.1] * shape[0], np.full(shape, 1 / shape[1])) for shape in lengths]


# ---- limits


def test_too_long_and_too_large_requests(service: Service) -> None:
    with serving(service, Limits(max_length=20)) as client:
        for q in ("a" * 21, ["a" * 11, "a" * 10], [""] * 21):
            response = client.post("/translate", json={"q": q, "source": "en", "target": "de"})
            assert response.status_code == 400
            assert (
                response.json()["error"] == "Invalid request: request (21) exceeds text limit (20)"
            )
        emoji = json.dumps({"q": "👋" * 20, "source": "en", "target": "de"})  # 12 bytes for each
        assert client.post(
            "/translate", content=emoji, headers={"Content-Type": "application/json"}
        ).is_success
        large = b"x" * 70_000
        for content in (large, iter([large])):  # with Content-Length, and chunked
            response = client.post(
                "/translate", content=content, headers={"Content-Type": "application/json"}
            )
            assert (response.status_code, "too large" in response.json()["error"]) == (413, True)
        assert client.get("/health").is_success


def test_a_rate_is_limited_by_client(service: Service) -> None:
    with serving(service, Limits(rate=2)) as client:
        data = {"q": "Hallo"}
        statuses = [client.post("/detect", data=data).status_code for _ in range(3)]
        response = client.post("/translate", data=data | {"source": "de", "target": "de"})
        assert statuses == [200, 200, 429]
        assert 1 <= int(response.headers["retry-after"]) <= 30
        assert "2 per minute" in response.json()["error"]
        forged = client.post("/detect", data=data, headers={"X-Forwarded-For": "192.0.2.1"})
        assert forged.status_code == 429
        assert client.get("/languages").is_success
    for proxies in (["127.0.0.1"], ["*", "10.0.0.1"]):
        with serving(service, Limits(rate=2), proxies=proxies) as client:
            for address, status in [("192.0.2.1", 200)] * 2 + [
                ("192.0.2.1", 429),
                ("192.0.2.2", 200),
            ]:
                assert (
                    client.post(
                        "/detect", data=data, headers={"X-Forwarded-For": address}
                    ).status_code
                    == status
                )


@given(st.lists(st.floats(0, 100), max_size=30), st.integers(1, 10))
def test_a_rate_is_never_exceeded_by_more_than_the_allowance_of_a_minute(
    pauses: list[float], rate: int
) -> None:
    now, accepted = 0.0, []
    limiter = RateLimiter(rate, lambda: now)
    for pause in pauses:
        now += pause
        try:
            limiter.check("a")
            accepted.append(now)
        except HTTPException as error:
            before, now = now, now + int((error.headers or {})["Retry-After"]) - 1.01
            if now > before:  # too early by Retry-After
                with pytest.raises(HTTPException):
                    limiter.check("a")
            now = max(now, before) + 1.02
            limiter.check("a")
            accepted.append(now)
    for i, start in enumerate(accepted):
        assert sum(time <= start + 60 for time in accepted[i:]) <= 2 * rate + 1


def test_clients_with_a_full_allowance_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_CLIENTS", 10)
    now = 0.0
    limiter = RateLimiter(1, lambda: now)
    for i in range(1000):
        now += 10
        limiter.check(f"client {i}")
        assert len(limiter.full_at) <= 10


def test_requests_need_a_key(service: Service, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("# staff\nkey-of-ann\n\n  key-öf-bob\n", encoding="utf-8-sig")
    keys = limits.read_keys(tmp_path / "keys")
    with serving(service, Limits(keys=keys, rate=3)) as client:
        settings = client.get("/frontend/settings").json()
        assert (settings["apiKeys"], settings["keyRequired"]) == (True, True)

        def status(**key: str) -> int:
            return client.post(
                "/translate", json={"q": "a", "source": "de", "target": "de"} | key
            ).status_code

        assert [status(api_key="key-of-ann") for _ in range(4)] == [200, 200, 200, 429]
        assert status(api_key="key-öf-bob") == 200
        assert [status(), status(api_key="key-of-an"), status(api_key="key-of-annn")] == [
            400,
            403,
            403,
        ]
        assert status(api_key="guess") == 429  # guesses count against the address
        assert client.post("/detect", data={"q": "a"}).status_code == 429
        assert client.get("/languages").is_success
        assert client.post("/translate", content=b"{").status_code == 429
        # The connection ends.
        assert client.post("/translate", content=b"{" * 500_000).status_code == 413
        assert status(api_key=" key-öf-bob ") == 200
        bearer = {"Authorization": "bearer  key-of-ann"}
        assert client.post("/detect", json={"q": "a"}, headers=bearer).status_code == 429
        query = {"api_key": "key-öf-bob"}
        assert client.post("/translate", json=VALID | {"api_key": None}, params=query).is_success
        twice = client.post("/detect", data={"q": "a"} | query, params=query)
        assert (twice.status_code, "address" in twice.text) == (429, False)
    with serving(service, Limits(keys=keys)) as client:
        for header, key, expected in [
            ("Bearer key-of-ann", "", 200),
            ("Bearer key-öf-bob", "", 200),
            ("Bearer key-of-ann", "wrong", 403),
            ("Bearer wrong", "key-of-ann", 200),
            ("Bearer wrong", "", 403),
            ("Basic key-of-ann", "", 400),
            ("Bearer", "", 400),
            ("", "", 400),
        ]:
            headers = {"Authorization": header.encode()}
            response = client.post("/detect", json={"q": "a", "api_key": key}, headers=headers)
            assert response.status_code == expected, header
        twice = client.post("/detect", data={"q": "a"} | query, params=query)
        assert (twice.status_code, twice.json()["error"]) == (400, "api_key must be one string")
        assert client.post("/detect", data={"q": "a", "api_key": "k" * 50_000}).status_code == 403


@pytest.mark.parametrize("line", ["k1 # of ann", "k\u200b1", "k\x00"])
def test_lines_that_are_no_keys_are_rejected(tmp_path: Path, line: str) -> None:
    (tmp_path / "keys").write_text(f"# keys\ngood\n{line}\n")
    with pytest.raises(UsageError, match="line 3: not a key"):
        limits.read_keys(tmp_path / "keys")


def test_clients_are_told_apart_by_address_or_network() -> None:
    for name, expected in {
        "10.0.0.1": "10.0.0.1",
        "::ffff:10.0.0.1": "10.0.0.1",
        "2001:db8::1": "2001:db8::",
        "2001:DB8:0:0:1::2": "2001:db8::",
        "2001:db8:0:1::1": "2001:db8:0:1::",
        "fe80::1": "fe80::1",
        "x" * 200: "x" * 100,
    }.items():
        assert limits.client_network(name) == expected


# ---- hostile clients


def post(body: bytes, headers: bytes = b"Content-Type: application/json\r\n") -> bytes:
    return b"POST /translate HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: %d\r\n\r\n%b" % (
        headers,
        len(body),
        body,
    )


def exchange(client: Client, request: bytes) -> bytes:
    """Send bytes, and return everything that the server answers until it closes the connection."""
    with connect(client) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(("change", "message"), INVALID_FIELDS)
def test_invalid_fields_are_rejected(client: Client, change: dict[str, Any], message: str) -> None:
    content = json.dumps(VALID | change).encode()
    response = client.post(
        "/translate", content=content, headers={"Content-Type": "application/json"}
    )
    assert response.status_code == 400
    assert message in response.json()["error"]


JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data; boundary=b"
INVALID_BODIES = [
    (JSON, b"", 400, "not valid JSON"),
    (JSON, b"[]", 400, "must be a JSON object"),
    (JSON, b"[" * 60_000, 400, "not valid JSON"),
    (JSON, b'{"q": ' + b"9" * 60_000 + b"}", 400, "not valid JSON"),
    (JSON, b'{"q": "\xff", "source": "en", "target": "de"}', 400, "not valid UTF-8"),
    (FORM, b"q=%FF&source=en&target=de", 400, "not valid UTF-8"),
    (FORM, b"q=\xe4&source=en&target=de", 400, "not valid UTF-8"),
    (FORM, b"a=1&" * 20_000, 400, "fields"),
    (FORM, b"source=en&source=de&q=a&target=de", 400, "source must be one string"),
    ("multipart/form-data", b"x", 400, "not a valid form"),
    (MULTIPART, b"x", 400, "not a valid form"),
    (
        MULTIPART,
        b'--b\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff\r\n--b--\r\n',
        400,
        "UTF-8",
    ),
    (
        MULTIPART,
        b'--b\r\nContent-Disposition: form-data; name="q"; filename="caf\xe9"\r\n\r\n\r\n--b--',
        400,
        "not valid UTF-8",
    ),
    (
        MULTIPART,
        b'--b\r\nContent-Disposition: form-data; name="q"; filename="x"\r\n\r\n\r\n--b--',
        400,
        "must be a",
    ),
    ("text/plain", b"q=a", 415, "unknown content type 'text/plain'"),
    ("\xff", b"q=a", 415, "unknown content type"),
]


@pytest.mark.parametrize(("content_type", "body", "status", "message"), INVALID_BODIES)
def test_invalid_bodies_are_rejected(
    client: Client, content_type: str, body: bytes, status: int, message: str
) -> None:
    response = client.post(
        "/translate", content=body, headers={"Content-Type": content_type.encode("latin-1")}
    )
    assert response.status_code == status
    assert message in response.json()["error"]


@pytest.mark.parametrize("content_type", [JSON, FORM, MULTIPART])
def test_compressed_requests_are_rejected(client: Client, content_type: str) -> None:
    headers = {"Content-Type": content_type, "Content-Encoding": "gzip"}
    for _ in range(2):  # the connection can be used again
        response = client.post("/translate", content=gzip.compress(b"{}"), headers=headers)
        assert response.status_code == 415
        assert "unknown content encoding 'gzip'" in response.json()["error"]
    headers["Content-Encoding"] = "identity"
    assert client.post("/translate", content=b"", headers=headers).status_code == 400


@pytest.mark.parametrize("extra", ["", '; filename="x"'])
def test_number_of_parts_of_a_form_is_limited(
    client: Client, monkeypatch: pytest.MonkeyPatch, extra: str
) -> None:
    monkeypatch.setattr(fields, "MAX_FIELDS", 3)
    part = f'--b\r\nContent-Disposition: form-data; name="a"{extra}\r\n\r\nx\r\n'
    for count, message in {3: "unknown field 'a'", 4: "more than"}.items():
        response = client.post(
            "/translate", content=part * count + "--b--\r\n", headers={"Content-Type": MULTIPART}
        )
        assert (response.status_code, message in response.json()["error"]) == (400, True)


def test_malformed_forms_are_not_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    client.post("/translate", content=b"--b\r\nsecret\xff", headers={"Content-Type": MULTIPART})
    assert caplog.text == ""


def test_wrong_methods_and_paths(client: Client) -> None:
    for method, path, status in [
        ("GET", "/translate", 405),
        ("POST", "/languages", 405),
        ("GET", "/x", 404),
    ]:
        response = client.request(method, path)
        assert (response.status_code, response.json().keys()) == (status, {"error"})
    error = client.get("/translate").json()["error"]
    assert error == "GET is not possible here; use POST"
    request = b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert exchange(client, request).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize(
    "request_",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"GET / HTTP/1.1\r\n\r\n",  # no host
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        (
            b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length:"
            b" 6\r\n\r\nabcde"
        ),
        b"POST /translate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000,
    ],
)
def test_malformed_http_is_rejected(client: Client, request_: bytes) -> None:
    try:
        assert exchange(client, request_).startswith(b"HTTP/1.1 400 ")
    except ConnectionResetError:
        # The server answered and closed before the client had sent everything.
        assert len(request_) > 65_536
    assert client.get("/health").is_success


def test_slow_requests_are_closed(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "HEAD_TIMEOUT", 0.05)
    monkeypatch.setattr(fields, "BODY_TIMEOUT", 0.05)
    assert exchange(client, b"") == b""
    assert exchange(client, b"POST /translate HT") == b""
    request = post(b'{"q": "a", "source": "de", "target": "de"}')
    assert exchange(client, request[:-1]).startswith(b"HTTP/1.1 408 ")
    with connect(client) as connection:
        connection.sendall(request)
        answer = connection.recv(65536)
        while not answer.endswith(b"}"):
            answer += connection.recv(65536)
        connection.sendall(request[:20])
        assert connection.recv(65536) == b""


def test_connections_that_do_not_read_are_closed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "WRITE_TIMEOUT", 0.05)
    requests = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000_000
    with connect(client) as connection, pytest.raises(ConnectionError):
        connection.sendall(requests)


def test_a_client_that_leaves_in_its_request_is_ignored(
    client: Client, capfd: pytest.CaptureFixture[str]
) -> None:
    with connect(client) as connection:
        connection.sendall(post(b"{}")[:-1])
    assert client.get("/health").is_success
    until(lambda: metric(client, "nmt_requests_in_flight") == 1)
    assert capfd.readouterr().err == ""


def test_requests_are_logged_without_their_text(
    service: Service, capfd: pytest.CaptureFixture[str]
) -> None:
    with serving(service, proxies=["127.0.0.1"], access_log=True) as client:
        translate(client, "A private dog.", api_key="secret-key")
        size = len(client.get("/health").content)
        client.get("/download_file/secret-name.txt?text=private")
        client.request("SECRET", "/private", headers={"X-Forwarded-For": "private text"})
        client.get("/health", headers={"X-Forwarded-For": "2001:db8::7"})
    lines = capfd.readouterr().err.splitlines()
    time = r"nmt: \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"
    assert len(lines) == 5
    assert re.fullmatch(rf"{time} 127\.0\.0\.1 POST /translate 200 \d+ ms \d+ B", lines[0])
    assert re.fullmatch(rf"{time} 127\.0\.0\.1 GET /health 200 \d+ ms {size} B", lines[1])
    assert re.fullmatch(rf"{time} 127\.0\.0\.1 GET other 404 \d+ ms \d+ B", lines[2])
    assert re.fullmatch(rf"{time} - other other 404 \d+ ms \d+ B", lines[3])
    assert " 2001:db8::7 GET /health 200 " in lines[4]
    with serving(service) as client:
        client.get("/health")
    assert capfd.readouterr().err == ""


# ---- the command


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("serve"))


def start(command: CommandLine, *arguments: str) -> tuple[subprocess.Popen[bytes], str]:
    """Start `nmt serve`, and return the process and its URL."""
    process = command.fork("serve", "--port", "0", *arguments)
    for line in iter(process.stderr.readline, b""):
        if match := re.search(rb"listening on (http://\S+);", line):
            return process, match[1].decode()
    raise AssertionError(f"exit code {process.wait()}")


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name
)
def test_a_client_of_libretranslate_works_and_a_signal_ends_the_process(
    command: CommandLine, number: signal.Signals
) -> None:
    (command.directory / "keys").write_text("secret-key\n")
    (command.directory / "terms.tsv").write_text("dogs\tKöter\n", encoding="utf-8")
    options = "--api-keys keys --search greedy --model en-de --glossary en-de=terms.tsv"
    process, url = start(command, *options.split())
    try:
        api = LibreTranslateAPI(url, "secret-key")
        assert api.translate("Are we done? & so?", "en", "de").startswith("Sind wir fertig?")
        assert {language["code"] for language in api.languages()} == {"de", "en"}
        long_text = "\n".join(f"The {i} dogs know the private word." for i in range(24))
        with (
            ThreadPoolExecutor(1) as pool,
            httpx.Client(base_url=url, timeout=60, trust_env=False) as client,
        ):
            answer = pool.submit(api.translate, long_text, "en", "de")
            until(lambda: answer.done() or metric(client, "nmt_requests_in_flight") == 2)
            process.send_signal(number)
            assert answer.result().count("\n") == long_text.count("\n")
            assert answer.result().count("Köter") >= 20
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert (process.returncode, out, err) == (0, b"", b"nmt: stopped\n")


def test_errors_of_the_command(command: CommandLine) -> None:
    with socket.create_server(("127.0.0.1", 0)) as used:
        port = str(used.getsockname()[1])
        command("serve", "--port", port).assert_fails(
            1,
            f"cannot listen on 127.0.0.1:{port}: Address already in use\n",
            "choose another --port",
        )
    for host in ("no.such.invalid", "a..b", "203.0.113.1"):
        command("serve", "--host", host, "--port", "0").assert_fails(
            1, f"cannot listen on {host}:0", "set --host"
        )
    command("serve", "--search", "bean").assert_fails(2, "unknown search 'bean'")
    command("serve", "--port", "0", "-m", "en-de", "-m", "en-de").assert_fails(
        2, "two models translate from en to de", "leave out one --model"
    )
    command("serve", "--api-keys", "none").assert_fails(
        2, "cannot read --api-keys none: No such file"
    )
    (command.directory / "terms.tsv").write_text("dog\tHund\n")
    for value, problem in {
        "terms.tsv": "there are several models",
        "en-fr=terms.tsv": "no model translates en-fr",
        "=terms.tsv": "there are several models",
    }.items():
        command("serve", "--port", "0", "--glossary", value).assert_fails(
            2,
            f"--glossary {value}: {problem}",
            "write --glossary en-de=terms.tsv or --glossary de-en",
        )
    twice = ["--glossary", "terms.tsv", "--glossary", "en-de=terms.tsv"]
    command("serve", "--port", "0", "-m", "en-de", *twice).assert_fails(
        2, "there is another one for en-de", "join the files"
    )
    command("serve", "--port", "0", "-m", "en-de", "--glossary", "none.tsv").assert_fails(
        1, "none.tsv"
    )
    (command.directory / "empty").write_text("\n \n")
    command("serve", "--api-keys", "empty").assert_fails(2, "--api-keys empty has no key")
    (command.directory / "binary").write_bytes(b"\xff\xfe")
    command("serve", "--api-keys", "binary").assert_fails(2, "--api-keys binary is not a text file")


def test_missing_packages_are_named(command: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "python_multipart", None)
    command("serve").assert_fails(2, "python_multipart is not installed", "[serve]'")


def test_the_threads_of_a_service_end(guards: dict[str, Guard]) -> None:
    before = threading.active_count()
    service = Service(guards.values())
    assert threading.active_count() == before + 2
    service.close()
    assert threading.active_count() == before


def test_the_words_of_clients_do_not_fill_the_memory() -> None:
    before = text_words._cached_alphanumeric.cache_info()
    assert text_words.normalized_words("x-" * 5000 + " y-z") == ["x" * 5000, "yz"]
    assert text_words._cached_alphanumeric.cache_info().currsize <= before.currsize + 1
    assert before.maxsize * text_words.MAX_CACHED_CHARACTERS < 3_000_000
