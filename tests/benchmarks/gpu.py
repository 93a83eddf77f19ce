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
import torch.nn.functional as F
from experiments import Results, Row, scores, trained
from measure import parsed
from plain_loop import PAD, Marian, PlainTransformer
from plain_loop import train_step as plain_step
from torch import Tensor, nn
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

Step = Callable[[Batch], object]  # a training step on a batch, which it moves to the device
PIECES = ("speed", "memory", "quality")
N_CALLS = 100  # of an operation between two synchronizations
# Number of parameters -> width, heads, layers of each side and width of feed-forward layers; vocabulary.
SIZES = {"7.3M": ((256, 4, 4, 512), 8_000), "65M": ((512, 8, 6, 2048), 40_000), "210M": ((1024, 16, 6, 4096), 32_000)}
TINY = {"tiny": ((16, 2, 1, 32), 64)}


def sized(d_model: int, n_heads: int, n_layers: int, d_ff: int) -> ModelSettings:
    """Settings of a Transformer with as many encoder as decoder layers."""
    n_both = {"n_encoder_layers": n_layers, "n_decoder_layers": n_layers}
    return ModelSettings(d_model=d_model, n_heads=n_heads, d_ff=d_ff, **n_both)


def batches_of(vocabulary: int, batch_tokens: int) -> list[Batch]:
    """Batches of random token ids, whose lengths are about those of news: 24 pieces on average, 5 to 100."""
    draw = random.Random(1)
    lengths = [min(max(int(draw.lognormvariate(3, 0.6)), 5), 100) for _ in range(batch_tokens // 2)]
    source, target = ([[draw.randrange(EOS + 1, vocabulary) for _ in range(n)] for n in lengths] for _ in range(2))
    found = list(pair_batches(source, target, batch_tokens))
    draw.shuffle(found)
    return found


@dataclass(frozen=True)
class Setup:
    """Where to measure. `miniature` takes the smallest models and the fewest steps, on a CPU, for a test."""

    results: Results
    recipe: Path  # the config that is trained at full length
    miniature: bool = False
    seconds_each: float = 10.0  # of each system's measurement

    @property
    def device(self) -> torch.device:
        return torch.device("cpu" if self.miniature else "cuda")

    @property
    def batch_tokens(self) -> int:
        return 256 if self.miniature else 16_384

    @property
    def home(self) -> Path:
        return self.results.file.parent.absolute()

    def transformer(self, settings: ModelSettings, vocabulary: int) -> Transformer:
        return Transformer(settings, vocabulary, vocabulary).to(self.device)

    def seconds(self, work: Callable[[], object], at_least_s: float) -> float:
        """Mean seconds of a call until the GPU has finished it, over at least `at_least_s`, after one as warm-up."""

        def finished() -> None:
            work()
            if not self.miniature:
                torch.cuda.synchronize()

        finished()
        start, n = time.perf_counter(), 0
        while not n or (time.perf_counter() - start < at_least_s and not self.miniature):
            finished()
            n += 1
        return (time.perf_counter() - start) / n

    def microseconds(self, work: Callable[[], object]) -> float:
        """Mean time of a call, from several calls in a row, which are queued on a GPU."""
        n = 1 if self.miniature else N_CALLS
        return 1e6 * self.seconds(lambda: [work() for _ in range(n)], 1.0) / n

    def train(self, name: str, *overrides: str) -> Row:
        """Train the recipe; in miniature, for four steps."""
        few = ["train.max_steps=4", "train.max_epochs=null", "train.validate_every=4"] if self.miniature else []
        options = ["train.report=false", "--device", str(self.device)]
        return trained(self.recipe.absolute(), self.home / name, *few, *overrides, *options)


def measure(setup: Setup, pieces: Sequence[str] = PIECES) -> None:
    """Measure everything of these pieces that is not in the tables."""

    def add(title: str, name: str, make: Callable[[], Row]) -> None:
        setup.results.add(title, name, partial(made_or_failed, make))

    if "speed" in pieces:
        for size, (shape, vocabulary) in (TINY if setup.miniature else SIZES).items():
            settings = sized(*shape)
            batches = batches_of(vocabulary, setup.batch_tokens)[: 2 if setup.miniature else None]
            for name, make_step in systems(settings, vocabulary, setup).items():
                add(f"Training, {size}", name, partial(speed, make_step, batches, settings, vocabulary, setup))
            add("A step of greedy search, 64 sentences", size, partial(decoding, settings, vocabulary, setup))
        for share in (0.03, 0.2, 0.45):
            add("Self-attention, forward and backward", f"{share:.0%} padding", partial(attention, share, setup))
    if "memory" in pieces:
        # name, limit of a part's positions (0 is none), share of the GPU's memory
        for name, limit, memory in (("small parts", 512, 1.0), ("split when out of memory", 0, 0.1)):
            add("A batch too large", name, partial(splitting, limit, memory, setup))
    if "quality" in pieces:
        add("Resuming", "deterministic", partial(resume, setup))
        for kind in ("fp32", "bf16"):
            add("Precision", kind, partial(setup.train, f"precision-{kind}", f"train.precision={kind}"))
        for seed in (1,) if setup.miniature else (1, 2, 3):
            add("Recipe", f"seed {seed}", partial(recipe, seed, setup))


def made_or_failed(make: Callable[[], Row]) -> Row:
    """A row, or the beginning of its error: out of memory, no compiler, a build of torch without a function."""
    try:
        return make()
    except (RuntimeError, ImportError, CalledProcessError) as error:
        return {"failed": " ".join(str(error).split())[:200]}


def speed(
    make_step: Callable[[], Step], batches: Sequence[Batch], settings: ModelSettings, vocabulary: int, setup: Setup
) -> Row:
    """Target tokens a second, the share of the device's peak FLOP/s, and the GPU's peak memory."""
    gc.collect()  # the model before: a `Replicas` refers to itself
    if not setup.miniature:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    sizes = {**settings.model_dump(), "vocab_size": vocabulary}
    n_flops = sum(
        training_flops(sizes, int(src), int(tgt))
        for batch in batches
        for src, tgt in zip((batch.src != PAD).sum(1), (batch.tgt_out != PAD).sum(1), strict=True)
    )
    n_tokens = sum(batch.n_target_tokens for batch in batches)
    step = make_step()
    seconds = setup.seconds(lambda: [step(batch) for batch in batches], setup.seconds_each)
    peak = peak_flops(torch.bfloat16, setup.device.type, setup.batch_tokens // 2)
    memory = peak_memory(setup.device) / 1e9
    return {"tokens_s": n_tokens / seconds, "percent_of_peak": 100 * n_flops / seconds / peak, "memory_gb": memory}


def systems(settings: ModelSettings, vocabulary: int, setup: Setup) -> dict[str, Callable[[], Step]]:
    """The systems that are compared: for the name of each, a function that makes its model and returns its step."""
    sizes = {**settings.model_dump(), "vocab_size": vocabulary}

    def ours(optimizer: Any, compiled: bool = False) -> Step:
        model, train = setup.transformer(settings, vocabulary), TrainSettings(optimizer=optimizer)
        optimizers, options = make_optimizers(model, train), StepOptions(train, lr=1e-4, seed=1, bf16=True)
        replicas = Replicas(torch.compile(model, dynamic=True) if compiled else model)  # type: ignore[arg-type]
        replicas.model.train()
        return lambda batch: train_step(replicas, optimizers, [batch], options)

    def plain(kind: Callable[[dict[str, Any]], nn.Module], compiled: bool = False) -> Step:
        model = kind(sizes).to(setup.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        called: Any = torch.compile(model, dynamic=True) if compiled else model

        def step(batch: Batch) -> None:
            batch = batch.to(setup.device)
            tensors = (batch.src, batch.tgt_in, batch.tgt_out)
            plain_step(called, optimizer, tensors, bf16=True, smoothing=0.1, clip_norm=1.0)

        return step

    found: dict[str, Callable[[], Step]] = {
        "nmt, adamw": partial(ours, "adamw"),
        "nmt, muon": partial(ours, "muon"),
        "torch.nn.Transformer, plain loop": partial(plain, PlainTransformer),
    }
    if not setup.miniature:  # compiling takes minutes on a CPU
        found["nmt, adamw, compiled"] = partial(ours, "adamw", compiled=True)
        found["torch.nn.Transformer, plain loop, compiled"] = partial(plain, PlainTransformer, compiled=True)
    if find_spec("transformers"):
        found["transformers' Marian, plain loop"] = partial(plain, Marian)
    return found


def attention(share: float, setup: Setup) -> Row:
    """Microseconds of fused self-attention with a padding mask, and on a GPU without padding (varlen)."""
    n, longest, heads, d = (2, 8, 2, 16) if setup.miniature else (256, 64, 8, 64)
    dtype = torch.float32 if setup.miniature else torch.bfloat16
    new = partial(torch.randn, dtype=dtype, device=setup.device, requires_grad=True)
    lengths = torch.tensor([max(1, round(longest * (1 - 2 * share * i / n))) for i in range(n)])
    is_token = torch.arange(longest) < lengths[:, None]  # (B, T)
    padded, mask = new(3, n, heads, longest, d), is_token[:, None, None].to(setup.device)
    row: Row = {"masked_us": setup.microseconds(partial(backward, F.scaled_dot_product_attention, padded, mask))}
    if not setup.miniature:
        from torch.nn.attention.varlen import varlen_attn  # not in every build of torch

        packed, starts = new(3, int(lengths.sum()), heads, d), F.pad(lengths.cumsum(0), (1, 0)).int().cuda()
        row["varlen_us"] = setup.microseconds(partial(backward, varlen_attn, packed, starts, starts, longest, longest))
    return row


def backward(attend: Callable[..., Any], inputs: Tensor, *args: object) -> None:
    """Forward and backward pass of an attention function; `inputs` are query, key and value, stacked."""
    attend(*inputs, *args).sum().backward()


def decoding(settings: ModelSettings, vocabulary: int, setup: Setup) -> Row:
    """Microseconds of greedy search's 16th step, random weights: as the search calls it, and as a CUDA graph."""
    decoder = incremental_decoder(setup.transformer(settings, vocabulary).eval())
    src = torch.full((64, 20), EOS + 1, device=setup.device)
    tokens = torch.full((len(src), 1), BOS, device=setup.device)
    with torch.inference_mode():
        state = decoder.start(src)
        for _ in range(15):
            _, state = decoder.step(tokens, state)
        row: Row = {"step_us": setup.microseconds(partial(decoder.step, tokens, state))}
        if not setup.miniature:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                decoder.step(tokens, state)
            row["graph_us"] = setup.microseconds(graph.replay)
    return row


def resume(setup: Setup) -> Row:
    """Whether a deterministic training that ends halfway and goes on has the weights of one that does not."""
    n = 4 if setup.miniature else 200
    exactly = ["train.deterministic=true", "train.max_epochs=null", f"train.validate_every={n // 2}"]
    weights = {}
    for name, stops in (("whole", [n]), ("resumed", [n // 2, n])):
        for stop in stops:
            setup.train(name, *exactly, "train.cooldown=0", f"train.max_steps={stop}")
        newest = read_newest(RunDirectory(setup.home / name), prefixes=("model",))
        assert newest is not None
        weights[name] = hash_tensors(newest.checkpoint.tensors)
    return {"steps": n, "equal": str(weights["whole"] == weights["resumed"])}


def splitting(limit: int, share: float, setup: Setup) -> Row:
    """Loss and gradient norm of a batch that is split: into parts of at most `limit` positions, or for memory."""
    shape, vocabulary = next(iter((TINY if setup.miniature else SIZES).values()))
    torch.manual_seed(1)
    model = setup.transformer(sized(*shape).model_copy(update={"dropout": 0.0}), vocabulary)
    replicas, options = Replicas(model), StepOptions(TrainSettings(), lr=0, seed=1)
    batch = max(batches_of(vocabulary, 8 * setup.batch_tokens), key=lambda one: one.n_positions)

    def step(parts: Sequence[Batch]) -> StepFigures:
        if setup.miniature and len(parts) == 1:
            raise torch.OutOfMemoryError
        return train_step(replicas, [], parts, options)

    if not setup.miniature:
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(share)
    figures, found = split_on_out_of_memory(step, [batch], limit)
    return {"batch": batch.n_positions, "part": found, "loss": figures.loss, "grad_norm": figures.grad_norm}


def recipe(seed: int, setup: Setup) -> Row:
    """The recipe at full length: dev BLEU, and test BLEU with beam 5."""
    found, run = setup.train(f"recipe-{seed}", f"seed={seed}"), setup.home / f"recipe-{seed}"
    return {**found, "BLEU": scores("-m", run, "--device", setup.device)["BLEU"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench/gpu"), help="where everything is written")
    parser.add_argument("--config", type=Path, default=Path("configs/demo.yaml"), help="the recipe that is trained")
    parser.add_argument("--pieces", nargs="+", choices=PIECES, default=PIECES, help="what is measured; default: all")
    parser.add_argument("--seconds", type=float, default=10.0, help="for each system's speed")
    args = parsed(parser)
    if not torch.cuda.is_available():
        parser.error("there is no GPU")
    results = Results(args["home"] / "gpu")
    measure(Setup(results, args["config"], seconds_each=args["seconds"]), args["pieces"])
    print(results.markdown(), end="")


if __name__ == "__main__":
    main()
