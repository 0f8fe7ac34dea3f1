"""Sentences about things: adjectives, comparison, location, owner, price; er, sie, es for it."""

from __future__ import annotations

from collections.abc import Iterator

from phrasebook import clause as c
from phrasebook import lexicon as lex
from phrasebook.clause import Clause, Pair, Predicate
from phrasebook.german import contract
from phrasebook.lexicon import items
from phrasebook.numerals import english_number, german_number
from phrasebook.patterns.forms import ASK, NOT, PAST, PRESENT, SAY, say
from phrasebook.sampling import draw
from phrasebook.sense import CHILDREN, compatible, fits
from phrasebook.words import Adjective, Participant, Phrase, Thing, pronoun

DEGREES: list[Pair] = [c.NONE, ("very", "sehr"), ("too", "zu"), ("really", "wirklich")]
UNGRADED = [*lex.COLORS, lex.BROKEN, lex.EMPTY]
DETS = ["the", "this", "1s", "2s", "3m", "3f", "1p", "3p"]
FURNISHED = items("table chair bed sofa cupboard")
LYING = items("book newspaper letter magazine key phone pen ball ring knife spoon")
STANDING = items("cup glass plate bottle bag suitcase computer")
WHERE = [
    ("on", "auf"),
    ("under", "unter"),
    ("next to", "neben"),
    ("behind", "hinter"),
    ("in front of", "vor"),
]
OWNED = [*lex.BELONGINGS, *lex.VEHICLES, *lex.GARMENTS, *lex.ANIMALS[:3]]
LIKEABLE = [
    (item, q) for item, q in lex.SAID_OF if item in OWNED and q in (*lex.COLORS, lex.NEW, lex.OLD)
]
OWNERS = [
    *lex.PRONOUNS,
    lex.TOM,
    lex.ANNA,
    lex.MY_BROTHER,
    lex.MY_SISTER,
    lex.MY_FATHER,
    lex.OUR_TEACHER,
    lex.OUR_NEIGHBOR,
    lex.MY_PARENTS,
    lex.MR_WEBER,
    lex.YOU_CHILDREN,
]
PRAISE = [lex.BEAUTIFUL, lex.GOOD, lex.INTERESTING, lex.CLEAN, lex.COMFORTABLE, lex.CHEAP]
COMPLAINT = [lex.EXPENSIVE, lex.HEAVY, lex.SMALL, lex.BIG, lex.LONG, lex.SHORT, lex.OLD, lex.DARK]
RELATIVES = [*lex.FAMILY, *lex.ACQUAINTANCES]
OPPOSITES = [{"big", "small"}, {"cheap", "expensive"}, {"new", "old"}]
PRICES = [*range(2, 13), *range(15, 100, 5), 21, 32, 43, 54, 65, 76, 87, 98, 100, 200]


def quality(item: Adjective, degree: Pair = c.NONE) -> Predicate:
    """Return `be` with an adjective and its degree."""
    return Predicate(
        "be",
        "sein",
        complement=(f"{degree[0]} {item.en}".strip(), f"{degree[1]} {item.de}".strip()),
    )


def it(phrase: Phrase) -> Participant:
    """Return the pronoun for a thing: it in English, by gender in German."""
    return Participant(phrase.person, "it", "it", pronoun(phrase.person).de)


