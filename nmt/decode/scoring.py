"""The log-probabilities of given translations, by teacher forcing.

A line that `nmt translate` would cut into segments is scored segment by segment. Imports no torch.
"""

import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from nmt.decode.options import SearchOptions
from nmt.decode.segments import TextHypothesis, Translation, sentence_parts
from nmt.decode.translator import Translator
from nmt.text import EOS
from nmt.text.lines import is_blank, one_line

log = logging.getLogger("nmt")

WINDOW = 1000  # lines scored together: limits memory, and lets lines of similar length share a batch

Part = tuple[list[int], list[int]]  # source and target ids of a segment, without EOS


@dataclass(frozen=True)
class Candidates:
    """A source line and translations to score, as text or as token ids; among the ids, each segment ends in EOS."""

    number: int  # line number, from 1
    source: str
    targets: Sequence[str | list[int]]


def score_lines(
    translator: Translator, lines: Iterable[Candidates], options: SearchOptions | None = None
) -> Iterator[Translation]:
    """Score a stream of lines, in order.

    Each hypothesis gets the log-probabilities that a search would report, and a score with the length penalty of
    `options`. If a line cannot be scored (see `parts_of`), both are NaN and a warning names the line.

    Args:
        options: the model's defaults if None.
    """
    options = options or translator.options
    stream = iter(lines)
    while window := list(islice(stream, WINDOW)):
        found = [[parts_of(translator, line, target) for target in line.targets] for line in window]
        pairs = [part for of_line in found for parts in of_line for part in parts or []]
        scores = iter(translator.engine.score([source for source, _ in pairs], [target for _, target in pairs]))
        for line, of_line in zip(window, found, strict=True):
            hypotheses = []
            for target, parts in zip(line.targets, of_line, strict=True):
                log_probs = None if parts is None else [x for _ in parts for x in next(scores)]
                hypotheses.append(scored(translator, target, parts or [], log_probs, options))
            yield Translation(line.source, hypotheses)


def scored(
    translator: Translator,
    target: str | list[int],
    parts: Sequence[Part],
    log_probs: list[float] | None,
    options: SearchOptions,
) -> TextHypothesis:
    """Return the hypothesis of a target, given the log-probabilities of all its parts, or None if it is not scored."""
    tokenizer = translator.tokenizers.target
    tokens = [token for _, part in parts for token in (*part, EOS)]
    if isinstance(target, str):
        text = target
    else:
        text = one_line(translator.joiner.join(tokenizer.decode(part) for part in split_at_eos(target)))
    if log_probs is None:
        tokens = [*tokenizer.encode(target), EOS] if isinstance(target, str) else target
        log_probs = [math.nan] * len(tokens)
    score = sum(log_probs) / options.length_divisor(len(tokens)) if tokens else 0.0
    return TextHypothesis(tokens, log_probs, score, tokenizer.pieces(tokens), text)


def parts_of(translator: Translator, line: Candidates, target: str | list[int]) -> list[Part] | None:
    """Cut source and target into segments as `nmt translate` cuts the source.

    A target text has no segment boundaries. If it has as many sentences as the source, they are paired; else the whole
    line is one segment, which may be longer than the lines that the model was trained on. Logs a warning and returns
    None if a segment is too long for the model, or the number of segments in token ids differs from the source's.
    """
    tokenizers, longest = translator.tokenizers, translator.config.data.max_length
    source = [] if is_blank(line.source) else tokenizers.source.encode(line.source)
    sources = [source] if len(source) <= longest else sentence_parts(line.source, tokenizers.source, longest)
    if isinstance(target, str):
        tokens = [] if is_blank(target) else tokenizers.target.encode(target)
        targets = [tokens] if len(sources) == 1 else sentence_parts(target, tokenizers.target, longest)
        if len(targets) != len(sources):
            sources, targets = [source], [tokens]
    else:
        targets = split_at_eos(target)
    if not source and not any(targets):
        return []
    limit = translator.engine.max_length - 1
    n_longest = max(map(len, (*sources, *targets)))
    if len(targets) != len(sources):
        reason = f"the translation has {len(targets)} segments, its source {len(sources)}"
    elif n_longest > limit:
        reason = f"{n_longest} pieces, the model takes {limit}"
    else:
        return list(zip(sources, targets, strict=True))
    log.warning("line %d is not scored: %s", line.number, reason)
    return None


def split_at_eos(tokens: Sequence[int]) -> list[list[int]]:
    """Split the tokens of a hypothesis into segments without EOS; the last EOS may be missing."""
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == EOS:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts if parts[-1] else parts[:-1]
