"""The ladder: each rung differs in one respect, and the tables have the scores of the commands, on the five pairs."""

import itertools
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence

import ladder
import pytest
from conftest import SOURCE, TARGET, FiveCorpus, FiveRun
from conftest import run_nmt as called_nmt
from measure import ROOT

from nmt.config import load_config, values
from nmt.decode.translator import load
from nmt.evaluate import score

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


def settings(name: str) -> dict[str, str]:
    return {key: value for key, value in values(load_config(ROOT / f"configs/ladder/{name}.yaml")) if key != "run"}


def test_the_rungs_are_those_of_the_ladders() -> None:
    names = [name for one in ladder.LADDERS for name in one.rungs]
    assert sorted(names) == sorted(path.stem for path in (ROOT / "configs/ladder").glob("*.yaml"))
    assert names == list(ONLY)
    for name in names:
        assert load_config(ROOT / f"configs/ladder/{name}.yaml").run == f"runs/ladder-{name}"


@pytest.mark.parametrize("name", ONLY)
def test_a_rung_differs_in_what_it_says_alone(name: str) -> None:
    base = settings("tatoeba-transformer" if name.startswith("tatoeba") else "transformer")
    assert dict(settings(name).items() - base.items()) == ONLY[name]


def run_nmt(*arguments: object, lines: Sequence[str] = ()) -> list[str]:
    """Like `ladder.run_nmt`, but in this process, which is faster."""
    done = called_nmt(*arguments, input="".join(f"{line}\n" for line in lines).encode())
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().split("\n")[:-1]


def test_tables(five_corpus: FiveCorpus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(ladder, "run_nmt", run_nmt)
    clock = itertools.count()
    monkeypatch.setattr(ladder, "core_minutes", lambda: float(next(clock)))
    text = five_corpus.config.read_text().replace("d_model: 64", "d_model: 32, dropout: 0")
    text = text.replace("max_steps: 200", "max_steps: 60").replace("validate_every: 100", "validate_every: 60")
    (five_corpus.home / "attention.yaml").write_text(f"# Attention alone\n{text}")
    (five_corpus.home / "recurrent.yaml").write_text(
        "# Recurrent\n" + text.replace("d_model", "architecture: rnn, d_model").replace("max_steps: 60", "max_steps: 3")
    )
    runs = five_corpus.home / "ladder"
    five = ladder.Ladder("Five", ["recurrent", "attention"], "dev")
    ladder.climb_all([five], five_corpus.home, runs)

    tables = json.loads((runs / "ladder.json").read_text())
    assert list(tables) == ["Five, test: the rungs", "Five, dev: ways to decode attention"]
    rungs, ways = tables.values()
    assert [(row["rung"], row["what"]) for row in rungs] == [
        ("recurrent", "Recurrent"),
        ("attention", "Attention alone"),
    ]
    n_tokens = sum(len(load(runs / "attention").tokenizers.target.encode(line)) + 1 for line in TARGET)
    assert [row["target_tokens"] for row in rungs] == [3 * n_tokens, 60 * n_tokens]
    assert rungs[1]["dev_BLEU"] > rungs[0]["dev_BLEU"]
    assert [row["core_minutes"] for row in rungs] == [1.0, 1.0]
    assert all(row["parameters"] > 10_000 for row in rungs)

    found = load(runs / "attention").translate(SOURCE, beam=5)
    bleu, chrf = score(found, [TARGET])
    assert (rungs[1]["BLEU"], rungs[1]["chrF2"]) == (vars(bleu), vars(chrf))
    assert ways[2]["BLEU"] == rungs[1]["BLEU"]
    together = load([runs / "attention", runs / "attention-seed-2"]).translate(SOURCE, beam=5)
    assert ways[4]["BLEU"] == vars(score(together, [TARGET])[0])
    assert [row["decoding"] for row in ways][::5] == ["in one pass", "minimum Bayes risk"]
    assert load_config(runs / "attention-seed-2" / "config.yaml").seed == 2

    shown = (runs / "ladder.md").read_text()
    assert f"| {rungs[1]['dev_BLEU']:.2f} | {rungs[1]['greedy_BLEU']['value']:.2f} | {bleu.value:.2f} |" in shown
    assert f"BLEU `{bleu.signature}`, chrF2 `{chrf.signature}`" in shown

    capsys.readouterr()
    ladder.climb_all([five], five_corpus.home, runs)  # nothing is trained or translated again
    assert "translating" not in capsys.readouterr().err
    assert json.loads((runs / "ladder.json").read_text()) == tables
    other = (runs / "recurrent" / "model.safetensors").read_bytes()
    (runs / "attention" / "model.safetensors").write_bytes(other)  # translations of other weights are not reused
    ladder.decoded([runs / "attention"], load_config(five_corpus.config), "test", ladder.BEAM)
    assert "translating" in capsys.readouterr().err


def test_one_pass_is_not_word_by_word(five_run: FiveRun) -> None:
    """The first word is that of greedy search, which has also read only BOS; later positions read padding."""
    at_once = ladder.in_one_pass(five_run.run, SOURCE)
    assert [text.split()[0] for text in at_once] == [text.split()[0] for text in TARGET]
    assert at_once != TARGET


def test_a_command_that_fails_or_is_left_ends_and_its_time_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ladder.core_minutes()
    with pytest.raises(subprocess.CalledProcessError):
        ladder.run_nmt("translate", "-m", "nowhere")
    assert ladder.core_minutes() > before
    told = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(7)); time.sleep(60)"
    monkeypatch.setattr(ladder, "NMT", [sys.executable, "-c", told])
    timer = threading.Timer(1, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        ladder.run_nmt()
