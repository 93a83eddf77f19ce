"""The download of a corpus in the catalog.

Some corpora have one upstream file for each part and language. The hashes of these files are checked. Other corpora
have one upstream file with all pairs. The pairs are split into the parts.

The directory of a corpus contains PART.LANGUAGE.gz and LICENSE.txt. Each file is written atomically, so that it is
either complete or missing.
"""

import gzip
import http.client
import io
import logging
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO

from tqdm import tqdm

from nmt.corpus.catalog import Corpus, package_text, pinned
from nmt.corpus.tatoeba import pairs_with_text, split
from nmt.errors import DownloadError, InputError, OutputError, os_errors_as
from nmt.files import atomic_write, check_deflated, sha256

log = logging.getLogger("nmt")

TIMEOUT_S = 30.0  # seconds; longest wait for the next byte
CHUNK = 2**16
MAX_BYTES = 200_000_000  # maximum size of a file, compressed or not; no text of the catalog has over 20 MB
RETRY = "repeat the command, which keeps the files that are complete; or name a server with a copy: --mirror URL"


def download(corpus: Corpus, path: Path, names: Iterable[str], *, mirror: str, quiet: bool) -> list[str]:
    """Download the named files that the directory `path` lacks. Return the names of the written files.

    If one file of a split corpus is missing, all its files are written again.

    Raises:
        DownloadError: the network fails, or a file does not have the expected content.
        InputError: the mirror is no URL.
    """
    missing = [name for name in names if not (path / f"{name}.gz").exists()]
    if not missing:
        return []

    def texts_at(url: str) -> list[bytes]:
        content = fetch(mirrored(url, mirror), quiet=quiet)
        return unpacked(content, url, corpus.members)

    texts = split_texts(corpus, texts_at) if corpus.is_split else checked_texts(corpus, missing, texts_at)
    # Write each text as soon as it has arrived. So an error loses no earlier text.
    written = []
    for name, text in texts:
        with os_errors_as(OutputError, f"make {path}", hint="set NMT_DATA=PATH to a directory that you may write to"):
            path.mkdir(parents=True, exist_ok=True)
        atomic_write(path / "LICENSE.txt", corpus.terms)
        atomic_write(path / f"{name}.gz", gzip.compress(text, mtime=0))
        written.append(name)
    return written


def checked_texts(
    corpus: Corpus, names: Sequence[str], texts_at: Callable[[str], list[bytes]]
) -> Iterator[tuple[str, bytes]]:
    """Fetch each file, and yield its name and text. Raises DownloadError if a hash is wrong."""
    pins = pinned(corpus.name)
    for name in names:
        (text,) = texts_at(corpus.url_of(name))
        digest = sha256(text)
        expected = pins.get(name, digest)
        if digest != expected:
            message = f"{name} has SHA-256 {digest} instead of {expected}; it was not kept"
            raise DownloadError(message, hint=RETRY)
        yield name, text


def split_texts(corpus: Corpus, texts_at: Callable[[str], list[bytes]]) -> Iterator[tuple[str, bytes]]:
    """Fetch all pairs, split them, and yield the name and the text of each file."""
    try:
        pairs = pairs_with_text(texts_at(corpus.url))
        public_test = []
        if corpus.test_urls:
            source_url, target_url = corpus.test_urls
            public_test = pairs_with_text([*texts_at(source_url), *texts_at(target_url)])
    except ValueError as error:
        raise DownloadError(f"{corpus.name}: the two sides have different numbers of lines", hint=RETRY) from error
    parts = split(pairs, public_test, package_text(f"pins/{corpus.name}.pairs"))
    # Tatoeba grows, so another version may have more pairs. This is no error.
    source_language, target_language = corpus.languages
    for (part, pairs_of_part), n_pairs in zip(parts.items(), corpus.n_pairs, strict=True):
        if len(pairs_of_part) != n_pairs:
            message = "%s: %s has %d pairs, the recipes were measured with %d"
            log.warning(message, corpus.name, part, len(pairs_of_part), n_pairs)
        yield f"{part}.{source_language}", joined_lines([source for source, _ in pairs_of_part])
        yield f"{part}.{target_language}", joined_lines([target for _, target in pairs_of_part])


def joined_lines(texts: Iterable[str]) -> bytes:
    return "".join(f"{text}\n" for text in texts).encode()


def mirrored(url: str, mirror: str) -> str:
    """Return the URL of the same file on a mirror, MIRROR/HOST/PATH. Without a mirror, return the URL itself.

    This is the layout of `wget --force-directories`.
    """
    if mirror and not mirror.startswith(("http://", "https://")):
        hint = "give the URL of a server, as in --mirror http://localhost:8000"
        raise InputError(f"the mirror {mirror!r} is not an http or https URL", hint=hint)
    return f"{mirror.rstrip('/')}/{url.removeprefix('https://')}" if mirror else url


def fetch(url: str, *, quiet: bool) -> bytes:
    """Return the content at a URL. Shows a progress bar if stderr is a terminal.

    Raises DownloadError if the URL cannot be fetched, or the content is larger than `MAX_BYTES`.
    """
    name = url.rpartition("/")[2]
    content = bytearray()
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "nmt-trainer"})  # noqa: S310 - http(s) only
        with (
            urllib.request.urlopen(request, timeout=TIMEOUT_S) as response,  # noqa: S310
            tqdm(desc=name, total=response.length, unit="B", unit_scale=True, disable=quiet or None) as bar,
        ):
            for chunk in iter(lambda: response.read1(CHUNK), b""):
                content += chunk
                check_size(content)
                bar.update(len(chunk))
            if response.length:  # number of bytes that have not arrived
                raise http.client.IncompleteRead(bytes(content), response.length)
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise DownloadError(f"cannot download {url}: {reason_of(error)}", hint=f"check the network; {RETRY}") from error
    return bytes(content)


def reason_of(error: BaseException) -> str:
    """Return the reason for an error as one short line, without urllib's `<urlopen error ...>`."""
    if isinstance(error, urllib.error.HTTPError):
        error.close()
        return f"HTTP {error.code} {error.reason}"
    # urllib's error has the socket's error as `reason`. `strerror` is its text without the error number.
    cause = getattr(error, "reason", error)
    text = str(getattr(cause, "strerror", None) or cause)
    reason = text or type(cause).__name__
    return " ".join(reason.split())[:200]


def unpacked(content: bytes, url: str, members: Sequence[str]) -> list[bytes]:
    """Return the text of a plain or gzip file, or the texts of some members of a zip archive.

    Raises DownloadError if the content is damaged.
    """
    try:
        if url.endswith(".zip"):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                check_deflated(archive)
                return [read_limited(archive.open(member)) for member in members]
        if url.endswith(".gz"):
            return [read_limited(gzip.GzipFile(fileobj=io.BytesIO(content)))]
        return [content]
    except Exception as error:  # zipfile and the modules that it uses raise many classes of exception
        raise DownloadError(f"{url} is damaged: {reason_of(error)}", hint=RETRY) from error


def read_limited(stream: IO[bytes] | gzip.GzipFile) -> bytes:
    content = stream.read(MAX_BYTES + 1)
    check_size(content)
    return content


def check_size(content: bytes | bytearray) -> None:
    """Raise ValueError if the content is larger than `MAX_BYTES`."""
    if len(content) > MAX_BYTES:
        raise ValueError(f"over {MAX_BYTES:,} bytes")
