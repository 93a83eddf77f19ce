"""The step that replaces placeholders by symbols, and also words with characters that the model cannot read.

Every replaced span is written into the translation exactly once. If the model has left out its symbol, word alignments
show where the span belongs. If they do not, the span is put at the end, with a warning.
"""

import logging
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

import regex

from nmt.decode.options import Engine
from nmt.errors import InputError
from nmt.text.directives import numbered, settled
from nmt.text.lines import is_blank, one_line
from nmt.text.placeholders import IN_WORD, NUMBER, SPAN, TOKEN, UNSPACED, Masked, Patterns, end_of_words, inserted
from nmt.text.spans import indices_between
from nmt.text.tokenizer import Tokenizers
from nmt.text.words import WordText
from nmt.translate.align import Links, align
from nmt.translate.units import Step, TextHypothesis, Translation, Unit

log = logging.getLogger("nmt.texts")  # messages that quote users' texts; `nmt serve` disables this logger
PUNCTUATION = regex.compile(r"\p{P}+")


class Place(NamedTuple):
    """The place of a missing span in the translation. The span replaces `text[start:end]`."""

    start: int
    end: int
    touches_left: bool = False  # whether the span follows the text on its left without a space
    touches_right: bool = False  # whether the text on the right follows the span without a space


class Incomplete(NamedTuple):
    """A hypothesis of a masked sentence that lacks spans."""

    number: int  # number of the line
    mask: Masked
    hypothesis: TextHypothesis
    missing: list[int]  # indices of the spans that the hypothesis lacks


class Placeholders(Step):
    """The step that masks the placeholders of each sentence, and writes them into the translation of the sentence."""

    def __init__(
        self,
        engine: Engine,
        tokenizers: Tokenizers,
        patterns: Patterns,
        symbols: Sequence[str],
        unknown: Callable[[str], set[str]],
    ) -> None:
        """Set up the step.

        Args:
            engine, tokenizers: the engine and tokenizers with which words are aligned.
            patterns: regular expressions of the spans that the translation must keep.
            symbols: the symbols that replace kept spans. A model that has not learned symbols has none.
            unknown: a function that returns the characters of a text that the model cannot read.
        """
        self.engine = engine
        self.tokenizers = tokenizers
        self.patterns = patterns
        self.symbols = symbols
        self.unknown = unknown
        self.units: list[Unit] = []
        self.masks: list[Masked | None] = []  # one for each unit; None if the unit has nothing to mask

    def prepare(self, units: list[Unit]) -> list[Unit]:
        self.units = units
        prepared = []
        for unit in units:
            mask = self.masked(unit.text)
            self.masks.append(mask)
            prepared.append(replace(unit, text=mask.text) if mask else unit)
        return prepared

    def masked(self, text: str) -> Masked | None:
        """Mask a text, or return None if there is nothing to mask.

        First, unknown characters are replaced by known equivalents in Unicode (NFC, NFKC), and directives such as
        `%s` are numbered.
        """
        unknown = self.unknown(text)
        if is_blank(text) or not (unknown or self.patterns):
            return None
        source = self.tokenizers.source
        if unknown:
            text = source.characters.with_compatible(unicodedata.normalize("NFC", text))
        tag, rest = source.split_tag(text)
        if SPAN in self.patterns:
            text = tag + numbered(rest)
        return Masked.of(text, self.patterns, self.symbols, self.unknown(text), source.has_word, tag)

    def restore(self, translations: list[Translation]) -> list[Translation]:
        # 1. Remove surplus symbols, and find the hypotheses that lack spans.
        incomplete: list[Incomplete] = []
        for translation, unit, mask in zip(translations, self.units, self.masks, strict=True):
            translation.source = unit.text
            if mask is None:
                continue
            for hypothesis in translation.hypotheses:
                if not mask.text:  # the sentence has no words to translate
                    hypothesis.text = one_line(unit.text)
                    continue
                text, missing = mask.settled(hypothesis.text)
                hypothesis.text = text if missing else mask.filled(text)
                if missing:
                    incomplete.append(Incomplete(unit.number, mask, hypothesis, missing))
        # 2. Insert the missing spans by word alignments, then replace the symbols by their spans.
        for item, links in zip(incomplete, self.links(incomplete), strict=True):
            item.hypothesis.text = item.mask.filled(with_missing(item, links))
        # 3. Write the directives in the order in which they take their arguments.
        if SPAN in self.patterns:
            for translation, unit in zip(translations, self.units, strict=True):
                settle(translation, unit)
        return translations

    def links(self, incomplete: Sequence[Incomplete]) -> list[Links]:
        """Return the word alignment of each hypothesis."""
        pairs = [(alignable(item.mask.text), alignable(item.hypothesis.text)) for item in incomplete]
        numbers = [item.number for item in incomplete]
        try:
            return list(align(self.engine, self.tokenizers, pairs, numbers))
        except InputError:  # the model has no attention
            return [[] for _ in incomplete]

    def preview(self, texts: list[str]) -> list[str]:
        return [mask.filled(text) if mask else text for text, mask in zip(texts, self.masks, strict=True)]


