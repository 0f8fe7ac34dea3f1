"""`nmt compare`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import (
    MIN_RESAMPLES,
    BleuOption,
    ChrfOption,
    DeviceOption,
    EncodingErrorsOption,
    JsonOption,
    MetricsOption,
    ReferencesOption,
    SearchOption,
    SearchPrecisionOption,
    SourceOption,
    TerOption,
    TestsOption,
    check_file_names,
    check_seed,
    check_test_options,
    chosen_metrics,
    load_test_sets,
)
from nmt.core.console import format_p
from nmt.core.errors import UsageError
from nmt.core.layout import format_fields, format_table, wrap
from nmt.jobs.output import show, show_json, write_file

if TYPE_CHECKING:
    from nmt.evaluate.comparison import Bucket, Comparison, MetricResult
    from nmt.evaluate.test_sets import TestSet
    from nmt.translation.translator import Translator


def compare(
    first: Annotated[
        Path,
        typer.Argument(
            help="Baseline: run, checkpoint, name of a model, or file with translations."
        ),
    ],
    second: Annotated[Path, typer.Argument(help="System to compare with the baseline.")],
    src: SourceOption = None,
    ref: ReferencesOption = None,
    test: TestsOption = None,
    bleu: BleuOption = False,
    chrf: ChrfOption = False,
    ter: TerOption = False,
    metric: MetricsOption = None,
    resamples: Annotated[
        int,
        typer.Option(
            min=MIN_RESAMPLES,
            max=100_000,
            callback=check_seed,
            help="Bootstrap resamples (randomization: ten times as many trials).",
        ),
    ] = 1000,
    train: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Source side of the training data, for word frequencies.",
            show_default="the baseline's",
        ),
    ] = None,
    examples: Annotated[
        int, typer.Option(min=0, help="Number of example sentences that each system wins.")
    ] = 3,
    search: SearchOption = "",
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML report to this file.")
    ] = None,
    json_: JsonOption = False,
    device: DeviceOption = "auto",
    precision: SearchPrecisionOption = "auto",
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Compare two systems: scores, statistical significance, and where they differ.

    The default metrics are BLEU and chrF. Significance is tested with paired bootstrap resampling
    and approximate randomization. "People agree" is how often people prefer the system with the
    better score, if two systems differ as much (Kocmi et al. 2024). Sentence-level chrF
    shows wins and losses by length and word frequency, and the sentences that differ most.

    Examples:
      nmt compare runs/base runs/big
      nmt compare runs/base runs/big --test wmt14 --html report.html
      nmt compare base.hyp big.hyp --src test.en --ref test.de
    """
    check_test_options(src, ref, test)

    from nmt.core.paths import check_not_overwriting
    from nmt.evaluate.comparison import System, check_resamples
    from nmt.evaluate.comparison import compare as compare_systems

    paths = (first, second)
    translators = _load_translators(paths, device, precision)
    translator = translators[0] or translators[1]
    check_not_overwriting([html], [*paths, src, *(ref or ()), train])
    if translator is None and src is None:
        raise UsageError(
            "translation files require --src and --ref", "for example --src test.en --ref test.de"
        )
    if translator is None and search:
        raise UsageError("--search applies to models, not to translation files", "leave it out")
    if None in translators and test and len(test) > 1:
        raise UsageError("a translation file belongs to one test set", "pass a single --test")
    metrics = chosen_metrics({"bleu": bleu, "chrf": chrf, "ter": ter}, metric) or ["bleu", "chrf"]
    test_sets = load_test_sets(translator, src, ref, test, encoding_errors)
    for test_set in test_sets:  # before translating
        check_resamples(resamples, test_set)
    if html:
        check_file_names(test_sets)
    reports = _report_files(html, test_sets) if html else []
    test_files = [file for test_set in test_sets for file in test_set.files]
    check_not_overwriting(reports, [*paths, train, *test_files])
    counts = _training_counts(train, translator, test_sets, encoding_errors)
    comparisons = []
    for test_set in test_sets:
        systems = [
            System(str(path), read_or_translate(path, each, test_set, search, encoding_errors))
            for path, each in zip(paths, translators, strict=True)
        ]
        comparison = compare_systems(
            systems[0],
            systems[1],
            test_set,
            metrics,
            resamples=resamples,
            num_examples=examples,
            counts=counts,
        )
        comparisons.append(comparison)
        if not json_:
            show(("\n" if len(comparisons) > 1 else "") + format_comparison(comparison))
    if json_:
        show_json([comparison.as_dict() for comparison in comparisons])
    for report, comparison in zip(reports, comparisons, strict=False):
        write_file(report, comparison.page())


