"""The translation of lines with markup.

A parser of `nmt.documents` finds the units of a text. The translations of the units replace the units in the text.
"""

from collections.abc import Iterable, Iterator, Sequence

from nmt.documents.markup import Format, Part, Segment
from nmt.text.lines import Pause
from nmt.translate.options import TranslationOptions
from nmt.translate.translator import Translator
from nmt.translate.units import Markup, TextHypothesis, Translation, Unit
from nmt.translate.windows import read_window, warn_of_cut_lines

WINDOW = 1000  # number of lines that are parsed and translated together


def units_of(parts: Sequence[Part], markup: Format, number: int) -> list[Unit]:
    """Return the units of a parsed text. `number` is the number of the line that contains the text."""
    segments = [part for part in parts if isinstance(part, Segment)]
    units = []
    for index, segment in enumerate(segments):
        units.append(Unit(number, segment.text, index=index, markup=Markup(segment.root, markup.escape)))
    return units


def written(parts: Sequence[Part], texts: Iterator[str]) -> str:
    """Return a parsed text with the translations of its units, which are the next ones of `texts`."""
    pieces = [part if isinstance(part, str) else part.finish(next(texts)) for part in parts]
    return "".join(pieces)


class MarkupTranslator:
    """A `Translator` of lines with markup. The translations have one hypothesis each, and no scores."""

    def __init__(self, translator: Translator, markup: Format) -> None:
        self.translator = translator
        self.markup = markup

    def translate_lines(
        self,
        lines: Iterable[str | Pause],
        options: TranslationOptions | None = None,
        *,
        batch_size: int | None = None,
        window: int = WINDOW,
        first: int = 1,
    ) -> Iterator[Translation]:
        """Translate a stream of lines with markup, in order. Each line is parsed by itself.

        The arguments are the same as in `Translator.translate_lines`.
        """
        options = options or self.translator.options
        batch_size = batch_size or self.translator.config.decode.batch_size
        stream = iter(lines)
        while (window_lines := read_window(stream, first, window)) is not None:
            first += len(window_lines)
            # 1. Parse each line into units. Each unit has the number of its line, for random seeds and messages.
            documents = [self.markup.parse(line.text) for line in window_lines]
            units: list[Unit] = []
            for line, parts in zip(window_lines, documents, strict=True):
                units += units_of(parts, self.markup, line.number)
            # 2. Translate the units of all lines together.
            translations = self.translator.start(units, options, batch_size).result() if units else []
            warn_of_cut_lines(translations)
            # 3. Write the translations of the units into each line.
            texts = (translation.text for translation in translations)
            for line, parts in zip(window_lines, documents, strict=True):
                text = written(parts, texts)
                yield Translation(line.text, [TextHypothesis([], [], 0.0, [], text)], line.number)
