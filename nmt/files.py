"""Atomic writes of files and directories, locks, hashes, and a cache.

An atomic write creates a temporary file in the same directory, syncs it to disk and renames it. Other processes see
either the old or the new content.
"""

import contextlib
import errno
import glob
import hashlib
import json
import os
import re
import shlex
import shutil
import struct
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile

from nmt.errors import InputError, NmtError, OutputError, os_errors_as

# A temporary file or directory is named NAME + TEMP_MARK + process id. While a directory is replaced, the old
# directory is named NAME + OLD_MARK + process id.
TEMP_MARK, OLD_MARK = ".tmp.", ".nmt-old."
# Write to these paths through their descriptors. On Linux, opening them would overwrite a redirected file.
DESCRIPTORS = {Path("/dev/stdout"): 1, Path("/dev/stderr"): 2}
WRITE_HINT = "check that the directory exists, that you may write there and that the disk has room"
# The exceptions that zipfile and parsers raise for damaged archives.
ZIP_ERRORS = (BadZipFile, zlib.error, struct.error, OverflowError, ValueError, EOFError, OSError, RuntimeError)
DAY_S = 24 * 3600  # entries of the cache that were used within this time are kept
# If the cache is larger than this, the entries that were used least recently are removed.
MAX_CACHE_BYTES = 2_000_000_000  # size of about 200 converted models of 2.35M parameters, or of the text of 10M pairs


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def hash_file(path: Path) -> str:
    """Return the SHA-256 hex digest of a file. The file may be larger than memory."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading. Raises OSError if the path is a directory, a pipe or a device.

    Opening a pipe would block, and reading a device might never end.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "not a file", str(path))
    return path.open("rb")


def read_capped(path: Path, n_bytes: int) -> bytes:
    """Return the content of an untrusted file. Raises OSError if `path` is no file, or a file larger than `n_bytes`."""
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > n_bytes:
            raise OSError(errno.EFBIG, f"over {n_bytes:,} bytes", str(path))
        return file.read(n_bytes)


def parse_json(content: str | bytes) -> Any:
    """Parse untrusted JSON. Raises ValueError if it is invalid or nested too deeply."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def check_deflated(archive: Any) -> None:
    """Raise ValueError if a member of a `ZipFile` is compressed by another method than Deflate.

    zipfile cannot limit how much other methods decompress at once.
    """
    for member in archive.infolist():
        if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise ValueError("its compression is not Deflate")


def is_special(path: Path) -> bool:
    """Return whether a path is a directory, a pipe, a device or in `DESCRIPTORS`. A file cannot replace such a path."""
    return path in DESCRIPTORS or (path.exists() and not path.is_file())


