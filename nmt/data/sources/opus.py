"""OPUS (opus.nlpl.eu): hundreds of corpora as zips of aligned plain text, the Moses format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from nmt.data.pairs import read_pairs
from nmt.data.sources.corpus import CorpusInfo, Texts
from nmt.data.sources.hub import hub
from nmt.data.sources.published import DownloadableCorpus, Remote, by_prefix
from nmt.errors import ConfigError

_SERVER = "https://object.pouta.csc.fi"


def opus(
    *,
    corpus: str = "Tatoeba",
    version: str = "v2023-04-12",
    languages: tuple[str, str] = ("en", "de"),
) -> DownloadableCorpus:
    """Any corpus of OPUS by the name and version of its page; validation and test sets are held out of it.

    Args:
        corpus: the name as OPUS writes it, capitals included.
        version: the release, with its v.
        languages: the two codes; sets are held out by sentences of the first.
    """
    for word in (corpus, version, *languages):
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", word):
            raise ConfigError(f"corpus 'opus': cannot read '{word}'", "opus(corpus='Books', version='v1')")
    pair = "-".join(sorted(languages))
    about = CorpusInfo(
        None, None, "see the corpus's page", f"opus.nlpl.eu, any: opus(corpus='{corpus}', version='{version}')"
    )
    other = "" if languages == ("en", "de") else f", languages={languages}"
    spec = f"\"opus(corpus='{corpus}', version='{version}'{other})\""
    return _moses(f"opus-{corpus}-{version}-{pair}", corpus, version, about, languages, spec)


def europarl() -> DownloadableCorpus:
    """Debates of the European Parliament."""
    about = CorpusInfo(1_960_000, 190_000_000, "free (European Parliament)", "https://opus.nlpl.eu/Europarl")
    return _moses("europarl", "Europarl", "v8", about)


def news_commentary() -> DownloadableCorpus:
    """Essays from newspapers (Project Syndicate)."""
    about = CorpusInfo(294_498, 30_000_000, "research (Project Syndicate)", "https://opus.nlpl.eu/News-Commentary")
    return _moses("news-commentary", "News-Commentary", "v16", about)


def opus100() -> DownloadableCorpus:
    """A million pairs drawn from all of OPUS, with validation and test sets of 2,000 (Zhang et al. 2020)."""
    page = "https://huggingface.co/datasets/Helsinki-NLP/opus-100"
    return hub("opus100", "Helsinki-NLP/opus-100", CorpusInfo(1_004_000, 116_680_890, "each part its own", page))


def _moses(
    name: str, corpus: str, version: str, about: CorpusInfo, languages: tuple[str, str] = ("en", "de"), spec: str = ""
) -> DownloadableCorpus:
    archive = f"{'-'.join(sorted(languages))}.txt.zip"
    url = f"{_SERVER}/OPUS-{corpus}/{version}/moses/{archive}"
    return DownloadableCorpus(
        name=name,
        spec=spec,
        about=about,
        remotes=lambda: [Remote(archive, url)],
        read=partial(_read, languages=languages),
        expects=f"OPUS's {archive}, or a folder with one text in two files (.{languages[0]}, .{languages[1]})",
        archive=archive,
        hold_out=True,
        languages=languages,
    )


def _read(files: Sequence[Path], errors: str, *, languages: tuple[str, str]) -> Texts:
    """Take the one text that has both languages: CORPUS.de-en.de and CORPUS.de-en.en."""
    whole = [sides for sides in by_prefix(files, languages).values() if len(sides) == 2]
    if len(whole) != 1:
        return {}
    return {"train": partial(read_pairs, *(whole[0][language] for language in languages), errors=errors)}
