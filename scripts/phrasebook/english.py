"""English morphology: verb forms, plurals, a or an. A verb phrase begins with its base form: `get
up`."""

from __future__ import annotations

from phrasebook.german import Person

PRONOUNS: dict[Person, tuple[str, str, str]] = {  # subject, object, possessive
    "1s": ("I", "me", "my"),
    "2s": ("you", "you", "your"),
    "3m": ("he", "him", "his"),
    "3f": ("she", "her", "her"),
    "3n": ("it", "it", "its"),
    "1p": ("we", "us", "our"),
    "2p": ("you", "you", "your"),
    "3p": ("they", "them", "their"),
    "Sie": ("you", "you", "your"),
}
IRREGULAR = {  # past, participle
    "become": ("became", "become"),
    "begin": ("began", "begun"),
    "bring": ("brought", "brought"),
    "buy": ("bought", "bought"),
    "catch": ("caught", "caught"),
    "come": ("came", "come"),
    "cut": ("cut", "cut"),
    "do": ("did", "done"),
    "drink": ("drank", "drunk"),
    "drive": ("drove", "driven"),
    "eat": ("ate", "eaten"),
    "fall": ("fell", "fallen"),
    "feed": ("fed", "fed"),
    "feel": ("felt", "felt"),
    "find": ("found", "found"),
    "fly": ("flew", "flown"),
    "forget": ("forgot", "forgotten"),
    "get": ("got", "got"),
    "give": ("gave", "given"),
    "go": ("went", "gone"),
    "have": ("had", "had"),
    "hear": ("heard", "heard"),
    "know": ("knew", "known"),
    "leave": ("left", "left"),
    "lend": ("lent", "lent"),
    "lose": ("lost", "lost"),
    "make": ("made", "made"),
    "meet": ("met", "met"),
    "pay": ("paid", "paid"),
    "put": ("put", "put"),
    "read": ("read", "read"),
    "ride": ("rode", "ridden"),
    "run": ("ran", "run"),
    "say": ("said", "said"),
    "see": ("saw", "seen"),
    "sell": ("sold", "sold"),
    "send": ("sent", "sent"),
    "show": ("showed", "shown"),
    "sing": ("sang", "sung"),
    "sit": ("sat", "sat"),
    "sleep": ("slept", "slept"),
    "speak": ("spoke", "spoken"),
    "stand": ("stood", "stood"),
    "swim": ("swam", "swum"),
    "take": ("took", "taken"),
    "tell": ("told", "told"),
    "think": ("thought", "thought"),
    "throw": ("threw", "thrown"),
    "understand": ("understood", "understood"),
    "wake": ("woke", "woken"),
    "wear": ("wore", "worn"),
    "win": ("won", "won"),
    "write": ("wrote", "written"),
}
DOUBLING = set("get put run sit swim win forget cut shop plan stop travel cancel begin".split())
BE_PRESENT: dict[Person, str] = {"1s": "am", "3m": "is", "3f": "is", "3n": "is"}
NEGATED = {
    "am": "am not",
    "can": "can't",
    "will": "won't",
    "must": "must not",
    "shall": "shall not",
}
SHORT = {"am": "'m", "is": "'s", "are": "'re", "will": "'ll", "would": "'d", "have": "'ve"}
THIRD: tuple[Person, ...] = ("3m", "3f", "3n")


def be(person: Person, past: bool = False) -> str:
    """Return am, are, is, was or were."""
    if past:
        return "was" if person in ("1s", *THIRD) else "were"
    return BE_PRESENT.get(person, "are")


def have(person: Person) -> str:
    """Return have or has."""
    return "has" if person in THIRD else "have"


def do(person: Person, past: bool = False) -> str:
    """Return do, does or did."""
    if past:
        return "did"
    return "does" if person in THIRD else "do"


def negate(auxiliary: str) -> str:
    """Return the negated auxiliary: don't, can't, isn't."""
    return NEGATED.get(auxiliary) or auxiliary + "n't"


def _split(phrase: str) -> tuple[str, str]:
    verb, space, rest = phrase.partition(" ")
    return verb, space + rest


def finite(phrase: str, person: Person, past: bool = False) -> str:
    """Conjugate the first word of a verb phrase (not be) in the simple present or past."""
    verb, rest = _split(phrase)
    if past:
        return (IRREGULAR[verb][0] if verb in IRREGULAR else regular_past(verb)) + rest
    return (third(verb) if person in THIRD else verb) + rest


def past_participle(phrase: str) -> str:
    """Put the first word of a verb phrase into the past participle."""
    verb, rest = _split(phrase)
    if verb == "be":
        return "been" + rest
    return (IRREGULAR[verb][1] if verb in IRREGULAR else regular_past(verb)) + rest


def ing(phrase: str) -> str:
    """Put the first word of a verb phrase into the -ing form."""
    verb, rest = _split(phrase)
    if verb in DOUBLING:
        return verb + verb[-1] + "ing" + rest
    return (
        (verb[:-1] if verb.endswith("e") and not verb.endswith(("ee", "be")) else verb)
        + "ing"
        + rest
    )


def third(verb: str) -> str:
    """Add the -s of the third person."""
    return "has" if verb == "have" else _s(verb)


def plural(noun: str) -> str:
    """Form the plural of a regular noun."""
    return _s(noun)


def _s(word: str) -> str:
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "sh", "ch", "x", "z", "o")) else "s")


def regular_past(verb: str) -> str:
    """Add -ed to a regular verb."""
    if verb in DOUBLING:
        return verb + verb[-1] + "ed"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ied"
    return verb + ("d" if verb.endswith("e") else "ed")


def with_a(words: str) -> str:
    """Prefix the words with a or an, depending on their first sound."""
    vowel = words[0] in "aeiouAEIOU" and not words.startswith(("uni", "use", "one", "Euro", "euro"))
    return f"{'an' if vowel or words.startswith('hour') else 'a'} {words}"
