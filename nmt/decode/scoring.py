"""The log-probabilities of given translations, by teacher forcing. Long lines are not split. Imports no torch."""

import logging
import math
from collections.abc import Iterable, Iterator
from itertools import islice

from nmt.decode.options import SearchOptions
from nmt.decode.segments import TextHypothesis, Translation
from nmt.decode.translator import Translator
from nmt.text import EOS
from nmt.text.lines import Pair, is_blank

log = logging.getLogger("nmt")

WINDOW = 1000  # lines scored together: limits memory, and lets lines of similar length share a batch


def score_pairs(translator: Translator, pairs: Iterable[Pair], options: SearchOptions) -> Iterator[Translation]:
    """Score a stream of pairs, in order.

    Each hypothesis gets the log-probabilities that a search would report, and a score with the length penalty of
    `options`. If a pair is too long for the model, both are NaN and a warning names the line.
    """
    stream, (source, target), limit = iter(pairs), translator.tokenizers, translator.engine.max_length - 1
    while window := list(islice(stream, WINDOW)):
        encoded = [
            (
                [] if is_blank(pair.source) else source.encode(pair.source),
                [] if is_blank(pair.target) else target.encode(pair.target),
            )
            for pair in window
        ]
        fitting = [sides for sides in encoded if any(sides) and max(map(len, sides)) <= limit]
        scores = iter(translator.engine.score([src for src, _ in fitting], [tgt for _, tgt in fitting]))
        for pair, sides in zip(window, encoded, strict=True):
            tokens = [*sides[1], EOS] if any(sides) else []
            if (longest := max(map(len, sides))) > limit:
                log.warning("line %d is not scored: %d pieces, the model takes %d", pair.line, longest, limit)
                log_probs = [math.nan] * len(tokens)
            else:
                log_probs = next(scores) if tokens else []
            score = sum(log_probs) / options.length_divisor(len(tokens)) if tokens else 0.0
            hypothesis = TextHypothesis(tokens, log_probs, score, target.pieces(tokens), pair.target)
            yield Translation(pair.source, [hypothesis])
