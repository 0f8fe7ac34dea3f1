"""Published validation and test sets without training text."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from nmt.core.errors import ConfigError, DataError, first_line, suggest
from nmt.core.registry import format_spec
from nmt.data.archives import SourceFile
from nmt.data.download import mirror_url
from nmt.data.pairs import Pair, read_blocks, read_lines, read_pairs
from nmt.data.sources.corpus import CorpusInfo, SplitReaders
from nmt.data.sources.downloadable import DownloadableCorpus, RemoteFile, find_named
from nmt.data.sources.hub import endpoint
from nmt.data.sources.published import ENGLISH_GERMAN, Languages, check_names
from nmt.text.language_codes import THREE_LETTER_CODES

NTREX_URL = "https://raw.githubusercontent.com/MicrosoftTranslator/NTREX/main/NTREX-128"
NTREX_CHECKSUMS = {
    "newstest2019-src.eng.txt": "389e8f5796c66db4f646dfad33e1ec622d74767af5ef112b42a1f2cd814df3cc",
    "newstest2019-ref.deu.txt": "259d7406a07b63e6b5b9c4a22fb76b85e2578a3fa0a4e541a50f4f7348e5c1b2",
}
FLORES = "openlanguagedata/flores_plus"
FLORES_SPLITS = {"valid": "dev", "test": "devtest"}
WMT24PP = "google/wmt24pp"
Codes = tuple[str, str] | None


def ntrex(*, languages: Languages = ENGLISH_GERMAN, codes: Codes = None) -> DownloadableCorpus:
    """NTREX-128, the source of newstest2019 in 128 languages (Federmann et al. 2022).

    Args:
        languages: two language codes.
        codes: the codes of the languages in file names; by default their three-letter codes.
    """
    codes = codes or _three_letter_codes("ntrex", languages)
    page = "https://github.com/MicrosoftTranslator/NTREX"
    files = []
    names = []
    for code in codes:
        name = "newstest2019-src.eng.txt" if code == "eng" else f"newstest2019-ref.{code}.txt"
        checksum = NTREX_CHECKSUMS.get(name)
        hint = f"it may not have {codes[0]} and {codes[1]}: see {page}"
        files.append(RemoteFile(name, f"{NTREX_URL}/{name}", checksum, missing_hint=hint))
        names.append(name)
    corpus = _test_set("ntrex", CorpusInfo(1_997, 558_175, "CC BY-SA 4.0", page), languages)
    is_default = codes == ("eng", "deu")
    return replace(
        corpus if is_default else _with_codes(corpus, codes),
        list_files=lambda: files,
        find_splits=partial(find_named, names={"test": names}, read=read_pairs),
        expected_files=f"a directory with {names[0]} and {names[1]}",
    )


def flores(*, languages: Languages = ENGLISH_GERMAN, codes: Codes = None) -> DownloadableCorpus:
    """FLORES+: 997 sentences for validation and 1,012 for tests in 200 languages (NLLB Team 2022).

    Args:
        languages: two language codes.
        codes: the codes of the languages with their scripts; the default script is Latn.
    """
    if codes is None:
        src, tgt = _three_letter_codes("flores", languages)
        codes = (f"{src}_Latn", f"{tgt}_Latn")
    page = f"https://huggingface.co/datasets/{FLORES}"
    info = CorpusInfo(2_009, 1_500_000, "CC BY-SA 4.0, terms of use", page)
    corpus = _test_set("flores", info, languages)
    is_default = codes == ("eng_Latn", "deu_Latn")
    names = {
        split: [f"{directory}-{code}.jsonl" for code in codes]
        for split, directory in FLORES_SPLITS.items()
    }
    return replace(
        corpus if is_default else _with_codes(corpus, codes),
        list_files=partial(_list_flores, codes, names),
        find_splits=partial(find_named, names=names, read=_read_flores),
        expected_files=f"a directory with {', '.join(names['valid'] + names['test'])}",
    )


def _list_flores(codes: Sequence[str], names: Mapping[str, Sequence[str]]) -> list[RemoteFile]:
    hint = (
        f"accept the terms of https://huggingface.co/datasets/{FLORES}, then run hf auth login or"
        f" set HF_TOKEN; it may also not have {codes[0]} and {codes[1]}"
    )
    files = []
    for split, directory in FLORES_SPLITS.items():
        for code, name in zip(codes, names[split], strict=True):
            url = f"{endpoint()}/datasets/{FLORES}/resolve/main/{directory}/{code}.jsonl"
            headers = _authorization(url)
            files.append(RemoteFile(name, url, headers=headers, missing_hint=hint))
    return files


def _authorization(url: str) -> dict[str, str]:
    """Return the header with the user's access token for the Hub, which no mirror receives."""
    from huggingface_hub import get_token

    token = get_token() if mirror_url(url) == url else None
    return {"Authorization": f"Bearer {token}"} if token else {}


