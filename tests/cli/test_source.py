"""What the argument of `nmt translate` is: a text, a path, or a path that somebody has mistyped."""

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


PATHS = ["new.de.gz", "memory.tmx", "/s", "../a", "~/letters", "letters/"]
WINDOWS_PATHS = ["C:\\letters\\a.docx", "..\\a", "\\\\server\\letters"]
WORDS = ["50 km/h", "and/or", "Node.js", "…", "a:b", "\\n", "firma.de"]
SENTENCES = ["the file report.docx.", "/ or", "请打开report.docx。", "https://example.com/a"]


@pytest.mark.parametrize("text", PATHS + WINDOWS_PATHS)
def test_a_path_has_a_suffix_or_begins_or_ends_as_one(text: str) -> None:
    assert is_path(text)


@pytest.mark.parametrize("text", WORDS + SENTENCES)
def test_a_sentence_or_a_word_is_no_path(text: str) -> None:
    result = source_of(text, None, None)
    assert result == Source("text", text=text)


NOTHING = [  # arguments that name no file
    "none.xliff -o out.xliff",
    "none.docx -o out.docx",
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


@pytest.mark.parametrize("name", ["a.DOCX", "my notes.md"])
def test_documents_are_known_by_their_names(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.touch()
    source = source_of(str(file), None, None)
    assert source == Source("document", file)


def test_folders_are_known(tmp_path: Path) -> None:
    source = source_of(str(tmp_path), None, None)
    assert source == Source("folder", tmp_path)


@pytest.mark.parametrize("name", ["new.de", "new.de.gz", "report.pdf"])
def test_a_file_that_is_no_document_is_refused_with_the_option_for_lines(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch()
    with pytest.raises(InputError, match="is a file, not a text or a document") as caught:
        source_of(str(path), None, None)
    assert caught.value.hint.startswith(f"lines of text: nmt translate -i {path}; documents end in .arb, .csv, ")


UNSUITABLE = {  # arguments -> part of the error message
    "-i a.docx": "a.docx is not a file with lines of text",
    "-i in.zh -o in.zh": "in.zh would be overwritten",
    "-i in.zh -o link": "in.zh would be overwritten",
    "-i in.zh -o new.docx": "new.docx is named as a document or an archive, but lines",
    "folder": "the translation of folder needs a file or a folder",
    "a.docx -o b.docx --n-best 2 --json": "do not apply to a document",
    "a.docx -o b.docx --resume": "--resume is for lines and folders, and a.docx is a document",
    "TEXT --bilingual": "--bilingual is for a document",
    "a.docx -o b.docx --column a": "--column and --into are for a .csv or .tsv file",
    "-i in.zh --min-match 0.8": "--min-match is for matches of a memory",
    "-i in.zh --format html --json": "--format html goes with neither --json nor --prefix",
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