def qualities() -> Iterator[Pair]:
    """sein with an adjective; dieser and mein before the noun, singular and plural."""
    for (item, q), det, degree, (options, how) in draw(
        "is", 1150, lex.SAID_OF, DETS, DEGREES, [*PRESENT, PAST[0]]
    ):
        if fits(item, det) and _graded(q, degree):
            yield say(Clause(Phrase(item, det), quality(q, degree), **options), how)
    odd = [*lex.ROOMS, *items("glass")]  # "glasses" would be ambiguous
    several = [(item, q) for item, q in lex.SAID_OF if item not in odd and q is not lex.BROKEN]
    for (item, q), det, degree in draw("are", 550, several, DETS, DEGREES):
        if fits(item, det) and _graded(q, degree):
            yield c.statement(Clause(Phrase(item, det, plural=True), quality(q, degree)))
    worn = [lex.NEW, lex.OLD, lex.EXPENSIVE, lex.DIRTY, lex.BEAUTIFUL]
    for item, q, det, (options, how) in draw(
        "paired", 120, [lex.TROUSERS, lex.GLASSES], worn, DETS, PRESENT
    ):
        yield say(Clause(Phrase(item, det), quality(q), **options), how)


def _graded(q: Adjective, degree: Pair) -> bool:
    """Return whether the adjective can have the degree: not "very red" or "too good"."""
    return not degree[0] or not (
        q in UNGRADED or (degree[0] == "too" and q in (lex.NEW, lex.FRESH, *PRAISE))
    )


def identified() -> Iterator[Pair]:
    """Das ist ein alter Tisch: the nominative with its adjective."""
    for (item, q), det in draw("this is", 500, lex.SAID_OF, ["a", "1s", "2s", "3m", "3f", "1p"]):
        phrase = Phrase(item, det, q)
        if fits(item, det) and q is not lex.BROKEN:
            yield c.sentence(f"this is {phrase.en()}", f"das ist {phrase.de('nom')}")
            yield c.sentence(f"is this {phrase.en()}", f"ist das {phrase.de('nom')}", "?")
    not_owned = items("man woman boy girl")
    for item, det in draw(
        "this isn't", 180, list(lex.THINGS.values()), ["a", "1s", "2s", "3m", "3f", "1p"]
    ):
        phrase = Phrase(item, det)
        if (
            fits(item, det)
            and item.de.plural
            and not item.paired
            and item not in (RELATIVES if det == "a" else not_owned)
        ):
            no = "nicht " if phrase.definite else ""
            yield c.sentence(
                f"this isn't {phrase.en()}", f"das ist {no}{phrase.de('nom', negative=True)}"
            )


def comparisons() -> Iterator[Pair]:
    """The comparative with als, and so ... wie."""
    of_size = [lex.ROOMS, lex.ANIMALS, lex.FURNITURE, lex.DISHES]  # compared in size, too
    always = [
        lex.EXPENSIVE,
        lex.CHEAP,
        lex.BEAUTIFUL,
        lex.UGLY,
        lex.NEW,
        lex.OLD,
        lex.INTERESTING,
        lex.BORING,
    ]
    pairs = [
        (one, other, q)
        for things, qualities_ in lex.SUITS
        for q in qualities_
        if q.de_comparative and (things in of_size or q in always)
        for one in things
        for other in things
        if one is not other
    ]
    for (one, other, q), more in draw("compare", 420, pairs, [True, True, False]):
        a, b = Phrase(one), Phrase(other)
        if more:
            yield c.sentence(
                f"{a.en()} is {q.en_comparative} than {b.en()}",
                f"{a.de('nom')} ist {q.de_comparative} als {b.de('nom')}",
            )
        else:
            yield c.sentence(
                f"{a.en()} is as {q.en} as {b.en()}",
                f"{a.de('nom')} ist so {q.de} wie {b.de('nom')}",
            )
    people = [q for q in lex.CHARACTER if q.de_comparative]
    others = [who for who in [*lex.PRONOUNS, *lex.OTHERS] if who is not lex.THE_CHILDREN]
    adults = [who for who in lex.NOT_ADDRESSED if who is not lex.THE_CHILDREN]
    for one, other, q, (options, how) in draw(
        "compare people", 450, adults, others, people, PRESENT
    ):
        if one.person != other.person and one.en not in other.en and other.en not in one.en:
            than = (
                f"{q.en_comparative} than {other.en_object}",
                f"{q.de_comparative} als {other.form('nom')}",
            )
            yield say(Clause(one, Predicate("be", "sein", complement=than), **options), how)


