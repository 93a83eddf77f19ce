"""One `nmt train` from the command to the end: prepare, check everything, then write and train.

The first call makes the run; the same call again goes on with it.
"""

import functools
import logging
import math
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import torch

from nmt.config import Config, values
from nmt.decode.engines.torch_engine import pick_device
from nmt.distributed import launched, n_ranks, ranks_joined, restarted
from nmt.errors import ConfigError, DataError, ModelError, OutputError
from nmt.model.base import Seq2Seq
from nmt.run.checkpoint import Checkpoint, load_weights, new_model, read_checkpoint, read_newest, shapes_of
from nmt.run.directory import RunDirectory
from nmt.seeds import seed_of
from nmt.text import PAD
from nmt.text.batches import TrainingData, useful_share
from nmt.text.tokenizer import Tokenizers
from nmt.train.loop import Trainer, uses_bf16
from nmt.train.memory import within_memory
from nmt.train.prepare import Corpus, drop_lengths, read_corpus, train_tokenizers
from nmt.train.progress import Progress, ending
from nmt.train.replicas import Replicas
from nmt.train.report import clock
from nmt.train.schedule import own_tokens
from nmt.train.sizes import chosen, fit_validation, open_sizes, with_unset
from nmt.train.step import StepOptions, make_optimizer, train_step

log = logging.getLogger("nmt")

# Positions per worker. At 384 and d_model 128, two workers are as fast as two threads of torch on free cores, and
# twice as fast on busy ones.
MIN_WORKER_TOKENS = 384
DRY_BATCHES = 1_000  # that a dry run looks at; they come in random order
# What may change when a run goes on: FREE, and with a warning TOLD. Where files lie may, what is in them may not.
FREE = (
    *("run", "decode.", "data.root", "data.train", "data.dev", "data.test", "train.max_", "train.patience"),
    *("train.metric", "train.validate_every", "train.keep", "train.n_average", "train.init_from"),
    "data.allow_bad_utf8",
)
TOLD = ("train.",)


@dataclass
class Session:
    """Everything ready to train, nothing written yet."""

    config: Config
    corpus: Corpus
    tokenizers: Tokenizers
    data: TrainingData
    model: Seq2Seq
    run: RunDirectory
    fresh: bool


class Start(NamedTuple):
    """What a training starts from.

    Attributes:
        config: of the training; model and tokenizer settings that are not set are inherited.
        checkpoint: this run's newest one, or that of train.init_from; None for new weights.
        resumes: whether it is this run's.
        notes: for the user, which sizes were inherited.
    """

    config: Config
    checkpoint: Checkpoint | None
    resumes: bool
    notes: list[str]


def prepare(config: Config, *, device: str = "auto", fresh: bool = False) -> Session:
    """Read and check all that a training needs.

    Raises:
        InputError: the config, the corpus, the tokenizer or the run that is there already do not fit.
    """
    target = pick_device(device)
    if config.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # heeded when cuBLAS is first used
        torch.use_deterministic_algorithms(True)
    fresh = fresh and not restarted()  # it was done before that
    run = RunDirectory(config.run)
    if fresh:
        run.check_movable()
    start = find_start(config, run, fresh=fresh)
    corpus = read_and_fit(start)
    tokenizers, data = encode(start, corpus, run, fresh=fresh)
    config = corpus.config
    check_memory(config, tokenizers, target)
    torch.manual_seed(seed_of(config.seed))
    model = new_model(config, tokenizers).to(target)
    check_room(run, model, config)
    if start.resumes:
        check_same_run(run, config, corpus.hashes)
        run.check_tokenizers(tokenizers)
    elif start.checkpoint is not None:
        load_weights(model, start.checkpoint.part("model"))
    return Session(config, corpus, tokenizers, data, model, run, fresh)


