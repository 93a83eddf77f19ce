"""How far a translation can be trusted: confidences of words and lines, and signs of hallucination. Imports no torch.

A word is right if the reference has it, punctuation around it aside, and as often as the translation. The confidence of
a word estimates the probability that it is right, by logistic regression (Platt 1999):

    logit(confidence) = word · logit(p) + line · logit(q) + bias

p is the probability of the word's pieces, q the geometric mean of the probabilities of all pieces of the line, EOS
included. Every validation fits the three figures to its translations of dev; the model file keeps them. The confidence
of a line is the mean of its words': the expected share of right words.
"""

import logging
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from nmt.errors import InputError
from nmt.text import EOS
from nmt.text.spans import Span
from nmt.text.words import WORD_OR_CHARACTER, WordText, bare_span
from nmt.translate.translator import Translator
from nmt.translate.units import TextHypothesis, Translation

log = logging.getLogger("nmt")

N_NEWTON = 25  # steps of Newton's method, which needs about 6
MAX_FIGURE = 1e9  # a calibration is ignored if a coefficient has this absolute value or more
LEAST_P = 1e-6  # probabilities are at least this, and at most 1 - LEAST_P, so that their logits are finite
# On Tatoeba de-en, 2 % of 5,000 translations have a lower coverage: their chrF is 30, that of all others 60. Where a
# translation leaves out one of two sentences, its coverage is lower in two cases of three.
LEAST_COVERAGE = 0.4
# Two to four words twice in a row, or one word three times; without spaces, one to nine characters three times.
REPEATED = re.compile(r"(?<!\S)(?:(\S+(?: \S+){1,3}) \1|(\S+) \2 \2)(?!\S)")
REPEATED_CHARACTERS = re.compile(r"([^\W\d]{1,9}?)\1\1")
UNIT = re.compile(WORD_OR_CHARACTER)  # texts are compared by words and single other characters

Sample = tuple[float, float, bool]  # logit(p) and logit(q) of a word, and whether the word is right


class Word(NamedTuple):
    """A word of a translation, with the punctuation around it: `text[start:end]`, in characters."""

    text: str
    start: int
    end: int
    confidence: float  # 0-1


class Calibration(NamedTuple):
    """The figures of the regression; by default, the confidence of a word is its probability."""

    word: float = 1.0  # not negative, and neither is `line`: a more probable word never gets a lower confidence
    line: float = 0.0
    bias: float = 0.0

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> "Calibration":
        """The calibration of a model file with this progress; the default if it has none."""
        match progress.get("best_figures"):
            case {"confidence": [float(), float(), float()] as found} if all(abs(x) < MAX_FIGURE for x in found):
                return cls(*found)
        return cls()

    @classmethod
    def fit(cls, samples: Iterable[Sample]) -> "Calibration":
        """Fit by maximum a posteriori; a normal prior with its mean at the default keeps the figures finite."""
        table = np.array([*samples], np.float64).reshape(-1, 3)
        features, right = np.column_stack([table[:, :2], np.ones(len(table))]), table[:, 2]
        weights = np.zeros(3)
        for _ in range(N_NEWTON):
            p = (1 + np.tanh(features @ weights / 2)) / 2  # the logistic function, which does not overflow
            gradient = features.T @ (right - p) - (weights - cls())
            weights += np.linalg.solve((features.T * (p * (1 - p))) @ features + np.eye(3), gradient)
        return cls(*np.maximum(weights, (0, 0, -math.inf)).tolist())

    def confidence(self, word: float, line: float) -> float:
        """The confidence, 0-1, of a word with these logits."""
        return (1 + math.tanh((self.word * word + self.line * line + self.bias) / 2)) / 2


def words_of(translator: Translator, hypothesis: TextHypothesis) -> list[Word]:
    """The words of a hypothesis that has log-probabilities; they cover its text except white space."""
    text, calibration = hypothesis.text, Calibration.of(translator.progress)
    pairs = zip(WordText.split(text).spans, logits_of(translator, hypothesis), strict=True)
    return [Word(text[slice(*span)], *span, calibration.confidence(*logits)) for span, logits in pairs]


