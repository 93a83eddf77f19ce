"""LibreTranslate's endpoints for documents.

A client uploads a document. The server translates it and keeps the translation in memory until it expires, so that the
client can download it.
"""

import asyncio
import secrets
from pathlib import PureWindowsPath
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

from fastapi import Form, Request, UploadFile
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from nmt.documents import SUFFIXES, ZIPPED
from nmt.serve import schema
from nmt.serve.api import Api
from nmt.serve.served_models import ServedModel
from nmt.serve.turns import Check, in_parts
from nmt.translate.documents import DocumentTranslation

# A translation is kept for `KEPT_S` seconds, as in LibreTranslate. If all kept translations together are larger than
# `MAX_KEPT_BYTES`, the oldest translations are deleted earlier.
KEPT_S, MAX_KEPT_BYTES = 1800.0, 100_000_000
# The text of Word and PowerPoint files is mostly markup. So the limit on the size of this text is `MARKUP` times the
# limit for other files.
MARKUP = 8


class KeptFile(NamedTuple):
    """A translated document that is kept for download."""

    name: str  # file name that the client is offered, URL-encoded
    content: bytes


class Documents:
    """The endpoints for documents, and the translated files that are kept for download."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.kept: dict[str, KeptFile] = {}  # random name in the download address -> translated file

    async def translate_file(
        self,
        request: Request,
        file: UploadFile,
        source: Annotated[schema.Source, Form()],
        target: Annotated[schema.Code, Form()],
        api_key: Annotated[schema.Key, Form()] = "",
        column: Annotated[str, Form(description="Of a .csv file: name of the column to translate.")] = "",
    ) -> dict[str, str]:
        """Translate a document; `translatedFileUrl` is where its translation is, for 30 minutes."""
        # 1. Check the request.
        self.api.check_key(request, api_key)
        model = self.api.served.pick(source, target)
        path = PureWindowsPath(schema.without_surrogates(file.filename or ""))  # accepts / and \ as separators
        suffix = path.suffix.lower()
        if suffix not in SUFFIXES:
            raise HTTPException(400, f"file: its name must end in {', '.join(SUFFIXES)}")
        # 2. Translate.
        content = await self.translated(model, suffix, await file.read(), column)
        # 3. Keep the translation under an address that cannot be guessed. The translation is deleted when it expires or
        # when newer translations need the memory.
        name = secrets.token_urlsafe() + suffix
        self.kept[name] = KeptFile(quote(f"{path.stem[:100]}_{model.target}{suffix}"), content)
        asyncio.get_running_loop().call_later(KEPT_S, self.kept.pop, name, None)
        while sum(len(kept.content) for kept in self.kept.values()) > MAX_KEPT_BYTES:
            oldest = next(iter(self.kept))
            del self.kept[oldest]
        return {"translatedFileUrl": f"{request.base_url}download_file/{name}"}

    async def translated(self, model: ServedModel, suffix: str, content: bytes, column: str) -> bytes:
        """Translate the content of a document as a long job, which takes turns with other requests.

        Raises HTTPException 504 if the next turn of the job does not end within `Limits.answer_s`.
        """
        max_text = self.api.limits.n_bytes
        if suffix in ZIPPED:
            max_text *= MARKUP
        options = model.translator.with_options(scores=False)

        def translate(check: Check) -> bytes:
            document = DocumentTranslation(
                in_parts(model.translator, check),
                "the file",
                suffix,
                content,
                max_text,
                column,
                window=self.api.limits.n_lines,
                options=options,
            )
            for _ in document.translations():
                check()
            return document.content()

        return await self.api.answer_in_turns(model.batcher, translate)

    async def download_file(self, name: str) -> Response:
        """A translated document; only the client that uploaded it knows its address."""
        if name not in self.kept:
            raise HTTPException(404, "there is no such file; translations are kept for 30 minutes")
        file = self.kept[name]
        disposition = f"attachment; filename=\"{file.name}\"; filename*=utf-8''{file.name}"
        headers = {"Content-Disposition": disposition}
        return Response(file.content, headers=headers, media_type="application/octet-stream")

    async def settings(self) -> dict[str, Any]:
        """What LibreTranslate tells its page, such as the formats of documents."""
        needs_key = bool(self.api.keys)
        return {
            "apiKeys": needs_key,
            "keyRequired": needs_key,
            "charLimit": self.api.limits.n_characters,
            "suggestions": False,
            "filesTranslation": True,
            "supportedFilesFormat": SUFFIXES,
        }
