"""One `nmt train`, from the config to the end: prepare and check everything, then write files and train.

The first call starts the run; the same call again resumes it.
"""

import logging
import math
import os
import re
from pathlib import Path
from shlex import quote
from typing import Any

import torch

from nmt.config import FITTED, Config, values
from nmt.config.listing import INHERITED_DATA
from nmt.decode.engines.torch_engine import pick_device
from nmt.distributed import launched, n_ranks, ranks_joined, restarted
from nmt.errors import ConfigError, DataError, ModelError
from nmt.run.checkpoint import Checkpoint, first_layers, load_weights, new_model, read_checkpoint, read_newest
from nmt.run.directory import RunDirectory, new_manifest
from nmt.seeds import seed_of
from nmt.text.batches import TrainingData
from nmt.text.corpus import RaggedArray
from nmt.text.tokenizer import Tokenizers
from nmt.train.corpora import training_corpora
from nmt.train.loop import Session, Trainer
from nmt.train.memory import check_memory, n_fitting_replicas
from nmt.train.preparation import Corpus, drop_lengths, read_corpus, spans, train_tokenizers
from nmt.train.presets import fit_limit, fit_validation, with_unset
from nmt.train.progress import OR_ANEW, Progress, ending
from nmt.train.report import clock

log = logging.getLogger("nmt")

# Settings that may change on resume, besides most of `train`. Paths may change, contents may not: hashes are compared.
MAY_CHANGE = ("run", "decode.", "data.root", "data.train", "data.dev", "data.test", "data.allow_bad_utf8")
MIXED_PATHS = re.compile(r"data\.mix\..*\.(source|target|root)")  # may change, too
ORDER = re.compile(r"data\.train\.\d+\.languages")  # may not: the order of the data depends on that of the corpora
TOKENIZER_DATA = {"nfkc_source", "target_tag"}  # keys of `data` that configure the tokenizers


def prepare(config: Config, *, device: str = "auto", fresh: bool = False) -> Session:
    """Read and check everything that a training run needs. Raises InputError or OutputError if something is wrong."""
    torch_device = pick_device(device)
    if config.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when cuBLAS is first used
        torch.use_deterministic_algorithms(True)
    fresh = fresh and not restarted()  # after a restart by torchrun, the first attempt has already moved the old run
    run = RunDirectory(config.run)
    if fresh:
        run.check_movable()
    config, checkpoint, resumes = find_start(config, run, fresh=fresh)
    corpus = read_corpus(config)
    log_chosen(f"chosen for {len(corpus.train):,} pairs", config, corpus.config)
    tokenizers, data = encode(corpus, checkpoint, run, fresh=fresh)
    config = corpus.config
    check_memory(config, tokenizers, torch_device)
    torch.manual_seed(seed_of(config.seed))
    model = new_model(config, tokenizers).to(torch_device)
    model.freeze(config.train.freeze)
    if resumes:
        check_same_run(run, config, corpus.hashes)
    elif checkpoint is not None:
        load_weights(model, first_layers(checkpoint.part("model"), config.model))
    return Session(config, corpus, tokenizers, data, model, run, fresh)


def find_start(config: Config, run: RunDirectory, *, fresh: bool) -> tuple[Config, Checkpoint | None, bool]:
    """Find the run's newest checkpoint, else the model of train.init_from; settings that are not set are taken from it.

    Returns config and checkpoint, and whether the run resumes.
    """
    # Before `read_newest`: if another training writes the first checkpoint in between, the run's lock reports it.
    was_trained = not fresh and run.holds_training()
    newest = None if fresh else read_newest(run, prefixes=())
    if newest is not None:
        checkpoint, before, name = newest.checkpoint, run.read_config(), config.run
    elif was_trained:
        others = f"{quote(f'train.init_from={config.run}')} run=OTHER starts another run from its weights; "
        hint = f"{others if run.model_file.exists() else ''}--fresh begins anew (the old run is kept)"
        raise ModelError(f"{run.path} holds a training but no checkpoint from which it can go on", hint=hint)
    elif name := config.train.init_from:
        file = RunDirectory(name).model_file if Path(name).is_dir() else Path(name)
        checkpoint = read_checkpoint(file, prefixes=("model",))
        before = checkpoint.config
    else:
        return config, None, False
    from_before: dict[str, Any] = {"model": True, "tokenizer": True, "data": INHERITED_DATA}
    if newest is not None:  # else the limit is fitted to the new corpus
        from_before["decode"] = {"max_length_a", "max_length_b"}
    known = before.model_dump(include=from_before)
    inherited = with_unset(config, known, what=f"the settings of {name} and those changed")
    own, asked = (one.tokenizer.model_dump() for one in (before, inherited))
    changes = [f"tokenizer.{key} is {own[key]}, not {asked[key]}" for key in own if own[key] != asked[key]]
    if changes and newest is None:
        message = f"train.init_from={name} brings a tokenizer that is not the one asked for: {', '.join(changes)}"
        hint = "leave out the tokenizer section: settings that are not set come from that model"
        raise ConfigError(message, hint=hint)
    log_chosen(f"as in {name}", config, inherited)
    return inherited, checkpoint, newest is not None


