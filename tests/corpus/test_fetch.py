"""Fetching a URL: the file is complete, even after broken connections, or there is one clear error."""

import contextlib
import errno
import gc
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from mirror import Mirror, serving

from nmt.corpus import fetch as module
from nmt.corpus.fetch import fetch, mirrored
from nmt.errors import DownloadError, InputError, OutputError

CONTENT = bytes(n % 251 for n in range(300_000))
LIMIT = 1_000_000


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setattr(module, "PAUSE_S", 0.001)
    with serving() as server:
        server.files["/f.gz"] = CONTENT
        yield server


def get(mirror: Mirror, folder: Path, max_bytes: int = LIMIT) -> bytes:
    part = folder / "f.gz.part"
    fetch(f"{mirror.url}/f.gz", part, max_bytes=max_bytes, quiet=True)
    return part.read_bytes()


def ranges(mirror: Mirror) -> list[str | None]:
    return [wanted for _, wanted in mirror.requests]


@pytest.mark.parametrize("has_length", [True, False])
def test_the_file_is_what_the_server_has(mirror: Mirror, tmp_path: Path, has_length: bool) -> None:
    mirror.has_length = has_length
    assert get(mirror, tmp_path) == CONTENT
    assert ranges(mirror) == [None]
    mirror.files["/f.gz"] = b""
    (tmp_path / "f.gz.part").unlink()
    assert get(mirror, tmp_path) == b""


