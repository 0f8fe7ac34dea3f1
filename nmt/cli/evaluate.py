"""`nmt evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import (
    DeviceOption,
    ErrorsOption,
    ModelOption,
    SearchOption,
    SearchPrecisionOption,
    check_errors,
    search_spec,
)
from nmt.errors import UsageError

if TYPE_CHECKING:
    from nmt.translate import Translator


def evaluate(
    model: ModelOption = None,
    bleu: Annotated[bool, typer.Option("--bleu", help="BLEU, the default.")] = False,
    chrf: Annotated[bool, typer.Option("--chrf", help="chrF2.")] = False,
    ter: Annotated[bool, typer.Option("--ter", help="Translation edit rate.")] = False,
    src: Annotated[Path | None, typer.Option(help="Source file of a test set of your own.")] = None,
    ref: Annotated[Path | None, typer.Option(help="Its reference translations.")] = None,
    test: Annotated[
        str | None, typer.Option(help="A test set that sacrebleu knows: wmt14, ...", show_default="the corpus's own")
    ] = None,
    beam_size: Annotated[
        int | None, typer.Option(help="Beams of the search; 1 is greedy.", show_default="the model's")
    ] = None,
    length_penalty: Annotated[
        float | None, typer.Option(help="0 favours short translations.", show_default="the model's")
    ] = None,
    search: SearchOption = "",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for hypotheses and report.", show_default="RUN/eval")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
    device: DeviceOption = "auto",
    precision: SearchPrecisionOption = "auto",
    errors: ErrorsOption = "strict",
) -> None:
    """Translate a test set and print its scores with sacrebleu's signatures.

    Without --src or --test it is the test split of the corpus the model was trained on. Text is cased and
    detokenised throughout. The hypotheses and a JSON report are written for anyone to check.

    Examples:
      nmt evaluate
      nmt evaluate --model runs/multi30k --bleu --chrf --beam-size 8
      nmt evaluate --src mine.en --ref mine.de
      nmt evaluate --test wmt14
    """
    if (src is None) != (ref is None):
        raise UsageError("--src and --ref go together")
    if src is not None and test is not None:
        raise UsageError("give --src and --ref, or --test, not both")
    check_errors(errors)

    import json
    from dataclasses import asdict

    from nmt import checkpoint, testset
    from nmt import evaluate as evaluation
    from nmt.console import log
    from nmt.translate import Translator

    translator = Translator.load(model or checkpoint.newest_run(), device, precision)
    if model is None:
        log(f"using {translator.origin}")
    spec = search_spec(search, translator.config.search, beam_size, None, length_penalty)
    if src is not None and ref is not None:
        test_set = testset.file_test_set(src, ref, errors)
    elif test is not None:
        test_set = testset.named_test_set(test, translator.config.data.src, translator.config.data.tgt)
    else:
        test_set = testset.own_test_set(translator.config.data)
    names = [name for name, wanted in (("bleu", bleu), ("chrf", chrf), ("ter", ter)) if wanted] or ["bleu"]
    folder = output or _folder(translator, model)
    scores, _ = evaluation.evaluate(translator, test_set, names, spec, folder)
    if json_:
        typer.echo(json.dumps([asdict(score) for score in scores], ensure_ascii=False))
    else:
        for score in scores:
            typer.echo(str(score))


def _folder(translator: Translator, asked: Path | None) -> Path:
    """Return the folder of hypotheses: the run's, and one of its own for a checkpoint asked for by name."""
    folder = translator.run / "eval"
    named = asked is not None and asked.resolve() == translator.origin.resolve()
    return folder / translator.origin.resolve().name if named else folder
