"""Estimates of the quality of a translation: the confidence of each word and line, and signs of hallucination.

A word of a translation is right if it is equal to a word of the reference. Each word of the reference counts only once.
Punctuation around words is ignored. The confidence of a word is the estimated probability that it is right (Platt
1999):

    logit(confidence) = word · logit(p) + line · logit(q) + bias

p is the product of the probabilities of the word's pieces. q is the geometric mean of the probabilities of all pieces
of the line, EOS included. Every validation fits the coefficients `word`, `line` and `bias` to the translations of the
dev corpus. The confidence of a line is the mean confidence of its words.
"""

import logging
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import regex

from nmt.text.spans import Span
from nmt.text.words import WORD_OR_CHARACTER, WordText
from nmt.translate.translator import Translator
from nmt.translate.units import TextHypothesis, Translation

log = logging.getLogger("nmt")

N_NEWTON = 25  # number of steps of Newton's method; about 6 steps are enough
LEAST_P = 1e-6  # probabilities are clamped to LEAST_P..1 - LEAST_P, so that their logits are finite
# A repetition in a text with spaces: a phrase of two to four words twice in a row, or a word three times in a row.
# A repetition in a text without spaces: a string of one to nine letters three times in a row.
REPEATED = regex.compile(r"(?<!\S)(?:(\S+(?: \S+){1,3}) \1|(\S+) \2 \2)(?!\S)")
REPEATED_CHARACTERS = regex.compile(r"([^\W\d]{1,9}?)\1\1")
UNIT = regex.compile(WORD_OR_CHARACTER)  # a word, or a character between words; texts are compared by these units

Sample = tuple[float, float, bool]  # for one word: logit(p), logit(q), and whether the word is right


class Word(NamedTuple):
    """A word of a hypothesis, with the punctuation around the word."""

    text: str  # `hypothesis.text[start:end]`
    start: int
    end: int
    confidence: float  # 0-1


class Calibration(NamedTuple):
    """The coefficients of the regression. With the defaults, the confidence of a word is its probability p."""

    word: float = 1.0  # `word` and `line` are at least 0, so a more probable word never gets a lower confidence
    line: float = 0.0
    bias: float = 0.0

    @classmethod
    def of(cls, progress: Mapping[str, Any]) -> "Calibration":
        """Return the calibration in the training progress of a model file, or else the default."""
        match progress.get("best_figures"):
            case {"confidence": [float(), float(), float()] as figures}:
                return cls(*figures)
        return cls()

    @classmethod
    def fit(cls, samples: Iterable[Sample]) -> "Calibration":
        """Return the coefficients with the maximum a posteriori probability.

        The prior is a normal distribution around the default coefficients. It keeps the coefficients finite.
        """
        table = np.array([*samples], np.float64).reshape(-1, 3)
        logits, right = table[:, :2], table[:, 2]
        features = np.column_stack([logits, np.ones(len(table))])  # (samples, 3)
        weights = np.zeros(3)
        for _ in range(N_NEWTON):
            p = (1 + np.tanh(features @ weights / 2)) / 2  # the logistic function, in a form that does not overflow
            gradient = features.T @ (right - p) - (weights - cls())
            variance = p * (1 - p)
            hessian = (features.T * variance) @ features + np.eye(3)
            weights += np.linalg.solve(hessian, gradient)
        return cls(*np.maximum(weights, (0, 0, -math.inf)).tolist())

    def confidence(self, word: float, line: float) -> float:
        """Return the confidence of a word, 0-1, given `word` = logit(p) and `line` = logit(q)."""
        logit_of_confidence = self.word * word + self.line * line + self.bias
        return (1 + math.tanh(logit_of_confidence / 2)) / 2


def words_of(translator: Translator, hypothesis: TextHypothesis) -> list[Word]:
    """Return the words of a hypothesis with their confidences.

    The hypothesis must have log-probabilities.
    """
    calibration = Calibration.of(translator.progress)
    split = WordText.split(hypothesis.text)
    words = []
    for text, span, logits in zip(split.words, split.spans, logits_of(translator, hypothesis), strict=True):
        words.append(Word(text, *span, calibration.confidence(*logits)))
    return words


def confidence_of(words: Sequence[Word]) -> float:
    """Return the confidence of a line with these words, or 1 if there are no words."""
    return fmean(word.confidence for word in words) if words else 1.0


