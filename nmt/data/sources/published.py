"""Large corpora of sentence pairs: archives of aligned plain text (Moses format) and tab-separated
files. Validation and test sets are held out.

A new corpus is an entry of `PUBLICATIONS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from nmt.core.errors import ConfigError
from nmt.core.registry import format_spec
from nmt.data.archives import SourceFile
from nmt.data.pairs import read_pairs, read_tsv
from nmt.data.sources import holdout
from nmt.data.sources.corpus import CorpusInfo, SplitReaders, swap_sides
from nmt.data.sources.downloadable import DownloadableCorpus, RemoteFile, find_parallel_files

OPUS_URL = "https://object.pouta.csc.fi/OPUS-{corpus}/{version}/moses/{pair}.txt.zip"
Languages = tuple[str, str]
ENGLISH_GERMAN = ("en", "de")
_NAME = re.compile(r"\w[\w.-]*")


@dataclass(frozen=True)
class Publication:
    """Where a corpus is published, and in which format."""

    url: str
    """Address, with {pair} for the languages, and {corpus} and {version} for OPUS."""
    info: CorpusInfo
    """Description of the English-German corpus."""
    corpus: str = ""
    """Name on OPUS."""
    version: str = ""
    """Default version on OPUS."""
    first_languages: tuple[str, ...] = ()
    """Languages that come first in the address; otherwise their order is alphabetical."""
    last_language: str = ""
    """Language that comes last in the address."""
    first_column: int = 0
    """Index of the column of the first language in a tab-separated file."""

    def order_languages(self, languages: Languages) -> Languages:
        """Return two languages in the order of the address."""

        def position(language: str) -> tuple[bool, bool, str]:
            is_last = language == self.last_language
            return is_last, language not in self.first_languages, language

        first, second = sorted(languages, key=position)
        return first, second


def _opus(
    corpus: str, version: str, pairs: int | None, download_bytes: int | None, license: str
) -> Publication:
    page = f"https://opus.nlpl.eu/{corpus}"
    info = CorpusInfo(pairs, download_bytes, license, page)
    return Publication(OPUS_URL, info, corpus, version)


PUBLICATIONS = {
    "europarl": _opus("Europarl", "v8", 1_960_000, 190_000_000, "free (European Parliament)"),
    "europarl-v10": Publication(
        "https://www.statmt.org/europarl/v10/training/europarl-v10.{pair}.tsv.gz",
        CorpusInfo(
            1_828_521,
            200_000_000,
            "free (European Parliament)",
            "https://www.statmt.org/europarl",
        ),
        last_language="en",
    ),
    "news-commentary": _opus(
        "News-Commentary", "v16", 294_498, 30_000_000, "research (Project Syndicate)"
    ),
    "news-commentary-v18": Publication(
        "https://data.statmt.org/news-commentary/v18.1/training/news-commentary-v18.{pair}.tsv.gz",
        CorpusInfo(
            440_000,
            50_000_000,
            "research (Project Syndicate)",
            "https://data.statmt.org/news-commentary",
        ),
    ),
    "wikimatrix": Publication(
        "https://dl.fbaipublicfiles.com/laser/WikiMatrix/v1/WikiMatrix.{pair}.tsv.gz",
        CorpusInfo(
            6_227_188,
            650_000_000,
            "CC BY-SA (Wikipedia)",
            "https://github.com/facebookresearch/LASER",
        ),
        first_column=1,  # after the score
    ),
    "opensubtitles": _opus(
        "OpenSubtitles", "v2018", 22_512_639, 600_000_000, "free, with a link to opensubtitles.org"
    ),
    "ccmatrix": _opus("CCMatrix", "v1", 247_470_736, 21_000_000_000, "Common Crawl terms of use"),
    "nllb": _opus("NLLB", "v1", 247_470_736, 21_180_847_796, "ODC-By, Common Crawl terms of use"),
    "paracrawl": Publication(
        "https://s3.amazonaws.com/web-language-models/paracrawl/release9/{pair}/{pair}.txt.gz",
        CorpusInfo(278_316_107, 21_000_000_000, "CC0", "https://paracrawl.eu"),
        first_languages=("en", "es"),
    ),
}
"""By name in spec strings. Numbers are approximate."""


def opus(
    *,
    corpus: str = "Tatoeba",
    version: str = "v2023-04-12",
    languages: Languages = ENGLISH_GERMAN,
) -> DownloadableCorpus:
    """Any OPUS corpus; validation and test sets are held out.

    Args:
        corpus: name of the corpus on OPUS (case-sensitive).
        version: release, for example 'v1'.
        languages: two language codes, in any order.
    """
    info = CorpusInfo(
        None,
        None,
        "see the page of the corpus",
        "opus.nlpl.eu; choose a corpus with opus(corpus='NAME', version='VERSION')",
    )
    check_names("opus", "opus(corpus='Books', version='v1')", corpus, version, *languages)
    options: dict[str, object] = {"corpus": corpus, "version": version}
    if set(languages) != set(ENGLISH_GERMAN):
        options["languages"] = holdout.sides(*languages)
    publication = Publication(OPUS_URL, info, corpus, version)
    published = _create("opus", publication, version, languages)
    name = f"opus-{corpus}-{version}-{'-'.join(sorted(languages))}"
    return replace(published, name=name, spec=format_spec("opus", options), languages_option="")


def _source(name: str) -> Callable[..., DownloadableCorpus]:
    publication = PUBLICATIONS[name]

    def create(*, languages: Languages = ENGLISH_GERMAN) -> DownloadableCorpus:
        check_names(name, f"{name}(languages=('en', 'fr'))", *languages)
        return _create(name, publication, publication.version, languages)

    def create_version(
        *, languages: Languages = ENGLISH_GERMAN, version: str = publication.version
    ) -> DownloadableCorpus:
        check_names(name, f"{name}(languages=('en', 'fr'))", version, *languages)
        return _create(name, publication, version, languages)

    return create_version if publication.version else create


SOURCES = {name: _source(name) for name in PUBLICATIONS} | {"opus": opus}


def check_names(corpus: str, example: str, *values: str) -> None:
    """Raise a ConfigError if an option cannot be a part of a file name."""
    for value in values:
        if not _NAME.fullmatch(value):
            raise ConfigError(f"corpus '{corpus}': invalid value '{value}'", example)


def _create(
    name: str, publication: Publication, version: str, languages: Languages
) -> DownloadableCorpus:
    ordered = publication.order_languages(languages)
    pair = "-".join(ordered)
    url = publication.url.format(corpus=publication.corpus, version=version, pair=pair)
    archive = url.rpartition("/")[2]
    hint = f"it may not have the language pair {pair}: see {publication.info.source}"
    full_name = name
    options: dict[str, object] = {}
    if version != publication.version:
        full_name += f"-{version}"
        options["version"] = version
    if set(languages) != set(ENGLISH_GERMAN):
        full_name += f"-{pair}"
        options["languages"] = holdout.sides(*languages)
    return DownloadableCorpus(
        name=full_name,
        spec=format_spec(name, options) if options else "",
        info=publication.info,
        list_files=lambda: [RemoteFile(archive, url, missing_hint=hint)],
        find_splits=partial(
            _find_splits,
            archive=archive,
            languages=ordered,
            first_column=publication.first_column,
        ),
        expected_files=(
            f"{archive}, or a directory with two aligned files (.{ordered[0]}, .{ordered[1]})"
        ),
        archive=archive,
        needs_holdout=True,
        languages=holdout.sides(*languages),
        languages_option=name,
    )


def _find_splits(
    files: Sequence[SourceFile],
    errors: str,
    *,
    archive: str,
    languages: Languages,
    first_column: int,
) -> SplitReaders:
    """Return the reader of the tab-separated file, or of the two files of an archive."""
    tables = [file for file in files if file.name == archive]
    parallel = find_parallel_files(files, languages)
    if tables:
        columns = (first_column, first_column + 1)
        read = partial(read_tsv, tables[0], errors, columns=columns, skip_short_lines=True)
    elif parallel:
        read = partial(read_pairs, *parallel, errors=errors)
    else:
        return {}
    is_swapped = holdout.sides(*languages) != languages
    return {"train": swap_sides(read) if is_swapped else read}
