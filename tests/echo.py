"""A translator that changes the letters of each sentence, and links each word to that of the sentence in its place."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

from nmt.documents.markup import Format
from nmt.text.words import WordText
from nmt.translate.align import MIN_SHARE, Links
from nmt.translate.documents import translate_path
from nmt.translate.segments import Line, TextHypothesis, Translation
from nmt.translate.tags import MarkupTranslator
from nmt.translate.translator import Translator

Change = Callable[[str], str]


class Echo:
    joiner = " "

    def __init__(self, change: Change = str) -> None:
        self.change = change
        self.sentences: list[str] = []  # that were translated

    def translate_lines(self, lines: Iterable[str | Line], **_: Any) -> Iterator[Translation]:
        for line in lines:
            sentence = line if isinstance(line, str) else line.text
            self.sentences.append(sentence)
            yield Translation(sentence, [TextHypothesis([], [], 0.0, [], self.change(sentence))])

    def translate_windows(self, lines: Iterable[str | Line], **_: Any) -> Iterator[list[Translation]]:
        yield list(self.translate_lines(lines))


def in_order(
    _: Translator, pairs: Iterable[tuple[WordText, WordText]]
) -> Iterator[tuple[Links, list[dict[int, float]]]]:
    """Stand in for `align_for_markup`: link each source word to the target word at its offset."""
    for source, target in pairs:
        target_starts = [start for start, _ in target.spans]
        links = []
        sources_of: list[list[int]] = [[] for _ in target_starts]  # the linked source words of each target word
        for s, (start, _end) in enumerate(source.spans):
            if target_starts:
                t = bisect_right(target_starts, start) - 1
                links.append((s, t))
                sources_of[t].append(s)
        yield links, list(map(equal_shares, sources_of))


def equal_shares(words: list[int]) -> dict[int, float]:
    """Divide a target word among its source words; shares that are too small are left out."""
    if not words or 1 / len(words) <= MIN_SHARE:
        return {}
    return dict.fromkeys(words, 1 / len(words))


@mock.patch("nmt.translate.tags.align_for_markup", in_order)
def echoed(text: str, markup: Format, change: Change = str.upper) -> str:
    """A piece of markup, translated."""
    translator = MarkupTranslator(cast(Translator, Echo(change)), markup)
    (translation,) = translator.translate_lines([text])
    return translation.text


@mock.patch("nmt.translate.tags.align_for_markup", in_order)
def echo_file(source: Path, output: Path, change: Change = str.upper, **arguments: Any) -> list[str]:
    """Translate a document, and return its sentences."""
    echo = Echo(change)
    translate_path(cast(Translator, echo), source, output, watch=lambda found, _: found, **arguments)
    return echo.sentences
