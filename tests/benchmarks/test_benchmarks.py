"""Each kind of measurement of speed runs once, on the five pairs; the speeds are not checked."""

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
from conftest import SOURCE, FiveCorpus, FiveRun, out_lines, run_nmt
from measure import Options, Table, started

from nmt.text.lines import iter_lines


def options(config: Path, scratch: Path, model: Path | None = None) -> Options:
    return Options(config, model, None, scratch, rounds=1, seconds=0.2)


def test_medians_and_ratios_by_hand() -> None:
    samples = {"a": [{"s": 1.0}, {"s": 9.0}, {"s": 2.0}], "b": [{"s": 4.0}, {"s": 3.0}, {"s": 500.0}]}
    table = Table("T", "A note.", {"a": [measure.ROOT / "run", "a b"]}, samples, "s", ["a"])
    assert table.rows() == {"a": {"s": 2.0, "× a": 1.0}, "b": {"s": 4.0, "× a": 2.0}}
    assert "| b | 4.00 | 2.00 |" in table.markdown()
    assert (table.as_json()["samples"], table.as_json()["commands"]) == (samples, {"a": "run 'a b'"})


def test_operations_by_hand() -> None:
    sizes = {"d_model": 1, "d_ff": 10, "n_encoder_layers": 1, "n_decoder_layers": 2, "vocab_size": 100}
    encoder = 2 * (4 + 20) + 2 * 4  # weights at 2 positions; queries times keys, and probabilities times values
    decoder = 3 * (6 + 20) + 2 * 2 + 2 * 3 * (3 + 2)
    assert training.training_flops(sizes, 2, 3) == 6 * (encoder + 2 * decoder + 3 * 100)


def test_memory_and_failure_of_a_command_with_children(tmp_path: Path) -> None:
    child = "x = bytearray(90_000_000); import time; time.sleep(1)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); sys.exit('so it was')"
    with started([sys.executable, "-c", parent], tmp_path) as run, pytest.raises(RuntimeError, match="so it was"):
        run.wait()
    assert run.figures()["memory_mb"] > 90


@pytest.mark.parametrize(
    ("precision", "names"),
    [
        ("bf16", [training.BASELINE, training.PLAIN_BF16, "nmt train, bf16"]),
        ("fp32", [training.BASELINE, "nmt train, fp32"]),
    ],
)
def test_bf16_is_measured_only_where_it_is_not_emulated(
    five_corpus: FiveCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str, names: list[str]
) -> None:
    monkeypatch.setattr(training, "cpu_precision", lambda: precision)
    titles: list[str] = []
    monkeypatch.setattr(training, "windows", lambda title, *_: titles.append(title))
    chosen = options(five_corpus.config, tmp_path)
    assert list(training.trainers(chosen, training.prepare(chosen))) == names
    training.scaling(chosen)
    assert titles == [f"Training by number of processes, {precision}"]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # of torch.nn.Transformer
