"""Memory grows neither with the number of shapes in matmuls nor with the positions that a model file claims."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nmt.config import Config
from nmt.run.checkpoint import Checkpoint, save_checkpoint, shapes_of
from nmt.text.tokenizer import Tokenizers, train_tokenizer

PROGRAM = """
import sys
from pathlib import Path
from nmt.processes import prepare_torch

if sys.argv[1] == "as we do":
    prepare_torch(1)
import torch

def anonymous():
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) // 1024

weight = torch.ones(512, 512, dtype=torch.bfloat16)
for n in range(600):
    if n == 300:  # the caches that we limit are full
        before = anonymous()
    torch.ones(100 + n, 512, dtype=torch.bfloat16) @ weight
print(anonymous() - before)
"""


def grown(how: str) -> int:
    """Return how much matmuls of 300 more shapes increase anonymous memory, in MiB."""
    names = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
    alone = {name: value for name, value in os.environ.items() if name not in names} | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, how]
    return int(subprocess.run(command, capture_output=True, check=True, text=True, env=alone).stdout)


@pytest.mark.skipif(platform.system() != "Linux", reason="/proc")
def test_products_of_many_shapes_leave_little_behind() -> None:
    usually = grown("as torch does")
    if usually < 100:
        pytest.skip(f"this torch keeps {usually} MiB for 300 shapes on this machine")
    assert grown("as we do") < usually / 5


LOADING = """
import resource, sys, nmt

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

nmt.load(sys.argv[1], device="cpu")
before = peak()
nmt.load(sys.argv[2], device="cpu")
print(peak() - before)
"""


@pytest.mark.skipif(platform.system() != "Linux", reason="ru_maxrss is in kB")
@pytest.mark.parametrize("positions", ["sinusoidal", "rotary"])
def test_a_model_that_claims_many_positions_takes_no_memory_for_them(tmp_path: Path, positions: str) -> None:
    """The table of all positions would take 100 MB, and several times as much while it is computed."""
    files = []
    for n_positions in (256, 100_000):
        sizes = {"d_model": 256, "n_heads": 1, "d_ff": 4, "n_encoder_layers": 1, "n_decoder_layers": 1}
        config = Config.model_validate(
            {
                "run": "runs/x",
                "data": {"train": {"source": "a.zh", "target": "a.en"}},
                "tokenizer": {"vocab_size": 280},
                "model": {**sizes, "positions": positions, "max_positions": n_positions},
            }
        )
        model = train_tokenizer(["the cat sat on the mat"], config.tokenizer).model
        tokenizers = Tokenizers.from_models(model, model, nfkc_source=False)
        weights = {f"model.{name}": torch.zeros(shape) for name, shape in shapes_of(config, tokenizers).items()}
        files.append(tmp_path / f"{n_positions}.safetensors")
        save_checkpoint(files[-1], Checkpoint(config, weights, tokenizers))
    done = subprocess.run([sys.executable, "-c", LOADING, *files], capture_output=True, check=True, text=True)
    assert int(done.stdout) < 50
