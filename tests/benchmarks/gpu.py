"""Benchmarks that need a GPU: speed beside plain loops, precision, exact resume, memory.

Each benchmark runs in a process of its own and writes NAME.json; one that has this file is not run again. gpu.md has
the tables of all. They are small, so that each may end within ten minutes. With --miniature they run on a CPU in
seconds, as a test.
"""

import argparse
import gc
import json
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ladder
import torch
import torch.nn.functional as F
from growth import seconds_of
from matrix_peak import flops
from measure import say
from plain_loop import PAD, Marian, PlainTransformer
from torch import Tensor, nn
from training import training_flops

from nmt.config import ModelSettings, TrainSettings
from nmt.files import atomic_write
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

Row = dict[str, float | str]
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
TINY = {"tiny": (sized(16, 2, 1, 32), 64)}
RATE_S = 10.0  # of each system's measurement
N_CALLS = 100  # of an operation between two synchronizations


@dataclass(frozen=True)
class Setup:
    """Where and how long to measure.

    Attributes:
        device: cuda, or cpu for --miniature.
        home: directory of all files.
        recipe: the config that is trained at full length.
        miniature: the smallest models and the fewest steps, on a CPU.
    """

    device: str
    home: Path
    recipe: Path
    miniature: bool

    @property
    def on_gpu(self) -> bool:
        return self.device == "cuda"

    @property
    def sizes(self) -> dict[str, tuple[ModelSettings, int]]:
        return TINY if self.miniature else SIZES

    @property
    def batch_tokens(self) -> int:
        return 256 if self.miniature else 16_384

    def transformer(self, settings: ModelSettings, vocabulary: int) -> Transformer:
        return Transformer(settings, vocabulary, vocabulary).to(self.device)

    def seconds(self, work: Callable[[], object], at_least_s: float) -> float:
        """`seconds_of`, until the GPU has finished the work."""

        def finished() -> None:
            work()
            if self.on_gpu:
                torch.cuda.synchronize()

        return seconds_of(finished, 0.0 if self.miniature else at_least_s)

    def microseconds(self, work: Callable[[], object]) -> float:
        """Mean time of a call, from several calls in a row, which are queued on a GPU."""
        n = 1 if self.miniature else N_CALLS
        return 1e6 * self.seconds(lambda: [work() for _ in range(n)], 1.0) / n

    def train(self, name: str, *overrides: str) -> ladder.Row:
        """Train the recipe; return its row of the ladder's table. In miniature, for four steps."""
        few = ["train.max_steps=4", "train.max_epochs=null", "train.validate_every=4"] if self.miniature else []
        overrides = (*few, *overrides, "train.report=false", "--device", self.device)
        return ladder.trained(self.recipe, self.home / name, *overrides)


# --- training ---------------------------------------------------------------------------------------------


def batches_of(vocabulary: int, batch_tokens: int) -> list[Batch]:
    """Batches of random token ids, whose lengths are about those of news: 24 pieces on average, 5 to 100."""
    draw = random.Random(1)
    n_pairs = batch_tokens // 2
    lengths = [min(max(int(draw.lognormvariate(3, 0.6)), 5), 100) for _ in range(n_pairs)]
    source, target = ([[draw.randrange(EOS + 1, vocabulary) for _ in range(n)] for n in lengths] for _ in range(2))
    found = list(pair_batches(source, target, batch_tokens))
    draw.shuffle(found)
    return found


def training(setup: Setup, size: str) -> list[Row]:
    """Target tokens a second of nmt, a plain loop over torch.nn.Transformer, and transformers' Marian, in bf16."""
    settings, vocabulary = setup.sizes[size]
    sizes = {**settings.model_dump(), "vocab_size": vocabulary}
    batches = batches_of(vocabulary, setup.batch_tokens)
    n_tokens = sum(batch.n_target_tokens for batch in batches)
    n_flops = sum(
        training_flops(sizes, int(src), int(tgt))
        for batch in batches
        for src, tgt in zip((batch.src != PAD).sum(1), (batch.tgt_out != PAD).sum(1), strict=True)
    )
    peak = flops(torch.bfloat16, setup.device, 256 if setup.miniature else 8192)
    rows = []
    for name, new_step in systems(sizes, setup).items():
        row: Row = {"parameters": size, "system": name}
        try:
            seconds, memory = epoch(new_step(), batches, setup)
            row |= {"tokens_s": n_tokens / seconds, "of_peak": n_flops / seconds / peak, "memory_gb": memory / 1e9}
        except RuntimeError as error:  # out of memory, or no compiler
            row["failed"] = str(error).partition("\n")[0][:80]
        rows.append(row)
        gc.collect()  # a `Replicas` refers to itself
        torch.cuda.empty_cache()
    return rows


