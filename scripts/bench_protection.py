#!/usr/bin/env python3
"""Measure how many protected spans arrive intact: 1,000 sentences with addresses, numbers, code and
variables.

    scripts/bench_protection.py --model en-de --model runs/multi30k

The sentences are generated: templates, with random spans. A translation is intact if each span of
its source occurs in it unchanged, but for the separators of numbers. Prints the share of intact
translations of the search alone and of `nmt.translation.guard.Guard`.
"""

from __future__ import annotations

import random
import re
import string

import benchmark
from benchmark import print_head, print_row
from command_errors import error_messages
from nmt.text.numbers import swap_separators
from nmt.translation.checks import count_occurrences
from nmt.translation.guard import Guard
from nmt.translation.translator import Translator

TEMPLATES = {
    "en": (
        """My email is EMAIL.|Please write to EMAIL before DATE.|Send it to EMAIL or call PHONE.|See URL for details.
You can find the book at URL.|The page URL does not work.|Open the file PATH.|The program is in PATH, not in PATH.
Run CODE first.|The function CODE returns NUMBER.|Do not call CODE twice.|Hello VARIABLE, how are you?
You have VARIABLE new messages.|VARIABLE wants to see you.|Tom paid MONEY for the car.|It costs MONEY.
I weigh QUANTITY.|The box is QUANTITY long and weighs QUANTITY.|The meeting is on DATE at TIME.|We met on DATE.
She was born in YEAR.|There are NUMBER people in the room.|I have NUMBER questions.|NUMBER|DATE|EMAIL
Tom and HANDLE are friends.|Do you know HANDLE?|The error was in HASH.|Version VERSION is new.|I have read HANDLE today.
The train leaves at TIME.|The population is LARGE.|In YEAR there were LARGE of them.|Use the option OPTION.
Use part PRODUCT for this.|We tested PRODUCT and PRODUCT last week.|The color COLOR is dark.|See ISSUE for the answer.
VERSION is new, and PRERELEASE comes later.|The log begins at STAMP.|STAMP [main] The server is running.
The dose is MEASURE.|The error is MEASURE."""  # noqa: E501
    ),
    "de": (
        """Meine E-Mail ist EMAIL.|Bitte schreibe vor dem DATE an EMAIL.|Siehe URL.|Das Buch findest du unter URL.
Die Seite URL geht nicht.|Öffne die Datei PATH.|Das Programm ist in PATH, nicht in PATH.|Führe zuerst CODE aus.
Die Funktion CODE gibt NUMBER zurück.|Hallo VARIABLE, wie geht es dir?|Du hast VARIABLE neue Nachrichten.
Tom hat MONEY für das Auto bezahlt.|Es kostet MONEY.|Ich wiege QUANTITY.|Wir treffen uns am DATE um TIME.
Sie wurde YEAR geboren.|Es sind NUMBER Leute im Zimmer.|Ich habe NUMBER Fragen.|NUMBER|DATE|EMAIL
Tom und HANDLE sind Freunde.|Kennst du HANDLE?|Der Fehler war in HASH.|Version VERSION ist neu.
Der Zug fährt um TIME ab.|Die Stadt hat LARGE Einwohner.|Benutze die Option OPTION.
Nimm dafür Teil PRODUCT.|Wir haben PRODUCT letzte Woche getestet.|Die Farbe COLOR ist dunkel.|Siehe ISSUE.
VERSION ist neu, und PRERELEASE kommt später.|STAMP [main] Der Server läuft.|Die Dosis ist MEASURE."""  # noqa: E501
    ),
}

KIND = re.compile("[A-Z]{3,}")
"""A placeholder of a template, such as EMAIL."""


