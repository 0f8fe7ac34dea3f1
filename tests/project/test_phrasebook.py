"""The phrasebook: its file, its splits, and the grammar where German is difficult."""

from __future__ import annotations

import bz2
import re
import runpy
import sys
from collections.abc import Callable, Iterable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from nmt.data.sources import open_split
from nmt.data.sources.phrasebook import FILE
from phrasebook import clause as c
from phrasebook import corpus, english, german
from phrasebook import lexicon as lex
from phrasebook import predicates as p
from phrasebook.clause import Clause, Pair, Predicate
from phrasebook.corpus import generate_splits, serialize, tokenize
from phrasebook.german import Noun
from phrasebook.lexicon import THINGS
from phrasebook.numerals import clock, english_number, german_number
from phrasebook.patterns import PATTERNS, PINNED, people, things
from phrasebook.sampling import draw
from phrasebook.words import Phrase

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "phrasebook"
SPLITS: dict[str, list[Pair]] = {}
EVERY: list[Pair] = []
MADE: dict[Callable[[], Iterable[Pair]], list[Pair]] = {}
"""The pairs of each pattern."""


@pytest.fixture(scope="module", autouse=True)
def pairs_of_all_patterns() -> None:
    """Make the pairs once for all tests."""
    MADE.update({pattern: list(pattern()) for pattern in [*PINNED, *PATTERNS]})
    with pytest.MonkeyPatch.context() as patch:
        for name, patterns in (("PINNED", PINNED), ("PATTERNS", PATTERNS)):
            patch.setattr(corpus, name, [partial(MADE.__getitem__, each) for each in patterns])
        SPLITS.update(generate_splits())
    EVERY[:] = [pair for pairs in SPLITS.values() for pair in pairs]


def bare(text: str) -> str:
    """Reduce a sentence to lower-case letters and digits, independently of the generator."""
    return " ".join("".join(ch if ch.isalnum() or ch == " " else "" for ch in text.lower()).split())


# --- the corpus


def test_the_package_contains_the_generated_pairs_in_the_same_order() -> None:
    """The hash seed of each process is another one: no pair depends on the order of a set."""
    assert bz2.decompress(FILE.read_bytes()) == serialize(SPLITS)
    for split, pairs in SPLITS.items():
        assert list(open_split("phrasebook", split, "en", "de").pairs()) == pairs


def test_the_script_updates_a_file_only_if_its_content_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "phrasebook.tsv.bz2"
    path.write_bytes(b"not bzip2")
    few = {split: pairs[:10] for split, pairs in SPLITS.items()}
    monkeypatch.setattr(corpus, "generate_splits", lambda: few)
    monkeypatch.setattr(sys, "argv", ["phrasebook", "-o", str(path)])
    monkeypatch.setattr(sys, "path", [*sys.path])  # the script changes it

    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert capsys.readouterr().out == f"{path}: 30 pairs\n"
    content = bz2.decompress(path.read_bytes())
    assert content == serialize(few)

    path.write_bytes(other_compression := bz2.compress(content, compresslevel=1))
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert capsys.readouterr().out == f"{path} is up to date: 30 pairs\n"
    assert path.read_bytes() == other_compression


def test_the_splits_are_large_enough_and_all_pairs_are_distinct() -> None:
    assert 22_000 <= len(SPLITS["train"]) <= 40_000
    assert len(SPLITS["valid"]) == len(SPLITS["test"]) == 1000
    assert len(set(EVERY)) == len(EVERY)
    assert len({de for _, de in EVERY}) > 20_000


@pytest.mark.parametrize("side", [0, 1], ids=["English", "German"])
def test_no_sentence_is_in_two_splits_even_without_case_and_punctuation(side: int) -> None:
    sets = {split: {bare(pair[side]) for pair in pairs} for split, pairs in SPLITS.items()}
    assert not sets["train"] & sets["test"]
    assert not sets["train"] & sets["valid"]
    assert not sets["valid"] & sets["test"]