def log_chosen(why: str, before: Config, after: Config) -> None:
    """Log the fitted settings that are set in `after` but not in `before`, as command-line arguments."""
    was_set = dict(values(before, only_set=True))
    new = [f"{key}={value}" for key, value in values(after, only_set=True) if key in FITTED and key not in was_set]
    if new:
        log.info("%s: %s", why, " ".join(new))


def encode(
    corpus: Corpus, checkpoint: Checkpoint | None, run: RunDirectory, *, fresh: bool
) -> tuple[Tokenizers, TrainingData]:
    """Return the tokenizers and the training data; fit settings of `corpus.config` to these data."""
    config = corpus.config
    if checkpoint is not None:  # the checkpoint's pieces, with the normalization of this config
        models = [side.model for side in checkpoint.tokenizers]
        tokenizers = Tokenizers.from_models(*models, **config.data.model_dump(include=TOKENIZER_DATA))
    elif not fresh and (found := run.read_tokenizers(config)) is not None:
        tokenizers = found
        log.info("using the tokenizer that is in %s; --fresh trains a new one", run.path)
    else:
        tokenizers = train_tokenizers(corpus)
    pairs, ids = drop_lengths(corpus, tokenizers)
    tokenizers = with_learned(tokenizers, checkpoint, ids[0])
    data = TrainingData(
        pairs,
        ids,
        batch_tokens=config.train.batch_tokens,
        accumulate=config.train.accumulate,
        seed=config.seed,
        mixture=corpus.mixture(pairs),
    )
    n_steps = math.ceil(data.n_batches / config.train.accumulate)
    source, target = ids
    base = checkpoint.config if checkpoint else None
    corpus.config = fit_limit(config, source.lengths, target.lengths, spans(pairs, corpus.n_lines), base)
    log_chosen("chosen for the lengths of the pairs", config, corpus.config)
    config = corpus.config
    corpus.config = fit_validation(config, n_steps)
    log_chosen(f"chosen for {n_steps:,} steps an epoch", config, corpus.config)
    return tokenizers, data


def with_learned(tokenizers: Tokenizers, checkpoint: Checkpoint | None, source: RaggedArray) -> Tokenizers:
    """Return the tokenizers, which know the characters that training teaches in bytes on the source side.

    These are those of the token ids `source`, and those of the model from which training starts.
    """
    learned = {*tokenizers.source.learned_in_bytes(source.values)}
    if checkpoint is not None:
        learned.update(checkpoint.tokenizers.source.learned or "")
    return tokenizers.with_learned("".join(sorted(learned)))


def check_same_run(run: RunDirectory, config: Config, hashes: dict[str, str]) -> None:
    """Check that a resumed run has the same data, architecture and seed; `train` settings that differ are logged."""
    before, now = dict(values(run.read_config())), dict(values(config))
    changes = {
        key: f"{key} was {before.get(key, '-')}, is {now.get(key, '-')}"
        for key in {**before, **now}
        if before.get(key) != now.get(key)
        and (ORDER.fullmatch(key) or not (key.startswith(MAY_CHANGE) or MIXED_PATHS.fullmatch(key)))
    }
    fixed = ("train.freeze", "train.metric")
    if refused := [text for key, text in changes.items() if not key.startswith("train.") or key in fixed]:
        message = f"{run.path} was begun with other settings: {'; '.join(refused)}"
        raise ConfigError(message, hint=f"set them back, choose another run=PATH, or {OR_ANEW}")
    if changes:
        log.info("%s resumes with changed settings: %s", run.path, "; ".join(changes.values()))
    known = run.read_manifest().get("data", hashes)  # the user may have deleted a damaged manifest
    names = {name: None for name in (*hashes, *known) if not name.startswith("test.")}
    if other := [name for name in names if known.get(name) != hashes.get(name)]:
        message = f"the files of {', '.join(other)} are not those that {run.path} was begun with"
        raise DataError(message, hint=f"bring the old files back, choose another run=PATH, or {OR_ANEW}")


