"""The programs that compare models and steps, on the five pairs: their tables, and that they resume."""

import re
import subprocess
from collections.abc import Sequence
from typing import Any

import experiments
import gpu
import ladder
import pytest
from conftest import SOURCE, TARGET, FiveCorpus, data_of_page, run_nmt
from measure import NMT, ROOT

from nmt.config import load_config, values
from nmt.evaluate import score
from nmt.translate.loading import load


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
    monkeypatch.setattr("nmt.translate.translator.needs_torch", lambda *_: "a test")
    return called


def bleu_of(found: list[str]) -> dict[str, Any]:
    return vars(score(found, [TARGET])[0])


def test_a_rung_differs_from_the_transformer_as_its_page_says() -> None:
    page = (ROOT / "configs/ladder/README.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"^\| \[(.+?)\]\(\1\.yaml\) \|(.*?)\|", page, re.MULTILINE))
    configs = {path.stem: load_config(path) for path in (ROOT / "configs/ladder").glob("*.yaml")}
    assert sorted(name for rungs, _ in ladder.LADDERS.values() for name in rungs) == sorted(configs)
    ignored = "run", "train.snapshots"
    of_rung = {name: {k: v for k, v in values(one) if k not in ignored} for name, one in configs.items()}
    for name, of_one in of_rung.items():
        assert configs[name].run == f"runs/ladder-{name}"
        alike = name.removeprefix("tatoeba-")
        base = of_rung[name.replace(alike, "transformer")]
        differences = {f"`{key.split('.')[1]}: {value}`" for key, value in of_one.items() - base.items()}
        assert differences == set(re.findall("`.+?`", said[alike]))


def test_the_ladder(five_corpus: FiveCorpus, commands: list[Sequence[str]]) -> None:
    home, runs = five_corpus.home, five_corpus.home / "ladder"
    text = five_corpus.config.read_text().replace("d_model: 64", "d_model: 32, dropout: 0")
    text = text.replace("max_steps: 200", "max_steps: 40, snapshots: 2")
    text = text.replace("validate_every: 100", "validate_every: 40")
    (home / "attention.yaml").write_text(f"# Attention alone\n{text}")
    text = text.replace("d_model", "architecture: rnn, d_model").replace("max_steps: 40", "max_steps: 3")
    (home / "recurrent.yaml").write_text(f"# Recurrent\n{text}")
    for _ in range(2):  # the second time, all rows are there
        commands.clear()
        results = experiments.Results(runs / "ladder")
        ladder.climb(results, "Five", ["recurrent", "attention"], "dev", home, runs)
    assert [command[0] for command in commands] == ["explain", "train"], "of the second seed, which is finished"
    grown = data_of_page((runs / "growth.html").read_text(encoding="utf-8"))
    assert [run["run"] for run in grown] == [str(runs / "recurrent"), str(runs / "attention")]

    rungs, ways = results.tables["Five, test: the rungs"], results.tables["Five, dev: ways to decode attention"]
    assert list(rungs) == ["recurrent", "attention"]
    assert [row["what"] for row in rungs.values()] == ["Recurrent", "Attention alone"]
    n_tokens = sum(len(load(runs / "attention").tokenizers.target.encode(line)) + 1 for line in TARGET)
    assert [row["target_tokens"] for row in rungs.values()] == [3 * n_tokens, 40 * n_tokens]
    assert rungs["attention"]["dev_BLEU"] > rungs["recurrent"]["dev_BLEU"]
    assert all(row["parameters"] > 10_000 and row["minutes"] > 0 for row in rungs.values())
    bleu = bleu_of(load(runs / "attention").translate(SOURCE, beam=5))
    together = load([runs / "attention", runs / "attention-seed-2"]).translate(SOURCE, beam=5)
    assert rungs["attention"]["BLEU"] == ways["beam 5"]["BLEU"] == bleu
    assert ways["beam 5, both seeds together"]["BLEU"] == bleu_of(together)
    assert {"in one pass", "beam 5, both seeds together"} < ways.keys()

    page = (runs / "ladder.md").read_text()
    assert f"| {rungs['attention']['greedy_BLEU']['value']:.2f} | {bleu['value']:.2f} |" in page
    assert f"BLEU `{bleu['signature']}`, chrF2 `" in page


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # of torch.nn.Transformer
def test_every_benchmark_of_a_gpu_runs_in_miniature(five_corpus: FiveCorpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "find_spec", lambda _: None)  # transformers takes seconds to load
    results = experiments.Results(five_corpus.home / "gpu" / "gpu")
    gpu.measure(gpu.Setup(results, five_corpus.config, miniature=True))
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
