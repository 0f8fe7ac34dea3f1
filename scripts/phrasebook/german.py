"""German morphology: verbs by person, noun phrases by gender and case, pronouns, contractions.

Persons are short keys: 1s ich, 2s du, 3m er, 3f sie, 3n es, 1p wir, 2p ihr, 3p sie (plural), Sie
(formal). Genders are m, f, n, and p for any plural. A separable verb is written with a bar:
`an|rufen`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Person = Literal["1s", "2s", "3m", "3f", "3n", "1p", "2p", "3p", "Sie"]
Case = Literal["nom", "acc", "dat"]
Gender = Literal["m", "f", "n", "p"]

CASES: tuple[Case, ...] = ("nom", "acc", "dat")

PRONOUNS: dict[Person, tuple[str, str, str]] = {
    "1s": ("ich", "mich", "mir"),
    "2s": ("du", "dich", "dir"),
    "3m": ("er", "ihn", "ihm"),
    "3f": ("sie", "sie", "ihr"),
    "3n": ("es", "es", "ihm"),
    "1p": ("wir", "uns", "uns"),
    "2p": ("ihr", "euch", "euch"),
    "3p": ("sie", "sie", "ihnen"),
    "Sie": ("Sie", "Sie", "Ihnen"),
}
POSSESSIVES: dict[Person, str] = {
    "1s": "mein",
    "2s": "dein",
    "3m": "sein",
    "3f": "ihr",
    "3n": "sein",
    "1p": "unser",
    "2p": "euer",
    "3p": "ihr",
    "Sie": "Ihr",
}
ARTICLES: dict[Gender, tuple[str, str, str]] = {
    "m": ("der", "den", "dem"),
    "f": ("die", "die", "der"),
    "n": ("das", "das", "dem"),
    "p": ("die", "die", "den"),
}
STRONG_ENDINGS: dict[
    Gender, tuple[str, str, str]
] = {  # dieser, welcher, and adjectives without an article
    "m": ("er", "en", "em"),
    "f": ("e", "e", "er"),
    "n": ("es", "es", "em"),
    "p": ("e", "e", "en"),
}
EIN_ENDINGS: dict[Gender, tuple[str, str, str]] = {  # ein, kein, mein
    "m": ("", "en", "em"),
    "f": ("e", "e", "er"),
    "n": ("", "", "em"),
    "p": ("e", "e", "en"),
}
CONTRACTIONS = {
    "in dem": "im",
    "in das": "ins",
    "an dem": "am",
    "an das": "ans",
    "zu dem": "zum",
    "zu der": "zur",
    "bei dem": "beim",
    "von dem": "vom",
}

# Present tense of the irregular verbs: ich, du, er, wir, ihr.
IRREGULAR_PRESENT = {
    "sein": ("bin", "bist", "ist", "sind", "seid"),
    "haben": ("habe", "hast", "hat", "haben", "habt"),
    "werden": ("werde", "wirst", "wird", "werden", "werdet"),
    "wissen": ("weiß", "weißt", "weiß", "wissen", "wisst"),
    "können": ("kann", "kannst", "kann", "können", "könnt"),
    "müssen": ("muss", "musst", "muss", "müssen", "müsst"),
    "wollen": ("will", "willst", "will", "wollen", "wollt"),
    "dürfen": ("darf", "darfst", "darf", "dürfen", "dürft"),
    "sollen": ("soll", "sollst", "soll", "sollen", "sollt"),
    "mögen": ("mag", "magst", "mag", "mögen", "mögt"),
    "möchten": ("möchte", "möchtest", "möchte", "möchten", "möchtet"),
    "sollten": ("sollte", "solltest", "sollte", "sollten", "solltet"),
}
# Verbs whose past tense is the preterite in spoken German; all others use the perfect.
PRETERITE = {
    "sein": ("war", "warst", "war", "waren", "wart"),
    "haben": ("hatte", "hattest", "hatte", "hatten", "hattet"),
    "wissen": ("wusste", "wusstest", "wusste", "wussten", "wusstet"),
    "können": ("konnte", "konntest", "konnte", "konnten", "konntet"),
    "müssen": ("musste", "musstest", "musste", "mussten", "musstet"),
    "wollen": ("wollte", "wolltest", "wollte", "wollten", "wolltet"),
    "dürfen": ("durfte", "durftest", "durfte", "durften", "durftet"),
    "mögen": ("mochte", "mochtest", "mochte", "mochten", "mochtet"),
}
PERSON_COLUMN: dict[Person, int] = {
    "1s": 0,
    "2s": 1,
    "3m": 2,
    "3f": 2,
    "3n": 2,
    "1p": 3,
    "2p": 4,
    "3p": 3,
    "Sie": 3,
}

# Strong and mixed verbs: the stem of du and er if it changes, and the participle.
STRONG = {
    "backen": ("", "gebacken"),
    "beginnen": ("", "begonnen"),
    "bekommen": ("", "bekommen"),
    "bleiben": ("", "geblieben"),
    "bringen": ("", "gebracht"),
    "denken": ("", "gedacht"),
    "empfehlen": ("empfiehl", "empfohlen"),
    "essen": ("iss", "gegessen"),
    "fahren": ("fähr", "gefahren"),
    "fangen": ("fäng", "gefangen"),
    "finden": ("", "gefunden"),
    "fliegen": ("", "geflogen"),
    "geben": ("gib", "gegeben"),
    "gefallen": ("gefäll", "gefallen"),
    "gehen": ("", "gegangen"),
    "gewinnen": ("", "gewonnen"),
    "halten": ("hält", "gehalten"),
    "helfen": ("hilf", "geholfen"),
    "kennen": ("", "gekannt"),
    "kommen": ("", "gekommen"),
    "laden": ("läd", "geladen"),
    "lassen": ("läss", "gelassen"),
    "laufen": ("läuf", "gelaufen"),
    "leihen": ("", "geliehen"),
    "lesen": ("lies", "gelesen"),
    "liegen": ("", "gelegen"),
    "nehmen": ("nimm", "genommen"),
    "rufen": ("", "gerufen"),
    "scheinen": ("", "geschienen"),
    "schlafen": ("schläf", "geschlafen"),
    "schließen": ("", "geschlossen"),
    "schneiden": ("", "geschnitten"),
    "schreiben": ("", "geschrieben"),
    "schwimmen": ("", "geschwommen"),
    "sehen": ("sieh", "gesehen"),
    "sein": ("", "gewesen"),
    "singen": ("", "gesungen"),
    "sitzen": ("", "gesessen"),
    "sprechen": ("sprich", "gesprochen"),
    "stehen": ("", "gestanden"),
    "steigen": ("", "gestiegen"),
    "tragen": ("träg", "getragen"),
    "treffen": ("triff", "getroffen"),
    "trinken": ("", "getrunken"),
    "tun": ("", "getan"),
    "vergessen": ("vergiss", "vergessen"),
    "verlieren": ("", "verloren"),
    "verlassen": ("verläss", "verlassen"),
    "verstehen": ("", "verstanden"),
    "versprechen": ("versprich", "versprochen"),
    "waschen": ("wäsch", "gewaschen"),
    "werden": ("wird", "geworden"),
    "wissen": ("", "gewusst"),
    "ziehen": ("", "gezogen"),
}
WITH_SEIN = set(
    "bleiben fahren fliegen gehen kommen laufen reisen schwimmen sein steigen wandern werden "
    "auf|stehen auf|wachen ein|schlafen um|ziehen".split()
)
UNSTRESSED = ("be", "emp", "ent", "er", "ge", "ver", "zer")  # verbs with these prefixes have no ge-
# Verbs that begin like a prefix but have none.
NOT_PREFIXES = {
    "essen",
    "geben",
    "gehen",
    "beten",
    "bellen",
}


def split_verb(verb: str) -> tuple[str, str]:
    """Split `an|rufen` into its particle (or "") and its base verb."""
    particle, _, base = verb.rpartition("|")
    return particle, base


def infinitive(verb: str) -> str:
    """Write the infinitive: `anrufen`."""
    return verb.replace("|", "")


def zu_infinitive(verb: str) -> str:
    """Write the infinitive with zu: `anzurufen`, `zu lesen`."""
    particle, base = split_verb(verb)
    return f"{particle}zu{base}" if particle else f"zu {base}"


def stem(base: str) -> str:
    """Remove the ending of a base verb: mach-en, feier-n, tu-n."""
    return base[:-2] if base.endswith("en") else base[:-1]


def present(verb: str, person: Person) -> str:
    """Conjugate the base verb in the present tense; the particle is not part of the result."""
    base = split_verb(verb)[1]
    if base in IRREGULAR_PRESENT:
        return IRREGULAR_PRESENT[base][PERSON_COLUMN[person]]
    root = stem(base)
    if person in ("1p", "3p", "Sie"):
        return base
    if person == "1s":
        return (root[:-2] + "l" if root.endswith("el") else root) + "e"
    changed = STRONG.get(base, ("", ""))[0]
    if changed and person != "2p":
        return _changed(changed, person)
    link = "e" if needs_e(root) else ""
    if person == "2s":
        return root + ("t" if root.endswith(("s", "ß", "z", "x")) else f"{link}st")
    return f"{root}{link}t"


def _changed(root: str, person: Person) -> str:
    """Add the ending of du or er to a stem with a changed vowel, without a linking e: liest, hält,
    lädst."""
    if person == "2s":
        return root + ("t" if root.endswith(("s", "ß", "z")) else "st")
    return root if root.endswith("t") else root + "t"


def needs_e(root: str) -> bool:
    """Return whether -st and -t need a linking e: wartest, findet, öffnet, rechnet."""
    if root.endswith(("t", "d")):
        return True
    return (
        root.endswith(("m", "n")) and len(root) > 2 and root[-2] in "bcdfgkptw"
    ) or root.endswith(("chn", "ffn"))


def preterite(verb: str, person: Person) -> str:
    """Conjugate one of the `PRETERITE` verbs."""
    return PRETERITE[verb][PERSON_COLUMN[person]]


def participle(verb: str) -> str:
    """Form the past participle: gemacht, angerufen, verkauft, telefoniert."""
    particle, base = split_verb(verb)
    if base in STRONG:
        return particle + STRONG[base][1]
    root = stem(base)
    weak = root + ("et" if needs_e(root) else "t")
    plain = base.endswith("ieren") or (base.startswith(UNSTRESSED) and base not in NOT_PREFIXES)
    return particle + (weak if plain else f"ge{weak}")


def auxiliary(verb: str) -> str:
    """Return the auxiliary of the perfect: sein for motion and change of state, otherwise haben."""
    return "sein" if verb in WITH_SEIN or split_verb(verb)[1] in WITH_SEIN else "haben"


def imperative(verb: str, person: Person) -> str:
    """Form the imperative for du, ihr or Sie without particle and pronoun: lies, wartet, nehmen."""
    base = split_verb(verb)[1]
    if base == "sein":
        return {"2s": "sei", "2p": "seid", "Sie": "seien"}[person]
    if person == "2p":
        return present(verb, "2p")
    if person == "Sie":
        return base
    changed = STRONG.get(base, ("", ""))[0]
    if changed and not set(changed) & set("äöü"):  # lies, nimm, but fahr, schlaf
        return changed
    root = stem(base)
    return root + ("e" if needs_e(root) or root.endswith("er") else "")


@dataclass(frozen=True)
class Noun:
    """A German noun: its singular, gender and plural; weak nouns add -(e)n outside the
    nominative."""

    singular: str
    gender: Gender
    plural: str = ""
    weak: bool = False

    def form(self, case: Case, plural: bool = False) -> str:
        """Decline the noun."""
        if plural:
            ends_well = self.plural.endswith(("n", "s"))
            return self.plural + ("n" if case == "dat" and not ends_well else "")
        if self.weak and case != "nom":
            return self.singular + ("n" if self.singular.endswith(("e", "r")) else "en")
        return self.singular


def ending(table: dict[Gender, tuple[str, str, str]], gender: Gender, case: Case) -> str:
    """Look up an ending or an article."""
    return table[gender][CASES.index(case)]


def determiner(word: str, gender: Gender, case: Case) -> str:
    """Inflect der, dies, welch, ein, kein or a possessive; return other words unchanged."""
    if word == "der":
        return ending(ARTICLES, gender, case)
    if word in ("dies", "welch", "jed"):
        return word + ending(STRONG_ENDINGS, gender, case)
    if word in ("ein", "kein", *POSSESSIVES.values()):
        if word == "ein" and gender == "p":
            return ""
        tail = ending(EIN_ENDINGS, gender, case)
        return ("eur" if word == "euer" and tail else word) + tail
    return word


def adjective(root: str, word: str, gender: Gender, case: Case) -> str:
    """Inflect an attributive adjective by the determiner before it ("" for none)."""
    direct = case == "nom" or (case == "acc" and gender != "m")
    if word in ("der", "dies", "welch", "jed"):
        return root + ("e" if direct and gender != "p" else "en")
    if word and not (word == "ein" and gender == "p"):
        strong = direct and gender != "p"
        return root + (ending(STRONG_ENDINGS, gender, case) if strong else "en")
    return root + ending(STRONG_ENDINGS, gender, case)


def noun_phrase(word: str, noun: Noun, case: Case, *, adj: str = "", plural: bool = False) -> str:
    """Write determiner, adjective stem and noun in agreement: `einen alten Mann`."""
    gender: Gender = "p" if plural else noun.gender
    parts = [
        determiner(word, gender, case),
        adj and adjective(adj, word, gender, case),
        noun.form(case, plural),
    ]
    return " ".join(filter(None, parts))


def contract(preposition: str, phrase: str) -> str:
    """Join and contract preposition and noun phrase: `in` + `dem Park` is `im Park`."""
    text = f"{preposition} {phrase}"
    for long, short in CONTRACTIONS.items():
        if text.startswith(long + " "):
            return short + text[len(long) :]
    return text
