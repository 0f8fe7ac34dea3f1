"""The sentence patterns. A pattern is a function that yields pairs; its docstring names its
topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from phrasebook.clause import Pair
from phrasebook.patterns import linked, people, phrases, questions, things, times

Pattern = Callable[[], Iterator[Pair]]

# Always in the training split: the most common sentences and idioms.
PINNED: list[Pattern] = [phrases.phrases, people.core, linked.core_because]
PATTERNS: list[Pattern] = [
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
    questions.whose,
    linked.because,
    linked.that,
    linked.whether,
    linked.indirect,
    linked.if_clauses,
    linked.infinitives,
    linked.purpose,
    linked.but,
    things.qualities,
    things.identified,
    things.comparisons,
    things.pronouns,
    things.places,
    things.there_is,
    things.belonging,
    things.pleasing,
    things.tastes,
    things.prices,
    things.counts,
    times.telling,
    times.appointments,
    times.timetable,
    times.calendar,
    times.ages,
    times.weather,
]
