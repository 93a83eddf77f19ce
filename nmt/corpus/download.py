"""Download a corpus of the catalog: fetch, check, unpack and split it into the files that the recipes name.

The directory NAME contains PART.LANGUAGE.gz, LICENSE.txt, and SHA256SUMS with the SHA-256 of each decompressed text. A
text that does not match its pinned or recorded hash is an error and is deleted. The directory NAME.part beside it
contains incomplete downloads.
"""

import contextlib
import gzip
import hashlib
import io
import logging
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from nmt.corpus.catalog import MD5, Corpus, Multi30k, Tatoeba, pinned, pins_file, sums_of
from nmt.corpus.fetch import fetch, mirrored
from nmt.corpus.tatoeba import PairText, split
from nmt.errors import DownloadError, InputError, OutputError, os_errors_as
from nmt.files import atomic_write, locked, sha256
from nmt.text.lines import is_blank, open_bytes, reading

log = logging.getLogger("nmt")

MAX_TEXT_BYTES = 200_000_000  # of one decompressed file; the largest has about 20 million
MAX_GROWTH = 4  # a download may be this many times as large as the size in the catalog
SUMS = "SHA256SUMS"
CHANGED = "repeat the command; if it fails again, the server's file has changed: name another server with --mirror URL"


class Folder:
    """The directory of a downloaded corpus, and the directory NAME.part of its incomplete downloads."""

    def __init__(self, corpus: Corpus, path: Path, *, mirror: str = "", quiet: bool = False) -> None:
        self.corpus, self.path, self.mirror, self.quiet = corpus, path, mirror, quiet
        self.parts = path.with_name(f"{path.name}.part")
        with reading(str(path / SUMS)):
            self.recorded = sums_of((path / SUMS).read_text("utf-8")) if (path / SUMS).exists() else {}

    def has(self, name: str) -> bool:
        """Whether a file exists and is intact. Raises InputError if a file with other content has its name."""
        file = self.path / f"{name}.gz"
        if not file.exists():
            return False
        expected = self.recorded.get(name) or pinned(self.corpus.name).get(name)
        if expected != text_hash(file):
            hint = "move it away, then repeat the command"
            raise InputError(f"{file} is not the file that `nmt download` would write", hint=hint)
        return True

    @contextlib.contextmanager
    def fetched(self, url: str) -> Iterator[bytes]:
        """Fetch a URL and yield the content. Then its file in NAME.part goes, unless the process is interrupted."""
        part = self.parts / urlsplit(url).path.rpartition("/")[2]
        max_bytes = int(MAX_GROWTH * self.corpus.size_mb * 1e6)
        fetch(mirrored(url, self.mirror), part, max_bytes=max_bytes, quiet=self.quiet)
        with reading(str(part)):
            content = part.read_bytes()
        try:
            yield content
        except DownloadError:
            part.unlink()
            raise
        part.unlink()

    def check(self, name: str, text: bytes, expected: str | None) -> None:
        """Raise DownloadError if the hash of a text differs from the expected or recorded one; record it."""
        digest = sha256(text)
        expected = expected or self.recorded.get(name, digest)
        if digest != expected:
            reason = f"{name} has SHA-256 {digest} instead of {expected}; it was not kept"
            raise DownloadError(reason, hint=CHANGED)
        self.recorded[name] = digest

    def write(self, files: Mapping[str, bytes]) -> None:
        """Write compressed texts; SHA256SUMS first, so that after a kill the next call knows the files."""
        self.path.mkdir(exist_ok=True)
        lines = [f"{digest}  {name}\n" for name, digest in sorted(self.recorded.items())]
        contents: dict[str, str | bytes] = {"LICENSE.txt": self.corpus.terms, SUMS: "".join(lines)}
        contents |= {f"{name}.gz": content for name, content in files.items()}
        for name, content in contents.items():
            atomic_write(self.path / name, content)


@contextlib.contextmanager
def reserved(path: Path) -> Iterator[None]:
    """Keep other downloads out of the corpus directory `path`, whose parent is made.

    Raises:
        InputError: another process is downloading the corpus.
        OutputError: the parent cannot be written.
    """
    with os_errors_as(OutputError, f"make {path}", hint="set NMT_DATA=PATH to a directory that you may write to"):
        path.parent.mkdir(parents=True, exist_ok=True)
    with locked(path.with_name(f".{path.name}.lock"), holder="download", setting="NMT_DATA=PATH in the environment"):
        yield


def download(
    corpus: Multi30k | Tatoeba, path: Path, names: Collection[str], *, mirror: str = "", quiet: bool = False
) -> list[str]:
    """Download the named files that are missing into the directory `path`; return their names.

    If a file of Tatoeba is missing, all of its files are written again, because they come from one split.

    Raises:
        DownloadError: the network fails, or a file is not what it should be.
        InputError: a file with other content has one of these names, or another process is downloading the corpus.
        OutputError: the directory cannot be written.
    """
    with reserved(path):
        folder = Folder(corpus, path, mirror=mirror, quiet=quiet)
        missing = [name for name in names if not folder.has(name)]
        if not missing:
            return []
        with os_errors_as(OutputError, f"make {folder.parts}", hint="check the permissions of its directory"):
            folder.parts.mkdir(exist_ok=True)
        try:
            if isinstance(corpus, Tatoeba):
                return _download_tatoeba(corpus, folder)
            for name in missing:
                _download_file(corpus, folder, name)
            return missing
        finally:
            with contextlib.suppress(OSError):  # not empty: it contains files that the next call continues
                folder.parts.rmdir()


