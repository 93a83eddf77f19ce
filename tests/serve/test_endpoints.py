"""The endpoints of a served model: LibreTranslate's API, our own API, and refused requests."""

import contextlib
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import PATIENCE_S, SOURCE, TARGET
from libretranslatepy import LibreTranslateAPI  # type: ignore[import-untyped]
from models import small_translator
from served import FORM, JSON, Client, events_of, served

from nmt.insight.pages import content_security_policy, hash_source
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.translate.loading import load
from nmt.translate.translator import Translator


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[Client]:
    with served(translator) as client:
        yield client


def test_libretranslates_client_works(client: Client) -> None:
    libre = LibreTranslateAPI(client.url)
    assert [libre.translate(text, "zh", "en") for text in SOURCE] == TARGET
    chinese, english = libre.languages()
    assert chinese == {"code": "zh", "name": "Chinese", "targets": ["en"]}
    assert english == {"code": "en", "name": "English", "targets": []}


def test_a_list_gives_a_list_and_alternatives_are_others(client: Client) -> None:
    body = {"q": SOURCE, "source": "zh", "target": "en", "format": "text", "alternatives": 2}
    found = client.post("/translate", body).json
    assert found["translatedText"] == TARGET
    assert [len(of_text) for of_text in found["alternatives"]] == [2] * len(SOURCE)
    assert all(TARGET[i] not in of_text for i, of_text in enumerate(found["alternatives"]))
    one = client.post("/translate", {**body, "q": SOURCE[0]}).json
    assert one == {"translatedText": TARGET[0], "alternatives": found["alternatives"][0]}
    for empty in ("", list[str]()):
        assert client.post("/translate", {**body, "q": empty}).json["translatedText"] == empty


def test_confidences_are_answered_on_request(client: Client) -> None:
    body = {"q": SOURCE, "source": "zh", "target": "en", "confidence": True}
    found = client.post("/translate", body).json
    assert found["translatedText"] == TARGET
    assert all(0 < one < 1 for one in found["confidence"])
    one = client.post("/translate", {**body, "q": SOURCE[0]}).json
    assert one["confidence"] == pytest.approx(found["confidence"][0])
    assert "confidence" not in client.post("/translate", {**body, "format": "html"}).json


def test_lines_stay_lines_and_auto_is_the_only_language_that_fits(client: Client) -> None:
    body = {"q": f"{SOURCE[0]}\n\n{SOURCE[1]}\r\n", "source": "zh-CN", "target": "en"}
    expected = {"translatedText": f"{TARGET[0]}\n\n{TARGET[1]}\n"}
    assert client.post("/translate", body).json == expected
    detected = {"detectedLanguage": {"language": "zh", "confidence": 0}}
    assert client.post("/translate", {**body, "source": "auto"}).json == expected | detected


def test_tags_of_html_stay(client: Client) -> None:
    tagged = [f"<p>{SOURCE[0]}</p>", f"<b>{SOURCE[1]}</b><br>{SOURCE[2]}", "<hr>"]
    body = {"source": "zh", "target": "en", "format": "html"}
    expected = [f"<p>{TARGET[0]}</p>", f"<b>{TARGET[1]}</b><br>{TARGET[2]}", "<hr>"]
    assert client.post("/translate", {"q": tagged, **body}).json["translatedText"] == expected
    words = SOURCE[3].split()
    inside = " ".join([words[0], f"<i>{words[1]}</i>", *words[2:]])
    answer = client.post("/translate", {"q": inside, "alternatives": 2, **body}).json
    texts = [answer["translatedText"], *answer["alternatives"]]
    assert re.sub("</?i>", "", texts[0]) == TARGET[3]
    assert len(set(texts)) == len(texts) == 3
    assert all(re.fullmatch("[^<]*<i>[^<]*</i>[^<]*", text) for text in texts)


