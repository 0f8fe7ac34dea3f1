"""Bilingual nouns, adjectives, noun phrases and people."""

from __future__ import annotations

from dataclasses import dataclass, replace

from phrasebook import english, german
from phrasebook.german import Case, Gender, Noun, Person
from phrasebook.numerals import english_number, german_number


@dataclass(frozen=True)
class Thing:
    """A noun in both languages.

    `paired` things are plural only in English (trousers, glasses). An empty `en` is a noun that
    only the German idiom has (thirsty: Durst haben).
    """

    en: str
    de: Noun
    en_plural: str = ""
    paired: bool = False


def thing(
    en: str, de: str, gender: Gender, plural: str = "", en_plural: str = "", *, weak: bool = False
) -> Thing:
    """Create a noun; without a German plural it is a mass noun."""
    return Thing(
        en,
        Noun(de, gender, plural, weak),
        en_plural or (english.plural(en) if en and plural else ""),
    )


def paired(en: str, de: str, gender: Gender, plural: str) -> Thing:
    """Create a noun that is plural in English and singular in German."""
    return Thing(en, Noun(de, gender, plural), en, paired=True)


@dataclass(frozen=True)
class Adjective:
    """An adjective: the German predicative form, the stem before endings, and the comparative if it
    is used."""

    en: str
    de: str
    stem: str = ""
    en_comparative: str = ""
    de_comparative: str = ""

    @property
    def root(self) -> str:
        """The stem that takes endings: teur- for teuer."""
        return self.stem or self.de


@dataclass(frozen=True)
class Phrase:
    """A noun phrase. `det` is the, a, this, no article (""), own (possessive of the subject),
    job (a teacher: Lehrer), or the person of another possessive."""

    thing: Thing
    det: str = "the"
    quality: Adjective | None = None
    plural: bool = False
    count: int = 0

    @property
    def definite(self) -> bool:
        """Whether the negation is nicht; the negation of an indefinite phrase is kein."""
        return self.det not in ("a", "", "job")

    @property
    def person(self) -> Person:
        """The person of the German pronoun, by grammatical gender."""
        persons: dict[Gender, Person] = {"m": "3m", "f": "3f", "n": "3n", "p": "3p"}
        return persons[self.gender]

    @property
    def gender(self) -> Gender:
        """The gender, or p in the plural."""
        return "p" if self.plural else self.thing.de.gender

    @property
    def en_person(self) -> Person:
        """The person of the English pronoun: it or they."""
        return "3p" if self.plural or self.thing.paired else "3n"

    def en(self, owner: Person = "1s") -> str:
        """Write the phrase in English; `owner` is the subject that a possessive refers to."""
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
        """Write the phrase in German; a negative indefinite phrase has kein."""
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
class Participant:
    """A person as subject or object: a pronoun, a name, a relative.

    `vocative` distinguishes du, ihr and Sie at the end of the sentence in both languages: children,
    Mr Weber.
    """

    person: Person
    en: str
    en_object: str
    de: tuple[str, str, str]
    vocative: tuple[str, str] = ("", "")

    @property
    def is_pronoun(self) -> bool:
        """Whether it is a pronoun, which is first in the German middle field."""
        return self.de[0] in ("ich", "du", "er", "sie", "es", "wir", "ihr", "Sie")

    def form(self, case: Case) -> str:
        """Return the German form in a case."""
        return self.de[german.CASES.index(case)]


def pronoun(person: Person, vocative: tuple[str, str] = ("", "")) -> Participant:
    """Create a personal pronoun."""
    en_subject, en_object, _ = english.PRONOUNS[person]
    return Participant(person, en_subject, en_object, german.PRONOUNS[person], vocative)


def named(name: str, person: Person) -> Participant:
    """Create a person with a name."""
    return Participant(person, name, name, (name, name, name))


def relative(noun: Thing, person: Person, owner: str, *, plural: bool = False) -> Participant:
    """Create a person described by kinship or role: my brother, the neighbors."""
    phrase = Phrase(noun, owner, plural=plural)
    en = phrase.en()
    return Participant(person, en, en, (phrase.de("nom"), phrase.de("acc"), phrase.de("dat")))


def without_vocative(who: Participant) -> Participant:
    """Return the person without the vocative."""
    return replace(who, vocative=("", ""))