def find_start(config: Config, run: RunDirectory, *, fresh: bool) -> Start:
    """Find what a training goes on from, and inherit its settings.

    Raises:
        ModelError: the checkpoints of the run were deleted, or a file is damaged.
        ConfigError: inherited settings do not go together with those that are set.
    """
    newest = None if fresh else read_newest(run, prefixes=())
    if newest is not None:
        checkpoint, before, name = newest.checkpoint, run.read_config(), config.run
    elif not fresh and run.holds_training():
        others = f"{quote(f'train.init_from={config.run}')} run=OTHER starts another run from its weights; "
        raise ModelError(
            f"{run.path} holds a training but no checkpoint from which it can go on",
            hint=f"{others if run.model_file.exists() else ''}--fresh begins anew (the old run is kept)",
        )
    elif config.train.init_from:
        checkpoint, name = read_parent(config.train.init_from), config.train.init_from
        before = checkpoint.config
    else:
        return Start(config, None, False, [])
    known = before.model_dump(include={"model": True, "tokenizer": True, "data": {"nfkc_source"}})
    inherited = with_unset(config, known, what=f"the settings of {name} and those changed")
    if newest is None and changed_tokenizer(before, inherited):
        raise ConfigError(
            f"train.init_from={name} brings a tokenizer that is not the one asked for",
            hint="leave out the tokenizer section: settings that are not set come from that model",
        )
    return Start(inherited, checkpoint, newest is not None, chosen(f"as in {name}", config, inherited))


def read_and_fit(start: Start) -> Corpus:
    """The corpus, with sizes that fit it and notes on what was chosen."""
    corpus = read_corpus(start.config)
    corpus.notes += start.notes
    corpus.notes += chosen(f"chosen for {len(corpus.train):,} pairs", start.config, corpus.config)
    return corpus


def encode(start: Start, corpus: Corpus, run: RunDirectory, *, fresh: bool) -> tuple[Tokenizers, TrainingData]:
    """The tokenizers and the encoded corpus; fits what depends on the number of batches."""
    config = corpus.config
    if start.checkpoint is not None:  # with its models, but normalized as this config asks for
        models = [side.model for side in (start.checkpoint.tokenizers.source, start.checkpoint.tokenizers.target)]
        tokenizers = Tokenizers.from_models(models[0], models[1], nfkc_source=config.data.nfkc_source)
    elif not fresh and (found := run.read_tokenizers(config)) is not None:
        tokenizers = found
        corpus.notes.append(f"using the tokenizer that is in {run.path}; --fresh trains a new one")
    else:
        tokenizers, notes = train_tokenizers(corpus)
        corpus.notes += notes
    pairs, ids, dropped = drop_lengths(corpus, tokenizers)
    corpus.notes += dropped
    data = TrainingData(
        pairs,
        ids,
        tokenizers,
        batch_tokens=config.train.batch_tokens,
        together=config.train.accumulate,
        seed=config.seed,
        sampling_alpha=config.tokenizer.sampling_alpha,
        max_length=config.data.max_length,
    )
    n_steps = math.ceil(data.n_batches / config.train.accumulate)
    corpus.config = fit_validation(config, n_steps)
    corpus.notes += chosen(f"chosen for {n_steps:,} steps an epoch", config, corpus.config)
    return tokenizers, data


def resolved(config: Config, keys: set[str]) -> Iterator[tuple[str, str]]:
    """The settings that a training would use, as (dotted key, value); logs why.

    Where the corpus, or the model to start from, cannot be read, fitted values are "[fitted]".

    Args:
        keys: those that must be right; the corpus is read only if one of them is fitted to it.
    Raises:
        ConfigError: settings do not go together.
    """
    run = RunDirectory(config.run)
    notes: list[str] = []
    unknown: set[str] = set()
    try:
        start = find_start(config, run, fresh=False)
        config, notes = start.config, start.notes
        if missing := keys & open_sizes(config):
            corpus = read_and_fit(start)
            if "train.validate_every" in missing:
                encode(start, corpus, run, fresh=False)
            config, notes = corpus.config, corpus.notes
    except (DataError, ModelError) as error:
        log.warning("%s: [fitted] stands for what a training would choose", error)
        unknown = open_sizes(config)
    for note in notes:
        log.info("%s", note)
    yield from ((key, "[fitted]" if key in unknown else value) for key, value in values(config))


