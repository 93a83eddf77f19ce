"""Atomic writes, locks, hashes and a cache.

A write goes to a temporary file in the same directory, which is synced and then renamed. So readers see either the old
or the new content, never a part of it.
"""

import atexit
import contextlib
import errno
import functools
import glob
import hashlib
import json
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

from nmt.errors import InputError, NmtError, OutputError, os_errors_as

TEMP_MARK, OLD_MARK = ".tmp.", ".nmt-old."  # before the id of the process that writes or replaces the file
DESCRIPTORS = {Path("/dev/stdout"): 1, Path("/dev/stderr"): 2}  # on Linux, opening them writes from offset 0
# Cache entries are removed a month after their last use, or after a day if there are too many of them.
MAX_UNUSED_S, DAY_S = 30 * 24 * 3600, 24 * 3600
MAX_CACHE_BYTES = 2_000_000_000  # about 200 converted models of 2.35M parameters, or the text of 10M pairs


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def hash_file(path: Path) -> str:
    """Return the hex digest of a file, which may be larger than memory."""
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def open_file(path: Path) -> BufferedReader:
    """Open a file for reading. Raises OSError for a directory, a pipe, which would block, or an endless device."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "not a file", str(path))
    return path.open("rb")


def read_capped(path: Path, n_bytes: int) -> bytes:
    """Read an untrusted file. Raises OSError if it exceeds `n_bytes`, or is not a file."""
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_size > n_bytes:
            raise OSError(errno.EFBIG, f"over {n_bytes:,} bytes", str(path))
        return file.read(n_bytes)


def parse_json(content: str | bytes) -> Any:
    """`json.loads` for untrusted content. Raises ValueError, also if values are nested too deeply for the parser."""
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def check_deflated(archive: Any) -> None:
    """Raise ValueError unless all members of a `ZipFile` are stored or deflated: zipfile cannot limit other methods."""
    if any(info.compress_type not in (0, 8) for info in archive.infolist()):  # ZIP_STORED, ZIP_DEFLATED
        raise ValueError("its compression is not Deflate")


def is_special(path: Path) -> bool:
    """Whether a path is a directory, a pipe, a device or an open descriptor, which a file cannot replace."""
    return path in DESCRIPTORS or (path.exists() and not path.is_file())


@contextlib.contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` and keeps its mode if the block succeeds. Special files are written in place.

    Removes what killed processes have left of the same file.
    """
    special = is_special(path)
    path = path if special else Path(os.path.realpath(path))  # replace the target of a symlink, not the link
    temp = Path(f"{path}{TEMP_MARK}{os.getpid()}")
    if not special:
        sweep_temps(path.parent, path.name)
    try:
        if special:
            with open(os.dup(DESCRIPTORS[path]) if path in DESCRIPTORS else path, "wb") as file:  # noqa: PTH123
                yield file
            return
        with temp.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temp.chmod(path.stat().st_mode & 0o7777)
        temp.replace(path)
        sync(path.parent)
    except OSError as error:
        is_other_file = error.errno is None or error.filename not in (None, str(temp), str(path))
        if is_other_file or isinstance(error, BrokenPipeError):  # an error of the block, or a closed pipe
            raise
        raise _cannot_write(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temp.unlink(missing_ok=True)


def _cannot_write(path: Path, error: OSError) -> OutputError:
    hint = "check that the directory exists, that you may write there and that the disk has room"
    return OutputError(f"cannot write {path}: {error.strerror or error}", hint=hint)


def atomic_write(path: Path, content: bytes | str) -> None:
    with atomic_writer(path) as file:
        file.write(content.encode(errors="backslashreplace") if isinstance(content, str) else content)


def append_whole(path: Path, content: bytes) -> None:
    """Append all of `content` or nothing. Raises OutputError, for example if the disk is full."""
    writing = os_errors_as(OutputError, f"write {path}", hint="check the disk")
    with writing, path.open("ab", buffering=0) as file:
        size = file.tell()
        if file.write(content) < len(content):  # the disk is full
            file.truncate(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Make a directory that replaces `path` if the block succeeds, as `atomic_writer` does a file."""
    path = Path(os.path.realpath(path))
    temp, old = (path.with_name(f"{path.name}{mark}{os.getpid()}") for mark in (TEMP_MARK, OLD_MARK))
    sweep_temps(path.parent, path.name)
    try:
        shutil.rmtree(temp, ignore_errors=True)  # left by a killed process with the same pid
        temp.mkdir(parents=True)
        yield temp
        for written in (*temp.iterdir(), temp):
            sync(written)
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            path.rename(old)
        temp.rename(path)
        sync(path.parent)
        sweep_temps(path.parent, path.name, OLD_MARK)  # not before: it may be the only copy
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        if old.exists() and not path.exists():
            old.rename(path)
        for rest in (temp, old):
            shutil.rmtree(rest, ignore_errors=True)


def sync(path: Path) -> None:
    """Sync a file to disk, or the renames in a directory, if the system can open directories."""
    with contextlib.suppress(PermissionError, NotImplementedError), contextlib.ExitStack() as stack:
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
        stack.callback(os.close, handle)
        os.fsync(handle)


def sweep_temps(directory: Path, name: str = "", mark: str = TEMP_MARK, *, of_running: bool = False) -> None:
    """Remove what killed processes have left of the file or directory `name`, "" for all.

    With `of_running`, also those of running processes, for callers whose lock keeps other writers out.
    """
    for stale in directory.glob(f"{glob.escape(name) or '*'}{mark}*"):
        process = stale.name.rpartition(mark)[2]
        if not re.fullmatch("[0-9]{1,7}", process) or (is_running(int(process)) and not of_running):
            continue
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # it is another user's
                stale.unlink()


def is_running(process: int) -> bool:
    """Whether a process with this id runs on this machine."""
    if os.name == "nt":  # os.kill would end it. A file that is open cannot be removed there.
        return False
    try:
        os.kill(process, 0)
    except OSError as error:
        return isinstance(error, PermissionError)  # then it is another user's
    return True


def cache_directory() -> Path:
    """Return the user's cache: NMT_CACHE, else `nmt` below XDG_CACHE_HOME or ~/.cache, else one for this process alone.

    Raises OutputError if NMT_CACHE cannot be written, and InputError if other users could change the content.
    """
    named = os.environ.get("NMT_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - never fails
    if not named and home.startswith("~"):  # this user has no home
        return _process_cache()
    path = Path(os.path.realpath(named or f"{home}/nmt"))  # so that changing a symlink later has no effect
    hint = "set NMT_CACHE=PATH in the environment to a directory that you may write to"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        if not named:
            return _process_cache()
        raise OutputError(f"cannot write to NMT_CACHE={named}: {error.strerror}", hint=hint) from error
    status = path.stat()
    if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o022):
        reason = "it is not yours" if status.st_uid != os.getuid() else "others may write there"
        raise InputError(f"{path} is no safe cache: {reason}", hint=f"chmod go-w {shlex.quote(str(path))}, or {hint}")
    return path


@functools.cache
def _process_cache() -> Path:
    path = Path(tempfile.mkdtemp(prefix="nmt-"))
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


def cached(
    kind: str, made_from: object, make: Callable[[Path], None], is_whole: Callable[[Path], bool] = lambda _: True
) -> Path:
    """Return the cache entry for `made_from`, a JSON value. While other processes wait, `make` fills a missing entry.

    An entry that is not `is_whole` is made again. Removes entries whose last use was a month ago, or a day ago if they
    and the entries used since then exceed `MAX_CACHE_BYTES`. A process should open the files of an entry at once.
    """
    path = cache_directory() / f"{kind}-{sha256(json.dumps(made_from).encode())[:20]}"
    lock = path.with_name(f"{path.name}.lock")
    with locked(lock, setting="NMT_CACHE=PATH in the environment", wait=True):
        sweep_temps(path.parent, path.name, of_running=True)  # a child of a killed process may still be writing one
        if not (path.is_dir() and is_whole(path)):
            with atomic_directory(path) as temp:
                make(temp)
        lock.touch()  # its mtime is the time of last use
    with contextlib.suppress(OSError):  # another process may remove files at the same time
        _remove_unused(path.parent)
    return path


def _remove_unused(directory: Path) -> None:
    """Remove old cache entries. Their lock files stay: another process may wait for one."""
    n_bytes = 0
    locks = [(lock.stat().st_mtime, lock) for lock in directory.glob(f"*-{'[0-9a-f]' * 20}.lock")]
    for _, lock in sorted(locks, reverse=True):  # most recently used first
        entry = lock.with_suffix("")
        n_bytes += sum(file.stat().st_size for file in entry.glob("*"))
        with contextlib.suppress(NmtError), locked(lock):  # raises if another process is making the entry
            if lock.stat().st_mtime < time.time() - (DAY_S if n_bytes > MAX_CACHE_BYTES else MAX_UNUSED_S):
                shutil.rmtree(entry, ignore_errors=True)
                sweep_temps(directory, lock.stem, of_running=True)


@contextlib.contextmanager
def locked(path: Path, *, holder: str = "process", setting: str = "", wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path`; the kernel releases it when the process ends.

    If another process holds it, waits or raises InputError. The message contains `holder`, the kind of process, and
    `setting`, the setting that chooses the directory.
    """
    other = f"another directory with {setting}" if setting else "another directory"
    try:
        import fcntl
    except ImportError:  # Windows: no protection from a second process
        yield
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(path.open("a+"))
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            hint = f"wait for it to end, or choose {other}"
            raise InputError(f"{path.parent} is in use by another {holder}", hint=hint) from error
        except OSError as error:
            hint = f"choose {other}, perhaps on another disk"
            raise OutputError(f"cannot lock {path}: {error.strerror or error}", hint=hint) from error
        yield
