"""The explanation of a translation agrees with the translation; its page and its JSON hold it as it is."""

import base64
import html
import json
import math
import re
from collections.abc import Callable
from functools import partial
from importlib.resources import files
from itertools import count
from typing import Any

import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, data_of_page
from models import RNNS, translator_without_bytes

import nmt
from nmt.errors import ConfigError, InputError
from nmt.insight import pages
from nmt.insight.explain import Explanation, as_json, as_page, explain, outline
from nmt.translate.loading import load
from nmt.translate.translator import Translator

FRAME = files(pages.__name__).joinpath("frame.html").read_text(encoding="utf-8")
PLACEHOLDERS = re.findall(r"\{\{\w+\}\}", FRAME)
LIKE_PLACEHOLDERS = [*PLACEHOLDERS, "{{NOTHING}}", r"\1 {{DATA}}{{SCRIPTS}}"]
HOSTILE = "</script><!-- <script>alert(1)</script> &amp; \u2028 “我”"


@pytest.fixture(scope="module")
def translator(five_run: FiveRun) -> Translator:
    return load(five_run.run, engine="torch")


@pytest.fixture(scope="module")
def explanation(translator: Translator) -> Explanation:
    return explain(translator, SOURCE[0], reference=TARGET[1])


def test_the_translation_is_the_one_of_translate(translator: Translator, explanation: Explanation) -> None:
    (translation,) = translator.translate_lines([SOURCE[0]])
    best = translation.hypotheses[0]
    found = explanation.translation
    assert found.text == best.text == TARGET[0]
    result = [token.token for token in found.tokens]
    assert result == best.tokens
    token_log_probs = [token.log_prob for token in found.tokens]
    assert token_log_probs == pytest.approx(best.log_probs, abs=1e-4)
    assert found.log_prob == pytest.approx(best.log_prob, abs=1e-4)
    assert found.score == pytest.approx(best.score, abs=1e-4)


def test_alternatives_are_the_most_probable_tokens(explanation: Explanation) -> None:
    for token in explanation.translation.tokens:
        log_probs = [choice.log_prob for choice in token.alternatives]
        assert log_probs == sorted(log_probs, reverse=True)
        # The token that was written is there, or has a lower rank.
        if token.rank <= len(token.alternatives):
            assert token.alternatives[token.rank - 1].token == token.token


def test_the_tree_s_winner_is_the_translation(explanation: Explanation) -> None:
    path = [node for node in explanation.tree if node.is_best]
    translation = explanation.translation
    tokens = [token.token for token in translation.tokens]
    assert [node.token for node in path] == tokens
    last = path[-1]
    assert last.status == "finished"
    assert last.log_prob == pytest.approx(translation.log_prob, abs=1e-4)
    assert last.score == pytest.approx(translation.score, abs=1e-4)
    total = math.fsum(node.token_log_prob for node in path)
    assert total == pytest.approx(last.log_prob, abs=1e-4)


def test_the_reference_is_scored_by_teacher_forcing(translator: Translator, explanation: Explanation) -> None:
    reference = explanation.reference
    assert reference
    (log_probs,) = translator.reference_log_probs([SOURCE[0]], [TARGET[1]])
    token_log_probs = [token.log_prob for token in reference.tokens]
    assert token_log_probs == pytest.approx(log_probs, abs=1e-4)
    assert reference.first_difference == 0


def test_a_reference_may_be_the_translation(translator: Translator) -> None:
    reference = explain(translator, SOURCE[0], reference=TARGET[0]).reference
    assert reference
    assert reference.first_difference is None


@pytest.mark.parametrize(("choices", "n_layers"), [(RNNS[0], 0), (RNNS[2], 1)], ids=str)
def test_recurrent_models_have_at_most_a_layer_of_cross_attention(choices: dict[str, Any], n_layers: int) -> None:
    translator = translator_without_bytes(**choices)
    found = explain(translator, "a cat sleeps")
    assert len(found.attention.encoder) == len(found.attention.decoder) == 0
    assert len(found.attention.cross) == n_layers
    result = bool(outline(translator, "a cat sleeps")["cross"])
    assert result == bool(n_layers)
    assert choices["cell"].upper() in found.model


