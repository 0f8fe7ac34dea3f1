"""`nmt calibrate`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import (
    DeviceOption,
    EncodingErrorsOption,
    JsonOption,
    ModelOption,
    ReferencesOption,
    SearchOption,
    SearchPrecisionOption,
    check_test_options,
    load_translator,
)
from nmt.core.errors import CheckpointError, NMTError, UsageError
from nmt.jobs.output import show, show_json, write_file

if TYPE_CHECKING:
    from nmt.evaluate.calibration import Reliability
    from nmt.evaluate.test_sets import TestSet
    from nmt.translation.confidence import Calibration
    from nmt.translation.translator import Translator


def calibrate(
    model: ModelOption = None,
    data: Annotated[
        str,
        typer.Option(
            metavar="CORPUS",
            help="Corpus with a validation split to fit on.",
            show_default="the model's",
        ),
    ] = "",
    src: Annotated[
        Path | None, typer.Option(help="Source file of your own development set.")
    ] = None,
    ref: ReferencesOption = None,
    test: Annotated[
        list[str] | None,
        typer.Option(
            "--test",
            help="Also measure on this test set: a corpus or one of sacreBLEU; may be repeated.",
        ),
    ] = None,
    evaluate_only: Annotated[
        bool,
        typer.Option(
            "--evaluate-only",
            help="Measure the existing calibration, on --test or --src and --ref.",
        ),
    ] = False,
    max_sentences: Annotated[
        int, typer.Option(min=50, max=100_000, help="Maximum number of sentences of each set.")
    ] = 1000,
    comet: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="Fit to the scores of this COMET model instead of chrF2.",
            show_default=False,
        ),
    ] = "",
    search: SearchOption = "",
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a report with reliability diagrams to this file."),
    ] = None,
    json_: JsonOption = False,
    device: DeviceOption = "auto",
    precision: SearchPrecisionOption = "auto",
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Calibrate the confidence of a model, for nmt translate --show-confidence.

    A confidence is the sentence chrF2, divided by 100, that is expected of a translation. It is
    fitted to translations of a development set, which the model must not have been trained on, and
    stored in the run. nmt train does this at the end of training; calibrate imported models, and
    models that you use for other text than they were trained on.

    Reports the correlation of confidence and quality, and the expected calibration error: by
    cross-validation on the development set, and on each test set.

    Examples:
      nmt calibrate --model runs/multi30k
      nmt calibrate --model runs/opus-mt-en-de --data tatoeba --test wmt13
      nmt calibrate --model en-de --src dev.en --ref dev.de --html report.html
      nmt calibrate --model en-de --evaluate-only --test multi30k
    """
    check_test_options(src, ref, None)
    if src is not None and data:
        raise UsageError("pass either --src and --ref, or --data")
    if evaluate_only and data:
        raise UsageError("--data is for fitting", "measure on --test, or on --src and --ref")
    if evaluate_only and src is None and not test:
        raise UsageError("--evaluate-only needs a test set", "add --test, or --src and --ref")

    from nmt.core.paths import check_not_overwriting
    from nmt.evaluate.calibration import CHRF, comet_quality, measure_reliability
    from nmt.evaluate.calibration import calibrate as calibrate_translator
    from nmt.evaluate.test_sets import file_test_set, named_test_set, sample

    check_not_overwriting([html], [src, *(ref or ())])
    translator = load_translator(model, device, precision)
    metric = comet_quality(comet) if comet else CHRF
    languages = translator.config.data.src, translator.config.data.tgt
    tests = [named_test_set(name, *languages, encoding_errors) for name in test or ()]
    for each in tests:
        check_not_overwriting([html], each.files)
    results: list[Reliability] = []
    if evaluate_only:
        if src is not None:
            tests.insert(0, file_test_set(src, ref or [], encoding_errors))
        if translator.calibration is None:
            raise CheckpointError(
                f"{translator.checkpoint} is not calibrated", "leave out --evaluate-only"
            )
        calibration = translator.calibration
        spec = search or calibration.search
    else:
        spec = search or translator.config.search
        development = (
            file_test_set(src, ref or [], encoding_errors)
            if src
            else _development_set(translator, data)
        )
        check_not_overwriting([html], development.files)
        calibration, held_out = calibrate_translator(
            translator, sample(development, max_sentences), spec, metric
        )
        _save(translator, calibration)
        results.append(held_out)
    results += [
        measure_reliability(translator, calibration, sample(each, max_sentences), spec, metric)
        for each in tests
    ]
    if json_:
        show_json({"calibration": calibration, "reliability": results})
    else:
        show(_format(calibration, results))
    if html:
        from nmt.core.templates import render

        name = f"{translator.run.resolve().name}/{calibration.checkpoint}"
        write_file(
            html, render("calibration.html", calibration=calibration, results=results, model=name)
        )


def _development_set(translator: Translator, spec: str) -> TestSet:
    """Load the validation split of --data or of the model's own data."""
    from nmt.evaluate.test_sets import corpus_test_set
    from nmt.runs import run_report

    data = translator.config.data
    if not spec:
        run_report.check_data_is_known(
            translator.run, "name a development set with --data, or with --src and --ref"
        )
    try:
        return corpus_test_set(spec or data.valid or data.train[0], data.src, data.tgt, "valid")
    except NMTError as error:
        error.hint = error.hint or "name a development set with --data, or with --src and --ref"
        raise


def _save(translator: Translator, calibration: Calibration) -> None:
    from nmt.core.console import log
    from nmt.core.untrusted_files import read_record
    from nmt.runs import checkpoint, model_card, pretrained

    run, best = translator.run, checkpoint.best(translator.run)
    is_best = best is not None and best.samefile(translator.checkpoint)
    directory = pretrained.output_dir(run) if is_best else translator.checkpoint
    directory.mkdir(parents=True, exist_ok=True)
    calibration.save(directory / checkpoint.CALIBRATION)
    log(f"wrote {directory / checkpoint.CALIBRATION}")
    if pretrained.output_dir(run) == run:
        other = (translator.checkpoint if is_best else run) / checkpoint.CALIBRATION
        # From when another checkpoint was the best.
        if read_record(other).get("weights") == calibration.weights:
            with suppress(NMTError):
                calibration.save(other)
        model_card.write_card(run)


def _format(calibration: Calibration, results: list[Reliability]) -> str:
    from nmt.core.layout import format_table, wrap

    head = [
        "",
        "sentences",
        "confidence",
        "quality",
        "Pearson",
        "Spearman",
        "Kendall",
        "calibration error",
    ]
    rows = [head]
    for each in results:
        values = each.mean_confidence, each.mean_quality, each.pearson, each.spearman, each.kendall
        numbers = [f"{value:.3f}" for value in (*values, each.calibration_error)]
        rows.append([each.test, f"{each.sentences:,}", *numbers])
    lines = [*wrap(f"confidence: {calibration.definition}"), "", *format_table(rows)]
    for each in results:
        rows = [["confidence", "sentences", "mean", "quality", ""]]
        for group in each.bins:
            span = f"{group.min_confidence:.2f} to {group.max_confidence:.2f}"
            means = f"{group.mean_confidence:.2f}", f"{group.mean_quality:.2f}"
            rows.append([span, f"{group.sentences:,}", *means, ""])
        lines += ["", each.test, *(f"  {line}" for line in format_table(rows))]
    return "\n".join(lines)
