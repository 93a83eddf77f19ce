"""Translate lines with symbols in place of their placeholders; see `nmt.text.placeholders`. Imports no torch.

Every span of the source is written once, whatever the model writes. One that is missing is put where word alignments
say; if they say nothing, at the end, with a warning.
"""

import logging
from collections.abc import Callable, Sequence

from nmt.decode.align import align_window
from nmt.decode.options import SearchOptions
from nmt.decode.segments import Line, Translation
from nmt.decode.translator import Translator, Watch
from nmt.errors import InputError
from nmt.text.lines import Span, is_blank, one_line
from nmt.text.placeholders import FINAL, NUMBER, SYMBOLS, TOKEN, Masked, inserted
from nmt.text.words import WordText, indices_between

log = logging.getLogger("nmt")


def start_masked(
    translator: Translator, lines: Sequence[Line], options: SearchOptions, batch_size: int, watch: Watch | None
) -> Callable[[], list[Translation]]:
    """Start to translate lines whose placeholders are masked; see `Translator.start`."""
    symbols = SYMBOLS if translator.config.data.placeholders else []
    masks = [Masked.of(line.text, translator.protected, symbols) for line in lines]
    masked_lines = [line._replace(text=mask.text) for line, mask in zip(lines, masks, strict=True)]

    def watch_filled(text_of: Callable[[int], str]) -> None:
        assert watch
        watch(lambda i: masks[i].filled(text_of(i)))

    search = translator.start_search(masked_lines, options, batch_size, watch_filled if watch else None)

    def finish() -> list[Translation]:
        translations = search()
        for line, mask, translation in zip(lines, masks, translations, strict=True):
            translation.source = line.text
            for hypothesis in [] if is_blank(line.text) else translation.hypotheses:
                hypothesis.text = restored(translator, line, mask, hypothesis.text)
        return translations

    return finish


def restored(translator: Translator, line: Line, mask: Masked, translation: str) -> str:
    """Return the translation of a masked line, with every span of the line exactly once."""
    if not mask.text:
        return one_line(line.text)
    text, missing = mask.settled(translation, translator.protected)
    if missing:
        places = places_of(translator, line, mask, text, missing)
        if unsure := [mask.originals[i] for i in missing if i not in places]:
            message = "line %d: the model left out %s, which is put at the end"
            log.warning(message, line.number, " ".join(unsure))
        end = FINAL.search(text).start()  # type: ignore[union-attr]
        for (start, stop), i in sorted(((places.get(i, (end, end)), i) for i in missing), reverse=True):
            text = inserted(text[:start] + text[stop:], start, mask.marks[i] or mask.originals[i])
    return mask.filled(text)


def places_of(
    translator: Translator, line: Line, mask: Masked, translation: str, missing: Sequence[int]
) -> dict[int, Span]:
    """Return the place of each missing span in the translation; a span whose place is unknown is left out.

    A number takes the place of words that are linked to nothing else, such as itself in letters. Other spans go after
    what the word before them became, or before what the next word became; words that became nothing do not count.
    """
    source, target = (
        WordText(text, [match.span() for match in TOKEN.finditer(text)]) for text in (mask.text, translation)
    )
    try:
        (found,) = align_window(translator, [(source, target)], line.number)
    except InputError:  # the model has no attention
        found = []
    words_of = {i: indices_between(source.spans, *mask.spans[i]) for i in missing}
    lost = {s for words in words_of.values() for s in words}
    places: dict[int, Span] = {}
    for i, words in words_of.items():
        own = sorted({t for s, t in found if s in words} - {t for s, t in found if s not in lost})
        before = [t for s, t in found if s < words.start and s not in lost]  # the last is of the nearest word
        after = [t for s, t in found if s >= words.stop and s not in lost]
        if NUMBER.fullmatch(mask.marks[i]) and own and own[-1] - own[0] < len(own):
            places[i] = (target.spans[own[0]][0], target.spans[own[-1]][1])
            lost.difference_update(words)
        elif before or after:
            at = target.spans[before[-1]][1] if before else target.spans[after[0]][0]
            places[i] = (at, at)
    return places
