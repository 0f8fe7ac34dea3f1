"""What people do, are and have: verbs with the objects that make sense, as ready predicates."""

from __future__ import annotations

from collections.abc import Iterable

from nmt.data.sources.phrasebook import lexicon as lex
from nmt.data.sources.phrasebook.clause import Predicate
from nmt.data.sources.phrasebook.german import Noun
from nmt.data.sources.phrasebook.words import Phrase, Quality, Thing, thing


def the(noun: Thing) -> Phrase:
    """The thing."""
    return Phrase(noun, "the")


def a(noun: Thing, quality: Quality | None = None) -> Phrase:
    """A thing, perhaps of some quality."""
    return Phrase(noun, "a", quality)


def own(noun: Thing) -> Phrase:
    """The subject's own thing."""
    return Phrase(noun, "own")


def some(noun: Thing) -> Phrase:
    """A mass noun, without article."""
    return Phrase(noun, "")


def called(things: Iterable[Thing], *names: str) -> list[Thing]:
    """Pick things by their English names."""
    return [item for item in things if item.en in names]


def silent(noun: str, gender: str) -> Phrase:
    """A noun that only the German idiom has: Durst."""
    return Phrase(Thing("", Noun(noun, gender)), "")  # type: ignore[arg-type]


def being(quality: Quality, *, very: bool = False) -> Predicate:
    """Be of some quality, or very much so."""
    en, de = (f"very {quality.en}", f"sehr {quality.de}") if very else (quality.en, quality.de)
    return Predicate("be", "sein", complement=(en, de), aspect="state")


def verb(en: str, de: str, complement: tuple[str, str] = ("", "")) -> Predicate:
    """An action without an object."""
    return Predicate(en, de, complement=complement)


GREAT = Quality("very", "groß")

# --- states -----------------------------------------------------------------------------------------------------------

