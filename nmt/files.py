"""Files that matter: written whole or not at all, locked, and known by their hash.

Knows nothing of models or runs. A write goes to a temporary file in the same directory, is flushed and synced,
read back, and only then takes the final name; so whoever opens that name finds the old content or the new,
never a part.
"""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from nmt.errors import InputError, OutputError

TEMP_MARK = ".tmp."


def sha256(content: bytes) -> str:
    """Hex digest of `content`."""
    return hashlib.sha256(content).hexdigest()


def read_capped(path: Path, n_bytes: int) -> bytes:
    """The content of a small file that anyone may have written.

    Raises:
        OSError: it cannot be read, is no file (a pipe would be waited for), or has more bytes.
    """
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a file", str(path))
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > n_bytes:
            raise OSError(errno.EFBIG, f"over {n_bytes:,} bytes", str(path))
        return file.read(n_bytes)


@contextlib.contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the name `path` when the block ends well; an existing file's mode is kept.

    Raises:
        OutputError: the directory is missing or not writable, or the disk is full.
    """
    path = Path(os.path.realpath(path))  # a link stays a link
    if path.exists() and not path.is_file() and not path.is_dir():  # a pipe, /dev/null: nothing to replace
        with path.open("wb") as file:
            yield file
        return
    temp = path.with_name(f"{path.name}{TEMP_MARK}{os.getpid()}")
    try:
        with temp.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temp.chmod(path.stat().st_mode & 0o7777)
        temp.replace(path)
        sync_directory(path.parent)
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temp)):
            raise  # the block's own, of another file
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}",
            hint="check that the directory exists, that you may write there and that the disk has room",
        ) from error
    finally:
        with contextlib.suppress(OSError):
            temp.unlink(missing_ok=True)


def atomic_write(path: Path, content: bytes | str) -> None:
    """Write `content` to `path`, whole or not at all, and read it back before it takes that name.

    Raises:
        OutputError: it cannot be written, or what was read back differs.
    """
    data = content.encode() if isinstance(content, str) else content
    with atomic_writer(path) as file:
        file.write(data)
        file.flush()
        if sha256(Path(file.name).read_bytes()) != sha256(data):
            raise OutputError(f"{path}: what was written is not what is read back", hint="check the disk")


@contextlib.contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """A directory to fill that takes the name `path` when the block ends well; what lies there is replaced.

    Raises:
        OutputError: it, or a file in it, cannot be written.
    """
    path = Path(os.path.realpath(path))
    temp = path.with_name(f"{path.name}{TEMP_MARK}{os.getpid()}")
    old = path.with_name(f"{path.name}.old.{os.getpid()}")  # not to be swept: for a moment there is no other
    try:
        shutil.rmtree(temp, ignore_errors=True)  # of a killed process that had this one's number
        temp.mkdir(parents=True)
        yield temp
        for file in temp.iterdir():
            with file.open("rb+") as written:
                os.fsync(written.fileno())
        sync_directory(temp)
        if path.exists():
            path.rename(old)
        temp.rename(path)
        sync_directory(path.parent)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}",
            hint="check that you may write there and that the disk has room",
        ) from error
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        for rest in (temp, old):
            shutil.rmtree(rest, ignore_errors=True)


def sync_directory(path: Path) -> None:
    """Make a rename in `path` survive a power cut (where the system can open directories)."""
    with contextlib.suppress(PermissionError, NotImplementedError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sweep_temps(directory: Path) -> None:
    """Remove what a killed process left of its unfinished writes."""
    for stale in directory.glob(f"*{TEMP_MARK}*"):
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file `path`; the kernel drops it when the process ends, however it ends.

    Raises:
        InputError: another process holds it.
        OutputError: it cannot be opened, or its file system has no locks.
    """
    try:
        import fcntl
    except ImportError:  # Windows: a run is not guarded against a second training there
        yield
        return
    try:
        file = path.open("a+")
    except OSError as error:
        raise OutputError(
            f"cannot open {path}: {error.strerror}", hint="choose another directory with run=PATH"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise InputError(
                f"{path.parent} is in use by another training",
                hint="wait for it to end, or give this one a directory of its own with run=PATH",
            ) from error
        except OSError as error:
            raise OutputError(
                f"cannot lock {path}: {error.strerror}", hint="choose a directory on another disk with run=PATH"
            ) from error
        yield
