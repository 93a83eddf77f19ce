"""Downloading corpora from a local server: the files match the catalog, or there is one clear error."""

import gzip
import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mirror import Mirror, serving

from nmt.corpus import download as module
from nmt.corpus.catalog import CORPORA, Corpus, pins_file
from nmt.corpus.download import download, fetch, mirrored
from nmt.corpus.tatoeba import pins_of
from nmt.errors import DownloadError, InputError, OutputError
from nmt.files import sha256
from nmt.text.lines import iter_lines, iter_pairs

NAMES = ("en", "de"), ("train", "dev", "test")
PLAIN = Corpus("small", *NAMES, (90, 5, 5), 0.01, "free", "Terms: none.\n", "", "https://example.org/{part}.{language}")
GZIP = replace(PLAIN, url=f"{PLAIN.url}.gz")
TEXTS = {name: f"{name} line 1\n{name} line 2\n".encode() for name in PLAIN.files(PLAIN.languages)}
TEST_URLS = ("https://example.org/t.deu", "https://example.org/t.eng")
LINES = replace(PLAIN, languages=("de", "en"), url="https://example.org/deu.txt")
ZIP = replace(LINES, url="https://example.org/de-en.zip", members=("x.de", "x.en"), test_urls=TEST_URLS)
PAIRS = [(f"Satz {n}", f"sentence {n}") for n in range(100)]
PARTS = {"train": PAIRS[10:], "dev": PAIRS[:5], "test": PAIRS[5:10]}


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    monkeypatch.setattr(module, "pins_file", lambda _: pins_of(PARTS))
    with serving() as server:
        for name, text in TEXTS.items():
            server.add(PLAIN.url_of(name), text)
            server.add(GZIP.url_of(name), gzip.compress(text))
        server.add(ZIP.url, archive({f"x.{language}": text_of(PAIRS, i) for i, language in enumerate(ZIP.languages)}))
        server.add(LINES.url, "".join(f"{target}\t{source}\tCC-BY\n" for source, target in PAIRS).encode())
        for side, url in enumerate(TEST_URLS):
            server.add(url, text_of(PARTS["test"], side))
        yield server


