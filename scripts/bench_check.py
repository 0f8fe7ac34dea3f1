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

import argparse
import random
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from pathlib import Path

from command_errors import error_messages
from nmt.data.check import BITS, CHECKS, Report, run_checks
from nmt.data.pairs import Pair, read_pairs
from nmt.data.sources import Split

Corruption = Callable[[random.Random, list[Pair], int], Pair]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def blank(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with one side blank."""
    empty = rng.choice(("", " ", "\t", "\u200b"))
    return (empty, pairs[i][1]) if rng.random() < 0.5 else (pairs[i][0], empty)


def untranslated(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the source twice."""
    return pairs[i][0], pairs[i][0]


def nearly_untranslated(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the source twice, with one word of the second replaced."""
    return pairs[i][0], _replace_words(rng, pairs, pairs[i][0], 1, side=1)


def wrong_language(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with one side in the other language, or with both sides exchanged."""
    other = pairs[rng.randrange(len(pairs))]
    return rng.choice(
        ((pairs[i][0], other[0]), (other[1], pairs[i][1]), (pairs[i][1], pairs[i][0]))
    )


def length_ratio(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with the target cut to a fifth, or followed by the next four targets."""
    source, target = pairs[i]
    if rng.random() < 0.5:
        return source, target[: max(1, len(target) // 5)]
    return source, " ".join(pair[1] for pair in pairs[i : i + 5])


def half_target(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with the first half of the target's words."""
    words = pairs[i][1].split(" ")
    return pairs[i][0], " ".join(words[: len(words) // 2])


def mojibake(encoding: str) -> Corruption:
    """Return a corruption that decodes the UTF-8 of the target with another encoding."""
    return lambda rng, pairs, i: (pairs[i][0], pairs[i][1].encode().decode(encoding, "ignore"))


def control_character(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with a control character in the source."""
    source, target = pairs[i]
    position = rng.randrange(len(source) + 1)
    return source[:position] + rng.choice("\x00\x07\x1b\x90\x96") + source[position:], target


def replacement_character(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with a character of the target replaced by U+FFFD."""
    source, target = pairs[i]
    position = rng.randrange(len(target))
    return source, f"{target[:position]}\ufffd{target[position + 1 :]}"


def escaped_entity(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with an HTML entity in the target."""
    source, target = pairs[i]
    words = target.split(" ")
    words.insert(
        rng.randrange(len(words) + 1),
        rng.choice(("&quot;", "&amp;", "&#39;", "&lt;b&gt;", "&nbsp;")),
    )
    return source, " ".join(words)


def duplicate(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return an earlier pair, of the first half, because later ones may have been replaced."""
    return pairs[rng.randrange(i // 2)]


def near_duplicate(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return an earlier pair of at least eight words with a letter, the case, the punctuation or a
    number changed."""
    while len(pairs[earlier := rng.randrange(i // 2)][0].split()) < 8:
        pass
    return _change_slightly(rng, pairs[earlier])


def near_duplicate_at(low: float, high: float) -> Corruption:
    """Return a corruption that replaces words of an earlier pair until the similarity is between
    low and high."""

    def corrupt(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
        while True:
            earlier = pairs[rng.randrange(i // 2)]
            pair = earlier
            while _similarity(pair, earlier) >= high:
                side = rng.randrange(2)
                changed = _replace_words(rng, pairs, pair[side], 1, side=side)
                pair = (changed, pair[1]) if side == 0 else (pair[0], changed)
            if _similarity(pair, earlier) >= low:
                return pair

    return corrupt


def multiple_targets(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the source of an earlier pair with the target of this one."""
    return pairs[rng.randrange(i // 2)][0], pairs[i][1]


def test_overlap(rng: random.Random, test_pairs: list[Pair], i: int) -> Pair:
    """Return a test pair."""
    return test_pairs[i % len(test_pairs)]


def near_test_overlap(rng: random.Random, test_pairs: list[Pair], i: int) -> Pair:
    """Return a test pair of at least eight words with a letter added to each side."""
    long = [pair for pair in test_pairs if len(pair[0].split()) >= 8]
    source, target = long[i % len(long)]
    return _add_letter(rng, source), _add_letter(rng, target)


def near_test_overlap_two_words(rng: random.Random, test_pairs: list[Pair], i: int) -> Pair:
    """Return a test pair of eight to fifteen words with two words of each side replaced."""
    long = [pair for pair in test_pairs if all(8 <= len(side.split()) <= 15 for side in pair)]
    source, target = long[i % len(long)]
    return _replace_words(rng, test_pairs, source, 2, side=0), _replace_words(
        rng, test_pairs, target, 2, side=1
    )


def _change_slightly(rng: random.Random, pair: Pair) -> Pair:
    source, target = pair
    return rng.choice(
        (
            (source.upper(), target.upper()),
            (source.rstrip(".!?") + " !", target.rstrip(".!?") + " !"),
            (_add_letter(rng, source), target),
            (f"{source} 7", f"{target} 7"),
        )
    )


def _add_letter(rng: random.Random, text: str) -> str:
    words = text.split(" ")
    position = rng.randrange(len(words))
    words[position] += rng.choice(LETTERS)
    return " ".join(words)


def _replace_words(
    rng: random.Random, pairs: list[Pair], text: str, count: int, *, side: int
) -> str:
    """Replace `count` words with words of other lines."""
    words = text.split(" ")
    for position in rng.sample(range(len(words)), min(count, len(words))):
        words[position] = rng.choice(pairs[rng.randrange(len(pairs))][side].split() or ["x"])
    return " ".join(words)


def _similarity(first: Pair, second: Pair) -> float:
    """Return the Jaccard similarity of the words and word bigrams of both sides."""
    sets = []
    for pair in (first, second):
        sides = [
            ["".join(filter(str.isalnum, word)) for word in side.casefold().split()]
            for side in pair
        ]
        sets.append(
            {(side, word) for side in (0, 1) for word in (*sides[side], *pairwise(sides[side]))}
        )
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


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
    "duplicate": ("duplicate", duplicate),
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
    test_pairs = corpus[-1000:]
    reported = _problems(corpus[:-1000], test_pairs, languages)
    pairs = [pair for pair, problems in zip(corpus, reported, strict=False) if not problems]
    print(f"{len(corpus) - 1000:,} pairs; reported before problems are inserted:")
    for name, bit in BITS.items():
        count = sum(bool(problems & bit) for problems in reported)
        if count:
            print(f"  {name:<38}{count:>7,}  {1000 * count / len(reported):6.2f} of 1,000")
    print(f"{arguments.problems} problems of each kind in the {len(pairs):,} others:")
    print(f"  {'':<38}{'found':>7}{'false positives':>17}")
    for name, (check, corrupt) in {**CORRUPTIONS, **TEST_CORRUPTIONS}.items():
        corrupted = list(pairs)
        candidates = [
            i for i in range(len(pairs) // 2, len(pairs) - 5) if _is_detectable(check, pairs[i])
        ]
        indices = set(rng.sample(candidates, arguments.problems))
        for i in indices:
            corrupted[i] = corrupt(rng, test_pairs if name in TEST_CORRUPTIONS else pairs, i)
        problems = _problems(corrupted, test_pairs, languages)
        num_found = sum(bool(problems[i] & BITS[check]) for i in indices)
        false_positives = sum(bool(bits) for i, bits in enumerate(problems) if i not in indices)
        print(f"  {name:<38}{num_found:>7}{false_positives:>17}", flush=True)
    if arguments.shifts:
        _evaluate_shifts(rng, corpus, arguments.shifts, languages)
    _evaluate_shuffling(rng, corpus, arguments.slices, languages)


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
    distances: list[int] = []
    for _ in range(trials):
        line = rng.randrange(len(pairs) // 10, 9 * len(pairs) // 10)
        sources, targets = map(list, zip(*pairs, strict=True))
        if rng.random() < 0.5:
            del targets[line]
        else:
            targets.insert(line, targets[rng.randrange(len(targets))])
        report = _check_alignment(list(zip(sources, targets, strict=False)), languages)
        regions = [
            e.line
            for each in report.findings
            if each.check.name == "misaligned"
            for e in each.examples
        ]
        distances += [abs(first - 1 - line) for first in regions[:1]]
    distances.sort()
    false_positives = _count_misaligned(pairs, languages)
    median, maximum = (distances[len(distances) // 2], distances[-1]) if distances else (0, 0)
    print(
        f"  a line removed or inserted: {len(distances)} of {trials} found, "
        f"median {median}, at most {maximum} lines away"
    )
    print(f"  lines reported as misaligned in the unchanged corpus: {false_positives}")


def _evaluate_shuffling(
    rng: random.Random, pairs: list[Pair], trials: int, languages: tuple[str, str]
) -> None:
    """Shuffle the targets of slices, and of 200 lines inside slices."""
    for length in filter(len(pairs).__ge__, (500, 1000, 3000)):
        unchanged, shuffled, partly_shuffled = 0, 0, 0
        for _ in range(trials):
            first = rng.randrange(len(pairs) - length + 1)
            piece = pairs[first : first + length]
            unchanged += _count_misaligned(piece, languages) > 0
            shuffled += _count_misaligned(_shuffle(rng, piece, 0, length), languages) == length
            start = rng.randrange(length - 200)
            partly_shuffled += (
                _count_misaligned(_shuffle(rng, piece, start, start + 200), languages) >= 100
            )
        print(
            f"  {length:,} lines: {shuffled} of {trials} shuffled slices found, {partly_shuffled}"
            f" of {trials} with 200 shuffled lines, {unchanged} of {trials} unchanged slices"
            " reported"
        )


def _shuffle(rng: random.Random, pairs: list[Pair], first: int, end: int) -> list[Pair]:
    targets = [target for _, target in pairs[first:end]]
    rng.shuffle(targets)
    moved = [
        (source, target) for (source, _), target in zip(pairs[first:end], targets, strict=True)
    ]
    return [*pairs[:first], *moved, *pairs[end:]]


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
