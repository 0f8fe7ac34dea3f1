"""Options that several commands share."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nmt.core.console import log
from nmt.core.errors import MissingPackageError, UsageError
from nmt.core.registry import format_spec, parse

if TYPE_CHECKING:
    from nmt.evaluate.test_sets import TestSet
    from nmt.translation.translator import Translator

ConfigOption = Annotated[
    str,
    typer.Option(
        "--config",
        "-c",
        help="YAML file, or the name of a built-in config such as quickstart or multi30k.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a config option, e.g. train.steps=1000; may be repeated.",
    ),
]
DataShardOption = Annotated[
    str | None,
    typer.Option(
        "--shard",
        metavar="I/N",
        help="Compute part I of N of the corpora, on machines that share $NMT_DATA.",
    ),
]
ExecutorOption = Annotated[
    str,
    typer.Option(
        "--executor",
        help="processes: one per core; ray: the Ray cluster of $RAY_ADDRESS, or a local one.",
    ),
]
DEFAULT_MODEL = "the newest run, else a pretrained model"
ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        help=(
            "Run or checkpoint directory, or the name of a pretrained (en-de, de-en) or"
            " published model."
        ),
        show_default=DEFAULT_MODEL,
    ),
]
ModelsOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--model",
        "-m",
        help=(
            "Run or checkpoint directory, or the name of a pretrained or published model; repeat"
            " to ensemble."
        ),
        show_default=DEFAULT_MODEL,
    ),
]
DeviceOption = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
AUTO_PRECISION_HELP = "auto: the faster of fp32 and bf16; on a GPU, bf16 if it has bf16 units."
SearchPrecisionOption = Annotated[
    str, typer.Option("--precision", help=f"auto, fp32, bf16, fp16 or int8. {AUTO_PRECISION_HELP}")
]
PrecisionOption = Annotated[
    str, typer.Option(help=f"auto, fp32, bf16 or fp16. {AUTO_PRECISION_HELP}")
]
SearchOption = Annotated[
    str,
    typer.Option(
        help="Decoding algorithm, e.g. greedy or beam(beam_size=8).", show_default="the model's"
    ),
]
BeamSizeOption = Annotated[int | None, typer.Option(help="Beam size.", show_default="the model's")]
LengthPenaltyOption = Annotated[
    float | None,
    typer.Option(help="Length-penalty exponent α (0 = none).", show_default="the model's"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
BleuOption = Annotated[bool, typer.Option("--bleu", help="Report BLEU.")]
ChrfOption = Annotated[bool, typer.Option("--chrf", help="Report chrF2.")]
TerOption = Annotated[bool, typer.Option("--ter", help="Report translation edit rate (TER).")]
MetricsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="Report this metric, such as one of a plug-in; repeat for several.",
        show_default=False,
    ),
]
SourceOption = Annotated[Path | None, typer.Option(help="Source file of a custom test set.")]
ReferencesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--ref", help="Reference file of a custom test set; repeat for multiple references."
    ),
]
TestsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--test",
        show_default="the model's",
        help="sacreBLEU test set (wmt14, ...), corpus (tatoeba, ...), or file with both languages"
        " (own.csv); may be repeated.",
    ),
]


def check_seed(resamples: int) -> int:
    """Check the seed that sacreBLEU reads after all sentences are translated."""
    seed = os.environ.get("SACREBLEU_SEED", "none")
    if resamples and seed.lower() != "none" and not seed.isdecimal():
        raise UsageError(f"SACREBLEU_SEED must be a number or none, got '{seed}'", "unset it")
    return resamples


MIN_RESAMPLES = 100
"""Fewer resamples give no confidence interval."""


def _check_resamples(resamples: int) -> int:
    if 0 < resamples < MIN_RESAMPLES:
        raise UsageError(
            f"--resamples must be 0 or at least {MIN_RESAMPLES}, got {resamples}",
            "leave it out for 1000 resamples; 0 disables confidence intervals",
        )
    return check_seed(resamples)


ResamplesOption = Annotated[
    int,
    typer.Option(
        min=0,
        max=1_000_000,
        callback=_check_resamples,
        help="Bootstrap resamples for confidence intervals, at least 100; 0 disables them.",
    ),
]


def _check_encoding_errors(value: str) -> str:
    if value not in ("strict", "replace"):
        raise UsageError(f"--encoding-errors must be strict or replace, got '{value}'")
    return value


EncodingErrorsOption = Annotated[
    str,
    typer.Option(
        "--encoding-errors",
        callback=_check_encoding_errors,
        help="On invalid UTF-8: strict or replace.",
    ),
]


def check_test_options(src: Path | None, refs: list[Path] | None, tests: list[str] | None) -> None:
    """Raise a UsageError if --src, --ref and --test are incomplete or contradict each other."""
    if (src is None) != (not refs):
        raise UsageError("--src and --ref must be used together")
    if src is not None and tests:
        raise UsageError("pass either --src and --ref, or --test")


def load_test_sets(
    translator: Translator | None,
    src: Path | None,
    refs: list[Path] | None,
    tests: list[str] | None,
    encoding_errors: str,
) -> list[TestSet]:
    """Load the test sets: --src and --ref, --test, or the default test set of a model."""
    from nmt.core.config import DataConfig
    from nmt.evaluate import test_sets
    from nmt.runs.run_report import check_data_is_known

    data = translator.config.data if translator else DataConfig()
    if src is not None:
        return [test_sets.file_test_set(src, refs or [], encoding_errors)]
    try:
        if tests:
            return [
                test_sets.named_test_set(name, data.src, data.tgt, encoding_errors)
                for name in tests
            ]
        if translator and not data.test:
            check_data_is_known(
                translator.run, "name a test set with --test, or with --src and --ref"
            )
        return [test_sets.default_test_set(data)]
    except MissingPackageError as error:  # of the download
        error.hint += ", or score your own files with --src and --ref"
        raise


def check_file_names(tests: list[TestSet]) -> None:
    """Raise a UsageError if the outputs of two test sets would have the same file name."""
    from nmt.evaluate.test_sets import safe_filename

    names = [safe_filename(test.name) for test in tests]
    if same := [name for name in names if names.count(name) > 1]:
        raise UsageError(
            f"two test sets have the file name {same[0]}", "use them one by one, with other outputs"
        )


def search_spec(
    search: str,
    default: str,
    beam_size: int | None,
    top_beams: int | None,
    length_penalty: float | None,
) -> str:
    """Combine the search options into one spec string.

    Args:
        search: --search; an error if beam-search options are given and this is not a beam search.
        default: the search in the model's config; beam-search options replace a search other than
            beam search.
        beam_size: --beam-size.
        top_beams: --top-beams; increases the default beam size if necessary.
        length_penalty: --length-penalty.

    Raises:
        ConfigError: the search has an invalid option.
        UsageError: the length penalty is not finite, or --search does not support the other
            options.
    """
    from nmt.search import SEARCHES
    from nmt.search.beam import BeamOptions

    if length_penalty is not None and not math.isfinite(length_penalty):
        raise UsageError(
            f"--length-penalty must be a number, got {length_penalty}", "a typical value is 1.0"
        )
    overrides = {"beam_size": beam_size, "top_beams": top_beams, "length_penalty": length_penalty}
    overrides = {key: value for key, value in overrides.items() if value is not None}
    spec = search or default
    name, options = parse(spec)
    kind = SEARCHES.get(name)
    is_beam_search = isinstance(kind, type) and issubclass(kind, BeamOptions)
    if not is_beam_search:
        if not overrides or (name == "greedy" and _equals_greedy(overrides)):
            return spec
        if search:
            raise UsageError(
                f"--search {search} is not a beam search",
                "leave out --search or the beam search options",
            )
        name, options = "beam", {}
    options |= overrides
    if top_beams and beam_size is None:
        options |= _larger_beam(name, options, top_beams)
    return format_spec(name, options)


def _equals_greedy(overrides: dict[str, Any]) -> bool:
    """Return whether a beam search with these options is a greedy search."""
    return "length_penalty" not in overrides and set(overrides.values()) == {1}


def _larger_beam(name: str, options: dict[str, Any], top_beams: int) -> dict[str, int]:
    """Return the beam size of a search for `top_beams` translations, if its own is too small."""
    from nmt.search import parse_search
    from nmt.search.beam import BeamOptions

    others = {key: value for key, value in options.items() if key != "top_beams"}
    search = parse_search(format_spec(name, others))
    assert isinstance(search, BeamOptions)
    if top_beams <= search.beam_size:
        return {}
    # The groups of a diverse search have equal sizes.
    group_size = math.ceil(top_beams / search.num_groups)
    return {"beam_size": group_size * search.num_groups}


def chosen_metrics(flags: Mapping[str, bool], named: Sequence[str] | None) -> list[str]:
    """Return the metrics of --bleu, --chrf, --ter and --metric, each once.

    Raises:
        UsageError: the value of --metric is invalid.
    """
    from nmt.evaluate.line_metrics import check_metric

    metrics = [name for name, is_set in flags.items() if is_set]
    for spec in map(str.strip, named or ()):
        check_metric(spec)
        metrics.append(spec)
    return list(dict.fromkeys(metrics))


def load_translator(
    model: Path | list[Path] | None,
    device: str,
    precision: str,
    engine: str = "nmt",
    to: str = "",
) -> Translator:
    """Load the models of --model, which must translate into the language `to` unless it is empty;
    by default the newest run that does, else a pretrained model, which is logged."""
    from nmt.models import discovery
    from nmt.text.language_codes import normalize_code
    from nmt.translation.translator import Translator

    chosen = model or discovery.newest_model(to)
    paths = chosen if isinstance(chosen, list) else [chosen]
    translator = Translator.load(paths, device, precision, engine)
    target = translator.config.data.tgt
    if to and normalize_code(target) != normalize_code(to):
        raise UsageError(
            f"{paths[0]} translates into '{target}', not '{to}'", "leave out --model or --to"
        )
    if model is None:
        _log_default_model(translator)
    return translator


def _log_default_model(translator: Translator) -> None:
    from nmt.runs import pretrained

    checkpoint = translator.checkpoint
    if checkpoint.is_relative_to(pretrained.DIRECTORY):
        name = translator.run.name
        log(f"using {name}, a pretrained model; train your own with nmt train")
    else:
        log(f"using {checkpoint}")
