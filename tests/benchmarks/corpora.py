"""How the start and the memory of `nmt train` grow with the corpus."""

import json
import random
import shutil
import time
from functools import partial

from measure import NMT, Options, Sample, Table, interleaved, started
from training import Trainer, counted, steps

from nmt.run.directory import RunDirectory

CORPORA = (30_000, 300_000, 3_000_000)


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
