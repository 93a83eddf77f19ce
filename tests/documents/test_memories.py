"""Translation memories as files of text: in a known direction, and with nothing left out silently."""

import gzip
import json
import logging
from pathlib import Path

import pytest
from memory_files import DE_EN, PAIRS, TMX, XLIFF, copy_of, memory, pairs_of

from nmt.documents.memories import copy_memories, corpus_files, is_memory, text_files
from nmt.errors import InputError, NmtError


def test_a_memory_may_be_in_utf_16_and_compressed(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx.gz"
    path.write_bytes(gzip.compress(TMX.encode("utf-16")))
    assert is_memory(path)
    assert pairs_of(path, DE_EN) == PAIRS


def test_the_first_memory_decides_the_direction(tmp_path: Path) -> None:
    first, second = memory(tmp_path, "a.csv", "de,n,en\nda,1,there\n"), memory(tmp_path, "b.csv", "en,de\ntea,Tee\n")
    (source,), (target,) = text_files([first, second], ("", ""))
    assert [source.name, target.name] == ["source.a.csv.de", "target.a.csv.en"]
    assert target.read_text(encoding="utf-8") == "there\ntea\n"


def test_two_texts_stay_as_they_are(tmp_path: Path) -> None:
    paths = tmp_path / "a.de", tmp_path / "a.en"
    result = corpus_files(paths, ("", ""))
    assert result == ([paths[0]], [paths[1]])
    with pytest.raises(InputError, match="is no translation memory"):
        text_files(paths, ("", ""))


def test_the_code_of_a_language_may_have_a_region(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.tmx", TMX)
    (source,), (target,) = text_files([path], ("en-GB", "de_AT"))
    assert [source.name, target.name] == ["source.a.tmx.en-GB", "target.a.tmx.de_AT"]


def test_sources_and_targets_are_in_the_given_languages(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.jsonl", '{"id": 1, "source": "Tee", "target": "tea"}\n')
    (source,), (target,) = text_files([path], DE_EN)
    assert [source.suffix, target.suffix] == [".de", ".en"]
    assert pairs_of(path) == [("Tee", "tea")]


def test_one_given_language_tells_the_other(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.csv", "en,de\ntea,Tee\n")
    assert pairs_of(path, ("", "en")) == [("Tee", "tea")]
    with pytest.raises(InputError):
        pairs_of(path, ("fr", ""))


UNCLEAR = {  # message -> content of a .csv file
    "It has de, en, fr": "de,en,fr\na,b,c\n",
    "It has key, english, deutsch": "key,English,Deutsch\n1,tea,Tee\n",
    "It has none": "",
    "It has go., geh.": "Go.,Geh.\nStop,Halt\n",
}


@pytest.mark.parametrize("message", UNCLEAR)
def test_languages_that_are_unclear_are_listed(message: str, tmp_path: Path) -> None:
    path = memory(tmp_path, "a.csv", UNCLEAR[message])
    with pytest.raises(InputError, match=message) as caught:
        pairs_of(path)
    assert "--source-lang" in caught.value.hint


def test_a_language_that_a_memory_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a\.tmx has no pairs of de and fr. It has en, de"):
        pairs_of(memory(tmp_path, "a.tmx", TMX), ("de", "fr"))


def test_a_memory_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(NmtError, match=r"cannot read .*none.tmx: No such file"):
        pairs_of(tmp_path / "none.tmx")


def test_units_that_are_left_out_are_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    pairs_of(memory(tmp_path, "a.xlf", XLIFF))
    assert "a.xlf: 2 pairs; left out without a side or without approval: 3" in caplog.text


def test_a_long_memory_is_read_as_a_stream(tmp_path: Path) -> None:
    lines = [json.dumps({"de": f"Satz {i}", "en": f"sentence {i}"}) for i in range(3_000)]
    pairs = pairs_of(memory(tmp_path, "a.jsonl", "\n".join(lines)))
    assert pairs[-1] == ("Satz 2999", "sentence 2999")
    assert len(pairs) == 3_000


def test_several_memories_have_a_copy_each(tmp_path: Path) -> None:
    first, second = memory(tmp_path, "a.csv", "de,en\nda,there\n,x\n"), memory(tmp_path, "b.tsv", "en\tde\ntea\tTee\n")
    texts = memory(tmp_path, "new.de", "Tea\n"), memory(tmp_path, "new.en", "tee\n")
    (tmp_path / "copies").mkdir()
    copy_memories([first, second], tmp_path / "copies", DE_EN, texts, {2})
    assert (tmp_path / "copies/a.csv").read_text() == "de,en\n,x\n"
    assert (tmp_path / "copies/b.tsv").read_text() == "en\tde\ntee\tTea\n"


def test_a_text_that_is_not_changed_keeps_its_lines(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.jsonl.gz", "")
    path.write_bytes(gzip.compress(b'{"de": " Tee\\nda", "en": "tea"}\n'))
    copy_of(path, "Tee da\n", "tee\n", {1})
    assert (tmp_path / "copies/a.jsonl").read_text() == '{"de": " Tee\\nda", "en": "tee"}\n'


def test_a_unit_with_tags_is_copied_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    path = memory(tmp_path, "a.csv", "de,en\n<b>Tee</b> ,tea\nda ,there\n")
    copy = copy_of(path, "Tee\nda\n", "Tea\nThere\n", {1, 2})
    assert copy == "de,en\n<b>Tee</b> ,tea\nda ,There\n"
    assert f"a.csv: cleaned -> {tmp_path / 'copies/a.csv'}" in caplog.text


def test_two_copies_of_one_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    paths = memory(tmp_path, "a.csv", "de,en\nTee,tea\n"), memory(tmp_path / "x", "a.csv", "de,en\nda,there\n")
    texts = memory(tmp_path, "new.de", "Tee\nda\n"), memory(tmp_path, "new.en", "tea\nthere\n")
    (tmp_path / "copies").mkdir()
    with pytest.raises(InputError, match="two are named a"):
        copy_memories(paths, tmp_path / "copies", DE_EN, texts, {1, 2})
    assert (tmp_path / "copies/a.csv").read_text() == "de,en\nTee,tea\n"
