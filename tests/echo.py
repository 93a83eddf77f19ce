"""A translator that changes the letters of each sentence, and links each word to that of the sentence in its place."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import numpy as np

from nmt.documents.markup import Format
from nmt.translate.align import Matrix, WordPair
from nmt.translate.documents import translate_path
from nmt.translate.markup import MarkupTranslator
from nmt.translate.options import TranslationOptions
from nmt.translate.sentences import Sentences
from nmt.translate.tags import Tags
from nmt.translate.translator import Translator
from nmt.translate.units import TextHypothesis, Translation, Unit

Change = Callable[[str], str]


class Echo:
    """Stands in for a `Translator`: tags and sentences are those of the program, its search is `change`."""

    def __init__(self, change: Change = str) -> None:
        self.change = change
        self.sentences: list[str] = []  # that were translated
        self.options = TranslationOptions()
        self.config = SimpleNamespace(decode=SimpleNamespace(batch_size=1))

    def start(self, units: list[Unit], options: TranslationOptions, _: int) -> Any:
        steps = [Tags(cast(Any, None), cast(Any, None)), Sentences(options, lambda text: ("", text))]
        for step in steps:
            units = step.prepare(units)
        self.sentences += [unit.text for unit in units]
        translations = []
        for unit in units:
            hypothesis = TextHypothesis([], [], 0.0, [], self.change(unit.text))
            translations.append(Translation(unit.text, [hypothesis], unit.number))
        for step in reversed(steps):
            translations = step.restore(translations)
        return SimpleNamespace(result=lambda: translations)

    def translate_lines(self, units: Iterable[Unit], **_: Any) -> Iterator[Translation]:
        yield from self.start(list(units), self.options, 1).result()


def in_order(_engine: object, _tokenizers: object, pairs: Iterable[WordPair], *_: object) -> list[Matrix]:
    """Stand in for `align_for_markup`: link each source word to the target word at its offset."""
    all_scores = []
    for source, target in pairs:
        target_starts = [start for start, _ in target.spans]
        scores = np.zeros((len(source.spans), len(target_starts)), np.float32)
        for s, (start, _end) in enumerate(source.spans):
            if target_starts:
                scores[s, bisect_right(target_starts, start) - 1] = 1
        all_scores.append(scores)
    return all_scores


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
    translate_path(cast(Translator, echo), source, output, watch=lambda translations, _: translations, **arguments)
    return echo.sentences
