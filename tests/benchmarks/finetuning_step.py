"""How much CPU time and memory a training step takes with frozen parts, on one core.

A step of 128 pairs of 32 tokens with a Transformer of 7.6M parameters (3 + 3 layers, width 256, 8,000 pieces) in fp32
on one thread. The kinds take turns, each in a process of its own, which prints the CPU seconds of its last step.
"""

import argparse
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import torch
from measure import Options, Sample, Table, interleaved, parsed, started

from nmt.config import ModelSettings, TrainSettings
from nmt.model.transformer import Transformer
from nmt.text.batches import Batch
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, train_step

SIZES = ModelSettings(d_model=256, d_ff=1024, n_encoder_layers=3, n_decoder_layers=3)
SCRATCH = Path(".bench")
N_PIECES, N_PAIRS, LENGTH = 8000, 128, 32
KINDS = {
    "all weights trained": [],
    "embeddings frozen": ["embeddings"],
    "embeddings and encoder frozen": ["embeddings", "encoder"],
}


def model_of(kind: str) -> Transformer:
    """A model of one of the `KINDS`."""
    torch.manual_seed(0)
    model = Transformer(SIZES, N_PIECES, N_PIECES).train()
    model.freeze(KINDS[kind])
    return model


def seconds_of_steps(model: Transformer, n_steps: int) -> float:
    """Do some steps; return the CPU seconds of the last."""
    replicas, optimizers = Replicas(model), make_optimizers(model, TrainSettings())
    for seed in range(n_steps):
        generator = torch.Generator().manual_seed(seed)
        src, tgt_in, tgt_out = torch.randint(4, N_PIECES, (3, N_PAIRS, LENGTH), generator=generator)
        batch = Batch(src, tgt_in, tgt_out, lines=[*range(N_PAIRS)])
        start = time.thread_time()
        train_step(replicas, optimizers, [batch], StepOptions(TrainSettings(), lr=1e-4, seed=seed))
    return time.thread_time() - start


def measured(kind: str) -> Sample:
    """Parameters that are trained, CPU seconds of a step, and memory of a process."""
    with started([sys.executable, __file__, "--kind", kind], SCRATCH, stdout=subprocess.PIPE) as run:
        assert run.process.stdout is not None
        printed = run.process.stdout.read()
        run.wait()
        return {"trained_m": model_of(kind).n_trainable / 1e6, "cpu_s": float(printed), **run.figures()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, help="only print the CPU seconds of a step of this kind")
    args = parsed(parser)
    torch.set_num_threads(1)
    if args["kind"]:
        print(seconds_of_steps(model_of(args["kind"]), 3))
        return
    SCRATCH.mkdir(parents=True, exist_ok=True)
    samples = interleaved({kind: partial(measured, kind) for kind in KINDS}, Options.rounds)
    print(Table("A step", "CPU seconds on one core.", {}, samples, "cpu_s", ["all weights trained"]).markdown())


if __name__ == "__main__":
    main()
