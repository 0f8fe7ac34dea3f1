"""Statements, yes-no questions and commands about people."""

from __future__ import annotations

from collections.abc import Iterator

from phrasebook import clause as c
from phrasebook import lexicon as lex
from phrasebook import predicates as p
from phrasebook.clause import Clause, Pair, Predicate
from phrasebook.patterns.forms import (
    ASK,
    FRONT,
    IN_FULL,
    NOT,
    PAST,
    PRESENT,
    PROGRESSIVE,
    SAY,
    Form,
    combine,
    say,
)
from phrasebook.sampling import draw
from phrasebook.sense import compatible
from phrasebook.words import Phrase

BEGINNERS = [
    *lex.PRONOUNS,
    lex.TOM,
    lex.ANNA,
    lex.YOU_CHILDREN,
    lex.YOU_BOTH,
    lex.MR_WEBER,
    lex.MRS_KLEIN,
]
NOT_OFTEN = [*p.LIVING, *p.ORIGIN, p.GET_UP, p.HURRY]  # predicates that are odd with often or never
PERFECT: list[Form] = [
    ({"tense": "perfect", "already": "already"}, SAY),
    ({"tense": "perfect", "already": "yet", **NOT}, SAY),
    ({"tense": "perfect", "already": "yet"}, ASK),
]
MODAL: list[Form] = [
    *(
        ({"modal": modal, **no}, SAY)
        for modal in (c.CAN, c.HAVE_TO, c.WANT_TO, c.MAY)
        for no in ({}, NOT)
    ),
    *(({"modal": modal}, ASK) for modal in (c.CAN, c.HAVE_TO, c.WANT_TO, c.MAY, c.WOULD_LIKE)),
    *(({"modal": modal}, SAY) for modal in (c.MUST, c.SHOULD, c.WOULD_LIKE, c.WOULD_LIKE)),
    *(({"modal": modal, **NOT}, SAY) for modal in (c.MUST_NOT, c.SHOULD)),
    *(({"tense": "future", **no}, SAY) for no in ({}, {}, NOT)),
    ({"tense": "future"}, ASK),
    ({"modal": c.WANT_TO, "contracted": False, **NOT}, SAY),
    ({"modal": c.CAN, "contracted": False, **NOT}, SAY),
    ({"tense": "future", "contracted": False}, SAY),
]
MODAL_PAST: list[Form] = [
    *(
        ({"modal": modal, "tense": "past"}, SAY)
        for modal in (c.ABLE_TO, c.HAVE_TO, c.WANT_TO, c.MAY)
    ),
    *(({"modal": modal, "tense": "past", **NOT}, SAY) for modal in (c.CAN, c.WANT_TO, c.HAVE_TO)),
]


def core() -> Iterator[Pair]:
    """All short sentences for beginners: thirsty, hungry, tired, done, cold."""
    for predicate in p.CORE_STATES:
        for subject in BEGINNERS:
            for options, how in [*PRESENT, *PAST, *IN_FULL]:
                yield say(Clause(subject, predicate, **options), how)
    for predicate in (p.VERY_THIRSTY, p.VERY_HUNGRY, p.AFRAID, p.RIGHT, p.VERY_TIRED):
        for subject in lex.PRONOUNS:
            for options, how in PRESENT:
                yield say(Clause(subject, predicate, **options), how)


def states() -> Iterator[Pair]:
    """be and have: sein with adjectives, Durst haben, mir ist kalt; nicht before adjectives, kein
    instead of ein."""
    forms = [*PRESENT, *PRESENT, *PAST, *IN_FULL]
    yield from combine("needs", 1000, lex.ANYONE, p.NEEDS, forms)
    yield from combine("feelings", 1500, lex.ANYONE, p.FEELINGS, forms)
    yield from combine(
        "being at", 550, lex.ANYONE, p.BEING_AT, [*forms, ({"tense": "future"}, SAY)]
    )
    yield from combine("owning", 900, lex.ANYONE, p.OWNING, [*PRESENT, *PAST[:1]])
    yield from combine("liking", 550, lex.ANYONE, [*p.LIKING, *p.KNOWING, *p.ENJOYING * 4], PRESENT)
    yield from combine("not", 220, lex.ADDRESSED, [*p.NEEDS, *p.PLAIN_FEELINGS], [(NOT, ASK)])