def test_every_english_sentence_has_one_translation() -> None:
    assert len({bare(en) for en, _ in EVERY}) == len(EVERY)


def test_the_patterns_agree_on_translations() -> None:
    """Each English sentence has one translation even before duplicates are removed."""
    made: dict[str, str] = {}
    for pattern in [*PINNED, *PATTERNS]:
        for en, de in MADE[pattern]:
            assert made.setdefault(en, de) == de, en


def test_pinned_sentences_are_in_the_training_set() -> None:
    train = set(SPLITS["train"])
    pinned = {bare(en) for pattern in PINNED for en, _ in MADE[pattern]}
    assert pinned <= {bare(en) for en, _ in train}
    assert {
        ("I'm thirsty.", "Ich habe Durst."),
        ("I am thirsty.", "Ich habe Durst."),
        ("I'm hungry.", "Ich habe Hunger."),
        ("I'm tired.", "Ich bin müde."),
        ("Are we done?", "Sind wir fertig?"),
        ("Are you thirsty?", "Hast du Durst?"),
        ("Are you thirsty, Mr Weber?", "Haben Sie Durst, Herr Weber?"),
        ("I was thirsty.", "Ich hatte Durst."),
        ("Tom isn't thirsty.", "Tom hat keinen Durst."),
        ("I'm very thirsty.", "Ich habe großen Durst."),
        ("I'm drinking water because I'm thirsty.", "Ich trinke Wasser, weil ich Durst habe."),
    } <= train


def test_every_held_out_word_is_in_the_training_set() -> None:
    for side in (0, 1):
        train = {word for pair in SPLITS["train"] for word in tokenize(pair[side])}
        held_out = {
            word for pair in SPLITS["test"] + SPLITS["valid"] for word in tokenize(pair[side])
        }
        assert held_out <= train


def test_common_words_are_frequent() -> None:
    train = [tokenize(en) for en, _ in SPLITS["train"]]
    for word in "thirsty hungry tired done because can want don't yesterday tomorrow where".split():
        assert sum(word in words for words in train) >= 150, word


@pytest.mark.parametrize("side", [0, 1], ids=["English", "German"])
def test_every_sentence_is_well_formed(side: int) -> None:
    for pair in EVERY:
        text = pair[side]
        assert re.fullmatch(r"[A-ZÄÖÜ].*[.?!]", text), text
        assert "  " not in text, text
        assert text == text.strip(), text
        assert not re.search(r"\s[.,?!]|[{}|_]|,,", text), text
        assert 1 <= len(text.split()) <= 16, text
        last = re.split(r"(?<=[.?!]) ", text)
        assert all(part[0].isupper() for part in last), text


def test_both_sides_have_the_same_punctuation_and_vocative() -> None:
    for en, de in EVERY:
        assert en[-1] == de[-1], (en, de)
        for mr, herr in (
            ("Mr Weber", "Herr Weber"),
            ("Mrs Klein", "Frau Klein"),
            (", children", ", Kinder"),
        ):
            assert (mr in en) == (herr in de), (en, de)


def test_no_pattern_dominates_the_corpus() -> None:
    sizes = {pattern.__name__: len(MADE[pattern]) for pattern in PATTERNS}
    assert max(sizes.values()) < 0.2 * len(EVERY)
    assert min(sizes.values()) >= 25


# --- invariants of German

VERBS = [
    *p.NEEDS,
    *p.OWNING,
    *p.LIKING,
    *p.KNOWING,
    *p.ENJOYING,
    *p.HABITS,
    *p.DOINGS,
    *p.DRESSING,
    *p.MEETING,
    *p.LOOKING_FORWARD,
]
FINITE: set[str] = set()
for _verb in "sein haben werden wissen können müssen wollen dürfen mögen möchten sollten".split():
    FINITE |= set(german.IRREGULAR_PRESENT[_verb]) | set(german.PRETERITE.get(_verb, ()))


