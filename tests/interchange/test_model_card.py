"""The model card: data, languages, and the scores of `nmt eval`."""

import json
from pathlib import Path

import yaml
from conftest import FiveRun
from models import fresh_translator

from nmt.files import hash_file
from nmt.interchange.model_card import model_card
from nmt.translate.loading import load


def test_card_of_a_run_has_its_data(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "mine")
    (run / "scores.jsonl").unlink(missing_ok=True)  # other tests evaluate this run
    card = model_card(load(run), 1_234_567, "MarianMTModel", "mine")
    assert "# mine: translation from zh to en" in card
    assert "as `MarianMTModel`" in card
    assert "1,234,567 parameters" in card
    assert 'model = AutoModelForSeq2SeqLM.from_pretrained("mine")' in card
    assert "- train: `train.zh`, `train.en`, 5 pairs\n" in card
    assert "None are known" in card
    assert str(five_run.home) not in card


def test_scores_of_other_models_and_damaged_ones_are_left_out(five_run: FiveRun, tmp_path: Path) -> None:
    run = five_run.copy_run(tmp_path / "run")
    score = {"name": "BLEU", "value": 12.5, "low": 11.0, "high": 14.0, "signature": "nrefs:1"}
    evaluation = {
        "model_sha256": hash_file(run / "model.safetensors"),
        "source": "/home/me/a.zh",
        "references": ["/home/me/a.en"],
        "n_lines": 2_000,
        "search": {"beam": 4},
        "scores": [score],
    }
    of_another = {**evaluation, "model_sha256": "0", "n_lines": 7}
    damaged = {**evaluation, "scores": [{"x": 1}]}
    without_search = {**evaluation, "search": 3}
    lines = map(json.dumps, [evaluation, of_another, damaged, without_search])
    (run / "scores.jsonl").write_text("\n".join(lines), encoding="utf-8")
    card = model_card(load(run), 1, "MarianMTModel", "mine")
    _, _, scores = card.partition("## Scores\n\n")
    text = "2,000 lines of `a.zh`, `a.en`, beam 4:\n\n```text\nBLEU = 12.50  (95 %: 11.0 to 14.0)  nrefs:1\n```\n"
    assert scores == text


def test_languages_in_the_metadata_are_text_also_in_yaml_1_1() -> None:
    translator = fresh_translator()
    data = translator.config.data.model_copy(update={"source_lang": "no", "target_lang": "nb_NO"})
    translator.config = translator.config.model_copy(update={"data": data})
    card = model_card(translator, 1, "MarianMTModel", "mine")
    _, metadata, _ = card.split("---\n", 2)
    assert yaml.safe_load(metadata)["language"] == ["no", "nb"]
