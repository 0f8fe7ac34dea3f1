#!/usr/bin/env python
"""Plant faults of every kind in a clean text and count how many `nmt data check` finds, and what else it complains of.

    scripts/bench_check.py europarl.en.gz europarl.de.gz
    scripts/bench_check.py text.en text.de --faults 200 --pairs 20000 --seed 1

Pairs that the check complains of before anything is planted are taken out first, with their number told: some of them
are faults that the text really has, so they are neither found faults nor false alarms. What is complained of afterward
and was not planted is a false alarm; the complaints before, per 1,000 pairs, bound those from above.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Sequence
from itertools import islice, pairwise
from pathlib import Path

from nmt.data.check import BITS, KINDS, Report, Text, check
from nmt.data.pairs import Pair, read_pairs

Plant = Callable[[random.Random, list[Pair], int], Pair]
TYPOS = "abcdefghijklmnopqrstuvwxyz"


def blank(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with one side empty or of white space."""
    empty = rng.choice(("", " ", "\t", "\u200b"))
    return (empty, pairs[i][1]) if rng.random() < 0.5 else (pairs[i][0], empty)


def copied(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the source twice."""
    return pairs[i][0], pairs[i][0]


def copied_nearly(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the source twice, with one word of the second replaced."""
    return pairs[i][0], _replaced(rng, pairs, pairs[i][0], 1, side=1)


def wrong_language(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with one side from another line of the other language, or both sides exchanged."""
    other = pairs[rng.randrange(len(pairs))]
    return rng.choice(((pairs[i][0], other[0]), (other[1], pairs[i][1]), (pairs[i][1], pairs[i][0])))


def length_ratio(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with a side cut to a fifth, or with the next four lines behind it."""
    source, target = pairs[i]
    if rng.random() < 0.5:
        return source, target[: max(1, len(target) // 5)]
    return source, " ".join(pair[1] for pair in pairs[i : i + 5])


def halved(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with the first half of the target's words."""
    words = pairs[i][1].split(" ")
    return pairs[i][0], " ".join(words[: len(words) // 2])


def mojibake_cp437(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with its target in UTF-8 that was read as code page 437."""
    return pairs[i][0], pairs[i][1].encode().decode("cp437")


def mojibake_mac(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with its target in UTF-8 that was read as Mac Roman."""
    return pairs[i][0], pairs[i][1].encode().decode("mac_roman")


def mojibake(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with its target in UTF-8 that was read as Windows-1252."""
    return pairs[i][0], pairs[i][1].encode().decode("windows-1252", "ignore")


def control(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with a control character in a side."""
    source, target = pairs[i]
    at = rng.randrange(len(source) + 1)
    return source[:at] + rng.choice("\x00\x07\x1b\x90\x96") + source[at:], target


def lost(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with a character of a side replaced by U+FFFD."""
    source, target = pairs[i]
    at = rng.randrange(len(target))
    return source, f"{target[:at]}\ufffd{target[at + 1 :]}"


def entities(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the pair with a character escaped as in HTML."""
    source, target = pairs[i]
    words = target.split(" ")
    words.insert(rng.randrange(len(words) + 1), rng.choice(("&quot;", "&amp;", "&#39;", "&lt;b&gt;", "&nbsp;")))
    return source, " ".join(words)


def duplicate(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return an earlier pair."""
    return pairs[rng.randrange(i)]


def near_duplicate(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return an earlier pair of at least eight words with a letter, the case, the punctuation or a number changed."""
    while len(pairs[at := rng.randrange(i)][0].split()) < 8:
        pass
    return _nearly(rng, pairs[at])


def near_duplicate_at(low: float, high: float) -> Plant:
    """Return a plant of an earlier pair with words replaced until their Jaccard similarity is in low to high."""

    def plant(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
        while True:
            earlier = pairs[rng.randrange(i)]
            pair = earlier
            while _similarity(pair, earlier) >= high:
                side = rng.randrange(2)
                changed = _replaced(rng, pairs, pair[side], 1, side=side)
                pair = (changed, pair[1]) if side == 0 else (pair[0], changed)
            if _similarity(pair, earlier) >= low:
                return pair

    return plant


def many_targets(rng: random.Random, pairs: list[Pair], i: int) -> Pair:
    """Return the source of an earlier pair with the target of this one."""
    return pairs[rng.randrange(i // 2)][0], pairs[i][1]


def overlap(rng: random.Random, tests: list[Pair], i: int) -> Pair:
    """Return a test sentence."""
    return tests[i % len(tests)]


def near_overlap(rng: random.Random, tests: list[Pair], i: int) -> Pair:
    """Return a test sentence of at least eight words, slightly changed, with its translation changed too."""
    long = [pair for pair in tests if len(pair[0].split()) >= 8]
    source, target = long[i % len(long)]
    return _typo(rng, source), _typo(rng, target)


def near_overlap_two_words(rng: random.Random, tests: list[Pair], i: int) -> Pair:
    """Return a test sentence of eight to fifteen words with two words of each side replaced."""
    long = [pair for pair in tests if all(8 <= len(side.split()) <= 15 for side in pair)]
    source, target = long[i % len(long)]
    return _replaced(rng, tests, source, 2, side=0), _replaced(rng, tests, target, 2, side=1)


def _nearly(rng: random.Random, pair: Pair) -> Pair:
    source, target = pair
    return rng.choice(
        (
            (source.upper(), target.upper()),
            (source.rstrip(".!?") + " !", target.rstrip(".!?") + " !"),
            (_typo(rng, source), target),
            (f"{source} 7", f"{target} 7"),
        )
    )


def _typo(rng: random.Random, text: str) -> str:
    words = text.split(" ")
    at = rng.randrange(len(words))
    words[at] += rng.choice(TYPOS)
    return " ".join(words)


def _replaced(rng: random.Random, pairs: list[Pair], text: str, count: int, *, side: int) -> str:
    """Return a text with some words replaced by words of other lines."""
    words = text.split(" ")
    for at in rng.sample(range(len(words)), min(count, len(words))):
        words[at] = rng.choice(pairs[rng.randrange(len(pairs))][side].split() or ["x"])
    return " ".join(words)


def _similarity(one: Pair, other: Pair) -> float:
    """Return the Jaccard similarity of words and word pairs of both sides."""
    sets = []
    for pair in (one, other):
        sides = [["".join(filter(str.isalnum, word)) for word in side.casefold().split()] for side in pair]
        sets.append({(side, word) for side in (0, 1) for word in (*sides[side], *pairwise(sides[side]))})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


IN_TEXT: dict[str, tuple[str, Plant]] = {
    "blank": ("blank", blank),
    "untranslated": ("untranslated", copied),
    "copied but for one word": ("untranslated", copied_nearly),
    "wrong-language": ("wrong-language", wrong_language),
    "length-ratio": ("length-ratio", length_ratio),
    "length-ratio, target halved": ("length-ratio", halved),
    "mojibake, Windows-1252": ("mojibake", mojibake),
    "mojibake, code page 437": ("mojibake", mojibake_cp437),
    "mojibake, Mac Roman": ("mojibake", mojibake_mac),
    "replacement-characters": ("replacement-characters", lost),
    "control-characters": ("control-characters", control),
    "escaped-entities": ("escaped-entities", entities),
    "duplicate": ("duplicate", duplicate),
    "near-duplicate": ("near-duplicate", near_duplicate),
    "near-duplicate, Jaccard 0.75 to 0.8": ("near-duplicate", near_duplicate_at(0.75, 0.8)),
    "near-duplicate, Jaccard 0.8 to 0.85": ("near-duplicate", near_duplicate_at(0.8, 0.85)),
    "near-duplicate, Jaccard 0.85 to 0.95": ("near-duplicate", near_duplicate_at(0.85, 0.95)),
    "multiple-targets": ("multiple-targets", many_targets),
}
FROM_TESTS: dict[str, tuple[str, Plant]] = {
    "test-overlap": ("test-overlap", overlap),
    "near-test-overlap, one letter": ("near-test-overlap", near_overlap),
    "near-test-overlap, two words": ("near-test-overlap", near_overlap_two_words),
}
"""What is planted: the kind it must be found as, and the function that makes it."""


def main() -> None:
    """Plant, check and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("src", type=Path)
    parser.add_argument("tgt", type=Path)
    parser.add_argument("--languages", nargs=2, default=("en", "de"))
    parser.add_argument("--faults", type=int, default=200, help="of each kind")
    parser.add_argument("--pairs", type=int, help="read at most as many")
    parser.add_argument("--shifts", type=int, default=20, help="texts in which a line is taken out")
    parser.add_argument("--slices", type=int, default=10, help="slices of each length that are put in random order")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    languages = tuple(arguments.languages)
    everything = list(islice(read_pairs(arguments.src, arguments.tgt), arguments.pairs))
    tests = everything[-1000:]
    found = _faults(everything[:-1000], tests, languages)
    pairs = [pair for pair, faults in zip(everything, found, strict=False) if not faults]
    print(f"{len(everything) - 1000:,} pairs; complaints before anything is planted:")
    for name, bit in BITS.items():
        count = sum(bool(faults & bit) for faults in found)
        if count:
            print(f"  {name:<38}{count:>7,}  {1000 * count / len(found):6.2f} of 1,000")
    print(f"{arguments.faults} faults of each kind in the {len(pairs):,} others:")
    print(f"  {'':<38}{'found':>7}{'false alarms':>14}")
    for name, (kind, plant) in {**IN_TEXT, **FROM_TESTS}.items():
        planted = list(pairs)
        usable = [i for i in range(len(pairs) // 2, len(pairs) - 5) if _shows(kind, pairs[i])]
        places = set(rng.sample(usable, arguments.faults))
        for i in places:
            planted[i] = plant(rng, tests if name in FROM_TESTS else pairs, i)
        faults = _faults(planted, tests, languages)
        hits = sum(bool(faults[i] & BITS[kind]) for i in places)
        alarms = sum(bool(fault) for i, fault in enumerate(faults) if i not in places)
        print(f"  {name:<38}{hits:>7}{alarms:>14}", flush=True)
    _shift(rng, everything, arguments.shifts, languages)
    _random_order(rng, everything, arguments.slices, languages)


def _shows(name: str, pair: Pair) -> bool:
    """Say whether the fault can be seen in a pair at all: ASCII has no mojibake, "OK" no language."""
    if name == "mojibake":
        return not pair[1].isascii()
    if name in ("wrong-language", "untranslated"):
        return min(len(side.split()) for side in pair) >= 5
    return name != "length-ratio" or len(pair[1]) >= 30


def _faults(pairs: Sequence[Pair], tests: Sequence[Pair], languages: tuple[str, str]) -> list[int]:
    text = Text("text", lambda: iter(pairs), len(pairs))
    faults: list[int] = check(
        [text], [("held out", tests)], languages, ignore=["misaligned"], examples=0
    ).faults_N.tolist()
    return faults


def _shift(rng: random.Random, pairs: list[Pair], trials: int, languages: tuple[str, str]) -> None:
    """Take a target line out, or put one in, and see where the check finds the text to shift."""
    misses, distances = 0, []
    for _ in range(trials):
        at = rng.randrange(len(pairs) // 10, 9 * len(pairs) // 10)
        sources, targets = map(list, zip(*pairs, strict=True))
        if rng.random() < 0.5:
            del targets[at]
        else:
            targets.insert(at, targets[rng.randrange(len(targets))])
        moved = list(zip(sources, targets, strict=False))
        report = check([Text("text", lambda moved=moved: iter(moved))], [], languages, examples=1)  # type: ignore[misc]
        found = _lines(report)
        if found:
            distances.append(abs(found[0] - 1 - at))
        else:
            misses += 1
    distances.sort()
    clean = check([Text("text", lambda: iter(pairs))], [], languages, examples=1)
    alarms = int(clean.misaligned_N.sum())
    middle, most = distances[len(distances) // 2], distances[-1]
    print(
        f"  a line taken out or put in: {trials - misses} of {trials} found, median {middle}, at most {most} lines away"
    )
    print(f"  lines called misaligned in the text as it is: {alarms}")


def _random_order(rng: random.Random, pairs: list[Pair], trials: int, languages: tuple[str, str]) -> None:
    """Put the targets of slices, and of 200 lines inside slices, in random order."""
    for length in (500, 1000, 3000):
        aligned, whole, part = 0, 0, 0
        for _ in range(trials):
            first = rng.randrange(len(pairs) - length + 1)
            piece = pairs[first : first + length]
            aligned += _misaligned(piece, languages) > 0
            whole += _misaligned(_shuffled(rng, piece, 0, length), languages) == length
            at = rng.randrange(length - 200)
            part += _misaligned(_shuffled(rng, piece, at, at + 200), languages) >= 100
        print(
            f"  {length:,} lines: {whole} of {trials} in random order found, {part} of {trials} with 200 such lines, "
            f"{aligned} of {trials} as they are called misaligned"
        )


def _shuffled(rng: random.Random, pairs: list[Pair], first: int, end: int) -> list[Pair]:
    targets = [target for _, target in pairs[first:end]]
    rng.shuffle(targets)
    moved = [(source, target) for (source, _), target in zip(pairs[first:end], targets, strict=True)]
    return [*pairs[:first], *moved, *pairs[end:]]


def _misaligned(pairs: list[Pair], languages: tuple[str, str]) -> int:
    return int(check([Text("text", lambda: iter(pairs))], [], languages, examples=0).misaligned_N.sum())


def _lines(report: Report) -> list[int]:
    """Return where the misaligned stretches begin."""
    found = [finding.examples for finding in report.findings if finding.kind.name == "misaligned"]
    return [example.line for examples in found for example in examples]


if __name__ == "__main__":
    assert {kind for kind, _ in (*IN_TEXT.values(), *FROM_TESTS.values())} == {
        kind.name for kind in KINDS if not kind.whole
    }
    main()
