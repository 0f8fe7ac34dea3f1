"""Numbers in words and times of day in both languages."""

from __future__ import annotations

EN_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
).split()
EN_TENS = " . twenty thirty forty fifty sixty seventy eighty ninety".split(" ")
DE_SMALL = (
    "null eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn fünfzehn"
    " sechzehn siebzehn achtzehn neunzehn"
).split()
DE_TENS = " . zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split(" ")


def english_number(n: int) -> str:
    """Write 0 to 999 in English words."""
    if n >= 100:
        rest = f" and {english_number(n % 100)}" if n % 100 else ""
        return f"{EN_SMALL[n // 100]} hundred{rest}"
    if n < 20:
        return EN_SMALL[n]
    return EN_TENS[n // 10] + (f"-{EN_SMALL[n % 10]}" if n % 10 else "")


def german_number(n: int) -> str:
    """Write 0 to 999 in German words: einundzwanzig, zweihundertfünf."""
    if n >= 100:
        head = "" if n // 100 == 1 else DE_SMALL[n // 100]
        return f"{head}hundert{german_number(n % 100) if n % 100 else ''}"
    if n < 20:
        return DE_SMALL[n]
    if n % 10 == 0:
        return DE_TENS[n // 10]
    return ("ein" if n % 10 == 1 else DE_SMALL[n % 10]) + "und" + DE_TENS[n // 10]


def clock(hour: int, minute: int) -> tuple[str, str]:
    """Return a time of day in words in both languages (hours 1 to 12; multiples of 5 minutes except
    25 and 35)."""
    following = hour % 12 + 1
    en, de = EN_SMALL, DE_SMALL
    if minute == 0:
        return f"{en[hour]} o'clock", f"{'ein' if hour == 1 else de[hour]} Uhr"
    if minute == 30:
        return f"half past {en[hour]}", f"halb {de[following]}"
    if minute == 15:
        return f"a quarter past {en[hour]}", f"Viertel nach {de[hour]}"
    if minute == 45:
        return f"a quarter to {en[following]}", f"Viertel vor {de[following]}"
    if minute < 30:
        return (
            f"{english_number(minute)} past {en[hour]}",
            f"{german_number(minute)} nach {de[hour]}",
        )
    return (
        f"{english_number(60 - minute)} to {en[following]}",
        f"{german_number(60 - minute)} vor {de[following]}",
    )
