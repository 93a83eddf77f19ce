"""Cleaned copies of translation memories: what is not changed is copied byte for byte."""

import logging
from pathlib import Path

import pytest
from memory_files import DE_EN, PAIRS, PO, TEXTS, TMX, memory, pairs_of

from nmt.documents.memories import Names
from nmt.documents.memory_copies import write_copy


def copy_of(path: Path, changes: dict[int, Names | None]) -> str:
    """A copy of a memory with these changes."""
    copy = path.with_name("copy" + path.suffix)
    write_copy(path, copy, DE_EN, ("", ""), changes)
    return copy.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", [name for name in TEXTS if name not in ("g.tsv", "j.po")])
def test_a_copy_lacks_the_units_that_are_left_out(name: str, tmp_path: Path) -> None:
    path = memory(tmp_path, name, TEXTS[name])
    assert copy_of(path, {}) == TEXTS[name]
    copy_of(path, {1: None})
    assert pairs_of(path.with_name("copy" + path.suffix), DE_EN) == PAIRS[1:]


CHANGED = {  # file name -> the pieces of text that are changed, and what is in the copy
    "a.tmx": {"<seg>Tee<": "<seg>Tea<", "<seg>tea<": "<seg>&lt;tee&gt;<"},
    "b.xlf": {">Tee<": ">Tea<", ">tea<": ">&lt;tee&gt;<"},
    "d.tbx": {">Tee<": ">Tea<", ">tea<": ">&lt;tee&gt;<"},
    "e.csv": {"Tee,tea": '"Tea","<tee>"'},
    "f.csv": {"tea;Tee": '"<tee>";"Tea"'},
    "h.jsonl": {'"Tee"': '"Tea"', '"tea"': '"<tee>"'},
    "i.jsonl": {'"Tee"': '"Tea"', '"tea"': '"<tee>"'},
}


@pytest.mark.parametrize("name", CHANGED)
def test_a_copy_has_new_texts_and_nothing_else_is_new(name: str, tmp_path: Path) -> None:
    path = memory(tmp_path, name, TEXTS[name])
    expected = TEXTS[name]
    for old, new in CHANGED[name].items():
        expected = expected.replace(old, new)
    assert copy_of(path, {2: ("Tea", "<tee>")}) == expected


def test_the_texts_of_a_unit_can_be_exchanged(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.csv", TEXTS["e.csv"])
    copy_of(path, {2: ("tea", "Tee")})
    assert pairs_of(path.with_name("copy.csv"), DE_EN) == [PAIRS[0], ("tea", "Tee")]


def test_a_changed_field_is_in_quotes(tmp_path: Path) -> None:
    path = memory(tmp_path, "a.csv", "de,en\nTee &quot;,tea\n")
    copy = copy_of(path, {1: ('Tee "', "tea, hot")})
    assert copy == 'de,en\n"Tee ""","tea, hot"\n'
    assert pairs_of(path.with_name("copy.csv")) == [('Tee "', "tea, hot")]


def test_texts_with_codes_stay_in_a_copy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    assert copy_of(memory(tmp_path, "a.tmx", TMX), {1: ("Hund", "dog")}) == TMX
    assert "in their texts: 1" in caplog.text


def test_it_is_said_that_a_format_cannot_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = memory(tmp_path, "a.po", PO)
    write_copy(path, tmp_path / "b.po", ("en", "de"), ("", ""), {1: None})
    assert "a.po cannot be written in its own format" in caplog.text
    assert not (tmp_path / "b.po").exists()