def read_parent(path: str) -> Checkpoint:
    """The model that fine-tuning starts from: its weights, tokenizer and sizes.

    Raises:
        ModelError: there is no such model.
    """
    file = RunDirectory(path).model_file if Path(path).is_dir() else Path(path)
    return read_checkpoint(file, prefixes=("model",))


def changed_tokenizer(parent: Config, config: Config) -> bool:
    """Whether two configs ask for different tokenizers; how training samples from one may differ."""
    before, now = (c.tokenizer.model_dump(exclude={"sampling_alpha"}) for c in (parent, config))
    return before != now


def check_memory(config: Config, tokenizers: Tokenizers, device: torch.device) -> None:
    """Make sure that the machine can hold the model, its gradient and the optimiser's moments.

    Raises:
        ConfigError: it cannot.
    """
    n_parameters = sum(map(math.prod, shapes_of(config, tokenizers).values()))
    needed = 4 * n_parameters * (5 if config.train.average == "ema" else 4)  # bytes
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:  # a system that does not say
        return
    if needed > there:
        raise ConfigError(
            f"{n_parameters / 1e6:,.0f}M parameters need {needed / 1e9:.1f} GB to train, "
            f"{device} has {there / 1e9:.1f} GB",
            hint="lower model.d_model, model.d_ff, the number of layers or tokenizer.vocab_size",
        )


def check_room(run: RunDirectory, model: Seq2Seq, config: Config) -> None:
    """Make sure that the checkpoints will fit on the disk.

    Raises:
        OutputError: they will not.
    """
    size = 4 * sum(p.numel() for p in model.parameters())  # bytes
    n_copies = 4 if config.train.average == "ema" else 3  # weights, their average, two moments
    n_files = config.train.keep + 1 + (config.train.n_average if config.train.average in ("best", "last") else 0)
    needed, free = size * (n_copies * n_files + 1), run.free_bytes()
    if free < needed:
        raise OutputError(
            f"the checkpoints need {needed / 1e9:.1f} GB, the disk of {run.path} has {free / 1e9:.1f} GB free",
            hint="lower train.keep or train.n_average, or choose another place with run=PATH",
        )


def check_same_run(run: RunDirectory, config: Config, hashes: dict[str, str]) -> None:
    """Make sure that a run that goes on is still the same: data, architecture and seed.

    Another course of training (rates, batches, loss) is told.

    Raises:
        ConfigError: settings changed; the message has a line for each, old → new.
        DataError: files changed.
    """
    before, now = run.read_config().model_dump(), config.model_dump()
    changes = {
        key: f"{key} was {old!r}, is {new!r}"
        for section in before
        for key, old, new in changed(before[section], now[section], section)
        if not key.startswith(FREE)
    }
    if refused := [words for key, words in changes.items() if not key.startswith(TOLD)]:
        raise ConfigError(
            f"{run.path} was begun with other settings: {'; '.join(refused)}",
            hint="set them back, choose another run=PATH, or begin anew with --fresh (the old run is kept)",
        )
    if changes:
        log.warning("%s goes on otherwise than it was begun: %s", run.path, "; ".join(changes.values()))
    known = run.read_manifest().get("data", hashes)  # a damaged manifest may have been deleted
    if ("dev.source" in known) != ("dev.source" in hashes):
        raise DataError(
            f"{run.path} was begun {'with' if 'dev.source' in known else 'without'} data.dev",
            hint="without data.dev, pairs of train are held out: set it back, choose another run=PATH, or begin "
            "anew with --fresh (the old run is kept)",
        )
    if other := [name for name in hashes if not name.startswith("test.") and known.get(name) != hashes[name]]:
        raise DataError(
            f"the files of {', '.join(other)} are not those that {run.path} was begun with",
            hint="bring the old files back, choose another run=PATH, or begin anew with --fresh",
        )


