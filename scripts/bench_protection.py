#!/usr/bin/env python3
"""Measure how many protected spans arrive intact: 1,000 sentences with addresses, numbers, code and
variables.

    scripts/bench_protection.py --model en-de-small --model runs/multi30k

The sentences are generated: templates, with random spans. A translation is intact if each span of
its source occurs in it unchanged. Prints the share of intact translations of the search alone and
of `nmt.translation.guard.Guard`.
"""

from __future__ import annotations

import argparse
import random
import re
import string

from command_errors import error_messages
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


def random_span(kind: str, rng: random.Random) -> str:
    """Return a random span of a kind."""

    def word(low: int = 3, high: int = 9) -> str:
        return "".join(rng.choices(string.ascii_lowercase, k=rng.randint(low, high)))

    def n(low: int, high: int) -> int:
        return rng.randint(low, high)

    choices = {
        "EMAIL": [
            f"{word()}.{word()}@{word()}.com",
            f"{word()}{n(1, 99)}@{word()}.de",
            f"{word()}+{word()}@{word()}.co.uk",
        ],
        "URL": [
            f"https://{word()}.org/{word()}?{word(1, 3)}={n(1, 999)}",
            f"www.{word()}.com",
            f"http://{word()}.net/{word()}/#{word()}",
        ],
        "PATH": [
            f"/usr/{word()}/{word()}",
            f"C:\\{word()}\\{word()}.txt",
            f"./{word()}.sh",
            f"{word()}/{word()}.py",
            f"{word()}.pdf",
        ],
        "CODE": [
            f"`{word()} --{word()}`",
            f"{word()}_{word()}()",
            f"`{word()}`",
            f"{word()}.{word()}()",
        ],
        "VARIABLE": ["{" + word() + "}", "%s", "%d", "${" + word() + "}", f"%({word()})s", "{0}"],
        "MONEY": [
            f"${n(2, 99)}.{n(10, 99)}",
            f"€{n(2, 900)}",
            f"{n(2, 900)} EUR",
            f"{n(1, 9)},{n(100, 999)}.{n(10, 99)} USD",
        ],
        "QUANTITY": [
            f"{n(2, 99)} kg",
            f"{n(2, 99)}.{n(1, 9)} cm",
            f"{n(2, 99)} km",
            f"{n(2, 99)}%",
        ],
        "DATE": [
            f"20{n(10, 29)}-{n(10, 12)}-{n(10, 28)}",
            f"{n(10, 28)}.{n(10, 12)}.20{n(10, 29)}",
            f"{n(1, 12)}/{n(1, 28)}/20{n(10, 29)}",
        ],
        "TIME": [f"{n(1, 12)}:{n(10, 59)}"],
        "PHONE": [
            f"+49 {n(30, 99)} {n(100000, 9999999)}",
            f"({n(200, 999)}) {n(200, 999)}-{n(1000, 9999)}",
        ],
        "YEAR": [str(n(1800, 2030))],
        "NUMBER": [str(n(2, 99)), str(n(100, 9999)), f"{n(2, 99)}.{n(1, 9)}"],
        "LARGE": [f"{n(10, 999)},{n(100, 999)}", str(n(10000, 9999999))],
        "HANDLE": [f"@{word()}", f"#{word()}"],
        "HASH": [f"{rng.getrandbits(40):010x}a1", f"0x{rng.getrandbits(16):04x}"],
        "VERSION": [f"{n(1, 9)}.{n(0, 20)}.{n(0, 9)}", f"v{n(1, 9)}.{n(0, 20)}.{n(0, 9)}"],
        "PRODUCT": [
            f"{word(1, 3).upper()}{n(10, 99)}-{n(100, 999)}",
            f"{word(2, 2).upper()}-{n(1000, 9999)}",
            f"{word(1, 1)}{n(3, 9)}-{n(1000, 9999)}{word(1, 1).upper()}",
            f"{n(100, 999)}{word(2, 2).upper()}{n(1, 9)}",
        ],
        "COLOR": [f"#{rng.getrandbits(24):06x}"],
        "ISSUE": [f"#{n(1, 999)}", f"{word()}/{word()}#{n(1, 999)}"],
        "PRERELEASE": [
            f"{n(0, 9)}.{n(0, 9)}.{n(0, 9)}-beta.{n(1, 9)}",
            f"{n(1, 9)}.{n(0, 9)}-rc{n(1, 9)}",
        ],
        "STAMP": [
            f"2024-0{n(1, 9)}-{n(10, 28)}T{n(10, 23)}:{n(10, 59)}:{n(10, 59)}Z",
            f"2024-0{n(1, 9)}-{n(10, 28)} {n(10, 23)}:{n(10, 59)}:{n(10, 59)},{n(100, 999)}",
        ],
        "MEASURE": [
            f"{n(2, 99)} µg",
            f"± {n(2, 99)}",
            f"{n(2, 99)} ₹",
            f"₽{n(2, 99)}",
            f"{n(2, 99)} °C",
        ],
        "OPTION": [f"--{word()}", f"--{word()}-{word()}", f"-{word(1, 1)}"],
    }
    return rng.choice(choices[kind])


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
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", action="append", required=True)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--show", type=int, default=0, help="number of translations to print")
    options = parser.parse_args()
    print("| model | search alone | guarded |\n|---|---|---|")
    for name in options.model:
        translator = Translator.load(name)
        items = sentences(translator.config.data.src, options.sentences)
        texts = [text for text, _ in items]
        outputs = {
            "search": translator.translate(texts),
            "guard": Guard(translator).translate(texts),
        }
        shares = []
        for output in outputs.values():
            intact = [
                all(count_occurrences(text, s) for s in spans)
                for text, (_, spans) in zip(output, items, strict=True)
            ]
            shares.append(sum(intact) / len(intact))
        print(f"| {name} | {shares[0]:.1%} | {shares[1]:.1%} |")
        for (text, _), raw, guarded in list(
            zip(items, outputs["search"], outputs["guard"], strict=True)
        )[: options.show]:
            print(f"{text}\n    {raw}\n    {guarded}")


if __name__ == "__main__":
    with error_messages():
        main()
