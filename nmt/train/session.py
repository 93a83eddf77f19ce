"""The steps of `nmt train`: preparing and checking everything, then writing files and training.

The same command starts and resumes a run.
"""

import logging
import math
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch

from nmt.config import FITTED, Config, values
from nmt.config.listing import INHERITED_DATA
from nmt.decode.engines.torch_engine import pick_device
from nmt.distributed import launched, n_ranks, ranks_joined, restarted
from nmt.errors import ConfigError, DataError, ModelError
from nmt.evaluate import warn_if_tokenized
from nmt.run.checkpoint import Checkpoint, first_layers, load_weights, new_model, read_checkpoint, read_newest
from nmt.run.directory import RunDirectory, model_file, new_manifest
from nmt.seeds import seed_of
from nmt.text.batches import TrainingData
from nmt.text.corpus_files import RaggedArray
from nmt.text.tokenizer import Tokenizers
from nmt.train.corpora import mixture_of
from nmt.train.encoding import drop_lengths, train_tokenizers
from nmt.train.loop import Session, Trainer
from nmt.train.memory import check_memory, n_fitting_replicas
from nmt.train.plan import fit_sizes, fit_validation, with_unset
from nmt.train.plan_decoding import fit_limit, fit_sentences
from nmt.train.preparation import TrainingText, read_corpus, sample
from nmt.train.progress import OR_ANEW, Progress, ending
from nmt.train.replicas import n_threads_each
from nmt.train.report import clock

log = logging.getLogger("nmt")

SAMPLED_LINES = 10_000  # number of training lines that `fit_sentences` reads
# Settings that may change when a run is resumed. Corpora may move, but `check_same_run` compares their contents. The
# languages of data.train must not change, because the order of the training pairs depends on them.
MAY_CHANGE = re.compile(
    r"run|decode\..*|train\.(?!freeze|init_from|metric|optimizer).*"
    r"|data\.(root|allow_bad_utf8|(dev|test).*|(train|mix)\..*(source|target|root))"
)


def prepare(config: Config, *, device: str = "auto", fresh: bool = False) -> Session:
    """Read and check everything that a training run needs. Raises InputError or OutputError if something is wrong."""
    torch_device = pick_device(device)
    if config.train.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS reads this variable at its first call
        torch.use_deterministic_algorithms(True)
    # If torchrun has restarted the ranks, the first attempt has begun the new run. Resume this run.
    fresh = fresh and not restarted()
    run = RunDirectory(config.run)

    # 1. Take unset settings from the model that training starts from.
    start = find_start(config, run, fresh=fresh)
    if start:
        config = inherit(config, start)

    # 2. Choose unset settings to suit the corpus.
    given, corpus = config, read_corpus(config)
    config = fit_sizes(config, corpus.size)

    # 3. Choose unset settings to suit the lengths of the encoded pairs.
    tokenizers = find_tokenizers(config, corpus, start)
    encoded = drop_lengths(config, corpus.train, tokenizers)
    config = fit_limit(config, encoded.lengths(), start.checkpoint.config if start else None)
    config = fit_sentences(config, [pair.source for pair in sample(encoded.pairs, SAMPLED_LINES)])
    mixture = mixture_of(config, encoded.pairs)
    data = TrainingData(
        *encoded,
        batch_tokens=config.train.batch_tokens,
        seed=config.seed,
        mixture=mixture,
        concatenate=config.data.concatenate,
    )
    config = fit_validation(config, math.ceil(data.n_batches / config.train.accumulate))
    log_chosen(f"chosen for {len(corpus.train):,} pairs", given, config)

    # 4. Make the model, and load the weights that training starts from.
    tokenizers = with_learned(tokenizers, start, encoded.ids[0])
    check_memory(config, tokenizers, torch_device)
    torch.manual_seed(seed_of(config.seed))
    model = new_model(config, tokenizers).to(torch_device)
    model.freeze(config.train.freeze)
    changes: list[str] = []
    if start and start.resumes:
        changes = check_same_run(run, config, corpus.hashes)
    elif start:
        load_weights(model, first_layers(start.checkpoint.part("model"), config.model))
    return Session(config, corpus, tokenizers, data, model, run, fresh, changes)


class Start(NamedTuple):
    """A checkpoint or a model file from which training starts."""

    name: str  # path of the run or of the model file
    checkpoint: Checkpoint
    config: Config
    resumes: bool  # True for the newest checkpoint of the run itself, False for the model of train.init_from


