"""Memory does not grow with the positions that a model file claims."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from nmt.config import Config
from nmt.run.checkpoint import Checkpoint, save_checkpoint, shapes_of
from nmt.text.tokenizer import Tokenizers, train_tokenizer

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