def wmt24pp(*, target: str = "de_DE") -> DownloadableCorpus:
    """WMT24++: the English test set of WMT24 in 55 languages (Deutsch et al. 2025), without the
    sources that are marked as bad.

    Args:
        target: language and region of the translations.
    """
    check_names("wmt24pp", "wmt24pp(target='fr_FR')", target)
    page = f"https://huggingface.co/datasets/{WMT24PP}"
    name = f"en-{target}.jsonl"
    url = f"{endpoint()}/datasets/{WMT24PP}/resolve/main/{name}"
    hint = f"it may not have the language {target}: see {page}"
    languages = ("en", target.partition("_")[0])
    corpus = _test_set("wmt24pp", CorpusInfo(960, 1_200_000, "Apache-2.0", page), languages)
    if target != "de_DE":
        corpus = replace(corpus, name=f"wmt24pp-{target}", spec=f"wmt24pp(target='{target}')")
    return replace(
        corpus,
        list_files=lambda: [RemoteFile(name, url, missing_hint=hint)],
        find_splits=partial(find_named, names={"test": [name]}, read=_read_wmt24pp),
        expected_files=name,
        languages_option="",
    )


def _test_set(name: str, info: CorpusInfo, languages: Languages) -> DownloadableCorpus:
    """Return a corpus without its files."""
    check_names(name, f"{name}(languages=('en', 'fr'))", *languages)
    return DownloadableCorpus(
        name=name,
        info=info,
        list_files=lambda: [],
        find_splits=lambda files, errors: {},
        expected_files="",
        languages=languages,
        required_split="test",
        languages_option=name,
    )


def _with_codes(corpus: DownloadableCorpus, codes: tuple[str, str]) -> DownloadableCorpus:
    """Return a corpus with the name for other languages."""
    check_names(corpus.name, f"{corpus.name}(languages=('en', 'fr'))", *codes)
    spec = format_spec(corpus.name, {"languages": corpus.languages, "codes": codes})
    return replace(corpus, name=f"{corpus.name}-{'-'.join(codes)}", spec=spec)


def _read_flores(*files: SourceFile, errors: str) -> Iterator[Pair]:
    """Yield the sentences with the same id."""
    sources, targets = [_read_json_lines(file, ("id", "text"), errors) for file in files]
    translations = {row["id"]: str(row["text"]) for row in targets}
    for row in sources:
        if row["id"] in translations:
            yield str(row["text"]), translations[row["id"]]


def _read_wmt24pp(file: SourceFile, *, errors: str) -> Iterator[Pair]:
    for row in _read_json_lines(file, ("source", "target"), errors):
        if not row.get("is_bad_source"):
            yield str(row["source"]), str(row["target"])


def _read_json_lines(
    file: SourceFile, keys: Sequence[str], errors: str
) -> Iterator[dict[str, Any]]:
    """Yield the objects in the lines of a file.

    Raises:
        DataError: a line is not an object with the keys.
    """
    for number, line in enumerate(read_lines(file, errors), 1):
        try:
            row = json.loads(line)
            if not all(isinstance(row[key], str | int) for key in keys):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            raise DataError(
                f"{file}, line {number}: not a JSON object with {' and '.join(keys)}",
                "download the file again",
            ) from None
        yield row


