"""Sentences about things: qualities, comparison, where they lie, whose they are, what they cost; er, sie, es for it."""

from __future__ import annotations

from collections.abc import Iterator

from nmt.data.sources.phrasebook import clause as c
from nmt.data.sources.phrasebook import lexicon as lex
from nmt.data.sources.phrasebook import predicates as p
from nmt.data.sources.phrasebook.clause import Clause, Pair, Predicate
from nmt.data.sources.phrasebook.german import contract
from nmt.data.sources.phrasebook.numbers import english_number, german_number
from nmt.data.sources.phrasebook.patterns.people import PAST, present, say
from nmt.data.sources.phrasebook.sampling import draw
from nmt.data.sources.phrasebook.words import Phrase, Quality, Thing, Who, pronoun

SAID_OF: list[tuple[Thing, Quality]] = [
    (item, q) for items, qualities in lex.SUITS for item in items for q in qualities
]
DEGREES: list[Pair] = [c.NONE, ("very", "sehr"), ("too", "zu"), ("really", "wirklich")]
SURFACES = [item for item in lex.FURNITURE if item.en in ("table", "chair", "bed", "sofa", "cupboard")]
LYING = [*(item for item in lex.READING if item.en in ("book", "newspaper", "letter", "magazine")),
         *(item for item in lex.BELONGINGS if item.en in ("key", "phone", "pen", "ball", "ring")), *lex.DISHWARE[3:5]]  # fmt: skip
STANDING = [*(item for item in lex.DISHWARE if item.en in ("cup", "glass", "plate", "bottle")),
            *(item for item in lex.BELONGINGS if item.en in ("bag", "suitcase", "computer"))]  # fmt: skip
WHERE = [("on", "auf"), ("under", "unter"), ("next to", "neben"), ("behind", "hinter"), ("in front of", "vor")]
OWNERS = [lex.I, lex.YOU, lex.HE, lex.SHE, lex.WE, lex.THEY, lex.TOM, lex.ANNA, lex.MY_BROTHER, lex.MY_SISTER, lex.MY_FATHER,
          lex.OUR_TEACHER, lex.OUR_NEIGHBOUR, lex.MY_PARENTS, lex.MR_WEBER]  # fmt: skip
DETS = ["the", "this", "1s", "2s", "3m", "3f", "1p", "3p"]


def quality(item: Quality, degree: Pair = c.NONE) -> Predicate:
    """Be of some quality to some degree."""
    return Predicate(
        "be", "sein", complement=(f"{degree[0]} {item.en}".strip(), f"{degree[1]} {item.de}".strip()), aspect="state"
    )


def qualities() -> Iterator[Pair]:
    """sein with an adjective; dieser and mein before the noun, singular and plural."""
    for (item, q), det, degree, (options, how) in draw(
        "qualities", 1160, SAID_OF, DETS, DEGREES, [*present(), PAST[0]]
    ):
        if q.en == "broken" and degree[0] in ("very", "too"):
            continue
        yield say(Clause(Phrase(item, det), quality(q, degree), **options), how)
    for (item, q), det, degree in draw("plurals", 520, SAID_OF, DETS, DEGREES):
        if q.en != "broken":
            yield c.statement(Clause(Phrase(item, det, plural=True), quality(q, degree)))
    for item, q, det in draw(
        "paired", 70, [lex.TROUSERS, lex.GLASSES], [lex.NEW, lex.OLD, lex.EXPENSIVE, lex.DIRTY, lex.BEAUTIFUL], DETS
    ):
        yield c.statement(Clause(Phrase(item, det), quality(q)))


def identified() -> Iterator[Pair]:
    """Das ist ein alter Tisch: the nominative with its adjective."""
    for (item, q), det, no in draw("this is", 410, SAID_OF, ["a", "1s", "2s", "3m", "3f", "1p"], [False, False, True]):
        if q.en == "broken":
            continue
        phrase = Phrase(item, det, None if no else q)
        negation = "n't" if no else ""
        de = phrase.de("nom", negative=no)
        yield c.sentence(
            f"this is{negation} {phrase.en()}", f"das ist {'nicht ' if no and phrase.definite else ''}{de}"
        )
        if not no:
            yield c.sentence(f"is this {phrase.en()}", f"ist das {de}", "?")


