"""Fetch one URL into a file, and continue interrupted downloads.

If the connection, the disk or the process fails, the bytes that have arrived stay in the file, and the next call asks
the server for the rest (HTTP Range). If the server ignores the range, the download starts over. The caller checks the
content. pooch starts over after each break, and httpx with stamina needs the same lines around it for ranges, sizes and
one clear error.
"""

import http.client
import logging
import re
import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from tqdm import tqdm

from nmt.errors import DownloadError, InputError, OutputError, os_errors_as

log = logging.getLogger("nmt")

TIMEOUT_S = 30.0  # longest wait for the next byte
ATTEMPTS = 5  # failed attempts without a new byte, in a row, before giving up
PAUSE_S = 1.0  # before the second attempt; doubles with each further failure
CHUNK = 2**16
OTHER_SERVER = "try again later, or name a server that has a copy with --mirror URL"


def mirrored(url: str, mirror: str) -> str:
    """The URL of the same file on a mirror: MIRROR/HOST/PATH, the layout of `wget --force-directories`."""
    if not mirror:
        return url
    try:
        named = urlsplit(mirror)  # drops line breaks and tabs
        is_url = named.scheme in ("http", "https") and mirror.isprintable() and " " not in mirror
        is_url = is_url and bool((named.hostname or "").encode("idna")) and named.path.isascii() and named.port != 0
    except ValueError:  # for example http://[, a port that is no number, a label of 300 characters
        is_url = False
    if not is_url:
        hint = "give the URL of a server, as in --mirror http://localhost:8000"
        raise InputError(f"the mirror {mirror!r} is not an http or https URL", hint=hint)
    parts = urlsplit(url)
    return f"{mirror.rstrip('/')}/{parts.netloc}{parts.path}"


def fetch(url: str, part: Path, *, max_bytes: int, quiet: bool = False) -> None:
    """Download `url` into `part`, continuing after its bytes; show a progress bar if stderr is a terminal.

    Raises:
        DownloadError: no network, the server refuses, it sends more than `max_bytes`, or the connection keeps failing.
        OutputError: the disk is full or not writable; the bytes that have arrived stay in `part`.
    """
    n_failures, reason = 0, ""
    while n_failures < ATTEMPTS:
        if n_failures:
            log.info("%s: %s; trying again", url, reason)
            time.sleep(PAUSE_S * 2 ** (n_failures - 1))
        n_before = _size(part)
        try:
            _append(url, part, max_bytes, quiet)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and n_before:
                if error.headers.get("Content-Range") == f"bytes */{n_before}":
                    return  # it was complete
                part.unlink()
            elif error.code < 500 and error.code != http.HTTPStatus.TOO_MANY_REQUESTS:
                raise DownloadError(f"{url}: {described(error)}", hint=OTHER_SERVER) from error
            reason = described(error)
        except urllib.error.URLError as error:  # no connection: the network or the name is wrong, waiting does not help
            hint = f"check the network; {OTHER_SERVER}"
            raise DownloadError(f"cannot connect to {urlsplit(url).netloc}: {described(error)}", hint=hint) from error
        except (OSError, http.client.HTTPException) as error:
            reason = described(error)
        except ValueError as error:  # a length with thousands of digits, or a redirect to what is no URL
            message = f"{url}: the server's answer is invalid: {described(error)}"
            raise DownloadError(message, hint=OTHER_SERVER) from error
        n_failures = 1 if _size(part) > n_before else n_failures + 1
    raise DownloadError(f"{url}: {reason}", hint=f"repeat the command to continue; or {OTHER_SERVER}")


def _append(url: str, part: Path, max_bytes: int, quiet: bool) -> None:
    """Request the rest of `part` once, and append it. Raises OSError or HTTPException if the connection ends early."""
    n_bytes = _size(part)
    headers = {"User-Agent": "nmt-trainer"} | ({"Range": f"bytes={n_bytes}-"} if n_bytes else {})
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - catalog and `mirrored` have only http(s)
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
        if response.status != http.HTTPStatus.PARTIAL_CONTENT:
            n_bytes = 0
        elif not re.match(rf"bytes {n_bytes}-", response.headers.get("Content-Range", "")):
            part.unlink(missing_ok=True)
            raise ConnectionError("the server sent another range than it was asked for")
        length = response.headers.get("Content-Length", "")
        total = n_bytes + int(length) if length.isdecimal() else None
        if (total or 0) > max_bytes:
            raise too_large(url, max_bytes, part)
        with os_errors_as(OutputError, f"write {part}", hint="check the permissions of the directory"):
            file = part.open("ab" if n_bytes else "wb")
        name = urlsplit(url).path.rpartition("/")[2]
        bar = tqdm(desc=name, total=total, initial=n_bytes, unit="B", unit_scale=True, disable=quiet or None)
        with file, bar:
            while chunk := response.read1(CHUNK):  # read() would wait for a full chunk, and lose it if the server stops
                n_bytes += len(chunk)
                if n_bytes > max_bytes:
                    raise too_large(url, max_bytes, part)
                with os_errors_as(OutputError, f"write {part}", hint="make room, then repeat the command to continue"):
                    file.write(chunk)
                    file.flush()
                bar.update(len(chunk))
    if total is not None and n_bytes < total:
        raise ConnectionError(f"the connection ended after {n_bytes:,} of {total:,} bytes")


def too_large(url: str, max_bytes: int, part: Path) -> DownloadError:
    """Delete `part`, which is of no use, and return the error to raise."""
    part.unlink(missing_ok=True)
    return DownloadError(f"{url} has more than {max_bytes:,} bytes, too many for this corpus", hint=OTHER_SERVER)


def described(error: BaseException) -> str:
    """The reason for an error on one short line, without the `<urlopen error [Errno ...] ...>` of urllib."""
    if isinstance(error, urllib.error.HTTPError):
        reason = f"HTTP {error.code} {error.reason}"
    else:
        cause = getattr(error, "reason", error)
        reason = str(getattr(cause, "strerror", None) or cause) or type(cause).__name__
    return " ".join(reason.split())[:200]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