THIRSTY = Predicate("be thirsty", "haben", silent("Durst", "m"), aspect="state")
HUNGRY = Predicate("be hungry", "haben", silent("Hunger", "m"), aspect="state")
AFRAID = Predicate("be afraid", "haben", silent("Angst", "f"), aspect="state")
LUCKY = Predicate("be lucky", "haben", silent("Glück", "n"), aspect="state")
RIGHT = Predicate("be right", "haben", complement=("", "recht"), aspect="state")
VERY_THIRSTY = Predicate("be very thirsty", "haben", Phrase(Thing("", Noun("Durst", "m")), "", GREAT), aspect="state")
VERY_HUNGRY = Predicate("be very hungry", "haben", Phrase(Thing("", Noun("Hunger", "m")), "", GREAT), aspect="state")
COLD = Predicate("be cold", "sein", complement=("", "kalt"), feeling=True, aspect="state")
WARM = Predicate("be warm", "sein", complement=("", "warm"), feeling=True, aspect="state")
FEELS_SICK = Predicate("feel sick", "sein", complement=("", "schlecht"), feeling=True, aspect="state")
TIRED, HAPPY, SAD, SICK = (being(quality) for quality in lex.MOODS[:4])
DONE, READY, ALONE = (being(quality) for quality in lex.SITUATIONS[:3])
TIME = thing("time", "Zeit", "f")
FEVER = thing("fever", "Fieber", "n")
MONEY = thing("money", "Geld", "n")
HAS_TIME = Predicate("have", "haben", some(TIME), aspect="state")
HAS_MONEY = Predicate("have", "haben", some(MONEY), aspect="state")
HEADACHE = Predicate(
    "have a headache", "haben", Phrase(thing("", "", "p", "Kopfschmerzen"), "", plural=True), aspect="state"
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
FEELINGS = [
    *map(being, lex.MOODS),
    *(being(quality, very=True) for quality in lex.MOODS),
    *map(being, lex.CHARACTER),
    *(being(quality, very=True) for quality in lex.CHARACTER),
    *map(being, lex.SITUATIONS),
]
BEING_AT = [Predicate("be", "sein", complement=where, aspect="state") for _, _, where in lex.PLACES]
OWNING = [
    *(Predicate("have", "haben", a(item), aspect="state") for item in [*lex.ANIMALS, *lex.BELONGINGS, *lex.VEHICLES]),
    *(Predicate("have", "haben", a(item, colour), aspect="state") for item in lex.GARMENTS for colour in lex.COLOURS),
    *(
        Predicate("have", "haben", a(item, q), aspect="state")
        for item in lex.VEHICLES
        for q in (lex.NEW, lex.OLD, lex.RED)
    ),
    *(Predicate("have", "haben", a(item, q), aspect="state") for item in lex.ANIMALS for q in (lex.BIG, lex.SMALL)),
    *(Predicate("have", "haben", a(item), aspect="state") for item in (lex.BROTHER, lex.SISTER, lex.SON, lex.DAUGHTER)),
    Predicate("need", "brauchen", a(lex.ROOMS[1]), aspect="state"),
    *(
        Predicate("need", "brauchen", a(item), aspect="state")
        for item in [*lex.BELONGINGS, *lex.FURNITURE, *lex.GARMENTS]
    ),
    *(Predicate("need", "brauchen", a(item), aspect="state") for item in lex.DISHWARE),
]
LIKING = [
    *(Predicate("like", "mögen", some(item), aspect="state") for item in [*lex.FOOD, *lex.DRINKS]),
    *(
        Predicate("like", "mögen", Phrase(item, "", plural=True), aspect="state")
        for item in [*lex.ANIMALS, *lex.DISHES[:8]]
    ),
    *(Predicate("like", "mögen", own(item), aspect="state") for item in [lex.TEACHER, lex.BOSS, lex.NEIGHBOUR]),
]
KNOWING = [
    *(Predicate("know", "kennen", who, aspect="state") for who in lex.OBJECTS),
    *(
        Predicate("know", "kennen", Phrase(item, "this"), aspect="state")
        for item in (lex.MAN, lex.WOMAN, lex.BOY, lex.GIRL)
    ),
    *(Predicate("understand", "verstehen", who, aspect="state") for who in lex.OBJECTS),
    *(Predicate("love", "lieben", who, aspect="state") for who in lex.OBJECTS),
]
ENJOYING = [
    Predicate("be interested in", "interessieren", prep="für", reflexive=True, aspect="state", object=some(noun))
    for noun in (thing("music", "Musik", "f"), thing("art", "Kunst", "f"), thing("politics", "Politik", "f"))
]
STATES = [*NEEDS, *FEELINGS, *BEING_AT, *OWNING, *LIKING, *KNOWING, *ENJOYING]

# --- habits -----------------------------------------------------------------------------------------------------------

EATING = [Predicate("eat", "essen", some(item), aspect="habit") for item in lex.FOOD]
DRINKING = [Predicate("drink", "trinken", some(item), aspect="habit") for item in lex.DRINKS]
LIVING = [
    *(Predicate("live", "wohnen", complement=(f"in {en}", f"in {de}"), aspect="habit") for en, de in lex.CITIES),
    *(Predicate("work", "arbeiten", complement=(f"in {en}", f"in {de}"), aspect="habit") for en, de in lex.CITIES),
]
ORIGIN = [
    Predicate("come", "kommen", complement=(f"from {en}", f"aus {de}"), aspect="habit") for en, de in lex.COUNTRIES
]
SPEAKING = [
    Predicate(verb_en, verb_de, Phrase(thing(en, de, "n"), ""), aspect="habit")
    for verb_en, verb_de in (("speak", "sprechen"), ("learn", "lernen"), ("understand", "verstehen"))
    for en, de in lex.LANGUAGES
]
PLAYING = [
    Predicate("play", "spielen", complement=pair, aspect="habit")
    for pair in (
        ("football", "Fußball"), ("tennis", "Tennis"), ("the piano", "Klavier"), ("the guitar", "Gitarre"), ("chess", "Schach"),
        ("cards", "Karten"),
    )
]  # fmt: skip
HABITS = [*EATING, *DRINKING, *LIVING, *ORIGIN, *SPEAKING, *PLAYING]

# --- actions ----------------------------------------------------------------------------------------------------------

HOMEWORK = Phrase(thing("homework", "Hausaufgabe", "f", "Hausaufgaben", "homework"), "own", plural=True)
BREAKFAST = verb("have breakfast", "frühstücken")
ALONE_ACTIONS = [
    verb("get up", "auf|stehen"),
    verb("do the shopping", "ein|kaufen"),
    verb("come along", "mit|kommen"),
    verb("come back", "zurück|kommen"),
    verb("watch TV", "fern|sehen"),
    verb("leave", "weg|gehen"),
    verb("wash up", "ab|waschen"),
    verb("work", "arbeiten"),
    verb("sleep", "schlafen"),
    verb("cook", "kochen"),
    verb("dance", "tanzen"),
    verb("sing", "singen"),
    verb("wait", "warten"),
    verb("take a shower", "duschen"),
    verb("study", "lernen"),
    BREAKFAST,
    verb("go for a walk", "gehen", ("", "spazieren")),
    verb("go shopping", "gehen", ("", "einkaufen")),
    verb("go swimming", "gehen", ("", "schwimmen")),
    Predicate("get dressed", "an|ziehen", reflexive=True),
    Predicate("hurry up", "beeilen", reflexive=True),
    Predicate("rest", "aus|ruhen", reflexive=True),
    Predicate("listen to", "hören", some(thing("music", "Musik", "f"))),
    Predicate("do", "machen", HOMEWORK),
]
GOING = [Predicate("go", "gehen", complement=to) for name, to, _ in lex.PLACES]
TRAVELLING = [
    *(verb("fly", "fliegen", (f"to {en}", f"nach {de}")) for en, de in lex.CITIES),
    *(verb("drive", "fahren", (f"to {en}", f"nach {de}")) for en, de in lex.CITIES),
    *(verb("travel", "reisen", (f"to {en}", f"nach {de}")) for en, de in lex.COUNTRIES),
]
CONSUMING = [
    *(Predicate("eat", "essen", a(item)) for item in lex.DISHES),
    *(Predicate("drink", "trinken", Phrase(item, "the")) for item in lex.DRINKS),
    *(Predicate("cook", "kochen", Phrase(item, "a")) for item in called(lex.DISHES, "soup", "egg")),
    *(Predicate("bake", "backen", Phrase(item, "a")) for item in called(lex.DISHES, "cake", "pizza")),
]
MEDIA = [
    *(Predicate("read", "lesen", article(item)) for item in lex.READING for article in (the, a)),
    *(Predicate("write", "schreiben", a(item)) for item in called(lex.READING, "book", "letter", "story", "email")),
]
HOUSEWORK = [
    *(Predicate("open", "öffnen", the(item)) for item in lex.OPENINGS),
    *(Predicate("close {}", "zu|machen", the(item)) for item in lex.OPENINGS),
    *(Predicate("turn {} on", "ein|schalten", the(item)) for item in (lex.FURNITURE[2], lex.BELONGINGS[3])),
    *(Predicate("turn {} off", "aus|schalten", the(item)) for item in (lex.FURNITURE[2], lex.BELONGINGS[3])),
    *(Predicate("clean", "putzen", the(item)) for item in [*lex.ROOMS, lex.OPENINGS[1]]),
    *(Predicate("tidy {} up", "auf|räumen", own(item)) for item in called(lex.ROOMS, "room", "flat", "kitchen")),
    *(Predicate("feed", "füttern", the(item)) for item in lex.ANIMALS),
    *(
        Predicate("wash", "waschen", own(item))
        for item in [*lex.VEHICLES[:1], *called(lex.CLOTHES, "shirt", "sweater", "dress")]
    ),
    *(Predicate("repair", "reparieren", own(item)) for item in [*lex.VEHICLES, lex.BELONGINGS[3], lex.BELONGINGS[6]]),
]
DRESSING = [
    *(
        Predicate("put {} on", "an|ziehen", own(item))
        for item in called(lex.CLOTHES, *"coat jacket shirt dress skirt sweater".split())
    ),
    *(
        Predicate("take {} off", "aus|ziehen", own(item))
        for item in called(lex.CLOTHES, *"coat jacket shirt dress skirt sweater".split())
    ),
    *(Predicate("try {} on", "an|probieren", the(item)) for item in [*lex.GARMENTS, lex.TROUSERS, lex.GLASSES]),
    *(Predicate("put {} on", "an|ziehen", Phrase(lex.SHOE, "own", plural=True)) for _ in "1"),
    *(Predicate("take {} off", "aus|ziehen", Phrase(lex.SHOE, "own", plural=True)) for _ in "1"),
    *(Predicate("wear", "tragen", a(item, colour)) for item in lex.GARMENTS for colour in lex.COLOURS),
]
SHOPPING = [
    *(Predicate("buy", "kaufen", a(item)) for item in [*lex.GARMENTS, *lex.BELONGINGS, *lex.VEHICLES, *lex.FURNITURE, *lex.GIFTS]),
    *(Predicate("buy", "kaufen", a(item, q)) for things, qualities in lex.SUITS[:4] for item in things for q in qualities
      if q in (lex.NEW, lex.CHEAP, lex.BIG, lex.RED)),
    *(Predicate("buy", "kaufen", Phrase(item, "", plural=True)) for item in [*lex.GIFTS[1:], *lex.DISHES[:8]]),
    *(Predicate("sell", "verkaufen", own(item)) for item in [*lex.VEHICLES, *lex.FURNITURE, *lex.ROOMS[:2], lex.BELONGINGS[4]]),
    *(Predicate("look for", "suchen", own(item)) for item in [*lex.BELONGINGS, *lex.GARMENTS, lex.GLASSES]),
    *(Predicate("pay for", "bezahlen", the(item)) for item in [*lex.DRINKS[1:3], *lex.DISHES[7:10], *lex.GARMENTS[:3]]),
    *(Predicate("bring {}", "mit|bringen", a(item)) for item in [*lex.GIFTS, *lex.DISHWARE, *lex.DISHES[3:4], lex.BELONGINGS[4]]),
    *(Predicate("carry", "tragen", the(item)) for item in [lex.BELONGINGS[0], lex.BELONGINGS[7], *lex.FURNITURE[:2]]),
]  # fmt: skip
MEETING = [
    Predicate(en, de, who, case, prep)  # type: ignore[arg-type]
    for en, de, case, prep in (
        ("call", "an|rufen", "acc", ""), ("visit", "besuchen", "acc", ""), ("invite", "ein|laden", "acc", ""),
        ("help", "helfen", "dat", ""), ("thank", "danken", "dat", ""), ("meet", "treffen", "acc", ""),
        ("wait for", "warten", "acc", "auf"), ("ask", "fragen", "acc", ""), ("pick {} up", "ab|holen", "acc", ""),
        ("answer", "antworten", "dat", ""), ("talk to", "sprechen", "dat", "mit"),
    )
    for who in [*lex.OBJECTS, *map(own, [*lex.FAMILY, *lex.ACQUAINTANCES])]
]  # fmt: skip
GIVING = [
    Predicate(en, de, a(item), recipient=who)
    for en, de in (("give", "geben"), ("show", "zeigen"), ("send", "schicken"), ("lend", "leihen"))
    for item in [*lex.BELONGINGS, *lex.READING, *lex.GIFTS]
    if (en == "lend") <= (item in [*lex.BELONGINGS, lex.READING[0]])
    and (en == "show") <= (item in [*lex.BELONGINGS, *lex.READING[:3]])
    and (en == "send") <= (item in [*lex.READING, *lex.GIFTS, lex.BELONGINGS[10]])
    and (en == "give") <= (item not in lex.READING[4:])
    for who in [*lex.OBJECTS, *map(own, lex.FAMILY[:6])]
]
LOOKING_FORWARD = [
    Predicate("look forward to", "freuen", the(noun), "acc", "auf", reflexive=True)
    for noun in (
        thing("weekend", "Wochenende", "n", "-n"), thing("party", "Party", "f", "Partys"), thing("holidays", "Ferien", "p", "Ferien"),
    )
]  # fmt: skip
ACTIONS = [
    *ALONE_ACTIONS, *ALONE_ACTIONS, *ALONE_ACTIONS, *GOING, *TRAVELLING, *CONSUMING, *MEDIA, *HOUSEWORK, *DRESSING,
    *SHOPPING[::2], *MEETING[::3], *MEETING[1::3], *GIVING[::7], *GIVING[3::7],
]  # fmt: skip

# --- events: what happens to one, told in the past --------------------------------------------------------------------

EVENTS = [
    *(
        Predicate("lose", "verlieren", own(item))
        for item in [*lex.BELONGINGS[:7], lex.GARMENTS[5], lex.GARMENTS[7], lex.GLASSES]
    ),
    *(Predicate("find", "finden", own(item)) for item in [*lex.BELONGINGS, lex.GLASSES]),
    *(Predicate("forget", "vergessen", own(item)) for item in [*lex.BELONGINGS, lex.GARMENTS[1], HOMEWORK.thing][:-1]),
    *(Predicate("forget", "vergessen", HOMEWORK) for _ in "12"),
    *(Predicate("see", "sehen", who) for who in [*lex.OBJECTS, *map(the, lex.ANIMALS), *map(own, lex.ACQUAINTANCES)]),
    *(Predicate("hear", "hören", who) for who in lex.OBJECTS),
    verb("wake up", "auf|wachen"),
    verb("fall asleep", "ein|schlafen"),
    verb("arrive", "an|kommen"),
    verb("win", "gewinnen"),
    verb("stay", "bleiben", ("at home", "zu Hause")),
    verb("move", "um|ziehen"),
]
DOINGS = [*ACTIONS, *EVENTS]
