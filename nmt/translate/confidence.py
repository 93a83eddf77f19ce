"""How far a translation can be trusted: confidences of words and lines, and signs of hallucination.

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
        """Return the calibration of a model file with this progress; the default if it has none."""
        match progress.get("best_figures"):
            case {"confidence": [float(), float(), float()] as figures}:
                # A damaged or diverged figure would make every word certain or impossible.
                if all(abs(figure) < MAX_FIGURE for figure in figures):
                    return cls(*figures)
        return cls()

    @classmethod
    def fit(cls, samples: Iterable[Sample]) -> "Calibration":
        """Fit by maximum a posteriori; a normal prior with its mean at the default keeps the figures finite."""
        table = np.array([*samples], np.float64).reshape(-1, 3)
        logits, right = table[:, :2], table[:, 2]
        features = np.column_stack([logits, np.ones(len(table))])  # (n, 3)
        weights = np.zeros(3)
        for _ in range(N_NEWTON):
            p = (1 + np.tanh(features @ weights / 2)) / 2  # the logistic function, which does not overflow
            gradient = features.T @ (right - p) - (weights - cls())
            variance = p * (1 - p)
            hessian = (features.T * variance) @ features + np.eye(3)
            weights += np.linalg.solve(hessian, gradient)
        return cls(*np.maximum(weights, (0, 0, -math.inf)).tolist())

    def confidence(self, word: float, line: float) -> float:
        """Return the confidence, 0-1, of a word with these logits."""
        logit_of_confidence = self.word * word + self.line * line + self.bias
        return (1 + math.tanh(logit_of_confidence / 2)) / 2


def words_of(translator: Translator, hypothesis: TextHypothesis) -> list[Word]:
    """Return the words of a hypothesis that has log-probabilities; they cover its text except white space."""
    calibration = Calibration.of(translator.progress)
    spans = WordText.split(hypothesis.text).spans
    words = []
    for (start, end), logits in zip(spans, logits_of(translator, hypothesis), strict=True):
        words.append(Word(hypothesis.text[start:end], start, end, calibration.confidence(*logits)))
    return words


def confidence_of(words: Sequence[Word]) -> float:
    """Return the confidence of a line with these words; 1 if there are none."""
    if not words:
        return 1.0
    return sum(word.confidence for word in words) / len(words)


def doubts(translator: Translator, translation: Translation, least: float) -> list[str]:
    """Log and return the reasons to check the best hypothesis of a line by hand; none if there is nothing to doubt."""
    best = translation.hypotheses[0]
    reasons = []
    # 1. The words are improbable.
    confidence = confidence_of(words_of(translator, best))
    if confidence < least:
        reasons.append(f"confidence {confidence:.2f}")
    # 2. A part of the source is left out.
    covered = coverage(translator, translation)
    if covered < LEAST_COVERAGE:
        reasons.append(f"attention covers {covered:.0%} of the source")
    # 3. The model repeats itself, and the source does not.
    phrase = repeated(best.text)
    if phrase and not repeated(translation.source):
        reasons.append(f"repeats '{phrase:.40}'")
    if reasons:
        log.warning("line %d is doubtful: %s", translation.number, ", ".join(reasons))
    return reasons


def samples_of(translator: Translator, hypothesis: TextHypothesis, reference: str) -> list[Sample]:
    """Return a training sample of `Calibration.fit` for each word of a hypothesis."""
    # A word that the reference has once is right once.
    n_left = Counter(WordText.split(reference).bare_words)  # a word is right as often as the reference has it
    words = WordText.split(hypothesis.text).bare_words
    samples = []
    for word, (word_logit, line_logit) in zip(words, logits_of(translator, hypothesis), strict=True):
        samples.append((word_logit, line_logit, n_left[word] > 0))
        n_left[word] -= 1
    return samples


def logits_of(translator: Translator, hypothesis: TextHypothesis) -> list[tuple[float, float]]:
    """Return logit(p) and logit(q) of each word, as defined above. Without pieces, as for a copied word, p is 1."""
    text, log_probs = hypothesis.text, hypothesis.log_probs
    spans = piece_spans(translator, hypothesis)
    mean_log_prob = sum(log_probs) / max(len(log_probs), 1)
    line_logit = logit(mean_log_prob)
    logits = []
    for word in WordText.split(text).spans:
        word_start, word_end = bare_span(text, word)
        # The pieces of a word, without those of the punctuation around it.
        log_prob = 0.0
        for piece_log_prob, (start, end) in zip(log_probs, spans, strict=True):
            if start < word_end and word_start < end:
                log_prob += piece_log_prob
        logits.append((logit(log_prob), line_logit))
    return logits


def logit(log_prob: float) -> float:
    """Return the logit of a probability, given its logarithm."""
    p = min(max(math.exp(log_prob), LEAST_P), 1 - LEAST_P)
    return math.log(p / (1 - p))


def piece_spans(translator: Translator, hypothesis: TextHypothesis) -> list[Span]:
    """Return the span of each piece in the text of a hypothesis; empty for EOS, and for pieces that it lacks."""
    written, spans = translator.tokenizers.target.decode_spans(hypothesis.tokens)
    # The text may have been changed after the search: headlines are rewritten, placeholders are put back.
    written, text = written.lower(), hypothesis.text.lower()
    if written == text:
        return spans
    # Pieces move with the characters of equal words; what was put in has no pieces.
    new_places = equal_characters(written, text)
    moved = []
    for start, end in spans:
        places = [new_places[i] for i in range(start, end) if i in new_places]
        moved.append((places[0], places[-1] + 1) if places else (0, 0))
    return moved


def equal_characters(old: str, new: str) -> dict[int, int]:
    """Return where the characters of equal words are in two texts, in the order of both: index in old -> in new."""
    old_units, new_units = UNIT.findall(old), UNIT.findall(new)
    old_starts = [0, *accumulate(len(unit) for unit in old_units)]
    new_starts = [0, *accumulate(len(unit) for unit in new_units)]
    places = {}
    # Every unit may match: autojunk would ignore frequent ones in long texts.
    matcher = SequenceMatcher(None, old_units, new_units, autojunk=False)
    for old_first, new_first, n_units in matcher.get_matching_blocks():
        start, end = old_starts[old_first], old_starts[old_first + n_units]
        moved_by = new_starts[new_first] - start
        for i in range(start, end):
            places[i] = i + moved_by
    return places


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
    # (source pieces,), over all sentences of the line.
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
