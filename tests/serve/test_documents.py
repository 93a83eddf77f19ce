"""Documents that are uploaded, translated and downloaded, as LibreTranslate's clients do it."""

import contextlib
import gc
import re
import threading
import time
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import pytest
from conftest import PATIENCE_S, SOURCE, TARGET, wait_until
from served import Answer, Client, served

from nmt.documents import SUFFIXES
from nmt.documents.files import FORMATS
from nmt.serve import documents, guard
from nmt.serve.guard import Limits
from nmt.translate.translator import Translator
from nmt.translate.units import TextHypothesis, Translation

PAIR = {"source": "zh", "target": "en"}
WORD = "word/document.xml"


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[Client]:
    with served(translator) as client:
        yield client


def form(name: str | None, content: bytes, **fields: str) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a form with a file and other fields."""
    parts = [f'name="{key}"\r\n\r\n{value}'.encode() for key, value in fields.items()]
    if name is not None:
        parts.append(f'name="file"; filename="{name}"\r\nContent-Type: text/html\r\n\r\n'.encode() + content)
    body = b"".join(b"--limit\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts)
    return body + b"--limit--\r\n", {"Content-Type": "multipart/form-data; boundary=limit"}


def upload(client: Client, name: str | None, content: bytes, **fields: str) -> Answer:
    return client.send("POST", "/translate_file", *form(name, content, **(PAIR | fields)))


def path_of(client: Client, answer: Answer) -> str:
    assert list(answer.json) == ["translatedFileUrl"], answer.body
    return str(answer.json["translatedFileUrl"]).removeprefix(client.url)


def packed(name: str, text: str) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return file.getvalue()


def test_a_document_is_translated_and_downloaded(client: Client) -> None:
    text = path_of(client, upload(client, "a.md", f"# {SOURCE[0]}\n".encode(), source="auto"))
    for _ in range(2):
        assert client.get(text).body == f"# {TARGET[0]}\n".encode()
    settings = client.get("/frontend/settings").json
    assert settings["supportedFilesFormat"] == list(SUFFIXES) == sorted([*FORMATS, ".csv"])


def test_file_names_are_only_repeated_in_the_header_of_the_download(client: Client) -> None:
    for name, charset, told in (
        (rf"../../etc/ä\";{'x' * 1500}.TXT", "utf-8", f"%C3%A4%22%3B{'x' * 97}_en.txt"),
        ("\u202e\x0b.txt", "utf-8", "%E2%80%AE%0B_en.txt"),
        (r"\ud800.txt", "unicode_escape", "%3F_en.txt"),
    ):
        body, headers = form(name, SOURCE[0].encode(), **PAIR)
        headers["Content-Type"] += f"; charset={charset}"
        path = path_of(client, client.send("POST", "/translate_file", body, headers))
        assert re.fullmatch(r"/download_file/[\w-]{40,}\.txt", path)
        found = client.get(path).headers
        assert found["content-disposition"] == f"attachment; filename=\"{told}\"; filename*=utf-8''{told}"
        assert (found["content-type"], found["cache-control"]) == ("application/octet-stream", "no-store")


@pytest.mark.parametrize(
    ("name", "content", "fields", "told"),
    [
        (None, b"", PAIR, "file: Field required"),
        (None, b"", {**PAIR, "file": "a"}, "file: must be a file"),
        ("a.exe", b"a", PAIR, "file: its name must end in .csv, .docx, "),
        ("a.txt", b"a", {**PAIR, "target": "fr"}, "no model translates zh to fr; this server translates zh to en"),
        ("a.txt", b"a\xff", PAIR, "the file is not UTF-8 at byte 2"),
        ("a.csv", b"id,b", {**PAIR, "column": "c"}, "which column of the file? There are ['id', 'b']"),
        ("a.docx", packed(WORD, "a" * 524_289), PAIR, "the file has 524,289 bytes of text, over 524,288"),
        ("a.docx", packed("word/a.png", "a" * 13_107_201), PAIR, "over 13,107,200 bytes unpacked"),
    ],
)
def test_wrong_uploads_fail(client: Client, name: str, content: bytes, fields: dict[str, str], told: str) -> None:
    answer = client.send("POST", "/translate_file", *form(name, content, **fields))
    assert (answer.status, "\n" in answer.error) == (400, False)
    assert told in answer.error


def test_what_is_no_form_is_refused_and_not_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    for kind, status in (("multipart/form-data; boundary=x", 400), ("multipart/form-data", 400), ("text/html", 415)):
        answer = client.send("POST", "/translate_file", b"secret", {"Content-Type": kind})
        assert (answer.status, "secret" in answer.error) == (status, False)
    assert not caplog.records


def test_other_limits_hold_and_translations_expire(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_KEPT_BYTES", 3 * len(TARGET[0]) // 2)
    with served(translator, keys=["secret"], limits=Limits(n_file_bytes=1000)) as client:
        assert client.get("/v1/models").json["max_file_bytes"] == 1000
        assert upload(client, "a.txt", b"a" * 1000).error == "a request may have 1,000 bytes"
        assert upload(client, "a.txt", b"a", api_key="wrong").error == "the API key is missing or wrong"
        body, headers = form("a.txt", SOURCE[0].encode(), **PAIR, api_key="secret")
        sent = "POST", "/translate_file", body
        first, second = (path_of(client, client.send(*sent, headers)) for _ in range(2))
        assert client.get(first).error == "there is no such file; translations are kept for 30 minutes"
        assert client.get(second).status == 200, "the address is the key of a download"
        monkeypatch.setattr(documents, "KEPT_S", 0.1)
        third = path_of(client, client.send(*sent, headers))
        wait_until(lambda: client.get(third).status == 404)
        assert client.send(*sent, {**headers, "Origin": "http://evil.example"}).status == 403


def test_a_document_delays_little_and_is_given_up(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    started, ended = threading.Event(), threading.Event()

    def endless(*_: object, **__: object) -> Iterator[Translation]:
        started.set()
        try:
            while True:
                time.sleep(0.001)
                yield Translation("", [TextHypothesis([], [], 0.0, [], "")])
        finally:
            ended.set()

    monkeypatch.setattr(translator, "translate_lines", endless)
    monkeypatch.setattr(guard, "MAX_FILES", 1)
    with served(translator) as client, ThreadPoolExecutor(1) as pool:
        with contextlib.closing(client.connect()) as connection:
            connection.request("POST", "/translate_file", *form("a.txt", b"a", **PAIR))
            assert started.wait(PATIENCE_S)
            assert client.post("/translate", {"q": SOURCE[0], **PAIR}).json == {"translatedText": TARGET[0]}
            other = pool.submit(upload, client, "a.docx", b"a")  # waits: its body is not read yet
            time.sleep(0.3)
            assert not other.done()
        assert "damaged" in other.result(PATIENCE_S).error
        gc.collect()
        assert ended.wait(PATIENCE_S)
