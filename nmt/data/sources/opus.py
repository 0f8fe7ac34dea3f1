"""OPUS (opus.nlpl.eu): hundreds of corpora as zip archives of aligned plain text (Moses format)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from nmt.core.errors import ConfigError
from nmt.data.archives import SourceFile
from nmt.data.pairs import read_pairs
from nmt.data.sources import holdout
from nmt.data.sources.corpus import CorpusInfo, SplitReaders
from nmt.data.sources.downloadable import DownloadableCorpus, RemoteFile, group_by_prefix
from nmt.data.sources.hub import hub

_SERVER = "https://object.pouta.csc.fi"


def opus(
    *,
    corpus: str = "Tatoeba",
    version: str = "v2023-04-12",
    languages: tuple[str, str] = ("en", "de"),
) -> DownloadableCorpus:
    """Any OPUS corpus; validation and test sets are held out.

    Args:
        corpus: name of the corpus on OPUS (case-sensitive).
        version: release, for example 'v1'.
        languages: two language codes, in any order.
    """
    for value in (corpus, version, *languages):
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", value):
            raise ConfigError(
                f"corpus 'opus': invalid value '{value}'", "opus(corpus='Books', version='v1')"
            )
    pair, languages = "-".join(sorted(languages)), holdout.sides(*languages)
    info = CorpusInfo(
        None,
        None,
        "see the page of the corpus",
        "opus.nlpl.eu; choose a corpus with opus(corpus='NAME', version='VERSION')",
    )
    languages_option = "" if languages == ("en", "de") else f", languages={languages}"
    spec = f"\"opus(corpus='{corpus}', version='{version}'{languages_option})\""
    return _moses(f"opus-{corpus}-{version}-{pair}", corpus, version, info, languages, spec)


def europarl() -> DownloadableCorpus:
    """Debates of the European Parliament."""
    info = CorpusInfo(
        1_960_000, 190_000_000, "free (European Parliament)", "https://opus.nlpl.eu/Europarl"
    )
    return _moses("europarl", "Europarl", "v8", info)


def news_commentary() -> DownloadableCorpus:
    """Newspaper commentary (Project Syndicate)."""
    info = CorpusInfo(
        294_498, 30_000_000, "research (Project Syndicate)", "https://opus.nlpl.eu/News-Commentary"
    )
    return _moses("news-commentary", "News-Commentary", "v16", info)


def opus100() -> DownloadableCorpus:
    """A sample of one million pairs of OPUS, with validation and test sets of 2,000 pairs (Zhang et
    al. 2020)."""
    page = "https://huggingface.co/datasets/Helsinki-NLP/opus-100"
    return hub(
        "opus100",
        "Helsinki-NLP/opus-100",
        CorpusInfo(1_004_000, 116_680_890, "varies by source corpus", page),
    )


def _moses(
    name: str,
    corpus: str,
    version: str,
    info: CorpusInfo,
    languages: tuple[str, str] = ("en", "de"),
    spec: str = "",
) -> DownloadableCorpus:
    archive = f"{'-'.join(sorted(languages))}.txt.zip"
    url = f"{_SERVER}/OPUS-{corpus}/{version}/moses/{archive}"
    return DownloadableCorpus(
        name=name,
        spec=spec,
        info=info,
        list_files=lambda: [RemoteFile(archive, url)],
        find_splits=partial(_find_splits, languages=languages),
        expected_files=(
            f"{archive} of OPUS, or a directory with two aligned files (.{languages[0]},"
            f" .{languages[1]})"
        ),
        archive=archive,
        needs_holdout=True,
        languages=languages,
    )


def _find_splits(
    files: Sequence[SourceFile], errors: str, *, languages: tuple[str, str]
) -> SplitReaders:
    """Return the only prefix with files in both languages: CORPUS.de-en.de and CORPUS.de-en.en."""
    complete = [paths for paths in group_by_prefix(files, languages).values() if len(paths) == 2]
    if len(complete) != 1:
        return {}
    return {
        "train": partial(
            read_pairs, *(complete[0][language] for language in languages), errors=errors
        )
    }
