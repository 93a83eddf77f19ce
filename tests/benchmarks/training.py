"""Training: the `nmt train` command, plain loops and other toolkits, on the same pairs and tokens per step."""

import json
import math
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from string import Template
from typing import Any

import torch
from measure import NMT, PROGRAMS, Options, Sample, Table, Watched, interleaved, shown, started

from nmt.config import Config, load_config
from nmt.model.kernels import bf16_is_faster
from nmt.run.directory import RunDirectory
from nmt.train.encoding import drop_lengths, train_tokenizers
from nmt.train.plan import fit_sizes
from nmt.train.preparation import read_corpus

WARM_UP_STEPS = 3  # measurement starts after them
RECIPE = (
    "train.optimizer=adamw",  # as the others
    "model.dropout=0.1",
    "train.lr=2e-3",
    "train.warmup=306",
    "train.cooldown=0",
    "train.validate_every=1000000",
)
# nmt splits the same positions per step into two micro-batches of different lengths. They have less padding and half
# as many tokens again, so an epoch has fewer steps. The warm-up is the same in tokens, and the rate is adapted.
OWN = ["train.batch_tokens=2048", "train.accumulate=2", "train.warmup=200", "train.lr=3e-3"]
BASELINE, PLAIN_BF16 = "torch.nn.Transformer, plain loop, fp32", "the same, bf16"
PEERS = MARIAN, JOEY = "Hugging Face Marian, the same loop, fp32", "JoeyNMT, its command, fp32"


@dataclass(frozen=True)
class Trainer:
    """A program that trains."""

    command: Sequence[object]  # trains until it is stopped
    progress: Path  # the file to which it appends a line per step
    tokens: Callable[[str, float], float]  # of a line and the seconds since the last step; 0 if the line is no step


def counted(line: str, _seconds: float) -> float:
    """Target tokens in a metrics line of nmt or of the plain loop."""
    return float(json.loads(line).get("n_tokens", 0))


def from_rate(line: str, seconds: float) -> float:
    """Target tokens of a line of JoeyNMT's log, which has tokens per second."""
    found = re.search(r"Tokens per Sec: +(\d+)", line)
    return int(found[1]) * seconds if found else 0.0


@dataclass(frozen=True)
class Task:
    """The corpus, written for every contestant."""

    config: Config  # with all sizes filled in; its run directory has the tokenizer
    home: Path  # the directory of all files
    flops_per_token: float  # of a training step's matmuls per target token, without padding


@cache
def prepare(options: Options, settings: tuple[str, ...] = RECIPE) -> Task:
    """Tokenize the recipe's corpus; write token ids, text, and a run directory with the tokenizer for `nmt train`."""
    home = options.scratch / "training"
    run = RunDirectory(home / "nmt")
    config = load_config(options.config, [*settings, f"run={run.path}"])
    corpus = read_corpus(config)
    config = fit_sizes(config, corpus.size)
    shutil.rmtree(home, ignore_errors=True)
    run.create()
    tokenizers = train_tokenizers(config, corpus.train)
    run.write_tokenizers(tokenizers, config.tokenizer.joint)
    train, _ = drop_lengths(config, corpus.train, tokenizers)
    sizes = {**config.model.model_dump(), "vocab_size": len(tokenizers.target)}
    ids = {}
    for name, chosen in (("train", train), ("dev", corpus.dev)):
        texts = [[pair.source for pair in chosen], [pair.target for pair in chosen]]
        sides = (tokenizer.encode_all(lines) for tokenizer, lines in zip(tokenizers, texts, strict=True))
        ids[name] = list(zip(*sides, strict=True))
        for side, lines in zip(("src", "tgt"), texts, strict=True):
            (home / f"{name}.{side}").write_text("".join(f"{line}\n" for line in lines))
    (home / "task.json").write_text(json.dumps({"model": sizes, "settings": config.train.model_dump(), **ids}))
    vocabulary = tokenizers.target.pieces(range(len(tokenizers.target)))
    (home / "vocabulary.txt").write_text("".join(f"{piece}\n" for piece in vocabulary))
    return Task(config, home, flops_per_token(sizes, ids["train"]))


Pairs = list[tuple[list[int], list[int]]]


def flops_per_token(sizes: dict[str, Any], pairs: Pairs) -> float:
    """FLOPs of a training step per target token, EOS counted."""
    lengths = [(len(src) + 1, len(tgt) + 1) for src, tgt in pairs]
    return sum(training_flops(sizes, *pair) for pair in lengths) / sum(tgt for _, tgt in lengths)


def training_flops(sizes: dict[str, Any], n_source: int, n_target: int) -> float:
    """FLOPs of the matmuls in a pair's forward and backward pass: 6 per weight and position, without padding."""
    d, ff = sizes["d_model"], sizes["d_ff"]
    encoder = n_source * (4 * d * d + 2 * d * ff) + 2 * n_source**2 * d
    decoder = n_target * (6 * d * d + 2 * d * ff) + n_source * 2 * d * d + 2 * n_target * (n_target + n_source) * d
    layers = sizes["n_encoder_layers"] * encoder + sizes["n_decoder_layers"] * decoder
    return float(6 * (layers + n_target * d * sizes["vocab_size"]))


@cache
def cpu_precision() -> str:
    """The precision that `nmt train` chooses on this machine with train.precision=auto: bf16 unless it is emulated."""
    return "bf16" if bf16_is_faster(torch.device("cpu")) else "fp32"


