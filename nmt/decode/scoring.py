"""The log-probabilities of given translations, by teacher forcing.

A line that `nmt translate` would cut into segments is scored segment by segment. Imports no torch.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from nmt.decode.options import SearchOptions
from nmt.decode.segments import TextHypothesis, Translation, sentence_parts
from nmt.decode.translator import Translator
from nmt.text import EOS
from nmt.text.lines import is_blank

log = logging.getLogger("nmt")

WINDOW = 1000  # lines scored together: limits memory, and lets lines of similar length share a batch

Part = tuple[list[int], list[int]]  # source and target ids of a segment, without EOS


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
    stream, tokenizer = iter(lines), translator.tokenizers.target
    while window := list(islice(stream, WINDOW)):
        found = [[parts_of(translator, line, target) for target in line.targets] for line in window]
        pairs = [part for of_line in found for parts in of_line for part in parts or []]
        scores = iter(translator.engine.score([source for source, _ in pairs], [target for _, target in pairs]))
        for line, of_line in zip(window, found, strict=True):
            hypotheses = []
            for target, parts in zip(line.targets, of_line, strict=True):
                if parts is None:
                    tokens = [*tokenizer.encode(target), EOS]
                    log_probs = [math.nan] * len(tokens)
                else:
                    tokens = [token for _, part in parts for token in (*part, EOS)]
                    log_probs = [x for _ in parts for x in next(scores)]
                score = sum(log_probs) / options.length_divisor(len(tokens)) if tokens else 0.0
                hypotheses.append(TextHypothesis(tokens, log_probs, score, tokenizer.pieces(tokens), target))
            yield Translation(line.source, hypotheses)


def parts_of(translator: Translator, line: Candidates, target: str) -> list[Part] | None:
    """Cut source and target into segments as `nmt translate` cuts the source.

    If the target has as many sentences as the source, they are paired; else the whole line is one segment, which may be
    longer than the lines that the model was trained on. Logs a warning and returns None if a segment is too long for
    the model.
    """
    tokenizers, longest = translator.tokenizers, translator.config.data.max_length
    source = [] if is_blank(line.source) else tokenizers.source.encode(line.source)
    tokens = [] if is_blank(target) else tokenizers.target.encode(target)
    if not source and not tokens:
        return []
    sources, targets = [source], [tokens]
    if len(source) > longest:
        parts = sentence_parts(line.source, tokenizers.source, longest)
        of_target = sentence_parts(target, tokenizers.target, longest)
        if len(parts) == len(of_target):
            sources, targets = parts, of_target
    limit, n_longest = translator.engine.max_length - 1, max(map(len, (*sources, *targets)))
    if n_longest > limit:
        log.warning("line %d is not scored: %d pieces, the model takes %d", line.number, n_longest, limit)
        return None
    return list(zip(sources, targets, strict=True))