def pronouns() -> Iterator[Pair]:
    """The pronoun has the gender of the thing that it refers to."""
    yield from _found()
    yield from _given()
    yield from _praised()


def _praised() -> Iterator[Pair]:
    """It is beautiful, but too expensive; it is old, but very good."""
    judged = [
        (item, good, bad)
        for things, qualities_ in lex.SUITS
        for item in things
        for good in qualities_
        for bad in qualities_
        if good in (lex.NEW, *PRAISE) and bad in COMPLAINT and {good.en, bad.en} not in OPPOSITES
    ]
    for (item, good, bad), det, praise in draw(
        "but it is", 300, judged, ["the", "this", "1s"], [True, False]
    ):
        phrase = Phrase(item, det)
        er = it(phrase).de[0]
        last_good = praise and good is not lex.NEW
        first, last = (bad, good) if last_good else (good, bad)
        en, de = ("very", "sehr") if last_good else ("too", "zu")
        english = f"{phrase.en()} is {first.en}, but it's {en} {last.en}"
        yield c.sentence(
            english, f"{phrase.de('nom')} ist {first.de}, aber {er} ist {de} {last.de}"
        )


def _found() -> Iterator[Pair]:
    """Where is it? It lies there."""
    for item, det, prep, place in draw(
        "where is", 400, [*LYING, *STANDING], ["the", *DETS[2:]], WHERE, FURNISHED
    ):
        phrase, spot = Phrase(item, det), Phrase(place)
        lies = "liegt" if item in LYING else "steht"
        en = f"where is {phrase.en()}? It's {prep[0]} {spot.en()}"
        er = it(phrase).de[0].capitalize()
        yield c.sentence(
            en, f"wo ist {phrase.de('nom')}? {er} {lies} {contract(prep[1], spot.de('dat'))}"
        )
    answers = [
        (Predicate("see", "sehen"), None),
        (Predicate("need", "brauchen"), None),
        (Predicate("find", "finden"), c.CAN),
    ]
    things = [*lex.BELONGINGS, *lex.GARMENTS]
    for subject, item, (what, modal), no in draw(
        "where seen", 260, lex.SPEAKERS, things, answers, [True, False]
    ):
        if no or what.en == "need":
            phrase = Phrase(item)
            seen = Predicate(what.en, what.de, it(phrase), aspect="state")
            answer = c.statement(
                Clause(subject, seen, modal=modal, negative=no and what.en != "need")
            )
            yield f"Where is {phrase.en()}? {answer[0]}", f"Wo ist {phrase.de('nom')}? {answer[1]}"


def _given() -> Iterator[Pair]:
    """I bought it; it was cheap. I gave it to him: the accusative pronoun precedes the dative."""
    bought = [*lex.GARMENTS, *lex.BELONGINGS, *lex.VEHICLES, *lex.FURNITURE]
    subjects = [*lex.SPEAKERS, *lex.OTHERS]
    for subject, item, q in draw("bought it", 220, subjects, bought, [lex.EXPENSIVE, lex.CHEAP]):
        buy = Predicate("buy", "kaufen", Phrase(item, "a"))
        if compatible(subject, buy):
            first = c.statement(Clause(subject, buy, "past"))
            second = c.statement(Clause(it(Phrase(item)), quality(q), "past"))
            yield f"{first[0]} {second[0]}", f"{first[1]} {second[1]}"
    verbs = [("give", "geben"), ("show", "zeigen"), ("lend", "leihen")]
    for subject, item, who, (en, de) in draw(
        "gave it", 300, lex.SPEAKERS, lex.BELONGINGS, lex.OBJECTS, verbs
    ):
        phrase = Phrase(item)
        to = Clause(subject, Predicate(f"{en} {{}} to {who.en_object}", de, it(phrase)), "past")
        german = Clause(subject, Predicate(en, de, it(phrase), recipient=who), "past")
        if compatible(subject, german.predicate):
            answer = c.sentence(c.english_clause(to), c.german_clause(german), ".", who.vocative)
            yield f"Where is {phrase.en()}? {answer[0]}", f"Wo ist {phrase.de('nom')}? {answer[1]}"


