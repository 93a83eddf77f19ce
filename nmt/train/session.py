"""One `nmt train`, from the config to the end: prepare and check everything, then write files and train.

The first call starts the run; the same call again resumes it.
"""

import logging
import math
import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import torch

from nmt.config import Config, values
from nmt.decode.engines.torch_engine import pick_device
from nmt.distributed import launched, n_ranks, ranks_joined, restarted
from nmt.errors import ConfigError, DataError, ModelError
from nmt.run.checkpoint import Checkpoint, load_weights, new_model, read_checkpoint, read_newest
from nmt.run.directory import RunDirectory, new_manifest
from nmt.seeds import seed_of
from nmt.text.batches import TrainingData
from nmt.text.tokenizer import Tokenizers
from nmt.train.checks import check_disk, check_memory, check_same_run, check_threads
from nmt.train.loop import Session, Trainer
from nmt.train.preparation import Corpus, drop_lengths, read_corpus, train_tokenizers
from nmt.train.presets import chosen, fit_validation, open_sizes, with_unset
from nmt.train.progress import Progress, ending
from nmt.train.replicas import n_fitting_threads
from nmt.train.report import clock

log = logging.getLogger("nmt")


class Start(NamedTuple):
    """What a training starts from.

    Attributes:
        config: with model and tokenizer settings inherited if they are not set.
        checkpoint: the run's newest one, or the model of train.init_from; None for initial weights.
        resumes: whether the checkpoint is the run's own.
        notes: messages on what was inherited.
    """

    config: Config
    checkpoint: Checkpoint | None
    resumes: bool
    notes: list[str]


def prepare(config: Config, *, device: str = "auto", fresh: bool = False) -> Session:
    """Read and check everything that a training needs.

    Raises:
        InputError: the config, the corpus, the tokenizer or the existing run do not fit.
    """
    torch_device = pick_device(device)
    if config.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
        torch.use_deterministic_algorithms(True)
    fresh = fresh and not restarted()  # torchrun's first attempt has moved the old run
    run = RunDirectory(config.run)
    if fresh:
        run.check_movable()
    start = find_start(config, run, fresh=fresh)
    corpus = read_and_fit(start)
    tokenizers, data = encode(start, corpus, run, fresh=fresh)
    config = corpus.config
    check_memory(config, tokenizers, torch_device)
    torch.manual_seed(seed_of(config.seed))
    model = new_model(config, tokenizers).to(torch_device)
    check_disk(run, model, config)
    if start.resumes:
        check_same_run(run, config, corpus.hashes)
        run.check_tokenizers(tokenizers)
    elif start.checkpoint is not None:
        load_weights(model, start.checkpoint.part("model"))
    return Session(config, corpus, tokenizers, data, model, run, fresh)


