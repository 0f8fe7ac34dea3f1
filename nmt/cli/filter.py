"""`nmt data filter`."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.corpus_inputs import (
    CorpusConfigOption,
    CorpusInputs,
    SourceArgument,
    SourceLanguageOption,
    TargetArgument,
    TargetLanguageOption,
    config_corpora,
    file_corpora,
    output_files,
    work_directory_of,
)
from nmt.cli.options import (
    DataShardOption,
    EncodingErrorsOption,
    ExecutorOption,
    SetOption,
)
from nmt.core.console import counted, log, progress
from nmt.core.errors import DataError, UsageError, write_errors

if TYPE_CHECKING:
    from nmt.core.parts import Part
    from nmt.core.processes import Executor
    from nmt.data.arrays import Floats
    from nmt.jobs.filtering import Filter, Models

DEFAULT_MIN_SCORE = -5.0
"""Of text with 30% of noise, it keeps about 97% of the good pairs and 5% of the others; of clean
text, about 94%."""


def filter_(
    src: SourceArgument = None,
    tgt: TargetArgument = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="PREFIX",
            help="Write the pairs that are kept to PREFIX.en, PREFIX.de.",
            show_default=False,
        ),
    ] = None,
    config: CorpusConfigOption = None,
    set_: SetOption = None,
    min_score: Annotated[
        float | None,
        typer.Option(help="Minimum score of a pair.", show_default=str(DEFAULT_MIN_SCORE)),
    ] = None,
    keep: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=1.0, help="Keep this share of the pairs instead.", show_default=False
        ),
    ] = None,
    forward: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Also score with this model, from source to target.",
            show_default=False,
        ),
    ] = None,
    reverse: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Model from target to source, with --forward.", show_default=False
        ),
    ] = None,
    src_lang: SourceLanguageOption = "",
    tgt_lang: TargetLanguageOption = "",
    compress: Annotated[
        bool, typer.Option("--compress", help="Compress the output (zstandard, .zst).")
    ] = False,
    encoding_errors: EncodingErrorsOption = "strict",
    shard: DataShardOption = None,
    executor: ExecutorOption = "processes",
) -> None:
    """Keep the pairs of noisy corpora that are likely to be translations of each other.

    Scores are learned from the corpora: alignment of words, language, length and the end of
    sentences; with --forward and --reverse also dual conditional cross-entropy of two models
    (Junczys-Dowmunt 2018). The scores stay in $NMT_DATA/filtered, so that another --min-score or
    --keep takes little time. Prints the number of pairs and of those that are kept as JSON.

    Examples:
      nmt data filter crawled.en crawled.de -o clean
      nmt data filter crawled.tsv.gz --src-lang en --tgt-lang de -o clean --keep 0.8
      nmt data filter crawled.en crawled.de -o clean --forward en-de --reverse de-en
    """
    if output is None:
        raise UsageError("--output is missing", "for example -o clean")
    if keep is not None and min_score is not None:
        raise UsageError("--keep and --min-score exclude each other", "leave out one of them")
    if keep is not None and not keep > 0:  # also not a number
        raise UsageError(f"--keep {keep:g} would keep no pair", "for example --keep 0.8")
    if min_score is not None and not -math.inf < min_score <= 0:
        raise UsageError(f"--min-score must be at most 0, got {min_score}", "for example -5")
    if (forward is None) != (reverse is None):
        raise UsageError("--forward and --reverse need each other", "name a model for each")
    if (src is None) == (config is None):
        raise UsageError("pass either files or --config", "for example nmt data filter a.en a.de")
    if set_ and config is None:
        raise UsageError("--set requires --config", "add --config CONFIG")
    if config is not None and (src_lang or tgt_lang):
        raise UsageError(
            "--src-lang and --tgt-lang are for files", "set data.src and data.tgt in the config"
        )
    from nmt.core.parts import Part
    from nmt.core.processes import get_executor
    from nmt.data.shards import ALL_SHARDS, UnfinishedPartsError

    if src is not None:
        inputs = file_corpora(src, tgt, src_lang, tgt_lang, encoding_errors)
    else:
        inputs = config_corpora(str(config), set_ or [], with_tests=False)
    models = (forward, reverse) if forward and reverse else None
    part = Part.parse(shard) if shard else ALL_SHARDS
    outputs = output_files(output, inputs.languages, "--output", ".zst" if compress else "")
    try:
        with get_executor(executor) as running:
            counts = _filter(inputs, models, outputs, running, part, min_score, keep)
    except UnfinishedPartsError:
        log(f"shard {shard} is scored; the last one writes the pairs")
        return
    typer.echo(json.dumps(counts))


def _filter(
    inputs: CorpusInputs,
    models: Models | None,
    outputs: tuple[Path, Path],
    executor: Executor,
    part: Part,
    min_score: float | None,
    keep: float | None,
) -> dict[str, object]:
    """Score the corpora, write the pairs that are kept, and return the numbers of pairs."""
    from nmt.core.paths import check_not_overwriting
    from nmt.jobs.filtering import Filter, threshold_of_share

    read = [path for corpus in inputs.corpora for path in corpus.files]
    check_not_overwriting(outputs, [*inputs.files, *read])
    checksums = [_checksum(Path(model)) for model in models or ()]
    directory = work_directory_of("filtered", inputs, checksums)
    scoring = Filter(directory, inputs.corpora, models, part)
    score_N = scoring.score(executor)
    if keep is not None:
        min_score = threshold_of_share(score_N, keep)
    elif min_score is None:
        min_score = DEFAULT_MIN_SCORE
    if not (score_N >= min_score).any():
        raise DataError(f"no pair has a score of at least {min_score}", "lower --min-score")
    num_pairs = len(score_N)
    num_kept = _write(scoring, score_N, min_score, outputs)
    src, tgt = outputs
    log(f"wrote {num_kept:,} of {counted(num_pairs, 'pair')} to {src} and {tgt}")
    return {"pairs": num_pairs, "kept": num_kept, "min_score": round(min_score, 3)}


def _checksum(model: Path) -> str:
    """Return a checksum of the weights and the tokenizer of a model."""
    from nmt.models.discovery import find_model
    from nmt.runs.run_report import weights_checksum

    files = find_model(model)
    return weights_checksum(files.checkpoint) + files.tokenizer.checksum


def _write(scoring: Filter, score_N: Floats, min_score: float, outputs: tuple[Path, Path]) -> int:
    """Write the pairs that are kept, and return their number."""
    from nmt.core.paths import make_parent
    from nmt.data.pairs import write_pairs
    from nmt.jobs.filtering import kept_pairs

    src, tgt = outputs
    scored = scoring.pairs()
    with write_errors(src, "name another prefix"):
        make_parent(src)
        with progress(len(score_N), "writing", " pairs", unit_scale=True, iterable=scored) as pairs:
            return write_pairs(src, tgt, kept_pairs(iter(pairs), score_N, min_score))
