"""Step: placeholders and characters that the model cannot read are replaced by symbols; see `nmt.text.placeholders`.

Every span of the source is written once, whatever the model writes. One that is missing is put where word alignments
say; if they say nothing, at the end, with a warning.
"""

import logging
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from nmt.decode.options import Engine
from nmt.errors import InputError
from nmt.text.lines import is_blank, one_line
from nmt.text.placeholders import FINAL, IN_WORD, NUMBER, TOKEN, Masked, Patterns, inserted
from nmt.text.spans import indices_between
from nmt.text.tokenizer import Tokenizers
from nmt.text.words import WordText
from nmt.translate.align import Links, align
from nmt.translate.units import Step, TextHypothesis, Translation, Unit

log = logging.getLogger("nmt")

NO_WORDS = WordText("", [])  # `align` computes nothing for blank texts


class Place(NamedTuple):
    """Where a missing span goes: it replaces text[start:end]."""

    start: int
    end: int
    touches_left: bool = False  # no space on the left
    touches_right: bool = False


@dataclass
class Settled:
    """A hypothesis of a masked sentence, without surplus symbols."""

    number: int  # of the line
    mask: Masked
    hypothesis: TextHypothesis
    text: str
    missing: list[int]  # indices of the spans that the hypothesis lacks
    source_words: WordText = NO_WORDS
    target_words: WordText = NO_WORDS


