"""The explanation as a page and as JSON."""

import base64
import html
import json
import re
from importlib.resources import files

import pytest
import torch
from conftest import SOURCE, TARGET, FiveRun, data_of_page

from nmt.decode.translator import load
from nmt.insight import pages
from nmt.insight.explain import Explanation, as_json, as_page, explain

PLACEHOLDERS = re.findall(r"\{\{\w+\}\}", files(pages.__name__).joinpath("frame.html").read_text(encoding="utf-8"))
HOSTILE = "</script><!-- <script>alert(1)</script> &amp; \u2028 “我”"


@pytest.fixture(scope="module")
def explanation(five_run: FiveRun) -> Explanation:
    return explain(load(five_run.run), SOURCE[0], reference=HOSTILE)


def test_a_page_is_one_file_without_anything_from_outside(explanation: Explanation) -> None:
    page = as_page(explanation)
    assert len(page.encode()) < 2_000_000
    assert "default-src 'none'" in page
    assert not re.findall(r"url\(|@import|fetch\(|XMLHttpRequest|innerHTML", page)
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    assert page.count("<script") == page.count("</script>") == 2
    assert not re.findall(r"\{\{[A-Z]+\}\}", page)


def test_text_stays_text_also_in_the_frame_of_a_notebook(explanation: Explanation) -> None:
    page = as_page(explanation)
    assert "<script>alert" not in page
    assert data_of_page(page)["reference"]["text"] == HOSTILE
    frame = r'<iframe srcdoc="([^"]*)" sandbox="allow-scripts" [^<>]*></iframe>'
    shown = re.fullmatch(frame, explanation._repr_html_())
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


def test_json_has_every_field(explanation: Explanation) -> None:
    found = json.loads(as_json(explanation))
    assert set(found) == set(vars(explanation))
    assert found["hypotheses"][0]["text"] == TARGET[0]
    assert torch.tensor(found["attention"]["cross"]).shape == explanation.attention.cross.shape
    assert "Infinity" not in as_json(explanation), "not JSON"