def sacrebleu(
    *, test: str = "wmt24", valid: str = "wmt23", languages: Languages = ENGLISH_GERMAN
) -> DownloadableCorpus:
    """Test sets of WMT that sacreBLEU knows.

    Args:
        test: the test set, as in `sacrebleu --list`.
        valid: the validation set.
        languages: source and target; most test sets depend on the direction.
    """
    info = CorpusInfo(None, None, "research (statmt.org)", "https://github.com/mjpost/sacrebleu")
    corpus = _test_set("sacrebleu", info, languages)
    pair = "-".join(languages)
    options = {"test": test, "valid": valid, "languages": languages}
    return replace(
        corpus,
        name=f"sacrebleu-{test}-{valid}-{pair}".replace("/", "_"),
        spec=format_spec("sacrebleu", options),
        list_files=partial(_list_sacrebleu, (test, valid), pair),
        find_splits=partial(_find_sacrebleu, names={"test": test, "valid": valid}, pair=pair),
        expected_files=f"the archives of {test} and {valid}",
    )


def _sacrebleu_dataset(name: str, pair: str) -> Any:
    from sacrebleu.dataset import DATASETS

    if name not in DATASETS:
        raise ConfigError(f"sacreBLEU has no test set '{name}'", suggest(name, DATASETS))
    if pair not in DATASETS[name].langpairs:
        pairs = ", ".join(DATASETS[name].langpairs)
        raise ConfigError(f"test set '{name}' has no language pair {pair}", f"it has {pairs}")
    return DATASETS[name]


def _list_sacrebleu(names: Sequence[str], pair: str) -> list[RemoteFile]:
    files = []
    for name in names:
        dataset = _sacrebleu_dataset(name, pair)
        for url, md5 in zip(dataset.data, dataset.md5, strict=True):
            files.append(RemoteFile(_archive_name(name, url), url, md5=md5))
    return files


def _archive_name(name: str, url: str) -> str:
    """Return the file name that sacreBLEU gives to an archive of a test set."""
    return f"{name.replace('/', '_')}.{url.rpartition('/')[2]}"


def _find_sacrebleu(
    files: Sequence[SourceFile], errors: str, *, names: dict[str, str], pair: str
) -> SplitReaders:
    readers = {}
    for split, name in names.items():
        dataset = _sacrebleu_dataset(name, pair)
        archives = {_archive_name(name, url) for url in dataset.data}
        own_files = [file for file in files if file.path.name in archives]
        if own_files:
            readers[split] = partial(_read_sacrebleu, own_files, name, pair)
    return readers


def _read_sacrebleu(files: Sequence[SourceFile], name: str, pair: str) -> Iterator[Pair]:
    """Yield the sources with their first references, as sacreBLEU reads them."""
    dataset = copy.copy(_sacrebleu_dataset(name, pair))
    paths = dataset.langpairs[pair]
    needed = {paths["path"]} if isinstance(paths, dict) else set(paths)
    with tempfile.TemporaryDirectory() as work:
        raw = Path(work) / "raw"
        raw.mkdir()
        for file in files:
            member = file.member or file.name
            if member in needed:
                path = raw / member
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"".join(read_blocks(file)))
            archive = raw / file.path.name
            if not archive.exists():
                archive.write_bytes(b"sacreBLEU does not download an archive that exists")
        dataset._outdir = work
        dataset._rawdir = str(raw)
        try:
            sources = Path(dataset.get_source_file(pair))
            references = Path(dataset.get_reference_files(pair)[0])
        except Exception as error:  # of sacreBLEU and lxml, for files in another format
            raise DataError(
                f"cannot read the test set {name}: {first_line(error)}", "download it again"
            ) from None
        yield from read_pairs(sources, references)


def _three_letter_codes(corpus: str, languages: Languages) -> tuple[str, str]:
    for language in languages:
        if language not in THREE_LETTER_CODES:
            raise ConfigError(
                f"corpus '{corpus}': the code of '{language}' is unknown",
                f"set codes=(..., ...), as in the file names of {corpus}",
            )
    return THREE_LETTER_CODES[languages[0]], THREE_LETTER_CODES[languages[1]]


SOURCES: dict[str, Callable[..., DownloadableCorpus]] = {
    "flores": flores,
    "ntrex": ntrex,
    "wmt24pp": wmt24pp,
    "sacrebleu": sacrebleu,
}
