"""The fine-tuning table has the scores of the commands, on the five pairs; each kind of step trains what it should."""

import itertools
import json
from pathlib import Path

import finetuning
import finetuning_step
import ladder
import pytest
from conftest import SOURCE, TARGET, FiveRun
from test_ladder import run_nmt

from nmt.config import load_config
from nmt.decode.translator import load
from nmt.evaluate import score


def test_table(
    five_run: FiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = load_config(five_run.config, [*finetuning.WAYS["fine-tuned"], "train.lr=2e-3"])
    assert (plain.data.mix, plain.train.freeze) == ({}, ())
    ways = ["fine-tuned, mixed, frozen"]
    monkeypatch.setattr(finetuning, "WAYS", {way: finetuning.WAYS[way] for way in ways})
    for module in (ladder, finetuning):
        monkeypatch.setattr(module, "run_nmt", run_nmt)
    clock = itertools.count()
    monkeypatch.setattr(ladder, "core_minutes", lambda: float(next(clock)))
    for side, lines in (("zh", SOURCE), ("en", TARGET)):
        (tmp_path / f"general.{side}").write_text("".join(f"{line} {line}\n" for line in lines), encoding="utf-8")
    mix = f"{{root: {tmp_path}, source: general.zh, target: general.en, weight: 0.5}}"
    recipe, text = tmp_path / "recipe.yaml", five_run.config.read_text()
    recipe.write_text(text.partition("tokenizer:")[0] + f"  mix:\n    general: {mix}\ntrain: {{lr: 1.0e-3}}\n")
    settings = ["train.max_steps=2", "train.validate_every=2", "train.precision=fp32", "train.report=false"]
    runs = tmp_path / "runs"
    tuning, nothing = [str(recipe), "train.lr=2e-3"], [str(five_run.config), "train.warmup=7"]
    study = finetuning.Study(five_run.run, tuning, nothing, [3, 5], runs, settings)
    table = finetuning.write_table(study)

    rows = json.loads((runs / "finetuning.json").read_text())
    expected = [(0, "general model"), *((size, way) for size in (3, 5) for way in ["from nothing", *ways])]
    assert [(row["pairs"], row["training"]) for row in rows] == expected
    bleu = score(load(five_run.run).translate(SOURCE, beam=5), [TARGET])[0]
    assert rows[0]["new_BLEU"] == rows[0]["general_BLEU"] == vars(bleu)
    assert rows[1]["new_BLEU"]["value"] < rows[2]["new_BLEU"]["value"], "after two steps from nothing"
    assert f"BLEU `{bleu.signature}`" in table
    assert (runs / "data" / "first-3.zh").read_text(encoding="utf-8").splitlines() == SOURCE[:3]
    frozen, scratch = (
        load_config(runs / name / "config.yaml") for name in ("3-fine-tuned-mixed-frozen", "5-from-nothing")
    )
    assert frozen.model == load_config(five_run.run / "config.yaml").model
    assert frozen.data.mix["general"].weight == 0.5
    assert frozen.train.freeze == ("embeddings", "encoder")
    assert scratch.train.init_from == ""
    assert (frozen.train.lr, scratch.train.warmup) == (2e-3, 7)

    capsys.readouterr()
    assert finetuning.write_table(study) == table, "all is there"
    assert "translating" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", finetuning_step.KINDS)
def test_a_step_trains_what_its_kind_says(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"d_model": 16, "d_ff": 32, "n_encoder_layers": 1, "n_decoder_layers": 1}
    config = finetuning_step.CONFIG
    monkeypatch.setattr(
        finetuning_step, "CONFIG", config.model_copy(update={"model": config.model.model_copy(update=small)})
    )
    monkeypatch.setattr(finetuning_step, "N_PIECES", 50)
    one = finetuning_step.Contestant(kind)
    model = one.replicas.model
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    for seed in range(2):
        assert one.step(seed) > 0
    changed = {name for name, p in model.named_parameters() if not p.equal(before[name])}
    assert sum(before[name].numel() for name in changed) == one.n_trained
    assert (one.n_trained < one.n_parameters) == (kind != "all weights trained")
    assert all(name.endswith((".down", ".up")) for name in changed) == kind.startswith("adapters")