def train(session: Session, *, quiet: bool = False, n_replicas: int | None = 1) -> Progress:
    """Write the run's files and train to the end of its budget, as rank 0.

    On a CPU, `n_replicas` processes share each step; None chooses the number that is fastest. Raises the errors of
    `Trainer.train`, and LostRankError if another rank ended.
    """
    run, settings, n_batches = session.run, session.config.train, session.data.n_batches
    if session.fresh and (aside := run.move_aside()):
        log.info("the old run is kept in %s", aside)
    with run.lock():
        session.on_start()
        trainer = Trainer(session, quiet=quiet)
        resumed = trainer.checkpointer.resume()
        progress = trainer.progress
        run.write_config(session.config)
        if not resumed:
            run.write_tokenizers(session.tokenizers, session.config.tokenizer.joint)
            n_pairs = {"train": len(session.data.pairs), "dev": len(session.corpus.dev)}
            reproducible = settings.max_minutes is None  # else the learning rate depends on the clock
            manifest = new_manifest(session.corpus.hashes, n_pairs, session.config.seed, reproducible=reproducible)
            run.write_manifest(manifest)
        if launched().n_ranks > 1:
            n_replicas = 1
        elif n_replicas is None:
            n_before = progress.n_ranks if resumed else None
            n_replicas = n_fitting_replicas(session.model, len(session.tokenizers.target), settings, n_before)
        with ranks_joined():
            if trainer.finished():
                finished = f"{run.path} is finished: {progress.step} steps in {clock(progress.elapsed_s)}"
                log.info("%s, %s", finished, ending(settings, progress, n_batches))
                return progress
            if resumed:
                log.info("going on from step %d of %s", progress.step, run.path)
            log_training(session, progress, n_replicas)
            progress = trainer.train(n_replicas)
    log.info("%s", ending(settings, progress, n_batches))
    best = f"best dev {settings.metric.upper()} {abs(progress.best or 0.0):.2f} at step {progress.best_step}"
    done = f"done: {progress.step} steps in {clock(progress.elapsed_s)}"
    log.info("%s, %s; the model is %s", done, best, run.model_file)
    return progress


def check_replicas(n: int, device: torch.device) -> None:
    """Raise ConfigError if `--replicas` processes cannot share a step."""
    if n > 1 and (device.type != "cpu" or launched().n_ranks > 1):
        raise ConfigError("--replicas share a CPU", hint="for several GPUs: torchrun -m nmt train …")
    if n > (n_threads := torch.get_num_threads()):
        raise ConfigError(f"--replicas {n} on {n_threads} threads", hint=f"fewer, or --threads {n}")


def log_training(session: Session, progress: Progress, n_replicas: int) -> None:
    """Log the sizes of corpus and model, the device, and the number of replicas."""
    data, model = session.data, session.model
    n_steps = math.ceil(data.n_batches / session.config.train.accumulate)
    if data.mixture is not None:
        counts = zip(training_corpora(session.config), data.mixture.n_drawn, data.mixture.sizes, strict=True)
        log.info("an epoch has %s", ", ".join(f"{n:,} of {size:,} pairs of {name}" for name, n, size in counts))
    frozen = f", {model.n_trainable / 1e6:.2f}M of them trained" if session.config.train.freeze else ""
    log.info(
        f"{session.run.path}: {data.n_epoch_pairs} pairs, {n_steps} steps an epoch, "
        f"{model.n_parameters / 1e6:.2f}M parameters{frozen}, {'bf16' if progress.bf16 else 'fp32'} on {model.device}, "
        f"replicas: {n_ranks() * n_replicas}, threads of each: {torch.get_num_threads() // n_replicas}"
    )


def train_along(config: Config, *, device: str = "auto") -> None:
    """Train as a rank other than 0, after rank 0 has prepared the run and written its files."""
    with ranks_joined():  # waits for the first rank's tokenizer and corpus
        log.setLevel(logging.ERROR)  # only the first rank reports
        trainer = Trainer(prepare(config, device=device), quiet=True)
        trainer.checkpointer.resume()
        if not trainer.finished():
            trainer.train()
