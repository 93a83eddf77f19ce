"""nmt's own endpoints: n-best lists, streams and explanations."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from nmt.errors import NmtError
from nmt.insight.pages import content_security_policy, plain
from nmt.serve import schema
from nmt.serve.api import Api
from nmt.serve.served_models import ServedModel
from nmt.serve.turns import Check
from nmt.translate.confidence import confidence_of, words_of
from nmt.translate.options import TranslationOptions
from nmt.translate.units import Translation, Unit


class V1:
    """The endpoints under /v1, and the page /explain."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def list_models(self) -> schema.ModelsAnswer:
        """The models, and the limits of a request."""
        limits = self.api.limits
        return schema.ModelsAnswer(
            models=[model.as_answer() for model in self.api.served.models],
            max_characters=limits.n_characters,
            max_lines=limits.n_lines,
            max_file_bytes=limits.n_file_bytes,
            needs_key=bool(self.api.keys),
        )

    async def translate(self, request: Request, body: schema.TranslateRequest) -> Any:
        """Translate with n-best lists, scores and pieces. With `stream`, you see the translation grow."""
        model, _ = await self.api.choose(request, body)
        options = model.options(body)
        lines = self.api.lines(schema.as_list(body.q))
        if body.prefix and len(lines) != 1:
            raise HTTPException(400, "prefix: is for a single line")
        prefix = model.translator.encode_prefix(body.prefix)
        units = [Unit(number, line, prefix) for number, line in enumerate(lines, 1)]
        if body.stream:
            events = self.stream(model, units, options, body.confidence)
            return StreamingResponse(events, media_type="text/event-stream")
        return as_answer(model, await self.api.translate(model, units, options), body.confidence)

    def stream(
        self, model: ServedModel, units: list[Unit], options: TranslationOptions, with_confidence: bool
    ) -> AsyncIterator[str]:
        """Queue a translation and return its server-sent events.

        This is not an async generator, because QueueFullError must be raised before the response starts.
        """
        loop = asyncio.get_running_loop()
        shown: asyncio.Queue[str] = asyncio.Queue()  # "partial" events; the empty string marks the end
        texts = [""] * len(units)  # the translation of each line so far

        def show(new_texts: list[str]) -> None:
            for line, text in enumerate(new_texts):
                if text != texts[line]:  # most steps of a search change only a few lines
                    texts[line] = text
                    partial = event("partial", {"line": line, "text": text})
                    loop.call_soon_threadsafe(shown.put_nowait, partial)

        future = model.batcher.translate(model.translator, units, options, show)
        # Mark the end of the queue when the search ends, even if it fails or is canceled.
        future.add_done_callback(lambda _: shown.put_nowait(""))

        async def events() -> AsyncIterator[str]:
            try:
                async with self.api.time_limit():
                    while partial := await shown.get():
                        yield partial
                    translations = await future
                yield event("done", as_answer(model, translations, with_confidence).model_dump())
            except HTTPException as error:
                yield event("error", {"error": error.detail})
            except NmtError as error:
                yield event("error", {"error": str(error)})
            finally:  # also if the client disconnects
                future.cancel()

        return events()

    async def explain(self, request: Request, body: schema.ExplainRequest) -> Response:
        """Look into the translation of one sentence: alternatives of each piece, attention, and the search tree."""
        return await self.explained(request, body, outline_answer)

    async def explain_page(self, request: Request, body: schema.ExplainRequest) -> Response:
        """Return the page that `nmt explain` writes. The request may be a form."""
        return await self.explained(request, body, page_answer)

    async def explained(
        self, request: Request, body: schema.ExplainRequest, function: Callable[..., Response]
    ) -> Response:
        """Call `function` as a long job. It takes the arguments of `insight.explain.explain`."""
        model, _ = await self.api.choose(request, body)
        options = model.options(body)
        self.api.lines([body.q])  # only to check the limits
        # Return all hypotheses of the beam.
        settings = options.changed(n_best=options.beam).model_dump()

        def call(check: Check) -> Response:
            return function(model.translator, body.q, prefix=body.prefix, check=check, **settings)

        return await self.api.answer(model.batcher.call(call))


def outline_answer(*args: Any, **settings: Any) -> Response:
    from nmt.insight.explain import outline  # imports torch

    return JSONResponse(plain(outline(*args, **settings)))


def page_answer(*args: Any, **settings: Any) -> Response:
    from nmt.insight.explain import as_page, explain

    page = as_page(explain(*args, **settings))
    return HTMLResponse(page, headers={"Content-Security-Policy": content_security_policy(page)})


def as_answer(model: ServedModel, translations: list[Translation], with_confidence: bool) -> schema.TranslateAnswer:
    if with_confidence:
        for translation in translations:
            words = words_of(model.translator, translation.hypotheses[0])
            translation.confidence = confidence_of(words)
    # `from_attributes` lets pydantic read the attributes of the translations and their hypotheses.
    return schema.TranslateAnswer.model_validate(
        {"source": model.source, "target": model.target, "translations": translations}, from_attributes=True
    )


def event(kind: str, data: Any) -> str:
    """Format a server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
