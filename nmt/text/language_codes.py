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
GERMAN_NAMES = dict(
    entry.split(":")
    for entry in """
ar:Arabisch bg:Bulgarisch ca:Katalanisch cs:Tschechisch da:Dänisch de:Deutsch el:Griechisch
en:Englisch eo:Esperanto es:Spanisch et:Estnisch fa:Persisch fi:Finnisch fr:Französisch
he:Hebräisch hi:Hindi hr:Kroatisch hu:Ungarisch id:Indonesisch is:Isländisch it:Italienisch
ja:Japanisch ko:Koreanisch la:Latein lt:Litauisch lv:Lettisch nl:Niederländisch no:Norwegisch
pl:Polnisch pt:Portugiesisch ro:Rumänisch ru:Russisch sk:Slowakisch sl:Slowenisch sq:Albanisch
sr:Serbisch sv:Schwedisch th:Thailändisch tr:Türkisch uk:Ukrainisch vi:Vietnamesisch zh:Chinesisch
""".split()
)
"""German names of language codes, which tables may have in their heads."""
THREE_LETTER_CODES = dict(
    entry.split(":")
    for entry in """
af:afr ar:ara az:aze be:bel bg:bul bn:ben bs:bos ca:cat ceb:ceb cs:ces cy:cym
da:dan de:deu el:ell en:eng eo:epo es:spa et:est eu:eus fa:fas fi:fin fr:fra ga:gle gl:glg gu:guj
he:heb hi:hin hr:hrv hu:hun hy:hye id:ind is:isl it:ita ja:jpn ka:kat kk:kaz km:khm kn:kan ko:kor
ky:kir la:lat lb:ltz lt:lit lv:lav mk:mkd ml:mal mn:mon mr:mar ms:msa mt:mlt nb:nob ne:nep nl:nld
nn:nno no:nor pa:pan pl:pol ps:pus pt:por ro:ron ru:rus sh:hbs si:sin sk:slk sl:slv sq:sqi sr:srp
sv:swe sw:swa ta:tam te:tel th:tha tl:tgl tr:tur uk:ukr ur:urd uz:uzb vi:vie zh:zho zu:zul
""".split()
)
"""Codes of ISO 639-3."""


def normalize_code(code: str) -> str:
    """Return a language code in lower case and with hyphens: pt-br for pt_BR."""
    return code.strip().lower().replace("_", "-")


def base_language(code: str) -> str:
    """Return a language code in lower case without region, script and encoding, such as zh for
    zh-Hans."""
    return re.split("[-_@.]", code.lower())[0]


def find_language(name: str) -> str:
    """Return the code of a language by its code, its English or its German name; empty for another
    word."""
    folded = name.strip().strip('"').casefold()
    for code, english in NAMES.items():
        names = (code, english.casefold(), GERMAN_NAMES.get(code, "").casefold())
        if folded and folded in names:
            return code
    return ""