def _finite_forms(*, joined: bool) -> set[str]:
    """Collect the finite verbs with or without their separable prefixes."""
    persons: tuple[german.Person, ...] = ("1s", "2s", "3m", "1p", "2p")
    made = set(FINITE)
    for predicate in VERBS:
        particle = german.split_verb(predicate.de)[0] if joined else ""
        made |= {particle + german.present(predicate.de, person) for person in persons}
    extra = "bleiben weinen lachen machen kommen suchen schreiben versuchen".split()
    return made | {german.present(verb, person) for verb in extra for person in persons}


_JOINED = _finite_forms(joined=True)


def test_the_finite_verb_is_last_after_weil_dass_and_ob() -> None:
    seen = 0
    for _, de in EVERY:
        found = re.search(r", (weil|dass|ob) ([^,.?]+)", de)
        if found:
            seen += 1
            assert found[2].split()[-1] in _JOINED, de
    assert seen > 1500


def test_a_main_clause_after_wenn_or_weil_begins_with_its_verb() -> None:
    finite = _finite_forms(joined=False)
    seen = 0
    for _, de in EVERY:
        found = re.match(r"(Wenn|Weil) ([^,]+), (\w+)", de)
        if found:
            seen += 1
            assert found[2].split()[-1] in _JOINED | {"scheint", "regnet", "schneit"}, de
            assert found[3] in finite, de
    assert seen > 500


def test_the_verb_is_second_after_an_initial_time() -> None:
    finite = _finite_forms(joined=False)
    front = re.compile(r"(Heute|Morgen|Gestern|Am \w+tag|Jeden \w+|Im (?:Januar|Mai|Sommer)) (\w+)")
    seen = 0
    for _, de in EVERY:
        found = front.match(de)
        if found and found[2] not in ("Abend", "Morgen", "Nachmittag"):
            seen += 1
            assert found[2] in finite | {"regnet", "schneit"}, de
    assert seen > 200


def test_modals_and_werden_end_with_an_unsplit_infinitive() -> None:
    infinitives = {german.infinitive(what.de) for what in VERBS}
    infinitives |= {
        *"bleiben weinen lachen machen suchen schreiben sein legen stellen nehmen".split()
    }
    infinitives |= {*"mitbringen bezahlen verkaufen anprobieren".split()}
    seen = 0
    for _, de in EVERY:
        found = re.match(
            r"(Ich|Wir|Er|Tom|Anna)"
            r" (?:kann|können|muss|müssen|will|wollen|darf|dürfen|werde|wird|werden) (.+?)[.,]",
            de,
        )
        if found:
            seen += 1
            assert found[2].split()[-1] in infinitives, de
    assert seen > 400


def test_no_clause_has_both_kein_and_nicht() -> None:
    for _, de in EVERY:
        clauses = re.split(r"[,.?!]", de)
        assert all(
            not (re.search(r"\bkein", part) and re.search(r"\bnicht\b", part)) for part in clauses
        ), de
        assert not re.search(r"\bnicht (eine|einen|einem|ein [A-ZÄÖÜ])\b", de), de


def test_articles_and_nouns_agree() -> None:
    """Every article before a noun of known gender is a form of this gender."""
    allowed = {"m": {"der", "den", "dem"}, "f": {"die", "der"}, "n": {"das", "dem"}}
    genders = {
        item.de.singular: item.de.gender
        for item in lex.THINGS.values()
        if item.de.singular != item.de.plural
    }
    seen = 0
    for _, de in EVERY:
        for article, noun in pairwise(re.findall(r"\w+", de)):
            if article in {"der", "die", "das", "den", "dem"} and noun in genders:
                seen += 1
                assert article in allowed[genders[noun]], de
    assert seen > 3000


def test_english_verbs_agree() -> None:
    for en, _ in EVERY:
        assert not re.search(
            r"(?:^|that |because )(?:he|she|it|Tom|Anna) (am|are|have|do|don't|were|aren't)\b",
            en,
            re.IGNORECASE,
        ), en
        assert not re.search(
            r"(?:^|that |because )(?:we|they|you) (am|is|has|does|doesn't|was|isn't)\b",
            en,
            re.IGNORECASE,
        ), en
        assert not re.search(r"\ba [aeio]\w", en), en
        assert not re.search(r"\ban [^aeiou ]", en), en
        assert not re.search(r"\b(doesn't|don't|didn't) (?!need|feed)\w+(ed|oes)\b", en), en


