"""The endpoints: LibreTranslate's and our own."""

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.exceptions import HTTPException

from nmt.config import base_language
from nmt.documents.html import HTML
from nmt.documents.markup import Segment
from nmt.errors import NmtError
from nmt.insight.pages import content_security_policy, plain
from nmt.serve import schema
from nmt.serve.batcher import Batcher
from nmt.serve.guard import Limits
from nmt.serve.models import LoadedModel
from nmt.serve.served_models import ServedModel, ServedModels, as_list, name_of
from nmt.serve.turns import Check
from nmt.translate.confidence import confidence_of, words_of
from nmt.translate.markup import units_of, written
from nmt.translate.options import TranslationOptions
from nmt.translate.translator import Translator
from nmt.translate.units import Translation, Unit

Result = TypeVar("Result")


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ["path", "status"]
        self.seconds = Histogram("nmt_request_seconds", "Time to answer a request", labels, registry=self.registry)
        sizes = [2**i for i in range(8)]
        self.batch_lines = Histogram("nmt_batch_lines", "Lines of a search", buckets=sizes, registry=self.registry)
        self.pieces = Counter("nmt_pieces", "Pieces translated to", registry=self.registry)
        self.waiting = Gauge("nmt_requests_waiting", "Requests that wait for a model", registry=self.registry)


