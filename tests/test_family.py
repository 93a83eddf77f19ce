"""Both architectures, with some of their settings, memorize the five pairs when the nmt command trains them."""

import json
import subprocess
import sys

from conftest import FiveCorpus, environment
from models import RNNS, RUNGS, name

# one process for all, since starting takes longer than training
PROGRAM = """
import json, sys
from nmt.cli.app import app
for arguments in json.loads(sys.argv[1]):
    app(arguments, standalone_mode=False)
"""
SIZES = {"d_model": 32, "d_ff": 64, "n_encoder_layers": 1, "n_decoder_layers": 1, "dropout": 0.0}
TRAIN = {"max_steps": 100, "validate_every": 100, "lr": 0.01, "warmup": 20, "average": "none", "precision": "fp32"}


def test_each_learns_the_five_pairs(five_corpus: FiveCorpus) -> None:
    home, chosen = five_corpus.home, {name(choices): choices for choices in (*RUNGS[:5], *RNNS[:4:3])}
    commands = []
    for number, choices in enumerate(chosen.values()):
        settings = [f"model.{key}={value}" for key, value in {**SIZES, **choices}.items()]
        settings += [f"train.{key}={value}" for key, value in TRAIN.items()]
        commands.append(["train", str(five_corpus.config), f"run={home}/{number}", *settings])
        for beam in (1, 5):
            files = ["-i", str(five_corpus.source_file), "-o", f"{home}/{number}.{beam}"]
            commands.append(["translate", "-m", f"{home}/{number}", "--beam", str(beam), *files])
    arguments = [sys.executable, "-c", PROGRAM, json.dumps(commands)]
    done = subprocess.run(arguments, cwd=home, env=environment(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    right = five_corpus.target_file.read_bytes()
    found = {
        f"{one}, beam {beam}": (home / f"{number}.{beam}").read_bytes() == right
        for number, one in enumerate(chosen)
        for beam in (1, 5)
    }
    assert all(found.values()), found
