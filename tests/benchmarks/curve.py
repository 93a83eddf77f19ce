"""Dev BLEU over minutes of training: nmt, plain loops and other toolkits, one after the other on the same cores.

Every program trains on the same pairs for `--minutes` and computes BLEU of a greedy search on dev about once a minute
itself. Time counts from its start, and includes validation. Writes a Markdown table to stdout, and curve.svg.
"""

import itertools
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

import training
from measure import NMT, Options, Sample, Table, interleaved, started
from training import Task, Trainer

from nmt.files import atomic_write, parse_json
from nmt.run.directory import RunDirectory

VALIDATE_S = 60
OFTEN = 100  # steps between validations of nmt
# The peers' model has the recipe's sizes, and small batches: in so short a time, the number of updates matters most.
# Their learning rate falls with the inverse square root of the steps.
SMALL_BATCHES = "train.batch_tokens=1024", "train.validate_every=120"
PEER = "train.optimizer=adamw", "train.lr=2e-3", "train.warmup=400", *SMALL_BATCHES
LEFT, RIGHT, TOP, BOTTOM = 40, 590, 30, 360  # of the curves, in pixels
COLORS = "#0b6bcb", "#12805c", "#b45309", "#9d2bb0", "#6b7280"  # contrast of at least 4 with white and with black
HEAD = f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 400" role="img">
<title>Dev BLEU over minutes of training</title>
<style>text {{ font: 13px system-ui, sans-serif; fill: #444 }} .grid {{ stroke: #8884 }}
@media (prefers-color-scheme: dark) {{ text {{ fill: #ccc }} }}</style>
<text x="{LEFT}" y="{TOP - 12}">dev BLEU</text>
<text x="{RIGHT}" y="392" text-anchor="end">minutes</text>"""


class Point(NamedTuple):
    minutes: float  # since the start
    bleu: float  # on dev


Curve = list[Point]


def bleu_in_json(line: str, _seconds: float) -> float:
    """Dev BLEU in a metrics line of nmt or of the plain loop; 0 if it has none."""
    return float(parse_json(line).get("dev_bleu", 0))


def bleu_of_joey(line: str, _seconds: float) -> float:
    """Dev BLEU in a line of JoeyNMT's validations.txt."""
    bleu = re.search(r"bleu:\s+([\d.]+)", line)
    return float(bleu[1]) if bleu else 0.0


def recipe_trainer(options: Options, task: Task) -> Trainer:
    """`nmt train` with the recipe, within the minutes."""
    run = RunDirectory(task.home / "recipe")
    budget = ["train.max_epochs=null", f"train.max_minutes={options.minutes}", f"train.validate_every={OFTEN}"]
    command = [*NMT, "train", options.config, f"run={run.path}", *budget]
    return Trainer(command, run.metrics_file, bleu_in_json)


def init_trainer(options: Options, task: Task) -> Trainer:
    """`nmt train` with the config that `nmt init` writes for the training pairs; it trains on all of them."""
    # 1. nmt init.
    home = task.home / "init"
    run = RunDirectory(home / "run")
    config = home / "init.yaml"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    sides = [task.home / "train.src", task.home / "train.tgt"]
    init = ["init", *sides, "-o", config, "--minutes", options.minutes]
    subprocess.run([*NMT, *map(str, init)], check=True, cwd=home)

    # 2. The pairs that the others have, and validations as often.
    settings = [f"run={run.path}", "data.root=/", "data.test=null", f"train.validate_every={OFTEN}"]
    for part in ("train", "dev"):
        settings.append(f"data.{part}.source={task.home / part}.src")
        settings.append(f"data.{part}.target={task.home / part}.tgt")
    return Trainer([*NMT, "train", config, *settings], run.metrics_file, bleu_in_json)


def contestants(options: Options, task: Task) -> dict[str, Trainer]:
    """All programs; Marian and JoeyNMT only if `options.peers` is a Python that has them."""
    named = {
        "nmt, the recipe": recipe_trainer(options, task),
        "nmt, as nmt init writes it": init_trainer(options, task),
    }
    others = training.trainers(options, task)
    names = {training.BASELINE: "torch.nn.Transformer, plain loop", training.MARIAN: "Hugging Face Marian, plain loop"}
    for name, shown in names.items():
        if name in others:
            command = [*others[name].command, "--validate-s", VALIDATE_S]
            named[shown] = Trainer(command, others[name].progress, bleu_in_json)
    if training.JOEY in others:
        validations = task.home / "joey" / "validations.txt"
        named["JoeyNMT"] = Trainer(others[training.JOEY].command, validations, bleu_of_joey)
    return named


def learn(trainer: Trainer, options: Options, curve: Curve) -> Sample:
    """Train for `options.minutes`; extend `curve`. Returns the best dev BLEU by the end of each minute."""
    training.clear(trainer)
    start = time.monotonic()
    with started(trainer.command, options.scratch) as run:
        end = start + 60 * options.minutes
        for now, bleu in training.steps(trainer, run, until=end):
            curve.append(Point((now - start) / 60, bleu))
        figures = run.figures()
    best = {}
    for minute in range(1, int(options.minutes) + 1):
        until_then = [point.bleu for point in curve if point.minutes <= minute]
        best[f"{minute} min"] = max(until_then, default=0.0)
    return best | figures


def of_bleu(options: Options) -> list[Table]:
    """Dev BLEU over minutes, one training each; draws the picture."""
    task = training.prepare(options, PEER)
    named = contestants(options, task)
    curves: dict[str, Curve] = {name: [Point(0.0, 0.0)] for name in named}
    measures = {}
    commands = {}
    for name, trainer in named.items():
        commands[name] = trainer.command
        measures[name] = partial(learn, trainer, options, curves[name])
    samples = interleaved(measures, 1)
    atomic_write(options.scratch / "curve.svg", svg(curves, options.minutes))
    note = "Best dev BLEU (greedy search) so far, by minutes since the program's start; one training each."
    last = f"{int(options.minutes)} min"
    return [Table("Dev BLEU over minutes of training", note, commands, samples, last, [])]


def svg(curves: Mapping[str, Curve], minutes: float) -> str:
    """The curves as a picture for light and dark pages, with their names beside them, the best one at the top."""
    # 1. The grid: a line for every 10 BLEU, and about six minutes.
    best_first = sorted(curves, key=lambda name: -curves[name][-1].bleu)
    points = itertools.chain(*curves.values())
    highest = max(point.bleu for point in points)
    top_bleu = 10 * int(highest // 10 + 1)
    lines = [HEAD]

    def x_of(minute: float) -> float:
        return LEFT + (RIGHT - LEFT) / minutes * minute

    def y_of(bleu: float) -> float:
        return BOTTOM - (BOTTOM - TOP) / top_bleu * bleu

    for bleu in range(0, top_bleu + 1, 10):
        y = y_of(bleu)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y}" y2="{y}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{bleu}</text>')
    every = max(int(minutes) // 6, 1)
    for minute in range(0, int(minutes), every):
        lines.append(f'<text x="{x_of(minute)}" y="{BOTTOM + 18}" text-anchor="middle">{minute}</text>')

    # 2. The curves.
    for number, (name, color) in enumerate(zip(best_first, COLORS, strict=False)):
        path = ""
        for point in curves[name]:
            path += f" {x_of(point.minutes):.1f},{y_of(point.bleu):.1f}"
        lines.append(f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{path}"/>')
        y = TOP + 20 * number
        lines.append(f'<text x="{RIGHT + 10}" y="{y}" style="fill: {color}">{name}: {point.bleu:.1f}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
