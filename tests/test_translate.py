"""Translating: as many lines out as in, in order, and nothing dropped, whatever the lines hold."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tiny import config

from nmt.data.normalization import lowercase_all_caps, normalize
from nmt.data.segmentation import count_sentences, split_to_fit
from nmt.errors import ConfigError, DataError, NMTError
from nmt.inference import Source, batch, native
from nmt.inference import translator as translating
from nmt.inference.batch import BatchEngine
from nmt.inference.chunking import chunk_by_arrival
from nmt.inference.translator import Translator
from nmt.search import Hypothesis, Search
from nmt.train.session import train


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    folder = tmp_path_factory.mktemp("translate")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NMT_DATA", str(folder / "data"))
        experiment = config(folder, "train.steps=30", "train.valid_every=30")
        best = train(experiment, folder / "run", resume=False, device="cpu", precision="fp32")
    return Translator.load(best, "cpu")


LINES = ["ba be", "", "do du ga ge gi", "  ", "ba", "go gu ba be bi bo", "ba be"]


def texts(translator: Translator, lines: list[str], spec: str = "greedy") -> list[str]:
    return translator.translate(lines, spec)


def watched(translator: Translator, lines: list[str]) -> tuple[list[str], list[list[int]]]:
    """Translate, and note the ids that the engine is given."""
    seen: list[list[int]] = []
    whole = translator.engine.search

    def noted(sources: Sequence[Source], *rest: Any) -> list[list[Hypothesis]]:
        seen.extend(list(source.ids) for source in sources)
        return whole(sources, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(translator.engine, "search", noted)
        return texts(translator, lines), seen


def test_order_and_count_are_kept_whatever_the_batches(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = texts(translator, LINES)
    assert len(whole) == len(LINES)
    assert whole[1:4:2] == ["", "  "]
    assert whole[0] == whole[6]
    assert whole == [texts(translator, [line])[0] for line in LINES]
    monkeypatch.setattr(translating, "WINDOW", 2)
    monkeypatch.setattr(batch, "BATCH_ROWS", 1)
    assert texts(translator, LINES) == whole


def test_n_best_lines_are_sorted(translator: Translator) -> None:
    exact = Translator.load(translator.origin, "cpu", "fp32")
    for line, best in zip(LINES, exact.n_best(LINES, "beam(beam_size=4, top_beams=3)"), strict=True):
        assert len(best) == (3 if line.strip() else 1)
        assert [t.score for t in best] == sorted((t.score for t in best), reverse=True)


@pytest.mark.parametrize(
    ("text", "read"),
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
def test_what_is_written_in_capitals_is_written_small_and_nothing_else(text: str, read: str) -> None:
    assert lowercase_all_caps(text) == read


def test_shouting_is_read_in_small_letters_where_the_model_asks_for_it(translator: Translator) -> None:
    lines = ["ba be", "", "do du ga ge gi", "ba do... ga ba."]
    shouted = [line.upper() for line in lines]
    changed = replace(translator.config, lowercase_all_caps=True)
    calm = Translator(translator.engine, translator.tokenizer, changed, translator.max_source, translator.max_sentences)
    read = [translator.tokenizer.decode(ids) for ids in watched(calm, shouted)[1]]
    assert read == ["ba be", "do du ga ge gi", "ba do...", "ga ba."]  # cut first: a small letter begins no sentence
    log_probs = [scored.log_prob for scored in calm.score(zip(shouted, lines, strict=True))]
    assert log_probs == [scored.log_prob for scored in translator.score(zip(lines, lines, strict=True))]
    assert log_probs != [scored.log_prob for scored in translator.score(zip(shouted, lines, strict=True))]


def test_a_mistake_in_the_search_shows_at_once(translator: Translator) -> None:
    with pytest.raises(ConfigError, match="unknown search"):
        translator.translate([], "beem")


def test_a_long_line_is_cut_and_joined_and_nothing_is_lost(translator: Translator) -> None:
    line = "ba be bi, do du. Ga ge gi go gu! " * 300
    (text,), seen = watched(translator, [line])
    assert max(map(len, seen)) <= translator.max_source
    joined = "".join(translator.tokenizer.decode(ids) for ids in seen)
    assert joined.replace(" ", "") == line.replace(" ", "")
    assert "\n" not in text


def test_more_sentences_than_a_line_of_the_training_text_has_are_translated_one_by_one(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert translator.max_sentences == 1  # which is what its text is made of
    ones = ["Ba be bi do du.", "Ga ge gi!", "Di de du?"]
    alone = texts(translator, ones)
    assert texts(translator, ["  ".join(ones)]) == ["  ".join(alone)]
    monkeypatch.setattr(translator, "max_sentences", 3)
    monkeypatch.setattr(translator, "max_source", 100)
    seen: list[int] = []
    search = translator.engine.search
    monkeypatch.setattr(
        translator.engine, "search", lambda sources, *rest: seen.append(len(sources)) or search(sources, *rest)
    )
    texts(translator, [" ".join(ones)])
    assert seen == [1]


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 1), ("One.", 1), ("One. Two.", 2), ("Mr. Smith came.", 1), ("It is 3.5 m.", 1), ("Is it? Yes! Well.", 3)],
)
def test_sentences_are_counted(text: str, count: int) -> None:
    assert count_sentences(text, "en") == count


@hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(max_size=80), max_size=4))
def test_any_text_gives_one_line_each(translator: Translator, lines: list[str]) -> None:
    found = texts(translator, lines)
    assert len(found) == len(lines)
    assert not any("\n" in text or "\r" in text for text in found)
    assert all(text.strip() == "" for text, line in zip(found, lines, strict=True) if not normalize(line))


@given(st.text(max_size=300), st.integers(1, 40))
def test_segments_joined_are_the_text(text: str, longest: int) -> None:
    spans = split_to_fit(text, "en", lambda part: len(part) <= longest)
    assert all(stop - start <= longest for start, stop in spans)
    ends = [0, *(i for span in spans for i in span), len(text)]
    assert ends == sorted(ends)
    assert all(text[end:start].strip() == "" for end, start in zip(ends[::2], ends[1::2], strict=True))


def test_segments_prefer_sentences_to_clauses_to_words() -> None:
    def parts(text: str, language: str, fits: Callable[[str], bool]) -> list[str]:
        return [text[slice(*span)] for span in split_to_fit(text, language, fits)]

    text = "We met Dr. Bell, who was late. He was tired, and he left early. So did I."
    sentences = parts(text, "en", lambda part: len(part) <= 45)
    assert sentences == ["We met Dr. Bell, who was late.", "He was tired, and he left early. So did I."]
    clauses = parts(text, "en", lambda part: len(part) <= 20)
    assert clauses == ["We met Dr. Bell,", "who was late.", "He was tired,", "and he left early.", "So did I."]
    assert parts("one two three", "en", lambda part: len(part) <= 7) == ["one two", "three"]
    assert parts("Donaudampfschiff", "de", lambda part: len(part) <= 5) == ["Dona", "udam", "pfsc", "hiff"]


def test_a_target_word_is_aligned_to_the_source_word_that_it_looked_at_most() -> None:
    attention_TS = np.array(
        [[0.4, 0.2, 0.1, 0.3], [0.1, 0.3, 0.4, 0.2], [0.3, 0.25, 0.0, 0.45], [0.0, 1.0, 0.0, 0.0]], np.float32
    )  # the last row and column are the ends
    assert translating._align(["▁a", "▁b", "c"], ["▁x", "y", "▁z"], attention_TS) == [(1, 0), (0, 1)]


def test_a_stream_is_answered_as_it_comes() -> None:
    typed: queue.Queue[str | None] = queue.Queue()

    def lines() -> Iterator[str]:
        while (line := typed.get()) is not None:
            yield line

    windows = chunk_by_arrival(lines())
    typed.put("first")
    assert next(windows) == ["first"]  # although the stream has not ended
    for line in ("second", "third"):
        typed.put(line)
    threading.Timer(0.05, typed.put, [None]).start()
    assert [line for window in windows for line in window] == ["second", "third"]


def test_an_error_in_a_stream_comes_after_the_lines_before_it() -> None:
    def lines() -> Iterator[str]:
        yield "good"
        raise DataError("line 2 is not UTF-8")

    windows = chunk_by_arrival(lines())
    seen = [next(windows)]
    with pytest.raises(DataError, match="line 2"):
        seen += list(windows)
    assert seen == [["good"]]


def test_a_stream_of_many_lines_fills_batches() -> None:
    windows = list(chunk_by_arrival(str(i) for i in range(20_000)))
    assert [line for window in windows for line in window] == [str(i) for i in range(20_000)]
    assert max(map(len, windows)) <= translating.WINDOW
    assert len(windows) < 1000


def test_loading_from_python_equals_the_run(translator: Translator, tmp_path: Path) -> None:
    again = Translator.load(str(translator.origin), "cpu")
    assert texts(again, LINES) == texts(translator, LINES)


def test_batches_side_by_side_give_what_one_after_the_other_gives(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch, "BATCH_ROWS", 8)
    lines = [f"{'the small dog ' * (i % 4)}sees tree {i}." for i in range(40)]
    threads = torch.get_num_threads()
    found = []
    for count in (1, 3):
        monkeypatch.setenv("OMP_NUM_THREADS", str(count))
        loaded = Translator.load(translator.origin, "cpu")
        assert isinstance(loaded.engine, BatchEngine)
        assert loaded.engine.threads == (count if native.is_available() else 1)
        found.append(list(loaded.n_best(lines, "beam(beam_size=2, top_beams=2)")))
        assert torch.get_num_threads() == threads
    assert found[0] == found[1]


@pytest.mark.skipif(not native.is_available(), reason="no C compiler here, and PyTorch's routines round by the batch")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("spec", ["greedy", "beam(beam_size=3, top_beams=3)"])
def test_a_line_is_the_same_in_any_batch(translator: Translator, precision: str, spec: str) -> None:
    exact = Translator.load(translator.origin, "cpu", precision)
    lines = [f"{'the small dog ' * (i % 4)}sees tree {i}." for i in range(25)]
    together = list(exact.stream([lines], spec))
    assert together == [next(exact.stream([[line]], spec)) for line in lines]
    assert together == list(exact.stream([lines[:7], lines[7:]], spec))


@pytest.mark.parametrize(("spec", "rows"), [("greedy", 1), ("beam(beam_size=4)", 4)])
def test_a_batch_is_bounded_by_tokens_times_rows(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, spec: str, rows: int
) -> None:
    sizes, batched = [], BatchEngine._search

    def noted(engine: BatchEngine, sources: list[Source], find: Search) -> list[list[Hypothesis]]:
        sizes.append(len(sources) * rows * max(len(source.ids) + 1 for source in sources))
        return batched(engine, sources, find)

    monkeypatch.setattr(BatchEngine, "_search", noted)
    monkeypatch.setattr(batch, "BATCH_TOKENS", 400)
    texts(translator, [f"{'the small dog ' * (i % 3)}sees tree {i}." for i in range(60)], spec)
    assert 300 < max(sizes) <= 400


def test_what_breaks_one_batch_breaks_the_translation(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "BATCH_ROWS", 1)
    monkeypatch.setattr(translator.engine, "threads", 2)

    def broken(*_: object) -> None:
        raise NMTError("broken")

    monkeypatch.setattr(BatchEngine, "_search", broken)
    with pytest.raises(NMTError, match="broken"):
        translator.translate(["a dog", "a tree"])


@pytest.mark.parametrize(
    "error", [MemoryError("the native engine is out of memory"), RuntimeError("DefaultCPUAllocator: not enough")]
)
def test_what_does_not_fit_into_memory_is_done_in_halves(
    translator: Translator, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(line, line) for line in LINES if line.strip()]
    whole, scores = texts(translator, LINES), [one.score for one in translator.score(pairs)]
    engine, sizes = translator.engine, []
    assert isinstance(engine, BatchEngine)
    fitting = 1

    def within(compute: Callable[..., Any]) -> Callable[..., Any]:
        def limited(sources: Sequence[Sequence[int]], *rest: Any, **options: Any) -> Any:
            sizes.append(len(sources))
            if len(sources) > fitting:
                raise error
            return compute(sources, *rest, **options)

        return limited

    monkeypatch.setattr(engine.model, "prefill", within(engine.model.prefill))
    monkeypatch.setattr(engine.scoring_model, "score", within(engine.scoring_model.score))
    assert texts(translator, LINES) == whole
    assert [one.score for one in translator.score(pairs)] == pytest.approx(scores, abs=1e-5)
    assert max(sizes) > 1
    fitting = 0
    with pytest.raises(NMTError, match="this sentence does not fit into memory") as raised:
        texts(translator, LINES)
    assert raised.value.hint == "cut it, or search with fewer beams"
    with pytest.raises(NMTError, match="this sentence does not fit into memory") as raised:
        list(translator.score(pairs))
    assert raised.value.hint == "cut it, or leave it out"


def test_other_errors_are_not_taken_for_a_lack_of_memory(
    translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    assert isinstance(translator.engine, BatchEngine)
    monkeypatch.setattr(translator.engine.model, "prefill", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        texts(translator, LINES)
