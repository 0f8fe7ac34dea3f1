"""Any corpus in the index of the package mtdata (Gowda et al. 2021): its index names the files and
their format, nmt downloads and reads them."""

from __future__ import annotations

import fnmatch
import itertools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from nmt.core.console import log
from nmt.core.errors import ConfigError, DataError, suggest
from nmt.core.packages import require_package
from nmt.data import download
from nmt.data.archives import SourceFile
from nmt.data.pairs import Pair, read_pairs, read_tsv
from nmt.data.sources import holdout
from nmt.data.sources.corpus import CorpusInfo, PairReader, SplitReaders, swap_sides
from nmt.data.sources.downloadable import DownloadableCorpus, RemoteFile
from nmt.data.sources.published import ENGLISH_GERMAN, Languages, check_names
from nmt.data.tmx import read_tmx
from nmt.text.language_codes import THREE_LETTER_CODES

NUM_PARTS = 5
"""Parts of an id: GROUP-NAME-VERSION-LANGUAGE-LANGUAGE."""
_CODES = {long: short for short, long in THREE_LETTER_CODES.items()}


def mtdata(
    *,
    id: str = "Statmt-news_commentary-18.1-deu-eng",
    recipe: str = "",
    languages: Languages = ENGLISH_GERMAN,
) -> DownloadableCorpus:
    """A corpus of mtdata, or all training corpora of one of its recipes.

    Args:
        id: id of a corpus, as in `mtdata list --id`.
        recipe: id of a recipe, as in `mtdata list-recipe`.
        languages: the languages of the recipe.
    """
    if recipe:
        languages = holdout.sides(*languages)
        name, spec = recipe, f"mtdata(recipe='{recipe}', languages={languages})"
    else:
        languages = holdout.sides(*_languages_of(id))
        name, spec = id, f"mtdata(id='{id}')"
    check_names("mtdata", "mtdata(id='Statmt-news_commentary-18.1-deu-eng')", name, *languages)
    entries = partial(_find_recipe, recipe) if recipe else partial(_find_entries, [id])
    return DownloadableCorpus(
        name=f"mtdata-{name}",
        spec=spec,
        info=CorpusInfo(
            None,
            None,
            "see the publisher",
            "github.com/thammegowda/mtdata; choose a corpus with mtdata(id='ID')",
        ),
        list_files=lambda: [file for entry in entries() for file in entry.remote_files()],
        find_splits=partial(_find_splits, entries=entries, languages=languages),
        expected_files="the files that mtdata names",
        needs_holdout=True,
        languages=languages,
        packages=(download.CLIENT, "mtdata"),
    )


def _languages_of(id: str) -> Languages:
    parts = id.split("-")
    if len(parts) != NUM_PARTS:
        raise ConfigError(
            f"corpus 'mtdata': '{id}' is not the id of a parallel corpus",
            "ids are GROUP-NAME-VERSION-LANGUAGE-LANGUAGE, such as"
            " Statmt-news_commentary-18.1-deu-eng",
        )
    first, second = parts[-2:]
    return _CODES.get(first, first), _CODES.get(second, second)


@dataclass(frozen=True)
class _Entry:
    """An entry of the index."""

    entry: Any
    """An `mtdata.entry.Entry`."""

    @property
    def languages(self) -> Languages:
        """The languages in the order of columns and files."""
        return _languages_of(str(self.entry.did))

    @property
    def format(self) -> str:
        """`tsv`, `tmx`, or `txt` for two files.

        Raises:
            DataError: nmt does not read the format.
        """
        name = self.entry.in_ext or self.entry.ext
        num_files = len(self.entry.in_paths or self._urls)
        for known in ("tsv", "tmx", "txt"):
            if known in name and (known != "txt" or num_files == 2):
                return known
        did = self.entry.did
        raise DataError(
            f"{did} has format {name}, which nmt does not read",
            f"run mtdata get --langs {did.lang_str} --train {did} --out DIRECTORY, and use"
            " files(train=...)",
        )

    @property
    def _urls(self) -> Sequence[str]:
        url = self.entry.url
        return [url] if isinstance(url, str) else url

    def remote_files(self) -> list[RemoteFile]:
        """Return the files to download."""
        _ = self.format  # before a long download
        hint = "the address in the index of mtdata may be out of date"
        return [
            RemoteFile(f"{self.entry.did}.{number}.{self.entry.ext}", url, missing_hint=hint)
            for number, url in enumerate(self._urls)
        ]

    def reader(self, files: Sequence[SourceFile], errors: str) -> PairReader | None:
        """Return a reader of the entry's files among others; None if one is missing."""
        names = [file.name for file in self.remote_files()]
        own = [file for name in names for file in files if file.path.name == name]
        if self.entry.in_paths:
            own = [file for path in self.entry.in_paths for file in _match(own, path)]
        if len(own) < len(self.entry.in_paths or names):
            return None
        if self.format == "txt":
            return partial(read_pairs, own[0], own[1], errors=errors)
        readers: list[PairReader] = []
        for file in own:
            if self.format == "tmx":
                readers.append(partial(read_tmx, file, *self.languages, errors))
            else:
                src, tgt = self.entry.cols or (0, 1)
                read = partial(read_tsv, file, errors, columns=(src, tgt), skip_short_lines=True)
                readers.append(read)
        return partial(_chain, readers)


def _match(files: Sequence[SourceFile], pattern: str) -> list[SourceFile]:
    return [file for file in files if fnmatch.fnmatch(file.member, pattern)]


def _chain(readers: Sequence[PairReader]) -> Iterator[Pair]:
    return itertools.chain.from_iterable(read() for read in readers)


def _find_splits(
    files: Sequence[SourceFile],
    errors: str,
    *,
    entries: Callable[[], list[_Entry]],
    languages: Languages,
) -> SplitReaders:
    readers = []
    for entry in entries():
        read = entry.reader(files, errors)
        if read is None:
            return {}
        if set(entry.languages) != set(languages):
            pair = "-".join(holdout.sides(*entry.languages))
            raise DataError(
                f"{entry.entry.did} is {pair}, not {'-'.join(languages)}",
                "set languages=(..., ...)",
            )
        readers.append(read if entry.languages == languages else swap_sides(read))
    return {"train": partial(_chain, readers)}


@cache
def _load_index() -> Any:
    """Import the index, which takes some seconds; mtdata builds it on first use."""
    package = require_package("mtdata", "mtdata")
    if not package.cached_index_file.exists():
        log("mtdata builds the index of its corpora, once; this takes about 20 seconds")
    logging.getLogger().setLevel(logging.WARNING)  # mtdata has set it to INFO
    try:
        from mtdata.index import INDEX
    except Exception as error:  # a damaged file
        raise DataError(
            f"cannot load the index of mtdata: {error}", f"delete {package.cached_index_file}"
        ) from None
    return INDEX


def _find_entries(ids: Sequence[str]) -> list[_Entry]:
    return [_find_entry(id) for id in ids]


def _find_entry(id: str) -> _Entry:
    index = _load_index()
    wanted = sorted(id.split("-")[-2:])
    similar = []
    for did, entry in index.entries.items():
        if str(did) == id:
            return _Entry(entry)
        if sorted(map(str, did.langs)) == wanted:
            similar.append(str(did))
    raise DataError(f"mtdata has no corpus '{id}'", suggest(id, similar))


def _find_recipe(id: str) -> list[_Entry]:
    _load_index()
    from mtdata.recipe import RECIPES

    if id not in RECIPES:
        raise DataError(f"mtdata has no recipe '{id}'", suggest(id, RECIPES))
    return _find_entries([str(did) for did in RECIPES[id].train])
