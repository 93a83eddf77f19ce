#!/usr/bin/env bash
# quart-libretranslate 0.0.2: translate() leaves out the API key that detect() sends.
#
# Expected: a client with a key sends it in every request that LibreTranslate checks: /translate and /detect.
# Seen: the body of /detect has the field api_key, that of /translate has not. On a server with keys, languages are
#   detected, and every translation is refused.
# Workaround: serve it without keys behind a proxy, or use another client.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --disable-pip-version-check quart-libretranslate==0.0.2 quart==0.20.0 aiohttp==3.13.2
"$folder/venv/bin/python" - <<'PYTHON'
import asyncio
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

from quart import Quart
from quart_libretranslate import LibreTranslate

has_key = {}


class Server(BaseHTTPRequestHandler):
    """A server that notes whether each path is sent the key."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        path = self.path.partition("?")[0]
        has_key[path] = "a-key" in body + self.path
        answer = {"translatedText": "Hund"} if path == "/translate" else [{"language": "de", "confidence": 90}]
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def log_message(self, *_):
        pass


async def main(url):
    app = Quart("finding")
    client = LibreTranslate(app, url, "a-key")
    async with app.app_context():
        await client.detect("Hund")
        await client.translate("dog", "en", "de")


server = HTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
asyncio.run(main(f"http://127.0.0.1:{server.server_port}"))
print("has the key:", has_key)
assert has_key == {"/detect": True, "/translate": False}, "the behavior has changed"
PYTHON
