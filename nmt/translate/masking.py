"""Translate lines with symbols in place of their placeholders; see `nmt.text.placeholders`. Imports no torch.

Every span of the source is written once, whatever the model writes. One that is missing is put where word alignments
say; if they say nothing, at the end, with a warning.
"""

import logging
import unicodedata
from collections.abc import Callable, Sequence

from nmt.decode.options import SearchOptions
from nmt.errors import InputError
from nmt.text.lines import is_blank, one_line
from nmt.text.placeholders import FINAL, IN_WORD, NUMBER, SYMBOLS, TOKEN, Masked, inserted
from nmt.text.spans import indices_between
from nmt.text.words import WordText
from nmt.translate.align import Links, align
from nmt.translate.segments import Line, TextHypothesis, Translation
from nmt.translate.translator import Translator, Watch

log = logging.getLogger("nmt")

NO_WORDS = WordText("", [])  # `align` computes nothing for blank texts
# (start, end, touches_left, touches_right): the span replaces text[start:end]; no space on a side that it touches.
Place = tuple[int, int, bool, bool]


def start_masked(
    translator: Translator, lines: Sequence[Line], options: SearchOptions, batch_size: int, watch: Watch | None
) -> Callable[[], list[Translation]]:
    """Start to translate lines whose placeholders and unknown characters are masked; see `Translator.start`."""
    symbols = SYMBOLS if translator.config.data.placeholders else []
    masks = [masked(translator, line.text, symbols) for line in lines]
    masked_lines = [line._replace(text=mask.text) for line, mask in zip(lines, masks, strict=True)]

    def watch_filled(text_of: Callable[[int], str]) -> None:
        assert watch
        watch(lambda i: masks[i].filled(text_of(i)))

    search = translator.start_search(masked_lines, options, batch_size, watch_filled if watch else None)

    def finish() -> list[Translation]:
        translations, found = search(), []
        for line, mask, translation in zip(lines, masks, translations, strict=True):
            translation.source = line.text
            if not is_blank(line.text) and (translator.protected or mask.kept or not mask.text):
                found += [(line, mask, hypothesis) for hypothesis in translation.hypotheses]
        restore(translator, found)
        return translations

    return finish


def masked(translator: Translator, text: str, symbols: Sequence[str]) -> Masked:
    """Mask a line. Unknown characters are first replaced by known ones that mean the same, as Unicode has them."""
    if translator.unknown(text):
        composed = unicodedata.normalize("NFC", text)
        text = translator.tokenizers.source.with_compatible(composed)
    known_number = translator.tokenizers.source.has_word
    return Masked.of(text, translator.protected, symbols, translator.unknown(text), known_number)


def restore(translator: Translator, found: Sequence[tuple[Line, Masked, TextHypothesis]]) -> None:
    """Write every span of each line into its translation, exactly once."""
    settled = [mask.settled(hypothesis.text) for _, mask, hypothesis in found]
    texts = [(mask.text, text, gaps) for (_, mask, _), (text, gaps) in zip(found, settled, strict=True)]
    pairs = [(words_of(source), words_of(text)) if gaps else (NO_WORDS, NO_WORDS) for source, text, gaps in texts]
    try:
        links = list(align(translator, pairs, [line.number for line, _, _ in found]))
    except InputError:  # the model has no attention
        links = [[] for _ in pairs]
    for (line, mask, hypothesis), (text, gaps), pair, of_pair in zip(found, settled, pairs, links, strict=True):
        places = places_of(mask, *pair, of_pair, gaps)
        if unsure := [mask.kept[i].original for i in gaps if i not in places]:
            message = "line %d: the model left out %s, which is put at the end"
            log.warning(message, line.number, " ".join(unsure))
        end = FINAL.search(text).start()  # type: ignore[union-attr]
        for (start, stop, *touches), i in sorted(((places.get(i, (end, end)), i) for i in gaps), reverse=True):
            text = inserted(text[:start] + text[stop:], start, mask.kept[i].mark or mask.kept[i].original, *touches)
        hypothesis.text = mask.filled(text) if mask.text else one_line(line.text)


def words_of(text: str) -> WordText:
    return WordText(text, [match.span() for match in TOKEN.finditer(text)])


def places_of(
    mask: Masked, source: WordText, target: WordText, links: Links, missing: Sequence[int]
) -> dict[int, Place]:
    """Return the place of each missing span in the translation; a span whose place is unknown is left out.

    A number takes the place of words that are linked to nothing else, such as itself in letters. What was taken out at
    an end of the line stays there, and what touches a word, such as a bracket, touches what the word became. Other
    spans go after what the word before them became, or before what the next word became; words that became nothing do
    not count.
    """
    masked_words = {i: indices_between(source.spans, *mask.kept[i].span) for i in missing}
    lost = {s for words in masked_words.values() for s in words}
    places: dict[int, Place] = {}
    for i, words in masked_words.items():
        kept = mask.kept[i]
        own = sorted({t for s, t in links if s in words} - {t for s, t in links if s not in lost})
        before = [t for s, t in links if s < words.start and s not in lost]  # the last is of the nearest word
        after = [t for s, t in links if s >= words.stop and s not in lost]
        touched = [
            IN_WORD.match(character) for character in (kept.before, kept.after)
        ]  # the word on the left, that on the right
        left = touched[0] is not None and any(s == words.start - 1 for s, _ in links)
        right = touched[1] is not None and any(s == words.stop for s, _ in links)
        head, tail = mask.text[: kept.span[0]].strip(), mask.text[kept.span[1] :].strip()
        if NUMBER.fullmatch(kept.mark) and own and own[-1] - own[0] < len(own):
            places[i] = target.spans[own[0]][0], target.spans[own[-1]][1], False, False
            lost.difference_update(words)
        elif not kept.mark and not head:
            places[i] = 0, 0, False, not kept.after.isspace()
        elif not kept.mark and not tail and not IN_WORD.match(head[-1]):
            places[i] = len(target.text), len(target.text), not kept.before.isspace(), False
        elif before and (left or not right):
            places[i] = target.spans[before[-1]][1], target.spans[before[-1]][1], left, False
        elif after:
            places[i] = target.spans[after[0]][0], target.spans[after[0]][0], False, right
    return places
