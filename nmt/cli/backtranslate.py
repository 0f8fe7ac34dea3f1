"""`nmt backtranslate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

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
from nmt.jobs import synthesis
from nmt.jobs.sharding import Shard


def backtranslate(
    input: Annotated[
        Path,
        typer.Option(
            "--input",
            "-i",
            help="Text in the target language, one sentence per line.",
            show_default=False,
        ),
    ],
    model: TeacherOption,
    output: OutputOption,
    search: SearchOption = "",
    no_tag: Annotated[
        bool,
        typer.Option(
            "--no-tag",
            help="Do not tag the synthetic sources in training: no tag=True in the logged command.",
        ),
    ] = False,
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
    """Translate text of the target language into the source language, as additional training data.

    The model translates in the opposite direction. Its translations become the source side of a new
    corpus, and the text becomes the target side (back-translation, Sennrich et al. 2016). Repeated
    and overlong lines, bad translations and pairs that nmt data check would drop are left out and
    counted. Prints the directory of the corpus, and logs the command that trains on it. Several
    hypotheses per line, as of sample(n_best=4), become several pairs.

    Examples:
      nmt backtranslate --input news.de --model runs/de-en --output data/bt
      nmt backtranslate -i news.de.gz -m runs/de-en -o data/bt --search "sample(top_k=10)" --resume
      nmt backtranslate -i news.de -m Helsinki-NLP/opus-mt-de-en -o data/bt --test wmt14
    """
    from nmt.data.pairs import open_text

    parsed_shard = Shard.from_option(shard) or Shard(1, 1)
    open_text(input).close()

    from nmt.synthetic import corpus
    from nmt.synthetic.filters import CLEANING, Filters
    from nmt.synthetic.source_text import SourceText

    steps, ignored = tuple(CLEANING if clean is None else clean), tuple(ignore or ())
    synthesis.check_options(output, resume, search, "", min_score, steps, ignored)
    teacher = load_translator(model, device, precision)
    data = teacher.config.data
    filters = Filters(
        (data.src, data.tgt), is_reversed=True, min_score=min_score, clean=steps, ignore=ignored
    )
    options = synthesis.Options(
        "backtranslate",
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
        SourceText.from_file(input, data.src, encoding_errors),
        lambda first, build: corpus.back_translation_command(first, output, build, tag=not no_tag),
    )
