"""`nmt evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import (
    DeviceOption,
    ErrorsOption,
    ModelOption,
    ReferencesOption,
    ResamplesOption,
    SearchOption,
    SearchPrecisionOption,
    SourceOption,
    TestsOption,
    check_errors,
    check_test_options,
    open_test_sets,
    search_spec,
)

if TYPE_CHECKING:
    from nmt.inference.translator import Translator


def evaluate(
    model: ModelOption = None,
    bleu: Annotated[bool, typer.Option("--bleu", help="BLEU, the default.")] = False,
    chrf: Annotated[bool, typer.Option("--chrf", help="chrF2.")] = False,
    ter: Annotated[bool, typer.Option("--ter", help="Translation edit rate.")] = False,
    comet: Annotated[
        str, typer.Option(metavar="MODEL", help="COMET by this model: Unbabel/wmt22-comet-da.", show_default=False)
    ] = "",
    src: SourceOption = None,
    ref: ReferencesOption = None,
    test: TestsOption = None,
    beam_size: Annotated[
        int | None, typer.Option(help="Beams of the search; 1 is greedy.", show_default="the model's")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="0 favors short translations.", show_default="the model's")
    ] = None,
    search: SearchOption = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for hypotheses and report.", show_default="RUN/eval")
    ] = None,
    resamples: ResamplesOption = 1000,
    json_: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    device: DeviceOption = "auto",
    precision: SearchPrecisionOption = "auto",
    errors: ErrorsOption = "strict",
) -> None:
    """Translate test sets and print their scores with 95 % confidence intervals and sacrebleu's signatures.

    Without --src or --test it is the test split of the corpus the model was trained on. Text is cased and
    detokenized throughout. The hypotheses and a JSON report are written for anyone to check.

    Examples:
      nmt evaluate
      nmt evaluate --model runs/multi30k --bleu --chrf --beam-size 8
      nmt evaluate --src mine.en --ref mine.de --ref other.de
      nmt evaluate --test wmt14 --test wmt13
    """
    check_test_options(src, ref, test)
    check_errors(errors)

    import json

    from nmt.console import log
    from nmt.evaluate.evaluation import Wish
    from nmt.evaluate.evaluation import evaluate as run
    from nmt.inference.translator import Translator
    from nmt.runs import discovery
    from nmt.runs.model_card import write_card

    translator = Translator.load(model or discovery.newest_run(), device, precision)
    if model is None:
        log(f"using {translator.checkpoint}")
    spec = search_spec(search, translator.config.search, beam_size, None, length_penalty)
    test_sets = open_test_sets(translator.config.data, src, ref, test, errors)
    names = [name for name, wanted in {"bleu": bleu, "chrf": chrf, "ter": ter}.items() if wanted]
    wish = Wish(names or ([] if comet else ["bleu"]), resamples, comet)
    folder = output or _folder(translator, model)
    found = []
    for test_set in test_sets:
        found.append(run(translator, test_set, spec, folder, wish))
        if not json_:
            for score in found[-1].scores:
                typer.echo(f"{found[-1].test}  {score}" if len(test_sets) > 1 else str(score))
    if folder.is_relative_to(translator.run):
        write_card(translator.run)
    if json_:
        typer.echo(json.dumps([evaluation.as_dict() for evaluation in found], ensure_ascii=False))


def _folder(translator: Translator, asked: Path | None) -> Path:
    """Return the folder of hypotheses: the run's, and one of its own for a checkpoint asked for by name."""
    from nmt.runs import pretrained

    folder = pretrained.output_dir(translator.run) / "eval"
    named = asked is not None and asked.resolve() == translator.checkpoint.resolve()
    return folder / translator.checkpoint.resolve().name if named else folder
