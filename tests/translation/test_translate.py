"""Translating text: number and order of lines, long lines, streams, batches and out-of-memory
errors."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sentencex
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tiny import config

from nmt.core.errors import ConfigError, DataError, NMTError, UsageError
from nmt.engines import Source, batch_engine, max_target_length, native
from nmt.engines.batch_engine import BatchEngine
from nmt.search import SEARCHES, Hypothesis, Search, parse_search
from nmt.search.beam import Beam
from nmt.search.greedy import Greedy
from nmt.text import sentences
from nmt.text.normalization import normalize, normalize_case, normalize_source
from nmt.text.sentences import count_sentences, split_sentences, split_to_fit
from nmt.training.session import train
from nmt.translation import chunking
from nmt.translation.alignment import Link, align, link_words
from nmt.translation.chunking import chunk_by_arrival
from nmt.translation.result import Part, Translation, concatenate
from nmt.translation.segments import FixedSpan, Line
from nmt.translation.translator import Translator


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    directory = tmp_path_factory.mktemp("translate")
    experiment = config(directory, "train.steps=30", "train.valid_every=30")
    best = train(experiment, directory / "run", resume=False, device="cpu", precision="fp32")
    return Translator.load(best, "cpu")


LINES = ["ba be", "", "do du ga ge gi", "  ", "ba", "go gu ba be bi bo", "ba be"]


def texts(translator: Translator, lines: list[str], spec: str = "greedy") -> list[str]:
    return translator.translate(lines, spec)


def translate_and_record(
    translator: Translator, lines: list[str]
) -> tuple[list[str], list[list[int]]]:
    """Translate, and return the translations and the token ids of the sources."""
    source_ids: list[list[int]] = []
    search = translator.engine.search

    def record(sources: Sequence[Source], *rest: Any) -> list[list[Hypothesis]]:
        source_ids.extend(list(source.ids) for source in sources)
        return search(sources, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translator.engine, "search", record)
        return texts(translator, lines), source_ids


def test_order_and_number_of_lines_do_not_depend_on_batches(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    translations = texts(translator, LINES)
    assert len(translations) == len(LINES)
    assert translations[1:4:2] == ["", "  "]
    assert translations[0] == translations[6]
    assert translations == [texts(translator, [line])[0] for line in LINES]
    monkeypatch.setattr(chunking, "CHUNK_SIZE", 2)
    monkeypatch.setattr(batch_engine, "MAX_BATCH_ROWS", 1)
    assert texts(translator, LINES) == translations


def test_a_chunk_is_not_a_line(translator: Translator) -> None:
    with pytest.raises(UsageError, match="lines must be a list of strings"):
        list(translator.stream(["a dog", "a tree"]))


@pytest.mark.parametrize(
    "spans", [[(0, 3), (2, 5)], [(2, 5), (0, 2)], [(4, 7)], [(-1, 2)], [(2, 2)], [(3, 2)]]
)
def test_fixed_spans_are_checked(spans: list[tuple[int, int]]) -> None:
    with pytest.raises(UsageError, match="fixed spans must be in order"):
        Line("a dog!", fixed=tuple(FixedSpan(start, end, "x") for start, end in spans))
    Line("a dog!", fixed=(FixedSpan(0, 1, "x"), FixedSpan(1, 6, "x")))


@pytest.mark.parametrize("search", [Greedy, Beam])
def test_a_registered_search_can_be_replaced(
    search: type[Search], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(SEARCHES, "mine", search)
    assert parse_search("mine") == search()


def test_n_best_list_is_sorted(translator: Translator) -> None:
    fp32 = Translator.load(translator.checkpoint, "cpu", "fp32")
    for line, best in zip(LINES, fp32.n_best(LINES, "beam(beam_size=4, top_beams=3)"), strict=True):
        assert len(best) == (3 if line.strip() else 1)
        assert [t.score for t in best] == sorted((t.score for t in best), reverse=True)


@pytest.mark.parametrize(
    ("text", "normalized"),
    [
        ("WHERE IS IT?", "where is it?"),
        ("GRÜßE AUS KÖLN", "grüße aus köln"),
        ("STOP 24 H!", "stop 24 h!"),
        ("NEW", "NEW"),
        ("R2-D2", "R2-D2"),
        ("WHERE IS it?", "WHERE IS it?"),
        ("1234 5678", "1234 5678"),
        ("東京タワー", "東京タワー"),
        ("ß ß ß ß", "ß ß ß ß"),
    ],
)
def test_all_caps_text_is_lowercased(text: str, normalized: str) -> None:
    assert normalize_case(text, lowercase_all_caps=True) == normalized
    assert normalize_case(text, lowercase_all_caps=False) == text


@pytest.mark.parametrize(
    ("text", "as_read"),
    [
        ("I`m here", "I'm here"),
        ("l´amour `x`", "l'amour `x`"),
        ("Cafe\u0301`s", "Café's"),  # a mark is no letter
        ("Ｈｅｌｌｏ, 𝐝𝐨𝐠!", "Hello, dog!"),
        ("Ｏ\u0308l", "Öl"),
        (" a\u200b  b", "a b"),
        ("a part\u2011time or full\u2010time dog", "a part-time or full-time dog"),
    ],
)
def test_variants_of_characters_of_a_source_are_replaced(
    translator: Translator, text: str, as_read: str
) -> None:
    assert normalize_source(text, lowercase_all_caps=False) == as_read
    assert normalize_source(as_read, lowercase_all_caps=False) == as_read
    assert translator.segmenter.encode([text]) == [translator.tokenizer.encode(as_read)]


def test_all_caps_lines_are_lowercased_if_the_config_says_so(translator: Translator) -> None:
    lines = ["ba be", "", "do du ga ge gi", "ba do... ga ba."]
    all_caps = [line.upper() for line in lines]
    config = replace(translator.config, lowercase_all_caps=True)
    lowercasing = Translator(
        translator.engine,
        translator.tokenizer,
        config,
        translator.segmenter.max_source_length,
        translator.segmenter.max_sentences_per_line,
    )
    sources = [
        translator.tokenizer.decode(ids) for ids in translate_and_record(lowercasing, all_caps)[1]
    ]
    # Sentences are split before lowercasing, because no sentence begins with a lowercase letter.
    assert sources == ["ba be", "do du ga ge gi", "ba do...", "ga ba."]
    log_probs = [scored.log_prob for scored in lowercasing.score(zip(all_caps, lines, strict=True))]
    assert log_probs == [
        scored.log_prob for scored in translator.score(zip(lines, lines, strict=True))
    ]
    assert log_probs != [
        scored.log_prob for scored in translator.score(zip(all_caps, lines, strict=True))
    ]


def test_an_unknown_search_is_rejected_without_input(translator: Translator) -> None:
    with pytest.raises(ConfigError, match="unknown search"):
        translator.translate([], "beem")


def test_a_long_line_is_split_without_losing_text(translator: Translator) -> None:
    line = "ba be bi, do du. Ga ge gi go gu! " * 300
    (text,), source_ids = translate_and_record(translator, [line])
    assert max(map(len, source_ids)) <= translator.segmenter.max_source_length
    joined = "".join(translator.tokenizer.decode(ids) for ids in source_ids)
    assert joined.replace(" ", "") == line.replace(" ", "")
    assert "\n" not in text


def test_a_source_longer_than_the_positions_of_the_model_is_split(translator: Translator) -> None:
    engine = copy(translator.engine)
    engine.max_positions = 12
    few = Translator(engine, translator.tokenizer, translator.config, 1000, 1)
    (text,), source_ids = translate_and_record(few, ["ba be bi do du ga ge gi go gu " * 9])
    assert max(map(len, source_ids)) <= 11  # and the end token
    assert text


def test_a_source_that_repeats_few_tokens_has_a_shorter_translation() -> None:
    assert Source([5, 6] * 30).max_output_length == 60 + 15 + 10
    assert Source([5, 6] * 30, prefix=[7]).max_output_length == max_target_length(60)
    for ids in (range(60), [5, 6] * 10, [*range(30), *range(30)]):
        assert Source(list(ids)).max_output_length == max_target_length(len(ids))


def test_a_line_with_more_sentences_than_the_training_data_is_split(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert translator.segmenter.max_sentences_per_line == 1  # as in its training data
    sentences = ["Ba be bi do du.", "Ga ge gi!", "Di de du?"]
    translations = texts(translator, sentences)
    assert texts(translator, ["  ".join(sentences)]) == ["  ".join(translations)]
    monkeypatch.setattr(translator.segmenter, "max_sentences_per_line", 3)
    monkeypatch.setattr(translator.segmenter, "max_source_length", 100)
    assert len(translate_and_record(translator, [" ".join(sentences)])[1]) == 1


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1),
        ("One.", 1),
        ("One. Two.", 2),
        ("Mr. Smith came.", 1),
        ("It is 3.5 m.", 1),
        ("Is it? Yes! Well.", 3),
    ],
)
def test_sentences_are_counted(text: str, count: int) -> None:
    assert count_sentences(text, "en") == count


NAME_PARTS = st.lists(st.text("ABKZabkz019_-", min_size=1, max_size=6), min_size=2, max_size=5)
DOTTED_NAMES = NAME_PARTS.map(".".join)
UNSPLIT = st.one_of(
    DOTTED_NAMES,
    NAME_PARTS.map("._".join),
    DOTTED_NAMES.map(lambda name: f"https://example.org/{name}?q=A.B!C#Top"),
    DOTTED_NAMES.map(lambda name: f"/srv/{name}/Read.Me.Txt"),
    DOTTED_NAMES.map(lambda name: f"C:\\Data\\{name}.Txt"),
    DOTTED_NAMES.map(lambda name: f"`{name}. Then {name}`"),
    DOTTED_NAMES.map(lambda name: f'<a title="Go. {name}? Stop.">'),
)


@given(UNSPLIT, st.sampled_from(["en", "de", "ja", "xx"]))
def test_no_sentence_ends_in_a_protected_span_or_a_dotted_name(name: str, language: str) -> None:
    first, second = f"We read {name} today.", f"They saw {name} there."
    text = f"{first} {second}"
    spans = split_sentences(text, language)
    assert [text[slice(*span)] for span in spans] == [first, second]


@given(st.lists(UNSPLIT, min_size=1, max_size=5), st.integers(1, 200))
def test_a_long_line_is_not_split_in_a_protected_span_that_fits(
    names: list[str], max_length: int
) -> None:
    text = "".join(f"We, all of us, read {name} today. " for name in names)
    longest = max(max_length, *(len(name) + 1 for name in names))
    spans = split_to_fit(text, "en", lambda start, end: end - start <= longest)
    borders = {position for span in spans for position in span}
    position = 0
    for name in names:
        position = text.index(name, position)
        end = position + len(name)
        assert not borders & set(range(position + 1, end))
        position = end


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that are passed to sentencex."""
    segment = sentencex.segment
    passed: list[str] = []

    def record(language: str, text: str) -> list[str]:
        passed.append(text)
        return segment(language, text)

    monkeypatch.setattr(sentencex, "segment", record)
    return passed


