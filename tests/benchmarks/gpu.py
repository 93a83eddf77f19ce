"""What only a GPU can show: speed beside plain loops, precision, exactness, memory. A table of each piece.

Each piece runs in a process of its own and writes PIECE.json; a piece that has one is not run again. Pieces are small,
so that each may end within ten minutes. gpu.md has the tables of all. With --miniature the pieces run on a CPU in
seconds, as a test.
"""

import argparse
import gc
import json
import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ladder
from measure import say, shown

from nmt.files import atomic_write

Row = dict[str, float | str]
# Widths, heads, layers of encoder and decoder, width of the feed-forward layers, vocabulary.
SIZES = {"7.3M": (256, 4, 4, 512, 8_000), "65M": (512, 8, 6, 2048, 40_000), "210M": (1024, 16, 6, 4096, 32_000)}
TINY = {"tiny": (16, 2, 1, 32, 64)}
BATCH_TOKENS = 16_384
RATE_S = 10.0  # of each contestant's measurement


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
    def sizes(self) -> Mapping[str, tuple[int, ...]]:
        return TINY if self.miniature else SIZES

    @property
    def batch_tokens(self) -> int:
        return 256 if self.miniature else BATCH_TOKENS

    def train(self, name: str, *overrides: str) -> ladder.Row:
        """Train the recipe; return its row of the ladder's table. In miniature, for four steps."""
        few = ["train.max_steps=4", "train.max_epochs=null", "train.validate_every=4"] if self.miniature else []
        overrides = (*few, *overrides, "train.report=false", "--device", self.device)
        return ladder.trained(self.recipe, self.home / name, *overrides)


# --- training ---------------------------------------------------------------------------------------------


def batches_of(setup: Setup, vocabulary: int, batch_tokens: int) -> list[Any]:
    """Batches of random token ids, whose lengths are about those of news: 24 pieces on average, 5 to 100."""
    from nmt.text import EOS
    from nmt.text.batches import pair_batches

    draw = random.Random(1)
    n_pairs = batch_tokens // 2
    lengths = [min(max(int(draw.lognormvariate(3, 0.6)), 5), 100) for _ in range(n_pairs)]
    sides = [[[draw.randrange(EOS + 1, vocabulary) for _ in range(n)] for n in lengths] for _ in range(2)]
    found = list(pair_batches(sides[0], sides[1], batch_tokens))
    draw.shuffle(found)
    return found


def rate(step: Callable[[Any], object], batches: Sequence[Any], setup: Setup) -> Row:
    """Target tokens a second of a step function, which moves the batch to the device, and peak memory.

    Each batch has been seen once before.
    """
    import torch

    on_gpu = setup.device == "cuda"

    def wait() -> None:
        if on_gpu:
            torch.cuda.synchronize()

    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for batch in batches:
        step(batch)
    wait()
    n_in_all = sum(batch.n_target_tokens for batch in batches)
    start, n_tokens = time.perf_counter(), 0
    while True:
        for batch in batches:
            step(batch)
        wait()
        n_tokens += n_in_all
        if setup.miniature or time.perf_counter() - start > RATE_S:
            break
    row: Row = {"tokens_s": n_tokens / (time.perf_counter() - start)}
    if on_gpu:
        row["memory_gb"] = torch.cuda.max_memory_allocated() / 1e9
    return row


def training(setup: Setup, size: str) -> list[Row]:
    """Target tokens a second of nmt, a plain loop over torch.nn.Transformer, and transformers' Marian, in bf16."""
    import torch
    from matrix_peak import flops
    from training import training_flops

    width, heads, layers, d_ff, vocabulary = setup.sizes[size]
    sizes = {"d_model": width, "n_heads": heads, "d_ff": d_ff, "dropout": 0.1}
    sizes |= {"n_encoder_layers": layers, "n_decoder_layers": layers}
    batches = batches_of(setup, vocabulary, setup.batch_tokens)
    n_tokens = sum(batch.n_target_tokens for batch in batches)
    per_token = sum(
        training_flops({**sizes, "vocab_size": vocabulary}, int(src), int(tgt))
        for batch in batches
        for src, tgt in zip((batch.src != 0).sum(1), (batch.tgt_out != 0).sum(1), strict=True)
    ) / max(n_tokens, 1)
    peak = flops(torch.bfloat16, setup.device, 256 if setup.miniature else 8192)
    rows = []
    for name, make in contestants(sizes, vocabulary, setup).items():
        row: Row = {"parameters": size, "system": name}
        try:
            measured = rate(make(), batches, setup)
            row |= measured | {"of_peak": float(measured["tokens_s"]) * per_token / peak}
        except RuntimeError as error:  # out of memory, or no compiler
            row["failed"] = str(error).partition("\n")[0][:80]
        rows.append(row)
        gc.collect()  # a `Replicas` refers to itself
        if setup.device == "cuda":
            torch.cuda.empty_cache()
    return rows


