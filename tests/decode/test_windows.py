"""Windows of lines: when they end, and how long they are."""

from nmt.decode.segments import Line
from nmt.decode.windows import numbered, read_window
from nmt.text.lines import Pause


def test_pause_ends_a_window_and_is_not_a_line() -> None:
    stream = numbered([Pause(), "a", "b", Pause(), Pause(), "c"], first=4)
    assert read_window(stream, 1000) == [Line(4, "a"), Line(5, "b")]
    assert read_window(stream, 1000) == [Line(6, "c")]
    assert read_window(stream, 1000) == []


def test_window_of_long_lines_is_short() -> None:
    stream = numbered(["x" * 700_000] * 5, first=1)
    assert len(read_window(stream, 1000)) == 2
    assert len(read_window(stream, 1)) == 1
