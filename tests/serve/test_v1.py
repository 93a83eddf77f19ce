"""Our own endpoints: n-best lists, streams, explanations."""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE_S, SOURCE, TARGET
from served import FORM, JSON, Client, events_of, served

from nmt.insight.pages import content_security_policy, hash_source
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.translate.translator import Translator, load


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[Client]:
    with served(translator) as client:
        yield client


def test_the_answer_has_what_the_translator_finds(client: Client, translator: Translator) -> None:
    answer = client.post("/v1/translate", {"q": SOURCE[0], "beam": 4, "n_best": 3}).json
    options = translator.with_options(beam=4, n_best=3)
    (expected,) = translator.translate_lines(SOURCE[:1], options)
    assert (answer["source"], answer["target"]) == ("zh", "en")
    (line,) = answer["translations"]
    for answered, hypothesis in zip(line["hypotheses"], expected.hypotheses, strict=True):
        assert answered["text"] == hypothesis.text
        assert answered["pieces"] == hypothesis.pieces
        assert answered["tokens"] == hypothesis.tokens
        assert answered["score"] == pytest.approx(hypothesis.score, abs=1e-5)
        assert answered["log_prob"] == pytest.approx(hypothesis.log_prob, abs=1e-5)
        assert answered["log_probs"] == pytest.approx(hypothesis.log_probs, abs=1e-5)


def test_lines_are_answered_in_order(client: Client) -> None:
    lines = client.post("/v1/translate", {"q": SOURCE}).json["translations"]
    assert [line["source"] for line in lines] == SOURCE
    assert [line["hypotheses"][0]["text"] for line in lines] == TARGET


def test_a_stream_ends_with_the_translation(client: Client) -> None:
    answer = client.post("/v1/translate", {"q": SOURCE[:2], "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    kind, last = events_of(answer)[-1]
    assert kind == "done"
    assert last == client.post("/v1/translate", {"q": SOURCE[:2]}).json | last
    assert [line["hypotheses"][0]["text"] for line in last["translations"]] == TARGET[:2]


@pytest.mark.parametrize("line", [0, 1])
def test_each_line_of_a_stream_grows_to_its_translation(client: Client, line: int) -> None:
    *partial, _ = events_of(client.post("/v1/translate", {"q": SOURCE[:2], "stream": True}))
    assert {kind for kind, _ in partial} == {"partial"}
    texts = [data["text"] for _, data in partial if data["line"] == line]
    assert texts[0] == TARGET[line].split()[0]
    assert texts[-1] == TARGET[line]
    assert texts == sorted(texts, key=len)


def test_a_prefix_is_text_or_tokens(client: Client, translator: Translator) -> None:
    for prefix in ("They", translator.encode_prefix("They")):
        (line,) = client.post("/v1/translate", {"q": SOURCE[0], "prefix": prefix}).json["translations"]
        assert line["hypotheses"][0]["text"].startswith("They")


def test_samples_are_drawn_by_the_seed(client: Client) -> None:
    body = {"q": SOURCE[0], "sample": True, "temperature": 3.0, "n_best": 4}
    first, same, different = (client.post("/v1/translate", {**body, "seed": seed}).json for seed in (1, 1, 2))
    assert first == same != different
    assert len(first["translations"][0]["hypotheses"]) == 4


@pytest.fixture(scope="module")
def explanation(client: Client) -> Any:
    return client.post("/v1/explain", {"q": SOURCE[0], "beam": 3}).json


def test_an_explanation_has_all_hypotheses(explanation: Any) -> None:
    assert len(explanation["hypotheses"]) == 3
    assert explanation["hypotheses"][0]["text"] == TARGET[0]


def test_an_explanation_has_attention_weights_of_each_token(explanation: Any) -> None:
    n_tokens = len(explanation["hypotheses"][0]["tokens"])
    assert [sum(row) for row in explanation["cross"]] == pytest.approx([1] * n_tokens, abs=1e-4)


def test_an_explanation_has_the_tree_of_the_search(explanation: Any) -> None:
    path = [node["token"] for node in explanation["tree"] if node["is_best"]]
    assert path == [token["token"] for token in explanation["hypotheses"][0]["tokens"]]


def test_an_alternative_of_an_explanation_can_be_a_prefix(client: Client, explanation: Any) -> None:
    second = explanation["hypotheses"][0]["tokens"][0]["alternatives"][1]
    prefixed = client.post("/v1/explain", {"q": SOURCE[0], "prefix": [second["token"]]}).json
    first = prefixed["hypotheses"][0]["tokens"][0]
    assert (first["token"], first["piece"], first["rank"]) == (second["token"], second["piece"], 2)
    assert first["log_prob"] == pytest.approx(second["log_prob"], abs=1e-4)  # rounding depends on the length


def test_the_page_of_an_explanation_allows_only_its_own_script(client: Client) -> None:
    answer = client.send("POST", "/explain", "q=%E6%88%91&beam=2", FORM)
    page = answer.body.decode()
    policy = answer.headers["content-security-policy"]
    assert policy == content_security_policy(page)
    script = page.partition("<script>")[2].partition("</script>")[0]
    assert hash_source(script) in policy
    assert "unsafe-inline" not in page


class Endless:
    """Work that ends only if it is stopped at one of its checks."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.ended = threading.Event()

    def run(self, check: Callable[[], object]) -> None:
        self.started.set()
        try:
            while True:
                check()
                time.sleep(0.01)
        finally:
            self.ended.set()


@pytest.mark.parametrize("path", ["/explain", "/v1/explain", "/v1/translate"])
def test_work_that_nobody_waits_for_ends(
    client: Client, translator: Translator, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    endless = Endless()

    def explain(*_: Any, trace: Callable[[Any], None], **__: Any) -> None:
        endless.run(lambda: trace(None))

    def start(*arguments: Any) -> Callable[[], None]:
        watch = arguments[-1]
        return lambda: endless.run(lambda: watch(str))

    with monkeypatch.context() as patch, contextlib.closing(client.connect()) as connection:
        patch.setattr("nmt.insight.explain.search", explain)
        patch.setattr(translator, "start", start)
        connection.request("POST", path, json.dumps({"q": SOURCE[0]}), JSON)
        assert endless.started.wait(PATIENCE_S)
        connection.close()
        assert endless.ended.wait(PATIENCE_S / 2)
    assert client.status(SOURCE[0]) == 200


@pytest.fixture(scope="module")
def exported(translator: Translator, folder: Path) -> Iterator[Client]:
    """A server of an export to CTranslate2."""
    to_ctranslate2(translator, folder / "export")
    with served(load(folder / "export")) as client:
        yield client


def test_an_export_has_no_explanation(exported: Client) -> None:
    assert exported.get("/v1/models").json["models"][0]["explains"] is False
    assert exported.post("/v1/explain", {"q": SOURCE[0]}).error == "CTranslate2 has no attention weights"


def test_an_export_has_no_steps_to_show(exported: Client) -> None:
    ((kind, _),) = events_of(exported.post("/v1/translate", {"q": SOURCE[0], "stream": True}))
    assert kind == "done"


def test_an_export_draws_no_samples(exported: Client) -> None:
    body = {"q": "a", "sample": True}
    error = "CTranslate2 has no sampling with a seed for each line"
    assert exported.post("/v1/translate", body).error == error
    assert events_of(exported.post("/v1/translate", {**body, "stream": True})) == [("error", {"error": error})]
