"""Statements, yes-or-no questions and commands about people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nmt.data.sources.phrasebook import clause as c
from nmt.data.sources.phrasebook import lexicon as lex
from nmt.data.sources.phrasebook import predicates as p
from nmt.data.sources.phrasebook.clause import Clause, Pair, Predicate
from nmt.data.sources.phrasebook.sampling import draw
from nmt.data.sources.phrasebook.words import Phrase, Who

Form = tuple[dict[str, Any], str]  # keyword arguments of the clause; statement, question or fronted

SAY, ASK, FRONT = "statement", "question", "fronted"


def compatible(subject: Who, predicate: Predicate) -> bool:
    """Say whether the subject may have this object: not itself, and not two different people called you."""
    second = ("2s", "2p", "Sie")
    for part in (predicate.object, predicate.recipient):
        if isinstance(part, Phrase) and part.det == "own" and part.thing.en in subject.en:
            return False  # my brother's brother
        if not isinstance(part, Who):
            continue
        same = part.person == subject.person and (part.is_pronoun or subject.is_pronoun)
        if same or part.en in subject.en or subject.en in part.en:
            return False
        if {part.person, subject.person} <= {"1s", "1p"} or {part.person, subject.person} <= set(second):
            return False
        if subject.person in second and part.en.startswith("my "):
            continue
    return True


def say(clause: Clause, how: str) -> Pair:
    """Write a clause as a statement, a question, or with its time in front."""
    return {SAY: c.statement, ASK: c.question, FRONT: c.fronted}[how](clause)


def told(
    name: str, count: int, who: list[Who], what: list[Predicate], forms: list[Form], *times: list[Pair]
) -> Iterator[Pair]:
    """Combine subjects, predicates and forms, and times where the forms want them."""
    for subject, predicate, (options, how), *when in draw(name, count, who, what, forms, *times):
        if compatible(subject, predicate):
            yield say(Clause(subject, predicate, **options, **({"time": when[0]} if when else {})), how)


def present(*, progressive: bool = False) -> list[Form]:
    """Affirmation, negation and question in the present."""
    tense = "progressive" if progressive else "present"
    return [({"tense": tense}, SAY), ({"tense": tense, "negative": True}, SAY), ({"tense": tense}, ASK)]


PAST: list[Form] = [({"tense": "past"}, SAY), ({"tense": "past", "negative": True}, SAY), ({"tense": "past"}, ASK)]
LONG_FORMS: list[Form] = [({"contracted": False}, SAY), ({"contracted": False, "negative": True}, SAY)]


def core() -> Iterator[Pair]:
    """The short sentences a beginner says first, all of them: thirsty, hungry, tired, done, cold."""
    forms = [*present(), *PAST, *LONG_FORMS]
    for predicate in p.CORE_STATES:
        for subject in [*lex.PRONOUNS, lex.TOM, lex.ANNA, lex.YOU_CHILDREN, lex.YOU_BOTH, lex.MR_WEBER, lex.MRS_KLEIN]:
            for options, how in forms:
                yield say(Clause(subject, predicate, **options), how)
    for predicate in (p.VERY_THIRSTY, p.VERY_HUNGRY, p.AFRAID, p.RIGHT, p.being(lex.MOODS[0], very=True)):
        for subject in lex.PRONOUNS:
            for options, how in present():
                yield say(Clause(subject, predicate, **options), how)


def states() -> Iterator[Pair]:
    """Being and having: sein with adjectives, Durst haben, mir ist kalt; nicht before the adjective, kein for ein."""
    forms = [*present(), *present(), *PAST, ({"contracted": False}, SAY)]
    yield from told("needs", 870, lex.ANYONE, p.NEEDS, forms)
    yield from told("feelings", 1390, lex.ANYONE, p.FEELINGS, forms)
    yield from told("being at", 520, lex.ANYONE, p.BEING_AT, [*forms, ({"tense": "future"}, SAY)])
    yield from told("owning", 870, lex.NOT_ADDRESSED + lex.ADDRESSED[:4], p.OWNING, [*present(), *PAST[:1]])
    yield from told("liking", 520, lex.ANYONE, [*p.LIKING, *p.KNOWING, *p.ENJOYING * 3], present())
    yield from told("why not", 200, lex.ADDRESSED, [*p.NEEDS, *p.FEELINGS], [({"negative": True}, ASK)])


def habits() -> Iterator[Pair]:
    """What one does as a rule: the simple present, with do-support in English and none in German."""
    yield from told("habits", 990, lex.ANYONE, p.HABITS, [*present(), *present(), PAST[0]])
    for subject, predicate, often in draw("often", 520, lex.ANYONE, [*p.HABITS, *p.ACTIONS], lex.HOW_OFTEN):
        if compatible(subject, predicate):
            yield c.statement(Clause(subject, predicate, often=often))
    regular = [*p.ALONE_ACTIONS * 3, *p.GOING, *p.MEDIA, *p.MEETING[::9]]
    yield from told("regularly", 520, lex.ANYONE, regular, [({}, SAY), ({}, ASK), ({}, FRONT)], lex.REGULARLY)


def doing() -> Iterator[Pair]:
    """What is going on: the English progressive is a plain German present; prefixes stand at the end."""
    now = [("right now", "gerade"), c.NONE, c.NONE]
    yield from told(
        "doing", 1510, lex.ANYONE, p.ACTIONS, present(progressive=True)[:2] + present(progressive=True)[2:], now
    )
    coming = [*lex.COMING, *lex.ON_WEEKDAYS]
    forms: list[Form] = [*present(progressive=True), ({"tense": "progressive"}, FRONT)]
    yield from told("arranged", 1390, lex.ANYONE, p.ACTIONS, forms, coming)


def past() -> Iterator[Pair]:
    """The English past is the German perfect: haben or sein, the participle at the end."""
    yield from told("past", 870, lex.ANYONE, p.DOINGS, PAST)
    yield from told("past times", 1280, lex.ANYONE, p.DOINGS, [*PAST, ({"tense": "past"}, FRONT)], lex.GONE)
    perfect: list[Form] = [
        ({"tense": "perfect", "already": "already"}, SAY),
        ({"tense": "perfect", "already": "yet", "negative": True}, SAY),
        ({"tense": "perfect", "already": "yet"}, ASK),
        ({"tense": "perfect", "already": "never"}, SAY),
    ]
    yield from told("perfect", 700, lex.ANYONE, p.ACTIONS, perfect)


def modals() -> Iterator[Pair]:
    """können, müssen, wollen, dürfen, sollen, möchte: the infinitive at the end, whole again; werden likewise."""
    forms: list[Form] = [
        *(
            ({"modal": modal, "negative": no}, SAY)
            for modal in (c.CAN, c.HAVE_TO, c.WANT_TO, c.MAY)
            for no in (False, True)
        ),
        *(({"modal": modal}, ASK) for modal in (c.CAN, c.HAVE_TO, c.WANT_TO, c.MAY, c.WOULD_LIKE)),
        *(({"modal": modal}, SAY) for modal in (c.MUST, c.SHOULD, c.WOULD_LIKE, c.WOULD_LIKE)),
        *(({"modal": modal, "negative": True}, SAY) for modal in (c.MUST_NOT, c.SHOULD)),
        *(({"modal": modal, "tense": "past"}, SAY) for modal in (c.CAN, c.HAVE_TO, c.WANT_TO, c.MAY)),
        *(({"modal": modal, "tense": "past", "negative": True}, SAY) for modal in (c.CAN, c.WANT_TO, c.HAVE_TO)),
        *(({"tense": "future", "negative": no}, SAY) for no in (False, False, True)),
        ({"tense": "future"}, ASK),
    ]
    what = [*p.ACTIONS, *p.EATING, *p.SPEAKING[:8], *p.PLAYING * 2]
    yield from told("modals", 2090, lex.ANYONE, what, forms)
    timed = [(options, how) for options, how in forms if options.get("tense") != "past"]
    yield from told("modal times", 520, lex.ANYONE, what, timed, lex.COMING)
    for subject, predicate, modal in draw("may I", 260, [lex.I, lex.WE], what, [c.MAY_I, c.SHALL, c.CAN]):
        if compatible(subject, predicate):
            yield c.question(Clause(subject, predicate, modal=modal))


def commands() -> Iterator[Pair]:
    """Commands to du, to ihr and to Sie, and let's."""
    polite = [lex.YOU, lex.YOU, lex.YOU_CHILDREN, lex.MR_WEBER, lex.MRS_KLEIN]
    for subject, predicate, no, please in draw("commands", 810, polite, p.ACTIONS, [False, False, True], [False, True]):
        if compatible(subject, predicate):
            yield c.command(Clause(subject, predicate, negative=no), please=please)
    for predicate, time in draw("let us", 140, p.ACTIONS, [c.NONE, *lex.COMING[:4]]):
        if compatible(lex.WE, predicate):
            clause = Clause(lex.WE, predicate, time=time)
            en = c.finish(
                f"let's {predicate.english('1p')}" + (f" {time[0]}" if time[0] else ""), "!", predicate.call[0]
            )
            yield en, c.finish(f"lass uns {c.german_infinitive(clause, zu=False)}", "!", predicate.call[1])


def jobs() -> Iterator[Pair]:
    """Jobs without article, ages, birthplaces."""
    for subject, (his, hers), (options, how) in draw(
        "jobs", 290, [s for s in lex.ANYONE if s.person[0] in "123"], lex.JOBS, [*present(), PAST[0]]
    ):
        if subject.person not in ("3m", "3f"):
            continue
        job = hers if subject.person == "3f" else his
        yield say(Clause(subject, Predicate("be", "sein", Phrase(job, "job"), "nom", aspect="state"), **options), how)


def replaced(clause: Clause, **changes: Any) -> Clause:
    """Change parts of a clause."""
    return replace(clause, **changes)
