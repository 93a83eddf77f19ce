"""Split source lines into segments that are short enough for the model; join the translations of a line's segments."""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nmt.decode.options import Hypothesis, NBest, SearchOptions, Segment
from nmt.text.capitals import as_read
from nmt.text.lines import is_blank, one_line
from nmt.text.tokenizer import Tokenizer

log = logging.getLogger("nmt")

SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？；])(?![。！？；”’」』）])\s*|(?<=[。！？；][”’」』）])\s*")
N_NAMED = 10  # cut lines that a warning names
UNSPACED = frozenset(["zh", "zho", "cmn", "yue", "ja", "jpn"])  # languages without a space between sentences


class Line(NamedTuple):
    """A source line; line numbers start at 1."""

    number: int
    text: str
    prefix: Sequence[int] = ()  # target tokens that its translation begins with
    part: int = 0  # index of this text within its line, which in markup may have several


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
    number: int = 0  # of the line, from 1; 0 if it is not known
    source_tokens: list[int] = field(default_factory=list)  # without EOS; empty if the line is blank or was split

    @property
    def text(self) -> str:
        return self.hypotheses[0].text

    @property
    def is_cut(self) -> bool:
        """Whether the translation reached the length limit before the model ended it."""
        return bool(self.hypotheses) and self.hypotheses[0].is_cut


def warn_of_cut(numbers: Sequence[int]) -> None:
    """Log one warning that names the lines whose translations are cut off, if there are any."""
    if not numbers:
        return
    named = ", ".join(map(str, numbers[:N_NAMED]))
    if len(numbers) > N_NAMED:
        named += f" and {len(numbers) - N_NAMED:,} more"
    lines = f"line {named}" if len(numbers) == 1 else f"{len(numbers):,} lines ({named})"
    message = (
        "translation cut off at the length limit, before the model ended it: %s; nmt translate --max-length raises it"
    )
    log.warning(message, lines)


@contextlib.contextmanager
def naming_cut_lines(*, at_once: bool) -> Iterator[Callable[[Sequence[Translation]], None]]:
    """Yield a function that takes note of translations. At the end, one warning names those that were cut off.

    With `at_once`, because somebody waits for each line, the function warns itself.
    """
    numbers: list[int] = []

    def take_note(translations: Sequence[Translation]) -> None:
        for translation in translations:
            if translation.is_cut and translation.number not in numbers[-1:]:  # a line of markup has several texts
                numbers.append(translation.number)
        if at_once:
            warn_of_cut(numbers)
            numbers.clear()

    try:
        yield take_note
    finally:  # also if the caller takes no more translations than it needs
        warn_of_cut(numbers)


def split(lines: Sequence[Line], tokenizer: Tokenizer, max_length: int) -> list[list[Segment]]:
    """Return the segments of each line, each of at most `max_length` tokens without EOS.

    A longer line is cut into sentences, a longer sentence between words, a longer word between pieces. The translation
    of the first segment begins with the line's prefix. A blank line has no segments.
    """
    # What the model reads: headlines in sentence case.
    texts = [as_read(line.text, tokenizer) for line in lines]
    inputs = [text for text, _ in texts]
    found = []
    for line, (text, style), tokens in zip(lines, texts, tokenizer.encode_all(inputs), strict=True):
        parts = [tokens] if tokens and not is_blank(text) else []
        if parts and len(tokens) > max_length:
            parts = sentence_parts(text, tokenizer, max_length)
        if len(parts) > 1:
            message = "line %d has %d pieces, the model takes %d: translated in %d parts"
            log.warning(message, line.number, len(tokens), max_length, len(parts))
        segments = []
        for i, part in enumerate(parts):
            prefix = () if i else line.prefix
            segments.append(Segment(part, prefix, (line.number, line.part + i), style))
        found.append(segments)
    return found


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

    The length penalty applies to the log-probability of the whole line.
    `texts` yields the text of each hypothesis of each segment; `tokenizer` is the target's; `joiner` stands between two
    segments.
    """
    if not segments:
        return [TextHypothesis([], [], 0.0, [], "")]
    joined = []
    with_texts = [[(h, next(texts)) for h in n_best] for n_best in segments]
    for rank in range(max(map(len, segments))):
        chosen = [n_best[min(rank, len(n_best) - 1)] for n_best in with_texts]
        tokens = [token for h, _ in chosen for token in h.tokens]
        log_probs = [log_prob for h, _ in chosen for log_prob in h.log_probs]
        score = chosen[0][0].score if len(chosen) == 1 else sum(log_probs) / options.length_divisor(len(tokens))
        pieces = tokenizer.pieces(tokens) if options.scores else []
        text = one_line(joiner.join(text for _, text in chosen))
        is_cut = any(h.is_cut for h, _ in chosen)
        joined.append(TextHypothesis(tokens, log_probs, score, pieces, text, is_cut=is_cut))
    return joined
