"""Language codes, such as de, pt-BR or zh_Hans."""

from __future__ import annotations

import re

NAMES = dict(
    entry.split(":")
    for entry in """af:Afrikaans|ar:Arabic|az:Azerbaijani|be:Belarusian|bg:Bulgarian|bn:Bengali
bs:Bosnian|ca:Catalan|ceb:Cebuano|cs:Czech|cy:Welsh|da:Danish|de:German|el:Greek
en:English|eo:Esperanto|es:Spanish|et:Estonian|eu:Basque|fa:Persian|fi:Finnish
fr:French|ga:Irish|gl:Galician|gu:Gujarati|he:Hebrew|hi:Hindi|hr:Croatian
hu:Hungarian|hy:Armenian|id:Indonesian|is:Icelandic|it:Italian|ja:Japanese
ka:Georgian|kk:Kazakh|km:Khmer|kn:Kannada|ko:Korean|ky:Kyrgyz|la:Latin
lb:Luxembourgish|lt:Lithuanian|lv:Latvian|mk:Macedonian|ml:Malayalam
mn:Mongolian|mr:Marathi|ms:Malay|mt:Maltese|nb:Norwegian Bokmål|ne:Nepali
nl:Dutch|nn:Norwegian Nynorsk|no:Norwegian|pa:Punjabi|pl:Polish|ps:Pashto
pt:Portuguese|ro:Romanian|ru:Russian|sh:Serbo-Croatian|si:Sinhala|sk:Slovak
sl:Slovenian|sq:Albanian|sr:Serbian|sv:Swedish|sw:Swahili|ta:Tamil|te:Telugu
th:Thai|tl:Tagalog|tr:Turkish|uk:Ukrainian|ur:Urdu|uz:Uzbek|vi:Vietnamese
zh:Chinese|zu:Zulu""".replace("\n", "|").split("|")
)
"""English names of language codes."""


def base_language(code: str) -> str:
    """Return a language code in lower case without region, script and encoding, such as zh for
    zh-Hans."""
    return re.split("[-_@.]", code.lower())[0]