def test_sentences_of_a_long_line_are_found_in_windows(windows: list[str]) -> None:
    parts = ["Use `x` now.", "Dr. Smith isn't here.", '"Go. Now." he said.', f"See{' it' * 3000}."]
    text = " ".join(parts * 20)
    spans = split_sentences(text, "en")
    assert [text[slice(*span)] for span in spans] == parts * 20
    assert max(map(len, windows)) <= sentences.MAX_WINDOW
    assert sum(map(len, windows)) < 3 * len(text)


def test_a_line_of_usual_length_is_one_window(windows: list[str]) -> None:
    text = "Use `x`. " * 400
    spans = split_sentences(text, "en")
    assert windows == [text]
    assert len(spans) == 400


@given(st.text("aB.\"'`() 。", max_size=120), st.integers(2, 60))
def test_sentences_in_windows_add_up_to_the_text(text: str, max_window: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sentences, "MAX_WINDOW", max_window)
        spans = split_sentences(text, "en")
    position = 0
    for start, end in spans:
        assert not text[position:start].strip()
        assert start < end
        position = end
    assert not text[position:].strip()


@pytest.mark.parametrize(
    "sentence",
    [
        "Die Burg ist aus dem 12. Jahrhundert.",
        "Im 2. Quartal stieg der Umsatz.",
        "Ich sehe ihn zum 3. Mal.",
        "Sein 21. Geburtstag war am 3. Mai.",
        "Im 19. und 20. Jahrhundert war das anders.",
        "Das ist nach dem 80. oder dem 131. Kilometer.",
        "Der 1., 2. und 3. Platz waren weg, vom 3.–5. Mai.",
        "Ludwig der 14.",
    ],
)
def test_no_german_sentence_ends_in_an_ordinal_number(sentence: str) -> None:
    text = f"{sentence} Er war 30. Dann ging er."
    sentences = [text[slice(*span)] for span in split_sentences(text, "de")]
    assert sentences == [sentence, "Er war 30.", "Dann ging er."]


