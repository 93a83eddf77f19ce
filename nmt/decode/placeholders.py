"""Translate lines with symbols in place of their placeholders; see `nmt.text.placeholders`. Imports no torch.

Every span of the source is written once, whatever the model writes. One that is missing is put where word alignments
say; if they say nothing, at the end, with a warning.
"""

import logging
from collections.abc import Callable, Sequence

from nmt.decode.align import WordText, links, word_attention
from nmt.decode.options import SearchOptions
from nmt.decode.segments import Line, Translation
from nmt.decode.translator import Translator, Watch
from nmt.errors import InputError
from nmt.text.lines import is_blank, one_line
from nmt.text.placeholders import FINAL, TOKEN, Masked, inserted

log = logging.getLogger("nmt")


def start_masked(
    translator: Translator, lines: Sequence[Line], options: SearchOptions, batch_size: int, watch: Watch | None
) -> Callable[[], list[Translation]]:
    """See `Translator.start`."""
    masks = [Masked.of(line.text, translator.protected) for line in lines]
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
    """The translation of a masked line with every span of the line, once."""
    if not mask.text:
        return one_line(line.text)
    text, missing = mask.settled(translation, translator.protected)
    if missing:
        places = places_of(translator, line, mask, text, missing)
        if unsure := [mask.originals[i] for i in missing if i not in places]:
            message = "line %d: the model left out %s, which is put at the end"
            log.warning(message, line.number, " ".join(unsure))
        end = FINAL.search(text).start()  # type: ignore[union-attr]
        for at, i in sorted(((places.get(i, end), i) for i in missing), reverse=True):
            text = inserted(text, at, mask.marks[i])
    return mask.filled(text)


def places_of(
    translator: Translator, line: Line, mask: Masked, translation: str, missing: Sequence[int]
) -> dict[int, int]:
    """Where missing spans go: after the words that the word before became, or before those of the next, if known."""
    source, target = (
        WordText(text, [match.span() for match in TOKEN.finditer(text)]) for text in (mask.text, translation)
    )
    try:
        (matrix,) = word_attention(translator, [(source, target)], line.number)
    except InputError:  # the model has no attention
        matrix = None
    found = [] if matrix is None else links(matrix)
    lost = [mask.spans[i] for i in missing]
    known = [n for n, (start, end) in enumerate(source.spans) if not any(a <= start and end <= b for a, b in lost)]
    places = {}
    for i in missing:
        start, end = mask.spans[i]
        before = max((n for n in known if source.spans[n][1] <= start), default=-1)
        after = min((n for n in known if source.spans[n][0] >= end), default=-1)
        ends = [target.spans[t][1] for s, t in found if s == before]
        starts = [target.spans[t][0] for s, t in found if s == after]
        if ends or starts:
            places[i] = max(ends) if ends else min(starts)
    return places
