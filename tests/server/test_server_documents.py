"""The processes of documents in the server: limits, clients that leave, and what they send to each
other."""

from __future__ import annotations

import asyncio
import gc
import io
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import httpx
import pytest
from event_loops import in_a_thread
from hypothesis import given
from hypothesis import strategies as st
from serving import connect, serving, until
from starlette.exceptions import HTTPException

from nmt import Guard, Translator
from nmt.core import plugins
from nmt.core.errors import DataError, NMTError
from nmt.documents.formats import FORMATS, DocumentOptions
from nmt.server import app, fields, files, worker
from nmt.server.limits import FairSlots, Limits
from nmt.server.service import Service

NUM_BYTES = 3_900_000
CUE = "1\n00:00:01,000 --> 00:00:02,000\n"
SLOW = {
    "a.md": "\\[",
    "b.md": "~~a",
    "c.md": "**a** ",
    "d.md": "_a*",
    "e.md": "* a\n",
    "f.html": "<p>a",
    "g.srt": "- a\n",
    "h.html": "a<br>",
    "i.po": 'msgid "a"\nmsgstr ""\n',
    "j.csv": "a\n",
    "k.txt": "\r",
    "l.vtt": "WEBVTT\n\n",
}
"""Texts whose repetition takes long to parse."""
REJECTED_EARLY = {"e.md", "f.html", "g.srt", "h.html", "j.csv", "k.txt", "l.vtt"}
"""Those with too many lines or elements."""


