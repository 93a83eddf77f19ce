"""Pages: text that looks like a placeholder of the frame stays text."""

import html
import json
import re
from importlib.resources import files

import pytest

from nmt.insight import pages

PLACEHOLDERS = re.findall(r"\{\{\w+\}\}", files(pages.__name__).joinpath("frame.html").read_text(encoding="utf-8"))


def shown(page: str) -> object:
    (block,) = re.findall(r'<script type="application/json" id="data">(.*)</script>', page)
    return json.loads(block)


def test_the_frame_has_placeholders() -> None:
    assert {"{{DATA}}", "{{SCRIPTS}}", "{{BODY}}", "{{STYLES}}", "{{TITLE}}"} <= set(PLACEHOLDERS)


@pytest.mark.parametrize("text", [*PLACEHOLDERS, "{{NOTHING}}", r"\1 {{DATA}}{{SCRIPTS}}"])
@pytest.mark.parametrize("name", pages.SCRIPTS)
def test_text_that_looks_like_a_placeholder_stays_text(name: str, text: str) -> None:
    usual, found = (pages.page(name, title, [title]) for title in ("word", text))
    assert shown(found) == [text]
    assert found == usual.replace("<title>word<", f"<title>{html.escape(text)}<").replace(
        '["word"]', json.dumps([text])
    )
