"""Corpora that strangers wrote: servers that lie; tests/corpus has `check --fix` and what `init` splits."""

import gzip
import io
import os
import random
import re
import resource
import socketserver
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain, repeat
from pathlib import Path

import pytest
from conftest import SOAK, file_bytes, soak

from nmt.corpus import download as downloads
from nmt.corpus.catalog import Corpus
from nmt.corpus.download import download
from nmt.errors import DownloadError
from nmt.files import sha256

SEED = int(os.environ.get("NMT_SEED", random.randrange(10**6) if SOAK else 1))


TEXT = b"".join(b"line %d\n" % n for n in range(3000))
TOY = Corpus("toy", ["xx", "yy"], ["train"], [1], 1, "free", "terms", "", "https://h/{part}.{language}.gz")
PAIRS = Corpus("pairs", ["xx", "yy"], ["train", "dev", "test"], [1, 0, 0], 1, "", "", "", "https://h/a.zip", ["a", "b"])


def zipped(*contents: bytes, names: str = "ab") -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in zip(names, contents, strict=True):
            archive.writestr(name, content)
    return file.getvalue()


def reply(body: bytes, head: str = "200 OK", length: int | None = None, *more: str) -> bytes:
    lines = [f"HTTP/1.1 {head}", f"Content-Length: {len(body) if length is None else length}", *more, "", ""]
    return "\r\n".join(lines).encode() + body


@contextmanager
def server(answer: Callable[[str], Iterator[bytes]]) -> Iterator[str]:
    """A server that sends these bytes for a path."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError, IndexError):
                for part in answer(self.request.recv(9999).split()[1].decode()):
                    self.request.sendall(part)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as listening:
        listening.daemon_threads = True
        threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def lies(draw: random.Random, whole: bytes, bomb: bytes) -> Iterator[bytes]:
    """One wrong answer."""
    flipped = bytearray(whole)
    flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
    cut = whole[: draw.randrange(len(whole))]
    ok, chunked = b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    answers = [
        reply(bomb),
        reply(bytes(flipped)),
        reply(cut),
        reply(cut, "200 OK", len(whole)),
        ok + b"\r\n" + cut,
        chunked + b"%x\r\n" % len(whole) + cut,
        chunked + b"zz\r\n" + whole,
        reply(b"", "302 Found", 0, "Location: "),
        reply(b"", "301 M", 0, "Location: file:///etc/passwd"),
        reply(b"", "307 X", 0, "Location: /h/\x1b[31m\t"),
        reply(b"no", "404 N\x1b[31mo"),
        b"\x16\x03\x01",
        b"",
        ok + b"A: " + b"x" * 99999,
        reply(whole, "200 OK", 10**18),
        reply(whole, "200 OK", -1),
        reply(whole + b"x"),
        reply(b"<html>log in</html>"),
        reply(whole, "206 Partial"),
        reply(whole[::-1]),
        ok + b"X: y\r\n" * 200 + b"\r\n",
        reply(zlib.compress(whole)),
        reply(damaged(draw, zipped(b"a\n", b"b\n"))),
        reply(zipped(b"a\n", names="a")),
        reply(gzip.compress(TEXT + b"x")),
        reply(zipped(b"a\nb\n", b"c\n")),
    ]
    endless = chain([ok + b"\r\n"], repeat(bytes(10**6)))
    yield from draw.choice([*([one] for one in answers), endless])


def damaged(draw: random.Random, archive: bytes) -> bytes:
    """An archive with a changed header: encrypted, of another method, or anything."""
    changed = bytearray(archive)
    places = [match.start() + offset for match in re.finditer(b"PK\3\4|PK\1\2", archive) for offset in range(4, 12)]
    changed[draw.choice(places)] = draw.randrange(256)
    return bytes(changed)


@pytest.mark.parametrize("corpus", [TOY, PAIRS], ids=["gz", "zip"])
def test_servers_that_lie_leave_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: Corpus) -> None:
    print("seed", SEED)
    draw = random.Random(SEED)
    monkeypatch.setattr(downloads, "pinned", lambda _: {f"train.{end}": sha256(TEXT) for end in ("xx", "yy")})
    monkeypatch.setattr(downloads, "pins_file", lambda _: "")
    whole = gzip.compress(TEXT) if corpus is TOY else zipped(TEXT, TEXT)
    bomb = gzip.compress(bytes(10**7)) * soak(3, 120) if corpus is TOY else zipped(bytes(soak(3, 120) * 10**7), b"")
    monkeypatch.setattr(downloads, "MAX_BYTES", soak(10**6, downloads.MAX_BYTES))
    names = corpus.files(corpus.languages)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    n_refused = 0
    for number in range(soak(6, 400)):
        path = tmp_path / str(number)
        with server(lambda _: lies(draw, whole, bomb)) as url:
            resource.setrlimit(resource.RLIMIT_AS, (used + 8 * 10**8, limits[1]))
            try:
                download(corpus, path, names, mirror=url, quiet=True)
            except DownloadError as error:
                n_refused += 1
                assert not path.exists() or len(file_bytes(path)) < 2 + len(names)
                assert len(str(error)) < 1000  # noqa: PT017
            finally:
                resource.setrlimit(resource.RLIMIT_AS, limits)
        with server(lambda _: iter([reply(whole)])) as url:
            download(corpus, path, names, mirror=url, quiet=True)
        found = {name: gzip.decompress(text) for name, text in file_bytes(path).items() if name != "LICENSE.txt"}
        if corpus is TOY:
            assert found == {"train.xx.gz": TEXT, "train.yy.gz": TEXT}
        else:
            assert sorted(found) == sorted(f"{name}.gz" for name in names)
    print(n_refused, "refused")


@pytest.mark.parametrize(("url", "content"), [("x.gz", gzip.compress(TEXT)), ("x.zip", zipped(TEXT, b""))])
def test_a_decompression_bomb_is_refused(url: str, content: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloads, "MAX_BYTES", 1000)
    with pytest.raises(DownloadError, match="over 1,000 bytes"):
        downloads.unpacked(content, url, ["a", "b"])