def peak_flops(dtype: torch.dtype, device: str = "cpu", size: int = 2048) -> float:
    """The machine's FLOP/s in the fastest of several large matmuls."""
    a = torch.randn(size, size, device=device).to(dtype)
    times = []
    for _ in range(8):
        start = time.perf_counter()
        a @ a
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times)


def trainers(options: Options, task: Task) -> dict[str, Trainer]:
    """All programs; JoeyNMT and Marian only if `options.peers` is a Python that has them."""
    home, run = task.home, RunDirectory(task.config.run)

    def plain(python: Path | str, model: str, precision: str) -> Trainer:
        metrics = home / f"{model}-{precision}.jsonl"
        command = [python, PROGRAMS / "plain_loop.py", home / "task.json", metrics, model, precision]
        return Trainer(command, metrics, counted)

    precision = cpu_precision()
    found = {BASELINE: plain(sys.executable, "torch", "fp32")}
    if precision == "bf16":
        found[PLAIN_BF16] = plain(sys.executable, "torch", "bf16")
    nmt = [*NMT, "train", options.config, *RECIPE, *OWN, "train.precision=auto", f"run={run.path}"]
    found[f"nmt train, {precision}"] = Trainer(nmt, run.metrics_file, counted)
    if options.peers:
        found[MARIAN] = plain(options.peers, "marian", "fp32")
        template = Template((PROGRAMS / "joeynmt.yaml").read_text())
        sections = (task.config.data, task.config.model, task.config.train)
        settings = {key: value for section in sections for key, value in section.model_dump().items()}
        (home / "joey.yaml").write_text(template.substitute(settings, home=home))
        joey = [options.peers, "-m", "joeynmt", "train", home / "joey.yaml", "--skip-test"]
        found[JOEY] = Trainer(joey, home / "joey" / "train.log", from_rate)
    return found


def steps(trainer: Trainer, run: Watched, until: float = math.inf) -> Iterator[tuple[float, float]]:
    """Yield the time at which each step was written, and its target tokens, until the program ends or a time."""
    before, text, offset = time.monotonic(), "", 0
    while True:
        has_ended = run.process.poll() is not None
        if trainer.progress.exists():
            with trainer.progress.open() as file:
                file.seek(offset)
                text += file.read()
                offset = file.tell()
        now = time.monotonic()
        *lines, text = text.split("\n")
        for line in lines:
            if tokens := trainer.tokens(line, now - before):
                yield now, tokens
                before = now
        if has_ended:
            run.wait()
        if has_ended or now > until:
            return
        time.sleep(0.05)


def cleared(trainer: Trainer) -> Sequence[object]:
    """Delete metrics, model and checkpoints of an earlier training, but not the tokenizer; return the command."""
    home = trainer.progress.parent
    for file in [trainer.progress, home / "model.safetensors", *home.glob("checkpoints/*")]:
        file.unlink(missing_ok=True)
    return trainer.command


def window(trainer: Trainer, options: Options, flops_per_token: float, peak: float) -> Sample:
    """Measure a program's speed after its first steps."""
    n_tokens = 0.0
    with started(cleared(trainer), options.scratch) as run:
        found = steps(trainer, run)
        for _ in range(WARM_UP_STEPS):
            start, _ = next(found)
        run.begin()
        for now, tokens in found:
            n_tokens += tokens
            if now - start >= options.seconds:
                break
        rate = n_tokens / (now - start)
        flops = rate * flops_per_token
        return {"tokens_s": rate, "gflop_s": flops / 1e9, "of_peak": flops / peak, **run.figures()}


def windows(title: str, contestants: Mapping[str, Trainer], options: Options, flops_per_token: float) -> Table:
    """Measure the speed of all programs in turn; compare them with the first, and with those of `options.peers`."""
    peaks = {"fp32": peak_flops(torch.float32)}
    if cpu_precision() == "bf16":
        peaks["bf16"] = peak_flops(torch.bfloat16)
    peak = max(peaks.values())
    measures = {name: partial(window, one, options, flops_per_token, peak) for name, one in contestants.items()}
    told = " and ".join(f"{shown('', peak / 1e9)} GFLOP/s in {name}" for name, peak in peaks.items())
    note = (
        f"Real target tokens a second, end sign counted, in windows of {options.seconds:g} s; operations are "
        f"those of real tokens; peak of a large matrix product: {told}; memory is anonymous, of all processes."
    )
    commands = {name: one.command for name, one in contestants.items()}
    bases = [next(iter(contestants)), *(name for name in contestants if name in PEERS)]
    return Table(title, note, commands, interleaved(measures, options.rounds), "tokens_s", bases)


def throughput(options: Options) -> list[Table]:
    """Target tokens per second."""
    task = prepare(options)
    return [windows("Training", trainers(options, task), options, task.flops_per_token)]


def scaling(options: Options) -> list[Table]:
    """Compare the training speed of a recipe with one process and with two."""
    task = prepare(options, ())
    run = RunDirectory(task.config.run)
    settings = [f"run={run.path}", "train.precision=auto", "train.validate_every=1000000"]
    contestants = {}
    for n in ("1", "2"):
        command = [*NMT, "train", options.config, *settings, "--replicas", n, "--threads", n]
        contestants[n] = Trainer(command, run.metrics_file, counted)
    title = f"Training by number of processes, {cpu_precision()}"
    return [windows(title, contestants, options, task.flops_per_token)]
