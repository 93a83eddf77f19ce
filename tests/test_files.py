"""Files and directories are replaced atomically, cache entries are made once, and locks exclude other processes."""

import contextlib
import errno
import fcntl
import gzip
import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from conftest import NO_PROCESS, environment, file_bytes, started

import nmt
from nmt import files
from nmt.errors import InputError, OutputError
from nmt.files import TEMP_MARK, atomic_directory, atomic_write, atomic_writer, cache_directory, cached, locked

OLD, NEW = b"old content", b"new content, and longer"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "it"
    path.write_bytes(OLD)
    return path


def alone(path: Path) -> bool:
    return [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_file_is_replaced_when_the_block_ends_and_keeps_its_mode_and_links(file: Path) -> None:
    file.chmod(0o640)
    link = file.with_name("link")
    link.symlink_to(file)
    with atomic_writer(link) as out:
        out.write(NEW)
        out.flush()
        assert file.read_bytes() == OLD
    assert file.read_bytes() == NEW
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert link.is_symlink()


@pytest.mark.parametrize("call", ["fsync", "chmod", "replace"])
def test_after_a_late_failure_the_old_content_is_there(file: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, call, mock.Mock(side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))))
        with pytest.raises(OutputError) as caught:
            atomic_write(file, NEW)
    assert str(caught.value) == f"cannot write {file}: No space left on device"
    assert "room" in caught.value.hint
    assert file.read_bytes() == OLD
    assert alone(file)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), gzip.BadGzipFile("no gzip"), OSError(errno.ENOENT, "none", "/a")]
)
def test_after_an_error_in_the_block_the_old_content_is_there(file: Path, error: BaseException) -> None:
    """The error is raised unchanged: `nmt translate -i damaged.gz -o out` must not blame `out`."""

    def write_half() -> None:
        with atomic_writer(file) as out:
            out.write(NEW)
            raise error

    with pytest.raises(type(error)) as caught:
        write_half()
    assert caught.value is error
    assert file.read_bytes() == OLD
    assert alone(file)


DESCRIPTOR = """
import sys
from pathlib import Path
from nmt.files import atomic_writer
with atomic_writer(Path("/dev/stdout")) as out:
    out.write(b"new ")
"""


def test_an_open_descriptor_is_written_at_its_position(file: Path) -> None:
    script = f"{{ printf 'a '; '{sys.executable}' -c '{DESCRIPTOR}'; printf 'b '; }} > it"
    environment = {**os.environ, "PYTHONPATH": str(Path(nmt.__file__).parents[1])}
    subprocess.run(["bash", "-c", script], cwd=file.parent, env=environment, check=True)
    assert file.read_text() == "a new b "
    assert alone(file)


