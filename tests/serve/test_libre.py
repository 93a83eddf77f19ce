"""LibreTranslate's endpoints for texts; test_documents.py has those for documents."""

import re
from collections.abc import Iterator

import pytest
from conftest import SOURCE, TARGET
from libretranslatepy import LibreTranslateAPI  # type: ignore[import-untyped]
from models import small_translator
from served import Client, served

from nmt.text.placeholders import patterns_of
from nmt.translate.translator import Translator


@pytest.fixture(scope="module")
def client(translator: Translator) -> Iterator[Client]:
    with served(translator) as client:
        yield client


def test_libretranslates_client_translates(client: Client) -> None:
    libre = LibreTranslateAPI(client.url)
    assert [libre.translate(text, "zh", "en") for text in SOURCE] == TARGET


def test_languages_are_listed_with_their_targets(client: Client) -> None:
    chinese, english = LibreTranslateAPI(client.url).languages()
    assert chinese == {"code": "zh", "name": "Chinese", "targets": ["en"]}
    assert english == {"code": "en", "name": "English", "targets": []}


def test_a_model_that_names_no_languages() -> None:
    with served(small_translator(train={"source": "a", "target": "b"})) as client:
        assert client.get("/languages").json == [{"code": "und", "name": "Unknown language", "targets": ["und"]}]
        assert client.status("a cat") == 200


def test_a_list_is_answered_with_lists(client: Client) -> None:
    answer = client.translate(SOURCE, alternatives=2).json
    assert answer["translatedText"] == TARGET
    for best, alternatives in zip(TARGET, answer["alternatives"], strict=True):
        assert len({best, *alternatives}) == 3


def test_a_text_is_answered_with_texts(client: Client) -> None:
    of_list = client.translate([SOURCE[0]], alternatives=2).json
    of_text = client.translate(SOURCE[0], alternatives=2).json
    assert of_text == {"translatedText": TARGET[0], "alternatives": of_list["alternatives"][0]}


@pytest.mark.parametrize("q", ["", []])
def test_nothing_is_translated_to_nothing(client: Client, q: str | list[str]) -> None:
    assert client.translate(q, alternatives=2).json["translatedText"] == q


def test_confidences_are_answered_on_request(client: Client) -> None:
    answer = client.translate(SOURCE, confidence=True).json
    assert answer["translatedText"] == TARGET
    assert all(0 < confidence < 1 for confidence in answer["confidence"])
    alone = client.translate(SOURCE[0], confidence=True).json
    assert alone["confidence"] == pytest.approx(answer["confidence"][0])


def test_html_has_no_confidence(client: Client) -> None:
    assert "confidence" not in client.translate(SOURCE, confidence=True, format="html").json


def test_lines_stay_lines(client: Client) -> None:
    answer = client.translate(f"{SOURCE[0]}\n\n{SOURCE[1]}\r\n", source="zh-CN").json
    assert answer == {"translatedText": f"{TARGET[0]}\n\n{TARGET[1]}\n"}


def test_auto_is_the_only_language_that_fits(client: Client) -> None:
    answer = client.translate(SOURCE[0], source="auto").json
    assert answer == {"translatedText": TARGET[0], "detectedLanguage": {"language": "zh", "confidence": 0}}


def test_tags_of_html_stay(client: Client) -> None:
    pieces = [f"<p>{SOURCE[0]}</p>", f"<b>{SOURCE[1]}</b><br>{SOURCE[2]}", "<hr>"]
    expected = [f"<p>{TARGET[0]}</p>", f"<b>{TARGET[1]}</b><br>{TARGET[2]}", "<hr>"]
    assert client.translate(pieces, format="html").json["translatedText"] == expected


def test_alternatives_of_html_have_its_tags(client: Client) -> None:
    first, second, *rest = SOURCE[3].split()
    answer = client.translate(" ".join([first, f"<i>{second}</i>", *rest]), format="html", alternatives=2).json
    texts = [answer["translatedText"], *answer["alternatives"]]
    assert re.sub("</?i>", "", texts[0]) == TARGET[3]
    assert len(set(texts)) == 3
    assert all(re.fullmatch("[^<]*<i>[^<]*</i>[^<]*", text) for text in texts)


@pytest.fixture
def protecting(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model keeps placeholders as they are."""
    monkeypatch.setattr(translator, "protected", patterns_of([]))


@pytest.mark.parametrize(
    ("format", "spans"), [("text", ["<b>{a}</b>%s", "😀"]), ("html", ["{a}", "%s", "<b>", "😀"])], ids=["text", "html"]
)
@pytest.mark.usefixtures("protecting")
def test_placeholders_stay(client: Client, format: str, spans: list[str]) -> None:  # noqa: A002 - the API's name
    text = client.translate("<b>{a}</b>%s 茶 😀", format=format).json["translatedText"]
    assert [text.count(span) for span in spans] == [1] * len(spans)


@pytest.mark.usefixtures("protecting")
def test_placeholders_stay_in_a_stream(client: Client) -> None:
    streamed = client.post("/v1/translate", {"q": "<b>{a}</b>%s 茶 😀", "stream": True}).body.decode()
    assert "<b>{a}</b>%s" in streamed


def test_a_lone_surrogate_is_replaced(client: Client) -> None:
    assert client.post("/v1/translate", {"q": "\ud800"}).json["translations"][0]["source"] == "?"
    assert client.translate("a", source="\ud800").error.startswith("no model translates ? to en")
