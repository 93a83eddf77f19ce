"""Glossaries: terms whose translations are given.

A model can be trained to read target terms. For such a model, the step `Glossary` writes the target term after each
source term. For other models, the torch engine searches for translations with these terms, see `require_terms`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nmt.decode.constraints import Constraint
from nmt.decode.options import SearchRequest
from nmt.text.glossary import annotated, find_terms, required_tokens
from nmt.text.tokenizer import Tokenizers
from nmt.translate.units import Step, Translation, Unit


class Glossary(Step):
    """The step that writes the target term after each source term."""

    def __init__(self, glossary: Mapping[str, str]) -> None:
        self.glossary = glossary
        self.units: list[Unit] = []

    def prepare(self, units: list[Unit]) -> list[Unit]:
        self.units = units
        prepared = []
        for unit in units:
            text = annotated(unit.text, find_terms(unit.text, self.glossary))
            prepared.append(replace(unit, text=text))
        return prepared

    def restore(self, translations: list[Translation]) -> list[Translation]:
        for translation, unit in zip(translations, self.units, strict=True):
            # Return the source without target terms.
            translation.source = unit.text
        return translations


def require_terms(
    requests: Sequence[SearchRequest], glossary: Mapping[str, str], tokenizers: Tokenizers, max_length: int
) -> None:
    """Set the target terms that the translation of each request must contain.

    A target term that is too long or that the model cannot write is left out, with a warning. `max_length` is the
    maximum number of tokens of a target sequence, EOS included.
    """
    for request in requests:
        # Search in the text that the model reads. There, a headline has sentence case, so terms in headlines are found.
        text = tokenizers.source.decode(request.tokens)
        # The number of tokens that the prefix and EOS leave for the terms.
        room = max_length - 1 - len(request.prefix)
        token_ids = required_tokens(text, glossary, tokenizers.target, room, request.place[0])
        request.constraint = Constraint(token_ids, tokenizers.target.inside_words)
