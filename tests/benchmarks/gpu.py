"""What only a GPU shows: training speed beside plain loops, precision, exact resume, memory, steps of a search.

The tables go to stdout and, after each row, to gpu.md and gpu.json; a row that is there is not measured again.
"""

import argparse
import gc
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import torch
from experiments import Results, Row, trained
from measure import parsed
from plain_loop import PAD, Marian, PlainTransformer
from plain_loop import train_step as plain_step
from torch import nn
from training import peak_flops, training_flops

from nmt.config import ModelSettings, TrainSettings
from nmt.model.incremental import incremental_decoder
from nmt.model.transformer import Transformer
from nmt.run.checkpoint import hash_tensors, read_newest
from nmt.run.directory import RunDirectory
from nmt.text import BOS, EOS
from nmt.text.batches import Batch, pair_batches
from nmt.train.memory import peak_memory, split_on_out_of_memory
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepFigures, StepOptions, train_step

HOME = Path(".bench/gpu")  # where everything is written
PIECES = ("speed", "memory", "quality")
N_CALLS = 100  # of an operation between two synchronizations
Step = Callable[[Batch], object]  # a training step on a batch, which it moves to the device


@dataclass(frozen=True)
class Size:
    """A Transformer with as many encoder as decoder layers."""

    d_model: int
    n_heads: int
    n_layers: int
    d_ff: int
    n_vocab: int

    def settings(self) -> ModelSettings:
        layers = {"n_encoder_layers": self.n_layers, "n_decoder_layers": self.n_layers}
        return ModelSettings(d_model=self.d_model, n_heads=self.n_heads, d_ff=self.d_ff, **layers)

    def named(self) -> dict[str, Any]:
        """The sizes as the plain loop has them."""
        return {**self.settings().model_dump(), "vocab_size": self.n_vocab}

    def transformer(self, device: torch.device, **changes: float) -> Transformer:
        settings = self.settings().model_copy(update=changes)
        return Transformer(settings, self.n_vocab, self.n_vocab).to(device)

    def batches(self, batch_tokens: int) -> list[Batch]:
        """Batches of random token ids, whose lengths are about those of news: 24 pieces on average, 5 to 100."""
        draw = random.Random(1)
        pieces = range(EOS + 1, self.n_vocab)
        sources = []
        targets = []
        for _ in range(batch_tokens // 2):
            n = int(draw.lognormvariate(3, 0.6))
            n = min(max(n, 5), 100)
            sources.append(draw.choices(pieces, k=n))
            targets.append(draw.choices(pieces, k=n))
        batches = list(pair_batches(sources, targets, batch_tokens))
        draw.shuffle(batches)
        return batches


SIZES = {  # by number of parameters
    "7.3M": Size(256, 4, 4, 512, 8_000),
    "65M": Size(512, 8, 6, 2048, 40_000),
    "210M": Size(1024, 16, 6, 4096, 32_000),
}


@dataclass(frozen=True)
class Setup:
    """Where and how much to measure; a test measures little, on a CPU."""

    results: Results
    recipe: Path  # the config that is trained at full length
    device: torch.device
    sizes: dict[str, Size]
    batch_tokens: int = 16_384
    n_batches: int | None = None  # of an epoch; default: all
    n_calls: int = N_CALLS
    seconds_each: float = 10.0  # of each system's measurement
    n_steps: int = 200  # of a training that is resumed
    limits: tuple[str, ...] = ()  # of the recipe

    @property
    def home(self) -> Path:
        return self.results.file.parent.absolute()

    @property
    def is_gpu(self) -> bool:
        return self.device.type == "cuda"

    def seconds(self, work: Callable[[], object], at_least_s: float) -> float:
        """Mean seconds of a call until the GPU has finished it, over at least `at_least_s`, after one as warm-up."""

        def finish() -> None:
            work()
            if self.is_gpu:
                torch.cuda.synchronize()

        finish()
        start = time.perf_counter()
        n = 0
        while n == 0 or time.perf_counter() - start < at_least_s:
            finish()
            n += 1
        return (time.perf_counter() - start) / n

    def microseconds(self, work: Callable[[], object]) -> float:
        """Mean time of a call, from several calls in a row, which are queued on a GPU."""

        def several() -> None:
            for _ in range(self.n_calls):
                work()

        return 1e6 * self.seconds(several, self.seconds_each / 10) / self.n_calls

    def train(self, name: str, *overrides: str) -> Row:
        settings = [*self.limits, *overrides, "train.report=false", "--device", str(self.device)]
        recipe = self.recipe.absolute()
        return trained(recipe, self.home / name, *settings)


def measure(setup: Setup, pieces: Sequence[str] = PIECES) -> None:
    """Measure everything of these pieces that is not in the tables."""

    def add(title: str, name: str, make: Callable[[], Row]) -> None:
        setup.results.add(title, name, partial(made_or_failed, make))

    if "speed" in pieces:
        for name, size in setup.sizes.items():
            for system, make_step in systems(size, setup).items():
                add(f"Training, {name}", system, partial(speed, make_step, size, setup))
            add("A step of greedy search, 64 sentences", name, partial(decoding, size, setup))
    if "memory" in pieces:
        add("A batch too large", "small parts", partial(splitting, 512, 1.0, setup))
        add("A batch too large", "split when out of memory", partial(splitting, 0, 0.1, setup))
    if "quality" in pieces:
        add("Resuming", "deterministic", partial(resume, setup))
        for kind in ("fp32", "bf16"):
            make = partial(setup.train, f"precision-{kind}", f"train.precision={kind}")
            add("Precision", kind, make)


def made_or_failed(make: Callable[[], Row]) -> Row:
    """A row, or the beginning of its error: out of memory, no compiler, a build of torch without a function."""
    try:
        return make()
    except (RuntimeError, ImportError, CalledProcessError) as error:
        return {"failed": " ".join(str(error).split())[:200]}


# --- speed ------------------------------------------------------------------------------------------------


def nmt_step(size: Size, setup: Setup, optimizer: str, compiled: bool = False) -> Step:
    model: Any = size.transformer(setup.device)
    train = TrainSettings.model_validate({"optimizer": optimizer})
    optimizers = make_optimizers(model, train)
    options = StepOptions(train, lr=1e-4, seed=1, bf16=True)
    if compiled:
        model = torch.compile(model, dynamic=True)
    replicas = Replicas(model)
    replicas.model.train()
    return lambda batch: train_step(replicas, optimizers, [batch], options)


def plain_loop_step(
    size: Size, setup: Setup, kind: Callable[[dict[str, Any]], nn.Module], compiled: bool = False
) -> Step:
    model: Any = kind(size.named()).to(setup.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    settings = TrainSettings().model_dump()
    if compiled:
        model = torch.compile(model, dynamic=True)

    def step(batch: Batch) -> None:
        batch = batch.to(setup.device)
        tensors = (batch.src, batch.tgt_in, batch.tgt_out)
        plain_step(model, optimizer, tensors, settings, bf16=True)

    return step


def systems(size: Size, setup: Setup) -> dict[str, Callable[[], Step]]:
    """The systems that are compared: for the name of each, a function that makes its model and returns its step."""
    ours = partial(nmt_step, size, setup)
    plain = partial(plain_loop_step, size, setup)
    named: dict[str, Callable[[], Step]] = {}
    named["nmt, adamw"] = partial(ours, "adamw")
    named["nmt, muon"] = partial(ours, "muon")
    named["torch.nn.Transformer, plain loop"] = partial(plain, PlainTransformer)
    if setup.is_gpu:  # compiling takes minutes on a CPU
        named["nmt, adamw, compiled"] = partial(ours, "adamw", compiled=True)
        named["torch.nn.Transformer, plain loop, compiled"] = partial(plain, PlainTransformer, compiled=True)
    if find_spec("transformers"):
        named["transformers' Marian, plain loop"] = partial(plain, Marian)
    return named


def operations(batches: Sequence[Batch], sizes: dict[str, Any]) -> float:
    """FLOPs of a training step on each of the batches, without padding."""
    n_flops = 0.0
    for batch in batches:
        n_source = (batch.src != PAD).sum(1)
        n_target = (batch.tgt_out != PAD).sum(1)
        for source, target in zip(n_source.tolist(), n_target.tolist(), strict=True):
            n_flops += training_flops(sizes, source, target)
    return n_flops


def speed(make_step: Callable[[], Step], size: Size, setup: Setup) -> Row:
    """Target tokens a second, the share of the device's peak FLOP/s, and the GPU's peak memory."""
    gc.collect()  # the model before: a `Replicas` refers to itself
    if setup.is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    batches = size.batches(setup.batch_tokens)[: setup.n_batches]
    step = make_step()

    def epoch() -> None:
        for batch in batches:
            step(batch)

    seconds = setup.seconds(epoch, setup.seconds_each)
    flops = operations(batches, size.named()) / seconds
    peak = peak_flops(torch.bfloat16, setup.device.type, setup.batch_tokens // 2)
    n_tokens = sum(batch.n_target_tokens for batch in batches)
    row = {"tokens_s": n_tokens / seconds, "percent_of_peak": 100 * flops / peak}
    return row | {"memory_gb": peak_memory(setup.device) / 1e9}


def decoding(size: Size, setup: Setup) -> Row:
    """Microseconds of greedy search's 16th step, random weights: as the search calls it, and as a CUDA graph."""
    decoder = incremental_decoder(size.transformer(setup.device).eval())
    src = torch.full((64, 20), EOS + 1, device=setup.device)
    tokens = torch.full((64, 1), BOS, device=setup.device)
    with torch.inference_mode():
        state = decoder.start(src)
        for _ in range(15):
            _, state = decoder.step(tokens, state)
        row: Row = {"step_us": setup.microseconds(partial(decoder.step, tokens, state))}
        if setup.is_gpu:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                decoder.step(tokens, state)
            row["graph_us"] = setup.microseconds(graph.replay)
    return row


# --- memory and quality -----------------------------------------------------------------------------------


def splitting(limit: int, share: float, setup: Setup) -> Row:
    """Loss and gradient norm of a batch that is split.

    Args:
        limit: the most positions of a part; 0 for none.
        share: of the GPU's memory, which may be used.
    """
    size = next(iter(setup.sizes.values()))
    torch.manual_seed(1)
    replicas = Replicas(size.transformer(setup.device, dropout=0.0))
    options = StepOptions(TrainSettings(), lr=0, seed=1)
    batches = size.batches(8 * setup.batch_tokens)
    batch = max(batches, key=lambda batch: batch.n_positions)

    def step(parts: Sequence[Batch]) -> StepFigures:
        if not setup.is_gpu and len(parts) == 1:
            raise torch.OutOfMemoryError
        return train_step(replicas, [], parts, options)

    if setup.is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(share)
    figures, part = split_on_out_of_memory(step, [batch], limit)
    return {"batch": batch.n_positions, "part": part, "loss": figures.loss, "grad_norm": figures.grad_norm}


def resume(setup: Setup) -> Row:
    """Whether a deterministic training that ends halfway and goes on has the weights of one that does not."""
    n = setup.n_steps
    settings = ["train.deterministic=true", "train.max_epochs=null", "train.cooldown=0"]
    settings.append(f"train.validate_every={n // 2}")
    for name, n_steps in (("whole", n), ("resumed", n // 2), ("resumed", n)):
        setup.train(name, *settings, f"train.max_steps={n_steps}")
    whole = last_weights(setup.home / "whole")
    resumed = last_weights(setup.home / "resumed")
    return {"steps": n, "equal": str(whole == resumed)}


def last_weights(run: Path) -> str:
    newest = read_newest(RunDirectory(run), prefixes=("model",))
    assert newest is not None
    return hash_tensors(newest.checkpoint.tensors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, default=Path("configs/demo.yaml"), help="the recipe that is trained")
    parser.add_argument("--pieces", nargs="+", choices=PIECES, default=PIECES, help="what is measured; default: all")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each system's speed")
    args = parsed(parser)
    if not torch.cuda.is_available():
        parser.error("there is no GPU")
    results = Results(HOME / "gpu")
    device = torch.device("cuda")
    setup = Setup(results, args["config"], device, SIZES, seconds_each=args["seconds"])
    measure(setup, args["pieces"])
    print(results.markdown(), end="")


if __name__ == "__main__":
    main()
