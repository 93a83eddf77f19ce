"""Files and directories are replaced atomically, cache entries are made once, and locks exclude other processes."""

import errno
import fcntl
import gzip
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from conftest import NO_PROCESS, environment, file_bytes, started

import nmt
from nmt import files
from nmt.errors import InputError, OutputError
from nmt.files import TEMP_MARK, atomic_directory, atomic_write, atomic_writer, cache_directory, cached, locked

OLD, NEW = b"old content", b"new content, and longer"
DAY_S = 24 * 3600
FULL_DISK = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "it"
    path.write_bytes(OLD)
    return path


# --- files


def test_a_file_is_replaced_when_the_block_ends(file: Path) -> None:
    with atomic_writer(file) as out:
        out.write(NEW)
        out.flush()
        assert file.read_bytes() == OLD
    assert file_bytes(file.parent) == {"it": NEW}


def test_a_replaced_file_keeps_its_mode(file: Path) -> None:
    file.chmod(0o640)
    atomic_write(file, NEW)
    result = stat.S_IMODE(file.stat().st_mode)
    assert result == 0o640


def test_a_link_is_kept_and_its_target_replaced(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    atomic_write(link, NEW)
    assert link.is_symlink()
    assert file.read_bytes() == NEW


@pytest.mark.parametrize("call", ["fsync", "chmod", "replace"])
def test_after_a_late_failure_the_old_content_is_there(file: Path, call: str) -> None:
    with mock.patch.object(os, call, side_effect=FULL_DISK), pytest.raises(OutputError) as caught:
        atomic_write(file, NEW)
    assert str(caught.value) == f"cannot write {file}: No space left on device"
    assert "room" in caught.value.hint
    assert file_bytes(file.parent) == {"it": OLD}


ERRORS = [KeyboardInterrupt(), gzip.BadGzipFile("no gzip"), OSError(2, "none", "/a")]


@pytest.mark.parametrize("error", ERRORS)
def test_after_an_error_in_the_block_the_old_content_is_there(file: Path, error: BaseException) -> None:
    """The error is raised unchanged: `nmt translate -i damaged.gz -o out` must not blame `out`."""
    with pytest.raises(type(error)) as caught, atomic_writer(file):
        raise error
    assert caught.value is error
    assert file_bytes(file.parent) == {"it": OLD}


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
    assert file_bytes(file.parent) == {"it": b"a new b "}


def test_a_file_cannot_replace_devices_directories_and_pipes(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (Path("/dev/null"), Path("/dev/stdout"), tmp_path, tmp_path / "pipe"):
        assert files.is_special(path)


def test_a_file_can_replace_files_and_links_to_them(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    for path in (file, link, file.with_name("absent")):
        assert not files.is_special(path)


def test_sweeping_removes_what_killed_processes_have_left_of_a_file(file: Path) -> None:
    stale = file.with_name(f"it{TEMP_MARK}{NO_PROCESS}")
    stale.write_bytes(b"half")
    files.sweep_temps(file.parent, "it")
    assert file_bytes(file.parent) == {"it": OLD}


def test_sweeping_keeps_what_running_processes_write_and_other_files(file: Path) -> None:
    names = ["other.tmp.4194304", f"it.tmp.{os.getpid()}", "it.tmp.csv", "it.tmp.", "it.tmp.20261231", "it.tmp.x.1"]
    for name in names:
        file.with_name(name).write_bytes(b"half")
    files.sweep_temps(file.parent, "it")
    result = file_bytes(file.parent).keys()
    assert result == {"it", *names}


def test_sweeping_a_directory_removes_files_and_directories_of_all_names(tmp_path: Path) -> None:
    (tmp_path / f"one{TEMP_MARK}{NO_PROCESS}").write_bytes(b"half")
    (tmp_path / f"two{TEMP_MARK}{NO_PROCESS}").mkdir()
    files.sweep_temps(tmp_path)
    assert list(tmp_path.iterdir()) == []


def read_100(path: Path) -> bytes:
    return files.read_capped(path, 100)


@pytest.mark.parametrize("read", [files.open_file, files.hash_file, read_100])
def test_only_files_are_opened(tmp_path: Path, read: Callable[[Path], Any]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # reading it would block
    with pytest.raises(OSError, match="not a file"):
        read(pipe)
    with pytest.raises(OSError, match="not a file"):
        read(Path(os.devnull))
    with pytest.raises(OSError, match="Is a directory"):
        read(tmp_path)


def test_no_more_than_the_given_bytes_are_read(file: Path) -> None:
    result = files.read_capped(file, len(OLD))
    assert result == OLD
    with pytest.raises(OSError, match="over 5 bytes"):
        files.read_capped(file, 5)


@pytest.mark.parametrize("content", ["[", b"\xff", "[" * 100_000], ids=["open", "no UTF-8", "deep"])
def test_invalid_json_is_a_value_error(content: str | bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the parser chooses the message
        files.parse_json(content)


# --- directories


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A directory that is to be replaced."""
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_bytes(OLD)
    return tmp_path / "out"


def test_a_directory_replaces_the_old_one_when_the_block_ends(out: Path) -> None:
    with atomic_directory(out) as temp:
        (temp / "new").write_bytes(NEW)
        assert file_bytes(out) == {"old": OLD}
    assert file_bytes(out.parent) == {"out/new": NEW}


def test_a_link_to_a_directory_is_kept(out: Path) -> None:
    link = out.with_name("link")
    link.symlink_to(out)
    # The directory is replaced where the link leads.
    with atomic_directory(link) as temp:
        (temp / "new").write_bytes(NEW)
    assert link.is_symlink()
    assert file_bytes(out) == {"new": NEW}


def test_after_an_error_in_the_block_the_old_directory_is_there(out: Path) -> None:
    with pytest.raises(KeyboardInterrupt), atomic_directory(out):
        raise KeyboardInterrupt
    assert file_bytes(out.parent) == {"out/old": OLD}


def test_after_an_error_in_the_second_rename_the_old_directory_is_there(out: Path) -> None:
    rename = Path.rename

    # The first rename moves the old directory away, the second moves the new one into its place.
    def fail(path: Path, target: Path) -> Path:
        if path.name.startswith(f"out{TEMP_MARK}"):
            raise FULL_DISK
        return rename(path, target)

    with mock.patch.object(Path, "rename", fail), pytest.raises(OutputError, match="No space"), atomic_directory(out):
        pass
    assert file_bytes(out.parent) == {"out/old": OLD}
    assert list(out.parent.iterdir()) == [out]


# --- the cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fill(place: Path) -> None:
    (place / "it").write_bytes(NEW)


def used_before(days: float, number: int) -> Path:
    """Return a cache entry whose last use was some days ago."""
    path = cached("kind", number, fill)
    last_use = time.time() - days * DAY_S
    os.utime(path.with_suffix(".lock"), (last_use, last_use))
    return path


def test_a_cache_entry_is_made_once(cache: Path) -> None:
    path = cached("kind", [1, "a"], fill)
    assert path.parent == cache
    assert file_bytes(path) == {"it": NEW}
    result = cached("kind", [1, "a"], lambda _: pytest.fail("made again"))
    assert result == path


def test_entries_of_other_kinds_and_origins_are_others(cache: Path) -> None:
    paths = {cached("kind", [1, "a"], fill)}
    paths.add(cached("kind", [2, "a"], fill))
    paths.add(cached("other", [1, "a"], fill))
    assert len(paths) == 3


def test_an_entry_that_fails_halfway_is_not_kept(cache: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        cached("kind", 1, lambda _: 1 // 0)  # type: ignore[arg-type]
    assert [file.suffix for file in cache.iterdir()] == [".lock"]
    result = file_bytes(cached("kind", 1, fill))
    assert result == {"it": NEW}


def test_the_temporary_files_of_a_removed_entry_are_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_CACHE_BYTES", 0)
    old = used_before(days=31, number=2)
    stale = old.with_name(f"{old.name}{TEMP_MARK}{NO_PROCESS}")
    stale.mkdir()
    cached("kind", 3, fill)
    assert not old.exists()
    assert not stale.exists()


def test_what_others_have_put_into_the_cache_is_kept(cache: Path) -> None:
    cached("kind", 1, fill)
    (cache / "mine").mkdir()
    for file in (cache / "mine.lock", cache / "mine" / "it"):
        file.touch()
        os.utime(file, (0, 0))
    cached("kind", 2, fill)
    assert (cache / "mine.lock").exists()
    assert (cache / "mine" / "it").exists()


def test_least_recently_used_entries_over_the_limit_are_removed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = list(map(used_before, (0.9, 2, 3, 4), range(4)))
    monkeypatch.setattr(files, "MAX_CACHE_BYTES", 3 * len(NEW))  # the new entry and two others
    cached("kind", 9, fill)
    result = [entry.exists() for entry in entries]
    assert result == [True, True, False, False]


def test_entries_used_within_a_day_are_kept_over_the_limit(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    today, recent = used_before(0.9, number=1), used_before(2, number=2)
    monkeypatch.setattr(files, "MAX_CACHE_BYTES", 0)
    assert cached("kind", 9, fill).exists()
    assert today.exists()
    assert not recent.exists()


def test_an_entry_that_is_being_made_is_not_removed(cache: Path) -> None:
    """Even if its lock file is old. If the lock file were removed, two processes could hold a lock of this name."""
    # The entry is gone, its lock file is there, as after a month.
    lock = cached("kind", 1, fill).with_suffix(".lock")
    shutil.rmtree(lock.with_suffix(""))

    def make_slowly(place: Path) -> None:
        os.utime(lock, (0, 0))
        before = lock.stat().st_ino
        cached("kind", 2, fill)
        assert lock.stat().st_ino == before
        fill(place)

    result = file_bytes(cached("kind", 1, make_slowly))
    assert result == {"it": NEW}


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user without any setting."""
    monkeypatch.delenv("NMT_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_the_cache_is_in_the_users_home(user: Path) -> None:
    assert cache_directory() == user / ".cache" / "nmt"
    result = stat.S_IMODE(cache_directory().stat().st_mode)
    assert result == 0o700


@pytest.mark.usefixtures("user")
def test_a_home_that_cannot_be_written_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    with pytest.raises(OutputError, match=r"^cannot write to the cache /proc/none/nmt: ") as caught:
        cache_directory()
    assert "NMT_CACHE" in caught.value.hint


@pytest.mark.usefixtures("user")
def test_a_user_without_a_home_needs_nmt_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as for a user without an entry in /etc/passwd
    with pytest.raises(OutputError, match="this user has no home directory"):
        cache_directory()


def test_an_nmt_cache_that_cannot_be_written_is_an_error(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other directory is used instead: the user may have chosen this one for its size or its safety."""
    monkeypatch.setenv("NMT_CACHE", str(file))
    with pytest.raises(OutputError, match=f"^cannot write to the cache {file}: ") as caught:
        cache_directory()
    assert "NMT_CACHE" in caught.value.hint
    assert file_bytes(file.parent) == {"it": OLD}


@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_cache_that_others_can_write_to_is_refused(cache: Path, mode: int) -> None:
    """Other users could change training data, or mark tokenizers as safe."""
    cache.mkdir()
    cache.chmod(mode)
    with pytest.raises(InputError, match="is no safe cache: others may write there") as caught:
        cache_directory()
    assert f"chmod go-w {cache}" in caught.value.hint


def test_a_cache_that_others_can_only_read_is_accepted(cache: Path) -> None:
    cache.mkdir(mode=0o755)
    assert cache_directory() == cache


def test_a_cache_of_another_user_is_refused(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(mode=0o700)
    monkeypatch.setattr(os, "getuid", lambda: cache.stat().st_uid + 1)
    with pytest.raises(InputError, match="is no safe cache: others may write there"):
        cache_directory()


# --- locks

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
    with locked(path):
        pass


def test_an_error_in_the_block_releases_the_lock(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / "lock"):
        raise ZeroDivisionError
    with locked(tmp_path / "lock"):
        pass


def test_a_file_system_without_locks_is_an_error(tmp_path: Path) -> None:
    """NFS without a lock daemon fails with ENOLCK; waiting for another process would never end."""
    no_locks = OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
    with (
        mock.patch.object(fcntl, "flock", side_effect=no_locks),
        pytest.raises(OutputError, match="No locks available") as caught,
        locked(tmp_path / "lock", setting="NMT_X=PATH"),
    ):
        pass
    assert "NMT_X=PATH" in caught.value.hint


def test_on_a_system_without_fcntl_nothing_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)  # as on Windows
    with locked(tmp_path / "lock"), locked(tmp_path / "lock"):
        assert list(tmp_path.iterdir()) == []
