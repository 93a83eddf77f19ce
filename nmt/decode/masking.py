"""Translate lines with symbols in place of their placeholders; see `nmt.text.placeholders`. Imports no torch.

Every span of the source is written once, whatever the model writes. One that is missing is put where word alignments
say; if they say nothing, at the end, with a warning.
"""

import logging
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

from nmt.decode.align import Links, align
from nmt.decode.options import SearchOptions
from nmt.decode.segments import Line, Translation
from nmt.decode.translator import Translator, Watch
from nmt.errors import InputError
from nmt.text.lines import is_blank, one_line
from nmt.text.placeholders import FINAL, IN_WORD, NUMBER, SYMBOLS, TOKEN, Masked, inserted
from nmt.text.words import WordText, indices_between

log = logging.getLogger("nmt")

NO_WORDS = WordText("", [])


class Place(NamedTuple):
    """What a span of the source replaces in the translation, and whether it touches the words around it."""

    start: int
    stop: int
    touches_left: bool = False
    touches_right: bool = False


def start_masked(
    translator: Translator, lines: Sequence[Line], options: SearchOptions, batch_size: int, watch: Watch | None
) -> Callable[[], list[Translation]]:
    """Start to translate lines whose placeholders and unknown characters are masked; see `Translator.start`."""
    masks = [masked(translator, line.text) for line in lines]
    masked_lines = [line._replace(text=mask.text) for line, mask in zip(lines, masks, strict=True)]

    def watch_filled(text_of: Callable[[int], str]) -> None:
        assert watch
        watch(lambda i: masks[i].filled(text_of(i)))

    search = translator.start_search(masked_lines, options, batch_size, watch_filled if watch else None)

    def finish() -> list[Translation]:
        translations = search()
        found = []
        for line, mask, translation in zip(lines, masks, translations, strict=True):
            translation.source = line.text
            if not is_blank(line.text) and (translator.protected or mask.marks or not mask.text):
                found += [(line, mask, hypothesis) for hypothesis in translation.hypotheses]
        texts = restored(translator, [(line, mask, hypothesis.text) for line, mask, hypothesis in found])
        for (_, _, hypothesis), text in zip(found, texts, strict=True):
            hypothesis.text = text
        return translations

    return finish


def masked(translator: Translator, text: str) -> Masked:
    """Mask a line; composed characters may be known where their parts are not."""
    symbols = SYMBOLS if translator.config.data.placeholders else []
    text = unicodedata.normalize("NFC", text) if translator.unknown(text) else text
    return Masked.of(text, translator.protected, symbols, translator.unknown(text))


def restored(translator: Translator, found: Sequence[tuple[Line, Masked, str]]) -> list[str]:
    """Return the translations of masked lines, with every span of a line exactly once."""
    settled = [mask.settled(text, translator.protected) for _, mask, text in found]
    pairs = [
        (words_of(mask.text), words_of(text)) if missing else (NO_WORDS, NO_WORDS)
        for (_, mask, _), (text, missing) in zip(found, settled, strict=True)
    ]
    try:
        links = list(align(translator, pairs, [line.number for line, _, _ in found]))
    except InputError:  # the model has no attention
        links = [[] for _ in pairs]
    texts = []
    for (line, mask, _), (text, missing), pair, of_pair in zip(found, settled, pairs, links, strict=True):
        places = places_of(mask, *pair, of_pair, missing)
        if unsure := [mask.originals[i] for i in missing if i not in places]:
            message = "line %d: the model left out %s, which is put at the end"
            log.warning(message, line.number, " ".join(unsure))
        end = FINAL.search(text).start()  # type: ignore[union-attr]
        for (start, stop, *touches), i in sorted(((places.get(i, Place(end, end)), i) for i in missing), reverse=True):
            text = inserted(text[:start] + text[stop:], start, mask.marks[i] or mask.originals[i], *touches)
        texts.append(mask.filled(text) if mask.text else one_line(line.text))
    return texts


def words_of(text: str) -> WordText:
    return WordText(text, [match.span() for match in TOKEN.finditer(text)])


def places_of(
    mask: Masked, source: WordText, target: WordText, found: Links, missing: Sequence[int]
) -> dict[int, Place]:
    """Return the place of each missing span in the translation; a span whose place is unknown is left out.

    A number takes the place of words that are linked to nothing else, such as itself in letters. What the model has not
    seen at an end of the line stays there, and what touches a word goes to what it became, such as a bracket. Other
    spans go after what the word before them became, or before what the next word became; words that became nothing do
    not count.
    """
    masked_words = {i: indices_between(source.spans, *mask.spans[i]) for i in missing}
    lost = {s for words in masked_words.values() for s in words}
    places: dict[int, Place] = {}
    for i, words in masked_words.items():
        own = sorted({t for s, t in found if s in words} - {t for s, t in found if s not in lost})
        before = [(s, t) for s, t in found if s < words.start and s not in lost]  # the last is of the nearest word
        after = [(s, t) for s, t in found if s >= words.stop and s not in lost]
        touches = [IN_WORD.match(character) for character in mask.around[i]]  # a word on the left, and on the right
        left = [t for s, t in before if touches[0] and s == words.start - 1]
        right = [t for s, t in after if touches[1] and s == words.stop]
        head, tail = mask.text[: mask.spans[i][0]].strip(), mask.text[mask.spans[i][1] :].strip()
        if NUMBER.fullmatch(mask.marks[i]) and own and own[-1] - own[0] < len(own):
            places[i] = Place(target.spans[own[0]][0], target.spans[own[-1]][1])
            lost.difference_update(words)
        elif not mask.marks[i] and not head:
            places[i] = Place(0, 0, touches_right=mask.around[i][1].strip() != "")
        elif not mask.marks[i] and not tail and not IN_WORD.match(head[-1]):
            places[i] = Place(len(target.text), len(target.text), touches_left=mask.around[i][0].strip() != "")
        elif before and not (right and not left):
            at = target.spans[before[-1][1]][1]
            is_between = target.text.startswith(" ", at) and any(target.spans[t][0] == at + 1 for t in right)
            places[i] = Place(at, at + is_between, bool(left), is_between)
        elif after:
            at = target.spans[after[0][1]][0]
            places[i] = Place(at, at, touches_right=bool(right))
    return places
