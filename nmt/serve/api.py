"""What all endpoints do: check keys and limits, choose a model, wait for its answer."""

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import NamedTuple, TypeVar

from fastapi import Request
from starlette.exceptions import HTTPException

from nmt.serve import schema
from nmt.serve.batcher import Batcher
from nmt.serve.guard import Limits
from nmt.serve.metrics import Metrics
from nmt.serve.models import LoadedModel
from nmt.serve.served_models import ServedModel, ServedModels
from nmt.serve.turns import Check
from nmt.translate.options import TranslationOptions
from nmt.translate.units import Translation, Unit

Result = TypeVar("Result")
Body = schema.LibreRequest | schema.TranslateRequest | schema.ExplainRequest


class Choice(NamedTuple):
    """The model for a request."""

    model: ServedModel
    confidence: float  # percent: how probably the text is in the model's language; 0 if that was not to be detected


class Api:
    """The models, keys, limits and metrics of a server; at most one model for each pair of languages."""

    def __init__(self, loaded: Sequence[LoadedModel], limits: Limits, keys: Collection[str] = ()) -> None:
        """Without `keys`, requests need no key. Raises InputError if two models translate the same languages."""
        self.limits = limits
        self.set_keys(keys)
        self.metrics = Metrics()
        self.served = ServedModels(loaded, limits.n_waiting, self.metrics.batch_lines.observe)
        self.metrics.waiting.set_function(self.served.n_waiting)

    def set_keys(self, keys: Collection[str]) -> None:
        self.keys = [key.encode() for key in keys]

    # --- what a request may do ----------------------------------------------------------------------------

    def check_key(self, request: Request, key: str) -> None:
        """Raise HTTPException 403 unless a key is given, in the header or as `key`, or none is needed."""
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            # Starlette decodes headers as Latin-1, but clients may write UTF-8.
            candidates = [bearer.encode("latin-1"), bearer.encode()]
        else:
            candidates = [key.encode(errors="surrogatepass")]
        # Compare with all keys, in constant time: the time that it takes tells nothing about them.
        is_known = not self.keys
        for candidate in candidates:
            for known in self.keys:
                is_known |= hmac.compare_digest(candidate, known)
        if not is_known:
            raise HTTPException(403, "the API key is missing or wrong")

    async def choose(self, request: Request, body: Body) -> Choice:
        """Check the key of a request and choose its model. Raises HTTPException 403 or 400."""
        self.check_key(request, body.api_key)
        detected: dict[str, float] = {}
        # With one model, there is nothing to choose.
        if body.source == "auto" and len(self.served.models) > 1:
            detected = await asyncio.to_thread(self.served.detect, schema.as_list(body.q))
        model = self.served.pick(body.source, body.target, detected)
        return Choice(model, detected.get(model.base_source, 0.0))

    def split(self, texts: Sequence[str], prefix: Sequence[int] = ()) -> list[Unit]:
        """Return the lines of all texts, numbered from 1. Raises HTTPException 413 if they are beyond the limits."""
        lines: list[Unit] = []
        for text in texts:
            for line in split_lines(text):
                lines.append(Unit(len(lines) + 1, line, prefix))
        check_limit(sum(map(len, texts)), self.limits.n_characters, "characters")
        check_limit(len(lines), self.limits.n_lines, "lines")
        if prefix and len(lines) != 1:
            raise HTTPException(400, "prefix: is for a single line")
        return lines

    # --- the model's answer -------------------------------------------------------------------------------

    async def translate(
        self, model: ServedModel, units: Sequence[Unit], options: TranslationOptions
    ) -> list[Translation]:
        """Translate units, together with other requests. Raises HTTPException 504 as `time_limit`."""
        translations = await self.answer(model.batcher.translate(model.translator, units, options))
        self.count(translations)
        return translations

    def count(self, translations: Sequence[Translation]) -> None:
        """Count the pieces of the best hypotheses."""
        self.metrics.pieces.inc(sum(len(translation.hypotheses[0].tokens) for translation in translations))

    async def answer(self, future: asyncio.Future[Result]) -> Result:
        """Wait for a model's result, for at most `Limits.answer_s`. Raises HTTPException 504."""
        async with self.time_limit():
            return await future

    async def answer_in_turns(self, batcher: Batcher, function: Callable[[Check], Result]) -> Result:
        """Wait for the result of a function, for at most `Limits.answer_s` for each turn. Raises HTTPException 504."""
        loop = asyncio.get_running_loop()
        async with self.time_limit() as limit:

            def after_turn() -> None:  # begin anew
                limit.reschedule(loop.time() + self.limits.answer_s)

            return await batcher.call(function, after_turn)

    @contextlib.asynccontextmanager
    async def time_limit(self) -> AsyncIterator[asyncio.Timeout]:
        """Raise HTTPException 504 if the block takes longer than `Limits.answer_s`."""
        try:
            async with asyncio.timeout(self.limits.answer_s) as limit:
                yield limit
        except TimeoutError:
            raise HTTPException(504, f"no translation within {self.limits.answer_s:g} s") from None


def split_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def check_limit(n: int, limit: int, unit: str) -> None:
    if n > limit:
        raise HTTPException(413, f"the text has {n:,} {unit}, a request may have {limit:,}")
