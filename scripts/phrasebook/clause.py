"""Clauses in English and German: the same subject, predicate, tense and negation in the word order
of each language.

A German clause is [front] finite [subject] middle bracket, where the bracket is the separable
particle, the participle or the infinitive. In a subordinate clause the finite verb is last. The
order of the middle field is: pronouns, names, time, dative noun, definite object, `oft` or `schon`,
`nicht`, indefinite object, place and other complements; a negated definite object precedes the
time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from phrasebook import english, german
from phrasebook.german import Case, Person
from phrasebook.words import Participant, Phrase

Pair = tuple[str, str]
Tense = Literal["present", "progressive", "past", "perfect", "future"]
Order = Literal["statement", "question", "subordinate"]
NONE: Pair = ("", "")


@dataclass(frozen=True)
class Predicate:
    """A predicate without tense, modality and negation.

    `en` and `de` are infinitives (`put {} on`, `an|ziehen`); {} marks the English object, which is
    last by default. `recipient` is a dative. `prep` governs the German object, which then counts as
    a complement. `complement` is what follows nicht: a place, an adjective, a manner. `feeling`
    predicates have a dative experiencer: mir ist kalt. `aspect` selects the English tense: simple
    present for habits and states, progressive for actions.
    """

    en: str
    de: str
    object: Phrase | Participant | None = None
    case: Case = "acc"
    prep: str = ""
    recipient: Phrase | Participant | None = None
    complement: Pair = NONE
    reflexive: bool = False
    feeling: bool = False
    aspect: Literal["habit", "action", "state"] = "action"

    def english(self, owner: Person) -> str:
        """Write the English infinitive with its objects."""
        verb = self.en
        if self.object is not None:
            words = (
                self.object.en(owner) if isinstance(self.object, Phrase) else self.object.en_object
            )
            verb = verb.replace("{}", words) if "{}" in verb else _join(verb, words)
        if self.recipient is not None:
            words = (
                self.recipient.en(owner)
                if isinstance(self.recipient, Phrase)
                else self.recipient.en_object
            )
            head, _, rest = verb.partition(" ")
            verb = f"{head} {words} {rest}"
        return _join(verb, self.complement[0])

    @property
    def owned(self) -> bool:
        """Whether an object has a possessive that refers to the subject."""
        return any(
            isinstance(part, Phrase) and part.det == "own" for part in (self.object, self.recipient)
        )

    @property
    def vocative(self) -> Pair:
        """The vocative that an object needs."""
        for part in (self.object, self.recipient):
            if isinstance(part, Participant) and part.vocative[0]:
                return part.vocative
        return NONE


@dataclass(frozen=True)
class Modal:
    """A modal verb. `en` is an auxiliary (can) or a verb phrase that takes do or be (have to, be
    allowed to)."""

    en: str
    de: str
    past: str = ""


CAN = Modal("can", "können", "could")
ABLE_TO = Modal("be able to", "können", "be able to")
MUST = Modal("must", "müssen")
HAVE_TO = Modal("have to", "müssen", "have to")
WANT_TO = Modal("want to", "wollen", "want to")
MAY = Modal("be allowed to", "dürfen", "be allowed to")
MAY_I = Modal("may", "dürfen")
SHOULD = Modal("should", "sollten")
SHALL = Modal("shall", "sollen")
WOULD_LIKE = Modal("would like to", "möchten")
MUST_NOT = Modal("must", "dürfen")
GERMAN_ADVERBS = {
    ("", False): "",
    ("", True): "",
    ("already", False): "schon",
    ("yet", False): "schon",
    ("yet", True): "noch",
    ("never", False): "noch nie",
}
AUXILIARIES = ("can", "could", "must", "may", "should", "shall")


@dataclass(frozen=True)
class Clause:
    """A subject and its predicate; in English, `time` is last and `often` precedes the verb."""

    subject: Participant | Phrase
    predicate: Predicate
    tense: Tense = "present"
    modal: Modal | None = None
    negative: bool = False
    time: Pair = NONE
    often: Pair = NONE
    already: Literal["", "already", "yet", "never"] = ""
    contracted: bool = True

    @property
    def person(self) -> Person:
        """The person the German verb agrees with."""
        return self.subject.person

    @property
    def en_person(self) -> Person:
        """The person the English verb agrees with."""
        return self.subject.en_person if isinstance(self.subject, Phrase) else self.subject.person

    @property
    def vocative(self) -> Pair:
        """The vocative at the end of the sentence."""
        if isinstance(self.subject, Participant) and self.subject.vocative[0]:
            return self.subject.vocative
        return self.predicate.vocative


def _join(*words: str) -> str:
    return " ".join(filter(None, words))


# --- English
# ----------------------------------------------------------------------------------------------------------  # noqa: E501
#


def english_clause(
    clause: Clause, order: Order = "statement", wh: str = "", front: str = ""
) -> str:
    """Write the clause in English without capitalization and period; `wh` is the question word."""
    auxiliary, verb = _verb_group(clause, order)
    time = "" if front else clause.time[0]
    often = clause.often[0]
    subject = _en_subject(clause)
    tail = _join("yet" if clause.already == "yet" else "", time)
    adverb = clause.already if clause.already in ("already", "never") else ""
    if order == "question":
        head = english.negate(auxiliary) if clause.negative else auxiliary
        return _join(wh, head, subject, often, adverb, verb, tail)
    if not auxiliary:
        return _join(front, subject, often, verb, tail)
    if clause.negative:
        negated = "not" if auxiliary == "am" else ""
        head = (
            _contract(subject, auxiliary, clause)
            if auxiliary == "am"
            else f"{subject} {english.negate(auxiliary)}"
        )
        if not clause.contracted:
            cannot = "cannot" if auxiliary == "can" else f"{auxiliary} not"
            head, negated = f"{subject} {cannot}", ""
        return _join(front, head, negated, often, adverb, verb, tail)
    return _join(front, _contract(subject, auxiliary, clause), often, adverb, verb, tail)


def _en_subject(clause: Clause) -> str:
    return clause.subject.en if isinstance(clause.subject, Participant) else clause.subject.en()


def _contract(subject: str, auxiliary: str, clause: Clause) -> str:
    """Contract pronoun and auxiliary (I'm, she's, we'll); has, names and nouns are not
    contracted."""
    pronoun = subject in ("I", "you", "he", "she", "it", "we", "they")
    if clause.contracted and pronoun and auxiliary in english.SHORT:
        return subject + english.SHORT[auxiliary]
    return f"{subject} {auxiliary}"


def _verb_group(clause: Clause, order: Order) -> tuple[str, str]:
    """Return the English auxiliary ("" for a simple affirmative form) and the rest of the verb
    phrase."""
    person, base = clause.en_person, clause.predicate.english(clause.person)
    support = order == "question" or clause.negative
    past = clause.tense == "past"
    if clause.modal:
        return _modal_group(clause.modal, base, person, past, support)
    if clause.tense == "future":
        return "will", base
    if clause.tense == "perfect":
        return english.have(person), english.past_participle(base)
    is_be = base == "be" or base.startswith("be ")
    if is_be:
        return english.be(person, past), base[3:]
    if clause.tense == "progressive":
        return english.be(person), english.ing(base)
    if support:
        return english.do(person, past), base
    return "", english.finite(base, person, past)


def _modal_group(
    modal: Modal, base: str, person: Person, past: bool, support: bool
) -> tuple[str, str]:
    en = modal.past if past else modal.en
    if en in AUXILIARIES:
        return en, base
    if en.startswith("would "):
        return "would", f"{en[6:]} {base}"
    if en.startswith("be "):
        return english.be(person, past), f"{en[3:]} {base}"
    if support:
        return english.do(person, past), f"{en} {base}"
    return "", english.finite(f"{en} {base}", person, past)


# --- German
# -----------------------------------------------------------------------------------------------------------  # noqa: E501
#


def german_clause(clause: Clause, order: Order = "statement", wh: str = "", front: str = "") -> str:
    """Write the clause in German; with `front` the subject follows the finite verb."""
    finite, bracket = _finite_and_bracket(clause)
    subject = _de_subject(clause)
    middle = _middle(replace(clause, time=NONE) if front else clause)
    if order == "subordinate":
        particle = german.split_verb(clause.predicate.de)[0]
        if bracket == particle:  # aufsteht: the particle rejoins the verb
            return _join(wh, *_subject_first(clause, subject, middle), particle + finite)
        return _join(wh, *_subject_first(clause, subject, middle), bracket, finite)
    if order == "question" or front:
        return _join(wh or front, finite, *_subject_first(clause, subject, middle), bracket)
    return _join(subject, finite, *middle, bracket)


def _subject_first(clause: Clause, subject: str, middle: list[str]) -> list[str]:
    """Put the subject before the middle field; a thing follows a pronoun, and the dative object of
    gefallen."""
    rest = [words for words in middle if words]
    target = clause.predicate.object
    if (
        isinstance(clause.subject, Phrase)
        and target
        and (_is_pronoun(target) or clause.predicate.de == "gefallen")
    ):
        return [rest[0], subject, *rest[1:]]
    return [subject, *rest]


def german_infinitive(clause: Clause, *, zu: bool = True) -> str:
    """Write the clause as an infinitive group: `meine Mutter anzurufen`."""
    verb = clause.predicate.de
    return _join(*_middle(clause), german.zu_infinitive(verb) if zu else german.infinitive(verb))


def _de_subject(clause: Clause) -> str:
    case: Case = "dat" if clause.predicate.feeling else "nom"
    return (
        clause.subject.form(case)
        if isinstance(clause.subject, Participant)
        else clause.subject.de(case)
    )


def _finite_and_bracket(clause: Clause) -> tuple[str, str]:
    """Return the finite verb and the closing part of the sentence bracket."""
    verb = clause.predicate.de
    person: Person = "3n" if clause.predicate.feeling else clause.person
    if clause.modal:
        form = german.preterite if clause.tense == "past" else german.present
        return form(clause.modal.de, person), german.infinitive(verb)
    if clause.tense == "future":
        return german.present("werden", person), german.infinitive(verb)
    particle, base = german.split_verb(verb)
    if clause.tense == "past" and base in german.PRETERITE:
        return german.preterite(base, person), particle
    if clause.tense in ("past", "perfect"):
        return german.present(german.auxiliary(verb), person), german.participle(verb)
    return german.present(verb, person), particle


def _middle(clause: Clause) -> list[str]:
    """Return the words of the middle field, including nicht."""
    predicate, owner = clause.predicate, clause.person
    pronouns = [reflexive(owner)] if predicate.reflexive else []
    names: list[str] = []
    datives: list[str] = []
    definite: list[str] = []
    indefinite: list[str] = []
    complement = [predicate.complement[1]]
    negation = "nicht" if clause.negative else ""
    if predicate.recipient is not None:
        place = (
            pronouns
            if _is_pronoun(predicate.recipient)
            else names
            if _is_name(predicate.recipient)
            else datives
        )
        place.append(decline(predicate.recipient, "dat", owner))
    if predicate.object is not None:
        words = decline(predicate.object, predicate.case, owner)
        if predicate.prep:
            complement.insert(0, german.contract(predicate.prep, words))
        elif _is_pronoun(predicate.object):
            pronouns.insert(0, words)  # es mir, not mir es
        elif _is_name(predicate.object):
            names.append(words)
        elif isinstance(predicate.object, Participant) or predicate.object.definite:
            # ihn gestern nicht: nicht follows the time.
            (names if clause.negative else definite).append(words)
        elif clause.negative:
            negation = ""
            indefinite.append(decline(predicate.object, predicate.case, owner, negative=True))
        else:
            indefinite.append(words)
    adverbs = [clause.often[1], GERMAN_ADVERBS[clause.already, clause.negative]]
    return [
        *pronouns,
        *names,
        clause.time[1],
        *datives,
        *definite,
        *adverbs,
        negation,
        *indefinite,
        *complement,
    ]


def decline(
    part: Phrase | Participant, case: Case, owner: Person, *, negative: bool = False
) -> str:
    """Decline an object; `owner` is the subject that a possessive refers to."""
    return part.de(case, owner, negative=negative) if isinstance(part, Phrase) else part.form(case)


def _is_name(part: Phrase | Participant) -> bool:
    return isinstance(part, Participant) and part.de[0] == part.de[2]


def _is_pronoun(part: Phrase | Participant) -> bool:
    return isinstance(part, Participant) and part.is_pronoun


def reflexive(person: Person) -> str:
    """Return the reflexive pronoun in the accusative."""
    return german.PRONOUNS[person][1] if person in ("1s", "2s", "1p", "2p") else "sich"


# --- sentences
# --------------------------------------------------------------------------------------------------------  # noqa: E501
#


def sentence(en: str, de: str, mark: str = ".", vocative: Pair = NONE) -> Pair:
    """Finish both sides: capitalization, vocative, final punctuation."""
    return finish(en, mark, vocative[0]), finish(de, mark, vocative[1])


def finish(text: str, mark: str, vocative: str = "") -> str:
    """Capitalize the first letter and append the vocative and the punctuation mark."""
    return f"{text[0].upper()}{text[1:]}{', ' if vocative else ''}{vocative}{mark}"


def statement(clause: Clause, front: Pair = NONE) -> Pair:
    """Write a statement; `front` is an adverbial that comes first and inverts German subject and
    verb."""
    return sentence(
        english_clause(clause, front=front[0]),
        german_clause(clause, front=front[1]),
        ".",
        clause.vocative,
    )


def fronted(clause: Clause) -> Pair:
    """Write a statement that begins with the time: `Morgen gehe ich ...`."""
    return statement(clause, clause.time)


def question(clause: Clause, wh: Pair = NONE) -> Pair:
    """Write a question; without the question word `wh`, a yes-no question."""
    de = german_clause(clause, "question", wh[1])
    return sentence(english_clause(clause, "question", wh[0]), de, "?", clause.vocative)


def command(clause: Clause, *, please: bool = False) -> Pair:
    """Write a positive or negative command to du, ihr or Sie."""
    person, verb = clause.person, clause.predicate.de
    en = _join("don't" if clause.negative else "", clause.predicate.english(person), clause.time[0])
    sie = "Sie" if person == "Sie" else ""
    particle = german.split_verb(verb)[0]
    de = _join(german.imperative(verb, person), sie, *_middle(clause), particle)
    if please:
        en, de = f"please {en}", f"bitte {de}"
    return sentence(en, de, "!", clause.vocative)