def find_doubts(
    translator: Translator, translation: Translation, least: float | None, place: str = "line"
) -> list[str]:
    """Set, log and return the reasons to doubt the best hypothesis: those of all its sentences.

    `least` is the lowest confidence that gives no reason for doubt. If it is None, only similar matches give one.
    `place` and the number of the unit say where it is.
    """
    reasons: list[str] = []
    if translation.parts:
        for part in translation.parts:
            reasons += find_doubts(translator, part, least, place)
    else:
        # A translation that was taken from a similar match already has a reason.
        reasons += translation.doubts or []
        if least is not None:
            reasons += doubts_of_sentence(translator, translation, least)
        if reasons:
            message = "%s %d is doubtful: %s: %s -> %s"
            log.warning(message, place, translation.number, ", ".join(reasons), translation.source, translation.text)
    if least is not None:
        translation.doubts = reasons
    return reasons


def doubts_of_sentence(translator: Translator, translation: Translation, least: float) -> list[str]:
    """Return the reasons to doubt the translation of a sentence, with the lowest confidence that gives none."""
    reasons = []
    # 1. The mean confidence of the words is low.
    confidence = confidence_of(words_of(translator, translation.hypotheses[0]))
    if confidence < least:
        reasons.append(f"confidence {confidence:.2f}")
    # 2. The translation repeats a phrase, and the source repeats no phrase.
    phrase = repeated(translation.text)
    if phrase and not repeated(translation.source):
        reasons.append(f"repeats '{phrase:.40}'")
    return reasons


def samples_of(translator: Translator, hypothesis: TextHypothesis, reference: str) -> list[Sample]:
    """Return a sample for `Calibration.fit` for each word of a hypothesis."""
    # For each word, the number of its occurrences in the reference that are not matched yet.
    n_left = Counter(WordText.split(reference).bare_words)
    words = WordText.split(hypothesis.text).bare_words
    samples = []
    for word, (word_logit, line_logit) in zip(words, logits_of(translator, hypothesis), strict=True):
        samples.append((word_logit, line_logit, n_left[word] > 0))
        n_left[word] -= 1
    return samples


def logits_of(translator: Translator, hypothesis: TextHypothesis) -> list[tuple[float, float]]:
    """Return logit(p) and logit(q) of each word; the module docstring defines p and q.

    For a word without pieces, such as a copied placeholder, p is 1.
    """
    text, log_probs = hypothesis.text, hypothesis.log_probs
    spans = spans_of_pieces(translator, hypothesis)
    line_logit = logit(sum(log_probs) / max(len(log_probs), 1))
    logits = []
    # Use the pieces of each word, but not those of the punctuation around it.
    for word_start, word_end in WordText.split(text).bare_spans:
        log_prob = 0.0
        for piece_log_prob, (start, end) in zip(log_probs, spans, strict=True):
            if start < word_end and word_start < end:
                log_prob += piece_log_prob
        logits.append((logit(log_prob), line_logit))
    return logits


def logit(log_prob: float) -> float:
    """Return the logit of a probability, given the logarithm of the probability."""
    p = min(max(math.exp(log_prob), LEAST_P), 1 - LEAST_P)
    return math.log(p / (1 - p))


def spans_of_pieces(translator: Translator, hypothesis: TextHypothesis) -> list[Span]:
    """Return the span of each piece in the text of a hypothesis. EOS and other pieces without text get empty spans."""
    written, spans = translator.tokenizers.target.decode_spans(hypothesis.tokens)
    # The steps after the search may have changed the text. For example, they restore placeholders.
    written, text = written.lower(), hypothesis.text.lower()
    if written == text:
        return spans
    # Find each piece by the characters of the words that are in both texts. Inserted text has no pieces.
    new_places = equal_characters(written, text)
    moved = []
    for start, end in spans:
        places = [new_places[i] for i in range(start, end) if i in new_places]
        moved.append((places[0], places[-1] + 1) if places else (0, 0))
    return moved


def equal_characters(old: str, new: str) -> dict[int, int]:
    """Map indices of characters in `old` to indices of the same characters in `new`.

    The result covers the words that both texts have in the same order.
    """
    old_units = list(UNIT.finditer(old))
    new_units = list(UNIT.finditer(new))
    places: dict[int, int] = {}
    # With autojunk, the matcher would ignore frequent units in long texts.
    matcher = SequenceMatcher(None, UNIT.findall(old), UNIT.findall(new), autojunk=False)
    for old_first, new_first, n_units in matcher.get_matching_blocks():
        for i in range(n_units):
            old_span = old_units[old_first + i].span()
            new_span = new_units[new_first + i].span()
            places.update(zip(range(*old_span), range(*new_span), strict=True))
    return places


def repeated(text: str) -> str:
    """Return the first repetition in a text, as defined at `REPEATED`. Return an empty text if there is none."""
    found = (REPEATED if " " in text else REPEATED_CHARACTERS).search(text)
    return found[0] if found else ""
