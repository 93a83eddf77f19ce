"""`nmt check`."""

import json
from itertools import islice
from pathlib import Path

import pytest
from conftest import Done, data_of_page, err_lines, out_lines, refused, run_in

DATA = Path(__file__).parents[2] / "data" / "zh-en"


def test_a_config_without_errors(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        f"run: runs/none\ndata: {{root: {DATA}, train: {{source: dev.zh, target: dev.en}}, "
        f"test: {{source: test.zh, target: test.en}}}}\n"
    )
    lines = out_lines(run_in(tmp_path, "check mine.yaml"))
    assert lines[0] == f"train: 200 lines of {DATA}/dev.zh and {DATA}/dev.en"
    assert lines[1].startswith("test: ")
    assert lines[-1] == "no fault found"
    # Settings can be overridden, for example to leave out the test set.
    report = json.loads(run_in(tmp_path, "check mine.yaml data.test=null --json").stdout)
    (corpus,) = report["corpora"]
    assert corpus["name"] == "train"


COPY = """<tu><tuv xml:lang="en"><seg>a long copy of this text</seg></tuv>
<tuv xml:lang="de"><seg>a long copy of this text</seg></tuv></tu>
"""
MEMORY = f"""<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>the house</seg></tuv><tuv xml:lang="de"><seg>das Haus</seg></tuv></tu>
{COPY}<tu><tuv xml:lang="en"><seg>M&amp;amp;M</seg></tuv><tuv xml:lang="de"><seg>M und M</seg></tuv></tu>
</body></tmx>"""


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    """A folder with a memory."""
    (tmp_path / "a.tmx").write_text(MEMORY)
    return tmp_path


def test_a_memory_is_checked_and_cleaned(memory: Path) -> None:
    done = run_in(memory, "check a.tmx --fix fixed")
    assert b"corpus: 3 lines of " in done.stdout
    copy = MEMORY.replace("M&amp;amp;M", "M&amp;M").replace(COPY, "")
    _, written = (memory / "fixed/a.tmx").read_text().split("\n", 1)
    assert written == copy
    assert (memory / "fixed/corpus.en").read_text() == "the house\nM&M\n"


def test_a_config_may_name_memories(memory: Path) -> None:
    config = "run: x\ndata: {source_lang: de, target_lang: en, train: {source: a.tmx}}\n"
    (memory / "a.yaml").write_text(config)
    done = run_in(memory, "check a.yaml")
    assert b"train: 3 lines of " in done.stdout
    assert b"source.a.tmx.de and " in done.stdout
    assert b"a.tmx: 3 pairs; left out" in done.stderr
    (memory / "b.yaml").write_text("run: x\ndata: {train: {source: a.tmx}}\n")
    refused(memory, "check b.yaml", "which languages of a.tmx?")


LIST = """run: x
data:
  train: [{languages: de-en, source: a.tmx}, {languages: en-de, source: a.tmx}]
  dev: [{languages: de-en, source: a.tmx}]
"""


@pytest.mark.parametrize(("chosen", "source"), [("a.yaml -l en-de", "en"), ("a.tmx -l en", "de")])
def test_languages_of_memories_are_chosen(memory: Path, chosen: str, source: str) -> None:
    (memory / "a.yaml").write_text(LIST)
    done = run_in(memory, f"check {chosen}")
    assert f"source.a.tmx.{source} and ".encode() in done.stdout


@pytest.fixture(scope="module")
def shifted(folder: Path) -> Done:
    """The check of 1,500 lines, of which line 700 is missing on one side."""
    for language in ("zh", "en"):
        with (DATA / f"train.{language}").open("rb") as file:
            lines = list(islice(file, 1500))
        if language == "en":
            del lines[700]
        (folder / f"train.{language}").write_bytes(b"".join(lines))
    return run_in(folder, "check train.zh train.en --html page.html --fix fixed --show 1")


def test_errors_are_reported(shifted: Done) -> None:
    text = shifted.stdout.decode()
    assert shifted.returncode == 1
    assert "error    corpus: the sides have different numbers of lines\n" in text
    assert text.startswith("corpus: 1,500 and 1,499 lines of train.zh and train.en\n")
    assert "1,500 source lines, 1,499 target lines\n" in text
    assert "-1500: the translations are lines 70" in text
    assert "2 errors" in text.splitlines()[-1]


def test_the_page_has_the_first_lines_of_each_finding(shifted: Done, folder: Path) -> None:
    assert b"written to page.html\n" in shifted.stderr
    data = data_of_page((folder / "page.html").read_text())
    findings = {finding["kind"]: finding for finding in data["findings"]}
    assert findings["shifted"]["count"] > 790
    assert len(findings["shifted"]["lines"]) <= 1000


def test_the_cleaned_files_are_aligned_and_have_no_errors(shifted: Done, folder: Path) -> None:
    assert b"of lines with different numbers, so check the copies, too -> " in shifted.stderr
    # Three lines around the missing one may go.
    n_source = (folder / "fixed/corpus.zh").read_text().count("\n")
    n_target = (folder / "fixed/corpus.en").read_text().count("\n")
    assert n_source == n_target >= 1497
    result = err_lines(run_in(folder, "check fixed/corpus.zh fixed/corpus.en -q"))
    assert result == []


UNSUITABLE = {  # arguments -> part of the error message
    "a.de": "a.de is no translation memory",
    "a.de none.en": "none.en",
    "a.de empty": "empty is empty",
    "a.de a.de -l de-en": "-l chooses a direction of a config or the languages of a memory",
    "b.yaml": "a.de is no translation memory",
    "a.yaml --fix fixed": "--fix would join data.mix with the training files",
}


@pytest.mark.parametrize("arguments", UNSUITABLE)
def test_what_cannot_be_checked_is_refused(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "a.de").write_text("a\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "b.yaml").write_text("run: x\ndata: {train: {source: [a.de, a.de]}}\n")
    (tmp_path / "a.yaml").write_text(
        "run: x\ndata: {train: {source: a.de, target: a.de}, mix: {b: {source: a.de, target: a.de, weight: 0.1}}}\n"
    )
    refused(tmp_path, f"check {arguments}", UNSUITABLE[arguments])


def test_a_folder_with_files_gets_no_copies(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("a\n")
    (tmp_path / "a.en").write_text("b\n")
    (tmp_path / "fixed").mkdir()
    (tmp_path / "fixed" / "mine").write_text("mine")
    done = run_in(tmp_path, "check a.de a.en --fix fixed")
    assert done.returncode == 1
    assert b"fixed is not empty" in done.stderr


def test_control_characters_are_escaped(tmp_path: Path) -> None:
    (tmp_path / "a.de").write_text("a \x1b[31mb\n")
    (tmp_path / "a.en").write_text("b \x1b[31mb\n")
    done = run_in(tmp_path, "check a.de a.en")
    assert b"\x1b" not in done.stdout
    assert b"\\x1b[31mb" in done.stdout