SPANS = {
    "EMAIL": ("<word>.<word>@<word>.com", "<word><1-99>@<word>.de", "<word>+<word>@<word>.co.uk"),
    "URL": (
        "https://<word>.org/<word>?<word 1-3>=<1-999>",
        "www.<word>.com",
        "http://<word>.net/<word>/#<word>",
    ),
    "PATH": (
        "/usr/<word>/<word>",
        r"C:\<word>\<word>.txt",
        "./<word>.sh",
        "<word>/<word>.py",
        "<word>.pdf",
    ),
    "CODE": ("`<word> --<word>`", "<word>_<word>()", "`<word>`", "<word>.<word>()"),
    "VARIABLE": ("{<word>}", "%s", "%d", "${<word>}", "%(<word>)s", "{0}"),
    "MONEY": ("$<2-99>.<10-99>", "€<2-900>", "<2-900> EUR", "<1-9>,<100-999>.<10-99> USD"),
    "QUANTITY": ("<2-99> kg", "<2-99>.<1-9> cm", "<2-99> km", "<2-99>%"),
    "DATE": ("20<10-29>-<10-12>-<10-28>", "<10-28>.<10-12>.20<10-29>", "<1-12>/<1-28>/20<10-29>"),
    "TIME": ("<1-12>:<10-59>",),
    "PHONE": ("+49 <30-99> <100000-9999999>", "(<200-999>) <200-999>-<1000-9999>"),
    "YEAR": ("<1800-2030>",),
    "NUMBER": ("<2-99>", "<100-9999>", "<2-99>.<1-9>"),
    "LARGE": ("<10-999>,<100-999>", "<10000-9999999>"),
    "HANDLE": ("@<word>", "#<word>"),
    "HASH": ("<hex 10>a1", "0x<hex 4>"),
    "VERSION": ("<1-9>.<0-20>.<0-9>", "v<1-9>.<0-20>.<0-9>"),
    "PRODUCT": (
        "<WORD 1-3><10-99>-<100-999>",
        "<WORD 2-2>-<1000-9999>",
        "<word 1-1><3-9>-<1000-9999><WORD 1-1>",
        "<100-999><WORD 2-2><1-9>",
    ),
    "COLOR": ("#<hex 6>",),
    "ISSUE": ("#<1-999>", "<word>/<word>#<1-999>"),
    "PRERELEASE": ("<0-9>.<0-9>.<0-9>-beta.<1-9>", "<1-9>.<0-9>-rc<1-9>"),
    "STAMP": (
        "2024-0<1-9>-<10-28>T<10-23>:<10-59>:<10-59>Z",
        "2024-0<1-9>-<10-28> <10-23>:<10-59>:<10-59>,<100-999>",
    ),
    "MEASURE": ("<2-99> µg", "± <2-99>", "<2-99> ₹", "₽<2-99>", "<2-99> °C"),
    "OPTION": ("--<word>", "--<word>-<word>", "-<word 1-1>"),
}
"""Patterns of the spans of each kind."""
FIELD = re.compile(r"<(\w*?) ?(\d*)-?(\d*)>")
"""A random part of a pattern: a number in a range, letters whose number is in a range, or some
hexadecimal digits."""


def random_span(kind: str, rng: random.Random) -> str:
    """Return a random span of a kind."""

    def fill(field: re.Match[str]) -> str:
        name, low, high = field.groups()
        if name == "hex":
            return f"{rng.getrandbits(4 * int(low)):0{low}x}"
        number = rng.randint(int(low or 3), int(high or 9))
        if not name:
            return str(number)
        text = "".join(rng.choices(string.ascii_lowercase, k=number))
        return text.upper() if name == "WORD" else text

    # All kinds are drawn, which keeps the sentences that published figures were measured with.
    spans = {}
    for each, patterns in SPANS.items():
        spans[each] = [FIELD.sub(fill, pattern) for pattern in patterns]
    return rng.choice(spans[kind])


def sentences(language: str, count: int) -> list[tuple[str, list[str]]]:
    """Return sentences and their spans."""
    rng = random.Random(1)
    templates = TEMPLATES[language].replace("\n", "|").split("|")
    result = []
    for i in range(count):
        template = templates[i % len(templates)]
        spans = [random_span(kind, rng) for kind in KIND.findall(template)]
        result.append((KIND.sub("{}", template).format(*spans), spans))
    return result


def main() -> None:
    """Print a table with one row per model."""
    parser = benchmark.parser(__doc__)
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--show", type=int, default=0, help="number of translations to print")
    options = parser.parse_args()
    print_head("model", "search alone", "guarded")
    for name in options.model:
        translator = Translator.load(name)
        items = sentences(translator.config.data.src, options.sentences)
        texts = [text for text, _ in items]
        raw = translator.translate(texts)
        guarded = Guard(translator).translate(texts)
        print_row([name, share_intact(items, raw), share_intact(items, guarded)])
        for i, text in enumerate(texts[: options.show]):
            print(f"{text}\n    {raw[i]}\n    {guarded[i]}")


def share_intact(items: list[tuple[str, list[str]]], translations: list[str]) -> str:
    """Return the share of translations with all spans of their source; decimals may have the
    separators of the other language."""
    num_intact = 0
    for (_, spans), text in zip(items, translations, strict=True):
        missing = [span for span in spans if not count_occurrences(text, span)]
        num_intact += all(count_occurrences(text, swap_separators(span)) for span in missing)
    return f"{num_intact / len(items):.1%}"


if __name__ == "__main__":
    with error_messages():
        main()
