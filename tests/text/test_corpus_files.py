"""The files of training pairs: what is written is read back."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from nmt.text import corpus_files
from nmt.text.corpus_files import Pairs, RaggedArray, append_rows, write_pairs
from nmt.text.lines import Pair

ROWS = st.lists(st.lists(st.integers(0, 60_000), max_size=4), min_size=1, max_size=8)


@hypothesis_settings(max_examples=50)
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_appended_rows_are_read_back(tmp_path_factory: pytest.TempPathFactory, parts: list[list[list[int]]]) -> None:
    file = tmp_path_factory.mktemp("rows") / "ids"
    for part in parts:
        append_rows(file, RaggedArray.from_lists(part, np.uint16))
    rows = [row for part in parts for row in part]
    found = RaggedArray.map(file, np.uint16)
    assert [found[i] for i in range(len(rows))] == rows
    assert len(found) == len(rows)
    assert found.lengths.tolist() == [*map(len, rows)]
    chosen = np.arange(len(rows))[::-2]
    assert [found.take(chosen)[i] for i in range(len(chosen))] == rows[::-2]


def test_pairs_are_read_back_with_their_line_numbers(tmp_path: Path) -> None:
    pairs = [Pair(1, "你好", "hello\u2028"), Pair(2, "", ""), Pair(3, "a\0b", "\ufeff x ")]
    write_pairs(tmp_path, pairs)
    assert list(Pairs(tmp_path)) == pairs
    corpus_files.keep([tmp_path / "lines"], np.array([True, False, True]))
    assert list(Pairs(tmp_path)) == [pairs[0], pairs[2]]
    assert corpus_files.mapped(tmp_path / "blank", bool).tolist() == [False, True, False]
