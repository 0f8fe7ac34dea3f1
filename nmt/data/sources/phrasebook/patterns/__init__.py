"""The sentence patterns, by what they teach. A pattern is a function that yields pairs; its docstring names the matter."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nmt.data.sources.phrasebook.clause import Pair
from nmt.data.sources.phrasebook.patterns import linked, people, phrases, questions, things, times

# Always in the training split: what everyone says, and the phrases that cannot be built from parts.
PINNED: list[Callable[[], Iterator[Pair]]] = [phrases.phrases, people.core, linked.core_because]
PATTERNS: list[Callable[[], Iterator[Pair]]] = [
    people.states,
    people.habits,
    people.doing,
    people.past,
    people.modals,
    people.commands,
    people.jobs,
    questions.asked_for,
    questions.when_and_why,
    questions.who_does,
    questions.which,
    linked.because,
    linked.that,
    linked.whether,
    linked.if_clauses,
    linked.infinitives,
    linked.but,
    things.qualities,
    things.identified,
    things.comparisons,
    things.pronouns,
    things.places,
    things.belonging,
    things.tastes,
    things.prices,
    times.telling,
    times.appointments,
    times.calendar,
    times.ages,
    times.weather,
]