def test_no_sentence_is_an_abbreviation() -> None:
    for text in ("P.S. Call me at home.", "I am tired. N. B. The dog is here."):
        *_, last = split_sentences(text, "en")
        assert text[slice(*last)].startswith(("P.S. Call", "N. B. The"))
    sentences = split_sentences("He lives in the U.S. She does not.", "en")
    assert len(sentences) == 2


def test_sentences_end_without_whitespace_after_marks_of_chinese_and_japanese() -> None:
    for text in ("我看见你。|你看见我！|好。", "「私は見た。」|「彼も見た！」|はい。"):
        sentences = text.split("|")
        joined = "".join(sentences)
        assert [joined[slice(*span)] for span in split_sentences(joined, "zh")] == sentences


def test_a_line_is_not_split_in_a_fixed_span(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert translator.segmenter.max_sentences_per_line == 1
    monkeypatch.setattr(translator.segmenter, "max_source_length", 100)
    text = "Ba be Bi. Du gado. Ge gi!"
    line = Line(text, fixed=(FixedSpan(6, 12, "Bi. Du"),))
    assert [text[slice(*span)] for span in translator.segmenter.spans(line)] == [
        "Ba be Bi. Du gado.",
        "Ge gi!",
    ]


@hypothesis_settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=80), max_size=4))
def test_any_line_has_a_translation_of_one_line(translator: Translator, lines: list[str]) -> None:
    translations = texts(translator, lines)
    assert len(translations) == len(lines)
    assert not any("\n" in text or "\r" in text for text in translations)
    assert all(
        text.strip() == ""
        for text, line in zip(translations, lines, strict=True)
        if not normalize(line)
    )


