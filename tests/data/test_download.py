from __future__ import annotations

import gzip
import hashlib
import io
import os
import signal
import stat
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from loopback import Loopback, loopback

from nmt.core.errors import DataError, DownloadError, NMTError, UsageError
from nmt.data import download
from nmt.data.archives import SourceFile, extract, list_files, list_members
from nmt.data.download import fetch, mirror_url
from nmt.data.pairs import read_blocks

CONTENT = bytes(range(256)) * 2000  # 512,000 bytes
SHA = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Loopback]:
    monkeypatch.setattr(download, "RETRY_DELAY", 0.01)
    monkeypatch.delenv("NMT_MIRROR", raising=False)
    with loopback() as state:
        yield state


def remaining_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob("*") if path.is_file())


def test_fetch_returns_checksum(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a.zip", CONTENT)
    assert (
        fetch(f"{server.url}/a.zip", tmp_path / "deep" / "a.zip", sha256=SHA, size=len(CONTENT))
        == SHA
    )
    assert (tmp_path / "deep" / "a.zip").read_bytes() == CONTENT
    assert remaining_files(tmp_path) == ["a.zip"]


def test_existing_file_is_kept_unless_checksum_differs(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a", CONTENT)
    (tmp_path / "a").write_bytes(CONTENT)
    assert fetch(f"{server.url}/a", tmp_path / "a", sha256=SHA) == SHA
    assert not server.requests
    (tmp_path / "a").write_bytes(b"wrong")
    fetch(f"{server.url}/a", tmp_path / "a", sha256=SHA)
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_dropped_connection_is_resumed(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a", CONTENT, faults=[("drop", 100_000), ("drop", 50_000)])
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA
    assert server.ranges() == [None, "bytes=100000-", "bytes=150000-"]
    assert server.requests[1][1]["if-range"] == '"v1"'


def test_progress_resets_failure_count(server: Loopback, tmp_path: Path) -> None:
    drops = 3 * download.MAX_FAILURES
    server.serve("/a", CONTENT, faults=[("drop", 1000)] * drops)
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA
    assert len(server.requests) == drops + 1


def test_later_call_resumes_partial_download(server: Loopback, tmp_path: Path) -> None:
    resource = server.serve("/a", CONTENT, faults=[("drop", 100_000), *[503] * 100])
    with pytest.raises(DownloadError, match="503"):
        fetch(f"{server.url}/a", tmp_path / "a")
    assert (tmp_path / "a.part").stat().st_size == 100_000
    resource.faults.clear()
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA
    assert server.ranges()[-1] == "bytes=100000-"
    assert remaining_files(tmp_path) == ["a"]


def test_file_that_changes_with_every_request_is_an_error(server: Loopback, tmp_path: Path) -> None:
    resource = server.serve("/a", CONTENT, if_range=False, faults=[("drop", 100_000)] * 100)

    class Changing(list[object]):
        def pop(self, index: int = -1) -> object:
            resource.etag += "x"
            return super().pop(index)

    resource.faults = Changing(resource.faults)
    with pytest.raises(DownloadError, match="cannot download"):
        fetch(f"{server.url}/a", tmp_path / "a")
    assert len(server.requests) < 12


@pytest.mark.parametrize("etag", ['"é"', 'W/"v1"'])
def test_etag_that_cannot_identify_a_range_is_ignored(
    etag: str, server: Loopback, tmp_path: Path
) -> None:
    server.serve("/a", CONTENT, etag=etag, faults=[("drop", 100_000)])
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA
    assert server.ranges() == [None, None]


@pytest.mark.parametrize("if_range", [True, False])
def test_changed_file_is_downloaded_from_start(
    if_range: bool, server: Loopback, tmp_path: Path
) -> None:
    server.serve("/a", b"x" * 1000, faults=[("drop", 500), *[503] * 100])
    with pytest.raises(DownloadError):
        fetch(f"{server.url}/a", tmp_path / "a")
    server.serve("/a", CONTENT, etag='"v2"', if_range=if_range)
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA


def test_server_without_ranges_restarts_download(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a", CONTENT, ranges=False, faults=[("drop", 100_000)])
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA


def test_resume_without_validator_needs_checksum(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a", CONTENT, etag="", faults=[("drop", 100_000)])
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA
    server.serve("/b", CONTENT, etag="", faults=[("drop", 100_000)])
    assert fetch(f"{server.url}/b", tmp_path / "b", sha256=SHA) == SHA
    assert server.ranges() == [None, None, None, "bytes=100000-"]


def test_wrong_range_is_rejected(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a", CONTENT, shift=7, faults=[("drop", 100_000)])
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA


def test_complete_part_is_accepted(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a", CONTENT)
    (tmp_path / "a.part").write_bytes(CONTENT)
    (tmp_path / "a.part.tag").write_text('"v1"')
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA
    assert len(server.requests) == 1


def test_too_long_part_is_discarded(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a", CONTENT)
    (tmp_path / "a.part").write_bytes(CONTENT + b"more")
    (tmp_path / "a.part.tag").write_text('"v1"')
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA


def test_temporary_errors_are_retried(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a", CONTENT, faults=[503, 429, 500])
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA
    assert len(server.requests) == 4


def test_missing_file_is_not_retried(server: Loopback, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="404") as caught:
        fetch(f"{server.url}/none", tmp_path / "a", alternative="import a file")
    assert len(server.requests) == 1
    assert "import a file" in caught.value.hint
    assert remaining_files(tmp_path) == []


def test_persistent_server_error_aborts(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a", CONTENT, faults=[503] * 100)
    with pytest.raises(DownloadError, match="503"):
        fetch(f"{server.url}/a", tmp_path / "a")
    assert len(server.requests) == download.MAX_FAILURES
    assert remaining_files(tmp_path) == []


def test_missing_network_is_one_line_with_hint(server: Loopback, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"cannot download http://127\.0\.0\.1:1/a") as caught:
        fetch("http://127.0.0.1:1/a", tmp_path / "a")
    assert "--from" in caught.value.hint
    assert "\n" not in caught.value.message
    assert remaining_files(tmp_path) == []


@pytest.mark.parametrize("expected", [{"sha256": "0" * 64}, {"size": 5}])
def test_unexpected_file_is_rejected_and_deleted(
    server: Loopback, tmp_path: Path, expected: dict[str, object]
) -> None:
    server.serve("/a", CONTENT)
    with pytest.raises(DownloadError, match="not the expected file") as caught:
        fetch(f"{server.url}/a", tmp_path / "a", **expected)
    assert caught.value.hint.startswith("re-run the command to download it again, or ")
    assert remaining_files(tmp_path) == []


def test_empty_file_is_rejected(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a", b"")
    with pytest.raises(DownloadError, match="empty"):
        fetch(f"{server.url}/a", tmp_path / "a")
    assert remaining_files(tmp_path) == []


def test_redirect_is_followed(server: Loopback, tmp_path: Path) -> None:
    server.serve("/b", CONTENT)
    server.serve("/a", b"", redirect="/b")
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA


@pytest.mark.slow
def test_interrupted_download_is_resumable(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a", CONTENT, faults=[("drop", 200_000), *[503] * 100])
    code = (
        # Background jobs ignore SIGINT
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\nfrom pathlib"
        f" import Path; from nmt.data.download import fetch; fetch('{server.url}/a', Path('a'))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    while len(server.requests) < 2:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    process.wait(10)
    assert (tmp_path / "a.part").stat().st_size == 200_000
    server.resources["/a"].faults.clear()
    assert fetch(f"{server.url}/a", tmp_path / "a") == SHA
    assert server.ranges()[-1] == "bytes=200000-"


def test_write_error_is_reported(server: Loopback, tmp_path: Path) -> None:
    server.serve("/a", CONTENT)
    (tmp_path / "file").touch()
    with pytest.raises(DownloadError, match="cannot write"):
        fetch(f"{server.url}/a", tmp_path / "file" / "a")


def test_mirror_redirects_all_urls(
    server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.serve("/example.org/x/a.zip", CONTENT)
    monkeypatch.setenv("NMT_MIRROR", f"{server.url}/")
    assert mirror_url("https://example.org/x") == f"{server.url}/example.org/x"
    assert fetch("https://example.org/x/a.zip", tmp_path / "a.zip") == SHA
    monkeypatch.setenv("NMT_MIRROR", "ftp://example.org")
    with pytest.raises(UsageError, match="NMT_MIRROR"):
        mirror_url("https://example.org/x")


# --- archives ---


def make_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def make_tar(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            file.addfile(member, io.BytesIO(content))
    return path


def read_all(archive: Path) -> dict[str, bytes]:
    return {file.member: b"".join(read_blocks(file)) for file in list_members(archive)}


@pytest.mark.parametrize(
    ("make_archive", "name"),
    [(make_zip, "a.zip"), (make_tar, "a.tar.gz"), (make_tar, "a.tgz"), (make_tar, "a.txz")],
)
def test_archives_are_read_without_unpacking(make_archive, name: str, tmp_path: Path) -> None:
    members = {"in/y.txt": b"two\n", "x.txt": b"one\n", "z.txt.gz": gzip.compress(b"three\n")}
    archive = make_archive(tmp_path / name, members)
    files = list_files([archive])
    assert [str(file) for file in files] == [f"{archive}/{member}" for member in members]
    assert [file.name for file in files] == ["y.txt", "x.txt", "z.txt.gz"]
    opened = [file.open_text() for file in files]  # all at the same time
    assert [file.readline() for file in opened] == [b"two\n", b"one\n", b"three\n"]
    for file in opened:
        file.close()
    assert remaining_files(tmp_path) == [name]


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "..\\evil", "C:\\evil"])
@pytest.mark.parametrize(("make_archive", "suffix"), [(make_zip, "zip"), (make_tar, "tar.gz")])
def test_archive_with_path_traversal_is_rejected(
    make_archive, suffix: str, name: str, tmp_path: Path
) -> None:
    archive = make_archive(tmp_path / f"a.{suffix}", {"good.txt": b"x", name: b"evil"})
    with pytest.raises(DownloadError, match="outside its directory"):
        read_all(archive)
    with pytest.raises(DownloadError):
        extract(archive, tmp_path / "out" / "directory")
    assert remaining_files(tmp_path) == [archive.name]
    assert not (tmp_path / "out" / "directory").exists()


def test_archive_with_two_files_of_a_name_is_rejected(tmp_path: Path) -> None:
    make_zip(tmp_path / "a.zip", dict.fromkeys(("x", "y", "./x"), b"x"))
    with pytest.raises(DownloadError, match=r"a\.zip has two files of one name"):
        extract(tmp_path / "a.zip", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_encrypted_archive_is_rejected(tmp_path: Path) -> None:
    raw = bytearray(make_zip(tmp_path / "a.zip", {"x": b"x"}).read_bytes())
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(raw)
    with pytest.raises(DownloadError, match=r"a\.zip is encrypted"):
        extract(tmp_path / "a.zip", tmp_path / "out")


def test_bomb_in_a_compressed_file_is_rejected(tmp_path: Path) -> None:
    bomb = gzip.compress(bytes(30 << 20))
    (tmp_path / "a.gz").write_bytes(bomb)
    archive = make_zip(tmp_path / "b.zip", {"a.gz": bomb})
    for file in (SourceFile(tmp_path / "a.gz"), *list_members(archive)):
        with pytest.raises(DownloadError, match=r"is unsafe: .* expand to"):
            list(read_blocks(file))


def test_pipe_is_no_archive(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.zip")
    with pytest.raises(DataError, match=r"a\.zip is a pipe or a device"):
        list_files([tmp_path / "a.zip"])


def test_archive_with_link_is_rejected(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as file:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        file.writestr(link, "/etc/passwd")
    with tarfile.open(tmp_path / "a.tar", "w") as packed:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo("link")
            member.type, member.linkname = kind, "/etc/passwd"
            packed.addfile(member)
    for name in ("a.zip", "a.tar"):
        with pytest.raises(DownloadError, match="link or a device"):
            list_members(tmp_path / name)


@pytest.mark.parametrize(("make_archive", "suffix"), [(make_zip, "zip"), (make_tar, "tar.gz")])
def test_zip_bomb_is_rejected(make_archive, suffix: str, tmp_path: Path) -> None:
    archive = make_archive(tmp_path / f"a.{suffix}", {"small.txt": b"x", "zeros": bytes(30 << 20)})
    with pytest.raises(DownloadError, match=r"unsafe: .* expand to"):
        read_all(archive)


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_bomb_in_a_header_is_rejected(kind: int, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz", format=kind) as file:
        file.addfile(tarfile.TarInfo("x" * (20 << 20)))
    with pytest.raises(DownloadError, match=r"unsafe: .* expand to 2[01],"):
        read_all(tmp_path / "a.tar.gz")


def test_member_with_wrong_size_is_rejected(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"a.txt": b"x" * 100_000})
    raw = archive.read_bytes()
    directory = raw.index(b"PK\x01\x02")
    wrong_size = (10).to_bytes(4, "little")
    archive.write_bytes(raw[: directory + 24] + wrong_size + raw[directory + 28 :])
    with pytest.raises(NMTError, match="corrupted or truncated"):
        read_all(archive)
    with pytest.raises(DownloadError, match="corrupted or truncated"):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("make_archive", "suffix"), [(make_zip, "zip"), (make_tar, "tar.gz")])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_truncated_archive_is_rejected(
    make_archive, suffix: str, keep: float, tmp_path: Path
) -> None:
    archive = make_archive(
        tmp_path / f"a.{suffix}", {"a.txt": os.urandom(50_000), "b.txt": os.urandom(50_000)}
    )
    raw = archive.read_bytes()
    archive.write_bytes(raw[: int(len(raw) * keep)])
    with pytest.raises(DownloadError, match="corrupted or truncated"):
        read_all(archive)


def test_bit_flip_is_detected(tmp_path: Path) -> None:
    archive = make_zip(tmp_path / "a.zip", {"a.txt": os.urandom(50_000)})
    raw = bytearray(archive.read_bytes())
    raw[20_000] ^= 1
    archive.write_bytes(raw)
    with pytest.raises(NMTError, match="corrupted or truncated"):
        read_all(archive)
    with pytest.raises(DownloadError, match="corrupted or truncated"):
        extract(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_html_instead_of_archive_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_text("<html>please log in</html>")
    with pytest.raises(DownloadError, match="corrupted or truncated"):
        read_all(tmp_path / "a.zip")


def test_directories_and_files_are_listed(tmp_path: Path) -> None:
    (tmp_path / "directory" / "deeper").mkdir(parents=True)
    (tmp_path / "directory" / "b.txt").touch()
    (tmp_path / "directory" / "deeper" / "c.txt").touch()
    (tmp_path / "a.txt").touch()
    files = list_files([tmp_path / "directory", tmp_path / "a.txt"])
    assert [file.name for file in files] == ["b.txt", "a.txt"]
    with pytest.raises(DataError, match="no such file or directory"):
        list_files([tmp_path / "none"])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ALL_PROXY", "socks://localhost:9"),
        ("HTTPS_PROXY", "ftp://x"),
        ("SSL_CERT_FILE", "/missing.pem"),
    ],
)
def test_unusable_proxy_or_certificates_are_reported(
    name: str, value: str, server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(DownloadError, match="proxy or certificates of the environment") as caught:
        fetch(f"{server.url}/a", tmp_path / "a")
    assert name in caught.value.hint
