"""A served model of several languages."""

from pathlib import Path

from served import served
from small_run import SEVERAL, config_of, run_training

import nmt


def test_the_directions_of_a_model_are_listed_and_picked_by_their_languages(corpus: Path) -> None:
    config = config_of(corpus, **SEVERAL, train__max_steps=2, train__validate_every=2)
    run_training(config)
    one, other = nmt.load(config.run).directions()
    with served(one, other) as client:
        assert {language["code"]: language["targets"] for language in client.get("/languages").json} == {
            "zh": ["en"], "en": ["zh"]
        }  # fmt: skip
        assert [(model["source"], model["target"]) for model in client.get("/v1/models").json["models"]] == [
            ("zh", "en"), ("en", "zh")
        ]  # fmt: skip
        for translator, source, target in ((one, "zh", "en"), (other, "en", "zh"), (one, "auto", "en")):
            answer = client.post("/translate", {"q": ["the dog", ">>zh<<"], "source": source, "target": target}).json
            assert answer["translatedText"] == translator.translate(["the dog", ">>zh<<"])
        unknown = client.post("/translate", {"q": "the dog", "source": "en", "target": "fr"})
    assert unknown.error == "no model translates en to fr; this server translates zh to en, en to zh"
