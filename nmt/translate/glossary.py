"""Step: terms of a glossary are written behind the source terms, for a model that was trained to read them.

With any model, the torch engine can search for translations that contain the terms: see `require_terms`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nmt.decode.options import SearchRequest, Terms
from nmt.text.glossary import annotated, find_terms, required_tokens
from nmt.text.tokenizer import Tokenizers
from nmt.translate.units import Step, Translation, Unit


class Glossary(Step):
    """Annotates source terms with their translations."""

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
            # The reader of a translation sees the source without terms.
            translation.source = unit.text
        return translations


def require_terms(
    requests: Sequence[SearchRequest], glossary: Mapping[str, str], tokenizers: Tokenizers, max_length: int
) -> None:
    """Let the search write the target terms of each request; those that the model cannot write are logged.

    `max_length` is that of a target sequence, EOS counted.
    """
    for request in requests:
        # The text as the model reads it, so that terms in a headline are found in their usual case.
        text = tokenizers.source.decode(request.tokens)
        # What is left for the terms beside the prefix and EOS.
        room = max_length - 1 - len(request.prefix)
        token_ids = required_tokens(text, glossary, tokenizers.target, room, request.place[0])
        request.terms = Terms(token_ids, tokenizers.target.inside_words)
