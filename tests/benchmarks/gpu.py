"""Training speed on a GPU, in bf16: nmt, and a plain loop over torch.nn.Transformer.

The tables go to stdout and, after each row, to gpu.md and gpu.json; a row that is there is not measured again.
"""

import argparse
import gc
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from experiments import Results, Row
from growth import seconds_of
from measure import parsed
from plain_loop import PAD, PlainTransformer
from plain_loop import train_step as plain_step
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
SECONDS = 10.0  # of each system's measurement
BATCH_TOKENS = 16_384  # at most so many positions a step
# Number of parameters -> width, heads, layers of each side, width of feed-forward layers, vocabulary.
SIZES = {
    "7.3M": (256, 4, 4, 512, 8_000),
    "65M": (512, 8, 6, 2048, 40_000),
    "210M": (1024, 16, 6, 4096, 32_000),
}


def batches_of(vocabulary: int) -> list[Batch]:
    """Batches of random token ids, whose lengths are about those of news: 24 pieces on average, 5 to 100."""
    draw = random.Random(1)
    lengths = [min(max(int(draw.lognormvariate(3, 0.6)), 5), 100) for _ in range(BATCH_TOKENS // 2)]
    source, target = ([[draw.randrange(EOS + 1, vocabulary) for _ in range(n)] for n in lengths] for _ in range(2))
    found = list(pair_batches(source, target, BATCH_TOKENS))
    draw.shuffle(found)
    return found


def measure_all(results: Results, device: torch.device) -> None:
    """Measure every system at every size."""
    for size, (d_model, n_heads, n_layers, d_ff, vocabulary) in SIZES.items():
        n_both = {"n_encoder_layers": n_layers, "n_decoder_layers": n_layers}
        settings = ModelSettings(d_model=d_model, n_heads=n_heads, d_ff=d_ff, **n_both)
        batches = batches_of(vocabulary)
        for name, make_step in systems(settings, vocabulary, device).items():
            results.add(f"Training, {size}", name, partial(speed, make_step, batches, settings, vocabulary, device))


def speed(
    make_step: Callable[[], Step],
    batches: Sequence[Batch],
    settings: ModelSettings,
    vocabulary: int,
    device: torch.device,
) -> Row:
    """Target tokens a second, the share of the GPU's peak FLOP/s, and its peak memory."""
    gc.collect()  # the model before: a `Replicas` refers to itself
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    sizes = {**settings.model_dump(), "vocab_size": vocabulary}
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
            if on_gpu:
                torch.cuda.synchronize()

        seconds = seconds_of(epoch, SECONDS)
    except torch.OutOfMemoryError:
        return {"failed": "out of memory"}
    percent = 100 * n_flops / seconds / peak_flops(torch.bfloat16, device.type, BATCH_TOKENS // 2)
    return {"tokens_s": n_tokens / seconds, "percent_of_peak": percent, "memory_gb": peak_memory(device) / 1e9}


def systems(settings: ModelSettings, vocabulary: int, device: torch.device) -> dict[str, Callable[[], Step]]:
    """The systems that are compared: for the name of each, a function that makes its model and returns its step."""

    def ours(optimizer: Any) -> Step:
        model, train = Transformer(settings, vocabulary, vocabulary).to(device), TrainSettings(optimizer=optimizer)
        optimizers, options = make_optimizers(model, train), StepOptions(train, lr=1e-4, seed=1, bf16=True)
        replicas = Replicas(model)
        replicas.train()
        return lambda batch: train_step(replicas, optimizers, [batch], options)

    def plain() -> Step:
        model = PlainTransformer({**settings.model_dump(), "vocab_size": vocabulary}).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

        def step(batch: Batch) -> None:
            batch = batch.to(device)
            tensors = (batch.src, batch.tgt_in, batch.tgt_out)
            plain_step(model, optimizer, tensors, bf16=True, label_smoothing=0.1, clip_norm=1.0)

        return step

    return {
        "nmt, adamw": partial(ours, "adamw"),
        "nmt, muon": partial(ours, "muon"),
        "torch.nn.Transformer, plain loop": plain,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path(".bench/gpu"), help="where everything is written")
    args = parsed(parser)
    if not torch.cuda.is_available():
        parser.error("there is no GPU")
    results = Results(args["home"] / "gpu")
    measure_all(results, torch.device("cuda"))
    print(results.markdown(), end="")


if __name__ == "__main__":
    main()
