"""Corpora that strangers wrote: servers that lie; tests/corpus has `check --fix` and what `init` splits."""

import gzip
import io
import itertools
import os
import random
import re
import resource
import socketserver
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import SOAK, file_bytes, soak

from nmt.corpus import download as downloads
from nmt.corpus.catalog import Corpus
from nmt.corpus.download import download
from nmt.errors import DownloadError
from nmt.files import sha256

from .hostile import HOSTILE

USUAL_SEED = random.randrange(10**6) if SOAK else 1
SEED = int(os.environ.get("NMT_SEED", USUAL_SEED))
TEXT = b"".join(b"line %d\n" % n for n in range(3000))
OK = b"HTTP/1.1 200 OK\r\n"
N_BOMB = soak(3, 120)  # times 10 MB


def zipped(**contents: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return file.getvalue()


class Download(NamedTuple):
    """A corpus, what its server should send, and an archive that unpacks to much."""

    corpus: Corpus
    archive: bytes
    bomb: bytes


TOY = Corpus("toy", ["xx", "yy"], ["train"], [1], 1, "free", "terms", "", "https://h/{part}.{language}.gz")
PAIRS = Corpus("pairs", ["xx", "yy"], ["train", "dev", "test"], [1, 0, 0], 1, "", "", "", "https://h/a.zip", ["a", "b"])
ZEROS = bytes(10**7)
GZ = Download(TOY, gzip.compress(TEXT), N_BOMB * gzip.compress(ZEROS))
ZIP = Download(PAIRS, zipped(a=TEXT, b=TEXT), zipped(a=N_BOMB * ZEROS, b=b""))


def reply(body: bytes, n_bytes: int | None = None) -> bytes:
    """An answer that declares `n_bytes`, or the right number."""
    length = len(body) if n_bytes is None else n_bytes
    return OK + b"Content-Length: %d\r\n\r\n" % length + body


@contextmanager
def serving(answers: Callable[[], Iterable[bytes]]) -> Iterator[str]:
    """A server that sends these bytes, whatever it is asked for."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(9999)
            with suppress(OSError):
                for part in answers():
                    self.request.sendall(part)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def damaged_header(archive: bytes, draw: random.Random) -> bytes:
    """An archive with a changed header: encrypted, of another method, or anything."""
    changed = bytearray(archive)
    starts = [match.start() for match in re.finditer(b"PK\3\4|PK\1\2", archive)]
    start = draw.choice(starts)
    place = start + draw.randrange(4, 12)
    changed[place] = draw.randrange(256)
    return bytes(changed)


def wrong_bodies(archive: bytes, draw: random.Random) -> Iterator[bytes]:
    """Contents that are not the archive."""
    flipped = bytearray(archive)
    mask = 1 << draw.randrange(8)
    flipped[draw.randrange(len(archive))] ^= mask
    yield bytes(flipped)
    yield archive[: draw.randrange(len(archive))]
    yield archive[::-1]
    yield archive + b"x"
    yield b"<html>log in</html>"
    yield zlib.compress(archive)
    yield gzip.compress(TEXT + b"x")
    yield zipped(a=b"a\n")
    yield zipped(a=b"a\nb\n", b=b"c\n")
    yield damaged_header(zipped(a=b"a\n", b=b"b\n"), draw)


def wrong_answers(download: Download, draw: random.Random) -> Iterator[Iterable[bytes]]:
    """What a server may send in place of the archive, in parts."""
    archive = download.archive
    cut = archive[: draw.randrange(len(archive))]
    for body in wrong_bodies(archive, draw):
        yield [reply(body)]
    for length in (len(archive), 10**18, -1):
        yield [reply(cut, length)]
    for answer in HOSTILE["answers"]:
        yield [answer.encode()]
        yield [answer.encode(), archive]
    yield [reply(download.bomb)]
    yield [OK + b"\r\n" + cut]
    yield [OK, b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n" % len(archive), cut]
    yield [OK, b"A: " + b"x" * 99999]
    yield [OK, b"X: y\r\n" * 200, b"\r\n"]
    yield itertools.chain([OK, b"\r\n"], itertools.repeat(bytes(10**6)))  # without an end


@contextmanager
def limited_memory() -> Iterator[None]:
    """800 MB above what this process uses now."""
    n_pages, *_ = Path("/proc/self/statm").read_text().split()
    limit = int(n_pages) * resource.getpagesize() + 800_000_000
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.parametrize("given", [GZ, ZIP], ids=["gz", "zip"])
def test_servers_that_lie_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: Download) -> None:
    print("seed", SEED)
    draw = random.Random(SEED)
    n_refused = 0
    corpus = given.corpus
    pins = dict.fromkeys(("train.xx", "train.yy"), sha256(TEXT))
    monkeypatch.setattr(downloads, "pinned", lambda _: pins)
    monkeypatch.setattr(downloads, "package_text", lambda _: "")
    monkeypatch.setattr(downloads, "MAX_BYTES", soak(10**6, downloads.MAX_BYTES))
    names = corpus.files(corpus.languages)

    def lie() -> Iterable[bytes]:
        return draw.choice([*wrong_answers(given, draw)])

    for number in range(soak(6, 400)):
        # 1. A server that lies.
        path = tmp_path / str(number)
        with serving(lie) as url, limited_memory():
            try:
                download(corpus, path, names, mirror=url, quiet=True)
            except DownloadError as error:
                n_refused += 1
                n_files = len(file_bytes(path)) if path.exists() else 0
                assert n_files < 2 + len(names)
                assert len(str(error)) < 1000  # noqa: PT017

        # 2. One that does not.
        with serving(lambda: [reply(given.archive)]) as url:
            download(corpus, path, names, mirror=url, quiet=True)
        assert set(file_bytes(path)) - {"LICENSE.txt"} == {f"{name}.gz" for name in names}
        if given is GZ:
            assert gzip.decompress((path / "train.xx.gz").read_bytes()) == TEXT
            assert gzip.decompress((path / "train.yy.gz").read_bytes()) == TEXT
    print(n_refused, "refused")


@pytest.mark.parametrize(("url", "content"), [("x.gz", gzip.compress(TEXT, mtime=0)), ("x.zip", zipped(a=TEXT, b=b""))])
def test_a_decompression_bomb_is_refused(url: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "MAX_BYTES", 1000)
    with pytest.raises(DownloadError, match="over 1,000 bytes"):
        downloads.unpacked(content, url, ["a", "b"])
