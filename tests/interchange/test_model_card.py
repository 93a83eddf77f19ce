"""The model card: data, languages, and the scores of `nmt eval`."""

import json
from pathlib import Path

import yaml
from conftest import FiveRun
from models import fresh_translator

from nmt.files import hash_file
from nmt.interchange.model_card import model_card
from nmt.translate.loading import load
from nmt.translate.translator import Translator


def test_card_of_a_run_has_its_data(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "mine")
    (run / "scores.jsonl").unlink(missing_ok=True)  # other tests evaluate this run
    card = model_card(load(run), 1_234_567, "MarianMTModel", "mine")
    for words in (
        *("# mine: translation from zh to en", "as `MarianMTModel`", "1,234,567 parameters", "None are known"),
        *('model = AutoModelForSeq2SeqLM.from_pretrained("mine")', "- train: `train.zh`, `train.en`, 5 pairs\n"),
    ):
        assert words in card
    assert str(five_run.home) not in card


def test_scores_of_other_models_and_damaged_ones_are_left_out(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    score = {"name": "BLEU", "value": 12.5, "low": 11.0, "high": 14.0, "signature": "nrefs:1"}
    about = {"source": "/home/me/a.zh", "references": ["/home/me/a.en"], "n_lines": 2_000, "search": {"beam": 4}}
    own = {**about, "model_sha256": hash_file(run / "model.safetensors"), "scores": [score]}
    lines = [own, {**own, "model_sha256": "0", "n_lines": 7}, {**own, "scores": [{"x": 1}]}, {**own, "search": 3}]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (run / "scores.jsonl").write_text(text, encoding="utf-8")
    scores = model_card(load(run), 1, "MarianMTModel", "mine").partition("## Scores\n\n")[2]
    expected = "2,000 lines of `a.zh`, `a.en`, beam 4:\n\n```text\nBLEU = 12.50  (95 %: 11.0 to 14.0)  nrefs:1\n```\n"
    assert scores == expected


def test_languages_in_the_metadata_are_text_also_in_yaml_1_1() -> None:
    before = fresh_translator()
    data = before.config.data.model_copy(update={"source_lang": "no", "target_lang": "nb_NO"})
    translator = Translator(before.engine, before.tokenizers, before.config.model_copy(update={"data": data}))
    _, metadata, _ = model_card(translator, 1, "MarianMTModel", "mine").split("---\n", 2)
    assert yaml.safe_load(metadata)["language"] == ["no", "nb"]
