"""The items of a list, translated one by one and put together again."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.text.language_codes import base_language
from nmt.text.tokenizer import Tokenizer
from nmt.translation.capitals import inside_sentence
from nmt.translation.content import split_items
from nmt.translation.periods import without_added_period
from nmt.translation.result import Translation
from nmt.translation.segments import Line

CONJUNCTIONS = {
    ("de", "en"): {"und": "and", "sowie": "and", "oder": "or"},
    ("en", "de"): {"and": "und", "as well as": "sowie", "or": "oder"},
}


def join_items(
    text: str, translations: Sequence[Translation], languages: tuple[str, str], tokenizer: Tokenizer
) -> str:
    """Return the translation of a list from those of its items."""
    items, separators = split_items(text)
    result = ""
    for item, translation, mark in zip(items, translations, [*separators, ""], strict=True):
        without_period = without_added_period(Line(item), translation).text
        begins_with_name = without_period.split()[:1] == item.split()[:1]
        if begins_with_name:
            result += without_period
        else:
            result += inside_sentence(without_period, item, tokenizer, languages[1])
        result += _translate_separator(mark, *languages)
    return result


def _translate_separator(text: str, src: str, tgt: str) -> str:
    conjunctions = CONJUNCTIONS.get((base_language(src), base_language(tgt)), {})
    word = conjunctions.get(text.strip(" ,"))
    return f" {word} " if word else text
