"""Corpora that strangers wrote: what `check --fix` changes, what `init` splits, and servers that lie."""

import gzip
import io
import json
import os
import random
import re
import resource
import socketserver
import threading
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from conftest import SOAK, file_bytes, soak

from nmt.corpus import download as downloads
from nmt.corpus import repair
from nmt.corpus.catalog import Corpus
from nmt.corpus.characters import MENDED, TESTS
from nmt.corpus.check import check
from nmt.corpus.download import download
from nmt.corpus.reading import CorpusFiles
from nmt.corpus.split import split_corpus
from nmt.errors import DataError, DownloadError
from nmt.files import sha256

SEED = int(os.environ.get("NMT_SEED", random.randrange(10**6) if SOAK else 1))
DATA = Path(__file__).parents[2] / "data" / "zh-en"
ODD = [b"", b" ", b"\r", b"\xff\xfe", b"\xef\xbb\xbf", b"\0", b"<b>", b"&amp;lt;b&gt;", b"\t ", b"&#10;", b"&am\0p;"]
ODD += [text.encode() for text in ("\u2028", "\x85", "e\u0301 \u200b", "Ã¤", "Ａ１", "\ufffd", "<\xadb>")]


def odd_corpus(draw: random.Random, home: Path) -> list[tuple[list[bytes], list[bytes]]]:
    """Write train, dev and test with faults of every kind at random; return their lines."""
    pairs = list(zip(*((DATA / f"train.{side}").read_bytes().splitlines() for side in ("zh", "en")), strict=True))
    corpora = []
    for name in ("train", "dev", "test"):
        rows = [list(pair) for pair in draw.sample(pairs, draw.randrange(1, 120))]
        for _ in range(draw.randrange(12)):
            row = draw.choice(rows)
            side, place = draw.randrange(2), draw.randrange(3)
            row[side] = draw.choice(
                [row[1 - side], *(b"".join([row[side][:place], odd, row[side][place:]]) for odd in ODD)]
            )
        rows += draw.choices(rows, k=draw.randrange(4))
        sides = [[row[side] for row in rows] for side in (0, 1)]
        del sides[draw.randrange(2)][: draw.choice([0, 0, 0, 1, 9])]
        for language, lines in zip(("zh", "en"), sides, strict=True):
            text = b"\n".join(lines) + draw.choice([b"\n", b"\n", b""])
            (home / f"{name}.{language}").write_bytes(draw.choice([b"", b"\xef\xbb\xbf"]) + text)
        corpora.append((sides[0], sides[1]))
    return corpora


def lines_of(content: bytes) -> list[bytes]:
    return content.removeprefix(b"\xef\xbb\xbf").removesuffix(b"\n").split(b"\n")


def test_what_fix_did_can_be_undone_line_by_line_and_leaves_no_fault_that_it_mends(tmp_path: Path) -> None:
    """With the list of changes, the cleaned copies and the listed lines of the originals give these files again."""
    print("seed", SEED)
    draw, n_held = random.Random(SEED), 0
    while n_held < soak(1, 200):
        home = tmp_path / str(n_held)
        home.mkdir()
        odd_corpus(draw, home)
        before = file_bytes(home)
        files = [CorpusFiles(name, [home / f"{name}.zh"], [home / f"{name}.en"]) for name in ("train", "dev", "test")]
        try:
            repairs = repair.fix(check(files, ("zh", "en")), files, home / "fixed")
        except DataError as error:
            assert re.search("empty|utf-16", str(error), re.IGNORECASE), error  # noqa: PT017
            (home).rename(tmp_path / f"refused{draw.random()}")
            continue
        assert {name: text for name, text in file_bytes(home).items() if "/" not in name} == before
        changes = [json.loads(line) for line in (home / "fixed" / repair.CHANGES).read_text().splitlines()]
        for one in repairs:
            undone: list[list[bytes]] = []
            for side, name in enumerate(("source", "target")):
                original = lines_of(before[one.files.sides[side][0].name])
                listed = {entry[f"{name}_line"]: entry for entry in changes if entry["corpus"] == one.files.name}
                kept = iter(one.paths[side].read_bytes().split(b"\n")[:-1])
                rebuilt = []
                for number, line in enumerate(original, 1):
                    if (entry := listed.get(number)) is None or entry["action"] != "dropped":
                        written = next(kept)
                    rebuilt.append(written if entry is None else line)
                assert rebuilt == original, (one.files.name, name)
                assert next(kept, None) is None
                undone.append(rebuilt)
                for fixed in one.paths[side].read_text("utf-8").split("\n"):
                    assert not [kind for kind in MENDED if TESTS[kind](fixed)], (one.files.name, fixed)
        n_held += 1
    print(n_held, "corpora")


