"""The class `Api`, which all endpoints share. It checks requests, chooses a model and waits for its answer."""

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from itertools import chain, product
from typing import TypeVar

from fastapi import Request
from starlette.exceptions import HTTPException

from nmt.serve import schema
from nmt.serve.guard import Limits
from nmt.serve.metrics import Metrics
from nmt.serve.models import LoadedModel
from nmt.serve.served_models import ServedModel, ServedModels
from nmt.translate.options import TranslationOptions
from nmt.translate.units import Translation, Unit

Result = TypeVar("Result")
Body = schema.LibreRequest | schema.TranslateRequest | schema.ExplainRequest


class Api:
    """The models, keys, limits and metrics of a server."""

    def __init__(self, loaded: Sequence[LoadedModel], limits: Limits, keys: Collection[str] = ()) -> None:
        """Create an API. If `keys` is empty, requests need no key.

        Raises InputError if two models translate the same pair of languages.
        """
        self.limits = limits
        self.is_stopping: Callable[[], bool] = lambda: False  # `nmt serve` sets it
        self.set_keys(keys)
        self.metrics = Metrics()
        self.served = ServedModels(loaded, limits.n_waiting, self.metrics)
        self.metrics.waiting.set_function(self.served.n_waiting)

    def set_keys(self, keys: Collection[str]) -> None:
        self.keys = [key.encode() for key in keys]

    # --- check a request ----------------------------------------------------------------------------------

    def check_key(self, request: Request, key: str) -> None:
        """If the server has keys, raise HTTPException 400 for a request without a key, and 403 for a wrong key.

        A bearer token in the Authorization header takes precedence over the argument `key`.
        """
        scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            # Starlette decodes headers as Latin-1, but clients may write UTF-8.
            candidates = [bearer.encode("latin-1"), bearer.encode()]
        else:
            candidates = [key.encode(errors="surrogatepass")]
        # Compare with all keys in constant time, so that the duration tells nothing about them.
        matches = [hmac.compare_digest(candidate, known) for candidate, known in product(candidates, self.keys)]
        if self.keys and not any(matches):
            status = 403 if any(candidates) else 400  # as LibreTranslate answers
            raise HTTPException(status, "the API key is missing or wrong")

    async def choose(self, request: Request, body: Body) -> tuple[ServedModel, float]:
        """Check the key of a request and choose a model.

        Returns:
            The model, and the probability in percent that the text is in its source language. The probability is 0 if
            no language was detected.

        Raises:
            HTTPException 400: no model fits, or several do.
            HTTPException 400, 403: the key is missing or wrong.
        """
        self.check_key(request, body.api_key)
        detected: dict[str, float] = {}
        # With only one model, there is nothing to detect.
        if body.source == "auto" and len(self.served.models) > 1:
            detected = await asyncio.to_thread(self.served.detect, schema.as_list(body.q))
        model = self.served.pick(body.source, body.target, detected)
        return model, detected.get(model.base_source, 0.0)

    def lines(self, texts: Sequence[str]) -> list[str]:
        """Return the lines of all texts. Raises HTTPException 400 if the texts exceed a limit."""
        lines = list(chain.from_iterable(map(split_lines, texts)))
        check_limit(sum(map(len, texts)), self.limits.n_characters, "characters")
        check_limit(len(lines), self.limits.n_lines, "lines")
        return lines

    # --- the model's answer -------------------------------------------------------------------------------

    async def translate(
        self, model: ServedModel, units: Sequence[Unit], options: TranslationOptions
    ) -> list[Translation]:
        """Translate units. Raises HTTPException 504 if this takes longer than `Limits.answer_s`."""
        return await self.answer(model.batcher.translate(model.translator, units, options))

    async def answer(self, future: asyncio.Future[Result]) -> Result:
        """Wait for a model's result. Raises HTTPException 504 if this takes longer than `Limits.answer_s`."""
        async with self.time_limit():
            return await future

    @contextlib.asynccontextmanager
    async def time_limit(self) -> AsyncIterator[None]:
        """Raise HTTPException 504 if the block takes longer than `Limits.answer_s`."""
        try:
            async with asyncio.timeout(self.limits.answer_s):
                yield
        except TimeoutError:
            raise HTTPException(504, f"no translation within {self.limits.answer_s:g} s") from None


def split_lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").split("\n")


def check_limit(n: int, limit: int, unit: str) -> None:
    if n > limit:
        raise HTTPException(400, f"the text has {n:,} {unit}, a request may have {limit:,}")
