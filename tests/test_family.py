"""Both architectures, with some of their settings, memorize the five pairs when the nmt command trains them."""

from typing import Any

import pytest
from conftest import TARGET, FiveCorpus, out_lines, run_nmt
from models import RNNS, RUNGS, name

SIZES = {"d_model": 32, "d_ff": 64, "n_encoder_layers": 1, "n_decoder_layers": 1, "dropout": 0.0}
TRAIN = {"max_steps": 100, "validate_every": 100, "lr": 0.01, "warmup": 20, "average": "none"}


@pytest.mark.parametrize("choices", [*RUNGS[:5], *RNNS[:4:3]], ids=name)
def test_it_learns_the_five_pairs(five_corpus: FiveCorpus, choices: dict[str, Any]) -> None:
    settings = [f"model.{key}={value}" for key, value in {**SIZES, **choices}.items()]
    settings += [f"train.{key}={value}" for key, value in TRAIN.items()]
    out_lines(run_nmt("train", five_corpus.config, *settings))
    for beam in (1, 5):
        options = ["-m", five_corpus.run, "--beam", beam, "--engine", "torch", "-i", five_corpus.source_file]
        assert out_lines(run_nmt("translate", *options)) == TARGET
