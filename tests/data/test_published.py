"""Large corpora and published test sets, end to end on a loopback server."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import pytest
from commandline import CommandLine
from loopback import Loopback, loopback

from nmt.core.errors import ConfigError, DataError, DownloadError, NMTError, UsageError
from nmt.data import download
from nmt.data.archives import SourceFile
from nmt.data.pairs import Pair, estimate_lines, read_lines, read_pairs, write_pairs
from nmt.data.sources import get_corpus, mtdata, open_split

TEXT = [(f"The boat number {n} is red.", f"Das Boot Nummer {n} ist rot.") for n in range(200)]
SWAPPED = [(tgt, src) for src, tgt in TEXT]
OPUS = "/object.pouta.csc.fi/OPUS-"


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NMT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    for name in ("HF_ENDPOINT", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(download, "RETRY_DELAY", 0.01)
    return tmp_path / "data"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with loopback() as state:
        monkeypatch.setenv("NMT_MIRROR", state.url)
        yield state


def lines(pairs: list[Pair], side: int) -> str:
    return "".join(f"{pair[side]}\n" for pair in pairs)


def moses(pairs: list[Pair], prefix: str, languages: tuple[str, str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("README", "about")
        for side, language in enumerate(languages):
            file.writestr(f"{prefix}.{'-'.join(languages)}.{language}", lines(pairs, side))
        file.writestr(f"{prefix}.{'-'.join(languages)}.scores", "1.1\n" * len(pairs))
    return buffer.getvalue()


def table(rows: list[tuple[str, ...]]) -> bytes:
    return gzip.compress("".join("\t".join(row) + "\n" for row in rows).encode())


def tar(members: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as file:
        for name, text in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            file.addfile(member, io.BytesIO(text.encode()))
    return buffer.getvalue()


def read(spec: str, split: str, src: str = "en", tgt: str = "de") -> list[Pair]:
    return list(open_split(spec, split, src, tgt).pairs())


PARACRAWL = "/s3.amazonaws.com/web-language-models/paracrawl/release9"
EUROPARL = "/www.statmt.org/europarl/v10/training/europarl-v10"
NEWS = "/data.statmt.org/news-commentary/v18.1/training/news-commentary-v18"
WIKIMATRIX = "/dl.fbaipublicfiles.com/laser/WikiMatrix/v1/WikiMatrix"
SPEAKER = ("ep-1", "1", "7", "A. Person", "")


def opus_file(corpus: str, pairs: list[Pair] = SWAPPED, pair: str = "de-en") -> bytes:
    first, second = pair.split("-")
    return moses(pairs, corpus, (first, second))


@pytest.mark.parametrize(
    ("spec", "path", "content", "languages"),
    [
        ("paracrawl", f"{PARACRAWL}/en-de/en-de.txt.gz", table(TEXT), ("en", "de")),
        (
            "paracrawl(languages=('ca', 'es'))",
            f"{PARACRAWL}/es-ca/es-ca.txt.gz",
            table(SWAPPED),
            ("ca", "es"),
        ),
        ("ccmatrix", f"{OPUS}CCMatrix/v1/moses/de-en.txt.zip", opus_file("CCMatrix"), ("en", "de")),
        ("nllb", f"{OPUS}NLLB/v1/moses/de-en.txt.zip", opus_file("NLLB"), ("en", "de")),
        (
            "opensubtitles",
            f"{OPUS}OpenSubtitles/v2018/moses/de-en.txt.zip",
            opus_file("OpenSubtitles"),
            ("en", "de"),
        ),
        (
            "opensubtitles(version='v2024', languages=('fr', 'en'))",
            f"{OPUS}OpenSubtitles/v2024/moses/en-fr.txt.zip",
            opus_file("OpenSubtitles", TEXT, "en-fr"),
            ("en", "fr"),
        ),
        (
            "wikimatrix",
            f"{WIKIMATRIX}.de-en.tsv.gz",
            table([("1.05", *pair) for pair in SWAPPED]),
            ("en", "de"),
        ),
        (
            "europarl-v10",
            f"{EUROPARL}.de-en.tsv.gz",
            table([(*pair, *SPEAKER) for pair in SWAPPED]),
            ("en", "de"),
        ),
        ("news-commentary-v18", f"{NEWS}.de-en.tsv.gz", table(SWAPPED), ("en", "de")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",  # archives have a time
)
def test_large_corpora(
    spec: str,
    path: str,
    content: bytes,
    languages: tuple[str, str],
    server: Loopback,
    data: Path,
) -> None:
    server.serve(path, content, faults=[("drop", len(content) // 2)])
    parts = {split: read(spec, split, *languages) for split in ("train", "valid", "test")}
    assert sorted(chain(*parts.values())) == sorted(TEXT)
    assert [len(part) for part in parts.values()] == [180, 10, 10]
    assert read(spec, "test", *languages[::-1]) == [(tgt, src) for src, tgt in parts["test"]]
    assert server.ranges() == [None, f"bytes={len(content) // 2}-"]
    record = json.loads((get_corpus(spec).directory / "corpus.json").read_text())
    assert list(record["archives"].values()) == [hashlib.sha256(content).hexdigest()]
    assert not list((data / "downloads").iterdir())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (table([("1.05", "only one")]), "2 columns instead of 3"),
        (table([("1.05", *pair) for pair in SWAPPED])[:-30], "corrupted or truncated"),
        (b"<html>", "not a gzip file"),
    ],
    ids=["columns", "truncated", "page"],
)
def test_damaged_files_are_one_error_and_deleted(
    content: bytes, message: str, server: Loopback, data: Path
) -> None:
    server.serve(f"{WIKIMATRIX}.de-en.tsv.gz", content)
    with pytest.raises(DataError, match=message):
        get_corpus("wikimatrix").install()
    assert [path for path in data.rglob("*") if path.is_file()] == []


def test_short_lines_of_a_table_are_blank(
    server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    server.serve(f"{PARACRAWL}/en-de/en-de.txt.gz", table([*TEXT, ("one",), ("a", "b", "c")]))
    assert ("", "") in read("paracrawl", "train")
    assert "2 lines with more or fewer than 2 columns (201, 202)" in capsys.readouterr().err


def test_download_is_kept_if_a_process_is_killed(
    server: Loopback, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise NMTError("a worker process ended unexpectedly")

    server.serve(f"{PARACRAWL}/en-de/en-de.txt.gz", table(TEXT))
    with monkeypatch.context() as patch:
        patch.setattr("nmt.data.sources.holdout._hash_candidates", fail)
        with pytest.raises(NMTError, match="worker process"):
            get_corpus("paracrawl").install()
    assert [path.name for path in (data / "downloads" / "paracrawl").iterdir()] == ["en-de.txt.gz"]
    get_corpus("paracrawl").install()
    assert len(server.requests) == 1


def test_bomb_is_not_stored(server: Loopback, data: Path) -> None:
    server.serve(f"{NEWS}.de-en.tsv.gz", gzip.compress((b"a" * 1000 + b"\tb\n") * 20_000))
    with pytest.raises(DownloadError, match=r"is unsafe: .* expand to"):
        get_corpus("news-commentary-v18").install()
    assert [path for path in data.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("spec", "hint"),
    [
        ("paracrawl(languages=('en', 'xx'))", "may not have the language pair en-xx"),
        ("ccmatrix(languages=('en', 'xx'))", "may not have the language pair en-xx"),
        ("ntrex(languages=('en', 'zh'))", "may not have eng and zho"),
        ("wmt24pp(target='xx_XX')", "may not have the language xx_XX"),
    ],
)
def test_unknown_language_pair(spec: str, hint: str, server: Loopback) -> None:
    with pytest.raises(DownloadError, match="404") as caught:
        get_corpus(spec).install()
    assert hint in caught.value.hint


def test_errors_on_the_command_line(server: Loopback, tmp_path: Path) -> None:
    nmt = CommandLine(tmp_path, {"NMT_MIRROR": server.url})
    failures = [
        ("paracrawl(languages=('en', '../x'))", 2, "invalid value '../x'"),
        ("paracrawl(languages=('en', 'xx'))", 1, "404"),
        ("sacrebleu(test='wmt34')", 2, "sacreBLEU has no test set 'wmt34'"),
        ("sacrebleu(test='wmt24', languages=('de', 'en'))", 2, "no language pair de-en"),
        ("ntrex(languages=('en', 'xx'))", 2, "the code of 'xx' is unknown"),
    ]
    for spec, code, message in failures:
        nmt("data", "download", spec).assert_fails(code, message, "")


def test_another_language_pair_is_an_option() -> None:
    with pytest.raises(DataError, match="corpus 'ccmatrix' is en-de, not en-fr") as caught:
        open_split("ccmatrix", "train", "en", "fr")
    assert caught.value.hint == "ccmatrix(languages=('en', 'fr'))"


# --- storage ---


def test_stored_text_is_compressed_and_reproducible(tmp_path: Path) -> None:
    pairs = TEXT * 500
    files = [tmp_path / name for name in ("a.en.zst", "a.de.zst", "b.en.zst", "b.de.zst")]
    assert write_pairs(files[0], files[1], pairs) == len(pairs)
    write_pairs(files[2], files[3], iter(pairs))
    assert files[0].read_bytes() == files[2].read_bytes()
    assert list(read_pairs(files[0], files[1])) == pairs
    assert files[0].stat().st_size < len(lines(pairs, 0)) / 5
    files[0].write_bytes(files[0].read_bytes()[:-5])
    with pytest.raises(DataError, match="corrupted or truncated"):
        list(read_lines(files[0]))


def disk_usage(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", ["paracrawl", "ccmatrix"])
def test_installation_needs_twice_the_download(
    name: str, server: Loopback, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [hashlib.sha256(str(n).encode()).hexdigest()[:6] for n in range(3000)]
    pairs = [
        (" ".join(words[n * k % 3000] for k in range(1, 19)), f"{words[n % 3000]} {n} {n * n} zwei")
        for n in range(4000)
    ]
    if name == "paracrawl":
        content = table(pairs)
        server.serve(f"{PARACRAWL}/en-de/en-de.txt.gz", content)
    else:
        content = opus_file("CCMatrix", [(tgt, src) for src, tgt in pairs])
        server.serve(f"{OPUS}CCMatrix/v1/moses/de-en.txt.zip", content)
    usages = []
    open_text: Callable[[SourceFile], object] = SourceFile.open_text

    def open_and_measure(file: SourceFile) -> object:
        usages.append(disk_usage(data))
        return open_text(file)

    monkeypatch.setattr(SourceFile, "open_text", open_and_measure)
    delete = shutil.rmtree

    def measure_and_delete(path: Path, **options: bool) -> None:
        usages.append(disk_usage(data))
        delete(path, **options)

    monkeypatch.setattr("nmt.data.sources.downloadable.shutil.rmtree", measure_and_delete)
    get_corpus(name).install()
    assert max(usages) < 2.1 * len(content)


def test_plain_text_of_earlier_versions_is_read(data: Path, tmp_path: Path) -> None:
    directory = data / "corpora" / "multi30k"
    directory.mkdir(parents=True)
    names = ("train.en", "train.de")
    for side, name in enumerate(names):
        (directory / name).write_text(lines(TEXT, side))
    entries = {name: {"sha256": name, "lines": 7, "mtime_ns": 0} for name in names}
    record = directory / "corpus.json"
    record.write_text(json.dumps({"files": entries}))
    assert read("multi30k", "train") == TEXT
    split = open_split("multi30k", "train", "en", "de")
    assert split.count is not None
    assert split.count() == len(TEXT)  # the files have changed


def test_recorded_numbers_are_not_read_again(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.serve(f"{PARACRAWL}/en-de/en-de.txt.gz", table(TEXT))
    directory = get_corpus("paracrawl").install()
    specs = ["paracrawl", f"files(train='{directory / 'train'}', hold_out=False)"]
    first = [open_split(spec, "train", "en", "de").checksum for spec in specs]
    monkeypatch.setattr("nmt.data.sources.corpus.sha256", None)
    monkeypatch.setattr("nmt.data.sources.corpus.estimate_lines", None)
    splits = [open_split(spec, "train", "en", "de") for spec in specs]
    assert [split.checksum for split in splits] == first
    assert [split.count() for split in splits if split.count] == [180, 180]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz"])
def test_lines_of_a_large_file_are_estimated(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"line {n} of many\n" for n in range(200_000)).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert estimate_lines(path) == 200_000
    monkeypatch.setattr("nmt.data.pairs.SAMPLE_BYTES", 1 << 20)
    assert estimate_lines(path) == pytest.approx(200_000, rel=0.15)


# --- files of users in archives ---


def test_files_in_archives(tmp_path: Path) -> None:
    (tmp_path / "de-en.txt.zip").write_bytes(opus_file("Some"))
    (tmp_path / "b.tgz").write_bytes(tar({"x/a.en": lines(TEXT, 0), "x/a.de": lines(TEXT, 1)}))
    (tmp_path / "c.zip").write_bytes(b"")
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as file:
        file.writestr("about.txt", "about")
        file.writestr("memory.tsv", "".join(f"{src}\t{tgt}\n" for src, tgt in TEXT))
    for name in ("de-en.txt.zip", "b.tgz", "c.zip"):
        spec = f"files(test='{tmp_path / name}')"
        assert read(spec, "test") == TEXT
        assert open_split(spec, "test", "en", "de").files == (tmp_path / name,)
    with pytest.raises(DataError, match="no two files in en and fr") as caught:
        read(f"files(test='{tmp_path / 'b.tgz'}')", "test", "en", "fr")
    assert caught.value.hint == "it has x/a.de, x/a.en"
    with pytest.raises(DataError, match="no such file"):
        read(f"files(test='{tmp_path / 'none.zip'}')", "test")


# --- test sets ---


def test_ntrex(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    base = "/raw.githubusercontent.com/MicrosoftTranslator/NTREX/main/NTREX-128"
    server.serve(f"{base}/newstest2019-src.eng.txt", lines(TEXT, 0).encode())
    server.serve(f"{base}/newstest2019-ref.deu.txt", lines(TEXT, 1).encode())
    server.serve(f"{base}/newstest2019-ref.por-BR.txt", lines(TEXT, 1).encode())
    with pytest.raises(DownloadError, match="the SHA-256 is"):
        get_corpus("ntrex").install()
    monkeypatch.setattr("nmt.data.sources.benchmarks.NTREX_CHECKSUMS", {})
    assert read("ntrex", "test") == TEXT
    spec = "ntrex(languages=('pt', 'en'), codes=('por-BR', 'eng'))"
    assert read(spec, "test", "pt", "en") == SWAPPED
    with pytest.raises(DataError, match="has no train split"):
        read("ntrex", "train")


def json_lines(rows: list[dict[str, object]]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def serve_flores(server: Loopback, host: str = "/huggingface.co") -> None:
    for directory, pairs in {"dev": TEXT[:90], "devtest": TEXT[90:]}.items():
        for side, code in enumerate(("eng_Latn", "deu_Latn")):
            rows: list[dict[str, object]] = [
                {"id": n, "iso_639_3": code[:3], "text": pair[side]} for n, pair in enumerate(pairs)
            ]
            path = f"{host}/datasets/openlanguagedata/flores_plus/resolve/main/{directory}"
            server.serve(f"{path}/{code}.jsonl", json_lines(rows if side else rows[::-1]))


def test_flores(server: Loopback) -> None:
    serve_flores(server)
    assert read("flores", "valid") == TEXT[:90][::-1]
    assert read("flores", "test", "de", "en") == SWAPPED[90:][::-1]


def test_flores_needs_a_token(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_flores(server, host="")
    monkeypatch.delenv("NMT_MIRROR")
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    for resource in server.resources.values():
        resource.faults.append(401)
    with pytest.raises(DownloadError, match="401") as caught:
        get_corpus("flores").install()
    assert "accept the terms of https://huggingface.co/datasets/openlanguagedata/flores_plus" in (
        caught.value.hint
    )
    for resource in server.resources.values():
        resource.faults.clear()
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    get_corpus("flores").install()
    assert "authorization" not in server.requests[0][1]
    assert server.requests[-1][1]["authorization"] == "Bearer hf_secret"


def test_a_mirror_receives_no_token(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_flores(server)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    get_corpus("flores").install()
    assert all("authorization" not in headers for _, headers in server.requests)


def test_wmt24pp(server: Loopback) -> None:
    rows: list[dict[str, object]] = [
        {"lp": "en-de_DE", "domain": "news", "is_bad_source": False, "source": src, "target": tgt}
        for src, tgt in TEXT
    ]
    rows[3]["is_bad_source"] = True
    path = "/huggingface.co/datasets/google/wmt24pp/resolve/main"
    server.serve(f"{path}/en-de_DE.jsonl", json_lines(rows))
    assert read("wmt24pp", "test") == TEXT[:3] + TEXT[4:]
    server.serve(f"{path}/en-fr_FR.jsonl", json_lines([{"source": "no target", "target": None}]))
    with pytest.raises(DataError, match="line 1: not a JSON object with source and target"):
        get_corpus("wmt24pp(target='fr_FR')").install()


def xml_test_set(pairs: list[Pair]) -> str:
    sources = "".join(f'<seg id="{n}">{src}</seg>' for n, (src, _) in enumerate(pairs, 1))
    targets = "".join(f'<seg id="{n}">{tgt}</seg>' for n, (_, tgt) in enumerate(pairs, 1))
    return (
        '<?xml version="1.0" encoding="utf-8"?><dataset id="wmttest"><doc id="a" origlang="en"'
        f' domain="news"><src lang="en"><p>{sources}</p></src><ref lang="de" translator="refA">'
        f"<p>{targets}</p></ref></doc></dataset>"
    )


def sgm_test_set(pairs: list[Pair], side: int) -> str:
    segments = "".join(f'<seg id="{n}">{pair[side]}</seg>\n' for n, pair in enumerate(pairs, 1))
    return f'<srcset setid="x">\n<doc docid="a" genre="news">\n{segments}</doc>\n</srcset>\n'


def test_sacrebleu(server: Loopback, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sacrebleu.dataset import DATASETS

    contents = {
        "wmt24": tar({"xml/wmttest2024.en-de.all.xml": xml_test_set(TEXT[:20]), "x.md": "about"}),
        "wmt20": tar(
            {
                "sgm/newstest2020-ende-src.en.sgm": sgm_test_set(TEXT[20:30], 0),
                "sgm/newstest2020-ende-ref.de.sgm": sgm_test_set(TEXT[20:30], 1),
            }
        ),
    }
    for name, content in contents.items():
        url = DATASETS[name].data[0]
        server.serve("/" + url.partition("://")[2], content, faults=[("drop", 100)])
    spec = "sacrebleu(test='wmt24', valid='wmt20')"
    with pytest.raises(DownloadError, match="the MD5 is"):
        get_corpus(spec).install()
    for name, content in contents.items():
        monkeypatch.setattr(DATASETS[name], "md5", [hashlib.md5(content).hexdigest()])
    assert read(spec, "test") == TEXT[:20]
    assert read(spec, "valid", "de", "en") == SWAPPED[20:30]
    assert not list((data / "downloads").iterdir())


def test_sacrebleu_archive_without_the_test_set(
    server: Loopback, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sacrebleu.dataset import DATASETS

    content = tar({"other.txt": "text"})
    for name in ("wmt23", "wmt24"):
        monkeypatch.setattr(DATASETS[name], "md5", [hashlib.md5(content).hexdigest()])
        server.serve("/" + DATASETS[name].data[0].partition("://")[2], content)
    with pytest.raises(NMTError, match="cannot read the test set wmt2"):
        get_corpus("sacrebleu").install()


@pytest.mark.parametrize(
    "spec", ["ntrex(languages=('en', 'xx'))", "flores(languages=('en', 'xx'))", "opus(version='/')"]
)
def test_invalid_options(spec: str) -> None:
    with pytest.raises(ConfigError):
        get_corpus(spec)


# --- mtdata ---


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that adds an entry to the index, which is otherwise empty: that of the
    package takes long to build."""
    pytest.importorskip("mtdata")
    from mtdata.entry import Entry

    entries: dict[object, Entry] = {}
    monkeypatch.setattr(
        "nmt.data.sources.mtdata._load_index", lambda: SimpleNamespace(entries=entries)
    )

    def add(did: str, url: object, **options: object) -> None:
        entry = Entry(did=did, url=url, **options)
        entries[entry.did] = entry

    return add


