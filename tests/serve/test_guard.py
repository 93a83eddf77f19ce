"""What the guard lets through, and what it says; tests/reliability/hostile.toml has the requests that it refuses."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import pytest
from conftest import PATIENCE_S, SOURCE
from served import FORM, JSON, PAIR, Client, form, served

from nmt.serve.guard import Limits
from nmt.translate.translator import Translator

GOOD = {"q": SOURCE[0], **PAIR}
HEAD = b"POST /translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[Client]:
    with served(translator, hosts=["Translate.example"]) as client:
        yield client


def status_of(client: Client, data: bytes) -> bytes:
    """Send raw bytes; return the status in what is received until the server closes the connection."""
    received = b""
    # The server may close the connection before it has read all.
    address = ("127.0.0.1", client.port)
    with socket.create_connection(address, PATIENCE_S) as connection, contextlib.suppress(OSError):
        connection.sendall(data)
        while part := connection.recv(65_536):
            received += part
    return received[9:12]


@pytest.mark.parametrize("host", ["localhost:80", "127.0.0.1", "[::1]:5000", "192.168.1.7:5000", "translate.example"])
def test_known_hosts_are_answered(client: Client, host: str) -> None:
    assert client.get("/health", Host=host).status == 200


QUERY = "/translate?q=a&source=zh&target=en"
FORMS = {  # path, body, headers
    "JSON": ("/translate", json.dumps(GOOD), JSON),
    "a form": ("/translate", QUERY.partition("?")[2], FORM),
    "a form in parts": ("/translate", *form(None, b"", **GOOD)),
    "a query string": (QUERY, "", {}),
    "a file": ("/translate_file", *form("a.txt", b"a", source="zh", target="en")),
    "a page": ("/explain", "q=a", FORM),
}


@pytest.mark.parametrize("shape", FORMS)
def test_requests_of_every_form_are_answered(client: Client, shape: str) -> None:
    path, body, headers = FORMS[shape]
    result = client.send("POST", path, body, headers).status
    assert result == 200


FOREIGN = [  # headers of other pages, and the status of the answer
    ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, 403),
    ({"Origin": "http://evil.localhost", "Sec-Fetch-Site": "cross-site"}, 403),
    ({"Origin": "null", "Sec-Fetch-Site": "cross-site"}, 403),
    ({"Origin": "http://evil.example", "Host": "evil.example"}, 421),
]


@pytest.mark.parametrize(("foreign", "status"), FOREIGN)
@pytest.mark.parametrize("shape", FORMS)
def test_other_origins_and_hosts_are_refused_in_every_form(
    client: Client, shape: str, foreign: dict[str, str], status: int
) -> None:
    path, body, headers = FORMS[shape]
    answer = client.send("POST", path, body, headers | foreign)
    assert answer.status == status


@pytest.mark.parametrize("path", [QUERY, "/v1/translate?q=a", "/v1/explain?q=a", "/detect?q=a"])
def test_a_link_translates_nothing(client: Client, path: str) -> None:
    outcome = client.get(path, **{"Sec-Fetch-Site": "cross-site"}).status
    assert outcome == 405


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/metrics", "/languages", "/v1/models", "/download_file/a"])
def test_pages_of_other_origins_see_no_answer(client: Client, path: str) -> None:
    headers = client.get(path, Origin="https://evil.example").headers
    assert "access-control-allow-origin" not in headers
    assert client.get(path, Host="evil.example").status == 421


def test_our_pages_are_answered(client: Client) -> None:
    assert client.translate("a").status == 200
    result = client.post("/translate", GOOD, Origin=client.url).status
    assert result == 200


def test_large_bodies_are_refused(client: Client) -> None:
    answer = client.send("POST", "/translate", b" " * 65_537, JSON)
    assert (answer.status, answer.error) == (413, "a request may have 65,536 bytes")


def test_large_chunked_bodies_are_refused(client: Client) -> None:
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    result = status_of(client, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + 3 * chunk)
    assert result == b"413"


def test_slow_bodies_are_refused(translator: Translator) -> None:
    with served(translator, limits=Limits(read_s=0.3)) as client:
        assert status_of(client, HEAD + b"Content-Length: 100\r\n\r\n{") == b"408"


def test_slow_models_are_not_waited_for(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(translator, "start", lambda *_: ended.wait(PATIENCE_S))
    error = "no translation within 0.3 s"
    with served(translator, limits=Limits(answer_s=0.3)) as client:
        answer = client.v1("a")
        assert (answer.status, answer.error) == (504, error)
        assert client.stream("a") == [("error", {"error": error})]
        assert client.get("/health").status == 200
        ended.set()


def test_markup_stays_text(client: Client) -> None:
    text = "<script>alert(1)</script>"
    answer = client.v1(text)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    result = answer.json["translations"][0]["source"]
    assert result == text