@pytest.fixture(autouse=True)
def pins(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found: dict[str, str] = {}
    monkeypatch.setattr(module, "pinned", lambda _: found)
    return found


def text_of(pairs: list[tuple[str, str]], side: int) -> bytes:
    return "".join(f"{pair[side]}\n" for pair in pairs).encode()


def archive(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as file:
        for name, data in files.items():
            file.writestr(name, data)
    return content.getvalue()


def texts(folder: Path) -> dict[str, bytes]:
    return {file.name.removesuffix(".gz"): gzip.decompress(file.read_bytes()) for file in folder.glob("*.gz")}


def get(corpus: Corpus, folder: Path, mirror: Mirror) -> list[str]:
    return download(corpus, folder, corpus.files(corpus.languages), mirror=mirror.url, quiet=True)


@pytest.mark.parametrize("corpus", [GZIP, PLAIN], ids=["gzip", "plain"])
def test_what_is_missing_is_fetched(mirror: Mirror, tmp_path: Path, corpus: Corpus) -> None:
    folder = tmp_path / "a" / "small"
    assert get(corpus, folder, mirror) == list(TEXTS)
    assert texts(folder) == TEXTS
    assert (folder / "LICENSE.txt").read_text() == "Terms: none.\n"
    (folder / "dev.en.gz").unlink()
    mirror.requests.clear()
    assert get(corpus, folder, mirror) == ["dev.en"]
    assert texts(folder) == TEXTS
    assert get(corpus, folder, mirror) == []
    assert len(mirror.requests) == 1


def test_a_text_with_another_hash_is_not_kept(mirror: Mirror, pins: dict[str, str], tmp_path: Path) -> None:
    pins["dev.en"] = "0" * 64
    with pytest.raises(DownloadError, match=r"dev\.en has SHA-256 \w{64} instead of 0{64}; it was not kept"):
        get(GZIP, tmp_path, mirror)
    assert set(texts(tmp_path)) == {"train.en", "train.de"}
    pins["dev.en"] = sha256(TEXTS["dev.en"])
    assert "dev.en" in get(GZIP, tmp_path, mirror)


@pytest.mark.parametrize("corpus", [ZIP, LINES], ids=["zip", "lines"])
def test_the_pairs_of_one_file_are_split(mirror: Mirror, tmp_path: Path, corpus: Corpus) -> None:
    assert sorted(get(corpus, tmp_path, mirror)) == sorted(corpus.files(corpus.languages))
    for part, expected in PARTS.items():
        found = list(iter_pairs([tmp_path / f"{part}.de.gz"], [tmp_path / f"{part}.en.gz"]))
        pairs = [(pair.source, pair.target) for pair in found]
        assert pairs == expected if part != "train" else sorted(pairs) == sorted(expected)
    first = texts(tmp_path)
    (tmp_path / "train.de.gz").unlink()
    assert len(get(corpus, tmp_path, mirror)) == 6, "all files are made again"
    assert texts(tmp_path) == first


def test_another_version_is_reported_and_kept(mirror: Mirror, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pairs = [*PAIRS[1:], ("neu", "new"), ("", "blank"), ("x", " ")]
    lines = "".join(f"{target}\t{source}\n" for source, target in pairs)
    mirror.add(LINES.url, f"\ufeff{lines}no tab".encode())
    get(LINES, tmp_path, mirror)
    assert list(iter_lines([tmp_path / "dev.en.gz"])) == [f"sentence {n}" for n in range(1, 5)]
    assert "small: dev has 4 pairs, the recipes were measured with 5" in caplog.text
    assert "small: train has 91 pairs, the recipes were measured with 90" in caplog.text


@pytest.mark.parametrize(
    ("corpus", "name", "content", "message"),
    [
        (GZIP, "train.en", b"<html>", r"train\.en\.gz is damaged: Not a gzipped file"),
        (GZIP, "train.en", gzip.compress(b"text" * 99)[:-9], r"train\.en\.gz is damaged: Compressed file ended"),
        (ZIP, "", b"<html>", "zip is damaged: File is not a zip file"),
        (ZIP, "", archive({"x.de": b"a\n"}), r"zip is damaged: .*no item named 'x\.en'"),
        (ZIP, "", archive({"x.de": b"a\n"}).replace(b"K\1\2\x14\3\x14\0\0", b"K\1\2\x14\3\x14\0\1"), "encrypted"),
        (ZIP, "", archive({"x.de": b"a\nb\n", "x.en": b"a\n"}), "small: the two sides have different numbers of lines"),
    ],
    ids=["no gzip", "cut gzip", "no zip", "incomplete zip", "encrypted", "unequal sides"],  # archives contain the time
)
def test_damaged_files(mirror: Mirror, tmp_path: Path, corpus: Corpus, name: str, content: bytes, message: str) -> None:
    mirror.add(corpus.url_of(name) if name else corpus.url, content)
    with pytest.raises(DownloadError, match=message):
        get(corpus, tmp_path / "small", mirror)
    assert not list(tmp_path.iterdir())


def test_an_answer_that_is_no_file_is_one_clear_error(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/cut"] = bytes(1000)
    mirror.n_sent = 10
    for url, reason in (
        (f"{mirror.url}/cut", r"IncompleteRead\(10 bytes read, 990 more expected\)"),
        (f"{mirror.url}/absent", "HTTP 404 Not Found"),
        ("http://127.0.0.1:1/f", "Connection refused"),
    ):
        with pytest.raises(DownloadError, match=f"^cannot download {url}: .*{reason}") as caught:
            fetch(url, quiet=True)
        assert "--mirror" in caught.value.hint
        assert "\n" not in str(caught.value)


def test_a_directory_that_cannot_be_made(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot make ") as caught:
        get(PLAIN, tmp_path / "file" / "small", mirror)
    assert "NMT_DATA" in caught.value.hint


def test_the_place_of_a_file_on_a_mirror() -> None:
    url = "https://example.org/a/b.gz"
    assert mirrored(url, "") == url
    assert mirrored(url, "http://localhost:8000/copy/") == "http://localhost:8000/copy/example.org/a/b.gz"
    for no_mirror in ("localhost:8000", "file:///etc"):
        with pytest.raises(InputError, match="is not an http or https URL"):
            mirrored(url, no_mirror)


def test_the_pins_name_as_many_pairs_as_the_recipes_were_measured_with() -> None:
    for corpus in CORPORA.values():
        if corpus.is_split:
            parts = [line.split()[0] for line in pins_file(f"{corpus.name}.pairs").splitlines()]
            assert [parts.count("dev"), parts.count("test")] == corpus.n_pairs[1:]