def find_start(config: Config, run: RunDirectory, *, fresh: bool) -> Start | None:
    """Return the newest checkpoint of the run or, without a checkpoint, the model of train.init_from.

    Returns None if there is neither. With `fresh`, the run is ignored. Raises ModelError if the run holds a training
    but no checkpoint.
    """
    if not fresh:
        # Call `holds_training` before `read_newest`. In between, another process may write the first checkpoint.
        # In the reverse order, this checkpoint would be reported as missing.
        was_trained = run.holds_training()
        newest = read_newest(run, prefixes=())
        if newest is not None:
            return Start(config.run, newest.checkpoint, run.read_config(), resumes=True)
        if was_trained:
            raise ModelError(
                f"{run.path} holds a training but no checkpoint from which it can go on",
                hint="train.init_from=RUN run=OTHER starts another run from its weights; --fresh begins anew",
            )
    # The run holds no training.
    name = config.train.init_from
    if not name:
        return None
    checkpoint = read_checkpoint(model_file(Path(name)), prefixes=("model",))
    return Start(name, checkpoint, checkpoint.config, resumes=False)


def inherit(config: Config, start: Start) -> Config:
    """Return the config. The model that training starts from provides unset settings."""
    parts: dict[str, Any] = {"model": True, "tokenizer": True, "data": INHERITED_DATA}
    if start.resumes:  # otherwise, these settings are fitted to the new corpus
        parts["decode"] = {"max_length_a", "max_length_b", "whole_lines", "abbreviations"}
    inherited = with_unset(
        config, start.config.model_dump(include=parts), what=f"the settings of {start.name} and those changed"
    )

    # The tokenizer settings must be those of the base model. `check_same_run` checks a resumed run.
    if inherited.tokenizer != start.config.tokenizer and not start.resumes:
        raise ConfigError(
            f"train.init_from={start.name} brings a tokenizer that is not the one asked for",
            hint="leave out the tokenizer section: settings that are not set come from that model",
        )
    log_chosen(f"as in {start.name}", config, inherited)
    return inherited


def log_chosen(why: str, before: Config, after: Config) -> None:
    """Log the fitted settings that are set in `after` only, as command-line arguments."""
    fitted = FITTED - dict(values(before, only_set=True)).keys()
    new = [f"{key}={value}" for key, value in values(after, only_set=True) if key in fitted]
    if new:
        log.info("%s: %s", why, " ".join(new))


def find_tokenizers(config: Config, corpus: TrainingText, start: Start | None) -> Tokenizers:
    """Return the tokenizers of the model that training starts from. Without such a model, train new ones."""
    if start is None:
        return train_tokenizers(config, corpus.train)
    # Use the pieces of the checkpoint, but the normalization and the tag of this config.
    source, target = start.checkpoint.tokenizers
    return Tokenizers.from_models(
        source.model, target.model, nfkc_source=config.data.nfkc_source, target_tag=config.data.target_tag
    )


def with_learned(tokenizers: Tokenizers, start: Start | None, source: RaggedArray) -> Tokenizers:
    """Return tokenizers that know which source characters the model learns as byte pieces.

    These characters occur in the training pairs, but are in no piece of the vocabulary. Characters that the starting
    model has learned are added. `source` has the source token ids of the training pairs.
    """
    learned = set(tokenizers.source.learned_in_bytes(source.values))
    if start:
        learned.update(start.checkpoint.tokenizers.source.learned or "")
    return tokenizers.with_learned("".join(sorted(learned)))


def check_same_run(run: RunDirectory, config: Config, hashes: dict[str, str]) -> list[str]:
    """Check that corpora and fixed settings have not changed since the run began.

    Args:
        hashes: the present hashes of the corpora.
    Returns:
        The settings that have changed, each as text like "seed was 1, is 2".
    Raises:
        ConfigError: a setting such as the architecture or the seed has changed.
        DataError: a corpus has changed.
    """
    # 1. Compare the settings.
    before = dict(values(run.read_config()))
    now = dict(values(config))
    changes = {}
    for key in differing(before, now):
        changes[key] = f"{key} was {before.get(key, '-')}, is {now.get(key, '-')}"
    refused = [text for key, text in changes.items() if not MAY_CHANGE.fullmatch(key)]
    if refused:
        message = f"{run.path} was begun with other settings: {'; '.join(refused)}"
        raise ConfigError(message, hint=f"set them back, choose another run=PATH, or {OR_ANEW}")

    # 2. Compare the contents of the training and dev corpora. Without a manifest, accept the present contents.
    known = run.read_manifest().get("data", hashes)
    other = [name for name in differing(hashes, known) if not name.startswith("test.")]
    if other:
        message = f"the files of {', '.join(other)} are not those that {run.path} was begun with"
        raise DataError(message, hint=f"bring the old files back, choose another run=PATH, or {OR_ANEW}")
    return list(changes.values())


