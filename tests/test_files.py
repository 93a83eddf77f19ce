"""Files are written whole or not at all, one process holds a lock, and errors carry hint and exit code."""

import contextlib
import errno
import fcntl
import gzip
import os
import re
import resource
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import file_bytes
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import nmt
from nmt.errors import InputError, NmtError, OutputError, StoppedError
from nmt.files import (
    TEMP_MARK,
    atomic_directory,
    atomic_write,
    atomic_writer,
    cache_directory,
    cached,
    hash_file,
    is_special,
    locked,
    sha256,
    sweep_temps,
    sync_directory,
)

OLD, NEW = b"old content", b"new content, and longer"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with old content, alone in its directory."""
    path = tmp_path / "it"
    path.write_bytes(OLD)
    return path


def alone(path: Path) -> bool:
    """Whether no temporary file is left beside it."""
    return [one.name for one in path.parent.iterdir()] == [path.name]


# --- writing ----------------------------------------------------------------------------------------------


@hypothesis_settings(max_examples=40, deadline=None)
@given(st.binary() | st.text(st.characters(exclude_categories=["Cs"])))
def test_what_is_written_is_what_is_read(folder: Path, content: bytes | str) -> None:
    path = folder / "it"
    atomic_write(path, content)
    assert path.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert alone(path)


def test_a_writer_gives_the_name_only_at_the_end(file: Path) -> None:
    with atomic_writer(file) as out:
        out.write(NEW)
        out.flush()
        assert file.read_bytes() == OLD
    assert file.read_bytes() == NEW
    assert alone(file)


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_the_mode_of_a_file_that_is_replaced_is_kept(file: Path, mode: int) -> None:
    file.chmod(mode)
    atomic_write(file, NEW)
    assert stat.S_IMODE(file.stat().st_mode) == mode


def fail(*_args: object, **_kwargs: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["fsync", "chmod", "replace"])
def test_a_write_that_fails_at_the_end_leaves_the_old_content(
    file: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(OutputError) as caught:
            atomic_write(file, NEW)
    assert str(caught.value) == f"cannot write {file}: No space left on device"
    assert caught.value.exit_code == 1
    assert "room" in caught.value.hint
    assert file.read_bytes() == OLD
    assert alone(file)


@contextlib.contextmanager
def small_disk() -> Iterator[None]:
    """The kernel refuses files over 100 bytes: as close to a full disk as a test comes without one.

    No fixture: pytest's own output may go to a file, and it writes before fixtures end.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("n_bytes", [101, 10_000_000])  # fails in flush; in write, which does not buffer so much
def test_a_write_that_the_disk_has_no_room_for_leaves_the_old_content(file: Path, n_bytes: int) -> None:
    with small_disk(), pytest.raises(OutputError, match=r"cannot write .*/it: File too large"):
        atomic_write(file, b"x" * n_bytes)
    assert file.read_bytes() == OLD
    assert alone(file)


