"""`nmt evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import (
    BeamSizeOption,
    BleuOption,
    ChrfOption,
    DeviceOption,
    EncodingErrorsOption,
    LengthPenaltyOption,
    MetricsOption,
    ModelsOption,
    ReferencesOption,
    ResamplesOption,
    SearchOption,
    SearchPrecisionOption,
    SourceOption,
    TerOption,
    TestsOption,
    check_file_names,
    check_test_options,
    chosen_metrics,
    load_test_sets,
    load_translator,
    search_spec,
)
from nmt.core.errors import UsageError
from nmt.core.layout import wrap
from nmt.jobs.output import show

if TYPE_CHECKING:
    from nmt.translation.translator import Translator


def evaluate(
    model: ModelsOption = None,
    bleu: BleuOption = False,
    chrf: ChrfOption = False,
    ter: TerOption = False,
    comet: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="COMET with this model, e.g. Unbabel/wmt22-comet-da.",
            show_default=False,
        ),
    ] = "",
    metric: MetricsOption = None,
    src: SourceOption = None,
    ref: ReferencesOption = None,
    test: TestsOption = None,
    beam_size: BeamSizeOption = None,
    length_penalty: LengthPenaltyOption = None,
    search: SearchOption = "",
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Directory for hypotheses and reports.", show_default="RUN/eval"
        ),
    ] = None,
    resamples: ResamplesOption = 1000,
    json_: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    device: DeviceOption = "auto",
    precision: SearchPrecisionOption = "auto",
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Translate test sets and report BLEU, chrF and TER with confidence intervals, and COMET.

    The default is BLEU on data.test of the config, or on the test split of the first training
    corpus; imported models need --test, or --src and --ref. Scores are computed by sacreBLEU on
    cased, detokenized text and printed with their signatures; TER ignores case, and COMET uses the
    first reference only. Hypotheses and a JSON report are written to a directory.

    Examples:
      nmt evaluate
      nmt evaluate --model runs/multi30k --bleu --chrf --beam-size 8
      nmt evaluate --src mine.en --ref mine.de --ref other.de
      nmt evaluate --test wmt14/full --test wmt13
      nmt evaluate --model runs/a --model runs/b --output ensemble
    """
    check_test_options(src, ref, test)
    if model and len(model) > 1 and output is None:
        raise UsageError(
            "an ensemble has no directory for hypotheses and report", "name one with --output"
        )

    import json

    from nmt.core.console import log
    from nmt.core.paths import check_not_overwriting
    from nmt.data.check.sides import swap_warning
    from nmt.evaluate.evaluation import evaluate as evaluate_test_set
    from nmt.evaluate.test_sets import safe_filename
    from nmt.runs.model_card import write_card

    translator = load_translator(model, device, precision)
    spec = search_spec(search, translator.config.search, beam_size, None, length_penalty)
    test_sets = load_test_sets(translator, src, ref, test, encoding_errors)
    check_file_names(test_sets)
    for test_set in test_sets:
        data = translator.config.data
        warning = swap_warning(
            test_set.name, test_set.sources, test_set.first_references, (data.src, data.tgt)
        )
        if warning:
            log(warning)
    metrics = chosen_metrics({"bleu": bleu, "chrf": chrf, "ter": ter}, metric)
    metrics = metrics or ([] if comet else ["bleu"])
    directory = output or _default_output(translator, model[0] if model else None)
    stems = [directory / safe_filename(test_set.name) for test_set in test_sets]
    outputs = [stem.with_name(stem.name + suffix) for stem in stems for suffix in (".hyp", ".json")]
    for test_set in test_sets:
        check_not_overwriting(outputs, test_set.files)
    evaluations = []
    for test_set in test_sets:
        evaluation = evaluate_test_set(
            translator,
            test_set,
            spec,
            directory,
            metrics,
            resamples=resamples,
            comet=comet,
            models=model or (),
        )
        evaluations.append(evaluation)
        if not json_:
            for score in evaluation.scores:
                line = f"{evaluation.test}  {score}" if len(test_sets) > 1 else str(score)
                show("\n".join(wrap(line, indent="  ")))
    if directory.is_relative_to(translator.run):
        write_card(translator.run)
    if json_:
        show(json.dumps([evaluation.as_dict() for evaluation in evaluations], ensure_ascii=False))


def _default_output(translator: Translator, model: Path | None) -> Path:
    """Return RUN/eval, or RUN/eval/CHECKPOINT if `model` is a checkpoint directory."""
    from nmt.runs import pretrained

    directory = pretrained.output_dir(translator.run) / "eval"
    checkpoint = translator.checkpoint.resolve()
    return (
        directory / checkpoint.name
        if model is not None and model.resolve() == checkpoint
        else directory
    )