def test_special_files_are_written_in_place(tmp_path: Path, file: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/null", "/dev/stdout", tmp_path, tmp_path / "pipe"):
        assert files.is_special(Path(path))
    (tmp_path / "link").symlink_to(file)
    for path in (file, tmp_path / "absent", tmp_path / "link"):
        assert not files.is_special(path)
    for path, reason in ((Path("/dev/full"), "No space left on device"), (tmp_path, "Is a directory")):
        with pytest.raises(OutputError, match=f"^cannot write {path}: {reason}$"):
            atomic_write(path, NEW)


def test_sweeping_removes_only_temporary_files_of_processes_that_have_ended(file: Path) -> None:
    stale = file.with_name(f"it{TEMP_MARK}{NO_PROCESS}")
    kept = [file.with_name(f"it{TEMP_MARK}{end}") for end in (os.getpid(), "csv", "", "20261231", f"x.{NO_PROCESS}")]
    other = file.with_name(f"other{TEMP_MARK}{NO_PROCESS}")
    for path in (stale, other, *kept):
        path.write_bytes(b"half")
    files.sweep_temps(file.parent, "it")
    assert sorted(file.parent.iterdir()) == sorted([file, other, *kept])
    other.with_name(f"new{TEMP_MARK}{NO_PROCESS}").mkdir()
    with atomic_directory(file.with_name("new")):  # sweeps what a killed process has left of it
        pass
    assert sorted(file.parent.iterdir()) == sorted([file, file.with_name("new"), other, *kept])
    files.sweep_temps(file.parent)
    assert not other.exists()


def test_only_files_are_opened(file: Path) -> None:
    pipe = file.with_name("pipe")
    os.mkfifo(pipe)
    for read in (files.open_file, files.hash_file, partial(files.read_capped, n_bytes=100)):
        for path, reason in ((pipe, "not a file"), (Path(os.devnull), "not a file"), (file.parent, "Is a directory")):
            with pytest.raises(OSError, match=reason):
                read(path)
    assert files.hash_file(file) == files.sha256(files.read_capped(file, 100)) == hashlib.sha256(OLD).hexdigest()
    with pytest.raises(OSError, match="over 5 bytes"):
        files.read_capped(file, 5)


@pytest.mark.parametrize("content", ["[", b"\xff", "[" * 100_000], ids=lambda text: f"{text[:5]!r}")
def test_invalid_json_is_a_value_error(content: str | bytes) -> None:
    assert files.parse_json('{"a": [1]}') == {"a": [1]}
    with pytest.raises(ValueError):  # noqa: PT011 - the parser chooses the message
        files.parse_json(content)


@pytest.mark.parametrize("there", ["nothing", "a directory", "a link to one"])
def test_a_directory_replaces_the_old_one_when_the_block_ends(tmp_path: Path, there: str) -> None:
    path = tmp_path / "out"
    if there != "nothing":
        real = tmp_path / "real" if "link" in there else path
        real.mkdir()
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


def test_after_an_error_the_old_directory_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the block, or in the rename."""
    path, rename = tmp_path / "out", Path.rename
    path.mkdir()
    (path / "old").write_bytes(OLD)
    with contextlib.suppress(KeyboardInterrupt), atomic_directory(path) as temp:
        (temp / "new").write_bytes(NEW)
        raise KeyboardInterrupt
    assert file_bytes(tmp_path) == {"out/old": OLD}

    def full(self: Path, target: Path) -> Path:
        if target == path and self.name == f"out{TEMP_MARK}{os.getpid()}":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(OutputError, match=f"cannot write {path}: No space left"), atomic_directory(path) as temp:
        (temp / "new").write_bytes(NEW)
    assert file_bytes(tmp_path) == {"out/old": OLD}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(place: Path) -> None:
    (place / "it").write_bytes(NEW)


def made_and_left(number: int, days_ago: float = 0) -> Path:
    """A cache entry whose process has ended."""
    path = cached("kind", number, fill)
    last_use = time.time() - days_ago * 24 * 3600
    os.utime(path.with_suffix(".lock"), (last_use, last_use))
    return path


def test_a_cache_entry_is_made_once_per_kind_and_origin(cache: Path) -> None:
    path = cached("kind", [1, "a"], fill)
    assert (path.parent, (path / "it").read_bytes()) == (cache, NEW)
    (left := path.with_name(f"{path.name}{TEMP_MARK}{os.getpid()}")).mkdir()  # by a child of a killed process
    assert cached("kind", [1, "a"], lambda _: pytest.fail("made again")) == path
    assert not left.exists()
    assert cached("kind", [2, "a"], fill) != path
    assert cached("other", [1, "a"], fill) != path


def test_an_entry_that_fails_halfway_is_not_kept(cache: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        cached("kind", 1, lambda _: 1 // 0)  # type: ignore[arg-type]
    assert [file.suffix for file in cache.iterdir()] == [".lock"]
    assert (cached("kind", 1, fill) / "it").read_bytes() == NEW


def test_entries_unused_for_a_month_are_removed_and_nothing_else(cache: Path) -> None:
    recent, old = made_and_left(2, days_ago=29), made_and_left(1, days_ago=31)
    foreign = [cache / "mine.lock", cache / "mine" / "it"]
    foreign[1].parent.mkdir()
    stale = old.with_name(f"{old.name}{TEMP_MARK}1")
    stale.mkdir()
    for file in foreign:
        file.touch()
        os.utime(file, (0, 0))
    cached("kind", 3, fill)
    assert not old.exists()
    assert not stale.exists()
    assert recent.exists()
    assert all(file.exists() for file in foreign)


def test_least_recently_used_entries_over_the_limit_are_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    today, recent, older, oldest = (made_and_left(n, days) for n, days in enumerate((0.9, 2, 3, 4)))
    entry_bytes = sum(file.stat().st_size for file in today.iterdir())
    monkeypatch.setattr(files, "MAX_CACHE_BYTES", 3 * entry_bytes)
    new = cached("kind", 9, fill)
    assert [path.exists() for path in (new, today, recent, older, oldest)] == [True, True, True, False, False]
    monkeypatch.setattr(files, "MAX_CACHE_BYTES", 0)
    cached("kind", 9, fill)
    assert [path.exists() for path in (new, today, recent)] == [True, True, False]


def test_an_entry_that_is_being_made_is_not_removed(cache: Path) -> None:
    """Even if its lock file is old. If the lock file were removed, two processes could hold a lock of this name."""

    def make_slowly(place: Path) -> None:
        os.utime(lock, (0, 0))
        before = lock.stat().st_ino
        cached("kind", 2, fill)
        assert lock.stat().st_ino == before
        fill(place)

    lock = cached("kind", 1, fill).with_suffix(".lock")
    shutil.rmtree(lock.with_suffix(""))
    assert (cached("kind", 1, make_slowly) / "it").read_bytes() == NEW


def test_without_writable_home_each_process_has_its_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NMT_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    assert cache_directory() == tmp_path / "home" / ".cache" / "nmt"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_directory() == tmp_path / "nmt"
    assert cache_directory().stat().st_mode & 0o777 == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    of_process = cache_directory()
    assert of_process == cache_directory()
    assert of_process.parent == Path(tempfile.gettempdir())
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user without an entry in /etc/passwd
    assert cache_directory() == of_process


def test_an_nmt_cache_that_cannot_be_written_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other directory is used instead: the user may have chosen this one for its size or its safety."""
    monkeypatch.setenv("NMT_CACHE", str(file))
    with pytest.raises(OutputError, match=f"^cannot write to NMT_CACHE={file}: ") as caught:
        cache_directory()
    assert "NMT_CACHE" in caught.value.hint
    assert alone(file)


def test_a_cache_that_others_own_or_can_write_to_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other users could change training data, or mark tokenizers as safe."""
    path = cached("kind", 1, fill)
    for mode in (0o770, 0o702):
        cache.chmod(mode)
        with pytest.raises(InputError, match="is no safe cache: others may write there") as caught:
            cached("kind", 1, fill)
        assert f"chmod go-w {cache}" in caught.value.hint
    cache.chmod(0o755)
    assert cached("kind", 1, fill) == path
    monkeypatch.setattr(os, "getuid", lambda: cache.stat().st_uid + 1)
    with pytest.raises(InputError, match="is no safe cache: it is not yours"):
        cached("kind", 1, fill)


HOLDER = """
import sys, time
from pathlib import Path
from nmt.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_lock_excludes_other_processes_until_its_process_ends(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with started([sys.executable, "-c", HOLDER, str(path)], cwd=tmp_path, env=environment()) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(InputError) as caught, locked(path, holder="reader", setting="HERE=PATH"):
            pytest.fail("two processes hold the lock")
        assert str(caught.value) == f"{tmp_path} is in use by another reader"
        assert caught.value.hint == "wait for it to end, or choose another directory with HERE=PATH"
    for _ in range(2):
        with pytest.raises(ValueError, match="x"), locked(path):
            raise ValueError("x")


def test_a_file_system_without_locks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """NFS without a lock daemon fails with ENOLCK; waiting for another process would never end."""
    monkeypatch.setattr(fcntl, "flock", mock.Mock(side_effect=OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))))
    lock = locked(tmp_path / "lock", setting="NMT_X=PATH")
    with pytest.raises(OutputError, match="No locks available") as caught, lock:
        pass
    assert "NMT_X=PATH" in caught.value.hint


def test_on_a_system_without_fcntl_nothing_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with locked(tmp_path / "lock"), locked(tmp_path / "lock"):
        assert list(tmp_path.iterdir()) == []
