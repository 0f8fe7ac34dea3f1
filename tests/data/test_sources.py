from __future__ import annotations

import gzip
import hashlib
import io
import json
import lzma
import os
import random
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice
from pathlib import Path

import pytest
from loopback import Loopback, loopback

from nmt.core.errors import ConfigError, DataError, DownloadError, NMTError
from nmt.core.paths import LOCK, TEMPORARY
from nmt.data import download
from nmt.data.pairs import Pair, write_pairs
from nmt.data.sources import SOURCES, get_corpus, holdout, open_split, validate
from nmt.data.sources.holdout import (
    MAX_CHARACTERS,
    MAX_SENTENCES,
    MIN_RATIO,
    hold_out,
    sentence_key,
)

REAL = Path(__file__).resolve().parents[3] / "shared" / "data"
real = pytest.mark.skipif(not REAL.is_dir(), reason="needs the shared corpora")

TEXT = [(f"sentence number {n}.", f"Satz Nummer {n}.") for n in range(200)]


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NMT_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("NMT_MIRROR", "http://127.0.0.1:1")  # tests do not access the network
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    monkeypatch.setattr(download, "RETRY_DELAY", 0.01)
    return tmp_path / "data"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    with loopback() as state:
        monkeypatch.setenv("NMT_MIRROR", state.url)
        yield state


def lines(pairs: list[Pair], side: int) -> bytes:
    return "".join(pair[side] + "\n" for pair in pairs).encode()


def write(prefix: Path, pairs: list[Pair], suffix: str = "") -> Path:
    prefix.parent.mkdir(parents=True, exist_ok=True)
    pack = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}[suffix]
    for side, language in enumerate(("en", "de")):
        prefix.with_name(f"{prefix.name}.{language}{suffix}").write_bytes(pack(lines(pairs, side)))
    return prefix