def test_a_rename_that_cannot_be_synced_is_told_and_leaves_the_new_content(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync

    def fail_on_directory(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            fail()
        real(handle)

    monkeypatch.setattr(os, "fsync", fail_on_directory)
    with pytest.raises(OutputError, match="No space left"):
        atomic_write(file, NEW)
    assert file.read_bytes() == NEW
    assert alone(file)


def test_a_system_that_does_not_open_directories_is_no_failure(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> int:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        sync_directory(file.parent)
    atomic_write(file, NEW)
    assert file.read_bytes() == NEW


def test_content_that_is_read_back_otherwise_never_takes_the_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_bytes", lambda _self: b"rotten")
        with pytest.raises(OutputError) as caught:
            atomic_write(file, NEW)
    assert str(caught.value) == f"{file}: what was written is not what is read back"
    assert caught.value.hint == "check the disk"
    assert file.read_bytes() == OLD
    assert alone(file)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_block_that_ends_by_an_error_leaves_the_old_content(file: Path, error: type[BaseException]) -> None:
    def write_half() -> None:
        with atomic_writer(file) as out:
            out.write(NEW)
            raise error

    with pytest.raises(error):
        write_half()
    assert file.read_bytes() == OLD
    assert alone(file)


@pytest.mark.parametrize(
    "error", [gzip.BadGzipFile("Not a gzipped file"), FileNotFoundError(errno.ENOENT, "No such file", "/absent")]
)
def test_a_file_that_the_block_cannot_read_is_not_called_a_file_that_cannot_be_written(
    file: Path, error: OSError
) -> None:
    """`nmt translate -i damaged.gz -o out` must not blame `out`."""

    def write_half() -> None:
        with atomic_writer(file) as out:
            out.write(NEW)
            raise error

    with pytest.raises(type(error)):
        write_half()
    assert file.read_bytes() == OLD
    assert alone(file)


def test_a_directory_that_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"cannot write .*/absent/it: No such file or directory"):
        atomic_write(tmp_path / "absent" / "it", NEW)


def test_a_pipe_or_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """`-o /dev/null` by root must not turn /dev/null into a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with atomic_writer(pipe) as out:
            out.write(NEW)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert os.read(reader, 100) == NEW
    finally:
        os.close(reader)


WRITER = """
import sys
from pathlib import Path
from nmt.files import atomic_writer
with atomic_writer(Path(sys.argv[1])) as out:
    out.write(b"new ")
"""


def bash(script: str, cwd: Path) -> str:
    """Run a script in which `write PATH` writes "new " to PATH; the last line of its stderr."""
    (cwd / "writer.py").write_text(WRITER)
    function = f"write() {{ '{sys.executable}' writer.py \"$1\"; }}\n"
    environment = {**os.environ, "PYTHONPATH": str(Path(nmt.__file__).parents[1])}
    done = subprocess.run(["bash", "-c", function + script], cwd=cwd, env=environment, capture_output=True)
    return done.stderr.decode().strip().rpartition("\n")[2]


@pytest.mark.parametrize(
    ("script", "content"),
    [
        ("write /dev/stdout | cat > it", "new "),
        ("write /dev/stdout > it", "new "),
        ("{ printf 'a '; write /dev/stdout; printf 'b '; } > it", "a new b "),
        ("{ printf 'a '; write /dev/stdout; printf 'b '; } >> it", "old a new b "),
        ("{ printf 'a '; write /dev/stderr; printf 'b ' >&2; } 2>> it", "old new b "),
        ("{ printf 'a ' >&3; write /dev/fd/3; printf 'b ' >&3; } 3> it", "a new b "),
        ("write /proc/self/fd/3 3>> it", "old new "),
        ("ln -s /dev/stdout link; { write link; write ./link; } >> it", "old new new "),
        ("write >(cat > it); wait $!", "new "),
        ("mkfifo pipe; cat pipe > it & write pipe; wait", "new "),
    ],
)
def test_an_open_descriptor_is_written_where_it_stands(tmp_path: Path, script: str, content: str) -> None:
    (tmp_path / "it").write_text("old ")
    assert bash(script, tmp_path) == ""
    assert (tmp_path / "it").read_text() == content
    assert {file.name for file in tmp_path.iterdir()} <= {"it", "link", "pipe", "writer.py"}


def test_a_socket_as_stdout_is_written_to(tmp_path: Path) -> None:
    """The system refuses to open its name."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        subprocess.run([sys.executable, "-c", WRITER, "/dev/stdout"], stdout=theirs.fileno(), check=True)
        assert ours.recv(100) == b"new "


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("write /dev/fd/9", "cannot write /dev/fd/9: Bad file descriptor"),
        ("write /dev/stdin < it", "cannot write /dev/stdin: Bad file descriptor"),
        ("write /dev/fd/99999999999", "cannot write /proc/PID/fd/99999999999: No such file or directory"),
        ("write /dev/full", "cannot write /dev/full: No space left on device"),
        ("write .", "cannot write .: Is a directory"),
        ("write /", "cannot write /: Is a directory"),
    ],
)
def test_what_is_special_and_cannot_be_written_is_told(tmp_path: Path, script: str, error: str) -> None:
    (tmp_path / "it").write_text("old ")
    said = re.sub(r"/proc/\d+/", "/proc/PID/", bash(script, tmp_path))
    assert said == f"nmt.errors.OutputError: {error}"
    assert (tmp_path / "it").read_text() == "old "


def test_a_reader_that_has_gone_is_no_failure_of_the_output(tmp_path: Path) -> None:
    """The command ends quietly."""
    assert bash("mkfifo pipe; : < pipe & exec 3> pipe; wait; write /dev/fd/3", tmp_path).startswith("BrokenPipe")


