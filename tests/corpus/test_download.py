"""Downloading corpora from a local server: the files match the catalog, or there is one clear error."""

import gzip
import hashlib
import io
import logging
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import NO_PROCESS
from mirror import Mirror, serving

from nmt.corpus import download as module
from nmt.corpus import fetch
from nmt.corpus.catalog import CORPORA, MD5, Multi30k, Tatoeba, pinned, pins_file
from nmt.corpus.download import SUMS, Folder, download, text_hash
from nmt.corpus.tatoeba import pins_of
from nmt.errors import DownloadError, InputError, OutputError
from nmt.files import atomic_write, locked
from nmt.text.lines import read_lines, read_pairs

RAW = Multi30k("small", ("en", "de"), ("train", "val"), (3, 1, 0), 0.01, "free", "Terms: none.\n")
TOK = replace(RAW, tokenized=True)
TEXTS = {name: f"{name} line 1\n{name} line 2\n".encode() for name in RAW.files(RAW.languages)}
NAMES = list(TEXTS)

OPUS = Tatoeba(
    "small",
    ("de", "en"),
    ("train", "dev", "test"),
    (90, 5, 5),
    0.1,
    "free",
    "Terms.\n",
    url="https://example.org/de-en.zip",
    members=("x.de", "x.en"),
    test_urls=("https://example.org/t.deu", "https://example.org/t.eng"),
)
TSV = replace(OPUS, url="https://example.org/deu.txt", members=(), test_urls=())
PAIRS = [(f"Satz {n}", f"sentence {n}") for n in range(100)]
PARTS = {"train": PAIRS[10:], "dev": PAIRS[:5], "test": PAIRS[5:10]}


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setattr(fetch, "PAUSE_S", 0.001)
    with serving() as server:
        for name, text in TEXTS.items():
            server.add(RAW.url(name), gzip.compress(text, 1, mtime=0))
            server.add(TOK.url(name), text)
        sides = ["".join(f"{pair[side]}\n" for pair in PAIRS).encode() for side in (0, 1)]
        server.add(OPUS.url, archive(dict(zip(OPUS.members, sides, strict=True))))
        server.add(TSV.url, "".join(f"{target}\t{source}\tCC-BY\n" for source, target in PAIRS).encode())
        for side, url in enumerate(OPUS.test_urls):
            server.add(url, "".join(f"{pair[side]}\n" for pair in PARTS["test"]).encode())
        yield server


