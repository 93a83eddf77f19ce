"""Dev BLEU over minutes of training: nmt, plain loops and other toolkits, one after the other on the same cores.

Every program trains on the same pairs for `--minutes` and computes BLEU of a greedy search on dev about once a minute
itself. Time counts from its start, and includes validation. Writes a Markdown table to stdout, and curve.svg.
"""

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

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
PICTURE = Path(__file__).with_name("curve.svg")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 880, 400, 40, 290, 30, 40  # of the picture, in pixels
COLORS = "#0b6bcb", "#12805c", "#b45309", "#9d2bb0", "#6b7280"  # contrast of at least 4 with white and with black

Curve = list[tuple[float, float]]  # minutes since the start, dev BLEU


def bleu_in_json(line: str, _seconds: float) -> float:
    """Dev BLEU in a metrics line of nmt or of the plain loop; 0 if it has none."""
    return float(parse_json(line).get("dev_bleu", 0))


def bleu_of_joey(line: str, _seconds: float) -> float:
    """Dev BLEU in a line of JoeyNMT's validations.txt."""
    found = re.search(r"bleu:\s+([\d.]+)", line)
    return float(found[1]) if found else 0.0


def contestants(options: Options, task: Task) -> dict[str, Trainer]:
    """All programs; Marian and JoeyNMT only if `options.peers` is a Python that has them."""
    run = RunDirectory(task.home / "recipe")
    budget = ["train.max_epochs=null", f"train.max_minutes={options.minutes}", f"train.validate_every={OFTEN}"]
    recipe = Trainer([*NMT, "train", options.config, f"run={run.path}", *budget], run.metrics_file, bleu_in_json)
    found = {"nmt, the recipe": recipe, "nmt, as nmt init writes it": of_init(options, task)}
    others = training.trainers(options, task)
    names = {training.BASELINE: "torch.nn.Transformer, plain loop", training.MARIAN: "Hugging Face Marian, plain loop"}
    for name, shown in names.items():
        if name in others:
            command = [*others[name].command, "--validate-s", VALIDATE_S]
            found[shown] = Trainer(command, others[name].progress, bleu_in_json)
    if training.JOEY in others:
        validations = task.home / "joey" / "validations.txt"
        found["JoeyNMT"] = Trainer(others[training.JOEY].command, validations, bleu_of_joey)
    return found


def of_init(options: Options, task: Task) -> Trainer:
    """`nmt train` with the config that `nmt init` writes for the training pairs; it trains on all of them."""
    home = task.home / "init"
    run, config = RunDirectory(home / "run"), home / "init.yaml"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    given = [task.home / "train.src", task.home / "train.tgt", "-o", config, "--minutes", options.minutes]
    subprocess.run([*map(str, [*NMT, "init", *given])], check=True, cwd=home)
    sides = {"source": "src", "target": "tgt"}
    files = [f"data.{part}.{side}={task.home / part}.{end}" for part in ("train", "dev") for side, end in sides.items()]
    settings = [f"run={run.path}", "data.root=/", "data.test=null", *files, f"train.validate_every={OFTEN}"]
    return Trainer([*NMT, "train", config, *settings], run.metrics_file, bleu_in_json)


def learned(trainer: Trainer, options: Options, curve: Curve) -> Sample:
    """Train for `options.minutes`; extend `curve`. Returns the best dev BLEU by the end of each minute."""
    command, start = training.cleared(trainer), time.monotonic()
    with started(command, options.scratch) as run:
        for now, bleu in training.steps(trainer, run, until=start + 60 * options.minutes):
            curve.append(((now - start) / 60, bleu))
        figures = run.figures()
    minutes = range(1, int(options.minutes) + 1)
    return {f"{m} min": max((bleu for at, bleu in curve if at <= m), default=0.0) for m in minutes} | figures


def of_bleu(options: Options) -> list[Table]:
    """Dev BLEU over minutes, one training each; draws the picture."""
    task = training.prepare(options, PEER)
    found = contestants(options, task)
    curves: dict[str, Curve] = {name: [(0.0, 0.0)] for name in found}
    measures = {name: partial(learned, one, options, curves[name]) for name, one in found.items()}
    samples = interleaved(measures, 1)
    atomic_write(options.scratch / PICTURE.name, svg(curves, options.minutes))
    note = "Best dev BLEU (greedy search) so far, by minutes since the program's start; one training each."
    commands = {name: one.command for name, one in found.items()}
    last = f"{int(options.minutes)} min"
    return [Table("Dev BLEU over minutes of training", note, commands, samples, last, [])]


def svg(curves: Mapping[str, Curve], minutes: float) -> str:
    """The curves as a picture for light and dark pages, with names at their ends."""
    top = 10 * int(max(bleu for curve in curves.values() for _, bleu in curve) // 10 + 1)

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * at / minutes

    def y(bleu: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * bleu / top

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>Dev BLEU over minutes of training</title>",
        "<style>text { font: 13px system-ui, sans-serif; fill: #444 } .grid { stroke: #8884 }"
        " @media (prefers-color-scheme: dark) { text { fill: #ccc } }</style>",
        f'<text x="{LEFT}" y="{TOP - 12}">dev BLEU</text>',
        f'<text x="{x(minutes)}" y="{HEIGHT - 8}" text-anchor="end">minutes</text>',
    ]
    for bleu in range(0, top + 1, 10):
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{x(minutes)}" y1="{y(bleu)}" y2="{y(bleu)}"/>')
        lines.append(f'<text x="{LEFT - 8}" y="{y(bleu) + 4}" text-anchor="end">{bleu}</text>')
    lines += [
        f'<text x="{x(minute)}" y="{HEIGHT - 22}" text-anchor="middle">{minute}</text>'
        for minute in range(0, int(minutes), max(int(minutes) // 6, 1))
    ]
    for (name, curve), color, at in zip(curves.items(), COLORS, label_positions(curves, y), strict=False):
        points = " ".join(f"{x(minute):.1f},{y(bleu):.1f}" for minute, bleu in curve)
        lines.append(f'<polyline fill="none" stroke="{color}" stroke-width="2" points="{points}"/>')
        style = f'style="fill: {color}"'
        lines.append(f'<text x="{x(minutes) + 10}" y="{at:.1f}" {style}>{name}: {curve[-1][1]:.1f}</text>')
    return "\n".join([*lines, "</svg>"]) + "\n"


def label_positions(curves: Mapping[str, Curve], y: Callable[[float], float]) -> Sequence[float]:
    """The heights of the names: at the ends of their curves, or 18 pixels below the name above."""
    ends = [y(curve[-1][1]) + 4 for curve in curves.values()]
    found = dict.fromkeys(range(len(ends)), 0.0)
    lowest = TOP - 18.0
    for i in sorted(found, key=lambda i: ends[i]):
        lowest = found[i] = max(ends[i], lowest + 18)
    return [found[i] for i in range(len(ends))]
