"""A served model of several languages."""

from pathlib import Path
from unittest import mock

import pytest
from served import served
from small_run import SEVERAL, config_of, run_training, write_small_corpus

import nmt
from nmt.corpus import language
from nmt.serve.guard import Limits
from nmt.translate.translator import Translator


@pytest.fixture(scope="module")
def both(folder: Path) -> list[Translator]:
    """A model from Chinese to English and back."""
    config = config_of(write_small_corpus(folder), **SEVERAL, train__max_steps=2, train__validate_every=2)
    run_training(config)
    return nmt.load(config.run).directions()


def test_the_directions_of_a_model_are_listed_and_picked_by_their_languages(both: list[Translator]) -> None:
    one, other = both
    with served(one, other) as client:
        targets = {known["code"]: known["targets"] for known in client.get("/languages").json}
        assert targets == {"zh": ["en"], "en": ["zh"]}
        models = client.get("/v1/models").json["models"]
        assert [(model["source"], model["target"]) for model in models] == [("zh", "en"), ("en", "zh")]
        for translator, source, target in ((one, "zh", "en"), (other, "en", "zh"), (one, "auto", "en")):
            answer = client.post("/translate", {"q": ["the dog", ">>zh<<"], "source": source, "target": target}).json
            assert answer["translatedText"] == translator.translate(["the dog", ">>zh<<"])
        for q, expected in (("The black dog runs.", "en"), (["狗跑。", "猫睡觉。"], "zh")):
            first, second = client.post("/detect", {"q": q}).json
            assert (first["language"], {first["language"], second["language"]}) == (expected, {"en", "zh"})
            assert first["confidence"] + second["confidence"] == pytest.approx(100, abs=0.2)
            assert first["confidence"] > 80
        unknown = client.post("/translate", {"q": "the dog", "source": "en", "target": "fr"})
    assert unknown.error == "no model translates en to fr; this server translates zh to en, en to zh"


def test_auto_is_the_language_of_the_text_if_several_fit_the_target(both: list[Translator]) -> None:
    chinese = both[0]
    data = chinese.config.data.model_copy(update={"source_lang": "deu"})
    german = Translator(chinese.engine, chinese.tokenizers, chinese.config.model_copy(update={"data": data}))
    with served(chinese, german, limits=Limits(n_lines=2)) as client:
        found = client.get("/v1/models").json
        assert ({one["source"] for one in found["models"]}, found["max_lines"]) == ({"zh", "deu"}, 2)
        assert client.post("/v1/translate", {"q": "狗", "source": "deu"}).json["source"] == "deu"
        for q, source in (("狗今天跑。", "zh"), (["Der Hund rennt.", "Eine Katze"], "deu")):
            with mock.patch("nmt.serve.served_models.probabilities", wraps=language.probabilities) as identified:
                answer = client.post("/translate", {"q": q, "source": "auto", "target": "en"}).json
            identified.assert_called_once()
            assert answer["detectedLanguage"]["language"] == source
            assert answer["detectedLanguage"]["confidence"] > 80
        several = client.post("/v1/translate", {"q": "狗今天跑。"})
    assert several.error == "several models fit; this server translates zh to en, deu to en"
