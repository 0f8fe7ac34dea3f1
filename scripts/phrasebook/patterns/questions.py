"""Questions with wo, wohin, woher, wann, warum, wie, was, wer, wen, wem, welcher."""

from __future__ import annotations

from collections.abc import Iterator

from phrasebook import clause as c
from phrasebook import lexicon as lex
from phrasebook import predicates as p
from phrasebook.clause import Clause, Pair, Predicate, Tense
from phrasebook.german import noun_phrase
from phrasebook.patterns.forms import NOT, Options
from phrasebook.sampling import draw
from phrasebook.sense import compatible, fits
from phrasebook.words import Participant, Phrase

WHEN, WHY = ("when", "wann"), ("why", "warum")
Gap = tuple[Pair, Predicate]  # a question word and the predicate without the part that it asks for
GAPS: list[Gap] = [
    (("where", "wo"), Predicate("live", "wohnen", aspect="habit")),
    (("where", "wo"), Predicate("work", "arbeiten", aspect="habit")),
    (("where", "woher"), Predicate("come from", "kommen", aspect="habit")),
    (("where", "wo"), Predicate("be", "sein", aspect="state")),
    (("where", "wohin"), Predicate("go", "gehen")),
    (("where", "wohin"), Predicate("drive", "fahren")),
    (("where", "wohin"), Predicate("fly", "fliegen")),
    (("what", "was"), Predicate("do", "machen")),
    (("what", "was"), Predicate("eat", "essen")),
    (("what", "was"), Predicate("drink", "trinken")),
    (("what", "was"), Predicate("read", "lesen")),
    (("what", "was"), Predicate("buy", "kaufen")),
    (("what", "was"), Predicate("write", "schreiben")),
    (("what", "was"), Predicate("look for", "suchen")),
    (("who", "wen"), Predicate("call", "an|rufen")),
    (("who", "wen"), Predicate("visit", "besuchen")),
    (("who", "wen"), Predicate("invite", "ein|laden")),
    (("who", "wen"), Predicate("pick up", "ab|holen")),
    (("who", "wem"), Predicate("help", "helfen")),
    (("who", "wem"), Predicate("answer", "antworten")),
]


def now(predicate: Predicate) -> Tense:
    """Return the English present tense: progressive for actions."""
    return "progressive" if predicate.aspect == "action" else "present"


def asked_for() -> Iterator[Pair]:
    """The question word replaces the part that it asks for."""
    for subject, (wh, what), when in draw(
        "wh", 560, lex.ANYONE, GAPS, ["now", "past", "future", "wants"]
    ):
        if when == "wants" and what.aspect == "action":
            yield c.question(Clause(subject, what, modal=c.WANT_TO), wh)
        elif when != "wants" and compatible(subject, what):
            yield c.question(Clause(subject, what, now(what) if when == "now" else when), wh)


def when_and_why() -> Iterator[Pair]:
    """wann and warum before a complete clause."""
    for subject, predicate in draw("when", 260, lex.ANYONE, p.ACTIONS):
        if compatible(subject, predicate):
            yield c.question(Clause(subject, predicate, "progressive"), WHEN)
    for subject, predicate in draw("when past", 200, lex.ANYONE, p.DOINGS):
        if compatible(subject, predicate):
            yield c.question(Clause(subject, predicate, "past"), WHEN)
    others = [who for who in lex.ANYONE if who.person not in ("1s", "1p")]
    for subject, predicate, no in draw(
        "why", 280, others, [*p.NEEDS, *p.PLAIN_FEELINGS], [{}, NOT]
    ):
        yield c.question(Clause(subject, predicate, **no), WHY)
    modals = [c.CAN, c.HAVE_TO, c.WANT_TO]
    for subject, predicate, modal, no in draw(
        "why modals", 280, others, p.ACTIONS, modals, [{}, NOT]
    ):
        if compatible(subject, predicate):
            yield c.question(Clause(subject, predicate, modal=modal, **no), WHY)


def who_does() -> Iterator[Pair]:
    """wer as the subject: no do-support in English."""
    who = Participant("3m", "who", "who", ("wer", "wen", "wem"))
    forms: list[Options] = [
        {"tense": "past"},
        {"tense": "future"},
        {"tense": "progressive"},
        {"modal": c.WANT_TO},
        {"modal": c.CAN},
    ]
    doings = [(what, options) for what in p.ACTIONS for options in forms] + [
        (what, forms[0]) for what in p.EVENTS * 2
    ]
    for ((what, options),) in draw("who", 330, doings):
        if not (what.reflexive or what.owned or what.object is lex.HE):
            clause = Clause(who, what, **options, contracted=False)
            yield c.sentence(c.english_clause(clause), c.german_clause(clause), "?", what.vocative)


def which() -> Iterator[Pair]:
    """welcher agrees with its noun."""
    choices = [
        (lex.GARMENTS, Predicate("wear", "tragen")),
        (lex.READING, Predicate("read", "lesen")),
        (lex.DISHES, Predicate("eat", "essen")),
        (lex.BELONGINGS, Predicate("buy", "kaufen")),
    ]
    for things, what in choices:
        for subject, item, wish in draw(f"which {what.en}", 70, lex.ANYONE, things, [True, False]):
            wh = (f"which {item.en}", noun_phrase("welch", item.de, "acc"))
            clause = (
                Clause(subject, what, modal=c.WOULD_LIKE) if wish else Clause(subject, what, "past")
            )
            if fits(item, subject.person):
                yield c.question(clause, wh)


def whose() -> Iterator[Pair]:
    """wem gehört, with dieser in the nominative."""
    for item in [*lex.BELONGINGS, *lex.VEHICLES, *lex.GARMENTS, *lex.ANIMALS[:3]]:
        yield c.sentence(
            f"whose {item.en} is this", f"wem gehört {Phrase(item, 'this').de('nom')}", "?"
        )