def comparisons() -> Iterator[Pair]:
    """The comparative with als, and so ... wie."""
    comparable = [(items, q) for items, qualities_ in lex.SUITS for q in qualities_ if q.de_more]
    for (items, q), i, j, how in draw("compare", 410, comparable, range(12), range(12), ["more", "more", "as"]):
        one, other = items[i % len(items)], items[j % len(items)]
        if one is other:
            continue
        a, b = Phrase(one), Phrase(other)
        if how == "more":
            yield c.sentence(
                f"{a.en()} is {q.en_more} than {b.en()}", f"{a.de('nom')} ist {q.de_more} als {b.de('nom')}"
            )
        else:
            yield c.sentence(f"{a.en()} is as {q.en} as {b.en()}", f"{a.de('nom')} ist so {q.de} wie {b.de('nom')}")
    people = [q for q in lex.CHARACTER if q.de_more]
    for one, other, q in draw("compare people", 290, lex.NOT_ADDRESSED, [*lex.PRONOUNS, *lex.OTHERS], people):
        if one.person != other.person and one.en not in other.en and other.en not in one.en:
            more = Predicate(
                "be", "sein", complement=(f"{q.en_more} than {other.en_object}", f"{q.de_more} als {other.form('nom')}")
            )
            yield c.statement(Clause(one, more))


def pronouns() -> Iterator[Pair]:
    """The pronoun takes the gender of the thing it stands for."""
    for item, det, prep, place in draw("where is it", 410, [*LYING, *STANDING], ["the", *DETS[2:]], WHERE, SURFACES):
        phrase, spot = Phrase(item, det), Phrase(place)
        verb = "liegt" if item in LYING else "steht"
        en = f"Where is {phrase.en()}? It's {prep[0]} {spot.en()}."
        it = pronoun(phrase.person).form("nom").capitalize()
        yield en, f"Wo ist {phrase.de('nom')}? {it} {verb} {contract(prep[1], spot.de('dat'))}."
    for (item, q), det, again, degree in draw(
        "but it is",
        290,
        SAID_OF,
        ["the", "this", "1s"],
        ["too", "not very"],
        [lex.EXPENSIVE, lex.BIG, lex.SMALL, lex.OLD, lex.HEAVY],
    ):
        if (
            q is degree
            or (item, degree) not in SAID_OF_SET
            or {q.en, degree.en} in ({"big", "small"}, {"cheap", "expensive"}, {"new", "old"})
        ):
            continue
        phrase = Phrase(item, det)
        de_again = {"too": "zu", "not very": "nicht sehr"}[again]
        it = pronoun(phrase.person).form("nom")
        yield c.sentence(
            f"{phrase.en()} is {q.en}, but it's {again} {degree.en}",
            f"{phrase.de('nom')} ist {q.de}, aber {it} ist {de_again} {degree.de}",
        )
    bought = [*lex.GARMENTS, *lex.BELONGINGS, *lex.VEHICLES, *lex.FURNITURE]
    for subject, item, q in draw("bought it", 200, [*lex.SPEAKERS, *lex.OTHERS], bought, [lex.EXPENSIVE, lex.CHEAP]):
        phrase = Phrase(item, "a")
        it = pronoun(phrase.person)
        first = c.statement(Clause(subject, Predicate("buy", "kaufen", phrase), "past"))
        second = c.statement(Clause(it, quality(q), "past"))
        yield first[0] + " It was " + q.en + ".", f"{first[1]} {second[1]}"
    for subject, item, (en, de) in draw(
        "see it",
        200,
        lex.SPEAKERS,
        [*lex.BELONGINGS, *lex.GARMENTS],
        [("see", "sehen"), ("find", "finden"), ("need", "brauchen")],
    ):
        phrase = Phrase(item)
        it = pronoun(phrase.person)
        modal = c.CAN if en == "find" else None
        answer = Clause(subject, Predicate(en, de, Who(it.person, "it", "it", it.de)), negative=True, modal=modal)
        statement = c.statement(answer)
        yield f"Where is {phrase.en()}? {statement[0]}", f"Wo ist {phrase.de('nom')}? {statement[1]}"


