"""Two clauses in one sentence: weil, dass, ob, wenn, indirect questions, zu and um ... zu, aber."""

from __future__ import annotations

from collections.abc import Iterator

from phrasebook import clause as c
from phrasebook import lexicon as lex
from phrasebook import predicates as p
from phrasebook.clause import Clause, Pair, Predicate
from phrasebook.lexicon import THINGS, items
from phrasebook.patterns.forms import NOT, Options
from phrasebook.patterns.questions import GAPS, now
from phrasebook.sampling import draw
from phrasebook.sense import SECOND, compatible
from phrasebook.words import Participant, pronoun, without_vocative

GO_HOME = p.verb("go", "gehen", ("home", "nach Hause"))
GO_TO_BED = p.verb("go", "gehen", ("to bed", "ins Bett"))
STAY_HOME = p.verb("stay", "bleiben", ("at home", "zu Hause"))
DRINK_WATER = Predicate("drink", "trinken", p.some(THINGS["water"]))
EAT_SOMETHING = p.verb("eat something", "essen", ("", "etwas"))

# Reasons: (actions, their reasons), with the same subject.
CAUSES = [
    (action, reason)
    for action, reasons in (
        (DRINK_WATER, [p.THIRSTY, p.THIRSTY, p.VERY_THIRSTY, p.WARM]),
        (Predicate("drink", "trinken", p.some(THINGS["juice"])), [p.THIRSTY, p.VERY_THIRSTY]),
        (EAT_SOMETHING, [p.HUNGRY, p.VERY_HUNGRY]),
        (Predicate("eat", "essen", p.a(THINGS["apple"])), [p.HUNGRY, p.HUNGRY]),
        (Predicate("eat", "essen", p.a(THINGS["pizza"])), [p.HUNGRY, p.VERY_HUNGRY]),
        (p.COOK, [p.HUNGRY, p.VERY_HUNGRY]),
        (GO_TO_BED, [p.TIRED, p.VERY_TIRED, p.SICK]),
        (GO_HOME, [p.TIRED, p.HUNGRY, p.THIRSTY, p.SICK, p.DONE, p.COLD, p.AFRAID, p.SAD]),
        (STAY_HOME, [p.SICK, p.TIRED, p.HEADACHE, p.COLD, p.FEELS_SICK]),
        (p.SLEEP, [p.TIRED, p.VERY_TIRED, p.SICK]),
        (p.REST, [p.TIRED, p.SICK, p.HEADACHE]),
        (Predicate("put {} on", "an|ziehen", p.own(THINGS["coat"])), [p.COLD]),
        (Predicate("close", "zu|machen", p.the(THINGS["window"])), [p.COLD]),
        (Predicate("open", "öffnen", p.the(THINGS["window"])), [p.WARM, p.FEELS_SICK]),
        (p.verb("go", "gehen", ("to the doctor", "zum Arzt")), [p.SICK, p.HEADACHE, p.FEELS_SICK]),
    )
    for reason in reasons
]
MOVED = [
    *((p.verb("cry", "weinen"), reason) for reason in (p.SAD, p.AFRAID, p.DISAPPOINTED)),
    *((p.verb("laugh", "lachen"), reason) for reason in (p.HAPPY, p.EXCITED)),
]
# Impossible actions and the reasons.
OBSTACLES = [
    *(
        (p.SLEEP, reason)
        for reason in (p.THIRSTY, p.HUNGRY, p.COLD, p.AFRAID, p.HEADACHE, p.EXCITED)
    ),
    *((p.WORK, reason) for reason in (p.TIRED, p.SICK, p.HEADACHE)),
    *((p.COME_ALONG, reason) for reason in (p.SICK, p.TIRED, p.BUSY)),
]
THINKERS = [
    lex.I,
    lex.I,
    lex.I,
    lex.WE,
    lex.HE,
    lex.SHE,
    lex.TOM,
    lex.ANNA,
    lex.MY_MOTHER,
    lex.MY_BROTHER,
]
SPEAKERS = [lex.HE, lex.SHE, lex.TOM, lex.ANNA, lex.MY_MOTHER, lex.MY_BROTHER]
THINK, KNOW = Predicate("think", "glauben"), Predicate("know", "wissen")
HOPE, SAY = Predicate("hope", "hoffen"), Predicate("say", "sagen")
INQUIRIES = [
    ("I don't know", "ich weiß nicht", "."),
    ("we don't know", "wir wissen nicht", "."),
    ("do you know", "weißt du", "?"),
    ("can you tell me", "kannst du mir sagen", "?"),
    ("I would like to know", "ich möchte wissen", "."),
]
EMBEDDED: list[Options] = [
    {"tense": "progressive"},
    {"tense": "past"},
    {"tense": "future"},
    {"modal": c.CAN},
    {"modal": c.HAVE_TO},
    {"modal": c.WANT_TO},
]
HOPED: list[Options] = [{"tense": "future"}, {"modal": c.CAN}]
WEATHER: list[Pair] = [
    ("it rains", "es regnet"),
    ("it snows", "es schneit"),
    ("it's cold", "es kalt ist"),
    ("it's hot", "es heiß ist"),
    ("the sun shines", "die Sonne scheint"),
    ("the weather is good", "das Wetter gut ist"),
]
IN_THE_RAIN = [
    STAY_HOME,
    GO_HOME,
    p.SLEEP,
    p.verb("watch TV", "fern|sehen"),
    Predicate("take", "nehmen", p.the(lex.BUS)),
]
IN_THE_SUN = [
    p.WALK,
    p.verb("go swimming", "gehen", ("", "schwimmen")),
    *(p.GOING[name] for name in ("park", "zoo", "beach", "lake")),
]
ADVICE = {  # actions that are hard, easy, nice or important
    ("hard", "schwer"): [
        *p.LEARNING,
        *p.each("find", "finden", map(p.a, items("flat room"))),
        *p.each("write", "schreiben", map(p.a, items("book letter story"))),
        *p.each("sell", "verkaufen", map(p.the, items("house car flat sofa"))),
        *p.each("repair", "reparieren", map(p.the, items("car computer watch"))),
    ],
    ("easy", "leicht"): [
        *p.each("open", "öffnen", map(p.the, items("door window bottle"))),
        *p.each("bake", "backen", map(p.a, items("cake pizza"))),
        *p.each("clean", "putzen", map(p.the, items("window bathroom kitchen"))),
        *p.each("find", "finden", map(p.the, items("house key"))),
    ],
    ("nice", "schön"): [
        *p.each("read", "lesen", map(p.a, items("book letter story"))),
        *p.each("meet", "treffen", [lex.YOU, lex.MR_WEBER, lex.MRS_KLEIN]),
        p.WALK,
        p.LISTEN,
        p.SLEEP,
        *p.TRAVELLING[-7:],
    ],
    ("important", "wichtig"): [
        p.SLEEP,
        p.REST,
        p.GET_UP,
        *p.each("feed", "füttern", map(p.the, lex.ANIMALS[:3])),
        *p.each("help", "helfen", [lex.MY_PARENTS, lex.THE_CHILDREN, lex.TOM], case="dat"),
        *p.LEARNING,
    ],
}


