"""LibreTranslate's endpoints for texts, languages and health checks."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from fastapi import Request

from nmt.documents.html import HTML
from nmt.serve import schema
from nmt.serve.api import Api, split_lines
from nmt.serve.batcher import grouped
from nmt.serve.served_models import name_of
from nmt.translate.confidence import confidence_of, words_of
from nmt.translate.markup import units_of, written
from nmt.translate.translator import Translator
from nmt.translate.units import Translation, Unit


class ParsedText(NamedTuple):
    """The units of a text, and a function that writes the translated text.

    `write` takes the translations of the units.
    """

    units: list[Unit]
    write: Callable[[Iterator[str]], str]


class LibreTranslate:
    """The endpoints for clients of LibreTranslate."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def libre_translate(self, request: Request, body: schema.LibreRequest) -> schema.LibreAnswer:
        """Translate texts or HTML, as LibreTranslate does. You can also send a form."""
        model, detected = await self.api.choose(request, body)
        # 1. Parse the texts.
        texts = schema.as_list(body.q)
        self.api.lines(texts)  # only to check the limits of the texts with their markup
        if body.format == "html":
            parsed = await asyncio.to_thread(list, map(parse_html, texts))
        else:
            parsed = list(map(parse_lines, texts))
        # 2. Translate the units of all texts together. The beam must have room for all hypotheses.
        n_best = 1 + body.alternatives
        beam = max(n_best, model.translator.options.beam)
        options = model.translator.with_options(n_best=n_best, beam=beam, scores=body.confidence)
        units = list(chain.from_iterable(text.units for text in parsed))
        self.api.lines([unit.text for unit in units])  # only to check the limits of the units
        translations = await self.api.translate(model, units, options) if units else []
        # 3. Write each text. Each field gets one value per text.
        fields = defaultdict[str, list[Any]](list, translatedText=[])
        for text, of_text in zip(parsed, grouped(translations, [len(text.units) for text in parsed]), strict=True):
            best, *alternatives = variants(text, of_text, n_best)
            fields["translatedText"].append(best)
            if body.alternatives:
                fields["alternatives"].append(alternatives)
            if body.confidence and body.format == "text":
                fields["confidence"].append(confidence_of_text(model.translator, of_text))
        # If `q` is a single text, each field has a single value instead of a list.
        single = {name: values[0] for name, values in fields.items()} if isinstance(body.q, str) else fields
        answer = schema.LibreAnswer(**single)
        if body.source == "auto":
            answer.detectedLanguage = schema.DetectedLanguage(language=model.base_source, confidence=detected)
        return answer

    async def detect(self, request: Request, body: schema.DetectRequest) -> list[schema.DetectedLanguage]:
        """Detect the language of a text. The most probable source language comes first. You can also send a form."""
        self.api.check_key(request, body.api_key)
        texts = schema.as_list(body.q)
        self.api.lines(texts)  # only to check the limits
        detected = await asyncio.to_thread(self.api.served.detect, texts)
        return [schema.DetectedLanguage(language=code, confidence=percent) for code, percent in detected.items()]

    async def languages(self) -> list[schema.Language]:
        """The languages, and those that each is translated to."""
        # A language that is only a target gets an empty list.
        targets: dict[str, list[str]] = {}
        for model in self.api.served.models:
            targets.setdefault(model.base_source, []).append(model.base_target)
            targets.setdefault(model.base_target, [])
        return [schema.Language(code=code, name=name_of(code), targets=codes) for code, codes in targets.items()]

    async def health(self) -> schema.Health:
        """Whether the server runs, and which models it uses."""
        return schema.Health(models=[model.health() for model in self.api.served.models])


def confidence_of_text(translator: Translator, lines: Sequence[Translation]) -> float:
    # Average over all words of the text, so that long lines count more than short ones.
    words = [words_of(translator, line.hypotheses[0]) for line in lines]
    return confidence_of(list(chain.from_iterable(words)))


def parse_lines(text: str) -> ParsedText:
    """Return the units of a plain text, one for each line."""
    units = [Unit(number, line) for number, line in enumerate(split_lines(text), 1)]
    return ParsedText(units, "\n".join)


def parse_html(text: str) -> ParsedText:
    """Return the units of an HTML fragment. Tags stay around the translations of their words."""
    parts = HTML.parse(text)
    return ParsedText(units_of(parts, HTML, number=1), partial(written, parts))


def variants(text: ParsedText, translations: Sequence[Translation], n: int) -> list[str]:
    """Return at most n translations of a text, the best first.

    The first uses the best hypothesis of each unit, the second uses the second best, and so on.
    """
    n_most = max((len(translation.hypotheses) for translation in translations), default=1)
    results = []
    for rank in range(min(n, n_most)):
        texts = (translation.hypothesis(rank).text for translation in translations)
        results.append(text.write(texts))
    return results