def habits() -> Iterator[Pair]:
    """Habits: the simple present, with do-support only in English."""
    yield from combine(
        "habits", 1100, lex.ANYONE, p.HABITS, [*PRESENT, *PRESENT, PAST[0], IN_FULL[1]]
    )
    usual = [
        *p.HABITS,
        *p.ON_ONES_OWN * 2,
        *p.GOING.values(),
        *p.TRAVELLING,
        *p.MEDIA,
        *p.HOUSEWORK,
        *p.MEETING[::3],
    ]
    for subject, predicate, often in draw("often", 650, lex.ANYONE, usual, lex.HOW_OFTEN):
        if compatible(subject, predicate) and predicate not in NOT_OFTEN:
            yield c.statement(Clause(subject, predicate, often=often))
    regular = [*p.SCHEDULED * 3, *p.GOING.values(), *p.MEDIA, *p.MEETING[::9]]
    yield from combine(
        "regularly", 550, lex.ANYONE, regular, [({}, SAY), ({}, ASK), ({}, FRONT)], lex.REGULARLY
    )


def doing() -> Iterator[Pair]:
    """Current actions: the English progressive is the German present; separable prefixes are
    last."""
    now = [("right now", "gerade"), c.NONE, c.NONE]
    yield from combine("doing", 1600, lex.ANYONE, p.ACTIONS, PROGRESSIVE, now)
    yield from combine("looking forward", 70, lex.ANYONE, p.LOOKING_FORWARD, PROGRESSIVE)
    forms: list[Form] = [*PROGRESSIVE, ({"tense": "progressive"}, FRONT)]
    yield from combine(
        "arranged", 1500, lex.ANYONE, p.ACTIONS, forms, [*lex.COMING, *lex.ON_WEEKDAYS]
    )


def past() -> Iterator[Pair]:
    """The English past is the German perfect: haben or sein with the participle at the end."""
    yield from combine("past", 1000, lex.ANYONE, p.DOINGS, PAST)
    yield from combine(
        "past times", 1400, lex.ANYONE, p.DOINGS, [*PAST, ({"tense": "past"}, FRONT)], lex.GONE
    )
    yield from combine("perfect", 700, lex.ANYONE, p.ACTIONS, PERFECT)
    new_to_one = [*p.TRAVELLING, *p.EATING, *p.PLAYING * 2, *p.CONSUMING]
    yield from combine(
        "never", 200, lex.ANYONE, new_to_one, [({"tense": "perfect", "already": "never"}, SAY)]
    )


def modals() -> Iterator[Pair]:
    """können, müssen, wollen, dürfen, sollen, möchte: and werden with the unsplit infinitive at the
    end."""
    what = [*p.ACTIONS, *p.EATING, *p.DRINKING, *p.SPEAKING, *p.LEARNING, *p.PLAYING * 3]
    yield from combine("modals", 2300, lex.ANYONE, what, [*MODAL, *MODAL_PAST])
    yield from combine("modal times", 600, lex.ANYONE, what, MODAL, lex.COMING)
    for subject, predicate, modal in draw(
        "may I", 280, [lex.I, lex.WE], what, [c.MAY_I, c.SHALL, c.CAN]
    ):
        if compatible(subject, predicate):
            yield c.question(Clause(subject, predicate, modal=modal))


def commands() -> Iterator[Pair]:
    """Commands to du, to ihr and to Sie, and let's."""
    addressed = [lex.YOU, lex.YOU, lex.YOU_CHILDREN, lex.MR_WEBER, lex.MRS_KLEIN]
    for what in p.ON_ONES_OWN:
        for subject in addressed[1:4]:
            yield c.command(Clause(subject, what))
    whats = [*p.ACTIONS, *p.ASKING]
    for subject, predicate, no, please in draw(
        "do", 850, addressed, whats, [False, False, True], [False, True]
    ):
        if compatible(subject, predicate) and not (no and predicate is p.HURRY):
            yield c.command(Clause(subject, predicate, negative=no), please=please)
    for predicate, time in draw("let us", 170, p.ACTIONS, [c.NONE, *lex.COMING[:4]]):
        if compatible(lex.WE, predicate):
            yield _let_us(Clause(lex.WE, predicate, time=time))


def _let_us(clause: Clause) -> Pair:
    en = f"let's {clause.predicate.english('1p')} {clause.time[0]}".strip()
    return c.sentence(en, f"lass uns {c.german_infinitive(clause, zu=False)}", "!", clause.vocative)


def jobs() -> Iterator[Pair]:
    """Jobs: no article in German, kein if negated, -in if feminine."""
    men, women = ([who for who in lex.ANYONE if who.person == person] for person in ("3m", "3f"))
    for people, sex in ((men, 0), (women, 1)):
        for subject, job, (options, how) in draw(
            f"jobs {sex}", 160, people, lex.JOBS, [*PRESENT, PAST[0]]
        ):
            is_a = Predicate("be", "sein", Phrase(job[sex], "job"), "nom", aspect="state")
            if job[0].en not in subject.en:
                yield say(Clause(subject, is_a, **options), how)