SAID_OF_SET = set(SAID_OF)


def places() -> Iterator[Pair]:
    """Two-way prepositions: the dative where something is, the accusative where it is put."""
    for item, prep, place, (options, how) in draw(
        "lies", 410, [*LYING, *STANDING], WHERE, SURFACES, [*present(), PAST[0]]
    ):
        spot = (f"{prep[0]} {Phrase(place).en()}", contract(prep[1], Phrase(place).de("dat")))
        if options.get("tense") == "past":
            yield c.statement(Clause(Phrase(item), Predicate("be", "sein", complement=spot), "past"))
        else:
            yield say(
                Clause(
                    Phrase(item), Predicate("be", "liegen" if item in LYING else "stehen", complement=spot), **options
                ),
                how,
            )
    for subject, item, prep, place, form in draw(
        "puts", 410, lex.ANYONE, [*LYING, *STANDING], WHERE, SURFACES, ["progressive", "past", "should", "order"]
    ):
        spot = (f"{prep[0]} {Phrase(place).en()}", contract(prep[1], Phrase(place).de("acc")))
        put = Predicate("put", "legen" if item in LYING else "stellen", Phrase(item), complement=spot)
        if form == "order":
            if subject.person in ("2s", "Sie"):
                yield c.command(Clause(subject, put))
        else:
            yield c.statement(Clause(subject, put, modal=c.HAVE_TO) if form == "should" else Clause(subject, put, form))
    for item, place, count in draw("there is", 200, [*lex.FURNITURE], [pl for pl in lex.ROOMS[:5]], [0, 1, 2, 3, 4]):
        if count == 1:
            en, de = f"there is no {item.en}", Phrase(item, "a").de("acc", negative=True)
        elif count == 0:
            en, de = f"there is {Phrase(item, 'a').en()}", Phrase(item, "a").de("acc")
        else:
            several = Phrase(item, "", count=count, plural=True)
            en, de = f"there are {several.en()}", several.de("acc")
        room = Phrase(place)
        yield c.sentence(f"{en} in {room.en()}", f"{contract('in', room.de('dat'))} gibt es {de}")


def belonging() -> Iterator[Pair]:
    """gehören and gefallen with the dative; wem for whose; Toms Fahrrad."""
    owned = [*lex.BELONGINGS, *lex.VEHICLES, *lex.GARMENTS, *lex.ANIMALS[:3]]
    for item, det, owner, (options, how) in draw("belongs", 410, owned, ["the", "this"], OWNERS, present()):
        belongs = Predicate("belong to", "gehören", owner, "dat")
        yield say(Clause(Phrase(item, det), belongs, **options), how)
    for item in owned:
        this = Phrase(item, "this")
        yield c.sentence(f"whose {item.en} is this", f"wem gehört {this.de('nom')}", "?")
    for (item, q), det, who, no in draw(
        "pleases",
        520,
        [pair for pair in SAID_OF if pair[0] in owned],
        ["the", "this", "2s", "3m", "3f"],
        OWNERS,
        [False, False, True],
    ):
        if q.en in ("broken", "dirty", "ugly") or who.person == "2s":
            continue
        phrase = Phrase(item, det, q if q in (*lex.COLOURS, lex.NEW, lex.OLD) else None)
        if det == "2s" and who.person == "Sie":
            continue
        like = Clause(who, Predicate("like", "mögen", phrase), negative=no)
        de = c.german_clause(Clause(phrase, Predicate("", "gefallen", who, "dat"), negative=no))
        yield c.sentence(c.english_clause(like), de, ".", who.call)
    for item, who in draw("do you like", 90, owned, lex.ADDRESSED):
        phrase = Phrase(item)
        en = c.english_clause(Clause(who, Predicate("like", "mögen", phrase)), "question")
        de = c.german_clause(Clause(phrase, Predicate("", "gefallen", who, "dat")), "question")
        yield c.sentence(en, de, "?", who.call)
    for name, item, (options, how), (en, de) in draw(
        "Tom's",
        170,
        lex.NAMES,
        [*lex.BELONGINGS, *lex.VEHICLES, *lex.ROOMS[:3]],
        present(),
        [("new", "neu"), ("old", "alt"), ("big", "groß"), ("small", "klein")],
    ):
        verb = "isn't" if options.get("negative") else "is"
        genitive = name.de[0] + ("s" if name.de[0][-1] != "s" else "'")
        thing = f"{name.en}'s {item.en}"
        no = "nicht " if options.get("negative") else ""
        if how == "question":
            yield c.sentence(f"is {thing} {en}", f"ist {genitive} {item.de.singular} {de}", "?")
        else:
            yield c.sentence(f"{thing} {verb} {en}", f"{genitive} {item.de.singular} ist {no}{de}")


