"""The programs that train and compare models, on the five pairs: their data, their tables, and that they resume."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import experiments
import finetuning
import finetuning_step
import gpu
import ladder
import pytest
import students
import synthetic
from conftest import SOURCE, TARGET, FiveCorpus, FiveRun, run_nmt
from measure import NMT, ROOT, Options, Sample

from nmt.config import ModelSettings, load_config, values
from nmt.decode.translator import load
from nmt.evaluate import score
from nmt.text.lines import iter_lines

SMALL = ["train.max_steps=6", "train.validate_every=6", "model.d_model=16", "train.report=false"]


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """The nmt commands that were run, in this process and by torch: no model is converted, which is faster."""
    called: list[Sequence[str]] = []
    real = subprocess.run

    def run(command: Sequence[str], **options: Any) -> Any:
        if command[: len(NMT)] != NMT:
            return real(command, **options)
        called.append(command[len(NMT) :])
        done = run_nmt(*called[-1])
        assert done.returncode == 0, done.stderr.decode()
        return subprocess.CompletedProcess(command, 0, done.stdout.decode())

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("nmt.decode.translator.needs_torch", lambda *_: "a test")
    return called


def bleu_of(found: list[str]) -> dict[str, Any]:
    return vars(score(found, [TARGET])[0])


# --- the ladder -------------------------------------------------------------------------------------------

RNN = {"model.architecture": "rnn"}
ONLY = {  # settings in which a rung differs from its ladder's Transformer
    "rnn-no-attention": {**RNN, "model.attention": "none"},
    "rnn-dot": {**RNN, "model.attention": "dot"},
    "rnn-additive": {**RNN, "model.attention": "additive"},
    "transformer-1-head": {"model.n_heads": "1"},
    "transformer": {},
    "transformer-muon": {"train.optimizer": "muon"},
    "transformer-additive": {"model.attention": "additive"},
    "transformer-no-positions": {"model.positions": "none"},
    "transformer-no-scaling": {"model.attention": "dot"},
    "transformer-no-padding-mask": {"model.padding_mask": "false"},
    "transformer-scheduled-sampling": {"train.decoder_input": "scheduled_sampling"},
    "tatoeba-rnn-no-attention": {**RNN, "model.attention": "none"},
    "tatoeba-rnn-additive": {**RNN, "model.attention": "additive"},
    "tatoeba-transformer": {},
}


def test_a_rung_differs_in_what_it_says_alone() -> None:
    configs = {path.stem: load_config(path) for path in (ROOT / "configs/ladder").glob("*.yaml")}
    assert [name for rungs, _ in ladder.LADDERS.values() for name in rungs] == list(ONLY)
    assert sorted(configs) == sorted(ONLY)
    of_rung = {name: {key: value for key, value in values(one) if key != "run"} for name, one in configs.items()}
    for name, differences in ONLY.items():
        assert configs[name].run == f"runs/ladder-{name}"
        base = of_rung["tatoeba-transformer" if name.startswith("tatoeba") else "transformer"]
        assert dict(of_rung[name].items() - base.items()) == differences


def test_the_ladder(five_corpus: FiveCorpus, commands: list[Sequence[str]]) -> None:
    home, runs = five_corpus.home, five_corpus.home / "ladder"
    text = five_corpus.config.read_text().replace("d_model: 64", "d_model: 32, dropout: 0")
    text = text.replace("max_steps: 200", "max_steps: 60").replace("validate_every: 100", "validate_every: 60")
    (home / "attention.yaml").write_text(f"# Attention alone\n{text}")
    text = text.replace("d_model", "architecture: rnn, d_model").replace("max_steps: 60", "max_steps: 3")
    (home / "recurrent.yaml").write_text(f"# Recurrent\n{text}")
    for _ in range(2):  # the second time, all rows are there
        commands.clear()
        results = experiments.Results(runs / "ladder")
        ladder.climb(results, "Five", ["recurrent", "attention"], "dev", home, runs)
    assert [command[0] for command in commands] == ["train"], "of the second seed, which is finished"

    rungs, ways = results.tables["Five, test: the rungs"], results.tables["Five, dev: ways to decode attention"]
    assert {name: row["what"] for name, row in rungs.items()} == {
        "recurrent": "Recurrent",
        "attention": "Attention alone",
    }
    n_tokens = sum(len(load(runs / "attention").tokenizers.target.encode(line)) + 1 for line in TARGET)
    assert [row["target_tokens"] for row in rungs.values()] == [3 * n_tokens, 60 * n_tokens]
    assert rungs["attention"]["dev_BLEU"] > rungs["recurrent"]["dev_BLEU"]
    assert all(row["parameters"] > 10_000 and row["minutes"] > 0 for row in rungs.values())
    bleu = bleu_of(load(runs / "attention").translate(SOURCE, beam=5))
    together = load([runs / "attention", runs / "attention-seed-2"]).translate(SOURCE, beam=5)
    assert rungs["attention"]["BLEU"] == ways["beam 5"]["BLEU"] == bleu
    assert ways["beam 5, both seeds together"]["BLEU"] == bleu_of(together)
    assert {"in one pass", "minimum Bayes risk"} < ways.keys()

    page = (runs / "ladder.md").read_text()
    assert f"| {rungs['attention']['greedy_BLEU']['value']:.2f} | {bleu['value']:.2f} |" in page
    assert f"BLEU `{bleu['signature']}`, chrF2 `" in page


def test_in_one_pass_a_model_that_is_exact_word_by_word_is_wrong(five_run: FiveRun) -> None:
    """The bug of the article: later positions read padding."""
    assert load(five_run.run).translate(SOURCE) == TARGET
    found = ladder.in_one_pass(five_run.run, five_run.source_file, five_run.target_file)
    assert found["BLEU"]["value"] < 50


# --- fine-tuning ------------------------------------------------------------------------------------------


def test_finetuning(
    five_run: FiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: list[Sequence[str]]
) -> None:
    way = "fine-tuned, mixed, frozen"
    monkeypatch.setattr(finetuning, "WAYS", {way: finetuning.WAYS[way]})
    for side, lines in (("zh", SOURCE), ("en", TARGET)):
        (tmp_path / f"general.{side}").write_text("".join(f"{line} {line}\n" for line in lines), encoding="utf-8")
    mix = f"{{root: {tmp_path}, source: general.zh, target: general.en, weight: 0.5}}"
    recipe, text = tmp_path / "recipe.yaml", five_run.config.read_text()
    recipe.write_text(text.partition("tokenizer:")[0] + f"  mix:\n    general: {mix}\ntrain: {{lr: 1.0e-3}}\n")
    settings = ["train.max_steps=2", "train.validate_every=2", "train.precision=fp32", "train.report=false"]
    runs = tmp_path / "runs"
    tuning, nothing = [str(recipe), "train.lr=2e-3"], [str(five_run.config), "train.warmup=7"]
    for _ in range(2):
        commands.clear()
        results = finetuning.compare(five_run.run, tuning, nothing, [3, 5], runs, settings)
    assert commands == []

    rows = results.tables[finetuning.TITLE]
    assert list(rows) == ["general model", "3 from nothing", f"3 {way}", "5 from nothing", f"5 {way}"]
    bleu = bleu_of(load(five_run.run).translate(SOURCE, beam=5))
    assert rows["general model"] == {"new_BLEU": bleu, "general_BLEU": bleu}
    assert rows["3 from nothing"]["new_BLEU"]["value"] < rows[f"3 {way}"]["new_BLEU"]["value"], "after two steps"
    assert (runs / "data" / "first-3.zh").read_text(encoding="utf-8").splitlines() == SOURCE[:3]
    frozen, scratch = (
        load_config(runs / f"{name}/config.yaml") for name in ("3-fine-tuned-mixed-frozen", "5-from-nothing")
    )
    assert frozen.model == load_config(five_run.run / "config.yaml").model
    assert frozen.data.mix["general"].weight == 0.5
    assert frozen.train.freeze == ("embeddings", "encoder")
    assert scratch.train.init_from == ""
    assert (frozen.train.lr, scratch.train.warmup) == (2e-3, 7)


def test_a_step_trains_what_is_not_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    small = ModelSettings(d_model=16, d_ff=32, n_encoder_layers=1, n_decoder_layers=1)
    monkeypatch.setattr(finetuning_step, "SIZES", small)
    monkeypatch.setattr(finetuning_step, "N_PIECES", 50)
    n_trained = []
    for kind in finetuning_step.KINDS:
        model = finetuning_step.model_of(kind)
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        assert finetuning_step.seconds_of_steps(model, 2) > 0
        n_trained.append(sum(p.numel() for name, p in model.named_parameters() if not p.equal(before[name])))
        assert n_trained[-1] == model.n_trainable
    assert n_trained == sorted({*n_trained}, reverse=True)


# --- data from models -------------------------------------------------------------------------------------


def test_synthetic_data_are_aligned_and_each_system_has_its_own(
    five_corpus: FiveCorpus, monkeypatch: pytest.MonkeyPatch, commands: list[Sequence[str]]
) -> None:
    systems = {name: synthetic.SYSTEMS[name] for name in ("sampled-tagged", "teacher", "student-more")}
    systems["teacher"] = ("small", ["half"], [])
    monkeypatch.setattr(synthetic, "SYSTEMS", systems)
    runs = five_corpus.home / "runs"
    for _ in range(2):  # the second time, all files exist
        commands.clear()
        results = synthetic.compare(five_corpus.config, runs, 5, [*SMALL, "tokenizer.symbols=<BT>"])
    assert [command[0] for command in commands] == ["train"], "of the reverse model, which is finished"

    def lines_of(name: str) -> list[str]:
        return list(iter_lines([runs / "data" / name]))

    assert (lines_of("half.zh"), lines_of("half.en")) == (SOURCE[:2], TARGET[:2])
    assert lines_of("sampled-tagged.en") == lines_of("beam.en") == TARGET[2:]
    for name in ("beam", "sampled"):
        assert [line.removeprefix("<BT> ") for line in lines_of(f"{name}-tagged.zh")] == lines_of(f"{name}.zh")
    assert len(lines_of("half-distilled.en")) == 2
    assert lines_of("other-distilled.zh") == SOURCE[2:]
    reverse = load_config(runs / "reverse/config.yaml").data
    assert reverse.dev is not None
    assert (reverse.train.source, reverse.dev.source) == ((str(runs / "data/half.en"),), ("train.en",))
    tagged = load_config(runs / "sampled-tagged/config.yaml").data
    assert tagged.train.source[1] == str(runs / "data/sampled-tagged.zh")
    rows = results.tables[synthetic.TITLE]
    assert list(rows) == list(systems)
    assert all({"BLEU", "greedy_BLEU", "chrF2"} <= row.keys() for row in rows.values())


def test_a_student_learns_what_an_ensemble_says_to_the_corpus_and_to_sampled_sources(
    five_corpus: FiveCorpus, commands: list[Sequence[str]]
) -> None:
    runs, settings = five_corpus.home / "runs", [*SMALL, "train.warmup=2"]
    for _ in range(2):
        commands.clear()
        rows = students.train_all(five_corpus.config, runs, 2, 2, settings).tables["Models"]
    assert [command[0] for command in commands] == ["train"], "of the reverse model, which is finished"

    def lines_of(name: str) -> list[str]:
        return list(iter_lines([runs / "data" / name]))

    assert (lines_of("corpus.zh"), lines_of("corpus.en")) == (SOURCE, TARGET)
    assert lines_of("distilled-corpus.zh") == SOURCE
    assert lines_of("distilled-sampled-1.zh") == lines_of("sampled-1.zh") != lines_of("sampled-2.zh")
    assert len(lines_of("distilled-sampled-2.en")) == len(SOURCE)
    student = load_config(runs / "student/config.yaml")
    names = ("corpus", "sampled-1", "sampled-2")
    assert student.data.train.target == tuple(str(runs / f"data/distilled-{name}.en") for name in names)
    assert student.model.n_decoder_layers == 1
    assert list(rows) == ["teacher", "teacher-2", "student"]
    assert rows["student"]["parameters"] < rows["teacher"]["parameters"]


def test_the_speed_of_every_system_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[str] = []

    def translated(command: list[object], contest: object, options: Options) -> Sample:
        measured.append(" ".join(map(str, command)))
        return {"sentences_s": 100.0 * len(measured), "BLEU": 30.0 - len(measured)}

    monkeypatch.setattr(students, "translated", translated)
    monkeypatch.setattr(students, "ctranslate2_command", lambda *_: ["loop"])
    monkeypatch.setattr(students, "run_nmt", lambda *_: [])
    table = students.compare(tmp_path, None, Options(tmp_path, None, None, tmp_path, rounds=1))  # type: ignore[arg-type]
    assert len(measured) == len(set(measured)) == 9
    assert table.rows()["student, shortlist, greedy"]["× " + students.BASE] == 9
    json.dumps(table.as_json())


# --- GPU --------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # of torch.nn.Transformer
def test_every_benchmark_of_a_gpu_runs_in_miniature(five_corpus: FiveCorpus) -> None:
    results = experiments.Results(five_corpus.home / "gpu" / "gpu")
    gpu.measure_all(gpu.Setup(results, five_corpus.config, miniature=True))
    tables = results.tables
    speeds = tables["Training, tiny"]
    assert {"nmt, adamw", "nmt, muon", "torch.nn.Transformer, plain loop"} <= speeds.keys()
    assert all(row["tokens_s"] > 0 for row in speeds.values()), speeds
    assert tables["A step of greedy search, 64 sentences"]["tiny"]["step_us"] > 0
    assert tables["Self-attention, forward and backward"]["45% padding"]["masked_us"] > 0
    assert tables["Resuming"]["deterministic"] == {"steps": 4, "equal": "True"}
    whole, split = tables["A batch too large"].values()
    assert [split[key] for key in ("loss", "grad_norm")] == pytest.approx([whole[key] for key in ("loss", "grad_norm")])
    assert 0 != split["part"] != split["batch"]
    assert tables["Precision"].keys() == {"fp32", "bf16"}
    assert tables["Recipe"]["seed 1"]["BLEU"]["signature"]
