"""Training: the `nmt train` command, plain loops and other toolkits, on the same pairs and tokens per step."""

import json
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from string import Template
from typing import Any, NamedTuple

import torch
from measure import NMT, PROGRAMS, Options, Sample, Table, Watched, interleaved, started, write_lines

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
BASELINE = "torch.nn.Transformer, plain loop, fp32"
PLAIN_BF16 = "the same, bf16"
HUGGING_FACE = "Hugging Face Marian, the same loop, fp32"
JOEY = "JoeyNMT, its command, fp32"
MARIAN = "Marian, its command, fp32"
# Marian's command for the same model (pre-norm, one embedding for all) and the same updates.
MARIAN_TRAIN = """\
train --type transformer --dim-emb ${d_model} --transformer-dim-ffn ${d_ff} --transformer-heads ${n_heads}
--enc-depth ${n_encoder_layers} --dec-depth ${n_decoder_layers} --tied-embeddings-all --transformer-ffn-activation relu
--transformer-preprocess n --transformer-postprocess da --transformer-postprocess-top n
--transformer-dropout ${dropout} --label-smoothing ${label_smoothing} --clip-norm ${clip_norm}
--optimizer adam --optimizer-params 0.9 0.98 1e-9 --learn-rate ${lr} --lr-warmup ${warmup} --lr-decay-inv-sqrt ${warmup}
--mini-batch-words ${batch_tokens} --mini-batch-round-up=false --max-length ${max_length} --shuffle-in-ram --seed 1
--vocabs ${home}/marian.spm ${home}/marian.spm --train-sets ${home}/train.src ${home}/train.tgt
--model ${home}/marian/model.npz --no-reload --overwrite --log ${home}/marian/train.log --quiet --disp-freq 1u
--cpu-threads ${n_cores} --sync-sgd"""
Pairs = list[tuple[list[int], list[int]]]  # source and target ids


@dataclass(frozen=True)
class Trainer:
    """A program that trains."""

    command: Sequence[object]  # trains until it is stopped
    progress: Path  # the file to which it appends a line per step
    value: Callable[[str, float], float]  # of a line and the seconds since the last one: tokens or BLEU; 0 if none


def tokens_in_json(line: str, _seconds: float) -> float:
    """Target tokens in a metrics line of nmt or of the plain loop."""
    return float(json.loads(line).get("n_tokens", 0))


def tokens_by_rate(line: str, seconds: float) -> float:
    """Target tokens of a line of JoeyNMT's log, which has tokens per second."""
    rate = re.search(r"Tokens per Sec: +(\d+)", line)
    return int(rate[1]) * seconds if rate else 0.0


def tokens_of_marian(line: str, _seconds: float) -> float:
    """Target tokens of a line of Marian's log, which follow the cost of a token."""
    n_tokens = re.search(r"Cost [\d.]+ \* ([\d,]+)", line)
    return float(n_tokens[1].replace(",", "")) if n_tokens else 0.0


# --- the task ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Task:
    """The corpus, written for every contestant."""

    config: Config  # with all sizes filled in; its run directory has the tokenizer
    home: Path  # the directory of all files
    flops_per_token: float  # of a training step's matmuls per target token, without padding


@cache
def prepare(options: Options, settings: tuple[str, ...] = RECIPE) -> Task:
    """Tokenize the recipe's corpus; write token ids, text, and a run directory with the tokenizer for `nmt train`."""
    # 1. The run directory.
    home = (options.scratch / "training").absolute()
    run = RunDirectory(home / "nmt")
    config = load_config(options.config, [*settings, f"run={run.path}"])
    corpus = read_corpus(config)
    config = fit_sizes(config, corpus.size)
    shutil.rmtree(home, ignore_errors=True)
    run.create()
    tokenizers = train_tokenizers(config, corpus.train)
    run.write_tokenizers(tokenizers, config.tokenizer.joint)

    # 2. Text and token ids.
    train, _ = drop_lengths(config, corpus.train, tokenizers)
    ids: dict[str, Pairs] = {}
    for name, pairs in (("train", train), ("dev", corpus.dev)):
        sources = [pair.source for pair in pairs]
        targets = [pair.target for pair in pairs]
        write_lines(home / f"{name}.src", sources)
        write_lines(home / f"{name}.tgt", targets)
        source_ids = tokenizers.source.encode_all(sources)
        target_ids = tokenizers.target.encode_all(targets)
        ids[name] = list(zip(source_ids, target_ids, strict=True))

    # 3. What the other programs need.
    n_pieces = len(tokenizers.target)
    sizes = {**config.model.model_dump(), "vocab_size": n_pieces}
    task = {"model": sizes, "settings": config.train.model_dump(), **ids}
    (home / "task.json").write_text(json.dumps(task))
    write_lines(home / "vocabulary.txt", tokenizers.target.pieces(range(n_pieces)))
    return Task(config, home, flops_per_token(sizes, ids["train"]))


