"""`nmt data`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.check import check
from nmt.cli.filter import filter_
from nmt.cli.options import (
    ConfigOption,
    DataShardOption,
    EncodingErrorsOption,
    ExecutorOption,
    SetOption,
)
from nmt.core.console import format_bytes, log
from nmt.core.errors import ConfigError, UsageError
from nmt.core.layout import format_table
from nmt.jobs.output import show, show_json

app = typer.Typer(no_args_is_help=True, help="Download, check and prepare parallel data.")


@app.command("list")
def list_(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, with sizes in bytes.")
    ] = False,
) -> None:
    """List the available corpora.

    Shows the number of sentence pairs, download size, license and source of each corpus, and
    whether it is installed. Numbers are approximate.

    Example: nmt data list
    """
    from nmt.data.sources import SOURCES, get_corpus

    corpora = {}
    for name in SOURCES:
        with suppress(ConfigError):  # one of a plug-in may require options
            corpora[name] = get_corpus(name)
    if as_json:
        rows = [
            {
                "name": name,
                "pairs": corpus.info.pairs,
                "download_bytes": corpus.info.download_bytes,
                "installed": corpus.is_installed,
                "license": corpus.info.license,
                "source": corpus.info.source,
            }
            for name, corpus in corpora.items()
        ]
        show_json(rows)
        return
    table = [("NAME", "PAIRS", "DOWNLOAD", "INSTALLED", "LICENSE", "SOURCE")]
    for name, corpus in corpora.items():
        info = corpus.info
        pairs = "-" if info.pairs is None else f"{info.pairs:,}"
        installed = "yes" if corpus.is_installed else "no"
        size = format_bytes(info.download_bytes) if info.download_bytes else "-"
        table.append((name, pairs, size, installed, info.license, info.source))
    show("\n".join(format_table(table, right=(1, 2), optional=(5,))))


@app.command()
def download(
    name: Annotated[
        str,
        typer.Argument(help="Corpus from `nmt data list`, optionally with options in parentheses."),
    ],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Use this local archive or directory instead of downloading."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Download again.")] = False,
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Download a corpus, verify it and store it as aligned text.

    Prints the directory of the corpus. Run the command again to resume an interrupted download.

    Examples:
      nmt data download tatoeba
      nmt data download multi30k --from ~/multi30k
      nmt data download "paracrawl(languages=('en', 'fr'))"
      nmt data download "opus(corpus='Books', version='v1')"
    """
    from nmt.data.sources import get_corpus
    from nmt.data.sources.downloadable import DownloadableCorpus

    corpus = get_corpus(name)
    if not isinstance(corpus, DownloadableCorpus):
        if source:
            raise UsageError(f"corpus '{corpus.name}' does not need a download", "leave out --from")
        log(f"corpus '{corpus.name}' does not need a download")
        return
    was_installed = corpus.is_installed
    directory = corpus.install(source, errors=encoding_errors, force=force)
    if was_installed and not force:
        log(f"{corpus.name} is already installed; use --force to install it again")
    typer.echo(directory)


@app.command()
def prepare(
    config: ConfigOption = "quickstart",
    set_: SetOption = None,
    shard: DataShardOption = None,
    executor: ExecutorOption = "processes",
) -> None:
    """Clean the corpora of a config, train the tokenizer and tokenize the data.

    Prints the directory of the prepared data. `nmt train` prepares data automatically and reuses
    what has been prepared with the same corpora and options.

    With --shard, several machines that share $NMT_DATA each clean and tokenize a part. Start the
    command on all of them twice: the tokenizer needs all cleaned text.

    Examples:
      nmt data prepare --config multi30k
      nmt data prepare --config multi30k --set tokenizer.vocab_size=4000
      nmt data prepare --config wmt14-big --shard 3/8
    """
    from nmt.core.config import config_io
    from nmt.core.parts import Part
    from nmt.core.processes import get_executor
    from nmt.data.prepare import prepare as prepare_data
    from nmt.data.shards import ALL_SHARDS, UnfinishedPartsError

    part = Part.parse(shard) if shard else ALL_SHARDS
    loaded = config_io.load_named(config, set_ or [])
    try:
        prepared = prepare_data(loaded, get_executor(executor), part)
    except UnfinishedPartsError:
        log(f"shard {shard} is done; run this command again when all shards are")
        return
    typer.echo(prepared.directory)


app.command("check")(check)
app.command("filter")(filter_)