def test_training(five_corpus: FiveCorpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = options(five_corpus.config, tmp_path)
    task = training.prepare(chosen)
    found = training.trainers(chosen, task)
    *_, nmt = found.values()
    assert training.window(nmt, chosen, task.flops_per_token, peak=1e12)["tokens_s"] > 0
    plain = found[training.BASELINE]
    monkeypatch.setattr(sys, "argv", [*map(str, plain.command[1:]), "--epochs=1", "--validate-s=0"])
    plain_loop.main()  # in this process: faster
    steps = plain.progress.read_text().splitlines()
    pairs = json.loads((task.home / "task.json").read_text())["train"]
    assert sum(plain.tokens(line, 0.0) for line in steps) == sum(len(ids) + 1 for _, ids in pairs)
    assert any("dev_bleu" in line for line in steps)


def test_a_curve_has_the_best_dev_bleu_by_each_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    monkeypatch.setattr(training, "steps", lambda *_, **__: [(now + 30, 7.0), (now + 80, 5.0), (now + 110, 9.0)])
    trainer = training.Trainer([sys.executable, "-c", ""], tmp_path / "metrics", curve.bleu_in_json)
    points: curve.Curve = []
    found = curve.learned(trainer, replace(options(tmp_path, tmp_path), minutes=2.0), points)
    assert (found["1 min"], found["2 min"], len(points)) == (7.0, 9.0, 3)
    assert [curve.bleu_in_json(line, 0.0) for line in ('{"loss": 1}', '{"dev_bleu": 7.0}')] == [0.0, 7.0]
    assert training.from_rate("Step: 7, Tokens per Sec:      800, Lr: 0.1", 0.5) == 400
    assert curve.bleu_of_joey("Steps: 30\tloss: 7.10\tppl: 1210.00\tbleu: 3.25\t*", 0.0) == 3.25


def test_decoding(five_run: FiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "KINDS", ["int8"])
    monkeypatch.setattr(decoding, "STREAMED", 3)
    monkeypatch.setattr(decoding, "UNCOUNTED", 1)
    monkeypatch.setattr(decoding, "run_nmt", lambda *words: out_lines(run_nmt(*words)))  # in this process: faster
    chosen = options(five_run.config, tmp_path, five_run.run)
    contest = decoding.prepare(chosen)
    nmt, ctranslate2 = decoding.nmt_command(contest, "int8"), decoding.ctranslate2_command(contest, "int8")
    for command in ([*nmt, "--stream"], ctranslate2):
        assert decoding.streamed(command, contest, chosen)["ms"] > 0
    assert decoding.translated(ctranslate2, contest, chosen)["BLEU"] == pytest.approx(100)
    assert len(list(iter_lines([contest.many]))) == 5 * decoding.COPIES


def test_serving(five_run: FiveRun, tmp_path: Path) -> None:
    with serving.server(five_run.run, tmp_path) as port:
        sample = serving.asked(port, ["a"], n_clients=2, seconds=0.2)
        assert 0 < sample["p50_ms"] <= sample["p99_ms"]
        with pytest.raises(RuntimeError, match="6,000 characters"):
            serving.asked(port, ["a" * 6_000], n_clients=1, seconds=0.1)


def test_serving_beside_documents(five_run: FiveRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "N_PARAGRAPHS", 3)
    monkeypatch.setattr(serving, "N_REQUESTS", 4)
    monkeypatch.setattr(serving, "PAUSE_S", 0.0)
    with serving.server(five_run.run, tmp_path) as port:
        neighbors = serving.Neighbors(port, SOURCE)
        neighbors.measure(n_clients=2)
    assert list(neighbors.requests) == ["2 clients, alone", "2 clients, beside documents"]
    assert list(neighbors.uploads) == ["in a row, alone", "at once, beside series of 2 clients"]
    for samples in [*neighbors.requests.values(), *neighbors.uploads.values()]:
        assert all(sample["seconds"] > 0 for sample in samples)


WORDS = [f"{a}{b}{c}" for a in ("ka", "lo", "mi", "tu") for b in "aeiou" for c in ("n", "ra", "sto", "ve", "x")]
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


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The corpus grows by 20,000 distinct pairs, 28 MB as Python lists. malloc grows the heap by 8 MB at a time."""
    monkeypatch.setattr(measure, "LOOK_EVERY_S", 0.1)
    draw, configs = random.Random(1), [tmp_path / "small.yaml", tmp_path / "large.yaml"]
    for side in ("a", "b"):
        lines = [f"{n} {' '.join(draw.choices(WORDS, k=draw.randint(5, 15)))}\n" for n in range(40_000)]
        for config, n in zip(configs, (20_000, 40_000), strict=True):
            config.with_suffix(f".{side}").write_text("".join(lines[:n]))
    for config in configs:
        files = f"{{source: {config.stem}.a, target: {config.stem}.b}}"
        config.write_text(f"run: x\ndata: {{root: {tmp_path}, train: {files}}}\n")
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    with started([sys.executable, "-c", PREPARE, *configs], tmp_path, stdout=subprocess.PIPE) as run:
        assert run.process.stdout
        assert run.process.stdout.readline()
        small_mb = run.figures()["memory_mb"]
        run.wait()
        assert 0 < small_mb <= run.figures()["memory_mb"] < small_mb + 20
