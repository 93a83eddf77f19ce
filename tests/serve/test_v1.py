"""Our own endpoints: n-best lists, streams, explanations."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import PATIENCE_S, SOURCE, TARGET, FiveRun
from served import FORM, JSON, Client, Endless, served

from nmt.documents.memories import memory_files
from nmt.insight.pages import content_security_policy, hash_source
from nmt.interchange.ctranslate2 import to_ctranslate2
from nmt.translate.loading import load
from nmt.translate.matches import index_of
from nmt.translate.translator import Translator


def best_texts(answer: Any) -> list[str]:
    return [line["hypotheses"][0]["text"] for line in answer["translations"]]


def test_the_answer_has_what_the_translator_finds(client: Client, translator: Translator) -> None:
    answer = client.v1(SOURCE, beam=4, n_best=3).json
    outcome = (answer["source"], answer["target"])
    assert outcome == ("zh", "en")
    expected = translator.translate_lines(SOURCE, translator.with_options(beam=4, n_best=3))
    for line, translation in zip(answer["translations"], expected, strict=True):
        assert line["source"] == translation.source
        for answered, hypothesis in zip(line["hypotheses"], translation.hypotheses, strict=True):
            for name in ("text", "pieces", "tokens"):
                assert answered[name] == getattr(hypothesis, name)
            # The translator rounds otherwise in another batch.
            for name in ("score", "log_prob", "log_probs"):
                assert answered[name] == pytest.approx(getattr(hypothesis, name), abs=1e-5)


SIMILAR = SOURCE[0].replace("书", "茶")
REMEMBERED = "From the memory."


@pytest.fixture(scope="module")
def client_with_memory(five_run: FiveRun, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("memory")
    path = folder / "memory.csv"
    path.write_text(f"zh,en\n{SOURCE[0]},{REMEMBERED}\n", encoding="utf-8")
    files = memory_files([path], ("zh", "en"))
    index = index_of(*files)
    translator = load(five_run.run, device="cpu")
    translator.options = translator.with_options(memory=[str(index)])
    with served(translator) as client:
        yield client


def test_a_request_can_leave_out_the_memory(client_with_memory: Client) -> None:
    answer = client_with_memory.v1(SOURCE[0], memory=False).json
    assert best_texts(answer) == [TARGET[0]]
    (line,) = answer["translations"]
    assert line["matches"] == []


def test_a_request_has_the_memory_by_default(client_with_memory: Client) -> None:
    for fields in ({}, {"memory": True}, {"min_match": 1}):
        answer = client_with_memory.v1(SOURCE[0], **fields)
        assert best_texts(answer.json) == [REMEMBERED]


def test_a_request_can_take_similar_matches(client_with_memory: Client) -> None:
    answer = client_with_memory.v1(SIMILAR, min_match=0.8).json
    assert best_texts(answer) == [REMEMBERED]
    (line,) = answer["translations"]
    (match,) = line["matches"]
    assert match["is_taken"]


def test_a_match_below_the_least_similarity_of_a_request_is_not_taken(client_with_memory: Client) -> None:
    answer = client_with_memory.v1(SIMILAR, min_match=0.9).json
    assert best_texts(answer) != [REMEMBERED]


def test_the_answer_has_the_matches_of_a_memory(client_with_memory: Client) -> None:
    answer = client_with_memory.v1([SOURCE[0], SIMILAR, SOURCE[1]]).json
    text = client_with_memory.text(SOURCE[0])
    assert text == REMEMBERED
    exact, similar, other = (line["matches"] for line in answer["translations"])
    assert best_texts(answer)[0] == REMEMBERED
    assert exact[0]["is_taken"]
    assert similar == [
        {"source": SOURCE[0], "target": REMEMBERED, "similarity": pytest.approx(8 / 9), "is_taken": False}
    ]
    assert other == []


def test_a_stream_is_a_stream_of_events(client: Client) -> None:
    assert client.v1("a", stream=True).headers["content-type"].startswith("text/event-stream")


def test_a_stream_ends_with_the_translation(client: Client) -> None:
    last = client.stream(SOURCE[:2])[-1]
    assert last.kind == "done"
    assert best_texts(last.data) == TARGET[:2]


@pytest.mark.parametrize("line", [0, 1])
def test_each_line_of_a_stream_grows_to_its_translation(client: Client, line: int) -> None:
    *partial, _ = client.stream(SOURCE[:2])
    assert {event.kind for event in partial} == {"partial"}
    texts = [event.data["text"] for event in partial if event.data["line"] == line]
    assert texts[0] == TARGET[line].split()[0]
    assert texts[-1] == TARGET[line]
    assert texts == sorted(texts, key=len), "it only grows"


def test_a_prefix_is_text_or_tokens(client: Client, translator: Translator) -> None:
    tokens = translator.encode_prefix("They")
    (text,) = best_texts(client.v1(SOURCE[0], prefix="They").json)
    assert text.startswith("They")
    assert [text] == best_texts(client.v1(SOURCE[0], prefix=tokens).json)


def test_a_request_brings_its_own_terms(client: Client, translator: Translator) -> None:
    text = best_texts(client.v1(SOURCE[0], glossary={"书": "novel"}).json)[0]
    assert "novel" in text
    assert "novel" not in TARGET[0]
    assert best_texts(client.v1(SOURCE[0]).json) == [TARGET[0]], "the next request does not have them"


def test_terms_of_a_request_come_before_those_of_the_server(
    client: Client, translator: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = translator.with_options(glossary={"书": "magazine", "昨天": "today"})
    monkeypatch.setattr(translator, "options", ours)
    (text,) = best_texts(client.v1(SOURCE[0], glossary={"书": "novel"}).json)
    assert "novel" in text
    assert "today" in text
    assert "magazine" not in text


def test_lines_get_their_confidences_if_asked(client: Client) -> None:
    lines = client.v1(SOURCE[:2], confidence=True).json["translations"]
    expected = [client.translate(text, confidence=True).json["confidence"] for text in SOURCE[:2]]
    result = [line["confidence"] for line in lines]
    assert result == pytest.approx(expected, abs=1e-5)
    found = client.v1(SOURCE[0]).json["translations"][0]["confidence"]
    assert found is None


def test_a_stream_ends_with_the_confidence_if_asked(client: Client) -> None:
    (line,) = client.stream(SOURCE[0], confidence=True)[-1].data["translations"]
    assert 0 < line["confidence"] <= 1


def test_samples_are_drawn_by_the_seed(client: Client) -> None:
    def sampled(seed: int) -> Any:
        return client.v1(SOURCE[0], sample=True, temperature=3.0, n_best=4, seed=seed).json["translations"]

    (line,) = sampled(1)
    assert [line] == sampled(1) != sampled(2)
    assert len(line["hypotheses"]) == 4


@pytest.fixture(scope="module")
def explanation(client: Client) -> Any:
    return client.explain(SOURCE[0], beam=3).json


@pytest.fixture
def tokens(explanation: Any) -> Any:
    """The tokens of the best hypothesis."""
    return explanation["hypotheses"][0]["tokens"]


def test_an_explanation_has_all_hypotheses(explanation: Any) -> None:
    assert len(explanation["hypotheses"]) == 3
    result = explanation["hypotheses"][0]["text"]
    assert result == TARGET[0]


def test_an_explanation_has_attention_weights_of_each_token(explanation: Any, tokens: Any) -> None:
    sums = [sum(weights) for weights in explanation["cross"]]
    assert sums == pytest.approx([1] * len(tokens), abs=1e-4)


def test_an_explanation_has_the_tree_of_the_search(explanation: Any, tokens: Any) -> None:
    path = [node["token"] for node in explanation["tree"] if node["is_best"]]
    assert path == [token["token"] for token in tokens]


def test_an_alternative_of_an_explanation_can_be_a_prefix(client: Client, tokens: Any) -> None:
    second = tokens[0]["alternatives"][1]
    prefixed = client.explain(SOURCE[0], prefix=[second["token"]]).json
    first = prefixed["hypotheses"][0]["tokens"][0]
    assert first["token"] == second["token"]
    assert first["piece"] == second["piece"]
    assert first["rank"] == 2
    assert first["log_prob"] == pytest.approx(second["log_prob"], abs=1e-4)  # rounding depends on the length


def test_the_page_of_an_explanation_allows_only_its_own_script(client: Client) -> None:
    answer = client.send("POST", "/explain", "q=%E6%88%91&beam=2", FORM)
    page = answer.body.decode()
    policy = answer.headers["content-security-policy"]
    assert policy == content_security_policy(page)
    # The page has one script, whose hash is in the policy.
    script = page.partition("<script>")[2].partition("</script>")[0]
    assert hash_source(script) in policy
    assert "unsafe-inline" not in page


@pytest.mark.parametrize("path", ["/explain", "/v1/explain", "/v1/translate"])
def test_work_that_nobody_waits_for_ends(
    client: Client, translator: Translator, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    endless = Endless()

    def explain(*_: Any, trace: Callable[[Any], None], **__: Any) -> None:
        endless(lambda: trace(None))

    def start(*arguments: Any) -> Any:
        watch = arguments[-1]
        return SimpleNamespace(search=lambda: endless(lambda: watch(list)))

    # The client leaves as soon as the work has begun.
    with monkeypatch.context() as patch, contextlib.closing(client.connect()) as connection:
        patch.setattr("nmt.insight.explain.search", explain)
        patch.setattr(translator, "start", start)
        connection.request("POST", path, json.dumps({"q": SOURCE[0]}), JSON)
        assert endless.started.wait(PATIENCE_S)
        connection.close()
        assert endless.ended.wait(PATIENCE_S / 2)
    outcome = client.v1(SOURCE[0]).status
    assert outcome == 200


@pytest.fixture(scope="module")
def exported(translator: Translator, folder: Path) -> Iterator[Client]:
    """A server of an export to CTranslate2."""
    to_ctranslate2(translator, folder / "export")
    with served(load(folder / "export")) as client:
        yield client


def test_an_export_has_no_explanation(exported: Client) -> None:
    (model,) = exported.get("/v1/models").json["models"]
    assert model["explains"] is False
    outcome = exported.explain(SOURCE[0]).error
    assert outcome == "CTranslate2 has no attention weights"


def test_an_export_has_no_steps_to_show(exported: Client) -> None:
    (event,) = exported.stream(SOURCE[0])
    assert event.kind == "done"


def test_an_export_draws_no_samples(exported: Client) -> None:
    error = "CTranslate2 has no sampling with a seed for each line"
    assert exported.v1("a", sample=True).error == error
    result = exported.stream("a", sample=True)
    assert result == [("error", {"error": error})]