def test_placeholders_stay(client: Client, translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(translator, "options", translator.with_options(protect_placeholders=True))
    body = {"q": "<b>{a}</b>%s 茶 😀", "source": "zh", "target": "en"}
    for kind, spans in (("text", ["<b>{a}</b>%s", "😀"]), ("html", ["{a}", "%s", "<b>", "😀"])):
        found = client.post("/translate", {**body, "format": kind}).json["translatedText"]
        assert all(found.count(span) == 1 for span in spans)
    streamed = client.post("/v1/translate", {"q": body["q"], "stream": True}).body.decode()
    assert "<b>{a}</b>%s" in streamed


def test_a_lone_surrogate_is_replaced(client: Client) -> None:
    assert client.post("/v1/translate", {"q": "\ud800"}).json["translations"][0]["source"] == "?"
    answer = client.post("/translate", {"q": "a", "source": "\ud800", "target": "en"})
    assert answer.error.startswith("no model translates ? to en")


def test_the_answer_has_what_the_translator_finds(client: Client, translator: Translator) -> None:
    found = client.post("/v1/translate", {"q": SOURCE, "beam": 4, "n_best": 3}).json
    expected = list(translator.translate_lines(SOURCE, translator.with_options(beam=4, n_best=3)))
    assert (found["source"], found["target"]) == ("zh", "en")
    for line, translation in zip(found["translations"], expected, strict=True):
        for got, hypothesis in zip(line["hypotheses"], translation.hypotheses, strict=True):
            assert {name: got[name] for name in ("text", "pieces", "tokens")}.items() <= vars(hypothesis).items()
            assert got["score"] == pytest.approx(hypothesis.score, abs=1e-5)
            assert sum(got["log_probs"]) == pytest.approx(got["log_prob"], abs=1e-5)


def test_a_stream_grows_to_the_translation(client: Client) -> None:
    answer = client.post("/v1/translate", {"q": SOURCE[:2], "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *partial, (kind, last) = events_of(answer)
    assert {kind for kind, _ in partial} == {"partial"}
    for line in (0, 1):
        texts = [data["text"] for _, data in partial if data["line"] == line]
        assert texts[0] == TARGET[line].split()[0]
        assert texts[-1] == TARGET[line]
        assert texts == sorted(texts, key=len)
    assert kind == "done"
    assert [line["hypotheses"][0]["text"] for line in last["translations"]] == TARGET[:2]


def test_a_prefix_is_text_or_tokens(client: Client, translator: Translator) -> None:
    for prefix in ("They", translator.encode_prefix("They")):
        found = client.post("/v1/translate", {"q": SOURCE[0], "prefix": prefix}).json
        assert found["translations"][0]["hypotheses"][0]["text"].startswith("They")


def test_samples_are_drawn_by_the_seed(client: Client) -> None:
    body = {"q": SOURCE[0], "sample": True, "temperature": 3.0, "n_best": 4}
    first, same, other = (client.post("/v1/translate", {**body, "seed": seed}).json for seed in (1, 1, 2))
    assert first == same != other
    assert len(first["translations"][0]["hypotheses"]) == 4


def test_explain_gives_alternatives_attention_and_the_tree(client: Client) -> None:
    found = client.post("/v1/explain", {"q": SOURCE[0], "beam": 3}).json
    best = found["hypotheses"][0]
    assert (best["text"], len(found["hypotheses"])) == (TARGET[0], 3)
    assert len(found["cross"]) == len(best["tokens"])
    assert [sum(row) for row in found["cross"]] == pytest.approx([1] * len(best["tokens"]), abs=1e-4)
    path = [node["token"] for node in found["tree"] if node["is_best"]]
    assert path == [token["token"] for token in best["tokens"]]
    second = best["tokens"][0]["alternatives"][1]
    prefixed = client.post("/v1/explain", {"q": SOURCE[0], "prefix": [second["token"]]}).json
    first = prefixed["hypotheses"][0]["tokens"][0]
    assert (first["token"], first["piece"], first["rank"]) == (second["token"], second["piece"], 2)
    assert first["log_prob"] == pytest.approx(second["log_prob"], abs=1e-4)  # rounding depends on the length


def test_the_page_of_an_explanation_allows_only_its_own_script(client: Client) -> None:
    answer = client.send("POST", "/explain", "q=" + "%E6%88%91&beam=2", FORM)
    page = answer.body.decode()
    assert answer.status == 200
    assert answer.headers["content-security-policy"] == content_security_policy(page)
    script = page.partition("<script>")[2].partition("</script>")[0]
    assert hash_source(script) in answer.headers["content-security-policy"]
    assert "unsafe-inline" not in page


@pytest.mark.parametrize("path", ["/explain", "/v1/explain", "/v1/translate"])
def test_work_that_nobody_waits_for_ends(
    client: Client, translator: Translator, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    started, ended = threading.Event(), threading.Event()

    def endless(*_: Any, trace: Callable[[Any], None], **__: Any) -> None:
        started.set()
        try:
            while True:
                trace(None)
                time.sleep(0.01)
        finally:
            ended.set()

    def running(watch: Callable[[Any], None]) -> Any:
        return SimpleNamespace(result=lambda: endless(trace=lambda _: watch(list)))

    with monkeypatch.context() as patch, contextlib.closing(client.connect()) as connection:
        patch.setattr("nmt.insight.explain.search", endless)
        patch.setattr(translator, "start", lambda *args: running(args[-1]))
        connection.request("POST", path, json.dumps({"q": SOURCE[0]}), JSON)
        assert started.wait(PATIENCE_S)
        connection.close()
        assert ended.wait(PATIENCE_S / 2)
    assert client.post("/v1/translate", {"q": SOURCE[0]}).status == 200


def test_metrics_count_requests_and_batches(client: Client) -> None:
    client.post("/v1/translate", {"q": SOURCE})
    client.get("/no/such/page")
    text = client.get("/metrics").body.decode()
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert float(values['nmt_request_seconds_count{path="/v1/translate",status="200"}']) >= 1
    assert float(values['nmt_request_seconds_count{path="other",status="404"}']) >= 1
    assert float(values["nmt_batch_lines_sum"]) >= len(SOURCE)
    assert float(values["nmt_pieces_total"]) > 20
    assert values["nmt_requests_waiting"] == "0.0"


def test_pages_and_what_they_load(client: Client) -> None:
    assert client.get("/health").json["status"] == "ok"
    for path, media_type in (("/", "text/html"), ("/docs", "text/html"), ("/static/serve.js", "text/javascript")):
        answer = client.get(path)
        assert answer.status == 200
        assert answer.headers["content-type"].startswith(media_type)
        assert "unsafe-inline" not in answer.headers["content-security-policy"]
        assert b"http" not in answer.body.replace(b"http://www.w3.org/2000/svg", b""), "nothing from outside"
    assert client.get("/static/../api.py").error == "Not Found"
    described = client.get("/openapi.json").json
    assert set(described["paths"]) == {
        "/detect", "/download_file/{name}", "/frontend/settings", "/health", "/languages", "/metrics", "/translate",
        "/translate_file", "/v1/explain", "/v1/models", "/v1/translate"
    }  # fmt: skip


PAIR = {"source": "zh", "target": "en"}
REFUSED: list[tuple[str, Any, int, str]] = [
    ("/translate", PAIR, 400, "q: Field required"),
    ("/translate", {"q": "a", **PAIR, "source": "fr"}, 400, "no model translates fr to en; this server translates zh"),
    ("/translate", {"q": "a", **PAIR, "format": "docx"}, 400, "format: Input should be 'text' or 'html'"),
    ("/translate", {"q": [1], **PAIR}, 400, "q: Input should be a valid string"),
    ("/translate", {"q": "a" * 5001, **PAIR}, 413, "the text has 5,001 characters, a request may have 5,000"),
    ("/translate", {"q": ["a"] * 64 + ["a\nb"], **PAIR}, 413, "the text has 66 lines, a request may have 64"),
    ("/v1/translate", {"q": "a", "beem": 3}, 400, "beem: Extra inputs are not permitted"),
    ("/v1/translate", {"q": "a", "beam": 10**9}, 400, "beam: Input should be less than or equal to 16"),
    ("/v1/translate", {"q": "a", "n_best": 9}, 400, "n_best is 9, but there are 5 hypotheses"),
    ("/v1/translate", {"q": "a", "prefix": [2]}, 400, "the prefix has the token 2"),
    ("/v1/translate", {"q": "a", "prefix": "word " * 900}, 400, "the model takes at most"),
    ("/v1/translate", {"q": ["a", "b"], "prefix": "I"}, 400, "prefix: is for a single line"),
    ("/v1/explain", {"q": " "}, 400, "the sentence is blank"),
    ("/v1/explain", {"q": "我 " * 400}, 400, "the sentence is too long"),
    ("/v1/explain", {"q": "a", "prefix": "a" * 5001}, 400, "prefix: String should have at most 5000 characters"),
    ("/v1/translate", [], 400, "the body must be a JSON object"),
]


@pytest.mark.parametrize(("path", "body", "status", "message"), REFUSED, ids=[message for *_, message in REFUSED])
def test_a_wrong_request_is_told_the_reason(client: Client, path: str, body: Any, status: int, message: str) -> None:
    answer = client.post(path, body)
    assert answer.status == status
    assert message in answer.error
    assert not re.search(r"[<\[(]|function|validation|dictionary", answer.error), "internals of a library"


@pytest.mark.parametrize("body", [b"", b'"\xff"', b"[" * 30_000, b'{"q": ' + b"9" * 10_000 + b"}"])
def test_what_is_not_json_is_refused(client: Client, body: bytes) -> None:
    answer = client.send("POST", "/v1/translate", body, JSON)
    assert answer.status == 400
    assert answer.error


@pytest.mark.parametrize(
    ("key", "encoding"), [("schlüssel", "utf-8"), ("schlüssel", "latin-1"), ("鑰匙 🔑", "utf-8"), ("k" * 4096, "utf-8")]
)
def test_every_key_works_in_every_place(translator: Translator, key: str, encoding: str) -> None:
    body = {"q": SOURCE[0], **PAIR}
    with served(translator, keys=["first", key]) as client:
        header = f"Bearer {key}".encode(encoding).decode("latin-1")  # http.client encodes it as Latin-1
        assert client.get("/metrics", Authorization=header).status == 200
        assert LibreTranslateAPI(client.url, key).translate(SOURCE[0], "zh", "en") == TARGET[0]
        assert client.post("/v1/translate", {**body, "api_key": key}).status == 200
        for wrong in (f"{key}.", "?", "\0", "\ud800", ""):
            for path in ("/translate", "/v1/translate", "/v1/explain"):
                assert client.post(path, {**body, "api_key": wrong}).error == "the API key is missing or wrong"
        assert client.get("/metrics", Authorization="Bearer \xff\xfe").status == 403
        assert client.get("/v1/models").json["needs_key"] is True
        assert client.get("/health").status == 200


def test_an_export_has_no_steps_to_show(translator: Translator, tmp_path: Path) -> None:
    to_ctranslate2(translator, tmp_path / "export")
    with served(load(tmp_path / "export")) as client:
        assert client.get("/v1/models").json["models"][0]["explains"] is False
        assert client.post("/v1/explain", {"q": SOURCE[0]}).error == "CTranslate2 has no attention weights"
        ((kind, _),) = events_of(client.post("/v1/translate", {"q": SOURCE[0], "stream": True}))
        assert kind == "done"
        assert client.post("/v1/translate", {"q": "a", "sample": True}).status == 400
        streamed = events_of(client.post("/v1/translate", {"q": "a", "sample": True, "stream": True}))
        assert streamed == [("error", {"error": "CTranslate2 has no sampling with a seed for each line"})]


def test_a_model_that_names_no_languages() -> None:
    small = small_translator(train={"source": "a", "target": "b"})
    with served(small) as client:
        assert client.get("/languages").json == [{"code": "und", "name": "Unknown language", "targets": ["und"]}]
        assert client.post("/v1/translate", {"q": "a cat"}).status == 200