# --- morphology

PRESENT_TENSE = [
    ("fahren", "ich fahre du fährst er fährt wir fahren ihr fahrt"),
    ("essen", "ich esse du isst er isst wir essen ihr esst"),
    ("lesen", "ich lese du liest er liest wir lesen ihr lest"),
    ("sehen", "ich sehe du siehst er sieht wir sehen ihr seht"),
    ("nehmen", "ich nehme du nimmst er nimmt wir nehmen ihr nehmt"),
    ("schlafen", "ich schlafe du schläfst er schläft wir schlafen ihr schlaft"),
    ("ein|laden", "ich lade du lädst er lädt wir laden ihr ladet"),
    ("waschen", "ich wasche du wäschst er wäscht wir waschen ihr wascht"),
    ("helfen", "ich helfe du hilfst er hilft wir helfen ihr helft"),
    ("arbeiten", "ich arbeite du arbeitest er arbeitet wir arbeiten ihr arbeitet"),
    ("finden", "ich finde du findest er findet wir finden ihr findet"),
    ("öffnen", "ich öffne du öffnest er öffnet wir öffnen ihr öffnet"),
    ("tanzen", "ich tanze du tanzt er tanzt wir tanzen ihr tanzt"),
    ("reisen", "ich reise du reist er reist wir reisen ihr reist"),
    ("lernen", "ich lerne du lernst er lernt wir lernen ihr lernt"),
    ("wohnen", "ich wohne du wohnst er wohnt wir wohnen ihr wohnt"),
    ("füttern", "ich füttere du fütterst er füttert wir füttern ihr füttert"),
    ("sein", "ich bin du bist er ist wir sind ihr seid"),
    ("haben", "ich habe du hast er hat wir haben ihr habt"),
    ("wissen", "ich weiß du weißt er weiß wir wissen ihr wisst"),
    ("mögen", "ich mag du magst er mag wir mögen ihr mögt"),
]


@pytest.mark.parametrize(("verb", "forms"), PRESENT_TENSE, ids=[verb for verb, _ in PRESENT_TENSE])
def test_present_tense(verb: str, forms: str) -> None:
    persons: list[german.Person] = ["1s", "2s", "3m", "1p", "2p"]
    made = [f"{german.PRONOUNS[person][0]} {german.present(verb, person)}" for person in persons]
    assert " ".join(made) == forms
    assert german.present(verb, "Sie") == german.present(verb, "3p") == german.present(verb, "1p")


@pytest.mark.parametrize(
    ("verb", "perfect"),
    [
        ("machen", "haben gemacht"),
        ("arbeiten", "haben gearbeitet"),
        ("an|rufen", "haben angerufen"),
        ("auf|stehen", "sein aufgestanden"),
        ("ein|kaufen", "haben eingekauft"),
        ("auf|wachen", "sein aufgewacht"),
        ("an|kommen", "sein angekommen"),
        ("bekommen", "haben bekommen"),
        ("besuchen", "haben besucht"),
        ("verkaufen", "haben verkauft"),
        ("reparieren", "haben repariert"),
        ("an|probieren", "haben anprobiert"),
        ("gefallen", "haben gefallen"),
        ("gehören", "haben gehört"),
        ("gehen", "sein gegangen"),
        ("fahren", "sein gefahren"),
        ("bleiben", "sein geblieben"),
        ("um|ziehen", "sein umgezogen"),
        ("an|ziehen", "haben angezogen"),
        ("ein|schlafen", "sein eingeschlafen"),
        ("schlafen", "haben geschlafen"),
        ("beeilen", "haben beeilt"),
        ("fern|sehen", "haben ferngesehen"),
        ("mit|bringen", "haben mitgebracht"),
        ("wandern", "sein gewandert"),
    ],
)
def test_perfect(verb: str, perfect: str) -> None:
    assert f"{german.auxiliary(verb)} {german.participle(verb)}" == perfect