def changed(before: Any, now: Any, name: str) -> list[tuple[str, Any, Any]]:
    """Every setting below `name` that differs, as (dotted key, old, new)."""
    if isinstance(before, dict) and isinstance(now, dict):
        return [found for key in {**before, **now} for found in changed(before.get(key), now.get(key), f"{name}.{key}")]
    return [] if before == now else [(name, before, now)]


def train(session: Session, *, quiet: bool = False, n_workers: int | None = 1) -> Progress:
    """Write the run's files and train to the end of its budget, alone or as the first rank of several.

    Args:
        session: prepared.
        quiet: no progress on stderr.
        n_workers: threads that share each step, and the CPU; None is as many as pay.
    Raises:
        OutputError, StoppedError, DivergedError: see `Trainer.train`.
        LostRankError: another rank has gone.
    """
    run, config = session.run, session.config
    if session.fresh and (aside := run.move_aside()):
        log.info("the old run is kept in %s", aside)
    for note in session.corpus.notes:
        log.info("%s", note)
    with run.lock():
        trainer = make_trainer(session, quiet=quiet)
        resumed = trainer.resume()
        by_clock = config.train.max_minutes is not None
        if by_clock:
            log.info("train.max_minutes goes by the clock: the run can be stopped and goes on, but no two are alike")
        run.write_config(config)
        if not resumed:
            run.write_tokenizers(session.tokenizers, config.tokenizer.joint)
            run.write_manifest(session.corpus.hashes, config.seed, reproducible=not by_clock)
        elif by_clock and run.read_manifest().get("reproducible"):
            run.mark_irreproducible()
        finished = trainer.finished()
        if finished or launched().n_ranks > 1:
            n_workers = 1
        elif n_workers is not None:
            check_workers(n_workers, session.model.device)
        else:
            n_workers = fitting_workers(session, trainer.progress.n_ranks if resumed else None)
        with ranks_joined():
            if finished:
                log.info(
                    "%s is finished: %d steps in %s, %s",
                    run.path,
                    trainer.progress.step,
                    clock(trainer.progress.elapsed_s),
                    ending(config.train, trainer.progress, session.data.n_batches),
                )
                return trainer.progress
            if resumed:
                log.info("going on from step %d of %s", trainer.progress.step, run.path)
            log.info(
                "%s: %d pairs, %d steps an epoch, %.2fM parameters, %s on %s with %d workers of %d threads",
                run.path,
                len(session.data.pairs),
                math.ceil(session.data.n_batches / config.train.accumulate),
                sum(p.numel() for p in session.model.parameters()) / 1e6,
                "bf16" if trainer.progress.bf16 else "fp32",
                session.model.device,
                n_ranks() * n_workers,
                torch.get_num_threads() // n_workers,
            )
            progress = trainer.train(n_workers)
    log.info("%s", ending(config.train, progress, session.data.n_batches))
    log.info(
        "done: %d steps in %s, best dev %s %.2f at step %d; the model is %s",
        progress.step,
        clock(progress.elapsed_s),
        config.train.metric.upper(),
        abs(progress.best or 0.0),
        progress.best_step,
        run.model_file,
    )
    return progress


def train_along(config: Config, *, device: str = "auto") -> None:
    """Train as another rank than the first: take up the run when that one has prepared and written it."""
    with ranks_joined():  # from then on the tokenizer and the corpus are there
        log.setLevel(logging.ERROR)  # the first rank speaks for all
        trainer = make_trainer(prepare(config, device=device), quiet=True)
        trainer.resume()
        if not trainer.finished():
            trainer.train()


def make_trainer(session: Session, *, quiet: bool) -> Trainer:
    """The trainer of what is prepared."""
    return Trainer(
        session.config,
        session.data,
        session.corpus.dev,
        session.tokenizers,
        session.model,
        session.run,
        quiet=quiet,
    )


