"""Questions with wo, wohin, woher, wann, warum, wie, was, wer, wen, wem, welcher."""

from __future__ import annotations

from collections.abc import Iterator

from nmt.data.sources.phrasebook import clause as c
from nmt.data.sources.phrasebook import lexicon as lex
from nmt.data.sources.phrasebook import predicates as p
from nmt.data.sources.phrasebook.clause import Clause, Pair, Predicate
from nmt.data.sources.phrasebook.patterns.people import compatible
from nmt.data.sources.phrasebook.sampling import draw
from nmt.data.sources.phrasebook.words import Phrase, Who

WHY = ("why", "warum")
ABOUT_WHERE: list[tuple[Pair, Predicate]] = [
    (("where", "wo"), Predicate("live", "wohnen")),
    (("where", "wo"), Predicate("work", "arbeiten")),
    (("where", "wo"), Predicate("be", "sein")),
    (("where", "wohin"), Predicate("go", "gehen")),
    (("where", "wohin"), Predicate("drive", "fahren")),
    (("where", "wohin"), Predicate("fly", "fliegen")),
    (("where", "woher"), Predicate("come from", "kommen")),
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
SIMPLE = ("live", "work", "come from")


def asked_for() -> Iterator[Pair]:
    """The question word takes the place of what is asked for."""
    for subject, (wh, predicate), tense in draw("wh", 520, lex.ANYONE, ABOUT_WHERE, ["now", "past", "future", "modal"]):
        if tense == "modal":
            if predicate.en not in (*SIMPLE, "be"):
                yield c.question(Clause(subject, predicate, modal=c.WANT_TO), wh)
        elif tense != "now":
            yield c.question(Clause(subject, predicate, tense), wh)
        else:
            yield c.question(Clause(subject, predicate, "present" if predicate.en in SIMPLE else "progressive"), wh)


def when_and_why() -> Iterator[Pair]:
    """Wann and warum before a whole question."""
    for subject, predicate in draw("when", 230, lex.ANYONE, p.ACTIONS):
        if compatible(subject, predicate):
            yield c.question(Clause(subject, predicate, "progressive"), ("when", "wann"))
    for subject, predicate in draw("when past", 170, lex.ANYONE, p.DOINGS):
        if compatible(subject, predicate):
            yield c.question(Clause(subject, predicate, "past"), ("when", "wann"))
    for subject, predicate, no in draw("why states", 290, lex.ANYONE, [*p.NEEDS, *p.FEELINGS], [False, True]):
        if not (no and subject.person == "1s"):
            yield c.question(Clause(subject, predicate, negative=no), WHY)
    for subject, predicate, modal, no in draw(
        "why modals", 230, lex.ANYONE, p.ACTIONS, [c.CAN, c.HAVE_TO, c.WANT_TO], [False, True]
    ):
        if compatible(subject, predicate):
            yield c.question(Clause(subject, predicate, modal=modal, negative=no), WHY)


def who_does() -> Iterator[Pair]:
    """Wer as the subject: no do in English."""
    who = Who("3m", "who", "who", ("wer", "wen", "wem"))
    for predicate, options in draw(
        "who",
        290,
        [*p.ACTIONS, *p.EVENTS],
        [{"tense": "past"}, {"tense": "future"}, {"modal": c.WANT_TO}, {"modal": c.CAN}, {"tense": "progressive"}],
    ):
        if predicate.reflexive or _owned(predicate):
            continue
        clause = Clause(who, predicate, **options, contracted=False)
        yield c.sentence(c.english_clause(clause), c.german_clause(clause), "?", predicate.call)


def _owned(predicate: Predicate) -> bool:
    return any(isinstance(part, Phrase) and part.det == "own" for part in (predicate.object, predicate.recipient))


def which() -> Iterator[Pair]:
    """Welcher agrees with its noun."""
    for things, what in ((lex.GARMENTS, "wear"), (lex.READING, "read"), (lex.DISHES, "eat"), (lex.BELONGINGS, "buy")):
        de = {"wear": "tragen", "read": "lesen", "eat": "essen", "buy": "kaufen"}[what]
        for subject, item, tense in draw(f"which {what}", 60, lex.ANYONE, things, ["wants", "past"]):
            welcher = Phrase(item, "welch")
            wh = (f"which {item.en}", _welcher(welcher))
            clause = (
                Clause(subject, Predicate(what, de), "past")
                if tense == "past"
                else Clause(subject, Predicate(what, de), modal=c.WOULD_LIKE)
            )
            yield c.question(clause, wh)


def _welcher(phrase: Phrase) -> str:
    from nmt.data.sources.phrasebook.german import noun_phrase

    return noun_phrase("welch", phrase.thing.de, "acc")