@pytest.mark.parametrize(
    ("verb", "du", "ihr", "zu"),
    [
        ("lesen", "lies", "lest", "zu lesen"),
        ("nehmen", "nimm", "nehmt", "zu nehmen"),
        ("fahren", "fahr", "fahrt", "zu fahren"),
        ("warten", "warte", "wartet", "zu warten"),
        ("öffnen", "öffne", "öffnet", "zu öffnen"),
        ("füttern", "füttere", "füttert", "zu füttern"),
        ("ein|laden", "lade", "ladet", "einzuladen"),
        ("auf|stehen", "steh", "steht", "aufzustehen"),
        ("sein", "sei", "seid", "zu sein"),
    ],
)
def test_imperative_and_zu(verb: str, du: str, ihr: str, zu: str) -> None:
    assert (
        german.imperative(verb, "2s"),
        german.imperative(verb, "2p"),
        german.zu_infinitive(verb),
    ) == (du, ihr, zu)


@pytest.mark.parametrize(
    ("det", "noun", "adj", "forms"),
    [
        (
            "der",
            Noun("Tisch", "m", "Tische"),
            "alt",
            "der alte Tisch, den alten Tisch, dem alten Tisch",
        ),
        (
            "ein",
            Noun("Tisch", "m", "Tische"),
            "alt",
            "ein alter Tisch, einen alten Tisch, einem alten Tisch",
        ),
        (
            "ein",
            Noun("Lampe", "f", "Lampen"),
            "alt",
            "eine alte Lampe, eine alte Lampe, einer alten Lampe",
        ),
        (
            "mein",
            Noun("Buch", "n", "Bücher"),
            "teur",
            "mein teures Buch, mein teures Buch, meinem teuren Buch",
        ),
        ("euer", Noun("Kind", "n", "Kinder"), "", "euer Kind, euer Kind, eurem Kind"),
        ("euer", Noun("Hund", "m", "Hunde"), "", "euer Hund, euren Hund, eurem Hund"),
        (
            "der",
            Noun("Nachbar", "m", "Nachbarn", weak=True),
            "",
            "der Nachbar, den Nachbarn, dem Nachbarn",
        ),
        (
            "dies",
            Noun("Junge", "m", "Jungen", weak=True),
            "",
            "dieser Junge, diesen Jungen, diesem Jungen",
        ),
        ("", Noun("Durst", "m"), "groß", "großer Durst, großen Durst, großem Durst"),
        (
            "kein",
            Noun("Hunger", "m"),
            "groß",
            "kein großer Hunger, keinen großen Hunger, keinem großen Hunger",
        ),
    ],
)
def test_declension(det: str, noun: Noun, adj: str, forms: str) -> None:
    made = ", ".join(german.noun_phrase(det, noun, case, adj=adj) for case in german.CASES)
    assert made == forms


@pytest.mark.parametrize(
    ("det", "noun", "adj", "forms"),
    [
        (
            "der",
            Noun("Kind", "n", "Kinder"),
            "klein",
            "die kleinen Kinder, die kleinen Kinder, den kleinen Kindern",
        ),
        ("ein", Noun("Apfel", "m", "Äpfel"), "rot", "rote Äpfel, rote Äpfel, roten Äpfeln"),
        (
            "kein",
            Noun("Auto", "n", "Autos"),
            "neu",
            "keine neuen Autos, keine neuen Autos, keinen neuen Autos",
        ),
        (
            "unser",
            Noun("Freund", "m", "Freunde"),
            "",
            "unsere Freunde, unsere Freunde, unseren Freunden",
        ),
    ],
)
def test_plural_declension(det: str, noun: Noun, adj: str, forms: str) -> None:
    made = ", ".join(
        german.noun_phrase(det, noun, case, adj=adj, plural=True) for case in german.CASES
    )
    assert made == forms


