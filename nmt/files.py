"""Files that matter: written whole or not at all, locked, and known by their hash.

Knows nothing of models or runs. A write goes to a temporary file in the same directory, is flushed and synced,
read back, and only then takes the final name; so whoever opens that name finds the old content or the new,
never a part.
"""

import contextlib
import errno
import hashlib
import json
import os
import shlex
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from nmt.errors import InputError, NmtError, OutputError

TEMP_MARK = ".tmp."
SIZES = "sizes.json"  # of the files in something cached; written last
MAX_UNUSED_S = 30 * 24 * 3600  # after which something cached is thrown away


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


def hash_file(path: Path) -> str:
    """Hex digest of what a file holds, which may be more than memory does."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def is_special(path: Path) -> bool:
    """Whether a path names a directory, a pipe, a device or an open descriptor: nothing that can be replaced."""
    return _descriptor(path) is not None or (path.exists() and not path.is_file())


def _descriptor(path: Path) -> int | None:
    """The descriptor of this process that a path such as /dev/stdout or /dev/fd/3 stands for, else None.

    On Linux, opening such a path again gives a second position in the file, and fails for a socket.
    """
    descriptors = os.path.realpath("/dev/fd")  # on Linux /proc/PID/fd
    for _ in range(40):  # as many links as Linux follows
        if path.name.isdecimal() and len(path.name) < 10 and os.path.realpath(path.parent) == descriptors:
            return int(path.name)
        if not path.is_symlink():
            break
        path = path.parent / path.readlink()
    return None


@contextlib.contextmanager
def atomic_writer(path: Path) -> Iterator[BinaryIO]:
    """A file to write to that takes the name `path` when the block ends well; an existing file's mode is kept.

    What is special is written in place.

    Raises:
        OutputError: the directory is missing or not writable, or the disk is full.
    """
    special = is_special(path)
    path = path if special else Path(os.path.realpath(path))  # a link stays a link
    temp = Path(f"{path}{TEMP_MARK}{os.getpid()}")
    try:
        if special:
            descriptor = _descriptor(path)
            with open(path if descriptor is None else os.dup(descriptor), "wb") as file:  # noqa: PTH123
                yield file
            return
        with temp.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temp.chmod(path.stat().st_mode & 0o7777)
        temp.replace(path)
        sync_directory(path.parent)
    except BrokenPipeError:  # whoever read a pipe has had enough
        raise
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temp), str(path)):
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


def sweep_temps(directory: Path, name: str = "*") -> None:
    """Remove what a killed process left of its unfinished writes."""
    for stale in directory.glob(f"{name}{TEMP_MARK}*"):
        if stale.is_dir():
            shutil.rmtree(stale, ignore_errors=True)
        else:
            stale.unlink(missing_ok=True)


def cache_directory() -> Path:
    """The user's directory for what can be made again: NMT_CACHE, else `nmt` below XDG_CACHE_HOME or ~/.cache.

    Without a home that can be written it is a temporary directory. Its content is trusted, so no other user may
    own it, write to it or exchange it.

    Raises:
        InputError: another user may.
        OutputError: NMT_CACHE cannot be written, or no other directory can.
    """
    temporary = Path(tempfile.gettempdir()) / f"nmt-{getattr(os, 'getuid', int)()}"
    named = os.environ.get("NMT_CACHE")
    homes = (os.environ.get("XDG_CACHE_HOME", ""), os.path.expanduser("~/.cache"))  # noqa: PTH111 - never fails
    below = (Path(home, "nmt") for home in homes if Path(home).is_absolute())
    for path in (Path(named),) if named else (next(below, temporary), temporary):
        reason = "it is not writable"
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            reason = error.strerror or reason
        if path.is_dir() and os.access(path, os.W_OK):
            break
    else:
        what = f"NMT_CACHE={named}" if named else f"a cache at {path}"
        hint = "set NMT_CACHE=PATH in the environment to a directory that you may write to"
        raise OutputError(f"cannot write to {what}: {reason}", hint=hint)
    if path != temporary:
        path = Path(os.path.realpath(path))  # from now on, changing a link has no effect
    if hasattr(os, "getuid") and (reason := _unsafe(path, path.parent if path == temporary else None)):
        raise InputError(
            f"{path} is no safe cache: {reason}",
            hint=f"chmod go-w {shlex.quote(str(path))}, or set NMT_CACHE=PATH in the environment",
        )
    return path


def _unsafe(path: Path, shared: Path | None) -> str:
    """Why a directory, perhaps in a folder that all users share, cannot be trusted; empty if it can."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return "it is a link"
    if status.st_mode & 0o022:
        return "others may write there"
    if status.st_uid != os.getuid():
        return "it is not yours"
    mode = shared.stat().st_mode if shared else 0
    return "others may replace it" if mode & 0o022 and not mode & stat.S_ISVTX else ""


def cached(kind: str, made_from: object, make: Callable[[Path], None]) -> Path:
    """A directory of the cache, known by the hash of what it is made from.

    Where it is not there, or not whole, `make` fills it, once: others who want it wait. What nobody has wanted for
    a month goes.

    Args:
        kind: the beginning of its name.
        made_from: what JSON can say; all that decides its content.
        make: is given an empty directory.
    Raises:
        OutputError: it cannot be written.
    """
    path = cache_directory() / f"{kind}-{sha256(json.dumps(made_from).encode())[:20]}"
    lock = path.with_name(f"{path.name}.lock")
    with locked(lock, wait=True):
        if not _whole(path):
            sweep_temps(path.parent, path.name)
            with atomic_directory(path) as temp:
                make(temp)
                sizes = {file.name: file.stat().st_size for file in temp.iterdir()}
                (temp / SIZES).write_text(json.dumps(sizes), encoding="utf-8")
        lock.touch()  # its time is that of the last use
        _remove_unused(path.parent)
    return path


def _remove_unused(directory: Path) -> None:
    """Remove what has not been used for a month. Lock files stay: a process may be waiting for one."""
    limit = time.time() - MAX_UNUSED_S
    for lock in directory.glob(f"*-{'[0-9a-f]' * 20}.lock"):
        with contextlib.suppress(OSError, NmtError):  # in use, or another user's
            if lock.stat().st_mtime < limit:
                with locked(lock):
                    if lock.stat().st_mtime < limit:  # not used while this process waited
                        shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
                        sweep_temps(directory, lock.stem)


def _whole(path: Path) -> bool:
    """Whether something cached is there, and nobody has cleared some of its files away."""
    try:
        sizes = json.loads((path / SIZES).read_text(encoding="utf-8"))
        return all((path / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock file `path`; the kernel drops it when the process ends, however it ends.

    Raises:
        InputError: another process holds it, and we do not wait.
        OutputError: it cannot be opened, or its file system has no locks.
    """
    place = "NMT_CACHE=PATH in the environment" if wait else "run=PATH"
    try:
        import fcntl
    except ImportError:  # Windows: a run is not guarded against a second training there
        yield
        return
    try:
        file = path.open("a+")
    except OSError as error:
        raise OutputError(
            f"cannot open {path}: {error.strerror}", hint=f"choose another directory with {place}"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError as error:
            raise InputError(
                f"{path.parent} is in use by another training",
                hint="wait for it to end, or give this one a directory of its own with run=PATH",
            ) from error
        except OSError as error:
            raise OutputError(
                f"cannot lock {path}: {error.strerror}", hint=f"choose a directory on another disk with {place}"
            ) from error
        yield
