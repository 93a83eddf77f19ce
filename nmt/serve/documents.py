"""LibreTranslate's endpoints for documents.

A client uploads a document. The server translates it and keeps the translation in memory for download.
"""

import asyncio
import secrets
from pathlib import PureWindowsPath
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Form, Request, UploadFile
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from nmt.documents import SUFFIXES
from nmt.serve import schema
from nmt.serve.api import Api
from nmt.serve.served_models import name_of
from nmt.serve.turns import Check, in_parts
from nmt.translate.documents import DocumentTranslation

# Seconds that a translation is kept, as in LibreTranslate, and maximum size of all kept translations.
KEPT_S, MAX_KEPT_BYTES = 1800.0, 100_000_000


class Documents:
    """The endpoints for documents, and the translated files that are kept for download."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.kept: dict[str, Response] = {}  # random file name -> response with the translated file

    async def translate_file(
        self,
        request: Request,
        file: UploadFile,
        source: Annotated[schema.Source, Form()],
        target: Annotated[schema.Code, Form()],
        api_key: Annotated[schema.Key, Form()] = "",
        column: Annotated[str, Form(description="Of a .csv or .tsv file: name of the column to translate.")] = "",
    ) -> dict[str, str]:
        """Translate a document. You can download the translation from `translatedFileUrl` for 30 minutes."""
        # 1. Check the request.
        self.api.check_key(request, api_key)
        model = self.api.served.pick(source, target)
        path = PureWindowsPath(schema.without_surrogates(file.filename or ""))  # accepts / and \ as separators
        suffix = path.suffix.lower()
        if suffix not in SUFFIXES:
            raise HTTPException(400, f"file: its name must end in {', '.join(SUFFIXES)}")
        # 2. Translate the document as a long job.
        content = await file.read()
        options = model.translator.with_options(scores=False)

        def translate(check: Check) -> bytes:
            document = DocumentTranslation(
                in_parts(model.translator, check),
                "the file",
                suffix,
                content,
                self.api.limits.n_text_bytes,
                column,
                window=self.api.limits.n_lines,
                options=options,
            )
            for _ in document.translations():
                check()
            return document.content()

        translation = await model.batcher.call(translate)
        # 3. Keep the translation under an address that cannot be guessed.
        shown = quote(f"{path.stem[:100]}_{model.target}{suffix}")
        headers = {"Content-Disposition": f"attachment; filename=\"{shown}\"; filename*=utf-8''{shown}"}
        name = secrets.token_urlsafe() + suffix
        self.kept[name] = Response(translation, headers=headers, media_type="application/octet-stream")
        asyncio.get_running_loop().call_later(KEPT_S, self.kept.pop, name, None)
        n_bytes = sum(len(kept.body) for kept in self.kept.values())
        while n_bytes > MAX_KEPT_BYTES and len(self.kept) > 1:
            oldest = next(iter(self.kept))
            n_bytes -= len(self.kept.pop(oldest).body)
        return {"translatedFileUrl": f"{request.base_url}download_file/{name}"}

    async def download_file(self, name: str) -> Response:
        """Download a translated document. Its address is secret, so no key is needed."""
        if name not in self.kept:
            raise HTTPException(404, "there is no such file; translations are kept for 30 minutes")
        return self.kept[name]

    async def settings(self) -> dict[str, Any]:
        """Settings for LibreTranslate's clients, such as the formats of documents."""
        needs_key = bool(self.api.keys)
        target = self.api.served.models[0].base_target
        language = {
            "source": {"code": "auto", "name": "Auto Detect"},
            "target": {"code": target, "name": name_of(target)},
        }
        return {
            "apiKeys": needs_key,
            "keyRequired": needs_key,
            "charLimit": self.api.limits.n_characters,
            "suggestions": False,
            "filesTranslation": True,
            "frontendTimeout": 500,
            "language": language,
            "supportedFilesFormat": SUFFIXES,
        }
