"""Each kind of measurement of speed runs once, on the five pairs; the speeds are not checked."""

import itertools
import json
import random
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import curve
import decoding
import measure
import plain_loop
import pytest
import serving
import training
from conftest import FiveCorpus, FiveRun, out_lines, run_nmt
from measure import Options, started

from nmt.text.lines import iter_lines


def options(config: Path, scratch: Path, model: Path | None = None) -> Options:
    return Options(config, model, None, scratch, rounds=1, seconds=0.2)


def test_memory_and_failure_of_a_command_with_children(tmp_path: Path) -> None:
    child = "x = bytearray(90_000_000); import time; time.sleep(1)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); sys.exit('so it was')"
    with started([sys.executable, "-c", parent], tmp_path) as run, pytest.raises(RuntimeError, match="so it was"):
        run.wait()
    assert run.figures()["memory_mb"] > 90


def test_the_speed_of_nmt(five_corpus: FiveCorpus, tmp_path: Path) -> None:
    chosen = options(five_corpus.config, tmp_path)
    task = training.prepare(chosen)
    *_, nmt = training.trainers(chosen, task).values()
    result = training.window(nmt, chosen, task.flops_per_token, peak=1e12)["tokens_s"]
    assert result > 0


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # of torch.nn.Transformer
def test_an_epoch_of_the_plain_loop(five_corpus: FiveCorpus, tmp_path: Path) -> None:
    chosen = options(five_corpus.config, tmp_path)
    task = training.prepare(chosen)
    plain = training.trainers(chosen, task)[training.BASELINE]
    plain_loop.train(task.home / "task.json", plain.progress, "torch", "fp32", validate_s=0, n_epochs=1)
    lines = plain.progress.read_text().splitlines()
    pairs = json.loads((task.home / "task.json").read_text())["train"]
    n_tokens = sum(len(target) + 1 for _, target in pairs)
    result = sum(plain.value(line, 0.0) for line in lines)
    assert result == n_tokens
    assert any("dev_bleu" in line for line in lines)


def test_a_curve_has_the_best_dev_bleu_by_each_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    steps = [(now + 30, 7.0), (now + 80, 5.0), (now + 110, 9.0)]
    monkeypatch.setattr(training, "steps", lambda *_, **__: steps)
    trainer = training.Trainer([sys.executable, "-c", ""], tmp_path / "metrics", curve.bleu_in_json)
    best = curve.learn(trainer, replace(options(tmp_path, tmp_path), minutes=2.0))
    assert (best["1 min"], best["2 min"]) == (7.0, 9.0)


def test_every_contestant_has_a_curve() -> None:
    curves = {name: [curve.Point(1.0, 5.0)] for name in "1234567"}
    picture = curve.svg(curves, 1.0)
    assert picture.count("<polyline") == len(set(curve.COLORS)) == 7


@pytest.fixture
def contest(five_run: FiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> decoding.Contest:
    monkeypatch.setattr(decoding, "KINDS", ["int8"])
    monkeypatch.setattr(decoding, "STREAMED", 3)
    monkeypatch.setattr(decoding, "UNCOUNTED", 1)
    monkeypatch.setattr(decoding, "run_nmt", lambda *words: out_lines(run_nmt(*words)))  # in this process: faster
    return decoding.prepare(options(five_run.config, tmp_path, five_run.run))


def test_decoding(contest: decoding.Contest, tmp_path: Path) -> None:
    chosen = options(tmp_path, tmp_path)
    ctranslate2 = decoding.ctranslate2_command(contest, "int8")
    nmt = decoding.nmt_command(contest, "int8", "--stream")
    outcome = decoding.streamed(nmt, contest, chosen)["ms"]
    assert outcome > 0
    assert decoding.streamed(ctranslate2, contest, chosen)["ms"] > 0
    result = decoding.translated(ctranslate2, contest, chosen)["BLEU"]
    assert result == pytest.approx(100)
    found = len(list(iter_lines([contest.many])))
    assert found == 5 * decoding.COPIES


def test_serving(five_run: FiveRun, tmp_path: Path) -> None:
    with serving.server(five_run.run, tmp_path) as port:
        sample = serving.rate(port, ["a"], n_clients=2, seconds=0.2)
        assert 0 < sample["p50_ms"] <= sample["p99_ms"]
        with pytest.raises(RuntimeError, match="6,000 characters"):
            serving.rate(port, ["a" * 6_000], n_clients=1, seconds=0.1)


PREPARE = """
import itertools, sys
from pathlib import Path
from nmt.config import load_config
from nmt.text import corpus_files
from nmt.train import encoding
from nmt.text.batches import TrainingData
from nmt.train import preparation
corpus_files.in_parallel = encoding.in_parallel = map  # processes that help would add their own memory
preparation.SAMPLE_PAIRS = 1000  # limits the memory of the tokenizer's trainer
for config in sys.argv[1:]:
    settings = load_config(Path(config), ["tokenizer.vocab_size=400", "tokenizer.type=bpe"])
    train = preparation.read_corpus(settings).train
    pairs, ids = encoding.drop_lengths(settings, train, encoding.train_tokenizers(settings, train))
    data = TrainingData(pairs, ids, batch_tokens=4096, seed=1)
    assert sum(len(batch.lines) for batch in itertools.islice(data.batches(0), 200)) > 1000
    print(config, flush=True)
"""


def write_corpus(home: Path, name: str, n_pairs: int) -> Path:
    """Write distinct pairs of 5 to 15 random words, and their config."""
    parts = itertools.product(("ka", "lo", "mi", "tu"), "aeiou", ("n", "ra", "sto", "ve", "x"))
    draw = random.Random(1)
    words = ["".join(syllables) for syllables in parts]
    for side in ("a", "b"):
        with (home / f"{name}.{side}").open("w") as file:
            for n in range(n_pairs):
                print(n, *draw.choices(words, k=draw.randint(5, 15)), file=file)
    config = home / f"{name}.yaml"
    config.write_text(f"run: x\ndata: {{root: {home}, train: {{source: {name}.a, target: {name}.b}}}}\n")
    return config


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus grows by 20,000 distinct pairs, 28 MB as Python lists. malloc grows the heap by 8 MB at a time."""
    monkeypatch.setattr(measure, "LOOK_EVERY_S", 0.1)
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    configs = [write_corpus(tmp_path, "small", 20_000), write_corpus(tmp_path, "large", 40_000)]
    with started([sys.executable, "-c", PREPARE, *configs], tmp_path, stdout=subprocess.PIPE) as run:
        assert run.process.stdout
        assert run.process.stdout.readline()
        small_mb = run.figures()["memory_mb"]
        run.wait()
        assert 0 < small_mb <= run.figures()["memory_mb"] < small_mb + 20
