"""Two clauses in one sentence: weil, dass, ob, wenn, indirect questions, zu-infinitives, um ... zu, aber."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from nmt.data.sources.phrasebook import clause as c
from nmt.data.sources.phrasebook import lexicon as lex
from nmt.data.sources.phrasebook import predicates as p
from nmt.data.sources.phrasebook.clause import Clause, Pair, Predicate
from nmt.data.sources.phrasebook.patterns.people import compatible
from nmt.data.sources.phrasebook.patterns.questions import ABOUT_WHERE, SIMPLE
from nmt.data.sources.phrasebook.sampling import draw
from nmt.data.sources.phrasebook.words import Who, thing

GO_HOME = p.verb("go", "gehen", ("home", "nach Hause"))
GO_TO_BED = p.verb("go", "gehen", ("to bed", "ins Bett"))
STAY_HOME = p.verb("stay", "bleiben", ("at home", "zu Hause"))
DRINK_WATER = Predicate("drink", "trinken", p.some(lex.DRINKS[0]))
EAT_SOMETHING = p.verb("eat something", "essen", ("", "etwas"))
CRY, LAUGH = p.verb("cry", "weinen"), p.verb("laugh", "lachen")
WORK, SLEEP, REST = (
    p.verb("work", "arbeiten"),
    p.verb("sleep", "schlafen"),
    Predicate("rest", "aus|ruhen", reflexive=True),
)
PUT_ON_COAT = Predicate("put {} on", "an|ziehen", p.own(lex.CLOTHES[0]))
CLOSE_WINDOW = Predicate("close {}", "zu|machen", p.the(lex.OPENINGS[1]))
OPEN_WINDOW = Predicate("open", "öffnen", p.the(lex.OPENINGS[1]))
SEE_DOCTOR = p.verb("go", "gehen", ("to the doctor", "zum Arzt"))
COME_ALONG = p.verb("come along", "mit|kommen")
HURRY = Predicate("hurry up", "beeilen", reflexive=True)
LATE = p.being(lex.Quality("late", "spät dran"))
BUSY = p.being(lex.MOODS[-1])
VERY_TIRED = p.being(lex.MOODS[0], very=True)

# Why one does something: (what one does, the reasons for it), all of the same person.
CAUSES: list[tuple[Predicate, list[Predicate]]] = [
    (DRINK_WATER, [p.THIRSTY, p.VERY_THIRSTY, p.THIRSTY, p.WARM]),
    (
        Predicate("drink", "trinken", p.a(lex.thing("lemonade", "Limonade", "f", "Limonaden"))),
        [p.THIRSTY, p.VERY_THIRSTY],
    ),
    (EAT_SOMETHING, [p.HUNGRY, p.VERY_HUNGRY]),
    (Predicate("eat", "essen", p.a(lex.DISHES[0])), [p.HUNGRY, p.HUNGRY]),
    (Predicate("eat", "essen", p.a(lex.DISHES[7])), [p.HUNGRY, p.VERY_HUNGRY]),
    (p.verb("cook", "kochen"), [p.HUNGRY, p.VERY_HUNGRY]),
    (GO_TO_BED, [p.TIRED, VERY_TIRED, p.SICK]),
    (GO_HOME, [p.TIRED, p.HUNGRY, p.THIRSTY, p.SICK, p.DONE, p.COLD, p.AFRAID, p.SAD]),
    (STAY_HOME, [p.SICK, p.TIRED, p.HEADACHE, p.COLD, p.FEELS_SICK]),
    (SLEEP, [p.TIRED, VERY_TIRED, p.SICK]),
    (REST, [p.TIRED, p.SICK, p.HEADACHE]),
    (CRY, [p.SAD, p.AFRAID, p.being(lex.MOODS[10])]),
    (LAUGH, [p.HAPPY, p.being(lex.MOODS[8])]),
    (PUT_ON_COAT, [p.COLD]),
    (CLOSE_WINDOW, [p.COLD]),
    (OPEN_WINDOW, [p.WARM, p.FEELS_SICK]),
    (SEE_DOCTOR, [p.SICK, p.HEADACHE, p.FEELS_SICK]),
]
CANNOT: list[tuple[Predicate, list[Predicate]]] = [
    (SLEEP, [p.THIRSTY, p.HUNGRY, p.COLD, p.AFRAID, p.HEADACHE, p.being(lex.MOODS[8])]),
    (WORK, [p.TIRED, p.SICK, p.HEADACHE]),
    (COME_ALONG, [p.SICK, p.TIRED, BUSY]),
]
MATRIX = [("think", "glauben"), ("know", "wissen"), ("hope", "hoffen"), ("say", "sagen")]
THINKERS = [lex.I, lex.I, lex.I, lex.WE, lex.HE, lex.SHE, lex.TOM, lex.ANNA, lex.MY_MOTHER, lex.MY_BROTHER]
ASKING = [
    ("I don't know", "Ich weiß nicht", "."),
    ("we don't know", "Wir wissen nicht", "."),
    ("do you know", "Weißt du", "?"),
    ("can you tell me", "Kannst du mir sagen", "?"),
    ("I would like to know", "Ich möchte wissen", "."),
]
EMBEDDED: list[dict[str, Any]] = [
    {"tense": "progressive"},
    {"tense": "past"},
    {"tense": "future"},
    {"modal": c.CAN},
    {"modal": c.HAVE_TO},
    {"modal": c.WANT_TO},
]
WEATHER: list[Pair] = [
    ("it rains", "es regnet"), ("it snows", "es schneit"), ("it's cold", "es kalt ist"), ("it's hot", "es heiß ist"),
    ("the sun shines", "die Sonne scheint"), ("the weather is good", "das Wetter gut ist"),
]  # fmt: skip


def join(main: Clause, en_link: str, de_link: str, sub: Clause, mark: str = ".") -> Pair:
    """Write main clause, comma, conjunction, subordinate clause."""
    en = f"{c.english_clause(main)} {en_link} {c.english_clause(sub)}"
    de = f"{c.german_clause(main)}, {de_link} {c.german_clause(sub, 'subordinate')}"
    return c.sentence(en, de, mark, main.call)


def sub_first(link: Pair, sub: Clause, main: Clause) -> Pair:
    """Write the subordinate clause first: the German main clause then begins with its verb."""
    en = f"{link[0]} {c.english_clause(sub)}, {c.english_clause(main)}"
    de = f"{link[1]} {c.german_clause(sub, 'subordinate')}, {c.german_clause(main, 'question')}"
    return c.sentence(en, de, ".", main.call)


def because() -> Iterator[Pair]:
    """weil sends the verb to the end."""
    causes = [(action, reason, False) for action, reasons in CAUSES for reason in reasons]
    causes += [(action, reason, True) for action, reasons in CANNOT for reason in reasons for _ in "12"]
    shapes = ["now", "past", "must", "first", "will"]
    for subject, (action, reason, cannot), shape in draw("because", 1280, lex.ANYONE, causes, shapes):
        again = subject.again() if not subject.is_pronoun or subject.call[0] else subject
        if subject is lex.YOU_BOTH:
            continue
        why = Clause(again, reason, "past" if shape == "past" else "present")
        options: dict[str, Any] = {"tense": "past" if shape == "past" else "progressive"}
        if cannot:
            options = {"modal": c.CAN, "negative": True, "tense": "past" if shape == "past" else "present"}
        elif shape in ("must", "will"):
            options = {"modal": c.WANT_TO} if shape == "must" else {"tense": "future"}
        if shape == "first":
            full = Clause(subject, reason)
            yield sub_first(
                ("because", "weil"),
                replace(full, subject=replace(subject, call=c.NONE)),
                Clause(replace(again, call=subject.call), action, **options),
            )
        else:
            yield join(Clause(subject, action, **options), "because", "weil", why)


def core_because() -> Iterator[Pair]:
    """The commonest reasons with every pronoun."""
    for subject in lex.PRONOUNS:
        for action, reason in (
            (DRINK_WATER, p.THIRSTY),
            (EAT_SOMETHING, p.HUNGRY),
            (GO_TO_BED, p.TIRED),
            (GO_HOME, p.DONE),
        ):
            yield join(Clause(subject, action, "progressive"), "because", "weil", Clause(subject, reason))


def that() -> Iterator[Pair]:
    """dass after verbs of thinking and saying."""
    for thinker, (en, de), subject, state in draw(
        "that state", 520, THINKERS, MATRIX, lex.ANYONE, [*p.NEEDS, *p.FEELINGS, *p.BEING_AT]
    ):
        if subject is not lex.YOU_BOTH and _others(thinker, subject):
            yield (
                join(Clause(thinker, Predicate(en, de)), "that", "dass", Clause(subject, state))
                if not subject.call[0]
                else _called(Clause(thinker, Predicate(en, de)), "that", "dass", Clause(subject, state))
            )
    for thinker, (en, de), subject, doing, options in draw(
        "that action", 750, THINKERS, MATRIX, lex.ANYONE, p.ACTIONS, EMBEDDED
    ):
        if _others(thinker, subject) and compatible(subject, doing):
            yield _called(Clause(thinker, Predicate(en, de)), "that", "dass", Clause(subject, doing, **options))


def _others(thinker: Who, subject: Who) -> bool:
    """Leave out "Tom thinks that Tom ..." and the ambiguous "he ... that he"."""
    return thinker.en not in subject.en and (thinker.person == "1s" or thinker.person != subject.person)


def _called(main: Clause, en_link: str, de_link: str, sub: Clause, mark: str = ".") -> Pair:
    en = f"{c.english_clause(main)} {en_link} {c.english_clause(sub)}"
    de = f"{c.german_clause(main)}, {de_link} {c.german_clause(sub, 'subordinate')}"
    return c.sentence(en, de, mark, sub.call)


def whether() -> Iterator[Pair]:
    """ob for an indirect yes-or-no question, the question word for the others."""
    for (en, de, mark), subject, what, options in draw(
        "whether", 520, ASKING, lex.NOT_ADDRESSED, [*p.ACTIONS, *p.FEELINGS, *p.NEEDS * 4], EMBEDDED[:4]
    ):
        if compatible(subject, what) and not (subject.person in ("1s", "1p") or _to_you(what)):
            if what.aspect == "state":
                options = {"tense": "past" if options.get("tense") == "past" else "present"}
            sub = Clause(subject, what, **options)
            yield c.sentence(
                f"{en} whether {c.english_clause(sub)}",
                f"{de}, ob {c.german_clause(sub, 'subordinate')}",
                mark,
                sub.call,
            )
    for (en, de, mark), subject, (wh, what), past in draw(
        "indirect", 410, ASKING, lex.NOT_ADDRESSED, ABOUT_WHERE, [False, False, True]
    ):
        if subject.person in ("1s", "1p"):
            continue
        sub = Clause(
            subject,
            what,
            "past" if past else "present" if what.en in SIMPLE else "progressive",
            contracted=what.en != "be",
        )
        said = c.english_clause(sub)
        yield c.sentence(f"{en} {wh[0]} {said}", f"{de}, {c.german_clause(sub, 'subordinate', wh[1])}", mark)


def _to_you(what: Predicate) -> bool:
    return any(isinstance(part, Who) and part.person in ("2s", "2p", "Sie") for part in (what.object, what.recipient))


def if_clauses() -> Iterator[Pair]:
    """wenn first, then the verb."""
    for weather, subject, doing, options in draw(
        "weather", 290, WEATHER, lex.NOT_ADDRESSED, [STAY_HOME, *p.GOING[:6], *p.ALONE_ACTIONS], EMBEDDED[2:4]
    ):
        main = Clause(subject, doing, **options)
        yield c.sentence(
            f"if {weather[0]}, {c.english_clause(main)}", f"wenn {weather[1]}, {c.german_clause(main, 'question')}", "."
        )
    causes = [(action, reason) for action, reasons in CAUSES for reason in reasons]
    for subject, (action, reason), modal in draw("if", 410, lex.ANYONE, causes, [c.CAN, c.SHOULD, c.HAVE_TO, None]):
        if subject is lex.YOU_BOTH or (subject.person in ("1s", "1p") and modal is c.SHOULD):
            continue
        quiet = replace(subject, call=c.NONE)
        main = Clause(replace(subject.again(), call=subject.call), action, "present" if modal else "future", modal)
        yield sub_first(("if", "wenn"), Clause(quiet, reason), main)


def infinitives() -> Iterator[Pair]:
    """zu before the infinitive, inside a separable verb; um ... zu for a purpose."""
    for subject, (en, de, noun), doing, no in draw(
        "no time",
        410,
        lex.ANYONE,
        [("have time", "haben", "Zeit"), ("feel like", "haben", "Lust")],
        p.ACTIONS,
        [False, True, True],
    ):
        if not compatible(subject, doing) or en == "feel like":
            continue
        matrix = Clause(subject, Predicate(en, de, p.silent(noun, "f")), negative=no)
        inner = Clause(replace(subject, call=c.NONE), doing)
        text = f"{c.german_clause(matrix)}, {c.german_infinitive(inner)}"
        yield c.sentence(
            f"{c.english_clause(matrix)} to {doing.english(subject.person)}",
            text,
            ".",
            matrix.call if matrix.call[0] else doing.call,
        )
    for subject, doing, (en, de, tense) in draw(
        "try",
        520,
        lex.ANYONE,
        p.ACTIONS,
        [("try", "versuchen", "progressive"), ("forget", "vergessen", "past"), ("promise", "versprechen", "past")],
    ):
        if not compatible(subject, doing):
            continue
        matrix, inner = Clause(subject, Predicate(en, de), tense), Clause(replace(subject, call=c.NONE), doing)
        group = c.german_infinitive(inner)
        comma = "," if " " in group.replace("zu ", "", 1) or tense == "past" else ""
        yield c.sentence(
            f"{c.english_clause(matrix)} to {doing.english(subject.person)}",
            f"{c.german_clause(matrix)}{comma} {group}",
            ".",
            matrix.call if matrix.call[0] else doing.call,
        )
    for (en, de), doing in draw(
        "it is hard",
        140,
        [("hard", "schwer"), ("easy", "leicht"), ("important", "wichtig"), ("nice", "schön")],
        [*p.CONSUMING, *p.MEDIA, *p.HOUSEWORK, *p.SHOPPING[:8]],
    ):
        if any(getattr(part, "det", "") == "own" for part in (doing.object, doing.recipient)):
            continue
        yield c.sentence(
            f"it's {en} to {doing.english('1s')}", f"es ist {de}, {c.german_infinitive(Clause(lex.I, doing))}"
        )
    places = [to for name, to, _ in lex.PLACES if name in ("station", "airport")]
    pick_up = [predicate for predicate in p.MEETING if predicate.de == "ab|holen"]
    shop = [q for q in p.SHOPPING if q.en == "buy"]
    for subject, place, doing, tense in draw(
        "purpose", 170, lex.ANYONE, places, pick_up, ["progressive", "past", "future"]
    ):
        if compatible(subject, doing):
            yield _purpose(Clause(subject, p.verb("drive", "fahren", place), tense), doing)
    town = ("into town", "in die Stadt")
    for subject, doing, tense in draw("errand", 170, lex.ANYONE, shop, ["progressive", "past", "future"]):
        yield _purpose(Clause(subject, p.verb("go", "gehen", town), tense), doing)


def _purpose(main: Clause, doing: Predicate) -> Pair:
    inner = c.german_infinitive(Clause(main.subject, doing))
    en = f"{c.english_clause(main)} to {doing.english(main.person)}"
    return c.sentence(en, f"{c.german_clause(main)}, um {inner}", ".", main.call if main.call[0] else doing.call)


def but() -> Iterator[Pair]:
    """aber and und join main clauses and change no order."""
    for subject, state, doing, modal in draw(
        "but",
        410,
        lex.ANYONE,
        [p.TIRED, p.SICK, p.HUNGRY, p.THIRSTY, p.HEADACHE, BUSY, p.SAD],
        p.ACTIONS,
        [c.HAVE_TO, c.WANT_TO],
    ):
        if subject is lex.YOU_BOTH or not compatible(subject, doing):
            continue
        first = Clause(replace(subject, call=c.NONE), state)
        second = Clause(replace(subject.again(), call=subject.call), doing, modal=modal)
        yield c.sentence(
            f"{c.english_clause(first)}, but {c.english_clause(second)}",
            f"{c.german_clause(first)}, aber {c.german_clause(second)}",
            ".",
            second.call,
        )


BABY = thing("baby", "Baby", "n", "Babys")
