#!/usr/bin/env python
"""Insert problems of every kind into a clean corpus, and count the true and false positives of `nmt
data check`.

    scripts/bench_check.py europarl.en.gz europarl.de.gz
    scripts/bench_check.py corpus.en corpus.de --problems 200 --pairs 20000 --seed 1

Pairs that are reported before problems are inserted are counted and removed first. Some of them are
real problems, so their number per 1,000 pairs is an upper bound of the false positives. Pairs that
are reported afterwards without an inserted problem are false positives.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import benchmark
from command_errors import error_messages
from nmt.data.check.checks import BITS, CHECKS
from nmt.data.check.report import Report
from nmt.data.check.run import run_checks
from nmt.data.pairs import Pair, read_pairs
from nmt.data.sources import Split

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass
class Place:
    """The pair that a problem replaces, with the corpus that the problem is made of."""

    rng: random.Random
    pairs: list[Pair]
    i: int

    @property
    def source(self) -> str:
        """Source of the pair."""
        return self.pairs[self.i][0]

    @property
    def target(self) -> str:
        """Target of the pair."""
        return self.pairs[self.i][1]

    def any(self) -> Pair:
        """Return a random pair."""
        return self.pairs[self.rng.randrange(len(self.pairs))]

    def earlier(self) -> Pair:
        """Return an earlier pair, of the first half, because later ones may have been replaced."""
        return self.pairs[self.rng.randrange(self.i // 2)]

    def add_letter(self, text: str) -> str:
        """Add a letter to a word."""
        words = text.split(" ")
        position = self.rng.randrange(len(words))
        words[position] += self.rng.choice(LETTERS)
        return " ".join(words)

    def replace_words(self, pair: Pair, count: int, *sides: int) -> Pair:
        """Replace `count` words of some sides with words of other lines."""
        texts = list(pair)
        for side in sides:
            words = texts[side].split(" ")
            for position in self.rng.sample(range(len(words)), min(count, len(words))):
                words[position] = self.rng.choice(self.any()[side].split() or ["x"])
            texts[side] = " ".join(words)
        return texts[0], texts[1]


Corruption = Callable[[Place], Pair]


def blank(place: Place) -> Pair:
    """Return the pair with one side blank."""
    empty = place.rng.choice(("", " ", "\t", "\u200b"))
    return (empty, place.target) if place.rng.random() < 0.5 else (place.source, empty)


def untranslated(place: Place) -> Pair:
    """Return the source twice."""
    return place.source, place.source


def nearly_untranslated(place: Place) -> Pair:
    """Return the source twice, with one word of the second replaced."""
    return place.replace_words(untranslated(place), 1, 1)


def wrong_language(place: Place) -> Pair:
    """Return the pair with one side in the other language, or with both sides exchanged."""
    source, target = place.any()
    choices = (place.source, source), (target, place.target), (place.target, place.source)
    return place.rng.choice(choices)


def length_ratio(place: Place) -> Pair:
    """Return the pair with the target cut to a fifth, or followed by the next four targets."""
    if place.rng.random() < 0.5:
        return place.source, place.target[: max(1, len(place.target) // 5)]
    next_pairs = place.pairs[place.i : place.i + 5]
    return place.source, " ".join(target for _, target in next_pairs)


def half_target(place: Place) -> Pair:
    """Return the pair with the first half of the target's words."""
    words = place.target.split(" ")
    return place.source, " ".join(words[: len(words) // 2])


def mojibake(encoding: str) -> Corruption:
    """Return a corruption that decodes the UTF-8 of the target with another encoding."""
    return lambda place: (place.source, place.target.encode().decode(encoding, "ignore"))


def control_character(place: Place) -> Pair:
    """Return the pair with a control character in the source."""
    position = place.rng.randrange(len(place.source) + 1)
    character = place.rng.choice("\x00\x07\x1b\x90\x96")
    return place.source[:position] + character + place.source[position:], place.target


def replacement_character(place: Place) -> Pair:
    """Return the pair with a character of the target replaced by U+FFFD."""
    target = place.target
    position = place.rng.randrange(len(target))
    return place.source, f"{target[:position]}\ufffd{target[position + 1 :]}"


def escaped_entity(place: Place) -> Pair:
    """Return the pair with an HTML entity in the target."""
    words = place.target.split(" ")
    position = place.rng.randrange(len(words) + 1)
    entity = place.rng.choice(("&quot;", "&amp;", "&#39;", "&lt;b&gt;", "&nbsp;"))
    words.insert(position, entity)
    return place.source, " ".join(words)


def near_duplicate(place: Place) -> Pair:
    """Return an earlier pair of at least eight words with a letter, the case, the punctuation or a
    number changed."""
    source, target = place.earlier()
    while len(source.split()) < 8:
        source, target = place.earlier()
    choices = (
        (source.upper(), target.upper()),
        (source.rstrip(".!?") + " !", target.rstrip(".!?") + " !"),
        (place.add_letter(source), target),
        (f"{source} 7", f"{target} 7"),
    )
    return place.rng.choice(choices)


def near_duplicate_at(low: float, high: float) -> Corruption:
    """Return a corruption that replaces words of an earlier pair until the similarity is between
    low and high."""

    def corrupt(place: Place) -> Pair:
        while True:
            earlier = place.earlier()
            pair = earlier
            while _similarity(pair, earlier) >= high:
                pair = place.replace_words(pair, 1, place.rng.randrange(2))
            if _similarity(pair, earlier) >= low:
                return pair

    return corrupt


def multiple_targets(place: Place) -> Pair:
    """Return the source of an earlier pair with the target of this one."""
    return place.earlier()[0], place.target


def test_overlap(place: Place) -> Pair:
    """Return a test pair."""
    return place.pairs[place.i % len(place.pairs)]


def near_test_overlap(place: Place) -> Pair:
    """Return a test pair of at least eight words with a letter added to each side."""
    long = [pair for pair in place.pairs if len(pair[0].split()) >= 8]
    source, target = long[place.i % len(long)]
    return place.add_letter(source), place.add_letter(target)


def near_test_overlap_two_words(place: Place) -> Pair:
    """Return a test pair of eight to fifteen words with two words of each side replaced."""
    long = [pair for pair in place.pairs if all(8 <= len(side.split()) <= 15 for side in pair)]
    return place.replace_words(long[place.i % len(long)], 2, 0, 1)


def _similarity(first: Pair, second: Pair) -> float:
    """Return the Jaccard similarity of the words and word bigrams of both sides."""
    a = _features(first)
    b = _features(second)
    return len(a & b) / len(a | b)


def _features(pair: Pair) -> set[Any]:
    features = set[Any]()
    for side, text in enumerate(pair):
        words = ["".join(filter(str.isalnum, word)) for word in text.casefold().split()]
        features.update((side, each) for each in (*words, *pairwise(words)))
    return features


CORRUPTIONS: dict[str, tuple[str, Corruption]] = {
    "blank": ("blank", blank),
    "untranslated": ("untranslated", untranslated),
    "untranslated, except for one word": ("untranslated", nearly_untranslated),
    "wrong-language": ("wrong-language", wrong_language),
    "length-ratio": ("length-ratio", length_ratio),
    "length-ratio, half of the target": ("length-ratio", half_target),
    "mojibake, Windows-1252": ("mojibake", mojibake("windows-1252")),
    "mojibake, code page 437": ("mojibake", mojibake("cp437")),
    "mojibake, Mac Roman": ("mojibake", mojibake("mac_roman")),
    "replacement-characters": ("replacement-characters", replacement_character),
    "control-characters": ("control-characters", control_character),
    "escaped-entities": ("escaped-entities", escaped_entity),
    "duplicate": ("duplicate", Place.earlier),
    "near-duplicate": ("near-duplicate", near_duplicate),
    "near-duplicate, Jaccard 0.75 to 0.8": ("near-duplicate", near_duplicate_at(0.75, 0.8)),
    "near-duplicate, Jaccard 0.8 to 0.85": ("near-duplicate", near_duplicate_at(0.8, 0.85)),
    "near-duplicate, Jaccard 0.85 to 0.95": ("near-duplicate", near_duplicate_at(0.85, 0.95)),
    "multiple-targets": ("multiple-targets", multiple_targets),
}
TEST_CORRUPTIONS: dict[str, tuple[str, Corruption]] = {
    "test-overlap": ("test-overlap", test_overlap),
    "near-test-overlap, one letter": ("near-test-overlap", near_test_overlap),
    "near-test-overlap, two words": ("near-test-overlap", near_test_overlap_two_words),
}
"""For each corruption, the check that must report it and its function."""


def main() -> None:
    """Insert problems, run the checks and count."""
    parser = benchmark.parser(__doc__)
    parser.add_argument("src", type=Path)
    parser.add_argument("tgt", type=Path)
    parser.add_argument("--languages", nargs=2, default=("en", "de"))
    parser.add_argument("--problems", type=int, default=200, help="Problems of each kind.")
    parser.add_argument("--pairs", type=int, help="Maximum number of pairs.")
    parser.add_argument(
        "--shifts", type=int, default=20, help="Number of trials with a line removed or inserted."
    )
    parser.add_argument(
        "--slices", type=int, default=10, help="Number of shuffled slices of each length."
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    languages = tuple(arguments.languages)
    corpus = list(islice(read_pairs(arguments.src, arguments.tgt), arguments.pairs))
    _evaluate_problems(rng, corpus, arguments.problems, languages)
    if arguments.shifts:
        _evaluate_shifts(rng, corpus, arguments.shifts, languages)
    _evaluate_shuffling(rng, corpus, arguments.slices, languages)


def _without_problems(
    corpus: list[Pair], test_pairs: list[Pair], languages: tuple[str, str]
) -> list[Pair]:
    """Count the problems that the corpus has already, and return the other pairs."""
    reported = _problems(corpus, test_pairs, languages)
    pairs = [pair for pair, problems in zip(corpus, reported, strict=False) if not problems]
    print(f"{len(reported):,} pairs; reported before problems are inserted:")
    for name, bit in BITS.items():
        count = sum(bool(problems & bit) for problems in reported)
        if count:
            print(f"  {name:<38}{count:>7,}  {1000 * count / len(reported):6.2f} of 1,000")
    return pairs


def _evaluate_problems(
    rng: random.Random, corpus: list[Pair], num_problems: int, languages: tuple[str, str]
) -> None:
    """Insert problems of each kind into the pairs without problems, and count those found."""
    test_pairs = corpus[-1000:]
    pairs = _without_problems(corpus[:-1000], test_pairs, languages)
    print(f"{num_problems} problems of each kind in the {len(pairs):,} others:")
    print(f"  {'':<38}{'found':>7}{'false positives':>17}")
    later = range(len(pairs) // 2, len(pairs) - 5)
    for name, (check, corrupt) in (CORRUPTIONS | TEST_CORRUPTIONS).items():
        candidates = [i for i in later if _is_detectable(check, pairs[i])]
        indices = set(rng.sample(candidates, num_problems))
        sources = test_pairs if name in TEST_CORRUPTIONS else pairs
        corrupted = list(pairs)
        for i in indices:
            corrupted[i] = corrupt(Place(rng, sources, i))
        problems = _problems(corrupted, test_pairs, languages)
        num_found = sum(bool(problems[i] & BITS[check]) for i in indices)
        false_positives = sum(bool(bits) for i, bits in enumerate(problems) if i not in indices)
        print(f"  {name:<38}{num_found:>7}{false_positives:>17}", flush=True)


def _is_detectable(name: str, pair: Pair) -> bool:
    """Return whether a problem is detectable in a pair: ASCII cannot be mojibake, and "OK" has no
    language."""
    if name == "mojibake":
        return not pair[1].isascii()
    if name in ("wrong-language", "untranslated"):
        return min(len(side.split()) for side in pair) >= 5
    return name != "length-ratio" or len(pair[1]) >= 30


def _problems(
    pairs: Sequence[Pair], test_pairs: Sequence[Pair], languages: tuple[str, str]
) -> list[int]:
    corpus = Split("corpus", "", lambda: iter(pairs), lambda: len(pairs))
    test_sets = [("test", test_pairs)]
    report = run_checks([corpus], test_sets, languages, ignore=["misaligned"], max_examples=0)
    problems: list[int] = report.problems_N.tolist()
    return problems


def _evaluate_shifts(
    rng: random.Random, pairs: list[Pair], trials: int, languages: tuple[str, str]
) -> None:
    """Remove or insert a target line, and print the distance to the reported line."""
    distances = []
    for _ in range(trials):
        line = rng.randrange(len(pairs) // 10, 9 * len(pairs) // 10)
        sources, targets = map(list, zip(*pairs, strict=True))
        if rng.random() < 0.5:
            del targets[line]
        else:
            targets.insert(line, targets[rng.randrange(len(targets))])
        report = _check_alignment(list(zip(sources, targets, strict=False)), languages)
        regions = [each for each in report.findings if each.check.name == "misaligned"]
        if regions:
            distances.append(abs(regions[0].examples[0].line - 1 - line))
    found = f"  a line removed or inserted: {len(distances)} of {trials} found, "
    # The upper of two medians.
    median = statistics.median_high(distances or [0])
    print(f"{found}median {median}, at most {max(distances, default=0)} lines away")
    false_positives = _count_misaligned(pairs, languages)
    print(f"  lines reported as misaligned in the unchanged corpus: {false_positives}")


def _evaluate_shuffling(
    rng: random.Random, pairs: list[Pair], trials: int, languages: tuple[str, str]
) -> None:
    """Shuffle the targets of slices, and of 200 lines inside slices."""
    for length in (500, 1000, 3000):
        if length > len(pairs):
            break
        unchanged = shuffled = partly_shuffled = 0
        for _ in range(trials):
            first = rng.randrange(len(pairs) - length + 1)
            piece = pairs[first : first + length]
            unchanged += _count_misaligned(piece, languages) > 0
            all_shuffled = _shuffle(rng, piece, 0, length)
            shuffled += _count_misaligned(all_shuffled, languages) == length
            start = rng.randrange(length - 200)
            part_shuffled = _shuffle(rng, piece, start, start + 200)
            partly_shuffled += _count_misaligned(part_shuffled, languages) >= 100
        print(
            f"  {length:,} lines: {shuffled} of {trials} shuffled slices found, {partly_shuffled}"
            f" of {trials} with 200 shuffled lines, {unchanged} of {trials} unchanged slices"
            " reported"
        )


def _shuffle(rng: random.Random, pairs: list[Pair], first: int, end: int) -> list[Pair]:
    targets = [target for _, target in pairs]
    moved = targets[first:end]
    rng.shuffle(moved)
    targets[first:end] = moved
    sources = (source for source, _ in pairs)
    return list(zip(sources, targets, strict=True))


def _check_alignment(pairs: list[Pair], languages: tuple[str, str]) -> Report:
    return run_checks([Split("corpus", "", lambda: iter(pairs))], [], languages, max_examples=1)


def _count_misaligned(pairs: list[Pair], languages: tuple[str, str]) -> int:
    return int(_check_alignment(pairs, languages).misaligned_N.sum())


if __name__ == "__main__":
    assert {check for check, _ in (*CORRUPTIONS.values(), *TEST_CORRUPTIONS.values())} == {
        check.name for check in CHECKS if not check.is_corpus_level
    }
    with error_messages():
        main()