def test_what_is_special(tmp_path: Path, file: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/stdout")
    for path in ("/dev/null", "/dev/stdout", "/dev/fd/99", "/proc/self/fd/1", tmp_path, tmp_path / "pipe"):
        assert is_special(Path(path))
    assert is_special(tmp_path / "link")
    (tmp_path / "to file").symlink_to(file)
    (tmp_path / "1").touch()
    for path in (file, tmp_path / "absent", tmp_path / "to file", tmp_path / "1", "/dev/shm/absent"):
        assert not is_special(Path(path))


def test_a_link_stays_a_link_and_the_file_behind_it_is_written(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    atomic_write(link, NEW)
    assert link.is_symlink()
    assert file.read_bytes() == NEW


def python(program: str, *arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, start_new_session=True
    )


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


KILLED_WRITER = """
import os, sys
from pathlib import Path
from nmt.files import atomic_writer
with atomic_writer(Path(sys.argv[1])) as out:
    out.write(b"half of the new")
    out.flush()
    os.kill(os.getpid(), 9)
"""


def test_a_process_killed_while_it_writes_leaves_the_old_content_and_a_temp_that_is_swept(file: Path) -> None:
    process = python(KILLED_WRITER, file)
    assert process.wait(30) == -signal.SIGKILL
    kill(process)
    assert file.read_bytes() == OLD
    assert not alone(file)
    other = file.with_name("notes.txt")
    other.write_bytes(b"mine")
    sweep_temps(file.parent)
    assert sorted(one.name for one in file.parent.iterdir()) == ["it", "notes.txt"]


def test_sweeping_takes_nothing_but_temps(file: Path) -> None:
    stale = file.with_name(f"it{TEMP_MARK}99")
    stale.write_bytes(b"half")
    sweep_temps(file.parent)
    sweep_temps(file.parent)
    assert alone(file)


# --- directories ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("there", ["nothing", "an empty directory", "a full one", "a link to one"])
def test_a_directory_takes_its_name_when_it_is_whole(tmp_path: Path, there: str) -> None:
    path = tmp_path / "out"
    if there != "nothing":
        real = tmp_path / "real" if "link" in there else path
        real.mkdir()
        if there != "an empty directory":
            (real / "old").write_bytes(OLD)
        if real != path:
            path.symlink_to(real)
    before = file_bytes(tmp_path)
    with atomic_directory(path) as temp:
        (temp / "new").write_bytes(NEW)
        assert {name: content for name, content in file_bytes(tmp_path).items() if TEMP_MARK not in name} == before
    assert {file.name: file.read_bytes() for file in path.iterdir()} == {"new": NEW}
    assert path.is_symlink() == ("link" in there)
    assert not list(tmp_path.glob(f"*{TEMP_MARK}*"))


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_directory_whose_block_fails_leaves_the_old_one(tmp_path: Path, error: type[BaseException]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_bytes(OLD)
    with contextlib.suppress(error), atomic_directory(tmp_path / "out") as temp:
        (temp / "new").write_bytes(NEW)
        raise error
    assert file_bytes(tmp_path) == {"out/old": OLD}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_directory_that_cannot_take_its_name_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out"
    path.mkdir()
    (path / "old").write_bytes(OLD)
    rename = Path.rename

    def full(self: Path, target: Path) -> Path:
        if target == path and self.name == f"out{TEMP_MARK}{os.getpid()}":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OutputError, match=f"cannot write {path}: No space left"), atomic_directory(path) as temp:
        (temp / "new").write_bytes(NEW)
    assert file_bytes(tmp_path) == {"out/old": OLD}
    assert len(list(tmp_path.iterdir())) == 1


def test_a_directory_below_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(OLD)
    with pytest.raises(OutputError, match="cannot write"), atomic_directory(tmp_path / "file" / "out"):
        pass
    assert file_bytes(tmp_path) == {"file": OLD}


def test_a_hash_is_sha256() -> None:
    assert sha256(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


def test_a_files_hash_is_that_of_its_content(file: Path) -> None:
    assert hash_file(file) == sha256(OLD)


# --- the cache --------------------------------------------------------------------------------------------


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(place: Path) -> None:
    (place / "it").write_bytes(NEW)


def test_what_is_cached_is_made_once_from_the_same(cache: Path) -> None:
    path = cached("kind", [1, "a"], fill)
    assert (path.parent, (path / "it").read_bytes()) == (cache, NEW)
    assert cached("kind", [1, "a"], lambda _: pytest.fail("made again")) == path
    assert cached("kind", [2, "a"], fill) != path
    assert cached("other", [1, "a"], fill) != path


def test_what_fails_or_is_killed_halfway_is_not_there(cache: Path) -> None:
    half = """
import os, sys
from nmt.files import cached
def make(place):
    (place / "it").write_bytes(b"half")
    os.kill(os.getpid(), 9)
cached("kind", 1, make)
"""
    process = python(half)
    process.wait()
    kill(process)
    with pytest.raises(ZeroDivisionError):
        cached("kind", 1, lambda _: 1 // 0)  # type: ignore[arg-type]
    assert [file.suffix for file in cache.iterdir()] == [".lock"]  # both left no more
    assert (cached("kind", 1, fill) / "it").read_bytes() == NEW


def test_what_was_cleared_away_in_part_is_made_again(cache: Path) -> None:
    path = cached("kind", 1, fill)
    (path / "it").unlink()
    assert (cached("kind", 1, fill) / "it").read_bytes() == NEW
    (path / "it").write_bytes(OLD)  # cut short
    assert (cached("kind", 1, fill) / "it").read_bytes() == NEW


def test_what_nobody_wanted_for_a_month_goes_and_nothing_else(cache: Path) -> None:
    old, recent = cached("kind", 1, fill), cached("kind", 2, fill)
    foreign = [cache / "mine.lock", cache / "mine" / "it"]
    foreign[1].parent.mkdir()
    stale = old.with_name(f"{old.name}{TEMP_MARK}1")
    stale.mkdir()
    for file in (old.with_name(f"{old.name}.lock"), *foreign):
        file.touch()
        os.utime(file, (0, 0))
    cached("kind", 2, fill)
    assert not old.exists()
    assert not stale.exists()
    assert recent.exists()
    assert all(file.exists() for file in foreign)


def test_what_another_process_is_making_is_not_cleared_away(cache: Path) -> None:
    """However old its lock is: without it, two processes could hold a lock of the same name."""

    def make_slowly(place: Path) -> None:
        os.utime(lock, (0, 0))
        before = lock.stat().st_ino
        cached("kind", 2, fill)
        assert lock.stat().st_ino == before
        fill(place)

    lock = cached("kind", 1, fill).with_suffix(".lock")
    shutil.rmtree(lock.with_suffix(""))
    assert (cached("kind", 1, make_slowly) / "it").read_bytes() == NEW


def test_who_wants_what_another_is_making_waits_for_it(cache: Path) -> None:
    slow = """
import time
from nmt.files import cached
def make(place):
    print("making", flush=True)
    time.sleep(1)
    (place / "it").write_bytes(b"theirs")
cached("kind", 1, make)
"""
    process = python(slow)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"making\n"
        assert (cached("kind", 1, fill) / "it").read_bytes() == b"theirs"
    finally:
        kill(process)


def test_without_a_home_that_can_be_written_the_cache_is_a_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NMT_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative: to be ignored")
    assert cache_directory() == tmp_path / "home" / ".cache" / "nmt"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "nmt"
    assert cache_directory().stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cache_directory() == tmp_path / f"nmt-{os.getuid()}"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "file"))
    with pytest.raises(OutputError, match="cannot write to a cache at") as caught:
        cache_directory()
    assert "NMT_CACHE=PATH" in caught.value.hint


@pytest.mark.parametrize("name", ["file", "file/below", "/proc/nmt"])
def test_a_cache_that_was_chosen_and_cannot_be_written_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Another directory in its place would be a surprise: NMT_CACHE may be there for its size or its safety."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / name))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(OutputError, match=f"^cannot write to NMT_CACHE={tmp_path / name}: ") as caught:
        cache_directory()
    assert "NMT_CACHE" in caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_cache_behind_a_link_does_not_change_when_the_link_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "link"))
    assert cache_directory() == tmp_path / "real"


