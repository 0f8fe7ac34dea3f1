"""Clock times, timetables, weekdays, months, years, ages, durations, weather."""

from __future__ import annotations

from collections.abc import Iterator

from phrasebook import clause as c
from phrasebook import english
from phrasebook import lexicon as lex
from phrasebook import predicates as p
from phrasebook.clause import Clause, Pair, Predicate
from phrasebook.numerals import clock, english_number, german_number
from phrasebook.patterns.forms import ASK, FRONT, SAY, Form, combine, say
from phrasebook.sampling import draw
from phrasebook.sense import CHILDREN, compatible
from phrasebook.words import Phrase, thing

# Full and half hours twice: they are the most common.
CLOCK = [
    clock(hour, minute)
    for hour in range(1, 13)
    for minute in (0, 0, 30, 30, 15, 45, 5, 10, 20, 40, 50, 55)
]
AT = [(f"at {en}", f"um {de}") for en, de in CLOCK]
TRAIN = thing("train", "Zug", "m", "Züge")
PLANE = thing("plane", "Flugzeug", "n", "Flugzeuge")
FILM = thing("film", "Film", "m", "Filme")
LESSON = thing("lesson", "Unterricht", "m")
CONCERT = thing("concert", "Konzert", "n", "Konzerte")
SHOP = thing("shop", "Laden", "m", "Läden")
TIMETABLE = [
    *((Phrase(item), p.verb("arrive", "an|kommen")) for item in (TRAIN, lex.BUS, PLANE)),
    *((Phrase(item), p.verb("leave", "ab|fahren")) for item in (TRAIN, lex.BUS)),
    *((Phrase(item), p.verb("begin", "beginnen")) for item in (FILM, LESSON, CONCERT)),
    *((Phrase(item), p.verb("end", "enden")) for item in (FILM, LESSON, CONCERT)),
    (Phrase(SHOP), p.verb("open", "öffnen")),
    (Phrase(SHOP), p.verb("close", "schließen")),
]
SEASONS = [
    ("in summer", "im Sommer"),
    ("in winter", "im Winter"),
    ("in spring", "im Frühling"),
    ("in autumn", "im Herbst"),
]
IN_MONTHS = [*((f"in {en}", f"im {de}") for en, de in lex.MONTHS), *SEASONS]
YEARS = [(f"in {year}", f"im Jahr {year}") for year in range(1990, 2025)]


def telling() -> Iterator[Pair]:
    """Es ist halb drei."""
    for en, de in CLOCK:
        yield c.sentence(f"it's {en}", f"es ist {de}")
        yield c.sentence(f"it's already {en}", f"es ist schon {de}")
        yield c.sentence(f"is it already {en}", f"ist es schon {de}", "?")
        yield c.sentence(f"it isn't {en} yet", f"es ist noch nicht {de}")


def appointments() -> Iterator[Pair]:
    """um with clock times in the middle field, after the day."""
    what = [*p.SCHEDULED * 2, *p.GOING.values(), *p.MEETING[::5]]
    forms: list[Form] = [
        ({"tense": "progressive"}, SAY),
        ({"tense": "past"}, SAY),
        ({"tense": "past"}, ASK),
        ({"modal": c.HAVE_TO}, SAY),
        ({"modal": c.WANT_TO}, SAY),
        ({"modal": c.CAN}, ASK),
    ]
    yield from combine("at", 800, lex.ANYONE, what, forms, AT)
    on_monday_at = [
        (f"{day[0]} {at[0]}", f"{day[1]} {at[1]}") for day in lex.ON_WEEKDAYS for at in AT
    ]
    yield from combine(
        "on Monday at", 260, lex.ANYONE, what, [({"tense": "progressive"}, SAY)], on_monday_at
    )
    daily = [
        (f"{at[0]} every {en}", f"jeden {de} {at[1]}")
        for en, de in (("day", "Tag"), lex.WEEKDAYS[0])
        for at in AT
    ]
    yield from combine("every day at", 260, lex.ANYONE, p.SCHEDULED, [({}, SAY)], daily)


