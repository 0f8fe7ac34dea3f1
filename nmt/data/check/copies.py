"""Untranslated pairs. Translation uses this module, too, so it imports nothing slow."""

from __future__ import annotations

from collections import Counter

from nmt.text.normalization import estimate_num_words
from nmt.text.words import Words

MIN_COPY_WORDS = 4
"""Minimum number of words of an untranslated pair; short names and commands are equal in many
languages."""
MAX_CHANGED_FRACTION = 0.2
"""Maximum fraction of words that differ in an untranslated pair."""


def is_copy(source: Words, target: Words) -> bool:
    """Return whether the target has all or nearly all words of the source."""
    shorter, longer = sorted((len(source), len(target)))
    max_changed = int(MAX_CHANGED_FRACTION * longer + 1e-9)
    if longer - shorter > max_changed:
        return False
    if longer < MIN_COPY_WORDS and estimate_num_words(source) < MIN_COPY_WORDS:
        return False
    if len(set(target).difference(source)) > max_changed:  # fast path for most pairs
        return False
    num_shared = (Counter(source) & Counter(target)).total()
    return longer - num_shared <= max_changed