def _download_file(corpus: Multi30k, folder: Folder, name: str) -> None:
    url = corpus.url(name)
    with folder.fetched(url) as content:
        md5 = MD5.get(url.rpartition("/")[2])
        if md5 and hashlib.md5(content, usedforsecurity=False).hexdigest() != md5:
            raise DownloadError(f"{url} has not the MD5 {md5}; it was not kept", hint=CHANGED)
        is_compressed = url.endswith(".gz")
        text = decompressed(content, url) if is_compressed else content
        expected = pinned(corpus.name).get(name)
        if not expected and name not in folder.recorded:
            log.info("%s is not pinned: its SHA-256, %s, is recorded in %s", name, sha256(text), SUMS)
        folder.check(name, text, expected)
        folder.write({name: content if is_compressed else gzip.compress(text, mtime=0)})


def _download_tatoeba(corpus: Tatoeba, folder: Folder) -> list[str]:
    """Fetch the pairs and the public test set, split them, and write all files."""
    with contextlib.ExitStack() as stack:
        archive, *test_set = [stack.enter_context(folder.fetched(url)) for url in (corpus.url, *corpus.test_urls)]
        public_test = aligned(test_set, " and ".join(corpus.test_urls))
        pins = pins_file(f"{corpus.name}.pairs")
        found = split(read_archive(archive, corpus), public_test, pins, corpus.n_pairs[0])
        texts = {}
        for part, pairs in found.parts.items():
            for side, language in enumerate(corpus.languages):
                name = f"{part}.{language}"
                texts[name] = "".join(f"{pair[side]}\n" for pair in pairs).encode()
                folder.check(name, texts[name], None if part in found.incomplete else pinned(corpus.name).get(name))
        folder.write({name: gzip.compress(text, mtime=0) for name, text in texts.items()})
    for note in found.notes:
        log.warning("%s: %s", corpus.name, note)
    return list(texts)


def read_archive(content: bytes, corpus: Tatoeba) -> list[PairText]:
    """The pairs in a zip file with one member per side, or in lines of target, tab, source, tab, attribution."""
    if corpus.members:
        return aligned([member(content, name, corpus.url) for name in corpus.members], corpus.url)
    rows = (line.split("\t") for line in text_lines(content))
    return [(row[1].strip(), row[0].strip()) for row in rows if len(row) > 1 and not any(map(is_blank, row[:2]))]


def aligned(sides: list[bytes], name: str) -> list[PairText]:
    """The pairs of two texts, without blank ones. Raises DownloadError if the numbers of lines differ."""
    if not sides:
        return []
    source, target = map(text_lines, sides)
    if len(source) != len(target):
        raise DownloadError(f"{name}: the sides have {len(source):,} and {len(target):,} lines", hint=CHANGED)
    return [pair for pair in zip(source, target, strict=True) if not any(map(is_blank, pair))]


def text_lines(content: bytes) -> list[str]:
    text = content.decode("utf-8-sig", errors="replace").removesuffix("\n")
    return [line.strip() for line in text.split("\n")]


def member(content: bytes, name: str, archive: str) -> bytes:
    """Read one file of a zip archive in memory. Raises DownloadError if it is missing, damaged or too large."""
    with undamaged(archive, "zip"), zipfile.ZipFile(io.BytesIO(content)) as opened:
        if name not in opened.namelist():
            raise DownloadError(f"{archive} contains no {name}", hint=CHANGED)
        with opened.open(name) as file:
            return read_limited(file, f"{name} in {archive}")


def decompressed(content: bytes, name: str) -> bytes:
    """The text in a gzip file. Raises DownloadError if the file is damaged or the text too large."""
    with undamaged(name, "gzip"), gzip.open(io.BytesIO(content)) as file:
        return read_limited(file, name)


@contextlib.contextmanager
def undamaged(name: str, form: str) -> Iterator[None]:
    """Raise the errors of a damaged file as DownloadError."""
    try:
        yield
    except (zipfile.BadZipFile, OSError, EOFError, zlib.error, KeyError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(f"{name} is no undamaged {form} file: {error}", hint=CHANGED) from error


def read_limited(file: IO[bytes] | gzip.GzipFile, name: str) -> bytes:
    content: bytes = file.read(MAX_TEXT_BYTES + 1)
    if len(content) > MAX_TEXT_BYTES:
        raise DownloadError(f"{name} has over {MAX_TEXT_BYTES:,} bytes when decompressed", hint=CHANGED)
    return content


def text_hash(file: Path) -> str:
    """SHA-256 of the text in a gzip file; empty if the file is damaged."""
    try:
        with open_bytes(file) as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()  # type: ignore[arg-type]  # has readinto
    except (OSError, EOFError, zlib.error):
        return ""