@given(st.text(max_size=300), st.integers(1, 40))
def test_segments_add_up_to_the_text(text: str, max_length: int) -> None:
    spans = split_to_fit(text, "en", lambda start, end: end - start <= max_length)
    assert all(end - start <= max_length for start, end in spans)
    ends = [0, *(i for span in spans for i in span), len(text)]
    assert ends == sorted(ends)
    assert all(
        text[end:start].strip() == "" for end, start in zip(ends[::2], ends[1::2], strict=True)
    )


def test_segments_prefer_sentences_to_clauses_to_words() -> None:
    def split(text: str, language: str, fits: Callable[[str], bool]) -> list[str]:
        spans = split_to_fit(text, language, lambda start, end: fits(text[start:end]))
        return [text[slice(*span)] for span in spans]

    text = "We met Dr. Bell, who was late. He was tired, and he left early. So did I."
    sentences = split(text, "en", lambda part: len(part) <= 45)
    assert sentences == [
        "We met Dr. Bell, who was late.",
        "He was tired, and he left early. So did I.",
    ]
    clauses = split(text, "en", lambda part: len(part) <= 20)
    assert clauses == [
        "We met Dr. Bell,",
        "who was late.",
        "He was tired,",
        "and he left early.",
        "So did I.",
    ]
    assert split("one two three", "en", lambda part: len(part) <= 7) == ["one two", "three"]
    assert split("Donaudampfschiff", "de", lambda part: len(part) <= 5) == [
        "Dona",
        "udam",
        "pfsc",
        "hiff",
    ]


def test_a_target_word_is_aligned_to_the_source_word_with_the_most_attention() -> None:
    # The last row and column are the end tokens.
    attention_TS = np.array(
        [[0.4, 0.2, 0.1, 0.3], [0.1, 0.3, 0.4, 0.2], [0.3, 0.25, 0.0, 0.45], [0.0, 1.0, 0.0, 0.0]],
        np.float32,
    )
    assert align(link_words(["▁a", "▁b", "c"], ["▁x", "y", "▁z"], attention_TS)) == [(1, 0), (0, 1)]


def test_alignment_ignores_attached_punctuation_and_normalizes_the_attention_to_each_word() -> None:
    attention_TS = np.array([[0.4, 0.6, 0.0], [0.3, 0.0, 0.7], [0.0, 0.0, 1.0]], np.float32)
    assert align(link_words(["▁a", "▁b", "."], ["▁x", "▁y", "."], attention_TS)) == [(1, 0), (0, 1)]
    attention_TS = np.array([[0.5, 0.4, 0.0], [0.6, 0.0, 0.3], [0.8, 0.0, 0.0]], np.float32)
    assert align(link_words(["▁the", "▁a", "▁b"], ["▁x", "▁y", "▁z"], attention_TS)) == [
        (1, 0),
        (2, 1),
        (0, 2),
    ]
    # Punctuation that is a word.
    attention_TS = np.array([[0.3, 0.0, 0.1], [0.1, 0.0, 0.9]], np.float32)
    assert align(link_words(["▁a", "▁b", "▁!"], ["▁x", "▁!"], attention_TS)) == [(0, 0), (2, 1)]