class Placeholders(Step):
    """Masks the placeholders of each sentence, and writes them into its translation."""

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
            engine, tokenizers: align words.
            patterns: what to keep.
            symbols: pieces that stand for kept spans; empty for a model that has not learned them.
            unknown: returns the characters of a text that the model cannot read.
        """
        self.engine = engine
        self.tokenizers = tokenizers
        self.patterns = patterns
        self.symbols = symbols
        self.unknown = unknown
        self.units: list[Unit] = []
        self.masks: list[Masked | None] = []  # None: nothing to mask

    def prepare(self, units: list[Unit]) -> list[Unit]:
        self.units = units
        prepared = []
        for unit in units:
            mask = self.masked(unit.text)
            self.masks.append(mask)
            prepared.append(replace(unit, text=mask.text) if mask else unit)
        return prepared

    def masked(self, text: str) -> Masked | None:
        """Mask a text. Unknown characters are first replaced by known ones that mean the same, as Unicode has them."""
        unknown = self.unknown(text)
        if is_blank(text) or not (unknown or self.patterns):
            return None
        source = self.tokenizers.source
        if unknown:
            text = source.with_compatible(unicodedata.normalize("NFC", text))
        return Masked.of(text, self.patterns, self.symbols, self.unknown(text), source.has_word)

    def restore(self, translations: list[Translation]) -> list[Translation]:
        # 1. Take out surplus symbols, and find out which spans are missing.
        all_settled: list[Settled] = []
        for translation, unit, mask in zip(translations, self.units, self.masks, strict=True):
            translation.source = unit.text
            if mask is None:
                continue
            for hypothesis in translation.hypotheses:
                if mask.text:
                    text, missing = mask.settled(hypothesis.text)
                    all_settled.append(Settled(unit.number, mask, hypothesis, text, missing))
                else:  # there are no words to translate
                    hypothesis.text = one_line(unit.text)
        # 2. Write the spans in place of symbols, and the missing ones where the words are aligned.
        all_links = self.links(all_settled)
        for settled, links in zip(all_settled, all_links, strict=True):
            settled.hypothesis.text = settled.mask.filled(with_missing(settled, links))
        return translations

    def links(self, all_settled: Sequence[Settled]) -> list[Links]:
        """Align the words of the hypotheses that lack a span; the others have no links."""
        # Words of those that lack nothing stay empty, and are not aligned.
        for settled in all_settled:
            if settled.missing:
                settled.source_words = alignable(settled.mask.text)
                settled.target_words = alignable(settled.text)
        pairs = [(settled.source_words, settled.target_words) for settled in all_settled]
        numbers = [settled.number for settled in all_settled]
        try:
            return list(align(self.engine, self.tokenizers, pairs, numbers))
        except InputError:  # the model has no attention
            return [[] for _ in all_settled]

    def preview(self, texts: list[str]) -> list[str]:
        return [mask.filled(text) if mask else text for text, mask in zip(texts, self.masks, strict=True)]


def alignable(text: str) -> WordText:
    """Return the words of a masked text."""
    return WordText(text, [match.span() for match in TOKEN.finditer(text)])


def with_missing(settled: Settled, links: Links) -> str:
    """Return the text of a hypothesis with the spans that it lacks."""
    mask, text = settled.mask, settled.text
    if not settled.missing:
        return text
    # 1. Find a place for each; those without one go to the end, before the final punctuation.
    places = places_of(settled, links)
    lost = [mask.kept[i].original for i in settled.missing if i not in places]
    if lost:
        log.warning("line %d: the model left out %s, which is put at the end", settled.number, " ".join(lost))
    end = FINAL.search(text).start()  # type: ignore[union-attr]
    at_end = Place(end, end)
    in_order = sorted((places.get(i, at_end), i) for i in settled.missing)
    # 2. Insert them from the end, so that the places before stay right.
    for place, i in reversed(in_order):
        shortened = text[: place.start] + text[place.end :]
        # A symbol now, the span itself when all symbols are replaced.
        span = mask.kept[i].mark or mask.kept[i].original
        text = inserted(shortened, place.start, span, place.touches_left, place.touches_right)
    return text


def places_of(settled: Settled, links: Links) -> dict[int, Place]:
    """Return the place of each missing span in the translation; a span whose place is unknown is left out.

    A number takes the place of words that are linked to nothing else, such as itself in letters. What was taken out at
    an end of the line stays there, and what touches a word, such as a bracket, touches what the word became. Other
    spans go after what the word before them became, or before what the next word became; words that became nothing do
    not count.
    """
    mask = settled.mask
    source, target = settled.source_words.spans, settled.target_words.spans
    # The words of each missing span in the masked source: its symbol or number, if it has one.
    masked_words = {i: indices_between(source, *mask.kept[i].span) for i in settled.missing}
    lost = set(chain.from_iterable(masked_words.values()))
    places: dict[int, Place] = {}
    sources = {s for s, _ in links}
    for i, words in masked_words.items():
        # 1. A number in the place of its translation.
        kept = mask.kept[i]
        if NUMBER.fullmatch(kept.mark):
            linked_elsewhere = {t for s, t in links if s not in lost}
            linked = {t for s, t in links if s in words}
            became = sorted(linked - linked_elsewhere)
            # Only words side by side are replaced.
            if became and became[-1] - became[0] < len(became):
                places[i] = Place(target[became[0]][0], target[became[-1]][1])
                lost.difference_update(words)
                continue
        # 2. What was taken out at an end of the line.
        start, end = kept.span
        head, tail = mask.text[:start].strip(), mask.text[end:].strip()
        if not kept.mark and not head:
            places[i] = Place(0, 0, touches_right=not kept.after.isspace())
            continue
        if not kept.mark and not tail and not IN_WORD.match(head[-1]):
            length = len(settled.text)
            places[i] = Place(length, length, touches_left=not kept.before.isspace())
            continue
        # 3. Beside what its neighbors became.
        touches_left = bool(IN_WORD.match(kept.before)) and words.start - 1 in sources
        touches_right = bool(IN_WORD.match(kept.after)) and words.stop in sources
        before = [t for s, t in links if s < words.start and s not in lost]
        after = [t for s, t in links if s >= words.stop and s not in lost]
        # After what the word before became, unless the span touches only the next word.
        if before and (touches_left or not touches_right):
            at = target[before[-1]][1]
            places[i] = Place(at, at, touches_left=touches_left)
        elif after:
            at = target[after[0]][0]
            places[i] = Place(at, at, touches_right=touches_right)
    return places
