"""The speedrun: how much CPU time a recipe takes to reach a mark on dev, beside the recipe of an older commit.

Whole runs are trained in turns on the same machine, with their tokenizer and all validations. The schedule of a run is
fixed beforehand. A recipe counts if the mean dev BLEU of its seeds reaches the mark. SPEEDRUN.md has the records.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import mean, variance
from typing import Any, NamedTuple

import numpy as np
from experiments import Results, Row, run_nmt, scores
from measure import NMT, ROOT, parsed

MARKS = {"tatoeba-zh-en": 31.7, "multi30k-de-en": 42.3, "demo": 98.0}  # dev BLEU that the recipes of `BASE` end with
BASE = "59bcd96"
MAX_LENGTH = 100  # pieces; both models translate dev with this limit, because the limits of the commits may differ


class Contestant(NamedTuple):
    """The code and the recipes of a commit, or of the working tree."""

    name: str
    tree: Path
    overrides: list[str]


def tree_of(commit: str, folder: Path) -> Path:
    """Return a folder with the files of a commit."""
    tree = folder / commit
    if not tree.exists():
        command = ["git", "worktree", "add", "--detach", str(tree), commit]
        subprocess.run(command, check=True, cwd=ROOT, stdout=sys.stderr)
    return tree.absolute()


def raced(contestant: Contestant, recipe: str, seed: int, runs: Path) -> Row:
    """Train one whole run; return its CPU seconds and its dev BLEU."""
    run = runs / f"{recipe}-{contestant.name}-{seed}"
    config = contestant.tree / "configs" / f"{recipe}.yaml"
    # Without --fresh, an interrupted run would be resumed, and the CPU time of its first part would not be counted.
    command = [*NMT, "train", "--fresh", str(config), f"run={run.absolute()}", f"seed={seed}", *contestant.overrides]
    environment = os.environ | {"PYTHONPATH": str(contestant.tree)}
    before = cpu_seconds()
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    seconds = cpu_seconds() - before
    source, target = dev_files(run)
    run_nmt("translate", "-m", run, "-i", source, "-o", run / "dev", "--beam", 1, "--max-length", MAX_LENGTH)
    bleu = scores("--hyp", run / "dev", "--ref", target)["BLEU"]["value"]
    return {"cpu_s": seconds, "dev_BLEU": bleu}


def cpu_seconds() -> float:
    """Return the CPU seconds (user and system) of all processes that this program has run so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def dev_files(run: Path) -> tuple[Path, Path]:
    """Return the source and the target of a run's dev set."""
    from nmt.config import load_config
    from nmt.train.corpora import corpus_paths

    config = load_config(run / "config.yaml")
    (files,) = config.data.dev
    (source,), (target,) = corpus_paths(config, files)
    return source, target


def p_faster(seconds: list[float], base: list[float]) -> float:
    """Return the probability of such a difference of means if the recipe were not faster (Welch's t-test)."""
    # 1. Compute the statistic and its degrees of freedom.
    error, base_error = variance(seconds) / len(seconds), variance(base) / len(base)
    total = error + base_error
    t = (mean(base) - mean(seconds)) / total**0.5
    spread = error**2 / (len(seconds) - 1) + base_error**2 / (len(base) - 1)
    n_free = total**2 / spread
    # 2. With t = √n·tan(θ), Student's density of n degrees of freedom is proportional to cos(θ)^(n-1).
    angles = np.linspace(-np.pi / 2, np.pi / 2, 100_001)
    density = np.cos(angles) ** (n_free - 1)
    is_tail = angles > np.arctan(t / n_free**0.5)
    return float(density[is_tail].sum() / density.sum())


def summary(rows: dict[str, Row], contestants: list[Contestant], recipe: str, seeds: list[int]) -> Row:
    """Compare the means of both contestants."""
    seconds, bleu = [], []
    for contestant in contestants:
        finished = [rows[f"{contestant.name}, seed {seed}"] for seed in seeds]
        seconds.append([row["cpu_s"] for row in finished])
        bleu.append(mean(row["dev_BLEU"] for row in finished))
    figures: dict[str, Any] = {"cpu_s": mean(seconds[0]), "dev_BLEU": bleu[0], "mark": MARKS[recipe]}
    figures |= {"base_cpu_s": mean(seconds[1]), "base_dev_BLEU": bleu[1], "share": mean(seconds[0]) / mean(seconds[1])}
    if len(seeds) > 1:
        figures["p"] = p_faster(*seconds)
    return figures | {"counts": "yes" if bleu[0] >= MARKS[recipe] else "no"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recipes", nargs="*", default=list(MARKS), help=f"of {', '.join(MARKS)}; default: all")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--base", default=BASE, help="commit whose recipes are the measure (default: %(default)s)")
    parser.add_argument("--set", nargs="+", default=[], help="settings of the recipe to try, such as model.dropout=0.2")
    parser.add_argument("--set-both", nargs="+", default=[], help="settings of both recipes, such as data.root=DIR")
    parser.add_argument("--runs", type=Path, default=Path(".bench/speedrun"), help="directory of all that is written")
    options = parsed(parser)
    runs, seeds = options["runs"], options["seeds"]
    base = Contestant(options["base"], tree_of(options["base"], runs), options["set_both"])
    contestants = [Contestant("now", ROOT, options["set_both"] + options["set"]), base]
    results = Results(runs / "speedrun")
    for recipe in options["recipes"]:
        for seed in seeds:
            for contestant in contestants:
                name = f"{contestant.name}, seed {seed}"
                results.add(recipe, name, partial(raced, contestant, recipe, seed, runs))
        rows = results.tables[recipe]
        results.add("means", recipe, partial(summary, rows, contestants, recipe, seeds))
    print(results.markdown(), end="")
    print(json.dumps(results.tables["means"]), file=sys.stderr)


if __name__ == "__main__":
    main()