def places() -> Iterator[Pair]:
    """Two-way prepositions: the dative for location, the accusative for direction."""
    things = [*LYING, *STANDING]
    for item, prep, place, (options, how) in draw(
        "lies", 420, things, WHERE, FURNISHED, [*PRESENT, PAST[0]]
    ):
        verb = "sein" if options.get("tense") == "past" else "liegen" if item in LYING else "stehen"
        spot = (f"{prep[0]} {Phrase(place).en()}", contract(prep[1], Phrase(place).de("dat")))
        yield say(Clause(Phrase(item), Predicate("be", verb, complement=spot), **options), how)
    for subject, item, prep, place, form in draw(
        "puts",
        420,
        lex.ANYONE,
        things,
        WHERE,
        FURNISHED,
        ["progressive", "past", "has to", "order"],
    ):
        spot = (f"{prep[0]} {Phrase(place).en()}", contract(prep[1], Phrase(place).de("acc")))
        put = Predicate(
            "put", "legen" if item in LYING else "stellen", Phrase(item), complement=spot
        )
        if form != "order":
            yield c.statement(
                Clause(subject, put, modal=c.HAVE_TO)
                if form == "has to"
                else Clause(subject, put, form)
            )
        elif subject.person in ("2s", "Sie"):
            yield c.command(Clause(subject, put))


def there_is() -> Iterator[Pair]:
    """es gibt with the accusative, the place first."""
    for item, room, count in draw("there is", 220, lex.FURNITURE, [*lex.ROOMS], [0, 1, 2, 3, 4]):
        if item.en == "bed" and room.en in ("kitchen", "bathroom"):
            continue
        phrase = Phrase(item, "", count=count, plural=True) if count > 1 else Phrase(item, "a")
        en = (
            f"there is no {item.en}"
            if count == 0
            else f"there {'are' if count > 1 else 'is'} {phrase.en()}"
        )
        de = phrase.de("acc", negative=count == 0)
        spot = Phrase(room)
        yield c.sentence(f"{en} in {spot.en()}", f"{contract('in', spot.de('dat'))} gibt es {de}")


def belonging() -> Iterator[Pair]:
    """gehören with the dative, and the genitive of a name."""
    for item, det, owner, (options, how) in draw(
        "belongs", 420, OWNED, ["the", "this"], OWNERS, PRESENT
    ):
        if fits(item, owner.person):
            yield say(
                Clause(
                    Phrase(item, det), Predicate("belong to", "gehören", owner, "dat"), **options
                ),
                how,
            )
    qualities_ = [lex.NEW, lex.OLD, lex.BIG, lex.SMALL]
    things = [*lex.BELONGINGS, *lex.VEHICLES, *lex.ROOMS[:3]]
    for name, item, q, (options, how) in draw("Tom's", 200, lex.NAMES, things, qualities_, PRESENT):
        en, de = f"{name.en}'s {item.en}", f"{name.en}s {item.de.singular}"
        if how == ASK:
            yield c.sentence(f"is {en} {q.en}", f"ist {de} {q.de}", "?")
        else:
            no = options == NOT
            yield c.sentence(
                f"{en} {'isn' if no else 'is'}{chr(39) + 't' if no else ''} {q.en}",
                f"{de} ist {'nicht ' if no else ''}{q.de}",
            )


