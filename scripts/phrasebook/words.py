"""What a sentence is built from: things, qualities, people, and the noun phrases made of them, in both languages."""

from __future__ import annotations

from dataclasses import dataclass, replace

from phrasebook import english, german
from phrasebook.german import Case, Gender, Noun, Person
from phrasebook.numerals import english_number, german_number


@dataclass(frozen=True)
class Thing:
    """A noun in both languages.

    `paired` things are plural in English alone (trousers, glasses). An empty `en` is a noun that only the German
    idiom has (thirsty: Durst haben).
    """

    en: str
    de: Noun
    en_plural: str = ""
    paired: bool = False


def thing(en: str, de: str, gender: Gender, plural: str = "", en_plural: str = "", *, weak: bool = False) -> Thing:
    """Enter a noun; without a German plural it is a mass noun."""
    return Thing(en, Noun(de, gender, plural, weak), en_plural or (english.plural(en) if en and plural else ""))


def paired(en: str, de: str, gender: Gender, plural: str) -> Thing:
    """Enter a noun that is plural in English and singular in German."""
    return Thing(en, Noun(de, gender, plural), en, paired=True)


@dataclass(frozen=True)
class Quality:
    """An adjective: the German predicative form, the stem before endings, and the comparative where it is used."""

    en: str
    de: str
    stem: str = ""
    en_more: str = ""
    de_more: str = ""

    @property
    def root(self) -> str:
        """The stem that takes endings: teur- for teuer."""
        return self.stem or self.de


@dataclass(frozen=True)
class Phrase:
    """A noun phrase. `det` is the, a, this, no article (""), own (the subject's), job (a teacher: Lehrer),
    or a person whose possession it is."""

    thing: Thing
    det: str = "the"
    quality: Quality | None = None
    plural: bool = False
    count: int = 0

    @property
    def definite(self) -> bool:
        """Whether nicht follows it; an indefinite phrase is negated by kein."""
        return self.det not in ("a", "", "job")

    @property
    def person(self) -> Person:
        """The German pronoun's person: grammatical gender decides."""
        persons: dict[Gender, Person] = {"m": "3m", "f": "3f", "n": "3n", "p": "3p"}
        return persons[self.gender]

    @property
    def gender(self) -> Gender:
        """The gender, or p in the plural."""
        return "p" if self.plural else self.thing.de.gender

    @property
    def en_person(self) -> Person:
        """The English pronoun's person: it or they."""
        return "3p" if self.plural or self.thing.paired else "3n"

    def en(self, owner: Person = "1s") -> str:
        """Write it in English; `owner` is the subject whose own thing it may be."""
        if not self.thing.en:
            return ""
        many = self.plural or self.thing.paired
        noun = self.thing.en_plural if many else self.thing.en
        words = f"{self.quality.en} {noun}" if self.quality else noun
        if self.count:
            words = f"{english_number(self.count)} {words}"
        if self.det in ("a", "job"):
            return words if many else english.with_a(words)
        if self.det == "this":
            return f"{'these' if many else 'this'} {words}"
        if self.det == "own":
            return f"{english.PRONOUNS[owner][2]} {words}"
        if self.det in german.POSSESSIVES:
            return f"{english.PRONOUNS[self.det][2]} {words}"
        return f"{self.det} {words}".strip()

    def de(self, case: Case, owner: Person = "1s", *, negative: bool = False) -> str:
        """Write it in German; a negative indefinite phrase takes kein."""
        word = self._determiner(owner)
        if negative and not self.definite:
            word = "kein"
        root = self.quality.root if self.quality else ""
        if self.count and word != "kein":
            number = german_number(self.count)
            noun = self.thing.de.form(case, plural=True)
            adj = german.adjective(root, word, "p", case) if root else ""
            return " ".join(filter(None, [german.determiner(word, "p", case), number, adj, noun]))
        return german.noun_phrase(word, self.thing.de, case, adj=root, plural=self.plural)

    def _determiner(self, owner: Person) -> str:
        if self.det == "own":
            return german.POSSESSIVES[owner]
        if self.det in german.POSSESSIVES:
            return german.POSSESSIVES[self.det]
        return {"the": "der", "a": "ein", "this": "dies"}.get(self.det, "")


@dataclass(frozen=True)
class Who:
    """A person as subject or object: a pronoun, a name, a relative.

    `call` is the form of address that tells du, ihr and Sie apart: it stands at the sentence's end in both languages.
    """

    person: Person
    en: str
    en_object: str
    de: tuple[str, str, str]
    call: tuple[str, str] = ("", "")

    @property
    def is_pronoun(self) -> bool:
        """Whether it moves to the front of the German middle field."""
        return self.de[0] in ("ich", "du", "er", "sie", "es", "wir", "ihr", "Sie")

    def again(self) -> Who:
        """The pronoun that takes the person up again in a later clause."""
        return pronoun(self.person)

    def form(self, case: Case) -> str:
        """Decline it."""
        return self.de[german.CASES.index(case)]


def pronoun(person: Person, call: tuple[str, str] = ("", "")) -> Who:
    """Make a personal pronoun."""
    en_subject, en_object, _ = english.PRONOUNS[person]
    return Who(person, en_subject, en_object, german.PRONOUNS[person], call)


def named(name: str, person: Person) -> Who:
    """Make a person called by name."""
    return Who(person, name, name, (name, name, name))


def relative(noun: Thing, person: Person, owner: str, *, plural: bool = False) -> Who:
    """Make a person told by kinship or role: my brother, the neighbours."""
    phrase = Phrase(noun, owner, plural=plural)
    en = phrase.en()
    return Who(person, en, en, (phrase.de("nom"), phrase.de("acc"), phrase.de("dat")))


def without_call(who: Who) -> Who:
    """Drop the form of address."""
    return replace(who, call=("", ""))
