"""Clock times, weekdays, months, ages, durations, weather, departures."""

from __future__ import annotations

from collections.abc import Iterator

from nmt.data.sources.phrasebook import clause as c
from nmt.data.sources.phrasebook import lexicon as lex
from nmt.data.sources.phrasebook import predicates as p
from nmt.data.sources.phrasebook.clause import Clause, Pair, Predicate
from nmt.data.sources.phrasebook.numbers import clock, english_number, german_number
from nmt.data.sources.phrasebook.patterns.people import ASK, SAY, compatible, say
from nmt.data.sources.phrasebook.sampling import draw
from nmt.data.sources.phrasebook.words import Phrase, thing

CLOCK = [clock(hour, minute) for hour in range(1, 13) for minute in (0, 0, 30, 30, 15, 45, 5, 10, 20, 40, 50, 55)]
AT = [(f"at {en}", f"um {de}") for en, de in CLOCK]
TRAIN = thing("train", "Zug", "m", "Züge")
BUS = thing("bus", "Bus", "m", "Busse")
PLANE = thing("plane", "Flugzeug", "n", "Flugzeuge")
FILM = thing("film", "Film", "m", "Filme")
LESSON = thing("lesson", "Unterricht", "m")
CONCERT = thing("concert", "Konzert", "n", "Konzerte")
SHOP = thing("shop", "Laden", "m", "Läden")
EVENTS = [
    *((item, Predicate("arrive", "an|kommen")) for item in (TRAIN, BUS, PLANE)),
    *((item, Predicate("leave", "ab|fahren")) for item in (TRAIN, BUS)),
    *((item, Predicate("begin", "beginnen")) for item in (FILM, LESSON, CONCERT)),
    *((item, Predicate("end", "enden")) for item in (FILM, LESSON, CONCERT)),
    *((item, Predicate(en, de)) for item in (SHOP,) for en, de in (("open", "öffnen"), ("close", "schließen"))),
]
WEATHER: list[tuple[Pair, str]] = [
    (("it's cold", "ist es kalt"), "es ist kalt"),
    (("it's warm", "ist es warm"), "es ist warm"),
    (("it's hot", "ist es heiß"), "es ist heiß"),
    (("it's raining", "regnet es"), "es regnet"),
    (("it's snowing", "schneit es"), "es schneit"),
    (("it was cold", "war es kalt"), "es war kalt"),
    (("it was warm", "war es warm"), "es war warm"),
    (("it was hot", "war es heiß"), "es war heiß"),
]


def telling() -> Iterator[Pair]:
    """Es ist halb drei."""
    for en, de in CLOCK:
        yield c.sentence(f"it's {en}", f"es ist {de}")
        yield c.sentence(f"it's already {en}", f"es ist schon {de}")
        yield c.sentence(f"is it already {en}", f"ist es schon {de}", "?")
        yield c.sentence(f"it isn't {en} yet", f"es ist noch nicht {de}")


def appointments() -> Iterator[Pair]:
    """um with clock times in the middle field."""
    forms = [({"tense": "progressive"}, SAY), ({"tense": "past"}, SAY), ({"modal": c.HAVE_TO}, SAY), ({"modal": c.WANT_TO}, SAY),
             ({}, SAY), ({"modal": c.CAN}, ASK), ({"tense": "past"}, ASK)]  # fmt: skip
    what = [*p.ALONE_ACTIONS * 2, *p.GOING, *p.MEETING[::6]]
    for subject, predicate, (options, how), time in draw("at", 870, lex.ANYONE, what, forms, AT):
        if compatible(subject, predicate):
            yield say(Clause(subject, predicate, **options, time=time), how)
    for subject, predicate, day, time in draw("on Monday at", 290, lex.ANYONE, what, lex.ON_WEEKDAYS, AT):
        if compatible(subject, predicate):
            when = (f"{day[0]} {time[0]}", f"{day[1]} {time[1]}")
            yield c.statement(Clause(subject, predicate, "progressive", time=when))
    for (item, predicate), time, past in draw("timetable", 290, EVENTS, AT, [False, False, True]):
        yield c.statement(Clause(Phrase(item), predicate, "past" if past else "present", time=time))
    for item, predicate in EVENTS:
        for tense in ("present", "past"):
            yield c.question(Clause(Phrase(item), predicate, tense), ("when", "wann"))  # type: ignore[arg-type]
            for time in lex.COMING[:2] if tense == "present" else lex.GONE[:1]:
                yield c.question(Clause(Phrase(item), predicate, tense, time=time), ("when", "wann"))  # type: ignore[arg-type]


