"""LibreTranslate's endpoints for texts, languages and health checks."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple

from fastapi import Request
from starlette.exceptions import HTTPException

from nmt.documents.html import HTML
from nmt.languages import base_language
from nmt.serve import schema
from nmt.serve.api import Api, split_lines
from nmt.serve.served_models import name_of
from nmt.translate.confidence import confidence_of, words_of
from nmt.translate.markup import Translated, units_of, written
from nmt.translate.translator import Translator
from nmt.translate.units import Translation, Unit, grouped


class ParsedText(NamedTuple):
    """The units of a text, and a function that writes the translated text.

    `write` takes the translations of the units.
    """

    units: list[Unit]
    write: Callable[[Iterable[str]], str]


class LibreTranslate:
    """The endpoints for clients of LibreTranslate."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def libre_translate(self, request: Request, body: schema.LibreRequest) -> schema.LibreAnswer:
        """Translate texts or HTML, as LibreTranslate does. You can also send a form."""
        # 1. Check the request.
        self.api.check_key(request, body.api_key)
        texts = schema.as_list(body.q)
        self.api.lines(texts)  # only to check the limits of the texts with their markup
        if self.stays(body.source, body.target):
            return schema.LibreAnswer(translatedText=body.q)
        model, detected = await self.api.choose(request, body)
        # 2. Parse the texts.
        if body.format == "html":
            parsed = await asyncio.to_thread(list, map(parse_html, texts))
        else:
            parsed = list(map(parse_lines, texts))
        # 3. Translate the units of all texts together. The beam must have room for all hypotheses.
        n_best = 1 + body.alternatives
        beam = max(n_best, model.translator.options.beam)
        options = model.translator.with_options(n_best=n_best, beam=beam, scores=body.confidence)
        units = list(chain.from_iterable(text.units for text in parsed))
        self.api.lines([unit.text for unit in units])  # only to check the limits of the units
        translations = await self.api.translate(model, units, options) if units else []
        # 4. Write each text. Each field gets one value per text.
        of_texts = grouped(translations, [len(text.units) for text in parsed])
        written_texts = [variants(text, of_text, n_best) for text, of_text in zip(parsed, of_texts, strict=True)]
        fields: dict[str, Any] = {"translatedText": [best for best, *_ in written_texts]}
        if body.alternatives:
            fields["alternatives"] = [alternatives for _, *alternatives in written_texts]
        if body.confidence and body.format == "text":
            fields["confidence"] = [confidence_of_text(model.translator, of_text) for of_text in of_texts]
        if body.source == "auto":
            language = schema.DetectedLanguage(language=model.base_source, confidence=detected)
            fields["detectedLanguage"] = [language] * len(parsed)
        # If `q` is a single text, each field has a single value instead of a list.
        if isinstance(body.q, str):
            fields = {name: values[0] for name, values in fields.items()}
        return schema.LibreAnswer(**fields)

    def stays(self, source: str, target: str) -> bool:
        """Return whether a text is in the target language already, and no model translates it."""
        if any(model.translates(source, target) for model in self.api.served.models):
            return False
        code = base_language(target)
        return code == base_language(source) and code in self.targets()

    async def detect(self, request: Request, body: schema.DetectRequest) -> list[schema.DetectedLanguage]:
        """Detect the language of a text. The most probable source language comes first. You can also send a form."""
        self.api.check_key(request, body.api_key)
        detected = await asyncio.to_thread(self.api.served.detect, schema.as_list(body.q))
        return [schema.DetectedLanguage(language=code, confidence=percent) for code, percent in detected.items()]

    async def suggest(self) -> None:
        """Refuse a better translation: this server does not store any."""
        raise HTTPException(403, "this server takes no suggestions")

    async def languages(self) -> list[schema.Language]:
        """The languages, and those that each is translated to."""
        targets = self.targets()
        return [schema.Language(code=code, name=name_of(code), targets=sorted(targets[code])) for code in targets]

    def targets(self) -> dict[str, set[str]]:
        """Map the code of each language to the codes of the languages that it is translated to, its own included."""
        targets = defaultdict[str, set[str]](set)
        for model in self.api.served.models:
            targets[model.base_source] |= {model.base_source, model.base_target}
            targets[model.base_target].add(model.base_target)
        return targets

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

    def write(translated: Iterable[str]) -> str:
        # White space stays at both ends of a line.
        lines = [unit.text.replace(unit.text.strip(), new, 1) for unit, new in zip(units, translated, strict=True)]
        return "\n".join(lines)

    return ParsedText(units, write)


def parse_html(text: str) -> ParsedText:
    """Return the units of an HTML fragment. Tags stay around the translations of their words."""
    parts = HTML.parse(text)

    def write(translated: Iterable[str]) -> str:
        return written(parts, map(Translated, translated))

    return ParsedText(units_of(parts, HTML, number=1), write)


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