NEWS_ID = "Statmt-news_commentary-18.1-deu-eng"


@pytest.mark.parametrize(
    ("id", "options", "contents", "languages"),
    [
        (NEWS_ID, {"ext": "tsv.gz"}, [table(SWAPPED)], ("en", "de")),
        (
            "Facebook-wikimatrix-1-deu-eng",
            {"ext": "tsv.gz", "cols": (1, 2)},
            [table([("1.05", *pair) for pair in SWAPPED])],
            ("en", "de"),
        ),
        (
            "OPUS-books-v1-eng-fra",
            {"ext": "zip", "in_paths": ["*.en", "*.fr"], "in_ext": "txt"},
            [opus_file("Books", TEXT, "en-fr")],
            ("en", "fr"),
        ),
        (
            "Statmt-europarl-7-deu-eng",
            {
                "ext": "tgz",
                "in_paths": ["training/e.de-en.de", "training/e.de-en.en"],
                "in_ext": "txt",
            },
            [tar({"training/e.de-en.de": lines(TEXT, 1), "training/e.de-en.en": lines(TEXT, 0)})],
            ("en", "de"),
        ),
        (
            "Statmt-commoncrawl-wmt19-fra-deu",
            {"ext": "txt.gz"},
            [gzip.compress(lines(SWAPPED, 0).encode()), gzip.compress(lines(SWAPPED, 1).encode())],
            ("de", "fr"),
        ),
        (
            "EU-dcep-1-deu-eng",
            {"ext": "tmx.gz"},
            [
                gzip.compress(
                    "".join(
                        chain(
                            ['<tmx version="1.4"><body>'],
                            (
                                f'<tu><tuv xml:lang="en"><seg>{src}</seg></tuv>'
                                f'<tuv xml:lang="de"><seg>{tgt}</seg></tuv></tu>'
                                for src, tgt in TEXT
                            ),
                            ["</body></tmx>"],
                        )
                    ).encode()
                )
            ],
            ("en", "de"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_mtdata(
    id: str,
    options: dict[str, object],
    contents: list[bytes],
    languages: tuple[str, str],
    server: Loopback,
    index: Callable[..., None],
) -> None:
    urls = [f"http://example.org/{number}/data" for number in range(len(contents))]
    for url, content in zip(urls, contents, strict=True):
        server.serve("/" + url.partition("://")[2], content, faults=[("drop", 100)])
    index(id, urls[0] if len(urls) == 1 else tuple(urls), **options)
    parts = [read(f"mtdata(id='{id}')", split, *languages) for split in ("train", "valid", "test")]
    assert sorted(chain(*parts)) == sorted(TEXT)


def test_recipe_of_mtdata(
    server: Loopback, index: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [NEWS_ID, "Statmt-europarl-10-eng-deu"]
    for id, pairs in zip(ids, (SWAPPED[:50], TEXT[50:]), strict=True):
        server.serve(f"/example.org/{id}.tsv.gz", table(pairs))
        index(id, f"https://example.org/{id}.tsv.gz")
    recipes = {"news-eng-deu": SimpleNamespace(train=ids)}
    monkeypatch.setitem(sys.modules, "mtdata.recipe", SimpleNamespace(RECIPES=recipes))
    spec = "mtdata(recipe='news-eng-deu')"
    assert sorted(chain(*(read(spec, split) for split in ("train", "valid", "test")))) == sorted(
        TEXT
    )
    with pytest.raises(DataError, match="is en-de, not en-fr"):
        get_corpus("mtdata(recipe='news-eng-deu', languages=('en', 'fr'))").install(force=True)
    with pytest.raises(DataError, match="mtdata has no recipe 'news'") as caught:
        get_corpus("mtdata(recipe='news')").install()
    assert caught.value.hint == "choose from: news-eng-deu"


def test_errors_of_mtdata(server: Loopback, index: Callable[..., None]) -> None:
    index(NEWS_ID, "http://example.org/a.tsv.gz")
    index("Statmt-newstest-2013-eng-deu", "http://example.org/b", ext="sgm")
    failures = [
        (
            "Statmt-news_commentary-18.2-deu-eng",
            "mtdata has no corpus",
            f"did you mean '{NEWS_ID}'?",
        ),
        ("Statmt-newstest-2013-eng-deu", "has format sgm, which nmt does not read", "mtdata get"),
        (NEWS_ID, "404", "may be out of date"),
    ]
    for id, message, hint in failures:
        with pytest.raises(NMTError, match=message) as caught:
            get_corpus(f"mtdata(id='{id}')").install()
        assert hint in caught.value.hint
    for id in ("deu-eng", "../x", "A-b-1-../x-eng"):
        with pytest.raises(ConfigError):
            get_corpus(f"mtdata(id='{id}')")


def test_missing_mtdata_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mtdata", None)
    mtdata._load_index.cache_clear()
    with pytest.raises(UsageError, match="mtdata, which is not installed") as caught:
        get_corpus("mtdata").install()
    assert caught.value.hint == "pip install 'nmtkit[mtdata]'"