def contestants(
    sizes: dict[str, Any], vocabulary: int, setup: Setup
) -> dict[str, Callable[[], Callable[[Any], object]]]:
    """For the name of each system, a function that makes its model and returns its step."""
    import torch
    import torch.nn.functional as F
    from plain_loop import PAD, Marian, PlainTransformer

    from nmt.config import ModelSettings, TrainSettings
    from nmt.model.transformer import Transformer
    from nmt.train.optimizer import make_optimizers
    from nmt.train.replicas import Replicas
    from nmt.train.step import StepOptions, train_step

    options = StepOptions(TrainSettings(optimizer="adamw"), lr=1e-4, seed=1, bf16=True)

    def ours(compiled: bool, optimizer: str) -> Callable[[Any], object]:
        model = Transformer(ModelSettings(**sizes), vocabulary, vocabulary).to(setup.device)
        optimizers = make_optimizers(model, TrainSettings(optimizer=optimizer))
        replicas = Replicas(torch.compile(model, dynamic=True) if compiled else model)  # type: ignore[arg-type]
        replicas.train()
        return lambda batch: train_step(replicas, optimizers, [batch], options)

    def plain(kind: Any, compiled: bool) -> Callable[[Any], object]:
        model = kind({**sizes, "vocab_size": vocabulary}).to(setup.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        called = torch.compile(model, dynamic=True) if compiled else model

        def step(batch: Any) -> None:
            batch = batch.to(torch.device(setup.device))
            with torch.autocast(setup.device, torch.bfloat16):
                logits = called(batch.src, batch.tgt_in).flatten(0, 1)
                loss = F.cross_entropy(logits, batch.tgt_out.flatten(), ignore_index=PAD, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()

        return step

    found: dict[str, Callable[[], Callable[[Any], object]]] = {
        "nmt, adamw": partial(ours, False, "adamw"),
        "nmt, muon": partial(ours, False, "muon"),
        "torch.nn.Transformer, plain loop": partial(plain, PlainTransformer, False),
    }
    if not setup.miniature:  # compiling takes minutes on a CPU
        found["nmt, adamw, compiled"] = partial(ours, True, "adamw")
        found["torch.nn.Transformer, plain loop, compiled"] = partial(plain, PlainTransformer, True)
    if find_spec("transformers"):
        found["transformers' Marian, plain loop"] = partial(plain, Marian, False)
    return found


# --- attention and decoding -------------------------------------------------------------------------------


def attention(setup: Setup) -> list[Row]:
    """Microseconds of fused self-attention with a padding mask, and without padding (varlen), forward and backward."""
    import torch
    import torch.nn.functional as F

    n, longest, heads, d = (2, 8, 2, 16) if setup.miniature else (256, 64, 8, 64)
    dtype = torch.float32 if setup.miniature else torch.bfloat16
    rows = []
    for share in (0.03, 0.2, 0.45):
        lengths = [max(1, round(longest * (1 - 2 * share * i / n))) for i in range(n)]
        is_token = torch.arange(longest)[None] < torch.tensor(lengths)[:, None]  # (B, T)
        padded = torch.randn(3, n, heads, longest, d, dtype=dtype, device=setup.device, requires_grad=True)
        mask = is_token[:, None, None].to(setup.device)

        def masked(padded: Any = padded, mask: Any = mask) -> None:
            query, key, value = padded
            F.scaled_dot_product_attention(query, key, value, mask).sum().backward()  # type: ignore[no-untyped-call]

        row: Row = {"padding": 1 - float(is_token.float().mean()), "masked_us": microseconds(masked, setup)}
        if setup.device == "cuda":
            from torch.nn.attention.varlen import varlen_attn

            packed = torch.randn(3, sum(lengths), heads, d, dtype=dtype, device="cuda", requires_grad=True)
            starts = F.pad(torch.tensor(lengths, device="cuda").cumsum(0), (1, 0)).int()

            def unpadded(packed: Any = packed, starts: Any = starts) -> None:
                query, key, value = packed
                out: Any = varlen_attn(query, key, value, starts, starts, longest, longest)
                out.sum().backward()

            row["varlen_us"] = microseconds(unpadded, setup)
        rows.append(row)
    return rows


def microseconds(work: Callable[[], object], setup: Setup) -> float:
    """Mean time of a call, after three others."""
    import torch

    n = 2 if setup.miniature else 100
    for _ in range(3):
        work()
    if setup.device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(n):
        work()
    if setup.device == "cuda":
        torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - start) / n


def decoding(setup: Setup) -> list[Row]:
    """Microseconds of greedy search's 16th step, random weights: as the search calls it, and as a CUDA graph."""
    import torch

    from nmt.config import ModelSettings
    from nmt.model.incremental import incremental_decoder
    from nmt.model.transformer import Transformer
    from nmt.text import BOS

    rows = []
    for size, (width, heads, layers, d_ff, vocabulary) in setup.sizes.items():
        settings = ModelSettings(
            d_model=width, n_heads=heads, d_ff=d_ff, n_encoder_layers=layers, n_decoder_layers=layers
        )
        model = Transformer(settings, vocabulary, vocabulary).to(setup.device).eval()
        src = torch.full((4 if setup.miniature else 64, 20), 5, device=setup.device)
        decoder, tokens = incremental_decoder(model), torch.full((len(src), 1), BOS, device=setup.device)
        with torch.inference_mode():
            state = decoder.start(src)
            for _ in range(15):
                _, state = decoder.step(tokens, state)

            def step(tokens: Any = tokens, state: Any = state, decoder: Any = decoder) -> Any:
                return decoder.step(tokens, state)[0]

            row: Row = {"parameters": size, "step_us": microseconds(step, setup)}
            if setup.device == "cuda":
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    step()
                row["graph_us"] = microseconds(graph.replay, setup)
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
    from nmt.run.checkpoint import hash_tensors, read_newest
    from nmt.run.directory import RunDirectory

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
    """A step whose batch does not fit into memory is split: the loss and the norm of its gradient stay the same.

    In miniature, the first try fails as if memory were exhausted.
    """
    import torch

    from nmt.config import ModelSettings, TrainSettings
    from nmt.model.transformer import Transformer
    from nmt.train.memory import split_on_out_of_memory
    from nmt.train.replicas import Replicas
    from nmt.train.step import StepFigures, StepOptions, train_step

    width, heads, layers, d_ff, vocabulary = next(iter(setup.sizes.values()))
    sizes = {"d_model": width, "n_heads": heads, "d_ff": d_ff, "n_encoder_layers": layers, "n_decoder_layers": layers}
    model = Transformer(ModelSettings(**sizes, dropout=0), vocabulary, vocabulary).to(setup.device)
    replicas, options = Replicas(model), StepOptions(TrainSettings(), lr=0, seed=1)
    (batch, *_) = sorted(batches_of(setup, vocabulary, 8 * setup.batch_tokens), key=lambda one: -one.n_positions)

    def step(parts: Sequence[Any]) -> StepFigures:
        if setup.miniature and len(parts) == 1:
            raise torch.OutOfMemoryError
        return train_step(replicas, [], parts, options)

    rows: list[Row] = []
    for name, share in (("whole", 1.0), ("split", 0.1)):
        if setup.device == "cuda":
            torch.cuda.empty_cache()
            torch.cuda.set_per_process_memory_fraction(share)
        first = 0 if name == "split" else batch.n_positions // 16  # small parts, which fit in any case
        figures, max_positions = split_on_out_of_memory(step, [batch], first)
        limits = {"batch_positions": f"{batch.n_positions:,}", "part_positions": f"{max_positions:,}"}
        rows.append({"try": name, **limits, "loss": figures.loss, "grad_norm": figures.grad_norm})
    return rows


def recipe(setup: Setup, seed: int) -> list[Row]:
    """The recipe at full length: dev and test BLEU with beam 5."""
    found = setup.train(f"recipe-{seed}", f"seed={seed}")
    run = setup.home / f"recipe-{seed}"
    scores = json.loads(ladder.run_nmt("eval", "-q", "-m", run, "--device", setup.device, "--json")[0])
    return [{"seed": str(seed), "dev_BLEU": found["dev_BLEU"], "test_BLEU": scores["scores"][0]["value"]}]


def pieces(setup: Setup) -> dict[str, Callable[[Setup], list[Row]]]:
    """All pieces, by name."""
    found: dict[str, Callable[[Setup], list[Row]]] = {
        f"training-{size}": partial(training, size=size) for size in setup.sizes
    }
    found |= {one.__name__: one for one in (attention, decoding, precision, resume, splitting)}
    return found | {f"recipe-{seed}": partial(recipe, seed=seed) for seed in ((1,) if setup.miniature else (1, 2, 3))}


def table(home: Path, names: Sequence[str]) -> str:
    """The tables of the pieces that have run."""
    parts = []
    for file in (home / f"{name}.json" for name in names):
        rows = json.loads(file.read_text()) if file.exists() else []
        columns = list(dict.fromkeys(key for row in rows for key in row))
        lines = [
            [value if isinstance(value := row.get(key, ""), str) else shown(key, value) for key in columns]
            for row in rows
        ]
        if rows:
            head = [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]
            parts.append("\n".join([f"**{file.stem}**", "", *head, *(f"| {' | '.join(line)} |" for line in lines), ""]))
    return "\n".join(parts)


def main() -> None:
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PIECE", help="default: all that have not run")
    parser.add_argument("--home", type=Path, default=Path(".bench/gpu"), help="where everything is written")
    parser.add_argument("--config", type=Path, default=Path("configs/demo.yaml"), help="the recipe that is trained")
    parser.add_argument("--miniature", action="store_true", help="on a CPU, in seconds")
    args = parser.parse_args()
    if not args.miniature and not torch.cuda.is_available():
        parser.error("there is no GPU; --miniature tries the program on a CPU")
    setup = Setup("cpu" if args.miniature else "cuda", args.home.absolute(), args.config, args.miniature)
    setup.home.mkdir(parents=True, exist_ok=True)
    known = pieces(setup)
    if unknown := set(args.names) - set(known):
        parser.error(f"no piece {', '.join(sorted(unknown))}; there are {', '.join(known)}")
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
