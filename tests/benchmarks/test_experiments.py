"""The programs that compare models and steps: the ladder on the five pairs, and that it resumes; speed on a GPU."""

import re
import subprocess
from collections.abc import Sequence
from typing import Any

import gpu
import ladder
import pytest
import speedrun
import torch
from conftest import FiveCorpus, run_nmt
from experiments import Results
from measure import NMT, ROOT

from nmt.config import ModelSettings, load_config, values

NAMES_OF_RUNGS = sorted(ladder.MULTI30K + ladder.TATOEBA)


@pytest.fixture(autouse=True)
def commands(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nmt commands that were run, in this process and by torch: no model is converted, which is faster."""
    names = list[str]()
    run_command = subprocess.run

    def run(command: Sequence[str], **options: Any) -> Any:
        if command[: len(NMT)] != NMT:
            return run_command(command, **options)
        words = command[len(NMT) :]
        names.append(words[0])
        done = run_nmt(*words)
        assert done.returncode == 0, done.stderr.decode()
        return subprocess.CompletedProcess(command, 0, done.stdout.decode())

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("nmt.translate.loading.needs_torch", lambda *_: "a test")
    return names


# --- the ladder -------------------------------------------------------------------------------------------


def settings_of(name: str) -> set[str]:
    """What rungs may differ in, without the names of sections."""
    settings = dict(values(load_config(ROOT / f"configs/ladder/{name}.yaml")))
    del settings["run"]
    return {f"{key.rpartition('.')[2]}: {value}" for key, value in settings.items()}


def test_every_config_is_a_rung() -> None:
    configs = (ROOT / "configs/ladder").glob("*.yaml")
    assert sorted(path.stem for path in configs) == NAMES_OF_RUNGS


@pytest.mark.parametrize("name", NAMES_OF_RUNGS)
def test_a_rung_differs_from_the_transformer_as_its_page_says(name: str) -> None:
    kind = name.removeprefix("tatoeba-")
    base = name.replace(kind, "transformer")
    page = (ROOT / "configs/ladder/README.md").read_text()
    (said,) = re.findall(rf"^\| \[{kind}\]\({kind}\.yaml\) \|(.*?)\|", page, re.MULTILINE)
    differences = settings_of(name) - settings_of(base)
    assert {f"`{setting}`" for setting in differences} == set(re.findall("`.+?`", said))
    assert load_config(ROOT / f"configs/ladder/{name}.yaml").run == f"runs/ladder-{name}"


def write_rungs(five: FiveCorpus) -> None:
    """Write configs of a recurrent model, which does not learn, and of a Transformer, which does."""
    text = five.config.read_text().replace("validate_every: 100", "validate_every: 40")
    attention = text.replace("d_model: 64", "d_model: 32, dropout: 0").replace("max_steps: 200", "max_steps: 40")
    recurrent = text.replace("d_model: 64", "d_model: 32, architecture: rnn").replace("max_steps: 200", "max_steps: 3")
    (five.home / "attention.yaml").write_text(f"# Attention alone\n{attention}")
    (five.home / "recurrent.yaml").write_text(f"# Recurrent\n{recurrent}")


def test_the_ladder_is_climbed_once(five_corpus: FiveCorpus, commands: list[str]) -> None:
    home = five_corpus.home
    runs = five_corpus.home / "ladder"
    write_rungs(five_corpus)
    five = ladder.Ladder("Five", ["recurrent", "attention"], "dev")
    ladder.climb(five, Results(runs / "ladder"), home, runs)
    # What is in the file is not made again.
    commands.clear()
    results = Results(runs / "ladder")
    ladder.climb(five, results, home, runs)
    assert commands == ["train"], "of the second seed, which is finished"
    # A table of the rungs, and one of the ways to decode the better one.
    rungs = results.tables["Five, test: the rungs"]
    ways = results.tables["Five, dev: ways to decode attention"]
    assert rungs["attention"]["BLEU"] == ways["beam 5"]["BLEU"]
    assert {"in one pass", "beam 5, both seeds together"} <= ways.keys()
    result = f"{ways['beam 5']['BLEU']['value']:.2f}"
    assert result in (runs / "ladder.md").read_text()


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # of torch.nn.Transformer
def test_speed_beside_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a CPU, with the smallest model and the fewest pairs."""
    monkeypatch.setattr(gpu, "N_PAIRS", 4)
    monkeypatch.setattr(gpu, "peak_flops", lambda *_: 1e12)  # measuring it takes half a minute on a CPU
    settings = ModelSettings(d_model=16, n_heads=2, n_encoder_layers=1, n_decoder_layers=1, d_ff=32)
    table = gpu.compared("tiny", gpu.Task(settings, 64, torch.device("cpu")), seconds=0)
    assert list(table.rows()) == ["nmt, adamw", "nmt, muon", gpu.PLAIN]
    assert gpu.PLAIN in table.markdown()
    assert table.as_json()["rows"] == table.rows()
    assert all(row["tokens_s"] > 0 for row in table.rows().values())


# --- the speedrun -----------------------------------------------------------------------------------------


def test_a_whole_run_is_trained_and_scored(five_corpus: FiveCorpus, commands: list[str]) -> None:
    (five_corpus.home / "configs").mkdir()
    five_corpus.config.rename(five_corpus.home / "configs/five.yaml")
    contestant = speedrun.Contestant("now", five_corpus.home, ["train.max_steps=3"])
    row = speedrun.raced(contestant, "five", 1, five_corpus.home)
    assert commands == ["train", "translate", "eval"]
    assert 0 <= row["dev_BLEU"] <= 100
    assert row["cpu_s"] >= 0  # the commands ran in this process


def test_a_recipe_counts_if_its_mean_reaches_the_mark() -> None:
    contestants = [speedrun.Contestant(name, ROOT, []) for name in ("now", "base")]
    rows = {
        "now, seed 1": {"cpu_s": 100.0, "dev_BLEU": 97.0},
        "now, seed 2": {"cpu_s": 110.0, "dev_BLEU": 99.2},
        "base, seed 1": {"cpu_s": 200.0, "dev_BLEU": 98.0},
        "base, seed 2": {"cpu_s": 220.0, "dev_BLEU": 98.0},
    }
    row = speedrun.summary(rows, contestants, "demo", [1, 2])
    assert row["counts"] == "yes"
    assert row["share"] == 0.5
    assert speedrun.summary(rows, contestants, "demo", [1])["counts"] == "no"


@pytest.mark.parametrize(
    ("seconds", "base", "p"),
    [([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], 0.5), ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], 0.0107)],
)
def test_the_p_value_is_that_of_welch(seconds: list[float], base: list[float], p: float) -> None:
    """The second value is what scipy.stats.ttest_ind computes with equal_var=False, alternative="less"."""
    assert speedrun.p_faster(seconds, base) == pytest.approx(p, abs=1e-4)