@contextlib.contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file for writing. If the block succeeds, the temporary file replaces the file at `path`.

    The new file gets the mode of the old file. A special file (see `is_special`) is written in place.

    Raises OutputError if the file cannot be written.
    """
    if is_special(path):
        target = os.dup(DESCRIPTORS[path]) if path in DESCRIPTORS else path
        with _errors_of(path), open(target, "wb") as file:  # noqa: PTH123
            yield file
        return
    path = Path(os.path.realpath(path))  # replace the target of a symlink, not the link
    temp = _beside(path, TEMP_MARK)
    sweep_temps(path.parent, path.name)
    try:
        with _errors_of(path, temp):
            # 1. Let the block write the whole content to the temporary file.
            with temp.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            # 2. Replace the old file by the temporary file.
            if path.exists():
                temp.chmod(path.stat().st_mode & 0o7777)
            temp.replace(path)
            sync(path.parent)
    finally:
        with contextlib.suppress(OSError):
            temp.unlink(missing_ok=True)


@contextlib.contextmanager
def _errors_of(*paths: Path) -> Iterator[None]:
    """Convert an OSError about one of these paths to an OutputError that names the first path.

    Errors about other files, and the error of a closed pipe, are not converted.
    """
    try:
        yield
    except OSError as error:
        names_other = error.filename is not None and error.filename not in map(str, paths)
        if error.errno is None or isinstance(error, BrokenPipeError) or names_other:
            raise
        raise OutputError(f"cannot write {paths[0]}: {error.strerror}", hint=WRITE_HINT) from error


def _beside(path: Path, mark: str) -> Path:
    """Return a path in the directory of `path` that only this process uses: NAME + mark + process id."""
    return path.with_name(f"{path.name}{mark}{os.getpid()}")


def atomic_write(path: Path, content: bytes | str) -> None:
    """Replace the content of a file atomically. Lone surrogates in a text are written as backslash escapes."""
    if isinstance(content, str):
        content = content.encode(errors="backslashreplace")
    with atomic_writer(path) as file:
        file.write(content)


def write_json(path: Path, content: object) -> None:
    """Write a value to a file as JSON. The file is replaced atomically."""
    atomic_write(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def append_whole(path: Path, content: bytes) -> None:
    """Append all of `content` to a file. If the disk has no room for it, append nothing and raise OutputError."""
    writing = os_errors_as(OutputError, f"write {path}", hint="check the disk")
    with writing, path.open("ab", buffering=0) as file:
        size = file.tell()
        if file.write(content) < len(content):  # the disk is full: remove the part that was written
            file.truncate(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def atomic_directory(path: Path, *, kept: Sequence[str] = ()) -> Iterator[Path]:
    """Make a temporary directory and yield its path. If the block succeeds, the directory replaces `path`.

    The files and directories in `kept` are moved from the old directory to the new one.
    """
    path = Path(os.path.realpath(path))
    temp = _beside(path, TEMP_MARK)
    old = _beside(path, OLD_MARK)
    sweep_temps(path.parent, path.name)
    try:
        with os_errors_as(OutputError, f"write {path}", hint=WRITE_HINT):
            # 1. Let the block write all files to the temporary directory.
            shutil.rmtree(temp, ignore_errors=True)  # left by a killed process with the same pid
            temp.mkdir(parents=True)
            yield temp
            for written in (*temp.iterdir(), temp):
                sync(written)
            # 2. Rename the old directory, then the new one: a rename cannot replace a directory that has files.
            if path.exists():
                shutil.rmtree(old, ignore_errors=True)
                path.rename(old)
            temp.rename(path)
            for name in kept:
                if (old / name).exists():
                    (old / name).rename(path / name)
            sync(path.parent)
            sweep_temps(path.parent, path.name, OLD_MARK)  # not earlier: an old directory may be the only copy
    finally:
        # If only the old directory has been renamed, undo this.
        if old.exists() and not path.exists():
            old.rename(path)
        for rest in (temp, old):
            shutil.rmtree(rest, ignore_errors=True)


def sync(path: Path) -> None:
    """Write a file, or a directory's list of names, from the system's buffers to disk.

    Does nothing if the system cannot open the path, such as a directory on Windows.
    """
    with contextlib.suppress(PermissionError, NotImplementedError):
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sweep_temps(directory: Path, name: str = "", mark: str = TEMP_MARK) -> None:
    """Remove temporary files and directories that killed processes have left in `directory`.

    If `name` is not empty, remove only those of the file or directory `name`.
    """
    for stale in directory.glob(f"{glob.escape(name) or '*'}{mark}*"):
        _, _, process = stale.name.rpartition(mark)
        # Skip files of other programs, and of processes that are still running.
        if not re.fullmatch("[0-9]{1,7}", process) or is_running(int(process)):
            continue
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # the file belongs to another user
                stale.unlink()


def is_running(process: int) -> bool:
    """Return whether a process with this id runs on this machine."""
    if os.name == "nt":  # os.kill would end the process. False does no harm: open files cannot be removed
        return False
    try:
        os.kill(process, 0)  # signal 0 is not sent; the call fails if there is no such process
    except OSError as error:
        return isinstance(error, PermissionError)  # the process exists, but belongs to another user
    return True


def cache_directory() -> Path:
    """Return the cache directory, and make it if it is missing.

    The path is NMT_CACHE if this variable is set. Otherwise it is XDG_CACHE_HOME/nmt or ~/.cache/nmt.

    Raises:
        OutputError: this process cannot write there.
        InputError: other users can change the content of the directory.
    """
    # 1. Find the path.
    named = os.environ.get("NMT_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - never fails
    path = Path(os.path.realpath(named or f"{home}/nmt"))
    # 2. Check that this process can write there, and that no other user can.
    hint = "set NMT_CACHE=PATH in the environment to a directory that you may write to"
    with os_errors_as(OutputError, f"write to the cache {path}", hint=hint):
        if home.startswith("~") and not named:
            raise FileNotFoundError(errno.ENOENT, "this user has no home directory")
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path).close()
    status = path.stat()
    if hasattr(os, "getuid") and (status.st_mode & 0o022 or status.st_uid != os.getuid()):  # Windows has no user ids
        command = f"chmod go-w {shlex.quote(str(path))}"
        raise InputError(f"{path} is no safe cache: others may write there", hint=f"{command}, or {hint}")
    return path


def cached(
    kind: str, made_from: object, make: Callable[[Path], None], is_whole: Callable[[Path], bool] = lambda _: True
) -> Path:
    """Return the directory of a cache entry. If the entry is missing or damaged, make it.

    If the cache is too large, old entries are removed. Another process may remove this entry, too, so the caller should
    open its files at once.

    Args:
        kind: the first part of the entry's name.
        made_from: a JSON value that determines the content. Its hash is the second part of the name.
        make: a function that writes the content to an empty directory.
        is_whole: a function that returns whether the entry in a directory is undamaged.
    """
    digest = sha256(json.dumps(made_from).encode())
    path = cache_directory() / f"{kind}-{digest[:20]}"
    lock = path.with_name(f"{path.name}.lock")
    with locked(lock, setting="NMT_CACHE=PATH in the environment", wait=True):
        if not (path.is_dir() and is_whole(path)):
            with atomic_directory(path) as temp:
                make(temp)
        lock.touch()  # the mtime of the lock file is the time of the entry's last use
    with contextlib.suppress(OSError):  # another process may remove files at the same time
        _remove_unused(path.parent)
    return path


def _remove_unused(directory: Path) -> None:
    """Remove old cache entries, see `MAX_CACHE_BYTES`. Keep the lock files: another process may wait for a lock."""
    digest = "[0-9a-f]" * 20
    locks = sorted(directory.glob(f"*-{digest}.lock"), key=_last_use, reverse=True)  # most recently used first
    n_bytes = 0  # size of the entries so far
    for lock in locks:
        entry = lock.with_suffix("")
        n_bytes += sum(file.stat().st_size for file in entry.glob("*"))
        with contextlib.suppress(NmtError), locked(lock):  # raises if another process is making the entry
            if n_bytes > MAX_CACHE_BYTES and _last_use(lock) < time.time() - DAY_S:
                shutil.rmtree(entry, ignore_errors=True)
                sweep_temps(directory, lock.stem)


def _last_use(lock: Path) -> float:
    return lock.stat().st_mtime


@contextlib.contextmanager
def locked(path: Path, *, holder: str = "process", setting: str = "", wait: bool = False) -> Iterator[None]:
    """Hold a lock on the file `path` during the block. If the process is killed, the kernel releases the lock.

    If another process holds the lock, wait for it. If `wait` is False, raise InputError instead.

    Args:
        holder: what the message calls the other process.
        setting: the setting with which the user can choose another directory; part of the hint.
    """
    other = f"another directory with {setting}" if setting else "another directory"  # for the hints of both errors
    try:
        import fcntl
    except ImportError:  # on Windows, nothing keeps a second process out
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("a+"))
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            hint = f"wait for it to end, or choose {other}"
            raise InputError(f"{path.parent} is in use by another {holder}", hint=hint) from error
        except OSError as error:
            hint = f"choose {other}, perhaps on another disk"
            raise OutputError(f"cannot lock {path}: {error.strerror or error}", hint=hint) from error
        yield
