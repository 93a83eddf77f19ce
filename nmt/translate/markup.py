"""The translation of lines with markup.

A parser of `nmt.documents` finds the units of a text. The translations of the units replace the units in the text.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import NamedTuple

from nmt.documents.markup import Format, Match, NotesPlace, Part, ReviewState, Segment, segments_in
from nmt.text.lines import Pause
from nmt.translate.options import TranslationOptions
from nmt.translate.translator import Translator
from nmt.translate.units import Markup, TextHypothesis, Translation, Unit, grouped
from nmt.translate.windows import read_window, warn_of_cut_lines

WINDOW = 1000  # number of lines that are parsed and translated together


def units_of(parts: Sequence[Part], markup: Format, number: int) -> list[Unit]:
    """Return the units of a parsed text. `number` is the number of the line that contains the text."""
    units = []
    for index, segment in enumerate(segments_in(parts)):
        tags = Markup(segment.root, markup.escape)
        units.append(Unit(number, segment.text, index=index, markup=tags, context=segment.context))
    return units


class Translated(NamedTuple):
    """The translation of a unit, what is doubtful in it, see `find_doubts`, and its match in translation memories."""

    text: str
    doubts: list[str] | None = None
    matches: Sequence[Match] = ()


def written(parts: Sequence[Part], translations: Iterator[Translated]) -> str:
    """Return a parsed text with the translations of its units, which are the next ones of `translations`."""
    n_units = len(segments_in(parts))
    remaining = list(islice(translations, n_units))
    pieces: list[str] = []
    # Of the translations up to the next state.
    doubts: list[str] | None = None
    notes: list[str] = []
    place = 0  # index of the piece that gets the notes
    # From the last part to the first, because states come before their segments.
    for part in reversed(parts):
        if isinstance(part, Segment):
            translation = remaining.pop()
            doubts = doubts or translation.doubts
            # An exact match that is taken needs no note.
            offered = [match for match in translation.matches if match.similarity < 1 or not match.is_taken]
            if part.note:
                notes += map(part.note, offered)
            pieces.append(part.finish(translation.text))
        elif isinstance(part, NotesPlace):
            place = len(pieces)
            pieces.append(part)
        elif isinstance(part, ReviewState):
            if notes:
                pieces[place] = "".join(dict.fromkeys(reversed(notes)))  # plural forms can have equal notes
            pieces.append(part.written(doubts))
            doubts = None
            notes = []
        else:
            pieces.append(part)
    return "".join(reversed(pieces))


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
        stream = iter(lines)
        while (window_lines := read_window(stream, first, window)) is not None:
            first += len(window_lines)
            # 1. Parse each line into units. Each unit has the number of its line, for random seeds and messages.
            documents = []
            groups = []  # the units of each line
            for line in window_lines:
                documents.append(self.markup.parse(line.text))
                groups.append(units_of(documents[-1], self.markup, line.number))
            # 2. Translate the units of all lines together.
            units = list(chain.from_iterable(groups))
            translations = self.translator.start(units, options, batch_size).result() if units else []
            warn_of_cut_lines(translations)
            # 3. Write the translations of the units into each line.
            by_line = grouped(translations, map(len, groups))
            for line, parts, of_units in zip(window_lines, documents, by_line, strict=True):
                text = written(parts, (Translated(unit.text) for unit in of_units))
                hypothesis = TextHypothesis([], [], 0.0, [], text)
                yield Translation(line.text, [hypothesis], line.number, parts=of_units)