def differing(before: dict[str, str], now: dict[str, str]) -> list[str]:
    """Return the keys whose values are not the same in both dictionaries. A missing value is "-"."""
    return [key for key in {**before, **now} if before.get(key, "-") != now.get(key, "-")]


def train(session: Session, *, n_replicas: int | None = 1) -> Progress:
    """Write the files of the run and train to the end of the budget, as rank 0.

    On a CPU, `n_replicas` processes share each step. If it is None, `n_fitting_replicas` chooses the number. Raises the
    errors of `Trainer.train`, and LostRankError if another rank ends.
    """
    run, settings, n_batches = session.run, session.config.train, session.data.n_batches
    if session.fresh and (aside := run.move_aside()):
        log.info("the old run is kept in %s", aside)
    with run.lock():
        # 1. Restore the newest checkpoint, and write the small files of the run.
        session.on_start()
        trainer = Trainer(session)
        resumed = trainer.checkpointer.resume()
        progress = trainer.progress
        if not resumed:
            run.write_tokenizers(session.tokenizers, session.config.tokenizer.joint)
            n_pairs = {"train": len(session.data.pairs), "dev": len(session.corpus.dev)}
            run.write_manifest(new_manifest(session.corpus.hashes, n_pairs, session.config.seed))

        # 2. Choose the number of processes that share a step.
        if launched().n_ranks > 1:
            n_replicas = 1
        elif n_replicas is None:
            n_replicas = n_fitting_replicas(session.model, settings, progress.n_ranks)

        # 3. Train, unless the training is finished.
        with ranks_joined():
            if trainer.finished():
                log.info("%s is finished: %s", run.path, ending(settings, progress, n_batches))
                if session.changes:
                    log.warning("the training is finished, so changes have no effect: %s", "; ".join(session.changes))
                return progress
            run.write_config(session.config)
            if resumed:
                log.info("going on from step %d of %s", progress.step, run.path)
            log_training(session, progress, n_replicas)
            progress = trainer.train(n_replicas)
    log.info("%s", ending(settings, progress, n_batches))
    figures = progress.best_figures
    assert figures, "a training ends with a validation"
    figure = figures[f"dev_{settings.metric}"]
    best = f"best dev {settings.metric.upper()} {figure:.2f} at step {figures['step']}"
    done = f"done: {progress.step} steps in {clock(progress.elapsed_s)}"
    log.info("%s, %s; the model is %s", done, best, run.model_file)
    return progress


def check_replicas(n: int, device: torch.device) -> None:
    """Raise ConfigError if `--replicas` is more than 1 on a GPU or under torchrun."""
    if n > 1 and (device.type != "cpu" or launched().n_ranks > 1):
        raise ConfigError("--replicas share a CPU", hint="for several GPUs: torchrun -m nmt train …")


def log_training(session: Session, progress: Progress, n_replicas: int) -> None:
    """Log the sizes of the corpora and the model, the device, and the numbers of replicas and threads."""
    data, model = session.data, session.model
    n_steps = math.ceil(data.n_batches / session.config.train.accumulate)
    sizes = f"{data.n_epoch_pairs} pairs, {n_steps} steps an epoch, {model.n_parameters / 1e6:.2f}M parameters"
    precision = "bf16" if progress.bf16 else "fp32"
    processes = f"replicas: {n_ranks() * n_replicas}, threads of each: {n_threads_each(n_replicas)}"
    log.info("%s: %s, %s on %s, %s", session.run.path, sizes, precision, model.device, processes)
    warn_if_tokenized([pair.target for pair in session.corpus.dev], "dev lines")


def train_along(config: Config, *, device: str) -> None:
    """Train as a rank other than 0, after rank 0 has prepared the run and written its files."""
    with ranks_joined():  # waits until rank 0 has prepared the corpus and the tokenizers
        log.setLevel(logging.ERROR)  # only rank 0 reports progress
        trainer = Trainer(prepare(config, device=device))
        trainer.checkpointer.resume()
        if not trainer.finished():
            trainer.train()
