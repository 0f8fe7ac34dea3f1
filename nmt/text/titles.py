"""English titles and headlines, which capitalize all words but short ones.

Capitals hide from a model which words are names: it copies the others, too. As a sentence, a title
has capitals in names only. A name is a word that the tokenizer does not know better in lower case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from nmt.text.lazy_pattern import lazy_pattern
from nmt.text.spans import Edit

CountPieces = Callable[[Sequence[str]], Sequence[int]]
"""Returns the number of pieces of each word."""

MIN_WORDS = 4
MIN_CAPITALIZED = 3
"""Minimum number of words of a title, and of those that are long."""
MIN_LONG = 4
"""Minimum number of letters of a word that titles always capitalize."""
_FUNCTION_WORDS = frozenset(
    (
        "a an the this that these those it its and or but nor as if than so of to in on at by for"
        " from with without into over under after before about against between during until up out"
        " off down is are was were be been being am do does did has have had can could will would"
        " shall should may might must not no how what when where which who whom whose why i you he"
        " she we they my your his her our their me him us them"
    ).split()
)
_CAPITALIZED_IN_TITLES = frozenset(
    (
        "is are was were be been am do does did has have had can could will would shall should may"
        " might must i you he she it we they this that these those isn't aren't wasn't weren't"
        " don't doesn't didn't can't won't i'm you're he's she's it's we're they're"
    ).split()
)
"""Verbs and pronouns. In lower case, they show that the capitals of a text are those of names, as
in Tom was at the Golden Gate Bridge."""
_ENDINGS = ("s", "es", "ed", "d", "ing", "er", "ers", "ly")
_LETTERS = lazy_pattern(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
_CAPITALIZED = lazy_pattern(
    r"(?<!\S)[^\w\s]*(?P<word>(?!\w{2,4}\.[\s,;:])[A-Z][a-z]+(?:['’][a-z]+)?)[^\w\s]*(?!\S)"
)
"""A word, but no abbreviation such as No. before other words."""
_BEGINNING = lazy_pattern(r"(?:^|[.:?!–—(\[]|\s-)\W*$")
_MAX_MARKS = 20
"""Maximum number of characters before a word in which the end of the previous one is searched, so
that the time is linear."""


def is_title(text: str) -> bool:
    """Return whether a text has the capitals of an English title, and a word that only a sentence
    has: Microsoft Visual Studio Code is a name."""
    words = _LETTERS.findall(text)
    content_words = [word for word in words if word.lower() not in _FUNCTION_WORDS]
    long_words = [word for word in content_words if len(word) >= MIN_LONG]
    if len(words) < MIN_WORDS or len(long_words) < MIN_CAPITALIZED:
        return False
    has_function_word = len(content_words) < len(words)
    has_lower_case = any(map(str.islower, text))
    is_sentence = any(word.replace("’", "'") in _CAPITALIZED_IN_TITLES for word in words)
    if is_sentence or not (has_function_word and has_lower_case):
        return False
    return all(word[0].isupper() for word in long_words)


def as_sentence(text: str, count_pieces: CountPieces) -> Iterator[Edit]:
    """Yield the edits that write the words of a title in lower case, except for names."""
    name_end = -1  # of no name
    for match in _CAPITALIZED.finditer(text):
        word = match["word"]
        start = match.start("word")
        marks_start = max(0, start - _MAX_MARKS)
        is_after_name = name_end >= marks_start and not text[name_end:start].strip()
        is_first = _BEGINNING.search(text[marks_start:start]) is not None
        if _is_name(word, is_after_name, count_pieces):
            if not is_first:
                name_end = match.end()
        elif not is_first:
            yield (start, match.end("word"), word.lower())


def _is_name(word: str, is_after_name: bool, count_pieces: CountPieces) -> bool:
    """Return whether a capitalized word is a name, as far as the tokenizer knows."""
    in_lower_case = word.lower()
    if in_lower_case in _FUNCTION_WORDS:
        return False
    [num_pieces] = count_pieces([word])
    # The second word of a name may be a known one, such as Jobs in Steve Jobs.
    if is_after_name and num_pieces == 1:
        return True
    return not _is_known_in_lower_case(word, num_pieces, count_pieces)


def _is_known_in_lower_case(word: str, num_pieces: int, count_pieces: CountPieces) -> bool:
    """Return whether the tokenizer knows a word better in lower case than capitalized."""
    in_lower_case = word.lower()
    stems = [
        in_lower_case.removesuffix(ending) for ending in _ENDINGS if in_lower_case.endswith(ending)
    ]
    num_lower_case, *num_stems = count_pieces([in_lower_case, *stems])
    is_known = num_lower_case == 1 or num_lower_case < num_pieces
    return is_known or (1 in num_stems and num_lower_case <= num_pieces)