def tastes() -> Iterator[Pair]:
    """schmecken."""
    for item, (en, de), (options, how) in draw(
        "tastes",
        140,
        [*lex.DISHES, *lex.FOOD, *lex.DRINKS],
        [("good", "gut"), ("very good", "sehr gut"), ("bad", "schlecht")],
        [*present(), PAST[0]],
    ):
        yield say(Clause(Phrase(item), Predicate("taste", "schmecken", complement=(en, de)), **options), how)


def prices() -> Iterator[Pair]:
    """Numbers in prices: Euro has no plural ending."""
    wares = [*lex.GARMENTS, *lex.BELONGINGS, *lex.FURNITURE, *lex.VEHICLES, *lex.DISHES[3:4], *lex.GIFTS]
    for item, det, n in draw(
        "costs",
        350,
        wares,
        ["the", "this"],
        [*range(2, 13), *range(15, 100, 5), 21, 32, 43, 54, 65, 76, 87, 98, 100, 200],
    ):
        phrase = Phrase(item, det)
        yield c.sentence(
            f"{phrase.en()} costs {english_number(n)} euros", f"{phrase.de('nom')} kostet {german_number(n)} Euro"
        )
    for item in wares:
        for det in ("the", "this"):
            phrase = Phrase(item, det)
            yield c.sentence(f"how much does {phrase.en()} cost", f"wie viel kostet {phrase.de('nom')}", "?")
    counted = [
        *lex.READING[:1],
        *lex.ANIMALS,
        *lex.FURNITURE[:2],
        *lex.DISHWARE[:3],
        *lex.BELONGINGS[:3],
        lex.BROTHER,
        lex.SISTER,
        lex.CHILD,
    ]
    for subject, item, n in draw("counts", 350, lex.ANYONE, counted, [2, 3, 4, 5, 6, 7, 10, 12, 20]):
        if n > 7 and item in (lex.BROTHER, lex.SISTER, lex.CHILD):
            continue
        yield c.statement(
            Clause(subject, Predicate("have", "haben", Phrase(item, "the" if False else "", count=n, plural=True)))
        )
    for subject, item in draw("how many", 120, lex.ANYONE, counted):
        wh = (f"how many {item.en_plural}", f"wie viele {item.de.plural}")
        yield c.question(Clause(subject, Predicate("have", "haben")), wh)
    for subject, item, bought, n in draw(
        "bought some", 170, lex.ANYONE, lex.DISHES[:12], [("buy", "kaufen"), ("eat", "essen")], [2, 3, 4, 5]
    ):
        yield c.statement(Clause(subject, Predicate(*bought, Phrase(item, "", count=n, plural=True)), "past"))


LIKE_KEYS = p.LIKING