def find_start(config: Config, run: RunDirectory, *, fresh: bool) -> Start:
    """Find the checkpoint that a training starts from, and inherit its settings.

    Raises:
        ModelError: the run's checkpoints were deleted, or a file is damaged.
        ConfigError: inherited settings and the config's own do not fit together.
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
    if newest is None and tokenizer_settings(before) != tokenizer_settings(inherited):
        raise ConfigError(
            f"train.init_from={name} brings a tokenizer that is not the one asked for",
            hint="leave out the tokenizer section: settings that are not set come from that model",
        )
    return Start(inherited, checkpoint, newest is not None, chosen(f"as in {name}", config, inherited))


def read_parent(path: str) -> Checkpoint:
    """The model that fine-tuning starts from, a run directory or a model file.

    Raises:
        ModelError: there is no such model.
    """
    file = RunDirectory(path).model_file if Path(path).is_dir() else Path(path)
    return read_checkpoint(file, prefixes=("model",))


def tokenizer_settings(config: Config) -> dict[str, object]:
    """The settings that define a tokenizer, without those of sampling from it."""
    return config.tokenizer.model_dump(exclude={"sampling_alpha"})


def read_and_fit(start: Start) -> Corpus:
    """The corpus, with the sizes that fit it and notes on what was chosen."""
    corpus = read_corpus(start.config)
    corpus.notes += start.notes
    corpus.notes += chosen(f"chosen for {len(corpus.train):,} pairs", start.config, corpus.config)
    return corpus


def encode(start: Start, corpus: Corpus, run: RunDirectory, *, fresh: bool) -> tuple[Tokenizers, TrainingData]:
    """The tokenizers and the encoded corpus; sets the settings that depend on the number of batches."""
    config = corpus.config
    if start.checkpoint is not None:  # its pieces, normalized as this config says
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
        accumulate=config.train.accumulate,
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

    If the corpus, or the model to start from, cannot be read, fitted values are "[fitted]".

    Args:
        keys: those that must be right; the corpus is read only if one of them is fitted to it.
    Raises:
        ConfigError: settings do not fit together.
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


def train(session: Session, *, quiet: bool = False, n_workers: int | None = 1) -> Progress:
    """Write the run's files and train to the end of its budget, as the first rank or the only one.

    Args:
        session: prepared.
        quiet: no progress on stderr.
        n_workers: threads that share each step on a CPU; None for as many as are fastest.
    Raises:
        OutputError, StoppedError, DivergedError: see `Trainer.train`.
        LostRankError: another rank ended.
    """
    run, config = session.run, session.config
    if session.fresh and (aside := run.move_aside()):
        log.info("the old run is kept in %s", aside)
    for note in session.corpus.notes:
        log.info("%s", note)
    with run.lock():
        trainer = Trainer(session, quiet=quiet)
        resumed = trainer.resume()
        write_settings(session, resumed=resumed)
        if trainer.finished() or launched().n_ranks > 1:
            n_workers = 1
        elif n_workers is None:
            n_before = trainer.progress.n_ranks if resumed else None
            n_workers = n_fitting_threads(session.model, len(session.tokenizers.target), config.train, n_before)
        else:
            check_threads(n_workers, session.model.device)
        with ranks_joined():
            if trainer.finished():
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
            log_training(session, trainer.progress, n_workers)
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


def write_settings(session: Session, *, resumed: bool) -> None:
    """Write config.yaml, and for a new run the tokenizer and the manifest."""
    run, config = session.run, session.config
    by_clock = config.train.max_minutes is not None
    if by_clock:
        log.info("train.max_minutes goes by the clock: the run can be stopped and goes on, but no two are alike")
    run.write_config(config)
    if not resumed:
        run.write_tokenizers(session.tokenizers, config.tokenizer.joint)
        run.write_manifest(new_manifest(session.corpus.hashes, config.seed, reproducible=not by_clock))
    elif by_clock and (manifest := run.read_manifest()).get("reproducible"):
        run.write_manifest({**manifest, "reproducible": False})


def log_training(session: Session, progress: Progress, n_workers: int) -> None:
    """Say what is trained, and on what."""
    log.info(
        "%s: %d pairs, %d steps an epoch, %.2fM parameters, %s on %s with %d workers of %d threads",
        session.run.path,
        len(session.data.pairs),
        math.ceil(session.data.n_batches / session.config.train.accumulate),
        sum(p.numel() for p in session.model.parameters()) / 1e6,
        "bf16" if progress.bf16 else "fp32",
        session.model.device,
        n_ranks() * n_workers,
        torch.get_num_threads() // n_workers,
    )


def train_along(config: Config, *, device: str = "auto") -> None:
    """Train as another rank than the first, which has prepared and written the run."""
    with ranks_joined():  # waits for the first rank's tokenizer and corpus
        log.setLevel(logging.ERROR)  # only the first rank reports
        trainer = Trainer(prepare(config, device=device), quiet=True)
        trainer.resume()
        if not trainer.finished():
            trainer.train()
