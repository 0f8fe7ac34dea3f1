"""Comparison of systems: scores, significance, buckets and the `nmt compare` command."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from commandline import CommandLine, sentences, write
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest

from nmt.cli.compare import format_comparison
from nmt.core.errors import DataError, UsageError
from nmt.evaluate.comparison import (
    COUNT_LIMITS,
    LENGTH_LIMITS,
    Bucket,
    Comparison,
    MetricResult,
    System,
    compare,
    group,
)
from nmt.evaluate.metrics import METRICS
from nmt.evaluate.test_sets import TestSet

WORDS = "red blue green small big old new round flat long tree house river stone".split()


def texts(count: int, seed: int, longest: int = 40) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, longest))) for _ in range(count)]


def corrupt(lines: Sequence[str], share: float, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [
        " ".join(w if rng.random() > share else rng.choice(WORDS) for w in line.split())
        for line in lines
    ]


TEST = TestSet("made", texts(60, 1), [texts(60, 2), texts(60, 3)])
# TER of unrelated references takes long.
FEW = TestSet("made", texts(4, 1, 12), [texts(4, 2, 12), texts(4, 3, 12)])
ONE = TestSet("made", texts(60, 1), [texts(60, 2)])


def compare_systems(
    first: Sequence[str], second: Sequence[str], test: TestSet = ONE, **options: object
) -> Comparison:
    return compare(System("a", first), System("b", second), test, **{"resamples": 100} | options)


@pytest.mark.slow
def test_scores_equal_evaluate() -> None:
    systems = [corrupt(FEW.references[0], share, 4) for share in (0.3, 0.2)]
    comparison = compare_systems(*systems, FEW, metrics=("bleu", "chrf", "ter"), resamples=40)
    for metric, name in zip(comparison.metrics, ("bleu", "chrf", "ter"), strict=True):
        scores = [METRICS[name](system, FEW.references, resamples=40) for system in systems]
        assert [metric.first_score, metric.second_score] == [score.value for score in scores]
        assert metric.name == scores[0].name
        assert [metric.first_half_interval, metric.second_half_interval] == [
            score.half_interval for score in scores
        ]
        assert set(metric.signature.split("|")) >= {"nrefs:2", "bs:40"}


@pytest.mark.slow
def test_significantly_better_system() -> None:
    test = TestSet("made", texts(60, 1), [texts(60, 2)])
    base, good = (corrupt(test.references[0], share, seed) for share, seed in ((0.3, 8), (0.1, 5)))
    few = TestSet("made", test.sources[:12], [test.references[0][:12]])  # TER takes long
    better = compare_systems(base[:12], good[:12], few, metrics=("bleu", "ter"), resamples=40)
    assert [metric.better for metric in better.metrics] == [1, 1]
    assert better.as_dict()["metrics"][0]["better"] == 1
    worse = compare_systems(good[:12], base[:12], few, metrics=("bleu", "ter"), resamples=40)
    assert [metric.better for metric in worse.metrics] == [0, 0]
    similar = compare_systems(
        base, corrupt(test.references[0], 0.3, 9), test, metrics=("bleu",), resamples=200
    )
    assert similar.metrics[0].better == -1
    assert similar.metrics[0].bootstrap_p > 0.05
    same = compare_systems(base, base, test, metrics=("bleu",), resamples=40)
    assert same.metrics[0].better == -1
    assert (same.overall.first_wins, same.overall.second_wins, same.differences) == (0, 0, [])


@pytest.mark.slow
def test_wins_and_largest_differences() -> None:
    base = list(ONE.references[0])
    base[7] = "nothing of it"
    other = list(ONE.references[0])
    other[11] = "nothing of it"
    other[12] = other[12].rsplit(" ", 1)[0]
    fast = {"metrics": ("bleu",), "resamples": 10}
    comparison = compare_systems(base, other, num_examples=1, **fast)
    assert (comparison.overall.first_wins, comparison.overall.second_wins) == (2, 1)
    assert [each.line for each in comparison.differences] == [8, 12]
    assert comparison.differences[0].first_translation == "nothing of it"
    assert comparison.differences[0].references == [ONE.references[0][7]]
    assert comparison.differences[0].second_score == 100
    assert [
        each.line for each in compare_systems(base, other, num_examples=9, **fast).differences
    ] == [8, 12, 13]
    assert compare_systems(base, other, num_examples=0, **fast).differences == []


@pytest.mark.slow
def test_every_sentence_is_in_one_bucket() -> None:
    systems = [corrupt(ONE.references[0], share, 4) for share in (0.3, 0.2)]
    counts = Counter(word for source in ONE.sources[:3] for word in source.split())
    comparison = compare_systems(*systems, counts=counts)
    for buckets in (comparison.by_length, comparison.by_rarity):
        for part in ("sentences", "first_wins", "second_wins"):
            assert sum(getattr(bucket, part) for bucket in buckets) == getattr(
                comparison.overall, part
            )
    assert compare_systems(*systems, metrics=("bleu",), resamples=10).by_rarity == []
    assert comparison.overall.first_score == comparison.metrics[1].first_score


@pytest.mark.parametrize(
    ("limits", "values", "names"),
    [
        (
            LENGTH_LIMITS,
            [0, 10, 11, 50, 51],
            ["0 to 10 x", "11 to 20 x", "31 to 50 x", "more than 50 x"],
        ),
        (
            COUNT_LIMITS,
            [0, 1, 10, 11, 1001],
            ["0 x", "1 to 10 x", "11 to 100 x", "more than 1000 x"],
        ),
    ],
)
def test_bucket_limits_match_their_names(
    limits: Sequence[int], values: list[int], names: list[str]
) -> None:
    assert [*group(values, limits, "x")] == names
    assert sorted(i for numbers in group(values, limits, "x").values() for i in numbers) == list(
        range(len(values))
    )


def test_different_numbers_of_lines() -> None:
    with pytest.raises(DataError, match="b has 2 lines and made 60"):
        compare_systems(ONE.references[0], ["x", "y"])


# ---- the command


def test_compare_command(trained: CommandLine, tmp_path: Path) -> None:
    directory = trained.directory
    write(directory / "probe", *sentences(40))
    write(directory / "other", [line + " <i>" for line in sentences(40)[1]], [])
    runs = sorted((directory / "runs/tiny").glob("step-*"))
    files = ("--src", "probe.en", "--ref", "probe.de")
    page = tmp_path / "sub/page.html"
    done = trained.run(
        "compare", runs[-1], "other.en", *files, "--html", page, "--resamples", "100"
    )
    assert "B is better" in done.out
    assert "\n0 times" not in done.out  # every word is in the training data
    assert "by training frequency of the rarest source word" in done.out
    html = page.read_text()
    assert "&lt;i&gt;" in html
    assert "<i>" not in html
    done = trained("compare", "runs/tiny", runs[-1], "--json", "--chrf", "--resamples", "100")
    (comparison,) = json.loads(done.out)
    assert [metric["name"] for metric in comparison["metrics"]] == ["chrF2"]
    assert comparison["overall"]["sentences"] > 0
    done = trained("compare", "other.en", "probe.de", *files, "--resamples", "100")
    assert "no comparison by word frequency" in done.err
    assert "rarest" not in done.out
    assert (
        "rarest"
        in trained(
            "compare", "other.en", "probe.de", *files, "--train", "text.en", "--resamples", "100"
        ).out
    )


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["text.en", "text.de"], 2, "translation files require --src and --ref"),
        (["runs/tiny", "nowhere"], 1, "there is no model at nowhere"),
        (["text.en", "text.de", "--src", "text.en"], 2, "--src and --ref must be used together"),
        (
            ["text.en", "less", "--src", "text.en", "--ref", "text.de"],
            1,
            "less has 1 line and text.en 400",
        ),
        (
            ["runs/tiny", "text.en", "--test", "wmt13", "--test", "wmt14"],
            2,
            "a translation file belongs to one",
        ),
        (["runs/tiny", "runs/tiny", "--resamples", "5"], 2, "--resamples"),
    ],
)
def test_usage_errors_are_one_line(
    trained: CommandLine, arguments: list[str], code: int, message: str
) -> None:
    (trained.directory / "less").write_text("one\n")
    trained("compare", *arguments).assert_fails(code, message)


@pytest.mark.parametrize(
    ("bootstrap", "randomization", "better"),
    [(0.01, 0.2, -1), (0.2, 0.01, -1), (0.05, 0.01, -1), (0.04, 0.04, 1)],
)
def test_both_significance_tests_must_agree(
    bootstrap: float, randomization: float, better: int
) -> None:
    assert MetricResult("BLEU", 1.0, 2.0, 0.1, 0.1, bootstrap, randomization, "").better == better


@pytest.mark.slow
def test_p_values_equal_sacrebleu() -> None:
    systems = [corrupt(TEST.references[0], share, 4) for share in (0.3, 0.28)]
    (comparison,) = compare_systems(*systems, TEST, metrics=("bleu",)).metrics
    for kind, draws, p in (
        ("bs", 100, comparison.bootstrap_p),
        ("ar", 1000, comparison.randomization_p),
    ):
        named = list(zip("AB", systems, strict=True))
        _, theirs = PairedTest(
            named, {"bleu": BLEU()}, TEST.references, test_type=kind, n_samples=draws
        )()
        assert p == theirs["BLEU"][1].p_value
    lone = [
        METRICS["bleu"](system, TEST.references, resamples=100).half_interval for system in systems
    ]
    assert [comparison.first_half_interval, comparison.second_half_interval] == lone


@pytest.mark.slow
def test_bucket_scores_equal_chrf_of_their_sentences() -> None:
    systems = [corrupt(ONE.references[0], share, 4) for share in (0.3, 0.2)]
    bucket = compare_systems(*systems, resamples=100).by_length[-1]
    numbers = [i for i, source in enumerate(ONE.sources) if 30 < len(source.split()) <= 50]
    lines = [[system[i] for i in numbers] for system in (*systems, ONE.references[0])]
    assert bucket.first_score == METRICS["chrf"](lines[0], [lines[2]]).value
    assert bucket.second_score == METRICS["chrf"](lines[1], [lines[2]]).value


def test_letters_count_as_words_in_scripts_without_spaces() -> None:
    test = TestSet(
        "t", ["我今天真的非常非常累。", "猫睡觉。"], [["I am tired.", "The cat sleeps."]]
    )
    systems = [
        System(name, ["I am tired.", text])
        for name, text in (("a", "Cat sleeps."), ("b", "The cat sleeps."))
    ]
    comparison = compare(*systems, test, ["chrf"], resamples=100, counts=Counter("猫睡觉。" * 20))
    assert [bucket.name for bucket in comparison.by_length] == ["0 to 10 words", "11 to 20 words"]
    assert [bucket.name for bucket in comparison.by_rarity] == ["0 times", "11 to 100 times"]


def test_sentence_rarity_is_that_of_its_rarest_word() -> None:
    test = TestSet("made", ["red blue", "red red"], [["a b", "c d"]])
    comparison = compare(
        System("a", ["a", "c"]),
        System("b", ["a", "d"]),
        test,
        resamples=100,
        counts=Counter(red=5000, blue=5),
    )
    assert [bucket.name for bucket in comparison.by_rarity] == [
        "1 to 10 times",
        "more than 1000 times",
    ]


def test_table_columns() -> None:
    comparison = compare_systems(
        corrupt(ONE.references[0], 0.4, 4),
        corrupt(ONE.references[0], 0.1, 5),
        metrics=("bleu",),
        resamples=100,
    )
    bucket = Bucket("all", 3, 10.0, 12.5, 1, 2)
    table = format_comparison(dataclasses.replace(comparison, overall=bucket)).splitlines()
    rows = [line.split() for line in table]
    assert "all 3 10.0 12.5 +2.5 1 2".split() in rows
    (metric,) = comparison.metrics
    (row,) = [row for row in rows if row[:1] == ["BLEU"] and "±" in row]
    assert f"{metric.second_score - metric.first_score:+.1f}" in row
    assert metric.second_score > metric.first_score


def metric_result(name: str, difference: float, p: float = 0.5) -> MetricResult:
    return MetricResult(name, 30.0, 30.0 + difference, 1.0, 1.0, p, p, "signature")


def test_people_agree_as_often_as_published() -> None:
    """The two figures are in the description of mt-thresholds."""
    assert metric_result("BLEU", 1.0).human_agreement == pytest.approx(0.63989, abs=1e-5)
    assert metric_result("BLEU", -1.0).human_agreement == pytest.approx(0.63989, abs=1e-5)
    assert metric_result("chrF2", 0.710).human_agreement == pytest.approx(0.63989, abs=1e-4)
    assert metric_result("BLEU", 0.1).human_agreement == 0.5
    assert metric_result("BLEU", 50.0).human_agreement == pytest.approx(0.88333)
    assert metric_result("BLEU", 0.0).human_agreement is None
    assert metric_result("TER", 1.0).human_agreement is None


def test_human_agreement_and_small_p_values_are_in_all_reports() -> None:
    comparison = compare_systems(texts(4, 1), texts(4, 2), FEW)
    metrics = [metric_result("BLEU", 1.0, 0.0002), metric_result("TER", 1.0, 0.0)]
    comparison = dataclasses.replace(comparison, metrics=metrics)
    table = format_comparison(comparison)
    page = comparison.page()
    assert "  < 0.001            < 0.001           64%  B is better" in table
    assert "  < 0.001            < 0.001             -  A is better" in table
    assert page.count('<td class="number">&lt; 0.001</td>') == 4
    assert '<td class="number">64%</td>' in page
    assert '<td class="number">–</td>' in page
    assert "0.000" not in table + page
    entries = comparison.as_dict()["metrics"]
    assert [entry["bootstrap_p"] for entry in entries] == [0.0002, 0.0]
    assert [entry["human_agreement"] for entry in entries] == [metrics[0].human_agreement, None]


def test_identical_systems_do_not_differ() -> None:
    base = corrupt(ONE.references[0], 0.3, 4)
    (metric,) = compare_systems(base, base, metrics=("bleu",)).metrics
    assert (metric.bootstrap_p, metric.randomization_p, metric.better) == (1.0, 1.0, -1)
    spaced = [line.replace(".", " .") for line in base]  # the same tokens
    (metric,) = compare_systems(base, spaced, metrics=("bleu",)).metrics
    assert (metric.bootstrap_p, metric.randomization_p, metric.better) == (1.0, 1.0, -1)


@pytest.mark.parametrize(("count", "limit"), [(1, 1.0), (3, 0.25), (5, 0.0625)])
def test_few_different_sentences_are_not_significant(count: int, limit: float) -> None:
    better = ONE.references[0]
    worse = ["kaputt"] * count + list(better[count:])
    (metric,) = compare_systems(worse, better, metrics=("chrf",), resamples=100).metrics
    assert metric.randomization_p >= limit  # exchanging all or none gives the same difference
    assert metric.better == -1


def test_sentences_with_equal_statistics_do_not_count() -> None:
    test = TestSet("made", ["a"] * 40, [[f"the cat number {i} sees a big dog" for i in range(40)]])
    first = [line.replace("sees", "eats") for line in test.references[0]]
    second = [
        line if i < 4 else line.replace("sees", "bites")
        for i, line in enumerate(test.references[0])
    ]
    (metric,) = compare(
        System("a", first), System("b", second), test, ["bleu"], resamples=100
    ).metrics
    assert metric.randomization_p >= 0.125
    assert metric.better == -1


def test_punctuation_is_not_part_of_a_word_for_its_frequency() -> None:
    test = TestSet("made", ["«The dogs» — run."], [["a"]])
    counts = Counter({"The": 5000, "dogs": 2000, "run": 50})
    comparison = compare(System("a", ["a"]), System("b", ["b"]), test, resamples=100, counts=counts)
    assert [bucket.name for bucket in comparison.by_rarity] == ["11 to 100 times"]


def test_invalid_seed_is_reported_before_translating(
    trained: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "abc")
    monkeypatch.setattr("nmt.translation.translator.Translator.stream", None)
    for command in (["compare", "runs/tiny", "runs/tiny"], ["evaluate"]):
        trained(*command).assert_fails(2, "SACREBLEU_SEED must be a number or none, got 'abc'")


def test_too_many_resamples_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.evaluate.comparison.MAX_RESAMPLED_LINES", 2 * 60 * 500)
    with pytest.raises(UsageError, match="1,000 resamples of 60 lines") as caught:
        compare_systems(ONE.references[0], ONE.references[0], resamples=1000)
    assert caught.value.hint == "--resamples 500"


def test_too_many_resamples_are_reported_before_translating(
    trained: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.evaluate.comparison.MAX_RESAMPLED_LINES", 10)
    monkeypatch.setattr("nmt.cli.compare.read_or_translate", None)
    trained("compare", "runs/tiny", "runs/tiny").assert_fails(2, "need too much memory")


def test_report_must_not_overwrite_an_input(trained: CommandLine, tmp_path: Path) -> None:
    write(tmp_path / "t", ["the dog"], ["der Hund"])
    files = (
        tmp_path / "t.de",
        tmp_path / "t.de",
        "--src",
        tmp_path / "t.en",
        "--ref",
        tmp_path / "t.de",
    )
    trained("compare", *files, "--html", tmp_path / "t.en").assert_fails(
        2, "would be overwritten: it is also an input"
    )
    assert (tmp_path / "t.en").read_text() == "the dog\n"
    (tmp_path / "t.tsv").write_text("the dog\tder Hund\n")
    named = (tmp_path / "t.de", "runs/tiny", "--test", tmp_path / "t.tsv")
    trained("compare", *named, "--html", tmp_path / "t.tsv").assert_fails(
        2, "would be overwritten: it is also an input"
    )


def test_no_report_of_several_overwrites_an_input(
    trained: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.cli.compare.read_or_translate", None)
    (trained.directory / "r-x.tsv-test.tsv").write_text("the dog\tder Hund\n")
    (trained.directory / "x.tsv").write_text("the cat\tdie Katze\n")
    tests = ("--test", "x.tsv", "--test", "r-x.tsv-test.tsv")
    trained("compare", "runs/tiny", "runs/tiny", *tests, "--html", "r.tsv").assert_fails(
        2, "r-x.tsv-test.tsv would be overwritten: it is also an input"
    )
