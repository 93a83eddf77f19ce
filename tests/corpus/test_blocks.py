"""Spans of lines."""

from nmt.corpus.blocks import Span, meet, tiled, windows_of


def test_windows_cover_a_block() -> None:
    assert windows_of((10, 30), 5) == [range(10, 30)]
    found = windows_of((0, 1000), 4)
    assert [window.start for window in found] == [0, 313, 626, 940]
    assert found[-1].stop == 1000


def test_spans_with_the_same_offset_are_joined_and_others_meet() -> None:
    spans = [Span(0, 60, 1), Span(100, 160, 1), Span(200, 260, None)]
    assert meet(spans, 0, 300) == [Span(0, 180, 1), Span(180, 300, None)]


def test_tiles_fill_the_corpus() -> None:
    assert tiled([], 9) == [Span(0, 9, 0)]
    spans = [Span(2, 4, 1), Span(4, 6, None), Span(8, 9, -1)]
    assert tiled(spans, 9) == [Span(0, 2, 0), *spans[:2], Span(6, 8, 0), spans[2]]


def test_a_span_says_where_the_translations_are() -> None:
    assert str(Span(0, 9, 1)) == "lines 1-9: the translation is 1 line below"
    assert str(Span(0, 9, -3)) == "lines 1-9: the translation is 3 lines above"
    assert str(Span(0, 9, None)) == "lines 1-9: no line nearby is the translation"