def confidence_of(words: Sequence[Word]) -> float:
    """The confidence of a line with these words; 1 if there are none."""
    return sum(word.confidence for word in words) / len(words) if words else 1.0


def doubts(translator: Translator, translation: Translation, least: float) -> list[str]:
    """Log and return the reasons to check the best hypothesis of a line by hand; none if there is nothing to doubt."""
    best = translation.hypotheses[0]
    confidence, share = confidence_of(words_of(translator, best)), coverage(translator, translation)
    phrase = "" if repeated(translation.source) else repeated(best.text)
    reasons = [f"confidence {confidence:.2f}"] if confidence < least else []
    reasons += [f"attention covers {share:.0%} of the source"] if share < LEAST_COVERAGE else []
    reasons += [f"repeats '{phrase:.40}'"] if phrase else []
    if reasons:
        log.warning("line %d is doubtful: %s", translation.number, ", ".join(reasons))
    return reasons


def samples_of(translator: Translator, hypothesis: TextHypothesis, reference: str) -> list[Sample]:
    """Return a training sample of `Calibration.fit` for each word of a hypothesis."""
    left, found = Counter(WordText.split(reference).bare_words), list[Sample]()
    for word, logits in zip(WordText.split(hypothesis.text).bare_words, logits_of(translator, hypothesis), strict=True):
        found.append((*logits, left[word] > 0))
        left[word] -= 1
    return found


def logits_of(translator: Translator, hypothesis: TextHypothesis) -> list[tuple[float, float]]:
    """Return logit(p) and logit(q) of each word, as defined above. Without pieces, as for a copied word, p is 1."""
    text, log_probs = hypothesis.text, hypothesis.log_probs
    pieces = list(zip(log_probs, piece_spans(translator, hypothesis), strict=True))
    words = (bare_span(text, span) for span in WordText.split(text).spans)
    line = logit(sum(log_probs) / max(len(log_probs), 1))
    return [(logit(sum(x for x, (a, b) in pieces if a < end and start < b)), line) for start, end in words]


def logit(log_prob: float) -> float:
    """The logit of a probability, given its logarithm."""
    p = min(max(math.exp(log_prob), LEAST_P), 1 - LEAST_P)
    return math.log(p / (1 - p))


def piece_spans(translator: Translator, hypothesis: TextHypothesis) -> list[Span]:
    """Return the span of each piece in the text of a hypothesis; empty for EOS, and for pieces that it lacks."""
    written, spans = translator.tokenizers.target.decode_spans(hypothesis.tokens)
    written, text = written.lower(), hypothesis.text.lower()  # headlines are rewritten
    if written == text:
        return spans
    sides = [UNIT.findall(side) for side in (written, text)]
    starts = [[*accumulate(map(len, side), initial=0)] for side in sides]
    blocks = SequenceMatcher(None, sides[0], sides[1], autojunk=False).get_matching_blocks()
    places = {starts[0][a] + i: starts[1][b] + i for a, b, n in blocks for i in range(starts[0][a + n] - starts[0][a])}
    kept = ([places[i] for i in range(*span) if i in places] for span in spans)
    return [(found[0], found[-1] + 1) if found else (0, 0) for found in kept]


def coverage(translator: Translator, translation: Translation) -> float:
    """Return the attention that a source piece receives from all target pieces, at most 1; the mean over source pieces.

    Returns 1 if it is unknown: the line is blank, or the model has no attention.
    """
    if not translation.source_tokens:
        return 1.0
    targets = split_at_eos(translation.hypotheses[0].tokens)
    try:
        attention = translator.engine.attention(translation.source_tokens, targets)
    except InputError:
        return 1.0
    received = np.concatenate([weights.sum(0) for weights in attention])
    return float(np.minimum(received, 1).mean())


def split_at_eos(tokens: Sequence[int]) -> list[list[int]]:
    """Return the tokens of each search request in a hypothesis, without EOS."""
    parts: list[list[int]] = [[]]
    for token in tokens:
        if token == EOS:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts[:-1]


def repeated(text: str) -> str:
    """Return the first immediate repetition of a phrase in a text; empty if there is none."""
    found = (REPEATED if " " in text else REPEATED_CHARACTERS).search(text)
    return found[0] if found else ""
