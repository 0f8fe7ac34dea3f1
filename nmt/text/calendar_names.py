"""The names of days and months, and words such as yesterday."""

from __future__ import annotations

import re

from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern

_DAYS = {
    "Montag": "Monday",
    "Dienstag": "Tuesday",
    "Mittwoch": "Wednesday",
    "Donnerstag": "Thursday",
    "Freitag": "Friday",
    "Samstag": "Saturday",
    "Sonnabend": "Saturday",
    "Sonntag": "Sunday",
}
_MONTHS = {
    "Januar": "January",
    "Februar": "February",
    "März": "March",
    "April": "April",
    "Mai": "May",
    "Juni": "June",
    "Juli": "July",
    "August": "August",
    "September": "September",
    "Oktober": "October",
    "November": "November",
    "Dezember": "December",
}
_RELATIVE = {
    "de": {
        "vorgestern": ["the day before yesterday", "two days ago"],
        "gestern": ["yesterday", "last night", "last evening"],
        "übermorgen": ["the day after tomorrow", "in two days"],
    },
    "en": {
        "day before yesterday": ["vorgestern"],
        "yesterday": ["gestern", "gestrig"],
        "day after tomorrow": ["übermorgen"],
        "tomorrow": ["morgen", "morgig"],
    },
}
"""Days named from today, and their translations."""
_GERMAN = _DAYS | _MONTHS
_TRANSLATIONS: dict[str, dict[str, list[str]]] = {
    "de": {german: [english] for german, english in _GERMAN.items()},
    "en": {english: [] for english in _GERMAN.values()},
}
for _german, _english in _GERMAN.items():
    _TRANSLATIONS["en"][_english].append(_german)
_AFTER_DAYS = "(?<=day after tomorrow)|(?<=day before yesterday)"
_RELATIVE_NAMES = {
    code: lazy_pattern(rf"(?<!\w)(?:{'|'.join(names)})(?!\w|(?:{_AFTER_DAYS})['’]s)", re.IGNORECASE)
    for code, names in _RELATIVE.items()
}
"""These words, but not the day after tomorrow's meeting, which may be another day."""
_VERBS = "March|May"
"""English months that are also verbs, except in May 2011 and in May."""
_BEFORE_MONTH = "|".join(
    rf"(?<=\b{word})"
    for word in ("[Ii]n ", "early ", "late ", "mid-", "[Ss]ince ", "until ", "of ")
)
_NAMES = {
    "de": lazy_pattern(
        rf"(?<!\w)(?:(?P<day>{'|'.join(_DAYS)})(?:abend|morgen|nacht|(?:nach|vor)?mittag)?s?"
        rf"|(?P<month>{'|'.join(_MONTHS)}))(?!\w)"
    ),
    "en": lazy_pattern(
        rf"(?<!\w)(?:(?P<day>{'|'.join(_DAYS.values())})s?|(?P<month>(?!{_VERBS})"
        rf"(?:{'|'.join(_MONTHS.values())})|(?:(?<=\d\s)|{_BEFORE_MONTH})(?:{_VERBS})"
        rf"|(?:{_VERBS})(?=\s\d)))(?!\w)"
    ),
}
_NUMERIC_DATE = lazy_pattern(r"\d[./]\d")


def missing_names(source: str, text: str, src: str, tgt: str) -> list[str]:
    """Return the translations of the days and months in a source, and of words such as yesterday,
    that a translation lacks; none if the languages are not English and German.

    A month may be abbreviated, or a number if there is a numeric date. A name may be copied, as in
    Black Friday.
    """
    code = base_language(src)
    if {code, base_language(tgt)} != {"de", "en"}:
        return []
    in_lower_case = text.lower()
    missing = _missing_relative(source, text, code)
    if not any(name in source for name in _TRANSLATIONS[code]):  # fast path for most texts
        return missing
    names = dict.fromkeys(match.groups() for match in _NAMES[code].finditer(source))
    for day, month in names:
        name = day or month
        translations = _TRANSLATIONS[code][name]
        forms = [name, *translations]
        if month:
            forms.append(translations[0][:3])
        is_numeric = month and _NUMERIC_DATE.search(text)
        if not is_numeric and not any(form.lower() in in_lower_case for form in forms):
            missing.append(translations[0])
    return list(dict.fromkeys(missing))


def _missing_relative(source: str, text: str, code: str) -> list[str]:
    """Return the translations of words such as yesterday that a text lacks, unless they are part
    of a title."""
    in_lower_case = source.lower()
    if not any(name in in_lower_case for name in _RELATIVE[code]):  # fast path for most texts
        return []
    missing = []
    for name in dict.fromkeys(_RELATIVE_NAMES[code].findall(source)):
        translations = _RELATIVE[code][name.lower()]
        # The Day After Tomorrow, or a single word that is copied
        is_title = name.istitle() and (" " in name or name in text)
        if not is_title and not any(each in text.lower() for each in translations):
            missing.append(translations[0])
    return missing
