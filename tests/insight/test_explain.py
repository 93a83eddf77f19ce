"""The explanation of a translation agrees with the translation; its page and its JSON hold it as it is."""

import base64
import html
import json
import math
import re
from collections.abc import Callable
from importlib.resources import files
from itertools import count
from typing import Any

import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, data_of_page
from models import RNNS, name, translator_without_bytes

import nmt
from nmt.errors import ConfigError, InputError
from nmt.evaluate import sentence_bleu
from nmt.insight import pages
from nmt.insight.explain import Explanation, as_json, as_page, explain, outline
from nmt.insight.heads import attention_summary
from nmt.text import EOS
from nmt.translate.loading import load
from nmt.translate.translator import Translator

PLACEHOLDERS = re.findall(r"\{\{\w+\}\}", files(pages.__name__).joinpath("frame.html").read_text(encoding="utf-8"))
HOSTILE = "</script><!-- <script>alert(1)</script> &amp; \u2028 “我”"


@pytest.fixture(scope="module")
def translator(five_run: FiveRun) -> Translator:
    return load(five_run.run, engine="torch")


@pytest.fixture(scope="module")
def explanation(translator: Translator) -> Explanation:
    return explain(translator, SOURCE[0], reference=TARGET[1])


def test_the_translation_is_the_one_of_translate(translator: Translator, explanation: Explanation) -> None:
    (expected,) = translator.translate_lines([SOURCE[0]])
    best, found = expected.hypotheses[0], explanation.translation
    assert found.text == best.text == TARGET[0]
    assert [token.token for token in found.tokens] == best.tokens
    assert [token.log_prob for token in found.tokens] == pytest.approx(best.log_probs, abs=1e-4)
    assert (found.log_prob, found.score) == pytest.approx((best.log_prob, best.score), abs=1e-4)
    assert explanation.padding_mask == [True] * len(explanation.source_pieces) + [False] * 3
    assert explanation.heads == attention_summary(translator, [(SOURCE[0], TARGET[0])])
    for token in found.tokens:
        log_probs = [choice.log_prob for choice in token.alternatives]
        assert log_probs == sorted(log_probs, reverse=True)
        assert token.rank > len(log_probs) or token.alternatives[token.rank - 1].token == token.token


def test_the_tree_s_winner_is_the_translation(explanation: Explanation) -> None:
    path = [node for node in explanation.tree if node.is_best]
    assert [node.token for node in path] == [token.token for token in explanation.translation.tokens]
    assert path[-1].status == "finished"
    expected = explanation.translation.log_prob, explanation.translation.score
    assert (path[-1].log_prob, path[-1].score) == pytest.approx(expected, abs=1e-4)
    assert math.fsum(node.token_log_prob for node in path) == pytest.approx(path[-1].log_prob, abs=1e-4)
    assert {h.tokens[-1].token for h in explanation.hypotheses} == {EOS}


def test_the_reference_is_scored_by_teacher_forcing(translator: Translator, explanation: Explanation) -> None:
    reference = explanation.reference
    assert reference is not None
    (log_probs,) = translator.reference_log_probs([SOURCE[0]], [TARGET[1]])
    assert [token.log_prob for token in reference.tokens] == pytest.approx(log_probs, abs=1e-4)
    assert reference.first_difference == 0
    assert reference.bleu == pytest.approx(sentence_bleu(TARGET[0], TARGET[1]))
    same = explain(translator, SOURCE[0], reference=TARGET[0]).reference
    assert same is not None
    assert same.first_difference is None
    assert same.bleu == pytest.approx(100)


@pytest.mark.parametrize("choices", [RNNS[0], RNNS[2]], ids=name)
def test_recurrent_models_explain_the_parts_that_they_have(choices: dict[str, Any]) -> None:
    found = explain(translator_without_bytes(**choices), "a cat sleeps")
    assert len(found.attention.encoder) == len(found.attention.decoder) == 0
    assert len(found.attention.cross) == (choices["attention"] != "none")
    assert found.padding_mask == []
    assert choices["cell"].upper() in found.model
    cross = outline(translator_without_bytes(**choices), "a cat sleeps")["cross"]
    assert (cross is None) == (choices["attention"] == "none")


