"""What people do, are and have: predicates of verbs with objects that make sense."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from phrasebook import lexicon as lex
from phrasebook.clause import NONE, Pair, Predicate
from phrasebook.german import Case, Gender, Noun
from phrasebook.lexicon import THINGS, items
from phrasebook.words import Adjective, Participant, Phrase, Thing, thing

Object = Phrase | Participant


def the(noun: Thing) -> Phrase:
    """Return `the` thing."""
    return Phrase(noun, "the")


def a(noun: Thing, quality: Adjective | None = None) -> Phrase:
    """Return `a` thing, optionally with an adjective."""
    return Phrase(noun, "a", quality)


def own(noun: Thing) -> Phrase:
    """Return a thing with a possessive that refers to the subject."""
    return Phrase(noun, "own")


def some(noun: Thing) -> Phrase:
    """Return a mass noun without an article."""
    return Phrase(noun, "")


def many(noun: Thing) -> Phrase:
    """Return a plural without an article."""
    return Phrase(noun, "", plural=True)


def silent(noun: str, gender: Gender, quality: Adjective | None = None) -> Phrase:
    """Return a noun that only the German idiom has: Durst."""
    return Phrase(Thing("", Noun(noun, gender)), "", quality)


def being(quality: Adjective, *, very: bool = False) -> Predicate:
    """Return `be` with an adjective, optionally with very."""
    en, de = (f"very {quality.en}", f"sehr {quality.de}") if very else (quality.en, quality.de)
    return Predicate("be", "sein", complement=(en, de), aspect="state")


def verb(en: str, de: str, complement: Pair = NONE) -> Predicate:
    """Return an action without an object."""
    return Predicate(en, de, complement=complement)


def each(
    en: str,
    de: str,
    objects: Iterable[Object],
    aspect: Literal["habit", "action", "state"] = "action",
    *,
    case: Case = "acc",
    prep: str = "",
) -> list[Predicate]:
    """Return one predicate for each object of a verb."""
    return [Predicate(en, de, item, case, prep, aspect=aspect) for item in objects]


# --- states
# -----------------------------------------------------------------------------------------------------------  # noqa: E501
#

GREAT = Adjective("very", "groß")
MUSIC = thing("music", "Musik", "f")
THIRSTY = Predicate("be thirsty", "haben", silent("Durst", "m"), aspect="state")
HUNGRY = Predicate("be hungry", "haben", silent("Hunger", "m"), aspect="state")
VERY_THIRSTY = Predicate("be very thirsty", "haben", silent("Durst", "m", GREAT), aspect="state")
VERY_HUNGRY = Predicate("be very hungry", "haben", silent("Hunger", "m", GREAT), aspect="state")
AFRAID = Predicate("be afraid", "haben", silent("Angst", "f"), aspect="state")
LUCKY = Predicate("be lucky", "haben", silent("Glück", "n"), aspect="state")
RIGHT = Predicate("be right", "haben", complement=("", "recht"), aspect="state")
COLD = Predicate("be cold", "sein", complement=("", "kalt"), feeling=True, aspect="state")
WARM = Predicate("be warm", "sein", complement=("", "warm"), feeling=True, aspect="state")
FEELS_SICK = Predicate(
    "feel sick", "sein", complement=("", "schlecht"), feeling=True, aspect="state"
)
TIRED, HAPPY, SAD, SICK = (being(quality) for quality in lex.MOODS[:4])
VERY_TIRED = being(lex.MOODS[0], very=True)
EXCITED, DISAPPOINTED, BUSY = (
    being(q) for q in lex.MOODS if q.en in ("excited", "disappointed", "busy")
)
DONE, READY, ALONE = (being(quality) for quality in lex.SITUATIONS[:3])
HAS_TIME = Predicate("have", "haben", some(thing("time", "Zeit", "f")), aspect="state")
HAS_MONEY = Predicate("have", "haben", some(thing("money", "Geld", "n")), aspect="state")
HEADACHE = Predicate(
    "have a headache", "haben", many(thing("", "", "m", "Kopfschmerzen")), aspect="state"
)

CORE_STATES = [THIRSTY, HUNGRY, TIRED, DONE, COLD, HAPPY, READY, SICK, SAD, ALONE]
NEEDS = [
    THIRSTY,
    HUNGRY,
    VERY_THIRSTY,
    VERY_HUNGRY,
    AFRAID,
    LUCKY,
    RIGHT,
    COLD,
    WARM,
    FEELS_SICK,
    HAS_TIME,
    HAS_MONEY,
    HEADACHE,
]
PLAIN_FEELINGS = [being(quality) for quality in [*lex.MOODS, *lex.CHARACTER]]
FEELINGS = [
    *PLAIN_FEELINGS,
    *(being(quality, very=True) for quality in [*lex.MOODS, *lex.CHARACTER]),
    *map(being, lex.SITUATIONS),
]
GOOD_NEWS = [
    LUCKY,
    RIGHT,
    HAS_TIME,
    HAPPY,
    DONE,
    READY,
    being(lex.MOODS[4]),
    *map(being, lex.SITUATIONS[5:8]),
]
BEING_AT = [
    Predicate("be", "sein", complement=where, aspect="state") for _, where in lex.PLACES.values()
]
OWNING = [
    *each("have", "haben", map(a, [*lex.ANIMALS, *lex.BELONGINGS, *lex.VEHICLES]), "state"),
    *each(
        "have", "haben", (a(item, color) for item in lex.GARMENTS for color in lex.COLORS), "state"
    ),
    *each(
        "have",
        "haben",
        (a(item, q) for item in lex.VEHICLES for q in (lex.NEW, lex.OLD, lex.RED)),
        "state",
    ),
    *each(
        "have", "haben", (a(item, q) for item in lex.ANIMALS for q in (lex.BIG, lex.SMALL)), "state"
    ),
    *each("have", "haben", map(a, items("brother sister son daughter")), "state"),
    *each(
        "need",
        "brauchen",
        map(a, [*lex.BELONGINGS, *lex.FURNITURE, *lex.GARMENTS, *lex.DISHWARE]),
        "state",
    ),
    *each("need", "brauchen", map(a, items("flat room car bike")), "state"),
]
LIKING = [
    *each("like", "mögen", map(some, [*lex.FOOD, *lex.DRINKS]), "state"),
    *each("like", "mögen", map(many, [*lex.ANIMALS, *lex.DISHES[:8]]), "state"),
    *each("like", "mögen", map(own, items("teacher boss neighbour")), "state"),
]
KNOWING = [
    *each("know", "kennen", lex.OBJECTS, "state"),
    *each(
        "know", "kennen", (Phrase(item, "this") for item in items("man woman boy girl")), "state"
    ),
    *each("understand", "verstehen", lex.OBJECTS, "state"),
    *each("love", "lieben", lex.OBJECTS, "state"),
]
ENJOYING = [
    Predicate(
        "be interested in", "interessieren", some(noun), prep="für", reflexive=True, aspect="state"
    )
    for noun in (MUSIC, thing("art", "Kunst", "f"), thing("politics", "Politik", "f"))
]

# --- habits
# -----------------------------------------------------------------------------------------------------------  # noqa: E501
#

EATING = each("eat", "essen", map(some, lex.FOOD), "habit")
DRINKING = each("drink", "trinken", map(some, lex.DRINKS), "habit")
LIVING = [
    Predicate(en, de, complement=(f"in {city}", f"in {stadt}"), aspect="habit")
    for en, de in (("live", "wohnen"), ("work", "arbeiten"))
    for city, stadt in lex.CITIES
]
ORIGIN = [
    Predicate("come", "kommen", complement=(f"from {en}", f"aus {de}"), aspect="habit")
    for en, de in lex.COUNTRIES
]
LANGUAGES = [some(thing(en, de, "n")) for en, de in lex.LANGUAGES]
SPEAKING = each("speak", "sprechen", LANGUAGES, "habit")
LEARNING = each("learn", "lernen", LANGUAGES)
PLAYING = [Predicate("play", "spielen", complement=game, aspect="habit") for game in lex.GAMES]
HABITS = [
    *EATING,
    *DRINKING,
    *LIVING,
    *ORIGIN,
    *SPEAKING,
    *each("understand", "verstehen", LANGUAGES, "habit"),
    *PLAYING,
]

# --- actions
# ----------------------------------------------------------------------------------------------------------  # noqa: E501
#

HOMEWORK = Phrase(
    thing("homework", "Hausaufgabe", "f", "Hausaufgaben", "homework"), "own", plural=True
)
SHOES = Phrase(THINGS["shoe"], "own", plural=True)
WORK, SLEEP, COOK = verb("work", "arbeiten"), verb("sleep", "schlafen"), verb("cook", "kochen")
COME_ALONG = verb("come along", "mit|kommen")
GET_UP = verb("get up", "auf|stehen")
DRESS = Predicate("get dressed", "an|ziehen", reflexive=True)
HURRY = Predicate("hurry up", "beeilen", reflexive=True)
REST = Predicate("rest", "aus|ruhen", reflexive=True)
WALK = verb("go for a walk", "gehen", ("", "spazieren"))
LISTEN = Predicate("listen to", "hören", some(MUSIC))
ON_ONES_OWN = [
    GET_UP,
    COME_ALONG,
    WORK,
    SLEEP,
    COOK,
    REST,
    HURRY,
    WALK,
    LISTEN,
    verb("do the shopping", "ein|kaufen"),
    verb("come back", "zurück|kommen"),
    verb("watch TV", "fern|sehen"),
    verb("leave", "weg|gehen"),
    verb("wash up", "ab|waschen"),
    verb("dance", "tanzen"),
    verb("sing", "singen"),
    verb("wait", "warten"),
    verb("take a shower", "duschen"),
    verb("study", "lernen"),
    verb("have breakfast", "frühstücken"),
    verb("go shopping", "gehen", ("", "einkaufen")),
    verb("go swimming", "gehen", ("", "schwimmen")),
    DRESS,
    Predicate("do", "machen", HOMEWORK),
]
# Actions that can have a fixed time.
SCHEDULED = [what for what in ON_ONES_OWN if what not in (HURRY, DRESS)]
GOING = {name: verb("go", "gehen", whereto) for name, (whereto, _) in lex.PLACES.items()}
TRAVELLING = [
    *(verb("fly", "fliegen", (f"to {en}", f"nach {de}")) for en, de in lex.CITIES),
    *(verb("drive", "fahren", (f"to {en}", f"nach {de}")) for en, de in lex.CITIES),
    *(verb("travel", "reisen", (f"to {en}", f"nach {de}")) for en, de in lex.COUNTRIES),
]
CONSUMING = [
    *each("eat", "essen", map(a, lex.DISHES)),
    *each("drink", "trinken", map(the, lex.DRINKS)),
    *each("cook", "kochen", map(some, items("soup rice meat"))),
    *each("bake", "backen", map(a, items("cake pizza"))),
]
MEDIA = [
    *each("read", "lesen", map(the, lex.READING)),
    *each("read", "lesen", map(a, lex.READING)),
    *each("write", "schreiben", map(a, items("book letter story email"))),
]
HOUSEWORK = [
    *each("open", "öffnen", map(the, lex.OPENINGS)),
    *each("close", "zu|machen", map(the, lex.OPENINGS)),
    *each("turn {} on", "ein|schalten", map(the, items("lamp computer"))),
    *each("turn {} off", "aus|schalten", map(the, items("lamp computer"))),
    *each("clean", "putzen", map(the, [*lex.ROOMS, THINGS["window"]])),
    *each("tidy {} up", "auf|räumen", map(own, items("room flat kitchen"))),
    *each("feed", "füttern", map(the, lex.ANIMALS)),
    *each("wash", "waschen", map(own, items("car shirt sweater dress"))),
    *each("repair", "reparieren", map(own, items("car bike camera watch"))),
]
DRESSING = [
    *each(
        "put {} on", "an|ziehen", [*map(own, items("coat jacket shirt dress skirt sweater")), SHOES]
    ),
    *each(
        "take {} off",
        "aus|ziehen",
        [*map(own, items("coat jacket shirt dress skirt sweater")), SHOES],
    ),
    *each("try {} on", "an|probieren", map(the, [*lex.GARMENTS, lex.TROUSERS])),
    *each("wear", "tragen", (a(item, color) for item in lex.GARMENTS for color in lex.COLORS)),
]
BUYING = [
    *each(
        "buy",
        "kaufen",
        map(a, [*lex.GARMENTS, *lex.BELONGINGS, *lex.VEHICLES, *lex.FURNITURE, *lex.GIFTS]),
    ),
    *each(
        "buy",
        "kaufen",
        (a(item, q) for item, q in lex.SAID_OF if q in (lex.NEW, lex.CHEAP, lex.RED)),
    ),
    *each("buy", "kaufen", map(many, [THINGS["flower"], *lex.DISHES[:8]])),
]
SHOPPING = [
    *BUYING,
    *each(
        "sell", "verkaufen", map(own, [*lex.VEHICLES, *lex.FURNITURE, *items("house flat camera")])
    ),
    *each("look for", "suchen", map(own, [*lex.BELONGINGS, *lex.GARMENTS, lex.GLASSES])),
    *each("pay for", "bezahlen", map(the, items("coffee tea pizza cake coat jacket"))),
    *each("bring", "mit|bringen", map(a, [*lex.GIFTS, *items("cake cup bottle camera ball")])),
    *each("carry", "tragen", map(the, items("bag suitcase table chair"))),
]
PEOPLE: list[Object] = [*lex.OBJECTS, *map(own, [*lex.FAMILY, *lex.ACQUAINTANCES])]
PICKING_UP = each("pick {} up", "ab|holen", PEOPLE)
MEETING = [
    *each("call", "an|rufen", PEOPLE),
    *each("visit", "besuchen", PEOPLE),
    *each("invite", "ein|laden", PEOPLE),
    *each("help", "helfen", PEOPLE, case="dat"),
    *each("meet", "treffen", PEOPLE),
    *each("wait for", "warten", PEOPLE, prep="auf"),
    *each("talk to", "sprechen", PEOPLE, case="dat", prep="mit"),
    *PICKING_UP,
]
ASKING = [
    *each("ask", "fragen", PEOPLE),
    *each("answer", "antworten", PEOPLE, case="dat"),
    *each("thank", "danken", PEOPLE, case="dat"),
]
GIFTS = {
    ("give", "geben"): [*lex.GIFTS, *lex.BELONGINGS, *items("book letter newspaper magazine")],
    ("show", "zeigen"): [*lex.BELONGINGS, *items("book letter newspaper car flat")],
    ("send", "schicken"): items("letter email present book picture"),
    ("lend", "leihen"): items("bag umbrella camera pen suitcase book car bike computer"),
}
RECIPIENTS: list[Object] = [*lex.OBJECTS, *map(own, lex.FAMILY[:6])]
GIVING = [
    Predicate(en, de, a(item), recipient=who)
    for (en, de), things in GIFTS.items()
    for item in things
    for who in RECIPIENTS
]
LOOKING_FORWARD = [
    Predicate("look forward to", "freuen", the(noun), prep="auf", reflexive=True)
    for noun in (
        thing("weekend", "Wochenende", "n"),
        thing("party", "Party", "f"),
        thing("holiday", "Urlaub", "m"),
    )
]
# Subsampled and repeated, so that verbs with many objects do not outnumber the others.
TASKS = [
    *ON_ONES_OWN * 6,
    *GOING.values(),
    *GOING.values(),
    *TRAVELLING,
    *MEDIA,
    *HOUSEWORK * 2,
    *SHOPPING[::2],
    *MEETING[::2],
    *GIVING[::11],
    *LEARNING * 2,
]
ACTIONS = [*TASKS, *CONSUMING, *DRESSING[::2]]

# --- events, only in the past tense
# -----------------------------------------------------------------------------------

EVENTS = [
    *each("lose", "verlieren", map(own, items("bag key phone umbrella watch scarf cap"))),
    *each("find", "finden", map(own, [*lex.BELONGINGS, lex.GLASSES])),
    *each(
        "forget", "vergessen", [*map(own, items("bag key phone umbrella camera jacket")), HOMEWORK]
    ),
    *each("see", "sehen", [*lex.OBJECTS, *map(the, lex.ANIMALS), *map(own, lex.ACQUAINTANCES)]),
    *each("hear", "hören", lex.OBJECTS),
    *ASKING[::2],
    *[
        verb("wake up", "auf|wachen"),
        verb("fall asleep", "ein|schlafen"),
        verb("arrive", "an|kommen"),
        verb("win", "gewinnen"),
        verb("stay", "bleiben", ("at home", "zu Hause")),
        verb("move", "um|ziehen"),
    ]
    * 3,
]
DOINGS = [*ACTIONS, *EVENTS, *EVENTS]
