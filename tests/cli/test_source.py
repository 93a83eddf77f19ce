"""What the argument of `nmt translate` is: a text, a path, or a path that somebody has mistyped."""

import gzip
from pathlib import Path

import pytest
from conftest import refused

from nmt.cli.source import Source, is_path, source_of
from nmt.documents import SUFFIXES
from nmt.errors import InputError


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_name_with_the_suffix_of_a_document_is_a_path(suffix: str) -> None:
    assert is_path(f"none{suffix}")
    assert is_path(f"NONE{suffix.upper()}")


PATHS = ["new.de.gz", "memory.tmx", "pairs.tsv", "/s", "./a", "../a", "~/letters", "letters/"]
WINDOWS_PATHS = ["C:\\letters\\a.docx", "C:\\letters", "d:/letters", ".\\a", "..\\a", "\\\\server\\letters"]
WORDS = ["50 km/h", "and/or", "e.g.", "Node.js", "3.14", "…", "...", "", "Haus", "a:b", "~5", "n/a", "\\n", "firma.de"]
SENTENCES = ["See report.docx.", "the file report.docx", "/ or", "请打开report.docx。", "https://example.com/a"]


@pytest.mark.parametrize("text", PATHS + WINDOWS_PATHS)
def test_a_path_has_a_suffix_or_begins_or_ends_as_one(text: str) -> None:
    assert is_path(text)


@pytest.mark.parametrize("text", WORDS + SENTENCES)
def test_a_sentence_or_a_word_is_no_path(text: str) -> None:
    assert source_of(text, None, None) == Source("text", text=text)


def test_the_output_tells_that_a_name_with_spaces_is_a_path() -> None:
    assert is_path("my report.docx", Path("new.DOCX"))
    assert not is_path("see report.docx", Path("new.txt"))
    assert not is_path("no suffix", Path("new"))


def test_a_word_is_a_path_if_the_output_is_a_folder(tmp_path: Path) -> None:
    assert is_path("letters", tmp_path)
    assert not is_path("letters", tmp_path / "new")


NOTHING = [  # arguments that name no file
    "none.xliff -o out.xliff",
    "none.docx -o out.docx",
    "none.docx -o out.tmx --bilingual",
    "none/ -o out",
    "dangling.po -o out.po",
    "/none/letters --resume -o out",
]


@pytest.mark.parametrize("arguments", NOTHING)
def test_a_path_to_nothing_is_an_error_and_nothing_is_written(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "dangling.po").symlink_to("nowhere")
    name = arguments.split()[0]
    stderr = refused(tmp_path, f"translate {arguments}", f"no such file or folder: {name}")
    assert f"as a text: echo {name} | nmt translate" in stderr
    (file,) = tmp_path.iterdir()
    assert file.name == "dangling.po"


@pytest.mark.parametrize("name", ["a.DOCX", "a.txt", "my notes.md"])
def test_documents_are_known_by_their_names(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.touch()
    source = source_of(str(file), None, None)
    assert source == Source("document", file)


def test_folders_are_known(tmp_path: Path) -> None:
    source = source_of(str(tmp_path), None, None)
    assert source == Source("folder", tmp_path)


TEXT_FILES = {  # name -> content
    "new.de": "Ein Bär".encode(),
    "cut": "ä".encode() * 2048 + b"\xc3",  # the part that is read ends within a character
    "new.de.gz": gzip.compress(b"Ein Hund", mtime=0),
}
OTHER_FILES = {
    "report.pdf": b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n",
    "notes.odt": b"PK\x03\x04\0\0",
    "old.de": "Ein Bär".encode("latin-1"),
}


@pytest.mark.parametrize("name", TEXT_FILES)
def test_a_file_of_text_is_refused_with_the_option_for_lines(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(TEXT_FILES[name])
    with pytest.raises(InputError, match="is a file, not a text") as caught:
        source_of(str(path), None, None)
    assert caught.value.hint.startswith(f"nmt translate -i {path}")


@pytest.mark.parametrize("name", OTHER_FILES)
def test_a_file_of_another_format_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(OTHER_FILES[name])
    with pytest.raises(InputError, match="neither text in UTF-8 nor a document") as caught:
        source_of(str(path), None, None)
    assert caught.value.hint.startswith("save it as one of ")


UNSUITABLE = {  # arguments -> part of the error message
    "-i folder": "folder is a folder, not lines of text",
    "-i a.docx": "a.docx is a document, not lines of text",
    "-i in.zh -o in.zh": "in.zh would be overwritten",
    "-i in.zh -o link": "in.zh would be overwritten",
    "TEXT -o new.docx": "new.docx is named as a document, but lines of text would be written",
    "-o new.pptx": "new.pptx is named as a document",
    "a.docx": "the translation of a.docx needs a file or a folder",
    "folder -o -": "the translation of folder needs a file or a folder",
    "folder -o new --json --prefix x": "folder is a folder: --prefix, --json would have no effect",
    "a.docx -o b.docx --n-best 2 --json": "a.docx is a document: --n-best, --json would",
    "a.docx -o b.docx --format html": "a.docx is a document: --format would have no effect",
    "a.docx -o b.docx --resume": "--resume is for lines and folders, and a.docx is a document",
    "TEXT --bilingual": "--bilingual is for a document",
    "a.docx -o b.docx --column a": "--column is for a .csv file",
    "-i in.zh --format html --json": "--format html goes with none of --json, --scores, --min-confidence",
}


@pytest.mark.parametrize("arguments", UNSUITABLE)
def test_inputs_outputs_and_options_that_do_not_go_together(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "in.zh").write_text("我")
    (tmp_path / "link").symlink_to("in.zh")
    (tmp_path / "a.docx").touch()
    refused(tmp_path, f"translate {arguments}", UNSUITABLE[arguments])
    assert (tmp_path / "in.zh").read_text() == "我"


def test_several_arguments_are_a_sentence_without_quotes_or_documents(tmp_path: Path) -> None:
    stderr = refused(tmp_path, "translate a.docx b.docx", "unexpected extra argument")
    assert "hint: put a sentence in quotes; to translate several documents, give their folder" in stderr
