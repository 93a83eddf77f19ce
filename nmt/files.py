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
from zipfile import ZIP_DEFLATED, ZIP_STORED

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
        size = os.fstat(file.fileno()).st_size
        if size > n_bytes:
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
    for member in archive.infolist():
        if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
            raise ValueError("its compression is not Deflate")


def is_special(path: Path) -> bool:
    """Return whether a path is a directory, a pipe, a device or an open descriptor, which a file cannot replace."""
    return path in DESCRIPTORS or (path.exists() and not path.is_file())


@contextlib.contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` and keeps its mode if the block succeeds. Special files are written in place.

    Removes what killed processes have left of the same file.
    """
    if is_special(path):
        with _opened_in_place(path) as file:
            yield file
        return
    path = Path(os.path.realpath(path))  # replace the target of a symlink, not the link
    temp = _beside(path, TEMP_MARK)
    sweep_temps(path.parent, path.name)
    try:
        # 1. Write all of it to a file beside it.
        with temp.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # 2. Let it take the place of the old file.
        if path.exists():
            mode = path.stat().st_mode & 0o7777
            temp.chmod(mode)
        temp.replace(path)
        sync(path.parent)
    except OSError as error:
        if not _is_of_file(error, temp, path):
            raise
        raise _cannot_write(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temp.unlink(missing_ok=True)


@contextlib.contextmanager
def _opened_in_place(path: Path) -> Iterator[BinaryIO]:
    """Open a pipe, a device or an open descriptor for writing."""
    try:
        target = os.dup(DESCRIPTORS[path]) if path in DESCRIPTORS else path
        with open(target, "wb") as file:  # noqa: PTH123
            yield file
    except OSError as error:
        if not _is_of_file(error, path):
            raise
        raise _cannot_write(path, error) from error


def _beside(path: Path, mark: str) -> Path:
    """Return the path of this process' file or directory beside `path`."""
    return path.with_name(f"{path.name}{mark}{os.getpid()}")


def _is_of_file(error: OSError, *paths: Path) -> bool:
    """Return whether an error concerns one of the paths: not another file of the block, and not a closed pipe."""
    if error.errno is None or isinstance(error, BrokenPipeError):
        return False
    return error.filename is None or error.filename in map(str, paths)


def _cannot_write(path: Path, error: OSError) -> OutputError:
    hint = "check that the directory exists, that you may write there and that the disk has room"
    return OutputError(f"cannot write {path}: {error.strerror or error}", hint=hint)


def atomic_write(path: Path, content: bytes | str) -> None:
    """Replace a file; lone surrogates of a text are written as escapes."""
    if isinstance(content, str):
        content = content.encode(errors="backslashreplace")
    with atomic_writer(path) as file:
        file.write(content)


def append_whole(path: Path, content: bytes) -> None:
    """Append all of `content` or nothing. Raises OutputError, for example if the disk is full."""
    writing = os_errors_as(OutputError, f"write {path}", hint="check the disk")
    with writing, path.open("ab", buffering=0) as file:
        size = file.tell()
        n_written = file.write(content)
        if n_written < len(content):  # the disk is full
            file.truncate(size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextlib.contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Make a directory that replaces `path` if the block succeeds, as `atomic_writer` does a file."""
    path = Path(os.path.realpath(path))
    temp = _beside(path, TEMP_MARK)
    old = _beside(path, OLD_MARK)
    sweep_temps(path.parent, path.name)
    try:
        # 1. Write all of it to a directory beside it.
        shutil.rmtree(temp, ignore_errors=True)  # left by a killed process with the same pid
        temp.mkdir(parents=True)
        yield temp
        for written in (*temp.iterdir(), temp):
            sync(written)
        # 2. Let it take the place of the old directory. A directory cannot be replaced in one step.
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            path.rename(old)
        temp.rename(path)
        sync(path.parent)
        sweep_temps(path.parent, path.name, OLD_MARK)  # not before: it may be the only copy
    except OSError as error:
        raise _cannot_write(path, error) from error
    finally:
        # Between the two renames there is only the old directory, under its other name.
        if old.exists() and not path.exists():
            old.rename(path)
        for rest in (temp, old):
            shutil.rmtree(rest, ignore_errors=True)


def sync(path: Path) -> None:
    """Sync a file to disk, or the renames in a directory, if the system can open directories."""
    with contextlib.suppress(PermissionError, NotImplementedError), contextlib.ExitStack() as stack:
        flags = os.O_RDONLY if path.is_dir() else os.O_RDWR
        handle = os.open(path, flags)
        stack.callback(os.close, handle)
        os.fsync(handle)


def sweep_temps(directory: Path, name: str = "", mark: str = TEMP_MARK, *, of_running: bool = False) -> None:
    """Remove what killed processes have left of the file or directory `name`, "" for all.

    With `of_running`, also those of running processes, for callers whose lock keeps other writers out.
    """
    pattern = glob.escape(name) or "*"
    for stale in directory.glob(f"{pattern}{mark}*"):
        _, _, process = stale.name.rpartition(mark)
        if not re.fullmatch("[0-9]{1,7}", process):  # somebody else's file
            continue
        if is_running(int(process)) and not of_running:
            continue
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):  # it is another user's
                stale.unlink()


def is_running(process: int) -> bool:
    """Return whether a process with this id runs on this machine."""
    if os.name == "nt":  # os.kill would end it. A file that is open cannot be removed there.
        return False
    try:
        os.kill(process, 0)  # sends no signal
    except OSError as error:
        return isinstance(error, PermissionError)  # then it is another user's
    return True


def cache_directory() -> Path:
    """Return the user's cache: NMT_CACHE, else `nmt` below XDG_CACHE_HOME or ~/.cache, else one for this process alone.

    Raises OutputError if NMT_CACHE cannot be written, and InputError if other users could change the content.
    """
    # 1. Where is it?
    named = os.environ.get("NMT_CACHE")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 - never fails
    if not named and home.startswith("~"):  # this user has no home
        return _process_cache()
    path = Path(os.path.realpath(named or f"{home}/nmt"))  # so that changing a symlink later has no effect
    # 2. Can this process write there?
    hint = "set NMT_CACHE=PATH in the environment to a directory that you may write to"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        if not named:
            return _process_cache()
        raise OutputError(f"cannot write to NMT_CACHE={named}: {error.strerror}", hint=hint) from error
    # 3. Can nobody else?
    reason = ""
    if hasattr(os, "getuid"):  # not on Windows
        status = path.stat()
        if status.st_mode & 0o022:
            reason = "others may write there"
        if status.st_uid != os.getuid():
            reason = "it is not yours"
    if reason:
        command = f"chmod go-w {shlex.quote(str(path))}"
        raise InputError(f"{path} is no safe cache: {reason}", hint=f"{command}, or {hint}")
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
    digest = sha256(json.dumps(made_from).encode())
    path = cache_directory() / f"{kind}-{digest[:20]}"
    lock = path.with_name(f"{path.name}.lock")
    with locked(lock, setting="NMT_CACHE=PATH in the environment", wait=True):
        sweep_temps(path.parent, path.name, of_running=True)  # a child of a killed process may still be writing one
        if not (path.is_dir() and is_whole(path)):
            with atomic_directory(path) as temp:
                make(temp)
        lock.touch()  # even if nothing was made: its mtime is the time of last use
    with contextlib.suppress(OSError):  # another process may remove files at the same time
        _remove_unused(path.parent)
    return path


def _remove_unused(directory: Path) -> None:
    """Remove old cache entries. Their lock files stay: another process may wait for one."""
    digest = "[0-9a-f]" * 20
    locks = sorted(directory.glob(f"*-{digest}.lock"), key=_last_use, reverse=True)  # most recently used first
    n_bytes = 0  # of the entries so far
    for lock in locks:
        entry = lock.with_suffix("")
        for file in entry.glob("*"):
            n_bytes += file.stat().st_size
        max_unused_s = DAY_S if n_bytes > MAX_CACHE_BYTES else MAX_UNUSED_S
        with contextlib.suppress(NmtError), locked(lock):  # raises if another process is making the entry
            if _last_use(lock) < time.time() - max_unused_s:
                shutil.rmtree(entry, ignore_errors=True)
                sweep_temps(directory, lock.stem, of_running=True)


def _last_use(lock: Path) -> float:
    return lock.stat().st_mtime


@contextlib.contextmanager
def locked(path: Path, *, holder: str = "process", setting: str = "", wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path`; the kernel releases it when the process ends.

    If another process holds it, waits or raises InputError. The message contains `holder`, the kind of process, and
    `setting`, the setting that chooses the directory.
    """
    # What the hints of both errors recommend.
    other = f"another directory with {setting}" if setting else "another directory"
    try:
        import fcntl
    except ImportError:  # Windows: no protection from a second process
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