@pytest.mark.parametrize(
    ("base", "forms"),
    [
        ("get up", "gets up, got up, got up, getting up"),
        ("have a dog", "has a dog, had a dog, had a dog, having a dog"),
        ("watch TV", "watches TV, watched TV, watched TV, watching TV"),
        ("tidy it up", "tidies it up, tidied it up, tidied it up, tidying it up"),
        ("write a letter", "writes a letter, wrote a letter, written a letter, writing a letter"),
        ("go home", "goes home, went home, gone home, going home"),
        (
            "travel to Rome",
            "travels to Rome, travelled to Rome, travelled to Rome, travelling to Rome",
        ),
        ("play tennis", "plays tennis, played tennis, played tennis, playing tennis"),
    ],
)
def test_english_verbs(base: str, forms: str) -> None:
    made = [
        english.finite(base, "3f"),
        english.finite(base, "3f", past=True),
        english.past_participle(base),
        english.ing(base),
    ]
    assert ", ".join(made) == forms


@pytest.mark.parametrize(
    ("hour", "minute", "en", "de"),
    [
        (2, 30, "half past two", "halb drei"),
        (12, 30, "half past twelve", "halb eins"),
        (1, 0, "one o'clock", "ein Uhr"),
        (1, 15, "a quarter past one", "Viertel nach eins"),
        (3, 45, "a quarter to four", "Viertel vor vier"),
        (12, 50, "ten to one", "zehn vor eins"),
        (6, 20, "twenty past six", "zwanzig nach sechs"),
    ],
)
def test_clock(hour: int, minute: int, en: str, de: str) -> None:
    assert clock(hour, minute) == (en, de)


@pytest.mark.parametrize(
    ("n", "en", "de"),
    [
        (1, "one", "eins"),
        (16, "sixteen", "sechzehn"),
        (17, "seventeen", "siebzehn"),
        (21, "twenty-one", "einundzwanzig"),
        (30, "thirty", "dreißig"),
        (67, "sixty-seven", "siebenundsechzig"),
        (100, "one hundred", "hundert"),
        (245, "two hundred and forty-five", "zweihundertfünfundvierzig"),
    ],
)
def test_numbers(n: int, en: str, de: str) -> None:
    assert (english_number(n), german_number(n)) == (en, de)


# --- clauses

CALL_MOTHER = Predicate("call", "an|rufen", p.own(lex.MOTHER))
THE_BOOK = Predicate("read", "lesen", p.the(THINGS["book"]))
A_BOOK = Predicate("read", "lesen", p.a(THINGS["book"]))
GIVE_BOOK = Predicate("give", "geben", p.a(THINGS["book"]), recipient=p.own(lex.SON))
WAIT = Predicate("wait for", "warten", lex.HE, prep="auf")
TO_PARK = p.GOING["park"]
RED_COAT = Predicate("wear", "tragen", p.a(THINGS["coat"], lex.RED))
MONDAY = ("on Monday", "am Montag")

