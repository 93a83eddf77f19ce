"""The scoring of given translations: the log-probabilities that the model assigns to them (teacher forcing).

Lines are not split into sentences.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from nmt.decode.options import SearchOptions
from nmt.text import EOS
from nmt.text.lines import Pair, is_blank
from nmt.text.tokenizer import Tokenizer
from nmt.translate.translator import Translator
from nmt.translate.units import TextHypothesis, Translation

log = logging.getLogger("nmt")

# The number of lines that are scored together. This limits memory, and lets lines of similar length share a batch.
WINDOW = 1000


def score_pairs(translator: Translator, pairs: Iterable[Pair], options: SearchOptions) -> Iterator[Translation]:
    """Score a stream of pairs, in order.

    The score of a pair has the length penalty of `options`. If a pair is too long for the model, its log-probabilities
    and score are NaN, and a warning names the line.
    """
    source_tokenizer, target_tokenizer = translator.tokenizers
    stream = iter(pairs)
    limit = translator.engine.max_length - 1  # EOS takes one position
    while window := list(islice(stream, WINDOW)):
        # 1. Encode both sides, and score the pairs that fit the model.
        src = encode_lines(source_tokenizer, [pair.source for pair in window])
        tgt = encode_lines(target_tokenizer, [pair.target for pair in window])
        lengths = [max(map(len, sides)) for sides in zip(src, tgt, strict=True)]
        fitting = [i for i, length in enumerate(lengths) if 0 < length <= limit]
        fitting_src = [src[i] for i in fitting]
        fitting_tgt = [tgt[i] for i in fitting]
        rows = translator.engine.score(fitting_src, fitting_tgt)
        log_probs_of = dict(zip(fitting, rows, strict=True))  # by the index of the pair
        # 2. Yield the results. A pair that is too long gets NaN, and a blank pair gets no log-probabilities.
        for i, pair in enumerate(window):
            tokens = [*tgt[i], EOS] if lengths[i] else []
            log_probs = log_probs_of.get(i, [math.nan] * len(tokens))
            if lengths[i] > limit:
                log.warning("line %d is not scored: %d pieces, the model takes %d", pair.line, lengths[i], limit)
            score = sum(log_probs) / options.length_divisor(max(len(tokens), 1))
            pieces = target_tokenizer.pieces(tokens)
            hypothesis = TextHypothesis(tokens, log_probs, score, pieces, pair.target)
            yield Translation(pair.source, [hypothesis])


def encode_lines(tokenizer: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
    """Return the token ids of each line. A blank line has no tokens."""
    return tokenizer.encode_all(["" if is_blank(line) else line for line in lines])