def subordinate(main: Clause, en: str, de: str, sub: Clause) -> Pair:
    """Write main clause, comma, conjunction, subordinate clause."""
    english = f"{c.english_clause(main)} {en} {c.english_clause(sub)}"
    german = f"{c.german_clause(main)}, {de} {c.german_clause(sub, 'subordinate')}"
    return c.sentence(english, german, ".", main.vocative if main.vocative[0] else sub.vocative)


def subordinate_first(en: str, de: str, sub: Clause, main: Clause) -> Pair:
    """Write the subordinate clause first; the German main clause then begins with its verb."""
    english = f"{en} {c.english_clause(sub)}, {c.english_clause(main)}"
    german = f"{de} {c.german_clause(sub, 'subordinate')}, {c.german_clause(main, 'question')}"
    return c.sentence(english, german, ".", main.vocative)


def core_because() -> Iterator[Pair]:
    """The most common reasons with every pronoun."""
    reasons = [
        (DRINK_WATER, p.THIRSTY),
        (EAT_SOMETHING, p.HUNGRY),
        (GO_TO_BED, p.TIRED),
        (GO_HOME, p.DONE),
    ]
    for subject in lex.PRONOUNS:
        for action, reason in reasons:
            yield subordinate(
                Clause(subject, action, "progressive"), "because", "weil", Clause(subject, reason)
            )


def because() -> Iterator[Pair]:
    """weil with the verb at the end."""
    people = [who for who in lex.ANYONE if who is not lex.YOU_BOTH]
    forms: list[Options] = [
        {"tense": "progressive"},
        {"tense": "past"},
        {"tense": "future"},
        {"modal": c.WANT_TO},
    ]
    for subject, (action, reason), options in draw("because", 800, people, CAUSES + MOVED, forms):
        why = Clause(
            pronoun(subject.person), reason, "past" if options.get("tense") == "past" else "present"
        )
        yield subordinate(Clause(subject, action, **options), "because", "weil", why)
    for subject, (action, reason), tense in draw(
        "cannot", 330, people, OBSTACLES, ["present", "past"]
    ):
        why = Clause(pronoun(subject.person), reason, tense)
        yield subordinate(
            Clause(subject, action, tense, c.CAN, negative=True), "because", "weil", why
        )
    for subject, (action, reason) in draw("because first", 260, people, CAUSES + MOVED):
        main = Clause(pronoun(subject.person, subject.vocative), action, "progressive")
        yield subordinate_first("because", "weil", Clause(without_vocative(subject), reason), main)