def _load_translators(
    paths: tuple[Path, Path], device: str, precision: str
) -> list[Translator | None]:
    """Load the models among the systems; None for a file of translations."""
    from nmt.translation.translator import Translator

    translators = [
        None if path.is_file() else Translator.load(path, device, precision) for path in paths
    ]
    if len({(each.config.data.src, each.config.data.tgt) for each in translators if each}) > 1:
        raise UsageError(
            "the systems translate between different languages",
            "compare systems with the same languages",
        )
    return translators


def read_or_translate(
    path: Path, translator: Translator | None, test_set: TestSet, search: str, encoding_errors: str
) -> list[str]:
    """Translate the test set, or read the translations from a file."""
    from nmt.data.pairs import read_lines
    from nmt.evaluate.evaluation import translate_test_set

    if translator is None:
        return list(read_lines(path, encoding_errors))
    return translate_test_set(translator, test_set, search or translator.config.search)


def _training_counts(
    train: Path | None,
    translator: Translator | None,
    test_sets: list[TestSet],
    encoding_errors: str,
) -> Counter[str] | None:
    """Count the test sets' words in --train, or in the prepared training data of the model if it
    still exists."""
    from nmt.core.console import log, progress
    from nmt.data.pairs import read_lines
    from nmt.data.prepare import find_prepared_data
    from nmt.text.normalization import words_without_punctuation as words

    prepared = find_prepared_data(translator.run) if translator else None
    if train:
        sources = read_lines(train, encoding_errors)
    elif prepared:
        sources = (source for source, _ in prepared.store("train").pairs())
    else:
        log("no comparison by word frequency: pass the training data with --train")
        return None
    vocabulary = {word for test in test_sets for source in test.sources for word in words(source)}
    with progress(
        None,
        "counting words",
        " lines",
        unit_scale=True,
        iterable=sources,
    ) as lines:
        return Counter(word for line in lines for word in words(line) if word in vocabulary)


def _report_files(html: Path, test_sets: list[TestSet]) -> list[Path]:
    """Return the file of the HTML report of each test set. The names of several include the test
    set."""
    from nmt.evaluate.test_sets import safe_filename

    if len(test_sets) == 1:
        return [html]
    return [html.with_stem(f"{html.stem}-{safe_filename(each.name)}") for each in test_sets]


def format_comparison(comparison: Comparison) -> str:
    """Return the report of a comparison."""
    names = f"A is {comparison.first_name}, B is {comparison.second_name}"
    lines = [*wrap(f"{comparison.test}: {names}", indent="  "), ""]
    lines += _format_metrics(comparison.metrics)
    lines += _format_buckets("", [comparison.overall])
    lines += _format_buckets("by source length", comparison.by_length)
    rarity = "by training frequency of the rarest source word"
    lines += _format_buckets(rarity, comparison.by_rarity)
    if comparison.differences:
        lines += ["", "largest differences"]
    for each in comparison.differences:
        lines.append(f"  line {each.line}, chrF {each.first_score:.1f} and {each.second_score:.1f}")
        texts = {
            "source": each.source,
            "reference": each.references,
            "A": each.first_translation,
            "B": each.second_translation,
        }
        lines += format_fields(texts, indent="    ")
    lines.append("")
    for metric in comparison.metrics:
        lines += wrap(f"{metric.name}: {metric.signature}", indent="  ")
    return "\n".join(lines)


def _format_metrics(metrics: list[MetricResult]) -> list[str]:
    head = ["", "A", "B", "B - A", "p (bootstrap)", "p (randomization)", "people agree", ""]
    rows = [head]
    for metric in metrics:
        agreement = metric.human_agreement
        rows.append(
            [
                metric.name,
                f"{metric.first_score:.1f} ± {metric.first_half_interval:.1f}",
                f"{metric.second_score:.1f} ± {metric.second_half_interval:.1f}",
                f"{metric.second_score - metric.first_score:+.1f}",
                format_p(metric.bootstrap_p),
                format_p(metric.randomization_p),
                "-" if agreement is None else f"{agreement:.0%}",
                ("A is better", "B is better", "not significant")[metric.better],
            ]
        )
    return format_table(rows, optional=(6, 5))


def _format_buckets(title: str, buckets: list[Bucket]) -> list[str]:
    """Format a table after an empty line; nothing without buckets."""
    if not buckets:
        return []
    head = [title, "sentences", "chrF A", "chrF B", "B - A", "A wins", "B wins"]
    rows = [head]
    for bucket in buckets:
        rows.append(
            [
                bucket.name,
                f"{bucket.sentences:,}",
                f"{bucket.first_score:.1f}",
                f"{bucket.second_score:.1f}",
                f"{bucket.second_score - bucket.first_score:+.1f}",
                f"{bucket.first_wins:,}",
                f"{bucket.second_wins:,}",
            ]
        )
    return ["", *format_table(rows, range(1, len(head)))]
