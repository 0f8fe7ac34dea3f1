from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.core.errors import DataError
from nmt.data.pairs import Pair, open_text, read_lines, read_pairs, read_tsv, write_pairs

ZSTANDARD = pyarrow.Codec("zstd", compression_level=3)
COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda text: ZSTANDARD.compress(text).to_pybytes(),
}
LONG = "".join(f"line {n} of the text, {n * n}\n" for n in range(20_000)).encode()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("suffix", COMPRESSORS)
def test_all_compression_formats(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a.en{suffix}", COMPRESSORS[suffix](LONG))
    assert [line + "\n" for line in read_lines(path)] == LONG.decode().splitlines(keepends=True)
    with open_text(path) as file:
        assert file.read() == LONG


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".xz"])
def test_concatenated_files_are_read_completely(suffix: str, tmp_path: Path) -> None:
    path = write(
        tmp_path / f"a{suffix}", COMPRESSORS[suffix](b"one\n") + COMPRESSORS[suffix](b"two\n")
    )
    assert list(read_lines(path)) == ["one", "two"]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".xz"])
@pytest.mark.parametrize("end", [1, 5, None])
def test_damage_after_the_first_stream_is_an_error(
    suffix: str, end: int | None, tmp_path: Path
) -> None:
    one, two = map(COMPRESSORS[suffix], (b"one\n", b"two\n"))
    damaged = two[:end] if end else bytes([two[0] ^ 1]) + two[1:]
    with pytest.raises(DataError, match="corrupted or truncated"):
        list(read_lines(write(tmp_path / f"a{suffix}", one + damaged)))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_padding_after_a_stream_is_skipped(suffix: str, tmp_path: Path) -> None:
    one, two, padding = COMPRESSORS[suffix](b"one\n"), COMPRESSORS[suffix](b"two\n"), bytes(20_000)
    assert list(read_lines(write(tmp_path / f"a{suffix}", one + padding + two + padding))) == [
        "one",
        "two",
    ]


def test_zstandard_files_of_pzstd_are_read(tmp_path: Path) -> None:
    frames = [COMPRESSORS[".zst"](text) for text in (b"one\n", b"two\n")]
    skippable = [
        b"\x50\x2a\x4d\x18\x04\x00\x00\x00" + len(frame).to_bytes(4, "little") for frame in frames
    ]
    path = write(tmp_path / "a.zst", b"".join(map(bytes.__add__, skippable, frames)))
    assert list(read_lines(path)) == ["one", "two"]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".xz"])
@pytest.mark.parametrize("keep", [0.5, 0.999])
def test_truncated_file_is_an_error(suffix: str, keep: float, tmp_path: Path) -> None:
    compressed = COMPRESSORS[suffix](LONG)
    path = write(tmp_path / f"a{suffix}", compressed[: int(len(compressed) * keep)])
    with pytest.raises(DataError, match="corrupted or truncated"):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".xz"])
def test_corrupted_file_is_an_error(suffix: str, tmp_path: Path) -> None:
    compressed = bytearray(COMPRESSORS[suffix](LONG))
    compressed[len(compressed) // 2 : len(compressed) // 2 + 40] = bytes(40)
    with pytest.raises(DataError, match="corrupted or truncated"):
        list(read_lines(write(tmp_path / f"a{suffix}", bytes(compressed))))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".xz"])
def test_wrong_suffix_is_an_error(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="despite its suffix"):
        list(read_lines(write(tmp_path / f"a{suffix}", b"plain text\n")))


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    odd = "a\x85b\u2028c\u2029d\x0be\x0cf\x1cg\x1dh\x1ei\rj"
    path = write(tmp_path / "a", f"{odd}\nsecond\r\n\nlast".encode())
    assert list(read_lines(path)) == [odd, "second", "", "last"]


def test_carriage_returns_and_final_line_feed(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "a", b"x\r\r\n"))) == ["x\r"]
    assert list(read_lines(write(tmp_path / "b", b"x\n\n"))) == ["x", ""]
    assert list(read_lines(write(tmp_path / "c", b""))) == []