SENTENCES: list[tuple[Pair, str, str]] = [
    (c.statement(Clause(lex.I, p.THIRSTY)), "I'm thirsty.", "Ich habe Durst."),
    (c.statement(Clause(lex.I, p.COLD, negative=True)), "I'm not cold.", "Mir ist nicht kalt."),
    (c.question(Clause(lex.YOU, p.COLD)), "Are you cold?", "Ist dir kalt?"),
    (c.question(Clause(lex.YOU_BOTH, p.HUNGRY)), "Are you two hungry?", "Habt ihr beide Hunger?"),
    (
        c.question(Clause(lex.MRS_KLEIN, p.DONE)),
        "Are you done, Mrs Klein?",
        "Sind Sie fertig, Frau Klein?",
    ),
    (
        c.question(Clause(lex.YOU, p.HAS_TIME, negative=True)),
        "Don't you have time?",
        "Hast du keine Zeit?",
    ),
    (
        c.statement(Clause(lex.TOM, CALL_MOTHER, "progressive")),
        "Tom is calling his mother.",
        "Tom ruft seine Mutter an.",
    ),
    (
        c.statement(Clause(lex.ANNA, CALL_MOTHER, "past")),
        "Anna called her mother.",
        "Anna hat ihre Mutter angerufen.",
    ),
    (
        c.statement(Clause(lex.YOU_CHILDREN, CALL_MOTHER, modal=c.HAVE_TO)),
        "You have to call your mother, children.",
        "Ihr müsst eure Mutter anrufen, Kinder.",
    ),
    (
        c.statement(Clause(lex.MR_WEBER, CALL_MOTHER, "future")),
        "You'll call your mother, Mr Weber.",
        "Sie werden Ihre Mutter anrufen, Herr Weber.",
    ),
    (
        c.fronted(Clause(lex.WE, p.GET_UP, "progressive", time=MONDAY)),
        "On Monday we're getting up.",
        "Am Montag stehen wir auf.",
    ),
    (
        c.statement(Clause(lex.I, THE_BOOK, negative=True, tense="past")),
        "I didn't read the book.",
        "Ich habe das Buch nicht gelesen.",
    ),
    (
        c.statement(Clause(lex.I, A_BOOK, negative=True, tense="past")),
        "I didn't read a book.",
        "Ich habe kein Buch gelesen.",
    ),
    (
        c.statement(Clause(lex.HE, A_BOOK, "perfect", negative=True, already="yet")),
        "He hasn't read a book yet.",
        "Er hat noch kein Buch gelesen.",
    ),
    (
        c.statement(Clause(lex.HE, THE_BOOK, "perfect", already="already")),
        "He has already read the book.",
        "Er hat das Buch schon gelesen.",
    ),
    (
        c.statement(
            Clause(lex.SHE, THE_BOOK, negative=True, tense="progressive", time=("today", "heute"))
        ),
        "She isn't reading the book today.",
        "Sie liest das Buch heute nicht.",
    ),
    (
        c.statement(Clause(lex.HE, TO_PARK, "progressive", negative=True)),
        "He isn't going to the park.",
        "Er geht nicht in den Park.",
    ),
    (
        c.statement(Clause(lex.SHE, TO_PARK, "past", time=("yesterday", "gestern"))),
        "She went to the park yesterday.",
        "Sie ist gestern in den Park gegangen.",
    ),
    (
        c.statement(Clause(lex.THEY, WAIT, "progressive")),
        "They're waiting for him.",
        "Sie warten auf ihn.",
    ),
    (
        c.statement(Clause(lex.MY_FATHER, GIVE_BOOK, "past", time=("yesterday", "gestern"))),
        "My father gave his son a book yesterday.",
        "Mein Vater hat gestern seinem Sohn ein Buch gegeben.",
    ),
    (
        c.statement(Clause(lex.I, Predicate("help", "helfen", lex.YOU, "dat"), modal=c.CAN)),
        "I can help you.",
        "Ich kann dir helfen.",
    ),
    (
        c.statement(Clause(lex.ANNA, RED_COAT, "progressive")),
        "Anna is wearing a red coat.",
        "Anna trägt einen roten Mantel.",
    ),
    (
        c.statement(Clause(lex.ANNA, RED_COAT, "progressive", negative=True)),
        "Anna isn't wearing a red coat.",
        "Anna trägt keinen roten Mantel.",
    ),
    (c.statement(Clause(lex.I, p.REST, "past")), "I rested.", "Ich habe mich ausgeruht."),
    (
        c.question(Clause(lex.YOU, p.WALK, "past")),
        "Did you go for a walk?",
        "Bist du spazieren gegangen?",
    ),
    (
        c.statement(Clause(lex.HE, p.GET_UP, modal=c.WANT_TO, negative=True)),
        "He doesn't want to get up.",
        "Er will nicht aufstehen.",
    ),
    (
        c.statement(Clause(lex.HE, p.GET_UP, modal=c.MUST_NOT, negative=True)),
        "He must not get up.",
        "Er darf nicht aufstehen.",
    ),
    (
        c.statement(Clause(lex.I, p.SLEEP, "past", c.CAN, negative=True)),
        "I couldn't sleep.",
        "Ich konnte nicht schlafen.",
    ),
    (
        c.question(Clause(lex.I, A_BOOK, modal=c.MAY_I)),
        "May I read a book?",
        "Darf ich ein Buch lesen?",
    ),
    (c.command(Clause(lex.YOU, THE_BOOK)), "Read the book!", "Lies das Buch!"),
    (c.command(Clause(lex.YOU, p.GET_UP, negative=True)), "Don't get up!", "Steh nicht auf!"),
    (
        c.command(Clause(lex.MR_WEBER, p.REST), please=True),
        "Please rest, Mr Weber!",
        "Bitte ruhen Sie sich aus, Herr Weber!",
    ),
    (
        c.command(Clause(lex.YOU_CHILDREN, p.COME_ALONG)),
        "Come along, children!",
        "Kommt mit, Kinder!",
    ),
    (
        c.question(Clause(lex.TOM, TO_PARK, "progressive"), ("when", "wann")),
        "When is Tom going to the park?",
        "Wann geht Tom in den Park?",
    ),
    (
        c.statement(
            Clause(Phrase(THINGS["bike"]), Predicate("belong to", "gehören", lex.MY_BROTHER, "dat"))
        ),
        "The bike belongs to my brother.",
        "Das Fahrrad gehört meinem Bruder.",
    ),
]


