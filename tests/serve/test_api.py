"""What all endpoints have in common: refused requests, keys, pages, metrics."""

import re
from typing import Any

import pytest
from conftest import SOURCE, TARGET
from served import JSON, PAIR, Client, running, served

from nmt.serve.api import Api
from nmt.serve.app import create_app
from nmt.serve.guard import Limits
from nmt.serve.models import LoadedModel
from nmt.translate.translator import Translator

ENDPOINTS = {
    "/detect", "/download_file/{name}", "/frontend/settings", "/health", "/languages", "/metrics", "/ready", "/suggest",
    "/translate", "/translate_file", "/v1/explain", "/v1/models", "/v1/translate"
}  # fmt: skip


def test_metrics_count_requests_and_batches(client: Client) -> None:
    client.v1(SOURCE)
    client.get("/no/such/page")
    values = {}
    for line in client.get("/metrics").body.decode().splitlines():
        name, _, value = line.rpartition(" ")
        values[name] = value
    assert float(values['nmt_request_seconds_count{path="/v1/translate",status="200"}']) >= 1
    assert float(values['nmt_request_seconds_count{path="other",status="404"}']) >= 1
    outcome = float(values["nmt_batch_lines_sum"])
    assert outcome >= len(SOURCE)
    assert values["nmt_requests_waiting"] == "0.0"


def test_a_server_that_stops_is_healthy_but_not_ready(translator: Translator) -> None:
    api = Api([LoadedModel([translator])], Limits())
    with running(create_app(api)) as client:
        assert client.get("/ready").json == {"status": "ready"}
        api.is_stopping = lambda: True
        assert client.get("/ready").status == 503
        assert client.get("/health").status == 200


@pytest.mark.parametrize(
    ("path", "media_type"), [("/", "text/html"), ("/docs", "text/html"), ("/static/serve.js", "text/javascript")]
)
def test_pages_load_nothing_from_outside(client: Client, path: str, media_type: str) -> None:
    answer = client.get(path)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith(media_type)
    assert "unsafe-inline" not in answer.headers["content-security-policy"]
    assert b"http" not in answer.body.replace(b"http://www.w3.org/2000/svg", b"")


def test_the_api_describes_itself(client: Client) -> None:
    result = set(client.get("/openapi.json").json["paths"])
    assert result == ENDPOINTS


REFUSED: list[tuple[str, Any, int, str]] = [  # path, body, status, a part of the message
    ("/translate", PAIR, 400, "q: Field required"),
    ("/translate", PAIR | {"q": "a", "source": "fr"}, 400, "no model translates fr to en; this server translates zh"),
    ("/translate", PAIR | {"q": "a", "format": "docx"}, 400, "format: Input should be 'text' or 'html'"),
    ("/translate", PAIR | {"q": "a" * 5001}, 400, "the text has 5,001 characters, a request may have 5,000"),
    ("/translate", PAIR | {"q": ["a"] * 64 + ["a\nb"]}, 400, "the text has 66 lines, a request may have 64"),
    ("/v1/translate", {"q": "a", "beem": 3}, 400, "beem: Extra inputs are not permitted"),
    ("/v1/translate", {"q": "a", "n_best": 9}, 400, "n_best is 9, but there are 5 hypotheses"),
    ("/v1/translate", {"q": "a", "prefix": [2]}, 400, "the prefix has the token 2"),
    ("/v1/translate", {"q": "a", "prefix": "word " * 900}, 400, "the model takes at most"),
    ("/v1/translate", {"q": "a", "glossary": "b"}, 400, "glossary: must be an object"),
    ("/v1/translate", {"q": "a", "glossary": {"": "b"}}, 400, "glossary: is empty"),
    ("/v1/translate", {"q": "a", "glossary": {str(i): "b" for i in range(101)}}, 400, "glossary: is too long"),
    ("/v1/translate", {"q": "a", "glossary": {"b": "c"}, "sample": True}, 400, "a glossary needs beam search"),
    ("/v1/translate", {"q": "a", "memory": "/etc/passwd"}, 400, "memory: Input should be a valid boolean"),
    ("/v1/translate", {"q": "a", "memory": ["m.tmx"]}, 400, "memory: Input should be a valid boolean"),
    (
        "/v1/translate",
        {"q": "a", "min_match": 0.5},
        400,
        "min_match: input should be greater than or equal to 0.7, got 0.5",
    ),
    ("/v1/translate", {"q": "a", "min_match": "all"}, 400, "min_match: Input should be a valid number"),
    ("/v1/explain", {"q": "a", "memory": False}, 400, "memory: Extra inputs are not permitted"),
    ("/v1/translate", {"q": ["a", "b"], "prefix": "I"}, 400, "prefix: is for a single line"),
    ("/v1/explain", {"q": "a", "glossary": {}}, 400, "glossary: Extra inputs are not permitted"),
    ("/v1/explain", {"q": " "}, 400, "the sentence is blank"),
    ("/v1/explain", {"q": "我 " * 400}, 400, "the sentence is too long"),
    ("/v1/translate", [], 400, "the body must be a JSON object"),
]


@pytest.mark.parametrize(("path", "body", "status", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_a_wrong_request_is_told_the_reason(client: Client, path: str, body: Any, status: int, message: str) -> None:
    answer = client.post(path, body)
    assert answer.status == status
    assert message in answer.error
    assert not re.search(r"[<\[(]|function|validation|dictionary", answer.error), "internals of a library"


NOT_JSON = [b"", b'"\xff"', b"[" * 30_000, b'{"q": ' + b"9" * 10_000 + b"}"]


@pytest.mark.parametrize("body", NOT_JSON, ids=["empty", "not UTF-8", "nested too deeply", "a number of 10,000 digits"])
def test_what_is_not_json_is_refused(client: Client, body: bytes) -> None:
    answer = client.send("POST", "/v1/translate", body, JSON)
    assert answer.status == 400
    assert answer.error


KEYS = [("schlüssel", "utf-8"), ("schlüssel", "latin-1"), ("鑰匙 🔑", "utf-8"), ("k" * 4096, "utf-8")]


@pytest.mark.parametrize(("key", "encoding"), KEYS)
def test_every_key_works_in_every_place(translator: Translator, key: str, encoding: str) -> None:
    header = f"Bearer {key}".encode(encoding).decode("latin-1")  # http.client encodes it as Latin-1
    with served(translator, keys=["first", key]) as client:
        assert client.get("/metrics", Authorization=header).status == 200
        assert client.v1("a", api_key=key).status == 200
        assert client.text(SOURCE[0], api_key=key) == TARGET[0]


def test_wrong_keys_are_refused(translator: Translator) -> None:
    with served(translator, keys=["first", "schlüssel"]) as client:
        for path in ("/translate", "/v1/translate", "/v1/explain"):
            for key in ("schlüssel.", "?", "\0", "\ud800"):
                answer = client.post(path, {"q": "a", **PAIR, "api_key": key})
                assert answer.status == 403
                assert answer.error == "the API key is missing or wrong"
        assert client.get("/metrics", Authorization="Bearer \xff\xfe").status == 403
