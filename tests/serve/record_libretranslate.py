"""Record how a real LibreTranslate answers the requests of libretranslate_requests.json.

    python record_libretranslate.py OPEN KEYED

OPEN and KEYED are HOST:PORT of two servers that translate de and fr to en; the file was recorded with LibreTranslate
1.9.6. Both have the options --char-limit 100 --batch-limit 4 --alternatives-limit 3. KEYED needs the key "secret", too:
--api-keys --require-api-key-origin https://pages.example
"""

import contextlib
import http.client
import json
import sys
from pathlib import Path
from typing import Any

TABLE = Path(__file__).with_name("libretranslate_requests.json")
BY_TEXT = ("translatedText", "detectedLanguage")  # in these fields, a list has one element per text
Row = dict[str, Any]


def answered(address: str, row: Row) -> Row:
    """Send the request of a row; return the status of its answer and the shape of its body."""
    body = row.get("body", "").encode(row.get("encoding", "utf-8"))
    with contextlib.closing(http.client.HTTPConnection(address)) as connection:
        connection.request(row["method"], row["path"], body, row.get("headers", {}))
        response = connection.getresponse()
        return {"status": response.status, "shape": shape_of_body(response.read(), response.status)}


def shape_of_body(body: bytes, status: int) -> Any:
    """Return the shape of a body. A page that tells an error counts as a message."""
    with contextlib.suppress(ValueError):
        return shape(json.loads(body, parse_int=float))
    page = "page" if status < 400 else {"error": "str"}
    return page if body else ""


def shape(value: Any, key: str = "") -> Any:
    """Return the keys and types of a value. Equal elements of a list are merged, except in the fields `BY_TEXT`."""
    if isinstance(value, dict):
        return {name: shape(value[name], name) for name in sorted(value)}
    if not isinstance(value, list):
        return type(value).__name__
    shapes = []
    for element in map(shape, value):
        if key in BY_TEXT or element not in shapes:
            shapes.append(element)
    return shapes


if __name__ == "__main__":
    addresses = dict(zip(("open", "keyed"), sys.argv[1:], strict=True))
    table = json.loads(TABLE.read_text(encoding="utf-8"))
    for request in table["requests"]:
        request |= answered(addresses[request["server"]], request)
    lines = [json.dumps(part, ensure_ascii=False) for part in (table["reasons"], *table["requests"])]
    reasons, requests = lines[0], ",\n".join(lines[1:])
    TABLE.write_text(f'{{"reasons": {reasons},\n"requests": [\n{requests}\n]}}\n', encoding="utf-8")
