"""Abbreviations and German forms for all genders, and the words that they stand for.

Small models know *Milliarden* and *Abbildung*, but lose *Mrd.* and copy *Abb.* An abbreviation is
written out in the same number of words, so that word alignments remain true.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from nmt.text.english_context import (
    AMBIGUOUS_CALENDAR,
    CALENDAR,
    COUNTED,
    is_after_determiner,
    is_date,
    starts_with_capital,
)
from nmt.text.halves import german_halves_in_digits
from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.spans import GERMAN_SENTENCE_STARTS, Edit, ProtectedSpan


class _Abbreviations(NamedTuple):
    """The abbreviations of a language, without the period, and their words. Those in lower case may
    be capitalized."""

    anywhere: Mapping[str, str]
    before_number: Mapping[str, str]
    """Those that have another meaning elsewhere, such as `S.` for a first name; also before a date
    such as `Jan. 5`."""
    before_name: Mapping[str, str]
    """Titles."""
    after_number: Mapping[str, str]
    """With the words after 1 and after other numbers, separated by a slash if they differ."""
    at_end: Mapping[str, str]
    """Those that have another meaning at the end of a list, which `end` finds."""
    end: re.Pattern[str]
    other_meaning: Mapping[str, tuple[str, str]]
    """Regular expressions of the text before and after an abbreviation that does not stand for
    these words."""
    sentence_starts: str
    """Words that begin a sentence, which an abbreviation before them ends."""
    dates: Mapping[str, str] = MappingProxyType({})
    """Days and months that may be other words, except where `is_date`."""
    before_no_name: Collection[str] = ()
    """Abbreviations, in lower case, that hardly any name follows, so that a capital begins a
    sentence."""


_GERMAN = _Abbreviations(
    anywhere={
        "Abt": "Abteilung",
        "Fa": "Firma",
        "Hr": "Herr",
        "Hrn": "Herrn",
        "Mio": "Millionen",
        "Mrd": "Milliarden",
        "Tsd": "Tausend",
        "bspw": "beispielsweise",
        "bzw": "beziehungsweise",
        "evtl": "eventuell",
        "exkl": "ohne",
        "ggf": "gegebenenfalls",
        "inkl": "inklusive",
        "insb": "insbesondere",
        "insbes": "insbesondere",
        "insg": "insgesamt",
        "sog": "sogenannten",
        "u. a": "unter anderem",
        "vgl": "siehe",
        "zzgl": "plus",
    },
    before_number={
        "Abb": "Abbildung",
        "Abs": "Absatz",
        "Anm": "Anmerkung",
        "Art": "Artikel",
        "Bd": "Band",
        "Bsp": "Beispiel",
        "Di": "Dienstag",
        "Do": "Donnerstag",
        "Fr": "Freitag",
        "Kap": "Kapitel",
        "Mi": "Mittwoch",
        "Mo": "Montag",
        "S": "Seite",
        "Sa": "Samstag",
        "So": "Sonntag",
        "Tab": "Tabelle",
        "Ziff": "Ziffer",
        "max": "maximal",
        "mind": "mindestens",
    },
    before_name={"Bgm": "Bürgermeister", "Fr": "Frau"},
    after_number={
        "Aufl": "Auflage",
        "Aug": "August",
        "Dez": "Dezember",
        "Feb": "Februar",
        "Jan": "Januar",
        "Jh": "Jahrhundert",
        "Jhd": "Jahrhundert",
        "Jhdt": "Jahrhundert",
        "Min": "Minute/Minuten",
        "Mio": "Million/Millionen",
        "Mrd": "Milliarde/Milliarden",
        "Nov": "November",
        "Okt": "Oktober",
        "Pers": "Person/Personen",
        "Sek": "Sekunde/Sekunden",
        "Sept": "September",
        "Std": "Stunde/Stunden",
        "Stk": "Stück",
    },
    at_end={"u. a": "und andere"},
    end=lazy_pattern(r"(?:\s\(|[^\w\s]*\s*$)"),
    other_meaning={
        # The name, except where a sentence begins
        "Maximal": (r"[\w,]\s", ""),
        # The kind
        "Artikel": (r"\b(?i:dies|jen|jed|welch|solch|k?ein)e[rn]?\s", ""),
        # A sentence of a law
        "Seite": (r"(?:§|\b(?:Abs\.|Absatz|Art\.|Artikel))\s\d+[a-z]?\s", ""),
        # Friday
        "Frau": (r"\b(?i:am|ab|bis|jeden|diesen|nächsten|letzten|kommenden)\s|[–-]", ""),
        # The second day of Mo.-Fr.
        **dict.fromkeys(
            "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag".split(), ("[–-]", "")
        ),
    },
    sentence_starts=(
        f"{GERMAN_SENTENCE_STARTS}|Anschließend|Später|Nun|Deshalb|Daher|Trotzdem|Außerdem"
        "|Allerdings|Jedoch|Nur|Auch|So|Noch|Damit|Dabei|Dafür|Dazu|Kein|Bitte"
    ),
)
_ENGLISH = _Abbreviations(
    anywhere={
        **CALENDAR,
        "Ave": "Avenue",
        "Blvd": "Boulevard",
        "approx": "approximately",
        "dept": "department",
        "excl": "excluding",
        "govt": "government",
        "incl": "including",
        "univ": "university",
    },
    before_number={
        **AMBIGUOUS_CALENDAR,
        "ch": "chapter",
        "fig": "figure",
        "figs": "figures",
        "no": "number",
        "nos": "numbers",
        "p": "page",
        "pp": "pages",
        "sec": "section",
        "vol": "volume",
    },
    before_name={
        "Gen": "General",
        "Gov": "Governor",
        "Lt": "Lieutenant",
        "Pres": "President",
        "Sen": "Senator",
    },
    after_number={
        "bn": "billion",
        "ft": "foot",  # German has no plural of it
        "hr": "hour/hours",
        "hrs": "hour/hours",
        "lb": "pound/pounds",
        "lbs": "pound/pounds",
        "mi": "mile/miles",
        "min": "minute/minutes",
        "mins": "minute/minutes",
        "mln": "million",
        "mn": "million",
        "sec": "second/seconds",
        "secs": "second/seconds",
        "yd": "yard/yards",
        "yds": "yard/yards",
        "yr": "year/years",
        "yrs": "year/years",
    },
    at_end={"excl": "excluded", "incl": "included"},
    end=lazy_pattern(r"\W*$|\s?[),;:]|\s+in\s"),
    other_meaning={
        # The answer
        "number": ("", COUNTED),
        "Number": (r"(?:^|[.!?]\W{1,5})", COUNTED),
        # The star, the fruits
        **dict.fromkeys(("Sunday", "figure", "figures"), (r"\b[Tt]he\s", "")),
        # Of a journal
        **dict.fromkeys(("General", "President"), (r"J\.\s", "")),
    },
    sentence_starts=(
        "I|You|He|She|It|We|They|The|This|That|These|Then|There|Here|Now|Today|If|When|Please"
        "|A|An|My|Your|His|Her|Its|Our|Their|But|And|So|However|After|Before|In|On|At|For|What|Who"
        "|Where|Why|How"
    ),
    dates=AMBIGUOUS_CALENDAR,
    before_no_name=(
        *(name.lower() for name in [*CALENDAR, *AMBIGUOUS_CALENDAR]),
        *"ave blvd ft hr hrs lb lbs mi min mins sec secs yd yds yr yrs".split(),
    ),
)
_LANGUAGES = {"de": _GERMAN, "en": _ENGLISH}
_CANDIDATE = lazy_pattern(
    r"(?<![\w.,:])(?P<number>\d+(?:[.,]\d+)*\.?)\s(?P<measure>[A-Za-z]{1,6})(?P<period>\.)?(?!\w)"
    r"|(?<![\w.])(?P<short>[A-Za-z]{1,6}(?:\.\sa)?)\.(?!\w)"
)
"""A short word after a number, or before a period."""
_NUMBER_AHEAD = lazy_pattern(
    r"(?:\s(?:und|oder|bis|and|or|to)\s[A-Z][a-z]{1,4}\.)?"
    r"(?:(?:,?\s(?:[A-Z][a-z]{2,3}\.?\s)?|\s?)\d|\s(?:Vor|Nach)?[Mm]ittag\b|\sAbend\b)"
)
"""A number, a date such as Jan. 5, or the time of a day, also after another abbreviation."""
_NAME_AHEAD = lazy_pattern(r"\s[A-ZÄÖÜ]\w")
_CAPITALIZED_SECTIONS = ("Sec",)
"""Abbreviations of parts of a text that are measures in lower case."""
_CLOCK = lazy_pattern(r"\d{1,2}\.[0-5]\d")
_TEXT_END = lazy_pattern(r"(?![?!,;:…])[^\w\s]*\s*$")
_MAX_SPACE = 20
"""Maximum number of spaces after an abbreviation in a sentence."""
_MAX_BEFORE = 30
"""Maximum number of characters before an abbreviation that show its meaning."""
_GERMAN_ERAS = {"BC": "v. Chr.", "BCE": "v. Chr.", "AD": "n. Chr.", "CE": "n. Chr."}
_BEFORE_ERA = lazy_pattern(r"(?:\d|\bcentur(?:y|ies)|\bmillenni(?:um|a))\s$")
_DOTTED = lazy_pattern(r"(?<![\w.])(?:E\.U|U\.K|U\.N)\.(?!\w)")
_WORLD_WAR = lazy_pattern(
    r"\bWorld War (?:(?P<both>I (?P<joint>and|or|&) II)|(?P<number>II?))\b(?!['’](?:m|d|ll|ve)\b)"
)
_REGNAL_NUMBER = lazy_pattern(
    r"(?<!\w)(?!(?:Herrn?|Frau) )[A-ZÄÖÜ][a-zäöüß]+ (?P<number>[IVX]{1,5})\.(?=\s+[a-zäöüß])"
)
"""The number of a German monarch before a word in lower case, as in Karl V. von Spanien, where its
period ends no sentence."""
_PERSON = (
    r"(?:er|ent|ant|ist|or|eur|[aeo]t|log|gog|graf|ph|[aä]r|än|eg|und|xpert|rzt|ält|amt|ekt|urg|oss"
    r"|[aeo]ut|ef|äst)"
)
"""Ends of German words for persons, not those of Wert_in or Thema:in."""
_GERMAN_DAYS = lazy_pattern(r"(?<!\w)(Mo|Di|Mi|Do|Fr|Sa|So)\.([–-])(Mo|Di|Mi|Do|Fr|Sa|So)\.")
"""Days such as Mo.-Fr., whose periods end no sentence. Models copy Mo-Fr, not Montag-Freitag."""
_SONNABEND = lazy_pattern(r"(?<!\w)(?<!Herr )(?<!Frau )([Ss])onnabend(\w{0,10})(?!\w)")
"""The other name of Samstag, which models copy."""
_NO_CENTS = lazy_pattern(
    r"(?<=\d)(?P<after>,[-–—]{1,2})(?=\s?(?:€|EUR\b|Euro\b))"
    r"|(?:€|\bEUR|\bEuro)\s?\d[\d.]{0,11}(?P<before>,[-–—]{1,2})(?![\w-])"
)
"""What German writes in place of cents."""
_GENDERED_NOUN = lazy_pattern(rf"(?<!\w)([A-ZÄÖÜ]\w*{_PERSON}|Ärzt)(?:[:*_·]|/-)(in(?:nen)?)(?!\w)")
"""A noun for all genders, such as Student:innen."""
_GENDERED_ENDING = lazy_pattern(
    r"(?<!\w)((?i:jede|(?:k|m|d|s)?eine|diese|welche|manche|ihre|unsere|liebe)(?=[:*_·])"
    r"|[a-zäöüß]+e(?=:))[:*_·]([mnrs])(?!\w)"
)
"""A determiner or, with a colon, an adjective for all genders, such as jede:r, but not `page_n` and
`page*n`."""


def is_gendered(word: str, language: str) -> bool:
    """Return whether a word is a German form for all genders, such as Lehrer_innen."""
    if base_language(language) != "de":
        return False
    return bool(_GENDERED_NOUN.fullmatch(word) or _GENDERED_ENDING.fullmatch(word))


def write_out(text: str, language: str) -> Iterator[Edit]:
    """Yield the edits that write out the abbreviations of a text, and that replace German forms for
    all genders by others: Student:innen by Studentinnen, jede:r by jeder.

    `language` is the code of the text; languages other than German and English have no edits.
    """
    code = base_language(language)
    if code not in _LANGUAGES:
        return
    yield from _plain_german(text) if code == "de" else _plain_english(text)
    yield from _find(text, _LANGUAGES[code])


def _find(text: str, abbreviations: _Abbreviations) -> Iterator[Edit]:
    """Yield the edits of the abbreviations that the tables list."""
    for match in _CANDIDATE.finditer(text):
        words = _words(match, abbreviations)
        if not words:
            continue
        group = "measure" if match["number"] else "short"
        has_period = match.end() > match.end(group)
        if has_period and _is_sentence_end(match, match[group], abbreviations):
            words += "."
        yield (match.start(group), match.end(), words)


def find_abbreviations(text: str, language: str) -> list[ProtectedSpan]:
    """Return the abbreviations whose periods end no sentence, each with the first character of the
    next word."""
    found: list[ProtectedSpan] = []
    for start, end, words in write_out(text, language):
        if text[end - 1] == "." and not words.endswith("."):
            following = len(text[end : end + _MAX_SPACE].lstrip())
            next_start = min(end + _MAX_SPACE, len(text)) - following
            found.append(ProtectedSpan(start, next_start + 1, "abbreviation"))
    return found


def translate_era(text: str, span: tuple[int, int], src: str, tgt: str) -> str | None:
    """Return the German translation of an English era such as BC after a year or century; None if
    a span of the text is none."""
    start, end = span
    is_supported = base_language(src) == "en" and base_language(tgt) == "de"
    is_era = is_supported and _BEFORE_ERA.search(text[max(0, start - 20) : start])
    return _GERMAN_ERAS.get(text[start:end]) if is_era else None


def _plain_german(text: str) -> Iterator[Edit]:
    """Yield the edits of forms for all genders, of prices such as 5,- Euro, of days such as
    Sonnabend, of halves such as zweieinhalb, and of the numbers of monarchs."""
    for pattern in (_GENDERED_NOUN, _GENDERED_ENDING):
        for match in pattern.finditer(text):
            yield (*match.span(), match[1] + match[2])
    for match in _NO_CENTS.finditer(text):
        yield (*match.span(match.lastgroup or 0), "")
    for match in _SONNABEND.finditer(text):
        yield (*match.span(), f"{match[1]}amstag{match[2]}")
    for match in _GERMAN_DAYS.finditer(text):
        yield (*match.span(), "".join(match.groups()))
    yield from german_halves_in_digits(text)
    for match in _REGNAL_NUMBER.finditer(text):
        yield (match.start("number"), match.end(), match["number"])


def _plain_english(text: str) -> Iterator[Edit]:
    """Yield the edits of the world wars, and of abbreviations such as U.K., which lose their
    points."""
    for match in _WORLD_WAR.finditer(text):
        ordinal = "Second" if match["number"] == "II" else "First"
        if match["both"]:
            ordinal = f"First {match['joint']} Second"
        yield (*match.span(), f"{ordinal} World War")
    for match in _DOTTED.finditer(text):
        ends_sentence = _ends_sentence(text, match.end(), _ENGLISH)
        letters = match[0].replace(".", "")
        yield (*match.span(), f"{letters}." if ends_sentence else letters)


def _words(match: re.Match[str], abbreviations: _Abbreviations) -> str | None:
    """Return the words of a candidate; None if it is no abbreviation."""
    short = match["measure"] or match["short"]
    if match["number"] and not _is_section(match):
        words = _measure(match, abbreviations)
        if words or not match["period"]:
            return words
    return next(_meanings(match, short, abbreviations), None)


def _is_section(match: re.Match[str]) -> bool:
    """Return whether a word after a number begins another number, as in Title 5 Sec. 2."""
    is_capitalized = match["period"] and match["measure"] in _CAPITALIZED_SECTIONS
    return bool(is_capitalized and _NUMBER_AHEAD.match(match.string, match.end()))


def _meanings(match: re.Match[str], short: str, abbreviations: _Abbreviations) -> Iterator[str]:
    """Yield the words that an abbreviation at the end of a match stands for."""
    text = match.string
    end = match.end()
    start = end - len(f"{short}.")
    found: list[str | None] = []
    if abbreviations.end.match(text, end):
        found.append(abbreviations.at_end.get(short))
    found.append(_look_up(short, abbreviations.anywhere))
    if _NUMBER_AHEAD.match(text, end):
        found.append(_look_up(short, abbreviations.before_number))
    if short in abbreviations.dates and is_date(text, start, end - 1):
        found.append(abbreviations.dates[short])
    if _NAME_AHEAD.match(text, end) and not _ends_sentence(text, end, abbreviations):
        found.append(_look_up(short, abbreviations.before_name))
    for words in found:
        if words and not _has_other_meaning(words, text, start, end, abbreviations):
            yield words


def _has_other_meaning(
    words: str, text: str, start: int, end: int, abbreviations: _Abbreviations
) -> bool:
    """Return whether an abbreviation and its period, a range of a text, stand for other words."""
    if words not in abbreviations.other_meaning:
        return False
    before, after = abbreviations.other_meaning[words]
    text_before = text[max(0, start - _MAX_BEFORE) : start]
    return bool(re.search(f"(?:{before})$", text_before) and re.compile(after).match(text, end))


def _measure(match: re.Match[str], abbreviations: _Abbreviations) -> str | None:
    """Return the words of an abbreviation after a number."""
    number = match["number"]
    if number.endswith(".") and not match["period"]:
        return None  # the number ended a sentence
    words = _look_up(match["measure"], abbreviations.after_number)
    if not words or "/" not in words:
        return words
    singular, plural = words.split("/")
    if singular == "hour" and _CLOCK.fullmatch(number):
        return None  # a time such as 20.45 hrs
    is_fraction = match.start() and match.string[match.start() - 1] == "/"
    return singular if number == "1" or is_fraction else plural


def _look_up(short: str, table: Mapping[str, str]) -> str | None:
    """Return the words of an abbreviation, which may be capitalized."""
    if short in table:
        return table[short]
    words = table.get(short[0].lower() + short[1:])
    return words[0].upper() + words[1:] if words else None


def _is_sentence_end(match: re.Match[str], short: str, abbreviations: _Abbreviations) -> bool:
    """Return whether the period of an abbreviation also ends a sentence."""
    if _ends_sentence(match.string, match.end(), abbreviations):
        return True
    is_before_noun = match["number"] and is_after_determiner(match.string, match.start())
    if is_before_noun or short.lower() not in abbreviations.before_no_name:
        return False
    return starts_with_capital(match.string, match.end())


def _ends_sentence(text: str, end: int, abbreviations: _Abbreviations) -> bool:
    """Return whether a sentence ends at an offset of a text."""
    begins_with_bracket = text[:1] in ("(", "[")
    if text[end : end + 1] in (")", "]") and not begins_with_bracket:
        return False
    next_sentence = re.compile(
        rf"\s+(?:(?:{abbreviations.sentence_starts})\b|[A-ZÄÖÜ]\w{{0,30}}:\s)"
    )
    return bool(_TEXT_END.match(text, end) or next_sentence.match(text, end))
