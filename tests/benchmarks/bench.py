"""Run benchmarks: Markdown tables on stdout, every measurement in a JSON file. See README.md beside this file."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import curve
import decoding
import serving
import training
from measure import PROGRAMS, Options, Table, parsed, say

from nmt.errors import DataError

BENCHMARKS: dict[str, Callable[[Options], list[Table]]] = {
    "training": training.throughput,
    "decoding": decoding.throughput,
    "latency": decoding.latency,
    "serving": serving.throughput,
    "scaling": training.scaling,
    "curve": curve.of_bleu,
}
SHORT = ["training", "decoding", "latency"]
SCRATCH = Path(".bench")
RESULTS = SCRATCH / "results.json"


def printed(*command: object) -> str:
    words = [str(word) for word in command]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def machine(peers: Path | None) -> dict[str, Any]:
    """Describe the machine and the software: processor, packages, commit."""
    model_name = Path("/proc/cpuinfo").read_text().partition("model name\t: ")[2]
    packages = {sys.executable: printed(sys.executable, "-m", "pip", "freeze")}
    if peers:
        packages[str(peers)] = printed(peers, "-m", "pip", "freeze")
    cpu = model_name.partition("\n")[0]
    commit = printed("git", "rev-parse", "HEAD").strip()
    return {"cpu": cpu, "cores": os.cpu_count(), "packages": packages, "commit": commit}


def main() -> None:
    # 1. The options.
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=BENCHMARKS, default=SHORT, help="default: %(default)s")
    parser.add_argument("--config", type=Path, default=PROGRAMS / "peers.yaml", help="a recipe to train")
    parser.add_argument("-m", "--model", type=Path, help="a run that translates; else one is trained")
    parser.add_argument("--peers", type=Path, help="the Python that has transformers, joeynmt and pymarian")
    parser.add_argument("--rounds", type=int, default=Options.rounds, help="measurements of each contestant")
    parser.add_argument("--seconds", type=float, default=Options.seconds, help="of a training window")
    parser.add_argument("--minutes", type=float, default=Options.minutes, help="of the training that makes a model")
    parser.add_argument("--only", nargs="+", default=(), help="names of contestants of training and curve")
    args = parsed(parser)
    names = args.pop("names")
    only = tuple(args.pop("only"))
    options = Options(**args, scratch=SCRATCH, only=only)
    SCRATCH.mkdir(exist_ok=True)

    # 2. The benchmarks.
    tables: list[Table] = []
    for name in names:
        try:
            of_benchmark = BENCHMARKS[name](options)
        except DataError as error:
            say(f"{name}: skipped: {error}")
            continue
        for table in of_benchmark:
            print(f"{table.markdown()}\n", flush=True)
        tables += of_benchmark
        measured = [table.as_json() for table in tables]
        results = {"machine": machine(options.peers), "tables": measured}
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