def near(text: str) -> str:
    """What is left of a sentence without case, punctuation, spaces and digits."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    kept = "".join("" if unicodedata.category(c)[0] in "PSZCN" else c for c in folded)
    return kept or ("" if any(map(str.isdigit, folded)) else folded)


def varied(draw: random.Random, text: str) -> str:
    """The same sentence, nearly."""
    ways: list[Callable[[str], str]] = [str.upper, str.lower, str.title, str]
    ways += [
        lambda x: x + draw.choice("!?。… \u3000"),
        lambda x: x.replace(" ", "  "),
        lambda x: x.replace("1", draw.choice(["7", "23", "１"])),
        lambda x: f"„{x}“",
        lambda x: unicodedata.normalize("NFD", x),
        lambda x: re.sub("[,.]", " ", x),
    ]
    return draw.choice(ways)(text)


def test_no_sentence_of_a_part_is_nearly_in_another(tmp_path: Path) -> None:
    print("seed", SEED)
    draw, counts = random.Random(SEED), [0, 0]
    for number in range(soak(10, 200)):
        n = draw.choice([3, 30, 300])
        words = ["Straße", "größer", "I", "have", "1", "11", "dogs", "çok", "İyi", "ﬁne", "x-y", "N.", "na\u0308"]
        texts = [" ".join(draw.choices(words, k=draw.randrange(2, 7))) for _ in range(n)]
        rows = [[varied(draw, draw.choice(texts)) for _ in range(2)] for _ in range(draw.randrange(20, 800))]
        for side in (0, 1):
            (tmp_path / f"all.{side}").write_text("".join(f"{row[side]}\n" for row in rows), "utf-8")
        parts = tmp_path / f"{number}"
        try:
            split_corpus([tmp_path / "all.0"], [tmp_path / "all.1"], parts, ("xx", "yy"))
        except DataError as error:
            assert "pairs" in str(error)  # noqa: PT017
            counts[1] += 1
            continue
        counts[0] += 1
        found = {
            part: [(parts / f"{part}.{side}").read_text("utf-8").split("\n")[:-1] for side in ("xx", "yy")]
            for part in ("train", "dev", "test")
        }
        for sides in found.values():
            rest = iter(map(tuple, rows))
            assert all(pair in rest for pair in zip(*sides, strict=True)), "not pairs of the text, in its order"
        for side in (0, 1):
            keys = [set(map(near, sides[side])) for sides in found.values()]
            for i, j in ((0, 1), (0, 2), (1, 2)):
                assert not keys[i] & keys[j], (number, keys[i] & keys[j])
    print(f"{counts[0]} splits, {counts[1]} refused")


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

    def endless() -> Iterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\n\r\n"
        while True:
            yield bytes(10**6)

    def once(content: bytes) -> Iterator[bytes]:
        yield content

    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    answers: list[Callable[[], Iterator[bytes]]] = [
        lambda: once(reply(bomb)),
        endless,
        lambda: once(reply(bytes(flipped))),
        lambda: once(reply(cut)),
        lambda: once(reply(cut, "200 OK", len(whole))),
        lambda: once(b"HTTP/1.1 200 OK\r\n\r\n" + cut),
        lambda: once(chunked + b"%x\r\n" % len(whole) + cut),
        lambda: once(chunked + b"zz\r\n" + whole),
        lambda: once(reply(b"", "302 Found", 0, "Location: ")),
        lambda: once(reply(b"", "301 M", 0, "Location: file:///etc/passwd")),
        lambda: once(reply(b"", "307 X", 0, "Location: /h/\x1b[31m\t")),
        lambda: once(reply(b"no", "404 N\x1b[31mo")),
        lambda: once(b"\x16\x03\x01"),
        lambda: once(b""),
        lambda: once(b"HTTP/1.1 200 OK\r\nA: " + b"x" * 99999),
        lambda: once(reply(whole, "200 OK", 10**18)),
        lambda: once(reply(whole, "200 OK", -1)),
        lambda: once(reply(whole + b"x")),
        lambda: once(reply(b"<html>log in</html>")),
        lambda: once(reply(whole, "206 Partial")),
        lambda: once(reply(whole[::-1])),
        lambda: once(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n"),
        lambda: once(reply(zlib.compress(whole))),
        lambda: once(reply(damaged(draw, zipped(b"a\n", b"b\n")))),
        lambda: once(reply(zipped(b"a\n", names="a"))),
        lambda: once(reply(gzip.compress(TEXT + b"x"))),
        lambda: once(reply(zipped(b"a\nb\n", b"c\n"))),
    ]
    yield from draw.choice(answers)()


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
