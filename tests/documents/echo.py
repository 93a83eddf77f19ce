"""A translator that changes the letters of each sentence, and links its words in order."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

from nmt.decode.segments import TextHypothesis, Translation
from nmt.decode.translator import Translator
from nmt.documents.files import translate_path
from nmt.documents.markup import Format, MarkupTranslator

Change = Callable[[str], str]


class Echo:
    joiner = " "

    def __init__(self, change: Change) -> None:
        self.change = change
        self.sentences: list[str] = []  # that were translated

    def translate_lines(self, lines: Iterable[str], **_: Any) -> Iterator[Translation]:
        for line in lines:
            self.sentences.append(line)
            yield Translation(line, [TextHypothesis([], [], 0.0, [], self.change(line))])


def in_order(_: Translator, pairs: Iterable[Any]) -> list[Any]:
    words = [range(min(len(source.spans), len(target.spans))) for source, target in pairs]
    return [([(i, i) for i in of_pair], [{i: 1.0} for i in of_pair]) for of_pair in words]


@mock.patch("nmt.documents.markup.align_for_markup", in_order)
def echoed(text: str, markup: Format, change: Change = str.upper) -> str:
    """A piece of markup, translated."""
    (found,) = MarkupTranslator(cast(Translator, Echo(change)), markup).translate_lines([text])
    return found.text


@mock.patch("nmt.documents.markup.align_for_markup", in_order)
def echo_file(source: Path, output: Path, change: Change = str.upper, **arguments: Any) -> list[str]:
    """Translate a document, and return its sentences."""
    echo = Echo(change)
    translate_path(cast(Translator, echo), source, output, watch=lambda found, _: found, **arguments)
    return echo.sentences