def pleasing() -> Iterator[Pair]:
    """gefallen: the English object is the German subject, the English subject is the dative."""
    for item, det, who, (options, how) in draw(
        "pleases", 420, OWNED, ["the", "this", "2s", "3m", "3f"], OWNERS, PRESENT
    ):
        if det in ("the", "this") or (
            not {det, who.person} <= {"2s", "2p", "Sie"} and det != who.person and fits(item, det)
        ):
            yield _liking(Phrase(item, det), who, options, how)
    for (item, q), who, (options, how) in draw("pleases well", 280, LIKEABLE, OWNERS, PRESENT):
        yield _liking(Phrase(item, "the", q), who, options, how)


def _liking(phrase: Phrase, who: Participant, options: dict[str, bool], how: str) -> Pair:
    english = Clause(who, Predicate("like", "mögen", phrase), negative=bool(options))
    german = Clause(phrase, Predicate("please", "gefallen", who, "dat"), negative=bool(options))
    if how == ASK:
        return c.sentence(
            c.english_clause(english, "question"),
            c.german_clause(german, "question"),
            "?",
            who.vocative,
        )
    return c.sentence(c.english_clause(english), c.german_clause(german), ".", who.vocative)


def tastes() -> Iterator[Pair]:
    """schmecken."""
    eaten = [*lex.DISHES, *lex.FOOD, *lex.DRINKS]
    how_well = [("good", "gut"), ("very good", "sehr gut"), ("bad", "schlecht")]
    for item, taste, (options, how) in draw("tastes", 180, eaten, how_well, [*PRESENT, PAST[0]]):
        yield say(
            Clause(Phrase(item), Predicate("taste", "schmecken", complement=taste), **options), how
        )


def prices() -> Iterator[Pair]:
    """Numbers from two up in prices: Euro has no plural ending."""
    wares = [*lex.GARMENTS, *lex.BELONGINGS, *lex.FURNITURE, *items("bike cake present flower")]
    for item, det, n in draw("costs", 400, wares, ["the", "this"], PRICES):
        phrase = Phrase(item, det)
        de = f"{phrase.de('nom')} kostet {german_number(n)} Euro"
        yield c.sentence(f"{phrase.en()} costs {english_number(n)} euros", de)
    for subject, n, asked in draw("paid", 420, lex.ANYONE, range(2, 100), [False, False, True]):
        pay = Predicate(
            f"pay {english_number(n)} euros",
            "bezahlen",
            complement=("", f"{german_number(n)} Euro"),
        )
        if subject not in CHILDREN:
            yield say(Clause(subject, pay, "past"), ASK if asked else SAY)
    for item, det in draw("how much", 60, wares, ["the", "this"]):
        phrase = Phrase(item, det)
        yield c.sentence(
            f"how much does {phrase.en()} cost", f"wie viel kostet {phrase.de('nom')}", "?"
        )


def counts() -> Iterator[Pair]:
    """Plurals after numbers; wie viele."""
    counted: list[Thing] = [
        *lex.ANIMALS,
        *items("book table chair cup glass plate bag key phone brother sister child"),
    ]
    for subject, item, n in draw(
        "counts", 380, lex.ANYONE, counted, [2, 3, 4, 5, 6, 7, 10, 12, 20]
    ):
        several = Predicate("have", "haben", Phrase(item, "", count=n, plural=True))
        if compatible(subject, several) and not (
            n > 6 and item.en in ("brother", "sister", "child", "cow", "horse")
        ):
            yield c.statement(Clause(subject, several))
    for subject, item in draw("how many", 130, lex.ANYONE, counted):
        wh = (f"how many {item.en_plural}", f"wie viele {item.de.plural}")
        yield c.question(Clause(subject, Predicate("have", "haben")), wh)
    verbs = [("buy", "kaufen"), ("eat", "essen")]
    for subject, item, (en, de), n in draw(
        "some", 200, lex.ANYONE, lex.DISHES[:12], verbs, [2, 3, 4, 5]
    ):
        yield c.statement(
            Clause(subject, Predicate(en, de, Phrase(item, "", count=n, plural=True)), "past")
        )