def that() -> Iterator[Pair]:
    """dass after verbs of thinking and saying."""
    states = [*p.NEEDS, *p.FEELINGS, *p.BEING_AT]
    matrices = [
        (THINKERS, THINK, states, EMBEDDED),
        (THINKERS, KNOW, states, EMBEDDED),
        (THINKERS, HOPE, p.GOOD_NEWS, HOPED),
        (SPEAKERS, SAY, states, EMBEDDED),
    ]
    for thinkers, main, what, forms in matrices:
        for thinker, subject, state in draw(
            f"{main.en} that it is", 140, thinkers, lex.ANYONE, what
        ):
            if _differ(thinker, subject):
                yield subordinate(Clause(thinker, main), "that", "dass", Clause(subject, state))
        for thinker, subject, doing, options in draw(
            f"{main.en} that", 200, thinkers, lex.ANYONE, p.ACTIONS, forms
        ):
            if _differ(thinker, subject) and compatible(subject, doing):
                yield subordinate(
                    Clause(thinker, main), "that", "dass", Clause(subject, doing, **options)
                )
    yield from _rejoined()


def _rejoined() -> Iterator[Pair]:
    """Separable verbs in the present: prefix and verb are one word at the end of the clause."""
    separable = [
        what
        for what in [*p.ON_ONES_OWN * 6, *p.HOUSEWORK * 2, *p.DRESSING, *p.MEETING]
        if "|" in what.de
    ]
    for thinker, main, subject, doing in draw(
        "rejoined", 330, THINKERS, [THINK, KNOW], lex.ANYONE, separable
    ):
        if _differ(thinker, subject) and compatible(subject, doing):
            yield subordinate(
                Clause(thinker, main), "that", "dass", Clause(subject, doing, "progressive")
            )


def _differ(thinker: Participant, subject: Participant) -> bool:
    """Return False for the ambiguous "Tom thinks that Tom" and "he thinks that he"."""
    return thinker.en not in subject.en and (
        thinker.person == "1s" or thinker.person != subject.person
    )


def whether() -> Iterator[Pair]:
    """ob in an indirect yes-no question."""
    asked = [who for who in lex.NOT_ADDRESSED if who.person not in ("1s", "2s", "1p")]
    for inquiry, subject, doing, options in draw(
        "whether", 380, INQUIRIES, asked, p.ACTIONS, EMBEDDED[:4]
    ):
        if compatible(subject, doing) and not _to_second(doing):
            yield _inquire(inquiry, ("whether", "ob"), Clause(subject, doing, **options))
    for inquiry, subject, state, tense in draw(
        "whether it is", 240, INQUIRIES, asked, [*p.NEEDS * 2, *p.FEELINGS], ["present", "past"]
    ):
        yield _inquire(inquiry, ("whether", "ob"), Clause(subject, state, tense))


def indirect() -> Iterator[Pair]:
    """A question word begins the subordinate clause."""
    asked = [who for who in lex.NOT_ADDRESSED if who.person not in ("1s", "2s", "1p")]
    for inquiry, subject, (wh, what), past in draw(
        "indirect", 380, INQUIRIES, asked, GAPS, [False, False, True]
    ):
        tense = "past" if past else now(what)
        where_he_is = what.en == "be"  # not: where he's
        yield _inquire(inquiry, wh, Clause(subject, what, tense, contracted=not where_he_is))


def _inquire(inquiry: tuple[str, str, str], link: Pair, sub: Clause) -> Pair:
    german = c.german_clause(sub, "subordinate", link[1])
    return c.sentence(
        f"{inquiry[0]} {link[0]} {c.english_clause(sub)}", f"{inquiry[1]}, {german}", inquiry[2]
    )


def _to_second(what: Predicate) -> bool:
    return any(
        isinstance(part, Participant) and part.person in SECOND
        for part in (what.object, what.recipient)
    )


