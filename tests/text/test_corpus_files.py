"""The files of training pairs: what is written is read back."""

from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.text import corpus_files
from nmt.text.corpus_files import Pairs, RaggedArray, append_rows, write_pairs
from nmt.text.lines import Pair

ROW = st.lists(st.integers(0, 60_000), max_size=4)
ROWS = st.lists(ROW, min_size=1, max_size=8)


def lists(rows: RaggedArray) -> list[list[int]]:
    return [rows[i] for i in range(len(rows))]


@given(st.lists(ROWS, min_size=1, max_size=3))
def test_appended_rows_are_read_back(tmp_path_factory: pytest.TempPathFactory, parts: list[list[list[int]]]) -> None:
    file = tmp_path_factory.mktemp("rows") / "ids"
    for part in parts:
        append_rows(file, RaggedArray.from_lists(part, np.uint16))
    rows = list(chain.from_iterable(parts))
    mapped = RaggedArray.map(file, np.uint16)
    assert len(mapped) == len(rows)
    assert lists(mapped) == rows
    result = list(mapped.lengths)
    assert result == list(map(len, rows))
    # Every second row, from the last on.
    indices = np.arange(len(rows))[::-2]
    result = lists(mapped.take(indices))
    assert result == rows[::-2]


CHINESE = Pair(1, "你好", "hello\u2028")
BLANK = Pair(2, "", "")
ODD = Pair(3, "a\0b", "\ufeff x ")
PAIRS = [CHINESE, BLANK, ODD]


def test_pairs_are_read_back_with_their_line_numbers(tmp_path: Path) -> None:
    write_pairs(tmp_path, PAIRS)
    assert list(Pairs(tmp_path)) == PAIRS
    blank = corpus_files.mapped(tmp_path / "blank", bool)
    assert list(blank) == [False, True, False]


def test_only_kept_pairs_are_left(tmp_path: Path) -> None:
    write_pairs(tmp_path, PAIRS)
    is_kept = np.array([True, False, True])
    corpus_files.keep(tmp_path / "lines", is_kept)
    assert list(Pairs(tmp_path)) == [CHINESE, ODD]
