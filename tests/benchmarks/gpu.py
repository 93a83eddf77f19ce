"""Benchmarks that need a GPU: speed beside plain loops, and a recipe in fp32 and bf16.

The tables go to stdout and, after each row, to gpu.md and gpu.json; a row that is there is not measured again. Each row
ends within ten minutes.
"""

import argparse
import gc
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from experiments import Results, Row, scores, trained
from growth import seconds_of
from measure import parsed
from plain_loop import PAD, Marian, PlainTransformer
from plain_loop import train_step as plain_step
from torch import nn
from training import peak_flops, training_flops

from nmt.config import ModelSettings, TrainSettings
from nmt.model.transformer import Transformer
from nmt.text import EOS
from nmt.text.batches import Batch, pair_batches
from nmt.train.memory import peak_memory
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, train_step

Step = Callable[[Batch], object]  # a training step on a batch, which it moves to the device


def sized(d_model: int, n_heads: int, n_layers: int, d_ff: int) -> ModelSettings:
    """Settings of a Transformer with as many encoder as decoder layers."""
    return ModelSettings(
        d_model=d_model, n_heads=n_heads, n_encoder_layers=n_layers, n_decoder_layers=n_layers, d_ff=d_ff
    )


# Number of parameters -> settings and vocabulary.
SIZES = {
    "7.3M": (sized(256, 4, 4, 512), 8_000),
    "65M": (sized(512, 8, 6, 2048), 40_000),
    "210M": (sized(1024, 16, 6, 4096), 32_000),
}


