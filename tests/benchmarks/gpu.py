"""Training speed on a GPU: the step of `nmt train` beside a plain loop, on random tokens. Tables go to stdout."""

import argparse
import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from measure import Sample, Table, interleaved, parsed
from plain_loop import Marian, PlainTransformer
from plain_loop import train_step as plain_train_step
from torch import nn
from training import Pairs, flops_per_token, peak_flops

from nmt.config import ModelSettings, TrainSettings
from nmt.model.transformer import Transformer
from nmt.text import EOS
from nmt.text.batches import Batch, pair_batches
from nmt.train.memory import peak_memory
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, train_step

BATCH_TOKENS = 16_384
N_PAIRS = 8_192
PLAIN = "torch.nn.Transformer, plain loop"
Step = Callable[[Batch], object]  # a training step on a batch, which it moves to the device


@dataclass(frozen=True)
class Task:
    """The model that all systems train."""

    settings: ModelSettings
    n_pieces: int
    device: torch.device

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes as the plain loop has them."""
        return {**self.settings.model_dump(), "vocab_size": self.n_pieces}

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"


SMALL = ModelSettings(d_model=256, n_heads=4, n_encoder_layers=4, n_decoder_layers=4, d_ff=512)
LARGE = ModelSettings(d_model=512, n_heads=8, n_encoder_layers=6, n_decoder_layers=6, d_ff=2048)
GPU = torch.device("cuda")
TASKS = {"7.3M parameters": Task(SMALL, 8_000, GPU), "65M parameters": Task(LARGE, 40_000, GPU)}


def random_pairs(n_pieces: int) -> Pairs:
    """Pairs of random token ids, whose lengths are about those of news: 24 pieces on average, 5 to 100."""
    draw = random.Random(1)
    pieces = range(EOS + 1, n_pieces)
    pairs = []
    for _ in range(N_PAIRS):
        n = int(draw.lognormvariate(3, 0.6))
        n = min(max(n, 5), 100)
        source = draw.choices(pieces, k=n)
        target = draw.choices(pieces, k=n)
        pairs.append((source, target))
    return pairs


def nmt_step(task: Task, optimizer: str) -> Step:
    model = Transformer(task.settings, task.n_pieces, task.n_pieces).to(task.device)
    train = TrainSettings.model_validate({"optimizer": optimizer})
    optimizers = make_optimizers(model, train)
    options = StepOptions(train, lr=1e-4, seed=1, bf16=True)
    replicas = Replicas(model)
    replicas.model.train()
    return lambda batch: train_step(replicas, optimizers, [batch], options)


def plain_step(task: Task, kind: type[nn.Module] = PlainTransformer, compiled: bool = False) -> Step:
    model: Any = kind(task.sizes).to(task.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    train = TrainSettings().model_dump()
    if compiled:
        model = torch.compile(model, dynamic=True)

    def step(batch: Batch) -> None:
        batch = batch.to(task.device)
        tensors = (batch.src, batch.tgt_in, batch.tgt_out)
        plain_train_step(model, optimizer, tensors, train, bf16=True)

    return step


def speed(make_step: Callable[[], Step], batches: list[Batch], task: Task, seconds: float) -> Sample:
    """Target tokens a second over at least `seconds`, after an epoch as warm-up, and the GPU's peak memory."""
    gc.collect()  # the model before: a `Replicas` refers to itself
    if task.is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    step = make_step()

    def epoch() -> None:
        for batch in batches:
            step(batch)
        if task.is_gpu:
            torch.cuda.synchronize()

    epoch()
    start = time.perf_counter()
    n_epochs = 0
    while n_epochs == 0 or time.perf_counter() - start < seconds:
        epoch()
        n_epochs += 1
    n_tokens = n_epochs * sum(batch.n_target_tokens for batch in batches)
    rate = n_tokens / (time.perf_counter() - start)
    return {"tokens_s": rate, "memory_gb": peak_memory(task.device) / 1e9}


def compared(name: str, task: Task, seconds: float) -> Table:
    """The speed of every system."""
    pairs = random_pairs(task.n_pieces)
    sources = [source for source, _ in pairs]
    targets = [target for _, target in pairs]
    batches = list(pair_batches(sources, targets, BATCH_TOKENS))
    random.Random(1).shuffle(batches)
    steps: dict[str, Callable[[], Step]] = {
        "nmt, adamw": partial(nmt_step, task, "adamw"),
        "nmt, muon": partial(nmt_step, task, "muon"),
        PLAIN: partial(plain_step, task),
    }
    if task.is_gpu:  # compiling takes minutes on a CPU, and loading transformers some seconds
        steps["Marian, plain loop"] = partial(plain_step, task, Marian)
        steps[f"{PLAIN}, compiled"] = partial(plain_step, task, compiled=True)
    measures = {system: partial(speed, make, batches, task, seconds) for system, make in steps.items()}
    samples = interleaved(measures, 1)

    # Of peak is the share of a large matrix product.
    flops = flops_per_token(task.sizes, pairs)
    peak = peak_flops(torch.bfloat16, task.device.type, BATCH_TOKENS // 2)
    for (sample,) in samples.values():
        sample["of_peak"] = sample["tokens_s"] * flops / peak
    return Table(f"Training, {name}", "", {}, samples, "tokens_s", [PLAIN])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="for each system's speed")
    args = parsed(parser)
    if not torch.cuda.is_available():
        parser.error("there is no GPU")
    for name, task in TASKS.items():
        table = compared(name, task, args["seconds"])
        print(table.markdown(), flush=True)


if __name__ == "__main__":
    main()
