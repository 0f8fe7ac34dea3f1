"""`nmt compare`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import (
    DeviceOption,
    ErrorsOption,
    ReferencesOption,
    SearchOption,
    SearchPrecisionOption,
    SourceOption,
    TestsOption,
    check_errors,
    check_test_options,
    open_test_sets,
)
from nmt.cli.output import aligned, write_file
from nmt.config import DataConfig
from nmt.errors import UsageError

if TYPE_CHECKING:
    from nmt.evaluate.comparison import Bucket, Comparison
    from nmt.evaluate.test_sets import TestSet
    from nmt.inference.translator import Translator


def compare(
    first: Annotated[Path, typer.Argument(help="A run, a checkpoint, or a file of translations: the baseline.")],
    second: Annotated[Path, typer.Argument(help="Another one.")],
    src: SourceOption = None,
    ref: ReferencesOption = None,
    test: TestsOption = None,
    bleu: Annotated[bool, typer.Option("--bleu", help="BLEU; with chrF the default.")] = False,
    chrf: Annotated[bool, typer.Option("--chrf", help="chrF2.")] = False,
    ter: Annotated[bool, typer.Option("--ter", help="Translation edit rate.")] = False,
    resamples: Annotated[int, typer.Option(min=100, max=100_000, help="Draws of the significance tests.")] = 1000,
    train: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Source side of the training text, to tell rare words.",
                     show_default="the first run's"),
    ] = None,
    sentences: Annotated[int, typer.Option(min=0, help="Sentences to show in each direction.")] = 3,
    search: SearchOption = "",
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the comparison as a page.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
    device: DeviceOption = "auto",
    precision: SearchPrecisionOption = "auto",
    errors: ErrorsOption = "strict",
) -> None:  # fmt: skip
    """Compare two systems on test sets: scores, whether chance explains the difference, and where it lies.

    Significance is told by paired bootstrap resampling and approximate randomization. Sentences are compared by chrF:
    wins and losses, by length, by how rare their words are, and those that differ most.

    Examples:
      nmt compare runs/base runs/big
      nmt compare runs/base runs/big --test wmt14 --html report.html
      nmt compare base.hyp big.hyp --src test.en --ref test.de
    """
    check_test_options(src, ref, test)
    check_errors(errors)
    import json

    from nmt.data.pairs import read_lines
    from nmt.evaluate.comparison import System
    from nmt.evaluate.comparison import compare as run
    from nmt.evaluate.evaluation import hypotheses
    from nmt.evaluate.test_sets import safe_filename
    from nmt.inference.translator import Translator
    from nmt.paths import check_not_overwriting

    translators = [None if path.is_file() else Translator.load(path, device, precision) for path in (first, second)]
    directions = {(each.config.data.src, each.config.data.tgt) for each in translators if each}
    if len(directions) > 1:
        raise UsageError("the two systems translate between different languages", f"{first} and {second}")
    known = next((translator for translator in translators if translator), None)
    check_not_overwriting([html] if html else [], [p for p in (first, second, src, *(ref or ()), train) if p])
    if known is None and src is None:
        raise UsageError("files of translations need --src and --ref", "nmt compare a.hyp b.hyp --src x.en --ref x.de")
    if None in translators and test and len(test) > 1:
        raise UsageError("a file holds the translations of one test set", "give one --test")
    test_sets = open_test_sets(known.config.data if known else DataConfig(), src, ref, test, errors)
    counts = _counts(train, known, test_sets, errors)
    names = [name for name, wanted in {"bleu": bleu, "chrf": chrf, "ter": ter}.items() if wanted] or ["bleu", "chrf"]
    found = []
    for test_set in test_sets:
        systems = [
            System(str(path), hypotheses(translator, test_set, search or translator.config.search)
                   if translator else list(read_lines(path, errors)))
            for path, translator in zip((first, second), translators, strict=True)
        ]  # fmt: skip
        found.append(run(systems[0], systems[1], test_set, names, resamples=resamples, shown=sentences, counts=counts))
        if not json_:
            typer.echo(("\n" if len(found) > 1 else "") + _table(found[-1]))
    if json_:
        typer.echo(json.dumps([comparison.as_dict() for comparison in found], ensure_ascii=False, indent=2))
    if html:
        for comparison in found:
            own = html.with_stem(f"{html.stem}-{safe_filename(comparison.test)}")
            write_file(html if len(found) == 1 else own, comparison.page())


def _counts(train: Path | None, known: Translator | None, test_sets: list[TestSet], errors: str) -> Counter[str] | None:
    """Count the test sets' words in the training text: the one named, or that of a run, where it is still on disk."""
    from nmt.console import log, progress, with_progress
    from nmt.data.pairs import read_lines
    from nmt.data.prepare import prepared_text
    from nmt.evaluate.comparison import word_counts

    path = train or (prepared_text(known.run, known.config.data.src) if known else None)
    if path is None:
        log("no training text to tell rare words by: --train names one")
        return None
    wanted = {word for test in test_sets for source in test.sources for word in source.split()}
    with progress(None, "counting words", " lines", unit_scale=True) as bar:
        return word_counts(with_progress(read_lines(path, errors), bar.update), wanted)


def _table(found: Comparison) -> str:
    lines = [f"{found.test}: A is {found.first}, B is {found.second}", ""]
    head = ["", "A", "B", "B - A", "p boot.", "p rand.", ""]
    rows = [
        [
            metric.name, f"{metric.first:.1f} ± {metric.first_confidence:.1f}",
            f"{metric.second:.1f} ± {metric.second_confidence:.1f}", f"{metric.second - metric.first:+.1f}",
            _probability(metric.bootstrap_p), _probability(metric.randomization_p),
            ("A is better", "B is better", "not significant")[metric.better],
        ]
        for metric in found.metrics
    ]  # fmt: skip
    lines += aligned([head, *rows])
    for title, buckets in (
        ("", [found.overall]), ("by length of the source", found.by_length),
        ("by how often the training text has the rarest source word", found.by_rarity),
    ):  # fmt: skip
        if buckets:
            head = [title, "sentences", "chrF A", "chrF B", "B - A", "A wins", "B wins"]
            lines += ["", *aligned([head, *map(_row, buckets)])]
    if found.differences:
        lines += ["", "where they differ most"]
    for each in found.differences:
        lines.append(f"  line {each.line}, chrF {each.first_score:.1f} and {each.second_score:.1f}")
        texts = [("source", each.source), *(("reference", text) for text in each.references)]
        lines += [f"    {name:<10}{text}" for name, text in (*texts, ("A", each.first), ("B", each.second))]
    lines += ["", *(f"{metric.name}: {metric.signature}" for metric in found.metrics)]
    return "\n".join(lines)


def _probability(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "<0.001"


def _row(bucket: Bucket) -> list[str]:
    return [
        bucket.name, f"{bucket.sentences:,}", f"{bucket.first:.1f}", f"{bucket.second:.1f}",
        f"{bucket.second - bucket.first:+.1f}", f"{bucket.first_wins:,}", f"{bucket.second_wins:,}",
    ]  # fmt: skip