@dataclass(frozen=True)
class Setup:
    """Where and how long to measure. A test measures for moments on a CPU.

    Attributes:
        recipe: the config that is trained.
        home: directory of all files.
        overrides: settings of all trainings.
        seconds: of each system's measurement.
        batch_tokens: of the training steps; at most so many positions.
        compiled: whether the systems are also measured with `torch.compile`.
    """

    recipe: Path
    home: Path
    device: str = "cuda"
    overrides: Sequence[str] = ()
    seconds: float = 10.0
    batch_tokens: int = 16_384
    compiled: bool = True

    def synchronize(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


# --- training steps ---------------------------------------------------------------------------------------


def batches_of(vocabulary: int, batch_tokens: int) -> list[Batch]:
    """Batches of random token ids, whose lengths are about those of news: 24 pieces on average, 5 to 100."""
    draw = random.Random(1)
    n_pairs = batch_tokens // 2
    lengths = [min(max(int(draw.lognormvariate(3, 0.6)), 5), 100) for _ in range(n_pairs)]
    source, target = ([[draw.randrange(EOS + 1, vocabulary) for _ in range(n)] for n in lengths] for _ in range(2))
    found = list(pair_batches(source, target, batch_tokens))
    draw.shuffle(found)
    return found


def training(setup: Setup, results: Results) -> None:
    """Target tokens a second of nmt, a plain loop over torch.nn.Transformer, and transformers' Marian, in bf16."""
    for size, (settings, vocabulary) in SIZES.items():
        sizes = {**settings.model_dump(), "vocab_size": vocabulary}
        batches = batches_of(vocabulary, setup.batch_tokens)
        for name, make_step in systems(sizes, setup).items():
            results.add(f"training, {size}", name, partial(speed, make_step, batches, sizes, setup))


def speed(make_step: Callable[[], Step], batches: Sequence[Batch], sizes: dict[str, Any], setup: Setup) -> Row:
    """Target tokens a second, the share of the GPU's peak FLOP/s, and its peak memory."""
    gc.collect()  # the model before: a `Replicas` refers to itself
    torch.cuda.empty_cache()
    if setup.device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    n_flops = sum(
        training_flops(sizes, int(src), int(tgt))
        for batch in batches
        for src, tgt in zip((batch.src != PAD).sum(1), (batch.tgt_out != PAD).sum(1), strict=True)
    )
    n_tokens = sum(batch.n_target_tokens for batch in batches)
    try:
        step = make_step()

        def epoch() -> None:
            for batch in batches:
                step(batch)
            setup.synchronize()

        seconds = seconds_of(epoch, setup.seconds)
    except RuntimeError as error:  # out of memory, or no compiler
        return {"failed": str(error).partition("\n")[0][:80]}
    peak = peak_flops(torch.bfloat16, setup.device, setup.batch_tokens // 2)
    memory_gb = peak_memory(torch.device(setup.device)) / 1e9
    return {"tokens_s": n_tokens / seconds, "percent_of_peak": 100 * n_flops / seconds / peak, "memory_gb": memory_gb}


def systems(sizes: dict[str, Any], setup: Setup) -> dict[str, Callable[[], Step]]:
    """The systems that are compared: for the name of each, a function that makes its model and returns its step.

    Args:
        sizes: settings of the model, and `vocab_size`.
    """
    settings, vocabulary = ModelSettings(**{key: sizes[key] for key in ModelSettings.model_fields}), sizes["vocab_size"]
    device = torch.device(setup.device)

    def ours(optimizer: Any, compiled: bool = False) -> Step:
        model, train = Transformer(settings, vocabulary, vocabulary).to(device), TrainSettings(optimizer=optimizer)
        optimizers, options = make_optimizers(model, train), StepOptions(train, lr=1e-4, seed=1, bf16=True)
        replicas = Replicas(maybe_compiled(model, compiled))
        replicas.train()
        return lambda batch: train_step(replicas, optimizers, [batch], options)

    def plain(kind: Callable[[dict[str, Any]], nn.Module], compiled: bool = False) -> Step:
        model = kind(sizes).to(device)
        optimizer, called = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), maybe_compiled(model, compiled)

        def step(batch: Batch) -> None:
            batch = batch.to(device)
            tensors = (batch.src, batch.tgt_in, batch.tgt_out)
            plain_step(called, optimizer, tensors, bf16=True, label_smoothing=0.1, clip_norm=1.0)

        return step

    found: dict[str, Callable[[], Step]] = {
        "nmt, adamw": partial(ours, "adamw"),
        "nmt, muon": partial(ours, "muon"),
        "torch.nn.Transformer, plain loop": partial(plain, PlainTransformer),
    }
    if setup.compiled:
        found["nmt, adamw, compiled"] = partial(ours, "adamw", compiled=True)
        found["torch.nn.Transformer, plain loop, compiled"] = partial(plain, PlainTransformer, compiled=True)
    if find_spec("transformers"):
        found["transformers' Marian, plain loop"] = partial(plain, Marian)
    return found


def maybe_compiled(model: nn.Module, compiled: bool) -> nn.Module:
    """The model, or what `torch.compile` makes of it."""
    return torch.compile(model, dynamic=True) if compiled else model  # type: ignore[return-value]


# --- trainings --------------------------------------------------------------------------------------------


def recipe(setup: Setup, results: Results) -> None:
    """The recipe in fp32, and in bf16 with three seeds."""
    for kind, seed in (("fp32", 1), ("bf16", 1), ("bf16", 2), ("bf16", 3)):
        settings = [f"train.precision={kind}", f"seed={seed}"]
        results.add("recipe", f"{kind}, seed {seed}", partial(of_recipe, setup, f"{kind}-{seed}", *settings))


def of_recipe(setup: Setup, name: str, *overrides: str) -> Row:
    """Train the recipe; its best dev figure, and its scores on test with beam 5."""
    on = "--device", setup.device
    row = trained(setup.recipe, setup.home / name, *setup.overrides, *overrides, "train.report=false", *on)
    return {**row, **scores("-m", setup.home / name, "--beam", 5, *on)}


BENCHMARKS = {one.__name__: one for one in (training, recipe)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)} [all]")
    parser.add_argument("--home", type=Path, default=Path(".bench/gpu"), help="where everything is written")
    parser.add_argument("--config", type=Path, default=Path("configs/demo.yaml"), help="the recipe that is trained")
    args = parsed(parser)
    if unknown := set(args["names"]) - set(BENCHMARKS):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    if not torch.cuda.is_available():
        parser.error("there is no GPU")
    setup, results = Setup(args["config"], args["home"]), Results(args["home"] / "gpu")
    for name in args["names"] or BENCHMARKS:
        BENCHMARKS[name](setup, results)
    print(results.markdown(), end="")


if __name__ == "__main__":
    main()