def if_clauses() -> Iterator[Pair]:
    """wenn first, then the verb."""
    for weather, what in ((WEATHER[:3], IN_THE_RAIN), (WEATHER[3:], IN_THE_SUN)):
        for (en, de), subject, doing, options in draw(
            f"if {weather[0]}", 150, weather, lex.NOT_ADDRESSED, what, HOPED
        ):
            main = Clause(subject, doing, **options)
            yield c.sentence(
                f"if {en}, {c.english_clause(main)}",
                f"wenn {de}, {c.german_clause(main, 'question')}",
            )
    people = [who for who in lex.ANYONE if who is not lex.YOU_BOTH]
    for subject, (action, reason), options in draw(
        "if", 450, people, CAUSES, [*HOPED, {"modal": c.SHOULD}]
    ):
        main = Clause(pronoun(subject.person, subject.vocative), action, **options)
        yield subordinate_first("if", "wenn", Clause(without_vocative(subject), reason), main)


def infinitives() -> Iterator[Pair]:
    """zu before the infinitive, inside a separable verb; a comma before it unless zu stands
    alone."""
    for subject, doing, no in draw("have time", 420, lex.ANYONE, p.TASKS, [{}, NOT, NOT]):
        if compatible(subject, doing):
            yield _with_zu(
                Clause(subject, Predicate("have time", "haben", p.silent("Zeit", "f")), **no), doing
            )
    for subject, doing in draw(
        "try",
        220,
        lex.ANYONE,
        [p.SLEEP, p.GET_UP, p.COOK, p.WORK, *p.CONSUMING, *p.MEDIA, *p.HOUSEWORK],
    ):
        if compatible(subject, doing):
            yield _with_zu(Clause(subject, Predicate("try", "versuchen"), "progressive"), doing)
    for main in (Predicate("forget", "vergessen"), Predicate("promise", "versprechen")):
        for subject, doing in draw(f"{main.en} to", 200, lex.ANYONE, [*p.TASKS, *p.MEETING[::2]]):
            if compatible(subject, doing):
                yield _with_zu(Clause(subject, main, "past"), doing)
    for (en, de), doings in ADVICE.items():
        for doing in doings:
            inner = c.german_infinitive(Clause(lex.I, doing))
            to = f"{en} to {doing.english('1s')}"
            yield c.sentence(f"it's {to}", f"es ist {de}, {inner}", ".", doing.vocative)
            yield c.sentence(f"it isn't {to}", f"es ist nicht {de}, {inner}", ".", doing.vocative)
            yield c.sentence(f"is it {to}", f"ist es {de}, {inner}", "?", doing.vocative)


def _with_zu(main: Clause, doing: Predicate, um: str = "") -> Pair:
    inner = um + c.german_infinitive(Clause(main.subject, doing))
    bare = inner.startswith("zu ") and main.tense == "progressive"  # Tom versucht zu schlafen
    english = f"{c.english_clause(main)} to {doing.english(main.person)}"
    vocative = main.vocative if main.vocative[0] else doing.vocative
    return c.sentence(
        english, f"{c.german_clause(main)}{'' if bare else ','} {inner}", ".", vocative
    )


def purpose() -> Iterator[Pair]:
    """um ... zu."""
    meet_at = [lex.PLACES[name][0] for name in ("station", "airport")]
    tenses = ["progressive", "past", "future"]
    for subject, place, doing, tense in draw(
        "purpose", 170, lex.ANYONE, meet_at, p.PICKING_UP, tenses
    ):
        drive = p.verb("drive", "fahren", place)
        if compatible(subject, doing) and compatible(subject, drive):
            yield _with_zu(Clause(subject, drive, tense), doing, "um ")
    into_town = p.verb("go", "gehen", ("into town", "in die Stadt"))
    for subject, doing, tense in draw("errand", 200, lex.ANYONE, p.BUYING, tenses):
        if compatible(subject, doing):
            yield _with_zu(Clause(subject, into_town, tense), doing, "um ")


def but() -> Iterator[Pair]:
    """aber joins main clauses without changing their word order."""
    people = [who for who in lex.ANYONE if who is not lex.YOU_BOTH]
    states = [p.TIRED, p.SICK, p.HUNGRY, p.THIRSTY, p.HEADACHE, p.BUSY, p.SAD]
    for subject, state, doing, modal in draw(
        "but", 420, people, states, p.TASKS, [c.HAVE_TO, c.WANT_TO]
    ):
        if compatible(subject, doing) and doing not in (p.SLEEP, p.REST):
            first = Clause(without_vocative(subject), state)
            second = Clause(pronoun(subject.person, subject.vocative), doing, modal=modal)
            english = f"{c.english_clause(first)}, but {c.english_clause(second)}"
            yield c.sentence(
                english,
                f"{c.german_clause(first)}, aber {c.german_clause(second)}",
                ".",
                second.vocative,
            )
