"""How cost grows with the corpus (of `nmt train`), and with model and sentence sizes (of steps on random ids)."""

import json
import random
import shutil
import time
from collections.abc import Callable
from functools import partial

import torch
from measure import NMT, Options, Sample, Table, foreign, interleaved, started, times
from training import Trainer, counted, steps

from nmt.config import ModelSettings, TrainSettings
from nmt.decode.options import SearchOptions
from nmt.decode.search import search
from nmt.model.incremental import incremental_decoder
from nmt.model.transformer import Transformer
from nmt.run.directory import RunDirectory
from nmt.text import EOS
from nmt.text.batches import collate
from nmt.train.loop import uses_bf16
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, train_step

BASE = {"length": 15, "beam": 5, "vocabulary": 8000, "width": 256, "threads": 2}
GROWTH = {
    "length": (10, 20, 50, 100, 200, 500),
    "beam": (1, 2, 4, 8, 16),
    "vocabulary": (4000, 8000, 16_000, 32_000, 64_000),
    "width": (128, 256, 512, 1024),
    "threads": (1, 2),
}
N_SENTENCES = 32  # decoded together
PIECES = (256, 512, 1024, 2048, 4096)  # of one source sentence
WINDOW = 64  # attention window: pieces on either side; 0 for all
CORPORA = (30_000, 300_000, 3_000_000)


# --- the model --------------------------------------------------------------------------------------------


