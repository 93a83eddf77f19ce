"""The programs that train and compare models, on the five pairs: their data, their tables, and that they resume."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import experiments
import gpu
import ladder
import pytest
import students
from conftest import SOURCE, TARGET, FiveCorpus, FiveRun, run_nmt
from measure import NMT, ROOT, Options, Sample

from nmt.config import load_config, values
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
    text = text.replace("max_steps: 200", "max_steps: 40").replace("validate_every: 100", "validate_every: 40")
    (home / "attention.yaml").write_text(f"# Attention alone\n{text}")
    text = text.replace("d_model", "architecture: rnn, d_model").replace("max_steps: 40", "max_steps: 3")
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
    assert [row["target_tokens"] for row in rungs.values()] == [3 * n_tokens, 40 * n_tokens]
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


# --- students --------------------------------------------------------------------------------------------


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
    assert tables["Resuming"]["deterministic"] == {"steps": 4, "equal": "True"}
    whole, split = tables["A batch too large"].values()
    assert [split[key] for key in ("loss", "grad_norm")] == pytest.approx([whole[key] for key in ("loss", "grad_norm")])
    assert 0 != split["part"] != split["batch"]
    assert tables["Precision"].keys() == {"fp32", "bf16"}
    assert tables["Recipe"]["seed 1"]["BLEU"]["signature"]