@pytest.mark.parametrize(("made", "en", "de"), SENTENCES, ids=[en for _, en, _ in SENTENCES])
def test_sentences(made: Pair, en: str, de: str) -> None:
    assert made == (en, de)


def test_a_subordinate_clause_does_not_split_the_separable_verb() -> None:
    clause = Clause(lex.TOM, CALL_MOTHER)
    assert c.german_clause(clause, "subordinate") == "Tom seine Mutter anruft"
    assert (
        c.german_clause(Clause(lex.TOM, CALL_MOTHER, "past"), "subordinate")
        == "Tom seine Mutter angerufen hat"
    )
    assert (
        c.german_clause(Clause(lex.TOM, CALL_MOTHER, modal=c.CAN), "subordinate")
        == "Tom seine Mutter anrufen kann"
    )
    assert c.german_infinitive(clause) == "seine Mutter anzurufen"
    assert c.german_clause(Clause(lex.I, p.COLD), "subordinate") == "mir kalt ist"


def test_a_pronoun_has_the_gender_of_the_thing() -> None:
    for name, pronoun in (("key", "er"), ("lamp", "sie"), ("bed", "es")):
        assert things.it(Phrase(THINGS[name])).de[0] == pronoun


def test_two_way_prepositions_contract() -> None:
    assert german.contract("in", "dem Park") == "im Park"
    assert german.contract("in", "das Kino") == "ins Kino"
    assert german.contract("zu", "der Schule") == "zur Schule"
    assert german.contract("auf", "dem Tisch") == "auf dem Tisch"


def test_incompatible_subjects_and_objects() -> None:
    assert not people.compatible(lex.I, Predicate("call", "an|rufen", lex.I))
    assert not people.compatible(lex.WE, Predicate("call", "an|rufen", lex.I))
    assert not people.compatible(lex.YOU, Predicate("call", "an|rufen", lex.MR_WEBER))
    assert not people.compatible(
        lex.THE_CHILDREN, Predicate("drink", "trinken", p.the(THINGS["beer"]))
    )
    assert people.compatible(lex.I, Predicate("call", "an|rufen", lex.YOU))


def test_draw_is_deterministic_distinct_and_limited() -> None:
    axes = (range(50), "abc", [True, False])
    first = list(draw("name", 40, *axes))
    assert first == list(draw("name", 40, *axes))
    assert len(set(first)) == len(first) == 40
    assert first != list(draw("another", 40, *axes))
    assert sorted(draw("all", 1000, range(4), "ab")) == [
        (n, letter) for n in range(4) for letter in "ab"
    ]