class Api:
    """The endpoints for a list of models, at most one for each pair of languages."""

    def __init__(self, loaded: Sequence[LoadedModel], limits: Limits, keys: Collection[str] = ()) -> None:
        """Without `keys`, requests need no key. Raises InputError if two models translate the same languages."""
        self.limits = limits
        self.too_late = f"no translation within {limits.answer_s:g} s"
        self.set_keys(keys)
        self.metrics = Metrics()
        self.served = ServedModels(loaded, limits.n_waiting, self.metrics.batch_lines.observe)
        self.metrics.waiting.set_function(self.served.n_waiting)

    def set_keys(self, keys: Collection[str]) -> None:
        self.keys = [key.encode() for key in keys]

    def check_key(self, request: Request, key: str) -> None:
        """Raise HTTPException 403 unless a key is given, in the header or as `key`, or none is needed."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        # Starlette decodes headers as Latin-1, but clients may write UTF-8.
        is_bearer = scheme.lower() == "bearer"
        given = [bearer.encode("latin-1"), bearer.encode()] if is_bearer else [key.encode(errors="surrogatepass")]
        # with all keys, in constant time
        matches = [hmac.compare_digest(one, known) for one in given for known in self.keys]
        if self.keys and not any(matches):
            raise HTTPException(403, "the API key is missing or wrong")

    def lines_of(self, texts: Sequence[str], prefix: Sequence[int] = ()) -> list[Unit]:
        """Return the lines of all texts, numbered from 1. Raises HTTPException 413 if they are beyond the limits."""
        lines = [line for text in texts for line in split_lines(text)]
        self.check_limits(lines)
        if prefix and len(lines) != 1:
            raise HTTPException(400, "prefix: is for a single line")
        return [Unit(number, line, prefix) for number, line in enumerate(lines, 1)]

    def check_limits(self, lines: Sequence[str]) -> None:
        """Raise HTTPException 413 if a request has too many characters or lines."""
        n_characters = sum(len(line) for line in lines)
        counts = [
            (n_characters, self.limits.n_characters, "characters"),
            (len(lines), self.limits.n_lines, "lines"),
        ]
        for n, limit, what in counts:
            if n > limit:
                raise HTTPException(413, f"the text has {n:,} {what}, a request may have {limit:,}")

    async def answer(self, future: asyncio.Future[Result]) -> Result:
        """Wait for a model's result. Raises HTTPException 504 if it takes longer than `Limits.answer_s`."""
        try:
            async with asyncio.timeout(self.limits.answer_s):
                return await future
        except TimeoutError:
            raise HTTPException(504, self.too_late) from None

    async def answer_in_turns(self, batcher: Batcher, function: Callable[[Check], Result]) -> Result:
        """Wait for the result of a function. Raises HTTPException 504 if it has no turn for `Limits.answer_s`."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self.limits.answer_s) as timeout:

                def after_turn() -> None:
                    timeout.reschedule(loop.time() + self.limits.answer_s)

                return await batcher.call(function, after_turn)
        except TimeoutError:
            raise HTTPException(504, self.too_late) from None

    def count(self, translations: Sequence[Translation]) -> None:
        self.metrics.pieces.inc(sum(len(translation.hypotheses[0].tokens) for translation in translations))

    async def libre_translate(self, request: Request, body: schema.LibreRequest) -> schema.LibreAnswer:
        """Translate, as LibreTranslate does; takes forms too."""
        self.check_key(request, body.api_key)
        detected = await self.served.choices(body.source, body.q)
        model = self.served.pick(body.source, body.target, detected)
        n_best = 1 + body.alternatives
        options = model.translator.with_options(
            n_best=n_best, beam=max(n_best, model.translator.options.beam), scores=body.confidence
        )
        confidences = []
        sources = as_list(body.q)
        lines = self.lines_of(sources)  # checks the limits
        if body.format == "html":
            texts = await self.translated_html(model, sources, options)
        else:
            found = iter(await self.translated(model, lines, options))
            of_texts = [[next(found) for _ in split_lines(source)] for source in sources]
            texts = [["\n".join(lines) for lines in variants(of_text, n_best)] for of_text in of_texts]
            confidences = [confidence(model.translator, of_text) for of_text in of_texts if body.confidence]
        best, others = [of_text[0] for of_text in texts], [of_text[1:] for of_text in texts]
        is_list, source = isinstance(body.q, list), base_language(model.source)
        answered = schema.DetectedLanguage(language=source, confidence=detected.get(source, 0.0))
        return schema.LibreAnswer(
            translatedText=best if is_list else best[0],
            alternatives=(others if is_list else others[0]) if body.alternatives else None,
            confidence=(confidences if is_list else confidences[0]) if confidences else None,
            detectedLanguage=answered if body.source == "auto" else None,
        )

    async def translated(
        self, model: ServedModel, units: Sequence[Unit], options: TranslationOptions
    ) -> list[Translation]:
        found = await self.answer(model.batcher.translate(model.translator, units, options))
        self.count(found)
        return found

    async def translated_html(
        self, model: ServedModel, texts: Sequence[str], options: TranslationOptions
    ) -> list[list[str]]:
        """Return for each piece of HTML its translations, best first."""
        # 1. Read the units of all texts.
        documents = await asyncio.to_thread(lambda: [HTML.parse(text) for text in texts])
        units: list[Unit] = []
        for number, parts in enumerate(documents, 1):
            units += units_of(parts, HTML, number)
        self.check_limits([unit.text for unit in units])
        # 2. Translate them together.
        translations = await self.translated(model, units, options) if units else []
        # 3. Write each text with the best hypotheses of all its units, with the second best, and so on.
        n_bests = []
        start = 0
        for parts in documents:
            end = start + sum(isinstance(part, Segment) for part in parts)
            of_text = translations[start:end]
            start = end
            n_variants = min(options.n_best, max((len(unit.hypotheses) for unit in of_text), default=1))
            n_bests.append([written(parts, of_text, rank) for rank in range(n_variants)])
        return n_bests

    async def detect(self, request: Request, body: schema.DetectRequest) -> list[schema.DetectedLanguage]:
        """Which of the source languages a text is in, the most probable first; takes forms too."""
        self.check_key(request, body.api_key)
        self.lines_of(as_list(body.q))  # checks the limits
        found = await asyncio.to_thread(self.served.detected, body.q)
        return [schema.DetectedLanguage(language=code, confidence=share) for code, share in found.items()]

    async def languages(self) -> list[schema.Language]:
        """The languages, and what each is translated to."""
        pairs = [(base_language(model.source), base_language(model.target)) for model in self.served.models]
        targets = {code: [target for source, target in pairs if source == code] for pair in pairs for code in pair}
        return [schema.Language(code=code, name=name_of(code), targets=own) for code, own in targets.items()]

    async def health(self) -> schema.Health:
        """Whether the server runs, and with which models."""
        return schema.Health(models=[model.health() for model in self.served.models])

    async def list_models(self) -> schema.ModelsAnswer:
        """The models, and the limits of a request."""
        return schema.ModelsAnswer(
            models=[model.described() for model in self.served.models],
            max_characters=self.limits.n_characters,
            max_lines=self.limits.n_lines,
            max_file_bytes=self.limits.n_file_bytes,
            needs_key=bool(self.keys),
        )

    async def translate(self, request: Request, body: schema.TranslateRequest) -> Any:
        """Translate with n-best lists, scores and pieces; with `stream`, show the translation as it grows."""
        self.check_key(request, body.api_key)
        model = self.served.pick(body.source, body.target, await self.served.choices(body.source, body.q))
        options = model.options(body)
        lines = self.lines_of(as_list(body.q), model.translator.encode_prefix(body.prefix))
        if body.stream:
            return StreamingResponse(self.stream(model, lines, options), media_type="text/event-stream")
        return self.as_answer(model, await self.answer(model.batcher.translate(model.translator, lines, options)))

    def as_answer(self, model: ServedModel, translations: list[Translation]) -> schema.TranslateAnswer:
        self.count(translations)
        return schema.TranslateAnswer(
            source=model.source,
            target=model.target,
            translations=[schema.LineAnswer.model_validate(found, from_attributes=True) for found in translations],
        )

    def stream(self, model: ServedModel, lines: list[Unit], options: TranslationOptions) -> AsyncIterator[str]:
        """Return the server-sent events of a translation.

        The request is queued at once, so that a full queue raises before the response starts.
        """
        shown: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()

        def show(line: int, text: str) -> None:
            shown.put_nowait((line, text))

        future = model.batcher.translate(model.translator, lines, options, show)
        future.add_done_callback(lambda _: shown.put_nowait(None))

        async def events() -> AsyncIterator[str]:
            texts = [""] * len(lines)
            try:
                async with asyncio.timeout(self.limits.answer_s):
                    while (item := await shown.get()) is not None:
                        line, text = item
                        if text != texts[line]:
                            texts[line] = text
                            yield event("partial", {"line": line, "text": text})
                    yield event("done", self.as_answer(model, await future).model_dump())
            except TimeoutError:
                yield event("error", {"error": self.too_late})
            except NmtError as error:
                yield event("error", {"error": str(error)})
            finally:
                future.cancel()

        return events()

    async def explain(self, request: Request, body: schema.ExplainRequest) -> Response:
        """Look into the translation of one sentence: alternatives of each piece, attention, the tree of the search."""

        def answer(*args: Any, **settings: Any) -> Response:
            from nmt.insight.explain import outline  # imports torch

            return JSONResponse(plain(outline(*args, **settings)))

        return await self.explained(request, body, answer)

    async def explain_page(self, request: Request, body: schema.ExplainRequest) -> Response:
        """The page that `nmt explain` writes; takes forms too."""

        def answer(*args: Any, **settings: Any) -> Response:
            from nmt.insight.explain import as_page, explain

            page = as_page(explain(*args, **settings))
            return HTMLResponse(page, headers={"Content-Security-Policy": content_security_policy(page)})

        return await self.explained(request, body, answer)

    async def explained(
        self, request: Request, body: schema.ExplainRequest, function: Callable[..., Response]
    ) -> Response:
        """Return the answer of a function that takes the arguments of `explain`, from the model's thread."""
        self.check_key(request, body.api_key)
        model = self.served.pick(body.source, body.target, await self.served.choices(body.source, body.q))
        options = model.options(body)
        self.lines_of([body.q])
        settings = options.changed(n_best=options.beam).model_dump()
        call = partial(function, model.translator, body.q, prefix=body.prefix, **settings)
        return await self.answer(model.batcher.call(lambda check: call(check=check)))


def split_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def confidence(translator: Translator, lines: Sequence[Translation]) -> float:
    return confidence_of([word for line in lines for word in words_of(translator, line.hypotheses[0])])


def variants(lines: Sequence[Translation], n: int) -> list[list[str]]:
    """Return up to n translations of several lines, each as a list; the i-th has the i-th best hypotheses of all lines.

    A line with fewer hypotheses repeats its last one. No lines have one translation, which is empty.
    """
    n_found = min(n, max((len(line.hypotheses) for line in lines), default=1))
    return [[line.hypotheses[min(i, len(line.hypotheses) - 1)].text for line in lines] for i in range(n_found)]


def event(kind: str, data: Any) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
