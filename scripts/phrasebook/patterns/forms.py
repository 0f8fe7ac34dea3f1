"""Shared by the patterns: forms of a clause, and combinations of subjects, predicates and forms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from phrasebook import clause as c
from phrasebook.clause import Clause, Pair, Predicate
from phrasebook.sampling import draw
from phrasebook.sense import compatible
from phrasebook.words import Participant

Options = dict[str, Any]  # keyword arguments of a clause
# With the sentence type: statement, question, or statement that begins with the time.
Form = tuple[Options, str]

SAY, ASK, FRONT = "statement", "question", "fronted"
NOT = {"negative": True}
PRESENT: list[Form] = [({}, SAY), (NOT, SAY), ({}, ASK)]
PROGRESSIVE: list[Form] = [
    ({"tense": "progressive"}, SAY),
    ({"tense": "progressive", **NOT}, SAY),
    ({"tense": "progressive"}, ASK),
]
PAST: list[Form] = [
    ({"tense": "past"}, SAY),
    ({"tense": "past", **NOT}, SAY),
    ({"tense": "past"}, ASK),
]
# I am not, do not.
IN_FULL: list[Form] = [
    ({"contracted": False}, SAY),
    ({"contracted": False, **NOT}, SAY),
]


def say(clause: Clause, how: str) -> Pair:
    """Write a clause as a statement, a question, or a statement that begins with the time."""
    return {SAY: c.statement, ASK: c.question, FRONT: c.fronted}[how](clause)


def combine(
    name: str,
    count: int,
    who: Sequence[Participant],
    what: Sequence[Predicate],
    forms: Sequence[Form],
    *times: Sequence[Pair],
) -> Iterator[Pair]:
    """Combine subjects, predicates and forms, and with times if `times` is given."""
    for subject, predicate, (options, how), *when in draw(name, count, who, what, forms, *times):
        if compatible(subject, predicate):
            yield say(
                Clause(subject, predicate, **options, **({"time": when[0]} if when else {})), how
            )