def fitting_workers(session: Session, begun_with: int | None) -> int:
    """As many threads as train fastest on this machine: on a CPU one a core, if each has enough to do.

    A run goes on with as many as it began with, for each draws its own dropout.
    """
    train = session.config.train
    if session.model.device.type != "cpu":
        return 1
    n_workers = begun_with or train.batch_tokens * train.accumulate // MIN_WORKER_TOKENS
    n_parameters = sum(p.numel() for p in session.model.parameters())
    free = free_memory() - 12 * n_parameters  # bytes; moments and a gradient are there but once
    needed = 4 * n_parameters + 12 * train.batch_tokens * len(session.tokenizers.target)  # three times the logits
    return max(1, min(n_workers, torch.get_num_threads(), 1 + free // needed))


def check_workers(n_workers: int, device: torch.device) -> None:
    """Make sure that so many threads can share a step.

    Raises:
        ConfigError: they cannot.
    """
    if n_workers > 1 and device.type != "cpu":
        raise ConfigError("--workers share a CPU", hint="for several GPUs: torchrun -m nmt train …")
    if n_workers > torch.get_num_threads():
        raise ConfigError(
            f"--workers {n_workers} on {torch.get_num_threads()} threads", hint="fewer, or more --threads"
        )


def free_memory() -> int:
    """Bytes that may still be taken; where the system does not say, more than they could."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 2**60
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))


def dry_run(session: Session) -> list[str]:
    """What a training would be like, after real steps on the largest batch; the run is not touched.

    Returns:
        lines for the user: parameters by block, batches, steps, memory, time.
    """
    config, model, data = session.config, session.model, session.data
    lines = [f"parameters  {sum(p.numel() for p in model.parameters()):,}"]
    seen: set[int] = set()
    for name, block in model.named_children():
        own = [p for p in block.parameters() if id(p) not in seen]
        seen |= {id(p) for p in own}
        lines.append(f"  {name:<18} {sum(p.numel() for p in own):>12,}")
    batches = list(islice(data.batches(0), DRY_BATCHES))
    steps = math.ceil(data.n_batches / config.train.accumulate)
    lines.append(
        f"batches     {data.n_batches} an epoch, {useful_share(batches):.1%} of their positions useful, "
        f"{steps} steps an epoch"
    )
    largest = max(batches, key=lambda batch: batch.n_positions)
    device = next(model.parameters()).device
    bf16 = uses_bf16(config.train, device)
    optimizer = make_optimizer(model, config.train)
    seconds, max_positions = math.inf, 0
    replicas = Replicas(model.train(), fitting_workers(session, None))
    for attempt in range(2):  # the first step also allocates
        start = time.perf_counter()
        options = StepOptions(config.train, lr=1e-6, seed=attempt, bf16=bf16, own_tokens=own_tokens(config.train, 1.0))
        step = functools.partial(train_step, replicas, optimizer, options=options)
        _, max_positions = within_memory(step, [largest] * config.train.accumulate, max_positions)
        seconds = min(seconds, (time.perf_counter() - start) / config.train.accumulate)
    replicas.close()
    mean = sum(batch.n_positions for batch in batches) / len(batches)
    epoch_s = seconds * data.n_batches * mean / largest.n_positions
    rate = int((largest.tgt_out != PAD).sum()) / seconds
    lines.append(
        f"speed       {rate:,.0f} target tokens a second, {'bf16' if bf16 else 'fp32'} on {device}, "
        f"{len(replicas)} workers"
    )
    if memory := peak_memory(device):
        lines.append(f"memory      {memory / 1e9:.2f} GB")
    limits = [epoch_s * config.train.max_epochs] if config.train.max_epochs else []
    limits += [epoch_s * config.train.max_steps / steps] if config.train.max_steps else []
    limits += [config.train.max_minutes * 60] if config.train.max_minutes else []
    total = f", {clock(min(limits))} in all without validations" if limits else ""
    lines.append(f"time        {clock(epoch_s)} an epoch{total}")
    return lines


def peak_memory(device: torch.device) -> int:
    """The most memory taken so far, bytes: the GPU's, else the process'; 0 where the system does not say."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        import resource
    except ImportError:  # not a Unix
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