def tatoeba_zip(pairs: list[Pair]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("_about.txt", "about")
        file.writestr("deu.txt", "".join(f"{en}\t{de}\tby someone\n" for en, de in pairs))
    return buffer.getvalue()


def contents(directory: Path) -> list[str]:
    return sorted(
        str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()
    )


# --- specs ---


def test_validate_accepts_all_corpora() -> None:
    for name in SOURCES:
        if name not in ("files", "datasets"):
            validate(name)
    validate("files(train='a/b', valid=('x.en', 'x.de'), errors='replace')")
    validate("opus(corpus='Books', version='v1')")


@pytest.mark.parametrize(
    ("spec", "message", "hint"),
    [
        ("tatoebs", "unknown corpus 'tatoebs'", "did you mean 'tatoeba'?"),
        ("files(trian='x')", "has no option 'trian'", "train"),
        ("files(train=3)", "train must be", ""),
        ("files", "has no split", "files(train="),
        ("files(train='x', errors='ignore')", "'strict' or 'replace'", ""),
        ("opus(corpus='../x')", "invalid value '../x'", "opus(corpus="),
        ("tatoeba(x=1)", "has no option 'x'", ""),
        (
            "opus(languages=('en', 'en'))",
            "corpus 'opus-en-en' has the same language on both sides: en",
            "name two languages",
        ),
        ("paracrawl(languages=('de', 'de'))", "has the same language on both sides: de", ""),
        ("flores(languages=('de', 'de'))", "has the same language on both sides: de", ""),
    ],
)
def test_invalid_spec_is_rejected_before_reading(spec: str, message: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        validate(spec)
    assert hint in caught.value.hint


def test_validation_and_reading_the_phrasebook_import_no_heavy_packages() -> None:
    code = (
        "import sys; from nmt.data.sources import open_split, validate; import nmt.cli.data;"
        " validate('wmt14'); next(open_split('phrasebook', 'test', 'en', 'de').pairs()); print([m"
        " for m in ('torch', 'pyarrow', 'httpx', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_unknown_split_and_equal_languages_are_errors() -> None:
    with pytest.raises(DataError, match="unknown split 'dev'"):
        open_split("phrasebook", "dev", "en", "de")
    with pytest.raises(DataError, match="both 'en'"):
        open_split("phrasebook", "train", "en", "en")


def test_phrasebook_needs_no_download(data: Path) -> None:
    sums = set()
    for split in ("train", "valid", "test"):
        forward, backward = (
            open_split("phrasebook", split, "en", "de"),
            open_split("phrasebook", split, "de", "en"),
        )
        pairs = list(islice(forward.pairs(), 100))
        assert pairs == list(islice(forward.pairs(), 100)) != []
        assert [(en, de) for de, en in islice(backward.pairs(), 100)] == pairs
        sums.add(forward.checksum)
    assert len(sums) == 3
    assert not data.exists()
    with pytest.raises(DataError, match="is en-de, not en-fr"):
        open_split("phrasebook", "train", "en", "fr")


# --- held-out sets ---


def test_sentence_key_ignores_case_and_punctuation() -> None:
    assert (
        sentence_key("I'm here!")
        == sentence_key("i’m HERE")
        == sentence_key(" Im  here …")
        == "im here"
    )
    assert sentence_key("Straße") == sentence_key("STRASSE")
    assert sentence_key("well-known") == sentence_key("well known")
    assert sentence_key("one") != sentence_key("two")
    assert sentence_key("ﬁve ６") == sentence_key("five 6")
    assert sentence_key("?!") == "?!"
    assert sentence_key("यह «हिन्दी» है।") == "यह हिन्दी है"
    assert sentence_key("वह पीता है") != sentence_key("वह पोता है")  # they differ in a vowel sign
    assert sentence_key("I ❤️ you") == sentence_key("I ❤ you") == "i you"
    assert sentence_key("1️⃣ go") == "1 go"
    assert sentence_key(" \t") == ""


def split_corpus(pairs: list[Pair]) -> dict[str, list[Pair]]:
    return {split: list(text()) for split, text in hold_out(lambda: iter(pairs)).items()}


def test_held_out_splits_are_disjoint() -> None:
    pairs = [(en.upper() if n % 3 else en, f"{de} {n}") for n, (en, de) in enumerate(TEXT * 4)]
    parts = split_corpus(pairs)
    keys = {split: [sentence_key(en) for en, _ in part] for split, part in parts.items()}
    assert len(keys["valid"]) == len(keys["test"]) == len(TEXT) // MIN_RATIO
    assert len(set(keys["valid"])) == len(keys["valid"])
    assert not set(keys["train"]) & set(keys["valid"])
    assert not set(keys["train"]) & set(keys["test"])
    assert not set(keys["valid"]) & set(keys["test"])
    assert len(parts["train"]) == 4 * (len(TEXT) - 2 * len(TEXT) // MIN_RATIO)


def test_held_out_targets_are_not_in_train() -> None:
    pairs = [(f"a b {n}", f"C d {n % 100}!" if n < 100 else f"c d {n % 100}") for n in range(200)]
    parts = split_corpus(pairs)
    keys = {split: {sentence_key(de) for _, de in part} for split, part in parts.items()}
    assert not keys["train"] & (keys["valid"] | keys["test"])
    assert len(parts["train"]) == 200 - 2 * len(keys["valid"] | keys["test"])


def test_hold_out_is_independent_of_order() -> None:
    shuffled = random.Random(1).sample(TEXT, len(TEXT))
    assert {s: sorted(p) for s, p in split_corpus(TEXT).items()} == {
        s: sorted(p) for s, p in split_corpus(shuffled).items()
    }
    grown = split_corpus([*TEXT, ("this is one more", "noch ein ganzer Satz")])
    assert len(set(split_corpus(TEXT)["test"]) - set(grown["test"])) <= 1


@pytest.mark.slow
def test_size_of_held_out_splits_of_large_corpus() -> None:
    pairs = [(f"a b {n}", f"c d {n}") for n in range(MAX_SENTENCES * MIN_RATIO + 5000)]
    parts = split_corpus(pairs)
    assert len(parts["valid"]) == len(parts["test"]) == MAX_SENTENCES
    assert len(parts["train"]) == len(pairs) - 2 * MAX_SENTENCES


@pytest.mark.slow
def test_several_processes_select_the_same_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = TEXT * 60
    expected = split_corpus(pairs)
    monkeypatch.setattr(holdout, "MIN_PARALLEL_PAIRS", 10)
    assert split_corpus(pairs) == expected


def test_unequal_files_are_an_error_after_the_pairs(tmp_path: Path) -> None:
    prefix = write(tmp_path / "a", TEXT)
    with (tmp_path / "a.de").open("a") as file:
        file.write("one more\n")
    expected = split_corpus(TEXT)
    for split in ("train", "valid", "test"):
        pairs = open_split(f"files(train='{prefix}')", split, "en", "de").pairs()
        assert list(islice(pairs, len(expected[split]))) == expected[split]
        with pytest.raises(DataError, match=r"has 200 lines and .* has 201"):
            next(pairs)


def test_held_out_sentences_are_stable() -> None:
    names = sorted(en for en, _ in split_corpus(TEXT)["test"])
    assert hashlib.sha256("\n".join(names).encode()).hexdigest()[:12] == "5eed28bf9fd9"


def test_documents_in_a_line_are_not_held_out() -> None:
    document = "word " * (MAX_CHARACTERS // 5 + 1)
    for en, de in (
        (f"Are we done? {document}", "Sind wir fertig?"),
        ("Are we done?", f"Sind wir fertig? {document}"),
    ):
        parts = split_corpus([*TEXT, *[(f"{en} {n}", f"{de} {n}") for n in range(200)]])
        assert (
            max(len(text) for split in ("valid", "test") for pair in parts[split] for text in pair)
            <= MAX_CHARACTERS
        )
        assert len(parts["train"]) > 200


def test_short_sentences_are_not_held_out() -> None:
    short = [
        ("Good morning!", "Guten Morgen!"),
        ("Thank you kindly.", "Danke schön."),
        ("Hi!", "Ich grüße dich."),
    ]
    for pair in short:
        parts = split_corpus([*TEXT, *[pair] * 400])
        assert parts["train"].count(pair) == 400
        assert split_corpus(TEXT)["test"] == parts["test"]
    # In scripts without spaces, letters count as words.
    written = "東京都渋谷区神宮前丁目番号"
    pairs = [(f"{a}{b}{c}", f"แปล{a}{b}") for a in written for b in written for c in written[:2]]
    assert len(split_corpus(pairs)["test"]) == len(pairs) // MIN_RATIO
    assert (
        len(split_corpus([(a, "a b c") for a in written] + TEXT)["train"])
        == len(written) + len(TEXT) * 9 // 10
    )


@pytest.mark.parametrize(
    "letters", ["กขคง", "ກຂຄງ", "ကခဂဃ", "កខគឃ", "あいうえ", "カキクケ", "東京都区", "𠀀𠀁𠀂𠀃"]
)
def test_letters_count_as_words_in_scripts_without_spaces(letters: str) -> None:
    words = [f"{a}{b}{c}" for a in letters for b in letters for c in letters]
    assert len(split_corpus([*zip(words, words, strict=True)])["test"]) == len(words) // MIN_RATIO


def test_held_out_pair_has_first_long_target() -> None:
    short = [(en, "Kurz.") for en, _ in TEXT] + [
        (f"only short ones {n}", "Zu kurz.") for n in range(200)
    ]
    parts, expected = split_corpus([*short, *TEXT]), split_corpus(TEXT)
    assert (parts["valid"], parts["test"]) == (expected["valid"], expected["test"])


def test_blank_lines_are_not_held_out() -> None:
    parts = split_corpus([*TEXT, ("", "x"), *[(en, "") for en, _ in TEXT]])
    assert all(en and de for split in ("valid", "test") for en, de in parts[split])
    assert ("", "x") in parts["train"]


def test_too_small_corpus_is_an_error() -> None:
    with pytest.raises(DataError, match="19 different sentences of 3 words or more are too few"):
        split_corpus([*TEXT[:19], *[("Good morning!", "Guten Morgen!")] * 50])


# --- files ---


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_files_by_prefix(suffix: str, tmp_path: Path) -> None:
    prefix = write(tmp_path / "my.corpus", TEXT, suffix)
    spec = f"files(test='{prefix}')"
    assert list(open_split(spec, "test", "en", "de").pairs()) == TEXT
    assert list(open_split(spec, "test", "de", "en").pairs()) == [(de, en) for en, de in TEXT]
    assert open_split(spec, "test", "en", "de").name == "my.corpus/test"


def test_split_can_be_read_repeatedly(tmp_path: Path) -> None:
    split = open_split(f"files(train='{write(tmp_path / 'a', TEXT)}')", "valid", "en", "de")
    assert list(split.pairs()) == list(split.pairs()) != []


def test_files_as_pair(tmp_path: Path) -> None:
    write(tmp_path / "a", TEXT)
    for order in (("a.en", "a.de"), ("a.de", "a.en")):
        spec = f"files(train={tuple(str(tmp_path / name) for name in order)}, hold_out=False)"
        assert list(open_split(spec, "train", "en", "de").pairs()) == TEXT
        assert next(open_split(spec, "train", "de", "en").pairs()) == TEXT[0][::-1]
    shutil.copy(tmp_path / "a.en", tmp_path / "x.txt")
    shutil.copy(tmp_path / "a.de", tmp_path / "y.txt")
    spec = f"files(test=('{tmp_path / 'x.txt'}', '{tmp_path / 'y.txt'}'))"
    assert list(open_split(spec, "test", "en", "de").pairs()) == TEXT
    spec = spec[:-1] + ", columns=('en', 'de'))"
    assert next(open_split(spec, "test", "de", "en").pairs()) == TEXT[0][::-1]
    with pytest.raises(DataError, match="is en-de, not en-fr"):
        open_split(spec, "test", "en", "fr")


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_files_as_tsv(name: str, tmp_path: Path) -> None:
    content = "".join(f"{en}\t{de}\n" for en, de in TEXT).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    spec = f"files(test='{tmp_path / name}'"
    assert list(open_split(f"{spec})", "test", "en", "de").pairs()) == TEXT
    assert (
        next(open_split(f"{spec}, columns=('de', 'en'))", "test", "en", "de").pairs())
        == TEXT[0][::-1]
    )


def test_columns_of_a_table_have_names(tmp_path: Path) -> None:
    content = "".join(f"tale\t{en}\t{de}\tchecked\n" for en, de in TEXT).encode()
    (tmp_path / "a.tsv.xz").write_bytes(lzma.compress(content))
    spec = f"files(test='{tmp_path / 'a.tsv.xz'}', columns=('source', 'en', 'de'))"
    assert list(open_split(spec, "test", "en", "de").pairs()) == TEXT
    assert list(open_split(spec, "test", "de", "en").pairs()) == [pair[::-1] for pair in TEXT]
    with pytest.raises(
        DataError, match=r"has no columns named 'fr' in columns=\('source', 'en', 'de'\)"
    ) as caught:
        open_split(spec, "test", "en", "fr")
    assert caught.value.hint == "name each column of a line, for example columns=('id', 'en', 'fr')"
    with pytest.raises(DataError, match="has 2 columns named 'en'"):
        open_split(spec.replace("source", "en"), "test", "en", "de")


def test_missing_splits_are_held_out_of_train(tmp_path: Path) -> None:
    train, dev = write(tmp_path / "train", TEXT), write(tmp_path / "dev", [("dev", "dev")] * 3)
    spec = f"files(train='{train}', valid='{dev}')"
    parts = {
        split: list(open_split(spec, split, "en", "de").pairs())
        for split in ("train", "valid", "test")
    }
    assert parts["valid"] == [("dev", "dev")] * 3
    assert sorted(parts["train"] + parts["test"]) == sorted(TEXT)
    assert len(parts["test"]) == 10
    for split, pairs in parts.items():  # a reverse model is tested on the same sentences
        assert [pair[::-1] for pair in open_split(spec, split, "de", "en").pairs()] == pairs
    spec = f"files(train='{train}', hold_out=False)"
    assert list(open_split(spec, "train", "en", "de").pairs()) == TEXT
    with pytest.raises(DataError, match="has no test split, only train") as caught:
        open_split(spec, "test", "en", "de")
    assert caught.value.hint == "add test='my/test', or leave out hold_out=False"
    with pytest.raises(DataError, match="has no train split, only test") as caught:
        open_split(f"files(test='{dev}')", "train", "en", "de")
    assert caught.value.hint == "add train='my/train'"


def test_build_command_is_the_hint_for_missing_files() -> None:
    for where in ("'none'", "'none.tsv'", "('none.en', 'none.de')"):
        with pytest.raises(DataError, match="no such") as raised:
            open_split(
                f"files(train={where}, hold_out=False, build_command='make text')",
                "train",
                "en",
                "de",
            )
        assert raised.value.hint == "create it with make text"


def test_checksum_depends_on_text_split_and_options(tmp_path: Path) -> None:
    prefix = write(tmp_path / "a", TEXT)
    specs = [
        f"files(train='{prefix}')",
        f"files(train='{prefix}', errors='replace')",
        f"files(test='{prefix}')",
    ]

    def sums() -> list[str]:
        return [
            open_split(spec, split, src, tgt).checksum
            for spec in specs
            for split in ("train", "test")
            for src, tgt in (("en", "de"), ("de", "en"))
            if not (spec == specs[2] and split == "train")
        ]

    first = sums()
    assert len(set(first)) == len(first) == 10
    assert sums() == first
    with (tmp_path / "a.de").open("ab") as file:
        file.write(b" ")
    assert not set(sums()) & set(first)


def test_missing_files_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.en").touch()
    with pytest.raises(DataError, match=r"no such file: .*a\.de"):
        open_split(f"files(train='{tmp_path / 'a'}')", "train", "en", "de")
    with pytest.raises(DataError, match="no such file"):
        open_split(f"files(train=('{tmp_path / 'x'}', '{tmp_path / 'y'}'))", "train", "en", "de")


@pytest.mark.parametrize("path", ["~nobody-has-this-name/text", ".", ""])
def test_unusual_paths_are_reported(path: str) -> None:
    with pytest.raises(DataError, match="no such file"):
        open_split(f"files(train={path!r})", "train", "en", "de")


def test_errors_strict_and_replace(tmp_path: Path) -> None:
    (tmp_path / "a.en").write_bytes(b"caf\xe9\n")
    (tmp_path / "a.de").write_bytes(b"Cafe\n")
    with pytest.raises(DataError, match="not UTF-8"):
        list(open_split(f"files(test='{tmp_path / 'a'}')", "test", "en", "de").pairs())
    spec = f"files(test='{tmp_path / 'a'}', errors='replace')"
    assert list(open_split(spec, "test", "en", "de").pairs()) == [("caf\ufffd", "Cafe")]


# --- published corpora, installed from disk ---


def install(name: str, source: Path | None = None, **options: bool) -> Path:
    corpus = get_corpus(name)
    return corpus.install(source, **options)


@pytest.mark.parametrize("name", ["tatoeba", "multi30k", "wmt14", "europarl", "opus100"])
@pytest.mark.parametrize(("suffix", "valid"), [("", "valid"), (".gz", "val"), (".xz", "dev")])
def test_every_corpus_installs_from_plain_text(
    name: str, suffix: str, valid: str, tmp_path: Path, data: Path
) -> None:
    parts = {"train": TEXT[:100], valid: TEXT[100:150], "test": TEXT[150:]}
    for stem, pairs in parts.items():
        write(tmp_path / "mine" / stem, pairs, suffix)
    directory = install(name, tmp_path / "mine")
    assert directory == data / "corpora" / name
    assert contents(directory) == [
        "corpus.json",
        *("test.de", "test.en", "train.de.zst", "train.en.zst", "valid.de", "valid.en"),
    ]
    for split, pairs in zip(("train", "valid", "test"), parts.values(), strict=True):
        assert list(open_split(name, split, "en", "de").pairs()) == pairs
        assert list(open_split(name, split, "de", "en").pairs()) == [(de, en) for en, de in pairs]


def test_corpus_installs_from_archive_of_plain_text(tmp_path: Path) -> None:
    write(tmp_path / "mine" / "train", TEXT, ".gz")
    shutil.make_archive(str(tmp_path / "mine"), "zip", tmp_path / "mine")
    install("multi30k", tmp_path / "mine.zip")
    assert list(open_split("multi30k", "train", "en", "de").pairs()) == TEXT


def test_corpus_json(tmp_path: Path) -> None:
    archive = tmp_path / "deu-eng.zip"
    archive.write_bytes(tatoeba_zip(TEXT))
    directory = install("tatoeba", archive)
    meta = json.loads((directory / "corpus.json").read_text())
    assert meta["name"] == "tatoeba"
    assert meta["archives"] == {"deu-eng.zip": hashlib.sha256(archive.read_bytes()).hexdigest()}
    assert meta["files"]["train.en.zst"] == {
        "sha256": hashlib.sha256((directory / "train.en.zst").read_bytes()).hexdigest(),
        "lines": 180,
        "mtime_ns": (directory / "train.en.zst").stat().st_mtime_ns,
    }
    assert "CC BY" in meta["license"]
    assert meta["nmt"]
    assert meta["date"]
    assert meta["origin"] == str(archive)


def test_other_holdout_version_is_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = tmp_path / "deu-eng.zip"
    archive.write_bytes(tatoeba_zip(TEXT))
    write(tmp_path / "user" / "train", TEXT)
    for part in ("valid", "test"):
        write(tmp_path / "user" / part, TEXT[:9])
    # The second has splits of its own.
    for source, is_logged in (
        (archive, True),
        (tmp_path / "user", False),
    ):
        record = install("tatoeba", source, force=True) / "corpus.json"
        open_split("tatoeba", "train", "en", "de")
        assert "another version of nmt" not in capsys.readouterr().err
        meta = json.loads(record.read_text())
        with pytest.MonkeyPatch.context() as later:
            later.setattr(holdout, "VERSION", "holdout-99")
            open_split("tatoeba", "train", "en", "de")
        assert ("nmt data download tatoeba --force" in capsys.readouterr().err) is is_logged
        if is_logged:
            del meta["held_out"]  # an old corpus.json
            record.write_text(json.dumps(meta))
            open_split("tatoeba", "train", "en", "de")
            assert "another version of nmt" in capsys.readouterr().err


@pytest.mark.parametrize(
    "form", ["deu-eng.zip", "directory/deu-eng.zip", "directory/deu.txt", "deu.txt"]
)
def test_tatoeba_from_all_formats(form: str, tmp_path: Path) -> None:
    packed = tatoeba_zip(TEXT)
    path = tmp_path / form
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(
        packed if form.endswith(".zip") else zipfile.ZipFile(io.BytesIO(packed)).read("deu.txt")
    )
    install("tatoeba", path.parent if form.startswith("directory") else path)
    parts = {
        split: list(open_split("tatoeba", split, "en", "de").pairs())
        for split in ("train", "valid", "test")
    }
    assert sorted(chain(*parts.values())) == sorted(TEXT)
    assert [len(part) for part in parts.values()] == [180, 10, 10]


def test_checksum_is_equal_after_reinstallation(tmp_path: Path) -> None:
    source = write(tmp_path / "mine" / "train", TEXT).parent
    install("multi30k", source)
    first = open_split("multi30k", "train", "en", "de").checksum
    assert open_split("multi30k", "train", "de", "en").checksum != first
    install("multi30k", source, force=True)
    assert open_split("multi30k", "train", "en", "de").checksum == first
    write(tmp_path / "mine" / "train", TEXT[1:])
    install("multi30k", source)
    # Installed corpora are kept.
    assert open_split("multi30k", "train", "en", "de").checksum == first
    install("multi30k", source, force=True)
    assert open_split("multi30k", "train", "en", "de").checksum != first


def test_multi30k_selects_its_test_set(tmp_path: Path) -> None:
    for stem in ("train", "val", "test_2016_flickr", "test_2017_flickr"):
        write(tmp_path / "mine" / stem, [(stem, stem)], ".gz")
    install("multi30k", tmp_path / "mine")
    assert list(open_split("multi30k", "test", "en", "de").pairs()) == [
        ("test_2016_flickr", "test_2016_flickr")
    ]
    with pytest.raises(
        DataError, match="the test split is ambiguous: test_2016_flickr, test_2017_flickr"
    ):
        install("wmt14", tmp_path / "mine")


def test_missing_split_or_language_is_an_error(tmp_path: Path) -> None:
    install("multi30k", write(tmp_path / "mine" / "train", TEXT).parent)
    with pytest.raises(DataError, match="has no test split") as caught:
        open_split("multi30k", "test", "en", "de")
    assert caught.value.hint == "it has train"
    with pytest.raises(DataError, match="is en-de, not en-fr"):
        open_split("multi30k", "train", "en", "fr")


EN, DE = lines(TEXT, 0), lines(TEXT, 1)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train.en": EN}, r"train\.en exists, but not train\.de"),
        (
            {"train.en": EN, "train.de": b"only one\n"},
            r"train\.en has 200 lines and .*train\.de has 1",
        ),
        (
            {"train.en.gz": gzip.compress(EN), "train.de.gz": gzip.compress(DE)[:-20]},
            "corrupted or truncated",
        ),
        ({"train.en": b"", "train.de": b""}, "train split of corpus 'wmt14' is empty"),
        ({"readme.md": b""}, "does not have corpus 'wmt14'"),
        ({"test.en": EN, "test.de": DE}, "does not have corpus 'wmt14'"),
        ({}, "no such file or directory"),
    ],
)
def test_failed_installation_leaves_no_files(
    files: dict[str, bytes], message: str, tmp_path: Path, data: Path
) -> None:
    for name, content in files.items():
        (tmp_path / "mine").mkdir(exist_ok=True)
        (tmp_path / "mine" / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        install("wmt14", tmp_path / "mine")
    assert contents(data) == []
    assert [path.name for path in (data / "corpora").glob("*")] == []


def test_failed_reinstallation_keeps_old_corpus(tmp_path: Path) -> None:
    install("wmt14", write(tmp_path / "good" / "train", TEXT).parent)
    (write(tmp_path / "bad" / "train", TEXT).parent / "train.de").unlink()
    with pytest.raises(DataError):
        install("wmt14", tmp_path / "bad", force=True)
    assert list(open_split("wmt14", "train", "en", "de").pairs()) == TEXT


def test_corrupted_corpus_json_has_hint(tmp_path: Path) -> None:
    directory = install("wmt14", write(tmp_path / "good" / "train", TEXT).parent)
    (directory / "corpus.json").write_text("{")
    with pytest.raises(DataError, match="is corrupted") as caught:
        open_split("wmt14", "train", "en", "de")
    assert "nmt data download wmt14 --force" in caught.value.hint


# --- published corpora, over the network ---


def test_corpus_is_downloaded_once(
    server: Loopback, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.serve(
        "/www.manythings.org/anki/deu-eng.zip", tatoeba_zip(TEXT), faults=[("drop", 1000), 503]
    )
    assert len(list(open_split("tatoeba", "train", "en", "de").pairs())) == 180
    assert "downloading tatoeba" in capsys.readouterr().err
    num_requests = len(server.requests)
    open_split("tatoeba", "test", "de", "en")
    assert len(server.requests) == num_requests == 3
    assert contents(data / "downloads") == []


def test_processes_that_need_a_corpus_install_it_once(server: Loopback, data: Path) -> None:
    server.serve("/www.manythings.org/anki/deu-eng.zip", tatoeba_zip(TEXT), faults=[("drop", 1000)])
    with ThreadPoolExecutor(4) as pool:  # the ranks of torchrun
        results = [pool.submit(open_split, "tatoeba", "train", "en", "de") for _ in range(4)]
    assert len({result.result().checksum for result in results}) == 1
    assert len(server.requests) == 2
    assert contents(data / "downloads") == []


def test_corrupted_archive_is_deleted(server: Loopback, data: Path) -> None:
    resource = server.serve("/www.manythings.org/anki/deu-eng.zip", b"<html>log in</html>")
    with pytest.raises(DownloadError, match="corrupted or truncated"):
        install("tatoeba")
    assert contents(data) == []
    resource.content = tatoeba_zip(TEXT)
    install("tatoeba")


def test_interrupted_download_is_resumed(server: Loopback, data: Path) -> None:
    content = tatoeba_zip(TEXT)
    resource = server.serve(
        "/www.manythings.org/anki/deu-eng.zip", content, faults=[("drop", 1000), *[503] * 100]
    )
    with pytest.raises(DownloadError, match="503") as caught:
        install("tatoeba")
    assert "nmt data download tatoeba --from PATH" in caught.value.hint
    assert (data / "downloads" / "tatoeba" / "deu-eng.zip.part").stat().st_size == 1000
    resource.faults.clear()
    other, killed = data / "corpora" / ".tatoeba-x", data / "corpora" / f"{TEMPORARY}abcdefgh"
    for directory in (other, killed):
        directory.mkdir(parents=True)
    (killed / LOCK).touch()
    install("tatoeba")
    assert server.ranges()[-1] == "bytes=1000-"
    assert contents(data / "downloads") == []
    assert other.exists()
    assert not killed.exists()


def test_multi30k_download(server: Loopback) -> None:
    base = "/raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
    for stem, pairs in {"train": TEXT, "val": TEXT[:5], "test_2016_flickr": TEXT[5:9]}.items():
        for side, language in enumerate(("en", "de")):
            server.serve(f"{base}/{stem}.{language}.gz", gzip.compress(lines(pairs, side)))
    assert list(open_split("multi30k", "train", "en", "de").pairs()) == TEXT
    assert list(open_split("multi30k", "valid", "en", "de").pairs()) == TEXT[:5]
    assert list(open_split("multi30k", "test", "en", "de").pairs()) == TEXT[5:9]


@pytest.mark.parametrize(
    ("spec", "path", "languages"),
    [
        ("europarl", "OPUS-Europarl/v8/moses/de-en.txt.zip", ("en", "de")),
        ("news-commentary", "OPUS-News-Commentary/v16/moses/de-en.txt.zip", ("en", "de")),
        ("opus", "OPUS-Tatoeba/v2023-04-12/moses/de-en.txt.zip", ("en", "de")),
        (
            "opus(corpus='Books', version='v1', languages=('fi', 'en'))",
            "OPUS-Books/v1/moses/en-fi.txt.zip",
            ("fi", "en"),
        ),
    ],
)
def test_opus_moses_format(
    server: Loopback, spec: str, path: str, languages: tuple[str, str]
) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("README", "about")
        for side, language in enumerate(languages):
            file.writestr(f"Some.{'-'.join(sorted(languages))}.{language}", lines(TEXT, side))
        file.writestr("Some.de-en.xml", "<xml/>")
    server.serve(f"/object.pouta.csc.fi/{path}", buffer.getvalue())
    parts = {
        split: list(open_split(spec, split, *languages).pairs())
        for split in ("train", "valid", "test")
    }
    assert sorted(chain(*parts.values())) == sorted(TEXT)
    assert [len(part) for part in parts.values()] == [180, 10, 10]


def test_opus_corpora_have_separate_directories() -> None:
    directories = {
        get_corpus(spec).directory
        for spec in (
            "opus",
            "opus(corpus='Books')",
            "opus(version='v1')",
            "opus(languages=('en', 'fr'))",
        )
    }
    assert len(directories) == 4


def parquet(pairs: list[Pair]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    rows = pyarrow.table({"translation": [{"de": de, "en": en} for en, de in pairs]})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(rows, buffer)
    return buffer.getvalue()


def serve_hub(server: Loopback, host: str = "/huggingface.co") -> dict[str, bytes]:
    files = {
        "train-00000-of-00002.parquet": parquet(TEXT[:90]),
        "train-00001-of-00002.parquet": parquet([*TEXT[90:], ("two\nlines", "zwei\u2028Zeilen")]),
        "validation-00000-of-00001.parquet": parquet(TEXT[:7]),
        "test-00000-of-00001.parquet": parquet(TEXT[:9]),
    }
    listing: list[dict[str, object]] = [
        {"type": "file", "path": "de-en/README.md", "size": 3, "oid": "x"}
    ]
    for name, content in files.items():
        large = {"oid": hashlib.sha256(content).hexdigest(), "size": len(content)}
        listing.append(
            {
                "type": "file",
                "path": f"de-en/{name}",
                "size": len(content),
                "oid": "x",
                "lfs": large,
            }
        )
        server.serve(
            f"{host}/datasets/wmt/wmt14/resolve/main/de-en/{name}", b"", redirect=f"/cdn/{name}"
        )
        server.serve(f"/cdn/{name}", content)
    server.serve(f"{host}/api/datasets/wmt/wmt14/tree/main/de-en", json.dumps(listing).encode())
    return files


def test_wmt_is_downloaded_from_hub_in_order(server: Loopback) -> None:
    serve_hub(server)
    server.resources["/cdn/train-00001-of-00002.parquet"].faults.append(("drop", 500))
    assert list(open_split("wmt14", "train", "en", "de").pairs()) == [
        *TEXT,
        ("two lines", "zwei\u2028Zeilen"),
    ]
    assert list(open_split("wmt14", "valid", "de", "en").pairs()) == [
        (de, en) for en, de in TEXT[:7]
    ]
    assert list(open_split("wmt14", "test", "en", "de").pairs()) == TEXT[:9]
    assert "bytes=500-" in server.ranges()


def test_other_hub_endpoint(server: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_hub(server, host="")
    monkeypatch.delenv("NMT_MIRROR")
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    assert len(list(open_split("wmt14", "test", "en", "de").pairs())) == 9


def test_file_with_wrong_checksum_is_rejected(server: Loopback, data: Path) -> None:
    serve_hub(server)
    server.resources["/cdn/test-00000-of-00001.parquet"].content = parquet(TEXT[:10])
    with pytest.raises(DownloadError, match="not the expected file"):
        install("wmt14")
    assert contents(data / "corpora") == []


@pytest.mark.parametrize("answer", [b"<html>", b'{"error": "gone"}', b'["x"]'])
def test_invalid_listing_is_rejected(answer: bytes, server: Loopback, data: Path) -> None:
    server.serve("/huggingface.co/api/datasets/wmt/wmt14/tree/main/de-en", answer)
    with pytest.raises(DownloadError, match="is not a listing") as caught:
        install("wmt14")
    assert "--from" in caught.value.hint
    assert contents(data) == []


def test_wmt_installs_from_parquet_files(server: Loopback, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name, content in serve_hub(server).items():
        (tmp_path / "mine" / name).write_bytes(content)
    install("wmt14", tmp_path / "mine")
    assert len(list(open_split("wmt14", "train", "en", "de").pairs())) == 201
    assert not server.requests


def test_a_missing_parquet_file_is_an_error(server: Loopback, tmp_path: Path, data: Path) -> None:
    (tmp_path / "mine").mkdir()
    for name, content in serve_hub(server).items():
        (tmp_path / "mine" / name).write_bytes(content)
    (tmp_path / "mine" / "train-00000-of-00002.parquet").rename(
        tmp_path / "mine" / "._train-00000-of-00002.parquet"
    )
    with pytest.raises(DataError, match=r"train-00000-of-00002\.parquet is missing"):
        install("wmt14", tmp_path / "mine")
    assert contents(data) == []


@pytest.mark.parametrize("content", [b"PAR1 nonsense PAR1", b""])
def test_corrupted_parquet_file_is_an_error(content: bytes, tmp_path: Path, data: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train-00000-of-00001.parquet").write_bytes(content)
    with pytest.raises(NMTError, match="parquet"):
        install("wmt14", tmp_path / "mine")
    assert contents(data) == []


# --- real corpora ---


@real
def test_real_multi30k() -> None:
    install("multi30k", REAL / "multi30k")
    splits = {
        split: list(open_split("multi30k", split, "en", "de").pairs())
        for split in ("train", "valid", "test")
    }
    assert [len(pairs) for pairs in splits.values()] == [29_000, 1_014, 1_000]
    assert all(en and de for pairs in splits.values() for en, de in pairs)


@pytest.mark.slow
@real
def test_real_tatoeba_splits_are_disjoint(tmp_path: Path) -> None:
    with (
        zipfile.ZipFile(REAL / "tatoeba" / "deu-eng.zip") as archive,
        archive.open("deu.txt") as lines,
        zipfile.ZipFile(tmp_path / "deu-eng.zip", "w") as sampled,
    ):
        sampled.writestr("deu.txt", b"".join(islice(lines, 0, None, 5)))
    install("tatoeba", tmp_path / "deu-eng.zip")
    keys = {
        split: [
            sentence_key(english) for english, _ in open_split("tatoeba", split, "en", "de").pairs()
        ]
        for split in ("train", "valid", "test")
    }
    assert (
        len(keys["valid"])
        == len(set(keys["valid"]))
        == len(keys["test"])
        == len(set(keys["test"]))
        == 1561
    )
    assert len(keys["train"]) > 20_000
    assert not set(keys["train"]) & set(keys["valid"])
    assert not set(keys["train"]) & set(keys["test"])
    assert not set(keys["valid"]) & set(keys["test"])


@real
def test_real_messy_text_stays_aligned() -> None:
    spec = f"files(test='{REAL / 'software' / 'lo-help'}')"
    assert sum(1 for _ in open_split(spec, "test", "en", "de").pairs()) == 44_386


def test_edited_files_of_an_installed_corpus_change_its_checksum(tmp_path: Path) -> None:
    directory = install("multi30k", write(tmp_path / "mine" / "train", TEXT).parent)
    split = open_split("multi30k", "train", "de", "en")
    assert split.files == (directory / "train.de.zst", directory / "train.en.zst")
    recorded = json.loads((directory / "corpus.json").read_text())["files"]
    both = "\n".join(recorded[path.name]["sha256"] for path in split.files)
    # Prepared data of earlier versions is reused.
    assert split.checksum == hashlib.sha256(both.encode()).hexdigest()
    write_pairs(split.files[1], split.files[0], TEXT[1:])
    for path in split.files:
        os.utime(path, (1e9, 1e9))  # an older file was moved here
    assert open_split("multi30k", "train", "de", "en").checksum != split.checksum


def test_files_in_the_wrong_order_are_rejected(tmp_path: Path) -> None:
    write(tmp_path / "a", TEXT)
    shutil.copy(tmp_path / "a.en", tmp_path / "x.txt")
    spec = f"files(test=('{tmp_path / 'a.de'}', '{tmp_path / 'x.txt'}')"
    with pytest.raises(DataError, match=r"a\.de would be read as language en") as caught:
        open_split(f"{spec})", "test", "en", "de")
    assert "columns=" in caught.value.hint
    assert list(open_split(f"{spec}, columns=('de', 'en'))", "test", "en", "de").pairs()) == TEXT
    assert list(open_split(f"{spec})", "test", "de", "en").pairs()) == [(de, en) for en, de in TEXT]


def test_download_with_another_encoding_is_kept(server: Loopback) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr(
            "deu.txt", b"".join(f"{en}\t{de} \xe9\n".encode("latin-1") for en, de in TEXT)
        )
    server.serve("/www.manythings.org/anki/deu-eng.zip", buffer.getvalue())
    with pytest.raises(DataError, match="not UTF-8"):
        install("tatoeba")
    corpus = get_corpus("tatoeba")
    corpus.install(errors="replace")
    assert len(server.requests) == 1


def test_prefix_with_both_languages_is_preferred(tmp_path: Path) -> None:
    write(tmp_path / "b" / "train", TEXT)
    write(tmp_path / "b" / "._train", TEXT)
    write(tmp_path / "b" / "", TEXT)  # .en and .de
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "train.en").write_text("only English\n")
    archive = Path(shutil.make_archive(str(tmp_path / "c"), "zip", tmp_path))
    install("multi30k", archive)
    assert list(open_split("multi30k", "train", "en", "de").pairs()) == TEXT
    write(tmp_path / "a" / "train", TEXT)
    archive = Path(shutil.make_archive(str(tmp_path / "d"), "zip", tmp_path))
    with pytest.raises(DataError, match="the train split is ambiguous: a/train, b/train"):
        install("multi30k", archive, force=True)
