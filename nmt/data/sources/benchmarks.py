"""Published validation and test sets without training text."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from nmt.core.errors import ConfigError, DataError, first_line, suggest
from nmt.core.registry import format_spec
from nmt.data.archives import SourceFile
from nmt.data.download import mirror_url
from nmt.data.pairs import Pair, read_blocks, read_lines, read_pairs
from nmt.data.sources.corpus import CorpusInfo, PairReader, SplitReaders
from nmt.data.sources.downloadable import DownloadableCorpus, RemoteFile
from nmt.data.sources.hub import endpoint
from nmt.data.sources.published import ENGLISH_GERMAN, check_names
from nmt.text.language_codes import THREE_LETTER_CODES

NTREX_URL = "https://raw.githubusercontent.com/MicrosoftTranslator/NTREX/main/NTREX-128"
NTREX_CHECKSUMS = {
    "newstest2019-src.eng.txt": "389e8f5796c66db4f646dfad33e1ec622d74767af5ef112b42a1f2cd814df3cc",
    "newstest2019-ref.deu.txt": "259d7406a07b63e6b5b9c4a22fb76b85e2578a3fa0a4e541a50f4f7348e5c1b2",
}
FLORES = "openlanguagedata/flores_plus"
FLORES_SPLITS = {"valid": "dev", "test": "devtest"}
WMT24PP = "google/wmt24pp"


def ntrex(
    *, languages: tuple[str, str] = ENGLISH_GERMAN, codes: tuple[str, str] | None = None
) -> DownloadableCorpus:
    """NTREX-128, the source of newstest2019 in 128 languages (Federmann et al. 2022).

    Args:
        languages: two language codes.
        codes: the codes of the languages in file names; by default their three-letter codes.
    """
    codes = codes or _three_letter_codes("ntrex", languages)
    check_names("ntrex", "ntrex(languages=('en', 'fr'))", *languages, *codes)
    names = [
        "newstest2019-src.eng.txt" if code == "eng" else f"newstest2019-ref.{code}.txt"
        for code in codes
    ]
    page = "https://github.com/MicrosoftTranslator/NTREX"
    hint = f"it may not have {codes[0]} and {codes[1]}: see {page}"
    remote = [
        RemoteFile(name, f"{NTREX_URL}/{name}", NTREX_CHECKSUMS.get(name), missing_hint=hint)
        for name in names
    ]
    return DownloadableCorpus(
        **_naming("ntrex", languages, codes, ("eng", "deu")),
        info=CorpusInfo(1_997, 558_175, "CC BY-SA 4.0", page),
        list_files=lambda: remote,
        find_splits=partial(_find_ntrex, names=names),
        expected_files=f"a directory with {names[0]} and {names[1]}",
        required_split="test",
    )


def _find_ntrex(files: Sequence[SourceFile], errors: str, *, names: Sequence[str]) -> SplitReaders:
    by_name = {file.name: file for file in files}
    src, tgt = [by_name.get(name) for name in names]
    if src is None or tgt is None:
        return {}
    return {"test": partial(read_pairs, src, tgt, errors=errors)}


def flores(
    *, languages: tuple[str, str] = ENGLISH_GERMAN, codes: tuple[str, str] | None = None
) -> DownloadableCorpus:
    """FLORES+: 997 sentences for validation and 1,012 for tests in 200 languages (NLLB Team 2022).

    Args:
        languages: two language codes.
        codes: the codes of the languages with their scripts; the default script is Latn.
    """
    if codes is None:
        src, tgt = _three_letter_codes("flores", languages)
        codes = (f"{src}_Latn", f"{tgt}_Latn")
    check_names("flores", "flores(languages=('en', 'fr'))", *languages, *codes)
    page = f"https://huggingface.co/datasets/{FLORES}"
    return DownloadableCorpus(
        **_naming("flores", languages, codes, ("eng_Latn", "deu_Latn")),
        info=CorpusInfo(2_009, 1_500_000, "CC BY-SA 4.0, terms of use", page),
        list_files=partial(_list_flores, codes),
        find_splits=partial(_find_flores, codes=codes),
        expected_files=f"a directory with dev-{codes[0]}.jsonl, devtest-{codes[0]}.jsonl and so on",
        required_split="test",
    )


def _list_flores(codes: tuple[str, str]) -> list[RemoteFile]:
    hint = (
        f"accept the terms of https://huggingface.co/datasets/{FLORES}, then run hf auth login or"
        f" set HF_TOKEN; it may also not have {codes[0]} and {codes[1]}"
    )
    files = []
    for directory in FLORES_SPLITS.values():
        for code in codes:
            url = f"{endpoint()}/datasets/{FLORES}/resolve/main/{directory}/{code}.jsonl"
            name = f"{directory}-{code}.jsonl"
            files.append(RemoteFile(name, url, headers=_authorization(url), missing_hint=hint))
    return files


def _authorization(url: str) -> dict[str, str]:
    """Return the header with the user's access token for the Hub, which no mirror receives."""
    from huggingface_hub import get_token

    token = get_token() if mirror_url(url) == url else None
    return {"Authorization": f"Bearer {token}"} if token else {}