def test_a_temporary_cache_that_another_user_could_exchange_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the check and the use: a link may lead elsewhere by then, another directory may have its name."""
    for name in ("NMT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/proc/none")
    temporary, shared = tmp_path / "shared" / f"nmt-{os.getuid()}", tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(shared))
    shared.chmod(0o1777)
    assert cache_directory() == temporary
    shared.chmod(0o777)
    with pytest.raises(InputError, match=f"{temporary} is no safe cache: others may replace it"):
        cache_directory()
    shared.chmod(0o1777)
    temporary.rename(shared / "real")
    temporary.symlink_to(shared / "real")
    with pytest.raises(InputError, match=f"{temporary} is no safe cache: it is a link") as caught:
        cache_directory()
    assert "NMT_CACHE=PATH" in caught.value.hint


def test_a_cache_where_others_may_write_or_of_another_user_is_refused(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else they choose what is trained on, and which tokenizers have passed."""
    path = cached("kind", 1, fill)
    for mode in (0o777, 0o770, 0o702, 0o1777):
        cache.chmod(mode)
        with pytest.raises(InputError, match="is no safe cache: others may write there") as caught:
            cached("kind", 1, fill)
        assert f"chmod go-w {cache}" in caught.value.hint
    cache.chmod(0o755)
    assert cached("kind", 1, fill) == path
    monkeypatch.setattr(os, "getuid", lambda: cache.stat().st_uid + 1)
    with pytest.raises(InputError, match="is no safe cache: it is not yours"):
        cached("kind", 1, fill)


