"""A translator that changes the letters of each sentence, and links each word to that of the sentence in its place."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

from nmt.documents.markup import STAND_IN, Format
from nmt.translate.documents import translate_path
from nmt.translate.markup import MarkupTranslator
from nmt.translate.options import TranslationOptions
from nmt.translate.placement import TaggedPair
from nmt.translate.sentences import Sentences
from nmt.translate.tags import Tags, within
from nmt.translate.translator import Translator
from nmt.translate.units import TextHypothesis, Translation, Unit

LANGUAGES = SimpleNamespace(source_lang="en", target_lang="fr")
Change = Callable[[str], str]


class Echo:
    """Stands in for a `Translator`: tags and sentences are those of the program, its search is `change`."""

    def __init__(self, change: Change = str) -> None:
        self.change = change
        self.sentences: list[str] = []  # that were translated, with {} for opaque elements
        self.options = TranslationOptions()
        self.config = SimpleNamespace(data=LANGUAGES, decode=SimpleNamespace(batch_size=1))

    def start(self, units: list[Unit], options: TranslationOptions, _: int) -> Any:
        steps = [Tags(cast(Any, None), cast(Any, None)), Sentences(options, lambda text: ("", text))]
        for step in steps:
            units = step.prepare(units)
        self.sentences += [STAND_IN.sub("{}", unit.text) for unit in units]
        translations = []
        for unit in units:
            hypothesis = TextHypothesis([], [], 0.0, [], self.change(unit.text))
            translations.append(Translation(unit.text, [hypothesis], unit.number))
        for step in reversed(steps):
            translations = step.restore(translations)
        return SimpleNamespace(result=lambda: translations)

    def translate_lines(self, units: Iterable[Unit], **_: Any) -> Iterator[Translation]:
        yield from self.start(list(units), self.options, 1).result()


def in_order(_engine: object, _tokenizers: object, pairs: Iterable[TaggedPair]) -> None:
    """Stand in for `align_words`: link each source word to the target word at its offset in the sentence."""
    for pair in pairs:
        for source_span, target_span in pair.sentences:
            source = within(pair.source, pair.source_words, source_span)
            target = within(pair.target, pair.target_words, target_span)
            target_starts = [start for start, _ in target.words.spans]
            for s, (start, _end) in zip(source.indices, source.words.spans, strict=True):
                if target_starts:
                    t = target.indices[bisect_right(target_starts, start) - 1]
                    pair.links.append((s, t))
                    pair.shares[t][s] = 1.0
        for shares in pair.shares:
            shares.update(dict.fromkeys(shares, 1 / max(len(shares), 1)))


@mock.patch("nmt.translate.tags.align_words", in_order)
def echoed(text: str, markup: Format, change: Change = str.upper) -> str:
    """A piece of markup, translated."""
    translator = MarkupTranslator(cast(Translator, Echo(change)), markup)
    (translation,) = translator.translate_lines([text])
    return translation.text


@mock.patch("nmt.translate.tags.align_words", in_order)
def echo_file(source: Path, output: Path, change: Change = str.upper, **arguments: Any) -> list[str]:
    """Translate a document, and return its sentences."""
    echo = Echo(change)
    translate_path(cast(Translator, echo), source, output, watch=lambda translations, _: translations, **arguments)
    return echo.sentences
