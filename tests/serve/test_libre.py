"""LibreTranslate's endpoints for texts; test_documents.py has those for documents."""

import re
from urllib.parse import urlencode

import pytest
from conftest import SOURCE, TARGET
from libretranslatepy import LibreTranslateAPI  # type: ignore[import-untyped]
from models import small_translator
from served import FORM, PAIR, Client, form, served

from nmt.translate.translator import Translator


def test_libretranslates_client_translates(client: Client) -> None:
    libre = LibreTranslateAPI(client.url)
    result = [libre.translate(text, "zh", "en") for text in SOURCE]
    assert result == TARGET


def test_a_form_may_have_utf_8_without_escapes(client: Client) -> None:
    form = f"q={SOURCE[0]}&source=zh&target=en".encode()
    result = client.send("POST", "/translate", form, FORM).json
    assert result == {"translatedText": TARGET[0]}


def test_fields_may_be_in_the_query_string(client: Client) -> None:
    path = "/translate?" + urlencode({"q": SOURCE[0], **PAIR})
    result = client.send("POST", path).json
    assert result == {"translatedText": TARGET[0]}


def test_fields_may_be_parts(client: Client) -> None:
    body, headers = form(None, b"", q=SOURCE[0], **PAIR)
    result = client.send("POST", "/translate", body, headers).json
    assert result == {"translatedText": TARGET[0]}


def test_languages_are_listed_with_their_targets(client: Client) -> None:
    chinese, english = LibreTranslateAPI(client.url).languages()
    assert chinese == {"code": "zh", "name": "Chinese", "targets": ["en", "zh"]}
    assert english == {"code": "en", "name": "English", "targets": ["en"]}


def test_a_model_that_names_no_languages() -> None:
    with served(small_translator(train={"source": "a", "target": "b"})) as client:
        assert client.get("/languages").json == [{"code": "und", "name": "Unknown language", "targets": ["und"]}]
        assert client.v1("a cat").status == 200
        assert client.text("a cat sleeps", source="und", target="und") != "a cat sleeps"


def test_a_list_is_answered_with_lists(client: Client) -> None:
    answer = client.translate(SOURCE, alternatives=2).json
    assert answer["translatedText"] == TARGET
    # All three translations of each text differ.
    for best, alternatives in zip(TARGET, answer["alternatives"], strict=True):
        assert len({best, *alternatives}) == 3


def test_a_text_is_answered_with_texts(client: Client) -> None:
    of_list = client.translate([SOURCE[0]], alternatives=2).json
    of_text = client.translate(SOURCE[0], alternatives=2).json
    assert of_text == {"translatedText": TARGET[0], "alternatives": of_list["alternatives"][0]}


def test_a_text_in_the_target_language_stays(client: Client) -> None:
    assert client.text(TARGET, source="en") == TARGET


def test_spaces_at_both_ends_stay(client: Client) -> None:
    result = client.text(f" \t{SOURCE[0]}  \n \n{SOURCE[1]}\n")
    assert result == f" \t{TARGET[0]}  \n \n{TARGET[1]}\n"


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
    first, second, third, *_ = SOURCE
    texts = client.text([f"<p>{first}</p>", f"<b>{second}</b><br>{third}", "<hr>"], format="html")
    first, second, third, *_ = TARGET
    assert texts == [f"<p>{first}</p>", f"<b>{second}</b><br>{third}", "<hr>"]


def test_alternatives_of_html_have_its_tags(client: Client) -> None:
    tagged = SOURCE[3].replace("想", "<i>想</i>")
    answer = client.translate(tagged, format="html", alternatives=2).json
    texts = [answer["translatedText"], *answer["alternatives"]]
    # Each has the tag once, around something.
    result = re.sub("</?i>", "", texts[0])
    assert result == TARGET[3]
    assert len(set(texts)) == 3
    assert all(re.fullmatch("[^<]*<i>[^<]*</i>[^<]*", text) for text in texts)


@pytest.fixture
def protecting(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model keeps placeholders as they are."""
    monkeypatch.setattr(translator, "options", translator.with_options(protect_placeholders=True))


@pytest.mark.usefixtures("protecting")
def test_placeholders_stay_in_text(client: Client) -> None:
    text = client.text("<b>{a}</b>%s 茶 😀")
    assert text.count("<b>{a}</b>%s") == 1
    assert text.count("😀") == 1


@pytest.mark.usefixtures("protecting")
def test_placeholders_stay_in_html(client: Client) -> None:
    text = client.text("<b>{a}</b>%s 茶 😀", format="html")
    for span in ("{a}", "%s", "<b>", "😀"):
        assert text.count(span) == 1


@pytest.mark.usefixtures("protecting")
def test_placeholders_stay_in_a_stream(client: Client) -> None:
    assert "<b>{a}</b>%s" in client.v1("<b>{a}</b>%s 茶 😀", stream=True).body.decode()


def test_a_lone_surrogate_is_replaced(client: Client) -> None:
    (line,) = client.v1("\ud800").json["translations"]
    assert line["source"] == "?"
    assert client.translate("a", source="\ud800").error.startswith("no model translates ? to en")