def test_a_cache_without_locks_names_its_own_remedy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(*_args: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with pytest.raises(OutputError) as caught:
        cached("kind", 1, fill)
    assert "NMT_CACHE=PATH" in caught.value.hint


# --- locking ----------------------------------------------------------------------------------------------

HOLDER = """
import sys, time
from pathlib import Path
from nmt.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_refuses_another_process_and_dies_with_it(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    process = python(HOLDER, path)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(InputError) as caught, locked(path):
            pytest.fail("two processes hold the lock")
        assert str(caught.value) == f"{tmp_path} is in use by another training"
        assert caught.value.exit_code == 2
        assert "run=PATH" in caught.value.hint
    finally:
        kill(process)
    with locked(path):
        assert path.exists()


def test_a_lock_is_free_again_after_its_block_however_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    for _ in range(2):
        with pytest.raises(ValueError, match="x"), locked(path):
            raise ValueError("x")
    with locked(path), pytest.raises(InputError, match="in use"), locked(path):
        pytest.fail("held twice")


def test_a_lock_file_that_cannot_be_opened_is_told(tmp_path: Path) -> None:
    """As where another user owns it; here root runs the tests, so a directory stands in its place."""
    path = tmp_path / "lock"
    path.mkdir()
    with pytest.raises(NmtError, match=r"/lock"), locked(path):
        pytest.fail("nothing to hold")


def test_a_file_system_without_locks_is_not_taken_for_another_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS without a lock daemon says ENOLCK; to wait for another training's end would be to wait for ever."""

    def no_locks(*_args: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)
    said = ""
    try:
        with locked(tmp_path / "lock"):
            pass
    except NmtError as error:
        said = str(error)
    assert "in use" not in said


def test_a_system_without_such_locks_trains_unguarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)  # Windows has none
    with locked(tmp_path / "lock"), locked(tmp_path / "lock"):
        assert list(tmp_path.iterdir()) == []


# --- errors (nmt/errors.py) -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (nmt.NmtError, 1),
        (nmt.OutputError, 1),
        (nmt.DivergedError, 1),
        (nmt.InputError, 2),
        (nmt.ConfigError, 2),
        (nmt.DataError, 2),
        (nmt.ModelError, 2),
    ],
)
def test_an_error_has_a_message_a_hint_and_an_exit_code(kind: type[NmtError], exit_code: int) -> None:
    error = kind("what", hint="do")
    assert (str(error), error.hint, error.exit_code) == ("what", "do", exit_code)
    assert kind("what").hint == ""
    assert isinstance(error, NmtError)


def test_what_the_user_gave_can_be_caught_as_one() -> None:
    assert issubclass(nmt.ConfigError, InputError)
    assert issubclass(nmt.DataError, InputError)
    assert issubclass(nmt.ModelError, InputError)
    assert not issubclass(OutputError, InputError)


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_with_128_and_its_number(number: int, exit_code: int) -> None:
    error = StoppedError("stopped", number, hint="go on")
    assert (str(error), error.hint, error.exit_code) == ("stopped", "go on", exit_code)
    assert NmtError.exit_code == 1  # the class keeps its own
