from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.pairs import Pair, open_text, read_lines, read_pairs, read_tsv, write_pairs
from nmt.errors import DataError

PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
LONG = "".join(f"line {n} of the text, {n * n}\n" for n in range(20_000)).encode()


def saved(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("suffix", PACKERS)
def test_every_format_is_read_alike(suffix: str, tmp_path: Path) -> None:
    path = saved(tmp_path / f"a.en{suffix}", PACKERS[suffix](LONG))
    assert [line + "\n" for line in read_lines(path)] == LONG.decode().splitlines(keepends=True)
    with open_text(path) as file:
        assert file.read() == LONG


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".xz"])
def test_parts_that_were_joined_are_all_read(suffix: str, tmp_path: Path) -> None:
    path = saved(tmp_path / f"a{suffix}", PACKERS[suffix](b"one\n") + PACKERS[suffix](b"two\n"))
    assert list(read_lines(path)) == ["one", "two"]


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".xz"])
@pytest.mark.parametrize("keep", [0.5, 0.999])
def test_a_cut_file_is_an_error(suffix: str, keep: float, tmp_path: Path) -> None:
    packed = PACKERS[suffix](LONG)
    path = saved(tmp_path / f"a{suffix}", packed[: int(len(packed) * keep)])
    with pytest.raises(DataError, match="corrupted or truncated"):
        list(read_lines(path))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".xz"])
def test_a_damaged_file_is_an_error(suffix: str, tmp_path: Path) -> None:
    packed = bytearray(PACKERS[suffix](LONG))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = bytes(40)
    with pytest.raises(DataError, match="corrupted or truncated"):
        list(read_lines(saved(tmp_path / f"a{suffix}", bytes(packed))))


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".zst", ".xz"])
def test_a_name_that_lies_about_the_format_is_an_error(suffix: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="despite its suffix"):
        list(read_lines(saved(tmp_path / f"a{suffix}", b"plain text\n")))


def test_a_line_is_what_ends_in_a_newline_and_nothing_else(tmp_path: Path) -> None:
    odd = "a\x85b\u2028c\u2029d\x0be\x0cf\x1cg\x1dh\x1ei\rj"
    path = saved(tmp_path / "a", f"{odd}\nsecond\r\n\nlast".encode())
    assert list(read_lines(path)) == [odd, "second", "", "last"]


def test_only_one_carriage_return_is_dropped_and_a_final_newline_ends_no_line(tmp_path: Path) -> None:
    assert list(read_lines(saved(tmp_path / "a", b"x\r\r\n"))) == ["x\r"]
    assert list(read_lines(saved(tmp_path / "b", b"x\n\n"))) == ["x", ""]
    assert list(read_lines(saved(tmp_path / "c", b""))) == []


def test_a_byte_order_mark_is_dropped_at_the_start_only(tmp_path: Path) -> None:
    path = saved(tmp_path / "a", b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n")
    assert list(read_lines(path)) == ["one", "\ufefftwo"]


def test_text_that_is_not_utf8_is_located(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.de", "gut\nschön\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.de, line 2, byte 4 of the line: not UTF-8 \(0xf6\)") as caught:
        list(read_lines(path))
    assert "--encoding-errors replace" in caught.value.hint
    assert list(read_lines(path, errors="replace")) == ["gut", "sch\ufffdn"]


def test_a_missing_file_and_a_folder_are_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        list(read_lines(tmp_path / "none"))
    with pytest.raises(DataError, match="is a folder"):
        list(read_lines(tmp_path))


def test_unequal_files_are_an_error_with_both_counts(tmp_path: Path) -> None:
    short = saved(tmp_path / "a", b"x\n" * 3)
    long = saved(tmp_path / "b", b"x\n" * 1007)
    with pytest.raises(DataError, match=r"a has 3 lines and .*b has 1,007"):
        list(read_pairs(short, long))
    with pytest.raises(DataError, match=r"b has 1,007 lines and .*a has 3"):
        list(read_pairs(long, short))


def test_blank_lines_keep_their_place(tmp_path: Path) -> None:
    left, right = saved(tmp_path / "a", b"one\n\nthree\n"), saved(tmp_path / "b", b"eins\nzwei\n\n")
    assert list(read_pairs(left, right)) == [("one", "eins"), ("", "zwei"), ("three", "")]


def test_tsv_takes_two_columns(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.tsv", b'one\teins\tby someone\n"two\tzwei"\n\nthree\t\n')
    assert list(read_tsv(path)) == [("one", "eins"), ('"two', 'zwei"'), ("", ""), ("three", "")]


def test_a_tsv_line_without_a_tab_is_located(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a\.tsv, line 2: no tab"):
        list(read_tsv(saved(tmp_path / "a.tsv", b"one\teins\ntwo\n")))


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_written_pairs_are_counted_and_read_back(suffix: str, tmp_path: Path) -> None:
    left, right = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    pairs = [("one", "eins"), ("", "zwei"), ("a\u2028b\x85c", "ü")]
    assert write_pairs(left, right, pairs) == 3
    assert list(read_pairs(left, right)) == pairs
    first = left.read_bytes()
    assert first.startswith(b"\x1f\x8b") == bool(suffix)
    write_pairs(left, right, pairs)
    assert left.read_bytes() == first  # no time stamp: same text, same checksum


@given(st.lists(st.tuples(st.text(), st.text())))
def test_no_text_can_shift_the_lines(tmp_path_factory: pytest.TempPathFactory, pairs: list[Pair]) -> None:
    folder = tmp_path_factory.mktemp("pairs")
    assert write_pairs(folder / "a", folder / "b", pairs) == len(pairs)
    back = list(read_pairs(folder / "a", folder / "b"))
    assert len(back) == len(pairs)
    for (source, target), (source2, target2) in zip(pairs, back, strict=True):
        if not any(c in source + target for c in "\r\n\ufeff"):
            assert (source2, target2) == (source, target)


def test_a_line_break_inside_a_sentence_becomes_a_space(tmp_path: Path) -> None:
    write_pairs(tmp_path / "a", tmp_path / "b", [("one\ntwo\r\nthree\r", "x")])
    assert (tmp_path / "a").read_bytes() == b"one two three \n"
