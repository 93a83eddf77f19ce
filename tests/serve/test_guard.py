"""Hostile requests are refused; tests/reliability/test_clients.py sends them to a busy server."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import pytest
from conftest import PATIENCE_S, SOURCE
from served import FORM, JSON, Client, events_of, served

from nmt.serve.guard import Limits
from nmt.translate.translator import Translator

GOOD = {"q": SOURCE[0], "source": "zh", "target": "en"}
HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[Client]:
    with served(translator, hosts=["Translate.example"]) as client:
        yield client


def raw(client: Client, data: bytes) -> bytes:
    """Send raw bytes; return all that is received until the server closes the connection."""
    received, address = b"", ("127.0.0.1", client.port)
    with socket.create_connection(address, timeout=PATIENCE_S) as connection, contextlib.suppress(OSError):
        connection.sendall(data)
        while part := connection.recv(65_536):
            received += part
    return received


def test_only_known_hosts_are_answered(client: Client) -> None:
    for host in ("localhost:80", "127.0.0.1", "[::1]:5000", "192.168.1.7:5000", "translate.example"):
        assert client.get("/health", Host=host).status == 200
    for host in ("evil.example", "localhost.evil.example", "", "[", "a b"):
        assert client.get("/health", Host=host).status == 421


def test_pages_of_other_origins_are_refused(client: Client) -> None:
    here = f"127.0.0.1:{client.port}"
    assert client.post("/translate", GOOD, Origin=f"http://{here}").status == 200
    for origin in ("http://evil.example", "null", f"http://{here}.evil.example", "http://[", "\xff", ""):
        assert client.post("/translate", GOOD, Origin=origin).status == 403


@pytest.mark.parametrize("media_type", ["text/plain", "", "application/xml", "multipart/form-data; boundary=x"])
def test_other_media_types_are_refused(client: Client, media_type: str) -> None:
    answer = client.send("POST", "/translate", json.dumps(GOOD), {"Content-Type": media_type})
    assert answer.status == 415
    assert answer.error == "send the request as application/json, without Content-Encoding"
    assert client.send("POST", "/translate", b"x", {**JSON, "Content-Encoding": "gzip"}).status == 415


def test_forms_are_for_libretranslates_clients(client: Client) -> None:
    assert client.send("POST", "/v1/translate", b"q=a", FORM).status == 415
    assert client.send("POST", "/translate", b"q=%ff&source=zh&target=en", FORM).status == 400
    assert client.send("POST", "/translate", "q=ä".encode(), FORM).status == 400
    assert client.send("POST", "/translate", b"a=1&" * 40, FORM).status == 400
    assert client.send("POST", "/translate", b"q=&source=zh&target=en&extra=1", FORM).json == {"translatedText": ""}


def test_large_bodies_are_refused(client: Client) -> None:
    answer = client.send("POST", "/translate", b" " * 65_537, JSON)
    assert (answer.status, answer.error) == (413, "a request may have 65,536 bytes")
    for length in (b"1" * 20, b"-1", b"x", b"1\r\nContent-Length: 2"):
        assert raw(client, HEAD + b"Content-Length: " + length + b"\r\n\r\n{}")[9:12] in (b"400", b"413")
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    assert raw(client, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + 3 * chunk)[9:12] == b"413"


def test_slow_bodies_and_slow_models_end(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(translator, limits=Limits(read_s=0.3)) as client:
        assert raw(client, HEAD + b"Content-Length: 100\r\n\r\n{")[9:12] == b"408"
    ended = threading.Event()
    monkeypatch.setattr(translator, "start", lambda *_: ended.wait(PATIENCE_S))
    with served(translator, limits=Limits(answer_s=0.3)) as client:
        answer = client.post("/v1/translate", {"q": "a"})
        assert (answer.status, answer.error) == (504, "no translation within 0.3 s")
        (streamed,) = events_of(client.post("/v1/translate", {"q": "a", "stream": True}))
        assert streamed == ("error", {"error": "no translation within 0.3 s"})
        assert client.get("/health").status == 200
        ended.set()


def test_markup_stays_text(client: Client) -> None:
    text = "<script>alert(1)</script>"
    answer = client.post("/v1/translate", {"q": text})
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.json["translations"][0]["source"] == text
