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
from served import PAIR, Answer, Client, form, served

from nmt.documents import SUFFIXES
from nmt.documents.files import FORMATS
from nmt.serve import documents, guard
from nmt.serve.guard import Limits
from nmt.translate.translator import Translator
from nmt.translate.units import TextHypothesis, Translation

LETTER = SOURCE[0].encode()
GONE = "there is no such file; translations are kept for 30 minutes"


def upload(client: Client, name: str | None, content: bytes, charset: str = "utf-8", **fields: str) -> Answer:
    body, headers = form(name, content, **(PAIR | fields))
    headers["Content-Type"] += f"; charset={charset}"
    return client.send("POST", "/translate_file", body, headers)


def path_of(client: Client, answer: Answer) -> str:
    """Where the translation of an uploaded document is."""
    assert list(answer.json) == ["translatedFileUrl"], answer.body
    return str(answer.json["translatedFileUrl"]).removeprefix(client.url)


def packed(name: str, text: str) -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, text)
    return file.getvalue()


def test_a_document_can_be_downloaded_twice(client: Client) -> None:
    path = path_of(client, upload(client, "a.md", b"# " + LETTER, source="auto"))
    result = client.get(path).body.decode()
    assert result == f"# {TARGET[0]}"
    result = client.get(path).body.decode()
    assert result == f"# {TARGET[0]}"


def test_formats_are_listed(client: Client) -> None:
    suffixes = client.get("/frontend/settings").json["supportedFilesFormat"]
    assert suffixes == list(SUFFIXES) == sorted([*FORMATS, ".csv", ".tmx", ".tsv", ".xcstrings"])


NAMES = [  # of an uploaded file, the charset of the form, and the name of its translation
    (rf"../../etc/ä\";{'x' * 1500}.TXT", "utf-8", f"%C3%A4%22%3B{'x' * 97}_en.txt"),
    ("\u202e\x0b.txt", "utf-8", "%E2%80%AE%0B_en.txt"),
    (r"\ud800.txt", "unicode_escape", "%3F_en.txt"),
]


@pytest.mark.parametrize(("name", "charset", "told"), NAMES, ids=["path", "control characters", "lone surrogate"])
def test_a_file_name_is_only_in_the_header_of_the_download(client: Client, name: str, charset: str, told: str) -> None:
    path = path_of(client, upload(client, name, LETTER, charset))
    assert re.fullmatch(r"/download_file/[\w-]{40,}\.txt", path)
    headers = client.get(path).headers
    assert headers["content-disposition"] == f"attachment; filename=\"{told}\"; filename*=utf-8''{told}"
    assert headers["content-type"] == "application/octet-stream"
    assert headers["cache-control"] == "no-store"


WRONG: list[tuple[str | None, bytes, dict[str, str], str]] = [  # the file's name, its content, other fields, the error
    (None, b"", {}, "file: Field required"),
    (None, b"", {"file": "a"}, "file: must be a file"),
    ("a.exe", b"a", {}, "file: its name must end in .arb, .csv, .docx, "),
    ("a.txt", b"a", {"target": "fr"}, "no model translates zh to fr; this server translates zh to en"),
    ("a.txt", b"a\xff", {}, "the file is not UTF-8 at byte 2"),
    ("a.csv", b"id,b", {"column": "c"}, "which column of the file? There are ['id', 'b']"),
    ("a.docx", packed("word/document.xml", "a" * 500_001), {}, "the file has 500,001 bytes of text, over 500,000"),
    ("a.docx", packed("word/a.png", "a" * 12_500_001), {}, "over 12,500,000 bytes unpacked"),
]


@pytest.mark.parametrize(("name", "content", "fields", "told"), WRONG)
def test_wrong_uploads_fail(
    client: Client, name: str | None, content: bytes, fields: dict[str, str], told: str
) -> None:
    answer = upload(client, name, content, **fields)
    assert answer.status == 400
    assert told in answer.error
    assert "\n" not in answer.error


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "multipart/form-data", "text/html"])
def test_what_is_no_form_is_refused_and_not_logged(client: Client, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    answer = client.send("POST", "/translate_file", b"secret", {"Content-Type": kind})
    assert answer.status == 400
    assert "secret" not in answer.error
    assert not caplog.records


def test_a_file_has_a_limit_of_its_own(translator: Translator) -> None:
    with served(translator, limits=Limits(n_file_bytes=1000)) as client:
        assert client.get("/v1/models").json["max_file_bytes"] == 1000
        assert upload(client, "a.txt", b"a" * 1000).error == "a request may have 1,000 bytes"


def test_an_upload_needs_the_key_and_a_download_its_address(translator: Translator) -> None:
    with served(translator, keys=["secret"]) as client:
        assert upload(client, "a.txt", b"a", api_key="wrong").error == "the API key is missing or wrong"
        path = path_of(client, upload(client, "a.txt", LETTER, api_key="secret"))
        assert client.get(path).status == 200


def test_the_oldest_translations_make_room(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MAX_KEPT_BYTES", 1)  # the newest one is kept however large it is
    first = path_of(client, upload(client, "a.txt", LETTER))
    second = path_of(client, upload(client, "a.txt", LETTER))
    assert client.get(first).error == GONE
    assert client.get(second).status == 200


def test_translations_expire(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "KEPT_S", 0.1)
    path = path_of(client, upload(client, "a.txt", LETTER))
    wait_until(lambda: client.get(path).status == 404)


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
    # The second document waits for the first, a request does not.
    with served(translator) as client, ThreadPoolExecutor(1) as pool:
        with contextlib.closing(client.connect()) as connection:
            connection.request("POST", "/translate_file", *form("a.txt", b"a", **PAIR))
            assert started.wait(PATIENCE_S)
            assert client.text(SOURCE[0]) == TARGET[0]
            second = pool.submit(upload, client, "a.docx", b"a")  # waits: its body is not read yet
            time.sleep(0.3)
            assert not second.done()
        assert "damaged" in second.result(PATIENCE_S).error
        # The generator of its sentences is closed.
        gc.collect()
        assert ended.wait(PATIENCE_S)
