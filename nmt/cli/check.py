"""`nmt data check`."""

from __future__ import annotations

import json
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import EncodingErrorsOption, SetOption
from nmt.cli.output import show, write_file
from nmt.config.config_io import LANGUAGE_CODE
from nmt.console import counted, log, progress
from nmt.errors import DataError, NMTError, UsageError, check_choice, file_hint

if TYPE_CHECKING:
    from nmt.data.check import Report
    from nmt.data.pairs import Pair
    from nmt.data.sources import Split

MAX_CHARACTERS = 60
"""Maximum length of a sentence in an example."""
EXIT_CODES = {"note": 0, "warning": 3, "error": 4}
"""Exit code for the highest severity found. 1 and 2 mean that the check itself failed."""


def check(
    src: Annotated[
        Path | None, typer.Argument(help="Source file, or a .tsv or .tmx file with both languages.", show_default=False)
    ] = None,
    tgt: Annotated[Path | None, typer.Argument(help="Target file, aligned by line.", show_default=False)] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", help="Check the training data of this config: a YAML file or a built-in name."),
    ] = None,
    set_: SetOption = None,
    test: Annotated[
        list[str] | None,
        typer.Option(
            help="Test set to check for overlap: a corpus, a sacreBLEU test set, or SRC:TGT; may be repeated.",
            show_default="the config's",
        ),
    ] = None,
    src_lang: Annotated[str, typer.Option(help="Source language code.", show_default="the file extension")] = "",
    tgt_lang: Annotated[str, typer.Option(help="Target language code.", show_default="the file extension")] = "",
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="CHECK", help="Check to skip; may be repeated.")
    ] = None,
    fix: Annotated[
        Path | None,
        typer.Option(metavar="PREFIX", help="Repair the corpus and write it to PREFIX.en, PREFIX.de.",
                     show_default=False),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML report to this file.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    examples: Annotated[int, typer.Option(min=0, help="Maximum number of examples per check.")] = 5,
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:  # fmt: skip
    """Check parallel data for common problems before training.

    Checks for different numbers of lines, misaligned, empty and untranslated lines, wrong languages, unusual lengths,
    encoding problems, duplicates, and overlap with test sets. Exit code: 0 if nothing more severe than a note
    was found, 3 for warnings, 4 for errors.

    Examples:
      nmt data check mine.en mine.de --test wmt14
      nmt data check --config multi30k --html report.html
      nmt data check mine.en mine.de --fix clean --ignore length-ratio
      nmt data check memory.tmx --src-lang en --tgt-lang de
    """
    from nmt.data.check import CHECKS, run_checks
    from nmt.data.sources.files import pair_format
    from nmt.paths import check_not_overwriting

    names = [each.name for each in CHECKS]
    for name in ignore or []:
        check_choice("check", name, names)
    if (src is None) == (config is None) or (src is not None and tgt is None and not pair_format(src)):
        raise UsageError(
            "pass either two files, a .tsv or .tmx file, or --config", "for example nmt data check mine.en mine.de"
        )
    if set_ and config is None:
        raise UsageError("--set requires --config", "add --config CONFIG")
    if config is not None and (src_lang or tgt_lang):
        raise UsageError("--src-lang and --tgt-lang are for files", "set data.src and data.tgt in the config")
    if config is not None and encoding_errors != "strict" and not any(map(test_files, test or ())):
        raise UsageError("--encoding-errors is for files", "use errors='replace' in files(...) of the config")
    for code in filter(None, (src_lang, tgt_lang)):
        if not LANGUAGE_CODE.fullmatch(code):
            raise UsageError(f"'{code}' is not a language code", "for example de or pt-BR")
    tests: list[tuple[str, list[Pair]]] = []
    held_out_files: list[Path] = []
    if src is not None:
        languages, corpora = _file_corpora(src, tgt, src_lang, tgt_lang, encoding_errors)
    else:
        languages, corpora, tests, held_out_files = _config_corpora(str(config), set_ or [], with_tests=test is None)
    tests += chain.from_iterable(load_test_pairs(name, languages, encoding_errors) for name in test or [])
    outputs = _outputs(fix, languages) if fix is not None else []
    inputs = [
        *held_out_files,
        *(path for text in corpora for path in text.files),
        *(path for name in test or [] for path in test_files(name)),
    ]
    check_not_overwriting([*outputs, html], inputs)
    if html in outputs:
        raise UsageError(f"--html and --fix would both write {html}", "choose another name for --html")
    for code in languages:
        _check_language(code)
    report = run_checks(corpora, tests, languages, ignore=ignore or [], max_examples=examples)
    if html:
        write_file(html, report.to_html())
    if outputs:
        _write_repaired(corpora, report, outputs)
    show(json.dumps(report.to_dict(), indent=2, ensure_ascii=False) if json_ else _table(report))
    raise typer.Exit(EXIT_CODES[report.severity.name.lower()] if report.severity is not None else 0)


def _outputs(prefix: Path, languages: tuple[str, str]) -> list[Path]:
    """Return the two files of the repaired corpus."""
    if prefix.name in ("", ".."):
        raise UsageError(f"--fix {prefix} names no files", "for example, --fix clean writes clean.en and clean.de")
    endings = [code or side for code, side in zip(languages, ("src", "tgt"), strict=True)]
    if endings[0] == endings[1]:
        endings = ["src", "tgt"]
    return [prefix.with_name(f"{prefix.name}.{ending}") for ending in endings]


def _write_repaired(corpora: list[Split], report: Report, outputs: list[Path]) -> None:
    from nmt.data.check import CHECKS, repair
    from nmt.data.pairs import write_pairs

    pairs = len(report.problems_N)
    try:
        outputs[0].parent.mkdir(parents=True, exist_ok=True)
        with progress(pairs, "repairing", " pairs", unit_scale=True, iterable=repair(corpora, report)) as repaired:
            kept = write_pairs(outputs[0], outputs[1], repaired)
    except OSError as error:
        raise NMTError(
            f"cannot write {outputs[0]}: {error.strerror}", file_hint(error, "name another prefix")
        ) from None
    log(f"wrote {kept:,} of {counted(pairs, 'pair')} to {outputs[0]} and {outputs[1]}")
    fixes = {check.name: "dropped" if check.fix == "drop" else "rewrote" for check in CHECKS}
    counts = report.fix_counts()
    for name, count in counts.items():
        log(f"{name}: {fixes[name]} {counted(count, 'pair')}")
    if sum(count for name, count in counts.items() if fixes[name] == "dropped") > pairs - kept:
        log("pairs with several problems are counted more than once")
    for finding in report.findings:
        if finding.check.name == "unequal-line-counts":
            log("unequal-line-counts: dropped the extra lines of the longer side")


def _file_corpora(
    src: Path, tgt: Path | None, src_lang: str, tgt_lang: str, encoding_errors: str
) -> tuple[tuple[str, str], list[Split]]:
    from nmt.data.pairs import count_lines, open_text, read_pairs, read_tsv
    from nmt.data.sources import Split
    from nmt.data.sources.files import language_suffix, pair_format
    from nmt.data.tmx import read_tmx

    open_text(src).close()  # before test sets are downloaded
    if tgt is None and pair_format(src) == "tsv":
        read_table = partial(read_tsv, src, encoding_errors)
        return (src_lang, tgt_lang), [Split(str(src), "", read_table, partial(count_lines, src), (src,))]
    if tgt is None:
        if not src_lang or not tgt_lang:
            raise UsageError(f"the languages to read from {src} are unknown", "set --src-lang and --tgt-lang")
        read_memory = partial(read_tmx, src, src_lang, tgt_lang, encoding_errors)
        return (src_lang, tgt_lang), [Split(str(src), "", read_memory, files=(src,))]
    for path in (src, tgt):
        if pair_format(path) == "tmx":
            raise UsageError(f"{path} has both languages", f"pass one file: nmt data check {path}")
    languages = (src_lang or language_suffix(src), tgt_lang or language_suffix(tgt))
    pairs = partial(read_pairs, src, tgt, errors=encoding_errors)
    return languages, [Split(str(src), "", pairs, partial(count_lines, src), (src, tgt))]


def _config_corpora(
    name: str, overrides: list[str], *, with_tests: bool
) -> tuple[tuple[str, str], list[Split], list[tuple[str, list[Pair]]], list[Path]]:
    """Return the languages, the training corpora, the held-out sets with `with_tests`, and the files of these sets."""
    from nmt.config import config_io
    from nmt.data.sources import get_corpus, open_split
    from nmt.data.sources.files import Files

    data = config_io.load(config_io.find(name), overrides).data
    splits = [open_split(spec, "train", data.src, data.tgt) for spec in (*data.train, *data.replay)]
    tests: list[tuple[str, list[Pair]]] = []
    files: list[Path] = []
    missing: dict[str, list[str]] = {}
    for split, spec in (("valid", data.valid), ("test", data.test)):
        spec_or_default = spec or data.train[0]
        corpus = get_corpus(spec_or_default)
        if not with_tests and not corpus.is_installed:
            continue
        try:
            held_out = open_split(spec_or_default, split, data.src, data.tgt)
            files += held_out.files
            if with_tests:
                tests.append((held_out.name, list(held_out.pairs())))
        except DataError as error:
            is_specified = spec or (isinstance(corpus, Files) and split in corpus.splits)
            if is_specified and with_tests:
                raise
            missing.setdefault(error.message, []).append(split)
    for message, names in missing.items() if with_tests else ():
        log(f"not checking for overlap with the {' and '.join(names)} data: {message}")
    return (data.src, data.tgt), splits, tests, files


def test_files(name: str) -> tuple[()] | tuple[Path, Path]:
    """Return the two files of SRC:TGT, or an empty tuple for other test set names."""
    src, colon, tgt = name.partition(":")
    return (Path(src), Path(tgt)) if colon and "(" not in name else ()


def load_test_pairs(name: str, languages: tuple[str, str], encoding_errors: str) -> list[tuple[str, list[Pair]]]:
    """Return name and pairs, for each reference, of a test set that training data must not overlap with.

    `name` is that of a test set or SRC:TGT.
    """
    from nmt.data.pairs import read_pairs

    if files := test_files(name):
        return [(str(files[0]), list(read_pairs(*files, errors=encoding_errors)))]
    from nmt.evaluate.test_sets import named_test_set

    if not all(languages):
        raise UsageError(f"the languages to read from {name} are unknown", "set --src-lang and --tgt-lang")
    test = named_test_set(name, *languages)
    return [(test.name, list(zip(test.sources, reference, strict=True))) for reference in test.references]


def _check_language(code: str) -> None:
    from nmt.data.check.languages import LANGUAGES, model_code

    if not code:
        log("the language of a file is unknown and not checked; set --src-lang and --tgt-lang")
    elif model_code(code) not in LANGUAGES:
        log(f"language '{code}' is not supported and not checked")


def _table(report: Report) -> str:
    pairs = len(report.problems_N)
    lines = [f"{counted(pairs, 'pair')} in {', '.join(name for name, _ in report.corpora)}"]
    if report.test_sets:
        lines.append("compared with " + ", ".join(f"{name} ({count:,})" for name, count in report.test_sets))
    if not report.findings:
        return "\n".join([*lines, "no problems found"])
    for finding in report.findings:
        check = finding.check
        lines.append(f"\n{check.name}: {finding.count:,} ({check.severity.name.lower()}: {check.description})")
        for example in finding.examples:
            location = f"{example.corpus}:{example.line}" if len(report.corpora) > 1 else f"line {example.line:,}"
            pair = (
                f"{_shorten(example.source)} | {_shorten(example.target)}" if example.source or example.target else ""
            )
            lines.append("  " + "  ".join(filter(None, (location, pair, example.detail))))
    return "\n".join(lines)


def _shorten(text: str) -> str:
    """Escape unprintable characters and truncate the text."""
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return text if len(text) <= MAX_CHARACTERS else text[: MAX_CHARACTERS - 1] + "…"
