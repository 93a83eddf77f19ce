"""Findings as text."""

import pytest

from nmt.corpus.render import line_ranges, percent, shortened


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([3], "line 3"),
        ([3, 4, 5, 9], "lines 3-5, 9"),
        ([*range(1, 20, 2)], "lines 1, 3, 5, 7, 9, 11, ..."),
        ([1, 3, 5, 7, 9, 11, 12, 13], "lines 1, 3, 5, 7, 9, 11-13"),
    ],
)
def test_line_ranges(lines: list[int], text: str) -> None:
    assert line_ranges(lines) == text


def test_shares_and_long_texts() -> None:
    assert [percent(share) for share in (1, 0.123, 0.0123, 0.00012, 1e-6)] == [
        "100 %",
        "12 %",
        "1.2 %",
        "0.012 %",
        "under 0.01 %",
    ]
    assert shortened("a" * 90) == "a" * 90
    assert shortened("a" * 91) == "a" * 89 + "…"