def test_words_are_linked_in_both_directions() -> None:
    attention_TS = np.array([[0.9, 0.1, 0.0], [0.1, 0.5, 0.4], [0.0, 0.0, 1.0]], np.float32)
    links = link_words(["▁this", "▁is", "▁not"], ["▁das", "▁isn't", "▁so"], attention_TS)
    assert [(link.source, link.target) for link in links] == [(0, 0), (1, 1), (2, 2)]
    attention_TS = np.array([[0.9, 0.1, 0.0], [0.1, 0.5, 0.4], [0.0, 0.0, 0.3]], np.float32)
    links = link_words(["▁this", "▁is", "▁not"], ["▁it", "▁isn't", "▁so"], attention_TS)
    # Not - isn't.
    assert [(link.source, link.target) for link in links] == [
        (0, 0),
        (1, 1),
        (2, 1),
        (2, 2),
    ]
    assert [round(link.share, 2) for link in links] == [0.9, 0.83, 0.57, 0.43]
    assert align(links) == [(0, 0), (1, 1), (2, 2)]


def test_links_of_changed_words_are_not_used() -> None:
    links = (Link(0, 0, 0.9), Link(1, 1, 0.5), Link(1, 0, 0.4))
    translation = Translation("a b", 0.0, 0.0, alignment=((0, 0), (1, 1)), links=links)
    assert translation.known_links() == links
    assert replace(translation, alignment=((1, 0),)).known_links() == (Link(1, 0, 1.0),)
    joined = concatenate([Part(translation), Part(translation, " ", 2)])
    assert joined.known_links() == (*links, Link(2, 2, 0.9), Link(3, 3, 0.5), Link(3, 2, 0.4))
    assert joined.alignment == ((0, 0), (1, 1), (2, 2), (3, 3))


def test_lines_of_a_stream_are_returned_on_arrival() -> None:
    queued: queue.Queue[str | None] = queue.Queue()

    def lines() -> Iterator[str]:
        while (line := queued.get()) is not None:
            yield line

    chunks = chunk_by_arrival(lines())
    queued.put("first")
    assert next(chunks) == ["first"]  # although the stream has not ended
    for line in ("second", "third"):
        queued.put(line)
    threading.Timer(0.05, queued.put, [None]).start()
    assert [line for chunk in chunks for line in chunk] == ["second", "third"]


def test_an_error_in_a_stream_is_raised_after_the_preceding_lines() -> None:
    def lines() -> Iterator[str]:
        yield "good"
        raise DataError("line 2 is not UTF-8")

    chunks = chunk_by_arrival(lines())
    received = [next(chunks)]
    with pytest.raises(DataError, match="line 2"):
        received += list(chunks)
    assert received == [["good"]]


def test_a_fast_stream_fills_chunks() -> None:
    chunks = list(chunk_by_arrival(str(i) for i in range(20_000)))
    assert [line for chunk in chunks for line in chunk] == [str(i) for i in range(20_000)]
    assert max(map(len, chunks)) <= chunking.CHUNK_SIZE
    assert len(chunks) < 1000


def test_a_checkpoint_can_be_loaded_by_a_string_path(translator: Translator) -> None:
    reloaded = Translator.load(str(translator.checkpoint), "cpu")
    assert texts(reloaded, LINES) == texts(translator, LINES)


def test_parallel_batches_equal_sequential_batches(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_engine, "MAX_BATCH_ROWS", 8)
    lines = [f"{'the small dog ' * (i % 4)}sees tree {i}." for i in range(24)]
    threads = torch.get_num_threads()
    results = []
    for count in (1, 3):
        monkeypatch.setenv("OMP_NUM_THREADS", str(count))
        # Auto may differ between thread counts.
        loaded = Translator.load(translator.checkpoint, "cpu", "fp32")
        assert loaded.engine.num_threads == (count if native.is_available() else 1)
        results.append(list(loaded.n_best(lines, "beam(beam_size=2, top_beams=2)")))
        assert torch.get_num_threads() == threads
    assert results[0] == results[1]


