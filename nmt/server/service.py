"""The models of the server by language pair, and the translation of texts with them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple, TypeVar

from starlette.exceptions import HTTPException

from nmt.core.errors import UsageError, suggest
from nmt.core.registry import format_spec, parse
from nmt.search import Search, parse_search
from nmt.search.beam import Beam
from nmt.server.batching import ModelQueue, QueuedEngine
from nmt.server.languages import (
    MIN_LETTERS,
    Detection,
    detect,
    language_name,
    other_language,
)
from nmt.server.metrics import Metrics
from nmt.server.text import join_lines, split_lines
from nmt.text.language_codes import normalize_code
from nmt.text.scripts import count_letters
from nmt.translation.chunking import regroup
from nmt.translation.glossary import Glossary, Term
from nmt.translation.guard import Guard
from nmt.translation.result import Translation

AUTO = "auto"
"""The source language of a request that asks for detection."""
MAX_DOCUMENTS = 32
"""Maximum number of documents translated at a time; further ones wait."""
MAX_TEXTS = 128
"""Maximum number of requests with texts translated at a time; further ones wait."""
MIN_PROBABILITY = 50.0
"""Minimum probability, in percent, that a text is in the target language already, or that a text of
a list is in another language than the list."""

T = TypeVar("T")


class Languages(NamedTuple):
    """The languages of a text, and the detected source language if it was `auto`."""

    source: str
    target: str
    detection: Detection | None


def _sample(texts: Sequence[str]) -> str:
    """Return the texts, the longest first, because their language is identified by the start."""
    # A long URL is one word.
    return "\n".join(sorted(texts, key=lambda text: len(text.split()), reverse=True))


@dataclass
class RequestTerms:
    """The terms of a request and what became of them."""

    pairs: Sequence[tuple[str, str]] = ()
    """Source terms and their translations, in addition to those of the glossary of the server."""
    counts: Counter[tuple[str, bool]] = field(default_factory=Counter)
    """How often each translation of a term was due, and whether it was applied."""

    def report(self) -> dict[str, dict[str, int]]:
        """Return how often each term was applied and not applied."""
        applied: dict[str, int] = {}
        not_applied: dict[str, int] = {}
        for (term, is_applied), count in self.counts.items():
            counts = applied if is_applied else not_applied
            counts[term] = count
        return {"applied": applied, "notApplied": not_applied}


class _Model(NamedTuple):
    """The model of a language pair."""

    guard: Guard
    queue: ModelQueue

    @property
    def name(self) -> str:
        """Name of the directory of the model."""
        return self.guard.translator.run.name


class Service:
    """Translates texts. Each model translates one language pair, whose queue has its own thread."""

    def __init__(
        self,
        guards: Iterable[Guard],
        *,
        search: str = "",
        max_batch: int = 64,
        confidence: bool = True,
    ) -> None:
        """Start the models.

        Args:
            guards: the models.
            search: spec string of the search; empty for that of each model's config.
            max_batch: maximum number of sentences translated together.
            confidence: whether each translation has a confidence, which takes another forward pass.

        Raises:
            UsageError: two models have the same language pair.
        """
        self.metrics = Metrics()
        self._search, self.confidence = search, confidence
        self.models: dict[tuple[str, str], _Model] = {}
        for guard in guards:
            if guard.languages in self.models:
                raise UsageError(
                    f"two models translate from {' to '.join(guard.languages)}",
                    "leave out one --model",
                )
            count_lines = self.metrics.batch_lines.labels(*guard.languages).observe
            queue = ModelQueue(guard.translator.engine, max_batch, count_lines)
            self.models[guard.languages] = _Model(guard, queue)
        self._document_threads = ThreadPoolExecutor(MAX_DOCUMENTS, "document")
        self._text_threads = ThreadPoolExecutor(MAX_TEXTS, "text")
        self.languages = sorted({code for pair in self.models for code in pair})
        self.default_pair = next(iter(self.models))

    def warm_up(self) -> None:
        """Translate a word with each model and load the language identification, so that no request
        waits for it."""
        for model in self.models.values():
            list(
                model.guard.stream(
                    [["Hello."]], self._search_spec(model.guard, 0), details=self.confidence
                )
            )
        self.detect(["Hello."])

    def close(self) -> None:
        """Translate everything that was submitted, and end the threads."""
        self._document_threads.shutdown()
        self._text_threads.shutdown()
        for model in self.models.values():
            model.queue.close()

    def describe_models(self) -> list[dict[str, str]]:
        """Return the name and the languages of each model."""
        return [
            {"name": model.name, "source": source, "target": target}
            for (source, target), model in self.models.items()
        ]

    def targets(self, source: str) -> list[str]:
        """Return the languages into which texts in a language can be translated, including the
        language itself."""
        return [code for code in self.languages if code == source or (source, code) in self.models]

    def language(self, code: str) -> str:
        """Return the language with this code, in any case and with - or _.

        Raises:
            HTTPException: 400 for a language that is not served.
        """
        for language in self.languages:
            if normalize_code(language) == normalize_code(code):
                return language
        raise HTTPException(
            400, f"{code[:50]} is not supported; {suggest(code[:50], self.languages)}"
        )

    def detect(self, texts: Sequence[str]) -> list[Detection]:
        """Return the probable languages of the texts, the most probable first; the longest texts
        decide."""
        return detect(_sample(texts), self.languages)

    def resolve(self, texts: Sequence[str], source: str, target: str) -> Languages:
        """Return the languages of texts that share one source language.

        `auto` is the most probable language from which there is a translation into the target. It
        is the target itself only if its probability is at least `MIN_PROBABILITY` or no other
        language is possible, because words such as names belong to several languages.

        Raises:
            HTTPException: 400, a language or the pair is not served, or the texts are clearly in
                another language.
        """
        target = self.language(target)
        if source == AUTO:
            name = "the text" if len(texts) == 1 else "q"
            self._check_language(_sample(texts), target, name)
            return self._detect(texts, target)
        source = self.language(source)
        if target not in self.targets(source):
            names = f"{language_name(target)} ({target})", f"{language_name(source)} ({source})"
            raise HTTPException(
                400, f"{names[0]} is not available as a target language from {names[1]}"
            )
        return Languages(source, target, None)

    def _detect(self, texts: Sequence[str], target: str) -> Languages:
        candidates = [each for each in self.detect(texts) if target in self.targets(each.language)]
        if candidates[0].language == target and candidates[0].probability < MIN_PROBABILITY:
            candidates = candidates[1:] or candidates
        return Languages(candidates[0].language, target, candidates[0])

    def _check_language(self, text: str, target: str, name: str) -> None:
        """Raise an HTTPException for a text that is clearly in a language from which there is no
        translation into the target."""
        sources = [code for code in self.languages if (code, target) in self.models]
        if not sources and self.detect([text])[0].language != target:
            raise HTTPException(
                400, f"{language_name(target)} ({target}) is not available as a target language"
            )
        other = other_language(text, [*sources, target])
        if other is None:
            return
        names = ", ".join(f"{language_name(code)} ({code})" for code in sources)
        raise HTTPException(
            400,
            f"{name} seems to be in {language_name(other)} ({other}), but this server translates"
            f" into {language_name(target)} ({target}) only from: {names}; if it is in such a"
            " language, name it as source",
        )

    def resolve_each(self, texts: Sequence[str], source: str, target: str) -> list[Languages]:
        """Return the languages of each text of a list.

        With `auto`, a text whose language is less probable than `MIN_PROBABILITY`, such as a single
        word, is in the language of the whole list.

        Raises:
            HTTPException: as for `resolve`.
        """
        if source == AUTO and len(texts) > 1:
            target = self.language(target)
            for number, text in enumerate(texts, 1):
                if count_letters(text) >= MIN_LETTERS:
                    self._check_language(text, target, f"text {number} of q")
        shared = self.resolve(texts, source, target)
        if source != AUTO:
            return [shared] * len(texts)
        resolved = []
        for text in texts:
            own = self._detect([text], shared.target)
            is_probable = own.detection is not None and own.detection.probability >= MIN_PROBABILITY
            resolved.append(own if is_probable else shared)
        return resolved

    async def translate(
        self,
        texts: Sequence[str],
        source: str,
        target: str,
        *,
        alternatives: int = 0,
        details: bool = False,
        terms: RequestTerms | None = None,
    ) -> list[list[Translation]]:
        """Return the n-best list of each text.

        Args:
            texts: texts with any number of lines.
            source: a language.
            target: one of its targets. In the language itself, a text is its own translation.
            alternatives: number of further translations.
            details: whether to compute alignments even if `confidence` is off.
            terms: the terms of the request.
        """
        model = self.models.get((source, target))
        if model is None:
            return [[Translation(text)] for text in texts]
        self.metrics.characters.labels(source, target).inc(sum(map(len, texts)))
        search = self._search_spec(model.guard, alternatives)
        needs_details = details or self.confidence

        def translate(guard: Guard) -> list[list[Translation]]:
            lines = [split_lines(text) for text in texts]
            chunk = list(chain.from_iterable(lines))
            n_bests = guard.stream([chunk], search, details=needs_details)
            n_bests_of_texts = regroup(n_bests, map(len, lines))
            return list(map(join_lines, texts, n_bests_of_texts))

        scored_search = parse_search(search) if needs_details else None
        return await _run(self._text_threads, model, translate, terms, scored_search)

    async def translate_document(
        self,
        translate: Callable[[Guard, str], T],
        source: str,
        target: str,
        num_characters: int,
        terms: RequestTerms | None = None,
    ) -> T:
        """Return the result of `translate`, which runs in a thread with a model and a search.

        `target` is one of the targets of `source`, but not the same language.
        """
        model = self.models[source, target]
        self.metrics.characters.labels(source, target).inc(num_characters)
        search = self._search_spec(model.guard, 0)
        return await _run(
            self._document_threads, model, lambda guard: translate(guard, search), terms
        )

    def _search_spec(self, guard: Guard, alternatives: int) -> str:
        """Return the search, or a beam search that finds the alternatives."""
        spec = self._search or guard.config.search
        if not alternatives:
            return spec
        name, options = parse(spec)
        options = options if name == "beam" else {}
        beam_size = max(options.get("beam_size", Beam.beam_size), alternatives + 1)
        return format_spec(
            "beam", options | {"beam_size": beam_size, "top_beams": alternatives + 1}
        )


async def _run(
    threads: ThreadPoolExecutor,
    model: _Model,
    translate: Callable[[Guard], T],
    terms: RequestTerms | None,
    scored_search: Search | None = None,
) -> T:
    """Return the result of `translate`, which runs in a thread, and stop it if this is
    cancelled."""
    engine = QueuedEngine(model.queue, scored_search)
    guard = model.guard.for_request(engine)
    terms = terms or RequestTerms()
    if terms.pairs:
        source, _ = guard.languages
        own = [Term(term, translation, source) for term, translation in terms.pairs]
        guard.glossary = Glossary(own, guard.glossary)
    try:
        result = await asyncio.get_running_loop().run_in_executor(
            threads, _without_stop, translate, guard
        )
    finally:
        engine.stop()  # if the client has left
    terms.counts.update(guard.term_counts)
    return result


def _without_stop(translate: Callable[[Guard], T], guard: Guard) -> T:
    """Call `translate`. A StopIteration becomes a RuntimeError, because a future of asyncio never
    raises it."""
    try:
        return translate(guard)
    except StopIteration as error:
        raise RuntimeError("StopIteration").with_traceback(error.__traceback__) from None