@pytest.fixture
def pins(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The pinned hashes in place of the real ones; empty at first."""
    found: dict[str, str] = {}
    monkeypatch.setattr(module, "pinned", lambda _: found)
    monkeypatch.setattr(module, "pins_file", lambda _: pins_of(PARTS))
    return found


def archive(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return content.getvalue()


def texts(folder: Path) -> dict[str, bytes]:
    return {file.name.removesuffix(".gz"): gzip.decompress(file.read_bytes()) for file in folder.glob("*.gz")}


def get(corpus: Multi30k | Tatoeba, folder: Path, mirror: Mirror, names: list[str] | None = None) -> list[str]:
    return download(corpus, folder, names or corpus.files(corpus.languages), mirror=mirror.url, quiet=True)


# --- Multi30k: an upstream file for each file -------------------------------------------------------------


@pytest.mark.parametrize("corpus", [RAW, TOK], ids=["raw", "tokenized"])
def test_the_files_with_license_and_hashes(
    mirror: Mirror, pins: dict[str, str], tmp_path: Path, corpus: Multi30k
) -> None:
    pins["train.en"] = hashlib.sha256(TEXTS["train.en"]).hexdigest()
    folder = tmp_path / "a" / "small"
    assert get(corpus, folder, mirror) == NAMES
    assert texts(folder) == TEXTS
    assert (folder / "val.de.gz").read_bytes() == gzip.compress(TEXTS["val.de"], 1 if corpus is RAW else 9, mtime=0)
    assert (folder / "LICENSE.txt").read_text() == "Terms: none.\n"
    sums = [f"{hashlib.sha256(text).hexdigest()}  {name}" for name, text in sorted(TEXTS.items())]
    assert (folder / SUMS).read_text().splitlines() == sums
    assert {file.name for file in folder.iterdir()} == {*(f"{name}.gz" for name in NAMES), "LICENSE.txt", SUMS}
    assert {file.name for file in folder.parent.iterdir()} == {"small", ".small.lock"}
    n_requests = len(mirror.requests)
    assert get(corpus, folder, mirror) == [], "it is complete"
    assert len(mirror.requests) == n_requests


def test_only_what_is_missing_is_fetched(mirror: Mirror, pins: dict[str, str], tmp_path: Path) -> None:
    get(RAW, tmp_path, mirror, ["train.en"])
    (tmp_path / "unrelated.txt").write_text("stays")
    assert get(RAW, tmp_path, mirror) == NAMES[1:]
    (tmp_path / "val.en.gz").unlink()
    assert get(RAW, tmp_path, mirror) == ["val.en"]
    assert texts(tmp_path) == TEXTS
    assert (tmp_path / "unrelated.txt").read_text() == "stays"


@pytest.mark.parametrize("corpus", [RAW, TOK], ids=["raw", "tokenized"])
def test_a_text_with_another_hash_is_not_kept(
    mirror: Mirror, pins: dict[str, str], tmp_path: Path, corpus: Multi30k
) -> None:
    pins["val.en"] = "0" * 64
    with pytest.raises(DownloadError, match=r"val\.en has SHA-256 \w{64} instead of 0{64}; it was not kept") as caught:
        get(corpus, tmp_path, mirror)
    assert caught.value.exit_code == 1
    assert not list(tmp_path.glob("val.en*"))
    assert not list(tmp_path.parent.glob("*.part"))
    assert "val.en" not in (tmp_path / SUMS).read_text()
    pins["val.en"] = hashlib.sha256(TEXTS["val.en"]).hexdigest()
    assert "val.en" in get(corpus, tmp_path, mirror)


def test_an_unpinned_text_is_recorded_and_must_stay_the_same(
    mirror: Mirror, pins: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "nmt")
    logging.getLogger("nmt").propagate = True
    get(TOK, tmp_path, mirror, ["train.de"])
    assert f"train.de is not pinned: its SHA-256, {hashlib.sha256(TEXTS['train.de']).hexdigest()}, is " in caplog.text
    (tmp_path / "train.de.gz").unlink()
    mirror.add(TOK.url("train.de"), b"changed\n")
    with pytest.raises(DownloadError, match=r"train\.de has SHA-256 \w{64} instead of \w{64}"):
        get(TOK, tmp_path, mirror, ["train.de"])
    assert not (tmp_path / "train.de.gz").exists()


def test_the_md5_of_a_compressed_file(
    mirror: Mirror, pins: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = gzip.compress(TEXTS["train.de"])
    mirror.add(RAW.url("train.de"), content)
    monkeypatch.setitem(MD5, "train.de.gz", "0" * 32)
    with pytest.raises(DownloadError, match=r"train\.de\.gz has not the MD5 0{32}; it was not kept"):
        get(RAW, tmp_path, mirror, ["train.de"])
    assert not list(tmp_path.glob("train*"))
    monkeypatch.setitem(MD5, "train.de.gz", hashlib.md5(content).hexdigest())
    assert get(RAW, tmp_path, mirror, ["train.de"])


def test_files_that_nmt_download_did_not_write_are_left_alone(
    mirror: Mirror, pins: dict[str, str], tmp_path: Path
) -> None:
    for content in (gzip.compress(b"my own\n"), b"not compressed", b""):
        (tmp_path / "val.de.gz").write_bytes(content)
        with pytest.raises(InputError, match=r"val\.de\.gz is not the file that `nmt download` would write"):
            get(RAW, tmp_path, mirror)
        assert (tmp_path / "val.de.gz").read_bytes() == content
    pins["val.de"] = hashlib.sha256(TEXTS["val.de"]).hexdigest()
    (tmp_path / "val.de.gz").write_bytes(gzip.compress(TEXTS["val.de"]))
    assert "val.de" not in get(RAW, tmp_path, mirror), "a copy of the pinned text counts"


@pytest.mark.parametrize("content", [b"", b"<html>", gzip.compress(b"text" * 99)[:-9]], ids=["empty", "html", "cut"])
def test_a_damaged_gzip_file(mirror: Mirror, pins: dict[str, str], tmp_path: Path, content: bytes) -> None:
    mirror.add(RAW.url("train.en"), content)
    pins["train.en"] = "1" * 64
    with pytest.raises(DownloadError, match=r"train\.en\.gz is no undamaged gzip file|train\.en has SHA-256"):
        get(RAW, tmp_path, mirror)
    assert not list(tmp_path.glob("train*"))


def test_a_decompression_bomb(
    mirror: Mirror, pins: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_TEXT_BYTES", 10_000)
    mirror.add(RAW.url("train.en"), gzip.compress(bytes(1_000_000)))
    with pytest.raises(DownloadError, match="over 10,000 bytes when decompressed"):
        get(RAW, tmp_path, mirror)
    mirror.add(OPUS.url, archive({"x.de": bytes(1_000_000), "x.en": b"a\n"}))
    with pytest.raises(DownloadError, match=r"x\.de in .* has over 10,000 bytes when decompressed"):
        get(OPUS, tmp_path / "zip", mirror)
    assert not [*tmp_path.parent.glob("*.part"), *tmp_path.rglob("*.part"), *tmp_path.rglob("*.gz")]


def test_a_download_that_is_larger_than_the_catalog_allows(
    mirror: Mirror, pins: dict[str, str], tmp_path: Path
) -> None:
    mirror.add(TOK.url("train.en"), bytes(50_000))
    with pytest.raises(DownloadError, match="has more than 40,000 bytes"):
        get(TOK, tmp_path, mirror)


def test_another_process_that_downloads_is_reported(mirror: Mirror, pins: dict[str, str], tmp_path: Path) -> None:
    with (
        locked(tmp_path.with_name(f".{tmp_path.name}.lock")),
        pytest.raises(InputError, match="is in use by another download"),
    ):
        get(RAW, tmp_path, mirror)
    assert get(RAW, tmp_path, mirror)


def test_files_that_a_killed_download_left_go(mirror: Mirror, pins: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    names = ["val.en.gz", "LICENSE.txt", SUMS]
    for name in (*names, "unrelated"):
        (folder / f"{name}.tmp.{NO_PROCESS}").write_text("half")
    get(RAW, folder, mirror, ["val.en"])
    assert {file.name for file in folder.iterdir()} == {*names, f"unrelated.tmp.{NO_PROCESS}"}


def test_a_directory_that_cannot_be_made(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot make ") as caught:
        get(RAW, tmp_path / "file" / "small", mirror)
    assert "NMT_DATA" in caught.value.hint


# --- Tatoeba: split by nmt --------------------------------------------------------------------------------


@pytest.mark.parametrize("corpus", [OPUS, TSV], ids=["zip", "lines"])
def test_the_pairs_are_split(mirror: Mirror, pins: dict[str, str], tmp_path: Path, corpus: Tatoeba) -> None:
    for name, pairs, side in (("dev.de", PARTS["dev"], 0), ("test.en", PARTS["test"], 1)):
        pins[name] = hashlib.sha256("".join(f"{pair[side]}\n" for pair in pairs).encode()).hexdigest()
    assert sorted(get(corpus, tmp_path, mirror)) == sorted(corpus.files(corpus.languages))
    for part, expected in PARTS.items():
        found = read_pairs([tmp_path / f"{part}.de.gz"], [tmp_path / f"{part}.en.gz"])
        pairs = [(pair.source, pair.target) for pair in found]
        assert pairs == expected if part != "train" else sorted(pairs) == sorted(expected)
    first = texts(tmp_path)
    assert get(corpus, tmp_path, mirror) == []
    (tmp_path / "train.de.gz").unlink()
    assert get(corpus, tmp_path, mirror), "all files are made again"
    assert texts(tmp_path) == first
    assert not list(tmp_path.parent.glob("*.part"))


def test_another_version_is_reported_and_kept(
    mirror: Mirror, pins: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("nmt").propagate = True
    pins["dev.de"] = "of the complete dev"
    lines = "".join(
        f"{target}\t{source}\n" for source, target in [*PAIRS[1:], ("neu", "new"), ("", "blank"), ("x", " ")]
    )
    mirror.add(TSV.url, f"\ufeff{lines}no tab".encode())
    get(TSV, tmp_path, mirror)
    assert read_lines([tmp_path / "dev.en.gz"]) == [f"sentence {n}" for n in range(1, 5)]
    assert len(read_lines([tmp_path / "train.en.gz"])) == 91
    assert "small: dev has 4 of its 5 pairs" in caplog.text
    assert "small: train has 1 pairs more than" in caplog.text
    assert get(TSV, tmp_path, mirror) == []


def test_a_kill_between_the_files_is_repaired(
    mirror: Mirror, pins: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(path: Path, content: bytes | str) -> None:
        if path.name == "dev.en.gz":
            raise KeyboardInterrupt
        atomic_write(path, content)

    monkeypatch.setattr(module, "atomic_write", die)
    with pytest.raises(KeyboardInterrupt):
        get(OPUS, tmp_path, mirror)
    monkeypatch.setattr(module, "atomic_write", atomic_write)
    assert len(texts(tmp_path)) == 3
    assert len(get(OPUS, tmp_path, mirror)) == 6
    assert get(OPUS, tmp_path, mirror) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>", "is no undamaged zip file: File is not a zip file"),
        (archive({"x.de": b"a\n"}), r"contains no x\.en"),
        (archive({"x.de": b"a\nb\n", "x.en": b"a\n"}), "the sides have 2 and 1 lines"),
        (archive({"x.de": b"a" * 999, "x.en": b"a\n"}).replace(b"x.de", b"x.dd"), r"contains no x\.de"),
        (archive({"../../x.de": b"a\n", "/tmp/x.en": b"a\n"}), r"contains no x\.de"),
    ],
    ids=["html", "lacks one", "unequal", "renamed", "traversal"],
)
def test_a_wrong_or_hostile_archive(
    mirror: Mirror, pins: dict[str, str], tmp_path: Path, content: bytes, message: str
) -> None:
    mirror.add(OPUS.url, content)
    with pytest.raises(DownloadError, match=message):
        get(OPUS, tmp_path / "in" / "small", mirror)
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == [".small.lock"]


def test_a_damaged_member(mirror: Mirror, pins: dict[str, str], tmp_path: Path) -> None:
    content = bytearray(archive({"x.de": bytes(range(256)) * 9, "x.en": b"a\n"}))
    content[60] ^= 0xFF
    mirror.add(OPUS.url, bytes(content))
    with pytest.raises(DownloadError, match="is no undamaged zip file"):
        get(OPUS, tmp_path, mirror)


# --- the catalog ------------------------------------------------------------------------------------------


def test_the_pins_are_of_files_of_the_catalog() -> None:
    for corpus in CORPORA.values():
        files = corpus.files(corpus.languages)
        assert set(pinned(corpus.name)) <= set(files)
        assert all(len(digest) == 64 for digest in pinned(corpus.name).values())
        if isinstance(corpus, Multi30k):
            assert set(pinned(corpus.name)) == set(corpus.files(("en", "de")))
        else:
            lines = [line.split()[0] for line in pins_file(f"{corpus.name}.pairs").splitlines()]
            assert (lines.count("dev"), lines.count("test")) == corpus.n_pairs[1:]
            assert 0.8 < 64 * lines.count("train") / corpus.n_pairs[0] < 1.2
        assert len({*corpus.parts}) == 3
    raw = CORPORA["multi30k"]
    assert isinstance(raw, Multi30k)
    assert {raw.url(name).rpartition("/")[2] for name in raw.files(("fr", "cs"))} == set(MD5)


@pytest.mark.parametrize("name", CORPORA)
def test_the_pins_are_those_of_the_shared_corpora(shared: Path, name: str) -> None:
    folder = shared / "data" / name
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    found = {name: text_hash(folder / f"{name}.gz") for name in pinned(name)}
    assert found == pinned(name)
    assert Folder(CORPORA[name], folder).has(next(iter(found)))