def test_a_path_is_loaded(five_run: FiveRun) -> None:
    explanation = nmt.explain(five_run.run, SOURCE[1], beam=1)
    assert explanation.translation.text == TARGET[1]


def test_a_long_sentence_is_refused(translator: Translator) -> None:
    with pytest.raises(InputError, match="is too long: the model takes"):
        explain(translator, "我 " * 500)


def test_an_unknown_option_is_refused(translator: Translator) -> None:
    with pytest.raises(ConfigError, match="beams"):
        explain(translator, SOURCE[0], beams=3)


@pytest.mark.parametrize("function", [explain, outline])
def test_an_explanation_can_be_ended_everywhere(translator: Translator, function: Callable[..., Any]) -> None:
    # How often the check is called; then an exception from each of the calls.
    calls = count()
    function(translator, SOURCE[0], beam=3, check=lambda: next(calls))
    n_calls = next(calls)
    assert n_calls > len(TARGET[0].split())
    for last in range(n_calls):
        left = iter(range(last))
        with pytest.raises(StopIteration):
            function(translator, SOURCE[0], beam=3, check=partial(next, left))
        assert not list(left)


# --- the page and the JSON ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hostile(translator: Translator) -> Explanation:
    return explain(translator, SOURCE[0], reference=HOSTILE)


@pytest.fixture(scope="module")
def page(hostile: Explanation) -> str:
    return as_page(hostile)


def test_a_page_is_one_file_without_anything_from_outside(page: str) -> None:
    # Names of namespaces are the only addresses.
    assert len(page.encode()) < 2_000_000
    assert "default-src 'none'" in page
    assert not re.findall(r"url\(|@import|fetch\(|XMLHttpRequest|innerHTML", page)
    result = set(re.findall(r"http[^\s\"']*", page))
    assert result == {"http://www.w3.org/2000/svg", "http-equiv="}
    assert page.count("<script") == page.count("</script>") == 2
    assert not re.findall(r"\{\{[A-Z]+\}\}", page)


def test_text_stays_text(page: str) -> None:
    assert "<script>alert" not in page
    assert data_of_page(page)["reference"]["text"] == HOSTILE


def test_text_stays_text_in_the_frame_of_a_notebook(page: str, hostile: Explanation) -> None:
    # The page is an attribute of the frame, escaped.
    frame = r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts" [^<>]*></iframe>'
    shown = re.fullmatch(frame, hostile._repr_html_())
    assert shown
    assert html.unescape(shown[1]) == page


@pytest.mark.parametrize("text", LIKE_PLACEHOLDERS)
@pytest.mark.parametrize("page_name", pages.SCRIPTS)
def test_text_that_looks_like_a_placeholder_stays_text(page_name: str, text: str) -> None:
    # The same as for a usual word.
    expected = pages.page(page_name, "word", ["word"])
    expected = expected.replace("<title>word<", f"<title>{html.escape(text)}<")
    expected = expected.replace('["word"]', json.dumps([text]))
    assert pages.page(page_name, text, [text]) == expected


def test_tensors_are_packed_into_bytes() -> None:
    # 0 to 1 are levels 0 to 254, -inf is level 255.
    x = torch.tensor([[0.0, 1.0, -torch.inf], [0.25, 0.5, 0.75]])
    found = pages.packed(x)
    assert found["shape"] == [2, 3]
    assert found["low"] == 0.0
    assert found["high"] == 1.0
    levels = list(base64.b64decode(found["bytes"]))
    assert levels[:3] == [0, 254, 255]
    assert levels[3:] == pytest.approx([63.5, 127, 190.5], abs=0.5)


def test_equal_values_and_empty_tensors_are_packed() -> None:
    found = pages.packed(torch.ones(2, 2))
    result = base64.b64decode(found["bytes"])
    assert result == bytes(4)
    empty = pages.packed(torch.empty(0, 1))
    assert empty["high"] == 0.0


def test_json_has_every_field(hostile: Explanation) -> None:
    text = as_json(hostile)
    assert "Infinity" not in text, "not JSON"
    found = json.loads(text)
    result = set(found)
    assert result == set(vars(hostile))
    outcome = found["hypotheses"][0]["text"]
    assert outcome == TARGET[0]
    cross = torch.tensor(found["attention"]["cross"])
    assert cross.shape == hostile.attention.cross.shape
