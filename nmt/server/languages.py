"""Names of languages, and identification of the language of a text among those that the server translates."""

from __future__ import annotations

from collections.abc import Collection

from nmt.data.check.languages import LANGUAGES, language_probabilities, model_code
from nmt.data.language_codes import base_language

NAMES = dict(
    entry.split(":")
    for entry in """af:Afrikaans|ar:Arabic|az:Azerbaijani|be:Belarusian|bg:Bulgarian|bn:Bengali|bs:Bosnian|ca:Catalan
ceb:Cebuano|cs:Czech|cy:Welsh|da:Danish|de:German|el:Greek|en:English|eo:Esperanto|es:Spanish|et:Estonian|eu:Basque
fa:Persian|fi:Finnish|fr:French|ga:Irish|gl:Galician|gu:Gujarati|he:Hebrew|hi:Hindi|hr:Croatian|hu:Hungarian
hy:Armenian|id:Indonesian|is:Icelandic|it:Italian|ja:Japanese|ka:Georgian|kk:Kazakh|km:Khmer|kn:Kannada|ko:Korean
ky:Kyrgyz|la:Latin|lb:Luxembourgish|lt:Lithuanian|lv:Latvian|mk:Macedonian|ml:Malayalam|mn:Mongolian|mr:Marathi|ms:Malay
mt:Maltese|nb:Norwegian Bokmål|ne:Nepali|nl:Dutch|nn:Norwegian Nynorsk|no:Norwegian|pa:Punjabi|pl:Polish|ps:Pashto
pt:Portuguese|ro:Romanian|ru:Russian|sh:Serbo-Croatian|si:Sinhala|sk:Slovak|sl:Slovenian|sq:Albanian|sr:Serbian
sv:Swedish|sw:Swahili|ta:Tamil|te:Telugu|th:Thai|tl:Tagalog|tr:Turkish|uk:Ukrainian|ur:Urdu|uz:Uzbek|vi:Vietnamese
zh:Chinese|zu:Zulu""".replace("\n", "|").split("|")
)
"""English names of language codes."""


def language_name(code: str) -> str:
    """Return the English name of a language, or its code if the name is unknown."""
    name = NAMES.get(base_language(code), code)
    return name if code == base_language(code) or name == code else f"{name} ({code})"


def detect(text: str, codes: Collection[str]) -> list[tuple[str, float]]:
    """Return language codes and their probabilities in percent, the most probable first.

    Args:
        text: its first 200 characters are used.
        codes: the possible languages. Their probabilities add up to less than 100 if the text may be in another one.
    """
    probabilities = language_probabilities(text, len(LANGUAGES))
    bases = set(map(base_language, codes))
    percent = {}
    for code in codes:  # the probability of no is not that of nb, too, if both are possible
        base, known = base_language(code), model_code(code)
        probability = probabilities.get(known, 0.0) if base == known or known not in bases else 0.0
        percent[code] = round(100 * min(1.0, probability), 1)
    return sorted(percent.items(), key=lambda item: -item[1])