def test_what_cannot_be_explained_is_refused(translator: Translator, five_run: FiveRun) -> None:
    assert nmt.explain is explain
    assert explain(five_run.run, SOURCE[1], beam=1).translation.text == TARGET[1], "a path is loaded"
    with pytest.raises(InputError, match="is too long: the model takes"):
        explain(translator, "我 " * 500)
    with pytest.raises(ConfigError, match="beams"):
        explain(translator, SOURCE[0], beams=3)


@pytest.mark.parametrize("function", [explain, outline])
def test_an_explanation_can_be_ended_everywhere(translator: Translator, function: Callable[..., Any]) -> None:
    calls = count()
    function(translator, SOURCE[0], beam=3, check=lambda: next(calls))
    n_calls = next(calls)
    assert n_calls > len(TARGET[0].split())
    for last in range(n_calls):
        left = iter(range(last))
        with pytest.raises(StopIteration):
            function(translator, SOURCE[0], beam=3, check=lambda: next(left))  # noqa: B023
        assert not list(left)


@pytest.fixture(scope="module")
def hostile(translator: Translator) -> Explanation:
    return explain(translator, SOURCE[0], reference=HOSTILE)


def test_a_page_is_one_file_without_anything_from_outside(hostile: Explanation) -> None:
    page = as_page(hostile)
    assert len(page.encode()) < 2_000_000
    assert "default-src 'none'" in page
    assert not re.findall(r"url\(|@import|fetch\(|XMLHttpRequest|innerHTML", page)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert page.count("<script") == page.count("</script>") == 2
    assert not re.findall(r"\{\{[A-Z]+\}\}", page)


def test_text_stays_text_also_in_the_frame_of_a_notebook(hostile: Explanation) -> None:
    page = as_page(hostile)
    assert "<script>alert" not in page
    assert data_of_page(page)["reference"]["text"] == HOSTILE
    frame = r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts" [^<>]*></iframe>'
    shown = re.fullmatch(frame, hostile._repr_html_())
    assert shown
    assert html.unescape(shown[1]) == page


@pytest.mark.parametrize("text", [*PLACEHOLDERS, "{{NOTHING}}", r"\1 {{DATA}}{{SCRIPTS}}"])
@pytest.mark.parametrize("name", pages.SCRIPTS)
def test_text_that_looks_like_a_placeholder_stays_text(name: str, text: str) -> None:
    usual, found = (pages.page(name, title, [title]) for title in ("word", text))
    expected = usual.replace("<title>word<", f"<title>{html.escape(text)}<").replace('["word"]', json.dumps([text]))
    assert found == expected != usual


def test_tensors_are_packed_into_bytes() -> None:
    x = torch.tensor([[0.0, 1.0, -torch.inf], [0.25, 0.5, 0.75]])
    found = pages.packed(x)
    levels = torch.tensor(list(base64.b64decode(found["bytes"])))
    assert (found["shape"], found["low"], found["high"]) == ([2, 3], 0.0, 1.0)
    assert levels[2] == 255
    torch.testing.assert_close(levels[3:] / 254, x[1], atol=1 / 500, rtol=0)
    assert pages.packed(torch.ones(2, 2))["bytes"] == base64.b64encode(bytes(4)).decode()
    assert pages.packed(torch.empty(0, 1))["high"] == 0.0


def test_json_has_every_field(hostile: Explanation) -> None:
    found = json.loads(as_json(hostile))
    assert set(found) == set(vars(hostile))
    assert found["hypotheses"][0]["text"] == TARGET[0]
    assert torch.tensor(found["attention"]["cross"]).shape == hostile.attention.cross.shape
    assert "Infinity" not in as_json(hostile), "not JSON"
