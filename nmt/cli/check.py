"""`nmt data check`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain
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
from nmt.core.config.config_io import LANGUAGE_CODE
from nmt.core.console import counted, log, progress
from nmt.core.errors import UsageError, check_choice, write_errors
from nmt.core.layout import wrap
from nmt.jobs.output import show, show_json, write_file

if TYPE_CHECKING:
    from nmt.core.parts import Part
    from nmt.core.processes import Executor
    from nmt.data.check.report import Example, Report
    from nmt.data.pairs import Pair
    from nmt.data.sources import Split

    TestSet = tuple[str, list[Pair]]

MAX_CHARACTERS = 60
"""Maximum length of a sentence in an example."""
EXIT_CODES = {"note": 0, "warning": 3, "error": 4}
"""Exit code for the highest severity found. 1 and 2 mean that the check itself failed."""


def check(
    src: SourceArgument = None,
    tgt: TargetArgument = None,
    config: CorpusConfigOption = None,
    set_: SetOption = None,
    test: Annotated[
        list[str] | None,
        typer.Option(
            help=(
                "Test set to check for overlap: a corpus, a sacreBLEU test set, a file with both"
                " languages, or SRC:TGT; may be repeated."
            ),
            show_default="those of the config, or of files(...)",
        ),
    ] = None,
    src_lang: SourceLanguageOption = "",
    tgt_lang: TargetLanguageOption = "",
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="CHECK", help="Check to skip; may be repeated.")
    ] = None,
    fix: Annotated[
        Path | None,
        typer.Option(
            metavar="PREFIX",
            help="Repair the corpus and write it to PREFIX.en, PREFIX.de.",
            show_default=False,
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML report to this file.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    examples: Annotated[int, typer.Option(min=0, help="Maximum number of examples per check.")] = 5,
    encoding_errors: EncodingErrorsOption = "strict",
    shard: DataShardOption = None,
    executor: ExecutorOption = "processes",
) -> None:
    """Check parallel data for common problems before training.

    Checks for different numbers of lines, misaligned, empty and untranslated lines, wrong
    languages, unusual lengths, encoding problems, duplicates, and overlap with test sets. Exit
    code: 0 if nothing more severe than a note was found, 3 for warnings, 4 for errors.

    Re-run an interrupted check to continue it. With --shard, several machines that share $NMT_DATA
    each check a part, and the last one prints the report.

    Examples:
      nmt data check mine.en mine.de --test wmt14
      nmt data check --config multi30k --html report.html
      nmt data check mine.en mine.de --fix clean --ignore length-ratio
      nmt data check memory.tmx --src-lang en --tgt-lang de
      nmt data check "files(train='own.csv', src='English', tgt='German')"
    """
    _check_options(
        src, tgt, config, set_ or [], test or [], ignore or [], src_lang, tgt_lang, encoding_errors
    )
    if src is not None:
        inputs = file_corpora(
            src, tgt, src_lang, tgt_lang, encoding_errors, with_tests=test is None
        )
    else:
        inputs = config_corpora(str(config), set_ or [], with_tests=test is None)
    from nmt.evaluate.test_sets import load_test_set, pairs_by_reference

    for name in test or []:
        test_set = load_test_set(name, inputs.languages, encoding_errors)
        inputs.test_sets += pairs_by_reference(test_set)
        inputs.files += test_set.files
    from nmt.core.parts import Part
    from nmt.core.processes import get_executor
    from nmt.data.shards import ALL_SHARDS, UnfinishedPartsError

    run = partial(
        _run,
        inputs,
        fix,
        html,
        ignore=ignore or [],
        max_examples=examples,
        executor=get_executor(executor),
        part=Part.parse(shard) if shard else ALL_SHARDS,
    )
    try:
        report = run()
    except UnfinishedPartsError:
        log(f"shard {shard} is checked; the last one prints the report")
        return
    if json_:
        show_json(report.to_dict())
    else:
        show(_table(report))
    if report.severity is not None:
        raise typer.Exit(EXIT_CODES[report.severity.name.lower()])


def _check_options(
    src: str | None,
    tgt: Path | None,
    config: str | None,
    overrides: list[str],
    tests: list[str],
    ignore: list[str],
    src_lang: str,
    tgt_lang: str,
    encoding_errors: str,
) -> None:
    from nmt.data.check.checks import CHECKS

    names = [each.name for each in CHECKS]
    for name in ignore:
        check_choice("check", name, names)
    has_one_source = (src is None) != (config is None)
    if not has_one_source:
        raise UsageError(
            "pass either two files, a file with both languages, or --config",
            "for example nmt data check mine.en mine.de",
        )
    if overrides and config is None:
        raise UsageError("--set requires --config", "add --config CONFIG")
    if config is not None and (src_lang or tgt_lang):
        raise UsageError(
            "--src-lang and --tgt-lang are for files", "set data.src and data.tgt in the config"
        )
    from nmt.evaluate.test_sets import names_files

    if config is not None and encoding_errors != "strict" and not any(map(names_files, tests)):
        raise UsageError(
            "--encoding-errors is for files", "use errors='replace' in files(...) of the config"
        )
    for code in filter(None, (src_lang, tgt_lang)):
        if not LANGUAGE_CODE.fullmatch(code):
            raise UsageError(f"'{code}' is not a language code", "for example de or pt-BR")


def _run(
    inputs: CorpusInputs,
    fix: Path | None,
    html: Path | None,
    *,
    ignore: list[str],
    max_examples: int,
    executor: Executor,
    part: Part,
) -> Report:
    """Check the corpora, and write the page and the repaired corpus."""
    from nmt.core.paths import check_not_overwriting
    from nmt.data.check.run import run_checks, work_directory

    outputs = output_files(fix, inputs.languages, "--fix") if fix is not None else ()
    corpus_files = chain.from_iterable(corpus.files for corpus in inputs.corpora)
    check_not_overwriting([*outputs, html], [*inputs.files, *corpus_files])
    if html in outputs:
        raise UsageError(
            f"--html and --fix would both write {html}", "choose another name for --html"
        )
    for code in dict.fromkeys(inputs.languages):
        _check_language(code)
    path = work_directory_of("checks", inputs, sorted(ignore))
    with work_directory(path, part) as directory:
        report = run_checks(
            inputs.corpora,
            inputs.test_sets,
            inputs.languages,
            ignore=ignore,
            max_examples=max_examples,
            directory=directory,
            executor=executor,
            part=part,
        )
        if html:
            write_file(html, report.to_html())
        if outputs:
            _write_repaired(inputs.corpora, report, outputs)
    return report


def _write_repaired(corpora: list[Split], report: Report, outputs: Sequence[Path]) -> None:
    from nmt.core.paths import make_parent
    from nmt.data.check.checks import CHECKS
    from nmt.data.check.run import repair
    from nmt.data.pairs import write_pairs

    pairs = len(report.problems_N)
    with write_errors(outputs[0], "name another prefix"):
        make_parent(outputs[0])
        with progress(
            pairs, "repairing", " pairs", unit_scale=True, iterable=repair(corpora, report)
        ) as repaired:
            kept = write_pairs(outputs[0], outputs[1], repaired)
    log(f"wrote {kept:,} of {counted(pairs, 'pair')} to {outputs[0]} and {outputs[1]}")
    verbs = {"drop": "dropped", "rewrite": "rewrote"}
    fixes = {check.name: verbs.get(check.fix) for check in CHECKS}
    counts = report.fix_counts()
    for name, count in counts.items():
        log(f"{name}: {fixes[name]} {counted(count, 'pair')}")
    num_dropped = sum(count for name, count in counts.items() if fixes[name] == "dropped")
    if num_dropped > pairs - kept:
        log("pairs with several problems are counted more than once")
    for finding in report.findings:
        if finding.check.name == "unequal-line-counts":
            log("unequal-line-counts: dropped the extra lines of the longer side")


def _check_language(code: str) -> None:
    from nmt.text.language_identification import LANGUAGES, model_code

    if not code:
        log("the language of a file is unknown and not checked; set --src-lang and --tgt-lang")
    elif model_code(code) not in LANGUAGES:
        log(f"language '{code}' is not supported and not checked")


def _table(report: Report) -> str:
    names = ", ".join(name for name, _ in report.corpora)
    lines = wrap(f"{counted(len(report.problems_N), 'pair')} in {names}", indent="  ")
    if report.test_sets:
        test_sets = [f"{name} ({count:,})" for name, count in report.test_sets]
        lines += wrap(f"compared with {', '.join(test_sets)}", indent="  ")
    if not report.findings:
        lines.append("no problems found")
    for finding in report.findings:
        check = finding.check
        severity = check.severity.name.lower()
        title = f"{check.name}: {finding.count:,} ({severity}: {check.description})"
        lines += ["", *wrap(title, indent="  ")]
        for example in finding.examples:
            text = _example_line(example, with_corpus=len(report.corpora) > 1)
            lines += wrap(text, "  ", "    ")
    return "\n".join(lines)


def _example_line(example: Example, *, with_corpus: bool) -> str:
    location = f"line {example.line:,}"
    if with_corpus:
        location = f"{example.corpus}:{example.line}"
    pair = f"{_shorten(example.source)} | {_shorten(example.target)}"
    has_text = example.source or example.target
    parts = [location, pair if has_text else "", example.detail]
    return "  ".join(filter(None, parts))


def _shorten(text: str) -> str:
    """Escape unprintable characters and truncate the text."""
    characters = [c if c.isprintable() else c.encode("unicode_escape").decode() for c in text]
    text = "".join(characters)
    if len(text) <= MAX_CHARACTERS:
        return text
    return text[: MAX_CHARACTERS - 1] + "…"
