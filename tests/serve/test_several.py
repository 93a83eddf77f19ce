"""Several languages: of one model, and of several models."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest
from served import Client, served
from small_run import SEVERAL, config_of, run_training, write_small_corpus

import nmt
from nmt.corpus import language
from nmt.serve.guard import Limits
from nmt.translate.translator import Translator


@pytest.fixture(scope="module")
def directions(folder: Path) -> list[Translator]:
    """A model from Chinese to English and back."""
    config = config_of(write_small_corpus(folder), **SEVERAL, train__max_steps=2, train__validate_every=2)
    run_training(config)
    return nmt.load(config.run).directions()


@pytest.fixture(scope="module")
def client(directions: list[Translator]) -> Iterator[Client]:
    with served(*directions) as client:
        yield client


def test_the_directions_of_a_model_are_listed(client: Client) -> None:
    targets = {known["code"]: known["targets"] for known in client.get("/languages").json}
    assert targets == {"zh": ["en", "zh"], "en": ["en", "zh"]}
    models = client.get("/v1/models").json["models"]
    result = [(model["source"], model["target"]) for model in models]
    assert result == [("zh", "en"), ("en", "zh")]


@pytest.mark.parametrize(("index", "source", "target"), [(0, "zh", "en"), (1, "en", "zh"), (0, "auto", "en")])
def test_a_direction_is_picked_by_its_languages(
    client: Client, directions: list[Translator], index: int, source: str, target: str
) -> None:
    # What looks like a tag of the language is text.
    texts = ["the dog", ">>zh<<"]
    result = client.text(texts, source=source, target=target)
    assert result == directions[index].translate(texts)


def test_without_a_direction_the_others_are_named(client: Client) -> None:
    answer = client.translate("the dog", source="en", target="fr")
    assert answer.error == "no model translates en to fr; this server translates zh to en, en to zh"


@pytest.mark.parametrize(("q", "expected"), [("The black dog runs.", "en"), (["狗跑。", "猫睡觉。"], "zh")])
def test_languages_are_detected(client: Client, q: str | list[str], expected: str) -> None:
    first, second = client.post("/detect", {"q": q}).json
    outcome = {first["language"], second["language"]}
    assert outcome == {"en", "zh"}
    assert first["language"] == expected
    assert first["confidence"] > 80
    result = first["confidence"] + second["confidence"]
    assert result == pytest.approx(100, abs=0.2)


@pytest.fixture(scope="module")
def into_english(directions: list[Translator]) -> Iterator[Client]:
    """Two models into English, from Chinese and from German."""
    # The same model under another language.
    chinese = directions[0]
    data = chinese.config.data.model_copy(update={"source_lang": "deu"})
    config = chinese.config.model_copy(update={"data": data})
    german = Translator(chinese.engine, chinese.tokenizers, config)
    with served(chinese, german, limits=Limits(n_lines=2)) as client:
        yield client


@pytest.mark.parametrize(("q", "source"), [(["狗今天跑。"], "zh"), (["Der Hund rennt.", "Eine Katze"], "de")])
def test_auto_is_the_language_of_the_texts_if_several_fit(into_english: Client, q: list[str], source: str) -> None:
    with mock.patch("nmt.serve.served_models.probabilities", wraps=language.probabilities) as identified:
        detected = into_english.translate(q, source="auto").json["detectedLanguage"]
    identified.assert_called_once()
    assert detected == len(q) * detected[:1]
    assert detected[0]["language"] == source
    assert detected[0]["confidence"] > 80


def test_a_source_is_picked_by_its_code(into_english: Client) -> None:
    models = into_english.get("/v1/models").json
    result = [model["source"] for model in models["models"]]
    assert result == ["zh", "deu"]
    assert models["max_lines"] == 2
    assert into_english.v1("狗", source="deu").json["source"] == "deu"


def test_without_a_target_several_models_fit(into_english: Client) -> None:
    answer = into_english.v1("狗今天跑。")
    assert answer.error == "several models fit; this server translates zh to en, deu to en"
