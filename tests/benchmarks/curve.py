"""Dev BLEU over minutes of training: nmt, plain loops and other toolkits, one after the other on the same cores.

Every program trains on the same pairs for `--minutes` and computes BLEU of a greedy search on dev about once a minute
itself. Time counts from its start, and includes validation.
"""

import re
import shutil
import subprocess
import time
from functools import partial

import training
from measure import NMT, Options, Sample, Table, interleaved, started
from training import Task, Trainer

from nmt.files import parse_json
from nmt.run.directory import RunDirectory

VALIDATE_S = 60
OFTEN = 100  # steps between validations of nmt
# The peers' model has the recipe's sizes, and small batches: in so short a time, the number of updates matters most.
# Their learning rate falls with the inverse square root of the steps.
SMALL_BATCHES = "train.batch_tokens=1024", "train.validate_every=120"
PEER = "train.optimizer=adamw", "train.lr=2e-3", "train.warmup=400", *SMALL_BATCHES


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


def learned(trainer: Trainer, options: Options) -> Sample:
    """Train for `options.minutes`; return the best dev BLEU by the end of each minute."""
    command, start = training.cleared(trainer), time.monotonic()
    with started(command, options.scratch) as run:
        steps = training.steps(trainer, run, until=start + 60 * options.minutes)
        curve = [((now - start) / 60, bleu) for now, bleu in steps]
        figures = run.figures()
    minutes = range(1, int(options.minutes) + 1)
    return {f"{m} min": max((bleu for at, bleu in curve if at <= m), default=0.0) for m in minutes} | figures


def of_bleu(options: Options) -> list[Table]:
    """Dev BLEU over minutes, one training each."""
    task = training.prepare(options, PEER)
    found = contestants(options, task)
    samples = interleaved({name: partial(learned, one, options) for name, one in found.items()}, 1)
    note = "Best dev BLEU (greedy search) so far, by minutes since the program's start; one training each."
    commands = {name: one.command for name, one in found.items()}
    last = f"{int(options.minutes)} min"
    return [Table("Dev BLEU over minutes of training", note, commands, samples, last, [])]
