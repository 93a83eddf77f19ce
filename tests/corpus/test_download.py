"""Downloading corpora from a local server: the files match the catalog, or there is one clear error."""

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from mirror import Mirror, serving
from parallel_text import pins_of
from reliability.test_corpora import zipped

from nmt.corpus import download as module
from nmt.corpus.catalog import CORPORA, Corpus, package_text
from nmt.corpus.download import download, fetch, mirrored
from nmt.errors import DownloadError, InputError, OutputError
from nmt.files import sha256
from nmt.text.lines import iter_pairs

# One file a part and language.
PLAIN = Corpus(
    name="small",
    languages=("de", "en"),
    parts=("train", "dev", "test"),
    n_pairs=(90, 5, 5),
    size_mb=0.01,
    license="free",
    terms="Terms: none.\n",
    note="",
    url="https://example.org/{part}.{language}",
)
GZIP = replace(PLAIN, url="https://example.org/{part}.{language}.gz")
TEXTS = {}
for name in PLAIN.files(PLAIN.languages):
    TEXTS[name] = f"{name} line 1\n{name} line 2\n".encode()
# All pairs in one file, as lines or as two members of an archive.
LINES = replace(PLAIN, url="https://example.org/deu.txt")
ZIP = replace(
    PLAIN,
    url="https://example.org/de-en.zip",
    members=("x.de", "x.en"),
    test_urls=("https://example.org/t.deu", "https://example.org/t.eng"),
)
SOURCE = [f"Satz {n}" for n in range(100)]
TARGET = [f"sentence {n}" for n in range(100)]
PAIRS = list(zip(SOURCE, TARGET, strict=True))
PARTS = {"train": PAIRS[10:], "dev": PAIRS[:5], "test": PAIRS[5:10]}


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    # The split of the hundred pairs takes the place of that of Tatoeba.
    monkeypatch.setattr(module, "package_text", lambda _: pins_of(PARTS["dev"], PARTS["test"]))
    with serving() as server:
        for name, text in TEXTS.items():
            server.add(PLAIN.url_of(name), text)
            server.add(GZIP.url_of(name), gzip.compress(text))
        sides = {"x.de": joined(SOURCE), "x.en": joined(TARGET)}
        server.add(ZIP.url, zipped(**sides))
        lines = [f"{target}\t{source}\tCC-BY" for source, target in PAIRS]
        server.add(LINES.url, joined(lines))
        test_source, test_target = ZIP.test_urls
        server.add(test_source, joined(SOURCE[5:10]))
        server.add(test_target, joined(TARGET[5:10]))
        yield server