@pytest.mark.skipif(
    not native.is_available(), reason="PyTorch rounds differently for different batch sizes"
)
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("spec", ["greedy", "beam(beam_size=3, top_beams=3)"])
def test_translations_do_not_depend_on_the_batch(
    translator: Translator, precision: str, spec: str
) -> None:
    loaded = Translator.load(translator.checkpoint, "cpu", precision)
    lines = [f"{'the small dog ' * (i % 4)}sees tree {i}." for i in range(12)]
    batched = list(loaded.stream([lines], spec))
    assert batched == [next(loaded.stream([[line]], spec)) for line in lines]
    assert batched == list(loaded.stream([lines[:5], lines[5:]], spec))


@pytest.mark.parametrize(("spec", "rows"), [("greedy", 1), ("beam(beam_size=4)", 4)])
def test_batch_size_is_limited_to_tokens_times_rows(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, spec: str, rows: int
) -> None:
    sizes, search_batch = [], BatchEngine.search_batch

    def record(
        engine: BatchEngine, sources: list[Source], search: Search
    ) -> list[list[Hypothesis]]:
        sizes.append(len(sources) * rows * max(len(source.ids) + 1 for source in sources))
        return search_batch(engine, sources, search)

    monkeypatch.setattr(BatchEngine, "search_batch", record)
    monkeypatch.setattr(batch_engine, "MAX_BATCH_TOKENS", 400)
    texts(translator, [f"{'the small dog ' * (i % 3)}sees tree {i}." for i in range(60)], spec)
    assert 300 < max(sizes) <= 400


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")
@pytest.mark.skipif(not native.is_available(), reason="threads of PyTorch do not survive a fork")
def test_a_forked_process_has_its_own_threads(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_engine, "MAX_BATCH_ROWS", 1)
    monkeypatch.setattr(translator.engine, "num_threads", 2)
    expected = texts(translator, LINES)  # starts threads
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(texts(translator, LINES)), daemon=True)
    child.start()
    try:
        assert receiver.poll(60)
        assert receiver.recv() == expected
    finally:
        child.kill()


def test_an_error_in_a_parallel_batch_is_raised(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_engine, "MAX_BATCH_ROWS", 1)
    monkeypatch.setattr(translator.engine, "num_threads", 2)

    def broken(*_: object) -> None:
        raise NMTError("broken")

    monkeypatch.setattr(BatchEngine, "search_batch", broken)
    with pytest.raises(NMTError, match="broken"):
        translator.translate(["a dog", "a tree"])


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("the native engine is out of memory"),
        RuntimeError("DefaultCPUAllocator: not enough"),
    ],
)
def test_a_batch_that_runs_out_of_memory_is_split(
    translator: Translator, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(line, line) for line in LINES if line.strip()]
    translations, scores = texts(translator, LINES), [one.score for one in translator.score(pairs)]
    engine, sizes = translator.engine, []
    max_batch_size = 1

    def limit(compute: Callable[..., Any]) -> Callable[..., Any]:
        def limited(sources: Sequence[Sequence[int]], *rest: Any, **options: Any) -> Any:
            sizes.append(len(sources))
            if len(sources) > max_batch_size:
                raise error
            return compute(sources, *rest, **options)

        return limited

    monkeypatch.setattr(engine.model, "init_search_state", limit(engine.model.init_search_state))
    monkeypatch.setattr(engine.scoring_model, "score", limit(engine.scoring_model.score))
    assert texts(translator, LINES) == translations
    assert [one.score for one in translator.score(pairs)] == pytest.approx(scores, abs=1e-5)
    assert max(sizes) > 1
    max_batch_size = 0
    with pytest.raises(NMTError, match="this sentence does not fit into memory") as raised:
        texts(translator, LINES)
    assert raised.value.hint == "split it, or use a smaller beam"
    with pytest.raises(NMTError, match="this sentence does not fit into memory") as raised:
        list(translator.score(pairs))
    assert raised.value.hint == "split it, or remove it"


def test_threads_load_the_scoring_model_once(translator: Translator) -> None:
    engine = translator.engine
    loaded: list[str] = []

    def make_model(precision: str) -> Any:
        loaded.append(precision)
        time.sleep(0.1)
        return engine.scoring_model

    threaded = BatchEngine(make_model, "bf16", lambda _: "", num_threads=4)
    threaded.score([[5] * 300] * 40, [[6] * 300] * 40)
    assert loaded == ["bf16", "fp32"]


def test_other_errors_are_not_treated_as_out_of_memory(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(translator.engine.model, "init_search_state", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        texts(translator, LINES)
