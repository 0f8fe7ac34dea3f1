"""Text normalization, applied identically in training and translation."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Sequence

from nmt.text.lazy_pattern import lazy_pattern

# Control characters and invisible characters without meaning. Joiners (U+200C, U+200D) and
# direction marks are meaningful in other scripts and kept. Whitespace (tab, U+0085, U+2028, ...) is
# replaced with a space first.
SURROGATES = lazy_pattern("[\ud800-\udfff]")
"""Halves of surrogate pairs, which JSON can express and UTF-8 cannot."""
_INVISIBLE = lazy_pattern("[\x00-\x1f\x7f-\x9f\u00ad\u200b\u2060\ufeff]+")
_CONTROL_SPACES = lazy_pattern("[\t-\r\x1c-\x1f\x85\u2028\u2029]")
# Letters of scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Han.
UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # noqa: E501
LETTER_OR_DIGIT = rf"[^\W{UNSPACED}\uac00-\ud7af]"
"""A letter or digit, except of scripts that write numbers and names without spaces around them."""
_BACKTICK = lazy_pattern(r"(?<=[^\W\d_])[`´](?=[^\W\d_])")
"""A backtick or accent between letters, which stands for an apostrophe."""
_HYPHENS = str.maketrans(dict.fromkeys("\u2010\u2011", "-"))
"""Typographic and non-breaking hyphens, which training data hardly has."""
_UNSPACED_LETTER = lazy_pattern(f"[{UNSPACED}]")
_WORD_OR_LETTER = lazy_pattern(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
# A word of Thai, Lao, Burmese or Khmer has about four characters, because vowel signs and tone
# marks are characters.
_ABUGIDA_WORD = lazy_pattern("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]{1,4}")


def normalize_source(text: str, *, lowercase_all_caps: bool) -> str:
    """Return a source text as a model reads it: normalized, with variants of letters, hyphens and
    apostrophes replaced, and in lower case if it is all caps and `lowercase_all_caps`."""
    # A replaced letter may form one character with the mark after it.
    normalized = normalize(fold_compatibility(text))
    with_apostrophes = _BACKTICK.sub("'", normalized)
    return normalize_case(with_apostrophes, lowercase_all_caps=lowercase_all_caps)


def normalize_case(text: str, *, lowercase_all_caps: bool) -> str:
    """Lowercase a text that is all caps if `lowercase_all_caps`; texts with fewer than four
    capitals are kept."""
    if not lowercase_all_caps:
        return text
    num_capitals = sum(map(str.isupper, text))
    is_all_caps = text.replace("ß", "").isupper() and num_capitals >= 4
    return text.lower() if is_all_caps else text


def normalize(text: str) -> str:
    """Apply Unicode NFC, collapse whitespace, strip, and remove control characters.

    U+2581 becomes an underscore because SentencePiece reserves it for spaces. A lone surrogate,
    which cannot be encoded, becomes U+FFFD.
    """
    text = " ".join(text.split())
    if text.isprintable():  # neither control characters, nor invisible ones, nor surrogates
        if text.isascii():
            return text
        text = text.replace("\u2581", "_")
        if unicodedata.is_normalized("NFC", text):
            return text
    text = _INVISIBLE.sub("", text)
    text = SURROGATES.sub("\ufffd", text).replace("\u2581", "_")
    words = unicodedata.normalize("NFC", text).split()  # a removed character may leave two spaces
    return " ".join(words)


def fold_compatibility(text: str) -> str:
    """Replace letters that are variants of others, such as ligatures and full-width letters, by
    these (NFKC), and hyphens that are not ASCII by one that is."""
    if text.isascii():
        return text
    characters = [unicodedata.normalize("NFKC", c) if _is_variant(c) else c for c in text]
    return "".join(characters).translate(_HYPHENS)


@functools.lru_cache(maxsize=4096)
def _is_variant(character: str) -> bool:
    is_letter_or_digit = unicodedata.category(character)[0] in "LN"
    decomposition = unicodedata.decomposition(character)
    return is_letter_or_digit and decomposition.startswith(
        ("<compat>", "<wide>", "<narrow>", "<font>")
    )


def remove_invisible(text: str) -> str:
    """Replace tabs and line breaks by spaces, and remove control characters and invisible
    characters."""
    text = _CONTROL_SPACES.sub(" ", text)
    return _INVISIBLE.sub("", text)


def words(text: str) -> list[str]:
    """Return the words. Each letter of a script without spaces, such as Han or Thai, counts as a
    word."""
    if text.isascii() or not _UNSPACED_LETTER.search(text):
        return text.split()
    return _WORD_OR_LETTER.findall(text)


def words_without_punctuation(text: str) -> list[str]:
    """Return the words without punctuation and symbols at their edges."""
    stripped = map(_strip_punctuation, words(text))
    return list(filter(None, stripped))


def _strip_punctuation(word: str) -> str:
    if word.isalnum():
        return word
    punctuation = [c for c in set(word) if unicodedata.category(c).startswith(("P", "S"))]
    return word.strip("".join(punctuation))


def is_mark(character: str) -> bool:
    """Return whether a character belongs to the letter before it, such as a vowel sign; variation
    selectors do not."""
    is_selector = "\ufe00" <= character <= "\ufe0f" or "\U000e0100" <= character <= "\U000e01ef"
    return unicodedata.category(character) in ("Mn", "Mc") and not is_selector


def estimate_num_words(words: Sequence[str]) -> int:
    """Estimate the number of words of a tokenized sentence. In text without spaces, twice as many
    are counted."""
    num_counted = sum(map(count_words, words))
    return max(len(words), num_counted // 2)


def count_words(text: str) -> int:
    """Return the number of words; see `words`. Four letters of Thai, Lao, Burmese or Khmer count as
    one."""
    if text.isascii() or not _UNSPACED_LETTER.search(text):
        return len(text.split())
    return len(words(_ABUGIDA_WORD.sub("\u0e01", text)))
