"""Findings as text."""

from nmt.corpus.render import line_numbers, percent, shortened


def test_line_numbers() -> None:
    assert line_numbers([3]) == "line 3"
    assert line_numbers([*range(1, 9)]) == "lines 1, 2, 3, 4, 5, 6, 7, 8"
    assert line_numbers([*range(1, 10)]) == "lines 1, 2, 3, 4, 5, 6, 7, 8, ..."


def test_shares_and_long_texts() -> None:
    shares = {1: "100 %", 0.123: "12 %", 0.0123: "1.2 %", 0.00012: "0.012 %", 1e-6: "under 0.01 %"}
    assert {share: percent(share) for share in shares} == shares
    assert (shortened("a" * 90), shortened("a" * 91)) == ("a" * 90, "a" * 89 + "…")
