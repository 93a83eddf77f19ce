"""The last step before the search, which encodes sentences as search requests, and decodes the hypotheses to texts."""

import logging
from collections.abc import Collection, Sequence
from itertools import count

from nmt.decode.options import NBest, SearchRequest
from nmt.errors import ModelError
from nmt.text.lines import is_blank, one_line
from nmt.text.sentences import join_sentences, sentence_spans
from nmt.text.tokenizer import Tokenizer, Tokenizers
from nmt.translate.options import TranslationOptions
from nmt.translate.units import TextHypothesis, Translation, Unit, grouped, joined

log = logging.getLogger("nmt.texts")  # messages that quote users' texts; `nmt serve` disables this logger


class Encoding:
    """The search requests of sentences: usually one for each sentence.

    A blank sentence has no request. A sentence that is too long for the model has several requests.
    """

    def __init__(
        self, units: Sequence[Unit], tokenizers: Tokenizers, max_length: int, options: TranslationOptions
    ) -> None:
        """Encode sentences.

        Args:
            max_length: maximum number of source tokens in a request, without EOS.
        """
        self.units = units
        self.target = tokenizers.target
        self.options = options
        self.requests: list[SearchRequest] = []
        self.n_requests: list[int] = []  # number of requests of each unit
        # One call of the tokenizer for all units is faster than a call for each unit.
        tokens_of_units = tokenizers.source.encode_all([unit.text for unit in units])
        for unit, tokens in zip(units, tokens_of_units, strict=True):
            requests = requests_of(unit, tokens, tokenizers.source, max_length, options.abbreviations)
            self.requests += requests
            self.n_requests.append(len(requests))

    def translations(self, n_bests: Sequence[NBest]) -> list[Translation]:
        """Return the translation of each unit, given the hypotheses of each request.

        Raises ModelError if a request has no hypotheses, which means that the model's output is NaN.
        """
        if not all(n_bests):
            raise ModelError("the model's output is not a number", hint="check the loss of its training")
        translations = []
        for unit, of_unit in zip(self.units, grouped(n_bests, self.n_requests), strict=True):
            # A blank unit gets a blank hypothesis. The hypotheses of several requests are joined to one translation.
            hypotheses = [TextHypothesis([], [], 0.0, [], "")]
            if of_unit:
                decoded = [self.decoded(n_best) for n_best in of_unit]
                hypotheses = joined(decoded, self.options)
            translations.append(Translation(unit.text, hypotheses, unit.number))
        return translations

    def decoded(self, n_best: NBest) -> list[TextHypothesis]:
        """Return the hypotheses of a request with their texts. With the option `scores`, they also have pieces."""
        hypotheses = []
        for hypothesis in n_best:
            # The pieces take time, so compute them only if scores are needed.
            pieces = self.target.pieces(hypothesis.tokens) if self.options.scores else []
            text = one_line(self.target.decode(hypothesis.tokens))
            hypotheses.append(TextHypothesis(**vars(hypothesis), pieces=pieces, text=text))
        return hypotheses

    def preview(self, tokens: dict[int, list[int]]) -> list[str]:
        """Return the unfinished text of each unit, given the tokens of the requests that the search has begun."""
        texts = []
        for requests in grouped(count(), self.n_requests):
            # The search may not have begun the later requests of a unit.
            begun = []
            for request in requests:
                if request in tokens:
                    begun.append(self.target.decode(tokens[request]))
            texts.append(one_line(join_sentences(begun)))
        return texts


def requests_of(
    unit: Unit, tokens: list[int], tokenizer: Tokenizer, max_length: int, abbreviations: Collection[str]
) -> list[SearchRequest]:
    """Return the search requests of a unit, given its tokens.

    A unit of more than `max_length` tokens is split into several requests, with a warning. The translation of the first
    request must begin with the unit's prefix.
    """
    tag, text = tokenizer.split_tag(unit.text)
    if not tokens or is_blank(text):
        return []
    # Nearly all sentences fit into one request.
    if len(tokens) <= max_length:
        return [SearchRequest(tokens, unit.prefix, place_of(unit))]
    # Each part begins with the tag of the target language.
    tag_tokens = tokenizer.tag(tag)
    parts = cut(text, tokenizer, max(max_length - len(tag_tokens), 1), abbreviations)
    message = "line %d has %d pieces, the model takes %d: translated in %d parts"
    log.warning(message, unit.number, len(tokens), max_length, len(parts))
    requests = [SearchRequest(tag_tokens + part, (), place_of(unit, i)) for i, part in enumerate(parts)]
    requests[0].prefix = unit.prefix  # the beginning of the whole translation
    return requests


def place_of(unit: Unit, part: int = 0) -> tuple[int, ...]:
    """Return the numbers that determine the random seed of a part of a sentence.

    A line of text has the same numbers as a line of markup with a single unit.
    """
    place = (unit.number, unit.sentence)
    return (*place, unit.index, part) if unit.index or part else place


def cut(text: str, tokenizer: Tokenizer, max_length: int, abbreviations: Collection[str]) -> list[list[int]]:
    """Split a text without its tag into parts of at most `max_length` tokens, and return the tokens of each part.

    The parts are sentences. A sentence that is too long is split between words, and a word that is too long is split
    between pieces.
    """
    parts: list[list[int]] = []
    for start, end in sentence_spans(text, abbreviations):
        sentence = text[start:end].strip()
        tokens = tokenizer.encode_untagged(sentence)
        if len(tokens) <= max_length:
            parts.append(tokens)
            continue
        # Each part gets as many words as fit.
        parts.append([])
        for word in sentence.split():
            tokens = tokenizer.encode_untagged(word)
            # Only a word that is longer than a part is split.
            for first in range(0, len(tokens), max_length):
                pieces = tokens[first : first + max_length]
                if len(parts[-1]) + len(pieces) > max_length:
                    parts.append([])
                parts[-1] += pieces
    return [part for part in parts if part]