def settle(translation: Translation, unit: Unit) -> None:
    """Remove the numbers of directives, and warn if the model has changed their order."""
    for hypothesis in translation.hypotheses:
        hypothesis.text, is_moved = settled(unit.text, hypothesis.text)
        if is_moved:
            log.warning("line %d: the directives changed places, which is undone; check the translation", unit.number)


def alignable(text: str) -> WordText:
    """Return the words of a masked text."""
    return WordText(text, [match.span() for match in TOKEN.finditer(text)])


def with_missing(item: Incomplete, links: Links) -> str:
    """Insert the spans that the model left out into the text of a hypothesis, and return the text."""
    kept, text = item.mask.kept, item.hypothesis.text
    # 1. Find a place for each missing span. A span without a place goes to the end, before the final punctuation.
    places = places_of(item, links)
    lost = [kept[i].original for i in item.missing if i not in places]
    if lost:
        log.warning("line %d: the model left out %s, which is put at the end", item.number, " ".join(lost))
    end = end_of_words(text)
    in_order = sorted((places.get(i, Place(end, end)), i) for i in item.missing)
    # 2. Insert the last span first, because an insertion changes all positions after it.
    for place, i in reversed(in_order):
        shortened = text[: place.start] + text[place.end :]
        # If the span has a symbol, insert the symbol. All symbols are replaced by their spans later.
        span = kept[i].mark or kept[i].original
        text = inserted(shortened, place.start, span, place.touches_left, place.touches_right)
    return text


def places_of(item: Incomplete, links: Links) -> dict[int, Place]:
    """Return the place of each missing span in the translation. A span whose place is unknown is left out.

    1. A number replaces the target words that are linked only to the number, such as its spelling in letters.
    2. A span removed at the start of the line goes to the start of the translation, and the same at the end.
    3. Any other span goes after the translation of the nearest linked word before it. If there is no such word, or if
       the span touches only the next word, it goes before the translation of the nearest linked word after it.
    """
    mask, text = item.mask, item.hypothesis.text
    source, target = alignable(mask.text).spans, alignable(text).spans
    # For each missing span, find its symbol or number in the masked source. Some spans have none.
    masked_words = {i: indices_between(source, *mask.kept[i].span) for i in item.missing}
    lost = set(chain.from_iterable(masked_words.values()))
    places: dict[int, Place] = {}
    sources = {s for s, _ in links}
    for i, words in masked_words.items():
        # 1. Put a number in the place of the words that translate the number.
        kept = mask.kept[i]
        if NUMBER.fullmatch(kept.mark):
            linked_elsewhere = {t for s, t in links if s not in lost}
            linked = {t for s, t in links if s in words}
            became = sorted(linked - linked_elsewhere)
            # These words are replaced only if they are adjacent.
            if became and became[-1] - became[0] < len(became):
                places[i] = Place(target[became[0]][0], target[became[-1]][1])
                lost.difference_update(words)
                continue
        # 2. A span removed at the start of the line goes to the start of the translation, and the same at the end.
        start, end = kept.span
        head, tail = mask.text[:start].strip(), mask.text[end:].strip()
        if not kept.mark and not head:
            places[i] = Place(0, 0, touches_right=touches(kept.original, kept.after, text[:1]))
            continue
        if not kept.mark and not tail and not IN_WORD.match(head[-1]):
            places[i] = Place(len(text), len(text), touches_left=touches(kept.original, kept.before, text[-1:]))
            continue
        # 3. Put the span beside the translation of a neighboring word.
        touches_left = bool(IN_WORD.match(kept.before)) and words.start - 1 in sources
        touches_right = bool(IN_WORD.match(kept.after)) and words.stop in sources
        before = [t for s, t in links if s < words.start and s not in lost]
        after = [t for s, t in links if s >= words.stop and s not in lost]
        # Prefer the translation of the word before. But a span that touches only the next word stays with it.
        if before and (touches_left or not touches_right):
            at = target[before[-1]][1]
            # Signs between the word and the span, such as a colon, stay between them.
            signs = mask.text[source[words.start - 1][1] : start].rstrip()
            if signs and text.startswith(signs, at):
                at += len(signs)
                touches_left = not kept.before.isspace()
            places[i] = Place(at, at, touches_left=touches_left)
        elif after:
            at = target[after[0]][0]
            places[i] = Place(at, at, touches_right=touches_right)
    return places


def touches(span: str, neighbor: str, edge: str) -> bool:
    """Return whether a span at an end of a sentence touches the translation.

    `neighbor` is the character beside the span in the source, and `edge` the character of the translation. A span
    touches a word only if it touches a word in the source. Chinese has no spaces, so it does not tell.
    """
    if neighbor.isspace():
        return False
    is_mark = PUNCTUATION.fullmatch(span) is not None  # quotation marks and brackets touch any word
    is_alike = bool(IN_WORD.match(neighbor)) == bool(IN_WORD.match(edge)) and not UNSPACED.match(neighbor)
    return is_mark or is_alike