@pytest.fixture(autouse=True)
def pins(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    digests: dict[str, str] = {}
    monkeypatch.setattr(module, "pinned", lambda _: digests)
    return digests


def joined(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def texts(folder: Path) -> dict[str, bytes]:
    content = {}
    for file in folder.glob("*.gz"):
        content[file.stem] = gzip.decompress(file.read_bytes())
    return content


def get(corpus: Corpus, folder: Path, mirror: Mirror) -> list[str]:
    names = corpus.files(corpus.languages)
    return download(corpus, folder, names, mirror=mirror.url, quiet=True)


@pytest.mark.parametrize("corpus", [GZIP, PLAIN], ids=["gzip", "plain"])
def test_all_files_are_fetched(mirror: Mirror, tmp_path: Path, corpus: Corpus) -> None:
    folder = tmp_path / "a" / "small"
    result = get(corpus, folder, mirror)
    assert result == list(TEXTS)
    assert texts(folder) == TEXTS
    assert (folder / "LICENSE.txt").read_text() == "Terms: none.\n"


def test_only_what_is_missing_is_fetched(mirror: Mirror, tmp_path: Path) -> None:
    get(GZIP, tmp_path, mirror)
    (tmp_path / "dev.en.gz").unlink()
    mirror.requests.clear()
    result = get(GZIP, tmp_path, mirror)
    assert result == ["dev.en"]
    assert get(GZIP, tmp_path, mirror) == []
    assert len(mirror.requests) == 1
    assert texts(tmp_path) == TEXTS


def test_a_text_with_another_hash_is_not_kept(mirror: Mirror, pins: dict[str, str], tmp_path: Path) -> None:
    # The files before it are kept, and it can be fetched again.
    pins["dev.en"] = "0" * 64
    with pytest.raises(DownloadError, match=r"dev\.en has SHA-256 \w{64} instead of 0{64}; it was not kept"):
        get(GZIP, tmp_path, mirror)
    result = set(texts(tmp_path))
    assert result == {"train.de", "train.en", "dev.de"}
    pins["dev.en"] = sha256(TEXTS["dev.en"])
    assert "dev.en" in get(GZIP, tmp_path, mirror)


def pairs_in(folder: Path, part: str) -> list[tuple[str, str]]:
    pairs = iter_pairs([folder / f"{part}.de.gz"], [folder / f"{part}.en.gz"])
    return [(pair.source, pair.target) for pair in pairs]


@pytest.mark.parametrize("corpus", [ZIP, LINES], ids=["zip", "lines"])
def test_the_pairs_of_one_file_are_split(mirror: Mirror, tmp_path: Path, corpus: Corpus) -> None:
    get(corpus, tmp_path, mirror)
    assert pairs_in(tmp_path, "dev") == PARTS["dev"]
    assert pairs_in(tmp_path, "test") == PARTS["test"]
    result = sorted(pairs_in(tmp_path, "train"))
    assert result == sorted(PARTS["train"])


def test_if_a_part_of_a_split_is_missing_all_files_are_made_again(mirror: Mirror, tmp_path: Path) -> None:
    get(ZIP, tmp_path, mirror)
    before = texts(tmp_path)
    (tmp_path / "train.de.gz").unlink()
    result = len(get(ZIP, tmp_path, mirror))
    assert result == 6
    assert texts(tmp_path) == before


def test_another_version_is_reported_and_kept(mirror: Mirror, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # One pair of dev is gone, one is new, and two have a blank side.
    pairs = [*PAIRS[1:], ("neu", "new"), ("", "blank"), ("x", " ")]
    lines = [f"{target}\t{source}" for source, target in pairs]
    mirror.add(LINES.url, "\ufeff".encode() + joined(lines) + b"no tab")
    get(LINES, tmp_path, mirror)
    result = pairs_in(tmp_path, "dev")
    assert result == PAIRS[1:5]
    assert "small: dev has 4 pairs, the recipes were measured with 5" in caplog.text
    assert "small: train has 91 pairs, the recipes were measured with 90" in caplog.text


# The bit in the central directory that says that a member is encrypted.
ENCRYPTED = zipped(**{"x.de": b"a\n"}).replace(b"K\1\2\x14\3\x14\0\0", b"K\1\2\x14\3\x14\0\1")


CUT_OFF = gzip.compress(b"text" * 99)[:-9]
UNEQUAL = zipped(**{"x.de": b"a\nb\n", "x.en": b"a\n"})
DAMAGED = [  # a corpus, what its server sends, a part of the message
    (GZIP, b"<html>", r"train\.de\.gz is damaged: Not a gzipped file"),
    (GZIP, CUT_OFF, r"train\.de\.gz is damaged: Compressed file ended"),
    (ZIP, b"<html>", "zip is damaged: File is not a zip file"),
    (ZIP, zipped(**{"x.de": b"a\n"}), r"zip is damaged: .*no item named 'x\.en'"),
    (ZIP, ENCRYPTED, "encrypted"),
    (ZIP, UNEQUAL, "small: the two sides have different numbers of lines"),
]


@pytest.mark.parametrize(("corpus", "content", "message"), DAMAGED, ids=[message for *_, message in DAMAGED])
def test_a_damaged_file_is_refused(
    mirror: Mirror, tmp_path: Path, corpus: Corpus, content: bytes, message: str
) -> None:
    mirror.add(corpus.url_of("train.de"), content)
    with pytest.raises(DownloadError, match=message):
        get(corpus, tmp_path / "small", mirror)
    assert not list(tmp_path.iterdir())


def assert_not_fetched(url: str, reason: str) -> None:
    """There is one clear error on one line."""
    with pytest.raises(DownloadError, match=f"^cannot download {url}: .*{reason}") as caught:
        fetch(url, quiet=True)
    assert "--mirror" in caught.value.hint
    assert "\n" not in str(caught.value)


def test_a_connection_that_ends_early(mirror: Mirror) -> None:
    mirror.files["/cut"] = bytes(1000)
    mirror.n_sent = 10
    assert_not_fetched(f"{mirror.url}/cut", r"IncompleteRead\(10 bytes read, 990 more expected\)")


def test_a_file_that_the_server_has_not(mirror: Mirror) -> None:
    assert_not_fetched(f"{mirror.url}/absent", "HTTP 404 Not Found")


def test_a_server_that_does_not_answer() -> None:
    # No program listens at port 1.
    assert_not_fetched("http://127.0.0.1:1/f", "Connection refused")


def test_a_directory_that_cannot_be_made(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot make ") as caught:
        get(PLAIN, tmp_path / "file" / "small", mirror)
    assert "NMT_DATA" in caught.value.hint


def test_the_place_of_a_file_on_a_mirror() -> None:
    url = "https://example.org/a/b.gz"
    assert mirrored(url, "") == url
    copy = mirrored(url, "http://localhost:8000/copy/")
    assert copy == "http://localhost:8000/copy/example.org/a/b.gz"


@pytest.mark.parametrize("no_mirror", ["localhost:8000", "file:///etc"])
def test_a_mirror_that_is_no_url_of_a_server(no_mirror: str) -> None:
    with pytest.raises(InputError, match="is not an http or https URL"):
        mirrored("https://example.org/a/b.gz", no_mirror)


SPLIT = [corpus for corpus in CORPORA.values() if corpus.is_split]


@pytest.mark.parametrize("corpus", SPLIT, ids=lambda corpus: corpus.name)
def test_the_pins_name_as_many_pairs_as_the_recipes_were_measured_with(corpus: Corpus) -> None:
    pins = package_text(f"pins/{corpus.name}.pairs")
    _, n_dev, n_test = corpus.n_pairs
    assert pins.count("dev ") == n_dev
    assert pins.count("test ") == n_test