def test_byte_order_mark_is_dropped_at_start_only(tmp_path: Path) -> None:
    path = write(tmp_path / "a", b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    assert list(read_lines(path)) == ["one", "\ufefftwo"]


def test_invalid_utf8_is_located(tmp_path: Path) -> None:
    path = write(tmp_path / "a.de", "gut\nschön\n".encode("latin-1"))
    with pytest.raises(
        DataError, match=r"a\.de, line 2, byte 4 of the line: not UTF-8 \(0xf6\)"
    ) as caught:
        list(read_lines(path))
    assert "--encoding-errors replace" in caught.value.hint
    assert list(read_lines(path, errors="replace")) == ["gut", "sch\ufffdn"]


def test_missing_file_and_directory_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        list(read_lines(tmp_path / "none"))
    with pytest.raises(DataError, match="is a directory"):
        list(read_lines(tmp_path))


def test_unequal_lengths_are_reported(tmp_path: Path) -> None:
    short = write(tmp_path / "a", b"x\n" * 3)
    long = write(tmp_path / "b", b"x\n" * 1007)
    with pytest.raises(DataError, match=r"a has 3 lines and .*b has 1,007"):
        list(read_pairs(short, long))
    with pytest.raises(DataError, match=r"b has 1,007 lines and .*a has 3"):
        list(read_pairs(long, short))


def test_blank_lines_are_kept(tmp_path: Path) -> None:
    left, right = write(tmp_path / "a", b"one\n\nthree\n"), write(tmp_path / "b", b"eins\nzwei\n\n")
    assert list(read_pairs(left, right)) == [("one", "eins"), ("", "zwei"), ("three", "")]


def test_tsv_reads_two_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", b'one\teins\tby someone\n"two\tzwei"\n\nthree\t\n')
    assert list(read_tsv(path)) == [("one", "eins"), ('"two', 'zwei"'), ("", ""), ("three", "")]


def test_tsv_line_without_tab_is_located(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.tsv, line 2: no tab"):
        list(read_tsv(write(tmp_path / "a.tsv", b"one\teins\ntwo\n")))


def test_tsv_reads_any_two_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", b"news\tone\teins\tx\n\nnews\ttwo\t\n")
    assert list(read_tsv(path, columns=(2, 1))) == [("eins", "one"), ("", ""), ("", "two")]
    with pytest.raises(DataError, match=r"a\.tsv, line 3: 3 columns instead of 4"):
        list(read_tsv(path, columns=(1, 3)))


def test_varying_numbers_of_columns_are_reported_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ["one\teins", *["two\tzwei\tx", "three\tdrei", ""] * 7, "four\tvier\t\t"]
    path = write(tmp_path / "a.tsv", "\n".join(lines).encode())
    for _ in range(2):
        assert len(list(read_tsv(path))) == 23
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert (
        f"warning: {path}: 8 lines with more or fewer than 2 columns (2, 5, 8, 11, 14, ...)"
        in error
    )
    assert len(list(read_tsv(write(tmp_path / "b.tsv", b"\none\teins\tx\ntwo\tzwei\n")))) == 3
    assert "1 line with more or fewer than 3 columns (3);" in capsys.readouterr().err
    assert (
        len(
            list(
                read_tsv(
                    write(tmp_path / "c.tsv", b"one\teins\tx\n\ntwo\tzwei\tx\n"), columns=(0, 2)
                )
            )
        )
        == 3
    )
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_write_and_read_pairs(suffix: str, tmp_path: Path) -> None:
    left, right = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    pairs = [("one", "eins"), ("", "zwei"), ("a\u2028b\x85c", "ü")]
    assert write_pairs(left, right, pairs) == 3
    assert list(read_pairs(left, right)) == pairs
    first = left.read_bytes()
    assert first.startswith(b"\x1f\x8b") == bool(suffix)
    write_pairs(left, right, pairs)
    assert left.read_bytes() == first  # reproducible: no time stamp


def test_files_with_unusual_lines_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nmt.data.pairs.MAX_LINE_BYTES", 10)
    write(tmp_path / "long", b"123456789\n1234567890\n")
    with pytest.raises(DataError, match="long, line 2: longer than 10 bytes"):
        list(read_lines(tmp_path / "long"))
    write(tmp_path / "a", b"a\rb\rc")
    write(tmp_path / "b", b"d\re\rf\r")
    with pytest.raises(DataError, match=r"a and .*b end in CR"):
        list(read_pairs(tmp_path / "a", tmp_path / "b"))
    write(tmp_path / "c", b"d")
    assert list(read_pairs(tmp_path / "a", tmp_path / "c")) == [("a\rb\rc", "d")]
    write(tmp_path / "a", b"a\r\r\n")
    write(tmp_path / "b", b"b\r\r\n")
    assert list(read_pairs(tmp_path / "a", tmp_path / "b")) == [("a\r", "b\r")]
    assert list(read_lines(Path("/dev/null"))) == []
    with pytest.raises(DataError, match="is a pipe or a device"):
        open_text(Path("/dev/zero"))


def test_no_file_is_replaced_if_the_other_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    write(tmp_path / "b", b"eins\n")
    for left, right in (("a", "b"), ("b", "a")):
        with pytest.raises(IsADirectoryError):
            write_pairs(tmp_path / left, tmp_path / right, [("one", "zwei")])
    assert (tmp_path / "b").read_bytes() == b"eins\n"
    assert len(list(tmp_path.iterdir())) == 2


@given(st.lists(st.tuples(st.text(), st.text())))
def test_written_files_stay_aligned(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]
) -> None:
    directory = tmp_path_factory.mktemp("pairs")
    assert write_pairs(directory / "a", directory / "b", pairs) == len(pairs)
    back = list(read_pairs(directory / "a", directory / "b"))
    assert len(back) == len(pairs)
    for (source, target), (source2, target2) in zip(pairs, back, strict=True):
        if not any(c in source + target for c in "\r\n\ufeff"):
            assert (source2, target2) == (source, target)


def test_line_breaks_become_spaces(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a", tmp_path / "b", [("one\ntwo\r\nthree\r", "x")])
    assert (tmp_path / "a").read_bytes() == b"one two three \n"