def timetable() -> Iterator[Pair]:
    """Arrivals, departures, beginnings and ends at clock times."""
    for (what, does), time, past in draw("timetable", 340, TIMETABLE, AT, [False, False, True]):
        yield c.statement(Clause(what, does, "past" if past else "present", time=time))
    for what, does in TIMETABLE:
        for time in (c.NONE, *lex.COMING[:3], *lex.ON_WEEKDAYS[:2]):
            yield c.question(Clause(what, does, time=time), ("when", "wann"))
        for time in (c.NONE, *lex.GONE[:1]):
            yield c.question(Clause(what, does, "past", time=time), ("when", "wann"))


def calendar() -> Iterator[Pair]:
    """Weekdays with am, months and seasons with im."""
    for en, de in lex.WEEKDAYS:
        yield c.sentence(f"today is {en}", f"heute ist {de}")
        yield c.sentence(f"tomorrow is {en}", f"morgen ist {de}")
        yield c.sentence(f"yesterday was {en}", f"gestern war {de}")
        yield c.sentence(f"is today {en}", f"ist heute {de}", "?")
        yield c.sentence(f"is tomorrow {en}", f"ist morgen {de}", "?")
    singular = [who for who in lex.ANYONE if who.person in ("1s", "2s", "3m", "3f", "Sie")]
    for subject, (month, monat) in draw("birthday", 150, singular, lex.MONTHS):
        whose = english.PRONOUNS[subject.person][2] if subject.is_pronoun else f"{subject.en}'s"
        has = Clause(
            subject,
            Predicate("have", "haben", p.silent("Geburtstag", "m")),
            time=("", f"im {monat}"),
        )
        yield c.sentence(f"{whose} birthday is in {month}", c.german_clause(has), ".", has.vocative)
    forms: list[Form] = [({"tense": tense}, SAY) for tense in ("progressive", "past", "future")]
    yield from combine(
        "months",
        420,
        lex.ANYONE,
        p.TRAVELLING,
        [*forms, ({"tense": "progressive"}, FRONT)],
        IN_MONTHS,
    )
    yield from combine(
        "years", 200, lex.NOT_ADDRESSED, p.TRAVELLING, [({"tense": "past"}, SAY)], YEARS
    )


def ages() -> Iterator[Pair]:
    """Numbers in ages; seit with the dative and the present tense for durations."""
    forms: list[Form] = [({}, SAY), ({}, SAY), ({}, ASK), ({"tense": "past"}, SAY)]
    for subject, n, (options, how) in draw("ages", 480, lex.ANYONE, range(5, 100), forms):
        years = (f"{english_number(n)} years old", f"{german_number(n)} Jahre alt")
        if subject not in CHILDREN or n < 16:
            yield say(Clause(subject, Predicate("be", "sein", complement=years), **options), how)
    for subject in lex.ANYONE:
        yield c.question(Clause(subject, Predicate("be", "sein")), ("how old", "wie alt"))
    for subject, what, n in draw(
        "since", 210, lex.ANYONE, p.LIVING, [2, 3, 4, 5, 6, 7, 8, 10, 12, 20]
    ):
        if compatible(subject, what):
            since = (f"for {english_number(n)} years", f"seit {german_number(n)} Jahren")
            en, de = Clause(subject, what, "perfect", time=since), Clause(subject, what, time=since)
            yield c.sentence(c.english_clause(en), c.german_clause(de), ".", de.vocative)


def weather() -> Iterator[Pair]:
    """The impersonal es, which follows the verb if a time or place is first."""
    here = [("today", "heute"), ("here", "hier"), ("outside", "draußen")]
    for en, de in (("raining", "regnet"), ("snowing", "schneit")):
        yield c.sentence(f"it's {en}", f"es {de}")
        yield c.sentence(f"is it {en}", f"{de} es", "?")
        for place in here:
            yield c.sentence(f"it's {en} {place[0]}", f"{place[1]} {de} es")
            yield c.sentence(f"is it {en} {place[0]}", f"{de} es {place[1]}", "?")
    for is_, ist, times in (
        ("it's", "ist", here),
        ("it was", "war", [*lex.GONE, *lex.ON_WEEKDAYS]),
    ):
        for en, de in (("cold", "kalt"), ("warm", "warm"), ("hot", "heiß")):
            for time in times:
                yield c.sentence(f"{is_} {en} {time[0]}", f"{time[1]} {ist} es {de}")
                asked = "is it" if is_ == "it's" else "was it"
                yield c.sentence(f"{asked} {en} {time[0]}", f"{ist} es {time[1]} {de}", "?")
