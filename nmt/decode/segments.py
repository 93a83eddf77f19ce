"""Split source lines into segments that are short enough for the model; join the translations of a line's segments."""

import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nmt.decode.options import Hypothesis, NBest, SearchOptions, Segment
from nmt.text.lines import is_blank, one_line
from nmt.text.tokenizer import Tokenizer

log = logging.getLogger("nmt")

SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？；])(?![。！？；”’」』）])\s*|(?<=[。！？；][”’」』）])\s*")
UNSPACED = frozenset(["zh", "zho", "cmn", "yue", "ja", "jpn", "th", "lo", "my", "km"])  # no space between sentences


class Line(NamedTuple):
    """A source line; line numbers start at 1."""

    number: int
    text: str
    prefix: Sequence[int] = ()  # target tokens that its translation begins with


@dataclass
class TextHypothesis(Hypothesis):
    """A hypothesis for a line, with its pieces and detokenized text; the tokens of each segment end in EOS."""

    pieces: list[str]  # empty without `SearchOptions.scores`
    text: str


@dataclass
class Translation:
    """A source line and its hypotheses, best first; a blank line has one blank hypothesis."""

    source: str
    hypotheses: list[TextHypothesis]

    @property
    def text(self) -> str:
        return self.hypotheses[0].text


def split(lines: Sequence[Line], tokenizer: Tokenizer, max_length: int) -> list[list[Segment]]:
    """Return the segments of each line, each of at most `max_length` tokens without EOS.

    A longer line is cut into sentences, a longer sentence between words, a longer word between pieces. The translation
    of the first segment begins with the line's prefix. A blank line has no segments.
    """
    tokens_of_lines = tokenizer.encode_all([line.text for line in lines])
    lines_and_tokens = zip(lines, tokens_of_lines, strict=True)
    return [_segments(line, tokens, tokenizer, max_length) for line, tokens in lines_and_tokens]


def _segments(line: Line, tokens: list[int], tokenizer: Tokenizer, max_length: int) -> list[Segment]:
    if not tokens or is_blank(line.text):
        return []
    if len(tokens) <= max_length:
        return [Segment(tokens, line.prefix, (line.number, 0))]
    parts = sentence_parts(line.text, tokenizer, max_length)
    if len(parts) > 1:
        message = "line %d has %d pieces, the model takes %d: translated in %d parts"
        log.warning(message, line.number, len(tokens), max_length, len(parts))
    return [Segment(part, () if i else line.prefix, (line.number, i)) for i, part in enumerate(parts)]


def sentence_parts(text: str, tokenizer: Tokenizer, max_length: int) -> list[list[int]]:
    """Return the tokens of each sentence of a text. Long sentences are cut; each part begins with the tag, if any."""
    tag, text = tokenizer.split_tag(text)
    tokens = tokenizer.tag(tag)
    max_length = max(max_length - len(tokens), 1)
    parts = (part for one in SENTENCE_END.split(text) for part in _split_sentence(one, tokenizer, max_length))
    return [tokens + part for part in parts if part]


def _split_sentence(sentence: str, tokenizer: Tokenizer, max_length: int) -> list[list[int]]:
    tokens = tokenizer.encode_untagged(sentence.strip())
    if len(tokens) <= max_length:
        return [tokens]
    parts: list[list[int]] = [[]]
    for word in map(tokenizer.encode_untagged, sentence.split()):
        for start in range(0, len(word), max_length):
            chunk = word[start : start + max_length]
            if len(parts[-1]) + len(chunk) > max_length:
                parts.append([])
            parts[-1] += chunk
    return parts


def join(
    segments: Sequence[NBest], texts: Iterator[str], tokenizer: Tokenizer, options: SearchOptions, joiner: str
) -> list[TextHypothesis]:
    """Return the n-best list of a line: the best hypotheses of all segments joined, then the second best, and so on.

    The length penalty applies to the log-probability of the whole line; expected utilities are averaged.

    Args:
        segments: the hypotheses of each segment of the line.
        texts: yields the text of each of them.
        tokenizer: of the target.
        options: the search options.
        joiner: text between two segments.
    """

    def hypothesis(tokens: list[int], log_probs: list[float], score: float, text: str) -> TextHypothesis:
        pieces = tokenizer.pieces(tokens) if options.scores else []
        return TextHypothesis(tokens, log_probs, score, pieces, one_line(text))

    if not segments:
        return [hypothesis([], [], 0.0, "")]
    if len(segments) == 1:
        return [hypothesis(h.tokens, h.log_probs, h.score, next(texts)) for h in segments[0]]
    joined = []
    texts_of_segments = [[next(texts) for _ in n_best] for n_best in segments]
    for rank in range(max(map(len, segments))):
        indices = [min(rank, len(n_best) - 1) for n_best in segments]
        chosen = [n_best[i] for n_best, i in zip(segments, indices, strict=True)]
        tokens = [token for h in chosen for token in h.tokens]
        log_probs = [log_prob for h in chosen for log_prob in h.log_probs]
        if options.mbr:
            score = sum(h.score for h in chosen) / len(chosen)
        else:
            score = sum(log_probs) / options.length_divisor(len(tokens))
        text = joiner.join(found[i] for found, i in zip(texts_of_segments, indices, strict=True))
        joined.append(hypothesis(tokens, log_probs, score, text))
    return joined