def epoch(step: Step, batches: Sequence[Batch], setup: Setup) -> tuple[float, int]:
    """Seconds of a step on each batch in turn, and the GPU's peak memory in bytes."""
    if setup.on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds = setup.seconds(lambda: [step(batch) for batch in batches], RATE_S)
    return seconds, peak_memory(torch.device(setup.device))


def systems(sizes: dict[str, Any], setup: Setup) -> dict[str, Callable[[], Step]]:
    """The systems that are compared: for the name of each, a function that makes its model and returns its step.

    Args:
        sizes: settings of the model, and `vocab_size`.
    """
    settings, vocabulary = ModelSettings(**{key: sizes[key] for key in ModelSettings.model_fields}), sizes["vocab_size"]

    def ours(optimizer: Any, compiled: bool = False) -> Step:
        model, train = setup.transformer(settings, vocabulary), TrainSettings(optimizer=optimizer)
        optimizers, options = make_optimizers(model, train), StepOptions(train, lr=1e-4, seed=1, bf16=True)
        replicas = Replicas(maybe_compiled(model, compiled))
        replicas.train()
        return lambda batch: train_step(replicas, optimizers, [batch], options)

    def plain(kind: Callable[[dict[str, Any]], nn.Module], compiled: bool = False) -> Step:
        model = kind(sizes).to(setup.device)
        optimizer, called = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True), maybe_compiled(model, compiled)

        def step(batch: Batch) -> None:
            batch = batch.to(torch.device(setup.device))
            with torch.autocast(setup.device, torch.bfloat16):
                logits = called(batch.src, batch.tgt_in).flatten(0, 1)
                loss = F.cross_entropy(logits, batch.tgt_out.flatten(), ignore_index=PAD, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

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


def maybe_compiled(model: nn.Module, compiled: bool) -> nn.Module:
    """The model, or what `torch.compile` makes of it."""
    return torch.compile(model, dynamic=True) if compiled else model  # type: ignore[return-value]


# --- attention and decoding -------------------------------------------------------------------------------


def attention(setup: Setup) -> list[Row]:
    """Microseconds of fused self-attention with a padding mask, and without padding (varlen), forward and backward."""
    n, longest, heads, d = (2, 8, 2, 16) if setup.miniature else (256, 64, 8, 64)
    dtype = torch.float32 if setup.miniature else torch.bfloat16
    new = partial(torch.randn, dtype=dtype, device=setup.device, requires_grad=True)
    rows = []
    for share in (0.03, 0.2, 0.45):
        lengths = torch.tensor([max(1, round(longest * (1 - 2 * share * i / n))) for i in range(n)])
        is_token = torch.arange(longest) < lengths[:, None]  # (B, T)
        padded, mask = new(3, n, heads, longest, d), is_token[:, None, None].to(setup.device)
        row: Row = {"padding": 1 - float(is_token.float().mean())}
        row["masked_us"] = setup.microseconds(partial(backward, F.scaled_dot_product_attention, padded, mask))
        if setup.on_gpu:
            from torch.nn.attention.varlen import varlen_attn  # not in every build of torch

            packed, starts = new(3, int(lengths.sum()), heads, d), F.pad(lengths.cumsum(0), (1, 0)).int().cuda()
            work = partial(backward, varlen_attn, packed, starts, starts, longest, longest)
            row["varlen_us"] = setup.microseconds(work)
        rows.append(row)
    return rows


def backward(attend: Callable[..., Any], inputs: Tensor, *args: object) -> None:
    """Forward and backward pass of an attention function; `inputs` are query, key and value, stacked."""
    attend(*inputs, *args).sum().backward()


def decoding(setup: Setup) -> list[Row]:
    """Microseconds of greedy search's 16th step, random weights: as the search calls it, and as a CUDA graph."""
    rows = []
    for size, (settings, vocabulary) in setup.sizes.items():
        decoder = incremental_decoder(setup.transformer(settings, vocabulary).eval())
        src = torch.full((4 if setup.miniature else 64, 20), EOS + 1, device=setup.device)
        tokens = torch.full((len(src), 1), BOS, device=setup.device)
        with torch.inference_mode():
            state = decoder.start(src)
            for _ in range(15):
                _, state = decoder.step(tokens, state)
            row: Row = {"parameters": size, "step_us": setup.microseconds(partial(decoder.step, tokens, state))}
            if setup.on_gpu:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    decoder.step(tokens, state)
                row["graph_us"] = setup.microseconds(graph.replay)
        rows.append(row)
    return rows


# --- trainings --------------------------------------------------------------------------------------------


def precision(setup: Setup) -> list[Row]:
    """The best dev figure of the recipe in fp32 and in bf16, with the same steps and seed."""
    return [
        {"precision": kind, "dev_BLEU": setup.train(f"precision-{kind}", f"train.precision={kind}")["dev_BLEU"]}
        for kind in ("fp32", "bf16")
    ]


def resume(setup: Setup) -> list[Row]:
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
    return [{"steps": n, "equal": str(weights["whole"] == weights["resumed"])}]


def splitting(setup: Setup) -> list[Row]:
    """Loss and gradient norm of a batch that does not fit into memory and is split, beside those of small parts.

    In miniature, the first try fails as if memory were exhausted.
    """
    settings, vocabulary = next(iter(setup.sizes.values()))
    model = setup.transformer(settings.model_copy(update={"dropout": 0.0}), vocabulary)
    replicas, options = Replicas(model), StepOptions(TrainSettings(), lr=0, seed=1)
    batch = max(batches_of(vocabulary, 8 * setup.batch_tokens), key=lambda one: one.n_positions)

    def step(parts: Sequence[Batch]) -> StepFigures:
        if setup.miniature and len(parts) == 1:
            raise torch.OutOfMemoryError
        return train_step(replicas, [], parts, options)

    rows: list[Row] = []
    # name, limit of a part's positions (0 is none), share of the GPU's memory
    for name, limit, share in (("small parts", batch.n_positions // 16, 1.0), ("split", 0, 0.1)):
        if setup.on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(share)
        figures, found = split_on_out_of_memory(step, [batch], limit)
        positions = {"batch_positions": f"{batch.n_positions:,}", "part_positions": f"{found:,}"}
        rows.append({"try": name, **positions, "loss": figures.loss, "grad_norm": figures.grad_norm})
    return rows


def recipe(setup: Setup, seed: int) -> list[Row]:
    """The recipe at full length: dev and test BLEU with beam 5."""
    found = setup.train(f"recipe-{seed}", f"seed={seed}")
    run = setup.home / f"recipe-{seed}"
    scores = json.loads(ladder.run_nmt("eval", "-q", "-m", run, "--device", setup.device, "--json")[0])
    return [{"seed": str(seed), "dev_BLEU": found["dev_BLEU"], "test_BLEU": scores["scores"][0]["value"]}]


def benchmarks(setup: Setup) -> dict[str, Callable[[Setup], list[Row]]]:
    """All benchmarks, by name."""
    found: dict[str, Callable[[Setup], list[Row]]] = {
        f"training-{size}": partial(training, size=size) for size in setup.sizes
    }
    found |= {one.__name__: one for one in (attention, decoding, precision, resume, splitting)}
    return found | {f"recipe-{seed}": partial(recipe, seed=seed) for seed in ((1,) if setup.miniature else (1, 2, 3))}


def table(home: Path, names: Sequence[str]) -> str:
    """The tables of the benchmarks that have run."""
    tables = []
    for file in (home / f"{name}.json" for name in names):
        rows = json.loads(file.read_text()) if file.exists() else []
        columns = {key: "" for row in rows for key in row}  # a system that failed lacks some
        tables += [ladder.markdown(file.stem, [columns | row for row in rows])] if rows else []
    return "\n".join(tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="default: all that have not run")
    parser.add_argument("--home", type=Path, default=Path(".bench/gpu"), help="where everything is written")
    parser.add_argument("--config", type=Path, default=Path("configs/demo.yaml"), help="the recipe that is trained")
    parser.add_argument("--miniature", action="store_true", help="on a CPU, in seconds")
    args = parser.parse_args()
    if not args.miniature and not torch.cuda.is_available():
        parser.error("there is no GPU; --miniature tries the program on a CPU")
    setup = Setup("cpu" if args.miniature else "cuda", args.home.absolute(), args.config, args.miniature)
    setup.home.mkdir(parents=True, exist_ok=True)
    known = benchmarks(setup)
    if unknown := set(args.names) - set(known):
        parser.error(f"no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    names = [name for name in args.names or known if not (setup.home / f"{name}.json").exists()]
    failed: list[str] = []
    if len(names) == 1:
        atomic_write(setup.home / f"{names[0]}.json", json.dumps(known[names[0]](setup), indent=1) + "\n")
    else:  # each in a process of its own, so that none inherits the memory of another
        own = ["--home", setup.home, "--config", args.config, *["--miniature"] * args.miniature]
        for name in names:
            say(f"--- {name}")
            command = [sys.executable, __file__, name, *own]
            done = subprocess.run([*map(str, command)], check=False, stdout=subprocess.DEVNULL)
            failed += [name] * bool(done.returncode)
    found = table(setup.home, list(known))
    atomic_write(setup.home / "gpu.md", found)
    print(found)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; what has run is kept")


if __name__ == "__main__":
    main()