def test_a_cut_connection_is_continued(mirror: Mirror, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    logging.getLogger("nmt").propagate = True
    mirror.cuts = [1, 100_000, 0, 99_999]
    assert get(mirror, tmp_path) == CONTENT
    assert ranges(mirror) == [None, *(f"bytes={n}-" for n in (1, 100_001, 100_001, 200_000))]
    assert "the connection ended after 1 of 300,000 bytes; trying again" in caplog.text


def test_cuts_without_end_are_an_error_after_attempts_that_bring_nothing(mirror: Mirror, tmp_path: Path) -> None:
    mirror.cuts = [5] * 3 + [0] * 20
    with pytest.raises(DownloadError, match=r"f\.gz: the connection ended after 15 of 300,000 bytes"):
        get(mirror, tmp_path)
    assert len(mirror.requests) == 3 + module.ATTEMPTS - 1
    mirror.cuts.clear()
    assert get(mirror, tmp_path) == CONTENT, "the next call continues"
    assert ranges(mirror)[-1] == "bytes=15-"


def test_a_server_without_ranges_sends_everything_again(mirror: Mirror, tmp_path: Path) -> None:
    mirror.has_ranges = False
    mirror.cuts = [250_000]
    assert get(mirror, tmp_path) == CONTENT
    assert ranges(mirror) == [None, "bytes=250000-"]


@pytest.mark.parametrize("n_there", [len(CONTENT), len(CONTENT) + 1])
def test_a_part_that_was_complete_or_is_too_long(mirror: Mirror, tmp_path: Path, n_there: int) -> None:
    (tmp_path / "f.gz.part").write_bytes((CONTENT + b"x")[:n_there])
    assert get(mirror, tmp_path) == CONTENT
    assert len(mirror.requests) == 1 + (n_there > len(CONTENT))


def test_another_range_than_asked_for_starts_over(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "f.gz.part").write_bytes(CONTENT[:10])
    mirror.range_shift = 1
    assert get(mirror, tmp_path) == CONTENT
    assert ranges(mirror) == ["bytes=10-", None]


@pytest.mark.parametrize("status", [500, 503, 429])
def test_a_busy_server_is_asked_again(mirror: Mirror, tmp_path: Path, status: int) -> None:
    mirror.statuses = [status] * 2
    assert get(mirror, tmp_path) == CONTENT
    mirror.statuses = [status] * module.ATTEMPTS
    (tmp_path / "f.gz.part").unlink()
    with pytest.raises(DownloadError, match=rf"f\.gz: HTTP {status} "):
        get(mirror, tmp_path)


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_a_refusal_is_an_error_at_once(mirror: Mirror, tmp_path: Path, status: int) -> None:
    mirror.statuses = [status]
    with pytest.raises(DownloadError, match=rf"f\.gz: HTTP {status} ") as caught:
        get(mirror, tmp_path)
    assert caught.value.exit_code == 1
    assert "--mirror" in caught.value.hint
    assert len(mirror.requests) == 1
    assert not list(tmp_path.iterdir())


def test_no_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # nobody listens
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/f.gz"
        with pytest.raises(DownloadError, match=r"cannot connect to 127\.0\.0\.1:\d+: Connection refused") as caught:
            fetch(url, tmp_path / "f.part", max_bytes=LIMIT, quiet=True)
    assert "check the network" in caught.value.hint

    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    with pytest.raises(DownloadError, match=r"cannot connect to example\.org: Name or service not known"):
        fetch("http://example.org/f.gz", tmp_path / "f.part", max_bytes=LIMIT, quiet=True)


def test_a_server_that_falls_silent(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT_S", 0.1)
    monkeypatch.setattr(module, "ATTEMPTS", 2)
    mirror.pause = threading.Event()
    with pytest.raises(DownloadError, match=r"f\.gz: timed out"):
        get(mirror, tmp_path)


def test_no_room_keeps_what_has_arrived(mirror: Mirror, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Path.open

    class Full:
        """A file on a disk with room for 2^17 bytes."""

        def __init__(self, file: Any) -> None:
            self.file = file

        def write(self, chunk: bytes) -> None:
            if self.file.tell() + len(chunk) > 2**17:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.file.write(chunk)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

        def __enter__(self) -> "Full":
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

    monkeypatch.setattr(Path, "open", lambda *args, **keywords: Full(real(*args, **keywords)))
    with pytest.raises(OutputError, match=r"cannot write .*f\.gz\.part: No space left on device") as caught:
        get(mirror, tmp_path)
    assert "make room" in caught.value.hint
    monkeypatch.undo()
    n_bytes = (tmp_path / "f.gz.part").stat().st_size
    assert 0 < n_bytes <= 2**17
    assert get(mirror, tmp_path) == CONTENT
    assert ranges(mirror) == [None, f"bytes={n_bytes}-"]


def test_a_directory_that_cannot_be_written(mirror: Mirror, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*none"):
        get(mirror, tmp_path / "none")


@pytest.mark.parametrize("has_length", [True, False])
def test_a_file_that_is_too_large_is_not_kept(mirror: Mirror, tmp_path: Path, has_length: bool) -> None:
    mirror.has_length = has_length
    with pytest.raises(DownloadError, match="has more than 299,999 bytes"):
        get(mirror, tmp_path, max_bytes=299_999)
    assert not list(tmp_path.iterdir())
    assert get(mirror, tmp_path, max_bytes=300_000) == CONTENT


def test_the_place_of_a_file_on_a_mirror() -> None:
    url = "https://example.org/a/b.gz"
    assert mirrored(url, "") == url
    assert mirrored(url, "http://localhost:8000/copy/") == "http://localhost:8000/copy/example.org/a/b.gz"


ANSWERS = {
    "a length of 5,000 digits": b"200 OK\r\nContent-Length: " + b"9" * 5_000,
    "a negative length": b"200 OK\r\nContent-Length: -5",
    "an unfinished address": b"302 Found\r\nLocation: http://[",
    "a long label": b"302 Found\r\nLocation: http://" + b"a" * 300 + b".example/f.gz",
    "a host of other bytes": b"302 Found\r\nLocation: http://\xff\xfe.example/f.gz",
    "a port that is no number": b"302 Found\r\nLocation: http://127.0.0.1:x/f.gz",
    "a file": b"302 Found\r\nLocation: file:///etc/hostname",
    "an empty location": b"302 Found\r\nLocation: ",
    "a wrong status": b"abc",
    "a long reason": b"404 " + b"x" * 60_000,
    "a range that nobody asked for": b"206 Partial Content\r\nContent-Range: bytes 5-",
    "a chunk of no length": b"200 OK\r\nTransfer-Encoding: chunked\r\n\r\nno length\r\n",
}


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], str]]:
    """Starts a server that gives every request the same answer; returns its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        answers: list[bytes] = []

        def run() -> None:
            with contextlib.suppress(OSError):  # closed by the test's end
                while True:
                    client, _ = listening.accept()
                    with client:
                        client.recv(65_536)
                        client.sendall(b"HTTP/1.1 " + answers[0] + b"\r\nConnection: close\r\n\r\nshort")

        def start(answer: bytes) -> str:
            answers.append(answer)
            threading.Thread(target=run, daemon=True).start()
            return f"http://127.0.0.1:{listening.getsockname()[1]}/f.gz"

        yield start


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
def test_what_no_server_should_answer_is_one_clear_error(
    answer: bytes, answering: Callable[[bytes], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.001)
    url = answering(answer)
    if b"-5" in answer:  # a length that says nothing: the file ends with the connection
        fetch(url, tmp_path / "part", max_bytes=LIMIT, quiet=True)
        assert (tmp_path / "part").read_bytes() == b"short"
        return
    with pytest.raises(DownloadError) as error:
        fetch(url, tmp_path / "part", max_bytes=LIMIT, quiet=True)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    assert b"206" not in answer or "the server sent another range" in str(error.value)
    assert error.value.hint
    del error
    gc.collect()  # urllib leaves the socket of a redirect open if its address is invalid


NO_MIRRORS = [
    *("localhost:8000", "file:///etc", "/data", "http:///a"),
    *("http://[", "ftp://mirror", "mirror", "http://", "http://:80", "http://.", "http://a..b", f"http://{'a' * 300}"),
    *("http://host:x", "http://host:99999", "http://a b", "http://a\nb", "http://host/\x7f", "http://host/\udcff"),
]


@pytest.mark.parametrize("mirror", NO_MIRRORS)
def test_a_mirror_that_is_no_url_is_refused(mirror: str) -> None:
    with pytest.raises(InputError, match="is not an http or https URL") as error:
        mirrored("https://host/f.gz", mirror)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("mirror", ["http://é.example", "HTTP://[::1]:1", "https://host/a%20b", "http://host/a?b=c"])
def test_a_mirror_may_be_any_url(mirror: str) -> None:
    assert mirrored("https://host/f.gz", mirror) == f"{mirror}/host/f.gz"