def point(options: Options, **changes: int) -> Sample:
    """Microseconds per target token of a training step and of a search, with random weights and ids."""
    at = {**BASE, **changes}
    torch.set_num_threads(at["threads"])
    torch.manual_seed(1)
    model = Transformer(ModelSettings(d_model=at["width"], d_ff=4 * at["width"]), at["vocabulary"], at["vocabulary"])
    settings = TrainSettings()
    n_pairs = max(1, settings.batch_tokens // (at["length"] + 1))
    ids = torch.randint(EOS + 1, at["vocabulary"], (n_pairs, at["length"])).tolist()
    batch = collate(ids, ids, list(range(n_pairs)))
    optimizers, bf16 = make_optimizers(model, settings), uses_bf16(settings, torch.device("cpu"))
    src = torch.randint(EOS + 1, at["vocabulary"], (N_SENTENCES, at["length"]))
    exactly = SearchOptions(beam=at["beam"], max_length_a=0, max_length_b=at["length"], min_length=at["length"])

    def decode() -> None:
        with torch.inference_mode():
            search(incremental_decoder(model.eval()), src, exactly, max_length=model.max_length)

    def train() -> None:
        train_step(Replicas(model.train()), optimizers, [batch], StepOptions(settings, lr=1e-3, seed=1, bf16=bf16))

    before = times()
    return {
        "training_us": 1e6 * seconds_of(train, options.seconds / 10) / batch.n_target_tokens,
        "decoding_us": 1e6 * seconds_of(decode, options.seconds / 10) / (N_SENTENCES * at["length"]),
        "foreign": foreign(before, times()),
    }


def seconds_of(work: Callable[[], None], at_least_s: float) -> float:
    """Mean seconds of a call, over at least `at_least_s`, after one call as warm-up."""
    work()
    start = time.perf_counter()
    n = 0
    while (elapsed := time.perf_counter() - start) < at_least_s or not n:
        work()
        n += 1
    return elapsed / n


def encoding(options: Options, n_pieces: int, window: int) -> Sample:
    """Milliseconds to encode one source: forward pass only, and forward and backward pass."""
    torch.set_num_threads(BASE["threads"])
    sizes = {"d_model": BASE["width"], "d_ff": 4 * BASE["width"], "max_positions": n_pieces}
    settings = ModelSettings.model_validate({**sizes, "attention_window": window})
    model = Transformer(settings, BASE["vocabulary"], BASE["vocabulary"])
    src = torch.randint(EOS + 1, BASE["vocabulary"], (1, n_pieces))

    def read() -> None:
        with torch.inference_mode():
            model.eval().encode(src)

    def learn() -> None:
        memory, _ = model.train().encode(src)
        memory.sum().backward()  # type: ignore[no-untyped-call]

    before = times()
    return {
        "training_ms": 1e3 * seconds_of(learn, options.seconds / 10),
        "reading_ms": 1e3 * seconds_of(read, options.seconds / 10),
        "foreign": foreign(before, times()),
    }


def of_model(options: Options) -> list[Table]:
    """Cost per token as one size grows and all others stay the same; of a long source, with a local window."""
    tables = []
    for name, sizes in GROWTH.items():
        measures = {f"{name} {size:,}": partial(point, options, **{name: size}) for size in sizes}
        rest = ", ".join(f"{key} {value:,}" for key, value in BASE.items() if key != name)
        note = f"Microseconds a target token, random weights, {N_SENTENCES} sentences a search; {rest}."
        samples = interleaved(measures, options.rounds)
        tables.append(Table(f"Growth: {name}", note, {}, samples, "decoding_us", [next(iter(samples))]))
    measures = {
        f"{n:,} pieces, {f'window {window}' if window else 'full'}": partial(encoding, options, n, window)
        for window in (WINDOW, 0)
        for n in PIECES
    }
    note = f"Milliseconds to encode one source, random weights; width {BASE['width']}, {BASE['threads']} threads."
    samples = interleaved(measures, options.rounds)
    return [*tables, Table("Growth: a local window", note, {}, samples, "reading_ms", [next(iter(samples))])]


# --- the corpus -------------------------------------------------------------------------------------------


def write_corpus(options: Options, n_pairs: int) -> Trainer:
    """Write distinct random pairs and a config; return the command that trains on them."""
    home = options.scratch / "growth" / f"{n_pairs}"
    shutil.rmtree(home, ignore_errors=True)  # an existing run would be resumed
    home.mkdir(parents=True)
    words = [f"{a}{b}{c}" for a in ("ka", "lo", "mi", "tu") for b in "aeiou" for c in ("n", "ra", "sto", "ve", "x")]
    draw = random.Random(1)
    for side in ("a", "b"):
        with (home / f"train.{side}").open("w") as file:
            for number in range(n_pairs):
                print(number, *draw.choices(words, k=draw.randint(5, 15)), file=file)
    run, config = RunDirectory(home / "run"), home / "corpus.yaml"
    settings = {
        "run": str(run.path),
        "data": {"root": str(home), "train": {"source": "train.a", "target": "train.b"}},
        "tokenizer": {"vocab_size": 1000},
        "model": {"d_model": 64, "d_ff": 128, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1},
        "train": {"batch_tokens": 4096, "max_steps": 100_000, "validate_every": 100_000},
    }
    config.write_text(json.dumps(settings))
    own = f"NMT_CACHE={home / 'cache'}"  # an empty cache, or the first start might reuse a prepared corpus
    return Trainer(["env", own, *NMT, "train", config], run.metrics_file, counted)


def begun(trainer: Trainer, options: Options) -> Sample:
    """Seconds to the first step, and peak memory `options.seconds` later, when it has stopped growing."""
    trainer.progress.unlink(missing_ok=True)
    start = time.monotonic()
    with started(trainer.command, options.scratch) as run:
        found = steps(trainer, run)
        first, _ = next(found)
        next(now for now, _ in found if now - first > options.seconds)
        return {"start_s": first - start, **run.figures()}


def of_corpus(options: Options) -> list[Table]:
    """Startup time and memory of training as the corpus grows; the second start reuses the files of the first."""
    trainers = {f"{n:,} pairs": write_corpus(options, n) for n in CORPORA}
    trainers |= {f"{name}, again": trainer for name, trainer in trainers.items()}
    measures = {name: partial(begun, trainer, options) for name, trainer in trainers.items()}
    samples = interleaved(measures, 1)
    commands = {name: trainer.command for name, trainer in trainers.items()}
    note = (
        "From the command to the first step, tokenizer included, and the most memory until "
        f"{options.seconds:g} s later; made-up pairs."
    )
    return [Table("Growth: corpus", note, commands, samples, "memory_mb", [next(iter(samples))])]
