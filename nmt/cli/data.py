"""`nmt data`: which corpora there are, and getting them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.check import check
from nmt.cli.options import ConfigOption, ErrorsOption, SetOption, check_errors
from nmt.console import log
from nmt.errors import UsageError

app = typer.Typer(no_args_is_help=True, help="Get and prepare parallel text.")


@app.command("list")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with sizes in bytes.")] = False,
) -> None:
    """Show the corpora that can be had: pairs, download size, license, source, and which are ready to use.

    Figures are approximate. Example: nmt data list
    """
    from nmt.data.sources import SOURCES, get_corpus

    corpora = {name: get_corpus(name) for name in SOURCES}
    if as_json:
        rows = [
            {
                "name": name,
                "pairs": corpus.info.pairs,
                "bytes": corpus.info.size,
                "ready": corpus.is_installed,
                "license": corpus.info.license,
                "source": corpus.info.source,
            }
            for name, corpus in corpora.items()
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = [("NAME", "PAIRS", "DOWNLOAD", "READY", "LICENSE", "SOURCE")]
    for name, corpus in corpora.items():
        info = corpus.info
        pairs = "-" if info.pairs is None else f"{info.pairs:,}"
        table.append((name, pairs, _size(info.size), "yes" if corpus.is_installed else "no", info.license, info.source))
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    for row in table:
        cells = [
            cell.rjust(w) if i in (1, 2) else cell.ljust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        typer.echo("  ".join(cells).rstrip())


@app.command()
def download(
    name: Annotated[str, typer.Argument(help="A corpus from `nmt data list`, with options if it has any.")],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Take it from this archive or folder instead of the network."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Get it anew even if it is there.")] = False,
    errors: ErrorsOption = "strict",
) -> None:
    """Download a corpus, verify it and keep it as plain aligned text; prints the folder.

    A broken download goes on where it stopped when the command is run again.

    Examples:
      nmt data download tatoeba
      nmt data download multi30k --from ~/multi30k
      nmt data download "opus(corpus='Books', version='v1')"
    """
    from nmt.data.sources import get_corpus
    from nmt.data.sources.downloadable import DownloadableCorpus

    check_errors(errors)
    corpus = get_corpus(name)
    if not isinstance(corpus, DownloadableCorpus):
        if source:
            raise UsageError(f"corpus '{corpus.name}' is not downloaded: it takes no --from", "use it by name")
        log(f"corpus '{corpus.name}' needs no download: use it by name")
        return
    if corpus.is_installed and not force:
        log(f"{corpus.name} is there already; --force gets it anew")
    typer.echo(corpus.install(source, errors=errors, force=force))


@app.command()
def prepare(
    config: ConfigOption = "quickstart",
    set_: SetOption = None,
) -> None:
    """Clean a config's corpora, train the tokenizer and write token ids; prints the folder.

    `nmt train` does this by itself when needed; it is done once for the same corpora and options.

    Examples:
      nmt data prepare --config multi30k
      nmt data prepare --config multi30k --set tokenizer.vocab_size=4000
    """
    from nmt.config import config_io
    from nmt.data.prepare import prepare as run

    typer.echo(run(config_io.load(config_io.find(config), set_ or [])).folder)


app.command("check")(check)


def _size(count: int | None) -> str:
    if not count:
        return "-"
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count} {unit}"
        count = round(count / 1000)
    return f"{count} GB"
