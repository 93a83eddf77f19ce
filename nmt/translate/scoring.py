"""The log-probabilities of given translations, by teacher forcing. Long lines are not split. Imports no torch."""

import logging
import math
from collections.abc import Iterable, Iterator
from itertools import islice

from nmt.decode.options import SearchOptions
from nmt.text import EOS
from nmt.text.lines import Pair, is_blank
from nmt.translate.translator import Translator
from nmt.translate.units import TextHypothesis, Translation

log = logging.getLogger("nmt")

WINDOW = 1000  # lines scored together: limits memory, and lets lines of similar length share a batch


def score_pairs(translator: Translator, pairs: Iterable[Pair], options: SearchOptions) -> Iterator[Translation]:
    """Score a stream of pairs, in order.

    Each hypothesis gets the log-probabilities that a search would report, and a score with the length penalty of
    `options`. If a pair is too long for the model, both are NaN and a warning names the line.
    """
    stream, (source, target), limit = iter(pairs), translator.tokenizers, translator.engine.max_length - 1
    while window := list(islice(stream, WINDOW)):
        src = source.encode_all(["" if is_blank(pair.source) else pair.source for pair in window])
        tgt = target.encode_all(["" if is_blank(pair.target) else pair.target for pair in window])
        fitting = [i for i in range(len(window)) if 0 < max(len(src[i]), len(tgt[i])) <= limit]
        scores = translator.engine.score([src[i] for i in fitting], [tgt[i] for i in fitting])
        log_probs = dict(zip(fitting, scores, strict=True))
        for i, pair in enumerate(window):
            tokens = [*tgt[i], EOS] if src[i] or tgt[i] else []
            if (longest := max(len(src[i]), len(tgt[i]))) > limit:
                log.warning("line %d is not scored: %d pieces, the model takes %d", pair.line, longest, limit)
                log_probs[i] = [math.nan] * len(tokens)
            of_pair = log_probs.get(i, [])
            score = sum(of_pair) / options.length_divisor(len(tokens)) if tokens else 0.0
            yield Translation(pair.source, [TextHypothesis(tokens, of_pair, score, target.pieces(tokens), pair.target)])
