"""The log-probabilities of given translations, by teacher forcing. Long lines are not split. Imports no torch."""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from nmt.decode.options import SearchOptions
from nmt.decode.segments import TextHypothesis, Translation
from nmt.decode.translator import Translator
from nmt.text import EOS
from nmt.text.lines import is_blank

log = logging.getLogger("nmt")

WINDOW = 1000  # lines scored together: limits memory, and lets lines of similar length share a batch


class Candidates(NamedTuple):
    """A source line and translations to score."""

    number: int  # line number, from 1
    source: str
    targets: Sequence[str]


def score_lines(translator: Translator, lines: Iterable[Candidates], options: SearchOptions) -> Iterator[Translation]:
    """Score a stream of lines, in order.

    Each hypothesis gets the log-probabilities that a search would report, and a score with the length penalty of
    `options`. If a line is too long for the model, both are NaN and a warning names the line.
    """
    stream, (source, target), limit = iter(lines), translator.tokenizers, translator.engine.max_length - 1
    while window := list(islice(stream, WINDOW)):
        encoded: list[tuple[list[int], list[int]]] = []  # source and target tokens of every hypothesis
        for line in window:
            src = [] if is_blank(line.source) else source.encode(line.source)
            encoded += [(src, [] if is_blank(text) else target.encode(text)) for text in line.targets]
        fitting = [pair for pair in encoded if any(pair) and max(map(len, pair)) <= limit]
        scores = iter(translator.engine.score([src for src, _ in fitting], [tgt for _, tgt in fitting]))
        pairs = iter(encoded)
        for line in window:
            hypotheses = []
            for text in line.targets:
                pair = next(pairs)
                tokens = [*pair[1], EOS] if any(pair) else []
                if (longest := max(map(len, pair))) > limit:
                    log.warning("line %d is not scored: %d pieces, the model takes %d", line.number, longest, limit)
                    log_probs = [math.nan] * len(tokens)
                else:
                    log_probs = next(scores) if tokens else []
                score = sum(log_probs) / options.length_divisor(len(tokens)) if tokens else 0.0
                hypotheses.append(TextHypothesis(tokens, log_probs, score, target.pieces(tokens), text))
            yield Translation(line.source, hypotheses)