def calendar() -> Iterator[Pair]:
    """Weekdays with am, months with im."""
    for en, de in lex.WEEKDAYS:
        yield c.sentence(f"today is {en}", f"heute ist {de}")
        yield c.sentence(f"tomorrow is {en}", f"morgen ist {de}")
        yield c.sentence(f"yesterday was {en}", f"gestern war {de}")
        yield c.sentence(f"is today {en}", f"ist heute {de}", "?")
        yield c.sentence(f"it's {en}", f"es ist {de}")
    for subject, (en, de), past in draw("birthday", 140, lex.NOT_ADDRESSED + lex.ADDRESSED, lex.MONTHS, [False]):
        if not subject.call[0] and subject.person != "2p":
            yield c.statement(
                Clause(
                    subject,
                    Predicate("have {} birthday".replace("{}", _poss(subject)), "haben", p.silent("Geburtstag", "m")),
                    time=(f"in {en}", f"im {de}"),
                )
            )
    months = [(f"in {en}", f"im {de}") for en, de in lex.MONTHS]
    seasons = [
        ("in summer", "im Sommer"),
        ("in winter", "im Winter"),
        ("in spring", "im Frühling"),
        ("in autumn", "im Herbst"),
    ]
    for subject, predicate, when, tense in draw(
        "months", 410, lex.ANYONE, p.TRAVELLING, [*months, *seasons], ["progressive", "past", "future", "front"]
    ):
        if tense == "front":
            yield c.fronted(Clause(subject, predicate, "progressive", time=when))
        else:
            yield c.statement(Clause(subject, predicate, tense, time=when))


def _poss(subject: object) -> str:
    from nmt.data.sources.phrasebook.english import PRONOUNS

    return PRONOUNS[subject.person][2]  # type: ignore[attr-defined]


def ages() -> Iterator[Pair]:
    """Numbers from two to ninety-nine in ages; seit for how long."""
    for subject, n, (options, how) in draw(
        "ages", 410, lex.ANYONE, [*range(5, 100)], [({}, SAY), ({}, SAY), ({}, ASK), ({"tense": "past"}, SAY)]
    ):
        years = (f"{english_number(n)} years old", f"{german_number(n)} Jahre alt")
        yield say(Clause(subject, Predicate("be", "sein", complement=years), **options), how)
    for subject in lex.ANYONE:
        yield c.question(Clause(subject, Predicate("be", "sein")), ("how old", "wie alt"))
    for subject, predicate, n in draw("since", 200, lex.ANYONE, p.LIVING, [2, 3, 4, 5, 6, 7, 8, 10, 12, 20]):
        clause = Clause(subject, predicate, time=(f"for {english_number(n)} years", f"seit {german_number(n)} Jahren"))
        en = Clause(subject, predicate, "perfect", time=clause.time)
        yield c.sentence(c.english_clause(en), c.german_clause(clause), ".", clause.call)
    for subject, predicate, year in draw("years", 170, lex.NOT_ADDRESSED, p.TRAVELLING, [*range(1990, 2025)]):
        yield c.statement(Clause(subject, predicate, "past", time=(f"in {year}", f"im Jahr {year}")))


def weather() -> Iterator[Pair]:
    """The impersonal es."""
    for inverted, plain in WEATHER:
        yield c.sentence(inverted[0], plain)
        past = "was" in inverted[0]
        for en, de in (
            [*lex.GONE, *lex.ON_WEEKDAYS] if past else [("today", "heute"), ("here", "hier"), ("outside", "draußen")]
        ):
            yield c.sentence(f"{inverted[0]} {en}", f"{de} {inverted[1]}")
            question = inverted[0].replace("it's ", "is it ").replace("it was ", "was it ")
            yield c.sentence(
                f"{question} {en}",
                f"{inverted[1]} {de}"
                if "net" in inverted[1] or "neit" in inverted[1]
                else f"{inverted[1].split()[0]} es {de} {inverted[1].split()[2]}",
                "?",
            )