def flops_per_token(sizes: dict[str, Any], pairs: Pairs) -> float:
    """FLOPs of a training step per target token, EOS counted."""
    n_flops = 0.0
    n_tokens = 0
    for source, target in pairs:
        n_flops += training_flops(sizes, len(source) + 1, len(target) + 1)
        n_tokens += len(target) + 1
    return n_flops / n_tokens


def training_flops(sizes: dict[str, Any], n_source: int, n_target: int) -> float:
    """FLOPs of the matmuls in a pair's forward and backward pass: 6 per weight and position, without padding."""
    d = sizes["d_model"]
    square, feed_forward = d * d, 2 * d * sizes["d_ff"]  # weights
    # Weights times positions; and queries times keys, and probabilities times values.
    encoder = n_source * (4 * square + feed_forward + 2 * d * n_source)
    decoder = n_target * (6 * square + feed_forward + 2 * d * (n_target + n_source))
    decoder += n_source * 2 * square  # keys and values of the memory
    layers = sizes["n_encoder_layers"] * encoder + sizes["n_decoder_layers"] * decoder
    return float(6 * (layers + n_target * d * sizes["vocab_size"]))


# --- the machine ------------------------------------------------------------------------------------------


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


# --- the contestants --------------------------------------------------------------------------------------


def plain_trainer(task: Task, python: Path | str, model: str, precision: str) -> Trainer:
    metrics = task.home / f"{model}-{precision}.jsonl"
    command = [python, PROGRAMS / "plain_loop.py", task.home / "task.json", metrics, model, precision]
    return Trainer(command, metrics, tokens_in_json)


def joey_trainer(task: Task, python: Path) -> Trainer:
    config = task.config
    home = task.home
    settings = {"home": home}
    for section in (config.data, config.model, config.train):
        settings |= section.model_dump()
    template = Template((PROGRAMS / "joeynmt.yaml").read_text())
    (home / "joey.yaml").write_text(template.substitute(settings))
    command = [python, "-m", "joeynmt", "train", home / "joey.yaml", "--skip-test"]
    return Trainer(command, home / "joey" / "train.log", tokens_by_rate)


def marian_trainer(task: Task, python: Path, config: Config) -> Trainer:
    """Marian's command with the sizes and the rate of `config`, on all cores."""
    settings = {"home": task.home, "n_cores": len(os.sched_getaffinity(0))}
    for section in (config.data, config.model, config.train):
        settings |= section.model_dump()
    folder = task.home / "marian"
    folder.mkdir(exist_ok=True)
    # Marian knows a SentencePiece model by its suffix.
    shutil.copyfile(task.home / "nmt" / "tokenizer.model", task.home / "marian.spm")
    command = Template(MARIAN_TRAIN).substitute(settings).split()
    return Trainer([python.with_name("pymarian"), *command], folder / "train.log", tokens_of_marian)


