"""Semantic restrictions: which subjects, predicates and possessions make sense together."""

from __future__ import annotations

from phrasebook import lexicon as lex
from phrasebook.clause import Predicate
from phrasebook.words import Participant, Phrase, Thing

SECOND = {"2s", "2p", "Sie"}
CHILDREN = (lex.THE_CHILDREN, lex.YOU_CHILDREN)
FOR_ADULTS = {
    "beer",
    "wine",
    "coffee",
    "car",
    "house",
    "flat",
    "son",
    "daughter",
    "boss",
    "colleague",
    "money",
}
WORK_OF_ADULTS = {"drive", "sell", "repair", "work"}
WOMENS = {"dress", "skirt"}
OUT_OF_SCHOOL = (
    lex.MY_PARENTS,
    lex.MY_MOTHER,
    lex.MY_FATHER,
    lex.MY_UNCLE,
    lex.MY_AUNT,
    lex.OUR_TEACHER,
    lex.OUR_NEIGHBOR,
)


def compatible(subject: Participant, predicate: Predicate) -> bool:
    """Return whether the predicate makes sense: no object is the subject, and each fits its age and
    gender."""
    parts = (predicate.object, predicate.recipient)
    things = {part.thing.en for part in parts if isinstance(part, Phrase)}
    if subject in CHILDREN and (things & FOR_ADULTS or predicate.en in WORK_OF_ADULTS):
        return False
    if "homework" in things and (subject in OUT_OF_SCHOOL or subject.person == "Sie"):
        return False
    if (subject.person == "3m" or subject in CHILDREN) and things & WOMENS:
        return False
    return all(_other(subject, part) for part in parts if part is not None)


def _other(subject: Participant, part: Participant | Phrase) -> bool:
    """Return whether the object is clearly someone other than the subject."""
    if isinstance(part, Phrase):
        return not (part.det == "own" and part.thing.en in subject.en)  # my brother and his brother
    if part.en in subject.en or subject.en in part.en:
        return False
    if part.person == subject.person and (part.is_pronoun or subject.is_pronoun):
        return False
    if part is lex.MY_PARENTS and subject in (lex.MY_MOTHER, lex.MY_FATHER):
        return False
    persons = {part.person, subject.person}
    return not (persons <= {"1s", "1p"} or persons <= SECOND)


def fits(thing: Thing, owner: str) -> bool:
    """Return whether the thing may belong to the person."""
    return not (owner == "3m" and thing.en in WOMENS)
