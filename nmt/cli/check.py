"""`nmt data check`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.cli.options import ErrorsOption, SetOption, check_errors
from nmt.cli.output import show, write_file
from nmt.console import log, progress, with_progress
from nmt.errors import DataError, NMTError, UsageError, suggest

if TYPE_CHECKING:
    from nmt.data.check import Report, Text
    from nmt.data.pairs import Pair

WIDTH = 60
"""Characters of a side in an example."""
EXIT = {"note": 0, "warning": 3, "error": 4}
"""Exit codes by the gravest fault; 1 and 2 say that the check itself failed."""


def check(
    src: Annotated[Path | None, typer.Argument(help="Source file of a text to check.", show_default=False)] = None,
    tgt: Annotated[Path | None, typer.Argument(help="Its target file.", show_default=False)] = None,
    config: Annotated[
        str | None,
        typer.Option("--config", "-c", help="Check what this config trains on, a YAML file or a shipped one's name."),
    ] = None,
    set_: SetOption = None,
    test: Annotated[
        list[str] | None,
        typer.Option(
            help="A test set whose sentences must not be in the text: a corpus, a name sacrebleu knows, or SRC:TGT.",
            show_default="the config's own",
        ),
    ] = None,
    src_lang: Annotated[str, typer.Option(help="Language of the source.", show_default="the file's suffix")] = "",
    tgt_lang: Annotated[str, typer.Option(help="Language of the target.", show_default="the file's suffix")] = "",
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="KIND", help="A kind of fault that does not count.")
    ] = None,
    fix: Annotated[
        Path | None,
        typer.Option(metavar="PREFIX", help="Write the text without its faults to PREFIX.en, PREFIX.de.",
                     show_default=False),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the report as a page.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    examples: Annotated[int, typer.Option(min=0, help="Examples of each kind.")] = 5,
    errors: ErrorsOption = "strict",
) -> None:  # fmt: skip
    """Look for faults in parallel text before a training pays for them.

    Unequal numbers of lines, misaligned lines, blank or untranslated lines, wrong languages, odd lengths, broken
    encodings, repetitions, and sentences of test sets. Exit code: 0 where there are no more than notes, 3 for
    warnings, 4 for errors.

    Examples:
      nmt data check mine.en mine.de --test wmt14
      nmt data check --config multi30k --html report.html
      nmt data check mine.en mine.de --fix clean --ignore length-ratio
    """
    check_errors(errors)
    from nmt.data.check import KINDS
    from nmt.data.check import check as run
    from nmt.paths import check_not_overwriting

    known = [kind.name for kind in KINDS]
    for name in ignore or []:
        if name not in known:
            raise UsageError(f"unknown kind of fault '{name}'", suggest(name, known))
    if (src is None) != (tgt is None) or (src is None) == (config is None):
        raise UsageError("give two files, or --config", "nmt data check mine.en mine.de")
    if set_ and config is None:
        raise UsageError("--set changes a config", "give --config too")
    tests: list[tuple[str, list[Pair]]] = []
    if src is not None and tgt is not None:
        languages, texts = _files(src, tgt, src_lang, tgt_lang, errors)
    else:
        languages, texts, tests = _of_config(str(config), set_ or [], with_tests=test is None)
    tests += [_test_set(name, languages, errors) for name in test or []]
    outputs = _outputs(fix, languages) if fix is not None else []
    inputs = [*(path for text in texts for path in text.files), *(path for name in test or [] for path in _parts(name))]
    check_not_overwriting([*outputs, *([html] if html else [])], inputs)
    for code in languages:
        _check_language(code)
    report = run(texts, tests, languages, ignore=ignore or [], examples=examples)
    if html:
        write_file(html, report.page())
    if outputs:
        _write_mended(texts, report, outputs)
    show(_json(report) if json_ else _table(report))
    raise typer.Exit(EXIT[report.severity.name.lower()] if report.severity is not None else 0)


def _outputs(prefix: Path, languages: tuple[str, str]) -> list[Path]:
    """Return the two files that mended text is written to."""
    if prefix.name in ("", ".."):
        raise UsageError(f"--fix {prefix} names no files", "--fix clean writes clean.en and clean.de")
    endings = [code or side for code, side in zip(languages, ("src", "tgt"), strict=True)]
    if endings[0] == endings[1]:
        endings = ["src", "tgt"]
    return [prefix.with_name(f"{prefix.name}.{ending}") for ending in endings]


def _write_mended(texts: list[Text], report: Report, outputs: list[Path]) -> None:
    from nmt.data.check import KINDS, mend
    from nmt.data.pairs import write_pairs

    pairs = len(report.faults_N)
    try:
        outputs[0].parent.mkdir(parents=True, exist_ok=True)
        with progress(pairs, "mending", " pairs", unit_scale=True) as bar:
            kept = write_pairs(outputs[0], outputs[1], with_progress(mend(texts, report), bar.update))
    except OSError as error:
        raise NMTError(f"cannot write {outputs[0]}: {error.strerror}", "name another prefix") from None
    log(f"wrote {kept:,} of {pairs:,} pairs to {outputs[0]} and {outputs[1]}")
    ways = {kind.name: "dropped" if kind.mend == "drop" else "mended" for kind in KINDS}
    for name, count in report.mending().items():
        log(f"{ways[name]} {count:,} for {name}")
    for finding in report.findings:
        if finding.kind.name == "unequal-lengths":
            log("left out the lines that have no other side")


def _files(src: Path, tgt: Path, src_lang: str, tgt_lang: str, errors: str) -> tuple[tuple[str, str], list[Text]]:
    from nmt.data.check import Text
    from nmt.data.pairs import count_lines, read_pairs
    from nmt.data.sources.files import language_of

    languages = (src_lang or language_of(src), tgt_lang or language_of(tgt))
    pairs = partial(read_pairs, src, tgt, errors=errors)
    return languages, [Text(str(src), pairs, count_lines(src), (src, tgt))]


def _of_config(
    name: str, overrides: list[str], *, with_tests: bool
) -> tuple[tuple[str, str], list[Text], list[tuple[str, list[Pair]]]]:
    from nmt.config import config_io
    from nmt.data.check import Text
    from nmt.data.sources import open_split

    data = config_io.load(config_io.find(name), overrides).data
    splits = [open_split(spec, "train", data.src, data.tgt) for spec in data.train]
    tests: list[tuple[str, list[Pair]]] = []
    missing: dict[str, list[str]] = {}
    for split, spec in (("valid", data.valid), ("test", data.test)) if with_tests else ():
        try:
            held = open_split(spec or data.train[0], split, data.src, data.tgt)
            tests.append((held.name, list(held.pairs())))
        except DataError as error:
            if spec:  # named, and so wanted
                raise
            missing.setdefault(error.message, []).append(split)
    for message, names in missing.items():
        log(f"no {' and no '.join(names)} text to compare with: {message}")
    texts = [Text(split.name, split.pairs, split.count() if split.count else None, split.files) for split in splits]
    return (data.src, data.tgt), texts, tests


def _parts(name: str) -> tuple[()] | tuple[Path, Path]:
    """Return the two files of SRC:TGT, or nothing for other names of a test set."""
    one, colon, other = name.partition(":")
    return (Path(one), Path(other)) if colon and "(" not in name else ()


def _test_set(name: str, languages: tuple[str, str], errors: str) -> tuple[str, list[Pair]]:
    from nmt.data.pairs import read_pairs

    if files := _parts(name):
        return str(files[0]), list(read_pairs(*files, errors=errors))
    from nmt.evaluate.test_sets import named_test_set

    found = named_test_set(name, *languages)
    return found.name, [pair for stream in found.references for pair in zip(found.sources, stream, strict=True)]


def _check_language(code: str) -> None:
    from nmt.data.check.features import knows

    if not code:
        log("a side's language is not known and not checked: --src-lang and --tgt-lang name them")
    elif not knows(code):
        log(f"language '{code}' is not known and not checked")


def _json(report: Report) -> str:
    import json

    return json.dumps(report.as_dict(), indent=2, ensure_ascii=False)


def _table(report: Report) -> str:
    pairs = len(report.faults_N)
    lines = [f"{pairs:,} pairs in {', '.join(name for name, _ in report.texts)}"]
    if report.tests:
        lines.append("compared with " + ", ".join(f"{name} ({count:,})" for name, count in report.tests))
    if not report.findings:
        return "\n".join([*lines, "nothing found"])
    for finding in report.findings:
        kind = finding.kind
        lines.append(f"\n{kind.name}: {finding.count:,} ({kind.severity.name.lower()}: {kind.meaning})")
        for example in finding.examples:
            where = f"{example.text}:{example.line}" if len(report.texts) > 1 else f"line {example.line:,}"
            text = f"{_shown(example.source)} | {_shown(example.target)}" if example.source or example.target else ""
            lines.append("  " + "  ".join(filter(None, (where, text, example.note))))
    return "\n".join(lines)


def _shown(text: str) -> str:
    """Return what of a text fits a terminal; what it cannot show stands as an escape."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return shown if len(shown) <= WIDTH else shown[: WIDTH - 1] + "…"
