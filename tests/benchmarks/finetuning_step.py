"""How much CPU time and memory a training step takes with frozen parts or low-rank adapters, on one core.

A step of 128 pairs of 32 tokens with a Transformer of 7.6M parameters (3 + 3 layers, width 256, 8,000 pieces) in fp32
on one thread. The kinds take turns; the seconds are medians of CPU time. The memory is the peak of a process that does
three steps of one kind. The adapters (LoRA: Hu et al. 2021) have rank 8: y = W x + B A x with W frozen, in all matrices
of attention, or also of the feed-forward layers; nmt itself has no adapters.
"""

import argparse
import math
import re
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import torch
from measure import ROOT
from torch import Tensor, nn

from nmt.config import Config
from nmt.model.transformer import Transformer
from nmt.text.batches import Batch
from nmt.train.optimizer import make_optimizers
from nmt.train.replicas import Replicas
from nmt.train.step import StepOptions, train_step

CONFIG = Config.model_validate(
    {
        "run": "runs/step",
        "data": {"train": {"source": "a", "target": "b"}},
        "model": {"d_model": 256, "d_ff": 1024, "n_encoder_layers": 3, "n_decoder_layers": 3},
    }
)
N_PIECES, N_PAIRS, LENGTH, RANK = 8000, 128, 32, 8
ATTENTION = ("query_key_value", "query", "key_value", "output")
KINDS = {  # what is frozen, and which layers get adapters
    "all weights trained": ([], ()),
    "embeddings frozen": (["embeddings"], ()),
    "embeddings and encoder frozen": (["embeddings", "encoder"], ()),
    "adapters in attention": (["embeddings", "encoder", "decoder"], ATTENTION),
    "adapters in attention and feed-forward": (["embeddings", "encoder", "decoder"], (*ATTENTION, "inner", "outer")),
}


class Adapted(nn.Module):
    """A frozen linear layer with a low-rank adapter, which starts as 0."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.randn(RANK, layer.in_features) / math.sqrt(layer.in_features))  # A
        self.up = nn.Parameter(torch.zeros(layer.out_features, RANK))  # B

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + (x @ self.down.T) @ self.up.T  # type: ignore[no-any-return]


class Contestant:
    """A model of one of the `KINDS`, with its optimizer."""

    def __init__(self, kind: str) -> None:
        frozen, adapted = KINDS[kind]
        torch.manual_seed(0)
        model = Transformer(CONFIG.model, N_PIECES, N_PIECES).train()
        self.n_parameters = model.n_parameters
        for module in list(model.modules()):
            for child, layer in list(module.named_children()):
                if child in adapted and isinstance(layer, nn.Linear):
                    setattr(module, child, Adapted(layer))
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(not adapted or name.endswith((".down", ".up")))
        if not adapted:
            model.freeze(frozen)
        self.n_trained = model.n_trainable
        self.replicas, self.optimizers = Replicas(model), make_optimizers(model, CONFIG.train)

    def step(self, seed: int) -> float:
        """Do a step; return its CPU seconds."""
        generator = torch.Generator().manual_seed(seed)
        src, tgt_in, tgt_out = torch.randint(4, N_PIECES, (3, N_PAIRS, LENGTH), generator=generator)
        batch = Batch(src, tgt_in, tgt_out, lines=[*range(N_PAIRS)])
        start = time.thread_time()
        train_step(self.replicas, self.optimizers, [batch], StepOptions(CONFIG.train, lr=1e-4, seed=seed))
        return time.thread_time() - start


def peak_mb(kind: str) -> float:
    """The peak memory of a process that does three steps."""
    done = subprocess.run([sys.executable, __file__, "--kind", kind], cwd=ROOT, capture_output=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="steps of each kind; the first is not counted")
    parser.add_argument("--kind", choices=KINDS, help="print the peak memory of this kind, MB")
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.kind:
        one = Contestant(args.kind)
        for seed in range(3):
            one.step(seed)
        (peak,) = re.findall(
            r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text()
        )  # ru_maxrss would count the parent's peak too
        print(int(peak) * 1024 / 1e6)
        return
    contestants = {kind: Contestant(kind) for kind in KINDS}
    rounds = [{kind: one.step(seed) for kind, one in contestants.items()} for seed in range(args.rounds)]
    seconds = {kind: median(one[kind] for one in rounds[1:]) for kind in KINDS}
    full = seconds["all weights trained"]
    print("| | trained | CPU seconds a step | ratio | peak MB |\n| --- | ---: | ---: | ---: | ---: |")
    for kind, one in contestants.items():
        figures = (
            f"{one.n_trained / 1e6:.2f}M | {seconds[kind]:.2f} | {seconds[kind] / full:.2f} | {peak_mb(kind):,.0f}"
        )
        print(f"| {kind} | {figures} |")


if __name__ == "__main__":
    main()
