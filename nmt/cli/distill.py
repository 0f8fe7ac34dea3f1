"""`nmt distill`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import (
    DeviceOption,
    EncodingErrorsOption,
    SearchOption,
    SearchPrecisionOption,
    load_translator,
)
from nmt.cli.synthesis_options import (
    CleanOption,
    IgnoreOption,
    MinScoreOption,
    OutputOption,
    ResumeOption,
    ShardOption,
    TeacherOption,
    TestOption,
)
from nmt.core.errors import DataError, UsageError
from nmt.jobs import synthesis
from nmt.jobs.sharding import Shard

if TYPE_CHECKING:
    from nmt.synthetic.source_text import SourceText
    from nmt.translation.translator import Translator

N_BEST_SEARCH = "beam(beam_size=8, top_beams=8)"
"""Default search of --select."""


def distill(
    model: TeacherOption,
    output: OutputOption,
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CORPUS",
            help="Corpus whose training sources are translated; may be repeated.",
            show_default="the training data of the teacher",
        ),
    ] = None,
    input: Annotated[
        Path | None,
        typer.Option("--input", "-i", help="Translate this text in the source language instead."),
    ] = None,
    search: SearchOption = "",
    select: Annotated[
        str,
        typer.Option(
            help="Keep the hypothesis closest to the reference: bleu or chrf.", show_default="none"
        ),
    ] = "",
    min_score: MinScoreOption = None,
    clean: CleanOption = None,
    test: TestOption = None,
    ignore: IgnoreOption = None,
    shard: ShardOption = None,
    resume: ResumeOption = False,
    device: DeviceOption = "auto",
    precision: SearchPrecisionOption = "auto",
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Translate training sources with a teacher, to train a smaller and faster student on the
    translations.

    The translations of the teacher are more regular than human ones, so a small model learns them
    better (sequence-level knowledge distillation, Kim and Rush 2016). With --select, the hypothesis
    of an n-best list that is closest to the reference is used (sequence-level interpolation);
    without it, all hypotheses are. Repeated and overlong lines, bad translations and pairs that nmt
    data check would drop are left out and counted. Prints the directory of the corpus, and logs the
    command that trains a student on it.

    Examples:
      nmt distill --model runs/teacher --output data/distilled
      nmt distill --model runs/a --model runs/b --output data/distilled --select bleu
      nmt distill --model runs/teacher --output data/distilled --search "beam(beam_size=8)" --resume
      nmt distill --model Helsinki-NLP/opus-mt-en-de --input news.en --output data/distilled
    """
    from nmt.data.pairs import open_text
    from nmt.evaluate.test_sets import names_files

    parsed_shard = Shard.from_option(shard) or Shard(1, 1)
    if input and (data or select):
        raise UsageError(
            f"{'--data' if data else '--select'} does not apply to --input, which has no"
            " references",
            "leave it out",
        )
    if not input and encoding_errors != "strict" and not any(map(names_files, test or ())):
        raise UsageError(
            "--encoding-errors is for --input", "use errors='replace' in files(...) of --data"
        )
    if input:
        open_text(input).close()

    from nmt.data.sources import validate
    from nmt.synthetic import corpus
    from nmt.synthetic.filters import CLEANING, Filters

    for spec in data or ():
        validate(spec)
    search = search or (N_BEST_SEARCH if select else "")
    steps, ignored = tuple(CLEANING if clean is None else clean), tuple(ignore or ())
    synthesis.check_options(output, resume, search, select, min_score, steps, ignored)
    teacher = load_translator(model, device, precision)
    filters = Filters(
        (teacher.config.data.src, teacher.config.data.tgt),
        is_reversed=False,
        select=select,
        min_score=min_score,
        clean=steps,
        ignore=ignored,
    )
    options = synthesis.Options(
        "distill",
        output,
        search or teacher.config.search,
        filters,
        tuple(test or ()),
        parsed_shard,
        resume,
        encoding_errors,
    )
    synthesis.synthesize(
        options,
        teacher,
        model,
        _source_text(teacher, data or [], input, encoding_errors),
        lambda first, build: corpus.distillation_command(first, output, build, data or ()),
    )


def _source_text(
    teacher: Translator, specs: list[str], input: Path | None, encoding_errors: str
) -> SourceText:
    from nmt.runs.run_report import check_data_is_known
    from nmt.synthetic.source_text import SourceText

    own = teacher.config.data
    if input:
        return SourceText.from_file(input, own.src, encoding_errors)
    if not specs:
        check_data_is_known(teacher.run, "name the text with --input or --data")
    try:
        return SourceText.from_corpora(specs or own.train, own.src, own.tgt)
    except DataError as error:
        if not specs:  # a pretrained model, or files that were moved
            error.hint = (
                f"that is the training data of {teacher.run}; name other text with --input or"
                " --data"
            )
        raise
