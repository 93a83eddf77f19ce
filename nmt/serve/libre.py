"""LibreTranslate's endpoints for texts, languages and health checks."""

import asyncio
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from fastapi import Request

from nmt.documents.html import HTML
from nmt.serve import schema
from nmt.serve.api import Api, split_lines
from nmt.serve.batcher import grouped
from nmt.serve.served_models import ServedModel, name_of
from nmt.translate.confidence import confidence_of, words_of
from nmt.translate.markup import units_of, written
from nmt.translate.options import TranslationOptions
from nmt.translate.translator import Translator
from nmt.translate.units import Translation


class TextAnswer(NamedTuple):
    """The translations of a text, the best first, and the confidence of the best translation."""

    variants: list[str]
    confidence: float = 0.0


class LibreTranslate:
    """Endpoints whose requests and answers have the fields that LibreTranslate's clients expect."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def libre_translate(self, request: Request, body: schema.LibreRequest) -> schema.LibreAnswer:
        """Translate, as LibreTranslate does; takes forms too."""
        model, detected = await self.api.choose(request, body)
        translator = model.translator
        # The beam must be at least as wide as the number of hypotheses in the answer.
        n_best = 1 + body.alternatives
        beam = max(n_best, translator.options.beam)
        options = translator.with_options(n_best=n_best, beam=beam, scores=body.confidence)
        translate = self.translate_html if body.format == "html" else self.translate_text
        answers = await translate(model, schema.as_list(body.q), options)

        # Each field has a list with one value per text. A field that is not set here is missing from the answer.
        fields: dict[str, list[Any]] = {"translatedText": [text.variants[0] for text in answers]}
        if body.alternatives:
            fields["alternatives"] = [text.variants[1:] for text in answers]
        if body.confidence and body.format == "text" and answers:
            fields["confidence"] = [text.confidence for text in answers]
        # If `q` is a single text and not a list, each field of the answer is a single value, too.
        if isinstance(body.q, str):
            fields = {name: values[0] for name, values in fields.items()}
        answer = schema.LibreAnswer(**fields)
        if body.source == "auto":
            answer.detectedLanguage = schema.DetectedLanguage(language=model.base_source, confidence=detected)
        return answer

    async def translate_text(
        self, model: ServedModel, texts: Sequence[str], options: TranslationOptions
    ) -> list[TextAnswer]:
        # Translate the lines of all texts together, then group the translations by text.
        translations = await self.api.translate(model, self.api.split(texts), options)
        answers = []
        for of_text in grouped(translations, [len(split_lines(text)) for text in texts]):
            variants = []
            for rank in range(count_variants(of_text, options.n_best)):
                variants.append("\n".join(line.hypothesis(rank).text for line in of_text))
            confidence = confidence_of_text(model.translator, of_text) if options.scores else 0.0
            answers.append(TextAnswer(variants, confidence))
        return answers

    async def translate_html(
        self, model: ServedModel, texts: Sequence[str], options: TranslationOptions
    ) -> list[TextAnswer]:
        """Translate fragments of HTML. A tag is placed around the translations of the words inside the tag."""
        self.api.split(texts)  # only to check the limits for the texts with their markup
        # 1. Translate the units of all fragments together.
        documents = await asyncio.to_thread(lambda: [HTML.parse(text) for text in texts])
        units_of_documents = [units_of(parts, HTML, number) for number, parts in enumerate(documents, 1)]
        units = list(chain.from_iterable(units_of_documents))
        self.api.split([unit.text for unit in units])  # only to check the limits for the units
        translations = await self.api.translate(model, units, options) if units else []
        # 2. Write variants of each fragment: first with the best hypothesis of each unit, then with the second best.
        answers = []
        n_units = [len(units) for units in units_of_documents]
        for parts, of_document in zip(documents, grouped(translations, n_units), strict=True):
            n_variants = count_variants(of_document, options.n_best)
            answers.append(TextAnswer([written(parts, of_document, rank) for rank in range(n_variants)]))
        return answers

    async def detect(self, request: Request, body: schema.DetectRequest) -> list[schema.DetectedLanguage]:
        """Which of the source languages a text is in, the most probable first; takes forms too."""
        self.api.check_key(request, body.api_key)
        texts = schema.as_list(body.q)
        self.api.split(texts)  # only to check the limits
        detected = await asyncio.to_thread(self.api.served.detect, texts)
        return [schema.DetectedLanguage(language=code, confidence=percent) for code, percent in detected.items()]

    async def languages(self) -> list[schema.Language]:
        """The languages, and what each is translated to."""
        # A language that is never a source language gets an empty list of targets.
        targets: dict[str, list[str]] = {}
        for model in self.api.served.models:
            targets.setdefault(model.base_source, []).append(model.base_target)
            targets.setdefault(model.base_target, [])
        return [schema.Language(code=code, name=name_of(code), targets=codes) for code, codes in targets.items()]

    async def health(self) -> schema.Health:
        """Whether the server runs, and with which models."""
        return schema.Health(models=[model.health() for model in self.api.served.models])


def confidence_of_text(translator: Translator, lines: Sequence[Translation]) -> float:
    # The confidence is a mean over all words of the text, so that long lines count more than short lines.
    words = [words_of(translator, line.hypotheses[0]) for line in lines]
    return confidence_of(list(chain.from_iterable(words)))


def count_variants(translations: Sequence[Translation], n: int) -> int:
    """Return how many variants a text has, at most n, if variant i consists of `hypothesis(i)` of each translation.

    A text without translations has one variant.
    """
    n_most = max((len(translation.hypotheses) for translation in translations), default=1)
    return min(n, n_most)
