"""Corpora of mtdata. A stand-in replaces mtdata: a module that prints rows as `mtdata echo` does."""

import errno
import gzip
from pathlib import Path

import pytest
from conftest import NO_PROCESS

from nmt.corpus import with_mtdata as module
from nmt.corpus.with_mtdata import download_with_mtdata, languages_of
from nmt.errors import DownloadError, InputError, OutputError
from nmt.files import locked

ID = "OPUS-tatoeba-v20230412-deu-eng"
STAND_IN = """\
import sys
assert sys.argv[1:] == ["-no-pb", "echo", "{id}"], sys.argv
print("progress", file=sys.stderr)
{body}
"""


@pytest.fixture
def mtdata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory for the stand-in."""
    folder = tmp_path / "library" / "mtdata"
    folder.mkdir(parents=True)
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))
    return folder


def prints(mtdata: Path, body: str) -> None:
    (mtdata / "__main__.py").write_text(STAND_IN.format(id=ID, body=body), encoding="utf-8")


def test_the_rows_become_two_files(mtdata: Path, tmp_path: Path) -> None:
    prints(mtdata, r'sys.stdout.buffer.write("Tür\tdoor\nblank\t\nno tab\n Haus \thouse\t{meta}\n".encode())')
    path = tmp_path / "downloads" / ID
    assert download_with_mtdata(ID, path)
    assert gzip.decompress((path / "train.deu.gz").read_bytes()).decode() == "Tür\nHaus\n"
    assert gzip.decompress((path / "train.eng.gz").read_bytes()).decode() == "door\nhouse\n"
    assert ID in (path / "LICENSE.txt").read_text()
    prints(mtdata, "raise AssertionError")
    assert not download_with_mtdata(ID, path), "it is there"


def test_one_download_at_a_time_and_what_a_killed_one_left_goes(mtdata: Path, tmp_path: Path) -> None:
    prints(mtdata, "print('a\\tb')")
    path = tmp_path / "downloads" / ID
    left, other = (path.with_name(f"{name}.tmp.{NO_PROCESS}") for name in (ID, "other"))
    for temporary in (left, other):
        temporary.mkdir(parents=True)
    lock = path.with_name(f".{ID}.lock")
    with locked(lock), pytest.raises(InputError, match="is in use by another download"):
        download_with_mtdata(ID, path)
    assert left.is_dir()
    assert download_with_mtdata(ID, path)
    assert sorted(path.parent.iterdir()) == sorted([path, lock, other])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("print('a\\tb'); sys.exit('no such dataset')", "no such dataset"),
        ("raise ConnectionError('no network')", "ConnectionError: no network"),
        ("assert False", "it knows no such id"),
        ("sys.exit(3)", "progress"),
    ],
)
def test_a_failure_is_one_line_and_keeps_nothing(mtdata: Path, tmp_path: Path, body: str, message: str) -> None:
    prints(mtdata, body)
    with pytest.raises(DownloadError, match=f"^mtdata cannot get {ID}: {message}$"):
        download_with_mtdata(ID, tmp_path / "downloads" / ID)
    assert [file.name for file in (tmp_path / "downloads").iterdir()] == [f".{ID}.lock"]


def test_no_pairs(mtdata: Path, tmp_path: Path) -> None:
    prints(mtdata, "print('no tab')")
    with pytest.raises(DownloadError, match=f"^mtdata has no pairs of {ID}$"):
        download_with_mtdata(ID, tmp_path / "downloads" / ID)
    assert [file.name for file in (tmp_path / "downloads").iterdir()] == [f".{ID}.lock"]


def test_mtdata_ends_if_the_disk_is_full(mtdata: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    prints(mtdata, "print('a\\tb', flush=True); import time; time.sleep(100)")
    monkeypatch.setattr(gzip.GzipFile, "write", fail)
    with pytest.raises(OutputError, match="No space left on device"):
        download_with_mtdata(ID, tmp_path / "downloads" / ID)


def test_without_mtdata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    with pytest.raises(InputError, match="mtdata is not installed") as caught:
        download_with_mtdata(ID, tmp_path / ID)
    assert caught.value.hint == "pip install 'nmt-trainer[mtdata]'"


def test_ids() -> None:
    assert languages_of(ID) == ("deu", "eng")
    assert languages_of("Facebook-wikimatrix-1-zho_Hans_CN-eng") == ("zho_Hans_CN", "eng")
    for wrong in ("", "deu-eng", "Statmt-news-1-eng", "../x-a-1-deu-eng", "OPUS-a/b-1-deu-eng", f"{ID}\n"):
        with pytest.raises(InputError, match="is no mtdata id of parallel text"):
            languages_of(wrong)
