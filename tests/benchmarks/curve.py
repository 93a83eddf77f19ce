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
from pathlib import Path
from typing import NamedTuple

import training
from measure import NMT, Options, Sample, Table, interleaved, started
from training import Task, Trainer

from nmt.config import language, load_config
from nmt.files import atomic_write, parse_json
from nmt.run.directory import RunDirectory

VALIDATE_S = 60
OFTEN = 100  # steps between validations of nmt
# The peers' model has the recipe's sizes, and small batches: in so short a time, the number of updates matters most.
# Their learning rate falls with the inverse square root of the steps.
SMALL_BATCHES = "train.batch_tokens=1024", "train.validate_every=120"
PEER = "train.optimizer=adamw", "train.lr=2e-3", "train.warmup=400", *SMALL_BATCHES
ADAMW = "train.optimizer=adamw", "train.lr=2e-3"
MARIAN_RATE = "train.lr=2e-3", "train.warmup=400"
LEFT, RIGHT, TOP, BOTTOM = 40, 590, 30, 360  # of the curves, in pixels
# One for each contestant, with a contrast of at least 4 with white and with black.
COLORS = "#0c6ed0", "#12805c", "#b45309", "#ab42c0", "#6b7280", "#d32f3a", "#6f7300"
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


def bleu_of_marian(line: str, _seconds: float) -> float:
    """Dev BLEU in a line of Marian's log."""
    return number_in(line, r" : bleu : ([\d.]+)")


def bleu_of_joey(line: str, _seconds: float) -> float:
    """Dev BLEU in a line of JoeyNMT's validations.txt."""
    return number_in(line, r"bleu:\s+([\d.]+)")


def number_in(line: str, pattern: str) -> float:
    """Return the number in the first group of `pattern`, or 0 if the line does not match."""
    found = re.search(pattern, line)
    return float(found[1]) if found else 0.0


def recipe_trainer(options: Options, task: Task) -> Trainer:
    """`nmt train` with the recipe, within the minutes."""
    run = RunDirectory(task.home / "recipe")
    limits = ["train.max_epochs=null", "train.max_steps=null", f"train.max_minutes={options.minutes}"]
    command = [*NMT, "train", options.config, f"run={run.path}", *limits, f"train.validate_every={OFTEN}"]
    return Trainer(command, run.metrics_file, bleu_in_json)


def init_config(options: Options, task: Task) -> Path:
    """Write the config of `nmt init` for the training pairs."""
    home = task.home / "init"
    config = home / "init.yaml"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    languages = []
    for side in ("source", "target"):
        languages += [f"--{side}-lang", language(task.config.data, side)]
    sides = [task.home / "train.src", task.home / "train.tgt"]
    init = ["init", *sides, "-o", config, "--minutes", options.minutes, *languages]
    subprocess.run([*NMT, *map(str, init)], check=True, cwd=home)
    return config


def init_trainer(task: Task, config: Path, name: str, *overrides: str) -> Trainer:
    """`nmt train` with a config of `nmt init`, on all pairs that the others have, validated as often."""
    run = RunDirectory(config.with_name(name))
    settings = [f"run={run.path}", "data.root=/", "data.test=null", f"train.validate_every={OFTEN}", *overrides]
    for part in ("train", "dev"):
        settings.append(f"data.{part}.source={task.home / part}.src")
        settings.append(f"data.{part}.target={task.home / part}.tgt")
    return Trainer([*NMT, "train", config, *settings], run.metrics_file, bleu_in_json)


def marian_trainer(task: Task, python: Path, config: Path) -> Trainer:
    """Marian's command, also with the sizes and batches of `nmt init`, which suit so short a time best."""
    marian = training.marian_trainer(task, python, load_config(config, [*MARIAN_RATE]))
    dev = [task.home / "dev.src", task.home / "dev.tgt"]
    greedy = ["--valid-metrics", "bleu", "--valid-mini-batch", 64, "--beam-size", 1]
    command = [*marian.command, "--valid-sets", *dev, "--valid-freq", f"{OFTEN}u", *greedy]
    return Trainer(command, marian.progress, bleu_of_marian)


def contestants(options: Options, task: Task) -> dict[str, Trainer]:
    """All programs; the other toolkits only if `options.peers` is a Python that has them."""
    config = init_config(options, task)
    named = {
        "nmt, the recipe": recipe_trainer(options, task),
        "nmt init": init_trainer(task, config, "muon"),
        "nmt init, AdamW": init_trainer(task, config, "adamw", *ADAMW),
    }
    others = training.trainers(options, task)
    names = {
        training.BASELINE: "torch.nn.Transformer, plain loop",
        training.HUGGING_FACE: "Hugging Face Marian, plain loop",
    }
    for name, shown in names.items():
        if name in others:
            command = [*others[name].command, "--validate-s", VALIDATE_S]
            named[shown] = Trainer(command, others[name].progress, bleu_in_json)
    if training.JOEY in others:
        validations = task.home / "joey" / "validations.txt"
        named["JoeyNMT"] = Trainer(others[training.JOEY].command, validations, bleu_of_joey)
    if options.peers:
        named["Marian"] = marian_trainer(task, options.peers, config)
    return named


def learn(trainer: Trainer, options: Options) -> Sample:
    """Train for `options.minutes`. Returns the best dev BLEU by the end of each minute."""
    training.clear(trainer)
    points = []
    start = time.monotonic()
    with started(trainer.command, options.scratch) as run:
        end = start + 60 * options.minutes
        for now, bleu in training.steps(trainer, run, until=end):
            points.append(Point((now - start) / 60, bleu))
        figures = run.figures()
    best = {}
    for minute in range(1, int(options.minutes) + 1):
        until_then = [point.bleu for point in points if point.minutes <= minute]
        best[name_of(minute)] = max(until_then, default=0.0)
    return best | figures


def name_of(minute: int) -> str:
    return f"{minute} min"


def of_bleu(options: Options) -> list[Table]:
    """Dev BLEU over minutes; draws the picture of the medians."""
    # 1. The trainings.
    task = training.prepare(options, PEER)
    measures = {}
    commands = {}
    for name, trainer in contestants(options, task).items():
        if not options.includes(name):
            continue
        commands[name] = trainer.command
        measures[name] = partial(learn, trainer, options)
    samples = interleaved(measures, options.rounds)
    note = "Best dev BLEU (greedy search) so far, by minutes since the program's start."
    last = int(options.minutes)
    table = Table("Dev BLEU over minutes of training", note, commands, samples, name_of(last), [])

    # 2. The picture.
    curves = {}
    for name, row in table.rows().items():
        curves[name] = [Point(0.0, 0.0)]
        for minute in range(1, last + 1):
            curves[name].append(Point(minute, row[name_of(minute)]))
    atomic_write(options.scratch / "curve.svg", svg(curves, options.minutes))
    return [table]


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
    for number, (name, color) in enumerate(zip(best_first, itertools.cycle(COLORS), strict=False)):
        path = ""
        for point in curves[name]:
            path += f" {x_of(point.minutes):.1f},{y_of(point.bleu):.1f}"
        lines.append(f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{path}"/>')
        y = TOP + 20 * number
        lines.append(f'<text x="{RIGHT + 10}" y="{y}" style="fill: {color}">{name}: {point.bleu:.1f}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"