def _find_flores(
    files: Sequence[SourceFile], errors: str, *, codes: tuple[str, str]
) -> SplitReaders:
    by_name = {file.name: file for file in files}
    readers: dict[str, PairReader] = {}
    for split, directory in FLORES_SPLITS.items():
        src, tgt = [by_name.get(f"{directory}-{code}.jsonl") for code in codes]
        if src is not None and tgt is not None:
            readers[split] = partial(_read_flores, src, tgt, errors)
    return readers


def _read_flores(src: SourceFile, tgt: SourceFile, errors: str) -> Iterator[Pair]:
    """Yield the sentences with the same id."""
    targets = {row["id"]: row["text"] for row in _read_json_lines(tgt, ("id", "text"), errors)}
    for row in _read_json_lines(src, ("id", "text"), errors):
        if row["id"] in targets:
            yield row["text"], targets[row["id"]]


def wmt24pp(*, target: str = "de_DE") -> DownloadableCorpus:
    """WMT24++: the English test set of WMT24 in 55 languages (Deutsch et al. 2025), without the
    sources that are marked as bad.

    Args:
        target: language and region of the translations.
    """
    check_names("wmt24pp", "wmt24pp(target='fr_FR')", target)
    name = f"en-{target}.jsonl"
    page = f"https://huggingface.co/datasets/{WMT24PP}"
    url = f"{endpoint()}/datasets/{WMT24PP}/resolve/main/{name}"
    is_default = target == "de_DE"
    return DownloadableCorpus(
        name="wmt24pp" if is_default else f"wmt24pp-{target}",
        spec="" if is_default else f"\"wmt24pp(target='{target}')\"",
        info=CorpusInfo(960, 1_200_000, "Apache-2.0", page),
        list_files=lambda: [
            RemoteFile(name, url, missing_hint=f"it may not have the language {target}: see {page}")
        ],
        find_splits=partial(_find_wmt24pp, name=name),
        expected_files=name,
        languages=("en", target.partition("_")[0]),
        required_split="test",
    )


def _find_wmt24pp(files: Sequence[SourceFile], errors: str, *, name: str) -> SplitReaders:
    for file in files:
        if file.name == name:
            return {"test": partial(_read_wmt24pp, file, errors)}
    return {}


def _read_wmt24pp(file: SourceFile, errors: str) -> Iterator[Pair]:
    for row in _read_json_lines(file, ("source", "target"), errors):
        if not row.get("is_bad_source"):
            yield row["source"], row["target"]


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
            _ = [row[key] for key in keys]
        except (ValueError, KeyError, TypeError):
            raise DataError(
                f"{file}, line {number}: not a JSON object with {' and '.join(keys)}",
                "download the file again",
            ) from None
        yield row


def sacrebleu(
    *, test: str = "wmt24", valid: str = "wmt23", languages: tuple[str, str] = ENGLISH_GERMAN
) -> DownloadableCorpus:
    """Test sets of WMT that sacreBLEU knows.

    Args:
        test: the test set, as in `sacrebleu --list`.
        valid: the validation set.
        languages: source and target; most test sets depend on the direction.
    """
    check_names("sacrebleu", "sacrebleu(test='wmt24')", *languages)
    pair = "-".join(languages)
    options = {"test": test, "valid": valid, "languages": languages}
    name = "-".join(["sacrebleu", test, valid, pair]).replace("/", "_")
    return DownloadableCorpus(
        name=name,
        spec=f'"{format_spec("sacrebleu", options)}"',
        info=CorpusInfo(None, None, "research (statmt.org)", "https://github.com/mjpost/sacrebleu"),
        list_files=partial(_list_sacrebleu, (test, valid), pair),
        find_splits=partial(_find_sacrebleu, names={"test": test, "valid": valid}, pair=pair),
        expected_files=f"the archives of {test} and {valid}",
        languages=languages,
        required_split="test",
        languages_option="sacrebleu",
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
        for file in files:
            path = raw / (file.member or file.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            if str(path.relative_to(raw)) in needed:
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


def _naming(
    corpus: str,
    languages: tuple[str, str],
    codes: Sequence[str],
    default_codes: tuple[str, str],
) -> dict[str, Any]:
    """Return the name, spec string and languages of a corpus with the options languages and
    codes."""
    is_default = tuple(codes) == default_codes
    options = {"languages": languages, "codes": tuple(codes)}
    return {
        "name": corpus if is_default else f"{corpus}-{'-'.join(codes)}",
        "spec": "" if is_default else f'"{format_spec(corpus, options)}"',
        "languages": languages,
        "languages_option": corpus,
    }


def _three_letter_codes(corpus: str, languages: tuple[str, str]) -> tuple[str, str]:
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