def repeated(text: str) -> bytes:
    return (text * (NUM_BYTES // len(text))).encode()


def slow_file(name: str) -> bytes:
    return (CUE.encode() if name.endswith(".srt") else b"") + repeated(SLOW[name])


def office_file(body: str, num_parts: int = 1) -> bytes:
    """Return a DOCX file with equal parts."""
    namespace = "http://schemas.openxmlformats.org/"
    type = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED) as archive:
        types = [
            f'<Override PartName="/word/p{i}.xml" ContentType="{type}.header+xml"/>'
            for i in range(num_parts - 1)
        ]
        types.append(
            f'<Override PartName="/word/document.xml" ContentType="{type}.document.main+xml"/>'
        )
        content = f'<Types xmlns="{namespace}package/2006/content-types">{"".join(types)}</Types>'
        archive.writestr("[Content_Types].xml", content)
        names = ["document", *(f"p{i}" for i in range(num_parts - 1))]
        for name in names:
            root = (
                "<w:document"
                f' xmlns:w="{namespace}wordprocessingml/2006/main"><w:body>{body}</w:body></w:document>'  # noqa: E501
            )
            archive.writestr(f"word/{name}.xml", root)
    return output.getvalue()


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    service = Service([Guard(Translator.load("en-de"))], search="greedy", confidence=False)
    yield service
    service.close()


def send_file(
    client: httpx.Client, name: str, content: bytes, source: str = "en"
) -> httpx.Response:
    return client.post(
        "/translate_file", files={"file": (name, content)}, data={"source": source, "target": "de"}
    )


def upload_request(name: bytes, content: bytes) -> bytes:
    """Return the bytes of an upload."""
    fields = b"".join(
        b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % field
        for field in ((b"source", b"en"), (b"target", b"de"))
    )
    file = b'--b\r\nContent-Disposition: form-data; name="file"; filename="%b"\r\n\r\n' % name
    body = fields + file + content + b"\r\n--b--\r\n"
    head = (
        b"POST /translate_file HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data;"
        b" boundary=b\r\n"
    )
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def memory(pid: int, name: str) -> int:
    """Return a figure of the memory of a process in MB, such as VmRSS, the resident size; 0 if it
    has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    # None if it is about to end.
    values = [line.split()[1] for line in lines if line.startswith(f"{name}:")]
    return int(values[0]) // 1000 if values else 0


# ---- limits


@pytest.mark.slow
def test_files_with_too_many_elements_are_rejected_before_they_are_parsed(service: Service) -> None:
    with serving(service) as client:
        for name in REJECTED_EARLY:
            response = send_file(client, name, slow_file(name))
            assert response.status_code == 400, name
            error = "Invalid request: the file has more than 400,000 lines or elements of markup"
            assert response.json() == {"error": error}
    assert multiprocessing.active_children() == []


@pytest.mark.parametrize("num_parts", [1, 20])
def test_an_office_file_with_too_many_elements_is_rejected_before_it_is_parsed(
    service: Service, monkeypatch: pytest.MonkeyPatch, num_parts: int
) -> None:
    from nmt.documents import office

    content = office_file("<w:p/>" * (2_000_000 // num_parts), num_parts)
    assert len(content) < 100_000
    parsed: list[str] = []
    parse = office.parse_part

    def parse_and_record(*arguments: Any) -> Any:
        parsed.append(arguments[2])
        return parse(*arguments)

    monkeypatch.setattr(office, "parse_part", parse_and_record)
    with pytest.raises(DataError, match="more than 400,000 lines or elements"):
        FORMATS[".docx"](content, DocumentOptions("en", "de", max_elements=400_000))
    assert parsed == ["[Content_Types].xml"]
    with serving(service) as client:
        assert "more than 400,000 lines or elements" in send_file(client, "a.docx", content).text


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no limit of processor time")
@pytest.mark.parametrize("name", sorted(SLOW.keys() - REJECTED_EARLY))
def test_processor_time_is_limited(
    service: Service, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(app, "PARSE_SECONDS", 1)
    monkeypatch.setattr(files, "WALL_TIME", 600)
    with serving(service) as client:
        response = send_file(client, name, slow_file(name))
    assert (response.status_code, response.json()["error"]) in [
        (400, "Invalid request: reading the file takes too long"),
        (
            400,
            f"Invalid request: file ({NUM_BYTES // len(SLOW[name])}) exceeds text limit (200000)",
        ),
    ]


def test_time_is_limited(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WALL_TIME", 0.01)
    with serving(service) as client:
        response = send_file(client, "a.md", slow_file("a.md"))
    assert (response.status_code, response.json()["error"]) == (
        400,
        "Invalid request: reading the file takes too long",
    )
    until(lambda: multiprocessing.active_children() == [])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="has no limit of memory")
def test_memory_is_limited(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "FILE_MEMORY", 40_000_000)
    with serving(service) as client:
        response = send_file(client, "c.md", slow_file("c.md"))
        assert response.status_code == 400
        assert "memory" in response.json()["error"]
        assert send_file(client, "a.docx", office_file("<w:p/>" * 390_000)).status_code == 400
        assert send_file(client, "a.txt", b"Are we done?").is_success


def test_a_process_that_ends_is_an_error_of_the_file(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive = files.DocumentProcess.receive

    def end_and_receive(process: files.DocumentProcess) -> Any:
        process._process.kill()
        return receive(process)

    monkeypatch.setattr(files.DocumentProcess, "receive", end_and_receive)
    with serving(service) as client:
        response = send_file(client, "a.md", slow_file("a.md"))
    assert (response.status_code, "cannot be read" in response.json()["error"]) == (400, True)


# ---- other clients


@pytest.mark.slow
def test_other_uploads_are_answered_and_processes_end_when_clients_leave(service: Service) -> None:
    with serving(service, Limits(max_files=3)) as client:
        with ExitStack() as stack:
            for _ in range(6):
                hostile = stack.enter_context(connect(client))
                hostile.sendall(upload_request(b"a.md", slow_file("a.md")))
            # The last slot is for small files.
            until(lambda: len(multiprocessing.active_children()) == 2)
            processes = {process.pid for process in multiprocessing.active_children()}
            for _ in range(3):
                assert send_file(client, "a.txt", b"Are we done?").is_success
                html = {
                    "q": "<p>Are we done?</p>",
                    "source": "en",
                    "target": "de",
                    "format": "html",
                }
                assert client.post("/translate", json=html).is_success
            until(
                lambda: {process.pid for process in multiprocessing.active_children()} == processes
            )
        until(lambda: multiprocessing.active_children() == [])


def test_the_server_does_not_parse(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(content: bytes, options: DocumentOptions) -> Any:
        raise AssertionError

    for suffix in FORMATS:
        monkeypatch.setitem(FORMATS, suffix, fail)
    with serving(service) as client:
        assert send_file(client, "a.md", b"Are we done?", "auto").is_success
        html = {
            "q": ["<p>Are we done?</p>"] * 2,
            "source": "auto",
            "target": "de",
            "format": "html",
        }
        assert (
            client.post("/translate", json=html).json()["translatedText"]
            == ["<p>Sind wir fertig?</p>"] * 2
        )


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_the_server_stays_small(service: Service) -> None:
    before = memory(os.getpid(), "VmRSS")
    with serving(service) as client, ExitStack() as stack:
        for name in ("a.md", "c.md", "e.md", "f.html"):
            stack.enter_context(connect(client)).sendall(
                upload_request(name.encode(), slow_file(name))
            )
        for _ in range(3):
            assert send_file(client, "a.txt", b"Are we done?").is_success
        until(
            lambda: any(
                memory(each.pid or 0, "VmRSS") > 150 for each in multiprocessing.active_children()
            )
        )
        assert memory(os.getpid(), "VmRSS") < before + 100
    until(lambda: multiprocessing.active_children() == [])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_uploads_are_not_in_memory(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fields, "BODY_TIMEOUT", 600)
    request = upload_request(b"a.txt", bytes(9_900_000))
    with serving(service) as client, ExitStack() as stack:
        before = memory(os.getpid(), "VmRSS")
        open_before = num_open_files()
        for count in range(1, 17):
            upload = stack.enter_context(connect(client))
            upload.sendall(request[:-1])
            until(lambda count=count: num_requests(client) == count + 1)  # type: ignore[misc]
        assert memory(os.getpid(), "VmRSS") < before + 40
        assert num_open_files() == open_before + 16


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_uploads_are_deleted_at_once(service: Service) -> None:
    content = bytes(3_000_000)
    before = num_open_files()
    gc.disable()
    try:
        with serving(service) as client:
            assert send_file(client, "a.txt", content).status_code == 400
            assert send_file(client, "a.exe", content).status_code == 400
            assert client.post("/translate_file", files=[("x", content)] * 3).status_code == 400
            with connect(client) as leaving:
                leaving.sendall(upload_request(b"a.txt", content)[:-1])
                until(lambda: num_open_files() == before + 1)
            with connect(client) as badly_named:
                badly_named.sendall(upload_request(b"caf\xe9.txt", content))
                answer = badly_named.recv(65536)
                assert answer.startswith(b"HTTP/1.1 400 ")
            until(lambda: num_open_files() == before)
    finally:
        gc.enable()


def num_open_files() -> int:
    """Return the number of temporary files that this process has open."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            count += link.readlink().is_relative_to(tempfile.gettempdir() + "/")
    return count


def num_requests(client: httpx.Client) -> int:
    """Return the number of requests that are handled, with this one."""
    return int(re.search(r"^nmt_requests_in_flight (\d+)", client.get("/metrics").text, re.M)[1])


@pytest.mark.parametrize("content_type", ["application/json", "application/x-www-form-urlencoded"])
def test_only_forms_with_files_may_be_large(service: Service, content_type: str) -> None:
    with serving(service) as client:
        for path in ("/translate", "/translate_file"):
            response = client.post(
                path, content=b"[" * 500_000, headers={"Content-Type": content_type}
            )
            assert response.status_code == 413


@pytest.mark.parametrize("charset", ["undefined", "punycode", "latin-1"])
def test_the_client_does_not_choose_the_codec_of_a_form(service: Service, charset: str) -> None:
    headers = {"Content-Type": f"multipart/form-data; boundary=b; charset={charset}"}
    values = {b"q": "Tschüß".encode(), b"source": b"en", b"target": b"en"}
    parts = b"".join(
        b'--b\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % field
        for field in values.items()
    )
    with serving(service) as client:
        response = client.post("/translate", content=parts + b"--b--\r\n", headers=headers)
    assert response.json()["translatedText"] == "Tschüß"


@pytest.mark.slow
def test_processes_have_neither_pytorch_nor_the_web_framework() -> None:
    code = (
        f"import sys, {', '.join(files.PRELOADED)}; print(sys.modules.keys() & {{'torch',"
        " 'starlette', 'uvicorn'})"
    )
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"


# ---- what the server and a process send


class Peer:
    """The server's end of the connection to a worker in a thread, and how often documents are
    parsed."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, suffix: str, source: str = "", max_length: int = 1000
    ) -> None:
        self.num_parses = 0
        self.connection, other_end = Pipe()
        self.config = Translator.load("en-de").config
        task = worker.Task(suffix, DocumentOptions(source, "de"), max_length, 1000, 2**30)
        parse = FORMATS[suffix]

        def count(content: bytes, options: DocumentOptions) -> Any:
            self.num_parses += 1
            return parse(content, options)

        monkeypatch.setitem(FORMATS, suffix, count)
        for name in ("_limit_memory", "_limit_seconds"):
            monkeypatch.setattr(worker, name, lambda limit: None)
        monkeypatch.setattr(worker.signal, "signal", lambda *args: None)
        self.thread = threading.Thread(target=worker.work, args=(other_end, task))
        self.thread.start()

    def order(self, *indices: int) -> Any:
        """Order translations, copy all lines, and return the answer."""
        self.connection.send(worker.Order(indices, self.config, str))
        while isinstance(answer := self.connection.recv(), worker.Request):
            texts = [line if isinstance(line, str) else line.text for line in answer.lines]
            self.connection.send([[worker.Translation(text.upper(), 0.0, 0.0)] for text in texts])
        return answer

    def close(self) -> None:
        self.connection.close()
        self.thread.join()


@pytest.mark.parametrize(
    ("suffix", "content", "source", "num_parses"),
    [
        (".html", "<p>A dog.</p>", "en", 1),
        (".html", "<p>A dog.</p>", "", 1),
        (".html", "<p lang=en>A dog.</p>", "", 2),
        (".html", "<p LANG=en>A dog.</p>", "en", 1),
        (".md", "# A dog\n", "", 1),
        (".md", '<p xml:lang="de">A dog.</p>\n', "", 2),
        (".txt", "A dog and its language.\n", "", 1),
        (".srt", CUE + "A dog.\n", "", 2),
        (".csv", "lang\nA dog.\n", "", 1),
    ],
)
def test_a_document_is_parsed_once_unless_its_language_matters(
    monkeypatch: pytest.MonkeyPatch, suffix: str, content: str, source: str, num_parses: int
) -> None:
    peer = Peer(monkeypatch, suffix, source)
    peer.connection.send([content.encode()])
    (sample,) = peer.connection.recv()
    assert "dog" in sample.text
    (translated,) = peer.order(0)
    expected = content.upper().replace("LANG=EN", "LANG=DE")
    assert translated.content.decode().upper() == expected
    assert peer.num_parses == num_parses
    peer.close()


def test_documents_of_a_request_are_translated_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    peer = Peer(monkeypatch, ".html")
    peer.connection.send([f"<p>dog {i}</p>".encode() for i in range(5)])
    assert [sample.text for sample in peer.connection.recv()] == [f"dog {i}" for i in range(5)]
    assert [each.content for each in peer.order(3, 1)] == [b"<p>DOG 3</p>", b"<p>DOG 1</p>"]
    assert [each.content for each in peer.order(4)] == [b"<p>DOG 4</p>"]
    peer.close()


def test_a_sample_is_short_and_begins_with_the_longest_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    peer = Peer(monkeypatch, ".txt", max_length=10)
    peer.connection.send([b"dog\n\nA dog runs.\n\n" + b"a" * 50_000])
    (sample,) = peer.connection.recv()
    assert sample.text.startswith("A dog runs.\n")
    assert (len(sample.text), sample.num_characters) == (worker.MAX_SAMPLE, 50_014)
    assert str(peer.order(0)) == "file (50014) exceeds text limit (10)"
    peer.thread.join()


def test_errors_of_plugins_are_not_errors_of_the_client(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    registration = plugins._Registration(None, "", "")
    monkeypatch.setitem(plugins._registrations["format"], ".mine", registration)
    monkeypatch.setitem(FORMATS, ".mine", lambda content, options: "secret")
    peer = Peer(monkeypatch, ".mine", "en")
    peer.connection.send([b"secret"])
    failure = peer.connection.recv()
    peer.close()
    message = "the format '.mine' returned an object of type str, not a document"
    assert type(failure) is NMTError  # answered with status 500
    assert message in failure.message
    logged = capsys.readouterr().err
    assert message in logged
    assert "secret" not in logged


def test_errors_of_a_process_are_sent_and_logged_without_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(content: bytes, options: DocumentOptions) -> Any:
        raise errors[content.decode()]

    errors = {"a": DataError("line 1: wrong"), "b": MemoryError(), "c": ValueError("secret")}
    expected = {
        "a": "line 1: wrong",
        "b": "the file takes too much memory to read",
        "c": "the process of a document",
    }
    for content, message in expected.items():
        peer = Peer(monkeypatch, ".txt")
        monkeypatch.setitem(FORMATS, ".txt", fail)
        peer.connection.send([content.encode()])
        answer = peer.connection.recv()
        assert str(answer).startswith(message)
        assert isinstance(answer, DataError) == (content != "c")
        peer.close()
    log = capsys.readouterr().err
    assert "ValueError in the process of a document (" in log
    assert "secret" not in log


def test_a_process_ends_when_the_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    Peer(monkeypatch, ".txt").close()
    peer = Peer(monkeypatch, ".txt")
    peer.connection.send([b"A dog."])
    peer.close()


FRAGMENTS = st.lists(
    st.sampled_from(
        [
            "<p>",
            "</p>",
            "<b>",
            "</b>",
            "<i class=x>",
            "A dog. ",
            "Ein Hund. ",
            "* a\n",
            "\n\n",
            "`a` ",
            "<html>",
            "&amp;",
        ]
    ),
    max_size=20,
)


@given(FRAGMENTS, st.sampled_from([".html", ".md"]))
def test_the_language_does_not_matter_where_no_language_is_named(
    fragments: list[str], suffix: str
) -> None:
    content = "".join(fragments).encode()
    assert not worker.needs_language(content, suffix)
    unknown, known = (
        FORMATS[suffix](content, DocumentOptions(source, "de")) for source in ("", "en")
    )
    assert list(unknown.blocks) == list(known.blocks)
    assert unknown.render(unknown.blocks) == known.render(known.blocks)


class RecordingOptions(DocumentOptions):
    """Options that remember whether the source language was read."""

    reads: list[str] = []  # noqa: RUF012

    def __getattribute__(self, name: str) -> Any:
        RecordingOptions.reads.append(name)
        return super().__getattribute__(name)


@pytest.mark.parametrize("suffix", sorted(FORMATS))
def test_formats_that_read_the_language_are_listed(suffix: str) -> None:
    options = RecordingOptions("en", "de", keys=("a",))
    contents = {
        ".docx": office_file("<w:p><w:r><w:t>A dog.</w:t></w:r></w:p>"),
        ".json": b'{"a": "A dog."}',
        ".jsonl": b'{"a": "A dog."}\n',
        ".po": b'msgid "a"\nmsgstr ""\n',
        ".srt": f"{CUE}A dog.\n".encode(),
        ".vtt": b"WEBVTT\n\n00:01.000 --> 00:02.000\nA dog.\n",
        ".xlf": b'<xliff version="1.2"><file source-language="en"><body/></file></xliff>',
    }
    same = {".pptx": ".docx", ".pot": ".po", ".xliff": ".xlf"}
    RecordingOptions.reads.clear()
    FORMATS[suffix](contents.get(same.get(suffix, suffix), b"A dog.\n"), options)
    is_listed = suffix in worker._LANGUAGE_MATTERS + worker._LANGUAGE_IS_NAMED
    assert ("src" in RecordingOptions.reads) <= is_listed


# ---- slots


class Uploads:
    """Uploads of clients to slots; each occupies its slot until it is ended."""

    def __init__(self, slots: FairSlots) -> None:
        self.slots = slots
        self.running: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, name: str, client: str, *, is_small: bool = True) -> None:
        self.tasks[name] = asyncio.create_task(self._run(name, client, is_small))
        await settle()

    async def end(self, name: str) -> None:
        self.tasks[name].cancel()
        await asyncio.gather(self.tasks.pop(name), return_exceptions=True)
        await settle()

    async def _run(self, name: str, client: str, is_small: bool) -> None:
        async with self.slots.use(client, is_small=is_small):
            self.running.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                self.running.remove(name)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def test_the_client_with_the_fewest_slots_is_the_next() -> None:
    async def run() -> None:
        uploads = Uploads(FairSlots(2, 10, 60))
        for name in ("a1", "a2", "a3", "a4", "b1"):
            await uploads.start(name, name[0])
        assert uploads.running == ["a1", "a2"]
        await uploads.end("a1")
        assert uploads.running == ["a2", "b1"]
        await uploads.end("a2")
        assert uploads.running == ["b1", "a3"]
        await uploads.end("a4")  # it waits
        await uploads.end("b1")
        await uploads.end("a3")
        assert (uploads.running, uploads.slots.occupied) == ([], {})

    in_a_thread(run())


def test_the_last_slot_is_for_small_files() -> None:
    async def run() -> None:
        uploads = Uploads(FairSlots(2, 10, 60))
        for name in ("a", "b", "c"):
            await uploads.start(name, name, is_small=False)
        await uploads.start("small", "a")
        assert uploads.running == ["a", "small"]
        await uploads.end("a")
        assert uploads.running == ["small"]
        await uploads.end("small")
        assert uploads.running == ["b"]
        single = Uploads(FairSlots(1, 10, 60))
        await single.start("a", "a", is_small=False)
        assert single.running == ["a"]
        for name in ("b", "c"):
            await uploads.end(name)
        await single.end("a")

    in_a_thread(run())


def test_the_queue_and_the_wait_are_limited() -> None:
    async def run() -> None:
        uploads = Uploads(FairSlots(1, 1, 60))
        for name in ("a", "b", "c"):
            await uploads.start(name, name)
        with pytest.raises(HTTPException, match="busy"):
            await uploads.tasks.pop("c")
        await uploads.end("a")
        assert uploads.running == ["b"]
        uploads.slots.max_wait = 0.001
        await uploads.start("d", "d")
        with pytest.raises(HTTPException, match="busy"):
            await uploads.tasks.pop("d")
        await uploads.end("b")
        await uploads.start("e", "e")
        assert uploads.running == ["e"]
        await uploads.end("e")

    in_a_thread(run())


@given(
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from("abc"), st.booleans()), max_size=30),
    st.integers(1, 3),
)
def test_slots_are_neither_lost_nor_given_twice(
    steps: list[tuple[int, str, bool]], count: int
) -> None:
    async def run() -> None:
        uploads = Uploads(FairSlots(count, 100, 60))
        sizes: dict[str, bool] = {}
        for number, client, is_small in steps:
            name = str(number)
            if name in uploads.tasks:
                await uploads.end(name)
            else:
                sizes[name] = is_small
                await uploads.start(name, client, is_small=is_small)
            waiting = [name for name in uploads.tasks if name not in uploads.running]
            num_free = count - len(uploads.running)
            assert num_free >= 0
            for name in waiting:
                assert num_free == 0 or (num_free == 1 < count and not sizes[name])
        for name in list(uploads.tasks):
            await uploads.end(name)
        assert not uploads.slots.occupied

    in_a_thread(run())