def trainers(options: Options, task: Task) -> dict[str, Trainer]:
    """All programs; the other toolkits only if `options.peers` is a Python that has them."""
    run = RunDirectory(task.config.run)
    precision = cpu_precision()
    named = {BASELINE: plain_trainer(task, sys.executable, "torch", "fp32")}
    if precision == "bf16":
        named[PLAIN_BF16] = plain_trainer(task, sys.executable, "torch", "bf16")
    nmt = [*NMT, "train", options.config, *RECIPE, *OWN, "train.precision=auto", f"run={run.path}"]
    named[f"nmt train, {precision}"] = Trainer(nmt, run.metrics_file, tokens_in_json)
    if options.peers:
        named[HUGGING_FACE] = plain_trainer(task, options.peers, "marian", "fp32")
        named[JOEY] = joey_trainer(task, options.peers)
        named[MARIAN] = marian_trainer(task, options.peers, task.config)
    return named


# --- the measurement --------------------------------------------------------------------------------------


class Step(NamedTuple):
    time_s: float  # when it was written
    value: float


def steps(trainer: Trainer, run: Watched, until: float = math.inf) -> Iterator[Step]:
    """Yield the values of a program until it ends, or until a time."""
    before = time.monotonic()
    text = ""
    offset = 0
    while True:
        # 1. What it has written since the last time; the last line may be incomplete.
        has_ended = run.process.poll() is not None
        if trainer.progress.exists():
            with trainer.progress.open() as file:
                file.seek(offset)
                text += file.read()
                offset = file.tell()
        now = time.monotonic()
        *lines, text = text.split("\n")
        for line in lines:
            if value := trainer.value(line, now - before):
                yield Step(now, value)
                before = now

        # 2. The end, or a pause.
        if has_ended:
            run.wait()
        if has_ended or now > until:
            return
        time.sleep(0.05)


def clear(trainer: Trainer) -> None:
    """Delete metrics, model and checkpoints of an earlier training, but not the tokenizer."""
    home = trainer.progress.parent
    for file in [trainer.progress, home / "model.safetensors", *home.glob("checkpoints/*")]:
        file.unlink(missing_ok=True)


def window(trainer: Trainer, options: Options, flops_per_token: float, peak: float) -> Sample:
    """Measure a program's speed after its first steps."""
    clear(trainer)
    with started(trainer.command, options.scratch) as run:
        written = steps(trainer, run)
        for _ in range(WARM_UP_STEPS):
            start, _ = next(written)
        cpu_start_s = run.cpu_s()
        n_tokens = 0.0
        for now, n in written:
            n_tokens += n
            if now - start >= options.seconds:
                break
        per_cpu_s = n_tokens / (run.cpu_s() - cpu_start_s)
        rate = n_tokens / (now - start)
        flops = rate * flops_per_token
        speed = {"tokens_s": rate, "tokens_per_CPU_s": per_cpu_s, "gflop_s": flops / 1e9, "of_peak": flops / peak}
        return speed | run.figures()


def windows(title: str, contestants: Mapping[str, Trainer], options: Options, flops_per_token: float) -> Table:
    """Measure the speed of all programs in turn; compare them with the first, and with those of `options.peers`."""
    peaks = {"fp32": peak_flops(torch.float32)}
    if cpu_precision() == "bf16":
        peaks["bf16"] = peak_flops(torch.bfloat16)
    peak = max(peaks.values())
    measures = {}
    commands = {}
    for name, trainer in contestants.items():
        if not options.includes(name):
            continue
        commands[name] = trainer.command
        measures[name] = partial(window, trainer, options, flops_per_token, peak)
    written = " and ".join(f"{value / 1e9:,.0f} GFLOP/s in {name}" for name, value in peaks.items())
    note = (
        f"Real target tokens a second, end sign counted, in windows of {options.seconds:g} s; operations are "
        f"those of real tokens; peak of a large matrix product: {written}; memory is anonymous, of all processes."
    )
    first, *others = measures
    baselines = [first, *(name for name in others if name in (HUGGING_FACE, JOEY, MARIAN))]
    samples = interleaved(measures, options.rounds)
    return Table(title, note, commands, samples, "tokens_s", baselines)


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
        contestants[n] = Trainer(command, run.metrics_file, tokens_in_json)
    title = f"Training by number of processes, {cpu_precision()}"
    return [windows(title, contestants, options, task.flops_per_token)]
